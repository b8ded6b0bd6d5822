//! Choosing: candidates per layer, each costed with the best backward pass it allows.
//!
//! ```text
//!  for each layer:  forms (rules) × bracketings (compose) ─► pruned, whatever the input
//!  for each kept:   the whole network with it, its gradients, their bracketings ─► predicted time
//!  the cheapest of each layer, the other layers as chosen so far
//! ```

mod backward;
mod candidates;

use std::collections::{BTreeMap, HashMap};

use lacis_core::{Error, Result};

use crate::cost::{Costs, Predicted, Remembered, predict};
use crate::dim::Sizes;
use crate::expr::Expr;
use crate::grad::gradients;
use crate::lower::{Goal, Options, lower};
use crate::memory::Memory;
use crate::op::{LossKind, Op};
use crate::plan::{Plan, Precision};

pub use candidates::{Candidate, Candidates};

/// Candidates of a layer for which the backward pass is planned too.
const LOOKED_AT: usize = 4;

/// How often the layers are gone through: a layer is chosen while later ones are not yet, and once
/// they are, another may fit them better.
const MOST_PASSES: usize = 3;

/// Which equalities are used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RuleSet {
    /// All of them.
    #[default]
    All,
    /// Re-association alone, no scaling inside kernels: the setting of SENSEi.
    Sensei,
}

/// Exact savings, by the names that users leave them out with.
pub const SAVINGS: &[&str] = &["hoist", "input-grad", "reach", "zero-rows", "symmetry", "fuse"];

/// What the planner may do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Equalities.
    pub rules: RuleSet,
    /// Savings that are left out.
    pub without: Vec<String>,
    /// Most candidates of a layer.
    pub budget: usize,
    /// Whether formulas are the same for many iterations: batches change the graph each time.
    pub batches: bool,
    /// Most bytes that a plan may take beside graph and features; see [`Memory`].
    pub memory: Option<usize>,
    /// Bytes that there are. Nobody asked for less, but a training that takes more cannot run.
    pub present: Option<usize>,
    /// What features and activations are stored in.
    pub precision: Precision,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            rules: RuleSet::All,
            without: vec![],
            budget: 5000,
            batches: false,
            memory: None,
            present: None,
            precision: Precision::F32,
        }
    }
}

impl Settings {
    /// Whether a saving is in use.
    pub fn uses(&self, saving: &str) -> bool {
        !self.without.iter().any(|name| name == saving || name == "all")
    }

    fn options(&self, named: bool) -> Options {
        let fuse = self.uses("fuse") && self.rules == RuleSet::All;
        let hoist = self.uses("hoist") && !self.batches;
        Options { fuse, hoist, named, precision: self.precision }
    }
}

/// A network: what it computes, and what for.
#[derive(Clone, Debug)]
pub struct Network {
    /// Its result, the logits.
    pub result: Expr,
    /// What is minimised; absent where nothing is learned.
    pub loss: Option<LossKind>,
    /// What is learned, in the order of its names in files.
    pub params: Vec<Expr>,
}

/// What was decided, and how.
#[derive(Clone, Debug)]
pub struct Chosen {
    /// The plan.
    pub plan: Plan,
    /// What it is expected to cost.
    pub predicted: Predicted,
    /// Its layers.
    pub layers: Vec<Candidates>,
    /// How many plans were costed.
    pub costed: usize,
    /// Bytes that it takes beside graph and features.
    pub memory: Memory,
    /// Bytes above the limit, where no plan stays below it: this is then the smallest one found.
    pub over: usize,
}

/// What a plan costs: first what it takes above the limit of memory, then time.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Price {
    over: usize,
    seconds: f64,
}

impl Price {
    /// Whether it is less. The first of equals stays, so that a choice does not depend on the
    /// rounding of sums.
    fn beats(&self, other: &Price) -> bool {
        let faster = self.seconds < other.seconds * (1.0 - 1e-9);
        self.over < other.over || (self.over == other.over && faster)
    }

    fn order(&self, other: &Price) -> std::cmp::Ordering {
        self.over.cmp(&other.over).then(self.seconds.total_cmp(&other.seconds))
    }
}

/// The original layers of a network: their numbers, barriers and bodies, the first ones first.
fn layers(result: &Expr) -> Vec<(u16, Expr)> {
    let all = Expr::sorted(std::slice::from_ref(result));
    let barriers = all.into_iter().filter_map(|expr| match expr.op() {
        Op::Layer(number) => Some((*number, expr)),
        _ => None,
    });
    barriers.collect()
}

