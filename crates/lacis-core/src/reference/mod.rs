//! Every operator, in f64, in the most obvious loops: the truth for all tests.
//!
//! | file | operators |
//! | --- | --- |
//! | `reduce` | sum, mean, max, min, mul over a list; which argument gets the gradient |
//! | `sparse` | SpMM with scales and epilogue, its gradients, the caller's order of edges |
//! | `sddmm` | one value per edge from its two ends; softmax over a node's edges |
//! | `product` | dense, sparse, grouped and sparse-sparse products; transpose, sort, coalesce |
//! | `attention` | GAT, GATv2 and dot-product attention |
//! | `edge` | a scalar function of an edge's two ends, then a weighted sum |
//! | `gated` | a gate per feature from an edge's two ends, then a sum |
//! | `segment` | select, add, scatter, reduce and softmax by an index of rows or columns |
//! | `gather` | gather and scatter with an index for every element |
//! | `elementwise` | activations, dropout, bias, residual |
//! | `norm` | batch, layer and graph norm, softmax and log-softmax of rows |
//! | `loss`, `optim` | cross-entropy, binary cross-entropy; Adam, AdamW, SGD |
//!
//! A `…_backward` takes the forward's inputs and the gradient of its output, and returns the
//! gradients of the inputs; softmax and its like take the forward's result instead. Ties, kinks and
//! empty rows are as torch and torch_geometric have them. Sizes that disagree are an
//! [`Error`](crate::Error), never a panic.

mod attention;
mod edge;
mod elementwise;
mod gated;
mod gather;
mod loss;
mod norm;
mod optim;
mod product;
mod reduce;
mod sddmm;
mod segment;
mod sparse;

#[cfg(test)]
mod check;

pub use attention::{DotAttention, DotAttentionGrads, Gat, GatGrads, GatV2, GatV2Grads, PerEdge};
pub use edge::{EdgeFunction, EdgeGradient, EdgeValue, FusedEdge, FusedEdgeGrads};
pub use elementwise::{
    Activation, activate, activate_backward, add, add_bias, bias_backward, dropout,
};
pub use gated::{Gated, GatedGrads};
pub use gather::{IndexMatrix, gather, scatter_elements, scatter_elements_backward};
pub use loss::{Loss, binary_cross_entropy, cross_entropy};
pub use norm::{
    Eps, Moments, Norm, NormGrads, log_softmax, log_softmax_backward, softmax, softmax_backward,
};
pub use optim::{Adam, AdamState, Decay, Sgd};
pub use product::{
    Entry, Form, coalesce, grouped_matmul, matmul, segment_matmul, segment_matmul_backward, sort,
    sparse_matmul, sparse_matmul_transposed, spgemm, transpose, transposed,
};
pub use reduce::{Reduce, Ties};
pub use sddmm::{EdgeOp, edge_softmax, edge_softmax_backward, sddmm, sddmm_backward};
pub use segment::{
    Axis, Segments, index_add, index_select, scatter, segment_reduce, segment_reduce_backward,
    segment_softmax, segment_softmax_backward,
};
pub use sparse::{Spmm, SpmmGrads, in_caller_order, in_stored_order, rows_in_caller_order, spmm};

use crate::error::same_size;
use crate::{Dense, Result};

/// `Ok` when the matrix has this many rows and columns; `what` names the two counts.
fn check_shape(
    op: &'static str,
    what: [&'static str; 2],
    shape: (usize, usize),
    x: &Dense<f64>,
) -> Result<()> {
    same_size(op, what[0], shape.0, x.n_rows())?;
    same_size(op, what[1], shape.1, x.n_cols())
}
