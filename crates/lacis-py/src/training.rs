//! [`Training`]: `lacis train` on a thread of its own, told of and stopped from Python.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use lacis::infer::What;
use lacis::{Error, Result};
use lacis_cli::embed::{self, Stop};
use pyo3::prelude::*;

use crate::error::raise;
use crate::graph::GraphData;
use crate::view::View;

/// A training that runs. Python asks for its events, between which it hears of Ctrl-C.
#[pyclass(frozen, module = "lacis._lacis")]
pub struct Training {
    events: Mutex<Receiver<String>>,
    stop: Stop,
    thread: Mutex<Option<JoinHandle<Result<()>>>>,
}

#[pymethods]
impl Training {
    /// Begins to train with flags of the command, on a graph where one is given.
    #[new]
    fn new(flags: Vec<OsString>, graph: Option<&GraphData>) -> PyResult<Self> {
        let data = graph.map(|graph| graph.set.clone());
        let (tell, events) = channel();
        let stop = Stop::default();
        let asked = stop.clone();
        let work = move || {
            // Nobody listens where Python did not wait for the end.
            let listener = Box::new(move |line: serde_json::Value| {
                let _ = tell.send(line.to_string());
            });
            embed::train(flags, data, listener, &asked)
        };
        let thread = std::thread::Builder::new().name("lacis-train".to_owned()).spawn(work);
        let thread = thread.map_err(|e| raise(Error::argument("train", e.to_string())))?;
        Ok(Training { events: Mutex::new(events), stop, thread: Mutex::new(Some(thread)) })
    }

    /// The events, each as JSON, that there are within some seconds; `None` after the last.
    fn events(&self, py: Python<'_>, seconds: f64) -> Option<Vec<String>> {
        let wait = || {
            let events = self.events.lock().unwrap_or_else(PoisonError::into_inner);
            match events.recv_timeout(Duration::from_secs_f64(seconds.clamp(0.0, 3600.0))) {
                Ok(first) => Some(std::iter::once(first).chain(events.try_iter()).collect()),
                Err(RecvTimeoutError::Timeout) => Some(Vec::new()),
                Err(RecvTimeoutError::Disconnected) => None,
            }
        };
        py.detach(wait)
    }

    /// Asks it to end after this epoch, as if that had been the last.
    fn stop(&self) {
        self.stop.end_early();
    }

    /// Waits for the end, and raises what went wrong.
    fn join(&self, py: Python<'_>) -> PyResult<()> {
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(thread) = thread else { return Ok(()) };
        match py.detach(|| thread.join()) {
            Ok(outcome) => outcome.map_err(raise),
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }
}

/// What a run's network gives for every node of its own data, or of another graph.
#[pyfunction]
pub fn results(
    py: Python<'_>,
    run: PathBuf,
    graph: Option<&GraphData>,
    embeddings: bool,
) -> PyResult<View> {
    let data = graph.map(|graph| graph.set.clone());
    let what = if embeddings { What::Embeddings } else { What::Logits };
    let results = || embed::results(&run, data, what, &Stop::default());
    py.detach(results).map(View::of_dense).map_err(raise)
}
