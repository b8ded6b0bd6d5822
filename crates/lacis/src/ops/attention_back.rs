//! The gradient of GAT's attention: `attention` along columns, as sums go from targets to sources.

use lacis_core::reference::{Gat as TrueGat, PerEdge};
use lacis_core::{Csr, DType, Dense, Error, Result, Threads};
use lacis_kernels::attention::{Gat, GatGrads, Given};
use lacis_kernels::profile::Point;
use lacis_kernels::{Isa, MatMut};

use super::attention::{SLOPE, heads_for, point};
use super::numbers::Numbers;
use super::sample::off;
use super::{Problem, Sample, Setting, Volume};

/// Entries times columns up to which the reference is worth waiting for.
const CHECKED: usize = 1 << 23;

pub(super) struct Back<'a> {
    a: &'a Csr,
    transpose: Csr,
    x: Dense,
    vectors: [Dense; 2],
    y: Dense,
    lse: Dense,
    grad: Dense,
    dx: Dense,
    grads: [Dense; 2],
    threads: &'a Threads,
}

impl<'a> Back<'a> {
    pub(super) fn new(setting: &Setting<'a>) -> Result<Self> {
        let Setting { graph: a, k, threads, .. } = *setting;
        if setting.form.dtype != DType::F32 || a.n_rows() != a.n_cols() {
            let problem = "goes back among the nodes of one square graph, in f32";
            return Err(Error::argument("attention", problem));
        }
        let heads = heads_for(k);
        let [t, u] = ["target", "source"].map(|name| Numbers(name).matrix(heads, k / heads));
        let (n, empty) = (a.n_rows(), || Dense::try_zeros(heads, k / heads));
        let mut back = Back {
            a,
            transpose: a.transpose(threads),
            x: Numbers("x").matrix(n, k)?,
            vectors: [t?, u?],
            y: Dense::try_zeros(n, k)?,
            lse: Dense::try_zeros(n, Gat::<f32>::kept_columns(heads, k / heads))?,
            grad: Numbers("gradient").matrix(n, k)?,
            dx: Dense::try_zeros(n, k)?,
            grads: [empty()?, empty()?],
            threads,
        };
        let Back { x, vectors: [t, u], y, lse, .. } = &mut back;
        let gat = Gat::new(a.view(), &*x, [(&*t).into(), (&*u).into()], SLOPE)?;
        gat.forward(Isa::best(), (y, lse), threads)?;
        Ok(back)
    }
}

impl Problem for Back<'_> {
    fn point(&self) -> Point {
        Point { axis: 1, ..point(self.a, self.x.n_cols()) }
    }

    fn volume(&self) -> Volume {
        let row = self.x.n_cols() * size_of::<f32>();
        let bytes = self.a.nnz() * (row + 4) + 5 * self.a.n_rows() * row;
        Volume { bytes: bytes as f64, flops: (6 * self.a.nnz() * self.x.n_cols()) as f64 }
    }

    fn run(&mut self, _: usize, isa: Isa) -> Result<()> {
        let [t, u] = &self.vectors;
        let gat = Gat::new(self.a.view(), &self.x, [t.into(), u.into()], SLOPE)?;
        let given = Given {
            transpose: self.transpose.view(),
            y: (&self.y).into(),
            lse: (&self.lse).into(),
            grad: (&self.grad).into(),
        };
        let [dt, du] = &mut self.grads;
        let grads = GatGrads {
            source: MatMut::from(&mut self.dx),
            target: None,
            target_vectors: dt.into(),
            source_vectors: du.into(),
            edge_vectors: None,
            features: None,
            bias: None,
        };
        gat.backward(isa, &given, grads, self.threads)
    }

    fn sample(&self) -> Result<Sample> {
        let (n, k) = (self.x.n_rows(), self.x.n_cols());
        if self.a.nnz() * k > CHECKED {
            let problem = format!("is checked up to {CHECKED} entries times columns");
            return Err(Error::argument("the gradient of attention", problem));
        }
        let [x, t, u] = [&self.x, &self.vectors[0], &self.vectors[1]].map(|m| m.cast::<f64>());
        let gat = TrueGat {
            target: &x,
            source: &x,
            target_vectors: &t,
            source_vectors: &u,
            edge_vectors: None,
            edges: PerEdge::default(),
            slope: SLOPE,
        };
        let grads = gat.backward(self.a, &self.grad.cast::<f64>())?;
        // The nodes are targets and sources.
        let truth = Dense::from_fn(n, k, |i, j| grads.target.at(i, j) + grads.source.at(i, j));
        let ends = Dense::from_fn(n, k, |i, _| {
            4.0 + self.transpose.row(i).len() as f64 + self.a.row(i).len() as f64
        });
        let tolerance = off(|i| self.transpose.row(i).len() + 4 * k, &ends, DType::F32);
        Ok(Sample { rows: (0..n).collect(), truth, tolerance })
    }

    fn rows(&self, rows: &[usize]) -> Dense<f64> {
        Dense::from_fn(rows.len(), self.dx.n_cols(), |s, j| self.dx.at(rows[s], j))
    }
}
