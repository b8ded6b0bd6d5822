//! The MUSAE form: `NAME_edges.csv`, `NAME.json` (or `NAME_features.json`) and `NAME_target.csv`.
//!
//! ```text
//!  edges    two columns, an undirected edge a row, once
//!  json     {"node": [feature, …], …}       positions of ones
//!  target   id (or new_id), …, label        mature, page_type, ml_target or target
//! ```
//! A folder of such folders, as the seven countries of Twitch, is read as one graph of separate
//! parts with one space of features: DE trains, ENGB chooses, the others judge.

use std::collections::HashSet;
use std::fmt;
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};

use lacis_core::{Coo, Dataset, Dense, Error, Features, Labels, Origin, Result, Tags};
use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};

use crate::Job;
use crate::digits::leading_number;
use crate::input::{Input, check_count, check_listed};
use crate::npy::Source;
use crate::parts::{
    SparseRows, Ways, folder_name, folder_of, merged, named_classes, names_in, split,
};
use crate::pieces::PIECE_BYTES;
use crate::table::{self, Table};
use crate::text::{Layout, Mirror, add_entries};

/// Columns that hold what is to be predicted, the likeliest first.
const LABELS: &[&str] = &["mature", "page_type", "ml_target", "target", "label", "class"];
const IDS: &[&str] = &["new_id", "id", "node", "node_id"];
/// A number that takes more values is no class.
const MAX_NUMBERED_CLASSES: usize = 100;

/// The three files of a graph.
#[derive(Clone, Debug)]
struct Files {
    name: String,
    edges: PathBuf,
    features: PathBuf,
    target: PathBuf,
}

impl Files {
    fn in_folder(folder: &Path) -> Option<Self> {
        let names = names_in(folder);
        let ends = |end: &str| {
            let mut found = names.iter().filter(|name| name.ends_with(end));
            found.next().filter(|_| found.next().is_none())
        };
        let edges = ends("_edges.csv")?;
        let name = edges.strip_suffix("_edges.csv")?;
        let target = format!("{name}_target.csv");
        let json = [format!("{name}_features.json"), format!("{name}.json")];
        let json = json.into_iter().find(|json| names.contains(json))?;
        names.contains(&target).then(|| Files {
            name: name.strip_prefix("musae_").unwrap_or(name).to_owned(),
            edges: folder.join(edges),
            features: folder.join(json),
            target: folder.join(target),
        })
    }
}

/// The graphs that a path leads to: of a folder, of a file's folder, or of a folder's folders.
fn find(path: &Path) -> Vec<Files> {
    if path.is_dir() {
        if let Some(files) = Files::in_folder(path) {
            return vec![files];
        }
        let folders: Vec<PathBuf> = names_in(path).iter().map(|name| path.join(name)).collect();
        return folders.iter().filter_map(|folder| Files::in_folder(folder)).collect();
    }
    let own =
        |files: &Files| [&files.edges, &files.features, &files.target].contains(&&path.into());
    Files::in_folder(&folder_of(path)).filter(own).into_iter().collect()
}

/// Whether a path leads to such a graph, or several.
pub fn recognises(path: &Path) -> bool {
    !find(path).is_empty()
}

/// Reads the graph, or the graphs as one.
///
/// # Errors
/// When a file is missing or damaged, or the files do not fit together.
pub fn read(path: &Path, job: &Job<'_>) -> Result<Dataset> {
    let all = find(path);
    let [first, ..] = &all[..] else {
        return Err(Error::file(path, "there is no NAME_edges.csv with its json and target here"));
    };
    let graphs = all.iter().map(|files| Part::read(files, job)).collect::<Result<Vec<_>>>()?;
    let mut width = graphs.iter().map(|part| part.features.width()).max().unwrap_or(0);
    if all.len() == 1 {
        // Graphs beside this one share its features.
        width = width.max(sibling_width(&first.edges, job));
    }
    check_count("features", width, graphs.iter().map(|part| part.n).sum())
        .map_err(|e| Error::file(&first.features, e))?;
    let name = if all.len() == 1 { first.name.clone() } else { folder_name(&folder_of(path)) };
    joined(name, graphs, width, job)
}

/// The largest width of graphs in folders beside that of a file; 0 where they cannot be read.
fn sibling_width(file: &Path, job: &Job<'_>) -> usize {
    let folder = folder_of(file);
    let Some(above) = folder.parent() else { return 0 };
    let siblings = names_in(above).into_iter().map(|name| above.join(name));
    let siblings = siblings.filter(|sibling| *sibling != folder && sibling.is_dir());
    let widths = siblings.filter_map(|sibling| {
        let files = Files::in_folder(&sibling)?;
        Lists::read(&files.features, job).ok().map(|lists| lists.width())
    });
    widths.max().unwrap_or(0)
}

