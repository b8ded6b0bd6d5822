//! [`Csr`]: a sparse matrix by rows.
//!
//! ```text
//!       0 1 2 3
//!   0 [ . a . b ]      row_ptr = 0     2   3     5
//!   1 [ . . c . ]      cols    = 1 3 | 2 | 0 0
//!   2 [ d+e . . ]      values  = a b | c | d e      (absent: all ones)
//!                      order   = where each entry stood in the caller's list (absent: as here)
//! ```
//! Rectangular in general. A column may repeat within a row: its entries count as their sum. As a
//! graph's adjacency, rows are targets and columns sources: `y = A·x` gathers from the neighbours
//! that point to a node. Checked once when made; code that holds one trusts it.

use std::ops::Range;

use crate::coo::{Coo, Extent, Repeats, Tags, check_index_count, chunk_entries};
use crate::error::same_size;
use crate::threads::ranges;
use crate::{Buffer, Error, Result, Threads};

/// Where each row begins: `n_rows + 1` positions, four bytes each where they fit.
#[derive(Clone, Debug)]
pub enum RowPtr {
    /// At most `u32::MAX` entries.
    Narrow(Buffer<u32>),
    /// More than that, or as a caller had them.
    Wide(Buffer<u64>),
}

impl RowPtr {
    /// From the rows' lengths, whose sum is `nnz`.
    pub(crate) fn from_lengths(
        lengths: impl Iterator<Item = usize>,
        n_rows: usize,
        nnz: usize,
    ) -> Self {
        let mut end = 0;
        let ends = lengths.map(|length| {
            end += length;
            end
        });
        if u32::try_from(nnz).is_ok() {
            let mut ptr = Buffer::zeroed(n_rows + 1);
            ptr.make_mut()[1..].iter_mut().zip(ends).for_each(|(p, end)| *p = end as u32);
            RowPtr::Narrow(ptr)
        } else {
            let mut ptr = Buffer::zeroed(n_rows + 1);
            ptr.make_mut()[1..].iter_mut().zip(ends).for_each(|(p, end)| *p = end as u64);
            RowPtr::Wide(ptr)
        }
    }

    /// One more than the number of rows.
    pub fn len(&self) -> usize {
        match self {
            RowPtr::Narrow(ptr) => ptr.len(),
            RowPtr::Wide(ptr) => ptr.len(),
        }
    }

    /// Whether there is not even the leading zero.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Where row `i` begins and row `i - 1` ends.
    #[inline]
    pub fn at(&self, i: usize) -> usize {
        match self {
            RowPtr::Narrow(ptr) => ptr[i] as usize,
            RowPtr::Wide(ptr) => ptr[i] as usize,
        }
    }

    /// All positions, as wide integers.
    pub fn to_vec(&self) -> Vec<u64> {
        match self {
            RowPtr::Narrow(ptr) => ptr.iter().map(|&p| u64::from(p)).collect(),
            RowPtr::Wide(ptr) => ptr.to_vec(),
        }
    }

    /// Starts at 0, never falls, ends at `nnz`.
    fn check(&self, nnz: usize) -> Result<()> {
        let found = match self {
            RowPtr::Narrow(ptr) => first_fall(ptr),
            RowPtr::Wide(ptr) => first_fall(ptr),
        };
        if let Some(at) = found {
            let (index, bound) = (self.at(at) as u64, self.at(at + 1) as u64 + 1);
            return Err(Error::Index { op: "csr", what: "row pointer", index, at, bound });
        }
        same_size("csr", "first row pointer", 0, self.at(0))?;
        same_size("csr", "last row pointer", nnz, self.at(self.len() - 1))
    }

    /// Four bytes each where the positions allow.
    fn narrowed(self) -> Self {
        match self {
            RowPtr::Wide(ptr) if ptr.last().is_some_and(|&nnz| nnz <= u64::from(u32::MAX)) => {
                let mut narrow = Buffer::zeroed(ptr.len());
                narrow.make_mut().iter_mut().zip(&*ptr).for_each(|(n, &wide)| *n = wide as u32);
                RowPtr::Narrow(narrow)
            }
            other => other,
        }
    }
}

