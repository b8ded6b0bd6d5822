//! The reduction of segments whose rows are known, a tile of columns at a time in registers.

use std::ops::Range;

use lacis_core::reference::Reduce;

use super::join::{Join, Max, Min, Mul, Sum, empty};
use super::segments::Members;
use super::turn::Begin;
#[cfg(target_arch = "x86_64")]
use super::wide::singles as singles_wide;
use crate::isa::{Arith, Isa, per_isa};
use crate::matrix::{Mat, MatMut};
use crate::mem::{L1, L2, fetch_lines};
use crate::real::{Real, Stored};

/// How many items ahead rows are asked for, into the second cache and into the first.
const AHEAD: [usize; 2] = [48, 12];
/// Rows wider than this many bytes are asked for along themselves: the next would be forgotten
/// before it is needed.
const WIDE_BYTES: usize = 2048;
/// How far along, in bytes.
const ALONG_BYTES: usize = 1024;

/// Columns of a strip: its results stay in the first cache, and rows are read in runs long enough
/// for the hardware to see what comes.
pub(super) const STRIP: usize = 1024;
/// Items of a segment that are joined without asking how many there are.
pub(super) const FEW: usize = 4;

/// Columns that are joined together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tile {
    /// One.
    Scalar,
    /// One vector of 16.
    Vector,
    /// Four vectors.
    Wide,
    /// Up to [`STRIP`], in memory.
    Strip,
}

/// Some segments of a reduction, and where they go.
pub(super) struct Part<'a, T> {
    pub x: Mat<'a, T>,
    pub members: Members<'a>,
    pub reduce: Reduce,
    pub onto: Begin,
    pub segments: Range<usize>,
    pub y: MatMut<'a, T>,
}

/// Chooses the body.
pub(super) fn run<T: Stored>(isa: Isa, tile: Tile, part: Part<'_, T>) {
    match part.reduce {
        Reduce::Sum | Reduce::Mean => tiled::<T, Sum>(isa, tile, part),
        Reduce::Max => tiled::<T, Max>(isa, tile, part),
        Reduce::Min => tiled::<T, Min>(isa, tile, part),
        Reduce::Mul => tiled::<T, Mul>(isa, tile, part),
    }
}

fn tiled<T: Stored, J: Join>(isa: Isa, tile: Tile, part: Part<'_, T>) {
    match tile {
        Tile::Scalar if part.x.n_cols == 1 && part.x.n_rows > 0 => singles::<T, J>(isa, part),
        Tile::Scalar => compiled::<T, J, 1, 1>(isa, part),
        Tile::Vector => compiled::<T, J, 16, 1>(isa, part),
        Tile::Wide => compiled::<T, J, 16, 4>(isa, part),
        Tile::Strip => strips::<T, J>(isa, part),
    }
}

