//! Somebody watches a training, and stops it when validation gets no better.

use std::ops::ControlFlow;

use lacis::data::Job as Reading;
use lacis::kernels::Profile;
use lacis::machine::this_machine;
use lacis::metrics::{Metric, ScoreRow, Scored};
use lacis::nn::Config;
use lacis::train::watched::{Ended, Watcher};
use lacis::train::{Epoch, Job, Recipe, Trainer};
use lacis::{Labels, Result, Split, Threads};

/// Remembers the best validation, and gives up when it is long ago.
struct Patient<'a> {
    labels: &'a Labels,
    split: &'a Split,
    best: (f64, usize),
    patience: usize,
}

impl Watcher for Patient<'_> {
    fn epoch(&mut self, trainer: &mut Trainer<'_>, epoch: &Epoch) -> Result<ControlFlow<()>> {
        let threads = trainer.threads().clone();
        let accuracy = trainer.logits(|scores| {
            let scored = Scored::new(scores, self.labels, &self.split.val, ScoreRow::OfItem)?;
            "accuracy".parse::<Metric>()?.of_items(&scored, &threads)
        })??;
        if accuracy > self.best.0 {
            self.best = (accuracy, epoch.epoch);
            println!("epoch {:3}  loss {:.4}  validation {accuracy:.4}", epoch.epoch, epoch.loss);
        }
        let stale = epoch.epoch - self.best.1 >= self.patience;
        Ok(if stale { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
    }
}

fn main() -> Result<()> {
    let threads = Threads::available();
    let set = lacis::open("cora-like", &Reading::quiet(&threads))?;
    let split = set.splits().first().cloned().unwrap_or_default();
    let labels = set.labels().expect("this set has labels");
    let profile = Profile::unmeasured(this_machine());
    let job = Job { dataset: &set, split: &split, threads: &threads, profile: &profile };
    let mut trainer = Trainer::new(&job, Recipe::new("gcn", Config::new(1, 16, 1)))?;
    let mut patient = Patient { labels, split: &split, best: (0.0, 0), patience: 20 };
    let ended = trainer.train(&mut patient)?;
    let (best, at) = patient.best;
    println!("{ended:?} after {} epochs; best {best:.4} in epoch {at}", trainer.epoch());
    assert!(ended == Ended::Stopped && best > 0.6);
    Ok(())
}
