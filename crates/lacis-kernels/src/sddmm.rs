//! SDDMM: one row of numbers per edge from the rows at its two ends, `s_e = op(u_i, v_j)`.
//!
//! ```text
//!  for each row i: u_i as vectors
//!      for four entries (i, j) at a time: rows v_j, asked for 16 entries before
//!          dot:       s_e = l_i · r_j · Σ_c u_ic · v_jc, for each head
//!          add, mul:  s_ec = l_i · r_j · (u_ic + v_jc)  or  … · u_ic · v_jc
//! ```
//! Results are in what sums are kept in: `f32` for bf16 features too, as edge values are.
//!
//! # Parallelism
//! A thread does spans of entries, which may begin and end within a row; they follow from the
//! matrix alone.
//! # Accuracy
//! A dot is 16 sums, added by a fixed tree.

mod backward;
mod values;

pub use backward::{BackwardArgs, backward};
pub use values::{ValuesArgs, value_gradients};

use std::ops::Range;

use lacis_core::error::same_size;
use lacis_core::reference::EdgeOp;
use lacis_core::{CsrView, Error, Result, Threads};

use crate::edges::{EdgeOrder, Span, Task, spans_of_entries};
use crate::isa::{Arith, Isa, per_isa};
use crate::matrix::{Mat, MatMut};
use crate::once::once;
use crate::real::{Real, Stored};
use crate::rows::{
    AHEAD, LANES, Lanes, Product, TOGETHER, ask_ahead, columns_of, copied, keep_of, load, rows_of,
    sums,
};

/// Values to compute for each edge, their sizes checked.
#[derive(Clone, Copy, Debug)]
pub struct Args<'a, T: Stored = f32> {
    a: CsrView<'a>,
    u: Mat<'a, T>,
    v: Mat<'a, T>,
    op: EdgeOp,
    heads: usize,
    order: EdgeOrder,
    left: Option<&'a [T::Sum]>,
    right: Option<&'a [T::Sum]>,
    shared: Shared,
}

/// Whether an entry gets the whole of its row's gradient, or its part of a mean.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Shared {
    No,
    Evenly,
}

impl<'a, T: Stored> Args<'a, T> {
    /// `op(u_i, v_j)` for every entry; the values of `a` take no part.
    ///
    /// # Errors
    /// When `u` has not one row per row of `a`, `v` not one per column, or their widths differ.
    pub fn new(
        a: CsrView<'a>,
        u: impl Into<Mat<'a, T>>,
        v: impl Into<Mat<'a, T>>,
        op: EdgeOp,
    ) -> Result<Self> {
        let (u, v) = (u.into(), v.into());
        same_size("sddmm", "rows of u", a.n_rows(), u.n_rows)?;
        same_size("sddmm", "rows of v", a.n_cols, v.n_rows)?;
        same_size("sddmm", "columns of v", u.n_cols, v.n_cols)?;
        let (order, shared) = (EdgeOrder::Stored, Shared::No);
        Ok(Args { a, u, v, op, heads: 1, order, left: None, right: None, shared })
    }

    /// The columns are cut into `heads` equal parts, each with a dot of its own.
    ///
    /// # Errors
    /// When they cannot be, or the operation gives rows and not dots.
    pub fn heads(mut self, heads: usize) -> Result<Self> {
        let fits = heads > 0 && self.u.n_cols.is_multiple_of(heads);
        if !fits || heads > 1 && self.op != EdgeOp::Dot {
            let problem = format!(
                "{heads} of {:?} over {} columns; dots over equal parts would be right",
                self.op, self.u.n_cols
            );
            return Err(Error::argument("heads", problem));
        }
        self.heads = heads;
        Ok(self)
    }

    /// In which order the result's rows are wanted.
    pub fn ordered(mut self, order: EdgeOrder) -> Self {
        self.order = order;
        self
    }

    /// Multiplies what entry `(i, j)` gets by `left_i · right_j`.
    ///
    /// # Errors
    /// When there is not one factor per row and column.
    pub fn scaled(
        mut self,
        left: Option<&'a [T::Sum]>,
        right: Option<&'a [T::Sum]>,
    ) -> Result<Self> {
        if let Some(left) = left {
            same_size("sddmm", "number of left factors", self.a.n_rows(), left.len())?;
        }
        if let Some(right) = right {
            same_size("sddmm", "number of right factors", self.a.n_cols, right.len())?;
        }
        (self.left, self.right) = (left, right);
        Ok(self)
    }

