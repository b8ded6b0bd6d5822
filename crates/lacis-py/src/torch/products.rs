//! Sparse times dense for torch, and its gradients.

use lacis::kernels::profile::Point;
use lacis::kernels::sddmm as edges;
use lacis::kernels::spmm::{Args, ExtremeBackward, KERNELS, Kernel, arguments};
use lacis::kernels::{Accum, EdgeOrder, Epilogue, Isa, Stored};
use lacis::reference::{EdgeOp, Reduce, Ties};
use lacis::{CsrView, Element, Result, Threads};
use pyo3::prelude::*;

use super::adjacency::Adjacency;
use super::call::Call;
use super::convert::{Number, Raw, RawList, optional, read, write};
use super::{isa, profile};

/// Which product: of the transpose or not; what is done with several; addresses of the factors of
/// rows and columns, of the entries' values in stored order and of a bias, 0 for none; whether `y`
/// is added to.
#[derive(Clone, Copy, Debug, FromPyObject)]
pub struct Which(pub bool, pub u8, pub usize, pub usize, pub usize, pub usize, pub bool);

fn reduce_of(code: u8) -> Reduce {
    Reduce::ALL[usize::from(code).min(Reduce::ALL.len() - 1)]
}

fn ties_of(code: u8) -> Ties {
    [Ties::SplitEvenly, Ties::FirstArgument, Ties::SplitWithInitialZero][usize::from(code.min(2))]
}

/// `x`, `y`, and which product.
#[derive(Clone, Copy, Debug, FromPyObject)]
pub struct Spmm(pub Raw, pub Raw, pub Which);

impl Call<Adjacency> for Spmm {
    fn run<T: Number>(self, on: &Adjacency, threads: &Threads) -> Result<()> {
        let Spmm(x, y, which) = self;
        let Which(_, reduce, left, right, values, ..) = which;
        let a = on.factor(&which, threads)?;
        let reduce = reduce_of(reduce);
        let mut args = Args::<T>::new(a, x.read::<T>()?, reduce)?
            .scaled(optional(left, a.n_rows())?, optional(right, a.n_cols)?)?;
        if let Some(values) = optional(values, a.cols.len())? {
            args = args.weighted(values)?;
        }
        let (kernel, isa) = on.kernel::<T>(a, x.cols(), (values != 0, reduce));
        kernel.run(isa, &args.ending(which.ending(x.cols())?)?, y.write::<T>()?, threads)
    }
}

impl Which {
    /// What happens to a sum of `width` columns on its way to memory.
    ///
    /// # Errors
    /// When the bias has no address that it could have.
    pub(super) fn ending<'a, F: super::convert::Plain>(
        &self,
        width: usize,
    ) -> Result<Epilogue<'a, F>> {
        let Which(.., bias, adds) = *self;
        let accum = if adds { Accum::Add } else { Accum::Replace };
        Ok(Epilogue { accum, bias: optional(bias, width)?, ..Epilogue::PLAIN })
    }
}

/// `x`, `y`, the entry that each element came from; what is done with several, and the address of
/// the values.
#[derive(Clone, Copy, Debug, FromPyObject)]
pub struct Arguments(Raw, Raw, RawList, u8, usize);

impl Call<Adjacency> for Arguments {
    fn run<T: Number>(self, on: &Adjacency, threads: &Threads) -> Result<()> {
        let Arguments(x, y, at, reduce, values) = self;
        let a = on.side(false, threads)?.view();
        let mut args = Args::<T>::new(a, x.read()?, reduce_of(reduce))?;
        if let Some(values) = optional(values, a.cols.len())? {
            args = args.weighted(values)?;
        }
        arguments(isa(), &args, (y.write::<T>()?, write::<u32>(at)?), threads)
    }
}

/// `x`, `y`, the gradient of `y`, that of `x`; the entries that elements came from.
#[derive(Clone, Copy, Debug, FromPyObject)]
pub struct Chosen(Raw, Raw, Raw, Raw, RawList);

/// Tensors; what was done with several, and who gets the gradient of equal ones (0 shares it
/// evenly, 1 gives it to the entries chosen, 2 shares it with the zero that the result began as);
/// values in stored order, of the matrix and of the transpose.
#[derive(Clone, Copy, Debug, FromPyObject)]
pub struct ExtremeGrad(Chosen, u8, u8, usize, usize);

