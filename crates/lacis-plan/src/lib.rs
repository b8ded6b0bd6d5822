//! Matrix formulas of graph neural networks: gradients, equal forms, costs, plans.
//!
//! ```text
//!  formula ─► gradients ─► equal forms ─► compositions ─► steps ─► costs ─► the cheapest plan
//!  expr.rs    grad.rs      rules.rs       compose.rs      lower.rs cost.rs  choose.rs, plan.rs
//!                                                                 memory.rs
//! ```
//! This crate decides and never runs: no kernel, no clock, no file. The same formula, sizes and
//! costs give the same plan.
#![forbid(unsafe_code)]

pub mod analysis;
pub mod choose;
pub mod compose;
pub mod cost;
pub mod dim;
mod display;
pub mod expr;
pub mod grad;
pub mod lower;
pub mod memory;
pub mod op;
pub mod plan;
pub mod rules;
pub mod sampled;

pub use dim::{Dim, Sizes};
pub use expr::{Expr, Kind};
pub use op::Op;
pub use plan::Plan;
