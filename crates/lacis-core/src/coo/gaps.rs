//! Blocks that became shorter as their repeated entries were merged, moved together.
//!
//! ```text
//!  before  │ block 0 ··│ block 1 ·│ block 2 │      each begins where it did before merging
//!  after   │ block 0│ block 1│ block 2│
//! ```
//! Where little was merged, everything moves left by a little. Segments of some blocks each do so
//! at the same time: what would go to the place of the segment before is put aside until that one
//! has moved away.

use std::ops::Range;

use bytemuck::Pod;

use crate::csr::RowPtr;
use crate::threads::{ranges, split_at_ends};
use crate::{Buffer, Threads};

/// Into how many segments an array is cut, at most.
const SEGMENTS: usize = 32;
/// Up to this part of all entries is few: what is put aside is then an eighth of them at most.
const FEW: usize = 8 * SEGMENTS;

/// Of block `b`, which ends at `ends[b]`, the first `lengths[b]` entries are kept.
pub(super) struct Gaps<'a> {
    pub ends: &'a [usize],
    pub lengths: &'a [usize],
}

impl Gaps<'_> {
    pub fn n_kept(&self) -> usize {
        self.lengths.iter().sum()
    }

    /// Where a block begins.
    fn start(&self, block: usize) -> usize {
        if block == 0 { 0 } else { self.ends[block - 1] }
    }

    /// Where kept entries of each block end when all are together.
    fn new_ends(&self) -> Vec<usize> {
        let mut end = 0;
        let ends = self.lengths.iter().map(|length| {
            end += length;
            end
        });
        ends.collect()
    }

    /// Where rows begin, of where they end in each block.
    pub fn row_ptr(&self, rows: Vec<Vec<usize>>, n_rows: usize, threads: &Threads) -> RowPtr {
        match u32::try_from(self.n_kept()) {
            Ok(_) => RowPtr::Narrow(self.row_ends(rows, n_rows, |end| end as u32, threads)),
            Err(_) => RowPtr::Wide(self.row_ends(rows, n_rows, |end| end as u64, threads)),
        }
    }

    /// Zero, and where each row ends.
    fn row_ends<T: Pod + Send>(
        &self,
        rows: Vec<Vec<usize>>,
        n_rows: usize,
        of: impl Fn(usize) -> T + Sync,
        threads: &Threads,
    ) -> Buffer<T> {
        let mut ptr = Buffer::zeroed(n_rows + 1);
        let mut n_before = 0;
        let last_rows = rows.iter().map(|rows| {
            n_before += rows.len();
            n_before
        });
        let last_rows: Vec<usize> = last_rows.collect();
        let slices = split_at_ends(&mut ptr.make_mut()[1..], &last_rows);
        let starts = std::iter::once(0).chain(self.new_ends());
        let items = slices.into_iter().zip(rows).zip(starts).collect();
        threads.for_each(items, |((ptr, ends), start): ((&mut [T], Vec<usize>), usize)| {
            ptr.iter_mut().zip(ends).for_each(|(ptr, end)| *ptr = of(start + end));
        });
        ptr
    }

    /// The kept entries of an array, which may be empty.
    pub fn close(&self, mut array: Buffer<u32>, threads: &Threads) -> Buffer<u32> {
        let (before, after) = (array.len(), self.n_kept());
        if array.is_empty() {
            return array;
        }
        if before - after <= before / FEW {
            self.shift(array.make_mut(), threads);
            return array.truncated(after);
        }
        let mut closed = Buffer::zeroed(after);
        let slices = split_at_ends(closed.make_mut(), &self.new_ends());
        threads.for_each(slices.into_iter().enumerate().collect(), |(block, slice)| {
            let slice: &mut [u32] = slice;
            slice.copy_from_slice(&array[self.start(block)..][..slice.len()]);
        });
        closed
    }

    /// Moves all blocks to the left.
    fn shift(&self, array: &mut [u32], threads: &Threads) {
        let n_blocks = self.ends.len();
        let segments = ranges(n_blocks, n_blocks.div_ceil(SEGMENTS).max(1));
        let ends: Vec<usize> = segments.iter().map(|blocks| self.ends[blocks.end - 1]).collect();
        let new_ends = self.new_ends();
        let new_starts: Vec<usize> = segments
            .iter()
            .map(|blocks| if blocks.start == 0 { 0 } else { new_ends[blocks.start - 1] })
            .collect();
        let items = split_at_ends(array, &ends).into_iter().zip(segments).zip(&new_starts);
        let aside = threads.map(items.collect(), |((slice, blocks), new_start)| {
            let shift = self.start(blocks.start) - new_start;
            self.shift_segment(slice, blocks, shift)
        });
        for (start, aside) in new_starts.into_iter().zip(aside) {
            array[start..][..aside.len()].copy_from_slice(&aside);
        }
    }

    /// Moves some blocks together and by so much to the left; returns what does not fit there.
    fn shift_segment(&self, slice: &mut [u32], blocks: Range<usize>, shift: usize) -> Vec<u32> {
        let (mut aside, mut at, first) = (Vec::new(), 0, self.start(blocks.start));
        for block in blocks {
            let start = self.start(block) - first;
            let end = start + self.lengths[block];
            let fits = start + (shift.saturating_sub(at)).min(end - start);
            aside.extend_from_slice(&slice[start..fits]);
            at += fits - start;
            if fits < end {
                slice.copy_within(fits..end, at - shift);
                at += end - fits;
            }
        }
        aside
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_is_moved_together() {
        for (n_blocks, most, removed) in [(1, 50, 3), (7, 900, 2), (100, 4000, 1), (500, 90, 40)] {
            let mut state = n_blocks as u64;
            let mut draw = |below: usize| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                (state >> 33) as usize % below.max(1)
            };
            let (mut ends, mut lengths, mut total) = (Vec::new(), Vec::new(), 0);
            for _ in 0..n_blocks {
                let size = draw(most);
                total += size;
                ends.push(total);
                lengths.push(size - draw(removed + 1).min(size));
            }
            let array: Vec<u32> = (0..total as u32).collect();
            let gaps = Gaps { ends: &ends, lengths: &lengths };
            let kept = (0..n_blocks).flat_map(|b| &array[gaps.start(b)..][..lengths[b]]);
            let kept: Vec<u32> = kept.copied().collect();
            for count in [1, 2, 3] {
                let threads = Threads::new(count).unwrap();
                assert_eq!(gaps.close(Buffer::copied(&array), &threads)[..], kept[..]);
                let mut moved = array.clone();
                gaps.shift(&mut moved, &threads);
                assert_eq!(moved[..kept.len()], kept[..]);
            }
        }
    }
}
