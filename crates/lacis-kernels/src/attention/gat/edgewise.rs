//! The backward pass of a GAT over targets that has neither their results nor sums of the forward
//! pass: it looks at the edges again.
//!
//! ```text
//!   δ_ih = Σ_e p'·(dy_i · z_j)      d(t_h·x_ih) = Σ_e l·p'·(dy_i · z_j) - δ_ih · Σ_e l·p
//! ```
//! Three numbers per head are all that a row adds up, and nothing as wide as it is written.

use std::ops::Range;

use lacis_core::CsrView;

use super::super::backward::{Given, scale};
use super::super::blocks::Scratch;
use super::super::gather::{self, AddRows, Fetch, Gathered, Times};
use super::super::lanes::{LANES, Vector, exp_less};
use super::super::project::project_one;
use super::super::rows::{OutRow, Pass, PerEntry, Sizes, Sums, To};
use super::{Gat, GatScore};
use crate::isa::Arith;
use crate::real::{Real, Stored};

/// Writes `t`, `lse`, `δ` and the gradient of `t_h·x_ih`.
pub(super) struct Edgewise<'a, T: Stored> {
    pub score: &'a GatScore<'a, T>,
    pub gat: &'a Gat<'a, T>,
    pub given: &'a Given<'a, T>,
}

/// Scratch memory of a thread.
pub(super) struct Work<T: Stored> {
    scores: Vec<Vector<T>>,
    slopes: Vec<Vector<T>>,
    lse: Vec<Vector<T>>,
    dots: Vec<Vector<T>>,
    dropped: Vec<Vector<T>>,
    /// `t` and `lse` of the target.
    of_target: [Vec<Vector<T>>; 2],
    /// Its features and its gradient.
    own: Vec<Vector<T>>,
    grad: Vec<Vector<T>>,
    /// For rows of few entries, where they are done in blocks.
    blocks: Option<Scratch<T>>,
}

impl<T: Stored> Pass<T> for Edgewise<'_, T> {
    type Work = Work<T>;

    fn work(&self) -> Self::Work {
        let layout = self.gat.layout;
        let blocks = self.gat.target.is_none() && self.score.has_blocks();
        let [scores, slopes, lse, dots, dropped] = std::array::from_fn(|_| layout.scores());
        Work {
            scores,
            slopes,
            lse,
            dots,
            dropped,
            of_target: [layout.tile(), layout.tile()],
            own: layout.rows(1),
            grad: layout.rows(1),
            blocks: blocks.then(|| Scratch::new(layout, 0, 4 * layout.slots)),
        }
    }

    fn adjacency(&self) -> CsrView<'_> {
        self.gat.a
    }

    fn sizes(&self) -> Sizes {
        let layout = self.gat.layout;
        Sizes { chunk: layout.chunk(), sums: 3 * layout.tile_vectors(), totals: layout.vectors }
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
        let layout = self.gat.layout;
        let Work { own, dots, of_target: [t, lse], grad, .. } = work;
        project_one(self.score.targets(), i, (own, dots), t);
        layout.load(self.given.grad, i, grad, 0);
        layout.tile_of(&self.given.lse.row(i)[..layout.heads], lse);
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
        let (layout, a, n) = (self.gat.layout, self.gat.a, entries.len());
        let used = layout.score_vectors(n);
        let Work { scores, slopes, lse, dots, dropped, of_target, grad, .. } = work;
        let rows = Gathered::new(self.gat.source, a.cols, entries.clone());
        let at = (a.cols, entries.clone());
        layout.gather_slots(self.score.source, at, [&mut *scores]);
        self.score.raw((a, entries.clone()), &of_target[0], scores);
        self.score.activate(&mut scores[..used], slopes);
        layout.repeat(&of_target[1], &mut lse[..used]);
        for (s, lse) in scores[..used].iter_mut().zip(&lse[..used]) {
            *s = exp_less::<M, T::Sum>(s, lse);
        }
        layout.set_after(scores, n, T::Sum::ZERO);
        gather::reduce(layout, (rows, Fetch::Yes), Times(&grad[..]), dots);
        let at = (a, entries);
        scale(&mut dots[..used], self.score.edges.dropped(layout, at, (&*scores, dropped)));
        layout.set_after(dots, n, T::Sum::ZERO);
        let (delta, rest) = sums.split_at_mut(layout.tile_vectors());
        let (sloped, shares) = rest.split_at_mut(layout.tile_vectors());
        layout.add_to_tile(&dots[..used], delta);
        scale(&mut dots[..used], slopes);
        layout.add_to_tile(&dots[..used], sloped);
        scale(&mut scores[..used], slopes);
        layout.add_to_tile(&scores[..used], shares);
    }

    #[inline(always)]
    fn finish<M: Arith>(
        &self,
        work: &mut Self::Work,
        _: usize,
        sums: Sums<'_, T::Sum>,
        out: OutRow<'_, T>,
    ) {
        let (layout, tile) = (self.gat.layout, self.gat.layout.tile_vectors());
        let (delta, rest) = sums.row.split_at_mut(tile);
        let (sloped, shares) = rest.split_at_mut(tile);
        for sum in [&mut *delta, &mut *sloped, &mut *shares] {
            layout.fold_sum(sum);
        }
        // Read as the scores of one edge.
        let Work { dots: d, own, of_target: [t, lse], grad: room, .. } = work;
        let parts = delta.iter().zip(sloped.iter()).zip(shares.iter());
        for (d, ((delta, sloped), share)) in d.iter_mut().zip(parts) {
            for l in 0..LANES {
                d[l] = M::mul_add(-share[l], delta[l], sloped[l]);
            }
        }
        let all = [&t[..], lse, delta, d];
        for (out, from) in out.stats.chunks_exact_mut(layout.slots).zip(all) {
            out.copy_from_slice(&from.as_flattened()[..layout.slots]);
        }
        gather::join_one::<M, _, _>(layout, own, (d.as_flattened(), AddRows), sums.totals);
        let [x, _] = out.features;
        if !x.is_empty() {
            room.fill([T::Sum::ZERO; LANES]);
            let p = (d.as_flattened(), AddRows);
            gather::join_one::<M, _, _>(layout, &self.score.vectors[0].row, p, room);
            layout.store(room, x);
        }
    }
}
