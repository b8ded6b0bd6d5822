//! Short rows, many at a time.
//!
//! Around a loop over five edges there is more to do than in it. Rows that follow one another are
//! therefore a block, and each step is done for all of it before the next:
//! ```text
//!   raw scores, entry after entry │ their powers, whole vectors across rows │ sums per row │
//!   weighted sums of gathered rows, each row's in registers
//! ```
//! A step is a loop compiled by itself, for so many slots (`S`) or for a shape of rows (`K`, `V`).
//! Scores lie as in [`super::lanes`]; a number per row and head likewise, row after row. Results
//! are staged, so that the last vector of a row may run on into the next, which is written later.

mod endings;
mod tiles;

use std::ops::Range;

use lacis_core::CsrView;

use super::lanes::{
    LANES, Lanes, Layout, Names, Vector, add_ln, exp_less, has_shapes, mul, slopes,
};
use crate::isa::{Arith, per_isa};
use crate::matrix::{Mat, MatMut};
use crate::mem::{L1, L2, Past, copy_past, fetch_lines};
use crate::real::{Real, Stored};
pub(super) use endings::{Scaled, Times, goes_past, take, write_stats};
pub(super) use tiles::{Ending, add_rows, dots, row_dots, stage, weigh};

/// Rows of a block, at most.
const ROWS: usize = 64;
/// Numbers of a block's results, so that they stay in a near cache until they are complete.
const NUMBERS: usize = 1 << 14;
/// Numbers of a row from which it has work enough by itself.
const WIDE: usize = 1 << 10;
/// Scores of a block, at most: some lists of them stay in the nearest cache.
const SCORES: usize = 2048;

/// Rows of a block of this layout, at most.
pub(super) fn most_rows(layout: Layout) -> usize {
    (NUMBERS / layout.width().max(1)).min(ROWS)
}

/// Rows that follow one another, of few entries.
pub(super) struct Block<'a> {
    pub first: usize,
    pub rows: usize,
    /// The columns of its entries.
    pub cols: &'a [u32],
    /// Those of entries that come later: many, and a few.
    coming: &'a [u32],
    near: &'a [u32],
    ends: [u32; ROWS + 1],
}

impl<'a> Block<'a> {
    /// As many of the first of `rows` as make a block; none where the first is too long for one.
    pub fn new(a: CsrView<'a>, rows: Range<usize>, layout: Layout) -> Option<Self> {
        let (first, start) = (rows.start, a.row_ptr.at(rows.start));
        let (mut ends, mut n) = ([0; ROWS + 1], 0);
        for i in rows.take(most_rows(layout)) {
            let end = a.row_ptr.at(i + 1) - start;
            if end * layout.slots > SCORES {
                break;
            }
            n += 1;
            ends[n] = end as u32;
        }
        let end = start + ends[n] as usize;
        let Names { own: cols, far: coming, near } = Names::new(a.cols, start..end);
        (n > 0).then_some(Block { first, rows: n, cols, coming, near, ends })
    }

    /// The entries of row `r`, counted from the first of the block.
    #[inline(always)]
    pub fn row(&self, r: usize) -> Range<usize> {
        self.ends[r] as usize..self.ends[r + 1] as usize
    }

    /// The columns of some of its entries.
    #[inline(always)]
    fn names(&self, span: &Range<usize>) -> Names<'a> {
        let Range { start, end } = *span;
        let of = |list: &'a [u32]| &list[start..end];
        Names { own: of(self.cols), far: of(self.coming), near: of(self.near) }
    }

    /// The entries of row `r`: their places, columns, and columns of entries that come later.
    #[inline(always)]
    pub fn entries(&self, r: usize) -> impl Iterator<Item = (usize, [u32; 2])> {
        let span = self.row(r);
        let names = self.cols[span.clone()].iter().zip(&self.coming[span.clone()]);
        span.zip(names.map(|(own, coming)| [*own, *coming]))
    }
}

/// What blocks of a thread are computed in.
pub(super) struct Scratch<T: Stored> {
    /// Lists of a number per entry and head.
    pub scores: [Vec<Vector<T>>; 4],
    /// Lists of a number per row and head.
    pub per_row: [Vec<Vector<T>>; 4],
    /// Results.
    pub features: Vec<T>,
    pub stats: Vec<T::Sum>,
}

