//! SciPy's sparse matrices: the arrays of one on their way to a [`Csr`].
//!
//! Entry `(i, j)` of a SciPy adjacency is an edge from `i` to `j`, and rows of ours are targets: a
//! graph holds the *transpose*. The compressed columns of a matrix are the compressed rows of its
//! transpose, so `csc` needs no work and `csr` one transposition.

use std::ops::Range;

use lacis_core::threads::ranges;
use lacis_core::{Buffer, CHUNK_ENTRIES, Chunk, ColumnOrder, Coo, Csr, CsrParts, Extent};
use lacis_core::{Features, Repeats, Result, Tags, Threads};

use crate::npy::{Source, check_finite};

/// Drops values that are all ones, which means the same.
pub(crate) fn without_ones(values: Buffer<f32>) -> Option<Buffer<f32>> {
    if values.iter().all(|&value| value == 1.0) { None } else { Some(values) }
}

/// A matrix from its compressed arrays, checked; what is wrong is said of `source`.
pub(crate) fn compressed(
    parts: CsrParts,
    n_rows: usize,
    source: &Source<'_>,
    threads: &Threads,
) -> Result<Csr> {
    if parts.row_ptr.len() != n_rows.saturating_add(1) {
        let (found, right) = (parts.row_ptr.len(), n_rows as u128 + 1);
        let problem = format!("indptr has {found} entries, but the shape asks for {right}");
        return Err(source.problem(problem));
    }
    Csr::new(parts, threads).map_err(|error| source.blame(error))
}

/// Which way round a matrix becomes an adjacency.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// Its rows are targets already.
    Kept,
    /// Its rows are sources.
    Transposed,
}

/// A matrix with sorted columns and no repeats: those without values were merged, those with
/// values summed.
pub(crate) struct Settled {
    pub csr: Csr,
    pub n_repeats: usize,
}

/// Sorts a list of entries and settles its repeats.
///
/// # Errors
/// When an entry is outside the extent, or a sum of values is too large for `f32`.
pub(crate) fn settle(
    coo: Coo,
    extent: Extent,
    repeats: Repeats,
    (source, threads): (&Source<'_>, &Threads),
) -> Result<Settled> {
    let n_entries = coo.len();
    let csr = coo.into_csr(extent, repeats, threads).map_err(|error| source.blame(error))?;
    let n_repeats = n_entries - csr.nnz();
    if n_repeats > 0 {
        let values = csr.values().unwrap_or_default();
        let parts = ranges(values.len(), CHUNK_ENTRIES);
        let finite = threads.map(parts, |part| values[part].iter().all(|value| value.is_finite()));
        if finite.contains(&false) {
            check_finite(source, values)?;
        }
    }
    let csr = csr.without_unit_values();
    Ok(Settled { csr, n_repeats })
}

/// A matrix turned and settled. It is given up on the way, so that at most its entries and one
/// list of them, or one list and the result, are in memory at a time.
///
/// # Errors
/// When a sum of values is too large for `f32`.
pub(crate) fn settled(
    matrix: Csr,
    turn: Turn,
    source: &Source<'_>,
    threads: &Threads,
) -> Result<Settled> {
    let sorted = turn == Turn::Kept && matrix.column_order() == ColumnOrder::Sorted;
    if sorted && !matrix.has_repeats(threads) {
        let csr = matrix.without_unit_values();
        return Ok(Settled { csr, n_repeats: 0 });
    }
    let (n_rows, n_cols) = match turn {
        Turn::Kept => (matrix.n_rows(), matrix.n_cols()),
        Turn::Transposed => (matrix.n_cols(), matrix.n_rows()),
    };
    let extent = Extent { n_rows: Some(n_rows), n_cols: Some(n_cols) };
    let (tags, repeats) = match matrix.values() {
        Some(_) => (Tags::Values, Repeats::Sum),
        None => (Tags::Absent, Repeats::Merge),
    };
    let mut coo = Coo::new(tags);
    coo.extend(ranges(matrix.nnz(), CHUNK_ENTRIES), threads, |entries, chunk| {
        list(&matrix, entries, turn, chunk);
        Ok(())
    })?;
    drop(matrix);
    settle(coo, extent, repeats, (source, threads))
}

/// Some entries of a matrix as a list. Chunks are cut by entries, not by rows: they are then all
/// of the size that [`CHUNK_ENTRIES`] was chosen for.
fn list(matrix: &Csr, entries: Range<usize>, turn: Turn, chunk: &mut Chunk) {
    let mut at = entries.start;
    let mut i = row_of(matrix, at);
    while at < entries.end {
        let end = matrix.row(i).end.min(entries.end);
        let cols = &matrix.cols()[at..end];
        let row = i as u32;
        match turn {
            Turn::Kept => chunk.places.extend(cols.iter().map(|&j| [row, j])),
            Turn::Transposed => chunk.places.extend(cols.iter().map(|&j| [j, row])),
        }
        at = end;
        i += 1;
    }
    if let Some(values) = matrix.values() {
        chunk.tags.extend(values[entries].iter().map(|value| value.to_bits()));
    }
}

/// The row that holds entry `e`.
fn row_of(matrix: &Csr, e: usize) -> usize {
    let (mut low, mut high) = (0, matrix.n_rows());
    while low < high {
        let middle = low + (high - low) / 2;
        if matrix.row(middle).end <= e {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    low
}

/// A matrix as features: repeated entries count as their sum, as SciPy has it.
///
/// # Errors
/// When a sum of values is too large for `f32`.
pub(crate) fn features(csr: Csr, source: &Source<'_>, threads: &Threads) -> Result<Features> {
    let csr = match csr.column_order() {
        ColumnOrder::Sorted => csr,
        ColumnOrder::Unsorted => csr.sorted(Repeats::Keep, threads),
    };
    if !csr.has_repeats(threads) {
        return Ok(Features::Sparse(csr.without_unit_values()));
    }
    // Without values a repeated entry would be merged, and its value is 2.
    let values = match csr.values() {
        Some(values) => Buffer::copied(values),
        None => Buffer::from(vec![1.0; csr.nnz()]),
    };
    let csr = csr.with_values(Some(values))?;
    let settled = settled(csr, Turn::Kept, source, threads)?;
    Ok(Features::Sparse(settled.csr))
}
