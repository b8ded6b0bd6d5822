//! The text form of Geom-GCN: two tables and, beside them, ten splits.
//!
//! ```text
//!  out1_graph_edges.txt           node_id <TAB> node_id                 after a header
//!  out1_node_feature_label.txt    node_id <TAB> feature,… <TAB> label   after a header
//!  NAME_split_0.6_0.2_K.npz       train_mask, val_mask, test_mask
//! ```
//! Features are all numbers of a node, or (`feature_amount` in the header, or lists of different
//! lengths) the positions of its ones. Edges run as stored.

use std::path::{Path, PathBuf};

use lacis_core::{Csr, Dataset, Error, Features, Origin, Result};

use crate::Job;
use crate::input::check_count;
use crate::lines::{Lines, index, number, shown, whole};
use crate::npy::Source;
use crate::npz::Npz;
use crate::parts::{
    SparseRows, Ways, file_in, folder_name, folder_of, masks, merged, names_in, numbered_classes,
    required, split,
};
use crate::text::{Layout, read_entries};

const EDGES: &str = "out1_graph_edges.txt";
const NODES: &str = "out1_node_feature_label.txt";

/// Whether a folder, or the folder of a file of this name, holds a set.
pub fn find(path: &Path) -> bool {
    let folder = folder_of(path);
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let named = path.is_dir() || name.starts_with("out1_");
    named && file_in(&folder, EDGES).is_some() && file_in(&folder, NODES).is_some()
}

/// Reads the set in a folder.
///
/// # Errors
/// When a file is missing or damaged, or the files do not fit together.
pub fn read(path: &Path, job: &Job<'_>) -> Result<Dataset> {
    let folder = folder_of(path);
    let (nodes, edges) = (required(&folder, NODES)?, required(&folder, EDGES)?);
    let table = Nodes::read(&nodes, job)?;
    let n = table.labels.len();
    let labels = numbered_classes(&table.labels)?;
    let features = table.features(&Source::file(&nodes, job), job)?;
    let bounds = [n as u32; 2];
    let layout = Layout::pairs(0, bounds);
    let coo = read_entries(&edges, header_end(&edges)?, &layout, job)?;
    let source = Source::file(&edges, job);
    let (graph, notes) = merged(coo, n, Ways::Stored, (&source, job.threads))?;
    let set = Dataset::new(folder_name(&folder), graph)
        .with_origin(Origin { notes, ..Origin::default() })
        .with_features(Features::Sparse(features))?
        .with_labels(labels)?;
    with_splits(set, &folder, job)
}

/// Where the line after the header begins.
fn header_end(path: &Path) -> Result<u64> {
    let head = crate::input::head(path, 1 << 12)?;
    Ok(memchr::memchr(b'\n', &head).map_or(head.len(), |at| at + 1) as u64)
}

/// What a node's list of features holds.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Lists {
    Values,
    Positions,
}

struct Nodes {
    rows: SparseRows,
    lists: Lists,
    /// The shortest and the longest list.
    lengths: (usize, usize),
    /// The largest position, as the header has it.
    largest: Option<u32>,
    /// For each node its line.
    line_of: Vec<Option<u32>>,
    labels: Vec<i64>,
}

impl Nodes {
    /// Lists of different lengths hold positions, which is known only after all were read.
    fn read(path: &Path, job: &Job<'_>) -> Result<Self> {
        let nodes = Nodes::read_as(path, Lists::Values, job)?;
        let (least, most) = nodes.lengths;
        match nodes.lists {
            Lists::Values if least < most => Nodes::read_as(path, Lists::Positions, job),
            _ => Ok(nodes),
        }
    }

