//! GraphSAINT's folders: Flickr, Reddit, Yelp, AmazonProducts, PPI.
//!
//! ```text
//!  adj_full.npz     the adjacency, a SciPy matrix      feats.npy       n × f numbers
//!  class_map.json   {"node": class} or {"node": [0, 1, …]}, a truth value a label
//!  role.json        {"tr": [node, …], "va": […], "te": […]}
//! ```

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use lacis_core::{Dataset, Dense, Error, Features, Labels, Origin, Place, Result};
use serde::Deserialize;

use crate::input::Input;
use crate::npy::Source;
use crate::parts::{SparseRows, folder_name, folder_of, numbered_classes, required, split};
use crate::{Job, npy, npz};

const ADJACENCY: &str = "adj_full.npz";

/// Whether a path is such a folder, or its adjacency.
pub fn recognises(path: &Path) -> bool {
    let named = path.is_dir() || path.file_name().is_some_and(|name| name == ADJACENCY);
    let folder = folder_of(path);
    named && ["role.json", "class_map.json", ADJACENCY].iter().all(|f| folder.join(f).is_file())
}

/// One class of a node, or one truth value a label.
#[derive(Deserialize)]
#[serde(untagged)]
enum Class {
    One(i64),
    Many(Vec<f32>),
}

#[derive(Deserialize)]
struct Roles {
    tr: Vec<u32>,
    va: Vec<u32>,
    te: Vec<u32>,
}

/// Reads the set in a folder.
///
/// # Errors
/// When a file is missing or damaged, or the files do not fit together.
pub fn read(path: &Path, job: &Job<'_>) -> Result<Dataset> {
    let folder = folder_of(path);
    let graph = npz::read_scipy(&required(&folder, ADJACENCY)?, job)?;
    let origin = Origin { notes: graph.origin().notes.clone(), ..Origin::default() };
    let mut set = Dataset::new(folder_name(&folder), graph.graph().clone()).with_origin(origin);
    let blame = |file: PathBuf| move |error| Source::file(&file, job).blame(error);
    let feats = folder.join("feats.npy");
    if feats.is_file() {
        let array = npy::read_finite(&feats, job)?;
        let &[n, width] = &array.shape[..] else {
            let problem = format!("has shape {:?}; nodes × features is right", array.shape);
            return Err(Error::file(feats, problem));
        };
        let x = Features::Dense(Dense::new(array.data, n, width, width)?);
        set = set.with_features(x).map_err(blame(feats))?;
    }
    let (classes, roles) = (required(&folder, "class_map.json")?, required(&folder, "role.json")?);
    let labels = labels(&classes, set.graph().n_nodes(), job)?;
    set = set.with_labels(labels).map_err(blame(classes))?;
    let parts: Roles = json(&roles, job)?;
    let parts = split("canonical".to_owned(), [parts.tr, parts.va, parts.te]);
    set.with_split(parts).map_err(blame(roles))
}

fn json<T: for<'a> Deserialize<'a>>(path: &Path, job: &Job<'_>) -> Result<T> {
    crate::parts::tick(job)?;
    let reader = std::io::BufReader::with_capacity(1 << 18, Input::open(path)?.unpacked(path)?);
    serde_json::from_reader(reader)
        .map_err(|e| Error::file_at(path, Place::Line(e.line() as u64), e.to_string()))
}

fn labels(path: &Path, n: usize, job: &Job<'_>) -> Result<Labels> {
    let map: HashMap<u32, Class> = json(path, job)?;
    let bad = |node: usize, what: &str| Error::file(path, format!("node {node} has {what}"));
    let class = |node: usize| map.get(&(node as u32)).ok_or_else(|| bad(node, "no class"));
    if matches!(map.values().next(), Some(Class::One(_))) {
        let of = (0..n).map(|node| match class(node)? {
            Class::One(class) => Ok(*class),
            Class::Many(_) => Err(bad(node, "a list, others one class")),
        });
        return numbered_classes(&of.collect::<Result<Vec<_>>>()?);
    }
    let (mut rows, mut width) = (SparseRows::new(), None);
    for node in 0..n {
        let Class::Many(list) = class(node)? else {
            return Err(bad(node, "one class, others a list"));
        };
        if *width.get_or_insert(list.len()) != list.len() {
            return Err(bad(node, "more or fewer labels than others"));
        }
        (0..).zip(list).filter(|(_, set)| **set != 0.0).for_each(|(at, _)| rows.push(at, 1.0));
        rows.end_row();
    }
    let source = Source::file(path, job);
    Ok(Labels::Multi(rows.into_csr(width.unwrap_or(0), &source, job.threads)?))
}
