//! The folder of a run: what is written when, and how a run goes on.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use lacis::data::staged::{Existing, Staged};
use lacis::plan::Plan;
use lacis::reference::Moments;
use lacis::schedule::Patience;
use lacis::store::{Beginning, RunFolder, Tensor, Tensors};
use lacis::train::Trainer;
use lacis::{Dataset, Error, Labels, Result};
use serde_json::{Value, json};

use super::Best;
use super::job::{self, Begun, Job};
use crate::args_train::{Running, Train};
use crate::config;

/// A checkpoint at least this often.
const EVERY: Duration = Duration::from_secs(20);

/// What a run keeps.
pub struct Kept {
    folder: Option<RunFolder>,
    /// Whether it is one run of a job of several.
    part: bool,
    last: Instant,
    /// Epochs between checkpoints, where they are counted too.
    every: Option<usize>,
    /// The best weights so far.
    pub best: Option<Best>,
    lines: Vec<Value>,
    resuming: bool,
    /// What the data calls its classes, for predictions on other data.
    classes: Vec<String>,
}

/// What goes on besides the trainer.
pub struct State {
    pub patience: [i64; 4],
    /// Seconds of the epochs that are done.
    pub seconds: Vec<f64>,
}

/// What is gone on with.
pub enum Before {
    /// Nothing: all is new.
    Nothing,
    /// A run.
    Run(PathBuf),
    /// Several of them, some of which were begun.
    Job(Begun),
}

impl Before {
    /// Where a training is that was begun, by its seed and its fold.
    pub fn folder(&self, part: (u64, Option<usize>)) -> Option<&Path> {
        match self {
            Before::Nothing => None,
            Before::Run(folder) => Some(folder),
            Before::Job(begun) => begun.folder(part),
        }
    }
}

/// The arguments of what is to go on: those that were kept, if none that was given differs.
pub fn resumed(args: &Train) -> Result<(Train, Before)> {
    let Some(folder) = &args.running.resume else { return Ok((args.clone(), Before::Nothing)) };
    let run = RunFolder::open(folder).and_then(|run| run.read_config());
    let (before, mut kept, text) = match run {
        Ok(text) => (Before::Run(folder.clone()), config::train_from(&text, folder)?, text),
        Err(_) => {
            let (begun, kept, text) = job::find(folder)?;
            (Before::Job(begun), kept, text)
        }
    };
    config::same_as_given((&text, folder), &kept, args)?;
    // Data that a program held are nowhere else: they are given again, or named.
    if kept.source.was_given() && args.typed.was_typed("data") {
        kept.source.data.clone_from(&args.source.data);
    }
    kept.source.given = args.source.given.clone();
    // What a run is does not change; how long it goes on, and what is told of it, may.
    let (runs, out) = match before {
        Before::Job(_) => (kept.running.runs, Some(folder.clone())),
        _ => (1, None),
    };
    kept.running = Running { out, runs, no_save: false, ..args.running.clone() };
    kept.save_plan = args.save_plan.clone();
    kept.overwrite = args.overwrite;
    Ok((kept, before))
}

/// A new folder that holds all that a run needs to go on.
fn begun(
    args: &Train,
    dataset: &Dataset,
    trainer: &Trainer<'_>,
    (threads, job): (usize, Option<&Job>),
) -> Result<RunFolder> {
    let mut own = args.clone();
    // Runs of a job have seeds of their own, and one data set.
    own.source.changes.seed = trainer.recipe().seed;
    let of_data = args.source.changes.seed_of_data();
    own.source.changes.data_seed = Some(of_data).filter(|seed| *seed != trainer.recipe().seed);
    own.running.runs = 1;
    // Who runs it again wants another folder, and nothing else written anew.
    own.running.out = None;
    own.save_plan = None;
    own.planning.plan = "plan.json".to_owned();
    // A plan that came with a run's configuration was that run's choice.
    let plan = args.planning.plan.as_str();
    let was_chosen = args.typed.was_read("plan") && Path::new(plan).is_file();
    let asked = if was_chosen { "auto" } else { plan };
    let config = config::to_toml(&own, asked, job.map(Job::to_table))?;
    let (plan, machine) = (json!(trainer.chosen().plan), lacis::machine::this_machine());
    let env = json!({ "version": env!("CARGO_PKG_VERSION"), "threads": threads,
                      "machine": machine, "system": std::env::consts::OS });
    let with = Beginning { config: &config, plan: &plan, env: &env };
    let (data, model) = (dataset.name(), args.net.model.as_str());
    match &args.running.out {
        Some(path) if job.is_none() => RunFolder::begin_at(path, &with),
        Some(parent) => RunFolder::begin(parent, data, model, &with),
        None => RunFolder::begin(Path::new("runs"), data, model, &with),
    }
}

