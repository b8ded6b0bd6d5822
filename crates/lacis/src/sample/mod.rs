//! Mini-batches: parts of a graph that a training step can afford.
//!
//! ```text
//!   NeighborBatches   seeds, some in-neighbours, some of theirs, …    one block per layer
//!   SaintBatches      random walks, all edges among their nodes       one square graph
//!   GraphBatches      some graphs of a collection, side by side       one square graph
//!   NonEdges          pairs of nodes that no edge joins               for link prediction
//! ```
//! A batch is a function of the seed, the epoch and its number: the threads that prepare batches
//! ahead of their use ([`Ahead`]) change when it is made, never what is in it. Batches come one at
//! a time and lend their memory: the next one is written where the last one was.

mod ahead;
mod draw;
mod features;
mod graphs;
mod grown;
mod items;
mod local;
mod negative;
mod neighbor;
mod neighbor_batches;
mod norm;
mod saint;
mod way;

pub use ahead::{Ahead, Preparation, With};
pub use features::sparse_rows;
pub use graphs::{GraphBatch, GraphBatches, GraphConfig};
pub use items::Order;
pub use negative::NonEdges;
pub use neighbor::{EdgeIds, Fanout, NeighborSampler};
pub use neighbor_batches::{NeighborBatch, NeighborBatches, NeighborConfig};
pub use norm::SaintNorm;
pub use saint::{SaintBatch, SaintBatches, SaintConfig, SaintSampler};
pub use way::Sampling;
