//! Attention: a softmax over each node's edges, then the sum of its neighbours so weighted.
//!
//! For an entry `e = (i, j)` of the adjacency and a head `h`, with `C` channels per head:
//! ```text
//!   GAT          s_eh = leaky( t_h·x_ih + u_h·z_jh + w_h·f_eh + b_eh )   y_ih = Σ_e p'_eh·z_jh
//!   GATv2        s_eh = v_h·leaky( x_ih + z_jh + f_eh ) + b_eh           y_ih = Σ_e p'_eh·z_jh
//!   dot product  s_eh = scale·q_ih·( k_jh + f_eh ) + b_eh      y_ih = Σ_e p'_eh·( v_jh + f_eh )
//!
//!   p = softmax of s over the entries of row i       p' = p ⊙ mask, not normalised again
//! ```
//! A matrix of features has its heads side by side: head `h` is columns `h·C..(h + 1)·C`. These
//! are the scores of torch_geometric's `GATConv`, `GATv2Conv` and `TransformerConv`. Everything is
//! written out per edge, in `nnz × heads·C` numbers; the values of the adjacency take no part.

mod dot;
mod gat;
mod gatv2;

pub use dot::{DotAttention, DotAttentionGrads};
pub use gat::{Gat, GatGrads};
pub use gatv2::{GatV2, GatV2Grads};

use super::check_shape;
use super::elementwise::zip;
use super::sddmm::{at_targets, edge_softmax, edge_softmax_backward, sum_at_targets};
use crate::{Csr, Dense, Error, Result};

/// What an attention may take per edge, in stored order.
#[derive(Clone, Copy, Debug, Default)]
pub struct PerEdge<'a> {
    /// `f`: features, `nnz × heads·C`.
    pub features: Option<&'a Dense<f64>>,
    /// `b`: a number added to the score, `nnz × heads`.
    pub bias: Option<&'a Dense<f64>>,
    /// Dropout of the coefficients: 0 or `1 / (1 − p)`, `nnz × heads`.
    pub mask: Option<&'a Dense<f64>>,
}

/// Number of heads and channels per head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Heads {
    n: usize,
    channels: usize,
}

impl Heads {
    /// One vector per head.
    fn of_vectors(vectors: &Dense<f64>) -> Self {
        let (n, channels) = (vectors.n_rows(), vectors.n_cols());
        Heads { n, channels }
    }

    /// `n` heads side by side in `width` columns.
    fn side_by_side(n: usize, width: usize) -> Result<Self> {
        match width.checked_div(n) {
            Some(channels) if channels * n == width => Ok(Heads { n, channels }),
            _ => {
                let problem = format!("{n} heads do not divide {width} columns");
                Err(Error::argument("heads", problem))
            }
        }
    }

    fn width(self) -> usize {
        self.n * self.channels
    }

    /// The column of channel `c` of head `h`.
    fn at(self, h: usize, c: usize) -> usize {
        h * self.channels + c
    }

    fn check(
        self,
        op: &'static str,
        what: [&'static str; 2],
        n: usize,
        x: &Dense<f64>,
    ) -> Result<()> {
        check_shape(op, what, (n, self.width()), x)
    }

    /// `d_rh = Σ_c x_rhc · z_rhc`.
    fn dots(self, x: &Dense<f64>, z: &Dense<f64>) -> Dense<f64> {
        Dense::from_fn(x.n_rows(), self.n, |r, h| {
            let product = |c| x.at(r, self.at(h, c)) * z.at(r, self.at(h, c));
            (0..self.channels).map(product).fold(0.0, |sum, p| sum + p)
        })
    }

    /// `y_rhc = s_rh · x_rhc`: with the gradient of [`Heads::dots`] as `s`, the gradient of the
    /// factor that is not `x`.
    fn scaled(self, s: &Dense<f64>, x: &Dense<f64>) -> Dense<f64> {
        let head = |column: usize| column / self.channels;
        Dense::from_fn(x.n_rows(), self.width(), |r, column| {
            s.at(r, head(column)) * x.at(r, column)
        })
    }

    /// `d_rh = Σ_c x_rhc · v_hc`, one vector for all rows.
    fn projected(self, x: &Dense<f64>, vectors: &Dense<f64>) -> Dense<f64> {
        self.dots(x, &self.repeated(vectors, x.n_rows()))
    }

    /// The gradients of both factors of [`Heads::projected`].
    fn projected_backward(
        self,
        x: &Dense<f64>,
        vectors: &Dense<f64>,
        grad: &Dense<f64>,
    ) -> (Dense<f64>, Dense<f64>) {
        let dx = self.scaled(grad, &self.repeated(vectors, x.n_rows()));
        let per_row = self.scaled(grad, x);
        let total = |column| (0..x.n_rows()).fold(0.0, |sum, r| sum + per_row.at(r, column));
        let dv = Dense::from_fn(self.n, self.channels, |h, c| total(self.at(h, c)));
        (dx, dv)
    }

    /// The vectors side by side, in every row.
    fn repeated(self, vectors: &Dense<f64>, n_rows: usize) -> Dense<f64> {
        Dense::from_fn(n_rows, self.width(), |_, column| {
            vectors.at(column / self.channels, column % self.channels)
        })
    }
}

impl PerEdge<'_> {
    fn check(&self, op: &'static str, heads: Heads, nnz: usize) -> Result<()> {
        if let Some(features) = self.features {
            let what = ["rows of the edge features", "columns of the edge features"];
            heads.check(op, what, nnz, features)?;
        }
        if let Some(bias) = self.bias {
            let what = ["rows of the edge bias", "columns of the edge bias"];
            check_shape(op, what, (nnz, heads.n), bias)?;
        }
        if let Some(mask) = self.mask {
            let what = ["rows of the mask", "columns of the mask"];
            check_shape(op, what, (nnz, heads.n), mask)?;
        }
        Ok(())
    }

