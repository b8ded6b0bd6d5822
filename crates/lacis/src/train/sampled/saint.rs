//! Batches of random walks (GraphSAINT), as `--sample saint:2` asks for.
//!
//! Walks start at training nodes, so many a batch that an epoch has as many starts as nodes that
//! train. Sums over neighbours use the whole graph's degrees and the coefficients of edges, the
//! loss those of nodes: in the mean over batches both are what the whole graph gives. Maxima and
//! attention take a batch as it is: no factor per edge makes them unbiased.

use std::sync::Arc;

use lacis_core::{Csr, Error, Features, Result};
use lacis_plan::plan::{Operator, Plan};

use super::{Made, Sampled, Setting, features_of, needs};
use crate::levels::Levels;
use crate::levels::drawn::Drawn;
use crate::sample::{SaintBatch, SaintBatches, SaintConfig, SaintSampler};
use crate::train::source::Source;
use crate::train::targets::Labelled;

/// Steps that a batch takes at most; they are seconds.
const MOST_VISITS: usize = 1 << 28;
/// How often a node is met while coefficients are measured, in the mean.
const COVERAGE: f64 = 50.0;

pub(super) fn source(
    setting: &Setting<'_>,
    steps: usize,
    plan: Option<&Plan>,
) -> Result<Box<dyn Source>> {
    let (hops, job) = (setting.hops()?, setting.job);
    let (graph, train) = (job.dataset.graph(), &job.split.train);
    let (features, roots) = (setting.features.clone(), setting.batch_size());
    if roots.saturating_mul(steps) > MOST_VISITS {
        let problem = format!("{roots} walks of {steps} steps are a batch of hours or years");
        return Err(Error::argument("--batch-size", problem));
    }
    let config = SaintConfig {
        roots,
        steps,
        batches: train.len().div_ceil(roots.max(1)),
        seed: setting.recipe.seed,
        preparation: setting.preparation(),
    };
    let dense = match &*features {
        Features::Dense(x) => Some(x),
        Features::Sparse(_) => None,
    };
    let sampler = SaintSampler::new(graph, train, job.threads)?;
    let mut batches = SaintBatches::new(sampler, dense, config)?;
    if plan.is_some() {
        batches = batches.normalized(COVERAGE, job.threads)?;
    }
    let (labels, needs) = (setting.labels()?, needs(plan));
    let sums = needs.sums(graph)?;
    let coefficients = plan.is_some_and(only_sums);
    let symmetric = graph.is_symmetric(job.threads);
    let mut trains = vec![false; graph.n_nodes()];
    train.iter().for_each(|&node| trains[node as usize] = true);
    // The coefficients are for means over all nodes, the loss is one over those that train.
    let (trains, scale) = (Arc::new(trains), graph.n_nodes() as f32 / train.len().max(1) as f32);
    let make = move |batch: &SaintBatch| {
        let nodes = batch.nodes();
        let edges = corrected(batch, coefficients)?;
        let drawn = Drawn {
            edges: &edges,
            nodes: vec![nodes.len(); hops + 1],
            order: nodes,
            features: features_of(batch.features(), &features, nodes)?,
            symmetric: symmetric && !coefficients,
            coefficients,
            sums: Some(&sums),
        };
        let rows = (0..nodes.len() as u32).filter(|&i| trains[nodes[i as usize] as usize]);
        let mut labelled = Labelled::new(&labels, nodes, rows.collect());
        if let Some(norm) = batch.node_norm() {
            labelled.weigh(norm.iter().map(|weight| weight * scale).collect());
        }
        Ok(Made { levels: Levels::drawn(&drawn, &needs)?, labelled, graphs: None, pairs: None })
    };
    let count = batches.n_batches();
    let start = move |epoch, from| batches.epoch_with((epoch, from), make.clone());
    Ok(Box::new(Sampled::new(count, start)))
}

/// Whether a network only sums over neighbours.
fn only_sums(plan: &Plan) -> bool {
    let other =
        |operator: &Operator| matches!(operator, Operator::Attention(_) | Operator::Extreme(_));
    !plan.steps.iter().any(|step| other(&step.operator))
}

/// A batch's edges, their weights multiplied by what corrects for how they are drawn.
fn corrected(batch: &SaintBatch, coefficients: bool) -> Result<Csr> {
    let edges = batch.adjacency().clone();
    let Some(norm) = batch.edge_norm().filter(|_| coefficients) else { return Ok(edges) };
    let values: Vec<f32> = match edges.values() {
        None => norm.to_vec(),
        Some(weights) => weights.iter().zip(norm).map(|(weight, norm)| weight * norm).collect(),
    };
    edges.with_values(Some(values.into()))
}
