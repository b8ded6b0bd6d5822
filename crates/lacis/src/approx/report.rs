//! What an approximation did, in words for programs.

use serde_json::{Value, json};

use super::{Approx, Policy};

/// The share of an epoch that is never sampled, at least: forward products take as long as backward
/// ones.
const LEAST_REST: f64 = 0.05;

/// Seconds of products and epochs, exact and sampled. Nothing is decided by them.
#[derive(Clone, Debug, Default)]
pub struct Clock {
    exact: Vec<Timed>,
    sampled: Vec<Timed>,
    /// Sampled epochs.
    epochs: Timed,
}

#[derive(Clone, Copy, Debug, Default)]
struct Timed {
    count: usize,
    seconds: f64,
    first: f64,
}

impl Timed {
    fn add(&mut self, seconds: f64) {
        if self.count == 0 {
            self.first = seconds;
        }
        self.count += 1;
        self.seconds += seconds;
    }

    /// The mean; the first time, memory is new, and it counts only if there is no other.
    fn mean(&self) -> Option<f64> {
        match self.count {
            0 => None,
            1 => Some(self.first),
            count => Some((self.seconds - self.first) / (count - 1) as f64),
        }
    }
}

impl Clock {
    pub fn new(steps: usize) -> Self {
        let none = vec![Timed::default(); steps];
        Clock { exact: none.clone(), sampled: none, epochs: Timed::default() }
    }

    /// One more step; returns its number.
    pub fn add_step(&mut self) -> usize {
        self.exact.push(Timed::default());
        self.sampled.push(Timed::default());
        self.exact.len() - 1
    }
}

impl Approx {
    /// A step took this long, choosing included, with all pairs or some.
    pub fn spent(&mut self, step: usize, seconds: f64, sampled: bool) {
        let of = if sampled { &mut self.clock.sampled } else { &mut self.clock.exact };
        if let Some(timed) = of.get_mut(step) {
            timed.add(seconds);
        }
    }

    /// An epoch took this long.
    pub fn end(&mut self, seconds: f64) {
        if self.epoch > 0 && !self.is_exact() {
            self.clock.epochs.add(seconds);
        }
    }

    /// Seconds that sampled products saved, an exact epoch's over those of a sampled one, and
    /// over one whose products took no time: as measured in this run.
    fn measured(&self) -> [Option<f64>; 3] {
        let (mut saved, mut exact, mut sampled) = (0.0, 0.0, 0.0);
        for product in &self.products {
            let [all, some] = [&self.clock.exact, &self.clock.sampled].map(|of| of[product.step]);
            let (Some(each), Some(few)) = (all.mean(), some.mean()) else { continue };
            saved += each * some.count as f64 - some.seconds;
            exact += each;
            sampled += few;
        }
        let Some(epoch) = self.clock.epochs.mean() else { return [None; 3] };
        let rest = epoch - sampled;
        // Of epochs that a clock hardly sees, means of different ones do not go together.
        if rest < LEAST_REST * epoch {
            return [Some(saved), None, None];
        }
        [Some(saved), Some((rest + exact) / epoch), Some((rest + exact) / rest)]
    }

    /// What was asked for, predicted, done and measured.
    pub fn report(&self) -> Value {
        let [saved, speedup, ceiling] = self.measured();
        let layers: Vec<Value> = self.products.iter().map(|product| self.layer(product)).collect();
        let policy = match self.settings.policy {
            Policy::Rsc => "rsc",
            Policy::Adaptive => "adaptive",
        };
        json!({ "policy": policy, "on": self.is_on(), "budget": self.settings.budget,
                "error": self.settings.error, "exact_from": self.exact_from() + 1,
                "predicted_ceiling": self.sampling.ceiling,
                "predicted_speedup": self.sampling.speedup,
                "ceiling": ceiling, "speedup": speedup, "saved_s": saved,
                "layers": layers })
    }

    /// The same in a line for people.
    pub fn summary(&self) -> String {
        let share = |of: fn(&super::Refresh) -> f64| {
            let means = self.products.iter().map(|product| {
                let sum: f64 = product.history.iter().map(of).sum();
                format!("{:.3}", sum / product.history.len().max(1) as f64)
            });
            means.collect::<Vec<_>>().join(", ")
        };
        let [saved, speedup, ceiling] = self.measured();
        let faster = match (speedup.zip(ceiling), saved) {
            (Some((speedup, ceiling)), Some(saved)) => format!(
                "{speedup:.2} times faster epochs of at most {ceiling:.2} (Amdahl), \
                 {saved:.2} s saved"
            ),
            _ => "too short to say what it saved".to_owned(),
        };
        format!(
            "kept {} of entries, error {} (layers from the last); {faster}; exact from epoch {}",
            share(|r| r.kept),
            share(|r| r.error),
            self.exact_from() + 1,
        )
    }

    fn layer(&self, product: &super::Product) -> Value {
        let refreshes: Vec<Value> = product
            .history
            .iter()
            .map(|r| {
                json!({ "epoch": r.epoch + 1, "entries": r.entries, "kept": r.kept,
                        "error": r.error })
            })
            .collect();
        let mean = |of: fn(&super::Refresh) -> f64| {
            let count = product.history.len() as f64;
            let sum: f64 = product.history.iter().map(of).sum();
            (count > 0.0).then(|| sum / count)
        };
        let [exact, sampled] =
            [&self.clock.exact, &self.clock.sampled].map(|of| of[product.step].mean());
        let entries = product.fixed.as_ref().map(|fixed| fixed.entries);
        json!({ "step": product.step + 1, "layer": product.layer, "width": product.width,
                "entries": entries, "kept": mean(|r| r.kept), "error": mean(|r| r.error),
                "fallbacks": product.strikes, "exact_ms": exact.map(|s| s * 1e3),
                "sampled_ms": sampled.map(|s| s * 1e3), "refreshes": refreshes })
    }
}
