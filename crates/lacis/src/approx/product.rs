//! One product of a plan: its scores, the sample it runs with, and what is known of its error.

use lacis_core::reference::Reduce;
use lacis_core::{Csr, Result, Rng, Threads};
use lacis_kernels::sampled::{self, Columns, Diagonal, Scaled};
use lacis_kernels::{Isa, Mat, Profile, spmm};

use super::draw::{Histogram, largest};
use super::pieces::{Pairs, Taken, draw};
use super::watch::{Watched, watch};
use super::{Policy, Settings, TUNE_EVERY};
use crate::exec::spmm_point;

/// Pairs that RSC keeps at least.
const LEAST_PAIRS: usize = 10;
/// Pairs whose norms are looked at in every iteration, at most.
const GLANCE: usize = 1024;
/// A sample is old when it captures less than this of what it did.
const CAPTURES: f64 = 0.9;
/// The diagonal stays exact where it takes at most this share of the budget.
const DIAGONAL: f64 = 0.25;

/// The factors of a product: `diag(left)·A·diag(right)·x`.
#[derive(Clone, Copy)]
pub struct Factors<'a> {
    /// The sparse one.
    pub a: Scaled<'a>,
    /// The dense one.
    pub x: Mat<'a>,
}

/// A smaller matrix to multiply with instead, `right` in its values.
#[derive(Clone, Debug)]
pub struct Sample {
    /// The matrix.
    pub matrix: Csr,
    /// The kernel for it.
    pub kernel: (usize, Isa),
    /// What its columns were multiplied by.
    pub taken: Taken,
    /// When it was taken.
    pub epoch: usize,
    /// The share of gradient mass that it captured then, of the pairs glanced at.
    pub captured: f64,
}

/// A time at which a sample was taken.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Refresh {
    /// When.
    pub epoch: usize,
    /// Entries that stayed.
    pub entries: usize,
    /// Their share of all.
    pub kept: f64,
    /// The relative error of the product, as some rows have it.
    pub error: f64,
    /// Whether it was multiplied with, and not too far off.
    pub served: bool,
}

/// What the last look at all pairs found.
#[derive(Clone, Debug, PartialEq)]
pub struct Seen {
    /// Pairs by what they are worth.
    pub histogram: Histogram,
    /// Smoothed scores, for RSC.
    pub smooth: Vec<f32>,
    /// Norm of the product, smoothed for RSC.
    pub norm: f64,
}

/// What no iteration changes.
#[derive(Clone, Debug)]
pub struct Fixed {
    /// The columns.
    pub columns: Columns,
    /// What happens to the diagonal.
    pub diagonal: Diagonal,
    /// All entries.
    pub entries: usize,
    /// Pairs to glance at.
    glance: Vec<u32>,
}

impl Fixed {
    /// Entries that stay whatever is drawn.
    pub fn certain(&self) -> usize {
        match self.diagonal {
            Diagonal::Exact => self.columns.diagonal,
            Diagonal::Sampled => 0,
        }
    }
}

/// Who helps.
#[derive(Clone, Copy)]
pub struct Help<'a> {
    /// What may be asked for.
    pub settings: &'a Settings,
    /// What this machine measured.
    pub profile: &'a Profile,
    /// Who runs loops.
    pub threads: &'a Threads,
    /// Where random numbers come from.
    pub seed: u64,
    /// Which epoch it is.
    pub epoch: usize,
}

/// A product. See the module's head.
#[derive(Clone, Debug, Default)]
pub struct Product {
    /// Its step in the plan.
    pub step: usize,
    /// Its layer.
    pub layer: Option<u16>,
    /// Columns of the result.
    pub width: usize,
    /// For RSC the share of pairs that stay, else the share of entries.
    pub share: f64,
    /// What no iteration changes, once it has met its matrix.
    pub fixed: Option<Fixed>,
    /// What it runs with.
    pub sample: Option<Sample>,
    /// A sample that another process took, when, and the mass it captured.
    pub resumed: Option<(Taken, usize, f64)>,
    /// What was seen last.
    pub seen: Option<Seen>,
    /// Whether the sample is to be taken anew though it is young.
    pub stale: bool,
    /// Exact before this epoch.
    pub exact_until: usize,
    /// How often the error was too large, or nothing could be drawn.
    pub strikes: u32,
    /// Epochs with a sample, and the one after the last of them.
    pub epochs: [usize; 2],
    /// How often a sample was taken.
    pub refreshes: u64,
    /// All times.
    pub history: Vec<Refresh>,
    /// Measured error over the predicted one.
    pub correction: f64,
}

