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
use crate::real::{Real, Stored};
use crate::rows::{LANES, Lanes};

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
    let out = out.into();
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
    for i in part.span.rows.clone() {
        let place = part.place(i);
        let (scores, out) = (&part.scores[place.clone()], &mut part.out[place]);
        if scores.is_empty() {
            continue;
        }
        if LANES.is_multiple_of(heads) {
            softmax_of_lanes::<M, T>(scores, out, heads);
        } else {
            softmax_of_heads::<M, T>(scores, out, heads);
        }
    }
}

per_isa!(fn backward<[T: Stored], []>(part: Part<'_, T>) = backward_body);

#[inline(always)]
fn backward_body<M: Arith, T: Stored>(part: Part<'_, T>) {
    let heads = part.args.scores.n_cols;
    for i in part.span.rows.clone() {
        let place = part.place(i);
        let (p, grads) = (&part.scores[place.clone()], &part.grads[place.clone()]);
        let out = &mut part.out[place];
        if p.is_empty() {
            continue;
        }
        if LANES.is_multiple_of(heads) {
            gradient_of_lanes::<M, T>(p, grads, out, heads);
        } else {
            gradient_of_heads::<M, T>(p, grads, out, heads);
        }
    }
}

/// Up to 16 numbers as a vector, `fill` behind their end.
#[inline(always)]
fn lanes_of<T: Stored>(numbers: &[T], fill: T::Sum) -> Lanes<T::Sum> {
    let mut lanes = [fill; LANES];
    lanes.iter_mut().zip(numbers).for_each(|(lane, number)| *lane = number.wide());
    lanes
}

/// Joins the lanes of each head; every lane then has its head's result.
#[inline(always)]
fn joined<F: Real>(mut lanes: Lanes<F>, heads: usize, join: impl Fn(F, F) -> F) -> Lanes<F> {
    let mut distance = LANES / 2;
    while distance >= heads {
        lanes = std::array::from_fn(|l| join(lanes[l], lanes[(l + distance) % LANES]));
        distance /= 2;
    }
    lanes
}

/// Whether a result can be kept as it is until it is divided.
#[inline(always)]
fn keeps_sums<T: Stored>() -> bool {
    size_of::<T>() == size_of::<T::Sum>()
}

#[inline(always)]
fn softmax_of_lanes<M: Arith, T: Stored>(scores: &[T], out: &mut [T], heads: usize) {
    let (full, rest) = scores.as_chunks::<LANES>();
    let lowest = T::Sum::NEG_INFINITY;
    let rest_lanes = lanes_of(rest, lowest);
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
    let mut sum = [T::Sum::ZERO; LANES];
    for l in 0..LANES {
        sum[l] = if l < rest.len() { rest_power[l] } else { T::Sum::ZERO };
    }
    for (chunk, out) in full.iter().zip(&mut *out_full) {
        let power = power(&chunk.map(T::wide));
        for l in 0..LANES {
            sum[l] += power[l];
            if keeps_sums::<T>() {
                out[l] = T::narrow(power[l]);
            }
        }
    }
    let sum = joined(sum, heads, |a, b| a + b);
    let part = sum.map(|sum| T::Sum::ONE / (sum + T::Sum::of(EPSILON)));
    for (chunk, out) in full.iter().zip(out_full) {
        let power = if keeps_sums::<T>() { out.map(T::wide) } else { power(&chunk.map(T::wide)) };
        for l in 0..LANES {
            out[l] = T::narrow(power[l] * part[l]);
        }
    }
    for (l, out) in out_rest.iter_mut().enumerate() {
        *out = T::narrow(rest_power[l] * part[l]);
    }
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
fn gradient_of_lanes<M: Arith, T: Stored>(p: &[T], grads: &[T], out: &mut [T], heads: usize) {
    let ((p, p_rest), (grads, grads_rest)) = (p.as_chunks::<LANES>(), grads.as_chunks::<LANES>());
    let (out, out_rest) = out.as_chunks_mut::<LANES>();
    let p_last = lanes_of(p_rest, T::Sum::ZERO);
    let grads_last = lanes_of(grads_rest, T::Sum::ZERO);
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
    for (l, out) in out_rest.iter_mut().enumerate() {
        *out = T::narrow(p_last[l] * (grads_last[l] - sum[l]));
    }
}

/// As [`gradient_of_lanes`], for up to 16 heads of an entry at a time.
#[inline(always)]
fn gradient_of_heads<M: Arith, T: Stored>(p: &[T], grads: &[T], out: &mut [T], heads: usize) {
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
