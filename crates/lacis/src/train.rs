//! Training: epochs of a plan, watched, and evaluated with a plan of its own.
//!
//! ```text
//!  Source ─► batches ─► Core: forward, loss, backward, update ─► weights ─► Judge: results of all
//! ```
//! Where batches come from is all that full batch, sampling and small graphs differ in.

mod judge;
mod learn;
mod links;
pub mod memory;
mod sampled;
pub(crate) mod setup;
mod source;
pub mod state;
mod targets;
pub mod watched;

use std::sync::Arc;
use std::time::Instant;

use lacis_core::{Dataset, Error, Result, Split, Threads};
use lacis_kernels::{Mat, Profile};
use lacis_plan::choose::{Chosen, Settings, choose};
use lacis_plan::plan::{Plan, Precision};
use lacis_plan::{Expr, Sizes};

use self::judge::Judge;
use self::learn::{Core, Within};
use self::memory::{Needs, Planning};
use self::sampled::Setting;
use self::setup::{
    as_given, asked, count_of, expected_batch, features_for, first_params, fits, graphs_of,
    learned, model_of, one_batch, readout,
};
use self::source::{Nothing, Source};
use crate::approx::{self, Approx};
use crate::costs::Measured;
use crate::exec::{Executor, Observe};
use crate::levels::{Asked, Levels, Treatments};
use crate::link::Links;
use crate::nn::{Build, Config, Model, Own};
use crate::pairs::Pairs;
use crate::params::{Optimizer, Params};
use crate::sample::Sampling;
use crate::schedule::{Better, Decay, Patience, Schedule};

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
    /// The kind itself, where no table has it.
    pub own: Option<Own>,
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
    /// How batches of nodes are drawn; absent, all training nodes are one.
    pub sample: Option<Sampling>,
    /// Nodes, walks or graphs of a batch; absent, 1024 nodes or walks, 32 graphs.
    pub batch_size: Option<usize>,
    /// Epochs in which the learning rate rises.
    pub warm_up: usize,
    /// How it falls then.
    pub decay: Decay,
    /// The longest that all gradients together may be.
    pub clip: Option<f64>,
    /// The pairs to learn, where links are: the data's graph is their message graph.
    pub links: Option<Arc<Links>>,
}

impl Recipe {
    /// A network trained for 200 epochs by Adam, all training nodes at once.
    pub fn new(model: impl Into<String>, config: Config) -> Self {
        Recipe {
            model: model.into(),
            own: None,
            config,
            optimizer: Optimizer::adam(0.01, 5e-4),
            epochs: 200,
            seed: 0,
            settings: Settings::default(),
            eval_every: 1,
            sample: None,
            batch_size: None,
            warm_up: 0,
            decay: Decay::Constant,
            clip: None,
            links: None,
        }
    }

    /// The same with a network of one's own: from a builder, a configuration and features to its
    /// results, of `outputs` columns, as [`Kind::build`](crate::nn::Kind::build) has it. Features
    /// are dense, labels and learned rows, graphs and pairs as for all other kinds.
    ///
    /// ```
    /// use lacis::exec::Nobody;
    /// use lacis::kernels::Profile;
    /// use lacis::nn::{Config, Init};
    /// use lacis::train::{Job, Recipe, Trainer};
    /// use lacis::{Threads, data, machine::this_machine};
    ///
    /// let threads = Threads::one();
    /// let set = lacis::open("sbm:n=60,e=200,classes=3,features=5", &data::Job::quiet(&threads))?;
    /// let split = data::splits::all(set.labels().expect("groups have numbers"))?;
    /// let profile = Profile::unmeasured(this_machine());
    /// let job = Job { dataset: &set, split: &split, threads: &threads, profile: &profile };
    /// let recipe = Recipe::own("linear", Config::new(5, 8, 3), |build, config, x| {
    ///     let shape = (config.inputs, config.outputs);
    ///     x * build.weight("lin.weight".into(), shape.0, shape.1, Init::Glorot)
    /// });
    /// let mut trainer = Trainer::new(&job, recipe)?;
    /// let first = trainer.step(&mut Nobody)?.loss;
    /// assert!(trainer.step(&mut Nobody)?.loss < first);
    /// # Ok::<(), lacis::Error>(())
    /// ```
    pub fn own(
        name: impl Into<String>,
        config: Config,
        write: impl Fn(&mut Build, &Config, &Expr) -> Expr + Send + Sync + 'static,
    ) -> Self {
        let own = Own::new(name, write);
        Recipe { own: Some(own.clone()), ..Recipe::new(own.name(), config) }
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
    /// Waits for better values, for rates that fall when there are none.
    plateau: Patience,
    plan_seconds: f64,
    needs: Needs,
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
        let mut recipe = recipe;
        let loss = learned(job.dataset, &mut recipe)?;
        recipe.config.readout = readout(job.dataset, &recipe.config);
        let features = features_for(job.dataset, &mut recipe)?;
        let model = model_of(&recipe, Some(loss))?;
        let start = Instant::now();
        let graphs = graphs_of(job, &recipe)?;
        recipe.settings.batches = recipe.sample.is_some() || graphs.is_some();
        let (batches, labels) = (recipe.settings.batches, job.dataset.labels());
        let setting =
            || Setting { job, recipe: &recipe, model: &model, features: &features, labels };
        let asked = asked(job, &features, &model, &recipe);
        let sizes = match batches {
            true => expected_batch(&mut *setting().source(None)?)?,
            false => {
                let sizes = Levels::sizes(&asked, job.threads)?;
                let pairs = recipe.links.as_ref().map_or(0, |links| 2 * links.counts()[0]);
                Sizes { iterations: recipe.epochs.max(1), pairs, ..sizes }
            }
        };
        let planning = Planning { job, model: &model, recipe: &recipe, asked, sizes };
        let mut both = planning.plans()?;
        if let Some(plan) = plan {
            fits(&plan, &model, &recipe.settings)?;
            both.training = as_given(plan, &planning.sizes, &Measured(job.profile), both.training);
        }
        let needs = planning.needs(&both);
        let (chosen, sizes) = (both.training, planning.sizes);
        let plan_seconds = start.elapsed().as_secs_f64();
        let mut treated = Treatments::default();
        let source: Box<dyn Source> = match batches {
            true => setting().source(Some(&chosen.plan))?,
            false => {
                let levels = Levels::sharing(&asked, &chosen.plan, &mut treated, job.threads)?;
                one_batch(job, &recipe, levels)
            }
        };
        let (whole_asked, evaluation) = (Asked { rows: None, ..asked }, both.evaluation.plan);
        let whole = Levels::sharing(&whole_asked, &evaluation, &mut treated, job.threads)?;
        drop(treated);
        let mut judge = Judge::new(evaluation, whole, graphs);
        if let Some(links) = &recipe.links {
            let n = job.dataset.graph().n_nodes();
            judge.set_pairs(Pairs::new(n, links.judged(), job.threads)?);
        }
        Ok(Trainer {
            plateau: plateau(&recipe),
            core: Core::new(first_params(&model, &chosen.plan, &recipe)?, recipe.clip),
            job,
            recipe,
            model,
            chosen,
            sizes,
            source,
            judge,
            epoch: 0,
            within: Within::default(),
            plan_seconds,
            needs,
        })
    }

