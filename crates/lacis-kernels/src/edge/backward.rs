//! The gradients of a fused edge function. With `d_e = dy_i · v_j`:
//!
//! ```text
//!  over the rows of A:   dx_i = Σ_e a_e · d_e · ∂f/∂x_i      da_e = d_e · f
//!  over the rows of Aᵀ:  dz_j = Σ_e a_e · d_e · ∂f/∂z_j      dv_j = Σ_e a_e · f · dy_i
//! ```
//! Both passes gather the two rows at the other end, and compute `f` and `d_e` again.
//!
//! # Parallelism
//! A thread does whole rows; slices of about equal numbers of entries follow from the matrix alone.
//! # Accuracy
//! Entries are added one after another, whatever the number of threads.

use lacis_core::error::same_size;
use lacis_core::{CsrView, Result, Threads};

use super::{Args, EdgeFunction, End, Ends, value_of};
use crate::edges::{Span, spans_of_rows};
use crate::isa::{Arith, Isa, per_isa};
use crate::matrix::{Mat, MatMut};
use crate::real::{Real, Stored};
use crate::rows::{
    AHEAD, Chunks, LANES, Lanes, Product, TOGETHER, add_rows, ask_ahead, columns_of, keep_of, load,
    row_or_copy, rows_of, store, sums,
};

/// The operands and the gradient of `y`, sizes checked.
#[derive(Clone, Copy, Debug)]
pub struct BackwardArgs<'a, T: Stored = f32> {
    args: Args<'a, T>,
    grad: Mat<'a, T>,
}

