//! SpMM, the gather of every layer, and its gradients.
//!
//! ```text
//!   m_ec = a_e · r_j · x_jc                               for an entry e = (i, j) of A
//!   y_ic = f( y⁰_ic + l_i · reduce_{e in row i} m_ec + b_c )
//! ```
//! Repeated columns are separate entries: each is a message of its own, and counts in the mean.

use super::check_shape;
use super::elementwise::Activation;
use super::reduce::{Reduce, Ties};
use crate::error::same_size;
use crate::{Csr, Dense, Error, Result};

/// `y_i = reduce_j (a_ij · x_j)`.
///
/// # Errors
/// When `x` has not one row per column of `a`.
pub fn spmm(a: &Csr, x: &Dense<f64>, reduce: Reduce) -> Result<Dense<f64>> {
    Spmm::new(reduce).forward(a, x)
}

/// SpMM with everything that may be fused to it. See the module's head.
#[derive(Clone, Copy, Debug)]
pub struct Spmm<'a> {
    /// How a row's messages become one.
    pub reduce: Reduce,
    /// Who gets the gradient of a maximum or minimum.
    pub ties: Ties,
    /// `l`, one factor per row; absent means ones.
    pub left: Option<&'a [f64]>,
    /// `r`, one factor per column; absent means ones.
    pub right: Option<&'a [f64]>,
    /// `y⁰`, what the result is added to; absent means zeros.
    pub accumulate: Option<&'a Dense<f64>>,
    /// `b`, one number per feature; absent means zeros.
    pub bias: Option<&'a [f64]>,
    /// `f`, applied last.
    pub activation: Activation,
}

/// The gradient of each input of a [`Spmm`], whether the input was present or not.
#[derive(Clone, Debug)]
pub struct SpmmGrads {
    /// Of `x`.
    pub x: Dense<f64>,
    /// Of the values of `A`, in stored order.
    pub values: Vec<f64>,
    /// Of `l`.
    pub left: Vec<f64>,
    /// Of `r`.
    pub right: Vec<f64>,
    /// Of `y⁰`.
    pub accumulate: Dense<f64>,
    /// Of `b`.
    pub bias: Vec<f64>,
}

impl<'a> Spmm<'a> {
    /// No scales and no epilogue.
    pub fn new(reduce: Reduce) -> Self {
        Spmm {
            reduce,
            ties: Ties::SplitEvenly,
            left: None,
            right: None,
            accumulate: None,
            bias: None,
            activation: Activation::Identity,
        }
    }

    /// `y`.
    ///
    /// # Errors
    /// When a size does not fit the matrix's.
    pub fn forward(&self, a: &Csr, x: &Dense<f64>) -> Result<Dense<f64>> {
        self.check(a, x)?;
        let y = |i, c| {
            let reduced = self.reduce.of(&self.messages(a, x, i, c));
            self.activation.of(self.unactivated(reduced, i, c))
        };
        Ok(Dense::from_fn(a.n_rows(), x.n_cols(), y))
    }

    /// The entry of `a` that each element's maximum or minimum came from, the first of several,
    /// row after row; `None` where the row is empty.
    ///
    /// # Errors
    /// When a size does not fit, or the reduce chooses no entry.
    pub fn arguments(&self, a: &Csr, x: &Dense<f64>) -> Result<Vec<Option<usize>>> {
        self.check(a, x)?;
        if !matches!(self.reduce, Reduce::Max | Reduce::Min) {
            let problem = format!("{:?} has no argument; max and min have", self.reduce);
            return Err(Error::argument("reduce", problem));
        }
        let mut arguments = Vec::new();
        for i in 0..a.n_rows() {
            for c in 0..x.n_cols() {
                let chosen = self.reduce.argument(&self.messages(a, x, i, c));
                arguments.push(chosen.map(|at| a.row(i).start + at));
            }
        }
        Ok(arguments)
    }

