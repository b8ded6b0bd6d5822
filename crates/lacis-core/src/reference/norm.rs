//! Normalisation: of columns over the batch, of rows over their features, and of rows to
//! probabilities.
//!
//! ```text
//!   batch norm:  y_ic = γ_c · (x_ic − mean_c) / √(var_c + ε) + β_c      over the rows i
//!   layer norm:  y_ic = γ_c · (x_ic − mean_i) / √(var_i + ε) + β_c      over the columns c
//!   graph norm:  y_ic = γ_c · (x_ic − mean) / (√var + ε) + β_c          over both
//! ```
//! Variances are biased (`Σ (x − mean)² / n`), except in the running estimate.

use super::elementwise::{bias_backward, zip};
use super::product::transposed;
use super::{Reduce, check_shape};
use crate::error::same_size;
use crate::{Dense, Error, Result};

/// What batch and layer norm learn, and their ε.
#[derive(Clone, Copy, Debug)]
pub struct Norm<'a> {
    /// `γ`, one factor per column.
    pub gamma: &'a [f64],
    /// `β`, one summand per column.
    pub beta: &'a [f64],
    /// `ε`: 1e-5 in torch.
    pub eps: f64,
}

/// Where ε stands in the norm of a whole graph; torch_geometric's `LayerNorm(mode="graph")` has it
/// beside the root for one graph, and under it for a batch of graphs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Eps {
    /// `√var + ε`.
    Beside,
    /// `√(var + ε)`.
    Under,
}

/// The gradients of a norm's inputs.
#[derive(Clone, Debug)]
pub struct NormGrads {
    /// Of `x`.
    pub x: Dense<f64>,
    /// Of `γ`.
    pub gamma: Vec<f64>,
    /// Of `β`.
    pub beta: Vec<f64>,
}

/// A mean and a variance per column.
#[derive(Clone, Debug, PartialEq)]
pub struct Moments {
    /// The means.
    pub mean: Vec<f64>,
    /// The variances.
    pub var: Vec<f64>,
}

impl Moments {
    /// What a running estimate starts from: mean 0, variance 1.
    pub fn standard(n_cols: usize) -> Self {
        let (mean, var) = (vec![0.0; n_cols], vec![1.0; n_cols]);
        Moments { mean, var }
    }

    /// Mean and biased variance of each column.
    pub fn of_columns(x: &Dense<f64>) -> Self {
        let columns = transposed(x);
        let (mean, var) = columns.rows().map(mean_and_variance).unzip();
        Moments { mean, var }
    }

    /// One training step of a running estimate, `r ← (1 − momentum)·r + momentum·batch`, where the
    /// batch's variance is taken unbiased (`/ (n − 1)`). torch's momentum is 0.1.
    ///
    /// # Errors
    /// When `x` has another width, or fewer than two rows.
    pub fn update(&mut self, x: &Dense<f64>, momentum: f64) -> Result<()> {
        check_batch(x)?;
        same_size("batch norm", "columns of x", self.mean.len(), x.n_cols())?;
        same_size("batch norm", "number of variances", self.mean.len(), self.var.len())?;
        let batch = Moments::of_columns(x);
        let n = x.n_rows() as f64;
        for c in 0..x.n_cols() {
            let unbiased = batch.var[c] * n / (n - 1.0);
            self.mean[c] = (1.0 - momentum) * self.mean[c] + momentum * batch.mean[c];
            self.var[c] = (1.0 - momentum) * self.var[c] + momentum * unbiased;
        }
        Ok(())
    }
}

