//! The passes of an attention by dot products over a graph's rows.

use std::ops::Range;

use lacis_core::CsrView;

use super::super::backward::{Chunk, store_scores};
use super::super::blocks::Scratch;
use super::super::edges::{Edges, position};
use super::super::forward::Score;
use super::super::gather::{self, AddRows, Fetch, Filled, Gathered, Times, weight_at};
use super::super::lanes::{LANES, Lanes, Layout, Vector, mul, mul_add};
use super::super::rows::{OutRow, Pass, PerEntry, Sizes, Sums, To};
use super::{DotAttention, DotGiven};
use crate::isa::Arith;
use crate::matrix::Mat;
use crate::real::{Real, Stored};

/// Scratch memory for scores.
pub(in super::super) struct Own<T: Stored> {
    /// The row's own query, or key.
    own: Vec<Vector<T>>,
    /// Keys, and values, with the features of edges.
    filled: [Filled<T::Sum>; 2],
    room: Vec<Vector<T>>,
    /// For rows of few entries, where they are done in blocks.
    blocks: Option<Scratch<T>>,
}

impl<T: Stored> Own<T> {
    fn new(dot: &DotAttention<'_, T>, stats: usize) -> Self {
        let filled = dot.layouts.map(|layout| Filled::new(layout, dot.chunk(), &dot.edges));
        let [own, room] = [(), ()].map(|()| dot.layouts[0].rows(1));
        Own { own, filled, room, blocks: dot.has_blocks().then(|| dot.scratch(stats)) }
    }
}

/// Keys and values, and what their rows are for.
pub(super) struct Ends<'a, T: Stored> {
    pub dot: &'a DotAttention<'a, T>,
    pub keys: Mat<'a, T>,
    pub values: Mat<'a, T>,
    /// Whether rows that edges name have to be asked for.
    pub far: bool,
}

impl<'a, T: Stored> Ends<'a, T> {
    pub fn new(dot: &'a DotAttention<'a, T>, keys: Mat<'a, T>, values: Mat<'a, T>) -> Self {
        Ends { dot, keys, values, far: dot.is_far() }
    }
}

/// The rows of some edges, without and with the edges' features; these only where there are any.
type Both<'a, T> = (Gathered<'a, T>, Gathered<'a, <T as Stored>::Sum>, Fetch);

impl<T: Stored> DotAttention<'_, T> {
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
            gather::reduce(layout, (filled, Fetch::No), Times(own), out);
        } else {
            gather::reduce(layout, (rows, fetch), Times(own), out);
        }
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

/// `x·by`.
#[inline(always)]
fn times<F: Real>(x: &mut [Lanes<F>], by: F) {
    for x in x {
        *x = mul(x, &[by; LANES]);
    }
}

impl<T: Stored> Ends<'_, T> {
    /// Adds weighted rows of keys or values (`which`) to one or two sums.
    #[inline(always)]
    fn add<const N: usize>(
        &self,
        (which, entries, fetch): (usize, Range<usize>, Fetch),
        work: &Own<T>,
        p: [&[Vector<T>]; N],
        sums: [&mut [Vector<T>]; N],
    ) {
        let (dot, layout) = (self.dot, self.dot.layouts[which]);
        let rows = [self.keys, self.values][which];
        if dot.edges.features.is_some() {
            let filled = work.filled[which].rows(entries.len());
            gather::join_sets(layout, (filled, Fetch::No), (p, AddRows), sums);
        } else {
            let rows = Gathered::new(rows, dot.a.cols, entries);
            gather::join_sets(layout, (rows, fetch), (p, AddRows), sums);
        }
    }
}

