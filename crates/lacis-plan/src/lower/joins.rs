//! Joins: dense products that take over what steps around them do.
//!
//! ```text
//!  two at once    Y = P·V,  Y += X·W            →  Y = X·W + P·V
//!  gates          G = g·Wᵀ,  H' = G ∘ f'(H)     →  H = (g·Wᵀ) ∘ f'(H), where H was
//! ```
//! A sum is written once instead of being read and written again; back through a function there is
//! no pass over the elements, and no gradient beside the value that it needs last.

use std::collections::HashSet;

use crate::op::Function;
use crate::plan::{Ending, Form, Operator, Phase, Place, Plan, Step, Value, ValueId};

/// Joins what can be joined.
pub fn join(plan: &mut Plan) {
    each(plan, pair);
    each(plan, gate);
    forget(plan);
}

/// Puts one step in the place of several, wherever that is possible.
fn each(plan: &mut Plan, joined: impl Fn(&Plan, usize) -> Option<(Vec<usize>, Step)>) {
    let mut at = 0;
    while at < plan.steps.len() {
        if let Some((mut gone, step)) = joined(plan, at) {
            plan.steps[at] = step;
            gone.sort_unstable();
            gone.iter().rev().for_each(|&step| drop(plan.steps.remove(step)));
            at -= gone.len();
        }
        at += 1;
    }
}

/// A product that is added to another, which nobody else reads, perhaps with rows of zeros below.
fn pair(plan: &Plan, at: usize) -> Option<(Vec<usize>, Step)> {
    let step = &plan.steps[at];
    let Operator::Gemm { form, ending } = step.operator else { return None };
    let (&base, own) = step.inputs.split_last()?;
    if form == Form::Tn || !ending.accumulate || ending.plus || readers(plan, base) != [at] {
        return None;
    }
    let mut gone = vec![maker(plan, base)?];
    if let Operator::Pad = plan.steps[gone[0]].operator {
        let padded = plan.steps[gone[0]].inputs[0];
        if readers(plan, padded) != [gone[0]] {
            return None;
        }
        gone.push(maker(plan, padded)?);
    }
    let first = &plan.steps[*gone.last()?];
    let is_product = first.operator == Operator::Gemm { form, ending: Ending::PLAIN };
    let alike = |of: usize| plan.half(first.inputs[of]) == plan.half(own[of]);
    if !is_product || first.phase != step.phase || !alike(0) || !alike(1) {
        return None;
    }
    let ending = Ending { accumulate: false, plus: true, ..ending };
    let inputs = [&own[..2], &first.inputs[..], &own[2..]].concat();
    Some((gone, Step { operator: Operator::Gemm { form, ending }, inputs, ..step.clone() }))
}

/// A passage back through a function of what a product gives, which nobody else reads, where nobody
/// reads the function's value afterwards.
fn gate(plan: &Plan, at: usize) -> Option<(Vec<usize>, Step)> {
    let step = &plan.steps[at];
    let Operator::EachGrad { function, dropout: None, scale } = step.operator else { return None };
    let &[g, saved] = step.inputs.as_slice() else { return None };
    let product = maker(plan, g)?;
    let Operator::Gemm { form, ending } = plan.steps[product].operator else { return None };
    let told = function != Function::Identity && function.saves_result() && scale.get() == 1.0;
    let alone = readers(plan, g) == [at] && readers(plan, saved).last() == Some(&at);
    let plain = ending == Ending { plus: ending.plus, ..Ending::PLAIN };
    if !told || !alone || !plain || !is_given_up(plan, saved) || !alike(plan, saved, g) {
        return None;
    }
    let ending = Ending { gate: Some(function), ..ending };
    let inputs = [plan.steps[product].inputs.as_slice(), &[saved]].concat();
    let joined = Step { operator: Operator::Gemm { form, ending }, inputs, ..step.clone() };
    Some((vec![product], joined))
}

fn maker(plan: &Plan, value: ValueId) -> Option<usize> {
    plan.steps.iter().position(|step| step.outputs.contains(&value))
}

/// The steps that read a value or a part of it.
fn readers(plan: &Plan, value: ValueId) -> Vec<usize> {
    let reads = |step: &Step| step.inputs.iter().any(|&input| plan.base(input) == value);
    (0..plan.steps.len()).filter(|&at| reads(&plan.steps[at])).collect()
}

/// Whether a value is made anew in each iteration, in memory of its own that nobody asks for later.
fn is_given_up(plan: &Plan, value: ValueId) -> bool {
    let again = maker(plan, value).is_some_and(|at| plan.steps[at].phase != Phase::Once);
    again && matches!(plan.values[value].place, Place::Slot(_)) && plan.base(plan.result) != value
}

/// Whether values have one shape and are stored in one way.
fn alike(plan: &Plan, a: ValueId, b: ValueId) -> bool {
    plan.values[a].shape == plan.values[b].shape && plan.half(a) == plan.half(b)
}

/// Leaves out values that no step makes any more.
fn forget(plan: &mut Plan) {
    let made: HashSet<ValueId> = plan.steps.iter().flat_map(|step| step.outputs.clone()).collect();
    let stays = |(id, value): (ValueId, &Value)| match value.place {
        Place::Slot(_) | Place::Entries { .. } | Place::Matrix(_) => made.contains(&id),
        _ => true,
    };
    let kept: Vec<bool> = plan.values.iter().enumerate().map(stays).collect();
    let mut left = kept.iter();
    plan.values.retain(|_| *left.next().expect("one for each value"));
    let place_of = |id: ValueId| kept[..id].iter().filter(|kept| **kept).count();
    for value in &mut plan.values {
        if let Place::View { of, .. } | Place::Entries { of, .. } = &mut value.place {
            *of = place_of(*of);
        }
    }
    for step in &mut plan.steps {
        let all = step.inputs.iter_mut().chain(&mut step.outputs);
        all.for_each(|id| *id = place_of(*id));
    }
    plan.result = place_of(plan.result);
}
