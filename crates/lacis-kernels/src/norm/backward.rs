//! The gradients of batch and graph norm: sums first, then one pass over `x` and `dy`.

use std::ops::Range;

use lacis_core::error::same_size;
use lacis_core::{Result, Threads};

use super::{Depends, Grads, Norm, Scaling};
use crate::isa::{Arith, Isa, per_isa};
use crate::matrix::{Mat, MatMut};
use crate::real::{Real, Stored};
use crate::strips::{Strips, chunked, summed};

const OP: &str = "norm backward";

/// The gradients of `x`, `γ` and `β`, from `x`, `dy` and the forward's scaling.
///
/// # Errors
/// When a size does not fit.
pub fn backward<'a, T: Stored>(
    isa: Isa,
    (scaling, norm): (&Scaling, &Norm<'_, T::Sum>),
    (x, dy): (impl Into<Mat<'a, T>>, impl Into<Mat<'a, T>>),
    grads: Grads<'_, T>,
    threads: &Threads,
) -> Result<()> {
    T::norm_backward(isa, (scaling, norm), (x.into(), dy.into()), grads, threads)
}

pub(super) fn backward_here<T: Stored>(
    isa: Isa,
    (scaling, norm): (&Scaling, &Norm<'_, T::Sum>),
    (x, dy): (Mat<'_, T>, Mat<'_, T>),
    grads: Grads<'_, T>,
    threads: &Threads,
) -> Result<()> {
    let k = x.n_cols;
    same_size(OP, "number of moments", k, scaling.mean.len())?;
    norm.check(OP, k)?;
    same_size(OP, "rows of the gradient", x.n_rows, dy.n_rows)?;
    same_size(OP, "columns of the gradient", k, dy.n_cols)?;
    grads.check(OP, x.n_rows, k)?;
    let Grads { x: dx, gamma: dgamma, beta: dbeta } = grads;
    let centres: Vec<T::Sum> = scaling.mean.iter().map(|&mean| T::Sum::of(mean)).collect();
    let [sum, product] = sums(isa, (x, dy), &centres, threads);
    for c in 0..k {
        dbeta[c] = T::Sum::of(sum[c]);
        dgamma[c] = T::Sum::of(product[c] * scaling.inverse[c]);
    }
    let columns = coefficients(scaling, norm, x.n_rows, [&sum, &product]);
    if k == 0 {
        return Ok(());
    }
    let dense = x.is_dense() && dy.is_dense() && dx.stride == k;
    let strips = Strips::new(k, dense);
    let columns = columns.map(|column| strips.repeated(&column));
    let centres = strips.repeated(&centres);
    threads.for_each(chunked(strips, dx), |(rows, dx)| {
        let (x, dy) = (x.rows(rows.clone()), dy.rows(rows));
        affine(isa, Affine { x, dy, dx, strips, centres: &centres, columns: &columns });
    });
    Ok(())
}

/// `A`, `B` and `C` of `dx = A·dy + B·(x − μ) + C`.
fn coefficients<F: Real>(
    scaling: &Scaling,
    norm: &Norm<'_, F>,
    n_rows: usize,
    [sum, product]: [&[f64]; 2],
) -> [Vec<F>; 3] {
    let k = sum.len();
    let gamma: Vec<f64> = norm.gamma.iter().map(|gamma| gamma.to_f64()).collect();
    let mean_over = |n: usize, of: &[f64]| (0..k).map(|c| gamma[c] * of[c]).sum::<f64>() / n as f64;
    let whole = [sum, product].map(|of| mean_over(n_rows * k, of));
    let n = n_rows as f64;
    let of_column = |c: usize| {
        let (gamma, inverse) = (gamma[c], scaling.inverse[c]);
        let a = gamma * inverse;
        match scaling.depends {
            Depends::No => [a, 0.0, 0.0],
            Depends::Columns => [a, -a * product[c] / n * inverse * inverse, -a * sum[c] / n],
            Depends::Whole(slope) => {
                [a, -whole[1] * slope * inverse * inverse, -whole[0] * inverse]
            }
        }
    };
    [0, 1, 2].map(|of| (0..k).map(|c| F::of(of_column(c)[of])).collect())
}

/// `Σ_i dy_ic` and `Σ_i dy_ic·(x_ic − μ_c)`.
fn sums<T: Stored>(
    isa: Isa,
    (x, dy): (Mat<'_, T>, Mat<'_, T>),
    centres: &[T::Sum],
    threads: &Threads,
) -> [Vec<f64>; 2] {
    let k = x.n_cols;
    if k == 0 {
        return [Vec::new(), Vec::new()];
    }
    let strips = Strips::new(k, x.is_dense() && dy.is_dense());
    let centres = strips.repeated(centres);
    let of_chunk = |rows: Range<usize>| {
        let mut sums = [(); 2].map(|()| vec![T::Sum::ZERO; strips.period()]);
        let (x, dy) = (x.rows(rows.clone()), dy.rows(rows));
        add(isa, Sums { x, dy, strips, centres: &centres, sums: &mut sums });
        let [sum, product] = sums.map(|sums| strips.folded(&sums));
        [sum, product].concat()
    };
    let mut sum = summed(threads, strips.chunks(x.n_rows), 2 * k, of_chunk);
    let product = sum.split_off(k);
    [sum, product]
}

struct Sums<'a, T: Stored> {
    x: Mat<'a, T>,
    dy: Mat<'a, T>,
    strips: Strips,
    centres: &'a [T::Sum],
    sums: &'a mut [Vec<T::Sum>; 2],
}

per_isa!(fn add<[T: Stored], []>(part: Sums<'_, T>) = add_body);

#[inline(always)]
fn add_body<M: Arith, T: Stored>(part: Sums<'_, T>) {
    let Sums { x, dy, strips, centres, sums: [sums, products] } = part;
    for strip in strips.of(x.n_rows) {
        let columns = strip.col..strip.col + strip.len;
        let sums = sums[columns.clone()].iter_mut().zip(&mut products[columns.clone()]);
        let inputs = x.strip(strip).iter().zip(dy.strip(strip)).zip(&centres[columns]);
        for ((sum, product), ((x, dy), centre)) in sums.zip(inputs) {
            *sum += dy.wide();
            *product = M::mul_add(dy.wide(), x.wide() - *centre, *product);
        }
    }
}

struct Affine<'a, T: Stored> {
    x: Mat<'a, T>,
    dy: Mat<'a, T>,
    dx: MatMut<'a, T>,
    strips: Strips,
    centres: &'a [T::Sum],
    columns: &'a [Vec<T::Sum>; 3],
}

per_isa!(fn affine<[T: Stored], []>(part: Affine<'_, T>) = affine_body);

#[inline(always)]
fn affine_body<M: Arith, T: Stored>(part: Affine<'_, T>) {
    let Affine { x, dy, mut dx, strips, centres, columns: [a, b, c] } = part;
    for strip in strips.of(x.n_rows) {
        let columns = strip.col..strip.col + strip.len;
        let centres = &centres[columns.clone()];
        let [a, b, c] = [a, b, c].map(|column| &column[columns.clone()]);
        let (x, dy, dx) = (x.strip(strip), dy.strip(strip), dx.strip_mut(strip));
        let len = dx.len();
        let (x, dy, centres) = (&x[..len], &dy[..len], &centres[..len]);
        let (a, b, c) = (&a[..len], &b[..len], &c[..len]);
        for j in 0..len {
            let off = x[j].wide() - centres[j];
            let linear = M::mul_add(b[j], off, c[j]);
            dx[j] = T::narrow(M::mul_add(a[j], dy[j].wide(), linear));
        }
    }
}
