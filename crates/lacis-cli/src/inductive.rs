//! `--val-data` and `--test-data`: other graphs with the same features choose and judge, by labels
//! that mean what they meant to the network.

use lacis::data::splits;
use lacis::kernels::Profile;
use lacis::metrics::{Metric, ScoreRow, Scored};
use lacis::plan::op::LossKind;
use lacis::train::{Job, Recipe, Trainer, loss_of};
use lacis::{Dataset, Error, Labels, Result, Split, Threads};

use crate::args_train::Train;
use crate::data::Desk;
use crate::out::Failure;
use crate::planned;

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
                source.is_now(data);
                source.given = None;
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

/// What a network learned to tell apart.
pub struct Learned<'a> {
    pub kind: LossKind,
    /// Columns of its results.
    pub width: usize,
    /// Names of classes, where there were some.
    pub names: &'a [String],
}

impl Learned<'_> {
    /// A data set's labels by the network's columns: of classes there may be fewer, and those that
    /// both know by name need not be in the same order.
    ///
    /// # Errors
    /// When they are something else, or the network does not know some.
    pub fn labels_of(&self, set: &Dataset, labels: &Labels) -> Result<Labels> {
        let (kind, width) = loss_of(labels);
        let Labels::Classes { of, names, .. } = labels else {
            let same = (kind, width) == (self.kind, self.width);
            return if same { Ok(labels.clone()) } else { Err(self.other(set, labels)) };
        };
        let by_name = !self.names.is_empty() && !names.is_empty();
        if kind != self.kind || !by_name && width > self.width {
            return Err(self.other(set, labels));
        }
        let column = |class: i32| match usize::try_from(class) {
            Ok(class) if by_name => self.column_of(set, names.get(class)),
            _ => Ok(class),
        };
        let of = of.iter().map(|&class| column(class)).collect::<Result<Vec<i32>>>()?;
        Ok(Labels::Classes { of: of.into(), count: self.width, names: self.names.to_vec() })
    }

    fn column_of(&self, set: &Dataset, name: Option<&String>) -> Result<i32> {
        let at = self.names.iter().position(|own| Some(own) == name);
        at.map(|at| at as i32).ok_or_else(|| {
            let (name, known) = (name.map_or("", String::as_str), self.names.join(", "));
            let problem = format!("has the class '{name}'; the network knows {known}");
            Error::argument(format!("data set '{}'", set.name()), problem)
        })
    }

    fn other(&self, set: &Dataset, labels: &Labels) -> Error {
        let (found, width) = (planned::labels_in_words(Some(labels)), self.width);
        let known = match self.kind {
            LossKind::Classes => format!("{width} classes"),
            LossKind::Binary => format!("{width} labels"),
            LossKind::Squares => format!("{width} numbers"),
        };
        let problem = format!("has {found}; the network knows {known}");
        Error::argument(format!("data set '{}'", set.name()), problem)
    }
}

/// A network that judges on another graph with the weights of the one that trains.
pub struct Judge<'a> {
    trainer: Trainer<'a>,
    labels: Labels,
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
        let (kind, width) = loss_of(own);
        let names = match own {
            Labels::Classes { names, .. } => names.as_slice(),
            _ => &[],
        };
        let labels = Learned { kind, width, names }.labels_of(set, labels)?;
        let trainer = Trainer::for_inference(job, recipe.clone(), width)?;
        Ok(Judge { items: splits::known(&labels), trainer, labels })
    }

    /// How good the weights of the one that trains are here.
    pub fn score(&mut self, from: &Trainer<'_>, metric: Metric, threads: &Threads) -> Result<f64> {
        for (to, from) in self.trainer.params_mut().all_mut().iter_mut().zip(from.params().all()) {
            to.value.clone_from(&from.value);
        }
        self.trainer.set_moments(from.moments().clone());
        let Judge { trainer, labels, items } = self;
        trainer.logits(|logits| {
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

#[cfg(test)]
mod tests {
    use lacis::Graph;

    use super::*;

    fn named(classes: &[i32], names: &[&str]) -> (Dataset, Labels) {
        let graph = Graph::from_edges(classes.len(), &[]).unwrap();
        let names = names.iter().map(|&name| name.to_owned()).collect();
        (Dataset::new("other", graph), Labels::classes(classes.to_vec(), names).unwrap())
    }

    #[test]
    fn classes_that_have_names_are_known_by_them() {
        let names = ["a", "b", "c"].map(str::to_owned);
        let learned = Learned { kind: LossKind::Classes, width: 3, names: &names };
        let (set, labels) = named(&[1, 0, -1], &["c", "a"]);
        match learned.labels_of(&set, &labels).unwrap() {
            Labels::Classes { of, count, .. } => assert_eq!((&of[..], count), (&[0, 2, -1][..], 3)),
            other => panic!("{other:?}"),
        }
        let (set, labels) = named(&[0, 1], &["a", "d"]);
        let error = learned.labels_of(&set, &labels).unwrap_err().to_string();
        assert_eq!(error, "data set 'other': has the class 'd'; the network knows a, b, c");
        let (set, labels) = named(&[0, 3], &[]);
        let error = learned.labels_of(&set, &labels).unwrap_err().to_string();
        assert_eq!(error, "data set 'other': has 4 classes; the network knows 3 classes");
    }
}
