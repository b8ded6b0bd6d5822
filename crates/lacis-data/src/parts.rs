//! What readers of many formats put together: edges, sparse rows, classes, folders.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};

use lacis_core::{
    ColumnOrder, Coo, Csr, CsrParts, Error, Extent, Graph, Labels, Repeats, Result, RowPtr, Split,
    Threads,
};

use crate::npy::Source;
use crate::npz::Npz;
use crate::scipy::{compressed, settle};
use crate::{Job, note};

/// Which way the edges of a file run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ways {
    /// From source to target, as they are stored.
    Stored,
    /// Both ways, each stored once or twice.
    Both,
}

/// Edges in the order of a file.
#[derive(Default)]
pub(crate) struct EdgeList {
    pub sources: Vec<u32>,
    pub targets: Vec<u32>,
}

impl EdgeList {
    pub fn push(&mut self, source: u32, target: u32) {
        self.sources.push(source);
        self.targets.push(target);
    }

    /// The graph of `n` nodes, repeats merged, and what to say of them.
    pub fn graph(
        mut self,
        n: usize,
        ways: Ways,
        source: &Source<'_>,
        threads: &Threads,
    ) -> Result<(Graph, Vec<String>)> {
        if ways == Ways::Both {
            let stored = self.sources.clone();
            self.sources.extend_from_slice(&self.targets);
            self.targets.extend(stored);
        }
        let coo = Coo::from_slices(&self.targets, &self.sources, None, threads)?;
        drop(self);
        merged(coo, n, ways, (source, threads))
    }
}