/// Whether a run has nothing left to do: all its epochs are done, or patience has run out.
pub fn ended((epoch, epochs): (usize, usize), exhausted: impl Into<i64>) -> bool {
    epoch >= epochs || exhausted.into() > 0
}

impl Kept {
    pub fn new(
        args: &Train,
        dataset: &Dataset,
        trainer: &Trainer<'_>,
        (resumed, threads): (Option<&Path>, usize),
        job: Option<&Job>,
    ) -> Result<Self> {
        let folder = match resumed {
            Some(folder) => Some(RunFolder::open(folder)?),
            None if args.running.no_save => None,
            None => Some(begun(args, dataset, trainer, (threads, job))?),
        };
        let classes = match dataset.labels() {
            Some(Labels::Classes { names, .. }) => names.clone(),
            _ => Vec::new(),
        };
        let (resuming, lines) = (resumed.is_some(), Vec::new());
        let (last, every) = (Instant::now(), args.running.checkpoint_every);
        let part = job.is_some();
        Ok(Kept { folder, part, last, every, best: None, lines, resuming, classes })
    }

    pub fn path(&self) -> Option<&Path> {
        self.folder.as_ref().map(RunFolder::path)
    }

    /// Where to go on, in words.
    pub fn advice(&self) -> String {
        let whole = |path| if self.part { Path::parent(path).unwrap_or(path) } else { path };
        match self.path().map(whole) {
            Some(path) => format!("; saved, `lacis train --resume {}` goes on", path.display()),
            None => "; nothing was saved".to_owned(),
        }
    }

    /// Goes on from the last whole checkpoint, if there is one.
    pub fn restore(&mut self, trainer: &mut Trainer<'_>) -> Result<Option<State>> {
        let Some(folder) = self.folder.as_ref().filter(|_| self.resuming) else { return Ok(None) };
        folder.remove_partial()?;
        let lines = folder.read_metrics().unwrap_or_default();
        let Some(found) = folder.read_checkpoint()? else {
            folder.replace_metrics(&[])?;
            return Ok(None);
        };
        let mut tensors = found.tensors;
        let patience: Vec<i64> = tensors.take::<i64>("patience", &[4])?.to_vec();
        let best_epoch = tensors.take::<i64>("best.epoch", &[1])?[0];
        if best_epoch >= 0 {
            let mut weights = trainer.params().clone();
            let names: Vec<String> =
                trainer.model().params.iter().map(|spec| spec.name.clone()).collect();
            for (name, param) in names.iter().zip(weights.all_mut()) {
                let shape = [param.value.n_rows(), param.value.n_cols()];
                let numbers = tensors.take::<f32>(&format!("best.{name}"), &shape)?;
                param.value = lacis::Dense::from_vec(numbers.to_vec(), shape[0], shape[1])?;
            }
            weights.set_steps(tensors.take::<i64>("best.steps", &[1])?[0].max(0) as u64);
            let moments = best_moments(&mut tensors)?;
            self.best = Some(Best { epoch: best_epoch as usize, weights, moments });
        }
        trainer.restore(tensors)?;
        let done = trainer.epoch() as u64;
        let earlier = lines.into_iter().filter(|line| line["epoch"].as_u64() <= Some(done));
        let earlier: Vec<Value> = earlier.collect();
        folder.replace_metrics(&earlier)?;
        let milliseconds = earlier.iter().filter_map(|line| line["ms"].as_f64());
        let seconds = milliseconds.map(|ms| ms / 1e3).collect();
        let patience = patience.try_into().map_err(|_| {
            Error::argument("checkpoint", "has another form than this version writes")
        })?;
        Ok(Some(State { patience, seconds }))
    }

    /// Remembers an epoch; lines are written together, not to wait for the disk each time.
    pub fn epoch(&mut self, line: &Value) -> Result<()> {
        if self.folder.is_some() {
            self.lines.push(line.clone());
        }
        Ok(())
    }

