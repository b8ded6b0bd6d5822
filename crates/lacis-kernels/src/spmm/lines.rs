//! Sums of rows that are whole lines one after another: the same as [`super::rows`] has them, with
//! less around them. Products with few columns take about a third less time.

use std::ops::Range;

use lacis_core::reference::{Activation, Reduce};

use super::rows::{BLOCK, Out, Part, VECTORS, scale_of};
use super::terms::{Ones, Scaled, Values, Weights};
use super::{Ahead, Args};
use crate::elementwise::activation::apply;
use crate::finish::{Accum, Epilogue, LANES};
use crate::isa::{Arith, Isa, per_isa};
use crate::mem::{L1, L2, Past, copy_past, fetch_lines, write_past};
use crate::real::{Real, Stored};

/// A piece of such a product.
struct Lines<'a, T: Stored> {
    args: &'a Args<'a, T>,
    isa: Isa,
    ahead: Ahead,
    rows: Range<usize>,
    y: &'a mut [T],
}

/// Vectors of a tile, so that all tiles of a row are alike; `None` where this is no such product.
pub(super) fn tile<T: Stored>(args: &Args<'_, T>) -> Option<usize> {
    let (k, vectors) = (args.k(), args.k() / LANES);
    let sums = matches!(args.reduce, Reduce::Sum | Reduce::Mean);
    let tile = match vectors {
        0..=VECTORS => vectors,
        _ if vectors.is_multiple_of(4) => 4,
        _ if vectors.is_multiple_of(3) => 3,
        _ => return None,
    };
    (sums && k.is_multiple_of(LANES) && args.x.stride == k).then_some(tile)
}

