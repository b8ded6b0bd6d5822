//! [`Levels`]: what a plan is given of a graph: matrices, degrees and features, level by level.
//!
//! The nodes of a later level come first in an earlier one. A whole graph has the same nodes at
//! every level; where only some nodes are asked for, level `L` has those, and each earlier level
//! those that the next one gathers from: every row that is not there could not have been seen.

pub mod blocks;
pub(crate) mod drawn;
mod rows;

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, OnceLock};

use lacis_core::{Csr, CsrParts, Dense, Features, Graph, Result, SelfLoops, Threads, bf16};
use lacis_plan::op::{Adjacency, Graph as Treatment, Loops};
use lacis_plan::plan::{Operator, Place, Plan};
use lacis_plan::{Dim, Sizes};

use crate::exec::convert;
use rows::block_of;

/// The key of a vector of degree powers.
type DegreeKey = (Treatment, u16, i8);

/// What a plan is given. See the module's head.
#[derive(Clone, Debug)]
pub struct Levels {
    nodes: Vec<usize>,
    entries: Vec<usize>,
    /// The whole graph's number of each node of level 0, where they differ.
    order: Option<Arc<Vec<u32>>>,
    matrices: HashMap<Adjacency, Arc<Csr>>,
    degrees: HashMap<DegreeKey, Arc<Vec<f32>>>,
    /// The whole graph's number of each entry, where a level has not all of them.
    edges: HashMap<Adjacency, Arc<Numbered>>,
    features: Arc<Features>,
    /// Dense features in bf16, where a plan reads them so; `features` are the whole graph's then.
    half: Option<Arc<Dense<bf16>>>,
    /// Sparse features the other way round, once somebody asks.
    turned: Arc<OnceLock<Csr>>,
    /// Whether they serve one step only: then nothing is kept for later ones.
    passing: bool,
    symmetric: bool,
    weighted: bool,
}

/// The whole graph's numbers of a level's entries, and how many entries it has.
#[derive(Debug)]
struct Numbered {
    of: Vec<u32>,
    all: usize,
}

/// A graph with loops treated as a layer wants them.
#[derive(Clone, Debug)]
struct Treated {
    matrix: Arc<Csr>,
    sums: Vec<f64>,
}

/// A graph's treatments, kept while levels are made of it: those that need the same share it.
#[derive(Clone, Debug, Default)]
pub struct Treatments {
    of: HashMap<Treatment, Treated>,
    /// All nodes' features in bf16.
    half: Option<Arc<Dense<bf16>>>,
}

/// A graph, and which of its nodes are asked for.
#[derive(Clone, Copy, Debug)]
pub struct Asked<'a> {
    /// The graph.
    pub graph: &'a Graph,
    /// Its features.
    pub features: &'a Arc<Features>,
    /// How many levels the formula has.
    pub levels: usize,
    /// The nodes at the last level, ascending; all where absent.
    pub rows: Option<&'a [u32]>,
    /// Whether earlier levels are restricted too, to what the last one can see.
    pub reach: bool,
}

impl Levels {
    /// How many nodes and entries each level will have: all that planning needs.
    ///
    /// # Errors
    /// When the graph is not square.
    pub fn sizes(asked: &Asked<'_>, threads: &Threads) -> Result<Sizes> {
        let graph = asked.graph;
        let adjacency = graph.adjacency();
        lacis_core::error::same_size(
            "graph",
            "number of columns",
            adjacency.n_rows(),
            adjacency.n_cols(),
        )?;
        let reached = Reached::of(asked);
        let entries = (0..asked.levels.saturating_sub(1)).map(|l| reached.entries(l, adjacency));
        let feature_entries = match &**asked.features {
            Features::Sparse(x) => x.nnz(),
            Features::Dense(_) => 0,
        };
        Ok(Sizes {
            entries: entries.collect(),
            nodes: reached.nodes,
            feature_entries,
            graphs: 0,
            pairs: 0,
            iterations: 200,
            symmetric: graph.is_symmetric(threads),
            edge_weights: adjacency.values().is_some(),
        })
    }

    /// Makes what a plan reads.
    ///
    /// # Errors
    /// When there is no memory, or the graph cannot have loops.
    pub fn new(asked: &Asked<'_>, plan: &Plan, threads: &Threads) -> Result<Self> {
        Levels::sharing(asked, plan, &mut Treatments::default(), threads)
    }

