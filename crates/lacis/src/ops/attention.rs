//! `attention`: GAT's, scores and softmax and sum in one. Along columns: its gradient.

use lacis_core::reference::{Gat as TrueGat, PerEdge};
use lacis_core::{Csr, DType, Dense, Error, Result, Threads};
use lacis_kernels::attention::Gat;
use lacis_kernels::profile::Point;
use lacis_kernels::{Isa, Stored, roof};

use super::attention_back::Back;
use super::numbers::Numbers;
use super::sample::{off, rows_of};
use super::spmm::picked;
use super::{Form, Operation, Problem, Sample, Setting, Volume, in_single, single};

pub(super) const OPERATION: Operation = Operation {
    id: "attention",
    about: "GAT's attention: softmax over a node's edges, weighted sum; --axis 1 its gradient",
    unit: "entry",
    wide: true,
    tuned: true,
    forms: &[Form::PLAIN, Form { axis: 1, ..Form::PLAIN }],
    outer: &[],
    prepare: |setting| match setting.form.axis {
        0 => in_single!(setting, Attention),
        _ => Ok(Box::new(Back::new(setting)?)),
    },
};

/// The LeakyReLU's slope below 0.
pub(super) const SLOPE: f64 = 0.2;

/// Eight heads where they divide the columns, fewer where they would have less than four.
pub(super) fn heads_for(k: usize) -> usize {
    [8, 4, 2].into_iter().find(|heads| k.is_multiple_of(*heads) && k / heads >= 4).unwrap_or(1)
}

/// Attention as the profile knows it.
pub(super) fn point(a: &Csr, k: usize) -> Point {
    let shape = [a.n_rows(), a.n_cols(), a.nnz()];
    Point { reduce: None, ..Point::sparse(shape, k, DType::F32) }
}

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
        let heads = heads_for(k);
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
        Point { dtype: T::DTYPE, ..point(self.a, self.x.n_cols()) }
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
