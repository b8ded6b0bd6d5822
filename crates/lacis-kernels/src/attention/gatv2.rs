//! GATv2 (Brody, Alon, Yahav, "How attentive are graph attention networks?", ICLR 2022).
//!
//! ```text
//!   s_eh = v_h·leaky(r_eh) + b_eh,   r_eh = x_ih + z_jh + f_eh,   y_ih = Σ_e p'_eh·z_jh
//! ```
//! Backward, with `l` the LeakyReLU's slope at `r`: `dr = ds·v⊙l`, which is the gradient of `f`;
//! targets get the sum of it over their edges, sources too, and `Σ_e p'·dy_ih` besides;
//! `dv_h = Σ ds·leaky(r)`.
//!
//! # Memory
//! `2·n·heads` numbers backward.

use std::ops::Range;

use lacis_core::error::same_size;
use lacis_core::{CsrView, Result, Threads};

use super::backward::{Chunk, Given, InOrder, Target, row_of, store_scores, store_vectors};
use super::edges::{Dropout, Edges};
use super::forward::{self, Score};
use super::lanes::{AddRows, Join, LANES, Lanes, Layout, Slots, Term, Times, Vector};
use super::lanes::{add, leaky, mul, mul_add, slopes};
use super::rows::{self, Out, OutRow, Pass, PerEntry, Sizes, Sums, nothing};
use crate::isa::{Arith, Isa};
use crate::matrix::{Mat, MatMut};
use crate::real::{Real, Stored};

/// A GATv2 to compute, its sizes checked; features are already multiplied by the layer's weights.
#[derive(Clone, Copy, Debug)]
pub struct GatV2<'a, T: Stored> {
    a: CsrView<'a>,
    layout: Layout,
    target: Mat<'a, T>,
    source: Mat<'a, T>,
    vectors: Mat<'a, T::Sum>,
    edges: Edges<'a, T>,
    slope: f64,
}

/// Where the gradients of a [`GatV2`] go; those that are absent are not computed.
#[derive(Debug)]
pub struct GatV2Grads<'a, T: Stored> {
    /// Of `x`.
    pub target: MatMut<'a, T>,
    /// Of `z`.
    pub source: MatMut<'a, T>,
    /// Of `v`, `heads × C`.
    pub vectors: MatMut<'a, T::Sum>,
    /// Of `f`, in the caller's order; whether there are any or not.
    pub features: Option<MatMut<'a, T>>,
    /// Of `b`, in the caller's order; whether there is one or not.
    pub bias: Option<MatMut<'a, T::Sum>>,
}

