//! Rows reduced by index: `scatter_…` by an index in any order (the edges' sources), `segment_…`
//! by one in order (the edges' targets), `index_add` onto what is there.

use lacis_core::reference::{Axis, Reduce, Segments as TrueSegments, index_add, segment_reduce};
use lacis_core::{Csr, DType, Dense, Result, Threads};
use lacis_kernels::profile::Point;
use lacis_kernels::segment::{Index, Segments, reduce};
use lacis_kernels::{Isa, Stored};

use super::numbers::Numbers;
use super::sample::{off, spread};
use super::{Form, Operation, Problem, Sample, Setting, Volume, in_single};

const ALONG_COLUMNS: Form = Form { axis: 1, ..Form::PLAIN };
const BOTH: &[Form] = &[Form::PLAIN, ALONG_COLUMNS];

pub(super) const INDEX_ADD: Operation = Operation {
    id: "index_add",
    about: "rows (or columns) added by index onto what is there",
    unit: "entry",
    wide: true,
    tuned: true,
    forms: BOTH,
    outer: &[],
    prepare: |setting| in_single!(setting, Reduction, By::Onto, Reduce::Sum),
};

pub(super) const SCATTER_ADD: Operation = Operation {
    id: "scatter_add",
    about: "rows (or columns) added by an index in any order",
    prepare: |setting| in_single!(setting, Reduction, By::Index, Reduce::Sum),
    ..INDEX_ADD
};

pub(super) const SCATTER_MEAN: Operation = Operation {
    id: "scatter_mean",
    about: "the mean of rows (or columns) by an index in any order",
    forms: &[Form::reducing(Reduce::Mean)],
    prepare: |setting| in_single!(setting, Reduction, By::Index, Reduce::Mean),
    ..INDEX_ADD
};

pub(super) const SCATTER_MAX: Operation = Operation {
    id: "scatter_max",
    about: "the largest of rows (or columns) by an index in any order",
    forms: &[Form::reducing(Reduce::Max)],
    prepare: |setting| in_single!(setting, Reduction, By::Index, Reduce::Max),
    ..INDEX_ADD
};

pub(super) const SCATTER_MIN: Operation = Operation {
    id: "scatter_min",
    about: "the smallest of rows (or columns) by an index in any order",
    forms: &[Form::reducing(Reduce::Min)],
    prepare: |setting| in_single!(setting, Reduction, By::Index, Reduce::Min),
    ..INDEX_ADD
};

pub(super) const SCATTER_MUL: Operation = Operation {
    id: "scatter_mul",
    about: "the product of rows (or columns) by an index in any order",
    forms: &[Form::reducing(Reduce::Mul)],
    prepare: |setting| in_single!(setting, Reduction, By::Index, Reduce::Mul),
    ..INDEX_ADD
};

pub(super) const SEGMENT_SUM: Operation = Operation {
    id: "segment_sum",
    about: "rows (or columns) added by segment, one after another",
    prepare: |setting| in_single!(setting, Reduction, By::Pointers, Reduce::Sum),
    ..INDEX_ADD
};

pub(super) const SEGMENT_MEAN: Operation = Operation {
    id: "segment_mean",
    about: "the mean of rows (or columns) by segment",
    forms: &[Form::reducing(Reduce::Mean)],
    prepare: |setting| in_single!(setting, Reduction, By::Pointers, Reduce::Mean),
    ..INDEX_ADD
};

pub(super) const SEGMENT_MAX: Operation = Operation {
    id: "segment_max",
    about: "the largest of rows (or columns) by segment",
    forms: &[Form::reducing(Reduce::Max)],
    prepare: |setting| in_single!(setting, Reduction, By::Pointers, Reduce::Max),
    ..INDEX_ADD
};

