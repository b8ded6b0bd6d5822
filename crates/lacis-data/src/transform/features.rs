//! Features and labels: normalised, or made for a graph that has none.

use lacis_core::threads::ranges;
use lacis_core::{
    Buffer, CHUNK_ENTRIES, Coo, Csr, Dataset, Dense, Error, Extent, Features, Repeats, Result,
    Tags, Threads,
};

use crate::Job;
use crate::generate::draw;
use crate::splits::{self, Fractions};

/// Features as PyG's `NormalizeFeatures` makes them: the smallest of all is subtracted, then each
/// row divided by its sum, or by 1 where that is larger. Sparse ones stay sparse if none of them is
/// negative.
///
/// # Errors
/// When the data set has no features.
pub fn row_normalize(set: Dataset, job: &Job) -> Result<Dataset> {
    let normalized = match set.features() {
        None => {
            return Err(Error::argument("row normalisation", "the data set has no features"));
        }
        Some(Features::Dense(x)) => Features::Dense(normalized_dense(x.clone())),
        Some(Features::Sparse(x)) => normalized_sparse(x, job.threads)?,
    };
    set.with_features(normalized)
}

fn normalized_dense(mut x: Dense) -> Dense {
    let least = x.rows().flatten().copied().fold(f32::INFINITY, f32::min);
    for i in 0..x.n_rows() {
        let row = x.row_mut(i);
        row.iter_mut().for_each(|value| *value -= least);
        let divisor = divisor(row);
        row.iter_mut().for_each(|value| *value /= divisor);
    }
    x
}

/// The row's sum, or 1 where that is larger.
fn divisor(row: &[f32]) -> f32 {
    (row.iter().map(|&value| f64::from(value)).sum::<f64>() as f32).max(1.0)
}

fn normalized_sparse(x: &Csr, threads: &Threads) -> Result<Features> {
    let mut x = x.clone().without_order();
    let ones = |len| Buffer::copied(&vec![1.0; len]);
    let mut values = x.values().map_or_else(|| ones(x.nnz()), Buffer::copied);
    if x.has_repeats(threads) {
        x = x.with_values(Some(values))?.sorted(Repeats::Sum, threads);
        values = Buffer::copied(x.values().unwrap_or_default());
    }
    let full = x.nnz() == x.n_rows() * x.n_cols();
    if full || values.iter().any(|&value| value < 0.0) {
        let dense = Features::Sparse(x).to_dense();
        return Ok(Features::Dense(normalized_dense(dense)));
    }
    let all = values.make_mut();
    for i in 0..x.n_rows() {
        let row = &mut all[x.row(i)];
        let divisor = divisor(row);
        row.iter_mut().for_each(|value| *value /= divisor);
    }
    Ok(Features::Sparse(x.with_values(Some(values))?))
}

/// Features for a graph that has none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FeatureSource {
    /// The in-degree, one-hot; the last column stands for all larger ones. The width does not
    /// depend on the graph, so that another graph's features have it too.
    Degree(usize),
    /// So many uniform numbers in −1..1 a node.
    Random(usize),
    /// A column per node, for a network that learns a row for each of them.
    Identity,
}

impl FeatureSource {
    /// Columns of the one-hot degree where the user does not say.
    pub const DEGREE_WIDTH: usize = 64;

    /// Reads `degree`, `degree:W`, `random:F`, `learned:F` or `F`.
    ///
    /// # Errors
    /// When the text is none of these, or the width is 0 or more than 2^20.
    pub fn parse(text: &str) -> Result<Self> {
        let (kind, width) = match text.split_once(':') {
            Some((kind, width)) => (kind, width),
            None if text == "degree" => return Ok(FeatureSource::Degree(Self::DEGREE_WIDTH)),
            None => ("random", text),
        };
        let width = width.parse().ok().filter(|width| (1..=1 << 20).contains(width));
        match (kind, width) {
            ("degree", Some(width)) => Ok(FeatureSource::Degree(width)),
            ("random", Some(width)) => Ok(FeatureSource::Random(width)),
            ("learned", Some(_)) => Ok(FeatureSource::Identity),
            _ => {
                let problem =
                    "'degree', 'degree:W', 'random:F', 'learned:F' or a number F is right";
                Err(Error::argument(format!("features '{text}'"), problem))
            }
        }
    }
}

/// The data set with features made from its graph or from a seed.
///
/// # Errors
/// When the graph is too large for them.
pub fn features_from(set: Dataset, source: FeatureSource, seed: u64, job: &Job) -> Result<Dataset> {
    let n = set.graph().n_nodes();
    let features = match source {
        FeatureSource::Degree(width) => Features::Sparse(one_hot_degree(&set, width, job)?),
        FeatureSource::Random(width) => draw::random_features(n, width, seed, job)?,
        FeatureSource::Identity => Features::Sparse(identity(n, job.threads)?),
    };
    set.with_features(features)
}

fn identity(n: usize, threads: &Threads) -> Result<Csr> {
    let all: Vec<u32> = (0..n as u32).collect();
    let extent = Extent { n_rows: Some(n), n_cols: Some(n) };
    Coo::from_slices(&all, &all, None, threads)?.into_csr(extent, Repeats::Keep, threads)
}

