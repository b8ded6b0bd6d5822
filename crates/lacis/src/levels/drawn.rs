//! Levels of a batch: the edges that were drawn, instead of a whole graph's.
//!
//! ```text
//!   level l → l + 1:   the first nodes[l + 1] rows of the drawn edges, treated as a layer asks
//! ```
//! Every level's matrix is the top of the one before, so that an equality which moves a hop from
//! one level to another holds for batches as it does for whole graphs. Degrees are those of the
//! drawn edges, or, where a sampler corrects for what it draws, the whole graph's.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Arc, OnceLock};

use lacis_core::{Buffer, Csr, CsrParts, CsrView, Features, Graph, Result, RowPtr, Threads};
use lacis_plan::op::{Adjacency, Graph as Treatment, Loops};
use lacis_plan::plan::Plan;

use crate::exec::convert;

use super::{DegreeKey, Levels, Need, needs, power, treat};

/// What a plan reads of a graph.
#[derive(Clone, Debug, Default)]
pub(crate) struct Needs {
    matrices: Vec<Need>,
    degrees: Vec<DegreeKey>,
    /// Whether dense features are read in bf16.
    half: bool,
}

impl Needs {
    /// All that a plan reads.
    pub fn of(plan: &Plan) -> Self {
        let (matrices, degrees) = needs(plan);
        Needs { matrices, degrees, half: super::reads_half_features(plan) }
    }

    /// Sums of rows of a whole graph, as each of the degrees takes them.
    ///
    /// # Errors
    /// When the graph cannot have loops.
    pub fn sums(&self, graph: &Graph) -> Result<Sums> {
        let mut sums = HashMap::new();
        for (treatment, ..) in &self.degrees {
            if !sums.contains_key(treatment) {
                sums.insert(*treatment, Arc::new(treat(graph, *treatment)?.sums));
            }
        }
        Ok(sums)
    }
}

/// Sums of rows of a whole graph, by how it was treated.
pub(crate) type Sums = HashMap<Treatment, Arc<Vec<f64>>>;

/// The edges of a batch.
pub(crate) struct Drawn<'a> {
    /// Row `i` and column `i` are the same node; nodes beyond the last row have no edges.
    pub edges: &'a Csr,
    /// Nodes at each level, from the features on.
    pub nodes: Vec<usize>,
    /// The whole graph's number of each node of level 0.
    pub order: &'a [u32],
    /// Their features.
    pub features: Arc<Features>,
    /// Whether the edges are their own transpose.
    pub symmetric: bool,
    /// Whether values stay even where a layer takes edges without weights: they are coefficients.
    pub coefficients: bool,
    /// The whole graph's sums of rows, where those are to be the degrees.
    pub sums: Option<&'a Sums>,
}

impl Levels {
    /// What a plan reads of a batch.
    ///
    /// # Errors
    /// When a matrix would be too large.
    pub(crate) fn drawn(drawn: &Drawn<'_>, needs: &Needs) -> Result<Self> {
        let nodes = drawn.nodes.clone();
        let row_ptr = drawn.edges.row_ptr().view();
        let entries = nodes[1..].iter().map(|&n| row_ptr.at(n.min(drawn.edges.n_rows())));
        let half = match needs.half {
            true => convert::half_features(&drawn.features, None, &Threads::one())?,
            false => None,
        };
        let mut levels = Levels {
            half: half.map(Arc::new),
            entries: entries.collect(),
            nodes,
            order: Some(Arc::new(drawn.order.to_vec())),
            matrices: HashMap::new(),
            degrees: HashMap::new(),
            edges: HashMap::new(),
            features: drawn.features.clone(),
            turned: Arc::new(OnceLock::new()),
            passing: true,
            symmetric: drawn.symmetric,
            weighted: drawn.edges.values().is_some(),
        };
        let mut treated: HashMap<Treatment, Csr> = HashMap::new();
        let rows = levels.nodes.get(1).copied().unwrap_or(0);
        let wanted = needs.matrices.iter().map(|need| need.adjacency.graph);
        for treatment in wanted.chain(needs.degrees.iter().map(|key| key.0)) {
            if let Entry::Vacant(place) = treated.entry(treatment) {
                place.insert(with_treatment(drawn, rows, treatment)?);
            }
        }
        for need in &needs.matrices {
            levels.add_drawn(need, &treated[&need.adjacency.graph])?;
        }
        for key in &needs.degrees {
            levels.add_drawn_degrees(*key, drawn, &treated[&key.0]);
        }
        Ok(levels)
    }

    /// The matrix of a level, and its transpose where that is asked for; equal ones are shared.
    fn add_drawn(&mut self, need: &Need, treated: &Csr) -> Result<()> {
        let own = Adjacency { transposed: false, ..need.adjacency };
        let level = own.level as usize;
        let (n_rows, n_cols) = (self.nodes[level + 1], self.nodes[level]);
        let alike = |key: &&Adjacency| {
            let level = key.level as usize;
            key.graph == own.graph && (self.nodes[level + 1], self.nodes[level]) == (n_rows, n_cols)
        };
        if !self.matrices.contains_key(&own) {
            let kept = self.matrices.keys().find(|key| !key.transposed && alike(key)).copied();
            let matrix = match kept {
                Some(kept) => self.matrices[&kept].clone(),
                None => Arc::new(top(treated, n_rows, n_cols)?),
            };
            self.matrices.insert(own, matrix);
        }
        if need.adjacency.transposed && !self.matrices.contains_key(&need.adjacency) {
            let matrix = self.matrices[&own].clone();
            let kept = self.matrices.keys().find(|key| key.transposed && alike(key)).copied();
            let turned = match kept {
                Some(kept) if self.matrices[&kept].order().is_some() == need.ordered => {
                    self.matrices[&kept].clone()
                }
                _ if self.symmetric && !need.ordered => matrix,
                _ => Arc::new(transposed(&matrix, need.ordered)?),
            };
            self.matrices.insert(need.adjacency, turned);
        }
        Ok(())
    }

