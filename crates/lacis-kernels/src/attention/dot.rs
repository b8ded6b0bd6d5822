//! Scaled dot-product attention over a graph's edges (Shi et al., "Masked label prediction", IJCAI
//! 2021).
//!
//! ```text
//!   s_eh = scale·q_ih·(k_jh + f_eh) + b_eh,   y_ih = Σ_e p'_eh·(v_jh + f_eh)
//!   dq_ih = scale·Σ_e ds·(k_jh + f_eh),   dk_jh = scale·Σ_e ds·q_ih,   dv_jh = Σ_e p'·dy_ih
//!   df_eh = scale·ds·q_ih + p'·dy_ih
//! ```
//! # Memory
//! `2·n·heads` numbers backward.

use std::ops::Range;

use lacis_core::error::same_size;
use lacis_core::{CsrView, Error, Result, Threads};

use super::backward::{Chunk, Given, InOrder, Target, store_scores};
use super::edges::{Dropout, Edges};
use super::forward::{self, Score};
use super::lanes::{AddRows, LANES, Lanes, Layout, Slots, Times, Vector, Weighted, mul};
use super::rows::{self, Out, OutRow, Pass, PerEntry, Sizes, Sums, nothing};
use crate::isa::{Arith, Isa};
use crate::matrix::{Mat, MatMut};
use crate::real::{Real, Stored};

/// A dot-product attention to compute, its sizes checked.
#[derive(Clone, Copy, Debug)]
pub struct DotAttention<'a, T: Stored> {
    a: CsrView<'a>,
    /// Of the keys, and of the values.
    layouts: [Layout; 2],
    queries: Mat<'a, T>,
    keys: Mat<'a, T>,
    values: Mat<'a, T>,
    edges: Edges<'a, T>,
    scale: f64,
}

/// Where the gradients of a [`DotAttention`] go; those that are absent are not computed.
#[derive(Debug)]
pub struct DotAttentionGrads<'a, T: Stored> {
    /// Of `q`.
    pub queries: MatMut<'a, T>,
    /// Of `k`.
    pub keys: MatMut<'a, T>,
    /// Of `v`.
    pub values: MatMut<'a, T>,
    /// Of `f`, in the caller's order.
    pub features: Option<MatMut<'a, T>>,
    /// Of `b`, in the caller's order; whether there is one or not.
    pub bias: Option<MatMut<'a, T::Sum>>,
}