/// One graph.
struct Part {
    files: Files,
    n: usize,
    features: Lists,
    labels: Vec<Option<String>>,
}

impl Part {
    fn read(files: &Files, job: &Job<'_>) -> Result<Self> {
        let features = Lists::read(&files.features, job)?;
        let table = table::read(&files.target, job)?;
        let ids = ids(&table, files)?;
        let largest = ids.iter().chain(&features.nodes).max();
        let n = largest.map_or(0, |&largest| largest as usize + 1);
        check_listed("nodes", n, ids.len() + features.nodes.len())
            .map_err(|e| Error::file(&files.target, e))?;
        let Some(column) = table.find(LABELS) else {
            let problem = format!("has no column of labels among {}", table.names());
            return Err(Error::file(&files.target, problem + "; 'target' would be right"));
        };
        let mut labels = vec![None; n];
        for (row, &id) in ids.iter().enumerate() {
            labels[id as usize] = column.text(row);
        }
        Ok(Part { files: files.clone(), n, features, labels })
    }
}

fn ids(table: &Table, files: &Files) -> Result<Vec<u32>> {
    let bad = |problem: String| Error::file(&files.target, problem);
    let column = table.find(IDS);
    let column = column.ok_or_else(|| bad("has no column 'id'".to_owned()))?;
    let id = |row| match column.number(row) {
        Ok(Some(x)) if x >= 0.0 && x < f64::from(u32::MAX) && x.fract() == 0.0 => Ok(x as u32),
        _ => {
            let found = column.text(row).unwrap_or_default();
            Err(bad(format!("row {}: '{found}' is no node number", row + 1)))
        }
    };
    (0..table.n_rows()).map(id).collect()
}

/// All graphs as one: their nodes one after another.
fn joined(name: String, graphs: Vec<Part>, width: usize, job: &Job<'_>) -> Result<Dataset> {
    let n: usize = graphs.iter().map(|part| part.n).sum();
    let (mut coo, mut rows) = (Coo::new(Tags::Absent), SparseRows::new());
    let (mut first, mut parts, mut notes) = (0u32, <[Vec<u32>; 3]>::default(), Vec::new());
    for part in &graphs {
        part_edges(part, first, &mut coo, job)?;
        for list in part.features.by_node(part.n) {
            rows.push_ones(part.features.list(list));
        }
        let end = first + part.n as u32;
        let which = match &*part.files.name {
            "DE" => 0,
            "ENGB" => 1,
            _ => 2,
        };
        parts[which].extend(first..end);
        if graphs.len() > 1 {
            notes.push(format!("{} has the nodes {first} to {}", part.files.name, end.max(1) - 1));
        }
        first = end;
    }
    let file = &graphs[0].files.edges;
    let source = Source::file(file, job);
    let (graph, more) = merged(coo, n, Ways::Both, (&source, job.threads))?;
    notes.extend(more);
    let labels = graphs.iter().flat_map(|part| part.labels.iter().map(Option::as_deref));
    let labels = labels_of(&labels.collect::<Vec<_>>())?;
    let features = rows.into_csr(width, &source, job.threads)?;
    let set = Dataset::new(name, graph)
        .with_origin(Origin { notes, ..Origin::default() })
        .with_features(Features::Sparse(features))?
        .with_labels(labels)?;
    if graphs.len() > 1 && parts.iter().all(|part| !part.is_empty()) {
        return set.with_split(split("countries".to_owned(), parts));
    }
    Ok(set)
}

/// Classes, or numbers where there are too many different ones.
fn labels_of(texts: &[Option<&str>]) -> Result<Labels> {
    let distinct: HashSet<&str> = texts.iter().flatten().copied().collect();
    if distinct.len() > MAX_NUMBERED_CLASSES {
        let numbers = texts.iter().map(|text| text.and_then(|text| text.parse().ok()));
        if let Some(numbers) = numbers.collect::<Option<Vec<f32>>>() {
            let n = numbers.len();
            return Ok(Labels::Targets(Dense::from_vec(numbers, n, 1)?));
        }
    }
    named_classes(texts)
}

/// Adds a part's edges, both ways, its nodes counted from `first`.
fn part_edges(part: &Part, first: u32, coo: &mut Coo, job: &Job<'_>) -> Result<()> {
    let path = &part.files.edges;
    let head = crate::input::head(path, 1 << 12)?;
    let line = memchr::memchr(b'\n', &head).map_or(head.len(), |at| at + 1);
    let has_header = !head.first().is_some_and(u8::is_ascii_digit);
    let bounds = [part.n as u32; 2];
    let layout = Layout { mirror: Mirror::Same, ..Layout::pairs(0, bounds) };
    let start = if has_header { line as u64 } else { 0 };
    add_entries(coo, (path, start), &layout, job, |chunk| {
        if first > 0 {
            chunk.places.iter_mut().flatten().for_each(|node| *node += first);
        }
    })
}