    fn add_drawn_degrees(&mut self, key: DegreeKey, drawn: &Drawn<'_>, treated: &Csr) {
        let (treatment, level, half_power) = key;
        let count = self.nodes[level as usize];
        let powers: Vec<f32> = match drawn.sums.and_then(|sums| sums.get(&treatment)) {
            Some(sums) => {
                let nodes = drawn.order[..count].iter();
                nodes.map(|&node| power(sums[node as usize], half_power)).collect()
            }
            None => {
                // A node whose edges were not drawn has its loop alone.
                let alone = f64::from(u8::from(treatment.has_loops()));
                let sums = treated.row_sums().into_iter().chain(std::iter::repeat(alone));
                sums.take(count).map(|sum| power(sum, half_power)).collect()
            }
        };
        self.degrees.insert(key, Arc::new(powers));
    }
}

/// The first rows of the drawn edges with loops and weights as a layer wants them.
fn with_treatment(drawn: &Drawn<'_>, rows: usize, treatment: Treatment) -> Result<Csr> {
    let a = drawn.edges.view();
    let values = a.values.filter(|_| treatment.weighted || drawn.coefficients);
    if treatment.loops == Loops::AsStored {
        let bare = match values {
            None => drawn.edges.clone().with_values(None)?,
            Some(_) => drawn.edges.clone(),
        };
        return top(&bare, rows, a.n_cols);
    }
    let room = a.cols.len() + rows;
    let (mut ptr, mut cols) = (Vec::with_capacity(rows + 1), Vec::with_capacity(room));
    let mut kept = values.map(|_| Vec::with_capacity(room));
    ptr.push(0_u32);
    for i in 0..rows {
        let mut own = None;
        for e in if i < a.n_rows() { a.row(i) } else { 0..0 } {
            if a.cols[e] as usize == i {
                own = values.map(|values| values[e]);
                continue;
            }
            cols.push(a.cols[e]);
            if let (Some(kept), Some(values)) = (&mut kept, values) {
                kept.push(values[e]);
            }
        }
        if treatment.has_loops() {
            let weight = if treatment.loops == Loops::AddMissing { own } else { None };
            cols.push(i as u32);
            kept.iter_mut().for_each(|kept| kept.push(weight.unwrap_or(1.0)));
        }
        ptr.push(cols.len() as u32);
    }
    let parts = CsrParts {
        n_cols: a.n_cols,
        row_ptr: RowPtr::Narrow(ptr.into()),
        cols: cols.into(),
        values: kept.map(Buffer::from),
        order: None,
    };
    Csr::new(parts, &Threads::one())
}

/// The first rows of a matrix, empty ones where it has not so many, with so many columns.
fn top(matrix: &Csr, n_rows: usize, n_cols: usize) -> Result<Csr> {
    let have = matrix.n_rows().min(n_rows);
    let view = matrix.view();
    let nnz = matrix.row_ptr().view().at(have);
    let parts = matrix.parts();
    let row_ptr = match (&parts.row_ptr, have == n_rows) {
        (RowPtr::Narrow(ptr), true) => RowPtr::Narrow(ptr.clone().truncated(n_rows + 1)),
        (RowPtr::Wide(ptr), true) => RowPtr::Wide(ptr.clone().truncated(n_rows + 1)),
        _ => {
            let ends = (0..=n_rows).map(|i| view.row_ptr.at(i.min(have)) as u64);
            RowPtr::Wide(ends.collect::<Vec<_>>().into())
        }
    };
    let parts = CsrParts {
        n_cols,
        row_ptr,
        cols: parts.cols.clone().truncated(nnz),
        values: parts.values.clone().map(|values| values.truncated(nnz)),
        order: None,
    };
    Csr::new(parts, &Threads::one())
}

/// The transpose by counting: a batch is small, and its maker is one thread.
fn transposed(matrix: &Csr, ordered: bool) -> Result<Csr> {
    let a: CsrView<'_> = matrix.view();
    let nnz = a.cols.len();
    let mut ptr = vec![0_u32; a.n_cols + 1];
    a.cols.iter().for_each(|&j| ptr[j as usize + 1] += 1);
    for j in 0..a.n_cols {
        ptr[j + 1] += ptr[j];
    }
    let mut next = ptr.clone();
    let mut cols = vec![0_u32; nnz];
    let mut values = a.values.map(|_| vec![0.0_f32; nnz]);
    let mut order = ordered.then(|| vec![0_u32; nnz]);
    for i in 0..a.n_rows() {
        for e in a.row(i) {
            let place = &mut next[a.cols[e] as usize];
            let to = *place as usize;
            *place += 1;
            cols[to] = i as u32;
            if let (Some(values), Some(from)) = (&mut values, a.values) {
                values[to] = from[e];
            }
            order.iter_mut().for_each(|order| order[to] = e as u32);
        }
    }
    let parts = CsrParts {
        n_cols: a.n_rows(),
        row_ptr: RowPtr::Narrow(ptr.into()),
        cols: cols.into(),
        values: values.map(Buffer::from),
        order: order.map(Buffer::from),
    };
    Csr::new(parts, &Threads::one())
}
