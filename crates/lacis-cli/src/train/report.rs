//! What `lacis train` shows: a bar, a line for programs, a summary.

use std::collections::BTreeMap;
use std::io::{IsTerminal, Write};
use std::path::Path;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use lacis::exec::Observe;
use lacis::plan::plan::{Phase, Step};
use lacis::train::{Epoch, Trainer};
use lacis::{Dataset, Split};
use serde_json::{Value, json};

use crate::memory;
use crate::out::{Out, Outcome, bytes, grouped};
use crate::planned;
use crate::progress::Stop;
use crate::steps;
use crate::trace::Trace;

/// How good the weights are.
#[derive(Clone, Copy, Debug)]
pub struct Scores {
    pub train: f64,
    pub val: f64,
    pub test: f64,
}

impl Scores {
    /// What chooses the best epoch: validation, or training where nobody validates.
    pub fn judged(&self) -> f64 {
        if self.val.is_nan() { self.train } else { self.val }
    }
}

/// A score for people; nobody was judged where there is none.
fn in_words(score: f64) -> String {
    if score.is_nan() { "-".to_owned() } else { format!("{score:.4}") }
}

/// NaN is `null`.
fn number(value: f64) -> Value {
    if value.is_finite() { json!(value) } else { Value::Null }
}

/// Somebody who wants to stop, or a time that is over.
#[derive(Clone, Debug, Default)]
pub struct Until {
    pub stop: Option<Stop>,
    pub deadline: Option<Instant>,
    /// When a checkpoint is to be written, be it between two batches.
    pub pause: Option<Instant>,
}

impl Until {
    /// Whether somebody wants to stop.
    pub fn stopped(&self) -> bool {
        self.stop.as_ref().is_some_and(|stop| stop.came() && !stop.ends_early())
    }

    /// Whether the time is over.
    pub fn late(&self) -> bool {
        self.deadline.is_some_and(|deadline| Instant::now() >= deadline)
    }
}

/// Where the time went.
#[derive(Clone, Debug, Default)]
pub struct Spent {
    /// When an epoch is to be left between two batches.
    pub until: Until,
    pub load_s: f64,
    pub plan_s: f64,
    pub train_s: f64,
    pub eval_s: f64,
    /// Seconds of the epochs before a run went on.
    pub earlier: Vec<f64>,
    epochs: Vec<f64>,
    steps: Vec<f64>,
    trace: Option<Trace>,
}

impl Observe for Spent {
    fn step(&mut self, index: usize, seconds: f64) {
        if self.steps.len() <= index {
            self.steps.resize(index + 1, 0.0);
        }
        self.steps[index] += seconds;
        if let Some(trace) = &mut self.trace {
            trace.step(index, seconds);
        }
    }

    fn goes_on(&mut self) -> bool {
        let paused = self.until.pause.is_some_and(|pause| Instant::now() >= pause);
        !self.until.stopped() && !self.until.late() && !paused
    }
}

impl Spent {
    pub fn after_loading(load_s: f64, trace: Option<Trace>) -> Self {
        let mut spent = Spent { load_s, trace, ..Spent::default() };
        spent.traced("load", load_s);
        spent
    }

    fn traced(&mut self, name: &'static str, seconds: f64) {
        if let Some(trace) = &mut self.trace {
            trace.named(name, seconds);
        }
    }

    pub fn planned(&mut self, seconds: f64) {
        self.plan_s = seconds;
        self.traced("plan", seconds);
    }

    pub fn evaluated(&mut self, seconds: f64) {
        self.eval_s += seconds;
        self.traced("evaluate", seconds);
    }

    pub fn epoch(&mut self, epoch: &Epoch) {
        self.train_s += epoch.seconds;
        self.epochs.push(epoch.seconds);
        if let Some(trace) = &mut self.trace {
            trace.epoch(epoch.epoch, epoch.seconds);
        }
    }

    /// Writes the trace, where one was asked for.
    pub fn write_trace(&self, trainer: &Trainer<'_>) -> lacis::Result<()> {
        match &self.trace {
            Some(trace) => trace.write(&trainer.chosen().plan),
            None => Ok(()),
        }
    }

