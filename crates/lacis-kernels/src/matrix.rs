//! Matrices as slices: what kernels read and write.

use lacis_core::{Dense, Error, Lent, Result, Threads};

use crate::real::Stored;

/// A row-major matrix to read; element `(i, j)` is `data[i·stride + j]`.
#[derive(Clone, Copy, Debug)]
pub struct Mat<'a, T = f32> {
    pub(crate) data: &'a [T],
    pub(crate) n_rows: usize,
    pub(crate) n_cols: usize,
    pub(crate) stride: usize,
}

impl<'a, T: Stored> Mat<'a, T> {
    /// A matrix in a slice.
    ///
    /// # Errors
    /// When the slice is too short for it, or the stride for a row.
    pub fn new(data: &'a [T], n_rows: usize, n_cols: usize, stride: usize) -> Result<Self> {
        check(data.len(), n_rows, n_cols, stride)?;
        Ok(Mat { data, n_rows, n_cols, stride })
    }

    /// Number of rows.
    pub fn n_rows(&self) -> usize {
        self.n_rows
    }

    /// Number of columns.
    pub fn n_cols(&self) -> usize {
        self.n_cols
    }

    /// The numbers, rows one after another with what lies between them.
    pub fn data(&self) -> &'a [T] {
        self.data
    }

    /// Some consecutive columns.
    ///
    /// # Errors
    /// When there are not so many.
    pub fn columns(&self, from: usize, width: usize) -> Result<Mat<'a, T>> {
        lacis_core::error::same_size("columns", "end of the range", from + width, {
            (from + width).min(self.n_cols)
        })?;
        let data = self.data.get(from..).unwrap_or(&[]);
        Mat::new(data, self.n_rows, width, self.stride)
    }

    /// Row `i`.
    #[inline(always)]
    pub fn row(&self, i: usize) -> &'a [T] {
        &self.data[i * self.stride..][..self.n_cols]
    }

    /// Some consecutive rows.
    pub fn rows(&self, rows: std::ops::Range<usize>) -> Mat<'a, T> {
        // The last row need not be padded; without rows there may be no data.
        let start = if rows.is_empty() { 0 } else { rows.start * self.stride };
        Mat { data: &self.data[start..], n_rows: rows.len(), ..*self }
    }
}

impl<'a, T: Stored> From<&'a Dense<T>> for Mat<'a, T> {
    fn from(dense: &'a Dense<T>) -> Self {
        let (n_rows, n_cols, stride) = (dense.n_rows(), dense.n_cols(), dense.stride());
        Mat { data: dense.data(), n_rows, n_cols, stride }
    }
}

/// A matrix that a kernel needs while it runs, of numbers of any value.
#[derive(Debug)]
pub(crate) struct Room<'t, T> {
    data: Lent<'t, T>,
    n_rows: usize,
    n_cols: usize,
}

impl<'t, T: Stored> Room<'t, T> {
    /// One row after another.
    pub fn lent(n_rows: usize, n_cols: usize, threads: &'t Threads) -> Result<Self> {
        let data = threads.lend(n_rows.saturating_mul(n_cols))?;
        Ok(Room { data, n_rows, n_cols })
    }

    /// Number of rows.
    pub fn n_rows(&self) -> usize {
        self.n_rows
    }

    /// Number of columns.
    pub fn n_cols(&self) -> usize {
        self.n_cols
    }
}

impl<'a, T: Stored> From<&'a Room<'_, T>> for Mat<'a, T> {
    fn from(room: &'a Room<'_, T>) -> Self {
        let Room { ref data, n_rows, n_cols } = *room;
        Mat { data, n_rows, n_cols, stride: n_cols }
    }
}

impl<'a, T: Stored> From<&'a mut Room<'_, T>> for MatMut<'a, T> {
    fn from(room: &'a mut Room<'_, T>) -> Self {
        let (n_rows, n_cols) = (room.n_rows, room.n_cols);
        MatMut { data: &mut room.data, n_rows, n_cols, stride: n_cols }
    }
}

