//! GraphSAINT with random walks (Zeng et al., "GraphSAINT", ICLR 2020, algorithm 2).
//!
//! ```text
//!   for each of `roots` walks:  start at a random root;  `steps` times go along a random out-edge
//!   nodes = all that were visited, ascending;  edges = all of the graph's among them
//! ```
//! A walk stays where it cannot go on. The network sees a small graph that it takes for the whole;
//! [`SaintNorm`] corrects for some nodes and edges being in more batches than others.

use std::sync::Arc;

use lacis_core::error::same_size;
use lacis_core::{Csr, CsrParts, Dense, Error, Graph, Result, Rng, RowPtr, Threads};
use lacis_kernels::Stored;

use super::ahead::{Ahead, Preparation, With, with};
use super::draw::batch_rng;
use super::features::gather;
use super::grown::Grown;
use super::local::LocalIds;
use super::norm::SaintNorm;

/// How walks go, and how many batches an epoch has.
#[derive(Clone, Debug)]
pub struct SaintConfig {
    /// Walks of a batch.
    pub roots: usize,
    /// Steps of a walk.
    pub steps: usize,
    /// Batches of an epoch.
    pub batches: usize,
    /// Where all random numbers come from.
    pub seed: u64,
    /// Who prepares batches, and how far ahead.
    pub preparation: Preparation,
}

/// Walks on one graph. Its memory is used again for every batch.
pub struct SaintSampler {
    adjacency: Arc<Csr>,
    /// Row `i` has the nodes that an edge from `i` leads to.
    outward: Arc<Csr>,
    starts: Arc<Vec<u32>>,
    local: LocalIds,
}

/// A sub-graph: some nodes, and all edges among them.
#[derive(Default)]
pub(super) struct Induced {
    pub(super) nodes: Vec<u32>,
    pub(super) edge_ids: Vec<u64>,
    row_ptr: Grown<u32>,
    cols: Grown<u32>,
    values: Grown<f32>,
}

impl SaintSampler {
    /// Walks on `graph` that start at one of `starts`, each equally likely.
    ///
    /// # Errors
    /// When there is nowhere to start, or the adjacency is not square.
    pub fn new(graph: &Graph, starts: &[u32], threads: &Threads) -> Result<Self> {
        let (adjacency, bound) = (graph.adjacency().clone(), graph.n_nodes());
        same_size("random walks", "columns", bound, adjacency.n_cols())?;
        if starts.is_empty() {
            return Err(Error::argument("random walks", "there is no node to start from"));
        }
        if let Some(at) = starts.iter().position(|&start| start as usize >= bound) {
            let (index, bound) = (u64::from(starts[at]), bound as u64);
            return Err(Error::Index { op: "random walks", what: "root", index, at, bound });
        }
        let (outward, starts) = (graph.transpose(threads).clone(), Arc::new(starts.to_vec()));
        Ok(SaintSampler { adjacency, outward, starts, local: LocalIds::new(bound) })
    }

    /// Another sampler of the same graph, for another thread.
    pub(super) fn another(&self) -> Self {
        SaintSampler {
            adjacency: self.adjacency.clone(),
            outward: self.outward.clone(),
            starts: self.starts.clone(),
            local: LocalIds::new(self.adjacency.n_rows()),
        }
    }

    pub(super) fn adjacency(&self) -> &Csr {
        &self.adjacency
    }

    /// Walks, and keeps the nodes visited and the edges among them.
    pub(super) fn sample(&mut self, roots: usize, steps: usize, rng: Rng, batch: &mut Induced) {
        self.walk(roots, steps, rng, &mut batch.nodes);
        self.induce(batch);
    }

