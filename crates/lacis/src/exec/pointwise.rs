//! Passes over elements, norms, readout, the loss, and what is small.

use bytemuck::Zeroable;
use lacis_core::reference::{Axis, Moments, Reduce, Ties};
use lacis_core::{Result, Rng, RowPtrView};
use lacis_kernels::dropout::Dropout;
use lacis_kernels::elementwise::{Backward, Forward, Saved, column_sums};
use lacis_kernels::loss::Grad;
use lacis_kernels::norm::{self, Norm, Scaling};
use lacis_kernels::segment::Segments;
use lacis_kernels::segment::backward::Backward as SegmentBackward;
use lacis_kernels::segment::reduce;
use lacis_kernels::{Mat, MatMut};
use lacis_plan::Dim;
use lacis_plan::op::{Function, NormKind, Number};
use lacis_plan::plan::{Each, Operator, Step};

use super::slots::{Held, Taken};
use super::{Context, Executor, Outcome, Targets, of_batch, purpose, wrong};
use crate::params::Params;

/// What torch adds to variances, and how fast running estimates follow.
const EPS: f64 = 1e-5;
const MOMENTUM: f64 = 0.1;

impl Executor {
    /// A dropout of this pass; nothing is dropped outside training.
    fn dropout<'c>(
        &self,
        (p, key): (Number, u32),
        rows: Dim,
        context: &'c Context<'_>,
    ) -> Result<Dropout<'c>> {
        let p = if context.training { p.get() } else { 0.0 };
        let dropout = Dropout::new(Rng::new(context.seed, &purpose(key)), p)?;
        Ok(match (context.levels.order(), rows) {
            (Some(order), Dim::Nodes(level)) => {
                dropout.at_rows(&order[..context.levels.n_nodes(level as usize)])
            }
            _ => dropout,
        })
    }

    pub(super) fn each<T: Held>(
        &mut self,
        step: &Step,
        each: &Each,
        context: &Context<'_>,
        params: &Params,
    ) -> Result<()> {
        let mut out = self.taken(step, 0, context)?;
        let [rows, cols] = self.shape(step.outputs[0], context);
        let mut pass = if self.plan.in_place(step) {
            Forward::in_place(rows, cols)
        } else {
            Forward::new(self.mat::<T>(step.inputs[0], context, params)?)
        };
        let mut rest = step.inputs[1..].iter().copied();
        pass = pass.scaled(each.scale.get());
        if each.rows {
            let value = rest.next().ok_or_else(|| wrong(step))?;
            pass = pass.row_scaled(self.vector(value, context, params)?)?;
        }
        if let Some(beta) = each.plus {
            let value = rest.next().ok_or_else(|| wrong(step))?;
            pass = pass.plus(beta.get(), self.mat::<T>(value, context, params)?)?;
        }
        if each.bias {
            let value = rest.next().ok_or_else(|| wrong(step))?;
            pass = pass.biased(self.vector(value, context, params)?)?;
        }
        pass = pass.activated(each.function.into());
        if let Some(dropout) = each.dropout {
            let rows = self.plan.values[step.outputs[0]].shape[0];
            pass = pass.dropped(self.dropout(dropout, rows, context)?)?;
        }
        pass.run(self.isa, out.mat::<T>()?, &self.threads)?;
        self.put(out);
        Ok(())
    }

    pub(super) fn each_grad<T: Held>(
        &mut self,
        step: &Step,
        context: &Context<'_>,
        params: &Params,
    ) -> Result<()> {
        let Operator::EachGrad { function, dropout, scale } = step.operator else {
            return Err(wrong(step));
        };
        let mut out = self.taken(step, 0, context)?;
        let [rows, cols] = self.shape(step.outputs[0], context);
        let mut in_place = self.plan.in_place(step);
        // What was saved came before the dropout, whose pass is one of its own; the scale is that
        // of a mask whose sign was saved, and outside training nothing was dropped.
        let scale = if context.training { scale.get() } else { 1.0 };
        let mask = mask_of(function, scale)?;
        if dropout.is_some() || (scale != 1.0 && mask.is_none()) {
            let mut pass = match in_place {
                true => Forward::in_place(rows, cols),
                false => Forward::new(self.mat::<T>(step.inputs[0], context, params)?),
            };
            pass = pass.scaled(scale);
            if let Some(dropout) = dropout {
                let rows = self.plan.values[step.outputs[0]].shape[0];
                pass = pass.dropped(self.dropout(dropout, rows, context)?)?;
            }
            pass.run(self.isa, out.mat::<T>()?, &self.threads)?;
            in_place = true;
        }
        let pass = match in_place {
            true => Backward::in_place(rows, cols),
            false => Backward::new(self.mat::<T>(step.inputs[0], context, params)?),
        };
        let saved = self.mat::<T>(step.inputs[1], context, params)?;
        let saved = match function {
            Function::Identity => Saved::Nothing,
            function if function.saves_result() => Saved::Output(saved),
            _ => Saved::Input(saved),
        };
        let mut pass = pass.activated(function.into(), saved)?;
        if let Some(mask) = mask.filter(|_| dropout.is_none()) {
            pass = pass.dropped(mask)?;
        }
        pass.run(self.isa, out.mat::<T>()?, None, &self.threads)?;
        self.put(out);
        Ok(())
    }

    pub(super) fn norm<T: Held>(
        &mut self,
        step: &Step,
        (kind, key): (NormKind, u32),
        context: &Context<'_>,
        params: &Params,
    ) -> Result<()> {
        let mut out = self.taken(step, 0, context)?;
        let x = self.mat::<T>(step.inputs[0], context, params)?;
        let gamma = self.vector(step.inputs[1], context, params)?;
        let beta = self.vector(step.inputs[2], context, params)?;
        let norm = Norm { gamma, beta, eps: EPS };
        if kind == NormKind::Layer {
            norm::layer(self.isa, &norm, x, out.mat::<T>()?, &self.threads)?;
            self.put(out);
            return Ok(());
        }
        let width = x.n_cols();
        let mut running =
            self.running.get(&key).cloned().unwrap_or_else(|| Moments::standard(width));
        let scaling = if of_batch(kind, context.training) {
            let moments = norm::moments(self.isa, x, &self.threads);
            norm::update_running(&mut running, &moments, x.n_rows(), MOMENTUM)?;
            Scaling::batch(&moments, x.n_rows(), EPS)?
        } else {
            Scaling::fixed(&running, EPS)
        };
        let columns = scaling.columns(&norm)?;
        columns.forward(Forward::new(x))?.run(self.isa, out.mat::<T>()?, &self.threads)?;
        self.running.insert(key, running);
        self.scalings.insert(key, scaling);
        self.put(out);
        Ok(())
    }

    pub(super) fn norm_grad<T: Held>(
        &mut self,
        step: &Step,
        (kind, key): (NormKind, u32),
        context: &Context<'_>,
        params: &Params,
    ) -> Result<()> {
        let mut outs = [0, 1, 2].map(|index| self.taken(step, index, context));
        let [Ok(dx), Ok(dgamma), Ok(dbeta)] = &mut outs else { return Err(wrong(step)) };
        let x = self.mat::<T>(step.inputs[0], context, params)?;
        let gamma = self.vector(step.inputs[1], context, params)?;
        let grad = self.mat::<T>(step.inputs[2], context, params)?;
        let norm = Norm { gamma, beta: gamma, eps: EPS };
        let grads = norm::Grads { x: dx.mat::<T>()?, gamma: dgamma.slice(), beta: dbeta.slice() };
        match (kind, self.scalings.get(&key)) {
            (NormKind::Layer, _) => {
                norm::layer_backward(self.isa, &norm, (x, grad), grads, &self.threads)?;
            }
            (NormKind::Batch, Some(scaling)) => {
                norm::backward(self.isa, (scaling, &norm), (x, grad), grads, &self.threads)?;
            }
            (NormKind::Batch, None) => return Err(wrong(step)),
        }
        for out in outs {
            self.put(out?);
        }
        Ok(())
    }

    pub(super) fn readout<T: Held>(
        &mut self,
        step: &Step,
        context: &Context<'_>,
        params: &Params,
    ) -> Result<()> {
        let mut out = self.taken(step, 0, context)?;
        let x = self.mat::<T>(step.inputs[0], context, params)?;
        let ptr = context.graphs.ok_or_else(|| wrong(step))?;
        let segments = Segments::from_ptr(RowPtrView::Narrow(ptr), x.n_rows())?;
        match step.operator {
            Operator::Readout(read) => {
                let args = reduce::Args::new(x, segments, read.into(), Axis::Rows)?;
                reduce::choose(&args).run(self.isa, &args, out.mat::<T>()?, &self.threads)?;
            }
            Operator::ReadoutGrad(read) => {
                let args = reduce::Args::new(x, segments, Reduce::from(read), Axis::Rows)?;
                let grad = self.mat::<T>(step.inputs[2], context, params)?;
                let back = SegmentBackward::new(args, Ties::SplitWithInitialZero, grad)?;
                back.run(self.isa, out.mat::<T>()?, &self.threads)?;
            }
            _ => return Err(wrong(step)),
        }
        self.put(out);
        Ok(())
    }

    pub(super) fn loss(
        &mut self,
        step: &Step,
        context: &Context<'_>,
        params: &Params,
    ) -> Result<()> {
        let mut out = self.taken(step, 0, context)?;
        let mut room = std::mem::take(&mut self.scratch);
        let found = self.loss_of(step, (context, params), &mut out, &mut room);
        self.scratch = room;
        self.outcome = found?;
        self.put(out);
        Ok(())
    }

    /// The loss, whose gradient goes to `out`; logits in the same place are read there.
    fn loss_of(
        &self,
        step: &Step,
        (context, params): (&Context<'_>, &Params),
        out: &mut Taken,
        room: &mut Vec<f32>,
    ) -> Result<Outcome> {
        let logits = match self.plan.in_place(step) {
            true => None,
            false => Some(self.mat::<f32>(step.inputs[0], context, params)?),
        };
        let loss = match (context.targets, logits) {
            (Targets::None, _) => return Err(wrong(step)),
            (Targets::Loss(loss), logits) => {
                let (isa, threads) = (self.isa, &self.threads);
                let found = match logits {
                    None => loss.run_in_place(isa, out.mat::<f32>()?, threads)?,
                    Some(logits) => loss.run(isa, logits, Grad::All(out.mat()?), threads)?,
                };
                return Ok(Outcome { loss: found.loss, correct: found.correct });
            }
            (Targets::Weighted(loss), logits) => loss.run(logits, out.mat()?, room),
            (Targets::Numbers(targets, rows), Some(logits)) => {
                squares(logits, (targets, rows), out.mat()?)
            }
            // Rows may be listed in any order: what is to be read moves out first.
            (Targets::Numbers(targets, rows), None) => {
                room.clear();
                room.extend_from_slice(out.slice::<f32>());
                let [n_rows, n_cols] = self.shape(step.inputs[0], context);
                let logits = Mat::new(room, n_rows, n_cols, n_cols)?;
                squares(logits, (targets, rows), out.mat()?)
            }
        };
        Ok(Outcome { loss, correct: 0 })
    }

    /// Copies, sums of columns, and numbers.
    pub(super) fn small<T: Held>(
        &mut self,
        step: &Step,
        context: &Context<'_>,
        params: &Params,
    ) -> Result<()> {
        let mut out = self.taken(step, 0, context)?;
        match step.operator {
            Operator::ColumnSums => {
                let x = self.mat::<T>(step.inputs[0], context, params)?;
                column_sums(self.isa, x, out.slice::<f32>(), &self.threads)?;
            }
            Operator::Dot => {
                let a = self.mat::<T>(step.inputs[0], context, params)?;
                let b = self.mat::<T>(step.inputs[1], context, params)?;
                let row = |i: usize| {
                    let pairs = a.row(i).iter().zip(b.row(i));
                    pairs.map(|(a, b)| f64::from(a.wide() * b.wide())).sum::<f64>()
                };
                out.slice::<f32>()[0] = (0..a.n_rows()).map(row).sum::<f64>() as f32;
            }
            Operator::ScaleBy => {
                let by = self.mat::<f32>(step.inputs[0], context, params)?.data()[0];
                let x = self.mat::<T>(step.inputs[1], context, params)?;
                let pass = Forward::new(x).scaled(f64::from(by));
                pass.run(self.isa, out.mat::<T>()?, &self.threads)?;
            }
            Operator::Transpose => {
                let x = self.mat::<T>(step.inputs[0], context, params)?;
                let mut y = out.mat::<T>()?;
                for i in 0..y.n_rows() {
                    y.row_mut(i).iter_mut().enumerate().for_each(|(j, y)| *y = x.row(j)[i]);
                }
            }
            Operator::Pad => {
                let [rows, cols] = self.shape(step.inputs[0], context);
                let (top, below) = out.slice::<T>().split_at_mut(rows * cols);
                if !self.plan.in_place(step) {
                    let x = self.mat::<T>(step.inputs[0], context, params)?;
                    let top = MatMut::new(top, rows, cols, cols)?;
                    Forward::new(x).run(self.isa, top, &self.threads)?;
                }
                below.fill(Zeroable::zeroed());
            }
            Operator::PadColumns { from } => {
                let x = self.mat::<T>(step.inputs[0], context, params)?;
                let mut y = out.mat::<T>()?;
                for i in 0..y.n_rows() {
                    let row = y.row_mut(i);
                    row.fill(Zeroable::zeroed());
                    row[from..from + x.n_cols()].copy_from_slice(x.row(i));
                }
            }
            Operator::Concat => {
                let mut from = 0;
                let mut y = out.mat::<T>()?;
                for &input in &step.inputs {
                    let x = self.mat::<T>(input, context, params)?;
                    for i in 0..y.n_rows() {
                        y.row_mut(i)[from..from + x.n_cols()].copy_from_slice(x.row(i));
                    }
                    from += x.n_cols();
                }
            }
            _ => return Err(wrong(step)),
        }
        self.put(out);
        Ok(())
    }
}

/// The dropout whose scale this is, where a ReLU's saved sign tells who was kept: the pass
/// back through both then draws nothing.
fn mask_of(function: Function, scale: f64) -> Result<Option<Dropout<'static>>> {
    if function != Function::Relu || scale <= 1.0 {
        return Ok(None);
    }
    let mask = Dropout::new(Rng::new(0, "mask"), 1.0 - 1.0 / scale)?;
    Ok((mask.scale() == scale).then_some(mask))
}

/// The mean squared difference of some rows; its gradient has zeros elsewhere.
fn squares(logits: Mat<'_>, (targets, rows): (Mat<'_>, &[u32]), mut grad: MatMut<'_>) -> f64 {
    let count = (rows.len() * logits.n_cols()).max(1) as f64;
    let mut sum = 0.0;
    (0..grad.n_rows()).for_each(|i| grad.row_mut(i).fill(0.0));
    for i in rows.iter().map(|&i| i as usize) {
        let pairs = logits.row(i).iter().zip(targets.row(i));
        for (g, (x, t)) in grad.row_mut(i).iter_mut().zip(pairs) {
            let off = f64::from(x - t);
            sum += off * off;
            *g = (2.0 * off / count) as f32;
        }
    }
    sum / count
}
