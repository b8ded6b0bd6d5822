//! [`NeighborBatches`]: an epoch of seeds, each batch with its sampled neighbourhood.

use std::sync::Arc;

use lacis_core::error::same_size;
use lacis_core::{Csr, Dense, Graph, Result, Rng};
use lacis_kernels::Stored;

use super::ahead::{Ahead, Preparation, With, with};
use super::draw::batch_rng;
use super::features::gather;
use super::grown::Grown;
use super::items::{Items, Order};
use super::neighbor::{EdgeIds, Fanout, NeighborSampler, Sampled};

/// How batches are made.
#[derive(Clone, Debug)]
pub struct NeighborConfig {
    /// One per layer, from the seeds on.
    pub fanouts: Vec<Fanout>,
    /// Seeds of a batch; the last batch may have fewer.
    pub batch_size: usize,
    /// Where all random numbers come from.
    pub seed: u64,
    /// The order of the seeds.
    pub order: Order,
    /// Whether edges are known by their place in the graph.
    pub edge_ids: EdgeIds,
    /// Who prepares batches, and how far ahead.
    pub preparation: Preparation,
}

impl NeighborConfig {
    /// Shuffled seeds, no edge ids, one batch prepared while another is used.
    pub fn new(fanouts: Vec<Fanout>, batch_size: usize, seed: u64) -> Self {
        NeighborConfig {
            fanouts,
            batch_size,
            seed,
            order: Order::Shuffled,
            edge_ids: EdgeIds::Drop,
            preparation: Preparation::default(),
        }
    }
}

/// Seeds with their sampled neighbourhood: see [`NeighborSampler`] for what the blocks are.
pub struct NeighborBatch<T: Stored = f32> {
    number: usize,
    sampled: Sampled,
    rows: Grown<T>,
    features: Option<Dense<T>>,
}

impl<T: Stored> NeighborBatch<T> {
    /// An empty batch, to sample into.
    pub fn new(edge_ids: EdgeIds) -> Self {
        let sampled = Sampled::new(edge_ids);
        NeighborBatch { number: 0, sampled, rows: Grown::default(), features: None }
    }

    /// The batch's number in its epoch.
    pub fn number(&self) -> usize {
        self.number
    }

    /// The graph's number of each node: the seeds, then in order of discovery, hop by hop.
    pub fn nodes(&self) -> &[u32] {
        self.sampled.nodes.as_slice()
    }

    /// Number of nodes known after each hop; first, that of the seeds.
    pub fn known(&self) -> &[usize] {
        &self.sampled.known
    }

    /// The seeds, each once.
    pub fn seeds(&self) -> &[u32] {
        &self.nodes()[..self.sampled.known.first().copied().unwrap_or(0)]
    }

    /// For each seed as it was given, its row: where seeds repeat, rows do not.
    pub fn seed_rows(&self) -> &[u32] {
        &self.sampled.seed_rows
    }

    /// One matrix per hop: block `l` has the nodes known after hop `l` as rows and those after one
    /// more as columns. The first layer uses the last block, the last layer block 0.
    pub fn blocks(&self) -> &[Csr] {
        &self.sampled.blocks
    }

    /// For each entry of the last block, and so of every block, its position in the adjacency, if
    /// it was asked for.
    pub fn edge_ids(&self) -> Option<&[u64]> {
        self.sampled.edge_ids.as_deref()
    }

    /// The feature row of each node, if there are features.
    pub fn features(&self) -> Option<&Dense<T>> {
        self.features.as_ref()
    }
}

impl NeighborSampler {
    /// Fills a batch: the neighbourhood of `seeds` and, if there are any, the features in it.
    ///
    /// # Errors
    /// When a seed is not in the graph, or more than `u32::MAX` edges were drawn.
    pub fn fill<T: Stored>(
        &mut self,
        batch: &mut NeighborBatch<T>,
        seeds: &[u32],
        features: Option<&Dense<T>>,
        rng: Rng,
    ) -> Result<()> {
        // What shares the batch's memory goes first, so that it can be written again.
        batch.features = None;
        self.sample(seeds, rng, &mut batch.sampled)?;
        let nodes = batch.sampled.nodes.as_slice();
        batch.features = match features {
            Some(x) => Some(gather(x, nodes, &mut batch.rows)?),
            None => None,
        };
        Ok(())
    }
}

