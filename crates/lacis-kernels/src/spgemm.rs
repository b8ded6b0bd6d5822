//! SpGEMM: `C = A·B` of sparse matrices, row by row (Gustavson, "Two Fast Algorithms for Sparse
//! Matrices", 1978).
//!
//! ```text
//!  for each row i:  for each a_il, for each b_lj:  c_ij += a_il·b_lj
//!      sums in a hash table, sorted at the end; or, for a long row, in an array of all columns,
//!      with a bit for each that was met, read in order
//! ```
//! An entry is stored wherever some product is, even if they cancel; none repeats, columns ascend.
//!
//! # Parallelism
//! A thread does whole rows; slices of about equal work follow from the matrices alone.
//! # Accuracy
//! Products are added in the order of A's entries, then B's.
//! # Memory
//! The result twice, and for each thread a number and a bit for each column.

use std::ops::Range;

use lacis_core::error::same_size;
use lacis_core::threads::split_at_ends;
use lacis_core::{Buffer, Csr, CsrParts, CsrView, Result, RowPtr, Threads};

/// Products of a slice.
const SLICE_PRODUCTS: usize = 1 << 18;
/// A row of more products than a 32nd of the columns looks at a bit of every column instead of
/// sorting.
const LONG_ROW: usize = 32;

/// Where a row's sums are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sums {
    Table,
    Array,
    ByLength,
}

/// One way to compute it.
#[derive(Debug)]
pub struct Kernel {
    /// `spgemm.csr.hash`: the operator, the format, where sums are kept.
    pub name: &'static str,
    sums: Sums,
}

/// Every kernel there is; all give the same bits. The first is the one to begin with.
pub static KERNELS: &[Kernel] = &[
    Kernel { name: "spgemm.csr.mixed", sums: Sums::ByLength },
    Kernel { name: "spgemm.csr.hash", sums: Sums::Table },
    Kernel { name: "spgemm.csr.dense", sums: Sums::Array },
];

impl Kernel {
    /// `A·B`. The result always has values; the caller's order of entries does not carry over.
    ///
    /// # Errors
    /// When `b` has not one row per column of `a`, or the system has no memory for the result.
    pub fn run(&self, a: CsrView<'_>, b: CsrView<'_>, threads: &Threads) -> Result<Csr> {
        same_size("spgemm", "rows of b", a.n_cols, b.n_rows())?;
        let rows = slices(a, b);
        let pieces = threads.map_with(rows, Scratch::default, |scratch, rows| {
            let mut piece = Piece::default();
            rows.for_each(|i| scratch.row(self.sums, (a, b), i, &mut piece));
            piece
        });
        assembled(pieces, b.n_cols, threads)
    }
}

/// `A·B` with the kernel to begin with.
///
/// # Errors
/// As [`Kernel::run`].
pub fn spgemm(a: CsrView<'_>, b: CsrView<'_>, threads: &Threads) -> Result<Csr> {
    KERNELS[0].run(a, b, threads)
}

/// Number of products of row `i`.
fn products(a: CsrView<'_>, b: CsrView<'_>, i: usize) -> usize {
    a.row_cols(i).iter().map(|&l| b.row(l as usize).len()).sum()
}

/// Rows of about equal work, at least one in each slice.
fn slices(a: CsrView<'_>, b: CsrView<'_>) -> Vec<Range<usize>> {
    let (mut slices, mut start, mut work) = (Vec::new(), 0, 0);
    for i in 0..a.n_rows() {
        work += products(a, b, i) + 1;
        if work >= SLICE_PRODUCTS || i + 1 == a.n_rows() {
            slices.push(start..i + 1);
            (start, work) = (i + 1, 0);
        }
    }
    slices
}

/// Some rows of the result.
#[derive(Default)]
struct Piece {
    lengths: Vec<u32>,
    cols: Vec<u32>,
    values: Vec<f32>,
}

/// What a thread keeps from row to row.
#[derive(Default)]
struct Scratch {
    table: Vec<(u32, f32)>,
    found: Vec<u64>,
    sums: Vec<f32>,
    met: Vec<u64>,
}

impl Scratch {
    fn row(&mut self, sums: Sums, (a, b): (CsrView<'_>, CsrView<'_>), i: usize, to: &mut Piece) {
        let before = to.cols.len();
        let work = products(a, b, i);
        let long = work > b.n_cols / LONG_ROW;
        match sums {
            Sums::Array => self.by_array((a, b), i, to),
            Sums::ByLength if long => self.by_array((a, b), i, to),
            Sums::ByLength | Sums::Table => self.by_table((a, b), (i, work.min(b.n_cols)), to),
        }
        to.lengths.push((to.cols.len() - before) as u32);
    }

