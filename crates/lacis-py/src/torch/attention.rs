//! Attention over edges for torch: GAT, GATv2 and dot products, forward and backward.

use lacis::kernels::attention::Given;
use lacis::kernels::attention::{
    DotAttention, DotAttentionGrads, DotGiven, Gat, GatGrads, GatV2, GatV2Grads,
};
use lacis::kernels::dropout::Dropout;
use lacis::kernels::{Mat, MatMut, Stored};
use lacis::{Csr, CsrView, Result, Rng, Threads};
use pyo3::prelude::*;

use super::adjacency::Adjacency;
use super::call::Call;
use super::convert::{Number, Plain, Raw};
use super::isa;

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

/// The result, what the forward leaves for the backward, the gradient of the result, and what was
/// added to the result's rows since.
type Past = (Raw, Raw, Raw, Option<Raw>);

/// What GAT is computed from: rows of sources, of targets where they are others, the vectors of
/// both, and the slope.
#[derive(Clone, Copy, Debug, FromPyObject)]
pub struct OfGat(Raw, Option<Raw>, Raw, Raw, f64);

/// What it is computed from, the edges, `y` and `lse`.
#[derive(Clone, Copy, Debug, FromPyObject)]
pub struct GatCall(OfGat, OfEdges, Raw, Raw);

impl Call<Adjacency> for GatCall {
    fn run<T: Number>(self, on: &Adjacency, threads: &Threads) -> Result<()> {
        let GatCall(given, edges, y, lse) = self;
        let gat = given.on::<T>(on.attended(&edges, threads)?, &edges)?;
        gat.forward(isa(), (y.write::<T>()?, lse.write()?), threads)
    }
}

/// What it was computed from, the edges, the past; gradients of source, target, target vectors,
/// source vectors and of the edges' bias.
#[derive(Clone, Copy, Debug, FromPyObject)]
pub struct GatBackward(OfGat, OfEdges, Past, (Raw, Option<Raw>, Raw, Raw, Option<Raw>));

impl Call<Adjacency> for GatBackward {
    fn run<T: Number>(self, on: &Adjacency, threads: &Threads) -> Result<()> {
        let GatBackward(given, edges, past, grads) = self;
        let (source, target, target_vectors, source_vectors, bias) = grads;
        let gat = given.on::<T>(on.attended(&edges, threads)?, &edges)?;
        let past = on.past::<T>((&edges, bias.is_some()), past, threads)?;
        let grads = GatGrads {
            source: source.write::<T>()?,
            target: some(target)?,
            target_vectors: target_vectors.write()?,
            source_vectors: source_vectors.write()?,
            edge_vectors: None,
            features: None,
            bias: some(bias)?,
        };
        gat.backward(isa(), &past, grads, threads)
    }
}

/// What GATv2 is computed from: rows of targets and sources, the vectors, and the slope.
#[derive(Clone, Copy, Debug, FromPyObject)]
pub struct OfGatV2(Raw, Raw, Raw, f64);

/// What it is computed from, the edges, `y` and `lse`.
#[derive(Clone, Copy, Debug, FromPyObject)]
pub struct GatV2Call(OfGatV2, OfEdges, Raw, Raw);

impl Call<Adjacency> for GatV2Call {
    fn run<T: Number>(self, on: &Adjacency, threads: &Threads) -> Result<()> {
        let GatV2Call(given, edges, y, lse) = self;
        let gat = given.on::<T>(on.attended(&edges, threads)?, &edges)?;
        gat.forward(isa(), (y.write::<T>()?, lse.write()?), threads)
    }
}

/// What it was computed from, the edges, the past; gradients of target, source, vectors and of the
/// edges' features.
#[derive(Clone, Copy, Debug, FromPyObject)]
pub struct GatV2Backward(OfGatV2, OfEdges, Past, (Raw, Raw, Raw, Option<Raw>));

impl Call<Adjacency> for GatV2Backward {
    fn run<T: Number>(self, on: &Adjacency, threads: &Threads) -> Result<()> {
        let GatV2Backward(given, edges, past, (target, source, vectors, features)) = self;
        let gat = given.on::<T>(on.attended(&edges, threads)?, &edges)?;
        let past = on.past::<T>((&edges, false), past, threads)?;
        let grads = GatV2Grads {
            target: target.write::<T>()?,
            source: source.write::<T>()?,
            vectors: vectors.write()?,
            features: some(features)?,
            bias: None,
        };
        gat.backward(isa(), &past, grads, threads)
    }
}

