//! One row of numbers per edge: in which order they lie, who computes which, who writes where.
//!
//! ```text
//!  stored order:   entry e of the matrix            -> row e
//!  caller's order: entry e, which stood at order[e] -> row order[e]
//! ```
//! In stored order a thread writes its own part of the output. In the caller's order any entry may
//! go anywhere: the output is cut into blocks, each behind a lock; a span's results are computed
//! apart, sorted by block, and each block is then written under its lock. Nobody else writes those
//! rows, so the order of the locks does not matter.

use std::ops::Range;
use std::sync::{Mutex, PoisonError};

use lacis_core::error::same_size;
use lacis_core::{CsrView, Result, Threads};

use crate::matrix::{Mat, MatMut};
use crate::real::Stored;

/// Entries of a span: enough to make choosing spans cheap, few enough to balance threads.
const SPAN_ENTRIES: usize = 1 << 15;
/// Numbers of a span that is first computed apart: few enough to stay in a near cache.
const APART_NUMBERS: usize = 1 << 16;
/// Into how many blocks an output in the caller's order is cut at most.
const BLOCKS: usize = 64;

/// In which order a per-edge matrix has its rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EdgeOrder {
    /// As the matrix stores its entries.
    #[default]
    Stored,
    /// As the caller's list had them. The same where the matrix knows no other order.
    Caller,
}

impl EdgeOrder {
    /// The row of each entry, where it is not the entry's own number.
    #[inline(always)]
    pub(crate) fn positions<'a>(self, a: &CsrView<'a>) -> Option<&'a [u32]> {
        match self {
            EdgeOrder::Stored => None,
            EdgeOrder::Caller => a.order,
        }
    }
}

/// Consecutive entries, and the rows they are in; the first and the last may be only partly in it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Span {
    pub rows: Range<usize>,
    pub entries: Range<usize>,
}

impl Span {
    /// The entries of row `i` that are in it.
    #[inline(always)]
    pub fn row(&self, a: &CsrView<'_>, i: usize) -> Range<usize> {
        let row = a.row(i);
        row.start.max(self.entries.start)..row.end.min(self.entries.end)
    }
}

/// Spans of about as many entries each, wherever rows begin: a hub is shared.
pub(crate) fn spans_of_entries(a: &CsrView<'_>, width: usize) -> Vec<Span> {
    let size = span_size(width);
    let nnz = a.cols.len();
    let mut spans = Vec::with_capacity(nnz.div_ceil(size));
    let mut row = 0;
    for start in (0..nnz).step_by(size) {
        let end = (start + size).min(nnz);
        row = row_of(a, row, start);
        let last = row_of(a, row, end - 1);
        spans.push(Span { rows: row..last + 1, entries: start..end });
        row = last;
    }
    spans
}

/// Spans of whole rows.
pub(crate) fn spans_of_rows(a: &CsrView<'_>, width: usize) -> Vec<Span> {
    let slices = a.slices(span_size(width)).into_iter();
    slices.map(|rows| Span { entries: a.span(rows.clone()), rows }).collect()
}

/// As [`spans_of_rows`], and the rows of `y` that belong to each.
pub(crate) fn spans_with_rows<'y, T: Stored>(
    a: &CsrView<'_>,
    y: MatMut<'y, T>,
) -> Vec<(Span, MatMut<'y, T>)> {
    let spans = spans_of_rows(a, 1);
    let ends: Vec<usize> = spans.iter().map(|span| span.rows.end).collect();
    spans.into_iter().zip(y.split(&ends)).collect()
}

fn span_size(width: usize) -> usize {
    (APART_NUMBERS / width.max(1)).clamp(64, SPAN_ENTRIES)
}

/// The row of entry `e`, which is not before row `from`.
fn row_of(a: &CsrView<'_>, from: usize, e: usize) -> usize {
    let (mut low, mut high) = (from, a.n_rows());
    while low + 1 < high {
        let middle = low + (high - low) / 2;
        if a.row_ptr.at(middle) <= e { low = middle } else { high = middle }
    }
    low
}

/// Per-edge rows to compute: which, and in which order they are wanted.
pub(crate) struct Task<'a> {
    pub a: CsrView<'a>,
    pub order: EdgeOrder,
    pub spans: Vec<Span>,
}

impl Task<'_> {
    /// `f` computes the rows of each span's entries, one after another; they go to their places in
    /// `out`, which has one row per entry. Each thread makes its own scratch memory.
    pub fn run<T: Stored, S>(
        self,
        out: MatMut<'_, T>,
        threads: &Threads,
        scratch: impl Fn() -> S + Sync,
        f: impl Fn(&mut S, &Span, MatMut<'_, T>) + Sync,
    ) {
        if out.n_rows == 0 || out.n_cols == 0 {
            return;
        }
        let Some(positions) = self.order.positions(&self.a) else {
            let ends: Vec<usize> = self.spans.iter().map(|span| span.entries.end).collect();
            let parts = self.spans.into_iter().zip(out.split(&ends)).collect();
            threads.map_with(parts, scratch, |own, (span, out)| f(own, &span, out));
            return;
        };
        let blocks = Blocks::new(out);
        let scratch = || (scratch(), Apart::default());
        threads.map_with(self.spans, scratch, |(own, apart), span| {
            apart.rows.resize(span.entries.len() * blocks.width, T::from_f64(0.0));
            f(own, &span, matrix_of(&mut apart.rows, blocks.width));
            apart.write(&positions[span.entries], &blocks);
        });
    }
}

