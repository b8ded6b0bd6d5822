//! Softmax over the edges of each node, for each head alone, and its gradient.
//!
//! ```text
//!  p_e  = exp(s_e - max) / (Σ exp(s - max) + 1e-16)        over the entries of a row
//!  ds_e = p_e · (dp_e - Σ p · dp)
//! ```
//! A row's scores lie one after another, head by head within an entry. Where the number of heads
//! divides 16 they are read as vectors of 16 in which lane `l` belongs to head `l mod heads`; else
//! an entry at a time, 16 heads of it.
//!
//! # Parallelism
//! A thread does whole rows; slices of about equal numbers of entries follow from the matrix alone.
//! # Memory
//! A slice of the operands for each thread where they are not read or written in stored order, or
//! have gaps between their rows.
//! # Accuracy
//! 16 sums at a time, added by a fixed tree.

use lacis_core::error::same_size;
use lacis_core::{CsrView, Result, Threads};

use crate::edges::{EdgeOrder, Span, Task, gather, matrix_of, spans_of_rows};
use crate::isa::{Arith, Isa, per_isa};
use crate::math::exp;
use crate::matrix::{Mat, MatMut};
use crate::once::once;
use crate::real::{Real, Stored};
use crate::rows::{LANES, Lanes, wide};

/// What is added to a denominator, as torch_geometric does.
const EPSILON: f64 = 1e-16;

/// A softmax or its gradient to compute, sizes checked.
#[derive(Clone, Copy, Debug)]
pub struct Args<'a, T: Stored = f32> {
    a: CsrView<'a>,
    /// The scores; for the gradient the softmax's result.
    scores: Mat<'a, T>,
    grad: Option<Mat<'a, T>>,
    order: EdgeOrder,
}

impl<'a, T: Stored> Args<'a, T> {
    /// The softmax of scores, one row per entry and one column per head.
    ///
    /// # Errors
    /// When there is not one row per entry.
    pub fn new(a: CsrView<'a>, scores: impl Into<Mat<'a, T>>) -> Result<Self> {
        let scores = scores.into();
        same_size("edge_softmax", "rows of the scores", a.cols.len(), scores.n_rows)?;
        Ok(Args { a, scores, grad: None, order: EdgeOrder::Stored })
    }

    /// The gradient of the scores, from the softmax's result and the gradient of that.
    ///
    /// # Errors
    /// When they have not one row per entry, or differ in width.
    pub fn backward(
        a: CsrView<'a>,
        p: impl Into<Mat<'a, T>>,
        grad: impl Into<Mat<'a, T>>,
    ) -> Result<Self> {
        let (p, grad) = (p.into(), grad.into());
        let op = "edge_softmax backward";
        same_size(op, "rows of p", a.cols.len(), p.n_rows)?;
        same_size(op, "rows of the gradient", a.cols.len(), grad.n_rows)?;
        same_size(op, "columns of the gradient", p.n_cols, grad.n_cols)?;
        Ok(Args { a, scores: p, grad: Some(grad), order: EdgeOrder::Stored })
    }

    /// In which order the operands and the result have their rows.
    pub fn ordered(mut self, order: EdgeOrder) -> Self {
        self.order = order;
        self
    }
}

/// Computes the softmax, or its gradient, into `out`.
///
/// # Errors
/// When `out` has not the shape of the scores.
pub fn run<'o, T: Stored>(
    isa: Isa,
    args: &Args<'_, T>,
    out: impl Into<MatMut<'o, T>>,
    threads: &Threads,
) -> Result<()> {
    T::edge_softmax(isa, args, out.into(), threads)
}

once!(Once:
    fn edge_softmax(
        isa: Isa,
        args: &Args<'_, Self>,
        out: MatMut<'_, Self>,
        threads: &Threads,
    ) -> Result<()> = run_here;
);

