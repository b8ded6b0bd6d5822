//! What a training is planned for: features as the network takes them, sizes, first weights.

use std::sync::Arc;

use lacis_core::{Dataset, Dense, Error, Features, Result};
use lacis_plan::Sizes;
use lacis_plan::choose::{Chosen, Settings, choose};
use lacis_plan::cost::predict;
use lacis_plan::memory::Memory;
use lacis_plan::op::{LossKind, Read};
use lacis_plan::plan::{Plan, Precision};

use super::links::LinkSource;
use super::source::{Source, Whole};
use super::targets::{Labelled, loss_of};
use super::{Job, Recipe, sampled};
use crate::costs::Measured;
use crate::levels::{Asked, Levels};
use crate::nn::{Config, Decoder, Model};
use crate::pairs::Pairs;
use crate::params::Params;

/// The network that a recipe asks for.
pub(crate) fn model_of(recipe: &Recipe, loss: Option<LossKind>) -> Result<Model> {
    match &recipe.own {
        Some(own) => Model::own(own, &recipe.config, loss),
        None => Model::new(&recipe.model, &recipe.config, loss),
    }
}

/// Whether a kind of network can take sparse features as they are. What somebody wrote may take
/// rows of them that only dense ones have.
fn takes_sparse(recipe: &Recipe) -> bool {
    let Recipe { model, config, own, .. } = recipe;
    let powers = model == "cheb" || own.is_some();
    let maximum = model == "sage" && config.aggregate == crate::nn::sage::Aggregate::Max;
    config.embed.is_some() || !powers && !maximum && !config.residual
}

/// Whether a plan computes with a network's parameters, and stores what was asked for.
pub(super) fn fits(plan: &Plan, model: &Model, settings: &Settings) -> Result<()> {
    plan.check()?;
    if plan.precision() != settings.precision {
        let problem = match plan.precision() {
            Precision::Bf16 => "stores activations in bf16; --precision bf16 asks for that",
            Precision::F32 => "stores activations in f32; --precision f32 asks for that",
        };
        return Err(Error::argument(format!("plan {}", plan.id()), problem));
    }
    let own: Vec<(&str, [usize; 2])> =
        model.params.iter().map(|param| (param.symbol.as_str(), param.shape)).collect();
    let theirs: Vec<(&str, [usize; 2])> =
        plan.params.iter().map(|param| (param.name.as_str(), param.shape)).collect();
    if own != theirs {
        let problem = "is of another network, or of other sizes; `lacis explain` shows this one's";
        return Err(Error::argument(format!("plan {}", plan.id()), problem));
    }
    Ok(())
}

/// The data's features as a recipe's network takes them; the recipe learns their width.
pub(crate) fn features_for(dataset: &Dataset, recipe: &mut Recipe) -> Result<Arc<Features>> {
    let Some(features) = dataset.features() else {
        let problem =
            "it has no features; --features 64 makes random ones, --features degree others";
        return Err(Error::argument(format!("data set '{}'", dataset.name()), problem));
    };
    recipe.config.inputs = features.width();
    let sparse = matches!(features, Features::Sparse(_));
    recipe.config.sparse_features = sparse && takes_sparse(recipe);
    Ok(Arc::new(match (features, recipe.config.sparse_features) {
        (Features::Sparse(_), false) => Features::Dense(features.to_dense()),
        _ => features.clone(),
    }))
}

pub(super) fn asked<'a>(
    job: &'a Job<'a>,
    features: &'a Arc<Features>,
    model: &Model,
    recipe: &Recipe,
) -> Asked<'a> {
    let settings = &recipe.settings;
    // Norms over all rows need all rows, and any node may be the end of a pair.
    let normed = model.config.norm == Some(lacis_plan::op::NormKind::Batch);
    let whole = normed || recipe.links.is_some();
    let rows = settings.uses("zero-rows") && !whole;
    Asked {
        graph: job.dataset.graph(),
        features,
        levels: model.levels,
        rows: rows.then_some(job.split.train.as_slice()),
        reach: settings.uses("reach") && !whole,
    }
}

