//! Batches of nodes with their sampled neighbourhoods, as `--sample neighbor:15,10` asks for.
//!
//! With as many fan-outs as the network has hops, a layer computes only what the next one reads.
//! With fewer, the earliest hops gather among all nodes that were drawn. Degrees are those of the
//! drawn edges, as in torch_geometric.

use lacis_core::{Error, Features, Result};
use lacis_plan::plan::Plan;

use super::{Made, Sampled, Setting, features_of, needs};
use crate::levels::Levels;
use crate::levels::drawn::{Drawn, Needs};
use crate::sample::{Fanout, NeighborBatch, NeighborBatches, NeighborConfig};
use crate::train::source::Source;
use crate::train::targets::Labelled;

pub(super) fn source(
    setting: &Setting<'_>,
    fanouts: &[Fanout],
    plan: Option<&Plan>,
) -> Result<Box<dyn Source>> {
    let hops = hops_for(setting, fanouts)?;
    let (job, features) = (setting.job, setting.features.clone());
    let dense = match &*features {
        Features::Dense(x) => Some(x),
        Features::Sparse(_) => None,
    };
    let config = NeighborConfig {
        preparation: setting.preparation(),
        ..NeighborConfig::new(fanouts.to_vec(), setting.batch_size(), setting.recipe.seed)
    };
    let graph = job.dataset.graph();
    let batches = NeighborBatches::new(graph, dense, &job.split.train, config)?;
    let (labels, needs) = (setting.labels()?, needs(plan));
    let make = move |batch: &NeighborBatch| {
        Ok(Made {
            levels: levels_of(batch, hops, &features, &needs)?,
            labelled: Labelled::new(&labels, batch.seeds(), batch.seed_rows().to_vec()),
            graphs: None,
            pairs: None,
        })
    };
    let count = batches.n_batches();
    let start = move |epoch, from| batches.epoch_with((epoch, from), make.clone());
    Ok(Box::new(Sampled::new(count, start)))
}

/// How often the network gathers from neighbours: at least as often as there are fan-outs.
pub(super) fn hops_for(setting: &Setting<'_>, fanouts: &[Fanout]) -> Result<usize> {
    let hops = setting.hops()?;
    if fanouts.len() > hops {
        let problem = format!("the network gathers {hops} times; as many numbers are enough");
        return Err(Error::argument(format!("{} fan-outs", fanouts.len()), problem));
    }
    Ok(hops)
}

/// What a plan reads of a batch: a layer's nodes are those that the next one gathers from.
pub(super) fn levels_of(
    batch: &NeighborBatch,
    hops: usize,
    features: &Features,
    needs: &Needs,
) -> Result<Levels> {
    let (known, edges) = (batch.known(), batch.blocks().last().expect("a hop at least"));
    let drawn = Drawn {
        edges,
        nodes: (0..=hops).rev().map(|hop| known[hop.min(known.len() - 1)]).collect(),
        order: batch.nodes(),
        features: features_of(batch.features(), features, batch.nodes())?,
        symmetric: false,
        coefficients: false,
        sums: None,
    };
    Levels::drawn(&drawn, needs)
}
