//! Optimizers: one step of Adam, AdamW and SGD over flat weights, in one pass.
//!
//! ```text
//!   Adam:   g ← g + λ·w            AdamW:  w ← w·(1 − lr·λ)
//!   both:   m ← β₁·m + (1 − β₁)·g               v ← β₂·v + (1 − β₂)·g²
//!           w ← w − lr/(1 − β₁ᵗ) · m / ( √v / √(1 − β₂ᵗ) + ε )
//!   SGD:    g ← g + λ·w            u ← μ·u + g      w ← w − lr·u
//! ```
//! # Parallelism
//! A thread does whole chunks of weights; their length is fixed.
//! # Accuracy
//! What does not depend on the weight is computed in f64.

use lacis_core::error::same_size;
use lacis_core::reference::{Adam, Decay, Sgd};
use lacis_core::{Error, Result, Threads};

use crate::isa::{Arith, Isa, per_isa};
use crate::real::Real;

/// Weights of a chunk: a layer's are some ten thousand, and every thread is to have some.
const CHUNK: usize = 1 << 13;

/// Weights, and what a step of Adam reads and writes with them.
#[derive(Debug)]
pub struct AdamSlices<'a, F> {
    /// `w`.
    pub weights: &'a mut [F],
    /// `g`.
    pub grad: &'a [F],
    /// `m`, zeros before the first step.
    pub first: &'a mut [F],
    /// `v`, likewise.
    pub second: &'a mut [F],
}

/// Step number `t` of Adam or AdamW; the first is 1.
///
/// # Errors
/// When the slices differ in length, or `t` is 0.
pub fn adam<F: Real>(
    isa: Isa,
    adam: &Adam,
    t: u64,
    slices: AdamSlices<'_, F>,
    threads: &Threads,
) -> Result<()> {
    let AdamSlices { weights, grad, first, second } = slices;
    same_size("adam", "length of the gradient", weights.len(), grad.len())?;
    same_size("adam", "length of the first moment", weights.len(), first.len())?;
    same_size("adam", "length of the second moment", weights.len(), second.len())?;
    if t == 0 {
        return Err(Error::argument("adam", "step 0 does not exist; the first is 1"));
    }
    let numbers = AdamNumbers::<F>::new(adam, t);
    let states = first.chunks_mut(CHUNK).zip(second.chunks_mut(CHUNK));
    let chunks = weights.chunks_mut(CHUNK).zip(grad.chunks(CHUNK)).zip(states);
    let parts = chunks.map(|((weights, grad), (first, second))| {
        (AdamSlices { weights, grad, first, second }, numbers)
    });
    threads.for_each(parts.collect(), |part| adam_part(isa, part));
    Ok(())
}

/// What a step multiplies by.
#[derive(Clone, Copy, Debug)]
struct AdamNumbers<F> {
    coupled: F,
    shrink: F,
    betas: [F; 2],
    rest: [F; 2],
    rate: F,
    root: F,
    eps: F,
}

impl<F: Real> AdamNumbers<F> {
    fn new(adam: &Adam, t: u64) -> Self {
        let [c1, c2] = adam.betas.map(|beta| 1.0 - beta.powf(t as f64));
        let (coupled, shrink) = match adam.decay {
            Decay::Coupled => (adam.weight_decay, 1.0),
            Decay::Decoupled => (0.0, 1.0 - adam.rate * adam.weight_decay),
        };
        AdamNumbers {
            coupled: F::of(coupled),
            shrink: F::of(shrink),
            betas: adam.betas.map(F::of),
            rest: adam.betas.map(|beta| F::of(1.0 - beta)),
            rate: F::of(-adam.rate / c1),
            root: F::of(1.0 / c2.sqrt()),
            eps: F::of(adam.eps),
        }
    }
}

per_isa!(fn adam_part<[F: Real], []>(part: (AdamSlices<'_, F>, AdamNumbers<F>)) = adam_body);

#[inline(always)]
fn adam_body<M: Arith, F: Real>((slices, by): (AdamSlices<'_, F>, AdamNumbers<F>)) {
    let AdamSlices { weights, grad, first, second } = slices;
    let states = first.iter_mut().zip(second);
    for ((w, g), (m, v)) in weights.iter_mut().zip(grad).zip(states) {
        let g = M::mul_add(by.coupled, *w, *g);
        *m = M::mul_add(by.betas[0], *m, by.rest[0] * g);
        *v = M::mul_add(by.betas[1], *v, by.rest[1] * g * g);
        let divisor = M::mul_add(v.sqrt(), by.root, by.eps);
        *w = M::mul_add(by.rate, *m / divisor, *w * by.shrink);
    }
}

/// One step of stochastic gradient descent. The velocity, zeros before the first step, may be
/// absent where the momentum is 0.
///
/// # Errors
/// When the slices differ in length, or a momentum has no velocity.
pub fn sgd<F: Real>(
    isa: Isa,
    sgd: &Sgd,
    (weights, grad): (&mut [F], &[F]),
    velocity: Option<&mut [F]>,
    threads: &Threads,
) -> Result<()> {
    same_size("sgd", "length of the gradient", weights.len(), grad.len())?;
    let numbers = [sgd.weight_decay, sgd.momentum, -sgd.rate].map(F::of);
    let chunks = weights.chunks_mut(CHUNK).zip(grad.chunks(CHUNK));
    match velocity {
        None if sgd.momentum != 0.0 => {
            Err(Error::argument("sgd", "a momentum needs a velocity to keep"))
        }
        None => {
            let parts = chunks.map(|(w, g)| (w, g, None, numbers)).collect();
            threads.for_each(parts, |part| sgd_part(isa, part));
            Ok(())
        }
        Some(velocity) => {
            same_size("sgd", "length of the velocity", grad.len(), velocity.len())?;
            let chunks = chunks.zip(velocity.chunks_mut(CHUNK));
            let parts = chunks.map(|((w, g), u)| (w, g, Some(u), numbers)).collect();
            threads.for_each(parts, |part| sgd_part(isa, part));
            Ok(())
        }
    }
}

/// Weights, gradient, velocity; decay, momentum, the rate's negative.
type SgdPart<'a, F> = (&'a mut [F], &'a [F], Option<&'a mut [F]>, [F; 3]);

per_isa!(fn sgd_part<[F: Real], []>(part: SgdPart<'_, F>) = sgd_body);

#[inline(always)]
fn sgd_body<M: Arith, F: Real>((w, grad, velocity, by): SgdPart<'_, F>) {
    let [decay, momentum, rate] = by;
    match velocity {
        None => w.iter_mut().zip(grad).for_each(|(w, g)| {
            *w = M::mul_add(rate, M::mul_add(decay, *w, *g), *w);
        }),
        Some(velocity) => w.iter_mut().zip(grad).zip(velocity).for_each(|((w, g), u)| {
            *u = M::mul_add(momentum, *u, M::mul_add(decay, *w, *g));
            *w = M::mul_add(rate, *u, *w);
        }),
    }
}
