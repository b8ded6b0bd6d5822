//! `lacis train`: from data and a model's name to weights, accuracies and a folder that keeps them.

mod finished;
mod job;
mod report;
pub(crate) mod run;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::Instant;

use lacis::data::staged::Staged;
use lacis::metrics::{Metric, ScoreRow, Scored};
use lacis::reference::Moments;
use lacis::schedule::{Better, Patience, Progress, parse_duration};
use lacis::train::{Epoch, Job, Recipe, Trainer};
use lacis::{Dataset, Error, Split};
use serde_json::{Value, json};

use crate::args::Global;
use crate::args_train::Train;
use crate::data::Desk;
use crate::defaults;
use crate::inductive::{self, Elsewhere, Judge};
use crate::links::{self, Linked};
use crate::machine;
use crate::out::{Failure, Out, Outcome};
use crate::planned;
use crate::progress::Stop;
use crate::trace::Trace;
pub(crate) use report::kinds_of_steps;
use report::{Report, Scores, Spent, Until};
use run::{Before, Kept, ended};

pub fn run(args: &Train, global: &Global, out: &Out, stop: &Stop) -> Outcome {
    let begun = Instant::now();
    let going_on = run::resumed(args);
    out.start("train", going_on.as_ref().map_or(args, |(args, _)| args))?;
    let (mut args, before) = going_on?;
    let desk = Desk::new(global, out, stop)?;
    // Better to hear of a slip now than after minutes of reading.
    planned::recipe(&args.net, &args.learning, &args.planning, 0)?;
    planned::check_approximation(&args.approximation, &args.typed)?;
    planned::check_waiting(&args.learning)?;
    args.running.time_limit.as_deref().map(parse_duration).transpose()?;
    let (all, mut found) = (trainings(&args, &before)?, Found::default());
    if all.iter().all(|training| training.summary.is_some()) {
        all.iter().try_for_each(|training| found.again(training, all.len() > 1, out))?;
        return found.tell(all.len() > 1, out);
    }
    let mut plan_place = run::place_for_plan(&args)?;
    let trace = args.running.trace.as_deref().map(|path| Trace::new(path, begun));
    let mut trace = trace.transpose()?;
    let dataset = desk.open(&args.source)?;
    let load_s = begun.elapsed().as_secs_f64();
    if matches!(before, Before::Nothing) {
        let of = (&mut args.net, &mut args.learning);
        let shown = defaults::fill_in(of, &args.typed, dataset.name());
        if !out.quiet {
            out.note(format_args!("settings: {}", defaults::in_words(&shown)));
        }
    }
    planned::task(&dataset, args.learning.task.as_deref())?;
    planned::check_batches(&args.learning, &dataset)?;
    let of_several = match before {
        Before::Job(begun) => Some(begun.job),
        _ => (all.len() > 1).then(|| job::Job::new(&args)),
    };
    let shared = Shared {
        args: &args,
        desk: &desk,
        stop,
        dataset: &dataset,
        elsewhere: Elsewhere::open(&args, &desk)?,
        profile: machine::profile_path(global.machine.as_deref())?,
        begun,
        load_s,
        of_several,
    };
    for (number, training) in all.iter().enumerate() {
        if training.summary.is_some() {
            found.again(training, all.len() > 1, out)?;
            continue;
        }
        let last = number + 1 == all.len();
        let written = (trace.take(), plan_place.take());
        let Some(result) = shared.train(training, written, last)? else { return Ok(()) };
        found.tests.push(result.0);
        found.approx.extend(result.1);
        // Those that would follow have no time of their own.
        if !last && (shared.is_late()? || stop.ends_early()) {
            let left = all.len() - number - 1;
            out.note(format_args!("{left} of {} trainings were not begun", all.len()));
            break;
        }
    }
    found.tell(all.len() > 1, out)
}

/// What came out of several trainings.
#[derive(Default)]
struct Found {
    tests: Vec<f64>,
    approx: Vec<Value>,
}

impl Found {
    /// Takes in, and says again, what a finished training ended with.
    fn again(&mut self, training: &Training, many: bool, out: &Out) -> Outcome {
        let Some(summary) = &training.summary else { return Ok(()) };
        self.tests.push(summary["test"].as_f64().unwrap_or(f64::NAN));
        self.approx.extend(Some(summary["approx"].clone()).filter(Value::is_object));
        finished::tell(out, if many { "run" } else { "done" }, summary)
    }

    /// Says what that makes together, where several were asked for.
    fn tell(&self, many: bool, out: &Out) -> Outcome {
        if many { report::of_many(out, &self.tests, &self.approx) } else { Ok(()) }
    }
}

