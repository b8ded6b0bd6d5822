//! Products of matrices, dense and sparse, and the rearrangements that building graphs needs.
//!
//! A sparse result is a list of [`Entry`]s, so that its values can be f64: in ascending order of
//! row, then column.

use super::sddmm::add_row;
use super::{Reduce, spmm};
use crate::error::same_size;
use crate::{Csr, Dense, Result};

/// Which factor of a dense product is taken transposed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// `X·Z`.
    Nn,
    /// `X·Zᵀ`: the gradient of the left factor, `dX = dY·Zᵀ`.
    Nt,
    /// `Xᵀ·Z`: the gradient of the right factor, `dZ = Xᵀ·dY`.
    Tn,
}

/// One entry of a sparse result: row, column, value.
pub type Entry = (usize, usize, f64);

/// The product of two dense matrices: `y_ij = Σ_c x_ic · z_cj`, transposed as the form says.
///
/// # Errors
/// When the inner sizes differ.
pub fn matmul(x: &Dense<f64>, z: &Dense<f64>, form: Form) -> Result<Dense<f64>> {
    let (xt, zt);
    let (x, z) = match form {
        Form::Nn => (x, z),
        Form::Nt => {
            zt = transposed(z);
            (x, &zt)
        }
        Form::Tn => {
            xt = transposed(x);
            (&xt, z)
        }
    };
    same_size("matmul", "inner size of the second matrix", x.n_cols(), z.n_rows())?;
    let inner = |i, j| (0..x.n_cols()).fold(0.0, |sum, c| sum + x.at(i, c) * z.at(c, j));
    Ok(Dense::from_fn(x.n_rows(), z.n_cols(), inner))
}

/// `xᵀ`.
pub fn transposed(x: &Dense<f64>) -> Dense<f64> {
    Dense::from_fn(x.n_cols(), x.n_rows(), |i, j| x.at(j, i))
}

/// `Y = X·W` for sparse features `X` and dense weights.
///
/// # Errors
/// When `w` has not one row per column of `x`.
pub fn sparse_matmul(x: &Csr, w: &Dense<f64>) -> Result<Dense<f64>> {
    spmm(x, w, Reduce::Sum)
}

/// `dW = Xᵀ·dY` for sparse features `X`.
///
/// # Errors
/// When `grad` has not one row per row of `x`.
pub fn sparse_matmul_transposed(x: &Csr, grad: &Dense<f64>) -> Result<Dense<f64>> {
    same_size("sparse_matmul_transposed", "rows of the gradient", x.n_rows(), grad.n_rows())?;
    let mut w = Dense::zeros(x.n_cols(), grad.n_cols());
    for (i, j, value) in x.entries() {
        for c in 0..grad.n_cols() {
            w.row_mut(j)[c] += f64::from(value) * grad.at(i, c);
        }
    }
    Ok(w)
}

/// `Y_g = X_g·W_g` for each pair, whatever the sizes.
///
/// # Errors
/// When the inner sizes of a pair differ.
pub fn grouped_matmul(pairs: &[(&Dense<f64>, &Dense<f64>)]) -> Result<Vec<Dense<f64>>> {
    pairs.iter().map(|(x, w)| matmul(x, w, Form::Nn)).collect()
}

/// `y_i = x_i·W_g` for the rows `ptr[g]..ptr[g + 1]`.
///
/// # Errors
/// When `ptr` does not cut the rows into one run per weight, or a weight's shape differs.
pub fn segment_matmul(x: &Dense<f64>, ptr: &[u64], weights: &[Dense<f64>]) -> Result<Dense<f64>> {
    let runs = runs("segment_matmul", x, ptr, weights)?;
    let k = weights.first().map_or(0, Dense::n_cols);
    let mut y = Dense::zeros(x.n_rows(), k);
    for (run, w) in runs.into_iter().zip(weights) {
        for i in run {
            for (c, &x) in x.row(i).iter().enumerate() {
                let scaled: Vec<f64> = w.row(c).iter().map(|w| x * w).collect();
                add_row(y.row_mut(i), &scaled);
            }
        }
    }
    Ok(y)
}

