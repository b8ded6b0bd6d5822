//! Products: sparse times dense, dense times dense.

use std::time::Instant;

use lacis_core::reference::{Form as KernelForm, Reduce};
use lacis_core::{DType, Result, bf16};
use lacis_kernels::profile::{Gathers, Point, gathers};
use lacis_kernels::sampled::Scaled;
use lacis_kernels::{Accum, Epilogue, Isa, Profile, gemm, sparse_matmul, spmm};
use lacis_plan::Sizes;
use lacis_plan::cost::{Work, work};
use lacis_plan::plan::{Ending, Form, Operator, Plan, Step};

use super::slots::Held;
use super::{Context, Executor};
use crate::approx::{Approx, Factors};
use crate::params::Params;

/// The kernel of each step that has a choice.
pub(super) struct Kernels {
    profile: Profile,
    spmm: Vec<(usize, Isa)>,
    /// What each sparse product is, until its matrix has been looked at.
    unseen: Vec<Option<Point>>,
    gemm: Vec<Option<(usize, Isa)>>,
    /// Whether none may copy its operand.
    pub sparing: bool,
}

impl Kernels {
    pub fn new(plan: &Plan, profile: &Profile) -> Self {
        let n = plan.steps.len();
        Kernels {
            profile: profile.clone(),
            spmm: vec![(0, Isa::best()); n],
            unseen: vec![None; n],
            gemm: vec![None; n],
            sparing: false,
        }
    }

    pub fn choose(&mut self, plan: &Plan, sizes: &Sizes) {
        for (index, step) in plan.steps.iter().enumerate() {
            match work(plan, step, sizes) {
                Work::Spmm { shape, width, valued, extreme, half, .. } => {
                    let reduce = if extreme { Reduce::Max } else { Reduce::Sum };
                    let point = stored_point(shape, (width, half), valued, reduce);
                    self.spmm[index] = self.for_spmm(&point);
                    // What a core's cache holds is gathered in one way wherever it is.
                    let large = point.bytes > self.profile.machine.near_bytes();
                    self.unseen[index] = large.then_some(point);
                }
                Work::Gemm { form, sizes, .. } => {
                    let point = gemm_point(form, sizes);
                    let choice = self.profile.choose("matmul", &point);
                    let named = |kernel: &gemm::Kernel| kernel.name == choice.kernel;
                    let at = gemm::KERNELS.iter().position(named);
                    let takes = |at: &usize| gemm::KERNELS[*at].takes(kernel_form(form));
                    self.gemm[index] = at.filter(takes).map(|at| (at, choice.isa));
                }
                _ => {}
            }
        }
    }

    fn for_spmm(&self, point: &Point) -> (usize, Isa) {
        let choice = self.profile.choose("spmm", point);
        let taken = |kernel: &spmm::Kernel| {
            kernel.name == choice.kernel && !(self.sparing && kernel.copies())
        };
        (spmm::KERNELS.iter().position(taken).unwrap_or(0), choice.isa)
    }

    /// Chooses anew when the matrix of a large sparse product is first seen.
    fn look_at(&mut self, index: usize, gathers: Gathers) {
        if let Some(point) = self.unseen[index].take() {
            self.spmm[index] = self.for_spmm(&point.gathering(gathers));
        }
    }

    /// The names of what a step runs, for `explain`.
    pub fn name(&self, index: usize, step: &Step) -> Option<&'static str> {
        match step.operator {
            Operator::Spmm { .. } => Some(spmm::KERNELS[self.spmm[index].0].name),
            Operator::Gemm { .. } => self.gemm[index].map(|(at, _)| gemm::KERNELS[at].name),
            _ => None,
        }
    }
}

/// A sparse product as the profile knows it.
pub fn spmm_point(shape: [usize; 3], width: usize, valued: bool, reduce: Reduce) -> Point {
    stored_point(shape, (width, false), valued, reduce)
}

/// The same of columns that may be stored in bf16.
pub(crate) fn stored_point(
    shape: [usize; 3],
    (width, half): (usize, bool),
    valued: bool,
    reduce: Reduce,
) -> Point {
    let stored = if half { DType::Bf16 } else { DType::F32 };
    Point { weighted: valued, reduce: Some(reduce), ..Point::sparse(shape, width, stored) }
}

