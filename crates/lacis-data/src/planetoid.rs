//! The Planetoid files of Cora, CiteSeer and PubMed: seven pickles and a list of test nodes.
//!
//! ```text
//!  node      0 ……… rows of x ……… rows of allx ……… largest of test.index
//!  features  allx ─────────────┤ tx, row r at node test.index[r]; zeros where no row is
//!  class     ally ─────────────┤ ty, likewise; class 0 where no row is
//!  split     train    │ val: 500 │                test
//! ```
//! `graph` maps a node to its neighbours. As PyG has it, loops are removed and repeats merged, and
//! nodes that `test.index` leaves out (CiteSeer has 15) are in no part of the split.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use lacis_core::{Buffer, Coo, Csr, CsrParts, Dataset, Error, Extent, Features, Graph, Labels};
use lacis_core::{Origin, Place, Repeats, Result, RowPtr, Split};

use crate::input::{check_count, check_listed, open_file};
use crate::npy::{Array, Npy, Source};
use crate::pickle::{Global, Pickle, RawArray, load};
use crate::scipy::{compressed, features};
use crate::{Job, note};

/// The last parts of the files' names.
const PARTS: [&str; 8] = ["x", "tx", "allx", "y", "ty", "ally", "graph", "test.index"];
/// How many nodes validate.
const N_VAL: usize = 500;

/// The folder and the name of the set that a path leads to: a folder that holds one, or any one
/// of its files. The first name where a folder holds several.
pub fn find(path: &Path) -> Option<(PathBuf, String)> {
    if path.is_dir() {
        let name = names(path).ok()?.pop_first()?;
        return Some((path.to_owned(), name));
    }
    let name = set_name(path.file_name()?.to_str()?)?.to_owned();
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    path.is_file().then(|| (folder.unwrap_or(Path::new(".")).to_owned(), name))
}

/// `cora` of `ind.cora.allx`.
fn set_name(file: &str) -> Option<&str> {
    let rest = file.strip_prefix("ind.")?;
    // `.test.index` comes last in the table and no other part ends like it.
    let strip = |part: &&str| rest.strip_suffix(part)?.strip_suffix('.');
    PARTS.iter().find_map(strip).filter(|name| !name.is_empty())
}

fn names(folder: &Path) -> Result<BTreeSet<String>> {
    let mut names = BTreeSet::new();
    for entry in std::fs::read_dir(folder).map_err(|e| Error::io("read", folder, e))? {
        let file = entry.map_err(|e| Error::io("read", folder, e))?.file_name();
        names.extend(file.to_str().and_then(set_name).map(str::to_owned));
    }
    Ok(names)
}

/// Reads the set in a folder, or the one that a file belongs to.
///
/// # Errors
/// When a folder holds none or several, a file is missing or damaged, or the files do not fit
/// together.
pub fn read(path: &Path, job: &Job) -> Result<Dataset> {
    let files = Files::locate(path, job)?;
    let [x, tx, allx] = [files.features("x")?, files.features("tx")?, files.features("allx")?];
    let [y, ty, ally] = [files.classes("y")?, files.classes("ty")?, files.classes("ally")?];
    for (part, rows, classes) in [("y", &x, &y), ("ty", &tx, &ty), ("ally", &allx, &ally)] {
        files.same(part, "rows", rows.n_rows(), classes.of.len())?;
        files.same(part, "classes", ally.count, classes.count)?;
    }
    files.same("x", "columns", allx.n_cols(), x.n_cols())?;
    files.same("tx", "columns", allx.n_cols(), tx.n_cols())?;
    if x.n_rows() > allx.n_rows() {
        let (few, many) = (allx.n_rows(), x.n_rows());
        let problem =
            format!("there are {many} rows, but only {few} in allx, which holds them too");
        return Err(Error::file(files.path("x"), problem));
    }
    let nodes = files.nodes(allx.n_rows(), tx.n_rows())?;
    let (graph, notes) = files.graph(nodes.count())?;
    let origin = Origin {
        format: "planetoid".to_owned(),
        synthetic: false,
        notes: notes.into_iter().chain(nodes.note()).collect(),
    };
    let labels = Labels::Classes {
        of: nodes.stacked(&ally.of, &ty.of).into(),
        count: ally.count,
        names: Vec::new(),
    };
    Dataset::new(&files.name, graph)
        .with_origin(origin)
        .with_features(files.stacked(&nodes, &allx, &tx)?)?
        .with_labels(labels)?
        .with_split(nodes.split(x.n_rows()))
}

/// Where the nodes beyond the rows of `allx` find theirs.
struct Nodes {
    /// Rows of `allx`.
    n_known: usize,
    /// The test nodes, in the order of the rows of `tx`.
    test: Vec<u32>,
    /// For each further node its row of `tx`.
    row: Vec<Option<u32>>,
}

impl Nodes {
    fn count(&self) -> usize {
        self.n_known + self.row.len()
    }

    fn note(&self) -> Option<String> {
        let gaps = self.row.iter().filter(|row| row.is_none()).count();
        let many = "nodes are not in test.index: no features, class 0, in no split";
        let one = "node is not in test.index: no features, class 0, in no split";
        note::counted(gaps, one, many)
    }