    /// The nodes visited, ascending; the map numbers them in that order.
    fn walk(&mut self, roots: usize, steps: usize, rng: Rng, nodes: &mut Vec<u32>) {
        let outward = self.outward.view();
        self.local.clear();
        nodes.clear();
        nodes.resize(
            roots.saturating_mul(steps.saturating_add(1)).min(self.adjacency.n_rows()) + 1,
            0,
        );
        for walk in 0..roots {
            let mut stream = rng.stream(walk as u64);
            let mut node = self.starts[stream.below(self.starts.len())];
            self.local.number(node, nodes);
            for _ in 0..steps {
                let row = outward.row_cols(node as usize);
                if row.is_empty() {
                    break;
                }
                node = row[stream.below(row.len())];
                self.local.number(node, nodes);
            }
        }
        nodes.truncate(self.local.count());
        nodes.sort_unstable();
        self.local.clear();
        let mut unused = vec![0; nodes.len()];
        nodes.iter().for_each(|&node| {
            self.local.number(node, &mut unused);
        });
    }

    /// The edges among the nodes that the map knows.
    fn induce(&self, batch: &mut Induced) {
        let a = self.adjacency.view();
        batch.row_ptr.clear();
        batch.cols.clear();
        batch.edge_ids.clear();
        let ends = batch.row_ptr.extended(batch.nodes.len() + 1);
        ends[0] = 0;
        for (end, &node) in ends[1..].iter_mut().zip(&batch.nodes) {
            let (row, before) = (a.row(node as usize), batch.cols.len());
            let cols = &mut batch.cols.extended(row.len())[before..];
            let mut kept = 0;
            for e in row {
                if let Some(j) = self.local.get(a.cols[e]) {
                    cols[kept] = j;
                    kept += 1;
                    batch.edge_ids.push(e as u64);
                }
            }
            batch.cols.truncate(before + kept);
            *end = batch.cols.len() as u32;
        }
        if let Some(values) = a.values {
            batch.values.clear();
            let kept = batch.values.extended(batch.edge_ids.len());
            kept.iter_mut().zip(&batch.edge_ids).for_each(|(v, &e)| *v = values[e as usize]);
        }
    }
}

impl Induced {
    /// The sub-graph's adjacency, which shares this memory.
    fn csr(&self, weighted: bool) -> Result<Csr> {
        let nnz = self.cols.len();
        let parts = CsrParts {
            n_cols: self.nodes.len(),
            row_ptr: RowPtr::Narrow(self.row_ptr.share(self.row_ptr.len())),
            cols: self.cols.share(nnz),
            values: weighted.then(|| self.values.share(nnz)),
            order: None,
        };
        Csr::new(parts, &Threads::one())
    }
}

/// A sub-graph with what a training step needs of it.
pub struct SaintBatch<T: Stored = f32> {
    number: usize,
    induced: Induced,
    adjacency: Option<Csr>,
    node_norm: Option<Vec<f32>>,
    edge_norm: Option<Vec<f32>>,
    rows: Grown<T>,
    features: Option<Dense<T>>,
}

impl<T: Stored> SaintBatch<T> {
    fn new() -> Self {
        SaintBatch {
            number: 0,
            induced: Induced::default(),
            adjacency: None,
            node_norm: None,
            edge_norm: None,
            rows: Grown::default(),
            features: None,
        }
    }

    /// The batch's number in its epoch.
    pub fn number(&self) -> usize {
        self.number
    }

    /// The graph's number of each node, ascending.
    pub fn nodes(&self) -> &[u32] {
        &self.induced.nodes
    }

    /// All edges among the nodes, square.
    pub fn adjacency(&self) -> &Csr {
        self.adjacency.as_ref().expect("filled when it was made")
    }

    /// The position of each edge in the graph's adjacency.
    pub fn edge_ids(&self) -> &[u64] {
        &self.induced.edge_ids
    }

    /// What each node's loss is multiplied by, if that is known.
    pub fn node_norm(&self) -> Option<&[f32]> {
        self.node_norm.as_deref()
    }

    /// What each edge's message is multiplied by, if that is known.
    pub fn edge_norm(&self) -> Option<&[f32]> {
        self.edge_norm.as_deref()
    }

    /// The feature row of each node, if there are features.
    pub fn features(&self) -> Option<&Dense<T>> {
        self.features.as_ref()
    }
}

/// Batches of random-walk sub-graphs.
pub struct SaintBatches<T: Stored = f32> {
    sampler: SaintSampler,
    features: Option<Dense<T>>,
    norm: Option<Arc<SaintNorm>>,
    config: SaintConfig,
}

