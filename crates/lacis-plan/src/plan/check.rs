//! [`Plan::check`]: plans come from files too, and a step trusts what it is given.
//!
//! The steps are gone through twice with what lies in each slot, as the first and a later iteration
//! would find it.

use std::collections::HashSet;

use lacis_core::{Error, Result};

use super::{Ending, Form, Operator, Phase, Place, Plan, Step, ValueId};

impl Plan {
    /// Whether every step reads only what is there: computed before, and not overwritten since, in
    /// the first iteration and in those after it.
    ///
    /// # Errors
    /// The first step that does not.
    pub fn check(&self) -> Result<()> {
        self.check_values()?;
        let mut memory = Memory { holder: vec![None; self.slots], matrices: HashSet::new() };
        let mut made: HashSet<ValueId> = HashSet::new();
        for (at, step) in self.steps.iter().enumerate() {
            self.check_step(step, &mut memory).map_err(|problem| bad_step(at, problem))?;
            if let Some(twice) = step.outputs.iter().find(|&&output| !made.insert(output)) {
                return Err(bad_step(at, format!("value {twice} is computed twice")));
            }
        }
        let again = self.steps.iter().enumerate().filter(|(_, step)| step.phase != Phase::Once);
        let result = |memory: &Memory| {
            let there = memory.check(self, self.result);
            there.map_err(|problem| Error::argument("plan, result", problem))
        };
        let mut forward = true;
        for (at, step) in again {
            if forward && step.phase == Phase::Backward {
                result(&memory)?;
                forward = false;
            }
            self.check_step(step, &mut memory).map_err(|problem| bad_step(at, problem))?;
        }
        if forward { result(&memory) } else { Ok(()) }
    }

    /// Whether values stand on earlier ones, and names on something.
    fn check_values(&self) -> Result<()> {
        for (id, value) in self.values.iter().enumerate() {
            let fits = match value.place {
                Place::View { of, .. } | Place::Entries { of, .. } => of < id,
                Place::Param(param) => param < self.params.len(),
                _ => true,
            };
            if !fits {
                let problem = format!("{:?} is not there", value.place);
                return Err(Error::argument(format!("plan, value {id}"), problem));
            }
        }
        match self.result < self.values.len() {
            true => Ok(()),
            false => Err(Error::argument("plan, result", format!("no value {}", self.result))),
        }
    }

    fn check_step(&self, step: &Step, memory: &mut Memory) -> std::result::Result<(), String> {
        let all = step.inputs.iter().chain(&step.outputs);
        if let Some(value) = all.clone().find(|&&value| value >= self.values.len()) {
            return Err(format!("there is no value {value}"));
        }
        let count = step.inputs.len();
        if let Some(right) = step.operator.arity().filter(|right| *right != count) {
            return Err(format!("{:?} has {count} inputs, not {right}", step.operator));
        }
        if let Some(why) = step.operator.contradiction() {
            return Err(format!("{:?}: {why}", step.operator));
        }
        step.inputs.iter().try_for_each(|&input| memory.check(self, input))?;
        for (at, &output) in step.outputs.iter().enumerate() {
            if let Place::Matrix(matrix) = self.values[output].place {
                memory.matrices.insert(matrix);
            }
            let Some(slot) = self.slot_of(output) else { continue };
            let Some(holder) = memory.holder.get_mut(slot) else {
                return Err(format!("there is no slot {slot}"));
            };
            *holder = Some(output);
            let here = |&other: &ValueId| self.slot_of(other) == Some(slot);
            if step.outputs[..at].iter().any(here) {
                return Err(format!("two results are in slot {slot}"));
            }
            let read = step.inputs.iter().enumerate().filter(|(_, input)| here(input));
            // Only the first result takes anybody's place.
            let stays = |place: usize| at > 0 || !step.may_replace(place);
            if let Some((place, _)) = read.into_iter().find(|(place, _)| stays(*place)) {
                return Err(format!("input {place} is overwritten while it is read"));
            }
        }
        Ok(())
    }
}

impl Operator {
    /// How many inputs it takes, where its attributes say so.
    fn arity(&self) -> Option<usize> {
        let (scales, ending) = match *self {
            Operator::Spmm { left, right, ending } => ([left, right], ending),
            Operator::Gemm { ending, .. } => ([ending.plus; 2], ending),
            _ => return None,
        };
        let base = ending.accumulate || ending.gate.is_some();
        let more = [scales[0], scales[1], ending.bias, base];
        Some(2 + more.into_iter().filter(|there| *there).count())
    }

    /// What an ending says that no kernel does, if it says such a thing.
    fn contradiction(&self) -> Option<&'static str> {
        let (ending, rows_of_dense) = match *self {
            Operator::Spmm { ending, .. } => (ending, false),
            Operator::Gemm { form, ending } => (ending, form != Form::Tn),
            _ => return None,
        };
        match ending {
            Ending { accumulate: true, gate: Some(_), .. } => {
                Some("what is there can be added to or be a gate, not both")
            }
            Ending { plus: false, gate: None, .. } => None,
            _ if rows_of_dense => None,
            _ => Some("only products of dense rows have a second product or a gate"),
        }
    }
}

impl Step {
    /// Whether the result may be written over this input.
    fn may_replace(&self, input: usize) -> bool {
        match self.operator {
            Operator::Spmm { .. } | Operator::Gemm { .. } => {
                self.replaces_last() && input + 1 == self.inputs.len()
            }
            Operator::Each(_) | Operator::EachGrad { .. } | Operator::Loss(_) | Operator::Pad => {
                input == 0
            }
            _ => self.takes_over() == Some(input),
        }
    }
}

/// What is where while a plan runs.
struct Memory {
    holder: Vec<Option<ValueId>>,
    matrices: HashSet<usize>,
}

impl Memory {
    /// Whether a value can be read.
    fn check(&self, plan: &Plan, value: ValueId) -> std::result::Result<(), String> {
        let (base, name) = (plan.base(value), &plan.values[value].formula);
        let there = match (plan.slot_of(base), plan.values[base].place) {
            (Some(slot), _) => self.holder.get(slot) == Some(&Some(base)),
            (None, Place::Matrix(matrix)) => self.matrices.contains(&matrix),
            _ => true,
        };
        match there {
            true => Ok(()),
            false => Err(format!("value {value} ({name}) is not there, or not any more")),
        }
    }
}

fn bad_step(at: usize, problem: String) -> Error {
    Error::argument(format!("plan, step {}", at + 1), problem)
}
