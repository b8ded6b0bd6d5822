//! Gates per edge and feature in one pass: `y_i = Σ_{e = (i, j)} σ(k_i + q_j) ⊙ v_j`, and its
//! gradients.
//!
//! ```text
//!  over a matrix's rows, with what the other ends have (b, c) and the row's own a:
//!      sums   Σ_e s ⊙ c            s = σ(a + b)
//!      slopes Σ_e s ⊙ (1 − s) ⊙ c
//!  forward   over A,  a = k, (b, c) = (q, v):   y  = sums
//!  backward  over A,  a = k, (b, c) = (q, v):   dk = dy ⊙ slopes
//!            over Aᵀ, a = q, (b, c) = (k, dy):  dq = v ⊙ slopes, dv = sums
//! ```
//! Nothing of the size of the edges is kept: gates are computed again, once for each end. Values
//! of the matrix do not count.
//!
//! # Parallelism
//! A thread does whole rows; slices of about equal numbers of entries follow from the matrix alone.
//! # Accuracy
//! Entries are added one after another, whatever the number of threads.

use lacis_core::error::same_size;
use lacis_core::{CsrView, Result, Threads};

use crate::edges::{Span, spans_of_rows};
use crate::isa::{Arith, Isa, per_isa};
use crate::math::sigmoid;
use crate::matrix::{Mat, MatMut};
use crate::real::{Real, Stored};
use crate::rows::{AHEAD, Chunks, LANES, Lanes, ask_ahead, load, row_or_copy, store};

const OP: &str = "gated sum";

/// The operands, their sizes checked.
#[derive(Clone, Copy, Debug)]
pub struct Args<'a, T: Stored = f32> {
    a: CsrView<'a>,
    target: Mat<'a, T>,
    source: Mat<'a, T>,
    values: Mat<'a, T>,
}

/// Where the gradients of `k`, `q` and `v` go.
pub struct Grads<'a, T: Stored = f32> {
    /// Of `k`.
    pub target: MatMut<'a, T>,
    /// Of `q`.
    pub source: MatMut<'a, T>,
    /// Of `v`.
    pub values: MatMut<'a, T>,
}

impl<'a, T: Stored> Args<'a, T> {
    /// `k`, one row per target; `q` and `v`, one row per source.
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
        same_size(OP, "rows of the target features", a.n_rows(), target.n_rows)?;
        same_size(OP, "rows of the source features", a.n_cols, source.n_rows)?;
        same_size(OP, "rows of the values", a.n_cols, values.n_rows)?;
        same_size(OP, "columns of the target features", values.n_cols, target.n_cols)?;
        same_size(OP, "columns of the source features", values.n_cols, source.n_cols)?;
        Ok(Args { a, target, source, values })
    }

    /// Computes `y`, one row per target.
    ///
    /// # Errors
    /// When `y` has another shape.
    pub fn forward<'y>(
        &self,
        isa: Isa,
        y: impl Into<MatMut<'y, T>>,
        threads: &Threads,
    ) -> Result<()> {
        let y = y.into();
        same_rows("the result", self.target, &y)?;
        let side = Side { a: self.a, own: self.target, other: self.source, passed: self.values };
        side.run(isa, Outputs { sums: Some(y), slopes: None }, threads);
        Ok(())
    }

    /// Computes all gradients from that of `y`; `transpose` is the adjacency's.
    ///
    /// # Errors
    /// When a result has another shape than what it is the gradient of, or the transpose is not of
    /// that adjacency's shape.
    pub fn backward(
        &self,
        isa: Isa,
        (transpose, grad): (CsrView<'_>, Mat<'_, T>),
        grads: Grads<'_, T>,
        threads: &Threads,
    ) -> Result<()> {
        same_size(OP, "rows of the transpose", self.a.n_cols, transpose.n_rows())?;
        same_size(OP, "columns of the transpose", self.a.n_rows(), transpose.n_cols)?;
        same_size(OP, "entries of the transpose", self.a.cols.len(), transpose.cols.len())?;
        same_size(OP, "rows of the gradient", self.a.n_rows(), grad.n_rows)?;
        same_size(OP, "columns of the gradient", self.values.n_cols, grad.n_cols)?;
        same_rows("the targets' gradient", self.target, &grads.target)?;
        same_rows("the sources' gradient", self.source, &grads.source)?;
        same_rows("the values' gradient", self.values, &grads.values)?;
        let side = Side { a: self.a, own: self.target, other: self.source, passed: self.values };
        side.run(isa, Outputs { sums: None, slopes: Some((grads.target, grad)) }, threads);
        let side = Side { a: transpose, own: self.source, other: self.target, passed: grad };
        let slopes = Some((grads.source, self.values));
        side.run(isa, Outputs { sums: Some(grads.values), slopes }, threads);
        Ok(())
    }
}

fn same_rows<T>(what: &'static str, of: Mat<'_, T>, found: &MatMut<'_, T>) -> Result<()> {
    same_size(what, "number of rows", of.n_rows, found.n_rows)?;
    same_size(what, "number of columns", of.n_cols, found.n_cols)
}

