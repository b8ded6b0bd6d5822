//! Every kernel on every instruction set and number of threads against the reference.
#![allow(clippy::unwrap_used)]

mod cases; // what they are tried on
mod segment; // select, reduce, softmax, gather, scatter by index
mod spmm; // sparse times dense
