//! [`Scored`]: scores beside the labels they are to be judged by.

use lacis_core::error::same_size;
use lacis_core::{ColumnOrder, Csr, Error, Labels, Result};
use lacis_kernels::Mat;

/// Where the scores of an item are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScoreRow {
    /// In the row of the item's number: every item has a row.
    OfItem,
    /// In the row of its place in the list: only those listed have one.
    InOrder,
}

/// The scores of some items, and the labels of all.
#[derive(Clone, Copy, Debug)]
pub struct Scored<'a> {
    scores: Mat<'a>,
    labels: &'a Labels,
    items: &'a [u32],
    row: ScoreRow,
}

impl<'a> Scored<'a> {
    /// Scores of `items`, one column per class, label or target.
    ///
    /// # Errors
    /// When an item has no label row or no score row, or the number of columns is another. For two
    /// classes one column, the score of the second, is enough.
    pub fn new(
        scores: impl Into<Mat<'a>>,
        labels: &'a Labels,
        items: &'a [u32],
        row: ScoreRow,
    ) -> Result<Self> {
        let scores = scores.into();
        let bound = match row {
            ScoreRow::OfItem => labels.n_rows().min(scores.n_rows()),
            ScoreRow::InOrder => labels.n_rows(),
        };
        if let Some(at) = items.iter().position(|&item| item as usize >= bound) {
            let (index, bound) = (u64::from(items[at]), bound as u64);
            return Err(Error::Index { op: "metric", what: "item", index, at, bound });
        }
        if row == ScoreRow::InOrder {
            same_size("metric", "rows of the scores", items.len(), scores.n_rows())?;
        }
        let two_classes = matches!(labels, Labels::Classes { count: 2, .. });
        if !(two_classes && scores.n_cols() == 1) {
            same_size("metric", "columns of the scores", labels.width(), scores.n_cols())?;
        }
        Ok(Scored { scores, labels, items, row })
    }

    /// The labels of all items.
    pub(super) fn labels(&self) -> &'a Labels {
        self.labels
    }

    /// How many items there are.
    pub(super) fn len(&self) -> usize {
        self.items.len()
    }

    /// Number of score columns.
    pub(super) fn width(&self) -> usize {
        self.scores.n_cols()
    }

    /// Item at a place of the list, and its scores.
    pub(super) fn at(&self, place: usize) -> (usize, &'a [f32]) {
        let item = self.items[place] as usize;
        let row = match self.row {
            ScoreRow::OfItem => item,
            ScoreRow::InOrder => place,
        };
        (item, self.scores.row(row))
    }

    /// For each item that has one, the label in a column and its score. Labels of two classes are
    /// one column: the second class, against the first.
    ///
    /// # Errors
    /// When the labels are more than two classes.
    pub(super) fn column(&self, column: usize) -> Result<Vec<(f32, f32)>> {
        let all = (0..self.len()).map(|place| self.at(place));
        Ok(match self.labels {
            Labels::Classes { of, count: 2, .. } => {
                let of = of.as_slice();
                let score = |x: &[f32]| if x.len() == 1 { x[0] } else { x[1] - x[0] };
                all.filter(|(item, _)| of[*item] >= 0)
                    .map(|(item, x)| (of[item] as f32, score(x)))
                    .collect()
            }
            Labels::Classes { count, .. } => {
                let problem =
                    format!("is defined for two classes or for labels, not for {count} classes");
                return Err(Error::argument("a ranking of scores", problem));
            }
            Labels::Multi(of) => {
                let label = |item| find(of, item, column as u32).map_or(0.0, |e| of.value(e));
                known(all.map(|(item, x)| (label(item), x[column])))
            }
            Labels::Targets(of) => known(all.map(|(item, x)| (of.row(item)[column], x[column]))),
        })
    }

    /// Columns that [`Scored::column`] has.
    pub(super) fn n_columns(&self) -> usize {
        match self.labels {
            Labels::Classes { .. } => 1,
            _ => self.width(),
        }
    }
}

/// The entry at a row and column.
fn find(a: &Csr, row: usize, column: u32) -> Option<usize> {
    let cols = a.row_cols(row);
    let at = match a.column_order() {
        ColumnOrder::Sorted => cols.binary_search(&column).ok(),
        ColumnOrder::Unsorted => cols.iter().position(|&j| j == column),
    };
    at.map(|at| a.row(row).start + at)
}

/// Those whose label is not NaN.
fn known(pairs: impl Iterator<Item = (f32, f32)>) -> Vec<(f32, f32)> {
    pairs.filter(|(label, _)| !label.is_nan()).collect()
}

/// The mean of the columns' values where there is one; NaN if there is none at all.
pub(super) fn mean_of_columns(values: Vec<Option<f64>>) -> f64 {
    let defined: Vec<f64> = values.into_iter().flatten().collect();
    defined.iter().sum::<f64>() / defined.len() as f64
}
