//! Splitting edges, to learn to predict them.
//!
//! An undirected edge is one pair and goes to one part, both its directions with it. Negatives are
//! pairs of different nodes that the whole graph does not join: a seeded permutation of all pairs
//! is walked until enough are found, so none comes twice and the walk ends even on dense graphs.

use std::ops::Range;

use lacis_core::{
    CHUNK_ENTRIES, Coo, Csr, Error, Extent, Graph, Repeats, Result, Rng, Tags, Threads,
};

use crate::Job;
use crate::generate::scramble::{
    Scramble, ordered_pair, ordered_pairs, unordered_pair, unordered_pairs,
};

/// Whether `(i, j)` and `(j, i)` are one edge or two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// One: the graph must be symmetric.
    Undirected,
    /// Two.
    Directed,
}

/// How to split edges.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LinkPlan {
    /// Share of the edges that choose.
    pub val: f64,
    /// Share of the edges that judge.
    pub test: f64,
    /// Negative pairs for each positive one that chooses or judges.
    pub negatives: usize,
    /// What an edge is.
    pub direction: Direction,
}

impl LinkPlan {
    /// 5 and 10 percent, as many negatives (Kipf and Welling 2016, VGAE).
    pub const DEFAULT: LinkPlan =
        LinkPlan { val: 0.05, test: 0.1, negatives: 1, direction: Direction::Undirected };
}

/// The parts of a graph's edges, as `[source, target]`; undirected ones have the smaller first.
#[derive(Clone, Debug)]
pub struct LinkSplit {
    /// The graph along which messages pass: the training edges, and self-loops if there were any.
    pub message: Graph,
    /// Positive pairs that train.
    pub train: Vec<[u32; 2]>,
    /// Positive pairs that choose.
    pub val: Vec<[u32; 2]>,
    /// Positive pairs that judge.
    pub test: Vec<[u32; 2]>,
    /// Pairs that are no edges, to choose.
    pub val_negatives: Vec<[u32; 2]>,
    /// Pairs that are no edges, to judge; none of them is among those that choose.
    pub test_negatives: Vec<[u32; 2]>,
}

/// Splits the edges of a graph.
///
/// # Errors
/// When the shares are not possible, the graph has too few edges or too few non-edges for them, or
/// is not symmetric though its edges are said to be undirected.
pub fn links(graph: &Graph, plan: &LinkPlan, seed: u64, job: &Job) -> Result<LinkSplit> {
    let adjacency = checked(graph, plan, job.threads)?;
    let mut edges = positives(&adjacency, plan.direction);
    let [n_val, n_test] = sizes(plan, edges.len())?;
    let Some(negatives) = (n_val + n_test).checked_mul(plan.negatives) else {
        let problem = format!("{} for each edge are more than can be counted", plan.negatives);
        return Err(Error::argument("negatives", problem));
    };
    let mut val_negatives = non_edges(&adjacency, plan.direction, negatives, (seed, edges.len()))?;
    let test_negatives = val_negatives.split_off(n_val * plan.negatives);

    Rng::new(seed, "link split").stream(0).shuffle(&mut edges);
    let mut held = edges.split_off(edges.len() - n_val - n_test);
    let message = without(graph.adjacency(), &held, plan.direction, job)?;
    let mut test = held.split_off(n_val);
    let mut val = held;
    [&mut edges, &mut val, &mut test].into_iter().for_each(|part| part.sort_unstable());
    Ok(LinkSplit { message, train: edges, val, test, val_negatives, test_negatives })
}

/// The adjacency with sorted and distinct columns, if it can be split as asked.
fn checked(graph: &Graph, plan: &LinkPlan, threads: &Threads) -> Result<Csr> {
    let adjacency = graph.adjacency();
    let (rows, cols) = (adjacency.n_rows(), adjacency.n_cols());
    lacis_core::error::same_size("link split", "number of columns", rows, cols)?;
    if plan.direction == Direction::Undirected && !graph.is_symmetric(threads) {
        let problem =
            "the graph is not symmetric; make it undirected first, or split it as directed";
        return Err(Error::argument("link split", problem));
    }
    Ok(adjacency.as_ref().clone().without_order().sorted(Repeats::Merge, threads))
}

