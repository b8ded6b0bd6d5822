//! Sparse features times weights, and the gradient of the weights.
//!
//! ```text
//!  Y = X·W: the sparse matrix times a dense one, spmm with the features as the matrix
//!  dW = Xᵀ·dY:  for each entry x_ij:  dw_j += x_ij · dy_i
//! ```
//! `sparse_matmul_t.csr.transpose` is spmm with a transpose that the caller keeps;
//! `sparse_matmul_t.csr.scatter` needs none, and adds into a strip of columns of `dW` that fits in
//! a cache.
//!
//! # Parallelism
//! A thread does a strip of columns, or where there are few strips a piece of the rows of one; the
//! pieces' sums are added in order. Strips and pieces follow from the sizes alone.
//! # Memory
//! The scatter form: `dW` once for each piece, 8 at most.

use std::ops::Range;

use lacis_core::error::same_size;
use lacis_core::reference::Reduce;
use lacis_core::threads::ranges;
use lacis_core::{CsrView, Error, Result, Threads};

use crate::isa::{Arith, Isa, per_isa};
use crate::matrix::{Mat, MatMut};
use crate::spmm;

/// Columns of a strip: four vectors.
const STRIP: usize = 64;
/// How many parts to cut the work into at least, where it is large enough.
const PARTS: usize = 8;
/// A piece of rows has at least this many entries for each row of the result, or adding pieces
/// would take longer than making them.
const ENTRIES_PER_ROW: usize = 4;

/// The gradient of weights to compute, its sizes checked.
#[derive(Clone, Copy, Debug)]
pub struct Args<'a> {
    x: CsrView<'a>,
    grad: Mat<'a>,
    transpose: Option<CsrView<'a>>,
}

impl<'a> Args<'a> {
    /// `Xᵀ·grad`.
    ///
    /// # Errors
    /// When `grad` has not one row per row of `x`.
    pub fn new(x: CsrView<'a>, grad: impl Into<Mat<'a>>) -> Result<Self> {
        let grad = grad.into();
        same_size("sparse_matmul_t", "rows of the gradient", x.n_rows(), grad.n_rows)?;
        Ok(Args { x, grad, transpose: None })
    }

    /// With the transpose of `x`, which the caller keeps.
    ///
    /// # Errors
    /// When its sizes are not those of a transpose of `x`.
    pub fn transposed(mut self, transpose: CsrView<'a>) -> Result<Self> {
        let op = "sparse_matmul_t";
        same_size(op, "rows of the transpose", self.x.n_cols, transpose.n_rows())?;
        same_size(op, "columns of the transpose", self.x.n_rows(), transpose.n_cols)?;
        same_size(op, "entries of the transpose", self.x.cols.len(), transpose.cols.len())?;
        self.transpose = Some(transpose);
        Ok(self)
    }
}

/// One way to compute it.
pub struct Kernel {
    /// `sparse_matmul_t.csr.scatter`: the operator, the format, who does what.
    pub name: &'static str,
    needs_transpose: bool,
    run: fn(Isa, &Args<'_>, MatMut<'_>, &Threads) -> Result<()>,
}

/// Every kernel there is.
pub static KERNELS: &[Kernel] = &[
    Kernel { name: "sparse_matmul_t.csr.transpose", needs_transpose: true, run: gather },
    Kernel { name: "sparse_matmul_t.csr.scatter", needs_transpose: false, run: scatter },
];

impl Kernel {
    /// Whether it can run with what the arguments have.
    pub fn takes(&self, args: &Args<'_>) -> bool {
        !self.needs_transpose || args.transpose.is_some()
    }

    /// Computes `Xᵀ·grad` into `dw`.
    ///
    /// # Errors
    /// When `dw` has another shape, or the kernel needs a transpose and there is none.
    pub fn run<'y>(
        &self,
        isa: Isa,
        args: &Args<'_>,
        dw: impl Into<MatMut<'y>>,
        threads: &Threads,
    ) -> Result<()> {
        let dw = dw.into();
        same_size("sparse_matmul_t", "rows of dw", args.x.n_cols, dw.n_rows)?;
        same_size("sparse_matmul_t", "columns of dw", args.grad.n_cols, dw.n_cols)?;
        if !self.takes(args) {
            return Err(Error::argument(
                self.name,
                "needs the transpose; give it to the arguments",
            ));
        }
        (self.run)(isa, args, dw, threads)
    }
}

