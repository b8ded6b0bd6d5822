//! The text form of LINQS: `NAME.content` and `NAME.cites`, as Cora and CiteSeer came first.
//!
//! ```text
//!  content   id <TAB> feature … feature <TAB> class      one node a line
//!  cites     cited id <TAB> citing id                    one edge a line
//! ```
//! Edges run both ways, as everybody uses them; those to papers without content are left out.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use lacis_core::{Dataset, Features, NodeIds, Origin, Result};

use crate::lines::{Lines, MAX_LINE_BYTES, fields, is_separator, number, shown};
use crate::npy::Source;
use crate::parts::{EdgeList, SparseRows, Ways, folder_of, named_classes, names_in, unpacked_name};
use crate::pieces::Text;
use crate::{Job, note};

/// The two files of the set that a path leads to: a folder that holds one, or either file.
pub fn find(path: &Path) -> Option<[PathBuf; 2]> {
    let folder = folder_of(path);
    let names = names_in(&folder);
    let part = |name: &str, part| unpacked_name(name).strip_suffix(part).map(str::to_owned);
    let own = path.is_file().then(|| path.file_name()?.to_str()).flatten();
    if own.is_some_and(|own| part(own, ".content").or(part(own, ".cites")).is_none()) {
        return None;
    }
    let mut sets = names.iter().filter_map(|content| {
        let set = part(content, ".content")?;
        let cites = names.iter().find(|name| part(name, ".cites").as_ref() == Some(&set))?;
        let named = own.is_none_or(|own| own == content || own == cites);
        named.then(|| [folder.join(content), folder.join(cites)])
    });
    sets.next()
}

/// Reads the set that a path leads to.
///
/// # Errors
/// When a file is missing or damaged, or nodes have features of different numbers.
pub fn read(path: &Path, job: &Job<'_>) -> Result<Dataset> {
    let Some([content, cites]) = find(path) else {
        return Err(lacis_core::Error::file(path, "there are no NAME.content and NAME.cites here"));
    };
    let nodes = Nodes::read(&content, job)?;
    let (graph, notes) = nodes.edges(&cites, job)?;
    let classes: Vec<Option<&str>> = nodes.classes.iter().map(|class| Some(&**class)).collect();
    let labels = named_classes(&classes)?;
    let ids: NodeIds = nodes.ids.iter().collect();
    let source = Source::file(&content, job);
    let width = nodes.width;
    let features = nodes.features.into_csr(width, &source, job.threads)?;
    Dataset::new(crate::stem(&content), graph)
        .with_origin(Origin { notes, ..Origin::default() })
        .with_ids(ids)?
        .with_features(Features::Sparse(features))?
        .with_labels(labels)
}

#[derive(Default)]
struct Nodes {
    ids: Vec<String>,
    number_of: HashMap<String, u32>,
    classes: Vec<String>,
    features: SparseRows,
    width: usize,
}

impl Nodes {
    /// Piece by piece on all threads; where a line is wrong, once more in order, to say which.
    fn read(content: &Path, job: &Job<'_>) -> Result<Self> {
        match Nodes::read_pieces(content, job) {
            Some(nodes) => Ok(nodes),
            None => Nodes::read_lines(content, job),
        }
    }

    fn read_pieces(content: &Path, job: &Job<'_>) -> Option<Self> {
        let text = Text::open(content, 0, MAX_LINE_BYTES).ok()?;
        let parts = text.map(job, |part| Ok(Nodes::of(part.bytes))).ok()?;
        let mut all = Nodes::default();
        for part in parts {
            let part = part?;
            if all.ids.is_empty() {
                all.width = part.width;
            }
            if !part.ids.is_empty() && part.width != all.width {
                return None;
            }
            all.ids.extend(part.ids);
            all.classes.extend(part.classes);
            all.features.append(&part.features);
        }
        all.number_of = all.ids.iter().cloned().zip(0..).collect();
        (!all.ids.is_empty() && all.number_of.len() == all.ids.len()).then_some(all)
    }

    /// The nodes of some lines, not numbered yet; `None` where a line is wrong.
    fn of(bytes: &[u8]) -> Option<Self> {
        let mut nodes = Nodes::default();
        let lines = bytes.split(|&b| b == b'\n').map(<[u8]>::trim_ascii);
        for line in lines.filter(|line| !line.is_empty()) {
            // A byte-order mark is not part of the first id.
            if line.starts_with(b"\xef\xbb\xbf") {
                return None;
            }
            nodes.add(line).ok()?;
        }
        Some(nodes)
    }

    fn read_lines(content: &Path, job: &Job<'_>) -> Result<Self> {
        let mut lines = Lines::open(content, job)?;
        let mut nodes = Nodes::default();
        while let Some(line) = lines.next_full()? {
            if let Err(problem) = nodes.add(line).and_then(|()| nodes.number_last()) {
                return Err(lines.problem(problem));
            }
        }
        if nodes.ids.is_empty() {
            return Err(lines.problem("no nodes; lines of 'id features class' would be right"));
        }
        Ok(nodes)
    }

    fn add(&mut self, line: &[u8]) -> std::result::Result<(), String> {
        let text = |field: &[u8]| String::from_utf8_lossy(field).into_owned();
        let (id, width, class) = match plain_features(line, &mut self.features) {
            Some(found) => found,
            None => {
                self.features.begin_again();
                features_of(line, &mut self.features)?
            }
        };
        self.features.end_row();
        if !self.ids.is_empty() && width != self.width {
            return Err(format!("{width} features; {} as before would be right", self.width));
        }
        self.width = width;
        self.classes.push(text(class));
        self.ids.push(text(id));
        Ok(())
    }

