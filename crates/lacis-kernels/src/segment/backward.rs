//! The backward of a reduction: `dx_i = dy_s · ∂reduce/∂x_i`.
//!
//! ```text
//!   sum, mean   dx_i = dy_s (/ count)
//!   max, min    split:  dx_i = [x_i = y_s] · dy_s / number of equals       nothing is stored
//!               first:  dx_i = [argument_s = i] · dy_s
//!   mul         dx_i = dy_s · (product of those before i) · (product of those after i)
//! ```
//! # Parallelism
//! Slices of items, for `mul` blocks of columns.
//! # Memory
//! Split: two numbers for each segment and column. Mul: one, and a pointer a row and 64 columns.

use lacis_core::error::same_size;
use lacis_core::reference::{Axis, Reduce, Ties};
use lacis_core::threads::ranges;
use lacis_core::{Error, Result, Threads};

use super::elements::products_of_others;
use super::items::{self, Problem, TwoSteps};
use super::reduce::Args;
use super::select;
use super::turn::{Begin, along_columns};
use crate::isa::{Arith, Isa};
use crate::matrix::{Mat, MatMut};
use crate::real::{Real, Stored};

/// Elements that one item of work writes.
const ITEM_ELEMENTS: usize = 1 << 17;

/// A gradient to compute, its sizes checked.
#[derive(Clone, Copy, Debug)]
pub struct Backward<'a, T = f32> {
    of: Args<'a, T>,
    ties: Ties,
    arguments: &'a [u32],
    grad: Mat<'a, T>,
}

impl<'a, T: Stored> Backward<'a, T> {
    /// For a reduction and the gradient of its result. [`Ties::FirstArgument`] of a maximum or
    /// minimum is by [`Backward::with_arguments`].
    ///
    /// # Errors
    /// When the gradient has not the shape of the result, or the rule needs arguments.
    pub fn new(of: Args<'a, T>, ties: Ties, grad: impl Into<Mat<'a, T>>) -> Result<Self> {
        let chooses = matches!(of.reduce, Reduce::Max | Reduce::Min);
        if chooses && ties == Ties::FirstArgument {
            let problem = "FirstArgument needs the arguments that the forward found";
            return Err(Error::argument("ties", problem));
        }
        Backward::checked(of, ties, &[], grad.into())
    }

    /// For a maximum or minimum whose arguments [`Args::run_with_argument`] found.
    ///
    /// # Errors
    /// When the gradient or the arguments have not the shape of the result.
    pub fn with_arguments(
        of: Args<'a, T>,
        arguments: &'a [u32],
        grad: impl Into<Mat<'a, T>>,
    ) -> Result<Self> {
        let (n_rows, n_cols) = of.shape();
        same_size("segment reduce", "number of arguments", n_rows * n_cols, arguments.len())?;
        Backward::checked(of, Ties::FirstArgument, arguments, grad.into())
    }

    fn checked(
        of: Args<'a, T>,
        ties: Ties,
        arguments: &'a [u32],
        grad: Mat<'a, T>,
    ) -> Result<Self> {
        of.check_result(["rows of the gradient", "columns of the gradient"], &grad)?;
        Ok(Backward { of, ties, arguments, grad })
    }

