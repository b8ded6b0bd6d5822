//! [`Adjacency`]: the sparse matrix of an `edge_index` or of a sparse tensor, and its transpose.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use lacis::error::same_size;
use lacis::kernels::Stored;
use lacis::kernels::profile::{Gathers, gathers};
use lacis::threads::{ranges, split_at_ends};
use lacis::{Buffer, CHUNK_ENTRIES, Coo, Csr, CsrParts, Error, Extent, Graph, Repeats, Result};
use lacis::{RowPtr, SelfLoops, Tags, Threads};
use pyo3::prelude::*;

use super::convert::{Plain, RawList, read, with_numbers, write};
use super::{Numbers, failed, threads};

/// The number of the next matrix.
static NEXT: AtomicU64 = AtomicU64::new(1);

/// A sparse matrix of ones, its rows the targets of edges and its columns their sources.
#[pyclass(frozen, module = "lacis._lacis")]
pub struct Adjacency {
    /// No other matrix of this process has or had it.
    id: u64,
    graph: Graph,
    /// Whether positions in the caller's list are known; they are the stored ones if no others.
    ordered: bool,
    transpose_in_order: OnceLock<Arc<Csr>>,
    gathers: OnceLock<Gathers>,
}

/// Indices of an edge: what a caller's list holds.
trait Wide: Plain {
    fn place(self) -> u64;
}

impl Wide for i32 {
    /// A negative number is a large one without its sign.
    fn place(self) -> u64 {
        i64::from(self) as u64
    }
}

impl Wide for i64 {
    fn place(self) -> u64 {
        self as u64
    }
}

#[pymethods]
impl Adjacency {
    /// The matrix of a list of edges: addresses of targets and of sources, the number of edges and
    /// the bytes of an index. `loops`: 0 as they are, 1 none, 2 exactly one per node. `ordered`:
    /// whether edges have anything of their own, and must be found in the caller's list again.
    #[staticmethod]
    fn from_edges(
        py: Python<'_>,
        edges: (usize, usize, usize, usize),
        size: (usize, usize),
        how: (u8, bool),
        count: usize,
    ) -> PyResult<Self> {
        let (loops, ordered) = how;
        let (rows, cols, len, bytes) = edges;
        let make = || -> Result<Self> {
            let threads = threads(count)?;
            let lists = [RawList(rows, len), RawList(cols, len)];
            let csr = match bytes {
                4 => from_lists::<i32>(lists, size, ordered, &threads)?,
                _ => from_lists::<i64>(lists, size, ordered, &threads)?,
            };
            let csr = match loops {
                0 => csr,
                1 => csr.with_self_loops(SelfLoops::Remove)?,
                _ => csr.with_self_loops(SelfLoops::Set(1.0))?,
            };
            Ok(Adjacency::new(csr, ordered))
        };
        py.detach(make).map_err(failed)
    }

    /// The matrix whose rows are together already: row pointers and columns, the number of columns
    /// and the bytes of an index.
    #[staticmethod]
    fn from_csr(
        py: Python<'_>,
        pointers: RawList,
        columns: RawList,
        how: (usize, usize),
        count: usize,
    ) -> PyResult<Self> {
        let (n_cols, bytes) = how;
        let make = || -> Result<Self> {
            let threads = threads(count)?;
            let csr = match bytes {
                4 => from_rows::<i32>(pointers, columns, n_cols, &threads)?,
                _ => from_rows::<i64>(pointers, columns, n_cols, &threads)?,
            };
            Ok(Adjacency::new(csr, true))
        };
        py.detach(make).map_err(failed)
    }

    /// Rows, columns, stored entries.
    #[getter]
    fn shape(&self) -> (usize, usize, usize) {
        let a = self.csr();
        (a.n_rows(), a.n_cols(), a.nnz())
    }

    /// Bytes of the matrix, without its transpose.
    #[getter]
    fn nbytes(&self) -> usize {
        self.csr().bytes()
    }

    /// Whether entries stand in another order than the caller's list had them.
    #[getter]
    fn permuted(&self) -> bool {
        self.csr().order().is_some()
    }

