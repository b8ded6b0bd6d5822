//! MATLAB 5 files (`.mat` up to `-v7`): the matrices that make a graph.
//!
//! ```text
//!  128 bytes of header, then elements: type, size, data      packed ones hold one element each
//!  a matrix: flags and class, extents, name, then numbers;   sparse ones: rows, starts, values
//! ```
//! The adjacency is the matrix called `network`, `A`, `adj`, … or the only square sparse one; entry
//! `(i, j)` is an edge from `i` to `j`. `group`, `label`, `gnd`, … are labels, `attrb`,
//! `features`, `fea`, … features. Files of `-v7.3` are HDF5 and are not read.

mod element;

use std::path::Path;

use lacis_core::{Csr, CsrParts, Dataset, Dense, Error, Features, Graph, Labels, Origin};
use lacis_core::{Result, RowPtr};

use crate::input::check_count;
use crate::npy::Source;
use crate::parts::numbered_classes;
use crate::scipy::{Turn, compressed, features, settled, without_ones};
use crate::{Job, note};

use element::{Content, Matrix};

/// Names of adjacencies, labels and features, the likeliest first; case does not matter.
const ADJACENCY: &[&str] =
    &["network", "adj", "a", "adjacency", "adj_matrix", "graph", "net", "w", "problem.a"];
const LABELS: &[&str] = &["group", "labels", "label", "gnd", "y", "class", "classes"];
const FEATURES: &[&str] = &["attributes", "attrb", "attr", "features", "feature", "fea", "x"];

/// Whether a file begins as MATLAB 5 writes it.
pub fn recognises(head: &[u8]) -> bool {
    head.len() >= 128 && head.starts_with(b"MATLAB 5.0") && matches!(&head[126..128], b"IM" | b"MI")
}

/// Reads the graph in a file.
///
/// # Errors
/// When there is no adjacency, or the file is damaged.
pub fn read(path: &Path, job: &Job<'_>) -> Result<Dataset> {
    let mut matrices = element::read_all(path, job)?;
    let Some(at) = adjacency_of(&matrices) else {
        let names: Vec<&str> = matrices.iter().map(|m| &*m.name).take(20).collect();
        let problem = format!(
            "holds no square sparse matrix, only {}; 'network' would be right",
            names.join(", ")
        );
        return Err(Error::file(path, problem));
    };
    let adjacency = matrices.swap_remove(at);
    let source = Source::file(path, job);
    let name = adjacency.name.clone();
    // Compressed columns are the rows of the transpose: targets already.
    let columns = by_columns(adjacency, &source, job)?;
    let weighted = columns.values().is_some();
    let adjacency = settled(columns, Turn::Kept, &source.with_member(&name), job.threads)?;
    let repeats = adjacency.n_repeats;
    let note = if weighted { note::summed(repeats) } else { note::merged(repeats) };
    let notes = note.into_iter().collect();
    let n = adjacency.csr.n_rows();
    let mut set = Dataset::new(crate::stem(path), Graph::new(adjacency.csr))
        .with_origin(Origin { notes, ..Origin::default() });
    if let Some(found) = take(&mut matrices, FEATURES, n) {
        set = set.with_features(features_of(found, &source, job)?)?;
    }
    if let Some(found) = take(&mut matrices, LABELS, n) {
        set = set.with_labels(labels_of(found, n, &source, job)?)?;
    }
    Ok(set)
}

fn named(matrix: &Matrix, names: &[&str]) -> Option<usize> {
    names.iter().position(|name| matrix.name.eq_ignore_ascii_case(name))
}

/// The adjacency: by its name, or the only one that can be.
fn adjacency_of(matrices: &[Matrix]) -> Option<usize> {
    let square = |m: &Matrix| m.shape[0] == m.shape[1] && m.shape[0] > 1;
    let candidates = matrices.iter().enumerate().filter(|(_, m)| square(m));
    let by_name =
        candidates.clone().filter_map(|(at, m)| named(m, ADJACENCY).map(|rank| (rank, at)));
    let mut sparse = candidates.filter(|(_, m)| matches!(m.content, Content::Sparse { .. }));
    let only = || sparse.next().filter(|_| sparse.next().is_none()).map(|(at, _)| at);
    by_name.min().map(|(_, at)| at).or_else(only)
}

