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

use super::{Args, EdgeFunction, End, Ends, add_weighted, value_of};
use crate::edges::{Span, spans_of_rows};
use crate::isa::{Arith, Isa, per_isa};
use crate::matrix::{Mat, MatMut};
use crate::real::{Real, Stored};
use crate::rows::{
    AHEAD, Chunks, LANES, Lanes, Product, TOGETHER, ask_ahead, columns_of, keep_of, load,
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
        let weights_of = |e: usize| e - span.entries.start;
        let mut e = entries.start;
        while e < entries.end {
            let count = TOGETHER.min(entries.end - e);
            row.ask(e + AHEAD, count);
            let js = columns_of::<TOGETHER>(&side.a.cols[e..e + count]);
            let rows = rows_of(side.other[0], js, 0, chunks[0]);
            let values = rows_of(side.other[1], js, 0, chunks[1]);
            let mut weights = [T::Sum::ZERO; TOGETHER];
            if let (Some(rows), Some(values)) = (rows, values) {
                weights = row.add::<M>((e, count), rows, values);
            } else {
                for b in 0..count {
                    let rows = row_or_copy(side.other[0], js[b], chunks[0], copy);
                    let values = row_or_copy(side.other[1], js[b], chunks[1], values_copy);
                    weights[b] = row.add::<M>((e + b, 1), [rows; _], [values; _])[0];
                }
            }
            if let Some(out) = outputs.weights.get_mut(weights_of(e)..weights_of(e + count)) {
                out.copy_from_slice(&weights[..count]);
            }
            e += count;
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

impl<'a, T: Stored, E: EdgeFunction<T>> Row<'a, T, E> {
    /// Adds `count` entries from `e` on; returns the gradients of their weights. Where they are
    /// fewer than the rows, the last ones are not added.
    #[inline(always)]
    fn add<M: Arith>(
        &mut self,
        (e, count): (usize, usize),
        rows: [Chunks<'_, T>; TOGETHER],
        values: [Chunks<'_, T>; TOGETHER],
    ) -> [T::Sum; TOGETHER] {
        let ends = self.ends(rows);
        let inner = self.function.inner::<M, TOGETHER>(&ends);
        let dots = sums::<M, T, Product, TOGETHER>(&self.own[1], values, &self.keep[1]);
        let (mut scales, mut factors, mut weights) = (dots, inner, dots);
        // A loop of its own, so that it is a vector's.
        for b in 0..TOGETHER {
            factors[b] = self.function.value::<M>(inner[b]);
            weights[b] = dots[b] * factors[b];
        }
        for b in 0..TOGETHER {
            let a = value_of::<T>(&self.side.a, e + b.min(count - 1));
            scales[b] *= a;
            factors[b] *= a;
        }
        if count == TOGETHER {
            self.function.add_gradients::<M, TOGETHER>(&ends, inner, scales, &mut self.sums[0]);
        } else {
            for b in 0..count {
                let (ends, inner) = (self.ends([rows[b]]), [inner[b]]);
                let sums = &mut self.sums[0];
                self.function.add_gradients::<M, 1>(&ends, inner, [scales[b]], sums);
            }
        }
        if self.wants_values {
            add_weighted::<M, T>(&mut self.sums[1], count, factors, values);
        }
        weights
    }

    #[inline(always)]
    fn ends<'r, const B: usize>(&self, rows: [Chunks<'r, T>; B]) -> Ends<'r, T, B>
    where
        'a: 'r,
    {
        let (end, width) = (self.side.end, self.side.own[0].n_cols);
        Ends { own: &self.own[0], rows, keep: &self.keep[0], end, width }
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
