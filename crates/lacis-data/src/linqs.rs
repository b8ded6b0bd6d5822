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

use crate::lines::{Lines, fields, number, shown};
use crate::npy::Source;
use crate::parts::{EdgeList, SparseRows, Ways, folder_of, named_classes, names_in, unpacked_name};
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

struct Nodes {
    ids: Vec<String>,
    number_of: HashMap<String, u32>,
    classes: Vec<String>,
    features: SparseRows,
    width: usize,
}

impl Nodes {
    fn read(content: &Path, job: &Job<'_>) -> Result<Self> {
        let mut lines = Lines::open(content, job)?;
        let mut nodes = Nodes {
            ids: Vec::new(),
            number_of: HashMap::new(),
            classes: Vec::new(),
            features: SparseRows::new(),
            width: 0,
        };
        while let Some(line) = lines.next_full()? {
            if let Err(problem) = nodes.add(line) {
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
        let mut fields = fields(line);
        let id = text(fields.next().unwrap_or_default());
        let (mut width, mut last) = (0, None);
        for field in fields {
            if let Some(feature) = last.replace(field) {
                let value =
                    number(feature).ok_or_else(|| format!("'{}' is no feature", shown(feature)))?;
                if value != 0.0 {
                    self.features.push(width, value);
                }
                width += 1;
            }
        }
        let class = last.ok_or("one field; 'id features class' would be right")?;
        self.features.end_row();
        if !self.ids.is_empty() && width as usize != self.width {
            return Err(format!("{width} features; {} as before would be right", self.width));
        }
        self.width = width as usize;
        self.classes.push(text(class));
        if self.number_of.insert(id.clone(), self.ids.len() as u32).is_some() {
            return Err(format!("node '{}' is here for the second time", shown(id.as_bytes())));
        }
        self.ids.push(id);
        Ok(())
    }

    fn edges(&self, cites: &Path, job: &Job<'_>) -> Result<(lacis_core::Graph, Vec<String>)> {
        let mut lines = Lines::open(cites, job)?;
        let (mut edges, mut unknown, mut loops) = (EdgeList::default(), 0, 0);
        while let Some(line) = lines.next_full()? {
            let ends: Vec<String> =
                fields(line).map(|id| String::from_utf8_lossy(id).into_owned()).collect();
            let [cited, citing] = &ends[..] else {
                let problem = format!("{} fields; 'cited citing' would be right", ends.len());
                return Err(lines.problem(problem));
            };
            match (self.number_of.get(citing), self.number_of.get(cited)) {
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
