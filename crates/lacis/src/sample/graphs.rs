//! [`GraphBatches`]: some graphs of a collection as one.
//!
//! ```text
//!   [ A₇  .  . ]    nodes of graph 7      graph_of = 0 0 0 1 1 2 …
//!   [ .  A₂  . ]    nodes of graph 2
//!   [ .   . A₅ ]    nodes of graph 5      no edge leaves its block
//! ```

use std::sync::Arc;

use lacis_core::error::same_size;
use lacis_core::{Collection, Csr, CsrParts, Dense, Error, Graph, Result, RowPtr, Threads};
use lacis_kernels::Stored;

use super::ahead::{Ahead, Preparation, With, with};
use super::features::gather;
use super::grown::Grown;
use super::items::{Items, Order};

/// How batches are made.
#[derive(Clone, Debug)]
pub struct GraphConfig {
    /// Graphs of a batch; the last batch may have fewer.
    pub batch_size: usize,
    /// Where the order of the graphs comes from.
    pub seed: u64,
    /// The order of the graphs.
    pub order: Order,
    /// Who prepares batches, and how far ahead.
    pub preparation: Preparation,
}

/// Some graphs, side by side.
pub struct GraphBatch<T: Stored = f32> {
    number: usize,
    graphs: Vec<u32>,
    starts: Vec<u32>,
    nodes: Vec<u32>,
    graph_of: Vec<u32>,
    row_ptr: Grown<u32>,
    cols: Grown<u32>,
    values: Grown<f32>,
    adjacency: Option<Csr>,
    rows: Grown<T>,
    features: Option<Dense<T>>,
}

impl<T: Stored> GraphBatch<T> {
    fn new() -> Self {
        GraphBatch {
            number: 0,
            graphs: Vec::new(),
            starts: Vec::new(),
            nodes: Vec::new(),
            graph_of: Vec::new(),
            row_ptr: Grown::default(),
            cols: Grown::default(),
            values: Grown::default(),
            adjacency: None,
            rows: Grown::default(),
            features: None,
        }
    }

    /// The batch's number in its epoch.
    pub fn number(&self) -> usize {
        self.number
    }

    /// The collection's number of each graph.
    pub fn graphs(&self) -> &[u32] {
        &self.graphs
    }

    /// Where each graph's nodes start, and where the last one's end.
    pub fn starts(&self) -> &[u32] {
        &self.starts
    }

    /// The collection's number of each node.
    pub fn nodes(&self) -> &[u32] {
        &self.nodes
    }

    /// For each node, which of the batch's graphs it is in.
    pub fn graph_of(&self) -> &[u32] {
        &self.graph_of
    }

    /// All edges, square.
    pub fn adjacency(&self) -> &Csr {
        self.adjacency.as_ref().expect("filled when it was made")
    }

    /// The feature row of each node, if there are features.
    pub fn features(&self) -> Option<&Dense<T>> {
        self.features.as_ref()
    }

    /// Puts graphs of the collection side by side.
    fn fill(&mut self, graphs: &[u32], collection: &Collection, a: &Csr) -> Result<()> {
        // What shares the memory goes first, so that it can be written again.
        (self.adjacency, self.features) = (None, None);
        self.graphs.clear();
        self.graphs.extend_from_slice(graphs);
        self.starts.clear();
        self.starts.push(0);
        self.nodes.clear();
        self.graph_of.clear();
        for (place, &graph) in graphs.iter().enumerate() {
            let nodes = collection.nodes(graph as usize);
            self.graph_of.extend(std::iter::repeat_n(place as u32, nodes.len()));
            self.nodes.extend(nodes.map(|node| node as u32));
            self.starts.push(self.nodes.len() as u32);
        }
        self.copy_edges(collection, a);
        let (n, nnz) = (self.nodes.len(), self.cols.len());
        let parts = CsrParts {
            n_cols: n,
            row_ptr: RowPtr::Narrow(self.row_ptr.share(n + 1)),
            cols: self.cols.share(nnz),
            values: a.values().map(|_| self.values.share(nnz)),
            order: None,
        };
        self.adjacency = Some(Csr::new(parts, &Threads::one())?);
        Ok(())
    }

