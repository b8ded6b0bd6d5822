//! Rows (or columns) chosen, added and reduced by index.
//!
//! ```text
//!   select:  y_i        = x_index(i)
//!   reduce:  y_s        = reduce { x_i : index(i) = s }       empty: 0, for mul 1
//!   softmax: y_i        = exp(x_i − max_s) / (Σ_s exp(x − max_s) + 1e-16),  s = index(i)
//! ```
//! Indices need no order. Every function works along either [`Axis`]: along columns it does to the
//! columns what it does to rows along rows.

use super::check_shape;
use super::product::transposed;
use super::reduce::{Reduce, Ties};
use super::sddmm::{add_row, softmax_of};
use crate::error::same_size;
use crate::{Dense, Error, Result};

/// What an index counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Axis {
    /// Rows: torch's `dim=0`.
    Rows,
    /// Columns: torch's `dim=1`.
    Cols,
}

impl Axis {
    /// `x` or its transpose: what an operator along rows has to see. Undoes itself.
    pub(super) fn turn(self, x: &Dense<f64>) -> Dense<f64> {
        match self {
            Axis::Rows => x.clone(),
            Axis::Cols => transposed(x),
        }
    }
}

/// Which segment each row belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segments {
    n: usize,
    of: Vec<u32>,
}

impl Segments {
    /// Row `i` belongs to segment `index[i]` of `n`, in any order.
    ///
    /// # Errors
    /// When an index is not below `n`, or `n` is more than indices can count.
    pub fn from_index(index: &[u32], n: usize) -> Result<Self> {
        if u32::try_from(n).is_err() {
            return Err(Error::Overflow {
                what: "number of segments",
                value: n as u128,
                limit: u128::from(u32::MAX),
            });
        }
        check_indices("segments", index, n)?;
        let of = index.to_vec();
        Ok(Segments { n, of })
    }

    /// Rows `ptr[s]..ptr[s + 1]` of `n_rows` are segment `s`.
    ///
    /// # Errors
    /// When the positions do not start at 0, fall, or do not end at `n_rows`.
    pub fn from_ptr(ptr: &[u64], n_rows: usize) -> Result<Self> {
        let wrong = |problem: String| Err(Error::argument("segment pointers", problem));
        if ptr.first() != Some(&0) {
            return wrong("the first must be 0".to_owned());
        }
        if !ptr.is_sorted() {
            return wrong("they must not fall".to_owned());
        }
        if ptr.last() != Some(&(n_rows as u64)) {
            return wrong(format!("the last must be the number of rows, {n_rows}"));
        }
        let mut of = Vec::new();
        for (s, pair) in ptr.windows(2).enumerate() {
            of.extend((pair[0]..pair[1]).map(|_| s as u32));
        }
        let n = ptr.len() - 1;
        Ok(Segments { n, of })
    }

    /// Number of segments, empty ones included.
    pub fn n(&self) -> usize {
        self.n
    }

    /// The segment of each row.
    pub fn of(&self) -> &[u32] {
        &self.of
    }

    /// The rows of each segment, ascending.
    fn members(&self) -> Vec<Vec<usize>> {
        let mut members = vec![Vec::new(); self.n];
        for (i, &s) in self.of.iter().enumerate() {
            members[s as usize].push(i);
        }
        members
    }

    fn check(&self, op: &'static str, x: &Dense<f64>) -> Result<()> {
        same_size(op, "length of x", self.of.len(), x.n_rows())
    }
}

/// `y_i = x_index(i)`. Its backward is [`index_add`] onto zeros.
///
/// # Errors
/// When an index is outside `x`.
pub fn index_select(x: &Dense<f64>, index: &[u32], axis: Axis) -> Result<Dense<f64>> {
    let x = axis.turn(x);
    check_indices("index_select", index, x.n_rows())?;
    let y = Dense::from_fn(index.len(), x.n_cols(), |i, c| x.at(index[i] as usize, c));
    Ok(axis.turn(&y))
}

/// `y_index(i) += x_i`. Its backward is [`index_select`] for `x`, and nothing to do for `y`.
///
/// # Errors
/// When an index is outside `y`, or a size differs.
pub fn index_add(y: &Dense<f64>, index: &[u32], x: &Dense<f64>, axis: Axis) -> Result<Dense<f64>> {
    let (mut y, x) = (axis.turn(y), axis.turn(x));
    check_indices("index_add", index, y.n_rows())?;
    check_shape("index_add", ["length of x", "width of x"], (index.len(), y.n_cols()), &x)?;
    for (i, &at) in index.iter().enumerate() {
        add_row(y.row_mut(at as usize), x.row(i));
    }
    Ok(axis.turn(&y))
}

