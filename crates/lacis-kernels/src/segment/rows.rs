//! The reduction of segments whose rows are known, a tile of columns at a time in registers.

use std::ops::Range;

use lacis_core::reference::Reduce;

use super::join::{Join, Max, Min, Mul, Sum, empty};
use super::segments::Members;
use super::turn::Begin;
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

/// Columns that are joined together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tile {
    /// One.
    Scalar,
    /// One vector of 16.
    Vector,
    /// Four vectors.
    Wide,
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
        Tile::Scalar => compiled::<T, J, 1, 1>(isa, part),
        Tile::Vector => compiled::<T, J, 16, 1>(isa, part),
        Tile::Wide => compiled::<T, J, 16, 4>(isa, part),
    }
}

per_isa!(fn compiled<[T: Stored, J: Join], [L, V]>(part: Part<'_, T>) = body);

#[inline(always)]
fn body<M: Arith, T: Stored, J: Join, const L: usize, const V: usize>(part: Part<'_, T>) {
    let Part { x, members, reduce, onto, segments, mut y } = part;
    let first = segments.start;
    for s in segments {
        let places = members.of(s);
        let y = y.row_mut(s - first);
        if places.is_empty() {
            if onto == Begin::Unset {
                y.fill(T::narrow(empty(reduce)));
            }
            continue;
        }
        let count =
            if reduce == Reduce::Mean { T::Sum::of(places.len() as f64) } else { T::Sum::ONE };
        for (tile, y) in y.chunks_mut(L * V).enumerate() {
            let joined = tile_of::<T, J, L, V>(x, members, places.clone(), tile * L * V);
            for (y, &joined) in y.iter_mut().zip(joined.as_flattened()) {
                let whole = if onto == Begin::AsGiven { J::join(y.wide(), joined) } else { joined };
                *y = T::narrow(if reduce == Reduce::Mean { whole / count } else { whole });
            }
        }
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
