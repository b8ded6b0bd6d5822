//! Neighbour sampling (Hamilton et al., "Inductive representation learning on large graphs", 2017).
//!
//! ```text
//!   nodes = seeds;  frontier = seeds
//!   for each hop:   every node of the frontier draws up to `fan-out` of its in-edges, none twice;
//!                   sources that are new are appended to nodes and are the next frontier
//! ```
//! A node draws once, in the hop after it was found, so all drawn edges make one matrix whose row
//! `i` is node `i` of the list, and the block of a layer is the first rows of it:
//! ```text
//!            columns: seeds  hop 1  hop 2
//!   seeds           [   x      x      .  ]   block 0: first rows, as far as hop 1
//!   hop 1           [   x      x      x  ]   block 1: all rows
//! ```
//! The first layer of a network uses the last block and has a result for each of its rows; the
//! last layer uses block 0 and has one for each seed. This is what PyG's `NeighborLoader` gives a
//! network that trims its input to the layer.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use lacis_core::error::same_size;
use lacis_core::{Csr, CsrParts, Error, Graph, Result, Rng, RowPtr, Threads};

use super::draw::Marks;
use super::grown::Grown;
use super::local::LocalIds;

/// How many in-edges a node draws.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fanout {
    /// Every one it has.
    All,
    /// So many, or all if it has fewer.
    Most(u32),
}

impl Fanout {
    pub(super) fn of(self, degree: u32) -> u32 {
        match self {
            Fanout::All => degree,
            Fanout::Most(count) => degree.min(count),
        }
    }

    /// The fan-outs of a list such as `15,10,5`, one per hop from the seeds on.
    ///
    /// # Errors
    /// When one is no fan-out.
    pub fn parse_list(list: &str) -> Result<Vec<Fanout>> {
        list.split(',').map(|fanout| fanout.trim().parse()).collect()
    }
}

impl fmt::Display for Fanout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fanout::All => f.write_str("-1"),
            Fanout::Most(count) => count.fmt(f),
        }
    }
}

impl FromStr for Fanout {
    type Err = Error;

    /// A number above 0, or −1 for all.
    fn from_str(text: &str) -> Result<Self> {
        match text.parse::<i64>() {
            Ok(-1) => Ok(Fanout::All),
            Ok(count @ 1..=4_294_967_295) => Ok(Fanout::Most(count as u32)),
            _ => {
                let problem = "is no fan-out; a number above 0, or -1 for all, would be right";
                Err(Error::argument(format!("'{text}'"), problem))
            }
        }
    }
}

/// Whether a batch knows which edge of the graph each of its edges is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EdgeIds {
    /// It does not.
    Drop,
    /// It does: positions in the adjacency's arrays.
    Keep,
}

/// Frontier nodes that are worked on together: what is drawn for them stays in the cache.
const TOGETHER: usize = 128;

/// Draws neighbourhoods from one graph. Its memory is used again for every batch.
pub struct NeighborSampler {
    adjacency: Arc<Csr>,
    fanouts: Vec<Fanout>,
    local: LocalIds,
    marks: Marks,
    /// Where the rows of some frontier nodes begin, and how long they are.
    rows: Vec<(usize, u32)>,
    /// The entries drawn for them.
    drawn: Vec<usize>,
}

/// What was drawn: the arrays of the blocks.
#[derive(Default)]
pub(super) struct Sampled {
    /// The graph's number of each node.
    pub(super) nodes: Grown<u32>,
    /// Nodes known after each hop; first, the seeds.
    pub(super) known: Vec<usize>,
    /// The row of each seed as given: more than one may name the same node.
    pub(super) seed_rows: Vec<u32>,
    pub(super) row_ptr: Grown<u32>,
    pub(super) cols: Grown<u32>,
    pub(super) values: Grown<f32>,
    pub(super) edge_ids: Option<Vec<u64>>,
    pub(super) blocks: Vec<Csr>,
}

impl Sampled {
    pub(super) fn new(edge_ids: EdgeIds) -> Self {
        let edge_ids = (edge_ids == EdgeIds::Keep).then(Vec::new);
        Sampled { edge_ids, ..Sampled::default() }
    }

    /// Forgets everything but the memory.
    fn clear(&mut self) {
        self.blocks.clear();
        self.known.clear();
        self.seed_rows.clear();
        self.nodes.clear();
        self.row_ptr.clear();
        self.cols.clear();
        self.values.clear();
        self.edge_ids.iter_mut().for_each(Vec::clear);
    }

    /// The first rows of what was drawn: targets known after `hop` hops, sources after one more.
    fn block(&self, hop: usize, weighted: bool) -> Result<Csr> {
        let n_rows = self.known[hop];
        let row_ptr = self.row_ptr.share(n_rows + 1);
        let nnz = row_ptr[n_rows] as usize;
        let parts = CsrParts {
            n_cols: self.known[hop + 1],
            row_ptr: RowPtr::Narrow(row_ptr),
            cols: self.cols.share(nnz),
            values: weighted.then(|| self.values.share(nnz)),
            order: None,
        };
        Csr::new(parts, &Threads::one())
    }
}

