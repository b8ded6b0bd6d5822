//! The passes over rows of few entries, block by block; see [`super::super::blocks`].

use std::ops::Range;

use super::super::blocks::write_stats;
use super::super::blocks::{self, Block, Scaled, Scratch, Times, flush, goes_past, take};
use super::super::forward::SOFTMAX_EPSILON;
use super::super::lanes::{LANES, Lanes, Layout, Vector, exp_less, mul};
use super::super::rows::To;
use super::DotAttention;
use super::passes::{Ends, Sources, Targets};
use crate::isa::{Arith, per_isa};
use crate::matrix::Mat;
use crate::real::{Real, Stored};

impl<T: Stored> DotAttention<'_, T> {
    /// Whether rows of few entries are done in blocks.
    pub(super) fn has_blocks(&self) -> bool {
        self.layouts.into_iter().all(blocks::fits::<T>) && !self.edges.are_told_apart()
    }

    /// What blocks are computed in, for so many numbers beside results.
    pub(super) fn scratch(&self, stats: usize) -> Scratch<T> {
        let [keys, values] = self.layouts.map(Layout::width);
        Scratch::new(self.narrow(), keys + values + LANES, stats)
    }

    /// The layout of which a block has the fewest rows.
    fn narrow(&self) -> Layout {
        let [keys, values] = self.layouts;
        if keys.width() > values.width() { keys } else { values }
    }

    /// Whether rows that edges name have to be asked for.
    pub(super) fn is_far(&self) -> bool {
        let [keys, values] = self.layouts.map(Layout::width);
        blocks::is_far(self.a, (keys + values) * size_of::<T>())
    }
}

impl<T: Stored> Ends<'_, T> {
    /// The forward pass over the first rows, up to the one that it returns.
    pub fn forward_blocks(
        &self,
        scratch: &mut Scratch<T>,
        rows: Range<usize>,
        (out, first): To<'_, '_, T>,
    ) -> usize {
        let (dot, mut at) = (self.dot, rows.start);
        let past = goes_past(dot.a.n_rows(), &out.features[0]);
        while at < rows.end {
            let Some(block) = Block::new(dot.a, at..rows.end, dot.narrow()) else { break };
            self.forward_block(&block, scratch);
            let staged = (&scratch.features[..], block.rows);
            flush(staged, (&mut out.features[0], at - first), past.as_ref());
            let staged = (&scratch.stats[..], block.rows);
            flush(staged, (&mut out.stats, at - first), None);
            at += block.rows;
        }
        at
    }

    /// The scores of a block.
    fn scores(&self, block: &Block<'_>, scores: &mut [Vector<T>]) {
        let (dot, scale) = (self.dot, T::Sum::of(self.dot.scale));
        let own = (dot.queries, block.first, scale);
        let asked = self.far.then_some([self.keys, self.values]);
        blocks::dots((dot.layouts[0], block, own, (self.keys, asked), scores));
    }

    /// One block, staged.
    fn forward_block(&self, block: &Block<'_>, scratch: &mut Scratch<T>) {
        let layout = self.dot.layouts[1];
        let used = layout.score_vectors(block.cols.len());
        let per_row = layout.score_vectors(block.rows);
        let Scratch { scores: [scores, under, ..], per_row: [sums, lse, ..], .. } = scratch;
        self.scores(block, scores);
        blocks::greatest(layout, (block, &scores[..], [&mut under[..], &mut lse[..]]));
        blocks::exponentials(layout.isa, [&mut scores[..used], &mut under[..used]]);
        blocks::sum_scores(layout, (block, [&scores[..]], [&mut sums[..]]));
        let epsilon = T::Sum::of(SOFTMAX_EPSILON);
        blocks::logarithms(layout.isa, (epsilon, [&mut sums[..per_row], &mut lse[..per_row]]));
        let mut scaled = Scaled {
            layout,
            factors: sums.as_flattened(),
            features: &mut scratch.features,
            stats: &mut [],
            columns: 0,
        };
        blocks::weigh((layout, block, self.values, [&scores[..]], &mut scaled));
        write_stats((layout, block.rows, lse, None, (&mut scratch.stats, layout.heads)));
    }
}

