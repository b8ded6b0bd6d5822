//! [`Coo`]: an unsorted list of entries on its way to a [`Csr`], in parallel and in linear time.
//!
//! ```text
//!  chunks of entries        runs: each chunk sorted by row block      blocks, one after another
//!  (any order)              (counting sort, inside the cache)         (radix sort, inside the cache)
//!  ┌────────────┐           ┌──┬───┬─┬──┐
//!  │ (row, col) │   ──►     │ 0│ 1 │2│ 3│  ──►  block 0 of every run  ──►  rows 0 .. 2^s
//!  └────────────┘           └──┴───┴─┴──┘       block 1 of every run  ──►  rows 2^s .. 2·2^s
//! ```
//! A run is cut into at most [`MAX_BLOCKS`] blocks of `2^shift` rows, by the largest row *it* holds:
//! neither the number of rows nor the number of entries need be known beforehand, and a finer run
//! nests in a coarser one. Within its block an entry is the key `row << col_bits | col`, mostly four
//! bytes: what limits the speed is memory, and that the system must clear it first. Both sorts are stable, so entries with the same place keep their order,
//! and the result depends on the entries alone, not on chunks or threads.
//!
//! An entry may carry a 32-bit tag: the bits of a value, or its position in the caller's list.

use std::ops::Range;

use crate::csr::{ColumnOrder, Csr, RowPtr};
use crate::threads::{ranges, split_at_ends};
use crate::{Buffer, Error, Result, Threads};

/// How many entries a chunk should hold: 4 MiB of them, and the keys made of them fill a huge page.
pub const CHUNK_ENTRIES: usize = 1 << 19;
const MAX_BLOCKS: u32 = 1 << 12;
/// A block of this many entries and its copy fit in 1 MiB of L2.
const BLOCK_ENTRIES: usize = 1 << 15;

/// A matrix entry's place.
type Place = [u32; 2];

/// Some entries, as a source hands them over. `tags` is empty, or as long as `places`.
#[derive(Default)]
pub struct Chunk {
    /// Row and column of each entry.
    pub places: Vec<Place>,
    /// What each entry carries along.
    pub tags: Vec<u32>,
}

impl Chunk {
    /// Adds an entry that carries nothing.
    pub fn push(&mut self, row: u32, col: u32) {
        self.places.push([row, col]);
    }

    /// Adds an entry with its tag.
    pub fn push_tagged(&mut self, row: u32, col: u32, tag: u32) {
        self.places.push([row, col]);
        self.tags.push(tag);
    }
}

/// What becomes of entries with the same row and column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repeats {
    /// All stay, in the order they came.
    Keep,
    /// The first stays.
    Merge,
    /// One stays, its value the sum of all (added in f64, in the order they came).
    Sum,
}

/// What the tags are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tags {
    /// There are none.
    Absent,
    /// The bits of `f32` values.
    Values,
    /// Positions in the caller's list.
    Order,
}

/// The size of the matrix to build; what is absent is one more than the largest index met.
#[derive(Clone, Copy, Debug, Default)]
pub struct Extent {
    /// Number of rows.
    pub n_rows: Option<usize>,
    /// Number of columns.
    pub n_cols: Option<usize>,
}

/// A list of entries in any order. See the module's head.
pub struct Coo {
    runs: Vec<Run>,
    tags: Tags,
    columns: ColumnOrder,
}

impl Coo {
    /// An empty list whose entries will carry `tags`.
    pub fn new(tags: Tags) -> Self {
        Coo { runs: Vec::new(), tags, columns: ColumnOrder::Unsorted }
    }

    /// Appends what `fill` makes of each item, chunk by chunk and in the items' order.
    ///
    /// # Errors
    /// The first item's that failed.
    pub fn extend<T: Send>(
        &mut self,
        items: Vec<T>,
        threads: &Threads,
        fill: impl Fn(T, &mut Chunk) -> Result<()> + Sync,
    ) -> Result<()> {
        let make = |(chunk, sort): &mut (Chunk, RunSort), item| {
            chunk.places.clear();
            chunk.tags.clear();
            fill(item, chunk)?;
            let tagged = if self.tags == Tags::Absent { 0 } else { chunk.places.len() };
            assert_eq!(chunk.tags.len(), tagged, "entries carry {:?} tags", self.tags);
            Ok(sort.run(chunk))
        };
        self.runs.extend(threads.try_map_with(items, Default::default, make)?);
        Ok(())
    }