/// The gradients of a [`segment_matmul`]: `dx_i = dy_i·W_gᵀ`, `dW_g = Σ_i x_iᵀ·dy_i`.
///
/// # Errors
/// When a size does not fit the forward's.
pub fn segment_matmul_backward(
    x: &Dense<f64>,
    ptr: &[u64],
    weights: &[Dense<f64>],
    grad: &Dense<f64>,
) -> Result<(Dense<f64>, Vec<Dense<f64>>)> {
    let op = "segment_matmul backward";
    let turned: Vec<Dense<f64>> = weights.iter().map(transposed).collect();
    let runs = runs(op, x, ptr, weights)?;
    same_size(op, "rows of the gradient", x.n_rows(), grad.n_rows())?;
    let dx = segment_matmul(grad, ptr, &turned)?;
    let dw = runs.into_iter().map(|run| matmul(&rows(x, run.clone()), &rows(grad, run), Form::Tn));
    Ok((dx, dw.collect::<Result<_>>()?))
}

/// A copy of some consecutive rows.
fn rows(x: &Dense<f64>, run: std::ops::Range<usize>) -> Dense<f64> {
    Dense::from_fn(run.len(), x.n_cols(), |i, c| x.at(run.start + i, c))
}

/// The rows of each group, checked against the weights.
fn runs(
    op: &'static str,
    x: &Dense<f64>,
    ptr: &[u64],
    weights: &[Dense<f64>],
) -> Result<Vec<std::ops::Range<usize>>> {
    let segments = super::Segments::from_ptr(ptr, x.n_rows())?;
    same_size(op, "number of weights", segments.n(), weights.len())?;
    for w in weights {
        same_size(op, "rows of a weight", x.n_cols(), w.n_rows())?;
        same_size(op, "columns of a weight", weights[0].n_cols(), w.n_cols())?;
    }
    Ok(ptr.windows(2).map(|p| p[0] as usize..p[1] as usize).collect())
}

/// `C = A·B`: an entry wherever some `a_il·b_lj` is stored, even if they cancel; none repeats.
///
/// # Errors
/// When `b` has not one row per column of `a`.
pub fn spgemm(a: &Csr, b: &Csr) -> Result<Vec<Entry>> {
    same_size("spgemm", "rows of b", a.n_cols(), b.n_rows())?;
    let mut products = Vec::new();
    for (i, l, left) in a.entries() {
        for e in b.row(l) {
            let value = f64::from(left) * f64::from(b.value(e));
            products.push((i, b.cols()[e] as usize, value));
        }
    }
    Ok(merged(products))
}

/// `Aᵀ`; repeated entries stay apart and in their order.
pub fn transpose(a: &Csr) -> Vec<Entry> {
    ordered(a.entries().map(|(i, j, v)| (j, i, f64::from(v))).collect())
}

/// `A` with ascending columns; repeated entries stay apart and in their order.
pub fn sort(a: &Csr) -> Vec<Entry> {
    ordered(a.entries().map(|(i, j, v)| (i, j, f64::from(v))).collect())
}

/// `A` with ascending columns, repeated entries summed.
pub fn coalesce(a: &Csr) -> Vec<Entry> {
    merged(sort(a))
}

/// By row, then column; equal ones as they were.
fn ordered(mut entries: Vec<Entry>) -> Vec<Entry> {
    entries.sort_by_key(|&(i, j, _)| (i, j));
    entries
}

/// In order, those of one place summed.
fn merged(entries: Vec<Entry>) -> Vec<Entry> {
    let mut merged: Vec<Entry> = Vec::new();
    for (i, j, value) in ordered(entries) {
        match merged.last_mut() {
            Some(last) if (last.0, last.1) == (i, j) => last.2 += value,
            _ => merged.push((i, j, value)),
        }
    }
    merged
}

