//! Reductions along columns by an index that all rows share, some rows at a time.
//!
//! ```text
//!  for each 8 rows:   joined[n][8] = neutral            stays in the cache
//!                     for each column c:  joined[index(c)] = join(joined[index(c)], x[·][c])
//!                     y[·][s] = joined[s]
//! ```
//! An index is read once for 8 rows, and what belongs to a segment lies in one line. With AVX-512
//! there are 16 rows, turned in registers (`wide.rs`).
//!
//! # Memory
//! What is joined of some rows, an item at a time.

use lacis_core::reference::Reduce;
use lacis_core::threads::ranges;
use lacis_core::{Result, Threads};

use super::join::{Join, Max, Min, Mul, Sum, empty};
use super::reduce::Args;
use super::turn::Begin;
#[cfg(target_arch = "x86_64")]
use super::wide::reduce as reduce_wide;
use crate::isa::{Arith, Isa, per_isa};
use crate::lanes::LANES;
use crate::matrix::{Mat, MatMut};
use crate::mem::{L2, fetch_lines};
use crate::real::{Real, Stored};
use crate::turned::{Line, SIDE};

/// Rows that are joined together.
pub(super) const TOGETHER: usize = 8;
/// Elements that one item of work reads.
const ITEM_ELEMENTS: usize = 1 << 19;
/// Items that one thread counts at a time, at least.
const COUNTED: usize = 1 << 15;
/// What a core keeps near, about, of what is joined of 16 rows.
const LINES_BYTES: usize = 1 << 21;
/// Rows of more bytes are asked for along themselves, not those of the next 8 rows.
const LONG_BYTES: usize = 1 << 16;
/// How far along, in bytes.
const ALONG_BYTES: usize = 2048;

/// Reduces the columns of `args.x`. `y` must have as many rows.
pub(super) fn run<T: Stored>(
    isa: Isa,
    args: &Args<'_, T>,
    y: MatMut<'_, T>,
    threads: &Threads,
) -> Result<()> {
    let index = &*args.segments.index(threads);
    let counts: &[T::Sum] = &counts(args, index, threads);
    // Whole blocks, where that leaves more than one item.
    let block = if y.n_rows >= 2 * SIDE { SIDE } else { TOGETHER };
    let size = (ITEM_ELEMENTS / args.x.n_cols.max(1)).max(1).next_multiple_of(block);
    let items = ranges(y.n_rows, size);
    let ends: Vec<usize> = items.iter().map(|rows| rows.end).collect();
    let items = items.into_iter().zip(y.split(&ends)).collect();
    let n = args.segments.n();
    let turned = size_of::<T>() == size_of::<u32>() && n * size_of::<Line>() <= LINES_BYTES;
    let turned = if turned { n } else { 0 };
    threads.try_map(items, |(rows, y): (_, MatMut<'_, T>)| {
        let (mut joined, mut lines) = (threads.lend(n * TOGETHER)?, threads.lend(turned)?);
        let Args { reduce, onto, .. } = *args;
        let x = args.x.rows(rows);
        let rule = (reduce, onto);
        let part = Part { x, index, counts, rule, joined: &mut joined, lines: &mut lines, y };
        match reduce {
            Reduce::Sum | Reduce::Mean => compiled::<T, Sum>(isa, part),
            Reduce::Max => compiled::<T, Max>(isa, part),
            Reduce::Min => compiled::<T, Min>(isa, part),
            Reduce::Mul => compiled::<T, Mul>(isa, part),
        }
        Ok(())
    })?;
    Ok(())
}

/// How many items each segment has, where that matters: a sum or product of nothing is what joining
/// begins with.
fn counts<T: Stored>(args: &Args<'_, T>, index: &[u32], threads: &Threads) -> Vec<T::Sum> {
    if args.onto == Begin::AsGiven || matches!(args.reduce, Reduce::Sum | Reduce::Mul) {
        return Vec::new();
    }
    if let Some(counts) = args.segments.counts() {
        return counts.map(|count| T::Sum::of(count as f64)).collect();
    }
    let n = args.segments.n();
    // Each chunk has counts of its own, which must not be most of the work.
    let chunks = threads.map(ranges(index.len(), COUNTED.max(n)), |chunk| {
        let mut counts = vec![0u32; n];
        index[chunk].iter().for_each(|&s| counts[s as usize] += 1);
        counts
    });
    let of = |s: usize| chunks.iter().map(|counts| f64::from(counts[s])).sum();
    (0..n).map(|s| T::Sum::of(of(s))).collect()
}

