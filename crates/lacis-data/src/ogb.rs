//! OGB's raw folders: one graph with nodes to classify, or a collection of graphs.
//!
//! ```text
//!  raw/edge.csv.gz            source,target          raw/num-node-list.csv.gz   nodes of a graph
//!  raw/node-feat.csv.gz       a row a node           raw/num-edge-list.csv.gz   edges of a graph
//!  raw/node-label.csv.gz      classes, 0/1 labels or numbers a node; graph-label.csv.gz a graph
//!  split/SCHEME/{train,valid,test}.csv.gz            numbers of items
//! ```
//! Edges run as stored; those of sets that OGB itself stores once and doubles (products, proteins,
//! molecules, ppa, code2) run both ways. `edge-feat` is not read.

use std::path::{Path, PathBuf};

use lacis_core::threads::ranges;
use lacis_core::{CHUNK_ENTRIES, Collection, Coo, Csr, Dataset, Dense, Error, Features, Graph};
use lacis_core::{Labels, Origin, Result, Tags};

use crate::input::check_count;
use crate::job::{Job, Silent};
use crate::npy::Source;
use crate::numbers::{Table, read_table};
use crate::parts::{
    SparseRows, Ways, file_in, folder_name, folder_of, merged, names_in, numbered_classes,
    required, split,
};
use crate::text::{Layout, Mirror, read_entries};

/// Parts of the names of sets whose edges OGB stores once and uses both ways.
const DOUBLED: &[&str] = &["products", "proteins", "mol", "ppa", "code2"];

/// The folder of the tables and the folder of the set, of a path to either.
pub fn find(path: &Path) -> Option<(PathBuf, PathBuf)> {
    let has = |folder: &Path| {
        file_in(folder, "edge.csv").is_some() && file_in(folder, "num-node-list.csv").is_some()
    };
    if !path.is_dir() {
        let named = path.file_name()?.to_str()?.starts_with("edge.csv");
        return if named { find(&folder_of(path)) } else { None };
    }
    let raw = path.join("raw");
    if has(&raw) {
        return Some((raw, path.to_owned()));
    }
    let above = std::path::absolute(path).ok()?.parent()?.to_owned();
    has(path)
        .then(|| (path.to_owned(), if path.join("split").is_dir() { path.into() } else { above }))
}

/// Reads the set that a path leads to.
///
/// # Errors
/// When a file is missing or damaged, or the files do not fit together.
pub fn read(path: &Path, job: &Job<'_>) -> Result<Dataset> {
    let Some((raw, root)) = find(path) else {
        return Err(Error::file(path, "there are no edge.csv.gz and num-node-list.csv.gz here"));
    };
    let files = Files { name: folder_name(&root), raw, job };
    let counts = read_table::<i64>(&files.required("num-node-list")?, job)?;
    let label_part = if counts.n_rows() > 1 { "graph-label" } else { "node-label" };
    let (graph, nodes) = files.graph_and_nodes(&counts, label_part);
    let (graph, mut notes) = graph?;
    if file_in(&files.raw, "edge-feat.csv").is_some() {
        notes.push("edge features were left out: edges have weights only".to_owned());
    }
    let mut set =
        Dataset::new(&files.name, graph).with_origin(Origin { notes, ..Origin::default() });
    if counts.n_rows() > 1 {
        let collection = Collection::new(starts(&counts)?)?;
        set = set.with_collection(collection).map_err(|e| files.blame("edge", e))?;
    }
    if let Some(x) = nodes.features? {
        set = set.with_features(Features::Dense(x)).map_err(|e| files.blame("node-feat", e))?;
    }
    if let Some(labels) = nodes.labels? {
        set = set.with_labels(labels).map_err(|e| files.blame(label_part, e))?;
    }
    with_splits(set, &root.join("split"), job)
}

/// A graph, and what to say of it.
type Noted = (Graph, Vec<String>);

/// What nodes (or graphs) have besides edges.
struct Nodes {
    features: Result<Option<Dense>>,
    labels: Result<Option<Labels>>,
}

