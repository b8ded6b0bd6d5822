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
mod inorder;
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
mod tables;
mod turn;
#[cfg(target_arch = "x86_64")]
mod wide;

pub use index::Index;
pub use segments::{Groups, Segments};

use bytemuck::Pod;
use lacis_core::reference::{Axis, Ties};
use lacis_core::{Lent, Result, Threads};

use crate::isa::Isa;
use crate::matrix::{Mat, MatMut};
use crate::once::once;

/// Memory for a loop, of any value.
///
/// # Panics
/// When the system refuses it, as [`Buffer::zeroed`](lacis_core::Buffer::zeroed) does.
fn lent<T: Pod>(len: usize, threads: &Threads) -> Lent<'_, T> {
    threads.lend(len).unwrap_or_else(|error| panic!("{error}"))
}

once!(Once:
    fn segment_reduce(
        kernel: &reduce::Kernel,
        isa: Isa,
        args: &reduce::Args<'_, Self>,
        y: MatMut<'_, Self>,
        threads: &Threads,
    ) -> Result<()> = reduce::Kernel::run_here;
    fn segment_reduce_backward(
        of: &backward::Backward<'_, Self>,
        isa: Isa,
        dx: MatMut<'_, Self>,
        threads: &Threads,
    ) -> Result<()> = backward::Backward::run_here;
    fn segment_softmax(
        args: &softmax::Args<'_, Self>,
        isa: Isa,
        y: MatMut<'_, Self>,
        threads: &Threads,
    ) -> Result<()> = softmax::Args::run_here;
    fn segment_softmax_backward(
        of: &softmax::Backward<'_, Self>,
        isa: Isa,
        dx: MatMut<'_, Self>,
        threads: &Threads,
    ) -> Result<()> = softmax::Backward::run_here;
    fn select(
        args: &select::Args<'_, Self>,
        isa: Isa,
        y: MatMut<'_, Self>,
        threads: &Threads,
    ) -> Result<()> = select::Args::run_here;
    fn gather(
        x: Mat<'_, Self>,
        index: elements::IndexMatrix<'_>,
        axis: Axis,
        y: MatMut<'_, Self>,
        threads: &Threads,
    ) -> Result<()> = elements::gather_here;
    fn scatter(
        of: &elements::Scatter<'_, Self>,
        y: MatMut<'_, Self>,
        threads: &Threads,
    ) -> Result<()> = elements::Scatter::run_here;
    fn scatter_backward(
        of: &elements::Scatter<'_, Self>,
        ties: Ties,
        grad: Mat<'_, Self>,
        dx: MatMut<'_, Self>,
        threads: &Threads,
    ) -> Result<()> = elements::Scatter::backward_here;
);
