//! [`Judge`]: results for everybody with the present weights, by a plan of forward passes alone.

use std::collections::HashMap;
use std::sync::Arc;

use lacis_core::Result;
use lacis_core::reference::Moments;
use lacis_kernels::Mat;
use lacis_plan::plan::{Phase, Plan};

use super::Job;
use crate::exec::{Context, Executor, Nobody, Targets};
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
        let Judge { plan, levels, graphs, pairs, executor } = self;
        let (targets, graphs, pairs) = (Targets::None, graphs.as_deref(), pairs.as_ref());
        let context = Context { levels, targets, graphs, pairs, seed: 0, training: false };
        if executor.is_none() {
            let new = executor.insert(Executor::new(plan.clone(), job.profile, job.threads)?);
            new.bind(levels, graphs.map_or(0, |starts| starts.len() - 1))?;
            new.run(&[Phase::Once], &context, params, &mut Nobody)?;
        }
        let executor = executor.as_mut().expect("made above");
        executor.running().clone_from(running);
        executor.run(&[Phase::Forward], &context, params, &mut Nobody)?;
        Ok(use_them(executor.result(&context, params)?))
    }
}
