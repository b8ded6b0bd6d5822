//! `matmul` and `addmm`: `y = x·w`, and `y = x·w + b` as a linear layer has it. Along columns the
//! transposed form, `y = xᵀ·z`, which sums over the nodes: the gradient of a layer's weights.

use lacis_core::reference::{Form as Transposed, matmul};
use lacis_core::{DType, Dense, Element, Result, Threads};
use lacis_kernels::profile::Point;
use lacis_kernels::{Isa, Real, Stored, gemm};

use super::numbers::Numbers;
use super::sample::{off, spread};
use super::{Form, Operation, Problem, Sample, Setting, Volume, by_dtype};

const ALONG_NODES: Form = Form { axis: 1, ..Form::PLAIN };

pub(super) const MATMUL: Operation = Operation {
    id: "matmul",
    about: "dense times dense: one row per node, times weights",
    unit: "row",
    wide: true,
    tuned: true,
    forms: &[Form::PLAIN, ALONG_NODES],
    outer: &[0, 32],
    prepare: |setting| by_dtype!(setting, Product, Bias::Absent),
};

pub(super) const ADDMM: Operation = Operation {
    id: "addmm",
    about: "dense times dense and a bias: a linear layer",
    forms: &[Form::PLAIN],
    prepare: |setting| by_dtype!(setting, Product, Bias::Present),
    ..MATMUL
};

#[derive(Clone, Copy, PartialEq)]
enum Bias {
    Absent,
    Present,
}

struct Product<'a, T: Stored> {
    form: Transposed,
    x: Dense<T>,
    z: Dense<T>,
    bias: Option<Vec<T::Sum>>,
    y: Dense<T>,
    threads: &'a Threads,
}

impl<'a, T: Stored> Product<'a, T> {
    fn new(setting: &Setting<'a>, bias: Bias) -> Result<Self> {
        let (nodes, k, n) = (setting.graph.n_rows(), setting.k, setting.outer());
        let (form, right, out) = match setting.form.axis {
            0 => (Transposed::Nn, k, nodes),
            _ => (Transposed::Tn, nodes, k),
        };
        let numbers = || Numbers("bias").vector(n).into_iter().map(|b| T::Sum::of(f64::from(b)));
        Ok(Product {
            form,
            x: setting.x(nodes, k)?,
            z: Numbers("w").matrix(right, n)?,
            bias: (bias == Bias::Present).then(|| numbers().collect()),
            y: Dense::try_zeros(out, n)?,
            threads: setting.threads,
        })
    }
}

impl<T: Stored> Problem for Product<'_, T> {
    fn point(&self) -> Point {
        let (nodes, k) = (self.x.n_rows(), self.x.n_cols());
        let axis = usize::from(self.form == Transposed::Tn);
        let point = Point::sparse([nodes, nodes, nodes], k, T::DTYPE);
        Point { reduce: None, axis, n: self.z.n_cols(), ..point }
    }

    fn volume(&self) -> Volume {
        let sizes = [(self.x.n_rows(), self.x.n_cols()), (self.z.n_rows(), self.z.n_cols())];
        let out = self.y.n_rows() * self.y.n_cols();
        let numbers = sizes.iter().map(|(rows, cols)| rows * cols).sum::<usize>() + out;
        let products = self.x.n_rows() * self.x.n_cols() * self.z.n_cols();
        Volume { bytes: (numbers * size_of::<T>()) as f64, flops: 2.0 * products as f64 }
    }

    fn accepts(&self, kernel: usize) -> bool {
        gemm::KERNELS[kernel].takes(self.form)
    }

    fn run(&mut self, kernel: usize, isa: Isa) -> Result<()> {
        let args = gemm::Args::new(self.form, &self.x, &self.z)?;
        let args = self.bias.as_ref().map_or(Ok(args), |bias| args.biased(bias))?;
        gemm::KERNELS[kernel].run(isa, &args, &mut self.y, self.threads)
    }

    fn sample(&self) -> Result<Sample> {
        let (inner, n) = match self.form {
            Transposed::Tn => (self.x.n_rows(), self.z.n_cols()),
            _ => (self.x.n_cols(), self.z.n_cols()),
        };
        let rows = spread(self.y.n_rows(), inner * n);
        let product = |magnitudes: bool| -> Result<Dense<f64>> {
            let of = |x: f64| if magnitudes { x.abs() } else { x };
            let mut sum = Dense::<f64>::zeros(rows.len(), n);
            // In pieces of the inner size, so that copies in f64 stay small.
            for start in (0..inner).step_by(4096) {
                let len = 4096.min(inner - start);
                let x = Dense::from_fn(rows.len(), len, |s, c| match self.form {
                    Transposed::Tn => of(self.x.at(start + c, rows[s])),
                    _ => of(self.x.at(rows[s], start + c)),
                });
                let z = Dense::from_fn(len, n, |c, j| of(self.z.at(start + c, j)));
                let part = matmul(&x, &z, Transposed::Nn)?;
                sum = Dense::from_fn(rows.len(), n, |s, j| sum.at(s, j) + part.at(s, j));
            }
            let bias = |j: usize| self.bias.as_ref().map_or(0.0, |b| of(b[j].to_f64()));
            Ok(Dense::from_fn(rows.len(), n, |s, j| sum.at(s, j) + bias(j)))
        };
        let (truth, magnitudes) = (product(false)?, product(true)?);
        let tolerance = off(|_| inner, &magnitudes, T::DTYPE);
        Ok(Sample { rows, truth, tolerance })
    }

    fn rows(&self, rows: &[usize]) -> Dense<f64> {
        Dense::from_fn(rows.len(), self.y.n_cols(), |s, j| self.y.at(rows[s], j))
    }
}
