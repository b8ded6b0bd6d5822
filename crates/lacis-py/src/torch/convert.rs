//! Memory of other owners as slices: the one place that trusts an address.
//!
//! Python passes the address and the sizes of tensors that it holds for as long as the call runs,
//! and asks for a result only in memory that it has just made. Everything else here is checked.

use half::bf16;
use lacis::kernels::{Mat, MatMut, Stored};
use lacis::{Error, Result};
use pyo3::FromPyObject;

/// A tensor of two dimensions: its address, rows, columns, and elements from row to row.
#[derive(Clone, Copy, Debug, FromPyObject)]
pub struct Raw(pub usize, pub usize, pub usize, pub usize);

/// A tensor of one dimension: its address and length.
#[derive(Clone, Copy, Debug, FromPyObject)]
pub struct RawList(pub usize, pub usize);

/// Numbers that tensors hold and any bits are one of.
pub trait Plain: Copy + Send + Sync + 'static {}
impl Plain for f32 {}
impl Plain for f64 {}
impl Plain for bf16 {}
impl Plain for i32 {}
impl Plain for i64 {}
impl Plain for u32 {}

/// Numbers that kernels compute with, in tensors.
pub trait Number: Stored<Sum: Plain> + Plain {}
impl<T: Stored<Sum: Plain> + Plain> Number for T {}

impl Raw {
    /// How many rows it has.
    pub fn rows(&self) -> usize {
        self.1
    }

    /// How many columns it has.
    pub fn cols(&self) -> usize {
        self.2
    }

    /// From the first element to the last, what lies between rows included.
    fn len(&self) -> Result<usize> {
        let Raw(_, rows, cols, stride) = *self;
        if rows == 0 || cols == 0 {
            return Ok(0);
        }
        let end = (rows - 1).checked_mul(stride).and_then(|n| n.checked_add(cols));
        end.ok_or_else(|| Error::argument("tensor", "its sizes are too large to be true"))
    }

    /// The tensor, to read.
    ///
    /// # Errors
    /// When its sizes contradict each other, or its address its type.
    pub fn read<'a, T: Stored + Plain>(&self) -> Result<Mat<'a, T>> {
        let Raw(address, rows, cols, stride) = *self;
        Mat::new(read(RawList(address, self.len()?))?, rows, cols, stride.max(cols))
    }

    /// The tensor, to write.
    ///
    /// # Errors
    /// When its sizes contradict each other, or its address its type.
    pub fn write<'a, T: Stored + Plain>(&self) -> Result<MatMut<'a, T>> {
        let Raw(address, rows, cols, stride) = *self;
        MatMut::new(write(RawList(address, self.len()?))?, rows, cols, stride.max(cols))
    }
}

fn check<T>(RawList(address, len): RawList) -> Result<()> {
    let aligned = (address as *const T).is_aligned();
    if address != 0 && aligned && len <= isize::MAX as usize / size_of::<T>() {
        return Ok(());
    }
    Err(Error::argument("tensor", format!("{len} elements at {address:#x} cannot be read")))
}

/// The elements of a tensor.
///
/// # Errors
/// When its address is not aligned for them.
pub fn read<'a, T: Plain>(list: RawList) -> Result<&'a [T]> {
    if list.1 == 0 {
        return Ok(&[]);
    }
    check::<T>(list)?;
    // SAFETY: Python holds the tensor while the call runs and gives its own sizes; every bit
    // pattern is a `Plain` number, and the address is aligned and not null.
    #[allow(unsafe_code)]
    Ok(unsafe { std::slice::from_raw_parts(list.0 as *const T, list.1) })
}

/// The elements of a tensor that has just been made.
///
/// # Errors
/// When its address is not aligned for them.
pub fn write<'a, T: Plain>(list: RawList) -> Result<&'a mut [T]> {
    if list.1 == 0 {
        return Ok(&mut []);
    }
    check::<T>(list)?;
    // SAFETY: as in `read`; Python passes each result once and nobody else has it yet.
    #[allow(unsafe_code)]
    Ok(unsafe { std::slice::from_raw_parts_mut(list.0 as *mut T, list.1) })
}

/// What a tensor holds, by the name that Python gives it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Numbers {
    /// `float32`.
    F32,
    /// `float64`.
    F64,
    /// `bfloat16`, added in `f32`.
    Bf16,
}

impl<'py> FromPyObject<'_, 'py> for Numbers {
    type Error = pyo3::PyErr;

    fn extract(object: pyo3::Borrowed<'_, 'py, pyo3::PyAny>) -> pyo3::PyResult<Self> {
        match object.extract::<u8>()? {
            0 => Ok(Numbers::F32),
            1 => Ok(Numbers::F64),
            2 => Ok(Numbers::Bf16),
            other => Err(pyo3::exceptions::PyValueError::new_err(format!(
                "no numbers are called {other}"
            ))),
        }
    }
}

/// Runs an expression with `T` standing for the numbers' type.
macro_rules! with_numbers {
    ($numbers:expr, $T:ident => $body:expr) => {
        match $numbers {
            $crate::torch::convert::Numbers::F32 => {
                type $T = f32;
                $body
            }
            $crate::torch::convert::Numbers::F64 => {
                type $T = f64;
                $body
            }
            $crate::torch::convert::Numbers::Bf16 => {
                type $T = half::bf16;
                $body
            }
        }
    };
}
pub(crate) use with_numbers;

/// An address that may be absent, as 0.
///
/// # Errors
/// When it is not aligned.
pub fn optional<'a, T: Plain>(address: usize, len: usize) -> Result<Option<&'a [T]>> {
    if address == 0 { Ok(None) } else { read(RawList(address, len)).map(Some) }
}
