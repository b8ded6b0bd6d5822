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
use super::edges::{Edges, edge_options};
use super::forward::{self, Score};
use super::gather::{self, AddRows, Fetch, Filled, Gathered, Join, Term, Times};
use super::lanes::{LANES, Lanes, Layout, Vector};
use super::lanes::{add, leaky, mul, mul_add, slopes};
use super::rows::{self, Out, OutRow, Pass, PerEntry, Sizes, Sums, nothing};
use crate::dropout::Dropout;
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

edge_options!(GatV2, "Edges have a bias `b`, `nnz × heads` in the caller's order.");

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
        let layout = Layout::new::<T>(vectors.n_rows, vectors.n_cols);
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
        self.check_edges()
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
        T::gatv2(self, isa, (y.into(), lse.into()), threads)
    }

    pub(super) fn forward_here(
        &self,
        isa: Isa,
        (y, lse): super::Outputs<'_, T>,
        threads: &Threads,
    ) -> Result<()> {
        super::check_outputs("gatv2", (self.a.n_rows(), self.layout), (&y, &lse))?;
        same_size("gatv2", "columns of lse", self.layout.heads, lse.n_cols)?;
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
        T::gatv2_backward(self, isa, given, grads, threads)
    }

    pub(super) fn backward_here(
        &self,
        isa: Isa,
        given: &Given<'_, T>,
        grads: GatV2Grads<'_, T>,
        threads: &Threads,
    ) -> Result<()> {
        let layout = self.layout;
        given.check("gatv2", self.a, layout, &self.edges)?;
        same_size("gatv2", "columns of lse", layout.heads, given.lse.n_cols)?;
        self.check_grads(&grads)?;
        let GatV2Grads { target, source, vectors, features, bias } = grads;
        if layout.width() == 0 {
            super::backward::clear(bias);
            return Ok(());
        }
        let gat = self.on(isa);
        let score = gat.score();
        let (n, m, nnz) = (self.a.n_rows(), self.a.n_cols, self.a.cols.len());
        let mut stats = layout.slots(n, 2, threads)?;
        let mut ordered = InOrder::new(self.a, features, bias, threads)?;
        let pass = Targets { score: &score, given };
        let out = Out { features: [target, nothing(n)], stats: (&mut stats).into() };
        let totals = rows::run(isa, &pass, (out, ordered.per_entry(nnz)), threads);
        ordered.finish(self.a);
        store_vectors(layout, &totals, vectors);

        let pass = Sources { score: &score, given, stats: (&stats).into() };
        let out = Out { features: [source, nothing(m)], stats: nothing(m) };
        rows::run(isa, &pass, (out, PerEntry::none(nnz)), threads);
        Ok(())
    }

    fn check_edges(self) -> Result<Self> {
        self.edges.check("gatv2", self.layout, self.a.cols.len())?;
        Ok(self)
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
    /// Those of the other ends and of the edges together.
    filled: Filled<F>,
}

impl<F: Real> Own<F> {
    fn new<T: Stored<Sum = F>>(gat: &GatV2<'_, T>) -> Self {
        let layout = gat.layout;
        let filled = Filled::new(layout, layout.chunk(), &gat.edges);
        Own { own: layout.rows(1), filled }
    }
}

/// The rows of some edges, without and with the edges' features; these only where there are any.
type Both<'a, T> = (Gathered<'a, T>, Gathered<'a, <T as Stored>::Sum>);

