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
use lacis_core::threads::ranges;

use super::R;
use super::pack::{Panel, Side, pack, panels};
use super::tile::{LANES, of_rows, onto};
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

    /// The panel that begins at a column.
    #[inline(always)]
    fn panel<const V: usize>(&self, col: usize) -> &[[[F; LANES]; V]] {
        let numbers = &self.numbers[col * self.k..][..V * LANES * self.k];
        numbers.as_chunks::<LANES>().0.as_chunks::<V>().0
    }
}

/// Rows, and what they are multiplied by.
pub(super) struct Term<'a, X: Stored> {
    pub x: Mat<'a, X>,
    pub packed: &'a Packed<X::Sum>,
}

/// Some rows of a product, or of the sum of two, and where they go.
pub(super) struct Part<'a, X: Stored, O> {
    first: Term<'a, X>,
    second: Option<Term<'a, X>>,
    y: MatMut<'a, O>,
    finish: Epilogue<'a, X::Sum>,
}

/// The blocks of a product, to whose first rows another may be added.
pub(super) fn parts<'a, X: Stored, O: Stored<Sum = X::Sum>>(
    (first, second): (Term<'a, X>, Option<Term<'a, X>>),
    y: MatMut<'a, O>,
    finish: Epilogue<'a, X::Sum>,
) -> Vec<Part<'a, X, O>> {
    let numbers = first.x.n_cols + second.as_ref().map_or(0, |term| term.x.n_cols);
    let rows = (BLOCK_NUMBERS / numbers.max(1)).clamp(8 * R, BLOCK_ROWS);
    // No block has rows of both kinds.
    let both = second.as_ref().map_or(first.x.n_rows, |term| term.x.n_rows);
    let alone = ranges(first.x.n_rows - both, rows).into_iter();
    let alone = alone.map(|rows| rows.start + both..rows.end + both);
    let blocks: Vec<Range<usize>> = ranges(both, rows).into_iter().chain(alone).collect();
    let ends: Vec<usize> = blocks.iter().map(|rows| rows.end).collect();
    let of = |term: &Term<'a, X>, rows: &Range<usize>| Term {
        x: term.x.rows(rows.clone()),
        packed: term.packed,
    };
    let pieces = blocks.into_iter().zip(y.split(&ends));
    pieces
        .map(|(rows, y)| {
            let second = second.as_ref().filter(|_| rows.end <= both);
            Part { first: of(&first, &rows), second: second.map(|term| of(term, &rows)), y, finish }
        })
        .collect()
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
    let factors = part.first.x.n_cols + part.second.as_ref().map_or(0, |term| term.x.n_cols);
    // Rows may be wider than a band's numbers: it has some rows all the same.
    let band = (BAND_NUMBERS / (factors + part.y.n_cols).max(1)).max(1).next_multiple_of(R);
    for start in (0..part.y.n_rows).step_by(band) {
        let rows = start..(start + band).min(part.y.n_rows);
        for panel in &part.first.packed.panels {
            // Arms beyond V are never taken, and not compiled.
            match panel.vectors {
                1 => strip::<M, X, O, 1>(&mut part, &rows, panel.col),
                2 if V >= 2 => strip::<M, X, O, 2>(&mut part, &rows, panel.col),
                3 if V >= 3 => strip::<M, X, O, 3>(&mut part, &rows, panel.col),
                4 if V >= 4 => strip::<M, X, O, 4>(&mut part, &rows, panel.col),
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
) {
    let end = (col + V * LANES).min(part.y.n_cols);
    let panel = part.first.packed.panel::<V>(col);
    let second = part.second.as_ref().map(|term| (term.x, term.packed.panel::<V>(col)));
    for i in rows.clone().step_by(R) {
        ask_for::<X, O, V>(part, i, col);
        let mut sums = of_rows::<M, X, R, V>(lines(part.first.x, i, rows.end), panel);
        if let Some((x, panel)) = second {
            sums = onto::<M, X, R, V>(sums, lines(x, i, rows.end), panel);
        }
        for (r, sums) in sums.iter().take(rows.end - i).enumerate() {
            let y = &mut part.y.row_mut(i + r)[col..end];
            part.finish.store::<M, O, V>(sums, y, col);
        }
    }
}

/// The rows of a tile. Past the last row, that row again: computed, and not written.
#[inline(always)]
fn lines<X: Stored>(x: Mat<'_, X>, i: usize, end: usize) -> [&[X]; R] {
    std::array::from_fn(|r| x.row((i + r).min(end - 1)))
}

/// Asks for what the tile will write, and in the first panel for rows of factors that come soon.
#[inline(always)]
fn ask_for<X: Stored, O: Stored, const V: usize>(part: &Part<'_, X, O>, i: usize, col: usize) {
    for r in i..i + R {
        for v in 0..V {
            prefetch(part.y.data, r * part.y.stride + col + v * LANES);
        }
    }
    if col == 0 {
        soon(part.first.x, i);
        if let Some(second) = &part.second {
            soon(second.x, i);
        }
    }
}

#[inline(always)]
fn soon<X: Stored>(x: Mat<'_, X>, i: usize) {
    let line = LINE_BYTES / size_of::<X>();
    let start = (i + 2 * R) * x.stride;
    for at in (start..start + R * x.stride).step_by(line) {
        prefetch(x.data, at);
    }
}
