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
use super::lanes::{Lanes, Layout, Vector, exp_less, greater, mul};
use super::rows::{self, Out, OutRow, Pass, PerEntry, Sizes, Sums, nothing};
use crate::isa::{Arith, Isa};
use crate::matrix::MatMut;
use crate::real::{Real, Stored};

/// Added to the sum of a softmax, as torch_geometric does.
const SOFTMAX_EPSILON: f64 = 1e-16;

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
}

/// The pass of a score.
struct Forward<'a, S>(&'a S);

/// Scratch memory of a thread.
struct Work<F, W> {
    own: W,
    scores: Vec<Lanes<F>>,
    dropped: Vec<Lanes<F>>,
    greatest: Vec<Lanes<F>>,
    factor: Vec<Lanes<F>>,
    begun: bool,
}

/// Computes `y` and `lse`, whose sizes are right.
pub(super) fn run<T: Stored, S: Score<T>>(
    isa: Isa,
    score: &S,
    (y, lse): (MatMut<'_, T>, MatMut<'_, T::Sum>),
    threads: &Threads,
) {
    let a = score.adjacency();
    let out = Out { features: [y, nothing(a.n_rows())], stats: lse };
    rows::run(isa, &Forward(score), (out, PerEntry::none(a.cols.len())), threads);
}

/// The parts of a row's sums: greatest score, sum of powers, weighted sum of values.
#[inline(always)]
fn parts<F>(layout: Layout, sums: &mut [Lanes<F>]) -> [&mut [Lanes<F>]; 3] {
    let (greatest, rest) = sums.split_at_mut(layout.tile_vectors());
    let (sum, values) = rest.split_at_mut(layout.tile_vectors());
    [greatest, sum, values]
}

/// Numbers that were added with the maximum `old` become those with `new`: times `e^(old - new)`.
#[inline(always)]
fn rescale<M: Arith, F: Real>(
    layout: Layout,
    (sum, values): (&mut [Lanes<F>], &mut [Lanes<F>]),
    (old, new): (&[Lanes<F>], &[Lanes<F>]),
    factor: &mut [Lanes<F>],
) {
    for ((factor, old), new) in factor.iter_mut().zip(old).zip(new) {
        *factor = exp_less::<M, F>(old, new);
        for (factor, old) in factor.iter_mut().zip(old) {
            // Nothing was added with a maximum of -∞, even where the new one is -∞ too.
            if *old == F::NEG_INFINITY {
                *factor = F::ZERO;
            }
        }
    }
    for (sum, factor) in sum.iter_mut().zip(factor.iter()) {
        *sum = mul(sum, factor);
    }
    scale(layout, values, factor);
}

/// Multiplies a row by a number per head.
#[inline(always)]
fn scale<F: Real>(layout: Layout, values: &mut [Lanes<F>], factor: &[Lanes<F>]) {
    let p = factor.as_flattened();
    for (v, x) in values.iter_mut().take(layout.vectors).enumerate() {
        *x = mul(x, &weight_at(layout, p, v));
    }
}

impl<T: Stored, S: Score<T>> Pass<T> for Forward<'_, S> {
    type Work = Work<T::Sum, S::Work>;

    fn work(&self) -> Self::Work {
        let layout = self.0.layout();
        // The factors are read as the scores of one edge.
        let factor = layout.scores();
        Work {
            own: self.0.work(),
            scores: layout.scores(),
            dropped: layout.scores(),
            greatest: layout.tile(),
            factor,
            begun: false,
        }
    }

    fn adjacency(&self) -> CsrView<'_> {
        self.0.adjacency()
    }

    fn sizes(&self) -> Sizes {
        let layout = self.0.layout();
        let sums = 2 * layout.tile_vectors() + layout.vectors;
        Sizes { chunk: layout.chunk(), sums, totals: 0 }
    }

    fn of_nothing(&self) -> Option<T::Sum> {
        Some(T::Sum::NEG_INFINITY)
    }

    #[inline(always)]
    fn begin<M: Arith>(&self, work: &mut Self::Work, i: usize, sums: &mut [Vector<T>]) {
        self.0.begin(&mut work.own, i);
        let [greatest, sum, values] = parts(self.0.layout(), sums);
        greatest.fill([T::Sum::NEG_INFINITY; 16]);
        sum.fill([T::Sum::ZERO; 16]);
        values.fill([T::Sum::ZERO; 16]);
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
        let (layout, n) = (self.0.layout(), entries.len());
        let used = layout.score_vectors(n);
        let Work { own, scores, dropped, greatest: new, factor, begun } = work;
        self.0.scores::<M>(own, entries.clone(), scores);
        let [greatest, sum, values] = parts(layout, sums);

        layout.set_after(scores, n, T::Sum::NEG_INFINITY);
        new.copy_from_slice(greatest);
        if let [max] = &mut new[..] {
            scores[..used].iter().for_each(|s| *max = greater(max, s));
        } else {
            for group in scores[..used].chunks_exact(new.len()) {
                for (max, s) in new.iter_mut().zip(group) {
                    *max = greater(max, s);
                }
            }
        }
        layout.fold_greatest(new);
        if *begun {
            rescale::<M, T::Sum>(layout, (sum, values), (greatest, new), factor);
        }
        greatest.copy_from_slice(new);
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
        layout.add_to_tile(&scores[..used], sum);
        let at = (self.0.adjacency(), entries.clone());
        let p = self.0.edges().dropped(layout, at, (&*scores, dropped));
        self.0.add_values::<M>(own, entries, p, values);
    }

    #[inline(always)]
    fn merge<M: Arith>(&self, sums: &mut [Vector<T>], part: &[Vector<T>]) {
        let (layout, mut part) = (self.0.layout(), part.to_vec());
        let [greatest, sum, values] = parts(layout, sums);
        let [other, more, more_values] = parts(layout, &mut part);
        let mut new = greatest.to_vec();
        for (new, other) in new.iter_mut().zip(other.iter()) {
            *new = greater(new, other);
        }
        let mut factor = layout.scores();
        rescale::<M, T::Sum>(layout, (sum, values), (greatest, &new), &mut factor);
        rescale::<M, T::Sum>(layout, (more, more_values), (other, &new), &mut factor);
        rows::add(sum, more);
        rows::add(values, more_values);
        greatest.copy_from_slice(&new);
    }

    #[inline(always)]
    fn finish<M: Arith>(
        &self,
        work: &mut Self::Work,
        _: usize,
        sums: Sums<'_, T::Sum>,
        out: OutRow<'_, T>,
    ) {
        let layout = self.0.layout();
        let [greatest, sum, values] = parts(layout, sums.row);
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
        let (greatest, sum) = (greatest.as_flattened(), sum.as_flattened());
        for ((lse, m), sum) in out.stats.iter_mut().zip(greatest).zip(sum) {
            *lse = *m + sum.ln();
        }
    }
}
