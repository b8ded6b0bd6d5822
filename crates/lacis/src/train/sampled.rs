//! [`Sampled`]: batches that are drawn and prepared ahead, by threads of their own.

mod graphs;
mod links;
mod neighbor;
mod saint;

use std::sync::Arc;

use lacis_core::{Error, Features, Labels, Result};
use lacis_plan::plan::Plan;

pub(super) use self::graphs::collection;
use super::source::{Batch, Source};
use super::targets::Labelled;
use super::{Job, Recipe};
use crate::levels::Levels;
use crate::levels::drawn::Needs;
use crate::nn::Model;
use crate::pairs::Pairs;
use crate::sample::{Ahead, Preparation, Sampling, With, sparse_rows};

/// Nodes, edges or walks of a batch, and graphs of a batch, unless something else is asked for.
const NODES: usize = 1024;
const GRAPHS: usize = 32;

/// What batches are drawn from, and for whom.
#[derive(Clone, Copy)]
pub(super) struct Setting<'s> {
    pub job: &'s Job<'s>,
    pub recipe: &'s Recipe,
    pub model: &'s Model,
    pub features: &'s Arc<Features>,
    /// Absent where links are learned.
    pub labels: Option<&'s Labels>,
}

impl Setting<'_> {
    /// Batches with what a plan reads of them; before there is a plan, their sizes alone.
    ///
    /// # Errors
    /// When the way of drawing does not suit the network or the data.
    pub fn source(&self, plan: Option<&Plan>) -> Result<Box<dyn Source>> {
        if let Some(links) = &self.recipe.links {
            return links::source(self, links, plan);
        }
        match (&self.recipe.sample, self.recipe.config.readout) {
            (Some(way), Some(_)) => {
                let problem = "graphs are batches already; --batch-size says how many of them";
                Err(Error::argument(format!("--sample {way}"), problem))
            }
            (None, _) => graphs::source(self, plan),
            (Some(Sampling::Neighbor(fanouts)), None) => neighbor::source(self, fanouts, plan),
            (Some(Sampling::Saint(steps)), None) => saint::source(self, *steps, plan),
        }
    }

    /// What is learned, where that are labels.
    fn labels(&self) -> Result<Labels> {
        self.labels.cloned().ok_or_else(|| {
            let problem = "it has no labels; training needs them";
            Error::argument(format!("data set '{}'", self.job.dataset.name()), problem)
        })
    }

    /// Nodes, walks or graphs of a batch.
    fn batch_size(&self) -> usize {
        let usual = if self.recipe.config.readout.is_some() { GRAPHS } else { NODES };
        self.recipe.batch_size.unwrap_or(usual)
    }

    /// Half of the threads prepare; a single one prepares when asked.
    fn preparation(&self) -> Preparation {
        Preparation { workers: self.job.threads.count() / 2, depth: 2 }
    }

    /// How often the network gathers from neighbours.
    fn hops(&self) -> Result<usize> {
        match self.model.levels - 1 {
            0 => {
                let problem = "looks at no neighbours; without --sample it trains on all nodes";
                Err(Error::argument(format!("model '{}'", self.model.name), problem))
            }
            hops => Ok(hops),
        }
    }
}

fn needs(plan: Option<&Plan>) -> Needs {
    plan.map(Needs::of).unwrap_or_default()
}

/// Features of a batch's nodes: dense rows were gathered with it, sparse ones are now.
fn features_of(
    gathered: Option<&lacis_core::Dense>,
    all: &Features,
    nodes: &[u32],
) -> Result<Arc<Features>> {
    Ok(Arc::new(match (gathered, all) {
        (Some(rows), _) => Features::Dense(rows.clone()),
        (None, Features::Sparse(x)) => Features::Sparse(sparse_rows(x, nodes)?),
        (None, Features::Dense(_)) => unreachable!("dense rows come with the batch"),
    }))
}

/// What a step needs of a batch.
struct Made {
    levels: Levels,
    labelled: Labelled,
    graphs: Option<Vec<u32>>,
    pairs: Option<Pairs>,
}

/// Begins an epoch at a batch.
type Begin<B> = Box<dyn Fn(u64, usize) -> Result<Ahead<With<B, Made>>> + Send>;

/// See the module's head.
struct Sampled<B> {
    n_batches: usize,
    start: Begin<B>,
    epoch: Option<Ahead<With<B, Made>>>,
}

impl<B> Sampled<B> {
    fn new(
        n_batches: usize,
        start: impl Fn(u64, usize) -> Result<Ahead<With<B, Made>>> + Send + 'static,
    ) -> Self {
        Sampled { n_batches, start: Box::new(start), epoch: None }
    }
}

impl<B: Send + 'static> Source for Sampled<B> {
    fn n_batches(&self) -> usize {
        self.n_batches
    }

    fn changes(&self) -> bool {
        true
    }

    fn begin(&mut self, epoch: usize, from: usize) -> Result<()> {
        self.epoch = Some((self.start)(epoch as u64, from)?);
        Ok(())
    }

    fn next(&mut self) -> Result<Option<Batch<'_>>> {
        let Some(epoch) = &mut self.epoch else { return Ok(None) };
        Ok(epoch.next()?.map(|with| {
            let Made { levels, labelled, graphs, pairs } = with.made();
            Batch { levels, labelled, graphs: graphs.as_deref(), pairs: pairs.as_ref() }
        }))
    }
}