fn run_here<T: Stored>(
    isa: Isa,
    args: &Args<'_, T>,
    out: MatMut<'_, T>,
    threads: &Threads,
) -> Result<()> {
    same_size("edge_softmax", "rows of the result", args.a.cols.len(), out.n_rows)?;
    let heads = args.scores.n_cols;
    same_size("edge_softmax", "columns of the result", heads, out.n_cols)?;
    let task = Task { a: args.a, order: args.order, spans: spans_of_rows(&args.a, heads) };
    let scratch = || [Vec::new(), Vec::new(), Vec::new()];
    task.run(out, threads, scratch, |[scores, grads, results], span, mut out| {
        let scores = args.rows(args.scores, span, scores);
        let grads = args.grad.map(|grad| args.rows(grad, span, grads));
        let apart = out.stride != heads;
        if apart {
            results.resize(span.entries.len() * heads, T::from_f64(0.0));
        }
        let flat = if apart { &mut results[..] } else { &mut out.data[..scores.len()] };
        match grads {
            None => forward(isa, Part { args, span, scores, grads: &[], out: flat }),
            Some(grads) => backward(isa, Part { args, span, scores, grads, out: flat }),
        }
        if apart {
            let mut results = matrix_of(results, heads);
            for r in 0..out.n_rows {
                out.row_mut(r).copy_from_slice(results.row_mut(r));
            }
        }
    });
    Ok(())
}

impl<'a, T: Stored> Args<'a, T> {
    /// The rows of a span's entries, one after another: where they lie, or a copy.
    fn rows<'b>(&self, x: Mat<'b, T>, span: &Span, copy: &'b mut Vec<T>) -> &'b [T] {
        let entries = span.entries.clone();
        if let Some(positions) = self.order.positions(&self.a) {
            gather(x, &positions[entries], copy);
            return copy;
        }
        if x.stride == x.n_cols {
            return &x.data[entries.start * x.stride..entries.end * x.stride];
        }
        copy.clear();
        entries.for_each(|e| copy.extend_from_slice(x.row(e)));
        copy
    }
}

/// Some rows of a matrix; their scores, gradients and results, one after another.
struct Part<'a, T: Stored> {
    args: &'a Args<'a, T>,
    span: &'a Span,
    scores: &'a [T],
    grads: &'a [T],
    out: &'a mut [T],
}

impl<T: Stored> Part<'_, T> {
    /// Where the numbers of row `i` lie.
    #[inline(always)]
    fn place(&self, i: usize) -> std::ops::Range<usize> {
        let (row, first) = (self.args.a.row(i), self.span.entries.start);
        let heads = self.args.scores.n_cols;
        (row.start - first) * heads..(row.end - first) * heads
    }
}