/// The first position that is larger than the next.
fn first_fall<T: PartialOrd>(ptr: &[T]) -> Option<usize> {
    ptr.windows(2).position(|pair| pair[0] > pair[1])
}

/// Whether the columns ascend within each row (repeats allowed).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ColumnOrder {
    /// They do.
    Sorted,
    /// Somewhere they do not.
    Unsorted,
}

/// The arrays of a [`Csr`], not yet checked.
#[derive(Clone, Debug)]
pub struct CsrParts {
    /// Number of columns.
    pub n_cols: usize,
    /// Where each row begins.
    pub row_ptr: RowPtr,
    /// Column of each entry.
    pub cols: Buffer<u32>,
    /// Value of each entry; absent means all ones.
    pub values: Option<Buffer<f32>>,
    /// Position of each entry in the caller's list, which has the same entries.
    pub order: Option<Buffer<u32>>,
}

/// A sparse matrix by rows. See the module's head.
#[derive(Clone, Debug)]
pub struct Csr {
    parts: CsrParts,
    columns: ColumnOrder,
}

/// How many indices one thread checks at a time.
const CHECK_INDICES: usize = 1 << 20;

impl Csr {
    /// Checks the arrays and takes them over.
    ///
    /// # Errors
    /// When lengths disagree, row pointers fall, or a column or position is out of range.
    pub fn new(parts: CsrParts, threads: &Threads) -> Result<Self> {
        let nnz = parts.cols.len();
        if parts.row_ptr.is_empty() {
            return Err(Error::Shape { op: "csr", what: "row pointers", expected: 1, found: 0 });
        }
        check_index_count("row", parts.row_ptr.len() - 1)?;
        check_index_count("column", parts.n_cols)?;
        parts.row_ptr.check(nnz)?;
        if let Some(values) = &parts.values {
            same_size("csr", "number of values", nnz, values.len())?;
        }
        if let Some(order) = &parts.order {
            same_size("csr", "number of positions", nnz, order.len())?;
            check_permutation(order)?;
        }
        check_below("column", &parts.cols, parts.n_cols, threads)?;
        let mut csr = Csr { parts, columns: ColumnOrder::Unsorted };
        csr.parts.row_ptr = csr.parts.row_ptr.narrowed();
        csr.columns = csr.find_column_order(threads);
        Ok(csr)
    }

    /// A matrix that was built right; only for builders in this crate.
    pub(crate) fn trusted(
        n_cols: usize,
        row_ptr: RowPtr,
        cols: Buffer<u32>,
        columns: ColumnOrder,
    ) -> Self {
        Csr { parts: CsrParts { n_cols, row_ptr, cols, values: None, order: None }, columns }
    }

    pub(crate) fn trusting_values(mut self, values: Buffer<f32>) -> Self {
        assert_eq!(values.len(), self.nnz());
        self.parts.values = Some(values);
        self
    }

    pub(crate) fn trusting_order(mut self, order: Buffer<u32>) -> Self {
        assert_eq!(order.len(), self.nnz());
        self.parts.order = Some(order);
        self
    }

    /// A matrix without entries.
    ///
    /// # Errors
    /// When there are more than `u32::MAX` rows or columns.
    pub fn empty(n_rows: usize, n_cols: usize) -> Result<Self> {
        check_index_count("row", n_rows)?;
        let row_ptr = RowPtr::Narrow(Buffer::zeroed(n_rows + 1));
        let cols = Buffer::zeroed(0);
        Csr::new(CsrParts { n_cols, row_ptr, cols, values: None, order: None }, &Threads::one())
    }

    /// Number of rows.
    pub fn n_rows(&self) -> usize {
        self.parts.row_ptr.len() - 1
    }

