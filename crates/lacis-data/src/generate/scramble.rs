//! [`Scramble`]: a seeded permutation of `0..bound` that is computed, not stored, so that any
//! number of threads may ask for any part of it. And numbers for pairs of nodes, so that it can
//! draw pairs.
//!
//! On `2^bits` numbers, an odd multiplication, an addition and `x ^ (x >> bits/2)` are bijections,
//! and so are rounds of them; numbers that leave `0..bound` walk on until they return.

use lacis_core::Rng;

/// A seeded permutation of `0..bound`. See the module's head.
#[derive(Clone, Debug)]
pub(crate) struct Scramble {
    bound: u64,
    mask: u64,
    shift: u32,
    rounds: [[u64; 2]; 4],
}

impl Scramble {
    pub(crate) fn new(rng: Rng, bound: u64) -> Self {
        let bits = (u64::BITS - bound.saturating_sub(1).leading_zeros()).max(1);
        let mut stream = rng.stream(0);
        Scramble {
            bound,
            mask: u64::MAX >> (u64::BITS - bits),
            shift: bits.div_ceil(2),
            rounds: [(); 4].map(|()| [stream.next_u64() | 1, stream.next_u64()]),
        }
    }

    /// Where `i` goes.
    #[inline]
    pub(crate) fn at(&self, i: u64) -> u64 {
        debug_assert!(i < self.bound, "{i} of {}", self.bound);
        let mut x = i;
        loop {
            for [factor, offset] in self.rounds {
                x = x.wrapping_mul(factor).wrapping_add(offset) & self.mask;
                x ^= x >> self.shift;
            }
            if x < self.bound {
                return x;
            }
        }
    }
}

/// How many unordered pairs of different nodes there are.
pub(crate) fn unordered_pairs(n: u64) -> u64 {
    (u128::from(n) * u128::from(n.saturating_sub(1)) / 2) as u64
}

/// How many ordered pairs of different nodes there are.
pub(crate) fn ordered_pairs(n: u64) -> u64 {
    n * n.saturating_sub(1)
}

/// Pair number `p` of the unordered ones: nodes `d` apart on a ring of `n`, for `d` up to `n / 2`.
#[inline]
pub(crate) fn unordered_pair(n: u64, p: u64) -> [u32; 2] {
    let (distance, i) = (p / n + 1, p % n);
    let j = i + distance;
    [i as u32, (if j < n { j } else { j - n }) as u32]
}

/// Pair number `p` of the ordered ones.
#[inline]
pub(crate) fn ordered_pair(n: u64, p: u64) -> [u32; 2] {
    let (i, j) = (p / (n - 1), p % (n - 1));
    [i as u32, (j + u64::from(j >= i)) as u32]
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn every_number_comes_once() {
        for bound in [1, 2, 3, 5, 64, 1000, 4096, 70_001] {
            let scramble = Scramble::new(Rng::new(3, "test"), bound);
            let seen: HashSet<u64> = (0..bound).map(|i| scramble.at(i)).collect();
            assert_eq!(seen.len() as u64, bound);
            assert!(seen.iter().all(|&x| x < bound));
        }
    }

    #[test]
    fn the_first_numbers_spread_evenly() {
        let bound = 1 << 20;
        let scramble = Scramble::new(Rng::new(4, "test"), bound);
        let mut counts = [0_u32; 64];
        (0..64_000).for_each(|i| counts[(scramble.at(i) * 64 / bound) as usize] += 1);
        let chi2: f64 = counts.iter().map(|&c| (f64::from(c) - 1000.0).powi(2) / 1000.0).sum();
        assert!((25.0..110.0).contains(&chi2), "{chi2}");
    }

    #[test]
    fn pairs_are_numbered_without_gaps() {
        for n in [2_u64, 3, 4, 7, 10] {
            let unordered: HashSet<_> = (0..unordered_pairs(n))
                .map(|p| unordered_pair(n, p))
                .map(|[i, j]| [i.min(j), i.max(j)])
                .collect();
            assert_eq!(unordered.len() as u64, n * (n - 1) / 2);
            let ordered: HashSet<_> = (0..ordered_pairs(n)).map(|p| ordered_pair(n, p)).collect();
            assert_eq!(ordered.len() as u64, n * (n - 1));
            let all = unordered.iter().chain(&ordered);
            assert!(all.into_iter().all(|[i, j]| i != j && (*i.max(j) as u64) < n));
        }
    }
}
