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
//! `4·n·heads` numbers.

mod passes;
mod short;

use std::ops::Range;

use lacis_core::error::same_size;
use lacis_core::{CsrView, Error, Result, Threads};

use super::backward::{Given, row_of, store_vectors, to_callers_order};
use super::blocks::{self, Scratch};
use super::edges::{Edges, edge_options};
use super::forward::{self, Score};
use super::gather::{self, AddRows, Fetch, Gathered};
use super::lanes::{Layout, Vector};
use super::project::{Spread, Vectors, project, project_one, spread};
use super::rows::{self, Out, PerEntry, To, nothing};
use crate::dropout::Dropout;
use crate::isa::{Arith, Isa};
use crate::matrix::{Mat, MatMut, Room};
use crate::real::{Real, Stored};
use passes::{Sources, Targets};

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
}

/// Where the gradients of a [`Gat`] go; those that are absent are not computed.
#[derive(Debug)]
pub struct GatGrads<'a, T: Stored> {
    /// Of `z`, and of `x` too where both are the same.
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
        })
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

    /// Computes the gradients of the inputs from that of `y`.
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
        given.check("gat", self.a, self.layout, &self.edges)?;
        self.check_kept(given.lse.n_cols)?;
        self.check_grads(&grads)?;
        if self.layout.width() == 0 {
            super::backward::clear(grads.bias);
            super::backward::clear(grads.features);
            return Ok(());
        }
        let gat = &self.on(isa);
        let bias = gat.edge_bias(isa, threads)?;
        let GatGrads { source, target, target_vectors, source_vectors, .. } = grads;
        let layout = gat.layout;
        let wanted = grads.bias.is_some() || gat.edge_vectors.is_some();
        let kept = given.lse.n_cols > layout.heads && !wanted;
        // Without a look at the edges of targets, each node's own products are all that is needed.
        let vectors = gat.vectors();
        let sources = || gat.project_sources(isa, &vectors, threads);
        let sources = (!kept).then(sources).transpose()?;
        let none = Mat { data: &[], n_rows: 0, n_cols: 0, stride: 0 };
        let sources = sources.as_ref().map_or(none, Mat::from);
        let score = gat.score(&vectors, sources, bias.as_ref());

        let (n, nnz) = (gat.a.n_rows(), gat.a.cols.len());
        let mut stats = layout.slots(n, 4, threads)?;
        let room = || Room::<T::Sum>::lent(nnz, layout.heads, threads);
        let mut scores = wanted.then(room).transpose()?;
        let own = PerEntry::new(nnz, None, scores.as_mut().map(MatMut::from));
        let pass = Targets { score: &score, gat, given, kept };
        let features = [target.unwrap_or(nothing(n)), nothing(n)];
        let out = Out { features, stats: (&mut stats).into() };
        store_vectors(layout, &rows::run(isa, &pass, (out, own), threads), target_vectors);

        let pass = Sources { score: &score, gat, given, stats: (&stats).into() };
        let m = gat.a.n_cols;
        let out = Out { features: [source, nothing(m)], stats: nothing(m) };
        let totals = rows::run(isa, &pass, (out, PerEntry::none(nnz)), threads);
        store_vectors(layout, &totals, source_vectors);
        if let Some(scores) = scores {
            let rest = (grads.bias, grads.features, grads.edge_vectors);
            gat.edge_grads(isa, &scores, rest, threads)?;
        }
        Ok(())
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

/// Bias, features and vectors of edges.
type EdgeGrads<'a, T> = (
    Option<MatMut<'a, <T as Stored>::Sum>>,
    Option<MatMut<'a, T>>,
    Option<MatMut<'a, <T as Stored>::Sum>>,
);

/// What a thread has for the forward pass.
struct ScoreWork<T: Stored> {
    /// What the target has.
    tile: Vec<Vector<T>>,
    /// Its features, and products of them.
    room: Vec<Vector<T>>,
    sums: Vec<Vector<T>>,
    /// The slopes of the scores.
    slopes: Vec<Vector<T>>,
    /// For rows of few entries, where they are done in blocks.
    blocks: Option<Scratch<T>>,
}

/// `leaky(t_i + u_j + bias)`.
struct GatScore<'a, T: Stored> {
    gat: &'a Gat<'a, T>,
    /// `t` and `u`.
    vectors: &'a [Vectors<T>; 2],
    /// `u_h·z_jh`.
    source: Mat<'a, T::Sum>,
    /// Their bias includes what the features give.
    edges: Edges<'a, T>,
    slope: T::Sum,
    /// Whether rows that edges name have to be asked for.
    far: bool,
}