/// What is minimised, and how wide results are: by the labels, or by pairs of nodes.
pub(super) fn learned(dataset: &Dataset, recipe: &mut Recipe) -> Result<LossKind> {
    if recipe.links.is_some() {
        recipe.config.decoder.get_or_insert(Decoder::Dot);
        return Ok(LossKind::Binary);
    }
    recipe.config.decoder = None;
    let Some(labels) = dataset.labels() else {
        let problem = "it has no labels; training needs them";
        return Err(Error::argument(format!("data set '{}'", dataset.name()), problem));
    };
    let (loss, outputs) = loss_of(labels);
    recipe.config.outputs = outputs;
    Ok(loss)
}

/// All training nodes, or all pairs, as one batch.
pub(super) fn one_batch(job: &Job<'_>, recipe: &Recipe, levels: Levels) -> Box<dyn Source> {
    if let Some(links) = &recipe.links {
        return Box::new(LinkSource::new(levels, links, job.threads));
    }
    let labels = job.dataset.labels().expect("a loss was found for them");
    let labelled = Labelled::of_level(labels, &job.split.train, levels.order());
    Box::new(Whole::new(levels, labelled))
}

/// How nodes become graphs: of a collection they do, of one graph they do not.
pub(crate) fn readout(dataset: &Dataset, config: &Config) -> Option<Read> {
    dataset.collection().map(|_| config.readout.unwrap_or(Read::Sum))
}

/// Where the graphs of a collection begin, if graphs are what is judged.
pub(super) fn graphs_of(job: &Job<'_>, recipe: &Recipe) -> Result<Option<Vec<u32>>> {
    match recipe.config.readout {
        None => Ok(None),
        Some(_) => Ok(Some(sampled::collection(job.dataset)?.starts().to_vec())),
    }
}

pub(super) fn count_of(graphs: Option<&[u32]>) -> usize {
    graphs.map_or(0, |starts| starts.len() - 1)
}

/// The sizes of a batch: those of the first one. Nothing that is computed serves two.
pub(super) fn expected_batch(source: &mut dyn Source) -> Result<Sizes> {
    source.begin(0, 0)?;
    let Some(batch) = source.next()? else {
        let problem = "nobody trains: there is nothing to make batches of";
        return Err(Error::argument("split", problem));
    };
    let pairs = batch.pairs.map_or(0, Pairs::len);
    Ok(Sizes { iterations: 1, graphs: batch.n_graphs(), pairs, ..batch.levels.measured() })
}

/// The plan of forward passes alone.
pub(super) fn inference_plan(
    model: &Model,
    recipe: &Recipe,
    (job, features): (&Job<'_>, &Arc<Features>),
    memory: Option<usize>,
) -> Result<Chosen> {
    let mut network = model.network.clone();
    network.loss = None;
    let graph = job.dataset.graph();
    let asked = Asked { graph, features, levels: model.levels, rows: None, reach: false };
    let sizes = Levels::sizes(&asked, job.threads)?;
    let iterations = recipe.epochs.max(1) / recipe.eval_every.max(1);
    let graphs = count_of(graphs_of(job, recipe)?.as_deref());
    let sizes = Sizes { iterations: iterations.max(1), graphs, ..sizes };
    // The whole graph stays the same, whatever batches are.
    let settings = Settings { batches: false, memory, ..recipe.settings.clone() };
    choose(&network, &sizes, &Measured(job.profile), &settings)
}

pub(super) fn first_params(model: &Model, plan: &Plan, recipe: &Recipe) -> Result<Params> {
    let mut specs = model.params.iter();
    Params::new(
        &plan.params,
        |info| match specs.next() {
            Some(spec) => spec.init.values(recipe.seed, &spec.name, spec.shape),
            None => Dense::zeros(info.shape[0], info.shape[1]),
        },
        recipe.optimizer,
    )
}

/// What was decided, with a plan that somebody has instead.
pub(super) fn as_given(plan: Plan, sizes: &Sizes, costs: &Measured<'_>, chosen: Chosen) -> Chosen {
    let predicted = predict(&plan, sizes, costs).unwrap_or_default();
    let memory = Memory::of(&plan, sizes);
    Chosen { plan, predicted, memory, ..chosen }
}
