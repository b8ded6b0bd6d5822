//! What the backward passes of all attentions share.
//!
//! With `p = e^(s - lse)`, its dropped form `p'` and `δ_i = dy_i · y_i` per head, the gradient of a
//! score is `ds = p'·(dy_i · v_j) - p·δ_i`: what a softmax's backward subtracts needs no sum over
//! edges, with dropout or without. A pass over the rows gives what targets get, one over the
//! transposed matrix what sources get; both find `p` again from `lse`.

use std::ops::Range;

use lacis_core::error::same_size;
use lacis_core::{CsrView, Error, Result, Threads};

use super::edges::{Edges, position};
use super::gather::dots_one;
use super::lanes::{Lanes, Layout, Vector};
use super::rows::PerEntry;
use crate::isa::Arith;
use crate::math;
use crate::matrix::{Mat, MatMut, Room};
use crate::real::{Real, Stored};

/// What the gradients follow from, besides the inputs.
#[derive(Clone, Copy, Debug)]
pub struct Given<'a, T: Stored> {
    /// The transposed adjacency. Where edges have features, a bias or dropout it must know their
    /// positions: `Csr::transpose_with_order`.
    pub transpose: CsrView<'a>,
    /// The result of the forward pass.
    pub y: Mat<'a, T>,
    /// What has been added to every row of `y` since: a layer's bias.
    pub bias: Option<Mat<'a, T::Sum>>,
    /// What the forward pass left beside it.
    pub lse: Mat<'a, T::Sum>,
    /// The gradient of `y`.
    pub grad: Mat<'a, T>,
}

impl<T: Stored> Given<'_, T> {
    /// # Errors
    /// When a size does not fit, or edges have to be told apart and cannot be.
    pub(super) fn check(
        &self,
        op: &'static str,
        a: CsrView<'_>,
        layout: Layout,
        edges: &Edges<'_, T>,
    ) -> Result<()> {
        check_transpose(op, (a, self.transpose), edges)?;
        same_size(op, "rows of y", a.n_rows(), self.y.n_rows)?;
        same_size(op, "columns of y", layout.width(), self.y.n_cols)?;
        if let Some(bias) = self.bias {
            same_size(op, "rows of the bias of y", 1, bias.n_rows)?;
            same_size(op, "columns of the bias of y", layout.width(), bias.n_cols)?;
        }
        same_size(op, "rows of lse", a.n_rows(), self.lse.n_rows)?;
        same_size(op, "rows of the gradient of y", a.n_rows(), self.grad.n_rows)?;
        same_size(op, "columns of the gradient of y", layout.width(), self.grad.n_cols)?;
        Ok(())
    }
}

/// # Errors
/// When the transpose has other sizes, or edges have to be told apart and it cannot.
pub(super) fn check_transpose<T: Stored>(
    op: &'static str,
    (a, transpose): (CsrView<'_>, CsrView<'_>),
    edges: &Edges<'_, T>,
) -> Result<()> {
    same_size(op, "rows of the transpose", a.n_cols, transpose.n_rows())?;
    same_size(op, "columns of the transpose", a.n_rows(), transpose.n_cols)?;
    same_size(op, "entries of the transpose", a.cols.len(), transpose.cols.len())?;
    if edges.are_told_apart() && transpose.order.is_none() && !a.cols.is_empty() {
        let problem = "the transpose does not know the edges' positions, which features, bias and \
                       dropout of edges need; one from transpose_with_order does";
        return Err(Error::argument(op, problem));
    }
    Ok(())
}

/// Scores of a chunk of edges and what becomes of them.
pub(super) struct Chunk<F> {
    pub scores: Vec<Lanes<F>>,
    pub lse: Vec<Lanes<F>>,
    pub delta: Vec<Lanes<F>>,
    /// `dy_i · v_j`, then the gradient of the scores.
    pub dots: Vec<Lanes<F>>,
    /// `p'`, where there is dropout.
    dropped: Vec<Lanes<F>>,
}

impl<F: Real> Chunk<F> {
    pub fn new(layout: Layout) -> Self {
        let [scores, lse, delta, dots, dropped] = std::array::from_fn(|_| layout.scores());
        Chunk { scores, lse, delta, dots, dropped }
    }

