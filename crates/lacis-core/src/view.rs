//! [`CsrView`]: a sparse matrix as plain slices, for loops that look at every row.

use std::ops::Range;

use crate::csr::RowPtr;
use crate::{Csr, Threads};

/// The slices of a [`Csr`]. Cheap to copy and to index: where a buffer must first find its memory,
/// a slice knows.
#[derive(Clone, Copy, Debug)]
pub struct CsrView<'a> {
    /// Number of columns.
    pub n_cols: usize,
    /// Where each row begins.
    pub row_ptr: RowPtrView<'a>,
    /// Column of each entry.
    pub cols: &'a [u32],
    /// Value of each entry; absent means all ones.
    pub values: Option<&'a [f32]>,
    /// Position of each entry in the caller's list; absent means as stored.
    pub order: Option<&'a [u32]>,
}

/// The slice of a [`RowPtr`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum RowPtrView<'a> {
    /// Four bytes each.
    Narrow(&'a [u32]),
    /// Eight bytes each.
    Wide(&'a [u64]),
}

impl RowPtr {
    /// The positions as a slice.
    pub fn view(&self) -> RowPtrView<'_> {
        match self {
            RowPtr::Narrow(ptr) => RowPtrView::Narrow(ptr),
            RowPtr::Wide(ptr) => RowPtrView::Wide(ptr),
        }
    }
}

impl RowPtrView<'_> {
    /// Where row `i` begins and row `i - 1` ends.
    #[inline(always)]
    pub fn at(&self, i: usize) -> usize {
        match self {
            RowPtrView::Narrow(ptr) => ptr[i] as usize,
            RowPtrView::Wide(ptr) => ptr[i] as usize,
        }
    }

    /// One more than the number of rows.
    pub fn len(&self) -> usize {
        match self {
            RowPtrView::Narrow(ptr) => ptr.len(),
            RowPtrView::Wide(ptr) => ptr.len(),
        }
    }

    /// Whether there is not even the leading zero.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Csr {
    /// The matrix as slices.
    pub fn view(&self) -> CsrView<'_> {
        CsrView {
            n_cols: self.n_cols(),
            row_ptr: self.row_ptr().view(),
            cols: self.cols(),
            values: self.values(),
            order: self.order(),
        }
    }
}

/// How many entries one thread checks at a time.
const CHECK_ENTRIES: usize = 1 << 20;

impl<'a> CsrView<'a> {
    /// Number of rows.
    #[inline(always)]
    pub fn n_rows(&self) -> usize {
        self.row_ptr.len() - 1
    }

    /// The entries of row `i`, as positions in the other slices.
    #[inline(always)]
    pub fn row(&self, i: usize) -> Range<usize> {
        self.row_ptr.at(i)..self.row_ptr.at(i + 1)
    }

    /// The entries of consecutive rows.
    pub fn span(&self, rows: Range<usize>) -> Range<usize> {
        self.row_ptr.at(rows.start)..self.row_ptr.at(rows.end)
    }

    /// The columns of row `i`.
    #[inline(always)]
    pub fn row_cols(&self, i: usize) -> &'a [u32] {
        &self.cols[self.row(i)]
    }

    /// Value of entry `e`.
    #[inline(always)]
    pub fn value(&self, e: usize) -> f32 {
        self.values.map_or(1.0, |values| values[e])
    }

    /// Row ranges of about `size` entries each, at least one row long. A row of `size` entries or
    /// more is a slice of its own.
    pub fn slices(&self, size: usize) -> Vec<Range<usize>> {
        let size = size.max(1);
        let mut slices = Vec::new();
        let mut start = 0;
        for i in 0..self.n_rows() {
            let row = self.row_ptr.at(i)..self.row_ptr.at(i + 1);
            if row.len() >= size && start < i {
                slices.push(start..i);
                start = i;
            }
            let entries = row.end - self.row_ptr.at(start);
            if entries >= size || i + 1 == self.n_rows() {
                slices.push(start..i + 1);
                start = i + 1;
            }
        }
        slices
    }

    /// Whether `(column, next column)` holds `rule` for all neighbours within a row.
    ///
    /// Counting the pairs that break it without looking at rows takes a few instructions for many
    /// entries; those between two rows are then counted too, and do not matter.
    pub(crate) fn neighbours_obey(
        &self,
        rule: impl Fn(u32, u32) -> bool + Sync,
        threads: &Threads,
    ) -> bool {
        let obeys = |rows: Range<usize>| {
            let span = self.span(rows.clone());
            let cols = &self.cols[span.clone()];
            let pairs = cols.iter().zip(cols.iter().skip(1));
            let broken = pairs.filter(|(a, b)| !rule(**a, **b)).count();
            let mut border = span.start;
            let mut between = 0;
            for i in rows {
                let start = self.row_ptr.at(i);
                // Empty rows share their border with the next.
                if start > border && start < span.end {
                    between += usize::from(!rule(self.cols[start - 1], self.cols[start]));
                    border = start;
                }
            }
            broken == between
        };
        threads.map(self.slices(CHECK_ENTRIES), obeys).into_iter().all(|obeyed| obeyed)
    }
}