    /// `A + I`: every node once more among its own neighbours.
    fn plus_identity(&self, py: Python<'_>) -> PyResult<Self> {
        let make = || -> Result<Self> {
            let looped = self.csr().clone().without_order().with_self_loops(SelfLoops::AddAll(1.0));
            Ok(Adjacency::new(looped?, false))
        };
        py.detach(make).map_err(failed)
    }

    /// Whether the matrix is its own transpose.
    fn is_symmetric(&self, py: Python<'_>, count: usize) -> PyResult<bool> {
        py.detach(|| Ok(self.graph.is_symmetric(&threads(count)?))).map_err(failed)
    }

    /// Writes the number of entries of each row.
    fn degrees(&self, py: Python<'_>, numbers: Numbers, out: RawList) -> PyResult<()> {
        let degrees = || with_numbers!(numbers, T => lengths::<T>(self.csr(), write(out)?));
        py.detach(degrees).map_err(failed)
    }

    /// Writes the row and the column of each entry.
    fn entries(&self, py: Python<'_>, out: (RawList, RawList)) -> PyResult<()> {
        py.detach(|| places(self.csr(), write(out.0)?, write(out.1)?)).map_err(failed)
    }

    /// Writes values of the caller's list in the order of the matrix, or of its transpose.
    fn arrange(
        &self,
        py: Python<'_>,
        numbers: Numbers,
        tensors: (RawList, RawList),
        how: (bool, usize),
    ) -> PyResult<()> {
        let (values, out) = tensors;
        let (transposed, count) = how;
        let arrange = || -> Result<()> {
            let threads = threads(count)?;
            let csr = self.side(transposed, &threads)?;
            with_numbers!(numbers, T => arranged::<T>(read(values)?, csr, write(out)?, &threads))
        };
        py.detach(arrange).map_err(failed)
    }
}

impl Adjacency {
    fn new(csr: Csr, ordered: bool) -> Self {
        let own = |order: &[u32]| order.iter().enumerate().all(|(at, &place)| at == place as usize);
        let csr = if csr.order().is_some_and(own) { csr.without_order() } else { csr };
        let (transpose_in_order, gathers) = (OnceLock::new(), OnceLock::new());
        let id = NEXT.fetch_add(1, Ordering::Relaxed);
        Adjacency { id, graph: Graph::new(csr), ordered, transpose_in_order, gathers }
    }

    /// What tells it from every other matrix.
    pub(super) fn id(&self) -> u64 {
        self.id
    }

    /// Where its entries gather from.
    pub(super) fn gathers(&self) -> Gathers {
        *self.gathers.get_or_init(|| gathers(self.csr().view()))
    }

    /// The matrix.
    pub(super) fn csr(&self) -> &Csr {
        self.graph.adjacency()
    }

    /// The matrix or its transpose, whose entries need not be told apart.
    pub(super) fn pattern(&self, transposed: bool, threads: &Threads) -> &Csr {
        if transposed { self.graph.transpose(threads) } else { self.csr() }
    }

    /// The matrix or its transpose, knowing where entries stand in the caller's list.
    ///
    /// # Errors
    /// When nobody knows, or there are too many entries to number.
    pub(super) fn side(&self, transposed: bool, threads: &Threads) -> Result<&Csr> {
        if !self.ordered {
            let problem = "was built without the places of its edges";
            return Err(Error::argument("the adjacency", problem));
        }
        match (transposed, self.csr().order()) {
            (false, _) => Ok(self.csr()),
            (true, Some(_)) => Ok(self.graph.transpose(threads)),
            (true, None) => {
                if let Some(transpose) = self.transpose_in_order.get() {
                    return Ok(transpose);
                }
                let transpose = Arc::new(self.csr().transpose_with_order(threads)?);
                Ok(self.transpose_in_order.get_or_init(|| transpose))
            }
        }
    }
}

fn lengths<T: Stored>(csr: &Csr, out: &mut [T]) -> Result<()> {
    same_size("degrees", "length", csr.n_rows(), out.len())?;
    let lengths = csr.row_lengths().into_iter();
    out.iter_mut().zip(lengths).for_each(|(out, length)| *out = T::from_f64(f64::from(length)));
    Ok(())
}