    /// The median epoch after the first, in milliseconds.
    pub fn epoch_ms(&self) -> f64 {
        let mut after: Vec<f64> = self.epochs.iter().skip(1).copied().collect();
        if after.is_empty() {
            after = self.epochs.clone();
        }
        if after.is_empty() {
            after.clone_from(&self.earlier);
        }
        after.sort_by(f64::total_cmp);
        after.get(after.len() / 2).map_or(f64::NAN, |s| s * 1e3)
    }

    /// Milliseconds that each step took in an epoch: the mean, and all of what runs once.
    fn step_ms(&self, trainer: &Trainer<'_>) -> Vec<f64> {
        let epochs = self.epochs.len().max(1) as f64;
        let of = trainer.chosen().plan.steps.iter().zip(&self.steps);
        let times = |step: &Step| if step.phase == Phase::Once { 1.0 } else { epochs };
        of.map(|(step, seconds)| seconds / times(step) * 1e3).collect()
    }

    /// Shares of the kinds of steps, the largest first.
    fn kinds(&self, trainer: &Trainer<'_>) -> Vec<(String, f64)> {
        kinds_of_steps(trainer, &self.steps)
    }
}

/// Shares that kinds of steps have of all seconds, the largest first.
pub fn kinds_of_steps(trainer: &Trainer<'_>, steps: &[f64]) -> Vec<(String, f64)> {
    let mut kinds: BTreeMap<String, f64> = BTreeMap::new();
    for (step, seconds) in trainer.chosen().plan.steps.iter().zip(steps) {
        *kinds.entry(steps::operator(step)).or_default() += seconds;
    }
    let total: f64 = kinds.values().sum();
    let mut shares: Vec<(String, f64)> =
        kinds.into_iter().map(|(kind, s)| (kind, s / total.max(1e-12))).collect();
    shares.sort_by(|a, b| b.1.total_cmp(&a.1));
    shares
}

/// A bar on a terminal, a line now and then elsewhere.
pub struct Bar {
    bar: Option<ProgressBar>,
    lines: Option<std::cell::Cell<Instant>>,
    epochs: usize,
    begun: Instant,
    first: std::cell::Cell<Option<usize>>,
}

const LINE_EVERY: Duration = Duration::from_secs(10);

impl Bar {
    pub fn new(out: &Out, epochs: usize) -> Self {
        let nothing = Bar {
            bar: None,
            lines: None,
            epochs,
            begun: Instant::now(),
            first: std::cell::Cell::new(None),
        };
        if out.quiet {
            return nothing;
        }
        if !std::io::stderr().is_terminal() {
            return Bar { lines: Some(std::cell::Cell::new(Instant::now())), ..nothing };
        }
        let style = ProgressStyle::with_template("{bar:24} {pos}/{len}  {msg}  {eta} left")
            .unwrap_or_else(|_| ProgressStyle::default_bar());
        let bar = Some(ProgressBar::new(epochs as u64).with_style(style));
        Bar { bar, ..nothing }
    }

    pub fn show(&self, epoch: &Epoch, scores: Option<&Scores>) {
        let text = || {
            let scores = scores
                .map_or(String::new(), |s| format!("  train {:.4}  val {:.4}", s.train, s.val));
            format!("loss {:.4}{scores}  {:.2} ms", epoch.loss, epoch.seconds * 1e3)
        };
        // A resumed run begins somewhere in the middle.
        let first = self.first.get().unwrap_or(epoch.epoch.saturating_sub(1));
        self.first.set(Some(first));
        if let Some(bar) = &self.bar {
            bar.set_position(epoch.epoch as u64);
            bar.set_message(text());
        }
        if let Some(last) = &self.lines
            && last.get().elapsed() >= LINE_EVERY
        {
            last.set(Instant::now());
            let each = self.begun.elapsed().as_secs_f64() / (epoch.epoch - first).max(1) as f64;
            let left = each * self.epochs.saturating_sub(epoch.epoch) as f64;
            let (at, of, text) = (epoch.epoch, self.epochs, text());
            let _ = writeln!(std::io::stderr(), "epoch {at}/{of}  {text}  {left:.0} s left");
        }
    }

