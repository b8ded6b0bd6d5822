//! Every kernel on every instruction set and number of threads against the reference.
#![allow(clippy::unwrap_used)]

mod cases; // what they are tried on
mod gemm; // dense products, one and many
mod spgemm; // sparse times sparse, sparse features
mod spmm; // sparse times dense
