//! One generic fused edge function: a scalar of an edge's two ends, then the weighted sum.
//!
//! ```text
//!   y_i = Σ_{e = (i, j)} a_e · f(x_i, z_j) · v_j
//! ```
//! The shape of FusedMM (Rahman, Sujon, Azad, IPDPS 2021).

use super::sddmm::{EdgeOp, add_row, sddmm};
use super::{check_shape, elementwise::sigmoid};
use crate::{Csr, Dense, Result};

/// `f(x_i, z_j)`.
pub type EdgeValue<'a> = &'a dyn Fn(&[f64], &[f64]) -> f64;

/// `∂f/∂x_i` and `∂f/∂z_j`.
pub type EdgeGradient<'a> = &'a dyn Fn(&[f64], &[f64]) -> (Vec<f64>, Vec<f64>);

/// A scalar function of two rows, and its derivative.
#[derive(Clone, Copy)]
pub struct EdgeFunction<'a> {
    /// The function.
    pub value: EdgeValue<'a>,
    /// Its derivative in either row.
    pub gradient: EdgeGradient<'a>,
}

impl EdgeFunction<'static> {
    /// `σ(x·z)`.
    pub const SIGMOID_OF_DOT: EdgeFunction<'static> = EdgeFunction {
        value: &|x, z| sigmoid(inner(x, z)),
        gradient: &|x, z| {
            let slope = sigmoid(inner(x, z)) * sigmoid(-inner(x, z));
            let scaled = |row: &[f64]| row.iter().map(|v| slope * v).collect();
            (scaled(z), scaled(x))
        },
    };

    /// `|x − z|²`.
    pub const SQUARED_DISTANCE: EdgeFunction<'static> = EdgeFunction {
        value: &|x, z| x.iter().zip(z).map(|(x, z)| (x - z).powi(2)).sum(),
        gradient: &|x, z| {
            let twice =
                |x: &[f64], z: &[f64]| x.iter().zip(z).map(|(x, z)| 2.0 * (x - z)).collect();
            (twice(x, z), twice(z, x))
        },
    };
}

fn inner(x: &[f64], z: &[f64]) -> f64 {
    x.iter().zip(z).map(|(x, z)| x * z).sum()
}

/// The inputs of a fused edge function besides the adjacency. See the module's head.
#[derive(Clone, Copy)]
pub struct FusedEdge<'a> {
    /// `x`: one row per target.
    pub target: &'a Dense<f64>,
    /// `z`: one row per source.
    pub source: &'a Dense<f64>,
    /// `v`: one row per source.
    pub values: &'a Dense<f64>,
    /// `f`.
    pub function: EdgeFunction<'a>,
}

/// The gradient of each input of a [`FusedEdge`].
#[derive(Clone, Debug)]
pub struct FusedEdgeGrads {
    /// Of `x`.
    pub target: Dense<f64>,
    /// Of `z`.
    pub source: Dense<f64>,
    /// Of `v`.
    pub values: Dense<f64>,
    /// Of the values of the adjacency, in stored order.
    pub weights: Vec<f64>,
}

impl FusedEdge<'_> {
    /// `y`: one row per target, as wide as the values.
    ///
    /// # Errors
    /// When a size does not fit.
    pub fn forward(&self, a: &Csr) -> Result<Dense<f64>> {
        self.check(a)?;
        let mut y = Dense::zeros(a.n_rows(), self.values.n_cols());
        for (i, j, weight) in a.entries() {
            let f = (self.function.value)(self.target.row(i), self.source.row(j));
            add_row(y.row_mut(i), &scaled(f64::from(weight) * f, self.values.row(j)));
        }
        Ok(y)
    }

    /// The gradient of every input from that of `y`. With `d_e = dy_i·v_j`:
    /// `da_e = d_e · f`, `dv_j = Σ_e a_e · f · dy_i`, `dx_i = Σ_e a_e · d_e · ∂f/∂x_i`.
    ///
    /// # Errors
    /// When a size does not fit.
    pub fn backward(&self, a: &Csr, grad: &Dense<f64>) -> Result<FusedEdgeGrads> {
        self.check(a)?;
        let what = ["rows of the gradient", "columns of the gradient"];
        check_shape("fused edge backward", what, (a.n_rows(), self.values.n_cols()), grad)?;
        let zeros = |x: &Dense<f64>| Dense::zeros(x.n_rows(), x.n_cols());
        let mut grads = FusedEdgeGrads {
            target: zeros(self.target),
            source: zeros(self.source),
            values: zeros(self.values),
            weights: Vec::new(),
        };
        let dots = sddmm(a, grad, self.values, EdgeOp::Dot)?;
        for (e, (i, j, weight)) in a.entries().enumerate() {
            let (x, z, weight) = (self.target.row(i), self.source.row(j), f64::from(weight));
            let f = (self.function.value)(x, z);
            let (dx, dz) = (self.function.gradient)(x, z);
            let d = dots.at(e, 0);
            grads.weights.push(d * f);
            add_row(grads.values.row_mut(j), &scaled(weight * f, grad.row(i)));
            add_row(grads.target.row_mut(i), &scaled(weight * d, &dx));
            add_row(grads.source.row_mut(j), &scaled(weight * d, &dz));
        }
        Ok(grads)
    }

    fn check(&self, a: &Csr) -> Result<()> {
        let (op, k) = ("fused edge", self.target.n_cols());
        let what = ["rows of the target features", "columns of the target features"];
        check_shape(op, what, (a.n_rows(), k), self.target)?;
        let what = ["rows of the source features", "columns of the source features"];
        check_shape(op, what, (a.n_cols(), k), self.source)?;
        let what = ["rows of the values", "columns of the values"];
        check_shape(op, what, (a.n_cols(), self.values.n_cols()), self.values)
    }
}

