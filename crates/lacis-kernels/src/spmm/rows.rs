//! The body of every kernel: some rows, or a part of a long one, over some columns.

use std::ops::Range;

use lacis_core::reference::Reduce;

use super::terms::{Join, Max, Min, Mul, Ones, Scaled, Sum, Values, Weights};
use super::{Ahead, Args};
use crate::finish::{Ending, LANES, end, write};
use crate::isa::{Arith, Isa, per_isa};
use crate::matrix::MatMut;
use crate::mem::{fetch, fetch_far};
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

/// Computes a part with tiles of up to `V` vectors.
pub(super) fn run<T: Stored, const V: usize>(part: Part<'_, T>) {
    let isa = part.isa;
    match part.args.reduce {
        Reduce::Sum | Reduce::Mean => weighted::<T, Sum, V>(isa, part),
        Reduce::Max => weighted::<T, Max, V>(isa, part),
        Reduce::Min => weighted::<T, Min, V>(isa, part),
        // Rare enough to be compiled for one tile only.
        Reduce::Mul => weighted::<T, Mul, 2>(isa, part),
    }
}

fn weighted<T: Stored, J: Join, const V: usize>(isa: Isa, part: Part<'_, T>) {
    match (part.args.values.is_some(), part.args.right.is_some()) {
        (false, false) => compiled::<T, Ones, J, V>(isa, part),
        (true, false) => compiled::<T, Values, J, V>(isa, part),
        (_, true) => compiled::<T, Scaled, J, V>(isa, part),
    }
}

per_isa!(fn compiled<[T: Stored, W: Weights, J: Join], [V]>(part: Part<'_, T>) = body);

#[inline(always)]
fn body<M: Arith, T: Stored, W: Weights, J: Join, const V: usize>(part: Part<'_, T>) {
    let Part { args, isa, ahead, rows, mut out } = part;
    for i in rows.clone() {
        let (entries, col, width) = match &out {
            Out::Rows(y) => (args.a.row(i), 0, y.n_cols),
            Out::Block(col, rows_of_block) => {
                (args.a.row(i), *col, rows_of_block[i - rows.start].len())
            }
            Out::Partial(entries, sums) => (entries.clone(), 0, sums.len()),
        };
        let mut done = 0;
        while done < width {
            let tile = Tile { args, ahead, entries: entries.clone(), col: col + done };
            let wide = (width - done).min(V * LANES);
            let end = Target { isa, i, first: rows.start, at: done, wide };
            match wide.div_ceil(LANES) {
                1 => end.store::<T, J, 1>(&tile, tile.sums::<M, W, J, 1>(wide), &mut out),
                2 if V >= 2 => end.store::<T, J, 2>(&tile, tile.sums::<M, W, J, 2>(wide), &mut out),
                3 if V >= 3 => end.store::<T, J, 3>(&tile, tile.sums::<M, W, J, 3>(wide), &mut out),
                _ => end.store::<T, J, V>(&tile, tile.sums::<M, W, J, V>(wide), &mut out),
            }
            done += wide;
        }
    }
}

/// Some columns, from `col` on, of the reduction of some entries.
struct Tile<'a, T: Stored> {
    args: &'a Args<'a, T>,
    ahead: Ahead,
    entries: Range<usize>,
    col: usize,
}

impl<T: Stored> Tile<'_, T> {
    /// The reduction, of which the first `wide` columns are meant. Entries at even and at odd places
    /// are joined apart, so that one need not wait for the other.
    #[inline(always)]
    fn sums<M: Arith, W: Weights, J: Join, const V: usize>(
        &self,
        wide: usize,
    ) -> [[T::Sum; LANES]; V] {
        let mut even = [[J::neutral::<T::Sum>(); LANES]; V];
        let mut odd = even;
        let (cols, end) = (self.args.a.cols, self.entries.end);
        let mut e = self.entries.start;
        while e + 1 < end {
            self.ask::<V>(e, wide);
            self.ask::<V>(e + 1, wide);
            let (j0, j1) = (cols[e] as usize, cols[e + 1] as usize);
            self.join::<M, J, V>(&mut even, W::at(self.args, e, j0), j0);
            self.join::<M, J, V>(&mut odd, W::at(self.args, e + 1, j1), j1);
            e += 2;
        }
        if e < end {
            self.ask::<V>(e, wide);
            let j = cols[e] as usize;
            self.join::<M, J, V>(&mut even, W::at(self.args, e, j), j);
        }
        for (even, odd) in even.iter_mut().zip(&odd) {
            for (a, b) in even.iter_mut().zip(odd) {
                *a = J::together(*a, *b);
            }
        }
        even
    }

    /// Asks for the rows that the entries some way after `e` name.
    #[inline(always)]
    fn ask<const V: usize>(&self, e: usize, wide: usize) {
        if self.ahead.far > 0 {
            self.lines::<V>(e + self.ahead.far, wide, fetch_far);
        }
        if self.ahead.near > 0 {
            self.lines::<V>(e + self.ahead.near, wide, fetch);
        }
    }

    /// Asks for every line of a tile; where rows do not begin with a line, there is one more.
    #[inline(always)]
    fn lines<const V: usize>(&self, e: usize, wide: usize, fetch: impl Fn(&T)) {
        let Some(&j) = self.args.a.cols.get(e) else { return };
        let start = j as usize * self.args.x.stride + self.col;
        if let Some(tile) = self.args.x.data.get(start..start + V * LANES) {
            tile.iter().step_by(64 / size_of::<T>()).for_each(&fetch);
            if self.ahead.straddling {
                fetch(&tile[wide - 1]);
            }
        }
    }

    /// Joins a row of `x`. The end of a row is read on into the next: what is not meant is never
    /// written.
    #[inline(always)]
    fn join<M: Arith, J: Join, const V: usize>(
        &self,
        sums: &mut [[T::Sum; LANES]; V],
        weight: T::Sum,
        j: usize,
    ) {
        let x = &self.args.x;
        let start = j * x.stride + self.col;
        let mut short;
        let tile = match x.data.get(start..start + V * LANES) {
            Some(tile) => tile,
            None => {
                // The end of the last rows.
                short = [[T::narrow(T::Sum::ZERO); LANES]; V];
                let rest = &x.data[start..];
                short.as_flattened_mut()[..rest.len()].copy_from_slice(rest);
                short.as_flattened()
            }
        };
        for (sums, x) in sums.iter_mut().zip(tile.as_chunks::<LANES>().0) {
            for (sum, x) in sums.iter_mut().zip(x) {
                *sum = J::weighted::<M, T::Sum>(*sum, weight, x.wide());
            }
        }
    }
}