impl<'a, T: Stored> GatV2<'a, T> {
    /// `x` has one row per target and `z` one per source, `heads·C` wide; `v` is `heads × C`.
    ///
    /// # Errors
    /// When a size does not fit.
    pub fn new(
        a: CsrView<'a>,
        [target, source]: [Mat<'a, T>; 2],
        vectors: impl Into<Mat<'a, T::Sum>>,
        slope: f64,
    ) -> Result<Self> {
        let vectors = vectors.into();
        let layout = Layout::new(vectors.n_rows, vectors.n_cols);
        same_size("gatv2", "rows of the target features", a.n_rows(), target.n_rows)?;
        same_size("gatv2", "columns of the target features", layout.width(), target.n_cols)?;
        same_size("gatv2", "rows of the source features", a.n_cols, source.n_rows)?;
        same_size("gatv2", "columns of the source features", layout.width(), source.n_cols)?;
        Ok(GatV2 { a, layout, target, source, vectors, edges: Edges::default(), slope })
    }

    /// Edges have features `f`, `nnz × heads·C` in the caller's order.
    ///
    /// # Errors
    /// When a size does not fit.
    pub fn with_features(mut self, features: impl Into<Mat<'a, T>>) -> Result<Self> {
        self.edges.features = Some(features.into());
        self.edges.check("gatv2", self.layout, self.a.cols.len())?;
        Ok(self)
    }

    /// Edges have a bias `b`, `nnz × heads` in the caller's order.
    ///
    /// # Errors
    /// When a size does not fit.
    pub fn with_bias(mut self, bias: impl Into<Mat<'a, T::Sum>>) -> Result<Self> {
        self.edges.bias = Some(bias.into());
        self.edges.check("gatv2", self.layout, self.a.cols.len())?;
        Ok(self)
    }

    /// Coefficients are dropped out.
    pub fn with_dropout(mut self, dropout: Dropout) -> Self {
        self.edges.dropout = Some(dropout);
        self
    }

    /// Computes `y`, one row per target, `heads·C` wide, and `lse`, a number per target and head
    /// that the backward pass takes.
    ///
    /// # Errors
    /// When `y` or `lse` has another shape.
    pub fn forward<'y>(
        &self,
        isa: Isa,
        (y, lse): (impl Into<MatMut<'y, T>>, impl Into<MatMut<'y, T::Sum>>),
        threads: &Threads,
    ) -> Result<()> {
        let (y, lse) = (y.into(), lse.into());
        super::check_outputs("gatv2", (self.a.n_rows(), self.layout), (&y, &lse))?;
        if self.layout.width() > 0 {
            forward::run(isa, &self.on(isa).score(), (y, lse), threads);
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
        given: &Given<'_, T>,
        grads: GatV2Grads<'_, T>,
        threads: &Threads,
    ) -> Result<()> {
        let layout = self.layout;
        given.check("gatv2", self.a, layout, &self.edges)?;
        self.check_grads(&grads)?;
        let GatV2Grads { target, source, vectors, features, bias } = grads;
        if layout.width() == 0 {
            super::backward::clear(bias);
            return Ok(());
        }
        let gat = self.on(isa);
        let score = gat.score();
        let (n, m, nnz) = (self.a.n_rows(), self.a.n_cols, self.a.cols.len());
        let mut stats = Slots::new(n, layout, 2);
        let mut ordered = InOrder::new(self.a, features, bias);
        let pass = Targets { score: &score, given };
        let out = Out { features: [target, nothing(n)], stats: stats.as_mut() };
        let totals = rows::run(isa, &pass, (out, ordered.per_entry(nnz)), threads);
        ordered.finish(self.a);
        store_vectors(layout, &totals, vectors);

        let pass = Sources { score: &score, given, stats: &stats };
        let out = Out { features: [source, nothing(m)], stats: nothing(m) };
        rows::run(isa, &pass, (out, PerEntry::none(nnz)), threads);
        Ok(())
    }

    fn on(&self, isa: Isa) -> Self {
        GatV2 { layout: self.layout.on(isa), ..*self }
    }

    fn score(&self) -> GatV2Score<'_, T> {
        let vectors = row_of(self.layout, self.vectors);
        GatV2Score { gat: self, vectors, slope: T::Sum::of(self.slope) }
    }

    fn check_grads(&self, grads: &GatV2Grads<'_, T>) -> Result<()> {
        let Layout { heads, channels, .. } = self.layout;
        let check = super::GradCheck { op: "gatv2 backward", nnz: self.a.cols.len() };
        let width = self.layout.width();
        check.shape("target features", (self.a.n_rows(), width), &grads.target)?;
        check.shape("source features", (self.a.n_cols, width), &grads.source)?;
        check.shape("vectors", (heads, channels), &grads.vectors)?;
        check.edges(self.layout, &grads.features, &grads.bias)
    }
}

/// `v_h·leaky(x_ih + z_jh + f_eh) + b_eh`.
struct GatV2Score<'a, T: Stored> {
    gat: &'a GatV2<'a, T>,
    vectors: Vec<Vector<T>>,
    slope: T::Sum,
}

/// Scratch memory for scores.
struct Own<F> {
    /// Features of the row's own node.
    own: Vec<Lanes<F>>,
    /// Those of the other ends, where they are not the values too.
    others: Vec<Lanes<F>>,
    room: Vec<Lanes<F>>,
}

impl<F: Real> Own<F> {
    fn new(layout: Layout) -> Self {
        let others = layout.rows(layout.chunk());
        Own { own: layout.rows(1), others, room: layout.rows(1) }
    }
}

