//! Approximate training: backward products from some of their pairs, under a budget.
//!
//! `Aᵀ·G = Σ_j A_j,:ᵀ·G_j` is a sum of pairs, a column of the matrix and a row of the gradient. A
//! [`Policy`] says which pairs are taken, how the budget is shared between layers and when the
//! choice is made anew; see [`draw`], [`pieces`] and [`greedy`]. Forward products, losses and
//! weights are exact, and so is everything from [`Settings::switch`] on. Some rows of each product
//! are compared with the exact ones whenever pairs are chosen ([`mod@watch`]); a layer whose error
//! is too large goes on exactly.
//!
//! ```text
//!   epoch 0        exact; the norms of all pairs are looked at
//!   every 10       shares per layer; pairs chosen, matrices made smaller, errors looked at
//!   in between     the smaller matrices times the present gradients
//!   from 0.8 on    exact
//! ```

pub mod contest;
pub mod draw;
pub mod greedy;
pub mod pieces;
mod product;
mod report;
mod state;
pub mod watch;

use lacis_core::{Error, Result, Threads};
use lacis_kernels::Profile;
use lacis_plan::cost::{Analytic, Costs};
use lacis_plan::sampled::{Sampling, can_sample, sampling};
use lacis_plan::{Plan, Sizes};

pub use product::{Factors, Refresh, Sample};
use product::{Help, Product};
use report::Clock;
pub use report::mean_report;

/// Epochs between decisions on each layer's share.
const TUNE_EVERY: usize = 10;
/// The bound of a draw without bias, unless the user has one: 0 instead of the product has a
/// relative error of 1. Below it, what one draw has too little of the next ones have too much.
const NO_BETTER_THAN_NOTHING: f64 = 1.0;
/// The bound of a choice with bias, which nothing makes up for later: within a fifth of its
/// length, a product is at most 12° off (`sin 12° = 0.2`). A GCN on Amazon Computers loses 8 to 14
/// points with errors of 0.3 to 0.4 (`benchmarks/record/epyc-zen5-2/approx-undirected.json`).
const WITHIN_12_DEGREES: f64 = 0.2;
/// Entries that a layer is given at least, if its own budget has them: one, and some rounding.
const LEAST_ENTRIES: f64 = 1.5;
/// A layer that asks for more than this share of its entries is computed exactly.
const NEARLY_ALL: f64 = 0.9;
/// From so many times the error asked for on, a layer is computed exactly.
const TOO_FAR: f64 = 1.5;
/// What an error is first looked for with, where the budget is to follow and all was allowed.
const START: f64 = 0.1;

/// Which pairs are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// The largest, layers by a greedy loop: as published.
    Rsc,
    /// By score and work, under one budget for all layers, without bias.
    Adaptive,
}

/// How the budget is shared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Allocation {
    /// By what layers lose.
    Layers,
    /// Equally.
    Uniform,
}

/// What is asked for.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// Which pairs.
    pub policy: Policy,
    /// The share of the work of backward products, up to 1.
    pub budget: f64,
    /// The relative error of each product instead: the budget is what it begins with, and follows.
    pub error: Option<f64>,
    /// The relative error from which on a layer is computed exactly, if not the policy's own.
    pub bound: Option<f64>,
    /// The share of epochs after which everything is exact.
    pub switch: f64,
    /// Epochs that share a choice, at most.
    pub interval: usize,
    /// Who gets how much.
    pub allocation: Allocation,
    /// Whether products are sampled that are predicted to take longer so.
    pub force: bool,
}

impl Settings {
    /// A policy with the published numbers.
    pub fn new(policy: Policy, budget: f64) -> Self {
        Settings {
            policy,
            budget,
            error: None,
            bound: None,
            switch: 0.8,
            interval: 10,
            allocation: Allocation::Layers,
            force: false,
        }
    }

