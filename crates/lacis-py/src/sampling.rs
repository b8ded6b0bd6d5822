//! Neighbour sampling for PyG's loaders and our own.

use std::sync::{Mutex, PoisonError};

use lacis::sample::{
    Ahead, EdgeIds, Fanout, NeighborBatch, NeighborBatches, NeighborConfig, NeighborSampler, Order,
    Preparation,
};
use lacis::{Buffer, Csr, CsrParts, Error, Graph, Result, Rng, RowPtr};
use numpy::{IntoPyArray, PyArray1, PyReadonlyArray1};
use pyo3::prelude::*;

use crate::error::raise;
use crate::machine::threads;

/// Draws neighbourhoods from a graph in PyG's form: where the in-edges of each node begin, and
/// their sources.
#[pyclass(frozen, module = "lacis._lacis")]
pub struct Sampler {
    graph: Graph,
    fanouts: Vec<Fanout>,
    /// Memory of a sampler, which one thread at a time uses.
    at_rest: Mutex<Vec<(NeighborSampler, NeighborBatch)>>,
}

type Ints<'py> = PyReadonlyArray1<'py, i64>;
type List<'py> = Bound<'py, PyArray1<i64>>;
/// Nodes; sources, targets and places of edges; new nodes and edges of every hop; rows of seeds.
type Batch<'py> = (List<'py>, List<'py>, List<'py>, List<'py>, Vec<usize>, Vec<usize>, List<'py>);

fn fanout(count: i64) -> Result<Fanout> {
    count.to_string().parse()
}

fn nodes_of(seeds: &[i64], n: usize) -> Result<Vec<u32>> {
    let node = |(at, &seed): (usize, &i64)| match u32::try_from(seed) {
        Ok(index) if (index as usize) < n => Ok(index),
        _ => {
            let problem = format!("{seed} at position {at} is none of the {n} nodes");
            Err(Error::argument("input_nodes", problem))
        }
    };
    seeds.iter().enumerate().map(node).collect()
}

#[pymethods]
impl Sampler {
    /// One fan-out per hop, −1 for all.
    #[new]
    fn new(py: Python<'_>, colptr: Ints<'_>, row: Ints<'_>, fanouts: Vec<i64>) -> PyResult<Self> {
        let (colptr, row) = (colptr.as_slice()?, row.as_slice()?);
        let make = || -> Result<Self> {
            let graph = Graph::new(columns(colptr, row)?);
            let fanouts: Vec<Fanout> = fanouts.into_iter().map(fanout).collect::<Result<_>>()?;
            NeighborSampler::new(&graph, &fanouts)?;
            Ok(Sampler { graph, fanouts, at_rest: Mutex::default() })
        };
        py.detach(make).map_err(raise)
    }

    /// The neighbourhood of some nodes: a function of them and of the number.
    fn sample<'py>(&self, py: Python<'py>, seeds: Ints<'_>, number: u64) -> PyResult<Batch<'py>> {
        let seeds = nodes_of(seeds.as_slice()?, self.graph.n_nodes()).map_err(raise)?;
        let lock = || self.at_rest.lock().unwrap_or_else(PoisonError::into_inner);
        let sample = || -> Result<_> {
            let (mut sampler, mut batch) = match lock().pop() {
                Some(both) => both,
                None => (
                    NeighborSampler::new(&self.graph, &self.fanouts)?,
                    NeighborBatch::new(EdgeIds::Keep),
                ),
            };
            sampler.fill(&mut batch, &seeds, None, Rng::new(number, "neighbours"))?;
            let found = Found::of(&batch);
            lock().push((sampler, batch));
            Ok(found)
        };
        Ok(py.detach(sample).map_err(raise)?.into_arrays(py))
    }

