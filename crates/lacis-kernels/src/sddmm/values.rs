//! The gradient of SpMM's edge values, `da_e = Σ_c g_ic · l_i · ∂reduce/∂m_ec · r_j · x_jc` for the
//! messages `m_ec = a_e · r_j · x_jc` of row `i`.
//!
//! ```text
//!  sum, mean:  an SDDMM dot of g and x with scales
//!  max, min:   once over the row's messages for the best of each column and how many are as good
//!              (or which is first), once more for the dots of what each of them gets
//!  mul:        products of the messages before, then, backwards, of those after
//! ```
//! Nothing is kept of the forward; what is best is found again with the same arithmetic.
//!
//! # Parallelism
//! Sum and mean: as SDDMM. Others: a thread does whole rows.
//! # Memory
//! Mul: 16 numbers for each entry of the longest row, for each thread.

use std::ops::Range;

use lacis_core::error::same_size;
use lacis_core::reference::{EdgeOp, Reduce, Ties};
use lacis_core::{CsrView, Result, Threads};

use super::{Args, Shared};
use crate::edges::{EdgeOrder, Span, Task, spans_of_rows};
use crate::isa::{Arith, Isa, per_isa};
use crate::matrix::Mat;
use crate::real::{Real, Stored};
use crate::rows::{AHEAD, LANES, Lanes, ask_ahead, keep_of, load, row_or_copy, total};

/// A gradient to compute, its sizes checked.
#[derive(Clone, Copy, Debug)]
pub struct ValuesArgs<'a, T: Stored = f32> {
    dots: Args<'a, T>,
    reduce: Reduce,
    ties: Ties,
}

impl<'a, T: Stored> ValuesArgs<'a, T> {
    /// For `y_i = l_i · reduce_j (a_ij · r_j · x_j)`, from the gradient of `y`, before which any
    /// activation is already undone. Even ties, no scales, stored order.
    ///
    /// # Errors
    /// When a size does not fit.
    pub fn new(
        a: CsrView<'a>,
        x: impl Into<Mat<'a, T>>,
        grad: impl Into<Mat<'a, T>>,
        reduce: Reduce,
    ) -> Result<Self> {
        let mut dots = Args::new(a, grad, x, EdgeOp::Dot)?;
        if reduce == Reduce::Mean {
            dots.shared = Shared::Evenly;
        }
        Ok(ValuesArgs { dots, reduce, ties: Ties::SplitEvenly })
    }

    /// Who gets the gradient of a maximum or minimum.
    pub fn ties(mut self, ties: Ties) -> Self {
        self.ties = ties;
        self
    }

    /// `l` and `r` of the product.
    ///
    /// # Errors
    /// When there is not one factor per row and column.
    pub fn scaled(
        mut self,
        left: Option<&'a [T::Sum]>,
        right: Option<&'a [T::Sum]>,
    ) -> Result<Self> {
        self.dots = self.dots.scaled(left, right)?;
        Ok(self)
    }

    /// In which order the gradients are wanted.
    pub fn ordered(mut self, order: EdgeOrder) -> Self {
        self.dots.order = order;
        self
    }

    /// `a_e · r_j`, as SpMM has it.
    #[inline(always)]
    fn weight(&self, e: usize, j: usize) -> T::Sum {
        let value = self.dots.a.values.map_or(T::Sum::ONE, |v| T::Sum::of(f64::from(v[e])));
        value * self.dots.col_scale(j)
    }
}

/// Computes the gradient of every value into `out`.
///
/// # Errors
/// When `out` has not one number per entry.
pub fn value_gradients<T: Stored>(
    isa: Isa,
    args: &ValuesArgs<'_, T>,
    out: &mut [T::Sum],
    threads: &Threads,
) -> Result<()> {
    T::value_gradients(isa, args, out, threads)
}

