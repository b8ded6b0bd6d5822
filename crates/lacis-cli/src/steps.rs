//! The steps of a plan, for programs and pages.

use std::collections::HashMap;

use lacis::plan::Plan;
use lacis::plan::plan::{Step, ValueId};
use serde_json::{Value, json};

/// A line of JSON for each step: what it computes, when, and which steps made what it reads.
pub fn as_json(plan: &Plan) -> Vec<Value> {
    let mut makers: HashMap<ValueId, Vec<usize>> = HashMap::new();
    let mut lines = Vec::with_capacity(plan.steps.len());
    for (at, step) in plan.steps.iter().enumerate() {
        // What no earlier step made was given, or is left from the last iteration. Of what is made
        // in parts, all parts are read.
        let of = |value: &ValueId| makers.get(value).or_else(|| makers.get(&plan.base(*value)));
        let mut from: Vec<usize> = step.inputs.iter().filter_map(of).flatten().copied().collect();
        from.sort_unstable();
        from.dedup();
        for &value in &step.outputs {
            let base = plan.base(value);
            makers.entry(value).or_default().push(at);
            if base != value {
                makers.entry(base).or_default().push(at);
            }
        }
        let slots: Vec<Option<usize>> = step.outputs.iter().map(|v| plan.slot_of(*v)).collect();
        lines.push(json!({ "formula": step.formula, "operator": operator(step),
                           "layer": step.layer, "slots": slots, "from": from,
                           "phase": format!("{:?}", step.phase).to_lowercase() }));
    }
    lines
}

/// An operator's name: what comes before its attributes.
pub fn operator(step: &Step) -> String {
    let text = format!("{:?}", step.operator);
    text.split([' ', '(']).next().unwrap_or_default().to_lowercase()
}
