//! Training: epochs of a plan, watched, and evaluated with a plan of its own.
//!
//! ```text
//!  Source ─► batches ─► Core: forward, loss, backward, update ─► weights ─► Judge: results of all
//! ```
//! Where batches come from is all that full batch, sampling and small graphs differ in.

mod judge;
mod learn;
mod source;
pub mod state;
mod targets;

use std::sync::Arc;
use std::time::Instant;

use lacis_core::{Dataset, Dense, Error, Features, Result, Split, Threads};
use lacis_kernels::{Mat, Profile};
use lacis_plan::Sizes;
use lacis_plan::choose::{Chosen, Settings, choose};
use lacis_plan::cost::predict;
use lacis_plan::plan::Plan;

use self::judge::Judge;
use self::learn::{Core, Within};
use self::source::{Nothing, Source, Whole};
use self::targets::Labelled;
use crate::costs::Measured;
use crate::exec::{Executor, Observe};
use crate::levels::{Asked, Levels};
use crate::nn::{Config, Model};
use crate::params::{Optimizer, Params};

pub use self::targets::loss_of;

/// What is learned from, and on what.
pub struct Job<'a> {
    /// The data.
    pub dataset: &'a Dataset,
    /// Who trains and who judges.
    pub split: &'a Split,
    /// Who runs loops.
    pub threads: &'a Threads,
    /// What this machine measured.
    pub profile: &'a Profile,
}

/// How to train.
#[derive(Clone, Debug)]
pub struct Recipe {
    /// The kind of network.
    pub model: String,
    /// What it is asked to be; inputs and outputs are the data's.
    pub config: Config,
    /// How weights follow gradients.
    pub optimizer: Optimizer,
    /// How often all training nodes are seen.
    pub epochs: usize,
    /// Where random numbers come from.
    pub seed: u64,
    /// What the planner may do.
    pub settings: Settings,
    /// Epochs between evaluations; 0 for none before the end.
    pub eval_every: usize,
}

impl Recipe {
    /// A network trained for 200 epochs by Adam, all training nodes at once.
    pub fn new(model: impl Into<String>, config: Config) -> Self {
        Recipe {
            model: model.into(),
            config,
            optimizer: Optimizer::adam(0.01, 5e-4),
            epochs: 200,
            seed: 0,
            settings: Settings::default(),
            eval_every: 1,
        }
    }
}

/// A network, its plan, its memory and its weights.
pub struct Trainer<'a> {
    job: &'a Job<'a>,
    recipe: Recipe,
    model: Model,
    chosen: Chosen,
    sizes: Sizes,
    source: Box<dyn Source + 'a>,
    core: Core,
    judge: Judge,
    epoch: usize,
    /// What has been done of the epoch that is under way.
    within: Within,
    plan_seconds: f64,
}

/// What an epoch gave.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Epoch {
    /// Its number, from 1.
    pub epoch: usize,
    /// The loss before its step; with batches, the mean over them.
    pub loss: f64,
    /// Seconds of forward, loss, backward and update, and of waiting for batches.
    pub seconds: f64,
    /// Whether all its batches were seen: an observer may stop it between two.
    pub complete: bool,
}

/// Whether a kind of network can take sparse features as they are.
fn takes_sparse(model: &str, config: &Config) -> bool {
    let powers = model == "cheb";
    let maximum = model == "sage" && config.aggregate == crate::nn::sage::Aggregate::Max;
    !powers && !maximum && !config.residual
}

impl<'a> Trainer<'a> {
    /// Plans a network for the data and gives it its first weights.
    ///
    /// # Errors
    /// When the data has no features or labels, the configuration makes no sense, or there is no
    /// memory.
    pub fn new(job: &'a Job<'a>, recipe: Recipe) -> Result<Self> {
        Trainer::planned(job, recipe, None)
    }

    /// The same with a plan that somebody has.
    ///
    /// # Errors
    /// As [`Trainer::new`], and when the plan is of another network.
    pub fn with_plan(job: &'a Job<'a>, recipe: Recipe, plan: Plan) -> Result<Self> {
        Trainer::planned(job, recipe, Some(plan))
    }