    /// `p'`: the softmax of the scores, masked.
    fn coefficients(&self, a: &Csr, scores: &Dense<f64>) -> Result<Dense<f64>> {
        self.masked(edge_softmax(a, scores)?)
    }

    fn masked(&self, p: Dense<f64>) -> Result<Dense<f64>> {
        match self.mask {
            Some(mask) => zip("attention", &p, mask, |p, m| p * m),
            None => Ok(p),
        }
    }

    /// `y_ih = Σ_e p'_eh · value_eh`, from one row of values per edge.
    fn attend(
        &self,
        a: &Csr,
        heads: Heads,
        scores: &Dense<f64>,
        values: &Dense<f64>,
    ) -> Result<Dense<f64>> {
        let p = self.coefficients(a, scores)?;
        Ok(sum_at_targets(a, &heads.scaled(&p, values)))
    }

    /// The gradients of the scores and of the values, from that of `y`.
    fn attend_backward(
        &self,
        a: &Csr,
        heads: Heads,
        (scores, values): (&Dense<f64>, &Dense<f64>),
        grad: &Dense<f64>,
    ) -> Result<(Dense<f64>, Dense<f64>)> {
        let what = ["rows of the gradient", "columns of the gradient"];
        heads.check("attention backward", what, a.n_rows(), grad)?;
        let grad = at_targets(a, grad);
        let d_values = heads.scaled(&self.coefficients(a, scores)?, &grad);
        let d_p = self.masked(heads.dots(&grad, values))?;
        let d_scores = edge_softmax_backward(a, &edge_softmax(a, scores)?, &d_p)?;
        Ok((d_scores, d_values))
    }
}

/// `x + z`, where `z` may be absent.
fn plus(x: Dense<f64>, z: Option<&Dense<f64>>) -> Result<Dense<f64>> {
    z.map_or(Ok(x.clone()), |z| super::add(&x, z))
}

#[cfg(test)]
mod tests {
    use super::super::check::{dense, flat};
    use super::*;

    #[test]
    fn heads_lie_side_by_side() {
        let heads = Heads::side_by_side(2, 4).unwrap();
        let (x, z) = (dense(&[[1.0, 2.0, 3.0, 4.0]]), dense(&[[5.0, 6.0, 7.0, 8.0]]));
        assert_eq!(flat(&heads.dots(&x, &z)), [17.0, 53.0]);
        let scaled = heads.scaled(&dense(&[[10.0, 100.0]]), &x);
        assert_eq!(flat(&scaled), [10.0, 20.0, 300.0, 400.0]);
        let vectors = dense(&[[1.0, -1.0], [2.0, 0.5]]);
        assert_eq!(Heads::of_vectors(&vectors), heads);
        let projected = heads.projected(&dense(&[[1.0, 2.0, 3.0, 4.0], [1.0; 4]]), &vectors);
        assert_eq!(projected, dense(&[[-1.0, 8.0], [0.0, 2.5]]));
    }
}
