//! Losses over some rows of the logits, with their gradients.
//!
//! ```text
//!   cross-entropy:  mean over the rows i of  −ln softmax(z_i)[label_i]
//!   binary:         mean over the rows and all columns of  −t·ln σ(z) − (1 − t)·ln(1 − σ(z))
//! ```
//! A row listed twice counts twice. Over no rows the loss is NaN, as torch's, and the gradient 0.

use super::check_shape;
use super::elementwise::sigmoid;
use super::norm::log_softmax;
use crate::error::same_size;
use crate::{Dense, Error, Result};

/// A loss and its gradient.
#[derive(Clone, Debug)]
pub struct Loss {
    /// The loss.
    pub value: f64,
    /// Its gradient in every logit, 0 outside the rows that count.
    pub grad: Dense<f64>,
}

/// Cross-entropy of one class per row. `dz_ic = (softmax(z_i)_c − [c = label_i]) / count`.
///
/// # Errors
/// When there is not one label per row, a row is outside the logits, or the label of a row that
/// counts is no column; labels of other rows may be anything.
pub fn cross_entropy(logits: &Dense<f64>, labels: &[i32], rows: &[u32]) -> Result<Loss> {
    same_size("cross_entropy", "number of labels", logits.n_rows(), labels.len())?;
    check_rows("cross_entropy", logits, rows)?;
    let log_p = log_softmax(logits);
    let count = rows.len() as f64;
    let mut grad = Dense::zeros(logits.n_rows(), logits.n_cols());
    let mut sum = 0.0;
    for i in rows.iter().map(|&i| i as usize) {
        let label = class(labels[i], i, logits.n_cols())?;
        sum -= log_p.at(i, label);
        for (c, g) in grad.row_mut(i).iter_mut().enumerate() {
            *g += (log_p.at(i, c).exp() - f64::from(c == label)) / count;
        }
    }
    let value = sum / count;
    Ok(Loss { value, grad })
}

/// Binary cross-entropy of each logit alone. `dz_ic = (σ(z_ic) − t_ic) / (count · columns)`.
///
/// # Errors
/// When the targets have another shape, or a row is outside the logits.
pub fn binary_cross_entropy(
    logits: &Dense<f64>,
    targets: &Dense<f64>,
    rows: &[u32],
) -> Result<Loss> {
    let what = ["rows of the targets", "columns of the targets"];
    let shape = (logits.n_rows(), logits.n_cols());
    check_shape("binary_cross_entropy", what, shape, targets)?;
    check_rows("binary_cross_entropy", logits, rows)?;
    let count = (rows.len() * logits.n_cols()) as f64;
    let mut grad = Dense::zeros(logits.n_rows(), logits.n_cols());
    let mut sum = 0.0;
    for i in rows.iter().map(|&i| i as usize) {
        for (c, g) in grad.row_mut(i).iter_mut().enumerate() {
            let (z, t) = (logits.at(i, c), targets.at(i, c));
            // −t·ln σ(z) − (1 − t)·ln σ(−z), with no exponent above 0.
            sum += z.max(0.0) - z * t + (-z.abs()).exp().ln_1p();
            *g += (sigmoid(z) - t) / count;
        }
    }
    let value = sum / count;
    Ok(Loss { value, grad })
}

/// The label as a column.
fn class(label: i32, row: usize, n_classes: usize) -> Result<usize> {
    match usize::try_from(label) {
        Ok(class) if class < n_classes => Ok(class),
        _ => {
            let problem = format!("row {row} has {label}, which is outside 0..{n_classes}");
            Err(Error::argument("labels", problem))
        }
    }
}

fn check_rows(op: &'static str, logits: &Dense<f64>, rows: &[u32]) -> Result<()> {
    match rows.iter().position(|&i| i as usize >= logits.n_rows()) {
        None => Ok(()),
        Some(at) => Err(Error::Index {
            op,
            what: "row",
            index: u64::from(rows[at]),
            at,
            bound: logits.n_rows() as u64,
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::super::check::*;
    use super::*;

    #[test]
    fn cross_entropy_by_hand() {
        let logits = dense(&[[0.0, 3f64.ln()], [5.0, 9.0], [800.0, 0.0]]);
        let loss = cross_entropy(&logits, &[1, -1, 1], &[0, 2]).unwrap();
        assert_close(&[loss.value], &[(-0.75f64.ln() + 800.0) / 2.0]);
        assert_close(&flat(&loss.grad), &[0.125, -0.125, 0.0, 0.0, 0.5, -0.5]);
    }

    #[test]
    fn binary_cross_entropy_by_hand() {
        let logits = dense(&[[0.0, 800.0], [7.0, 7.0], [-800.0, 3f64.ln()]]);
        let targets = dense(&[[1.0, 1.0], [0.0, 0.0], [1.0, 0.0]]);
        let loss = binary_cross_entropy(&logits, &targets, &[2, 0]).unwrap();
        assert_close(&[loss.value], &[(2f64.ln() + 800.0 + 4f64.ln()) / 4.0]);
        assert_close(&flat(&loss.grad), &[-0.125, 0.0, 0.0, 0.0, -0.25, 0.1875]);
    }

    #[test]
    fn gradients_are_slopes() {
        let (logits, labels, rows) = (matrix(1, 5, 3), [0, 2, 1, -1, 2], [4, 0, 2, 0]);
        let loss = cross_entropy(&logits, &labels, &rows).unwrap();
        assert_matrix_gradient(&logits, &loss.grad, |z| {
            cross_entropy(z, &labels, &rows).unwrap().value
        });
        let targets = Dense::from_fn(5, 3, |i, c| [0.0, 1.0, 0.25][(i + c) % 3]);
        let loss = binary_cross_entropy(&logits, &targets, &rows).unwrap();
        assert_matrix_gradient(&logits, &loss.grad, |z| {
            binary_cross_entropy(z, &targets, &rows).unwrap().value
        });
    }

    #[test]
    fn over_no_rows_the_loss_is_nan_and_the_gradient_zero() {
        let logits = matrix(1, 2, 3);
        let loss = cross_entropy(&logits, &[0, 0], &[]).unwrap();
        assert!(loss.value.is_nan() && loss.grad == Dense::zeros(2, 3));
        let loss = binary_cross_entropy(&logits, &logits, &[]).unwrap();
        assert!(loss.value.is_nan() && loss.grad == Dense::zeros(2, 3));
    }

    #[test]
    fn what_does_not_fit_is_an_error() {
        let logits = matrix(1, 2, 3);
        assert!(cross_entropy(&logits, &[0], &[0]).is_err());
        assert!(cross_entropy(&logits, &[0, 3], &[1]).is_err());
        assert!(cross_entropy(&logits, &[0, -1], &[1]).is_err());
        assert!(cross_entropy(&logits, &[0, 0], &[2]).is_err());
        assert!(cross_entropy(&Dense::zeros(2, 0), &[0, 0], &[0]).is_err());
        assert!(binary_cross_entropy(&logits, &matrix(1, 2, 2), &[0]).is_err());
        assert!(binary_cross_entropy(&logits, &logits, &[2]).is_err());
    }
}
