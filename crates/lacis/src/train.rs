//! Training: epochs of a plan, watched, and evaluated with a plan of its own.

pub mod state;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use lacis_core::reference::Moments;

use lacis_core::{Dataset, Dense, Error, Features, Labels, Result, Split, Threads};
use lacis_kernels::loss::Loss;
use lacis_kernels::{Mat, Profile};
use lacis_plan::Sizes;
use lacis_plan::choose::{Chosen, Settings, choose};
use lacis_plan::cost::predict;
use lacis_plan::op::LossKind;
use lacis_plan::plan::{Phase, Plan};

use crate::costs::Measured;
use crate::exec::{Context, Executor, Nobody, Observe, Targets};
use crate::levels::{Asked, Levels};
use crate::nn::{Config, Model};
use crate::params::{Optimizer, Params};

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

/// A network, its plan, its memory and its weights.
pub struct Trainer<'a> {
    job: &'a Job<'a>,
    recipe: Recipe,
    model: Model,
    chosen: Chosen,
    sizes: Sizes,
    evaluation: Arc<Plan>,
    executor: Option<Executor>,
    judge: Option<Executor>,
    levels: Levels,
    whole: Levels,
    params: Params,
    /// Labels in the order of the training levels, and the rows that count.
    labels: Labelled,
    epoch: usize,
    /// Estimates of batch norms.
    running: HashMap<u32, Moments>,
    plan_seconds: f64,
}

/// What the loss compares with, in the order of the last level.
enum Labelled {
    Classes(Vec<i32>, usize, Vec<u32>),
    Multi(Dense, Vec<u32>),
    Numbers(Dense, Vec<u32>),
}

impl Labelled {
    fn loss(&self) -> Result<Option<Loss<'_>>> {
        match self {
            Labelled::Classes(of, count, rows) => Loss::classes(of, *count, rows).map(Some),
            Labelled::Multi(of, rows) => Loss::binary(of, rows).map(Some),
            Labelled::Numbers(..) => Ok(None),
        }
    }

    fn targets<'a>(&'a self, loss: Option<&'a Loss<'a>>) -> Targets<'a> {
        match (loss, self) {
            (Some(loss), _) => Targets::Loss(loss),
            (None, Labelled::Numbers(of, rows)) => Targets::Numbers(Mat::from(of), rows),
            _ => Targets::None,
        }
    }
}

/// What an epoch gave.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Epoch {
    /// Its number, from 1.
    pub epoch: usize,
    /// The loss before its step.
    pub loss: f64,
    /// Seconds of forward, loss, backward and update.
    pub seconds: f64,
}