impl<'a, T: Stored> DotAttention<'a, T> {
    /// `q` has one row per target, `k` and `v` one per source; queries are as wide as keys, values
    /// a multiple of the heads. `scale` is `1/√C` as a rule.
    ///
    /// # Errors
    /// When a size does not fit.
    pub fn new(
        a: CsrView<'a>,
        [queries, keys, values]: [Mat<'a, T>; 3],
        heads: usize,
        scale: f64,
    ) -> Result<Self> {
        let op = "dot attention";
        let layout = |x: Mat<'_, T>| match x.n_cols.checked_div(heads) {
            Some(channels) if channels * heads == x.n_cols => Ok(Layout::new(heads, channels)),
            _ => {
                let problem = format!("{heads} heads do not divide {} columns", x.n_cols);
                Err(Error::argument("heads", problem))
            }
        };
        let layouts = [layout(keys)?, layout(values)?];
        same_size(op, "rows of the queries", a.n_rows(), queries.n_rows)?;
        same_size(op, "columns of the queries", keys.n_cols, queries.n_cols)?;
        same_size(op, "rows of the keys", a.n_cols, keys.n_rows)?;
        same_size(op, "rows of the values", a.n_cols, values.n_rows)?;
        let edges = Edges::default();
        Ok(DotAttention { a, layouts, queries, keys, values, edges, scale })
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

    /// Edges have a bias `b`, `nnz × heads` in the caller's order.
    ///
    /// # Errors
    /// When a size does not fit.
    pub fn with_bias(mut self, bias: impl Into<Mat<'a, T::Sum>>) -> Result<Self> {
        self.edges.bias = Some(bias.into());
        self.check_edges()
    }

    /// Coefficients are dropped out.
    pub fn with_dropout(mut self, dropout: Dropout) -> Self {
        self.edges.dropout = Some(dropout);
        self
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
    /// and head that the backward pass takes.
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
        super::check_outputs("dot attention", (self.a.n_rows(), self.layouts[1]), (&y, &lse))?;
        if self.layouts[1].width() > 0 {
            forward::run(isa, &self.on(isa), (y, lse), threads);
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
        grads: DotAttentionGrads<'_, T>,
        threads: &Threads,
    ) -> Result<()> {
        let values = self.layouts[1];
        given.check("dot attention", self.a, values, &self.edges)?;
        self.check_grads(&grads)?;
        if values.width() == 0 {
            super::backward::clear(Some(grads.queries));
            super::backward::clear(Some(grads.keys));
            super::backward::clear(grads.bias);
            return Ok(());
        }
        let (n, m, nnz) = (self.a.n_rows(), self.a.n_cols, self.a.cols.len());
        let mut stats = Slots::new(n, values, 2);
        let mut ordered = InOrder::new(self.a, grads.features, grads.bias);
        let dot = self.on(isa);
        let pass = Targets { dot: &dot, given };
        let out = Out { features: [grads.queries, nothing(n)], stats: stats.as_mut() };
        rows::run(isa, &pass, (out, ordered.per_entry(nnz)), threads);
        ordered.finish(self.a);

        let pass = Sources { dot: &dot, given, stats: &stats };
        let out = Out { features: [grads.keys, grads.values], stats: nothing(m) };
        rows::run(isa, &pass, (out, PerEntry::none(nnz)), threads);
        Ok(())
    }

    fn check_grads(&self, grads: &DotAttentionGrads<'_, T>) -> Result<()> {
        let [keys, values] = self.layouts.map(Layout::width);
        let check = super::GradCheck { op: "dot attention backward", nnz: self.a.cols.len() };
        check.shape("queries", (self.a.n_rows(), keys), &grads.queries)?;
        check.shape("keys", (self.a.n_cols, keys), &grads.keys)?;
        check.shape("values", (self.a.n_cols, values), &grads.values)?;
        if grads.features.is_some() && self.edges.features.is_none() {
            let problem = "there are no edge features to differentiate by";
            return Err(Error::argument(check.op, problem));
        }
        check.edges(self.layouts[1], &grads.features, &grads.bias)
    }

    /// `scale·q·(k + f) + b` of some entries, from the keys and the queries; one of them is the
    /// same for all.
    #[inline(always)]
    fn scores(
        &self,
        at: (CsrView<'_>, Range<usize>),
        (own, others): (&[Vector<T>], &[Vector<T>]),
        scores: &mut [Vector<T>],
    ) {
        let (layout, scale) = (self.layouts[0], T::Sum::of(self.scale));
        if layout.vectors == 0 {
            scores.fill([T::Sum::ZERO; LANES]);
        }
        layout.reduce((scores, at.1.len()), &Times { layout, rows: others, own });
        times(&mut scores[..layout.score_vectors(at.1.len())], scale);
        self.edges.add_bias(layout, at, scores);
    }
}

/// Scratch memory for scores.
pub(super) struct Own<F> {
    /// The row's own query, or key.
    own: Vec<Lanes<F>>,
    /// Those of the other ends.
    others: Vec<Lanes<F>>,
    room: Vec<Lanes<F>>,
}

impl<F: Real> Own<F> {
    fn new(layout: Layout, chunk: usize) -> Self {
        Own { own: layout.rows(1), others: layout.rows(chunk), room: layout.rows(1) }
    }
}

impl<T: Stored> DotAttention<'_, T> {
    /// Edges that are done together, scores of which there is room for.
    fn chunk(&self) -> usize {
        self.layouts[1].chunk()
    }
}

impl<T: Stored> Score<T> for DotAttention<'_, T> {
    type Work = Own<T::Sum>;

    fn work(&self) -> Self::Work {
        Own::new(self.layouts[0], self.chunk())
    }

    fn adjacency(&self) -> CsrView<'_> {
        self.a
    }

    fn layout(&self) -> Layout {
        self.layouts[1]
    }

    fn edges(&self) -> &Edges<'_, T> {
        &self.edges
    }

    #[inline(always)]
    fn begin(&self, work: &mut Self::Work, i: usize) {
        self.layouts[0].load(self.queries, i, &mut work.own, 0);
    }

    #[inline(always)]
    fn entries<M: Arith>(
        &self,
        work: &mut Self::Work,
        entries: Range<usize>,
        scores: &mut [Vector<T>],
        values: &mut [Vector<T>],
    ) {
        let Own { own, others, room } = work;
        self.gather_both((self.a, entries.clone()), (others, values), room);
        self.scores((self.a, entries), (own, others), scores);
    }
}

