//! One value per edge from its two ends, and the softmax over a node's edges.
//!
//! A per-edge matrix has one row per stored entry of `A`, in stored order; entry `e = (i, j)` runs
//! from source `j` to target `i`.

use super::check_shape;
use crate::{Csr, Dense, Result};

/// What is made of the rows `u_i` and `v_j` at an edge's ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EdgeOp {
    /// `Σ_c u_ic · v_jc`: one number.
    Dot,
    /// `u_i + v_j`: a row.
    Add,
    /// `u_i ⊙ v_j`: a row.
    Mul,
}

/// `s_e = op(u_i, v_j)` for every entry `e = (i, j)`; the values of `a` take no part.
///
/// # Errors
/// When `u` has not one row per row of `a`, `v` not one per column, or their widths differ.
pub fn sddmm(a: &Csr, u: &Dense<f64>, v: &Dense<f64>, op: EdgeOp) -> Result<Dense<f64>> {
    check_ends(a, u, v)?;
    let (u, v) = (at_targets(a, u), at_sources(a, v));
    let row_dot = |e: usize| u.row(e).iter().zip(v.row(e)).map(|(u, v)| u * v).sum();
    Ok(match op {
        EdgeOp::Dot => Dense::from_fn(a.nnz(), 1, |e, _| row_dot(e)),
        EdgeOp::Add => Dense::from_fn(a.nnz(), u.n_cols(), |e, c| u.at(e, c) + v.at(e, c)),
        EdgeOp::Mul => Dense::from_fn(a.nnz(), u.n_cols(), |e, c| u.at(e, c) * v.at(e, c)),
    })
}

/// The gradients of `u` and `v`: `du_i = Σ_{e in row i} ds_e · ∂op/∂u_i`, and likewise for `v_j`.
///
/// # Errors
/// When a size does not fit the forward's.
pub fn sddmm_backward(
    a: &Csr,
    u: &Dense<f64>,
    v: &Dense<f64>,
    op: EdgeOp,
    grad: &Dense<f64>,
) -> Result<(Dense<f64>, Dense<f64>)> {
    check_ends(a, u, v)?;
    let width = if op == EdgeOp::Dot { 1 } else { u.n_cols() };
    let what = ["rows of the gradient", "columns of the gradient"];
    check_shape("sddmm backward", what, (a.nnz(), width), grad)?;
    let (u, v) = (at_targets(a, u), at_sources(a, v));
    let scaled = |other: &Dense<f64>| {
        Dense::from_fn(a.nnz(), u.n_cols(), |e, c| match op {
            EdgeOp::Dot => grad.at(e, 0) * other.at(e, c),
            EdgeOp::Add => grad.at(e, c),
            EdgeOp::Mul => grad.at(e, c) * other.at(e, c),
        })
    };
    Ok((sum_at_targets(a, &scaled(&v)), sum_at_sources(a, &scaled(&u))))
}

/// What torch_geometric adds to a softmax's denominator.
pub(super) const SOFTMAX_EPSILON: f64 = 1e-16;

/// `p_e = exp(s_e − max) / (Σ exp(s − max) + 1e-16)` over each row's entries, for each column of
/// the scores (each head) alone.
///
/// # Errors
/// When there is not one row of scores per entry.
pub fn edge_softmax(a: &Csr, scores: &Dense<f64>) -> Result<Dense<f64>> {
    let what = ["rows of the scores", "columns of the scores"];
    check_shape("edge_softmax", what, (a.nnz(), scores.n_cols()), scores)?;
    let mut p = Dense::zeros(a.nnz(), scores.n_cols());
    for i in 0..a.n_rows() {
        for h in 0..scores.n_cols() {
            let row: Vec<f64> = a.row(i).map(|e| scores.at(e, h)).collect();
            for (e, value) in a.row(i).zip(softmax_of(&row)) {
                p.row_mut(e)[h] = value;
            }
        }
    }
    Ok(p)
}