impl<T: Stored> GatV2Score<'_, T> {
    /// `v·leaky(own + other)`, summed per head, and the bias.
    #[inline(always)]
    fn scores(
        &self,
        at: (CsrView<'_>, Range<usize>),
        (own, others): (&[Vector<T>], &[Vector<T>]),
        scores: &mut [Vector<T>],
    ) {
        let layout = self.gat.layout;
        let term = Scored(self.ends(own, others));
        layout.reduce((scores, at.1.len()), &term);
        self.gat.edges.add_bias(layout, at, scores);
    }

    #[inline(always)]
    fn ends<'e>(&'e self, own: &'e [Vector<T>], others: &'e [Vector<T>]) -> Ends<'e, T::Sum> {
        let (vectors, slope) = (&self.vectors[..], self.slope);
        Ends { layout: self.gat.layout, vectors, slope, own, others }
    }
}

/// The two ends of some edges.
#[derive(Clone, Copy)]
struct Ends<'a, F> {
    layout: Layout,
    vectors: &'a [Lanes<F>],
    slope: F,
    own: &'a [Lanes<F>],
    others: &'a [Lanes<F>],
}

impl<F: Real> Ends<'_, F> {
    /// `r`.
    #[inline(always)]
    fn at(&self, e: usize, v: usize) -> Lanes<F> {
        add(&self.own[v], &self.others[e * self.layout.vectors + v])
    }
}

/// `v·leaky(r)`.
struct Scored<'a, F>(Ends<'a, F>);

impl<F: Real> Term<F> for Scored<'_, F> {
    #[inline(always)]
    fn at<M: Arith>(&self, e: usize, v: usize) -> Lanes<F> {
        mul(&self.0.vectors[v], &leaky(&self.0.at(e, v), self.0.slope))
    }
}

/// Adds `w·l`.
struct AddSlopes<'a, F>(Ends<'a, F>);

impl<F: Real> Join<F> for AddSlopes<'_, F> {
    #[inline(always)]
    fn join<M: Arith>(&self, e: usize, v: usize, w: &Lanes<F>, sum: &Lanes<F>) -> Lanes<F> {
        mul_add::<M, F>(w, &slopes(&self.0.at(e, v), self.0.slope), sum)
    }
}

/// Adds `w·leaky(r)`.
struct AddLeaky<'a, F>(Ends<'a, F>);

impl<F: Real> Join<F> for AddLeaky<'_, F> {
    #[inline(always)]
    fn join<M: Arith>(&self, e: usize, v: usize, w: &Lanes<F>, sum: &Lanes<F>) -> Lanes<F> {
        mul_add::<M, F>(w, &leaky(&self.0.at(e, v), self.0.slope), sum)
    }
}

/// Adds the gradient of a source: `w·v⊙l`.
struct AddSource<'a, F>(Ends<'a, F>);

impl<F: Real> Join<F> for AddSource<'_, F> {
    #[inline(always)]
    fn join<M: Arith>(&self, e: usize, v: usize, w: &Lanes<F>, sum: &Lanes<F>) -> Lanes<F> {
        let w = mul(w, &self.0.vectors[v]);
        mul_add::<M, F>(&w, &slopes(&self.0.at(e, v), self.0.slope), sum)
    }
}

impl<T: Stored> Score<T> for GatV2Score<'_, T> {
    type Work = Own<T::Sum>;

    fn work(&self) -> Self::Work {
        Own::new(self.gat.layout)
    }

    fn adjacency(&self) -> CsrView<'_> {
        self.gat.a
    }

    fn layout(&self) -> Layout {
        self.gat.layout
    }

    fn edges(&self) -> &Edges<'_, T> {
        &self.gat.edges
    }

    #[inline(always)]
    fn begin(&self, work: &mut Self::Work, i: usize) {
        self.gat.layout.load(self.gat.target, i, &mut work.own, 0);
    }

    #[inline(always)]
    fn entries<M: Arith>(
        &self,
        work: &mut Self::Work,
        entries: Range<usize>,
        scores: &mut [Vector<T>],
        values: &mut [Vector<T>],
    ) {
        let (layout, at) = (self.gat.layout, (self.gat.a, entries));
        layout.gather(self.gat.source, (at.0.cols, at.1.clone()), values);
        let others = self.with_features(at.clone(), values, (&mut work.others, &mut work.room));
        self.scores(at, (&work.own, others), scores);
    }
}

