//! SpMM: `y_i = f(y_i + l_i · reduce_j (a_ij · r_j · x_j) + b)`, a sparse matrix times a dense one.
//!
//! ```text
//!  for each row i, for each tile of up to V vectors of 16 columns:
//!      two sets of V vectors of sums, in registers
//!      for each pair of entries (i, j), (i, j'):  x_j to one set, x_j' to the other
//!          and ask the memory for the rows of entries to come
//!      the two sets together, times l_i, to y_i
//! ```
//! The last vector of a tile ends where the tile does, and computes some columns of the one before
//! it again: no width needs padding or a slow tail.
//!
//! # Parallelism
//! Items are slices of about equal numbers of entries (`rows`, and `packed` for some columns
//! after others), blocks of columns (`columns`), or both (`grid`); a row far longer than a slice is
//! cut into parts of fixed length. All follow from the sizes and the matrix alone.
//! # Accuracy
//! The entries at even and at odd places of a row, or of a part of a long one, are added apart,
//! then together; parts are added in their order, whatever the number of threads.
//! # Memory
//! The list of items, and one row of sums for each part of a long row; `packed.v2` copies about 32
//! columns of `x` at a time, `packed.v4` about 64.

mod extreme;
mod hubs;
mod lines;
mod packed;
mod rows;
mod terms;

use std::ops::Range;
use std::slice;

use lacis_core::error::same_size;
use lacis_core::reference::{Reduce, Ties};
use lacis_core::{CsrView, Error, Result, Threads};

pub use extreme::{ExtremeBackward, arguments};

use crate::finish::{Accum, Epilogue};
use crate::isa::Isa;
use crate::matrix::{Mat, MatMut};
use crate::once::once;
use crate::real::{Real, Stored};
use rows::{Out, Part};

/// Entries of a slice: enough to make choosing slices cheap, few enough to balance threads.
pub const SLICE_ENTRIES: usize = 1 << 15;
/// Entries times columns of an item, below which another thread would not pay.
const ITEM_WORK: usize = 1 << 18;
/// Numbers that wait for their lines to be whole: some rows of most widths, and they stay near.
const STAGE: usize = 1 << 13;

/// A product to compute, its sizes checked.
#[derive(Clone, Copy, Debug)]
pub struct Args<'a, T: Stored = f32> {
    a: CsrView<'a>,
    values: Option<&'a [T::Sum]>,
    x: Mat<'a, T>,
    left: Option<&'a [T::Sum]>,
    right: Option<&'a [T::Sum]>,
    reduce: Reduce,
    epilogue: Epilogue<'a, T::Sum>,
    slices: Option<&'a [Range<usize>]>,
}

impl<'a, T: Stored> Args<'a, T> {
    /// `reduce_j (a_ij · x_j)`.
    ///
    /// # Errors
    /// When `x` has not one row per column of `a`, or the matrix has values that sums in `f64`
    /// would have to convert: those are given by [`Args::weighted`].
    pub fn new(a: CsrView<'a>, x: impl Into<Mat<'a, T>>, reduce: Reduce) -> Result<Self> {
        let x = x.into();
        same_size("spmm", "rows of x", a.n_cols, x.n_rows)?;
        let values = match a.values {
            None => None,
            Some(values) => Some(T::Sum::values(values).ok_or_else(|| {
                let problem = "are f32 but the product is f64; Args::weighted takes f64 values of \
                               a matrix without its own";
                Error::argument("the matrix's values", problem)
            })?),
        };
        let epilogue = Epilogue::default();
        Ok(Args { a, values, x, left: None, right: None, reduce, epilogue, slices: None })
    }

    /// Uses these values, in stored order, instead of the matrix's own.
    ///
    /// # Errors
    /// When there is not one value per entry.
    pub fn weighted(mut self, values: &'a [T::Sum]) -> Result<Self> {
        same_size("spmm", "number of values", self.a.cols.len(), values.len())?;
        self.values = Some(values);
        Ok(self)
    }

    /// Scales the result's rows by `left` and the operand's by `right`.
    ///
    /// # Errors
    /// When there is not one factor per row.
    pub fn scaled(
        mut self,
        left: Option<&'a [T::Sum]>,
        right: Option<&'a [T::Sum]>,
    ) -> Result<Self> {
        if let Some(left) = left {
            same_size("spmm", "number of left factors", self.a.n_rows(), left.len())?;
        }
        if let Some(right) = right {
            same_size("spmm", "number of right factors", self.a.n_cols, right.len())?;
        }
        (self.left, self.right) = (left, right);
        Ok(self)
    }