impl<T: Stored> Targets<'_, T> {
    /// The pass over the first rows, up to the one that it returns.
    pub fn in_blocks(
        &self,
        scratch: &mut Scratch<T>,
        rows: Range<usize>,
        (out, first): To<'_, '_, T>,
    ) -> usize {
        let (dot, mut at) = (self.ends.dot, rows.start);
        let past = goes_past(dot.a.n_rows(), &out.features[0]);
        while at < rows.end {
            let Some(block) = Block::new(dot.a, at..rows.end, dot.narrow()) else { break };
            self.block(&block, scratch);
            let staged = (&scratch.features[..], block.rows);
            flush(staged, (&mut out.features[0], at - first), past.as_ref());
            let staged = (&scratch.stats[..], block.rows);
            flush(staged, (&mut out.stats, at - first), None);
            at += block.rows;
        }
        at
    }

    /// One block, staged.
    fn block(&self, block: &Block<'_>, scratch: &mut Scratch<T>) {
        let (ends, [keys, values]) = (self.ends, self.ends.dot.layouts);
        let used = values.score_vectors(block.cols.len());
        let Scratch { scores: [p, dots, lse, ..], stats, .. } = scratch;
        ends.scores(block, p);
        let own = (self.given.grad, block.first, T::Sum::ONE);
        blocks::dots((values, block, own, (ends.values, None), &mut dots[..]));
        repeat_lse((values, block, self.given.lse, &mut lse[..]));
        weigh_dots(values.isa, (&lse[..used], [&mut p[..used], &mut dots[..used]]));
        less_delta((values, block, self.given.lse, (&p[..], &mut dots[..]), stats));
        let by = T::Sum::of(ends.dot.scale);
        let mut times = Times { layout: keys, by, features: &mut scratch.features };
        blocks::weigh((keys, block, ends.keys, [&dots[..]], &mut times));
    }
}

/// A number per row and head, and where it goes for every entry.
type Repeated<'a, F> = (Layout, &'a Block<'a>, Mat<'a, F>, &'a mut [Lanes<F>]);

fn repeat_lse<F: Real>(job: Repeated<'_, F>) {
    let layout = job.0;
    blocks::by_slots!(layout, repeat_rows<F>(job));
}