    pub fn clear(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

pub fn epoch_line(epoch: &Epoch, scores: Option<&Scores>) -> Value {
    let of = |f: fn(&Scores) -> f64| scores.map_or(Value::Null, |s| number(f(s)));
    json!({ "epoch": epoch.epoch, "loss": number(epoch.loss), "train": of(|s| s.train),
            "val": of(|s| s.val), "ms": epoch.seconds * 1e3 })
}

pub fn plan(out: &Out, trainer: &Trainer<'_>) -> Outcome {
    let chosen = trainer.chosen();
    let mut steps = steps::as_json(&chosen.plan);
    for (at, step) in steps.iter_mut().enumerate() {
        step["kernel"] = json!(trainer.kernel_name(at));
        step["predicted_ms"] = json!(chosen.predicted.steps[at] * 1e3);
    }
    let body = json!({ "id": chosen.plan.id(), "formula": chosen.plan.formula,
                       "predicted_epoch_ms": trainer.predicted_epoch_seconds() * 1e3,
                       "peak_bytes": trainer.needs().total(),
                       "plan_ms": trainer.plan_seconds() * 1e3, "steps": steps });
    out.event("plan", &body)
}

pub fn dry_run(
    out: &Out,
    dataset: &Dataset,
    (split, words): (&Split, &str),
    trainer: &Trainer<'_>,
) -> Outcome {
    let chosen = trainer.chosen();
    let links = trainer.recipe().links.is_some();
    let learned = match links {
        true => "links to learn".to_owned(),
        false => planned::labels_in_words(dataset.labels()),
    };
    out.line(format_args!(
        "data       {}: {} nodes, {} edges, {} features, {learned}",
        dataset.name(),
        grouped(dataset.graph().n_nodes()),
        grouped(dataset.graph().n_edges()),
        dataset.features().map_or(0, lacis::Features::width),
    ))?;
    let counts = [&split.train, &split.val, &split.test].map(|part| grouped(part.len()));
    let [train, val, test] = counts;
    match links {
        true => out.line(format_args!("split      {words}"))?,
        false => out
            .line(format_args!("split      {words}: {train} train, {val} validate, {test} test"))?,
    }
    out.line(format_args!("plan {}  {}", chosen.plan.id(), chosen.plan.formula))?;
    out.line(format_args!(
        "predicted  {:.3} ms an epoch{}, peak memory {}",
        trainer.predicted_epoch_seconds() * 1e3,
        in_batches(trainer),
        bytes(trainer.needs().total()),
    ))
}

/// Where an epoch has several batches, how many.
fn in_batches(trainer: &Trainer<'_>) -> String {
    match trainer.n_batches() {
        0 | 1 => String::new(),
        n => format!(" of {} batches", grouped(n)),
    }
}

/// Why a network has nothing that could be approximated.
pub(crate) const NOTHING_TO_SAMPLE: &str = "no backward pass of this network multiplies with an \
    adjacency, so there is nothing to sample (attention, maxima and plain layers have no such \
    product, a first layer needs none)";

/// Whether approximation is predicted to pay, before the first epoch.
pub fn approximation(out: &Out, trainer: &Trainer<'_>) -> Outcome {
    let Some(approx) = trainer.approx() else { return Ok(()) };
    let sampling = approx.sampling();
    let (ceiling, speedup) = (sampling.ceiling, sampling.speedup);
    if approx.is_on() {
        out.detail(format_args!(
            "approximation: {} products sampled, predicted {speedup:.2} times faster epochs, at \
             most {ceiling:.2} (Amdahl)",
            sampling.steps.len()
        ));
    } else if !approx.is_possible() {
        out.note(format_args!("training is exact: {NOTHING_TO_SAMPLE}"));
    } else if approx.settings().budget < 1.0 || approx.settings().error.is_some() {
        out.note(format_args!(
            "approximation cannot pay here (predicted {speedup:.2} times, at most {ceiling:.2} by \
             Amdahl's law): training is exact; --approx-force samples all the same"
        ));
    }
    Ok(())
}

/// What came out of a training.
pub struct Report<'a> {
    pub scores: Scores,
    pub best_epoch: usize,
    pub train_nodes: usize,
    pub spent: &'a Spent,
    pub total_s: f64,
    pub folder: Option<&'a Path>,
    pub metric: String,
    pub synthetic: bool,
}

impl Report<'_> {
    pub fn as_json(&self, trainer: &Trainer<'_>) -> Value {
        let Report { scores, spent, .. } = self;
        let plan = &trainer.chosen().plan;
        let kinds: serde_json::Map<String, Value> =
            spent.kinds(trainer).into_iter().map(|(kind, share)| (kind, json!(share))).collect();
        json!({
            "test": number(scores.test), "val": number(scores.val), "train": number(scores.train),
            "metric": self.metric, "best_epoch": self.best_epoch, "train_nodes": self.train_nodes,
            "batches": trainer.n_batches(), "epochs": trainer.epoch(),
            "seed": trainer.recipe().seed,
            "epoch_ms": number(spent.epoch_ms()), "load_s": spent.load_s, "plan_s": spent.plan_s,
            "train_s": spent.train_s, "eval_s": spent.eval_s, "total_s": self.total_s,
            "peak_rss_bytes": memory::peak_bytes(), "plan": plan.id(), "savings": plan.savings,
            "kinds": kinds, "step_ms": spent.step_ms(trainer),
            "approx": trainer.approx().map(lacis::approx::Approx::report),
            "run": self.folder.map(|folder| folder.display().to_string()),
        })
    }