    /// Number of columns.
    pub fn n_cols(&self) -> usize {
        self.parts.n_cols
    }

    /// Number of stored entries.
    pub fn nnz(&self) -> usize {
        self.parts.cols.len()
    }

    /// The entries of row `i`, as positions in [`Csr::cols`].
    #[inline]
    pub fn row(&self, i: usize) -> Range<usize> {
        self.parts.row_ptr.at(i)..self.parts.row_ptr.at(i + 1)
    }

    /// The columns of row `i`.
    #[inline]
    pub fn row_cols(&self, i: usize) -> &[u32] {
        &self.parts.cols[self.row(i)]
    }

    /// Where each row begins.
    pub fn row_ptr(&self) -> &RowPtr {
        &self.parts.row_ptr
    }

    /// Column of each entry.
    pub fn cols(&self) -> &[u32] {
        &self.parts.cols
    }

    /// Value of each entry; `None` means all ones.
    pub fn values(&self) -> Option<&[f32]> {
        self.parts.values.as_deref()
    }

    /// Value of entry `e`.
    #[inline]
    pub fn value(&self, e: usize) -> f32 {
        self.parts.values.as_ref().map_or(1.0, |values| values[e])
    }

    /// Position of each entry in the caller's list; `None` means as stored.
    pub fn order(&self) -> Option<&[u32]> {
        self.parts.order.as_deref()
    }

    /// Whether the columns ascend within each row.
    pub fn column_order(&self) -> ColumnOrder {
        self.columns
    }

    /// The arrays, to read.
    pub fn parts(&self) -> &CsrParts {
        &self.parts
    }

    /// The matrix with other values.
    ///
    /// # Errors
    /// When their number is not the number of entries.
    pub fn with_values(mut self, values: Option<Buffer<f32>>) -> Result<Self> {
        if let Some(values) = &values {
            same_size("csr", "number of values", self.nnz(), values.len())?;
        }
        self.parts.values = values;
        Ok(self)
    }

    /// The matrix without its value array if every value is one, which means the same.
    pub fn without_unit_values(mut self) -> Self {
        if self.values().is_some_and(|values| values.iter().all(|&v| v == 1.0)) {
            self.parts.values = None;
        }
        self
    }

    /// The matrix without the caller's order.
    pub fn without_order(mut self) -> Self {
        self.parts.order = None;
        self
    }

    /// Every entry as `(row, column, value)`, in stored order.
    pub fn entries(&self) -> impl Iterator<Item = (usize, usize, f32)> {
        let a = self.view();
        let row = move |i| a.row(i).map(move |e| (i, a.cols[e] as usize, a.value(e)));
        (0..self.n_rows()).flat_map(row)
    }

    /// Bytes of the arrays.
    pub fn bytes(&self) -> usize {
        let wide = if matches!(self.parts.row_ptr, RowPtr::Wide(_)) { 8 } else { 4 };
        let per_entry = [self.parts.values.is_some(), self.parts.order.is_some()];
        let per_entry = 4 + 4 * per_entry.iter().filter(|present| **present).count();
        self.parts.row_ptr.len() * wide + self.nnz() * per_entry
    }

    /// Number of entries of each row.
    pub fn row_lengths(&self) -> Vec<u32> {
        let a = self.view();
        (0..a.n_rows()).map(|i| a.row(i).len() as u32).collect()
    }

    /// Sum of the values of each row: the weighted degree.
    pub fn row_sums(&self) -> Vec<f64> {
        let a = self.view();
        let sum = |i| match a.values {
            None => a.row(i).len() as f64,
            Some(values) => values[a.row(i)].iter().map(|&v| f64::from(v)).sum(),
        };
        (0..a.n_rows()).map(sum).collect()
    }

    /// Number of entries of each column.
    pub fn col_lengths(&self) -> Vec<u32> {
        let mut lengths = vec![0; self.n_cols()];
        self.cols().iter().for_each(|&j| lengths[j as usize] += 1);
        lengths
    }

