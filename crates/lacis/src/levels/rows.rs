//! Some rows of a matrix.

use lacis_core::{Buffer, Csr, CsrParts, RowPtr, Threads};

/// Some rows of a matrix, columns renumbered where a numbering is given.
pub(super) fn block_of(matrix: &Csr, rows: &[u32], new_of_old: Option<&[u32]>) -> Csr {
    let view = matrix.view();
    // No more than is needed: the matrix keeps the room that lists have.
    let entries = rows.iter().map(|&row| view.row(row as usize).len()).sum();
    let mut ptr = Vec::with_capacity(rows.len() + 1);
    ptr.push(0_u64);
    let mut cols = Vec::with_capacity(entries);
    let mut values = view.values.map(|_| Vec::with_capacity(entries));
    for &row in rows {
        let span = view.row(row as usize);
        match new_of_old {
            None => cols.extend_from_slice(&view.cols[span.clone()]),
            Some(new) => {
                cols.extend(view.cols[span.clone()].iter().map(|&old| new[old as usize]));
            }
        }
        if let (Some(to), Some(from)) = (&mut values, view.values) {
            to.extend_from_slice(&from[span]);
        }
        ptr.push(cols.len() as u64);
    }
    let parts = CsrParts {
        n_cols: matrix.n_cols(),
        row_ptr: RowPtr::Wide(ptr.into()),
        cols: cols.into(),
        values: values.map(Buffer::from),
        order: None,
    };
    Csr::new(parts, &Threads::one()).expect("rows of a valid matrix are valid")
}
