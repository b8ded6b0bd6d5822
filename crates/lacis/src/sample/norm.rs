//! [`SaintNorm`]: what corrects for nodes and edges that are drawn more often than others.
//!
//! With `C_v` and `C_uv` the number of batches, of `N` drawn beforehand, that node `v` and edge
//! `u → v` were in (GraphSAINT, section 3.2):
//! ```text
//!   of a message  u → v   C_v / C_uv        its mean over batches that have v is then the full sum
//!   of the loss of v      N / (C_v · n)     the mean over batches is then the mean over n nodes
//! ```
//! As PyG has it, an edge's coefficient is at most 10⁴ and 0.1 where nothing was drawn, and a node
//! that was not drawn counts as drawn 0.1 times. Unlike there, an edge that was not drawn though
//! its target was counts as drawn once: 10⁴ would outweigh everything when it is met later.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use lacis_core::{Error, Result, Threads};

use super::draw::batch_rng;
use super::saint::{Induced, SaintConfig, SaintSampler};

const MOST: f32 = 1e4;
const NOT_DRAWN: f32 = 0.1;

/// The coefficients of all nodes and edges of a graph.
#[derive(Clone, Debug, PartialEq)]
pub struct SaintNorm {
    nodes: Vec<f32>,
    edges: Vec<f32>,
}

impl SaintNorm {
    /// Draws epochs of batches until they have `coverage` times as many nodes as the graph.
    ///
    /// # Parallelism
    /// Batches are counted in any order: counts add up to the same.
    pub(super) fn measure(
        sampler: &SaintSampler,
        config: &SaintConfig,
        coverage: f64,
        threads: &Threads,
    ) -> Result<Self> {
        let positive = coverage > 0.0 && coverage.is_finite();
        if !positive || config.batches == 0 {
            let problem = "a coverage above 0 and at least one batch would be right";
            return Err(Error::argument("measuring how often nodes are drawn", problem));
        }
        let a = sampler.adjacency();
        let counters = |n: usize| (0..n).map(|_| AtomicU32::new(0)).collect::<Vec<_>>();
        let (nodes, edges) = (counters(a.n_rows()), counters(a.nnz()));
        let enough = coverage * a.n_rows() as f64;
        let (mut drawn, mut epochs) = (0.0, 0);
        while drawn < enough {
            let begin = || (sampler.another(), Induced::default());
            let lengths = threads.map_with((0..config.batches).collect(), begin, |own, number| {
                let (sampler, batch) = own;
                let rng = batch_rng(config.seed, "walks that are counted", epochs, number);
                sampler.sample(config.roots, config.steps, rng, batch);
                batch.nodes.iter().for_each(|&v| _ = nodes[v as usize].fetch_add(1, Relaxed));
                batch.edge_ids.iter().for_each(|&e| _ = edges[e as usize].fetch_add(1, Relaxed));
                batch.nodes.len()
            });
            drawn += lengths.iter().sum::<usize>() as f64;
            epochs += 1;
        }
        let counted = |counts: Vec<AtomicU32>| counts.into_iter().map(AtomicU32::into_inner);
        let (nodes, edges): (Vec<u32>, Vec<u32>) =
            (counted(nodes).collect(), counted(edges).collect());
        let targets = (0..a.n_rows()).flat_map(|i| a.row(i).map(move |_| i));
        let edges = targets.zip(&edges).map(|(v, &edge)| edge_norm(nodes[v], edge)).collect();
        let n_batches = epochs as usize * config.batches;
        let node_norm = |&count: &u32| {
            let count = if count == 0 { NOT_DRAWN } else { count as f32 };
            (n_batches as f64 / f64::from(count) / nodes.len() as f64) as f32
        };
        Ok(SaintNorm { nodes: nodes.iter().map(node_norm).collect(), edges })
    }

    /// What the loss of each node is multiplied by.
    pub fn nodes(&self) -> &[f32] {
        &self.nodes
    }

    /// What the message along each entry of the adjacency is multiplied by.
    pub fn edges(&self) -> &[f32] {
        &self.edges
    }

    pub(super) fn of_nodes(&self, nodes: &[u32]) -> Vec<f32> {
        nodes.iter().map(|&node| self.nodes[node as usize]).collect()
    }

