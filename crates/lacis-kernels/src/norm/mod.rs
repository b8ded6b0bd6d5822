//! Normalisation: of columns over the batch, of a whole graph, and of rows.
//!
//! ```text
//!   batch, graph:  y_ic = γ_c · (x_ic − μ_c) / s_c + β_c      s and μ per column; all equal for a
//!                  dx   = γ/s · dy + B·(x − μ) + C            graph; B and C per column, from the
//!                                                             sums of dy and of dy·(x − μ)
//!   layer:         as batch norm, with the roles of rows and columns exchanged
//! ```
//! Batch and graph norm are [`moments`], a [`Scaling`] made of them, and a pass of
//! [`elementwise::Forward`](crate::elementwise::Forward), which an activation and dropout may join.
//!
//! # Parallelism
//! A thread does whole rows; chunks of rows follow from the shape alone.
//! # Accuracy
//! A chunk's mean comes before its squares; chunks are put together in f64, in their order.

mod backward;
mod layer;

use lacis_core::error::same_size;
use lacis_core::reference::{Eps, Moments};
use lacis_core::{Element, Error, Result, Threads};

pub use backward::backward;
pub use layer::{layer, layer_backward};

use crate::elementwise::{Forward, chunk_sums};
use crate::isa::{Arith, Isa, per_isa};
use crate::matrix::{Mat, MatMut};
use crate::once::once;
use crate::real::{Real, Stored};
use crate::strips::Strips;

/// `γ` and `β`, one of each per column, and `ε`.
#[derive(Clone, Copy, Debug)]
pub struct Norm<'a, F> {
    /// The factors.
    pub gamma: &'a [F],
    /// The summands.
    pub beta: &'a [F],
    /// 1e-5 in torch.
    pub eps: f64,
}

impl<F: Real> Norm<'_, F> {
    fn check(&self, op: &'static str, n_cols: usize) -> Result<()> {
        same_size(op, "length of gamma", n_cols, self.gamma.len())?;
        same_size(op, "length of beta", n_cols, self.beta.len())
    }
}

/// Where the gradients of a norm go.
#[derive(Debug)]
pub struct Grads<'a, T: Stored> {
    /// Of `x`.
    pub x: MatMut<'a, T>,
    /// Of `γ`.
    pub gamma: &'a mut [T::Sum],
    /// Of `β`.
    pub beta: &'a mut [T::Sum],
}

impl<T: Stored> Grads<'_, T> {
    fn check(&self, op: &'static str, n_rows: usize, n_cols: usize) -> Result<()> {
        same_size(op, "rows of dx", n_rows, self.x.n_rows)?;
        same_size(op, "columns of dx", n_cols, self.x.n_cols)?;
        same_size(op, "length of dgamma", n_cols, self.gamma.len())?;
        same_size(op, "length of dbeta", n_cols, self.beta.len())
    }
}

/// Mean and biased variance of each column; NaN of no rows.
///
/// # Memory
/// Two numbers per column for each chunk of some 65,536 elements.
pub fn moments<'a, T: Stored>(isa: Isa, x: impl Into<Mat<'a, T>>, threads: &Threads) -> Moments {
    T::moments(isa, x.into(), threads)
}

fn moments_here<T: Stored>(isa: Isa, x: Mat<'_, T>, threads: &Threads) -> Moments {
    let k = x.n_cols;
    let strips = Strips::new(k, x.is_dense());
    let chunks = if k == 0 { Vec::new() } else { strips.chunks(x.n_rows) };
    let parts = threads.map(chunks, |rows| {
        let x = x.rows(rows);
        let n = x.n_rows as f64;
        let mean: Vec<f64> = chunk_sums(isa, x, strips).iter().map(|sum| sum / n).collect();
        let centres: Vec<T::Sum> = mean.iter().map(|&mean| T::Sum::of(mean)).collect();
        let mut square = vec![T::Sum::ZERO; strips.period()];
        add_squares(isa, (x, strips, &strips.repeated(&centres), &mut square));
        // The centres are rounded: the squares are about those.
        let about = centres.iter().map(|centre| centre.to_f64());
        let squares = strips.folded(&square);
        let squares = squares.iter().zip(about.zip(&mean));
        (n, squares.map(|(q, (about, mean))| q - n * (mean - about).powi(2)).collect(), mean)
    });
    merged(parts, k)
}

