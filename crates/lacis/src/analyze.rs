//! How much parallelism a network holds, and what each way to use it would cost on this graph.
//!
//! Work, depth and bytes come from the plan's own steps ([`lacis_plan::analysis`]); what workers
//! would send each other from this graph's real cuts ([`crate::partition`]); times from the
//! machine's profile for the computing and from `α + β·bytes` for each message. The kinds of
//! parallelism are those of Besta and Hoefler's taxonomy (2022), the 1-D to 3-D distributions
//! those of CAGNET (Tripathy, Yelick and Buluç, 2020).

mod classes;
mod grids;
mod kinds;
mod layers;
mod piped;
pub mod pipeline;
mod scheme;
mod sent;

use std::collections::BTreeSet;
use std::sync::Arc;

use lacis_core::{Dataset, Features, Graph, Result, Threads};
use lacis_plan::analysis::{Subject, Tally};
use lacis_plan::cost::{Costs, Work, predict, work};
use lacis_plan::plan::{Form, Operator, Phase, Place, Plan, Step, ValueId};
use lacis_plan::{Dim, Sizes};

use crate::nn::Config;
pub use classes::{CLASSES, Class, FAMILIES, Family, SYMBOLS};
pub use kinds::{KINDS, Kind, Verdict};
use pipeline::Schedule;
pub use scheme::{SCHEMES, Sampled, Scheme};

/// Bytes of a number.
const F32: f64 = 4.0;

/// Workers and the wires between them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Wires {
    /// How many workers.
    pub workers: usize,
    /// Seconds of any message.
    pub alpha: f64,
    /// Seconds of a byte.
    pub beta: f64,
    /// Iterations that values in a pipeline may be old.
    pub staleness: usize,
    /// Blocks of nodes that flow through a pipeline.
    pub blocks: usize,
}

impl Default for Wires {
    /// Eight machines on a 100 Gbit/s network.
    fn default() -> Self {
        Wires { workers: 8, alpha: 5e-6, beta: 8e-11, staleness: 0, blocks: 16 }
    }
}

/// What is analysed.
pub struct Case<'a> {
    /// The data.
    pub dataset: &'a Dataset,
    /// The network's configuration.
    pub config: &'a Config,
    /// Its name.
    pub model: &'a str,
    /// Its plan.
    pub plan: &'a Plan,
    /// The sizes it was made for.
    pub sizes: &'a Sizes,
    /// Who says how long work takes.
    pub costs: &'a dyn Costs,
    /// Who runs loops.
    pub threads: &'a Threads,
    /// Nodes that train.
    pub train: &'a [u32],
}

/// What a layer asks for.
#[derive(Clone, Debug, PartialEq)]
pub struct Layer {
    /// Its name: a number, or what is in no layer.
    pub name: String,
    /// Before the first epoch, forward, backward and update.
    pub passes: [Tally; 4],
    /// An epoch: forward, backward and update.
    pub epoch: Tally,
    /// Orders of growth of the forward pass, work and depth.
    pub forward_order: [String; 2],
    /// The same of the backward pass.
    pub backward_order: [String; 2],
    /// Seconds of an epoch, as predicted.
    pub seconds: f64,
}

/// A kind of parallelism, and predicted seconds of an epoch by the number of workers.
pub type Curve = (&'static str, Vec<(usize, f64)>);

/// All of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Analysis {
    /// What edges carry: the local form; none where nothing is gathered.
    pub class: Option<&'static Class>,
    /// Which function of the adjacency it is: the global form.
    pub family: &'static Family,
    /// Layer by layer; last, what belongs to none.
    pub layers: Vec<Layer>,
    /// An epoch of all.
    pub epoch: Tally,
    /// Seconds of an epoch on one worker, as predicted.
    pub seconds: f64,
    /// Ways to train, full batch first.
    pub schemes: Vec<Scheme>,
    /// Kinds of parallelism for so many workers.
    pub parallelism: Vec<Verdict>,
    /// Predicted seconds for 1, 2, 4, … workers, by kind.
    pub curves: Vec<Curve>,
    /// The pipeline of layers, as it would run.
    pub schedule: Option<Schedule>,
    /// What to do, and why.
    pub advice: String,
    /// Kinds that were not looked at, and why.
    pub left_out: Vec<String>,
}