/// What attention by dot products is computed from: queries, how many heads, and the scale.
#[derive(Clone, Copy, Debug, FromPyObject)]
pub struct OfDot(Raw, usize, f64);

/// What it is computed from, keys and values, the edges, `y` and `lse`.
#[derive(Clone, Copy, Debug, FromPyObject)]
pub struct DotCall(OfDot, (Raw, Raw), OfEdges, Raw, Raw);

impl Call<Adjacency> for DotCall {
    fn run<T: Number>(self, on: &Adjacency, threads: &Threads) -> Result<()> {
        let DotCall(given, (keys, values), edges, y, lse) = self;
        let dot = given.on::<T>(on.attended(&edges, threads)?, values.cols(), &edges)?;
        let ends = [keys.read()?, values.read()?];
        dot.forward(isa(), ends, (y.write::<T>()?, lse.write()?), threads)
    }
}

/// What it was computed from, the edges, `lse` and the gradient of the result; the gradient of
/// queries, keys and values side by side, which become theirs, and the gradient of the edges'
/// features.
#[derive(Clone, Copy, Debug, FromPyObject)]
pub struct DotBackward(OfDot, OfEdges, (Raw, Raw), (Raw, Raw, Option<Raw>));

impl Call<Adjacency> for DotBackward {
    fn run<T: Number>(self, on: &Adjacency, threads: &Threads) -> Result<()> {
        let DotBackward(given, edges, (lse, grad), (queries, ends, features)) = self;
        let dot = given.on::<T>(on.attended(&edges, threads)?, grad.cols(), &edges)?;
        let transpose = on.transposed(&edges, false, threads)?.view();
        let given = DotGiven { transpose, lse: lse.read()?, grad: grad.read()? };
        let grads = DotAttentionGrads {
            queries: queries.write::<T>()?,
            ends: ends.write::<T>()?,
            features: some(features)?,
            bias: None,
        };
        dot.backward(isa(), &given, grads, threads)
    }
}

impl Adjacency {
    /// The matrix, its entries told apart where they differ.
    fn attended(&self, edges: &OfEdges, threads: &Threads) -> Result<CsrView<'_>> {
        match edges.told_apart() {
            true => Ok(self.side(false, threads)?.view()),
            false => Ok(self.csr().view()),
        }
    }

    /// The transposed matrix, likewise.
    fn transposed(&self, edges: &OfEdges, graded: bool, threads: &Threads) -> Result<&Csr> {
        match edges.told_apart() || graded {
            true => self.side(true, threads),
            false => Ok(self.pattern(true, threads)),
        }
    }

    fn past<'a, T: Number>(
        &'a self,
        (edges, graded): (&OfEdges, bool),
        (y, lse, grad, bias): Past,
        threads: &Threads,
    ) -> Result<Given<'a, T>> {
        let transpose = self.transposed(edges, graded, threads)?.view();
        let bias = bias.map(|bias| bias.read::<T::Sum>()).transpose()?;
        Ok(Given { transpose, y: y.read()?, bias, lse: lse.read()?, grad: grad.read()? })
    }
}

fn some<'a, T: Stored + Plain>(raw: Option<Raw>) -> Result<Option<MatMut<'a, T>>> {
    raw.map(|raw| raw.write()).transpose()
}

impl OfGat {
    fn on<'a, T: Number>(self, a: CsrView<'a>, edges: &OfEdges) -> Result<Gat<'a, T>> {
        let OfGat(source, target, target_vectors, source_vectors, slope) = self;
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
}

impl OfGatV2 {
    fn on<'a, T: Number>(self, a: CsrView<'a>, edges: &OfEdges) -> Result<GatV2<'a, T>> {
        let OfGatV2(target, source, vectors, slope) = self;
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
}

impl OfDot {
    fn on<'a, T: Number>(
        self,
        a: CsrView<'a>,
        width: usize,
        edges: &OfEdges,
    ) -> Result<DotAttention<'a, T>> {
        let OfDot(queries, heads, scale) = self;
        let mut dot = DotAttention::new(a, queries.read::<T>()?, width, heads, scale)?;
        if let Some(features) = edges.0 {
            dot = dot.with_features(features.read::<T>()?)?;
        }
        match edges.dropout()? {
            Some(dropout) => dot.with_dropout(dropout),
            None => Ok(dot),
        }
    }
}
