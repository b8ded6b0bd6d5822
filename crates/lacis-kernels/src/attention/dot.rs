//! Scaled dot-product attention over a graph's edges (Shi et al., "Masked label prediction", IJCAI
//! 2021).
//!
//! ```text
//!   s_eh = scale·q_ih·(k_jh + f_eh) + b_eh,   y_ih = Σ_e p'_eh·(v_jh + f_eh)
//!   ds = p'·(dy_ih·(v_jh + f_eh)) - p·δ_ih,   δ_ih = Σ_e p'·(dy_ih·(v_jh + f_eh))
//!   dq_ih = scale·Σ_e ds·(k_jh + f_eh),   dk_jh = scale·Σ_e ds·q_ih,   dv_jh = Σ_e p'·dy_ih
//!   df_eh = scale·ds·q_ih + p'·dy_ih
//! ```
//! `δ` follows from a row's own scores, so that the backward pass needs no `y`. Rows of few edges
//! that have nothing of their own are done many at a time (`short.rs`).
//! # Memory
//! `2·n·heads` numbers backward. Gradients of keys and values take the place of these.

mod passes;
mod short;

use lacis_core::error::same_size;
use lacis_core::{CsrView, Error, Result, Threads};

use super::backward::{InOrder, clear};
use super::edges::{Edges, edge_options};
use super::forward;
use super::lanes::Layout;
use super::rows::{self, Out, PerEntry, nothing};
use crate::dropout::Dropout;
use crate::isa::Isa;
use crate::matrix::{Mat, MatMut};
use crate::real::Stored;
use passes::{Ends, Sources, Targets};

/// A dot-product attention to compute, its sizes checked.
#[derive(Clone, Copy, Debug)]
pub struct DotAttention<'a, T: Stored> {
    a: CsrView<'a>,
    /// Of the keys, and of the values.
    layouts: [Layout; 2],
    queries: Mat<'a, T>,
    edges: Edges<'a, T>,
    scale: f64,
}

/// What the gradients of a [`DotAttention`] follow from, besides the inputs.
#[derive(Clone, Copy, Debug)]
pub struct DotGiven<'a, T: Stored> {
    /// The transposed adjacency. Where edges have features, a bias or dropout it must know their
    /// positions: `Csr::transpose_with_order`.
    pub transpose: CsrView<'a>,
    /// What the forward pass left beside `y`.
    pub lse: Mat<'a, T::Sum>,
    /// The gradient of `y`.
    pub grad: Mat<'a, T>,
}

/// Where the gradients of a [`DotAttention`] go; those that are absent are not computed.
#[derive(Debug)]
pub struct DotAttentionGrads<'a, T: Stored> {
    /// Of `q`.
    pub queries: MatMut<'a, T>,
    /// Keys and values when they come, side by side; their gradients afterwards.
    pub ends: MatMut<'a, T>,
    /// Of `f`, in the caller's order.
    pub features: Option<MatMut<'a, T>>,
    /// Of `b`, in the caller's order; whether there is one or not.
    pub bias: Option<MatMut<'a, T::Sum>>,
}

edge_options!(DotAttention, "Edges have a bias `b`, `nnz × heads` in the caller's order.");

impl<'a, T: Stored> DotAttention<'a, T> {
    /// `q` has one row per target and is as wide as keys are; values are `width` wide, a multiple
    /// of the heads, as keys are. `scale` is `1/√C` as a rule.
    ///
    /// # Errors
    /// When a size does not fit.
    pub fn new(
        a: CsrView<'a>,
        queries: impl Into<Mat<'a, T>>,
        width: usize,
        heads: usize,
        scale: f64,
    ) -> Result<Self> {
        let queries = queries.into();
        let layout = |width: usize| match width.checked_div(heads) {
            Some(channels) if channels * heads == width => Ok(Layout::new::<T>(heads, channels)),
            _ => {
                let problem = format!("{heads} heads do not divide {width} columns");
                Err(Error::argument("heads", problem))
            }
        };
        let mut layouts = [layout(queries.n_cols)?, layout(width)?];
        if layouts[0].shape != layouts[1].shape {
            layouts = layouts.map(Layout::general);
        }
        same_size("dot attention", "rows of the queries", a.n_rows(), queries.n_rows)?;
        Ok(DotAttention { a, layouts, queries, edges: Edges::default(), scale })
    }

    /// Edges have features `f`, in the caller's order and as wide as keys and values, to which
    /// they are added.
    ///
    /// # Errors
    /// When a size does not fit.
    pub fn with_features(mut self, features: impl Into<Mat<'a, T>>) -> Result<Self> {
        self.edges.features = Some(features.into());
        self.check_edges()
    }

    fn on(&self, isa: Isa) -> Self {
        DotAttention { layouts: self.layouts.map(|layout| layout.on(isa)), ..*self }
    }

    fn check_edges(self) -> Result<Self> {
        for layout in self.layouts {
            self.edges.check("dot attention", layout, self.a.cols.len())?;
        }
        Ok(self)
    }

