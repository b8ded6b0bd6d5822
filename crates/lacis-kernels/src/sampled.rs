//! Some columns of a sparse matrix: what a product of a few pairs, `Σ_j A_:j · x_j`, is made of.
//!
//! ```text
//!   norms of the rows of x, of the columns of A     ─► a score per pair
//!   a factor per column, 0 where it is left out     ─► a smaller matrix, with the factors in it
//! ```
//! Any kernel of [`crate::spmm`] multiplies with the smaller matrix. Nothing is sorted: a matrix by
//! rows is read once, and the columns that stay keep their order. A column of very many entries may
//! stay in some [`Bands`] of rows and be left out in others.
//!
//! # Parallelism
//! Rows in slices of about equal numbers of entries, cut by the matrix alone.
//! # Memory
//! What stays, twice while it is put together.

use lacis_core::error::same_size;
use lacis_core::threads::{ranges, split_at_ends};
use lacis_core::{Buffer, Csr, CsrParts, CsrView, Result, RowPtr, Threads};

use crate::isa::{Arith, Isa, per_isa};
use crate::lanes::LANES;
use crate::matrix::Mat;

/// Rows whose norms one item computes.
const NORM_ROWS: usize = 1 << 10;
/// Entries of an item.
const ITEM_ENTRIES: usize = 1 << 17;
/// Parts in which columns are summed up: fixed, so that sums are the same for any threads.
const PARTS: usize = 4;

/// `‖x_j‖` of every row.
///
/// # Errors
/// When there is not one result per row.
pub fn row_norms(isa: Isa, x: Mat<'_>, norms: &mut [f32], threads: &Threads) -> Result<()> {
    same_size("row norms", "number of norms", x.n_rows(), norms.len())?;
    let items: Vec<_> = norms.chunks_mut(NORM_ROWS).enumerate().collect();
    threads.for_each(items, |(at, norms)| {
        norms_of(isa, Norms { x, first: at * NORM_ROWS, norms });
    });
    Ok(())
}

/// `‖x_j‖` of some rows, by their numbers.
pub fn some_row_norms(isa: Isa, x: Mat<'_>, rows: &[u32]) -> Vec<f32> {
    let mut norms = vec![0.0; rows.len()];
    for (norm, &row) in norms.chunks_mut(1).zip(rows) {
        norms_of(isa, Norms { x, first: row as usize, norms: norm });
    }
    norms
}

struct Norms<'a> {
    x: Mat<'a>,
    first: usize,
    norms: &'a mut [f32],
}

per_isa!(fn norms_of<[], []>(part: Norms<'_>) = norms_body);

#[inline(always)]
fn norms_body<M: Arith>(part: Norms<'_>) {
    for (i, norm) in part.norms.iter_mut().enumerate() {
        let (chunks, rest) = part.x.row(part.first + i).as_chunks::<LANES>();
        let mut sums = [0.0_f32; LANES];
        for chunk in chunks {
            for l in 0..LANES {
                sums[l] = M::mul_add(chunk[l], chunk[l], sums[l]);
            }
        }
        let rest: f32 = rest.iter().map(|x| x * x).sum();
        *norm = (sums.iter().sum::<f32>() + rest).sqrt();
    }
}

/// What the columns of `diag(left)·A·diag(right)` are like.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Columns {
    /// `‖A_:j‖`.
    pub norms: Vec<f32>,
    /// Entries of each column.
    pub entries: Vec<u32>,
    /// Entries on the diagonal, which are counted in neither where they were asked to be left out.
    pub diagonal: usize,
}

/// A sparse matrix with factors: `diag(left)·A·diag(right)`.
#[derive(Clone, Copy, Debug)]
pub struct Scaled<'a> {
    /// The pattern, and values where it has its own.
    pub a: CsrView<'a>,
    /// Values instead of its own.
    pub values: Option<&'a [f32]>,
    /// A factor per row.
    pub left: Option<&'a [f32]>,
    /// A factor per column.
    pub right: Option<&'a [f32]>,
}

impl Scaled<'_> {
    fn value(&self, e: usize) -> f32 {
        self.values.or(self.a.values).map_or(1.0, |values| values[e])
    }
}

