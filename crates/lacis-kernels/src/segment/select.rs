//! Select: `y_i = x_index(i)`, rows or columns; the backward of a sum by segment.
//!
//! # Parallelism
//! A thread writes whole rows of `y`.
//! # Memory
//! Along columns, 16 rows of `x` an item.

use std::array::from_fn;

use lacis_core::error::same_size;
use lacis_core::reference::Axis;
use lacis_core::threads::ranges;
use lacis_core::{Result, Threads};

use super::index::Index;
#[cfg(target_arch = "x86_64")]
use super::wide::select as columns_wide;
use crate::isa::{Arith, Isa, per_isa};
use crate::lanes::LANES;
use crate::matrix::{Mat, MatMut};
use crate::mem::{L1, L2, fetch_lines, prefetch};
use crate::real::{Real, Stored};
use crate::turned::{Line, SIDE};

/// Elements that one item of work writes.
const ITEM_ELEMENTS: usize = 1 << 17;
/// How many rows ahead are asked for, into the second cache and into the first.
const AHEAD: [usize; 2] = [48, 12];
/// How many single numbers.
const AHEAD_SINGLES: usize = 48;
/// Lines of more bytes than this are not kept: what is read here and there would come from memory.
const LINES_BYTES: usize = 1 << 23;
/// Rows of more bytes than this are not asked for: the hardware sees them coming.
const LONG_BYTES: usize = 2048;

/// A selection to make, its sizes checked.
#[derive(Clone, Copy, Debug)]
pub struct Args<'a, T: Stored = f32> {
    x: Mat<'a, T>,
    index: &'a [u32],
    axis: Axis,
    scale: Option<&'a [T::Sum]>,
}

impl<'a, T: Stored> Args<'a, T> {
    /// `y_i = x_index(i)`.
    ///
    /// # Errors
    /// When `x` has not as many rows, or columns, as the index may name.
    pub fn new(x: impl Into<Mat<'a, T>>, index: &'a Index<'_>, axis: Axis) -> Result<Self> {
        let x = x.into();
        let length = if axis == Axis::Rows { x.n_rows } else { x.n_cols };
        same_size("index_select", "length of x", index.bound(), length)?;
        Ok(Args { x, index: index.as_slice(), axis, scale: None })
    }

    /// The same for positions that are known to lie in `x`.
    pub(super) fn trusted(x: Mat<'a, T>, index: &'a [u32], axis: Axis) -> Self {
        Args { x, index, axis, scale: None }
    }

    /// `y_i = f_index(i) · x_index(i)`.
    ///
    /// # Errors
    /// When there is not one factor for each row, or column, of `x`.
    pub fn scaled(mut self, factors: &'a [T::Sum]) -> Result<Self> {
        let length = if self.axis == Axis::Rows { self.x.n_rows } else { self.x.n_cols };
        same_size("index_select", "number of factors", length, factors.len())?;
        self.scale = Some(factors);
        Ok(self)
    }

