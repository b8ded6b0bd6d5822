//! [`Labelled`]: what a batch's results are compared with.

use lacis_core::{Dense, Labels, Result};
use lacis_kernels::Mat;
use lacis_kernels::loss::Loss;
use lacis_plan::op::LossKind;

use crate::exec::Targets;
use crate::exec::weighted::{Wanted, Weighted};

/// Labels in the order of a batch's results, and the rows that count.
#[derive(Debug)]
pub(crate) struct Labelled {
    of: Of,
    rows: Vec<u32>,
    /// By how much each result counts, where not all do alike.
    weights: Option<Vec<f32>>,
}

#[derive(Debug)]
enum Of {
    Classes(Vec<i32>, usize),
    Multi(Dense),
    Numbers(Dense),
}

/// Which loss labels ask for, and how many columns it has.
pub fn loss_of(labels: &Labels) -> (LossKind, usize) {
    match labels {
        Labels::Classes { count, .. } => (LossKind::Classes, *count),
        Labels::Multi(of) => (LossKind::Binary, of.n_cols()),
        Labels::Targets(of) => (LossKind::Squares, of.n_cols()),
    }
}

impl Labelled {
    /// Result `i` is about item `items[i]`; the results `rows` count.
    pub fn new(labels: &Labels, items: &[u32], rows: Vec<u32>) -> Self {
        let of = match labels {
            Labels::Classes { of, count, .. } => {
                Of::Classes(items.iter().map(|&item| of[item as usize]).collect(), *count)
            }
            Labels::Multi(of) => {
                let mut dense = Dense::zeros(items.len(), of.n_cols());
                for (i, &item) in items.iter().enumerate() {
                    let row = dense.row_mut(i);
                    of.row_cols(item as usize).iter().for_each(|&c| row[c as usize] = 1.0);
                }
                Of::Multi(dense)
            }
            Labels::Targets(of) => {
                let mut dense = Dense::zeros(items.len(), of.n_cols());
                for (i, &item) in items.iter().enumerate() {
                    dense.row_mut(i).copy_from_slice(of.row(item as usize));
                }
                Of::Numbers(dense)
            }
        };
        Labelled { of, rows, weights: None }
    }

    /// Of pairs of nodes: first those that are joined, then those that are not.
    pub fn pairs(joined: usize, apart: usize) -> Self {
        let of = Dense::from_fn(joined + apart, 1, |p, _| f64::from(u8::from(p < joined)));
        let rows = (0..(joined + apart) as u32).collect();
        Labelled { of: Of::Multi(of), rows, weights: None }
    }

    /// Of the items that train, in the order of a graph's last level.
    pub fn of_level(labels: &Labels, train: &[u32], order: Option<&[u32]>) -> Self {
        match order {
            // The nodes that train are the first ones.
            Some(order) => {
                let rows = (0..train.len() as u32).collect();
                Labelled::new(labels, &order[..train.len()], rows)
            }
            None => {
                let all: Vec<u32> = (0..labels.n_rows() as u32).collect();
                Labelled::new(labels, &all, train.to_vec())
            }
        }
    }

    /// From now on results count by these weights, one for each.
    pub fn weigh(&mut self, weights: Vec<f32>) {
        self.weights = Some(weights);
    }

    /// How much a batch counts in the mean over an epoch: its results, or, where they are weighed,
    /// as much as any other batch.
    pub fn share(&self) -> usize {
        if self.weights.is_some() { 1 } else { self.rows.len() }
    }

    /// The loss, checked; none where the executor compares numbers itself.
    pub fn loss(&self) -> Result<Option<Loss<'_>>> {
        if self.weights.is_some() {
            return Ok(None);
        }
        match &self.of {
            Of::Classes(of, count) => Loss::classes(of, *count, &self.rows).map(Some),
            Of::Multi(of) => Loss::binary(of, &self.rows).map(Some),
            Of::Numbers(_) => Ok(None),
        }
    }

    /// What the executor compares with.
    pub fn targets<'a>(&'a self, loss: Option<&'a Loss<'a>>) -> Targets<'a> {
        if let Some(weights) = &self.weights {
            let wanted = match &self.of {
                Of::Classes(of, _) => Wanted::Classes(of),
                Of::Multi(of) => Wanted::Binary(Mat::from(of)),
                Of::Numbers(of) => Wanted::Numbers(Mat::from(of)),
            };
            return Targets::Weighted(Weighted { wanted, rows: &self.rows, weights });
        }
        match (loss, &self.of) {
            (Some(loss), _) => Targets::Loss(loss),
            (None, Of::Numbers(of)) => Targets::Numbers(Mat::from(of), &self.rows),
            (None, _) => Targets::None,
        }
    }
}
