//! The two kinds of graphs in an `.npz`, read.

use std::path::Path;

use lacis_core::threads::ranges;
use lacis_core::{CHUNK_ENTRIES, Coo, Csr, CsrParts, Dataset, Dense, Error, Extent, Features};
use lacis_core::{Graph, Labels, Origin, Repeats, Result, Tags};

use super::Npz;
use crate::input::check_count;
use crate::scipy::{Settled, Turn, compressed, features, settle, settled, without_ones};
use crate::{Job, note};

/// Whether an archive with these arrays is a SciPy sparse matrix.
pub fn is_scipy(names: &[String]) -> bool {
    let has = |wanted: &str| names.iter().any(|name| name == wanted);
    has("format") && has("shape") && has("data")
}

/// Whether an archive with these arrays is a graph as gnn-benchmark keeps them.
pub fn is_gnn_benchmark(names: &[String]) -> bool {
    Keys::find("adj", |wanted| names.iter().any(|name| name == wanted)).is_some()
}

/// Reads a SciPy sparse matrix as a graph; a rectangular one joins two kinds of nodes.
///
/// # Errors
/// When the file is no such archive, its arrays do not fit together, or a weight is not finite.
pub fn read_scipy(path: &Path, job: &Job) -> Result<Dataset> {
    let mut npz = Npz::open(path, job)?;
    let formats = npz.strings("format")?.unwrap_or_default();
    let shape = npz.shape("shape")?;
    let keys = Keys::with_prefix("");
    let adjacency = match formats.first().map_or("", String::as_str) {
        "csr" => by_rows(&mut npz, &keys, shape)?,
        "csc" => by_columns(&mut npz, &keys, shape)?,
        "coo" => coordinates(&mut npz, shape)?,
        other => {
            let problem = format!("a matrix of format '{other}' is not read; csr, csc and coo are");
            return Err(npz.source("format").problem(problem));
        }
    };
    Ok(dataset(&npz, adjacency, "scipy-npz"))
}

/// Reads a graph as gnn-benchmark keeps them: adjacency, attributes, labels, class names.
///
/// # Errors
/// When the file is no such archive, its arrays do not fit together, or a number is not finite.
pub fn read_gnn_benchmark(path: &Path, job: &Job) -> Result<Dataset> {
    let mut npz = Npz::open(path, job)?;
    let Some(keys) = Keys::find("adj", |name| npz.has(name)) else {
        let problem = "there is no adjacency: adj_data, adj_indices, adj_indptr and adj_shape";
        return Err(Error::file(path, problem));
    };
    let shape = npz.shape(&keys.shape)?;
    if shape[0] != shape[1] {
        let [n_rows, n_cols] = shape;
        let problem = format!("the adjacency is {n_rows} × {n_cols}; a square would be right");
        return Err(npz.source(&keys.shape).problem(problem));
    }
    let adjacency = by_rows(&mut npz, &keys, shape)?;
    let mut set = dataset(&npz, adjacency, "gnn-benchmark-npz");
    if let Some(features) = attributes(&mut npz)? {
        set = set.with_features(features).map_err(|e| npz.source("attributes").blame(e))?;
    }
    with_labels(set, &mut npz)
}

/// The names of a compressed matrix's arrays.
struct Keys {
    data: String,
    indices: String,
    indptr: String,
    shape: String,
}

impl Keys {
    fn with_prefix(prefix: &str) -> Self {
        let [data, indices, indptr, shape] =
            ["data", "indices", "indptr", "shape"].map(|part| format!("{prefix}{part}"));
        Keys { data, indices, indptr, shape }
    }

    /// The names under which a matrix is kept, if all of them are there.
    fn find(name: &str, has: impl Fn(&str) -> bool) -> Option<Self> {
        let prefixes = [format!("{name}_"), format!("{name}_matrix."), format!("{name}.")];
        let mut keys = prefixes.iter().map(|prefix| Keys::with_prefix(prefix));
        keys.find(|k| [&k.data, &k.indices, &k.indptr, &k.shape].iter().all(|key| has(key)))
    }
}