impl<T: Stored> Score<T> for Ends<'_, T> {
    type Work = Own<T>;

    fn work(&self) -> Self::Work {
        Own::new(self.dot, self.dot.layouts[1].heads)
    }

    fn adjacency(&self) -> CsrView<'_> {
        self.dot.a
    }

    fn layout(&self) -> Layout {
        self.dot.layouts[1]
    }

    fn edges(&self) -> &Edges<'_, T> {
        &self.dot.edges
    }

    #[inline(always)]
    fn blocks(&self, work: &mut Self::Work, rows: Range<usize>, out: To<'_, '_, T>) -> usize {
        match &mut work.blocks {
            Some(scratch) => self.forward_blocks(scratch, rows, out),
            None => rows.start,
        }
    }

    #[inline(always)]
    fn begin(&self, work: &mut Self::Work, i: usize) {
        self.dot.layouts[0].load(self.dot.queries, i, &mut work.own, 0);
    }

    #[inline(always)]
    fn scores<M: Arith>(
        &self,
        work: &mut Self::Work,
        entries: Range<usize>,
        scores: &mut [Vector<T>],
    ) {
        let (dot, a) = (self.dot, self.dot.a);
        let Own { own, filled, .. } = work;
        if let Some(features) = dot.edges.features {
            filled[0].fill((self.keys, features), (a, entries.clone()));
            filled[1].fill((self.values, features), (a, entries.clone()));
        }
        let rows = Gathered::new(self.keys, a.cols, entries.clone());
        let both = (rows, filled[0].rows(entries.len()), Fetch::Yes);
        dot.reduce(dot.layouts[0], both, own, scores);
        dot.finish_scores((a, entries), scores);
    }

    #[inline(always)]
    fn add_values<M: Arith>(
        &self,
        work: &Self::Work,
        entries: Range<usize>,
        p: &[Vector<T>],
        sums: &mut [Vector<T>],
    ) {
        self.add((1, entries, Fetch::Yes), work, [p], [sums]);
    }
}

/// Scratch memory of the backward pass over targets.
pub(super) struct TargetWork<T: Stored> {
    own: Own<T>,
    chunk: Chunk<T::Sum>,
    /// The gradient of the target's result, `lse` and `δ`.
    grad: Vec<Vector<T>>,
    lse: Vec<Vector<T>>,
    delta: Vec<Vector<T>>,
    room: Vec<Vector<T>>,
}

/// The backward pass over targets: writes `lse` and `δ` for the one over sources, and what edges
/// get. `δ` is known when all edges of a row have been looked at:
/// ```text
///   dq = scale·(A - δ·B),   A = Σ_e p'·(dy·v)·k,   B = Σ_e p·k
/// ```
pub(super) struct Targets<'a, T: Stored> {
    pub ends: &'a Ends<'a, T>,
    pub given: &'a DotGiven<'a, T>,
    /// Whether edges get anything: then `δ` is found first, in a look of its own.
    pub wanted: bool,
}

impl<T: Stored> Targets<'_, T> {
    /// `p`, `p'` and `p'·(dy·v)` of some entries, in the chunk.
    #[inline(always)]
    fn weigh<M: Arith>(&self, work: &mut TargetWork<T>, entries: Range<usize>) {
        let (ends, dot, n) = (self.ends, self.ends.dot, entries.len());
        let values = dot.layouts[1];
        let TargetWork { own, chunk, grad, lse, .. } = work;
        ends.scores::<M>(own, entries.clone(), &mut chunk.scores);
        let rows = Gathered::new(ends.values, dot.a.cols, entries.clone());
        let both = (rows, own.filled[1].rows(n), Fetch::Yes);
        dot.reduce(values, both, grad, &mut chunk.dots);
        let (used, tile) = (values.score_vectors(n), values.tile_vectors());
        values.repeat(&lse[..tile], &mut chunk.lse[..used]);
        chunk.weigh::<M, T>(values, &dot.edges, (dot.a, entries));
    }

    /// The gradients of features, which are as wide as keys and values, and of biases.
    #[inline(always)]
    fn store_edges<M: Arith>(
        &self,
        entries: Range<usize>,
        work: &mut TargetWork<T>,
        out: &mut PerEntry<'_, T>,
    ) {
        let dot = self.ends.dot;
        let (layout, scale) = (dot.layouts[1], T::Sum::of(dot.scale));
        let TargetWork { own, chunk, grad, delta, room, .. } = work;
        let (used, tile) = (layout.score_vectors(entries.len()), layout.tile_vectors());
        layout.repeat(&delta[..tile], &mut chunk.delta[..used]);
        chunk.less_delta::<M>(layout, entries.len());
        store_scores(layout, entries.clone(), &chunk.dots, out);
        if out.features.n_cols == 0 {
            return;
        }
        for (n, e) in entries.enumerate() {
            let at = n * layout.slots;
            let both = [&chunk.dots[..], chunk.weights(&dot.edges)];
            let [ds, p] = both.map(|x| &x.as_flattened()[at..]);
            room.fill([T::Sum::ZERO; LANES]);
            gather::join_one::<M, _, _>(layout, &own.own, (ds, AddRows), room);
            times(room, scale);
            gather::join_one::<M, _, _>(layout, grad, (p, AddRows), room);
            layout.store(room, out.entry(e).0);
        }
    }
}

