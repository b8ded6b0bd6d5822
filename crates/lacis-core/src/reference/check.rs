//! What the tests of this folder share: small inputs, and gradients by central differences.

use crate::{Buffer, Csr, CsrParts, Dense, Rng, RowPtr, Threads};

/// Half the distance between the two points of a difference.
const STEP: f64 = 1e-5;

/// Normally distributed numbers.
pub fn numbers(seed: u64, n: usize) -> Vec<f64> {
    let mut stream = Rng::new(seed, "reference tests").stream(0);
    (0..n).map(|_| stream.normal()).collect()
}

/// A matrix of normally distributed numbers.
pub fn matrix(seed: u64, n_rows: usize, n_cols: usize) -> Dense<f64> {
    Dense::from_vec(numbers(seed, n_rows * n_cols), n_rows, n_cols).unwrap()
}

/// A matrix from its rows.
pub fn dense<const K: usize>(rows: &[[f64; K]]) -> Dense<f64> {
    Dense::from_fn(rows.len(), K, |i, j| rows[i][j])
}

/// A sparse matrix from its rows' columns and values.
pub fn csr(n_cols: usize, rows: &[&[(u32, f32)]]) -> Csr {
    let lengths = rows.iter().map(|row| row.len());
    let nnz = lengths.clone().sum();
    let parts = CsrParts {
        n_cols,
        row_ptr: RowPtr::from_lengths(lengths, rows.len(), nnz),
        cols: columns(rows, |entry| entry.0),
        values: Some(columns(rows, |entry| entry.1)),
        order: None,
    };
    Csr::new(parts, &Threads::one()).unwrap()
}

fn columns<T: bytemuck::Pod + Send + Sync>(
    rows: &[&[(u32, f32)]],
    of: impl Fn(&(u32, f32)) -> T,
) -> Buffer<T> {
    rows.iter().flat_map(|row| row.iter().map(&of)).collect::<Vec<T>>().into()
}

/// Five targets, four sources: an empty row, repeated columns, unsorted columns.
pub fn graph() -> Csr {
    csr(
        4,
        &[
            &[(1, 0.5), (3, -1.25)],
            &[],
            &[(0, 2.0), (0, -0.75), (2, 1.5)],
            &[(3, 1.0)],
            &[(2, -0.5), (1, 0.25), (0, 1.0), (3, 0.75)],
        ],
    )
}

/// The matrix's elements, row after row.
pub fn flat(x: &Dense<f64>) -> Vec<f64> {
    x.rows().flatten().copied().collect()
}

/// `Σ x ⊙ y`: with random `y`, a scalar whose gradient in `x` is `y`.
pub fn dot(x: &Dense<f64>, y: &Dense<f64>) -> f64 {
    assert_eq!((x.n_rows(), x.n_cols()), (y.n_rows(), y.n_cols()));
    flat(x).iter().zip(flat(y)).map(|(x, y)| x * y).sum()
}

/// Equal but for rounding.
pub fn assert_close(found: &[f64], expected: &[f64]) {
    assert_eq!(found.len(), expected.len());
    for (at, (f, e)) in found.iter().zip(expected).enumerate() {
        assert!((f - e).abs() <= 1e-12 * (1.0 + e.abs()), "{at}: {f}, not {e}");
    }
}

/// `grad` is the gradient of `loss` at `x`: `(loss(x + h) − loss(x − h)) / 2h` in every element.
pub fn assert_gradient(x: &[f64], grad: &[f64], loss: impl Fn(&[f64]) -> f64) {
    assert_eq!(x.len(), grad.len());
    for at in 0..x.len() {
        let moved = |step: f64| {
            let mut x = x.to_vec();
            x[at] += step;
            loss(&x)
        };
        let slope = (moved(STEP) - moved(-STEP)) / (2.0 * STEP);
        let error = (slope - grad[at]).abs();
        assert!(error <= 1e-7 * (1.0 + slope.abs()), "{at}: {}, not {slope}", grad[at]);
    }
}

/// [`assert_gradient`] for a matrix.
pub fn assert_matrix_gradient(
    x: &Dense<f64>,
    grad: &Dense<f64>,
    loss: impl Fn(&Dense<f64>) -> f64,
) {
    let (n_rows, n_cols) = (x.n_rows(), x.n_cols());
    assert_eq!((n_rows, n_cols), (grad.n_rows(), grad.n_cols()));
    assert_gradient(&flat(x), &flat(grad), |x| {
        loss(&Dense::from_vec(x.to_vec(), n_rows, n_cols).unwrap())
    });
}
