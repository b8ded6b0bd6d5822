//! What an attention may take per edge, by the edge's position in the caller's list.

use std::ops::Range;

use lacis_core::error::same_size;
use lacis_core::{CsrView, Result};

use super::lanes::{LANES, Layout, Vector};
use crate::dropout::{Dropout, NUMBERS};
use crate::matrix::Mat;
use crate::real::Stored;

/// Features, biases and dropout of edges, where there are any.
#[derive(Clone, Copy, Debug)]
pub(super) struct Edges<'a, T: Stored> {
    pub features: Option<Mat<'a, T>>,
    pub bias: Option<Mat<'a, T::Sum>>,
    pub dropout: Option<Dropout<'a>>,
}

impl<T: Stored> Default for Edges<'_, T> {
    fn default() -> Self {
        Edges { features: None, bias: None, dropout: None }
    }
}

impl<T: Stored> Edges<'_, T> {
    /// Whether a transposed matrix must know the edges' positions.
    pub fn are_told_apart(&self) -> bool {
        self.features.is_some() || self.bias.is_some() || self.dropout.is_some()
    }

    /// Adds the biases of entries to their scores.
    #[inline(always)]
    pub fn add_bias(
        &self,
        layout: Layout,
        (a, entries): (CsrView<'_>, Range<usize>),
        scores: &mut [Vector<T>],
    ) {
        let Some(bias) = self.bias else { return };
        let scores = scores.as_flattened_mut();
        for (scores, e) in scores.chunks_mut(layout.slots).zip(entries) {
            let bias = bias.row(position(a, e));
            for (score, bias) in scores.iter_mut().zip(bias) {
                *score += *bias;
            }
        }
    }

    /// `p`, dropped out into `room` where there is dropout.
    #[inline(always)]
    pub fn dropped<'p>(
        &self,
        layout: Layout,
        (a, entries): (CsrView<'_>, Range<usize>),
        (p, room): (&'p [Vector<T>], &'p mut [Vector<T>]),
    ) -> &'p [Vector<T>] {
        let Some(dropout) = self.dropout else { return p };
        let slots = layout.slots;
        let rows = p.as_flattened().chunks(slots * LANES);
        let out = room.as_flattened_mut().chunks_mut(slots * LANES);
        for ((p, out), first) in rows.zip(out).zip(entries.clone().step_by(LANES)) {
            let mut names = [0; LANES];
            for (name, e) in names.iter_mut().zip(first..entries.end) {
                *name = dropout.name(position(a, e));
            }
            for block in 0..layout.heads.div_ceil(NUMBERS) {
                let factors = dropout.factors::<T::Sum>(&names, block as u32);
                let edges = p.chunks(slots).zip(out.chunks_mut(slots));
                for ((p, out), factors) in edges.zip(&factors) {
                    let (p, out) = (&p[block * NUMBERS..], &mut out[block * NUMBERS..]);
                    for ((p, out), factor) in p.iter().zip(out).zip(factors) {
                        *out = *p * *factor;
                    }
                }
            }
        }
        room
    }

    /// # Errors
    /// When there is not one row per edge, or it is not as wide as the heads.
    pub fn check(&self, op: &'static str, layout: Layout, nnz: usize) -> Result<()> {
        if let Some(features) = self.features {
            same_size(op, "rows of the edge features", nnz, features.n_rows)?;
            same_size(op, "columns of the edge features", layout.width(), features.n_cols)?;
        }
        if let Some(bias) = self.bias {
            same_size(op, "rows of the edge bias", nnz, bias.n_rows)?;
            same_size(op, "columns of the edge bias", layout.heads, bias.n_cols)?;
        }
        self.dropout.map_or(Ok(()), |dropout| dropout.check(op, nnz))
    }
}

/// Where entry `e` stands in the caller's list.
#[inline(always)]
pub(super) fn position(a: CsrView<'_>, e: usize) -> usize {
    a.order.map_or(e, |order| order[e] as usize)
}

/// The ways to give edges a bias and dropout, which are the same for all attentions.
macro_rules! edge_options {
    ($attention:ident, $bias:literal) => {
        impl<'a, T: Stored> $attention<'a, T> {
            #[doc = $bias]
            ///
            /// # Errors
            /// When a size does not fit.
            pub fn with_bias(mut self, bias: impl Into<Mat<'a, T::Sum>>) -> Result<Self> {
                self.edges.bias = Some(bias.into());
                self.check_edges()
            }

            /// Coefficients are dropped out: rows of the dropout are the edges' positions in the
            /// caller's list, columns are heads. The backward pass finds the same ones.
            ///
            /// # Errors
            /// When the dropout names another number of edges.
            pub fn with_dropout(mut self, dropout: Dropout<'a>) -> Result<Self> {
                self.edges.dropout = Some(dropout);
                self.check_edges()
            }
        }
    };
}
pub(super) use edge_options;
