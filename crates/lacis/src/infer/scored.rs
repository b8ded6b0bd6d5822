//! Scores of pairs: first the rows of all nodes, then the decoder, some pairs at a time.

use std::sync::Arc;

use lacis_core::{Error, Features, Result};
use lacis_plan::choose::Network;
use lacis_plan::expr::features;
use lacis_plan::plan::Precision;
use lacis_plan::{Expr, Op, Sizes};

use super::{Predictor, SCRATCH, Way, What};
use crate::levels::{Asked, Levels};
use crate::pairs::Pairs;

/// Pairs that are scored together, at most and where memory is short.
const MOST_PAIRS: usize = 1 << 18;
const LEAST_PAIRS: usize = 1 << 10;

impl Predictor<'_> {
    /// The rows of nodes that a decoder takes, where the network predicts links.
    pub(super) fn encoded(&self) -> Option<Expr> {
        let all = Expr::sorted(std::slice::from_ref(&self.model.network.result));
        let decoder = all.into_iter().find(|expr| matches!(expr.op(), Op::Pairs(_)))?;
        Some(decoder.args()[0].clone())
    }

    /// Scores of pairs of nodes, in their order, above 0 where they are more likely joined than
    /// not; and how the rows of nodes were computed. `budget` as for [`Predictor::run`].
    ///
    /// # Errors
    /// When the network predicts no links, a pair names a node that there is not, or the budget is
    /// too small.
    pub fn scores(&self, pairs: &[[u32; 2]], budget: Option<usize>) -> Result<(Vec<f32>, Way)> {
        let Some(encoded) = self.encoded() else {
            let problem = "does not predict links, so there are no scores of pairs";
            return Err(Error::argument(format!("model '{}'", self.model.name), problem));
        };
        let (rows, way) = self.run(What::Embeddings, budget)?;
        let held = rows.data().len() * size_of::<f32>() + SCRATCH;
        let rows = Arc::new(Features::Dense(rows));
        let own = features(encoded.width());
        let network = Network {
            result: self.model.network.result.replace(&|e| (*e == encoded).then(|| own.clone())),
            loss: None,
            params: self.model.network.params.clone(),
        };
        let (graph, threads) = (self.on.dataset.graph(), self.on.threads);
        let asked = Asked { graph, features: &rows, levels: 1, rows: None, reach: false };
        let mut count = pairs.len().clamp(1, MOST_PAIRS);
        let sizes = Sizes { iterations: 1, pairs: count, ..Levels::sizes(&asked, threads)? };
        let plan = self.planned(&network, &sizes, Precision::F32)?;
        if let Some(room) = budget.map(|budget| budget.saturating_sub(held)) {
            // Both directions of the matrix of pairs: row ends, columns, places.
            let ends = 16 * (graph.n_nodes() + 1);
            let bytes =
                |pairs| plan.slot_bytes(&Sizes { pairs, ..sizes.clone() }) + ends + 32 * pairs;
            while bytes(count) > room && count > LEAST_PAIRS {
                count = (count / 2).max(LEAST_PAIRS);
            }
            if bytes(count) > room {
                return Err(super::too_small(budget.unwrap_or(0), held + bytes(count)));
            }
        }
        let levels = Levels::new(&asked, &plan, threads)?;
        let mut executor = self.executor(plan)?;
        let mut scores = Vec::with_capacity(pairs.len());
        for some in pairs.chunks(count) {
            let some = Pairs::new(graph.n_nodes(), some, threads)?;
            self.pass(&mut executor, (&levels, Some(&some)), |found| {
                scores.extend((0..found.n_rows()).map(|i| found.row(i)[0]));
            })?;
        }
        Ok((scores, way))
    }
}
