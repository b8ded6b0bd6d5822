//! Products of rows with one vector per head, and the reverse: once per node or edge.

use std::ops::Range;

use lacis_core::Threads;
use lacis_core::threads::ranges;

use super::lanes::{AddRows, LANES, Layout, Times, Vector, Weighted};
use super::rows;
use crate::isa::{Arith, Isa, per_isa};
use crate::matrix::{Mat, MatMut};
use crate::real::{Real, Stored};

/// Rows of a task.
const ROWS: usize = 1 << 12;

/// What is projected: rows of this layout, onto vectors.
type From<'a, T> = (Layout, Mat<'a, T>, &'a [Vector<T>]);

/// `out_rh = x_rh · vectors_h`.
pub(super) fn project<T: Stored>(
    isa: Isa,
    from: From<'_, T>,
    out: MatMut<'_, T::Sum>,
    threads: &Threads,
) {
    let tasks = ranges(from.1.n_rows, ROWS);
    let ends: Vec<usize> = tasks.iter().map(|rows| rows.end).collect();
    let tasks = tasks.into_iter().zip(out.split(&ends)).collect();
    threads.for_each(tasks, |(rows, out)| project_rows::<T>(isa, (from, rows, out)));
}

/// Some rows, and where they go.
type Part<'a, T> = (From<'a, T>, Range<usize>, MatMut<'a, <T as Stored>::Sum>);

per_isa!(fn project_rows<[T: Stored], []>(part: Part<'_, T>) = project_body);

// The instruction set is in what it calls.
#[allow(clippy::extra_unused_type_parameters)]
#[inline(always)]
fn project_body<M: Arith, T: Stored>(part: Part<'_, T>) {
    let ((layout, x, vectors), rows, mut out) = part;
    let (mut room, mut sums) = (layout.rows(1), layout.scores());
    let first = rows.start;
    for i in rows {
        layout.load(x, i, &mut room, 0);
        layout.reduce((&mut sums, 1), &Times { layout, rows: &room, own: vectors });
        let sums = &sums.as_flattened()[..layout.heads];
        for (out, sum) in out.row_mut(i - first).iter_mut().zip(sums) {
            *out = *sum;
        }
    }
}

/// The gradients of both factors of a projection.
pub(super) struct Spread<'a, T: Stored> {
    pub layout: Layout,
    pub x: Mat<'a, T>,
    /// The gradient of the products.
    pub scores: Mat<'a, T::Sum>,
    pub vectors: &'a [Vector<T>],
}

/// `out_rh = scores_rh · vectors_h`, where it is asked for. Returns `Σ_r scores_rh · x_rh`.
pub(super) fn spread<T: Stored>(
    isa: Isa,
    job: &Spread<'_, T>,
    out: Option<MatMut<'_, T>>,
    threads: &Threads,
) -> Vec<Vector<T>> {
    let tasks = ranges(job.x.n_rows, ROWS);
    let ends: Vec<usize> = tasks.iter().map(|rows| rows.end).collect();
    let out = out.unwrap_or(rows::nothing(job.x.n_rows));
    let tasks = tasks.into_iter().zip(out.split(&ends)).collect();
    let parts = threads.map(tasks, |(rows, out)| spread_rows::<T>(isa, (job, rows, out)));
    let mut totals = vec![[T::Sum::ZERO; LANES]; job.layout.vectors];
    parts.iter().for_each(|part| rows::add(&mut totals, part));
    totals
}

/// Some rows, and where they go.
type SpreadPart<'a, T> = (&'a Spread<'a, T>, Range<usize>, MatMut<'a, T>);

per_isa!(fn spread_rows<[T: Stored], []>(
    part: SpreadPart<'_, T>) -> Vec<Vector<T>> = spread_body);

#[allow(clippy::extra_unused_type_parameters)]
#[inline(always)]
fn spread_body<M: Arith, T: Stored>(part: SpreadPart<'_, T>) -> Vec<Vector<T>> {
    let (&Spread { layout, x, scores, vectors }, rows, mut out) = part;
    let mut totals = vec![[T::Sum::ZERO; LANES]; layout.vectors];
    let (mut room, mut row, mut tile) = (layout.rows(1), layout.rows(1), layout.scores());
    let first = rows.start;
    for r in rows {
        layout.load(x, r, &mut room, 0);
        layout.tile_of(scores.row(r), &mut tile[..layout.tile_vectors()]);
        let add = AddRows(layout, &room[..]);
        layout.accumulate(&mut totals, (&tile, 1), &add);
        if out.n_cols > 0 {
            layout.accumulate(&mut row, (&tile, 1), &Weighted(vectors));
            layout.store(&row, out.row_mut(r - first));
        }
    }
    totals
}
