//! One binary: what formulas are, what they equal, what is planned of them.
#![allow(clippy::unwrap_used)]

mod compositions; // counts of bracketings
mod decisions; // what is chosen for known cases
mod eval; // the numbers behind a formula
mod gradients; // against differences
mod nets; // networks that are tried
mod plans; // against formulas
mod rules; // left and right sides
mod run; // the numbers behind a plan
