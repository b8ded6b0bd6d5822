//! What this machine has, and who decided on the number of threads.

use lacis::kernels::Isa;
use lacis::{Result, Threads};
use lacis_cli::machine::choose_threads;
use pyo3::prelude::*;

use crate::error::raise;

/// Threads for a piece of work that is not torch's.
///
/// # Errors
/// When `LACIS_THREADS` makes no sense, or the system refuses the threads.
pub fn threads() -> Result<Threads> {
    Threads::new(choose_threads(None)?.count)
}

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
