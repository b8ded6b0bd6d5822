//! The text form of the GIN and DGCNN code: a collection of graphs in one file.
//!
//! ```text
//!  188                     number of graphs
//!  23 2                    a graph: its number of nodes and its label
//!  2 2 1 13                a node: its tag, its degree, its neighbours from 0; perhaps attributes
//! ```
//! Features are the tags, one-hot; edges run both ways. `10fold_idx/{train,test}_idx-K.txt` beside
//! the file are splits.

use std::path::{Path, PathBuf};

use lacis_core::{Collection, Dataset, Error, Features, Origin, Result, Split};

use crate::Job;
use crate::lines::{Lines, fields, index, shown, whole};
use crate::npy::Source;
use crate::numbers::read_table;
use crate::parts::{EdgeList, SparseRows, Ways, folder_of, numbered_classes};

/// Whether a file begins as such a collection: the first graph's nodes are as the file says.
pub fn recognises(head: &[u8]) -> bool {
    let mut lines = head.split(|&b| b == b'\n').map(|line| line.trim_ascii());
    let numbers = |line: Option<&[u8]>| -> Option<Vec<i64>> {
        fields(line?).map(whole).collect::<Option<Vec<_>>>()
    };
    let (Some(count), Some(graph)) = (numbers(lines.next()), numbers(lines.next())) else {
        return false;
    };
    let (&[1..=i64::MAX], &[n_nodes @ 1..=i64::MAX, _]) = (&count[..], &graph[..]) else {
        return false;
    };
    // The last line of a head is cut off.
    let whole_lines = if head.len() < crate::edges::HEAD_BYTES { usize::MAX } else { 1 << 10 };
    let nodes = lines.take((n_nodes as usize).min(whole_lines)).take(64);
    let mut nodes = nodes.filter(|line| !line.is_empty()).peekable();
    nodes.peek().is_some()
        && nodes.all(|line| {
            let mut fields = fields(line);
            let degree = fields.nth(1).and_then(index);
            degree.is_some_and(|degree| fields.count() >= degree as usize)
        })
}

/// Reads a collection and the splits beside it.
///
/// # Errors
/// When a line is not what the lines before it announce.
pub fn read(path: &Path, job: &Job<'_>) -> Result<Dataset> {
    let graphs = Graphs::read(path, job)?;
    let source = Source::file(path, job);
    let n = graphs.tags.len();
    let (graph, mut notes) = graphs.edges.graph(n, Ways::Both, &source, job.threads)?;
    if graphs.attributes {
        notes.push("node attributes were left out: node tags are the features".to_owned());
    }
    let features =
        one_hot(&graphs.tags).into_csr(distinct(&graphs.tags).len(), &source, job.threads)?;
    let set = Dataset::new(crate::stem(path), graph)
        .with_origin(Origin { notes, ..Origin::default() })
        .with_collection(Collection::new(graphs.starts)?)?
        .with_features(Features::Sparse(features))?
        .with_labels(numbered_classes(&graphs.labels)?)?;
    with_folds(set, &folder_of(path).join("10fold_idx"), job)
}

fn distinct(tags: &[i64]) -> Vec<i64> {
    let mut distinct = tags.to_vec();
    distinct.sort_unstable();
    distinct.dedup();
    distinct
}

/// A column for each tag that occurs, in their order.
fn one_hot(tags: &[i64]) -> SparseRows {
    let columns = distinct(tags);
    let mut rows = SparseRows::new();
    for tag in tags {
        rows.push(columns.partition_point(|known| known < tag) as u32, 1.0);
        rows.end_row();
    }
    rows
}

#[derive(Default)]
struct Graphs {
    starts: Vec<u32>,
    labels: Vec<i64>,
    tags: Vec<i64>,
    edges: EdgeList,
    attributes: bool,
}

impl Graphs {
    fn read(path: &Path, job: &Job<'_>) -> Result<Self> {
        let mut lines = Lines::open(path, job)?;
        let mut graphs = Graphs { starts: vec![0], ..Graphs::default() };
        let [count] = numbers(&mut lines, "the number of graphs")?;
        for number in 0..count {
            let what = format!("graph {number}: its number of nodes and its label");
            let [n_nodes, label] = numbers(&mut lines, &what)?;
            let n_nodes = u32::try_from(n_nodes);
            let n_nodes = n_nodes.map_err(|_| lines.problem(format!("{what} would be right")))?;
            let first = graphs.tags.len() as u32;
            for _ in 0..n_nodes {
                let line = lines.next_full()?.unwrap_or_default();
                if let Err(problem) = graphs.node(line, first, n_nodes) {
                    return Err(lines.problem(problem));
                }
            }
            graphs.labels.push(label);
            graphs.starts.push(graphs.tags.len() as u32);
        }
        match lines.next_full()? {
            None => Ok(graphs),
            Some(_) => Err(lines.problem(format!("more than the {count} graphs declared"))),
        }
    }

    fn node(&mut self, line: &[u8], first: u32, n: u32) -> std::result::Result<(), String> {
        let mut fields = fields(line);
        let tag = fields.next().ok_or("the file ends before its last graph does")?;
        let tag = whole(tag).ok_or_else(|| format!("'{}' is no tag", shown(tag)))?;
        let degree = fields.next().and_then(index).ok_or("no degree after the tag")?;
        let own = self.tags.len() as u32;
        for _ in 0..degree {
            let field = fields.next().ok_or_else(|| format!("fewer than {degree} neighbours"))?;
            match index(field).filter(|&neighbour| neighbour < n) {
                Some(neighbour) => self.edges.push(first + neighbour, own),
                None => return Err(format!("'{}' is no node of 0..{n}", shown(field))),
            }
        }
        self.attributes |= fields.next().is_some();
        self.tags.push(tag);
        Ok(())
    }
}

/// So many whole numbers, alone on the next line.
fn numbers<const N: usize>(lines: &mut Lines<'_>, what: &str) -> Result<[i64; N]> {
    let line = lines.next_full()?.unwrap_or_default();
    let found: Option<Vec<i64>> = fields(line).map(whole).collect();
    let found = found.and_then(|found| found.try_into().ok());
    found.ok_or_else(|| lines.problem(format!("{what} would be right here")))
}

fn with_folds(mut set: Dataset, folder: &Path, job: &Job<'_>) -> Result<Dataset> {
    for fold in 1.. {
        let file = |part: &str| folder.join(format!("{part}_idx-{fold}.txt"));
        if !file("train").is_file() || !file("test").is_file() {
            break;
        }
        let [train, test] = [items(&file("train"), job)?, items(&file("test"), job)?];
        let split = Split { name: format!("fold-{fold}"), train, val: Vec::new(), test };
        let source_path: PathBuf = file("test");
        set = set.with_split(split).map_err(|e| Source::file(&source_path, job).blame(e))?;
    }
    Ok(set)
}

/// A graph's number a line.
fn items(path: &Path, job: &Job<'_>) -> Result<Vec<u32>> {
    let table = read_table::<i64>(path, job)?;
    let item = |x| u32::try_from(x).map_err(|_| Error::file(path, format!("{x} is no graph")));
    table.column(0).map(item).collect()
}
