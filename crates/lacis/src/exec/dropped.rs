//! Edges that are dropped: new values for the entries of an adjacency, 0 or divided by the share
//! that stays.
//!
//! An edge is known by its number among the whole graph's, which a transpose and a level with some
//! of the rows remember; in a sampled batch, whose seed is its own, by its number among those
//! drawn. The backward pass meets the same edges in another order, and looks them up.

use lacis_core::{Result, Rng};
use lacis_kernels::dropout::Dropout;
use lacis_plan::op::Adjacency;
use lacis_plan::plan::{Operator, Place, Step};

use super::{Context, Executor, purpose, wrong};

/// Entries of a piece of work.
const PIECE: usize = 1 << 14;
/// Edges of a word of bits.
const BITS: usize = u64::BITS as usize;

impl Executor {
    pub(super) fn drop_edges(&mut self, step: &Step, context: &Context<'_>) -> Result<()> {
        let (Operator::EdgeDropout { p, key }, Place::Adjacency(adjacency)) =
            (step.operator, self.plan.values[step.inputs[0]].place)
        else {
            return Err(wrong(step));
        };
        let mut out = self.taken(step, 0, context)?;
        let matrix = context.levels.matrix(adjacency);
        let a = matrix.view();
        let value = |e: usize| a.values.map_or(1.0, |values| values[e]);
        let rng = Rng::new(context.seed, &purpose(key));
        let dropout = Dropout::new(rng, if context.training { p.get() } else { 0.0 })?;
        if dropout.keeps_all() {
            self.each_entry(out.slice::<f32>(), value);
        } else {
            let own = Adjacency { transposed: false, ..adjacency };
            let all = context.levels.all_edges(own).unwrap_or(a.cols.len());
            self.kept.resize(all.div_ceil(BITS), 0);
            dropout.keep_items(self.isa, &mut self.kept, &self.threads);
            let (kept, scale) = (self.kept.as_slice(), dropout.scale() as f32);
            let dropped = |e: usize, edge: usize| match kept[edge / BITS] >> (edge % BITS) & 1 {
                0 => 0.0,
                _ => scale * value(e),
            };
            match (matrix.order(), context.levels.edges(own)) {
                (None, None) => self.each_entry(out.slice::<f32>(), |e| dropped(e, e)),
                (order, edges) => self.each_entry(out.slice::<f32>(), |e| {
                    let here = order.map_or(e, |order| order[e] as usize);
                    dropped(e, edges.map_or(here, |edges| edges[here] as usize))
                }),
            }
        }
        self.put(out);
        Ok(())
    }

    /// `out[e] = f(e)` for every entry.
    fn each_entry(&self, out: &mut [f32], f: impl Fn(usize) -> f32 + Sync) {
        let parts = out.chunks_mut(PIECE).enumerate().collect();
        self.threads.for_each(parts, |(piece, out)| {
            for (e, out) in (piece * PIECE..).zip(out) {
                *out = f(e);
            }
        });
    }
}
