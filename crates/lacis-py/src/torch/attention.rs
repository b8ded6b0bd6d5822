//! Attention over edges for torch: GAT, GATv2 and dot products, forward and backward.

use lacis::kernels::attention::Given;
use lacis::kernels::attention::{
    DotAttention, DotAttentionGrads, Gat, GatGrads, GatV2, GatV2Grads,
};
use lacis::kernels::dropout::Dropout;
use lacis::kernels::{Mat, MatMut, Stored};
use lacis::{CsrView, Result, Rng, Threads};
use pyo3::prelude::*;

use super::adjacency::Adjacency;
use super::convert::{Plain, Raw, with_numbers};
use super::{Numbers, failed, isa, threads};

/// What edges have: features, a bias per head, the share of coefficients that is dropped and the
/// seed that says which.
#[derive(Clone, Copy, Debug, FromPyObject)]
pub struct OfEdges(Option<Raw>, Option<Raw>, f64, u64);

impl OfEdges {
    fn dropout(&self) -> Result<Option<Dropout<'static>>> {
        let OfEdges(_, _, p, seed) = *self;
        if p > 0.0 { Dropout::new(Rng::new(seed, "attention"), p).map(Some) } else { Ok(None) }
    }

    /// Whether edges differ in more than their ends.
    fn told_apart(&self) -> bool {
        self.0.is_some() || self.1.is_some() || self.2 > 0.0
    }
}

/// The result, what the forward leaves for the backward, and the gradient of the result.
type Past = (Raw, Raw, Raw);

/// GAT: `y` and `lse` from `source`, `target` (absent: the same), both vectors and the slope.
#[pyfunction]
pub fn gat(
    py: Python<'_>,
    on: &Adjacency,
    numbers: Numbers,
    given: (Raw, Option<Raw>, Raw, Raw, f64),
    edges: OfEdges,
    tensors: (Raw, Raw, usize),
) -> PyResult<()> {
    let (y, lse, count) = tensors;
    let run = || -> Result<()> {
        with_numbers!(numbers, T => {
            let threads = threads(count)?;
            let gat = gat_of::<T>(on.attended(&edges, &threads)?, given, &edges)?;
            gat.forward(isa(), (y.write::<T>()?, lse.write()?), &threads)
        })
    };
    py.detach(run).map_err(failed)
}

/// The gradients of [`gat`]: of source, target, target vectors, source vectors and
/// of the edges' bias.
#[pyfunction]
#[allow(clippy::type_complexity)]
pub fn gat_backward(
    py: Python<'_>,
    on: &Adjacency,
    numbers: Numbers,
    given: (Raw, Option<Raw>, Raw, Raw, f64),
    of: (OfEdges, Past),
    grads: (Raw, Option<Raw>, Raw, Raw, Option<Raw>, usize),
) -> PyResult<()> {
    let (edges, past) = of;
    let (source, target, target_vectors, source_vectors, bias, count) = grads;
    let run = || -> Result<()> {
        with_numbers!(numbers, T => {
            let threads = threads(count)?;
            let gat = gat_of::<T>(on.attended(&edges, &threads)?, given, &edges)?;
            let past = on.past::<T>((&edges, bias.is_some()), past, &threads)?;
            let grads = GatGrads {
                source: source.write::<T>()?,
                target: some(target)?,
                target_vectors: target_vectors.write()?,
                source_vectors: source_vectors.write()?,
                edge_vectors: None,
                features: None,
                bias: some(bias)?,
            };
            gat.backward(isa(), &past, grads, &threads)
        })
    };
    py.detach(run).map_err(failed)
}

/// GATv2: `y` and `lse` from `target`, `source`, the vectors and the slope.
#[pyfunction]
pub fn gatv2(
    py: Python<'_>,
    on: &Adjacency,
    numbers: Numbers,
    given: (Raw, Raw, Raw, f64),
    edges: OfEdges,
    tensors: (Raw, Raw, usize),
) -> PyResult<()> {
    let (y, lse, count) = tensors;
    let run = || -> Result<()> {
        with_numbers!(numbers, T => {
            let threads = threads(count)?;
            let gat = gatv2_of::<T>(on.attended(&edges, &threads)?, given, &edges)?;
            gat.forward(isa(), (y.write::<T>()?, lse.write()?), &threads)
        })
    };
    py.detach(run).map_err(failed)
}

/// The gradients of [`gatv2`]: of target, source, vectors and the edges' features.
#[pyfunction]
pub fn gatv2_backward(
    py: Python<'_>,
    on: &Adjacency,
    numbers: Numbers,
    given: (Raw, Raw, Raw, f64),
    of: (OfEdges, Past),
    grads: (Raw, Raw, Raw, Option<Raw>, usize),
) -> PyResult<()> {
    let (edges, past) = of;
    let (target, source, vectors, features, count) = grads;
    let run = || -> Result<()> {
        with_numbers!(numbers, T => {
            let threads = threads(count)?;
            let gat = gatv2_of::<T>(on.attended(&edges, &threads)?, given, &edges)?;
            let past = on.past::<T>((&edges, false), past, &threads)?;
            let grads = GatV2Grads {
                target: target.write::<T>()?,
                source: source.write::<T>()?,
                vectors: vectors.write()?,
                features: some(features)?,
                bias: None,
            };
            gat.backward(isa(), &past, grads, &threads)
        })
    };
    py.detach(run).map_err(failed)
}