    /// The same, with what other levels of the same graph were made of.
    ///
    /// # Errors
    /// As [`Levels::new`].
    pub fn sharing(
        asked: &Asked<'_>,
        plan: &Plan,
        treated: &mut Treatments,
        threads: &Threads,
    ) -> Result<Self> {
        let sizes = Levels::sizes(asked, threads)?;
        let reached = Reached::of(asked);
        let half = match reads_half_features(plan) {
            true => treated.half_features(asked.features, reached.order.as_deref(), threads)?,
            false => None,
        };
        let mut levels = Levels {
            nodes: sizes.nodes,
            entries: sizes.entries,
            order: reached.order.clone().map(Arc::new),
            matrices: HashMap::new(),
            degrees: HashMap::new(),
            edges: HashMap::new(),
            features: match half {
                Some(_) => asked.features.clone(),
                None => gathered(asked.features, reached.order.as_deref()),
            },
            half,
            turned: Arc::default(),
            passing: false,
            symmetric: sizes.symmetric,
            weighted: sizes.edge_weights,
        };
        let (matrices, degrees) = needs(plan);
        for need in &matrices {
            let of = treated.of(asked.graph, need.adjacency.graph)?;
            levels.add_matrix(need, of, &reached, threads)?;
        }
        for key in degrees {
            let of = treated.of(asked.graph, key.0)?;
            levels.add_degrees(key, of, &reached);
        }
        Ok(levels)
    }

    /// Nodes and entries.
    pub fn measured(&self) -> Sizes {
        Sizes {
            nodes: self.nodes.clone(),
            entries: self.entries.clone(),
            feature_entries: match &*self.features {
                Features::Sparse(x) => x.nnz(),
                Features::Dense(_) => 0,
            },
            graphs: 0,
            pairs: 0,
            iterations: 200,
            symmetric: self.symmetric,
            edge_weights: self.weighted,
        }
    }

    /// An adjacency.
    ///
    /// # Panics
    /// When the plan that these levels were made for does not read it.
    pub fn matrix(&self, adjacency: Adjacency) -> &Arc<Csr> {
        &self.matrices[&adjacency]
    }

    /// The whole graph's number of each entry of an adjacency, where it has not all of them.
    pub fn edges(&self, adjacency: Adjacency) -> Option<&[u32]> {
        self.edges.get(&adjacency).map(|edges| edges.of.as_slice())
    }

    /// Entries that an adjacency has in the whole graph, where it has not all of them.
    pub(crate) fn all_edges(&self, adjacency: Adjacency) -> Option<usize> {
        self.edges.get(&adjacency).map(|edges| edges.all)
    }

    /// Powers of degrees, one per node of the level.
    ///
    /// # Panics
    /// When the plan that these levels were made for does not read them.
    pub fn degrees(&self, graph: Treatment, level: u16, half_power: i8) -> &[f32] {
        &self.degrees[&(graph, level, half_power)]
    }

    /// Features of the nodes at level 0.
    pub fn features(&self) -> &Features {
        &self.features
    }

    /// Dense features of the nodes at level 0 in bf16, where the plan reads them so.
    pub(crate) fn half_features(&self) -> Option<&Dense<bf16>> {
        self.half.as_deref()
    }

    /// Sparse features with columns as rows, made at the first call; not for a passing batch.
    pub fn features_turned(&self, threads: &Threads) -> Option<&Csr> {
        match &*self.features {
            Features::Sparse(_) if self.passing => None,
            Features::Sparse(x) => Some(self.turned.get_or_init(|| x.transpose(threads))),
            Features::Dense(_) => None,
        }
    }

    /// Nodes at a level.
    pub fn n_nodes(&self, level: usize) -> usize {
        self.nodes[level]
    }

    /// The whole graph's number of each node of level 0, where they differ.
    pub fn order(&self) -> Option<&[u32]> {
        self.order.as_ref().map(|order| order.as_slice())
    }

    /// Bytes of what was made for these levels beyond the graph's own.
    pub fn bytes(&self) -> usize {
        let mut seen = std::collections::HashSet::new();
        let matrices = self.matrices.values().filter(|m| seen.insert(Arc::as_ptr(m)));
        let degrees = self.degrees.values().map(|d| d.len() * 4).sum::<usize>();
        matrices.map(|m| m.bytes()).sum::<usize>() + degrees
    }

