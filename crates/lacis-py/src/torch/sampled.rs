//! Backward products of torch's layers from some of their pairs; see `lacis::approx`.
//!
//! An epoch is a backward pass: a product that comes again begins the next. A product that comes
//! with another matrix than the last time belongs to batches, whose pairs are chosen each time.

use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use lacis::approx::{Approx, Factors, Policy, Settings};
use lacis::kernels::sampled::Scaled;
use lacis::kernels::spmm;
use lacis::reference::Reduce;
use lacis::{Error, Result, Threads};
use pyo3::prelude::*;

use super::adjacency::Adjacency;
use super::call::Call;
use super::convert::optional;
use super::products::{Spmm, Which};
use super::{failed, profile, threads};

/// A program that does not say how many epochs it runs is never at its end.
const NO_END: usize = u32::MAX as usize;

/// What is asked for: policy, budget, error, switch, how many epochs there are, and the bound.
#[derive(Clone, Debug, FromPyObject)]
pub struct Asked(String, f64, Option<f64>, f64, Option<usize>, Option<f64>);

impl Asked {
    fn settings(&self) -> Result<Settings> {
        let policy = match self.0.as_str() {
            "rsc" => Policy::Rsc,
            "adaptive" => Policy::Adaptive,
            other => {
                let problem = format!("'{other}' is no policy; rsc or adaptive would be right");
                return Err(Error::argument("approx", problem));
            }
        };
        // Without an end nothing is near it.
        let switch = if self.4.is_some() { self.3 } else { 1.0 };
        Ok(Settings { error: self.2, bound: self.5, switch, ..Settings::new(policy, self.1) })
    }
}

/// What the sampled products of a model share: one budget.
#[pyclass(frozen, module = "lacis._lacis")]
pub struct Sampling {
    state: Mutex<State>,
}

struct State {
    approx: Approx,
    /// How often each product came, and with which matrix the last time.
    seen: Vec<(usize, (u64, bool))>,
    epoch: usize,
    begun: Option<Instant>,
}

impl State {
    /// A product comes: the epoch it belongs to begins, if it has not.
    fn meet(&mut self, step: usize, matrix: (u64, bool)) {
        let (times, last) = &mut self.seen[step];
        let other = *times > 0 && *last != matrix;
        (*times, *last) = (*times + 1, matrix);
        let times = *times;
        if other {
            self.approx.with_batches();
            self.approx.rebound();
        }
        if times > self.epoch {
            if let Some(begun) = self.begun {
                self.approx.end(begun.elapsed().as_secs_f64());
            }
            self.epoch = times;
            self.begun = Some(Instant::now());
            self.approx.begin(times - 1);
        }
    }

    /// The product from some pairs, or nothing where it is to be exact.
    fn product(
        &mut self,
        step: usize,
        on: &Adjacency,
        call: Spmm,
        threads: &Threads,
    ) -> Result<bool> {
        let Spmm(x, y, which) = call;
        let Which(_, _, left, right, values, ..) = which;
        let a = on.factor(&which, threads)?;
        let (left, right) = (optional(left, a.n_rows())?, optional(right, a.n_cols)?);
        let of = Scaled { a, values: optional(values, a.cols.len())?, left, right };
        let factors = Factors { a: of, x: x.read()? };
        let Some(sample) = self.approx.sample(step, &factors, (profile(), threads))? else {
            return Ok(false);
        };
        let args = spmm::Args::new(sample.matrix.view(), factors.x, Reduce::Sum)?;
        let args = args.scaled(left, None)?.ending(which.ending(x.cols())?)?;
        let (kernel, isa) = sample.kernel;
        spmm::KERNELS[kernel].run(isa, &args, y.write::<f32>()?, threads)?;
        Ok(true)
    }
}

#[pymethods]
impl Sampling {
    /// For products that [`Sampling::add`] names.
    #[new]
    fn new(asked: Asked, seed: u64) -> PyResult<Self> {
        let epochs = asked.4.unwrap_or(NO_END);
        let settings = asked.settings().map_err(failed)?;
        let approx = Approx::outside(settings, (seed, epochs)).map_err(failed)?;
        let state = State { approx, seen: Vec::new(), epoch: 0, begun: None };
        Ok(Sampling { state: Mutex::new(state) })
    }

    /// One more product, this many columns wide; returns its number.
    fn add(&self, width: usize) -> usize {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.seen.push((0, (0, false)));
        state.approx.add(width)
    }

    /// `spmm` of `float32` numbers, from some of its pairs where that is due.
    fn spmm(
        &self,
        py: Python<'_>,
        on: &Adjacency,
        args: (usize, Spmm),
        count: usize,
    ) -> PyResult<()> {
        let (step, call) = args;
        let matrix = (on.id(), call.2.0);
        let run = || -> Result<()> {
            let threads = threads(count)?;
            let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            state.meet(step, matrix);
            let start = Instant::now();
            let sampled = state.product(step, on, call, &threads)?;
            if !sampled {
                call.run::<f32>(on, &threads)?;
            }
            state.approx.spent(step, start.elapsed().as_secs_f64(), sampled);
            Ok(())
        };
        py.detach(run).map_err(failed)
    }

    /// What was kept and how far off it was, as JSON.
    fn report(&self) -> String {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.approx.report().to_string()
    }
}
