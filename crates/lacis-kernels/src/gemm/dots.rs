//! `X·Z` and `X·Zᵀ` with very few columns: every number is a sum along a row, by whole vectors.
//!
//! ```text
//!  for each block of rows of x, on any thread:
//!      for each of them, for each column j:  Σ_p x(i, p)·z(p, j), 64 lanes apart, then by halves
//! ```
//! A tile of 16 columns would compute 16 where one is asked for: scores, attention vectors, single
//! outputs.
//!
//! # Parallelism
//! A thread does whole blocks of rows; their size follows from `k`.

use std::array::from_fn;

use lacis_core::Threads;
use lacis_core::threads::ranges;

use super::Product;
use super::pack::Side;
use super::tile::LANES;
use crate::finish::Epilogue;
use crate::isa::{Arith, Isa, per_isa};
use crate::lanes::halves;
use crate::matrix::{Mat, MatMut};
use crate::real::{Real, Stored};

/// Columns of the result at most.
pub(super) const MOST: usize = 4;
/// Terms of a sum at least: shorter ones are mostly what is left over from whole vectors.
pub(super) const LEAST_TERMS: usize = 2 * LANES;
/// Numbers of a block of rows of `x`.
const BLOCK_NUMBERS: usize = 1 << 16;

/// Some rows of the product, and where they go; `z` has a row for each column.
struct Part<'a, X: Stored, O> {
    x: Mat<'a, X>,
    z: &'a [Vec<X::Sum>],
    y: MatMut<'a, O>,
    finish: Epilogue<'a, X::Sum>,
}

/// Computes the product.
pub(super) fn run<X, Z, O>(
    isa: Isa,
    product: &Product<'_, X, Z>,
    (y, finish): (MatMut<'_, O>, Epilogue<'_, X::Sum>),
    threads: &Threads,
) where
    X: Stored,
    Z: Stored<Sum = X::Sum>,
    O: Stored<Sum = X::Sum>,
{
    let (x, (z, side)) = (product.x.0, product.z);
    let column = |j: usize| match side {
        Side::Plain => (0..product.k).map(|p| z.row(p)[j].wide()).collect::<Vec<_>>(),
        Side::Turned => z.row(j).iter().map(|z| z.wide()).collect(),
    };
    let columns: Vec<_> = (0..product.n).map(column).collect();
    let rows = ranges(product.m, (BLOCK_NUMBERS / product.k.max(1)).max(1));
    let ends: Vec<usize> = rows.iter().map(|rows| rows.end).collect();
    let blocks = rows.into_iter().map(|rows| x.rows(rows)).zip(y.split(&ends));
    let parts = blocks.map(|(x, y)| Part { x, z: &columns, y, finish }).collect();
    threads.for_each(parts, |part| compiled::<X, O>(isa, part));
}

per_isa!(fn compiled<[X: Stored, O: Stored<Sum = <X as Stored>::Sum>], []>
    (part: Part<'_, X, O>) = body);

#[inline(always)]
fn body<M: Arith, X: Stored, O: Stored<Sum = X::Sum>>(mut part: Part<'_, X, O>) {
    for i in 0..part.x.n_rows {
        let row = part.x.row(i);
        let mut sums = [[X::Sum::ZERO; LANES]; 1];
        for (sum, z) in sums[0].iter_mut().zip(part.z) {
            *sum = dot::<M, X>(&row[..z.len()], z);
        }
        part.finish.store::<M, O, 1>(&sums, part.y.row_mut(i), 0);
    }
}

/// `Σ x·z` of equally long rows. Four vectors of sums: the next term of one need not wait for its
/// last.
#[inline(always)]
fn dot<M: Arith, X: Stored>(x: &[X], z: &[X::Sum]) -> X::Sum {
    let (x, x_rest) = x.as_chunks::<LANES>();
    let (z, z_rest) = z.as_chunks::<LANES>();
    let (x_fours, x_ones) = x.as_chunks::<4>();
    let (z_fours, z_ones) = z.as_chunks::<4>();
    let [mut a, mut b, mut c, mut d] = [[X::Sum::ZERO; LANES]; 4];
    for (x, z) in x_fours.iter().zip(z_fours) {
        add::<M, X>(&mut a, &x[0], &z[0]);
        add::<M, X>(&mut b, &x[1], &z[1]);
        add::<M, X>(&mut c, &x[2], &z[2]);
        add::<M, X>(&mut d, &x[3], &z[3]);
    }
    x_ones.iter().zip(z_ones).for_each(|(x, z)| add::<M, X>(&mut a, x, z));
    let all: [X::Sum; LANES] = from_fn(|lane| (a[lane] + b[lane]) + (c[lane] + d[lane]));
    // Looked at from outside, or all of it is computed by the pairs that halving ends with.
    let whole = halves(*std::hint::black_box(&all), |a, b| a + b);
    let rest = x_rest.iter().zip(z_rest);
    rest.fold(whole, |sum, (x, z)| M::mul_add(x.wide(), *z, sum))
}

/// `sums += x·z`, each lane by itself.
#[inline(always)]
fn add<M: Arith, X: Stored>(sums: &mut [X::Sum; LANES], x: &[X; LANES], z: &[X::Sum; LANES]) {
    for (sum, (x, z)) in sums.iter_mut().zip(x.iter().zip(z)) {
        *sum = M::mul_add(x.wide(), *z, *sum);
    }
}
