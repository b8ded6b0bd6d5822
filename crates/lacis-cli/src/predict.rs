//! `lacis eval` and `lacis predict`: a run's weights on its own data, or on other data.

mod pairs;
mod rows;

use std::path::Path;

use lacis::data::staged::{Existing, Staged};
use lacis::infer::{On, Predictor, Way, What};
use lacis::metrics::{Metric, ScoreRow, Scored, Task};
use lacis::nn::Config;
use lacis::plan::Dim;
use lacis::plan::op::LossKind;
use lacis::plan::plan::{Operator, Place, Plan};
use lacis::store::RunFolder;
use lacis::train::Recipe;
use lacis::{Dataset, Dense, Error, Labels, Result, Split};
use serde_json::json;

use crate::args::Global;
use crate::args_train::{Eval, Predict, Train};
use crate::config;
use crate::data::Desk;
use crate::inductive::Learned;
use crate::links;
use crate::machine;
use crate::memory;
use crate::out::{Failure, Out, Outcome, bytes, grouped};
use crate::planned;
use crate::progress::Stop;
use crate::train::run::read_plan;
use rows::{Asked, Of, Rows, chosen_nodes};

/// A run that was read again, and the data to use it on.
pub(crate) struct Again {
    folder: RunFolder,
    args: Train,
    dataset: Dataset,
    plan: Plan,
}

/// Other data than a run's own.
pub(crate) enum Other<'a> {
    None,
    Named(&'a str),
    Given(Box<Dataset>),
}

impl<'a> From<Option<&'a str>> for Other<'a> {
    fn from(data: Option<&'a str>) -> Self {
        data.map_or(Other::None, Other::Named)
    }
}

impl Again {
    /// The run's own data, or other data.
    pub(crate) fn open(
        run: &Path,
        data: Other<'_>,
        desk: &Desk<'_>,
    ) -> std::result::Result<Self, Failure> {
        let folder = RunFolder::open(run)?;
        let mut args = config::train_from(&folder.read_config()?, run)?;
        if !folder.model_path().exists() {
            let problem = "has no weights yet; `lacis train --resume` with it finishes the run";
            return Err(Error::file(run, problem).into());
        }
        let plan = read_plan(&run.join("plan.json"))?;
        let own = matches!(data, Other::None);
        match data {
            Other::None => {}
            Other::Named(data) => args.source.is_now(data),
            Other::Given(set) => args.source.given = Some(*set),
        }
        let mut dataset = desk.open(&args.source)?;
        // On its own data a run of links goes along the edges that it trained on; on others, all.
        if own
            && let seed = args.source.changes.seed
            && let Some(linked) = links::linked(&args.learning, &dataset, seed, desk)?
        {
            dataset = linked.dataset;
        }
        let again = Again { folder, args, dataset, plan };
        again.check_kind()?;
        Ok(again)
    }

    /// Whether the data is what the run predicts something of: many graphs, or one.
    fn check_kind(&self) -> Result<()> {
        let learned = self.plan.values[self.plan.result].shape[0] == Dim::Graphs;
        let problem = match (learned, self.dataset.collection().is_some()) {
            (true, false) => "is one graph; the run predicts something of each of many",
            (false, true) => "is many graphs; the run predicts something of the nodes of one",
            _ => return Ok(()),
        };
        Err(Error::argument(format!("data set '{}'", self.dataset.name()), problem))
    }

    /// Who trains and who judges: as asked, or as the run had it.
    fn split(&self, asked: Option<&str>) -> Result<Split> {
        let (set, seed) = (&self.dataset, self.args.source.changes.seed);
        let learning = &self.args.learning;
        match (asked, set.labels(), &learning.val_data, &learning.split) {
            (Some(asked), ..) => Ok(planned::split(set, Some(asked), seed)?.0),
            // Other graphs judge, and all nodes of this one train.
            (None, Some(labels), Some(_), None) => lacis::data::splits::all(labels),
            _ => Ok(planned::split_for(set, learning, seed)?.0),
        }
    }

