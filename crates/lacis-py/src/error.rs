//! Errors as Python knows them; this is the only place that decides which is which.

use lacis::Error;
use pyo3::PyErr;
use pyo3::exceptions::{
    PyIndexError, PyKeyboardInterrupt, PyMemoryError, PyOSError, PyOverflowError, PyValueError,
};

/// The exception that a Python programmer would expect.
pub fn raise(error: Error) -> PyErr {
    let message = error.to_string();
    match error {
        Error::Index { .. } => PyIndexError::new_err(message),
        Error::Overflow { .. } => PyOverflowError::new_err(message),
        Error::Memory { .. } => PyMemoryError::new_err(message),
        Error::Interrupted => PyKeyboardInterrupt::new_err(()),
        // With a number and a file, Python picks the subclass: `FileNotFoundError` and the like.
        Error::Io { doing, path, source } => {
            let reason = format!("cannot {doing}: {source}");
            PyOSError::new_err((source.raw_os_error(), reason, path))
        }
        _ => PyValueError::new_err(message),
    }
}
