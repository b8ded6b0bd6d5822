//! [`GraphData`]: a graph with features, labels and splits, made of NumPy arrays and shown as such.

use std::ffi::OsString;

use lacis::data::Job;
use lacis::threads::ranges;
use lacis::{
    Buffer, CHUNK_ENTRIES, Coo, Csr, CsrParts, Dataset, Dense, Error, Extent, Features, Graph,
    Labels, Repeats, Result, RowPtr, Split, Tags, Threads,
};
use lacis_cli::embed::{self, Stop};
use numpy::{PyReadonlyArray1, PyReadonlyArray2};
use pyo3::prelude::*;

use crate::error::raise;
use crate::machine::threads;
use crate::view::View;

/// A graph and what is known of it. Nothing changes it: `with_…` returns another one.
#[pyclass(frozen, module = "lacis._lacis")]
pub struct GraphData {
    pub(crate) set: Dataset,
}

type Ints<'py> = PyReadonlyArray1<'py, i64>;
type Floats<'py> = PyReadonlyArray1<'py, f32>;

#[pymethods]
impl GraphData {
    /// A graph, its name and number of nodes given, from sources, targets and, if edges differ,
    /// their weights.
    #[staticmethod]
    fn from_edges(
        py: Python<'_>,
        named: (String, usize),
        source: Ints<'_>,
        target: Ints<'_>,
        weights: Option<Floats<'_>>,
    ) -> PyResult<Self> {
        let ((name, n), source, target) = (named, source.as_slice()?, target.as_slice()?);
        let weights = weights.as_ref().map(|weights| weights.as_slice()).transpose()?;
        let make = || from_lists(n, [source, target], weights, &threads()?);
        let csr = py.detach(make).map_err(raise)?;
        Ok(GraphData { set: Dataset::new(name, Graph::new(csr)) })
    }

    /// A graph whose rows are together already: row `i` holds the sources of edges to node `i`.
    #[staticmethod]
    fn from_csr(
        py: Python<'_>,
        name: String,
        indptr: Ints<'_>,
        indices: Ints<'_>,
        weights: Option<Floats<'_>>,
    ) -> PyResult<Self> {
        let (indptr, indices) = (indptr.as_slice()?, indices.as_slice()?);
        let weights = weights.as_ref().map(|weights| weights.as_slice()).transpose()?;
        let make = || from_rows(indptr, indices, weights, &threads()?);
        let csr = py.detach(make).map_err(raise)?;
        Ok(GraphData { set: Dataset::new(name, Graph::new(csr)) })
    }

    /// What a path, a built-in set or a generator names.
    #[staticmethod]
    fn open(py: Python<'_>, data: String, flags: Vec<OsString>) -> PyResult<Self> {
        let open = || embed::open(&data, flags, &Stop::default());
        Ok(GraphData { set: py.detach(open).map_err(raise)? })
    }

    /// The same with the transposed adjacency.
    fn transposed(&self, py: Python<'_>) -> PyResult<Self> {
        let transposed =
            || -> Result<Csr> { Ok(self.set.graph().adjacency().transpose(&threads()?)) };
        let csr = py.detach(transposed).map_err(raise)?;
        Ok(GraphData { set: Dataset::new(self.set.name(), Graph::new(csr)) })
    }

    /// The same with a row of numbers per node.
    fn with_features(&self, py: Python<'_>, x: PyReadonlyArray2<'_, f32>) -> PyResult<Self> {
        let x = dense(py, &x)?;
        self.changed(|set| set.with_features(Features::Dense(x)))
    }

    /// The same with a class per node, −1 where it is not known.
    fn with_classes(&self, y: Ints<'_>) -> PyResult<Self> {
        let class = |&class: &i64| {
            i32::try_from(class)
                .map_err(|_| Error::argument("y", format!("{class} is no number of a class")))
        };
        let of: Result<Vec<i32>> = y.as_slice()?.iter().map(class).collect();
        let labels = of.and_then(|of| Labels::classes(of, Vec::new())).map_err(raise)?;
        self.changed(|set| set.with_labels(labels))
    }

