//! Edge lists: one edge a line, `source target [weight]`, as text, CSV, TSV or a SNAP file.
//!
//! Blanks, tabs, commas, semicolons and bars separate; `#` and `%` begin a comment line; a first
//! line of names is a header; `{'weight': 1.5}` may follow an edge, as networkx writes it.
//! `# Nodes: N Edges: E`, as SNAP writes it, says how many nodes there are when the last ones have
//! no edges. Nodes are numbered from 0; edges run from source to target.

use std::io::Write;
use std::path::Path;

use lacis_core::{Coo, Csr, Dataset, Error, Extent, Graph, Origin, Place, Repeats, Result};

use crate::input::check_count;
use crate::npy::Source;
use crate::scipy::{Settled, settle};
use crate::text::{Layout, read_entries};
use crate::{Job, note};

/// How much of a file is looked at to tell its layout.
pub const HEAD_BYTES: usize = 1 << 16;
/// How much of it, where it is all comments.
const MAX_HEAD_BYTES: usize = HEAD_BYTES << 6;

/// What the beginning of an edge list tells.
#[derive(Debug, Default, PartialEq)]
struct Heading {
    /// Where the lines of edges begin.
    start: u64,
    /// Fields of the first edge.
    fields: usize,
    /// Which of them are source and target.
    ends: [usize; 2],
    /// Which of them is a weight.
    weight: Option<usize>,
    /// Whether a dictionary follows, with the weight if there is one.
    attributes: bool,
    /// Names that a header gave to fields that are not read.
    unread: Vec<String>,
    /// What a SNAP comment declares.
    nodes: Option<u64>,
    edges: Option<u64>,
}

/// Names under which people store sources, targets and weights.
pub(crate) const SOURCE_NAMES: &[&str] =
    &["source", "src", "from", "fromnodeid", "u", "head", "source_id", "id_1", "node1", "node_1"];
pub(crate) const TARGET_NAMES: &[&str] = &[
    "target",
    "dst",
    "to",
    "tonodeid",
    "v",
    "tail",
    "dest",
    "target_id",
    "id_2",
    "node2",
    "node_2",
];
pub(crate) const WEIGHT_NAMES: &[&str] =
    &["weight", "weights", "w", "value", "val", "edge_weight", "rating", "strength"];

/// Where the bytes after a byte-order mark begin.
pub(crate) fn after_mark(head: &[u8]) -> usize {
    if head.starts_with(b"\xef\xbb\xbf") { 3 } else { 0 }
}

/// Whether the first line that is no comment and no header begins with two node numbers, or
/// comments declare nodes without edges, or go on for longer than this.
pub fn looks_like_edges(head: &[u8]) -> bool {
    Heading::of(Path::new(""), head).is_ok() || is_all_comments(head)
}

/// Whether so much of a file as was looked at has nothing but comments.
fn is_all_comments(head: &[u8]) -> bool {
    let mut lines = head.split(|&b| b == b'\n').map(<[u8]>::trim_ascii_start);
    head.len() >= HEAD_BYTES && lines.all(|line| matches!(line.first(), None | Some(b'#' | b'%')))
}

/// The error of a file that was expected to be an edge list and is none.
pub(crate) fn why_not(path: &Path, head: &[u8]) -> Error {
    Heading::of(path, head).err().unwrap_or_else(|| not_an_edge(path, 1, ""))
}

impl Heading {
    /// Looks further where comments are long.
    fn read(path: &Path) -> Result<Self> {
        let mut limit = HEAD_BYTES;
        loop {
            let head = crate::input::head(path, limit)?;
            if head.len() < limit || limit >= MAX_HEAD_BYTES || !is_all_comments(&head) {
                return Heading::of(path, &head);
            }
            limit *= 8;
        }
    }