#[cfg(test)]
mod tests {
    use super::super::check::*;
    use super::*;
    use crate::{Repeats, Threads};

    /// The sparse matrix as a dense one, repeated entries summed.
    fn filled(a: &Csr) -> Dense<f64> {
        filled_entries(&sort(a), a.n_rows(), a.n_cols())
    }

    fn filled_entries(entries: &[Entry], n_rows: usize, n_cols: usize) -> Dense<f64> {
        let mut x = Dense::zeros(n_rows, n_cols);
        entries.iter().for_each(|&(i, j, v)| x.row_mut(i)[j] += v);
        x
    }

    fn as_entries(a: &Csr) -> Vec<Entry> {
        a.entries().map(|(i, j, v)| (i, j, f64::from(v))).collect()
    }

    #[test]
    fn dense_products_by_hand() {
        let (x, z) = (dense(&[[1.0, 2.0], [3.0, 4.0]]), dense(&[[5.0, 6.0], [7.0, 8.0]]));
        let found = |form| flat(&matmul(&x, &z, form).unwrap());
        assert_eq!(found(Form::Nn), [19.0, 22.0, 43.0, 50.0]);
        assert_eq!(found(Form::Nt), [17.0, 23.0, 39.0, 53.0]);
        assert_eq!(found(Form::Tn), [26.0, 30.0, 38.0, 44.0]);
    }

    #[test]
    fn shapes_of_dense_products() {
        let (x, z) = (matrix(1, 2, 3), matrix(2, 3, 4));
        let y = matmul(&x, &z, Form::Nn).unwrap();
        assert_eq!((y.n_rows(), y.n_cols()), (2, 4));
        assert_eq!(matmul(&x, &transposed(&z), Form::Nt).unwrap(), y);
        assert_eq!(matmul(&transposed(&x), &z, Form::Tn).unwrap(), y);
        assert!(matmul(&x, &z, Form::Nt).is_err() && matmul(&x, &z, Form::Tn).is_err());
        let none = matmul(&Dense::zeros(2, 0), &Dense::zeros(0, 3), Form::Nn).unwrap();
        assert_eq!(none, Dense::zeros(2, 3));
        assert_eq!(matmul(&x, &Dense::zeros(3, 0), Form::Nn).unwrap(), Dense::zeros(2, 0));
    }

    #[test]
    fn the_transposed_forms_are_the_gradients() {
        let (x, z, dy) = (matrix(1, 2, 3), matrix(2, 3, 4), matrix(3, 2, 4));
        let loss = |x: &Dense<f64>, z: &Dense<f64>| dot(&matmul(x, z, Form::Nn).unwrap(), &dy);
        assert_matrix_gradient(&x, &matmul(&dy, &z, Form::Nt).unwrap(), |x| loss(x, &z));
        assert_matrix_gradient(&z, &matmul(&x, &dy, Form::Tn).unwrap(), |z| loss(&x, z));
    }

    #[test]
    fn sparse_features_multiply_like_dense_ones() {
        let (x, w, dy) = (graph(), matrix(4, 4, 3), matrix(5, 5, 3));
        let expected = matmul(&filled(&x), &w, Form::Nn).unwrap();
        assert_close(&flat(&sparse_matmul(&x, &w).unwrap()), &flat(&expected));
        let dw = sparse_matmul_transposed(&x, &dy).unwrap();
        let expected = matmul(&filled(&x), &dy, Form::Tn).unwrap();
        assert_close(&flat(&dw), &flat(&expected));
        assert_matrix_gradient(&w, &dw, |w| dot(&sparse_matmul(&x, w).unwrap(), &dy));
        assert!(sparse_matmul(&x, &dy).is_err() && sparse_matmul_transposed(&x, &w).is_err());
    }

