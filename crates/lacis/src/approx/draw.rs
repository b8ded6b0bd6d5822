//! Which pairs are taken: probabilities for a given amount of work, and a draw that keeps to it.
//!
//! A pair of score `s = ‖a_j‖·‖g_j‖` and work `c` that is taken with probability `π` and divided by
//! it adds `s²·(1/π - 1)` to the squared error. Under `Σ c·π ≤ B` the least error has
//!
//! ```text
//!   π = min(1, λ·s/√c)          one λ for all pairs, of all layers
//! ```
//! so pairs that are large for their work are always taken, those that are 0 never, and the rest by
//! chance. A histogram of `s/√c` gives `λ`, the error to expect and each layer's share: no sort.
//!
//! The draw is balanced (Deville and Tillé 2004, one balancing variable): two undecided pairs move
//! towards a decision along `c_a·π_a + c_b·π_b = const`, up or down such that every `π` keeps its
//! mean. So the work of the draw is what was planned, up to one pair; pairs too heavy for that are
//! drawn in pieces ([`mod@super::pieces`]).

use lacis_core::threads::ranges;
use lacis_core::{Rng, Threads};

/// Bins of the histogram: the leading bits of a positive number, sixteen bins for each doubling.
const BINS: usize = 1 << 12;
/// Bits of a number that do not tell bins apart.
const SHIFT: u32 = 19;
/// Pairs that are drawn among each other; what is left undecided is drawn in the end.
const BLOCK: usize = 1 << 16;
/// Closer than this to 0 or 1, a probability is.
const CERTAIN: f64 = 1e-9;

/// Pairs by `s/√c`: see the module's head.
#[derive(Clone, Debug, PartialEq)]
pub struct Histogram {
    bins: Vec<Bin>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Bin {
    /// `Σ c`.
    work: f64,
    /// `Σ s·√c`, the work per `λ`.
    slope: f64,
    /// `Σ s²`.
    mass: f64,
}

/// Size for its work; 0 where a pair adds nothing.
fn ratio(score: f32, work: u32) -> f32 {
    let ratio = score / (work.max(1) as f32).sqrt();
    if work > 0 && ratio.is_finite() && ratio > 0.0 { ratio } else { 0.0 }
}

impl Histogram {
    /// Of scores and work.
    pub fn of(scores: &[f32], work: &[u32]) -> Self {
        let mut bins = vec![Bin::default(); BINS];
        for (&score, &work) in scores.iter().zip(work) {
            let ratio = ratio(score, work);
            if ratio > 0.0 {
                let (score, work) = (f64::from(score), f64::from(work));
                let bin = &mut bins[(ratio.to_bits() >> SHIFT) as usize];
                bin.work += work;
                bin.slope += score * work.sqrt();
                bin.mass += score * score;
            }
        }
        Histogram { bins }
    }

    /// Its numbers, three for each bin that has any, after the bin's own.
    pub fn numbers(&self) -> Vec<f64> {
        let filled = self.bins.iter().enumerate().filter(|(_, bin)| bin.work > 0.0);
        filled.flat_map(|(at, bin)| [at as f64, bin.work, bin.slope, bin.mass]).collect()
    }

    /// From its numbers, if they are some.
    pub fn from_numbers(numbers: &[f64]) -> Option<Self> {
        let mut bins = vec![Bin::default(); BINS];
        for four in numbers.chunks(4) {
            let [at, work, slope, mass] = <[f64; 4]>::try_from(four).ok()?;
            *bins.get_mut(at as usize)? = Bin { work, slope, mass };
        }
        Some(Histogram { bins })
    }

    /// Work of all pairs that add something.
    pub fn work(&self) -> f64 {
        self.bins.iter().map(|bin| bin.work).sum()
    }

    /// `Σ s²`.
    pub fn mass(&self) -> f64 {
        self.bins.iter().map(|bin| bin.mass).sum()
    }

    /// The work that `λ` leads to.
    pub fn work_at(&self, lambda: f64) -> f64 {
        self.bins.iter().map(|bin| bin.work.min(lambda * bin.slope)).sum()
    }

    /// The squared error that `λ` leads to, if pairs were drawn without regard to each other.
    pub fn error_at(&self, lambda: f64) -> f64 {
        let error = |bin: &Bin| (bin.slope / lambda - bin.mass).max(0.0);
        self.bins.iter().filter(|bin| bin.work > 0.0).map(error).sum()
    }

    /// The largest `λ` of at most this work.
    pub fn lambda_of_work(&self, work: f64) -> f64 {
        bisect(|lambda| self.work_at(lambda) <= work)
    }

