//! [`Graph`]: an adjacency and what is derived from it and kept.

use std::collections::HashMap;
use std::hash::Hash;
use std::ops::Range;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use crate::coo::{CHUNK_ENTRIES, Coo, Extent, Repeats, Tags};
use crate::order::{Ordering, Permutation};
use crate::threads::ranges;
use crate::{ColumnOrder, Csr, Error, GraphStats, Result, Threads};

/// A graph: its adjacency (rows are targets, columns sources) and, computed when first asked for
/// and then kept, its transpose, degrees, powers of degrees, slices, orderings and statistics.
///
/// Cloning is cheap and shares what was derived. What is derived depends on the adjacency alone,
/// never on the number of threads.
#[derive(Clone, Debug)]
pub struct Graph {
    adjacency: Arc<Csr>,
    derived: Arc<Derived>,
}

#[derive(Debug, Default)]
struct Derived {
    symmetric: OnceLock<bool>,
    transpose: OnceLock<Arc<Csr>>,
    stats: OnceLock<GraphStats>,
    powers: Kept<(Side, DegreePower), Vec<f32>>,
    slices: Kept<usize, Vec<Range<usize>>>,
    orderings: Kept<Ordering, Permutation>,
}

/// What a cell holds, computed first if need be and, as in [`Kept::get_or`], outside its lock: two
/// threads may both compute, and one result stays.
fn kept_or<V>(cell: &OnceLock<V>, make: impl FnOnce() -> V) -> &V {
    if cell.get().is_none() {
        let _ = cell.set(make());
    }
    cell.get().expect("set above, by this thread or another")
}

/// Values by key.
#[derive(Debug)]
struct Kept<K, V>(Mutex<HashMap<K, Arc<V>>>);

impl<K, V> Default for Kept<K, V> {
    fn default() -> Self {
        Kept(Mutex::new(HashMap::new()))
    }
}

impl<K: Eq + Hash + Copy, V> Kept<K, V> {
    /// Computes outside the lock: a thread of the pool that computes must not wait for another.
    fn get_or(&self, key: K, make: impl FnOnce() -> V) -> Arc<V> {
        let lock = || self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(kept) = lock().get(&key) {
            return kept.clone();
        }
        let made = Arc::new(make());
        lock().entry(key).or_insert(made).clone()
    }
}

/// Which end of an edge a node is at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Side {
    /// Rows of the adjacency: the node receives; its in-degree.
    Target,
    /// Columns of the adjacency: the node sends; its out-degree.
    Source,
}

/// A power of the weighted degree: `(degree + loops)^exponent`, and 0 where the degree is 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DegreePower {
    /// Twice the exponent: −1 for `D^-½`, −2 for `D^-1`.
    pub half_exponent: i8,
    /// Loops of weight one that every node has besides its stored edges.
    pub added_loops: u8,
}

impl DegreePower {
    /// `D^-½`, the symmetric normalisation.
    pub const INV_SQRT: DegreePower = DegreePower { half_exponent: -1, added_loops: 0 };
    /// `D^-1`, the mean.
    pub const INV: DegreePower = DegreePower { half_exponent: -2, added_loops: 0 };

    fn of(self, degree: f64) -> f32 {
        let degree = degree + f64::from(self.added_loops);
        // Only infinity is masked, as torch does: a negative degree gives NaN.
        let power = degree.powf(f64::from(self.half_exponent) / 2.0) as f32;
        if power.is_infinite() { 0.0 } else { power }
    }
}

/// From this many edges on, [`Graph::from_edges`] uses all threads the process may use.
const PARALLEL_FROM_EDGES: usize = 1 << 18;

impl Graph {
    /// A graph over an adjacency: entry `(i, j)` is an edge from node `j` to node `i`.
    pub fn new(adjacency: Csr) -> Self {
        Graph { adjacency: Arc::new(adjacency), derived: Arc::default() }
    }

    /// A graph of `n` nodes from `(source, target)` pairs; repeated edges are kept, and the
    /// adjacency remembers where each edge stood in the list.
    ///
    /// ```
    /// use lacis_core::Graph;
    /// let graph = Graph::from_edges(3, &[(0, 1), (2, 1)])?;
    /// assert_eq!(graph.adjacency().row_cols(1), [0, 2]);
    /// # Ok::<(), lacis_core::Error>(())
    /// ```
    /// # Errors
    /// When an edge names a node that is not there, or there are more than `u32::MAX` edges.
    pub fn from_edges(n: usize, edges: &[(u32, u32)]) -> Result<Self> {
        let large = edges.len() >= PARALLEL_FROM_EDGES;
        let threads = if large { Threads::available() } else { Threads::one() };
        if u32::try_from(edges.len()).is_err() {
            let (value, limit) = (edges.len() as u128, u128::from(u32::MAX));
            return Err(Error::Overflow { what: "number of edges in a list", value, limit });
        }
        let mut coo = Coo::new(Tags::Order);
        coo.extend(ranges(edges.len(), CHUNK_ENTRIES), &threads, |range, chunk| {
            chunk.tags.extend(range.clone().map(|at| at as u32));
            for (at, &(source, target)) in range.clone().zip(&edges[range]) {
                let largest = source.max(target);
                if largest as usize >= n {
                    let (index, bound) = (u64::from(largest), n as u64);
                    return Err(Error::Index { op: "from_edges", what: "node", index, at, bound });
                }
                chunk.places.push([target, source]);
            }
            Ok(())
        })?;
        let extent = Extent { n_rows: Some(n), n_cols: Some(n) };
        Ok(Graph::new(coo.into_csr(extent, Repeats::Keep, &threads)?))
    }