/// Dot products: `y` and `lse` from queries, keys, values, the number of heads and the scale.
#[pyfunction]
pub fn dot_attention(
    py: Python<'_>,
    on: &Adjacency,
    numbers: Numbers,
    given: (Raw, Raw, Raw, usize, f64),
    edges: OfEdges,
    tensors: (Raw, Raw, usize),
) -> PyResult<()> {
    let (y, lse, count) = tensors;
    let run = || -> Result<()> {
        with_numbers!(numbers, T => {
            let threads = threads(count)?;
            let dot = dot_of::<T>(on.attended(&edges, &threads)?, given, &edges)?;
            dot.forward(isa(), (y.write::<T>()?, lse.write()?), &threads)
        })
    };
    py.detach(run).map_err(failed)
}

/// The gradients of [`dot_attention`]: of queries, keys, values and features.
#[pyfunction]
pub fn dot_attention_backward(
    py: Python<'_>,
    on: &Adjacency,
    numbers: Numbers,
    given: (Raw, Raw, Raw, usize, f64),
    of: (OfEdges, Past),
    grads: (Raw, Raw, Raw, Option<Raw>, usize),
) -> PyResult<()> {
    let (edges, past) = of;
    let (queries, keys, values, features, count) = grads;
    let run = || -> Result<()> {
        with_numbers!(numbers, T => {
            let threads = threads(count)?;
            let dot = dot_of::<T>(on.attended(&edges, &threads)?, given, &edges)?;
            let past = on.past::<T>((&edges, false), past, &threads)?;
            let grads = DotAttentionGrads {
                queries: queries.write::<T>()?,
                keys: keys.write::<T>()?,
                values: values.write::<T>()?,
                features: some(features)?,
                bias: None,
            };
            dot.backward(isa(), &past, grads, &threads)
        })
    };
    py.detach(run).map_err(failed)
}

impl Adjacency {
    /// The matrix, its entries told apart where they differ.
    fn attended(&self, edges: &OfEdges, threads: &Threads) -> Result<CsrView<'_>> {
        match edges.told_apart() {
            true => Ok(self.side(false, threads)?.view()),
            false => Ok(self.csr().view()),
        }
    }

    fn past<'a, T: Stored + Plain>(
        &'a self,
        (edges, graded): (&OfEdges, bool),
        (y, lse, grad): Past,
        threads: &Threads,
    ) -> Result<Given<'a, T>>
    where
        T::Sum: Plain,
    {
        let transpose = match edges.told_apart() || graded {
            true => self.side(true, threads)?,
            false => self.pattern(true, threads),
        };
        let transpose = transpose.view();
        Ok(Given { transpose, y: y.read()?, lse: lse.read()?, grad: grad.read()? })
    }
}

fn some<'a, T: Stored + Plain>(raw: Option<Raw>) -> Result<Option<MatMut<'a, T>>> {
    raw.map(|raw| raw.write()).transpose()
}

fn gat_of<'a, T: Stored + Plain>(
    a: CsrView<'a>,
    (source, target, target_vectors, source_vectors, slope): (Raw, Option<Raw>, Raw, Raw, f64),
    edges: &OfEdges,
) -> Result<Gat<'a, T>>
where
    T::Sum: Plain,
{
    let vectors = [target_vectors.read()?, source_vectors.read()?];
    let mut gat = Gat::new(a, source.read::<T>()?, vectors, slope)?;
    if let Some(target) = target {
        gat = gat.with_target(target.read::<T>()?)?;
    }
    if let Some(bias) = edges.1 {
        gat = gat.with_bias(bias.read::<T::Sum>()?)?;
    }
    match edges.dropout()? {
        Some(dropout) => gat.with_dropout(dropout),
        None => Ok(gat),
    }
}

fn gatv2_of<'a, T: Stored + Plain>(
    a: CsrView<'a>,
    (target, source, vectors, slope): (Raw, Raw, Raw, f64),
    edges: &OfEdges,
) -> Result<GatV2<'a, T>>
where
    T::Sum: Plain,
{
    let vectors: Mat<'a, T::Sum> = vectors.read()?;
    let mut gat = GatV2::new(a, [target.read()?, source.read()?], vectors, slope)?;
    if let Some(features) = edges.0 {
        gat = gat.with_features(features.read::<T>()?)?;
    }
    match edges.dropout()? {
        Some(dropout) => gat.with_dropout(dropout),
        None => Ok(gat),
    }
}

fn dot_of<'a, T: Stored + Plain>(
    a: CsrView<'a>,
    (queries, keys, values, heads, scale): (Raw, Raw, Raw, usize, f64),
    edges: &OfEdges,
) -> Result<DotAttention<'a, T>> {
    let rows = [queries.read()?, keys.read()?, values.read()?];
    let mut dot = DotAttention::new(a, rows, heads, scale)?;
    if let Some(features) = edges.0 {
        dot = dot.with_features(features.read::<T>()?)?;
    }
    match edges.dropout()? {
        Some(dropout) => dot.with_dropout(dropout),
        None => Ok(dot),
    }
}