    /// The list with one entry per position of the slices.
    ///
    /// # Errors
    /// When the slices differ in length.
    pub fn from_slices(
        rows: &[u32],
        cols: &[u32],
        values: Option<&[f32]>,
        threads: &Threads,
    ) -> Result<Self> {
        crate::error::same_size("coo", "number of columns", rows.len(), cols.len())?;
        if let Some(values) = values {
            crate::error::same_size("coo", "number of values", rows.len(), values.len())?;
        }
        let mut coo = Coo::new(if values.is_some() { Tags::Values } else { Tags::Absent });
        coo.extend(ranges(rows.len(), CHUNK_ENTRIES), threads, |range, chunk| {
            let places = rows[range.clone()].iter().zip(&cols[range.clone()]);
            chunk.places.extend(places.map(|(&row, &col)| [row, col]));
            chunk.tags.extend(values.iter().flat_map(|v| &v[range.clone()]).map(|v| v.to_bits()));
            Ok(())
        })?;
        Ok(coo)
    }

    /// Says that entries of the same row come with ascending columns, which saves sorting them.
    pub(crate) fn with_ascending_columns(mut self) -> Self {
        self.columns = ColumnOrder::Sorted;
        self
    }

    /// How many entries there are.
    pub fn len(&self) -> usize {
        self.runs.iter().map(Run::len).sum()
    }

    /// Whether there are no entries.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The largest row and the largest column met.
    pub fn largest(&self) -> Option<Place> {
        let [row, col] = [0, 1].map(|axis| self.runs.iter().map(|run| run.largest[axis]).max());
        if self.is_empty() { None } else { row.zip(col).map(|(row, col)| [row, col]) }
    }

    /// The matrix, its columns ascending within each row.
    ///
    /// # Errors
    /// When an entry is outside `extent`, or the extent has more than `u32::MAX` rows or columns.
    ///
    /// # Panics
    /// When asked to sum entries that carry no values.
    pub fn into_csr(self, extent: Extent, repeats: Repeats, threads: &Threads) -> Result<Csr> {
        assert!(repeats != Repeats::Sum || self.tags == Tags::Values, "only values can be summed");
        let [n_rows, n_cols] = self.extent(extent)?;
        let grid = Grid::new(&self, n_rows, n_cols);
        let sorted = match (self.tags, grid.key_bits()) {
            (Tags::Absent, ..=32) => grid.sort::<u32>(self.runs, repeats, threads),
            (Tags::Absent, _) => grid.sort::<u64>(self.runs, repeats, threads),
            (_, ..=32) => grid.sort::<Packed>(self.runs, repeats, threads),
            _ => grid.sort::<Tagged>(self.runs, repeats, threads),
        };
        let csr = Csr::trusted(n_cols, sorted.row_ptr, sorted.cols, ColumnOrder::Sorted);
        Ok(match self.tags {
            Tags::Absent => csr,
            Tags::Values => csr.trusting_values(sorted.tags.reinterpreted()),
            Tags::Order => csr.trusting_order(sorted.tags),
        })
    }

    fn extent(&self, extent: Extent) -> Result<[usize; 2]> {
        let largest = self.largest();
        let size = |axis: usize, what, given: Option<usize>| {
            let needed = largest.map_or(0, |place| place[axis] as usize + 1);
            let size = given.unwrap_or(needed);
            check_index_count(what, size)?;
            if needed > size {
                let (index, bound) = (needed as u64 - 1, size as u64);
                return Err(Error::Index { op: "csr", what, index, at: 0, bound });
            }
            Ok(size)
        };
        Ok([size(0, "row", extent.n_rows)?, size(1, "column", extent.n_cols)?])
    }
}

/// Rows and columns are `u32`, and their number must be one too.
pub(crate) fn check_index_count(what: &'static str, count: usize) -> Result<()> {
    if u32::try_from(count).is_ok() {
        return Ok(());
    }
    let what = if what == "row" { "number of rows" } else { "number of columns" };
    Err(Error::Overflow { what, value: count as u128, limit: u128::from(u32::MAX) })
}

/// A chunk sorted by blocks of `2^shift` rows; block `b` is `starts[b]..starts[b + 1]`.
struct Run {
    shift: u32,
    col_bits: u32,
    largest: Place,
    starts: Vec<u32>,
    keys: Keys,
    tags: Buffer<u32>,
}

enum Keys {
    Short(Buffer<u32>),
    Long(Buffer<u64>),
}

impl Run {
    fn len(&self) -> usize {
        self.starts.last().map_or(0, |&end| end as usize)
    }