struct Files<'a> {
    name: String,
    raw: PathBuf,
    job: &'a Job<'a>,
}

impl Files<'_> {
    fn required(&self, part: &str) -> Result<PathBuf> {
        required(&self.raw, &format!("{part}.csv"))
    }

    fn blame(&self, part: &str, error: Error) -> Error {
        let path = self.required(part).unwrap_or_else(|_| self.raw.clone());
        Source::file(&path, self.job).blame(error)
    }

    /// The edges and, at the same time, what nodes have: a packed file is unpacked by one thread
    /// only.
    fn graph_and_nodes(&self, counts: &Table<i64>, label_part: &str) -> (Result<Noted>, Nodes) {
        if self.job.threads.count() == 1 {
            return (self.graph(counts), self.nodes(label_part, self.job));
        }
        let quiet = Silent(self.job.watch);
        std::thread::scope(|scope| {
            let job = Job { watch: &quiet, ..*self.job };
            let nodes = scope.spawn(move || self.nodes(label_part, &job));
            let graph = self.graph(counts);
            (graph, nodes.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
        })
    }

    fn nodes(&self, label_part: &str, job: &Job<'_>) -> Nodes {
        let file = |part: &str| file_in(&self.raw, &format!("{part}.csv"));
        let features = file("node-feat").map(|file| read_table::<f32>(&file, job)?.into_dense());
        let labels = file(label_part).map(|file| labels(&file, job));
        Nodes { features: features.transpose(), labels: labels.transpose() }
    }

    fn graph(&self, counts: &Table<i64>) -> Result<Noted> {
        let starts = starts(counts)?;
        let n = starts.last().map_or(0, |&end| end as usize);
        let edge = self.required("edge")?;
        let ways = if DOUBLED.iter().any(|part| self.name.contains(part)) {
            Ways::Both
        } else {
            Ways::Stored
        };
        let mirror = if ways == Ways::Both { Mirror::Same } else { Mirror::No };
        let source = Source::file(&edge, self.job);
        let coo = if starts.len() > 2 {
            self.local_edges(&edge, &starts, ways)?
        } else {
            let bounds = [n as u32; 2];
            let layout = Layout { mirror, ..Layout::pairs(0, bounds) };
            read_entries(&edge, 0, &layout, self.job)?
        };
        check_count("nodes", n, coo.len() + counts.n_rows()).map_err(|e| source.problem(e))?;
        merged(coo, n, ways, (&source, self.job.threads))
    }

    /// Edges numbered within their graphs.
    fn local_edges(&self, edge: &Path, starts: &[u32], ways: Ways) -> Result<Coo> {
        let counts = read_table::<i64>(&self.required("num-edge-list")?, self.job)?;
        let edges = read_table::<i64>(edge, self.job)?;
        let bad = |problem: String| Error::file(edge, problem);
        let total = counts.column(0).try_fold(0i64, |sum, count| sum.checked_add(count.max(0)));
        if total != Some(edges.n_rows() as i64)
            || counts.n_rows() + 1 != starts.len()
            || edges.n_rows() > 0 && edges.n_cols() != 2
        {
            let problem = format!("{} edges do not fit num-edge-list", edges.n_rows());
            return Err(bad(problem));
        }
        let graph_of = counts.column(0).enumerate();
        let graph_of =
            graph_of.flat_map(|(graph, count)| std::iter::repeat_n(graph, count.max(0) as usize));
        let mut list = Vec::with_capacity(2 * edges.n_rows());
        for (row, graph) in graph_of.enumerate() {
            let (first, end) = (starts[graph], starts[graph + 1]);
            let node = |i: i64| {
                let node = u32::try_from(i).ok().and_then(|i| first.checked_add(i));
                let fits = node.filter(|&node| node < end);
                fits.ok_or_else(|| bad(format!("line {}: no node {i} in graph {graph}", row + 1)))
            };
            let [source, target] = [node(edges.row(row)[0])?, node(edges.row(row)[1])?];
            list.push([target, source]);
            if ways == Ways::Both {
                list.push([source, target]);
            }
        }
        let mut coo = Coo::new(Tags::Absent);
        coo.extend(ranges(list.len(), CHUNK_ENTRIES), self.job.threads, |range, chunk| {
            chunk.places.extend_from_slice(&list[range]);
            Ok(())
        })?;
        Ok(coo)
    }
}

