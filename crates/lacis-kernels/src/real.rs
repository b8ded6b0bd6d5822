//! Numbers: [`Real`] is what kernels compute in, [`Stored`] what matrices keep.
//!
//! Features and activations may be stored in bf16; everything is added in f32, or in f64 where
//! they are stored in f64.

use std::fmt::Debug;
use std::ops::{Add, AddAssign, Div, Mul, MulAssign, Neg, Sub};

use half::bf16;
use lacis_core::Element;

use crate::isa::Arith;
use crate::lanes::LANES;
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
    /// All bits set: what [`Real::masked`] leaves as it is.
    const ALL_BITS: Self;

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
    /// The same where `self` is at most 88.
    fn low_exp_by<M: Arith>(self) -> Self;
    /// The hyperbolic tangent, likewise.
    fn tanh_by<M: Arith>(self) -> Self;
    /// The natural logarithm, likewise.
    fn ln_by<M: Arith>(self) -> Self;
    /// The natural logarithm.
    fn ln(self) -> Self;
    /// Whether it is not a number.
    fn is_nan(self) -> bool;
    /// The bits that are set in both: 0 where the mask is 0, whatever the number.
    fn masked(self, mask: Self) -> Self;
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
    /// Two vectors to compute with, in the order that takes the fewest instructions.
    fn wide_pair(stored: &[[Self; LANES]; 2]) -> [[Self::Sum; LANES]; 2];
    /// What is in that order, in the order of columns.
    fn ordered(pair: [[Self::Sum; LANES]; 2]) -> [[Self::Sum; LANES]; 2];
    /// What is in that order as it is stored, each the nearest number that can be.
    fn narrow_pair(pair: &[[Self::Sum; LANES]; 2]) -> [[Self; LANES]; 2];
}

macro_rules! real {
    ($type:ty, $exp:expr, $low_exp:expr, $tanh:expr, $ln:expr, $values:expr) => {
        impl Real for $type {
            const ZERO: Self = 0.0;
            const ONE: Self = 1.0;
            const INFINITY: Self = <$type>::INFINITY;
            const NEG_INFINITY: Self = <$type>::NEG_INFINITY;
            const EPSILON: Self = <$type>::EPSILON;
            const ALL_BITS: Self = <$type>::from_bits(!0);

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
            fn low_exp_by<M: Arith>(self) -> Self {
                $low_exp(self)
            }
            #[inline(always)]
            fn tanh_by<M: Arith>(self) -> Self {
                $tanh(self)
            }
            #[inline(always)]
            fn ln_by<M: Arith>(self) -> Self {
                $ln(self)
            }
            #[inline(always)]
            fn ln(self) -> Self {
                <$type>::ln(self)
            }
            #[inline(always)]
            fn is_nan(self) -> bool {
                <$type>::is_nan(self)
            }
            #[inline(always)]
            fn masked(self, mask: Self) -> Self {
                <$type>::from_bits(self.to_bits() & mask.to_bits())
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
            #[inline(always)]
            fn wide_pair(stored: &[[Self; LANES]; 2]) -> [[Self; LANES]; 2] {
                *stored
            }
            #[inline(always)]
            fn ordered(pair: [[Self; LANES]; 2]) -> [[Self; LANES]; 2] {
                pair
            }
            #[inline(always)]
            fn narrow_pair(pair: &[[Self; LANES]; 2]) -> [[Self; LANES]; 2] {
                *pair
            }
        }
    };
}

real!(f32, math::exp32::<M>, math::low_exp32::<M>, math::tanh32::<M>, math::ln32::<M>, Some);
real!(f64, f64::exp, f64::exp, f64::tanh, f64::ln, |_| None);

/// A number whose upper half is the nearest bf16, ties to even: the carry of half the last bit.
/// Without branches, so that the compiler makes vectors of it.
#[inline(always)]
fn rounded(sum: f32) -> u32 {
    let bits = sum.to_bits();
    let rounded = bits.wrapping_add(0x7fff + ((bits >> 16) & 1));
    // A carry must not make an infinity of a NaN.
    if sum.is_nan() { bits | 0x0040_0000 } else { rounded }
}

impl Stored for bf16 {
    type Sum = f32;

    #[inline(always)]
    fn wide(self) -> f32 {
        f32::from_bits(u32::from(self.to_bits()) << 16)
    }

    #[inline(always)]
    fn narrow(sum: f32) -> bf16 {
        bf16::from_bits((rounded(sum) >> 16) as u16)
    }

    #[inline(always)]
    fn as_sums(_: &mut [bf16]) -> Option<&mut [f32]> {
        None
    }

    /// Two neighbours are the halves of a word: those at even places, then those at odd ones.
    #[inline(always)]
    #[allow(
        clippy::needless_range_loop,
        reason = "of iterators the compiler makes narrower vectors"
    )]
    fn wide_pair(stored: &[[bf16; LANES]; 2]) -> [[f32; LANES]; 2] {
        let words: [u32; LANES] = bytemuck::cast(*stored);
        let mut halves = [[0.0; LANES]; 2];
        let (low, high) = if cfg!(target_endian = "little") { (0, 1) } else { (1, 0) };
        for l in 0..LANES {
            halves[low][l] = f32::from_bits(words[l] << 16);
            halves[high][l] = f32::from_bits(words[l] & 0xffff_0000);
        }
        halves
    }

    #[inline(always)]
    #[allow(
        clippy::needless_range_loop,
        reason = "of iterators the compiler makes narrower vectors"
    )]
    fn narrow_pair(pair: &[[f32; LANES]; 2]) -> [[bf16; LANES]; 2] {
        let (low, high) = if cfg!(target_endian = "little") { (0, 1) } else { (1, 0) };
        let mut words = [0; LANES];
        for l in 0..LANES {
            words[l] = rounded(pair[low][l]) >> 16 | rounded(pair[high][l]) & 0xffff_0000;
        }
        bytemuck::cast(words)
    }

    #[inline(always)]
    fn ordered(pair: [[f32; LANES]; 2]) -> [[f32; LANES]; 2] {
        let mut columns = [[0.0; LANES]; 2];
        for (at, column) in columns.as_flattened_mut().iter_mut().enumerate() {
            *column = pair[at % 2][at / 2];
        }
        columns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_of_vectors_come_back_in_order() {
        let stored: [[bf16; LANES]; 2] =
            [0, 1].map(|v| std::array::from_fn(|l| bf16::narrow((v * LANES + l) as f32 - 7.0)));
        let wide = stored.map(|vector| vector.map(Stored::wide));
        assert_eq!(bf16::ordered(bf16::wide_pair(&stored)), wide);
        assert_eq!(bf16::narrow_pair(&bf16::wide_pair(&stored)), stored);
        assert_eq!(f32::ordered(f32::wide_pair(&wide)), wide);
        assert_eq!(f32::narrow_pair(&wide), wide);
    }

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
