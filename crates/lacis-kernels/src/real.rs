//! Numbers: [`Real`] is what kernels compute in, [`Stored`] what matrices keep.
//!
//! Features and activations may be stored in bf16; everything is added in f32, or in f64 where
//! they are stored in f64.

use std::fmt::Debug;
use std::ops::{Add, AddAssign, Div, Mul, MulAssign, Neg, Sub};

use half::bf16;
use lacis_core::Element;

use crate::isa::Arith;
use crate::{
    attention, edge_softmax, elementwise, loss, math, norm, sddmm, segment, softmax, spmm,
};

/// A floating-point type to compute in: `f32` or `f64`.
pub trait Real:
    Stored<Sum = Self>
    + PartialOrd
    + Default
    + Add<Output = Self>
    + Sub<Output = Self>
    + Mul<Output = Self>
    + Div<Output = Self>
    + Neg<Output = Self>
    + AddAssign
    + MulAssign
{
    /// 0.
    const ZERO: Self;
    /// 1.
    const ONE: Self;
    /// Greater than all others.
    const INFINITY: Self;
    /// Less than all others.
    const NEG_INFINITY: Self;
    /// The distance from 1 to the next number.
    const EPSILON: Self;

    /// The nearest number of this type.
    fn of(value: f64) -> Self;
    /// `self·b + c`, rounded once. A library call where the instruction set has none: bodies call
    /// [`Arith::mul_add`].
    fn fused(self, b: Self, c: Self) -> Self;
    /// `√self`.
    fn sqrt(self) -> Self;
    /// Its magnitude.
    fn abs(self) -> Self;
    /// `e^self`; for `f32` such that the compiler makes vectors of it.
    fn exp_by<M: Arith>(self) -> Self;
    /// The hyperbolic tangent, likewise.
    fn tanh_by<M: Arith>(self) -> Self;
    /// The natural logarithm.
    fn ln(self) -> Self;
    /// Whether it is not a number.
    fn is_nan(self) -> bool;
    /// Values of a matrix, which are `f32`, where they need no conversion.
    fn values(values: &[f32]) -> Option<&[Self]>;

    /// The greater; NaN, once met, stays.
    #[inline(always)]
    fn greater(self, other: Self) -> Self {
        // A comparison with NaN is false.
        let greater = if self > other { self } else { other };
        if self.is_nan() { self } else { greater }
    }

    /// The lesser; NaN, once met, stays.
    #[inline(always)]
    fn lesser(self, other: Self) -> Self {
        let lesser = if self < other { self } else { other };
        if self.is_nan() { self } else { lesser }
    }
}

/// All that is compiled once for each number type.
#[doc(hidden)]
pub trait Compiled:
    attention::Once
    + edge_softmax::Once
    + elementwise::Once
    + loss::Once
    + norm::Once
    + sddmm::Once
    + segment::Once
    + softmax::Once
    + spmm::Once
{
}

impl Compiled for f32 {}
impl Compiled for f64 {}
impl Compiled for bf16 {}

/// A type that matrices are stored in, and what sums of it are kept in.
pub trait Stored: Element + Copy + Debug + Send + Sync + Compiled {
    /// `f32`, or `f64` for `f64`.
    type Sum: Real;
    /// The same number, to compute with.
    fn wide(self) -> Self::Sum;
    /// The nearest number that can be stored.
    fn narrow(sum: Self::Sum) -> Self;
    /// The same memory, where numbers are stored as they are computed with.
    fn as_sums(stored: &mut [Self]) -> Option<&mut [Self::Sum]>;
}

macro_rules! real {
    ($type:ty, $exp:expr, $tanh:expr, $values:expr) => {
        impl Real for $type {
            const ZERO: Self = 0.0;
            const ONE: Self = 1.0;
            const INFINITY: Self = <$type>::INFINITY;
            const NEG_INFINITY: Self = <$type>::NEG_INFINITY;
            const EPSILON: Self = <$type>::EPSILON;

            #[inline(always)]
            fn of(value: f64) -> Self {
                value as $type
            }
            #[inline(always)]
            fn fused(self, b: Self, c: Self) -> Self {
                self.mul_add(b, c)
            }
            #[inline(always)]
            fn sqrt(self) -> Self {
                <$type>::sqrt(self)
            }
            #[inline(always)]
            fn abs(self) -> Self {
                <$type>::abs(self)
            }
            #[inline(always)]
            fn exp_by<M: Arith>(self) -> Self {
                $exp(self)
            }
            #[inline(always)]
            fn tanh_by<M: Arith>(self) -> Self {
                $tanh(self)
            }
            #[inline(always)]
            fn ln(self) -> Self {
                <$type>::ln(self)
            }
            #[inline(always)]
            fn is_nan(self) -> bool {
                <$type>::is_nan(self)
            }
            fn values(values: &[f32]) -> Option<&[Self]> {
                $values(values)
            }
        }

        impl Stored for $type {
            type Sum = $type;
            #[inline(always)]
            fn wide(self) -> Self {
                self
            }
            #[inline(always)]
            fn narrow(sum: Self) -> Self {
                sum
            }
            #[inline(always)]
            fn as_sums(stored: &mut [Self]) -> Option<&mut [Self]> {
                Some(stored)
            }
        }
    };
}

real!(f32, math::exp32::<M>, math::tanh32::<M>, Some);
real!(f64, f64::exp, f64::tanh, |_| None);

impl Stored for bf16 {
    type Sum = f32;

    #[inline(always)]
    fn wide(self) -> f32 {
        f32::from_bits(u32::from(self.to_bits()) << 16)
    }

    /// The nearest, ties to even: the carry of half the last bit. Without branches, so that the
    /// compiler makes vectors of it.
    #[inline(always)]
    fn narrow(sum: f32) -> bf16 {
        let bits = sum.to_bits();
        let rounded = bits.wrapping_add(0x7fff + ((bits >> 16) & 1));
        // A carry must not make an infinity of a NaN.
        let kept = if sum.is_nan() { bits | 0x0040_0000 } else { rounded };
        bf16::from_bits((kept >> 16) as u16)
    }

    #[inline(always)]
    fn as_sums(_: &mut [bf16]) -> Option<&mut [f32]> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bf16_is_rounded_as_the_half_crate_does() {
        let bits = (0..1u64 << 32).step_by(65_521).chain([0x7f80_0001, 0xff80_0000, 0x7f7f_ffff]);
        for bits in bits {
            let number = f32::from_bits(bits as u32);
            let (ours, theirs) = (bf16::narrow(number), bf16::from_f32(number));
            assert!(ours == theirs || ours.is_nan() && theirs.is_nan(), "{number:e}");
            assert_eq!(ours.is_nan(), number.is_nan());
            let same = ours.wide() == theirs.to_f32();
            assert!(same || number.is_nan());
        }
    }
}