pub(super) const SEGMENT_MIN: Operation = Operation {
    id: "segment_min",
    about: "the smallest of rows (or columns) by segment",
    forms: &[Form::reducing(Reduce::Min)],
    prepare: |setting| in_single!(setting, Reduction, By::Pointers, Reduce::Min),
    ..INDEX_ADD
};

pub(super) const SEGMENT_MUL: Operation = Operation {
    id: "segment_mul",
    about: "the product of rows (or columns) by segment",
    forms: &[Form::reducing(Reduce::Mul)],
    prepare: |setting| in_single!(setting, Reduction, By::Pointers, Reduce::Mul),
    ..INDEX_ADD
};

/// How the segment of a row is told.
#[derive(Clone, Copy, PartialEq)]
enum By {
    /// An index in any order.
    Index,
    /// The same, onto what the result holds.
    Onto,
    /// Where each segment begins.
    Pointers,
}

struct Reduction<'a, T: Stored> {
    graph: &'a Csr,
    index: Index<'a>,
    /// Those that lie one after another.
    pointers: Option<Segments<'a>>,
    reduce: Reduce,
    axis: Axis,
    x: Dense<T>,
    /// What sums begin with.
    begin: Option<Dense<T>>,
    y: Dense<T>,
    threads: &'a Threads,
}

impl<'a, T: Stored> Reduction<'a, T> {
    fn new(setting: &Setting<'a>, by: By, reduce: Reduce) -> Result<Self> {
        let (graph, k) = (setting.graph, setting.k);
        let n = if by == By::Pointers { graph.n_rows() } else { graph.n_cols() };
        let (x, y) = match setting.axis() {
            Axis::Rows => ((graph.nnz(), k), (n, k)),
            Axis::Cols => ((k, graph.nnz()), (k, n)),
        };
        let pointers = (by == By::Pointers)
            .then(|| Segments::from_ptr(graph.row_ptr().view(), graph.nnz()))
            .transpose()?;
        let begin = (by == By::Onto).then(|| Numbers("begin").matrix(y.0, y.1));
        Ok(Reduction {
            graph,
            index: Index::new(graph.cols(), graph.n_cols(), setting.threads)?,
            pointers,
            reduce,
            axis: setting.axis(),
            x: setting.x(x.0, x.1)?,
            begin: begin.transpose()?,
            y: Dense::try_zeros(y.0, y.1)?,
            threads: setting.threads,
        })
    }

    fn args(&self) -> Result<reduce::Args<'_, T>> {
        let segments = self.pointers.unwrap_or_else(|| Segments::from_index(&self.index));
        match self.begin {
            Some(_) => reduce::Args::index_add(&self.x, segments, self.axis),
            None => reduce::Args::new(&self.x, segments, self.reduce, self.axis),
        }
    }

    fn n(&self) -> usize {
        if self.axis == Axis::Rows { self.y.n_rows() } else { self.y.n_cols() }
    }

    fn k(&self) -> usize {
        if self.axis == Axis::Rows { self.x.n_cols() } else { self.x.n_rows() }
    }

    /// What some rows of the result must be, and the number of items in each place of them.
    fn truth(&self, part: &Part<'_>, of: impl Fn(f64) -> f64) -> Result<Dense<f64>> {
        let Part { rows, items, index, n } = part;
        let x = match self.axis {
            Axis::Rows => Dense::from_fn(items.len(), self.k(), |e, j| of(self.x.at(items[e], j))),
            Axis::Cols => {
                Dense::from_fn(rows.len(), items.len(), |s, e| of(self.x.at(rows[s], items[e])))
            }
        };
        if let Some(begin) = &self.begin {
            let begin = Dense::from_fn(rows.len(), begin.n_cols(), |s, j| of(begin.at(rows[s], j)));
            return index_add(&begin, index, &x, self.axis);
        }
        segment_reduce(&x, &TrueSegments::from_index(index, *n)?, self.reduce, self.axis)
    }

    /// The rows to look at, and the items that belong to them.
    fn part<'r>(&self, of: &[u32], rows: &'r [usize]) -> Part<'r> {
        if self.axis == Axis::Cols {
            let items = (0..of.len()).collect();
            return Part { rows, items, index: of.to_vec(), n: self.n() };
        }
        let mut place = vec![u32::MAX; self.n()];
        rows.iter().enumerate().for_each(|(s, &row)| place[row] = s as u32);
        let items: Vec<usize> =
            (0..of.len()).filter(|&e| place[of[e] as usize] != u32::MAX).collect();
        let index = items.iter().map(|&e| place[of[e] as usize]).collect();
        Part { rows, items, index, n: rows.len() }
    }
}