/// Sizes of the validation and test parts of `edges` pairs.
fn sizes(plan: &LinkPlan, edges: usize) -> Result<[usize; 2]> {
    let shares = [plan.val, plan.test];
    let what = || format!("link split {}/{}", plan.val, plan.test);
    let possible = shares.iter().all(|share| (0.0..=1.0).contains(share));
    if !possible || shares.iter().sum::<f64>() >= 1.0 {
        return Err(Error::argument(what(), "the shares must be 0 or more and below 1 together"));
    }
    let counts = shares.map(|share| (share * edges as f64).round() as usize);
    let lost = shares.iter().zip(counts).any(|(share, count)| *share > 0.0 && count == 0);
    if lost || counts.iter().sum::<usize>() >= edges {
        return Err(Error::argument(what(), format!("{edges} edges are too few for it")));
    }
    Ok(counts)
}

/// The edges without self-loops, undirected ones once.
fn positives(adjacency: &Csr, direction: Direction) -> Vec<[u32; 2]> {
    let edges = adjacency.entries().map(|(target, source, _)| [source as u32, target as u32]);
    let wanted = |[source, target]: &[u32; 2]| match direction {
        Direction::Undirected => source < target,
        Direction::Directed => source != target,
    };
    edges.filter(wanted).collect()
}

/// So many pairs that are no edges.
fn non_edges(
    adjacency: &Csr,
    direction: Direction,
    wanted: usize,
    (seed, edges): (u64, usize),
) -> Result<Vec<[u32; 2]>> {
    let n = adjacency.n_rows() as u64;
    let pairs = match direction {
        Direction::Undirected => unordered_pairs(n),
        Direction::Directed => ordered_pairs(n),
    };
    let room = pairs - edges as u64;
    if wanted as u64 > room {
        let problem = format!("{wanted} negatives are wanted, but only {room} pairs are no edges");
        return Err(Error::argument("link split", problem));
    }
    let order = Scramble::new(Rng::new(seed, "link negatives"), pairs);
    let pair = |p| match direction {
        Direction::Undirected => {
            let [i, j] = unordered_pair(n, p);
            [i.min(j), i.max(j)]
        }
        Direction::Directed => ordered_pair(n, p),
    };
    let is_edge = |[source, target]: &[u32; 2]| {
        adjacency.row_cols(*target as usize).binary_search(source).is_ok()
    };
    let walk = (0..pairs).map(|p| pair(order.at(p)));
    Ok(walk.filter(|pair| !is_edge(pair)).take(wanted).collect())
}

