//! Slots: memory for values, given to the next one when the last reader is done.

use std::collections::HashMap;

use crate::dim::Dim;
use crate::plan::{Each, Operator, Phase, Place, Plan, Step, ValueId};

/// Gives every computed value a slot, such that values that live at the same time have different
/// ones. What is computed once and read in every epoch keeps its slot to the end.
pub fn assign(plan: &mut Plan) {
    let last = last_uses(plan);
    let mut free: Vec<(usize, [Dim; 2])> = Vec::new();
    let mut slots = 0;
    let steps = plan.steps.clone();
    for (at, step) in steps.iter().enumerate() {
        let mut reused = None;
        if let Some(input) = in_place(plan, step, |value| last.get(&value) == Some(&at)) {
            reused = Some(plan.base(input));
        }
        for (index, &output) in step.outputs.iter().enumerate() {
            let slot = match reused {
                Some(input) if index == 0 => plan.slot_of(input).unwrap_or(usize::MAX),
                _ => take(&mut free, plan.values[output].shape, &mut slots),
            };
            match &mut plan.values[output].place {
                Place::Slot(own) | Place::Entries { slot: own, .. } => *own = slot,
                _ => {}
            }
        }
        release(plan, step, at, (&last, reused), &mut free);
        // What nobody reads is free at once.
        for &output in &step.outputs {
            if !last.contains_key(&output)
                && let Place::Slot(slot) = plan.values[output].place
            {
                free.push((slot, plan.values[output].shape));
            }
        }
    }
    plan.slots = slots;
}

/// A free slot of the same shape, else any, else a new one.
fn take(free: &mut Vec<(usize, [Dim; 2])>, shape: [Dim; 2], slots: &mut usize) -> usize {
    let same = free.iter().rposition(|(_, of)| *of == shape);
    let rows = same.or_else(|| free.iter().rposition(|(_, of)| of[0] == shape[0]));
    match rows {
        Some(at) => free.swap_remove(at).0,
        None => {
            *slots += 1;
            *slots - 1
        }
    }
}

/// Gives back the slots whose last reader this step was.
fn release(
    plan: &Plan,
    step: &Step,
    at: usize,
    (last, reused): (&HashMap<ValueId, usize>, Option<ValueId>),
    free: &mut Vec<(usize, [Dim; 2])>,
) {
    let mut done: Vec<ValueId> = step.inputs.iter().map(|&input| plan.base(input)).collect();
    done.sort_unstable();
    done.dedup();
    for value in done {
        if last.get(&value) == Some(&at)
            && Some(value) != reused
            && let Some(slot) = plan.slot_of(value)
        {
            free.push((slot, plan.values[value].shape));
        }
    }
}

/// The step that reads each value last; beyond the end where it is kept.
fn last_uses(plan: &Plan) -> HashMap<ValueId, usize> {
    let mut last = HashMap::new();
    for (at, step) in plan.steps.iter().enumerate() {
        for &input in &step.inputs {
            let base = plan.base(input);
            last.insert(base, at);
            // Values of entries need their pattern, which may be computed too.
            if let Place::Entries { of, .. } = plan.values[base].place {
                last.insert(plan.base(of), at);
            }
        }
    }
    let first = plan.steps.iter().take_while(|step| step.phase == Phase::Once).count();
    for output in plan.steps[..first].iter().flat_map(|step| &step.outputs) {
        let last = last.entry(plan.base(*output)).or_insert(0);
        if *last >= first {
            *last = usize::MAX;
        }
    }
    last.insert(plan.base(plan.result), usize::MAX);
    last
}

/// The input whose slot the result may take: what is added to, or an element-wise operand that
/// nobody reads again.
fn in_place(plan: &Plan, step: &Step, dies: impl Fn(ValueId) -> bool) -> Option<ValueId> {
    let accumulates = match step.operator {
        Operator::Spmm { ending, .. } | Operator::Gemm { ending, .. } => ending.accumulate,
        _ => false,
    };
    if accumulates {
        return step.inputs.last().copied();
    }
    let first = *step.inputs.first()?;
    let whole = plan.base(first) == first;
    // Rows of zeros may follow: a slot has room for the largest of its values.
    let pads = matches!(step.operator, Operator::Pad);
    let same = step.outputs.iter().any(|&output| {
        let (to, from) = (plan.values[output].shape, plan.values[first].shape);
        to == from || (pads && to[1] == from[1])
    });
    let in_slot = matches!(plan.values[first].place, Place::Slot(_));
    let again = step.inputs[1..].iter().any(|&input| plan.base(input) == first);
    let elementwise = matches!(
        step.operator,
        Operator::Each(Each { .. }) | Operator::EachGrad { .. } | Operator::Loss(_) | Operator::Pad
    );
    let once = step.phase == Phase::Once;
    (elementwise && whole && same && in_slot && !again && !once && dies(first)).then_some(first)
}
