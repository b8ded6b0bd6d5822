//! `gather`: an index for every element, `y_ec = x_{index(e,c), c}`, or along columns.

use lacis_core::reference::{Axis, IndexMatrix as TrueIndex, gather as true_gather};
use lacis_core::{DType, Dense, Result, Threads};
use lacis_kernels::profile::Point;
use lacis_kernels::segment::Index;
use lacis_kernels::segment::elements::{IndexMatrix, gather};
use lacis_kernels::{Isa, Stored};

use super::sample::spread;
use super::{Form, Operation, Problem, Sample, Setting, Volume, in_single};

pub(super) const OPERATION: Operation = Operation {
    id: "gather",
    about: "elements, each by an index of its own, along rows (or columns)",
    unit: "entry",
    wide: true,
    tuned: false,
    forms: &[Form::PLAIN, Form { axis: 1, ..Form::PLAIN }],
    outer: &[],
    prepare: |setting| in_single!(setting, Elements),
};

struct Elements<'a, T: Stored> {
    index: Index<'static>,
    axis: Axis,
    x: Dense<T>,
    y: Dense<T>,
    threads: &'a Threads,
}

impl<'a, T: Stored> Elements<'a, T> {
    fn new(setting: &Setting<'a>) -> Result<Self> {
        let (n, cols, k) = (setting.graph.n_cols(), setting.graph.cols(), setting.k);
        let axis = setting.axis();
        let (x, y) = match axis {
            Axis::Rows => ((n, k), (cols.len(), k)),
            Axis::Cols => ((k, n), (k, cols.len())),
        };
        // Every column of the index is the edges' sources, one entry later than the column before.
        let source = |i: usize, c: usize| i64::from(cols[(i + c) % cols.len().max(1)]);
        let row = |i: usize| (0..y.1).map(move |c| source(i, c));
        let at: Vec<i64> = (0..y.0).flat_map(row).collect();
        Ok(Elements {
            index: Index::narrowed(&at, n, setting.threads)?,
            axis,
            x: setting.x(x.0, x.1)?,
            y: Dense::try_zeros(y.0, y.1)?,
            threads: setting.threads,
        })
    }

    /// How many places an index may name, and how many edges and columns there are.
    fn sizes(&self) -> [usize; 3] {
        match self.axis {
            Axis::Rows => [self.x.n_rows(), self.y.n_rows(), self.x.n_cols()],
            Axis::Cols => [self.x.n_cols(), self.y.n_cols(), self.x.n_rows()],
        }
    }
}

impl<T: Stored> Problem for Elements<'_, T> {
    fn point(&self) -> Point {
        let [n, entries, k] = self.sizes();
        let axis = usize::from(self.axis == Axis::Cols);
        Point { reduce: None, axis, ..Point::sparse([n, n, entries], k, T::DTYPE) }
    }

    fn volume(&self) -> Volume {
        let bytes = self.index.len() * (2 * size_of::<T>() + 4);
        Volume { bytes: bytes as f64, flops: 0.0 }
    }

    fn run(&mut self, _: usize, _: Isa) -> Result<()> {
        let index = IndexMatrix::new(&self.index, self.y.n_rows(), self.y.n_cols())?;
        gather(&self.x, index, self.axis, &mut self.y, self.threads)
    }

    fn sample(&self) -> Result<Sample> {
        let width = self.y.n_cols();
        let each = if self.axis == Axis::Rows { width * width } else { width };
        let rows = spread(self.y.n_rows(), each);
        let all = self.index.as_slice();
        let at: Vec<u32> = rows.iter().flat_map(|&i| &all[i * width..][..width]).copied().collect();
        let (x, at) = match self.axis {
            // Only the rows that are named: one for each element.
            Axis::Rows => {
                let named = |e: usize, c: usize| self.x.at(at[e] as usize, c);
                let each = (0..at.len() as u32).collect();
                (Dense::from_fn(at.len(), width, named), each)
            }
            Axis::Cols => {
                let x = Dense::from_fn(rows.len(), self.x.n_cols(), |s, j| self.x.at(rows[s], j));
                (x, at)
            }
        };
        let truth = true_gather(&x, &TrueIndex::new(rows.len(), width, at)?, self.axis)?;
        let tolerance = Dense::zeros(truth.n_rows(), truth.n_cols());
        Ok(Sample { rows, truth, tolerance })
    }

    fn rows(&self, rows: &[usize]) -> Dense<f64> {
        Dense::from_fn(rows.len(), self.y.n_cols(), |s, j| self.y.at(rows[s], j))
    }
}
