//! [`Run`]: some entries, sorted by blocks of rows. The first of the two sorts.

use bytemuck::{Pod, Zeroable};

use super::{Chunk, Place};
use crate::{Buffer, Result};

/// A run has at most `2^10` blocks, so that the lines being written stay in the nearest caches, or
/// up to `2^12` where that makes its keys short.
const BLOCK_BITS: [u32; 2] = [10, 12];
/// Entries of a block at least, where it is known how many there will be.
const BLOCK_ENTRIES: usize = 1 << 12;

/// Entries to make a run of, wherever they are.
pub(super) trait Entries {
    fn len(&self) -> usize;
    fn place(&self, e: usize) -> Place;
    /// `None` where entries carry nothing.
    fn tag(&self, e: usize) -> Option<u32>;
}

impl Entries for Chunk {
    fn len(&self) -> usize {
        self.places.len()
    }
    #[inline(always)]
    fn place(&self, e: usize) -> Place {
        self.places[e]
    }
    #[inline(always)]
    fn tag(&self, e: usize) -> Option<u32> {
        self.tags.get(e).copied()
    }
}

/// Entries in arrays of the caller's.
pub(super) struct Slices<'a> {
    pub rows: &'a [u32],
    pub cols: &'a [u32],
    pub values: Option<&'a [f32]>,
}

impl Entries for Slices<'_> {
    fn len(&self) -> usize {
        self.rows.len()
    }
    #[inline(always)]
    fn place(&self, e: usize) -> Place {
        [self.rows[e], self.cols[e]]
    }
    #[inline(always)]
    fn tag(&self, e: usize) -> Option<u32> {
        self.values.map(|values| values[e].to_bits())
    }
}

/// An entry on its way: the key `row << col_bits | col`, its row counted within its block, and its
/// tag. The smaller it is, the faster it moves.
pub(super) trait Keyed: Pod + Send {
    const TAGGED: bool;
    fn new(key: u64, tag: u32) -> Self;
    fn key(self) -> u64;
    fn tag(self) -> u32;
}

/// A short key and its tag.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(transparent)]
pub(super) struct Packed(u64);

/// A long key, in two halves, and its tag.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(transparent)]
pub(super) struct Tagged([u32; 3]);

macro_rules! keyed {
    ($type:ty, $tagged:literal, $new:expr, $key:expr, $tag:expr) => {
        impl Keyed for $type {
            const TAGGED: bool = $tagged;
            #[inline(always)]
            fn new(key: u64, tag: u32) -> Self {
                $new(key, tag)
            }
            #[inline(always)]
            fn key(self) -> u64 {
                $key(self)
            }
            #[inline(always)]
            fn tag(self) -> u32 {
                $tag(self)
            }
        }
    };
}

keyed!(u32, false, |key, _| key as u32, u64::from, |_| 0);
keyed!(u64, false, |key, _| key, |key| key, |_| 0);
keyed!(
    Packed,
    true,
    |key, tag| Packed(key << 32 | u64::from(tag)),
    |p: Packed| p.0 >> 32,
    |p: Packed| p.0 as u32
);
keyed!(
    Tagged,
    true,
    |key, tag| Tagged([key as u32, (key >> 32) as u32, tag]),
    |t: Tagged| u64::from(t.0[1]) << 32 | u64::from(t.0[0]),
    |t: Tagged| t.0[2]
);

/// A run's entries, as small as they can be.
pub(super) enum Items {
    Short(Buffer<u32>),
    Long(Buffer<u64>),
    ShortTagged(Buffer<Packed>),
    LongTagged(Buffer<Tagged>),
}

/// Entries sorted by blocks of `2^shift` rows; block `b` is `starts[b]..starts[b + 1]`.
pub(super) struct Run {
    pub shift: u32,
    pub col_bits: u32,
    pub largest: Place,
    pub starts: Vec<u32>,
    pub items: Items,
}

impl Run {
    pub fn len(&self) -> usize {
        self.starts.last().map_or(0, |&end| end as usize)
    }

    /// Where the first entry of a block of `2^shift` rows is, for a shift that is coarser.
    pub fn start_of(&self, block: usize, shift: u32) -> usize {
        self.starts[self.fine_block(block, shift)] as usize
    }