    fn planned(job: &'a Job<'a>, recipe: Recipe, plan: Option<Plan>) -> Result<Self> {
        let missing = |what: &str| {
            let problem = format!("it has no {what}; training needs them");
            Error::argument(format!("data set '{}'", job.dataset.name()), problem)
        };
        let labels = job.dataset.labels().ok_or_else(|| missing("labels"))?;
        let (loss, outputs) = loss_of(labels);
        let mut recipe = recipe;
        recipe.config.outputs = outputs;
        let features = features_for(job.dataset, &mut recipe)?;
        let model = Model::new(&recipe.model, &recipe.config, Some(loss))?;
        let start = Instant::now();
        let asked = asked(job, &features, &model, &recipe.settings);
        let sizes = Levels::sizes(&asked, job.threads)?;
        let sizes = Sizes { iterations: recipe.epochs.max(1), ..sizes };
        let costs = Measured(job.profile);
        let mut chosen = choose(&model.network, &sizes, &costs, &recipe.settings)?;
        if let Some(plan) = plan {
            fits(&plan, &model)?;
            let predicted = predict(&plan, &sizes, &costs).unwrap_or_default();
            (chosen.plan, chosen.predicted) = (plan, predicted);
        }
        let evaluation = inference_plan(&model, &recipe, (job, &features))?;
        let plan_seconds = start.elapsed().as_secs_f64();
        let levels = Levels::new(&asked, &chosen.plan, job.threads)?;
        let whole_asked = Asked { rows: None, ..asked };
        let whole = Levels::new(&whole_asked, &evaluation, job.threads)?;
        let labelled = Labelled::of_level(labels, &job.split.train, levels.order());
        Ok(Trainer {
            core: Core::new(first_params(&model, &chosen.plan, &recipe)?),
            job,
            recipe,
            model,
            chosen,
            sizes,
            source: Box::new(Whole::new(levels, labelled)),
            judge: Judge::new(evaluation, whole),
            epoch: 0,
            within: Within::default(),
            plan_seconds,
        })
    }

    /// A network that only computes results, of so many columns: the data need no labels.
    ///
    /// # Errors
    /// When the data has no features, or the configuration makes no sense.
    pub fn for_inference(job: &'a Job<'a>, recipe: Recipe, outputs: usize) -> Result<Self> {
        let mut recipe = recipe;
        recipe.config.outputs = outputs;
        let features = features_for(job.dataset, &mut recipe)?;
        let model = Model::new(&recipe.model, &recipe.config, None)?;
        let graph = job.dataset.graph();
        let (levels, rows, reach) = (model.levels, None, false);
        let asked = Asked { graph, features: &features, levels, rows, reach };
        let sizes = Levels::sizes(&asked, job.threads)?;
        let sizes = Sizes { iterations: 1, ..sizes };
        let start = Instant::now();
        let chosen = choose(&model.network, &sizes, &Measured(job.profile), &recipe.settings)?;
        let plan_seconds = start.elapsed().as_secs_f64();
        let whole = Levels::new(&asked, &chosen.plan, job.threads)?;
        Ok(Trainer {
            core: Core::new(first_params(&model, &chosen.plan, &recipe)?),
            job,
            recipe,
            model,
            judge: Judge::new(chosen.plan.clone(), whole),
            chosen,
            sizes,
            source: Box::new(Nothing),
            epoch: 0,
            within: Within::default(),
            plan_seconds,
        })
    }

    /// The sizes that were planned for.
    pub fn sizes(&self) -> Sizes {
        self.sizes.clone()
    }

    /// Who runs loops.
    pub fn threads(&self) -> &Threads {
        self.job.threads
    }

    /// What this machine measured.
    pub fn profile(&self) -> &Profile {
        self.job.profile
    }

    /// Bytes that the plan will take beyond graph and features: slots, weights, their gradients
    /// and what the optimizer keeps.
    pub fn predicted_bytes(&self) -> usize {
        self.chosen.plan.slot_bytes(&self.sizes) + self.core.params.count() * 3 * size_of::<f32>()
    }

    /// What was decided.
    pub fn chosen(&self) -> &Chosen {
        &self.chosen
    }

    /// The network.
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// The weights.
    pub fn params(&self) -> &Params {
        &self.core.params
    }

    /// The weights, to be changed.
    pub fn params_mut(&mut self) -> &mut Params {
        &mut self.core.params
    }

    /// Seconds that planning took.
    pub fn plan_seconds(&self) -> f64 {
        self.plan_seconds
    }

    /// How it was asked to train.
    pub fn recipe(&self) -> &Recipe {
        &self.recipe
    }

    /// Epochs done.
    pub fn epoch(&self) -> usize {
        self.epoch
    }

    /// Batches of an epoch.
    pub fn n_batches(&self) -> usize {
        self.source.n_batches()
    }

    /// Seconds that an epoch is expected to take.
    pub fn predicted_epoch_seconds(&self) -> f64 {
        self.chosen.predicted.iteration * self.n_batches().max(1) as f64
    }

