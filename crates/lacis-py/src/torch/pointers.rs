//! Results handed to torch as DLPack capsules.

use pyo3::ffi;
use pyo3::prelude::*;

use super::memory::{self, Managed};
use super::{Numbers, failed};

/// An undefined matrix as a DLPack capsule, which `torch.from_dlpack` takes over.
#[pyfunction]
pub fn result(py: Python<'_>, numbers: Numbers, rows: usize, cols: usize) -> PyResult<Py<PyAny>> {
    // DLPack's names: 2 is an IEEE float, 4 a bfloat.
    let kind = match numbers {
        Numbers::F32 => (2, 32),
        Numbers::F64 => (2, 64),
        Numbers::Bf16 => (4, 16),
    };
    let tensor = Box::into_raw(memory::tensor(rows, cols, kind).map_err(failed)?);
    // SAFETY: the name lives for ever, and the pointer until `drop_unused` or torch lets go of it.
    #[allow(unsafe_code)]
    let capsule = unsafe { ffi::PyCapsule_New(tensor.cast(), NAME.as_ptr(), Some(drop_unused)) };
    // SAFETY: a new reference, or null with an exception set.
    #[allow(unsafe_code)]
    unsafe { Bound::from_owned_ptr_or_err(py, capsule) }.map(Bound::unbind)
}

/// What DLPack calls a tensor that nobody has taken over yet.
const NAME: &std::ffi::CStr = c"dltensor";

/// Frees a tensor that nobody took over; who takes one over renames the capsule.
#[allow(unsafe_code)]
unsafe extern "C" fn drop_unused(capsule: *mut ffi::PyObject) {
    // SAFETY: Python calls this with the capsule that is being destroyed.
    if unsafe { ffi::PyCapsule_IsValid(capsule, NAME.as_ptr()) } == 1 {
        // SAFETY: it is valid under this name, so its pointer is the one that `result` put there.
        let tensor = unsafe { ffi::PyCapsule_GetPointer(capsule, NAME.as_ptr()) };
        memory::release(tensor.cast::<Managed>());
    }
}
