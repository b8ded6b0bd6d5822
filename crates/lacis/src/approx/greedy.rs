//! How much each layer keeps, as RSC has it (Liu et al., ICML 2023): from all pairs that are not 0,
//! a fiftieth at a time is taken from the layer that loses least, until the work fits the budget.
//!
//! As published, but for one thing: a layer that has nothing left to give is passed over instead of
//! ending the loop, so that the budget is met.

/// What a layer loses per share: step of the published code.
pub const STEP: f64 = 0.02;

/// A layer as the loop sees it.
pub struct Layer<'a> {
    /// Smoothed scores of its pairs.
    pub scores: &'a [f32],
    /// Entries of each pair.
    pub work: &'a [u32],
    /// Columns of the product.
    pub width: usize,
    /// Smoothed norm of the product.
    pub norm: f64,
}

/// Sums over the largest pairs, and how many stay.
struct Sorted {
    scores: Vec<f64>,
    work: Vec<f64>,
    width: f64,
    norm: f64,
    share: f64,
}

impl Sorted {
    fn of(layer: &Layer<'_>) -> Self {
        let mut order: Vec<u32> = (0..layer.scores.len() as u32).collect();
        let score = |j: &u32| layer.scores[*j as usize];
        order.sort_unstable_by(|a, b| score(b).total_cmp(&score(a)).then_with(|| a.cmp(b)));
        let running = |of: &dyn Fn(usize) -> f64| {
            let mut sum = 0.0;
            let sums = order.iter().map(|&j| {
                sum += of(j as usize);
                sum
            });
            std::iter::once(0.0).chain(sums).collect::<Vec<f64>>()
        };
        let positive = layer.scores.iter().filter(|&&s| s > 0.0).count();
        Sorted {
            scores: running(&|j| f64::from(layer.scores[j])),
            work: running(&|j| f64::from(layer.work[j])),
            width: layer.width as f64,
            norm: if layer.norm > 0.0 { layer.norm } else { 1.0 },
            share: positive as f64 / layer.scores.len().max(1) as f64,
        }
    }

    fn at(&self, share: f64) -> usize {
        ((self.scores.len() - 1) as f64 * share.max(0.0)) as usize
    }

    /// Score lost, relative to the product, and work saved by the next step.
    fn next(&self) -> [f64; 2] {
        let (to, from) = (self.at(self.share - STEP), self.at(self.share));
        let lost = (self.scores[from] - self.scores[to]) / self.norm;
        [lost, self.width * (self.work[from] - self.work[to])]
    }

    fn used(&self) -> f64 {
        self.width * self.work[self.at(self.share)]
    }
}

/// The share of pairs that each layer keeps, for a share of all work.
pub fn shares(layers: &[Layer<'_>], budget: f64) -> Vec<f64> {
    let mut sorted: Vec<Sorted> = layers.iter().map(Sorted::of).collect();
    let all = |layer: &Layer<'_>| {
        layer.width as f64 * layer.work.iter().map(|&c| f64::from(c)).sum::<f64>()
    };
    let most = budget * layers.iter().map(all).sum::<f64>();
    let mut used: f64 = sorted.iter().map(Sorted::used).sum();
    while used > most {
        let open = sorted.iter().enumerate().filter(|(_, layer)| layer.share > STEP);
        let losses = open.map(|(at, layer)| (at, layer.next()));
        let Some((at, [_, saved])) = losses.min_by(|a, b| a.1[0].total_cmp(&b.1[0])) else {
            break;
        };
        sorted[at].share -= STEP;
        used -= saved;
    }
    sorted.iter().map(|layer| layer.share).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_layer_that_loses_least_gives_first_and_the_budget_is_met() {
        let (flat, steep) =
            (vec![1.0_f32; 100], (0..100).map(|i| 0.9_f32.powi(i)).collect::<Vec<_>>());
        let work = vec![10; 100];
        let layer = |scores| Layer { scores, work: &work, width: 4, norm: 10.0 };
        let shares = shares(&[layer(&flat), layer(&steep)], 0.5);
        assert!(shares[0] > 0.7 && shares[1] < 0.3, "{shares:?}");
        assert!(shares[0] + shares[1] <= 1.0 + 1e-9);
    }

    #[test]
    fn pairs_that_are_zero_are_free() {
        let mut scores = vec![0.0_f32; 100];
        scores[..40].fill(1.0);
        let work = vec![1; 100];
        let layer = Layer { scores: &scores, work: &work, width: 1, norm: 1.0 };
        assert!((shares(&[layer], 0.5)[0] - 0.4).abs() < 1e-9);
    }

    #[test]
    fn a_layer_with_nothing_left_does_not_stop_the_others() {
        let (tiny, large) = (vec![1e-6_f32; 50], vec![1.0_f32; 50]);
        let work = vec![1; 50];
        let layer = |scores| Layer { scores, work: &work, width: 1, norm: 1.0 };
        let shares = shares(&[layer(&tiny), layer(&large)], 0.2);
        assert!(shares.iter().sum::<f64>() <= 0.4 + 2.0 * STEP, "{shares:?}");
    }
}
