//! [`Dense`]: a row-major matrix with a stride, so that padding, column slices and concatenation
//! need no copies.
//!
//! ```text
//!   element (i, j) = data[i·stride + j]      stride ≥ cols
//! ```

use bytemuck::Pod;
use half::bf16;
use serde::{Deserialize, Serialize};

use crate::error::same_size;
use crate::{Buffer, Error, Result};

/// The number formats that matrices are stored in. Sums are always kept in `f32` or wider.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DType {
    /// IEEE single precision.
    F32,
    /// IEEE double precision.
    F64,
    /// The upper half of a single: its range with 8 bits of precision.
    Bf16,
}

/// A Rust type that a matrix can be stored as.
pub trait Element: Pod + Send + Sync + std::fmt::Debug + PartialEq {
    /// The format's name.
    const DTYPE: DType;
    /// The nearest number of this format.
    fn from_f64(value: f64) -> Self;
    /// The same number, wide.
    fn to_f64(self) -> f64;
}

macro_rules! element {
    ($type:ty, $dtype:ident, $from:expr, $to:expr) => {
        impl Element for $type {
            const DTYPE: DType = DType::$dtype;
            fn from_f64(value: f64) -> Self {
                $from(value)
            }
            fn to_f64(self) -> f64 {
                $to(self)
            }
        }
    };
}

element!(f32, F32, |v| v as f32, f64::from);
element!(f64, F64, |v| v, |v| v);
element!(bf16, Bf16, bf16::from_f64, bf16::to_f64);

/// A dense matrix. See the module's head.
#[derive(Clone, Debug)]
pub struct Dense<T: Element = f32> {
    data: Buffer<T>,
    n_rows: usize,
    n_cols: usize,
    stride: usize,
}

impl<T: Element> Dense<T> {
    /// Zeros, rows one after another.
    ///
    /// # Panics
    /// When the system refuses the memory; [`Dense::try_zeros`] is for sizes that users choose.
    pub fn zeros(n_rows: usize, n_cols: usize) -> Self {
        Dense::try_zeros(n_rows, n_cols).unwrap_or_else(|error| panic!("{error}"))
    }

    /// As [`Dense::zeros`].
    ///
    /// # Errors
    /// When the system refuses the memory.
    pub fn try_zeros(n_rows: usize, n_cols: usize) -> Result<Self> {
        let len = n_rows.checked_mul(n_cols).ok_or(Error::Memory { bytes: usize::MAX })?;
        Ok(Dense { data: Buffer::try_zeroed(len)?, n_rows, n_cols, stride: n_cols })
    }

    /// Zeros, each row on a 64-byte boundary.
    pub fn zeros_padded(n_rows: usize, n_cols: usize) -> Self {
        let stride = n_cols.next_multiple_of(64 / size_of::<T>());
        let len = n_rows.checked_mul(stride).expect("a matrix's size fits in usize");
        Dense { data: Buffer::zeroed(len), n_rows, n_cols, stride }
    }

    /// Takes over a buffer of `n_rows` rows, `stride` elements apart.
    ///
    /// # Errors
    /// When the stride is shorter than a row, or the buffer than the matrix.
    pub fn new(data: Buffer<T>, n_rows: usize, n_cols: usize, stride: usize) -> Result<Self> {
        if stride < n_cols {
            let what = "stride";
            return Err(Error::Shape { op: "dense", what, expected: n_cols, found: stride });
        }
        // The last row need not be padded.
        let needed = match n_rows {
            0 => Some(0),
            _ => (n_rows - 1).checked_mul(stride).and_then(|n| n.checked_add(n_cols)),
        };
        match needed {
            Some(needed) if needed <= data.len() => Ok(Dense { data, n_rows, n_cols, stride }),
            _ => {
                let expected = needed.unwrap_or(usize::MAX);
                let found = data.len();
                Err(Error::Shape { op: "dense", what: "length of the buffer", expected, found })
            }
        }
    }

    /// Rows one after another.
    ///
    /// # Errors
    /// When the length is not `n_rows · n_cols`.
    pub fn from_vec(data: Vec<T>, n_rows: usize, n_cols: usize) -> Result<Self> {
        let size = n_rows.saturating_mul(n_cols);
        same_size("dense", "length of the data", size, data.len())?;
        Dense::new(data.into(), n_rows, n_cols, n_cols)
    }

    /// Element `(i, j)` is `f(i, j)`.
    pub fn from_fn(n_rows: usize, n_cols: usize, f: impl Fn(usize, usize) -> f64) -> Self {
        let mut dense = Dense::zeros(n_rows, n_cols);
        for i in 0..n_rows {
            let row = dense.row_mut(i);
            row.iter_mut().enumerate().for_each(|(j, value)| *value = T::from_f64(f(i, j)));
        }
        dense
    }

    /// Number of rows.
    pub fn n_rows(&self) -> usize {
        self.n_rows
    }

    /// Number of columns.
    pub fn n_cols(&self) -> usize {
        self.n_cols
    }

    /// Elements from one row's start to the next.
    pub fn stride(&self) -> usize {
        self.stride
    }

