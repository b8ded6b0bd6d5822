//! `--trace FILE`: what took how long, for Perfetto or chrome://tracing.
//!
//! The format is Chrome's trace events: complete events (`"ph": "X"`) with a start and a length
//! in microseconds. Steps are written for a few epochs only, so that long runs stay readable.

use std::path::{Path, PathBuf};
use std::time::Instant;

use lacis::data::staged::{Existing, Staged};
use lacis::plan::plan::Plan;
use lacis::{Error, Result};
use serde_json::{Value, json};

/// Epochs whose steps are written one by one.
const IN_DETAIL: usize = 3;
/// Epochs and evaluations that are written at all.
const MOST_SPANS: usize = 20_000;

/// What happened, kept until the end.
#[derive(Clone, Debug)]
pub struct Trace {
    path: PathBuf,
    begun: Instant,
    spans: Vec<Span>,
    epochs: usize,
}

#[derive(Clone, Debug)]
enum What {
    Named(&'static str),
    Epoch(usize),
    Step(usize),
}

#[derive(Clone, Debug)]
struct Span {
    what: What,
    start_us: f64,
    length_us: f64,
}

impl Trace {
    /// For a file that is not there yet.
    ///
    /// # Errors
    /// When it is there, or cannot be.
    pub fn new(path: &Path, begun: Instant) -> Result<Self> {
        Staged::new(path, Existing::Keep)?;
        Ok(Trace { path: path.to_owned(), begun, spans: Vec::new(), epochs: 0 })
    }

    /// Something that ends now and took so many seconds.
    fn ended(&mut self, what: What, seconds: f64) {
        let now = self.begun.elapsed().as_secs_f64();
        let (start_us, length_us) = ((now - seconds).max(0.0) * 1e6, seconds * 1e6);
        self.spans.push(Span { what, start_us, length_us });
    }

    /// Loading, planning or evaluating.
    pub fn named(&mut self, name: &'static str, seconds: f64) {
        if self.spans.len() < MOST_SPANS {
            self.ended(What::Named(name), seconds);
        }
    }

    pub fn step(&mut self, index: usize, seconds: f64) {
        if self.epochs < IN_DETAIL {
            self.ended(What::Step(index), seconds);
        }
    }

    pub fn epoch(&mut self, number: usize, seconds: f64) {
        self.epochs += 1;
        if self.spans.len() < MOST_SPANS {
            self.ended(What::Epoch(number), seconds);
        }
    }

    /// Writes the file; steps are called what a plan's are.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn write(&self, plan: &Plan) -> Result<()> {
        let text = self.as_json(plan).to_string();
        let staged = Staged::new(&self.path, Existing::Keep)?;
        std::fs::write(staged.path(), text).map_err(|e| Error::io("write", &self.path, e))?;
        staged.commit()
    }

    fn as_json(&self, plan: &Plan) -> Value {
        let event = |span: &Span| {
            let (name, kind, args) = match span.what {
                What::Named(name) => (name.to_owned(), "phase", Value::Null),
                What::Epoch(number) => (format!("epoch {number}"), "epoch", Value::Null),
                What::Step(index) => match plan.steps.get(index) {
                    Some(step) => {
                        let phase = format!("{:?}", step.phase).to_lowercase();
                        let name = crate::steps::operator(step);
                        let args = json!({ "formula": step.formula, "phase": phase,
                                           "layer": step.layer, "step": index + 1 });
                        (name, "step", args)
                    }
                    None => (format!("step {}", index + 1), "step", Value::Null),
                },
            };
            json!({ "name": name, "cat": kind, "ph": "X", "pid": 1, "tid": 1,
                    "ts": span.start_us, "dur": span.length_us, "args": args })
        };
        let mut events: Vec<Value> = vec![json!({ "name": "process_name", "ph": "M", "pid": 1,
                                                  "tid": 1, "args": { "name": "lacis train" } })];
        // What contains something comes before it.
        let mut spans: Vec<&Span> = self.spans.iter().collect();
        spans.sort_by(|a, b| {
            a.start_us.total_cmp(&b.start_us).then(b.length_us.total_cmp(&a.length_us))
        });
        events.extend(spans.into_iter().map(event));
        let about = json!({ "plan": plan.id() });
        json!({ "traceEvents": events, "displayTimeUnit": "ms", "otherData": about })
    }
}
