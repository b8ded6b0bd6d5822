//! Losses over rows that count by weights, `Σ_i w_i·loss_i`: what corrected sampling asks for.

use lacis_kernels::{Mat, MatMut};

/// What each row should be.
#[derive(Clone, Copy)]
pub enum Wanted<'a> {
    /// One class.
    Classes(&'a [i32]),
    /// Each column's label, from 0 to 1.
    Binary(Mat<'a>),
    /// Numbers.
    Numbers(Mat<'a>),
}

/// Rows that count, and by how much: a weight for every row of the results.
#[derive(Clone, Copy)]
pub struct Weighted<'a> {
    /// What they should be.
    pub wanted: Wanted<'a>,
    /// Which count, in ascending order.
    pub rows: &'a [u32],
    /// By how much.
    pub weights: &'a [f32],
}

impl Weighted<'_> {
    /// The loss. Its gradient goes to `grad`, which has zeros where a row does not count, and
    /// which holds the logits before, where there are none. `row` is room for a row.
    pub(super) fn run(
        &self,
        logits: Option<Mat<'_>>,
        mut grad: MatMut<'_>,
        row: &mut Vec<f32>,
    ) -> f64 {
        debug_assert!(self.rows.is_sorted_by(|a, b| a < b), "a row is read once, then written");
        let (mut sum, mut next) = (0.0, 0);
        for i in self.rows.iter().map(|&i| i as usize) {
            (next..i).for_each(|i| grad.row_mut(i).fill(0.0));
            next = i + 1;
            row.clear();
            row.extend_from_slice(logits.map_or(grad.row_mut(i), |logits| logits.row(i)));
            sum += self.of_row(i, row, grad.row_mut(i));
        }
        (next..grad.n_rows()).for_each(|i| grad.row_mut(i).fill(0.0));
        sum
    }

    /// What a row adds to the loss, and its gradient.
    fn of_row(&self, i: usize, z: &[f32], dz: &mut [f32]) -> f64 {
        let weight = f64::from(self.weights[i]);
        weight
            * match self.wanted {
                Wanted::Classes(of) => classes(z, of[i] as usize, weight, dz),
                Wanted::Binary(of) => binary(z, of.row(i), weight, dz),
                Wanted::Numbers(of) => squares(z, of.row(i), weight, dz),
            }
    }
}

/// Cross-entropy of a row.
fn classes(z: &[f32], label: usize, weight: f64, dz: &mut [f32]) -> f64 {
    let most = z.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let power = |x: f32| f64::from(x - most).exp();
    let sum: f64 = z.iter().map(|&x| power(x)).sum();
    for (c, (d, &x)) in dz.iter_mut().zip(z).enumerate() {
        let hit = f64::from(u8::from(c == label));
        *d = (weight * (power(x) / sum - hit)) as f32;
    }
    sum.ln() - f64::from(z[label] - most)
}

/// Binary cross-entropy, the mean over the columns.
fn binary(z: &[f32], wanted: &[f32], weight: f64, dz: &mut [f32]) -> f64 {
    let count = z.len().max(1) as f64;
    let mut sum = 0.0;
    for ((d, &x), &t) in dz.iter_mut().zip(z).zip(wanted) {
        let (x, t) = (f64::from(x), f64::from(t));
        sum += x.max(0.0) - x * t + (-x.abs()).exp().ln_1p();
        *d = (weight * (1.0 / (1.0 + (-x).exp()) - t) / count) as f32;
    }
    sum / count
}

/// Squared differences, the mean over the columns.
fn squares(z: &[f32], wanted: &[f32], weight: f64, dz: &mut [f32]) -> f64 {
    let count = z.len().max(1) as f64;
    let mut sum = 0.0;
    for ((d, &x), &t) in dz.iter_mut().zip(z).zip(wanted) {
        let off = f64::from(x) - f64::from(t);
        sum += off * off;
        *d = (weight * 2.0 * off / count) as f32;
    }
    sum / count
}

#[cfg(test)]
mod tests {
    use super::*;
    use lacis_core::Dense;

    /// Every gradient is the slope of its loss, and a row that does not count has none.
    #[test]
    fn gradients_are_slopes() {
        let z: Dense = Dense::from_fn(3, 4, |i, j| (i * 4 + j) as f64 / 3.0 - 2.0);
        let t: Dense = Dense::from_fn(3, 4, |i, j| ((i + j) % 2) as f64);
        let (rows, weights) = ([0, 2], [0.5, 9.0, 2.0]);
        let all = [
            Wanted::Classes(&[1, 0, 3]),
            Wanted::Binary(Mat::from(&t)),
            Wanted::Numbers(Mat::from(&t)),
        ];
        for wanted in all {
            let loss = Weighted { wanted, rows: &rows, weights: &weights };
            let at = |z: &Dense| {
                let mut grad: Dense = Dense::zeros(3, 4);
                let (to, mut row) = (MatMut::from(&mut grad), Vec::new());
                let value = loss.run(Some(Mat::from(z)), to, &mut row);
                let mut here = z.clone();
                assert_eq!(loss.run(None, MatMut::from(&mut here), &mut row), value);
                (0..3).for_each(|i| assert_eq!(here.row(i), grad.row(i)));
                (value, grad)
            };
            let (_, grad) = at(&z);
            assert!(grad.row(1).iter().all(|g| *g == 0.0));
            for (i, j) in [(0, 0), (0, 1), (2, 2), (2, 3), (1, 1)] {
                let h = 1e-2;
                let moved = |by: f32| {
                    let mut z = z.clone();
                    z.row_mut(i)[j] += by;
                    at(&z).0
                };
                let slope = (moved(h) - moved(-h)) / f64::from(2.0 * h);
                let found = f64::from(grad.row(i)[j]);
                assert!((slope - found).abs() < 1e-3, "({i}, {j}): {slope} and {found}");
            }
        }
    }
}