    fn recipe(&self) -> Result<Recipe> {
        let Train { net, learning, planning, source, .. } = &self.args;
        let mut net = net.clone();
        // Runs of earlier versions may name heads that their model never had.
        if !matches!(net.model.as_str(), "gat" | "gatv2") {
            net.heads = Config::HEADS;
        }
        let mut recipe = planned::recipe(&net, learning, planning, source.changes.seed)?;
        recipe.config.embed = planned::learned_features(source.changes.features.as_deref());
        if links::is_task(learning) {
            links::prepare(&mut recipe, &net, None);
        }
        Ok(recipe)
    }

    /// What the columns of a result mean.
    fn meaning(&self) -> LossKind {
        let loss = self.plan.steps.iter().find_map(|step| match step.operator {
            Operator::Loss(kind) => Some(kind),
            _ => None,
        });
        loss.unwrap_or(LossKind::Classes)
    }

    /// Columns of the network's results.
    fn outputs(&self) -> Result<usize> {
        match self.plan.values[self.plan.result].shape[1] {
            Dim::Width(outputs) => Ok(outputs),
            _ => {
                let place = self.folder.path().join("plan.json");
                Err(Error::file(place, "its result has no columns"))
            }
        }
    }

    /// The labels to compare with, by the columns of the network's results.
    fn labels(&self) -> Result<Labels> {
        let labels = self.dataset.labels().ok_or_else(|| {
            let problem = "has no labels to compare with; `lacis predict` needs none";
            Error::argument(format!("data set '{}'", self.dataset.name()), problem)
        })?;
        let names = rows::class_names(&self.folder)?;
        let learned = Learned { kind: self.meaning(), width: self.outputs()?, names: &names };
        learned.labels_of(&self.dataset, labels)
    }

