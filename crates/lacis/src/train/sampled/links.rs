//! Batches of edges with the sampled neighbourhoods of their ends, as `--task link --sample
//! neighbor:15,10` asks for.
//!
//! ```text
//!   an epoch:   training edges, shuffled        e0 e1 e2 │ e3 e4 e5 │ …
//!               pairs without one, drawn anew   f0 f1 f2 │ f3 f4 f5 │ …
//!   a batch:    both, and what their ends gather from, as LinkNeighborLoader of torch_geometric
//! ```
//! The edges that are learned stay in the graph along which messages pass, as in a full batch.

use std::sync::Arc;

use lacis_core::{Error, Features, Result, Rng, Threads};
use lacis_plan::plan::Plan;

use super::neighbor::{hops_for, levels_of};
use super::{Made, Sampled, Setting, needs};
use crate::link::Links;
use crate::pairs::Pairs;
use crate::sample::{NeighborBatch, NeighborBatches, NeighborConfig, Order, Sampling};
use crate::train::source::Source;
use crate::train::targets::Labelled;

pub(super) fn source(
    setting: &Setting<'_>,
    links: &Arc<Links>,
    plan: Option<&Plan>,
) -> Result<Box<dyn Source>> {
    let Some(Sampling::Neighbor(fanouts)) = &setting.recipe.sample else {
        let problem = "links are learned from neighbourhoods; --sample neighbor:15,10 would do";
        return Err(Error::argument("--task link", problem));
    };
    let hops = hops_for(setting, fanouts)?;
    let (size, seed) = (setting.batch_size(), setting.recipe.seed);
    if size == 0 {
        return Err(Error::argument("batch size", "0 is too few; 1 or more would be right"));
    }
    // Two pairs for each edge of a batch, and two ends of each.
    let config = NeighborConfig {
        order: Order::AsGiven,
        preparation: setting.preparation(),
        ..NeighborConfig::new(fanouts.clone(), 4 * size, seed)
    };
    let (graph, features) = (setting.job.dataset.graph().clone(), setting.features.clone());
    let (links, needs, edges) = (links.clone(), needs(plan), links.counts()[0]);
    let start = move |epoch: u64, from: usize| {
        let dense = match &*features {
            Features::Dense(x) => Some(x),
            Features::Sparse(_) => None,
        };
        let ends = ends_of(&links, (epoch, seed), size)?;
        let batches = NeighborBatches::new(&graph, dense, &ends, config.clone())?;
        let (features, needs) = (features.clone(), needs.clone());
        batches.epoch_with((epoch, from), move |batch: &NeighborBatch| {
            let rows = batch.seed_rows();
            let pairs: Vec<[u32; 2]> = rows.chunks_exact(2).map(|p| [p[0], p[1]]).collect();
            let joined = size.min(edges - batch.number() * size);
            let labelled = Labelled::pairs(joined, pairs.len() - joined);
            let pairs = Pairs::new(batch.seeds().len(), &pairs, &Threads::one())?;
            let levels = levels_of(batch, hops, &features, &needs)?;
            Ok(Made { levels, labelled, graphs: None, pairs: Some(pairs) })
        })
    };
    Ok(Box::new(Sampled::new(edges.div_ceil(size), start)))
}

/// The ends of an epoch's pairs, batch by batch: edges first, then as many pairs without one.
fn ends_of(links: &Links, (epoch, seed): (u64, u64), size: usize) -> Result<Vec<u32>> {
    let mut edges = links.of_epoch(epoch as usize)?;
    let mut free = edges.split_off(links.counts()[0]);
    if free.is_empty() {
        return Err(Error::argument(
            "links",
            "every two nodes are joined: nothing to compare with",
        ));
    }
    Rng::new(seed, "order of the edges").stream(epoch).shuffle(&mut edges);
    // A nearly complete graph has fewer pairs without an edge: they serve again.
    free = free.iter().copied().cycle().take(edges.len()).collect();
    let batches = edges.chunks(size).zip(free.chunks(size));
    Ok(batches.flat_map(|(edges, free)| edges.iter().chain(free)).flatten().copied().collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use lacis_core::Graph;
    use lacis_data::Job;

    #[test]
    fn an_epoch_has_every_edge_once_and_as_many_pairs_without_one() {
        let edges: Vec<(u32, u32)> =
            (0..40).flat_map(|i| [(i, (i + 1) % 40), ((i + 1) % 40, i)]).collect();
        let (graph, threads) = (Graph::from_edges(40, &edges).unwrap(), Threads::one());
        let links = Links::new(&graph, 3, &Job::quiet(&threads)).unwrap();
        let [first, again, second] =
            [0, 0, 1].map(|epoch| ends_of(&links, (epoch, 5), 10).unwrap());
        assert_eq!(first, again);
        assert_ne!(first, second);
        let pairs: Vec<[u32; 2]> = first.chunks(2).map(|p| [p[0], p[1]]).collect();
        assert_eq!(pairs.len(), 2 * links.counts()[0]);
        let is_edge = |pair: &[u32; 2]| matches!(pair[0].abs_diff(pair[1]), 1 | 39);
        let mut seen: Vec<[u32; 2]> = Vec::new();
        for batch in pairs.chunks(20) {
            let (joined, apart) = batch.split_at(batch.len() / 2);
            assert!(joined.iter().all(is_edge));
            let message = links.message().adjacency();
            assert!(apart.iter().all(|[i, j]| !message.row_cols(*j as usize).contains(i)));
            seen.extend(joined);
        }
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen.len(), links.counts()[0]);
    }
}
