//! Storage: where a plan changes between bf16, in which rows of nodes and graphs are kept, and f32.
//!
//! A step reads and writes its rows in one of the two; what comes in the other one is converted
//! before it, and what it writes in the other one after it. Kernels add in f32 either way. Only a
//! dense product may mix them: rows times weights, and the sum over nodes that is a weight's
//! gradient. The network's result and all that the loss computes are f32.

use std::collections::HashMap;

use crate::plan::{Form, Operator, Phase, Place, Plan, Step, Value, ValueId};

/// Inserts conversions into a plan whose values were marked but have no slots yet.
pub fn convert(plan: &mut Plan) {
    let rows = plan.values.iter().map(|value| value.half).collect();
    let result = plan.result;
    let steps = std::mem::take(&mut plan.steps);
    keep_sums(plan, &steps, result);
    let made = steps.iter().flat_map(|step| step.outputs.iter().map(|&out| (out, step.phase)));
    let phases = made.collect();
    let mut pass = Pass { plan, rows, phases, twins: HashMap::new() };
    for step in steps {
        pass.step(step);
    }
    if pass.plan.values[result].half {
        let read = Step { phase: Phase::Forward, ..reading(result) };
        pass.plan.result = pass.twin(result, &read);
    }
}

/// The result is f32, and so is what it is added to on the way.
fn keep_sums(plan: &mut Plan, steps: &[Step], result: ValueId) {
    let mut next = Some(result);
    while let Some(value) = next {
        if !matches!(plan.values[value].place, Place::Slot(_)) {
            return;
        }
        plan.values[value].half = false;
        let maker = steps.iter().find(|step| step.outputs.contains(&value));
        next =
            maker.filter(|step| step.replaces_last()).and_then(|step| step.inputs.last().copied());
    }
}

struct Pass<'p> {
    plan: &'p mut Plan,
    /// Values that are rows of nodes or graphs: those that can be stored in either way.
    rows: Vec<bool>,
    /// When values are computed.
    phases: HashMap<ValueId, Phase>,
    /// The same values, stored in the other way.
    twins: HashMap<ValueId, ValueId>,
}

impl Pass<'_> {
    fn half(&self, value: ValueId) -> bool {
        self.plan.values[value].half
    }

    fn is_rows(&self, value: ValueId) -> bool {
        self.rows.get(value).copied().unwrap_or(false)
    }

    /// A step with what has to be converted before and after it.
    fn step(&mut self, mut step: Step) {
        if !self.mixes(&step) {
            let half = self.runs_half(&step);
            let replaces = step.replaces_last();
            for at in 0..step.inputs.len() {
                let input = step.inputs[at];
                if self.is_rows(input) && self.half(input) != half {
                    // What is added to is overwritten: nobody else may read that copy.
                    let own = replaces && at + 1 == step.inputs.len();
                    step.inputs[at] =
                        if own { self.copy(input, &step) } else { self.twin(input, &step) };
                }
            }
            let outputs = step.outputs.clone();
            let mut after = Vec::new();
            for (at, output) in outputs.into_iter().enumerate() {
                if self.is_rows(output) && self.half(output) != half {
                    step.outputs[at] = self.other(output);
                    after.push((step.outputs[at], output));
                }
            }
            let (phase, layer) = (step.phase, step.layer);
            self.plan.steps.push(step);
            for (from, to) in after {
                let formula = self.plan.values[to].formula.clone();
                let (inputs, outputs) = (vec![from], vec![to]);
                let operator = Operator::Convert;
                self.plan.steps.push(Step { operator, inputs, outputs, phase, layer, formula });
            }
            return;
        }
        self.plan.steps.push(step);
    }

    /// Whether a step's kernel reads bf16 rows.
    fn runs_half(&self, step: &Step) -> bool {
        match step.operator {
            // Weights that sparse features are multiplied by are f32, and so is their gradient.
            Operator::Loss(_) | Operator::SparseTransposed | Operator::Gemm { .. } => false,
            Operator::Spmm { .. } | Operator::Extreme(_) => self.half(step.inputs[1]),
            _ => {
                let mut all = step.inputs.iter().chain(&step.outputs);
                all.any(|&value| self.half(value))
            }
        }
    }

    /// Whether a dense product takes what it is given as it is stored: all f32; rows times weights,
    /// to rows or to the result; or rows times rows, to weights.
    fn mixes(&self, step: &Step) -> bool {
        let Operator::Gemm { form, ending } = step.operator else { return false };
        let (x, z) = (self.half(step.inputs[0]), self.half(step.inputs[1]));
        let out = self.half(step.outputs[0]);
        let added =
            !ending.accumulate || step.inputs.last().is_some_and(|&last| self.half(last) == out);
        let taken = match (x, z) {
            (false, false) => !out,
            (true, false) => form != Form::Tn,
            (true, true) => form == Form::Tn && !out,
            (false, true) => false,
        };
        taken && added
    }

    /// A new value of the same rows, to be stored in the other way.
    fn other(&mut self, value: ValueId) -> ValueId {
        let Value { shape, half, ref formula, .. } = self.plan.values[value];
        let formula = format!("{}({formula})", if half { "f32" } else { "bf16" });
        let place = Place::Slot(usize::MAX);
        self.plan.values.push(Value { shape, place, half: !half, formula });
        self.plan.values.len() - 1
    }

    /// The same rows stored in the other way, converted once.
    fn twin(&mut self, value: ValueId, reader: &Step) -> ValueId {
        if let Some(&twin) = self.twins.get(&value) {
            return twin;
        }
        let twin = self.copy(value, reader);
        self.twins.insert(value, twin);
        twin
    }

    /// A copy stored in the other way, made before a step that reads it.
    fn copy(&mut self, value: ValueId, reader: &Step) -> ValueId {
        let made = self.phases.get(&self.plan.base(value)).copied();
        let given = self.plan.values[self.plan.base(value)].place == Place::Features;
        // What no epoch changes is converted once.
        let once = made == Some(Phase::Once) || given && reader.phase == Phase::Once;
        let phase = if once { Phase::Once } else { reader.phase };
        let twin = self.other(value);
        let formula = self.plan.values[twin].formula.clone();
        let (inputs, outputs, layer) = (vec![value], vec![twin], reader.layer);
        let operator = Operator::Convert;
        self.plan.steps.push(Step { operator, inputs, outputs, phase, layer, formula });
        twin
    }
}

/// Nothing but somebody who reads a value.
fn reading(value: ValueId) -> Step {
    Step {
        operator: Operator::Convert,
        inputs: vec![value],
        outputs: vec![],
        phase: Phase::Forward,
        layer: None,
        formula: String::new(),
    }
}