impl Norm<'_> {
    /// Batch norm in training: with the batch's own moments.
    ///
    /// # Errors
    /// When a size does not fit, or there are fewer than two rows.
    pub fn batch(&self, x: &Dense<f64>) -> Result<Dense<f64>> {
        check_batch(x)?;
        self.with_moments(x, &Moments::of_columns(x))
    }

    /// Batch norm in evaluation: with given moments.
    ///
    /// # Errors
    /// When a size does not fit.
    pub fn with_moments(&self, x: &Dense<f64>, moments: &Moments) -> Result<Dense<f64>> {
        self.check(x)?;
        let Moments { mean, var } = moments;
        same_size("batch norm", "number of means", x.n_cols(), mean.len())?;
        same_size("batch norm", "number of variances", x.n_cols(), var.len())?;
        Ok(Dense::from_fn(x.n_rows(), x.n_cols(), |i, c| {
            self.gamma[c] * (x.at(i, c) - mean[c]) / (var[c] + self.eps).sqrt() + self.beta[c]
        }))
    }

    /// The gradients of [`Norm::batch`]: with `x̂` the normalised `x` and `g = γ·dy`,
    /// `dx = (g − mean(g) − x̂·mean(g·x̂)) / √(var + ε)`, means over the rows.
    ///
    /// # Errors
    /// When a size does not fit, or there are fewer than two rows.
    pub fn batch_backward(&self, x: &Dense<f64>, grad: &Dense<f64>) -> Result<NormGrads> {
        check_batch(x)?;
        self.check_gradient(x, grad)?;
        let columns = transposed(x);
        let g = Dense::from_fn(x.n_cols(), x.n_rows(), |c, i| self.gamma[c] * grad.at(i, c));
        let dx = transposed(&self.normalised_backward(&columns, &g));
        let normalised = transposed(&self.normalised(&columns));
        Ok(self.grads(dx, &normalised, grad))
    }

    /// The gradients of [`Norm::with_moments`], the moments being constants.
    ///
    /// # Errors
    /// When a size does not fit.
    pub fn with_moments_backward(
        &self,
        x: &Dense<f64>,
        moments: &Moments,
        grad: &Dense<f64>,
    ) -> Result<NormGrads> {
        self.check_gradient(x, grad)?;
        let (ones, zeros) = (vec![1.0; x.n_cols()], vec![0.0; x.n_cols()]);
        let plain = Norm { gamma: &ones, beta: &zeros, eps: self.eps };
        let normalised = plain.with_moments(x, moments)?;
        let dx = Dense::from_fn(x.n_rows(), x.n_cols(), |i, c| {
            grad.at(i, c) * self.gamma[c] / (moments.var[c] + self.eps).sqrt()
        });
        Ok(self.grads(dx, &normalised, grad))
    }

    /// Layer norm: each row with its own moments.
    ///
    /// # Errors
    /// When a size does not fit.
    pub fn layer(&self, x: &Dense<f64>) -> Result<Dense<f64>> {
        self.check(x)?;
        let normalised = self.normalised(x);
        Ok(Dense::from_fn(x.n_rows(), x.n_cols(), |i, c| {
            self.gamma[c] * normalised.at(i, c) + self.beta[c]
        }))
    }

    /// The gradients of [`Norm::layer`]: as of batch norm, means over the columns.
    ///
    /// # Errors
    /// When a size does not fit.
    pub fn layer_backward(&self, x: &Dense<f64>, grad: &Dense<f64>) -> Result<NormGrads> {
        self.check_gradient(x, grad)?;
        let g = Dense::from_fn(x.n_rows(), x.n_cols(), |i, c| self.gamma[c] * grad.at(i, c));
        let dx = self.normalised_backward(x, &g);
        Ok(self.grads(dx, &self.normalised(x), grad))
    }

    /// Norm of a graph: mean and variance of all elements. NaN for no rows.
    ///
    /// # Errors
    /// When a size does not fit.
    pub fn graph(&self, x: &Dense<f64>, eps: Eps) -> Result<Dense<f64>> {
        self.check(x)?;
        let (mean, divisor, _) = self.whole(x, eps);
        Ok(Dense::from_fn(x.n_rows(), x.n_cols(), |i, c| {
            self.gamma[c] * (x.at(i, c) - mean) / divisor + self.beta[c]
        }))
    }

    /// The gradients of [`Norm::graph`]: with `s` the divisor, `r` its root and `g = γ·dy`,
    /// `dx = (g − mean(g)) / s − (x − mean)·mean(g·(x − mean)) / (r·s²)`, means over all elements.
    ///
    /// # Errors
    /// When a size does not fit.
    pub fn graph_backward(&self, x: &Dense<f64>, eps: Eps, grad: &Dense<f64>) -> Result<NormGrads> {
        self.check_gradient(x, grad)?;
        let (mean, divisor, root) = self.whole(x, eps);
        let (n_rows, n_cols) = (x.n_rows(), x.n_cols());
        let n = (n_rows * n_cols) as f64;
        let g = Dense::from_fn(n_rows, n_cols, |i, c| self.gamma[c] * grad.at(i, c));
        let centred = Dense::from_fn(n_rows, n_cols, |i, c| x.at(i, c) - mean);
        let products = zip("norm backward", &g, &centred, |g, x| g * x)?;
        let mean_of = |x: &Dense<f64>| x.rows().flatten().sum::<f64>() / n;
        // The root has no slope at 0; torch takes it for 0.
        let slope = if root == 0.0 { 0.0 } else { mean_of(&products) / (root * divisor.powi(2)) };
        let mean_g = mean_of(&g);
        let dx = zip("norm backward", &g, &centred, |g, x| (g - mean_g) / divisor - x * slope)?;
        let normalised = Dense::from_fn(n_rows, n_cols, |i, c| centred.at(i, c) / divisor);
        Ok(self.grads(dx, &normalised, grad))
    }

    /// Mean, divisor and root of all elements.
    fn whole(&self, x: &Dense<f64>, eps: Eps) -> (f64, f64, f64) {
        let all: Vec<f64> = x.rows().flatten().copied().collect();
        let (mean, var) = mean_and_variance(&all);
        match eps {
            Eps::Beside => (mean, var.sqrt() + self.eps, var.sqrt()),
            Eps::Under => (mean, (var + self.eps).sqrt(), (var + self.eps).sqrt()),
        }
    }

    /// `x̂ = (x − mean) / √(var + ε)` of each row.
    fn normalised(&self, x: &Dense<f64>) -> Dense<f64> {
        let moments: Vec<(f64, f64)> = x.rows().map(mean_and_variance).collect();
        Dense::from_fn(x.n_rows(), x.n_cols(), |i, c| {
            let (mean, var) = moments[i];
            (x.at(i, c) - mean) / (var + self.eps).sqrt()
        })
    }

    /// The gradient of `x` from that of its normalised rows.
    fn normalised_backward(&self, x: &Dense<f64>, g: &Dense<f64>) -> Dense<f64> {
        let normalised = self.normalised(x);
        let k = x.n_cols() as f64;
        let mut dx = Dense::zeros(x.n_rows(), x.n_cols());
        for i in 0..x.n_rows() {
            let (_, var) = mean_and_variance(x.row(i));
            let (g, hat) = (g.row(i), normalised.row(i));
            let mean_g = g.iter().sum::<f64>() / k;
            let mean_g_hat = g.iter().zip(hat).map(|(g, hat)| g * hat).sum::<f64>() / k;
            for (c, dx) in dx.row_mut(i).iter_mut().enumerate() {
                *dx = (g[c] - mean_g - hat[c] * mean_g_hat) / (var + self.eps).sqrt();
            }
        }
        dx
    }

    /// `dγ_c = Σ_i dy_ic · x̂_ic` and `dβ_c = Σ_i dy_ic`.
    fn grads(&self, x: Dense<f64>, normalised: &Dense<f64>, grad: &Dense<f64>) -> NormGrads {
        let mut gamma = vec![0.0; grad.n_cols()];
        for (dy, hat) in grad.rows().zip(normalised.rows()) {
            (0..dy.len()).for_each(|c| gamma[c] += dy[c] * hat[c]);
        }
        let beta = bias_backward(grad);
        NormGrads { x, gamma, beta }
    }

    fn check(&self, x: &Dense<f64>) -> Result<()> {
        same_size("norm", "length of gamma", x.n_cols(), self.gamma.len())?;
        same_size("norm", "length of beta", x.n_cols(), self.beta.len())
    }

    fn check_gradient(&self, x: &Dense<f64>, grad: &Dense<f64>) -> Result<()> {
        self.check(x)?;
        let what = ["rows of the gradient", "columns of the gradient"];
        check_shape("norm backward", what, (x.n_rows(), x.n_cols()), grad)
    }
}

