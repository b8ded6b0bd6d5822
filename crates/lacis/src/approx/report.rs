//! What an approximation did, in words for programs.

use serde_json::{Value, json};

use super::product::{Product, Refresh};
use super::{Approx, Policy};

/// The share of an epoch that is never sampled, at least: forward products take as long as backward
/// ones.
const LEAST_REST: f64 = 0.05;

/// Seconds of products and epochs. Nothing is decided by them.
#[derive(Clone, Debug, Default)]
pub struct Clock {
    exact: Vec<Timed>,
    sampled: Vec<Timed>,
    /// Of epochs that may be sampled, whether a product was or fell back.
    allowed: Vec<Timed>,
    /// Those epochs.
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
        let (exact, sampled) = (none.clone(), none.clone());
        Clock { exact, sampled, allowed: none, epochs: Timed::default() }
    }

    /// One more step; returns its number.
    pub fn add_step(&mut self) -> usize {
        for of in [&mut self.exact, &mut self.sampled, &mut self.allowed] {
            of.push(Timed::default());
        }
        self.exact.len() - 1
    }
}

/// What this run's clock says; nothing where it saw too little.
#[derive(Clone, Copy, Debug, Default)]
struct Measured {
    /// Seconds that sampled products saved.
    saved: Option<f64>,
    /// An exact epoch's over those of an epoch that may be sampled.
    speedup: Option<f64>,
    /// The same over one whose products took no time: Amdahl's bound.
    ceiling: Option<f64>,
    /// The same over one whose products took their budget's share of the exact time, and choosing
    /// none: Amdahl's bound at this budget.
    within: Option<f64>,
}

impl Approx {
    /// A step took this long, choosing included, with all pairs or some.
    pub fn spent(&mut self, step: usize, seconds: f64, sampled: bool) {
        let allowed = self.may_sample();
        let clock = &mut self.clock;
        let of = if sampled { &mut clock.sampled } else { &mut clock.exact };
        if let Some(timed) = of.get_mut(step) {
            timed.add(seconds);
        }
        if let Some(timed) = clock.allowed.get_mut(step).filter(|_| allowed) {
            timed.add(seconds);
        }
    }

    /// An epoch took this long; what is decided from it is decided now.
    pub fn end(&mut self, seconds: f64) {
        if self.may_sample() {
            self.clock.epochs.add(seconds);
        }
        self.prepare(self.epoch + 1);
    }

    fn may_sample(&self) -> bool {
        self.epoch > 0 && !self.is_exact()
    }

    fn measured(&self) -> Measured {
        let Some(epoch) = self.clock.epochs.mean() else { return Measured::default() };
        let (mut saved, mut exact, mut present) = (0.0, 0.0, 0.0);
        for product in &self.products {
            let [all, some, own] = [&self.clock.exact, &self.clock.sampled, &self.clock.allowed]
                .map(|of| of[product.step]);
            let (Some(each), Some(mean)) = (all.mean(), own.mean()) else {
                return Measured::default();
            };
            // An epoch of several batches has as many products.
            let times = own.count as f64 / self.clock.epochs.count as f64;
            saved += each * some.count as f64 - some.seconds;
            exact += each * times;
            present += mean * times;
        }
        let rest = epoch - present;
        // Of epochs that a clock hardly sees, means of different ones do not go together.
        if rest < LEAST_REST * epoch {
            return Measured { saved: Some(saved), ..Measured::default() };
        }
        let times = |of: f64| Some((rest + exact) / of);
        Measured {
            saved: Some(saved),
            speedup: times(epoch),
            ceiling: times(rest),
            within: times(rest + self.budget * exact),
        }
    }

    /// What was asked for, predicted, done and measured.
    pub fn report(&self) -> Value {
        let Measured { saved, speedup, ceiling, within } = self.measured();
        let layers: Vec<Value> = self.products.iter().map(|product| self.layer(product)).collect();
        let policy = match self.settings.policy {
            Policy::Rsc => "rsc",
            Policy::Adaptive => "adaptive",
        };
        json!({ "policy": policy, "on": self.is_on(), "possible": self.is_possible(),
                "budget": self.settings.budget, "error": self.settings.error,
                "bound": self.settings.bound(), "exact_from": self.exact_from() + 1,
                "predicted_ceiling": self.sampling.ceiling,
                "predicted_speedup": self.sampling.speedup,
                "ceiling": ceiling, "budget_ceiling": within,
                "speedup": speedup, "saved_s": saved,
                "layers": layers })
    }