    fn of(path: &Path, head: &[u8]) -> Result<Self> {
        let mut heading = Heading { fields: 2, ends: [0, 1], ..Heading::default() };
        let mut names: Option<Vec<String>> = None;
        let (mut at, mut number) = (after_mark(head), 0);
        while at < head.len() {
            let end = memchr::memchr(b'\n', &head[at..]).map_or(head.len(), |end| at + end);
            let line = String::from_utf8_lossy(&head[at..end]);
            let line = line.trim();
            number += 1;
            let (line, attributes) = without_attributes(line);
            let fields: Vec<&str> = split(line).collect();
            if line.is_empty() || line.starts_with(['#', '%']) {
                heading.declared(line);
            } else if fields.len() >= 2 && heading.ends_of(&names, &fields) {
                // Comments before the first edge need not be read again, but the byte-order mark
                // and the header must not.
                heading.start = at as u64;
                if let Some(attributes) = attributes.filter(|_| fields.len() == 2) {
                    heading.attributes = true;
                    heading.weight = attributes.contains("weight").then_some(2);
                    return Ok(heading);
                }
                return heading.with_fields(path, number, fields.len(), names);
            } else if names.is_none() && fields.len() >= 2 && !fields.iter().any(is_number) {
                let mut fields = fields;
                if matches!(head[at], b',' | b';' | b'\t' | b'|') {
                    // A column without a name: the index that pandas writes first.
                    fields.insert(0, UNNAMED);
                }
                heading.ends = named_ends(&fields).ok_or_else(|| unclear_names(path, number))?;
                names = Some(fields.iter().map(|field| (*field).to_owned()).collect());
            } else {
                return Err(not_an_edge(path, number, line));
            }
            at = end + 1;
        }
        // No edges are a graph only where nodes are declared.
        match heading.nodes {
            Some(_) => Ok(Heading { start: head.len() as u64, ..heading }),
            None => Err(not_an_edge(path, number, "")),
        }
    }

    fn with_fields(
        mut self,
        path: &Path,
        line: u64,
        fields: usize,
        names: Option<Vec<String>>,
    ) -> Result<Self> {
        self.fields = fields;
        match names {
            None if fields > 3 => {
                let problem = format!(
                    "{fields} fields and no header; source, target, perhaps a weight would be right"
                );
                return Err(Error::file_at(path, Place::Line(line), problem));
            }
            None => self.weight = (fields == 3).then_some(2),
            Some(names) if names.len() != fields => {
                let problem = format!(
                    "{fields} fields under a header of {}; as many would be right",
                    names.len()
                );
                return Err(Error::file_at(path, Place::Line(line), problem));
            }
            Some(names) => {
                let read = |at: &usize| self.ends.contains(at);
                let is_weight = |name: &String| is_one_of(name, WEIGHT_NAMES);
                let weight = names.iter().enumerate().find(|(at, n)| !read(at) && is_weight(n));
                self.weight = weight.map(|(at, _)| at);
                let unread = |(at, _): &(usize, String)| !read(at) && Some(*at) != self.weight;
                self.unread = names
                    .iter()
                    .cloned()
                    .enumerate()
                    .filter(unread)
                    .map(|(_, name)| name)
                    .collect();
            }
        }
        Ok(self)
    }

    /// Whether a line has node numbers where source and target are: it is the first edge.
    fn ends_of(&self, names: &Option<Vec<String>>, fields: &[&str]) -> bool {
        let ends = if names.is_some() { self.ends } else { [0, 1] };
        ends.iter().all(|&end| fields.get(end).is_some_and(is_index))
    }

    /// `# Nodes: 81306 Edges: 1342310`, in either case, with or without the colon.
    fn declared(&mut self, comment: &str) {
        let mut words = comment.split([' ', '\t', ':', ',']).filter(|word| !word.is_empty());
        while let Some(word) = words.next() {
            let slot = match word.to_lowercase().as_str() {
                "nodes" => &mut self.nodes,
                "edges" => &mut self.edges,
                _ => continue,
            };
            *slot = words.clone().next().and_then(|count| count.parse().ok()).or(*slot);
        }
    }

    fn layout(&self, bound: u32) -> Layout {
        let (fields, ends, value) = (self.fields, self.ends, self.weight);
        let attributes = self.attributes;
        Layout { fields, ends, value, attributes, ..Layout::pairs(0, [bound; 2]) }
    }
}

/// What a column is called that has no name.
const UNNAMED: &str = "(unnamed)";

/// A line before its `{attributes}`, and those.
fn without_attributes(line: &str) -> (&str, Option<&str>) {
    match line.find('{') {
        Some(at) if line.ends_with('}') => (&line[..at], Some(&line[at..])),
        _ => (line, None),
    }
}

fn split(line: &str) -> impl Iterator<Item = &str> {
    line.split([',', ';', '\t', ' ', '|', '"']).map(str::trim).filter(|field| !field.is_empty())
}

