//! The engine as a Rust program uses it.
#![allow(clippy::unwrap_used)]

mod training; // networks: gradients, savings, candidates, threads, checkpoints
mod tuning; // measuring a machine, and what is kept of it