/// A training that is asked for: one fold of one run.
struct Training {
    seed: u64,
    fold: Option<usize>,
    /// Where it is, if it was begun before.
    folder: Option<PathBuf>,
    /// What it ended with, if it is finished.
    summary: Option<Value>,
}

/// Every training that is asked for: each run, and in it each fold.
fn trainings(args: &Train, before: &Before) -> Result<Vec<Training>, Failure> {
    let folds: Vec<Option<usize>> = match (args.learning.folds, args.learning.fold) {
        (Some(count), None) => (1..=count).map(Some).collect(),
        (_, fold) => vec![fold],
    };
    let of = |run: u64, fold: Option<usize>| {
        let seed = args.source.changes.seed.wrapping_add(run);
        let folder = before.folder((seed, fold)).map(Path::to_owned);
        let summary = match &folder {
            Some(folder) if !args.running.dry_run => {
                finished::summary(folder, args.learning.epochs)?
            }
            _ => None,
        };
        Ok(Training { seed, fold, folder, summary })
    };
    let runs = 0..args.running.runs.max(1);
    let parts = runs.flat_map(|run| folds.iter().map(move |&fold| (run, fold)));
    parts.map(|(run, fold)| of(run, fold)).collect()
}

/// What all trainings of a command have in common.
struct Shared<'a> {
    args: &'a Train,
    desk: &'a Desk<'a>,
    stop: &'a Stop,
    dataset: &'a Dataset,
    elsewhere: Elsewhere,
    /// Where the machine's profile is.
    profile: PathBuf,
    begun: Instant,
    load_s: f64,
    /// The job, where there are several.
    of_several: Option<job::Job>,
}

impl Shared<'_> {
    /// Whether the time that was given is over.
    fn is_late(&self) -> Result<bool, Failure> {
        let limit = self.args.running.time_limit.as_deref().map(parse_duration).transpose()?;
        Ok(limit.is_some_and(|limit| self.begun.elapsed() >= limit))
    }

    /// The test score and what was approximated, or nothing where only the plan was asked for.
    fn train(
        &self,
        training: &Training,
        (trace, plan_place): (Option<Trace>, Option<Staged>),
        last: bool,
    ) -> Result<Option<(f64, Option<Value>)>, Failure> {
        let (desk, seed) = (self.desk, training.seed);
        let mut own = self.args.clone();
        own.learning.fold = training.fold;
        let mut recipe = planned::recipe(&own.net, &own.learning, &own.planning, seed)?;
        recipe.config.embed = planned::learned_features(own.source.changes.features.as_deref());
        let linked = links::linked(&own.learning, self.dataset, seed, desk)?;
        let dataset = linked.as_ref().map_or(self.dataset, |linked| &linked.dataset);
        let (split, split_words) = match &linked {
            Some(Linked { links, .. }) => {
                links::prepare(&mut recipe, &own.net, Some(links));
                (Split::default(), links::in_words(links))
            }
            None => {
                let (split, words) = planned::split_for(dataset, &own.learning, seed)?;
                let was_asked = own.learning.split.is_some();
                let split = self.elsewhere.split(dataset, split, was_asked)?;
                planned::check_trains(&split)?;
                (split, words)
            }
        };
        let profile = planned::profile(desk, &self.profile, (dataset, &recipe))?;
        let task = planned::task(dataset, own.learning.task.as_deref())?;
        let metric = planned::metric_of(task, dataset, own.learning.metric.as_deref())?;
        let job = Job { dataset, split: &split, threads: &desk.threads, profile: &profile };
        let none = Split::default();
        let others = inductive::jobs(&self.elsewhere, &none, (&desk.threads, &profile));
        let mut judges = [None, None];
        for (judge, other) in judges.iter_mut().zip(&others) {
            let new = |other| Judge::new(other, &recipe, dataset);
            *judge = other.as_ref().map(new).transpose()?;
        }
        let mut session = Session {
            args: &own,
            out: desk.out,
            stop: self.stop,
            dataset,
            split: &split,
            split_words,
            judges,
            metric,
            spent: Spent::after_loading(self.load_s, trace),
            plan_place,
            begun: self.begun,
            threads: desk.threads.count(),
            of_several: self.of_several.as_ref(),
            last,
        };
        session.train(&job, recipe, training.folder.as_deref())
    }
}

/// One training, from plan to summary.
struct Session<'a> {
    args: &'a Train,
    out: &'a Out,
    stop: &'a Stop,
    dataset: &'a Dataset,
    split: &'a Split,
    split_words: String,
    /// Of validation and test on other graphs.
    judges: [Option<Judge<'a>>; 2],
    metric: Metric,
    spent: Spent,
    /// Where the plan is to be written.
    plan_place: Option<Staged>,
    begun: Instant,
    threads: usize,
    /// The job, where it is one of several.
    of_several: Option<&'a job::Job>,
    last: bool,
}

