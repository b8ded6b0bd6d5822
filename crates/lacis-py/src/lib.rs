//! The native half of the Python package `lacis`.
//!
//! Python's side, in `python/lacis`, knows torch, PyG and notebooks; this side knows kernels,
//! plans and files. What crosses is numbers, arrays and errors, each in a file of its own.
#![deny(unsafe_code)]

mod command;
mod error;
mod graph;
mod machine;
mod planning;
mod sampling;
mod torch;
mod training;
mod view;

use pyo3::prelude::*;

#[pymodule]
fn _lacis(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add_class::<graph::GraphData>()?;
    module.add_class::<sampling::Sampler>()?;
    module.add_class::<sampling::Epoch>()?;
    module.add_class::<training::Training>()?;
    module.add_class::<view::View>()?;
    module.add_function(wrap_pyfunction!(training::results, module)?)?;
    module.add_function(wrap_pyfunction!(planning::plan_layer, module)?)?;
    command::register(module)?;
    machine::register(module)?;
    torch::register(module)
}
