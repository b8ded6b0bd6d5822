//! Rankings: how well scores put the positive before the negative.
//!
//! ```text
//!   roc-auc = (Σ rank of positives − P·(P + 1)/2) / (P·N)       equal scores share their mean rank
//!   ap      = Σ over distinct scores, falling:  (positives with it / P) · precision down to it
//! ```

use lacis_core::{Result, Threads};

use super::scored::{Scored, mean_of_columns};

/// Positives and negatives of each distinct score, rising; `None` with a NaN among the scores.
fn groups(pairs: impl IntoIterator<Item = (bool, f32)>) -> Option<Vec<[u64; 2]>> {
    let mut pairs: Vec<(f32, bool)> = pairs.into_iter().map(|(is, score)| (score, is)).collect();
    if pairs.iter().any(|(score, _)| score.is_nan()) {
        return None;
    }
    pairs.sort_unstable_by(|a, b| a.0.total_cmp(&b.0));
    // -0 sorts before 0 and is equal to it, so comparing neighbours joins the two.
    let mut groups: Vec<[u64; 2]> = Vec::new();
    let mut last = None;
    for (score, is) in pairs {
        if last != Some(score) {
            groups.push([0; 2]);
            last = Some(score);
        }
        let group = groups.last_mut().expect("pushed above");
        group[usize::from(!is)] += 1;
    }
    Some(groups)
}

/// The totals of positives and negatives.
fn totals(groups: &[[u64; 2]]) -> [u64; 2] {
    groups.iter().fold([0; 2], |sum, group| [sum[0] + group[0], sum[1] + group[1]])
}

/// The area under the ROC curve, if there are both kinds.
pub(super) fn roc_auc(pairs: impl IntoIterator<Item = (bool, f32)>) -> Option<f64> {
    let Some(groups) = groups(pairs) else { return Some(f64::NAN) };
    let [positives, negatives] = totals(&groups);
    if positives == 0 || negatives == 0 {
        return None;
    }
    // Twice the number of pairs in the right order, ties counted once: exact.
    let (mut twice, mut below) = (0u128, 0u64);
    for [p, n] in groups {
        twice += u128::from(p) * (2 * u128::from(below) + u128::from(n));
        below += n;
    }
    Some(twice as f64 / (2.0 * positives as f64 * negatives as f64))
}

/// The average precision, if there are both kinds.
pub(super) fn average_precision(pairs: impl IntoIterator<Item = (bool, f32)>) -> Option<f64> {
    let Some(groups) = groups(pairs) else { return Some(f64::NAN) };
    let [positives, negatives] = totals(&groups);
    if positives == 0 || negatives == 0 {
        return None;
    }
    let (mut found, mut seen, mut sum) = (0u64, 0u64, 0.0);
    for [p, n] in groups.into_iter().rev() {
        found += p;
        seen += p + n;
        sum += p as f64 * (found as f64 / seen as f64);
    }
    Some(sum / positives as f64)
}

/// The mean of a ranking's value over the columns that have one.
fn of_columns(
    scored: &Scored<'_>,
    threads: &Threads,
    value: fn(Vec<(bool, f32)>) -> Option<f64>,
) -> Result<f64> {
    let columns: Vec<usize> = (0..scored.n_columns()).collect();
    let values = threads.try_map(columns, |column| {
        let pairs = scored.column(column)?;
        Ok(value(pairs.into_iter().map(|(label, score)| (label > 0.0, score)).collect()))
    })?;
    Ok(mean_of_columns(values))
}

pub(super) fn mean_roc_auc(scored: &Scored<'_>, threads: &Threads) -> Result<f64> {
    of_columns(scored, threads, roc_auc)
}

pub(super) fn mean_average_precision(scored: &Scored<'_>, threads: &Threads) -> Result<f64> {
    of_columns(scored, threads, average_precision)
}