impl<T: Stored> DotAttention<'_, T> {
    /// `k_j + f_e` and `v_j + f_e` of some entries.
    #[inline(always)]
    fn gather_both(
        &self,
        at: (CsrView<'_>, Range<usize>),
        (keys, values): (&mut [Vector<T>], &mut [Vector<T>]),
        room: &mut [Vector<T>],
    ) {
        let names = (at.0.cols, at.1.clone());
        self.layouts[0].gather(self.keys, names.clone(), keys);
        self.layouts[1].gather(self.values, names, values);
        self.edges.add_features(self.layouts[0], at.clone(), (keys, room));
        self.edges.add_features(self.layouts[1], at, (values, room));
    }
}

/// Scratch memory of a backward pass.
pub(super) struct Work<F> {
    chunk: Chunk<F>,
    /// Values, or gradients of `y`.
    rows: Vec<Lanes<F>>,
    target: Target<F>,
    ends: Own<F>,
    /// The value of the source.
    value: Vec<Lanes<F>>,
    /// What edge features add to scores and dots.
    more: Vec<Lanes<F>>,
}

impl<T: Stored> DotAttention<'_, T> {
    fn backward_work(&self) -> Work<T::Sum> {
        let values = self.layouts[1];
        Work {
            chunk: Chunk::new(values),
            rows: values.rows(self.chunk()),
            target: Target::new(values),
            ends: Own::new(self.layouts[0], self.chunk()),
            value: values.rows(1),
            more: values.scores(),
        }
    }
}

/// The backward pass over targets: writes `lse` and `δ` for the one over sources, and what edges
/// get.
struct Targets<'a, T: Stored> {
    dot: &'a DotAttention<'a, T>,
    given: &'a Given<'a, T>,
}

impl<T: Stored> Targets<'_, T> {
    /// The gradients of features, which are as wide as keys and values, and of biases.
    #[inline(always)]
    fn store_edges(
        &self,
        entries: Range<usize>,
        (chunk, query): (&Chunk<T::Sum>, &[Vector<T>]),
        target: &mut Target<T::Sum>,
        own: &mut PerEntry<'_, T>,
    ) {
        let (layout, scale) = (self.dot.layouts[1], T::Sum::of(self.dot.scale));
        store_scores(layout, entries.clone(), &chunk.dots, own);
        if own.features.n_cols == 0 {
            return;
        }
        let Target { room, grad, .. } = target;
        for (n, e) in entries.enumerate() {
            layout.accumulate_one(room, (&chunk.dots, n), &Weighted(query));
            times(room, scale);
            layout.accumulate_one(room, (&chunk.dropped, n), &AddRows(layout, grad));
            layout.store(room, own.entry(e).0);
        }
    }
}

impl<T: Stored> Pass<T> for Targets<'_, T> {
    type Work = Work<T::Sum>;

    fn work(&self) -> Self::Work {
        self.dot.backward_work()
    }

    fn adjacency(&self) -> CsrView<'_> {
        self.dot.a
    }

    fn sizes(&self) -> Sizes {
        Sizes { chunk: self.dot.chunk(), sums: self.dot.layouts[0].vectors, totals: 0 }
    }

    #[inline(always)]
    fn begin<M: Arith>(&self, work: &mut Self::Work, i: usize, sums: &mut [Vector<T>]) {
        self.dot.begin(&mut work.ends, i);
        work.target.begin(self.dot.layouts[1], self.given, i);
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
        let (dot, [keys, values], n) = (self.dot, self.dot.layouts, entries.len());
        let at = (dot.a, entries.clone());
        let Work { chunk, rows, target, ends: Own { own: query, others, room }, .. } = work;
        let (used, tile) = (values.score_vectors(n), values.tile_vectors());
        dot.gather_both(at.clone(), (others, rows), room);
        dot.scores(at.clone(), (query, others), &mut chunk.scores);
        let term = Times { layout: values, rows, own: &target.grad };
        values.reduce((&mut chunk.dots, n), &term);
        values.repeat(&target.lse[..tile], &mut chunk.lse[..used]);
        values.repeat(&target.delta[..tile], &mut chunk.delta[..used]);
        chunk.differentiate::<M, T>(values, &dot.edges, at);
        keys.accumulate(sums, (&chunk.dots, n), &AddRows(keys, others));
        if own.asked_for() {
            self.store_edges(entries, (chunk, query), target, own);
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
        let [keys, values] = self.dot.layouts;
        times(sums.row, T::Sum::of(self.dot.scale));
        let [queries, _] = out.features;
        keys.store(sums.row, queries);
        work.target.store(values, out.stats);
    }
}

