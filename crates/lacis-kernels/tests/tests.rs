//! Every kernel on every instruction set and number of threads against the reference.
#![allow(clippy::unwrap_used)]

mod attention; // scores, softmax and sums over edges in one
mod cases; // what they are tried on
mod edge; // softmax over edges, fused edge functions, the roof
mod elementwise; // activations, dropout, bias and the like
mod gated; // gates per edge and feature
mod gemm; // dense products, one and many
mod loss; // losses and optimizers
mod norm; // norms and softmax of rows
mod probe; // what kernels are measured against
mod profile; // choosing by what was measured
mod sampled; // columns of a matrix that stay
mod sddmm; // one value per edge
mod segment; // select, reduce, softmax, gather, scatter by index
mod spgemm; // sparse times sparse, sparse features
mod spmm; // sparse times dense
