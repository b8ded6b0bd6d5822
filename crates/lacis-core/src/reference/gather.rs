//! Gather and scatter with an index for every element, as torch has them.
//!
//! ```text
//!   gather:   y_ic = x_{index(i,c), c}
//!   scatter:  y_sc = reduce { x_ic : index(i,c) = s }
//! ```

use super::reduce::{Reduce, Ties};
use super::segment::{Axis, Segments, index_select, segment_reduce, segment_reduce_backward};
use crate::error::same_size;
use crate::{Dense, Result};

/// An index for each element of a matrix.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IndexMatrix {
    n_rows: usize,
    n_cols: usize,
    at: Vec<u32>,
}

impl IndexMatrix {
    /// Rows one after another.
    ///
    /// # Errors
    /// When the length is not `n_rows · n_cols`.
    pub fn new(n_rows: usize, n_cols: usize, at: Vec<u32>) -> Result<Self> {
        let size = n_rows.saturating_mul(n_cols);
        same_size("index matrix", "length of the data", size, at.len())?;
        Ok(IndexMatrix { n_rows, n_cols, at })
    }

    /// The indices that meet column `c` of a matrix turned along `axis`.
    fn column(&self, axis: Axis, c: usize) -> Vec<u32> {
        match axis {
            Axis::Rows => (0..self.n_rows).map(|i| self.at[i * self.n_cols + c]).collect(),
            Axis::Cols => self.at[c * self.n_cols..][..self.n_cols].to_vec(),
        }
    }

    /// Length along the axis, and width across it.
    fn shape(&self, axis: Axis) -> (usize, usize) {
        match axis {
            Axis::Rows => (self.n_rows, self.n_cols),
            Axis::Cols => (self.n_cols, self.n_rows),
        }
    }

    fn check(&self, op: &'static str, x: &Dense<f64>) -> Result<()> {
        same_size(op, "rows of the index", x.n_rows(), self.n_rows)?;
        same_size(op, "columns of the index", x.n_cols(), self.n_cols)
    }
}

/// `y_ic = x_{index(i,c), c}` along rows, `y_ic = x_{i, index(i,c)}` along columns. Its backward
/// is [`scatter_elements`] with a sum.
///
/// # Errors
/// When an index is outside `x`, or the index is not as wide as `x` across the axis.
pub fn gather(x: &Dense<f64>, index: &IndexMatrix, axis: Axis) -> Result<Dense<f64>> {
    let (length, width) = index.shape(axis);
    let x = axis.turn(x);
    same_size("gather", "width of the index", x.n_cols(), width)?;
    by_column(length, width, axis, |c| {
        index_select(&one_column(&x, c), &index.column(axis, c), Axis::Rows)
    })
}

/// Reduces the elements that name the same place of `n` along the axis; places that nobody names
/// are 0, for mul 1.
///
/// # Errors
/// When an index is not below `n`, or there is not one for each element.
pub fn scatter_elements(
    x: &Dense<f64>,
    index: &IndexMatrix,
    n: usize,
    reduce: Reduce,
    axis: Axis,
) -> Result<Dense<f64>> {
    index.check("scatter_elements", x)?;
    let x = axis.turn(x);
    by_column(n, x.n_cols(), axis, |c| {
        let segments = Segments::from_index(&index.column(axis, c), n)?;
        segment_reduce(&one_column(&x, c), &segments, reduce, Axis::Rows)
    })
}

/// `dx_ic = dy_{index(i,c), c} · ∂reduce/∂x_ic`, where `reduce` comes with the rule for ties.
///
/// # Errors
/// When a size does not fit the forward's.
pub fn scatter_elements_backward(
    x: &Dense<f64>,
    index: &IndexMatrix,
    rule: (Reduce, Ties),
    axis: Axis,
    grad: &Dense<f64>,
) -> Result<Dense<f64>> {
    let op = "scatter_elements backward";
    index.check(op, x)?;
    let (x, grad) = (axis.turn(x), axis.turn(grad));
    same_size(op, "width of the gradient", x.n_cols(), grad.n_cols())?;
    by_column(x.n_rows(), x.n_cols(), axis, |c| {
        let segments = Segments::from_index(&index.column(axis, c), grad.n_rows())?;
        let (x, grad) = (one_column(&x, c), one_column(&grad, c));
        segment_reduce_backward(&x, &segments, rule, Axis::Rows, &grad)
    })
}

fn one_column(x: &Dense<f64>, c: usize) -> Dense<f64> {
    Dense::from_fn(x.n_rows(), 1, |i, _| x.at(i, c))
}