    /// The number behind a symbol, at these levels.
    pub(crate) fn size_of(&self, dim: Dim) -> usize {
        match dim {
            Dim::Nodes(level) => self.nodes[level as usize],
            Dim::Width(width) => width,
            Dim::Graphs | Dim::Pairs => 0,
        }
    }

    fn add_matrix(
        &mut self,
        need: &Need,
        treated: &Treated,
        reached: &Reached,
        threads: &Threads,
    ) -> Result<()> {
        let own = Adjacency { transposed: false, ..need.adjacency };
        if !self.matrices.contains_key(&own) {
            let matrix = reached.block(own.level as usize, &treated.matrix, threads)?;
            if need.numbered
                && let Some(numbered) = self.numbered(own, treated, reached)
            {
                self.edges.insert(own, numbered);
            }
            // Equal levels have equal matrices: one serves all of them.
            let same = self.matrices.iter().find(|(key, kept)| {
                let same = || Arc::ptr_eq(kept, &matrix) || kept.same_entries(&matrix);
                key.graph == own.graph && !key.transposed && same()
            });
            let matrix = same.map_or(matrix, |(_, kept)| kept.clone());
            self.matrices.insert(own, matrix);
        }
        if need.adjacency.transposed && !self.matrices.contains_key(&need.adjacency) {
            let matrix = self.matrices[&own].clone();
            let square = matrix.n_rows() == matrix.n_cols();
            let itself = self.symmetric && square && !reached.is_restricted(own.level as usize);
            // The transpose of another level's matrix that is the same one.
            let kept = self.matrices.iter().find(|(key, turned)| {
                let own_of = Adjacency { transposed: false, ..**key };
                key.transposed
                    && turned.order().is_some() == need.ordered
                    && self.matrices.get(&own_of).is_some_and(|m| Arc::ptr_eq(m, &matrix))
            });
            let turned = match kept {
                _ if itself && !need.ordered => matrix,
                Some((_, turned)) => turned.clone(),
                None if need.ordered => Arc::new(matrix.transpose_with_order(threads)?),
                None => Arc::new(matrix.transpose(threads)),
            };
            self.matrices.insert(need.adjacency, turned);
        }
        Ok(())
    }

    /// The whole graph's numbers of a level's entries; levels with the same rows share them.
    fn numbered(
        &self,
        own: Adjacency,
        treated: &Treated,
        reached: &Reached,
    ) -> Option<Arc<Numbered>> {
        let rows = |adjacency: Adjacency| reached.nodes[adjacency.level as usize + 1];
        let same = |key: &Adjacency| key.graph == own.graph && rows(*key) == rows(own);
        if let Some((_, kept)) = self.edges.iter().find(|(key, _)| same(key)) {
            return Some(kept.clone());
        }
        let of = reached.edges(own.level as usize, &treated.matrix)?;
        Some(Arc::new(Numbered { of, all: treated.matrix.nnz() }))
    }

    fn add_degrees(&mut self, key: DegreeKey, treated: &Treated, reached: &Reached) {
        let (_, level, half_power) = key;
        let count = self.nodes[level as usize];
        let of = |i: usize| match &reached.order {
            None => i,
            Some(order) => order[i] as usize,
        };
        let powers = (0..count).map(|i| power(treated.sums[of(i)], half_power)).collect();
        self.degrees.insert(key, Arc::new(powers));
    }
}

/// `sum^(half_power / 2)`, and 0 instead of infinity.
fn power(sum: f64, half_power: i8) -> f32 {
    let power = sum.powf(f64::from(half_power) / 2.0) as f32;
    if power.is_infinite() { 0.0 } else { power }
}

/// A matrix that a plan reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Need {
    adjacency: Adjacency,
    /// Whether entries of the transpose must know their places.
    ordered: bool,
    /// Whether entries must know the whole graph's numbers: some are dropped by them.
    numbered: bool,
}

