//! Functions of each element alone: activations, dropout, bias, residual.

use super::check_shape;
use crate::error::same_size;
use crate::{Dense, Result};

/// A pointwise function, its derivative at a kink as torch has it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Activation {
    /// `x`.
    #[default]
    Identity,
    /// `max(x, 0)`; derivative 0 at 0.
    Relu,
    /// `x` above 0, `slope · x` elsewhere; derivative `slope` at 0 and at NaN.
    LeakyRelu(f64),
    /// `x` above 0, `α · (eˣ − 1)` elsewhere; derivative `α` at 0.
    Elu(f64),
    /// `1 / (1 + e⁻ˣ)`.
    Sigmoid,
    /// `tanh x`.
    Tanh,
}

impl Activation {
    /// The function's value.
    pub fn of(self, x: f64) -> f64 {
        // Comparisons are such that NaN stays NaN.
        match self {
            Activation::Identity => x,
            Activation::Relu if x <= 0.0 => 0.0,
            Activation::LeakyRelu(slope) if x <= 0.0 => slope * x,
            Activation::Elu(alpha) if x <= 0.0 => alpha * x.exp_m1(),
            Activation::Relu | Activation::LeakyRelu(_) | Activation::Elu(_) => x,
            Activation::Sigmoid => sigmoid(x),
            Activation::Tanh => x.tanh(),
        }
    }

    /// The slope at `x`, which is the function's argument, not its value.
    pub fn derivative(self, x: f64) -> f64 {
        match self {
            Activation::Identity => 1.0,
            Activation::Relu if x <= 0.0 => 0.0,
            Activation::LeakyRelu(_) if x > 0.0 => 1.0,
            Activation::LeakyRelu(slope) => slope,
            Activation::Elu(alpha) if x <= 0.0 => alpha * x.exp(),
            Activation::Relu | Activation::Elu(_) => 1.0,
            Activation::Sigmoid => sigmoid(x) * sigmoid(-x),
            Activation::Tanh => 1.0 - x.tanh().powi(2),
        }
    }
}

/// `1 / (1 + e⁻ˣ)`, with full relative precision at both ends.
pub(super) fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

/// `y = f(x)` in every element.
pub fn activate(x: &Dense<f64>, activation: Activation) -> Dense<f64> {
    Dense::from_fn(x.n_rows(), x.n_cols(), |i, c| activation.of(x.at(i, c)))
}

/// `dx = dy · f'(x)`.
///
/// # Errors
/// When the shapes differ.
pub fn activate_backward(
    x: &Dense<f64>,
    activation: Activation,
    grad: &Dense<f64>,
) -> Result<Dense<f64>> {
    zip("activate_backward", x, grad, |x, g| g * activation.derivative(x))
}

/// `y = x + z`: a residual, or two gradients of one matrix.
///
/// # Errors
/// When the shapes differ.
pub fn add(x: &Dense<f64>, z: &Dense<f64>) -> Result<Dense<f64>> {
    zip("add", x, z, |x, z| x + z)
}

/// `y = x ⊙ mask`, the mask's elements being 0 or `1 / (1 − p)`. It is its own backward:
/// `dx = dy ⊙ mask`.
///
/// # Errors
/// When the shapes differ.
pub fn dropout(x: &Dense<f64>, mask: &Dense<f64>) -> Result<Dense<f64>> {
    zip("dropout", x, mask, |x, m| x * m)
}

/// `y_ic = x_ic + b_c`.
///
/// # Errors
/// When the bias is not as long as a row.
pub fn add_bias(x: &Dense<f64>, bias: &[f64]) -> Result<Dense<f64>> {
    same_size("add_bias", "length of the bias", x.n_cols(), bias.len())?;
    Ok(Dense::from_fn(x.n_rows(), x.n_cols(), |i, c| x.at(i, c) + bias[c]))
}

/// `db_c = Σ_i dy_ic`.
pub fn bias_backward(grad: &Dense<f64>) -> Vec<f64> {
    let column = |c| (0..grad.n_rows()).map(|i| grad.at(i, c)).fold(0.0, |s, g| s + g);
    (0..grad.n_cols()).map(column).collect()
}

