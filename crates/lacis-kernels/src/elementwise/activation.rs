//! Activations and their slopes, over a strip of numbers.

use lacis_core::reference::Activation;

use crate::isa::Arith;
use crate::math::{exp, sigmoid, tanh};
use crate::real::Real;

/// `v = f(v)`.
#[inline(always)]
pub(crate) fn apply<M: Arith, F: Real>(activation: Activation, v: &mut [F]) {
    // Comparisons are such that NaN stays NaN.
    match activation {
        Activation::Identity => {}
        Activation::Relu => each(v, |x| if x <= F::ZERO { F::ZERO } else { x }),
        Activation::LeakyRelu(slope) => {
            let slope = F::of(slope);
            each(v, |x| if x <= F::ZERO { slope * x } else { x });
        }
        Activation::Elu(alpha) => {
            let alpha = F::of(alpha);
            each(v, |x| if x <= F::ZERO { alpha * exp_m1::<M, F>(x) } else { x });
        }
        Activation::Sigmoid => each(v, sigmoid::<M, F>),
        Activation::Tanh => each(v, tanh::<M, F>),
    }
}

/// Whether the slope can be told from the function's value.
pub(super) fn is_told_by_value(activation: Activation) -> bool {
    match activation {
        Activation::LeakyRelu(slope) => slope > 0.0,
        Activation::Elu(alpha) => alpha > 0.0,
        _ => true,
    }
}

/// `g = g · f'(x)`, from the argument `x`.
#[inline(always)]
pub(super) fn slope_at<M: Arith, F: Real>(activation: Activation, g: &mut [F], x: &[F]) {
    match activation {
        Activation::Elu(alpha) => {
            let alpha = F::of(alpha);
            both(g, x, |x| if x <= F::ZERO { alpha * exp::<M, F>(x) } else { F::ONE });
        }
        Activation::Sigmoid => both(g, x, |x| sigmoid::<M, F>(x) * sigmoid::<M, F>(-x)),
        Activation::Tanh => both(g, x, |x| {
            let y = tanh::<M, F>(x);
            F::ONE - y * y
        }),
        // Of these the value has the argument's sign.
        _ => slope_of::<F>(activation, g, x),
    }
}

/// `g = g · f'(x)`, from the value `y = f(x)`.
#[inline(always)]
pub(crate) fn slope_of<F: Real>(activation: Activation, g: &mut [F], y: &[F]) {
    match activation {
        Activation::Identity => {}
        Activation::Relu => both(g, y, |y| if y <= F::ZERO { F::ZERO } else { F::ONE }),
        Activation::LeakyRelu(slope) => {
            let slope = F::of(slope);
            both(g, y, |y| if y > F::ZERO { F::ONE } else { slope });
        }
        Activation::Elu(alpha) => {
            let alpha = F::of(alpha);
            both(g, y, |y| if y <= F::ZERO { y + alpha } else { F::ONE });
        }
        Activation::Sigmoid => both(g, y, |y| y * (F::ONE - y)),
        Activation::Tanh => both(g, y, |y| F::ONE - y * y),
    }
}

#[inline(always)]
fn each<F: Real>(v: &mut [F], f: impl Fn(F) -> F) {
    v.iter_mut().for_each(|v| *v = f(*v));
}

#[inline(always)]
fn both<F: Real>(g: &mut [F], x: &[F], slope: impl Fn(F) -> F) {
    g.iter_mut().zip(x).for_each(|(g, x)| *g *= slope(*x));
}

/// `eˣ − 1` for `x ≤ 0`, precise near 0 too: with `t = tanh(x/2)` it is `2t / (1 − t)`.
#[inline(always)]
fn exp_m1<M: Arith, F: Real>(x: F) -> F {
    let t = tanh::<M, F>(x * F::of(0.5));
    (t + t) / (F::ONE - t)
}
