//! The forward pass: one look at each edge, whatever its score.
//!
//! ```text
//!   for each chunk of a row's edges:
//!       scores s, rows of values v                  the score's own
//!       m' = max(m, s);  sums ← sums · e^(m - m')   what was added was added with the old maximum
//!       sum ← sum + e^(s - m');   y ← y + dropped(e^(s - m')) · v
//!   y_i = y / sum;   lse_i = m + ln sum
//! ```
//! `lse` is all that the backward pass needs: a coefficient is `e^(s - lse)`.

use std::ops::Range;

use lacis_core::{CsrView, Threads};

use super::edges::Edges;
use super::gather::weight_at;
use super::lanes::{Lanes, Layout, Vector, add_ln, copy_tile, exp_less, greater, mul};
use super::rows::{self, Out, OutRow, Pass, PerEntry, Sizes, Sums, To, nothing};
use crate::isa::{Arith, Isa};
use crate::matrix::MatMut;
use crate::real::{Real, Stored};

/// Added to the sum of a softmax, as torch_geometric does.
pub(super) const SOFTMAX_EPSILON: f64 = 1e-16;

/// What tells one attention from another.
pub(super) trait Score<T: Stored>: Sync {
    /// What a thread needs for it, the row's own numbers included.
    type Work;
    /// Makes it.
    fn work(&self) -> Self::Work;
    /// Rows are targets, columns sources.
    fn adjacency(&self) -> CsrView<'_>;
    /// The lanes of the values.
    fn layout(&self) -> Layout;
    /// What is given per edge.
    fn edges(&self) -> &Edges<'_, T>;
    /// Reads what target `i` has.
    fn begin(&self, work: &mut Self::Work, i: usize);
    /// The scores of some entries.
    fn scores<M: Arith>(
        &self,
        work: &mut Self::Work,
        entries: Range<usize>,
        scores: &mut [Vector<T>],
    );
    /// Adds the values of the entries whose scores were asked for last, with weights `p`.
    fn add_values<M: Arith>(
        &self,
        work: &Self::Work,
        entries: Range<usize>,
        p: &[Vector<T>],
        sums: &mut [Vector<T>],
    );
    /// Does the first rows in a way of its own, up to the one that it returns.
    #[inline(always)]
    fn blocks(&self, _: &mut Self::Work, rows: Range<usize>, _: To<'_, '_, T>) -> usize {
        rows.start
    }
    /// The slopes of the scores that were asked for last, where sums with them can be kept for the
    /// backward pass.
    #[inline(always)]
    fn slopes(_: &Self::Work) -> Option<&[Vector<T>]> {
        None
    }
    /// As [`Score::add_values`] to two sums, with weights for each.
    #[inline(always)]
    fn add_both<M: Arith>(
        &self,
        work: &Self::Work,
        entries: Range<usize>,
        p: [&[Vector<T>]; 2],
        [first, second]: [&mut [Vector<T>]; 2],
    ) {
        self.add_values::<M>(work, entries.clone(), p[0], first);
        self.add_values::<M>(work, entries, p[1], second);
    }
}

/// The pass of a score, and whether it keeps sums with slopes.
struct Forward<'a, S> {
    score: &'a S,
    kept: bool,
}

/// Scratch memory of a thread.
struct Work<F, W> {
    own: W,
    scores: Vec<Lanes<F>>,
    dropped: Vec<Lanes<F>>,
    /// Weights times slopes, where sums of them are kept.
    sloped: Vec<Lanes<F>>,
    greatest: Vec<Lanes<F>>,
    factor: Vec<Lanes<F>>,
    begun: bool,
}

/// Computes `y` and `lse`, whose sizes are right. Where `lse` has more columns than heads, these
/// are `Σ_e l·p`, one per head, and `Σ_e l·p'·z_j`, as wide as `y`, with `l` the slopes.
pub(super) fn run<T: Stored, S: Score<T>>(
    isa: Isa,
    score: &S,
    (y, lse): (MatMut<'_, T>, MatMut<'_, T::Sum>),
    threads: &Threads,
) {
    let a = score.adjacency();
    let kept = lse.n_cols > score.layout().heads;
    let out = Out { features: [y, nothing(a.n_rows())], stats: lse };
    rows::run(isa, &Forward { score, kept }, (out, PerEntry::none(a.cols.len())), threads);
}