/// The place of each entry.
fn places(csr: &Csr, rows: &mut [i64], cols: &mut [i64]) -> Result<()> {
    same_size("entries", "number of rows", csr.nnz(), rows.len())?;
    same_size("entries", "number of columns", csr.nnz(), cols.len())?;
    let lengths = csr.row_lengths().into_iter().zip(0..);
    let entries = lengths.flat_map(|(length, row)| std::iter::repeat_n(row, length as usize));
    rows.iter_mut().zip(entries).for_each(|(to, row)| *to = row);
    cols.iter_mut().zip(csr.cols()).for_each(|(to, &col)| *to = i64::from(col));
    Ok(())
}

/// `out_e = values[order_e]`.
fn arranged<T: Stored>(values: &[T], csr: &Csr, out: &mut [T], threads: &Threads) -> Result<()> {
    same_size("arrange", "number of values", csr.nnz(), values.len())?;
    same_size("arrange", "number of results", csr.nnz(), out.len())?;
    let Some(order) = csr.order() else {
        out.copy_from_slice(values);
        return Ok(());
    };
    let parts = ranges(out.len(), CHUNK_ENTRIES);
    let ends: Vec<usize> = parts.iter().map(|part| part.end).collect();
    let parts = parts.into_iter().zip(split_at_ends(out, &ends)).collect();
    threads.for_each(parts, |(part, out): (std::ops::Range<usize>, &mut [T])| {
        out.iter_mut().zip(&order[part]).for_each(|(out, &at)| *out = values[at as usize]);
    });
    Ok(())
}

/// The matrix of a list of targets and one of sources.
fn from_lists<I: Wide>(
    [rows, cols]: [RawList; 2],
    (n_rows, n_cols): (usize, usize),
    ordered: bool,
    threads: &Threads,
) -> Result<Csr> {
    let (rows, cols) = (read::<I>(rows)?, read::<I>(cols)?);
    let mut coo = Coo::new(if ordered { Tags::Order } else { Tags::Absent });
    if ordered && u32::try_from(rows.len()).is_err() {
        let (value, limit) = (rows.len() as u128, u128::from(u32::MAX));
        return Err(Error::Overflow { what: "number of edges", value, limit });
    }
    coo.extend(ranges(rows.len(), CHUNK_ENTRIES), threads, |range, chunk| {
        let places = rows[range.clone()].iter().zip(&cols[range.clone()]);
        let mut outside = false;
        chunk.places.extend(places.map(|(row, col)| {
            let (row, col) = (row.place(), col.place());
            outside |= row >= n_rows as u64 || col >= n_cols as u64;
            [row as u32, col as u32]
        }));
        if ordered {
            chunk.tags.extend(range.clone().map(|at| at as u32));
        }
        match outside {
            false => Ok(()),
            true => Err(Error::argument("edge_index", "has nodes that do not exist")),
        }
    })?;
    let extent = Extent { n_rows: Some(n_rows), n_cols: Some(n_cols) };
    coo.into_csr(extent, Repeats::Keep, threads)
}

/// The matrix of row pointers and columns.
fn from_rows<I: Wide>(
    pointers: RawList,
    columns: RawList,
    n_cols: usize,
    threads: &Threads,
) -> Result<Csr> {
    let pointers: Vec<u64> = read::<I>(pointers)?.iter().map(|place| place.place()).collect();
    let columns = read::<I>(columns)?;
    let mut cols = Buffer::try_zeroed(columns.len())?;
    let mut outside = false;
    for (narrow, wide) in cols.make_mut().iter_mut().zip(columns) {
        outside |= wide.place() >= n_cols as u64;
        *narrow = wide.place() as u32;
    }
    if outside {
        return Err(Error::argument("columns", "name nodes that do not exist"));
    }
    let row_ptr = RowPtr::Wide(pointers.into());
    Csr::new(CsrParts { n_cols, row_ptr, cols, values: None, order: None }, threads)
}
