//! Gather and scatter with an index for every element:
//! `y_ic = x_{index(i,c), c}` and `y_sc = reduce { x_ic : index(i,c) = s }`, or along columns.
//!
//! ```text
//!  along columns:          row by row: a row, or what it becomes, stays in the cache
//!  along rows, few places:  a table for each column, positions turned (`tables.rs`)
//!  along rows, if wide:    strips of 64 or 16 columns, copied together to stay in the cache
//!  along rows, if narrow:  gather row by row; scatter by blocks of places (`segment.rows.buckets`)
//! ```
//! # Parallelism
//! A thread writes whole rows, blocks of columns, or blocks of places.
//! # Memory
//! One strip a thread, a pointer a row and block of columns, for narrow scatters the elements.

use lacis_core::error::same_size;
use lacis_core::reference::{Axis, Reduce, Ties};
use lacis_core::threads::ranges;
use lacis_core::{Result, Threads};

use super::index::Index;
use super::strip::{Columns, Places, Row, Strip, WIDTH};
use super::{narrow, select, tables};
use crate::isa::Isa;
use crate::matrix::{Mat, MatMut};
use crate::mem::{L1, fetch_lines, prefetch};
use crate::real::{Real, Stored};

/// Columns that one thread does at a time.
const BLOCK_COLS: usize = 256;
/// From this many columns on there are enough blocks for threads to share.
const WIDE_COLS: usize = 4 * BLOCK_COLS;
/// A strip of more bytes does not stay in a core's cache.
const STRIP_BYTES: usize = 1 << 20;
/// Elements that one item of work writes.
const ITEM_ELEMENTS: usize = 1 << 17;
/// How many elements ahead are asked for.
const AHEAD: usize = 32;

/// An index for each element of a matrix, rows one after another.
#[derive(Clone, Copy, Debug)]
pub struct IndexMatrix<'a> {
    at: &'a [u32],
    bound: usize,
    n_rows: usize,
    n_cols: usize,
}

impl<'a> IndexMatrix<'a> {
    /// The index's positions as a matrix.
    ///
    /// # Errors
    /// When their number is not `n_rows · n_cols`.
    pub fn new(index: &'a Index<'_>, n_rows: usize, n_cols: usize) -> Result<Self> {
        let size = n_rows.saturating_mul(n_cols);
        same_size("index matrix", "number of positions", size, index.len())?;
        Ok(IndexMatrix { at: index.as_slice(), bound: index.bound(), n_rows, n_cols })
    }
}

/// `y_ic = x_{index(i,c), c}` along rows, `y_ic = x_{i, index(i,c)}` along columns.
///
/// # Errors
/// When `x` is not as long as the index may name, or a size across the axis differs.
pub fn gather<'a, 'y, T: Stored>(
    x: impl Into<Mat<'a, T>>,
    index: IndexMatrix<'_>,
    axis: Axis,
    y: impl Into<MatMut<'y, T>>,
    threads: &Threads,
) -> Result<()> {
    T::gather(x.into(), index, axis, y.into(), threads)
}

pub(super) fn gather_here<T: Stored>(
    x: Mat<'_, T>,
    index: IndexMatrix<'_>,
    axis: Axis,
    y: MatMut<'_, T>,
    threads: &Threads,
) -> Result<()> {
    let ((length, width), across) = match axis {
        Axis::Rows => ((x.n_rows, x.n_cols), index.n_cols),
        Axis::Cols => ((x.n_cols, x.n_rows), index.n_rows),
    };
    same_size("gather", "length of x", index.bound, length)?;
    same_size("gather", "width of the index", width, across)?;
    same_size("gather", "rows of y", index.n_rows, y.n_rows)?;
    same_size("gather", "columns of y", index.n_cols, y.n_cols)?;
    if y.n_rows == 0 || y.n_cols == 0 {
        return Ok(());
    }
    if axis == Axis::Rows && x.n_cols == 1 {
        // One index for a row is what selection takes.
        return select::Args::trusted(x, index.at, axis).run(Isa::best(), y, threads);
    }
    let isa = Isa::best();
    match axis {
        Axis::Rows if tables::take(isa, &x, y.n_rows) => {
            tables::gather(isa, (x, index.at), y, threads)?;
        }
        Axis::Rows if in_strips::<T>(4 * x.n_rows, x.n_cols) => {
            gather_strips::<T, { 4 * WIDTH }>(x, index, y, threads);
        }
        Axis::Rows if in_strips::<T>(x.n_rows, x.n_cols) => {
            gather_strips::<T, WIDTH>(x, index, y, threads);
        }
        _ => gather_rows(x, (index, axis), y, threads),
    }
    Ok(())
}

