//! Functions of each element alone, as many of them as come one after another in one pass:
//!
//! ```text
//!   y_ic = d_ic · f( α · l_i · a_c · (x_ic − μ_c)  +  β · z_ic  +  b_c )
//! ```
//! with an activation `f`, dropout `d`, factors `l` of rows and `a` of columns, centres `μ`, a
//! residual `z` and a bias `b`; each may be absent. [`Backward`] takes `dy` back through `d` and
//! `f`, and sums the columns of the result, which is the gradient of `b`.
//!
//! # Parallelism
//! A thread does whole rows; chunks of rows follow from the shape alone.
//! # Accuracy
//! Sums of columns are kept in `T::Sum` within a chunk and in f64 across chunks.

pub(crate) mod activation;
mod backward;

use lacis_core::error::same_size;
use lacis_core::reference::Activation;
use lacis_core::{Result, Threads};

pub(crate) use backward::chunk_sums;
pub use backward::{Backward, Saved, column_sums};

use crate::dropout::{self, Dropout, Noise};
use crate::isa::{Arith, Isa, per_isa};
use crate::matrix::{Mat, MatMut};
use crate::once::once;
use crate::real::{Real, Stored};
use crate::strips::{STRIP, Strip, Strips, chunked, load, store};

const OP: &str = "elementwise";

/// A pass over a matrix, its sizes checked. See the module's head.
#[derive(Clone, Copy, Debug)]
pub struct Forward<'a, T: Stored> {
    shape: (usize, usize),
    x: Option<Mat<'a, T>>,
    alpha: f64,
    left: Option<&'a [T::Sum]>,
    factors: Option<&'a [T::Sum]>,
    centres: Option<&'a [T::Sum]>,
    residual: Option<(f64, Mat<'a, T>)>,
    bias: Option<&'a [T::Sum]>,
    activation: Activation,
    dropout: Option<Dropout<'a>>,
}

impl<'a, T: Stored> Forward<'a, T> {
    /// `y = x`.
    pub fn new(x: impl Into<Mat<'a, T>>) -> Self {
        let x = x.into();
        Forward { x: Some(x), ..Forward::in_place(x.n_rows, x.n_cols) }
    }

    /// `y = y`: what is read as `x` is what `y` held.
    pub fn in_place(n_rows: usize, n_cols: usize) -> Self {
        Forward {
            shape: (n_rows, n_cols),
            x: None,
            alpha: 1.0,
            left: None,
            factors: None,
            centres: None,
            residual: None,
            bias: None,
            activation: Activation::Identity,
            dropout: None,
        }
    }

    /// The same pass in place.
    pub fn of_itself(self) -> Self {
        Forward { x: None, ..self }
    }

    /// `α`.
    pub fn scaled(self, alpha: f64) -> Self {
        Forward { alpha, ..self }
    }

    /// `l`, one factor per row.
    ///
    /// # Errors
    /// When there is not one per row.
    pub fn row_scaled(self, left: &'a [T::Sum]) -> Result<Self> {
        same_size(OP, "number of row factors", self.shape.0, left.len())?;
        Ok(Forward { left: Some(left), ..self })
    }

    /// `a`, one factor per column.
    ///
    /// # Errors
    /// When there is not one per column.
    pub fn column_scaled(self, factors: &'a [T::Sum]) -> Result<Self> {
        same_size(OP, "number of column factors", self.shape.1, factors.len())?;
        Ok(Forward { factors: Some(factors), ..self })
    }

    /// `μ`, one number per column.
    ///
    /// # Errors
    /// When there is not one per column.
    pub fn centred(self, centres: &'a [T::Sum]) -> Result<Self> {
        same_size(OP, "number of centres", self.shape.1, centres.len())?;
        Ok(Forward { centres: Some(centres), ..self })
    }

    /// `β · z`.
    ///
    /// # Errors
    /// When `z` has another shape.
    pub fn plus(self, beta: f64, z: impl Into<Mat<'a, T>>) -> Result<Self> {
        let z = z.into();
        same_size(OP, "rows of the residual", self.shape.0, z.n_rows)?;
        same_size(OP, "columns of the residual", self.shape.1, z.n_cols)?;
        Ok(Forward { residual: Some((beta, z)), ..self })
    }

    /// `b`, one number per column.
    ///
    /// # Errors
    /// When there is not one per column.
    pub fn biased(self, bias: &'a [T::Sum]) -> Result<Self> {
        same_size(OP, "length of the bias", self.shape.1, bias.len())?;
        Ok(Forward { bias: Some(bias), ..self })
    }

    /// `f`.
    pub fn activated(self, activation: Activation) -> Self {
        Forward { activation, ..self }
    }

    /// `d`.
    ///
    /// # Errors
    /// When the dropout names other than one row number per row.
    pub fn dropped(self, dropout: Dropout<'a>) -> Result<Self> {
        dropout.check(OP, self.shape.0)?;
        Ok(Forward { dropout: (!dropout.keeps_all()).then_some(dropout), ..self })
    }

