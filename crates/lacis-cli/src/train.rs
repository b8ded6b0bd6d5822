//! `lacis train`: from data and a model's name to weights, accuracies and a folder that keeps them.

mod report;
pub(crate) mod run;

use std::collections::HashMap;
use std::time::Instant;

use lacis::metrics::{Metric, ScoreRow, Scored};
use lacis::reference::Moments;
use lacis::schedule::{Better, Patience, Progress, parse_duration};
use lacis::train::{Epoch, Job, Recipe, Trainer};
use lacis::{Dataset, Error, Split};
use serde_json::json;

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
use run::Kept;

pub fn run(args: &Train, global: &Global, out: &Out, stop: &Stop) -> Outcome {
    let (mut args, resumed) = run::resumed(args)?;
    let begun = Instant::now();
    let desk = Desk::new(global, out, stop)?;
    out.start("train", &args)?;
    // Better to hear of a slip now than after minutes of reading.
    planned::recipe(&args.net, &args.learning, &args.planning, 0)?;
    planned::check_approximation(&args.approximation, &args.typed)?;
    args.running.time_limit.as_deref().map(parse_duration).transpose()?;
    let trace = args.running.trace.as_deref().map(|path| Trace::new(path, begun));
    let mut trace = trace.transpose()?;
    let dataset = desk.open(&args.source)?;
    let load_s = begun.elapsed().as_secs_f64();
    if resumed.is_none() {
        let of = (&mut args.net, &mut args.learning);
        let shown = defaults::fill_in(of, &args.typed, dataset.name());
        if !out.quiet {
            out.note(format_args!("settings: {}", defaults::in_words(&shown)));
        }
    }
    let (elsewhere, none) = (Elsewhere::open(&args, &desk)?, Split::default());
    let seed = args.source.changes.seed;
    let path = machine::profile_path(global.machine.as_deref())?;
    planned::task(&dataset, args.learning.task.as_deref())?;
    let mut tests = Vec::new();
    let all = trainings(&args)?;
    for (number, (run, own)) in all.iter().enumerate() {
        let seed = seed.wrapping_add(*run);
        let mut recipe = planned::recipe(&own.net, &own.learning, &own.planning, seed)?;
        recipe.config.embed = planned::learned_features(own.source.changes.features.as_deref());
        let linked = links::linked(&own.learning, &dataset, seed, &desk)?;
        let dataset = linked.as_ref().map_or(&dataset, |linked| &linked.dataset);
        let (split, words) = match &linked {
            Some(Linked { links, .. }) => {
                links::prepare(&mut recipe, &own.net, Some(links));
                (Split::default(), links::in_words(links))
            }
            None => {
                let (split, words) = planned::split_for(dataset, &own.learning, seed)?;
                (elsewhere.split(dataset, split, own.learning.split.is_some())?, words)
            }
        };
        let profile = planned::profile(&desk, &path, (dataset, &recipe))?;
        let task = planned::task(dataset, own.learning.task.as_deref())?;
        let metric = planned::metric_of(task, dataset, own.learning.metric.as_deref())?;
        let job = Job { dataset, split: &split, threads: &desk.threads, profile: &profile };
        let others = inductive::jobs(&elsewhere, &none, (&desk.threads, &profile));
        let mut judges = [None, None];
        for (judge, other) in judges.iter_mut().zip(&others) {
            let new = |other| Judge::new(other, &recipe, dataset);
            *judge = other.as_ref().map(new).transpose()?;
        }
        let mut session = Session {
            args: own,
            out,
            stop,
            dataset,
            split: &split,
            split_words: words,
            judges,
            metric,
            spent: Spent::after_loading(load_s, trace.take()),
            begun,
            threads: desk.threads.count(),
            many: all.len() > 1,
            last: number + 1 == all.len(),
        };
        match session.train(&job, recipe, resumed.as_deref())? {
            Some(test) => tests.push(test),
            None => return Ok(()),
        }
    }
    if tests.len() > 1 {
        report::of_many(out, &tests)?;
    }
    Ok(())
}

