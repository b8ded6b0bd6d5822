//! The native half of the Python package `lacis`.
//!
//! Python's side, in `python/lacis`, knows torch, PyG and notebooks; this side knows kernels,
//! plans and files. What crosses is numbers, arrays and errors, each in a file of its own.
#![deny(unsafe_code)]

mod command;
mod error;
mod machine;

use pyo3::prelude::*;

#[pymodule]
fn _lacis(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    command::register(module)?;
    machine::register(module)
}
