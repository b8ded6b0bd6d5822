//! What becomes of a finished sum on its way to memory: no second pass over the result.

use lacis_core::reference::Activation;

use super::tile::LANES;
use crate::isa::Arith;
use crate::math;
use crate::real::{Real, Stored};

/// Whether a product replaces what is there or is added to it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Accum {
    /// `y = …`.
    #[default]
    Replace,
    /// `y = y + …`.
    Add,
}

/// `y = f(sum + y + b)`, the last two where asked for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Finish<'a, F> {
    pub accum: Accum,
    pub bias: Option<&'a [F]>,
    pub activation: Activation,
}

impl<F> Finish<'_, F> {
    /// Just the sum.
    pub const PLAIN: Self =
        Finish { accum: Accum::Replace, bias: None, activation: Activation::Identity };
}

impl<F: Real> Finish<'_, F> {
    /// Writes as many sums as `y` has room for; `y` begins at column `col` of the result.
    #[inline(always)]
    pub fn store<M: Arith, O: Stored<Sum = F>, const V: usize>(
        &self,
        sums: &[[F; LANES]; V],
        y: &mut [O],
        col: usize,
    ) {
        let plain = self.accum == Accum::Replace
            && self.bias.is_none()
            && self.activation == Activation::Identity;
        if plain {
            write(sums, y);
            return;
        }
        let mut sums = *sums;
        let flat = &mut sums.as_flattened_mut()[..y.len()];
        if self.accum == Accum::Add {
            flat.iter_mut().zip(&*y).for_each(|(sum, y)| *sum += y.wide());
        }
        if let Some(bias) = self.bias {
            flat.iter_mut().zip(&bias[col..]).for_each(|(sum, b)| *sum += *b);
        }
        activate::<M, F>(self.activation, flat);
        write(&sums, y);
    }
}

/// Whole vectors where there is room for them.
#[inline(always)]
fn write<O: Stored, const V: usize>(sums: &[[O::Sum; LANES]; V], y: &mut [O]) {
    let (whole, rest) = y.as_chunks_mut::<LANES>();
    for (y, sums) in whole.iter_mut().zip(sums) {
        *y = sums.map(O::narrow);
    }
    if !rest.is_empty() {
        rest.iter_mut().zip(&sums[V - 1]).for_each(|(y, sum)| *y = O::narrow(*sum));
    }
}

/// The function of every number; NaN stays NaN.
#[inline(always)]
fn activate<M: Arith, F: Real>(activation: Activation, numbers: &mut [F]) {
    #[inline(always)]
    fn each<F: Real>(numbers: &mut [F], f: impl Fn(F) -> F) {
        numbers.iter_mut().for_each(|x| *x = f(*x));
    }
    match activation {
        Activation::Identity => {}
        Activation::Relu => each(numbers, |x| if x <= F::ZERO { F::ZERO } else { x }),
        Activation::LeakyRelu(slope) => {
            let slope = F::of(slope);
            each(numbers, |x| if x <= F::ZERO { slope * x } else { x });
        }
        Activation::Elu(alpha) => {
            let alpha = F::of(alpha);
            each(
                numbers,
                |x| {
                    if x <= F::ZERO { alpha * (math::exp::<M, F>(x) - F::ONE) } else { x }
                },
            );
        }
        Activation::Sigmoid => each(numbers, math::sigmoid::<M, F>),
        Activation::Tanh => each(numbers, math::tanh::<M, F>),
    }
}