    /// What belongs to each node: the known first, then the tests' where they stand.
    fn stacked(&self, known: &[i32], tests: &[i32]) -> Vec<i32> {
        let further = self.row.iter().map(|row| row.map_or(0, |row| tests[row as usize]));
        known.iter().copied().chain(further).collect()
    }

    fn split(&self, n_train: usize) -> Split {
        let end = n_train.saturating_add(N_VAL).min(self.n_known);
        let mut test = self.test.clone();
        test.sort_unstable();
        Split {
            name: "canonical".to_owned(),
            train: (0..n_train as u32).collect(),
            val: (n_train as u32..end as u32).collect(),
            test,
        }
    }
}

/// One class per row.
struct Classes {
    of: Vec<i32>,
    count: usize,
}

/// The files of one set.
struct Files<'a> {
    folder: PathBuf,
    name: String,
    job: &'a Job<'a>,
}

impl<'a> Files<'a> {
    fn locate(path: &Path, job: &'a Job<'a>) -> Result<Self> {
        let Some((folder, name)) = find(path) else {
            std::fs::metadata(path).map_err(|e| Error::io("open", path, e))?;
            let problem = "there are no Planetoid files here, such as ind.cora.graph";
            return Err(Error::file(path, problem));
        };
        if path.is_dir() {
            let names: Vec<String> = names(path)?.into_iter().collect();
            if names.len() > 1 {
                let all = names.join(", ");
                let problem = format!("this folder holds {all}: name a file, as ind.{name}.graph");
                return Err(Error::file(path, problem));
            }
        }
        Ok(Files { folder, name, job })
    }

    fn path(&self, part: &str) -> PathBuf {
        self.folder.join(format!("ind.{}.{part}", self.name))
    }

    fn content(&self, part: &str) -> Result<(PathBuf, Vec<u8>)> {
        use std::io::Read;
        let path = self.path(part);
        let mut content = Vec::new();
        let read = open_file(&path)?.0.read_to_end(&mut content);
        read.map_err(|e| Error::io("read", &path, e))?;
        self.job.tick(content.len() as u64, None)?;
        Ok((path, content))
    }

    fn same(&self, part: &str, what: &str, right: usize, found: usize) -> Result<()> {
        if right == found {
            return Ok(());
        }
        let problem = format!("there are {found} {what}; {right} would fit the other files");
        Err(Error::file(self.path(part), problem))
    }

    /// A pickled `csr_matrix`.
    fn features(&self, part: &str) -> Result<Csr> {
        let (path, content) = self.content(part)?;
        let pickle = load(&path, &content)?;
        let state = pickle.attributes(pickle.root(), Global::CsrMatrix)?;
        let shape = pickle.get(state, &["_shape", "shape"])?;
        let &[n_rows, n_cols] = &pickle.shape(shape)?[..] else {
            return Err(pickle.problem(shape, "a matrix has two extents, and these are not two"));
        };
        let source = Source::file(&path, self.job);
        let array = |name| pickle.get(state, &[name]).and_then(|item| pickle.array(item));
        let cols = items(source.with_member("indices"), &array("indices")?)?;
        let row_ptr = items(source.with_member("indptr"), &array("indptr")?)?;
        let values = opened(source.with_member("data"), &array("data")?)?.finite()?;
        let parts = CsrParts {
            n_cols,
            row_ptr: RowPtr::Wide(row_ptr),
            cols,
            values: Some(values.data),
            order: None,
        };
        compressed(parts, n_rows, &source, self.job.threads)
    }

    /// A pickled array of one-hot rows: the first of the largest entries is the class.
    fn classes(&self, part: &str) -> Result<Classes> {
        let (path, content) = self.content(part)?;
        let pickle = load(&path, &content)?;
        let source = Source::file(&path, self.job);
        let Array { shape, data } = opened(source, &pickle.array(pickle.root())?)?.finite()?;
        let &[n_rows, count @ 1..=usize::MAX] = &shape[..] else {
            let problem = format!("labels of shape {shape:?}; one row of classes a node is right");
            return Err(source.problem(problem));
        };
        check_count("classes", count, data.len()).map_err(|e| source.problem(e))?;
        let largest = |row: &[f32]| {
            let better = |best: usize, at: usize| if row[at] > row[best] { at } else { best };
            (1..row.len()).fold(0, better) as i32
        };
        let of: Vec<i32> = data.chunks_exact(count).map(largest).collect();
        assert_eq!(of.len(), n_rows, "an array has as many items as its shape says");
        Ok(Classes { of, count })
    }