/// Norms and lengths of the columns; entries on the diagonal are left out where they always stay.
pub fn columns(of: &Scaled<'_>, without_diagonal: bool, threads: &Threads) -> Columns {
    let n = of.a.n_cols;
    let part_rows = of.a.n_rows().div_ceil(PARTS).max(1);
    let parts = threads.map(ranges(of.a.n_rows(), part_rows), |rows| {
        let mut part = Columns { norms: vec![0.0; n], entries: vec![0; n], diagonal: 0 };
        for i in rows {
            let left = of.left.map_or(1.0, |left| left[i]);
            for e in of.a.row(i) {
                let j = of.a.cols[e] as usize;
                if j == i {
                    part.diagonal += 1;
                    if without_diagonal {
                        continue;
                    }
                }
                let value = left * of.value(e);
                part.norms[j] += value * value;
                part.entries[j] += 1;
            }
        }
        part
    });
    let mut all = Columns { norms: vec![0.0; n], entries: vec![0; n], diagonal: 0 };
    for part in parts {
        all.norms.iter_mut().zip(&part.norms).for_each(|(all, part)| *all += part);
        all.entries.iter_mut().zip(&part.entries).for_each(|(all, part)| *all += part);
        all.diagonal += part.diagonal;
    }
    for (j, norm) in all.norms.iter_mut().enumerate() {
        *norm = norm.sqrt() * of.right.map_or(1.0, |right| right[j].abs());
    }
    all
}

/// The columns whose factor is not 0, with their factors and `right` as values; entries on the
/// diagonal stay as they are where `diagonal` says so.
///
/// # Errors
/// When there is not one factor per column.
pub fn sliced(
    of: &Scaled<'_>,
    factors: &[f32],
    diagonal: Diagonal,
    threads: &Threads,
) -> Result<Csr> {
    sliced_in_bands(of, (factors, None), diagonal, threads)
}

/// Rows in bands, and the cells, a column and a band, of columns that stay in some bands only.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Bands {
    /// Rows of a band.
    pub rows: usize,
    /// The cells that stay, ascending.
    pub taken: Vec<[u32; 2]>,
}

impl Bands {
    fn has(&self, i: usize, j: u32) -> bool {
        self.taken.binary_search(&[j, (i / self.rows) as u32]).is_ok()
    }
}

/// Entries of some columns, which ascend, in bands of so many rows: band by band, and in each
/// column by column; without the diagonal where it always stays.
pub fn band_entries(
    of: &Scaled<'_>,
    (columns, rows): (&[u32], usize),
    diagonal: Diagonal,
    threads: &Threads,
) -> Vec<u32> {
    let mut places = vec![u32::MAX; of.a.n_cols];
    columns.iter().enumerate().for_each(|(at, &j)| places[j as usize] = at as u32);
    let n = of.a.n_rows();
    let bands = n.div_ceil(rows);
    let parts = threads.map(ranges(bands, bands.div_ceil(PARTS).max(1)), |part| {
        let mut counts = vec![0; part.len() * columns.len()];
        for (band, counts) in part.zip(counts.chunks_mut(columns.len().max(1))) {
            for i in band * rows..n.min((band + 1) * rows) {
                let own = if diagonal == Diagonal::Exact { i as u32 } else { u32::MAX };
                for &j in &of.a.cols[of.a.row(i)] {
                    let at = places[j as usize];
                    if at != u32::MAX && j != own {
                        counts[at as usize] += 1;
                    }
                }
            }
        }
        counts
    });
    parts.concat()
}

/// [`sliced`], where a column whose factor is `-f` stays in the bands that are taken of it, with
/// `f`.
///
/// # Errors
/// When there is not one factor per column.
pub fn sliced_in_bands(
    of: &Scaled<'_>,
    (factors, bands): (&[f32], Option<&Bands>),
    diagonal: Diagonal,
    threads: &Threads,
) -> Result<Csr> {
    same_size("sliced", "number of factors", of.a.n_cols, factors.len())?;
    let stay = Stay { bits: Bits::of(factors), factors, bands, diagonal };
    let pieces = threads.map(of.a.slices(ITEM_ENTRIES), |rows| {
        let mut piece = Piece::with_room(rows.len(), of.a.span(rows.clone()).len());
        for i in rows {
            piece.take_row(of, i, &stay);
        }
        piece
    });
    joined(of.a.n_cols, pieces, threads)
}

/// What happens to entries `(i, i)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Diagonal {
    /// As to all others.
    Sampled,
    /// They stay as they are.
    Exact,
}

/// One bit per column: whether it stays.
struct Bits(Vec<u64>);

impl Bits {
    fn of(factors: &[f32]) -> Self {
        let word = |chunk: &[f32]| {
            let bit = |(at, factor): (usize, &f32)| u64::from(*factor != 0.0) << at;
            chunk.iter().enumerate().map(bit).sum()
        };
        Bits(factors.chunks(64).map(word).collect())
    }

