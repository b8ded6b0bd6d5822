//! Reduce: `y_s = reduce { x_i : index(i) = s }`; empty segments are 0, and 1 for a product.
//!
//! ```text
//!  inorder   for each 16 columns: join each row where its index says, in the cache
//!  groups    for each segment, for each tile of columns: join its rows in registers; wide rows
//!            in strips, in the cache
//!  buckets   bring values together by blocks of segments; for each block: join them in the cache
//!  partials  for each chunk of rows: join them to a result of its own; then join the results
//!  direct    along columns, for each 8 rows: join each column where its index says, in the cache
//! ```
//! No atomics: every way has one writer for each place of `y`. To select and reduce in one step is
//! a product with a sparse matrix whose columns are the index: [`spmm`](crate::spmm) does it.
//!
//! # Parallelism
//! A thread does whole slices of segments, blocks or chunks, which follow from the sizes alone.
//! # Accuracy
//! `groups` joins the items at even and at odd places of a segment apart, then together, but for
//! single numbers and strips; `partials` those of each chunk.
//! # Memory
//! `groups` sorts an index that has not been sorted; `buckets` copies index and values;
//! `inorder` has its result twice, `partials` has up to 16 results.

use lacis_core::error::same_size;
use lacis_core::reference::{Axis, Reduce};
use lacis_core::{Error, Result, Threads};

use super::argument;
use super::columns::{self, TOGETHER};
use super::inorder;
use super::narrow::{buckets, partials};
use super::rows::{self, Part, STRIP};
use super::segments::Segments;
use super::turn::{Begin, TILE, along_columns};
use crate::isa::Isa;
use crate::matrix::{Mat, MatMut};
use crate::real::Stored;

/// Elements that one item of work reads.
const ITEM_ELEMENTS: usize = 1 << 18;
/// What a core keeps near, about.
const NEAR_BYTES: usize = 1 << 21;

/// A reduction to compute, its sizes checked.
#[derive(Clone, Copy, Debug)]
pub struct Args<'a, T = f32> {
    pub(super) x: Mat<'a, T>,
    pub(super) segments: Segments<'a>,
    pub(super) reduce: Reduce,
    pub(super) axis: Axis,
    pub(super) onto: Begin,
}

impl<'a, T: Stored> Args<'a, T> {
    /// The rows, or columns, of `x` reduced by segment.
    ///
    /// # Errors
    /// When `x` is not as long as the segments say.
    pub fn new(
        x: impl Into<Mat<'a, T>>,
        segments: Segments<'a>,
        reduce: Reduce,
        axis: Axis,
    ) -> Result<Self> {
        let x = x.into();
        let length = if axis == Axis::Rows { x.n_rows } else { x.n_cols };
        same_size("segment reduce", "length of x", segments.len(), length)?;
        Ok(Args { x, segments, reduce, axis, onto: Begin::Unset })
    }

    /// `y_index(i) += x_i`: sums that begin with what `y` holds.
    ///
    /// # Errors
    /// When `x` is not as long as the segments say.
    pub fn index_add(x: impl Into<Mat<'a, T>>, by: Segments<'a>, axis: Axis) -> Result<Self> {
        Ok(Args { onto: Begin::AsGiven, ..Args::new(x, by, Reduce::Sum, axis)? })
    }

    /// Rows and columns of the result.
    pub(super) fn shape(&self) -> (usize, usize) {
        match self.axis {
            Axis::Rows => (self.segments.n(), self.x.n_cols),
            Axis::Cols => (self.x.n_rows, self.segments.n()),
        }
    }

    /// Columns that are reduced together: along columns, tiles of rows are turned.
    fn width(&self) -> usize {
        match self.axis {
            Axis::Rows => self.x.n_cols,
            Axis::Cols => self.x.n_rows.min(TILE),
        }
    }