    /// When the next checkpoint is due, if any is written.
    pub fn due_at(&self) -> Option<Instant> {
        self.folder.as_ref().and_then(|_| self.last.checked_add(EVERY))
    }

    /// Whether a checkpoint is to be written after this epoch.
    pub fn is_due(&self, epoch: usize) -> bool {
        let counted = self.every.is_some_and(|every| epoch.is_multiple_of(every));
        let late = self.due_at().is_some_and(|due| Instant::now() >= due);
        self.folder.is_some() && (counted || late)
    }

    pub fn checkpoint(&mut self, trainer: &Trainer<'_>, patience: &Patience) -> Result<()> {
        let Some(folder) = &self.folder else { return Ok(()) };
        let mut tensors: Tensors = trainer.checkpoint()?;
        tensors.insert("patience", Tensor::new(&[4], patience.state().to_vec())?);
        let epoch = self.best.as_ref().map_or(-1, |best| best.epoch as i64);
        tensors.insert("best.epoch", Tensor::new(&[1], vec![epoch])?);
        if let Some(best) = &self.best {
            let steps = Tensor::new(&[1], vec![best.weights.steps() as i64])?;
            tensors.insert("best.steps", steps);
            for (spec, param) in trainer.model().params.iter().zip(best.weights.all()) {
                tensors.insert(format!("best.{}", spec.name), Tensor::matrix(&param.value));
            }
            for (key, Moments { mean, var }) in &best.moments {
                for (what, of) in [("mean", mean), ("var", var)] {
                    let tensor = Tensor::new(&[of.len()], of.clone())?;
                    tensors.insert(format!("best.{what}.{key}"), tensor);
                }
            }
        }
        folder.append_metrics(&std::mem::take(&mut self.lines))?;
        folder.write_checkpoint(trainer.epoch() as u64, &tensors)?;
        self.last = Instant::now();
        Ok(())
    }

    /// Weights and summary; one that is there already of the same epochs stays.
    pub fn finish(&self, trainer: &Trainer<'_>, summary: &Value) -> Result<()> {
        let Some(folder) = &self.folder else { return Ok(()) };
        let mut tensors = trainer.model_tensors()?;
        if !self.classes.is_empty() {
            tensors.set("classes", json!(self.classes).to_string());
        }
        folder.write_model(&tensors)?;
        match folder.read_json("summary.json") {
            Ok(kept) if self.resuming && kept["epochs"] == summary["epochs"] => Ok(()),
            _ => folder.write_summary(summary),
        }
    }
}

/// The estimates of batch norms that belong to the best weights.
fn best_moments(tensors: &mut Tensors) -> Result<HashMap<u32, Moments>> {
    let keys: Vec<(u32, usize)> = tensors
        .iter()
        .filter_map(|(name, tensor)| {
            let key = name.strip_prefix("best.mean.")?.parse().ok()?;
            Some((key, tensor.shape().first().copied()?))
        })
        .collect();
    let mut all = HashMap::new();
    for (key, len) in keys {
        let mut of = |what: &str| -> Result<Vec<f64>> {
            Ok(tensors.take::<f64>(&format!("best.{what}.{key}"), &[len])?.to_vec())
        };
        let (mean, var) = (of("mean")?, of("var")?);
        all.insert(key, Moments { mean, var });
    }
    Ok(all)
}

/// A place for the plan that is free, or to be replaced.
pub fn place_for_plan(args: &Train) -> Result<Option<Staged>> {
    let existing = if args.overwrite { Existing::Replace } else { Existing::Keep };
    args.save_plan.as_deref().map(|path| Staged::new(path, existing)).transpose()
}

pub fn write_plan(place: Staged, trainer: &Trainer<'_>) -> Result<()> {
    let text = serde_json::to_string_pretty(&trainer.chosen().plan)
        .map_err(|e| Error::argument("plan", e.to_string()))?;
    let path = place.path();
    std::fs::write(path, text).map_err(|source| Error::io("write", path, source))?;
    place.commit()
}

pub fn read_plan(path: &Path) -> Result<Plan> {
    let text = std::fs::read_to_string(path).map_err(|e| Error::io("read", path, e))?;
    let plan: Plan = serde_json::from_str(&text)
        .map_err(|e| Error::file(path, format!("is no plan that this version writes: {e}")))?;
    plan.check()?;
    Ok(plan)
}