/// A compressed matrix of this shape (rows first, as they are compressed).
fn matrix(npz: &mut Npz<'_>, keys: &Keys, [n_rows, n_cols]: [usize; 2]) -> Result<Csr> {
    npz.check_nodes(&[&keys.indices])?;
    npz.same_count(&keys.indices, &keys.data)?;
    // Ones are dropped before anything else is read, to keep the peak of memory low.
    let values = without_ones(npz.finite_vector(&keys.data)?);
    let cols = npz.vector(&keys.indices)?;
    let row_ptr = npz.row_ptr(&keys.indptr, cols.len())?;
    let parts = CsrParts { n_cols, row_ptr, cols, values, order: None };
    compressed(parts, n_rows, &npz.source(&keys.indices), npz.job.threads)
}

/// As [`matrix`]; that there are so many columns is believed only of as much data.
fn wide_matrix(npz: &mut Npz<'_>, keys: &Keys, shape: [usize; 2]) -> Result<Csr> {
    let matrix = matrix(npz, keys, shape)?;
    let accounted = matrix.nnz() + matrix.n_rows();
    let believed = check_count("columns", matrix.n_cols(), accounted);
    believed.map_err(|e| npz.source(&keys.shape).problem(e))?;
    Ok(matrix)
}

/// An adjacency, what became of its repeats, and how many there were.
struct Adjacency {
    settled: Settled,
    weighted: bool,
}

impl Adjacency {
    fn note(&self) -> Option<String> {
        let n_repeats = self.settled.n_repeats;
        if self.weighted { note::summed(n_repeats) } else { note::merged(n_repeats) }
    }
}

/// The adjacency of a matrix kept by rows: its transpose.
fn by_rows(npz: &mut Npz<'_>, keys: &Keys, shape: [usize; 2]) -> Result<Adjacency> {
    let matrix = wide_matrix(npz, keys, shape)?;
    adjacency(npz, keys, matrix, Turn::Transposed)
}

/// The adjacency of a matrix kept by columns, which are the rows of its transpose.
fn by_columns(npz: &mut Npz<'_>, keys: &Keys, shape: [usize; 2]) -> Result<Adjacency> {
    let matrix = wide_matrix(npz, keys, [shape[1], shape[0]])?;
    adjacency(npz, keys, matrix, Turn::Kept)
}

fn adjacency(npz: &Npz<'_>, keys: &Keys, matrix: Csr, turn: Turn) -> Result<Adjacency> {
    let weighted = matrix.values().is_some();
    let settled = settled(matrix, turn, &npz.source(&keys.data), npz.job.threads)?;
    Ok(Adjacency { settled, weighted })
}

/// The adjacency of a matrix kept as a list of entries.
fn coordinates(npz: &mut Npz<'_>, [n_rows, n_cols]: [usize; 2]) -> Result<Adjacency> {
    npz.check_nodes(&["row", "col"])?;
    npz.same_count("row", "data")?;
    let data = npz.finite_vector("data")?;
    let n_values = data.len();
    let values = without_ones(data);
    let sources = npz.vector::<u32>("row")?;
    for count in [n_rows, n_cols] {
        check_count("nodes", count, n_values).map_err(|e| npz.source("shape").problem(e))?;
    }
    let coo = listed(npz, &sources, values.as_deref())?;
    let weighted = values.is_some();
    drop((sources, values));
    let [target, source] = coo.largest().unwrap_or_default().map(|index| index as usize);
    for (name, largest, extent) in [("row", source, n_rows), ("col", target, n_cols)] {
        if !coo.is_empty() && largest >= extent {
            let problem = format!("index {largest} is outside 0..{extent}");
            return Err(npz.source(name).problem(problem));
        }
    }
    let extent = Extent { n_rows: Some(n_cols), n_cols: Some(n_rows) };
    let repeats = if weighted { Repeats::Sum } else { Repeats::Merge };
    let settled = settle(coo, extent, repeats, (&npz.source("shape"), npz.job.threads))?;
    Ok(Adjacency { settled, weighted })
}

