//! [`Coo`]: an unsorted list of entries on its way to a [`Csr`], in parallel and in linear time.
//!
//! ```text
//!  chunks of entries        runs: each chunk sorted by row block      blocks, one after another
//!  (any order)              (counting sort, in the cache)             (radix sort, in the cache)
//!  ┌────────────┐           ┌──┬───┬─┬──┐
//!  │ (row, col) │   ──►     │ 0│ 1 │2│ 3│  ──►  block 0 of every run  ──►  rows 0 .. 2^s
//!  └────────────┘           └──┴───┴─┴──┘       block 1 of every run  ──►  rows 2^s .. 2·2^s
//! ```
//! A run is cut into at most 4096 blocks of `2^shift` rows, by the largest row *it* holds: neither
//! the number of rows nor the number of entries need be known beforehand, and a finer run nests in
//! a coarser one. Within its block an entry is the key `row << col_bits | col`, mostly four bytes:
//! what limits the speed is moving entries, and memory that the system must clear first. Both sorts
//! are stable, so entries with the same place keep their order, and the result depends on the
//! entries alone, not on chunks or threads.
//!
//! An entry may carry a 32-bit tag: the bits of a value, or its position in the caller's list.

mod blocks;
mod gaps;
mod runs;

use std::ops::Range;

use crate::csr::{ColumnOrder, Csr};
use crate::threads::ranges;
use crate::{Buffer, Error, Result, Threads};
use runs::{Run, RunSort, Slices, block_bits};

/// How many entries a chunk should hold: 4 MiB of them, and the keys made of them fill a huge page.
pub const CHUNK_ENTRIES: usize = 1 << 19;

/// A chunk of few entries, and into how many of them a list is cut that would have fewer else: for
/// threads to share.
const FEW_ENTRIES: usize = 1 << 13;
const CHUNKS: usize = 16;

/// How many entries a chunk should hold of so many.
pub(crate) fn chunk_entries(n_entries: usize) -> usize {
    (n_entries / CHUNKS).clamp(FEW_ENTRIES, CHUNK_ENTRIES)
}

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
    #[inline]
    pub fn push(&mut self, row: u32, col: u32) {
        self.places.push([row, col]);
    }

    /// Adds an entry with its tag.
    #[inline]
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
    /// One stays, its value the sum of all, added in the order they came.
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
    block_bits: u32,
}

impl Coo {
    /// An empty list whose entries will carry `tags`.
    pub fn new(tags: Tags) -> Self {
        Coo::expecting(usize::MAX, tags)
    }

    /// The same, of so many entries.
    pub(crate) fn expecting(n_entries: usize, tags: Tags) -> Self {
        let block_bits = block_bits(n_entries);
        Coo { runs: Vec::new(), tags, columns: ColumnOrder::Unsorted, block_bits }
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
        self.extend_with(items, threads, || (), |(), item, chunk| fill(item, chunk))
    }

    /// As [`Coo::extend`], with scratch memory that each thread makes once.
    ///
    /// # Errors
    /// The first item's that failed.
    pub fn extend_with<T: Send, S>(
        &mut self,
        items: Vec<T>,
        threads: &Threads,
        scratch: impl Fn() -> S + Sync,
        fill: impl Fn(&mut S, T, &mut Chunk) -> Result<()> + Sync,
    ) -> Result<()> {
        let make = |(own, chunk, sort): &mut (S, Chunk, RunSort), item| {
            chunk.places.clear();
            chunk.tags.clear();
            fill(own, item, chunk)?;
            let tagged = if self.tags == Tags::Absent { 0 } else { chunk.places.len() };
            assert_eq!(chunk.tags.len(), tagged, "entries carry {:?} tags", self.tags);
            sort.run(&*chunk)
        };
        let scratch = || (scratch(), Chunk::default(), RunSort::new(self.block_bits));
        self.runs.extend(threads.try_map_with(items, scratch, make)?);
        Ok(())
    }

    /// The list with one entry per position of the slices.
    ///
    /// # Errors
    /// When the slices differ in length, or the system has no memory for the list.
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
        let tags = if values.is_some() { Tags::Values } else { Tags::Absent };
        let mut coo = Coo::expecting(rows.len(), tags);
        let make = |sort: &mut RunSort, range: Range<usize>| {
            let values = values.map(|values| &values[range.clone()]);
            sort.run(&Slices { rows: &rows[range.clone()], cols: &cols[range], values })
        };
        let chunks = ranges(rows.len(), chunk_entries(rows.len()));
        coo.runs = threads.try_map_with(chunks, || RunSort::new(coo.block_bits), make)?;
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
    /// When an entry is outside `extent`, the extent has more than `u32::MAX` rows or columns, or
    /// the system has no memory for the matrix.
    ///
    /// # Panics
    /// When asked to sum entries that carry no values.
    pub fn into_csr(self, extent: Extent, repeats: Repeats, threads: &Threads) -> Result<Csr> {
        assert!(repeats != Repeats::Sum || self.tags == Tags::Values, "only values can be summed");
        let [n_rows, n_cols] = self.extent(extent)?;
        // Row lengths, starts and ends on the way, and the matrix itself.
        let tags = if self.tags == Tags::Absent { 0 } else { size_of::<u32>() };
        Buffer::<u8>::ask(
            (n_rows as u128) * 4 * size_of::<usize>() as u128
                + self.len() as u128 * (size_of::<u32>() + tags) as u128,
        )?;
        let sorted = blocks::sort(self.runs, [n_rows, n_cols], (self.columns, repeats), threads);
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
