//! `x·z` of a column and a row: every row of the result is the row, scaled.
//!
//! Tiles would gather six rows of one number each, and ask for every line they write.
//!
//! # Parallelism
//! A thread does whole blocks of rows; their size follows from `n`.

use lacis_core::Threads;
use lacis_core::threads::ranges;

use super::Product;
use super::pack::Side;
use crate::finish::Epilogue;
use crate::isa::{Arith, Isa, per_isa};
use crate::matrix::{Mat, MatMut};
use crate::real::{Real, Stored};

/// Numbers of a block of rows of `y`.
const BLOCK_NUMBERS: usize = 1 << 16;

/// Some rows of the product.
struct Part<'a, X: Stored, O> {
    x: Mat<'a, X>,
    z: &'a [X::Sum],
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
    let number = |j: usize| match side {
        Side::Plain => z.row(0)[j].wide(),
        Side::Turned => z.row(j)[0].wide(),
    };
    let z: Vec<X::Sum> = (0..product.n).map(number).collect();
    let rows = ranges(product.m, (BLOCK_NUMBERS / product.n.max(1)).max(1));
    let ends: Vec<usize> = rows.iter().map(|rows| rows.end).collect();
    let blocks = rows.into_iter().map(|rows| x.rows(rows)).zip(y.split(&ends));
    let parts = blocks.map(|(x, y)| Part { x, z: &z, y, finish }).collect();
    threads.for_each(parts, |part| compiled::<X, O>(isa, part));
}

per_isa!(fn compiled<[X: Stored, O: Stored<Sum = <X as Stored>::Sum>], []>
    (part: Part<'_, X, O>) = body);

#[inline(always)]
fn body<M: Arith, X: Stored, O: Stored<Sum = X::Sum>>(part: Part<'_, X, O>) {
    let Part { x, z, mut y, finish } = part;
    let plain = finish.is_plain();
    // Whole rows at a time: what there is to do around a tile takes longer than a tile.
    let mut sums = if plain { Vec::new() } else { vec![X::Sum::ZERO; z.len()] };
    for i in 0..x.n_rows {
        let (factor, y) = (x.row(i)[0].wide(), y.row_mut(i));
        if plain {
            y.iter_mut().zip(z).for_each(|(y, z)| *y = O::narrow(factor * *z));
            continue;
        }
        sums.iter_mut().zip(z).for_each(|(sum, z)| *sum = factor * *z);
        finish.apply::<M, O>(&mut sums, y, 0);
        y.iter_mut().zip(&sums).for_each(|(y, sum)| *y = O::narrow(*sum));
    }
}
