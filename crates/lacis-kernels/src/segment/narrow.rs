//! Reductions by an index that nobody has sorted: single columns, and few segments.

use std::ops::Range;

use lacis_core::Threads;
use lacis_core::reference::Reduce;
use lacis_core::threads::ranges;

use super::join::{Join, Max, Min, Mul, Sum, empty};
use super::partition::Partition;
use super::reduce::Args;
use super::turn::Begin;
use crate::isa::{Arith, Isa, per_isa};
use crate::matrix::{Mat, MatMut};
use crate::real::{Real, Stored};

/// Chunks of `partials` at most.
const CHUNKS: usize = 16;
/// Elements of a chunk at least.
const CHUNK_ELEMENTS: usize = 1 << 15;

/// Numbers so far and how many they were.
struct Tally<F> {
    joined: Vec<F>,
    counts: Vec<u32>,
}

/// A single column, brought together by blocks of segments and joined in the cache.
pub(super) fn buckets<T: Stored>(args: &Args<'_, T>, y: MatMut<'_, T>, threads: &Threads) {
    let index = &*args.segments.index(threads);
    let (data, stride) = (args.x.data, args.x.stride);
    let shape = (index.len(), args.segments.n());
    let partition = Partition::new(shape, |e| index[e], |e| data[e * stride], threads);
    let (reduce, onto) = (args.reduce, args.onto);
    match reduce {
        Reduce::Sum | Reduce::Mean => blocks::<T, Sum>(&partition, (reduce, onto), y, threads),
        Reduce::Max => blocks::<T, Max>(&partition, (reduce, onto), y, threads),
        Reduce::Min => blocks::<T, Min>(&partition, (reduce, onto), y, threads),
        Reduce::Mul => blocks::<T, Mul>(&partition, (reduce, onto), y, threads),
    }
}

/// Elements with a place each: `(place, column)` is place `place · k + column` of one long column.
/// `y` must have no gaps between its rows.
pub(super) fn scatter_flat<T: Stored>(
    x: Mat<'_, T>,
    at: &[u32],
    (reduce, y): (Reduce, MatMut<'_, T>),
    threads: &Threads,
) {
    let (k, n_places) = (x.n_cols, y.n_rows * y.n_cols);
    let y = MatMut { data: y.data, n_rows: n_places, n_cols: 1, stride: 1 };
    // Short divisions: all of this is counted in `u32`.
    let place = |e: usize| at[e] * k as u32 + e as u32 % k as u32;
    let gap = x.stride - k;
    let row = |e: usize| if gap == 0 { 0 } else { e as u32 / k as u32 };
    let value = |e: usize| x.data[e + row(e) as usize * gap];
    let partition = Partition::new((at.len(), n_places), place, value, threads);
    let rule = (reduce, Begin::Unset);
    match reduce {
        Reduce::Sum | Reduce::Mean => blocks::<T, Sum>(&partition, rule, y, threads),
        Reduce::Max => blocks::<T, Max>(&partition, rule, y, threads),
        Reduce::Min => blocks::<T, Min>(&partition, rule, y, threads),
        Reduce::Mul => blocks::<T, Mul>(&partition, rule, y, threads),
    }
}

fn blocks<T: Stored, J: Join>(
    partition: &Partition<'_, T>,
    rule: (Reduce, Begin),
    y: MatMut<'_, T>,
    threads: &Threads,
) {
    let blocks = partition.blocks();
    let ends: Vec<usize> = blocks.iter().map(|block| block.end).collect();
    let items: Vec<_> = blocks.into_iter().zip(y.split(&ends)).enumerate().collect();
    let scratch = || Tally { joined: Vec::new(), counts: Vec::new() };
    threads.map_with(items, scratch, |tally, (b, (block, y))| {
        one_block::<T, J>(Isa::best(), Block { partition, b, first: block.start, rule, tally, y });
    });
}

/// A block of segments, and where its results go.
struct Block<'a, T: Stored> {
    partition: &'a Partition<'a, T>,
    b: usize,
    first: usize,
    rule: (Reduce, Begin),
    tally: &'a mut Tally<T::Sum>,
    y: MatMut<'a, T>,
}

