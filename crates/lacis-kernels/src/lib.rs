//! The operators of Lacis on CPUs.
//!
//! Each operator has `Args` with a checked constructor, a table of kernels that tests, benches and
//! the tuner walk, and one body per algorithm that is compiled per instruction set ([`isa`]). This
//! crate knows no network; it allocates no more than the list of a problem's slices; its results do
//! not depend on the number of threads.
#![deny(unsafe_code)]

pub mod attention;
pub mod dropout;
pub mod edge;
pub mod edge_softmax;
pub mod edges;
pub mod elementwise;
mod finish;
pub mod gated;
pub mod gemm;
pub mod isa;
mod lanes;
pub mod loss;
pub mod math;
mod matrix;
mod mem;
pub mod norm;
mod once;
pub mod optim;
pub mod probe;
pub mod profile;
pub mod real;
pub mod roof;
mod rows;
pub mod sampled;
pub mod sddmm;
pub mod segment;
pub mod softmax;
pub mod sparse_matmul;
pub mod spgemm;
pub mod spmm;
mod strips;
mod turned;

pub use edges::EdgeOrder;
pub use finish::{Accum, Epilogue};
pub use isa::Isa;
pub use matrix::{Mat, MatMut};
pub use profile::Profile;
pub use real::{Real, Stored};
