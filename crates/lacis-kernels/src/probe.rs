//! What memory can do, and what a plain loop does: the marks that kernels are measured against.
//!
//! [`plain`] is the loop that anyone would write, compiled for the same instruction sets;
//! [`read`], [`write()`] and [`copy`] move an array in order. [`roof`](crate::roof) gathers rows.
//!
//! # Parallelism
//! As in [`spmm`](crate::spmm): slices of about equal numbers of entries.

use std::hint::black_box;
use std::ops::Range;

use lacis_core::error::same_size;
use lacis_core::{CsrView, Result, Threads, threads};

use crate::isa::{Arith, Isa, per_isa};
use crate::lanes::LANES;
use crate::matrix::{Mat, MatMut};
use crate::spmm::SLICE_ENTRIES;

/// Floats that one thread reads or writes at a time.
const BLOCK: usize = 1 << 16;

/// Some rows of a product, and where they go.
struct Part<'a> {
    a: CsrView<'a>,
    x: Mat<'a>,
    rows: Range<usize>,
    y: MatMut<'a>,
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