impl<T: Stored> SaintBatches<T> {
    /// Batches from a sampler, with the features of their nodes if there are any.
    ///
    /// # Errors
    /// When there is not one feature row per node, or a batch is to have no walk.
    pub fn new(
        sampler: SaintSampler,
        features: Option<&Dense<T>>,
        config: SaintConfig,
    ) -> Result<Self> {
        if let Some(x) = features {
            let n_nodes = sampler.adjacency.n_rows();
            same_size("random walks", "rows of x", n_nodes, x.n_rows())?;
        }
        if config.roots == 0 {
            return Err(Error::argument("roots of a batch", "0 is too few"));
        }
        Ok(SaintBatches { sampler, features: features.cloned(), norm: None, config })
    }

    /// Measures how often nodes and edges are drawn, until each node was about `coverage` times,
    /// and gives every batch the coefficients that correct for it.
    ///
    /// # Errors
    /// When the coverage is 0 or less.
    pub fn normalized(mut self, coverage: f64, threads: &Threads) -> Result<Self> {
        let norm = SaintNorm::measure(&self.sampler, &self.config, coverage, threads)?;
        self.norm = Some(Arc::new(norm));
        Ok(self)
    }

    /// The coefficients, if they were measured.
    pub fn norm(&self) -> Option<&SaintNorm> {
        self.norm.as_deref()
    }

    /// Number of batches in an epoch.
    pub fn n_batches(&self) -> usize {
        self.config.batches
    }

    /// Begins an epoch. Its batches depend on the seed and the epoch, not on who prepares them.
    ///
    /// # Errors
    /// When the system refuses the threads.
    pub fn epoch(&self, epoch: u64) -> Result<Ahead<SaintBatch<T>>> {
        Ahead::new(self.n_batches(), self.config.preparation, || self.maker(epoch))
    }

    /// Begins an epoch at batch `from`; the threads that prepare batches make something of each.
    ///
    /// # Errors
    /// When the system refuses the threads.
    pub fn epoch_with<X, F>(
        &self,
        (epoch, from): (u64, usize),
        make: F,
    ) -> Result<Ahead<With<SaintBatch<T>, X>>>
    where
        X: Send + 'static,
        F: FnMut(&SaintBatch<T>) -> Result<X> + Clone + Send + 'static,
    {
        let count = self.n_batches().saturating_sub(from);
        Ahead::new(count, self.config.preparation, || with(from, self.maker(epoch), make.clone()))
    }

