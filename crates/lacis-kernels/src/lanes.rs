//! Rows padded to whole vectors: no loop over them has a tail.
//!
//! A row of `k` numbers lies in a scratch of the next multiple of 16, filled up with numbers that
//! change nothing. Reductions keep 16 lanes apart, then join the lanes by halves.

use crate::isa::Arith;
use crate::matrix::Mat;
use crate::real::{Real, Stored};

/// Numbers of a vector, whatever the instruction set makes of it.
pub(crate) const LANES: usize = 16;

/// A vector.
pub(crate) type Lanes<F> = [F; LANES];

/// Scratch for a row of `k` numbers.
pub(crate) fn scratch<F: Real>(k: usize) -> Vec<Lanes<F>> {
    vec![[F::ZERO; LANES]; k.div_ceil(LANES)]
}

/// What is given per column, filled up with zeros.
pub(crate) fn padded<F: Real>(columns: &[F]) -> Vec<Lanes<F>> {
    let mut all = scratch(columns.len());
    all.as_flattened_mut()[..columns.len()].copy_from_slice(columns);
    all
}

/// Reads row `i` of `x` and fills it up. What follows the row in memory is read with it, where
/// there is something, and dropped.
#[inline(always)]
pub(crate) fn load_row<T: Stored>(
    row: &mut [Lanes<T::Sum>],
    x: Mat<'_, T>,
    i: usize,
    fill: T::Sum,
) {
    let start = i * x.stride;
    match x.data.get(start..start + row.len() * LANES) {
        Some(data) => {
            let (data, _) = data.as_chunks::<LANES>();
            for (at, (row, data)) in row.iter_mut().zip(data).enumerate() {
                let left = (x.n_cols - at * LANES) as u32;
                for l in 0..LANES {
                    row[l] = if (l as u32) < left { data[l].wide() } else { fill };
                }
            }
        }
        None => {
            let row = row.as_flattened_mut();
            row.fill(fill);
            row.iter_mut().zip(x.row(i)).for_each(|(v, x)| *v = x.wide());
        }
    }
}

/// All numbers joined to one; `neutral` changes nothing.
#[inline(always)]
pub(crate) fn fold<F: Real>(row: &[Lanes<F>], neutral: F, join: impl Fn(F, F) -> F) -> F {
    let mut lanes = [neutral; LANES];
    for row in row {
        (0..LANES).for_each(|l| lanes[l] = join(lanes[l], row[l]));
    }
    halves(lanes, join)
}

/// The sum.
#[inline(always)]
pub(crate) fn sum<F: Real>(row: &[Lanes<F>]) -> F {
    fold(row, F::ZERO, |a, b| a + b)
}

/// The greatest; NaN if there is one.
#[inline(always)]
pub(crate) fn max<F: Real>(row: &[Lanes<F>]) -> F {
    fold(row, F::NEG_INFINITY, F::greater)
}

/// `Σ x·z`.
#[inline(always)]
pub(crate) fn dot<M: Arith, F: Real>(x: &[Lanes<F>], z: &[Lanes<F>]) -> F {
    let mut lanes = [F::ZERO; LANES];
    for (x, z) in x.iter().zip(z) {
        (0..LANES).for_each(|l| lanes[l] = M::mul_add(x[l], z[l], lanes[l]));
    }
    total(lanes)
}

/// The lanes added by halves.
#[inline(always)]
pub(crate) fn total<F: Real>(lanes: Lanes<F>) -> F {
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