impl<T: Stored> GatV2Score<'_, T> {
    /// `v·leaky(own + other)`, summed per head, and the bias; the other ends are rows of `x`.
    #[inline(always)]
    fn of(
        &self,
        x: Mat<'_, T>,
        at: (CsrView<'_>, Range<usize>),
        work: &mut Own<T::Sum>,
        scores: &mut [Vector<T>],
    ) {
        let (layout, n) = (self.gat.layout, at.1.len());
        let Own { own, filled } = work;
        let term = Scored(self.ends(own));
        if let Some(features) = self.gat.edges.features {
            filled.fill((x, features), at.clone());
            let rows = (filled.rows(n), Fetch::No);
            gather::reduce(layout, rows, term, scores);
        } else {
            let rows = (Gathered::new(x, at.0.cols, at.1.clone()), Fetch::Yes);
            gather::reduce(layout, rows, term, scores);
        }
        self.gat.edges.add_bias(layout, at, scores);
    }

    /// Joins what [`GatV2Score::of`] read last.
    #[inline(always)]
    fn join<J: Join<T::Sum>>(
        &self,
        (rows, filled): Both<'_, T>,
        weighted: (&[Vector<T>], J),
        sums: &mut [Vector<T>],
    ) {
        let layout = self.gat.layout;
        if self.gat.edges.features.is_some() {
            let rows = (filled, Fetch::No);
            gather::join(layout, rows, weighted, sums);
        } else {
            gather::join(layout, (rows, Fetch::No), weighted, sums);
        }
    }

    #[inline(always)]
    fn ends<'e>(&'e self, own: &'e [Vector<T>]) -> Ends<'e, T::Sum> {
        Ends { vectors: &self.vectors, slope: self.slope, own }
    }
}

/// One end of edges; the other is a row that is read.
#[derive(Clone, Copy)]
struct Ends<'a, F> {
    vectors: &'a [Lanes<F>],
    slope: F,
    own: &'a [Lanes<F>],
}

impl<F: Real> Ends<'_, F> {
    #[inline(always)]
    fn part(&self, first: usize, count: usize) -> Self {
        let (vectors, own) = (&self.vectors[first..][..count], &self.own[first..][..count]);
        Ends { vectors, slope: self.slope, own }
    }

    /// `r`.
    #[inline(always)]
    fn at(&self, v: usize, row: &Lanes<F>) -> Lanes<F> {
        add(&self.own[v], row)
    }
}

/// `v·leaky(r)`.
#[derive(Clone, Copy)]
struct Scored<'a, F>(Ends<'a, F>);

impl<F: Real> Term<F> for Scored<'_, F> {
    #[inline(always)]
    fn part(&self, first: usize, count: usize) -> Self {
        Scored(self.0.part(first, count))
    }

    #[inline(always)]
    fn at<M: Arith>(&self, v: usize, row: &Lanes<F>) -> Lanes<F> {
        mul(&self.0.vectors[v], &leaky(&self.0.at(v, row), self.0.slope))
    }
}

/// Joins a sum with something of `r`.
macro_rules! joined {
    ($(#[$doc:meta])* $name:ident($ends:ident, $v:ident, $w:ident, $r:ident) = $more:expr) => {
        $(#[$doc])*
        #[derive(Clone, Copy)]
        struct $name<'a, F>(Ends<'a, F>);

        impl<F: Real> Join<F> for $name<'_, F> {
            #[inline(always)]
            fn part(&self, first: usize, count: usize) -> Self {
                $name(self.0.part(first, count))
            }

            #[inline(always)]
            fn join<M: Arith>(
                &self,
                $v: usize,
                $w: &Lanes<F>,
                row: &Lanes<F>,
                sum: &Lanes<F>,
            ) -> Lanes<F> {
                let $ends = &self.0;
                let $r = $ends.at($v, row);
                let (w, more) = $more;
                mul_add::<M, F>(&w, &more, sum)
            }
        }
    };
}

joined!(/** Adds `w·l`. */ AddSlopes(ends, v, w, r) = (*w, slopes(&r, ends.slope)));
joined!(/** Adds `w·leaky(r)`. */ AddLeaky(ends, v, w, r) = (*w, leaky(&r, ends.slope)));
joined!(
    /** Adds the gradient of a source: `w·v⊙l`. */
    AddSource(ends, v, w, r) = (mul(w, &ends.vectors[v]), slopes(&r, ends.slope))
);

impl<T: Stored> Score<T> for GatV2Score<'_, T> {
    type Work = Own<T::Sum>;

    fn work(&self) -> Self::Work {
        Own::new(self.gat)
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
    fn scores<M: Arith>(
        &self,
        work: &mut Self::Work,
        entries: Range<usize>,
        scores: &mut [Vector<T>],
    ) {
        self.of(self.gat.source, (self.gat.a, entries), work, scores);
    }

    #[inline(always)]
    fn add_values<M: Arith>(
        &self,
        _: &Self::Work,
        entries: Range<usize>,
        p: &[Vector<T>],
        sums: &mut [Vector<T>],
    ) {
        let rows = (Gathered::new(self.gat.source, self.gat.a.cols, entries), Fetch::No);
        gather::join(self.gat.layout, rows, (p, AddRows), sums);
    }
}

