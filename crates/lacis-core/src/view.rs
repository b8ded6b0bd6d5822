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

    /// The first place within `places` where a position is at least `position`, or their end.
    fn first_at_least(&self, position: usize, places: Range<usize>) -> usize {
        let Range { mut start, mut end } = places;
        while start < end {
            let middle = start + (end - start) / 2;
            if self.at(middle) < position {
                start = middle + 1;
            } else {
                end = middle;
            }
        }
        start
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
        let (size, n_rows) = (size.max(1), self.n_rows());
        let mut slices = Vec::new();
        let mut start = 0;
        while start < n_rows {
            // The first row end at which there are enough entries, by halving: rows may be many.
            let enough = self.row_ptr.at(start).saturating_add(size);
            let mut end = self.row_ptr.first_at_least(enough, start + 1..n_rows);
            let last = end - 1;
            if last > start && self.row(last).len() >= size {
                end = last;
            }
            slices.push(start..end);
            start = end;
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

#[cfg(test)]
mod tests {
    use crate::{Coo, Extent, Repeats, Threads};

    #[test]
    fn slices_are_balanced_and_long_rows_alone() {
        let rows: Vec<u32> = [3u32, 1, 0, 0, 9, 2, 0, 4]
            .iter()
            .enumerate()
            .flat_map(|(i, &length)| vec![i as u32; length as usize])
            .collect();
        let cols = vec![0; rows.len()];
        let threads = Threads::one();
        let extent = Extent { n_rows: Some(9), n_cols: Some(1) };
        let coo = Coo::from_slices(&rows, &cols, None, &threads).unwrap();
        let a = coo.into_csr(extent, Repeats::Keep, &threads).unwrap();
        assert_eq!(a.slices(4), [0..2, 2..4, 4..5, 5..7, 7..8, 8..9]);
        assert_eq!(a.slices(5), [0..4, 4..5, 5..8, 8..9]);
        assert_eq!(a.slices(1000).len(), 1);
        assert_eq!(a.slices(0), a.slices(1));
        assert_eq!(a.slices(1), [0..1, 1..2, 2..4, 4..5, 5..6, 6..7, 7..8, 8..9]);
    }
}
