//! `X·Z` and `X·Zᵀ` by rows: the right factor packed once, the left read where it lies.
//!
//! ```text
//!  for each block of rows of x, on any thread:
//!      for each band of them, for each panel of z:
//!          for each R rows:  a tile of sums over all of k, then to y
//! ```
//! For tall factors this reads each row of `x` from memory once and writes each row of `y` once.
//!
//! # Parallelism
//! A thread does whole blocks of rows; their size follows from `k`.

use std::ops::Range;

use lacis_core::Threads;

use super::R;
use super::pack::{Panel, Side, pack, panels};
use super::tile::{LANES, of_rows};
use crate::finish::Epilogue;
use crate::isa::{Arith, Isa, per_isa};
use crate::matrix::{Mat, MatMut};
use crate::mem::prefetch;
use crate::real::{Real, Stored};

/// Numbers of a block of rows of `x`: with a panel, they fit in the second cache.
const BLOCK_NUMBERS: usize = 1 << 15;
/// Rows of a block at most, so that there are blocks for all threads.
const BLOCK_ROWS: usize = 384;
/// Numbers of a band of rows of `x` and `y`, gone through panel by panel before the next.
const BAND_NUMBERS: usize = 1 << 15;
const LINE_BYTES: usize = 64;

/// The right factor of a product, packed.
pub(super) struct Packed<F> {
    panels: Vec<Panel>,
    k: usize,
    numbers: Vec<F>,
}

impl<F: Real> Packed<F> {
    /// Packs all of `z`, in panels of at most `most` vectors.
    pub fn new<Z: Stored<Sum = F>>(z: (Mat<'_, Z>, Side), most: usize, threads: &Threads) -> Self {
        let (k, end) = match z.1 {
            Side::Plain => (z.0.n_rows, z.0.n_cols),
            Side::Turned => (z.0.n_cols, z.0.n_rows),
        };
        let panels = panels(0..end, most);
        let mut numbers = vec![F::ZERO; panels.iter().map(|p| p.vectors * LANES * k).sum()];
        let ends: Vec<usize> = panels
            .iter()
            .scan(0, |at, panel| {
                *at += panel.vectors * LANES * k;
                Some(*at)
            })
            .collect();
        let pieces = lacis_core::threads::split_at_ends(&mut numbers, &ends);
        let items = panels.iter().copied().zip(pieces).collect();
        threads.for_each(items, |(panel, piece)| pack(z, panel, (0..k, end), piece));
        Packed { panels, k, numbers }
    }
}

/// Some rows of a product, and where they go.
pub(super) struct Part<'a, X: Stored, O> {
    x: Mat<'a, X>,
    packed: &'a Packed<X::Sum>,
    y: MatMut<'a, O>,
    finish: Epilogue<'a, X::Sum>,
}

/// The blocks of a product.
pub(super) fn parts<'a, X: Stored, O: Stored<Sum = X::Sum>>(
    x: Mat<'a, X>,
    packed: &'a Packed<X::Sum>,
    y: MatMut<'a, O>,
    finish: Epilogue<'a, X::Sum>,
) -> Vec<Part<'a, X, O>> {
    let rows = (BLOCK_NUMBERS / x.n_cols.max(1)).clamp(8 * R, BLOCK_ROWS);
    let rows = lacis_core::threads::ranges(x.n_rows, rows);
    let ends: Vec<usize> = rows.iter().map(|rows| rows.end).collect();
    let blocks = rows.into_iter().map(|rows| x.rows(rows));
    blocks.zip(y.split(&ends)).map(|(x, y)| Part { x, packed, y, finish }).collect()
}

/// Computes the parts of one or many products.
pub(super) fn run<X: Stored, O: Stored<Sum = X::Sum>, const V: usize>(
    isa: Isa,
    parts: Vec<Part<'_, X, O>>,
    threads: &Threads,
) {
    threads.for_each(parts, |part| compiled::<X, O, V>(isa, part));
}

per_isa!(fn compiled<[X: Stored, O: Stored<Sum = <X as Stored>::Sum>], [V]>
    (part: Part<'_, X, O>) = body);

#[inline(always)]
fn body<M: Arith, X: Stored, O: Stored<Sum = X::Sum>, const V: usize>(mut part: Part<'_, X, O>) {
    let numbers = part.x.n_cols + part.y.n_cols;
    let band = (BAND_NUMBERS / numbers.max(1)).next_multiple_of(R);
    for start in (0..part.x.n_rows).step_by(band) {
        let rows = start..(start + band).min(part.x.n_rows);
        let mut rest = &part.packed.numbers[..];
        for panel in &part.packed.panels {
            let (numbers, after) = rest.split_at(panel.vectors * LANES * part.packed.k);
            rest = after;
            // Arms beyond V are never taken, and not compiled.
            match panel.vectors {
                1 => strip::<M, X, O, 1>(&mut part, &rows, panel.col, numbers),
                2 if V >= 2 => strip::<M, X, O, 2>(&mut part, &rows, panel.col, numbers),
                3 if V >= 3 => strip::<M, X, O, 3>(&mut part, &rows, panel.col, numbers),
                4 if V >= 4 => strip::<M, X, O, 4>(&mut part, &rows, panel.col, numbers),
                more => unreachable!("{more} vectors, more than {V}"),
            }
        }
    }
}

/// Some rows of the part, over the columns of one panel.
#[inline(always)]
fn strip<M: Arith, X: Stored, O: Stored<Sum = X::Sum>, const V: usize>(
    part: &mut Part<'_, X, O>,
    rows: &Range<usize>,
    col: usize,
    numbers: &[X::Sum],
) {
    let panel = numbers.as_chunks::<LANES>().0.as_chunks::<V>().0;
    let end = (col + V * LANES).min(part.y.n_cols);
    for i in rows.clone().step_by(R) {
        ask_for::<X, O, V>(part, i, col);
        // Past the last row, that row again: computed, and not written.
        let lines = std::array::from_fn(|r| part.x.row((i + r).min(rows.end - 1)));
        let sums = of_rows::<M, X, R, V>(lines, panel);
        for (r, sums) in sums.iter().take(rows.end - i).enumerate() {
            let y = &mut part.y.row_mut(i + r)[col..end];
            part.finish.store::<M, O, V>(sums, y, col);
        }
    }
}

/// Asks for what the tile will write, and in the first panel for rows of `x` that come soon.
#[inline(always)]
fn ask_for<X: Stored, O: Stored, const V: usize>(part: &Part<'_, X, O>, i: usize, col: usize) {
    for r in i..i + R {
        for v in 0..V {
            prefetch(part.y.data, r * part.y.stride + col + v * LANES);
        }
    }
    if col == 0 {
        let line = LINE_BYTES / size_of::<X>();
        let start = (i + 2 * R) * part.x.stride;
        for at in (start..start + R * part.x.stride).step_by(line) {
            prefetch(part.x.data, at);
        }
    }
}
