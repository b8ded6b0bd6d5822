//! [`Executor`]: runs a plan's steps. It decides nothing: kernels and slots are found when a plan
//! meets its sizes, and a step loop allocates nothing that grows with them.

mod attend;
pub(crate) mod convert;
mod count;
mod dropped;
mod entries;
mod pointwise;
mod products;
mod scored;
mod slots;
mod unit;
pub mod weighted;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use lacis_core::reference::Moments;
use lacis_core::{Csr, Error, Keeper, Result, Threads, bf16};
use lacis_kernels::loss::Loss;
use lacis_kernels::norm::Scaling;
use lacis_kernels::{Isa, Profile};
use lacis_plan::op::NormKind;
use lacis_plan::plan::{Operator, Phase, Place, Plan, Step};

use crate::approx::Approx;
use crate::levels::Levels;
use crate::pairs::Pairs;
use crate::params::Params;
pub use count::Counted;
pub(crate) use products::stored_point;
pub use products::{gemm_point, spmm_point};

use products::Kernels;
use slots::{Held, Slots};

/// Somebody to tell how long steps take, maybe from another thread.
pub trait Observe: Send {
    /// Step `index` of the plan took this long.
    fn step(&mut self, index: usize, seconds: f64);

    /// Whether it wants to know; clocks are read only then.
    fn is_curious(&self) -> bool {
        true
    }

    /// Step `index` of the plan really had to do this.
    fn counted(&mut self, _index: usize, _counted: Counted) {}

    /// Whether it wants to know that; steps are counted only then.
    fn counts(&self) -> bool {
        false
    }

    /// Whether the next batch is to be begun; an epoch that was stopped can go on later.
    fn goes_on(&mut self) -> bool {
        true
    }
}

/// Nobody.
#[derive(Clone, Copy, Debug)]
pub struct Nobody;

impl Observe for Nobody {
    fn step(&mut self, _: usize, _: f64) {}

    fn is_curious(&self) -> bool {
        false
    }
}

/// What a pass over a plan's steps is about.
pub struct Context<'a> {
    /// Graph and features.
    pub levels: &'a Levels,
    /// What the loss compares with.
    pub targets: Targets<'a>,
    /// Which graph each node belongs to, as the first node of each graph and the end.
    pub graphs: Option<&'a [u32]>,
    /// Pairs of nodes to be scored, where those are.
    pub pairs: Option<&'a Pairs>,
    /// Seed of this pass's random numbers.
    pub seed: u64,
    /// Whether elements are dropped and moments are of the batch.
    pub training: bool,
}

/// What a loss compares with.
#[derive(Clone, Copy)]
pub enum Targets<'a> {
    /// Nothing: only results are asked for.
    None,
    /// Classes, or labels of each column.
    Loss(&'a Loss<'a>),
    /// Numbers, and the rows that count.
    Numbers(lacis_kernels::Mat<'a>, &'a [u32]),
    /// Rows that count by weights.
    Weighted(weighted::Weighted<'a>),
}

/// What a pass found.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Outcome {
    /// The loss, NaN where there is none.
    pub loss: f64,
    /// Rows that the loss found right.
    pub correct: usize,
}

/// A plan with its memory. See the module's head.
pub struct Executor {
    plan: Arc<Plan>,
    threads: Threads,
    isa: Isa,
    kernels: Kernels,
    slots: Slots,
    matrices: Vec<Option<Csr>>,
    scalings: HashMap<u32, Scaling>,
    /// Estimates of batch norms, for evaluation.
    running: HashMap<u32, Moments>,
    /// What backward products are computed with instead, where that is asked for.
    approx: Option<Approx>,
    outcome: Outcome,
    /// Whether what is computed once was.
    prepared: bool,
    /// Whether the loss' gradient went over the result.
    replaced: bool,
    /// Gradients that are added to others before a step ends.
    scratch: Vec<f32>,
    /// Which edges stay, a bit for each.
    kept: Vec<u64>,
    /// What kernels need while they run is kept from step to step.
    _keeper: Keeper,
}