    /// Makes the batches of an epoch, in any order.
    fn maker(
        &self,
        epoch: u64,
    ) -> impl FnMut(usize, Option<SaintBatch<T>>) -> Result<SaintBatch<T>> + Send + use<T> {
        let mut sampler = self.sampler.another();
        let (features, norm) = (self.features.clone(), self.norm.clone());
        let config = self.config.clone();
        move |number: usize, old: Option<SaintBatch<T>>| {
            let mut batch = old.unwrap_or_else(SaintBatch::new);
            // What shares the batch's memory goes first, so that it can be written again.
            (batch.adjacency, batch.features) = (None, None);
            batch.number = number;
            let rng = batch_rng(config.seed, "random walks", epoch, number);
            sampler.sample(config.roots, config.steps, rng, &mut batch.induced);
            let Induced { nodes, edge_ids, .. } = &batch.induced;
            batch.node_norm = norm.as_ref().map(|norm| norm.of_nodes(nodes));
            batch.edge_norm = norm.as_ref().map(|norm| norm.of_edges(edge_ids));
            batch.adjacency = Some(batch.induced.csr(sampler.adjacency.values().is_some())?);
            if let Some(x) = &features {
                batch.features = Some(gather(x, nodes, &mut batch.rows)?);
            }
            Ok(batch)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lacis_core::Buffer;

    /// A ring of 60 nodes with chords, all edges one way; node 60 has none.
    fn graph() -> Graph {
        let ring = (0..60u32).map(|i| (i, (i + 1) % 60));
        let chords = (0..60u32).step_by(3).map(|i| (i, (i * 7 + 5) % 60));
        Graph::from_edges(61, &ring.chain(chords).collect::<Vec<_>>()).unwrap()
    }

    fn config(workers: usize) -> SaintConfig {
        let preparation = Preparation { workers, depth: 1 };
        SaintConfig { roots: 4, steps: 3, batches: 9, seed: 11, preparation }
    }

    fn batches(graph: &Graph, workers: usize) -> SaintBatches {
        let starts: Vec<u32> = (0..61).collect();
        let sampler = SaintSampler::new(graph, &starts, &Threads::one()).unwrap();
        let x = Dense::<f32>::from_fn(61, 2, |i, _| i as f64);
        SaintBatches::new(sampler, Some(&x), config(workers)).unwrap()
    }

    #[test]
    fn all_edges_among_the_visited_are_there() {
        let plain = graph();
        let weights: Buffer<f32> =
            (0..plain.n_edges()).map(|e| e as f32).collect::<Vec<_>>().into();
        let weighted = plain.adjacency().as_ref().clone().with_values(Some(weights)).unwrap();
        for graph in [plain, Graph::new(weighted)] {
            let all = batches(&graph, 0);
            let mut epoch = all.epoch(0).unwrap();
            while let Some(batch) = epoch.next().unwrap() {
                let nodes = batch.nodes();
                assert!(nodes.windows(2).all(|pair| pair[0] < pair[1]) && nodes.len() <= 16);
                let place = |node| nodes.iter().position(|&other| other as usize == node);
                let among = graph
                    .adjacency()
                    .entries()
                    .filter_map(|(i, j, v)| Some((place(i)?, place(j)?, v)));
                let expected: Vec<_> = among.collect();
                assert_eq!(batch.adjacency().entries().collect::<Vec<_>>(), expected);
                assert_eq!(batch.adjacency().n_cols(), nodes.len());
                let x = batch.features().unwrap();
                assert!((0..nodes.len()).all(|i| x.at(i, 1) == f64::from(nodes[i])));
            }
        }
    }

    /// On a path whose edges all lead to the right, a walk goes to the right.
    #[test]
    fn walks_follow_the_edges() {
        let path: Vec<(u32, u32)> = (0..9).map(|i| (i, i + 1)).collect();
        let graph = Graph::from_edges(10, &path).unwrap();
        let mut sampler = SaintSampler::new(&graph, &[5], &Threads::one()).unwrap();
        let mut batch = Induced::default();
        for (steps, expected) in [(0, 5..6), (2, 5..8), (9, 5..10)] {
            sampler.sample(1, steps, Rng::new(0, "test"), &mut batch);
            assert_eq!(batch.nodes, expected.collect::<Vec<u32>>());
        }
    }

    #[test]
    fn batches_depend_on_seed_and_epoch_only() {
        let contents = |workers, epoch| {
            let mut epoch = batches(&graph(), workers).epoch(epoch).unwrap();
            let mut contents = Vec::new();
            while let Some(batch) = epoch.next().unwrap() {
                contents.push((batch.nodes().to_vec(), batch.edge_ids().to_vec()));
            }
            contents
        };
        let expected = contents(0, 4);
        assert_eq!(expected.len(), 9);
        assert!([1, 2, 7].into_iter().all(|workers| contents(workers, 4) == expected));
        assert_ne!(contents(0, 5), expected);
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        let new = |starts: &[u32]| SaintSampler::new(&graph(), starts, &Threads::one());
        assert!(new(&[]).is_err() && new(&[61]).is_err());
        let no_roots = SaintConfig { roots: 0, ..config(0) };
        assert!(SaintBatches::<f32>::new(new(&[0]).unwrap(), None, no_roots).is_err());
        let x = Dense::<f32>::zeros(60, 1);
        assert!(SaintBatches::new(new(&[0]).unwrap(), Some(&x), config(0)).is_err());
        assert!(batches(&graph(), 0).normalized(0.0, &Threads::one()).is_err());
    }
}
