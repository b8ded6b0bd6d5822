//! What a row is made of: the weight of each entry, and how a weighted row of `x` joins the others.

use super::Args;
use crate::isa::Arith;
use crate::lanes::LANES;
use crate::real::{Real, Stored};

/// What an entry's row of `x` is multiplied by.
pub(super) trait Weights: Copy {
    fn at<T: Stored>(args: &Args<'_, T>, e: usize, j: usize) -> T::Sum;

    /// The weights of entries side by side, from `e` on.
    #[inline(always)]
    fn of_chunk<T: Stored>(args: &Args<'_, T>, e: usize, cols: &[u32; LANES]) -> [T::Sum; LANES] {
        let mut weights = [T::Sum::ONE; LANES];
        for l in 0..LANES {
            weights[l] = Self::at(args, e + l, cols[l] as usize);
        }
        weights
    }
}

/// All ones.
#[derive(Clone, Copy)]
pub(super) struct Ones;
/// The matrix's values.
#[derive(Clone, Copy)]
pub(super) struct Values;
/// The right factors, and the values where there are any.
#[derive(Clone, Copy)]
pub(super) struct Scaled;

impl Weights for Ones {
    #[inline(always)]
    fn at<T: Stored>(_: &Args<'_, T>, _: usize, _: usize) -> T::Sum {
        T::Sum::ONE
    }
}

impl Weights for Values {
    #[inline(always)]
    fn at<T: Stored>(args: &Args<'_, T>, e: usize, _: usize) -> T::Sum {
        args.values.map_or(T::Sum::ONE, |values| values[e])
    }

    #[inline(always)]
    fn of_chunk<T: Stored>(args: &Args<'_, T>, e: usize, _: &[u32; LANES]) -> [T::Sum; LANES] {
        args.values
            .and_then(|values| values[e..].first_chunk())
            .copied()
            .unwrap_or([T::Sum::ONE; LANES])
    }
}

impl Weights for Scaled {
    #[inline(always)]
    fn at<T: Stored>(args: &Args<'_, T>, e: usize, j: usize) -> T::Sum {
        let right = args.right.map_or(T::Sum::ONE, |right| right[j]);
        Values::at(args, e, j) * right
    }
}

/// How a weighted row of `x` joins what a row has so far.
pub(super) trait Join: Copy {
    /// What joining changes nothing of.
    fn neutral<F: Real>() -> F;
    fn weighted<M: Arith, F: Real>(so_far: F, weight: F, x: F) -> F;
    fn together<F: Real>(a: F, b: F) -> F;
    /// Whether [`Join::quick`] may forget a NaN that it met before.
    const FORGETS: bool = false;
    /// As [`Join::weighted`], in fewer instructions where that may forget.
    #[inline(always)]
    fn quick<M: Arith, F: Real>(so_far: F, weight: F, x: F) -> F {
        Self::weighted::<M, F>(so_far, weight, x)
    }
    /// What a row without entries has.
    fn of_nothing<F: Real>() -> F {
        F::ZERO
    }
}

#[derive(Clone, Copy)]
pub(super) struct Sum;
#[derive(Clone, Copy)]
pub(super) struct Max;
#[derive(Clone, Copy)]
pub(super) struct Min;
#[derive(Clone, Copy)]
pub(super) struct Mul;

impl Join for Sum {
    #[inline(always)]
    fn neutral<F: Real>() -> F {
        F::ZERO
    }
    #[inline(always)]
    fn weighted<M: Arith, F: Real>(so_far: F, weight: F, x: F) -> F {
        M::mul_add(weight, x, so_far)
    }
    #[inline(always)]
    fn together<F: Real>(a: F, b: F) -> F {
        a + b
    }
}

impl Join for Max {
    #[inline(always)]
    fn neutral<F: Real>() -> F {
        F::NEG_INFINITY
    }
    #[inline(always)]
    fn weighted<M: Arith, F: Real>(so_far: F, weight: F, x: F) -> F {
        so_far.greater(weight * x)
    }
    const FORGETS: bool = true;
    #[inline(always)]
    fn quick<M: Arith, F: Real>(so_far: F, weight: F, x: F) -> F {
        let term = weight * x;
        if so_far > term { so_far } else { term }
    }
    #[inline(always)]
    fn together<F: Real>(a: F, b: F) -> F {
        a.greater(b)
    }
}

impl Join for Min {
    #[inline(always)]
    fn neutral<F: Real>() -> F {
        F::INFINITY
    }
    #[inline(always)]
    fn weighted<M: Arith, F: Real>(so_far: F, weight: F, x: F) -> F {
        so_far.lesser(weight * x)
    }
    const FORGETS: bool = true;
    #[inline(always)]
    fn quick<M: Arith, F: Real>(so_far: F, weight: F, x: F) -> F {
        let term = weight * x;
        if so_far < term { so_far } else { term }
    }
    #[inline(always)]
    fn together<F: Real>(a: F, b: F) -> F {
        a.lesser(b)
    }
}

impl Join for Mul {
    #[inline(always)]
    fn neutral<F: Real>() -> F {
        F::ONE
    }
    #[inline(always)]
    fn weighted<M: Arith, F: Real>(so_far: F, weight: F, x: F) -> F {
        so_far * (weight * x)
    }
    #[inline(always)]
    fn together<F: Real>(a: F, b: F) -> F {
        a * b
    }
    fn of_nothing<F: Real>() -> F {
        F::ONE
    }
}