    /// A network that only computes results, of so many columns: the data need no labels.
    ///
    /// # Errors
    /// When the data has no features, or the configuration makes no sense.
    pub fn for_inference(job: &'a Job<'a>, recipe: Recipe, outputs: usize) -> Result<Self> {
        Trainer::inferring(job, recipe, (outputs, 1), None)
    }

    /// The forward pass of a training's network, to be run as often as there are epochs, with a
    /// plan that somebody has or the fastest one.
    ///
    /// # Errors
    /// As [`Trainer::with_plan`].
    pub fn forward_only(job: &'a Job<'a>, recipe: Recipe, plan: Option<Plan>) -> Result<Self> {
        let outputs = job.dataset.labels().map_or(1, |labels| loss_of(labels).1);
        let passes = recipe.epochs.max(1);
        Trainer::inferring(job, recipe, (outputs, passes), plan)
    }

    fn inferring(
        job: &'a Job<'a>,
        recipe: Recipe,
        (outputs, iterations): (usize, usize),
        plan: Option<Plan>,
    ) -> Result<Self> {
        let mut recipe = recipe;
        recipe.config.outputs = outputs;
        recipe.config.readout = readout(job.dataset, &recipe.config);
        let features = features_for(job.dataset, &mut recipe)?;
        let model = model_of(&recipe, None)?;
        let graph = job.dataset.graph();
        let (levels, rows, reach) = (model.levels, None, false);
        let asked = Asked { graph, features: &features, levels, rows, reach };
        let sizes = Levels::sizes(&asked, job.threads)?;
        let graphs = graphs_of(job, &recipe)?;
        let sizes = Sizes { iterations, graphs: count_of(graphs.as_deref()), ..sizes };
        let start = Instant::now();
        let costs = Measured(job.profile);
        let mut chosen = choose(&model.network, &sizes, &costs, &recipe.settings)?;
        if let Some(plan) = plan {
            fits(&plan, &model, &recipe.settings)?;
            chosen = as_given(plan, &sizes, &costs, chosen);
        }
        let plan_seconds = start.elapsed().as_secs_f64();
        let whole = Levels::new(&asked, &chosen.plan, job.threads)?;
        let needs = Needs::of_forward(job, &features, &chosen);
        Ok(Trainer {
            plateau: plateau(&recipe),
            core: Core::new(first_params(&model, &chosen.plan, &recipe)?, recipe.clip),
            job,
            recipe,
            model,
            judge: Judge::new(chosen.plan.clone(), whole, graphs),
            chosen,
            sizes,
            source: Box::new(Nothing),
            epoch: 0,
            within: Within::default(),
            plan_seconds,
            needs,
        })
    }

