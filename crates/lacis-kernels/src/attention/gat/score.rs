//! The scores of a GAT, and its forward pass over rows of any length.

use std::ops::Range;

use lacis_core::CsrView;

use super::super::blocks::Scratch;
use super::super::edges::Edges;
use super::super::forward::Score;
use super::super::gather::{self, AddRows, Fetch, Gathered};
use super::super::lanes::{Layout, Vector};
use super::super::project::{Vectors, project_one};
use super::super::rows::To;
use super::Gat;
use crate::isa::Arith;
use crate::matrix::Mat;
use crate::real::{Real, Stored};

/// What a thread has for the forward pass.
pub(super) struct ScoreWork<T: Stored> {
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
pub(super) struct GatScore<'a, T: Stored> {
    pub gat: &'a Gat<'a, T>,
    /// `t` and `u`.
    pub vectors: &'a [Vectors<T>; 2],
    /// `u_h·z_jh`.
    pub source: Mat<'a, T::Sum>,
    /// Their bias includes what the features give.
    pub edges: Edges<'a, T>,
    pub slope: T::Sum,
    /// Whether rows that edges name have to be asked for.
    pub far: bool,
}

impl<T: Stored> GatScore<'_, T> {
    /// What is projected for targets.
    #[inline(always)]
    pub fn targets(&self) -> (Layout, Mat<'_, T>, &Vectors<T>) {
        let x = self.gat.target.unwrap_or(self.gat.source);
        (self.gat.layout, x, &self.vectors[0])
    }

    /// Adds a tile and the bias to what the other end has.
    #[inline(always)]
    pub fn raw(
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
    pub fn activate(&self, raw: &mut [Vector<T>], slopes: &mut [Vector<T>]) {
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
