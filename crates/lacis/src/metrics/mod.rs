//! How good predictions are: one table of metrics, defined as scikit-learn and OGB define them.
//!
//! | name | of | definition |
//! | --- | --- | --- |
//! | `accuracy` | classes | the highest score is the class's |
//! | `f1-micro` | classes, labels | `2·TP / (2·TP + FP + FN)`, counted over all of them |
//! | `f1-macro` | classes, labels | the same of each, and their mean |
//! | `roc-auc` | two classes, labels, links | how often a positive beats a negative, ties half |
//! | `ap` | two classes, labels, links | `Σ (R_i − R_{i−1})·P_i` over the distinct scores |
//! | `hits@k` | links | positives that score above the `k`-th best negative |
//! | `mrr` | links | mean of `1 / rank` of each positive among the negatives, ties half |
//! | `mae` | numbers | mean of the absolute error, mean over columns |
//! | `rmse` | numbers | root of the mean squared error, mean over columns |
//!
//! Scores are logits: of labels, above 0 means yes. A label that is not known does not count. A
//! metric of nothing is NaN, and so is a ranking of scores with a NaN among them.

mod classes;
mod links;
mod numbers;
mod ranking;
mod scored;

use std::fmt;
use std::str::FromStr;

use lacis_core::{Error, Labels, Result, Threads};

pub use crate::schedule::Better;
pub use links::LinkScores;
pub use scored::{ScoreRow, Scored};

/// What is predicted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Task {
    /// Something of each node.
    Node,
    /// Whether two nodes are joined.
    Link,
    /// Something of each graph of a collection.
    Graph,
}

impl FromStr for Task {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        match text {
            "node" => Ok(Task::Node),
            "link" => Ok(Task::Link),
            "graph" => Ok(Task::Graph),
            _ => Err(Error::argument(format!("'{text}'"), "is no task; node, link and graph are")),
        }
    }
}