/// A dense product as the profile knows it: rows are nodes, and along them it sums where the first
/// factor is transposed.
pub fn gemm_point(form: Form, [m, n, k]: [usize; 3]) -> Point {
    let (nodes, inner, axis) = match form {
        Form::Tn => (k, m, 1),
        Form::Nn | Form::Nt => (m, k, 0),
    };
    let point = Point::sparse([nodes, nodes, nodes], inner, DType::F32);
    Point { reduce: None, axis, n, ..point }
}

fn kernel_form(form: Form) -> KernelForm {
    match form {
        Form::Nn => KernelForm::Nn,
        Form::Nt => KernelForm::Nt,
        Form::Tn => KernelForm::Tn,
    }
}

fn accum(ending: Ending) -> Accum {
    match ending.gate {
        Some(function) => Accum::Gate(function.into()),
        None if ending.accumulate => Accum::Add,
        None => Accum::Replace,
    }
}

impl Executor {
    /// What the kernels of a step are called, where it has some to choose from.
    pub fn kernel_name(&self, index: usize) -> Option<&'static str> {
        self.kernels.name(index, &self.plan.steps[index])
    }

    pub(super) fn spmm(
        &mut self,
        index: usize,
        step: &Step,
        context: &Context<'_>,
        params: &Params,
    ) -> Result<()> {
        if self.is_half(step) {
            return self.product_in_half(index, step, (context, params));
        }
        // Outside, while slots are read.
        let mut approx = self.approx.take();
        let start = approx.is_some().then(Instant::now);
        let sampled = self.product(index, step, (context, params), approx.as_mut());
        if let (Some(approx), Some(start), Ok(sampled)) = (&mut approx, start, &sampled) {
            approx.spent(index, start.elapsed().as_secs_f64(), *sampled);
        }
        self.approx = approx;
        sampled.map(|_| ())
    }

    /// A product, of all pairs or, where somebody chose them, of some; says which.
    fn product(
        &mut self,
        index: usize,
        step: &Step,
        (context, params): (&Context<'_>, &Params),
        approx: Option<&mut Approx>,
    ) -> Result<bool> {
        let Operator::Spmm { left, right, ending } = step.operator else {
            return Err(super::wrong(step));
        };
        self.look(index, step, context)?;
        let mut out = self.taken(step, 0, context)?;
        let (a, values) = self.sparse(step.inputs[0], context)?;
        let x = self.mat(step.inputs[1], context, params)?;
        let [left, right, bias] =
            self.vectors(step, [left, right, ending.bias], context, params)?;
        let of = Factors { a: Scaled { a, values, left, right }, x };
        let sample = match approx {
            Some(approx) => approx.sample(index, &of, (&self.kernels.profile, &self.threads))?,
            None => None,
        };
        let (args, (kernel, isa)) = match sample {
            Some(sample) => {
                let args = spmm::Args::new(sample.matrix.view(), x, Reduce::Sum)?;
                (args.scaled(left, None)?, sample.kernel)
            }
            None => {
                let args = spmm::Args::new(a, x, Reduce::Sum)?.scaled(left, right)?;
                let args = values.map_or(Ok(args), |values| args.weighted(values))?;
                (args, self.kernels.spmm[index])
            }
        };
        let epilogue = Epilogue { accum: accum(ending), bias, activation: ending.function.into() };
        spmm::KERNELS[kernel].run(isa, &args.ending(epilogue)?, out.mat()?, &self.threads)?;
        self.put(out);
        Ok(sample.is_some())
    }

    /// Chooses a large sparse product's kernel anew when its matrix is first seen.
    fn look(&mut self, index: usize, step: &Step, context: &Context<'_>) -> Result<()> {
        if self.kernels.unseen[index].is_some() {
            let gathers = gathers(self.sparse(step.inputs[0], context)?.0);
            self.kernels.look_at(index, gathers);
        }
        Ok(())
    }

    /// The vectors of a sparse product that it has: scales of rows and columns, a bias.
    fn vectors<'e>(
        &'e self,
        step: &Step,
        there: [bool; 3],
        context: &'e Context<'_>,
        params: &'e Params,
    ) -> Result<[Option<&'e [f32]>; 3]> {
        let mut rest = step.inputs[2..].iter();
        let mut found = [None; 3];
        for (found, there) in found.iter_mut().zip(there) {
            let value = if there { rest.next() } else { None };
            *found = value.map(|&value| self.vector(value, context, params)).transpose()?;
        }
        Ok(found)
    }

    /// A product of all pairs whose rows are stored in bf16.
    fn product_in_half(
        &mut self,
        index: usize,
        step: &Step,
        (context, params): (&Context<'_>, &Params),
    ) -> Result<()> {
        let Operator::Spmm { left, right, ending } = step.operator else {
            return Err(super::wrong(step));
        };
        self.look(index, step, context)?;
        let mut out = self.taken(step, 0, context)?;
        let (a, values) = self.sparse(step.inputs[0], context)?;
        let x = self.mat::<bf16>(step.inputs[1], context, params)?;
        let [left, right, bias] =
            self.vectors(step, [left, right, ending.bias], context, params)?;
        let args = spmm::Args::new(a, x, Reduce::Sum)?.scaled(left, right)?;
        let args = values.map_or(Ok(args), |values| args.weighted(values))?;
        let epilogue = Epilogue { accum: accum(ending), bias, activation: ending.function.into() };
        let (kernel, isa) = self.kernels.spmm[index];
        spmm::KERNELS[kernel].run(isa, &args.ending(epilogue)?, out.mat()?, &self.threads)?;
        self.put(out);
        Ok(())
    }

    pub(super) fn gemm(
        &mut self,
        index: usize,
        step: &Step,
        context: &Context<'_>,
        params: &Params,
    ) -> Result<()> {
        let half = |value: usize| self.plan.values[value].half;
        match [step.inputs[0], step.inputs[1], step.outputs[0]].map(half) {
            [true, true, _] => self.multiply::<bf16, bf16, f32>(index, step, context, params),
            [true, false, true] => self.multiply::<bf16, f32, bf16>(index, step, context, params),
            [true, false, false] => self.multiply::<bf16, f32, f32>(index, step, context, params),
            _ => self.multiply::<f32, f32, f32>(index, step, context, params),
        }
    }

    fn multiply<X: Held, Z: Held, O: Held>(
        &mut self,
        index: usize,
        step: &Step,
        context: &Context<'_>,
        params: &Params,
    ) -> Result<()> {
        let Operator::Gemm { form, ending } = step.operator else { return Err(super::wrong(step)) };
        let mut out = self.taken(step, 0, context)?;
        let x = self.mat::<X>(step.inputs[0], context, params)?;
        let z = self.mat::<Z>(step.inputs[1], context, params)?;
        let mut args = gemm::Args::new(kernel_form(form), x, z)?
            .accumulated(accum(ending))
            .activated(ending.function.into());
        let mut rest = &step.inputs[2..];
        if let (true, &[x, z, ref others @ ..]) = (ending.plus, rest) {
            args =
                args.plus(self.mat::<X>(x, context, params)?, self.mat::<Z>(z, context, params)?)?;
            rest = others;
        }
        if ending.bias {
            args = args.biased(self.vector(rest[0], context, params)?)?;
        }
        let (kernel, isa) = match self.kernels.gemm[index] {
            Some((at, isa)) => (&gemm::KERNELS[at], isa),
            None => (gemm::Kernel::usual(self.isa, &args), self.isa),
        };
        kernel.run(isa, &args, out.mat::<O>()?, &self.threads)?;
        self.put(out);
        Ok(())
    }

    pub(super) fn sparse_transposed(
        &mut self,
        step: &Step,
        context: &Context<'_>,
        params: &Params,
    ) -> Result<()> {
        let mut out = self.taken(step, 0, context)?;
        let (x, values) = self.sparse(step.inputs[0], context)?;
        let view = lacis_core::CsrView { values: values.or(x.values), ..x };
        let grad = self.mat(step.inputs[1], context, params)?;
        let mut args = sparse_matmul::Args::new(view, grad)?;
        // Features that no epoch changes are kept the other way round too.
        if let (None, Some(turned)) = (values, context.levels.features_turned(&self.threads)) {
            args = args.transposed(turned.view())?;
        }
        let first = sparse_matmul::KERNELS.iter().find(|kernel| kernel.takes(&args));
        let kernel = first.ok_or_else(|| super::wrong(step))?;
        kernel.run(self.isa, &args, out.mat()?, &self.threads)?;
        self.put(out);
        Ok(())
    }
}