pub(super) fn value_gradients_here<T: Stored>(
    isa: Isa,
    args: &ValuesArgs<'_, T>,
    out: &mut [T::Sum],
    threads: &Threads,
) -> Result<()> {
    let (a, order) = (args.dots.a, args.dots.order);
    same_size("gradient of values", "number of results", a.cols.len(), out.len())?;
    let out = crate::edges::matrix_of(out, 1);
    if matches!(args.reduce, Reduce::Sum | Reduce::Mean) {
        return super::run(isa, &args.dots, out, threads);
    }
    let task = Task { a, order, spans: spans_of_rows(&a, 1) };
    task.run(out, threads, Scratch::<T>::default, |scratch, span, out| {
        let part = Part { args, span, out: out.data, scratch };
        match (args.reduce, args.ties) {
            (Reduce::Mul, _) => products(isa, part),
            (_, Ties::FirstArgument) => firsts(isa, part),
            _ => evenly(isa, part),
        }
    });
    Ok(())
}

/// A thread's own memory: for each column the best message, how many are as good (or which), what
/// each gets; and the products of the messages before each.
struct Scratch<T: Stored> {
    best: Vec<Lanes<T::Sum>>,
    count: Vec<Lanes<T::Sum>>,
    grad: Vec<Lanes<T::Sum>>,
    arguments: Vec<[u32; LANES]>,
    before: Vec<Lanes<T::Sum>>,
    copy: Vec<[T; LANES]>,
}

impl<T: Stored> Default for Scratch<T> {
    fn default() -> Self {
        Scratch {
            best: Vec::new(),
            count: Vec::new(),
            grad: Vec::new(),
            arguments: Vec::new(),
            before: Vec::new(),
            copy: Vec::new(),
        }
    }
}

struct Part<'a, T: Stored> {
    args: &'a ValuesArgs<'a, T>,
    span: &'a Span,
    out: &'a mut [T::Sum],
    scratch: &'a mut Scratch<T>,
}

/// 1 where the greatest is wanted, -1 where the least: its negative is then the greatest.
#[inline(always)]
fn sign_of<F: Real>(reduce: Reduce) -> F {
    if reduce == Reduce::Min { -F::ONE } else { F::ONE }
}

/// Gives `each` the entries of a row, with `± a_e · r_j` and `x_j` as vectors.
#[inline(always)]
fn for_messages<T: Stored>(
    args: &ValuesArgs<'_, T>,
    entries: Range<usize>,
    copy: &mut Vec<[T; LANES]>,
    mut each: impl FnMut(usize, T::Sum, &[[T; LANES]]),
) {
    let (x, cols) = (args.dots.v, args.dots.a.cols);
    let chunks = x.n_cols.div_ceil(LANES);
    let sign = sign_of::<T::Sum>(args.reduce);
    for e in entries {
        ask_ahead(x, cols, e + AHEAD);
        let j = cols[e] as usize;
        each(e, sign * args.weight(e, j), row_or_copy(x, j, chunks, copy));
    }
}