    /// From scores, `lse`, `δ` and dots to `p`, `p'` and the gradients of the scores. `p` stands
    /// where the scores were.
    #[inline(always)]
    pub fn differentiate<M: Arith, T: Stored<Sum = F>>(
        &mut self,
        layout: Layout,
        edges: &Edges<'_, T>,
        (a, entries): (CsrView<'_>, Range<usize>),
    ) {
        let n = entries.len();
        let used = layout.score_vectors(n);
        self.find_powers::<M>(layout, n);
        let p = self.scores[..used].as_flattened().iter();
        let dots = self.dots[..used].as_flattened_mut().iter_mut();
        let dots = dots.zip(self.delta.as_flattened());
        if edges.dropout.is_some() {
            edges.dropped(layout, (a, entries), (&self.scores, &mut self.dropped));
            for ((dot, delta), (p, dropped)) in dots.zip(p.zip(self.dropped.as_flattened())) {
                *dot = M::mul_add(*dropped, *dot, -(*p * *delta));
            }
        } else {
            for ((dot, delta), p) in dots.zip(p) {
                *dot = *p * (*dot - *delta);
            }
        }
        layout.set_after(&mut self.dots, n, F::ZERO);
    }

    /// From scores and `lse` to `p`.
    #[inline(always)]
    fn find_powers<M: Arith>(&mut self, layout: Layout, n: usize) {
        let used = layout.score_vectors(n);
        let lse = self.lse.as_flattened();
        for (s, lse) in self.scores[..used].as_flattened_mut().iter_mut().zip(lse) {
            *s = math::exp::<M, F>(*s - *lse);
        }
        layout.set_after(&mut self.scores, n, F::ZERO);
    }

    /// From scores, `lse` and dots to `p`, `p'` and `p'·dots`.
    #[inline(always)]
    pub fn weigh<M: Arith, T: Stored<Sum = F>>(
        &mut self,
        layout: Layout,
        edges: &Edges<'_, T>,
        (a, entries): (CsrView<'_>, Range<usize>),
    ) {
        let n = entries.len();
        let used = layout.score_vectors(n);
        self.find_powers::<M>(layout, n);
        let p = edges.dropped(layout, (a, entries), (&self.scores, &mut self.dropped));
        scale(&mut self.dots[..used], p);
        layout.set_after(&mut self.dots, n, F::ZERO);
    }

    /// From `p'·dots` and `δ` to the gradients of the scores.
    #[inline(always)]
    pub fn less_delta<M: Arith>(&mut self, layout: Layout, n: usize) {
        let used = layout.score_vectors(n);
        let given = self.scores.as_flattened().iter().zip(self.delta.as_flattened());
        for (dot, (p, delta)) in self.dots[..used].as_flattened_mut().iter_mut().zip(given) {
            *dot = M::mul_add(-*p, *delta, *dot);
        }
    }

    /// `p'`, after [`Chunk::differentiate`].
    #[inline(always)]
    pub fn weights<T: Stored<Sum = F>>(&self, edges: &Edges<'_, T>) -> &[Lanes<F>] {
        if edges.dropout.is_some() { &self.dropped } else { &self.scores }
    }

    /// Multiplies `p` and `p'`.
    #[inline(always)]
    pub fn scale_weights<T: Stored<Sum = F>>(
        &mut self,
        (edges, used): (&Edges<'_, T>, usize),
        by: &[Lanes<F>],
    ) {
        scale(&mut self.scores[..used], by);
        if edges.dropout.is_some() {
            scale(&mut self.dropped[..used], by);
        }
    }
}

/// `x·by`, vector by vector.
#[inline(always)]
pub(super) fn scale<F: Real>(x: &mut [Lanes<F>], by: &[Lanes<F>]) {
    for (x, by) in x.as_flattened_mut().iter_mut().zip(by.as_flattened()) {
        *x *= *by;
    }
}

/// `dy_i` of a target, its `lse` and `δ` as tiles.
pub(super) struct Target<F> {
    pub grad: Vec<Lanes<F>>,
    pub room: Vec<Lanes<F>>,
    pub lse: Vec<Lanes<F>>,
    pub delta: Vec<Lanes<F>>,
    dots: Vec<Lanes<F>>,
    /// What `y` has more than attention gave.
    bias: Option<Vec<Lanes<F>>>,
}

impl<F: Real> Target<F> {
    pub fn new<T: Stored<Sum = F>>(layout: Layout, given: &Given<'_, T>) -> Self {
        let [lse, delta, dots] = std::array::from_fn(|_| layout.scores());
        let bias = given.bias.map(|bias| padded(layout, bias));
        Target { grad: layout.rows(1), room: layout.rows(1), lse, delta, dots, bias }
    }

    /// Reads target `i`.
    #[inline(always)]
    pub fn begin<T: Stored<Sum = F>>(&mut self, layout: Layout, given: &Given<'_, T>, i: usize) {
        let tile = layout.tile_vectors();
        layout.load(given.grad, i, &mut self.grad, 0);
        layout.load(given.y, i, &mut self.room, 0);
        if let Some(bias) = &self.bias {
            let room = self.room.as_flattened_mut().iter_mut();
            room.zip(bias.as_flattened()).for_each(|(y, b)| *y = *y - *b);
        }
        let dots = self.dots.as_flattened_mut();
        dots_one(layout, [&self.grad, &self.room], dots);
        let heads = &self.dots.as_flattened()[..layout.heads];
        layout.tile_of(heads, &mut self.delta[..tile]);
        layout.tile_of(&given.lse.row(i)[..layout.heads], &mut self.lse[..tile]);
    }

    /// Writes `lse` and `δ` for the pass over sources.
    #[inline(always)]
    pub fn store(&self, layout: Layout, out: &mut [F]) {
        let (lse, delta) = out.split_at_mut(layout.slots);
        lse.copy_from_slice(&self.lse.as_flattened()[..layout.slots]);
        delta[..layout.slots].copy_from_slice(&self.delta.as_flattened()[..layout.slots]);
    }
}

/// Writes the gradients of the scores of entries where they are asked for.
#[inline(always)]
pub(super) fn store_scores<T: Stored>(
    layout: Layout,
    entries: Range<usize>,
    scores: &[Vector<T>],
    own: &mut PerEntry<'_, T>,
) {
    if own.bias.n_cols == 0 {
        return;
    }
    for (scores, e) in scores.as_flattened().chunks(layout.slots).zip(entries) {
        own.entry(e).1.copy_from_slice(&scores[..layout.heads]);
    }
}

/// One row of a matrix of vectors, as vectors.
pub(super) fn row_of<F: Real>(layout: Layout, vectors: Mat<'_, F>) -> Vec<Lanes<F>> {
    let flat: Vec<F> = (0..vectors.n_rows).flat_map(|h| vectors.row(h)).copied().collect();
    let width = layout.width();
    padded(layout, Mat { data: &flat, n_rows: 1, n_cols: width, stride: width })
}

/// The first row of a matrix, as vectors.
fn padded<F: Real>(layout: Layout, x: Mat<'_, F>) -> Vec<Lanes<F>> {
    let mut row = layout.rows(1);
    layout.load(x, 0, &mut row, 0);
    row
}

/// The reverse of [`row_of`].
pub(super) fn store_vectors<F: Real>(layout: Layout, row: &[Lanes<F>], mut out: MatMut<'_, F>) {
    let mut flat = vec![F::ZERO; layout.width()];
    layout.store(row, &mut flat);
    for (h, vector) in flat.chunks_exact(layout.channels).enumerate() {
        out.row_mut(h).copy_from_slice(vector);
    }
}

/// Zeros.
pub(super) fn clear<T: Stored>(grad: Option<MatMut<'_, T>>) {
    if let Some(mut grad) = grad {
        (0..grad.n_rows).for_each(|i| grad.row_mut(i).fill(T::narrow(T::Sum::ZERO)));
    }
}

/// Gradients per entry where the caller's order is not the stored one: computed in stored order,
/// then moved.
pub(super) struct InOrder<'a, T: Stored> {
    stored: Option<(Room<'a, T>, Room<'a, T::Sum>)>,
    features: Option<MatMut<'a, T>>,
    bias: Option<MatMut<'a, T::Sum>>,
}

impl<'a, T: Stored> InOrder<'a, T> {
    pub fn new(
        a: CsrView<'_>,
        features: Option<MatMut<'a, T>>,
        bias: Option<MatMut<'a, T::Sum>>,
        threads: &'a Threads,
    ) -> Result<Self> {
        let (f, b) = (features.as_ref().map(|f| f.n_cols), bias.as_ref().map(|b| b.n_cols));
        let room = |order: &[u32]| {
            let stored = Room::lent(order.len(), f.unwrap_or(0), threads)?;
            Ok((stored, Room::lent(order.len(), b.unwrap_or(0), threads)?))
        };
        let stored = a.order.map(room).transpose()?;
        Ok(InOrder { stored, features, bias })
    }

    /// Where a pass writes.
    pub fn per_entry(&mut self, nnz: usize) -> PerEntry<'_, T> {
        match &mut self.stored {
            Some((features, bias)) => PerEntry::new(nnz, Some(features.into()), Some(bias.into())),
            None => {
                let features = self.features.as_mut().map(MatMut::reborrow);
                PerEntry::new(nnz, features, self.bias.as_mut().map(MatMut::reborrow))
            }
        }
    }

    /// Moves what was written to its place.
    pub fn finish(self, a: CsrView<'_>) {
        if let Some((features, bias)) = &self.stored {
            self.features.into_iter().for_each(|out| to_callers_order(a, features.into(), out));
            self.bias.into_iter().for_each(|out| to_callers_order(a, bias.into(), out));
        }
    }
}

/// Gradients per entry in stored order, to the caller's order.
pub(super) fn to_callers_order<T: Stored>(
    a: CsrView<'_>,
    stored: Mat<'_, T>,
    mut out: MatMut<'_, T>,
) {
    for e in 0..a.cols.len() {
        out.row_mut(position(a, e)).copy_from_slice(stored.row(e));
    }
}
