//! The planner on layers of torch_geometric: formula, sizes and costs in, order of products out.
//!
//! A layer is the model of one layer that `lacis::nn` has under its name. Its input is features:
//! what an epoch does not change, or, where a gradient goes further back, what it does.

use lacis::costs::Measured;
use lacis::nn::sage::Aggregate;
use lacis::nn::{Config, Model};
use lacis::plan::Sizes;
use lacis::plan::choose::{Chosen, Network, Settings, choose};
use lacis::plan::op::LossKind;
use lacis::plan::plan::{Operator, Phase, Place, Plan, Step, ValueId};
use lacis::plan::sampled::sampling;
use lacis::{Error, Result};
use pyo3::prelude::*;
use serde_json::{Value, json};

use crate::error::raise;
use crate::torch::profile;

/// Iterations that share what is computed once, where nobody knows how many there will be.
const ITERATIONS: usize = 200;

/// Which layer: its name in `lacis::nn`; targets, sources and entries; columns in and out; hops.
#[derive(Clone, Debug, FromPyObject)]
pub struct Layer(String, (usize, usize, usize), (usize, usize), usize);

/// Whether it has a bias and weights for the node itself; whether anything is learned, gradients go
/// on to its input, and the input is the same in every epoch.
#[derive(Clone, Copy, Debug, FromPyObject)]
pub struct How(bool, bool, bool, bool, bool);

/// What the planner decides, as JSON: `gathers_first`, whether `A·X` comes before `·W`;
/// `narrow_back`, whether `Aᵀ·G` comes before `·Wᵀ`; the formula, what it is expected to take, and
/// the candidates; with a budget, what sampling the backward products would do.
#[pyfunction]
pub fn plan_layer(layer: Layer, how: How, budget: Option<f64>) -> PyResult<String> {
    planned(&layer, how, budget).map(|value| value.to_string()).map_err(raise)
}

fn planned(layer: &Layer, how: How, budget: Option<f64>) -> Result<Value> {
    let (network, sizes, costs) = (network(layer, how)?, sizes(layer)?, Measured(profile()));
    let chosen = choose(&network, &sizes, &costs, &settings(how))?;
    let sampled = budget.and_then(|budget| {
        let found = sampling(&chosen.plan, (&sizes, &costs), (budget, false))?;
        Some(json!({ "pays": found.pays(), "ceiling": found.ceiling, "speedup": found.speedup }))
    });
    let is = |phases: &'static [Phase]| move |step: &&Step| phases.contains(&step.phase);
    let forward = first_gather(&chosen.plan, is(&[Phase::Once, Phase::Forward]));
    let backward = first_gather(&chosen.plan, is(&[Phase::Backward]));
    Ok(json!({
        "gathers_first": forward.is_some_and(|operand| !is_product(&chosen.plan, operand)),
        "narrow_back": backward.is_some_and(|operand| !is_product(&chosen.plan, operand)),
        "formula": formula(&chosen), "predicted_ms": chosen.predicted.iteration * 1e3,
        "candidates": candidates(&chosen), "sampling": sampled,
    }))
}

fn network(Layer(name, _, (inputs, outputs), hops): &Layer, how: How) -> Result<Network> {
    let How(bias, root_weight, learns, ..) = how;
    let aggregate = if name == "graph" { Aggregate::Sum } else { Aggregate::Mean };
    let named = if name == "graph" { "sage" } else { name };
    let layers = if name == "sgc" { *hops } else { 1 };
    // Others have no such weights to leave out.
    let root_weight = root_weight || named != "sage";
    let config =
        Config { layers, bias, root_weight, aggregate, ..Config::new(*inputs, *outputs, *outputs) };
    Ok(Model::new(named, &config, learns.then_some(LossKind::Squares))?.network)
}

/// The graph at every level that a layer goes through.
fn sizes(Layer(name, (targets, sources, entries), _, hops): &Layer) -> Result<Sizes> {
    let hops = if name == "sgc" { *hops } else { 1 };
    if hops > 1 && targets != sources {
        return Err(Error::argument("hops", "several need a square matrix"));
    }
    // Loops that a formula adds are among the entries that were counted.
    let looped = matches!(name.as_str(), "gcn" | "sgc");
    let stored = if looped { entries.saturating_sub(*targets) } else { *entries };
    let nodes = std::iter::once(*sources).chain(std::iter::repeat_n(*targets, hops)).collect();
    let whole = Sizes::whole(hops + 1, *targets, stored);
    Ok(Sizes { nodes, iterations: ITERATIONS, symmetric: false, ..whole })
}

fn settings(How(_, _, _, goes_on, stays): How) -> Settings {
    let left_out = [("input-grad", goes_on), ("hoist", !stays)];
    let without = left_out.iter().filter(|(_, out)| *out).map(|(name, _)| (*name).to_owned());
    Settings { without: without.collect(), ..Settings::default() }
}

/// What the first sparse product of some steps multiplies with.
fn first_gather(plan: &Plan, of: impl Fn(&&Step) -> bool) -> Option<ValueId> {
    let gathers = |step: &&Step| matches!(step.operator, Operator::Spmm { .. });
    plan.steps.iter().filter(of).find(gathers).map(|step| step.inputs[1])
}

/// Whether a value comes out of a dense product.
fn is_product(plan: &Plan, value: ValueId) -> bool {
    if let Place::View { of, .. } = plan.values[value].place {
        return is_product(plan, of);
    }
    let made = plan.steps.iter().find(|step| step.outputs.contains(&value));
    made.is_some_and(|step| matches!(step.operator, Operator::Gemm { .. }))
}

fn formula(chosen: &Chosen) -> String {
    let last = |layer: &lacis::plan::choose::Candidates| layer.all[layer.chosen].formula.clone();
    chosen.layers.last().map_or_else(|| chosen.plan.formula.clone(), last)
}

/// Everything that was weighed.
fn candidates(chosen: &Chosen) -> Vec<Value> {
    let of = chosen.layers.last().into_iter().flat_map(|layer| &layer.all);
    let shown = of.map(|candidate| {
        json!({ "formula": candidate.formula, "pruned_by": candidate.pruned_by,
                "predicted_ms": candidate.predicted.map(|seconds| seconds * 1e3) })
    });
    shown.collect()
}
