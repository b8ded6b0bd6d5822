//! Accuracy and F1: counts of what was said and what was so.
//!
//! # Parallelism
//! Blocks of items are counted apart and the counts added: whole numbers, in any order.

use std::ops::Range;

use lacis_core::threads::ranges;
use lacis_core::{Error, Labels, Result, Threads};

use super::scored::{Scored, mean_of_columns};

/// Items that one thread counts at a time.
const BLOCK: usize = 1 << 14;

/// For one class or label: said and so, said but not so, so but not said.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counts {
    true_positive: u64,
    false_positive: u64,
    false_negative: u64,
}

impl Counts {
    fn add(&mut self, other: &Counts) {
        self.true_positive += other.true_positive;
        self.false_positive += other.false_positive;
        self.false_negative += other.false_negative;
    }

    /// 0 where nothing was said nor so, as scikit-learn has it.
    fn f1(&self) -> f64 {
        let twice = 2 * self.true_positive;
        let all = twice + self.false_positive + self.false_negative;
        if all == 0 { 0.0 } else { twice as f64 / all as f64 }
    }

    fn is_absent(&self) -> bool {
        *self == Counts::default()
    }
}

/// The highest score's column, the first of equal ones; a NaN is never highest. One score for two
/// classes is the second one's.
fn highest(scores: &[f32], classes: usize) -> Option<usize> {
    if let [second] = scores
        && classes > 1
    {
        return (!second.is_nan()).then_some(usize::from(*second > 0.0));
    }
    let mut best: Option<(usize, f32)> = None;
    for (j, &score) in scores.iter().enumerate() {
        if best.map_or(!score.is_nan(), |(_, best)| score > best) {
            best = Some((j, score));
        }
    }
    best.map(|(j, _)| j)
}

/// Counts of every class, and how many items there were.
fn count_classes(scored: &Scored<'_>, of: &[i32], n: usize, places: Range<usize>) -> Vec<Counts> {
    let mut counts = vec![Counts::default(); n];
    for (item, scores) in places.map(|place| scored.at(place)) {
        let Ok(class) = usize::try_from(of[item]) else { continue };
        match highest(scores, n) {
            Some(said) if said == class => counts[class].true_positive += 1,
            said => {
                counts[class].false_negative += 1;
                said.into_iter().for_each(|said| counts[said].false_positive += 1);
            }
        }
    }
    counts
}

/// Counts of every label: row `item` of `is` holds 1, 0 or, where it is not known, NaN.
fn count_labels(
    scored: &Scored<'_>,
    is: impl Fn(usize, &mut [f32]),
    places: Range<usize>,
) -> Vec<Counts> {
    let mut counts = vec![Counts::default(); scored.width()];
    let mut labels = vec![0.0; scored.width()];
    for (item, scores) in places.map(|place| scored.at(place)) {
        is(item, &mut labels);
        for ((count, &label), &score) in counts.iter_mut().zip(&labels).zip(scores) {
            let (so, said) = (label > 0.0, score > 0.0);
            count.true_positive += u64::from(so && said);
            count.false_negative += u64::from(so && !said);
            count.false_positive += u64::from(label <= 0.0 && said);
        }
    }
    counts
}

fn count(scored: &Scored<'_>, threads: &Threads) -> Vec<Counts> {
    let blocks = threads.map(ranges(scored.len(), BLOCK), |places| match scored.labels() {
        Labels::Classes { of, count, .. } => count_classes(scored, of, *count, places),
        Labels::Targets(of) => {
            count_labels(scored, |item, labels| labels.copy_from_slice(of.row(item)), places)
        }
        Labels::Multi(of) => {
            let of = of.view();
            let is = |item, labels: &mut [f32]| {
                labels.fill(0.0);
                of.row(item).for_each(|e| labels[of.cols[e] as usize] = of.value(e));
            };
            count_labels(scored, is, places)
        }
    });
    let mut sums = vec![Counts::default(); scored.labels().width()];
    for block in blocks {
        sums.iter_mut().zip(&block).for_each(|(sum, count)| sum.add(count));
    }
    sums
}

pub(super) fn accuracy(scored: &Scored<'_>, threads: &Threads) -> Result<f64> {
    if !matches!(scored.labels(), Labels::Classes { .. }) {
        let problem = "needs one class per item; f1-micro and roc-auc are for labels";
        return Err(Error::argument("accuracy", problem));
    }
    let counts = count(scored, threads);
    let right: u64 = counts.iter().map(|c| c.true_positive).sum();
    let all: u64 = counts.iter().map(|c| c.true_positive + c.false_negative).sum();
    Ok(right as f64 / all as f64)
}

pub(super) fn f1_micro(scored: &Scored<'_>, threads: &Threads) -> Result<f64> {
    let mut sum = Counts::default();
    count(scored, threads).iter().for_each(|counts| sum.add(counts));
    Ok(if scored.len() == 0 { f64::NAN } else { sum.f1() })
}

/// Mean over labels; over classes, those that were said or so.
pub(super) fn f1_macro(scored: &Scored<'_>, threads: &Threads) -> Result<f64> {
    let classes = matches!(scored.labels(), Labels::Classes { .. });
    let counts = count(scored, threads);
    let counted = counts.iter().filter(|c| !(classes && c.is_absent()));
    let values = counted.map(|counts| Some(counts.f1())).collect();
    Ok(if scored.len() == 0 { f64::NAN } else { mean_of_columns(values) })
}