/// A row-major matrix to write.
#[derive(Debug)]
pub struct MatMut<'a, T = f32> {
    pub(crate) data: &'a mut [T],
    pub(crate) n_rows: usize,
    pub(crate) n_cols: usize,
    pub(crate) stride: usize,
}

impl<'a, T: Stored> MatMut<'a, T> {
    /// A matrix in a slice.
    ///
    /// # Errors
    /// When the slice is too short for it, or the stride for a row.
    pub fn new(data: &'a mut [T], n_rows: usize, n_cols: usize, stride: usize) -> Result<Self> {
        check(data.len(), n_rows, n_cols, stride)?;
        Ok(MatMut { data, n_rows, n_cols, stride })
    }

    /// Number of rows.
    pub fn n_rows(&self) -> usize {
        self.n_rows
    }

    /// Number of columns.
    pub fn n_cols(&self) -> usize {
        self.n_cols
    }

    /// The same matrix, to read.
    pub fn as_mat(&self) -> Mat<'_, T> {
        Mat { data: self.data, n_rows: self.n_rows, n_cols: self.n_cols, stride: self.stride }
    }

    /// The same matrix for a while.
    pub fn reborrow(&mut self) -> MatMut<'_, T> {
        let MatMut { n_rows, n_cols, stride, .. } = *self;
        MatMut { data: self.data, n_rows, n_cols, stride }
    }

    /// The rows up to each end, as matrices that different threads may write.
    pub(crate) fn split(self, ends: &[usize]) -> Vec<MatMut<'a, T>> {
        let MatMut { mut data, n_rows, n_cols, stride } = self;
        let mut parts = Vec::with_capacity(ends.len());
        let mut start = 0;
        for &end in ends {
            // The last row need not be padded.
            let cut = if end == n_rows { data.len() } else { (end - start) * stride };
            let (part, rest) = data.split_at_mut(cut);
            parts.push(MatMut { data: part, n_rows: end - start, n_cols, stride });
            (data, start) = (rest, end);
        }
        parts
    }

    /// The rows cut into blocks of so many columns, which different threads may write: for each
    /// block its part of every row.
    pub(crate) fn split_columns(self, width: usize) -> Vec<Vec<&'a mut [T]>> {
        let MatMut { data, n_rows, n_cols, stride } = self;
        let n_blocks = n_cols.div_ceil(width);
        let mut blocks: Vec<Vec<_>> = (0..n_blocks).map(|_| Vec::with_capacity(n_rows)).collect();
        for row in data.chunks_mut(stride.max(1)).take(n_rows) {
            let parts = row[..n_cols].chunks_mut(width);
            blocks.iter_mut().zip(parts).for_each(|(block, part)| block.push(part));
        }
        blocks
    }

    /// Row `i` for reading.
    #[inline(always)]
    pub fn row(&self, i: usize) -> &[T] {
        &self.data[i * self.stride..][..self.n_cols]
    }

    /// Row `i` for writing.
    #[inline(always)]
    pub fn row_mut(&mut self, i: usize) -> &mut [T] {
        &mut self.data[i * self.stride..][..self.n_cols]
    }
}

impl<'a, T: Stored> From<&'a mut Dense<T>> for MatMut<'a, T> {
    fn from(dense: &'a mut Dense<T>) -> Self {
        let (n_rows, n_cols, stride) = (dense.n_rows(), dense.n_cols(), dense.stride());
        MatMut { data: dense.data_mut(), n_rows, n_cols, stride }
    }
}

fn check(len: usize, n_rows: usize, n_cols: usize, stride: usize) -> Result<()> {
    if stride < n_cols {
        return Err(Error::Shape { op: "matrix", what: "stride", expected: n_cols, found: stride });
    }
    let needed = match n_rows {
        0 => Some(0),
        _ => (n_rows - 1).checked_mul(stride).and_then(|n| n.checked_add(n_cols)),
    };
    if needed.is_some_and(|needed| needed <= len) {
        return Ok(());
    }
    let expected = needed.unwrap_or(usize::MAX);
    Err(Error::Shape { op: "matrix", what: "length of the data", expected, found: len })
}
