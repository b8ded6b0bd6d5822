//! Rows of features as vectors: what the kernels that look at both ends of an edge are made of.
//!
//! A row of `k` numbers is read as `⌈k / 16⌉` vectors. The last one reads past the row's end into
//! the next row; sums that must not see it mask it out. At the end of
//! the memory, where nothing is to be read, it is copied instead.

use crate::isa::Arith;
pub(crate) use crate::lanes::LANES;
use crate::matrix::Mat;
use crate::mem::prefetch;
use crate::real::{Real, Stored};

/// How many entries ahead rows are asked for: far enough to hide memory, near enough to still be
/// in the cache.
pub(crate) const AHEAD: usize = 16;
/// Rows that are worked on together: their sums do not wait for each other.
pub(crate) const TOGETHER: usize = 4;

/// A vector of what sums are kept in.
pub(crate) type Lanes<F> = [F; LANES];
/// A row as vectors.
pub(crate) type Chunks<'a, T> = &'a [[T; LANES]];

/// 1 for each of the last vector's numbers that belong to a row of `width`, else 0.
///
/// A mask in memory: from a count the compiler makes sixteen branches.
#[inline(always)]
pub(crate) fn keep_of<F: Real>(width: usize) -> Lanes<F> {
    let tail = if width.is_multiple_of(LANES) { LANES } else { width % LANES };
    let mut keep = [F::ZERO; LANES];
    keep[..tail].fill(F::ONE);
    keep
}

/// A vector to compute with.
#[inline(always)]
pub(crate) fn wide<T: Stored>(chunk: &[T; LANES]) -> Lanes<T::Sum> {
    let mut lanes = [T::Sum::ZERO; LANES];
    for l in 0..LANES {
        lanes[l] = chunk[l].wide();
    }
    lanes
}

/// 0 where `keep` is 0.
#[inline(always)]
pub(crate) fn kept<F: Real>(mut lanes: Lanes<F>, keep: &Lanes<F>) -> Lanes<F> {
    for l in 0..LANES {
        let lane = lanes[l];
        lanes[l] = if keep[l] > F::ZERO { lane } else { F::ZERO };
    }
    lanes
}

/// The row as vectors of sums, 0 behind its end; its memory is used again.
#[inline(always)]
pub(crate) fn load<T: Stored>(row: &[T], own: &mut Vec<Lanes<T::Sum>>) {
    own.clear();
    let (full, rest) = row.as_chunks::<LANES>();
    full.iter().for_each(|chunk| own.push(wide(chunk)));
    if !rest.is_empty() {
        let mut last = [T::Sum::ZERO; LANES];
        last.iter_mut().zip(rest).for_each(|(last, x)| *last = x.wide());
        own.push(last);
    }
}

/// The sums to a row, as many as it is wide.
#[inline(always)]
pub(crate) fn store<T: Stored>(sums: &[Lanes<T::Sum>], row: &mut [T]) {
    row.iter_mut().zip(sums.as_flattened()).for_each(|(y, sum)| *y = T::narrow(*sum));
}

/// `chunks` vectors of row `j` from column `col` on; `None` at the end of the memory.
#[inline(always)]
pub(crate) fn chunks_of<'a, T>(
    x: Mat<'a, T>,
    j: usize,
    col: usize,
    chunks: usize,
) -> Option<Chunks<'a, T>> {
    let start = j * x.stride + col;
    x.data.get(start..start + chunks * LANES).map(|row| row.as_chunks::<LANES>().0)
}

/// As [`chunks_of`] where that finds nothing: a copy, in memory that is used again.
#[cold]
pub(crate) fn copied<'b, T: Stored>(
    x: Mat<'_, T>,
    at: (usize, usize),
    chunks: usize,
    copy: &'b mut Vec<[T; LANES]>,
) -> Chunks<'b, T> {
    let rest = &x.data[at.0 * x.stride + at.1..];
    copy.clear();
    copy.resize(chunks, [T::narrow(T::Sum::ZERO); LANES]);
    copy.as_flattened_mut().iter_mut().zip(rest).for_each(|(copy, x)| *copy = *x);
    copy
}

/// `chunks` vectors of row `j`, copied where they must be.
#[inline(always)]
pub(crate) fn row_or_copy<'b, T: Stored>(
    x: Mat<'b, T>,
    j: usize,
    chunks: usize,
    copy: &'b mut Vec<[T; LANES]>,
) -> Chunks<'b, T> {
    match chunks_of(x, j, 0, chunks) {
        Some(row) => row,
        None => copied(x, (j, 0), chunks, copy),
    }
}

