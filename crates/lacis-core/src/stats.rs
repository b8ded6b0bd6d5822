//! [`GraphStats`]: what the planner may look at, and what `lacis data info` prints.

use serde::{Deserialize, Serialize};

use crate::coo::Repeats;
use crate::csr::ColumnOrder;
use crate::{Csr, Graph, Threads};

/// How many edges nodes have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DegreeStats {
    /// The fewest.
    pub min: u32,
    /// The middle one, the lower of two.
    pub median: u32,
    /// The average.
    pub mean: f64,
    /// What 99 of 100 nodes do not pass.
    pub p99: u32,
    /// The most.
    pub max: u32,
}

impl DegreeStats {
    /// The statistics of a list of degrees; zeros if it is empty.
    pub fn of(degrees: &[u32]) -> Self {
        if degrees.is_empty() {
            return DegreeStats::default();
        }
        let mut sorted = degrees.to_vec();
        sorted.sort_unstable();
        // The nearest rank: the least that so large a share does not pass.
        let rank = |q: f64| (sorted.len() as f64 * q).ceil() as usize;
        let quantile = |q: f64| sorted[rank(q).max(1) - 1];
        let sum: u64 = sorted.iter().map(|&d| u64::from(d)).sum();
        DegreeStats {
            min: sorted[0],
            median: quantile(0.5),
            mean: sum as f64 / sorted.len() as f64,
            p99: quantile(0.99),
            max: sorted[sorted.len() - 1],
        }
    }
}

/// A graph in a few numbers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GraphStats {
    /// Target nodes: rows of the adjacency.
    pub n_rows: usize,
    /// Source nodes: columns of the adjacency.
    pub n_cols: usize,
    /// Stored directed edges.
    pub nnz: usize,
    /// Distinct unordered pairs of different nodes.
    pub undirected_edges: usize,
    /// Whether the adjacency equals its transpose.
    pub symmetric: bool,
    /// Whether edges have weights.
    pub weighted: bool,
    /// Edges from a node to itself.
    pub self_loops: usize,
    /// Nodes without an edge to or from another node.
    pub isolated: usize,
    /// In-degrees: entries per row.
    pub degree: DegreeStats,
    /// Share of the edges that end in the hundredth of the nodes with most of them: 0.01 for even
    /// degrees, near 1 for hubs.
    pub hub_share: f64,
    /// Mean distance `|i − j| / n` of an edge's ends in the present numbering: 1/3 if it is random.
    pub mean_distance: f64,
}

impl GraphStats {
    /// Looks at the graph once, and at its transpose.
    pub fn of(graph: &Graph, threads: &Threads) -> Self {
        let a = graph.adjacency();
        let lengths = a.row_lengths();
        let (pairs, isolated) = count_pairs(a, graph.transpose(threads), threads);
        GraphStats {
            n_rows: a.n_rows(),
            n_cols: a.n_cols(),
            nnz: a.nnz(),
            undirected_edges: pairs,
            symmetric: graph.is_symmetric(threads),
            weighted: a.values().is_some(),
            self_loops: if a.n_rows() == a.n_cols() { a.count_self_loops() } else { 0 },
            isolated,
            hub_share: hub_share(&lengths, a.nnz()),
            degree: DegreeStats::of(&lengths),
            mean_distance: mean_distance(a),
        }
    }
}

fn hub_share(lengths: &[u32], nnz: usize) -> f64 {
    if nnz == 0 {
        return 0.0;
    }
    let mut sorted = lengths.to_vec();
    let hubs = lengths.len().div_ceil(100);
    let (largest, ..) = sorted.select_nth_unstable_by(hubs - 1, |a, b| b.cmp(a));
    let top: u64 = largest.iter().map(|&d| u64::from(d)).sum();
    (top + u64::from(sorted[hubs - 1])) as f64 / nnz as f64
}

fn mean_distance(a: &Csr) -> f64 {
    let (n, nnz) = (a.n_rows().max(a.n_cols()), a.nnz());
    if nnz == 0 {
        return 0.0;
    }
    let a = a.view();
    let row =
        |i: usize| a.row_cols(i).iter().map(|&j| (j as usize).abs_diff(i) as u64).sum::<u64>();
    (0..a.n_rows()).map(row).sum::<u64>() as f64 / nnz as f64 / n as f64
}