impl<T: Stored> GatV2Score<'_, T> {
    /// `z_j + f_e`: the rows themselves where edges have no features.
    #[inline(always)]
    fn with_features<'r>(
        &self,
        at: (CsrView<'_>, Range<usize>),
        rows: &'r [Vector<T>],
        (others, room): (&'r mut [Vector<T>], &mut [Vector<T>]),
    ) -> &'r [Vector<T>] {
        let layout = self.gat.layout;
        if self.gat.edges.features.is_none() {
            return rows;
        }
        let used = at.1.len() * layout.vectors;
        others[..used].copy_from_slice(&rows[..used]);
        self.gat.edges.add_features(layout, at, (&mut *others, room));
        others
    }
}

/// Scratch memory of a backward pass.
struct Work<F> {
    chunk: Chunk<F>,
    rows: Vec<Lanes<F>>,
    target: Target<F>,
    ends: Own<F>,
}

impl<F: Real> Work<F> {
    fn new(layout: Layout) -> Self {
        Work {
            chunk: Chunk::new(layout),
            rows: layout.rows(layout.chunk()),
            target: Target::new(layout),
            ends: Own::new(layout),
        }
    }
}

/// The backward pass over targets: writes `lse` and `δ` for the one over sources, and what edges
/// get.
struct Targets<'a, T: Stored> {
    score: &'a GatV2Score<'a, T>,
    given: &'a Given<'a, T>,
}

impl<T: Stored> Targets<'_, T> {
    /// The gradients of features and biases.
    #[inline(always)]
    fn store_edges(
        &self,
        entries: Range<usize>,
        (dots, ends): (&[Vector<T>], Ends<'_, T::Sum>),
        room: &mut [Vector<T>],
        own: &mut PerEntry<'_, T>,
    ) {
        let layout = self.score.gat.layout;
        store_scores(layout, entries.clone(), dots, own);
        if own.features.n_cols == 0 {
            return;
        }
        for (n, e) in entries.enumerate() {
            let others = &ends.others[n * layout.vectors..];
            let join = AddSource(Ends { others, ..ends });
            room.fill([T::Sum::ZERO; LANES]);
            layout.accumulate_one(room, (dots, n), &join);
            layout.store(room, own.entry(e).0);
        }
    }
}

impl<T: Stored> Pass<T> for Targets<'_, T> {
    type Work = Work<T::Sum>;

    fn work(&self) -> Self::Work {
        Work::new(self.score.gat.layout)
    }

    fn adjacency(&self) -> CsrView<'_> {
        self.score.gat.a
    }

    /// Sums of `ds·l` and of `ds·leaky(r)`.
    fn sizes(&self) -> Sizes {
        let layout = self.score.gat.layout;
        Sizes { chunk: layout.chunk(), sums: 2 * layout.vectors, totals: layout.vectors }
    }

    #[inline(always)]
    fn begin<M: Arith>(&self, work: &mut Self::Work, i: usize, sums: &mut [Vector<T>]) {
        self.score.begin(&mut work.ends, i);
        work.target.begin(self.score.gat.layout, self.given, i);
        sums.fill([T::Sum::ZERO; LANES]);
    }

    #[inline(always)]
    fn entries<M: Arith>(
        &self,
        work: &mut Self::Work,
        entries: Range<usize>,
        sums: &mut [Vector<T>],
        own: &mut PerEntry<'_, T>,
    ) {
        let (gat, score, n) = (self.score.gat, self.score, entries.len());
        let (layout, at) = (gat.layout, (gat.a, entries.clone()));
        let Work { chunk, rows, target, ends: Own { own: x, others, room } } = work;
        let (vectors, used, tile) =
            (layout.vectors, layout.score_vectors(n), layout.tile_vectors());
        layout.gather(gat.source, (gat.a.cols, entries.clone()), rows);
        let others = score.with_features(at.clone(), rows, (others, room));
        score.scores(at.clone(), (x, others), &mut chunk.scores);
        layout.reduce((&mut chunk.dots, n), &Times { layout, rows, own: &target.grad });
        layout.repeat(&target.lse[..tile], &mut chunk.lse[..used]);
        layout.repeat(&target.delta[..tile], &mut chunk.delta[..used]);
        chunk.differentiate::<M, T>(layout, &gat.edges, at);
        let (of_slopes, of_leaky) = sums.split_at_mut(vectors);
        let (ends, ds) = (score.ends(x, others), (&chunk.dots[..], n));
        layout.accumulate(of_slopes, ds, &AddSlopes(ends));
        layout.accumulate(of_leaky, ds, &AddLeaky(ends));
        if own.asked_for() {
            self.store_edges(entries, (&chunk.dots, ends), &mut target.room, own);
        }
    }

    #[inline(always)]
    fn finish<M: Arith>(
        &self,
        work: &mut Self::Work,
        _: usize,
        sums: Sums<'_, T::Sum>,
        out: OutRow<'_, T>,
    ) {
        let layout = self.score.gat.layout;
        let (of_slopes, of_leaky) = sums.row.split_at_mut(layout.vectors);
        rows::add(sums.totals, of_leaky);
        for (dx, v) in of_slopes.iter_mut().zip(&self.score.vectors) {
            *dx = mul(dx, v);
        }
        let [x, _] = out.features;
        layout.store(of_slopes, x);
        work.target.store(layout, out.stats);
    }
}

