//! From what was typed to what the library takes: recipe, split, metric, profile.

use std::path::Path;

use lacis::approx::{self, Allocation, Policy};
use lacis::data::Job;
use lacis::data::splits::{self, FoldVal, Folds, Fractions, Planetoid};
use lacis::kernels::Profile;
use lacis::machine::this_machine;
use lacis::metrics::{Metric, Task};
use lacis::nn::sage::Aggregate;
use lacis::nn::{self, Config};
use lacis::params::Optimizer;
use lacis::plan::choose::{RuleSet, SAVINGS, Settings};
use lacis::plan::op::{NormKind, Read};
use lacis::plan::plan::Precision;
use lacis::reference::{Adam, Decay, Sgd};
use lacis::sample::Sampling;
use lacis::schedule::parse_schedule;
use lacis::train::Recipe;
use lacis::tune::file::load;
use lacis::{Dataset, Error, Labels, Result, Split, Threads};

use crate::args_train::{Approximation, Learning, Net, Planning};
use crate::data::Desk;
use crate::defaults::Typed;
use crate::machine;
use crate::out::{Failure, Out};
use crate::tune::profile_for;

/// Entries times columns from which on it pays to measure this machine first.
const WORTH_MEASURING: usize = 1 << 25;

pub fn recipe(net: &Net, learning: &Learning, planning: &Planning, seed: u64) -> Result<Recipe> {
    nn::kind(&net.model)?;
    let hidden = net.hidden.unwrap_or(64);
    let mut config = Config::new(1, hidden, 1);
    config.layers = net.layers;
    config.heads = net.heads;
    config.out_heads = net.out_heads;
    config.slope = net.negative_slope;
    config.dropout = net.dropout;
    config.input_dropout = net.input_dropout;
    config.edge_dropout = net.edge_dropout;
    config.mlp_layers = net.mlp_layers;
    config.norm = match net.norm.as_str() {
        "batch" => Some(NormKind::Batch),
        "layer" => Some(NormKind::Layer),
        _ => None,
    };
    config.aggregate = match net.aggregate.as_str() {
        "sum" => Aggregate::Sum,
        "max" => Aggregate::Max,
        _ => Aggregate::Mean,
    };
    config.eps = net.eps;
    config.learn_eps = net.learn_eps;
    config.bias = !net.no_bias;
    config.root_weight = !net.no_root_weight;
    config.normalize = net.normalize;
    config.degrees = !net.no_normalize;
    config.alpha = net.teleport;
    config.theta = net.theta;
    config.shared_weights = !net.no_shared_weights;
    config.residual = net.residual;
    config.jumping = net.jumping.as_deref().map(str::parse).transpose()?;
    config.hops = net.hops;
    nn::options::check(&net.model, &config)?;
    check_links_options(net, learning)?;
    config.readout = Some(match net.readout.as_str() {
        "mean" => Read::Mean,
        "max" => Read::Max,
        _ => Read::Sum,
    });
    let (warm_up, decay) = parse_schedule(&learning.schedule, learning.epochs)?;
    Ok(Recipe {
        sample: sampling(learning)?,
        batch_size: learning.batch_size,
        clip: clip(learning.clip)?,
        warm_up,
        decay,
        optimizer: optimizer(learning)?,
        epochs: learning.epochs,
        seed,
        settings: settings(planning)?,
        eval_every: learning.eval_every,
        ..Recipe::new(net.model.clone(), config)
    })
}

/// Says of flags that wait for better scores that there are none to wait for.
///
/// # Errors
/// With the first of them.
pub fn check_waiting(learning: &Learning) -> Result<()> {
    let plateau = learning.schedule.split(',').any(|part| part.starts_with("plateau"));
    let waits = match learning.patience {
        Some(_) => Some("--patience"),
        None => plateau.then_some("--schedule plateau"),
    };
    match waits {
        Some(flag) if learning.eval_every == 0 => {
            let problem = "does nothing with --eval-every 0, which evaluates at the end only";
            Err(Error::argument(flag, problem))
        }
        _ => Ok(()),
    }
}

/// Says of `--batch-size` that it does nothing where there are no batches.
///
/// # Errors
/// When it was given for nothing.
pub fn check_batches(learning: &Learning, dataset: &Dataset) -> Result<()> {
    let Learning { batch_size, sample, num_neighbors, .. } = learning;
    let batches = sample.is_some() || num_neighbors.is_some() || dataset.collection().is_some();
    match batch_size {
        Some(_) if !batches => {
            let problem = "does nothing without --sample: all nodes train at once";
            Err(Error::argument("--batch-size", problem))
        }
        _ => Ok(()),
    }
}

