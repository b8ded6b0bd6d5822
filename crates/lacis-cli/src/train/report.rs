//! What `lacis train` shows: a bar, a line for programs, a summary.

use std::collections::BTreeMap;
use std::io::IsTerminal;
use std::path::Path;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use lacis::exec::Observe;
use lacis::train::{Epoch, Trainer};
use lacis::{Dataset, Split};
use serde_json::{Value, json};

use crate::out::{Out, Outcome, bytes, grouped};
use crate::planned;
use crate::progress::Stop;

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
    epochs: Vec<f64>,
    steps: Vec<f64>,
}

impl Observe for Spent {
    fn step(&mut self, index: usize, seconds: f64) {
        if self.steps.len() <= index {
            self.steps.resize(index + 1, 0.0);
        }
        self.steps[index] += seconds;
    }

    fn goes_on(&mut self) -> bool {
        let paused = self.until.pause.is_some_and(|pause| Instant::now() >= pause);
        !self.until.stopped() && !self.until.late() && !paused
    }
}

impl Spent {
    pub fn after_loading(load_s: f64) -> Self {
        Spent { load_s, ..Spent::default() }
    }

    pub fn epoch(&mut self, epoch: &Epoch) {
        self.train_s += epoch.seconds;
        self.epochs.push(epoch.seconds);
    }

    /// The median epoch after the first, in milliseconds.
    pub fn epoch_ms(&self) -> f64 {
        let mut after: Vec<f64> = self.epochs.iter().skip(1).copied().collect();
        if after.is_empty() {
            after = self.epochs.clone();
        }
        after.sort_by(f64::total_cmp);
        after.get(after.len() / 2).map_or(f64::NAN, |s| s * 1e3)
    }

    /// Shares of the kinds of steps, the largest first.
    fn kinds(&self, trainer: &Trainer<'_>) -> Vec<(String, f64)> {
        let mut kinds: BTreeMap<String, f64> = BTreeMap::new();
        for (step, seconds) in trainer.chosen().plan.steps.iter().zip(&self.steps) {
            let text = format!("{:?}", step.operator);
            let name = text.split([' ', '(']).next().unwrap_or_default().to_lowercase();
            *kinds.entry(name).or_default() += seconds;
        }
        let total: f64 = kinds.values().sum();
        let mut shares: Vec<(String, f64)> =
            kinds.into_iter().map(|(kind, s)| (kind, s / total.max(1e-12))).collect();
        shares.sort_by(|a, b| b.1.total_cmp(&a.1));
        shares
    }
}

/// A bar on a terminal, a line now and then elsewhere.
pub struct Bar {
    bar: Option<ProgressBar>,
    lines: Option<std::cell::Cell<Instant>>,
}

const LINE_EVERY: Duration = Duration::from_secs(10);

impl Bar {
    pub fn new(out: &Out, epochs: u64) -> Self {
        if out.quiet {
            return Bar { bar: None, lines: None };
        }
        if !std::io::stderr().is_terminal() {
            return Bar { bar: None, lines: Some(std::cell::Cell::new(Instant::now())) };
        }
        let style = ProgressStyle::with_template("{bar:24} {pos}/{len}  {msg}  {eta} left")
            .unwrap_or_else(|_| ProgressStyle::default_bar());
        Bar { bar: Some(ProgressBar::new(epochs).with_style(style)), lines: None }
    }