/// The matrix of one of these names that has a row, or in labels a column, a node.
fn take(matrices: &mut Vec<Matrix>, names: &[&str], n: usize) -> Option<Matrix> {
    let fits = |m: &Matrix| m.shape[0] == n || m.shape == [1, n];
    let found = matrices.iter().enumerate().filter(|(_, m)| fits(m));
    let (_, at) = found.filter_map(|(at, m)| named(m, names).map(|rank| (rank, at))).min()?;
    Some(matrices.swap_remove(at))
}

/// A matrix by its columns: rows of the result are columns of the matrix.
fn by_columns(matrix: Matrix, source: &Source<'_>, job: &Job<'_>) -> Result<Csr> {
    let [n_rows, n_cols] = matrix.shape;
    let member = matrix.name;
    let source = source.with_member(&member);
    let (starts, rows, values) = match matrix.content {
        Content::Sparse { starts, rows, values } => (starts, rows, values),
        Content::Dense(values) => {
            let (mut starts, mut rows, mut kept) = (vec![0], Vec::new(), Vec::new());
            for column in values.chunks(n_rows.max(1)).take(n_cols) {
                for (i, &value) in (0..).zip(column).filter(|(_, value)| **value != 0.0) {
                    rows.push(i);
                    kept.push(value);
                }
                starts.push(rows.len() as u64);
            }
            (starts, rows, kept)
        }
    };
    check_count("rows", n_rows, rows.len() + n_cols).map_err(|e| source.problem(e))?;
    let parts = CsrParts {
        n_cols: n_rows,
        row_ptr: RowPtr::Wide(starts.into()),
        cols: rows.into(),
        values: without_ones(values.into()),
        order: None,
    };
    compressed(parts, n_cols, &source, job.threads)
}

/// A matrix with its own rows.
fn by_rows(matrix: Matrix, source: &Source<'_>, job: &Job<'_>) -> Result<Csr> {
    Ok(by_columns(matrix, source, job)?.transpose(job.threads))
}

fn features_of(matrix: Matrix, source: &Source<'_>, job: &Job<'_>) -> Result<Features> {
    let [n_rows, n_cols] = matrix.shape;
    let Content::Dense(values) = &matrix.content else {
        let rows = by_rows(matrix, source, job)?;
        return features(rows, source, job.threads);
    };
    Ok(Features::Dense(row_major(values, n_rows, n_cols)?))
}

fn row_major(values: &[f32], n_rows: usize, n_cols: usize) -> Result<Dense> {
    let at = |e: usize| values[e % n_cols * n_rows + e / n_cols];
    Dense::from_vec((0..n_rows * n_cols).map(at).collect(), n_rows, n_cols)
}

/// A column of classes; one-hot rows are classes too, and other rows any number of labels.
fn labels_of(matrix: Matrix, n: usize, source: &Source<'_>, job: &Job<'_>) -> Result<Labels> {
    if let Content::Dense(values) = &matrix.content
        && values.len() == n
    {
        if values.iter().all(|x| x.fract() == 0.0) {
            return numbered_classes(&values.iter().map(|&x| x as i64).collect::<Vec<_>>());
        }
        return Ok(Labels::Targets(Dense::from_vec(values.clone(), n, 1)?));
    }
    let member = matrix.name.clone();
    let rows = by_rows(matrix, source, job)?;
    let labels = settled(rows, Turn::Kept, &source.with_member(&member), job.threads)?.csr;
    let one_hot = labels.values().is_none() && labels.row_lengths().iter().all(|&len| len == 1);
    if one_hot {
        let of: Vec<i32> = labels.cols().iter().map(|&class| class as i32).collect();
        return Ok(Labels::Classes { of: of.into(), count: labels.n_cols(), names: Vec::new() });
    }
    Ok(Labels::Multi(labels.with_values(None)?))
}
