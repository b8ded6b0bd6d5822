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
mod blocks;
mod dot;
mod edges;
mod forward;
mod gat;
mod gather;
mod gatv2;
mod lanes;
mod project;
mod rows;
mod sums;

pub use backward::Given;
pub use dot::{DotAttention, DotAttentionGrads, DotGiven};
pub use gat::{Gat, GatGrads};
pub use gatv2::{GatV2, GatV2Grads};

use lacis_core::error::same_size;
use lacis_core::{Error, Result, Threads};

use crate::isa::Isa;
use crate::matrix::{Mat, MatMut};
use crate::once::once;
use crate::real::Stored;
use lanes::Layout;

/// `y` and `lse`.
type Outputs<'a, T> = (MatMut<'a, T>, MatMut<'a, <T as Stored>::Sum>);

once!(Once:
    fn gat(
        of: &Gat<'_, Self>,
        isa: Isa,
        out: Outputs<'_, Self>,
        threads: &Threads,
    ) -> Result<()> = Gat::forward_here;
    fn gat_backward(
        of: &Gat<'_, Self>,
        isa: Isa,
        given: &Given<'_, Self>,
        grads: GatGrads<'_, Self>,
        threads: &Threads,
    ) -> Result<()> = Gat::backward_here;
    fn gatv2(
        of: &GatV2<'_, Self>,
        isa: Isa,
        out: Outputs<'_, Self>,
        threads: &Threads,
    ) -> Result<()> = GatV2::forward_here;
    fn gatv2_backward(
        of: &GatV2<'_, Self>,
        isa: Isa,
        given: &Given<'_, Self>,
        grads: GatV2Grads<'_, Self>,
        threads: &Threads,
    ) -> Result<()> = GatV2::backward_here;
    fn dot_attention(
        of: &DotAttention<'_, Self>,
        isa: Isa,
        ends: [Mat<'_, Self>; 2],
        out: Outputs<'_, Self>,
        threads: &Threads,
    ) -> Result<()> = DotAttention::forward_here;
    fn dot_attention_backward(
        of: &DotAttention<'_, Self>,
        isa: Isa,
        given: &DotGiven<'_, Self>,
        grads: DotAttentionGrads<'_, Self>,
        threads: &Threads,
    ) -> Result<()> = DotAttention::backward_here;
);

/// # Errors
/// When `y` or `lse` has another shape than the result; what columns `lse` may have, each tells.
fn check_outputs<T: Stored>(
    op: &'static str,
    (n, layout): (usize, Layout),
    (y, lse): (&MatMut<'_, T>, &MatMut<'_, T::Sum>),
) -> Result<()> {
    same_size(op, "rows of y", n, y.n_rows)?;
    same_size(op, "columns of y", layout.width(), y.n_cols)?;
    same_size(op, "rows of lse", n, lse.n_rows)
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