per_isa!(fn compiled<[T: Stored, J: Join], [L, V]>(part: Part<'_, T>) = body);
per_isa!(fn strips<[T: Stored, J: Join], []>(part: Part<'_, T>) = strips_body);
per_isa!(fn singles<[T: Stored, J: Join], []>(part: Part<'_, T>) = singles_body,
    avx512 = singles_wide);

#[inline(always)]
fn body<M: Arith, T: Stored, J: Join, const L: usize, const V: usize>(mut part: Part<'_, T>) {
    let (x, members) = (part.x, part.members);
    for s in part.segments.clone() {
        let Some((rule, places, y)) = part.segment(s) else { continue };
        for (tile, y) in y.chunks_mut(L * V).enumerate() {
            let joined = tile_of::<T, J, L, V>(x, members, places.clone(), tile * L * V);
            rule.store::<T, J>(y, joined.as_flattened());
        }
    }
}

/// Rows as wide as several tiles, two at a time over a strip.
#[inline(always)]
fn strips_body<M: Arith, T: Stored, J: Join>(mut part: Part<'_, T>) {
    let (x, members) = (part.x, part.members);
    let mut strip = [T::Sum::ZERO; STRIP];
    for s in part.segments.clone() {
        let Some((rule, places, y)) = part.segment(s) else { continue };
        for (at, y) in y.chunks_mut(STRIP).enumerate() {
            let joined = &mut strip[..y.len()];
            let row = |e| &x.data[members.item(e) * x.stride + at * STRIP..][..y.len()];
            let (first, mut e) = (row(places.start), places.start + 1);
            joined.iter_mut().zip(first).for_each(|(joined, x)| *joined = x.wide());
            while e + 1 < places.end {
                let two = row(e).iter().zip(row(e + 1));
                for (joined, (a, b)) in joined.iter_mut().zip(two) {
                    *joined = J::join(J::join(*joined, a.wide()), b.wide());
                }
                e += 2;
            }
            if e < places.end {
                let one = joined.iter_mut().zip(row(e));
                one.for_each(|(joined, x)| *joined = J::join(*joined, x.wide()));
            }
            rule.store::<T, J>(y, joined);
        }
    }
}

/// Single numbers. Segments of few items take no branch that depends on how many there are: a
/// wrong guess costs more than they do. There is at least one item.
#[inline(always)]
pub(super) fn singles_body<M: Arith, T: Stored, J: Join>(part: Part<'_, T>) {
    let Part { x, members, reduce, onto, segments, y } = part;
    let last = x.n_rows - 1;
    let mut start = members.of(segments.start).start;
    let first = segments.start;
    for s in segments {
        let end = members.of(s).end;
        let mut joined = J::neutral::<T::Sum>();
        for e in start..start + FEW {
            let number = x.data[members.item(e.min(last)) * x.stride].wide();
            joined = J::join(joined, if e < end { number } else { J::neutral() });
        }
        for e in start + FEW..end {
            joined = J::join(joined, x.data[members.item(e) * x.stride].wide());
        }
        let y = &mut y.data[(s - first) * y.stride];
        let whole = match onto {
            Begin::AsGiven if start == end => y.wide(),
            Begin::AsGiven => J::join(y.wide(), joined),
            Begin::Unset if start == end => empty(reduce),
            Begin::Unset if reduce == Reduce::Mean => joined / T::Sum::of((end - start) as f64),
            Begin::Unset => joined,
        };
        *y = T::narrow(whole);
        start = end;
    }
}

/// A segment that has items: how they become a result, where they are, where it goes.
type Begun<'a, T> = (Rule<<T as Stored>::Sum>, Range<usize>, &'a mut [T]);

/// How what was joined becomes a result.
#[derive(Clone, Copy)]
struct Rule<F> {
    onto: Begin,
    divisor: Option<F>,
}

impl<F: Real> Rule<F> {
    #[inline(always)]
    fn store<T: Stored<Sum = F>, J: Join>(self, y: &mut [T], joined: &[F]) {
        for (y, &joined) in y.iter_mut().zip(joined) {
            let whole =
                if self.onto == Begin::AsGiven { J::join(y.wide(), joined) } else { joined };
            *y = T::narrow(self.divisor.map_or(whole, |divisor| whole / divisor));
        }
    }
}

impl<T: Stored> Part<'_, T> {
    /// What a segment that has items takes; one that has none is written here.
    #[inline(always)]
    fn segment(&mut self, s: usize) -> Option<Begun<'_, T>> {
        let places = self.members.of(s);
        let y = self.y.row_mut(s - self.segments.start);
        if places.is_empty() {
            if self.onto == Begin::Unset {
                y.fill(T::narrow(empty(self.reduce)));
            }
            return None;
        }
        let count = || T::Sum::of(places.len() as f64);
        let divisor = (self.reduce == Reduce::Mean).then(count);
        Some((Rule { onto: self.onto, divisor }, places, y))
    }
}

/// The items of one segment over `V·L` columns from `col` on.
#[inline(always)]
fn tile_of<T: Stored, J: Join, const L: usize, const V: usize>(
    x: Mat<'_, T>,
    members: Members<'_>,
    places: Range<usize>,
    col: usize,
) -> [[T::Sum; L]; V] {
    let mut even = [[J::neutral::<T::Sum>(); L]; V];
    let mut odd = even;
    let mut e = places.start;
    while e + 1 < places.end {
        ask_for::<T, L, V>(x, members, e, col);
        ask_for::<T, L, V>(x, members, e + 1, col);
        join_row::<T, J, L, V>(&mut even, x, members.item(e) * x.stride + col);
        join_row::<T, J, L, V>(&mut odd, x, members.item(e + 1) * x.stride + col);
        e += 2;
    }
    if e < places.end {
        ask_for::<T, L, V>(x, members, e, col);
        join_row::<T, J, L, V>(&mut even, x, members.item(e) * x.stride + col);
    }
    for (even, odd) in even.as_flattened_mut().iter_mut().zip(odd.as_flattened()) {
        *even = J::join(*even, *odd);
    }
    even
}

/// Asks for the tiles of later items, or for a later tile of this one.
#[inline(always)]
fn ask_for<T: Stored, const L: usize, const V: usize>(
    x: Mat<'_, T>,
    members: Members<'_>,
    e: usize,
    col: usize,
) {
    if x.n_cols * size_of::<T>() > WIDE_BYTES {
        let along = members.item(e) * x.stride + col + ALONG_BYTES / size_of::<T>();
        return fetch_lines::<T, L1>(x.data, along, L * V);
    }
    let Some(order) = members.order() else { return };
    if let Some(&far) = order.get(e + AHEAD[0]) {
        fetch_lines::<T, L2>(x.data, far as usize * x.stride + col, L * V);
    }
    if let Some(&near) = order.get(e + AHEAD[1]) {
        fetch_lines::<T, L1>(x.data, near as usize * x.stride + col, L * V);
    }
}

/// Joins `V·L` numbers of `x` from `start` on.
#[inline(always)]
fn join_row<T: Stored, J: Join, const L: usize, const V: usize>(
    so_far: &mut [[T::Sum; L]; V],
    x: Mat<'_, T>,
    start: usize,
) {
    let mut short;
    let tile = match x.data.get(start..start + V * L) {
        Some(tile) => tile,
        None => {
            // The end of the last rows: what is missing is never written.
            short = [[T::narrow(T::Sum::ZERO); L]; V];
            let rest = &x.data[start..];
            short.as_flattened_mut()[..rest.len()].copy_from_slice(rest);
            short.as_flattened()
        }
    };
    for (so_far, x) in so_far.iter_mut().zip(tile.chunks_exact(L)) {
        for (so_far, x) in so_far.iter_mut().zip(x) {
            *so_far = J::join(*so_far, x.wide());
        }
    }
}