/// Where the nodes of each graph start, and the last ones end.
fn starts(counts: &Table<i64>) -> Result<Vec<u32>> {
    let mut starts = vec![0u32];
    for count in counts.column(0) {
        let next = u32::try_from(count).ok().and_then(|n| starts[starts.len() - 1].checked_add(n));
        let limit = u128::from(u32::MAX);
        let value = count.max(0) as u128;
        starts.push(next.ok_or(Error::Overflow { what: "number of nodes", value, limit })?);
    }
    Ok(starts)
}

/// One column of whole numbers is a class, several of 0 and 1 are labels, others are targets; NaN
/// is no label.
fn labels(path: &Path, job: &Job<'_>) -> Result<Labels> {
    let classes = read_table::<i64>(path, job);
    let Ok(table) = classes else {
        if matches!(classes, Err(Error::Interrupted)) {
            return Err(Error::Interrupted);
        }
        return unknown_labels(path, job);
    };
    if table.n_cols() <= 1 {
        return numbered_classes(&table.column(0).collect::<Vec<_>>());
    }
    if table.column(0).count() * table.n_cols() > 0
        && (0..table.n_rows()).all(|i| table.row(i).iter().all(|x| (0..=1).contains(x)))
    {
        return Ok(Labels::Multi(ones(&table, &Source::file(path, job), job)?));
    }
    let data = (0..table.n_rows()).flat_map(|i| table.row(i)).map(|&x| x as f32).collect();
    Ok(Labels::Targets(Dense::from_vec(data, table.n_rows(), table.n_cols())?))
}

fn ones(table: &Table<i64>, source: &Source<'_>, job: &Job<'_>) -> Result<Csr> {
    let mut rows = SparseRows::new();
    for i in 0..table.n_rows() {
        let set = (0..).zip(table.row(i)).filter(|(_, set)| **set == 1);
        set.for_each(|(at, _)| rows.push(at, 1.0));
        rows.end_row();
    }
    rows.into_csr(table.n_cols(), source, job.threads)
}

/// Labels that are not all whole numbers: some are missing, or they are targets.
fn unknown_labels(path: &Path, job: &Job<'_>) -> Result<Labels> {
    if let Ok(table) = read_table::<f32>(path, job) {
        return Ok(Labels::Targets(table.into_dense()?));
    }
    let mut lines = crate::lines::Lines::open(path, job)?;
    let mut of = Vec::new();
    while let Some(line) = lines.next()? {
        let text = line.trim_ascii();
        match crate::lines::whole(text) {
            Some(class @ 0..0x7fff_ffff) => of.push(class as i32),
            _ if text.is_empty() || text.eq_ignore_ascii_case(b"nan") => of.push(-1),
            _ => return Err(lines.problem("a class, a number or 'nan' would be right here")),
        }
    }
    Labels::classes(of, Vec::new())
}

/// The split of each scheme, in the order of their names.
fn with_splits(mut set: Dataset, folder: &Path, job: &Job<'_>) -> Result<Dataset> {
    for scheme in names_in(folder) {
        let folder = folder.join(&scheme);
        let files = ["train", "valid", "test"].map(|part| file_in(&folder, &format!("{part}.csv")));
        let [Some(train), Some(val), Some(test)] = files else { continue };
        let part = |path: &Path| -> Result<Vec<u32>> {
            let table = read_table::<i64>(path, job)?;
            let item = |x| {
                u32::try_from(x).map_err(|_| Error::file(path, format!("{x} is no item's number")))
            };
            table.column(0).map(item).collect()
        };
        let parts = split(scheme, [part(&train)?, part(&val)?, part(&test)?]);
        set = set.with_split(parts).map_err(|e| Source::file(&train, job).blame(e))?;
    }
    Ok(set)
}
