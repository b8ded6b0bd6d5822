//! Which steps of a plan may be computed from some of their pairs, what that costs, when it pays.
//!
//! A backward aggregation is a sum of pairs, `Aᵀ·G = Σ_j A_j,:ᵀ·G_j`, and nothing that is not
//! linear comes after it on the way to a weight's gradient: a few pairs of the right size give an
//! estimate of that gradient. Forward, the same sum goes through a non-linear function, and the
//! estimate of a result is no estimate of its image; so only backward steps are here. What
//! attention's gradient multiplies with is computed in the same step, from all entries: there is no
//! matrix to take columns of, and the step stays exact. So do maxima, whose gradient has one entry
//! per row anyway.

use crate::cost::{Costs, Work, work};
use crate::dim::{Dim, Sizes};
use crate::plan::{Operator, Phase, Place, Plan, Step, ValueId};

/// Iterations that share a choice of pairs, where nothing else is known.
pub const INTERVAL: f64 = 10.0;
/// A run that is not this much faster in prediction is left exact.
const WORTH: f64 = 1.02;

/// A step that may be computed from some of its pairs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SampledStep {
    /// Its number in the plan.
    pub step: usize,
    /// Predicted seconds of all pairs.
    pub exact: f64,
    /// Predicted seconds of the share asked for, choosing included.
    pub sampled: f64,
}

/// What sampling does to a plan.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sampling {
    /// The steps that can be sampled; those for which it pays, unless all are forced.
    pub steps: Vec<SampledStep>,
    /// How much faster an iteration would be if these steps took no time (Amdahl's bound).
    pub ceiling: f64,
    /// How much faster it is predicted to be.
    pub speedup: f64,
}

impl Sampling {
    /// Whether an iteration is predicted to be faster.
    pub fn pays(&self) -> bool {
        self.speedup > WORTH
    }
}

/// Whether a step is a backward product with an adjacency that no iteration changes.
pub fn can_sample(plan: &Plan, step: &Step) -> bool {
    let product = matches!(step.operator, Operator::Spmm { .. });
    let matrix = step.inputs.first().copied();
    product
        && step.phase == Phase::Backward
        && matrix.is_some_and(|a| is_adjacency(plan, a) && !drops(plan, a))
}

/// Whether entries are dropped anew in each iteration.
fn drops(plan: &Plan, value: ValueId) -> bool {
    let Place::Entries { of, .. } = plan.values[value].place else { return false };
    let made = |step: &Step| step.outputs.contains(&value);
    let maker = plan.steps.iter().find(|step| made(step));
    maker.is_some_and(|step| matches!(step.operator, Operator::EdgeDropout { .. }))
        || drops(plan, of)
}

fn is_adjacency(plan: &Plan, value: ValueId) -> bool {
    match plan.values[value].place {
        Place::Adjacency(_) => true,
        Place::Entries { of, .. } => is_adjacency(plan, of),
        // Loops of a matrix that was made are of an adjacency, where both sides are nodes.
        Place::Matrix(_) => {
            let nodes = |dim: &Dim| matches!(dim, Dim::Nodes(_));
            plan.values[value].shape.iter().all(nodes)
        }
        _ => false,
    }
}

/// Predicts what sampling a share `budget` of the entries does; `None` where a step has no kernel.
/// Steps that would not be faster stay exact, unless `forced`.
pub fn sampling(
    plan: &Plan,
    (sizes, costs): (&Sizes, &dyn Costs),
    (budget, forced): (f64, bool),
) -> Option<Sampling> {
    let (mut iteration, mut without, mut sampled) = (0.0, 0.0, 0.0);
    let mut steps = Vec::new();
    for (at, step) in plan.steps.iter().enumerate() {
        if step.phase == Phase::Once {
            continue;
        }
        let exact = costs.seconds(&work(plan, step, sizes))?;
        iteration += exact;
        let some = can_sample(plan, step).then(|| seconds(plan, step, (sizes, costs), budget));
        match some.flatten() {
            Some(some) if forced || some < exact => {
                steps.push(SampledStep { step: at, exact, sampled: some });
                sampled += some;
            }
            _ => {
                without += exact;
                sampled += exact;
            }
        }
    }
    let ratio = |of: f64| if of > 0.0 { iteration / of } else { 1.0 };
    Some(Sampling { steps, ceiling: ratio(without), speedup: ratio(sampled) })
}