/// A row of the table of metrics.
pub struct Entry {
    /// What users call it; `k` stands for a number.
    pub name: &'static str,
    /// Which of two values is better.
    pub better: Better,
    /// What it is for.
    pub tasks: &'static [Task],
    /// What it is, in a line.
    pub about: &'static str,
    of_items: Option<fn(&Scored<'_>, &Threads) -> Result<f64>>,
    of_links: Option<fn(&LinkScores<'_>, usize) -> f64>,
}

const ITEMS: &[Task] = &[Task::Node, Task::Graph];
const LINKS: &[Task] = &[Task::Link];
const ALL: &[Task] = &[Task::Node, Task::Graph, Task::Link];

/// Every metric there is.
pub static METRICS: &[Entry] = &[
    Entry {
        name: "accuracy",
        better: Better::Higher,
        tasks: ITEMS,
        about: "share of items whose highest score is their class's",
        of_items: Some(classes::accuracy),
        of_links: None,
    },
    Entry {
        name: "roc-auc",
        better: Better::Higher,
        tasks: ALL,
        about: "area under the ROC curve, mean over labels that have both kinds",
        of_items: Some(ranking::mean_roc_auc),
        of_links: Some(links::roc_auc),
    },
    Entry {
        name: "f1-micro",
        better: Better::Higher,
        tasks: ITEMS,
        about: "F1 of the counts of all classes or labels together",
        of_items: Some(classes::f1_micro),
        of_links: None,
    },
    Entry {
        name: "f1-macro",
        better: Better::Higher,
        tasks: ITEMS,
        about: "mean of the F1 of each class or label",
        of_items: Some(classes::f1_macro),
        of_links: None,
    },
    Entry {
        name: "ap",
        better: Better::Higher,
        tasks: ALL,
        about: "average precision, mean over labels that have both kinds",
        of_items: Some(ranking::mean_average_precision),
        of_links: Some(links::average_precision),
    },
    Entry {
        name: "hits@k",
        better: Better::Higher,
        tasks: LINKS,
        about: "share of true links that score above the k-th best false one",
        of_items: None,
        of_links: Some(links::hits_at),
    },
    Entry {
        name: "mrr",
        better: Better::Higher,
        tasks: LINKS,
        about: "mean reciprocal rank of true links among the false ones",
        of_items: None,
        of_links: Some(links::mean_reciprocal_rank),
    },
    Entry {
        name: "mae",
        better: Better::Lower,
        tasks: ITEMS,
        about: "mean absolute error",
        of_items: Some(numbers::mean_absolute_error),
        of_links: None,
    },
    Entry {
        name: "rmse",
        better: Better::Lower,
        tasks: ITEMS,
        about: "root of the mean squared error",
        of_items: Some(numbers::root_mean_squared_error),
        of_links: None,
    },
];

/// A metric of the table, with its `k` where it has one.
#[derive(Clone, Copy)]
pub struct Metric {
    entry: &'static Entry,
    k: usize,
}

impl Metric {
    /// What people use for such labels: accuracy, F1 or the mean absolute error; for links the area
    /// under the ROC curve.
    pub fn default_for(task: Task, labels: Option<&Labels>) -> Self {
        let name = match (task, labels) {
            (Task::Link, _) => "roc-auc",
            (_, Some(Labels::Multi(_))) => "f1-micro",
            (_, Some(Labels::Targets(_))) => "mae",
            (_, Some(Labels::Classes { .. }) | None) => "accuracy",
        };
        name.parse().expect("the table has it")
    }

    /// Which of two values is better.
    pub fn better(&self) -> Better {
        self.entry.better
    }

    /// Whether it is a metric of such a task.
    pub fn is_for(&self, task: Task) -> bool {
        self.entry.tasks.contains(&task)
    }

    /// The metric of scored items.
    ///
    /// # Errors
    /// When it is no metric of such labels, or is one of links.
    pub fn of_items(&self, scored: &Scored<'_>, threads: &Threads) -> Result<f64> {
        match self.entry.of_items {
            Some(metric) => metric(scored, threads),
            None => Err(Error::argument(self.to_string(), "is a metric of links")),
        }
    }

    /// The metric of scored links.
    ///
    /// # Errors
    /// When it is no metric of links.
    pub fn of_links(&self, scores: &LinkScores<'_>) -> Result<f64> {
        match self.entry.of_links {
            Some(metric) => Ok(metric(scores, self.k)),
            None => Err(Error::argument(self.to_string(), "is no metric of links")),
        }
    }
}

impl PartialEq for Metric {
    fn eq(&self, other: &Self) -> bool {
        (self.entry.name, self.k) == (other.entry.name, other.k)
    }
}

impl fmt::Display for Metric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.entry.name.strip_suffix('k') {
            Some(stem) if stem.ends_with('@') => write!(f, "{stem}{}", self.k),
            _ => f.write_str(self.entry.name),
        }
    }
}

impl fmt::Debug for Metric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Metric({self})")
    }
}

impl FromStr for Metric {
    type Err = Error;

    /// A name of the table; `hits@20` for `hits@k`.
    fn from_str(text: &str) -> Result<Self> {
        let numbered = text.split_once('@').and_then(|(stem, k)| Some((stem, k.parse().ok()?)));
        let (name, k) = match numbered {
            Some((stem, k @ 1..)) => (format!("{stem}@k"), k),
            _ => (text.to_owned(), 0),
        };
        let found = METRICS.iter().find(|entry| entry.name == name);
        let takes_k = |entry: &&Entry| entry.name.ends_with("@k") == (k > 0);
        match found.filter(takes_k) {
            Some(entry) => Ok(Metric { entry, k }),
            None => {
                let names: Vec<&str> = METRICS.iter().map(|entry| entry.name).collect();
                let problem = format!("is no metric; there are {}", names.join(", "));
                Err(Error::argument(format!("'{text}'"), problem))
            }
        }
    }
}

#[cfg(test)]
mod tests;