    /// The rows of each graph, its columns moved with it.
    fn copy_edges(&mut self, collection: &Collection, a: &Csr) {
        let a = a.view();
        self.row_ptr.clear();
        self.cols.clear();
        self.values.clear();
        self.row_ptr.extended(1)[0] = 0;
        for (&graph, &start) in self.graphs.iter().zip(&self.starts) {
            let nodes = collection.nodes(graph as usize);
            let (first, span) = (nodes.start as u32, a.span(nodes.clone()));
            let (before, n_rows) = (self.cols.len(), self.row_ptr.len());
            let ends = &mut self.row_ptr.extended(nodes.len())[n_rows..];
            for (end, node) in ends.iter_mut().zip(nodes) {
                *end = (before + a.row(node).end - span.start) as u32;
            }
            let cols = &mut self.cols.extended(span.len())[before..];
            let moved = a.cols[span.clone()].iter().map(|j| j - first + start);
            cols.iter_mut().zip(moved).for_each(|(col, j)| *col = j);
            if let Some(values) = a.values {
                self.values.extended(span.len())[before..].copy_from_slice(&values[span]);
            }
        }
    }
}

/// Batches of the graphs of a collection.
pub struct GraphBatches<T: Stored = f32> {
    graph: Graph,
    collection: Collection,
    features: Option<Dense<T>>,
    items: Items,
    preparation: Preparation,
}

impl<T: Stored> GraphBatches<T> {
    /// Batches of the graphs named by `items`, with the features of their nodes if there are any.
    ///
    /// # Errors
    /// When sizes disagree, a graph is not in the collection, or a batch is to be empty.
    pub fn new(
        (graph, collection): (&Graph, &Collection),
        features: Option<&Dense<T>>,
        items: &[u32],
        config: GraphConfig,
    ) -> Result<Self> {
        let (op, n_nodes) = ("batches of graphs", graph.n_nodes());
        let end = *collection.starts().last().expect("a collection begins with 0");
        same_size(op, "nodes of the collection", n_nodes, end as usize)?;
        if let Some(x) = features {
            same_size(op, "rows of x", n_nodes, x.n_rows())?;
        }
        let bound = collection.n_graphs();
        if let Some(at) = items.iter().position(|&item| item as usize >= bound) {
            let (index, bound) = (u64::from(items[at]), bound as u64);
            return Err(Error::Index { op, what: "graph", index, at, bound });
        }
        let items = Items::new(items, config.batch_size, config.order, config.seed)?;
        Ok(GraphBatches {
            graph: graph.clone(),
            collection: collection.clone(),
            features: features.cloned(),
            items,
            preparation: config.preparation,
        })
    }

    /// Number of batches in an epoch.
    pub fn n_batches(&self) -> usize {
        self.items.n_batches()
    }

    /// Begins an epoch. Its batches depend on the seed and the epoch, not on who prepares them.
    ///
    /// # Errors
    /// When the system refuses the threads.
    pub fn epoch(&self, epoch: u64) -> Result<Ahead<GraphBatch<T>>> {
        let order = self.items.of_epoch(epoch);
        Ahead::new(self.n_batches(), self.preparation, || self.maker(order.clone()))
    }

    /// Begins an epoch at batch `from`; the threads that prepare batches make something of each.
    ///
    /// # Errors
    /// When the system refuses the threads.
    pub fn epoch_with<X, F>(
        &self,
        (epoch, from): (u64, usize),
        make: F,
    ) -> Result<Ahead<With<GraphBatch<T>, X>>>
    where
        X: Send + 'static,
        F: FnMut(&GraphBatch<T>) -> Result<X> + Clone + Send + 'static,
    {
        let order = self.items.of_epoch(epoch);
        let count = self.n_batches().saturating_sub(from);
        Ahead::new(count, self.preparation, || with(from, self.maker(order.clone()), make.clone()))
    }

