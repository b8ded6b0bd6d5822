//! Layer norm: `y_i = γ ⊙ x̂_i + β` with `x̂_i = (x_i − mean_i) / √(var_i + ε)`, row by row.
//!
//! The backward finds the moments again: a row that is in the cache is cheap to read once more.

use std::ops::Range;

use lacis_core::error::same_size;
use lacis_core::{Element, Result, Threads};

use super::{Grads, Norm};
use crate::isa::{Arith, Isa, per_isa};
use crate::lanes::{self, load_row, padded};
use crate::matrix::{Mat, MatMut};
use crate::real::{Real, Stored};
use crate::strips::{Strips, chunked, store};

const OP: &str = "layer norm";

/// Normalises each row of `x` into `y`.
///
/// # Errors
/// When a size does not fit.
pub fn layer<'a, 'y, T: Stored + 'y>(
    isa: Isa,
    norm: &Norm<'_, T::Sum>,
    x: impl Into<Mat<'a, T>>,
    y: impl Into<MatMut<'y, T>>,
    threads: &Threads,
) -> Result<()> {
    T::layer_norm(isa, norm, x.into(), y.into(), threads)
}

pub(super) fn layer_here<T: Stored>(
    isa: Isa,
    norm: &Norm<'_, T::Sum>,
    x: Mat<'_, T>,
    y: MatMut<'_, T>,
    threads: &Threads,
) -> Result<()> {
    norm.check(OP, x.n_cols)?;
    same_size(OP, "rows of y", x.n_rows, y.n_rows)?;
    same_size(OP, "columns of y", x.n_cols, y.n_cols)?;
    if x.n_cols == 0 {
        return Ok(());
    }
    let columns = &Columns::new(norm);
    let chunks = chunked(Strips::new(x.n_cols, false), y);
    threads.map_with(
        chunks,
        || lanes::scratch(x.n_cols),
        |row, (rows, y)| {
            forward(isa, Part { columns, x: x.rows(rows), y, row });
        },
    );
    Ok(())
}

/// What is given per column, filled up to whole vectors, and `ε`.
struct Columns<F> {
    gamma: Vec<F>,
    beta: Vec<F>,
    /// 1 in each column, 0 behind them.
    there: Vec<F>,
    eps: F,
}

impl<F: Real> Columns<F> {
    fn new(norm: &Norm<'_, F>) -> Self {
        let (gamma, beta) = (padded(norm.gamma), padded(norm.beta));
        let there = padded(&vec![F::ONE; norm.gamma.len()]);
        Columns { gamma, beta, there, eps: F::of(norm.eps) }
    }
}

struct Part<'a, T: Stored> {
    columns: &'a Columns<T::Sum>,
    x: Mat<'a, T>,
    y: MatMut<'a, T>,
    row: &'a mut [T::Sum],
}