fn is_one_of(name: &str, names: &[&str]) -> bool {
    names.contains(&name.to_lowercase().as_str())
}

/// The fields of source and target: by their names, or the first two where no name is known; `None`
/// where names are known and do not tell.
fn named_ends(names: &[&str]) -> Option<[usize; 2]> {
    let [sources, targets] = [SOURCE_NAMES, TARGET_NAMES].map(|known| {
        let found = names.iter().enumerate().filter(|(_, name)| is_one_of(name, known));
        found.map(|(at, _)| at).collect::<Vec<_>>()
    });
    match (&sources[..], &targets[..]) {
        ([source], [target]) => Some([*source, *target]),
        ([], []) if names.first() == Some(&UNNAMED) && names.len() > 2 => Some([1, 2]),
        ([], []) => Some([0, 1]),
        ([0], []) | ([], [1]) => Some([0, 1]),
        _ => None,
    }
}

fn unclear_names(path: &Path, line: u64) -> Error {
    let problem = "the header does not tell which columns an edge runs between; \
                   'source' and 'target', once each, would";
    Error::file_at(path, Place::Line(line), problem)
}

fn is_number(field: &&str) -> bool {
    field.parse::<f64>().is_ok()
}

fn is_index(field: &&str) -> bool {
    let digits = field.strip_prefix('-').unwrap_or(field).bytes().all(|b| b.is_ascii_digit());
    digits || crate::lines::whole(field.as_bytes()).is_some()
}

fn not_an_edge(path: &Path, line: u64, found: &str) -> Error {
    let is_words = split(found).count() >= 2 && !split(found).any(|field| is_number(&field));
    let found: String = found.chars().take(60).collect();
    let problem = match found.is_empty() {
        true => "no edges; lines of 'source target [weight]' would be right".to_owned(),
        false if is_words => format!(
            "'{found}' is no edge of node numbers; `lacis data convert --edges FILE` takes words"
        ),
        false => format!("'{found}' is no edge; 'source target [weight]' would be right"),
    };
    Error::file_at(path, Place::Line(line.max(1)), problem)
}

/// Reads an edge list.
///
/// # Errors
/// When a line is no edge, or node numbers are so sparse that they cannot be meant as such.
pub fn read(path: &Path, job: &Job<'_>) -> Result<Dataset> {
    let heading = Heading::read(path)?;
    let coo = read_entries(path, heading.start, &heading.layout(u32::MAX), job)?;
    let nodes = node_count(path, &heading, &coo, job)?;
    let lines = coo.len();
    let extent = Extent { n_rows: Some(nodes), n_cols: Some(nodes) };
    let repeats = if heading.weight.is_some() { Repeats::Sum } else { Repeats::Merge };
    let settled = settle(coo, extent, repeats, (&Source::file(path, job), job.threads))?;
    let origin = Origin { notes: notes(&heading, lines, &settled), ..Origin::default() };
    Ok(Dataset::new(crate::stem(path), Graph::new(settled.csr)).with_origin(origin))
}

fn node_count(path: &Path, heading: &Heading, coo: &Coo, job: &Job<'_>) -> Result<usize> {
    let largest = coo.largest().map_or(0, |[row, col]| row.max(col) as usize + 1);
    let declared = heading.nodes.map_or(0, |n| usize::try_from(n).unwrap_or(usize::MAX));
    check_count("nodes", declared, coo.len()).map_err(|problem| Error::file(path, problem))?;
    if largest > declared
        && let Err(problem) = check_count("nodes", largest, coo.len())
    {
        return Err(Error::file_at(path, blamed(path, heading, largest, job), problem));
    }
    // A declared number may be larger, for nodes without edges.
    Ok(largest.max(declared))
}

/// The line of the largest node number: reading again, that number not allowed, stops there.
fn blamed(path: &Path, heading: &Heading, largest: usize, job: &Job<'_>) -> Place {
    match read_entries(path, heading.start, &heading.layout(largest as u32 - 1), job) {
        Err(Error::File { place, .. }) => place,
        _ => Place::Whole,
    }
}

