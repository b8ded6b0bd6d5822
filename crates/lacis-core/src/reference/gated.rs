//! Gates per edge and feature: what a source says, let through as far as both ends agree.
//!
//! ```text
//!   y_i = Σ_{e = (i, j)} σ(k_i + q_j) ⊙ v_j
//! ```
//! The sum of a gated graph convolution (Bresson, Laurent, "Residual gated graph convnets", 2017).

use super::{check_shape, elementwise::sigmoid};
use crate::{Csr, Dense, Result};

/// The inputs of a gated sum besides the adjacency, of which only the pattern counts.
#[derive(Clone, Copy, Debug)]
pub struct Gated<'a> {
    /// `k`: one row per target.
    pub target: &'a Dense<f64>,
    /// `q`: one row per source.
    pub source: &'a Dense<f64>,
    /// `v`: one row per source.
    pub values: &'a Dense<f64>,
}

/// The gradient of each input of a [`Gated`].
#[derive(Clone, Debug)]
pub struct GatedGrads {
    /// Of `k`.
    pub target: Dense<f64>,
    /// Of `q`.
    pub source: Dense<f64>,
    /// Of `v`.
    pub values: Dense<f64>,
}

impl Gated<'_> {
    /// `y`: one row per target.
    ///
    /// # Errors
    /// When a size does not fit.
    pub fn forward(&self, a: &Csr) -> Result<Dense<f64>> {
        self.check(a)?;
        let width = self.values.n_cols();
        let mut y = Dense::zeros(a.n_rows(), width);
        for (i, j, _) in a.entries() {
            for c in 0..width {
                y.row_mut(i)[c] += self.gate(i, j, c) * self.values.at(j, c);
            }
        }
        Ok(y)
    }

    /// The gradient of every input from that of `y`. With `s = σ(k_i + q_j)`:
    /// `dk_i = Σ_e s (1 − s) v_j dy_i` over the edges of `i`, `dq_j` the same over those of `j`,
    /// `dv_j = Σ_e s dy_i`.
    ///
    /// # Errors
    /// When a size does not fit.
    pub fn backward(&self, a: &Csr, grad: &Dense<f64>) -> Result<GatedGrads> {
        self.check(a)?;
        let width = self.values.n_cols();
        let what = ["rows of the gradient", "columns of the gradient"];
        check_shape("gated sum backward", what, (a.n_rows(), width), grad)?;
        let zeros = |x: &Dense<f64>| Dense::zeros(x.n_rows(), x.n_cols());
        let mut grads = GatedGrads {
            target: zeros(self.target),
            source: zeros(self.source),
            values: zeros(self.values),
        };
        for (i, j, _) in a.entries() {
            for c in 0..width {
                let (s, dy) = (self.gate(i, j, c), grad.at(i, c));
                let slope = s * (1.0 - s) * self.values.at(j, c) * dy;
                grads.target.row_mut(i)[c] += slope;
                grads.source.row_mut(j)[c] += slope;
                grads.values.row_mut(j)[c] += s * dy;
            }
        }
        Ok(grads)
    }

    fn gate(&self, i: usize, j: usize, c: usize) -> f64 {
        sigmoid(self.target.at(i, c) + self.source.at(j, c))
    }

    fn check(&self, a: &Csr) -> Result<()> {
        let (op, width) = ("gated sum", self.values.n_cols());
        let what = ["rows of the target features", "columns of the target features"];
        check_shape(op, what, (a.n_rows(), width), self.target)?;
        let what = ["rows of the source features", "columns of the source features"];
        check_shape(op, what, (a.n_cols(), width), self.source)?;
        let what = ["rows of the values", "columns of the values"];
        check_shape(op, what, (a.n_cols(), width), self.values)
    }
}

#[cfg(test)]
mod tests {
    use super::super::check::*;
    use super::super::{Reduce, spmm};
    use super::*;

    #[test]
    fn open_gates_let_everything_through() {
        let a = graph().with_values(None).unwrap();
        let (zeros, values) = (Dense::zeros(5, 3), matrix(1, 4, 3));
        let sums = spmm(&a, &values, Reduce::Sum).unwrap();
        for (level, share) in [(0.0, 0.5), (40.0, 1.0), (-800.0, 0.0)] {
            let source = Dense::from_fn(4, 3, |_, _| level);
            let gated = Gated { target: &zeros, source: &source, values: &values };
            let expected: Vec<f64> = flat(&sums).iter().map(|y| y * share).collect();
            assert_close(&flat(&gated.forward(&a).unwrap()), &expected);
        }
    }

    #[test]
    fn every_gradient_is_a_slope() {
        let (a, dy) = (graph(), matrix(3, 5, 3));
        let (target, source, values) = (matrix(4, 5, 3), matrix(5, 4, 3), matrix(6, 4, 3));
        let gated = Gated { target: &target, source: &source, values: &values };
        let loss = |gated: Gated| dot(&gated.forward(&a).unwrap(), &dy);
        let grads = gated.backward(&a, &dy).unwrap();
        assert_matrix_gradient(&target, &grads.target, |target| loss(Gated { target, ..gated }));
        assert_matrix_gradient(&source, &grads.source, |source| loss(Gated { source, ..gated }));
        assert_matrix_gradient(&values, &grads.values, |values| loss(Gated { values, ..gated }));
    }

    #[test]
    fn what_does_not_fit_is_an_error_and_nothing_is_nothing() {
        let (a, target, source) = (graph(), matrix(1, 5, 2), matrix(2, 4, 2));
        let gated = Gated { target: &target, source: &source, values: &source };
        assert_eq!(gated.forward(&Csr::empty(5, 4).unwrap()).unwrap(), Dense::zeros(5, 2));
        let wrong = matrix(1, 4, 3);
        assert!(Gated { target: &source, ..gated }.forward(&a).is_err());
        assert!(Gated { source: &wrong, ..gated }.forward(&a).is_err());
        assert!(Gated { values: &target, ..gated }.forward(&a).is_err());
        assert!(gated.backward(&a, &wrong).is_err());
    }
}
