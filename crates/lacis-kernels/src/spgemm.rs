//! SpGEMM: `C = A·B` of sparse matrices, row by row (Gustavson, "Two Fast Algorithms for Sparse
//! Matrices", 1978).
//!
//! ```text
//!  for each row i:  for each a_il, for each b_lj:  c_ij += a_il·b_lj
//!      sums in a hash table, sorted at the end; or, for a long row, in an array of all columns,
//!      with a byte for each that was met, read in order
//! ```
//! An entry is stored wherever some product is, even if they cancel; none repeats, columns ascend.
//!
//! # Parallelism
//! A thread does whole rows; slices of about equal work follow from the matrices alone.
//! # Accuracy
//! Products are added in the order of A's entries, then B's.
//! # Memory
//! The result twice, with room for as many entries as its rows could have; and for each thread a
//! number and a byte for each column.

// Bodies that `per_isa!` compiles need not multiply and add in one.
#![allow(clippy::extra_unused_type_parameters)]

use std::ops::Range;

use lacis_core::error::same_size;
use lacis_core::threads::split_at_ends;
use lacis_core::{Buffer, Csr, CsrParts, CsrView, Lent, Result, RowPtr, Threads};

use crate::isa::{Arith, Isa, per_isa};

/// Products of a slice.
const SLICE_PRODUCTS: usize = 1 << 18;
/// A row of more products than a 32nd of the columns looks at a byte of every column instead of
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
        let isa = Isa::best();
        let pieces = threads.try_map_with(rows, Scratch::default, |scratch, rows| {
            let most = rows.clone().map(|i| products(a, b, i).min(b.n_cols)).sum();
            let mut piece = Piece::new(most, threads)?;
            rows.for_each(|i| scratch.row((isa, self.sums), (a, b), i, &mut piece));
            Ok(piece)
        })?;
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
struct Piece<'t> {
    lengths: Vec<u32>,
    /// Of as many entries as there can be, the first `len`.
    cols: Lent<'t, u32>,
    values: Lent<'t, f32>,
    len: usize,
}

impl<'t> Piece<'t> {
    /// Room for so many entries, and for what is written past the last.
    fn new(most: usize, threads: &'t Threads) -> Result<Self> {
        let (cols, values) = (threads.lend(most + BLOCK)?, threads.lend(most + BLOCK)?);
        Ok(Piece { lengths: Vec::new(), cols, values, len: 0 })
    }
}

/// Columns that are looked at together when a row is read from its array.
const BLOCK: usize = 16;

/// What a thread keeps from row to row.
#[derive(Default)]
struct Scratch {
    table: Vec<(u32, f32)>,
    found: Vec<u64>,
    sums: Vec<f32>,
    met: Vec<u8>,
}

impl Scratch {
    fn row(
        &mut self,
        (isa, sums): (Isa, Sums),
        (a, b): (CsrView<'_>, CsrView<'_>),
        i: usize,
        to: &mut Piece<'_>,
    ) {
        let work = products(a, b, i);
        let long = work > b.n_cols / LONG_ROW;
        let (cols, values) = (&mut to.cols[to.len..], &mut to.values[to.len..]);
        let length = match sums {
            Sums::Table => self.by_table((a, b), (i, work.min(b.n_cols)), (cols, values)),
            Sums::ByLength if !long => {
                self.by_table((a, b), (i, work.min(b.n_cols)), (cols, values))
            }
            Sums::Array | Sums::ByLength => {
                let columns = b.n_cols.next_multiple_of(BLOCK);
                self.sums.resize(columns, 0.0);
                self.met.resize(columns, 0);
                let (sums, met) = (&mut self.sums[..], &mut self.met[..]);
                array_row(isa, ArrayRow { a, b, i, sums, met, cols, values })
            }
        };
        to.lengths.push(length as u32);
        to.len += length;
    }

    /// In a table with room for twice as many columns as the row can have; returns how many.
    fn by_table(
        &mut self,
        (a, b): (CsrView<'_>, CsrView<'_>),
        (i, most): (usize, usize),
        (cols, values): (&mut [u32], &mut [f32]),
    ) -> usize {
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
        for (found, (col, value)) in self.found.iter().zip(cols.iter_mut().zip(values)) {
            (*col, *value) = ((found >> 32) as u32, f32::from_bits(*found as u32));
        }
        self.found.len()
    }
}