/// The matrix whose column `c` is `column(c)`, turned back along the axis.
fn by_column(
    n_rows: usize,
    n_cols: usize,
    axis: Axis,
    column: impl Fn(usize) -> Result<Dense<f64>>,
) -> Result<Dense<f64>> {
    let columns = (0..n_cols).map(column).collect::<Result<Vec<_>>>()?;
    Ok(axis.turn(&Dense::from_fn(n_rows, n_cols, |i, c| columns[c].at(i, 0))))
}

#[cfg(test)]
mod tests {
    use super::super::check::*;
    use super::*;

    fn index() -> IndexMatrix {
        IndexMatrix::new(3, 2, vec![1, 0, 0, 1, 1, 1]).unwrap()
    }

    #[test]
    fn gathering_by_hand() {
        let y = gather(&dense(&[[1.0, 2.0], [3.0, 4.0]]), &index(), Axis::Rows).unwrap();
        assert_eq!(y, dense(&[[3.0, 2.0], [1.0, 4.0], [3.0, 4.0]]));
        let x = dense(&[[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]);
        let y = gather(&x, &index(), Axis::Cols).unwrap();
        assert_eq!(y, dense(&[[2.0, 1.0], [3.0, 4.0], [6.0, 6.0]]));
    }

    #[test]
    fn scattering_by_hand() {
        let x = dense(&[[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]);
        let y = |reduce, axis| flat(&scatter_elements(&x, &index(), 3, reduce, axis).unwrap());
        assert_eq!(y(Reduce::Sum, Axis::Rows), [3.0, 2.0, 6.0, 10.0, 0.0, 0.0]);
        assert_eq!(y(Reduce::Mean, Axis::Rows), [3.0, 2.0, 3.0, 5.0, 0.0, 0.0]);
        assert_eq!(y(Reduce::Mul, Axis::Rows), [3.0, 2.0, 5.0, 24.0, 1.0, 1.0]);
        assert_eq!(y(Reduce::Max, Axis::Cols), [2.0, 1.0, 0.0, 3.0, 4.0, 0.0, 0.0, 6.0, 0.0]);
        assert_eq!(y(Reduce::Min, Axis::Cols), [2.0, 1.0, 0.0, 3.0, 4.0, 0.0, 0.0, 5.0, 0.0]);
    }

    #[test]
    fn gradients_are_slopes() {
        let x = matrix(1, 3, 2);
        for (axis, dy) in [(Axis::Rows, matrix(2, 4, 2)), (Axis::Cols, matrix(3, 3, 4))] {
            for reduce in Reduce::ALL {
                let rule = (reduce, Ties::SplitEvenly);
                let dx = scatter_elements_backward(&x, &index(), rule, axis, &dy).unwrap();
                assert_matrix_gradient(&x, &dx, |x| {
                    dot(&scatter_elements(x, &index(), 4, reduce, axis).unwrap(), &dy)
                });
            }
            let dy_gather = matrix(4, 3, 2);
            let n = if axis == Axis::Rows { dy.n_rows() } else { dy.n_cols() };
            let dx = scatter_elements(&dy_gather, &index(), n, Reduce::Sum, axis).unwrap();
            assert_matrix_gradient(&dy, &dx, |x| {
                dot(&gather(x, &index(), axis).unwrap(), &dy_gather)
            });
        }
    }

    #[test]
    fn nothing_to_gather() {
        for axis in [Axis::Rows, Axis::Cols] {
            let none = IndexMatrix::new(0, 0, vec![]).unwrap();
            assert_eq!(gather(&Dense::zeros(0, 0), &none, axis).unwrap(), Dense::zeros(0, 0));
        }
        let flat = IndexMatrix::new(3, 0, vec![]).unwrap();
        let y = scatter_elements(&Dense::zeros(3, 0), &flat, 2, Reduce::Sum, Axis::Cols).unwrap();
        assert_eq!(y, Dense::zeros(3, 2));
    }

    #[test]
    fn what_does_not_fit_is_an_error() {
        assert!(IndexMatrix::new(2, 2, vec![0; 3]).is_err());
        assert!(gather(&matrix(1, 1, 2), &index(), Axis::Rows).is_err());
        assert!(gather(&matrix(1, 2, 3), &index(), Axis::Rows).is_err());
        let (x, axis) = (matrix(1, 3, 2), Axis::Rows);
        assert!(scatter_elements(&x, &index(), 1, Reduce::Sum, axis).is_err());
        assert!(scatter_elements(&matrix(1, 2, 2), &index(), 2, Reduce::Sum, axis).is_err());
        let rule = (Reduce::Sum, Ties::SplitEvenly);
        assert!(scatter_elements_backward(&x, &index(), rule, axis, &matrix(1, 2, 3)).is_err());
    }
}