    pub(super) fn of_edges(&self, edges: &[u64]) -> Vec<f32> {
        edges.iter().map(|&e| self.edges[e as usize]).collect()
    }
}

/// `target / edge`, within bounds.
fn edge_norm(target: u32, edge: u32) -> f32 {
    match (target, edge) {
        (0, 0) => NOT_DRAWN,
        _ => (target as f32 / edge.max(1) as f32).min(MOST),
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Preparation, SaintBatches};
    use super::*;
    use lacis_core::Graph;

    fn star() -> Graph {
        let edges: Vec<(u32, u32)> = (1..8).flat_map(|leaf| [(0, leaf), (leaf, 0)]).collect();
        Graph::from_edges(9, &edges).unwrap()
    }

    fn config() -> SaintConfig {
        let preparation = Preparation::WHEN_ASKED;
        SaintConfig { roots: 2, steps: 1, batches: 50, seed: 3, preparation }
    }

    fn measured(threads: usize) -> SaintNorm {
        let (starts, threads): (Vec<u32>, _) = ((0..8).collect(), Threads::new(threads).unwrap());
        let sampler = SaintSampler::new(&star(), &starts, &threads).unwrap();
        SaintNorm::measure(&sampler, &config(), 200.0, &threads).unwrap()
    }

    /// The definition, by counting the same batches again.
    #[test]
    fn coefficients_are_ratios_of_counts() {
        let norm = measured(1);
        let graph = star();
        let a = graph.adjacency();
        let starts: Vec<u32> = (0..8).collect();
        let mut sampler = SaintSampler::new(&graph, &starts, &Threads::one()).unwrap();
        let (mut nodes, mut edges, mut n_batches) = ([0u32; 9], vec![0u32; a.nnz()], 0);
        let mut epoch = 0;
        while nodes.iter().sum::<u32>() < 200 * 9 {
            for number in 0..50 {
                let mut batch = Induced::default();
                let rng = batch_rng(3, "walks that are counted", epoch, number);
                sampler.sample(2, 1, rng, &mut batch);
                batch.nodes.iter().for_each(|&v| nodes[v as usize] += 1);
                batch.edge_ids.iter().for_each(|&e| edges[e as usize] += 1);
                n_batches += 1;
            }
            epoch += 1;
        }
        for (e, (i, _, _)) in a.entries().enumerate() {
            assert_eq!(norm.edges()[e], nodes[i] as f32 / edges[e] as f32);
        }
        // The hub is in every batch, node 8 in none.
        assert_eq!(nodes[0], n_batches);
        assert_eq!(norm.nodes()[0], (1.0 / 9.0) as f32);
        assert_eq!(norm.nodes()[8], (f64::from(n_batches) / 0.1f32 as f64 / 9.0) as f32);
        assert_eq!((edge_norm(0, 0), edge_norm(5, 0), edge_norm(4, 2)), (0.1, 5.0, 2.0));
    }

    #[test]
    fn threads_do_not_change_them() {
        assert_eq!(measured(1), measured(3));
    }

    /// The mean of `Σ_v norm(v)·f(v)` over batches is about the mean of `f` over the nodes drawn.
    #[test]
    fn the_loss_is_not_biased() {
        let threads = Threads::one();
        let starts: Vec<u32> = (0..8).collect();
        let sampler = SaintSampler::new(&star(), &starts, &threads).unwrap();
        let all =
            SaintBatches::<f32>::new(sampler, None, SaintConfig { batches: 4000, ..config() });
        let all = all.unwrap().normalized(5000.0, &threads).unwrap();
        let mut epoch = all.epoch(0).unwrap();
        let mut sum = 0.0;
        while let Some(batch) = epoch.next().unwrap() {
            let norm = batch.node_norm().unwrap();
            sum += batch
                .nodes()
                .iter()
                .zip(norm)
                .map(|(&v, n)| f64::from(v) * f64::from(*n))
                .sum::<f64>();
            assert_eq!(batch.edge_norm().unwrap().len(), batch.adjacency().nnz());
        }
        let expected = (0..8).sum::<u32>() as f64 / 9.0;
        assert!((sum / 4000.0 - expected).abs() < 0.05 * expected, "{}", sum / 4000.0);
    }
}
