//! [`Job`]: what long work needs from its caller: threads, somebody to tell, a way to be stopped.

use lacis_core::{Error, Result, Threads};

/// Somebody who watches long work. Both methods are called often and from any thread.
pub trait Watch: Sync {
    /// `done` of `total` units (bytes, edges) are done; the total may not be known.
    fn progress(&self, _done: u64, _total: Option<u64>) {}

    /// Whether the work should stop; it then ends with [`Error::Interrupted`], nothing changed.
    fn stopped(&self) -> bool {
        false
    }
}

/// Nobody watches, nobody stops.
pub struct Unwatched;

impl Watch for Unwatched {}

/// Somebody who may stop work, and hears of other work that goes on at the same time.
pub(crate) struct Silent<'a>(pub &'a dyn Watch);

impl Watch for Silent<'_> {
    fn stopped(&self) -> bool {
        self.0.stopped()
    }
}

/// The threads for some work and who watches it.
#[derive(Clone, Copy)]
pub struct Job<'a> {
    /// Who runs its loops.
    pub threads: &'a Threads,
    /// Who is told how far it is.
    pub watch: &'a dyn Watch,
}

impl<'a> Job<'a> {
    /// Work that nobody watches.
    pub fn quiet(threads: &'a Threads) -> Self {
        Job { threads, watch: &Unwatched }
    }

    /// Reports progress and gives up if asked to.
    ///
    /// # Errors
    /// [`Error::Interrupted`] when the watcher wants the work to stop.
    pub fn tick(&self, done: u64, total: Option<u64>) -> Result<()> {
        self.watch.progress(done, total);
        if self.watch.stopped() { Err(Error::Interrupted) } else { Ok(()) }
    }
}