/// A graph of `n` nodes whose repeated edges are merged, and what to say of them.
pub(crate) fn merged(
    coo: Coo,
    n: usize,
    ways: Ways,
    (source, threads): (&Source<'_>, &Threads),
) -> Result<(Graph, Vec<String>)> {
    let extent = Extent { n_rows: Some(n), n_cols: Some(n) };
    let settled = settle(coo, extent, Repeats::Merge, (source, threads))?;
    // Both ways, edges that were stored both ways are repeats of no interest.
    let repeats = if ways == Ways::Both { 0 } else { settled.n_repeats };
    Ok((Graph::new(settled.csr), note::merged(repeats).into_iter().collect()))
}

/// Rows of a sparse matrix as they come.
#[derive(Debug, PartialEq)]
pub(crate) struct SparseRows {
    ends: Vec<u64>,
    cols: Vec<u32>,
    values: Vec<f32>,
}

impl Default for SparseRows {
    fn default() -> Self {
        SparseRows::new()
    }
}

impl SparseRows {
    pub fn new() -> Self {
        SparseRows { ends: vec![0], cols: Vec::new(), values: Vec::new() }
    }

    /// Adds an entry to the row under way.
    pub fn push(&mut self, col: u32, value: f32) {
        self.cols.push(col);
        self.values.push(value);
    }

    /// Adds a whole row of ones.
    pub fn push_ones(&mut self, cols: &[u32]) {
        self.cols.extend_from_slice(cols);
        self.values.resize(self.cols.len(), 1.0);
        self.end_row();
    }

    pub fn end_row(&mut self) {
        self.ends.push(self.cols.len() as u64);
    }

    /// Drops what the row under way has so far.
    pub fn begin_again(&mut self) {
        let start = self.ends[self.ends.len() - 1] as usize;
        self.cols.truncate(start);
        self.values.truncate(start);
    }

    /// Adds all rows of another, after these.
    pub fn append(&mut self, other: &SparseRows) {
        let start = self.cols.len() as u64;
        self.ends.extend(other.ends[1..].iter().map(|end| start + end));
        self.cols.extend_from_slice(&other.cols);
        self.values.extend_from_slice(&other.values);
    }

    /// One more than the largest column.
    pub fn width(&self) -> usize {
        self.cols.iter().max().map_or(0, |&j| j as usize + 1)
    }

    /// The matrix: the finished row `order[i]` is its row `i`, no row where there is no order.
    pub fn ordered(self, order: &[Option<u32>]) -> Self {
        let mut sorted = SparseRows::new();
        for row in order {
            if let Some(row) = row {
                let entries =
                    self.ends[*row as usize] as usize..self.ends[*row as usize + 1] as usize;
                sorted.cols.extend_from_slice(&self.cols[entries.clone()]);
                sorted.values.extend_from_slice(&self.values[entries]);
            }
            sorted.end_row();
        }
        sorted
    }

    pub fn into_csr(self, n_cols: usize, source: &Source<'_>, threads: &Threads) -> Result<Csr> {
        let n_rows = self.ends.len() - 1;
        let parts = CsrParts {
            n_cols,
            row_ptr: RowPtr::Wide(self.ends.into()),
            cols: self.cols.into(),
            values: Some(self.values.into()),
            order: None,
        };
        let csr = compressed(parts, n_rows, source, threads)?;
        let csr = match csr.column_order() {
            ColumnOrder::Sorted => csr,
            ColumnOrder::Unsorted => csr.sorted(Repeats::Keep, threads),
        };
        Ok(csr.without_unit_values())
    }
}

/// Classes of whole numbers: the smallest is class 0, and its name is the number.
pub(crate) fn numbered_classes(of: &[i64]) -> Result<Labels> {
    let mut classes: BTreeMap<i64, i32> = of.iter().map(|&class| (class, 0)).collect();
    (0..).zip(classes.values_mut()).for_each(|(at, class)| *class = at);
    // Classes that are 0, 1, 2 … already need no names.
    let plain = classes.iter().all(|(&number, &class)| number == i64::from(class));
    let names = if plain { Vec::new() } else { classes.keys().map(i64::to_string).collect() };
    Labels::classes(of.iter().map(|class| classes[class]).collect::<Vec<_>>(), names)
}

/// Classes by name, in the order of the names, or of the numbers that all of them are; −1 where
/// there is no name.
pub(crate) fn named_classes(of: &[Option<&str>]) -> Result<Labels> {
    let mut names: Vec<&str> = of.iter().flatten().copied().collect();
    names.sort_unstable();
    names.dedup();
    let numbers = names.iter().map(|name| name.trim().parse::<i64>().ok());
    let numbers: Option<Vec<i64>> = numbers.collect();
    if numbers.is_some_and(|numbers| !numbers.is_empty()) {
        names.sort_by_key(|name| name.trim().parse::<i64>().unwrap_or(0));
    }
    let class_of: HashMap<&str, i32> = names.iter().copied().zip(0..).collect();
    let plain = names.iter().enumerate().all(|(at, name)| *name == at.to_string());
    let class = |name: &Option<&str>| name.map_or(-1, |name| class_of[name]);
    let of: Vec<i32> = of.iter().map(class).collect();
    let names = if plain { Vec::new() } else { names.iter().map(|&n| n.to_owned()).collect() };
    Labels::classes(of, names)
}

/// The split of three masks in an archive, one row of each for each split.
pub(crate) fn masks(npz: &mut Npz<'_>, keys: [&str; 3], n: usize) -> Result<Vec<[Vec<u32>; 3]>> {
    let mut splits: Vec<[Vec<u32>; 3]> = Vec::new();
    for (part, key) in keys.into_iter().enumerate() {
        let (shape, mask) = npz.with(key, |npy| npy.bools())?;
        if shape.last() != Some(&n) || shape.len() > 2 {
            let problem =
                format!("a mask of shape {shape:?}; one truth value a node, {n}, is right");
            return Err(npz.source(key).problem(problem));
        }
        let count = mask.len() / n.max(1);
        if part == 0 {
            splits.resize(count, Default::default());
        }
        if splits.len() != count {
            let problem = format!("{count} masks, but {} of the others", splits.len());
            return Err(npz.source(key).problem(problem));
        }
        for (split, mask) in splits.iter_mut().zip(mask.chunks_exact(n.max(1))) {
            split[part] = (0..).zip(mask).filter(|(_, set)| **set).map(|(i, _)| i).collect();
        }
    }
    Ok(splits)
}

/// A split of the three parts under a name.
pub(crate) fn split(name: String, [train, val, test]: [Vec<u32>; 3]) -> Split {
    Split { name, train, val, test }
}

/// The names in a folder, sorted; none where it cannot be read.
pub(crate) fn names_in(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut names: Vec<String> =
        entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.sort();
    names
}

/// A name without the ending of a packing.
pub(crate) fn unpacked_name(name: &str) -> &str {
    let packings = [".gz", ".zst", ".zstd"];
    packings.iter().find_map(|end| name.strip_suffix(end)).unwrap_or(name)
}

/// The file of this name in a folder, packed or not.
pub(crate) fn file_in(folder: &Path, name: &str) -> Option<PathBuf> {
    let names = ["", ".gz", ".zst"].map(|packing| folder.join(format!("{name}{packing}")));
    names.into_iter().find(|path| path.is_file())
}

/// As [`file_in`], where the file has to be there.
pub(crate) fn required(folder: &Path, name: &str) -> Result<PathBuf> {
    file_in(folder, name).ok_or_else(|| Error::file(folder, format!("there is no file '{name}'")))
}

/// The folder that a path is, or that the file at it is in.
pub(crate) fn folder_of(path: &Path) -> PathBuf {
    if path.is_dir() {
        return path.to_owned();
    }
    let parent = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    parent.unwrap_or(Path::new(".")).to_owned()
}

/// What a data set in this folder is called.
pub(crate) fn folder_name(folder: &Path) -> String {
    let whole = std::path::absolute(folder).unwrap_or_default();
    whole.file_name().map_or("graph".to_owned(), |name| name.to_string_lossy().into_owned())
}

/// Tells the watcher that a part is done.
pub(crate) fn tick(job: &Job<'_>) -> Result<()> {
    job.tick(0, None)
}
