//! Other libraries, in a Python process that speaks JSON lines.
//!
//! ```text
//!  us                                              peers.py
//!  {"do":"hello","threads":2,"folder":…}      →
//!                                             ←    {"versions":{"python":…,"torch":…}}
//!  {"do":"prepare","engine":"torch","op":…}   →
//!                                             ←    {"kernel":…,"seconds":…,"rows":[[…]]}
//!  {"do":"run","repeats":3}                   →
//!                                             ←    {"seconds":…}          or {"error":…}
//! ```
//! The graph goes over as `.npy` files; dense operands are a function of their place that both
//! sides know (`lacis::ops::numbers`).

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use lacis::data::npy;
use lacis::{Csr, Dense, Error, Result};
use serde::Serialize;
use serde_json::{Value, json};

use crate::args::Contest;
use crate::out::Out;

const DRIVER: &str = include_str!("peers.py");
/// After their turn, other libraries' threads look for more work for a while.
const SETTLE: Duration = Duration::from_millis(3);

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
    processes: Vec<Process>,
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
        hand_over(graph, &folder.0)?;
        // Huge pages are a setting of the whole process.
        for thp in [false, true] {
            let mut names: Vec<&String> =
                args.peers.iter().filter(|name| name.ends_with("+thp") == thp).collect();
            names.dedup();
            if names.is_empty() {
                continue;
            }
            match Process::start(&args.python, &folder.0, threads, thp) {
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

    /// Seconds of one run of a peer's last task, the mean of `repeats`.
    pub fn seconds(&mut self, peer: usize, repeats: usize) -> Result<f64> {
        let (engine, process) = &self.engines[peer];
        let order = json!({ "do": "run", "slot": peer, "repeats": repeats });
        let answer = self.processes[*process].ask(&order);
        std::thread::sleep(SETTLE);
        let seconds = answer.and_then(|a| a["seconds"].as_f64().ok_or("no time".to_owned()));
        seconds.map_err(|why| Error::argument(engine.clone(), why))
    }
}

/// One Python.
struct Process {
    child: Child,
    to: Option<ChildStdin>,
    from: BufReader<ChildStdout>,
}

impl Process {
    fn start(
        python: &str,
        folder: &Path,
        threads: usize,
        thp: bool,
    ) -> std::result::Result<(Self, BTreeMap<String, Value>), String> {
        let mut command = Command::new(python);
        command.args(["-u", "-c", DRIVER]).stdin(Stdio::piped()).stdout(Stdio::piped());
        for name in ["OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"] {
            command.env(name, threads.to_string());
        }
        if thp {
            command.env("THP_MEM_ALLOC_ENABLE", "1");
        }
        let mut child = command.spawn().map_err(|error| {
            format!("cannot start {python}: {error}; --python PATH names another")
        })?;
        let (Some(to), Some(from)) = (child.stdin.take(), child.stdout.take()) else {
            return Err("no pipes".to_owned());
        };
        let mut process = Process { child, to: Some(to), from: BufReader::new(from) };
        let hello =
            json!({ "do": "hello", "threads": threads, "folder": folder.to_string_lossy() });
        let answer = process.ask(&hello)?;
        let versions = serde_json::from_value(answer["versions"].clone()).unwrap_or_default();
        Ok((process, versions))
    }

    /// One line there, one line back.
    fn ask(&mut self, order: &Value) -> std::result::Result<Value, String> {
        let gone = || "the Python process ended".to_owned();
        let to = self.to.as_mut().ok_or_else(gone)?;
        writeln!(to, "{order}").and_then(|()| to.flush()).map_err(|_| gone())?;
        let mut line = String::new();
        self.from.read_line(&mut line).map_err(|_| gone())?;
        let answer: Value = serde_json::from_str(&line).map_err(|_| gone())?;
        match answer["error"].as_str() {
            Some(error) => Err(error.to_owned()),
            None => Ok(answer),
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // The end of its input ends it; one that computes still is not waited for.
        self.to = None;
        for _ in 0..50 {
            if matches!(self.child.try_wait(), Ok(Some(_))) {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A folder that goes when this does.
struct Folder(PathBuf);

impl Folder {
    fn make() -> Result<Self> {
        let place = std::env::temp_dir();
        for attempt in 0..100 {
            let path = place.join(format!("lacis-peers-{}-{attempt}", std::process::id()));
            match fs::create_dir(&path) {
                Ok(()) => return Ok(Folder(path)),
                Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(Error::io("make", path, error)),
            }
        }
        Err(Error::file(place, "is full of folders of the same name"))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Writes the graph where the peers look for it.
fn hand_over(graph: &Csr, folder: &Path) -> Result<()> {
    let ptr: Vec<i64> = graph.row_ptr().to_vec().into_iter().map(|p| p as i64).collect();
    array(folder, "indptr", &ptr)?;
    array(folder, "indices", graph.cols())?;
    array(folder, "shape", &[graph.n_rows() as i64, graph.n_cols() as i64])?;
    graph.values().map_or(Ok(()), |values| array(folder, "values", values))
}

fn array<T: npy::Item>(folder: &Path, name: &str, data: &[T]) -> Result<()> {
    let path = folder.join(format!("{name}.npy"));
    let written = File::create(&path).and_then(|file| {
        let mut out = BufWriter::new(file);
        npy::write(&mut out, &[data.len()], data)?;
        out.flush()
    });
    written.map_err(|error| Error::io("write", &path, error))
}