    /// Where the first entry of a block of `2^shift` rows is, for a shift that is coarser.
    fn start_of(&self, block: usize, shift: u32) -> usize {
        self.starts[self.fine_block(block, shift)] as usize
    }

    /// The first own block of a coarser block, or the end.
    fn fine_block(&self, block: usize, shift: u32) -> usize {
        block.saturating_mul(1 << (shift - self.shift)).min(self.starts.len() - 1)
    }
}

/// Bits needed to write numbers up to `largest`.
fn bits(largest: u32) -> u32 {
    u32::BITS - largest.leading_zeros()
}

/// Scratch for [`Run`]s.
#[derive(Default)]
struct RunSort {
    next: Vec<u32>,
}

impl RunSort {
    fn run(&mut self, chunk: &Chunk) -> Run {
        let larger = |a: Place, b: &Place| [a[0].max(b[0]), a[1].max(b[1])];
        let largest = chunk.places.iter().fold([0, 0], larger);
        let shift = bits(largest[0]).saturating_sub(MAX_BLOCKS.trailing_zeros());
        let col_bits = bits(largest[1]);
        let starts = self.count(chunk, shift, (largest[0] >> shift) as usize + 1);
        let mut tags = Buffer::zeroed(chunk.tags.len());
        let row_mask = (1 << shift) - 1;
        let key = |[row, col]: Place| u64::from(row & row_mask) << col_bits | u64::from(col);
        let keys = if shift + col_bits <= u32::BITS {
            let mut keys = Buffer::zeroed(chunk.places.len());
            self.scatter(
                chunk,
                shift,
                |place| key(place) as u32,
                (keys.make_mut(), tags.make_mut()),
            );
            Keys::Short(keys)
        } else {
            let mut keys = Buffer::zeroed(chunk.places.len());
            self.scatter(chunk, shift, key, (keys.make_mut(), tags.make_mut()));
            Keys::Long(keys)
        };
        Run { shift, col_bits, largest, starts, keys, tags }
    }

    fn count(&mut self, chunk: &Chunk, shift: u32, n_blocks: usize) -> Vec<u32> {
        assert!(u32::try_from(chunk.places.len()).is_ok(), "a chunk's entries are counted in u32");
        let mut starts = vec![0; n_blocks + 1];
        for place in &chunk.places {
            starts[(place[0] >> shift) as usize + 1] += 1;
        }
        for block in 0..n_blocks {
            starts[block + 1] += starts[block];
        }
        self.next.clear();
        self.next.extend_from_slice(&starts);
        starts
    }

    fn scatter<K>(
        &mut self,
        chunk: &Chunk,
        shift: u32,
        key: impl Fn(Place) -> K,
        (keys, tags): (&mut [K], &mut [u32]),
    ) {
        let mut position = |place: &Place| {
            let next = &mut self.next[(place[0] >> shift) as usize];
            *next += 1;
            *next as usize - 1
        };
        if chunk.tags.is_empty() {
            chunk.places.iter().for_each(|place| keys[position(place)] = key(*place));
        } else {
            for (place, tag) in chunk.places.iter().zip(&chunk.tags) {
                let at = position(place);
                keys[at] = key(*place);
                tags[at] = *tag;
            }
        }
    }
}

/// Something to sort by its key, `row << col_bits | col` with the row counted within its block.
/// The smaller it is, the faster it moves: half the entries of a block in L2 are its copy.
trait Keyed: Copy + Default + Send {
    const TAGGED: bool;
    fn new(key: u64, tag: u32) -> Self;
    fn key(self) -> u64;
    fn tag(self) -> u32;
}

/// A short key and its tag.
#[derive(Clone, Copy, Default)]
struct Packed(u64);

/// A long key and its tag.
#[derive(Clone, Copy, Default)]
struct Tagged {
    key: u64,
    tag: u32,
}

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
keyed!(Tagged, true, |key, tag| Tagged { key, tag }, |t: Tagged| t.key, |t: Tagged| t.tag);

/// How the finished matrix is cut into blocks, and how an entry's key is made.
struct Grid {
    n_rows: usize,
    /// A block has `2^shift` rows: at least those of the coarsest run.
    shift: u32,
    col_bits: u32,
    /// The lowest key bit to sort by: columns that come sorted are left out.
    sort_from_bit: u32,
}

/// A matrix but for its number of columns.
struct Sorted {
    row_ptr: RowPtr,
    cols: Buffer<u32>,
    tags: Buffer<u32>,
}

/// Where a block's entries go.
struct Slot<'a> {
    cols: &'a mut [u32],
    tags: &'a mut [u32],
}

