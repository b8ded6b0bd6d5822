//! `attention`: GAT's, scores and softmax and sum in one; eight heads where they divide k.

use lacis_core::reference::{Gat as TrueGat, PerEdge};
use lacis_core::{Csr, DType, Dense, Error, Result, Threads};
use lacis_kernels::attention::Gat;
use lacis_kernels::profile::Point;
use lacis_kernels::{Isa, Stored, roof};

use super::numbers::Numbers;
use super::sample::{off, rows_of};
use super::spmm::picked;
use super::{Form, Operation, Problem, Sample, Setting, Volume, in_single, single};

pub(super) const OPERATION: Operation = Operation {
    id: "attention",
    about: "GAT's attention, forward: softmax over a node's edges and the weighted sum",
    unit: "entry",
    wide: true,
    tuned: true,
    forms: &[Form::PLAIN],
    outer: &[],
    prepare: |setting| in_single!(setting, Attention),
};

/// The LeakyReLU's slope below 0.
const SLOPE: f64 = 0.2;

struct Attention<'a, T: Stored> {
    a: &'a Csr,
    x: Dense<T>,
    vectors: [Dense<T::Sum>; 2],
    y: Dense<T>,
    lse: Dense<T::Sum>,
    threads: &'a Threads,
}

impl<'a, T: Stored> Attention<'a, T> {
    fn new(setting: &Setting<'a>) -> Result<Self> {
        let (a, k) = (setting.graph, setting.k);
        if a.n_rows() != a.n_cols() {
            let problem = "attends among the nodes of one square graph";
            return Err(Error::argument("attention", problem));
        }
        let heads = if k.is_multiple_of(8) { 8 } else { 1 };
        let vectors = [Numbers("target"), Numbers("source")];
        let [t, u] = vectors.map(|numbers| numbers.matrix(heads, k / heads));
        Ok(Attention {
            a,
            x: Numbers("x").matrix(a.n_cols(), k)?,
            vectors: [t?, u?],
            y: Dense::try_zeros(a.n_rows(), k)?,
            lse: Dense::try_zeros(a.n_rows(), heads)?,
            threads: setting.threads,
        })
    }
}

impl<T: Stored> Problem for Attention<'_, T> {
    fn point(&self) -> Point {
        let shape = [self.a.n_rows(), self.a.n_cols(), self.a.nnz()];
        Point { reduce: None, ..Point::sparse(shape, self.x.n_cols(), T::DTYPE) }
    }

    fn volume(&self) -> Volume {
        let row = self.x.n_cols() * size_of::<T>();
        let bytes = self.a.nnz() * (row + 4) + self.a.n_rows() * (2 * row + 4);
        Volume { bytes: bytes as f64, flops: (2 * self.a.nnz() * self.x.n_cols()) as f64 }
    }

    fn run(&mut self, _: usize, isa: Isa) -> Result<()> {
        let [t, u] = &self.vectors;
        let gat = Gat::new(self.a.view(), &self.x, [t.into(), u.into()], SLOPE)?;
        gat.forward(isa, (&mut self.y, &mut self.lse), self.threads)
    }

    fn sample(&self) -> Result<Sample> {
        let k = self.x.n_cols();
        let rows = rows_of(self.a, k);
        let (part, source) = picked(self.a, &self.x, &rows)?;
        let target = Dense::from_fn(rows.len(), k, |s, j| self.x.at(rows[s], j));
        let [t, u] = &self.vectors;
        let (t, u) = (t.cast::<f64>(), u.cast::<f64>());
        let attend = |source: &Dense<f64>| {
            TrueGat {
                target: &target,
                source,
                target_vectors: &t,
                source_vectors: &u,
                edge_vectors: None,
                edges: PerEdge::default(),
                slope: SLOPE,
            }
            .forward(&part)
        };
        let truth = attend(&source)?;
        // Coefficients add up to one, features are below one; scores are sums of k products.
        let ones = Dense::from_fn(rows.len(), k, |_, _| 1.0);
        let tolerance = off(|s| part.row(s).len() + 4 * k, &ones, T::DTYPE);
        Ok(Sample { rows, truth, tolerance })
    }

    fn rows(&self, rows: &[usize]) -> Dense<f64> {
        Dense::from_fn(rows.len(), self.y.n_cols(), |s, j| self.y.at(rows[s], j))
    }

    fn roof(&mut self, isa: Isa) -> Result<bool> {
        let Some((x, y)) = single(&self.x, &mut self.y) else { return Ok(false) };
        roof::replay(isa, self.a.view(), x.into(), y.into(), self.threads)?;
        Ok(true)
    }
}
