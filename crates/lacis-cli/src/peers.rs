//! Other libraries, in a Python process that speaks JSON lines.
//!
//! ```text
//!  us                                              peers.py
//!  {"do":"hello","threads":2,"folder":…}      →
//!                                             ←    {"versions":{"python":…,"torch":…}}
//!  {"do":"prepare","engine":"torch","op":…}   →
//!                                             ←    {"kernel":…,"seconds":…,"rows":[[…]]}
//!  {"do":"run","warm_s":0.01,"repeats":3}    →
//!                                             ←    {"seconds":…}          or {"error":…}
//! ```
//! The graph goes over as `.npy` files; dense operands are a function of their place that both
//! sides know (`lacis::ops::numbers`).

use std::collections::BTreeMap;

use lacis::{Csr, Dense, Error, Result};
use serde::Serialize;
use serde_json::{Value, json};

use crate::args::Contest;
use crate::out::Out;
use crate::partner::{Folder, Partner};

const DRIVER: &str = include_str!("peers.py");

/// What a peer is asked to compute.
#[derive(Serialize)]
pub struct Task<'a> {
    pub op: &'a str,
    pub k: usize,
    pub n: usize,
    pub reduce: &'a str,
    pub weighted: bool,
    pub dtype: &'a str,
    pub axis: u8,
    /// The share of the dense operand that is zero.
    pub sparsity: f64,
    /// How often the same index applies, one after another: the middle axis of a cube.
    pub blocks: usize,
    /// The rows of the result to show.
    pub rows: &'a [usize],
}

/// A peer that has computed its task once.
pub struct Ready {
    pub kernel: String,
    pub seconds: f64,
    pub rows: Dense<f64>,
}

/// The libraries that were asked for and are there.
pub struct Peers {
    /// Engine and the place of its process.
    engines: Vec<(String, usize)>,
    processes: Vec<Partner>,
    versions: BTreeMap<String, Value>,
    folder: Option<Folder>,
}

impl Peers {
    /// Starts what was asked for. What is missing is said, and the rest goes on.
    pub fn start(args: &Contest, graph: &Csr, threads: usize, out: &Out) -> Result<Self> {
        let mut peers = Peers {
            engines: Vec::new(),
            processes: Vec::new(),
            versions: BTreeMap::new(),
            folder: None,
        };
        if args.peers.is_empty() {
            return Ok(peers);
        }
        let folder = Folder::make()?;
        folder.put_matrix(graph)?;
        // Huge pages are a setting of the whole process.
        for thp in [false, true] {
            let mut names: Vec<&String> =
                args.peers.iter().filter(|name| name.ends_with("+thp") == thp).collect();
            names.dedup();
            if names.is_empty() {
                continue;
            }
            match greeted(&args.python, &folder, threads, thp) {
                Err(why) => out.note(format_args!("no peers: {why}")),
                Ok((process, versions)) => {
                    peers.versions.extend(versions);
                    let place = peers.processes.len();
                    peers.engines.extend(names.into_iter().map(|name| (name.clone(), place)));
                    peers.processes.push(process);
                }
            }
        }
        peers.folder = Some(folder);
        Ok(peers)
    }

    /// Hands over another graph.
    pub fn set_graph(&mut self, graph: &Csr) -> Result<()> {
        let Some(folder) = &self.folder else { return Ok(()) };
        folder.put_matrix(graph)?;
        let order = json!({ "do": "graph", "folder": folder.path().to_string_lossy() });
        for process in &mut self.processes {
            process.ask(&order).map_err(|why| Error::argument("a peer", why))?;
        }
        Ok(())
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.engines.len()
    }

    pub fn name(&self, peer: usize) -> &str {
        &self.engines[peer].0
    }

    /// The libraries' versions, for the record.
    pub fn versions(&self) -> &BTreeMap<String, Value> {
        &self.versions
    }

    /// Lets a peer make its operands and compute once, or says why it cannot.
    pub fn prepare(&mut self, peer: usize, task: &Task<'_>) -> std::result::Result<Ready, String> {
        let (engine, process) = &self.engines[peer];
        let mut order = json!({ "do": "prepare", "engine": engine.trim_end_matches("+thp") });
        if let (Some(order), Ok(Value::Object(task))) =
            (order.as_object_mut(), serde_json::to_value(task))
        {
            order.extend(task);
        }
        order["slot"] = peer.into();
        let answer = self.processes[*process].ask(&order)?;
        let rows: Vec<Vec<Option<f64>>> =
            serde_json::from_value(answer["rows"].clone()).map_err(|e| e.to_string())?;
        let width = rows.first().map_or(0, Vec::len);
        let at = |i: usize, j: usize| rows[i].get(j).copied().flatten().unwrap_or(f64::NAN);
        Ok(Ready {
            kernel: answer["kernel"].as_str().unwrap_or_default().to_owned(),
            seconds: answer["seconds"].as_f64().unwrap_or(1.0),
            rows: Dense::from_fn(rows.len(), width, at),
        })
    }

    /// Seconds of one run of a peer's last task, the mean of `repeats` after `warm_s` of others.
    pub fn seconds(&mut self, peer: usize, warm_s: f64, repeats: usize) -> Result<f64> {
        let (engine, process) = &self.engines[peer];
        let order = json!({
            "do": "run", "slot": peer, "warm_s": warm_s, "repeats": repeats,
        });
        let answer = self.processes[*process].ask(&order);
        let seconds = answer.and_then(|a| a["seconds"].as_f64().ok_or("no time".to_owned()));
        seconds.map_err(|why| Error::argument(engine.clone(), why))
    }
}

/// A Python that has read the graph, and the versions of what it has.
fn greeted(
    python: &str,
    folder: &Folder,
    threads: usize,
    thp: bool,
) -> std::result::Result<(Partner, BTreeMap<String, Value>), String> {
    let mut command = Partner::python(python, DRIVER, threads);
    if thp {
        command.env("THP_MEM_ALLOC_ENABLE", "1");
    }
    let process = Partner::start(command);
    let mut process = process.map_err(|why| format!("{why}; --python PATH names another"))?;
    let folder = folder.path().to_string_lossy();
    let answer = process.ask(&json!({ "do": "hello", "threads": threads, "folder": folder }))?;
    let versions = serde_json::from_value(answer["versions"].clone()).unwrap_or_default();
    Ok((process, versions))
}