impl Analysis {
    /// Symbols of all orders of growth, and what they stand for.
    pub fn symbols(&self) -> Vec<(&'static str, &'static str)> {
        let layers =
            self.layers.iter().flat_map(|l| l.forward_order.iter().chain(&l.backward_order));
        let schemes =
            self.schemes.iter().flat_map(|s| [s.work_order, s.depth_order, s.memory_order]);
        let orders: Vec<&str> = layers.map(String::as_str).chain(schemes).collect();
        classes::symbols_of(&orders)
    }
}

/// Analyses a case for some workers.
///
/// # Errors
/// When the graph cannot be cut, or a step has no cost.
pub fn analyze(case: &Case<'_>, wires: &Wires) -> Result<Analysis> {
    let view = View::new(case)?;
    let layers = view.layers();
    let parallelism = kinds::all(&view, wires)?;
    let schedule = piped::macro_schedule(&view, wires)?;
    let advice = kinds::advice(&view, &parallelism, wires);
    Ok(Analysis {
        class: view.class(),
        family: view.family(),
        left_out: piped::left_out(&view, wires),
        epoch: view.subject().steps(|step| step.phase != Phase::Once),
        seconds: view.seconds,
        schemes: scheme::all(&view)?,
        curves: kinds::curves(&view, wires)?,
        layers,
        parallelism,
        schedule,
        advice,
    })
}

/// A case with what is asked of it again and again.
pub(crate) struct View<'a> {
    case: &'a Case<'a>,
    degree: usize,
    /// Predicted seconds of each step.
    steps: Vec<f64>,
    /// Seconds of an epoch.
    seconds: f64,
    features: Arc<Features>,
}

/// A product with the adjacency: what its workers must exchange.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Exchange {
    /// Columns that are gathered.
    pub width: usize,
    /// Gathered along the other direction of edges.
    pub transposed: bool,
}

impl<'a> View<'a> {
    fn new(case: &'a Case<'a>) -> Result<Self> {
        let graph = case.dataset.graph();
        let lengths = graph.adjacency().row_lengths();
        let degree = lengths.iter().copied().max().unwrap_or(0) as usize;
        let predicted = predict(case.plan, case.sizes, case.costs).unwrap_or_default();
        let features = case
            .dataset
            .features()
            .cloned()
            .unwrap_or_else(|| Features::Dense(lacis_core::Dense::zeros(graph.n_nodes(), 0)));
        let seconds = predicted.epoch(case.sizes.iterations);
        Ok(View { case, degree, steps: predicted.steps, seconds, features: Arc::new(features) })
    }

    fn graph(&self) -> &Graph {
        self.case.dataset.graph()
    }