/// The backward pass over sources.
struct Sources<'a, T: Stored> {
    score: &'a GatV2Score<'a, T>,
    given: &'a Given<'a, T>,
    /// `lse` and `δ` of each target.
    stats: &'a Slots<T::Sum>,
}

impl<T: Stored> Pass<T> for Sources<'_, T> {
    type Work = Work<T::Sum>;

    fn work(&self) -> Self::Work {
        Work::new(self.score.gat.layout)
    }

    fn adjacency(&self) -> CsrView<'_> {
        self.given.transpose
    }

    fn sizes(&self) -> Sizes {
        let layout = self.score.gat.layout;
        Sizes { chunk: layout.chunk(), sums: layout.vectors, totals: 0 }
    }

    #[inline(always)]
    fn begin<M: Arith>(&self, work: &mut Self::Work, j: usize, sums: &mut [Vector<T>]) {
        self.score.gat.layout.load(self.score.gat.source, j, &mut work.ends.own, 0);
        sums.fill([T::Sum::ZERO; LANES]);
    }

    #[inline(always)]
    fn entries<M: Arith>(
        &self,
        work: &mut Self::Work,
        entries: Range<usize>,
        sums: &mut [Vector<T>],
        _: &mut PerEntry<'_, T>,
    ) {
        let (gat, score, n) = (self.score.gat, self.score, entries.len());
        let layout = gat.layout;
        let at = (self.given.transpose, entries);
        let names = (at.0.cols, at.1.clone());
        let Work { chunk, rows, ends: Own { own: z, others, room }, .. } = work;
        layout.gather_slots(self.stats, 0, names.clone(), &mut chunk.lse);
        layout.gather_slots(self.stats, 1, names.clone(), &mut chunk.delta);
        layout.gather(gat.target, names.clone(), others);
        layout.gather(self.given.grad, names, rows);
        gat.edges.add_features(layout, at.clone(), (&mut *others, room));
        score.scores(at.clone(), (z, others), &mut chunk.scores);
        layout.reduce((&mut chunk.dots, n), &Times { layout, rows, own: z });
        chunk.differentiate::<M, T>(layout, &gat.edges, at);
        let join = AddSource(score.ends(z, others));
        layout.accumulate(sums, (&chunk.dots, n), &join);
        layout.accumulate(sums, (&chunk.dropped, n), &AddRows(layout, rows));
    }

    #[inline(always)]
    fn finish<M: Arith>(
        &self,
        _: &mut Self::Work,
        _: usize,
        sums: Sums<'_, T::Sum>,
        out: OutRow<'_, T>,
    ) {
        let [z, _] = out.features;
        self.score.gat.layout.store(sums.row, z);
    }
}
