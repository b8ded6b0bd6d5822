//! The MUSAE form: `NAME_edges.csv`, `NAME.json` (or `NAME_features.json`) and `NAME_target.csv`.
//!
//! ```text
//!  edges    two columns, an undirected edge a row, once
//!  json     {"node": [feature, …], …}       positions of ones
//!  target   id (or new_id), …, label        mature, page_type, ml_target or target
//! ```
//! A folder of such folders, as the seven countries of Twitch, is read as one graph of separate
//! parts with one space of features: DE trains, ENGB chooses, the others judge.

use std::collections::BTreeMap;
use std::fmt;
use std::io::BufReader;
use std::path::{Path, PathBuf};

use lacis_core::{Dataset, Dense, Error, Features, Labels, Origin, Result};
use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};

use crate::Job;
use crate::input::{Input, check_count, check_listed};
use crate::npy::Source;
use crate::parts::{
    EdgeList, SparseRows, Ways, folder_name, folder_of, merged, named_classes, names_in, split,
};
use crate::table::{self, Table};
use crate::text::{Layout, read_entries};

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
        let largest =
            ids.iter().copied().max().into_iter().chain(features.of.keys().copied().max());
        let n = largest.max().map_or(0, |largest| largest as usize + 1);
        check_listed("nodes", n, ids.len() + features.of.len())
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
    let (mut edges, mut rows) = (EdgeList::default(), SparseRows::new());
    let (mut first, mut parts, mut notes) = (0u32, <[Vec<u32>; 3]>::default(), Vec::new());
    for part in &graphs {
        part_edges(part, first, &mut edges, job)?;
        for node in 0..part.n as u32 {
            let ones = part.features.of.get(&node).map_or(&[][..], |ones| &ones[..]);
            ones.iter().for_each(|&one| rows.push(one, 1.0));
            rows.end_row();
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
    let (graph, more) = edges.graph(n, Ways::Both, &source, job.threads)?;
    notes.extend(more);
    let labels: Vec<Option<String>> = graphs.iter().flat_map(|part| part.labels.clone()).collect();
    let features = rows.into_csr(width, &source, job.threads)?;
    let set = Dataset::new(name, graph)
        .with_origin(Origin { notes, ..Origin::default() })
        .with_features(Features::Sparse(features))?
        .with_labels(labels_of(&labels)?)?;
    if graphs.len() > 1 && parts.iter().all(|part| !part.is_empty()) {
        return set.with_split(split("countries".to_owned(), parts));
    }
    Ok(set)
}

/// Classes, or numbers where there are too many different ones.
fn labels_of(labels: &[Option<String>]) -> Result<Labels> {
    let texts: Vec<Option<&str>> = labels.iter().map(Option::as_deref).collect();
    let mut distinct: Vec<&str> = texts.iter().flatten().copied().collect();
    distinct.sort_unstable();
    distinct.dedup();
    let numbers: Option<Vec<f32>> =
        texts.iter().map(|text| text.and_then(|t| t.parse().ok())).collect();
    match numbers {
        Some(numbers) if distinct.len() > MAX_NUMBERED_CLASSES => {
            let n = numbers.len();
            Ok(Labels::Targets(Dense::from_vec(numbers, n, 1)?))
        }
        _ => named_classes(&texts),
    }
}

fn part_edges(part: &Part, first: u32, edges: &mut EdgeList, job: &Job<'_>) -> Result<()> {
    let path = &part.files.edges;
    let head = crate::input::head(path, 1 << 12)?;
    let line = memchr::memchr(b'\n', &head).map_or(head.len(), |at| at + 1);
    let has_header = !head.first().is_some_and(u8::is_ascii_digit);
    let bounds = [part.n as u32; 2];
    let layout = Layout::pairs(0, bounds);
    let coo = read_entries(path, if has_header { line as u64 } else { 0 }, &layout, job)?;
    let source = Source::file(path, job);
    let (graph, _) = merged(coo, part.n, Ways::Stored, (&source, job.threads))?;
    for (target, source, _) in graph.adjacency().entries() {
        edges.push(first + source as u32, first + target as u32);
    }
    Ok(())
}

/// `{"node": [position, …], …}`.
struct Lists {
    of: BTreeMap<u32, Vec<u32>>,
}

impl Lists {
    fn read(path: &Path, job: &Job<'_>) -> Result<Self> {
        crate::parts::tick(job)?;
        let reader = BufReader::with_capacity(1 << 18, Input::open(path)?.unpacked(path)?);
        let mut json = serde_json::Deserializer::from_reader(reader);
        let mut of = BTreeMap::new();
        let read = NodeLists(&mut of).deserialize(&mut json).and_then(|()| json.end());
        read.map_err(|e| Error::file(path, format!("is no {{\"node\": [features]}}: {e}")))?;
        Ok(Lists { of })
    }

    fn width(&self) -> usize {
        self.of.values().flatten().max().map_or(0, |&one| one as usize + 1)
    }
}

struct NodeLists<'a>(&'a mut BTreeMap<u32, Vec<u32>>);

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
            self.0.insert(node.parse().map_err(|_| bad())?, ones.0);
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
                ones.sort_unstable();
                ones.dedup();
                Ok(Ones(ones))
            }
        }
        json.deserialize_seq(List)
    }
}
