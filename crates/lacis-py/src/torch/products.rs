//! Sparse times dense for torch, and its gradients.

use lacis::kernels::profile::{Point, Profile};
use lacis::kernels::sddmm as edges;
use lacis::kernels::spmm::{Args, ExtremeBackward, KERNELS, Kernel, arguments};
use lacis::kernels::{EdgeOrder, Epilogue, Isa, Stored};
use lacis::reference::{EdgeOp, Reduce, Ties};
use lacis::{CsrView, Element, Result};
use pyo3::prelude::*;

use super::adjacency::Adjacency;
use super::convert::{Plain, Raw, RawList, optional, read, with_numbers, write};
use super::{Numbers, failed, isa, profile, threads};

/// Which product: of the transpose or not, what is done with several, and addresses of the factors
/// of rows and columns, of the entries' values in stored order and of a bias; 0 for none.
#[derive(Clone, Copy, Debug, FromPyObject)]
pub struct Which(bool, u8, usize, usize, usize, usize);

fn reduce_of(code: u8) -> Reduce {
    Reduce::ALL[usize::from(code).min(Reduce::ALL.len() - 1)]
}

fn ties_of(code: u8) -> Ties {
    [Ties::SplitEvenly, Ties::FirstArgument, Ties::SplitWithInitialZero][usize::from(code.min(2))]
}

/// `y = left · reduce(values · right · x) + bias`.
#[pyfunction]
pub fn spmm(
    py: Python<'_>,
    on: &Adjacency,
    numbers: Numbers,
    tensors: (Raw, Raw),
    which: Which,
    count: usize,
) -> PyResult<()> {
    let (x, y) = tensors;
    let run = || with_numbers!(numbers, T => on.product::<T>((x, y), which, count));
    py.detach(run).map_err(failed)
}

/// How long [`spmm`] with `k` columns takes, by the machine's profile.
#[pyfunction]
pub fn spmm_seconds(on: &Adjacency, numbers: Numbers, k: usize, weighted: bool) -> f64 {
    let a = on.csr();
    let shape = [a.n_rows(), a.n_cols(), a.nnz()];
    let dtype = with_numbers!(numbers, T => T::DTYPE);
    profile().predict("spmm", &Point { weighted, ..Point::sparse(shape, k, dtype) })
}

/// A maximum or minimum `y`, and the entry of the caller's list that each element came from.
#[pyfunction]
pub fn spmm_arguments(
    py: Python<'_>,
    on: &Adjacency,
    numbers: Numbers,
    tensors: (Raw, Raw, RawList),
    how: (u8, usize),
    count: usize,
) -> PyResult<()> {
    let (x, y, at) = tensors;
    let (reduce, values) = how;
    let run = || -> Result<()> {
        with_numbers!(numbers, T => {
            let threads = threads(count)?;
            let a = on.side(false, &threads)?.view();
            let mut args = Args::<T>::new(a, x.read()?, reduce_of(reduce))?;
            if let Some(values) = optional(values, a.cols.len())? {
                args = args.weighted(values)?;
            }
            arguments(isa(), &args, (y.write::<T>()?, write::<u32>(at)?), &threads)
        })
    };
    py.detach(run).map_err(failed)
}

/// The gradient of `x` of a maximum or minimum `y`: `ties` 0 shares it evenly, 1 gives all to
/// the entries at `at`, 2 shares it with the zero that the result began as. `values` are in
/// stored order, of the matrix and of the transpose.
#[pyfunction]
#[allow(clippy::too_many_arguments)] // what Python passes
pub fn spmm_extreme_backward(
    py: Python<'_>,
    on: &Adjacency,
    numbers: Numbers,
    tensors: (Raw, Raw, Raw, Raw),
    at: RawList,
    how: (u8, u8),
    values: (usize, usize),
    count: usize,
) -> PyResult<()> {
    let (x, y, grad, dx) = tensors;
    let (reduce, ties) = how;
    let run = || -> Result<()> {
        with_numbers!(numbers, T => {
            let threads = threads(count)?;
            let (a, t) = match ties {
                1 => (on.side(false, &threads)?, on.side(true, &threads)?),
                _ => (on.pattern(false, &threads), on.pattern(true, &threads)),
            };
            let mut args = Args::<T>::new(a.view(), x.read()?, reduce_of(reduce))?;
            let [forward, backward] = [
                optional(values.0, a.nnz())?,
                optional(values.1, a.nnz())?,
            ];
            if let Some(values) = forward {
                args = args.weighted(values)?;
            }
            let mut gradient = ExtremeBackward::new(args, t.view())?;
            if let Some(values) = backward {
                gradient = gradient.weighted(values)?;
            }
            let (grad, dx) = (grad.read::<T>()?, dx.write::<T>()?);
            match ties {
                1 => gradient.chosen(isa(), (read::<u32>(at)?, grad), dx, &threads),
                _ => {
                    let y = y.read::<T>()?;
                    gradient.even(isa(), (ties_of(ties), y, grad), dx, &threads)
                }
            }
        })
    };
    py.detach(run).map_err(failed)
}

