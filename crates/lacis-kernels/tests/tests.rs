//! Every kernel on every instruction set and number of threads against the reference.
#![allow(clippy::unwrap_used)]

mod cases; // what they are tried on
mod spmm; // sparse times dense