/// Mean and biased variance; NaN of no numbers.
fn mean_and_variance(items: &[f64]) -> (f64, f64) {
    let n = items.len() as f64;
    let mean = items.iter().sum::<f64>() / n;
    let squares: f64 = items.iter().map(|x| (x - mean).powi(2)).sum();
    (mean, squares / n)
}

/// One row has no variance, and torch refuses it too.
fn check_batch(x: &Dense<f64>) -> Result<()> {
    match x.n_rows() {
        0 | 1 => {
            let problem = format!("training needs at least 2 rows, not {}", x.n_rows());
            Err(Error::argument("batch norm", problem))
        }
        _ => Ok(()),
    }
}

/// `y_ic = exp(x_ic) / Σ_c exp(x_ic)`.
pub fn softmax(x: &Dense<f64>) -> Dense<f64> {
    let y = log_softmax(x);
    Dense::from_fn(x.n_rows(), x.n_cols(), |i, c| y.at(i, c).exp())
}

/// `dx_ic = y_ic · (dy_ic − Σ_c y_ic · dy_ic)`, from the softmax's result `y`.
///
/// # Errors
/// When the shapes differ.
pub fn softmax_backward(y: &Dense<f64>, grad: &Dense<f64>) -> Result<Dense<f64>> {
    let weighted = zip("softmax backward", y, grad, |y, g| y * g)?;
    let sums: Vec<f64> = weighted.rows().map(|row| row.iter().sum()).collect();
    Ok(Dense::from_fn(y.n_rows(), y.n_cols(), |i, c| y.at(i, c) * (grad.at(i, c) - sums[i])))
}

