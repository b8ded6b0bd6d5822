//! Joins: dense products that take over what steps around them do.
//!
//! ```text
//!  two at once    Y = P·V,  Y += X·W            →  Y = X·W + P·V
//!  gates          G = g·Wᵀ,  H' = G ∘ f'(H)     →  H = (g·Wᵀ) ∘ f'(H), where H was
//! ```
//! A sum is written once instead of being read and written again; back through a function there is
//! no pass over the elements, and no gradient beside the value that it needs last.

use std::collections::HashSet;

use crate::dim::Dim;
use crate::op::Function;
use crate::plan::{Ending, Form, Operator, Phase, Place, Plan, Step, Value, ValueId};

/// Two products at once go by rows. One alone does not where its sums have more terms than this, or
/// where its result has few columns and its sums have many terms (`lacis_kernels::gemm`).
const LONG_SUM: usize = 2048;
const FEW_COLUMNS: usize = 4;
const MANY_TERMS: usize = 32;

/// Joins what can be joined.
pub fn join(plan: &mut Plan) {
    let steps = plan.steps.len();
    each(plan, pair);
    each(plan, gate);
    if plan.steps.len() < steps {
        forget(plan);
    }
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
    let moved = *gone.last()?;
    let first = &plan.steps[moved];
    let is_product = first.operator == Operator::Gemm { form, ending: Ending::PLAIN };
    let alike = |of: usize| plan.half(first.inputs[of]) == plan.half(own[of]);
    if !is_product || first.phase != step.phase || !alike(0) || !alike(1) {
        return None;
    }
    if !goes_by_rows(plan, first) || !goes_by_rows(plan, step) || !can_move(plan, moved, at) {
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
    if reads(plan, &plan.steps[product], saved) || !can_move(plan, product, at) {
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
    (0..plan.steps.len()).filter(|&at| reads(plan, &plan.steps[at], value)).collect()
}

/// Whether a step reads a value or a part of it.
fn reads(plan: &Plan, step: &Step, value: ValueId) -> bool {
    step.inputs.iter().any(|&input| plan.base(input) == value)
}

/// Whether what a step reads is still there at a later one: no step between them replaces it.
fn can_move(plan: &Plan, from: usize, to: usize) -> bool {
    let replaces = |step: &Step| {
        let last = step.inputs.last().filter(|_| step.replaces_last());
        last.is_some_and(|&last| reads(plan, &plan.steps[from], plan.base(last)))
    };
    !plan.steps[from + 1..to].iter().any(replaces)
}

/// Whether kernels compute a product, of the forms `x·z` and `x·zᵀ`, by rows.
fn goes_by_rows(plan: &Plan, product: &Step) -> bool {
    let width = |value: ValueId| match plan.values[value].shape[1] {
        Dim::Width(width) => width,
        _ => usize::MAX,
    };
    let (terms, columns) = (width(product.inputs[0]), width(product.outputs[0]));
    terms <= LONG_SUM && (columns > FEW_COLUMNS || terms < MANY_TERMS)
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
    let places: Vec<ValueId> = kept
        .iter()
        .scan(0, |next, &kept| {
            let place = *next;
            *next += usize::from(kept);
            Some(place)
        })
        .collect();
    for value in &mut plan.values {
        if let Place::View { of, .. } | Place::Entries { of, .. } = &mut value.place {
            *of = places[*of];
        }
    }
    for step in &mut plan.steps {
        let all = step.inputs.iter_mut().chain(&mut step.outputs);
        all.for_each(|id| *id = places[*id]);
    }
    plan.result = places[plan.result];
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dim::Sizes;
    use crate::lower::slots;
    use crate::plan::{ParamInfo, Value};

    const NODES: [Dim; 2] = [Dim::Nodes(0), Dim::Width(8)];

    /// Values are told by where they are, steps by their operators, inputs and results.
    fn plan(values: &[([Dim; 2], Place)], steps: &[(Operator, &[ValueId], ValueId)]) -> Plan {
        let value = |&(shape, place)| Value { shape, place, half: false, formula: String::new() };
        let step = |&(operator, inputs, output): &(Operator, &[ValueId], ValueId)| Step {
            operator,
            inputs: inputs.to_vec(),
            outputs: vec![output],
            phase: Phase::Backward,
            layer: None,
            formula: String::new(),
        };
        Plan {
            values: values.iter().map(value).collect(),
            steps: steps.iter().map(step).collect(),
            params: vec![ParamInfo { name: "W".into(), shape: [8, 8] }],
            ..Plan::default()
        }
    }

    const PLAIN: Operator = Operator::Gemm { form: Form::Nn, ending: Ending::PLAIN };

    fn back() -> Operator {
        Operator::EachGrad { function: Function::Relu, dropout: None, scale: 1.0.into() }
    }

    fn assert_runs(mut plan: Plan) {
        slots::assign(&mut plan, &Sizes::whole(1, 10, 10));
        plan.check().unwrap();
    }

    /// `G = H·W` would have to be computed where `H` is no more: a gate was put there before.
    #[test]
    fn a_product_does_not_move_past_what_replaces_its_input() {
        let slot = Place::Slot(usize::MAX);
        let (x, w) = ((NODES, Place::Features), ([Dim::Width(8); 2], Place::Param(0)));
        let all = [x, w, (NODES, slot), (NODES, slot), (NODES, slot), (NODES, slot)];
        let all = [&all[..], &[(NODES, slot), (NODES, slot)]].concat();
        let (h, k, g, other) = (2, 3, 4, 5);
        let steps: [(Operator, &[ValueId], ValueId); 6] = [
            (PLAIN, &[0, 1], h),
            (PLAIN, &[0, 1], k),
            (PLAIN, &[h, 1], g),
            (PLAIN, &[0, 1], other),
            (back(), &[other, h], 6),
            (back(), &[g, k], 7),
        ];
        let mut found = plan(&all, &steps);
        join(&mut found);
        assert_eq!(found.steps.len(), 5, "one of two gates");
        assert_runs(found);
    }

    /// `G = H·W` and back through `H` itself: the result would go over what is read.
    #[test]
    fn a_gate_does_not_replace_a_factor() {
        let slot = Place::Slot(usize::MAX);
        let (x, w) = ((NODES, Place::Features), ([Dim::Width(8); 2], Place::Param(0)));
        let all = [x, w, (NODES, slot), (NODES, slot), (NODES, slot)];
        let mut found =
            plan(&all, &[(PLAIN, &[0, 1], 2), (PLAIN, &[2, 1], 3), (back(), &[3, 2], 4)]);
        join(&mut found);
        assert_eq!(found.steps.len(), 3);
        assert_runs(found);
    }

    /// The kernels have other ways for long sums and narrow results.
    #[test]
    fn only_products_that_go_by_rows_are_paired() {
        let ending = Ending { accumulate: true, ..Ending::PLAIN };
        let added = Operator::Gemm { form: Form::Nn, ending };
        let slot = Place::Slot(usize::MAX);
        for (terms, columns, paired) in
            [(8, 8, true), (2048, 5, true), (2049, 8, false), (40, 4, false), (31, 4, true)]
        {
            let x = ([Dim::Nodes(0), Dim::Width(terms)], Place::Features);
            let w = ([Dim::Width(terms), Dim::Width(columns)], Place::Param(0));
            let y = ([Dim::Nodes(0), Dim::Width(columns)], slot);
            let mut found = plan(&[x, w, y, y], &[(PLAIN, &[0, 1], 2), (added, &[0, 1, 2], 3)]);
            join(&mut found);
            assert_eq!(found.steps.len() == 1, paired, "{terms} {columns}");
            assert_eq!(found.values.len(), if paired { 3 } else { 4 });
            assert_runs(found);
        }
    }
}
