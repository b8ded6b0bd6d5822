//! How fast a gather could be: the rows that a matrix's entries name, read in its order and only
//! added up, and an output written.
//!
//! ```text
//!  for each row i: for each entry (i, j): every vector of x_j to a few sums
//!      y_i = the sums
//! ```
//! The time of an SpMM, SDDMM or attention over the time of this is its distance from what the
//! memory allows; the reads are the same, the arithmetic is one addition a vector.
//!
//! # Parallelism
//! As SpMM: a thread does whole rows.

use lacis_core::error::same_size;
use lacis_core::{CsrView, Result, Threads};

use crate::edges::{Span, spans_of_rows};
use crate::isa::{Arith, Isa, per_isa};
use crate::matrix::{Mat, MatMut};
use crate::rows::{AHEAD, LANES, Lanes, TOGETHER, ask_ahead, rows_of, total};

/// Reads the rows of `x` that the entries of `a` name, writes every row of `y`, of any width, and
/// returns the sum of all that was read but for a few rows at the end of the memory.
///
/// # Errors
/// When `x` has not one row per column of `a`, or `y` not one per row.
pub fn replay(
    isa: Isa,
    a: CsrView<'_>,
    x: Mat<'_>,
    y: MatMut<'_>,
    threads: &Threads,
) -> Result<f32> {
    same_size("replay", "rows of x", a.n_cols, x.n_rows)?;
    same_size("replay", "rows of y", a.n_rows(), y.n_rows)?;
    let spans = spans_of_rows(&a, 1);
    let ends: Vec<usize> = spans.iter().map(|span| span.rows.end).collect();
    let parts = spans.into_iter().zip(y.split(&ends)).collect();
    let sums = threads.map(parts, |(span, y)| compiled(isa, Part { a, x, span, y }));
    Ok(sums.into_iter().map(total).sum())
}

struct Part<'a> {
    a: CsrView<'a>,
    x: Mat<'a>,
    span: Span,
    y: MatMut<'a>,
}

per_isa!(fn compiled<[], []>(part: Part<'_>) -> Lanes<f32> = body);

/// Sixteen sums of all that was read; to add them up here would make the compiler split vectors.
#[inline(always)]
fn body<M: Arith>(part: Part<'_>) -> Lanes<f32> {
    let Part { a, x, span, mut y } = part;
    let mut all = [0.0; LANES];
    let first = span.rows.start;
    for i in span.rows {
        let mut sums = [[0.0; LANES]; TOGETHER];
        let entries = a.row(i);
        let mut e = entries.start;
        while e < entries.end {
            let count = TOGETHER.min(entries.end - e);
            (0..count).for_each(|b| ask_ahead(x, a.cols, e + AHEAD + b));
            // A group that is not full reads its last row again, from the nearest cache.
            let js = std::array::from_fn(|b| a.cols[(e + b).min(entries.end - 1)] as usize);
            read::<TOGETHER>(x, js, &mut sums);
            e += count;
        }
        let sum: Lanes<f32> = std::array::from_fn(|l| {
            M::mul_add(1.0f32, sums[0][l] + sums[1][l], sums[2][l] + sums[3][l])
        });
        let mut chunks = y.row_mut(i - first).chunks_exact_mut(LANES);
        (&mut chunks).for_each(|y| y.copy_from_slice(&sum));
        chunks.into_remainder().iter_mut().zip(sum).for_each(|(y, sum)| *y = sum);
        (0..LANES).for_each(|l| all[l] += sum[l]);
    }
    all
}

/// Adds every vector of some rows, each to its own sums.
#[inline(always)]
#[allow(clippy::needless_range_loop, reason = "of iterators the compiler makes narrower vectors")]
fn read<const B: usize>(x: Mat<'_>, js: [usize; B], sums: &mut [Lanes<f32>; B]) {
    let chunks = x.n_cols.div_ceil(LANES);
    let Some(rows) = rows_of(x, js, 0, chunks) else { return };
    for c in 0..chunks {
        for b in 0..B {
            for l in 0..LANES {
                sums[b][l] += rows[b][c][l];
            }
        }
    }
}