    /// Runs one epoch, batch by batch: forward, loss, backward, update. Where the observer stops
    /// it between two batches, the next call goes on there.
    ///
    /// # Errors
    /// When a step fails.
    pub fn step(&mut self, observer: &mut dyn Observe) -> Result<Epoch> {
        let start = Instant::now();
        let Trainer { job, source, core, within, recipe, .. } = self;
        source.begin(self.epoch, within.batches)?;
        let changes = source.changes();
        while let Some(batch) = source.next()? {
            if core.executor.is_none() {
                let plan = Arc::new(self.chosen.plan.clone());
                core.begin(Executor::new(plan, job.profile, job.threads)?, &batch)?;
            }
            let seed = batch_seed(recipe.seed, self.epoch, within.batches);
            let loss = core.learn(&batch, (seed, changes), observer)?;
            within.add(loss, batch.labelled.count());
            if !observer.goes_on() && within.batches < source.n_batches() {
                break;
            }
        }
        within.seconds += start.elapsed().as_secs_f64();
        let complete = within.batches >= source.n_batches();
        let Within { loss, seconds, .. } = *within;
        if complete {
            self.epoch += 1;
            self.within = Within::default();
        }
        let epoch = if complete { self.epoch } else { self.epoch + 1 };
        Ok(Epoch { epoch, loss, seconds, complete })
    }

    /// The network's results for all nodes with the present weights, handed to a function.
    ///
    /// # Errors
    /// When a step fails.
    pub fn logits<R>(&mut self, use_them: impl FnOnce(Mat<'_>) -> R) -> Result<R> {
        let Core { params, running, .. } = &mut self.core;
        self.judge.results(self.job, (params, running), use_them)
    }

    /// Bytes of the training plan's slots, once it runs.
    pub fn slot_bytes(&self) -> usize {
        self.core.executor.as_ref().map_or(0, Executor::bytes)
    }

    /// What the kernels of a step are called, once it runs.
    pub fn kernel_name(&self, step: usize) -> Option<&'static str> {
        self.core.executor.as_ref().and_then(|executor| executor.kernel_name(step))
    }
}

/// The seed of an epoch's random numbers.
pub fn epoch_seed(seed: u64, epoch: usize) -> u64 {
    seed.wrapping_mul(0x9E37_79B9_7F4A_7C15).wrapping_add(epoch as u64 + 1)
}

/// The seed of a batch's random numbers: the first one's is the epoch's.
fn batch_seed(seed: u64, epoch: usize, batch: usize) -> u64 {
    epoch_seed(seed, epoch).wrapping_add((batch as u64).wrapping_mul(0xD1B5_4A32_D192_ED03))
}

/// Whether a plan computes with a network's parameters.
fn fits(plan: &Plan, model: &Model) -> Result<()> {
    plan.check()?;
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
fn features_for(dataset: &Dataset, recipe: &mut Recipe) -> Result<Arc<Features>> {
    let Some(features) = dataset.features() else {
        let problem =
            "it has no features; --features 64 makes random ones, --features degree others";
        return Err(Error::argument(format!("data set '{}'", dataset.name()), problem));
    };
    recipe.config.inputs = features.width();
    let sparse = matches!(features, Features::Sparse(_));
    recipe.config.sparse_features = sparse && takes_sparse(&recipe.model, &recipe.config);
    Ok(Arc::new(match (features, recipe.config.sparse_features) {
        (Features::Sparse(_), false) => Features::Dense(features.to_dense()),
        _ => features.clone(),
    }))
}

fn asked<'a>(
    job: &'a Job<'a>,
    features: &'a Arc<Features>,
    model: &Model,
    settings: &Settings,
) -> Asked<'a> {
    // Norms over all rows need all rows.
    let whole = model.config.norm == Some(lacis_plan::op::NormKind::Batch);
    let rows = settings.uses("zero-rows") && !whole;
    Asked {
        graph: job.dataset.graph(),
        features,
        levels: model.levels,
        rows: rows.then_some(job.split.train.as_slice()),
        reach: settings.uses("reach") && !whole,
    }
}

/// The plan of forward passes alone.
fn inference_plan(
    model: &Model,
    recipe: &Recipe,
    (job, features): (&Job<'_>, &Arc<Features>),
) -> Result<Plan> {
    let mut network = model.network.clone();
    network.loss = None;
    let graph = job.dataset.graph();
    let asked = Asked { graph, features, levels: model.levels, rows: None, reach: false };
    let sizes = Levels::sizes(&asked, job.threads)?;
    let iterations = recipe.epochs.max(1) / recipe.eval_every.max(1);
    let sizes = Sizes { iterations: iterations.max(1), ..sizes };
    Ok(choose(&network, &sizes, &Measured(job.profile), &recipe.settings)?.plan)
}

fn first_params(model: &Model, plan: &Plan, recipe: &Recipe) -> Result<Params> {
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
