//! The passes of a GAT over rows of few entries, block by block; see [`super::super::blocks`].

use std::ops::Range;

use super::super::blocks::{self, Block, Ending, Scaled, Scratch, flush, goes_past, stage};
use super::super::blocks::{take, write_stats};
use super::super::forward::SOFTMAX_EPSILON;
use super::super::gather::{Tile, each_vector, heads_of, weights};
use super::super::lanes::{Lanes, Layout, Vector, exp_less, mul, mul_add, slopes};
use super::super::project::Vectors;
use super::super::rows::To;
use super::GatScore;
use super::edgewise::Edgewise;
use super::passes::{Sources, Targets};
use crate::isa::{Arith, per_isa};
use crate::matrix::Mat;
use crate::real::{Real, Stored};

/// Products of rows, from one on so many, with a vector per head.
fn project_rows<T: Stored>(
    (layout, x, vectors): (Layout, Mat<'_, T>, &Vectors<T>),
    (first, n): (usize, usize),
    out: &mut [Vector<T>],
) {
    let of = (vectors.rows(), 0);
    blocks::row_dots((layout, n, (x, first), of, out.as_flattened_mut()));
}

impl<T: Stored> GatScore<'_, T> {
    /// Whether rows of few entries are done in blocks.
    pub fn has_blocks(&self) -> bool {
        let layout = self.gat.layout;
        blocks::fits::<T>(layout) && !self.edges.are_told_apart() && self.slope >= T::Sum::ZERO
    }

    /// The forward pass over the first rows, up to the one that it returns.
    pub fn forward_blocks(
        &self,
        scratch: &mut Scratch<T>,
        rows: Range<usize>,
        (out, first): To<'_, '_, T>,
    ) -> usize {
        let (layout, mut at) = (self.gat.layout, rows.start);
        let n = self.gat.a.n_rows();
        let past = [goes_past(n, &out.features[0]), goes_past(n, &out.stats)];
        while at < rows.end {
            let Some(block) = Block::new(self.gat.a, at..rows.end, layout) else { break };
            let columns = out.stats.n_cols;
            match columns > layout.heads {
                true => self.forward_block::<2>(&block, scratch, columns),
                false => self.forward_block::<1>(&block, scratch, columns),
            }
            let staged = (&scratch.features[..], block.rows);
            flush(staged, (&mut out.features[0], at - first), past[0].as_ref());
            let staged = (&scratch.stats[..], block.rows);
            flush(staged, (&mut out.stats, at - first), past[1].as_ref());
            at += block.rows;
        }
        at
    }

    /// One block, staged; with two sums where they are kept.
    fn forward_block<const N: usize>(
        &self,
        block: &Block<'_>,
        scratch: &mut Scratch<T>,
        columns: usize,
    ) {
        let (layout, isa, slope) = (self.gat.layout, self.gat.layout.isa, self.slope);
        let used = layout.score_vectors(block.cols.len());
        let per_row = layout.score_vectors(block.rows);
        let Scratch { scores: [raw, shift, ..], per_row: [sums, sloped, lse, t], .. } = scratch;
        project_rows(self.targets(), (block.first, block.rows), t);
        let lists = [&mut raw[..], &mut shift[..], &mut lse[..]];
        let rows = self.far.then_some(self.gat.source);
        blocks::raw_scores(layout, (block, (&t[..], self.source), rows, slope, lists));
        blocks::powers(isa, (slope, [&mut raw[..used], &mut shift[..used]]));
        if N > 1 {
            blocks::sum_scores(layout, (block, [&raw[..], shift], [&mut sums[..], sloped]));
        } else {
            blocks::sum_scores(layout, (block, [&raw[..]], [&mut sums[..]]));
        }
        let epsilon = T::Sum::of(SOFTMAX_EPSILON);
        let lists = [&mut sums[..per_row], &mut lse[..per_row]];
        blocks::logarithms(isa, (epsilon, lists));
        let mut scaled = Scaled {
            layout,
            factors: sums.as_flattened(),
            features: &mut scratch.features,
            stats: &mut scratch.stats,
            columns,
        };
        let both = [&raw[..], &shift[..]];
        let p: [&[Vector<T>]; N] = std::array::from_fn(|n| both[n]);
        blocks::weigh((layout, block, self.gat.source, p, &mut scaled));
        let kept = (N > 1).then_some([&sloped[..], &sums[..]]);
        write_stats((layout, block.rows, lse, kept, (&mut scratch.stats, columns)));
    }
}