/// One pass: the matrix, what its rows have of their own, and both things that the other ends have.
#[derive(Clone, Copy)]
struct Side<'a, T> {
    a: CsrView<'a>,
    own: Mat<'a, T>,
    other: Mat<'a, T>,
    passed: Mat<'a, T>,
}

/// Where a pass's sums go, and its slopes with what they are multiplied by.
struct Outputs<'y, 'f, T> {
    sums: Option<MatMut<'y, T>>,
    slopes: Option<(MatMut<'y, T>, Mat<'f, T>)>,
}

impl<T: Stored> Side<'_, T> {
    fn run(&self, isa: Isa, outputs: Outputs<'_, '_, T>, threads: &Threads) {
        if self.passed.n_cols == 0 {
            return;
        }
        let Outputs { sums, slopes } = outputs;
        let spans = spans_of_rows(&self.a, self.passed.n_cols.div_ceil(LANES));
        let ends: Vec<usize> = spans.iter().map(|span| span.rows.end).collect();
        let (slopes, factor) = slopes.unzip();
        let mut sums = sums.map(|y| y.split(&ends).into_iter());
        let mut slopes = slopes.map(|y| y.split(&ends).into_iter());
        let part = |span| {
            let sums = sums.as_mut().and_then(Iterator::next);
            let slopes = slopes.as_mut().and_then(Iterator::next).zip(factor);
            (span, Outputs { sums, slopes })
        };
        let parts: Vec<_> = spans.into_iter().map(part).collect();
        threads.map_with(parts, Scratch::default, |scratch, (span, outputs)| {
            let part = Part { side: self, span, outputs, scratch };
            match part.outputs.slopes.is_some() {
                true => compiled::<T, 1>(isa, part),
                false => compiled::<T, 0>(isa, part),
            }
        });
    }
}

/// A thread's own memory: a row of the own features, its sums and slopes, rows at the end of the
/// memory.
struct Scratch<T: Stored> {
    own: Vec<Lanes<T::Sum>>,
    sums: Vec<Lanes<T::Sum>>,
    slopes: Vec<Lanes<T::Sum>>,
    copies: [Vec<[T; LANES]>; 2],
}

impl<T: Stored> Default for Scratch<T> {
    fn default() -> Self {
        let copies = [Vec::new(), Vec::new()];
        Scratch { own: Vec::new(), sums: Vec::new(), slopes: Vec::new(), copies }
    }
}

struct Part<'a, T: Stored> {
    side: &'a Side<'a, T>,
    span: Span,
    outputs: Outputs<'a, 'a, T>,
    scratch: &'a mut Scratch<T>,
}

per_isa!(fn compiled<[T: Stored], [SLOPES]>(part: Part<'_, T>) = body);

#[inline(always)]
fn body<M: Arith, T: Stored, const SLOPES: usize>(part: Part<'_, T>) {
    let Part { side, span, mut outputs, scratch } = part;
    let Scratch { own, sums, slopes, copies: [copy, passed_copy] } = scratch;
    let (cols, first) = (side.a.cols, span.rows.start);
    for i in span.rows {
        load(side.own.row(i), own);
        let chunks = own.len();
        for all in [&mut *sums, &mut *slopes] {
            all.clear();
            all.resize(chunks, [T::Sum::ZERO; LANES]);
        }
        for e in side.a.row(i) {
            ask_ahead(side.other, cols, e + AHEAD);
            ask_ahead(side.passed, cols, e + AHEAD);
            let j = cols[e] as usize;
            let row = row_or_copy(side.other, j, chunks, copy);
            let passed = row_or_copy(side.passed, j, chunks, passed_copy);
            add::<M, T, SLOPES>([sums, slopes], own, [row, passed]);
        }
        if let Some(y) = &mut outputs.sums {
            store(sums, y.row_mut(i - first));
        }
        if let Some((y, factor)) = &mut outputs.slopes {
            let slopes = slopes.as_flattened().iter().zip(factor.row(i));
            let row = y.row_mut(i - first).iter_mut();
            row.zip(slopes).for_each(|(y, (slope, by))| *y = T::narrow(*slope * by.wide()));
        }
    }
}

/// What one entry adds to the sums and, where they are wanted, the slopes.
#[inline(always)]
fn add<M: Arith, T: Stored, const SLOPES: usize>(
    [sums, slopes]: [&mut [Lanes<T::Sum>]; 2],
    own: &[Lanes<T::Sum>],
    [row, passed]: [Chunks<'_, T>; 2],
) {
    for (c, ((sums, slopes), own)) in sums.iter_mut().zip(slopes).zip(own).enumerate() {
        let (row, passed) = (&row[c], &passed[c]);
        for l in 0..LANES {
            let gate = sigmoid::<M, T::Sum>(own[l] + row[l].wide());
            let through = gate * passed[l].wide();
            sums[l] += through;
            if SLOPES == 1 {
                slopes[l] = M::mul_add(through, T::Sum::ONE - gate, slopes[l]);
            }
        }
    }
}
