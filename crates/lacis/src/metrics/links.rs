//! Metrics of links: the scores of true links beside those of false ones.

use lacis_core::error::same_size;
use lacis_core::{Error, Result};
use lacis_kernels::Mat;

use super::ranking;

/// Scores of true links and of false ones, either false ones for all or some for each.
#[derive(Clone, Copy, Debug)]
pub struct LinkScores<'a> {
    positive: &'a [f32],
    negative: Negative<'a>,
}

#[derive(Clone, Copy, Debug)]
enum Negative<'a> {
    Shared(&'a [f32]),
    OfEach(Mat<'a>),
}

impl<'a> LinkScores<'a> {
    /// All true links are compared with the same false ones.
    pub fn shared(positive: &'a [f32], negative: &'a [f32]) -> Self {
        LinkScores { positive, negative: Negative::Shared(negative) }
    }

    /// Row `i` has the false links that true link `i` is compared with.
    ///
    /// # Errors
    /// When there is not one row per true link, or a row is empty.
    pub fn of_each(positive: &'a [f32], negative: impl Into<Mat<'a>>) -> Result<Self> {
        let negative = negative.into();
        same_size("metric", "rows of false links", positive.len(), negative.n_rows())?;
        if negative.n_cols() == 0 {
            return Err(Error::argument("metric", "there are no false links to compare with"));
        }
        Ok(LinkScores { positive, negative: Negative::OfEach(negative) })
    }

    /// All false links.
    fn negatives(&self) -> Vec<f32> {
        match self.negative {
            Negative::Shared(negative) => negative.to_vec(),
            Negative::OfEach(mat) => {
                (0..mat.n_rows()).flat_map(|i| mat.row(i).iter().copied()).collect()
            }
        }
    }

    fn pairs(&self) -> impl Iterator<Item = (bool, f32)> {
        let positives = self.positive.iter().map(|&score| (true, score));
        positives.chain(self.negatives().into_iter().map(|score| (false, score)))
    }

    fn has_nan(&self) -> bool {
        self.pairs().any(|(_, score)| score.is_nan())
    }
}

pub(super) fn roc_auc(scores: &LinkScores<'_>, _: usize) -> f64 {
    ranking::roc_auc(scores.pairs()).unwrap_or(f64::NAN)
}

pub(super) fn average_precision(scores: &LinkScores<'_>, _: usize) -> f64 {
    ranking::average_precision(scores.pairs()).unwrap_or(f64::NAN)
}

/// As OGB: 1 where there are fewer than `k` false links.
pub(super) fn hits_at(scores: &LinkScores<'_>, k: usize) -> f64 {
    if scores.has_nan() || scores.positive.is_empty() {
        return f64::NAN;
    }
    let mut negatives = scores.negatives();
    if negatives.len() < k {
        return 1.0;
    }
    let (_, kth, _) = negatives.select_nth_unstable_by(k - 1, |a, b| b.total_cmp(a));
    // Adding 0 makes 0 of -0, which sorts apart from it.
    let kth = *kth + 0.0;
    let hits = scores.positive.iter().filter(|&&score| score > kth).count();
    hits as f64 / scores.positive.len() as f64
}

/// As OGB: a rank is the mean of the best and the worst that equal scores allow.
pub(super) fn mean_reciprocal_rank(scores: &LinkScores<'_>, _: usize) -> f64 {
    if scores.has_nan() {
        return f64::NAN;
    }
    let reciprocal = |better: usize, equal: usize| 1.0 / (1.0 + better as f64 + equal as f64 / 2.0);
    let sum: f64 = match scores.negative {
        Negative::Shared(negative) => {
            let mut sorted: Vec<f32> = negative.iter().map(|score| score + 0.0).collect();
            sorted.sort_unstable_by(|a, b| b.total_cmp(a));
            let of = |&score: &f32| {
                let better = sorted.partition_point(|&negative| negative > score);
                let as_good = sorted.partition_point(|&negative| negative >= score);
                reciprocal(better, as_good - better)
            };
            scores.positive.iter().map(of).sum()
        }
        Negative::OfEach(mat) => {
            let of = |(i, score): (usize, &f32)| {
                let better = mat.row(i).iter().filter(|negative| *negative > score).count();
                let equal = mat.row(i).iter().filter(|negative| *negative == score).count();
                reciprocal(better, equal)
            };
            scores.positive.iter().enumerate().map(of).sum()
        }
    };
    sum / scores.positive.len() as f64
}
