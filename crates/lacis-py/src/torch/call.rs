//! Operators that Python calls: each is its arguments and what becomes of them. One table lists
//! them all; what a call needs besides (the interpreter let go, numbers by their type, threads,
//! errors) is here once.

use lacis::{Result, Threads};
use pyo3::prelude::*;

use super::adjacency::Adjacency;
use super::convert::{Number, Numbers, with_numbers};
use super::segments::Segments;
use super::threads::{settle, threads};
use super::{attention, dense, failed, losses, products, segments};

/// The arguments of an operator on `On`: an adjacency, segments, or nothing.
pub trait Call<On = ()> {
    /// Computes it on numbers of type `T`.
    ///
    /// # Errors
    /// When sizes do not fit.
    fn run<T: Number>(self, on: &On, threads: &Threads) -> Result<()>;
}

/// Runs an operator while Python does something else.
fn call<On: Sync, C: Call<On> + Send>(
    py: Python<'_>,
    on: &On,
    (numbers, count): (Numbers, usize),
    args: C,
) -> PyResult<()> {
    let run = || {
        let threads = threads(count)?;
        let done = with_numbers!(numbers, T => args.run::<T>(on, &threads));
        settle(&threads);
        done
    };
    py.detach(run).map_err(failed)
}

/// Makes a function of Python of every line: its name, what it works on if on anything, its
/// arguments.
macro_rules! operators {
    (
        on nothing { $($(#[$plain_doc:meta])* $plain:ident: $plain_args:ty;)* }
        on a graph { $($(#[$doc:meta])* $name:ident($on:ty): $args:ty;)* }
    ) => {
        $(
            $(#[$plain_doc])*
            #[pyfunction]
            fn $plain(
                py: Python<'_>,
                numbers: Numbers,
                args: $plain_args,
                count: usize,
            ) -> PyResult<()> {
                call(py, &(), (numbers, count), args)
            }
        )*
        $(
            $(#[$doc])*
            #[pyfunction]
            fn $name(
                py: Python<'_>,
                on: &$on,
                numbers: Numbers,
                args: $args,
                count: usize,
            ) -> PyResult<()> {
                call(py, on, (numbers, count), args)
            }
        )*

        /// Adds them all.
        pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
            $(module.add_function(wrap_pyfunction!($plain, module)?)?;)*
            $(module.add_function(wrap_pyfunction!($name, module)?)?;)*
            Ok(())
        }
    };
}

operators! {
    on nothing {
        /// `y = x·z`, with either of them transposed, plus what is there, plus a bias.
        gemm: dense::Gemm;
        /// The sums of columns.
        column_sums: dense::ColumnSums;
        /// Cross-entropy of classes, with its gradient where that is asked for.
        cross_entropy: losses::CrossEntropy;
    }
    on a graph {
        /// `y = left · reduce(values · right · x) + bias`.
        spmm(Adjacency): products::Spmm;
        /// A maximum or minimum `y`, and the entry of the caller's list that each element is from.
        spmm_arguments(Adjacency): products::Arguments;
        /// The gradient of `x` of a maximum or minimum `y`.
        spmm_extreme_backward(Adjacency): products::ExtremeGrad;
        /// The gradient of the entries' values of a sum or mean, in the caller's order.
        value_gradients(Adjacency): products::ValueGrads;
        /// `op(u_i, v_j)` of every entry in the caller's order.
        sddmm(Adjacency): products::Sddmm;
        /// The gradient of [`sddmm`] at the rows, or at the columns.
        sddmm_backward(Adjacency): products::SddmmGrad;
        /// GAT's attention.
        gat(Adjacency): attention::GatCall;
        /// Its gradients.
        gat_backward(Adjacency): attention::GatBackward;
        /// GATv2's attention.
        gatv2(Adjacency): attention::GatV2Call;
        /// Its gradients.
        gatv2_backward(Adjacency): attention::GatV2Backward;
        /// Attention by dot products.
        dot_attention(Adjacency): attention::DotCall;
        /// Its gradients.
        dot_attention_backward(Adjacency): attention::DotBackward;
        /// The rows of each segment as one.
        segment_reduce(Segments): segments::Reduction;
        /// Its gradient, shared by equal ones as `scatter_reduce` onto zeros does.
        segment_reduce_backward(Segments): segments::ReductionGrad;
        /// Softmax of rows over each segment.
        segment_softmax(Segments): segments::Softmax;
        /// Its gradient, from the result and the gradient of that.
        segment_softmax_backward(Segments): segments::SoftmaxGrad;
    }
}