/// Plans a network for sizes and costs. Where no plan stays below the limit of memory, the smallest
/// one that was found comes back, and says by how much it is too large.
///
/// # Errors
/// When shapes do not fit, or something has no kernel.
pub fn choose(
    network: &Network,
    sizes: &Sizes,
    costs: &dyn Costs,
    settings: &Settings,
) -> Result<Chosen> {
    network.result.check()?;
    let costs = &Remembered::new(costs);
    let chosen = choose_with(network, sizes, costs, settings)?;
    if chosen.over == 0 || !settings.uses("hoist") {
        return Ok(chosen);
    }
    // What is computed once is kept to the end: computed again and again, it shares its memory.
    let mut without = settings.without.clone();
    without.push("hoist".to_owned());
    let smaller = choose_with(network, sizes, costs, &Settings { without, ..settings.clone() })?;
    Ok(if smaller.over < chosen.over { smaller } else { chosen })
}

fn choose_with(
    network: &Network,
    sizes: &Sizes,
    costs: &dyn Costs,
    settings: &Settings,
) -> Result<Chosen> {
    let mut planner = Planner::new(network, sizes, costs, settings);
    let mut passes = 1;
    while planner.choose_layers()? && passes < MOST_PASSES {
        passes += 1;
    }
    planner.finish()
}

/// The plan in which one layer is computed as its candidate `index` says, the others as `chosen`
/// has them.
///
/// # Errors
/// When there is no such candidate.
pub fn with_candidate(
    (network, chosen): (&Network, &Chosen),
    (layer, index): (usize, usize),
    (sizes, costs): (&Sizes, &dyn Costs),
    settings: &Settings,
) -> Result<Plan> {
    let costs = &Remembered::new(costs);
    let mut planner = Planner::new(network, sizes, costs, settings);
    for (own, theirs) in planner.layers.iter_mut().zip(&chosen.layers) {
        own.candidates.chosen = theirs.chosen;
    }
    let missing = || Error::argument("candidate", format!("layer {layer} has no {index}"));
    let of = planner.layers.get_mut(layer).ok_or_else(missing)?;
    if index >= of.candidates.all.len() {
        return Err(missing());
    }
    of.candidates.chosen = index;
    Ok(planner.finish()?.plan)
}

struct Layer {
    barrier: Expr,
    candidates: Candidates,
    /// Those of many that a first pass found cheapest.
    promising: Vec<usize>,
}

struct Planner<'a> {
    network: &'a Network,
    sizes: &'a Sizes,
    costs: &'a dyn Costs,
    settings: &'a Settings,
    layers: Vec<Layer>,
    /// Layers that look alike are decided once.
    decided: HashMap<String, usize>,
    costed: usize,
}

impl<'a> Planner<'a> {
    fn new(
        network: &'a Network,
        sizes: &'a Sizes,
        costs: &'a dyn Costs,
        settings: &'a Settings,
    ) -> Self {
        let layers = layers(&network.result).into_iter().map(|(number, barrier)| {
            let candidates = Candidates::of(number, &barrier.args()[0], settings);
            Layer { barrier, candidates, promising: vec![] }
        });
        let layers = layers.collect();
        Planner { network, sizes, costs, settings, layers, decided: HashMap::new(), costed: 0 }
    }

    /// The network's result with every layer as chosen.
    fn assembled(&self) -> Expr {
        let mut made: BTreeMap<u128, Expr> = BTreeMap::new();
        for layer in &self.layers {
            let body = &layer.candidates.all[layer.candidates.chosen].expr;
            let body = body.replace(&|expr| made.get(&expr.id()).cloned());
            made.insert(layer.barrier.id(), body.in_layer(layer.candidates.layer));
        }
        self.network.result.replace(&|expr| made.get(&expr.id()).cloned())
    }

    /// What has to be computed: forward, loss and gradients.
    fn goal(&self) -> Goal {
        let result = self.assembled();
        let none = |param: &Expr| (param.clone(), None);
        let Some(kind) = self.network.loss else {
            let params = self.network.params.iter().map(none).collect();
            return Goal { result, loss: None, params, extra: vec![] };
        };
        let loss = Expr::new(Op::Loss(kind), vec![result.clone()]);
        let mut of = self.network.params.clone();
        if !self.settings.uses("input-grad") {
            let all = Expr::sorted(std::slice::from_ref(&result));
            of.extend(
                all.into_iter().filter(|e| matches!(e.op(), Op::Features { sparse: false, .. })),
            );
        }
        let mut grads = gradients(&loss, &of);
        let extra = grads.split_off(self.network.params.len()).into_iter().flatten().collect();
        let params = self.network.params.iter().cloned().zip(grads).collect();
        backward::without_masks(Goal { result, loss: Some(loss), params, extra })
    }