/// Batches of seeds with sampled neighbourhoods.
///
/// ```
/// use lacis::sample::{Fanout, NeighborBatches, NeighborConfig};
/// use lacis::{Dense, Graph};
///
/// let graph = Graph::from_edges(4, &[(1, 0), (2, 1), (3, 2), (0, 3)])?;
/// let x = Dense::<f32>::from_fn(4, 2, |i, _| i as f64);
/// let config = NeighborConfig::new(Fanout::parse_list("2,2")?, 1, 7);
/// let batches = NeighborBatches::new(&graph, Some(&x), &[0], config)?;
/// let mut epoch = batches.epoch(0)?;
/// let batch = epoch.next()?.expect("one seed makes one batch");
/// assert_eq!((batch.nodes(), batch.known()), (&[0, 1, 2][..], &[1, 2, 3][..]));
/// # Ok::<(), lacis::Error>(())
/// ```
pub struct NeighborBatches<T: Stored = f32> {
    graph: Graph,
    features: Option<Dense<T>>,
    seeds: Items,
    config: NeighborConfig,
}

impl<T: Stored> NeighborBatches<T> {
    /// Batches of these seeds, with the features of their nodes if there are any.
    ///
    /// # Errors
    /// When sizes disagree, a batch is to be empty, or the fan-outs make no sense.
    pub fn new(
        graph: &Graph,
        features: Option<&Dense<T>>,
        seeds: &[u32],
        config: NeighborConfig,
    ) -> Result<Self> {
        if let Some(x) = features {
            same_size("neighbour sampling", "rows of x", graph.n_nodes(), x.n_rows())?;
        }
        NeighborSampler::new(graph, &config.fanouts)?;
        let seeds = Items::new(seeds, config.batch_size, config.order, config.seed)?;
        Ok(NeighborBatches { graph: graph.clone(), features: features.cloned(), seeds, config })
    }

    /// Number of batches in an epoch.
    pub fn n_batches(&self) -> usize {
        self.seeds.n_batches()
    }

    /// Begins an epoch. Its batches depend on the seed and the epoch, not on who prepares them.
    ///
    /// # Memory
    /// Four bytes per node of the graph for each thread that prepares, besides the batches.
    ///
    /// # Errors
    /// When the system refuses the threads.
    pub fn epoch(&self, epoch: u64) -> Result<Ahead<NeighborBatch<T>>> {
        let seeds = self.seeds.of_epoch(epoch);
        Ahead::new(self.n_batches(), self.config.preparation, || self.maker(epoch, seeds.clone()))
    }

    /// Begins an epoch at batch `from`; the threads that prepare batches make something of each.
    ///
    /// # Errors
    /// When the system refuses the threads.
    pub fn epoch_with<X, F>(
        &self,
        (epoch, from): (u64, usize),
        make: F,
    ) -> Result<Ahead<With<NeighborBatch<T>, X>>>
    where
        X: Send + 'static,
        F: FnMut(&NeighborBatch<T>) -> Result<X> + Clone + Send + 'static,
    {
        let seeds = self.seeds.of_epoch(epoch);
        let count = self.n_batches().saturating_sub(from);
        Ahead::new(count, self.config.preparation, || {
            with(from, self.maker(epoch, seeds.clone()), make.clone())
        })
    }

