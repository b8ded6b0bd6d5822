//! Reddit as GraphSAGE's authors and DGL keep it: `reddit_data.npz` and `reddit_graph.npz`.
//!
//! ```text
//!  data    feature n × f, label n, node_types n: 1 trains, 2 chooses, 3 judges
//!  graph   the adjacency, a SciPy matrix
//! ```

use std::path::Path;

use lacis_core::{Dataset, Dense, Features, Labels, Origin, Result};

use crate::Job;
use crate::npy::Source;
use crate::npz::{self, Npz};
use crate::parts::{folder_of, required, split};

const DATA: &str = "reddit_data.npz";
const GRAPH: &str = "reddit_graph.npz";

/// Whether a path is a folder of the two files, or either of them.
pub fn recognises(path: &Path) -> bool {
    let named = path.file_name().is_some_and(|name| name == DATA || name == GRAPH);
    let folder = folder_of(path);
    (named || path.is_dir()) && folder.join(DATA).is_file() && folder.join(GRAPH).is_file()
}

/// Reads the set in a folder.
///
/// # Errors
/// When a file is missing or damaged, or the files do not fit together.
pub fn read(path: &Path, job: &Job<'_>) -> Result<Dataset> {
    let folder = folder_of(path);
    let graph = npz::read_scipy(&required(&folder, GRAPH)?, job)?;
    let origin = Origin { notes: graph.origin().notes.clone(), ..Origin::default() };
    let data = required(&folder, DATA)?;
    let mut npz = Npz::open(&data, job)?;
    let x = npz.with("feature", |npy| npy.finite())?;
    let &[n, width] = &x.shape[..] else {
        let problem = format!("features of shape {:?}; nodes × features is right", x.shape);
        return Err(npz.source("feature").problem(problem));
    };
    let labels = Labels::classes(npz.vector::<i32>("label")?, Vec::new());
    let mut parts = <[Vec<u32>; 3]>::default();
    for (node, &kind) in (0..).zip(npz.vector::<u32>("node_types")?.iter()) {
        let part = (kind as usize).checked_sub(1).and_then(|at| parts.get_mut(at));
        let bad = || npz.source("node_types").problem(format!("{kind}; 1, 2 or 3 would be right"));
        part.ok_or_else(bad)?.push(node);
    }
    let build = || {
        Dataset::new("reddit", graph.graph().clone())
            .with_origin(origin)
            .with_features(Features::Dense(Dense::new(x.data, n, width, width)?))?
            .with_labels(labels?)?
            .with_split(split("canonical".to_owned(), parts))
    };
    build().map_err(|error| Source::file(&data, job).blame(error))
}