    /// The relative error from which on a layer is computed exactly.
    pub fn bound(&self) -> f64 {
        let own = match self.policy {
            Policy::Rsc => WITHIN_12_DEGREES,
            Policy::Adaptive => NO_BETTER_THAN_NOTHING,
        };
        self.bound.or(self.error.map(|error| TOO_FAR * error)).unwrap_or(own)
    }

    /// The budget that a training begins with.
    fn start(&self) -> f64 {
        match self.error {
            Some(_) if self.budget >= 1.0 => START,
            _ => self.budget,
        }
    }

    fn check(&self) -> Result<()> {
        let wrong = |name: &str, value: f64, right: &str| {
            Err(Error::argument(
                format!("approximation's {name}"),
                format!("{value} is not {right}"),
            ))
        };
        match self {
            Settings { budget, .. } if !(*budget > 0.0 && *budget <= 1.0) => {
                wrong("budget", *budget, "above 0 and at most 1; 0.1 to 1 would be right")
            }
            Settings { error: Some(error), .. } if !(*error > 0.0 && error.is_finite()) => {
                wrong("error", *error, "above 0; 0.1 would be right")
            }
            Settings { bound: Some(bound), .. } if bound.is_nan() || *bound <= 0.0 => {
                wrong("bound", *bound, "above 0; 0.5 would be right")
            }
            Settings { switch, .. } if !(0.0..=1.0).contains(switch) => {
                wrong("switch", *switch, "between 0 and 1")
            }
            Settings { interval: 0, .. } => wrong("interval", 0.0, "1 or more"),
            _ => Ok(()),
        }
    }
}

/// What a training's backward products are computed with. See the module's head.
#[derive(Clone, Debug)]
pub struct Approx {
    settings: Settings,
    sampling: Sampling,
    products: Vec<Product>,
    /// Steps that can be sampled, whether it pays or not.
    possible: usize,
    seed: u64,
    epoch: usize,
    /// Epochs that have begun.
    begun: usize,
    /// The epoch that shares were last decided on for.
    allotted: usize,
    epochs: usize,
    /// The share of all work that is allowed now; it follows where an error is asked for.
    budget: f64,
    /// Whether matrices change with every iteration.
    batches: bool,
    clock: Clock,
}

impl Approx {
    /// For a plan: its products that can be sampled, if that is predicted to pay or is forced.
    ///
    /// # Errors
    /// When settings make no sense.
    pub fn new(
        settings: Settings,
        plan: &Plan,
        (sizes, costs): (&Sizes, &dyn Costs),
        (seed, epochs): (u64, usize),
    ) -> Result<Self> {
        settings.check()?;
        let budget = settings.start();
        let sampling = sampling(plan, (sizes, costs), (budget, settings.force));
        let sampling = sampling.unwrap_or_default();
        let on = settings.force || sampling.pays();
        let steps = sampling.steps.iter().filter(|_| on && budget < 1.0);
        let products = steps.map(|sampled| {
            let step = &plan.steps[sampled.step];
            let width = sizes.of(plan.values[step.outputs[0]].shape[1]);
            Product::new(sampled.step, step.layer, width, budget)
        });
        Ok(Approx {
            products: products.collect(),
            clock: Clock::new(plan.steps.len()),
            settings,
            sampling,
            seed,
            possible: plan.steps.iter().filter(|step| can_sample(plan, step)).count(),
            epoch: 0,
            begun: 0,
            allotted: 0,
            epochs,
            budget,
            batches: false,
        })
    }

    /// For products outside of a plan, of which there are none yet: [`Approx::add`].
    ///
    /// # Errors
    /// When settings make no sense.
    pub fn outside(settings: Settings, recipe: (u64, usize)) -> Result<Self> {
        let forced = Settings { force: true, ..settings };
        let nothing = (&Sizes::default(), &Analytic::default() as &dyn Costs);
        Approx::new(forced, &Plan::default(), nothing, recipe)
    }

    /// One more product outside of a plan, this many columns wide; returns its step.
    pub fn add(&mut self, width: usize) -> usize {
        let step = self.clock.add_step();
        self.possible += 1;
        let budget = self.settings.start();
        if budget < 1.0 {
            self.products.push(Product::new(step, None, width, budget));
        }
        step
    }

