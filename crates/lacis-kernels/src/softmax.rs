//! Softmax of rows: `y_ic = exp(x_ic − m_i) / Σ_c exp(x_ic − m_i)`, `m_i` the row's maximum, its
//! logarithm, and the gradients of both from their results.
//!
//! ```text
//!   softmax:      dx = y · (dy − Σ_c y·dy)
//!   log-softmax:  dx = dy − exp(y) · Σ_c dy
//! ```
//! # Parallelism
//! A thread does whole rows; chunks of rows follow from the shape alone.

use lacis_core::error::same_size;
use lacis_core::{Result, Threads};

use crate::isa::{Arith, Isa, per_isa};
use crate::lanes::{self, load_row};
use crate::math::exp;
use crate::matrix::{Mat, MatMut};
use crate::once::once;
use crate::real::{Real, Stored};
use crate::strips::{Strips, chunked, store};

/// Which of the two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Probabilities.
    Plain,
    /// Their logarithms.
    Log,
}

/// Computes the softmax of each row of `x` into `y`.
///
/// # Errors
/// When `y` has another shape than `x`.
pub fn softmax<'a, 'y, T: Stored + 'y>(
    isa: Isa,
    form: Form,
    x: impl Into<Mat<'a, T>>,
    y: impl Into<MatMut<'y, T>>,
    threads: &Threads,
) -> Result<()> {
    let x = x.into();
    T::softmax(isa, (form, x, None), y.into(), threads)
}

/// Computes `dx` from the result `y` and `dy`.
///
/// # Errors
/// When the shapes differ.
pub fn softmax_backward<'a, 'x, T: Stored + 'x>(
    isa: Isa,
    form: Form,
    (y, dy): (impl Into<Mat<'a, T>>, impl Into<Mat<'a, T>>),
    dx: impl Into<MatMut<'x, T>>,
    threads: &Threads,
) -> Result<()> {
    let (y, dy) = (y.into(), dy.into());
    same_size("softmax backward", "rows of the gradient", y.n_rows, dy.n_rows)?;
    same_size("softmax backward", "columns of the gradient", y.n_cols, dy.n_cols)?;
    T::softmax(isa, (form, y, Some(dy)), dx.into(), threads)
}

once!(Once:
    fn softmax(
        isa: Isa,
        of: (Form, Mat<'_, Self>, Option<Mat<'_, Self>>),
        y: MatMut<'_, Self>,
        threads: &Threads,
    ) -> Result<()> = each_row;
);

fn each_row<T: Stored>(
    isa: Isa,
    (form, x, grad): (Form, Mat<'_, T>, Option<Mat<'_, T>>),
    y: MatMut<'_, T>,
    threads: &Threads,
) -> Result<()> {
    same_size("softmax", "rows of the result", x.n_rows, y.n_rows)?;
    same_size("softmax", "columns of the result", x.n_cols, y.n_cols)?;
    if x.n_cols == 0 {
        return Ok(());
    }
    let scratch = || [(); 2].map(|()| lanes::scratch(x.n_cols));
    let chunks = chunked(Strips::new(x.n_cols, false), y);
    threads.map_with(chunks, scratch, |rows, (chunk, y)| {
        let grad = grad.map(|grad| grad.rows(chunk.clone()));
        rows_of(isa, Part { form, x: x.rows(chunk), grad, y, rows });
    });
    Ok(())
}

struct Part<'a, T: Stored> {
    form: Form,
    x: Mat<'a, T>,
    grad: Option<Mat<'a, T>>,
    y: MatMut<'a, T>,
    rows: &'a mut [Vec<T::Sum>; 2],
}

per_isa!(fn rows_of<[T: Stored], []>(part: Part<'_, T>) = body);

#[inline(always)]
fn body<M: Arith, T: Stored>(part: Part<'_, T>) {
    let Part { form, x, grad, mut y, rows: [row, other] } = part;
    for i in 0..x.n_rows {
        match grad {
            None => {
                load_row(row, x.row(i), T::Sum::NEG_INFINITY);
                forward::<M, T::Sum>(form, row, other);
            }
            Some(grad) => {
                load_row(row, x.row(i), T::Sum::ZERO);
                load_row(other, grad.row(i), T::Sum::ZERO);
                backward::<M, T::Sum>(form, row, other);
            }
        }
        store(y.row_mut(i), other);
    }
}

/// The softmax of `x`, which is lost, into `y`.
#[inline(always)]
fn forward<M: Arith, F: Real>(form: Form, x: &mut [F], y: &mut [F]) {
    let sum = powers::<M, F>(x, y);
    match form {
        Form::Plain => {
            let inverse = F::ONE / sum;
            y.iter_mut().for_each(|y| *y *= inverse);
        }
        Form::Log => {
            let log = sum.ln();
            y.iter_mut().zip(x).for_each(|(y, x)| *y = *x - log);
        }
    }
}

/// Takes the maximum from `x`, writes `eˣ` into `powers` and returns their sum. What fills `x` up
/// is less than everything. A NaN is not the maximum, but the sum is NaN then.
#[inline(always)]
pub(crate) fn powers<M: Arith, F: Real>(x: &mut [F], powers: &mut [F]) -> F {
    let max = lanes::max(x);
    for (x, power) in x.iter_mut().zip(powers.iter_mut()) {
        *x = *x - max;
        *power = exp::<M, F>(*x);
    }
    lanes::sum(powers)
}

#[inline(always)]
fn backward<M: Arith, F: Real>(form: Form, y: &[F], g: &mut [F]) {
    match form {
        Form::Plain => {
            let mean = lanes::dot::<M, F>(y, g);
            g.iter_mut().zip(y).for_each(|(g, y)| *g = *y * (*g - mean));
        }
        Form::Log => {
            let sum = lanes::sum(g);
            g.iter_mut().zip(y).for_each(|(g, y)| *g = M::mul_add(-exp::<M, F>(*y), sum, *g));
        }
    }
}
