//! Rows padded to whole vectors: no loop over them has a tail.
//!
//! A row of `k` numbers lies in a scratch of the next multiple of 16, filled up with numbers that
//! change nothing. Reductions keep 16 lanes apart, then join the lanes by halves.

use std::array::from_fn;

use crate::isa::Arith;
use crate::real::{Real, Stored};

/// Numbers of a vector, whatever the instruction set makes of it.
pub(crate) const LANES: usize = 16;

/// Scratch for a row of `k` numbers.
pub(crate) fn scratch<F: Real>(k: usize) -> Vec<F> {
    vec![F::ZERO; k.next_multiple_of(LANES)]
}

/// What is given per column, filled up with zeros.
pub(crate) fn padded<F: Real>(columns: &[F]) -> Vec<F> {
    let mut all = scratch(columns.len());
    all[..columns.len()].copy_from_slice(columns);
    all
}

/// Reads a row and fills it up.
#[inline(always)]
pub(crate) fn load_row<T: Stored>(row: &mut [T::Sum], x: &[T], fill: T::Sum) {
    let (row, rest) = row.split_at_mut(x.len());
    row.iter_mut().zip(x).for_each(|(v, x)| *v = x.wide());
    rest.fill(fill);
}

/// All numbers joined to one; `neutral` changes nothing.
#[inline(always)]
pub(crate) fn fold<F: Real>(row: &[F], neutral: F, join: impl Fn(F, F) -> F) -> F {
    let mut lanes = [neutral; LANES];
    for row in row.as_chunks::<LANES>().0 {
        for (lane, x) in lanes.iter_mut().zip(row) {
            *lane = join(*lane, *x);
        }
    }
    halves(lanes, join)
}

/// The sum.
#[inline(always)]
pub(crate) fn sum<F: Real>(row: &[F]) -> F {
    fold(row, F::ZERO, |a, b| a + b)
}

/// The greatest of those that are numbers.
#[inline(always)]
pub(crate) fn max<F: Real>(row: &[F]) -> F {
    fold(row, F::NEG_INFINITY, |a, b| if b > a { b } else { a })
}

/// `Σ x·z`.
#[inline(always)]
pub(crate) fn dot<M: Arith, F: Real>(x: &[F], z: &[F]) -> F {
    let mut lanes = [F::ZERO; LANES];
    for (x, z) in x.as_chunks::<LANES>().0.iter().zip(z.as_chunks::<LANES>().0) {
        for (lane, (x, z)) in lanes.iter_mut().zip(x.iter().zip(z)) {
            *lane = M::mul_add(*x, *z, *lane);
        }
    }
    halves(lanes, |a, b| a + b)
}

/// Written out, so that the lanes stay in registers.
#[inline(always)]
pub(crate) fn halves<F: Real>(lanes: [F; LANES], join: impl Fn(F, F) -> F) -> F {
    let eight: [F; 8] = from_fn(|l| join(lanes[l], lanes[l + 8]));
    let four: [F; 4] = from_fn(|l| join(eight[l], eight[l + 4]));
    join(join(four[0], four[2]), join(four[1], four[3]))
}