    /// The same in a line for people.
    pub fn summary(&self) -> String {
        let each = |of: &dyn Fn(&Product) -> String| {
            self.products.iter().map(of).collect::<Vec<_>>().join(", ")
        };
        let mean = |of: fn(&Refresh) -> f64, none: &'static str| {
            each(&|product| mean(product, of).map_or(none.to_owned(), |mean| format!("{mean:.3}")))
        };
        let faster = match self.measured() {
            Measured {
                saved: Some(saved),
                speedup: Some(speedup),
                ceiling: Some(ceiling),
                within: Some(within),
            } => format!(
                "{speedup:.2} times faster epochs of at most {within:.2} with this budget and \
                 {ceiling:.2} with any (Amdahl), {saved:.2} s saved"
            ),
            _ => "too short to say what it saved".to_owned(),
        };
        let share = if self.products.iter().any(|product| product.epochs[0] > 0) {
            let (kept, error) = (mean(|r| r.kept, "all"), mean(|r| r.error, "none"));
            let epochs = each(&|product| self.exact_epochs(product).to_string());
            format!(
                "kept {kept} of entries, error {error}, exact in {epochs} of {} epochs (layers \
                 from the last); {faster}",
                self.begun
            )
        } else {
            "nothing was sampled".to_owned()
        };
        format!("{share}; exact from epoch {}", self.exact_from() + 1)
    }

    /// Which layers were too far off and were computed exactly for it, for people.
    pub fn fallen(&self) -> Option<String> {
        let fallen = self.products.iter().filter(|product| product.strikes > 0);
        let fallen = fallen.map(|product| {
            let layer = product.layer.map_or(product.step, usize::from) + 1;
            let times = match product.strikes {
                1 => "once".to_owned(),
                n => format!("{n} times"),
            };
            let worst = product.history.iter().filter(|r| !r.served).map(|r| r.error);
            let worst = worst.fold(f64::NAN, f64::max);
            let error = if worst.is_nan() { String::new() } else { format!(", error {worst:.2}") };
            let epochs = self.exact_epochs(product);
            format!("layer {layer} {times}{error}, exact in {epochs} of {} epochs", self.begun)
        });
        let fallen: Vec<String> = fallen.collect();
        (!fallen.is_empty()).then(|| {
            format!(
                "approximation fell back to exact products, whose relative error was not below \
                 {}: {}; --approx-bound sets another",
                self.settings.bound(),
                fallen.join("; "),
            )
        })
    }

    /// Epochs without a sample of this product.
    fn exact_epochs(&self, product: &Product) -> usize {
        self.begun.saturating_sub(product.epochs[0])
    }

    fn layer(&self, product: &Product) -> Value {
        let refreshes: Vec<Value> = product
            .history
            .iter()
            .map(|r| {
                json!({ "epoch": r.epoch + 1, "entries": r.entries, "kept": r.kept,
                        "error": r.error, "served": r.served })
            })
            .collect();
        let [exact, sampled] =
            [&self.clock.exact, &self.clock.sampled].map(|of| of[product.step].mean());
        let entries = product.fixed.as_ref().map(|fixed| fixed.entries);
        json!({ "step": product.step + 1, "layer": product.layer, "width": product.width,
                "entries": entries, "kept": mean(product, |r| r.kept),
                "error": mean(product, |r| r.error), "fallbacks": product.strikes,
                "exact_epochs": self.exact_epochs(product), "sampled_epochs": product.epochs[0],
                "exact_ms": exact.map(|s| s * 1e3), "sampled_ms": sampled.map(|s| s * 1e3),
                "refreshes": refreshes })
    }
}

/// The mean over the samples that served.
fn mean(product: &Product, of: fn(&Refresh) -> f64) -> Option<f64> {
    let served: Vec<f64> = product.history.iter().filter(|r| r.served).map(of).collect();
    (!served.is_empty()).then(|| served.iter().sum::<f64>() / served.len() as f64)
}

/// The reports of several runs in one: numbers are means over the runs that have them, refreshes
/// are each run's own and are left out, and all else is the first one's.
pub fn mean_report(reports: &[Value]) -> Value {
    let Some(first) = reports.first() else { return Value::Null };
    let of = |name: &str| -> Vec<Value> {
        reports.iter().filter_map(|report| report.get(name)).cloned().collect()
    };
    match first {
        Value::Object(fields) => {
            let fields = fields.keys().filter(|name| *name != "refreshes");
            Value::Object(fields.map(|name| (name.clone(), mean_report(&of(name)))).collect())
        }
        Value::Array(items) => {
            let at = |at: usize| -> Vec<Value> {
                reports.iter().filter_map(|report| report.get(at)).cloned().collect()
            };
            Value::Array((0..items.len()).map(|index| mean_report(&at(index))).collect())
        }
        Value::Number(_) | Value::Null => {
            let numbers: Vec<f64> = reports.iter().filter_map(Value::as_f64).collect();
            match numbers.len() {
                0 => Value::Null,
                n => json!(numbers.iter().sum::<f64>() / n as f64),
            }
        }
        other => other.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mean_of_reports_is_of_the_runs_that_have_a_number() {
        let run = |kept: Value, saved: f64, refreshes: usize| {
            json!({ "policy": "rsc", "on": true, "saved_s": saved, "error": null,
                    "layers": [{ "kept": kept, "refreshes": vec![saved; refreshes] }] })
        };
        let runs = [run(json!(0.5), 1.0, 3), run(Value::Null, 2.0, 1), run(json!(0.1), 6.0, 2)];
        let expected = json!({ "policy": "rsc", "on": true, "saved_s": 3.0, "error": null,
                               "layers": [{ "kept": 0.3 }] });
        assert_eq!(mean_report(&runs), expected);
        assert_eq!(mean_report(&[]), Value::Null);
    }
}
