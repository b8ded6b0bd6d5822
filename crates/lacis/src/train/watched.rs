//! Training to the end, watched by somebody who may stop it.

use std::ops::ControlFlow;

use lacis_core::{Error, Result};

use super::{Epoch, Trainer};
use crate::exec::Nobody;

/// Somebody who looks at a training after each epoch, and says whether it goes on.
///
/// Functions are watchers; a type of one's own can remember what it saw.
pub trait Watcher {
    /// An epoch is done. The trainer can be asked for anything, results of all nodes too.
    ///
    /// # Errors
    /// Whatever the watcher finds wrong ends the training.
    fn epoch(&mut self, trainer: &mut Trainer<'_>, epoch: &Epoch) -> Result<ControlFlow<()>>;
}

impl<F: FnMut(&mut Trainer<'_>, &Epoch) -> Result<ControlFlow<()>>> Watcher for F {
    fn epoch(&mut self, trainer: &mut Trainer<'_>, epoch: &Epoch) -> Result<ControlFlow<()>> {
        self(trainer, epoch)
    }
}

/// Why a training ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// All epochs are done.
    Done,
    /// Its watcher wanted it to stop.
    Stopped,
}

impl Trainer<'_> {
    /// Trains until all epochs of the recipe are done or the watcher stops it; called again, it
    /// goes on.
    ///
    /// ```
    /// use std::ops::ControlFlow;
    /// use lacis::kernels::Profile;
    /// use lacis::train::watched::Ended;
    /// use lacis::train::{Epoch, Job, Recipe, Trainer};
    /// use lacis::{Threads, data, machine::this_machine, nn::Config};
    ///
    /// let threads = Threads::one();
    /// let spec = "sbm:n=60,e=200,classes=3,features=5,seed=1";
    /// let set = lacis::open(spec, &data::Job::quiet(&threads))?;
    /// let labels = set.labels().expect("this generator makes labels");
    /// let split = data::splits::all(labels)?;
    /// let profile = Profile::unmeasured(this_machine());
    /// let job = Job { dataset: &set, split: &split, threads: &threads, profile: &profile };
    /// let mut trainer = Trainer::new(&job, Recipe::new("gcn", Config::new(5, 8, 3)))?;
    /// let mut low = |_: &mut Trainer<'_>, epoch: &Epoch| {
    ///     Ok(if epoch.loss < 0.9 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
    /// };
    /// assert_eq!(trainer.train(&mut low)?, Ended::Stopped);
    /// assert!(trainer.epoch() < 200);
    /// # Ok::<(), lacis::Error>(())
    /// ```
    ///
    /// # Errors
    /// When a step fails, the loss is no number, or the watcher has one.
    pub fn train(&mut self, watcher: &mut dyn Watcher) -> Result<Ended> {
        while self.epoch() < self.recipe().epochs {
            let epoch = self.step(&mut Nobody)?;
            if !epoch.loss.is_finite() {
                let problem = format!("is {} in epoch {}", epoch.loss, epoch.epoch);
                return Err(Error::argument("the loss", problem));
            }
            if watcher.epoch(self, &epoch)?.is_break() {
                return Ok(Ended::Stopped);
            }
        }
        Ok(Ended::Done)
    }
}
