//! Functions that the compiler makes vectors of: no branch, no table, no call.

use crate::isa::Arith;
use crate::real::Real;

/// Below it, `e^x` would be subnormal.
const LEAST_POWER: f32 = -87.336_54;

/// `e^x`, within 2 units in the last place for `f32`; 0 where the result would be subnormal.
#[inline(always)]
pub fn exp32<M: Arith>(x: f32) -> f32 {
    let within = if x < LEAST_POWER { LEAST_POWER } else { x };
    let within = if within > 88.722_83 { 88.722_83 } else { within };
    let (power, n) = power32::<M>(within);
    // 2^n in two factors, for n from -126 to 128.
    let result = power * two_to(n >> 1) * two_to(n - (n >> 1));
    let result = if x < LEAST_POWER { 0.0 } else { result };
    let result = if x > 88.722_83 { f32::INFINITY } else { result };
    if x.is_nan() { x } else { result }
}

/// The same for `x` of at most 88, in two thirds of the instructions.
#[inline(always)]
pub fn low_exp32<M: Arith>(x: f32) -> f32 {
    let within = if x < LEAST_POWER { LEAST_POWER } else { x };
    let (power, n) = power32::<M>(within);
    let result = power * two_to(n);
    if x < LEAST_POWER { 0.0 } else { result }
}

/// `e^x` as `e^r` and `n`, with `x = n·ln 2 + r` and `|r| ≤ ln 2 / 2`: a polynomial gives `e^r`.
#[inline(always)]
fn power32<M: Arith>(x: f32) -> (f32, i32) {
    /// Adding and subtracting it leaves the nearest whole number.
    const WHOLE: f32 = 12_582_912.0;
    /// `ln 2` in two parts; the first has few enough bits for `n` times it to be exact.
    const LN_2: [f32; 2] = [0.693_359_4, -2.121_944_4e-4];
    /// Of `e^r` from `r⁶` down, minimal in the greatest error (Cephes, `expf`).
    const TERMS: [f32; 6] =
        [1.987_569_1e-4, 1.398_199_9e-3, 8.333_452e-3, 4.166_579_6e-2, 1.666_666_5e-1, 0.5];
    let shifted = M::mul_add(x, std::f32::consts::LOG2_E, WHOLE);
    let n = shifted - WHOLE;
    let r = M::mul_add(n, -LN_2[1], M::mul_add(n, -LN_2[0], x));
    let mut p = TERMS[0];
    for term in &TERMS[1..] {
        p = M::mul_add(p, r, *term);
    }
    let power = M::mul_add(p * r, r, r) + 1.0;
    // The last bits of `shifted` are n.
    (power, shifted.to_bits().wrapping_sub(WHOLE.to_bits()) as i32)
}

/// `2^n`, from the exponent's bits, for n from -126 to 127.
#[inline(always)]
fn two_to(n: i32) -> f32 {
    f32::from_bits((n.wrapping_add(127) as u32) << 23)
}

/// `ln x`, within 2 units in the last place, or of 1 where it is near 0, for `f32`; for subnormal
/// numbers that of the least normal one.
///
/// `x = m·2^n` with `m` from `√½` to `√2`; a polynomial gives `ln m`.
#[inline(always)]
pub fn ln32<M: Arith>(x: f32) -> f32 {
    /// `√½`, below which a mantissa is doubled.
    const LEAST: u32 = 0x3f35_04f3;
    /// `ln 2` in two parts; the first has few enough bits for `n` times it to be exact.
    const LN_2: [f32; 2] = [0.693_359_4, -2.121_944_4e-4];
    /// Of `(ln(1 + r) - r + r²/2) / r³`, from `r⁸` down (Cephes, `logf`).
    const TERMS: [f32; 9] = [
        7.037_683_6e-2,
        -1.151_461e-1,
        1.167_699_9e-1,
        -1.242_014_1e-1,
        1.424_932_3e-1,
        -1.666_805_8e-1,
        2.000_071_5e-1,
        -2.499_999_4e-1,
        3.333_333e-1,
    ];
    let normal = if x < f32::MIN_POSITIVE { f32::MIN_POSITIVE } else { x };
    let above = normal.to_bits().wrapping_sub(LEAST);
    let n = ((above as i32) >> 23) as f32;
    let m = f32::from_bits((above & 0x007f_ffff).wrapping_add(LEAST));
    let r = m - 1.0;
    let mut p = TERMS[0];
    for term in &TERMS[1..] {
        p = M::mul_add(p, r, *term);
    }
    let square = r * r;
    let rest = M::mul_add(p * r, square, M::mul_add(square, -0.5, n * LN_2[1]));
    let result = M::mul_add(n, LN_2[0], r + rest);
    let result = if x < f32::INFINITY { result } else { x };
    let result = if x > 0.0 { result } else { f32::NEG_INFINITY };
    if x < 0.0 || x.is_nan() { f32::NAN } else { result }
}

