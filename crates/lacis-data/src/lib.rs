//! Graph files, generators and splits.
#![deny(unsafe_code)]

mod job;
mod note;
pub mod npy;
pub mod npz;
mod scipy;

pub use job::{Job, Unwatched, Watch};
