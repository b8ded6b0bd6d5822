//! Slots: memory for values, given to the next one when the last reader is done.

use std::collections::HashMap;

use crate::dim::Sizes;
use crate::plan::{Each, Operator, Phase, Place, Plan, Step, ValueId};

/// Gives every computed value a slot, such that values that live at the same time have different
/// ones. What is computed once and read in every epoch keeps its slot to the end.
///
/// The largest values come first, and each takes the smallest slot that is free as long as it
/// lives: no slot ever grows for a later one.
pub fn assign(plan: &mut Plan, sizes: &Sizes) {
    let mut lives = lives(plan, sizes);
    lives.sort_by_key(|life| (std::cmp::Reverse(life.bytes), life.from));
    // From the largest to the smallest.
    let mut slots: Vec<Vec<Life>> = Vec::new();
    for life in lives {
        let free = |slot: &Vec<Life>| slot.iter().all(|other| other.is_apart_from(&life));
        let slot = slots.iter().rposition(free).unwrap_or_else(|| {
            slots.push(Vec::new());
            slots.len() - 1
        });
        for &value in &life.values {
            if let Place::Slot(own) | Place::Entries { slot: own, .. } =
                &mut plan.values[value].place
            {
                *own = slot;
            }
        }
        slots[slot].push(life);
    }
    plan.slots = slots.len();
}

/// Values that are written over each other, and the steps from the first one's making to the last
/// one's reader.
struct Life {
    values: Vec<ValueId>,
    from: usize,
    to: usize,
    bytes: usize,
}

impl Life {
    fn is_apart_from(&self, other: &Life) -> bool {
        self.to < other.from || other.to < self.from
    }
}

fn lives(plan: &Plan, sizes: &Sizes) -> Vec<Life> {
    let last = last_uses(plan);
    let mut lives: Vec<Life> = Vec::new();
    let mut of: HashMap<ValueId, usize> = HashMap::new();
    for (at, step) in plan.steps.iter().enumerate() {
        let replaced = in_place(plan, step, |value| last.get(&value) == Some(&at))
            .and_then(|input| of.get(&plan.base(input)).copied());
        for (index, &output) in step.outputs.iter().enumerate() {
            if !matches!(plan.values[output].place, Place::Slot(_) | Place::Entries { .. }) {
                continue;
            }
            let life = match replaced {
                Some(life) if index == 0 => life,
                _ => {
                    lives.push(Life { values: Vec::new(), from: at, to: at, bytes: 0 });
                    lives.len() - 1
                }
            };
            of.insert(output, life);
            let life = &mut lives[life];
            life.values.push(output);
            // What nobody reads is free at once.
            life.to = last.get(&output).copied().unwrap_or(at).max(at);
            life.bytes = life.bytes.max(plan.len_of(output, sizes) * plan.number_bytes(output));
        }
    }
    lives
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
    // Where there is a loss, nobody asks for results after it: its gradient may take their place.
    if !plan.learns() {
        last.insert(plan.base(plan.result), usize::MAX);
    }
    last
}

/// The input whose slot the result may take: what is added to, or an element-wise operand that
/// nobody reads again.
fn in_place(plan: &Plan, step: &Step, dies: impl Fn(ValueId) -> bool) -> Option<ValueId> {
    if step.replaces_last() {
        return step.inputs.last().copied();
    }
    if let Some(of) = step.takes_over() {
        let (z, output) = (step.inputs[of], *step.outputs.first()?);
        let own = matches!(plan.values[z].place, Place::Slot(_)) && step.phase != Phase::Once;
        let alike = plan.values[z].shape == plan.values[output].shape;
        let again = step.inputs.iter().filter(|&&input| plan.base(input) == z).count() > 1;
        return (own && alike && !again && dies(z)).then_some(z);
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
