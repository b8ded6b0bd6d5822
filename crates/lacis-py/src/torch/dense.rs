//! Dense products for torch, and what their gradients need besides.

use lacis::exec::gemm_point;
use lacis::kernels::elementwise::column_sums;
use lacis::kernels::{Accum, Isa, gemm};
use lacis::plan::plan::Form as Planned;
use lacis::reference::Form;
use lacis::{DType, Error, Result, Threads};
use pyo3::prelude::*;

use super::call::Call;
use super::convert::{Number, Raw, RawList, optional, write};
use super::{isa, profile};

/// `x`, `z` and `y`; which factor is transposed (0 none, 1 the second, 2 the first); whether `y` is
/// added to; the address of a bias, or 0.
#[derive(Clone, Copy, Debug, FromPyObject)]
pub struct Gemm(Raw, Raw, Raw, u8, bool, usize);

impl Call for Gemm {
    fn run<T: Number>(self, (): &(), threads: &Threads) -> Result<()> {
        let Gemm(x, z, y, form, adds, bias) = self;
        let form = form_of(form)?;
        let mut args = gemm::Args::<T>::new(form, x.read::<T>()?, z.read::<T>()?)?
            .accumulated(if adds { Accum::Add } else { Accum::Replace });
        if let Some(bias) = optional(bias, y.cols())? {
            args = args.biased(bias)?;
        }
        let inner = if form == Form::Tn { x.rows() } else { x.cols() };
        let measured = kernel(form, [y.rows(), y.cols(), inner]).filter(|_| T::DTYPE == DType::F32);
        let (kernel, isa) = measured.unwrap_or_else(|| (gemm::Kernel::usual(isa(), &args), isa()));
        kernel.run(isa, &args, y.write::<T>()?, threads)
    }
}

fn form_of(code: u8) -> Result<Form> {
    let forms = [Form::Nn, Form::Nt, Form::Tn];
    let problem = || Error::argument("gemm", format!("there is no form {code}"));
    forms.get(usize::from(code)).copied().ok_or_else(problem)
}

/// The kernel for `m × n` sums over `k`, where this machine measured some.
fn kernel(form: Form, sizes: [usize; 3]) -> Option<(&'static gemm::Kernel, Isa)> {
    let planned = match form {
        Form::Nn => Planned::Nn,
        Form::Nt => Planned::Nt,
        Form::Tn => Planned::Tn,
    };
    let choice = profile().choose("matmul", &gemm_point(planned, sizes));
    let named = |kernel: &&gemm::Kernel| kernel.name == choice.kernel && kernel.takes(form);
    gemm::KERNELS.iter().find(named).map(|kernel| (kernel, choice.isa))
}

/// A matrix, and where its columns' sums go.
#[derive(Clone, Copy, Debug, FromPyObject)]
pub struct ColumnSums(Raw, RawList);

impl Call for ColumnSums {
    fn run<T: Number>(self, (): &(), threads: &Threads) -> Result<()> {
        let ColumnSums(x, sums) = self;
        column_sums(isa(), x.read::<T>()?, write(sums)?, threads)
    }
}
