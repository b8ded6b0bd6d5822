//! Reductions along rows by an index that nobody has sorted, in the order of the rows.
//!
//! ```text
//!  for each 16 columns:    so_far[n][16] = neutral, or what y holds        stays in the cache
//!                          for each row i: so_far[index(i)] = join(so_far[index(i)], x_i)
//!  for each slice of y:    its rows, from all blocks of columns
//! ```
//! Nothing is sorted: where the results of 16 columns stay near, to find them by the index takes
//! less than to sort it.
//!
//! # Parallelism
//! A thread does whole blocks of columns, then whole rows.
//! # Memory
//! A copy of the result.

use std::array::from_fn;
use std::ops::Range;

use lacis_core::reference::Reduce;
use lacis_core::threads::{ranges, split_at_ends};
use lacis_core::{Result, Threads};

use super::join::{Join, Max, Min, Mul, Sum, empty};
use super::reduce::Args;
use super::turn::Begin;
use crate::isa::{Arith, Isa, per_isa};
use crate::lanes::LANES;
use crate::matrix::{Mat, MatMut};
use crate::mem::{L1, L2, fetch_lines};
use crate::real::{Real, Stored};

/// How many rows ahead `x` is asked for, into the second cache and into the first.
const AHEAD: [usize; 2] = [32, 8];
/// Elements of a slice of `y`.
const SLICE_ELEMENTS: usize = 1 << 16;

/// Columns that are joined together.
pub(super) const WIDTH: usize = LANES;

/// Reduces the rows of `args.x`.
pub(super) fn run<T: Stored>(
    isa: Isa,
    args: &Args<'_, T>,
    y: MatMut<'_, T>,
    threads: &Threads,
) -> Result<()> {
    match args.reduce {
        Reduce::Sum | Reduce::Mean => joined::<T, Sum>(isa, args, y, threads),
        Reduce::Max => joined::<T, Max>(isa, args, y, threads),
        Reduce::Min => joined::<T, Min>(isa, args, y, threads),
        Reduce::Mul => joined::<T, Mul>(isa, args, y, threads),
    }
}

fn joined<T: Stored, J: Join>(
    isa: Isa,
    args: &Args<'_, T>,
    y: MatMut<'_, T>,
    threads: &Threads,
) -> Result<()> {
    let index = &*args.segments.index(threads);
    let (n, k) = (args.segments.n(), args.x.n_cols);
    let blocks = ranges(k, WIDTH);
    let mut so_far = threads.lend::<T::Sum>(blocks.len() * n * WIDTH)?;
    // A sum or product of nothing is what joining begins with.
    let counted = args.onto == Begin::Unset && !matches!(args.reduce, Reduce::Sum | Reduce::Mul);
    let mut counts = threads.lend::<u32>(if counted { n } else { 0 })?;
    let ends: Vec<usize> = (1..=blocks.len()).map(|block| block * n * WIDTH).collect();
    let pieces = split_at_ends(&mut so_far, &ends);
    // Whoever does the first block counts.
    let counters = std::iter::once(&mut counts[..]).chain(std::iter::repeat_with(|| &mut [][..]));
    let begin = (args.onto == Begin::AsGiven).then(|| y.as_mat());
    let items = blocks.into_iter().zip(pieces).zip(counters).collect();
    threads.for_each(items, |((cols, so_far), counts): ((Range<usize>, &mut [T::Sum]), _)| {
        let so_far = so_far.as_chunks_mut::<WIDTH>().0;
        add_rows::<T, J>(isa, Block { x: args.x, index, cols, begin, so_far, counts });
    });
    let slices = ranges(n, (SLICE_ELEMENTS / k).max(1));
    let ends: Vec<usize> = slices.iter().map(|slice| slice.end).collect();
    let items = slices.into_iter().zip(y.split(&ends)).collect();
    let (so_far, counts) = (so_far.as_chunks::<WIDTH>().0, &*counts);
    threads.for_each(items, |(slice, y)| {
        write::<T>(isa, Slice { so_far, counts, n, first: slice.start, reduce: args.reduce, y });
    });
    Ok(())
}

