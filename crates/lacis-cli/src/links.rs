//! `--task link`: what it trains on, and how its runs are judged and asked about pairs.

use std::collections::HashMap;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;

use lacis::data::Job as Reading;
use lacis::data::staged::{Existing, Staged};
use lacis::kernels::Profile;
use lacis::link::Links;
use lacis::machine::this_machine;
use lacis::metrics::{Metric, Task};
use lacis::nn::Decoder;
use lacis::store::RunFolder;
use lacis::train::state::load_model;
use lacis::train::{Job, Recipe, Trainer};
use lacis::{Dataset, Error, Result, Split};
use serde_json::json;

use crate::args_train::{Eval, Learning, Net, Predict, Train};
use crate::data::Desk;
use crate::out::{Out, Outcome, grouped};
use crate::planned;

/// Data whose graph is that of the training edges, and the pairs to learn.
pub struct Linked {
    pub dataset: Dataset,
    pub links: Arc<Links>,
}

/// What links are learned from, where they are.
pub fn linked(
    learning: &Learning,
    dataset: &Dataset,
    seed: u64,
    desk: &Desk<'_>,
) -> Result<Option<Linked>> {
    if !is_task(learning) {
        return Ok(None);
    }
    planned::task(dataset, learning.task.as_deref())?;
    let links = Links::new(dataset.graph(), seed, &Reading::quiet(&desk.threads))?;
    let mut message = Dataset::new(dataset.name(), links.message().clone());
    if let Some(features) = dataset.features() {
        message = message.with_features(features.clone())?;
    }
    if let Some(ids) = dataset.ids() {
        message = message.with_ids(ids.clone())?;
    }
    Ok(Some(Linked { dataset: message, links: Arc::new(links) }))
}

/// Whether links were asked for.
pub fn is_task(learning: &Learning) -> bool {
    learning.task.as_deref() == Some("link")
}

/// Tells a recipe that it is of links: a decoder, and how wide a node's row is.
pub fn prepare(recipe: &mut Recipe, net: &Net, links: Option<&Arc<Links>>) {
    recipe.config.outputs = net.embedding.unwrap_or((recipe.config.hidden / 2).max(1));
    recipe.config.decoder = Some(match net.decoder.as_str() {
        "mlp" => Decoder::Mlp,
        _ => Decoder::Dot,
    });
    recipe.links = links.cloned();
}

/// The split in words.
pub fn in_words(links: &Links) -> String {
    let [train, val, test] = links.counts().map(grouped);
    format!("{train} edges train, {val} validate, {test} test, beside as many pairs without one")
}

/// The network of a run with its weights, to score pairs along the edges that it trained on.
fn trained<'j>(run: &Path, args: &Train, job: &'j Job<'j>) -> Result<Trainer<'j>> {
    let seed = args.source.changes.seed;
    let mut recipe = planned::recipe(&args.net, &args.learning, &args.planning, seed)?;
    recipe.config.embed = planned::learned_features(args.source.changes.features.as_deref());
    prepare(&mut recipe, &args.net, None);
    let outputs = recipe.config.outputs;
    let mut trainer = Trainer::for_inference(job, recipe, outputs)?;
    let folder = RunFolder::open(run)?;
    let model = trainer.model().clone();
    let moments = load_model(&model, trainer.params_mut(), folder.read_model()?)?;
    trainer.set_moments(moments);
    Ok(trainer)
}

/// Scores of some pairs by a run.
fn scores(
    run: &Path,
    args: &Train,
    set: &Dataset,
    desk: &Desk<'_>,
    pairs: &[[u32; 2]],
) -> Result<Vec<f32>> {
    let (profile, split) = (Profile::unmeasured(this_machine()), Split::default());
    let job = Job { dataset: set, split: &split, threads: &desk.threads, profile: &profile };
    let mut trainer = trained(run, args, &job)?;
    trainer.set_pairs(pairs)?;
    trainer.logits(|scores| (0..scores.n_rows()).map(|i| scores.row(i)[0]).collect())
}

/// `lacis eval` of a run that learned links: the same split of the edges, by the run's seed.
pub fn eval(args: &Eval, train: &Train, desk: &Desk<'_>, out: &Out) -> Outcome {
    let dataset = desk.open(&train.source)?;
    let seed = train.source.changes.seed;
    let linked = linked(&train.learning, &dataset, seed, desk)?.expect("links were learned");
    let metric = planned::metric_of(Task::Link, &dataset, args.metric.as_deref())?;
    let found = scores(&args.run, train, &linked.dataset, desk, linked.links.judged())?;
    let mat = lacis::kernels::Mat::new(&found, found.len(), 1, 1)?;
    let [train, val, test] = linked.links.score(metric, mat)?;
    report(out, metric, [train, val, test])
}