/// Matrices and degrees that a plan reads; transposes that gradients take are among them.
fn needs(plan: &Plan) -> (Vec<Need>, Vec<DegreeKey>) {
    let mut matrices: BTreeMap<Adjacency, Need> = BTreeMap::new();
    let mut degrees = Vec::new();
    for value in &plan.values {
        match value.place {
            Place::Adjacency(adjacency) => {
                matrices.insert(adjacency, Need { adjacency, ordered: false, numbered: false });
            }
            Place::Degrees { graph, level, half_power } => degrees.push((graph, level, half_power)),
            _ => {}
        }
    }
    for step in &plan.steps {
        if let Operator::EdgeDropout { .. } = step.operator
            && let Place::Adjacency(read) = plan.values[step.inputs[0]].place
        {
            let own = Adjacency { transposed: false, ..read };
            let need = |adjacency| Need { adjacency, ordered: false, numbered: false };
            matrices.entry(own).or_insert(need(own)).numbered = true;
            matrices.entry(read).or_insert(need(read)).ordered |= read.transposed;
            continue;
        }
        let (dropped, back) = match step.operator {
            Operator::Attention(attention) => (attention.dropout.get() > 0.0, false),
            Operator::AttentionGrad(attention) => (attention.dropout.get() > 0.0, true),
            Operator::ExtremeGrad(_) | Operator::GatedGrad => (false, true),
            _ => continue,
        };
        let Place::Adjacency(adjacency) = plan.values[step.inputs[0]].place else { continue };
        matrices.entry(adjacency).and_modify(|need| need.numbered |= dropped);
        if back {
            let adjacency = adjacency.turned();
            let need = Need { adjacency, ordered: dropped, numbered: false };
            matrices.entry(adjacency).or_insert(need).ordered |= dropped;
        }
    }
    degrees.sort_unstable();
    degrees.dedup();
    (matrices.into_values().collect(), degrees)
}

impl Treatments {
    /// A treatment of the graph, made once.
    fn of(&mut self, graph: &Graph, treatment: Treatment) -> Result<&Treated> {
        Ok(match self.of.entry(treatment) {
            Entry::Occupied(entry) => entry.into_mut(),
            Entry::Vacant(entry) => entry.insert(treat(graph, treatment)?),
        })
    }

    /// Features in bf16; those of all nodes in their own order are made once.
    fn half_features(
        &mut self,
        features: &Features,
        order: Option<&[u32]>,
        threads: &Threads,
    ) -> Result<Option<Arc<Dense<bf16>>>> {
        let whole = order.is_none_or(|order| is_own_order(order, features.n_rows()));
        if let Some(half) = self.half.as_ref().filter(|_| whole) {
            return Ok(Some(half.clone()));
        }
        let order = order.filter(|_| !whole);
        let half = convert::half_features(features, order, threads)?.map(Arc::new);
        if whole {
            self.half.clone_from(&half);
        }
        Ok(half)
    }
}

/// Whether a plan reads dense features in bf16.
pub(crate) fn reads_half_features(plan: &Plan) -> bool {
    plan.values.iter().any(|value| value.place == Place::Features && value.half)
}

/// Whether an order leaves all rows where they are.
fn is_own_order(order: &[u32], n: usize) -> bool {
    order.len() == n && order.iter().enumerate().all(|(new, &old)| new as u32 == old)
}

/// Whether a treatment leaves a graph's matrix as it is.
fn is_as_stored(adjacency: &Csr, treatment: Treatment) -> bool {
    treatment.loops == Loops::AsStored
        && adjacency.order().is_none()
        && (treatment.weighted || adjacency.values().is_none())
}

/// Bytes of the matrices and degrees that a forward pass over the whole graph makes for itself.
pub(crate) fn treated_bytes(plan: &Plan, graph: &Graph) -> usize {
    let adjacency = graph.adjacency();
    let (matrices, degrees) = needs(plan);
    let mut made: Vec<Treatment> = matrices
        .iter()
        .map(|need| need.adjacency.graph)
        .filter(|&treatment| !is_as_stored(adjacency, treatment))
        .collect();
    made.sort_unstable();
    made.dedup();
    let loops = graph.n_nodes() * 12;
    // Sums of rows, and powers of them.
    let sums = graph.n_nodes() * (8 * (made.len() + 1) + 4 * degrees.len());
    made.len() * (adjacency.bytes() + loops) + sums
}

fn treat(graph: &Graph, treatment: Treatment) -> Result<Treated> {
    let adjacency = graph.adjacency();
    let matrix = if is_as_stored(adjacency, treatment) {
        adjacency.clone()
    } else {
        Arc::new(with_loops((**adjacency).clone(), treatment)?)
    };
    Ok(Treated { sums: matrix.row_sums(), matrix })
}

