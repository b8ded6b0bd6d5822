//! The engine as a Rust program uses it.
#![allow(clippy::unwrap_used)]

mod analysis; // work, depth, cuts and exchanges
mod approximation; // sampled backward products: budgets, estimates, monitors, checkpoints
mod batches; // sampled neighbourhoods, random walks, small graphs
mod dropped; // edges that are dropped
mod infer; // results of all nodes, at once and in blocks
mod links; // which nodes are joined
mod precision; // rows stored in bf16
mod training; // networks: gradients, savings, candidates, threads, checkpoints
mod tuning; // measuring a machine, and what is kept of it