/// The parts of a row's sums: the greatest score; the sum of powers and the weighted sum of values;
/// the same with slopes, or nothing.
struct Parts<'a, F> {
    greatest: &'a mut [Lanes<F>],
    plain: (&'a mut [Lanes<F>], &'a mut [Lanes<F>]),
    sloped: (&'a mut [Lanes<F>], &'a mut [Lanes<F>]),
}

#[inline(always)]
fn parts<F>(layout: Layout, sums: &mut [Lanes<F>]) -> Parts<'_, F> {
    let (tile, both) = (layout.tile_vectors(), layout.tile_vectors() + layout.vectors);
    let (greatest, rest) = sums.split_at_mut(tile);
    let (plain, sloped) = rest.split_at_mut(both);
    let at = tile.min(sloped.len());
    Parts { greatest, plain: plain.split_at_mut(tile), sloped: sloped.split_at_mut(at) }
}

/// Numbers that were added with the maximum `greatest` become those with `new`: times
/// `e^(greatest - new)`.
#[inline(always)]
fn rescale<M: Arith, F: Real>(
    layout: Layout,
    parts: &mut Parts<'_, F>,
    new: &[Lanes<F>],
    factor: &mut [Lanes<F>],
) {
    let old = &*parts.greatest;
    for ((factor, old), new) in factor.iter_mut().zip(old).zip(new) {
        *factor = exp_less::<M, F>(old, new);
        for (factor, old) in factor.iter_mut().zip(old) {
            // Nothing was added with a maximum of -∞, even where the new one is -∞ too.
            if *old == F::NEG_INFINITY {
                *factor = F::ZERO;
            }
        }
    }
    for (sum, values) in [&mut parts.plain, &mut parts.sloped] {
        for (sum, factor) in sum.iter_mut().zip(factor.iter()) {
            *sum = mul(sum, factor);
        }
        scale(layout, values, factor);
    }
}

/// `p·l`, vector by vector.
#[inline(always)]
fn times<F: Real>(out: &mut [Lanes<F>], p: &[Lanes<F>], slopes: &[Lanes<F>]) {
    for (out, (p, slope)) in out.iter_mut().zip(p.iter().zip(slopes)) {
        *out = mul(p, slope);
    }
}

/// Multiplies a row by a number per head.
#[inline(always)]
fn scale<F: Real>(layout: Layout, values: &mut [Lanes<F>], factor: &[Lanes<F>]) {
    let p = factor.as_flattened();
    // Sums that are not kept have no vectors.
    let vectors = layout.vectors.min(values.len());
    for (v, x) in values[..vectors].iter_mut().enumerate() {
        *x = mul(x, &weight_at(layout, p, v));
    }
}

