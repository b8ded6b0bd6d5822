//! SpMM: `y_i = l_i · reduce_j (a_ij · r_j · x_j)`, the product of a sparse and a dense matrix.
//!
//! ```text
//!  for each row i, for each tile of V·16 columns:
//!      two sets of V vectors of 16 sums, in registers
//!      for each pair of entries (i, j), (i, j'):  x_j to one set, x_j' to the other
//!      the two sets together, times l_i, to y_i
//! ```
//! The last tile reads past the end of a row into the next, and does not write what it finds there:
//! no width needs padding or a slow tail.
//!
//! # Parallelism
//! A thread does whole rows; slices of about equal numbers of entries follow from the matrix alone.
//! # Accuracy
//! The entries at even and at odd places of a row are added apart, then together, whatever the
//! number of threads.

use std::ops::Range;

use lacis_core::error::same_size;
use lacis_core::reference::Reduce;
use lacis_core::{CsrView, Result, Threads};

use crate::isa::{Arith, Isa, per_isa};
use crate::matrix::{Mat, MatMut};
use crate::mem::prefetch;

/// Floats of a vector, whatever the instruction set makes of it.
const LANES: usize = 16;
/// How many entries ahead rows of `x` are asked for: far enough to hide memory, near enough to
/// still be in the cache.
const AHEAD: usize = 16;
/// Entries of a slice: enough to make choosing slices cheap, few enough to balance threads.
pub const SLICE_ENTRIES: usize = 1 << 15;

/// A product to compute, its sizes checked.
#[derive(Clone, Copy, Debug)]
pub struct Args<'a> {
    a: CsrView<'a>,
    x: Mat<'a>,
    left: Option<&'a [f32]>,
    right: Option<&'a [f32]>,
    reduce: Reduce,
    slices: Option<&'a [Range<usize>]>,
}

impl<'a> Args<'a> {
    /// `reduce_j (a_ij · x_j)`.
    ///
    /// # Errors
    /// When `x` has not one row per column of `a`.
    pub fn new(a: CsrView<'a>, x: impl Into<Mat<'a>>, reduce: Reduce) -> Result<Self> {
        let x = x.into();
        same_size("spmm", "rows of x", a.n_cols, x.n_rows)?;
        Ok(Args { a, x, left: None, right: None, reduce, slices: None })
    }

    /// Scales the result's rows by `left` and the operand's by `right`.
    ///
    /// # Errors
    /// When there is not one factor per row.
    pub fn scaled(mut self, left: Option<&'a [f32]>, right: Option<&'a [f32]>) -> Result<Self> {
        if let Some(left) = left {
            same_size("spmm", "number of left factors", self.a.n_rows(), left.len())?;
        }
        if let Some(right) = right {
            same_size("spmm", "number of right factors", self.a.n_cols, right.len())?;
        }
        (self.left, self.right) = (left, right);
        Ok(self)
    }
}

impl<'a> Args<'a> {
    /// Uses slices that a graph keeps, instead of finding them again. They depend on the matrix
    /// alone, and so does the result.
    ///
    /// # Errors
    /// When they do not cover the rows of the matrix one after another.
    pub fn sliced(mut self, slices: &'a [Range<usize>]) -> Result<Self> {
        let end = slices
            .iter()
            .try_fold(0, |end, rows| (rows.start == end && rows.end >= end).then_some(rows.end));
        same_size("spmm", "rows in slices", self.a.n_rows(), end.unwrap_or(usize::MAX))?;
        self.slices = Some(slices);
        Ok(self)
    }
}

/// One way to compute it.
pub struct Kernel {
    /// `spmm.csr.rows.v4`: the operator, the format, who does what, the tile.
    pub name: &'static str,
    run: fn(Isa, Part<'_>),
}

/// Every kernel there is. Tests, benches and the tuner walk this table; each takes any width.
pub static KERNELS: &[Kernel] = &[
    Kernel { name: "spmm.csr.rows.v1", run: rows::<1> },
    Kernel { name: "spmm.csr.rows.v2", run: rows::<2> },
    Kernel { name: "spmm.csr.rows.v3", run: rows::<3> },
    Kernel { name: "spmm.csr.rows.v4", run: rows::<4> },
];

impl Kernel {
    /// Computes the product into `y`.
    ///
    /// # Errors
    /// When `y` has another shape than the product.
    pub fn run<'y>(
        &self,
        isa: Isa,
        args: &Args<'_>,
        y: impl Into<MatMut<'y>>,
        threads: &Threads,
    ) -> Result<()> {
        let y = y.into();
        same_size("spmm", "rows of y", args.a.n_rows(), y.n_rows)?;
        same_size("spmm", "columns of y", args.x.n_cols, y.n_cols)?;
        if y.n_rows == 0 || y.n_cols == 0 {
            return Ok(());
        }
        let found;
        let slices = match args.slices {
            Some(slices) => slices,
            None => {
                found = args.a.slices(SLICE_ENTRIES);
                &found
            }
        };
        let ends: Vec<usize> = slices.iter().map(|rows| rows.end).collect();
        let parts = slices.iter().cloned().zip(y.split(&ends)).collect();
        threads.for_each(parts, |(rows, y)| (self.run)(isa, Part { args: *args, rows, y }));
        Ok(())
    }
}

