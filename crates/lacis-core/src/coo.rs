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
//! nests in a coarser one. Both sorts are stable, so entries with the same place keep their order,
//! and the result depends on the entries alone, not on chunks or threads.
//!
//! An entry may carry a 32-bit tag: the bits of a value, or its position in the caller's list.

use crate::csr::{ColumnOrder, Csr, RowPtr};
use crate::threads::{ranges, split_at_ends};
use crate::{Buffer, Error, Result, Threads};

/// How many entries a chunk should hold: 4 MiB of them, what a core's share of L2 and L3 can sort.
pub const CHUNK_ENTRIES: usize = 1 << 19;
const MAX_BLOCKS: u32 = 1 << 10;
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
        Coo {
            runs: Vec::new(),
            tags,
            columns: ColumnOrder::Unsorted,
        }
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
            let tagged = if self.tags == Tags::Absent {
                0
            } else {
                chunk.places.len()
            };
            assert_eq!(
                chunk.tags.len(),
                tagged,
                "entries carry {:?} tags",
                self.tags
            );
            Ok(sort.run(chunk))
        };
        self.runs
            .extend(threads.try_map_with(items, Default::default, make)?);
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
        let mut coo = Coo::new(if values.is_some() {
            Tags::Values
        } else {
            Tags::Absent
        });
        coo.extend(
            ranges(rows.len(), CHUNK_ENTRIES),
            threads,
            |range, chunk| {
                let places = rows[range.clone()].iter().zip(&cols[range.clone()]);
                chunk.places.extend(places.map(|(&row, &col)| [row, col]));
                chunk.tags.extend(
                    values
                        .iter()
                        .flat_map(|v| &v[range.clone()])
                        .map(|v| v.to_bits()),
                );
                Ok(())
            },
        )?;
        Ok(coo)
    }

    /// Says that entries of the same row come with ascending columns, which saves sorting them.
    pub(crate) fn with_ascending_columns(mut self) -> Self {
        self.columns = ColumnOrder::Sorted;
        self
    }

    /// How many entries there are.
    pub fn len(&self) -> usize {
        self.runs.iter().map(|run| run.places.len()).sum()
    }

    /// Whether there are no entries.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The largest row and the largest column met.
    pub fn largest(&self) -> Option<Place> {
        let [row, col] = [0, 1].map(|axis| self.runs.iter().map(|run| run.largest[axis]).max());
        if self.is_empty() {
            None
        } else {
            row.zip(col).map(|(row, col)| [row, col])
        }
    }

    /// The matrix, its columns ascending within each row.
    ///
    /// # Errors
    /// When an entry is outside `extent`, or the extent has more than `u32::MAX` rows or columns.
    ///
    /// # Panics
    /// When asked to sum entries that carry no values.
    pub fn into_csr(self, extent: Extent, repeats: Repeats, threads: &Threads) -> Result<Csr> {
        assert!(
            repeats != Repeats::Sum || self.tags == Tags::Values,
            "only values can be summed"
        );
        let [n_rows, n_cols] = self.extent(extent)?;
        let (tags, n_entries) = (self.tags, self.len());
        let grid = Grid::new(&self, n_rows, n_cols, n_entries);
        let blocks = match tags {
            Tags::Absent => grid.sort_blocks::<u64>(self.runs, repeats, threads),
            _ => grid.sort_blocks::<Tagged>(self.runs, repeats, threads),
        };
        Ok(join(blocks, n_rows, n_cols, tags, threads))
    }

    fn extent(&self, extent: Extent) -> Result<[usize; 2]> {
        let largest = self.largest();
        let size = |axis: usize, what, given: Option<usize>| {
            let needed = largest.map_or(0, |place| place[axis] as usize + 1);
            let size = given.unwrap_or(needed);
            check_index_count(what, size)?;
            if needed > size {
                let (index, bound) = (needed as u64 - 1, size as u64);
                return Err(Error::Index {
                    op: "csr",
                    what,
                    index,
                    at: 0,
                    bound,
                });
            }
            Ok(size)
        };
        Ok([
            size(0, "row", extent.n_rows)?,
            size(1, "column", extent.n_cols)?,
        ])
    }
}

/// Rows and columns are `u32`, and their number must be one too.
pub(crate) fn check_index_count(what: &'static str, count: usize) -> Result<()> {
    if u32::try_from(count).is_ok() {
        return Ok(());
    }
    let what = if what == "row" {
        "number of rows"
    } else {
        "number of columns"
    };
    Err(Error::Overflow {
        what,
        value: count as u128,
        limit: u128::from(u32::MAX),
    })
}

