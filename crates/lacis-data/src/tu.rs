//! The text form of TU Dortmund's collections of graphs: `DS_A.txt` and its companions.
//!
//! ```text
//!  DS_A.txt                  i, j        an edge a line, nodes from 1, both ways stored
//!  DS_graph_indicator.txt    g           the graph of each node, from 1, ascending
//!  DS_graph_labels.txt       class       of each graph; or DS_graph_attributes.txt, numbers
//!  DS_node_labels.txt        l, …        one-hot features of each node
//!  DS_node_attributes.txt    x, …        features where there are no node labels
//! ```
//! As PyG has it, node attributes are left out where there are node labels. Labels and attributes
//! of edges are not read.

use std::path::{Path, PathBuf};

use lacis_core::{Collection, Csr, Dataset, Error, Features, Labels, Origin, Place, Result};

use crate::Job;
use crate::input::check_listed;
use crate::npy::Source;
use crate::numbers::{Table, Written, read_table};
use crate::parts::{
    SparseRows, Ways, file_in, folder_of, merged, names_in, numbered_classes, unpacked_name,
};
use crate::text::{Layout, read_entries};

/// One-hot features of so many numbers are as wide as the numbers reach, as in PyG; of more, there
/// is a column for each that occurs.
const MAX_REACH: i64 = 1 << 12;

/// The folder and the name of the collection that a path leads to.
pub fn find(path: &Path) -> Option<(PathBuf, String)> {
    let folder = folder_of(path);
    let names = names_in(&folder);
    let own = path.is_file().then(|| path.file_name()?.to_str()).flatten();
    let mut sets = names.iter().filter_map(|name| {
        let set = unpacked_name(name).strip_suffix("_A.txt")?;
        let named = own.is_none_or(|own| own.starts_with(&format!("{set}_")));
        let whole = file_in(&folder, &format!("{set}_graph_indicator.txt")).is_some();
        (named && whole).then(|| set.to_owned())
    });
    let set = sets.next()?;
    Some((folder, set))
}

/// Reads the collection that a path leads to.
///
/// # Errors
/// When a file is missing or damaged, or the files do not fit together.
pub fn read(path: &Path, job: &Job<'_>) -> Result<Dataset> {
    let Some((folder, name)) = find(path) else {
        return Err(Error::file(path, "there are no DS_A.txt and DS_graph_indicator.txt here"));
    };
    let files = Files { folder, name, job };
    let collection = files.collection()?;
    let n = collection.starts().last().map_or(0, |&end| end as usize);
    let (a, indicator) = (files.path("A"), files.path("graph_indicator"));
    let bounds = [n as u32; 2];
    let layout = Layout::pairs(1, bounds);
    let coo = read_entries(&a, 0, &layout, job)?;
    let (graph, mut notes) = merged(coo, n, Ways::Stored, (&Source::file(&a, job), job.threads))?;
    let features = files.features(n, &mut notes)?;
    let labels = files.labels(&collection)?;
    let blame = |error| Source::file(&indicator, job).blame(error);
    let mut set = Dataset::new(&files.name, graph)
        .with_origin(Origin { notes, ..Origin::default() })
        .with_collection(collection)
        .map_err(blame)?;
    if let Some(features) = features {
        set = set.with_features(features)?;
    }
    match labels {
        Some(labels) => set.with_labels(labels),
        None => Ok(set),
    }
}

struct Files<'a> {
    folder: PathBuf,
    name: String,
    job: &'a Job<'a>,
}

