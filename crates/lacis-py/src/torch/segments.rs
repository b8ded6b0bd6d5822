//! Reductions and softmax by index for torch, and their gradients.

use lacis::kernels::segment::{Groups, Index, backward, reduce, softmax};
use lacis::reference::{Axis, Reduce, Ties};
use lacis::{Result, Threads};
use pyo3::prelude::*;

use super::call::Call;
use super::convert::{Number, Raw, RawList, read};
use super::{failed, isa, threads};

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
}

/// `x`, `y` and how a segment's rows become one.
#[derive(Clone, Copy, Debug, FromPyObject)]
pub struct Reduction(Raw, Raw, u8);

impl Call<Segments> for Reduction {
    fn run<T: Number>(self, on: &Segments, threads: &Threads) -> Result<()> {
        let (Reduction(x, y, code), segments) = (self, on.groups.segments());
        let args = reduce::Args::<T>::new(x.read()?, segments, reduce_of(code), Axis::Rows)?;
        reduce::choose(&args).run(isa(), &args, y.write::<T>()?, threads)
    }
}

/// `x`, the gradient of the result, that of `x`, and how rows became one.
#[derive(Clone, Copy, Debug, FromPyObject)]
pub struct ReductionGrad(Raw, Raw, Raw, u8);

impl Call<Segments> for ReductionGrad {
    fn run<T: Number>(self, on: &Segments, threads: &Threads) -> Result<()> {
        let (ReductionGrad(x, grad, dx, code), segments) = (self, on.groups.segments());
        let args = reduce::Args::<T>::new(x.read()?, segments, reduce_of(code), Axis::Rows)?;
        let ties = Ties::SplitWithInitialZero;
        let gradient = backward::Backward::new(args, ties, grad.read::<T>()?)?;
        gradient.run(isa(), dx.write::<T>()?, threads)
    }
}

/// `x` and `y`.
#[derive(Clone, Copy, Debug, FromPyObject)]
pub struct Softmax(Raw, Raw);

impl Call<Segments> for Softmax {
    fn run<T: Number>(self, on: &Segments, threads: &Threads) -> Result<()> {
        let Softmax(x, y) = self;
        let args = softmax::Args::<T>::new(x.read::<T>()?, on.groups.segments(), Axis::Rows)?;
        args.run(isa(), y.write::<T>()?, threads)
    }
}

/// The result, its gradient, and that of `x`.
#[derive(Clone, Copy, Debug, FromPyObject)]
pub struct SoftmaxGrad(Raw, Raw, Raw);

impl Call<Segments> for SoftmaxGrad {
    fn run<T: Number>(self, on: &Segments, threads: &Threads) -> Result<()> {
        let (SoftmaxGrad(y, grad, dx), segments) = (self, on.groups.segments());
        let (y, grad) = (y.read::<T>()?, grad.read::<T>()?);
        let gradient = softmax::Backward::<T>::new(y, segments, Axis::Rows, grad)?;
        gradient.run(isa(), dx.write::<T>()?, threads)
    }
}

fn reduce_of(code: u8) -> Reduce {
    Reduce::ALL[usize::from(code).min(Reduce::ALL.len() - 1)]
}