/// `y_ic = x_ic − ln Σ_c exp(x_ic)`, the row's maximum subtracted first.
pub fn log_softmax(x: &Dense<f64>) -> Dense<f64> {
    let log_sum = |row: &[f64]| {
        let max = Reduce::Max.of(row);
        max + row.iter().map(|x| (x - max).exp()).sum::<f64>().ln()
    };
    let log_sums: Vec<f64> = x.rows().map(log_sum).collect();
    Dense::from_fn(x.n_rows(), x.n_cols(), |i, c| x.at(i, c) - log_sums[i])
}

/// `dx_ic = dy_ic − exp(y_ic) · Σ_c dy_ic`, from the log-softmax's result `y`.
///
/// # Errors
/// When the shapes differ.
pub fn log_softmax_backward(y: &Dense<f64>, grad: &Dense<f64>) -> Result<Dense<f64>> {
    let what = ["rows of the gradient", "columns of the gradient"];
    check_shape("log_softmax backward", what, (y.n_rows(), y.n_cols()), grad)?;
    let sums: Vec<f64> = grad.rows().map(|row| row.iter().sum()).collect();
    Ok(Dense::from_fn(y.n_rows(), y.n_cols(), |i, c| grad.at(i, c) - y.at(i, c).exp() * sums[i]))
}

#[cfg(test)]
mod tests {
    use super::super::check::*;
    use super::*;

    fn norm<'a>(gamma: &'a [f64], beta: &'a [f64]) -> Norm<'a> {
        let eps = 1e-5;
        Norm { gamma, beta, eps }
    }

    #[test]
    fn batch_norm_by_hand() {
        let x = dense(&[[1.0, 5.0], [3.0, 5.0]]);
        let norm = Norm { eps: 3.0, ..norm(&[4.0, 1.0], &[10.0, 7.0]) };
        // Mean 2, biased variance 1, √(1 + 3) = 2; the constant column becomes β.
        assert_eq!(norm.batch(&x).unwrap(), dense(&[[8.0, 7.0], [12.0, 7.0]]));
        assert_eq!(Moments::of_columns(&x).var, [1.0, 0.0]);
        let mut running = Moments::standard(2);
        running.update(&x, 0.1).unwrap();
        assert_close(&running.mean, &[0.2, 0.5]);
        // Unbiased: 0.9·1 + 0.1·2, and 0.9·1 + 0.1·0.
        assert_close(&running.var, &[1.1, 0.9]);
        let moments = Moments { mean: vec![0.0, 1.0], var: vec![1.0, 13.0] };
        let y = norm.with_moments(&x, &moments).unwrap();
        assert_eq!(y, dense(&[[12.0, 8.0], [16.0, 8.0]]));
    }

    #[test]
    fn layer_norm_by_hand() {
        let norm = Norm { eps: 3.0, ..norm(&[4.0, 2.0], &[10.0, 20.0]) };
        let y = norm.layer(&dense(&[[1.0, 3.0], [5.0, 5.0]])).unwrap();
        assert_eq!(y, dense(&[[8.0, 21.0], [10.0, 20.0]]));
    }

    #[test]
    fn graph_norm_by_hand() {
        let x = dense(&[[1.0, 3.0], [1.0, 3.0]]);
        let norm = Norm { eps: 3.0, ..norm(&[4.0, 8.0], &[10.0, 20.0]) };
        // Mean 2, variance 1: √1 + 3 beside the root, √(1 + 3) under it.
        let y = norm.graph(&x, Eps::Beside).unwrap();
        assert_eq!(y, dense(&[[9.0, 22.0], [9.0, 22.0]]));
        let y = norm.graph(&x, Eps::Under).unwrap();
        assert_eq!(y, dense(&[[8.0, 24.0], [8.0, 24.0]]));
        let grads = norm.graph_backward(&Dense::zeros(2, 2), Eps::Beside, &x).unwrap();
        assert!(grads.x.rows().flatten().all(|g| g.is_finite()));
    }

