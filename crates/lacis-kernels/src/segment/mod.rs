//! Rows or columns chosen, added, reduced and normalised by index.
//!
//! | what | forward | backward |
//! | --- | --- | --- |
//! | `y_i = x_index(i)` | [`select`] | [`reduce`], a sum |
//! | `y_index(i) += x_i` | [`reduce::Args::index_add`] | [`select`] |
//! | `y_s = reduce { x_i : index(i) = s }` | [`reduce`] | [`backward`] |
//! | softmax over each segment | [`softmax`] | [`softmax::Backward`] |
//! | an index for every element | [`elements`] | [`elements::Scatter::backward`] |
//!
//! An [`Index`] is checked once; [`Groups`] sort one once, for operators that meet it often. What
//! is along [`Axis::Cols`](lacis_core::reference::Axis) is done some rows at a time, or to tiles of
//! 16 rows, turned.

// Not every body that `per_isa!` compiles multiplies and adds.
#![allow(clippy::extra_unused_type_parameters)]

mod argument;
pub mod backward;
mod columns;
pub mod elements;
mod index;
mod items;
mod join;
mod narrow;
mod partition;
pub mod reduce;
mod rows;
mod segments;
pub mod select;
pub mod softmax;
mod strip;
mod turn;

pub use index::Index;
pub use segments::{Groups, Segments};