/// Some rows of a reduction, and where they go.
pub(super) struct Part<'a, T: Stored> {
    pub x: Mat<'a, T>,
    pub index: &'a [u32],
    /// Items of each segment, where they matter.
    pub counts: &'a [T::Sum],
    pub rule: (Reduce, Begin),
    /// Room for what is joined.
    pub joined: &'a mut [T::Sum],
    /// The same of twice as many rows, with AVX-512; none where they would be too many.
    #[cfg_attr(not(target_arch = "x86_64"), allow(dead_code))]
    pub lines: &'a mut [Line],
    pub y: MatMut<'a, T>,
}

per_isa!(fn compiled<[T: Stored, J: Join], []>(part: Part<'_, T>) = body, avx512 = reduce_wide);

#[inline(always)]
pub(super) fn body<M: Arith, T: Stored, J: Join>(part: Part<'_, T>) {
    let Part { x, index, counts, rule, joined, y, .. } = part;
    for first in (0..y.n_rows).step_by(TOGETHER) {
        let rows = TOGETHER.min(y.n_rows - first);
        joined.fill(J::neutral());
        let joined = joined.as_chunks_mut::<TOGETHER>().0;
        // Missing rows are the last one again.
        let of = std::array::from_fn(|r| &x.row(first + r.min(rows - 1))[..index.len()]);
        join_rows::<T, J>(joined, of, index, ahead(x));
        let MatMut { n_cols, stride, .. } = y;
        let data = &mut y.data[first * stride..];
        let y = MatMut { data, n_rows: rows, n_cols, stride };
        finish::<T, J>(joined, (rule, counts), y);
    }
}

/// How many elements ahead to ask for.
#[inline(always)]
fn ahead<T: Stored>(x: Mat<'_, T>) -> usize {
    if x.n_cols * size_of::<T>() > LONG_BYTES {
        ALONG_BYTES / size_of::<T>()
    } else {
        TOGETHER * x.stride
    }
}

/// Joins every column where the index says.
#[inline(always)]
fn join_rows<T: Stored, J: Join>(
    joined: &mut [[T::Sum; TOGETHER]],
    rows: [&[T]; TOGETHER],
    index: &[u32],
    ahead: usize,
) {
    let (full, rest) = index.as_chunks::<LANES>();
    let lines = rows.map(|row| &row.as_chunks::<LANES>().0[..full.len()]);
    for (chunk, at) in full.iter().enumerate() {
        rows.iter().for_each(|row| fetch_lines::<T, L2>(row, chunk * LANES + ahead, LANES));
        let x = lines.map(|lines| &lines[chunk]);
        for c in 0..LANES {
            let joined = &mut joined[at[c] as usize];
            for r in 0..TOGETHER {
                joined[r] = J::join(joined[r], x[r][c].wide());
            }
        }
    }
    for (c, &s) in rest.iter().enumerate() {
        let joined = &mut joined[s as usize];
        for r in 0..TOGETHER {
            joined[r] = J::join(joined[r], rows[r][full.len() * LANES + c].wide());
        }
    }
}

/// Writes what was joined, a line of each row at a time.
#[inline(always)]
#[allow(clippy::needless_range_loop)] // rows of `joined` are columns of `y`
fn finish<T: Stored, J: Join>(
    joined: &[[T::Sum; TOGETHER]],
    (rule, counts): ((Reduce, Begin), &[T::Sum]),
    mut y: MatMut<'_, T>,
) {
    let (full, _) = joined.as_chunks::<LANES>();
    for (block, joined) in full.iter().enumerate() {
        let first = block * LANES;
        let counts = counts.get(first..first + LANES).unwrap_or(&[]);
        for r in 0..y.n_rows {
            let mut turned = [T::Sum::ZERO; LANES];
            for c in 0..LANES {
                turned[c] = joined[c][r];
            }
            let y = &mut y.data[r * y.stride + first..][..LANES];
            write::<T, J>(&turned, (rule, counts), y);
        }
    }
    for s in full.len() * LANES..joined.len() {
        let counts = counts.get(s..=s).unwrap_or(&[]);
        for r in 0..y.n_rows {
            write::<T, J>(&[joined[s][r]], (rule, counts), &mut y.row_mut(r)[s..=s]);
        }
    }
}

/// Writes what was joined for some segments of a row.
#[inline(always)]
fn write<T: Stored, J: Join>(
    joined: &[T::Sum],
    ((reduce, onto), counts): ((Reduce, Begin), &[T::Sum]),
    y: &mut [T],
) {
    let joined = y.iter_mut().zip(joined);
    if onto == Begin::AsGiven {
        joined.for_each(|(y, joined)| *y = T::narrow(J::join(y.wide(), *joined)));
    } else if counts.is_empty() {
        joined.for_each(|(y, joined)| *y = T::narrow(*joined));
    } else {
        let mean = reduce == Reduce::Mean;
        for ((y, &joined), &count) in joined.zip(counts) {
            let whole = if mean { joined / count } else { joined };
            *y = T::narrow(if count == T::Sum::ZERO { empty(reduce) } else { whole });
        }
    }
}