    /// In a table with room for twice as many columns as the row can have.
    fn by_table(
        &mut self,
        (a, b): (CsrView<'_>, CsrView<'_>),
        (i, most): (usize, usize),
        to: &mut Piece,
    ) {
        /// No column has this number: there are fewer columns than `u32::MAX`.
        const FREE: u32 = u32::MAX;
        let bits = (2 * most.max(2)).next_power_of_two().trailing_zeros();
        self.table.clear();
        self.table.resize(1 << bits, (FREE, 0.0));
        let (table, mask) = (&mut self.table[..], (1usize << bits) - 1);
        for_each_product(a, b, i, |j, product| {
            let mut at = (j.wrapping_mul(0x9e37_79b1) >> (u32::BITS - bits)) as usize & mask;
            while table[at].0 != j && table[at].0 != FREE {
                at = (at + 1) & mask;
            }
            table[at] = (j, table[at].1 + product);
        });
        self.found.clear();
        let taken = table.iter().filter(|(j, _)| *j != FREE);
        self.found.extend(taken.map(|&(j, sum)| u64::from(j) << 32 | u64::from(sum.to_bits())));
        self.found.sort_unstable();
        to.cols.extend(self.found.iter().map(|found| (found >> 32) as u32));
        to.values.extend(self.found.iter().map(|found| f32::from_bits(*found as u32)));
    }

    /// In an array of all columns, which is zero again afterwards.
    fn by_array(&mut self, (a, b): (CsrView<'_>, CsrView<'_>), i: usize, to: &mut Piece) {
        self.sums.resize(b.n_cols, 0.0);
        self.met.resize(b.n_cols.div_ceil(64), 0);
        let (sums, met) = (&mut self.sums[..], &mut self.met[..]);
        for_each_product(a, b, i, |j, product| {
            met[j as usize / 64] |= 1 << (j % 64);
            sums[j as usize] += product;
        });
        for (word, met) in met.iter_mut().enumerate() {
            while *met != 0 {
                let j = word * 64 + met.trailing_zeros() as usize;
                to.cols.push(j as u32);
                to.values.push(std::mem::take(&mut sums[j]));
                *met &= *met - 1;
            }
        }
    }
}

/// The products of row `i` in order: column, `a_il·b_lj`.
#[inline(always)]
fn for_each_product(a: CsrView<'_>, b: CsrView<'_>, i: usize, mut f: impl FnMut(u32, f32)) {
    for e in a.row(i) {
        let (left, row) = (a.value(e), b.row(a.cols[e] as usize));
        let cols = &b.cols[row.clone()];
        match b.values {
            None => cols.iter().for_each(|&j| f(j, left)),
            Some(values) => cols.iter().zip(&values[row]).for_each(|(&j, v)| f(j, left * v)),
        }
    }
}

/// The pieces one after another.
fn assembled(pieces: Vec<Piece>, n_cols: usize, threads: &Threads) -> Result<Csr> {
    let ends: Vec<usize> = pieces
        .iter()
        .scan(0, |end, piece| {
            *end += piece.cols.len();
            Some(*end)
        })
        .collect();
    let nnz = ends.last().copied().unwrap_or(0);
    let mut ptr = vec![0u64];
    let mut end = 0;
    for length in pieces.iter().flat_map(|piece| &piece.lengths) {
        end += u64::from(*length);
        ptr.push(end);
    }
    let (mut cols, mut values) = (Buffer::try_zeroed(nnz)?, Buffer::try_zeroed(nnz)?);
    let cols_of = split_at_ends(cols.make_mut(), &ends);
    let values_of = split_at_ends(values.make_mut(), &ends);
    let items = pieces.into_iter().zip(cols_of).zip(values_of).collect();
    threads.for_each(items, |((piece, cols), values): ((Piece, &mut [u32]), &mut [f32])| {
        cols.copy_from_slice(&piece.cols);
        values.copy_from_slice(&piece.values);
    });
    let row_ptr = RowPtr::Wide(ptr.into());
    Csr::new(CsrParts { n_cols, row_ptr, cols, values: Some(values), order: None }, threads)
}
