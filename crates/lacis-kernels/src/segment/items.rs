//! Two steps that softmax and the gradients share: two numbers for each segment and column, then
//! every item from its own numbers and those of its segment.
//!
//! ```text
//!   step 1:  (a_s, b_s) = summary { items of s }         who: one thread per slice of segments
//!   step 2:  out_i      = formula(own_i, a_s, b_s)       who: one thread per slice of items
//! ```
//! No item is written by its segment, so items need no order for threads to write apart.
//!
//! # Memory
//! Two numbers for each segment and column.

use std::ops::Range;

use lacis_core::threads::ranges;
use lacis_core::{Buffer, Threads};

use super::segments::{Members, Segments};
use crate::isa::{Arith, Isa, per_isa};
use crate::matrix::{Mat, MatMut};
use crate::mem::prefetch;
use crate::real::{Real, Stored};

/// Elements that one item of work reads.
const ITEM_ELEMENTS: usize = 1 << 17;
/// How many items ahead the numbers of a segment are asked for.
const AHEAD: usize = 12;

/// What the two steps work on.
#[derive(Clone, Copy)]
pub(super) struct Problem<'a, T> {
    pub segments: Segments<'a>,
    /// The items' own numbers.
    pub own: [Mat<'a, T>; 2],
    /// What a segment is given, where it is given something: one row for each.
    pub given: Option<Mat<'a, T>>,
}

/// Runs both steps along rows. The segments must be grouped.
pub(super) fn run<T: Stored, S: TwoSteps>(
    isa: Isa,
    (steps, problem): (S, Problem<'_, T>),
    out: MatMut<'_, T>,
    threads: &Threads,
) {
    let Some(members) = problem.segments.members() else { return };
    let (n, k) = (problem.segments.n(), out.n_cols);
    let mut sums = [Buffer::zeroed(n * k), Buffer::zeroed(n * k)];
    let slices = members.slices(ITEM_ELEMENTS / k.max(1));
    let ends: Vec<usize> = slices.iter().map(|slice| slice.end).collect();
    let [a, b] = sums.each_mut().map(|sums: &mut Buffer<T::Sum>| {
        MatMut { data: sums.make_mut(), n_rows: n, n_cols: k, stride: k }.split(&ends)
    });
    let items = slices.into_iter().zip(a.into_iter().zip(b)).collect();
    threads.for_each(items, |(segments, (a, b))| {
        let job = Summaries { steps, problem, members, segments, sums: [a, b] };
        match k {
            1 => summarise::<T, S, 1>(isa, job),
            2..=8 => summarise::<T, S, 8>(isa, job),
            _ => summarise::<T, S, 16>(isa, job),
        }
    });
    let index = &*problem.segments.index(threads);
    let of_segment =
        sums.each_ref().map(|sums| Mat { data: sums, n_rows: n, n_cols: k, stride: k });
    let slices = ranges(out.n_rows, (ITEM_ELEMENTS / k.max(1)).max(1));
    let ends: Vec<usize> = slices.iter().map(|slice| slice.end).collect();
    let items = slices.into_iter().zip(out.split(&ends)).collect();
    threads.for_each(items, |(rows, out)| {
        finish::<T, S>(isa, Finish { own: problem.own, of_segment, index, rows, out });
    });
}

/// Both steps of an operator on items with two numbers of their own, or one, given twice.
pub(super) trait TwoSteps: Copy + Sync {
    /// The two numbers of a segment, over `L` columns; `segment` gives those of its items.
    fn summary<M: Arith, F: Real, const L: usize>(
        &self,
        segment: impl Iterator<Item = [[F; L]; 2]> + Clone,
        given: [F; L],
    ) -> [[F; L]; 2];

    /// An item's result.
    fn formula<M: Arith, F: Real>(own: [F; 2], of_segment: [F; 2]) -> F;
}

struct Summaries<'a, T: Stored, S> {
    steps: S,
    problem: Problem<'a, T>,
    members: Members<'a>,
    segments: Range<usize>,
    sums: [MatMut<'a, T::Sum>; 2],
}

per_isa!(fn summarise<[T: Stored, S: TwoSteps], [L]>(job: Summaries<'_, T, S>) = summarise_body);

#[inline(always)]
fn summarise_body<M: Arith, T: Stored, S: TwoSteps, const L: usize>(job: Summaries<'_, T, S>) {
    let Summaries { steps, problem, members, segments, sums: [mut a, mut b] } = job;
    let first = segments.start;
    for s in segments {
        let places = members.of(s);
        let tiles = a.row_mut(s - first).chunks_mut(L).zip(b.row_mut(s - first).chunks_mut(L));
        for (tile, (a, b)) in tiles.enumerate() {
            let col = tile * L;
            let segment = places.clone().map(|e| {
                prefetch(
                    problem.own[0].data,
                    members.item_ahead(e + AHEAD) * problem.own[0].stride,
                );
                problem.own.map(|own| lanes::<T, L>(own, members.item(e), col))
            });
            let given =
                problem.given.map_or([T::Sum::ZERO; L], |given| lanes::<T, L>(given, s, col));
            let [sum_a, sum_b] = steps.summary::<M, T::Sum, L>(segment, given);
            a.copy_from_slice(&sum_a[..a.len()]);
            b.copy_from_slice(&sum_b[..b.len()]);
        }
    }
}

/// `L` numbers of a row from `col` on; zeros past its end.
#[inline(always)]
fn lanes<T: Stored, const L: usize>(x: Mat<'_, T>, i: usize, col: usize) -> [T::Sum; L] {
    let row = &x.row(i)[col..];
    match row.first_chunk::<L>() {
        Some(row) => row.map(T::wide),
        None => {
            let mut lanes = [T::Sum::ZERO; L];
            lanes.iter_mut().zip(row).for_each(|(lane, x)| *lane = x.wide());
            lanes
        }
    }
}

struct Finish<'a, T: Stored> {
    own: [Mat<'a, T>; 2],
    of_segment: [Mat<'a, T::Sum>; 2],
    index: &'a [u32],
    rows: Range<usize>,
    out: MatMut<'a, T>,
}

/// The second step; only the type of `S` is needed.
fn finish<T: Stored, S: TwoSteps>(isa: Isa, job: Finish<'_, T>) {
    finish_compiled::<T, S>(isa, job);
}

per_isa!(fn finish_compiled<[T: Stored, S: TwoSteps], []>(job: Finish<'_, T>) = finish_body);

#[inline(always)]
fn finish_body<M: Arith, T: Stored, S: TwoSteps>(job: Finish<'_, T>) {
    let Finish { own, of_segment: [a, b], index, rows, mut out } = job;
    let first = rows.start;
    for i in rows {
        let s = index[i] as usize;
        if let Some(&next) = index.get(i + AHEAD) {
            prefetch(a.data, next as usize * a.stride);
            prefetch(b.data, next as usize * b.stride);
        }
        let own = own[0].row(i).iter().zip(own[1].row(i));
        let of_segment = a.row(s).iter().zip(b.row(s));
        let terms = own.zip(of_segment);
        for (out, ((x, z), (&a, &b))) in out.row_mut(i - first).iter_mut().zip(terms) {
            *out = T::narrow(S::formula::<M, T::Sum>([x.wide(), z.wide()], [a, b]));
        }
    }
}