    pub(super) fn check_result(&self, what: [&'static str; 2], y: &Mat<'_, T>) -> Result<()> {
        let (n_rows, n_cols) = self.shape();
        same_size("segment reduce", what[0], n_rows, y.n_rows)?;
        same_size("segment reduce", what[1], n_cols, y.n_cols)
    }

    /// Reduces to a maximum or minimum, and says which item each is: the first of equals, the last
    /// NaN. `arguments` has the shape of `y`, rows one after another; `u32::MAX` stands for none.
    ///
    /// # Errors
    /// When `y` or `arguments` has another shape than the result, or another reduce was asked for.
    pub fn run_with_argument<'y>(
        &self,
        isa: Isa,
        y: impl Into<MatMut<'y, T>>,
        arguments: &mut [u32],
        threads: &Threads,
    ) -> Result<()> {
        let y = y.into();
        self.check_result(["rows of y", "columns of y"], &y.as_mat())?;
        argument::run(isa, self, (y, arguments), threads)
    }
}

/// One way to compute it.
pub struct Kernel {
    /// `segment.rows.groups.v4`: the operator, along what, who does what, the tile.
    pub name: &'static str,
    way: Way,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    Groups(rows::Tile),
    InOrder,
    Buckets,
    Partials,
    Direct,
}

/// Every kernel there is. Tests, benches and the tuner walk this table.
pub static KERNELS: &[Kernel] = &[
    Kernel { name: "segment.rows.groups.v4", way: Way::Groups(rows::Tile::Wide) },
    Kernel { name: "segment.rows.groups.v1", way: Way::Groups(rows::Tile::Vector) },
    Kernel { name: "segment.rows.groups.scalar", way: Way::Groups(rows::Tile::Scalar) },
    Kernel { name: "segment.rows.groups.strip", way: Way::Groups(rows::Tile::Strip) },
    Kernel { name: "segment.rows.inorder", way: Way::InOrder },
    Kernel { name: "segment.rows.buckets", way: Way::Buckets },
    Kernel { name: "segment.rows.partials", way: Way::Partials },
    Kernel { name: "segment.cols.direct", way: Way::Direct },
];

