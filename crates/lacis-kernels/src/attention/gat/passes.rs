//! The two backward passes of a GAT.

use std::ops::Range;

use lacis_core::CsrView;

use super::super::backward::{Chunk, Given, Target, scale, store_scores};
use super::super::blocks::Scratch;
use super::super::gather::{self, AddRows, Fetch, Gathered, Times};
use super::super::lanes::{LANES, Layout, Vector, copy_tile};
use super::super::project::{project_loaded, project_one};
use super::super::rows::{OutRow, Pass, PerEntry, Sizes, Sums, To};
use super::{Gat, GatScore};
use crate::isa::Arith;
use crate::matrix::Mat;
use crate::real::{Real, Stored};

/// The backward pass over targets: writes `t`, `lse`, `δ` and the gradient of `t_h·x_ih`.
pub(super) struct Targets<'a, T: Stored> {
    pub score: &'a GatScore<'a, T>,
    pub gat: &'a Gat<'a, T>,
    pub given: &'a Given<'a, T>,
    /// Whether the forward pass kept the sums.
    pub kept: bool,
}

impl<T: Stored> Targets<'_, T> {
    /// Reads `Σ_e l·p` and `Σ_e l·p'·z_j` of target `i`.
    #[inline(always)]
    fn read_kept(&self, i: usize, slope_sum: &mut [Vector<T>], values: &mut [Vector<T>]) {
        let (layout, lse) = (self.gat.layout, self.given.lse);
        let (heads, width) = (layout.heads, layout.width());
        layout.tile_of(&lse.row(i)[heads..2 * heads], slope_sum);
        let kept = Mat { data: &lse.data[2 * heads..], n_cols: width, ..lse };
        layout.load(kept, i, values, 0);
    }
}

/// Scratch memory of a backward pass.
pub(super) struct Work<T: Stored> {
    chunk: Chunk<T::Sum>,
    slopes: Vec<Vector<T>>,
    target: Target<T::Sum>,
    tile: Vec<Vector<T>>,
    /// Features of the source, or of the target.
    own: Vec<Vector<T>>,
    /// For rows of few entries, where they are done in blocks.
    blocks: Option<Scratch<T>>,
}

impl<T: Stored> Work<T> {
    fn new(layout: Layout, given: &Given<'_, T>, blocks: bool) -> Self {
        let scratch = || Scratch::new(layout, layout.width(), 4 * layout.slots);
        Work {
            blocks: blocks.then(scratch),
            chunk: Chunk::new(layout),
            slopes: layout.scores(),
            target: Target::new(layout, given),
            tile: layout.tile(),
            own: layout.rows(1),
        }
    }
}