per_isa!(fn forward<[T: Stored], []>(part: Part<'_, T>) = forward_body);

#[inline(always)]
fn forward_body<M: Arith, T: Stored>(part: Part<'_, T>) {
    let heads = part.args.scores.n_cols;
    let masks = masks();
    for i in part.span.rows.clone() {
        let place = part.place(i);
        if place.is_empty() {
            continue;
        }
        let scores = Row::new(part.scores, place.clone(), &masks);
        let out = &mut part.out[place];
        if LANES.is_multiple_of(heads) {
            softmax_of_lanes::<M, T>(scores, out, heads);
        } else {
            softmax_of_heads::<M, T>(scores.numbers, out, heads);
        }
    }
}

per_isa!(fn backward<[T: Stored], []>(part: Part<'_, T>) = backward_body);

#[inline(always)]
fn backward_body<M: Arith, T: Stored>(part: Part<'_, T>) {
    let heads = part.args.scores.n_cols;
    let masks = masks();
    for i in part.span.rows.clone() {
        let place = part.place(i);
        if place.is_empty() {
            continue;
        }
        let p = Row::new(part.scores, place.clone(), &masks);
        let grads = Row::new(part.grads, place.clone(), &masks);
        let out = &mut part.out[place];
        if LANES.is_multiple_of(heads) {
            gradient_of_lanes::<M, T>([p, grads], out, heads);
        } else {
            gradient_of_heads::<M, T>([p.numbers, grads.numbers], out, heads);
        }
    }
}

/// Ones, then zeros: the 16 numbers that begin 16 - n places on keep n lanes.
#[inline(always)]
fn masks<F: Real>() -> [F; 2 * LANES] {
    let mut masks = [F::ZERO; 2 * LANES];
    masks[..LANES].fill(F::ONE);
    masks
}

/// A row's numbers, and those from its last vector on that lie behind each other in memory.
#[derive(Clone, Copy)]
struct Row<'a, T: Stored> {
    numbers: &'a [T],
    last: &'a [T],
    keep: &'a [T::Sum],
}

impl<'a, T: Stored> Row<'a, T> {
    #[inline(always)]
    fn new(all: &'a [T], place: std::ops::Range<usize>, masks: &'a [T::Sum; 2 * LANES]) -> Self {
        let count = place.len() % LANES;
        let last = &all[place.end - count..];
        Row { numbers: &all[place], last, keep: &masks[LANES - count..] }
    }

    /// Its last, unfilled vector, with `fill` behind the row's end.
    #[inline(always)]
    fn rest(&self, fill: T::Sum) -> Lanes<T::Sum> {
        let Some(chunk) = self.last.first_chunk::<LANES>() else {
            return lanes_of(&self.last[..self.numbers.len() % LANES], fill);
        };
        let (mut lanes, keep) = (wide(chunk), &self.keep[..LANES]);
        for l in 0..LANES {
            let lane = lanes[l];
            lanes[l] = if keep[l] > T::Sum::ZERO { lane } else { fill };
        }
        lanes
    }
}

/// Up to 16 numbers as a vector, `fill` behind their end.
#[inline(always)]
fn lanes_of<T: Stored>(numbers: &[T], fill: T::Sum) -> Lanes<T::Sum> {
    let mut lanes = [fill; LANES];
    lanes.iter_mut().zip(numbers).for_each(|(lane, number)| *lane = number.wide());
    lanes
}

/// As many lanes as there is room for, eight at a time where they are.
#[inline(always)]
fn store_rest<T: Stored>(lanes: &Lanes<T::Sum>, out: &mut [T]) {
    let mut narrow = [T::narrow(T::Sum::ZERO); LANES];
    for l in 0..LANES {
        narrow[l] = T::narrow(lanes[l]);
    }
    let (eights, rest) = out.as_chunks_mut::<8>();
    let done = eights.len() * 8;
    for (out, lanes) in eights.iter_mut().zip(narrow.as_chunks::<8>().0) {
        *out = *lanes;
    }
    rest.iter_mut().zip(&narrow[done..]).for_each(|(out, lane)| *out = *lane);
}

/// Joins the lanes of each head; every lane then has its head's result.
#[inline(always)]
fn joined<F: Real>(mut lanes: Lanes<F>, heads: usize, join: impl Fn(F, F) -> F + Copy) -> Lanes<F> {
    if heads <= 8 {
        lanes = step::<F, 8>(lanes, join);
    }
    if heads <= 4 {
        lanes = step::<F, 4>(lanes, join);
    }
    if heads <= 2 {
        lanes = step::<F, 2>(lanes, join);
    }
    if heads <= 1 {
        lanes = step::<F, 1>(lanes, join);
    }
    lanes
}

/// Joins each lane with that `D` places on; a constant, so that it is one shuffle.
#[inline(always)]
fn step<F: Real, const D: usize>(lanes: Lanes<F>, join: impl Fn(F, F) -> F) -> Lanes<F> {
    let mut joined = lanes;
    for l in 0..LANES {
        joined[l] = join(lanes[l], lanes[(l + D) % LANES]);
    }
    joined
}

/// Whether a result can be kept as it is until it is divided.
#[inline(always)]
fn keeps_sums<T: Stored>() -> bool {
    size_of::<T>() == size_of::<T::Sum>()
}

#[inline(always)]
fn softmax_of_lanes<M: Arith, T: Stored>(scores: Row<'_, T>, out: &mut [T], heads: usize) {
    let full = scores.numbers.as_chunks::<LANES>().0;
    let rest_lanes = scores.rest(T::Sum::NEG_INFINITY);
    let mut max = rest_lanes;
    for chunk in full {
        for l in 0..LANES {
            max[l] = max[l].greater(chunk[l].wide());
        }
    }
    let max = joined(max, heads, |a, b| a.greater(b));
    let power = |x: &Lanes<T::Sum>| -> Lanes<T::Sum> {
        let mut power = [T::Sum::ZERO; LANES];
        for l in 0..LANES {
            power[l] = exp::<M, T::Sum>(x[l] - max[l]);
        }
        power
    };
    let (out_full, out_rest) = out.as_chunks_mut::<LANES>();
    let rest_power = power(&rest_lanes);
    // Behind the row's end it is e^-∞ = 0, or NaN where the head's maximum and so all is NaN.
    let mut sum = rest_power;
    for (chunk, out) in full.iter().zip(&mut *out_full) {
        let power = power(&wide(chunk));
        for l in 0..LANES {
            sum[l] += power[l];
            if keeps_sums::<T>() {
                out[l] = T::narrow(power[l]);
            }
        }
    }
    let sum = joined(sum, heads, |a, b| a + b);
    let mut part = sum;
    for l in 0..LANES {
        part[l] = T::Sum::ONE / (sum[l] + T::Sum::of(EPSILON));
    }
    for (chunk, out) in full.iter().zip(out_full) {
        let power = if keeps_sums::<T>() { wide(out) } else { power(&wide(chunk)) };
        for l in 0..LANES {
            out[l] = T::narrow(power[l] * part[l]);
        }
    }
    let mut rest = rest_power;
    for l in 0..LANES {
        rest[l] *= part[l];
    }
    store_rest(&rest, out_rest);
}

/// As [`softmax_of_lanes`], for up to 16 heads of an entry at a time.
#[inline(always)]
fn softmax_of_heads<M: Arith, T: Stored>(scores: &[T], out: &mut [T], heads: usize) {
    for first in (0..heads).step_by(LANES) {
        let count = LANES.min(heads - first);
        let mut max = [T::Sum::NEG_INFINITY; LANES];
        let tile = |row: &[T]| lanes_of(&row[first..first + count], T::Sum::ZERO);
        for row in scores.chunks_exact(heads) {
            let row = tile(row);
            (0..LANES).for_each(|l| max[l] = max[l].greater(row[l]));
        }
        let power = |row: &[T]| -> Lanes<T::Sum> {
            let row = tile(row);
            let mut power = [T::Sum::ZERO; LANES];
            (0..LANES).for_each(|l| power[l] = exp::<M, T::Sum>(row[l] - max[l]));
            power
        };
        let mut sum = [T::Sum::ZERO; LANES];
        for row in scores.chunks_exact(heads) {
            let power = power(row);
            (0..LANES).for_each(|l| sum[l] += power[l]);
        }
        let part = sum.map(|sum| T::Sum::ONE / (sum + T::Sum::of(EPSILON)));
        for (row, out) in scores.chunks_exact(heads).zip(out.chunks_exact_mut(heads)) {
            let power = power(row);
            let out = out[first..first + count].iter_mut();
            out.enumerate().for_each(|(l, out)| *out = T::narrow(power[l] * part[l]));
        }
    }
}

#[inline(always)]
fn gradient_of_lanes<M: Arith, T: Stored>(
    [p, grads]: [Row<'_, T>; 2],
    out: &mut [T],
    heads: usize,
) {
    let (p_last, grads_last) = (p.rest(T::Sum::ZERO), grads.rest(T::Sum::ZERO));
    let (p, grads) = (p.numbers.as_chunks::<LANES>().0, grads.numbers.as_chunks::<LANES>().0);
    let (out, out_rest) = out.as_chunks_mut::<LANES>();
    let mut sum = [T::Sum::ZERO; LANES];
    for l in 0..LANES {
        sum[l] = p_last[l] * grads_last[l];
    }
    for (p, grad) in p.iter().zip(grads) {
        for l in 0..LANES {
            sum[l] = M::mul_add(p[l].wide(), grad[l].wide(), sum[l]);
        }
    }
    let sum = joined(sum, heads, |a, b| a + b);
    for ((p, grad), out) in p.iter().zip(grads).zip(out) {
        for l in 0..LANES {
            out[l] = T::narrow(p[l].wide() * (grad[l].wide() - sum[l]));
        }
    }
    let mut rest = p_last;
    for l in 0..LANES {
        rest[l] = p_last[l] * (grads_last[l] - sum[l]);
    }
    store_rest(&rest, out_rest);
}

/// As [`gradient_of_lanes`], for up to 16 heads of an entry at a time.
#[inline(always)]
fn gradient_of_heads<M: Arith, T: Stored>([p, grads]: [&[T]; 2], out: &mut [T], heads: usize) {
    for first in (0..heads).step_by(LANES) {
        let count = LANES.min(heads - first);
        let tile = |row: &[T]| lanes_of(&row[first..first + count], T::Sum::ZERO);
        let rows = || p.chunks_exact(heads).zip(grads.chunks_exact(heads));
        let mut sum = [T::Sum::ZERO; LANES];
        for (p, grad) in rows() {
            let (p, grad) = (tile(p), tile(grad));
            (0..LANES).for_each(|l| sum[l] = M::mul_add(p[l], grad[l], sum[l]));
        }
        for ((p, grad), out) in rows().zip(out.chunks_exact_mut(heads)) {
            let (p, grad) = (tile(p), tile(grad));
            let out = out[first..first + count].iter_mut();
            out.enumerate().for_each(|(l, out)| *out = T::narrow(p[l] * (grad[l] - sum[l])));
        }
    }
}