    /// Row ranges of about `size` entries each, at least one row long: who does which part.
    pub fn slices(&self, size: usize) -> Vec<Range<usize>> {
        self.view().slices(size)
    }

    fn find_column_order(&self, threads: &Threads) -> ColumnOrder {
        let ascends = self.view().neighbours_obey(|a, b| a <= b, threads);
        if ascends { ColumnOrder::Sorted } else { ColumnOrder::Unsorted }
    }

    /// Whether a column repeats within a row.
    pub fn has_repeats(&self, threads: &Threads) -> bool {
        match self.columns {
            ColumnOrder::Sorted => !self.view().neighbours_obey(|a, b| a != b, threads),
            ColumnOrder::Unsorted => self.sorted(Repeats::Keep, threads).has_repeats(threads),
        }
    }

    /// The matrix with ascending columns, repeated ones as `repeats` says. The caller's order stays
    /// known where all entries stay.
    ///
    /// # Panics
    /// When asked to sum entries that have no values: without values a sum is not all ones.
    pub fn sorted(&self, repeats: Repeats, threads: &Threads) -> Csr {
        if repeats != Repeats::Keep && self.order().is_some() {
            return self.clone().without_order().sorted(repeats, threads);
        }
        let extent = Extent { n_rows: Some(self.n_rows()), n_cols: Some(self.n_cols()) };
        let coo = self.coo(threads, |i, j| [i, j]);
        self.rebuilt(coo, extent, repeats, threads)
    }

    /// The transpose `Aᵀ`, its columns ascending within each row.
    pub fn transpose(&self, threads: &Threads) -> Csr {
        let extent = Extent { n_rows: Some(self.n_cols()), n_cols: Some(self.n_rows()) };
        let coo = self.coo(threads, |i, j| [j, i]).with_ascending_columns();
        self.rebuilt(coo, extent, Repeats::Keep, threads)
    }

    /// The transpose, knowing for each entry where it stands in the caller's list, or in this
    /// matrix where the caller's order is its own.
    pub fn transpose_with_order(&self, threads: &Threads) -> Result<Csr> {
        if self.order().is_some() {
            return Ok(self.transpose(threads));
        }
        let limit = u128::from(u32::MAX);
        let nnz = u32::try_from(self.nnz()).map_err(|_| Error::Overflow {
            what: "number of entries of a matrix that keeps their order",
            value: self.nnz() as u128,
            limit,
        })?;
        let ordered = self.clone().trusting_order((0..nnz).collect::<Vec<_>>().into());
        Ok(ordered.transpose(threads))
    }

    /// The entries as a list, each at `place(row, column)`, carrying what [`Csr::rebuilt`] needs.
    fn coo(&self, threads: &Threads, place: impl Fn(u32, u32) -> [u32; 2] + Sync) -> Coo {
        let mut coo = Coo::expecting(
            self.nnz(),
            match (self.values(), self.order()) {
                (None, None) => Tags::Absent,
                (Some(_), None) => Tags::Values,
                (_, Some(_)) => Tags::Order,
            },
        );
        let a = self.view();
        coo.extend(a.slices(chunk_entries(self.nnz())), threads, |rows, chunk| {
            let span = a.span(rows.clone());
            chunk.places.reserve(span.len());
            for i in rows {
                chunk.places.extend(a.row_cols(i).iter().map(|&j| place(i as u32, j)));
            }
            match (a.values, a.order) {
                (None, None) => {}
                (Some(values), None) => {
                    chunk.tags.extend(values[span].iter().map(|value| value.to_bits()));
                }
                (_, Some(_)) => chunk.tags.extend(span.map(|e| e as u32)),
            }
            Ok(())
        })
        .expect("the source cannot fail");
        coo
    }

