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
use super::edges::{Edges, edge_options};
use super::forward::{self, Score};
use super::gather::{self, AddRows, Fetch, Filled, Gathered, Times};
use super::lanes::{LANES, Lanes, Layout, Vector, mul};
use super::rows::{self, Out, OutRow, Pass, PerEntry, Sizes, Sums, nothing};
use crate::dropout::Dropout;
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

edge_options!(DotAttention, "Edges have a bias `b`, `nnz × heads` in the caller's order.");

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
            Some(channels) if channels * heads == x.n_cols => Ok(Layout::new::<T>(heads, channels)),
            _ => {
                let problem = format!("{heads} heads do not divide {} columns", x.n_cols);
                Err(Error::argument("heads", problem))
            }
        };
        let mut layouts = [layout(keys)?, layout(values)?];
        if layouts[0].shape != layouts[1].shape {
            layouts = layouts.map(Layout::general);
        }
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
        T::dot_attention(self, isa, (y.into(), lse.into()), threads)
    }

    pub(super) fn forward_here(
        &self,
        isa: Isa,
        (y, lse): super::Outputs<'_, T>,
        threads: &Threads,
    ) -> Result<()> {
        super::check_outputs("dot attention", (self.a.n_rows(), self.layouts[1]), (&y, &lse))?;
        same_size("dot attention", "columns of lse", self.layouts[1].heads, lse.n_cols)?;
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
        T::dot_attention_backward(self, isa, given, grads, threads)
    }

    pub(super) fn backward_here(
        &self,
        isa: Isa,
        given: &Given<'_, T>,
        grads: DotAttentionGrads<'_, T>,
        threads: &Threads,
    ) -> Result<()> {
        let values = self.layouts[1];
        given.check("dot attention", self.a, values, &self.edges)?;
        same_size("dot attention", "columns of lse", values.heads, given.lse.n_cols)?;
        self.check_grads(&grads)?;
        if values.width() == 0 {
            super::backward::clear(Some(grads.queries));
            super::backward::clear(Some(grads.keys));
            super::backward::clear(grads.bias);
            return Ok(());
        }
        let (n, m, nnz) = (self.a.n_rows(), self.a.n_cols, self.a.cols.len());
        let mut stats = values.slots(n, 2, threads)?;
        let mut ordered = InOrder::new(self.a, grads.features, grads.bias, threads)?;
        let dot = self.on(isa);
        let pass = Targets { dot: &dot, given };
        let out = Out { features: [grads.queries, nothing(n)], stats: (&mut stats).into() };
        rows::run(isa, &pass, (out, ordered.per_entry(nnz)), threads);
        ordered.finish(self.a);

        let pass = Sources { dot: &dot, given, stats: (&stats).into() };
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

    /// `scale·q·k + b` of some entries, from what the keys and the queries gave.
    #[inline(always)]
    fn finish_scores(&self, at: (CsrView<'_>, Range<usize>), scores: &mut [Vector<T>]) {
        let (layout, scale) = (self.layouts[0], T::Sum::of(self.scale));
        let used = layout.score_vectors(at.1.len());
        if layout.vectors == 0 {
            scores.fill([T::Sum::ZERO; LANES]);
        }
        times(&mut scores[..used], scale);
        self.edges.add_bias(layout, at, scores);
    }
}

/// Scratch memory for scores.
pub(super) struct Own<F> {
    /// The row's own query, or key.
    own: Vec<Lanes<F>>,
    /// Keys, and values, with the features of edges.
    filled: [Filled<F>; 2],
    room: Vec<Lanes<F>>,
}

impl<F: Real> Own<F> {
    fn new<T: Stored<Sum = F>>(dot: &DotAttention<'_, T>) -> Self {
        let filled = dot.layouts.map(|layout| Filled::new(layout, dot.chunk(), &dot.edges));
        Own { own: dot.layouts[0].rows(1), filled, room: dot.layouts[0].rows(1) }
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
        Own::new(self)
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
    fn scores<M: Arith>(
        &self,
        work: &mut Self::Work,
        entries: Range<usize>,
        scores: &mut [Vector<T>],
    ) {
        self.fill((self.a, entries.clone()), work);
        let Own { own, filled, .. } = work;
        let rows = Gathered::new(self.keys, self.a.cols, entries.clone());
        let both = (rows, filled[0].rows(entries.len()), Fetch::Yes);
        self.reduce(self.layouts[0], both, own, scores);
        self.finish_scores((self.a, entries), scores);
    }

    #[inline(always)]
    fn add_values<M: Arith>(
        &self,
        work: &Self::Work,
        entries: Range<usize>,
        p: &[Vector<T>],
        sums: &mut [Vector<T>],
    ) {
        let filled = work.filled[1].rows(entries.len());
        let rows = Gathered::new(self.values, self.a.cols, entries);
        self.add(self.layouts[1], (rows, filled, Fetch::Yes), p, sums);
    }
}

/// The rows of some edges, without and with the edges' features; these only where there are any.
type Both<'a, T> = (Gathered<'a, T>, Gathered<'a, <T as Stored>::Sum>, Fetch);

impl<T: Stored> DotAttention<'_, T> {
    /// Reads `k_j + f_e` and `v_j + f_e` of some entries where edges have features.
    #[inline(always)]
    fn fill(&self, at: (CsrView<'_>, Range<usize>), work: &mut Own<T::Sum>) {
        if let Some(features) = self.edges.features {
            work.filled[0].fill((self.keys, features), at.clone());
            work.filled[1].fill((self.values, features), at);
        }
    }

    /// The products of rows with one that is the same for all.
    #[inline(always)]
    fn reduce(
        &self,
        layout: Layout,
        (rows, filled, fetch): Both<'_, T>,
        own: &[Vector<T>],
        out: &mut [Vector<T>],
    ) {
        if self.edges.features.is_some() {
            let rows = (filled, Fetch::No);
            gather::reduce(layout, rows, Times(own), out);
        } else {
            gather::reduce(layout, (rows, fetch), Times(own), out);
        }
    }

    /// Adds weighted rows.
    #[inline(always)]
    fn add(
        &self,
        layout: Layout,
        (rows, filled, fetch): Both<'_, T>,
        p: &[Vector<T>],
        sums: &mut [Vector<T>],
    ) {
        let p = (p, AddRows);
        if self.edges.features.is_some() {
            gather::join(layout, (filled, Fetch::No), p, sums);
        } else {
            gather::join(layout, (rows, fetch), p, sums);
        }
    }
}

/// Scratch memory of a backward pass.
pub(super) struct Work<F> {
    chunk: Chunk<F>,
    target: Target<F>,
    ends: Own<F>,
    /// The value of the source.
    value: Vec<Lanes<F>>,
    /// What edge features add to scores and dots.
    more: Vec<Lanes<F>>,
}

impl<T: Stored> DotAttention<'_, T> {
    fn backward_work(&self, given: &Given<'_, T>) -> Work<T::Sum> {
        let values = self.layouts[1];
        Work {
            chunk: Chunk::new(values),
            target: Target::new(values, given),
            ends: Own::new(self),
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
    fn store_edges<M: Arith>(
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
            let at = n * layout.slots;
            let both = [&chunk.dots[..], chunk.weights(&self.dot.edges)];
            let [ds, p] = both.map(|x| &x.as_flattened()[at..]);
            room.fill([T::Sum::ZERO; LANES]);
            gather::join_one::<M, _, _>(layout, query, (ds, AddRows), room);
            times(room, scale);
            gather::join_one::<M, _, _>(layout, grad, (p, AddRows), room);
            layout.store(room, own.entry(e).0);
        }
    }
}

impl<T: Stored> Pass<T> for Targets<'_, T> {
    type Work = Work<T::Sum>;

    fn work(&self) -> Self::Work {
        self.dot.backward_work(self.given)
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
        let Work { chunk, target, ends, .. } = work;
        let (used, tile) = (values.score_vectors(n), values.tile_vectors());
        dot.scores::<M>(ends, entries.clone(), &mut chunk.scores);
        let Own { own: query, filled, .. } = ends;
        let rows = Gathered::new(dot.values, dot.a.cols, entries.clone());
        let both = (rows, filled[1].rows(n), Fetch::Yes);
        dot.reduce(values, both, &target.grad, &mut chunk.dots);
        values.repeat(&target.lse[..tile], &mut chunk.lse[..used]);
        values.repeat(&target.delta[..tile], &mut chunk.delta[..used]);
        chunk.differentiate::<M, T>(values, &dot.edges, at);
        let rows = Gathered::new(dot.keys, dot.a.cols, entries.clone());
        let both = (rows, filled[0].rows(n), Fetch::No);
        dot.add(keys, both, &chunk.dots, sums);
        if own.asked_for() {
            self.store_edges::<M>(entries, (chunk, query), target, own);
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
    stats: Mat<'a, T::Sum>,
}

impl<T: Stored> Sources<'_, T> {
    /// Adds `scale·q·f` to scores and `dy·f` to dots.
    #[inline(always)]
    fn add_features(&self, at: (CsrView<'_>, Range<usize>), work: &mut Work<T::Sum>) {
        let Some(features) = self.dot.edges.features else { return };
        let (layout, by) = (self.dot.layouts[1], T::Sum::of(self.dot.scale));
        let Work { chunk, ends, more, target, .. } = work;
        for (n, e) in at.1.enumerate() {
            let i = at.0.cols[e] as usize;
            layout.load(features, super::edges::position(at.0, e), &mut ends.room, 0);
            let pairs = [
                (self.dot.queries, by, &mut chunk.scores),
                (self.given.grad, T::Sum::ONE, &mut chunk.dots),
            ];
            for (other, by, out) in pairs {
                layout.load(other, i, &mut target.room, 0);
                let both = [&target.room[..], &ends.room[..]];
                gather::dots_one(layout, both, more.as_flattened_mut());
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
        self.dot.backward_work(self.given)
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
        let (dot, [keys, values]) = (self.dot, self.dot.layouts);
        let at = (self.given.transpose, entries);
        let names = (at.0.cols, at.1.clone());
        let Work { chunk, ends, value, .. } = work;
        let Chunk { lse, delta, .. } = &mut *chunk;
        values.gather_slots(self.stats, names.clone(), [lse, delta]);
        let queries = Gathered::new(dot.queries, names.0, names.1.clone());
        let rows = Gathered::new(self.given.grad, names.0, names.1);
        let term = Times(&ends.own[..]);
        gather::reduce(keys, (queries, Fetch::Yes), term, &mut chunk.scores);
        dot.finish_scores(at.clone(), &mut chunk.scores);
        let term = Times(&value[..]);
        gather::reduce(values, (rows, Fetch::Yes), term, &mut chunk.dots);
        self.add_features(at.clone(), work);
        let Work { chunk, .. } = work;
        chunk.differentiate::<M, T>(values, &dot.edges, at);
        let (of_keys, of_values) = sums.split_at_mut(keys.vectors);
        let (ds, p) = ((&chunk.dots[..], AddRows), (chunk.weights(&dot.edges), AddRows));
        gather::join(keys, (queries, Fetch::No), ds, of_keys);
        gather::join(values, (rows, Fetch::No), p, of_values);
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
