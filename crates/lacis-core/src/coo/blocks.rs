//! From runs to a matrix, block after block. The second of the two sorts.
//!
//! ```text
//!  for each block of rows, on any thread:
//!      gather its entries from all runs
//!      sort them by column (radix, lowest digit first; skipped where columns come sorted)
//!      put each at the next free place of its row, or of its row and the columns' last digit: a
//!      stable counting sort into the final arrays
//!      where an entry repeats the one before it in its row, merge the two, and close the gaps
//! ```

use super::Repeats;
use super::gaps::Gaps;
use super::runs::{Items, Keyed, Packed, Run, Tagged, bits};
use crate::csr::{ColumnOrder, RowPtr};
use crate::threads::split_at_ends;
use crate::{Buffer, Threads};

/// A block of this many entries and its copy fit in 1 MiB of L2.
const BLOCK_ENTRIES: usize = 1 << 15;
/// Smaller blocks, of which there are enough for threads to share, where entries are few.
const FEW_ENTRIES: usize = 1 << 12;
const BLOCKS: usize = 32;

/// A matrix but for its number of columns.
pub(super) struct Sorted {
    pub row_ptr: RowPtr,
    pub cols: Buffer<u32>,
    pub tags: Buffer<u32>,
}

/// The matrix of that shape which the runs hold.
pub(super) fn sort(
    runs: Vec<Run>,
    shape: [usize; 2],
    rules: (ColumnOrder, Repeats),
    threads: &Threads,
) -> Sorted {
    let tagged = |run: &Run| matches!(run.items, Items::ShortTagged(_) | Items::LongTagged(_));
    let tagged = runs.iter().any(tagged);
    let grid = Grid::new(&runs, shape, rules);
    match (tagged, grid.row_bits() + grid.col_bits <= u32::BITS) {
        (false, true) => grid.sort::<u32>(runs, threads),
        (false, false) => grid.sort::<u64>(runs, threads),
        (true, true) => grid.sort::<Packed>(runs, threads),
        (true, false) => grid.sort::<Tagged>(runs, threads),
    }
}

/// How the matrix is cut into blocks.
struct Grid {
    n_rows: usize,
    /// A block has `2^shift` rows: at least those of the coarsest run.
    shift: u32,
    col_bits: u32,
    columns: ColumnOrder,
    repeats: Repeats,
}

/// Where a block's entries go.
struct Slot<'a> {
    cols: &'a mut [u32],
    tags: &'a mut [u32],
}

/// What a thread keeps from block to block.
struct Scratch<E> {
    entries: Vec<E>,
    radix: Radix<E>,
}

impl Grid {
    fn new(runs: &[Run], [n_rows, n_cols]: [usize; 2], rules: (ColumnOrder, Repeats)) -> Self {
        let n_entries: usize = runs.iter().map(Run::len).sum();
        let block_entries = (n_entries / BLOCKS).clamp(FEW_ENTRIES, BLOCK_ENTRIES);
        let wanted_blocks = (n_entries / block_entries).next_power_of_two();
        let coarsest = runs.iter().map(|run| run.shift).max().unwrap_or(0);
        let row_bits = bits((n_rows.max(1) - 1) as u32);
        let shift = row_bits.saturating_sub(wanted_blocks.trailing_zeros()).max(coarsest);
        let col_bits = bits((n_cols.max(1) - 1) as u32);
        Grid { n_rows, shift, col_bits, columns: rules.0, repeats: rules.1 }
    }

    /// Bits of the largest row of a block.
    fn row_bits(&self) -> u32 {
        self.shift.min(bits((self.n_rows.max(1) - 1) as u32))
    }

