//! `lacis eval` and `lacis predict`: a run's weights on its own data, or on other data.

use std::io::Write;
use std::path::Path;

use lacis::data::staged::{Existing, Staged};
use lacis::metrics::{Metric, ScoreRow, Scored};
use lacis::params::Params;
use lacis::store::RunFolder;
use lacis::train::state::load_model;
use lacis::train::{Job, Trainer};
use lacis::{Dataset, Dense, Error, Labels, Result, Split};
use serde_json::json;

use crate::args::Global;
use crate::args_train::{Eval, Predict, Train};
use crate::config;
use crate::data::Desk;
use crate::links;
use crate::out::{Failure, Out, Outcome, grouped};
use crate::planned;
use crate::progress::Stop;
use crate::train::run::read_plan;

/// A run that was read again, and the data to use it on.
pub(crate) struct Again {
    args: Train,
    dataset: Dataset,
    split: Split,
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
        let text = RunFolder::open(run)?.read_config()?;
        let mut args = config::train_from(&text, run)?;
        match data {
            Other::None => {}
            Other::Named(data) => args.source.data = data.to_owned(),
            Other::Given(set) => args.source.given = Some(*set),
        }
        let dataset = desk.open(&args.source)?;
        let seed = args.source.changes.seed;
        // Predictions need no labels: a split of none will do.
        let split = match dataset.labels() {
            None => Split::default(),
            Some(labels) => {
                let split = planned::split_for(&dataset, &args.learning, seed)?.0;
                match (&args.learning.val_data, &args.learning.split) {
                    (Some(_), None) => lacis::data::splits::all(labels)?,
                    _ => split,
                }
            }
        };
        Ok(Again { args, dataset, split })
    }

    /// The network's results for all nodes.
    pub(crate) fn logits(
        &self,
        run: &Path,
        desk: &Desk<'_>,
    ) -> std::result::Result<Dense, Failure> {
        let seed = self.args.source.changes.seed;
        let mut recipe =
            planned::recipe(&self.args.net, &self.args.learning, &self.args.planning, seed)?;
        let features = self.args.source.changes.features.as_deref();
        recipe.config.embed = planned::learned_features(features);
        let machine = lacis::machine::this_machine();
        let profile = lacis::kernels::Profile::unmeasured(machine);
        let job = Job {
            dataset: &self.dataset,
            split: &self.split,
            threads: &desk.threads,
            profile: &profile,
        };
        let plan = read_plan(&run.join("plan.json"))?;
        let outputs = plan.values[plan.result].shape[1];
        let lacis::plan::Dim::Width(outputs) = outputs else {
            return Err(Error::file(run.join("plan.json"), "its result has no columns").into());
        };
        let mut trainer = Trainer::for_inference(&job, recipe, outputs)?;
        let tensors = RunFolder::open(run)?.read_model()?;
        let model = trainer.model().clone();
        let params: &mut Params = trainer.params_mut();
        let moments = load_model(&model, params, tensors)?;
        trainer.set_moments(moments);
        Ok(trainer.logits(|scores| {
            let mut all = Dense::zeros(scores.n_rows(), scores.n_cols());
            (0..scores.n_rows()).for_each(|i| all.row_mut(i).copy_from_slice(scores.row(i)));
            all
        })?)
    }
}

/// The arguments of a run that learned links, with the data that it is to be used on.
fn links_of(run: &Path, data: Option<&str>) -> Result<Option<Train>> {
    let mut args = config::train_from(&RunFolder::open(run)?.read_config()?, run)?;
    if let Some(data) = data {
        args.source.data = data.to_owned();
    }
    Ok(links::is_task(&args.learning).then_some(args))
}

/// How good a run is on all labelled nodes of another graph.
fn elsewhere(
    run: &Path,
    data: &str,
    metric: Metric,
    desk: &Desk<'_>,
) -> std::result::Result<f64, Failure> {
    let other = Again::open(run, Other::Named(data), desk)?;
    let logits = other.logits(run, desk)?;
    let labels = other.dataset.labels().ok_or_else(|| {
        Error::argument(format!("data set '{data}'"), "has no labels to compare with")
    })?;
    let items = lacis::data::splits::known(labels);
    let logits = lacis::kernels::Mat::from(&logits).columns(0, labels.width())?;
    let scored = Scored::new(logits, labels, &items, ScoreRow::OfItem)?;
    Ok(metric.of_items(&scored, &desk.threads)?)
}

pub fn eval(args: &Eval, global: &Global, out: &Out, stop: &Stop) -> Outcome {
    let desk = Desk::new(global, out, stop)?;
    out.start("eval", args)?;
    if let Some(train) = links_of(&args.run, args.data.as_deref())? {
        return links::eval(args, &train, &desk, out);
    }
    let again = Again::open(&args.run, args.data.as_deref().into(), &desk)?;
    let metric = planned::metric(&again.dataset, args.metric.as_deref())?;
    let logits = again.logits(&args.run, &desk)?;
    let labels = again.dataset.labels().ok_or_else(|| {
        Error::argument(format!("data set '{}'", again.dataset.name()), "has no labels to compare")
    })?;
    let of = |items: &[u32]| -> Result<Option<f64>> {
        if items.is_empty() {
            return Ok(None);
        }
        let scored = Scored::new(&logits, labels, items, ScoreRow::OfItem)?;
        metric.of_items(&scored, &desk.threads).map(Some)
    };
    let split = &again.split;
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
            *score = Some(elsewhere(&args.run, &data, metric, &desk)?);
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
    let desk = Desk::new(global, out, stop)?;
    out.start("predict", args)?;
    if let Some(train) = links_of(&args.run, args.data.as_deref())? {
        return links::predict(args, &train, &desk, out);
    }
    let ending = args.output.extension().and_then(|e| e.to_str()).unwrap_or_default();
    if !matches!(ending, "npy" | "csv") {
        let problem = "ends in neither .npy nor .csv";
        return Err(Error::argument(args.output.display().to_string(), problem).into());
    }
    let again = Again::open(&args.run, args.data.as_deref().into(), &desk)?;
    let nodes = chosen_nodes(args.nodes.as_deref(), again.dataset.graph().n_nodes())?;
    let logits = again.logits(&args.run, &desk)?;
    let existing = if args.overwrite { Existing::Replace } else { Existing::Keep };
    let staged = Staged::new(&args.output, existing)?;
    let rows = Rows { what: &args.what, logits: &logits, nodes: &nodes, set: &again.dataset };
    let bytes = match ending {
        "npy" => rows.npy(),
        _ => rows.csv(),
    };
    let to = staged.path().to_owned();
    std::fs::write(&to, bytes).map_err(|e| Error::io("write", &args.output, e))?;
    staged.commit()?;
    let path = args.output.display().to_string();
    out.event("written", &json!({ "path": path, "rows": nodes.len(), "what": args.what }))?;
    out.line(format_args!("wrote {path}: {} of {} nodes", args.what, grouped(nodes.len())))
}