    #[test]
    fn groups_multiply_each_alone() {
        let (x, weights) = (matrix(6, 5, 2), [matrix(7, 2, 3), matrix(8, 2, 3), matrix(9, 2, 3)]);
        let ptr = [0, 2, 2, 5];
        let y = segment_matmul(&x, &ptr, &weights).unwrap();
        let parts = [rows(&x, 0..2), rows(&x, 2..2), rows(&x, 2..5)];
        let pairs: Vec<_> = parts.iter().zip(&weights).collect();
        let expected: Vec<f64> = grouped_matmul(&pairs).unwrap().iter().flat_map(flat).collect();
        assert_close(&flat(&y), &expected);
        assert!(segment_matmul(&x, &[0, 2, 5], &weights).is_err());
        assert!(segment_matmul(&x, &[0, 2, 1, 5], &weights).is_err());
        assert!(segment_matmul(&x, &[0, 2, 3, 4], &weights).is_err());
        assert!(segment_matmul(&matrix(6, 5, 3), &ptr, &weights).is_err());
        assert!(segment_matmul(&x, &[], &[]).is_err());
        assert_eq!(segment_matmul(&rows(&x, 0..0), &[0], &[]).unwrap(), Dense::zeros(0, 0));
        assert!(grouped_matmul(&[(&x, &x)]).is_err());
    }

    #[test]
    fn gradients_of_groups_are_slopes() {
        let (x, weights) = (matrix(6, 5, 2), [matrix(7, 2, 3), matrix(8, 2, 3), matrix(9, 2, 3)]);
        let (ptr, dy) = ([0, 2, 2, 5], matrix(10, 5, 3));
        let (dx, dw) = segment_matmul_backward(&x, &ptr, &weights, &dy).unwrap();
        let loss = |x: &Dense<f64>, weights: &[Dense<f64>]| {
            dot(&segment_matmul(x, &ptr, weights).unwrap(), &dy)
        };
        assert_matrix_gradient(&x, &dx, |x| loss(x, &weights));
        for (g, dw) in dw.iter().enumerate() {
            assert_matrix_gradient(&weights[g], dw, |w| {
                let mut weights = weights.clone();
                weights[g] = w.clone();
                loss(&x, &weights)
            });
        }
        assert!(segment_matmul_backward(&x, &ptr, &weights, &x).is_err());
    }

    #[test]
    fn a_sparse_product_is_the_dense_one_with_its_pattern() {
        let (a, b) = (graph(), csr(3, &[&[(2, 1.0), (0, 2.0)], &[], &[(2, -1.0)], &[(1, 4.0)]]));
        let c = spgemm(&a, &b).unwrap();
        let expected = matmul(&filled(&a), &filled(&b), Form::Nn).unwrap();
        assert_close(&flat(&filled_entries(&c, 5, 3)), &flat(&expected));
        assert!(c.is_sorted_by_key(|&(i, j, _)| (i, j)));
        let cancelled =
            spgemm(&csr(2, &[&[(0, 1.0), (1, 1.0)]]), &csr(1, &[&[(0, 5.0)], &[(0, -5.0)]]));
        assert_eq!(cancelled.unwrap(), [(0, 0, 0.0)]);
        assert!(spgemm(&a, &a).is_err());
        assert!(spgemm(&Csr::empty(0, 0).unwrap(), &Csr::empty(0, 3).unwrap()).unwrap().is_empty());
    }

    #[test]
    fn rearrangements_agree_with_the_builders() {
        let (a, threads) = (graph(), Threads::one());
        assert_eq!(transpose(&a), as_entries(&a.transpose(&threads)));
        assert_eq!(sort(&a), as_entries(&a.sorted(Repeats::Keep, &threads)));
        assert_eq!(coalesce(&a), as_entries(&a.sorted(Repeats::Sum, &threads)));
        assert_eq!(coalesce(&a)[2], (2, 0, 1.25));
    }
}
