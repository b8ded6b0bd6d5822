//! The values of Lacis: what a graph is, what a matrix is, what can go wrong, what is true.
//!
//! - [`Graph`] is an adjacency ([`Csr`]) and what is derived from it; [`Dataset`] adds features,
//!   labels and splits.
//! - [`Dense`] is a row-major matrix; both sit on a [`Buffer`], owned, mapped or foreign.
//! - [`Coo`] turns unsorted edges into a [`Csr`], on the [`Threads`] that the caller owns.
//! - [`mod@reference`] holds every operator in the most obvious loops: the truth for all tests.
//!
//! Reading files is `lacis-data`'s, running fast `lacis-kernels`', deciding `lacis-plan`'s.
//!
//! ```
//! use lacis_core::{Dense, Graph, reference};
//!
//! // Two edges into node 1; node 1 sums its neighbours' features.
//! let graph = Graph::from_edges(3, &[(0, 1), (2, 1)])?;
//! let x = Dense::from_fn(3, 2, |i, j| (10 * i + j) as f64);
//! let y = reference::spmm(graph.adjacency(), &x, reference::Reduce::Sum)?;
//! assert_eq!(y.row(1), [20.0, 22.0]);
//! # Ok::<(), lacis_core::Error>(())
//! ```
#![forbid(unsafe_code)]

mod buffer;
mod coo;
mod csr;
mod dataset;
mod dense;
pub mod error;
mod graph;
mod ids;
mod lent;
mod loops;
mod order;
pub mod reference;
mod rng;
mod stats;
pub mod threads;
mod view;

pub use buffer::{Buffer, SharedBytes};
pub use coo::{CHUNK_ENTRIES, Chunk, Coo, Extent, Repeats, Tags};
pub use csr::{ColumnOrder, Csr, CsrParts, RowPtr};
pub use dataset::{Collection, Dataset, Features, Labels, Origin, Split};
pub use dense::{DType, Dense, Element};
pub use error::{Error, Place, Result};
pub use graph::{DegreePower, Graph, Side};
pub use half::bf16;
pub use ids::NodeIds;
pub use lent::{Keeper, Lent};
pub use loops::SelfLoops;
pub use order::{Ordering, Permutation};
pub use rng::{Rng, Stream};
pub use stats::{DegreeStats, GraphStats};
pub use threads::Threads;
pub use view::{CsrView, RowPtrView};