/// `f(x, z)` in every element.
pub(super) fn zip(
    op: &'static str,
    x: &Dense<f64>,
    z: &Dense<f64>,
    f: impl Fn(f64, f64) -> f64,
) -> Result<Dense<f64>> {
    let what = ["rows of the second matrix", "columns of the second matrix"];
    check_shape(op, what, (x.n_rows(), x.n_cols()), z)?;
    Ok(Dense::from_fn(x.n_rows(), x.n_cols(), |i, c| f(x.at(i, c), z.at(i, c))))
}

#[cfg(test)]
mod tests {
    use super::super::check::*;
    use super::*;

    const ALL: [Activation; 6] = [
        Activation::Identity,
        Activation::Relu,
        Activation::LeakyRelu(0.2),
        Activation::Elu(1.5),
        Activation::Sigmoid,
        Activation::Tanh,
    ];

    #[test]
    fn known_values() {
        let at = |x: f64| ALL.map(|f| f.of(x));
        let low = 1.0 / (1.0 + 2f64.exp());
        assert_close(
            &at(-2.0),
            &[-2.0, 0.0, -0.4, 1.5 * ((-2f64).exp() - 1.0), low, (-2f64).tanh()],
        );
        assert_close(&at(2.0), &[2.0, 2.0, 2.0, 2.0, 1.0 - low, 2f64.tanh()]);
        assert_eq!(at(0.0), [0.0, 0.0, 0.0, 0.0, 0.5, 0.0]);
        assert!(at(f64::NAN).iter().all(|y| y.is_nan()));
    }

    #[test]
    fn slopes_at_the_kink_are_torchs() {
        assert_eq!(ALL.map(|f| f.derivative(0.0)), [1.0, 0.0, 0.2, 1.5, 0.25, 1.0]);
        assert_eq!(ALL.map(|f| f.derivative(-0.0)), [1.0, 0.0, 0.2, 1.5, 0.25, 1.0]);
        assert_eq!(Activation::Relu.derivative(f64::NAN), 1.0);
        assert_eq!(Activation::LeakyRelu(0.2).derivative(f64::NAN), 0.2);
    }

    #[test]
    fn extreme_arguments_stay_finite() {
        for x in [-1e4, -50.0, 50.0, 1e4] {
            for f in ALL {
                assert!(f.of(x).is_finite() && f.derivative(x).is_finite(), "{f:?} {x}");
            }
        }
        assert!(Activation::Sigmoid.derivative(40.0) > 0.0);
    }

    #[test]
    fn gradients_are_slopes() {
        let (x, dy) = (matrix(1, 4, 3), matrix(2, 4, 3));
        for f in ALL {
            let dx = activate_backward(&x, f, &dy).unwrap();
            assert_matrix_gradient(&x, &dx, |x| dot(&activate(x, f), &dy));
        }
    }

    #[test]
    fn bias_goes_to_every_row_and_comes_back_summed() {
        let (x, dy, b) = (matrix(3, 4, 3), matrix(4, 4, 3), numbers(5, 3));
        assert_eq!(add_bias(&dense(&[[1.0, 2.0]]), &[10.0, 20.0]).unwrap().row(0), [11.0, 22.0]);
        let loss = |b: &[f64]| dot(&add_bias(&x, b).unwrap(), &dy);
        assert_gradient(&b, &bias_backward(&dy), loss);
        assert!(add_bias(&x, &[1.0]).is_err());
        assert_eq!(bias_backward(&Dense::zeros(0, 2)), [0.0, 0.0]);
        assert!(bias_backward(&Dense::zeros(2, 0)).is_empty());
    }

    #[test]
    fn masks_and_sums_are_by_element() {
        let x = dense(&[[1.0, 2.0], [3.0, 4.0]]);
        let mask = dense(&[[0.0, 2.0], [2.0, 0.0]]);
        assert_eq!(dropout(&x, &mask).unwrap(), dense(&[[0.0, 4.0], [6.0, 0.0]]));
        assert_eq!(add(&x, &mask).unwrap(), dense(&[[1.0, 4.0], [5.0, 4.0]]));
        let dy = matrix(6, 2, 2);
        let dx = dropout(&dy, &mask).unwrap();
        assert_matrix_gradient(&x, &dx, |x| dot(&dropout(x, &mask).unwrap(), &dy));
        assert!(add(&x, &Dense::zeros(2, 1)).is_err());
        assert!(dropout(&x, &Dense::zeros(1, 2)).is_err());
    }
}
