//! Graph files, generators and splits.
#![deny(unsafe_code)]

pub mod edges;
pub mod generate;
pub mod input;
mod job;
mod map;
pub mod mtx;
pub mod native;
pub mod sets;
pub mod splits;
pub mod staged;
pub mod text;
pub mod transform;

use std::path::Path;

pub use job::{Job, Unwatched, Watch};

/// A file's name up to its first dot: what a data set read from it is called.
pub(crate) fn stem(path: &Path) -> String {
    let name = path
        .file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned();
    name.split('.')
        .find(|part| !part.is_empty())
        .unwrap_or("graph")
        .to_owned()
}
