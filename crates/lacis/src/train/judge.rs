//! [`Judge`]: results for everybody with the present weights, by a plan of forward passes alone.

use std::collections::HashMap;
use std::sync::Arc;

use lacis_core::Result;
use lacis_core::reference::Moments;
use lacis_kernels::Mat;
use lacis_plan::plan::{Phase, Plan};

use super::Job;
use crate::exec::{Context, Executor, Nobody, Observe, Targets};
use crate::levels::Levels;
use crate::pairs::Pairs;
use crate::params::Params;

/// A plan of forward passes, what it is given, and its memory once it ran.
pub(crate) struct Judge {
    plan: Arc<Plan>,
    levels: Levels,
    /// Where each graph's nodes begin, and the end, where graphs are judged.
    graphs: Option<Vec<u32>>,
    /// Pairs whose scores are wanted, where links are predicted.
    pairs: Option<Pairs>,
    executor: Option<Executor>,
}

impl Judge {
    /// Of a whole graph, or of all graphs of a collection.
    pub fn new(plan: Plan, levels: Levels, graphs: Option<Vec<u32>>) -> Self {
        Judge { plan: Arc::new(plan), levels, graphs, pairs: None, executor: None }
    }

    /// From now on, results are of these pairs.
    pub fn set_pairs(&mut self, pairs: Pairs) {
        self.pairs = Some(pairs);
    }

    /// What runs the plan, once it ran.
    pub fn executor(&self) -> Option<&Executor> {
        self.executor.as_ref()
    }

    /// The network's results, handed to a function.
    ///
    /// # Errors
    /// When a step fails.
    pub fn results<R>(
        &mut self,
        job: &Job<'_>,
        (params, running): (&mut Params, &HashMap<u32, Moments>),
        use_them: impl FnOnce(Mat<'_>) -> R,
    ) -> Result<R> {
        self.run(job, (&mut *params, running), &mut Nobody)?;
        let executor = self.executor.as_ref().expect("it has just run");
        Ok(use_them(executor.result(&self.context(), params)?))
    }

    fn context(&self) -> Context<'_> {
        let Judge { levels, graphs, pairs, .. } = self;
        let (targets, graphs, pairs) = (Targets::None, graphs.as_deref(), pairs.as_ref());
        Context { levels, targets, graphs, pairs, seed: 0, training: false }
    }

    /// Computes the results, and tells somebody how long steps take.
    ///
    /// # Errors
    /// When a step fails.
    pub fn run(
        &mut self,
        job: &Job<'_>,
        (params, running): (&mut Params, &HashMap<u32, Moments>),
        observer: &mut dyn Observe,
    ) -> Result<()> {
        let kept = self.executor.take();
        let context = self.context();
        let mut executor = match kept {
            Some(executor) => executor,
            None => {
                let mut new = Executor::new(self.plan.clone(), job.profile, job.threads)?;
                new.bind(&self.levels, context.graphs.map_or(0, |starts| starts.len() - 1))?;
                new.run(&[Phase::Once], &context, params, observer)?;
                new
            }
        };
        executor.running().clone_from(running);
        executor.run(&[Phase::Forward], &context, params, observer)?;
        self.executor = Some(executor);
        Ok(())
    }
}