    /// The same with any number of labels per node: `y` holds zeros and ones.
    fn with_labels(&self, py: Python<'_>, y: PyReadonlyArray2<'_, f32>) -> PyResult<Self> {
        let y = dense(py, &y)?;
        let labels = ones(&y).map_err(raise)?;
        self.changed(|set| set.with_labels(Labels::Multi(labels)))
    }

    /// The same with numbers to predict.
    fn with_targets(&self, py: Python<'_>, y: PyReadonlyArray2<'_, f32>) -> PyResult<Self> {
        let y = dense(py, &y)?;
        self.changed(|set| set.with_labels(Labels::Targets(y)))
    }

    /// The same with a split: nodes that train, that choose and that judge.
    fn with_split(
        &self,
        name: String,
        train: Ints<'_>,
        val: Ints<'_>,
        test: Ints<'_>,
    ) -> PyResult<Self> {
        let n = self.set.n_items();
        let part = |nodes: &Ints<'_>| -> PyResult<Vec<u32>> {
            nodes.as_slice()?.iter().map(|&node| node_below(node, n).map_err(raise)).collect()
        };
        let split = Split { name, train: part(&train)?, val: part(&val)?, test: part(&test)? };
        self.changed(|set| set.with_split(split))
    }

    #[getter]
    fn name(&self) -> &str {
        self.set.name()
    }

    /// Nodes, edges, columns of features, and classes, labels or targets.
    #[getter]
    fn sizes(&self) -> (usize, usize, usize, usize) {
        let (graph, labels) = (self.set.graph(), self.set.labels());
        let features = self.set.features().map_or(0, Features::width);
        (graph.n_nodes(), graph.n_edges(), features, labels.map_or(0, Labels::width))
    }

    /// What is to be predicted: `classes`, `labels`, `targets` or nothing.
    #[getter]
    fn task(&self) -> Option<&'static str> {
        self.set.labels().map(|labels| match labels {
            Labels::Classes { .. } => "classes",
            Labels::Multi(_) => "labels",
            Labels::Targets(_) => "targets",
        })
    }

    /// What the reader did that a user may want to know.
    #[getter]
    fn notes(&self) -> Vec<String> {
        self.set.origin().notes.clone()
    }

    fn is_undirected(&self, py: Python<'_>) -> PyResult<bool> {
        let look = || -> Result<bool> { Ok(self.set.graph().is_symmetric(&threads()?)) };
        py.detach(look).map_err(raise)
    }

    #[getter]
    fn indptr(&self) -> View {
        match self.set.graph().adjacency().row_ptr() {
            RowPtr::Narrow(of) => View::of_u32(of.clone()),
            RowPtr::Wide(of) => View::of_u64(of.clone()),
        }
    }

    #[getter]
    fn indices(&self) -> View {
        View::of_u32(self.set.graph().adjacency().parts().cols.clone())
    }

    #[getter]
    fn values(&self) -> Option<View> {
        self.set.graph().adjacency().parts().values.clone().map(View::of_f32)
    }

    #[getter]
    fn x(&self) -> Option<View> {
        self.set.features().map(|features| View::of_dense(features.to_dense()))
    }

    #[getter]
    fn y(&self) -> Option<View> {
        self.set.labels().map(|labels| match labels {
            Labels::Classes { of, .. } => View::of_i32(of.clone()),
            Labels::Multi(of) => View::of_dense(Features::Sparse(of.clone()).to_dense()),
            Labels::Targets(of) => View::of_dense(of.clone()),
        })
    }

    /// The name, and the nodes that train, choose and judge, of every split.
    #[getter]
    fn splits(&self) -> Vec<(String, View, View, View)> {
        let view = |nodes: &[u32]| View::of_u32(Buffer::copied(nodes));
        let parts = |s: &Split| (s.name.clone(), view(&s.train), view(&s.val), view(&s.test));
        self.set.splits().iter().map(parts).collect()
    }

    /// Saves it in the format that the path's ending means, else in Lacis' own folder; the place
    /// must not be taken yet.
    fn save(&self, py: Python<'_>, path: std::path::PathBuf) -> PyResult<()> {
        let save = || -> Result<()> {
            let threads = threads()?;
            let existing = lacis::data::staged::Existing::Keep;
            let job = Job::quiet(&threads);
            lacis::data::format::write(&self.set, &path, None, existing, &job)
        };
        py.detach(save).map_err(raise)
    }
}

