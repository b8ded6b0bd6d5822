//! [`Changes`]: what a user wants changed about a graph after reading it.

use std::path::Path;

use lacis_core::{Dataset, Dense, Error, Features, Result};

use crate::transform::{self, EdgeWeights, FeatureSource};
use crate::{Job, npy};

/// Changes to a data set, made in the order of the fields. The default changes nothing.
#[derive(Clone, Debug, Default)]
pub struct Changes {
    /// Drops the weights of edges.
    pub ignore_weights: bool,
    /// Adds the reverse of every edge.
    pub undirected: bool,
    /// Keeps only the largest connected part.
    pub largest_component: bool,
    /// Adds a loop to every node that has none.
    pub self_loops: bool,
    /// Other features: `F` or `random:F` random ones, `degree`, or a `FILE.npy`.
    pub features: Option<String>,
    /// Random labels of so many classes.
    pub classes: Option<u32>,
    /// Makes each row of features sum to one.
    pub row_normalize: bool,
    /// The seed of random features and labels.
    pub seed: u64,
}

impl Changes {
    /// The data set, changed.
    ///
    /// # Errors
    /// When a change does not fit the data set.
    pub fn apply(&self, mut set: Dataset, job: &Job<'_>) -> Result<Dataset> {
        if self.ignore_weights {
            set = transform::edge_weights(set, EdgeWeights::Ignore)?;
        }
        if self.undirected {
            set = transform::undirected(set, job)?;
        }
        if self.largest_component {
            set = transform::largest_component(set, job)?;
        }
        if self.self_loops {
            set = transform::self_loops(set)?;
        }
        if let Some(features) = &self.features {
            set = match features.ends_with(".npy") {
                true => set.with_features(features_of(Path::new(features), job)?)?,
                false => {
                    transform::features_from(set, FeatureSource::parse(features)?, self.seed, job)?
                }
            };
        }
        if let Some(classes) = self.classes {
            set = transform::random_labels(set, classes as usize, self.seed)?;
        }
        if self.row_normalize {
            set = transform::row_normalize(set, job)?;
        }
        Ok(set)
    }
}

/// A `.npy` matrix, one row a node.
fn features_of(path: &Path, job: &Job<'_>) -> Result<Features> {
    let array = npy::read_finite(path, job)?;
    let [n_rows, n_cols] = array.shape[..] else {
        let problem =
            format!("has {} dimensions; two, nodes × features, would be right", array.shape.len());
        return Err(Error::file(path, problem));
    };
    Ok(Features::Dense(Dense::new(array.data, n_rows, n_cols, n_cols)?))
}