    /// The network's results for all nodes, within a limit of memory.
    pub(crate) fn results(
        &self,
        what: What,
        (global, desk): (&Global, &Desk<'_>),
        limit: Option<usize>,
    ) -> std::result::Result<(Dense, Way), Failure> {
        let (results, way) =
            self.computed((global, desk), limit, |predictor, budget| predictor.run(what, budget))?;
        self.check_finite(first_odd(&results))?;
        Ok((results, way))
    }

    /// Scores of pairs, of a run that learned links.
    fn scores(
        &self,
        pairs: &[[u32; 2]],
        (global, desk): (&Global, &Desk<'_>),
        limit: Option<usize>,
    ) -> std::result::Result<(Vec<f32>, Way), Failure> {
        let (scores, way) = self
            .computed((global, desk), limit, |predictor, budget| predictor.scores(pairs, budget))?;
        self.check_finite(scores.iter().position(|score| !score.is_finite()))?;
        Ok((scores, way))
    }

    /// What a function makes of the run's network and the bytes that may still be taken.
    fn computed<R>(
        &self,
        (global, desk): (&Global, &Desk<'_>),
        limit: Option<usize>,
        compute: impl FnOnce(&Predictor<'_>, Option<usize>) -> Result<R>,
    ) -> std::result::Result<R, Failure> {
        let recipe = self.recipe()?;
        let path = machine::profile_path(global.machine.as_deref())?;
        let profile = planned::profile(desk, &path, (&self.dataset, &recipe))?;
        let outputs = match recipe.config.decoder {
            Some(_) => recipe.config.outputs,
            None => self.outputs()?,
        };
        check_features(&self.plan, &self.dataset)?;
        let on = On { dataset: &self.dataset, threads: &desk.threads, profile: &profile };
        let mut predictor = Predictor::new(on, recipe, outputs)?;
        predictor.load(&self.folder)?;
        let budget = limit.map(left_of).transpose()?;
        Ok(compute(&predictor, budget)?)
    }

    fn check_finite(&self, odd: Option<usize>) -> Result<()> {
        let Some(row) = odd else { return Ok(()) };
        let problem = format!(
            "its weights give numbers that are not finite, first in row {row}: the file is \
             damaged, or the training went wrong"
        );
        Err(Error::file(self.folder.model_path(), problem))
    }
}

/// Whether data have as many features as a plan was made for.
pub(crate) fn check_features(plan: &Plan, dataset: &Dataset) -> Result<()> {
    let given = plan.values.iter().find(|value| value.place == Place::Features);
    let learned = given.map(|value| value.shape[1]);
    let own = dataset.features().map_or(0, lacis::Features::width);
    match learned {
        Some(Dim::Width(learned)) if learned != own => {
            let problem = format!("has {own} features; the run learned from {learned}");
            Err(Error::argument(format!("data set '{}'", dataset.name()), problem))
        }
        _ => Ok(()),
    }
}

/// The first row that has a number that is none.
fn first_odd(x: &Dense) -> Option<usize> {
    (0..x.n_rows()).find(|&row| !x.row(row).iter().all(|number| number.is_finite()))
}

/// What the program itself touches for the first time while it predicts.
const PROGRAM_BYTES: usize = 1 << 20;

/// Bytes that may still be taken under a limit.
fn left_of(limit: usize) -> Result<usize> {
    let used = memory::now_bytes().unwrap_or(0) + PROGRAM_BYTES;
    limit.checked_sub(used).ok_or_else(|| {
        let problem = format!("the data alone take {} of {}", bytes(used), bytes(limit));
        Error::argument("--memory-limit", problem)
    })
}

/// The arguments of a run that learned links, with the data that it is to be used on.
fn links_of(run: &Path, data: Option<&str>) -> Result<Option<Train>> {
    let mut args = config::train_from(&RunFolder::open(run)?.read_config()?, run)?;
    if let Some(data) = data {
        args.source.is_now(data);
    }
    Ok(links::is_task(&args.learning).then_some(args))
}

/// How good a run is on all labelled nodes of another graph.
fn elsewhere(
    (run, data): (&Path, &str),
    metric: Metric,
    (global, desk): (&Global, &Desk<'_>),
) -> std::result::Result<f64, Failure> {
    let other = Again::open(run, Other::Named(data), desk)?;
    let labels = other.labels()?;
    let (logits, _) = other.results(What::Logits, (global, desk), None)?;
    let items = lacis::data::splits::known(&labels);
    let scored = Scored::new(&logits, &labels, &items, ScoreRow::OfItem)?;
    Ok(metric.of_items(&scored, &desk.threads)?)
}

/// Whether the run does what `--task` says.
fn check_task(args: &Eval, own: Task) -> Result<()> {
    match args.task.as_deref() {
        Some(asked) if asked.parse::<Task>()? != own => {
            let problem = format!("the run predicts {own:?}s").to_lowercase();
            Err(Error::argument(format!("--task {asked}"), problem))
        }
        _ => Ok(()),
    }
}

pub fn eval(args: &Eval, global: &Global, out: &Out, stop: &Stop) -> Outcome {
    let desk = Desk::new(global, out, stop)?;
    out.start("eval", args)?;
    if let Some(train) = links_of(&args.run, args.data.as_deref())? {
        check_task(args, Task::Link)?;
        return links::eval(args, &train, (global, &desk), out);
    }
    let again = Again::open(&args.run, args.data.as_deref().into(), &desk)?;
    check_task(args, planned::task(&again.dataset, None)?)?;
    let asked = args.metric.as_ref().or(again.args.learning.metric.as_ref());
    let metric = planned::metric(&again.dataset, asked.map(String::as_str))?;
    let labels = again.labels()?;
    let mut split = again.split(args.split.as_deref())?;
    let Split { train, val, test, .. } = &mut split;
    // Nobody of another graph trained: where nobody else judges, all do.
    if args.data.is_some() && args.split.is_none() && val.is_empty() && test.is_empty() {
        std::mem::swap(train, test);
    }
    let (logits, _) = again.results(What::Logits, (global, &desk), None)?;
    let of = |items: &[u32]| -> Result<Option<f64>> {
        if items.is_empty() {
            return Ok(None);
        }
        let scored = Scored::new(&logits, &labels, items, ScoreRow::OfItem)?;
        metric.of_items(&scored, &desk.threads).map(Some)
    };
    let (train, mut val, mut test) = (of(&split.train)?, of(&split.val)?, of(&split.test)?);
    // A run on one graph may be judged by others: those named here, else those it was begun with.
    let begun = &again.args.learning;
    let named = |typed: &Option<String>, own: &Option<String>| match (typed, &args.data) {
        (None, None) => own.clone(),
        (typed, _) => typed.clone(),
    };
    for (data, score) in [
        (named(&args.val_data, &begun.val_data), &mut val),
        (named(&args.test_data, &begun.test_data), &mut test),
    ] {
        if let Some(data) = data {
            *score = Some(elsewhere((&args.run, &data), metric, (global, &desk))?);
        }
    }
    let name = metric.to_string();
    out.event("eval", &json!({ "metric": name, "train": train, "val": val, "test": test }))?;
    let text = |score: Option<f64>| score.map_or("-".to_owned(), |s| format!("{s:.4}"));
    out.line(format_args!(
        "{name}   test {}   val {}   train {}",
        text(test),
        text(val),
        text(train)
    ))
}

pub fn predict(args: &Predict, global: &Global, out: &Out, stop: &Stop) -> Outcome {
    let limit = args.memory_limit.as_deref().map(machine::memory_limit).transpose()?;
    let desk = Desk::new(global, out, stop)?;
    out.start("predict", args)?;
    pairs::check(args, links_of(&args.run, args.data.as_deref())?.is_some())?;
    // Better to hear now than after an hour of computing.
    let ending = rows::ending(&args.output)?;
    let existing = if args.overwrite { Existing::Replace } else { Existing::Keep };
    let staged = Staged::new(&args.output, existing)?;
    let again = Again::open(&args.run, args.data.as_deref().into(), &desk)?;
    if let Some(file) = &args.pairs {
        return predict_pairs((args, file, ending), &again, (global, &desk, limit), (out, staged));
    }
    let asked = Asked::new(&args.what, again.meaning())?;
    let of = if again.dataset.collection().is_some() { Of::Graphs } else { Of::Nodes };
    let nodes = chosen_nodes(args.nodes.as_deref(), of, &again.dataset)?;
    let what = if asked == Asked::Embeddings { What::Embeddings } else { What::Logits };
    let (results, way) = again.results(what, (global, &desk), limit)?;
    out.detail(match &way {
        Way::Whole(plan) => format!("plan {plan} over the whole graph"),
        Way::Blocks(count) => format!("layer by layer, {count} blocks of rows"),
    });
    let names = rows::class_names(&again.folder)?;
    let rows = Rows { asked, results: &results, of, chosen: &nodes, set: &again.dataset, names };
    rows.write(ending, &args.output, staged.path())?;
    staged.commit()?;
    let path = args.output.display().to_string();
    let blocks = if let Way::Blocks(count) = way { Some(count) } else { None };
    let body = json!({ "path": path, "rows": rows.len(), "columns": rows.width(),
                       "what": args.what, "blocks": blocks,
                       "peak_rss_bytes": memory::peak_bytes() });
    out.event("written", &body)?;
    if let Some(legend) = rows.legend(ending) {
        out.note(legend);
    }
    let (count, of) = (grouped(rows.len()), of.name());
    out.line(format_args!("wrote {path}: {} of {count} {of}s", args.what))
}

/// How likely each pair of a file is an edge.
fn predict_pairs(
    (args, file, ending): (&Predict, &Path, rows::Ending),
    again: &Again,
    (global, desk, limit): (&Global, &Desk<'_>, Option<usize>),
    (out, staged): (&Out, Staged),
) -> Outcome {
    let set = &again.dataset;
    let pairs = pairs::read(file, set)?;
    let (scores, way) = again.scores(&pairs, (global, desk), limit)?;
    let logits = args.what == "logits";
    let scored = pairs::Scored { set, pairs: &pairs, scores: &scores, logits };
    scored.write(ending, &args.output, staged.path())?;
    staged.commit()?;
    let path = args.output.display().to_string();
    let columns = if ending == rows::Ending::Npy { 1 } else { 4 };
    let body = json!({ "path": path, "rows": pairs.len(), "columns": columns, "what": "links",
                       "blocks": pairs::blocks(&way), "peak_rss_bytes": memory::peak_bytes() });
    out.event("written", &body)?;
    out.line(format_args!("wrote {path}: scores of {} pairs", grouped(pairs.len())))
}
