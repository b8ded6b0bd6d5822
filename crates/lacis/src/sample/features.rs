//! The feature rows of a batch's nodes.

use lacis_core::reference::Axis;
use lacis_core::{Dense, Result, Threads};
use lacis_kernels::segment::{Index, select};
use lacis_kernels::{Isa, MatMut, Stored};

use super::grown::Grown;

/// Copies the rows of `nodes` to `memory` and gives them as a matrix that shares it.
pub(super) fn gather<T: Stored>(
    x: &Dense<T>,
    nodes: &[u32],
    memory: &mut Grown<T>,
) -> Result<Dense<T>> {
    let (one, n, k) = (Threads::one(), nodes.len(), x.n_cols());
    let index = Index::new(nodes, x.n_rows(), &one)?;
    memory.clear();
    let y = MatMut::new(memory.extended(n * k), n, k, k)?;
    select::Args::new(x, &index, Axis::Rows)?.run(Isa::best(), y, &one)?;
    Dense::new(memory.share(n * k), n, k, k)
}
