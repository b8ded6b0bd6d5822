//! [`Blocks`]: one hop of a graph, for some rows at a time.
//!
//! Results of a layer are computed block by block where memory is short. What every block shares
//! (loops, degrees) is made once; a block holds its own rows of the adjacency and, where a
//! formula reads the rows of the nodes themselves, those come first and the neighbours after
//! them, as in all levels.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Arc, OnceLock};

use lacis_core::{Csr, Error, Features, Graph, Result, Threads};
use lacis_plan::Sizes;
use lacis_plan::op::{Adjacency, Graph as Treatment};
use lacis_plan::plan::Plan;

use super::{Levels, Need, Treatments, block_of, gathered, needs, power};

/// Which rows of its input a block's formula reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reads {
    /// Those of the block itself: nothing is aggregated.
    Own,
    /// Any, through the adjacency alone.
    All,
    /// Any, and those of the block itself by their place.
    Nested,
}

/// A graph as a plan of one hop reads it.
pub struct Blocks {
    matrices: Vec<Need>,
    treated: Treatments,
    /// Powers of degrees of all nodes.
    powers: HashMap<(Treatment, i8), Arc<Vec<f32>>>,
    degrees: Vec<super::DegreeKey>,
    reads: Reads,
    nodes: usize,
    /// Places of nodes in the block under way; `u32::MAX` elsewhere.
    places: Vec<u32>,
}

/// Some rows, and whom they see.
pub struct Cut {
    rows: Range<u32>,
    /// The nodes of the level before, in their order; absent where they are all.
    order: Option<Vec<u32>>,
    entries: usize,
}

impl Cut {
    /// Rows that are computed.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Nodes of the level before.
    fn before(&self, nodes: usize) -> usize {
        self.order.as_ref().map_or(nodes, Vec::len)
    }
}

impl Blocks {
    /// What a plan of at most one hop reads of a graph.
    ///
    /// # Errors
    /// When it reads more than one hop, or there is no memory.
    pub fn new(graph: &Graph, plan: &Plan, reads: Reads) -> Result<Self> {
        let (matrices, degrees) = needs(plan);
        let one_hop = |a: &Adjacency| a.level == 0 && !a.transposed;
        if !matrices.iter().all(|need| one_hop(&need.adjacency)) {
            let problem = format!("{} is more than one hop", plan.formula);
            return Err(Error::argument("plan", problem));
        }
        let mut treated = Treatments::default();
        for need in &matrices {
            treated.of(graph, need.adjacency.graph)?;
        }
        let mut powers = HashMap::new();
        for &(treatment, _, half_power) in &degrees {
            let of = treated.of(graph, treatment)?;
            let all = || Arc::new(of.sums.iter().map(|&sum| power(sum, half_power)).collect());
            powers.entry((treatment, half_power)).or_insert_with(all);
        }
        let nodes = graph.n_nodes();
        let places = if reads == Reads::Nested { vec![u32::MAX; nodes] } else { Vec::new() };
        Ok(Blocks { matrices, treated, powers, degrees, reads, nodes, places })
    }

    /// Bytes of what all blocks share beside the graph.
    pub fn shared_bytes(&self, graph: &Graph) -> usize {
        let own = graph.adjacency();
        let matrices = self.treated.of.values().filter(|t| !Arc::ptr_eq(&t.matrix, own));
        let sums: usize = self.treated.of.values().map(|t| t.sums.len() * 8).sum();
        let powers: usize = self.powers.values().map(|p| p.len() * 4).sum();
        matrices.map(|t| t.matrix.bytes()).sum::<usize>() + sums + powers + self.places.len() * 4
    }

    /// Looks at some rows: whom they see.
    pub fn cut(&mut self, rows: Range<u32>) -> Cut {
        let matrix =
            self.matrices.first().map(|need| &self.treated.of[&need.adjacency.graph].matrix);
        let entries = match matrix {
            Some(matrix) => rows.clone().map(|row| matrix.row(row as usize).len()).sum(),
            None => 0,
        };
        let whole = rows.len() == self.nodes;
        let order = match self.reads {
            Reads::All => None,
            _ if whole => None,
            Reads::Own => Some(rows.clone().collect()),
            Reads::Nested => Some(self.seen_from(&rows)),
        };
        Cut { rows, order, entries }
    }