    /// The matrix of a list made by [`Csr::coo`]: where an order is kept, tags are positions here.
    fn rebuilt(&self, coo: Coo, extent: Extent, repeats: Repeats, threads: &Threads) -> Csr {
        let csr = coo.into_csr(extent, repeats, threads).expect("entries are inside the matrix");
        let Some(order) = self.order() else {
            return csr;
        };
        let positions = csr.order().expect("tags were positions").to_vec();
        let caller: Vec<u32> = positions.iter().map(|&e| order[e as usize]).collect();
        let values: Option<Vec<f32>> =
            self.values().map(|values| positions.iter().map(|&e| values[e as usize]).collect());
        let csr = csr.trusting_order(caller.into());
        match values {
            Some(values) => csr.trusting_values(values.into()),
            None => csr,
        }
    }

    /// Whether `A = Aᵀ`, values and repeats included.
    pub fn is_symmetric(&self, threads: &Threads) -> bool {
        if self.n_rows() != self.n_cols() {
            return false;
        }
        let plain = self.clone().without_order();
        let sorted = match self.columns {
            ColumnOrder::Sorted => plain,
            ColumnOrder::Unsorted => plain.sorted(Repeats::Keep, threads),
        };
        sorted.same_entries(&sorted.transpose(threads))
    }

    /// Whether both hold the same entries in the same places; the caller's order does not count.
    pub fn same_entries(&self, other: &Csr) -> bool {
        (self.n_rows(), self.n_cols(), self.nnz()) == (other.n_rows(), other.n_cols(), other.nnz())
            && self.cols() == other.cols()
            && self.row_ptr().view() == other.row_ptr().view()
            && match (self.values(), other.values()) {
                (None, None) => true,
                (Some(values), Some(others)) => values == others,
                (Some(values), None) | (None, Some(values)) => values.iter().all(|&v| v == 1.0),
            }
    }

    /// The matrix with rows and columns renumbered: `new[old]` is a node's new number.
    ///
    /// # Errors
    /// When the matrix is not square or `new` is not a permutation of its rows.
    pub fn renumbered(&self, new: &[u32], threads: &Threads) -> Result<Csr> {
        same_size("renumber", "number of columns", self.n_rows(), self.n_cols())?;
        same_size("renumber", "length of the permutation", self.n_rows(), new.len())?;
        check_permutation(new)?;
        let extent = Extent { n_rows: Some(self.n_rows()), n_cols: Some(self.n_cols()) };
        let coo = self.coo(threads, |i, j| [new[i as usize], new[j as usize]]);
        Ok(self.rebuilt(coo, extent, Repeats::Keep, threads))
    }
}

/// Every index once.
pub(crate) fn check_permutation(new: &[u32]) -> Result<()> {
    let mut seen = vec![false; new.len()];
    for (at, &index) in new.iter().enumerate() {
        match seen.get_mut(index as usize) {
            Some(seen) if !*seen => *seen = true,
            Some(_) => {
                return Err(Error::argument("permutation", format!("{index} occurs twice")));
            }
            None => {
                let (index, bound) = (u64::from(index), new.len() as u64);
                return Err(Error::Index { op: "permutation", what: "index", index, at, bound });
            }
        }
    }
    Ok(())
}

/// Every index below the bound; the first one that is not is named.
pub(crate) fn check_below(
    what: &'static str,
    indices: &[u32],
    bound: usize,
    threads: &Threads,
) -> Result<()> {
    if u32::try_from(bound).is_err() {
        return Ok(());
    }
    let bound = bound as u32;
    // The maximum of a block vectorises; only a block that fails is searched.
    let worst = |range: Range<usize>| {
        let fits = indices[range.clone()].iter().fold(0, |max, &index| max.max(index)) < bound;
        if fits { None } else { range.into_iter().find(|&at| indices[at] >= bound) }
    };
    match threads.map(ranges(indices.len(), CHECK_INDICES), worst).into_iter().flatten().next() {
        None => Ok(()),
        Some(at) => {
            let (index, bound) = (u64::from(indices[at]), u64::from(bound));
            Err(Error::Index { op: "csr", what, index, at, bound })
        }
    }
}
