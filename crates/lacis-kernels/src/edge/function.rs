//! Scalar functions of the two rows at an edge's ends.
//!
//! Most are a function of one number, the dot or the squared distance of the rows: [`Scalar`] says
//! which function, [`OfDot`] and [`OfSquaredDistance`] of what; their loops over features are
//! vectors. Any other is a [`RowFunction`].

use crate::isa::Arith;
use crate::math;
use crate::real::{Real, Stored};
use crate::rows::{Chunks, Lanes, Product, SquaredDifference, add_slopes, sums};

/// A function of one number.
pub trait Scalar: Copy + Send + Sync {
    /// `f(s)`.
    fn value<M: Arith, F: Real>(self, s: F) -> F;
    /// `f'(s)`.
    fn slope<M: Arith, F: Real>(self, s: F) -> F;
}

/// A function of the rows `x` of an edge's target and `z` of its source that is not one of their
/// dot or distance.
pub trait RowFunction<F: Real>: Copy + Send + Sync {
    /// `f(x, z)`.
    fn value(self, x: &[F], z: &[F]) -> F;
    /// Adds `scale · ∂f/∂x` to `dx`.
    fn add_target_gradient(self, ends: [&[F]; 2], scale: F, dx: &mut [F]);
    /// Adds `scale · ∂f/∂z` to `dz`.
    fn add_source_gradient(self, ends: [&[F]; 2], scale: F, dz: &mut [F]);
}

/// Which end of the edges the rows of a matrix are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Rows are targets, as of an adjacency.
    Target,
    /// Rows are sources, as of its transpose.
    Source,
}

/// The rows at the ends of `B` edges that share one end: that one's, the others', what counts of
/// their last vector, which end is shared, how wide they are.
pub struct Ends<'a, T: Stored, const B: usize> {
    pub(crate) own: &'a [Lanes<T::Sum>],
    pub(crate) rows: [Chunks<'a, T>; B],
    pub(crate) keep: &'a Lanes<T::Sum>,
    pub(crate) end: End,
    pub(crate) width: usize,
}

/// What a fused edge kernel needs of a function; made by [`OfDot`], [`OfSquaredDistance`] and
/// [`OfRows`].
pub trait EdgeFunction<T: Stored>: Copy + Send + Sync {
    /// The number that value and slope are functions of, for each edge.
    fn inner<M: Arith, const B: usize>(self, ends: &Ends<'_, T, B>) -> [T::Sum; B];
    /// The function's value.
    fn value<M: Arith>(self, inner: T::Sum) -> T::Sum;
    /// Adds `Σ_b scale_b · ∂f_b/∂own` to `sums`, given the inner numbers.
    fn add_gradients<M: Arith, const B: usize>(
        self,
        ends: &Ends<'_, T, B>,
        inner: [T::Sum; B],
        scales: [T::Sum; B],
        sums: &mut [Lanes<T::Sum>],
    );
}

/// `s` itself.
#[derive(Clone, Copy, Debug)]
pub struct Identity;

impl Scalar for Identity {
    #[inline(always)]
    fn value<M: Arith, F: Real>(self, s: F) -> F {
        s
    }

    #[inline(always)]
    fn slope<M: Arith, F: Real>(self, _: F) -> F {
        F::ONE
    }
}

/// `1 / (1 + e^-s)`.
#[derive(Clone, Copy, Debug)]
pub struct Sigmoid;

impl Scalar for Sigmoid {
    #[inline(always)]
    fn value<M: Arith, F: Real>(self, s: F) -> F {
        math::sigmoid::<M, F>(s)
    }

    #[inline(always)]
    fn slope<M: Arith, F: Real>(self, s: F) -> F {
        math::sigmoid::<M, F>(s) * math::sigmoid::<M, F>(-s)
    }
}

/// `f(x · z)`.
#[derive(Clone, Copy, Debug)]
pub struct OfDot<S>(pub S);

/// `f(|x - z|²)`.
#[derive(Clone, Copy, Debug)]
pub struct OfSquaredDistance<S>(pub S);

/// `f(x, z)`.
#[derive(Clone, Copy, Debug)]
pub struct OfRows<R>(pub R);

/// `σ(x · z)`.
pub const SIGMOID_OF_DOT: OfDot<Sigmoid> = OfDot(Sigmoid);
/// `|x - z|²`.
pub const SQUARED_DISTANCE: OfSquaredDistance<Identity> = OfSquaredDistance(Identity);

macro_rules! of_terms {
    ($type:ident, $term:ty) => {
        impl<T: Stored, S: Scalar> EdgeFunction<T> for $type<S> {
            #[inline(always)]
            fn inner<M: Arith, const B: usize>(self, ends: &Ends<'_, T, B>) -> [T::Sum; B] {
                sums::<M, T, $term, B>(ends.own, ends.rows, ends.keep)
            }

            #[inline(always)]
            fn value<M: Arith>(self, inner: T::Sum) -> T::Sum {
                self.0.value::<M, T::Sum>(inner)
            }

            #[inline(always)]
            fn add_gradients<M: Arith, const B: usize>(
                self,
                ends: &Ends<'_, T, B>,
                inner: [T::Sum; B],
                mut scales: [T::Sum; B],
                sums: &mut [Lanes<T::Sum>],
            ) {
                for b in 0..B {
                    scales[b] *= self.0.slope::<M, T::Sum>(inner[b]);
                }
                add_slopes::<M, T, $term, B>(sums, ends.own, scales, ends.rows);
            }
        }
    };
}

of_terms!(OfDot, Product);
of_terms!(OfSquaredDistance, SquaredDifference);

impl<F: Real, R: RowFunction<F>> EdgeFunction<F> for OfRows<R> {
    #[inline(always)]
    fn inner<M: Arith, const B: usize>(self, ends: &Ends<'_, F, B>) -> [F; B] {
        std::array::from_fn(|b| {
            let [x, z] = ends.of(b);
            self.0.value(x, z)
        })
    }

    #[inline(always)]
    fn value<M: Arith>(self, inner: F) -> F {
        inner
    }

    #[inline(always)]
    fn add_gradients<M: Arith, const B: usize>(
        self,
        ends: &Ends<'_, F, B>,
        _: [F; B],
        scales: [F; B],
        sums: &mut [Lanes<F>],
    ) {
        let sums = &mut sums.as_flattened_mut()[..ends.width];
        for (b, scale) in scales.into_iter().enumerate() {
            match ends.end {
                End::Target => self.0.add_target_gradient(ends.of(b), scale, sums),
                End::Source => self.0.add_source_gradient(ends.of(b), scale, sums),
            }
        }
    }
}

impl<F: Real, const B: usize> Ends<'_, F, B> {
    /// The rows of edge `b`'s target and source.
    #[inline(always)]
    fn of(&self, b: usize) -> [&[F]; 2] {
        let own = &self.own.as_flattened()[..self.width];
        let other = &self.rows[b].as_flattened()[..self.width];
        match self.end {
            End::Target => [own, other],
            End::Source => [other, own],
        }
    }
}
