//! Sizes: symbols in a formula, numbers when it meets a graph.

use std::fmt;

use serde::{Deserialize, Serialize};

/// One side of a matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Dim {
    /// Nodes that are known at a level: level 0 is what features come with, each aggregation
    /// goes to the next one. Levels are nested: the nodes of a later one come first in an
    /// earlier one.
    Nodes(u16),
    /// Graphs of a batch, where nodes are read out into graphs.
    Graphs,
    /// Pairs of nodes that are scored.
    Pairs,
    /// A number of columns.
    Width(usize),
}

impl fmt::Display for Dim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Dim::Nodes(level) => write!(f, "n{level}"),
            Dim::Graphs => f.write_str("graphs"),
            Dim::Pairs => f.write_str("pairs"),
            Dim::Width(width) => write!(f, "{width}"),
        }
    }
}

/// The numbers behind the symbols: nodes per level, entries of each level's adjacency.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sizes {
    /// Nodes at each level.
    pub nodes: Vec<usize>,
    /// Stored entries of the adjacency from level `l` to level `l + 1`, loops not counted.
    pub entries: Vec<usize>,
    /// Stored entries of sparse features, 0 where they are dense.
    pub feature_entries: usize,
    /// Graphs, where there are many.
    pub graphs: usize,
    /// Pairs of nodes, where those are scored.
    #[serde(default)]
    pub pairs: usize,
    /// How many iterations share what is computed once.
    pub iterations: usize,
    /// Whether the adjacency equals its transpose.
    pub symmetric: bool,
    /// Whether edges have weights.
    pub edge_weights: bool,
}

impl Sizes {
    /// A whole graph at every one of `levels` levels.
    pub fn whole(levels: usize, nodes: usize, entries: usize) -> Self {
        Sizes {
            nodes: vec![nodes; levels],
            entries: vec![entries; levels.saturating_sub(1)],
            feature_entries: 0,
            graphs: 0,
            pairs: 0,
            iterations: 200,
            symmetric: true,
            edge_weights: false,
        }
    }

    /// Whether edges have weights.
    pub fn weighted(&self) -> bool {
        self.edge_weights
    }

    /// The number that a symbol stands for.
    pub fn of(&self, dim: Dim) -> usize {
        match dim {
            Dim::Nodes(level) => self.nodes.get(level as usize).copied().unwrap_or(0),
            Dim::Graphs => self.graphs,
            Dim::Pairs => self.pairs,
            Dim::Width(width) => width,
        }
    }

    /// Entries of a level's adjacency with loops counted where there are some.
    pub fn entries_of(&self, level: u16, loops: bool) -> usize {
        let stored = self.entries.get(level as usize).copied().unwrap_or(0);
        stored + if loops { self.of(Dim::Nodes(level + 1)) } else { 0 }
    }
}
