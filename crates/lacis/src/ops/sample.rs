//! [`Sample`]: some rows of a result, what they must be, and how far they may be off.

use lacis_core::{Csr, DType, Dense};

/// Rows of a result and the truth about them.
#[derive(Clone, Debug)]
pub struct Sample {
    /// Which rows.
    pub rows: Vec<usize>,
    /// What they must be.
    pub truth: Dense<f64>,
    /// How far each number may be off: what rounding every addition may cost.
    pub tolerance: Dense<f64>,
}

/// Products that a sample may take: tens of milliseconds for the reference.
pub(super) const MOST_PRODUCTS: usize = 1 << 20;
const MOST_ROWS: usize = 200;

/// Rows of a matrix to look at: the first, the last, the longest, and some between, as long as
/// the reference is quick about it.
pub(super) fn rows_of(a: &Csr, k: usize) -> Vec<usize> {
    let n = a.n_rows();
    if n == 0 {
        return Vec::new();
    }
    let longest = (0..n).max_by_key(|&i| a.row(i).len()).unwrap_or(0);
    let between = (0..MOST_ROWS).map(|s| (s * n / MOST_ROWS + s * 37) % n);
    let mut left = MOST_PRODUCTS;
    let mut rows: Vec<usize> = Vec::new();
    for i in [longest, 0, n - 1].into_iter().chain(between) {
        let products = (a.row(i).len() + 1) * k;
        if products <= left && !rows.contains(&i) {
            left -= products;
            rows.push(i);
        }
    }
    rows
}

/// Some of `n` rows, each of which costs the reference `products`; at least one.
pub(super) fn spread(n: usize, products: usize) -> Vec<usize> {
    let count = (MOST_PRODUCTS / products.max(1)).clamp(1, MOST_ROWS).min(n);
    let mut rows: Vec<usize> = (0..count).map(|s| s * (n - 1) / (count - 1).max(1)).collect();
    rows.dedup();
    rows
}

/// How far sums of `terms(row)` numbers may be off: an epsilon of the magnitudes for every addition
/// and a few for the rest, and what storing the result costs.
pub(super) fn off(
    terms: impl Fn(usize) -> usize,
    magnitudes: &Dense<f64>,
    dtype: DType,
) -> Dense<f64> {
    let (adding, storing) = match dtype {
        DType::F32 => (f64::from(f32::EPSILON), 0.0),
        DType::F64 => (f64::EPSILON, 0.0),
        DType::Bf16 => (f64::from(f32::EPSILON), 1.0 / 256.0),
    };
    // What is smaller may be kept as 0.
    let least = if dtype == DType::F64 { f64::MIN_POSITIVE } else { f32::MIN_POSITIVE.into() };
    let each = |i: usize| (terms(i) as f64 + 8.0) * adding + storing;
    let off = |i: usize, j: usize| each(i) * magnitudes.at(i, j) + least;
    Dense::from_fn(magnitudes.n_rows(), magnitudes.n_cols(), off)
}

impl Sample {
    /// That the same rows of a result are what they must be.
    ///
    /// # Errors
    /// The first number that is not, in words.
    pub fn check(&self, found: &Dense<f64>) -> Result<(), String> {
        if (found.n_rows(), found.n_cols()) != (self.truth.n_rows(), self.truth.n_cols()) {
            let (rows, cols) = (self.truth.n_rows(), self.truth.n_cols());
            return Err(format!("{rows} rows of {cols} numbers were expected"));
        }
        for (s, &i) in self.rows.iter().enumerate() {
            for j in 0..found.n_cols() {
                let (is, right) = (found.at(s, j), self.truth.at(s, j));
                // Numbers that come as decimals may be off in their last bit.
                let allowed = self.tolerance.at(s, j) + 4.0 * f64::EPSILON * right.abs();
                let close = (is - right).abs() <= allowed;
                if !(close || is == right || is.is_nan() && right.is_nan()) {
                    return Err(format!("element ({i}, {j}) is {is}, expected {right}"));
                }
            }
        }
        Ok(())
    }
}