impl<T: Stored> Pass<T> for Targets<'_, T> {
    type Work = Work<T>;

    fn work(&self) -> Self::Work {
        let own = self.gat.target.is_none();
        // Blocks read `y` as attention gave it.
        let plain = own && self.given.bias.is_none();
        Work::new(self.gat.layout, self.given, self.kept && plain && self.score.has_blocks())
    }

    fn adjacency(&self) -> CsrView<'_> {
        self.gat.a
    }

    fn sizes(&self) -> Sizes {
        let layout = self.gat.layout;
        let sums = layout.tile_vectors() + layout.vectors;
        Sizes { chunk: layout.chunk(), sums, totals: layout.vectors }
    }

    fn reads_entries(&self) -> bool {
        !self.kept
    }

    #[inline(always)]
    fn blocks(
        &self,
        work: &mut Self::Work,
        rows: Range<usize>,
        out: To<'_, '_, T>,
        totals: &mut [Vector<T>],
    ) -> usize {
        match &mut work.blocks {
            Some(scratch) => self.in_blocks(scratch, rows, out, totals),
            None => rows.start,
        }
    }

    #[inline(always)]
    fn begin<M: Arith>(&self, work: &mut Self::Work, i: usize, sums: &mut [Vector<T>]) {
        let Work { own, chunk, tile, .. } = work;
        project_one(self.score.targets(), i, (own, &mut chunk.dots), tile);
        work.target.begin(self.gat.layout, self.given, i);
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
        let (layout, a, n) = (self.gat.layout, self.gat.a, entries.len());
        let used = layout.score_vectors(n);
        let Work { chunk, slopes, target, tile, .. } = work;
        let rows = Gathered::new(self.gat.source, a.cols, entries.clone());
        let at = (a.cols, entries.clone());
        layout.gather_slots(self.score.source, at, [&mut chunk.scores]);
        self.score.raw((a, entries.clone()), tile, &mut chunk.scores);
        self.score.activate(&mut chunk.scores[..used], slopes);
        layout.repeat(&target.lse[..tile.len()], &mut chunk.lse[..used]);
        if own.asked_for() {
            layout.repeat(&target.delta[..tile.len()], &mut chunk.delta[..used]);
            let (rows, term) = ((rows, Fetch::Yes), Times(&target.grad));
            gather::reduce(layout, rows, term, &mut chunk.dots);
        }
        chunk.differentiate::<M, T>(layout, &self.score.edges, (a, entries.clone()));
        if own.asked_for() {
            scale(&mut chunk.dots[..used], slopes);
            store_scores(layout, entries, &chunk.dots, own);
        }
        chunk.scale_weights((&self.score.edges, used), slopes);
        let (slope_sum, values) = sums.split_at_mut(layout.tile_vectors());
        layout.set_after(&mut chunk.scores, n, T::Sum::ZERO);
        layout.add_to_tile(&chunk.scores[..used], slope_sum);
        let (rows, p) = ((rows, Fetch::Yes), (chunk.weights(&self.score.edges), AddRows));
        gather::join(layout, rows, p, values);
    }

    #[inline(always)]
    fn finish<M: Arith>(
        &self,
        work: &mut Self::Work,
        i: usize,
        sums: Sums<'_, T::Sum>,
        out: OutRow<'_, T>,
    ) {
        let (layout, tile) = (self.gat.layout, self.gat.layout.tile_vectors());
        let Work { chunk, target, own, tile: of_target, .. } = work;
        let (slope_sum, values) = sums.row.split_at_mut(tile);
        match self.kept {
            true => self.read_kept(i, slope_sum, values),
            false => layout.fold_sum(slope_sum),
        }
        let d = &mut chunk.dots;
        gather::dots_one(layout, [values, &target.grad], d.as_flattened_mut());
        for ((d, sum), delta) in d.iter_mut().zip(slope_sum.iter()).zip(&target.delta) {
            for l in 0..LANES {
                d[l] = M::mul_add(-sum[l], delta[l], d[l]);
            }
        }
        let (t, rest) = out.stats.split_at_mut(layout.slots);
        t.copy_from_slice(&of_target.as_flattened()[..layout.slots]);
        target.store(layout, rest);
        rest[2 * layout.slots..].copy_from_slice(&d.as_flattened()[..layout.slots]);

        gather::join_one::<M, _, _>(layout, own, (d.as_flattened(), AddRows), sums.totals);
        let [x, _] = out.features;
        if !x.is_empty() {
            values.fill([T::Sum::ZERO; LANES]);
            let p = (d.as_flattened(), AddRows);
            gather::join_one::<M, _, _>(layout, &self.score.vectors[0].row, p, values);
            layout.store(values, x);
        }
    }
}

/// The backward pass over sources.
pub(super) struct Sources<'a, T: Stored> {
    pub score: &'a GatScore<'a, T>,
    pub gat: &'a Gat<'a, T>,
    pub given: &'a Given<'a, T>,
    /// `t`, `lse`, `δ` and the gradient of `t_h·x_ih` of each target.
    pub stats: Mat<'a, T::Sum>,
}