impl<T: Stored> Targets<'_, T> {
    /// The pass over all rows, from sums that were kept.
    pub fn in_blocks(
        &self,
        scratch: &mut Scratch<T>,
        rows: Range<usize>,
        (out, first): To<'_, '_, T>,
        totals: &mut [Vector<T>],
    ) -> usize {
        let (layout, lse, grad) = (self.gat.layout, self.given.lse, self.given.grad);
        let (_, x, _) = self.score.targets();
        let past = goes_past(self.gat.a.n_rows(), &out.stats);
        let kept = Mat {
            data: lse.data.get(2 * layout.heads..).unwrap_or(&[]),
            n_cols: layout.width(),
            ..lse
        };
        let [delta, d, t, _] = &mut scratch.per_row;
        let most = blocks::most_rows(layout);
        for i in rows.clone().step_by(most) {
            let n = most.min(rows.end - i);
            project_rows(self.score.targets(), (i, n), t);
            let sums = delta.as_flattened_mut();
            blocks::row_dots((layout, n, (grad, i), (self.given.y, i), sums));
            blocks::row_dots((layout, n, (grad, i), (kept, i), d.as_flattened_mut()));
            let lists = [&mut t[..], &mut delta[..], &mut d[..]];
            target_stats((layout, (i, n), lse, lists, &mut scratch.stats));
            blocks::add_rows((layout, (x, i), n, &d[..], &mut *totals));
            let staged = (&scratch.stats[..], n);
            flush(staged, (&mut out.stats, i - first), past.as_ref());
        }
        rows.end
    }
}

/// Rows, from one on so many; `lse` with what is kept; `t_h·x_ih`, `δ`, and products of gradients
/// with the sums of values, which become the gradients of `t_h·x_ih`; where all of it goes.
type TargetStats<'a, F> =
    (Layout, (usize, usize), Mat<'a, F>, [&'a mut [Lanes<F>]; 3], &'a mut [F]);

fn target_stats<F: Real>(job: TargetStats<'_, F>) {
    let layout = job.0;
    blocks::by_slots!(layout, target_rows<F>(job));
}

