//! [`Items`]: what batches are made of, in the order of an epoch.

use std::ops::Range;
use std::sync::Arc;

use lacis_core::{Error, Result, Rng};

/// In which order an epoch goes through the items.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Another one in each epoch, from the seed: for training.
    Shuffled,
    /// As they are given: for evaluation.
    AsGiven,
}

/// Items, and how they are cut into batches.
#[derive(Clone, Debug)]
pub(super) struct Items {
    items: Arc<Vec<u32>>,
    batch_size: usize,
    order: Order,
    seed: u64,
}

impl Items {
    pub(super) fn new(items: &[u32], batch_size: usize, order: Order, seed: u64) -> Result<Self> {
        if batch_size == 0 {
            return Err(Error::argument("batch size", "0 is too few; 1 or more would be right"));
        }
        Ok(Items { items: Arc::new(items.to_vec()), batch_size, order, seed })
    }

    /// Number of batches; the last one may be smaller.
    pub(super) fn n_batches(&self) -> usize {
        self.items.len().div_ceil(self.batch_size)
    }

    /// The items in the order of an epoch.
    pub(super) fn of_epoch(&self, epoch: u64) -> Arc<Vec<u32>> {
        match self.order {
            Order::AsGiven => self.items.clone(),
            Order::Shuffled => {
                let mut items = self.items.to_vec();
                Rng::new(self.seed, "order of an epoch").stream(epoch).shuffle(&mut items);
                Arc::new(items)
            }
        }
    }

    /// The place of a batch's items in their order.
    pub(super) fn range(&self, batch: usize) -> Range<usize> {
        let start = batch * self.batch_size;
        start..(start + self.batch_size).min(self.items.len())
    }
}