    /// An epoch over seeds in their order, `batch_size` at a time, prepared by some threads, each
    /// so many ahead.
    fn epoch(
        &self,
        seeds: Ints<'_>,
        batch_size: usize,
        number: u64,
        ahead: (usize, usize),
    ) -> PyResult<Epoch> {
        let make = || -> Result<Epoch> {
            let seeds = nodes_of(seeds.as_slice().unwrap_or_default(), self.graph.n_nodes())?;
            let config = NeighborConfig {
                order: Order::AsGiven,
                edge_ids: EdgeIds::Keep,
                preparation: Preparation { workers: ahead.0, depth: ahead.1 },
                ..NeighborConfig::new(self.fanouts.clone(), batch_size, number)
            };
            let batches = NeighborBatches::new(&self.graph, None, &seeds, config)?;
            Ok(Epoch { batches: Mutex::new(batches.epoch(0)?) })
        };
        make().map_err(raise)
    }
}

/// The batches of an epoch, one after another.
#[pyclass(frozen, module = "lacis._lacis")]
pub struct Epoch {
    batches: Mutex<Ahead<NeighborBatch>>,
}

#[pymethods]
impl Epoch {
    /// The next batch, or nothing after the last.
    fn next<'py>(&self, py: Python<'py>) -> PyResult<Option<Batch<'py>>> {
        let next = || -> Result<Option<Found>> {
            let mut batches = self.batches.lock().unwrap_or_else(PoisonError::into_inner);
            Ok(batches.next()?.map(Found::of))
        };
        Ok(py.detach(next).map_err(raise)?.map(|found| found.into_arrays(py)))
    }
}

/// What a batch holds, as torch counts.
struct Found {
    nodes: Vec<i64>,
    rows: Vec<i64>,
    cols: Vec<i64>,
    edges: Vec<i64>,
    new_nodes: Vec<usize>,
    new_edges: Vec<usize>,
    seed_rows: Vec<i64>,
}

impl Found {
    fn of(batch: &NeighborBatch) -> Self {
        let wide = |list: &[u32]| list.iter().map(|&i| i64::from(i)).collect::<Vec<i64>>();
        let known = batch.known();
        let last = batch.blocks().last().expect("a sampler has at least one hop");
        let mut cols = Vec::with_capacity(last.nnz());
        (0..last.n_rows()).for_each(|i| cols.extend(last.row(i).map(|_| i as i64)));
        let ends: Vec<usize> = batch.blocks().iter().map(Csr::nnz).collect();
        let steps = |ends: &[usize]| {
            let before = std::iter::once(0).chain(ends.iter().copied());
            ends.iter().zip(before).map(|(end, before)| end - before).collect()
        };
        Found {
            nodes: wide(batch.nodes()),
            rows: wide(last.cols()),
            cols,
            edges: batch.edge_ids().unwrap_or_default().iter().map(|&e| e as i64).collect(),
            new_nodes: steps(known),
            new_edges: steps(&ends),
            seed_rows: wide(batch.seed_rows()),
        }
    }

    fn into_arrays(self, py: Python<'_>) -> Batch<'_> {
        (
            self.nodes.into_pyarray(py),
            self.rows.into_pyarray(py),
            self.cols.into_pyarray(py),
            self.edges.into_pyarray(py),
            self.new_nodes,
            self.new_edges,
            self.seed_rows.into_pyarray(py),
        )
    }
}

/// The adjacency, its entries in the caller's order.
fn columns(colptr: &[i64], row: &[i64]) -> Result<Csr> {
    let n = colptr.len().saturating_sub(1);
    let row_ptr: Vec<u64> = colptr.iter().map(|&at| at as u64).collect();
    let mut cols = Buffer::try_zeroed(row.len())?;
    for (col, node) in cols.make_mut().iter_mut().zip(nodes_of(row, n)?) {
        *col = node;
    }
    let row_ptr = RowPtr::Wide(row_ptr.into());
    Csr::new(CsrParts { n_cols: n, row_ptr, cols, values: None, order: None }, &threads()?)
}