per_isa!(fn target_rows<[F: Real], [S]>(job: TargetStats<'_, F>) = target_body);

#[inline(always)]
fn target_body<M: Arith, F: Real, const S: usize>(
    (layout, (first, rows), lse, lists, out): TargetStats<'_, F>,
) {
    let heads = layout.heads;
    let [t, delta, d] = lists.map(|list| list.as_flattened_mut().as_chunks_mut::<S>().0);
    let out = out.as_chunks_mut::<S>().0.as_chunks_mut::<4>().0;
    for (r, out) in out.iter_mut().take(rows).enumerate() {
        let kept = lse.row(first + r);
        let (sums, of_delta) = (take::<F, S>(&kept[heads..], heads), delta[r]);
        let mut gradient = d[r];
        for s in 0..S {
            gradient[s] = M::mul_add(-sums[s], of_delta[s], gradient[s]);
        }
        d[r] = gradient;
        *out = [t[r], take::<F, S>(kept, heads), of_delta, gradient];
    }
}

impl<T: Stored> Edgewise<'_, T> {
    /// The pass over the first rows, up to the one that it returns.
    pub fn in_blocks(
        &self,
        scratch: &mut Scratch<T>,
        rows: Range<usize>,
        (out, first): To<'_, '_, T>,
        totals: &mut [Vector<T>],
    ) -> usize {
        let (layout, mut at) = (self.gat.layout, rows.start);
        let past = goes_past(self.gat.a.n_rows(), &out.stats);
        while at < rows.end {
            let Some(block) = Block::new(self.gat.a, at..rows.end, layout) else { break };
            self.block(&block, scratch);
            let d = &scratch.per_row[1][..];
            blocks::add_rows((layout, (self.gat.source, at), block.rows, d, &mut *totals));
            let staged = (&scratch.stats[..], block.rows);
            flush(staged, (&mut out.stats, at - first), past.as_ref());
            at += block.rows;
        }
        at
    }

    /// One block, staged.
    fn block(&self, block: &Block<'_>, scratch: &mut Scratch<T>) {
        let (layout, slope) = (self.gat.layout, self.score.slope);
        let (source, given) = (self.gat.source, self.given);
        let used = layout.score_vectors(block.cols.len());
        let Scratch { scores: [raw, lse, dots, sloped], per_row, stats, .. } = scratch;
        let [delta, d, t, shares] = per_row;
        project_rows(self.score.targets(), (block.first, block.rows), t);
        let rows = self.score.far.then_some(source);
        let of_nodes = [self.score.source, given.lse];
        edge_scores((layout, block, &t[..], of_nodes, rows, [&mut raw[..], &mut lse[..]]));
        let own = (given.grad, block.first, T::Sum::ONE);
        blocks::dots((layout, block, own, (source, None), &mut dots[..]));
        let lists = [&mut raw[..used], &mut dots[..used], &mut sloped[..used]];
        weigh_edges(layout.isa, (slope, &lse[..used], lists));
        blocks::sum_scores(layout, (block, [&dots[..], sloped], [&mut delta[..], d]));
        blocks::sum_scores(layout, (block, [&raw[..]], [&mut shares[..]]));
        let lists = [&t[..], &delta[..], &shares[..]];
        edge_stats((layout, (block.first, block.rows), given.lse, lists, (&mut d[..], stats)));
    }
}

/// `t` of a block's rows, what sources and targets have, rows to ask for; `raw` and `lse` of every
/// entry.
type EdgeScores<'a, T> = (
    Layout,
    &'a Block<'a>,
    &'a [Vector<T>],
    [Mat<'a, <T as Stored>::Sum>; 2],
    Option<Mat<'a, T>>,
    [&'a mut [Vector<T>]; 2],
);

fn edge_scores<T: Stored>(job: EdgeScores<'_, T>) {
    let layout = job.0;
    blocks::by_slots!(layout, edge_rows<T>(job));
}

per_isa!(fn edge_rows<[T: Stored], [S]>(job: EdgeScores<'_, T>) = edge_body);

#[allow(clippy::extra_unused_type_parameters)]
#[inline(always)]
fn edge_body<M: Arith, T: Stored, const S: usize>(
    (layout, block, t, [u, lse], gathered, lists): EdgeScores<'_, T>,
) {
    let (t, sources) = (t.as_flattened().as_chunks::<S>().0, u.data.as_chunks::<S>().0);
    let [raw, of_row] = lists.map(|list| list.as_flattened_mut().as_chunks_mut::<S>().0);
    for (r, own) in t.iter().enumerate().take(block.rows) {
        let of_target = take::<T::Sum, S>(lse.row(block.first + r), layout.heads);
        for (e, [j, coming]) in block.entries(r) {
            if let Some(x) = gathered {
                blocks::ask(x, j);
                blocks::ask_near(u, coming, S);
            }
            let Some(u) = sources.get(j as usize) else { return };
            raw[e] = blocks::sum(own, u);
            of_row[e] = of_target;
        }
    }
}

/// The LeakyReLU's slope and `lse`; `raw` becomes `l·p`, products `dy_i · z_j` are weighted with
/// `p`, and with `l·p` in the last list.
type WeighedEdges<'a, F> = (F, &'a [Lanes<F>], [&'a mut [Lanes<F>]; 3]);

per_isa!(fn weigh_edges<[F: Real], []>(job: WeighedEdges<'_, F>) = weigh_edges_body);

#[inline(always)]
fn weigh_edges_body<M: Arith, F: Real>((slope, lse, lists): WeighedEdges<'_, F>) {
    let [raw, dots, sloped] = lists;
    for (((raw, dots), out), lse) in raw.iter_mut().zip(dots).zip(sloped).zip(lse) {
        let slopes = slopes(raw, slope);
        let p = exp_less::<M, F>(&mul(raw, &slopes), lse);
        let weighted = mul(&p, dots);
        *raw = mul(&p, &slopes);
        *out = mul(&weighted, &slopes);
        *dots = weighted;
    }
}

/// Rows, from one on so many; `lse`; `t_h·x_ih`, `δ`, and sums of `l·p`; sums of products with
/// `l·p`, which become the gradients of `t_h·x_ih`, and where all of it goes.
type EdgeStats<'a, F> =
    (Layout, (usize, usize), Mat<'a, F>, [&'a [Lanes<F>]; 3], (&'a mut [Lanes<F>], &'a mut [F]));

fn edge_stats<F: Real>(job: EdgeStats<'_, F>) {
    let layout = job.0;
    blocks::by_slots!(layout, edge_stats_rows<F>(job));
}

per_isa!(fn edge_stats_rows<[F: Real], [S]>(job: EdgeStats<'_, F>) = edge_stats_body);

#[inline(always)]
fn edge_stats_body<M: Arith, F: Real, const S: usize>(
    (layout, (first, rows), lse, lists, (d, out)): EdgeStats<'_, F>,
) {
    let [t, delta, shares] = lists.map(|list| list.as_flattened().as_chunks::<S>().0);
    let d = d.as_flattened_mut().as_chunks_mut::<S>().0;
    let out = out.as_chunks_mut::<S>().0.as_chunks_mut::<4>().0;
    for (r, out) in out.iter_mut().take(rows).enumerate() {
        let (of_delta, share) = (delta[r], shares[r]);
        let mut gradient = d[r];
        for s in 0..S {
            gradient[s] = M::mul_add(-share[s], of_delta[s], gradient[s]);
        }
        d[r] = gradient;
        *out = [t[r], take::<F, S>(lse.row(first + r), layout.heads), of_delta, gradient];
    }
}

impl<T: Stored> Sources<'_, T> {
    /// The pass over the first rows, up to the one that it returns.
    pub fn in_blocks(
        &self,
        scratch: &mut Scratch<T>,
        rows: Range<usize>,
        (out, first): To<'_, '_, T>,
        totals: &mut [Vector<T>],
    ) -> usize {
        let (layout, mut at) = (self.gat.layout, rows.start);
        let in_place = self.gat.in_place;
        // Rows that were read just now are in a cache.
        let past = goes_past(self.gat.a.n_cols, &out.features[0]).filter(|_| !in_place);
        while at < rows.end {
            let Some(block) = Block::new(self.given.transpose, at..rows.end, layout) else { break };
            let own = match in_place {
                true => (out.features[0].as_mat(), at - first),
                false => (self.gat.source, at),
            };
            self.block(&block, scratch, own);
            let d = &scratch.per_row[0][..];
            blocks::add_rows((layout, own, block.rows, d, &mut *totals));
            let staged = (&scratch.features[..], block.rows);
            flush(staged, (&mut out.features[0], at - first), past.as_ref());
            at += block.rows;
        }
        at
    }

    /// One block, whose sources are rows from some row on, staged.
    fn block(&self, block: &Block<'_>, scratch: &mut Scratch<T>, (z, at): (Mat<'_, T>, usize)) {
        let (layout, slope, grad) = (self.gat.layout, self.score.slope, self.given.grad);
        let used = layout.score_vectors(block.cols.len());
        let Scratch { scores: [raw, lse, delta, dots], per_row: [sums, u, ..], .. } = scratch;
        project_rows((layout, z, &self.score.vectors[1]), (at, block.rows), u);
        let lists = [&mut raw[..], &mut lse[..], &mut delta[..]];
        let rows = self.score.far.then_some(grad);
        gather_stats((layout, block, (&u[..], self.stats), rows, lists));
        let own = (z, at, T::Sum::ONE);
        blocks::dots((layout, block, own, (grad, None), &mut dots[..]));
        let given = [&lse[..used], &delta[..used]];
        differentiate(layout.isa, (slope, given, [&mut raw[..used], &mut dots[..used]]));
        blocks::sum_scores(layout, (block, [&dots[..]], [&mut sums[..]]));
        let mut end = Spread {
            layout,
            first: block.first,
            vectors: self.score.vectors.each_ref().map(|vectors| &vectors.row[..]),
            sums: sums.as_flattened(),
            targets: self.gat.target.is_none().then_some(self.stats),
            features: &mut scratch.features,
        };
        blocks::weigh((layout, block, grad, [&raw[..]], &mut end));
    }
}

/// `u` of sources, and what targets have; rows to ask for; `raw`, `lse` and `δ` of every entry.
type Gathered<'a, T> = (
    Layout,
    &'a Block<'a>,
    (&'a [Vector<T>], Mat<'a, <T as Stored>::Sum>),
    Option<Mat<'a, T>>,
    [&'a mut [Vector<T>]; 3],
);

fn gather_stats<T: Stored>(job: Gathered<'_, T>) {
    let layout = job.0;
    blocks::by_slots!(layout, gather_rows<T>(job));
}

per_isa!(fn gather_rows<[T: Stored], [S]>(job: Gathered<'_, T>) = gather_body);

#[allow(clippy::extra_unused_type_parameters, clippy::needless_range_loop)]
#[inline(always)]
fn gather_body<M: Arith, T: Stored, const S: usize>(
    (_, block, (u, stats), grad, lists): Gathered<'_, T>,
) {
    let u = u.as_flattened().as_chunks::<S>().0;
    let targets = stats.data.as_chunks::<S>().0.as_chunks::<4>().0;
    let [raw, lse, delta] = lists.map(|list| list.as_flattened_mut().as_chunks_mut::<S>().0);
    for r in 0..block.rows {
        let own = u[r];
        for (e, [j, coming]) in block.entries(r) {
            if let Some(grad) = grad {
                blocks::ask(grad, j);
                blocks::ask_near(stats, coming, 3 * S);
            }
            let Some([t, of_lse, of_delta, _]) = targets.get(j as usize) else { return };
            raw[e] = blocks::sum(&own, t);
            (lse[e], delta[e]) = (*of_lse, *of_delta);
        }
    }
}

/// `raw` to `p`, and products `dy_i · z_j` to gradients of `raw`, from `lse` and `δ`.
type Differentiated<'a, F> = (F, [&'a [Lanes<F>]; 2], [&'a mut [Lanes<F>]; 2]);

per_isa!(fn differentiate<[F: Real], []>(job: Differentiated<'_, F>) = differentiate_body);

#[inline(always)]
fn differentiate_body<M: Arith, F: Real>(
    (slope, [lse, delta], [raw, dots]): Differentiated<'_, F>,
) {
    let given = lse.iter().zip(delta);
    for ((raw, dots), (lse, delta)) in raw.iter_mut().zip(dots).zip(given) {
        blocks::to_gradient::<M, F>(slope, [lse, delta], [raw, dots]);
    }
}

/// Sums become gradients of sources: what scores give is added, and all is staged.
struct Spread<'a, T: Stored> {
    layout: Layout,
    first: usize,
    /// Those of targets, those of sources.
    vectors: [&'a [Vector<T>]; 2],
    /// Gradients of `u_h·z_jh`.
    sums: &'a [T::Sum],
    /// The gradients of `t_h·x_jh` are the last numbers of these, where sources are targets.
    targets: Option<Mat<'a, T::Sum>>,
    features: &'a mut [T],
}

impl<T: Stored> Ending<T, 1> for Spread<'_, T> {
    #[allow(clippy::needless_range_loop)]
    #[inline(always)]
    fn end<M: Arith, const K: usize, const V: usize>(
        &mut self,
        r: usize,
        tile: Tile,
        [sums]: &[[Vector<T>; V]; 1],
    ) {
        let (slots, heads) = (self.layout.slots, heads_of::<K, V>());
        let [t, u] = self.vectors.map(|vectors| &vectors[tile.vector..][..V]);
        let from = r * slots + tile.head;
        let Some(d) = self.sums.get(from..from + heads) else { return };
        let mut all = *sums;
        each_vector!(V, v => {
            all[v] = mul_add::<M, _>(&weights::<T::Sum, K>(d, v), &u[v], &all[v]);
        });
        if let Some(targets) = self.targets {
            let d = &targets.row(self.first + r)[3 * slots..][tile.head..];
            let Some(d) = d.get(..heads) else { return };
            each_vector!(V, v => {
                all[v] = mul_add::<M, _>(&weights::<T::Sum, K>(d, v), &t[v], &all[v]);
            });
        }
        stage::<T, V>(&all, self.features, r * self.layout.width() + tile.col);
    }
}
