//! Matrices cut for work that treats every row alike.
//!
//! ```text
//!   chunk:  some 65,536 elements of whole rows, one item of a parallel loop
//!   strip:  up to 1,024 elements that lie together: a few whole rows where rows follow one another
//!           without a gap, else (a part of) one row
//! ```
//! What is given per column is repeated to the length of a strip. So every inner loop is one over
//! plain slices of some length, and no width has a slow tail. Chunks and strips follow from the
//! shape alone.

use std::ops::Range;

use lacis_core::Threads;
use lacis_core::threads::ranges;

use crate::matrix::{Mat, MatMut};
use crate::real::{Real, Stored};

/// Elements of a strip at most: what stays in the nearest cache with its companions.
pub(crate) const STRIP: usize = 1024;
/// Elements of a chunk, about: cheap to hand out, and still in the second cache when read twice.
const CHUNK: usize = 1 << 16;

/// How a matrix of `k` columns is cut.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Strips {
    k: usize,
    rows: usize,
}

/// A strip: elements from `(row, col)` on, `len` of them; `rows` rows where those are whole.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Strip {
    pub row: usize,
    pub rows: usize,
    pub col: usize,
    pub len: usize,
}

impl Strips {
    /// For matrices of `k` columns; `dense` when the rows of all of them lie without gaps.
    pub fn new(k: usize, dense: bool) -> Self {
        let k = k.max(1);
        let rows = if dense { (STRIP / k).max(1) } else { 1 };
        Strips { k, rows }
    }

    /// Numbers given per column, once for each row of a strip.
    pub fn repeated<F: Copy>(&self, columns: &[F]) -> Vec<F> {
        columns.repeat(self.rows)
    }

    /// Length of what is given per column, when repeated.
    pub fn period(&self) -> usize {
        self.rows * self.k
    }

    /// The strips of `n_rows` rows, in order.
    #[inline(always)]
    pub fn of(self, n_rows: usize) -> impl Iterator<Item = Strip> {
        (0..n_rows).step_by(self.rows).flat_map(move |row| {
            let rows = self.rows.min(n_rows - row);
            let total = rows * self.k;
            (0..total).step_by(STRIP).map(move |col| {
                let len = STRIP.min(total - col);
                Strip { row, rows, col, len }
            })
        })
    }

    /// The rows of each chunk.
    pub fn chunks(&self, n_rows: usize) -> Vec<Range<usize>> {
        // A sum over a chunk adds few strips, so that its rounding stays small.
        let most = 64 * self.rows.max(16);
        ranges(n_rows, (CHUNK / self.k).clamp(64, most).next_multiple_of(self.rows))
    }

    /// Sums of repeated columns as sums of columns, the repetitions added in order.
    pub fn folded<F: Real>(&self, repeated: &[F]) -> Vec<f64> {
        let mut sums = vec![0.0; self.k];
        for row in repeated.chunks(self.k) {
            sums.iter_mut().zip(row).for_each(|(sum, x)| *sum += x.to_f64());
        }
        sums
    }
}

impl<'a, T: Stored> Mat<'a, T> {
    /// Whether its rows lie without gaps.
    pub(crate) fn is_dense(&self) -> bool {
        self.stride == self.n_cols
    }

    /// The elements of a strip.
    #[inline(always)]
    pub(crate) fn strip(&self, strip: Strip) -> &'a [T] {
        &self.data[strip.row * self.stride + strip.col..][..strip.len]
    }
}

impl<T: Stored> MatMut<'_, T> {
    /// The elements of a strip, for writing.
    #[inline(always)]
    pub(crate) fn strip_mut(&mut self, strip: Strip) -> &mut [T] {
        &mut self.data[strip.row * self.stride + strip.col..][..strip.len]
    }
}

/// A matrix to write, cut into chunks with their rows.
pub(crate) fn chunked<'a, T: Stored>(
    strips: Strips,
    y: MatMut<'a, T>,
) -> Vec<(Range<usize>, MatMut<'a, T>)> {
    let chunks = strips.chunks(y.n_rows);
    let ends: Vec<usize> = chunks.iter().map(|rows| rows.end).collect();
    chunks.into_iter().zip(y.split(&ends)).collect()
}

/// What each chunk adds up, summed in the order of the chunks.
pub(crate) fn summed<I: Send>(
    threads: &Threads,
    items: Vec<I>,
    width: usize,
    sums_of: impl Fn(I) -> Vec<f64> + Sync,
) -> Vec<f64> {
    let mut total = vec![0.0; width];
    for sums in threads.map(items, sums_of) {
        total.iter_mut().zip(&sums).for_each(|(total, sum)| *total += sum);
    }
    total
}

/// The numbers of a strip, to compute with.
#[inline(always)]
pub(crate) fn load<T: Stored>(stage: &mut [T::Sum], x: &[T]) {
    stage.iter_mut().zip(x).for_each(|(v, x)| *v = x.wide());
}

/// The numbers of a strip, as they are kept.
#[inline(always)]
pub(crate) fn store<T: Stored>(y: &mut [T], stage: &[T::Sum]) {
    y.iter_mut().zip(stage).for_each(|(y, v)| *y = T::narrow(*v));
}
