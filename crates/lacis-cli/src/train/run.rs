//! The folder of a run: what is written when, and how a run goes on.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use lacis::plan::Plan;
use lacis::reference::Moments;
use lacis::schedule::Patience;
use lacis::store::{Beginning, RunFolder, Tensor, Tensors};
use lacis::train::Trainer;
use lacis::{Dataset, Error, Labels, Result};
use serde_json::{Value, json};

use super::Best;
use crate::args_train::Train;
use crate::config;

/// A checkpoint at least this often.
const EVERY: Duration = Duration::from_secs(20);

/// What a run keeps.
pub struct Kept {
    folder: Option<RunFolder>,
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
}

/// The arguments of a run that is to go on: those that were kept, if none that was typed differs.
pub fn resumed(args: &Train) -> Result<(Train, Option<PathBuf>)> {
    let Some(folder) = &args.running.resume else { return Ok((args.clone(), None)) };
    let text = RunFolder::open(folder)?.read_config()?;
    let mut kept = config::train_from(&text, folder)?;
    config::same_as_typed(&kept, args.typed.words())?;
    // Data that a program holds is nowhere else.
    kept.source.given = args.source.given.clone();
    kept.running.resume = Some(folder.clone());
    kept.running.no_save = false;
    kept.running.time_limit = args.running.time_limit.clone();
    kept.running.checkpoint_every = args.running.checkpoint_every;
    kept.running.trace = args.running.trace.clone();
    Ok((kept, Some(folder.clone())))
}

/// A new folder that holds all that a run needs to go on.
fn begun(
    args: &Train,
    dataset: &Dataset,
    trainer: &Trainer<'_>,
    (threads, many): (usize, bool),
) -> Result<RunFolder> {
    let mut own = args.clone();
    own.source.changes.seed = trainer.recipe().seed;
    own.running.runs = 1;
    own.planning.plan = "plan.json".to_owned();
    let config = config::to_toml(&own)?;
    let (plan, machine) = (json!(trainer.chosen().plan), lacis::machine::this_machine());
    let env = json!({ "version": env!("CARGO_PKG_VERSION"), "threads": threads,
                      "machine": machine, "system": std::env::consts::OS });
    let with = Beginning { config: &config, plan: &plan, env: &env };
    let (data, model) = (dataset.name(), args.net.model.as_str());
    match &args.running.out {
        Some(path) if !many => RunFolder::begin_at(path, &with),
        Some(parent) => RunFolder::begin(parent, data, model, &with),
        None => RunFolder::begin(Path::new("runs"), data, model, &with),
    }
}

impl Kept {
    pub fn new(
        args: &Train,
        dataset: &Dataset,
        trainer: &Trainer<'_>,
        (resumed, threads): (Option<&Path>, usize),
        many: bool,
    ) -> Result<Self> {
        let folder = match resumed {
            Some(folder) => Some(RunFolder::open(folder)?),
            None if args.running.no_save => None,
            None => Some(begun(args, dataset, trainer, (threads, many))?),
        };
        let classes = match dataset.labels() {
            Some(Labels::Classes { names, .. }) => names.clone(),
            _ => Vec::new(),
        };
        let (resuming, lines) = (resumed.is_some(), Vec::new());
        let (last, every) = (Instant::now(), args.running.checkpoint_every);
        Ok(Kept { folder, last, every, best: None, lines, resuming, classes })
    }

    pub fn path(&self) -> Option<&Path> {
        self.folder.as_ref().map(RunFolder::path)
    }

    /// Where to go on, in words.
    pub fn advice(&self) -> String {
        match self.path() {
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
        folder.replace_metrics(&earlier.collect::<Vec<_>>())?;
        let patience = patience.try_into().map_err(|_| {
            Error::argument("checkpoint", "has another form than this version writes")
        })?;
        Ok(Some(State { patience }))
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

    /// Weights and summary.
    pub fn finish(&self, trainer: &Trainer<'_>, summary: &Value) -> Result<()> {
        let Some(folder) = &self.folder else { return Ok(()) };
        let mut tensors = trainer.model_tensors()?;
        if !self.classes.is_empty() {
            tensors.set("classes", json!(self.classes).to_string());
        }
        folder.write_model(&tensors)?;
        folder.write_summary(summary)
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

pub fn write_plan(path: &Path, trainer: &Trainer<'_>) -> Result<()> {
    let text = serde_json::to_string_pretty(&trainer.chosen().plan)
        .map_err(|e| Error::argument("plan", e.to_string()))?;
    std::fs::write(path, text).map_err(|source| Error::io("write", path, source))
}

pub fn read_plan(path: &Path) -> Result<Plan> {
    let text = std::fs::read_to_string(path).map_err(|e| Error::io("read", path, e))?;
    let plan: Plan = serde_json::from_str(&text)
        .map_err(|e| Error::file(path, format!("is no plan that this version writes: {e}")))?;
    plan.check()?;
    Ok(plan)
}