/// Where a tile of row `i` goes: `wide` columns from `at` on.
#[derive(Clone, Copy)]
struct Target {
    isa: Isa,
    i: usize,
    first: usize,
    at: usize,
    wide: usize,
}

impl Target {
    #[inline(always)]
    fn store<T: Stored, J: Join, const V: usize>(
        self,
        tile: &Tile<'_, T>,
        sums: [[T::Sum; LANES]; V],
        out: &mut Out<'_, T>,
    ) {
        let (row, columns) = (self.i - self.first, self.at..self.at + self.wide);
        let y = match out {
            Out::Rows(y) => &mut y.row_mut(row)[columns],
            Out::Block(_, rows) => &mut rows[row][columns],
            Out::Partial(_, partial) => {
                partial[columns.clone()].copy_from_slice(&sums.as_flattened()[..columns.len()]);
                return;
            }
        };
        finish::<T, J, V>(tile.args, (self.isa, self.i, tile.col), sums, y);
    }
}

/// Scales the sums of row `i` from column `col` on, adds what is to be added, and writes them.
#[inline(always)]
pub(super) fn finish<T: Stored, J: Join, const V: usize>(
    args: &Args<'_, T>,
    (isa, i, col): (Isa, usize, usize),
    mut sums: [[T::Sum; LANES]; V],
    y: &mut [T],
) {
    let entries = args.a.row(i).len();
    if entries == 0 {
        sums = [[J::of_nothing(); LANES]; V];
    }
    let scale = scale_of(args, i, entries);
    sums.as_flattened_mut().iter_mut().for_each(|sum| *sum *= scale);
    if !args.epilogue.is_plain() {
        let wide = &mut sums.as_flattened_mut()[..y.len()];
        end(isa, Ending { epilogue: args.epilogue, sums: wide, y, col });
    }
    write(&sums, y);
}

/// `l_i`, and for a mean the share of one entry.
#[inline(always)]
fn scale_of<T: Stored>(args: &Args<'_, T>, i: usize, entries: usize) -> T::Sum {
    let left = args.left.map_or(T::Sum::ONE, |left| left[i]);
    match args.reduce {
        Reduce::Mean => left / T::Sum::of(entries.max(1) as f64),
        _ => left,
    }
}
