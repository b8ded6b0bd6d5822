//! GEMM: `y = f(x·z + y + b)`, the product of two dense matrices, either of them transposed, or the
//! sum of two such products.
//!
//! ```text
//!  Nn: x·z, a layer        Nt: x·zᵀ, the gradient of its input      Tn: xᵀ·z, that of its weights
//! ```
//! Two strategies: by rows, where the right factor is small and packed once (`gemm.rows`), and by
//! blocks of the result, with the sum cut into pieces where the result is small (`gemm.blocks`).
//! Both read the left factor where it lies and keep a tile of 6 rows and up to 4 vectors of sums in
//! registers; by rows, results of up to 4 columns are sums along rows instead, and sums of one term
//! are rows, scaled. Factors may be
//! stored in bf16; they are widened on the way, and sums are `f32`.
//!
//! # Parallelism
//! Blocks follow from the sizes alone; each is done whole by one thread.
//! # Accuracy
//! Terms are added in the order of `p`, in chunks that the sizes say; sums along rows have 64
//! parts.

mod blocks;
mod dots;
mod grouped;
mod outer;
mod pack;
mod rows;
mod tile;

use lacis_core::error::same_size;
use lacis_core::reference::{Activation, Form};
use lacis_core::{Error, Result, Threads};

use crate::finish::{Accum, Epilogue};
pub use grouped::{Item, Segments, grouped};

use crate::isa::Isa;
use crate::matrix::{Mat, MatMut};
use crate::real::Stored;
use pack::Side;
use rows::{Packed, Term};

/// Rows of a tile. Six of four vectors leave registers for the panel; powers of two tempt LLVM to
/// make vectors across rows.
const R: usize = 6;

/// A product to compute, its sizes checked. `X` and `Z` are what the factors are stored in.
#[derive(Clone, Copy, Debug)]
pub struct Args<'a, X: Stored = f32, Z: Stored = X> {
    product: Product<'a, X, Z>,
    /// Another one that is added to the first rows.
    also: Option<Product<'a, X, Z>>,
    form: Form,
    finish: Epilogue<'a, X::Sum>,
}

/// The factors, how they are read, and the sizes of `m × k` times `k × n`.
#[derive(Clone, Copy, Debug)]
struct Product<'a, X: Stored, Z: Stored> {
    x: (Mat<'a, X>, Side),
    z: (Mat<'a, Z>, Side),
    m: usize,
    n: usize,
    k: usize,
}

impl<'a, X: Stored, Z: Stored> Product<'a, X, Z> {
    fn new(op: &'static str, form: Form, x: Mat<'a, X>, z: Mat<'a, Z>) -> Result<Self> {
        let (m, k, left) = match form {
            Form::Nn | Form::Nt => (x.n_rows, x.n_cols, Side::Plain),
            Form::Tn => (x.n_cols, x.n_rows, Side::Turned),
        };
        let (inner, n, right) = match form {
            Form::Nn | Form::Tn => (z.n_rows, z.n_cols, Side::Plain),
            Form::Nt => (z.n_cols, z.n_rows, Side::Turned),
        };
        same_size(op, "inner size of the second matrix", k, inner)?;
        Ok(Product { x: (x, left), z: (z, right), m, n, k })
    }
}

impl<'a, X: Stored, Z: Stored<Sum = X::Sum>> Args<'a, X, Z> {
    /// `x·z`, `x·zᵀ` or `xᵀ·z`.
    ///
    /// # Errors
    /// When the inner sizes differ.
    pub fn new(form: Form, x: impl Into<Mat<'a, X>>, z: impl Into<Mat<'a, Z>>) -> Result<Self> {
        let product = Product::new("gemm", form, x.into(), z.into())?;
        Ok(Args { product, also: None, form, finish: Epilogue::PLAIN })
    }

    /// Adds a second product of the same form, to all rows or to the first ones.
    ///
    /// # Errors
    /// When it has other columns or more rows, and for `xᵀ·z`.
    pub fn plus(mut self, x: impl Into<Mat<'a, X>>, z: impl Into<Mat<'a, Z>>) -> Result<Self> {
        let also = Product::new("gemm", self.form, x.into(), z.into())?;
        same_size("gemm", "columns of the second product", self.product.n, also.n)?;
        if self.form == Form::Tn || also.m > self.product.m {
            let problem = format!(
                "{:?} of {} rows cannot be added to {} rows; x·z or x·zᵀ of as many or fewer can",
                self.form, also.m, self.product.m
            );
            return Err(Error::argument("gemm, second product", problem));
        }
        self.also = Some(also);
        Ok(self)
    }

    /// Adds to what is there, or replaces it.
    pub fn accumulated(mut self, accum: Accum) -> Self {
        self.finish.accum = accum;
        self
    }

    /// Adds `bias` to each row of the result.
    ///
    /// # Errors
    /// When it is not as long as a row.
    pub fn biased(mut self, bias: &'a [X::Sum]) -> Result<Self> {
        same_size("gemm", "length of the bias", self.product.n, bias.len())?;
        self.finish.bias = Some(bias);
        Ok(self)
    }

    /// Applies a function to each element of the result, last.
    pub fn activated(mut self, activation: Activation) -> Self {
        self.finish.activation = activation;
        self
    }
}

/// Who does what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Strategy {
    Rows,
    Blocks,
}

