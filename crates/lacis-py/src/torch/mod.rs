//! Kernels on the memory of torch tensors. Python's half (`lacis/_torch.py`) checks what it passes;
//! see `convert.rs` for what is trusted.

// Python calls these with plain numbers, one after another; the interpreter's token is one more.
#![allow(clippy::too_many_arguments)]

mod adjacency;
mod attention;
mod convert;
mod memory;
mod pointers;
mod products;
mod segments;
mod threads;

use std::path::PathBuf;
use std::sync::OnceLock;

use lacis::kernels::{Isa, Profile};
use lacis::machine::this_machine;
use pyo3::prelude::*;

use crate::error::raise as failed;
use convert::Numbers;
use threads::threads;

/// What was measured on this machine, or nothing.
static PROFILE: OnceLock<Profile> = OnceLock::new();

fn profile() -> &'static Profile {
    PROFILE.get_or_init(|| Profile::unmeasured(this_machine()))
}

/// The widest instruction set, found once.
fn isa() -> Isa {
    static ISA: OnceLock<Isa> = OnceLock::new();
    *ISA.get_or_init(Isa::best)
}

/// Uses the measurements in a file for choosing kernels, where they are of this machine; returns
/// whether they are. Only the first call of a process counts.
#[pyfunction]
fn use_machine_profile(path: PathBuf) -> bool {
    let machine = this_machine();
    match lacis::tune::file::load(&path, &machine) {
        lacis::tune::file::Found::Profile(profile) => PROFILE.set(*profile).is_ok(),
        _ => false,
    }
}

/// Bytes of results that wait to be used again, and bytes that torch has now.
#[pyfunction]
fn result_memory() -> (usize, usize) {
    memory::usage()
}

/// Gives the memory of results that nobody uses back to the system.
#[pyfunction]
fn clear_result_memory() {
    memory::clear();
}

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<adjacency::Adjacency>()?;
    module.add_class::<segments::Segments>()?;
    module.add_function(wrap_pyfunction!(attention::gat, module)?)?;
    module.add_function(wrap_pyfunction!(attention::gat_backward, module)?)?;
    module.add_function(wrap_pyfunction!(attention::gatv2, module)?)?;
    module.add_function(wrap_pyfunction!(attention::gatv2_backward, module)?)?;
    module.add_function(wrap_pyfunction!(attention::dot_attention, module)?)?;
    module.add_function(wrap_pyfunction!(attention::dot_attention_backward, module)?)?;
    module.add_function(wrap_pyfunction!(products::spmm, module)?)?;
    module.add_function(wrap_pyfunction!(products::spmm_seconds, module)?)?;
    module.add_function(wrap_pyfunction!(products::spmm_arguments, module)?)?;
    module.add_function(wrap_pyfunction!(products::spmm_extreme_backward, module)?)?;
    module.add_function(wrap_pyfunction!(products::value_gradients, module)?)?;
    module.add_function(wrap_pyfunction!(products::sddmm, module)?)?;
    module.add_function(wrap_pyfunction!(products::sddmm_backward, module)?)?;
    module.add_function(wrap_pyfunction!(pointers::result, module)?)?;
    module.add_function(wrap_pyfunction!(use_machine_profile, module)?)?;
    module.add_function(wrap_pyfunction!(result_memory, module)?)?;
    module.add_function(wrap_pyfunction!(clear_result_memory, module)?)
}
