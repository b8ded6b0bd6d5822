//! What this machine has, and who decided on the number of threads.

use lacis::kernels::Isa;
use lacis_cli::machine::choose_threads;
use pyo3::prelude::*;

use crate::error::raise;

/// Instruction sets that the kernels can use here, the widest first.
#[pyfunction]
fn instruction_sets() -> Vec<&'static str> {
    Isa::available().into_iter().map(Isa::name).collect()
}

/// How many threads Lacis uses by itself, and who decided so.
#[pyfunction]
fn default_threads() -> PyResult<(usize, &'static str)> {
    let choice = choose_threads(None).map_err(raise)?;
    Ok((choice.count, choice.decided_by))
}

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(instruction_sets, module)?)?;
    module.add_function(wrap_pyfunction!(default_threads, module)?)
}