    /// Columns of the result: one per head for dots, else as many as the operands have.
    pub fn width(&self) -> usize {
        if self.op == EdgeOp::Dot { self.heads } else { self.u.n_cols }
    }

    /// `l_i`, and where a row shares its gradient the part of one entry.
    #[inline(always)]
    fn row_scale(&self, i: usize) -> T::Sum {
        let left = self.left.map_or(T::Sum::ONE, |left| left[i]);
        match self.shared {
            Shared::No => left,
            Shared::Evenly => left / T::Sum::of(self.a.row(i).len() as f64),
        }
    }

    #[inline(always)]
    fn col_scale(&self, j: usize) -> T::Sum {
        self.right.map_or(T::Sum::ONE, |right| right[j])
    }
}

/// Computes the values of all edges into `out`: one row per entry, [`Args::width`] wide.
///
/// # Errors
/// When `out` has another shape.
pub fn run<'o, T: Stored>(
    isa: Isa,
    args: &Args<'_, T>,
    out: impl Into<MatMut<'o, T::Sum>>,
    threads: &Threads,
) -> Result<()> {
    T::sddmm(isa, args, out.into(), threads)
}

fn run_here<T: Stored>(
    isa: Isa,
    args: &Args<'_, T>,
    out: MatMut<'_, T::Sum>,
    threads: &Threads,
) -> Result<()> {
    same_size("sddmm", "rows of the result", args.a.cols.len(), out.n_rows)?;
    same_size("sddmm", "columns of the result", args.width(), out.n_cols)?;
    let spans = spans_of_entries(&args.a, args.width());
    let task = Task { a: args.a, order: args.order, spans };
    task.run(out, threads, Scratch::<T>::default, |scratch, span, out| {
        let part = Part { args, span, out, scratch };
        match args.op {
            EdgeOp::Dot => dots(isa, part),
            EdgeOp::Add => pairs::<T, Sum>(isa, part),
            EdgeOp::Mul => pairs::<T, Mul>(isa, part),
        }
    });
    Ok(())
}

once!(Once:
    fn sddmm(
        isa: Isa,
        args: &Args<'_, Self>,
        out: MatMut<'_, <Self as Stored>::Sum>,
        threads: &Threads,
    ) -> Result<()> = run_here;
    fn sddmm_backward(
        isa: Isa,
        args: &BackwardArgs<'_, Self>,
        y: MatMut<'_, Self>,
        threads: &Threads,
    ) -> Result<()> = backward::backward_here;
    fn value_gradients(
        isa: Isa,
        args: &ValuesArgs<'_, Self>,
        out: &mut [<Self as Stored>::Sum],
        threads: &Threads,
    ) -> Result<()> = values::value_gradients_here;
);

/// A thread's own memory: the target's row, head by head, what counts of a head's last vector, and
/// a row at the end of the memory.
struct Scratch<T: Stored> {
    own: Vec<Lanes<T::Sum>>,
    head: Vec<Lanes<T::Sum>>,
    keep: Lanes<T::Sum>,
    copy: Vec<[T; LANES]>,
}

impl<T: Stored> Default for Scratch<T> {
    fn default() -> Self {
        let keep = [T::Sum::ZERO; LANES];
        Scratch { own: Vec::new(), head: Vec::new(), keep, copy: Vec::new() }
    }
}

/// Some entries, and where their values go.
struct Part<'a, T: Stored> {
    args: &'a Args<'a, T>,
    span: &'a Span,
    out: MatMut<'a, T::Sum>,
    scratch: &'a mut Scratch<T>,
}