per_isa!(fn repeat_rows<[F: Real], [S]>(job: Repeated<'_, F>) = repeat_body);

#[allow(clippy::extra_unused_type_parameters)]
#[inline(always)]
fn repeat_body<M: Arith, F: Real, const S: usize>((layout, block, lse, out): Repeated<'_, F>) {
    let out = out.as_flattened_mut().as_chunks_mut::<S>().0;
    for r in 0..block.rows {
        let own = take::<F, S>(lse.row(block.first + r), layout.heads);
        out[block.row(r)].fill(own);
    }
}

/// `lse`; scores, which become `p`, and products `dy_i · v_j`, which become `p·(dy_i · v_j)`.
type WeighedDots<'a, F> = (&'a [Lanes<F>], [&'a mut [Lanes<F>]; 2]);

per_isa!(fn weigh_dots<[F: Real], []>(job: WeighedDots<'_, F>) = weigh_dots_body);

#[inline(always)]
fn weigh_dots_body<M: Arith, F: Real>((lse, [scores, dots]): WeighedDots<'_, F>) {
    for ((scores, dots), lse) in scores.iter_mut().zip(dots).zip(lse) {
        let p = exp_less::<M, F>(scores, lse);
        *dots = mul(&p, dots);
        *scores = p;
    }
}

/// `lse` of rows; `p` and `p·(dy_i · v_j)`, which becomes the gradient of the scores; where `lse`
/// and `δ` of rows go.
type LessDelta<'a, F> =
    (Layout, &'a Block<'a>, Mat<'a, F>, (&'a [Lanes<F>], &'a mut [Lanes<F>]), &'a mut [F]);

fn less_delta<F: Real>(job: LessDelta<'_, F>) {
    let layout = job.0;
    blocks::by_slots!(layout, delta_rows<F>(job));
}

per_isa!(fn delta_rows<[F: Real], [S]>(job: LessDelta<'_, F>) = delta_body);

#[allow(clippy::needless_range_loop)]
#[inline(always)]
fn delta_body<M: Arith, F: Real, const S: usize>(
    (layout, block, lse, (p, dots), out): LessDelta<'_, F>,
) {
    let (p, dots) = (p.as_flattened().as_chunks::<S>().0, dots.as_flattened_mut());
    let dots = dots.as_chunks_mut::<S>().0;
    let out = out.as_chunks_mut::<S>().0.as_chunks_mut::<2>().0;
    for (r, out) in out.iter_mut().take(block.rows).enumerate() {
        let span = block.row(r);
        let mut delta = [F::ZERO; S];
        for dots in &dots[span.clone()] {
            delta = blocks::sum(&delta, dots);
        }
        for (dots, p) in dots[span.clone()].iter_mut().zip(&p[span]) {
            let mut less = *dots;
            for s in 0..S {
                less[s] = M::mul_add(-p[s], delta[s], less[s]);
            }
            *dots = less;
        }
        *out = [take::<F, S>(lse.row(block.first + r), layout.heads), delta];
    }
}

impl<T: Stored> Sources<'_, T> {
    /// The pass over the first rows, up to the one that it returns.
    pub fn in_blocks(
        &self,
        scratch: &mut Scratch<T>,
        rows: Range<usize>,
        (out, first): To<'_, '_, T>,
    ) -> usize {
        let (dot, mut at) = (self.dot, rows.start);
        let (width, far) = (dot.layouts[0].width(), dot.is_far());
        while at < rows.end {
            let block = Block::new(self.given.transpose, at..rows.end, dot.narrow());
            let Some(block) = block else { break };
            let ends = &mut out.features[0];
            self.block(&block, (ends.as_mat(), at - first, far), scratch);
            let (keys, values) = scratch.features.split_at(block.rows * width + 4 * LANES);
            for r in 0..block.rows {
                let (dk, dv) = ends.row_mut(at - first + r).split_at_mut(width);
                dk.copy_from_slice(&keys[r * width..][..dk.len()]);
                dv.copy_from_slice(&values[r * dv.len()..][..dv.len()]);
            }
            at += block.rows;
        }
        at
    }

    /// One block, gradients of keys staged before those of values.
    fn block(
        &self,
        block: &Block<'_>,
        (ends, at, far): (Mat<'_, T>, usize, bool),
        scratch: &mut Scratch<T>,
    ) {
        let (dot, grad, [keys, values]) = (self.dot, self.given.grad, self.dot.layouts);
        let (used, scale) = (values.score_vectors(block.cols.len()), T::Sum::of(dot.scale));
        let Scratch { scores: [p, lse, delta, dots], .. } = scratch;
        let asked = far.then_some([dot.queries, grad]);
        gather_stats((values, block, self.stats, asked, [&mut lse[..], &mut delta[..]]));
        let own = (Mat { n_cols: keys.width(), ..ends }, at, scale);
        blocks::dots((keys, block, own, (dot.queries, None), &mut p[..]));
        let data = &ends.data[keys.width().min(ends.data.len())..];
        let own = (Mat { data, n_cols: values.width(), ..ends }, at, T::Sum::ONE);
        blocks::dots((values, block, own, (grad, None), &mut dots[..]));
        let given = [&lse[..used], &delta[..used]];
        differentiate(values.isa, (given, [&mut p[..used], &mut dots[..used]]));
        let staged = scratch.features.split_at_mut(block.rows * keys.width() + 4 * LANES);
        let mut times = Times { layout: keys, by: scale, features: staged.0 };
        blocks::weigh((keys, block, dot.queries, [&dots[..]], &mut times));
        let mut times = Times { layout: values, by: T::Sum::ONE, features: staged.1 };
        blocks::weigh((values, block, grad, [&p[..]], &mut times));
    }
}

/// What targets have; rows to ask for; `lse` and `δ` of every entry.
type Gathered<'a, T> = (
    Layout,
    &'a Block<'a>,
    Mat<'a, <T as Stored>::Sum>,
    Option<[Mat<'a, T>; 2]>,
    [&'a mut [Vector<T>]; 2],
);

fn gather_stats<T: Stored>(job: Gathered<'_, T>) {
    let layout = job.0;
    blocks::by_slots!(layout, gather_rows<T>(job));
}

per_isa!(fn gather_rows<[T: Stored], [S]>(job: Gathered<'_, T>) = gather_body);

#[allow(clippy::extra_unused_type_parameters)]
#[inline(always)]
fn gather_body<M: Arith, T: Stored, const S: usize>(
    (_, block, stats, asked, lists): Gathered<'_, T>,
) {
    let targets = stats.data.as_chunks::<S>().0.as_chunks::<2>().0;
    let [lse, delta] = lists.map(|list| list.as_flattened_mut().as_chunks_mut::<S>().0);
    for r in 0..block.rows {
        for (e, [i, coming]) in block.entries(r) {
            if let Some([queries, grad]) = asked {
                blocks::ask(queries, i);
                blocks::ask(grad, i);
                blocks::ask_near(stats, coming, 2 * S);
            }
            let Some([of_lse, of_delta]) = targets.get(i as usize) else { return };
            (lse[e], delta[e]) = (*of_lse, *of_delta);
        }
    }
}

/// `lse` and `δ`; scores, which become `p`, and products `dy_i · v_j`, which become gradients of
/// scores.
type Differentiated<'a, F> = ([&'a [Lanes<F>]; 2], [&'a mut [Lanes<F>]; 2]);

per_isa!(fn differentiate<[F: Real], []>(job: Differentiated<'_, F>) = differentiate_body);

#[inline(always)]
fn differentiate_body<M: Arith, F: Real>(([lse, delta], [scores, dots]): Differentiated<'_, F>) {
    let given = lse.iter().zip(delta);
    for ((scores, dots), (lse, delta)) in scores.iter_mut().zip(dots).zip(given) {
        let p = exp_less::<M, F>(scores, lse);
        let mut gradient = *dots;
        for l in 0..LANES {
            gradient[l] = p[l] * (gradient[l] - delta[l]);
        }
        *dots = gradient;
        *scores = p;
    }
}