per_isa!(fn one_block<[T: Stored, J: Join], []>(block: Block<'_, T>) = one_block_body);

/// Results are joined where they are to be, if sums are stored as they are.
#[inline(always)]
fn one_block_body<M: Arith, T: Stored, J: Join>(block: Block<'_, T>) {
    let Block { partition, b, first, rule: (reduce, onto), tally, mut y } = block;
    let Tally { joined, counts } = tally;
    // A sum or product of nothing is what joining begins with.
    let counted = onto == Begin::Unset && !matches!(reduce, Reduce::Sum | Reduce::Mul);
    counts.clear();
    counts.resize(if counted { y.n_rows } else { 0 }, 0);
    let pairs = partition.pairs(b);
    if y.stride == 1
        && let Some(sums) = T::as_sums(&mut y.data[..y.n_rows])
    {
        if onto == Begin::Unset {
            sums.fill(J::neutral());
        }
        join_pairs::<T, J>(pairs, first, sums, counts);
        return end(sums, counts, reduce);
    }
    joined.clear();
    joined.extend((0..y.n_rows).map(|s| match onto {
        Begin::Unset => J::neutral(),
        Begin::AsGiven => y.row(s)[0].wide(),
    }));
    join_pairs::<T, J>(pairs, first, joined, counts);
    end(joined, counts, reduce);
    joined.iter().enumerate().for_each(|(s, &joined)| y.row_mut(s)[0] = T::narrow(joined));
}

/// Joins each value to what its target has so far.
#[inline(always)]
fn join_pairs<'a, T: Stored, J: Join>(
    pairs: impl Iterator<Item = (&'a [u32], &'a [T])>,
    first: usize,
    sums: &mut [T::Sum],
    counts: &mut [u32],
) {
    for (targets, values) in pairs {
        if counts.is_empty() {
            for (&target, value) in targets.iter().zip(values) {
                let sum = &mut sums[target as usize - first];
                *sum = J::join(*sum, value.wide());
            }
            continue;
        }
        for (&target, value) in targets.iter().zip(values) {
            let s = target as usize - first;
            sums[s] = J::join(sums[s], value.wide());
            counts[s] += 1;
        }
    }
}

/// From what was joined to results, where it matters how many were.
#[inline(always)]
fn end<F: Real>(sums: &mut [F], counts: &[u32], reduce: Reduce) {
    let mean = reduce == Reduce::Mean;
    for (sum, &count) in sums.iter_mut().zip(counts) {
        let divisor = F::of(f64::from(if mean { count } else { 1 }));
        *sum = if count == 0 { empty(reduce) } else { *sum / divisor };
    }
}

/// Writes what was joined of `count` items.
#[inline(always)]
fn finish<T: Stored, J: Join>(
    (reduce, onto): (Reduce, Begin),
    y: &mut [T],
    joined: &[T::Sum],
    count: usize,
) {
    let divisor = T::Sum::of(count.max(1) as f64);
    for (y, &joined) in y.iter_mut().zip(joined) {
        let whole = match (onto, reduce) {
            (Begin::AsGiven, _) => J::join(y.wide(), joined),
            (Begin::Unset, _) if count == 0 => empty(reduce),
            (Begin::Unset, Reduce::Mean) => joined / divisor,
            (Begin::Unset, _) => joined,
        };
        *y = T::narrow(whole);
    }
}

/// Few segments: every chunk of rows has a result of its own, joined in the order of the chunks.
pub(super) fn partials<T: Stored>(
    isa: Isa,
    args: &Args<'_, T>,
    y: MatMut<'_, T>,
    threads: &Threads,
) {
    match args.reduce {
        Reduce::Sum | Reduce::Mean => joined_partials::<T, Sum>(isa, args, y, threads),
        Reduce::Max => joined_partials::<T, Max>(isa, args, y, threads),
        Reduce::Min => joined_partials::<T, Min>(isa, args, y, threads),
        Reduce::Mul => joined_partials::<T, Mul>(isa, args, y, threads),
    }
}

fn joined_partials<T: Stored, J: Join>(
    isa: Isa,
    args: &Args<'_, T>,
    y: MatMut<'_, T>,
    threads: &Threads,
) {
    let index = &*args.segments.index(threads);
    let (n, k) = (args.segments.n(), args.x.n_cols);
    // As many results as cost no more than the items.
    let chunks = (index.len() / (2 * n.max(1))).clamp(2, CHUNKS);
    let rows = index.len().div_ceil(chunks).max(CHUNK_ELEMENTS / k.max(1)).max(1);
    let tallies = threads.map(ranges(index.len(), rows), |rows| {
        // A sum or product of nothing is what joining begins with.
        let counted = !matches!(args.reduce, Reduce::Sum | Reduce::Mul);
        let counts = vec![0; if counted { n } else { 0 }];
        let mut tally = Tally { joined: vec![J::neutral(); n * k], counts };
        let data = &args.x.data[rows.start * args.x.stride..];
        let x = Mat { data, n_rows: rows.len(), ..args.x };
        add_rows::<T, J>(isa, Chunk { x, index: &index[rows], tally: &mut tally });
        tally
    });
    let slices = ranges(n, (CHUNK_ELEMENTS / k.max(1)).max(1));
    let ends: Vec<usize> = slices.iter().map(|slice| slice.end).collect();
    let items = slices.into_iter().zip(y.split(&ends)).collect();
    threads.map_with(items, Vec::new, |joined, (slice, mut y): (Range<usize>, MatMut<'_, T>)| {
        for s in slice.clone() {
            joined.clear();
            joined.resize(k, J::neutral());
            let mut count = 0;
            for tally in &tallies {
                count += tally.counts.get(s).map_or(1, |&count| count as usize);
                let of_chunk = &tally.joined[s * k..][..k];
                joined.iter_mut().zip(of_chunk).for_each(|(a, &b)| *a = J::join(*a, b));
            }
            finish::<T, J>((args.reduce, args.onto), y.row_mut(s - slice.start), joined, count);
        }
    });
}

struct Chunk<'a, T: Stored> {
    x: Mat<'a, T>,
    index: &'a [u32],
    tally: &'a mut Tally<T::Sum>,
}

per_isa!(fn add_rows<[T: Stored, J: Join], []>(chunk: Chunk<'_, T>) = add_rows_body);

#[inline(always)]
fn add_rows_body<M: Arith, T: Stored, J: Join>(chunk: Chunk<'_, T>) {
    let Chunk { x, index, tally: Tally { joined, counts } } = chunk;
    if !counts.is_empty() {
        index.iter().for_each(|&s| counts[s as usize] += 1);
    }
    let k = x.n_cols;
    if k == 1 && x.stride == 1 {
        for (&s, x) in index.iter().zip(x.data) {
            let joined = &mut joined[s as usize];
            *joined = J::join(*joined, x.wide());
        }
        return;
    }
    for (i, &s) in index.iter().enumerate() {
        let joined = &mut joined[s as usize * k..][..k];
        for (joined, x) in joined.iter_mut().zip(x.row(i)) {
            *joined = J::join(*joined, x.wide());
        }
    }
}