    #[inline(always)]
    fn at(&self, j: u32) -> usize {
        (self.0[(j >> 6) as usize] >> (j & 63) & 1) as usize
    }
}

/// Which entries stay, and what they are multiplied by.
struct Stay<'a> {
    bits: Bits,
    factors: &'a [f32],
    bands: Option<&'a Bands>,
    diagonal: Diagonal,
}

impl Stay<'_> {
    /// The factor of an entry whose column stays, if only in some bands.
    #[inline(always)]
    fn factor(&self, i: usize, j: u32) -> Option<f32> {
        let factor = self.factors[j as usize];
        match self.bands {
            Some(bands) if factor < 0.0 => bands.has(i, j).then_some(-factor),
            _ => Some(factor),
        }
    }
}

/// What stays of some rows.
struct Piece {
    lengths: Vec<u32>,
    cols: Vec<u32>,
    values: Vec<f32>,
    /// The places of a row's entries that stay.
    places: Vec<u32>,
}

impl Piece {
    fn with_room(rows: usize, entries: usize) -> Self {
        let lengths = Vec::with_capacity(rows);
        let few = entries / 8;
        let (cols, values) = (Vec::with_capacity(few), Vec::with_capacity(few));
        Piece { lengths, cols, values, places: Vec::new() }
    }

    fn take_row(&mut self, of: &Scaled<'_>, i: usize, stay: &Stay<'_>) {
        let span = of.a.row(i);
        let cols = &of.a.cols[span.clone()];
        // Written without a branch: whether a column stays cannot be foreseen.
        self.places.resize(cols.len() + 1, 0);
        let own = if stay.diagonal == Diagonal::Exact { i as u32 } else { u32::MAX };
        let mut count = 0;
        for (at, &j) in cols.iter().enumerate() {
            self.places[count] = at as u32;
            count += stay.bits.at(j) | usize::from(j == own);
        }
        let before = self.cols.len();
        for &at in &self.places[..count] {
            let (e, j) = (span.start + at as usize, cols[at as usize]);
            let right = of.right.map_or(1.0, |right| right[j as usize]);
            let factor = if j == own { Some(1.0) } else { stay.factor(i, j) };
            if let Some(factor) = factor {
                self.cols.push(j);
                self.values.push(of.value(e) * right * factor);
            }
        }
        self.lengths.push((self.cols.len() - before) as u32);
    }
}

/// Pieces one below another.
fn joined(n_cols: usize, pieces: Vec<Piece>, threads: &Threads) -> Result<Csr> {
    let rows: usize = pieces.iter().map(|piece| piece.lengths.len()).sum();
    let mut ptr = Vec::with_capacity(rows + 1);
    let mut end = 0_u64;
    ptr.push(end);
    let mut ends = Vec::with_capacity(pieces.len());
    for piece in &pieces {
        for &length in &piece.lengths {
            end += u64::from(length);
            ptr.push(end);
        }
        ends.push(end as usize);
    }
    let mut cols = Buffer::<u32>::zeroed(end as usize);
    let mut values = Buffer::<f32>::zeroed(end as usize);
    let to = split_at_ends(cols.make_mut(), &ends).into_iter();
    let to = to.zip(split_at_ends(values.make_mut(), &ends));
    threads.for_each(to.zip(&pieces).collect(), |((cols, values), piece)| {
        cols.copy_from_slice(&piece.cols);
        values.copy_from_slice(&piece.values);
    });
    let row_ptr = RowPtr::Wide(ptr.into());
    Csr::new(CsrParts { n_cols, row_ptr, cols, values: Some(values), order: None }, threads)
}

/// Some rows of a matrix, in the order asked for; values as given.
///
/// # Errors
/// When there is no memory.
pub fn some_rows(of: &Scaled<'_>, rows: &[u32]) -> Result<Csr> {
    let mut ptr = vec![0_u64];
    let (mut cols, mut values) = (Vec::new(), Vec::new());
    for &i in rows {
        for e in of.a.row(i as usize) {
            let j = of.a.cols[e];
            cols.push(j);
            values.push(of.value(e) * of.right.map_or(1.0, |right| right[j as usize]));
        }
        ptr.push(cols.len() as u64);
    }
    let parts = CsrParts {
        n_cols: of.a.n_cols,
        row_ptr: RowPtr::Wide(ptr.into()),
        cols: cols.into(),
        values: Some(values.into()),
        order: None,
    };
    Csr::new(parts, &Threads::one())
}