per_isa!(fn dots<[T: Stored], []>(part: Part<'_, T>) = dots_body);

#[inline(always)]
fn dots_body<M: Arith, T: Stored>(part: Part<'_, T>) {
    let Part { args, span, mut out, scratch } = part;
    let width = args.u.n_cols / args.heads;
    scratch.keep = keep_of(width);
    for i in span.rows.clone() {
        let entries = span.row(&args.a, i);
        if entries.is_empty() {
            continue;
        }
        scratch.own.clear();
        for h in 0..args.heads {
            load(&args.u.row(i)[h * width..][..width], &mut scratch.head);
            scratch.own.extend_from_slice(&scratch.head);
        }
        let row = Row { i, entries, first: span.entries.start };
        dots_of_row::<M, T>(args, row, &mut out, scratch);
    }
}

/// Entries of row `i`; the output begins with entry `first`.
struct Row {
    i: usize,
    entries: Range<usize>,
    first: usize,
}

#[inline(always)]
fn dots_of_row<M: Arith, T: Stored>(
    args: &Args<'_, T>,
    row: Row,
    out: &mut MatMut<'_, T::Sum>,
    scratch: &mut Scratch<T>,
) {
    let (cols, scale) = (args.a.cols, args.row_scale(row.i));
    let mut e = row.entries.start;
    while e < row.entries.end {
        let count = TOGETHER.min(row.entries.end - e);
        for b in 0..count {
            ask_ahead(args.v, cols, e + AHEAD + b);
        }
        let js = columns_of::<TOGETHER>(&cols[e..e + count]);
        let first = (e - row.first) * out.stride;
        let mut write = |b: usize, h: usize, dot: T::Sum| {
            out.data[first + b * out.stride + h] = dot * scale * args.col_scale(js[b]);
        };
        if !dots_of::<M, T>(args, js, scratch, |b, h, dot| {
            if b < count {
                write(b, h, dot)
            }
        }) {
            for (b, &j) in js[..count].iter().enumerate() {
                dots_at_end::<M, T>(args, j, scratch, |h, dot| write(b, h, dot));
            }
        }
        e += count;
    }
}

/// Gives `write` the dot of each of the rows and each head, or says that one of them is at the end
/// of the memory.
#[inline(always)]
fn dots_of<M: Arith, T: Stored>(
    args: &Args<'_, T>,
    js: [usize; TOGETHER],
    scratch: &Scratch<T>,
    mut write: impl FnMut(usize, usize, T::Sum),
) -> bool {
    let width = args.u.n_cols / args.heads;
    let chunks = width.div_ceil(LANES);
    for h in 0..args.heads {
        let Some(rows) = rows_of(args.v, js, h * width, chunks) else { return false };
        let own = &scratch.own[h * chunks..][..chunks];
        let dots = sums::<M, T, Product, TOGETHER>(own, rows, &scratch.keep);
        for (b, dot) in dots.into_iter().enumerate() {
            write(b, h, dot);
        }
    }
    true
}

#[inline(always)]
fn dots_at_end<M: Arith, T: Stored>(
    args: &Args<'_, T>,
    j: usize,
    scratch: &mut Scratch<T>,
    mut write: impl FnMut(usize, T::Sum),
) {
    let width = args.u.n_cols / args.heads;
    let chunks = width.div_ceil(LANES);
    for h in 0..args.heads {
        let row = copied(args.v, (j, h * width), chunks, &mut scratch.copy);
        let own = &scratch.own[h * chunks..][..chunks];
        write(h, sums::<M, T, Product, TOGETHER>(own, [row; TOGETHER], &scratch.keep)[0]);
    }
}

/// What two numbers become.
trait Pair: Copy {
    fn of<F: Real>(u: F, v: F) -> F;
}

#[derive(Clone, Copy)]
struct Sum;
#[derive(Clone, Copy)]
struct Mul;

impl Pair for Sum {
    #[inline(always)]
    fn of<F: Real>(u: F, v: F) -> F {
        u + v
    }
}

impl Pair for Mul {
    #[inline(always)]
    fn of<F: Real>(u: F, v: F) -> F {
        u * v
    }
}

per_isa!(fn pairs<[T: Stored, P: Pair], []>(part: Part<'_, T>) = pairs_body);

#[inline(always)]
#[allow(clippy::extra_unused_type_parameters, reason = "per_isa! gives every body its arithmetic")]
fn pairs_body<M: Arith, T: Stored, P: Pair>(part: Part<'_, T>) {
    let Part { args, span, mut out, .. } = part;
    for i in span.rows.clone() {
        let (u, scale) = (args.u.row(i), args.row_scale(i));
        for e in span.row(&args.a, i) {
            ask_ahead(args.v, args.a.cols, e + AHEAD);
            let j = args.a.cols[e] as usize;
            let scale = scale * args.col_scale(j);
            let ends = u.iter().zip(args.v.row(j));
            for (out, (u, v)) in out.row_mut(e - span.entries.start).iter_mut().zip(ends) {
                *out = P::of(u.wide(), v.wide()) * scale;
            }
        }
    }
}
