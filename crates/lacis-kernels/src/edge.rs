//! A scalar function of each edge's two ends, then the weighted sum, in one pass:
//! `y_i = Σ_{e = (i, j)} a_e · f(x_i, z_j) · v_j`.
//!
//! ```text
//!  for each row i: x_i as vectors, a row of sums
//!      for four entries (i, j) at a time: f of x_i and z_j, then a_e · f · v_j to the sums
//! ```
//! The shape of FusedMM (Rahman, Sujon, Azad, IPDPS 2021). Nothing of the size of the edges is
//! kept; the backward computes `f` again, once for each end.
//!
//! # Parallelism
//! A thread does whole rows; slices of about equal numbers of entries follow from the matrix alone.
//! # Accuracy
//! Entries are added one after another, whatever the number of threads.

mod backward;
mod function;

pub use backward::{BackwardArgs, source_gradients, target_gradients};
pub use function::{
    EdgeFunction, End, Ends, Identity, OfDot, OfRows, OfSquaredDistance, RowFunction,
    SIGMOID_OF_DOT, SQUARED_DISTANCE, Scalar, Sigmoid,
};

use lacis_core::error::same_size;
use lacis_core::{CsrView, Result, Threads};

use crate::edges::{Span, spans_with_rows};
use crate::isa::{Arith, Isa, per_isa};
use crate::matrix::{Mat, MatMut};
use crate::real::{Real, Stored};
use crate::rows::{
    AHEAD, Chunks, LANES, Lanes, TOGETHER, add_rows, ask_ahead, columns_of, keep_of, load,
    row_or_copy, rows_of, store,
};

/// The operands, their sizes checked.
#[derive(Clone, Copy, Debug)]
pub struct Args<'a, T: Stored = f32> {
    a: CsrView<'a>,
    target: Mat<'a, T>,
    source: Mat<'a, T>,
    values: Mat<'a, T>,
}

impl<'a, T: Stored> Args<'a, T> {
    /// `x`, one row per target; `z` and `v`, one row per source.
    ///
    /// # Errors
    /// When a size does not fit.
    pub fn new(
        a: CsrView<'a>,
        target: impl Into<Mat<'a, T>>,
        source: impl Into<Mat<'a, T>>,
        values: impl Into<Mat<'a, T>>,
    ) -> Result<Self> {
        let (target, source, values) = (target.into(), source.into(), values.into());
        let op = "fused edge";
        same_size(op, "rows of the target features", a.n_rows(), target.n_rows)?;
        same_size(op, "rows of the source features", a.n_cols, source.n_rows)?;
        same_size(op, "columns of the source features", target.n_cols, source.n_cols)?;
        same_size(op, "rows of the values", a.n_cols, values.n_rows)?;
        Ok(Args { a, target, source, values })
    }
}

/// Computes `y`, one row per target, as wide as the values.
///
/// # Errors
/// When `y` has another shape.
pub fn forward<'y, T: Stored, E: EdgeFunction<T>>(
    isa: Isa,
    args: &Args<'_, T>,
    function: E,
    y: impl Into<MatMut<'y, T>>,
    threads: &Threads,
) -> Result<()> {
    let y = y.into();
    same_size("fused edge", "rows of the result", args.a.n_rows(), y.n_rows)?;
    same_size("fused edge", "columns of the result", args.values.n_cols, y.n_cols)?;
    if y.n_cols == 0 {
        return Ok(());
    }
    threads.map_with(spans_with_rows(&args.a, y), Scratch::default, |scratch, (span, y)| {
        compiled(isa, Part { args, function, span, y, scratch });
    });
    Ok(())
}

/// A thread's own memory: the target's row, its sums, rows at the end of the memory.
struct Scratch<T: Stored> {
    own: Vec<Lanes<T::Sum>>,
    sums: Vec<Lanes<T::Sum>>,
    copies: [Vec<[T; LANES]>; 2],
}

impl<T: Stored> Default for Scratch<T> {
    fn default() -> Self {
        Scratch { own: Vec::new(), sums: Vec::new(), copies: [Vec::new(), Vec::new()] }
    }
}

struct Part<'a, T: Stored, E> {
    args: &'a Args<'a, T>,
    function: E,
    span: Span,
    y: MatMut<'a, T>,
    scratch: &'a mut Scratch<T>,
}

