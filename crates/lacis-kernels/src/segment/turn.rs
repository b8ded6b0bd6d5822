//! Operators along columns, by those along rows.
//!
//! ```text
//!  for each 16 rows of the matrices:   turn them: a matrix of 16 columns that fits in the cache
//!                                      run the operator along its rows
//!                                      turn the result back
//! ```
//! So the index is read once for 16 rows, and each of its positions moves one vector.
//!
//! # Parallelism
//! A thread does whole tiles of rows.
//! # Memory
//! One tile of every matrix a thread.

use std::ops::Range;

use lacis_core::Threads;
use lacis_core::threads::ranges;

#[cfg(target_arch = "x86_64")]
use super::wide::turn as turn_wide;
use crate::isa::{Arith, Isa, per_isa};
use crate::matrix::{Mat, MatMut};
use crate::real::{Real, Stored};

/// Rows of a tile.
pub(super) const TILE: usize = 16;
/// Rows and columns of the blocks it is turned by: whole lines of either matrix.
const BLOCK: usize = TILE;

/// What `f` finds in its result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Begin {
    /// Anything: it writes everything.
    Unset,
    /// What the caller's matrix holds.
    AsGiven,
}

/// Runs `f`, which works along rows, along the columns of `inputs` and `out`.
pub(super) fn along_columns<T: Stored, const N: usize>(
    (isa, begin): (Isa, Begin),
    inputs: [Mat<'_, T>; N],
    out: MatMut<'_, T>,
    threads: &Threads,
    f: impl Fn([Mat<'_, T>; N], MatMut<'_, T>, &Threads) + Sync,
) {
    if out.n_rows == 1 {
        // A row is a column to whoever ignores the stride.
        let MatMut { data, n_cols, .. } = out;
        let out = MatMut { data: &mut data[..n_cols], n_rows: n_cols, n_cols: 1, stride: 1 };
        return f(inputs.map(column), out, threads);
    }
    let tiles = ranges(out.n_rows, TILE);
    let one = Threads::one();
    // With one tile, threads share what is in it.
    let within = if tiles.len() == 1 { threads } else { &one };
    let ends: Vec<usize> = tiles.iter().map(|rows| rows.end).collect();
    let items: Vec<_> = tiles.into_iter().zip(out.split(&ends)).collect();
    let scratch = || (std::array::from_fn::<Vec<T>, N, _>(|_| Vec::new()), Vec::new());
    threads.map_with(items, scratch, |(turned, turned_out), (rows, out)| {
        let width = rows.len();
        for (turned, &input) in turned.iter_mut().zip(&inputs) {
            let data = &input.data[rows.start * input.stride..];
            let from = Mat { data, n_rows: width, ..input };
            turned.resize(input.n_cols * width, T::narrow(T::Sum::ZERO));
            turn(isa, (from, MatMut { data: turned, ..shape(input.n_cols, width) }));
        }
        let mats = std::array::from_fn(|at| Mat {
            data: &turned[at],
            n_rows: inputs[at].n_cols,
            n_cols: width,
            stride: width,
        });
        turned_out.resize(out.n_cols * width, T::narrow(T::Sum::ZERO));
        if begin == Begin::AsGiven {
            let to = MatMut { data: turned_out, ..shape(out.n_cols, width) };
            turn(isa, (out.as_mat(), to));
        }
        f(mats, MatMut { data: turned_out, ..shape(out.n_cols, width) }, within);
        let from = MatMut { data: turned_out, ..shape(out.n_cols, width) };
        turn(isa, (from.as_mat(), out));
    });
}

/// The transpose of some rows.
pub(super) fn turned<T: Stored>(isa: Isa, x: Mat<'_, T>, rows: Range<usize>) -> Vec<T> {
    let mut data = vec![T::narrow(T::Sum::ZERO); x.n_cols * rows.len()];
    let from = Mat { data: &x.data[rows.start * x.stride..], n_rows: rows.len(), ..x };
    turn(isa, (from, MatMut { data: &mut data, ..shape(x.n_cols, rows.len()) }));
    data
}

/// A matrix of this shape, whose memory is still to be named.
pub(super) fn shape<'a, T>(n_rows: usize, n_cols: usize) -> MatMut<'a, T> {
    MatMut { data: &mut [], n_rows, n_cols, stride: n_cols }
}

/// The only row of a matrix as a column.
fn column<T: Stored>(x: Mat<'_, T>) -> Mat<'_, T> {
    Mat { data: &x.data[..x.n_cols], n_rows: x.n_cols, n_cols: 1, stride: 1 }
}

per_isa!(pub(super) fn turn<[T: Stored], []>(pair: (Mat<'_, T>, MatMut<'_, T>)) = turn_body,
    avx512 = turn_wide);

/// Writes the transpose of the first matrix to the second.
#[inline(always)]
pub(super) fn turn_body<M: Arith, T: Stored>(pair: (Mat<'_, T>, MatMut<'_, T>)) {
    turn_by(pair, turn_block);
}

/// The same by what turns a block, given where it begins.
#[inline(always)]
pub(super) fn turn_by<T: Stored>(
    (from, mut to): (Mat<'_, T>, MatMut<'_, T>),
    turn_block: impl Fn(&Mat<'_, T>, &mut MatMut<'_, T>, usize, usize),
) {
    let full = |n: usize| n / BLOCK * BLOCK;
    let (rows, cols) = (full(from.n_rows), full(from.n_cols));
    for i in (0..rows).step_by(BLOCK) {
        (0..cols).step_by(BLOCK).for_each(|j| turn_block(&from, &mut to, i, j));
    }
    for i in 0..from.n_rows {
        let first = if i < rows { cols } else { 0 };
        for (j, &value) in from.row(i).iter().enumerate().skip(first) {
            to.data[j * to.stride + i] = value;
        }
    }
}

#[inline(always)]
fn turn_block<T: Stored>(from: &Mat<'_, T>, to: &mut MatMut<'_, T>, i: usize, j: usize) {
    let block: [[T; BLOCK]; BLOCK] = std::array::from_fn(|r| {
        let row = &from.data[(i + r) * from.stride + j..][..BLOCK];
        std::array::from_fn(|c| row[c])
    });
    (0..BLOCK).for_each(|c| {
        let turned = &mut to.data[(j + c) * to.stride + i..][..BLOCK];
        turned.iter_mut().zip(&block).for_each(|(turned, row)| *turned = row[c]);
    });
}