    fn subject(&self) -> Subject<'_> {
        Subject { plan: self.case.plan, sizes: self.case.sizes, degree: self.degree }
    }

    /// Steps of an epoch, and their predicted seconds.
    fn epoch(&self) -> impl Iterator<Item = (&Step, f64)> {
        let steps = self.case.plan.steps.iter().zip(&self.steps);
        steps.filter(|(step, _)| step.phase != Phase::Once).map(|(step, time)| (step, *time))
    }

    /// An epoch's share of the seconds of what is done once.
    fn once_share(&self) -> f64 {
        (self.seconds - self.epoch().map(|(_, seconds)| seconds).sum::<f64>()).max(0.0)
    }

    /// Products with the adjacency in an epoch.
    fn exchanges(&self) -> Vec<Exchange> {
        let plan = self.case.plan;
        let epoch = plan.steps.iter().filter(|step| step.phase != Phase::Once);
        let products = epoch.filter_map(|step| {
            let transposed = turned(plan, *step.inputs.first()?)?;
            match work(plan, step, self.case.sizes) {
                Work::Spmm { width, .. } => Some(Exchange { width, transposed }),
                Work::Attention { width, heads, .. } => {
                    Some(Exchange { width: width + heads, transposed })
                }
                // Both rows of an edge's other end.
                _ if matches!(step.operator, Operator::Gated | Operator::GatedGrad) => {
                    let width = self.case.sizes.of(plan.values[step.inputs[3]].shape[1]);
                    Some(Exchange { width: 2 * width, transposed })
                }
                _ => None,
            }
        });
        products.collect()
    }

    /// Columns that a step can be dealt out by: of `X` and rows of `W` in a product `X·W`, of what
    /// comes out in others.
    fn columns(&self, step: &Step) -> usize {
        let shape = |value: ValueId| self.case.plan.values[value].shape;
        let (input, output) = (step.inputs.first(), step.outputs.first());
        let dim = match step.operator {
            Operator::Gemm { form: Form::Nn, .. } => input.map(|&x| shape(x)[1]),
            Operator::Spmm { .. } if self.by_weights(step) => input.map(|&x| shape(x)[1]),
            Operator::Gemm { form: Form::Tn, .. } | Operator::SparseTransposed => {
                output.map(|&dw| shape(dw)[0])
            }
            _ => output.or(input).map(|&y| shape(y)[1]),
        };
        match dim {
            Some(Dim::Width(width)) => width,
            _ => 1,
        }
    }

    /// Whether a step is a product with weights: of dense rows, or of sparse features.
    fn by_weights(&self, step: &Step) -> bool {
        match step.operator {
            Operator::Gemm { .. } | Operator::SparseTransposed => true,
            Operator::Spmm { .. } => turned(self.case.plan, step.inputs[0]).is_none(),
            _ => false,
        }
    }

    /// Columns of what workers add up or gather where each has some columns of all rows: results of
    /// products with weights, and gradients that go back through such, each once.
    fn column_sums(&self) -> Vec<usize> {
        let plan = self.case.plan;
        let width = |value: ValueId| self.case.sizes.of(plan.values[value].shape[1]);
        let (mut ahead, mut back) = (Vec::new(), BTreeSet::new());
        for (step, _) in self.epoch().filter(|(step, _)| self.by_weights(step)) {
            match (step.phase, step.operator) {
                (Phase::Forward, _) => ahead.push(width(step.outputs[0])),
                (_, Operator::Gemm { form: Form::Tn, .. } | Operator::SparseTransposed) => {
                    back.insert(plan.base(step.inputs[1]));
                }
                _ => {
                    back.insert(plan.base(step.inputs[0]));
                }
            }
        }
        ahead.extend(back.into_iter().map(width));
        ahead
    }

    /// Rows and columns of what products with weights give, in an epoch.
    fn weight_products(&self) -> Vec<[usize; 2]> {
        let products = self.epoch().filter(|(step, _)| self.by_weights(step));
        let shape = |value: ValueId| self.case.plan.values[value].shape;
        products.map(|(step, _)| shape(step.outputs[0]).map(|d| self.case.sizes.of(d))).collect()
    }

    /// Seconds of an epoch's products with the adjacency, of those with weights, and of the rest.
    fn by_kind(&self) -> [f64; 3] {
        let plan = self.case.plan;
        let mut seconds = [0.0; 3];
        for (step, time) in self.epoch() {
            let kind = match work(plan, step, self.case.sizes) {
                _ if self.by_weights(step) => 1,
                _ if matches!(step.operator, Operator::Gated | Operator::GatedGrad) => 0,
                Work::Spmm { .. } | Work::Attention { .. } => 0,
                _ => 2,
            };
            seconds[kind] += time;
        }
        seconds
    }

    /// Bytes of all parameters.
    fn param_bytes(&self) -> f64 {
        let shapes = self.case.plan.params.iter().map(|param| param.shape[0] * param.shape[1]);
        shapes.sum::<usize>() as f64 * F32
    }

    /// Bytes of what grows with nodes: slots and features.
    fn node_bytes(&self) -> f64 {
        let features = match &*self.features {
            Features::Dense(x) => x.n_rows() * x.n_cols() * 4,
            Features::Sparse(x) => x.bytes(),
        };
        (self.case.plan.slot_bytes(self.case.sizes) + features) as f64
    }
}

/// Whether a value is an adjacency, as stored or the other way round.
fn turned(plan: &Plan, value: ValueId) -> Option<bool> {
    match plan.values[plan.base(value)].place {
        Place::Adjacency(adjacency) => Some(adjacency.transposed),
        Place::Entries { of, .. } => turned(plan, of),
        Place::Matrix(_) => {
            let maker = plan.steps.iter().find(|step| step.outputs.contains(&value))?;
            turned(plan, *maker.inputs.first()?)
        }
        _ => None,
    }
}