/// Whether strips of a matrix are worth it: enough for all threads, and small.
fn in_strips<T>(n: usize, n_cols: usize) -> bool {
    n_cols >= WIDE_COLS && n * WIDTH * size_of::<T>() <= STRIP_BYTES
}

fn gather_rows<T: Stored>(
    x: Mat<'_, T>,
    (index, axis): (IndexMatrix<'_>, Axis),
    y: MatMut<'_, T>,
    threads: &Threads,
) {
    let k = index.n_cols;
    let rows = ranges(y.n_rows, (ITEM_ELEMENTS / k).max(1));
    let ends: Vec<usize> = rows.iter().map(|rows| rows.end).collect();
    threads.for_each(rows.into_iter().zip(y.split(&ends)).collect(), |(rows, mut y)| {
        for i in rows.clone() {
            let at = &index.at[i * k..][..k];
            let y = y.row_mut(i - rows.start).iter_mut().zip(at);
            match axis {
                Axis::Cols => {
                    let row = x.row(i);
                    y.for_each(|(y, &at)| *y = row[at as usize]);
                }
                Axis::Rows => {
                    let mut ahead = AHEAD % k;
                    for (c, (y, &at)) in y.enumerate() {
                        if let Some(&next) = index.at.get(i * k + c + AHEAD) {
                            prefetch(x.data, next as usize * x.stride + ahead);
                        }
                        ahead = if ahead + 1 == k { 0 } else { ahead + 1 };
                        *y = x.data[at as usize * x.stride + c];
                    }
                }
            }
        }
    });
}

/// Strips of `W` columns, one after another: wide ones come back to each page of the index less
/// often.
fn gather_strips<T: Stored, const W: usize>(
    x: Mat<'_, T>,
    index: IndexMatrix<'_>,
    y: MatMut<'_, T>,
    threads: &Threads,
) {
    let k = index.n_cols;
    let items = ranges(k, BLOCK_COLS).into_iter().zip(y.split_columns(BLOCK_COLS)).collect();
    threads.map_with(items, Vec::new, |strip, (cols, mut y)| {
        for col in cols.clone().step_by(W) {
            let width = W.min(cols.end - col);
            strip.clear();
            for i in 0..x.n_rows {
                fetch_lines::<T, L1>(x.data, (i + AHEAD) * x.stride + col, width);
                let mut row = [T::narrow(T::Sum::ZERO); W];
                row[..width].copy_from_slice(&x.row(i)[col..][..width]);
                strip.push(row);
            }
            for (i, y) in y.iter_mut().enumerate() {
                fetch_lines::<u32, L1>(index.at, (i + AHEAD) * k + col, width);
                let at = &index.at[i * k + col..][..width];
                let y = &mut y[col - cols.start..][..width];
                for (c, (y, &at)) in y.iter_mut().zip(at).enumerate() {
                    *y = strip[at as usize][c];
                }
            }
        }
    });
}

/// A scatter to compute, its sizes checked.
#[derive(Clone, Copy, Debug)]
pub struct Scatter<'a, T = f32> {
    x: Mat<'a, T>,
    index: IndexMatrix<'a>,
    reduce: Reduce,
    axis: Axis,
}