    /// Adds to what `y` holds, adds a bias, applies a function, as the epilogue says.
    ///
    /// # Errors
    /// When there is not one bias per column, or for a gate, which dense products alone have.
    pub fn ending(mut self, epilogue: Epilogue<'a, T::Sum>) -> Result<Self> {
        if matches!(epilogue.accum, Accum::Gate(_)) {
            return Err(Error::argument("spmm, ending", "a gate is of dense products alone"));
        }
        if let Some(bias) = epilogue.bias {
            same_size("spmm", "length of the bias", self.x.n_cols, bias.len())?;
        }
        self.epilogue = epilogue;
        Ok(self)
    }

    /// Uses slices that a graph keeps, instead of finding them again: of a matrix's own
    /// [`SLICE_ENTRIES`], or of whole graphs where a batch of small ones is one matrix.
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

    /// Number of columns.
    pub fn k(&self) -> usize {
        self.x.n_cols
    }

    /// Bytes of `x`.
    pub(crate) fn bytes(&self) -> usize {
        self.x.n_rows * self.x.n_cols * size_of::<T>()
    }
}

/// How many entries ahead rows are asked for: far into the second-level cache, near into the first;
/// 0 for not at all.
#[derive(Clone, Copy, Debug)]
struct Ahead {
    far: usize,
    near: usize,
    /// Whether rows of `x` do not all begin with a cache line.
    straddling: bool,
    /// Whether results go past the caches.
    past: bool,
}

/// How a product is cut into items.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cut {
    Rows,
    Columns,
    Grid,
    /// So many columns after others, copied together.
    Packed(usize),
}

/// One way to compute it.
#[derive(Debug)]
pub struct Kernel {
    /// `spmm.csr.rows.v4.far`: the operator, the format, who does what, the vectors of a tile, how
    /// far ahead memory is asked; `past` where results go past the caches: rows one after another
    /// that are not added to what is there, and of `packed` those parts that are whole lines.
    pub name: &'static str,
    cut: Cut,
    far: usize,
    near: usize,
    past: bool,
}

/// Every kernel there is. Tests, benches and the tuner walk this table; each takes any width.
pub static KERNELS: &[Kernel] = &[
    kernel("spmm.csr.rows.v4.far", Cut::Rows, [64, 12]),
    kernel("spmm.csr.rows.v4.farther", Cut::Rows, [128, 24]),
    kernel("spmm.csr.rows.v4.near", Cut::Rows, [0, 16]),
    EARLY,
    PLAIN,
    kernel("spmm.csr.columns.v4.near", Cut::Columns, [0, 16]),
    kernel("spmm.csr.grid.v4.far", Cut::Grid, [64, 12]),
    kernel("spmm.csr.packed.v2.farther", Cut::Packed(32), [128, 16]),
    kernel("spmm.csr.packed.v4.far", Cut::Packed(64), [64, 12]),
    past(kernel("spmm.csr.rows.v4.far.past", Cut::Rows, [64, 12])),
    past(kernel("spmm.csr.rows.v4.farther.past", Cut::Rows, [128, 24])),
    past(kernel("spmm.csr.rows.v4.early.past", Cut::Rows, [128, 0])),
    past(kernel("spmm.csr.rows.v4.plain.past", Cut::Rows, [0, 0])),
    past(kernel("spmm.csr.packed.v2.farther.past", Cut::Packed(32), [128, 16])),
    past(kernel("spmm.csr.packed.v4.far.past", Cut::Packed(64), [64, 12])),
];

/// Rows of `x` are asked for once.
pub const EARLY: Kernel = kernel("spmm.csr.rows.v4.early", Cut::Rows, [128, 0]);
/// They are near: nothing is asked for ahead.
pub const PLAIN: Kernel = kernel("spmm.csr.rows.v4.plain", Cut::Rows, [0, 0]);

const fn kernel(name: &'static str, cut: Cut, [far, near]: [usize; 2]) -> Kernel {
    Kernel { name, cut, far, near, past: false }
}

/// The same, its result written past the caches.
const fn past(kernel: Kernel) -> Kernel {
    Kernel { past: true, ..kernel }
}