once!(Once:
    fn moments(isa: Isa, x: Mat<'_, Self>, threads: &Threads) -> Moments = moments_here;
    fn norm_backward(
        isa: Isa,
        norm: (&Scaling, &Norm<'_, <Self as Stored>::Sum>),
        given: (Mat<'_, Self>, Mat<'_, Self>),
        grads: Grads<'_, Self>,
        threads: &Threads,
    ) -> Result<()> = backward::backward_here;
    fn layer_norm(
        isa: Isa,
        norm: &Norm<'_, <Self as Stored>::Sum>,
        x: Mat<'_, Self>,
        y: MatMut<'_, Self>,
        threads: &Threads,
    ) -> Result<()> = layer::layer_here;
    fn layer_norm_backward(
        isa: Isa,
        norm: &Norm<'_, <Self as Stored>::Sum>,
        given: (Mat<'_, Self>, Mat<'_, Self>),
        grads: Grads<'_, Self>,
        threads: &Threads,
    ) -> Result<()> = layer::layer_backward_here;
);

/// Moments of all chunks from `(rows, squares, mean)` of each (Chan, Golub and LeVeque 1979).
fn merged(parts: Vec<(f64, Vec<f64>, Vec<f64>)>, k: usize) -> Moments {
    let (mut total, mut mean, mut squares) = (0.0, vec![0.0; k], vec![0.0; k]);
    for (n, part_squares, part_mean) in parts {
        let share = n / (total + n);
        for c in 0..k {
            let step = part_mean[c] - mean[c];
            mean[c] += step * share;
            squares[c] += part_squares[c] + step * step * total * share;
        }
        total += n;
    }
    if total == 0.0 {
        mean.fill(f64::NAN);
    }
    let var = squares.iter().map(|square| (square / total).max(0.0)).collect();
    Moments { mean, var }
}

/// One training step of a running estimate, `r ← (1 − momentum)·r + momentum·batch`, where the
/// variance of a batch of `n_rows` rows is taken unbiased. torch's momentum is 0.1.
///
/// # Errors
/// When the two differ in length, or there are fewer than two rows.
pub fn update_running(
    running: &mut Moments,
    batch: &Moments,
    n_rows: usize,
    momentum: f64,
) -> Result<()> {
    check_batch(n_rows)?;
    let k = batch.mean.len();
    let found = [&running.mean, &running.var, &batch.var];
    found.iter().try_for_each(|of| same_size("batch norm", "number of moments", k, of.len()))?;
    let unbiased = n_rows as f64 / (n_rows as f64 - 1.0);
    let step = |running: &mut f64, new: f64| *running += momentum * (new - *running);
    running.mean.iter_mut().zip(&batch.mean).for_each(|(r, new)| step(r, *new));
    running.var.iter_mut().zip(&batch.var).for_each(|(r, new)| step(r, new * unbiased));
    Ok(())
}

/// One row has no variance, and torch refuses it too.
fn check_batch(n_rows: usize) -> Result<()> {
    if n_rows >= 2 {
        return Ok(());
    }
    let problem = format!("{n_rows} rows have no variance; 2 or more would be right");
    Err(Error::argument("batch norm", problem))
}

/// `μ` and `1/s` per column, and how both depend on `x`.
#[derive(Clone, Debug)]
pub struct Scaling {
    mean: Vec<f64>,
    inverse: Vec<f64>,
    depends: Depends,
}

/// What of a scaling is a function of `x`.
#[derive(Clone, Copy, Debug)]
enum Depends {
    /// Nothing.
    No,
    /// Each column's, on this many rows.
    Columns,
    /// All, on all elements; the inverse of the divisor's root, 0 where it has no slope.
    Whole(f64),
}

impl Scaling {
    /// Batch norm in training: `s = √(var + ε)` of the batch's own [`moments`].
    ///
    /// # Errors
    /// When a batch of `n_rows` rows has no variance: fewer than two.
    pub fn batch(moments: &Moments, n_rows: usize, eps: f64) -> Result<Self> {
        check_batch(n_rows)?;
        Ok(Scaling { depends: Depends::Columns, ..Scaling::fixed(moments, eps) })
    }

    /// Batch norm in evaluation: with moments that are constants.
    pub fn fixed(moments: &Moments, eps: f64) -> Self {
        let inverse = moments.var.iter().map(|var| 1.0 / (var + eps).sqrt()).collect();
        Scaling { mean: moments.mean.clone(), inverse, depends: Depends::No }
    }

    /// Norm of a graph, from the moments of its columns.
    pub fn graph(moments: &Moments, eps: f64, place: Eps) -> Self {
        let k = moments.mean.len();
        let mean = moments.mean.iter().sum::<f64>() / k as f64;
        let of_column = |(m, var): (&f64, &f64)| var + (m - mean).powi(2);
        let var = moments.mean.iter().zip(&moments.var).map(of_column).sum::<f64>() / k as f64;
        let (divisor, root) = match place {
            Eps::Beside => (var.sqrt() + eps, var.sqrt()),
            Eps::Under => ((var + eps).sqrt(), (var + eps).sqrt()),
        };
        let slope = if root == 0.0 { 0.0 } else { 1.0 / root };
        Scaling {
            mean: vec![mean; k],
            inverse: vec![1.0 / divisor; k],
            depends: Depends::Whole(slope),
        }
    }

    /// The scaling as what [`Columns::forward`] needs.
    ///
    /// # Errors
    /// When the norm has another width.
    pub fn columns<F: Real>(&self, norm: &Norm<'_, F>) -> Result<Columns<F>> {
        norm.check("norm", self.mean.len())?;
        let factors = norm.gamma.iter().zip(&self.inverse);
        Ok(Columns {
            centres: self.mean.iter().map(|&mean| F::of(mean)).collect(),
            factors: factors.map(|(gamma, inverse)| F::of(gamma.to_f64() * inverse)).collect(),
            bias: norm.beta.to_vec(),
        })
    }
}

/// `μ`, `γ/s` and `β`.
#[derive(Clone, Debug)]
pub struct Columns<F> {
    centres: Vec<F>,
    factors: Vec<F>,
    bias: Vec<F>,
}

impl<F: Real> Columns<F> {
    /// The pass that normalises; its caller may add an activation and dropout.
    ///
    /// # Errors
    /// When the pass has another width.
    pub fn forward<'a, T: Stored<Sum = F>>(
        &'a self,
        pass: Forward<'a, T>,
    ) -> Result<Forward<'a, T>> {
        pass.centred(&self.centres)?.column_scaled(&self.factors)?.biased(&self.bias)
    }
}

per_isa!(fn add_squares<[T: Stored], []>(part: Squares<'_, T>) = squares_body);

/// A matrix, its strips, centres, and sums as long as a strip.
type Squares<'a, T> = (Mat<'a, T>, Strips, &'a [<T as Stored>::Sum], &'a mut [<T as Stored>::Sum]);

#[inline(always)]
fn squares_body<M: Arith, T: Stored>((x, strips, centres, squares): Squares<'_, T>) {
    for strip in strips.of(x.n_rows) {
        let centres = &centres[strip.col..][..strip.len];
        let squares = &mut squares[strip.col..][..strip.len];
        for ((square, centre), x) in squares.iter_mut().zip(centres).zip(x.strip(strip)) {
            let off = x.wide() - *centre;
            *square = M::mul_add(off, off, *square);
        }
    }
}