/// Scratch memory of a backward pass.
struct Work<F> {
    chunk: Chunk<F>,
    target: Target<F>,
    ends: Own<F>,
}

impl<F: Real> Work<F> {
    fn new<T: Stored<Sum = F>>(gat: &GatV2<'_, T>, given: &Given<'_, T>) -> Self {
        let layout = gat.layout;
        Work { chunk: Chunk::new(layout), target: Target::new(layout, given), ends: Own::new(gat) }
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
        (rows, entries): (Both<'_, T>, Range<usize>),
        (dots, work): (&[Vector<T>], &Own<T::Sum>),
        room: &mut [Vector<T>],
        own: &mut PerEntry<'_, T>,
    ) {
        let (layout, score) = (self.score.gat.layout, self.score);
        store_scores(layout, entries.clone(), dots, own);
        if own.features.n_cols == 0 {
            return;
        }
        let how = AddSource(score.ends(&work.own));
        let mut one = layout.tile();
        for (n, e) in entries.enumerate() {
            room.fill([T::Sum::ZERO; LANES]);
            layout.tile_of(&dots.as_flattened()[n * layout.slots..][..layout.slots], &mut one);
            let row = (rows.0.only(n), rows.1.only(n));
            score.join(row, (&one, how), room);
            layout.store(room, own.entry(e).0);
        }
    }
}

impl<T: Stored> Pass<T> for Targets<'_, T> {
    type Work = Work<T::Sum>;

    fn work(&self) -> Self::Work {
        Work::new(self.score.gat, self.given)
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
        let Work { chunk, target, ends: work } = work;
        let (vectors, used, tile) =
            (layout.vectors, layout.score_vectors(n), layout.tile_vectors());
        let rows = Gathered::new(gat.source, gat.a.cols, entries.clone());
        score.of(gat.source, at.clone(), work, &mut chunk.scores);
        let term = Times(&target.grad[..]);
        gather::reduce(layout, (rows, Fetch::No), term, &mut chunk.dots);
        layout.repeat(&target.lse[..tile], &mut chunk.lse[..used]);
        layout.repeat(&target.delta[..tile], &mut chunk.delta[..used]);
        chunk.differentiate::<M, T>(layout, &gat.edges, at);
        let (of_slopes, of_leaky) = sums.split_at_mut(vectors);
        let (ends, ds) = (score.ends(&work.own), &chunk.dots[..]);
        let both = (rows, work.filled.rows(n));
        score.join(both, (ds, AddSlopes(ends)), of_slopes);
        score.join(both, (ds, AddLeaky(ends)), of_leaky);
        if own.asked_for() {
            self.store_edges((both, entries), (ds, work), &mut target.room, own);
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
    stats: Mat<'a, T::Sum>,
}

impl<T: Stored> Pass<T> for Sources<'_, T> {
    type Work = Work<T::Sum>;

    fn work(&self) -> Self::Work {
        Work::new(self.score.gat, self.given)
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
        let Work { chunk, ends: work, .. } = work;
        let Chunk { lse, delta, .. } = &mut *chunk;
        layout.gather_slots(self.stats, names.clone(), [lse, delta]);
        let targets = Gathered::new(gat.target, names.0, names.1.clone());
        let rows = Gathered::new(self.given.grad, names.0, names.1);
        score.of(gat.target, at.clone(), work, &mut chunk.scores);
        let term = Times(&work.own[..]);
        gather::reduce(layout, (rows, Fetch::Yes), term, &mut chunk.dots);
        chunk.differentiate::<M, T>(layout, &gat.edges, at);
        let ds = (&chunk.dots[..], AddSource(score.ends(&work.own)));
        score.join((targets, work.filled.rows(n)), ds, sums);
        let p = (chunk.weights(&gat.edges), AddRows);
        gather::join(layout, (rows, Fetch::No), p, sums);
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