/// A square matrix with loops as asked.
fn with_loops(matrix: Csr, treatment: Treatment) -> Result<Csr> {
    let matrix = matrix.without_order();
    let matrix = if treatment.weighted { matrix } else { matrix.with_values(None)? };
    let loops = match treatment.loops {
        Loops::AsStored => return Ok(matrix),
        Loops::AddMissing => SelfLoops::AddMissing(1.0),
        Loops::Renewed => SelfLoops::Set(1.0),
        Loops::Removed => SelfLoops::Remove,
    };
    matrix.with_self_loops(loops)
}

/// Rows of features in another order.
fn gathered(features: &Arc<Features>, order: Option<&[u32]>) -> Arc<Features> {
    let Some(order) = order else { return features.clone() };
    if is_own_order(order, features.n_rows()) {
        return features.clone();
    }
    match &**features {
        Features::Dense(x) => {
            let mut rows = Dense::zeros(order.len(), x.n_cols());
            for (i, &old) in order.iter().enumerate() {
                rows.row_mut(i).copy_from_slice(x.row(old as usize));
            }
            Arc::new(Features::Dense(rows))
        }
        Features::Sparse(x) => {
            let rows = block_of(x, order, None);
            Arc::new(Features::Sparse(rows))
        }
    }
}

/// Who can be seen from the rows asked for, level by level.
struct Reached {
    nodes: Vec<usize>,
    /// Old numbers by new ones, where not all nodes are at all levels.
    order: Option<Vec<u32>>,
    new_of_old: Option<Vec<u32>>,
}

impl Reached {
    fn of(asked: &Asked<'_>) -> Self {
        let adjacency = asked.graph.adjacency();
        let n = adjacency.n_rows();
        let all = Reached { nodes: vec![n; asked.levels], order: None, new_of_old: None };
        let Some(rows) = asked.rows.filter(|rows| rows.len() < n) else {
            return all;
        };
        let mut seen = vec![false; n];
        rows.iter().for_each(|&row| seen[row as usize] = true);
        let (mut order, mut nodes) = (rows.to_vec(), vec![rows.len()]);
        for _ in 1..asked.levels {
            if asked.reach {
                let mut next: Vec<u32> = Vec::new();
                for &row in &order {
                    for &col in adjacency.row_cols(row as usize) {
                        if !std::mem::replace(&mut seen[col as usize], true) {
                            next.push(col);
                        }
                    }
                }
                next.sort_unstable();
                order.extend(next);
            } else if order.len() < n {
                order.extend((0..n as u32).filter(|&i| !seen[i as usize]));
                seen.fill(true);
            }
            nodes.push(order.len());
        }
        nodes.reverse();
        let mut new_of_old = vec![u32::MAX; n];
        order.iter().enumerate().for_each(|(new, &old)| new_of_old[old as usize] = new as u32);
        Reached { nodes, order: Some(order), new_of_old: Some(new_of_old) }
    }

    fn is_restricted(&self, level: usize) -> bool {
        self.nodes[level] != self.nodes[level + 1]
    }

    fn entries(&self, level: usize, adjacency: &Csr) -> usize {
        match &self.order {
            None => adjacency.nnz(),
            Some(order) => {
                let rows = &order[..self.nodes[level + 1]];
                rows.iter().map(|&row| adjacency.row(row as usize).len()).sum()
            }
        }
    }

    /// The whole matrix's number of each entry of a level's.
    fn edges(&self, level: usize, matrix: &Csr) -> Option<Vec<u32>> {
        let order = self.order.as_ref()?;
        // No more than is needed: lists that grow as they are filled keep up to twice the room.
        let mut edges = Vec::with_capacity(self.entries(level, matrix));
        for &row in &order[..self.nodes[level + 1]] {
            edges.extend(matrix.row(row as usize).map(|e| e as u32));
        }
        Some(edges)
    }

    /// The adjacency from a level to the next one.
    fn block(&self, level: usize, matrix: &Arc<Csr>, threads: &Threads) -> Result<Arc<Csr>> {
        let (Some(order), Some(new)) = (&self.order, &self.new_of_old) else {
            return Ok(matrix.clone());
        };
        let block = block_of(matrix, &order[..self.nodes[level + 1]], Some(new));
        let parts = CsrParts { n_cols: self.nodes[level], ..block.parts().clone() };
        Ok(Arc::new(Csr::new(parts, threads)?))
    }
}