/// A chunk sorted by blocks of `2^shift` rows; block `b` is `starts[b]..starts[b + 1]`.
struct Run {
    shift: u32,
    largest: Place,
    starts: Vec<u32>,
    places: Buffer<Place>,
    tags: Buffer<u32>,
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
        let mut largest = [0, 0];
        for place in &chunk.places {
            largest = [largest[0].max(place[0]), largest[1].max(place[1])];
        }
        let shift = bits(largest[0]).saturating_sub(MAX_BLOCKS.trailing_zeros());
        let starts = self.count(chunk, shift, (largest[0] >> shift) as usize + 1);
        let mut places = Buffer::zeroed(chunk.places.len());
        let mut tags = Buffer::zeroed(chunk.tags.len());
        self.scatter(chunk, shift, places.make_mut(), tags.make_mut());
        Run {
            shift,
            largest,
            starts,
            places,
            tags,
        }
    }

    fn count(&mut self, chunk: &Chunk, shift: u32, n_blocks: usize) -> Vec<u32> {
        assert!(
            u32::try_from(chunk.places.len()).is_ok(),
            "a chunk's entries are counted in u32"
        );
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

    fn scatter(&mut self, chunk: &Chunk, shift: u32, places: &mut [Place], tags: &mut [u32]) {
        let mut position = |place: &Place| {
            let next = &mut self.next[(place[0] >> shift) as usize];
            *next += 1;
            *next as usize - 1
        };
        if chunk.tags.is_empty() {
            chunk
                .places
                .iter()
                .for_each(|place| places[position(place)] = *place);
        } else {
            for (place, tag) in chunk.places.iter().zip(&chunk.tags) {
                let at = position(place);
                places[at] = *place;
                tags[at] = *tag;
            }
        }
    }
}

/// Something to sort by its key, `row << col_bits | col` with the row counted within its block.
trait Keyed: Copy + Default + Send {
    fn new(key: u64, tag: u32) -> Self;
    fn key(self) -> u64;
    fn tag(self) -> u32;
}

impl Keyed for u64 {
    fn new(key: u64, _: u32) -> Self {
        key
    }
    fn key(self) -> u64 {
        self
    }
    fn tag(self) -> u32 {
        0
    }
}

#[derive(Clone, Copy, Default)]
struct Tagged {
    key: u64,
    tag: u32,
}

impl Keyed for Tagged {
    fn new(key: u64, tag: u32) -> Self {
        Tagged { key, tag }
    }
    fn key(self) -> u64 {
        self.key
    }
    fn tag(self) -> u32 {
        self.tag
    }
}

/// How the finished matrix is cut into blocks, and how an entry's key is made.
struct Grid {
    n_rows: usize,
    /// A block has `2^shift` rows: at least those of the coarsest run.
    shift: u32,
    col_bits: u32,
    /// The lowest key bit to sort by: columns that come sorted are left out.
    sort_from_bit: u32,
}

/// The entries of one block, sorted.
struct Block {
    row_lengths: Vec<usize>,
    cols: Vec<u32>,
    tags: Vec<u32>,
}

impl Grid {
    fn new(coo: &Coo, n_rows: usize, n_cols: usize, n_entries: usize) -> Self {
        let row_bits = bits((n_rows.max(1) - 1) as u32);
        let wanted_blocks = (n_entries / BLOCK_ENTRIES).next_power_of_two();
        let coarsest = coo.runs.iter().map(|run| run.shift).max().unwrap_or(0);
        let shift = row_bits
            .saturating_sub(wanted_blocks.trailing_zeros())
            .max(coarsest);
        let col_bits = bits((n_cols.max(1) - 1) as u32);
        let sorted = coo.columns == ColumnOrder::Sorted;
        Grid {
            n_rows,
            shift,
            col_bits,
            sort_from_bit: if sorted { col_bits } else { 0 },
        }
    }

    fn sort_blocks<E: Keyed>(
        &self,
        runs: Vec<Run>,
        repeats: Repeats,
        threads: &Threads,
    ) -> Vec<Block> {
        let n_blocks = self.n_rows.div_ceil(1 << self.shift);
        threads.map_with(
            (0..n_blocks).collect(),
            || (Vec::<E>::new(), Vec::<E>::new()),
            |(entries, spare), block| {
                self.gather(&runs, block, entries);
                self.sort(entries, spare);
                self.emit(block, entries, repeats)
            },
        )
    }

    /// The block's entries from all runs, in the order they came.
    fn gather<E: Keyed>(&self, runs: &[Run], block: usize, entries: &mut Vec<E>) {
        entries.clear();
        let first_row = (block << self.shift) as u32;
        for run in runs {
            let last = run.starts.len() - 1;
            let start_of = |block: usize| {
                block
                    .saturating_mul(1 << (self.shift - run.shift))
                    .min(last)
            };
            let range =
                run.starts[start_of(block)] as usize..run.starts[start_of(block + 1)] as usize;
            let key = |place: &Place| {
                u64::from(place[0] - first_row) << self.col_bits | u64::from(place[1])
            };
            let places = &run.places[range.clone()];
            if run.tags.is_empty() {
                entries.extend(places.iter().map(|place| E::new(key(place), 0)));
            } else {
                let tagged = places.iter().zip(&run.tags[range]);
                entries.extend(tagged.map(|(place, tag)| E::new(key(place), *tag)));
            }
        }
    }