/// Computes a part if it is of this kind, or gives it back.
pub(super) fn run<T: Stored>(part: Part<'_, T>) -> Option<Part<'_, T>> {
    let args = part.args;
    let Some(tile) = tile(args).filter(|_| !part.ahead.straddling) else { return Some(part) };
    let Part { isa, ahead, rows, out, stage: None, .. } = part else { return Some(part) };
    match out {
        Out::Rows(y) if y.stride == args.k() => {
            let of = Lines { args, isa, ahead, rows, y: y.data };
            match tile {
                1 => weighted::<T, 1>(of),
                2 => weighted::<T, 2>(of),
                3 => weighted::<T, 3>(of),
                _ => weighted::<T, VECTORS>(of),
            }
            None
        }
        out => Some(Part { args, isa, ahead, rows, out, stage: None }),
    }
}

fn weighted<T: Stored, const V: usize>(of: Lines<'_, T>) {
    match (of.args.values.is_some(), of.args.right.is_some()) {
        (false, false) => asking::<T, Ones, V>(of),
        (true, false) => asking::<T, Values, V>(of),
        (_, true) => asking::<T, Scaled, V>(of),
    }
}

/// Lines are asked for far ahead, near ahead, or not at all.
const FAR: usize = 1;
const NEAR: usize = 2;

fn asking<T: Stored, W: Weights, const V: usize>(of: Lines<'_, T>) {
    match (of.ahead.far > 0, of.ahead.near > 0) {
        (false, false) => compiled::<T, W, V, 0>(of.isa, of),
        (true, false) => compiled::<T, W, V, FAR>(of.isa, of),
        (false, true) => compiled::<T, W, V, NEAR>(of.isa, of),
        (true, true) => compiled::<T, W, V, { FAR | NEAR }>(of.isa, of),
    }
}

per_isa!(fn compiled<[T: Stored, W: Weights], [V, ASK]>(of: Lines<'_, T>) = body);

#[inline(always)]
fn body<M: Arith, T: Stored, W: Weights, const V: usize, const ASK: usize>(of: Lines<'_, T>) {
    let Lines { args, isa, ahead, rows, y } = of;
    // What is added to is near already.
    let past = (ahead.past && args.epilogue.accum == Accum::Replace).then(Past::begin);
    let plain = args.epilogue.is_plain();
    let tiles = args.k() / (V * LANES);
    let mut stage = [[[T::Sum::ZERO; LANES]; V]; GROUP];
    let (x, _) = args.x.data.as_chunks::<LANES>().0.as_chunks::<V>();
    let (y, _) = y.as_chunks_mut::<LANES>().0.as_chunks_mut::<V>();
    for (start, y) in rows.clone().step_by(BLOCK).zip(y.chunks_mut(BLOCK * tiles)) {
        let block = Block::of(args, start..rows.end.min(start + BLOCK), ahead);
        for tile in 0..tiles {
            let from = Tile { args, block: &block, x: x.get(tile..).unwrap_or_default(), tiles };
            let ending = Ending::of(args, tile * V * LANES);
            let mut begin = 0;
            let (ends, scales) = (&block.ends[..block.count], &block.scales);
            let groups = ends.chunks(GROUP).zip(scales.chunks(GROUP));
            for ((ends, scales), y) in groups.zip(y.chunks_mut(GROUP * tiles)) {
                let places = ends.iter().zip(scales).zip(y.chunks_exact_mut(tiles));
                for (((&end, &scale), y), staged) in places.zip(&mut stage) {
                    let sums = from.sums::<M, W, ASK>(begin..end);
                    begin = end;
                    let y = &mut y[tile];
                    // Apart, or a line waits in memory before it is written in one piece, too.
                    match past.as_ref() {
                        None if plain => *y = narrowed(&sums, scale),
                        Some(past) if plain => put(past, &narrowed(&sums, scale), y),
                        _ => {
                            let ended = ending.ended(&sums, scale, y);
                            match past.as_ref() {
                                _ if ending.waits => *staged = ended,
                                None => *y = stored(&ended),
                                Some(past) => put(past, &stored(&ended), y),
                            }
                        }
                    }
                }
                if !plain && ending.waits {
                    let stage = &mut stage[..ends.len()];
                    conclude(isa, Group { args, past: past.as_ref(), stage, y, tile, tiles });
                }
            }
        }
    }
}

/// Rows whose activation is computed together: a call for each row takes longer than its sum.
const GROUP: usize = 16;

/// What is known of some rows before their sums are.
struct Block<'a, F> {
    count: usize,
    /// Their first entry, and where those of each row end, counted from it.
    first: usize,
    ends: [usize; BLOCK],
    scales: [F; BLOCK],
    /// The columns of their entries and of all after them; the same from far and near ahead on.
    now: &'a [u32],
    far: &'a [u32],
    near: &'a [u32],
}

impl<'a, F: Real> Block<'a, F> {
    #[inline(always)]
    fn of<T: Stored<Sum = F>>(args: &Args<'a, T>, rows: Range<usize>, ahead: Ahead) -> Self {
        let span = args.a.span(rows.clone());
        let (mut ends, mut scales) = ([0; BLOCK], [F::ONE; BLOCK]);
        for (i, (end, scale)) in rows.clone().zip(ends.iter_mut().zip(&mut scales)) {
            let entries = args.a.row(i);
            *end = entries.end - span.start;
            *scale = scale_of(args, i, entries.len());
        }
        let cols = args.a.cols;
        let from = |by: usize| &cols[(span.start + by).min(cols.len())..];
        let (now, near, far) = (from(0), from(ahead.near), from(ahead.far));
        Block { count: rows.len(), first: span.start, ends, scales, now, far, near }
    }
}

/// As many columns ahead as there are now. At the matrix's end its last ones are asked for again,
/// to no effect.
#[inline(always)]
fn coming<'a>(ahead: &'a [u32], entries: Range<usize>, now: &'a [u32]) -> &'a [u32] {
    let start = entries.start.min(ahead.len().saturating_sub(entries.len()));
    ahead.get(start..start + entries.len()).unwrap_or(now)
}

/// Some columns of the operand.
struct Tile<'a, T: Stored, const V: usize> {
    args: &'a Args<'a, T>,
    block: &'a Block<'a, T::Sum>,
    /// The operand from the tile's first column on, by tiles.
    x: &'a [[[T; LANES]; V]],
    tiles: usize,
}

impl<T: Stored, const V: usize> Tile<'_, T, V> {
    /// The sum of some entries of the block, those at even and at odd places apart. Pairs of
    /// vectors are in an order of their own.
    #[inline(always)]
    fn sums<M: Arith, W: Weights, const ASK: usize>(
        &self,
        entries: Range<usize>,
    ) -> [[T::Sum; LANES]; V] {
        let mut even = [[T::Sum::ZERO; LANES]; V];
        let mut odd = even;
        let (args, block) = (self.args, self.block);
        let start = block.first + entries.start;
        let now = &block.now[entries.clone()];
        let far = if ASK & FAR > 0 { coming(block.far, entries.clone(), now) } else { now };
        let near = if ASK & NEAR > 0 { coming(block.near, entries, now) } else { now };
        let comings = far.as_chunks::<2>().0.iter().zip(near.as_chunks::<2>().0);
        let (pairs, last) = now.as_chunks::<2>();
        for (at, (pair, (far, near))) in pairs.iter().zip(comings).enumerate() {
            self.ask::<ASK>(far, near);
            let [j0, j1] = [pair[0] as usize, pair[1] as usize];
            let e = start + 2 * at;
            self.add::<M>(&mut even, W::at(args, e, j0), j0);
            self.add::<M>(&mut odd, W::at(args, e + 1, j1), j1);
        }
        if let [j] = last {
            let j = *j as usize;
            self.ask::<ASK>(&far[far.len() - 1..], &near[near.len() - 1..]);
            self.add::<M>(&mut even, W::at(args, start + now.len() - 1, j), j);
        }
        for (even, odd) in even.as_flattened_mut().iter_mut().zip(odd.as_flattened()) {
            *even += *odd;
        }
        even
    }

    #[inline(always)]
    fn ask<const ASK: usize>(&self, far: &[u32], near: &[u32]) {
        let start = |j: &u32| *j as usize * self.tiles * V * LANES;
        let x = self.x.as_flattened().as_flattened();
        if ASK & FAR > 0 {
            far.iter().for_each(|j| fetch_lines::<T, L2>(x, start(j), V * LANES));
        }
        if ASK & NEAR > 0 {
            near.iter().for_each(|j| fetch_lines::<T, L1>(x, start(j), V * LANES));
        }
    }

    #[inline(always)]
    #[allow(
        clippy::needless_range_loop,
        reason = "of iterators the compiler makes narrower vectors"
    )]
    fn add<M: Arith>(&self, sums: &mut [[T::Sum; LANES]; V], weight: T::Sum, j: usize) {
        let (pairs, last) = self.x[j * self.tiles].as_chunks::<2>();
        let (sums, last_sums) = sums.as_chunks_mut::<2>();
        for (sums, pair) in sums.iter_mut().zip(pairs) {
            let wide = T::wide_pair(pair);
            for v in 0..2 {
                for l in 0..LANES {
                    sums[v][l] = M::mul_add(weight, wide[v][l], sums[v][l]);
                }
            }
        }
        if let ([sums], [x]) = (last_sums, last) {
            // Widened before anything else, or bf16 is taken apart one by one.
            let mut wide = [T::Sum::ZERO; LANES];
            for l in 0..LANES {
                wide[l] = x[l].wide();
            }
            for l in 0..LANES {
                sums[l] = M::mul_add(weight, wide[l], sums[l]);
            }
        }
    }
}