impl Executor {
    /// For a plan; memory is asked for when it meets its sizes.
    ///
    /// # Errors
    /// When the plan reads what is not there.
    pub fn new(plan: Arc<Plan>, profile: &Profile, threads: &Threads) -> Result<Self> {
        plan.check()?;
        Ok(Executor {
            threads: threads.clone(),
            isa: Isa::best(),
            kernels: Kernels::new(&plan, profile),
            slots: Slots::new(plan.slots),
            matrices: vec![None; plan.matrices],
            scalings: HashMap::new(),
            running: HashMap::new(),
            approx: None,
            outcome: Outcome::default(),
            prepared: false,
            replaced: false,
            scratch: Vec::new(),
            kept: Vec::new(),
            _keeper: threads.keep(),
            plan,
        })
    }

    /// The same, with no kernel that copies its operand to be faster.
    #[must_use]
    pub fn sparing(mut self) -> Self {
        self.kernels.sparing = true;
        self
    }

    /// The plan.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Makes room for sizes; slots only grow. Kernels are chosen for these sizes.
    ///
    /// # Errors
    /// When there is no memory.
    pub fn bind(&mut self, levels: &Levels, graphs: usize) -> Result<()> {
        let mut sizes = levels.measured();
        sizes.graphs = graphs;
        self.slots.grow(&self.plan.slot_lens(&sizes))?;
        self.kernels.choose(&self.plan, &sizes);
        Ok(())
    }

    /// Makes room for another batch; kernels stay as they were chosen.
    ///
    /// # Errors
    /// When there is no memory.
    pub fn fit(&mut self, levels: &Levels, graphs: usize) -> Result<()> {
        let mut sizes = levels.measured();
        sizes.graphs = graphs;
        self.slots.grow(&self.plan.slot_lens(&sizes))
    }

    /// Whether what is computed once was.
    pub fn is_prepared(&self) -> bool {
        self.prepared
    }

    /// Bytes of all slots.
    pub fn bytes(&self) -> usize {
        self.slots.bytes()
    }

    /// Estimates of batch norms, by their keys.
    pub fn running(&mut self) -> &mut HashMap<u32, Moments> {
        &mut self.running
    }

    /// What backward products are computed with instead of all pairs, if anything.
    pub fn approx(&mut self) -> &mut Option<Approx> {
        &mut self.approx
    }

    /// Runs the steps of some phases in their order.
    ///
    /// # Errors
    /// When a step's sizes do not fit.
    pub fn run(
        &mut self,
        phases: &[Phase],
        context: &Context<'_>,
        params: &mut Params,
        observer: &mut dyn Observe,
    ) -> Result<Outcome> {
        let threads = self.threads.clone();
        threads.inside(|| self.run_here(phases, context, params, observer))
    }

    fn run_here(
        &mut self,
        phases: &[Phase],
        context: &Context<'_>,
        params: &mut Params,
        observer: &mut dyn Observe,
    ) -> Result<Outcome> {
        let plan = self.plan.clone();
        self.prepared |= phases.contains(&Phase::Once);
        // Updates leave the result as it was.
        if phases.iter().any(|phase| matches!(phase, Phase::Forward | Phase::Backward)) {
            self.replaced = phases.contains(&Phase::Backward) && plan.learns();
        }
        self.outcome = Outcome { loss: f64::NAN, correct: 0 };
        for (index, step) in plan.steps.iter().enumerate() {
            if !phases.contains(&step.phase) {
                continue;
            }
            let start = observer.is_curious().then(Instant::now);
            self.step(index, step, context, params)?;
            if let Some(start) = start {
                observer.step(index, start.elapsed().as_secs_f64());
            }
            if observer.counts() {
                observer.counted(index, self.counted(step, context, params)?);
            }
        }
        Ok(self.outcome)
    }

