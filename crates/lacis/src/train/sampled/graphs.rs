//! Batches of the small graphs of a collection.

use lacis_core::{Collection, Dataset, Error, Features, Result};
use lacis_plan::plan::Plan;

use super::{Made, Sampled, Setting, features_of, needs};
use crate::levels::Levels;
use crate::levels::drawn::Drawn;
use crate::sample::{GraphBatch, GraphBatches, GraphConfig, Order};
use crate::train::source::Source;
use crate::train::targets::Labelled;

/// The graphs of a data set.
///
/// # Errors
/// When it has only one.
pub(in crate::train) fn collection(dataset: &Dataset) -> Result<&Collection> {
    dataset.collection().ok_or_else(|| {
        let problem = "is one graph; --task graph needs a collection of them";
        Error::argument(format!("data set '{}'", dataset.name()), problem)
    })
}

pub(super) fn source(setting: &Setting<'_>, plan: Option<&Plan>) -> Result<Box<dyn Source>> {
    let (job, features) = (setting.job, setting.features.clone());
    let (graph, collection) = (job.dataset.graph(), collection(job.dataset)?);
    let config = GraphConfig {
        batch_size: setting.batch_size(),
        seed: setting.recipe.seed,
        order: Order::Shuffled,
        preparation: setting.preparation(),
    };
    let dense = match &*features {
        Features::Dense(x) => Some(x),
        Features::Sparse(_) => None,
    };
    let batches = GraphBatches::new((graph, collection), dense, &job.split.train, config)?;
    let (labels, needs, levels) = (setting.labels()?, needs(plan), setting.model.levels);
    let symmetric = graph.is_symmetric(job.threads);
    let make = move |batch: &GraphBatch| {
        let nodes = batch.nodes();
        let drawn = Drawn {
            edges: batch.adjacency(),
            nodes: vec![nodes.len(); levels],
            order: nodes,
            features: features_of(batch.features(), &features, nodes)?,
            symmetric,
            coefficients: false,
            sums: None,
        };
        let rows = (0..batch.graphs().len() as u32).collect();
        Ok(Made {
            levels: Levels::drawn(&drawn, &needs)?,
            labelled: Labelled::new(&labels, batch.graphs(), rows),
            graphs: Some(batch.starts().to_vec()),
            pairs: None,
        })
    };
    let count = batches.n_batches();
    let start = move |epoch, from| batches.epoch_with((epoch, from), make.clone());
    Ok(Box::new(Sampled::new(count, start)))
}