impl<T: Stored> Pass<T> for Sources<'_, T> {
    type Work = Work<T>;

    fn work(&self) -> Self::Work {
        Work::new(self.gat.layout, self.given, self.score.has_blocks())
    }

    fn adjacency(&self) -> CsrView<'_> {
        self.given.transpose
    }

    fn sizes(&self) -> Sizes {
        let layout = self.gat.layout;
        let sums = layout.tile_vectors() + layout.vectors;
        Sizes { chunk: layout.chunk(), sums, totals: layout.vectors }
    }

    /// A node without edges to others may have some of its own.
    fn of_nothing(&self) -> Option<T::Sum> {
        self.gat.target.map(|_| T::Sum::ZERO)
    }

    #[inline(always)]
    fn blocks(
        &self,
        work: &mut Self::Work,
        rows: Range<usize>,
        out: To<'_, '_, T>,
        totals: &mut [Vector<T>],
    ) -> usize {
        match &mut work.blocks {
            Some(scratch) => self.in_blocks(scratch, rows, out, totals),
            None => rows.start,
        }
    }

    fn finds_rows(&self) -> bool {
        self.gat.in_place
    }

    #[inline(always)]
    fn find(&self, work: &mut Self::Work, row: &[T]) {
        let x = Mat { data: row, n_rows: 1, n_cols: row.len(), stride: row.len() };
        self.gat.layout.load(x, 0, &mut work.own, 0);
    }

    #[inline(always)]
    fn begin<M: Arith>(&self, work: &mut Self::Work, j: usize, sums: &mut [Vector<T>]) {
        let Work { own, chunk, tile, .. } = work;
        let (layout, vectors) = (self.gat.layout, &self.score.vectors[1]);
        if !self.gat.in_place {
            layout.load(self.gat.source, j, own, 0);
        }
        project_loaded((layout, vectors), (own, &mut chunk.dots), tile);
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
        let (layout, a, n) = (self.gat.layout, self.given.transpose, entries.len());
        let used = layout.score_vectors(n);
        let Work { chunk, slopes, tile, own, .. } = work;
        let Chunk { scores, lse, delta, .. } = chunk;
        layout.gather_slots(self.stats, (a.cols, entries.clone()), [scores, lse, delta]);
        let rows = Gathered::new(self.given.grad, a.cols, entries.clone());
        self.score.raw((a, entries.clone()), tile, &mut chunk.scores);
        self.score.activate(&mut chunk.scores[..used], slopes);
        let term = Times(&own[..]);
        gather::reduce(layout, (rows, Fetch::Yes), term, &mut chunk.dots);
        chunk.differentiate::<M, T>(layout, &self.score.edges, (a, entries));
        scale(&mut chunk.dots[..used], slopes);
        layout.set_after(&mut chunk.dots, n, T::Sum::ZERO);
        let (score_sum, values) = sums.split_at_mut(layout.tile_vectors());
        layout.add_to_tile(&chunk.dots[..used], score_sum);
        let (rows, p) = ((rows, Fetch::No), (chunk.weights(&self.score.edges), AddRows));
        gather::join(layout, rows, p, values);
    }

    #[inline(always)]
    fn finish<M: Arith>(
        &self,
        work: &mut Self::Work,
        j: usize,
        sums: Sums<'_, T::Sum>,
        out: OutRow<'_, T>,
    ) {
        let (layout, tile) = (self.gat.layout, self.gat.layout.tile_vectors());
        let Work { chunk, own, .. } = work;
        let (score_sum, values) = sums.row.split_at_mut(tile);
        layout.fold_sum(score_sum);
        let d = &mut chunk.dots;
        copy_tile(score_sum, &mut d[..tile]);
        gather::join_one::<M, _, _>(layout, own, (d.as_flattened(), AddRows), sums.totals);
        let [t, u] = self.score.vectors.each_ref().map(|vectors| &vectors.row[..]);
        gather::join_one::<M, _, _>(layout, u, (d.as_flattened(), AddRows), values);
        if self.gat.target.is_none() {
            let of_target = &self.stats.row(j)[3 * layout.slots..];
            layout.tile_of(of_target, &mut d[..tile]);
            gather::join_one::<M, _, _>(layout, t, (d.as_flattened(), AddRows), values);
        }
        let [z, _] = out.features;
        layout.store(values, z);
    }
}