impl<'a, T: Stored> Scatter<'a, T> {
    /// The elements of `x` that name the same place are reduced; places that nobody names are 0,
    /// for mul 1. There are as many places along the axis as the index may name.
    ///
    /// # Errors
    /// When there is not one position for each element.
    pub fn new(
        x: impl Into<Mat<'a, T>>,
        index: IndexMatrix<'a>,
        reduce: Reduce,
        axis: Axis,
    ) -> Result<Self> {
        let x = x.into();
        same_size("scatter", "rows of the index", x.n_rows, index.n_rows)?;
        same_size("scatter", "columns of the index", x.n_cols, index.n_cols)?;
        Ok(Scatter { x, index, reduce, axis })
    }

    fn check_result(&self, y: &Mat<'_, T>, what: [&'static str; 2]) -> Result<()> {
        let (n_rows, n_cols) = match self.axis {
            Axis::Rows => (self.index.bound, self.x.n_cols),
            Axis::Cols => (self.x.n_rows, self.index.bound),
        };
        same_size("scatter", what[0], n_rows, y.n_rows)?;
        same_size("scatter", what[1], n_cols, y.n_cols)
    }

    /// Computes the scatter into `y`.
    ///
    /// # Errors
    /// When `y` has another shape than the result.
    pub fn run<'y>(&self, y: impl Into<MatMut<'y, T>>, threads: &Threads) -> Result<()> {
        T::scatter(self, y.into(), threads)
    }

    pub(super) fn run_here(&self, y: MatMut<'_, T>, threads: &Threads) -> Result<()> {
        self.check_result(&y.as_mat(), ["rows of y", "columns of y"])?;
        if y.n_rows == 0 || y.n_cols == 0 {
            return Ok(());
        }
        let places = self.index.bound * self.x.n_cols;
        let flat = y.stride == y.n_cols && u32::try_from(places).is_ok();
        match self.axis {
            Axis::Cols => self.each_row(y, threads, |strip, kept, y| {
                strip.reduce(self.reduce, kept, Row(y));
            }),
            Axis::Rows if flat && !in_strips::<T>(self.index.bound, self.x.n_cols) => {
                narrow::scatter_flat(self.x, self.index.at, (self.reduce, y), threads);
            }
            Axis::Rows => self.each_strip(y, threads, |strip, _, kept, y| {
                strip.reduce(self.reduce, kept, y);
            }),
        }
        Ok(())
    }

    /// `dx_ic = dy_{index(i,c), c} · ∂reduce/∂x_ic` into `dx`.
    ///
    /// # Errors
    /// When a size does not fit the forward's.
    pub fn backward<'g, 'y>(
        &self,
        ties: Ties,
        grad: impl Into<Mat<'g, T>>,
        dx: impl Into<MatMut<'y, T>>,
        threads: &Threads,
    ) -> Result<()> {
        T::scatter_backward(self, ties, grad.into(), dx.into(), threads)
    }

    pub(super) fn backward_here(
        &self,
        ties: Ties,
        grad: Mat<'_, T>,
        dx: MatMut<'_, T>,
        threads: &Threads,
    ) -> Result<()> {
        self.check_result(&grad, ["rows of the gradient", "columns of the gradient"])?;
        if self.reduce == Reduce::Sum {
            return gather(grad, self.index, self.axis, dx, threads);
        }
        same_size("scatter", "rows of dx", self.x.n_rows, dx.n_rows)?;
        same_size("scatter", "columns of dx", self.x.n_cols, dx.n_cols)?;
        let rule = (self.reduce, ties);
        let strips = dx.n_rows;
        match self.axis {
            _ if strips == 0 || dx.n_cols == 0 => {}
            Axis::Cols => self.each_row_at(dx, threads, |i, strip, kept, dx| {
                let grad = grad.row(i);
                strip.backward(rule, kept, |s, _| grad[s].wide(), Row(dx));
            }),
            Axis::Rows => self.each_strip(dx, threads, |strip, col, kept, dx| {
                strip.backward(rule, kept, |s, c| grad.row(s)[col + c].wide(), dx);
            }),
        }
        Ok(())
    }

    fn each_row(
        &self,
        out: MatMut<'_, T>,
        threads: &Threads,
        f: impl Fn(Strip<'_, T>, &mut Places<T::Sum>, &mut [T]) + Sync,
    ) {
        self.each_row_at(out, threads, |_, strip, kept, out| f(strip, kept, out));
    }

    /// Along columns: a row of elements is a strip, a row of `out` is its result.
    fn each_row_at(
        &self,
        out: MatMut<'_, T>,
        threads: &Threads,
        f: impl Fn(usize, Strip<'_, T>, &mut Places<T::Sum>, &mut [T]) + Sync,
    ) {
        let (k, n) = (self.x.n_cols, self.index.bound);
        let rows = ranges(out.n_rows, (ITEM_ELEMENTS / k.max(n)).max(1));
        let ends: Vec<usize> = rows.iter().map(|rows| rows.end).collect();
        let items = rows.into_iter().zip(out.split(&ends)).collect();
        threads.map_with(items, Places::new, |kept, (rows, mut out)| {
            for i in rows.clone() {
                let at = &self.index.at[i * k..][..k];
                let x = self.x.row(i);
                let strip = Strip { x, stride: 1, at, at_strides: [1, 0], len: k, n, width: 1 };
                f(i, strip, kept, out.row_mut(i - rows.start));
            }
        });
    }

    /// Along rows: up to 16 columns of elements are a strip, the same columns of `out` its result.
    fn each_strip(
        &self,
        out: MatMut<'_, T>,
        threads: &Threads,
        f: impl Fn(Strip<'_, T>, usize, &mut Places<T::Sum>, Columns<'_, '_, T>) + Sync,
    ) {
        let by_element = [self.index.n_cols, 1];
        strips((self.x, self.index.bound), (self.index.at, by_element), out, threads, f);
    }
}

/// `f` on every strip of a matrix whose elements have places, and the same columns of `out`.
fn strips<T: Stored>(
    (x, n): (Mat<'_, T>, usize),
    (at, at_strides): (&[u32], [usize; 2]),
    out: MatMut<'_, T>,
    threads: &Threads,
    f: impl Fn(Strip<'_, T>, usize, &mut Places<T::Sum>, Columns<'_, '_, T>) + Sync,
) {
    let items = ranges(x.n_cols, BLOCK_COLS).into_iter().zip(out.split_columns(BLOCK_COLS));
    threads.map_with(items.collect(), Places::new, |kept, (cols, mut out)| {
        for col in cols.clone().step_by(WIDTH) {
            let width = WIDTH.min(cols.end - col);
            let (stride, len) = (x.stride, x.n_rows);
            let first = |slice: usize, start: usize| start.min(slice);
            let data = &x.data[first(x.data.len(), col)..];
            let at = &at[first(at.len(), col * at_strides[1])..];
            let strip = Strip { x: data, stride, at, at_strides, len, n, width };
            f(strip, col, kept, Columns { rows: &mut out, col: col - cols.start, width });
        }
    });
}

/// `dx_i = dy_s · Π { x_j : j ≠ i, index(j) = s }`, with an index for every row.
pub(super) fn products_of_others<T: Stored>(
    (x, grad): (Mat<'_, T>, Mat<'_, T>),
    index: &[u32],
    dx: MatMut<'_, T>,
    threads: &Threads,
) {
    let rule = (Reduce::Mul, Ties::SplitEvenly);
    strips((x, grad.n_rows), (index, [1, 0]), dx, threads, |strip, col, kept, dx| {
        strip.backward(rule, kept, |s, c| grad.row(s)[col + c].wide(), dx);
    });
}
