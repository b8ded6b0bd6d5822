//! What memory can do, and what a plain loop does: the marks that kernels are measured against.
//!
//! [`replay`] reads the rows that a sparse product reads, in the same order, and writes a result of
//! the same size, but computes nothing: no kernel that gathers rows can be faster for long.
//! [`plain`] is the loop that anyone would write, compiled for the same instruction sets.
//!
//! # Parallelism
//! As in [`spmm`](crate::spmm): slices of about equal numbers of entries.

use std::hint::black_box;
use std::ops::Range;

use lacis_core::error::same_size;
use lacis_core::{CsrView, Result, Threads, threads};

use crate::isa::{Arith, Isa, per_isa};
use crate::matrix::{Mat, MatMut};
use crate::mem::prefetch;
use crate::spmm::SLICE_ENTRIES;

const LANES: usize = 16;
/// How many entries ahead rows are asked for.
const AHEAD: usize = 16;
/// Floats that one thread reads or writes at a time.
const BLOCK: usize = 1 << 16;

/// Some rows of a product, and where they go.
struct Part<'a> {
    a: CsrView<'a>,
    x: Mat<'a>,
    rows: Range<usize>,
    y: MatMut<'a>,
}

/// Reads the rows of `x` that the entries of `a` name, in their order, and writes all of `y`.
///
/// # Errors
/// When the sizes are not those of a product.
pub fn replay(isa: Isa, a: CsrView<'_>, x: Mat<'_>, y: MatMut<'_>, on: &Threads) -> Result<()> {
    by_slices(a, x, y, on, |part| {
        black_box(replayed(isa, part));
    })
}

/// `y = a·x` in the loop that anyone would write.
///
/// # Errors
/// When the sizes are not those of a product.
pub fn plain(isa: Isa, a: CsrView<'_>, x: Mat<'_>, y: MatMut<'_>, on: &Threads) -> Result<()> {
    by_slices(a, x, y, on, |part| multiplied(isa, part))
}

fn by_slices(
    a: CsrView<'_>,
    x: Mat<'_>,
    y: MatMut<'_>,
    on: &Threads,
    run: impl Fn(Part<'_>) + Sync,
) -> Result<()> {
    same_size("probe", "rows of x", a.n_cols, x.n_rows)?;
    same_size("probe", "rows of y", a.n_rows(), y.n_rows)?;
    same_size("probe", "columns of y", x.n_cols, y.n_cols)?;
    let slices = a.slices(SLICE_ENTRIES);
    let ends: Vec<usize> = slices.iter().map(|rows| rows.end).collect();
    let parts = slices.into_iter().zip(y.split(&ends)).collect();
    on.for_each(parts, |(rows, y)| run(Part { a, x, rows, y }));
    Ok(())
}

per_isa!(fn replayed<[], []>(part: Part<'_>) -> [[f32; LANES]; 4] = replay_body);

#[inline(always)]
fn replay_body<M: Arith>(part: Part<'_>) -> [[f32; LANES]; 4] {
    let Part { a, x, rows, mut y } = part;
    let (first, vectors) = (rows.start, x.n_cols.div_ceil(LANES));
    let mut sums = [[0.0; LANES]; 4];
    for i in rows {
        let entries = a.row(i);
        // Four rows at a time; a last group that is not full reads its last row again.
        for e in entries.clone().step_by(4) {
            let named: [usize; 4] =
                std::array::from_fn(|b| a.cols[(e + b).min(entries.end - 1)] as usize);
            for ahead in a.cols.get(e + AHEAD..e + AHEAD + 4).unwrap_or_default() {
                let start = *ahead as usize * x.stride;
                (0..vectors).for_each(|v| prefetch(x.data, start + v * LANES));
            }
            let four = named.map(|j| vectors_of(x, j, vectors));
            let shortest = four.iter().map(|row| row.len()).min().unwrap_or(0);
            for v in 0..shortest {
                for (sums, row) in sums.iter_mut().zip(&four) {
                    sums.iter_mut().zip(&row[v]).for_each(|(sum, x)| join::<M>(sum, x));
                }
            }
        }
        y.row_mut(i - first).fill(sums[0][0]);
    }
    sums
}

/// A row as vectors; the last one may reach into the next row, as kernels read it.
#[inline(always)]
fn vectors_of(x: Mat<'_>, j: usize, vectors: usize) -> &[[f32; LANES]] {
    let start = j * x.stride;
    let end = (start + vectors * LANES).min(x.data.len());
    x.data[start..end].as_chunks().0
}

/// As much arithmetic as a kernel has: one instruction for a vector.
#[inline(always)]
fn join<M: Arith>(sum: &mut f32, x: &f32) {
    *sum = M::mul_add(1.0, *x, *sum);
}

/// Adds every vector to one of four sums, so that no addition waits for the one before.
#[inline(always)]
fn add<M: Arith>(sums: &mut [[f32; LANES]; 4], data: &[f32]) {
    let (fours, rest) = data.as_chunks::<{ 4 * LANES }>();
    for four in fours {
        for (sums, vector) in sums.iter_mut().zip(four.chunks_exact(LANES)) {
            sums.iter_mut().zip(vector).for_each(|(sum, x)| join::<M>(sum, x));
        }
    }
    for (sums, vector) in sums.iter_mut().zip(rest.chunks_exact(LANES)) {
        sums.iter_mut().zip(vector).for_each(|(sum, x)| join::<M>(sum, x));
    }
}

per_isa!(fn multiplied<[], []>(part: Part<'_>) = plain_body);

#[inline(always)]
fn plain_body<M: Arith>(part: Part<'_>) {
    let Part { a, x, rows, mut y } = part;
    let first = rows.start;
    for i in rows {
        let y = y.row_mut(i - first);
        y.fill(0.0);
        for e in a.row(i) {
            let (value, x) = (a.value(e), x.row(a.cols[e] as usize));
            for (y, x) in y.iter_mut().zip(x) {
                *y = M::mul_add(value, *x, *y);
            }
        }
    }
}

/// Reads everything.
pub fn read(isa: Isa, data: &[f32], on: &Threads) {
    let parts = threads::ranges(data.len(), BLOCK);
    on.for_each(parts, |range| {
        black_box(summed(isa, &data[range]));
    });
}

per_isa!(fn summed<[], []>(data: &[f32]) -> [[f32; LANES]; 4] = read_body);

#[inline(always)]
fn read_body<M: Arith>(data: &[f32]) -> [[f32; LANES]; 4] {
    let mut sums = [[0.0; LANES]; 4];
    add::<M>(&mut sums, data);
    sums
}

/// Writes everything.
pub fn write(data: &mut [f32], on: &Threads) {
    on.for_each(data.chunks_mut(BLOCK).collect(), |part: &mut [f32]| part.fill(black_box(1.0)));
}

/// Copies as much as fits.
pub fn copy(from: &[f32], to: &mut [f32], on: &Threads) {
    let parts = from.chunks(BLOCK).zip(to.chunks_mut(BLOCK)).collect();
    on.for_each(parts, |(from, to): (&[f32], &mut [f32])| {
        let len = from.len().min(to.len());
        to[..len].copy_from_slice(&from[..len]);
    });
}
