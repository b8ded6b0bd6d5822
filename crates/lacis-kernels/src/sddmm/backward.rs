//! The gradient of SDDMM at one end of the edges: `dy_i = Σ_{e in row i} g_e · ∂op/∂(end i)`.
//!
//! ```text
//!  dot:  dy_i = Σ_e g_e · x_j      add:  dy_i = Σ_e g_e      mul:  dy_i = Σ_e g_e ⊙ x_j
//! ```
//! With `A` and `x = v` this is the gradient of `u`; with `Aᵀ` and `x = u` that of `v`. A transpose
//! that knows its order (`Csr::transpose_with_order`) finds each entry's gradient where the
//! caller's list has it, so that nothing is permuted before.
//!
//! # Parallelism
//! A thread does whole rows; slices of about equal numbers of entries follow from the matrix alone.
//! # Accuracy
//! Entries are added one after another, whatever the number of threads.

use lacis_core::error::same_size;
use lacis_core::reference::EdgeOp;
use lacis_core::{CsrView, Error, Result, Threads};

use crate::edges::{EdgeOrder, Span, spans_with_rows};
use crate::isa::{Arith, Isa, per_isa};
use crate::matrix::{Mat, MatMut};
use crate::real::{Real, Stored};
use crate::rows::{
    AHEAD, LANES, Lanes, TOGETHER, add_rows, ask_ahead, columns_of, copied, rows_of, store,
};

/// A gradient to compute, its sizes checked.
#[derive(Clone, Copy, Debug)]
pub struct BackwardArgs<'a, T: Stored = f32> {
    a: CsrView<'a>,
    x: Mat<'a, T>,
    op: EdgeOp,
    heads: usize,
    grad: Mat<'a, T::Sum>,
    order: EdgeOrder,
}

impl<'a, T: Stored> BackwardArgs<'a, T> {
    /// `x` has the rows at the other ends, one per column of `a`; `grad` one row per entry, as wide
    /// as the forward's result. Dots have as many heads as `grad` has columns.
    ///
    /// # Errors
    /// When a size does not fit.
    pub fn new(
        a: CsrView<'a>,
        x: impl Into<Mat<'a, T>>,
        op: EdgeOp,
        grad: impl Into<Mat<'a, T::Sum>>,
    ) -> Result<Self> {
        let (x, grad) = (x.into(), grad.into());
        same_size("sddmm backward", "rows of the other end", a.n_cols, x.n_rows)?;
        same_size("sddmm backward", "rows of the gradient", a.cols.len(), grad.n_rows)?;
        let heads = if op == EdgeOp::Dot { grad.n_cols } else { 1 };
        if op != EdgeOp::Dot {
            same_size("sddmm backward", "columns of the gradient", x.n_cols, grad.n_cols)?;
        } else if heads == 0 || !x.n_cols.is_multiple_of(heads) {
            let problem = format!(
                "{heads} columns for dots over {}; one for each equal part would be right",
                x.n_cols
            );
            return Err(Error::argument("gradient of sddmm", problem));
        }
        Ok(BackwardArgs { a, x, op, heads, grad, order: EdgeOrder::Stored })
    }

    /// In which order the gradient has its rows.
    pub fn ordered(mut self, order: EdgeOrder) -> Self {
        self.order = order;
        self
    }

    /// The row of `grad` of entry `e`.
    #[inline(always)]
    fn grad_of(&self, e: usize) -> &'a [T::Sum] {
        self.grad.row(self.order.positions(&self.a).map_or(e, |at| at[e] as usize))
    }
}

/// Computes the gradient into `y`, one row per row of the matrix.
///
/// # Errors
/// When `y` has another shape than the forward's operand.
pub fn backward<'y, T: Stored>(
    isa: Isa,
    args: &BackwardArgs<'_, T>,
    y: impl Into<MatMut<'y, T>>,
    threads: &Threads,
) -> Result<()> {
    T::sddmm_backward(isa, args, y.into(), threads)
}

pub(super) fn backward_here<T: Stored>(
    isa: Isa,
    args: &BackwardArgs<'_, T>,
    y: MatMut<'_, T>,
    threads: &Threads,
) -> Result<()> {
    same_size("sddmm backward", "rows of the result", args.a.n_rows(), y.n_rows)?;
    same_size("sddmm backward", "columns of the result", args.x.n_cols, y.n_cols)?;
    if y.n_cols == 0 {
        return Ok(());
    }
    threads.map_with(spans_with_rows(&args.a, y), Scratch::default, |scratch, (span, y)| {
        let part = Part { args, span, y, scratch };
        match args.op {
            EdgeOp::Dot => dots(isa, part),
            EdgeOp::Add | EdgeOp::Mul => pairs(isa, part),
        }
    });
    Ok(())
}