/// Lists of numbers are packed to a fifth or so: a text that is so many times its file is read by
/// the parser that does not hold it.
const PACKED: u64 = 8;

/// `{"node": [position, …], …}`: the nodes as they come, and their positions one after another,
/// ascending and without repeats in each list.
#[derive(Debug, Default, PartialEq)]
struct Lists {
    nodes: Vec<u32>,
    ends: Vec<usize>,
    ones: Vec<u32>,
}

impl Lists {
    fn read(path: &Path, job: &Job<'_>) -> Result<Self> {
        crate::parts::tick(job)?;
        let bad = |e: &dyn fmt::Display| {
            Error::file(path, format!("is no {{\"node\": [features]}}: {e}"))
        };
        let (mut text, most) =
            (Vec::new(), PACKED * std::fs::metadata(path).map_or(0, |m| m.len()));
        let mut start = Input::open(path)?.unpacked(path)?.take(most);
        start.read_to_end(&mut text).map_err(|e| bad(&e))?;
        if let Some(lists) = plain_lists(&text, job) {
            return Ok(lists);
        }
        drop(text);
        let text = BufReader::with_capacity(256 << 10, Input::open(path)?.unpacked(path)?);
        let mut json = serde_json::Deserializer::from_reader(text);
        let mut lists = Lists::default();
        let read = NodeLists(&mut lists).deserialize(&mut json).and_then(|()| json.end());
        read.map_err(|e| bad(&e))?;
        Ok(lists)
    }

    fn width(&self) -> usize {
        self.ones.iter().max().map_or(0, |&one| one as usize + 1)
    }

    /// Ends a node's list, whose positions were just added.
    fn end(&mut self, node: u32) {
        let start = self.ends.last().copied().unwrap_or(0);
        let list = &mut self.ones[start..];
        list.sort_unstable();
        let mut kept = 0;
        for at in 0..list.len() {
            if kept == 0 || list[kept - 1] != list[at] {
                list[kept] = list[at];
                kept += 1;
            }
        }
        self.ones.truncate(start + kept);
        self.nodes.push(node);
        self.ends.push(start + kept);
    }

    /// Which list is each node's: its last one.
    fn by_node(&self, n: usize) -> Vec<Option<u32>> {
        let mut lists = vec![None; n];
        self.nodes.iter().zip(0..).for_each(|(&node, at)| lists[node as usize] = Some(at));
        lists
    }

    fn list(&self, at: Option<u32>) -> &[u32] {
        let Some(at) = at.map(|at| at as usize) else { return &[] };
        let start = if at == 0 { 0 } else { self.ends[at - 1] };
        &self.ones[start..self.ends[at]]
    }

    fn append(&mut self, other: Lists) {
        let before = self.ones.len();
        self.nodes.extend(other.nodes);
        self.ends.extend(other.ends.iter().map(|end| before + end));
        self.ones.extend(other.ones);
    }
}

/// The lists of a text with nothing but digits, quotes, brackets, colons, commas and blanks, piece
/// by piece on all threads; `None` of any other, which the parser that knows all of JSON then has.
fn plain_lists(text: &[u8], job: &Job<'_>) -> Option<Lists> {
    let inside = text.trim_ascii().strip_prefix(b"{")?.strip_suffix(b"}")?;
    let mut pieces = Vec::new();
    let mut rest = inside;
    while !rest.is_empty() {
        // Nothing but a list ends with a bracket.
        let from = PIECE_BYTES.min(rest.len());
        let end = memchr::memchr(b']', &rest[from..]).map_or(rest.len(), |at| from + at + 1);
        let (piece, after) = rest.split_at(end);
        pieces.push((piece, pieces.is_empty()));
        rest = after;
    }
    let parts =
        job.threads.map(pieces, |(piece, first)| Plain { bytes: piece, at: 0 }.lists(first));
    let mut all = Lists::default();
    for part in parts {
        all.append(part?);
    }
    Some(all)
}