    /// A goal's plan and its cost, the backward pass bracketed as is best.
    fn costed_goal(&mut self, improve: bool) -> Option<(Goal, Price)> {
        let mut goal = self.goal();
        let options = self.settings.options(false);
        let iterations = self.sizes.iterations;
        let mut costed = 0;
        let mut cost = |goal: &Goal| {
            costed += 1;
            let plan = lower(goal, options, self.sizes);
            let seconds = predict(&plan, self.sizes, self.costs)?.epoch(iterations);
            let over = self
                .settings
                .memory
                .map_or(0, |most| Memory::of(&plan, self.sizes).total().saturating_sub(most));
            Some(Price { over, seconds })
        };
        let mut best = cost(&goal)?;
        if goal.loss.is_some() && improve {
            backward::improve(&mut goal, &mut best, &mut cost);
        }
        self.costed += costed;
        Some((goal, best))
    }

    /// Chooses layer by layer. Returns whether one changed after an earlier one was chosen.
    fn choose_layers(&mut self) -> Result<bool> {
        self.decided.clear();
        let mut changed = false;
        for at in 0..self.layers.len() {
            let before = self.layers[at].candidates.chosen;
            self.choose_layer(at)?;
            changed |= at > 0 && self.layers[at].candidates.chosen != before;
        }
        Ok(changed)
    }

    fn choose_layer(&mut self, at: usize) -> Result<()> {
        let looks = self.layers[at].candidates.looks.clone();
        let kept: Vec<usize> = self.layers[at].candidates.kept();
        let alike = self.decided.get(&looks).copied();
        if let Some(index) = alike.filter(|_| at + 1 < self.layers.len()) {
            self.layers[at].candidates.chosen = index;
            return Ok(());
        }
        let kept = self.most_promising(at, kept);
        let mut best: Option<(Price, usize)> = None;
        for index in kept {
            self.layers[at].candidates.chosen = index;
            let Some((_, price)) = self.costed_goal(true) else { continue };
            self.layers[at].candidates.all[index].predicted = Some(price.seconds);
            if best.is_none_or(|(least, _)| price.beats(&least)) {
                best = Some((price, index));
            }
        }
        let Some((_, index)) = best else {
            let body = &self.layers[at].candidates.all[0].expr;
            return Err(Error::argument("plan", format!("no kernel computes {body}")));
        };
        self.layers[at].candidates.chosen = index;
        self.decided.insert(looks, index);
        Ok(())
    }

    /// Of many candidates, those that are cheapest with the backward pass as it comes.
    fn most_promising(&mut self, at: usize, kept: Vec<usize>) -> Vec<usize> {
        if kept.len() <= LOOKED_AT {
            return kept;
        }
        if self.layers[at].promising.is_empty() {
            let mut costs: Vec<(Price, usize)> = Vec::new();
            for index in kept {
                self.layers[at].candidates.chosen = index;
                if let Some((_, price)) = self.costed_goal(false) {
                    self.layers[at].candidates.all[index].predicted = Some(price.seconds);
                    costs.push((price, index));
                }
            }
            costs.sort_by(|a, b| a.0.order(&b.0).then(a.1.cmp(&b.1)));
            let promising = costs.into_iter().take(LOOKED_AT).map(|(_, index)| index);
            self.layers[at].promising = promising.collect();
        }
        self.layers[at].promising.clone()
    }

    fn finish(mut self) -> Result<Chosen> {
        let Some((goal, _)) = self.costed_goal(true) else {
            let formula = &self.network.result;
            return Err(Error::argument("plan", format!("no kernels compute {formula}")));
        };
        let mut plan = lower(&goal, self.settings.options(true), self.sizes);
        let training = goal.loss.is_some();
        let applies = |saving: &&&str| match **saving {
            "input-grad" | "zero-rows" => training,
            "hoist" => plan.steps.iter().any(|s| s.phase == crate::plan::Phase::Once),
            "symmetry" => self.sizes.symmetric,
            _ => true,
        };
        let savings = SAVINGS.iter().filter(|name| self.settings.uses(name)).filter(applies);
        plan.savings = savings.map(|name| (*name).to_owned()).collect();
        let Some(predicted) = predict(&plan, self.sizes, self.costs) else {
            return Err(Error::argument("plan", "a step has no kernel".to_owned()));
        };
        let layers = self.layers.into_iter().map(|layer| layer.candidates).collect();
        let memory = Memory::of(&plan, self.sizes);
        let over = self.settings.memory.map_or(0, |most| memory.total().saturating_sub(most));
        Ok(Chosen { plan, predicted, layers, costed: self.costed, memory, over })
    }
}
