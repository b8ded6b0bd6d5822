//! `spmm`: `y_i = reduce_j (a_ij · x_j)`.

use lacis_core::reference::{Reduce, Spmm};
use lacis_core::{Csr, CsrParts, DType, Dense, Result, RowPtr, Threads};
use lacis_kernels::profile::Point;
use lacis_kernels::{Isa, probe, spmm};

use super::numbers::Numbers;
use super::sample::rows_of;
use super::{Form, Operation, Problem, Sample, Setting, Volume};

pub(super) const OPERATION: Operation = Operation {
    id: "spmm",
    about: "sparse times dense: a node's neighbours' rows become one",
    unit: "entry",
    forms: &[Form::PLAIN, Form::WEIGHTED, Form::reducing(Reduce::Max)],
    prepare: |setting| Ok(Box::new(Product::new(setting)?)),
};

struct Product<'a> {
    a: Csr,
    x: Dense,
    y: Dense,
    reduce: Reduce,
    threads: &'a Threads,
}

impl<'a> Product<'a> {
    fn new(setting: &Setting<'a>) -> Result<Self> {
        setting.single_precision("spmm")?;
        let a = setting.matrix()?;
        let x = Numbers("x").matrix(a.n_cols(), setting.k)?;
        let y = Dense::try_zeros(a.n_rows(), setting.k)?;
        Ok(Product { a, x, y, reduce: setting.form.reduce, threads: setting.threads })
    }
}

impl Problem for Product<'_> {
    fn point(&self) -> Point {
        let shape = [self.a.n_rows(), self.a.n_cols(), self.a.nnz()];
        let weighted = self.a.values().is_some();
        let reduce = Some(self.reduce);
        Point { weighted, reduce, ..Point::sparse(shape, self.x.n_cols(), DType::F32) }
    }

    fn volume(&self) -> Volume {
        let weighted = usize::from(self.a.values().is_some());
        let row = 4 * self.x.n_cols();
        let entries = self.a.nnz() * (row + 4 + 4 * weighted);
        let bytes = (entries + self.a.n_rows() * (row + 4)) as f64;
        Volume { bytes, flops: (self.a.nnz() * self.x.n_cols() * (1 + weighted)) as f64 }
    }

    fn run(&mut self, kernel: usize, isa: Isa) -> Result<()> {
        let args = spmm::Args::new(self.a.view(), &self.x, self.reduce)?;
        spmm::KERNELS[kernel].run(isa, &args, &mut self.y, self.threads)
    }

    fn sample(&self) -> Result<Sample> {
        let rows = rows_of(&self.a, self.x.n_cols());
        let (part, x) = picked(&self.a, &self.x, &rows)?;
        let truth = Spmm::new(self.reduce).forward(&part, &x)?;
        let tolerance = tolerance(&part, &x, self.reduce, &truth)?;
        Ok(Sample { rows, truth, tolerance })
    }

    fn rows(&self, rows: &[usize]) -> Dense<f64> {
        Dense::from_fn(rows.len(), self.y.n_cols(), |s, j| self.y.at(rows[s], j))
    }

    fn plain(&mut self, isa: Isa) -> Result<bool> {
        if self.reduce == Reduce::Sum {
            let (x, y) = ((&self.x).into(), (&mut self.y).into());
            probe::plain(isa, self.a.view(), x, y, self.threads)?;
        }
        Ok(self.reduce == Reduce::Sum)
    }

    fn roof(&mut self, isa: Isa) -> Result<bool> {
        let (x, y) = ((&self.x).into(), (&mut self.y).into());
        probe::replay(isa, self.a.view(), x, y, self.threads)?;
        Ok(true)
    }
}

/// Some rows of a matrix, and the rows of `x` that their entries name, one for each entry.
fn picked(a: &Csr, x: &Dense, rows: &[usize]) -> Result<(Csr, Dense<f64>)> {
    let view = a.view();
    let entries: Vec<usize> = rows.iter().flat_map(|&i| view.row(i)).collect();
    let ends = rows.iter().scan(0, |end, &i| {
        *end += view.row(i).len() as u64;
        Some(*end)
    });
    let row_ptr: Vec<u64> = std::iter::once(0).chain(ends).collect();
    let values = view.values.map(|v| entries.iter().map(|&e| v[e]).collect::<Vec<f32>>().into());
    let parts = CsrParts {
        n_cols: entries.len(),
        row_ptr: RowPtr::Wide(row_ptr.into()),
        cols: (0..entries.len() as u32).collect::<Vec<_>>().into(),
        values,
        order: None,
    };
    let row = |e: usize, j: usize| x.at(view.cols[entries[e]] as usize, j);
    Ok((Csr::new(parts, &Threads::one())?, Dense::from_fn(entries.len(), x.n_cols(), row)))
}

/// An epsilon of the sum of magnitudes for every addition, and a few for the rest.
fn tolerance(a: &Csr, x: &Dense<f64>, reduce: Reduce, truth: &Dense<f64>) -> Result<Dense<f64>> {
    let magnitudes = match reduce {
        Reduce::Sum | Reduce::Mean => {
            let values = a.values().map(|v| v.iter().map(|v| v.abs()).collect::<Vec<_>>().into());
            let positive = Dense::from_fn(x.n_rows(), x.n_cols(), |i, j| x.at(i, j).abs());
            Spmm::new(reduce).forward(&a.clone().with_values(values)?, &positive)?
        }
        _ => Dense::from_fn(truth.n_rows(), truth.n_cols(), |i, j| truth.at(i, j).abs()),
    };
    let off = |i: usize, j: usize| {
        (a.row(i).len() as f64 + 8.0) * f64::from(f32::EPSILON) * magnitudes.at(i, j)
    };
    Ok(Dense::from_fn(truth.n_rows(), truth.n_cols(), off))
}
