//! `x·z` of a column and a row: every row of the result is the row, scaled.
//!
//! Tiles would gather six rows of one number each, and ask for every line they write.
//!
//! # Parallelism
//! A thread does whole blocks of rows; their size follows from `n`.

use std::array::from_fn;

use lacis_core::Threads;
use lacis_core::threads::ranges;

use super::Product;
use super::pack::Side;
use super::tile::LANES;
use crate::finish::Epilogue;
use crate::isa::{Arith, Isa, per_isa};
use crate::matrix::{Mat, MatMut};
use crate::real::{Real, Stored};

/// Vectors of a tile.
const V: usize = 4;
/// Numbers of a block of rows of `y`.
const BLOCK_NUMBERS: usize = 1 << 16;

/// Some rows of the product; `z` is filled up to whole tiles.
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
    let mut z: Vec<X::Sum> = (0..product.n).map(number).collect();
    z.resize(product.n.next_multiple_of(V * LANES), X::Sum::ZERO);
    let rows = ranges(product.m, (BLOCK_NUMBERS / product.n.max(1)).max(1));
    let ends: Vec<usize> = rows.iter().map(|rows| rows.end).collect();
    let blocks = rows.into_iter().map(|rows| x.rows(rows)).zip(y.split(&ends));
    let parts = blocks.map(|(x, y)| Part { x, z: &z, y, finish }).collect();
    threads.for_each(parts, |part| compiled::<X, O>(isa, part));
}

per_isa!(fn compiled<[X: Stored, O: Stored<Sum = <X as Stored>::Sum>], []>
    (part: Part<'_, X, O>) = body);

#[inline(always)]
fn body<M: Arith, X: Stored, O: Stored<Sum = X::Sum>>(mut part: Part<'_, X, O>) {
    let tiles = part.z.as_chunks::<LANES>().0.as_chunks::<V>().0;
    for i in 0..part.x.n_rows {
        let factor = part.x.row(i)[0].wide();
        for (at, (y, z)) in part.y.row_mut(i).chunks_mut(V * LANES).zip(tiles).enumerate() {
            let sums: [[X::Sum; LANES]; V] = from_fn(|v| from_fn(|lane| factor * z[v][lane]));
            part.finish.store::<M, O, V>(&sums, y, at * V * LANES);
        }
    }
}