    /// The gradient of every input from that of `y`. For an entry `e = (i, j)`, with
    /// `g = dy · f'` and `dm_ec = g_ic · l_i · ∂reduce/∂m_ec`:
    /// `dx_jc = Σ_e dm_ec · a_e · r_j`, `da_e = Σ_c dm_ec · r_j · x_jc`, and so on.
    ///
    /// # Errors
    /// When a size does not fit the matrix's.
    pub fn backward(&self, a: &Csr, x: &Dense<f64>, grad: &Dense<f64>) -> Result<SpmmGrads> {
        self.check(a, x)?;
        let what = ["rows of the gradient", "columns of the gradient"];
        check_shape("spmm backward", what, (a.n_rows(), x.n_cols()), grad)?;
        let mut grads = SpmmGrads {
            x: Dense::zeros(x.n_rows(), x.n_cols()),
            values: vec![0.0; a.nnz()],
            left: vec![0.0; a.n_rows()],
            right: vec![0.0; a.n_cols()],
            accumulate: Dense::zeros(a.n_rows(), x.n_cols()),
            bias: vec![0.0; x.n_cols()],
        };
        for i in 0..a.n_rows() {
            for c in 0..x.n_cols() {
                self.element_backward(a, x, (i, c, grad.at(i, c)), &mut grads);
            }
        }
        Ok(grads)
    }

    /// What element `(i, c)` with gradient `dy` adds to the gradients.
    fn element_backward(
        &self,
        a: &Csr,
        x: &Dense<f64>,
        (i, c, dy): (usize, usize, f64),
        grads: &mut SpmmGrads,
    ) {
        let messages = self.messages(a, x, i, c);
        let reduced = self.reduce.of(&messages);
        let g = dy * self.activation.derivative(self.unactivated(reduced, i, c));
        grads.accumulate.row_mut(i)[c] = g;
        grads.bias[c] += g;
        grads.left[i] += g * reduced;
        let derivative = self.reduce.derivative(&messages, self.ties);
        for (e, d) in a.row(i).zip(derivative) {
            let dm = g * factor(self.left, i) * d;
            let j = a.cols()[e] as usize;
            let (v, r, x) = (f64::from(a.value(e)), factor(self.right, j), x.at(j, c));
            grads.x.row_mut(j)[c] += dm * v * r;
            grads.values[e] += dm * r * x;
            grads.right[j] += dm * v * x;
        }
    }

    /// `m_ec` for the entries `e` of row `i`.
    fn messages(&self, a: &Csr, x: &Dense<f64>, i: usize, c: usize) -> Vec<f64> {
        let message = |e: usize| {
            let j = a.cols()[e] as usize;
            f64::from(a.value(e)) * factor(self.right, j) * x.at(j, c)
        };
        a.row(i).map(message).collect()
    }

    /// What `f` is applied to.
    fn unactivated(&self, reduced: f64, i: usize, c: usize) -> f64 {
        let before = self.accumulate.map_or(0.0, |y| y.at(i, c));
        let bias = self.bias.map_or(0.0, |bias| bias[c]);
        before + factor(self.left, i) * reduced + bias
    }

    fn check(&self, a: &Csr, x: &Dense<f64>) -> Result<()> {
        same_size("spmm", "rows of x", a.n_cols(), x.n_rows())?;
        let k = x.n_cols();
        if let Some(left) = self.left {
            same_size("spmm", "length of the left scale", a.n_rows(), left.len())?;
        }
        if let Some(right) = self.right {
            same_size("spmm", "length of the right scale", a.n_cols(), right.len())?;
        }
        if let Some(bias) = self.bias {
            same_size("spmm", "length of the bias", k, bias.len())?;
        }
        match self.accumulate {
            Some(y) => check_shape("spmm", ["rows of y", "columns of y"], (a.n_rows(), k), y),
            None => Ok(()),
        }
    }
}

/// An optional scale's factor.
fn factor(scale: Option<&[f64]>, at: usize) -> f64 {
    scale.map_or(1.0, |scale| scale[at])
}

/// One number per entry, from stored order to the order of the caller's list.
///
/// # Errors
/// When there is not one number per entry.
pub fn in_caller_order(a: &Csr, stored: &[f64]) -> Result<Vec<f64>> {
    same_size("in_caller_order", "number of values", a.nnz(), stored.len())?;
    let mut caller = vec![0.0; a.nnz()];
    (0..a.nnz()).for_each(|e| caller[position(a, e)] = stored[e]);
    Ok(caller)
}

/// One number per entry, from the order of the caller's list to stored order.
///
/// # Errors
/// When there is not one number per entry.
pub fn in_stored_order(a: &Csr, caller: &[f64]) -> Result<Vec<f64>> {
    same_size("in_stored_order", "number of values", a.nnz(), caller.len())?;
    Ok((0..a.nnz()).map(|e| caller[position(a, e)]).collect())
}

