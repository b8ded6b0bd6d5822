//! Numbers that many ratios come to.

/// The geometric mean; nothing of nothing.
pub fn geometric_mean(ratios: impl Iterator<Item = f64>) -> Option<f64> {
    let (sum, count) = ratios
        .filter(|ratio| *ratio > 0.0 && ratio.is_finite())
        .fold((0.0, 0usize), |(sum, count), ratio| (sum + ratio.ln(), count + 1));
    (count > 0).then(|| (sum / count as f64).exp())
}

/// Spearman's rank correlation of pairs; equal numbers share a rank. Nothing of fewer than three.
pub fn rank_correlation(pairs: &[[f64; 2]]) -> Option<f64> {
    if pairs.len() < 3 {
        return None;
    }
    let [a, b] = [0, 1].map(|side| ranks(pairs.iter().map(|pair| pair[side]).collect()));
    let mean = (pairs.len() as f64 - 1.0) / 2.0;
    let covariance = |a: &[f64], b: &[f64]| -> f64 {
        a.iter().zip(b).map(|(a, b)| (a - mean) * (b - mean)).sum()
    };
    let scale = (covariance(&a, &a) * covariance(&b, &b)).sqrt();
    (scale > 0.0).then(|| covariance(&a, &b) / scale)
}

fn ranks(numbers: Vec<f64>) -> Vec<f64> {
    let rank = |of: f64| {
        let below = numbers.iter().filter(|number| **number < of).count();
        let same = numbers.iter().filter(|number| **number == of).count();
        below as f64 + (same as f64 - 1.0) / 2.0
    };
    numbers.iter().map(|number| rank(*number)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn means_and_ranks() {
        assert_eq!(geometric_mean([].into_iter()), None);
        assert!((geometric_mean([2.0, 8.0].into_iter()).unwrap() - 4.0).abs() < 1e-12);
        let pairs = [[1.0, 10.0], [2.0, 20.0], [3.0, 90.0]];
        assert!((rank_correlation(&pairs).unwrap() - 1.0).abs() < 1e-12);
        let turned = [[1.0, 3.0], [2.0, 2.0], [3.0, 1.0]];
        assert!((rank_correlation(&turned).unwrap() + 1.0).abs() < 1e-12);
        // One swap among four: 1 - 6·2 / (4·15).
        let swapped = [[1.0, 1.0], [2.0, 3.0], [3.0, 2.0], [4.0, 4.0]];
        assert!((rank_correlation(&swapped).unwrap() - 0.8).abs() < 1e-12);
        assert_eq!(rank_correlation(&[[1.0, 1.0], [1.0, 2.0], [1.0, 3.0]]), None);
    }
}