/// The rows of `B` entries from a column on, unless one is at the end of the memory.
#[inline(always)]
pub(crate) fn rows_of<'a, T: Copy, const B: usize>(
    x: Mat<'a, T>,
    js: [usize; B],
    col: usize,
    chunks: usize,
) -> Option<[Chunks<'a, T>; B]> {
    let mut rows: [Chunks<'a, T>; B] = [&[]; B];
    for b in 0..B {
        rows[b] = chunks_of(x, js[b], col, chunks)?;
    }
    Some(rows)
}

/// The columns of `B` entries; where there are fewer, the last of them again.
#[inline(always)]
pub(crate) fn columns_of<const B: usize>(cols: &[u32]) -> [usize; B] {
    let mut js = [0; B];
    for (b, j) in js.iter_mut().enumerate() {
        *j = cols[b.min(cols.len() - 1)] as usize;
    }
    js
}

/// Asks for row `j`, one line a vector, and the line of its last number.
#[inline(always)]
pub(crate) fn ask_for<T: Stored>(x: Mat<'_, T>, j: usize) {
    let start = j * x.stride;
    let line = 64 / size_of::<T>();
    for c in 0..x.n_cols.div_ceil(line) {
        prefetch(x.data, start + c * line);
    }
    if !x.stride.is_multiple_of(line) {
        prefetch(x.data, start + x.n_cols.saturating_sub(1));
    }
}

/// Asks for the row that entry `e` names.
#[inline(always)]
pub(crate) fn ask_ahead<T: Stored>(x: Mat<'_, T>, cols: &[u32], e: usize) {
    if let Some(&j) = cols.get(e) {
        ask_for(x, j as usize);
    }
}

/// How two numbers become a term of a sum over features.
pub(crate) trait Term: Copy {
    /// `sum + term(u, v)`; a term of two zeros is zero.
    fn add<M: Arith, F: Real>(sum: F, u: F, v: F) -> F;
    /// `∂term/∂u`; that in `v` is the same with `u` and `v` changed round.
    fn slope<F: Real>(u: F, v: F) -> F;
}

/// `u · v`.
#[derive(Clone, Copy)]
pub(crate) struct Product;

impl Term for Product {
    #[inline(always)]
    fn add<M: Arith, F: Real>(sum: F, u: F, v: F) -> F {
        M::mul_add(u, v, sum)
    }

    #[inline(always)]
    fn slope<F: Real>(_: F, v: F) -> F {
        v
    }
}

/// `(u - v)²`.
#[derive(Clone, Copy)]
pub(crate) struct SquaredDifference;

impl Term for SquaredDifference {
    #[inline(always)]
    fn add<M: Arith, F: Real>(sum: F, u: F, v: F) -> F {
        M::mul_add(u - v, u - v, sum)
    }

    #[inline(always)]
    fn slope<F: Real>(u: F, v: F) -> F {
        (u - v) + (u - v)
    }
}

/// `Σ_c term(own_c, row_c)` for each of `B` rows, of whose last vector `keep` says what counts.
///
/// A vector of sums for each row, added up by a fixed tree: the result for a row does not depend
/// on the rows it is computed with.
#[inline(always)]
pub(crate) fn sums<M: Arith, T: Stored, P: Term, const B: usize>(
    own: &[Lanes<T::Sum>],
    rows: [Chunks<'_, T>; B],
    keep: &Lanes<T::Sum>,
) -> [T::Sum; B] {
    let mut sums = [[T::Sum::ZERO; LANES]; B];
    let Some((last, own)) = own.split_last() else { return [T::Sum::ZERO; B] };
    let rows = cut(rows, own.len() + 1);
    for (c, own) in own.iter().enumerate() {
        for b in 0..B {
            for l in 0..LANES {
                sums[b][l] = P::add::<M, T::Sum>(sums[b][l], own[l], rows[b][c][l].wide());
            }
        }
    }
    for b in 0..B {
        let x = kept(wide(&rows[b][own.len()]), keep);
        for l in 0..LANES {
            sums[b][l] = P::add::<M, T::Sum>(sums[b][l], last[l], x[l]);
        }
    }
    let mut totals = [T::Sum::ZERO; B];
    for b in 0..B {
        totals[b] = total(sums[b]);
    }
    totals
}

/// The first `len` vectors of each row: what need not be checked again.
#[inline(always)]
fn cut<T, const B: usize>(mut rows: [Chunks<'_, T>; B], len: usize) -> [Chunks<'_, T>; B] {
    for row in &mut rows {
        *row = &row[..len];
    }
    rows
}

/// The sum of a vector, halves first.
#[inline(always)]
pub(crate) fn total<F: Real>(mut lanes: Lanes<F>) -> F {
    for l in 0..8 {
        lanes[l] += lanes[l + 8];
    }
    for l in 0..4 {
        lanes[l] += lanes[l + 4];
    }
    (lanes[0] + lanes[2]) + (lanes[1] + lanes[3])
}

/// `sums += Σ_b weights_b · rows_b`, row after row.
#[inline(always)]
pub(crate) fn add_rows<M: Arith, T: Stored, const B: usize>(
    sums: &mut [Lanes<T::Sum>],
    weights: [T::Sum; B],
    rows: [Chunks<'_, T>; B],
) {
    let rows = cut(rows, sums.len());
    for (c, sums) in sums.iter_mut().enumerate() {
        let mut so_far = *sums;
        for b in 0..B {
            for l in 0..LANES {
                so_far[l] = M::mul_add(weights[b], rows[b][c][l].wide(), so_far[l]);
            }
        }
        *sums = so_far;
    }
}

/// `sums += Σ_b weights_b · ∂term(own, rows_b)/∂own`, row after row.
#[inline(always)]
pub(crate) fn add_slopes<M: Arith, T: Stored, P: Term, const B: usize>(
    sums: &mut [Lanes<T::Sum>],
    own: &[Lanes<T::Sum>],
    weights: [T::Sum; B],
    rows: [Chunks<'_, T>; B],
) {
    let rows = cut(rows, sums.len());
    for (c, (sums, own)) in sums.iter_mut().zip(own).enumerate() {
        let mut so_far = *sums;
        for b in 0..B {
            for l in 0..LANES {
                let slope = P::slope(own[l], rows[b][c][l].wide());
                so_far[l] = M::mul_add(weights[b], slope, so_far[l]);
            }
        }
        *sums = so_far;
    }
}
