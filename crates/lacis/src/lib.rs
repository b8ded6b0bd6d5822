//! Lacis: graph neural networks planned for the graph, the sizes and the machine they meet.
//!
//! This crate is the front door. A data set, who trains, a recipe; then epochs, scores, weights:
//!
//! ```
//! use lacis::exec::Nobody;
//! use lacis::kernels::Profile;
//! use lacis::metrics::{Metric, ScoreRow, Scored};
//! use lacis::train::{Job, Recipe, Trainer};
//! use lacis::{Threads, data, machine::this_machine, nn::Config};
//!
//! let threads = Threads::new(2)?;
//! let set = lacis::open("karate", &data::Job::quiet(&threads))?;
//! let labels = set.labels().expect("the club split in two");
//! let split = data::splits::random(labels, data::splits::Fractions::DEFAULT, 0)?;
//! let profile = Profile::unmeasured(this_machine());
//!
//! let job = Job { dataset: &set, split: &split, threads: &threads, profile: &profile };
//! let mut trainer = Trainer::new(&job, Recipe::new("gcn", Config::new(34, 8, 2)))?;
//! println!("{}", trainer.chosen().plan.formula);
//! while trainer.epoch() < 60 {
//!     trainer.step(&mut Nobody)?;
//! }
//! let test = trainer.logits(|scores| {
//!     let scored = Scored::new(scores, labels, &split.test, ScoreRow::OfItem)?;
//!     "accuracy".parse::<Metric>()?.of_items(&scored, &threads)
//! })??;
//! assert!(test > 0.6);
//! # Ok::<(), lacis::Error>(())
//! ```
//!
//! - [`open`] reads a path, runs a generator such as `rmat:n=1000,e=5000`, or finds a built-in set;
//! - [`Dataset`] is what comes back: a [`Graph`], [`Features`], [`Labels`], [`Split`]s; [`data`]
//!   has the formats, generators, splits and transforms themselves;
//! - [`nn`] has the models, each a formula; [`plan`] finds the cheapest equal formula for a graph;
//! - [`train`] runs epochs, and lets a watcher stop them
//!   ([`Trainer::train`](train::Trainer::train)); [`infer`] gives results without learning;
//!   [`metrics`] judges, [`store`] keeps weights and runs, [`sample`] draws batches;
//! - [`kernels`] computes fast; [`ops`] measures it, [`mod@tune`] a machine;
//! - [`mod@reference`] computes every operator in obvious loops, to check anything faster against.
//!
//! The library never prints, exits, reads the environment, or installs a logger, a signal handler
//! or a global thread pool: [`Threads`] and [`data::Job`] are passed in.
//!
//! Errors are one type, [`Error`]: `Send`, `Sync` and `'static`.
#![forbid(unsafe_code)]

/// The README's example is compiled and run as a test.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;

pub mod analyze;
pub mod approx;
pub mod costs;
pub mod exec;
pub mod infer;
pub mod levels;
pub mod link;
pub mod machine;
pub mod metrics;
pub mod nn;
pub mod ops;
pub mod pairs;
pub mod params;
pub mod partition;
pub mod sample;
pub mod schedule;
pub mod store;
pub mod train;
pub mod tune;

pub use lacis_core::*;
pub use lacis_data as data;
pub use lacis_data::open;
pub use lacis_kernels as kernels;
pub use lacis_plan as plan;

/// Errors go between threads and into boxes.
const _: () = {
    const fn travels<T: std::error::Error + Send + Sync + 'static>() {}
    travels::<Error>();
};
