//! Matrices as slices: what kernels read and write.

use lacis_core::{Dense, Error, Result};

/// A row-major matrix to read; element `(i, j)` is `data[i·stride + j]`.
#[derive(Clone, Copy, Debug)]
pub struct Mat<'a> {
    pub(crate) data: &'a [f32],
    pub(crate) n_rows: usize,
    pub(crate) n_cols: usize,
    pub(crate) stride: usize,
}

impl<'a> Mat<'a> {
    /// A matrix in a slice.
    ///
    /// # Errors
    /// When the slice is too short for it, or the stride for a row.
    pub fn new(data: &'a [f32], n_rows: usize, n_cols: usize, stride: usize) -> Result<Self> {
        check(data.len(), n_rows, n_cols, stride)?;
        Ok(Mat { data, n_rows, n_cols, stride })
    }
}

impl<'a> From<&'a Dense> for Mat<'a> {
    fn from(dense: &'a Dense) -> Self {
        let (n_rows, n_cols, stride) = (dense.n_rows(), dense.n_cols(), dense.stride());
        Mat { data: dense.data(), n_rows, n_cols, stride }
    }
}

/// A row-major matrix to write.
#[derive(Debug)]
pub struct MatMut<'a> {
    pub(crate) data: &'a mut [f32],
    pub(crate) n_rows: usize,
    pub(crate) n_cols: usize,
    pub(crate) stride: usize,
}

impl<'a> MatMut<'a> {
    /// A matrix in a slice.
    ///
    /// # Errors
    /// When the slice is too short for it, or the stride for a row.
    pub fn new(data: &'a mut [f32], n_rows: usize, n_cols: usize, stride: usize) -> Result<Self> {
        check(data.len(), n_rows, n_cols, stride)?;
        Ok(MatMut { data, n_rows, n_cols, stride })
    }

    /// The rows up to each end, as matrices that different threads may write.
    pub(crate) fn split(self, ends: &[usize]) -> Vec<MatMut<'a>> {
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

    #[inline(always)]
    pub(crate) fn row_mut(&mut self, i: usize) -> &mut [f32] {
        &mut self.data[i * self.stride..][..self.n_cols]
    }
}

impl<'a> From<&'a mut Dense> for MatMut<'a> {
    fn from(dense: &'a mut Dense) -> Self {
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
