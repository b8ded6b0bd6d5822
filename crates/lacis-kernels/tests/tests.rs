//! Every kernel on every instruction set and number of threads against the reference.
#![allow(clippy::unwrap_used)]

mod attention; // scores, softmax and sums over edges in one
mod cases; // what they are tried on
mod spmm; // sparse times dense