    /// Computes backward products from some of their pairs, from the next epoch on, where that
    /// is predicted to pay or is forced.
    ///
    /// # Errors
    /// When settings make no sense.
    pub fn approximate(&mut self, settings: approx::Settings) -> Result<()> {
        if self.recipe.settings.precision == Precision::Bf16 {
            let problem = "backward products are sampled in f32 only; --precision f32 would do";
            return Err(Error::argument("--approx with --precision bf16", problem));
        }
        let (plan, costs) = (&self.chosen.plan, Measured(self.job.profile));
        let recipe = (self.recipe.seed, self.recipe.epochs);
        let mut approx = Approx::new(settings, plan, (&self.sizes, &costs), recipe)?;
        if self.source.changes() {
            approx.with_batches();
        }
        (self.core.approx, self.core.executor) = (Some(approx), None);
        Ok(())
    }

    /// What backward products are computed with, if not with all pairs.
    pub fn approx(&self) -> Option<&Approx> {
        self.core.approx.as_ref()
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

    /// What the training takes, the graph included.
    pub fn needs(&self) -> &Needs {
        &self.needs
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

    /// The learning rate of the next epoch.
    pub fn rate(&self) -> f64 {
        let Recipe { warm_up, decay, .. } = self.recipe;
        let schedule = Schedule { base: self.recipe.optimizer.rate(), warm_up, decay };
        schedule.rate(self.epoch, self.plateau.exhausted())
    }

    /// Tells how good the present weights are, larger being better: rates that fall when nothing
    /// gets better depend on it.
    pub fn judged(&mut self, value: f64) {
        if self.epoch > self.recipe.warm_up {
            self.plateau.see(self.epoch, value);
        }
    }

    /// Runs one epoch, batch by batch: forward, loss, backward, update. Where the observer stops
    /// it between two batches, the next call goes on there.
    ///
    /// # Errors
    /// When a step fails.
    pub fn step(&mut self, observer: &mut dyn Observe) -> Result<Epoch> {
        let start = Instant::now();
        let rate = self.rate();
        let Trainer { job, source, core, within, recipe, .. } = self;
        if recipe.decay != Decay::Constant || recipe.warm_up > 0 {
            core.params.set_optimizer(core.params.optimizer().with_rate(rate));
        }
        core.approx.iter_mut().for_each(|approx| approx.begin(self.epoch));
        source.begin(self.epoch, within.batches)?;
        let changes = source.changes();
        while let Some(batch) = source.next()? {
            if core.executor.is_none() {
                let plan = Arc::new(self.chosen.plan.clone());
                core.begin(Executor::new(plan, job.profile, job.threads)?, &batch)?;
            }
            let seed = batch_seed(recipe.seed, self.epoch, within.batches);
            let loss = core.learn(&batch, (seed, changes), observer)?;
            within.add(loss, batch.labelled.share());
            if !observer.goes_on() && within.batches < source.n_batches() {
                break;
            }
        }
        within.seconds += start.elapsed().as_secs_f64();
        let complete = within.batches >= source.n_batches();
        let Within { loss, seconds, .. } = *within;
        if complete {
            core.approx.iter_mut().for_each(|approx| approx.end(seconds));
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

    /// Computes the results for all nodes, and tells somebody how long steps take.
    ///
    /// # Errors
    /// When a step fails.
    pub fn forward(&mut self, observer: &mut dyn Observe) -> Result<()> {
        let Core { params, running, .. } = &mut self.core;
        self.judge.run(self.job, (params, running), observer)
    }

    /// From now on, [`Trainer::logits`] are scores of these pairs, in their order: for a network
    /// that predicts links.
    ///
    /// # Errors
    /// When a pair names a node that there is not.
    pub fn set_pairs(&mut self, pairs: &[[u32; 2]]) -> Result<()> {
        let n = self.job.dataset.graph().n_nodes();
        self.judge.set_pairs(Pairs::new(n, pairs, self.job.threads)?);
        Ok(())
    }

    /// Bytes of the training plan's slots, once it runs.
    pub fn slot_bytes(&self) -> usize {
        self.core.executor.as_ref().map_or(0, Executor::bytes)
    }

    /// What the kernels of a step are called, once it runs.
    pub fn kernel_name(&self, step: usize) -> Option<&'static str> {
        let runs = self.core.executor.as_ref().or(self.judge.executor());
        runs.and_then(|executor| executor.kernel_name(step))
    }
}

fn plateau(recipe: &Recipe) -> Patience {
    let patience = match recipe.decay {
        Decay::Plateau { patience, .. } => Some(patience),
        _ => None,
    };
    Patience::new(Better::Higher, patience)
}

/// The seed of an epoch's random numbers.
pub fn epoch_seed(seed: u64, epoch: usize) -> u64 {
    seed.wrapping_mul(0x9E37_79B9_7F4A_7C15).wrapping_add(epoch as u64 + 1)
}

/// The seed of a batch's random numbers: the first one's is the epoch's.
fn batch_seed(seed: u64, epoch: usize, batch: usize) -> u64 {
    epoch_seed(seed, epoch).wrapping_add((batch as u64).wrapping_mul(0xD1B5_4A32_D192_ED03))
}
