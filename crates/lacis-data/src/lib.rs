//! Graph files, generators and splits.
#![deny(unsafe_code)]

mod job;

pub use job::{Job, Unwatched, Watch};