/// One row per entry, from stored order to the order of the caller's list.
///
/// # Errors
/// When there is not one row per entry.
pub fn rows_in_caller_order(a: &Csr, stored: &Dense<f64>) -> Result<Dense<f64>> {
    same_size("rows_in_caller_order", "number of rows", a.nnz(), stored.n_rows())?;
    let mut caller = Dense::zeros(a.nnz(), stored.n_cols());
    (0..a.nnz()).for_each(|e| caller.row_mut(position(a, e)).copy_from_slice(stored.row(e)));
    Ok(caller)
}

/// Where entry `e` stood in the caller's list.
fn position(a: &Csr, e: usize) -> usize {
    a.order().map_or(e, |order| order[e] as usize)
}

#[cfg(test)]
mod tests {
    use super::super::check::*;
    use super::*;
    use crate::Graph;

    #[test]
    fn known_values_for_every_reduce() {
        let x = dense(&[[1.0], [2.0], [3.0], [4.0]]);
        let expected = [
            (Reduce::Sum, [-4.0, 0.0, 5.75, 4.0, 3.0]),
            (Reduce::Mean, [-2.0, 0.0, 5.75 / 3.0, 4.0, 0.75]),
            (Reduce::Max, [1.0, 0.0, 4.5, 4.0, 3.0]),
            (Reduce::Min, [-5.0, 0.0, -0.75, 4.0, -1.5]),
            (Reduce::Mul, [-5.0, 1.0, -6.75, 4.0, -2.25]),
        ];
        for (reduce, y) in expected {
            assert_close(&flat(&spmm(&graph(), &x, reduce).unwrap()), &y);
        }
    }

    #[test]
    fn scales_and_epilogue_apply_in_their_order() {
        let a = csr(2, &[&[(0, 2.0), (1, 3.0)], &[]]);
        let (x, y) = (dense(&[[1.0], [10.0]]), dense(&[[0.5], [0.5]]));
        let spmm = Spmm {
            left: Some(&[10.0, 20.0]),
            right: Some(&[1.0, -1.0]),
            accumulate: Some(&y),
            bias: Some(&[1.0]),
            activation: Activation::LeakyRelu(0.5),
            ..Spmm::new(Reduce::Sum)
        };
        // 0.5 + 10·(2·1·1 − 3·1·10) + 1 = −278.5, halved; and 0.5 + 20·0 + 1.
        assert_eq!(flat(&spmm.forward(&a, &x).unwrap()), [-139.25, 1.5]);
        let mul = Spmm { reduce: Reduce::Mul, ..spmm };
        assert_eq!(flat(&mul.forward(&a, &x).unwrap()), [-299.25, 21.5]);
    }

    #[test]
    fn without_edges_rows_or_features() {
        let empty = Csr::empty(3, 2).unwrap();
        assert_eq!(spmm(&empty, &matrix(1, 2, 2), Reduce::Sum).unwrap(), Dense::zeros(3, 2));
        assert_eq!(spmm(&graph(), &Dense::zeros(4, 0), Reduce::Max).unwrap(), Dense::zeros(5, 0));
        let nothing = Csr::empty(0, 0).unwrap();
        let grads = Spmm::new(Reduce::Mean)
            .backward(&nothing, &Dense::zeros(0, 3), &Dense::zeros(0, 3))
            .unwrap();
        assert_eq!(grads.bias, [0.0; 3]);
    }

    #[test]
    fn every_gradient_is_a_slope_for_every_reduce() {
        let (a, x, dy) = (graph(), matrix(2, 4, 3), matrix(3, 5, 3));
        let (left, right, bias) = (numbers(4, 5), numbers(5, 4), numbers(6, 3));
        let before = matrix(7, 5, 3);
        for reduce in Reduce::ALL {
            let spmm = Spmm {
                left: Some(&left),
                right: Some(&right),
                accumulate: Some(&before),
                bias: Some(&bias),
                activation: Activation::Tanh,
                ..Spmm::new(reduce)
            };
            let loss = |spmm: Spmm, x: &Dense<f64>| dot(&spmm.forward(&a, x).unwrap(), &dy);
            let grads = spmm.backward(&a, &x, &dy).unwrap();
            assert_matrix_gradient(&x, &grads.x, |x| loss(spmm, x));
            assert_matrix_gradient(&before, &grads.accumulate, |y| {
                loss(Spmm { accumulate: Some(y), ..spmm }, &x)
            });
            assert_gradient(&left, &grads.left, |l| loss(Spmm { left: Some(l), ..spmm }, &x));
            assert_gradient(&right, &grads.right, |r| loss(Spmm { right: Some(r), ..spmm }, &x));
            assert_gradient(&bias, &grads.bias, |b| loss(Spmm { bias: Some(b), ..spmm }, &x));
        }
    }