/// The kernel that the sizes suggest.
pub fn choose<T: Stored>(args: &Args<'_, T>) -> &'static Kernel {
    let k = args.width();
    let (len, n) = (args.segments.len(), args.segments.n());
    let by = |name: &str| KERNELS.iter().find(|kernel| kernel.name.ends_with(name));
    // Results of chunks that stay in the cache, and are few against the items.
    let few = n * k <= 1 << 14 && len >= 64 * n.max(1) || k == 1 && n <= 1 << 19 && len >= 4 * n;
    // A choice by comparison takes more registers than the wide tile leaves.
    let wide = k > 32 && matches!(args.reduce, Reduce::Sum | Reduce::Mean | Reduce::Mul);
    // Enough rows for threads to share, and what they become stays near.
    let joined_bytes = n * TOGETHER * size_of::<T::Sum>();
    let direct =
        args.axis == Axis::Cols && args.x.n_rows >= 4 * TOGETHER && joined_bytes <= NEAR_BYTES;
    // Two blocks of columns, so that threads share them, and results that stay near.
    let near = n * inorder::WIDTH * size_of::<T::Sum>() <= NEAR_BYTES;
    let in_order = near && (2 * inorder::WIDTH..STRIP / 4).contains(&k) && len >= n / 4;
    let chosen = match (args.segments.is_grouped(), k) {
        _ if direct => by("direct"),
        (false, _) if few => by("partials"),
        (false, 1) if len >= 1 << 12 => by("buckets"),
        (false, _) if in_order && args.axis == Axis::Rows => by("inorder"),
        (_, 1) => by("scalar"),
        _ if k >= STRIP / 4 => by("strip"),
        _ if wide => by("v4"),
        _ => by("v1"),
    };
    chosen.unwrap_or(&KERNELS[0])
}

impl Kernel {
    /// Whether it can compute this: `buckets` takes single columns, `partials` what its results'
    /// memory allows, `inorder` the same along rows, `direct` what is along columns; there all
    /// others work on tiles of 16.
    pub fn accepts<T: Stored>(&self, args: &Args<'_, T>) -> bool {
        let width = args.width();
        match self.way {
            Way::Groups(_) => true,
            Way::Buckets => width == 1,
            Way::InOrder if args.axis == Axis::Cols => false,
            Way::InOrder => args.segments.n().saturating_mul(width) <= 1 << 24,
            Way::Partials => args.segments.n().saturating_mul(width) <= 1 << 20,
            Way::Direct => args.axis == Axis::Cols,
        }
    }

    /// Computes the reduction into `y`, or adds it onto `y`.
    ///
    /// # Errors
    /// When `y` has another shape than the result, or the kernel does not accept the problem.
    pub fn run<'y, T: Stored>(
        &self,
        isa: Isa,
        args: &Args<'_, T>,
        y: impl Into<MatMut<'y, T>>,
        threads: &Threads,
    ) -> Result<()> {
        T::segment_reduce(self, isa, args, y.into(), threads)
    }

    pub(super) fn run_here<T: Stored>(
        &self,
        isa: Isa,
        args: &Args<'_, T>,
        y: MatMut<'_, T>,
        threads: &Threads,
    ) -> Result<()> {
        args.check_result(["rows of y", "columns of y"], &y.as_mat())?;
        if !self.accepts(args) {
            let problem = "is not for a problem of this size; `choose` names one that is";
            return Err(Error::argument(self.name, problem));
        }
        if y.n_rows == 0 || y.n_cols == 0 {
            return Ok(());
        }
        match (args.axis, self.way) {
            (_, Way::Direct) => columns::run(isa, args, y, threads)?,
            (_, Way::InOrder) => inorder::run(isa, args, y, threads)?,
            (Axis::Rows, _) => self.along_rows(isa, args, y, threads),
            (Axis::Cols, Way::Groups(_)) => args.segments.grouped(threads, |segments| {
                self.along_turned(isa, &Args { segments, ..*args }, y, threads);
            }),
            (Axis::Cols, _) => self.along_turned(isa, args, y, threads),
        }
        Ok(())
    }

    fn along_turned<T: Stored>(
        &self,
        isa: Isa,
        args: &Args<'_, T>,
        y: MatMut<'_, T>,
        threads: &Threads,
    ) {
        along_columns((isa, args.onto), [args.x], y, threads, |[x], y, threads| {
            self.along_rows(isa, &Args { x, axis: Axis::Rows, ..*args }, y, threads);
        });
    }

    fn along_rows<T: Stored>(
        &self,
        isa: Isa,
        args: &Args<'_, T>,
        y: MatMut<'_, T>,
        threads: &Threads,
    ) {
        match self.way {
            Way::Groups(tile) => args.segments.grouped(threads, |segments| {
                groups(isa, &Args { segments, ..*args }, (tile, y), threads);
            }),
            Way::Buckets => buckets(args, y, threads),
            Way::Partials => partials(isa, args, y, threads),
            Way::InOrder | Way::Direct => unreachable!("they choose their own axis"),
        }
    }
}

fn groups<T: Stored>(
    isa: Isa,
    args: &Args<'_, T>,
    (tile, y): (rows::Tile, MatMut<'_, T>),
    threads: &Threads,
) {
    let Some(members) = args.segments.members() else { return };
    let slices = members.slices(ITEM_ELEMENTS / y.n_cols.max(1));
    let ends: Vec<usize> = slices.iter().map(|slice| slice.end).collect();
    let items = slices.into_iter().zip(y.split(&ends)).collect();
    let Args { x, reduce, onto, .. } = *args;
    threads.for_each(items, |(segments, y)| {
        rows::run(isa, tile, Part { x, members, reduce, onto, segments, y });
    });
}