    /// For one product outside of a plan, which is step 0.
    ///
    /// # Errors
    /// When settings make no sense.
    pub fn alone(settings: Settings, width: usize, recipe: (u64, usize)) -> Result<Self> {
        let mut approx = Approx::outside(settings, recipe)?;
        approx.add(width);
        Ok(approx)
    }

    /// When samples were taken, and how good they were.
    pub fn refreshes(&self) -> impl DoubleEndedIterator<Item = &Refresh> {
        self.products.iter().flat_map(|product| &product.history)
    }

    /// What was asked for.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// What the planner says about it.
    pub fn sampling(&self) -> &Sampling {
        &self.sampling
    }

    /// Whether the plan has any product that can be sampled, whether it pays or not.
    pub fn is_possible(&self) -> bool {
        self.possible > 0
    }

    /// Whether any product is sampled.
    pub fn is_on(&self) -> bool {
        !self.products.is_empty()
    }

    /// The first epoch of which everything is exact.
    pub fn exact_from(&self) -> usize {
        (self.settings.switch * self.epochs as f64) as usize
    }

    fn is_exact(&self) -> bool {
        !self.is_on() || self.epoch >= self.exact_from()
    }

    /// An epoch begins.
    pub fn begin(&mut self, epoch: usize) {
        (self.epoch, self.begun) = (epoch, self.begun.max(epoch + 1));
        self.prepare(epoch);
    }

    /// Decides on each layer's share for an epoch, if that is due: once, and while the matrices are
    /// known that the last one had. A checkpoint comes between two epochs and holds none of them.
    fn prepare(&mut self, epoch: usize) {
        let due = epoch == 1 || epoch.is_multiple_of(TUNE_EVERY);
        let known = |product: &Product| product.seen.is_some() && product.fixed.is_some();
        let may = !self.batches && epoch < self.exact_from() && self.is_on();
        if due && may && epoch > self.allotted && self.products.iter().all(known) {
            (self.epoch, self.allotted) = (epoch, epoch);
            self.allot();
        }
    }

    /// Every iteration has a graph of its own: pairs are chosen in each, and every layer keeps the
    /// same share.
    pub fn with_batches(&mut self) {
        self.batches = true;
    }

    /// Another graph comes: what was known of matrices is forgotten.
    pub fn rebound(&mut self) {
        for product in &mut self.products {
            (product.fixed, product.sample) = (None, None);
            // Nor is a choice of another batch's pairs one of this batch's.
            if self.batches {
                product.resumed = None;
            }
        }
    }

    /// The matrix to multiply with instead of a step's own, if it is to be another.
    ///
    /// # Errors
    /// When sizes do not fit, or there is no memory.
    pub fn sample(
        &mut self,
        step: usize,
        of: &Factors<'_>,
        (profile, threads): (&Profile, &Threads),
    ) -> Result<Option<&Sample>> {
        if self.is_exact() {
            return Ok(None);
        }
        let (epoch, batches) = (self.epoch, self.batches);
        let bound = self.settings.bound();
        let help = Help { settings: &self.settings, profile, threads, seed: self.seed, epoch };
        let Some(product) = self.products.iter_mut().find(|product| product.step == step) else {
            return Ok(None);
        };
        product.meet(of, &help);
        if let Some(resumed) = product.resumed.take() {
            product.keep(resumed, of, &help)?;
        }
        let waits = epoch < product.exact_until || product.share >= 1.0;
        let first = !batches && epoch == 0;
        if first || waits {
            if epoch.is_multiple_of(TUNE_EVERY) {
                product.look(of, &help)?;
            }
            return Ok(None);
        }
        if product.is_due(of, &help) {
            let found = product.refresh(of, &help)?;
            if !found.is_some_and(|found| found.error < bound) {
                product.fall_back(epoch);
                return Ok(None);
            }
        }
        product.served(epoch);
        Ok(product.sample.as_ref())
    }

