//! Any form by blocks of the result: `Xᵀ·Z` of tall factors above all, and products of large `k`.
//!
//! ```text
//!  for each block of y and each piece of the sum over p, on any thread:
//!      for each chunk of p:
//!          pack the chunk of z
//!          for each panel of it, for each R rows of the block:  a tile, added to the block's sums
//!  for each block: its pieces' sums one after another, then to y
//! ```
//! The left factor is read by rows as in `X·Z`, or by columns in `Xᵀ·Z`, from a copy of the chunk.
//!
//! # Parallelism
//! A thread does a whole piece of a block. A small result has few blocks, and then the sum is cut
//! into up to 64 pieces; blocks and pieces follow from the sizes alone.
//! # Accuracy
//! Chunks are added apart, then one after another: more exact than one sum over all of `p`.
//! # Memory
//! For each thread the sums of a block and a chunk of `z`; for each further piece the sums of a
//! block, at most 20 MiB in all.

use std::ops::Range;

use lacis_core::Threads;
use lacis_core::threads::ranges;

use super::pack::{Panel, Side, pack, panels};
use super::tile::{LANES, Tile, of_columns, of_rows};
use super::{Product, R};
use crate::finish::Epilogue;
use crate::isa::{Arith, Isa, per_isa};
use crate::matrix::{Mat, MatMut};
use crate::mem::prefetch;
use crate::real::{Real, Stored};

/// Columns of a block at most.
const BLOCK_COLS: usize = 256;
/// Sums of a block at most: they and a chunk of each factor fit in the second cache.
const BLOCK_SUMS: usize = 5 << 14;
/// Numbers of a chunk of the left factor.
const CHUNK_NUMBERS: usize = 1 << 16;
/// How many pieces to cut a product into at least, where its sum is long enough.
const PIECES: usize = 64;
/// The shortest piece of a sum.
const PIECE: usize = 1 << 10;

/// Some rows and columns of a result; the rows to write while nobody else does.
struct Block<'a, X: Stored, Z: Stored, O> {
    product: Product<'a, X, Z>,
    rows: Range<usize>,
    panels: Vec<Panel>,
    y: Vec<&'a mut [O]>,
}

/// What a thread keeps from piece to piece.
#[derive(Default)]
struct Scratch<F> {
    left: Vec<F>,
    packed: Vec<F>,
    sums: Vec<F>,
}

/// A piece of the sum of a block.
struct Piece<'a, X: Stored, Z: Stored> {
    product: Product<'a, X, Z>,
    rows: Range<usize>,
    panels: &'a [Panel],
    ps: Range<usize>,
    scratch: &'a mut Scratch<X::Sum>,
}

/// Computes one or many products.
pub(super) fn run<X, Z, O, const V: usize>(
    isa: Isa,
    products: Vec<(Product<'_, X, Z>, MatMut<'_, O>)>,
    finish: Epilogue<'_, X::Sum>,
    threads: &Threads,
) where
    X: Stored,
    Z: Stored<Sum = X::Sum>,
    O: Stored<Sum = X::Sum>,
{
    let mut blocks: Vec<Block<'_, X, Z, O>> =
        products.into_iter().flat_map(|(product, y)| cut::<X, Z, O, V>(product, y)).collect();
    let n_blocks = blocks.len();
    let whole = |block: &Block<'_, X, Z, O>| pieces(block.product.k, n_blocks) == 1;
    let (short, long): (Vec<_>, Vec<_>) = blocks.drain(..).partition(whole);
    let scratch = Scratch::<X::Sum>::default;
    threads.map_with(short, scratch, |scratch, mut block| {
        sum::<X, Z, O, V>(isa, &block, 0..block.product.k, scratch);
        finished::<X::Sum, O>(isa, (&scratch.sums, &block.panels, &mut block.y, finish));
    });
    let piece_of = |b: usize| {
        let k = long[b].product.k;
        ranges(k, k.div_ceil(pieces(k, n_blocks))).into_iter().map(move |ps| (b, ps))
    };
    let items: Vec<_> = (0..long.len()).flat_map(piece_of).collect();
    let mut sums = threads
        .map_with(items, scratch, |scratch, (b, ps)| {
            sum::<X, Z, O, V>(isa, &long[b], ps, scratch);
            std::mem::take(&mut scratch.sums)
        })
        .into_iter();
    let items = long.into_iter().map(|block| {
        let k = block.product.k;
        let sums: Vec<_> =
            sums.by_ref().take(ranges(k, k.div_ceil(pieces(k, n_blocks))).len()).collect();
        (block, sums)
    });
    threads.for_each(items.collect(), |(mut block, mut sums)| {
        let (first, others) = sums.split_first_mut().expect("a sum has a piece");
        for other in others {
            first.iter_mut().zip(other).for_each(|(sum, other)| *sum += *other);
        }
        finished::<X::Sum, O>(isa, (first, &block.panels, &mut block.y, finish));
    });
}

