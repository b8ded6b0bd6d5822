//! The body of every kernel: some rows, or a part of a long one, over some columns.

use std::ops::Range;

use lacis_core::reference::Reduce;

use super::lines;
use super::terms::{Join, Max, Min, Mul, Ones, Scaled, Sum, Values, Weights};
use super::{Ahead, Args, STAGE};
use crate::finish::{Accum, Block, Ending, LANES, end, end_rows};
use crate::isa::{Arith, Isa, per_isa};
use crate::lanes::halves;
use crate::matrix::MatMut;
use crate::mem::{L1, L2, Past, copy_past, fetch_lines, write_past};
use crate::real::{Real, Stored};

/// A piece of a product, and where it goes.
pub(super) struct Part<'a, T: Stored> {
    pub args: &'a Args<'a, T>,
    pub isa: Isa,
    pub ahead: Ahead,
    pub rows: Range<usize>,
    pub out: Out<'a, T>,
    /// Where rows wait until their lines are whole, and go past the caches.
    pub stage: Option<&'a mut [T]>,
}

/// Where results go.
pub(super) enum Out<'a, T: Stored> {
    /// All columns of the rows.
    Rows(MatMut<'a, T>),
    /// Some columns, for each of the rows.
    Block(Range<usize>, Vec<&'a mut [T]>),
    /// What some entries of the only row add up to, before scale and epilogue.
    Partial(Range<usize>, &'a mut [T::Sum]),
}

impl<T: Stored> Out<'_, T> {
    /// Whether rows have to wait before they can go past the caches: they lie one after another,
    /// but are not whole lines, or are not written line by line.
    pub fn waits(&self, args: &Args<'_, T>, ahead: Ahead) -> bool {
        let Out::Rows(y) = self else { return false };
        let k = args.k();
        let lines = (k * size_of::<T>()).is_multiple_of(64) && y.data.as_ptr().addr() % 64 == 0;
        let sums = args.epilogue.is_plain() && T::as_sums(&mut []).is_some();
        let by_lines = sums || lines::tile(args).is_some() && !ahead.straddling;
        let replaced = args.epilogue.accum == Accum::Replace;
        y.stride == k && k <= STAGE && replaced && !(lines && by_lines)
    }
}

/// Vectors of a tile at most: two sets of so many sums fit in registers.
pub(super) const VECTORS: usize = 4;
/// Rows for which one tile is computed before the next tile is: enough to make the choice of the
/// tile's code cheap, few enough to find their rows of `x` in the same pages again.
pub(super) const BLOCK: usize = 64;

/// The columns of each tile: whole vectors, shared out evenly, so that a tile has less than a
/// vector only where the matrix has.
pub(super) fn tiles(k: usize) -> impl Iterator<Item = Range<usize>> {
    let vectors = k.div_ceil(LANES);
    let count = vectors.div_ceil(VECTORS);
    let end = move |tile: usize| (tile * vectors / count.max(1) * LANES).min(k);
    (0..count).map(move |tile| end(tile)..end(tile + 1))
}

/// Computes a part.
pub(super) fn run<T: Stored>(part: Part<'_, T>) {
    match part.args.reduce {
        Reduce::Sum | Reduce::Mean => {
            if let Some(part) = lines::run(part) {
                weighted::<T, Sum>(part);
            }
        }
        Reduce::Max => weighted::<T, Max>(part),
        Reduce::Min => weighted::<T, Min>(part),
        Reduce::Mul => weighted::<T, Mul>(part),
    }
}

fn weighted<T: Stored, J: Join>(part: Part<'_, T>) {
    let isa = part.isa;
    match (part.args.values.is_some(), part.args.right.is_some()) {
        (false, false) => compiled::<T, Ones, J>(isa, part),
        (true, false) => compiled::<T, Values, J>(isa, part),
        (_, true) => compiled::<T, Scaled, J>(isa, part),
    }
}

per_isa!(fn compiled<[T: Stored, W: Weights, J: Join], []>(part: Part<'_, T>) = body);

#[inline(always)]
fn body<M: Arith, T: Stored, W: Weights, J: Join>(part: Part<'_, T>) {
    let Part { args, isa, ahead, rows, mut out, mut stage } = part;
    let cols = match &out {
        Out::Block(cols, _) => cols.clone(),
        Out::Rows(_) | Out::Partial(..) => 0..args.k(),
    };
    let tail = Tail::of(args.x.data);
    // Sums go from registers to `y` where they are what it holds, or will be when some rows are
    // ended together; else a tile of them waits.
    let stored = T::as_sums(&mut []).is_some();
    let plain = args.epilogue.is_plain();
    let replaced = args.epilogue.accum == Accum::Replace;
    let together = !plain && replaced && stored && matches!(out, Out::Rows(_));
    let direct = stored && plain || together;
    let past = ahead.past.then(Past::begin);
    let first = rows.start;
    let several = together || tiles(cols.len()).count() > 1;
    let block = if several { BLOCK } else { rows.len().max(1) };
    let block = stage.as_ref().map_or(block, |stage| block.min(stage.len() / cols.len()));
    for start in rows.clone().step_by(block) {
        let rows = start..rows.end.min(start + block);
        for tile in tiles(cols.len()) {
            let wide = tile.len();
            // Without rows there may be no data.
            let col = cols.start + tile.start;
            let x = args.x.data.get(col..).unwrap_or_default();
            let stride = args.x.stride;
            let from = Tile { args, ahead, tail: &tail, x, stride, wide };
            let at = Place { first, start, tile, col };
            let (out, stage) = (&mut out, stage.as_deref_mut());
            let past = past.as_ref().filter(|_| !together);
            let mut to = Target { args, isa, out, stage, direct, past, at };
            match wide.div_ceil(LANES) {
                _ if wide < LANES => rows_of::<M, T, W, J, 1, false>(from, rows.clone(), &mut to),
                1 => rows_of::<M, T, W, J, 1, true>(from, rows.clone(), &mut to),
                2 => rows_of::<M, T, W, J, 2, true>(from, rows.clone(), &mut to),
                3 => rows_of::<M, T, W, J, 3, true>(from, rows.clone(), &mut to),
                _ => rows_of::<M, T, W, J, VECTORS, true>(from, rows.clone(), &mut to),
            }
        }
        if let (true, Out::Rows(y)) = (together, &mut out) {
            let (stride, from) = (y.stride, (rows.start - first) * y.stride);
            let (y, stride) = match &mut stage {
                Some(stage) => (&mut stage[..], cols.len()),
                None => (&mut y.data[from..], stride),
            };
            let k = cols.len();
            if let Some(sums) = T::as_sums(&mut y[..(rows.len() - 1) * stride + k]) {
                end_rows(isa, Block { epilogue: args.epilogue, sums, k, stride });
            }
        }
        if let (Some(past), Some(stage), Out::Rows(y)) = (&past, &stage, &mut out) {
            let [from, to] = [rows.start, rows.end].map(|i| (i - first) * cols.len());
            copy_past(past, &stage[..to - from], &mut y.data[from..to]);
        }
    }
}

/// A tile of some rows.
#[inline(always)]
fn rows_of<M: Arith, T: Stored, W: Weights, J: Join, const V: usize, const WHOLE: bool>(
    from: Tile<'_, T>,
    rows: Range<usize>,
    to: &mut Target<'_, '_, T>,
) {
    // Said once, so that it need not be asked for each entry.
    assert!(!WHOLE || from.wide >= LANES && from.wide > (V - 1) * LANES);
    for i in rows {
        let entries = match &to.out {
            Out::Partial(entries, _) => entries.clone(),
            _ => from.args.a.row(i),
        };
        let count = entries.len();
        let sums = match from.wide {
            1 if !WHOLE => [from.single::<M, W, J>(entries); V],
            _ => from.sums::<M, W, J, V, WHOLE>(entries),
        };
        to.write::<V, WHOLE>(i, count, &sums);
    }
}

/// A tile of sums.
type Sums<T, const V: usize> = [[<T as Stored>::Sum; LANES]; V];

/// Some columns of the operand, and what is known of the entries.
struct Tile<'a, T: Stored> {
    args: &'a Args<'a, T>,
    ahead: Ahead,
    tail: &'a Tail<T>,
    /// The operand from the tile's first column on.
    x: &'a [T],
    stride: usize,
    wide: usize,
}

impl<T: Stored> Tile<'_, T> {
    /// The reduction of some entries. Those at even and at odd places are joined apart, so that
    /// one need not wait for the other.
    #[inline(always)]
    fn sums<M: Arith, W: Weights, J: Join, const V: usize, const WHOLE: bool>(
        &self,
        entries: Range<usize>,
    ) -> [[T::Sum; LANES]; V] {
        let first = if entries.is_empty() { J::of_nothing() } else { J::neutral::<T::Sum>() };
        let mut even = [[first; LANES]; V];
        let mut odd = [[J::neutral::<T::Sum>(); LANES]; V];
        // The sum of squares: not a number just where an entry was none.
        let mut met = [[T::Sum::ZERO; LANES]; V];
        let (args, start) = (self.args, entries.start);
        let [now, near, far] = coming(args.a.cols, entries, self.ahead);
        let (pairs, last) = now.as_chunks::<2>();
        let comings = far.as_chunks::<2>().0.iter().zip(near.as_chunks::<2>().0);
        for (at, (pair, (far, near))) in pairs.iter().zip(comings).enumerate() {
            self.ask::<V>(far, near);
            let [j0, j1] = [pair[0] as usize, pair[1] as usize];
            let e = start + 2 * at;
            self.join::<M, J, V, WHOLE>((&mut even, &mut met), W::at(args, e, j0), j0);
            self.join::<M, J, V, WHOLE>((&mut odd, &mut met), W::at(args, e + 1, j1), j1);
        }
        if let [j] = last {
            let j = *j as usize;
            self.ask::<V>(&far[far.len() - 1..], &near[near.len() - 1..]);
            self.join::<M, J, V, WHOLE>(
                (&mut even, &mut met),
                W::at(args, start + now.len() - 1, j),
                j,
            );
        }
        // Along the numbers: of a loop over vectors the compiler makes gathers across them.
        let (odd, met) = (odd.as_flattened(), met.as_flattened());
        for (at, a) in even.as_flattened_mut().iter_mut().enumerate() {
            let joined = J::together(*a, odd[at]);
            *a = if J::FORGETS && met[at].is_nan() { met[at] } else { joined };
        }
        even
    }

    /// The same where there is one column: entries lie side by side, each lane joins its own.
    #[inline(always)]
    fn single<M: Arith, W: Weights, J: Join>(&self, entries: Range<usize>) -> [T::Sum; LANES] {
        let (args, start) = (self.args, entries.start);
        let mut lanes = [J::neutral::<T::Sum>(); LANES];
        let (chunks, rest) = args.a.cols[entries].as_chunks::<LANES>();
        // Step by step for all lanes, so that only the numbers are fetched one by one.
        for (at, chunk) in chunks.iter().enumerate() {
            let mut x = [T::Sum::ZERO; LANES];
            for l in 0..LANES {
                x[l] = self.x[chunk[l] as usize * self.stride].wide();
            }
            let weights = W::of_chunk(args, start + at * LANES, chunk);
            for l in 0..LANES {
                lanes[l] = J::weighted::<M, T::Sum>(lanes[l], weights[l], x[l]);
            }
        }
        let done = start + chunks.len() * LANES;
        for (l, j) in rest.iter().enumerate() {
            let (e, j) = (done + l, *j as usize);
            let x = self.x[j * self.stride].wide();
            lanes[l] = J::weighted::<M, T::Sum>(lanes[l], W::at(args, e, j), x);
        }
        let none = chunks.is_empty() && rest.is_empty();
        let all = halves(lanes, J::together);
        [if none { J::of_nothing() } else { all }; LANES]
    }

    /// The tile's columns of row `j` of `x`.
    #[inline(always)]
    fn tile<const WHOLE: bool>(&self, j: usize) -> &[T] {
        let start = j * self.stride;
        match WHOLE {
            true => &self.x[start..start + self.wide],
            false => self.tail.vector(self.x, start),
        }
    }

    /// Asks for the tiles of entries to come.
    #[inline(always)]
    fn ask<const V: usize>(&self, far: &[u32], near: &[u32]) {
        if self.ahead.far > 0 {
            far.iter().for_each(|j| self.ask_for::<V, L2>(*j));
        }
        if self.ahead.near > 0 {
            near.iter().for_each(|j| self.ask_for::<V, L1>(*j));
        }
    }

    /// Asks for every line, and where rows do not begin with one, one more.
    #[inline(always)]
    fn ask_for<const V: usize, const CACHE: i32>(&self, j: u32) {
        let start = j as usize * self.stride;
        fetch_lines::<T, CACHE>(self.x, start, V * LANES);
        if self.ahead.straddling {
            fetch_lines::<T, CACHE>(self.x, start + self.wide - 1, 1);
        }
    }

    /// Joins row `j` of `x`. The last vector ends where the tile does, and has some columns of the
    /// one before it again, which makes no difference: they are the same.
    #[inline(always)]
    fn join<M: Arith, J: Join, const V: usize, const WHOLE: bool>(
        &self,
        (sums, met): (&mut Sums<T, V>, &mut Sums<T, V>),
        weight: T::Sum,
        j: usize,
    ) {
        let tile = self.tile::<WHOLE>(j);
        for v in 0..V {
            let at = if v + 1 == V { tile.len() - LANES } else { v * LANES };
            let x = &tile[at..at + LANES];
            // Widened before anything else, or bf16 is taken apart one by one.
            let mut wide = [T::Sum::ZERO; LANES];
            for (wide, x) in wide.iter_mut().zip(x) {
                *wide = x.wide();
            }
            for (sum, x) in sums[v].iter_mut().zip(&wide) {
                *sum = J::quick::<M, T::Sum>(*sum, weight, *x);
            }
            if J::FORGETS {
                for (met, x) in met[v].iter_mut().zip(&wide) {
                    let term = weight * *x;
                    *met = M::mul_add(term, term, *met);
                }
            }
        }
    }
}

/// The columns of a row's entries, of those near ahead, of those far ahead: as many of each. At the
/// matrix's end its last ones are asked for again, to no effect.
#[inline(always)]
fn coming(cols: &[u32], entries: Range<usize>, ahead: Ahead) -> [&[u32]; 3] {
    let (start, count) = (entries.start, entries.len());
    let from = |start: usize| &cols[start.min(cols.len() - count)..][..count];
    [from(start), from(start + ahead.near), from(start + ahead.far)]
}

/// The end of a matrix, from element `start` on, and zeros for the last rows of a matrix narrower
/// than a vector to be read on into. That these lie ready keeps the loop over entries free of
/// calls, and its sums in registers.
struct Tail<T> {
    start: usize,
    data: Vec<T>,
}

impl<T: Stored> Tail<T> {
    fn of(x: &[T]) -> Self {
        let start = x.len().saturating_sub(LANES);
        let mut data = x[start..].to_vec();
        data.resize(data.len() + LANES, T::narrow(T::Sum::ZERO));
        Tail { start, data }
    }

    /// A vector from `start` on.
    #[inline(always)]
    fn vector<'a>(&'a self, x: &'a [T], start: usize) -> &'a [T] {
        match x.get(start..start + LANES) {
            Some(vector) => vector,
            None => &self.data[start - self.start..][..LANES],
        }
    }
}

/// Where a tile of some rows goes.
struct Target<'a, 'o, T: Stored> {
    args: &'a Args<'a, T>,
    isa: Isa,
    out: &'a mut Out<'o, T>,
    /// Where rows wait instead.
    stage: Option<&'a mut [T]>,
    /// Whether sums are what `y` holds.
    direct: bool,
    /// Where they go there past the caches.
    past: Option<&'a Past>,
    at: Place,
}

/// What of the result a target is.
struct Place {
    /// The first row of `out`.
    first: usize,
    /// The first row that waits.
    start: usize,
    /// The columns of `out`.
    tile: Range<usize>,
    /// The first column of the result.
    col: usize,
}

impl<T: Stored> Target<'_, '_, T> {
    /// Writes the sums of row `i`, which has so many entries.
    #[inline(always)]
    fn write<const V: usize, const WHOLE: bool>(
        &mut self,
        i: usize,
        entries: usize,
        sums: &[[T::Sum; LANES]; V],
    ) {
        let args = self.args;
        let scale = scale_of(args, i, entries);
        let Place { first, start, ref tile, col } = self.at;
        let past = self.past.filter(|_| self.stage.is_none());
        let y = match (&mut self.stage, &mut self.out) {
            (Some(stage), _) => &mut stage[(i - start) * args.k()..][tile.clone()],
            (None, Out::Rows(y)) => &mut y.row_mut(i - first)[tile.clone()],
            (None, Out::Block(_, rows)) => &mut rows[i - first][tile.clone()],
            (None, Out::Partial(_, partial)) => {
                return store::<_, V, WHOLE>(sums, T::Sum::ONE, &mut partial[tile.clone()]);
            }
        };
        if self.direct
            && let Some(y) = T::as_sums(y)
        {
            return match (past, y.as_chunks_mut::<LANES>()) {
                // A line that is written in parts would be slower.
                (Some(past), (lines, [])) => store_past(past, sums, scale, lines),
                _ => store::<_, V, WHOLE>(sums, scale, y),
            };
        }
        let mut waiting = [T::Sum::ZERO; VECTORS * LANES];
        let waiting = &mut waiting[..y.len()];
        store::<_, V, WHOLE>(sums, scale, waiting);
        conclude(args, (self.isa, col), waiting, y);
    }
}

/// Writes a tile of sums, scaled; the last vector ends where `y` does.
#[inline(always)]
#[allow(clippy::needless_range_loop, reason = "of iterators the compiler makes narrower vectors")]
fn store<F: Real, const V: usize, const WHOLE: bool>(
    sums: &[[F; LANES]; V],
    scale: F,
    y: &mut [F],
) {
    if !WHOLE {
        return y.iter_mut().zip(&sums[0]).for_each(|(y, sum)| *y = *sum * scale);
    }
    assert!(y.len() >= LANES && y.len() > (V - 1) * LANES);
    for v in 0..V {
        let at = if v + 1 == V { y.len() - LANES } else { v * LANES };
        let y = &mut y[at..at + LANES];
        for l in 0..LANES {
            y[l] = sums[v][l] * scale;
        }
    }
}

/// The same past the caches.
#[inline(always)]
#[allow(clippy::needless_range_loop, reason = "of iterators the compiler makes narrower vectors")]
fn store_past<F: Real, const V: usize>(
    past: &Past,
    sums: &[[F; LANES]; V],
    scale: F,
    y: &mut [[F; LANES]],
) {
    for (sums, y) in sums.iter().zip(y) {
        let mut scaled = [F::ZERO; LANES];
        for l in 0..LANES {
            scaled[l] = sums[l] * scale;
        }
        write_past(past, &scaled, y);
    }
}

/// Writes a row's scaled sums from column `col` on as the epilogue has it.
pub(super) fn conclude<T: Stored>(
    args: &Args<'_, T>,
    (isa, col): (Isa, usize),
    sums: &mut [T::Sum],
    y: &mut [T],
) {
    end(isa, Ending { epilogue: args.epilogue, sums, y, col });
}

/// `l_i`, and for a mean the share of one entry.
#[inline(always)]
pub(super) fn scale_of<T: Stored>(args: &Args<'_, T>, i: usize, entries: usize) -> T::Sum {
    let left = args.left.map_or(T::Sum::ONE, |left| left[i]);
    match args.reduce {
        Reduce::Mean => left / T::Sum::of(entries.max(1) as f64),
        _ => left,
    }
}
