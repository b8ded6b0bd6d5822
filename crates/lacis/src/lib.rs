//! Lacis: graph neural networks planned for the graph, the sizes and the machine they meet.
//!
//! This crate is the front door. Today it opens graph files, makes graphs, and holds the values
//! that the engine works on:
//!
//! - [`open`] reads a path, runs a generator such as `rmat:n=1000,e=5000`, or finds a built-in set;
//! - [`Dataset`] is what comes back: a [`Graph`], [`Features`], [`Labels`], [`Split`]s;
//! - [`data`] has the formats, generators, splits and transforms themselves;
//! - [`kernels`] computes sparse products fast; [`ops`] measures them, [`mod@tune`] a machine;
//! - [`mod@reference`] computes every operator in obvious loops, to check anything faster against.
//!
//! The library never prints, exits, reads the environment, or installs a logger, a signal handler
//! or a global thread pool: [`Threads`] and [`data::Job`] are passed in.
//!
//! ```
//! use lacis::{Threads, data::Job};
//!
//! let threads = Threads::new(2)?;
//! let karate = lacis::open("karate", &Job::quiet(&threads))?;
//! let stats = karate.graph().stats(&threads);
//! assert_eq!((stats.n_rows, stats.undirected_edges), (34, 78));
//! # Ok::<(), lacis::Error>(())
//! ```
#![forbid(unsafe_code)]

/// The README's example is compiled and run as a test.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;

pub mod analyze;
pub mod approx;
pub mod costs;
pub mod exec;
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