/// The gradient of the entries' values of a sum or mean, in the caller's order.
#[pyfunction]
pub fn value_gradients(
    py: Python<'_>,
    on: &Adjacency,
    numbers: Numbers,
    tensors: (Raw, Raw),
    tensors2: (usize, usize, RawList),
    count: usize,
) -> PyResult<()> {
    let (x, grad) = tensors;
    let (left, right, out) = tensors2;
    let run = || -> Result<()> {
        with_numbers!(numbers, T => {
            let threads = threads(count)?;
            let a = on.side(false, &threads)?.view();
            let args = edges::ValuesArgs::<T>::new(a, x.read()?, grad.read()?, Reduce::Sum)?
                .scaled(optional(left, a.n_rows())?, optional(right, a.n_cols)?)?
                .ordered(EdgeOrder::Caller);
            edges::value_gradients(isa(), &args, write(out)?, &threads)
        })
    };
    py.detach(run).map_err(failed)
}

/// `op(u_i, v_j)` of every entry in the caller's order: 0 dots of `heads` parts, 1 sums,
/// 2 products.
#[pyfunction]
pub fn sddmm(
    py: Python<'_>,
    on: &Adjacency,
    numbers: Numbers,
    tensors: (Raw, Raw, Raw),
    how: (u8, usize),
    count: usize,
) -> PyResult<()> {
    let (u, v, out) = tensors;
    let (op, heads) = how;
    let run = || -> Result<()> {
        with_numbers!(numbers, T => {
            let threads = threads(count)?;
            let a = on.side(false, &threads)?.view();
            let args = edges::Args::<T>::new(a, u.read::<T>()?, v.read::<T>()?, edge_op(op))?;
            let args = if op == 0 { args.heads(heads)? } else { args };
            edges::run(isa(), &args.ordered(EdgeOrder::Caller), out.write()?, &threads)
        })
    };
    py.detach(run).map_err(failed)
}

/// The gradient of [`sddmm`] at the rows, or at the columns, from that of its result
/// and the rows `x` of the other end.
#[pyfunction]
pub fn sddmm_backward(
    py: Python<'_>,
    on: &Adjacency,
    numbers: Numbers,
    tensors: (Raw, Raw, Raw),
    how: (u8, bool),
    count: usize,
) -> PyResult<()> {
    let (x, grad, out) = tensors;
    let (op, transposed) = how;
    let run = || -> Result<()> {
        with_numbers!(numbers, T => {
            let threads = threads(count)?;
            let a = on.side(transposed, &threads)?.view();
            let grad = grad.read::<<T as Stored>::Sum>()?;
            let args = edges::BackwardArgs::<T>::new(a, x.read::<T>()?, edge_op(op), grad)?;
            let args = args.ordered(EdgeOrder::Caller);
            edges::backward(isa(), &args, out.write::<T>()?, &threads)
        })
    };
    py.detach(run).map_err(failed)
}

fn edge_op(code: u8) -> EdgeOp {
    [EdgeOp::Dot, EdgeOp::Add, EdgeOp::Mul][usize::from(code.min(2))]
}

impl Adjacency {
    fn product<T: Stored + Plain>(
        &self,
        (x, y): (Raw, Raw),
        Which(transposed, reduce, left, right, values, bias): Which,
        count: usize,
    ) -> Result<()>
    where
        T::Sum: Plain,
    {
        let threads = &threads(count)?;
        // Values are in the order of one certain transpose.
        let a = match values {
            0 => self.pattern(transposed, threads),
            _ => self.side(transposed, threads)?,
        };
        let a = CsrView { values: None, order: None, ..a.view() };
        let reduce = reduce_of(reduce);
        let mut args = Args::<T>::new(a, x.read::<T>()?, reduce)?
            .scaled(optional(left, a.n_rows())?, optional(right, a.n_cols)?)?;
        if let Some(values) = optional(values, a.cols.len())? {
            args = args.weighted(values)?;
        }
        if let Some(bias) = optional(bias, x.2)? {
            args = args.ending(Epilogue { bias: Some(bias), ..Epilogue::PLAIN })?;
        }
        let (kernel, isa) = choice::<T>(profile(), a, x.2, (values != 0, reduce));
        kernel.run(isa, &args, y.write::<T>()?, threads)
    }
}

/// The kernel for a product, by the machine's profile.
fn choice<T: Stored + Element>(
    profile: &Profile,
    a: CsrView<'_>,
    k: usize,
    (weighted, reduce): (bool, Reduce),
) -> (&'static Kernel, Isa) {
    let shape = [a.n_rows(), a.n_cols, a.cols.len()];
    let point = Point { weighted, reduce: Some(reduce), ..Point::sparse(shape, k, T::DTYPE) };
    let choice = profile.choose("spmm", &point);
    let kernel = KERNELS.iter().find(|kernel| kernel.name == choice.kernel);
    (kernel.unwrap_or(&KERNELS[0]), choice.isa)
}