    /// A graph of `n` nodes from a `2 × E` array of sources and targets, as PyG's `edge_index`.
    ///
    /// # Errors
    /// When the array has not two rows, or an index is negative or not below `n`.
    pub fn from_edge_index(n: usize, edge_index: ndarray::ArrayView2<'_, i64>) -> Result<Self> {
        crate::error::same_size("edge_index", "number of rows", 2, edge_index.nrows())?;
        let node = |(at, &index): (usize, &i64)| {
            u32::try_from(index).map_err(|_| {
                let problem = format!("{index} at position {at} is no node number");
                Error::argument("edge_index", problem)
            })
        };
        let row = |r| edge_index.row(r).iter().enumerate().map(node).collect::<Result<Vec<u32>>>();
        let edges: Vec<(u32, u32)> = row(0)?.into_iter().zip(row(1)?).collect();
        Graph::from_edges(n, &edges)
    }

    /// Sources and targets as a `2 × E` array, in the caller's order where it is known.
    pub fn to_edge_index(&self) -> ndarray::Array2<i64> {
        let nnz = self.n_edges();
        let mut edge_index = ndarray::Array2::zeros((2, nnz));
        for (e, (target, source, _)) in self.adjacency.entries().enumerate() {
            let at = self.adjacency.order().map_or(e, |order| order[e] as usize);
            edge_index[[0, at]] = source as i64;
            edge_index[[1, at]] = target as i64;
        }
        edge_index
    }

    /// The adjacency.
    pub fn adjacency(&self) -> &Arc<Csr> {
        &self.adjacency
    }

    /// Number of nodes: targets and sources are the same, or this is the number of targets.
    pub fn n_nodes(&self) -> usize {
        self.adjacency.n_rows()
    }

    /// Number of stored directed edges.
    pub fn n_edges(&self) -> usize {
        self.adjacency.nnz()
    }

    /// Whether the adjacency equals its transpose, values and repeats included.
    pub fn is_symmetric(&self, threads: &Threads) -> bool {
        *kept_or(&self.derived.symmetric, || {
            if self.adjacency.column_order() == ColumnOrder::Unsorted {
                return self.adjacency.is_symmetric(threads);
            }
            // The transpose has sorted columns too, so comparing the two is enough.
            let transpose = Arc::new(self.adjacency.transpose(threads));
            let symmetric = self.adjacency.same_entries(&transpose);
            if !symmetric || self.adjacency.order().is_some() {
                let _ = self.derived.transpose.set(transpose);
            }
            symmetric
        })
    }

    /// The transposed adjacency. It is the adjacency itself where the graph is symmetric and does
    /// not remember the caller's order: entry `(i, j)` of the transpose is the caller's edge
    /// `i → j`, and that of the adjacency `j → i`, though both weigh the same.
    pub fn transpose(&self, threads: &Threads) -> &Arc<Csr> {
        if self.adjacency.order().is_none() && self.is_symmetric(threads) {
            return &self.adjacency;
        }
        kept_or(&self.derived.transpose, || Arc::new(self.adjacency.transpose(threads)))
    }

    /// What the planner may look at.
    pub fn stats(&self, threads: &Threads) -> &GraphStats {
        kept_or(&self.derived.stats, || GraphStats::of(self, threads))
    }

    /// A power of the nodes' weighted degrees.
    pub fn degree_power(&self, side: Side, power: DegreePower, threads: &Threads) -> Arc<Vec<f32>> {
        let adjacency = match side {
            Side::Target => &self.adjacency,
            Side::Source => self.transpose(threads),
        };
        self.derived.powers.get_or((side, power), || {
            adjacency.row_sums().into_iter().map(|degree| power.of(degree)).collect()
        })
    }

    /// Row ranges of about `size` entries, as [`Csr::slices`].
    pub fn slices(&self, size: usize) -> Arc<Vec<Range<usize>>> {
        self.derived.slices.get_or(size, || self.adjacency.slices(size))
    }

    /// A renumbering of the nodes that brings neighbours together.
    ///
    /// # Errors
    /// When the adjacency is not square.
    pub fn ordering(&self, ordering: Ordering, threads: &Threads) -> Result<Arc<Permutation>> {
        let n = self.adjacency.n_rows();
        crate::error::same_size("ordering", "number of columns", n, self.adjacency.n_cols())?;
        let transpose = self.transpose(threads);
        let make = || ordering.permutation(&self.adjacency, transpose);
        Ok(self.derived.orderings.get_or(ordering, make))
    }
}