/// What a core keeps for itself, about.
const NEAR_BYTES: usize = 1 << 20;

/// `Y = X·W`: spmm. Rows of weights are near; those of a gradient, with `Xᵀ` for `X`, may not be.
///
/// # Errors
/// When a size does not fit.
pub fn sparse_matmul<'a, 'y>(
    x: CsrView<'a>,
    w: impl Into<Mat<'a>>,
    y: impl Into<MatMut<'y>>,
    threads: &Threads,
) -> Result<()> {
    let args = spmm::Args::new(x, w, Reduce::Sum)?;
    let kernel = if args.bytes() > NEAR_BYTES { &spmm::EARLY } else { &spmm::PLAIN };
    kernel.run(Isa::best(), &args, y, threads)
}

fn gather(_: Isa, args: &Args<'_>, dw: MatMut<'_>, threads: &Threads) -> Result<()> {
    match args.transpose {
        Some(transpose) => sparse_matmul(transpose, args.grad, dw, threads),
        None => unreachable!("checked by Kernel::run"),
    }
}

/// Some columns of the gradient and rows of the features; the sums they give.
struct Part<'a> {
    args: Args<'a>,
    cols: Range<usize>,
    rows: Range<usize>,
    sums: Vec<f32>,
}

fn scatter(isa: Isa, args: &Args<'_>, dw: MatMut<'_>, threads: &Threads) -> Result<()> {
    let (n_rows, entries) = (args.x.n_cols, args.x.cols.len());
    let strips = ranges(args.grad.n_cols, STRIP);
    let most = (entries / (n_rows.max(1) * ENTRIES_PER_ROW)).max(1);
    let pieces = (PARTS / strips.len().max(1)).clamp(1, most);
    let pieces = args.x.slices(entries.div_ceil(pieces).max(1));
    let mut parts = Vec::new();
    for cols in &strips {
        for rows in &pieces {
            let (cols, rows) = (cols.clone(), rows.clone());
            parts.push(Part { args: *args, cols, rows, sums: Vec::new() });
        }
    }
    let parts = threads.map(parts, |part| scattered(isa, part));
    add_parts(&parts, dw, threads);
    Ok(())
}

per_isa!(fn scattered<[], []>(part: Part<'_>) -> Part<'_> = body);

#[inline(always)]
fn body<M: Arith>(mut part: Part<'_>) -> Part<'_> {
    let (args, width) = (part.args, part.cols.len());
    part.sums = vec![0.0; args.x.n_cols * width];
    for i in part.rows.clone() {
        let grad = &args.grad.row(i)[part.cols.clone()];
        for e in args.x.row(i) {
            let value = args.x.value(e);
            let sums = &mut part.sums[args.x.cols[e] as usize * width..][..width];
            for (sum, grad) in sums.iter_mut().zip(grad) {
                *sum = M::mul_add(value, *grad, *sum);
            }
        }
    }
    part
}

/// The sums of each strip's pieces, in order, to where they belong; zeros where there is no piece.
fn add_parts(parts: &[Part<'_>], dw: MatMut<'_>, threads: &Threads) {
    const ROWS: usize = 512;
    let rows = ranges(dw.n_rows, ROWS);
    let ends: Vec<usize> = rows.iter().map(|rows| rows.end).collect();
    let items = rows.into_iter().zip(dw.split(&ends)).collect();
    threads.for_each(items, |(rows, mut dw): (Range<usize>, MatMut<'_>)| {
        for (i, j) in rows.enumerate() {
            let row = dw.row_mut(i);
            row.fill(0.0);
            for part in parts {
                let width = part.cols.len();
                let sums = &part.sums[j * width..][..width];
                row[part.cols.clone()].iter_mut().zip(sums).for_each(|(sum, part)| *sum += part);
            }
        }
    });
}
