//! Kernels on the memory of torch tensors. Python's half (`lacis/_torch.py`) checks what it passes;
//! see `convert.rs` for what is trusted.

mod adjacency;
mod attention;
mod call;
mod convert;
mod dense;
mod losses;
mod memory;
mod pointers;
mod products;
mod sampled;
mod segments;
mod threads;

use std::sync::OnceLock;

use lacis::kernels::{Isa, Profile};
use lacis::machine::this_machine;
use lacis::tune::file::load;
use lacis_cli::machine::profile_path;
use pyo3::prelude::*;

use crate::error::raise as failed;
use convert::Numbers;
use threads::threads;

/// What was measured on this machine, in the file that the command would use; found once.
pub(crate) fn profile() -> &'static Profile {
    static PROFILE: OnceLock<Profile> = OnceLock::new();
    PROFILE.get_or_init(|| {
        let machine = this_machine();
        match profile_path(None) {
            Ok(path) => load(&path, &machine).or_unmeasured(&machine),
            Err(_) => Profile::unmeasured(machine),
        }
    })
}

/// The widest instruction set, found once.
fn isa() -> Isa {
    static ISA: OnceLock<Isa> = OnceLock::new();
    *ISA.get_or_init(Isa::best)
}

/// Bytes of results and of kernels that wait to be used again, and bytes that torch has now.
#[pyfunction]
fn result_memory() -> (usize, usize) {
    let (free, used) = memory::usage();
    (free + threads::idle_bytes(), used)
}

/// Gives memory that nobody uses back to the system.
#[pyfunction]
fn clear_result_memory() {
    memory::clear();
    threads::clear();
}

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<adjacency::Adjacency>()?;
    module.add_class::<sampled::Sampling>()?;
    module.add_class::<segments::Segments>()?;
    call::register(module)?;
    module.add_function(wrap_pyfunction!(pointers::result, module)?)?;
    module.add_function(wrap_pyfunction!(result_memory, module)?)?;
    module.add_function(wrap_pyfunction!(clear_result_memory, module)?)
}