/// Reads lists in their plainest form.
struct Plain<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Plain<'_> {
    /// `"node": [position, …], …`, after a comma unless it is the first.
    fn lists(mut self, first: bool) -> Option<Lists> {
        let mut lists = Lists::default();
        let mut is_first = first;
        while self.peek().is_some() {
            if !is_first {
                self.expect(b',')?;
            }
            is_first = false;
            self.expect(b'"')?;
            let node = self.number()?;
            // No blanks: they would be part of the name.
            (self.bytes.get(self.at) == Some(&b'"')).then_some(())?;
            self.at += 1;
            self.expect(b':')?;
            self.expect(b'[')?;
            if self.peek()? == b']' {
                self.at += 1;
            } else {
                self.positions(&mut lists.ones)?;
            }
            lists.end(node);
        }
        Some(lists)
    }

    /// One position or more, and the bracket after them.
    fn positions(&mut self, ones: &mut Vec<u32>) -> Option<()> {
        loop {
            self.peek()?;
            ones.push(self.number()?);
            match self.peek()? {
                b',' => self.at += 1,
                b']' => {
                    self.at += 1;
                    return Some(());
                }
                _ => return None,
            }
        }
    }

    /// The next byte that is not blank.
    #[inline]
    fn peek(&mut self) -> Option<u8> {
        while matches!(self.bytes.get(self.at)?, b' ' | b'\n' | b'\r' | b'\t') {
            self.at += 1;
        }
        Some(self.bytes[self.at])
    }

    fn expect(&mut self, byte: u8) -> Option<()> {
        (self.peek()? == byte).then(|| self.at += 1)
    }

    /// Up to seven digits, without zeros before them, which JSON does not have.
    #[inline]
    fn number(&mut self) -> Option<u32> {
        let rest = &self.bytes[self.at..];
        let (number, digits) = match rest.first_chunk() {
            Some(eight) => leading_number(eight),
            None => {
                // Blanks after the last bytes.
                let mut eight = [b' '; 8];
                eight[..rest.len()].copy_from_slice(rest);
                leading_number(&eight)
            }
        };
        let zeros = digits > 1 && self.bytes[self.at] == b'0';
        self.at += digits;
        ((1..8).contains(&digits) && !zeros).then_some(number)
    }
}

struct NodeLists<'a>(&'a mut Lists);

impl<'de> DeserializeSeed<'de> for NodeLists<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> std::result::Result<(), D::Error> {
        json.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for NodeLists<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object of nodes and their features")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> std::result::Result<(), A::Error> {
        while let Some((node, ones)) = map.next_entry::<String, Ones>()? {
            let bad = || serde::de::Error::custom(format!("'{node:.40}' is no node number"));
            let node = node.parse().map_err(|_| bad())?;
            self.0.ones.extend(ones.0);
            self.0.end(node);
        }
        Ok(())
    }
}

/// Positions of ones. Some files have them as fractions, `3.0`.
struct Ones(Vec<u32>);

impl<'de> serde::Deserialize<'de> for Ones {
    fn deserialize<D: Deserializer<'de>>(json: D) -> std::result::Result<Self, D::Error> {
        struct List;
        impl<'de> Visitor<'de> for List {
            type Value = Ones;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list of feature numbers")
            }

            fn visit_seq<A: SeqAccess<'de>>(
                self,
                mut list: A,
            ) -> std::result::Result<Ones, A::Error> {
                let mut ones = Vec::new();
                while let Some(one) = list.next_element::<f64>()? {
                    if one < 0.0 || one >= f64::from(u32::MAX) || one.fract() != 0.0 {
                        let problem = format!("{one} is no feature number");
                        return Err(serde::de::Error::custom(problem));
                    }
                    ones.push(one as u32);
                }
                Ok(Ones(ones))
            }
        }
        json.deserialize_seq(List)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lacis_core::Threads;

    fn by_serde(text: &str) -> Option<Lists> {
        let (mut json, mut lists) = (serde_json::Deserializer::from_str(text), Lists::default());
        NodeLists(&mut lists).deserialize(&mut json).ok()?;
        json.end().ok().map(|()| lists)
    }

    #[test]
    fn plain_lists_are_those_of_json() {
        let threads = Threads::new(2).unwrap();
        let plain = |text: &str| plain_lists(text.as_bytes(), &Job::quiet(&threads));
        let list = |i: usize| format!("\"{i}\": [{}, 7,7 ,\n{}]", i * 37 % 4000, i % 5);
        let many = (0..700_000).map(list).collect::<Vec<_>>().join(", ");
        for text in ["{}", "{ }", "{\"0\":[]}", " {\"12\": [3, 1, 3]} ", &format!("{{{many}}}")] {
            assert!(plain(text).is_some());
            assert!(plain(text) == by_serde(text));
        }
        for odd in [
            "",
            "{",
            "{,}",
            "{\"0\":[1],}",
            "{\"0\":[1,]}",
            "{\"0\" [1]}",
            "{\"0\":[01]}",
            "{\"0\":[1]\"1\":[2]}",
            "{\"0\":[1.0]}",
            "{\"a\":[1]}",
            "{\"0\":[-1]}",
            "{\"0 \":[1]}",
            "{\"0\":[12345678]}",
            "{\"0\":1}",
            "{\"0\":[[1]]}",
            "{\"0\":[1 2]}",
        ] {
            assert!(plain(odd).is_none(), "{odd}");
        }
    }
}