/// `ds_e = p_e · (dp_e − Σ p · dp)` over each row's entries, from the softmax's result `p`.
///
/// # Errors
/// When `p` and its gradient have not one row per entry, or differ in width.
pub fn edge_softmax_backward(a: &Csr, p: &Dense<f64>, grad: &Dense<f64>) -> Result<Dense<f64>> {
    let what = ["rows of p", "columns of p"];
    check_shape("edge_softmax backward", what, (a.nnz(), grad.n_cols()), p)?;
    let what = ["rows of the gradient", "columns of the gradient"];
    check_shape("edge_softmax backward", what, (a.nnz(), p.n_cols()), grad)?;
    let mut ds = Dense::zeros(a.nnz(), p.n_cols());
    for i in 0..a.n_rows() {
        for h in 0..p.n_cols() {
            let mean: f64 = a.row(i).map(|e| p.at(e, h) * grad.at(e, h)).sum();
            for e in a.row(i) {
                ds.row_mut(e)[h] = p.at(e, h) * (grad.at(e, h) - mean);
            }
        }
    }
    Ok(ds)
}

/// Softmax of a few numbers, with torch_geometric's denominator.
pub(super) fn softmax_of(scores: &[f64]) -> Vec<f64> {
    let max = super::Reduce::Max.of(scores);
    let powers: Vec<f64> = scores.iter().map(|s| (s - max).exp()).collect();
    let sum = powers.iter().sum::<f64>() + SOFTMAX_EPSILON;
    powers.iter().map(|power| power / sum).collect()
}

/// Row `e` is the row of `x` at the edge's target.
pub(super) fn at_targets(a: &Csr, x: &Dense<f64>) -> Dense<f64> {
    let targets: Vec<usize> = a.entries().map(|(i, _, _)| i).collect();
    Dense::from_fn(a.nnz(), x.n_cols(), |e, c| x.at(targets[e], c))
}

/// Row `e` is the row of `x` at the edge's source.
pub(super) fn at_sources(a: &Csr, x: &Dense<f64>) -> Dense<f64> {
    Dense::from_fn(a.nnz(), x.n_cols(), |e, c| x.at(a.cols()[e] as usize, c))
}

/// The rows of each target's edges, summed: the backward of [`at_targets`].
pub(super) fn sum_at_targets(a: &Csr, edges: &Dense<f64>) -> Dense<f64> {
    let mut sums = Dense::zeros(a.n_rows(), edges.n_cols());
    for (e, (i, _, _)) in a.entries().enumerate() {
        add_row(sums.row_mut(i), edges.row(e));
    }
    sums
}

/// The rows of each source's edges, summed: the backward of [`at_sources`].
pub(super) fn sum_at_sources(a: &Csr, edges: &Dense<f64>) -> Dense<f64> {
    let mut sums = Dense::zeros(a.n_cols(), edges.n_cols());
    for (e, (_, j, _)) in a.entries().enumerate() {
        add_row(sums.row_mut(j), edges.row(e));
    }
    sums
}

/// `y += x`.
pub(super) fn add_row(y: &mut [f64], x: &[f64]) {
    y.iter_mut().zip(x).for_each(|(y, x)| *y += x);
}

fn check_ends(a: &Csr, u: &Dense<f64>, v: &Dense<f64>) -> Result<()> {
    let what = ["rows of u", "columns of u"];
    check_shape("sddmm", what, (a.n_rows(), u.n_cols()), u)?;
    let what = ["rows of v", "columns of v"];
    check_shape("sddmm", what, (a.n_cols(), u.n_cols()), v)
}

#[cfg(test)]
mod tests {
    use super::super::check::*;
    use super::super::{Reduce, Spmm};
    use super::*;

    const OPS: [EdgeOp; 3] = [EdgeOp::Dot, EdgeOp::Add, EdgeOp::Mul];

    #[test]
    fn known_values() {
        let a = csr(2, &[&[(1, 9.0)], &[], &[(1, 9.0), (0, 9.0), (1, 9.0)]]);
        let u = dense(&[[1.0, 2.0], [0.0, 0.0], [3.0, 4.0]]);
        let v = dense(&[[10.0, 20.0], [30.0, 40.0]]);
        let found = |op| flat(&sddmm(&a, &u, &v, op).unwrap());
        assert_eq!(found(EdgeOp::Dot), [110.0, 250.0, 110.0, 250.0]);
        assert_eq!(found(EdgeOp::Add), [31.0, 42.0, 33.0, 44.0, 13.0, 24.0, 33.0, 44.0]);
        assert_eq!(found(EdgeOp::Mul), [30.0, 80.0, 90.0, 160.0, 30.0, 80.0, 90.0, 160.0]);
    }