/// `ln x` for either type.
#[inline(always)]
pub fn ln<M: Arith, F: Real>(x: F) -> F {
    x.ln_by::<M>()
}

/// `e^x` for either type.
#[inline(always)]
pub fn exp<M: Arith, F: Real>(x: F) -> F {
    x.exp_by::<M>()
}

/// `e^x` for `x` of at most 88.
#[inline(always)]
pub fn low_exp<M: Arith, F: Real>(x: F) -> F {
    x.low_exp_by::<M>()
}

/// `1 / (1 + e^-x)`.
#[inline(always)]
pub fn sigmoid<M: Arith, F: Real>(x: F) -> F {
    F::ONE / (F::ONE + exp::<M, F>(-x))
}

/// `tanh x = 1 - 2 / (e^2x + 1)` within 1e-6 of itself; its series where that would cancel.
#[inline(always)]
pub fn tanh32<M: Arith>(x: f32) -> f32 {
    let far = 1.0 - 2.0 / (exp32::<M>(x + x) + 1.0);
    let s = x * x;
    let series = M::mul_add(s, -17.0 / 315.0, 2.0 / 15.0);
    let series = M::mul_add(s, series, -1.0 / 3.0);
    let near = M::mul_add(x * s, series, x);
    if x.abs() < 0.2 { near } else { far }
}

/// `tanh x` for either type.
#[inline(always)]
pub fn tanh<M: Arith, F: Real>(x: F) -> F {
    x.tanh_by::<M>()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::isa::{Fused, Split};

    #[test]
    fn exponentials_are_close_everywhere() {
        let mut x = -110.0f32;
        while x < 100.0 {
            let right = f64::from(x).exp();
            let low = if x < 88.0 { low_exp32::<Fused>(x) } else { exp32::<Fused>(x) };
            for found in [exp32::<Fused>(x), exp32::<Split>(x), low] {
                let wide = f64::from(found);
                let bound = right * 2.0 * f64::from(f32::EPSILON) + f64::from(f32::MIN_POSITIVE);
                let both_infinite = found.is_infinite() && right > f64::from(f32::MAX);
                assert!(both_infinite || (wide - right).abs() <= bound, "{x}: {found} {right}");
            }
            x += 0.003_17;
        }
        assert_eq!(exp32::<Fused>(f32::NEG_INFINITY), 0.0);
        assert_eq!(exp32::<Fused>(f32::INFINITY), f32::INFINITY);
        assert_eq!(exp32::<Fused>(0.0), 1.0);
        assert!(exp32::<Fused>(f32::NAN).is_nan());
        assert_eq!(low_exp32::<Fused>(f32::NEG_INFINITY), 0.0);
        assert_eq!(low_exp32::<Fused>(0.0), 1.0);
        assert!(low_exp32::<Fused>(f32::NAN).is_nan());
    }

    #[test]
    fn logarithms_are_close_everywhere() {
        let mut x = f32::MIN_POSITIVE;
        while x < f32::MAX / 1.01 {
            let right = f64::from(x).ln();
            for found in [ln32::<Fused>(x), ln32::<Split>(x)] {
                let bound = 2.0 * f64::from(f32::EPSILON) * right.abs().max(1.0);
                assert!((f64::from(found) - right).abs() <= bound, "{x}: {found} {right}");
            }
            x *= 1.000_37;
        }
        assert_eq!(ln32::<Fused>(1.0), 0.0);
        assert_eq!(ln32::<Fused>(f32::INFINITY), f32::INFINITY);
        assert_eq!(ln32::<Fused>(0.0), f32::NEG_INFINITY);
        assert!(ln32::<Fused>(-1.0).is_nan() && ln32::<Fused>(f32::NAN).is_nan());
    }

    #[test]
    fn hyperbolic_tangents_are_close_everywhere() {
        for i in -4000..4000 {
            let x = f64::from(i) * 0.0051;
            let single = tanh::<Fused, f32>(x as f32);
            let right = f64::from(x as f32).tanh();
            assert!((f64::from(single) - right).abs() <= 1e-6 * right.abs() + 1e-30, "{x}");
        }
    }
}
