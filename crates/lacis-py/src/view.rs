//! [`View`]: memory of ours that NumPy sees without a copy.
//!
//! `numpy.asarray(view)` reads `__array_interface__` and keeps the view, which keeps the memory.
//! The array cannot be written to: values that exist are valid, and stay so.

use lacis::{Buffer, Dense};
use pyo3::prelude::*;
use pyo3::types::PyDict;

enum Memory {
    U32(Buffer<u32>),
    U64(Buffer<u64>),
    I32(Buffer<i32>),
    F32(Buffer<f32>),
}

impl Memory {
    /// Where it is, its length, and NumPy's name of its numbers.
    fn described(&self) -> (usize, usize, &'static str) {
        match self {
            Memory::U32(of) => (of.as_ptr() as usize, of.len(), "<u4"),
            Memory::U64(of) => (of.as_ptr() as usize, of.len(), "<u8"),
            Memory::I32(of) => (of.as_ptr() as usize, of.len(), "<i4"),
            Memory::F32(of) => (of.as_ptr() as usize, of.len(), "<f4"),
        }
    }
}

/// An array for NumPy: of one dimension, or rows and columns with a stride.
#[pyclass(frozen, module = "lacis._lacis")]
pub struct View {
    memory: Memory,
    rows: Option<(usize, usize, usize)>,
}

impl View {
    pub fn of_u32(of: Buffer<u32>) -> Self {
        View { memory: Memory::U32(of), rows: None }
    }

    pub fn of_u64(of: Buffer<u64>) -> Self {
        View { memory: Memory::U64(of), rows: None }
    }

    pub fn of_i32(of: Buffer<i32>) -> Self {
        View { memory: Memory::I32(of), rows: None }
    }

    pub fn of_f32(of: Buffer<f32>) -> Self {
        View { memory: Memory::F32(of), rows: None }
    }

    pub fn of_dense(of: Dense) -> Self {
        let rows = Some((of.n_rows(), of.n_cols(), of.stride()));
        View { memory: Memory::F32(of.data().clone()), rows }
    }
}

#[pymethods]
impl View {
    #[getter]
    fn __array_interface__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let (address, len, name) = self.memory.described();
        let described = PyDict::new(py);
        described.set_item("version", 3)?;
        described.set_item("typestr", name)?;
        described.set_item("data", (address, true))?;
        match self.rows {
            None => described.set_item("shape", (len,))?,
            Some((rows, cols, stride)) => {
                described.set_item("shape", (rows, cols))?;
                described.set_item("strides", (stride * size_of::<f32>(), size_of::<f32>()))?;
            }
        }
        Ok(described)
    }
}