    /// The least `λ` of at most this squared error.
    pub fn lambda_of_error(&self, error: f64) -> f64 {
        bisect(|lambda| self.error_at(lambda) > error)
    }
}

/// The largest number for which something holds that holds for all smaller ones.
pub fn bisect(holds: impl Fn(f64) -> bool) -> f64 {
    let (mut low, mut high) = (-120.0_f64, 120.0_f64);
    for _ in 0..60 {
        let middle = 0.5 * (low + high);
        if holds(middle.exp2()) {
            low = middle;
        } else {
            high = middle;
        }
    }
    low.exp2()
}

/// The most work of a pair that is taken by chance.
pub fn largest_open(scores: &[f32], work: &[u32], lambda: f64) -> u32 {
    let open = |(&score, &work): (&f32, &u32)| {
        let chance = lambda * f64::from(ratio(score, work));
        if chance > 0.0 && chance < 1.0 { work } else { 0 }
    };
    scores.iter().zip(work).map(open).max().unwrap_or(0)
}

/// The probability of each pair.
pub fn probabilities(scores: &[f32], work: &[u32], lambda: f64) -> Vec<f64> {
    let chance = |(&score, &work): (&f32, &u32)| (lambda * f64::from(ratio(score, work))).min(1.0);
    scores.iter().zip(work).map(chance).collect()
}

/// Takes pairs with their probabilities: for each a factor, `1/π` where it is taken, else 0. With
/// `Σ c·π` planned, less than `planned + c` is taken, `c` the largest work of a pair of `π < 1`.
pub fn balanced(chances: &[f64], work: &[u32], rng: &Rng, threads: &Threads) -> Vec<f32> {
    let blocks = threads.map(ranges(chances.len(), BLOCK), |block| {
        let start = block.start;
        let mut draw = Draw { work, rng, open: None, taken: vec![false; block.len()], start };
        for j in block {
            draw.offer(j, chances[j]);
        }
        (draw.taken, draw.open)
    });
    let opens: Vec<(usize, f64)> = blocks.iter().filter_map(|(_, open)| *open).collect();
    let mut taken: Vec<bool> = blocks.into_iter().flat_map(|(taken, _)| taken).collect();
    taken.resize(chances.len(), false);
    let mut last = Draw { work, rng, open: None, taken, start: 0 };
    for (j, chance) in opens {
        last.settle(j, chance, 1);
    }
    if let Some((j, chance)) = last.open {
        last.taken[j] = uniform(rng, j, 2) < chance;
    }
    let factor = |(taken, chance): (bool, &f64)| if taken { (1.0 / chance) as f32 } else { 0.0 };
    last.taken.into_iter().zip(chances).map(factor).collect()
}

/// A uniform number of a pair.
fn uniform(rng: &Rng, j: usize, round: u32) -> f64 {
    f64::from(rng.block_at(j as u64, round)[0]) / f64::from(u32::MAX)
}

/// Pairs of which at most one is undecided.
struct Draw<'a> {
    work: &'a [u32],
    rng: &'a Rng,
    open: Option<(usize, f64)>,
    taken: Vec<bool>,
    start: usize,
}

impl Draw<'_> {
    fn offer(&mut self, j: usize, chance: f64) {
        if chance >= 1.0 - CERTAIN {
            self.taken[j - self.start] = true;
        } else if chance > 0.0 {
            self.settle(j, chance, 0);
        }
    }

    /// Moves the undecided pair and this one until one of them is decided.
    fn settle(&mut self, j: usize, chance: f64, round: u32) {
        let Some((a, open)) = self.open else {
            self.open = Some((j, chance));
            return;
        };
        let (c_a, c_j) = (f64::from(self.work[a]), f64::from(self.work[j]));
        let up = ((1.0 - open) / c_j).min(chance / c_a);
        let down = (open / c_j).min((1.0 - chance) / c_a);
        let rises = uniform(self.rng, j, round) * (up + down) < down;
        let by = if rises { up } else { -down };
        let moved = [(a, open + by * c_j), (j, chance - by * c_a)];
        self.open = None;
        for (pair, chance) in moved {
            if chance >= 1.0 - CERTAIN {
                self.taken[pair - self.start] = true;
            } else if chance > CERTAIN {
                self.open = Some((pair, chance));
            }
        }
    }
}