    /// The rows themselves, then whom they see.
    fn seen_from(&mut self, rows: &Range<u32>) -> Vec<u32> {
        let mut order: Vec<u32> = rows.clone().collect();
        order.iter().enumerate().for_each(|(at, &i)| self.places[i as usize] = at as u32);
        for need in &self.matrices {
            let matrix = &self.treated.of[&need.adjacency.graph].matrix;
            for row in rows.clone() {
                for &col in matrix.row_cols(row as usize) {
                    let place = &mut self.places[col as usize];
                    if *place == u32::MAX {
                        *place = order.len() as u32;
                        order.push(col);
                    }
                }
            }
        }
        order.iter().for_each(|&i| self.places[i as usize] = u32::MAX);
        order
    }

    /// The sizes that a plan meets in a block.
    pub fn sizes(&self, cut: &Cut, features: &Features) -> Sizes {
        let before = cut.before(self.nodes);
        let hops = usize::from(self.reads != Reads::Own);
        let nodes = if hops == 0 { vec![before] } else { vec![before, cut.rows.len()] };
        let share = before as f64 / self.nodes.max(1) as f64;
        let feature_entries = match features {
            Features::Sparse(x) => (x.nnz() as f64 * share) as usize,
            Features::Dense(_) => 0,
        };
        Sizes {
            nodes,
            entries: vec![cut.entries; hops],
            feature_entries,
            graphs: 0,
            pairs: 0,
            iterations: 1,
            symmetric: false,
            edge_weights: self.treated.of.values().any(|t| t.matrix.values().is_some()),
        }
    }

    /// Bytes of what [`Blocks::levels`] makes of a block.
    pub fn bytes(&self, cut: &Cut, features: &Features) -> usize {
        let entry =
            if self.treated.of.values().any(|t| t.matrix.values().is_some()) { 8 } else { 4 };
        let matrix = if self.covers(cut) { 0 } else { cut.entries * entry + cut.rows.len() * 8 };
        let row = match features {
            Features::Dense(x) => x.n_cols() * 4,
            Features::Sparse(x) => 8 + x.nnz() * 8 / self.nodes.max(1),
        };
        let gathered = cut.order.as_ref().map_or(0, |order| order.len() * (row + 4));
        matrix + gathered + self.degrees.len() * cut.before(self.nodes) * 4
    }

    fn covers(&self, cut: &Cut) -> bool {
        cut.rows.len() == self.nodes
    }

    /// What a plan is given of a block.
    ///
    /// # Errors
    /// When there is no memory.
    pub fn levels(&mut self, cut: &Cut, features: &Arc<Features>) -> Result<Levels> {
        let sizes = self.sizes(cut, features);
        let mut levels = Levels {
            nodes: sizes.nodes,
            entries: sizes.entries,
            order: None,
            matrices: HashMap::new(),
            degrees: HashMap::new(),
            edges: HashMap::new(),
            features: gathered(features, cut.order.as_deref()),
            half: None,
            turned: Arc::new(OnceLock::new()),
            passing: true,
            symmetric: false,
            weighted: sizes.edge_weights,
        };
        for at in 0..self.matrices.len() {
            let adjacency = self.matrices[at].adjacency;
            let matrix = self.treated.of[&adjacency.graph].matrix.clone();
            let matrix = if self.covers(cut) { matrix } else { self.rows_of(&matrix, cut)? };
            levels.matrices.insert(adjacency, matrix);
        }
        for &key in &self.degrees {
            let (treatment, level, half_power) = key;
            let all = &self.powers[&(treatment, half_power)];
            let of = match (level, &cut.order) {
                _ if self.covers(cut) => all.clone(),
                (0, None) => all.clone(),
                (0, Some(order)) => Arc::new(order.iter().map(|&i| all[i as usize]).collect()),
                _ => Arc::new(all[cut.rows.start as usize..cut.rows.end as usize].to_vec()),
            };
            levels.degrees.insert(key, of);
        }
        Ok(levels)
    }

    /// A block's rows of a matrix, columns by their places where they have new ones.
    fn rows_of(&mut self, matrix: &Csr, cut: &Cut) -> Result<Arc<Csr>> {
        let rows: Vec<u32> = cut.rows.clone().collect();
        let Some(order) = &cut.order else { return Ok(Arc::new(block_of(matrix, &rows, None))) };
        order.iter().enumerate().for_each(|(at, &i)| self.places[i as usize] = at as u32);
        let block = block_of(matrix, &rows, Some(&self.places));
        order.iter().for_each(|&i| self.places[i as usize] = u32::MAX);
        let parts = lacis_core::CsrParts { n_cols: order.len(), ..block.parts().clone() };
        Ok(Arc::new(Csr::new(parts, &Threads::one())?))
    }
}
