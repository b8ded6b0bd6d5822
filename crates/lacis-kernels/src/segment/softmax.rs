//! Softmax over each segment, each column alone:
//! `y_i = exp(x_i − max_s) / (Σ_s exp(x − max_s) + 1e-16)`, and its backward
//! `dx_i = y_i · (dy_i − Σ_s y · dy)`.
//!
//! # Parallelism
//! Slices of segments, then slices of items; see `items.rs`.

use lacis_core::error::same_size;
use lacis_core::reference::Axis;
use lacis_core::{Result, Threads};

use super::items::{self, Problem, TwoSteps};
use super::segments::Segments;
use super::turn::{Begin, along_columns};
use crate::isa::{Arith, Isa};
use crate::math::exp;
use crate::matrix::{Mat, MatMut};
use crate::real::{Real, Stored};

/// What the sum is at least: torch_geometric's.
const LEAST_SUM: f64 = 1e-16;

/// A softmax to compute, its sizes checked.
#[derive(Clone, Copy, Debug)]
pub struct Args<'a, T = f32> {
    x: Mat<'a, T>,
    segments: Segments<'a>,
    axis: Axis,
}

impl<'a, T: Stored> Args<'a, T> {
    /// Softmax of the rows, or columns, of `x` by segment.
    ///
    /// # Errors
    /// When `x` is not as long as the segments say.
    pub fn new(x: impl Into<Mat<'a, T>>, segments: Segments<'a>, axis: Axis) -> Result<Self> {
        let x = x.into();
        let length = if axis == Axis::Rows { x.n_rows } else { x.n_cols };
        same_size("segment softmax", "length of x", segments.len(), length)?;
        Ok(Args { x, segments, axis })
    }

    /// Computes the softmax into `y`.
    ///
    /// # Errors
    /// When `y` has another shape than `x`.
    pub fn run<'y>(&self, isa: Isa, y: impl Into<MatMut<'y, T>>, threads: &Threads) -> Result<()> {
        T::segment_softmax(self, isa, y.into(), threads)
    }

    pub(super) fn run_here(&self, isa: Isa, y: MatMut<'_, T>, threads: &Threads) -> Result<()> {
        self.two_steps(isa, (Forward, self.x), y, threads)
    }

    fn two_steps<S: TwoSteps>(
        &self,
        isa: Isa,
        (steps, other): (S, Mat<'a, T>),
        out: MatMut<'_, T>,
        threads: &Threads,
    ) -> Result<()> {
        same_size("segment softmax", "rows of the result", self.x.n_rows, out.n_rows)?;
        same_size("segment softmax", "columns of the result", self.x.n_cols, out.n_cols)?;
        if out.n_rows == 0 || out.n_cols == 0 {
            return Ok(());
        }
        self.segments.grouped(threads, |segments| {
            let own = [self.x, other];
            match self.axis {
                Axis::Rows => {
                    let problem = Problem { segments, own, given: None };
                    items::run(isa, (steps, problem), out, threads);
                }
                Axis::Cols => {
                    let isa_begin = (isa, Begin::Unset);
                    along_columns(isa_begin, own, out, threads, |own, out, threads| {
                        let problem = Problem { segments, own, given: None };
                        items::run(isa, (steps, problem), out, threads);
                    });
                }
            }
        });
        Ok(())
    }
}

/// The backward of a softmax, from its result.
#[derive(Clone, Copy, Debug)]
pub struct Backward<'a, T = f32> {
    of: Args<'a, T>,
    grad: Mat<'a, T>,
}

impl<'a, T: Stored> Backward<'a, T> {
    /// For the softmax whose result is `y`, and the gradient of that.
    ///
    /// # Errors
    /// When a size does not fit the forward's.
    pub fn new(
        y: impl Into<Mat<'a, T>>,
        segments: Segments<'a>,
        axis: Axis,
        grad: impl Into<Mat<'a, T>>,
    ) -> Result<Self> {
        let (of, grad) = (Args::new(y, segments, axis)?, grad.into());
        same_size("segment softmax", "rows of the gradient", of.x.n_rows, grad.n_rows)?;
        same_size("segment softmax", "columns of the gradient", of.x.n_cols, grad.n_cols)?;
        Ok(Backward { of, grad })
    }

    /// Computes the gradient of the softmax's argument into `dx`.
    ///
    /// # Errors
    /// When `dx` has another shape than `y`.
    pub fn run<'y>(&self, isa: Isa, dx: impl Into<MatMut<'y, T>>, threads: &Threads) -> Result<()> {
        T::segment_softmax_backward(self, isa, dx.into(), threads)
    }

    pub(super) fn run_here(&self, isa: Isa, dx: MatMut<'_, T>, threads: &Threads) -> Result<()> {
        self.of.two_steps(isa, (Slope, self.grad), dx, threads)
    }
}

#[derive(Clone, Copy)]
struct Forward;
#[derive(Clone, Copy)]
struct Slope;

impl TwoSteps for Forward {
    /// The maximum, and the reciprocal of the sum.
    #[inline(always)]
    fn summary<M: Arith, F: Real, const L: usize>(
        &self,
        segment: impl Iterator<Item = [[F; L]; 2]> + Clone,
        _: [F; L],
    ) -> [[F; L]; 2] {
        let mut max = [F::NEG_INFINITY; L];
        for [x, _] in segment.clone() {
            for (max, x) in max.iter_mut().zip(x) {
                *max = max.greater(x);
            }
        }
        let mut sum = [F::ZERO; L];
        for [x, _] in segment {
            for c in 0..L {
                sum[c] += exp::<M, F>(x[c] - max[c]);
            }
        }
        [max, sum.map(|sum| F::ONE / (sum + F::of(LEAST_SUM)))]
    }

    #[inline(always)]
    fn formula<M: Arith, F: Real>([x, _]: [F; 2], [max, share]: [F; 2]) -> F {
        exp::<M, F>(x - max) * share
    }
}

impl TwoSteps for Slope {
    /// `Σ y · dy`, once.
    #[inline(always)]
    fn summary<M: Arith, F: Real, const L: usize>(
        &self,
        segment: impl Iterator<Item = [[F; L]; 2]> + Clone,
        _: [F; L],
    ) -> [[F; L]; 2] {
        let mut sum = [F::ZERO; L];
        for [y, dy] in segment {
            for c in 0..L {
                sum[c] = M::mul_add(y[c], dy[c], sum[c]);
            }
        }
        [sum, sum]
    }

    #[inline(always)]
    fn formula<M: Arith, F: Real>([y, dy]: [F; 2], [mean, _]: [F; 2]) -> F {
        y * (dy - mean)
    }
}
