//! One binary: what formulas are, what they equal, what is planned of them.

mod compositions;
mod decisions;
mod eval;
mod gradients;
mod nets;
mod plans;
mod rules;
mod run;
