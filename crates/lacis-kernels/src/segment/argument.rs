//! Maxima and minima with the item that each is: what a backward that rewards one item keeps.

use std::ops::Range;

use lacis_core::error::same_size;
use lacis_core::reference::{Axis, Reduce};
use lacis_core::threads::{ranges, split_at_ends};
use lacis_core::{Error, Result, Threads};

use super::reduce::Args;
use super::segments::Members;
use super::turn::{TILE, turned};
use crate::isa::{Arith, Isa, per_isa};
use crate::lanes::LANES;
use crate::matrix::{Mat, MatMut};
use crate::real::{Real, Stored};

/// Elements that one item of work reads.
const ITEM_ELEMENTS: usize = 1 << 18;

/// Maxima and where they stand, into the pair.
pub(super) fn run<T: Stored>(
    isa: Isa,
    args: &Args<'_, T>,
    (y, arguments): (MatMut<'_, T>, &mut [u32]),
    threads: &Threads,
) -> Result<()> {
    if !matches!(args.reduce, Reduce::Max | Reduce::Min) {
        let problem = format!("{:?} chooses none; Max and Min do", args.reduce);
        return Err(Error::argument("argument of a reduce", problem));
    }
    let size = y.n_rows * y.n_cols;
    same_size("segment reduce", "number of arguments", size, arguments.len())?;
    if u32::try_from(args.segments.len()).is_err() {
        let (value, limit) = (args.segments.len() as u128, u128::from(u32::MAX));
        return Err(Error::Overflow { what: "number of items with arguments", value, limit });
    }
    if size == 0 {
        return Ok(());
    }
    args.segments.grouped(threads, |segments| {
        let args = Args { segments, ..*args };
        match args.axis {
            Axis::Rows => along_rows(isa, &args, (y, arguments), threads),
            Axis::Cols => along_columns(isa, &args, (y, arguments), threads),
        }
    });
    Ok(())
}

fn along_rows<T: Stored>(
    isa: Isa,
    args: &Args<'_, T>,
    (y, arguments): (MatMut<'_, T>, &mut [u32]),
    threads: &Threads,
) {
    let Some(members) = args.segments.members() else { return };
    let k = y.n_cols;
    let slices = members.slices(ITEM_ELEMENTS / k);
    let ends: Vec<usize> = slices.iter().map(|slice| slice.end).collect();
    let argument_ends: Vec<usize> = ends.iter().map(|end| end * k).collect();
    let results = y.split(&ends).into_iter().zip(split_at_ends(arguments, &argument_ends));
    threads.for_each(slices.into_iter().zip(results).collect(), |(segments, (y, arguments))| {
        let part = Part { x: args.x, members, segments, y, arguments };
        match args.reduce {
            Reduce::Max => compiled::<T, Greatest>(isa, part),
            _ => compiled::<T, Least>(isa, part),
        }
    });
}

/// Tiles of rows, turned; see [`super::turn`].
fn along_columns<T: Stored>(
    isa: Isa,
    args: &Args<'_, T>,
    (y, arguments): (MatMut<'_, T>, &mut [u32]),
    threads: &Threads,
) {
    let (n, one) = (y.n_cols, Threads::one());
    let tiles = ranges(y.n_rows, TILE);
    let ends: Vec<usize> = tiles.iter().map(|rows| rows.end).collect();
    let argument_ends: Vec<usize> = ends.iter().map(|end| end * n).collect();
    let results = y.split(&ends).into_iter().zip(split_at_ends(arguments, &argument_ends));
    threads.for_each(tiles.into_iter().zip(results).collect(), |(rows, (mut y, arguments))| {
        let width = rows.len();
        let x = turned(isa, args.x, rows);
        let x = Mat { data: &x, n_rows: args.x.n_cols, n_cols: width, stride: width };
        let args = Args { x, axis: Axis::Rows, ..*args };
        let mut best = vec![T::narrow(T::Sum::ZERO); n * width];
        let mut places = vec![0; n * width];
        let best_mat = MatMut { data: &mut best, n_rows: n, n_cols: width, stride: width };
        along_rows(isa, &args, (best_mat, &mut places), &one);
        for i in 0..width {
            let result = y.row_mut(i).iter_mut().zip(&mut arguments[i * n..][..n]);
            for (s, (y, argument)) in result.enumerate() {
                (*y, *argument) = (best[s * width + i], places[s * width + i]);
            }
        }
    });
}

struct Part<'a, T> {
    x: Mat<'a, T>,
    members: Members<'a>,
    segments: Range<usize>,
    y: MatMut<'a, T>,
    arguments: &'a mut [u32],
}

/// Which of two is better.
trait Better: Copy {
    fn better<F: Real>(new: F, old: F) -> bool;
}

#[derive(Clone, Copy)]
struct Greatest;
#[derive(Clone, Copy)]
struct Least;

impl Better for Greatest {
    #[inline(always)]
    fn better<F: Real>(new: F, old: F) -> bool {
        new > old
    }
}

impl Better for Least {
    #[inline(always)]
    fn better<F: Real>(new: F, old: F) -> bool {
        new < old
    }
}

per_isa!(fn compiled<[T: Stored, B: Better], []>(part: Part<'_, T>) = body);

#[inline(always)]
fn body<M: Arith, T: Stored, B: Better>(part: Part<'_, T>) {
    let Part { x, members, segments, mut y, arguments } = part;
    let (first, k) = (segments.start, x.n_cols);
    for s in segments {
        let places = members.of(s);
        let y = y.row_mut(s - first).chunks_mut(LANES);
        let arguments = arguments[(s - first) * k..][..k].chunks_mut(LANES);
        for (tile, (y, arguments)) in y.zip(arguments).enumerate() {
            let (best, item) = best_of::<T, B>(x, members, places.clone(), tile * LANES);
            y.copy_from_slice(&best.map(T::narrow)[..y.len()]);
            arguments.copy_from_slice(&item[..arguments.len()]);
        }
    }
}

/// The best of a segment over 16 columns, and which items they are; 0 and none for no items.
#[inline(always)]
fn best_of<T: Stored, B: Better>(
    x: Mat<'_, T>,
    members: Members<'_>,
    places: Range<usize>,
    col: usize,
) -> ([T::Sum; LANES], [u32; LANES]) {
    let mut best = [T::Sum::ZERO; LANES];
    let mut item = [u32::MAX; LANES];
    let width = (x.n_cols - col).min(LANES);
    for e in places {
        let i = members.item(e);
        let mut values = [T::Sum::ZERO; LANES];
        let row = &x.data[i * x.stride + col..][..width];
        if let Ok(row) = <&[T; LANES]>::try_from(row) {
            values = row.map(T::wide);
        } else {
            values.iter_mut().zip(row).for_each(|(value, x)| *value = x.wide());
        }
        for c in 0..LANES {
            let first = item[c] == u32::MAX;
            let wins = first | B::better(values[c], best[c]) | values[c].is_nan();
            best[c] = if wins { values[c] } else { best[c] };
            item[c] = if wins { i as u32 } else { item[c] };
        }
    }
    (best, item)
}