impl Kernel {
    /// Computes the product into `y`.
    ///
    /// # Errors
    /// When `y` has another shape than the product.
    pub fn run<'y, T: Stored>(
        &self,
        isa: Isa,
        args: &Args<'_, T>,
        y: impl Into<MatMut<'y, T>>,
        threads: &Threads,
    ) -> Result<()> {
        T::spmm(self, isa, args, y.into(), threads)
    }

    /// Whether it copies columns of `x`, which takes memory.
    pub fn copies(&self) -> bool {
        matches!(self.cut, Cut::Packed(_))
    }

    fn run_here<T: Stored>(
        &self,
        isa: Isa,
        args: &Args<'_, T>,
        y: MatMut<'_, T>,
        threads: &Threads,
    ) -> Result<()> {
        same_size("spmm", "rows of y", args.a.n_rows(), y.n_rows)?;
        same_size("spmm", "columns of y", args.x.n_cols, y.n_cols)?;
        if y.n_rows == 0 || y.n_cols == 0 {
            return Ok(());
        }
        let all = 0..y.n_rows;
        match self.cut {
            Cut::Rows => hubs::run(self, isa, args, y, threads)?,
            Cut::Packed(width) => packed::run((self, width), isa, args, y, threads)?,
            Cut::Columns => {
                self.run_blocks(isa, args, blocks(y, slice::from_ref(&all)), threads);
            }
            Cut::Grid => {
                self.run_blocks(isa, args, blocks(y, &slices(args)), threads);
            }
        }
        Ok(())
    }

    fn run_blocks<T: Stored>(
        &self,
        isa: Isa,
        args: &Args<'_, T>,
        blocks: Vec<(Range<usize>, Out<'_, T>)>,
        threads: &Threads,
    ) {
        threads.for_each(blocks, |(rows, out)| self.run_part(isa, args, rows, out));
    }

    fn run_part<T: Stored>(
        &self,
        isa: Isa,
        args: &Args<'_, T>,
        rows: Range<usize>,
        out: Out<'_, T>,
    ) {
        let ahead = self.ahead(&args.x);
        let waits = self.past && out.waits(args, ahead);
        let mut room = waits.then(|| [T::narrow(T::Sum::ZERO); STAGE]);
        let stage = room.as_mut().map(|room| &mut room[..]);
        rows::run(Part { args, isa, ahead, rows, out, stage });
    }

    fn ahead<T: Stored>(&self, x: &Mat<'_, T>) -> Ahead {
        let aligned = (x.data.as_ptr() as usize).is_multiple_of(64)
            && (x.stride * size_of::<T>()).is_multiple_of(64);
        Ahead { far: self.far, near: self.near, straddling: !aligned, past: self.past }
    }
}

once!(Once:
    fn spmm(
        kernel: &Kernel,
        isa: Isa,
        args: &Args<'_, Self>,
        y: MatMut<'_, Self>,
        threads: &Threads,
    ) -> Result<()> = Kernel::run_here;
    fn spmm_arguments(
        isa: Isa,
        args: &Args<'_, Self>,
        out: (MatMut<'_, Self>, &mut [u32]),
        threads: &Threads,
    ) -> Result<()> = extreme::arguments_here;
    fn spmm_even(
        of: &ExtremeBackward<'_, Self>,
        isa: Isa,
        given: (Ties, Mat<'_, Self>, Mat<'_, Self>),
        dx: MatMut<'_, Self>,
        threads: &Threads,
    ) -> Result<()> = ExtremeBackward::even_here;
    fn spmm_chosen(
        of: &ExtremeBackward<'_, Self>,
        isa: Isa,
        given: (&[u32], Mat<'_, Self>),
        dx: MatMut<'_, Self>,
        threads: &Threads,
    ) -> Result<()> = ExtremeBackward::chosen_here;
);

/// The slices of a product: the graph's, or of as many entries as make an item worth a thread.
fn slices<T: Stored>(args: &Args<'_, T>) -> Vec<Range<usize>> {
    match args.slices {
        Some(slices) => slices.to_vec(),
        None => args.a.slices((ITEM_WORK / args.k()).clamp(512, SLICE_ENTRIES)),
    }
}

/// Slices times tiles of columns, each with its pieces of `y`'s rows.
fn blocks<'y, T: Stored>(
    y: MatMut<'y, T>,
    slices: &[Range<usize>],
) -> Vec<(Range<usize>, Out<'y, T>)> {
    let (n_cols, stride) = (y.n_cols, y.stride);
    let mut rows = y.data.chunks_mut(stride).map(|row| &mut row[..n_cols]);
    let mut items = Vec::new();
    for slice in slices {
        let mut blocks: Vec<_> = rows::tiles(n_cols).map(|tile| (tile, Vec::new())).collect();
        for mut row in rows.by_ref().take(slice.len()) {
            for (tile, block) in &mut blocks {
                block.push(row.split_off_mut(..tile.len()).unwrap_or_default());
            }
        }
        let out = blocks.into_iter().map(|(tile, rows)| (slice.clone(), Out::Block(tile, rows)));
        items.extend(out);
    }
    items
}