    /// The memory, padding included.
    pub fn data(&self) -> &Buffer<T> {
        &self.data
    }

    /// The memory for writing, padding included.
    pub fn data_mut(&mut self) -> &mut [T] {
        self.data.make_mut()
    }

    /// Row `i`.
    pub fn row(&self, i: usize) -> &[T] {
        assert!(i < self.n_rows, "row {i} of {}", self.n_rows);
        &self.data[i * self.stride..][..self.n_cols]
    }

    /// Row `i` for writing.
    pub fn row_mut(&mut self, i: usize) -> &mut [T] {
        assert!(i < self.n_rows, "row {i} of {}", self.n_rows);
        let (stride, n_cols) = (self.stride, self.n_cols);
        &mut self.data.make_mut()[i * stride..][..n_cols]
    }

    /// All rows.
    pub fn rows(&self) -> impl Iterator<Item = &[T]> {
        (0..self.n_rows).map(|i| self.row(i))
    }

    /// Element `(i, j)`, wide.
    pub fn at(&self, i: usize, j: usize) -> f64 {
        self.row(i)[j].to_f64()
    }

    /// The matrix in another format.
    pub fn cast<U: Element>(&self) -> Dense<U> {
        Dense::from_fn(self.n_rows, self.n_cols, |i, j| self.at(i, j))
    }
}

impl<T: Element> PartialEq for Dense<T> {
    /// Same shape, same elements; padding does not count.
    fn eq(&self, other: &Self) -> bool {
        (self.n_rows, self.n_cols) == (other.n_rows, other.n_cols)
            && self.rows().zip(other.rows()).all(|(a, b)| a == b)
    }
}

impl<T: Element> From<ndarray::Array2<T>> for Dense<T> {
    /// Takes an array in standard layout over without a copy; copies any other.
    fn from(array: ndarray::Array2<T>) -> Self {
        let (n_rows, n_cols) = array.dim();
        let vec = if array.is_standard_layout() {
            let len = array.len();
            let (mut vec, offset) = array.into_raw_vec_and_offset();
            // A sliced array may own more than it shows, on either side.
            vec.drain(..offset.unwrap_or(0));
            vec.truncate(len);
            vec
        } else {
            array.iter().copied().collect()
        };
        Dense::from_vec(vec, n_rows, n_cols).expect("an array has as many elements as it says")
    }
}

impl<T: Element> Dense<T> {
    /// A copy as an `ndarray` matrix.
    pub fn to_ndarray(&self) -> ndarray::Array2<T> {
        let data: Vec<T> = self.rows().flatten().copied().collect();
        ndarray::Array2::from_shape_vec((self.n_rows, self.n_cols), data)
            .expect("as many elements as rows times columns")
    }

    /// The same memory seen as an `ndarray` view.
    pub fn view(&self) -> ndarray::ArrayView2<'_, T> {
        use ndarray::ShapeBuilder;
        let shape = (self.n_rows, self.n_cols).strides((self.stride, 1));
        ndarray::ArrayView2::from_shape(shape, &self.data).expect("rows lie in the buffer")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn padding_is_invisible() {
        let mut padded = Dense::<f32>::zeros_padded(3, 5);
        assert_eq!(padded.stride(), 16);
        padded.row_mut(2)[4] = 7.0;
        let plain = Dense::from_fn(3, 5, |i, j| if (i, j) == (2, 4) { 7.0 } else { 0.0 });
        assert_eq!(padded, plain);
        assert_eq!(padded.view(), plain.view());
        assert_eq!(Dense::from(padded.to_ndarray()), plain);
    }

    #[test]
    fn a_sliced_array_keeps_its_own_elements() {
        let array = ndarray::Array2::from_shape_fn((4, 3), |(i, j)| (10 * i + j) as f32);
        let mut tail = array.clone();
        tail.slice_axis_inplace(ndarray::Axis(0), ndarray::Slice::from(2..));
        assert_eq!(Dense::from(tail).row(0), [20.0, 21.0, 22.0]);
        let turned = array.reversed_axes();
        assert_eq!(Dense::from(turned).row(1), [1.0, 11.0, 21.0, 31.0]);
    }

    #[test]
    fn sizes_are_checked() {
        assert!(Dense::<f32>::from_vec(vec![0.0; 5], 2, 3).is_err());
        assert!(Dense::<f32>::new(Buffer::zeroed(5), 2, 3, 2).is_err());
        assert!(Dense::<f32>::new(Buffer::zeroed(5), 2, 2, 3).is_ok());
        assert!(Dense::<f32>::new(Buffer::zeroed(5), usize::MAX, 2, 3).is_err());
    }

    #[test]
    fn formats_convert_through_the_nearest_number() {
        let dense = Dense::<f64>::from_fn(1, 2, |_, j| [1.0, 1.0 / 3.0][j]);
        let narrow = dense.cast::<bf16>();
        assert_eq!(narrow.at(0, 0), 1.0);
        assert!((narrow.at(0, 1) - 1.0 / 3.0).abs() < 1e-3);
        assert_eq!(bf16::DTYPE, DType::Bf16);
    }
}