fn report(out: &Out, metric: Metric, [train, val, test]: [f64; 3]) -> Outcome {
    let name = metric.to_string();
    out.event("eval", &json!({ "metric": name, "train": train, "val": val, "test": test }))?;
    out.line(format_args!("{name}   test {test:.4}   val {val:.4}   train {train:.4}"))
}

/// `lacis predict --pairs` of a run that learned links: how likely each pair is an edge.
pub fn predict(args: &Predict, train: &Train, desk: &Desk<'_>, out: &Out) -> Outcome {
    let Some(file) = &args.pairs else {
        let problem = "the run predicts links; --pairs FILE.csv says which pairs to score";
        return Err(Error::argument(args.run.display().to_string(), problem).into());
    };
    let existing = if args.overwrite { Existing::Replace } else { Existing::Keep };
    let staged = Staged::new(&args.output, existing)?;
    let dataset = desk.open(&train.source)?;
    // On its own data a run scores along the edges that it trained on; on other data, along all.
    let seed = train.source.changes.seed;
    let own = args.data.is_none();
    let linked = if own { linked(&train.learning, &dataset, seed, desk)? } else { None };
    let set = linked.as_ref().map_or(&dataset, |linked| &linked.dataset);
    let pairs = read_pairs(file, set)?;
    let found = scores(&args.run, train, set, desk, &pairs)?;
    write(args, (set, &pairs, &found), staged.path())?;
    staged.commit()?;
    let path = args.output.display().to_string();
    out.event("written", &json!({ "path": path, "rows": pairs.len(), "what": "links" }))?;
    out.line(format_args!("wrote {path}: scores of {} pairs", grouped(pairs.len())))
}

/// Two nodes a line, by the data's own names or by number; a first line of words is a heading.
fn read_pairs(path: &Path, set: &Dataset) -> Result<Vec<[u32; 2]>> {
    let text = std::fs::read_to_string(path).map_err(|e| Error::io("open", path, e))?;
    let n = set.graph().n_nodes();
    let names: Option<HashMap<&str, u32>> =
        set.ids().map(|ids| ids.iter().enumerate().map(|(i, id)| (id, i as u32)).collect());
    let node = |word: &str| match &names {
        Some(names) => names.get(word).copied(),
        None => word.parse().ok().filter(|&node: &u32| (node as usize) < n),
    };
    let mut pairs = Vec::new();
    for (at, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        let words: Vec<&str> =
            line.split([',', '\t', ' ']).map(str::trim).filter(|word| !word.is_empty()).collect();
        match words.as_slice() {
            [a, b, ..] => match (node(a), node(b)) {
                (Some(a), Some(b)) => pairs.push([a, b]),
                (None, None) if at == 0 => {}
                _ => {
                    let line = line.trim();
                    let problem =
                        format!("line {} is '{line}', and not two nodes of the data", at + 1);
                    return Err(Error::file(path, problem));
                }
            },
            _ => {
                let problem = format!("line {} has no two nodes: source,target", at + 1);
                return Err(Error::file(path, problem));
            }
        }
    }
    Ok(pairs)
}

fn write(
    args: &Predict,
    (set, pairs, scores): (&Dataset, &[[u32; 2]], &[f32]),
    to: &Path,
) -> Result<()> {
    let probability = |score: f32| 1.0 / (1.0 + (-score).exp());
    let ending = args.output.extension().and_then(|ending| ending.to_str());
    let mut bytes = Vec::new();
    match ending {
        Some("csv") => {
            let name = |i: u32| match set.ids() {
                Some(ids) => ids.get(i as usize).to_owned(),
                None => i.to_string(),
            };
            let _ = writeln!(bytes, "source,target,prob,logit");
            for ([a, b], score) in pairs.iter().zip(scores) {
                let (a, b, p) = (name(*a), name(*b), probability(*score));
                let _ = writeln!(bytes, "{a},{b},{p},{score}");
            }
        }
        Some("npy") => {
            let numbers: Vec<f32> = match args.what.as_str() {
                "logits" => scores.to_vec(),
                _ => scores.iter().copied().map(probability).collect(),
            };
            bytes = npy(&numbers);
        }
        _ => {
            let problem = "ends in neither .csv nor .npy";
            return Err(Error::argument(format!("-o {}", args.output.display()), problem));
        }
    }
    std::fs::write(to, bytes).map_err(|e| Error::io("write", &args.output, e))
}

/// A vector as NumPy keeps it: the numbers begin at a multiple of 64 bytes.
fn npy(numbers: &[f32]) -> Vec<u8> {
    let shape = numbers.len();
    let mut head = format!("{{'descr': '<f4', 'fortran_order': False, 'shape': ({shape},), }}");
    head.push_str(&" ".repeat((64 - (10 + head.len() + 1) % 64) % 64));
    head.push('\n');
    let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
    bytes.extend((head.len() as u16).to_le_bytes());
    bytes.extend(head.as_bytes());
    numbers.iter().for_each(|x| bytes.extend(x.to_le_bytes()));
    bytes
}