    /// Computes it into `y`.
    ///
    /// # Errors
    /// When `y` has another shape than `x`.
    pub fn run<'y>(&self, isa: Isa, y: impl Into<MatMut<'y, T>>, threads: &Threads) -> Result<()>
    where
        T: 'y,
    {
        T::elementwise(self, isa, y.into(), threads)
    }

    fn run_here(&self, isa: Isa, y: MatMut<'_, T>, threads: &Threads) -> Result<()> {
        same_size(OP, "rows of y", self.shape.0, y.n_rows)?;
        same_size(OP, "columns of y", self.shape.1, y.n_cols)?;
        if y.n_rows == 0 || y.n_cols == 0 {
            return Ok(());
        }
        let read = [self.x, self.residual.map(|(_, z)| z)];
        let dense = y.stride == y.n_cols && read.iter().flatten().all(Mat::is_dense);
        let strips = Strips::new(y.n_cols, dense);
        let repeated = |columns: Option<&[T::Sum]>| columns.map(|c| strips.repeated(c));
        let (factors, centres) = (repeated(self.factors), repeated(self.centres));
        let bias = repeated(self.bias);
        let args = Forward {
            factors: factors.as_deref(),
            centres: centres.as_deref(),
            bias: bias.as_deref(),
            ..*self
        };
        threads.for_each(chunked(strips, y), |(rows, y)| {
            forward(isa, Part { args: &args, strips, first: rows.start, y });
        });
        Ok(())
    }
}

once!(Once:
    fn elementwise(
        pass: &Forward<'_, Self>,
        isa: Isa,
        y: MatMut<'_, Self>,
        threads: &Threads,
    ) -> Result<()> = Forward::run_here;
    fn elementwise_backward(
        pass: &Backward<'_, Self>,
        isa: Isa,
        g: MatMut<'_, Self>,
        sums: Option<&mut [<Self as Stored>::Sum]>,
        threads: &Threads,
    ) -> Result<()> = Backward::run_here;
    fn column_sums(
        isa: Isa,
        x: Mat<'_, Self>,
        sums: &mut [<Self as Stored>::Sum],
        threads: &Threads,
    ) -> Result<()> = backward::column_sums_here;
);

/// Some rows of a pass, from row `first` on. What is given per column is repeated.
struct Part<'a, T: Stored> {
    args: &'a Forward<'a, T>,
    strips: Strips,
    first: usize,
    y: MatMut<'a, T>,
}

per_isa!(fn forward<[T: Stored], []>(part: Part<'_, T>) = forward_body);

#[inline(always)]
fn forward_body<M: Arith, T: Stored>(part: Part<'_, T>) {
    let Part { args, strips, first, mut y } = part;
    let mut stage = [T::Sum::ZERO; STRIP];
    let mut noise: Noise = [0; _];
    for strip in strips.of(y.n_rows) {
        let stage = &mut stage[..strip.len];
        let whole = Strip { row: first + strip.row, ..strip };
        let y = y.strip_mut(strip);
        match args.x {
            Some(x) => load(stage, x.strip(whole)),
            None => load(stage, y),
        }
        linear::<M, T>(args, stage, whole);
        activation::apply::<M, T::Sum>(args.activation, stage);
        if let Some(dropout) = &args.dropout {
            dropout::fill(&mut noise, dropout, 0, whole, args.shape.1);
            dropout::mask(stage, &noise, dropout);
        }
        store(y, stage);
    }
}

/// What the activation is applied to.
#[inline(always)]
fn linear<M: Arith, T: Stored>(args: &Forward<'_, T>, stage: &mut [T::Sum], strip: Strip) {
    // Numbers given per column begin where a strip of several rows does.
    let columns = strip.col..strip.col + strip.len;
    if let Some(centres) = args.centres {
        stage.iter_mut().zip(&centres[columns.clone()]).for_each(|(v, c)| *v = *v - *c);
    }
    if let Some(factors) = args.factors {
        stage.iter_mut().zip(&factors[columns.clone()]).for_each(|(v, a)| *v *= *a);
    }
    if let Some(left) = args.left {
        let left = &left[strip.row..][..strip.rows];
        for (row, l) in stage.chunks_mut(strip.len.min(args.shape.1)).zip(left) {
            row.iter_mut().for_each(|v| *v *= *l);
        }
    }
    if args.alpha != 1.0 {
        let alpha = T::Sum::of(args.alpha);
        stage.iter_mut().for_each(|v| *v *= alpha);
    }
    if let Some((beta, z)) = args.residual {
        let beta = T::Sum::of(beta);
        stage.iter_mut().zip(z.strip(strip)).for_each(|(v, z)| {
            *v = M::mul_add(beta, z.wide(), *v);
        });
    }
    if let Some(bias) = args.bias {
        stage.iter_mut().zip(&bias[columns]).for_each(|(v, b)| *v += *b);
    }
}