/// Some rows of a product, and where they go.
struct Part<'a> {
    args: Args<'a>,
    rows: Range<usize>,
    y: MatMut<'a>,
}

/// What an entry's row of `x` is multiplied by.
trait Weights: Copy {
    fn at(args: &Args<'_>, e: usize, j: usize) -> f32;
}

#[derive(Clone, Copy)]
struct Ones;
#[derive(Clone, Copy)]
struct Values;
#[derive(Clone, Copy)]
struct Right;
#[derive(Clone, Copy)]
struct Both;

impl Weights for Ones {
    #[inline(always)]
    fn at(_: &Args<'_>, _: usize, _: usize) -> f32 {
        1.0
    }
}

impl Weights for Values {
    #[inline(always)]
    fn at(args: &Args<'_>, e: usize, _: usize) -> f32 {
        args.a.value(e)
    }
}

impl Weights for Right {
    #[inline(always)]
    fn at(args: &Args<'_>, _: usize, j: usize) -> f32 {
        args.right.map_or(1.0, |right| right[j])
    }
}

impl Weights for Both {
    #[inline(always)]
    fn at(args: &Args<'_>, e: usize, j: usize) -> f32 {
        Values::at(args, e, j) * Right::at(args, e, j)
    }
}

/// How a weighted row of `x` joins what a row has so far.
trait Join: Copy {
    /// What joining changes nothing of.
    const NEUTRAL: f32;
    fn weighted<M: Arith>(so_far: f32, weight: f32, x: f32) -> f32;
    fn together(a: f32, b: f32) -> f32;
}

#[derive(Clone, Copy)]
struct Sum;
#[derive(Clone, Copy)]
struct Max;
#[derive(Clone, Copy)]
struct Min;
#[derive(Clone, Copy)]
struct Mul;

impl Join for Sum {
    const NEUTRAL: f32 = 0.0;
    #[inline(always)]
    fn weighted<M: Arith>(so_far: f32, weight: f32, x: f32) -> f32 {
        M::mul_add(weight, x, so_far)
    }
    #[inline(always)]
    fn together(a: f32, b: f32) -> f32 {
        a + b
    }
}

macro_rules! join {
    ($type:ident, $neutral:expr, $join:expr) => {
        impl Join for $type {
            const NEUTRAL: f32 = $neutral;
            #[inline(always)]
            fn weighted<M: Arith>(so_far: f32, weight: f32, x: f32) -> f32 {
                $join(so_far, weight * x)
            }
            #[inline(always)]
            fn together(a: f32, b: f32) -> f32 {
                $join(a, b)
            }
        }
    };
}

// A comparison with NaN is false; both say so that NaN, once met, stays.
join!(Max, f32::NEG_INFINITY, |a: f32, b: f32| if a > b || a.is_nan() { a } else { b });
join!(Min, f32::INFINITY, |a: f32, b: f32| if a < b || a.is_nan() { a } else { b });
join!(Mul, 1.0, |a: f32, b: f32| a * b);

/// Chooses the body for the weights and the reduction.
fn rows<const V: usize>(isa: Isa, part: Part<'_>) {
    match part.args.reduce {
        Reduce::Sum | Reduce::Mean => weighted::<Sum, V>(isa, part),
        Reduce::Max => weighted::<Max, V>(isa, part),
        Reduce::Min => weighted::<Min, V>(isa, part),
        Reduce::Mul => weighted::<Mul, V>(isa, part),
    }
}

fn weighted<J: Join, const V: usize>(isa: Isa, part: Part<'_>) {
    match (part.args.a.values.is_some(), part.args.right.is_some()) {
        (false, false) => compiled::<Ones, J, V>(isa, part),
        (true, false) => compiled::<Values, J, V>(isa, part),
        (false, true) => compiled::<Right, J, V>(isa, part),
        (true, true) => compiled::<Both, J, V>(isa, part),
    }
}

per_isa!(fn compiled<[W: Weights, J: Join], [V]>(part: Part<'_>) = body);

#[inline(always)]
fn body<M: Arith, W: Weights, J: Join, const V: usize>(part: Part<'_>) {
    let Part { args, rows, mut y } = part;
    let first = rows.start;
    for i in rows {
        let entries = args.a.row(i);
        let scale = scale_of(&args, i, entries.len());
        let y = y.row_mut(i - first);
        for (tile, y) in y.chunks_mut(V * LANES).enumerate() {
            let sums = tile_of::<M, W, J, V>(&args, entries.clone(), tile * V * LANES);
            store(&sums, y, if entries.is_empty() { None } else { Some(scale) }, &args, i);
        }
    }
}

/// `l_i`, and for a mean the share of one entry.
#[inline(always)]
fn scale_of(args: &Args<'_>, i: usize, entries: usize) -> f32 {
    let left = args.left.map_or(1.0, |left| left[i]);
    if args.reduce == Reduce::Mean { left / entries.max(1) as f32 } else { left }
}

/// The reduction of a row over `V·16` columns from `col` on.
#[inline(always)]
fn tile_of<M: Arith, W: Weights, J: Join, const V: usize>(
    args: &Args<'_>,
    entries: Range<usize>,
    col: usize,
) -> [[f32; LANES]; V] {
    let mut even = [[J::NEUTRAL; LANES]; V];
    let mut odd = [[J::NEUTRAL; LANES]; V];
    let (cols, end) = (args.a.cols, entries.end);
    let mut e = entries.start;
    while e + 1 < end {
        ask_for::<V>(args, e + AHEAD, col);
        ask_for::<V>(args, e + AHEAD + 1, col);
        let (j0, j1) = (cols[e] as usize, cols[e + 1] as usize);
        add::<M, J, V>(&mut even, W::at(args, e, j0), args.x, j0 * args.x.stride + col);
        add::<M, J, V>(&mut odd, W::at(args, e + 1, j1), args.x, j1 * args.x.stride + col);
        e += 2;
    }
    if e < end {
        let j = cols[e] as usize;
        add::<M, J, V>(&mut even, W::at(args, e, j), args.x, j * args.x.stride + col);
    }
    for (even, odd) in even.iter_mut().zip(&odd) {
        for (a, b) in even.iter_mut().zip(odd) {
            *a = J::together(*a, *b);
        }
    }
    even
}

/// Asks for the tile of the row that entry `e` names, one line a vector.
#[inline(always)]
fn ask_for<const V: usize>(args: &Args<'_>, e: usize, col: usize) {
    if let Some(&j) = args.a.cols.get(e) {
        let start = j as usize * args.x.stride + col;
        for v in 0..V {
            prefetch(args.x.data, start + v * LANES);
        }
    }
}

/// Joins `V·16` floats of `x` from `start` on.
#[inline(always)]
fn add<M: Arith, J: Join, const V: usize>(
    sums: &mut [[f32; LANES]; V],
    weight: f32,
    x: Mat<'_>,
    start: usize,
) {
    let mut short;
    let tile = match x.data.get(start..start + V * LANES) {
        Some(tile) => tile,
        None => {
            // The end of the last rows: what is missing is never written.
            short = [[0.0; LANES]; V];
            let rest = &x.data[start..];
            short.as_flattened_mut()[..rest.len()].copy_from_slice(rest);
            short.as_flattened()
        }
    };
    for (sums, x) in sums.iter_mut().zip(tile.chunks_exact(LANES)) {
        for (sum, x) in sums.iter_mut().zip(x) {
            *sum = J::weighted::<M>(*sum, weight, *x);
        }
    }
}

/// Writes as much of a tile as `y` has room for; an empty row is 0, and 1 for a product.
#[inline(always)]
fn store<const V: usize>(
    sums: &[[f32; LANES]; V],
    y: &mut [f32],
    scale: Option<f32>,
    args: &Args<'_>,
    i: usize,
) {
    match scale {
        Some(scale) => y.iter_mut().zip(sums.as_flattened()).for_each(|(y, sum)| *y = sum * scale),
        None => {
            let empty = if args.reduce == Reduce::Mul { 1.0 } else { 0.0 };
            y.fill(empty * args.left.map_or(1.0, |left| left[i]));
        }
    }
}