impl Product {
    /// Before anything is known of it.
    pub fn new(step: usize, layer: Option<u16>, width: usize, share: f64) -> Self {
        Product { step, layer, width, share, correction: 1.0, ..Product::default() }
    }

    /// Learns the matrix, if it has not met one.
    pub fn meet(&mut self, of: &Factors<'_>, help: &Help<'_>) {
        if self.fixed.is_some() {
            return;
        }
        let rsc = help.settings.policy == Policy::Rsc;
        let entries = of.a.a.cols.len();
        let mut columns = sampled::columns(&of.a, true, help.threads);
        let afford = DIAGONAL * help.settings.start() * entries as f64;
        let exact = columns.diagonal > 0 && (rsc || columns.diagonal as f64 <= afford);
        let diagonal = if exact { Diagonal::Exact } else { Diagonal::Sampled };
        if !exact && columns.diagonal > 0 {
            columns = sampled::columns(&of.a, false, help.threads);
        }
        let every = of.a.a.n_cols.div_ceil(GLANCE).max(1);
        let glance = (0..of.a.a.n_cols as u32).step_by(every).collect();
        self.fixed = Some(Fixed { columns, diagonal, entries, glance });
    }

    fn fixed(&self) -> &Fixed {
        self.fixed.as_ref().expect("it has met its matrix")
    }

    /// The score of every pair.
    fn scores(&self, x: Mat<'_>, threads: &Threads) -> Result<Vec<f32>> {
        let mut scores = vec![0.0; x.n_rows()];
        sampled::row_norms(Isa::best(), x, &mut scores, threads)?;
        scores.iter_mut().zip(&self.fixed().columns.norms).for_each(|(s, norm)| *s *= norm);
        Ok(scores)
    }

    /// Looks at all pairs without taking a sample.
    ///
    /// # Errors
    /// When sizes do not fit.
    pub fn look(&mut self, of: &Factors<'_>, help: &Help<'_>) -> Result<()> {
        let scores = self.scores(of.x, help.threads)?;
        let found = watch(&of.a, None, (of.x, Isa::best()), (&self.rng(help), help.threads))?;
        let histogram = Histogram::of(&scores, &self.fixed().columns.entries);
        self.see((scores, histogram), found.norm, help.settings.policy);
        Ok(())
    }

    fn see(&mut self, (scores, histogram): (Vec<f32>, Histogram), norm: f64, policy: Policy) {
        let (smooth, norm) = match (policy, self.seen.take()) {
            (Policy::Adaptive, _) => (Vec::new(), norm),
            (Policy::Rsc, Some(seen)) if seen.smooth.len() == scores.len() => {
                let mut smooth = seen.smooth;
                smooth.iter_mut().zip(&scores).for_each(|(old, new)| *old = 0.5 * (*old + new));
                (smooth, 0.5 * (seen.norm + norm))
            }
            (Policy::Rsc, _) => (scores, norm),
        };
        self.seen = Some(Seen { histogram, smooth, norm });
    }

    fn rng(&self, help: &Help<'_>) -> Rng {
        let seed = help.seed.wrapping_add(self.refreshes.wrapping_mul(0x9E37_79B9_7F4A_7C15));
        Rng::new(seed, &format!("approximation {}", self.step))
    }

    /// Whether a sample is to be taken.
    pub fn is_due(&self, of: &Factors<'_>, help: &Help<'_>) -> bool {
        let Some(sample) = &self.sample else { return true };
        let age = help.epoch - sample.epoch;
        let interval = help.settings.interval;
        match help.settings.policy {
            Policy::Rsc => age > 0 && help.epoch.is_multiple_of(interval),
            Policy::Adaptive => {
                let fell = |now: f64| now < CAPTURES * sample.captured;
                age > 0
                    && (self.stale || age >= interval || fell(self.captured(of.x, &sample.taken)))
            }
        }
    }

    /// The share of gradient mass in the pairs of a sample, of those glanced at.
    fn captured(&self, x: Mat<'_>, taken: &Taken) -> f64 {
        let fixed = self.fixed();
        let norms = sampled::some_row_norms(Isa::best(), x, &fixed.glance);
        let (mut all, mut some) = (0.0, 0.0);
        for (&j, norm) in fixed.glance.iter().zip(norms) {
            let score = f64::from(norm * fixed.columns.norms[j as usize]);
            all += score;
            some += if taken.factors[j as usize] != 0.0 { score } else { 0.0 };
        }
        if all > 0.0 { some / all } else { 1.0 }
    }