    /// The network's result of the last pass.
    ///
    /// # Errors
    /// When no pass has been, or one went backward: the loss' gradient takes the result's memory.
    pub fn result<'e>(
        &'e self,
        context: &'e Context<'_>,
        params: &'e Params,
    ) -> Result<lacis_kernels::Mat<'e>> {
        if self.replaced {
            let problem = "a backward pass went over it; run the forward phase alone";
            return Err(Error::argument("the network's result", problem));
        }
        self.mat::<f32>(self.plan.result, context, params)
    }

    fn step(
        &mut self,
        index: usize,
        step: &Step,
        context: &Context<'_>,
        params: &mut Params,
    ) -> Result<()> {
        match step.operator {
            Operator::Spmm { .. } => self.spmm(index, step, context, params),
            Operator::Gemm { .. } => self.gemm(index, step, context, params),
            Operator::SparseTransposed => self.sparse_transposed(step, context, params),
            Operator::EntryScale { .. }
            | Operator::PlusIdentity { .. }
            | Operator::DiagonalProduct
            | Operator::EntryDropout { .. } => self.entries(step, context, params),
            Operator::EdgeDropout { .. } => self.drop_edges(step, context),
            Operator::Loss(_) => self.loss(step, context, params),
            Operator::Update(param) => self.update(step, param, context, params),
            Operator::Convert => self.convert(step, context, params),
            _ if self.is_half(step) => self.on_rows::<bf16>(step, context, params),
            _ => self.on_rows::<f32>(step, context, params),
        }
    }

    /// Whether a step's rows are stored in bf16: all of them are, or none.
    fn is_half(&self, step: &Step) -> bool {
        step.inputs.iter().chain(&step.outputs).any(|&value| self.plan.values[value].half)
    }

    /// Steps whose kernels take rows in either storage.
    fn on_rows<T: Held>(
        &mut self,
        step: &Step,
        context: &Context<'_>,
        params: &Params,
    ) -> Result<()> {
        match step.operator {
            Operator::Each(each) => self.each::<T>(step, &each, context, params),
            Operator::EachGrad { .. } => self.each_grad::<T>(step, context, params),
            Operator::Attention(of) => self.attend::<T>(step, &of, context, params),
            Operator::AttentionGrad(of) => self.attend_grad::<T>(step, &of, context, params),
            Operator::Gated => self.gated::<T>(step, context, params),
            Operator::GatedGrad => self.gated_grad::<T>(step, context, params),
            Operator::Extreme(_) | Operator::ExtremeGrad(_) => {
                self.extreme::<T>(step, context, params)
            }
            Operator::Norm { kind, key } => self.norm::<T>(step, (kind, key), context, params),
            Operator::NormGrad { kind, key } => {
                self.norm_grad::<T>(step, (kind, key), context, params)
            }
            Operator::Unit | Operator::UnitGrad => self.unit::<T>(step, context, params),
            Operator::Pairs(_) | Operator::PairsGrad(_) => self.pairs::<T>(step, context, params),
            Operator::Readout(_) | Operator::ReadoutGrad(_) => {
                self.readout::<T>(step, context, params)
            }
            _ => self.small::<T>(step, context, params),
        }
    }
}

impl Executor {
    /// The length of all parameters' gradients together, after a backward pass.
    ///
    /// # Errors
    /// When no pass has been.
    pub fn gradient_norm(&self, context: &Context<'_>, params: &Params) -> Result<f64> {
        let mut sum = 0.0;
        for step in &self.plan.steps {
            if let Operator::Update(_) = step.operator {
                let grad = self.mat::<f32>(step.inputs[0], context, params)?;
                let squares = |row: &[f32]| row.iter().map(|g| f64::from(*g).powi(2)).sum::<f64>();
                sum += (0..grad.n_rows()).map(|i| squares(grad.row(i))).sum::<f64>();
            }
        }
        Ok(sum.sqrt())
    }

    /// A parameter follows its gradient.
    fn update(
        &mut self,
        step: &Step,
        param: usize,
        context: &Context<'_>,
        params: &mut Params,
    ) -> Result<()> {
        let value = step.inputs[0];
        if let Place::Slot(slot) = self.plan.values[value].place {
            return params.update(param, self.slots.get(slot), self.isa, &self.threads);
        }
        // A view of something wider, or a weight that is its own gradient: small, and copied.
        let grad = self.mat::<f32>(value, context, params)?;
        let rows: Vec<f32> = (0..grad.n_rows()).flat_map(|i| grad.row(i).to_vec()).collect();
        params.update(param, &rows, self.isa, &self.threads)
    }
}

/// A key that layers and their random numbers share.
fn purpose(key: u32) -> String {
    format!("dropout {key}")
}

/// Whether moments are of the batch.
fn of_batch(kind: NormKind, training: bool) -> bool {
    kind == NormKind::Batch && training
}

fn wrong(step: &Step) -> Error {
    Error::argument("plan", format!("{:?} does not compute {}", step.operator, step.formula))
}