/// What becomes of the sums of a tile: the epilogue, as far as it is done in registers.
struct Ending<T: Stored, const V: usize> {
    adds: bool,
    bias: Option<[[T::Sum; LANES]; V]>,
    relu: bool,
    /// Whether an activation is still to come.
    waits: bool,
}

impl<T: Stored, const V: usize> Ending<T, V> {
    #[inline(always)]
    fn of(args: &Args<'_, T>, col: usize) -> Self {
        let Epilogue { accum, bias, activation } = args.epilogue;
        let bias = bias.map(|bias| {
            let mut columns = [[T::Sum::ZERO; LANES]; V];
            columns.as_flattened_mut().copy_from_slice(&bias[col..][..V * LANES]);
            columns
        });
        let relu = activation == Activation::Relu;
        let waits = !relu && activation != Activation::Identity;
        Ending { adds: accum == Accum::Add, bias, relu, waits }
    }

    /// Sums, pairs of vectors in their own order, scaled and with what belongs to them.
    #[inline(always)]
    #[allow(
        clippy::needless_range_loop,
        reason = "of iterators the compiler makes narrower vectors"
    )]
    fn ended(
        &self,
        sums: &[[T::Sum; LANES]; V],
        scale: T::Sum,
        y: &[[T; LANES]; V],
    ) -> [[T::Sum; LANES]; V] {
        let mut ended = scaled(sums, scale);
        ended.as_chunks_mut::<2>().0.iter_mut().for_each(|pair| *pair = T::ordered(*pair));
        for v in 0..V {
            if self.adds {
                for l in 0..LANES {
                    ended[v][l] += y[v][l].wide();
                }
            }
            if let Some(bias) = &self.bias {
                for l in 0..LANES {
                    ended[v][l] += bias[v][l];
                }
            }
            if self.relu {
                // NaN stays NaN.
                for l in 0..LANES {
                    let negative = ended[v][l] <= T::Sum::ZERO;
                    ended[v][l] = if negative { T::Sum::ZERO } else { ended[v][l] };
                }
            }
        }
        ended
    }
}