fn notes(heading: &Heading, lines: usize, settled: &Settled) -> Vec<String> {
    let mut notes = Vec::new();
    if !heading.unread.is_empty() {
        notes.push(format!("columns not read: {}", heading.unread.join(", ")));
    }
    if let Some(declared) = heading.edges.filter(|&declared| declared != lines as u64) {
        notes.push(format!("the file declares {declared} edges and has {lines} lines of them"));
    }
    notes.extend(match heading.weight {
        Some(_) => note::summed(settled.n_repeats),
        None => note::merged(settled.n_repeats),
    });
    notes
}

/// Writes the graph as `source target [weight]` lines: a `.csv` under its header, anything else
/// with tabs under a SNAP heading.
///
/// # Errors
/// When writing fails, or the adjacency is not square.
pub fn write(set: &Dataset, path: &Path, out: &mut dyn Write) -> Result<()> {
    let a = set.graph().adjacency();
    if a.n_rows() != a.n_cols() {
        let problem =
            "an edge list has one kind of nodes; .mtx and .npz keep sources and targets apart";
        return Err(Error::file(path, problem));
    }
    let io = |source| Error::io("write", path, source);
    let weighted = a.values().is_some();
    let name = path.file_name().unwrap_or_default().to_string_lossy().to_lowercase();
    let csv = name.contains(".csv");
    let separator = if csv { ',' } else { '\t' };
    // Readers of CSV stumble over comments; only nodes without edges make one necessary.
    let last = (0..a.n_rows()).rev().find(|&i| !a.row(i).is_empty()).max(largest_column(a));
    if !csv || last.map_or(0, |last| last + 1) < a.n_rows() {
        writeln!(out, "# Nodes: {} Edges: {}", a.n_rows(), a.nnz()).map_err(io)?;
    }
    if csv {
        writeln!(out, "source,target{}", if weighted { ",weight" } else { "" }).map_err(io)?;
    }
    for (target, source, weight) in a.entries() {
        match weighted {
            true => writeln!(out, "{source}{separator}{target}{separator}{weight}"),
            false => writeln!(out, "{source}{separator}{target}"),
        }
        .map_err(io)?;
    }
    Ok(())
}

fn largest_column(a: &Csr) -> Option<usize> {
    a.cols().iter().max().map(|&j| j as usize)
}

#[cfg(test)]
mod tests {
    use super::*;
    use lacis_core::Threads;

