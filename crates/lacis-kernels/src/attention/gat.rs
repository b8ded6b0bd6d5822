//! GAT (Veličković et al., "Graph attention networks", ICLR 2018).
//!
//! ```text
//!   s_eh = leaky(raw_eh),   raw_eh = t_h·x_ih + u_h·z_jh + w_h·f_eh + b_eh
//!   y_ih = Σ_e p'_eh·z_jh
//! ```
//! The products with `t` and `u` are computed once per node and pass, those with `w` once per edge.
//! Rows of few edges that have nothing of their own are done many at a time (`short.rs`).
//! Backward, with `l` the LeakyReLU's slope at `raw`:
//! ```text
//!   targets   d(t_h·x_ih) = Σ_e l·ds = dy_ih · Σ_e l·p'·z_jh - δ_ih · Σ_e l·p
//!   sources   d(u_h·z_jh) = Σ_e l·ds,   dz_jh = Σ_e p'·dy_ih + u_h · d(u_h·z_jh)
//! ```
//! # Memory
//! `n·heads` numbers forward, `5·n·heads` backward; with edge features, `nnz·heads` too. A caller
//! that gives `lse` more columns ([`Gat::kept_columns`]) has both sums over targets kept by the
//! forward pass; the backward pass then goes over the edges once instead of twice, and needs
//! `4·n·heads` numbers. One that keeps not even `y` has the backward pass find all of it from the
//! edges (`edgewise.rs`): where nodes have few, that takes little longer.

mod edgewise;
mod passes;
mod score;
mod short;

use lacis_core::error::same_size;
use lacis_core::{CsrView, Error, Result, Threads};

use super::backward::{Given, row_of, store_vectors, to_callers_order};
use super::blocks;
use super::edges::{Edges, edge_options};
use super::forward;
use super::lanes::Layout;
use super::project::{Spread, Vectors, project, spread};
use super::rows::{self, Out, PerEntry, nothing};
use crate::dropout::Dropout;
use crate::isa::Isa;
use crate::matrix::{Mat, MatMut, Room};
use crate::real::{Real, Stored};
use edgewise::Edgewise;
use passes::{Sources, Targets};
use score::GatScore;

/// A GAT to compute, its sizes checked; features are already multiplied by the layer's weights.
#[derive(Clone, Copy, Debug)]
pub struct Gat<'a, T: Stored> {
    a: CsrView<'a>,
    layout: Layout,
    source: Mat<'a, T>,
    /// Absent where targets and sources are the same nodes with the same features.
    target: Option<Mat<'a, T>>,
    target_vectors: Mat<'a, T::Sum>,
    source_vectors: Mat<'a, T::Sum>,
    edge_vectors: Option<Mat<'a, T::Sum>>,
    edges: Edges<'a, T>,
    slope: f64,
    /// Whether sources are where their gradients go.
    in_place: bool,
}

/// Where the gradients of a [`Gat`] go; those that are absent are not computed.
#[derive(Debug)]
pub struct GatGrads<'a, T: Stored> {
    /// Of `z`, and of `x` too where both are the same. Holds `z` before for [`Gat::in_place`].
    pub source: MatMut<'a, T>,
    /// Of `x`, where targets have features of their own.
    pub target: Option<MatMut<'a, T>>,
    /// Of `t`, `heads × C`.
    pub target_vectors: MatMut<'a, T::Sum>,
    /// Of `u`, `heads × C`.
    pub source_vectors: MatMut<'a, T::Sum>,
    /// Of `w`, `heads × C`.
    pub edge_vectors: Option<MatMut<'a, T::Sum>>,
    /// Of `f`, in the caller's order.
    pub features: Option<MatMut<'a, T>>,
    /// Of `b`, in the caller's order; whether there is one or not.
    pub bias: Option<MatMut<'a, T::Sum>>,
}

edge_options!(
    Gat,
    "Edges have a bias `b`, `nnz × heads` in the caller's order, inside the LeakyReLU."
);