impl Grid {
    fn new(coo: &Coo, n_rows: usize, n_cols: usize) -> Self {
        let row_bits = bits((n_rows.max(1) - 1) as u32);
        let wanted_blocks = (coo.len() / BLOCK_ENTRIES).next_power_of_two();
        let coarsest = coo.runs.iter().map(|run| run.shift).max().unwrap_or(0);
        let shift = row_bits.saturating_sub(wanted_blocks.trailing_zeros()).max(coarsest);
        let col_bits = bits((n_cols.max(1) - 1) as u32);
        let sorted = coo.columns == ColumnOrder::Sorted;
        Grid { n_rows, shift, col_bits, sort_from_bit: if sorted { col_bits } else { 0 } }
    }

    /// Bits of the largest key.
    fn key_bits(&self) -> u32 {
        self.shift.min(bits((self.n_rows.max(1) - 1) as u32)) + self.col_bits
    }

    /// Sorts block after block into its place; blocks that shrank then move together.
    fn sort<E: Keyed>(&self, runs: Vec<Run>, repeats: Repeats, threads: &Threads) -> Sorted {
        let n_blocks = self.n_rows.div_ceil(1 << self.shift);
        let start_of = |block| runs.iter().map(|run| run.start_of(block, self.shift)).sum();
        let ends: Vec<usize> = (1..=n_blocks).map(start_of).collect();
        let n_entries = ends.last().copied().unwrap_or(0);
        let mut cols = Buffer::zeroed(n_entries);
        let mut tags = Buffer::zeroed(if E::TAGGED { n_entries } else { 0 });
        let slots = slots(&mut cols, &mut tags, &ends);
        let row_lengths = threads.map_with(
            slots.into_iter().enumerate().collect(),
            || (Vec::<E>::new(), RadixSort::default()),
            |(entries, radix), (block, slot)| {
                self.gather(&runs, block, entries);
                let sorted = radix.sort(entries, self.sort_from_bit..self.key_bits());
                self.emit(block, sorted, repeats, slot)
            },
        );
        drop(runs);
        let lengths: Vec<usize> = row_lengths.iter().map(|rows| rows.iter().sum()).collect();
        let nnz = lengths.iter().sum();
        let row_ptr = RowPtr::from_lengths(row_lengths.into_iter().flatten(), self.n_rows, nnz);
        if nnz < n_entries {
            (cols, tags) = close_gaps((cols, tags), &ends, &lengths, threads);
        }
        Sorted { row_ptr, cols, tags }
    }

    /// The block's entries from all runs, in the order they came.
    fn gather<E: Keyed>(&self, runs: &[Run], block: usize, entries: &mut Vec<E>) {
        entries.clear();
        for run in runs {
            let first = run.fine_block(block, self.shift);
            for fine in first..run.fine_block(block + 1, self.shift) {
                let range = run.starts[fine] as usize..run.starts[fine + 1] as usize;
                let row = ((fine - first) as u64) << run.shift;
                let tags = run.tags.get(range.clone()).unwrap_or_default();
                match &run.keys {
                    Keys::Short(keys) => {
                        let keys = keys[range].iter().map(|&key| u64::from(key));
                        self.rekey(keys, tags, run.col_bits, row, entries);
                    }
                    Keys::Long(keys) => {
                        self.rekey(keys[range].iter().copied(), tags, run.col_bits, row, entries);
                    }
                }
            }
        }
    }

    /// Turns keys of a run into keys of the grid.
    #[inline(always)]
    fn rekey<E: Keyed>(
        &self,
        keys: impl ExactSizeIterator<Item = u64>,
        tags: &[u32],
        col_bits: u32,
        first_row: u64,
        entries: &mut Vec<E>,
    ) {
        let col_mask = (1u64 << col_bits) - 1;
        let key = |key: u64| (first_row + (key >> col_bits)) << self.col_bits | key & col_mask;
        if E::TAGGED {
            entries.extend(keys.zip(tags).map(|(k, &tag)| E::new(key(k), tag)));
        } else {
            entries.extend(keys.map(|k| E::new(key(k), 0)));
        }
    }