impl<T: Stored, S: Score<T>> Pass<T> for Forward<'_, S> {
    type Work = Work<T::Sum, S::Work>;

    fn work(&self) -> Self::Work {
        let layout = self.score.layout();
        // The factors are read as the scores of one edge.
        let factor = layout.scores();
        Work {
            own: self.score.work(),
            scores: layout.scores(),
            dropped: layout.scores(),
            sloped: layout.scores(),
            greatest: layout.tile(),
            factor,
            begun: false,
        }
    }

    fn adjacency(&self) -> CsrView<'_> {
        self.score.adjacency()
    }

    fn sizes(&self) -> Sizes {
        let layout = self.score.layout();
        let (tile, sets) = (layout.tile_vectors(), 1 + usize::from(self.kept));
        let sums = tile + sets * (tile + layout.vectors);
        Sizes { chunk: layout.chunk(), sums, totals: 0 }
    }

    fn of_nothing(&self) -> Option<T::Sum> {
        Some(T::Sum::NEG_INFINITY)
    }

    #[inline(always)]
    fn blocks(
        &self,
        work: &mut Self::Work,
        rows: Range<usize>,
        out: To<'_, '_, T>,
        _: &mut [Vector<T>],
    ) -> usize {
        self.score.blocks(&mut work.own, rows, out)
    }

    #[inline(always)]
    fn begin<M: Arith>(&self, work: &mut Self::Work, i: usize, sums: &mut [Vector<T>]) {
        self.score.begin(&mut work.own, i);
        sums.fill([T::Sum::ZERO; 16]);
        parts(self.score.layout(), sums).greatest.fill([T::Sum::NEG_INFINITY; 16]);
        work.begun = false;
    }

    #[inline(always)]
    fn entries<M: Arith>(
        &self,
        work: &mut Self::Work,
        entries: Range<usize>,
        sums: &mut [Vector<T>],
        _: &mut PerEntry<'_, T>,
    ) {
        let (layout, n) = (self.score.layout(), entries.len());
        let used = layout.score_vectors(n);
        let Work { own, scores, dropped, sloped, greatest: new, factor, begun } = work;
        self.score.scores::<M>(own, entries.clone(), scores);
        let mut parts = parts(layout, sums);

        layout.set_after(scores, n, T::Sum::NEG_INFINITY);
        copy_tile(parts.greatest, new);
        if let [max] = &mut new[..] {
            for s in &scores[..used] {
                *max = greater(max, s);
            }
        } else {
            for group in scores[..used].chunks_exact(new.len()) {
                for (max, s) in new.iter_mut().zip(group) {
                    *max = greater(max, s);
                }
            }
        }
        layout.fold_greatest(new);
        if *begun {
            rescale::<M, T::Sum>(layout, &mut parts, new, factor);
        }
        copy_tile(new, parts.greatest);
        *begun = true;

        if let [max] = &new[..] {
            for s in &mut scores[..used] {
                *s = exp_less::<M, T::Sum>(s, max);
            }
        } else {
            for group in scores[..used].chunks_exact_mut(new.len()) {
                for (s, max) in group.iter_mut().zip(new.iter()) {
                    *s = exp_less::<M, T::Sum>(s, max);
                }
            }
        }
        layout.set_after(scores, n, T::Sum::ZERO);
        layout.add_to_tile(&scores[..used], parts.plain.0);
        let at = (self.score.adjacency(), entries.clone());
        let p = self.score.edges().dropped(layout, at, (&*scores, dropped));
        let Some(slopes) = S::slopes(own).filter(|_| self.kept) else {
            return self.score.add_values::<M>(own, entries, p, parts.plain.1);
        };
        times(&mut sloped[..used], &scores[..used], slopes);
        layout.add_to_tile(&sloped[..used], parts.sloped.0);
        if self.score.edges().dropout.is_some() {
            times(&mut sloped[..used], &p[..used], slopes);
        }
        let both = [parts.plain.1, parts.sloped.1];
        self.score.add_both::<M>(own, entries, [p, sloped], both);
    }

    #[inline(always)]
    fn merge<M: Arith>(&self, sums: &mut [Vector<T>], part: &[Vector<T>]) {
        let (layout, mut part) = (self.score.layout(), part.to_vec());
        let (mut mine, mut other) = (parts(layout, sums), parts(layout, &mut part));
        let mut new = mine.greatest.to_vec();
        for (new, other) in new.iter_mut().zip(other.greatest.iter()) {
            *new = greater(new, other);
        }
        let mut factor = layout.scores();
        rescale::<M, T::Sum>(layout, &mut mine, &new, &mut factor);
        rescale::<M, T::Sum>(layout, &mut other, &new, &mut factor);
        for (sums, more) in [(mine.plain, other.plain), (mine.sloped, other.sloped)] {
            rows::add(sums.0, more.0);
            rows::add(sums.1, more.1);
        }
        mine.greatest.copy_from_slice(&new);
    }

    #[inline(always)]
    fn finish<M: Arith>(
        &self,
        work: &mut Self::Work,
        _: usize,
        sums: Sums<'_, T::Sum>,
        out: OutRow<'_, T>,
    ) {
        let layout = self.score.layout();
        let Parts { greatest, plain: (sum, values), sloped } = parts(layout, sums.row);
        layout.fold_sum(sum);
        let epsilon = T::Sum::of(SOFTMAX_EPSILON);
        for (sum, factor) in sum.iter_mut().zip(work.factor.iter_mut()) {
            for (sum, factor) in sum.iter_mut().zip(factor) {
                *sum += epsilon;
                *factor = T::Sum::ONE / *sum;
            }
        }
        scale(layout, values, &work.factor);
        let [y, _] = out.features;
        layout.store(values, y);
        for (greatest, sum) in greatest.iter_mut().zip(sum.iter()) {
            *greatest = add_ln::<M, T::Sum>(greatest, sum);
        }
        let (lse, kept) = out.stats.split_at_mut(layout.heads);
        lse.copy_from_slice(&greatest.as_flattened()[..layout.heads]);
        if self.kept {
            let (sum, values) = sloped;
            layout.fold_sum(sum);
            scale(layout, values, &work.factor);
            let (sums, kept) = kept.split_at_mut(layout.heads);
            let shares = sum.as_flattened().iter().zip(work.factor.as_flattened());
            sums.iter_mut().zip(shares).for_each(|(kept, (sum, share))| *kept = *sum * *share);
            layout.store(values, kept);
        }
    }
}
