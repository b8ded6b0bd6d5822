//! What an attention may take per edge, by the edge's position in the caller's list.

use std::ops::Range;

use lacis_core::error::same_size;
use lacis_core::{CsrView, Error, Result, Rng};

use super::lanes::{Lanes, Layout, Vector};
use crate::matrix::Mat;
use crate::real::{Real, Stored};

/// Dropout of attention coefficients: a function of the seed, the edge and the head, so that the
/// backward pass finds the same ones without keeping them.
#[derive(Clone, Copy, Debug)]
pub struct Dropout {
    rng: Rng,
    /// Random numbers below it drop their coefficient.
    limit: u32,
    kept: f64,
}

impl Dropout {
    /// Drops each coefficient with this probability; the others grow, so that means stay.
    ///
    /// # Errors
    /// When the probability is not between 0 and 1.
    pub fn new(probability: f64, seed: u64) -> Result<Self> {
        if !(0.0..=1.0).contains(&probability) {
            let problem = "not a probability; 0 to 1 would be right";
            return Err(Error::argument(format!("dropout = {probability}"), problem));
        }
        // Casts saturate. Where all are dropped, what is kept is 0.
        let limit = (probability * 4_294_967_296.0) as u32;
        let kept = if probability == 1.0 { 0.0 } else { 1.0 / (1.0 - probability) };
        Ok(Dropout { rng: Rng::new(seed, "attention dropout"), limit, kept })
    }

    /// What the coefficient of an edge, by its position in the caller's list, and a head is
    /// multiplied by: 0 or `1 / (1 - probability)`.
    pub fn factor(&self, edge: u64, head: u32) -> f64 {
        self.factors(edge, head / 4)[head as usize % 4]
    }

    /// Those of four heads.
    #[inline(always)]
    fn factors(&self, edge: u64, four: u32) -> [f64; 4] {
        self.rng.block_at(edge, four).map(|r| if r < self.limit { 0.0 } else { self.kept })
    }
}

impl Dropout {
    /// `p` of some entries, dropped out.
    #[inline(always)]
    pub(super) fn apply<F: Real>(
        &self,
        layout: Layout,
        (a, entries): (CsrView<'_>, Range<usize>),
        (p, out): (&[Lanes<F>], &mut [Lanes<F>]),
    ) {
        let rows = p.as_flattened().chunks(layout.slots);
        let out = out.as_flattened_mut().chunks_mut(layout.slots);
        for ((p, out), e) in rows.zip(out).zip(entries) {
            let edge = position(a, e) as u64;
            for (four, (p, out)) in p.chunks(4).zip(out.chunks_mut(4)).enumerate() {
                let factors = self.factors(edge, four as u32);
                for ((p, out), factor) in p.iter().zip(out).zip(factors) {
                    *out = *p * F::of(factor);
                }
            }
        }
    }
}

/// Features, biases and dropout of edges, where there are any.
#[derive(Clone, Copy, Debug)]
pub(super) struct Edges<'a, T: Stored> {
    pub features: Option<Mat<'a, T>>,
    pub bias: Option<Mat<'a, T::Sum>>,
    pub dropout: Option<Dropout>,
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
        at: (CsrView<'_>, Range<usize>),
        (p, room): (&'p [Vector<T>], &'p mut [Vector<T>]),
    ) -> &'p [Vector<T>] {
        match self.dropout {
            None => p,
            Some(dropout) => {
                dropout.apply(layout, at, (p, room));
                room
            }
        }
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
        Ok(())
    }
}

/// Where entry `e` stands in the caller's list.
#[inline(always)]
pub(super) fn position(a: CsrView<'_>, e: usize) -> usize {
    a.order.map_or(e, |order| order[e] as usize)
}