impl Files<'_> {
    fn path(&self, part: &str) -> PathBuf {
        let name = format!("{}_{part}.txt", self.name);
        file_in(&self.folder, &name).unwrap_or_else(|| self.folder.join(name))
    }

    /// The numbers of a part, a row an item, if the part is there.
    fn table<T: Written>(&self, part: &str, n_rows: usize) -> Result<Option<Table<T>>> {
        let path = self.path(part);
        let table = path.is_file().then(|| read_table(&path, self.job)).transpose()?;
        if let Some(table) = &table {
            self.rows(part, table, n_rows)?;
        }
        Ok(table)
    }

    fn rows<T: Written>(&self, part: &str, table: &Table<T>, right: usize) -> Result<()> {
        let found = table.n_rows();
        if found == right {
            return Ok(());
        }
        let problem = format!("{found} lines; {right} would fit the other files");
        Err(Error::file(self.path(part), problem))
    }

    /// Where the nodes of each graph start.
    fn collection(&self) -> Result<Collection> {
        let path = self.path("graph_indicator");
        let table: Table<i64> = read_table(&path, self.job)?;
        let labels = self.path("graph_labels");
        let last = table.row(table.n_rows().saturating_sub(1)).first().copied().unwrap_or(0);
        let n_graphs = match labels.is_file() {
            true => read_table::<i64>(&labels, self.job)?.n_rows(),
            false => usize::try_from(last).unwrap_or(0),
        };
        check_listed("graphs", n_graphs, table.n_rows()).map_err(|e| Error::file(&path, e))?;
        let mut starts = vec![0u32];
        for i in 0..table.n_rows() {
            let graph = table.row(i)[0];
            if graph < starts.len() as i64 || graph > n_graphs as i64 {
                let problem = format!(
                    "graph {graph} here; from {} to {n_graphs}, ascending, would be right",
                    starts.len()
                );
                return Err(Error::file_at(&path, Place::Line(i as u64 + 1), problem));
            }
            // Graph g has begun when there are g starts; graphs without nodes begin there too.
            while starts.len() < graph as usize {
                starts.push(i as u32);
            }
        }
        while starts.len() <= n_graphs {
            starts.push(table.n_rows() as u32);
        }
        Collection::new(starts)
    }

    fn labels(&self, collection: &Collection) -> Result<Option<Labels>> {
        let n_graphs = collection.n_graphs();
        if let Some(table) = self.table::<i64>("graph_labels", n_graphs)? {
            return numbered_classes(&table.column(0).collect::<Vec<_>>()).map(Some);
        }
        let table = self.table("graph_attributes", n_graphs)?;
        table.map(|table| table.into_dense().map(Labels::Targets)).transpose()
    }

    fn features(&self, n: usize, notes: &mut Vec<String>) -> Result<Option<Features>> {
        for part in ["edge_labels", "edge_attributes"] {
            if self.path(part).is_file() {
                let what = part.replace('_', " ");
                notes.push(format!("{what} were left out: edges have weights only"));
            }
        }
        let attributes = self.path("node_attributes").is_file();
        if let Some(labels) = self.table("node_labels", n)? {
            if attributes {
                notes.push("node attributes were left out: node labels are the features".into());
            }
            let path = self.path("node_labels");
            let one_hot = one_hot(&labels, &Source::file(&path, self.job), self.job)?;
            return Ok(Some(Features::Sparse(one_hot)));
        }
        let table = self.table("node_attributes", n)?;
        table.map(|table| table.into_dense().map(Features::Dense)).transpose()
    }
}

/// A one for each number of a row, in the columns that belong to its place.
pub(crate) fn one_hot(table: &Table<i64>, source: &Source<'_>, job: &Job<'_>) -> Result<Csr> {
    let mut columns = Vec::new();
    let mut width = 0;
    for at in 0..table.n_cols() {
        let mut distinct: Vec<i64> = table.column(at).collect();
        distinct.sort_unstable();
        distinct.dedup();
        let (Some(&least), Some(&most)) = (distinct.first(), distinct.last()) else { continue };
        let reach = most.saturating_sub(least).saturating_add(1);
        let dense = reach <= MAX_REACH;
        columns.push((width, least, if dense { Vec::new() } else { distinct.clone() }));
        width += if dense { reach as u32 } else { distinct.len() as u32 };
    }
    let mut rows = SparseRows::new();
    for i in 0..table.n_rows() {
        for (&value, (first, least, distinct)) in table.row(i).iter().zip(&columns) {
            let at = match distinct.is_empty() {
                true => (value - least) as u32,
                false => distinct.partition_point(|&known| known < value) as u32,
            };
            rows.push(first + at, 1.0);
        }
        rows.end_row();
    }
    rows.into_csr(width as usize, source, job.threads)
}