    /// Takes a sample, and looks how good it is; `None` where none can be taken.
    ///
    /// # Errors
    /// When sizes do not fit, or there is no memory.
    pub fn refresh(&mut self, of: &Factors<'_>, help: &Help<'_>) -> Result<Option<Watched>> {
        let scores = self.scores(of.x, help.threads)?;
        if scores.iter().any(|score| !score.is_finite()) {
            return Ok(None);
        }
        let histogram = Histogram::of(&scores, &self.fixed().columns.entries);
        let rng = self.rng(help);
        let taken = match help.settings.policy {
            Policy::Rsc => {
                let n = scores.len();
                let k = (n as f64 * self.share) as usize;
                Some(largest(&scores, k.clamp(LEAST_PAIRS.min(n), n)).into())
            }
            Policy::Adaptive => self.draw((&scores, &histogram), of, (&rng, help.threads)),
        };
        let Some(taken) = taken else { return Ok(None) };
        let captured = self.captured(of.x, &taken);
        self.keep((taken, help.epoch, captured), of, help)?;
        (self.refreshes, self.stale) = (self.refreshes + 1, false);
        if let Some(last) = self.history.last().filter(|last| last.epoch == help.epoch) {
            // Another batch of an epoch whose first one was looked at.
            return Ok(Some(Watched { norm: f64::NAN, error: last.error }));
        }
        let sample = self.sample.as_ref().map(|sample| &sample.matrix);
        let found = watch(&of.a, sample, (of.x, Isa::best()), (&rng, help.threads))?;
        let entries = sample.map_or(0, Csr::nnz);
        let kept = entries as f64 / self.fixed().entries.max(1) as f64;
        let expected = self.expected(&histogram);
        self.see((scores, histogram), found.norm, help.settings.policy);
        let (epoch, error) = (help.epoch, found.error);
        self.history.push(Refresh { epoch, entries, kept, error, served: true });
        if expected > 0.0 && found.norm > 0.0 {
            let measured = error * found.norm / expected;
            self.correction = 0.5 * (self.correction + measured.clamp(0.1, 10.0));
        }
        Ok(Some(found))
    }

    /// Goes on exactly for a while, longer each time: what was too far off once may be again.
    pub fn fall_back(&mut self, epoch: usize) {
        self.exact_until = epoch + (TUNE_EVERY << self.strikes.min(8));
        self.strikes += 1;
        self.sample = None;
        if let Some(last) = self.history.last_mut().filter(|last| last.epoch == epoch) {
            last.served = false;
        }
    }

    /// Counts an epoch that a sample served, once.
    pub fn served(&mut self, epoch: usize) {
        let [count, after] = self.epochs;
        self.epochs = [count + usize::from(after <= epoch), epoch + 1];
    }

    /// Goes on with a sample of these pairs.
    ///
    /// # Errors
    /// When sizes do not fit, or there is no memory.
    pub fn keep(
        &mut self,
        (taken, epoch, captured): (Taken, usize, f64),
        of: &Factors<'_>,
        help: &Help<'_>,
    ) -> Result<()> {
        let choice = (&taken.factors[..], taken.bands.as_ref());
        let diagonal = self.fixed().diagonal;
        let matrix = sampled::sliced_in_bands(&of.a, choice, diagonal, help.threads)?;
        let shape = [matrix.n_rows(), matrix.n_cols(), matrix.nnz()];
        let point = spmm_point(shape, of.x.n_cols(), true, Reduce::Sum);
        let choice = help.profile.choose("spmm", &point);
        let named = |kernel: &spmm::Kernel| kernel.name == choice.kernel;
        let at = spmm::KERNELS.iter().position(named).unwrap_or(0);
        self.sample = Some(Sample { matrix, kernel: (at, choice.isa), taken, epoch, captured });
        Ok(())
    }

    /// Entries that may stay beside those of an exact diagonal.
    fn room(&self) -> f64 {
        let fixed = self.fixed();
        (self.share * fixed.entries as f64).floor() - fixed.certain() as f64
    }

    /// Pairs that stay for certain, and some of the others, within the room there is.
    fn draw(
        &self,
        (scores, histogram): (&[f32], &Histogram),
        of: &Factors<'_>,
        by: (&Rng, &Threads),
    ) -> Option<Taken> {
        let fixed = self.fixed();
        let pairs = Pairs { scores, work: &fixed.columns.entries, histogram };
        draw(&pairs, self.room(), (&of.a, fixed.diagonal), by)
    }

    /// The error that these pairs lead to with the present share, where they are drawn.
    fn expected(&self, histogram: &Histogram) -> f64 {
        histogram.error_at(histogram.lambda_of_work(self.room().max(0.0))).sqrt()
    }
}