    /// The first own block of a coarser block, or the end.
    pub fn fine_block(&self, block: usize, shift: u32) -> usize {
        block.saturating_mul(1 << (shift - self.shift)).min(self.starts.len() - 1)
    }
}

/// Bits needed to write numbers up to `largest`.
pub(super) fn bits(largest: u32) -> u32 {
    u32::BITS - largest.leading_zeros()
}

/// How many bits of a row count within its block, of which there should be `2^block_bits`.
fn shift_for([row, col]: Place, block_bits: u32) -> u32 {
    // At most what a row can be shifted by.
    let shift = |block_bits| bits(row).saturating_sub(block_bits).min(u32::BITS - 1);
    let [coarse, fine] = [block_bits, BLOCK_BITS[1]].map(shift);
    let short = u32::BITS - bits(col);
    if (fine..coarse).contains(&short) { short } else { coarse }
}

/// Makes runs; keeps its scratch memory between them.
pub(super) struct RunSort {
    next: Vec<u32>,
    /// The shift of the last run.
    shift: u32,
    block_bits: u32,
}

/// Into how many blocks runs should be cut, as a number of bits, when they will hold so many
/// entries together: few entries in many blocks are found one by one.
pub(super) fn block_bits(n_entries: usize) -> u32 {
    bits(u32::try_from(n_entries / BLOCK_ENTRIES).unwrap_or(u32::MAX)).min(BLOCK_BITS[0])
}

impl RunSort {
    pub fn new(block_bits: u32) -> Self {
        RunSort { next: Vec::new(), shift: 0, block_bits }
    }

    pub fn run(&mut self, entries: &impl Entries) -> Result<Run> {
        let mut largest = self.count(entries, self.shift);
        let shift = shift_for(largest, self.block_bits);
        // Runs are mostly like the one before; one that is not is counted again.
        if shift != self.shift {
            largest = self.count(entries, shift);
        }
        self.shift = shift;
        let (col_bits, starts) =
            (bits(largest[1]), self.starts((largest[0] >> shift) as usize + 1));
        let tagged = entries.len() > 0 && entries.tag(0).is_some();
        let items = match (tagged, shift + col_bits <= u32::BITS) {
            (false, true) => Items::Short(self.scatter(entries, shift, col_bits)?),
            (false, false) => Items::Long(self.scatter(entries, shift, col_bits)?),
            (true, true) => Items::ShortTagged(self.scatter(entries, shift, col_bits)?),
            (true, false) => Items::LongTagged(self.scatter(entries, shift, col_bits)?),
        };
        Ok(Run { shift, col_bits, largest, starts, items })
    }

    /// Counts the entries of each block, those after the last possible one with it; returns the
    /// largest row and column.
    fn count(&mut self, entries: &impl Entries, shift: u32) -> Place {
        const LAST: u32 = (1 << BLOCK_BITS[1]) - 1;
        assert!(u32::try_from(entries.len()).is_ok(), "a chunk's entries are counted in u32");
        self.next.clear();
        self.next.resize(LAST as usize + 1, 0);
        let mut largest = [0, 0];
        for e in 0..entries.len() {
            let [row, col] = entries.place(e);
            largest = [largest[0].max(row), largest[1].max(col)];
            self.next[(row >> shift).min(LAST) as usize] += 1;
        }
        largest
    }

    /// Where each of so many blocks starts, and the last ends; the next entries go to the starts.
    fn starts(&mut self, n_blocks: usize) -> Vec<u32> {
        let mut end = 0;
        self.next.iter_mut().for_each(|count| end += std::mem::replace(count, end));
        let mut starts = self.next[..n_blocks].to_vec();
        starts.push(end);
        starts
    }

    fn scatter<E: Keyed>(
        &mut self,
        entries: &impl Entries,
        shift: u32,
        col_bits: u32,
    ) -> Result<Buffer<E>> {
        let row_mask = (1 << shift) - 1;
        let mut buffer = Buffer::try_zeroed(entries.len())?;
        let items = buffer.make_mut();
        for e in 0..entries.len() {
            let [row, col] = entries.place(e);
            let next = &mut self.next[(row >> shift) as usize];
            let key = u64::from(row & row_mask) << col_bits | u64::from(col);
            items[*next as usize] = E::new(key, entries.tag(e).unwrap_or(0));
            *next += 1;
        }
        Ok(buffer)
    }
}