/// `x·by`.
#[inline(always)]
fn times<F: Real>(x: &mut [Lanes<F>], by: F) {
    for x in x {
        *x = mul(x, &[by; LANES]);
    }
}

/// The backward pass over sources.
struct Sources<'a, T: Stored> {
    dot: &'a DotAttention<'a, T>,
    given: &'a Given<'a, T>,
    /// `lse` and `δ` of each target.
    stats: &'a Slots<T::Sum>,
}

impl<T: Stored> Sources<'_, T> {
    /// Adds `scale·q·f` to scores and `dy·f` to dots.
    #[inline(always)]
    fn add_features(&self, at: (CsrView<'_>, Range<usize>), work: &mut Work<T::Sum>) {
        let Some(features) = self.dot.edges.features else { return };
        let (layout, by) = (self.dot.layouts[1], T::Sum::of(self.dot.scale));
        let Work { chunk, rows, ends, more, .. } = work;
        for (n, e) in at.1.enumerate() {
            layout.load(features, super::edges::position(at.0, e), &mut ends.room, 0);
            let pairs =
                [(&ends.others, by, &mut chunk.scores), (&*rows, T::Sum::ONE, &mut chunk.dots)];
            for (other, by, out) in pairs {
                let rows = &other[n * layout.vectors..];
                layout.reduce((&mut *more, 1), &Times { layout, rows, own: &ends.room });
                let out = &mut out.as_flattened_mut()[n * layout.slots..];
                let out = out.iter_mut().zip(&more.as_flattened()[..layout.heads]);
                for (out, more) in out {
                    *out += *more * by;
                }
            }
        }
    }
}

impl<T: Stored> Pass<T> for Sources<'_, T> {
    type Work = Work<T::Sum>;

    fn work(&self) -> Self::Work {
        self.dot.backward_work()
    }

    fn adjacency(&self) -> CsrView<'_> {
        self.given.transpose
    }

    fn sizes(&self) -> Sizes {
        let [keys, values] = self.dot.layouts;
        Sizes { chunk: self.dot.chunk(), sums: keys.vectors + values.vectors, totals: 0 }
    }

    #[inline(always)]
    fn begin<M: Arith>(&self, work: &mut Self::Work, j: usize, sums: &mut [Vector<T>]) {
        self.dot.layouts[0].load(self.dot.keys, j, &mut work.ends.own, 0);
        self.dot.layouts[1].load(self.dot.values, j, &mut work.value, 0);
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
        let (dot, [keys, values], n) = (self.dot, self.dot.layouts, entries.len());
        let at = (self.given.transpose, entries);
        let names = (at.0.cols, at.1.clone());
        let Work { chunk, rows, ends, value, .. } = work;
        values.gather_slots(self.stats, 0, names.clone(), &mut chunk.lse);
        values.gather_slots(self.stats, 1, names.clone(), &mut chunk.delta);
        keys.gather(dot.queries, names.clone(), &mut ends.others);
        values.gather(self.given.grad, names, rows);
        dot.scores(at.clone(), (&ends.own, &ends.others), &mut chunk.scores);
        values.reduce((&mut chunk.dots, n), &Times { layout: values, rows, own: value });
        self.add_features(at.clone(), work);
        let Work { chunk, rows, ends, .. } = work;
        chunk.differentiate::<M, T>(values, &dot.edges, at);
        let (of_keys, of_values) = sums.split_at_mut(keys.vectors);
        let add = AddRows(keys, &ends.others[..]);
        keys.accumulate(of_keys, (&chunk.dots, n), &add);
        values.accumulate(of_values, (&chunk.dropped, n), &AddRows(values, rows));
    }

    #[inline(always)]
    fn finish<M: Arith>(
        &self,
        _: &mut Self::Work,
        _: usize,
        sums: Sums<'_, T::Sum>,
        out: OutRow<'_, T>,
    ) {
        let [keys, values] = self.dot.layouts;
        let (of_keys, of_values) = sums.row.split_at_mut(keys.vectors);
        times(of_keys, T::Sum::of(self.dot.scale));
        let [dk, dv] = out.features;
        keys.store(of_keys, dk);
        values.store(of_values, dv);
    }
}
