//! The gradient of GAT's attention: `attention` along columns, as sums go from targets to sources.

use lacis_core::reference::{Gat as TrueGat, PerEdge};
use lacis_core::{Csr, DType, Dense, Error, Result, Threads};
use lacis_kernels::attention::{Gat, GatGrads, Given};
use lacis_kernels::profile::Point;
use lacis_kernels::{Isa, MatMut};

use super::attention::{SLOPE, heads_for, point};
use super::numbers::Numbers;
use super::sample::{MOST_PRODUCTS, off, spread};
use super::spmm::picked;
use super::{Problem, Sample, Setting, Volume};

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

    /// Nodes to look at, in their order: some between the first and the last, as long as the edges
    /// of all their targets are few; the one with the fewest always.
    fn nodes(&self) -> Vec<usize> {
        let mut left = MOST_PRODUCTS;
        let edges_of = |j: &usize| {
            let targets = self.transpose.row_cols(*j).iter().map(|i| *i as usize);
            targets.chain([*j]).map(|i| self.a.row(i).len() + 1).sum::<usize>()
        };
        let mut nodes = spread(self.a.n_rows(), 1);
        let fewest = nodes.iter().copied().min_by_key(edges_of);
        nodes.retain(|j| {
            let products = edges_of(j) * self.x.n_cols();
            let taken = products <= left || Some(*j) == fewest;
            left -= if taken { products.min(left) } else { 0 };
            taken
        });
        nodes
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
            bias: None,
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
        let k = self.x.n_cols();
        let nodes = self.nodes();
        // All that has a share in the gradient of a node: its own edges, and those of its targets.
        let targets = nodes.iter().flat_map(|&j| self.transpose.row_cols(j)).map(|i| *i as usize);
        let mut rows: Vec<usize> = targets.chain(nodes.iter().copied()).collect();
        rows.sort_unstable();
        rows.dedup();
        let (part, source) = picked(self.a, &self.x, &rows)?;
        let some = |of: &Dense| Dense::from_fn(rows.len(), k, |s, j| of.at(rows[s], j));
        let [t, u] = self.vectors.each_ref().map(|m| m.cast::<f64>());
        let gat = TrueGat {
            target: &some(&self.x),
            source: &source,
            target_vectors: &t,
            source_vectors: &u,
            edge_vectors: None,
            edges: PerEdge::default(),
            slope: SLOPE,
        };
        let grads = gat.backward(&part, &some(&self.grad))?;
        let mut truth = Dense::from_fn(nodes.len(), k, |s, j| {
            grads.target.at(rows.partition_point(|i| *i < nodes[s]), j)
        });
        // The source of each entry is a row of its own.
        let sources = rows.iter().flat_map(|&i| self.a.row_cols(i)).enumerate();
        for (e, source) in sources {
            if let Ok(s) = nodes.binary_search(&(*source as usize)) {
                let more = grads.source.row(e);
                truth.row_mut(s).iter_mut().zip(more).for_each(|(x, more)| *x += more);
            }
        }
        let degrees = |s: usize| [&self.transpose, self.a].map(|a| a.row(nodes[s]).len());
        let ends =
            Dense::from_fn(nodes.len(), k, |s, _| 4.0 + degrees(s).iter().sum::<usize>() as f64);
        let tolerance = off(|s| degrees(s)[0] + 4 * k, &ends, DType::F32);
        Ok(Sample { rows: nodes, truth, tolerance })
    }

    fn rows(&self, rows: &[usize]) -> Dense<f64> {
        Dense::from_fn(rows.len(), self.dx.n_cols(), |s, j| self.dx.at(rows[s], j))
    }
}
