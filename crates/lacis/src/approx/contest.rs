//! One backward product alone: all pairs against some, choosing included.

use std::time::Instant;

use lacis_core::reference::Reduce;
use lacis_core::{Csr, Dense, Result, Rng, Threads};
use lacis_kernels::sampled::Scaled;
use lacis_kernels::{Isa, Mat, Profile, spmm};

use super::{Approx, Factors, Settings};
use crate::exec::spmm_point;

/// A product to time: `D^-½·A·D^-½·G`, rows of `G` as normal as can be, which is the hardest case:
/// no pair is worth more than another for its gradient.
pub struct Contest {
    matrix: Csr,
    roots: Vec<f32>,
    grad: Dense,
    result: Dense,
}

/// What was measured, in seconds.
#[derive(Clone, Debug, PartialEq)]
pub struct Timed {
    /// All pairs, the median of the rounds.
    pub exact: f64,
    /// Some pairs, a step's share of so many steps as a choice serves, the median of the rounds.
    pub sampled: f64,
    /// The step that chooses.
    pub choosing: f64,
    /// The share of entries that stayed.
    pub kept: f64,
    /// Relative error of the product, as some rows have it.
    pub error: f64,
}

impl Contest {
    /// With a matrix and a width.
    ///
    /// # Errors
    /// When there is no memory.
    pub fn new(matrix: &Csr, width: usize) -> Result<Self> {
        let matrix = matrix.clone().without_order().with_values(None)?;
        let rng = Rng::new(1, "gradient");
        let mut grad = Dense::try_zeros(matrix.n_cols(), width)?;
        for (i, row) in grad.data_mut().chunks_mut(width.max(1)).enumerate() {
            for (at, four) in row.chunks_mut(4).enumerate() {
                // Sums of four bytes are normal enough, and quick to make for billions.
                let words = rng.block_at(i as u64, at as u32);
                let sum = |word: u32| word.to_le_bytes().map(f32::from).iter().sum::<f32>();
                four.iter_mut().zip(words).for_each(|(x, word)| *x = sum(word) / 148.0 - 3.446);
            }
        }
        let degree = |i: usize| 1.0 / (matrix.row(i).len().max(1) as f32).sqrt();
        let roots = (0..matrix.n_rows()).map(degree).collect();
        let result = Dense::try_zeros(matrix.n_rows(), width)?;
        Ok(Contest { matrix, roots, grad, result })
    }

    fn exact(&mut self, profile: &Profile, threads: &Threads) -> Result<f64> {
        let start = Instant::now();
        self.product(profile, threads)?;
        Ok(start.elapsed().as_secs_f64())
    }

    /// The product of all pairs.
    fn product(&mut self, profile: &Profile, threads: &Threads) -> Result<()> {
        let Contest { matrix, roots, grad, result } = self;
        let shape = [matrix.n_rows(), matrix.n_cols(), matrix.nnz()];
        let choice = profile.choose("spmm", &spmm_point(shape, grad.n_cols(), false, Reduce::Sum));
        let named = |kernel: &&spmm::Kernel| kernel.name == choice.kernel;
        let kernel = spmm::KERNELS.iter().find(named).unwrap_or(&spmm::KERNELS[0]);
        let args = spmm::Args::new(matrix.view(), &*grad, Reduce::Sum)?;
        let args = args.scaled(Some(roots), Some(roots))?;
        kernel.run(choice.isa, &args, result, threads)
    }

    /// A step of an epoch with some pairs, or with all of them where none can be drawn.
    fn step(
        &mut self,
        approx: &mut Approx,
        epoch: usize,
        (profile, threads): (&Profile, &Threads),
    ) -> Result<f64> {
        let Contest { matrix, roots, grad, result } = self;
        let start = Instant::now();
        approx.begin(epoch);
        let scales = (Some(&roots[..]), Some(&roots[..]));
        let a = Scaled { a: matrix.view(), values: None, left: scales.0, right: scales.1 };
        let x = Mat::from(&*grad);
        let sample = approx.sample(0, &Factors { a, x }, (profile, threads))?;
        if let Some(sample) = sample {
            let args = spmm::Args::new(sample.matrix.view(), x, Reduce::Sum)?;
            let (kernel, isa): (usize, Isa) = sample.kernel;
            spmm::KERNELS[kernel].run(isa, &args.scaled(scales.0, None)?, result, threads)?;
        } else {
            self.product(profile, threads)?;
        }
        Ok(start.elapsed().as_secs_f64())
    }

    /// Times both, taking turns.
    ///
    /// # Errors
    /// When settings make no sense, or there is no memory.
    pub fn time(
        &mut self,
        settings: &Settings,
        rounds: usize,
        with: (&Profile, &Threads),
    ) -> Result<Timed> {
        let interval = settings.interval;
        // The product of some pairs is timed whatever its error, which is reported beside it.
        let bound = Some(f64::INFINITY);
        let settings = Settings { switch: 1.0, bound, ..settings.clone() };
        let epochs = (rounds + 2) * interval;
        let mut approx = Approx::alone(settings, self.grad.n_cols(), (1, epochs))?;
        self.step(&mut approx, 0, with)?;
        let (mut exact, mut sampled, mut choosing) = (Vec::new(), Vec::new(), Vec::new());
        for round in 1..=rounds {
            exact.push(self.exact(with.0, with.1)?);
            let mut steps = Vec::new();
            for step in 0..interval {
                steps.push(self.step(&mut approx, round * interval + step, with)?);
            }
            choosing.push(steps[0]);
            sampled.push(steps.iter().sum::<f64>() / interval as f64);
        }
        let last = approx.refreshes().last().copied();
        let (kept, error) = last.map_or((1.0, 0.0), |last| (last.kept, last.error));
        let [exact, sampled, choosing] = [exact, sampled, choosing].map(median);
        Ok(Timed { exact, sampled, choosing, kept, error })
    }
}

fn median(mut of: Vec<f64>) -> f64 {
    of.sort_by(f64::total_cmp);
    of.get(of.len() / 2).copied().unwrap_or(f64::NAN)
}
