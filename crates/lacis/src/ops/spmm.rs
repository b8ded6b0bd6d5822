//! `spmm`: `y_i = reduce_j (a_ij · x_j)`; `select_reduce`, the same as who has no sparse matrix
//! says it: a row of `x` for every edge, reduced by the edges' targets.

use lacis_core::reference::{Axis, Reduce, Spmm};
use lacis_core::{Csr, CsrParts, DType, Dense, Element, Error, Result, RowPtr, Threads};
use lacis_kernels::profile::{Gathers, Point, gathers};
use lacis_kernels::{Isa, Real, Stored, probe, roof, spmm};

use super::sample::{off, rows_of};
use super::{Form, Operation, Problem, Sample, Setting, Volume, by_dtype, in_single, single};

pub(super) const OPERATION: Operation = Operation {
    id: "spmm",
    about: "sparse times dense: a node's neighbours' rows become one",
    unit: "entry",
    wide: true,
    tuned: true,
    forms: &[Form::PLAIN, Form::WEIGHTED, Form::reducing(Reduce::Max), BF16],
    outer: &[],
    prepare: |setting| by_dtype!(setting, Product),
};

pub(super) const SELECT_REDUCE: Operation = Operation {
    id: "select_reduce",
    about: "rows by the edges' sources, reduced by their targets, in one step",
    forms: &[Form::PLAIN, Form::reducing(Reduce::Max)],
    prepare: |setting| match setting.axis() {
        Axis::Rows => in_single!(setting, Product),
        Axis::Cols => Err(Error::argument("axis", "must be 0: rows are selected and reduced")),
    },
    ..OPERATION
};

const BF16: Form = Form { dtype: DType::Bf16, ..Form::PLAIN };

struct Product<'a, T: Stored> {
    /// With its values, and without: kernels take them apart, in what sums are kept in.
    a: Csr,
    pattern: Csr,
    values: Option<Vec<T::Sum>>,
    x: Dense<T>,
    y: Dense<T>,
    reduce: Reduce,
    gathers: Gathers,
    threads: &'a Threads,
}

impl<'a, T: Stored> Product<'a, T> {
    fn new(setting: &Setting<'a>) -> Result<Self> {
        let a = setting.matrix()?;
        let wide = |v: &[f32]| v.iter().map(|&v| T::Sum::of(f64::from(v))).collect();
        Ok(Product {
            values: a.values().map(wide),
            pattern: a.clone().with_values(None)?,
            x: setting.x(a.n_cols(), setting.k)?,
            y: Dense::try_zeros(a.n_rows(), setting.k)?,
            gathers: gathers(a.view()),
            a,
            reduce: setting.form.reduce,
            threads: setting.threads,
        })
    }
}

impl<T: Stored> Problem for Product<'_, T> {
    fn point(&self) -> Point {
        let shape = [self.a.n_rows(), self.a.n_cols(), self.a.nnz()];
        let (weighted, reduce) = (self.values.is_some(), Some(self.reduce));
        let point = Point::sparse(shape, self.x.n_cols(), T::DTYPE).gathering(self.gathers);
        Point { weighted, reduce, ..point }
    }

    fn volume(&self) -> Volume {
        let weighted = usize::from(self.values.is_some());
        let row = size_of::<T>() * self.x.n_cols();
        let entries = self.a.nnz() * (row + 4 + weighted * size_of::<T::Sum>());
        let bytes = (entries + self.a.n_rows() * (row + 4)) as f64;
        Volume { bytes, flops: (self.a.nnz() * self.x.n_cols() * (1 + weighted)) as f64 }
    }

    fn run(&mut self, kernel: usize, isa: Isa) -> Result<()> {
        let args = spmm::Args::new(self.pattern.view(), &self.x, self.reduce)?;
        let args = self.values.as_ref().map_or(Ok(args), |values| args.weighted(values))?;
        spmm::KERNELS[kernel].run(isa, &args, &mut self.y, self.threads)
    }

    fn sample(&self) -> Result<Sample> {
        let rows = rows_of(&self.a, self.x.n_cols());
        let (part, x) = picked(&self.a, &self.x, &rows)?;
        let truth = Spmm::new(self.reduce).forward(&part, &x)?;
        let magnitudes = magnitudes(&part, &x, self.reduce, &truth)?;
        let tolerance = off(|i| part.row(i).len(), &magnitudes, T::DTYPE);
        Ok(Sample { rows, truth, tolerance })
    }

    fn rows(&self, rows: &[usize]) -> Dense<f64> {
        Dense::from_fn(rows.len(), self.y.n_cols(), |s, j| self.y.at(rows[s], j))
    }

    fn plain(&mut self, isa: Isa) -> Result<bool> {
        let Some((x, y)) = single(&self.x, &mut self.y) else { return Ok(false) };
        if self.reduce == Reduce::Sum {
            probe::plain(isa, self.a.view(), x.into(), y.into(), self.threads)?;
        }
        Ok(self.reduce == Reduce::Sum)
    }

    fn roof(&mut self, isa: Isa) -> Result<bool> {
        let Some((x, y)) = single(&self.x, &mut self.y) else { return Ok(false) };
        roof::replay(isa, self.a.view(), x.into(), y.into(), self.threads)?;
        Ok(true)
    }
}

/// Some rows of a matrix, and the rows of `x` that their entries name, one for each entry.
pub(super) fn picked<T: Element>(
    a: &Csr,
    x: &Dense<T>,
    rows: &[usize],
) -> Result<(Csr, Dense<f64>)> {
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

/// What rounding is in proportion to: the sums of magnitudes, or the result's.
fn magnitudes(a: &Csr, x: &Dense<f64>, reduce: Reduce, truth: &Dense<f64>) -> Result<Dense<f64>> {
    if !matches!(reduce, Reduce::Sum | Reduce::Mean) {
        return Ok(Dense::from_fn(truth.n_rows(), truth.n_cols(), |i, j| truth.at(i, j).abs()));
    }
    let values = a.values().map(|v| v.iter().map(|v| v.abs()).collect::<Vec<_>>().into());
    let positive = Dense::from_fn(x.n_rows(), x.n_cols(), |i, j| x.at(i, j).abs());
    Spmm::new(reduce).forward(&a.clone().with_values(values)?, &positive)
}