    #[test]
    fn gradients_are_slopes() {
        let (a, u, v) = (graph(), matrix(1, 5, 3), matrix(2, 4, 3));
        for op in OPS {
            let dy = matrix(3, a.nnz(), sddmm(&a, &u, &v, op).unwrap().n_cols());
            let (du, dv) = sddmm_backward(&a, &u, &v, op, &dy).unwrap();
            assert_matrix_gradient(&u, &du, |u| dot(&sddmm(&a, u, &v, op).unwrap(), &dy));
            assert_matrix_gradient(&v, &dv, |v| dot(&sddmm(&a, &u, v, op).unwrap(), &dy));
        }
    }

    #[test]
    fn the_dot_is_the_gradient_of_a_sums_edge_values() {
        let (a, x, dy) = (graph(), matrix(4, 4, 3), matrix(5, 5, 3));
        let grads = Spmm::new(Reduce::Sum).backward(&a, &x, &dy).unwrap();
        let dots = sddmm(&a, &dy, &x, EdgeOp::Dot).unwrap();
        assert_close(&flat(&dots), &grads.values);
    }

    #[test]
    fn softmax_sums_to_one_over_each_row_and_head() {
        let a = graph();
        let p = edge_softmax(&a, &matrix(6, a.nnz(), 2)).unwrap();
        assert_close(&flat(&sum_at_targets(&a, &p)), &[1., 1., 0., 0., 1., 1., 1., 1., 1., 1.]);
        let a = csr(2, &[&[(0, 1.0), (1, 1.0)]]);
        let p = edge_softmax(&a, &dense(&[[1000.0], [1000.0 + 3f64.ln()]])).unwrap();
        assert_close(&flat(&p), &[0.25, 0.75]);
    }

    #[test]
    fn softmax_gradients_are_slopes() {
        let a = graph();
        let (scores, dy) = (matrix(7, a.nnz(), 2), matrix(8, a.nnz(), 2));
        let ds = edge_softmax_backward(&a, &edge_softmax(&a, &scores).unwrap(), &dy).unwrap();
        assert_matrix_gradient(&scores, &ds, |s| dot(&edge_softmax(&a, s).unwrap(), &dy));
    }

    #[test]
    fn without_edges_or_features() {
        let empty = Csr::empty(3, 2).unwrap();
        for op in OPS {
            let s = sddmm(&empty, &matrix(1, 3, 2), &matrix(2, 2, 2), op).unwrap();
            assert_eq!(s.n_rows(), 0);
        }
        let none = sddmm(&graph(), &Dense::zeros(5, 0), &Dense::zeros(4, 0), EdgeOp::Dot).unwrap();
        assert_eq!(none, Dense::zeros(10, 1));
        assert_eq!(edge_softmax(&empty, &Dense::zeros(0, 2)).unwrap(), Dense::zeros(0, 2));
        assert_eq!(edge_softmax(&graph(), &Dense::zeros(10, 0)).unwrap(), Dense::zeros(10, 0));
    }

    #[test]
    fn sizes_that_disagree_are_errors() {
        let (a, u, v) = (graph(), matrix(1, 5, 3), matrix(2, 4, 3));
        assert!(sddmm(&a, &v, &v, EdgeOp::Dot).is_err());
        assert!(sddmm(&a, &u, &u, EdgeOp::Dot).is_err());
        assert!(sddmm(&a, &u, &matrix(2, 4, 2), EdgeOp::Dot).is_err());
        assert!(sddmm_backward(&a, &u, &v, EdgeOp::Dot, &matrix(3, 10, 3)).is_err());
        assert!(edge_softmax(&a, &matrix(3, 9, 1)).is_err());
        assert!(edge_softmax_backward(&a, &matrix(3, 10, 1), &matrix(3, 10, 2)).is_err());
    }
}