    /// Makes the batches of an epoch, in any order.
    fn maker(
        &self,
        epoch: u64,
        seeds: Arc<Vec<u32>>,
    ) -> impl FnMut(usize, Option<NeighborBatch<T>>) -> Result<NeighborBatch<T>> + Send + use<T>
    {
        let (items, features) = (self.seeds.clone(), self.features.clone());
        let (seed, edge_ids) = (self.config.seed, self.config.edge_ids);
        let mut sampler = NeighborSampler::new(&self.graph, &self.config.fanouts)
            .expect("checked when the batches were");
        move |number: usize, old: Option<NeighborBatch<T>>| {
            let mut batch = old.unwrap_or_else(|| NeighborBatch::new(edge_ids));
            batch.number = number;
            let rng = batch_rng(seed, "neighbours", epoch, number);
            let seeds = &seeds[items.range(number)];
            sampler.fill(&mut batch, seeds, features.as_ref(), rng)?;
            Ok(batch)
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use lacis_core::{Buffer, Error, bf16};

    /// Node `i` has in-edges from `i·7 + 1`, `i·7 + 2`, … as many as `i mod 20`.
    fn graph() -> Graph {
        let n = 200u32;
        let row = |i: u32| (1..=i % 20).map(move |s| ((i * 7 + s) % n, i));
        Graph::from_edges(n as usize, &(0..n).flat_map(row).collect::<Vec<_>>()).unwrap()
    }

    fn config(fanouts: &str, workers: usize) -> NeighborConfig {
        NeighborConfig {
            edge_ids: EdgeIds::Keep,
            preparation: Preparation { workers, depth: 2 },
            ..NeighborConfig::new(Fanout::parse_list(fanouts).unwrap(), 16, 5)
        }
    }

    /// Whether a batch is what its definition says, found in the slowest way.
    fn check(batch: &NeighborBatch, graph: &Graph, fanouts: &[Fanout]) {
        let a = graph.adjacency();
        let nodes = batch.nodes();
        assert_eq!(nodes.iter().collect::<HashSet<_>>().len(), nodes.len());
        assert_eq!(*batch.known().last().unwrap(), nodes.len());
        assert_eq!(batch.blocks().len(), fanouts.len());
        let (last, ids) = (batch.blocks().last().unwrap(), batch.edge_ids().unwrap());
        assert_eq!(ids.iter().collect::<HashSet<_>>().len(), last.nnz());
        let mut found: Vec<u32> = batch.seeds().to_vec();
        for (hop, block) in batch.blocks().iter().enumerate() {
            let known = batch.known();
            assert_eq!((block.n_rows(), block.n_cols()), (known[hop], known[hop + 1]));
            assert_eq!(block.cols(), &last.cols()[..block.nnz()]);
            let frontier = if hop == 0 { 0 } else { known[hop - 1] }..known[hop];
            for row in frontier {
                let node = nodes[row] as usize;
                let degree = a.row(node).len() as u32;
                assert_eq!(block.row(row).len() as u32, fanouts[hop].of(degree));
                for e in block.row(row) {
                    let (source, id) = (nodes[block.cols()[e] as usize], ids[e] as usize);
                    assert!(a.row(node).contains(&id));
                    assert_eq!(a.cols()[id], source);
                    assert_eq!(block.value(e), a.value(id));
                    if !found.contains(&source) {
                        found.push(source);
                    }
                }
            }
        }
        assert_eq!(found, nodes, "order of discovery");
    }

    #[test]
    fn batches_are_what_the_definition_says() {
        let plain = graph();
        let weights: Buffer<f32> =
            (0..plain.n_edges()).map(|e| e as f32).collect::<Vec<_>>().into();
        let weighted = plain.adjacency().as_ref().clone().with_values(Some(weights)).unwrap();
        let x = Dense::from_fn(200, 3, |i, j| (i * 3 + j) as f64);
        for graph in [plain, Graph::new(weighted)] {
            for fanouts in ["3", "5,4", "-1", "2,-1,3", "100,100"] {
                let seeds: Vec<u32> = (0..100).collect();
                let all =
                    NeighborBatches::new(&graph, Some(&x), &seeds, config(fanouts, 0)).unwrap();
                assert_eq!(all.n_batches(), 7);
                let mut epoch = all.epoch(3).unwrap();
                let mut met = Vec::new();
                while let Some(batch) = epoch.next().unwrap() {
                    check(batch, &graph, &Fanout::parse_list(fanouts).unwrap());
                    met.extend_from_slice(batch.seeds());
                    let rows = batch.features().unwrap();
                    assert_eq!(rows.n_rows(), batch.nodes().len());
                    let row = |i: usize| x.row(batch.nodes()[i] as usize);
                    assert!((0..rows.n_rows()).all(|i| rows.row(i) == row(i)));
                }
                assert_ne!(met, seeds);
                met.sort_unstable();
                assert_eq!(met, seeds);
            }
        }
    }

    /// Everything about an epoch's batches, to compare.
    fn contents(workers: usize, epoch: u64) -> Vec<(Vec<u32>, Vec<u64>)> {
        let seeds: Vec<u32> = (0..200).collect();
        let all = NeighborBatches::<f32>::new(&graph(), None, &seeds, config("4,4", workers));
        let mut epoch = all.unwrap().epoch(epoch).unwrap();
        let mut contents = Vec::new();
        while let Some(batch) = epoch.next().unwrap() {
            contents.push((batch.nodes().to_vec(), batch.edge_ids().unwrap().to_vec()));
        }
        contents
    }

    #[test]
    fn batches_depend_on_seed_and_epoch_only() {
        let expected = contents(0, 1);
        for workers in [1, 2, 3, 7] {
            assert_eq!(contents(workers, 1), expected);
        }
        assert_ne!(contents(0, 2), expected);
    }

    #[test]
    fn a_node_draws_other_edges_in_another_batch() {
        let hub: Vec<(u32, u32)> = (1..50).map(|source| (source, 0)).collect();
        let graph = Graph::from_edges(50, &hub).unwrap();
        let one = NeighborConfig { batch_size: 1, ..config("5", 0) };
        let all = NeighborBatches::<f32>::new(&graph, None, &[0, 0], one).unwrap();
        let mut epoch = all.epoch(0).unwrap();
        let first = epoch.next().unwrap().unwrap().nodes().to_vec();
        assert_ne!(epoch.next().unwrap().unwrap().nodes(), first);
    }

    #[test]
    fn repeated_seeds_share_a_row() {
        let mut sampler = NeighborSampler::new(&graph(), &[Fanout::Most(2)]).unwrap();
        let mut batch = NeighborBatch::<f32>::new(EdgeIds::Drop);
        sampler.fill(&mut batch, &[9, 4, 9], None, Rng::new(0, "test")).unwrap();
        assert_eq!((batch.seeds(), batch.seed_rows()), (&[9, 4][..], &[0, 1, 0][..]));
        assert_eq!((batch.blocks()[0].n_rows(), batch.edge_ids()), (2, None));
        sampler.fill(&mut batch, &[], None, Rng::new(0, "test")).unwrap();
        assert!(batch.nodes().is_empty() && batch.blocks()[0].nnz() == 0);
    }

    #[test]
    fn features_keep_their_format() {
        let x = Dense::<bf16>::from_fn(200, 5, |i, j| (i + j) as f64);
        let all = NeighborBatches::new(&graph(), Some(&x), &[3, 150], config("2", 1)).unwrap();
        let mut epoch = all.epoch(0).unwrap();
        let batch = epoch.next().unwrap().unwrap();
        let place = batch.nodes().iter().position(|&node| node == 150).unwrap();
        assert_eq!(batch.features().unwrap().row(place), x.row(150));
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        let new =
            |seeds: &[u32], config| NeighborBatches::<f32>::new(&graph(), None, seeds, config);
        assert!(new(&[0], NeighborConfig { batch_size: 0, ..config("2", 0) }).is_err());
        assert!(new(&[0], NeighborConfig { fanouts: vec![], ..config("2", 0) }).is_err());
        let zero = vec![Fanout::Most(0)];
        assert!(new(&[0], NeighborConfig { fanouts: zero, ..config("2", 0) }).is_err());
        let outside = new(&[0, 200], config("2", 1)).unwrap();
        let mut epoch = outside.epoch(0).unwrap();
        assert!(matches!(epoch.next(), Err(Error::Index { index: 200, .. })));
        let x = Dense::<f32>::zeros(199, 1);
        assert!(NeighborBatches::new(&graph(), Some(&x), &[0], config("2", 0)).is_err());
        let error = Fanout::parse_list("15,0").unwrap_err();
        assert_eq!(
            error.to_string(),
            "'0': is no fan-out; a number above 0, or -1 for all, would be right"
        );
        let no_seeds = new(&[], config("2", 2)).unwrap();
        assert!(no_seeds.epoch(0).unwrap().next().unwrap().is_none());
    }
}