    pub fn show(&self, epoch: &Epoch, scores: Option<&Scores>) {
        let text = || {
            let scores = scores
                .map_or(String::new(), |s| format!("  train {:.4}  val {:.4}", s.train, s.val));
            format!("loss {:.4}{scores}  {:.2} ms", epoch.loss, epoch.seconds * 1e3)
        };
        if let Some(bar) = &self.bar {
            bar.set_position(epoch.epoch as u64);
            bar.set_message(text());
        }
        if let Some(last) = &self.lines
            && last.get().elapsed() >= LINE_EVERY
        {
            last.set(Instant::now());
            eprintln!("epoch {}: {}", epoch.epoch, text());
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
    let body = json!({ "id": chosen.plan.id(), "formula": chosen.plan.formula,
                       "predicted_epoch_ms": trainer.predicted_epoch_seconds() * 1e3,
                       "peak_bytes": trainer.needs().total(),
                       "plan_ms": trainer.plan_seconds() * 1e3 });
    out.event("plan", &body)
}

pub fn dry_run(
    out: &Out,
    dataset: &Dataset,
    (split, words): (&Split, &str),
    trainer: &Trainer<'_>,
) -> Outcome {
    let chosen = trainer.chosen();
    out.line(format_args!(
        "data       {}: {} nodes, {} edges, {} features, {}",
        dataset.name(),
        grouped(dataset.graph().n_nodes()),
        grouped(dataset.graph().n_edges()),
        dataset.features().map_or(0, lacis::Features::width),
        planned::labels_in_words(dataset.labels()),
    ))?;
    out.line(format_args!(
        "split      {words}: {} train, {} validate, {} test",
        grouped(split.train.len()),
        grouped(split.val.len()),
        grouped(split.test.len()),
    ))?;
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
    } else if approx.settings().budget < 1.0 {
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
        json!({
            "test": number(scores.test), "val": number(scores.val), "train": number(scores.train),
            "metric": self.metric, "best_epoch": self.best_epoch, "train_nodes": self.train_nodes,
            "batches": trainer.n_batches(), "epochs": trainer.epoch(),
            "seed": trainer.recipe().seed,
            "epoch_ms": number(spent.epoch_ms()), "load_s": spent.load_s, "plan_s": spent.plan_s,
            "train_s": spent.train_s, "eval_s": spent.eval_s, "total_s": self.total_s,
            "peak_rss_bytes": peak_rss_bytes(), "plan": plan.id(), "savings": plan.savings,
            "approx": trainer.approx().map(lacis::approx::Approx::report),
            "run": self.folder.map(|folder| folder.display().to_string()),
        })
    }

    pub fn print(&self, out: &Out, trainer: &Trainer<'_>, last: bool) -> Outcome {
        let Report { scores, spent, metric, .. } = self;
        let config = trainer.config();
        let made_up = if self.synthetic { " (synthetic data)" } else { "" };
        out.line(format_args!(
            "{metric}   test {:.4}   val {:.4}   train {:.4}   best epoch {} of {}{made_up}",
            scores.test,
            scores.val,
            scores.train,
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
        let batches = in_batches(trainer);
        let ms = spent.epoch_ms();
        out.line(format_args!("epoch      {ms:.3} ms{batches}: {}", kinds.join(", ")))?;
        out.line(format_args!(
            "time       load {:.2} s, plan {:.3} s, train {:.2} s, evaluate {:.2} s",
            spent.load_s, spent.plan_s, spent.train_s, spent.eval_s
        ))?;
        if let Some(approx) = trainer.approx().filter(|approx| approx.is_on()) {
            out.line(format_args!("approx     {}", approx.summary()))?;
        }
        out.line(format_args!(
            "network    {} of {} layers, {} columns between them, {} weights; peak memory {}",
            trainer.model().name,
            config.layers,
            config.hidden,
            grouped(trainer.params().count()),
            peak_rss_bytes().map_or("unknown".to_owned(), bytes),
        ))?;
        if let Some(folder) = self.folder {
            out.line(format_args!("run        {}", folder.display()))?;
            if last && !out.quiet {
                eprintln!("try: lacis predict {} -o labels.csv", folder.display());
            }
        }
        Ok(())
    }
}

/// The mean and the spread of several runs.
pub fn of_many(out: &Out, tests: &[f64]) -> Outcome {
    let n = tests.len() as f64;
    let mean = tests.iter().sum::<f64>() / n;
    let std = (tests.iter().map(|t| (t - mean).powi(2)).sum::<f64>() / (n - 1.0)).sqrt();
    let body = json!({ "test": number(mean), "mean": number(mean), "std": number(std),
                       "runs": tests.len(), "tests": tests });
    out.event("done", &body)?;
    out.line(format_args!("{} runs: test {mean:.4} ± {std:.4}", tests.len()))
}

/// The most memory that the process ever had, as the system tells it.
fn peak_rss_bytes() -> Option<usize> {
    let text = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = text.lines().find(|line| line.starts_with("VmHWM:"))?;
    line.split_whitespace().nth(1)?.parse::<usize>().ok()?.checked_mul(1024)
}
