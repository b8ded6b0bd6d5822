//! Trains a network on the built-in data set and says how good it is.

use lacis::data::Job as Reading;
use lacis::exec::Nobody;
use lacis::kernels::Profile;
use lacis::machine::this_machine;
use lacis::metrics::{Metric, ScoreRow, Scored, Task};
use lacis::nn::Config;
use lacis::train::{Job, Recipe, Trainer};
use lacis::{Error, Threads};

fn main() -> lacis::Result<()> {
    let threads = Threads::available();
    let set = lacis::open("cora-like", &Reading::quiet(&threads))?;
    let split = set.splits().first().cloned().unwrap_or_default();
    let profile = Profile::unmeasured(this_machine());
    let job = Job { dataset: &set, split: &split, threads: &threads, profile: &profile };

    let mut config = Config::new(1, 16, 1);
    config.dropout = 0.5;
    let recipe = Recipe { epochs: 100, eval_every: 10, ..Recipe::new("gcn", config) };
    let mut trainer = Trainer::new(&job, recipe)?;
    println!("{}", trainer.chosen().plan.formula);
    while trainer.epoch() < 100 {
        let epoch = trainer.step(&mut Nobody)?;
        if epoch.epoch % 20 == 0 {
            println!("epoch {:3}  loss {:.4}", epoch.epoch, epoch.loss);
        }
    }
    let labels = set.labels().ok_or_else(|| Error::argument("data", "no labels"))?;
    let metric = Metric::default_for(Task::Node, Some(labels));
    let test = trainer.logits(|scores| {
        metric.of_items(&Scored::new(scores, labels, &split.test, ScoreRow::OfItem)?, &threads)
    })??;
    println!("test {metric} {test:.4}");
    assert!(test > 0.7, "it has learned something");
    Ok(())
}
