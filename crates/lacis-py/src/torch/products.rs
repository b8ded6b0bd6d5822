//! Sparse times dense for torch, and its gradients.

use lacis::kernels::profile::{Point, Profile};
use lacis::kernels::sddmm::{self, ValuesArgs, value_gradients};
use lacis::kernels::spmm::{self, Args, ExtremeBackward, KERNELS, Kernel};
use lacis::kernels::{EdgeOrder, Epilogue, Isa, Stored};
use lacis::reference::{EdgeOp, Reduce, Ties};
use lacis::{CsrView, Element, Result};
use pyo3::prelude::*;

use super::adjacency::Adjacency;
use super::convert::{Plain, Raw, RawList, optional, read, with_numbers, write};
use super::{Numbers, failed, isa, profile, threads};

/// Which product: of the transpose or not, what is done with several, and addresses of the factors
/// of rows and columns, of the entries' values in stored order and of a bias; 0 where there are none.
#[derive(Clone, Copy, Debug, FromPyObject)]
pub struct Which(bool, u8, usize, usize, usize, usize);

fn reduce_of(code: u8) -> Reduce {
    Reduce::ALL[usize::from(code).min(Reduce::ALL.len() - 1)]
}

fn ties_of(code: u8) -> Ties {
    [Ties::SplitEvenly, Ties::FirstArgument, Ties::SplitWithInitialZero][usize::from(code.min(2))]
}

#[pymethods]
impl Adjacency {
    /// `y = left · reduce(values · right · x) + bias`.
    fn spmm(
        &self,
        py: Python<'_>,
        numbers: Numbers,
        (x, y): (Raw, Raw),
        which: Which,
        count: usize,
    ) -> PyResult<()> {
        let run = || with_numbers!(numbers, T => self.product::<T>((x, y), which, count));
        py.detach(run).map_err(failed)
    }

    /// A maximum or minimum `y`, and the entry of the caller's list that each element came from.
    fn spmm_arguments(
        &self,
        py: Python<'_>,
        numbers: Numbers,
        (x, y, at): (Raw, Raw, RawList),
        (reduce, values): (u8, usize),
        count: usize,
    ) -> PyResult<()> {
        let run = || -> Result<()> {
            with_numbers!(numbers, T => {
                let threads = threads(count)?;
                let a = self.side(false, &threads)?.view();
                let mut args = Args::<T>::new(a, x.read()?, reduce_of(reduce))?;
                if let Some(values) = optional(values, a.cols.len())? {
                    args = args.weighted(values)?;
                }
                spmm::arguments(isa(), &args, (y.write::<T>()?, write::<u32>(at)?), &threads)
            })
        };
        py.detach(run).map_err(failed)
    }

    /// The gradient of `x` of a maximum or minimum `y`: `ties` 0 shares it evenly, 1 gives all to
    /// the entries at `at`, 2 shares it with the zero that the result began as. `values` are in
    /// stored order, of the matrix and of the transpose.
    #[allow(clippy::too_many_arguments)] // Python's own, a tensor each
    fn spmm_extreme_backward(
        &self,
        py: Python<'_>,
        numbers: Numbers,
        (x, y, grad, dx): (Raw, Raw, Raw, Raw),
        at: RawList,
        (reduce, ties): (u8, u8),
        values: (usize, usize),
        count: usize,
    ) -> PyResult<()> {
        let run = || -> Result<()> {
            with_numbers!(numbers, T => {
                let threads = threads(count)?;
                let (a, t) = match ties {
                    1 => (self.side(false, &threads)?, self.side(true, &threads)?),
                    _ => (self.pattern(false, &threads), self.pattern(true, &threads)),
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
    fn value_gradients(
        &self,
        py: Python<'_>,
        numbers: Numbers,
        (x, grad): (Raw, Raw),
        (left, right, out): (usize, usize, RawList),
        count: usize,
    ) -> PyResult<()> {
        let run = || -> Result<()> {
            with_numbers!(numbers, T => {
                let threads = threads(count)?;
                let a = self.side(false, &threads)?.view();
                let args = ValuesArgs::<T>::new(a, x.read()?, grad.read()?, Reduce::Sum)?
                    .scaled(optional(left, a.n_rows())?, optional(right, a.n_cols)?)?
                    .ordered(EdgeOrder::Caller);
                value_gradients(isa(), &args, write(out)?, &threads)
            })
        };
        py.detach(run).map_err(failed)
    }

    /// `op(u_i, v_j)` of every entry in the caller's order: 0 dots of `heads` parts, 1 sums,
    /// 2 products.
    fn sddmm(
        &self,
        py: Python<'_>,
        numbers: Numbers,
        (u, v, out): (Raw, Raw, Raw),
        (op, heads): (u8, usize),
        count: usize,
    ) -> PyResult<()> {
        let run = || -> Result<()> {
            with_numbers!(numbers, T => {
                let threads = threads(count)?;
                let a = self.side(false, &threads)?.view();
                let args = sddmm::Args::<T>::new(a, u.read::<T>()?, v.read::<T>()?, edge_op(op))?;
                let args = if op == 0 { args.heads(heads)? } else { args };
                sddmm::run(isa(), &args.ordered(EdgeOrder::Caller), out.write()?, &threads)
            })
        };
        py.detach(run).map_err(failed)
    }

    /// The gradient of [`Adjacency::sddmm`] at the rows, or at the columns, from that of its result
    /// and the rows `x` of the other end.
    fn sddmm_backward(
        &self,
        py: Python<'_>,
        numbers: Numbers,
        (x, grad, out): (Raw, Raw, Raw),
        (op, transposed): (u8, bool),
        count: usize,
    ) -> PyResult<()> {
        let run = || -> Result<()> {
            with_numbers!(numbers, T => {
                let threads = threads(count)?;
                let a = self.side(transposed, &threads)?.view();
                let grad = grad.read::<<T as Stored>::Sum>()?;
                let args = sddmm::BackwardArgs::<T>::new(a, x.read::<T>()?, edge_op(op), grad)?;
                let args = args.ordered(EdgeOrder::Caller);
                sddmm::backward(isa(), &args, out.write::<T>()?, &threads)
            })
        };
        py.detach(run).map_err(failed)
    }
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
