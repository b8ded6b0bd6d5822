//! Operations that can be measured: `lacis bench ops` and the tuner walk one table, [`OPERATIONS`].
//!
//! ```text
//!  Operation ─ prepare(Setting) ─► Problem ─ run(kernel, isa) ─► checked on a sample of rows,
//!   (a file each)                            plain(), roof()      then timed
//! ```
//! To add one: a file with a type that implements [`Problem`], a line in [`OPERATIONS`], and its
//! kernels in [`lacis_kernels::profile::TABLES`].

mod attention;
mod attention_back;
mod edges;
mod gather;
mod gemm;
mod matrices;
pub mod measure;
pub mod numbers;
mod sample;
mod segments;
mod select;
mod spmm;
pub mod suite;

use std::any::Any;

use lacis_core::reference::{Axis, Reduce};
use lacis_core::{Csr, DType, Dense, Element, Error, Result, Threads};
use lacis_kernels::profile::{Choice, Point, Profile, Why, table};
use lacis_kernels::{Isa, Stored};

pub use sample::Sample;

/// Something to compute that has kernels to choose from.
pub struct Operation {
    /// What users call it: `spmm`.
    pub id: &'static str,
    /// What it computes, in a line.
    pub about: &'static str,
    /// What times are given per: `entry`, `row`.
    pub unit: &'static str,
    /// Whether there is a dense operand whose columns count; else the graph is the whole problem.
    pub wide: bool,
    /// Whether the tuner measures it: there is a choice of kernels, or plans ask what it costs.
    pub tuned: bool,
    /// The forms that the tuner and the tests go through, the most used first.
    pub forms: &'static [Form],
    /// Columns of the other factor that the tuner tries: 0 is as many as it has rows. Empty where
    /// there is no other factor.
    pub outer: &'static [usize],
    /// Makes inputs and room for the result.
    pub prepare: Prepare,
}

/// From a setting to a problem, or why that is not computed.
pub type Prepare = for<'a> fn(&Setting<'a>) -> Result<Box<dyn Problem + 'a>>;

/// Every operation that can be measured.
pub static OPERATIONS: &[Operation] = &[
    spmm::OPERATION,
    spmm::SELECT_REDUCE,
    gemm::MATMUL,
    gemm::ADDMM,
    edges::SDDMM,
    edges::EDGE_SOFTMAX,
    attention::OPERATION,
    select::OPERATION,
    gather::OPERATION,
    segments::INDEX_ADD,
    segments::SCATTER_ADD,
    segments::SCATTER_MEAN,
    segments::SCATTER_MAX,
    segments::SCATTER_MIN,
    segments::SCATTER_MUL,
    segments::SEGMENT_SUM,
    segments::SEGMENT_MEAN,
    segments::SEGMENT_MAX,
    segments::SEGMENT_MIN,
    segments::SEGMENT_MUL,
    matrices::SPGEMM,
    matrices::TRANSPOSE,
    matrices::SORT,
    matrices::COALESCE,
];

/// A problem whose matrices are stored in what the form says.
macro_rules! by_dtype {
    ($setting:expr, $problem:ident $(, $more:expr)*) => {
        match $setting.form.dtype {
            DType::F32 => Ok(Box::new($problem::<f32>::new($setting $(, $more)*)?)),
            DType::F64 => Ok(Box::new($problem::<f64>::new($setting $(, $more)*)?)),
            DType::Bf16 => Ok(Box::new($problem::<lacis_core::bf16>::new($setting $(, $more)*)?)),
        }
    };
}
/// The same where only single precision is measured: every other type would be compiled once more
/// for each kernel and instruction set.
macro_rules! in_single {
    ($setting:expr, $problem:ident $(, $more:expr)*) => {
        match $setting.form.dtype {
            DType::F32 => Ok(Box::new($problem::<f32>::new($setting $(, $more)*)?)),
            _ => Err(lacis_core::Error::argument("dtype", "only f32 is measured here")),
        }
    };
}
use {by_dtype, in_single};

/// What an operation is asked to do, whatever the graph and the width.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Form {
    /// How many numbers become one, where they do.
    pub reduce: Reduce,
    /// Whether entries have values.
    pub weighted: bool,
    /// What matrices are stored in.
    pub dtype: DType,
    /// Along rows (0) or columns (1), where that is a choice.
    pub axis: usize,
    /// The share of the dense operand's elements that are zero, stored all the same.
    pub sparsity: f64,
}

impl Form {
    /// A sum of unweighted single-precision rows.
    pub const PLAIN: Form =
        Form { reduce: Reduce::Sum, weighted: false, dtype: DType::F32, axis: 0, sparsity: 0.0 };

    /// The same with values.
    pub const WEIGHTED: Form = Form { weighted: true, ..Form::PLAIN };

    /// The same with another reduce.
    pub const fn reducing(reduce: Reduce) -> Form {
        Form { reduce, ..Form::PLAIN }
    }
}

/// A form on a graph.
#[derive(Clone, Copy)]
pub struct Setting<'a> {
    /// Where rows come from and go to.
    pub graph: &'a Csr,
    /// Columns of the dense operand.
    pub k: usize,
    /// Columns of the other factor of a dense product; 0 for as many as it has rows.
    pub n: usize,
    /// What is computed.
    pub form: Form,
    /// Who computes it.
    pub threads: &'a Threads,
}

