//! Reductions of a row in vectors: 16 lanes apart, then the lanes by halves.

use crate::isa::Arith;
use crate::real::Real;

const LANES: usize = 16;

/// All numbers joined to one; `neutral` changes nothing.
#[inline(always)]
pub(crate) fn fold<F: Real>(row: &[F], neutral: F, join: impl Fn(F, F) -> F) -> F {
    let mut lanes = [neutral; LANES];
    let (chunks, rest) = row.as_chunks::<LANES>();
    for chunk in chunks {
        (0..LANES).for_each(|l| lanes[l] = join(lanes[l], chunk[l]));
    }
    rest.iter().zip(&mut lanes).for_each(|(x, lane)| *lane = join(*lane, *x));
    halves(lanes, join)
}

/// The sum.
#[inline(always)]
pub(crate) fn sum<F: Real>(row: &[F]) -> F {
    fold(row, F::ZERO, |a, b| a + b)
}

/// The greatest; NaN if there is one.
#[inline(always)]
pub(crate) fn max<F: Real>(row: &[F]) -> F {
    fold(row, F::NEG_INFINITY, F::greater)
}

/// `Σ x·z`.
#[inline(always)]
pub(crate) fn dot<M: Arith, F: Real>(x: &[F], z: &[F]) -> F {
    let mut lanes = [F::ZERO; LANES];
    let (chunks, rest) = x.as_chunks::<LANES>();
    let (others, other_rest) = z.as_chunks::<LANES>();
    for (x, z) in chunks.iter().zip(others) {
        (0..LANES).for_each(|l| lanes[l] = M::mul_add(x[l], z[l], lanes[l]));
    }
    for ((x, z), lane) in rest.iter().zip(other_rest).zip(&mut lanes) {
        *lane = M::mul_add(*x, *z, *lane);
    }
    halves(lanes, |a, b| a + b)
}

#[inline(always)]
fn halves<F: Real>(mut lanes: [F; LANES], join: impl Fn(F, F) -> F) -> F {
    for half in [8, 4, 2, 1] {
        for l in 0..half {
            lanes[l] = join(lanes[l], lanes[l + half]);
        }
    }
    lanes[0]
}
