//! [`LocalIds`]: which nodes a batch has, and the number of each in it.
//!
//! ```text
//!   slot[node] ≥ base   the node is in the batch, with number slot[node] − base
//!   slot[node] < base   it is not; the slot is from an earlier batch
//! ```
//! The next batch begins with a base above all slots, so nothing is ever cleared, until the base
//! has used up 32 bits.

/// A map from nodes to their numbers in a batch: four bytes per node of the graph.
pub(super) struct LocalIds {
    slots: Vec<u32>,
    base: u32,
    count: u32,
}

impl LocalIds {
    /// For a graph of `n_nodes` nodes.
    pub(super) fn new(n_nodes: usize) -> Self {
        LocalIds { slots: vec![0; n_nodes], base: 1, count: 0 }
    }

    /// Forgets all nodes.
    pub(super) fn clear(&mut self) {
        let base = self.base.checked_add(self.count);
        // The largest number that the coming batch can give must fit too.
        let fits = |base: &u32| (u32::MAX - base) as usize >= self.slots.len();
        self.base = base.filter(fits).unwrap_or_else(|| {
            self.slots.fill(0);
            1
        });
        self.count = 0;
    }

    /// Number of nodes in the batch.
    pub(super) fn count(&self) -> usize {
        self.count as usize
    }

    /// The number of a node, if it is in the batch.
    #[inline(always)]
    pub(super) fn get(&self, node: u32) -> Option<u32> {
        self.slots[node as usize].checked_sub(self.base)
    }

    /// The number of a node, which is the next one if it is new; then it is written to `nodes`,
    /// which must have room for one more in any case.
    ///
    /// There is no branch, because nobody could predict it.
    #[inline(always)]
    pub(super) fn number(&mut self, node: u32, nodes: &mut [u32]) -> u32 {
        let slot = &mut self.slots[node as usize];
        let known = *slot >= self.base;
        let number = if known { *slot - self.base } else { self.count };
        *slot = self.base + number;
        nodes[self.count as usize] = node;
        self.count += u32::from(!known);
        number
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_given_in_order_of_arrival_in_every_batch() {
        let mut ids = LocalIds::new(10);
        // The second base leaves no room for another batch, the third begins anew.
        for base in [1, u32::MAX - 10, u32::MAX - 9] {
            ids.base = base;
            ids.count = 0;
            let mut nodes = [0; 6];
            let numbers = [7, 3, 7, 9, 3].map(|node| ids.number(node, &mut nodes));
            assert_eq!(numbers, [0, 1, 0, 2, 1]);
            assert_eq!((&nodes[..3], ids.count()), (&[7, 3, 9][..], 3));
            assert_eq!([7, 9, 0].map(|node| ids.get(node)), [Some(0), Some(2), None]);
            ids.clear();
            assert_eq!([7, 3, 9].map(|node| ids.get(node)), [None; 3]);
        }
        assert_eq!(ids.base, 1);
    }
}