    fn sort<E: Keyed>(&self, runs: Vec<Run>, threads: &Threads) -> Sorted {
        let n_blocks = self.n_rows.div_ceil(1 << self.shift);
        let start_of = |block| runs.iter().map(|run| run.start_of(block, self.shift)).sum();
        let ends: Vec<usize> = (1..=n_blocks).map(start_of).collect();
        let n_entries = ends.last().copied().unwrap_or(0);
        let mut cols = Buffer::zeroed(n_entries);
        let mut tags = Buffer::zeroed(if E::TAGGED { n_entries } else { 0 });
        let row_ends = threads.map_with(
            slots(&mut cols, &mut tags, &ends).into_iter().enumerate().collect(),
            || Scratch { entries: Vec::<E>::new(), radix: Radix::default() },
            |Scratch { entries, radix }, (block, slot)| {
                self.gather(&runs, block, entries);
                let low_bits = self.low_bits();
                let is_sorted = self.columns == ColumnOrder::Sorted;
                let sorted = radix.sort(entries, if is_sorted { 0 } else { low_bits });
                self.place(block, (sorted, low_bits), slot)
            },
        );
        drop(runs);
        let lengths: Vec<usize> = row_ends.iter().map(|ends| ends[ends.len() - 1]).collect();
        let gaps = Gaps { ends: &ends, lengths: &lengths };
        let row_ptr = gaps.row_ptr(row_ends, self.n_rows, threads);
        if gaps.n_kept() < n_entries {
            (cols, tags) = (gaps.close(cols, threads), gaps.close(tags, threads));
        }
        Sorted { row_ptr, cols, tags }
    }

    /// The block's entries from all runs, in the order they came.
    fn gather<E: Keyed>(&self, runs: &[Run], block: usize, entries: &mut Vec<E>) {
        let start_of =
            |block| runs.iter().map(|run| run.start_of(block, self.shift)).sum::<usize>();
        entries.clear();
        entries.reserve(start_of(block + 1) - start_of(block));
        for run in runs {
            match &run.items {
                Items::Short(items) => self.gather_from(run, items, block, entries),
                Items::Long(items) => self.gather_from(run, items, block, entries),
                Items::ShortTagged(items) => self.gather_from(run, items, block, entries),
                Items::LongTagged(items) => self.gather_from(run, items, block, entries),
            }
        }
    }

    /// Keys of a run count rows from the run's block, and may leave fewer bits to columns.
    #[inline(always)]
    fn gather_from<F: Keyed, E: Keyed>(
        &self,
        run: &Run,
        items: &[F],
        block: usize,
        entries: &mut Vec<E>,
    ) {
        let first = run.fine_block(block, self.shift);
        let col_mask = (1u64 << run.col_bits) - 1;
        for fine in first..run.fine_block(block + 1, self.shift) {
            let first_row = ((fine - first) as u64) << run.shift;
            let items = &items[run.starts[fine] as usize..run.starts[fine + 1] as usize];
            entries.extend(items.iter().map(|item| {
                let row = first_row + (item.key() >> run.col_bits);
                E::new(row << self.col_bits | item.key() & col_mask, item.tag())
            }));
        }
    }

    /// How many of a column's bits are sorted before entries are put into their rows, which is a
    /// step of the same sort: as far as its digit is not too long, it takes the others along.
    fn low_bits(&self) -> u32 {
        const DIGIT_BITS: u32 = 12;
        let (rows, cols) = (self.row_bits(), self.col_bits);
        let all = rows + cols;
        let digit_bits = all.div_ceil(all.div_ceil(DIGIT_BITS).max(1)).max(rows);
        match self.columns {
            ColumnOrder::Sorted => cols,
            ColumnOrder::Unsorted if rows > DIGIT_BITS => cols,
            ColumnOrder::Unsorted => all - digit_bits.min(all),
        }
    }

    /// Puts entries, sorted by the low bits of their columns, into their rows; returns where in the
    /// block rows end.
    fn place<E: Keyed>(
        &self,
        block: usize,
        (entries, low_bits): (&[E], u32),
        mut slot: Slot<'_>,
    ) -> Vec<usize> {
        let rows = (self.n_rows - (block << self.shift)).min(1 << self.shift);
        let high_bits = self.col_bits - low_bits;
        let mut next = vec![0; rows << high_bits];
        for entry in entries {
            next[(entry.key() >> low_bits) as usize] += 1;
        }
        let mut start = 0;
        next.iter_mut().for_each(|length| start += std::mem::replace(length, start));
        let col_mask = (1u64 << self.col_bits) - 1;
        for entry in entries {
            // The next free place; where the last one is once all have theirs.
            let next = &mut next[(entry.key() >> low_bits) as usize];
            slot.cols[*next] = (entry.key() & col_mask) as u32;
            if E::TAGGED {
                slot.tags[*next] = entry.tag();
            }
            *next += 1;
        }
        let mut ends = next;
        if high_bits > 0 {
            ends = (1..=rows).map(|row| ends[(row << high_bits) - 1]).collect();
        }
        // Neighbours that are equal repeat each other, or stand at the border of two rows; where
        // there are none, which takes a few instructions for many entries, nothing is merged.
        let equal = slot.cols.iter().zip(slot.cols.iter().skip(1)).any(|(a, b)| a == b);
        if self.repeats != Repeats::Keep && equal {
            self.merge::<E>(&mut ends, &mut slot);
        }
        ends
    }