    pub fn print(&self, out: &Out, trainer: &Trainer<'_>, last: bool) -> Outcome {
        let Report { scores, spent, metric, .. } = self;
        let config = trainer.config();
        let made_up = if self.synthetic { " (synthetic data)" } else { "" };
        out.line(format_args!(
            "{metric}   test {}   val {}   train {}   best epoch {} of {}{made_up}",
            in_words(scores.test),
            in_words(scores.val),
            in_words(scores.train),
            self.best_epoch,
            trainer.epoch(),
        ))?;
        let plan = &trainer.chosen().plan;
        out.line(format_args!("plan       {}  {}", plan.id(), plan.formula))?;
        let kinds: Vec<String> = spent
            .kinds(trainer)
            .iter()
            .take(4)
            .map(|(kind, share)| format!("{kind} {:.0} %", share * 100.0))
            .collect();
        let (batches, ms) = (in_batches(trainer), spent.epoch_ms());
        if ms.is_finite() {
            out.line(format_args!("epoch      {ms:.3} ms{batches}: {}", kinds.join(", ")))?;
        }
        out.line(format_args!(
            "time       load {:.2} s, plan {:.3} s, train {:.2} s, evaluate {:.2} s",
            spent.load_s, spent.plan_s, spent.train_s, spent.eval_s
        ))?;
        if let Some(approx) = trainer.approx().filter(|approx| approx.is_on()) {
            out.line(format_args!("approx     {}", approx.summary()))?;
            if let Some(fallen) = approx.fallen() {
                out.note(fallen);
            }
        }
        out.line(format_args!(
            "network    {} of {} layers, {} columns between them, {} weights; peak memory {}",
            trainer.model().name,
            config.layers,
            config.hidden,
            grouped(trainer.params().count()),
            memory::peak_bytes().map_or("unknown".to_owned(), bytes),
        ))?;
        if let Some(folder) = self.folder {
            out.line(format_args!("run        {}", folder.display()))?;
            if last && !out.quiet {
                let folder = folder.display();
                let _ = writeln!(std::io::stderr(), "try: lacis predict {folder} -o labels.csv");
            }
        }
        Ok(())
    }
}

/// The mean and the spread of several runs.
pub fn of_many(out: &Out, tests: &[f64], approx: &[Value]) -> Outcome {
    let n = tests.len() as f64;
    let mean = tests.iter().sum::<f64>() / n;
    let std = (tests.iter().map(|t| (t - mean).powi(2)).sum::<f64>() / (n - 1.0)).sqrt();
    let body = json!({ "test": number(mean), "mean": number(mean), "std": number(std),
                       "runs": tests.len(), "tests": tests,
                       "approx": lacis::approx::mean_report(approx) });
    out.event("done", &body)?;
    match tests.len() {
        1 => out.line(format_args!("1 run: test {mean:.4}")),
        many => out.line(format_args!("{many} runs: test {mean:.4} ± {std:.4}")),
    }
}
