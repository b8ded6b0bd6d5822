//! `index_select`: a row of `x` for every edge, or a column.

use lacis_core::reference::{Axis, index_select};
use lacis_core::{DType, Dense, Result, Threads};
use lacis_kernels::profile::Point;
use lacis_kernels::segment::{Index, select};
use lacis_kernels::{Isa, Stored};

use super::sample::spread;
use super::{Form, Operation, Problem, Sample, Setting, Volume, by_dtype};

pub(super) const OPERATION: Operation = Operation {
    id: "index_select",
    about: "rows (or columns) by index: what every edge's source sends",
    unit: "entry",
    wide: true,
    tuned: true,
    forms: &[Form::PLAIN, Form { axis: 1, ..Form::PLAIN }],
    outer: &[],
    prepare: |setting| by_dtype!(setting, Selection),
};

struct Selection<'a, T: Stored> {
    index: Index<'a>,
    axis: Axis,
    x: Dense<T>,
    y: Dense<T>,
    threads: &'a Threads,
}

impl<'a, T: Stored> Selection<'a, T> {
    fn new(setting: &Setting<'a>) -> Result<Self> {
        let (n, entries, k) = (setting.graph.n_cols(), setting.graph.nnz(), setting.k);
        let (x, y) = match setting.axis() {
            Axis::Rows => ((n, k), (entries, k)),
            Axis::Cols => ((k, n), (k, entries)),
        };
        Ok(Selection {
            index: Index::new(setting.graph.cols(), n, setting.threads)?,
            axis: setting.axis(),
            x: setting.x(x.0, x.1)?,
            y: Dense::try_zeros(y.0, y.1)?,
            threads: setting.threads,
        })
    }

    fn k(&self) -> usize {
        if self.axis == Axis::Rows { self.x.n_cols() } else { self.x.n_rows() }
    }
}

impl<T: Stored> Problem for Selection<'_, T> {
    fn point(&self) -> Point {
        let (n, entries) = (self.index.bound(), self.index.len());
        let axis = usize::from(self.axis == Axis::Cols);
        Point { reduce: None, axis, ..Point::sparse([n, n, entries], self.k(), T::DTYPE) }
    }

    fn volume(&self) -> Volume {
        let bytes = self.index.len() * (2 * self.k() * size_of::<T>() + 4);
        Volume { bytes: bytes as f64, flops: 0.0 }
    }

    fn run(&mut self, _: usize, isa: Isa) -> Result<()> {
        select::Args::new(&self.x, &self.index, self.axis)?.run(isa, &mut self.y, self.threads)
    }

    fn sample(&self) -> Result<Sample> {
        let rows = spread(self.y.n_rows(), self.y.n_cols());
        let at = |s: usize| self.index.as_slice()[rows[s]] as usize;
        let truth = match self.axis {
            Axis::Rows => {
                let x = Dense::from_fn(rows.len(), self.k(), |s, j| self.x.at(at(s), j));
                let each: Vec<u32> = (0..rows.len() as u32).collect();
                index_select(&x, &each, Axis::Rows)?
            }
            Axis::Cols => {
                let x = Dense::from_fn(rows.len(), self.x.n_cols(), |s, j| self.x.at(rows[s], j));
                index_select(&x, self.index.as_slice(), Axis::Cols)?
            }
        };
        let tolerance = Dense::zeros(truth.n_rows(), truth.n_cols());
        Ok(Sample { rows, truth, tolerance })
    }

    fn rows(&self, rows: &[usize]) -> Dense<f64> {
        Dense::from_fn(rows.len(), self.y.n_cols(), |s, j| self.y.at(rows[s], j))
    }
}