impl GraphData {
    fn changed(&self, change: impl FnOnce(Dataset) -> Result<Dataset>) -> PyResult<Self> {
        change(self.set.clone()).map(|set| GraphData { set }).map_err(raise)
    }
}

/// A copy of an array, aligned as kernels like it.
fn dense(py: Python<'_>, x: &PyReadonlyArray2<'_, f32>) -> PyResult<Dense> {
    let [rows, cols]: [usize; 2] = [x.as_array().nrows(), x.as_array().ncols()];
    let numbers = x.as_slice()?;
    py.detach(|| Dense::new(Buffer::copied(numbers), rows, cols, cols)).map_err(raise)
}

fn node_below(node: i64, n: usize) -> Result<u32> {
    match u32::try_from(node) {
        Ok(index) if (index as usize) < n => Ok(index),
        _ => Err(Error::argument("nodes", format!("{node} is none of the {n} nodes"))),
    }
}

/// Where a matrix is not zero.
fn ones(y: &Dense) -> Result<Csr> {
    let mut coo = Coo::new(Tags::Absent);
    let all = 0..y.n_rows();
    coo.extend(vec![all], &Threads::one(), |rows, chunk| {
        for i in rows {
            let set = y.row(i).iter().enumerate().filter(|(_, label)| **label != 0.0);
            set.for_each(|(j, _)| chunk.push(i as u32, j as u32));
        }
        Ok(())
    })?;
    let extent = Extent { n_rows: Some(y.n_rows()), n_cols: Some(y.n_cols()) };
    coo.into_csr(extent, Repeats::Merge, &Threads::one())
}

fn from_lists(
    n: usize,
    [source, target]: [&[i64]; 2],
    weights: Option<&[f32]>,
    threads: &Threads,
) -> Result<Csr> {
    lacis::error::same_size("from_edges", "number of targets", source.len(), target.len())?;
    if let Some(weights) = weights {
        lacis::error::same_size("from_edges", "number of weights", source.len(), weights.len())?;
    }
    let mut coo = Coo::new(if weights.is_some() { Tags::Values } else { Tags::Absent });
    coo.extend(ranges(source.len(), CHUNK_ENTRIES), threads, |range, chunk| {
        for at in range.clone() {
            let (row, col) = (node_at(target[at], at, n)?, node_at(source[at], at, n)?);
            chunk.push(row, col);
        }
        if let Some(weights) = weights {
            chunk.tags.extend(weights[range].iter().map(|weight| weight.to_bits()));
        }
        Ok(())
    })?;
    coo.into_csr(Extent { n_rows: Some(n), n_cols: Some(n) }, Repeats::Keep, threads)
}

fn node_at(node: i64, at: usize, n: usize) -> Result<u32> {
    match u32::try_from(node) {
        Ok(index) if (index as usize) < n => Ok(index),
        Ok(index) => {
            let (index, bound) = (u64::from(index), n as u64);
            Err(Error::Index { op: "from_edges", what: "node", index, at, bound })
        }
        Err(_) => {
            let problem = format!("{node} at position {at} is no node number");
            Err(Error::argument("edge_index", problem))
        }
    }
}

fn from_rows(
    indptr: &[i64],
    indices: &[i64],
    weights: Option<&[f32]>,
    threads: &Threads,
) -> Result<Csr> {
    let n = indptr.len().saturating_sub(1);
    let start = |&place: &i64| {
        u64::try_from(place)
            .map_err(|_| Error::argument("indptr", format!("{place} is no place in a list")))
    };
    let row_ptr: Result<Vec<u64>> = indptr.iter().map(start).collect();
    let mut cols = Buffer::try_zeroed(indices.len())?;
    for (at, (col, &node)) in cols.make_mut().iter_mut().zip(indices).enumerate() {
        *col = node_at(node, at, n)?;
    }
    let parts = CsrParts {
        n_cols: n,
        row_ptr: RowPtr::Wide(row_ptr?.into()),
        cols,
        values: weights.map(Buffer::copied),
        order: None,
    };
    // Rows in ascending order, and no sums: what a caller stored twice counts twice.
    Ok(Csr::new(parts, threads)?.sorted(Repeats::Keep, threads))
}
