//! `--val-data` and `--test-data`: other graphs with the same features choose and judge.

use lacis::data::splits;
use lacis::kernels::Profile;
use lacis::metrics::{Metric, ScoreRow, Scored};
use lacis::train::{Job, Recipe, Trainer, loss_of};
use lacis::{Dataset, Error, Labels, Result, Split, Threads};

use crate::args_train::Train;
use crate::data::Desk;
use crate::out::Failure;

/// Graphs that choose and judge, where they are not the one that trains.
#[derive(Default)]
pub struct Elsewhere {
    pub val: Option<Dataset>,
    pub test: Option<Dataset>,
}

impl Elsewhere {
    /// Opens them, changed as the training data are.
    pub fn open(args: &Train, desk: &Desk<'_>) -> std::result::Result<Self, Failure> {
        let open = |data: &Option<String>| match data {
            None => Ok(None),
            Some(data) => {
                let mut source = args.source.clone();
                source.data.clone_from(data);
                desk.open(&source).map(Some)
            }
        };
        Ok(Elsewhere { val: open(&args.learning.val_data)?, test: open(&args.learning.test_data)? })
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.val.is_none() && self.test.is_none()
    }

    /// The training graph's split: all its nodes train unless a split was asked for, and what
    /// other graphs do is not done by its nodes.
    pub fn split(&self, dataset: &Dataset, asked: Split, was_asked: bool) -> Result<Split> {
        let Some(labels) = dataset.labels().filter(|_| !self.is_empty()) else { return Ok(asked) };
        let mut split = match (was_asked, &self.val) {
            (false, Some(_)) => splits::all(labels)?,
            _ => asked,
        };
        if self.val.is_some() {
            split.val.clear();
        }
        if self.test.is_some() {
            split.test.clear();
        }
        Ok(split)
    }
}

/// A network that judges on another graph with the weights of the one that trains.
pub struct Judge<'a> {
    trainer: Trainer<'a>,
    labels: &'a Labels,
    items: Vec<u32>,
}

impl<'a> Judge<'a> {
    /// Of another graph than the data that train.
    pub fn new(job: &'a Job<'a>, recipe: &Recipe, trained: &Dataset) -> Result<Self> {
        let set = job.dataset;
        let bad = |problem: String| Error::argument(format!("data set '{}'", set.name()), problem);
        let missing = || bad("has no labels to judge by".to_owned());
        let (own, labels) = trained.labels().zip(set.labels()).ok_or_else(missing)?;
        let columns = |set: &Dataset| set.features().map_or(0, lacis::Features::width);
        if columns(set) != columns(trained) {
            let (found, wanted) = (columns(set), columns(trained));
            let problem = format!("has {found} features; {wanted}, as those that train, is right");
            return Err(bad(problem));
        }
        let ([kind, other], [width, wide]) = {
            let (a, b) = (loss_of(own), loss_of(labels));
            ([a.0, b.0], [a.1, b.1])
        };
        if kind != other || wide > width {
            let problem = format!("has other labels ({wide}) than the training data ({width})");
            return Err(bad(problem));
        }
        let trainer = Trainer::for_inference(job, recipe.clone(), width)?;
        Ok(Judge { trainer, labels, items: splits::known(labels) })
    }

    /// How good the weights of the one that trains are here.
    pub fn score(&mut self, from: &Trainer<'_>, metric: Metric, threads: &Threads) -> Result<f64> {
        for (to, from) in self.trainer.params_mut().all_mut().iter_mut().zip(from.params().all()) {
            to.value.clone_from(&from.value);
        }
        self.trainer.set_moments(from.moments().clone());
        let Judge { trainer, labels, items } = self;
        let width = labels.width();
        trainer.logits(|logits| {
            // A graph may lack the last classes.
            let logits = logits.columns(0, width)?;
            metric.of_items(&Scored::new(logits, labels, items, ScoreRow::OfItem)?, threads)
        })?
    }
}

/// What judges on other graphs are given, kept as long as they are.
pub fn jobs<'a>(
    elsewhere: &'a Elsewhere,
    none: &'a Split,
    (threads, profile): (&'a Threads, &'a Profile),
) -> [Option<Job<'a>>; 2] {
    [&elsewhere.val, &elsewhere.test]
        .map(|set| set.as_ref().map(|dataset| Job { dataset, split: none, threads, profile }))
}