/// The entries of a matrix kept as a list; its columns join as they arrive.
fn listed(npz: &mut Npz<'_>, sources: &[u32], values: Option<&[f32]>) -> Result<Coo> {
    let threads = npz.job.threads;
    let mut coo = Coo::new(values.map_or(Tags::Absent, |_| Tags::Values));
    npz.with("col", |npy| {
        if npy.header().shape != [sources.len()] {
            let (shape, right) = (npy.header().shape_text(), sources.len());
            let problem = format!("the array has shape {shape}; ({right},) would fit the rows");
            return Err(npy.source().problem(problem));
        }
        npy.batches(CHUNK_ENTRIES * threads.count(), |first, targets: &[u32]| {
            coo.extend(ranges(targets.len(), CHUNK_ENTRIES), threads, |range, chunk| {
                let all = first + range.start..first + range.end;
                let places = targets[range].iter().zip(&sources[all.clone()]);
                chunk.places.extend(places.map(|(&target, &source)| [target, source]));
                let tags = values.map(|values| &values[all]).unwrap_or_default();
                chunk.tags.extend(tags.iter().map(|value| value.to_bits()));
                Ok(())
            })
        })
    })?;
    Ok(coo)
}

/// The data set of an adjacency.
fn dataset(npz: &Npz<'_>, adjacency: Adjacency, format: &str) -> Dataset {
    let origin = Origin {
        format: format.to_owned(),
        synthetic: false,
        notes: adjacency.note().into_iter().collect(),
    };
    let name = npz.path.file_stem().unwrap_or_default().to_string_lossy();
    Dataset::new(name, Graph::new(adjacency.settled.csr)).with_origin(origin)
}

/// The attributes, sparse or dense, if there are any.
fn attributes(npz: &mut Npz<'_>) -> Result<Option<Features>> {
    if let Some(keys) = Keys::find("attr", |name| npz.has(name)) {
        let shape = npz.shape(&keys.shape)?;
        let csr = wide_matrix(npz, &keys, shape)?;
        return features(csr, &npz.source(&keys.data), npz.job.threads).map(Some);
    }
    if !npz.has("attr_matrix") {
        return Ok(None);
    }
    let array = npz.with("attr_matrix", |npy| npy.finite())?;
    let source = npz.source("attr_matrix");
    let &[n_rows, n_cols] = &array.shape[..] else {
        let problem = format!("the array has {} axes; two would be right", array.shape.len());
        return Err(source.problem(problem));
    };
    let dense = Dense::new(array.data, n_rows, n_cols, n_cols);
    dense.map(|x| Some(Features::Dense(x))).map_err(|error| source.blame(error))
}

/// The data set with its labels, if there are any: one class a node, or a sparse matrix of them.
fn with_labels(set: Dataset, npz: &mut Npz<'_>) -> Result<Dataset> {
    if let Some(keys) = Keys::find("labels", |name| npz.has(name)) {
        let shape = npz.shape(&keys.shape)?;
        let labels = wide_matrix(npz, &keys, shape)?;
        let source = npz.source(&keys.data);
        let labels = settled(labels, Turn::Kept, &source, npz.job.threads)?;
        let labelled = set.with_labels(Labels::Multi(labels.csr));
        return labelled.map_err(|error| npz.source(&keys.indptr).blame(error));
    }
    if !npz.has("labels") {
        return Ok(set);
    }
    let of = npz.vector::<i32>("labels")?;
    let largest = of.iter().copied().max().unwrap_or(-1).max(0) as usize;
    check_count("classes", largest, of.len()).map_err(|e| npz.source("labels").problem(e))?;
    let (names, note) = class_names(npz)?;
    let labelled = Labels::classes(of, names).and_then(|labels| set.with_labels(labels));
    let set = labelled.map_err(|error| npz.source("labels").blame(error))?;
    Ok(match note {
        Some(note) => set.with_note(note),
        None => set,
    })
}

/// The classes' names, or why there are none.
fn class_names(npz: &mut Npz<'_>) -> Result<(Vec<String>, Option<String>)> {
    if !npz.has("class_names") {
        return Ok((Vec::new(), None));
    }
    Ok(match npz.strings("class_names")? {
        Some(names) => (names, None),
        None => {
            let note = "class_names are Python objects, a pickle, and were passed over";
            (Vec::new(), Some(note.to_owned()))
        }
    })
}