/// Says of options of links that they do nothing elsewhere, and of those of labels that they do
/// nothing for links, whose edges are split by the seed.
fn check_links_options(net: &Net, learning: &Learning) -> Result<()> {
    if learning.task.as_deref() == Some("link") {
        let Learning { split, val_data, test_data, folds, .. } = learning;
        return no_labels(&[
            ("--split", split.is_some()),
            ("--folds", folds.is_some()),
            ("--val-data", val_data.is_some()),
            ("--test-data", test_data.is_some()),
        ]);
    }
    // Runs keep what is usual, `dot`, whatever they learned.
    let decoder = net.decoder.as_deref() == Some("mlp");
    let asked = [("--decoder", decoder), ("--embedding", net.embedding.is_some())];
    match asked.iter().find(|(_, asked)| *asked) {
        Some((name, _)) => Err(Error::argument(*name, "does nothing without --task link")),
        None => Ok(()),
    }
}

/// Says of flags that say who trains and who judges that they do nothing for links.
///
/// # Errors
/// With the first that was given.
pub fn no_labels(flags: &[(&'static str, bool)]) -> Result<()> {
    let problem = "does nothing where links are learned: 5 % of the edges validate and 10 % test, \
                   by --seed";
    match flags.iter().find(|(_, given)| *given) {
        Some((flag, _)) => Err(Error::argument(*flag, problem)),
        None => Ok(()),
    }
}

/// How batches are drawn, in whichever spelling it was asked for.
fn sampling(learning: &Learning) -> Result<Option<Sampling>> {
    let list = learning.num_neighbors.as_ref().map(|list| format!("neighbor:{list}"));
    learning.sample.clone().or(list).map(|text| text.parse()).transpose()
}

fn clip(limit: Option<f64>) -> Result<Option<f64>> {
    match limit {
        Some(limit) if !(limit > 0.0 && limit.is_finite()) => {
            Err(Error::argument("--clip", format!("{limit} is no length above 0")))
        }
        limit => Ok(limit),
    }
}

/// Says of flags that were typed without `--approx` that they do nothing.
///
/// # Errors
/// With the first of them.
pub fn check_approximation(asked: &Approximation, typed: &Typed) -> Result<()> {
    let needs = ["budget", "error", "bound", "switch", "interval", "allocation", "force"];
    let idle = needs.iter().find(|name| typed.was_typed(&format!("approx_{name}")));
    match idle {
        Some(name) if asked.approx == "off" => {
            let problem = "does nothing without --approx rsc or --approx adaptive";
            Err(Error::argument(format!("--approx-{name}"), problem))
        }
        _ => Ok(()),
    }
}

/// How backward products are approximated, if they are.
pub fn approximation(asked: &Approximation) -> Option<approx::Settings> {
    let policy = match asked.approx.as_str() {
        "rsc" => Policy::Rsc,
        "adaptive" => Policy::Adaptive,
        _ => return None,
    };
    let allocation = match asked.approx_allocation.as_str() {
        "uniform" => Allocation::Uniform,
        _ => Allocation::Layers,
    };
    Some(approx::Settings {
        policy,
        budget: asked.approx_budget,
        error: asked.approx_error,
        bound: asked.approx_bound,
        switch: asked.approx_switch,
        interval: asked.approx_interval,
        allocation,
        force: asked.approx_force,
    })
}

/// Columns of features that are learned, where `--features learned:F` asked for them.
pub fn learned_features(asked: Option<&str>) -> Option<usize> {
    asked?.strip_prefix("learned:")?.parse().ok()
}

fn optimizer(learning: &Learning) -> Result<Optimizer> {
    let Learning { lr: rate, weight_decay, momentum, .. } = *learning;
    for (name, number) in [("lr", rate), ("weight-decay", weight_decay), ("momentum", momentum)] {
        if !number.is_finite() || number < 0.0 {
            let problem = format!("{number} is no number from 0 on");
            return Err(Error::argument(format!("--{name}"), problem));
        }
    }
    if momentum != 0.0 && learning.optimizer != "sgd" {
        let problem = format!("does nothing for {}; it is sgd's", learning.optimizer);
        return Err(Error::argument("--momentum", problem));
    }
    if momentum >= 1.0 {
        let problem = format!("{momentum} is not below 1, and steps would grow for ever");
        return Err(Error::argument("--momentum", problem));
    }
    let adam =
        |decay| Optimizer::Adam(Adam { rate, betas: [0.9, 0.999], eps: 1e-8, weight_decay, decay });
    Ok(match learning.optimizer.as_str() {
        "sgd" => Optimizer::Sgd(Sgd { rate, momentum, weight_decay }),
        "adamw" => adam(Decay::Decoupled),
        _ => adam(Decay::Coupled),
    })
}

fn settings(planning: &Planning) -> Result<Settings> {
    for name in &planning.without {
        if name != "all" && !SAVINGS.contains(&name.as_str()) {
            let problem = format!("is no saving; {} are, or all", SAVINGS.join(", "));
            return Err(Error::argument(format!("--without '{name}'"), problem));
        }
    }
    let rules = if planning.rules == "sensei" { RuleSet::Sensei } else { RuleSet::All };
    let memory = planning.memory_limit.as_deref().map(machine::memory_limit).transpose()?;
    let precision = match planning.precision.as_str() {
        "bf16" => Precision::Bf16,
        _ => Precision::F32,
    };
    let without = planning.without.clone();
    let present = machine::memory_bytes();
    Ok(Settings { rules, without, memory, present, precision, ..Settings::default() })
}

/// Who trains and who judges, and in words where that comes from. Whose label is not known does
/// neither.
pub fn split(dataset: &Dataset, asked: Option<&str>, seed: u64) -> Result<(Split, String)> {
    let labels = dataset.labels().ok_or_else(|| {
        let problem = "has no labels to learn; --classes C makes random ones";
        Error::argument(format!("data set '{}'", dataset.name()), problem)
    })?;
    let (mut split, mut words) = split_as(dataset, labels, (asked, seed))?;
    let count = |split: &Split| split.train.len() + split.val.len() + split.test.len();
    let all = count(&split);
    for part in [&mut split.train, &mut split.val, &mut split.test] {
        part.retain(|&item| labels.is_known(item as usize));
    }
    let unknown = all - count(&split);
    if unknown > 0 {
        words.push_str(&format!(", less {unknown} without a label"));
    }
    Ok((split, words))
}

/// Says that nobody trains.
///
/// # Errors
/// When that is so.
pub fn check_trains(split: &Split) -> Result<()> {
    match split.train.is_empty() {
        true => {
            let problem = "nothing with a label is in its training part; --split random, \
                           planetoid, all or a FILE makes another";
            Err(Error::argument(format!("split '{}'", split.name), problem))
        }
        false => Ok(()),
    }
}

fn split_as(
    dataset: &Dataset,
    labels: &Labels,
    (asked, seed): (Option<&str>, u64),
) -> Result<(Split, String)> {
    let own = dataset.splits().first();
    let made = |split: Result<Split>, words: &str| Ok((split?, words.to_owned()));
    match (asked, own) {
        (None, Some(split)) => Ok((split.clone(), format!("{}, the data's own", split.name))),
        (Some("canonical"), Some(split)) => Ok((split.clone(), split.name.clone())),
        (Some("canonical"), None) => {
            let problem = "the data has no split of its own; random, planetoid or all would do";
            Err(Error::argument("--split canonical", problem))
        }
        (Some("planetoid"), _) => {
            made(splits::planetoid(labels, Planetoid::CANONICAL, seed), "planetoid")
        }
        (Some("all"), _) => made(splits::all(labels), "all labelled nodes train"),
        (None, None) => made(
            splits::random(labels, Fractions::DEFAULT, seed),
            "random 60/20/20, the data has none",
        ),
        (Some("random"), _) => {
            made(splits::random(labels, Fractions::DEFAULT, seed), "random 60/20/20")
        }
        (Some(name), _) if name.starts_with("random:") => {
            let share = name["random:".len()..].parse::<f64>().ok();
            let share = share.filter(|share| *share > 0.0 && *share < 1.0).ok_or_else(|| {
                let problem = "has no share of the nodes behind it; random:0.1 trains a tenth";
                Error::argument(format!("--split {name}"), problem)
            })?;
            let rest = (1.0 - share) / 2.0;
            let split = splits::random(labels, Fractions::new(share, rest, rest)?, seed);
            made(split, &format!("random, {share} of the nodes train"))
        }
        (Some(file), _) if Path::new(file).exists() => {
            let threads = Threads::one();
            let job = Job::quiet(&threads);
            let split = splits::file::read(file.as_ref(), dataset, &job)?;
            Ok((split, format!("of {file}")))
        }
        (Some(name), _) => {
            let problem = "is no split and no file; canonical, random, random:0.1, planetoid, all \
                           or a FILE is";
            Err(Error::argument(format!("--split {name}"), problem))
        }
    }
}

/// The split that the arguments ask for: one of several folds, or what [`split`] gives.
pub fn split_for(dataset: &Dataset, learning: &Learning, seed: u64) -> Result<(Split, String)> {
    let (Some(count), Some(fold)) = (learning.folds, learning.fold) else {
        return split(dataset, learning.split.as_deref(), seed);
    };
    let Some(labels) = dataset.labels() else { return split(dataset, None, seed) };
    let folds = Folds { count, val: FoldVal::Next };
    let all = match labels {
        Labels::Classes { .. } => splits::stratified_k_fold(labels, folds, seed)?,
        _ => splits::k_fold(labels, folds, seed)?,
    };
    match fold.checked_sub(1).and_then(|at| all.get(at)) {
        Some(split) => Ok((split.clone(), format!("fold {fold} of {count}"))),
        None => Err(Error::argument(format!("--fold {fold}"), format!("is none of 1 to {count}"))),
    }
}

/// What is predicted: of graphs, where there are many, else of nodes, or of links where asked for.
pub fn task(dataset: &Dataset, asked: Option<&str>) -> Result<Task> {
    let by_data = if dataset.collection().is_some() { Task::Graph } else { Task::Node };
    match asked.map(str::parse::<Task>).transpose()? {
        Some(Task::Link) if by_data == Task::Node => Ok(Task::Link),
        Some(task) if task != by_data => {
            let what = if by_data == Task::Graph { "many graphs" } else { "one graph" };
            let problem = format!("'{}' is {what}, with labels of its own", dataset.name());
            Err(Error::argument(format!("--task {}", asked.unwrap_or_default()), problem))
        }
        _ => Ok(by_data),
    }
}

/// How good a result is, by the labels unless something was asked for.
pub fn metric(dataset: &Dataset, asked: Option<&str>) -> Result<Metric> {
    metric_of(task(dataset, None)?, dataset, asked)
}

/// The same for any task.
pub fn metric_of(task: Task, dataset: &Dataset, asked: Option<&str>) -> Result<Metric> {
    match asked {
        None => Ok(Metric::default_for(task, dataset.labels())),
        Some(name) => {
            let metric: Metric = name.parse()?;
            if !metric.is_for(task) {
                let problem = format!("is no metric of {task:?}s").to_lowercase();
                return Err(Error::argument(format!("--metric {name}"), problem));
            }
            Ok(metric)
        }
    }
}

/// The machine's profile: what there is, or, for large work, what a short look gives.
pub fn profile(
    desk: &Desk<'_>,
    path: &Path,
    (dataset, recipe): (&Dataset, &Recipe),
) -> std::result::Result<Profile, Failure> {
    let here = this_machine();
    let work = dataset.graph().n_edges().saturating_mul(recipe.config.hidden);
    if work < WORTH_MEASURING {
        return Ok(load(path, &here).or_unmeasured(&here));
    }
    let mut needed = vec!["spmm", "matmul"];
    if matches!(recipe.model.as_str(), "gat" | "gatv2") {
        needed.push("attention");
    }
    profile_for(&needed, path, desk)
}

/// Says whose times are predicted, where this machine's are not known.
pub fn tell_unmeasured(profile: &Profile, out: &Out) {
    if profile.section().is_none() {
        out.note(
            "nothing is measured on this machine yet: predicted times are an ordinary one's, and \
             may be far off for small graphs; `lacis tune --quick` measures",
        );
    }
}

/// How many classes or columns labels have, in words.
pub fn labels_in_words(labels: Option<&Labels>) -> String {
    match labels {
        Some(Labels::Classes { count, .. }) => format!("{count} classes"),
        Some(Labels::Multi(of)) => format!("{} labels", of.n_cols()),
        Some(Labels::Targets(of)) => format!("{} numbers", of.n_cols()),
        None => "no labels".to_owned(),
    }
}