impl<T: Stored> Scratch<T> {
    /// For results of so many columns.
    pub fn new(layout: Layout, features: usize, stats: usize) -> Self {
        // What is read as the scores of an entry may be those of the next ones.
        let list = |n: usize| vec![[T::Sum::ZERO; LANES]; n / LANES + 4];
        let rows = most_rows(layout);
        Scratch {
            scores: std::array::from_fn(|_| list(SCORES)),
            per_row: std::array::from_fn(|_| list(rows * layout.slots)),
            features: vec![T::narrow(T::Sum::ZERO); rows * features + 4 * LANES],
            stats: vec![T::Sum::ZERO; rows * stats + 4 * LANES],
        }
    }
}

/// Writes the staged rows of a block, the first of which is row `at` of `out`.
pub(super) fn flush<T: Stored>(
    (stage, rows): (&[T], usize),
    (out, at): (&mut MatMut<'_, T>, usize),
    past: Option<&Past>,
) {
    let width = out.n_cols;
    if width == 0 {
        return;
    }
    if out.stride == width {
        let (from, to) = (&stage[..rows * width], &mut out.data[at * width..][..rows * width]);
        match past {
            Some(past) => copy_past(past, from, to),
            None => to.copy_from_slice(from),
        }
        return;
    }
    for (r, row) in stage.chunks_exact(width).take(rows).enumerate() {
        out.row_mut(at + r).copy_from_slice(row);
    }
}

/// Calls a loop compiled for the layout's slots.
macro_rules! by_slots {
    ($layout:expr, $name:ident<$G:ty $(, $N:ident)?>($job:expr)) => {{
        let (isa, job) = ($layout.isa, $job);
        match $layout.slots {
            1 => $name::<$G, 1 $(, $N)?>(isa, job),
            2 => $name::<$G, 2 $(, $N)?>(isa, job),
            4 => $name::<$G, 4 $(, $N)?>(isa, job),
            _ => $name::<$G, 8 $(, $N)?>(isa, job),
        }
    }};
}
pub(super) use by_slots;

/// Whether blocks do for a layout.
pub(super) fn fits<T: Stored>(layout: Layout) -> bool {
    has_shapes::<T>() && layout.slots <= 8 && layout.width() < WIDE
}

/// Whether edges name rows of so many bytes that no core has in its own cache: there are too many
/// of them, and of entries some way apart, a part name rows that are far from each other.
pub(super) fn is_far(a: CsrView<'_>, bytes: usize) -> bool {
    /// Bytes of rows that such a cache holds beside everything else.
    const NEAR: usize = 1 << 19;
    const SAMPLES: usize = 128;
    const APART: usize = 251;
    let (cols, reach) = (a.cols, NEAR / bytes.max(1));
    if a.n_cols <= reach || cols.len() <= APART {
        return a.n_cols > reach;
    }
    let at = |s: usize| s * (cols.len() - APART) / SAMPLES;
    let apart = |s: &usize| cols[at(*s)].abs_diff(cols[at(*s) + APART]) as usize > reach;
    (0..SAMPLES).filter(apart).count() > SAMPLES / 8
}

/// Asks for a row that is read in a step to come.
#[inline(always)]
pub(super) fn ask<T: Stored>(x: Mat<'_, T>, j: u32) {
    let start = j as usize * x.stride;
    fetch_lines::<T, L2>(x.data, start, x.n_cols);
    // Where rows do not begin with a line, they may end in one more.
    fetch_lines::<T, L2>(x.data, start + x.n_cols - 1, 1);
}

/// Asks for the first `n` numbers of a row that is read in this step, some entries later.
#[inline(always)]
pub(super) fn ask_near<F: Stored>(x: Mat<'_, F>, coming: u32, n: usize) {
    fetch_lines::<F, L1>(x.data, coming as usize * x.stride, n);
}

// What is computed is complete before it is written: else the compiler, which must assume that a
// list may be another one, makes no vectors of it.

/// `a + b`.
#[inline(always)]
pub(super) fn sum<F: Real, const S: usize>(a: &[F; S], b: &[F; S]) -> [F; S] {
    let mut sum = *a;
    for s in 0..S {
        sum[s] += b[s];
    }
    sum
}

/// The greater of each that is a number.
#[inline(always)]
fn greatest_of<F: Real, const S: usize>(a: &[F; S], b: &[F; S]) -> [F; S] {
    let mut max = *a;
    for s in 0..S {
        max[s] = if b[s] > max[s] { b[s] } else { max[s] };
    }
    max
}

/// The greatest score, of the greatest `raw`; -∞ where there is none.
#[allow(clippy::needless_range_loop)]
#[inline(always)]
fn leaky_max<F: Real, const S: usize>(raw: &[F; S], slope: F) -> [F; S] {
    let mut max = *raw;
    for s in 0..S {
        let below = if max[s] > F::NEG_INFINITY { max[s] * slope } else { max[s] };
        max[s] = if max[s] > F::ZERO { max[s] } else { below };
    }
    max
}

/// A block, what its rows and what sources have, rows to ask for, the LeakyReLU's slope; scores,
/// the greatest of their row for each, and that per row.
type Raw<'a, T> = (
    &'a Block<'a>,
    (&'a [Vector<T>], Mat<'a, <T as Stored>::Sum>),
    Option<Mat<'a, T>>,
    <T as Stored>::Sum,
    [&'a mut [Vector<T>]; 3],
);

/// `raw = t_i + u_j` of every entry, and the greatest `leaky(raw)` of its row.
#[inline(always)]
pub(super) fn raw_scores<T: Stored>(layout: Layout, job: Raw<'_, T>) {
    by_slots!(layout, raw_rows<T>(job));
}

per_isa!(fn raw_rows<[T: Stored], [S]>(job: Raw<'_, T>) = raw_body);

#[allow(clippy::extra_unused_type_parameters)]
#[inline(always)]
fn raw_body<M: Arith, T: Stored, const S: usize>(
    (block, (t, u), gathered, slope, lists): Raw<'_, T>,
) {
    let (t, sources) = (t.as_flattened().as_chunks::<S>().0, u.data.as_chunks::<S>().0);
    let [raw, shift, greatest] = lists.map(|list| list.as_flattened_mut().as_chunks_mut::<S>().0);
    for r in 0..block.rows {
        let (own, span) = (t[r], block.row(r));
        let mut max = [T::Sum::NEG_INFINITY; S];
        let names = block.cols[span.clone()].iter().zip(&block.coming[span.clone()]);
        for (raw, (&j, &coming)) in raw[span.clone()].iter_mut().zip(names) {
            if let Some(x) = gathered {
                ask(x, j);
                ask_near(u, coming, S);
            }
            let Some(u) = sources.get(j as usize) else { return };
            let scores = sum(&own, u);
            max = greatest_of(&max, &scores);
            *raw = scores;
        }
        let max = leaky_max(&max, slope);
        greatest[r] = max;
        shift[span].fill(max);
    }
}

/// The greatest of each row's scores for each entry, and per row.
type Greatest<'a, F> = (&'a Block<'a>, &'a [Lanes<F>], [&'a mut [Lanes<F>]; 2]);

/// The greatest score of every row: under each of its scores, and once.
#[inline(always)]
pub(super) fn greatest<F: Real>(layout: Layout, job: Greatest<'_, F>) {
    by_slots!(layout, greatest_rows<F>(job));
}

per_isa!(fn greatest_rows<[F: Real], [S]>(job: Greatest<'_, F>) = greatest_body);

#[allow(clippy::extra_unused_type_parameters)]
#[inline(always)]
fn greatest_body<M: Arith, F: Real, const S: usize>(
    (block, scores, [under, greatest]): Greatest<'_, F>,
) {
    let scores = scores.as_flattened().as_chunks::<S>().0;
    let [under, greatest] =
        [under, greatest].map(|list| list.as_flattened_mut().as_chunks_mut::<S>().0);
    for (r, greatest) in greatest.iter_mut().take(block.rows).enumerate() {
        let span = block.row(r);
        let mut max = [F::NEG_INFINITY; S];
        for scores in &scores[span.clone()] {
            max = greatest_of(&max, scores);
        }
        *greatest = max;
        under[span].fill(max);
    }
}

/// Scores, which become powers, and what is subtracted from them.
type Exponents<'a, F> = [&'a mut [Lanes<F>]; 2];

per_isa!(pub(super) fn exponentials<[F: Real], []>(job: Exponents<'_, F>) = exponentials_body);

#[inline(always)]
fn exponentials_body<M: Arith, F: Real>([scores, less]: Exponents<'_, F>) {
    for (scores, less) in scores.iter_mut().zip(less) {
        *scores = exp_less::<M, F>(scores, less);
    }
}

/// From `raw` and what is subtracted from its leaky form to powers, and powers times slopes.
type Powers<'a, F> = (F, [&'a mut [Lanes<F>]; 2]);

per_isa!(pub(super) fn powers<[F: Real], []>(job: Powers<'_, F>) = powers_body);

#[inline(always)]
fn powers_body<M: Arith, F: Real>((slope, [raw, shift]): Powers<'_, F>) {
    for (raw, shift) in raw.iter_mut().zip(shift) {
        let sloped = slopes(raw, slope);
        let p = exp_less::<M, F>(&mul(raw, &sloped), shift);
        *raw = p;
        *shift = mul(&p, &sloped);
    }
}

/// Numbers of a block's entries, and where the sums of each row go.
type PerRow<'a, F, const N: usize> = (&'a Block<'a>, [&'a [Lanes<F>]; N], [&'a mut [Lanes<F>]; N]);

/// Sums over each row's entries, of one or two lists.
#[inline(always)]
pub(super) fn sum_scores<F: Real, const N: usize>(layout: Layout, job: PerRow<'_, F, N>) {
    by_slots!(layout, sum_rows < F, N > (job));
}

per_isa!(fn sum_rows<[F: Real], [S, N]>(job: PerRow<'_, F, N>) = sum_body);

// Several lists have an element per row.
#[allow(clippy::extra_unused_type_parameters, clippy::needless_range_loop)]
#[inline(always)]
fn sum_body<M: Arith, F: Real, const S: usize, const N: usize>(
    (block, lists, sums): PerRow<'_, F, N>,
) {
    let lists = lists.map(|list| list.as_flattened().as_chunks::<S>().0);
    let sums = sums.map(|sums| sums.as_flattened_mut().as_chunks_mut::<S>().0);
    for r in 0..block.rows {
        let span = block.row(r);
        let mut totals = [[F::ZERO; S]; N];
        let both = lists[0][span.clone()].iter().zip(&lists[N - 1][span]);
        for (first, last) in both {
            totals[0] = sum(&totals[0], first);
            if N > 1 {
                totals[N - 1] = sum(&totals[N - 1], last);
            }
        }
        for n in 0..N {
            sums[n][r] = totals[n];
        }
    }
}

/// What is added to a softmax's sum; then sums, which become what results are multiplied by, and
/// the greatest scores, which become logarithms of sums.
type Logs<'a, F> = (F, [&'a mut [Lanes<F>]; 2]);

per_isa!(pub(super) fn logarithms<[F: Real], []>(job: Logs<'_, F>) = logarithms_body);

#[inline(always)]
fn logarithms_body<M: Arith, F: Real>((epsilon, [sums, greatest]): Logs<'_, F>) {
    for (sums, greatest) in sums.iter_mut().zip(greatest) {
        let (mut sum, mut share) = (*sums, *sums);
        for l in 0..LANES {
            sum[l] += epsilon;
            share[l] = F::ONE / sum[l];
        }
        *greatest = add_ln::<M, F>(greatest, &sum);
        *sums = share;
    }
}

/// From `raw`, its `lse` and `δ`, and the product `dy_i · z_j`, to `p` and the gradient of `raw`.
#[inline(always)]
pub(super) fn to_gradient<M: Arith, F: Real>(
    slope: F,
    [lse, delta]: [&Lanes<F>; 2],
    [raw, dots]: [&mut Lanes<F>; 2],
) {
    let sloped = slopes(raw, slope);
    let p = exp_less::<M, F>(&mul(raw, &sloped), lse);
    let mut gradient = *dots;
    for l in 0..LANES {
        gradient[l] = p[l] * (gradient[l] - delta[l]) * sloped[l];
    }
    *dots = gradient;
    *raw = p;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn staged_rows_arrive_past_the_caches_or_not() {
        let stage: Vec<f32> = (0..400).map(|at| at as f32 + 1.0).collect();
        for (width, stride, at) in [(10, 10, 3), (41, 41, 0), (32, 32, 1), (5, 8, 2)] {
            let plain = written((width, stride, at), &stage, None);
            let past = Past::begin();
            assert_eq!(plain, written((width, stride, at), &stage, Some(&past)));
            let row = |r: usize| &plain[(at + r) * stride..][..width];
            assert!((0..6).all(|r| row(r) == &stage[r * width..][..width]), "{width}");
            let others: f32 = stage[..6 * width].iter().sum();
            assert_eq!(plain.iter().sum::<f32>(), others, "{width}");
        }
    }

    /// Zeros, and six rows in them.
    fn written(
        (width, stride, at): (usize, usize, usize),
        stage: &[f32],
        past: Option<&Past>,
    ) -> Vec<f32> {
        let mut data = vec![0.0; 12 * stride];
        let mut out = MatMut::new(&mut data, 12, width, stride).expect("sizes fit");
        flush((stage, 6), (&mut out, at), past);
        data
    }
}
