//! Graph files, generators and splits.
#![deny(unsafe_code)]

mod job;
mod note;
pub mod npy;
pub mod npz;
pub mod pickle;
pub mod planetoid;
mod scipy;

pub use job::{Job, Unwatched, Watch};