    fn number_last(&mut self) -> std::result::Result<(), String> {
        let id = &self.ids[self.ids.len() - 1];
        match self.number_of.insert(id.clone(), self.ids.len() as u32 - 1) {
            Some(_) => Err(format!("node '{}' is here for the second time", shown(id.as_bytes()))),
            None => Ok(()),
        }
    }

    fn edges(&self, cites: &Path, job: &Job<'_>) -> Result<(lacis_core::Graph, Vec<String>)> {
        let mut lines = Lines::open(cites, job)?;
        let (mut edges, mut unknown, mut loops) = (EdgeList::default(), 0, 0);
        while let Some(line) = lines.next_full()? {
            let found = {
                let mut ends = fields(line);
                [ends.next(), ends.next(), ends.next()]
            };
            let [Some(cited), Some(citing), None] = found else {
                let found = fields(line).count();
                let problem = format!("{found} fields; 'cited citing' would be right");
                return Err(lines.problem(problem));
            };
            let [citing, cited] =
                [citing, cited].map(|id| self.number_of.get(&*String::from_utf8_lossy(id)));
            match (citing, cited) {
                (Some(citing), Some(cited)) if citing == cited => loops += 1,
                (Some(&citing), Some(&cited)) => edges.push(citing, cited),
                _ => unknown += 1,
            }
        }
        let source = Source::file(cites, job);
        let (graph, mut notes) = edges.graph(self.ids.len(), Ways::Both, &source, job.threads)?;
        notes.extend(note::counted(loops, "loop was left out", "loops were left out"));
        let many = "edges to nodes without content were left out";
        notes.extend(note::counted(unknown, "edge to a node without content was left out", many));
        Ok((graph, notes))
    }
}

/// A line's id, how many features it has, and its class.
type Found<'l> = (&'l [u8], usize, &'l [u8]);

/// Adds the features of a line.
fn features_of<'l>(
    line: &'l [u8],
    features: &mut SparseRows,
) -> std::result::Result<Found<'l>, String> {
    let mut fields = fields(line);
    let id = fields.next().unwrap_or_default();
    let (mut width, mut last) = (0, None);
    for field in fields {
        if let Some(feature) = last.replace(field) {
            let value =
                number(feature).ok_or_else(|| format!("'{}' is no feature", shown(feature)))?;
            if value != 0.0 {
                features.push(width, value);
            }
            width += 1;
        }
    }
    let class = last.ok_or("one field; 'id features class' would be right")?;
    Ok((id, width as usize, class))
}

/// The same of the commonest lines, all of whose features are single digits after a tab, four of
/// them at a time; `None`, perhaps with some features added, of any other.
fn plain_features<'l>(line: &'l [u8], features: &mut SparseRows) -> Option<Found<'l>> {
    // Digits and tabs in turn, as 0 to 9 and 0.
    const FOUR: u64 = u64::from_le_bytes(*b"0\t0\t0\t0\t");
    const EACH: u64 = 0x0001_0001_0001_0001;
    let start = memchr::memchr(b'\t', line)? + 1;
    let end = memchr::memrchr(b'\t', line)? + 1;
    let (id, class) = (&line[..start - 1], &line[end..]);
    let odd = |field: &[u8]| field.is_empty() || field.iter().any(|&b| is_separator(b));
    if odd(id) || odd(class) {
        return None;
    }
    let (fours, rest) = line[start..end].as_chunks::<8>();
    for (at, four) in (0..).step_by(4).zip(fours) {
        let mut digits = u64::from_le_bytes(*four) ^ FOUR;
        if (digits | digits.wrapping_add(6 * EACH)) & !(0xf * EACH) != 0 {
            return None;
        }
        while digits != 0 {
            let lane = digits.trailing_zeros() / 16;
            features.push(at + lane, (digits >> (16 * lane) & 0xf) as f32);
            digits &= !(0xf << (16 * lane));
        }
    }
    for (at, pair) in (4 * fours.len() as u32..).zip(rest.chunks(2)) {
        let [digit @ b'0'..=b'9', b'\t'] = pair else { return None };
        if *digit != b'0' {
            features.push(at, f32::from(digit - b'0'));
        }
    }
    Some((id, (end - start) / 2, class))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn four_features_at_a_time_are_those_of_one_at_a_time() {
        let digits = |from: usize, n: usize| -> String {
            (from..from + n).map(|i| format!("{}\t", i * i % 11 % 10)).collect()
        };
        for n in 0..40 {
            let line = format!("id{n}\t{}class", digits(n, n));
            let (mut fast, mut slow) = (SparseRows::new(), SparseRows::new());
            let found = plain_features(line.as_bytes(), &mut fast).unwrap();
            assert_eq!(found, features_of(line.as_bytes(), &mut slow).unwrap(), "{line}");
            assert_eq!(found.1, n);
            assert_eq!(fast, slow, "{line}");
        }
        let odd = ["a 0\t1\tc", "a\t10\t1\tc", "a\t:\tc", "a\t0 1\tc", "a\t\t1\tc", "a\t1\t"];
        for line in odd {
            assert_eq!(plain_features(line.as_bytes(), &mut SparseRows::new()), None, "{line}");
        }
    }
}