    /// Writes the selection to `y`.
    ///
    /// # Errors
    /// When `y` has another shape than the selection.
    pub fn run<'y>(&self, isa: Isa, y: impl Into<MatMut<'y, T>>, threads: &Threads) -> Result<()> {
        T::select(self, isa, y.into(), threads)
    }

    pub(super) fn run_here(&self, isa: Isa, y: MatMut<'_, T>, threads: &Threads) -> Result<()> {
        let (n_rows, n_cols) = match self.axis {
            Axis::Rows => (self.index.len(), self.x.n_cols),
            Axis::Cols => (self.x.n_rows, self.index.len()),
        };
        same_size("index_select", "rows of y", n_rows, y.n_rows)?;
        same_size("index_select", "columns of y", n_cols, y.n_cols)?;
        if n_rows == 0 || n_cols == 0 {
            return Ok(());
        }
        if self.axis == Axis::Cols && n_rows == 1 {
            return self.single_row(isa, y, threads);
        }
        let rows = (ITEM_ELEMENTS / n_cols).max(1);
        let rows = if self.axis == Axis::Cols { rows.next_multiple_of(SIDE) } else { rows };
        let items = ranges(n_rows, rows);
        let ends: Vec<usize> = items.iter().map(|rows| rows.end).collect();
        let items = items.into_iter().zip(y.split(&ends)).collect();
        threads.try_map(items, |(rows, y): (_, MatMut<'_, T>)| {
            match self.axis {
                Axis::Rows => {
                    let args = Args { index: &self.index[rows], ..*self };
                    if y.n_cols == 1 { singles(isa, (args, y)) } else { by_rows(isa, (args, y)) }
                }
                Axis::Cols => {
                    let (index, scale) = (self.index, self.scale);
                    let n = self.x.n_cols;
                    let few = n * size_of::<Line>() <= LINES_BYTES && scale.is_none();
                    let lines = &mut threads.lend(if few { n } else { 0 })?;
                    by_columns(isa, Columns { x: self.x.rows(rows), index, scale, y, lines });
                }
            }
            Ok(())
        })?;
        Ok(())
    }

    /// One row is a column to whoever ignores the stride, and a column can be cut.
    fn single_row(&self, isa: Isa, y: MatMut<'_, T>, threads: &Threads) -> Result<()> {
        let MatMut { data, n_cols, .. } = y;
        let y = MatMut { data: &mut data[..n_cols], n_rows: n_cols, n_cols: 1, stride: 1 };
        let data = &self.x.data[..self.x.n_cols];
        let x = Mat { data, n_rows: data.len(), n_cols: 1, stride: 1 };
        Args { x, axis: Axis::Rows, ..*self }.run(isa, y, threads)
    }
}

