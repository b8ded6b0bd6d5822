//! Every kernel on every instruction set and number of threads against the reference.
#![allow(clippy::unwrap_used)]

mod cases; // what they are tried on
mod elementwise; // activations, dropout, bias and the like
mod loss; // losses and optimizers
mod norm; // norms and softmax of rows
mod spmm; // sparse times dense
