//! What crosses the wires when workers put their parts together: words and messages of each
//! exchange. The tests carry every one of them out and count.

use lacis_plan::analysis::tree;

/// An exchange, all workers together, and the longest row of messages that wait for each other.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Sent {
    /// Numbers that are sent.
    pub words: f64,
    /// Messages that are sent.
    pub messages: f64,
    /// Messages that one worker waits for, one after another.
    pub chain: f64,
}

impl Sent {
    pub fn and(self, other: Sent) -> Sent {
        Sent {
            words: self.words + other.words,
            messages: self.messages + other.messages,
            chain: self.chain + other.chain,
        }
    }

    /// The same in each of some groups, all at once.
    pub fn in_groups(self, groups: usize) -> Sent {
        let groups = groups as f64;
        Sent { words: groups * self.words, messages: groups * self.messages, chain: self.chain }
    }

    /// Seconds for workers that send as much as each other.
    pub fn seconds(&self, workers: usize, [alpha, beta]: [f64; 2]) -> f64 {
        alpha * self.chain + beta * super::F32 * self.words / workers.max(1) as f64
    }
}

/// Everybody gets what all have: each round doubles what a worker has (Bruck and others, 1997).
pub(super) fn all_gather(words: f64, workers: usize) -> Sent {
    let rounds = tree(workers) as f64;
    let p = workers.max(1) as f64;
    Sent { words: (p - 1.0) * words, messages: p * rounds, chain: rounds }
}

/// What all have is added up, and everybody gets a part of it: the same the other way round.
pub(super) fn reduce_scatter(words: f64, workers: usize) -> Sent {
    all_gather(words, workers)
}

/// What all have is added up for everybody.
pub(super) fn all_reduce(words: f64, workers: usize) -> Sent {
    reduce_scatter(words, workers).and(all_gather(words, workers))
}

/// Everybody gets what one has, along a tree.
pub(super) fn broadcast(words: f64, workers: usize) -> Sent {
    let others = workers.max(1) as f64 - 1.0;
    Sent { words: others * words, messages: others, chain: tree(workers) as f64 }
}