per_isa!(fn by_rows<[T: Stored], []>(job: (Args<'_, T>, MatMut<'_, T>)) = by_rows_body);
per_isa!(fn singles<[T: Stored], []>(job: (Args<'_, T>, MatMut<'_, T>)) = singles_body);
per_isa!(fn by_columns<[T: Stored], []>(job: Columns<'_, T>) = columns_body, avx512 = columns_wide);

/// Some rows of a selection along columns.
pub(super) struct Columns<'a, T: Stored> {
    pub x: Mat<'a, T>,
    pub index: &'a [u32],
    pub scale: Option<&'a [T::Sum]>,
    pub y: MatMut<'a, T>,
    /// Room for rows that are turned, with AVX-512; none where it would be too much.
    #[cfg_attr(not(target_arch = "x86_64"), allow(dead_code))]
    pub lines: &'a mut [Line],
}

#[inline(always)]
fn by_rows_body<M: Arith, T: Stored>((args, mut y): (Args<'_, T>, MatMut<'_, T>)) {
    let Args { x, index, scale, .. } = args;
    let long = x.n_cols * size_of::<T>() > LONG_BYTES;
    for (i, &at) in index.iter().enumerate() {
        let (row, y) = (x.row(at as usize), y.row_mut(i));
        if let Some(scale) = scale {
            let factor = scale[at as usize];
            y.iter_mut().zip(row).for_each(|(y, x)| *y = T::narrow(x.wide() * factor));
            continue;
        }
        if !long {
            if let Some(&far) = index.get(i + AHEAD[0]) {
                fetch_lines::<T, L2>(x.data, far as usize * x.stride, x.n_cols);
            }
            if let Some(&near) = index.get(i + AHEAD[1]) {
                fetch_lines::<T, L1>(x.data, near as usize * x.stride, x.n_cols);
            }
        }
        copy(row, y);
    }
}

/// A copy by whole vectors, without a call: the system's takes longer, also for rows of some
/// kilobytes.
#[inline(always)]
fn copy<T: Stored>(row: &[T], y: &mut [T]) {
    let (from, from_rest) = row.as_chunks::<LANES>();
    let (to, to_rest) = y.as_chunks_mut::<LANES>();
    to.iter_mut().zip(from).for_each(|(to, from)| *to = *from);
    to_rest.iter_mut().zip(from_rest).for_each(|(to, from)| *to = *from);
}

#[inline(always)]
fn singles_body<M: Arith, T: Stored>((args, mut y): (Args<'_, T>, MatMut<'_, T>)) {
    let Args { x, index, scale, .. } = args;
    if y.stride == 1 && x.stride == 1 && scale.is_none() {
        for (i, (y, &at)) in y.data.iter_mut().zip(index).enumerate() {
            if let Some(&next) = index.get(i + AHEAD_SINGLES) {
                prefetch(x.data, next as usize);
            }
            *y = x.data[at as usize];
        }
        return;
    }
    for (i, &at) in index.iter().enumerate() {
        let factor = scale.map_or(T::Sum::ONE, |scale| scale[at as usize]);
        y.row_mut(i)[0] = T::narrow(x.row(at as usize)[0].wide() * factor);
    }
}

#[inline(always)]
pub(super) fn columns_body<M: Arith, T: Stored>(job: Columns<'_, T>) {
    let Columns { x, index, scale, mut y, .. } = job;
    let Some(scale) = scale else { return plain_columns((x, index), y) };
    for i in 0..y.n_rows {
        let row = x.row(i);
        for (y, &at) in y.row_mut(i).iter_mut().zip(index) {
            *y = T::narrow(row[at as usize].wide() * scale[at as usize]);
        }
    }
}

/// Rows that one look at the index serves: with more, addresses no longer fit in registers.
const TOGETHER: usize = 4;

#[inline(always)]
fn plain_columns<T: Stored>((x, index): (Mat<'_, T>, &[u32]), y: MatMut<'_, T>) {
    let n_rows = y.n_rows;
    let mut rows = y.data.chunks_mut(y.stride).take(n_rows);
    for start in (0..n_rows).step_by(TOGETHER) {
        let count = TOGETHER.min(n_rows - start);
        // At the end there may be fewer: what stands for the others is not used.
        let from: [&[T]; TOGETHER] = from_fn(|r| x.row(start + r.min(count - 1)));
        let to: [&mut [T]; TOGETHER] = from_fn(|_| rows.next().unwrap_or_default());
        let next = (start + TOGETHER) * x.stride;
        match count {
            TOGETHER => four_rows((x, index), from, to, next),
            _ => from.iter().zip(to).take(count).for_each(|(row, y)| {
                y.iter_mut().zip(index).for_each(|(y, &at)| *y = row[at as usize]);
            }),
        }
    }
}

/// The chosen columns of four rows. While they are read here and there, the next four, from element
/// `next` on, are asked for, spread over the time that takes.
#[inline(always)]
fn four_rows<T: Stored>(
    (x, index): (Mat<'_, T>, &[u32]),
    from: [&[T]; TOGETHER],
    to: [&mut [T]; TOGETHER],
    next: usize,
) {
    let (n, count) = (x.n_cols, index.len());
    // Of equal lengths, said once: one comparison a position is left.
    let [x0, x1, x2, x3] = from.map(|row| &row[..n]);
    let [y0, y1, y2, y3] = to.map(|row| &mut row[..count]);
    let lanes = n.div_ceil(count.div_ceil(LANES)).next_multiple_of(LANES);
    for start in (0..count).step_by(LANES) {
        let ask = start / LANES * lanes;
        if ask < n {
            (0..TOGETHER)
                .for_each(|r| fetch_lines::<T, L1>(x.data, next + r * x.stride + ask, lanes));
        }
        for i in start..count.min(start + LANES) {
            let at = index[i] as usize;
            (y0[i], y1[i], y2[i], y3[i]) = (x0[at], x1[at], x2[at], x3[at]);
        }
    }
}