fn scaled(factor: f64, row: &[f64]) -> Vec<f64> {
    row.iter().map(|v| factor * v).collect()
}

#[cfg(test)]
mod tests {
    use super::super::check::*;
    use super::super::{Reduce, spmm};
    use super::*;

    fn functions() -> [EdgeFunction<'static>; 3] {
        let own = EdgeFunction {
            value: &|x, z| x[0] * z[1].sin(),
            gradient: &|x, z| {
                let mut grads = (vec![0.0; x.len()], vec![0.0; z.len()]);
                grads.0[0] = z[1].sin();
                grads.1[1] = x[0] * z[1].cos();
                grads
            },
        };
        [EdgeFunction::SIGMOID_OF_DOT, EdgeFunction::SQUARED_DISTANCE, own]
    }

    #[test]
    fn known_values() {
        let a = csr(2, &[&[(0, 2.0), (1, 1.0), (1, 1.0)], &[]]);
        let (target, source) =
            (dense(&[[1.0, 1.0], [0.0, 0.0]]), dense(&[[1.0, -1.0], [1.0, 4.0]]));
        let values = dense(&[[10.0], [100.0]]);
        let [sigmoid_of_dot, squared_distance, _] = functions();
        let fused = FusedEdge {
            target: &target,
            source: &source,
            values: &values,
            function: squared_distance,
        };
        assert_eq!(flat(&fused.forward(&a).unwrap()), [2.0 * 4.0 * 10.0 + 2.0 * 9.0 * 100.0, 0.0]);
        let function = sigmoid_of_dot;
        let y = FusedEdge { function, ..fused }.forward(&a).unwrap();
        assert_close(&flat(&y), &[2.0 * 0.5 * 10.0 + 2.0 * 100.0 / (1.0 + (-5f64).exp()), 0.0]);
    }

    #[test]
    fn a_constant_function_is_a_plain_product() {
        let (a, target, source) = (graph(), matrix(1, 5, 2), matrix(2, 4, 2));
        let one = EdgeFunction {
            value: &|_, _| 1.0,
            gradient: &|x, z| (vec![0.0; x.len()], vec![0.0; z.len()]),
        };
        let fused = FusedEdge { target: &target, source: &source, values: &source, function: one };
        let expected = spmm(&a, &source, Reduce::Sum).unwrap();
        assert_close(&flat(&fused.forward(&a).unwrap()), &flat(&expected));
    }

    #[test]
    fn every_gradient_is_a_slope() {
        let (a, dy) = (graph(), matrix(3, 5, 3));
        let (target, source, values) = (matrix(4, 5, 2), matrix(5, 4, 2), matrix(6, 4, 3));
        for function in functions() {
            let fused = FusedEdge { target: &target, source: &source, values: &values, function };
            let loss = |fused: FusedEdge| dot(&fused.forward(&a).unwrap(), &dy);
            let grads = fused.backward(&a, &dy).unwrap();
            assert_matrix_gradient(&target, &grads.target, |target| {
                loss(FusedEdge { target, ..fused })
            });
            assert_matrix_gradient(&source, &grads.source, |source| {
                loss(FusedEdge { source, ..fused })
            });
            assert_matrix_gradient(&values, &grads.values, |values| {
                loss(FusedEdge { values, ..fused })
            });
            // The result is linear in the weights, so its slope is its value at a unit weight.
            for e in 0..a.nnz() {
                let unit = (0..a.nnz()).map(|at| f32::from(u8::from(at == e)));
                let unit = a.clone().with_values(Some(unit.collect::<Vec<_>>().into())).unwrap();
                let slope = dot(&fused.forward(&unit).unwrap(), &dy);
                assert_close(&[grads.weights[e]], &[slope]);
            }
        }
    }

    #[test]
    fn what_does_not_fit_is_an_error_and_nothing_is_nothing() {
        let (a, target, source) = (graph(), matrix(1, 5, 2), matrix(2, 4, 2));
        let fused = FusedEdge {
            target: &target,
            source: &source,
            values: &source,
            function: EdgeFunction::SIGMOID_OF_DOT,
        };
        let empty = Csr::empty(5, 4).unwrap();
        assert_eq!(fused.forward(&empty).unwrap(), Dense::zeros(5, 2));
        let wrong = matrix(1, 4, 3);
        assert!(FusedEdge { target: &source, ..fused }.forward(&a).is_err());
        assert!(FusedEdge { source: &wrong, ..fused }.forward(&a).is_err());
        assert!(FusedEdge { values: &target, ..fused }.forward(&a).is_err());
        assert!(fused.backward(&a, &wrong).is_err());
    }
}
