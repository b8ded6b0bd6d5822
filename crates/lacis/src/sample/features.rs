//! The feature rows of a batch's nodes.

use lacis_core::reference::Axis;
use lacis_core::{Csr, CsrParts, Dense, Error, Result, RowPtr, Threads};
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

/// The rows of `nodes` of a sparse matrix, such as a bag of words, one after another.
///
/// # Errors
/// When a node has no row, or there would be more than `u32::MAX` entries.
pub fn sparse_rows(x: &Csr, nodes: &[u32]) -> Result<Csr> {
    let (one, a) = (Threads::one(), x.view());
    Index::new(nodes, x.n_rows(), &one)?;
    let nnz: usize = nodes.iter().map(|&node| a.row(node as usize).len()).sum();
    if u32::try_from(nnz).is_err() {
        let (value, limit) = (nnz as u128, u128::from(u32::MAX));
        return Err(Error::Overflow { what: "number of features of a batch", value, limit });
    }
    let (mut row_ptr, mut cols) = (Vec::with_capacity(nodes.len() + 1), Vec::with_capacity(nnz));
    let mut values = a.values.map(|_| Vec::with_capacity(nnz));
    row_ptr.push(0u32);
    for &node in nodes {
        let row = a.row(node as usize);
        cols.extend_from_slice(&a.cols[row.clone()]);
        if let (Some(values), Some(all)) = (&mut values, a.values) {
            values.extend_from_slice(&all[row]);
        }
        row_ptr.push(cols.len() as u32);
    }
    let parts = CsrParts {
        n_cols: x.n_cols(),
        row_ptr: RowPtr::Narrow(row_ptr.into()),
        cols: cols.into(),
        values: values.map(Into::into),
        order: None,
    };
    Csr::new(parts, &one)
}

#[cfg(test)]
mod tests {
    use super::*;
    use lacis_core::Graph;

    #[test]
    fn sparse_rows_are_copied_in_order() {
        let x = Graph::from_edges(4, &[(0, 1), (2, 1), (3, 3)]).unwrap();
        let plain = x.adjacency().as_ref().clone().without_order();
        let weighted = plain.clone().with_values(Some(vec![5.0, 6.0, 7.0].into())).unwrap();
        for (x, values) in [(plain, [1.0; 3]), (weighted, [7.0, 5.0, 6.0])] {
            let rows = sparse_rows(&x, &[3, 0, 1]).unwrap();
            let [a, b, c] = values;
            let expected = [(0, 3, a), (2, 0, b), (2, 2, c)];
            assert_eq!(rows.entries().collect::<Vec<_>>(), expected);
            assert_eq!((rows.n_rows(), rows.n_cols()), (3, 4));
            assert!(sparse_rows(&x, &[4]).is_err());
            assert_eq!(sparse_rows(&x, &[]).unwrap().n_rows(), 0);
        }
    }
}