/// Reduces each segment: torch_geometric's `scatter` for an index, `segment` for pointers.
///
/// # Errors
/// When `x` is not as long as there are indices.
pub fn segment_reduce(
    x: &Dense<f64>,
    segments: &Segments,
    reduce: Reduce,
    axis: Axis,
) -> Result<Dense<f64>> {
    let x = axis.turn(x);
    segments.check("segment_reduce", &x)?;
    let members = segments.members();
    let y = |s: usize, c| {
        let items: Vec<f64> = members[s].iter().map(|&i| x.at(i, c)).collect();
        reduce.of(&items)
    };
    Ok(axis.turn(&Dense::from_fn(segments.n, x.n_cols(), y)))
}

/// `dx_i = dy_s · ∂reduce/∂x_i`, where `reduce` comes with the rule for ties.
///
/// # Errors
/// When a size does not fit the forward's.
pub fn segment_reduce_backward(
    x: &Dense<f64>,
    segments: &Segments,
    (reduce, ties): (Reduce, Ties),
    axis: Axis,
    grad: &Dense<f64>,
) -> Result<Dense<f64>> {
    let (x, grad) = (axis.turn(x), axis.turn(grad));
    let op = "segment_reduce backward";
    segments.check(op, &x)?;
    let what = ["length of the gradient", "width of the gradient"];
    check_shape(op, what, (segments.n, x.n_cols()), &grad)?;
    let mut dx = Dense::zeros(x.n_rows(), x.n_cols());
    for (s, members) in segments.members().iter().enumerate() {
        for c in 0..x.n_cols() {
            let items: Vec<f64> = members.iter().map(|&i| x.at(i, c)).collect();
            for (&i, d) in members.iter().zip(reduce.derivative(&items, ties)) {
                dx.row_mut(i)[c] = grad.at(s, c) * d;
            }
        }
    }
    Ok(axis.turn(&dx))
}

/// `y_s = reduce { x_i : index(i) = s }` for `s` below `n`: torch_geometric's `scatter`.
///
/// # Errors
/// When an index is not below `n`, or `x` is not as long as the index.
pub fn scatter(
    x: &Dense<f64>,
    index: &[u32],
    n: usize,
    reduce: Reduce,
    axis: Axis,
) -> Result<Dense<f64>> {
    segment_reduce(x, &Segments::from_index(index, n)?, reduce, axis)
}

/// Softmax over each segment, each column alone.
///
/// # Errors
/// When `x` is not as long as there are indices.
pub fn segment_softmax(x: &Dense<f64>, segments: &Segments, axis: Axis) -> Result<Dense<f64>> {
    let x = axis.turn(x);
    segments.check("segment_softmax", &x)?;
    let mut y = Dense::zeros(x.n_rows(), x.n_cols());
    for members in segments.members() {
        for c in 0..x.n_cols() {
            let items: Vec<f64> = members.iter().map(|&i| x.at(i, c)).collect();
            for (&i, p) in members.iter().zip(softmax_of(&items)) {
                y.row_mut(i)[c] = p;
            }
        }
    }
    Ok(axis.turn(&y))
}

/// `dx_i = y_i · (dy_i − Σ_s y · dy)`, from the softmax's result `y`.
///
/// # Errors
/// When a size does not fit the forward's.
pub fn segment_softmax_backward(
    y: &Dense<f64>,
    segments: &Segments,
    axis: Axis,
    grad: &Dense<f64>,
) -> Result<Dense<f64>> {
    let (y, grad) = (axis.turn(y), axis.turn(grad));
    let op = "segment_softmax backward";
    segments.check(op, &y)?;
    let what = ["length of the gradient", "width of the gradient"];
    check_shape(op, what, (y.n_rows(), y.n_cols()), &grad)?;
    let mut dx = Dense::zeros(y.n_rows(), y.n_cols());
    for members in segments.members() {
        for c in 0..y.n_cols() {
            let mean: f64 = members.iter().map(|&i| y.at(i, c) * grad.at(i, c)).sum();
            for &i in &members {
                dx.row_mut(i)[c] = y.at(i, c) * (grad.at(i, c) - mean);
            }
        }
    }
    Ok(axis.turn(&dx))
}

