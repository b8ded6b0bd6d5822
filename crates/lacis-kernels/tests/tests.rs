//! Every kernel on every instruction set and number of threads against the reference.
#![allow(clippy::unwrap_used)]

mod cases; // what they are tried on
mod probe; // what kernels are measured against
mod profile; // choosing by what was measured
mod spmm; // sparse times dense
