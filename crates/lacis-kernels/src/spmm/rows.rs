//! The body of every kernel: some rows, or a part of a long one, over some columns.

use std::ops::Range;

use lacis_core::reference::Reduce;

use super::terms::{Join, Max, Min, Mul, Ones, Scaled, Sum, Values, Weights};
use super::{Ahead, Args};
use crate::finish::{Ending, LANES, end, write};
use crate::isa::{Arith, Isa, per_isa};
use crate::matrix::{Mat, MatMut};
use crate::mem::{L1, L2, fetch_lines};
use crate::real::{Real, Stored};

/// A piece of a product, and where it goes.
pub(super) struct Part<'a, T: Stored> {
    pub args: &'a Args<'a, T>,
    pub isa: Isa,
    pub ahead: Ahead,
    pub rows: Range<usize>,
    pub out: Out<'a, T>,
}

/// Where results go.
pub(super) enum Out<'a, T: Stored> {
    /// All columns of the rows.
    Rows(MatMut<'a, T>),
    /// The columns from the first on, for each of the rows.
    Block(usize, Vec<&'a mut [T]>),
    /// What some entries of the only row add up to, before scale and epilogue.
    Partial(Range<usize>, &'a mut [T::Sum]),
}

/// Vectors of a tile: two sets of so many sums fit in registers.
const VECTORS: usize = 4;
/// Columns of a tile.
pub(super) const TILE: usize = VECTORS * LANES;

/// Computes a part.
pub(super) fn run<T: Stored>(part: Part<'_, T>) {
    match part.args.reduce {
        Reduce::Sum | Reduce::Mean => weighted::<T, Sum>(part),
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
    let Part { args, isa, ahead, rows, mut out } = part;
    let tail = Tail::of(args.x.data, TILE);
    // Sums go from registers to `y` where they are what it holds; else a row of them waits here.
    let direct = args.epilogue.is_plain() && T::as_sums(&mut []).is_some();
    let mut waiting = vec![T::Sum::ZERO; if direct { 0 } else { args.k() }];
    for (at, i) in rows.enumerate() {
        let row = args.a.row(i);
        let scale = scale_of(args, i, row.len());
        let (entries, col, scale, mut target) = match &mut out {
            Out::Rows(y) => (row, 0, scale, Target::Row(y.row_mut(at))),
            Out::Block(col, rows) => (row, *col, scale, Target::Row(rows[at])),
            Out::Partial(part, sums) => (part.clone(), 0, T::Sum::ONE, Target::Sums(sums)),
        };
        let sums = match &mut target {
            Target::Sums(sums) => &mut **sums,
            Target::Row(y) if direct => T::as_sums(y).expect("checked above"),
            Target::Row(y) => &mut waiting[..y.len()],
        };
        Tile { args, tail: &tail, ahead, entries, col }.run::<M, W, J>(scale, sums);
        if let Target::Row(y) = target
            && !direct
        {
            conclude(args, (isa, col), &mut waiting[..y.len()], y);
        }
    }
}

/// A piece of a row of the result, or sums that are yet to become one.
enum Target<'a, T: Stored> {
    Row(&'a mut [T]),
    Sums(&'a mut [T::Sum]),
}

/// Some columns, from `col` on, of the reduction of some entries.
struct Tile<'a, T: Stored> {
    args: &'a Args<'a, T>,
    tail: &'a Tail<T>,
    ahead: Ahead,
    entries: Range<usize>,
    col: usize,
}

impl<T: Stored> Tile<'_, T> {
    /// Computes all columns of `y`, tile after tile.
    #[inline(always)]
    fn run<M: Arith, W: Weights, J: Join>(mut self, scale: T::Sum, y: &mut [T::Sum]) {
        for y in y.chunks_mut(TILE) {
            let wide = y.len();
            match wide.div_ceil(LANES) {
                1 => store(&self.sums::<M, W, J, 1>(wide), scale, y),
                2 => store(&self.sums::<M, W, J, 2>(wide), scale, y),
                3 => store(&self.sums::<M, W, J, 3>(wide), scale, y),
                _ => store(&self.sums::<M, W, J, VECTORS>(wide), scale, y),
            }
            self.col += wide;
        }
    }

    /// The reduction, of which the first `wide` columns are meant. Entries at even and at odd
    /// places are joined apart, so that one need not wait for the other.
    #[inline(always)]
    fn sums<M: Arith, W: Weights, J: Join, const V: usize>(
        &self,
        wide: usize,
    ) -> [[T::Sum; LANES]; V] {
        let first = if self.entries.is_empty() { J::of_nothing() } else { J::neutral::<T::Sum>() };
        let mut even = [[first; LANES]; V];
        let mut odd = [[J::neutral::<T::Sum>(); LANES]; V];
        let (args, ahead, x, col) = (self.args, self.ahead, self.args.x, self.col);
        let rows = (x.data, self.tail);
        let Range { start, end } = self.entries;
        let cols = &args.a.cols[start..end];
        // At the matrix's end nothing comes after: then a row is asked for itself, to no effect.
        let after = |distance| args.a.cols.get(start + distance..end + distance).unwrap_or(cols);
        let (far, near) = (after(ahead.far), after(ahead.near));
        let (pairs, last) = cols.as_chunks::<2>();
        let comings = far.as_chunks::<2>().0.iter().zip(near.as_chunks::<2>().0);
        for (at, (pair, (far, near))) in pairs.iter().zip(comings).enumerate() {
            ask::<T, V>(x, col, ahead, [far, near], wide);
            let [j0, j1] = pair.map(|j| j as usize);
            let e = start + 2 * at;
            join::<M, T, J, V>(&mut even, W::at(args, e, j0), rows, j0 * x.stride + col);
            join::<M, T, J, V>(&mut odd, W::at(args, e + 1, j1), rows, j1 * x.stride + col);
        }
        if let [j] = last {
            let j = *j as usize;
            let coming = |ahead: &[u32]| [ahead[ahead.len() - 1]; 1];
            ask::<T, V>(x, col, ahead, [&coming(far), &coming(near)], wide);
            join::<M, T, J, V>(&mut even, W::at(args, end - 1, j), rows, j * x.stride + col);
        }
        for (even, odd) in even.iter_mut().zip(&odd) {
            for (a, b) in even.iter_mut().zip(odd) {
                *a = J::together(*a, *b);
            }
        }
        even
    }
}

/// Asks for tiles of rows to come: every line, and where rows do not begin with one, one more.
#[inline(always)]
fn ask<T: Stored, const V: usize>(
    x: Mat<'_, T>,
    col: usize,
    ahead: Ahead,
    [far, near]: [&[u32]; 2],
    wide: usize,
) {
    if ahead.far > 0 {
        for j in far {
            lines::<T, V, L2>(x, *j as usize * x.stride + col, ahead, wide);
        }
    }
    if ahead.near > 0 {
        for j in near {
            lines::<T, V, L1>(x, *j as usize * x.stride + col, ahead, wide);
        }
    }
}

#[inline(always)]
fn lines<T: Stored, const V: usize, const CACHE: i32>(
    x: Mat<'_, T>,
    start: usize,
    ahead: Ahead,
    wide: usize,
) {
    fetch_lines::<T, CACHE>(x.data, start, V * LANES);
    if ahead.straddling {
        fetch_lines::<T, CACHE>(x.data, start + wide - 1, 1);
    }
}

/// Joins a row of `x` from `start` on. The end of a row is read on into the next: what is not meant
/// is never written.
#[inline(always)]
fn join<M: Arith, T: Stored, J: Join, const V: usize>(
    sums: &mut [[T::Sum; LANES]; V],
    weight: T::Sum,
    (x, tail): (&[T], &Tail<T>),
    start: usize,
) {
    let tile = match x.get(start..start + V * LANES) {
        Some(tile) => tile,
        None => &tail.data[start - tail.start..][..V * LANES],
    };
    for (sums, x) in sums.iter_mut().zip(tile.as_chunks::<LANES>().0) {
        // Widened before anything else, or bf16 is taken apart one by one.
        let mut wide = [T::Sum::ZERO; LANES];
        for (wide, x) in wide.iter_mut().zip(x) {
            *wide = x.wide();
        }
        for (sum, x) in sums.iter_mut().zip(&wide) {
            *sum = J::weighted::<M, T::Sum>(*sum, weight, *x);
        }
    }
}

/// The end of a matrix, from element `start` on, and zeros for the last rows' tiles to read on
/// into. That these lie ready keeps the loop over entries free of calls, and its sums in registers.
struct Tail<T> {
    start: usize,
    data: Vec<T>,
}

impl<T: Stored> Tail<T> {
    fn of(x: &[T], longest_tile: usize) -> Self {
        let start = x.len().saturating_sub(longest_tile);
        let mut data = x[start..].to_vec();
        data.resize(data.len() + longest_tile, T::narrow(T::Sum::ZERO));
        Tail { start, data }
    }
}

/// Writes a tile of sums, scaled.
#[inline(always)]
fn store<F: Real, const V: usize>(sums: &[[F; LANES]; V], scale: F, y: &mut [F]) {
    let mut scaled = *sums;
    scaled.as_flattened_mut().iter_mut().for_each(|sum| *sum *= scale);
    write(&scaled, y);
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
