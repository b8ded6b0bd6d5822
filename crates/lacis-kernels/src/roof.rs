//! How fast a gather could be: the rows that a matrix's entries name, read in its order and only
//! added up, and an output written.
//!
//! ```text
//!  for each row i: for each entry (i, j): ask for rows to come; every vector of x_j to a few sums
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
use crate::mem::{L1, L2, fetch_lines};
use crate::rows::{LANES, Lanes, TOGETHER, total};

/// How many entries ahead rows are asked for into the second-level cache and into the first.
const AHEAD: [usize; 2] = [64, 12];

/// Reads the rows of `x` that the entries of `a` name, writes every row of `y`, of any width, and
/// returns a sum of what was read, in which the last vector of a row may count numbers of the one
/// before it again.
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
        for e in a.row(i) {
            ask::<L2>(x, a.cols, e + AHEAD[0]);
            ask::<L1>(x, a.cols, e + AHEAD[1]);
            read(x.row(a.cols[e] as usize), &mut sums);
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

/// Asks for the row that entry `e` names.
#[inline(always)]
fn ask<const CACHE: i32>(x: Mat<'_>, cols: &[u32], e: usize) {
    if let Some(&j) = cols.get(e) {
        let start = j as usize * x.stride;
        fetch_lines::<f32, CACHE>(x.data, start, x.n_cols);
        if !x.stride.is_multiple_of(LANES) {
            fetch_lines::<f32, CACHE>(x.data, start + x.n_cols.max(1) - 1, 1);
        }
    }
}

/// Adds every vector of a row, a few at a time. The last vector ends where the row does.
#[inline(always)]
#[allow(clippy::needless_range_loop, reason = "of iterators the compiler makes narrower vectors")]
fn read(row: &[f32], sums: &mut [Lanes<f32>; TOGETHER]) {
    let (tiles, rest) = row.as_chunks::<{ TOGETHER * LANES }>();
    for tile in tiles {
        for v in 0..TOGETHER {
            for l in 0..LANES {
                sums[v][l] += tile[v * LANES + l];
            }
        }
    }
    let (vectors, rest) = rest.as_chunks::<LANES>();
    for vector in vectors {
        for l in 0..LANES {
            sums[0][l] += vector[l];
        }
    }
    match row.last_chunk::<LANES>() {
        _ if rest.is_empty() => {}
        Some(last) => {
            for l in 0..LANES {
                sums[1][l] += last[l];
            }
        }
        None => rest.iter().zip(&mut sums[1]).for_each(|(x, sum)| *sum += x),
    }
}
