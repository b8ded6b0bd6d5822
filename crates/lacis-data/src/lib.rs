//! Graph files, generators and splits.
#![deny(unsafe_code)]

pub mod generate;
mod job;
pub mod sets;
pub mod splits;
pub mod transform;

pub use job::{Job, Unwatched, Watch};