impl<'a, T: Stored> Args<'a, T> {
    /// What the gradients are computed from.
    ///
    /// # Errors
    /// When the gradient has not the shape of `y`.
    pub fn backward(&self, grad: impl Into<Mat<'a, T>>) -> Result<BackwardArgs<'a, T>> {
        let (op, grad) = ("fused edge backward", grad.into());
        same_size(op, "rows of the gradient", self.a.n_rows(), grad.n_rows)?;
        same_size(op, "columns of the gradient", self.values.n_cols, grad.n_cols)?;
        Ok(BackwardArgs { args: *self, grad })
    }
}

/// Computes the gradient of `x` into `target` and, where they are wanted, those of the values of
/// the adjacency into `weights`, in stored order.
///
/// # Errors
/// When a result has another shape than what it is the gradient of.
pub fn target_gradients<T: Stored, E: EdgeFunction<T>>(
    isa: Isa,
    args: &BackwardArgs<'_, T>,
    function: E,
    (target, weights): (MatMut<'_, T>, Option<&mut [T::Sum]>),
    threads: &Threads,
) -> Result<()> {
    let BackwardArgs { args, grad } = *args;
    let op = "fused edge backward";
    same_size(op, "rows of the targets' gradient", args.target.n_rows, target.n_rows)?;
    same_size(op, "columns of the targets' gradient", args.target.n_cols, target.n_cols)?;
    let no_weights = weights.is_none();
    let weights = weights.unwrap_or_default();
    if !no_weights {
        same_size(op, "number of gradients of weights", args.a.cols.len(), weights.len())?;
    }
    let side = Side {
        a: args.a,
        end: End::Target,
        own: [args.target, grad],
        other: [args.source, args.values],
    };
    let spans = spans_of_rows(&args.a, 1);
    let ends: Vec<usize> = spans.iter().map(|span| span.rows.end).collect();
    let entries = |span: &Span| if no_weights { 0 } else { span.entries.end };
    let cuts: Vec<usize> = spans.iter().map(entries).collect();
    let weights = lacis_core::threads::split_at_ends(weights, &cuts);
    let parts = spans.into_iter().zip(target.split(&ends)).zip(weights).collect();
    threads.map_with(parts, Scratch::default, |scratch, ((span, grad), weights)| {
        let outputs = Outputs { grad, values: None, weights };
        compiled(isa, Part { side: &side, function, span, outputs, scratch });
    });
    Ok(())
}

/// Computes the gradients of `z` into `source` and of `v` into `values`. `transpose` is the
/// adjacency's, with its values.
///
/// # Errors
/// When a result has another shape than what it is the gradient of, or the transpose is not of
/// that adjacency's shape.
pub fn source_gradients<T: Stored, E: EdgeFunction<T>>(
    isa: Isa,
    args: (&BackwardArgs<'_, T>, CsrView<'_>),
    function: E,
    (source, values): (MatMut<'_, T>, MatMut<'_, T>),
    threads: &Threads,
) -> Result<()> {
    let (BackwardArgs { args, grad }, transpose) = (*args.0, args.1);
    let op = "fused edge backward";
    same_size(op, "rows of the transpose", args.a.n_cols, transpose.n_rows())?;
    same_size(op, "columns of the transpose", args.a.n_rows(), transpose.n_cols)?;
    same_size(op, "entries of the transpose", args.a.cols.len(), transpose.cols.len())?;
    same_size(op, "rows of the sources' gradient", args.source.n_rows, source.n_rows)?;
    same_size(op, "columns of the sources' gradient", args.source.n_cols, source.n_cols)?;
    same_size(op, "rows of the values' gradient", args.values.n_rows, values.n_rows)?;
    same_size(op, "columns of the values' gradient", args.values.n_cols, values.n_cols)?;
    let side = Side {
        a: transpose,
        end: End::Source,
        own: [args.source, args.values],
        other: [args.target, grad],
    };
    let spans = spans_of_rows(&transpose, 1);
    let ends: Vec<usize> = spans.iter().map(|span| span.rows.end).collect();
    let parts = spans.into_iter().zip(source.split(&ends)).zip(values.split(&ends)).collect();
    threads.map_with(parts, Scratch::default, |scratch, ((span, grad), values)| {
        let outputs = Outputs { grad, values: Some(values), weights: &mut [] };
        compiled(isa, Part { side: &side, function, span, outputs, scratch });
    });
    Ok(())
}

/// One pass: the matrix, which end its rows are, and at that end and the other the features that
/// `f` is of and what is multiplied by `f` (at a target, the gradient of the sum).
struct Side<'a, T> {
    a: CsrView<'a>,
    end: End,
    own: [Mat<'a, T>; 2],
    other: [Mat<'a, T>; 2],
}

/// Where a part's results go: the gradient of `f`'s own features, of the values, of the weights.
struct Outputs<'a, T: Stored> {
    grad: MatMut<'a, T>,
    values: Option<MatMut<'a, T>>,
    weights: &'a mut [T::Sum],
}

struct Scratch<T: Stored> {
    own: [Vec<Lanes<T::Sum>>; 2],
    sums: [Vec<Lanes<T::Sum>>; 2],
    copies: [Vec<[T; LANES]>; 2],
}

impl<T: Stored> Default for Scratch<T> {
    fn default() -> Self {
        let (own, sums) = ([Vec::new(), Vec::new()], [Vec::new(), Vec::new()]);
        Scratch { own, sums, copies: [Vec::new(), Vec::new()] }
    }
}

struct Part<'a, T: Stored, E> {
    side: &'a Side<'a, T>,
    function: E,
    span: Span,
    outputs: Outputs<'a, T>,
    scratch: &'a mut Scratch<T>,
}

per_isa!(fn compiled<[T: Stored, E: EdgeFunction<T>], []>(part: Part<'_, T, E>) = body);

#[inline(always)]
fn body<M: Arith, T: Stored, E: EdgeFunction<T>>(part: Part<'_, T, E>) {
    let Part { side, function, span, mut outputs, scratch } = part;
    let Scratch { own, sums, copies: [copy, values_copy] } = scratch;
    let keep = [keep_of(side.own[0].n_cols), keep_of(side.own[1].n_cols)];
    for i in span.rows.clone() {
        for s in 0..2 {
            load(side.own[s].row(i), &mut own[s]);
            sums[s].clear();
            sums[s].resize(own[s].len(), [T::Sum::ZERO; LANES]);
        }
        let chunks = [own[0].len(), own[1].len()];
        let wants_values = outputs.values.is_some();
        let mut row =
            Row { side, function, own: &*own, sums: &mut *sums, keep: &keep, wants_values };
        let entries = side.a.row(i);
        let mut write = |e: usize, weight| {
            if let Some(out) = outputs.weights.get_mut(e - span.entries.start) {
                *out = weight;
            }
        };
        let mut e = entries.start;
        while e + TOGETHER <= entries.end {
            row.ask(e + AHEAD, TOGETHER);
            let js = columns_of::<TOGETHER>(&side.a.cols[e..e + TOGETHER]);
            let Some(rows) = rows_of(side.other[0], js, 0, chunks[0]) else { break };
            let Some(values) = rows_of(side.other[1], js, 0, chunks[1]) else { break };
            let weights = row.add::<M, TOGETHER>(e, rows, values);
            weights.into_iter().enumerate().for_each(|(b, weight)| write(e + b, weight));
            e += TOGETHER;
        }
        for e in e..entries.end {
            row.ask(e + AHEAD, 1);
            let j = side.a.cols[e] as usize;
            let rows = row_or_copy(side.other[0], j, chunks[0], copy);
            let values = row_or_copy(side.other[1], j, chunks[1], values_copy);
            write(e, row.add::<M, 1>(e, [rows], [values])[0]);
        }
        store(&sums[0], outputs.grad.row_mut(i - span.rows.start));
        if let Some(values) = &mut outputs.values {
            store(&sums[1], values.row_mut(i - span.rows.start));
        }
    }
}

/// A row of the pass's matrix, with the sums so far.
struct Row<'a, T: Stored, E> {
    side: &'a Side<'a, T>,
    function: E,
    own: &'a [Vec<Lanes<T::Sum>>; 2],
    sums: &'a mut [Vec<Lanes<T::Sum>>; 2],
    keep: &'a [Lanes<T::Sum>; 2],
    wants_values: bool,
}

impl<T: Stored, E: EdgeFunction<T>> Row<'_, T, E> {
    /// Adds the entries from `e` on; returns the gradients of their weights.
    #[inline(always)]
    fn add<M: Arith, const B: usize>(
        &mut self,
        e: usize,
        rows: [Chunks<'_, T>; B],
        values: [Chunks<'_, T>; B],
    ) -> [T::Sum; B] {
        let [own, own_values] = self.own;
        let [keep, keep_values] = self.keep;
        let (end, width) = (self.side.end, self.side.own[0].n_cols);
        let ends = Ends { own, rows, keep, end, width };
        let inner = self.function.inner::<M, B>(&ends);
        let dots = sums::<M, T, Product, B>(own_values, values, keep_values);
        let [mut scales, mut factors, mut weights] = [dots; 3];
        for b in 0..B {
            let (a, f) = (value_of::<T>(&self.side.a, e + b), self.function.value::<M>(inner[b]));
            scales[b] = a * dots[b];
            factors[b] = a * f;
            weights[b] = dots[b] * f;
        }
        self.function.add_gradients::<M, B>(&ends, inner, scales, &mut self.sums[0]);
        if self.wants_values {
            add_rows::<M, T, B>(&mut self.sums[1], factors, values);
        }
        weights
    }

    /// Asks for the rows of some entries from `e` on.
    #[inline(always)]
    fn ask(&self, e: usize, count: usize) {
        for e in e..e + count {
            ask_ahead(self.side.other[0], self.side.a.cols, e);
            ask_ahead(self.side.other[1], self.side.a.cols, e);
        }
    }
}
