//! Pairs (target, load) brought together by blocks of targets: the first half of a stable sort,
//! and all of it that an accumulation in the cache needs.
//!
//! ```text
//!  for each chunk of pairs:    count those of each block; put each behind the last of its block
//!  for each block of targets:  its pairs of the first chunk, of the second …: as they came
//! ```
//! # Parallelism
//! A thread does whole chunks, then whole blocks; both follow from the sizes alone.
//! # Memory
//! One target and one load for every pair.

use std::ops::Range;

use bytemuck::Pod;
use lacis_core::threads::{ranges, split_at_ends};
use lacis_core::{Lent, Threads};

use super::lent;

/// Pairs of a chunk: enough for each block to get some, few enough to balance threads.
const CHUNK: [usize; 2] = [1 << 14, 1 << 19];
/// Into about how many chunks few pairs are cut.
const FEW_CHUNKS: usize = 8;
/// A block has at most so many targets, that what is kept for them stays in a core's cache.
const BLOCK_BITS: u32 = 14;
/// Blocks that small problems are cut into, so that threads share them.
const FEW_BLOCKS_BITS: u32 = 5;
/// More blocks than this are more streams than a chunk can feed.
const MANY_BLOCKS_BITS: u32 = 12;

/// Pairs by blocks of `2^shift` targets.
pub(super) struct Partition<'t, P> {
    shift: u32,
    n: usize,
    chunk: usize,
    targets: Lent<'t, u32>,
    loads: Lent<'t, P>,
    /// For each chunk, where its blocks begin; one more than there are.
    starts: Vec<Vec<u32>>,
}

impl<'t, P: Pod + Send + Sync> Partition<'t, P> {
    /// The pairs `(target(e), load(e))` for `e` below `len`, with targets below `n`.
    #[inline(always)]
    pub fn new(
        (len, n): (usize, usize),
        target: impl Fn(usize) -> u32 + Sync,
        load: impl Fn(usize) -> P + Sync,
        threads: &'t Threads,
    ) -> Self {
        let bits = usize::BITS - n.saturating_sub(1).leading_zeros();
        let shift = bits.saturating_sub(FEW_BLOCKS_BITS).min(BLOCK_BITS);
        let shift = shift.max(bits.saturating_sub(MANY_BLOCKS_BITS));
        let n_blocks = n.div_ceil(1 << shift);
        let (mut targets, mut loads) = (lent(len, threads), lent(len, threads));
        let least = CHUNK[0].max(4 * n_blocks).min(CHUNK[1]);
        let chunk = (len / FEW_CHUNKS).clamp(least, CHUNK[1]);
        let chunks = ranges(len, chunk);
        let ends: Vec<usize> = chunks.iter().map(|chunk| chunk.end).collect();
        let places =
            split_at_ends(&mut targets, &ends).into_iter().zip(split_at_ends(&mut loads, &ends));
        let starts = threads.map(chunks.into_iter().zip(places).collect(), |(chunk, places)| {
            let mut starts = vec![0u32; n_blocks + 1];
            for e in chunk.clone() {
                starts[(target(e) >> shift) as usize + 1] += 1;
            }
            let mut end = 0;
            for start in &mut starts {
                end += *start;
                *start = end;
            }
            let mut next = starts.clone();
            for e in chunk {
                let target = target(e);
                let next = &mut next[(target >> shift) as usize];
                let place = *next as usize;
                *next += 1;
                places.0[place] = target;
                places.1[place] = load(e);
            }
            starts
        });
        Partition { shift, n, chunk, targets, loads, starts }
    }

    /// The targets of each block.
    pub fn blocks(&self) -> Vec<Range<usize>> {
        ranges(self.n, 1 << self.shift)
    }

    /// Number of pairs before each block, and of all.
    pub fn ends(&self) -> Vec<usize> {
        let blocks = 1..=self.blocks().len();
        blocks.map(|b| self.starts.iter().map(|starts| starts[b] as usize).sum()).collect()
    }

    /// The pairs of a block, chunk after chunk.
    pub fn pairs(&self, block: usize) -> impl Iterator<Item = (&[u32], &[P])> {
        let (targets, loads) = (&self.targets, &self.loads);
        self.starts.iter().enumerate().map(move |(chunk, starts)| {
            let first = chunk * self.chunk;
            let range = first + starts[block] as usize..first + starts[block + 1] as usize;
            (&targets[range.clone()], &loads[range])
        })
    }
}
