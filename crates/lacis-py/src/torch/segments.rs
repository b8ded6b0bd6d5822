//! Reductions and softmax by index for torch, and their gradients.

use lacis::kernels::segment::{Groups, Index, backward, reduce, softmax};
use lacis::reference::{Axis, Reduce, Ties};
use lacis::{Result, Threads};
use pyo3::prelude::*;

use super::convert::{Raw, RawList, read, with_numbers};
use super::{Numbers, failed, isa, threads};

/// An index, and the items of each of its segments.
#[pyclass(frozen, module = "lacis._lacis")]
pub struct Segments {
    groups: Groups<'static>,
}

fn index_of(index: RawList, bytes: usize, n: usize, threads: &Threads) -> Result<Index<'static>> {
    match bytes {
        4 => {
            let wide: Vec<i64> = read::<i32>(index)?.iter().map(|&i| i64::from(i)).collect();
            Index::narrowed(&wide, n, threads)
        }
        _ => Index::narrowed(read::<i64>(index)?, n, threads),
    }
}

#[pymethods]
impl Segments {
    /// Item `i` belongs to segment `index[i]` of `n`.
    #[new]
    fn new(py: Python<'_>, index: RawList, how: (usize, usize), count: usize) -> PyResult<Self> {
        let (bytes, n) = how;
        let make = || -> Result<Self> {
            let threads = threads(count)?;
            Ok(Segments { groups: Groups::new(index_of(index, bytes, n, &threads)?, &threads) })
        };
        py.detach(make).map_err(failed)
    }

    /// Segments and items.
    #[getter]
    fn shape(&self) -> (usize, usize) {
        let segments = self.groups.segments();
        (segments.n(), segments.len())
    }

    /// Bytes of the index and of the lists of items.
    #[getter]
    fn nbytes(&self) -> usize {
        let segments = self.groups.segments();
        8 * segments.len() + 4 * segments.n()
    }

    /// `y_s`, the rows of `x` in segment `s` as one.
    fn reduce(
        &self,
        py: Python<'_>,
        numbers: Numbers,
        tensors: (Raw, Raw),
        code: u8,
        count: usize,
    ) -> PyResult<()> {
        let (x, y) = tensors;
        let run = || -> Result<()> {
            with_numbers!(numbers, T => {
                let reduce = reduce_of(code);
                let segments = self.groups.segments();
                let args = reduce::Args::<T>::new(x.read::<T>()?, segments, reduce, Axis::Rows)?;
                reduce::choose(&args).run(isa(), &args, y.write::<T>()?, &threads(count)?)
            })
        };
        py.detach(run).map_err(failed)
    }

    /// The gradient of `x`, shared by equal ones as `scatter_reduce` onto zeros does.
    fn reduce_backward(
        &self,
        py: Python<'_>,
        numbers: Numbers,
        tensors: (Raw, Raw, Raw),
        code: u8,
        count: usize,
    ) -> PyResult<()> {
        let (x, grad, dx) = tensors;
        let run = || -> Result<()> {
            with_numbers!(numbers, T => {
                let (segments, ties) = (self.groups.segments(), Ties::SplitWithInitialZero);
                let x = x.read::<T>()?;
                let args = reduce::Args::<T>::new(x, segments, reduce_of(code), Axis::Rows)?;
                let gradient = backward::Backward::new(args, ties, grad.read::<T>()?)?;
                gradient.run(isa(), dx.write::<T>()?, &threads(count)?)
            })
        };
        py.detach(run).map_err(failed)
    }

    /// Softmax of the rows of `x` over each segment.
    fn softmax(
        &self,
        py: Python<'_>,
        numbers: Numbers,
        tensors: (Raw, Raw),
        count: usize,
    ) -> PyResult<()> {
        let (x, y) = tensors;
        let run = || -> Result<()> {
            with_numbers!(numbers, T => {
                let segments = self.groups.segments();
                let args = softmax::Args::<T>::new(x.read::<T>()?, segments, Axis::Rows)?;
                args.run(isa(), y.write::<T>()?, &threads(count)?)
            })
        };
        py.detach(run).map_err(failed)
    }

    /// The gradient of a softmax, from its result and the gradient of that.
    fn softmax_backward(
        &self,
        py: Python<'_>,
        numbers: Numbers,
        tensors: (Raw, Raw, Raw),
        count: usize,
    ) -> PyResult<()> {
        let (y, grad, dx) = tensors;
        let run = || -> Result<()> {
            with_numbers!(numbers, T => {
                let (y, segments) = (y.read::<T>()?, self.groups.segments());
                let grad = grad.read::<T>()?;
                let gradient = softmax::Backward::<T>::new(y, segments, Axis::Rows, grad)?;
                gradient.run(isa(), dx.write::<T>()?, &threads(count)?)
            })
        };
        py.detach(run).map_err(failed)
    }
}

fn reduce_of(code: u8) -> Reduce {
    Reduce::ALL[usize::from(code).min(Reduce::ALL.len() - 1)]
}
