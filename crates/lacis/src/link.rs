//! [`Links`]: which pairs of nodes are joined, to be learned. Messages pass along training edges
//! alone; every epoch compares them with as many pairs that they do not join, drawn anew.
//!
//! ```text
//!  edges ─► train ─► the message graph, and the positives of every epoch
//!        ├► val    beside pairs that are no edges: chooses
//!        └► test   beside others: judges
//! ```
//! What is held out is not known while training: a negative of an epoch may be an edge that was
//! held out, as in torch_geometric's `negative_sampling` on the training edges.

use std::ops::Range;

use lacis_core::{Error, Graph, Result, Threads};
use lacis_data::Job;
use lacis_data::splits::{Direction, LinkPlan, LinkSplit, links};
use lacis_kernels::Mat;

use crate::metrics::{LinkScores, Metric};
use crate::sample::NonEdges;

/// Pairs to learn, to choose by and to judge by. See the module's head.
pub struct Links {
    split: LinkSplit,
    free: NonEdges,
    seed: u64,
    /// True and false pairs of training, validation and test, one after another.
    judged: Vec<[u32; 2]>,
    parts: [[Range<usize>; 2]; 3],
}

impl std::fmt::Debug for Links {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let counts = [&self.split.train, &self.split.val, &self.split.test].map(Vec::len);
        write!(f, "Links({counts:?}, seed {})", self.seed)
    }
}

/// Which negatives judge the training pairs: no epoch has this number.
const JUDGED_ROUND: u64 = u64::MAX;

impl Links {
    /// Splits a graph's edges, 5 % to choose and 10 % to judge, as undirected ones where the graph
    /// is symmetric.
    ///
    /// # Errors
    /// When there are too few edges or non-edges.
    pub fn new(graph: &Graph, seed: u64, job: &Job<'_>) -> Result<Self> {
        let direction = match graph.is_symmetric(job.threads) {
            true => Direction::Undirected,
            false => Direction::Directed,
        };
        let plan = LinkPlan { direction, ..LinkPlan::DEFAULT };
        Links::of_split(links(graph, &plan, seed, job)?, seed, job.threads)
    }

    /// Of edges that somebody has split.
    ///
    /// # Errors
    /// When no pair trains, or the graph has not enough non-edges.
    pub fn of_split(split: LinkSplit, seed: u64, threads: &Threads) -> Result<Self> {
        if split.train.is_empty() {
            return Err(Error::argument("links", "no edge is left to train with"));
        }
        let free = NonEdges::new(&split.message, threads)?;
        let train = negatives(&free, split.train.len(), seed, JUDGED_ROUND)?;
        let all = [
            &split.train,
            &train,
            &split.val,
            &split.val_negatives,
            &split.test,
            &split.test_negatives,
        ];
        let mut judged = Vec::new();
        let mut range = |pairs: &Vec<[u32; 2]>| {
            let start = judged.len();
            judged.extend_from_slice(pairs);
            start..judged.len()
        };
        let [a, b, c, d, e, f] = all.map(&mut range);
        Ok(Links { split, free, seed, judged, parts: [[a, b], [c, d], [e, f]] })
    }

    /// The graph along which messages pass.
    pub fn message(&self) -> &Graph {
        &self.split.message
    }

    /// How many edges train, choose and judge.
    pub fn counts(&self) -> [usize; 3] {
        [&self.split.train, &self.split.val, &self.split.test].map(Vec::len)
    }

    /// The pairs of an epoch: first the training edges, then as many that are none.
    ///
    /// # Errors
    /// When the graph has not enough non-edges.
    pub fn of_epoch(&self, epoch: usize) -> Result<Vec<[u32; 2]>> {
        let mut pairs = self.split.train.clone();
        pairs.extend(negatives(&self.free, pairs.len(), self.seed, epoch as u64)?);
        Ok(pairs)
    }

    /// The pairs whose scores [`Links::score`] wants, in its order.
    pub fn judged(&self) -> &[[u32; 2]] {
        &self.judged
    }

    /// How good the scores of [`Links::judged`] are: of training, validation and test. NaN where a
    /// part is empty.
    ///
    /// # Errors
    /// When there is not one score per pair, or the metric is none of links.
    pub fn score(&self, metric: Metric, scores: Mat<'_>) -> Result<[f64; 3]> {
        let found = scores.n_rows() * scores.n_cols();
        lacis_core::error::same_size("links", "number of scores", self.judged.len(), found)?;
        let flat: Vec<f32> = (0..scores.n_rows()).map(|i| scores.row(i)[0]).collect();
        let mut of = [f64::NAN; 3];
        for (of, [positive, negative]) in of.iter_mut().zip(&self.parts) {
            if !positive.is_empty() {
                let (positive, negative) = (&flat[positive.clone()], &flat[negative.clone()]);
                *of = metric.of_links(&LinkScores::shared(positive, negative))?;
            }
        }
        Ok(of)
    }
}

fn negatives(free: &NonEdges, count: usize, seed: u64, round: u64) -> Result<Vec<[u32; 2]>> {
    // A nearly complete graph has fewer.
    let count = count.min(usize::try_from(free.count()).unwrap_or(usize::MAX));
    let pairs = free.sample(count, seed, round)?;
    Ok(pairs.into_iter().map(|(source, target)| [source, target]).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ring() -> (Graph, Threads) {
        let edges: Vec<(u32, u32)> =
            (0..40).flat_map(|i| [(i, (i + 1) % 40), ((i + 1) % 40, i)]).collect();
        (Graph::from_edges(40, &edges).unwrap(), Threads::one())
    }

    #[test]
    fn epochs_differ_in_what_is_no_edge() {
        let (graph, threads) = ring();
        let links = Links::new(&graph, 3, &Job::quiet(&threads)).unwrap();
        assert_eq!(links.counts(), [34, 2, 4]);
        let [first, again, second] = [0, 0, 1].map(|epoch| links.of_epoch(epoch).unwrap());
        assert_eq!(first, again);
        assert_eq!(first.len(), 68);
        assert_eq!(first[..34], second[..34]);
        assert_ne!(first[34..], second[34..]);
        let message = links.message().adjacency();
        for [source, target] in &first[34..] {
            assert!(!message.row_cols(*target as usize).contains(source));
        }
    }

    #[test]
    fn perfect_scores_are_perfect() {
        let (graph, threads) = ring();
        let links = Links::new(&graph, 3, &Job::quiet(&threads)).unwrap();
        let is_edge = |[i, j]: &[u32; 2]| i.abs_diff(*j) == 1 || i.abs_diff(*j) == 39;
        let scores: Vec<f32> =
            links.judged().iter().map(|pair| f32::from(u8::from(is_edge(pair)))).collect();
        let mat = Mat::new(&scores, scores.len(), 1, 1).unwrap();
        for name in ["roc-auc", "ap", "hits@1", "mrr"] {
            let [_, val, test] = links.score(name.parse().unwrap(), mat).unwrap();
            assert_eq!([val, test], [1.0, 1.0], "{name}");
        }
        assert!(links.score("accuracy".parse().unwrap(), mat).is_err());
        let few = Mat::new(&scores[1..], scores.len() - 1, 1, 1).unwrap();
        assert!(links.score("roc-auc".parse().unwrap(), few).is_err());
    }
}