/// Per-edge rows in the caller's order, from those in stored order.
///
/// # Errors
/// When either has not one row per entry, or their widths differ.
pub fn in_caller_order<'a, T: Stored>(
    a: CsrView<'_>,
    stored: impl Into<Mat<'a, T>>,
    caller: impl Into<MatMut<'a, T>>,
    threads: &Threads,
) -> Result<()> {
    let (stored, caller) = (stored.into(), caller.into());
    check_rows("in_caller_order", &a, &stored, &caller)?;
    let spans = spans_of_entries(&a, stored.n_cols);
    let task = Task { a, order: EdgeOrder::Caller, spans };
    task.run(
        caller,
        threads,
        || (),
        |(), span, mut out| {
            for (r, e) in span.entries.clone().enumerate() {
                out.row_mut(r).copy_from_slice(stored.row(e));
            }
        },
    );
    Ok(())
}

/// Per-edge rows in stored order, from those in the caller's order.
///
/// # Errors
/// When either has not one row per entry, or their widths differ.
pub fn in_stored_order<'a, T: Stored>(
    a: CsrView<'_>,
    caller: impl Into<Mat<'a, T>>,
    stored: impl Into<MatMut<'a, T>>,
    threads: &Threads,
) -> Result<()> {
    let (caller, stored) = (caller.into(), stored.into());
    check_rows("in_stored_order", &a, &caller, &stored)?;
    let spans = spans_of_entries(&a, caller.n_cols);
    let task = Task { a, order: EdgeOrder::Stored, spans };
    task.run(
        stored,
        threads,
        || (),
        |(), span, mut out| {
            for (r, e) in span.entries.clone().enumerate() {
                let at = a.order.map_or(e, |order| order[e] as usize);
                out.row_mut(r).copy_from_slice(caller.row(at));
            }
        },
    );
    Ok(())
}

fn check_rows<T>(
    op: &'static str,
    a: &CsrView<'_>,
    from: &Mat<'_, T>,
    to: &MatMut<'_, T>,
) -> Result<()> {
    same_size(op, "number of rows", a.cols.len(), from.n_rows)?;
    same_size(op, "number of rows of the result", a.cols.len(), to.n_rows)?;
    same_size(op, "number of columns of the result", from.n_cols, to.n_cols)
}

/// Rows of `width` numbers, one after another.
pub(crate) fn matrix_of<T>(data: &mut [T], width: usize) -> MatMut<'_, T> {
    let n_rows = data.len() / width.max(1);
    MatMut { data, n_rows, n_cols: width, stride: width }
}

/// The rows that entries name, one after another in `rows`.
pub(crate) fn gather<T: Stored>(x: Mat<'_, T>, positions: &[u32], rows: &mut Vec<T>) {
    rows.clear();
    for &at in positions {
        rows.extend_from_slice(x.row(at as usize));
    }
}

/// An output that several threads write, each anywhere.
struct Blocks<'a, T> {
    blocks: Vec<Mutex<MatMut<'a, T>>>,
    rows_of_block: usize,
    width: usize,
}

impl<'a, T: Stored> Blocks<'a, T> {
    fn new(out: MatMut<'a, T>) -> Self {
        let (n_rows, width) = (out.n_rows, out.n_cols);
        let rows_of_block = n_rows.div_ceil(BLOCKS).next_power_of_two();
        let count = n_rows.div_ceil(rows_of_block);
        let ends: Vec<usize> = (1..=count).map(|b| (b * rows_of_block).min(n_rows)).collect();
        let blocks = out.split(&ends).into_iter().map(Mutex::new).collect();
        Blocks { blocks, rows_of_block, width }
    }
}

/// A thread's results before they are written, and the list of them by block.
struct Apart<T> {
    rows: Vec<T>,
    by_block: Vec<[u32; 2]>,
}

impl<T> Default for Apart<T> {
    fn default() -> Self {
        Apart { rows: Vec::new(), by_block: Vec::new() }
    }
}

impl<T: Stored> Apart<T> {
    /// Writes row `r` to `positions[r]`, for all of them.
    fn write(&mut self, positions: &[u32], blocks: &Blocks<'_, T>) {
        let shift = blocks.rows_of_block.trailing_zeros();
        let mut starts = [0; BLOCKS + 1];
        positions.iter().for_each(|at| starts[(at >> shift) as usize + 1] += 1);
        (0..BLOCKS).for_each(|b| starts[b + 1] += starts[b]);
        self.by_block.resize(positions.len(), [0; 2]);
        let mut next = starts;
        for (r, &at) in positions.iter().enumerate() {
            let next = &mut next[(at >> shift) as usize];
            self.by_block[*next] = [at & (blocks.rows_of_block - 1) as u32, r as u32];
            *next += 1;
        }
        for (block, pair) in blocks.blocks.iter().zip(starts.windows(2)) {
            if pair[0] < pair[1] {
                let mut block = block.lock().unwrap_or_else(PoisonError::into_inner);
                copy_rows(&mut block, &self.rows, &self.by_block[pair[0]..pair[1]]);
            }
        }
    }
}

/// Row `to` of `block` becomes row `from` of `rows`, for each pair of them.
fn copy_rows<T: Stored>(block: &mut MatMut<'_, T>, rows: &[T], pairs: &[[u32; 2]]) {
    let width = block.n_cols;
    if width == 1 && block.stride == 1 {
        pairs.iter().for_each(|&[to, from]| block.data[to as usize] = rows[from as usize]);
        return;
    }
    for &[to, from] in pairs {
        block.row_mut(to as usize).copy_from_slice(&rows[from as usize * width..][..width]);
    }
}