/// What the epochs led to.
pub(crate) struct Best {
    epoch: usize,
    weights: lacis::params::Params,
    /// Estimates of batch norms.
    moments: HashMap<u32, Moments>,
}

impl Best {
    fn of(epoch: usize, trainer: &Trainer<'_>) -> Self {
        let (weights, moments) = (trainer.params().clone(), trainer.moments().clone());
        Best { epoch, weights, moments }
    }
}

impl Session<'_> {
    /// The test score and what was approximated, or nothing where only the plan was asked for.
    fn train(
        &mut self,
        job: &Job<'_>,
        recipe: Recipe,
        resumed: Option<&Path>,
    ) -> Result<Option<(f64, Option<Value>)>, Failure> {
        let planned = || self.planned(job, recipe, resumed);
        let mut trainer = self.stop.or_end(self.out, planned)?;
        if let Some(settings) = planned::approximation(&self.args.approximation) {
            trainer.approximate(settings)?;
            report::approximation(self.out, &trainer)?;
        }
        self.spent.planned(trainer.plan_seconds());
        report::plan(self.out, &trainer)?;
        if let Some(place) = self.plan_place.take() {
            run::write_plan(place, &trainer)?;
        }
        if self.args.running.dry_run {
            report::dry_run(self.out, self.dataset, (self.split, &self.split_words), &trainer)?;
            return Ok(None);
        }
        let who = (resumed, self.threads);
        let mut kept = Kept::new(self.args, self.dataset, &trainer, who, self.of_several)?;
        let mut patience = Patience::new(self.metric.better(), self.args.learning.patience);
        if let Some(state) = kept.restore(&mut trainer)? {
            patience.restore(state.patience)?;
            self.spent.earlier = state.seconds;
        }
        let outcome = self.epochs(&mut trainer, &mut kept, &mut patience);
        let best = outcome?;
        self.finish(trainer, kept, best).map(Some)
    }

    fn planned<'j>(
        &self,
        job: &'j Job<'j>,
        recipe: Recipe,
        resumed: Option<&Path>,
    ) -> Result<Trainer<'j>, Failure> {
        let asked = self.args.planning.plan.as_str();
        let kept = resumed.map(|folder| folder.join("plan.json"));
        match kept {
            Some(file) => Ok(Trainer::with_plan(job, recipe, run::read_plan(&file)?)?),
            None => crate::explain::planned_as(asked, job, recipe),
        }
    }

    /// Trains until all epochs are done, patience or time is over, or somebody wants to stop.
    fn epochs(
        &mut self,
        trainer: &mut Trainer<'_>,
        kept: &mut Kept,
        patience: &mut Patience,
    ) -> Result<Option<Best>, Failure> {
        let epochs = self.args.learning.epochs;
        let limit = self.args.running.time_limit.as_deref().map(parse_duration).transpose()?;
        let deadline = limit.and_then(|limit| self.begun.checked_add(limit));
        self.spent.until = Until { stop: Some(self.stop.clone()), deadline, pause: None };
        let bar = report::Bar::new(self.out, epochs);
        while !ended((trainer.epoch(), epochs), patience.exhausted()) {
            self.spent.until.pause = kept.due_at();
            let epoch = trainer.step(&mut self.spent)?;
            if !epoch.loss.is_finite() {
                bar.clear();
                return Err(Failure::Ran(diverged(&epoch, self.args.learning.lr, self.dataset)));
            }
            if epoch.complete {
                self.seen(&epoch, trainer, (&mut *kept, patience), &bar)?;
            }
            let early = self.stop.ends_early();
            let (stopping, late) = (self.spent.until.stopped(), self.spent.until.late() || early);
            if stopping || late || kept.is_due(epoch.epoch) {
                kept.checkpoint(trainer, patience)?;
            }
            if stopping {
                bar.clear();
                let when = if epoch.complete { "after" } else { "in" };
                let advice = kept.advice();
                self.out.note(format_args!("stopped {when} epoch {}{advice}", epoch.epoch));
                return Err(Error::Interrupted.into());
            }
            if early {
                break;
            }
            if late {
                self.out.note(format_args!("the time is over{}", kept.advice()));
                break;
            }
        }
        bar.clear();
        if trainer.epoch() < epochs && patience.exhausted() > 0 {
            self.out.detail(format_args!("no better for long; stopped at {}", trainer.epoch()));
        }
        kept.checkpoint(trainer, patience)?;
        Ok(kept.best.take())
    }

    /// Takes in an epoch: how good it is, whether it is the best, and what is said of it.
    fn seen(
        &mut self,
        epoch: &Epoch,
        trainer: &mut Trainer<'_>,
        (kept, patience): (&mut Kept, &mut Patience),
        bar: &report::Bar,
    ) -> Result<(), Failure> {
        self.spent.epoch(epoch);
        let due = self.is_due(epoch.epoch, self.args.learning.epochs);
        let scores = if due { Some(self.scores(trainer)?) } else { None };
        let progress = scores.map(|scores| patience.see(epoch.epoch, scores.judged()));
        if let Some(scores) = scores {
            let sign = if self.metric.better() == Better::Higher { 1.0 } else { -1.0 };
            trainer.judged(sign * scores.judged());
        }
        if matches!(progress, Some(Progress::Best)) {
            kept.best = Some(Best::of(epoch.epoch, trainer));
        }
        let line = report::epoch_line(epoch, scores.as_ref());
        self.out.event("epoch", &line)?;
        kept.epoch(&line)?;
        bar.show(epoch, scores.as_ref());
        Ok(())
    }

    fn is_due(&self, epoch: usize, epochs: usize) -> bool {
        match self.args.learning.eval_every {
            0 => false,
            every => epoch.is_multiple_of(every) || epoch == epochs,
        }
    }

    fn scores(&mut self, trainer: &mut Trainer<'_>) -> Result<Scores, Failure> {
        let start = Instant::now();
        let (labels, links) = (self.dataset.labels(), trainer.recipe().links.clone());
        let (split, metric) = (self.split, self.metric);
        let threads = trainer.threads().clone();
        let scores = trainer.logits(|logits| {
            if let Some(links) = links {
                let [train, val, test] = links.score(metric, logits)?;
                return Ok(Scores { train, val, test });
            }
            let labels = labels.expect("training needs labels");
            let of = |items: &[u32]| match items.is_empty() {
                true => Ok(f64::NAN),
                false => {
                    let scored = Scored::new(logits, labels, items, ScoreRow::OfItem)?;
                    metric.of_items(&scored, &threads)
                }
            };
            Ok(Scores { train: of(&split.train)?, val: of(&split.val)?, test: of(&split.test)? })
        })?;
        let mut scores = scores.map_err(Failure::Error)?;
        let [val, test] = &mut self.judges;
        for (judge, score) in [(val, &mut scores.val), (test, &mut scores.test)] {
            if let Some(judge) = judge {
                *score = judge.score(trainer, metric, &threads)?;
            }
        }
        self.spent.evaluated(start.elapsed().as_secs_f64());
        Ok(scores)
    }

    /// Judges the best weights, saves what is to be kept, and says what came out.
    fn finish(
        &mut self,
        mut trainer: Trainer<'_>,
        kept: Kept,
        best: Option<Best>,
    ) -> Result<(f64, Option<Value>), Failure> {
        let best_epoch = best.as_ref().map_or(trainer.epoch(), |best| best.epoch);
        if let Some(best) = best {
            *trainer.params_mut() = best.weights;
            trainer.set_moments(best.moments);
        }
        let scores = self.scores(&mut trainer)?;
        let report = Report {
            scores,
            best_epoch,
            train_nodes: match trainer.recipe().links {
                Some(_) => self.dataset.graph().n_nodes(),
                None => self.split.train.len(),
            },
            spent: &self.spent,
            total_s: self.begun.elapsed().as_secs_f64(),
            folder: kept.path(),
            metric: self.metric.to_string(),
            synthetic: self.dataset.name() == "cora-like",
        };
        let summary = report.as_json(&trainer);
        kept.finish(&trainer, &summary)?;
        self.spent.write_trace(&trainer)?;
        let name = if self.of_several.is_some() { "run" } else { "done" };
        self.out.event(name, &summary)?;
        report.print(self.out, &trainer, self.last)?;
        Ok((scores.test, trainer.approx().map(lacis::approx::Approx::report)))
    }
}

fn diverged(epoch: &Epoch, rate: f64, dataset: &Dataset) -> Error {
    let weights = dataset.graph().adjacency().values().unwrap_or_default();
    // Of a negative degree there is no root.
    let ignore = match weights.iter().any(|&weight| weight < 0.0) {
        true => "--edge-weights ignore (some are negative), ",
        false => "",
    };
    let problem = format!(
        "is {} in epoch {}; {ignore}a smaller --lr than {rate}, --row-normalize, or `lacis data \
         validate` on the data may help",
        epoch.loss, epoch.epoch
    );
    Error::argument("the loss", problem)
}

/// What a run's configuration says in JSON, for the folder.
pub(crate) fn config(args: &Train) -> Value {
    json!(args)
}