fn one_hot_degree(set: &Dataset, width: usize, job: &Job) -> Result<Csr> {
    let degrees = set.graph().adjacency().row_lengths();
    let mut coo = Coo::new(Tags::Absent);
    coo.extend(ranges(degrees.len(), CHUNK_ENTRIES), job.threads, |rows, chunk| {
        for i in rows {
            chunk.push(i as u32, degrees[i].min(width as u32 - 1));
        }
        Ok(())
    })?;
    let extent = Extent { n_rows: Some(degrees.len()), n_cols: Some(width) };
    coo.into_csr(extent, Repeats::Keep, job.threads)
}

/// The data set with random labels of so many classes and, if it has no split, a random one.
///
/// # Errors
/// When there are no classes or no items.
pub fn random_labels(set: Dataset, classes: usize, seed: u64) -> Result<Dataset> {
    if classes == 0 || classes >= i32::MAX as usize {
        return Err(Error::argument(
            format!("classes = {classes}"),
            format!("1 to {} would be right", i32::MAX - 1),
        ));
    }
    let labels = draw::random_labels(set.n_items(), classes, seed);
    let split = splits::random(&labels, Fractions::DEFAULT, seed)?;
    let set = set.with_labels(labels)?;
    if set.splits().is_empty() { set.with_split(split) } else { Ok(set) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lacis_core::Graph;

    fn quiet(f: impl FnOnce(&Job) -> Result<Dataset>) -> Dataset {
        f(&Job::quiet(&Threads::one())).unwrap()
    }

    fn bare() -> Dataset {
        let edges = [(0, 1), (1, 2), (0, 2), (3, 4), (4, 3)];
        Dataset::new("bare", Graph::from_edges(5, &edges).unwrap())
    }

    #[test]
    fn rows_are_normalized_as_pyg_does() {
        let with = |features| {
            let graph = Graph::from_edges(2, &[]).unwrap();
            Dataset::new("two", graph).with_features(features).unwrap()
        };
        let dense = Dense::from_vec(vec![-1.0, 3.0, -0.5, -0.9], 2, 2).unwrap();
        let set = quiet(|job| row_normalize(with(Features::Dense(dense.clone())), job));
        // Minus the minimum: [0 4; 0.5 0.1]; the second row's sum is below 1.
        let found = set.features().unwrap().to_dense();
        assert_eq!(found.row(0), [0.0, 1.0]);
        assert!((found.at(1, 0) - 0.5).abs() < 1e-6 && (found.at(1, 1) - 0.1).abs() < 1e-6);

        let threads = Threads::one();
        let coo =
            Coo::from_slices(&[0, 0, 0, 1], &[0, 0, 2, 1], Some(&[1.0, 2.0, 1.0, 0.5]), &threads);
        let extent = Extent { n_rows: Some(2), n_cols: Some(3) };
        let sparse = coo.unwrap().into_csr(extent, Repeats::Keep, &threads).unwrap();
        let set = quiet(|job| row_normalize(with(Features::Sparse(sparse.clone())), job));
        assert!(matches!(set.features(), Some(Features::Sparse(_))));
        let found = set.features().unwrap().to_dense();
        assert_eq!((found.row(0), found.row(1)), (&[0.75, 0.0, 0.25][..], &[0.0, 0.5, 0.0][..]));

        let negative = sparse.with_values(Some(vec![1.0, 2.0, -1.0, 0.5].into())).unwrap();
        let set = quiet(|job| row_normalize(with(Features::Sparse(negative)), job));
        let found = set.features().unwrap().to_dense();
        assert_eq!(found.row(0), [0.8, 0.2, 0.0]);
        assert!(row_normalize(bare(), &Job::quiet(&threads)).is_err());
    }

    #[test]
    fn features_and_labels_come_from_nothing() {
        let source = |text| FeatureSource::parse(text).unwrap();
        assert_eq!(source("degree"), FeatureSource::Degree(64));
        assert_eq!(source("random:8"), source("8"));
        assert_eq!(source("learned:8"), FeatureSource::Identity);
        let own = quiet(|job| features_from(bare(), FeatureSource::Identity, 1, job));
        let features = own.features().unwrap();
        assert_eq!([features.width(), features.nnz()], [own.graph().n_nodes(); 2]);
        for bad in
            ["", "0", "random:", "random:x", "learned:", "learned:0", "x.npy", "random:2000000"]
        {
            assert!(FeatureSource::parse(bad).is_err(), "{bad}");
        }
        let random = quiet(|job| features_from(bare(), source("8"), 1, job));
        assert_eq!(random.features().unwrap().width(), 8);
        let degree = quiet(|job| features_from(bare(), FeatureSource::Degree(2), 1, job));
        assert_eq!(degree.features().unwrap().to_dense().row(2), [0.0, 1.0]);
        let labelled = random_labels(bare(), 3, 1).unwrap();
        assert_eq!((labelled.labels().unwrap().width(), labelled.splits().len()), (3, 1));
        assert!(random_labels(bare(), 0, 1).is_err());
    }
}