    /// Stable radix sort from the lowest digit up, or the standard library's for few entries.
    fn sort<E: Keyed>(&self, entries: &mut Vec<E>, spare: &mut Vec<E>) {
        const FEW: usize = 256;
        const MAX_DIGIT_BITS: u32 = 11;
        let from = self.sort_from_bit;
        if entries.len() < FEW {
            return entries.sort_by_key(|entry| entry.key() >> from);
        }
        let key_bits = self.shift.min(bits((self.n_rows - 1) as u32)) + self.col_bits - from;
        let passes = key_bits.div_ceil(MAX_DIGIT_BITS);
        let digit_bits = if passes == 0 {
            0
        } else {
            key_bits.div_ceil(passes)
        };
        for pass in 0..passes {
            radix_pass(entries, spare, from + pass * digit_bits, digit_bits);
            std::mem::swap(entries, spare);
        }
    }

    fn emit<E: Keyed>(&self, block: usize, entries: &[E], repeats: Repeats) -> Block {
        let rows = (self.n_rows - (block << self.shift)).min(1 << self.shift);
        let tagged = size_of::<E>() > size_of::<u64>();
        let mut out = Block {
            row_lengths: vec![0; rows],
            cols: Vec::with_capacity(entries.len()),
            tags: Vec::with_capacity(if tagged { entries.len() } else { 0 }),
        };
        let col_mask = (1u64 << self.col_bits) - 1;
        let mut rest = entries;
        while let Some(first) = rest.first() {
            let same = match repeats {
                Repeats::Keep => 1,
                _ => rest
                    .iter()
                    .take_while(|entry| entry.key() == first.key())
                    .count(),
            };
            out.row_lengths[(first.key() >> self.col_bits) as usize] += 1;
            out.cols.push((first.key() & col_mask) as u32);
            if tagged {
                out.tags.push(if repeats == Repeats::Sum {
                    sum(&rest[..same])
                } else {
                    first.tag()
                });
            }
            rest = &rest[same..];
        }
        out.cols.shrink_to_fit();
        out.tags.shrink_to_fit();
        out
    }
}

/// The bits of the sum of the entries' values.
fn sum<E: Keyed>(entries: &[E]) -> u32 {
    let values = entries
        .iter()
        .map(|entry| f64::from(f32::from_bits(entry.tag())));
    (values.sum::<f64>() as f32).to_bits()
}

fn radix_pass<E: Keyed>(from: &[E], to: &mut Vec<E>, low_bit: u32, digit_bits: u32) {
    let digit = |entry: &E| (entry.key() >> low_bit) as usize & ((1 << digit_bits) - 1);
    let mut next = vec![0usize; 1 << digit_bits];
    for entry in from {
        next[digit(entry)] += 1;
    }
    let mut start = 0;
    for count in &mut next {
        start += std::mem::replace(count, start);
    }
    to.clear();
    to.resize(from.len(), E::default());
    for entry in from {
        let next = &mut next[digit(entry)];
        to[*next] = *entry;
        *next += 1;
    }
}

/// Puts the blocks one after another.
fn join(blocks: Vec<Block>, n_rows: usize, n_cols: usize, tags: Tags, threads: &Threads) -> Csr {
    let ends: Vec<usize> = blocks
        .iter()
        .scan(0, |end, block| {
            *end += block.cols.len();
            Some(*end)
        })
        .collect();
    let nnz = ends.last().copied().unwrap_or(0);
    let lengths = blocks.iter().flat_map(|block| &block.row_lengths).copied();
    let row_ptr = RowPtr::from_lengths(lengths, n_rows, nnz);

    let mut cols = Buffer::zeroed(nnz);
    let mut carried = Buffer::<u32>::zeroed(if tags == Tags::Absent { 0 } else { nnz });
    let col_pieces = split_at_ends(cols.make_mut(), &ends);
    let tag_ends = if tags == Tags::Absent {
        vec![0; ends.len()]
    } else {
        ends
    };
    let tag_pieces = split_at_ends(carried.make_mut(), &tag_ends);
    let pieces = blocks.into_iter().zip(col_pieces).zip(tag_pieces).collect();
    threads.for_each(
        pieces,
        |((block, cols), tags): ((Block, &mut [u32]), &mut [u32])| {
            cols.copy_from_slice(&block.cols);
            tags.copy_from_slice(&block.tags);
        },
    );
    let csr = Csr::trusted(n_cols, row_ptr, cols, ColumnOrder::Sorted);
    match tags {
        Tags::Absent => csr,
        Tags::Values => csr.trusting_values(carried.reinterpreted()),
        Tags::Order => csr.trusting_order(carried),
    }
}