/// Numbers of nodes, one a line; all where no file was named.
fn chosen_nodes(file: Option<&Path>, n: usize) -> Result<Vec<u32>> {
    let Some(path) = file else { return Ok((0..n as u32).collect()) };
    let text = std::fs::read_to_string(path).map_err(|e| Error::io("open", path, e))?;
    let mut nodes = Vec::new();
    for (at, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        match line.trim().parse::<u32>() {
            Ok(node) if (node as usize) < n => nodes.push(node),
            _ => {
                let problem =
                    format!("line {} is '{}', which is no node below {n}", at + 1, line.trim());
                return Err(Error::file(path, problem));
            }
        }
    }
    Ok(nodes)
}

/// What is written of each node.
struct Rows<'a> {
    what: &'a str,
    logits: &'a Dense,
    nodes: &'a [u32],
    set: &'a Dataset,
}

impl Rows<'_> {
    fn is_classes(&self) -> bool {
        !matches!(self.set.labels(), Some(Labels::Multi(_) | Labels::Targets(_)))
    }

    fn greatest(row: &[f32]) -> usize {
        (0..row.len()).fold(0, |best, j| if row[j] > row[best] { j } else { best })
    }

    /// The numbers of a node: logits, probabilities, or what they mean.
    fn numbers(&self, node: u32) -> Vec<f32> {
        let row = self.logits.row(node as usize);
        match (self.what, self.is_classes()) {
            ("probs", true) => {
                let most = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
                let powers: Vec<f32> = row.iter().map(|x| (x - most).exp()).collect();
                let sum: f32 = powers.iter().sum();
                powers.iter().map(|p| p / sum).collect()
            }
            ("probs", false) => row.iter().map(|x| 1.0 / (1.0 + (-x).exp())).collect(),
            ("labels", true) => vec![Self::greatest(row) as f32],
            ("labels", false) => row.iter().map(|x| f32::from(u8::from(*x > 0.0))).collect(),
            _ => row.to_vec(),
        }
    }

    /// A class's name, or its number.
    fn class(&self, node: u32) -> String {
        let best = Self::greatest(self.logits.row(node as usize));
        match self.set.labels() {
            Some(Labels::Classes { names, .. }) if names.len() > best => names[best].clone(),
            _ => best.to_string(),
        }
    }

    fn csv(&self) -> Vec<u8> {
        let labels = self.what == "labels" && self.is_classes();
        let mut text = Vec::new();
        let width = self.logits.n_cols();
        let columns: Vec<String> = (0..width).map(|c| format!("{}_{c}", self.what)).collect();
        let head = if labels { "label".to_owned() } else { columns.join(",") };
        let _ = writeln!(text, "node,{head}");
        for &node in self.nodes {
            let body = match labels {
                true => quoted(&self.class(node)),
                false => {
                    let numbers = self.numbers(node);
                    numbers.iter().map(f32::to_string).collect::<Vec<_>>().join(",")
                }
            };
            let name = match self.set.ids() {
                Some(ids) => quoted(ids.get(node as usize)),
                None => node.to_string(),
            };
            let _ = writeln!(text, "{name},{body}");
        }
        text
    }

    fn npy(&self) -> Vec<u8> {
        let labels = self.what == "labels" && self.is_classes();
        let (kind, shape) = match labels {
            true => ("<i8", format!("({},)", self.nodes.len())),
            false => ("<f4", format!("({}, {})", self.nodes.len(), self.logits.n_cols())),
        };
        let mut head = format!("{{'descr': '{kind}', 'fortran_order': False, 'shape': {shape}, }}");
        // The data begin at a multiple of 64 bytes; magic, version and length are 10.
        let pad = (64 - (10 + head.len() + 1) % 64) % 64;
        head.push_str(&" ".repeat(pad));
        head.push('\n');
        let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
        bytes.extend((head.len() as u16).to_le_bytes());
        bytes.extend(head.as_bytes());
        for &node in self.nodes {
            match labels {
                true => {
                    let best = Self::greatest(self.logits.row(node as usize)) as i64;
                    bytes.extend(best.to_le_bytes());
                }
                false => self.numbers(node).iter().for_each(|x| bytes.extend(x.to_le_bytes())),
            }
        }
        bytes
    }
}

/// A CSV field, in quotes where it needs them.
fn quoted(text: &str) -> String {
    match text.contains([',', '"', '\n']) {
        true => format!("\"{}\"", text.replace('"', "\"\"")),
        false => text.to_owned(),
    }
}