impl Call<Adjacency> for ExtremeGrad {
    fn run<T: Number>(self, on: &Adjacency, threads: &Threads) -> Result<()> {
        let ExtremeGrad(Chosen(x, y, grad, dx, at), reduce, ties, forward, backward) = self;
        let (a, t) = match ties {
            1 => (on.side(false, threads)?, on.side(true, threads)?),
            _ => (on.pattern(false, threads), on.pattern(true, threads)),
        };
        let mut args = Args::<T>::new(a.view(), x.read()?, reduce_of(reduce))?;
        if let Some(values) = optional(forward, a.nnz())? {
            args = args.weighted(values)?;
        }
        let mut gradient = ExtremeBackward::new(args, t.view())?;
        if let Some(values) = optional(backward, a.nnz())? {
            gradient = gradient.weighted(values)?;
        }
        let (grad, dx) = (grad.read::<T>()?, dx.write::<T>()?);
        match ties {
            1 => gradient.chosen(isa(), (read::<u32>(at)?, grad), dx, threads),
            _ => gradient.even(isa(), (ties_of(ties), y.read::<T>()?, grad), dx, threads),
        }
    }
}

/// `x`, the gradient of the result, and that of the values.
#[derive(Clone, Copy, Debug, FromPyObject)]
pub struct ValueGrads(Raw, Raw, RawList);

impl Call<Adjacency> for ValueGrads {
    fn run<T: Number>(self, on: &Adjacency, threads: &Threads) -> Result<()> {
        let ValueGrads(x, grad, out) = self;
        let a = on.side(false, threads)?.view();
        let args = edges::ValuesArgs::<T>::new(a, x.read()?, grad.read()?, Reduce::Sum)?
            .ordered(EdgeOrder::Caller);
        edges::value_gradients(isa(), &args, write(out)?, threads)
    }
}

/// `u`, `v`, the result; what is done with both (0 dots of `heads` parts, 1 sums, 2 products), and
/// how many heads.
#[derive(Clone, Copy, Debug, FromPyObject)]
pub struct Sddmm(Raw, Raw, Raw, u8, usize);

impl Call<Adjacency> for Sddmm {
    fn run<T: Number>(self, on: &Adjacency, threads: &Threads) -> Result<()> {
        let Sddmm(u, v, out, op, heads) = self;
        let a = on.side(false, threads)?.view();
        let args = edges::Args::<T>::new(a, u.read::<T>()?, v.read::<T>()?, edge_op(op))?;
        let args = if op == 0 { args.heads(heads)? } else { args };
        edges::run(isa(), &args.ordered(EdgeOrder::Caller), out.write()?, threads)
    }
}

/// The rows of the other end, the gradient of the result, the gradient to be found; what was done,
/// and whether it is that of the columns.
#[derive(Clone, Copy, Debug, FromPyObject)]
pub struct SddmmGrad(Raw, Raw, Raw, u8, bool);

impl Call<Adjacency> for SddmmGrad {
    fn run<T: Number>(self, on: &Adjacency, threads: &Threads) -> Result<()> {
        let SddmmGrad(x, grad, out, op, transposed) = self;
        let a = on.side(transposed, threads)?.view();
        let grad = grad.read::<<T as Stored>::Sum>()?;
        let args = edges::BackwardArgs::<T>::new(a, x.read::<T>()?, edge_op(op), grad)?;
        edges::backward(isa(), &args.ordered(EdgeOrder::Caller), out.write::<T>()?, threads)
    }
}

fn edge_op(code: u8) -> EdgeOp {
    [EdgeOp::Dot, EdgeOp::Add, EdgeOp::Mul][usize::from(code.min(2))]
}

impl Adjacency {
    /// The matrix or its transpose, without values of its own.
    ///
    /// # Errors
    /// When there are values, and nobody knows in what order.
    pub(super) fn factor(&self, which: &Which, threads: &Threads) -> Result<CsrView<'_>> {
        let Which(transposed, _, _, _, values, ..) = *which;
        // Values are in the order of one certain transpose.
        let a = match values {
            0 => self.pattern(transposed, threads),
            _ => self.side(transposed, threads)?,
        };
        Ok(CsrView { values: None, order: None, ..a.view() })
    }

    /// The kernel for a product with `k` columns, by the machine's profile.
    fn kernel<T: Stored + Element>(
        &self,
        a: CsrView<'_>,
        k: usize,
        (weighted, reduce): (bool, Reduce),
    ) -> (&'static Kernel, Isa) {
        let shape = [a.n_rows(), a.n_cols, a.cols.len()];
        let point = Point { weighted, reduce: Some(reduce), ..Point::sparse(shape, k, T::DTYPE) };
        // What a core's cache holds is gathered in one way wherever it is.
        let large = point.bytes > profile().machine.near_bytes();
        let point = if large { point.gathering(self.gathers()) } else { point };
        let choice = profile().choose("spmm", &point);
        let kernel = KERNELS.iter().find(|kernel| kernel.name == choice.kernel);
        (kernel.unwrap_or(&KERNELS[0]), choice.isa)
    }
}
