//! Barabási–Albert preferential attachment, without a sequential loop.
//!
//! Batagelj and Brandes (2005) keep a list of all edge ends so far; a random place in it names a
//! node in proportion to its degree. Sanders and Schulz (2016) do not keep it: place `2k` is the
//! new node of edge `k`, place `2k + 1` was itself a random earlier place, which the edge's own
//! random number tells again. Following places back takes two steps on average.

use lacis_core::{Dataset, Result, Rng};

use super::Spec;
use super::draw::{check_features, decorated, symmetric};
use crate::Job;

pub(super) fn check(spec: &Spec) -> std::result::Result<(), String> {
    let (n, m) = (spec.long("n"), spec.long("m"));
    if m >= n {
        return Err(format!("each of {n} nodes has fewer than m={m} others"));
    }
    if n * m > 1 << 40 {
        return Err(format!("{} draws are more than {}", n * m, 1_u64 << 40));
    }
    check_features(n, spec.long("features"))
}

pub(super) fn make(spec: &Spec, job: &Job) -> Result<Dataset> {
    let (n, m) = (spec.count("n"), spec.count("m"));
    let ends = Ends { m: m as u64, rng: Rng::new(spec.long("seed"), "ba places") };
    let graph = symmetric(n, n.saturating_sub(1) * m, job, |draws, edges| {
        for edge in draws {
            edges.push(ends.newcomer(edge as u64) as u32, ends.target(edge as u64) as u32);
        }
    })?;
    decorated(spec, graph, job)
}

/// Edge `k` joins node `k / m + 1` to a node before it.
struct Ends {
    m: u64,
    rng: Rng,
}

impl Ends {
    fn newcomer(&self, edge: u64) -> u64 {
        edge / self.m + 1
    }

    fn target(&self, mut edge: u64) -> u64 {
        loop {
            // The ends of all edges of the nodes before this one.
            let places = edge / self.m * self.m * 2;
            if places == 0 {
                return 0;
            }
            let place = self.rng.stream(edge).below(places as usize) as u64;
            edge = place / 2;
            if place.is_multiple_of(2) {
                return self.newcomer(edge);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::generate::tests::made;

    #[test]
    fn few_edges_coincide_and_old_nodes_have_many() {
        let set = made("ba:n=20k,m=5,seed=2");
        let edges = set.graph().n_edges() / 2;
        assert!((99_000..100_000).contains(&edges), "{edges}");
        let degrees = set.graph().adjacency().row_lengths();
        assert!(degrees.iter().all(|&d| d >= 1));
        let old: u32 = degrees[..200].iter().sum();
        let new: u32 = degrees[19_800..].iter().sum();
        assert!(old > 10 * new, "{old} {new}");
    }

    #[test]
    fn one_edge_a_node_makes_a_tree() {
        assert_eq!(made("ba:n=1000,m=1").graph().n_edges(), 2 * 999);
    }
}