    fn read_as(path: &Path, lists: Lists, job: &Job<'_>) -> Result<Self> {
        let mut lines = Lines::open(path, job)?;
        let header = lines.next()?.map(|line| String::from_utf8_lossy(line).into_owned());
        let largest = header.as_deref().and_then(|header| {
            let (_, after) = header.split_once("feature_amount:")?;
            after.split(|c: char| !c.is_ascii_digit()).next()?.parse::<u32>().ok()
        });
        let lists = if largest.is_some() { Lists::Positions } else { lists };
        let (rows, lengths) = (SparseRows::new(), (usize::MAX, 0));
        let (line_of, labels) = (Vec::new(), Vec::new());
        let mut nodes = Nodes { rows, lists, lengths, largest, line_of, labels };
        let mut placed = Vec::new();
        while let Some(line) = lines.next_full()? {
            match nodes.add(line) {
                Ok(place) => placed.push(place),
                Err(problem) => return Err(lines.problem(problem)),
            }
        }
        nodes.placed(placed).map_err(|problem| Error::file(path, problem))
    }

    fn add(&mut self, line: &[u8]) -> std::result::Result<(u32, i64), String> {
        let mut fields = line.split(|&b| b == b'\t');
        let (Some(id), Some(list), Some(label), None) =
            (fields.next(), fields.next(), fields.next(), fields.next())
        else {
            return Err("no three fields; 'id features label' with tabs would be right".to_owned());
        };
        let node = index(id).ok_or_else(|| format!("'{}' is no node number", shown(id)))?;
        let label = whole(label).ok_or_else(|| format!("'{}' is no label", shown(label)))?;
        let mut length = 0;
        for field in list.split(|&b| b == b',').map(<[u8]>::trim_ascii) {
            if field.is_empty() {
                continue;
            }
            let bad = || format!("'{}' is no feature", shown(field));
            match self.lists {
                Lists::Positions => self.rows.push(index(field).ok_or_else(bad)?, 1.0),
                Lists::Values => match number(field).ok_or_else(bad)? {
                    0.0 => {}
                    value => self.rows.push(length, value),
                },
            }
            length += 1;
        }
        self.rows.end_row();
        let (least, most) = self.lengths;
        self.lengths = (least.min(length as usize), most.max(length as usize));
        Ok((node, label))
    }

    /// The nodes in their own order, every number from 0 on once.
    fn placed(mut self, rows: Vec<(u32, i64)>) -> std::result::Result<Self, String> {
        self.line_of = vec![None; rows.len()];
        self.labels = vec![0; rows.len()];
        for (line, &(node, label)) in rows.iter().enumerate() {
            let place = self.line_of.get_mut(node as usize);
            let place = place.ok_or_else(|| {
                format!("node {node} of {} nodes; numbers without gaps would be right", rows.len())
            })?;
            if place.replace(line as u32).is_some() {
                return Err(format!("node {node} is here twice"));
            }
            self.labels[node as usize] = label;
        }
        Ok(self)
    }

    fn features(self, source: &Source<'_>, job: &Job<'_>) -> Result<Csr> {
        let declared = self.largest.map_or(0, |largest| largest as usize + 1);
        let width = match self.lists {
            Lists::Values => self.lengths.1,
            Lists::Positions => self.rows.width().max(declared),
        };
        check_count("features", width, self.labels.len()).map_err(|e| source.problem(e))?;
        self.rows.ordered(&self.line_of).into_csr(width, source, job.threads)
    }
}

/// The splits beside the tables, or in a folder `splits`, in the order of their numbers.
fn with_splits(mut set: Dataset, folder: &Path, job: &Job<'_>) -> Result<Dataset> {
    let mut files: Vec<(u32, PathBuf)> = Vec::new();
    for folder in [folder.to_owned(), folder.join("splits")] {
        files.extend(names_in(&folder).into_iter().filter_map(|name| {
            let stem = name.strip_suffix(".npz").filter(|stem| stem.contains("_split_"))?;
            let number = stem.rsplit('_').next()?.parse().ok()?;
            Some((number, folder.join(&name)))
        }));
    }
    files.sort();
    for (number, file) in files {
        let mut npz = Npz::open(&file, job)?;
        let keys = ["train_mask", "val_mask", "test_mask"];
        for parts in masks(&mut npz, keys, set.n_items())? {
            set = set.with_split(split(format!("split-{number}"), parts))?;
        }
    }
    Ok(set)
}
