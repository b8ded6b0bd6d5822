//! Layer norm: `y_i = γ ⊙ x̂_i + β` with `x̂_i = (x_i − mean_i) / √(var_i + ε)`, row by row.
//!
//! The backward finds the moments again: a row that is in the cache is cheap to read once more.

use std::ops::Range;

use lacis_core::error::same_size;
use lacis_core::{Element, Result, Threads};

use super::Norm;
use crate::isa::{Arith, Isa, per_isa};
use crate::lanes;
use crate::matrix::{Mat, MatMut};
use crate::real::{Real, Stored};
use crate::strips::{Strips, chunked, load};

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
    let (x, y) = (x.into(), y.into());
    norm.check(OP, x.n_cols)?;
    same_size(OP, "rows of y", x.n_rows, y.n_rows)?;
    same_size(OP, "columns of y", x.n_cols, y.n_cols)?;
    if x.n_cols == 0 {
        return Ok(());
    }
    let scratch = || vec![T::Sum::ZERO; x.n_cols];
    let strips = Strips::new(x.n_cols, false);
    threads.map_with(chunked(strips, y), scratch, |row, (rows, y)| {
        forward(isa, Part { norm, x: x.rows(rows), y, row });
    });
    Ok(())
}

struct Part<'a, T: Stored> {
    norm: &'a Norm<'a, T::Sum>,
    x: Mat<'a, T>,
    y: MatMut<'a, T>,
    row: &'a mut [T::Sum],
}

per_isa!(fn forward<[T: Stored], []>(part: Part<'_, T>) = forward_body);

#[inline(always)]
fn forward_body<M: Arith, T: Stored>(part: Part<'_, T>) {
    let Part { norm, x, mut y, row } = part;
    for i in 0..x.n_rows {
        let inverse = centre::<M, T>(row, x.row(i), norm.eps);
        let columns = norm.gamma.iter().zip(norm.beta);
        for ((y, v), (gamma, beta)) in y.row_mut(i).iter_mut().zip(&*row).zip(columns) {
            *y = T::narrow(M::mul_add(*v * inverse, *gamma, *beta));
        }
    }
}

/// The row less its mean; returns the inverse of its deviation.
#[inline(always)]
fn centre<M: Arith, T: Stored>(row: &mut [T::Sum], x: &[T], eps: f64) -> T::Sum {
    load(row, x);
    let share = T::Sum::ONE / T::Sum::of(row.len() as f64);
    let mean = lanes::sum(row) * share;
    row.iter_mut().for_each(|v| *v = *v - mean);
    let var = lanes::dot::<M, T::Sum>(row, row) * share;
    T::Sum::ONE / (var + T::Sum::of(eps)).sqrt()
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
    (dx, dgamma, dbeta): (MatMut<'_, T>, &mut [T::Sum], &mut [T::Sum]),
    threads: &Threads,
) -> Result<()> {
    let (x, dy) = (x.into(), dy.into());
    let k = x.n_cols;
    norm.check(OP, k)?;
    same_size(OP, "rows of the gradient", x.n_rows, dy.n_rows)?;
    same_size(OP, "columns of the gradient", k, dy.n_cols)?;
    same_size(OP, "rows of dx", x.n_rows, dx.n_rows)?;
    same_size(OP, "columns of dx", k, dx.n_cols)?;
    same_size(OP, "length of dgamma", k, dgamma.len())?;
    same_size(OP, "length of dbeta", k, dbeta.len())?;
    if k == 0 {
        return Ok(());
    }
    let scratch = || [(); 2].map(|()| vec![T::Sum::ZERO; k]);
    let of_chunk = |rows: &mut [Vec<T::Sum>; 2], (chunk, dx): (Range<usize>, MatMut<'_, T>)| {
        let mut sums = [(); 2].map(|()| vec![T::Sum::ZERO; k]);
        let (x, dy) = (x.rows(chunk.clone()), dy.rows(chunk));
        back(isa, BackPart { norm, x, dy, dx, rows, sums: &mut sums });
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
    norm: &'a Norm<'a, T::Sum>,
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
    let BackPart { norm, x, dy, mut dx, rows: [hat, g], sums: [dgamma, dbeta] } = part;
    let share = T::Sum::ONE / T::Sum::of(x.n_cols as f64);
    for i in 0..x.n_rows {
        let inverse = centre::<M, T>(hat, x.row(i), norm.eps);
        hat.iter_mut().for_each(|v| *v *= inverse);
        load(g, dy.row(i));
        let sums = dgamma.iter_mut().zip(dbeta.iter_mut());
        for ((dgamma, dbeta), (g, hat)) in sums.zip(g.iter().zip(&*hat)) {
            *dgamma = M::mul_add(*g, *hat, *dgamma);
            *dbeta += *g;
        }
        g.iter_mut().zip(norm.gamma).for_each(|(g, gamma)| *g *= *gamma);
        let mean = lanes::sum(g) * share;
        let slope = lanes::dot::<M, T::Sum>(g, hat) * share;
        for (dx, (g, hat)) in dx.row_mut(i).iter_mut().zip(g.iter().zip(&*hat)) {
            *dx = T::narrow((M::mul_add(-*hat, slope, *g) - mean) * inverse);
        }
    }
}
