//! [`Core`]: what every way of training has: weights, the executor of a plan, estimates of norms.

use std::collections::HashMap;

use lacis_core::Result;
use lacis_core::reference::Moments;
use lacis_plan::plan::Phase;

use super::source::Batch;
use crate::approx::Approx;
use crate::exec::{Context, Executor, Observe};
use crate::params::Params;

/// See the module's head.
pub(crate) struct Core {
    pub params: Params,
    /// Estimates of batch norms.
    pub running: HashMap<u32, Moments>,
    pub executor: Option<Executor>,
    /// What backward products are computed with instead, where that is asked for.
    pub approx: Option<Approx>,
    /// The longest that all gradients together may be.
    pub clip: Option<f64>,
}

/// What has been done of an epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Within {
    /// Batches.
    pub batches: usize,
    /// Items that their losses are means of.
    pub items: f64,
    /// The mean loss over them.
    pub loss: f64,
    /// Seconds.
    pub seconds: f64,
}

impl Within {
    /// One batch more; the first one's loss is the mean, to the bit.
    pub fn add(&mut self, loss: f64, items: usize) {
        let items = items.max(1) as f64;
        self.batches += 1;
        self.items += items;
        self.loss += (loss - self.loss) * (items / self.items);
    }
}

impl Core {
    /// With its first weights.
    pub fn new(params: Params, clip: Option<f64>) -> Self {
        Core { params, running: HashMap::new(), executor: None, approx: None, clip }
    }

    /// Takes an executor and makes room for the first batch.
    ///
    /// # Errors
    /// When there is no memory.
    pub fn begin(&mut self, mut executor: Executor, batch: &Batch<'_>) -> Result<()> {
        executor.bind(batch.levels, batch.n_graphs())?;
        executor.running().clone_from(&self.running);
        self.executor = Some(executor);
        Ok(())
    }

    /// Learns from a batch and gives its loss. What is computed once is so before the first batch,
    /// or before each where they differ.
    ///
    /// # Errors
    /// When a step fails.
    pub fn learn(
        &mut self,
        batch: &Batch<'_>,
        (seed, changes): (u64, bool),
        observer: &mut dyn Observe,
    ) -> Result<f64> {
        let executor = self.executor.as_mut().expect("begun before it learns");
        let loss = batch.labelled.loss()?;
        let targets = batch.labelled.targets(loss.as_ref());
        let Batch { levels, graphs, pairs, .. } = *batch;
        let context = Context { levels, targets, graphs, pairs, seed, training: true };
        if changes || !executor.is_prepared() {
            executor.fit(levels, batch.n_graphs())?;
            self.approx.iter_mut().for_each(Approx::rebound);
            executor.run(&[Phase::Once], &context, &mut self.params, observer)?;
        }
        self.params.begin_step();
        let passes = [Phase::Forward, Phase::Backward];
        *executor.approx() = self.approx.take();
        let outcome = executor.run(&passes, &context, &mut self.params, observer);
        self.approx = executor.approx().take();
        let outcome = outcome?;
        if let Some(limit) = self.clip {
            let norm = executor.gradient_norm(&context, &self.params)?;
            // As torch's clip_grad_norm_.
            self.params.scale_gradients((limit / (norm + 1e-6)).min(1.0) as f32);
        }
        executor.run(&[Phase::Update], &context, &mut self.params, observer)?;
        if !executor.running().is_empty() {
            self.running.clone_from(executor.running());
        }
        Ok(outcome.loss)
    }
}
