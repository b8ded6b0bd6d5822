//! [`LinkSource`]: the pairs of an epoch, edges and as many that are none, all of them at once.

use std::sync::Arc;

use lacis_core::{Result, Threads};

use super::source::{Batch, Source};
use super::targets::Labelled;
use crate::levels::Levels;
use crate::link::Links;
use crate::pairs::Pairs;

/// One batch an epoch: the graph stays, the negatives change.
pub(crate) struct LinkSource {
    levels: Levels,
    links: Arc<Links>,
    threads: Threads,
    pending: Option<(Pairs, Labelled)>,
    current: Option<(Pairs, Labelled)>,
}

impl LinkSource {
    /// Of the message graph's levels.
    pub fn new(levels: Levels, links: &Arc<Links>, threads: &Threads) -> Self {
        let (links, threads) = (links.clone(), threads.clone());
        LinkSource { levels, links, threads, pending: None, current: None }
    }
}

impl Source for LinkSource {
    fn n_batches(&self) -> usize {
        1
    }

    /// What is computed once is of the graph alone.
    fn changes(&self) -> bool {
        false
    }

    fn begin(&mut self, epoch: usize, from: usize) -> Result<()> {
        self.pending = None;
        if from == 0 {
            let ends = self.links.of_epoch(epoch)?;
            let positives = self.links.counts()[0];
            let pairs = Pairs::new(self.levels.n_nodes(0), &ends, &self.threads)?;
            self.pending = Some((pairs, Labelled::pairs(positives, ends.len() - positives)));
        }
        Ok(())
    }

    fn next(&mut self) -> Result<Option<Batch<'_>>> {
        self.current = self.pending.take();
        let levels = &self.levels;
        let batch =
            |(pairs, labelled)| Batch { levels, labelled, graphs: None, pairs: Some(pairs) };
        Ok(self.current.as_ref().map(|(pairs, labelled)| batch((pairs, labelled))))
    }
}