/// Rows of a tile that wait for their activation.
struct Group<'a, T: Stored, const V: usize> {
    args: &'a Args<'a, T>,
    past: Option<&'a Past>,
    stage: &'a mut [[[T::Sum; LANES]; V]],
    y: &'a mut [[[T; LANES]; V]],
    tile: usize,
    tiles: usize,
}

per_isa!(fn conclude<[T: Stored], [V]>(of: Group<'_, T, V>) = conclude_body);

#[inline(always)]
fn conclude_body<M: Arith, T: Stored, const V: usize>(of: Group<'_, T, V>) {
    let Group { args, past, stage, y, tile, tiles } = of;
    apply::<M, T::Sum>(args.epilogue.activation, stage.as_flattened_mut().as_flattened_mut());
    for (sums, y) in stage.iter().zip(y.chunks_exact_mut(tiles)) {
        match past {
            None => y[tile] = stored(sums),
            Some(past) => put(past, &stored(sums), &mut y[tile]),
        }
    }
}

/// What is in the order of columns, as it is stored.
#[inline(always)]
#[allow(clippy::needless_range_loop, reason = "of iterators the compiler makes narrower vectors")]
fn stored<T: Stored, const V: usize>(sums: &[[T::Sum; LANES]; V]) -> [[T; LANES]; V] {
    let mut lines = [[T::narrow(T::Sum::ZERO); LANES]; V];
    for v in 0..V {
        for l in 0..LANES {
            lines[v][l] = T::narrow(sums[v][l]);
        }
    }
    lines
}

/// Sums times what their row is scaled by.
#[inline(always)]
#[allow(clippy::needless_range_loop, reason = "of iterators the compiler makes narrower vectors")]
fn scaled<F: Real, const V: usize>(sums: &[[F; LANES]; V], scale: F) -> [[F; LANES]; V] {
    let mut scaled = *sums;
    for v in 0..V {
        for l in 0..LANES {
            scaled[v][l] *= scale;
        }
    }
    scaled
}

/// Sums, pairs of vectors in their own order, as they are stored.
#[inline(always)]
#[allow(clippy::needless_range_loop, reason = "of iterators the compiler makes narrower vectors")]
fn narrowed<T: Stored, const V: usize>(
    sums: &[[T::Sum; LANES]; V],
    scale: T::Sum,
) -> [[T; LANES]; V] {
    let scaled = scaled(sums, scale);
    let mut lines = [[T::narrow(T::Sum::ZERO); LANES]; V];
    let ((pairs, last), (to, to_last)) = (scaled.as_chunks::<2>(), lines.as_chunks_mut::<2>());
    to.iter_mut().zip(pairs).for_each(|(to, pair)| *to = T::narrow_pair(pair));
    if let ([to], [sums]) = (to_last, last) {
        for l in 0..LANES {
            to[l] = T::narrow(sums[l]);
        }
    }
    lines
}

/// Writes them past the caches.
#[inline(always)]
fn put<T: Stored, const V: usize>(past: &Past, lines: &[[T; LANES]; V], y: &mut [[T; LANES]; V]) {
    if size_of::<[T; LANES]>() >= 64 {
        return lines.iter().zip(y).for_each(|(line, y)| write_past(past, line, y));
    }
    copy_past(past, lines.as_flattened(), y.as_flattened_mut());
}