    /// Computes `y`, one row per target, as wide as the values, and `lse`, a number per target
    /// and head that the backward pass takes, from keys and values, which have one row per source.
    ///
    /// # Errors
    /// When a size does not fit.
    pub fn forward<'y>(
        &self,
        isa: Isa,
        ends: [Mat<'_, T>; 2],
        (y, lse): (impl Into<MatMut<'y, T>>, impl Into<MatMut<'y, T::Sum>>),
        threads: &Threads,
    ) -> Result<()> {
        T::dot_attention(self, isa, ends, (y.into(), lse.into()), threads)
    }

    pub(super) fn forward_here(
        &self,
        isa: Isa,
        [keys, values]: [Mat<'_, T>; 2],
        (y, lse): super::Outputs<'_, T>,
        threads: &Threads,
    ) -> Result<()> {
        let [of_keys, of_values] = self.layouts;
        same_size("dot attention", "columns of the keys", of_keys.width(), keys.n_cols)?;
        same_size("dot attention", "columns of the values", of_values.width(), values.n_cols)?;
        same_size("dot attention", "rows of the keys", self.a.n_cols, keys.n_rows)?;
        same_size("dot attention", "rows of the values", self.a.n_cols, values.n_rows)?;
        super::check_outputs("dot attention", (self.a.n_rows(), of_values), (&y, &lse))?;
        same_size("dot attention", "columns of lse", of_values.heads, lse.n_cols)?;
        if of_values.width() > 0 {
            forward::run(isa, &Ends::new(&self.on(isa), keys, values), (y, lse), threads);
        }
        Ok(())
    }

    /// Computes the gradients of the inputs from that of `y`.
    ///
    /// # Errors
    /// When a size does not fit, or the transpose does not tell edges apart that differ.
    pub fn backward(
        &self,
        isa: Isa,
        given: &DotGiven<'_, T>,
        grads: DotAttentionGrads<'_, T>,
        threads: &Threads,
    ) -> Result<()> {
        T::dot_attention_backward(self, isa, given, grads, threads)
    }

    pub(super) fn backward_here(
        &self,
        isa: Isa,
        given: &DotGiven<'_, T>,
        mut grads: DotAttentionGrads<'_, T>,
        threads: &Threads,
    ) -> Result<()> {
        self.check_given(given)?;
        self.check_grads(&grads)?;
        let (keys, values) = (self.layouts[0].width(), self.layouts[1]);
        if values.width() == 0 {
            [grads.queries, grads.ends].into_iter().for_each(|grad| clear(Some(grad)));
            clear(grads.bias);
            return Ok(());
        }
        let (n, m, nnz) = (self.a.n_rows(), self.a.n_cols, self.a.cols.len());
        let mut stats = values.slots(n, 2, threads)?;
        let wanted = grads.features.is_some() || grads.bias.is_some();
        let mut ordered = InOrder::new(self.a, grads.features, grads.bias, threads)?;
        let dot = self.on(isa);
        let both = grads.ends.as_mat();
        let ends = Ends::new(&dot, both.columns(0, keys)?, both.columns(keys, values.width())?);
        let pass = Targets { ends: &ends, given, wanted };
        let out = Out { features: [grads.queries, nothing(n)], stats: (&mut stats).into() };
        rows::run(isa, &pass, (out, ordered.per_entry(nnz)), threads);
        ordered.finish(self.a);

        let pass = Sources { dot: &dot, given, stats: (&stats).into() };
        let out = Out { features: [grads.ends.reborrow(), nothing(m)], stats: nothing(m) };
        rows::run(isa, &pass, (out, PerEntry::none(nnz)), threads);
        Ok(())
    }

    fn check_given(&self, given: &DotGiven<'_, T>) -> Result<()> {
        let (op, a, width) = ("dot attention", self.a, self.layouts[1].width());
        super::backward::check_transpose(op, (a, given.transpose), &self.edges)?;
        same_size(op, "rows of lse", a.n_rows(), given.lse.n_rows)?;
        same_size(op, "columns of lse", self.layouts[1].heads, given.lse.n_cols)?;
        same_size(op, "rows of the gradient of y", a.n_rows(), given.grad.n_rows)?;
        same_size(op, "columns of the gradient of y", width, given.grad.n_cols)
    }

    fn check_grads(&self, grads: &DotAttentionGrads<'_, T>) -> Result<()> {
        let [keys, values] = self.layouts.map(Layout::width);
        let check = super::GradCheck { op: "dot attention backward", nnz: self.a.cols.len() };
        check.shape("queries", (self.a.n_rows(), keys), &grads.queries)?;
        check.shape("keys and values", (self.a.n_cols, keys + values), &grads.ends)?;
        if grads.features.is_some() && self.edges.features.is_none() {
            let problem = "there are no edge features to differentiate by";
            return Err(Error::argument(check.op, problem));
        }
        check.edges(self.layouts[1], &grads.features, &grads.bias)
    }

    /// Edges that are done together, scores of which there is room for.
    fn chunk(&self) -> usize {
        self.layouts[1].chunk()
    }
}
