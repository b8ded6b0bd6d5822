//! `--task link`: what it trains on, and how its runs are judged and asked about pairs.

use std::path::Path;
use std::sync::Arc;

use lacis::data::Job as Reading;
use lacis::kernels::Profile;
use lacis::link::Links;
use lacis::metrics::{Metric, Task};
use lacis::nn::Decoder;
use lacis::store::RunFolder;
use lacis::train::state::load_model;
use lacis::train::{Job, Recipe, Trainer};
use lacis::{Dataset, Result, Split};
use serde_json::json;

use crate::args::Global;
use crate::args_train::{Eval, Learning, Net, Train};
use crate::data::Desk;
use crate::machine;
use crate::out::{Out, Outcome, grouped};
use crate::planned;
use crate::predict::check_features;
use crate::train::run::read_plan;

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

/// What a recipe learns from: the data of training edges alone where links are learned, else all,
/// and the split of their labels; and in words who trains and who judges.
///
/// # Errors
/// When the data has nothing of that kind to learn, or nobody trains.
pub fn learned_from<'a>(
    recipe: &mut Recipe,
    (net, learning): (&Net, &Learning),
    (dataset, linked): (&'a Dataset, &'a Option<Linked>),
) -> Result<(&'a Dataset, Split, String)> {
    if let Some(Linked { dataset, links }) = linked {
        prepare(recipe, net, Some(links));
        return Ok((dataset, Split::default(), in_words(links)));
    }
    let (split, words) = planned::split_for(dataset, learning, recipe.seed)?;
    planned::check_trains(&split)?;
    Ok((dataset, split, words))
}

/// Whether links were asked for.
pub fn is_task(learning: &Learning) -> bool {
    learning.task.as_deref() == Some("link")
}

/// Tells a recipe that it is of links: a decoder, and how wide a node's row is.
pub fn prepare(recipe: &mut Recipe, net: &Net, links: Option<&Arc<Links>>) {
    recipe.config.outputs = net.embedding.unwrap_or((recipe.config.hidden / 2).max(1));
    recipe.config.decoder = Some(match net.decoder.as_deref() {
        Some("mlp") => Decoder::Mlp,
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
    (desk, profile): (&Desk<'_>, &Profile),
    pairs: &[[u32; 2]],
) -> Result<Vec<f32>> {
    let split = Split::default();
    let job = Job { dataset: set, split: &split, threads: &desk.threads, profile };
    let mut trainer = trained(run, args, &job)?;
    trainer.set_pairs(pairs)?;
    trainer.logits(|scores| (0..scores.n_rows()).map(|i| scores.row(i)[0]).collect())
}

/// `lacis eval` of a run that learned links: the same split of the edges, by the run's seed.
pub fn eval(
    args: &Eval,
    train: &Train,
    (global, desk): (&Global, &Desk<'_>),
    out: &Out,
) -> Outcome {
    planned::no_labels(&[
        ("--split", args.split.is_some()),
        ("--val-data", args.val_data.is_some()),
        ("--test-data", args.test_data.is_some()),
    ])?;
    let dataset = desk.open(&train.source)?;
    check_features(&read_plan(&args.run.join("plan.json"))?, &dataset)?;
    let seed = train.source.changes.seed;
    let linked = linked(&train.learning, &dataset, seed, desk)?.expect("links were learned");
    let asked = args.metric.as_ref().or(train.learning.metric.as_ref());
    let metric = planned::metric_of(Task::Link, &dataset, asked.map(String::as_str))?;
    // Plans, and so the last bits, are those of the training.
    let recipe = planned::recipe(&train.net, &train.learning, &train.planning, seed)?;
    let path = machine::profile_path(global.machine.as_deref())?;
    let profile = planned::profile(desk, &path, (&linked.dataset, &recipe))?;
    let with = (desk, &profile);
    let found = scores(&args.run, train, &linked.dataset, with, linked.links.judged())?;
    let mat = lacis::kernels::Mat::new(&found, found.len(), 1, 1)?;
    let [train, val, test] = linked.links.score(metric, mat)?;
    report(out, metric, [train, val, test])
}

fn report(out: &Out, metric: Metric, [train, val, test]: [f64; 3]) -> Outcome {
    let name = metric.to_string();
    out.event("eval", &json!({ "metric": name, "train": train, "val": val, "test": test }))?;
    out.line(format_args!("{name}   test {test:.4}   val {val:.4}   train {train:.4}"))
}
