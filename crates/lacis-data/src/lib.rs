//! Graph files, generators, built-in sets and splits. The only crate of Lacis that reads files, and
//! everything it returns is checked.
//!
//! - [`open`] takes what a user calls a data set: a path, a generator, a name.
//! - [`mod@format`] has the table of file formats: read by content, written whole or not at all.
//! - [`generate`] and [`sets`] make data; [`splits`] divides them; [`transform`] and [`Changes`]
//!   alter them.
//! - [`Job`] brings the threads, somebody to tell, and a way to be stopped.
//!
//! ```
//! use lacis_core::Threads;
//! use lacis_data::{Job, open};
//!
//! let threads = Threads::one();
//! let set = open("sbm:n=100,e=300,classes=3,features=8,seed=1", &Job::quiet(&threads))?;
//! assert_eq!(set.graph().n_edges(), 600);
//! # Ok::<(), lacis_core::Error>(())
//! ```
#![deny(unsafe_code)]

mod archive;
mod changes;
mod digits;
pub mod edges;
#[cfg(feature = "fetch")]
pub mod fetch;
pub mod format;
pub mod generate;
mod geom;
mod gin;
mod heterophilous;
pub mod input;

mod job;
mod lines;
mod linqs;
mod map;
mod mat;
mod metis;
pub mod mtx;
mod musae;
pub mod native;
mod note;
pub mod npy;
pub mod npz;
mod numbers;
mod ogb;
mod open;
pub mod own;
mod pairs;
mod parts;
pub mod pickle;
mod pieces;
pub mod planetoid;
mod reddit;
mod saint;
mod scipy;
pub mod sets;
pub mod splits;
pub mod staged;
pub mod table;
pub mod text;
pub mod transform;
mod tu;
mod wide;
mod zipped;

use std::path::Path;

pub use changes::Changes;
pub use job::{Job, Unwatched, Watch};
pub use open::{Query, check_finite, open, open_with};

/// A file's name up to its first dot: what a data set read from it is called.
pub(crate) fn stem(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    name.split('.').find(|part| !part.is_empty()).unwrap_or("graph").to_owned()
}