/// Elements that a thread copies at a time.
const COPIED: usize = 1 << 16;

/// Copies numbers on all threads.
fn copied<T: Stored>(from: &[T], to: &mut [T], threads: &Threads) {
    let pieces = from.chunks(COPIED).zip(to.chunks_mut(COPIED)).collect();
    threads.for_each(pieces, |(from, to): (&[T], &mut [T])| to.copy_from_slice(from));
}

/// A smaller problem with the same result in some rows.
struct Part<'r> {
    rows: &'r [usize],
    items: Vec<usize>,
    index: Vec<u32>,
    n: usize,
}

impl<T: Stored> Problem for Reduction<'_, T> {
    fn point(&self) -> Point {
        let axis = usize::from(self.axis == Axis::Cols);
        let point = Point::sparse([self.n(), self.n(), self.index.len()], self.k(), T::DTYPE);
        Point { reduce: Some(self.reduce), axis, ..point }
    }

    fn volume(&self) -> Volume {
        let (items, out) = (self.index.len() * self.k(), self.n() * self.k());
        let bytes = (items + out) * size_of::<T>() + 4 * self.index.len();
        Volume { bytes: bytes as f64, flops: items as f64 }
    }

    fn accepts(&self, kernel: usize) -> bool {
        self.args().is_ok_and(|args| reduce::KERNELS[kernel].accepts(&args))
    }

    fn suggested(&self) -> Option<&'static str> {
        Some(reduce::choose(&self.args().ok()?).name)
    }

    fn run(&mut self, kernel: usize, isa: Isa) -> Result<()> {
        let mut y = std::mem::replace(&mut self.y, Dense::zeros(0, 0));
        if let Some(begin) = &self.begin {
            copied(begin.data(), y.data_mut(), self.threads);
        }
        let args = self.args();
        let done =
            args.and_then(|args| reduce::KERNELS[kernel].run(isa, &args, &mut y, self.threads));
        self.y = y;
        done
    }

    fn sample(&self) -> Result<Sample> {
        let of: Vec<u32> = match self.pointers {
            Some(_) => {
                let items = |i: usize| std::iter::repeat_n(i as u32, self.graph.row(i).len());
                (0..self.graph.n_rows()).flat_map(items).collect()
            }
            None => self.index.as_slice().to_vec(),
        };
        let each =
            if self.axis == Axis::Cols { of.len() } else { of.len() * self.k() / self.n().max(1) };
        let rows = spread(self.y.n_rows(), each);
        let part = self.part(&of, &rows);
        let truth = self.truth(&part, |x| x)?;
        let magnitudes = self.truth(&part, f64::abs)?;
        // Along columns the longest segment stands for all.
        let mut counts = vec![0; part.n];
        part.index.iter().for_each(|&s| counts[s as usize] += 1);
        let most = counts.iter().copied().max().unwrap_or(0);
        let terms = |s: usize| if self.axis == Axis::Rows { counts[s] } else { most };
        let tolerance = off(terms, &magnitudes, T::DTYPE);
        Ok(Sample { rows, truth, tolerance })
    }

    fn rows(&self, rows: &[usize]) -> Dense<f64> {
        Dense::from_fn(rows.len(), self.y.n_cols(), |s, j| self.y.at(rows[s], j))
    }
}