impl<T: Stored> Pass<T> for Targets<'_, T> {
    type Work = TargetWork<T>;

    fn work(&self) -> Self::Work {
        let values = self.ends.dot.layouts[1];
        let [lse, delta] = [(), ()].map(|()| values.scores());
        TargetWork {
            own: Own::new(self.ends.dot, 2 * values.slots),
            chunk: Chunk::new(values),
            grad: values.rows(1),
            lse,
            delta,
            room: values.rows(1),
        }
    }

    fn adjacency(&self) -> CsrView<'_> {
        self.ends.dot.a
    }

    fn sizes(&self) -> Sizes {
        let [keys, values] = self.ends.dot.layouts;
        let sums = values.tile_vectors() + 2 * keys.vectors;
        Sizes { chunk: self.ends.dot.chunk(), sums, totals: 0 }
    }

    #[inline(always)]
    fn blocks(
        &self,
        work: &mut Self::Work,
        rows: Range<usize>,
        out: To<'_, '_, T>,
        _: &mut [Vector<T>],
    ) -> usize {
        match &mut work.own.blocks {
            Some(scratch) if !self.wanted => self.in_blocks(scratch, rows, out),
            _ => rows.start,
        }
    }

    #[inline(always)]
    fn begin<M: Arith>(&self, work: &mut Self::Work, i: usize, sums: &mut [Vector<T>]) {
        let (dot, layout) = (self.ends.dot, self.ends.dot.layouts[1]);
        let tile = layout.tile_vectors();
        self.ends.begin(&mut work.own, i);
        layout.load(self.given.grad, i, &mut work.grad, 0);
        layout.tile_of(self.given.lse.row(i), &mut work.lse[..tile]);
        sums.fill([T::Sum::ZERO; LANES]);
        if self.wanted {
            let (entries, chunk) = (dot.a.row(i), dot.chunk());
            for first in entries.clone().step_by(chunk) {
                let some = first..(first + chunk).min(entries.end);
                let used = layout.score_vectors(some.len());
                self.weigh::<M>(work, some);
                layout.add_to_tile(&work.chunk.dots[..used], &mut sums[..tile]);
            }
            layout.fold_sum(&mut sums[..tile]);
            work.delta[..tile].copy_from_slice(&sums[..tile]);
            sums.fill([T::Sum::ZERO; LANES]);
        }
    }

    #[inline(always)]
    fn entries<M: Arith>(
        &self,
        work: &mut Self::Work,
        entries: Range<usize>,
        sums: &mut [Vector<T>],
        out: &mut PerEntry<'_, T>,
    ) {
        let dot = self.ends.dot;
        let [keys, values] = dot.layouts;
        self.weigh::<M>(work, entries.clone());
        let used = values.score_vectors(entries.len());
        let (delta, queries) = sums.split_at_mut(values.tile_vectors());
        let Chunk { scores, dots, .. } = &work.chunk;
        values.add_to_tile(&dots[..used], delta);
        let (first, second) = queries.split_at_mut(keys.vectors);
        let which = (0, entries.clone(), Fetch::No);
        self.ends.add(which, &work.own, [&dots[..], &scores[..]], [first, second]);
        if self.wanted {
            self.store_edges::<M>(entries, work, out);
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
        let [keys, values] = self.ends.dot.layouts;
        let (delta, queries) = sums.row.split_at_mut(values.tile_vectors());
        values.fold_sum(delta);
        let (first, second) = queries.split_at_mut(keys.vectors);
        // Weights of a head are read with those after them.
        work.delta[..delta.len()].copy_from_slice(delta);
        for (v, (sum, less)) in first.iter_mut().zip(second).enumerate() {
            let mut minus = weight_at(keys, work.delta.as_flattened(), v);
            minus.iter_mut().for_each(|x| *x = -*x);
            *sum = mul_add::<M, _>(&minus, less, sum);
        }
        times(first, T::Sum::of(self.ends.dot.scale));
        keys.store(first, out.features[0]);
        let (lse, of_delta) = out.stats.split_at_mut(values.slots);
        lse.copy_from_slice(&work.lse.as_flattened()[..values.slots]);
        of_delta.copy_from_slice(&delta.as_flattened()[..values.slots]);
    }
}

