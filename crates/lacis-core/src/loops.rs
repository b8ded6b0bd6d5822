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
    /// Every node has exactly one: the last of its own, or one of this weight where it had none
    /// (`add_remaining_self_loops` on an `edge_index`).
    AddMissing(f32),
    /// Every node gets one more loop of this weight (a CSR tensor in PyG).
    AddAll(f32),
    /// Every node has exactly one loop, of this weight (a `SparseTensor` in PyG).
    Set(f32),
}

impl SelfLoops {
    /// The weight of loops that are added, if any are.
    fn weight(self) -> Option<f32> {
        match self {
            SelfLoops::Remove => None,
            SelfLoops::AddMissing(w) | SelfLoops::AddAll(w) | SelfLoops::Set(w) => Some(w),
        }
    }
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
    /// The caller's order, where it is known, becomes that of the list which PyG would make: the
    /// edges that stay in their order, then one loop per node.
    ///
    /// # Errors
    /// When the matrix is not square, or positions would pass `u32::MAX`.
    pub fn with_self_loops(&self, loops: SelfLoops) -> Result<Csr> {
        same_size("self-loops", "number of columns", self.n_rows(), self.n_cols())?;
        let total = self.nnz() as u128 + self.n_rows() as u128;
        if self.order().is_some() && total > u128::from(u32::MAX) {
            let what = "number of entries with self-loops";
            return Err(Error::Overflow { what, value: total, limit: u128::from(u32::MAX) });
        }
        let a = self.view();
        let weighted = a.values.is_some() || loops.weight().is_some_and(|weight| weight != 1.0);
        let mut out = Rows { weighted, ordered: a.order.is_some(), ..Rows::default() };
        let rank = ranks_of_kept(a, loops);
        let n_kept = rank.iter().filter(|rank| **rank != GONE).count() as u32;
        for i in 0..a.n_rows() {
            copy_row(a, i, (loops, &rank), &mut out);
            if let Some(weight) = loops.weight() {
                let own =
                    if matches!(loops, SelfLoops::AddMissing(_)) { last_loop(a, i) } else { None };
                out.push(i as u32, own.unwrap_or(weight), n_kept + i as u32);
                if self.column_order() == ColumnOrder::Sorted {
                    out.sink_last_into_its_row();
                }
            }
            out.ends.push(out.cols.len());
        }
        Ok(out.into_csr(self))
    }
}

/// The rank of an entry that does not stay.
const GONE: u32 = u32::MAX;

/// By position in the caller's list: the position among those that stay. Empty if nobody asks.
fn ranks_of_kept(a: CsrView<'_>, loops: SelfLoops) -> Vec<u32> {
    let Some(order) = a.order else { return Vec::new() };
    let mut rank = vec![0; order.len()];
    for i in (0..a.n_rows()).filter(|_| !matches!(loops, SelfLoops::AddAll(_))) {
        for e in a.row(i).filter(|&e| a.cols[e] as usize == i) {
            rank[order[e] as usize] = GONE;
        }
    }
    let kept = rank.iter_mut().filter(|rank| **rank != GONE);
    kept.zip(0..).for_each(|(rank, next)| *rank = next);
    rank
}

/// The weight of the loop of node `i` that comes last in the caller's list.
fn last_loop(a: CsrView<'_>, i: usize) -> Option<f32> {
    let loops = a.row(i).filter(|&e| a.cols[e] as usize == i);
    loops.max_by_key(|&e| a.order.map_or(e as u32, |order| order[e])).map(|e| a.value(e))
}

/// The entries of row `i` that stay.
fn copy_row(a: CsrView<'_>, i: usize, (loops, rank): (SelfLoops, &[u32]), out: &mut Rows) {
    let all = matches!(loops, SelfLoops::AddAll(_));
    for e in a.row(i).filter(|&e| all || a.cols[e] as usize != i) {
        out.push(a.cols[e], a.value(e), a.order.map_or(0, |order| rank[order[e] as usize]));
    }
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

    /// Moves the last entry to its place among the sorted ones of the row being filled.
    fn sink_last_into_its_row(&mut self) {
        let start = self.ends.last().copied().unwrap_or(0);
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