    /// Computes the gradient of `x` into `dx`.
    ///
    /// # Errors
    /// When `dx` has another shape than `x`.
    pub fn run<'y>(&self, isa: Isa, dx: impl Into<MatMut<'y, T>>, threads: &Threads) -> Result<()> {
        T::segment_reduce_backward(self, isa, dx.into(), threads)
    }

    pub(super) fn run_here(&self, isa: Isa, dx: MatMut<'_, T>, threads: &Threads) -> Result<()> {
        same_size("segment reduce", "rows of dx", self.of.x.n_rows, dx.n_rows)?;
        same_size("segment reduce", "columns of dx", self.of.x.n_cols, dx.n_cols)?;
        if dx.n_rows == 0 || dx.n_cols == 0 {
            return Ok(());
        }
        match (self.of.reduce, self.ties) {
            (Reduce::Sum, _) => self.selected(isa, None, dx, threads)?,
            (Reduce::Mean, _) => {
                let shares = self.shares(threads);
                self.selected(isa, Some(&shares), dx, threads)?;
            }
            (Reduce::Max | Reduce::Min, Ties::FirstArgument) => self.first(dx, threads),
            (Reduce::Max | Reduce::Min, _) => self.split(isa, dx, threads),
            (Reduce::Mul, _) => self.products(isa, dx, threads),
        }
        Ok(())
    }

    fn selected(
        &self,
        isa: Isa,
        shares: Option<&[T::Sum]>,
        dx: MatMut<'_, T>,
        threads: &Threads,
    ) -> Result<()> {
        let index = self.of.segments.index(threads);
        let args = select::Args::trusted(self.grad, &index, self.of.axis);
        let args = match shares {
            Some(shares) => args.scaled(shares)?,
            None => args,
        };
        args.run(isa, dx, threads)
    }

    /// One over the number of items of each segment.
    fn shares(&self, threads: &Threads) -> Vec<T::Sum> {
        self.of.segments.grouped(threads, |segments| {
            let count = |s| segments.members().map_or(0, |members| members.of(s).len());
            let share = |s| T::Sum::ONE / T::Sum::of(count(s).max(1) as f64);
            (0..segments.n()).map(share).collect()
        })
    }

    fn first(&self, dx: MatMut<'_, T>, threads: &Threads) {
        let index = &*self.of.segments.index(threads);
        let (grad, width) = (self.grad, self.grad.n_cols);
        let rows = ranges(dx.n_rows, (ITEM_ELEMENTS / dx.n_cols).max(1));
        let ends: Vec<usize> = rows.iter().map(|rows| rows.end).collect();
        let zero = T::narrow(T::Sum::ZERO);
        threads.for_each(rows.into_iter().zip(dx.split(&ends)).collect(), |(rows, mut dx)| {
            for i in rows.clone() {
                let dx = dx.row_mut(i - rows.start);
                // Along columns, a row of `dx` meets one row of the gradient.
                let at = if self.of.axis == Axis::Rows { index[i] as usize } else { i };
                let (grad, arguments) = (grad.row(at), &self.arguments[at * width..][..width]);
                match self.of.axis {
                    Axis::Rows => {
                        for (dx, (&grad, &argument)) in
                            dx.iter_mut().zip(grad.iter().zip(arguments))
                        {
                            *dx = if argument as usize == i { grad } else { zero };
                        }
                    }
                    Axis::Cols => {
                        for (j, (dx, &s)) in dx.iter_mut().zip(index).enumerate() {
                            let s = s as usize;
                            *dx = if arguments[s] as usize == j { grad[s] } else { zero };
                        }
                    }
                }
            }
        });
    }

    fn split(&self, isa: Isa, dx: MatMut<'_, T>, threads: &Threads) {
        let steps = Split {
            greatest: self.of.reduce == Reduce::Max,
            zero: self.ties == Ties::SplitWithInitialZero,
        };
        self.of.segments.grouped(threads, |segments| {
            let run = |x: Mat<'_, T>, grad: Mat<'_, T>, dx: MatMut<'_, T>, threads: &Threads| {
                let problem = Problem { segments, own: [x, x], given: Some(grad) };
                items::run(isa, (steps, problem), dx, threads);
            };
            match self.of.axis {
                Axis::Rows => run(self.of.x, self.grad, dx, threads),
                Axis::Cols => {
                    let inputs = [self.of.x, self.grad];
                    along_columns((isa, Begin::Unset), inputs, dx, threads, |[x, grad], dx, t| {
                        run(x, grad, dx, t);
                    });
                }
            }
        });
    }

    fn products(&self, isa: Isa, dx: MatMut<'_, T>, threads: &Threads) {
        let index = &*self.of.segments.index(threads);
        match self.of.axis {
            Axis::Rows => products_of_others((self.of.x, self.grad), index, dx, threads),
            Axis::Cols => {
                let inputs = [self.of.x, self.grad];
                along_columns(
                    (isa, Begin::Unset),
                    inputs,
                    dx,
                    threads,
                    |[x, grad], dx, threads| {
                        products_of_others((x, grad), index, dx, threads);
                    },
                );
            }
        }
    }
}

/// Equals share the gradient.
#[derive(Clone, Copy)]
struct Split {
    greatest: bool,
    zero: bool,
}

impl TwoSteps for Split {
    /// The extreme, and the share of the gradient of each item that equals it. Nothing equals
    /// NaN: shares of 0 items are infinite or NaN, and times 0 they are NaN, as torch has it.
    #[inline(always)]
    fn summary<M: Arith, F: Real, const L: usize>(
        &self,
        segment: impl Iterator<Item = [[F; L]; 2]> + Clone,
        grad: [F; L],
    ) -> [[F; L]; 2] {
        let neutral = if self.greatest { F::NEG_INFINITY } else { F::INFINITY };
        let mut best = [neutral; L];
        for [x, _] in segment.clone() {
            for (best, x) in best.iter_mut().zip(x) {
                *best = if self.greatest { best.greater(x) } else { best.lesser(x) };
            }
        }
        let mut equals =
            best.map(|best| if self.zero && best == F::ZERO { F::ONE } else { F::ZERO });
        for [x, _] in segment {
            for c in 0..L {
                equals[c] += if x[c] == best[c] { F::ONE } else { F::ZERO };
            }
        }
        let mut shares = grad;
        shares.iter_mut().zip(equals).for_each(|(share, equals)| *share = *share / equals);
        [best, shares]
    }

    #[inline(always)]
    fn formula<M: Arith, F: Real>([x, _]: [F; 2], [best, share]: [F; 2]) -> F {
        share * if x == best { F::ONE } else { F::ZERO }
    }
}