/// How many pieces a sum of `k` terms is cut into.
fn pieces(k: usize, n_blocks: usize) -> usize {
    (PIECES / n_blocks.max(1)).clamp(1, (k / PIECE).max(1))
}

/// The blocks of a result.
fn cut<'a, X: Stored, Z: Stored, O: Stored, const V: usize>(
    product: Product<'a, X, Z>,
    y: MatMut<'a, O>,
) -> Vec<Block<'a, X, Z, O>> {
    let even = |len: usize, most: usize, unit: usize| {
        len.div_ceil(len.div_ceil(most).max(1)).next_multiple_of(unit).max(unit)
    };
    let n_cols = even(y.n_cols, BLOCK_COLS, LANES);
    let n_rows = even(y.n_rows, BLOCK_SUMS / n_cols, R);
    let (all_rows, all_cols) = (ranges(y.n_rows, n_rows), ranges(y.n_cols, n_cols));
    let mut blocks = Vec::new();
    for rows in &all_rows {
        for cols in &all_cols {
            let (rows, panels) = (rows.clone(), panels(cols.clone(), V));
            blocks.push(Block { product, y: Vec::with_capacity(rows.len()), rows, panels });
        }
    }
    let (stride, width) = (y.stride.max(1), y.n_cols);
    for (i, row) in y.data.chunks_mut(stride).take(y.n_rows).enumerate() {
        for (j, row) in row[..width].chunks_mut(n_cols).enumerate() {
            blocks[i / n_rows * all_cols.len() + j].y.push(row);
        }
    }
    blocks
}

/// A piece of a block's sum, into the scratch memory.
fn sum<X: Stored, Z: Stored<Sum = X::Sum>, O, const V: usize>(
    isa: Isa,
    block: &Block<'_, X, Z, O>,
    ps: Range<usize>,
    scratch: &mut Scratch<X::Sum>,
) {
    let Block { product, rows, panels, .. } = block;
    let (product, rows) = (*product, rows.clone());
    compiled::<X, Z, V>(isa, Piece { product, rows, panels, ps, scratch });
}