struct Scratch<T: Stored> {
    sums: Vec<Lanes<T::Sum>>,
    copy: Vec<[T; LANES]>,
}

impl<T: Stored> Default for Scratch<T> {
    fn default() -> Self {
        Scratch { sums: Vec::new(), copy: Vec::new() }
    }
}

struct Part<'a, T: Stored> {
    args: &'a BackwardArgs<'a, T>,
    span: Span,
    y: MatMut<'a, T>,
    scratch: &'a mut Scratch<T>,
}

per_isa!(fn dots<[T: Stored], []>(part: Part<'_, T>) = dots_body);

#[inline(always)]
fn dots_body<M: Arith, T: Stored>(part: Part<'_, T>) {
    let Part { args, span, mut y, scratch } = part;
    let width = args.x.n_cols / args.heads;
    let chunks = width.div_ceil(LANES);
    let first = span.rows.start;
    for i in span.rows {
        scratch.sums.clear();
        scratch.sums.resize(args.heads * chunks, [T::Sum::ZERO; LANES]);
        let entries = args.a.row(i);
        let mut e = entries.start;
        while e + TOGETHER <= entries.end && add::<M, T, TOGETHER>(args, e, scratch) {
            e += TOGETHER;
        }
        for e in e..entries.end {
            if !add::<M, T, 1>(args, e, scratch) {
                add_at_end::<M, T>(args, e, scratch);
            }
        }
        for (h, y) in y.row_mut(i - first).chunks_exact_mut(width).enumerate() {
            store(&scratch.sums[h * chunks..][..chunks], y);
        }
    }
}

/// Adds `B` entries, or says that one of them names a row at the end of the memory.
#[inline(always)]
fn add<M: Arith, T: Stored, const B: usize>(
    args: &BackwardArgs<'_, T>,
    e: usize,
    scratch: &mut Scratch<T>,
) -> bool {
    let width = args.x.n_cols / args.heads;
    let chunks = width.div_ceil(LANES);
    let js = columns_of::<B>(&args.a.cols[e..e + B]);
    // Where the last head's columns can be read, so can all others'.
    if rows_of(args.x, js, (args.heads - 1) * width, chunks).is_none() {
        return false;
    }
    for b in 0..B {
        ask_ahead(args.x, args.a.cols, e + AHEAD + b);
    }
    for h in 0..args.heads {
        let Some(rows) = rows_of(args.x, js, h * width, chunks) else { return false };
        let mut weights = [T::Sum::ZERO; B];
        for (b, weight) in weights.iter_mut().enumerate() {
            *weight = args.grad_of(e + b)[h];
        }
        add_rows::<M, T, B>(&mut scratch.sums[h * chunks..][..chunks], weights, rows);
    }
    true
}

#[inline(always)]
fn add_at_end<M: Arith, T: Stored>(args: &BackwardArgs<'_, T>, e: usize, scratch: &mut Scratch<T>) {
    let width = args.x.n_cols / args.heads;
    let chunks = width.div_ceil(LANES);
    let j = args.a.cols[e] as usize;
    for (h, &grad) in args.grad_of(e).iter().enumerate() {
        let row = copied(args.x, (j, h * width), chunks, &mut scratch.copy);
        add_rows::<M, T, 1>(&mut scratch.sums[h * chunks..][..chunks], [grad], [row]);
    }
}

per_isa!(fn pairs<[T: Stored], []>(part: Part<'_, T>) = pairs_body);

#[inline(always)]
fn pairs_body<M: Arith, T: Stored>(part: Part<'_, T>) {
    let Part { args, span, mut y, scratch } = part;
    let first = span.rows.start;
    for i in span.rows {
        scratch.sums.clear();
        scratch.sums.resize(args.x.n_cols.div_ceil(LANES), [T::Sum::ZERO; LANES]);
        let sums = scratch.sums.as_flattened_mut();
        for e in args.a.row(i) {
            let grad = args.grad_of(e);
            if args.op == EdgeOp::Add {
                sums.iter_mut().zip(grad).for_each(|(sum, grad)| *sum += *grad);
                continue;
            }
            ask_ahead(args.x, args.a.cols, e + AHEAD);
            let terms = grad.iter().zip(args.x.row(args.a.cols[e] as usize));
            for (sum, (grad, x)) in sums.iter_mut().zip(terms) {
                *sum = M::mul_add(*grad, x.wide(), *sum);
            }
        }
        store(&scratch.sums, y.row_mut(i - first));
    }
}
