//! [`Source`]: where the batches of an epoch come from. Full batch, sampled neighbourhoods and
//! small graphs differ in nothing else: one plan serves all batches of a source.

use lacis_core::Result;

use super::targets::Labelled;
use crate::levels::Levels;
use crate::pairs::Pairs;

/// What one step of the optimizer sees.
pub(crate) struct Batch<'s> {
    /// Graph and features.
    pub levels: &'s Levels,
    /// What the loss compares with.
    pub labelled: &'s Labelled,
    /// Where each graph's nodes begin, and the end, where nodes are read out into graphs.
    pub graphs: Option<&'s [u32]>,
    /// Pairs of nodes to be scored, where links are learned.
    pub pairs: Option<&'s Pairs>,
}

impl Batch<'_> {
    /// How many graphs it has, where nodes are read out into graphs.
    pub fn n_graphs(&self) -> usize {
        self.graphs.map_or(0, |starts| starts.len() - 1)
    }
}

/// Makes the batches of epochs, in an order that seed and epoch alone decide.
pub(crate) trait Source: Send {
    /// Batches of an epoch.
    fn n_batches(&self) -> usize;

    /// Whether batches differ, so that nothing can be computed once for all of them.
    fn changes(&self) -> bool;

    /// Begins an epoch at its batch number `from`.
    ///
    /// # Errors
    /// When there is no memory, or the system refuses threads.
    fn begin(&mut self, epoch: usize, from: usize) -> Result<()>;

    /// The next batch, or `None` after the last one.
    ///
    /// # Errors
    /// When it could not be made.
    fn next(&mut self) -> Result<Option<Batch<'_>>>;
}

/// All training nodes at once: one batch, the same in every epoch.
pub(crate) struct Whole {
    levels: Levels,
    labelled: Labelled,
    pending: bool,
}

impl Whole {
    /// Of a graph's levels and what its nodes are labelled with.
    pub fn new(levels: Levels, labelled: Labelled) -> Self {
        Whole { levels, labelled, pending: false }
    }
}

impl Source for Whole {
    fn n_batches(&self) -> usize {
        1
    }

    fn changes(&self) -> bool {
        false
    }

    fn begin(&mut self, _: usize, from: usize) -> Result<()> {
        self.pending = from == 0;
        Ok(())
    }

    fn next(&mut self) -> Result<Option<Batch<'_>>> {
        if !std::mem::take(&mut self.pending) {
            return Ok(None);
        }
        let Whole { levels, labelled, .. } = self;
        Ok(Some(Batch { levels, labelled, graphs: None, pairs: None }))
    }
}

/// Nothing to learn from: for a network that only computes results.
pub(crate) struct Nothing;

impl Source for Nothing {
    fn n_batches(&self) -> usize {
        0
    }

    fn changes(&self) -> bool {
        false
    }

    fn begin(&mut self, _: usize, _: usize) -> Result<()> {
        Ok(())
    }

    fn next(&mut self) -> Result<Option<Batch<'_>>> {
        Ok(None)
    }
}