/// A row in an array of all columns, which is zero again afterwards.
struct ArrayRow<'a> {
    a: CsrView<'a>,
    b: CsrView<'a>,
    i: usize,
    sums: &'a mut [f32],
    /// 1 for columns that were met. A bit would do, but to set one waits for the one before it in
    /// the same word.
    met: &'a mut [u8],
    cols: &'a mut [u32],
    values: &'a mut [f32],
}

#[cfg(target_arch = "x86_64")]
use wide::array_row as array_row_wide;
per_isa!(fn array_row<[], []>(row: ArrayRow<'_>) -> usize = array_row_body,
    avx512 = array_row_wide);

/// Returns how many entries there are. All columns of a block are written, those that were met over
/// those that were not.
#[inline(always)]
fn array_row_body<M: Arith>(mut row: ArrayRow<'_>) -> usize {
    row.add_products();
    let ArrayRow { sums, met, cols, values, .. } = row;
    let mut at = 0;
    let blocks = met.as_chunks_mut::<BLOCK>().0.iter_mut().zip(sums.as_chunks_mut::<BLOCK>().0);
    for (block, (met, sums)) in blocks.enumerate() {
        if *met == [0; BLOCK] {
            continue;
        }
        for l in 0..BLOCK {
            (cols[at], values[at]) = ((block * BLOCK + l) as u32, sums[l]);
            at += usize::from(met[l]);
        }
        (*met, *sums) = ([0; BLOCK], [0.0; BLOCK]);
    }
    at
}

impl ArrayRow<'_> {
    #[inline(always)]
    fn add_products(&mut self) {
        let ArrayRow { sums, met, .. } = self;
        let met = &mut met[..sums.len()];
        for_each_product(self.a, self.b, self.i, |j, product| {
            met[j as usize] = 1;
            sums[j as usize] += product;
        });
    }
}

/// With AVX-512: a block's columns and sums are brought together in registers.
#[cfg(target_arch = "x86_64")]
mod wide {
    use std::arch::x86_64::{
        __m512i, _mm_test_epi8_mask, _mm512_add_epi32, _mm512_maskz_compress_epi32,
        _mm512_set1_epi32,
    };

    use bytemuck::cast;

    use super::{ArrayRow, BLOCK};
    use crate::isa::Arith;

    /// As [`super::array_row_body`].
    #[target_feature(enable = "avx512f,avx512vl,avx512bw,avx512dq,avx2,fma")]
    pub(super) fn array_row<M: Arith>(mut row: ArrayRow<'_>) -> usize {
        row.add_products();
        let ArrayRow { sums, met, cols, values, .. } = row;
        let lanes: __m512i = cast(std::array::from_fn::<u32, BLOCK, _>(|lane| lane as u32));
        let mut at = 0;
        let blocks = met.as_chunks_mut::<BLOCK>().0.iter_mut().zip(sums.as_chunks_mut::<BLOCK>().0);
        for (block, (met, sums)) in blocks.enumerate() {
            let found = _mm_test_epi8_mask(cast(*met), cast(*met));
            let numbers = _mm512_add_epi32(lanes, _mm512_set1_epi32((block * BLOCK) as i32));
            let numbers: [u32; BLOCK] = cast(_mm512_maskz_compress_epi32(found, numbers));
            let found_sums: [f32; BLOCK] = cast(_mm512_maskz_compress_epi32(found, cast(*sums)));
            cols[at..][..BLOCK].copy_from_slice(&numbers);
            values[at..][..BLOCK].copy_from_slice(&found_sums);
            at += found.count_ones() as usize;
            (*met, *sums) = ([0; BLOCK], [0.0; BLOCK]);
        }
        at
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
fn assembled(pieces: Vec<Piece<'_>>, n_cols: usize, threads: &Threads) -> Result<Csr> {
    let ends: Vec<usize> = pieces
        .iter()
        .scan(0, |end, piece| {
            *end += piece.len;
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
    threads.for_each(items, |((piece, cols), values): ((Piece<'_>, &mut [u32]), &mut [f32])| {
        cols.copy_from_slice(&piece.cols[..piece.len]);
        values.copy_from_slice(&piece.values[..piece.len]);
    });
    let row_ptr = RowPtr::Wide(ptr.into());
    Csr::new(CsrParts { n_cols, row_ptr, cols, values: Some(values), order: None }, threads)
}