per_isa!(fn compiled<[T: Stored, E: EdgeFunction<T>], []>(part: Part<'_, T, E>) = body);

#[inline(always)]
fn body<M: Arith, T: Stored, E: EdgeFunction<T>>(part: Part<'_, T, E>) {
    let Part { args, function, span, mut y, scratch } = part;
    let Scratch { own, sums, copies: [copy, values_copy] } = scratch;
    let (cols, width) = (args.a.cols, args.values.n_cols.div_ceil(LANES));
    let of = (args, function);
    let (first, keep) = (span.rows.start, keep_of(args.target.n_cols));
    for i in span.rows {
        load(args.target.row(i), own);
        sums.clear();
        sums.resize(width, [T::Sum::ZERO; LANES]);
        let entries = args.a.row(i);
        let mut e = entries.start;
        while e < entries.end {
            let count = TOGETHER.min(entries.end - e);
            let js = columns_of::<TOGETHER>(&cols[e..e + count]);
            ask(args, e + AHEAD, count);
            let group = Group { e, count, own, keep: &keep };
            let rows = rows_of(args.source, js, 0, own.len());
            let values = rows_of(args.values, js, 0, width);
            match (rows, values) {
                (Some(rows), Some(values)) => {
                    let weights = group.weights::<M, T, E>(of, rows);
                    add_weighted::<M, T>(sums, count, weights, values);
                }
                _ => add_at_end::<M, T, E>(
                    of,
                    group,
                    js,
                    (&mut *sums, [&mut *copy, &mut *values_copy]),
                ),
            }
            e += count;
        }
        store(sums, y.row_mut(i - first));
    }
}

/// Asks for the rows of some entries from `e` on.
#[inline(always)]
fn ask<T: Stored>(args: &Args<'_, T>, e: usize, count: usize) {
    for e in e..e + count {
        ask_ahead(args.source, args.a.cols, e);
        if !std::ptr::eq(args.source.data, args.values.data) {
            ask_ahead(args.values, args.a.cols, e);
        }
    }
}

/// Entries of a row from `e` on, not more than are worked on together, and the row's own features.
#[derive(Clone, Copy)]
struct Group<'a, F> {
    e: usize,
    count: usize,
    own: &'a [Lanes<F>],
    keep: &'a Lanes<F>,
}

impl<F: Real> Group<'_, F> {
    /// `a_e · f(own, row)` for each of them.
    #[inline(always)]
    fn weights<M: Arith, T: Stored<Sum = F>, E: EdgeFunction<T>>(
        &self,
        (args, function): (&Args<'_, T>, E),
        rows: [Chunks<'_, T>; TOGETHER],
    ) -> [F; TOGETHER] {
        let (own, keep, width) = (self.own, self.keep, args.target.n_cols);
        let ends = Ends { own, rows, keep, end: End::Target, width };
        let mut weights = function.inner::<M, TOGETHER>(&ends);
        // A loop of its own, so that it is a vector's.
        for weight in &mut weights {
            *weight = function.value::<M>(*weight);
        }
        for (b, weight) in weights.iter_mut().enumerate() {
            *weight *= value_of::<T>(&args.a, self.e + b.min(self.count - 1));
        }
        weights
    }
}

/// Adds the first `count` of some rows, one after another.
#[inline(always)]
fn add_weighted<M: Arith, T: Stored>(
    sums: &mut [Lanes<T::Sum>],
    count: usize,
    weights: [T::Sum; TOGETHER],
    rows: [Chunks<'_, T>; TOGETHER],
) {
    if count == TOGETHER {
        return add_rows::<M, T, TOGETHER>(sums, weights, rows);
    }
    for b in 0..count {
        add_rows::<M, T, 1>(sums, [weights[b]], [rows[b]]);
    }
}

/// A row's sums, and memory for copies of the rows at the other ends.
type Copying<'a, T> = (&'a mut [Lanes<<T as Stored>::Sum>], [&'a mut Vec<[T; LANES]>; 2]);

/// As the body does for a group, one entry after another, their rows copied where they must be.
#[cold]
fn add_at_end<M: Arith, T: Stored, E: EdgeFunction<T>>(
    of: (&Args<'_, T>, E),
    group: Group<'_, T::Sum>,
    js: [usize; TOGETHER],
    (sums, [copy, values_copy]): Copying<'_, T>,
) {
    for (b, &j) in js[..group.count].iter().enumerate() {
        let row = row_or_copy(of.0.source, j, group.own.len(), copy);
        let one = Group { e: group.e + b, count: 1, ..group };
        let weight = one.weights::<M, T, E>(of, [row; TOGETHER])[0];
        let values = row_or_copy(of.0.values, j, sums.len(), values_copy);
        add_rows::<M, T, 1>(sums, [weight], [values]);
    }
}

/// `a_e`.
#[inline(always)]
fn value_of<T: Stored>(a: &CsrView<'_>, e: usize) -> T::Sum {
    a.values.map_or(T::Sum::ONE, |values| T::Sum::of(f64::from(values[e])))
}