/// Every index below the bound.
fn check_indices(op: &'static str, index: &[u32], bound: usize) -> Result<()> {
    match index.iter().position(|&i| i as usize >= bound) {
        None => Ok(()),
        Some(at) => Err(Error::Index {
            op,
            what: "index",
            index: u64::from(index[at]),
            at,
            bound: bound as u64,
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::super::check::*;
    use super::*;

    const AXES: [Axis; 2] = [Axis::Rows, Axis::Cols];

    /// Unsorted, with repeats; segments 1 and 4 are empty.
    fn segments() -> Segments {
        Segments::from_index(&[2, 0, 2, 3, 0, 2], 5).unwrap()
    }

    #[test]
    fn selecting_and_adding_by_hand() {
        let x = dense(&[[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]);
        let y = index_select(&x, &[2, 0, 2], Axis::Rows).unwrap();
        assert_eq!(y, dense(&[[5.0, 6.0], [1.0, 2.0], [5.0, 6.0]]));
        let y = index_select(&x, &[1, 1, 0], Axis::Cols).unwrap();
        assert_eq!(y, dense(&[[2.0, 2.0, 1.0], [4.0, 4.0, 3.0], [6.0, 6.0, 5.0]]));
        let y = index_add(&dense(&[[10.0, 20.0]]), &[0, 0, 0], &x, Axis::Rows).unwrap();
        assert_eq!(y, dense(&[[19.0, 32.0]]));
        let y = index_add(&Dense::zeros(3, 3), &[2, 0], &x, Axis::Cols).unwrap();
        assert_eq!(y, dense(&[[2.0, 0.0, 1.0], [4.0, 0.0, 3.0], [6.0, 0.0, 5.0]]));
    }

    #[test]
    fn selecting_and_adding_are_each_others_gradient() {
        let index = [2, 0, 2, 1];
        for axis in AXES {
            let (x, dy) = (axis.turn(&matrix(1, 3, 2)), axis.turn(&matrix(2, 4, 2)));
            let zeros = Dense::zeros(x.n_rows(), x.n_cols());
            let dx = index_add(&zeros, &index, &dy, axis).unwrap();
            assert_matrix_gradient(&x, &dx, |x| dot(&index_select(x, &index, axis).unwrap(), &dy));
            let dz = index_select(&x, &index, axis).unwrap();
            assert_matrix_gradient(&dy, &dz, |z| {
                dot(&index_add(&zeros, &index, z, axis).unwrap(), &x)
            });
        }
    }

    #[test]
    fn reducing_by_hand() {
        let x = dense(&[[1.0], [2.0], [3.0], [4.0], [5.0], [-6.0]]);
        let expected = [
            (Reduce::Sum, [7.0, 0.0, -2.0, 4.0, 0.0]),
            (Reduce::Mean, [3.5, 0.0, -2.0 / 3.0, 4.0, 0.0]),
            (Reduce::Max, [5.0, 0.0, 3.0, 4.0, 0.0]),
            (Reduce::Min, [2.0, 0.0, -6.0, 4.0, 0.0]),
            (Reduce::Mul, [10.0, 1.0, -18.0, 4.0, 1.0]),
        ];
        for (reduce, y) in expected {
            let found = segment_reduce(&x, &segments(), reduce, Axis::Rows).unwrap();
            assert_close(&flat(&found), &y);
            let found = scatter(&transposed(&x), segments().of(), 5, reduce, Axis::Cols).unwrap();
            assert_eq!((found.n_rows(), found.n_cols()), (1, 5));
            assert_close(&flat(&found), &y);
        }
    }

    #[test]
    fn negative_maxima_are_not_compared_with_zero() {
        let y = scatter(&dense(&[[-3.0], [-2.0]]), &[1, 1], 2, Reduce::Max, Axis::Rows).unwrap();
        assert_eq!(flat(&y), [0.0, -2.0]);
    }

    #[test]
    fn pointers_are_sorted_indices() {
        let by_ptr = Segments::from_ptr(&[0, 2, 2, 5], 5).unwrap();
        assert_eq!(by_ptr, Segments::from_index(&[0, 0, 2, 2, 2], 3).unwrap());
        assert_eq!(Segments::from_ptr(&[0], 0).unwrap().n(), 0);
        for wrong in [&[][..], &[1, 5], &[0, 3, 2, 5], &[0, 4], &[0, u64::MAX]] {
            assert!(Segments::from_ptr(wrong, 5).is_err());
        }
    }

    #[test]
    fn gradients_of_reduces_are_slopes() {
        let segments = segments();
        for axis in AXES {
            let (x, dy) = (axis.turn(&matrix(3, 6, 2)), axis.turn(&matrix(4, 5, 2)));
            for reduce in Reduce::ALL {
                let rule = (reduce, Ties::SplitEvenly);
                let dx = segment_reduce_backward(&x, &segments, rule, axis, &dy).unwrap();
                assert_matrix_gradient(&x, &dx, |x| {
                    dot(&segment_reduce(x, &segments, reduce, axis).unwrap(), &dy)
                });
            }
        }
    }

    #[test]
    fn ties_follow_the_rule() {
        let segments = Segments::from_index(&[0, 1, 0, 0], 2).unwrap();
        let (x, dy) = (dense(&[[0.0], [7.0], [0.0], [-1.0]]), dense(&[[6.0], [1.0]]));
        let dx = |ties| {
            let rule = (Reduce::Max, ties);
            flat(&segment_reduce_backward(&x, &segments, rule, Axis::Rows, &dy).unwrap())
        };
        assert_eq!(dx(Ties::SplitEvenly), [3.0, 1.0, 3.0, 0.0]);
        assert_eq!(dx(Ties::FirstArgument), [6.0, 1.0, 0.0, 0.0]);
        assert_eq!(dx(Ties::SplitWithInitialZero), [2.0, 1.0, 2.0, 0.0]);
    }

    #[test]
    fn softmax_is_per_segment_and_column() {
        let x = dense(&[[0.0, 900.0], [5.0, 1.0], [3f64.ln(), 900.0]]);
        let segments = Segments::from_index(&[1, 0, 1], 3).unwrap();
        let y = segment_softmax(&x, &segments, Axis::Rows).unwrap();
        assert_close(&flat(&y), &[0.25, 0.5, 1.0, 1.0, 0.75, 0.5]);
        let y = segment_softmax(&transposed(&x), &segments, Axis::Cols).unwrap();
        assert_close(&flat(&y), &[0.25, 1.0, 0.75, 0.5, 1.0, 0.5]);
    }

    #[test]
    fn gradients_of_softmax_are_slopes() {
        let segments = segments();
        for axis in AXES {
            let (x, dy) = (axis.turn(&matrix(5, 6, 2)), axis.turn(&matrix(6, 6, 2)));
            let y = segment_softmax(&x, &segments, axis).unwrap();
            let dx = segment_softmax_backward(&y, &segments, axis, &dy).unwrap();
            assert_matrix_gradient(&x, &dx, |x| {
                dot(&segment_softmax(x, &segments, axis).unwrap(), &dy)
            });
        }
    }

    #[test]
    fn nothing_to_select_or_reduce() {
        let none = Segments::from_index(&[], 2).unwrap();
        let (x, axis) = (Dense::zeros(0, 3), Axis::Rows);
        let ones = Dense::from_fn(2, 3, |_, _| 1.0);
        assert_eq!(segment_reduce(&x, &none, Reduce::Mul, axis).unwrap(), ones);
        assert_eq!(segment_softmax(&x, &none, axis).unwrap(), x);
        assert_eq!(index_select(&x, &[], axis).unwrap(), x);
        let flat = Dense::zeros(6, 0);
        let y = segment_reduce(&flat, &segments(), Reduce::Max, axis).unwrap();
        assert_eq!(y, Dense::zeros(5, 0));
    }

    #[test]
    fn what_does_not_fit_is_an_error() {
        let (x, axis) = (matrix(1, 3, 2), Axis::Rows);
        assert!(index_select(&x, &[3], axis).is_err());
        assert!(index_select(&x, &[2], Axis::Cols).is_err());
        assert!(index_add(&x, &[0], &x, axis).is_err());
        assert!(index_add(&x, &[3], &matrix(1, 1, 2), axis).is_err());
        assert!(scatter(&x, &[0, 1], 2, Reduce::Sum, axis).is_err());
        assert!(scatter(&x, &[0, 1, 2], 2, Reduce::Sum, axis).is_err());
        assert!(scatter(&x, &[0, 1, 2], usize::MAX, Reduce::Sum, axis).is_err());
        assert!(segment_softmax(&x, &segments(), axis).is_err());
        let rule = (Reduce::Sum, Ties::SplitEvenly);
        let long = matrix(1, 6, 2);
        assert!(segment_reduce_backward(&long, &segments(), rule, axis, &long).is_err());
        assert!(segment_softmax_backward(&long, &segments(), axis, &x).is_err());
    }
}
