//! Products of rows with one vector per head, and the reverse: once per node or edge.

use std::ops::Range;

use lacis_core::Threads;
use lacis_core::threads::ranges;

use super::backward::row_of;
use super::blocks::{fits, row_dots};
use super::gather::{AddRows, Fetch, Gathered, Times, dots_one, join_one, reduce};
use super::lanes::{CHUNK, LANES, Layout, Vector};
use super::rows;
use crate::isa::{Arith, Isa, per_isa};
use crate::matrix::{Mat, MatMut};
use crate::real::{Real, Stored};

/// Rows of a task.
const ROWS: usize = 1 << 12;

/// What is projected: rows of this layout, onto vectors.
type From<'a, T> = (Layout, Mat<'a, T>, &'a Vectors<T>);

/// A vector per head.
pub(super) struct Vectors<T: Stored> {
    /// As a row of features.
    pub row: Vec<Vector<T>>,
    /// As such a row lies in memory, with what a tile may read past its end.
    flat: Vec<T::Sum>,
}

impl<T: Stored> Vectors<T> {
    pub fn new(layout: Layout, vectors: Mat<'_, T::Sum>) -> Self {
        let mut flat: Vec<_> = (0..vectors.n_rows).flat_map(|h| vectors.row(h)).copied().collect();
        flat.resize(flat.len() + 4 * LANES, T::Sum::ZERO);
        Vectors { row: row_of(layout, vectors), flat }
    }

    /// A matrix whose rows are all the same.
    pub fn rows(&self) -> Mat<'_, T::Sum> {
        Mat { data: &self.flat, n_rows: usize::MAX, n_cols: self.flat.len(), stride: 0 }
    }
}

/// `x_ih · vectors_h` as a tile, by way of the padded row `room` and the list `sums`.
#[inline(always)]
pub(super) fn project_one<T: Stored>(
    (layout, x, vectors): From<'_, T>,
    i: usize,
    (room, sums): (&mut [Vector<T>], &mut [Vector<T>]),
    tile: &mut [Vector<T>],
) {
    layout.load(x, i, room, 0);
    project_loaded((layout, vectors), (room, sums), tile);
}

/// The same of a row that is there.
#[inline(always)]
pub(super) fn project_loaded<T: Stored>(
    (layout, vectors): (Layout, &Vectors<T>),
    (room, sums): (&[Vector<T>], &mut [Vector<T>]),
    tile: &mut [Vector<T>],
) {
    dots_one(layout, [room, &vectors.row], sums.as_flattened_mut());
    layout.tile_of(&sums.as_flattened()[..layout.heads], tile);
}

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
    threads.for_each(tasks, |(rows, out): (Range<usize>, MatMut<'_, _>)| {
        let (layout, x, vectors) = from;
        if fits::<T>(layout) && out.stride == layout.slots {
            return row_dots((layout, rows.len(), (x, rows.start), (vectors.rows(), 0), out.data));
        }
        project_rows::<T>(isa, (from, rows, out));
    });
}

/// Some rows, and where they go.
type Part<'a, T> = (From<'a, T>, Range<usize>, MatMut<'a, <T as Stored>::Sum>);

per_isa!(fn project_rows<[T: Stored], []>(part: Part<'_, T>) = project_body);

// The instruction set is in what it calls.
#[allow(clippy::extra_unused_type_parameters)]
#[inline(always)]
fn project_body<M: Arith, T: Stored>(part: Part<'_, T>) {
    let ((layout, x, vectors), rows, mut out) = part;
    let mut sums = layout.scores();
    let chunk = layout.chunk();
    let mut names = [0; CHUNK];
    for start in (0..rows.len()).step_by(chunk) {
        let end = rows.len().min(start + chunk);
        let first = rows.start + start;
        names.iter_mut().zip(first..).for_each(|(name, i)| *name = i as u32);
        let gathered = (Gathered::new(x, &names, 0..end - start), Fetch::No);
        reduce(layout, gathered, Times(&vectors.row), &mut sums);
        for (i, sums) in (start..end).zip(sums.as_flattened().chunks_exact(layout.slots)) {
            for (out, sum) in out.row_mut(i).iter_mut().zip(&sums[..layout.heads]) {
                *out = *sum;
            }
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
        let p = (tile.as_flattened(), AddRows);
        join_one::<M, _, _>(layout, &room, p, &mut totals);
        if out.n_cols > 0 {
            row.fill([T::Sum::ZERO; LANES]);
            join_one::<M, _, _>(layout, vectors, p, &mut row);
            layout.store(&row, out.row_mut(r - first));
        }
    }
    totals
}
