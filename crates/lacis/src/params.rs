//! [`Params`]: what is learned, with what its optimizer remembers.

use lacis_core::reference::{Adam, Decay, Sgd};
use lacis_core::{Buffer, Dense, Error, Result, Threads};
use lacis_kernels::Isa;
use lacis_kernels::optim::{AdamSlices, adam, sgd};
use lacis_plan::plan::ParamInfo;

/// How weights follow their gradients.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Optimizer {
    /// Adam, or AdamW by its decay.
    Adam(Adam),
    /// Stochastic gradient descent.
    Sgd(Sgd),
}

impl Optimizer {
    /// Adam with a rate and a weight decay, the rest as torch has it.
    pub fn adam(rate: f64, weight_decay: f64) -> Self {
        Optimizer::Adam(Adam {
            rate,
            betas: [0.9, 0.999],
            eps: 1e-8,
            weight_decay,
            decay: Decay::Coupled,
        })
    }

    /// How large steps are.
    pub fn rate(&self) -> f64 {
        match self {
            Optimizer::Adam(adam) => adam.rate,
            Optimizer::Sgd(sgd) => sgd.rate,
        }
    }

    /// The same with another rate.
    pub fn with_rate(self, rate: f64) -> Self {
        match self {
            Optimizer::Adam(adam) => Optimizer::Adam(Adam { rate, ..adam }),
            Optimizer::Sgd(sgd) => Optimizer::Sgd(Sgd { rate, ..sgd }),
        }
    }
}

/// A tensor to learn.
#[derive(Clone, Debug)]
pub struct Param {
    /// Its name.
    pub name: String,
    /// Its numbers.
    pub value: Dense,
    /// First moments, or the velocity.
    pub first: Vec<f32>,
    /// Second moments.
    pub second: Vec<f32>,
}

/// All of them.
#[derive(Clone, Debug)]
pub struct Params {
    all: Vec<Param>,
    optimizer: Optimizer,
    /// Updates done.
    steps: u64,
    /// Gradients of the last pass, kept where somebody asked for them.
    kept: Option<Vec<Vec<f32>>>,
    /// What gradients are multiplied by before they are followed.
    scale: f32,
}

/// Asks the system for the memory of values and moments, before the first of them is filled.
fn reserve(infos: &[ParamInfo]) -> Result<()> {
    let bytes = infos.iter().try_fold(0_usize, |sum, info| {
        let numbers = info.shape[0].checked_mul(info.shape[1])?;
        sum.checked_add(numbers.checked_mul(3 * size_of::<f32>())?)
    });
    Buffer::<u8>::try_zeroed(bytes.ok_or(Error::Memory { bytes: usize::MAX })?).map(drop)
}

impl Params {
    /// Parameters that a plan names, with their first values.
    ///
    /// # Errors
    /// When there is no memory for them, or a value has another shape than the plan says.
    pub fn new(
        infos: &[ParamInfo],
        values: impl FnMut(&ParamInfo) -> Dense,
        optimizer: Optimizer,
    ) -> Result<Self> {
        reserve(infos)?;
        let mut values = values;
        let all = infos.iter().map(|info| {
            let value = values(info);
            let len = info.shape[0] * info.shape[1];
            if [value.n_rows(), value.n_cols()] != info.shape {
                let found = format!("{}×{}", value.n_rows(), value.n_cols());
                let [rows, cols] = info.shape;
                let problem = format!("is {found}; {rows}×{cols} would be right");
                return Err(Error::argument(info.name.clone(), problem));
            }
            let (first, second) = (vec![0.0; len], vec![0.0; len]);
            Ok(Param { name: info.name.clone(), value, first, second })
        });
        let all = all.collect::<Result<Vec<_>>>()?;
        Ok(Params { all, optimizer, steps: 0, kept: None, scale: 1.0 })
    }

    /// Keeps gradients from now on, instead of learning from them: for checks.
    pub fn keep_gradients(&mut self) {
        self.kept = Some(vec![Vec::new(); self.all.len()]);
    }

    /// The gradients kept of the last pass, by parameter.
    pub fn gradients(&self) -> Option<&[Vec<f32>]> {
        self.kept.as_deref()
    }

    /// A parameter's numbers.
    pub fn get(&self, index: usize) -> &Dense {
        &self.all[index].value
    }

    /// All.
    pub fn all(&self) -> &[Param] {
        &self.all
    }

    /// All, to be changed.
    pub fn all_mut(&mut self) -> &mut [Param] {
        &mut self.all
    }

    /// Numbers in all parameters.
    pub fn count(&self) -> usize {
        self.all.iter().map(|param| param.first.len()).sum()
    }

    /// How weights follow their gradients.
    pub fn optimizer(&self) -> Optimizer {
        self.optimizer
    }

    /// From now on.
    pub fn set_optimizer(&mut self, optimizer: Optimizer) {
        self.optimizer = optimizer;
    }

    /// Updates done so far.
    pub fn steps(&self) -> u64 {
        self.steps
    }

    /// As if this many updates had been done.
    pub fn set_steps(&mut self, steps: u64) {
        self.steps = steps;
    }

    /// The next pass is one update further.
    pub fn begin_step(&mut self) {
        self.steps += 1;
    }

    /// From now on gradients are multiplied by this before they are followed.
    pub fn scale_gradients(&mut self, scale: f32) {
        self.scale = scale;
    }

    /// Follows a gradient.
    pub(crate) fn update(
        &mut self,
        index: usize,
        grad: &[f32],
        isa: Isa,
        threads: &Threads,
    ) -> Result<()> {
        let param = &mut self.all[index];
        let grad = &grad[..param.first.len()];
        if let Some(kept) = &mut self.kept {
            kept[index] = grad.to_vec();
            return Ok(());
        }
        let scaled: Vec<f32>;
        let grad = if self.scale == 1.0 {
            grad
        } else {
            scaled = grad.iter().map(|g| g * self.scale).collect();
            &scaled
        };
        let weights = param.value.data_mut();
        match self.optimizer {
            Optimizer::Adam(rule) => {
                let (first, second) = (&mut param.first[..], &mut param.second[..]);
                let slices = AdamSlices { weights, grad, first, second };
                adam(isa, &rule, self.steps.max(1), slices, threads)
            }
            Optimizer::Sgd(rule) => {
                let velocity = (rule.momentum != 0.0).then_some(&mut param.first[..]);
                sgd(isa, &rule, (weights, grad), velocity, threads)
            }
        }
    }
}