impl Setting<'_> {
    /// The graph with values if the form is weighted and without if not. All-ones values are none;
    /// a graph that has no others gets made-up ones.
    ///
    /// # Errors
    /// When the system refuses the memory.
    pub fn matrix(&self) -> Result<Csr> {
        let graph = self.graph.clone().without_unit_values();
        match (self.form.weighted, graph.values().is_some()) {
            (true, false) => {
                let values = numbers::Numbers("values").vector(graph.nnz());
                graph.with_values(Some(values.into()))
            }
            (true, true) => Ok(graph),
            (false, _) => graph.with_values(None),
        }
    }

    /// The dense operand, with as many zeros as the form says.
    ///
    /// # Errors
    /// When the system refuses the memory.
    pub fn x<T: Element>(&self, n_rows: usize, n_cols: usize) -> Result<Dense<T>> {
        numbers::Numbers("x").thinned(n_rows, n_cols, self.form.sparsity)
    }

    /// Columns of the other factor of a dense product.
    pub fn outer(&self) -> usize {
        if self.n == 0 { self.k } else { self.n }
    }

    /// Along what the form works.
    pub fn axis(&self) -> Axis {
        if self.form.axis == 0 { Axis::Rows } else { Axis::Cols }
    }
}

/// Inputs, and room for a result that kernels write again and again.
pub trait Problem {
    /// What the tuner and the planner look at.
    fn point(&self) -> Point;

    /// The least bytes that must move if no cache keeps gathered rows, and the operations.
    fn volume(&self) -> Volume;

    /// Whether a kernel of the table, by its place, can compute it. The first always can.
    fn accepts(&self, _kernel: usize) -> bool {
        true
    }

    /// The kernel that callers of the operation get, where more decides than a profile's points
    /// know: whether an index is in order, say.
    fn suggested(&self) -> Option<&'static str> {
        None
    }

    /// Computes the result with a kernel of the table, by its place.
    ///
    /// # Errors
    /// When the kernel refuses the sizes.
    fn run(&mut self, kernel: usize, isa: Isa) -> Result<()>;

    /// What some rows of the result must be.
    ///
    /// # Errors
    /// When the reference refuses the sizes.
    fn sample(&self) -> Result<Sample>;

    /// Rows of what the last run gave.
    fn rows(&self, rows: &[usize]) -> Dense<f64>;

    /// Runs the loop that anyone would write; `false` where there is none.
    ///
    /// # Errors
    /// When it refuses the sizes.
    fn plain(&mut self, _isa: Isa) -> Result<bool> {
        Ok(false)
    }

    /// Moves the same data and computes nothing; `false` where that is not known. Spoils the
    /// result.
    ///
    /// # Errors
    /// When it refuses the sizes.
    fn roof(&mut self, _isa: Isa) -> Result<bool> {
        Ok(false)
    }
}

/// How much one run moves and computes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Volume {
    /// Bytes read and written.
    pub bytes: f64,
    /// Additions and multiplications.
    pub flops: f64,
}

impl Operation {
    /// The names of its kernels.
    pub fn kernels(&self) -> Vec<&'static str> {
        table(self.id).map_or_else(Vec::new, |table| (table.kernels)())
    }

    /// The place in its table of the kernel that a profile chooses for a problem, and what to run
    /// it with; another that accepts the problem where that one does not.
    pub fn choose(&self, profile: &Profile, problem: &dyn Problem) -> (usize, Choice) {
        let names = self.kernels();
        let mut choice = match problem.suggested() {
            Some(kernel) => Choice { kernel, isa: Isa::best(), why: Why::Analytic },
            None => profile.choose(self.id, &problem.point()),
        };
        let chosen = names.iter().position(|name| *name == choice.kernel);
        let chosen = chosen.filter(|&place| problem.accepts(place));
        let place = chosen.or_else(|| (0..names.len()).find(|&place| problem.accepts(place)));
        let place = place.unwrap_or(0);
        choice.kernel = names[place];
        (place, choice)
    }
}

/// Single-precision matrices as what they are; `None` for others. The loops that kernels are
/// measured against know no others.
fn single<'d, T: Stored>(
    x: &'d Dense<T>,
    y: &'d mut Dense<T>,
) -> Option<(&'d Dense, &'d mut Dense)> {
    let x = (x as &dyn Any).downcast_ref()?;
    Some((x, (y as &mut dyn Any).downcast_mut()?))
}

/// The operation of this name.
///
/// # Errors
/// When there is none; the message lists those that are.
pub fn find(id: &str) -> Result<&'static Operation> {
    OPERATIONS.iter().find(|op| op.id == id).ok_or_else(|| {
        let known: Vec<_> = OPERATIONS.iter().map(|op| op.id).collect();
        let problem = format!("is no operation; one of these would be: {}", known.join(" "));
        Error::argument(format!("'{id}'"), problem)
    })
}

/// The instruction sets worth trying: the narrowest only where there is no other.
pub fn instruction_sets() -> Vec<Isa> {
    let mut all = Isa::available();
    if all.len() > 1 {
        all.pop();
    }
    all
}