per_isa!(fn compiled<[X: Stored, Z: Stored<Sum = <X as Stored>::Sum>], [V]>
    (piece: Piece<'_, X, Z>) = body);

#[inline(always)]
fn body<M: Arith, X: Stored, Z: Stored<Sum = X::Sum>, const V: usize>(piece: Piece<'_, X, Z>) {
    let Piece { product, rows, panels, ps, scratch: Scratch { left, packed, sums } } = piece;
    let vectors: usize = panels.iter().map(|panel| panel.vectors).sum();
    let n_rows = rows.len().next_multiple_of(R);
    let chunk = (CHUNK_NUMBERS / n_rows.max(1)).clamp(64, 256);
    sums.clear();
    sums.resize(n_rows * vectors * LANES, X::Sum::ZERO);
    packed.resize(chunk * vectors * LANES, X::Sum::ZERO);
    left.resize(chunk * n_rows, X::Sum::ZERO);
    for start in ps.clone().step_by(chunk) {
        let now = start..(start + chunk).min(ps.end);
        copy_left(product.x, rows.clone(), now.clone(), left);
        let next = now.end..(now.end + chunk).min(ps.end);
        let (mut rest, mut ahead) = (&mut sums[..], Ahead::new(&product, &rows, next));
        for panel in panels {
            pack(product.z, *panel, (now.clone(), product.n), packed);
            let (own, after) = rest.split_at_mut(n_rows * panel.vectors * LANES);
            rest = after;
            let strip = Strip { left, side: product.x.1, n_rows, k: now.len() };
            match panel.vectors {
                1 => strip.add::<M, X, 1>(packed, own, &mut ahead),
                2 if V >= 2 => strip.add::<M, X, 2>(packed, own, &mut ahead),
                3 if V >= 3 => strip.add::<M, X, 3>(packed, own, &mut ahead),
                4 if V >= 4 => strip.add::<M, X, 4>(packed, own, &mut ahead),
                more => unreachable!("{more} vectors, more than {V}"),
            }
        }
    }
}

/// Copies a chunk of the left factor, widened: rows one after another, or columns where it is read
/// turned, each as long as whole tiles. Rows that lie a power of two apart would share few places
/// of the first cache.
#[inline(always)]
fn copy_left<X: Stored>(
    (x, side): (Mat<'_, X>, Side),
    rows: Range<usize>,
    ps: Range<usize>,
    left: &mut [X::Sum],
) {
    let (lines, within, stride) = match side {
        Side::Plain => (rows, ps.clone(), ps.len()),
        Side::Turned => (ps, rows.clone(), rows.len().next_multiple_of(R)),
    };
    for (line, left) in lines.zip(left.chunks_exact_mut(stride)) {
        let from = &x.row(line)[within.clone()];
        left.iter_mut().zip(from).for_each(|(to, from)| *to = from.wide());
    }
}

/// What of the left factor comes next, asked for while there is work to do with the present chunk.
struct Ahead<'a, X> {
    lines: std::slice::ChunksExact<'a, X>,
    each: usize,
}

impl<'a, X: Stored> Ahead<'a, X> {
    #[inline(always)]
    fn new<Z: Stored>(product: &Product<'a, X, Z>, rows: &Range<usize>, ps: Range<usize>) -> Self {
        const LINE_BYTES: usize = 64;
        let (x, side) = product.x;
        // Only where the chunk is one piece of memory.
        let whole = side == Side::Turned && rows.len() == x.n_cols && !ps.is_empty();
        let data = if whole { &x.data[ps.start * x.stride..] } else { &[] };
        let data = &data[..data.len().min(ps.len() * x.stride)];
        let lines = data.chunks_exact(LINE_BYTES / size_of::<X>());
        Ahead { each: lines.len().div_ceil((rows.len() / R).max(1)), lines }
    }

    /// Asks for the share of one tile.
    #[inline(always)]
    fn ask(&mut self) {
        self.lines.by_ref().take(self.each).for_each(|line| prefetch(line, 0));
    }
}

/// Rows of a block and a chunk of the sum.
struct Strip<'a, F> {
    left: &'a [F],
    side: Side,
    n_rows: usize,
    k: usize,
}

impl<F: Real> Strip<'_, F> {
    /// Adds the products with one panel to the sums, which lie tile after tile.
    #[inline(always)]
    fn add<M: Arith, X: Stored, const V: usize>(
        &self,
        packed: &[F],
        sums: &mut [F],
        ahead: &mut Ahead<'_, X>,
    ) {
        let panel = &packed.as_chunks::<LANES>().0.as_chunks::<V>().0[..self.k];
        let tiles = sums.as_chunks_mut::<LANES>().0.as_chunks_mut::<V>().0;
        for (t, sums) in tiles.as_chunks_mut::<R>().0.iter_mut().enumerate() {
            ahead.ask();
            let tile = match self.side {
                Side::Plain => self.by_rows::<M, V>(t, panel),
                Side::Turned => self.by_columns::<M, V>(t, panel),
            };
            for (sums, tile) in sums.iter_mut().zip(&tile) {
                for (sums, tile) in sums.iter_mut().zip(tile) {
                    sums.iter_mut().zip(tile).for_each(|(sum, tile)| *sum += *tile);
                }
            }
        }
    }

    #[inline(always)]
    fn by_rows<M: Arith, const V: usize>(&self, t: usize, panel: &Panels<F, V>) -> Tile<F, R, V> {
        let row = |r| &self.left[(t * R + r) * self.k..][..self.k];
        of_rows::<M, F, R, V>(std::array::from_fn(row), panel)
    }

    #[inline(always)]
    fn by_columns<M: Arith, const V: usize>(
        &self,
        t: usize,
        panel: &Panels<F, V>,
    ) -> Tile<F, R, V> {
        let columns = self.left.as_chunks::<R>().0;
        let (start, apart) = (t, self.n_rows / R);
        of_columns::<M, F, R, V>(|p| columns[start + p * apart], panel)
    }
}

/// A packed panel.
type Panels<F, const V: usize> = [[[F; LANES]; V]];

/// The sums of a block, its panels, where they go and how.
type Finished<'a, 'y, F, O> = (&'a [F], &'a [Panel], &'a mut [&'y mut [O]], Epilogue<'a, F>);

per_isa!(fn finished<[F: Real, O: Stored<Sum = F>], []>
    (block: Finished<'_, '_, F, O>) = finish_body);

#[inline(always)]
fn finish_body<M: Arith, F: Real, O: Stored<Sum = F>>(
    (sums, panels, y, finish): Finished<'_, '_, F, O>,
) {
    let n_rows = y.len().next_multiple_of(R);
    let first = panels.first().map_or(0, |panel| panel.col);
    let mut rest = sums;
    for panel in panels {
        let (own, after) = rest.split_at(n_rows * panel.vectors * LANES);
        rest = after;
        let own = own.as_chunks::<LANES>().0;
        for (y, sums) in y.iter_mut().zip(own.chunks_exact(panel.vectors)) {
            let y = &mut y[panel.col - first..];
            for ((v, sums), y) in sums.iter().enumerate().zip(y.chunks_mut(LANES)) {
                finish.store::<M, O, 1>(&[*sums], y, panel.col + v * LANES);
            }
        }
    }
}