/// The graph without the held-out pairs.
fn without(adjacency: &Csr, held: &[[u32; 2]], direction: Direction, job: &Job) -> Result<Graph> {
    let mut held = held.to_vec();
    held.sort_unstable();
    let stays = |target: u32, source: u32| {
        let pair = match direction {
            Direction::Undirected => [source.min(target), source.max(target)],
            Direction::Directed => [source, target],
        };
        held.binary_search(&pair).is_err()
    };
    let weighted = adjacency.values().is_some();
    let mut coo = Coo::new(if weighted { Tags::Values } else { Tags::Absent });
    let slices = adjacency.slices(CHUNK_ENTRIES);
    coo.extend(slices, job.threads, |rows: Range<usize>, chunk| {
        for (i, e) in rows.flat_map(|i| adjacency.row(i).map(move |e| (i as u32, e))) {
            let j = adjacency.cols()[e];
            match stays(i, j) {
                true if weighted => chunk.push_tagged(i, j, adjacency.value(e).to_bits()),
                true => chunk.push(i, j),
                false => {}
            }
        }
        Ok(())
    })?;
    let extent = Extent { n_rows: Some(adjacency.n_rows()), n_cols: Some(adjacency.n_cols()) };
    Ok(Graph::new(coo.into_csr(extent, Repeats::Keep, job.threads)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generate::{generate, parse};
    use std::collections::HashSet;

    fn graph(spec: &str) -> Graph {
        let threads = Threads::one();
        let set = generate(&parse(spec).unwrap(), &Job::quiet(&threads)).unwrap();
        set.graph().clone()
    }

    fn split(graph: &Graph, plan: &LinkPlan) -> Result<LinkSplit> {
        links(graph, plan, 3, &Job::quiet(&Threads::one()))
    }

    fn edges_of(graph: &Graph) -> HashSet<[u32; 2]> {
        graph.adjacency().entries().map(|(i, j, _)| [j as u32, i as u32]).collect()
    }

    #[test]
    fn undirected_edges_go_to_one_part_as_pairs() {
        let whole = graph("er:n=200,e=1000");
        let parts = split(&whole, &LinkPlan::DEFAULT).unwrap();
        assert_eq!([&parts.train, &parts.val, &parts.test].map(Vec::len), [850, 50, 100]);
        let all: HashSet<_> =
            [&parts.train, &parts.val, &parts.test].into_iter().flatten().collect();
        assert!(all.len() == 1000 && all.iter().all(|[i, j]| i < j));
        let message = edges_of(&parts.message);
        assert_eq!(message.len(), 1700);
        assert!(
            parts
                .train
                .iter()
                .all(|&[i, j]| message.contains(&[i, j]) && message.contains(&[j, i]))
        );
        let edges = edges_of(&whole);
        let negatives: Vec<_> = parts.val_negatives.iter().chain(&parts.test_negatives).collect();
        assert_eq!((parts.val_negatives.len(), parts.test_negatives.len()), (50, 100));
        assert_eq!(negatives.iter().collect::<HashSet<_>>().len(), 150);
        assert!(negatives.iter().all(|pair| pair[0] < pair[1] && !edges.contains(*pair)));
        assert_eq!(parts.test, split(&whole, &LinkPlan::DEFAULT).unwrap().test);
    }

    #[test]
    fn directed_edges_are_split_one_by_one() {
        let list: Vec<(u32, u32)> =
            (0..100).flat_map(|i| [(i, (i + 1) % 100), (i, (i + 7) % 100), (i, i)]).collect();
        let whole = Graph::from_edges(100, &list).unwrap();
        let plan = LinkPlan { val: 0.1, test: 0.2, negatives: 3, direction: Direction::Directed };
        let parts = split(&whole, &plan).unwrap();
        assert_eq!([&parts.train, &parts.val, &parts.test].map(Vec::len), [140, 20, 40]);
        assert_eq!((parts.val_negatives.len(), parts.test_negatives.len()), (60, 120));
        let edges = edges_of(&whole);
        assert!(parts.test.iter().all(|pair| edges.contains(pair)));
        assert!(
            parts.test_negatives.iter().all(|pair| pair[0] != pair[1] && !edges.contains(pair))
        );
        // The self-loops stay.
        assert_eq!(parts.message.n_edges(), 240);
        let error = split(&whole, &LinkPlan::DEFAULT).unwrap_err();
        assert!(error.to_string().contains("not symmetric"), "{error}");
    }

    #[test]
    fn dense_graphs_give_their_last_non_edges_or_say_that_they_cannot() {
        let nearly_complete = graph("er:n=60,e=1750");
        let plan = LinkPlan { val: 0.004, test: 0.007, ..LinkPlan::DEFAULT };
        let parts = split(&nearly_complete, &plan).unwrap();
        assert_eq!(parts.val_negatives.len() + parts.test_negatives.len(), 19);
        let error = split(&nearly_complete, &LinkPlan::DEFAULT).unwrap_err();
        assert!(error.to_string().contains("only 20 pairs are no edges"), "{error}");
    }

    #[test]
    fn impossible_shares_are_refused() {
        let few = Graph::from_edges(3, &[(0, 1), (1, 0)]).unwrap();
        assert!(split(&few, &LinkPlan::DEFAULT).is_err());
        let some = graph("er:n=50,e=100");
        for (val, test) in [(0.5, 0.5), (-0.1, 0.2), (f64::NAN, 0.1)] {
            assert!(split(&some, &LinkPlan { val, test, ..LinkPlan::DEFAULT }).is_err());
        }
    }

    #[test]
    fn weights_stay_with_their_edges() {
        let ring = graph("grid:rows=1,cols=40");
        let weights: Vec<f32> =
            ring.adjacency().entries().map(|(i, j, _)| (i + j) as f32).collect();
        let weighted = ring.adjacency().as_ref().clone().with_values(Some(weights.into())).unwrap();
        let parts = split(&Graph::new(weighted), &LinkPlan::DEFAULT).unwrap();
        assert!(parts.message.adjacency().entries().all(|(i, j, w)| w == (i + j) as f32));
    }
}
