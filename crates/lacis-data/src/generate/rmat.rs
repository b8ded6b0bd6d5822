//! R-MAT (Chakrabarti, Zhan, Faloutsos 2004): an edge falls into a quadrant of the adjacency, then
//! into a quadrant of that, and so on down to an entry; the quadrants' shares are `a b / c d`.
//!
//! Four levels are drawn at once: 256 outcomes with known probabilities, one 32-bit number through
//! an alias table (Walker 1977). Levels are independent, so those too many are dropped at the end.
//! Node numbers are scrambled: the hubs would otherwise be the first ones.

use lacis_core::{Dataset, Result, Rng};

use super::Spec;
use super::draw::{Edges, check_features, decorated, symmetric};
use super::scramble::Scramble;
use crate::Job;

const LEVELS: u32 = 4;
/// Draws that share blocks of random numbers: block `s` has the four draws' step `s`.
const LANES: usize = 4;

pub(super) fn check(spec: &Spec) -> std::result::Result<(), String> {
    check_features(spec.long("n"), spec.long("features"))?;
    let sum = ["a", "b", "c"].map(|key| spec.number(key)).iter().sum::<f64>();
    if sum > 1.0 + 1e-9 {
        return Err(format!("a + b + c is {sum}, more than 1"));
    }
    Ok(())
}

pub(super) fn make(spec: &Spec, job: &Job) -> Result<Dataset> {
    let rmat = Rmat::new(spec);
    let graph = symmetric(spec.count("n"), spec.count("e"), job, |draws, edges| {
        for group in draws.start / LANES..draws.end.div_ceil(LANES) {
            rmat.draw(group as u64, (draws.end - group * LANES).min(LANES), edges);
        }
    })?;
    decorated(spec, graph, job)
}

struct Rmat {
    n: u64,
    steps: u32,
    /// Levels drawn beyond those needed.
    surplus: u32,
    outcomes: Alias,
    rng: Rng,
    ids: Scramble,
}

impl Rmat {
    fn new(spec: &Spec) -> Self {
        let (n, seed) = (spec.long("n"), spec.long("seed"));
        let levels = u64::BITS - n.saturating_sub(1).leading_zeros();
        let steps = levels.div_ceil(LEVELS);
        Rmat {
            n: n.max(1),
            steps,
            surplus: steps * LEVELS - levels,
            outcomes: Alias::new(&outcome_shares(["a", "b", "c"].map(|key| spec.number(key)))),
            rng: Rng::new(seed, "rmat draws"),
            ids: Scramble::new(Rng::new(seed, "rmat ids"), 1 << levels),
        }
    }

    /// The first `count` draws of a group.
    #[inline]
    fn draw(&self, group: u64, count: usize, edges: &mut Edges) {
        let mut places = [[0_u64; 2]; LANES];
        for step in 0..self.steps {
            let numbers = self.rng.block_at(group, step);
            for ([row, col], number) in places.iter_mut().zip(numbers) {
                let outcome = u64::from(self.outcomes.pick(number));
                *row = *row << LEVELS | outcome >> LEVELS;
                *col = *col << LEVELS | outcome & ((1 << LEVELS) - 1);
            }
        }
        for [row, col] in &places[..count] {
            edges.push(self.node(*row), self.node(*col));
        }
    }

    /// There are up to twice as many places as nodes: the last ones count as the first.
    #[inline]
    fn node(&self, place: u64) -> u32 {
        let id = self.ids.at(place >> self.surplus);
        (if id < self.n { id } else { id - self.n }) as u32
    }
}

/// Probability of each outcome of [`LEVELS`] levels: row bits, then column bits.
fn outcome_shares([a, b, c]: [f64; 3]) -> [f64; 256] {
    let quadrants = [a, b, c, (1.0 - a - b - c).max(0.0)];
    std::array::from_fn(|outcome| {
        let (row, col) = (outcome >> LEVELS, outcome & ((1 << LEVELS) - 1));
        let quadrant = |level: u32| quadrants[(row >> level & 1) * 2 + (col >> level & 1)];
        (0..LEVELS).map(quadrant).product()
    })
}

/// An alias table: a column is picked evenly, and in it the outcome of that number or its alias.
struct Alias {
    /// How many of 2^24 go to the column's own outcome, and then the alias in 8 bits.
    columns: [u32; 256],
}

impl Alias {
    fn new(shares: &[f64; 256]) -> Self {
        const FULL: f64 = (1 << 24) as f64;
        let mut left = shares.map(|share| share * 256.0);
        let mut columns = [0_u32; 256];
        let (mut small, mut large): (Vec<usize>, Vec<usize>) =
            (0..256).partition(|&i| left[i] < 1.0);
        while let (Some(&low), Some(&high)) = (small.last(), large.last()) {
            small.pop();
            columns[low] = ((left[low] * FULL) as u32).min((1 << 24) - 1) << 8 | high as u32;
            left[high] -= 1.0 - left[low];
            if left[high] < 1.0 {
                large.pop();
                small.push(high);
            }
        }
        for rest in small.into_iter().chain(large) {
            columns[rest] = (rest as u32) | !0xff;
        }
        Alias { columns }
    }

    #[inline]
    fn pick(&self, number: u32) -> u32 {
        let column = number & 0xff;
        let entry = self.columns[column as usize];
        if number >> 8 < entry >> 8 { column } else { entry & 0xff }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generate::tests::made;

    #[test]
    fn the_alias_table_gives_the_shares_asked_for() {
        let shares = outcome_shares([0.57, 0.19, 0.19]);
        assert!((shares.iter().sum::<f64>() - 1.0).abs() < 1e-12);
        let alias = Alias::new(&shares);
        let mut found = [0.0; 256];
        for (column, entry) in alias.columns.iter().enumerate() {
            let own = f64::from(entry >> 8) / (1 << 24) as f64 / 256.0;
            found[column] += own;
            found[(entry & 0xff) as usize] += 1.0 / 256.0 - own;
        }
        let worst = found.iter().zip(&shares).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
        assert!(worst < 1e-8, "{worst}");
        let corner = Alias::new(&outcome_shares([1.0, 0.0, 0.0]));
        assert!([0, 17, 1 << 20, u32::MAX].iter().all(|&number| corner.pick(number) == 0));
    }

    #[test]
    fn degrees_are_skewed_and_counts_plausible() {
        let set = made("rmat:n=20k,e=200k,seed=3");
        let degrees = set.graph().adjacency().row_lengths();
        let edges = set.graph().n_edges() / 2;
        assert!((120_000..199_000).contains(&edges), "{edges}");
        let max = degrees.iter().max().unwrap();
        assert!(*max > 500, "{max}");
        // The hubs are anywhere, not first.
        assert!(degrees[..100].iter().sum::<u32>() < 20_000);
    }

    #[test]
    fn even_quadrants_make_even_degrees() {
        let set = made("rmat:n=4096,e=80k,a=0.25,b=0.25,c=0.25");
        let max = set.graph().adjacency().row_lengths().into_iter().max().unwrap();
        assert!(max < 75, "{max}");
    }
}