    /// Decides on each layer's share from what was seen last.
    fn allot(&mut self) {
        let uniform = self.settings.allocation == Allocation::Uniform;
        match (self.settings.policy, self.settings.error) {
            (Policy::Adaptive, Some(error)) => self.follow_error(error),
            (Policy::Adaptive, None) if uniform => {}
            (Policy::Adaptive, None) => self.share_budget(),
            (Policy::Rsc, error) => {
                if let Some(error) = error {
                    self.move_budget(error);
                }
                if !uniform {
                    self.share_pairs();
                }
            }
        }
        self.products.iter_mut().for_each(|product| product.stale = true);
    }

    /// One `λ` for the pairs of all layers, errors relative to each layer's product.
    fn share_budget(&mut self) {
        let known = self.products.iter().filter_map(|product| {
            let (seen, fixed) = (product.seen.as_ref()?, product.fixed.as_ref()?);
            let width = product.width as f64;
            let size = if seen.norm > 0.0 { seen.norm } else { 1.0 } * width.sqrt();
            let own = self.budget * fixed.entries as f64;
            let least = own.min(LEAST_ENTRIES + fixed.certain() as f64);
            let entries = move |lambda: f64| {
                (seen.histogram.work_at(lambda / size) + fixed.certain() as f64).max(least)
            };
            Some((entries, fixed.entries as f64, width))
        });
        let known: Vec<_> = known.collect();
        if known.len() < self.products.len() {
            return;
        }
        let all: f64 = known.iter().map(|(_, entries, width)| entries * width).sum();
        let work = |lambda: f64| -> f64 {
            known.iter().map(|(entries, _, width)| width * entries(lambda)).sum()
        };
        let lambda = draw::bisect(|lambda| work(lambda) <= self.budget * all);
        let shares = known.iter().map(|(entries, all, _)| entries(lambda) / all.max(1.0));
        let shares: Vec<f64> = shares.collect();
        for (product, share) in self.products.iter_mut().zip(shares) {
            product.share = share;
        }
    }

    /// Each layer as much as its error asks for.
    fn follow_error(&mut self, error: f64) {
        for product in &mut self.products {
            let (Some(seen), Some(fixed)) = (&product.seen, &product.fixed) else { continue };
            let allowed = (error * seen.norm / product.correction).powi(2);
            let lambda = seen.histogram.lambda_of_error(allowed);
            let entries =
                seen.histogram.work_at(lambda).max(LEAST_ENTRIES) + fixed.certain() as f64;
            let share = entries / fixed.entries.max(1) as f64;
            product.share = if share > NEARLY_ALL { 1.0 } else { share };
        }
    }

    /// RSC predicts no error: its budget goes up while one is too large, else slowly down.
    fn move_budget(&mut self, error: f64) {
        let last = |product: &Product| product.history.last().map(|refresh| refresh.error);
        let worst = self.products.iter().filter_map(last).fold(0.0, f64::max);
        let waits = self.products.iter().any(|product| self.epoch < product.exact_until);
        self.budget = match worst > error || waits {
            true => (self.budget * 1.25).min(1.0),
            false => self.budget * 0.95,
        };
        self.products.iter_mut().for_each(|product| product.share = self.budget);
    }

    fn share_pairs(&mut self) {
        let layers = self.products.iter().filter_map(|product| {
            let (seen, fixed) = (product.seen.as_ref()?, product.fixed.as_ref()?);
            let (scores, work) = (&seen.smooth[..], &fixed.columns.entries[..]);
            Some(greedy::Layer { scores, work, width: product.width, norm: seen.norm })
        });
        let layers: Vec<greedy::Layer<'_>> = layers.collect();
        if layers.len() < self.products.len() {
            return;
        }
        let shares = greedy::shares(&layers, self.budget);
        for (product, share) in self.products.iter_mut().zip(shares) {
            product.share = share;
        }
    }
}