impl<'a, T: Stored> Gat<'a, T> {
    /// Attention of the nodes of a square adjacency to each other: `x` is `z`, one row per node,
    /// `heads·C` wide; the vectors `t` and `u` are `heads × C`. Columns of the adjacency that are
    /// no rows need [`Gat::with_target`].
    ///
    /// # Errors
    /// When a size does not fit.
    pub fn new(
        a: CsrView<'a>,
        source: impl Into<Mat<'a, T>>,
        [target_vectors, source_vectors]: [Mat<'a, T::Sum>; 2],
        slope: f64,
    ) -> Result<Self> {
        let source = source.into();
        let layout = Layout::new::<T>(target_vectors.n_rows, target_vectors.n_cols);
        same_size("gat", "number of source vectors", layout.heads, source_vectors.n_rows)?;
        same_size("gat", "length of a source vector", layout.channels, source_vectors.n_cols)?;
        same_size("gat", "rows of the source features", a.n_cols, source.n_rows)?;
        same_size("gat", "columns of the source features", layout.width(), source.n_cols)?;
        Ok(Gat {
            a,
            layout,
            source,
            target: None,
            target_vectors,
            source_vectors,
            edge_vectors: None,
            edges: Edges::default(),
            slope,
            in_place: false,
        })
    }

    /// The same for a backward pass alone, whose [`GatGrads::source`] holds `z` before, so many
    /// columns wide. Targets, where they are not all nodes, are the first ones and have the first
    /// rows.
    ///
    /// # Errors
    /// When a size does not fit.
    pub fn in_place(
        a: CsrView<'a>,
        width: usize,
        vectors: [Mat<'a, T::Sum>; 2],
        slope: f64,
    ) -> Result<Self> {
        let z = Mat { data: &[], n_rows: a.n_cols, n_cols: width, stride: width };
        let gat = Gat::new(a, z, vectors, slope)?;
        let first = Mat { n_rows: a.n_rows(), ..z };
        let target = (a.n_rows() != a.n_cols).then_some(first);
        Ok(Gat { target, in_place: true, ..gat })
    }

    /// Targets have features `x` of their own.
    ///
    /// # Errors
    /// When there is not one row per target, or it is not as wide as a source's.
    pub fn with_target(mut self, target: impl Into<Mat<'a, T>>) -> Result<Self> {
        let target = target.into();
        same_size("gat", "rows of the target features", self.a.n_rows(), target.n_rows)?;
        same_size("gat", "columns of the target features", self.layout.width(), target.n_cols)?;
        self.target = Some(target);
        Ok(self)
    }

    /// Edges have features `f`, `nnz × heads·C` in the caller's order, and vectors `w` for them.
    ///
    /// # Errors
    /// When a size does not fit.
    pub fn with_features(
        mut self,
        features: impl Into<Mat<'a, T>>,
        vectors: impl Into<Mat<'a, T::Sum>>,
    ) -> Result<Self> {
        let vectors = vectors.into();
        same_size("gat", "number of edge vectors", self.layout.heads, vectors.n_rows)?;
        same_size("gat", "length of an edge vector", self.layout.channels, vectors.n_cols)?;
        (self.edges.features, self.edge_vectors) = (Some(features.into()), Some(vectors));
        self.check_edges()
    }

    /// Columns of an `lse` that keeps, beside a number per head, the sums with which the backward
    /// pass over targets needs no look at the edges.
    pub fn kept_columns(heads: usize, channels: usize) -> usize {
        heads * (2 + channels)
    }

    fn check_kept(&self, columns: usize) -> Result<()> {
        let Layout { heads, channels, .. } = self.layout;
        let kept = Self::kept_columns(heads, channels);
        let expected = if columns > heads { kept } else { heads };
        same_size("gat", "columns of lse", expected, columns)
    }

    /// Computes `y`, one row per target, `heads·C` wide, and `lse`, a number per target and head
    /// that the backward pass takes, or [`Gat::kept_columns`] numbers per target that save it time.
    ///
    /// # Errors
    /// When `y` or `lse` has another shape, or there are more sources than targets and these have
    /// no features.
    pub fn forward<'y>(
        &self,
        isa: Isa,
        (y, lse): (impl Into<MatMut<'y, T>>, impl Into<MatMut<'y, T::Sum>>),
        threads: &Threads,
    ) -> Result<()> {
        T::gat(self, isa, (y.into(), lse.into()), threads)
    }

    pub(super) fn forward_here(
        &self,
        isa: Isa,
        (y, lse): super::Outputs<'_, T>,
        threads: &Threads,
    ) -> Result<()> {
        if self.in_place {
            return Err(Error::argument("gat", "what is in place has a backward pass alone"));
        }
        self.check_target()?;
        super::check_outputs("gat", (self.a.n_rows(), self.layout), (&y, &lse))?;
        self.check_kept(lse.n_cols)?;
        if self.layout.width() == 0 {
            return Ok(());
        }
        let gat = &self.on(isa);
        let bias = gat.edge_bias(isa, threads)?;
        let vectors = gat.vectors();
        let source = gat.project_sources(isa, &vectors, threads)?;
        let score = gat.score(&vectors, (&source).into(), bias.as_ref());
        forward::run(isa, &score, (y, lse), threads);
        Ok(())
    }

    /// Computes the gradients of the inputs from that of `y`. `y` itself may have no columns where
    /// no gradients of edges are asked for.
    ///
    /// # Errors
    /// When a size does not fit, a gradient is asked for of what was not given, or the transpose
    /// does not tell edges apart that differ.
    pub fn backward(
        &self,
        isa: Isa,
        given: &Given<'_, T>,
        grads: GatGrads<'_, T>,
        threads: &Threads,
    ) -> Result<()> {
        T::gat_backward(self, isa, given, grads, threads)
    }

    pub(super) fn backward_here(
        &self,
        isa: Isa,
        given: &Given<'_, T>,
        grads: GatGrads<'_, T>,
        threads: &Threads,
    ) -> Result<()> {
        self.check_target()?;
        let forgot = given.y.n_cols == 0 && self.layout.width() > 0;
        let y = if forgot { given.grad } else { given.y };
        Given { y, ..*given }.check("gat", self.a, self.layout, &self.edges)?;
        self.check_kept(given.lse.n_cols)?;
        self.check_grads(&grads)?;
        if self.layout.width() == 0 {
            super::backward::clear(grads.bias);
            super::backward::clear(grads.features);
            return Ok(());
        }
        let wanted = grads.bias.is_some() || self.edge_vectors.is_some();
        if forgot && wanted {
            let problem = "gradients of edges follow from y, which is absent";
            return Err(Error::argument("gat", problem));
        }
        let gat = &self.on(isa);
        let bias = gat.edge_bias(isa, threads)?;
        let GatGrads { source, target, target_vectors, source_vectors, .. } = grads;
        let of_targets = (target, target_vectors);
        let whole = gat.with_rows_of(&source);
        let (stats, scores) =
            whole.over_targets((given, bias.as_ref()), of_targets, [wanted, forgot], threads)?;
        let of_sources = (source, source_vectors);
        gat.over_sources((given, bias.as_ref()), (&stats).into(), of_sources, threads);
        if let Some(scores) = scores {
            let rest = (grads.bias, grads.features, grads.edge_vectors);
            gat.edge_grads(isa, &scores, rest, threads)?;
        }
        Ok(())
    }

    /// The same where sources are in the place of their gradients: with rows to read.
    fn with_rows_of<'z>(&self, z: &'z MatMut<'_, T>) -> Gat<'z, T>
    where
        'a: 'z,
    {
        if !self.in_place {
            return *self;
        }
        let source = z.as_mat();
        let n = self.a.n_rows();
        Gat { source, target: self.target.map(|_| source.rows(0..n)), ..*self }
    }

    /// The pass over targets: `t`, `lse`, `δ` and the gradient of `t_h·x_ih`; and gradients of the
    /// edges' scores, where those are wanted.
    fn over_targets<'t>(
        &self,
        (given, bias): (&Given<'_, T>, Option<&Room<'_, T::Sum>>),
        (target, target_vectors): (Option<MatMut<'_, T>>, MatMut<'_, T::Sum>),
        [wanted, forgot]: [bool; 2],
        threads: &'t Threads,
    ) -> Result<OverTargets<'t, T>> {
        let (gat, layout, isa) = (self, self.layout, self.layout.isa);
        let kept = given.lse.n_cols > layout.heads && !wanted && !forgot;
        // Without a look at the edges of targets, each node's own products are all that is needed.
        let vectors = gat.vectors();
        let sources = || gat.project_sources(isa, &vectors, threads);
        let sources = (!kept).then(sources).transpose()?;
        let none = Mat { data: &[], n_rows: 0, n_cols: 0, stride: 0 };
        let score = gat.score(&vectors, sources.as_ref().map_or(none, Mat::from), bias);
        let (n, nnz) = (gat.a.n_rows(), gat.a.cols.len());
        let mut stats = layout.slots(n, 4, threads)?;
        let room = || Room::<T::Sum>::lent(nnz, layout.heads, threads);
        let mut scores = wanted.then(room).transpose()?;
        let own = PerEntry::new(nnz, None, scores.as_mut().map(MatMut::from));
        let features = [target.unwrap_or(nothing(n)), nothing(n)];
        let out = (Out { features, stats: (&mut stats).into() }, own);
        let totals = if forgot {
            rows::run(isa, &Edgewise { score: &score, gat, given }, out, threads)
        } else {
            rows::run(isa, &Targets { score: &score, gat, given, kept }, out, threads)
        };
        store_vectors(layout, &totals, target_vectors);
        Ok((stats, scores))
    }

    /// The pass over sources, from what the one over targets found.
    fn over_sources(
        &self,
        (given, bias): (&Given<'_, T>, Option<&Room<'_, T::Sum>>),
        stats: Mat<'_, T::Sum>,
        (source, source_vectors): (MatMut<'_, T>, MatMut<'_, T::Sum>),
        threads: &Threads,
    ) {
        let (m, isa, vectors) = (self.a.n_cols, self.layout.isa, self.vectors());
        let none = Mat { data: &[], n_rows: 0, n_cols: 0, stride: 0 };
        let score = self.score(&vectors, none, bias);
        let pass = Sources { score: &score, gat: self, given, stats };
        let out = Out { features: [source, nothing(m)], stats: nothing(m) };
        let none = PerEntry::none(self.a.cols.len());
        store_vectors(self.layout, &rows::run(isa, &pass, (out, none), threads), source_vectors);
    }

    fn check_edges(self) -> Result<Self> {
        self.edges.check("gat", self.layout, self.a.cols.len())?;
        Ok(self)
    }

    fn on(&self, isa: Isa) -> Self {
        Gat { layout: self.layout.on(isa), ..*self }
    }

    /// The gradients of what edges have, from those of their scores in stored order.
    fn edge_grads(
        &self,
        isa: Isa,
        scores: &Room<'_, T::Sum>,
        (bias, features, vectors): EdgeGrads<'_, T>,
        threads: &Threads,
    ) -> Result<()> {
        let (layout, mut ordered) = (self.layout, None);
        if self.a.order.is_some() {
            let mut room = Room::lent(scores.n_rows(), scores.n_cols(), threads)?;
            to_callers_order(self.a, scores.into(), (&mut room).into());
            ordered = Some(room);
        }
        let scores: Mat<'_, T::Sum> = ordered.as_ref().unwrap_or(scores).into();
        if let Some(mut bias) = bias {
            (0..bias.n_rows).for_each(|e| bias.row_mut(e).copy_from_slice(scores.row(e)));
        }
        if let Some((x, edge_vectors)) = self.edges.features.zip(self.edge_vectors) {
            let job = Spread { layout, x, scores, vectors: &row_of(layout, edge_vectors) };
            let totals = spread(isa, &job, features, threads);
            if let Some(vectors) = vectors {
                store_vectors(layout, &totals, vectors);
            }
        }
        Ok(())
    }

    /// `w_h·f_eh + b_eh`, where there are edge features.
    fn edge_bias<'t>(&self, isa: Isa, threads: &'t Threads) -> Result<Option<Room<'t, T::Sum>>> {
        let Some((features, vectors)) = self.edges.features.zip(self.edge_vectors) else {
            return Ok(None);
        };
        let vectors = Vectors::new(self.layout, vectors);
        let mut sums = Room::lent(features.n_rows, self.layout.heads, threads)?;
        project(isa, (self.layout, features, &vectors), (&mut sums).into(), threads);
        if let Some(bias) = self.edges.bias {
            let mut sums = MatMut::from(&mut sums);
            for e in 0..bias.n_rows {
                sums.row_mut(e).iter_mut().zip(bias.row(e)).for_each(|(sum, b)| *sum += *b);
            }
        }
        Ok(Some(sums))
    }

    /// `t` and `u`.
    fn vectors(&self) -> [Vectors<T>; 2] {
        [self.target_vectors, self.source_vectors].map(|vectors| Vectors::new(self.layout, vectors))
    }

    /// `u_h·z_jh` of sources.
    fn project_sources<'t>(
        &self,
        isa: Isa,
        [_, u]: &[Vectors<T>; 2],
        threads: &'t Threads,
    ) -> Result<Room<'t, T::Sum>> {
        let mut slots = self.layout.slots(self.source.n_rows, 1, threads)?;
        project(isa, (self.layout, self.source, u), (&mut slots).into(), threads);
        Ok(slots)
    }

    fn score<'s>(
        &'s self,
        vectors: &'s [Vectors<T>; 2],
        source: Mat<'s, T::Sum>,
        bias: Option<&'s Room<'_, T::Sum>>,
    ) -> GatScore<'s, T> {
        let bias = bias.map(Mat::from).or(self.edges.bias);
        let edges = Edges { features: None, bias, dropout: self.edges.dropout };
        let slope = T::Sum::of(self.slope);
        let far = blocks::is_far(self.a, self.layout.width() * size_of::<T>());
        GatScore { gat: self, vectors, source, edges, slope, far }
    }

    fn check_target(&self) -> Result<()> {
        match self.target {
            Some(_) => Ok(()),
            None => {
                same_size("gat", "rows of the source features", self.a.n_rows(), self.source.n_rows)
            }
        }
    }

    fn check_grads(&self, grads: &GatGrads<'_, T>) -> Result<()> {
        let Layout { heads, channels, .. } = self.layout;
        let check = super::GradCheck { op: "gat backward", nnz: self.a.cols.len() };
        let width = heads * channels;
        check.shape("source features", (self.source.n_rows, width), &grads.source)?;
        if grads.target.is_some() != self.target.is_some() {
            let problem = "targets have a gradient exactly when they have features of their own";
            return Err(Error::argument(check.op, problem));
        }
        let of_edges = grads.features.is_some() || grads.edge_vectors.is_some();
        if of_edges && self.edges.features.is_none() {
            let problem = "there are no edge features to differentiate by";
            return Err(Error::argument(check.op, problem));
        }
        if let Some(target) = &grads.target {
            check.shape("target features", (self.a.n_rows(), width), target)?;
        }
        let vectors = [&grads.target_vectors, &grads.source_vectors];
        for vectors in vectors.into_iter().chain(&grads.edge_vectors) {
            check.shape("vectors", (heads, channels), vectors)?;
        }
        check.edges(self.layout, &grads.features, &grads.bias)
    }
}

/// What the pass over targets writes: numbers per target, and gradients of scores where those are
/// wanted.
type OverTargets<'t, T> = (Room<'t, <T as Stored>::Sum>, Option<Room<'t, <T as Stored>::Sum>>);

/// Bias, features and vectors of edges.
type EdgeGrads<'a, T> = (
    Option<MatMut<'a, <T as Stored>::Sum>>,
    Option<MatMut<'a, T>>,
    Option<MatMut<'a, <T as Stored>::Sum>>,
);
