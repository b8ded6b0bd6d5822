//! Many products of different factors in one call: typed and relational layers, heads.
//!
//! ```text
//!  y_i = x_i·W_g       dx_i = dy_i·W_gᵀ       dW_g = Σ_i x_iᵀ·dy_i       for the rows i of group g
//! ```
//!
//! # Parallelism
//! The blocks of all products are one list of work: many small products keep all threads busy, and
//! so does one that is much larger than the others.

use lacis_core::error::same_size;
use lacis_core::reference::Form;
use lacis_core::{Error, Result, Threads};

use super::rows::{self, Packed, Term};
use super::{Product, blocks, is_wide};
use crate::finish::Epilogue;
use crate::isa::Isa;
use crate::matrix::{Mat, MatMut};
use crate::real::Stored;

/// One product of many: its factors, and where it goes.
pub type Item<'a, X, Z, O> = (Mat<'a, X>, Mat<'a, Z>, MatMut<'a, O>);

/// Computes products of any sizes, all of one form.
///
/// # Errors
/// When the sizes of a product do not fit.
pub fn grouped<X, Z, O>(
    isa: Isa,
    form: Form,
    items: Vec<Item<'_, X, Z, O>>,
    threads: &Threads,
) -> Result<()>
where
    X: Stored,
    Z: Stored<Sum = X::Sum>,
    O: Stored<Sum = X::Sum>,
{
    let op = "grouped gemm";
    let mut products = Vec::with_capacity(items.len());
    for (x, z, y) in items {
        let product = Product::new(op, form, x, z)?;
        same_size(op, "rows of y", product.m, y.n_rows)?;
        same_size(op, "columns of y", product.n, y.n_cols)?;
        products.push((product, y));
    }
    match (form, is_wide::<X::Sum>(isa)) {
        (Form::Tn, true) => blocks::run::<X, Z, O, 4>(isa, products, Epilogue::PLAIN, threads),
        (Form::Tn, false) => blocks::run::<X, Z, O, 1>(isa, products, Epilogue::PLAIN, threads),
        (_, true) => by_rows::<X, Z, O, 4>(isa, products, threads),
        (_, false) => by_rows::<X, Z, O, 1>(isa, products, threads),
    }
    Ok(())
}

fn by_rows<X, Z, O, const V: usize>(
    isa: Isa,
    products: Vec<(Product<'_, X, Z>, MatMut<'_, O>)>,
    threads: &Threads,
) where
    X: Stored,
    Z: Stored<Sum = X::Sum>,
    O: Stored<Sum = X::Sum>,
{
    let right = products.iter().map(|(product, _)| product.z).collect();
    let packed = threads.map(right, |z| Packed::new(z, V, &Threads::one()));
    let pairs = products.into_iter().zip(&packed);
    let parts = pairs.flat_map(|((product, y), packed)| {
        rows::parts((Term { x: product.x.0, packed }, None), y, Epilogue::PLAIN)
    });
    rows::run::<X, O, V>(isa, parts.collect(), threads);
}

/// Rows that are cut into consecutive groups, each with its own weights, all of one shape.
#[derive(Clone, Debug)]
pub struct Segments<'a, Z: Stored = f32> {
    ptr: &'a [usize],
    weights: Vec<Mat<'a, Z>>,
}

impl<'a, Z: Stored> Segments<'a, Z> {
    /// Group `g` is the rows `ptr[g]..ptr[g + 1]`, with `weights[g]`.
    ///
    /// # Errors
    /// When `ptr` does not begin at 0, falls, or does not have one run per weight; when the weights
    /// differ in shape.
    pub fn new(ptr: &'a [usize], weights: Vec<Mat<'a, Z>>) -> Result<Self> {
        let op = "segment_matmul";
        same_size(op, "number of row pointers", weights.len() + 1, ptr.len())?;
        same_size(op, "first row pointer", 0, ptr[0])?;
        if let Some(at) = ptr.windows(2).position(|pair| pair[0] > pair[1]) {
            let (index, bound) = (ptr[at] as u64, ptr[at + 1] as u64 + 1);
            return Err(Error::Index { op, what: "row pointer", index, at, bound });
        }
        for w in &weights {
            same_size(op, "rows of a weight", weights[0].n_rows, w.n_rows)?;
            same_size(op, "columns of a weight", weights[0].n_cols, w.n_cols)?;
        }
        Ok(Segments { ptr, weights })
    }

    fn n_rows(&self) -> usize {
        self.ptr[self.ptr.len() - 1]
    }

    /// The rows of each group.
    fn of<'x, T: Stored>(&self, x: Mat<'x, T>) -> Vec<Mat<'x, T>> {
        self.ptr.windows(2).map(|pair| x.rows(pair[0]..pair[1])).collect()
    }

    /// `y_i = x_i·W_g`.
    ///
    /// # Errors
    /// When a size does not fit.
    pub fn forward<X, O>(
        &self,
        isa: Isa,
        x: Mat<'_, X>,
        y: MatMut<'_, O>,
        threads: &Threads,
    ) -> Result<()>
    where
        X: Stored<Sum = Z::Sum>,
        O: Stored<Sum = Z::Sum>,
    {
        self.by_rows(isa, Form::Nn, (x, y), threads)
    }

    /// `dx_i = dy_i·W_gᵀ`.
    ///
    /// # Errors
    /// When a size does not fit.
    pub fn input_gradient<X, O>(
        &self,
        isa: Isa,
        dy: Mat<'_, X>,
        dx: MatMut<'_, O>,
        threads: &Threads,
    ) -> Result<()>
    where
        X: Stored<Sum = Z::Sum>,
        O: Stored<Sum = Z::Sum>,
    {
        self.by_rows(isa, Form::Nt, (dy, dx), threads)
    }

    /// `dW_g = Σ_i x_iᵀ·dy_i`; zeros for a group without rows.
    ///
    /// # Errors
    /// When a size does not fit.
    pub fn weight_gradients<X, O>(
        &self,
        isa: Isa,
        (x, dy): (Mat<'_, X>, Mat<'_, X>),
        dw: Vec<MatMut<'_, O>>,
        threads: &Threads,
    ) -> Result<()>
    where
        X: Stored<Sum = Z::Sum>,
        O: Stored<Sum = Z::Sum>,
    {
        let op = "segment_matmul";
        same_size(op, "rows of x", self.n_rows(), x.n_rows)?;
        same_size(op, "rows of the gradient", self.n_rows(), dy.n_rows)?;
        same_size(op, "number of weight gradients", self.weights.len(), dw.len())?;
        let pairs = self.of(x).into_iter().zip(self.of(dy)).zip(dw);
        let items = pairs.map(|((x, dy), dw)| (x, dy, dw)).collect();
        grouped(isa, Form::Tn, items, threads)
    }

    fn by_rows<X, O>(
        &self,
        isa: Isa,
        form: Form,
        (x, y): (Mat<'_, X>, MatMut<'_, O>),
        threads: &Threads,
    ) -> Result<()>
    where
        X: Stored<Sum = Z::Sum>,
        O: Stored<Sum = Z::Sum>,
    {
        same_size("segment_matmul", "rows of x", self.n_rows(), x.n_rows)?;
        same_size("segment_matmul", "rows of y", self.n_rows(), y.n_rows)?;
        let triples = self.of(x).into_iter().zip(&self.weights).zip(y.split(&self.ptr[1..]));
        let items = triples.map(|((x, w), y)| (x, *w, y)).collect();
        grouped(isa, form, items, threads)
    }
}
