//! Sums across lanes: of the products of two rows, one per head.

use super::gather::{each_vector, heads_of};
use super::lanes::{LANES, Lanes, add};
use crate::real::Real;

/// Items whose vectors are kept before they are summed across lanes, where each is one sum: in a
/// loop of its own, four at a time, that takes a third of the instructions.
pub(super) const KEPT: usize = 16;

/// All vectors in one.
#[inline(always)]
pub(super) fn added<F: Real, const V: usize>(vectors: &[Lanes<F>; V]) -> Lanes<F> {
    let mut sum = vectors[0];
    each_vector!(V, v => if v > 0 {
        sum = add(&sum, &vectors[v]);
    });
    sum
}

/// Sums across the lanes of the first `n` items, to places `slots` apart; returns the next place.
#[inline(always)]
pub(super) fn store_kept<F: Real>(
    (kept, n, first): (&[Lanes<F>; KEPT], usize, bool),
    out: &mut [F],
    (at, slots): (usize, usize),
) -> usize {
    let end = at + n * slots;
    let mut at = at;
    for four in kept.as_chunks::<4>().0 {
        if at >= end {
            break;
        }
        let sums = sums_of::<F, LANES, 4>(four);
        match out.get_mut(at..at + 4) {
            // What is written past the last is written again later, or never read.
            Some(out) if slots == 1 && first => out.copy_from_slice(&sums[..4]),
            _ => {
                let places = out[at..].iter_mut().step_by(slots).take((end - at) / slots);
                for (out, sum) in places.zip(&sums[..4]) {
                    *out = if first { *sum } else { *out + *sum };
                }
            }
        }
        at += 4 * slots;
    }
    end
}

/// The sums of the heads of a tile, side by side.
#[inline(always)]
pub(super) fn store_sums<F: Real, const K: usize, const V: usize>(
    products: &[Lanes<F>; V],
    out: &mut [F],
) {
    let sums = sums_of::<F, K, V>(products);
    let heads = heads_of::<K, V>();
    out[..heads].copy_from_slice(&sums[..heads]);
}

/// The sums of each `K` lanes of one, two or four vectors, in the first lanes.
#[inline(always)]
pub(super) fn sums_of<F: Real, const K: usize, const V: usize>(
    vectors: &[Lanes<F>; V],
) -> Lanes<F> {
    if K == LANES && V == 4 {
        return four_sums([
            quarter(&vectors[0]),
            quarter(&vectors[V.min(2) - 1]),
            quarter(&vectors[V.min(3) - 1]),
            quarter(&vectors[V - 1]),
        ]);
    }
    // Neighbours are added and vectors joined by turns, so that each step halves what there is.
    let mut sums = fold::<F, 1>(&vectors[0]);
    if V > 1 {
        sums = every::<F, 1>(&sums, &fold::<F, 1>(&vectors[V.min(2) - 1]));
    }
    if K > 2 {
        sums = fold::<F, 2>(&sums);
    }
    if V > 2 {
        let [c, d] = [fold::<F, 1>(&vectors[V.min(3) - 1]), fold::<F, 1>(&vectors[V - 1])];
        sums = every::<F, 2>(&sums, &fold::<F, 2>(&every::<F, 1>(&c, &d)));
    }
    if K > 4 {
        sums = fold::<F, 4>(&sums);
    }
    if K > 8 {
        sums = fold::<F, 8>(&sums);
    }
    let (mut lanes, of_each) = ([F::ZERO; LANES], LANES / K.max(1));
    for h in 0..heads_of::<K, V>() {
        lanes[h] = sums[h % of_each * K + h / of_each];
    }
    lanes
}

/// Four numbers with the sum of all lanes.
#[inline(always)]
fn quarter<F: Real>(x: &Lanes<F>) -> [F; 4] {
    let (mut eight, mut four) = ([F::ZERO; 8], [F::ZERO; 4]);
    for l in 0..8 {
        eight[l] = x[l] + x[l + 8];
    }
    for l in 0..4 {
        four[l] = eight[l] + eight[l + 4];
    }
    four
}

/// The sum of each, in the first lanes.
#[inline(always)]
fn four_sums<F: Real>(x: [[F; 4]; 4]) -> Lanes<F> {
    // Looked at from outside, or all sums before are computed in narrow vectors, too.
    let x = std::hint::black_box(x);
    let mut lanes = [F::ZERO; LANES];
    for (lane, x) in lanes.iter_mut().zip(&x) {
        *lane = (x[0] + x[1]) + (x[2] + x[3]);
    }
    lanes
}

/// Each lane and the one `STEP` from it.
#[inline(always)]
fn fold<F: Real, const STEP: usize>(x: &Lanes<F>) -> Lanes<F> {
    let mut other = [F::ZERO; LANES];
    for l in 0..LANES {
        other[l] = x[l ^ STEP];
    }
    add(x, &other)
}

/// Lanes of one vector and of another, `STEP` of each by turns.
#[inline(always)]
fn every<F: Real, const STEP: usize>(a: &Lanes<F>, b: &Lanes<F>) -> Lanes<F> {
    let mut lanes = *a;
    for l in 0..LANES {
        if l & STEP != 0 {
            lanes[l] = b[l];
        }
    }
    lanes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_of_lanes_are_in_order() {
        let vectors: [Lanes<f32>; 4] =
            std::array::from_fn(|v| std::array::from_fn(|l| ((16 * v + l) * (v + l)) as f32));
        fn check<const K: usize, const V: usize>(vectors: &[Lanes<f32>; V]) {
            let sums = sums_of::<f32, K, V>(vectors);
            let heads = vectors.as_flattened().chunks(K).map(|lanes| lanes.iter().sum::<f32>());
            assert_eq!(heads.collect::<Vec<_>>(), &sums[..V * LANES / K], "{K} {V}");
        }
        check::<2, 2>(&[vectors[0], vectors[1]]);
        check::<2, 1>(&[vectors[2]]);
        check::<4, 2>(&[vectors[0], vectors[1]]);
        check::<4, 1>(&[vectors[2]]);
        check::<8, 4>(&vectors);
        check::<8, 1>(&[vectors[3]]);
        check::<16, 4>(&vectors);
        check::<16, 1>(&[vectors[1]]);
    }
}