    /// Values are single precision, so the step is a power of two and the function must be linear
    /// in each of them: no activation.
    #[test]
    fn gradients_of_edge_values_are_slopes_for_every_reduce() {
        const STEP: f32 = 1.0 / 4096.0;
        let (a, x, dy) = (graph(), matrix(8, 4, 3), matrix(9, 5, 3));
        for reduce in Reduce::ALL {
            let spmm = Spmm::new(reduce);
            let grads = spmm.backward(&a, &x, &dy).unwrap();
            for e in 0..a.nnz() {
                let moved = |step: f32| {
                    let mut values = a.values().unwrap().to_vec();
                    values[e] += step;
                    let a = a.clone().with_values(Some(values.into())).unwrap();
                    dot(&spmm.forward(&a, &x).unwrap(), &dy)
                };
                let slope = (moved(STEP) - moved(-STEP)) / f64::from(2.0 * STEP);
                assert!((slope - grads.values[e]).abs() < 1e-9, "{reduce:?} {e}");
            }
        }
    }

    #[test]
    fn ties_follow_the_rule() {
        let a = csr(3, &[&[(0, 1.0), (1, 1.0), (2, 1.0)], &[]]);
        let x = dense(&[[0.0, 2.0], [0.0, 1.0], [-1.0, 2.0]]);
        let dy = dense(&[[6.0, 8.0], [1.0, 1.0]]);
        let dx = |ties| {
            let spmm = Spmm { ties, ..Spmm::new(Reduce::Max) };
            flat(&spmm.backward(&a, &x, &dy).unwrap().x)
        };
        assert_eq!(dx(Ties::SplitEvenly), [3.0, 4.0, 3.0, 0.0, 0.0, 4.0]);
        assert_eq!(dx(Ties::FirstArgument), [6.0, 8.0, 0.0, 0.0, 0.0, 0.0]);
        assert_eq!(dx(Ties::SplitWithInitialZero), [2.0, 4.0, 2.0, 0.0, 0.0, 4.0]);
        let arguments = Spmm::new(Reduce::Max).arguments(&a, &x).unwrap();
        assert_eq!(arguments, [Some(0), Some(0), None, None]);
        let arguments = Spmm::new(Reduce::Min).arguments(&a, &x).unwrap();
        assert_eq!(arguments, [Some(2), Some(1), None, None]);
        assert!(Spmm::new(Reduce::Sum).arguments(&a, &x).is_err());
    }

    #[test]
    fn edge_gradients_return_in_the_callers_order() {
        let graph = Graph::from_edges(3, &[(2, 1), (0, 2), (0, 1), (2, 1)]).unwrap();
        let a = graph.adjacency();
        let x = dense(&[[1.0], [10.0], [100.0]]);
        let dy = dense(&[[7.0], [1.0], [2.0]]);
        let grads = Spmm::new(Reduce::Sum).backward(a, &x, &dy).unwrap();
        let caller = in_caller_order(a, &grads.values).unwrap();
        assert_eq!(caller, [100.0, 2.0, 1.0, 100.0]);
        assert_eq!(in_stored_order(a, &caller).unwrap(), grads.values);
        let rows = Dense::from_vec(grads.values.clone(), 4, 1).unwrap();
        assert_eq!(flat(&rows_in_caller_order(a, &rows).unwrap()), caller);
        assert!(in_caller_order(a, &[1.0]).is_err() && in_stored_order(a, &[1.0]).is_err());
    }

    #[test]
    fn sizes_that_disagree_are_errors() {
        let (a, x) = (graph(), matrix(1, 4, 2));
        assert!(spmm(&a, &matrix(1, 5, 2), Reduce::Sum).is_err());
        let short = [1.0];
        let plain = Spmm::new(Reduce::Sum);
        for wrong in [
            Spmm { left: Some(&short), ..plain },
            Spmm { right: Some(&short), ..plain },
            Spmm { bias: Some(&short), ..plain },
            Spmm { accumulate: Some(&x), ..plain },
        ] {
            assert!(wrong.forward(&a, &x).is_err());
        }
        assert!(plain.backward(&a, &x, &x).is_err());
    }
}
