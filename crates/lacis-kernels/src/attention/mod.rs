//! Attention over a graph's edges, forward and backward, with nothing kept per edge.
//!
//! For an entry `e = (i, j)` of the adjacency and a head `h`, with `C` channels per head:
//! ```text
//!   GAT          s_eh = leaky( t_h·x_ih + u_h·z_jh + w_h·f_eh + b_eh )   y_ih = Σ_e p'_eh·z_jh
//!   GATv2        s_eh = v_h·leaky( x_ih + z_jh + f_eh ) + b_eh           y_ih = Σ_e p'_eh·z_jh
//!   dot product  s_eh = scale·q_ih·( k_jh + f_eh ) + b_eh      y_ih = Σ_e p'_eh·( v_jh + f_eh )
//!
//!   p = softmax of s over the entries of row i       p' = p, dropped out, not normalised again
//! ```
//! as `lacis_core::reference` defines them. Scores, softmax and sum are one pass over the edges;
//! the backward pass computes the scores again. Values of the adjacency take no part.
//!
//! # Parallelism
//! A thread does whole rows, or a part of 32 K entries of a longer one; slices follow from the matrix.
//! # Accuracy
//! A row's entries are added in order, a chunk of them after its greatest score is known. `f32`
//! powers are within 2 units in the last place; with bf16, `y` is rounded before the backward pass
//! uses it.

mod backward;
mod edges;
mod forward;
mod gat;
mod lanes;
mod project;
mod rows;

pub use backward::Given;
pub use edges::Dropout;
pub use gat::{Gat, GatGrads};

use lacis_core::Result;
use lacis_core::error::same_size;

use crate::matrix::MatMut;
use crate::real::Stored;
use lanes::Layout;

/// # Errors
/// When `y` or `lse` has another shape than the result.
fn check_outputs<T: Stored>(
    op: &'static str,
    (n, layout): (usize, Layout),
    (y, lse): (&MatMut<'_, T>, &MatMut<'_, T::Sum>),
) -> Result<()> {
    same_size(op, "rows of y", n, y.n_rows)?;
    same_size(op, "columns of y", layout.width(), y.n_cols)?;
    same_size(op, "rows of lse", n, lse.n_rows)?;
    same_size(op, "columns of lse", layout.heads, lse.n_cols)
}

/// # Errors
/// When a gradient has another shape than what it is the gradient of.
fn check_shape<T: Stored>(
    op: &'static str,
    what: [&'static str; 2],
    (n_rows, n_cols): (usize, usize),
    grad: &MatMut<'_, T>,
) -> Result<()> {
    same_size(op, what[0], n_rows, grad.n_rows)?;
    same_size(op, what[1], n_cols, grad.n_cols)
}