    /// The test nodes, one a line, and what follows for all nodes.
    fn nodes(&self, n_known: usize, n_tests: usize) -> Result<Nodes> {
        let (path, content) = self.content("test.index")?;
        let mut test = Vec::new();
        let mut lines = Vec::new();
        for (line, text) in (1..).zip(content.split(|&c| c == b'\n')) {
            let text = text.trim_ascii();
            if text.is_empty() {
                continue;
            }
            let node = std::str::from_utf8(text).ok().and_then(|text| text.parse::<u32>().ok());
            match node {
                Some(node) if node as usize >= n_known => test.push(node),
                _ => {
                    let problem = format!("a test node from {n_known} on would be right here");
                    return Err(Error::file_at(&path, Place::Line(line), problem));
                }
            }
            lines.push(line);
        }
        self.same("test.index", "nodes", n_tests, test.len())?;
        let count = test.iter().max().map_or(n_known, |&last| last as usize + 1);
        check_listed("nodes", count, n_known + n_tests).map_err(|e| Error::file(&path, e))?;
        let mut row = vec![None; count - n_known];
        for (at, (&node, &line)) in (0..).zip(test.iter().zip(&lines)) {
            if row[node as usize - n_known].replace(at).is_some() {
                let problem = format!("node {node} is here for the second time");
                return Err(Error::file_at(&path, Place::Line(line), problem));
            }
        }
        Ok(Nodes { n_known, test, row })
    }

    /// The graph of `n` nodes, and what was done to its edges.
    fn graph(&self, n: usize) -> Result<(Graph, Vec<String>)> {
        let (path, content) = self.content("graph")?;
        let pickle = load(&path, &content)?;
        let Edges { sources, targets, n_loops } = edges(&pickle, n)?;
        let extent = Extent { n_rows: Some(n), n_cols: Some(n) };
        let threads = self.job.threads;
        let adjacency = Coo::from_slices(&targets, &sources, None, threads)
            .and_then(|coo| coo.into_csr(extent, Repeats::Merge, threads))
            .map_err(|error| Source::file(&path, self.job).blame(error))?;
        let n_repeats = sources.len() - adjacency.nnz();
        let loops = note::counted(n_loops, "loop was removed", "loops were removed");
        let notes = loops.into_iter().chain(note::merged(n_repeats)).collect();
        Ok((Graph::new(adjacency), notes))
    }

    /// The features of all nodes.
    fn stacked(&self, nodes: &Nodes, known: &Csr, tests: &Csr) -> Result<Features> {
        let rows = (0..known.n_rows()).map(|i| Some((known, i)));
        let further = nodes.row.iter().map(|row| row.map(|row| (tests, row as usize)));
        let (mut row_ptr, mut cols, mut values) = (vec![0u64], Vec::new(), Vec::new());
        for row in rows.chain(further) {
            if let Some((from, i)) = row {
                cols.extend_from_slice(from.row_cols(i));
                values.extend(from.row(i).map(|e| from.value(e)));
            }
            row_ptr.push(cols.len() as u64);
        }
        let parts = CsrParts {
            n_cols: known.n_cols(),
            row_ptr: RowPtr::Wide(row_ptr.into()),
            cols: Buffer::copied(&cols),
            values: Some(Buffer::copied(&values)),
            order: None,
        };
        let path = self.path("allx");
        let source = Source::file(&path, self.job);
        let csr = compressed(parts, nodes.count(), &source, self.job.threads)?;
        features(csr, &source, self.job.threads)
    }
}

/// An array of a pickle, ready to be read as numbers.
fn opened<'a>(source: Source<'a>, array: &'a RawArray<'_>) -> Result<Npy<'a, &'a [u8]>> {
    Npy::with_header(source, array.header.clone(), &array.raw[..], 0)
}

/// An array of one axis.
fn items<T: crate::npy::Number>(source: Source<'_>, array: &RawArray<'_>) -> Result<Buffer<T>> {
    let numbers = opened(source, array)?.numbers()?;
    match numbers.shape.len() {
        1 => Ok(numbers.data),
        axes => Err(source.problem(format!("the array has {axes} axes; one would be right"))),
    }
}

/// The edges of a graph as its pickle has them, but for loops.
struct Edges {
    sources: Vec<u32>,
    targets: Vec<u32>,
    n_loops: usize,
}

fn edges(pickle: &Pickle<'_>, n: usize) -> Result<Edges> {
    let node = |item, near| {
        let node = pickle.int(item)?;
        match u32::try_from(node) {
            Ok(node) if (node as usize) < n => Ok(node),
            _ => Err(pickle.problem(near, format!("node {node} is outside 0..{n}"))),
        }
    };
    let mut edges = Edges { sources: Vec::new(), targets: Vec::new(), n_loops: 0 };
    let mut n_seen = 0;
    for &(key, neighbours) in pickle.pairs(pickle.root())? {
        let (source, neighbours_of) = (node(key, neighbours)?, pickle.items(neighbours)?);
        n_seen += neighbours_of.len();
        // A list may be named many times; one that is written out takes a byte for each item.
        if n_seen > pickle.file_len() {
            return Err(pickle.problem(neighbours, "nodes share their lists of neighbours"));
        }
        for &neighbour in neighbours_of {
            let target = node(neighbour, neighbours)?;
            if target == source {
                edges.n_loops += 1;
            } else {
                edges.sources.push(source);
                edges.targets.push(target);
            }
        }
    }
    Ok(edges)
}

#[cfg(test)]
mod tests;