    /// Makes one of entries that repeat each other, and moves the rest together.
    fn merge<E: Keyed>(&self, ends: &mut [usize], slot: &mut Slot<'_>) {
        let (mut from, mut at) = (0, 0);
        for end in ends {
            let start = at;
            for e in from..*end {
                if at > start && slot.cols[at - 1] == slot.cols[e] {
                    if self.repeats == Repeats::Sum {
                        let [sum, tag] = [at - 1, e].map(|e| f32::from_bits(slot.tags[e]));
                        slot.tags[at - 1] = (sum + tag).to_bits();
                    }
                    continue;
                }
                slot.cols[at] = slot.cols[e];
                if E::TAGGED {
                    slot.tags[at] = slot.tags[e];
                }
                at += 1;
            }
            from = std::mem::replace(end, at);
        }
    }
}

/// The pieces of both arrays up to each end; tags may be absent.
fn slots<'a>(
    cols: &'a mut Buffer<u32>,
    tags: &'a mut Buffer<u32>,
    ends: &[usize],
) -> Vec<Slot<'a>> {
    let tag_ends = if tags.is_empty() { vec![0; ends.len()] } else { ends.to_vec() };
    let cols = split_at_ends(cols.make_mut(), ends);
    let tags = split_at_ends(tags.make_mut(), &tag_ends);
    cols.into_iter().zip(tags).map(|(cols, tags)| Slot { cols, tags }).collect()
}

/// Stable radix sort from the lowest digit up, or the standard library's for few entries (or more
/// than are counted in four bytes).
struct Radix<E> {
    spare: Vec<E>,
    /// Where the next entry with each digit goes, for each pass.
    next: Vec<u32>,
}

impl<E> Default for Radix<E> {
    fn default() -> Self {
        Radix { spare: Vec::new(), next: Vec::new() }
    }
}

impl<E: Keyed> Radix<E> {
    /// The entries sorted by the lowest bits of their keys.
    fn sort<'a>(&'a mut self, entries: &'a mut [E], key_bits: u32) -> &'a [E] {
        const FEW: usize = 256;
        const MAX_DIGIT_BITS: u32 = 11;
        if entries.len() < FEW || u32::try_from(entries.len()).is_err() {
            entries.sort_by_key(|entry| entry.key() & ((1 << key_bits) - 1));
            return entries;
        }
        if self.spare.len() < entries.len() {
            self.spare.resize(entries.len(), E::zeroed());
        }
        let passes = key_bits.div_ceil(MAX_DIGIT_BITS);
        let digit_bits = key_bits.div_ceil(passes.max(1));
        self.count(entries, passes, digit_bits);
        let (mut from, mut to) = (entries, &mut self.spare[..]);
        for pass in 0..passes {
            let next = &mut self.next[(pass << digit_bits) as usize..][..1 << digit_bits];
            radix_pass(from, to, next, pass * digit_bits);
            let len = from.len();
            (from, to) = (&mut to[..len], from);
        }
        from
    }

    /// The digits of all passes in one look at the entries.
    fn count(&mut self, entries: &[E], passes: u32, digit_bits: u32) {
        self.next.clear();
        self.next.resize((passes << digit_bits) as usize, 0);
        let mask = (1 << digit_bits) - 1;
        for entry in entries {
            let mut key = entry.key();
            for digits in self.next.chunks_exact_mut(1 << digit_bits) {
                digits[key as usize & mask] += 1;
                key >>= digit_bits;
            }
        }
        for digits in self.next.chunks_exact_mut(1 << digit_bits) {
            let mut start = 0;
            digits.iter_mut().for_each(|count| start += std::mem::replace(count, start));
        }
    }
}

fn radix_pass<E: Keyed>(from: &[E], to: &mut [E], next: &mut [u32], low_bit: u32) {
    let mask = next.len() - 1;
    for entry in from {
        let next = &mut next[(entry.key() >> low_bit) as usize & mask];
        to[*next as usize] = *entry;
        *next += 1;
    }
}