/// Every training that is asked for: each run, and in it each fold.
fn trainings(args: &Train) -> Result<Vec<(u64, Train)>, Failure> {
    let folds: Vec<Option<usize>> = match (args.learning.folds, args.learning.fold) {
        (Some(count), None) => (1..=count).map(Some).collect(),
        (_, fold) => vec![fold],
    };
    let of_run = |run: u64| {
        folds.iter().map(move |&fold| {
            let mut own = args.clone();
            own.learning.fold = fold;
            (run, own)
        })
    };
    Ok((0..args.running.runs.max(1)).flat_map(of_run).collect())
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
    begun: Instant,
    threads: usize,
    many: bool,
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
    /// The test score, or nothing where only the plan was asked for.
    fn train(
        &mut self,
        job: &Job<'_>,
        recipe: Recipe,
        resumed: Option<&std::path::Path>,
    ) -> Result<Option<f64>, Failure> {
        let planned = || self.planned(job, recipe, resumed);
        let mut trainer = self.stop.or_end(self.out, planned)?;
        if let Some(settings) = planned::approximation(&self.args.approximation) {
            trainer.approximate(settings)?;
            report::approximation(self.out, &trainer)?;
        }
        self.spent.planned(trainer.plan_seconds());
        report::plan(self.out, &trainer)?;
        if let Some(path) = &self.args.save_plan {
            run::write_plan(path, &trainer)?;
        }
        if self.args.running.dry_run {
            report::dry_run(self.out, self.dataset, (self.split, &self.split_words), &trainer)?;
            return Ok(None);
        }
        let who = (resumed, self.threads);
        let mut kept = Kept::new(self.args, self.dataset, &trainer, who, self.many)?;
        let mut patience = Patience::new(self.metric.better(), self.args.learning.patience);
        if let Some(state) = kept.restore(&mut trainer)? {
            patience.restore(state.patience)?;
        }
        let outcome = self.epochs(&mut trainer, &mut kept, &mut patience);
        let best = outcome?;
        self.finish(trainer, kept, best).map(Some)
    }

    fn planned<'j>(
        &self,
        job: &'j Job<'j>,
        recipe: Recipe,
        resumed: Option<&std::path::Path>,
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
        while trainer.epoch() < epochs {
            self.spent.until.pause = kept.due_at();
            let epoch = trainer.step(&mut self.spent)?;
            if !epoch.loss.is_finite() {
                bar.clear();
                return Err(Failure::Ran(diverged(&epoch, self.args.learning.lr)));
            }
            let mut exhausted = false;
            if epoch.complete {
                exhausted = self.seen(&epoch, trainer, (&mut *kept, patience), &bar)?;
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
            if exhausted {
                self.out.detail(format_args!("no better for long; stopped at {}", epoch.epoch));
                break;
            }
        }
        bar.clear();
        kept.checkpoint(trainer, patience)?;
        Ok(kept.best.take())
    }

    /// Takes in an epoch: how good it is, whether it is the best, and what is said of it. Whether
    /// patience has run out.
    fn seen(
        &mut self,
        epoch: &Epoch,
        trainer: &mut Trainer<'_>,
        (kept, patience): (&mut Kept, &mut Patience),
        bar: &report::Bar,
    ) -> Result<bool, Failure> {
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
        Ok(matches!(progress, Some(Progress::Exhausted)))
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
    ) -> Result<f64, Failure> {
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
        let name = if self.many { "run" } else { "done" };
        self.out.event(name, &summary)?;
        report.print(self.out, &trainer, self.last)?;
        Ok(scores.test)
    }
}

fn diverged(epoch: &Epoch, rate: f64) -> Error {
    let problem = format!(
        "is {} in epoch {}; a smaller --lr than {rate}, --row-normalize, or `lacis data validate` \
         on the data may help",
        epoch.loss, epoch.epoch
    );
    Error::argument("the loss", problem)
}

/// What a run's configuration says in JSON, for the folder.
pub(crate) fn config(args: &Train) -> serde_json::Value {
    json!(args)
}
