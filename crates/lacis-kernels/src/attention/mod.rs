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
//! A thread does whole rows, or a part of 32 K entries of a longer one; both follow from the
//! matrix alone.
//! # Accuracy
//! A row's entries are added in order, a chunk of them after its greatest score is known. `f32`
//! powers are within 2 units in the last place; with bf16, `y` is rounded before the backward pass
//! uses it.

mod backward;
mod dot;
mod edges;
mod forward;
mod gat;
mod gather;
mod gatv2;
mod lanes;
mod project;
mod rows;

pub use backward::Given;
pub use dot::{DotAttention, DotAttentionGrads};
pub use gat::{Gat, GatGrads};
pub use gatv2::{GatV2, GatV2Grads};

use lacis_core::error::same_size;
use lacis_core::{Error, Result};

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

/// Whether gradients have the shape of what they are the gradients of.
struct GradCheck {
    op: &'static str,
    nnz: usize,
}

impl GradCheck {
    fn shape<T: Stored>(
        &self,
        what: &str,
        (n_rows, n_cols): (usize, usize),
        grad: &MatMut<'_, T>,
    ) -> Result<()> {
        if (grad.n_rows, grad.n_cols) == (n_rows, n_cols) {
            return Ok(());
        }
        let found = format!("{} × {}", grad.n_rows, grad.n_cols);
        let problem =
            format!("the gradient of the {what} is {found}, expected {n_rows} × {n_cols}");
        Err(Error::argument(self.op, problem))
    }

    fn edges<T: Stored>(
        &self,
        layout: Layout,
        features: &Option<MatMut<'_, T>>,
        bias: &Option<MatMut<'_, T::Sum>>,
    ) -> Result<()> {
        if let Some(features) = features {
            self.shape("edge features", (self.nnz, layout.width()), features)?;
        }
        if let Some(bias) = bias {
            self.shape("edge bias", (self.nnz, layout.heads), bias)?;
        }
        Ok(())
    }
}
