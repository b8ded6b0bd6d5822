//! `sddmm`, a number for every edge from the rows at its ends, and `edge_softmax`, over the edges
//! of each node.

use lacis_core::reference::{EdgeOp, edge_softmax as true_softmax, sddmm as true_sddmm};
use lacis_core::{Csr, DType, Dense, Element, Graph, Result, Threads};
use lacis_kernels::profile::Point;
use lacis_kernels::{Isa, Stored, edge_softmax, sddmm};

use super::numbers::Numbers;
use super::sample::{off, rows_of, spread};
use super::spmm::picked;
use super::{Form, Operation, Problem, Sample, Setting, Volume, in_single};

pub(super) const SDDMM: Operation = Operation {
    id: "sddmm",
    about: "a number for every edge: the product of the rows at its ends",
    unit: "entry",
    wide: true,
    tuned: true,
    forms: &[Form::PLAIN],
    outer: &[],
    prepare: |setting| in_single!(setting, Dots),
};

pub(super) const EDGE_SOFTMAX: Operation = Operation {
    id: "edge_softmax",
    about: "softmax over the edges of each node, k heads apart",
    unit: "entry",
    wide: true,
    tuned: true,
    forms: &[Form::PLAIN],
    outer: &[],
    prepare: |setting| in_single!(setting, Softmax),
};

struct Dots<'a, T: Stored> {
    a: &'a Csr,
    u: Dense<T>,
    v: Dense<T>,
    out: Dense<T::Sum>,
    threads: &'a Threads,
}

impl<'a, T: Stored> Dots<'a, T> {
    fn new(setting: &Setting<'a>) -> Result<Self> {
        let (a, k) = (setting.graph, setting.k);
        let (u, v) = (Numbers("u").matrix(a.n_rows(), k)?, Numbers("v").matrix(a.n_cols(), k)?);
        Ok(Dots { a, u, v, out: Dense::try_zeros(a.nnz(), 1)?, threads: setting.threads })
    }
}

impl<T: Stored> Problem for Dots<'_, T> {
    fn point(&self) -> Point {
        let shape = [self.a.n_rows(), self.a.n_cols(), self.a.nnz()];
        Point { reduce: None, ..Point::sparse(shape, self.u.n_cols(), T::DTYPE) }
    }

    fn volume(&self) -> Volume {
        let row = self.u.n_cols() * size_of::<T>();
        let bytes = self.a.nnz() * (row + 8) + self.a.n_rows() * (row + 4);
        Volume { bytes: bytes as f64, flops: (2 * self.a.nnz() * self.u.n_cols()) as f64 }
    }

    fn run(&mut self, _: usize, isa: Isa) -> Result<()> {
        let args = sddmm::Args::new(self.a.view(), &self.u, &self.v, EdgeOp::Dot)?;
        sddmm::run(isa, &args, &mut self.out, self.threads)
    }

    fn sample(&self) -> Result<Sample> {
        let k = self.u.n_cols();
        let rows = spread(self.a.nnz(), k);
        let ends: Vec<(usize, usize)> = rows.iter().map(|&e| ends_of(self.a, e)).collect();
        let matching: Vec<(u32, u32)> = (0..rows.len() as u32).map(|s| (s, s)).collect();
        let small = Graph::from_edges(rows.len(), &matching)?;
        let dots = |of: fn(f64) -> f64| {
            let u = Dense::from_fn(rows.len(), k, |s, j| of(self.u.at(ends[s].0, j)));
            let v = Dense::from_fn(rows.len(), k, |s, j| of(self.v.at(ends[s].1, j)));
            true_sddmm(small.adjacency(), &u, &v, EdgeOp::Dot)
        };
        let (truth, magnitudes) = (dots(|x| x)?, dots(f64::abs)?);
        let tolerance = off(|_| k, &magnitudes, T::Sum::DTYPE);
        Ok(Sample { rows, truth, tolerance })
    }

    fn rows(&self, rows: &[usize]) -> Dense<f64> {
        Dense::from_fn(rows.len(), 1, |s, j| self.out.at(rows[s], j))
    }
}

/// Row and column of an entry.
fn ends_of(a: &Csr, e: usize) -> (usize, usize) {
    let (mut low, mut high) = (0, a.n_rows());
    while high - low > 1 {
        let middle = (low + high) / 2;
        if a.row_ptr().at(middle) <= e { low = middle } else { high = middle }
    }
    (low, a.cols()[e] as usize)
}

struct Softmax<'a, T: Stored> {
    a: &'a Csr,
    scores: Dense<T>,
    out: Dense<T>,
    threads: &'a Threads,
}

impl<'a, T: Stored> Softmax<'a, T> {
    fn new(setting: &Setting<'a>) -> Result<Self> {
        let (a, k) = (setting.graph, setting.k);
        let scores = Numbers("scores").matrix(a.nnz(), k)?;
        Ok(Softmax { a, scores, out: Dense::try_zeros(a.nnz(), k)?, threads: setting.threads })
    }
}

impl<T: Stored> Problem for Softmax<'_, T> {
    fn point(&self) -> Point {
        let shape = [self.a.n_rows(), self.a.nnz(), self.a.nnz()];
        Point { reduce: None, ..Point::sparse(shape, self.scores.n_cols(), T::DTYPE) }
    }

    fn volume(&self) -> Volume {
        let numbers = self.a.nnz() * self.scores.n_cols();
        let bytes = 2 * numbers * size_of::<T>() + 4 * self.a.n_rows();
        Volume { bytes: bytes as f64, flops: 4.0 * numbers as f64 }
    }

    fn run(&mut self, _: usize, isa: Isa) -> Result<()> {
        let args = edge_softmax::Args::new(self.a.view(), &self.scores)?;
        edge_softmax::run(isa, &args, &mut self.out, self.threads)
    }

    fn sample(&self) -> Result<Sample> {
        let k = self.scores.n_cols();
        let nodes = rows_of(self.a, k);
        let (part, _) = picked(self.a, &Dense::<f32>::zeros(self.a.n_cols(), 0), &nodes)?;
        let rows: Vec<usize> = nodes.iter().flat_map(|&i| self.a.row(i)).collect();
        let scores = Dense::from_fn(rows.len(), k, |s, j| self.scores.at(rows[s], j));
        let truth = true_softmax(&part, &scores)?;
        let longest = nodes.iter().map(|&i| self.a.row(i).len()).max().unwrap_or(0);
        let tolerance = off(|_| longest, &truth, T::DTYPE);
        Ok(Sample { rows, truth, tolerance })
    }

    fn rows(&self, rows: &[usize]) -> Dense<f64> {
        Dense::from_fn(rows.len(), self.out.n_cols(), |s, j| self.out.at(rows[s], j))
    }
}
