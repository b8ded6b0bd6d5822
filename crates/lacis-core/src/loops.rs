//! Self-loops: entries `(i, i)` of a square adjacency, and the ways libraries treat them.

use crate::csr::{ColumnOrder, RowPtr};
use crate::error::same_size;
use crate::{Buffer, Csr, CsrView, Error, Result};

/// What to do with self-loops. PyG does the second, third or fourth, depending on how the graph is
/// stored; parity needs each.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum SelfLoops {
    /// None stays.
    Remove,
    /// Nodes without a loop get one of this weight; existing ones stay
    /// (`add_remaining_self_loops` on an `edge_index`).
    AddMissing(f32),
    /// Every node gets one more loop of this weight (a CSR tensor in PyG).
    AddAll(f32),
    /// Every node has exactly one loop, of this weight (a `SparseTensor` in PyG).
    Set(f32),
}

impl Csr {
    /// How many entries are on the diagonal.
    pub fn count_self_loops(&self) -> usize {
        let a = self.view();
        let loops = |i: usize| a.row_cols(i).iter().filter(|&&j| j as usize == i).count();
        (0..a.n_rows()).map(loops).sum()
    }

    /// The matrix with its self-loops treated as asked, columns sorted where they were.
    ///
    /// A loop that is added counts, in the caller's order, as appended to the list: that of node
    /// `i` as entry `nnz + i`.
    ///
    /// # Errors
    /// When the matrix is not square, or positions would pass `u32::MAX`.
    pub fn with_self_loops(&self, loops: SelfLoops) -> Result<Csr> {
        same_size("self-loops", "number of columns", self.n_rows(), self.n_cols())?;
        let weight = match loops {
            SelfLoops::Remove => 1.0,
            SelfLoops::AddMissing(w) | SelfLoops::AddAll(w) | SelfLoops::Set(w) => w,
        };
        let weighted = self.values().is_some() || weight != 1.0;
        let total = self.nnz() as u128 + self.n_rows() as u128;
        if self.order().is_some() && total > u128::from(u32::MAX) {
            let what = "number of entries with self-loops";
            return Err(Error::Overflow { what, value: total, limit: u128::from(u32::MAX) });
        }
        let mut out = Rows { weighted, ordered: self.order().is_some(), ..Rows::default() };
        let a = self.view();
        for i in 0..a.n_rows() {
            copy_row(a, i, (loops, weight, self.column_order()), &mut out);
        }
        Ok(out.into_csr(self))
    }
}

/// Row `i` with its loops treated, appended to `out`.
fn copy_row(
    a: CsrView<'_>,
    i: usize,
    (loops, weight, columns): (SelfLoops, f32, ColumnOrder),
    out: &mut Rows,
) {
    let is_loop = |e: &usize| a.cols[*e] as usize == i;
    let keep = matches!(loops, SelfLoops::AddMissing(_) | SelfLoops::AddAll(_));
    let add = match loops {
        SelfLoops::Remove => false,
        SelfLoops::AddMissing(_) => !a.row(i).any(|e| is_loop(&e)),
        SelfLoops::AddAll(_) | SelfLoops::Set(_) => true,
    };
    let start = out.cols.len();
    for e in a.row(i).filter(|e| keep || !is_loop(e)) {
        out.push(a.cols[e], a.value(e), a.order.map_or(0, |order| order[e]));
    }
    if add {
        out.push(i as u32, weight, (a.cols.len() + i) as u32);
        if columns == ColumnOrder::Sorted {
            out.sink_last_into(start);
        }
    }
    out.ends.push(out.cols.len());
}

/// Rows on their way to a matrix.
#[derive(Default)]
struct Rows {
    weighted: bool,
    ordered: bool,
    ends: Vec<usize>,
    cols: Vec<u32>,
    values: Vec<f32>,
    order: Vec<u32>,
}

impl Rows {
    fn push(&mut self, col: u32, value: f32, order: u32) {
        self.cols.push(col);
        if self.weighted {
            self.values.push(value);
        }
        if self.ordered {
            self.order.push(order);
        }
    }

    /// Moves the last entry to its place among the sorted ones from `start` on.
    fn sink_last_into(&mut self, start: usize) {
        let last = self.cols.len() - 1;
        let place = start + self.cols[start..last].partition_point(|&j| j <= self.cols[last]);
        self.cols[place..].rotate_right(1);
        if self.weighted {
            self.values[place..].rotate_right(1);
        }
        if self.ordered {
            self.order[place..].rotate_right(1);
        }
    }

    fn into_csr(self, like: &Csr) -> Csr {
        let lengths = std::iter::once(&0).chain(&self.ends).zip(&self.ends).map(|(a, b)| b - a);
        let row_ptr = RowPtr::from_lengths(lengths, like.n_rows(), self.cols.len());
        let cols = Buffer::copied(&self.cols);
        let mut csr = Csr::trusted(like.n_cols(), row_ptr, cols, like.column_order());
        if self.weighted {
            csr = csr.trusting_values(Buffer::copied(&self.values));
        }
        if self.ordered {
            csr = csr.trusting_order(Buffer::copied(&self.order));
        }
        csr
    }
}