/// The `k` largest scores as factors 1, all others 0; equal ones by their numbers.
pub fn largest(scores: &[f32], k: usize) -> Vec<f32> {
    let mut order: Vec<u32> = (0..scores.len() as u32).collect();
    let by = |a: &u32, b: &u32| {
        scores[*b as usize].total_cmp(&scores[*a as usize]).then_with(|| a.cmp(b))
    };
    if k < order.len() {
        order.select_nth_unstable_by(k, by);
        order.truncate(k);
    }
    let mut factors = vec![0.0; scores.len()];
    order.iter().for_each(|&j| factors[j as usize] = 1.0);
    factors
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(n: usize) -> (Vec<f32>, Vec<u32>) {
        let rng = Rng::new(3, "pairs");
        let mut stream = rng.stream(0);
        let scores = (0..n).map(|_| (stream.normal().exp()) as f32).collect();
        let work = (0..n).map(|_| 1 + stream.below_u32(40)).collect();
        (scores, work)
    }

    #[test]
    fn work_and_error_are_what_lambda_says() {
        let (scores, work) = pairs(5000);
        let histogram = Histogram::of(&scores, &work);
        let total: f64 = work.iter().map(|&c| f64::from(c)).sum();
        assert!((histogram.work() - total).abs() < 1e-6 * total);
        let most = 0.3 * total;
        let lambda = histogram.lambda_of_work(most);
        let chances = probabilities(&scores, &work, lambda);
        let planned: f64 = chances.iter().zip(&work).map(|(p, &c)| p * f64::from(c)).sum();
        assert!(planned <= most * (1.0 + 1e-9) && planned > 0.97 * most, "{planned} of {most}");
        let terms =
            chances.iter().zip(&scores).map(|(p, &s)| f64::from(s).powi(2) * (1.0 / p - 1.0));
        let error: f64 = terms.sum();
        assert!((histogram.error_at(lambda) / error - 1.0).abs() < 0.05);
        let back = histogram.lambda_of_error(histogram.error_at(lambda));
        assert!((back / lambda - 1.0).abs() < 1e-6);
    }

    #[test]
    fn no_other_rule_of_this_form_has_less_error() {
        let (scores, work) = pairs(2000);
        let total: f64 = work.iter().map(|&c| f64::from(c)).sum();
        // π ∝ s·c^power, scaled to the same work by bisection.
        let error_of = |power: f64| {
            let base: Vec<f64> = scores
                .iter()
                .zip(&work)
                .map(|(&s, &c)| f64::from(s) * f64::from(c).powf(power))
                .collect();
            let cost = |scale: f64| -> f64 {
                base.iter().zip(&work).map(|(b, &c)| (scale * b).min(1.0) * f64::from(c)).sum()
            };
            let scale = bisect(|scale| cost(scale) <= 0.2 * total);
            let of =
                |(b, &s): (&f64, &f32)| f64::from(s).powi(2) * (1.0 / (scale * b).min(1.0) - 1.0);
            base.iter().zip(&scores).map(of).sum::<f64>()
        };
        let best = error_of(-0.5);
        assert!([-1.5, -1.0, -0.7, -0.3, 0.0, 0.5].iter().all(|&power| error_of(power) > best));
    }

    #[test]
    fn a_draw_keeps_probabilities_and_work() {
        let (scores, work) = pairs(300);
        let total: f64 = work.iter().map(|&c| f64::from(c)).sum();
        let most = 0.25 * total;
        let lambda = Histogram::of(&scores, &work).lambda_of_work(most);
        let chances = probabilities(&scores, &work, lambda);
        let planned: f64 = chances.iter().zip(&work).map(|(p, &c)| p * f64::from(c)).sum();
        let rounds = 20_000;
        let mut mean = vec![0.0; chances.len()];
        for round in 0..rounds {
            let rng = Rng::new(round, "draw");
            let factors = balanced(&chances, &work, &rng, &Threads::one());
            let taken = factors.iter().zip(&work).filter(|(f, _)| **f > 0.0);
            let cost: f64 = taken.map(|(_, &c)| f64::from(c)).sum();
            assert!((cost - planned).abs() <= 40.0, "{cost} for {planned}");
            mean.iter_mut().zip(&factors).for_each(|(m, &f)| *m += f64::from(f) / rounds as f64);
        }
        for (mean, &chance) in mean.iter().zip(&chances) {
            let spread = ((1.0 / chance - 1.0) / rounds as f64).sqrt();
            assert!((mean - 1.0).abs() < 5.0 * spread + 1e-6, "{mean} with chance {chance}");
        }
    }

    #[test]
    fn a_draw_is_the_same_for_any_threads() {
        let (scores, work) = pairs(200_000);
        let chances = probabilities(&scores, &work, 0.05);
        let rng = Rng::new(5, "draw");
        let one = balanced(&chances, &work, &rng, &Threads::one());
        let three = balanced(&chances, &work, &rng, &Threads::new(3).unwrap());
        assert!(one == three && one.iter().any(|&f| f > 1.0));
    }

    #[test]
    fn the_largest_are_taken_and_ties_by_number() {
        assert_eq!(largest(&[1.0, 3.0, 2.0, 3.0], 2), [0.0, 1.0, 0.0, 1.0]);
        assert_eq!(largest(&[1.0, 1.0, 1.0], 2), [1.0, 1.0, 0.0]);
        assert_eq!(largest(&[1.0], 5), [1.0]);
    }
}