/// Distinct unordered pairs of different nodes, and nodes in none of them. In a rectangular
/// matrix sources and targets are different nodes: pairs are distinct entries, and a row or
/// column without any is isolated.
fn count_pairs(a: &Csr, t: &Csr, threads: &Threads) -> (usize, usize) {
    let sorted = |m: &Csr| match m.column_order() {
        ColumnOrder::Sorted => m.clone(),
        ColumnOrder::Unsorted => m.sorted(Repeats::Keep, threads),
    };
    let (a, t) = (&sorted(a), &sorted(t));
    if a.n_rows() != a.n_cols() {
        let distinct = |i| a.row_cols(i).chunk_by(|x, y| x == y).count();
        let empty = |m: &Csr| (0..m.n_rows()).filter(|&i| m.row(i).is_empty()).count();
        return ((0..a.n_rows()).map(distinct).sum(), empty(a) + empty(t));
    }
    let (a, t) = (a.view(), t.view());
    let (mut ends, mut isolated) = (0, 0);
    for i in 0..a.n_rows() {
        let neighbours = count_union(a.row_cols(i), t.row_cols(i), i as u32);
        ends += neighbours;
        isolated += usize::from(neighbours == 0);
    }
    (ends / 2, isolated)
}

/// How many distinct numbers other than `but` two ascending lists hold together.
fn count_union(mut a: &[u32], mut b: &[u32], but: u32) -> usize {
    let mut count = 0;
    while let Some(&least) = a.first().into_iter().chain(b.first()).min() {
        a = &a[a.iter().take_while(|&&j| j == least).count()..];
        b = &b[b.iter().take_while(|&&j| j == least).count()..];
        count += usize::from(least != but);
    }
    count
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_graph_is_counted_right() {
        // 0 → 1 twice, 1 → 0, 2 → 2; node 3 is alone, and so is 2 but for its loop.
        let graph = Graph::from_edges(4, &[(0, 1), (1, 0), (0, 1), (2, 2)]).unwrap();
        let stats = graph.stats(&Threads::one());
        assert_eq!((stats.nnz, stats.undirected_edges), (4, 1));
        assert_eq!((stats.self_loops, stats.isolated), (1, 2));
        assert!(!stats.symmetric && !stats.weighted);
        assert_eq!((stats.degree.min, stats.degree.max, stats.degree.mean), (0, 2, 1.0));
    }

    #[test]
    fn quantiles_are_nearest_ranks() {
        let of = |degrees: &[u32]| {
            let stats = DegreeStats::of(degrees);
            (stats.median, stats.p99)
        };
        assert_eq!(of(&[0, 100]), (0, 100));
        assert_eq!(of(&[7]), (7, 7));
        assert_eq!(of(&(1..=100).collect::<Vec<_>>()), (50, 99));
    }

    /// A complete graph whose columns are not sorted is still complete.
    #[test]
    fn unsorted_columns_are_counted_right() {
        let cols = vec![3u32, 1, 2, 0, 3, 2, 1, 0, 3, 2, 0, 1];
        let row_ptr = crate::RowPtr::Wide(vec![0u64, 3, 6, 9, 12].into());
        let (values, order) = (None, None);
        let parts = crate::CsrParts { n_cols: 4, row_ptr, cols: cols.into(), values, order };
        let graph = Graph::new(Csr::new(parts, &Threads::one()).unwrap());
        let stats = graph.stats(&Threads::one());
        assert_eq!((stats.undirected_edges, stats.symmetric, stats.isolated), (6, true, 0));
    }

    #[test]
    fn an_empty_graph_has_statistics() {
        let graph = Graph::from_edges(0, &[]).unwrap();
        let stats = graph.stats(&Threads::one());
        assert_eq!((stats.n_rows, stats.nnz, stats.hub_share), (0, 0, 0.0));
        assert!(stats.symmetric);
    }

    #[test]
    fn a_star_is_all_hub_and_a_ring_is_not() {
        let star: Vec<(u32, u32)> = (1..200).map(|i| (i, 0)).collect();
        let ring: Vec<(u32, u32)> = (0..200).map(|i| (i, (i + 1) % 200)).collect();
        let share =
            |edges: &[_]| Graph::from_edges(200, edges).unwrap().stats(&Threads::one()).hub_share;
        assert_eq!(share(&star), 1.0);
        assert_eq!(share(&ring), 0.01);
    }
}