    /// Makes the batches of an epoch, in any order.
    fn maker(
        &self,
        order: Arc<Vec<u32>>,
    ) -> impl FnMut(usize, Option<GraphBatch<T>>) -> Result<GraphBatch<T>> + Send + use<T> {
        let (adjacency, collection) = (self.graph.adjacency().clone(), self.collection.clone());
        let (features, items) = (self.features.clone(), self.items.clone());
        move |number: usize, old: Option<GraphBatch<T>>| {
            let mut batch = old.unwrap_or_else(GraphBatch::new);
            batch.number = number;
            batch.fill(&order[items.range(number)], &collection, &adjacency)?;
            if let Some(x) = &features {
                batch.features = Some(gather(x, &batch.nodes, &mut batch.rows)?);
            }
            Ok(batch)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lacis_core::Buffer;

    /// Six paths of 1, 0, 3, 2, 4 and 1 nodes.
    fn paths() -> (Graph, Collection) {
        let starts = vec![0, 1, 1, 4, 6, 10, 11];
        let step =
            |pair: &[u32]| (pair[0]..pair[1].max(1) - 1).map(|i| (i, i + 1)).collect::<Vec<_>>();
        let edges: Vec<_> = starts.windows(2).flat_map(step).collect();
        let graph = Graph::from_edges(11, &edges).unwrap();
        let weights: Buffer<f32> =
            (0..graph.n_edges()).map(|e| e as f32).collect::<Vec<_>>().into();
        let a = graph.adjacency().as_ref().clone().with_values(Some(weights)).unwrap();
        (Graph::new(a), Collection::new(starts).unwrap())
    }

    fn config(order: Order, workers: usize) -> GraphConfig {
        let preparation = Preparation { workers, depth: 1 };
        GraphConfig { batch_size: 2, seed: 1, order, preparation }
    }

    #[test]
    fn graphs_stand_side_by_side() {
        let (graph, collection) = paths();
        let x = Dense::<f32>::from_fn(11, 1, |i, _| i as f64);
        for (order, workers) in [(Order::AsGiven, 0), (Order::Shuffled, 2)] {
            let config = config(order, workers);
            let all = GraphBatches::new((&graph, &collection), Some(&x), &[4, 1, 2, 5, 3], config)
                .unwrap();
            assert_eq!(all.n_batches(), 3);
            let (mut epoch, mut met) = (all.epoch(0).unwrap(), Vec::new());
            while let Some(batch) = epoch.next().unwrap() {
                met.extend_from_slice(batch.graphs());
                let mut expected = Vec::new();
                for (g, &id) in batch.graphs().iter().enumerate() {
                    let nodes = collection.nodes(id as usize);
                    let start = batch.starts()[g] as usize;
                    assert!((0..nodes.len()).all(|i| batch.graph_of()[start + i] == g as u32));
                    for (i, j, v) in graph.adjacency().entries().filter(|e| nodes.contains(&e.0)) {
                        expected.push((i - nodes.start + start, j - nodes.start + start, v));
                    }
                }
                assert_eq!(batch.adjacency().entries().collect::<Vec<_>>(), expected);
                assert_eq!(batch.graph_of().len(), batch.adjacency().n_rows());
                let x = batch.features().unwrap();
                assert!((0..x.n_rows()).all(|i| x.at(i, 0) == f64::from(batch.nodes()[i])));
            }
            met.sort_unstable();
            assert_eq!(met, [1, 2, 3, 4, 5]);
        }
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let (graph, collection) = paths();
        let both = (&graph, &collection);
        let as_given = || config(Order::AsGiven, 0);
        assert!(GraphBatches::<f32>::new(both, None, &[6], as_given()).is_err());
        let x = Dense::<f32>::zeros(10, 1);
        assert!(GraphBatches::new(both, Some(&x), &[0], as_given()).is_err());
        let other = Collection::new(vec![0, 10]).unwrap();
        assert!(GraphBatches::<f32>::new((&graph, &other), None, &[0], as_given()).is_err());
    }
}