per_isa!(fn evenly<[T: Stored], []>(part: Part<'_, T>) = evenly_body);

#[inline(always)]
fn evenly_body<M: Arith, T: Stored>(part: Part<'_, T>) {
    let Part { args, span, out, scratch } = part;
    for i in span.rows.clone() {
        let entries = args.dots.a.row(i);
        if entries.is_empty() {
            continue;
        }
        find_best::<T>(args, entries.clone(), scratch);
        load(args.dots.u.row(i), &mut scratch.grad);
        let scale = args.dots.row_scale(i);
        let lost = args.ties == Ties::SplitWithInitialZero;
        for (c, grad) in scratch.grad.iter_mut().enumerate() {
            for (l, grad) in grad.iter_mut().enumerate() {
                let zero = lost && scratch.best[c][l] == T::Sum::ZERO;
                let extra = if zero { T::Sum::ONE } else { T::Sum::ZERO };
                // No message equals NaN: 0 parts make what each gets infinite or NaN.
                *grad = *grad * scale / (scratch.count[c][l] + extra);
            }
        }
        dots_of_best::<M, T>(args, entries, scratch, &mut out[..], span.entries.start);
    }
}

/// The best of each column over a row's messages, and how many are as good; 0 for NaN.
#[inline(always)]
fn find_best<T: Stored>(args: &ValuesArgs<'_, T>, entries: Range<usize>, scratch: &mut Scratch<T>) {
    let chunks = args.dots.v.n_cols.div_ceil(LANES);
    let Scratch { best, count, copy, .. } = scratch;
    best.clear();
    best.resize(chunks, [T::Sum::NEG_INFINITY; LANES]);
    count.clear();
    count.resize(chunks, [T::Sum::ZERO; LANES]);
    for_messages(args, entries, copy, |_, weight, row| {
        for ((best, count), x) in best.iter_mut().zip(count.iter_mut()).zip(row) {
            for l in 0..LANES {
                let message = weight * x[l].wide();
                let one_more = count[l] + T::Sum::ONE;
                let nan = message.is_nan() || best[l].is_nan();
                let as_good = if message == best[l] { one_more } else { count[l] };
                let counted = if message > best[l] { T::Sum::ONE } else { as_good };
                count[l] = if nan { T::Sum::ZERO } else { counted };
                best[l] = best[l].greater(message);
            }
        }
    });
}

/// `da_e = r_j · Σ_c (what column c gives) · x_jc` over the columns where the entry is best.
#[inline(always)]
fn dots_of_best<M: Arith, T: Stored>(
    args: &ValuesArgs<'_, T>,
    entries: Range<usize>,
    scratch: &mut Scratch<T>,
    out: &mut [T::Sum],
    first: usize,
) {
    let Scratch { best, grad, copy, .. } = scratch;
    let (all, some) = (keep_of(LANES), keep_of(args.dots.v.n_cols));
    let last = best.len().saturating_sub(1);
    for_messages(args, entries, copy, |e, weight, row| {
        let mut sums = [T::Sum::ZERO; LANES];
        for (c, ((best, grad), x)) in best.iter().zip(grad.iter()).zip(row).enumerate() {
            let keep: &Lanes<T::Sum> = if c == last { &some } else { &all };
            for l in 0..LANES {
                let x = x[l].wide();
                // What is not best gets 0 times the gradient, which is not 0 for infinity and NaN.
                let none = grad[l] * T::Sum::ZERO;
                let gets = if weight * x == best[l] { grad[l] } else { none };
                let sum = M::mul_add(gets, x, sums[l]);
                sums[l] = if keep[l] > T::Sum::ZERO { sum } else { sums[l] };
            }
        }
        out[e - first] = total(sums) * args.dots.col_scale(args.dots.a.cols[e] as usize);
    });
}

per_isa!(fn firsts<[T: Stored], []>(part: Part<'_, T>) = firsts_body);

#[inline(always)]
fn firsts_body<M: Arith, T: Stored>(part: Part<'_, T>) {
    let Part { args, span, out, scratch } = part;
    out.fill(T::Sum::ZERO);
    let x = args.dots.v;
    for i in span.rows.clone() {
        let entries = args.dots.a.row(i);
        if entries.is_empty() {
            continue;
        }
        find_first::<T>(args, entries.clone(), scratch);
        let scale = args.dots.row_scale(i);
        let arguments = scratch.arguments.as_flattened().iter();
        for (c, (at, grad)) in arguments.zip(args.dots.u.row(i)).enumerate() {
            let e = entries.start + *at as usize;
            let j = args.dots.a.cols[e] as usize;
            let out = &mut out[e - span.entries.start];
            let x = x.row(j)[c].wide() * args.dots.col_scale(j);
            *out = M::mul_add(grad.wide() * scale, x, *out);
        }
    }
}

/// For each column, which of a row's messages is the first that is best, or the last NaN.
#[inline(always)]
fn find_first<T: Stored>(
    args: &ValuesArgs<'_, T>,
    entries: Range<usize>,
    scratch: &mut Scratch<T>,
) {
    let chunks = args.dots.v.n_cols.div_ceil(LANES);
    let Scratch { best, arguments, copy, .. } = scratch;
    best.clear();
    best.resize(chunks, [T::Sum::NEG_INFINITY; LANES]);
    arguments.clear();
    arguments.resize(chunks, [0; LANES]);
    let start = entries.start;
    for_messages(args, entries, copy, |e, weight, row| {
        let at = (e - start) as u32;
        for ((best, argument), x) in best.iter_mut().zip(arguments.iter_mut()).zip(row) {
            for l in 0..LANES {
                let message = weight * x[l].wide();
                let better = message > best[l] || message.is_nan();
                argument[l] = if better { at } else { argument[l] };
                best[l] = best[l].greater(message);
            }
        }
    });
}

per_isa!(fn products<[T: Stored], []>(part: Part<'_, T>) = products_body);

#[inline(always)]
fn products_body<M: Arith, T: Stored>(part: Part<'_, T>) {
    let Part { args, span, out, scratch } = part;
    out.fill(T::Sum::ZERO);
    let width = args.dots.v.n_cols;
    for i in span.rows.clone() {
        let entries = args.dots.a.row(i);
        load(args.dots.u.row(i), &mut scratch.grad);
        let scale = args.dots.row_scale(i);
        for c in 0..scratch.grad.len() {
            let mut grad = scratch.grad[c];
            grad.iter_mut().for_each(|grad| *grad *= scale);
            let counts = LANES.min(width - c * LANES);
            let tile = Tile { col: c * LANES, counts, keep: keep_of(counts), grad };
            let out = &mut out[entries.start - span.entries.start..][..entries.len()];
            others::<M, T>(args, entries.clone(), &tile, (scratch, out));
        }
    }
}

/// 16 columns of a row, of which some count, and the gradient there.
struct Tile<F> {
    col: usize,
    counts: usize,
    keep: Lanes<F>,
    grad: Lanes<F>,
}

/// Adds `Σ_c g_c · (product of the other messages)_c · r_j · x_jc` over a tile's columns.
#[inline(always)]
fn others<M: Arith, T: Stored>(
    args: &ValuesArgs<'_, T>,
    entries: Range<usize>,
    tile: &Tile<T::Sum>,
    (scratch, out): (&mut Scratch<T>, &mut [T::Sum]),
) {
    let (x, cols) = (args.dots.v, args.dots.a.cols);
    let row_of = |e: usize| {
        let row = &x.row(cols[e] as usize)[tile.col..][..tile.counts];
        let mut lanes = [T::Sum::ZERO; LANES];
        lanes.iter_mut().zip(row).for_each(|(lane, x)| *lane = x.wide());
        lanes
    };
    let before = &mut scratch.before;
    before.clear();
    let mut product = [T::Sum::ONE; LANES];
    for e in entries.clone() {
        before.push(product);
        let (weight, row) = (args.weight(e, cols[e] as usize), row_of(e));
        (0..LANES).for_each(|l| product[l] *= weight * row[l]);
    }
    let mut after = [T::Sum::ONE; LANES];
    for (e, (before, out)) in entries.zip(before.iter().zip(out)).rev() {
        let (j, row) = (cols[e] as usize, row_of(e));
        let mut sums = [T::Sum::ZERO; LANES];
        for l in 0..LANES {
            let sum = tile.grad[l] * (before[l] * after[l]) * row[l];
            sums[l] = if tile.keep[l] > T::Sum::ZERO { sum } else { T::Sum::ZERO };
            after[l] *= args.weight(e, j) * row[l];
        }
        *out = M::mul_add(total(sums), args.dots.col_scale(j), *out);
    }
}
