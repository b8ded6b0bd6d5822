//! The archives of heterophilous-graphs: roman-empire, amazon-ratings, minesweeper, tolokers,
//! questions, and the filtered chameleon and squirrel.
//!
//! ```text
//!  node_features  n × f      node_labels  n      edges  E × 2, each undirected edge once
//!  train_masks, val_masks, test_masks   S × n, a row for each split
//! ```

use std::path::Path;

use lacis_core::{Dataset, Dense, Features, Origin, Result};

use crate::Job;
use crate::npz::Npz;
use crate::parts::{EdgeList, Ways, masks, numbered_classes, split};

const MASKS: [&str; 3] = ["train_masks", "val_masks", "test_masks"];

/// Whether an archive with these arrays is such a graph.
pub fn recognises(names: &[String]) -> bool {
    let wanted = ["node_features", "node_labels", "edges"];
    wanted.iter().all(|wanted| names.iter().any(|name| name == wanted))
}

/// Reads a graph with its splits.
///
/// # Errors
/// When the arrays do not fit together, or a number is not finite.
pub fn read(path: &Path, job: &Job<'_>) -> Result<Dataset> {
    let mut npz = Npz::open(path, job)?;
    let x = npz.with("node_features", |npy| npy.finite())?;
    let &[n, width] = &x.shape[..] else {
        let problem = format!("features of shape {:?}; nodes × features is right", x.shape);
        return Err(npz.source("node_features").problem(problem));
    };
    let labels: Vec<i64> = npz.vector::<i32>("node_labels")?.iter().map(|&c| c.into()).collect();
    let edges = edges(&mut npz, n)?;
    let (graph, notes) = edges.graph(n, Ways::Both, &npz.source("edges"), job.threads)?;
    let fits = |set: Result<Dataset>, key| set.map_err(|e| npz_blame(path, key, e, job));
    let dense = Features::Dense(Dense::new(x.data, n, width, width)?);
    let set = Dataset::new(crate::stem(path), graph)
        .with_origin(Origin { notes, ..Origin::default() })
        .with_features(dense);
    let set = fits(set, "node_features")?.with_labels(numbered_classes(&labels)?);
    let mut set = fits(set, "node_labels")?;
    if MASKS.iter().all(|key| npz.has(key)) {
        for (number, parts) in masks(&mut npz, MASKS, n)?.into_iter().enumerate() {
            let split = set.with_split(split(format!("split-{number}"), parts));
            set = fits(split, "train_masks")?;
        }
    }
    Ok(set)
}

fn npz_blame(path: &Path, key: &str, error: lacis_core::Error, job: &Job<'_>) -> lacis_core::Error {
    crate::npy::Source::file(path, job).with_member(key).blame(error)
}

fn edges(npz: &mut Npz<'_>, n: usize) -> Result<EdgeList> {
    let pairs = npz.numbers::<u32>("edges")?;
    if !matches!(pairs.shape[..], [_, 2]) {
        let problem = format!("edges of shape {:?}; two nodes a row is right", pairs.shape);
        return Err(npz.source("edges").problem(problem));
    }
    if let Some(at) = pairs.data.iter().position(|&node| node as usize >= n) {
        let problem = format!("node {} of edge {} is outside 0..{n}", pairs.data[at], at / 2);
        return Err(npz.source("edges").problem(problem));
    }
    let column = |at: usize| pairs.data.iter().skip(at).step_by(2).copied().collect();
    Ok(EdgeList { sources: column(0), targets: column(1) })
}
