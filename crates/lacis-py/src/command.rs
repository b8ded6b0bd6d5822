//! The command `lacis`, for `lacis` on the path and `python -m lacis`.

use std::ffi::OsString;
use std::io::Write;

use pyo3::prelude::*;

/// Runs the command as typed, its own name first, and returns its exit code.
#[pyfunction]
fn main(py: Python<'_>, typed: Vec<OsString>) -> u8 {
    py.detach(|| {
        let code = lacis_cli::main(typed);
        // A library's output is not flushed when its process ends; a closed pipe ends quietly.
        let _ = std::io::stdout().flush();
        code
    })
}

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(main, module)?)
}