/// Which loss labels ask for, and how many columns it has.
pub fn loss_of(labels: &Labels) -> (LossKind, usize) {
    match labels {
        Labels::Classes { count, .. } => (LossKind::Classes, *count),
        Labels::Multi(of) => (LossKind::Binary, of.n_cols()),
        Labels::Targets(of) => (LossKind::Squares, of.n_cols()),
    }
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
        let params = first_params(&model, &chosen.plan, &recipe)?;
        let labels = labelled(labels, &job.split.train, levels.order());
        Ok(Trainer {
            job,
            recipe,
            model,
            chosen,
            sizes,
            evaluation: Arc::new(evaluation),
            executor: None,
            judge: None,
            levels,
            whole,
            params,
            labels,
            epoch: 0,
            running: HashMap::new(),
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
        let params = first_params(&model, &chosen.plan, &recipe)?;
        Ok(Trainer {
            job,
            recipe,
            model,
            evaluation: Arc::new(chosen.plan.clone()),
            chosen,
            sizes,
            executor: None,
            judge: None,
            levels: whole.clone(),
            whole,
            params,
            labels: Labelled::Classes(vec![], 0, vec![]),
            epoch: 0,
            running: HashMap::new(),
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
        self.chosen.plan.slot_bytes(&self.sizes) + self.params.count() * 3 * size_of::<f32>()
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
        &self.params
    }

    /// The weights, to be changed.
    pub fn params_mut(&mut self) -> &mut Params {
        &mut self.params
    }

    /// What the plan is given.
    pub fn levels(&self) -> &Levels {
        &self.levels
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

    /// Runs one epoch: forward, loss, backward, update.
    ///
    /// # Errors
    /// When a step fails.
    pub fn step(&mut self, observer: &mut dyn Observe) -> Result<Epoch> {
        let Trainer { job, executor, levels, params, labels, recipe, .. } = self;
        let loss = labels.loss()?;
        let targets = labels.targets(loss.as_ref());
        let seed = epoch_seed(recipe.seed, self.epoch);
        let context = Context { levels, targets, graphs: None, seed, training: true };
        let start = Instant::now();
        if executor.is_none() {
            let plan = Arc::new(self.chosen.plan.clone());
            let new = executor.insert(Executor::new(plan, job.profile, job.threads)?);
            new.bind(levels, 0)?;
            *new.running() = self.running.clone();
            new.run(&[Phase::Once], &context, params, observer)?;
        }
        let executor = executor.as_mut().expect("made above");
        params.begin_step();
        let phases = [Phase::Forward, Phase::Backward, Phase::Update];
        let outcome = executor.run(&phases, &context, params, observer)?;
        let seconds = start.elapsed().as_secs_f64();
        if !executor.running().is_empty() {
            self.running = executor.running().clone();
        }
        self.epoch += 1;
        Ok(Epoch { epoch: self.epoch, loss: outcome.loss, seconds })
    }

    /// The network's results for all nodes with the present weights, handed to a function.
    ///
    /// # Errors
    /// When a step fails.
    pub fn logits<R>(&mut self, use_them: impl FnOnce(Mat<'_>) -> R) -> Result<R> {
        let Trainer { job, judge, whole, params, .. } = self;
        let context = inference(whole);
        if judge.is_none() {
            let plan = self.evaluation.clone();
            let new = judge.insert(Executor::new(plan, job.profile, job.threads)?);
            new.bind(whole, 0)?;
            new.run(&[Phase::Once], &context, params, &mut Nobody)?;
        }
        let judge = judge.as_mut().expect("made above");
        *judge.running() = self.running.clone();
        judge.run(&[Phase::Forward], &context, params, &mut Nobody)?;
        Ok(use_them(judge.result(&context, params)?))
    }

    /// Bytes of the training plan's slots, once it runs.
    pub fn slot_bytes(&self) -> usize {
        self.executor.as_ref().map_or(0, Executor::bytes)
    }

    /// What the kernels of a step are called, once it runs.
    pub fn kernel_name(&self, step: usize) -> Option<&'static str> {
        self.executor.as_ref().and_then(|executor| executor.kernel_name(step))
    }
}

fn inference(levels: &Levels) -> Context<'_> {
    Context { levels, targets: Targets::None, graphs: None, seed: 0, training: false }
}

/// The seed of an epoch's random numbers.
pub fn epoch_seed(seed: u64, epoch: usize) -> u64 {
    seed.wrapping_mul(0x9E37_79B9_7F4A_7C15).wrapping_add(epoch as u64 + 1)
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

/// Labels and rows in the order of the last level.
fn labelled(labels: &Labels, train: &[u32], order: Option<&[u32]>) -> Labelled {
    let (ids, rows): (Vec<u32>, Vec<u32>) = match order {
        // The nodes that train are the first ones.
        Some(order) => (order[..train.len()].to_vec(), (0..train.len() as u32).collect()),
        None => ((0..labels.n_rows() as u32).collect(), train.to_vec()),
    };
    match labels {
        Labels::Classes { of, count, .. } => {
            Labelled::Classes(ids.iter().map(|&i| of[i as usize]).collect(), *count, rows)
        }
        Labels::Multi(of) => {
            let mut dense = Dense::zeros(ids.len(), of.n_cols());
            for (i, &id) in ids.iter().enumerate() {
                of.row_cols(id as usize).iter().for_each(|&c| dense.row_mut(i)[c as usize] = 1.0);
            }
            Labelled::Multi(dense, rows)
        }
        Labels::Targets(of) => {
            let mut dense = Dense::zeros(ids.len(), of.n_cols());
            for (i, &id) in ids.iter().enumerate() {
                dense.row_mut(i).copy_from_slice(of.row(id as usize));
            }
            Labelled::Numbers(dense, rows)
        }
    }
}
