//! Erdős–Rényi G(n, e): a seeded permutation of all pairs of nodes; the first `e` are the edges.

use lacis_core::{Dataset, Result, Rng};

use super::Spec;
use super::draw::{check_features, decorated, symmetric};
use super::scramble::{Scramble, unordered_pair, unordered_pairs};
use crate::Job;

pub(super) fn check(spec: &Spec) -> std::result::Result<(), String> {
    let (n, e) = (spec.long("n"), spec.long("e"));
    check_features(n, spec.long("features"))?;
    let most = unordered_pairs(n);
    if e > most {
        return Err(format!("{n} nodes have at most {most} edges, not {e}"));
    }
    Ok(())
}

pub(super) fn make(spec: &Spec, job: &Job) -> Result<Dataset> {
    let n = spec.long("n");
    let pairs = Scramble::new(Rng::new(spec.long("seed"), "er pairs"), unordered_pairs(n));
    let graph = symmetric(n as usize, spec.count("e"), job, |draws, edges| {
        for draw in draws {
            let [i, j] = unordered_pair(n, pairs.at(draw as u64));
            edges.push(i, j);
        }
    })?;
    decorated(spec, graph, job)
}

#[cfg(test)]
mod tests {
    use crate::generate::tests::made;

    #[test]
    fn the_number_of_edges_is_exact_up_to_the_complete_graph() {
        for (n, e) in [(2, 1), (10, 45), (11, 55), (100, 777), (5000, 40_000)] {
            let set = made(&format!("er:n={n},e={e}"));
            assert_eq!((set.graph().n_nodes(), set.graph().n_edges()), (n, 2 * e));
        }
    }

    #[test]
    fn degrees_vary_as_chance_has_it() {
        let degrees = made("er:n=20k,e=200k").graph().adjacency().row_lengths();
        let variance = degrees.iter().map(|&d| (f64::from(d) - 20.0).powi(2)).sum::<f64>() / 2e4;
        assert!((19.0..21.0).contains(&variance), "{variance}");
    }
}