    #[test]
    fn gradients_of_norms_are_slopes() {
        type Forward = fn(&Norm, &Dense<f64>) -> Result<Dense<f64>>;
        type Backward = fn(&Norm, &Dense<f64>, &Dense<f64>) -> Result<NormGrads>;
        let forms: [(Forward, Backward); 5] = [
            (
                |norm, x| norm.graph(x, Eps::Beside),
                |norm, x, dy| norm.graph_backward(x, Eps::Beside, dy),
            ),
            (
                |norm, x| norm.graph(x, Eps::Under),
                |norm, x, dy| norm.graph_backward(x, Eps::Under, dy),
            ),
            (|norm, x| norm.batch(x), |norm, x, dy| norm.batch_backward(x, dy)),
            (|norm, x| norm.layer(x), |norm, x, dy| norm.layer_backward(x, dy)),
            (
                |norm, x| norm.with_moments(x, &fixed_moments()),
                |norm, x, dy| norm.with_moments_backward(x, &fixed_moments(), dy),
            ),
        ];
        let (x, dy) = (matrix(1, 5, 3), matrix(2, 5, 3));
        let (gamma, beta) = (numbers(3, 3), numbers(4, 3));
        for (forward, backward) in forms {
            let loss = |gamma: &[f64], beta: &[f64], x: &Dense<f64>| {
                dot(&forward(&norm(gamma, beta), x).unwrap(), &dy)
            };
            let grads = backward(&norm(&gamma, &beta), &x, &dy).unwrap();
            assert_matrix_gradient(&x, &grads.x, |x| loss(&gamma, &beta, x));
            assert_gradient(&gamma, &grads.gamma, |gamma| loss(gamma, &beta, &x));
            assert_gradient(&beta, &grads.beta, |beta| loss(&gamma, beta, &x));
        }
    }

    fn fixed_moments() -> Moments {
        Moments { mean: numbers(7, 3), var: vec![0.5, 1.0, 2.0] }
    }

    #[test]
    fn norms_of_little_or_nothing() {
        let none = norm(&[], &[]);
        assert_eq!(none.layer(&Dense::zeros(3, 0)).unwrap(), Dense::zeros(3, 0));
        assert_eq!(none.batch(&Dense::zeros(3, 0)).unwrap(), Dense::zeros(3, 0));
        let one = norm(&[1.0], &[0.0]);
        assert!(one.batch(&dense(&[[1.0]])).is_err());
        assert!(one.batch(&Dense::zeros(0, 1)).is_err());
        assert_eq!(one.layer(&dense(&[[7.0]])).unwrap(), dense(&[[0.0]]));
        assert!(one.layer(&matrix(1, 2, 2)).is_err());
        assert!(one.batch_backward(&matrix(1, 2, 1), &matrix(1, 2, 2)).is_err());
        assert!(Moments::standard(1).update(&matrix(1, 2, 2), 0.1).is_err());
    }

    #[test]
    fn softmax_by_hand() {
        let x = dense(&[[0.0, 3f64.ln()], [1000.0, 1000.0], [-1000.0, 0.0]]);
        assert_close(&flat(&softmax(&x)), &[0.25, 0.75, 0.5, 0.5, 0.0, 1.0]);
        let half = 0.5f64.ln();
        let expected = [0.25f64.ln(), 0.75f64.ln(), half, half, -1000.0, 0.0];
        assert_close(&flat(&log_softmax(&x)), &expected);
        assert_eq!(softmax(&Dense::zeros(2, 0)), Dense::zeros(2, 0));
    }

    #[test]
    fn gradients_of_softmax_are_slopes() {
        let (x, dy) = (matrix(5, 4, 3), matrix(6, 4, 3));
        let dx = softmax_backward(&softmax(&x), &dy).unwrap();
        assert_matrix_gradient(&x, &dx, |x| dot(&softmax(x), &dy));
        let dx = log_softmax_backward(&log_softmax(&x), &dy).unwrap();
        assert_matrix_gradient(&x, &dx, |x| dot(&log_softmax(x), &dy));
        assert!(softmax_backward(&x, &matrix(6, 4, 2)).is_err());
        assert!(log_softmax_backward(&x, &matrix(6, 3, 3)).is_err());
    }
}