/// Scratch memory of the backward pass over sources.
pub(super) struct SourceWork<T: Stored> {
    own: Own<T>,
    chunk: Chunk<T::Sum>,
    /// The value of the source, and rows of targets.
    value: Vec<Vector<T>>,
    room: Vec<Vector<T>>,
    /// What edge features add to scores and dots.
    more: Vec<Vector<T>>,
}

/// The backward pass over sources, whose keys and values become gradients row by row.
pub(super) struct Sources<'a, T: Stored> {
    pub dot: &'a DotAttention<'a, T>,
    pub given: &'a DotGiven<'a, T>,
    /// `lse` and `δ` of each target.
    pub stats: Mat<'a, T::Sum>,
}

impl<T: Stored> Sources<'_, T> {
    /// Adds `scale·q·f` to scores and `dy·f` to dots.
    #[inline(always)]
    fn add_features(&self, at: (CsrView<'_>, Range<usize>), work: &mut SourceWork<T>) {
        let Some(features) = self.dot.edges.features else { return };
        let (layout, by) = (self.dot.layouts[1], T::Sum::of(self.dot.scale));
        let SourceWork { chunk, own, more, room, .. } = work;
        for (n, e) in at.1.enumerate() {
            let i = at.0.cols[e] as usize;
            layout.load(features, position(at.0, e), &mut own.room, 0);
            let pairs = [
                (self.dot.queries, by, &mut chunk.scores),
                (self.given.grad, T::Sum::ONE, &mut chunk.dots),
            ];
            for (other, by, out) in pairs {
                layout.load(other, i, room, 0);
                gather::dots_one(layout, [&room[..], &own.room[..]], more.as_flattened_mut());
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
    type Work = SourceWork<T>;

    fn work(&self) -> Self::Work {
        let values = self.dot.layouts[1];
        let [value, room] = [(), ()].map(|()| values.rows(1));
        let chunk = Chunk::new(values);
        SourceWork { own: Own::new(self.dot, 0), chunk, value, room, more: values.scores() }
    }

    fn adjacency(&self) -> CsrView<'_> {
        self.given.transpose
    }

    fn sizes(&self) -> Sizes {
        let [keys, values] = self.dot.layouts;
        Sizes { chunk: self.dot.chunk(), sums: keys.vectors + values.vectors, totals: 0 }
    }

    #[inline(always)]
    fn blocks(
        &self,
        work: &mut Self::Work,
        rows: Range<usize>,
        out: To<'_, '_, T>,
        _: &mut [Vector<T>],
    ) -> usize {
        match &mut work.own.blocks {
            Some(scratch) => self.in_blocks(scratch, rows, out),
            None => rows.start,
        }
    }

    fn finds_rows(&self) -> bool {
        true
    }

    #[inline(always)]
    fn find(&self, work: &mut Self::Work, own: &[T]) {
        let [keys, values] = self.dot.layouts;
        let row = Mat { data: own, n_rows: 1, n_cols: own.len(), stride: own.len() };
        keys.load(row, 0, &mut work.own.own, 0);
        values.load(Mat { data: &own[keys.width()..], ..row }, 0, &mut work.value, 0);
    }

    #[inline(always)]
    fn begin<M: Arith>(&self, _: &mut Self::Work, _: usize, sums: &mut [Vector<T>]) {
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
        let SourceWork { own, chunk, value, .. } = work;
        let Chunk { lse, delta, .. } = &mut *chunk;
        values.gather_slots(self.stats, names.clone(), [lse, delta]);
        let queries = Gathered::new(dot.queries, names.0, names.1.clone());
        let rows = Gathered::new(self.given.grad, names.0, names.1);
        gather::reduce(keys, (queries, Fetch::Yes), Times(&own.own[..]), &mut chunk.scores);
        dot.finish_scores(at.clone(), &mut chunk.scores);
        gather::reduce(values, (rows, Fetch::Yes), Times(&value[..]), &mut chunk.dots);
        self.add_features(at.clone(), work);
        let SourceWork { chunk, .. } = work;
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
        let [ends, _] = out.features;
        let (dk, dv) = ends.split_at_mut(keys.width());
        keys.store(of_keys, dk);
        values.store(of_values, dv);
    }
}