impl<T: Stored> GatScore<'_, T> {
    /// What is projected for targets.
    #[inline(always)]
    fn targets(&self) -> (Layout, Mat<'_, T>, &Vectors<T>) {
        let x = self.gat.target.unwrap_or(self.gat.source);
        (self.gat.layout, x, &self.vectors[0])
    }

    /// Adds a tile and the bias to what the other end has.
    #[inline(always)]
    fn raw(
        &self,
        (a, entries): (CsrView<'_>, Range<usize>),
        tile: &[Vector<T>],
        scores: &mut [Vector<T>],
    ) {
        let layout = self.gat.layout;
        let used = layout.score_vectors(entries.len());
        self.edges.add_bias(layout, (a, entries), scores);
        for group in scores[..used].chunks_exact_mut(tile.len()) {
            for (s, t) in group.as_flattened_mut().iter_mut().zip(tile.as_flattened()) {
                *s += *t;
            }
        }
    }

    /// From `raw` to scores and the slopes there.
    #[inline(always)]
    fn activate(&self, raw: &mut [Vector<T>], slopes: &mut [Vector<T>]) {
        let (slope, slopes) = (self.slope, slopes.as_flattened_mut());
        for (raw, slope_there) in raw.as_flattened_mut().iter_mut().zip(slopes) {
            *slope_there = if *raw > T::Sum::ZERO { T::Sum::ONE } else { slope };
            *raw *= *slope_there;
        }
    }
}

impl<T: Stored> Score<T> for GatScore<'_, T> {
    type Work = ScoreWork<T>;

    fn work(&self) -> Self::Work {
        let layout = self.gat.layout;
        let columns = Gat::<T>::kept_columns(layout.heads, layout.channels);
        let blocks = || Scratch::new(layout, layout.width(), columns);
        ScoreWork {
            tile: layout.tile(),
            room: layout.rows(1),
            sums: layout.scores(),
            slopes: layout.scores(),
            blocks: self.has_blocks().then(blocks),
        }
    }

    #[inline(always)]
    fn blocks(&self, work: &mut Self::Work, rows: Range<usize>, out: To<'_, '_, T>) -> usize {
        match &mut work.blocks {
            Some(scratch) => self.forward_blocks(scratch, rows, out),
            None => rows.start,
        }
    }

    fn adjacency(&self) -> CsrView<'_> {
        self.gat.a
    }

    fn layout(&self) -> Layout {
        self.gat.layout
    }

    fn edges(&self) -> &Edges<'_, T> {
        &self.edges
    }

    #[inline(always)]
    fn begin(&self, work: &mut Self::Work, i: usize) {
        let ScoreWork { tile, room, sums, .. } = work;
        project_one(self.targets(), i, (room, sums), tile);
    }

    #[inline(always)]
    fn scores<M: Arith>(
        &self,
        ScoreWork { tile, slopes, .. }: &mut Self::Work,
        entries: Range<usize>,
        scores: &mut [Vector<T>],
    ) {
        let (layout, a) = (self.gat.layout, self.gat.a);
        layout.gather_slots(self.source, (a.cols, entries.clone()), [scores]);
        let used = layout.score_vectors(entries.len());
        self.raw((a, entries), tile, scores);
        self.activate(&mut scores[..used], slopes);
    }

    #[inline(always)]
    fn add_both<M: Arith>(
        &self,
        _: &Self::Work,
        entries: Range<usize>,
        p: [&[Vector<T>]; 2],
        sums: [&mut [Vector<T>]; 2],
    ) {
        let rows = Gathered::new(self.gat.source, self.gat.a.cols, entries);
        gather::join_sets(self.gat.layout, (rows, Fetch::Yes), (p, AddRows), sums);
    }

    #[inline(always)]
    fn slopes(work: &Self::Work) -> Option<&[Vector<T>]> {
        Some(&work.slopes)
    }

    #[inline(always)]
    fn add_values<M: Arith>(
        &self,
        _: &Self::Work,
        entries: Range<usize>,
        p: &[Vector<T>],
        sums: &mut [Vector<T>],
    ) {
        let rows = Gathered::new(self.gat.source, self.gat.a.cols, entries);
        gather::join(self.gat.layout, (rows, Fetch::Yes), (p, AddRows), sums);
    }
}