/// One way to compute it.
#[derive(Debug)]
pub struct Kernel {
    /// `gemm.rows.v4`: the operator, who does what, the most vectors of a tile.
    pub name: &'static str,
    strategy: Strategy,
    vectors: usize,
}

/// Every kernel there is. Each takes any sizes; `gemm.rows` not the form `Tn`.
pub static KERNELS: &[Kernel] = &[
    Kernel { name: "gemm.rows.v4", strategy: Strategy::Rows, vectors: 4 },
    Kernel { name: "gemm.rows.v1", strategy: Strategy::Rows, vectors: 1 },
    Kernel { name: "gemm.blocks.v4", strategy: Strategy::Blocks, vectors: 4 },
    Kernel { name: "gemm.blocks.v1", strategy: Strategy::Blocks, vectors: 1 },
];

/// The longest sum for which a packed panel of the right factor stays in the second cache.
const LONG: usize = 1 << 11;

/// Whether tiles of four vectors fit: they need 32 registers of 16 numbers each.
fn is_wide<F>(isa: Isa) -> bool {
    isa.name() == "avx512" && size_of::<F>() == size_of::<f32>()
}

impl Kernel {
    /// The kernel to begin with, where nothing has been measured.
    pub fn usual<X: Stored, Z: Stored>(isa: Isa, args: &Args<'_, X, Z>) -> &'static Kernel {
        let blocks = args.form == Form::Tn || args.product.k > LONG;
        let narrow = usize::from(!is_wide::<X::Sum>(isa));
        &KERNELS[usize::from(blocks) * 2 + narrow]
    }

    /// Whether it computes products of that form.
    pub fn takes(&self, form: Form) -> bool {
        self.strategy == Strategy::Blocks || form != Form::Tn
    }

    /// Computes the product into `y`.
    ///
    /// # Errors
    /// When `y` has another shape than the product, or the kernel does not take the form.
    pub fn run<'y, X, Z, O>(
        &self,
        isa: Isa,
        args: &Args<'_, X, Z>,
        y: impl Into<MatMut<'y, O>>,
        threads: &Threads,
    ) -> Result<()>
    where
        X: Stored,
        Z: Stored<Sum = X::Sum>,
        O: Stored<Sum = X::Sum>,
    {
        let (y, Args { product, form, finish, .. }) = (y.into(), *args);
        same_size("gemm", "rows of y", product.m, y.n_rows)?;
        same_size("gemm", "columns of y", product.n, y.n_cols)?;
        if !self.takes(form) {
            let problem = format!("does not compute {form:?}; gemm.blocks does");
            return Err(Error::argument(self.name, problem));
        }
        let few = product.n <= dots::MOST && product.k >= dots::LEAST_TERMS;
        match (self.strategy, self.vectors) {
            // Two products at once go by rows, however long their sums.
            _ if args.also.is_some() => self.by_rows(isa, args, y, threads),
            (Strategy::Rows, _) if product.k == 1 => {
                outer::run(isa, &product, (y, finish), threads)
            }
            (Strategy::Rows, _) if few => dots::run(isa, &product, (y, finish), threads),
            (Strategy::Rows, _) => self.by_rows(isa, args, y, threads),
            (Strategy::Blocks, 1) => {
                blocks::run::<X, Z, O, 1>(isa, vec![(product, y)], finish, threads);
            }
            (Strategy::Blocks, _) => {
                blocks::run::<X, Z, O, 4>(isa, vec![(product, y)], finish, threads);
            }
        }
        Ok(())
    }

    fn by_rows<X, Z, O>(&self, isa: Isa, args: &Args<'_, X, Z>, y: MatMut<'_, O>, threads: &Threads)
    where
        X: Stored,
        Z: Stored<Sum = X::Sum>,
        O: Stored<Sum = X::Sum>,
    {
        let pack = |product: &Product<'_, X, Z>| Packed::new(product.z, self.vectors, threads);
        let (first, second) = (pack(&args.product), args.also.as_ref().map(pack));
        let also = args.also.as_ref().zip(second.as_ref());
        let also = also.map(|(also, packed)| Term { x: also.x.0, packed });
        let terms = (Term { x: args.product.x.0, packed: &first }, also);
        let parts = rows::parts(terms, y, args.finish);
        match self.vectors {
            1 => rows::run::<X, O, 1>(isa, parts, threads),
            _ => rows::run::<X, O, 4>(isa, parts, threads),
        }
    }
}

/// Computes the product into `y` with the usual kernel on the widest instruction set.
///
/// # Errors
/// When `y` has another shape than the product.
pub fn gemm<'y, X, Z, O>(
    args: &Args<'_, X, Z>,
    y: impl Into<MatMut<'y, O>>,
    threads: &Threads,
) -> Result<()>
where
    X: Stored,
    Z: Stored<Sum = X::Sum>,
    O: Stored<Sum = X::Sum>,
{
    let isa = Isa::best();
    Kernel::usual(isa, args).run(isa, args, y, threads)
}
