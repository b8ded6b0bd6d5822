//! [`NonEdges`]: pairs of nodes that no edge joins, each equally likely.
//!
//! All pairs `(source, target)` of different nodes without an edge are numbered, target by target;
//! a number is drawn and the pair found by two binary searches. Nothing is tried and rejected, so
//! dense graphs take no longer than sparse ones.
//! ```text
//!   free(i) = n − 1 − |sources of i other than i|        pairs before target i = Σ free(0..i)
//! ```

use std::collections::HashSet;

use lacis_core::error::same_size;
use lacis_core::{ColumnOrder, Csr, Error, Graph, Repeats, Result, Rng, Threads};

/// The pairs of a graph that are no edges, to draw from.
pub struct NonEdges {
    /// Sources of each target, ascending, none twice.
    sources: Csr,
    /// Free pairs before each target, and in all.
    before: Vec<u64>,
}

impl NonEdges {
    /// The non-edges of a graph; the edges `i → i` count as neither.
    ///
    /// # Errors
    /// When the adjacency is not square.
    pub fn new(graph: &Graph, threads: &Threads) -> Result<Self> {
        let (a, n) = (graph.adjacency(), graph.n_nodes());
        same_size("negative sampling", "columns", n, a.n_cols())?;
        let plain = a.as_ref().clone().with_values(None)?.without_order();
        let sorted = plain.column_order() == ColumnOrder::Sorted && !plain.has_repeats(threads);
        let sources = if sorted { plain } else { plain.sorted(Repeats::Merge, threads) };
        let mut before = Vec::with_capacity(n + 1);
        before.push(0);
        for i in 0..n {
            let taken = sources.row_cols(i);
            let others = taken.len() - usize::from(taken.binary_search(&(i as u32)).is_ok());
            before.push(before[i] + (n - 1 - others) as u64);
        }
        Ok(NonEdges { sources, before })
    }

    /// How many pairs are no edges.
    pub fn count(&self) -> u64 {
        *self.before.last().expect("there is always a first")
    }

    /// Pair number `number`, as `(source, target)`.
    fn pair(&self, number: u64) -> (u32, u32) {
        let target = self.before.partition_point(|&before| before <= number) - 1;
        let free = (number - self.before[target]) as usize;
        let taken = self.sources.row_cols(target);
        // The target itself is not free either, whether or not an edge says so.
        let source = missing(taken, free);
        let is_loop_an_edge = taken.binary_search(&(target as u32)).is_ok();
        let skips_target = !is_loop_an_edge && source >= target as u32;
        let source = if skips_target { missing(taken, free + 1) } else { source };
        (source, target as u32)
    }

    /// `count` different non-edges as `(source, target)`, a function of the seed and the round.
    ///
    /// # Errors
    /// When the graph has not as many.
    pub fn sample(&self, count: usize, seed: u64, round: u64) -> Result<Vec<(u32, u32)>> {
        let free = self.count();
        if count as u64 > free {
            let problem = format!("{count} were asked for, but the graph has only {free}");
            return Err(Error::argument("pairs that are no edges", problem));
        }
        let mut stream = Rng::new(seed, "pairs that are no edges").stream(round);
        let mut taken = HashSet::with_capacity(count);
        // Floyd's way of drawing without repetition, for any share of the whole.
        let draw = |largest: u64| {
            let number = stream.below(largest as usize + 1) as u64;
            let number = if taken.contains(&number) { largest } else { number };
            taken.insert(number);
            self.pair(number)
        };
        let mut pairs: Vec<_> = (free - count as u64..free).map(draw).collect();
        // Which pairs are drawn is uniform already; where each of them stands becomes so here.
        Rng::new(seed, "order of pairs that are no edges").stream(round).shuffle(&mut pairs);
        Ok(pairs)
    }
}

/// The number that `k` numbers come before when those of an ascending list are left out.
fn missing(list: &[u32], k: usize) -> u32 {
    let (mut low, mut high) = (0, list.len());
    while low < high {
        let middle = low.midpoint(high);
        // So many numbers before this one are not in the list.
        if list[middle] as usize - middle <= k {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    (k + low) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    /// With a loop, a repeated edge, and a node that everybody points to.
    fn graph() -> Graph {
        let mut edges = vec![(0, 1), (0, 1), (2, 2), (5, 3), (1, 0), (3, 5), (4, 5)];
        edges.extend((0..6).filter(|&i| i != 4).map(|i| (i, 4)));
        Graph::from_edges(6, &edges).unwrap()
    }

    fn free_pairs(graph: &Graph) -> Vec<(u32, u32)> {
        let edges: HashSet<_> = graph.adjacency().entries().map(|(i, j, _)| (j, i)).collect();
        let pairs = (0..6).flat_map(|i| (0..6).map(move |j| (j, i)));
        pairs
            .filter(|&(j, i)| i != j && !edges.contains(&(j, i)))
            .map(|(j, i)| (j as u32, i as u32))
            .collect()
    }

    #[test]
    fn every_pair_without_an_edge_has_a_number() {
        let expected = free_pairs(&graph());
        let non_edges = NonEdges::new(&graph(), &Threads::one()).unwrap();
        assert_eq!(non_edges.count(), expected.len() as u64);
        let pairs: Vec<_> = (0..non_edges.count()).map(|number| non_edges.pair(number)).collect();
        assert_eq!(pairs, expected);
    }

    #[test]
    fn draws_are_uniform_different_and_repeatable() {
        let non_edges = NonEdges::new(&graph(), &Threads::one()).unwrap();
        let free = free_pairs(&graph());
        let mut counts = vec![0; free.len()];
        for round in 0..4000 {
            let pairs = non_edges.sample(5, 1, round).unwrap();
            assert_eq!(pairs.iter().collect::<HashSet<_>>().len(), 5);
            pairs.iter().for_each(|pair| {
                counts[free.binary_search_by_key(&(pair.1, pair.0), |p| (p.1, p.0)).unwrap()] += 1
            });
        }
        let mean = 4000 * 5 / free.len();
        assert!(counts.iter().all(|c| (mean * 9 / 10..mean * 11 / 10).contains(c)), "{counts:?}");
        assert_eq!(non_edges.sample(5, 1, 9).unwrap(), non_edges.sample(5, 1, 9).unwrap());
        assert_ne!(non_edges.sample(5, 1, 9).unwrap(), non_edges.sample(5, 2, 9).unwrap());
    }

    #[test]
    fn too_many_are_refused_and_all_are_given() {
        let non_edges = NonEdges::new(&graph(), &Threads::one()).unwrap();
        let mut all = non_edges.sample(free_pairs(&graph()).len(), 0, 0).unwrap();
        all.sort_unstable_by_key(|pair| (pair.1, pair.0));
        assert_eq!(all, free_pairs(&graph()));
        let error = non_edges.sample(all.len() + 1, 0, 0).unwrap_err();
        assert!(error.to_string().contains("the graph has only"), "{error}");
        let full = Graph::from_edges(2, &[(0, 1), (1, 0)]).unwrap();
        let none = NonEdges::new(&full, &Threads::one()).unwrap();
        assert!(none.sample(1, 0, 0).is_err() && none.sample(0, 0, 0).unwrap().is_empty());
    }
}