/// Seconds of a product of some pairs: the product with fewer entries, and every [`INTERVAL`]
/// iterations the norms of the other factor's rows and one pass over all entries.
fn seconds(
    plan: &Plan,
    step: &Step,
    (sizes, costs): (&Sizes, &dyn Costs),
    budget: f64,
) -> Option<f64> {
    let Work::Spmm { shape: [rows, cols, entries], width, extreme, half, .. } =
        work(plan, step, sizes)
    else {
        return None;
    };
    let few = (entries as f64 * budget.clamp(0.0, 1.0)) as usize;
    let shape = [rows, cols, few.max(1)];
    let (valued, scaled, hard) = (true, false, 0);
    let product =
        costs.seconds(&Work::Spmm { shape, width, valued, extreme, scaled, half, hard })?;
    // One column at a time is looked up and, if it stays, written: about four streams of it.
    let (read, written) = (4 * (cols * width + 4 * entries), 8 * few);
    let choosing = costs.seconds(&Work::Stream { read, written, hard: 0 })?;
    Some(product + choosing / INTERVAL)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cost::Analytic;

    /// A plan of one forward and one backward product with the same matrix.
    fn plan() -> Plan {
        use crate::op::{Adjacency, Graph, Loops};
        use crate::plan::{Ending, Value};
        let graph = Graph { loops: Loops::AsStored, weighted: false };
        let place = Place::Adjacency(Adjacency { graph, level: 0, transposed: false });
        let nodes = [Dim::Nodes(0), Dim::Nodes(1)];
        let value = |shape, place| Value { shape, place, half: false, formula: String::new() };
        let wide = |level| [Dim::Nodes(level), Dim::Width(256)];
        let operator = Operator::Spmm { left: false, right: false, ending: Ending::PLAIN };
        let step = |phase, output| Step {
            operator,
            inputs: vec![0, 1],
            outputs: vec![output],
            phase,
            layer: Some(0),
            formula: String::new(),
        };
        Plan {
            values: vec![
                value(nodes, place),
                value(wide(0), Place::Features),
                value(wide(1), Place::Slot(0)),
                value(wide(1), Place::Slot(1)),
            ],
            steps: vec![step(Phase::Forward, 2), step(Phase::Backward, 3)],
            slots: 2,
            result: 2,
            ..Plan::default()
        }
    }

    #[test]
    fn only_backward_products_are_sampled_and_half_the_time_stays() {
        let sizes = Sizes::whole(2, 10_000, 4_000_000);
        let costs = Analytic::default();
        let sampling = sampling(&plan(), (&sizes, &costs), (0.1, false)).unwrap();
        assert_eq!(sampling.steps.len(), 1);
        assert_eq!(sampling.steps[0].step, 1);
        assert!((sampling.ceiling - 2.0).abs() < 0.01, "{}", sampling.ceiling);
        assert!(sampling.pays() && sampling.speedup < sampling.ceiling);
        let step = sampling.steps[0];
        assert!(step.exact / step.sampled > 4.0 && step.exact / step.sampled < 10.0);
    }

    #[test]
    fn where_rows_cost_more_than_entries_it_does_not_pay_and_can_be_forced() {
        let sizes = Sizes::whole(2, 1_000_000, 10_000);
        let costs = Analytic { stream: 1e9, gather: 1e12, products: 1e12 };
        let off = sampling(&plan(), (&sizes, &costs), (0.5, false)).unwrap();
        assert!(off.steps.is_empty() && !off.pays());
        let forced = sampling(&plan(), (&sizes, &costs), (0.5, true)).unwrap();
        assert_eq!(forced.steps.len(), 1);
        assert!(!forced.pays());
    }
}
