//! The engine as a Rust program uses it.
#![allow(clippy::unwrap_used)]

mod tuning; // measuring a machine, and what is kept of it