per_isa!(fn forward<[T: Stored], []>(part: Part<'_, T>) = forward_body);

#[inline(always)]
fn forward_body<M: Arith, T: Stored>(part: Part<'_, T>) {
    let Part { columns, x, mut y, row } = part;
    for i in 0..x.n_rows {
        let inverse = centre::<M, T>(row, x, i, columns);
        for ((row, gamma), beta) in row.iter_mut().zip(&columns.gamma).zip(&columns.beta) {
            *row = M::mul_add(*row * inverse, *gamma, *beta);
        }
        store(y.row_mut(i), row);
    }
}

/// Row `i` of `x` less its mean; returns the inverse of its deviation.
#[inline(always)]
fn centre<M: Arith, T: Stored>(
    row: &mut [T::Sum],
    x: Mat<'_, T>,
    i: usize,
    columns: &Columns<T::Sum>,
) -> T::Sum {
    load_row(row, x.row(i), T::Sum::ZERO);
    let share = T::Sum::ONE / T::Sum::of(x.n_cols as f64);
    let mean = lanes::sum(row) * share;
    for (row, there) in row.iter_mut().zip(&columns.there) {
        *row = (*row - mean) * *there;
    }
    let squares = lanes::dot::<M, T::Sum>(row, row);
    T::Sum::ONE / (squares * share + columns.eps).sqrt()
}

/// The gradients of `x`, `γ` and `β` from `x` and `dy`.
///
/// # Memory
/// Two numbers per column for each chunk of some 65,536 elements.
///
/// # Errors
/// When a size does not fit.
pub fn layer_backward<'a, T: Stored>(
    isa: Isa,
    norm: &Norm<'_, T::Sum>,
    (x, dy): (impl Into<Mat<'a, T>>, impl Into<Mat<'a, T>>),
    grads: Grads<'_, T>,
    threads: &Threads,
) -> Result<()> {
    T::layer_norm_backward(isa, norm, (x.into(), dy.into()), grads, threads)
}

pub(super) fn layer_backward_here<T: Stored>(
    isa: Isa,
    norm: &Norm<'_, T::Sum>,
    (x, dy): (Mat<'_, T>, Mat<'_, T>),
    grads: Grads<'_, T>,
    threads: &Threads,
) -> Result<()> {
    let k = x.n_cols;
    norm.check(OP, k)?;
    same_size(OP, "rows of the gradient", x.n_rows, dy.n_rows)?;
    same_size(OP, "columns of the gradient", k, dy.n_cols)?;
    grads.check(OP, x.n_rows, k)?;
    let Grads { x: dx, gamma: dgamma, beta: dbeta } = grads;
    if k == 0 {
        return Ok(());
    }
    let columns = &Columns::new(norm);
    let scratch = || [(); 2].map(|()| lanes::scratch(k));
    let of_chunk = |rows: &mut [Vec<T::Sum>; 2], (chunk, dx): (Range<usize>, MatMut<'_, T>)| {
        let mut sums = scratch();
        let (x, dy) = (x.rows(chunk.clone()), dy.rows(chunk));
        back(isa, BackPart { columns, x, dy, dx, rows, sums: &mut sums });
        sums
    };
    let chunks = chunked(Strips::new(k, false), dx);
    let mut total = [vec![0.0; k], vec![0.0; k]];
    for sums in threads.map_with(chunks, scratch, of_chunk) {
        for (total, sums) in total.iter_mut().zip(&sums) {
            total.iter_mut().zip(sums).for_each(|(total, sum)| *total += sum.to_f64());
        }
    }
    for c in 0..k {
        (dgamma[c], dbeta[c]) = (T::Sum::of(total[0][c]), T::Sum::of(total[1][c]));
    }
    Ok(())
}

struct BackPart<'a, T: Stored> {
    columns: &'a Columns<T::Sum>,
    x: Mat<'a, T>,
    dy: Mat<'a, T>,
    dx: MatMut<'a, T>,
    rows: &'a mut [Vec<T::Sum>; 2],
    sums: &'a mut [Vec<T::Sum>; 2],
}

per_isa!(fn back<[T: Stored], []>(part: BackPart<'_, T>) = back_body);

/// `dx = (g − mean(g) − x̂·mean(g·x̂)) / √(var + ε)` with `g = γ·dy`.
#[inline(always)]
fn back_body<M: Arith, T: Stored>(part: BackPart<'_, T>) {
    let BackPart { columns, x, dy, mut dx, rows: [hat, g], sums } = part;
    let share = T::Sum::ONE / T::Sum::of(x.n_cols as f64);
    for i in 0..x.n_rows {
        let inverse = centre::<M, T>(hat, x, i, columns);
        load_row(g, dy.row(i), T::Sum::ZERO);
        let [mean, slope] = means::<M, T::Sum>(columns, [hat, g], inverse, sums);
        let (mean, slope) = (mean * share, slope * share);
        for (hat, g) in hat.iter().zip(g.iter_mut()) {
            *g = (M::mul_add(-*hat, slope, *g) - mean) * inverse;
        }
        store(dx.row_mut(i), g);
    }
}

/// Makes `x̂` of the centred row and `γ·dy` of `dy`, and adds to the gradients of `γ` and `β`;
/// returns `Σ g` and `Σ g·x̂`.
#[inline(always)]
fn means<M: Arith, F: Real>(
    columns: &Columns<F>,
    [hat, g]: [&mut [F]; 2],
    inverse: F,
    [dgamma, dbeta]: &mut [Vec<F>; 2],
) -> [F; 2] {
    for ((hat, g), (dgamma, dbeta)) in hat.iter_mut().zip(&*g).zip(dgamma.iter_mut().zip(dbeta)) {
        *hat *= inverse;
        *dgamma = M::mul_add(*g, *hat, *dgamma);
        *dbeta += *g;
    }
    g.iter_mut().zip(&columns.gamma).for_each(|(g, gamma)| *g *= *gamma);
    [lanes::sum(g), lanes::dot::<M, F>(g, hat)]
}
