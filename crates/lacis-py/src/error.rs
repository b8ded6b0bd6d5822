//! Errors as Python knows them; this is the only place that decides which is which.

use std::io::ErrorKind;

use lacis::Error;
use pyo3::PyErr;
use pyo3::exceptions::{
    PyFileExistsError, PyFileNotFoundError, PyIndexError, PyKeyboardInterrupt, PyMemoryError,
    PyOSError, PyOverflowError, PyPermissionError, PyValueError,
};

/// The exception that a Python programmer would expect.
pub fn raise(error: Error) -> PyErr {
    let message = error.to_string();
    match error {
        Error::Index { .. } => PyIndexError::new_err(message),
        Error::Overflow { .. } => PyOverflowError::new_err(message),
        Error::Memory { .. } => PyMemoryError::new_err(message),
        Error::Interrupted => PyKeyboardInterrupt::new_err(()),
        Error::Io { source, .. } => match source.kind() {
            ErrorKind::NotFound => PyFileNotFoundError::new_err(message),
            ErrorKind::AlreadyExists => PyFileExistsError::new_err(message),
            ErrorKind::PermissionDenied => PyPermissionError::new_err(message),
            _ => PyOSError::new_err(message),
        },
        _ => PyValueError::new_err(message),
    }
}