    fn load(text: &str) -> Result<Dataset> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("e.txt");
        std::fs::write(&path, text).unwrap();
        read(&path, &Job::quiet(&Threads::one()))
    }

    fn edges(text: &str) -> Vec<(usize, usize, f32)> {
        let set = load(text).unwrap();
        set.graph().adjacency().entries().map(|(target, source, w)| (source, target, w)).collect()
    }

    #[test]
    fn snap_comments_declare_nodes_without_edges() {
        let set = load("# Nodes: 5 Edges: 2\n# FromNodeId\tToNodeId\n0\t1\n2\t1\n").unwrap();
        assert_eq!((set.graph().n_nodes(), set.graph().n_edges()), (5, 2));
        assert!(set.origin().notes.is_empty());
        let set = load("# Nodes: 5 Edges: 3\n0\t1\n2\t1\n").unwrap();
        assert_eq!(set.origin().notes, ["the file declares 3 edges and has 2 lines of them"]);
    }

    #[test]
    fn headers_name_the_weight() {
        assert_eq!(edges("src,dst,weight\n0,1,2.5\n"), [(0, 1, 2.5)]);
        assert_eq!(edges("src,dst,time,w\n0,1,99,2.5\n"), [(0, 1, 2.5)]);
        let set = load("src,dst,time\n0,1,99\n").unwrap();
        assert_eq!(set.origin().notes, ["columns not read: time"]);
        assert_eq!(edges("\u{feff}a;b\n0;1\n"), [(0, 1, 1.0)]);
    }

    #[test]
    fn repeats_are_merged_or_summed() {
        assert_eq!(edges("0 1\n0 1\n"), [(0, 1, 1.0)]);
        assert_eq!(edges("0 1 2\n0 1 3\n"), [(0, 1, 5.0)]);
        let set = load("0 1\n0 1\n").unwrap();
        assert_eq!(set.origin().notes, ["1 repeated edge was merged"]);
    }

    #[test]
    fn columns_go_by_their_names() {
        assert_eq!(edges("id,source,target\n0,5,6\n"), [(5, 6, 1.0)]);
        assert_eq!(edges("target,source\n0,1\n"), [(1, 0, 1.0)]);
        assert_eq!(edges("source,weight,target\n0,7.5,1\n"), [(0, 1, 7.5)]);
        assert_eq!(edges("w;to;from\n2;3;4\n"), [(4, 3, 2.0)]);
        assert_eq!(edges("\"src\",\"dst\"\n\"0\",\"1\"\n"), [(0, 1, 1.0)]);
        assert_eq!(edges("person,friend\n0,1\n"), [(0, 1, 1.0)]);
        for unclear in ["weight,source,other\n1,2,3\n", "source,from,target\n1,2,3\n"] {
            assert!(load(unclear).unwrap_err().to_string().contains("line 1: the header"));
        }
    }

    #[test]
    fn what_pandas_numpy_and_networkx_write_by_default() {
        assert_eq!(edges(",source,target\n0,5,6\n1,6,5\n"), [(6, 5, 1.0), (5, 6, 1.0)]);
        assert_eq!(edges("\ta\tb\n0\t5\t6\n"), [(5, 6, 1.0)]);
        assert_eq!(edges(&format!("{:e} {:e}\n", 5.0, 6.0)), [(5, 6, 1.0)]);
        assert_eq!(edges("5.0 6.0 0.5\n"), [(5, 6, 0.5)]);
        assert_eq!(edges("0 1 {}\n1 2 {}\n"), [(0, 1, 1.0), (1, 2, 1.0)]);
        let weighted = "0 1 {'weight': 2.5}\n1 2 {'t': 1, 'weight': 0.5}\n";
        assert_eq!(edges(weighted), [(0, 1, 2.5), (1, 2, 0.5)]);
        let message = |text: &str| load(text).unwrap_err().to_string();
        assert!(message("0 1 {'weight': 2}\n1 2 {}\n").contains("line 2: an edge without"));
        assert!(message("0 1 {}\n1 2\n").contains("line 2: no {attributes}"));
    }

    #[test]
    fn numbers_are_no_header() {
        for text in ["1.5,2.0\n3,4\n", "0.5 1.0 2.5\n0 1 2.5\n"] {
            assert!(load(text).unwrap_err().to_string().contains("line 1"), "{text}");
        }
        assert_eq!(edges("\"0\",\"1\"\n1,2\n").len(), 2);
    }

    #[test]
    fn comments_may_be_long() {
        let comments = "# nothing to see here, and quite a lot of it\n".repeat(5000);
        assert!(comments.len() > 3 * HEAD_BYTES);
        assert!(looks_like_edges(&comments.as_bytes()[..HEAD_BYTES]));
        assert_eq!(edges(&(comments + "0 1\n")), [(0, 1, 1.0)]);
    }

    #[test]
    fn weights_that_add_up_to_infinity_are_refused() {
        assert!(load("0 1 3e38\n0 1 3e38\n").unwrap_err().to_string().contains("inf"));
        let set = load("0 1 1\n0 1 2\n").unwrap();
        assert_eq!(set.origin().notes, ["1 repeated edge was summed"]);
    }

    #[test]
    fn problems_name_the_line() {
        let message = |text: &str| load(text).unwrap_err().to_string();
        assert!(message("0 1\n2 3\n4\n").contains("line 3: 1 fields"));
        assert!(message("0 1\n4 -1\n").contains("line 2: index -1 is negative"));
        assert!(message("a b\nc d\n").contains("line 2: 'c d' is no edge"));
        assert!(message("0 1 2 3\n").contains("line 1: 4 fields and no header"));
        assert!(message("# only\nx\n").contains("line 2"));
        let sparse = message("0 1\n2 1\n4000000000 3\n");
        assert!(
            sparse.contains("line 3: 4000000001 nodes are not believed of 3 entries"),
            "{sparse}"
        );
        assert!(message("0 4294967295\n").contains("beyond the largest"));
    }

    #[test]
    fn an_empty_list_is_an_empty_graph() {
        assert_eq!(load("# Nodes: 4\n").unwrap().graph().n_nodes(), 4);
        assert_eq!(load("# Nodes: 0 Edges: 0\n").unwrap().graph().n_nodes(), 0);
        // Nobody says that there are no edges here.
        assert!(load("").is_err() && load("# a comment\n").is_err());
    }
}