/// Some columns of a reduction.
struct Block<'a, T: Stored> {
    x: Mat<'a, T>,
    index: &'a [u32],
    cols: Range<usize>,
    /// What sums begin with.
    begin: Option<Mat<'a, T>>,
    so_far: &'a mut [[T::Sum; WIDTH]],
    /// Items of each segment, where they are wanted.
    counts: &'a mut [u32],
}

per_isa!(fn add_rows<[T: Stored, J: Join], []>(block: Block<'_, T>) = add_rows_body);

#[inline(always)]
fn add_rows_body<M: Arith, T: Stored, J: Join>(block: Block<'_, T>) {
    let Block { x, index, cols, begin, so_far, counts } = block;
    match begin {
        // One number after another: filling with whole rows, the compiler scatters them.
        None => so_far.as_flattened_mut().fill(J::neutral()),
        Some(y) => {
            for (s, so_far) in so_far.iter_mut().enumerate() {
                let row = &y.row(s)[cols.clone()];
                so_far.iter_mut().zip(row).for_each(|(so_far, y)| *so_far = y.wide());
            }
        }
    }
    if !counts.is_empty() {
        counts.fill(0);
        index.iter().for_each(|&s| counts[s as usize] += 1);
    }
    for (i, &s) in index.iter().enumerate() {
        let start = i * x.stride + cols.start;
        fetch_lines::<T, L2>(x.data, start + AHEAD[0] * x.stride, 1);
        fetch_lines::<T, L1>(x.data, start + AHEAD[1] * x.stride, 1);
        let so_far = &mut so_far[s as usize];
        if let Some(x) = x.data[start..].first_chunk::<WIDTH>() {
            // What lies past the end of the row is never written.
            join_row::<T, J>(so_far, x);
        } else {
            for (so_far, x) in so_far.iter_mut().zip(&x.data[start..]) {
                *so_far = J::join(*so_far, x.wide());
            }
        }
    }
}

/// A function of its own: of two places that are known to differ the compiler makes vectors.
#[inline(always)]
fn join_row<T: Stored, J: Join>(so_far: &mut [T::Sum; WIDTH], x: &[T; WIDTH]) {
    let mut wide = [T::Sum::ZERO; WIDTH];
    for c in 0..WIDTH {
        wide[c] = x[c].wide();
    }
    let mut joined = *so_far;
    for c in 0..WIDTH {
        joined[c] = J::join(joined[c], wide[c]);
    }
    *so_far = joined;
}

/// Some rows of the result.
struct Slice<'a, T: Stored> {
    /// What was joined, `n` rows for each block of columns.
    so_far: &'a [[T::Sum; WIDTH]],
    counts: &'a [u32],
    n: usize,
    first: usize,
    reduce: Reduce,
    y: MatMut<'a, T>,
}

per_isa!(fn write<[T: Stored], []>(slice: Slice<'_, T>) = write_body);

#[inline(always)]
fn write_body<M: Arith, T: Stored>(slice: Slice<'_, T>) {
    let Slice { so_far, counts, n, first, reduce, mut y } = slice;
    for i in 0..y.n_rows {
        let s = first + i;
        // Without counts a result is what was joined.
        let count = counts.get(s).map_or(1, |&count| count);
        let row = y.row_mut(i);
        if count == 0 {
            row.fill(T::narrow(empty(reduce)));
            continue;
        }
        let mean = reduce == Reduce::Mean && !counts.is_empty();
        let divisor = T::Sum::of(f64::from(count));
        let of = |x: T::Sum| T::narrow(if mean { x / divisor } else { x });
        for (y, block) in row.chunks_mut(WIDTH).zip(so_far.chunks(n)) {
            let joined = &block[s];
            match y.as_chunks_mut::<WIDTH>() {
                ([y], _) => *y = from_fn(|c| of(joined[c])),
                (_, y) => y.iter_mut().zip(joined).for_each(|(y, x)| *y = of(*x)),
            }
        }
    }
}