impl NeighborSampler {
    /// Draws from `graph`, with one fan-out per hop, that is, per layer.
    ///
    /// # Errors
    /// When there is no hop, a fan-out is 0, or the adjacency is not square.
    pub fn new(graph: &Graph, fanouts: &[Fanout]) -> Result<Self> {
        let adjacency = graph.adjacency().clone();
        same_size("neighbour sampling", "columns", adjacency.n_rows(), adjacency.n_cols())?;
        if fanouts.is_empty() || fanouts.contains(&Fanout::Most(0)) {
            let problem = "one number above 0, or -1, for each layer would be right";
            return Err(Error::argument("fan-outs", problem));
        }
        Ok(NeighborSampler {
            local: LocalIds::new(adjacency.n_rows()),
            adjacency,
            fanouts: fanouts.to_vec(),
            marks: Marks::default(),
            rows: Vec::new(),
            drawn: Vec::new(),
        })
    }

    /// Draws the neighbourhood of the seeds into `sampled`.
    pub(super) fn sample(&mut self, seeds: &[u32], rng: Rng, sampled: &mut Sampled) -> Result<()> {
        sampled.clear();
        self.local.clear();
        self.begin(seeds, sampled)?;
        let mut frontier = 0;
        for hop in 0..self.fanouts.len() {
            let end = sampled.nodes.len();
            while frontier < end {
                let next = end.min(frontier + TOGETHER);
                self.draw_rows(hop, &sampled.nodes.as_slice()[frontier..next], rng);
                self.append(sampled)?;
                frontier = next;
            }
            sampled.known.push(sampled.nodes.len());
        }
        let weighted = self.adjacency.values().is_some();
        let blocks = (0..self.fanouts.len()).map(|hop| sampled.block(hop, weighted));
        let blocks = blocks.collect::<Result<_>>()?;
        sampled.blocks = blocks;
        Ok(())
    }

    /// The seeds are the first nodes.
    fn begin(&mut self, seeds: &[u32], sampled: &mut Sampled) -> Result<()> {
        let bound = self.adjacency.n_rows();
        if let Some(at) = seeds.iter().position(|&seed| seed as usize >= bound) {
            let (index, bound) = (u64::from(seeds[at]), bound as u64);
            return Err(Error::Index { op: "neighbour sampling", what: "seed", index, at, bound });
        }
        let nodes = sampled.nodes.extended(seeds.len());
        let number = |&seed: &u32| self.local.number(seed, nodes);
        sampled.seed_rows.extend(seeds.iter().map(number));
        sampled.nodes.truncate(self.local.count());
        sampled.known.push(self.local.count());
        sampled.row_ptr.extended(1)[0] = 0;
        Ok(())
    }

    /// Draws entries for some frontier nodes.
    ///
    /// Where rows begin is looked up for all of them before anything is drawn, and what was drawn
    /// is looked up in [`NeighborSampler::append`] after everything is: the processor then waits
    /// for many places of the memory at once.
    fn draw_rows(&mut self, hop: usize, frontier: &[u32], rng: Rng) {
        let fanout = self.fanouts[hop];
        let row_ptr = self.adjacency.row_ptr().view();
        self.rows.clear();
        self.rows.extend(frontier.iter().map(|&node| {
            let start = row_ptr.at(node as usize);
            let degree = row_ptr.at(node as usize + 1) - start;
            (start, u32::try_from(degree).unwrap_or(u32::MAX))
        }));
        self.drawn.clear();
        for (row, &node) in self.rows.iter_mut().zip(frontier) {
            let (start, degree) = *row;
            let count = fanout.of(degree);
            if count == degree {
                self.drawn.extend(start..start + degree as usize);
            } else {
                let mut stream = rng.stream(u64::from(node) | (hop as u64) << 32);
                self.marks.draw(&mut stream, (start, degree), count, &mut self.drawn);
            }
            row.1 = count;
        }
    }

    /// Appends what was drawn for some frontier nodes: their rows, and the nodes that are new.
    fn append(&mut self, sampled: &mut Sampled) -> Result<()> {
        let (a, more) = (self.adjacency.view(), self.drawn.len());
        let (before, n_rows) = (sampled.cols.len(), sampled.row_ptr.len());
        let total = before + more;
        if u32::try_from(total).is_err() {
            let (value, limit) = (total as u128, u128::from(u32::MAX));
            return Err(Error::Overflow { what: "number of sampled edges", value, limit });
        }
        let ends = &mut sampled.row_ptr.extended(self.rows.len())[n_rows..];
        let mut end = before as u32;
        for (ptr, (_, count)) in ends.iter_mut().zip(&self.rows) {
            end += count;
            *ptr = end;
        }
        let nodes = sampled.nodes.extended(more);
        let cols = &mut sampled.cols.extended(more)[before..];
        for (col, &e) in cols.iter_mut().zip(&self.drawn) {
            *col = self.local.number(a.cols[e], nodes);
        }
        sampled.nodes.truncate(self.local.count());
        if let Some(values) = a.values {
            let new = &mut sampled.values.extended(more)[before..];
            new.iter_mut().zip(&self.drawn).for_each(|(new, &e)| *new = values[e]);
        }
        if let Some(edge_ids) = &mut sampled.edge_ids {
            edge_ids.extend(self.drawn.iter().map(|&e| e as u64));
        }
        Ok(())
    }
}