    /// Writes a block's columns and tags to the front of its slot; returns its rows' lengths.
    fn emit<E: Keyed>(
        &self,
        block: usize,
        entries: &[E],
        repeats: Repeats,
        slot: Slot<'_>,
    ) -> Vec<usize> {
        let rows = (self.n_rows - (block << self.shift)).min(1 << self.shift);
        let mut row_lengths = vec![0; rows];
        let col_mask = (1u64 << self.col_bits) - 1;
        // `at` is the next free place, `begun` where the entry before it began.
        let (mut at, mut begun) = (0, 0);
        for (e, entry) in entries.iter().enumerate() {
            let key = entry.key();
            if repeats != Repeats::Keep && e > 0 && entries[e - 1].key() == key {
                continue;
            }
            if repeats == Repeats::Sum && e > begun + 1 {
                slot.tags[at - 1] = sum(&entries[begun..e]);
            }
            begun = e;
            row_lengths[(key >> self.col_bits) as usize] += 1;
            slot.cols[at] = (key & col_mask) as u32;
            if E::TAGGED {
                slot.tags[at] = entry.tag();
            }
            at += 1;
        }
        if repeats == Repeats::Sum && entries.len() > begun + 1 {
            slot.tags[at - 1] = sum(&entries[begun..]);
        }
        row_lengths
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

/// Copies the first `lengths[b]` entries of each block `b`, which end at `ends[b]` with what they
/// had no use for, to arrays of the right size.
fn close_gaps(
    loose: (Buffer<u32>, Buffer<u32>),
    ends: &[usize],
    lengths: &[usize],
    threads: &Threads,
) -> (Buffer<u32>, Buffer<u32>) {
    let new_ends: Vec<usize> = lengths
        .iter()
        .scan(0, |end, length| {
            *end += length;
            Some(*end)
        })
        .collect();
    let nnz = new_ends.last().copied().unwrap_or(0);
    let mut cols = Buffer::zeroed(nnz);
    let mut tags = Buffer::zeroed(if loose.1.is_empty() { 0 } else { nnz });
    let starts = std::iter::once(&0).chain(ends);
    let pieces = starts.zip(slots(&mut cols, &mut tags, &new_ends)).collect();
    threads.for_each(pieces, |(&start, slot): (&usize, Slot<'_>)| {
        slot.cols.copy_from_slice(&loose.0[start..][..slot.cols.len()]);
        if !slot.tags.is_empty() {
            slot.tags.copy_from_slice(&loose.1[start..][..slot.tags.len()]);
        }
    });
    (cols, tags)
}

/// The bits of the sum of the entries' values.
fn sum<E: Keyed>(entries: &[E]) -> u32 {
    let values = entries.iter().map(|entry| f64::from(f32::from_bits(entry.tag())));
    (values.sum::<f64>() as f32).to_bits()
}

/// Stable radix sort from the lowest digit up, or the standard library's for few entries.
struct RadixSort<E> {
    spare: Vec<E>,
    /// Where the next entry with each digit goes, for each pass.
    next: Vec<usize>,
}

impl<E> Default for RadixSort<E> {
    fn default() -> Self {
        RadixSort { spare: Vec::new(), next: Vec::new() }
    }
}

impl<E: Keyed> RadixSort<E> {
    /// The entries sorted by those bits of their keys.
    fn sort<'a>(&'a mut self, entries: &'a mut [E], key_bits: Range<u32>) -> &'a [E] {
        const FEW: usize = 256;
        const MAX_DIGIT_BITS: u32 = 11;
        if entries.len() < FEW {
            entries.sort_by_key(|entry| entry.key() >> key_bits.start);
            return entries;
        }
        if self.spare.len() < entries.len() {
            self.spare.resize(entries.len(), E::default());
        }
        let passes = key_bits.len().div_ceil(MAX_DIGIT_BITS as usize) as u32;
        let digit_bits = (key_bits.len() as u32).div_ceil(passes.max(1));
        self.count(entries, key_bits.start, passes, digit_bits);
        let (mut from, mut to) = (entries, &mut self.spare[..]);
        for pass in 0..passes {
            let next = &mut self.next[(pass << digit_bits) as usize..][..1 << digit_bits];
            scatter(from, to, next, key_bits.start + pass * digit_bits);
            let len = from.len();
            (from, to) = (&mut to[..len], from);
        }
        from
    }

    /// The digits of all passes in one look at the entries.
    fn count(&mut self, entries: &[E], low_bit: u32, passes: u32, digit_bits: u32) {
        self.next.clear();
        self.next.resize((passes << digit_bits) as usize, 0);
        let mask = (1 << digit_bits) - 1;
        for entry in entries {
            let mut key = entry.key() >> low_bit;
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

fn scatter<E: Keyed>(from: &[E], to: &mut [E], next: &mut [usize], low_bit: u32) {
    let mask = next.len() - 1;
    for entry in from {
        let next = &mut next[(entry.key() >> low_bit) as usize & mask];
        to[*next] = *entry;
        *next += 1;
    }
}
