//! Attention, gates, and maxima over a node's edges.

use lacis_core::reference::{Reduce, Ties};
use lacis_core::{CsrView, Result, Rng};
use lacis_kernels::attention::{Gat, GatGrads, GatV2, GatV2Grads, Given};
use lacis_kernels::dropout::Dropout;
use lacis_kernels::elementwise::Forward;
use lacis_kernels::{Mat, MatMut, gated, spmm};
use lacis_plan::op::{Attention, Scores};
use lacis_plan::plan::{Operator, Place, Step};

use super::slots::{Held, Taken};
use super::{Context, Executor, purpose, wrong};
use crate::params::Params;

impl Executor {
    /// `t`, `u` or `v` as one row per head.
    fn per_head<'e>(vectors: Mat<'e>, heads: usize) -> Result<Mat<'e>> {
        let channels = vectors.data().len() / heads.max(1);
        Mat::new(vectors.data(), heads, channels, channels)
    }

    /// Which coefficients are dropped: by the whole graph's numbers of edges.
    fn coefficient_dropout<'c>(
        &self,
        step: &Step,
        attention: &Attention,
        context: &'c Context<'_>,
    ) -> Result<Option<Dropout<'c>>> {
        if !context.training || attention.dropout.get() == 0.0 {
            return Ok(None);
        }
        let rng = Rng::new(context.seed, &purpose(attention.key));
        let dropout = Dropout::new(rng, attention.dropout.get())?;
        let edges = match self.plan.values[step.inputs[0]].place {
            Place::Adjacency(adjacency) => context.levels.edges(adjacency),
            _ => None,
        };
        Ok(Some(edges.map_or(dropout, |edges| dropout.at_rows(edges))))
    }

    fn gat<'e, T: Held>(
        &'e self,
        step: &Step,
        attention: &Attention,
        context: &'e Context<'_>,
        params: &'e Params,
    ) -> Result<Gat<'e, T>> {
        let (a, _) = self.sparse(step.inputs[0], context)?;
        let source = self.mat::<T>(step.inputs[1], context, params)?;
        let t = Self::per_head(self.mat(step.inputs[2], context, params)?, attention.heads)?;
        let u = Self::per_head(self.mat(step.inputs[3], context, params)?, attention.heads)?;
        let mut gat = Gat::new(a, source, [t, u], attention.slope.get())?;
        if a.n_rows() != a.n_cols {
            gat = gat.with_target(source.rows(0..a.n_rows()))?;
        }
        if let Some(dropout) = self.coefficient_dropout(step, attention, context)? {
            gat = gat.with_dropout(dropout)?;
        }
        Ok(gat)
    }

    /// The same where the gradient of the features takes their place.
    fn gat_in_place<'e, T: Held>(
        &'e self,
        step: &Step,
        attention: &Attention,
        context: &'e Context<'_>,
        params: &'e Params,
    ) -> Result<Gat<'e, T>> {
        let (a, _) = self.sparse(step.inputs[0], context)?;
        let width = self.shape(step.inputs[1], context)[1];
        let t = Self::per_head(self.mat(step.inputs[2], context, params)?, attention.heads)?;
        let u = Self::per_head(self.mat(step.inputs[3], context, params)?, attention.heads)?;
        let gat = Gat::in_place(a, width, [t, u], attention.slope.get())?;
        match self.coefficient_dropout(step, attention, context)? {
            Some(dropout) => gat.with_dropout(dropout),
            None => Ok(gat),
        }
    }

    fn gatv2<'e, T: Held>(
        &'e self,
        step: &Step,
        attention: &Attention,
        context: &'e Context<'_>,
        params: &'e Params,
    ) -> Result<GatV2<'e, T>> {
        let (a, _) = self.sparse(step.inputs[0], context)?;
        let target = self.mat::<T>(step.inputs[1], context, params)?;
        let source = self.mat::<T>(step.inputs[2], context, params)?;
        let v = Self::per_head(self.mat(step.inputs[3], context, params)?, attention.heads)?;
        let mut gat = GatV2::new(a, [target, source], v, attention.slope.get())?;
        if let Some(dropout) = self.coefficient_dropout(step, attention, context)? {
            gat = gat.with_dropout(dropout)?;
        }
        Ok(gat)
    }

    pub(super) fn attend<T: Held>(
        &mut self,
        step: &Step,
        attention: &Attention,
        context: &Context<'_>,
        params: &Params,
    ) -> Result<()> {
        let (mut y, mut lse) = (self.taken(step, 0, context)?, self.taken(step, 1, context)?);
        let outputs = (y.mat::<T>()?, lse.mat::<f32>()?);
        match attention.scores {
            Scores::Gat => {
                let gat = self.gat::<T>(step, attention, context, params)?;
                gat.forward(self.isa, outputs, &self.threads)?;
            }
            Scores::GatV2 => {
                let gat = self.gatv2::<T>(step, attention, context, params)?;
                gat.forward(self.isa, outputs, &self.threads)?;
            }
        }
        self.put(y);
        self.put(lse);
        Ok(())
    }

    /// The transpose of a step's adjacency.
    fn transposed<'c>(&self, step: &Step, context: &'c Context<'_>) -> Result<CsrView<'c>> {
        match self.plan.values[step.inputs[0]].place {
            Place::Adjacency(adjacency) => Ok(context.levels.matrix(adjacency.turned()).view()),
            _ => Err(wrong(step)),
        }
    }

    pub(super) fn attend_grad<T: Held>(
        &mut self,
        step: &Step,
        attention: &Attention,
        context: &Context<'_>,
        params: &Params,
    ) -> Result<()> {
        let mut outs = Vec::new();
        for index in 0..3 {
            outs.push(self.taken(step, index, context)?);
        }
        let mut own = std::mem::take(&mut self.scratch);
        let [.., lse, grad] = step.inputs[..] else { return Err(wrong(step)) };
        let grad = self.mat::<T>(grad, context, params)?;
        let y = match step.looks_again() {
            true => Mat::new(&[], grad.n_rows(), 0, 0)?,
            false => self.mat::<T>(step.inputs[4], context, params)?,
        };
        let given = Given {
            transpose: self.transposed(step, context)?,
            y,
            bias: None,
            lse: self.mat::<f32>(lse, context, params)?,
            grad,
        };
        let [first, second, third] = outs.as_mut_slice() else { return Err(wrong(step)) };
        let over = self.plan.slot_of(step.inputs[1]) == self.plan.slot_of(step.outputs[0]);
        match attention.scores {
            Scores::Gat => {
                let gat = match over {
                    true => self.gat_in_place::<T>(step, attention, context, params)?,
                    false => self.gat::<T>(step, attention, context, params)?,
                };
                self.gat_grads(&gat, (attention, &given), ([first, second, third], &mut own))?;
            }
            Scores::GatV2 => {
                let gat = self.gatv2::<T>(step, attention, context, params)?;
                let grads = GatV2Grads {
                    target: first.mat::<T>()?,
                    source: second.mat::<T>()?,
                    vectors: heads_of(third, attention.heads)?,
                    features: None,
                    bias: None,
                };
                gat.backward(self.isa, &given, grads, &self.threads)?;
            }
        }
        outs.into_iter().for_each(|out| self.put(out));
        self.scratch = own;
        Ok(())
    }

    fn gat_grads<T: Held>(
        &self,
        gat: &Gat<'_, T>,
        (attention, given): (&Attention, &Given<'_, T>),
        ([source, t, u], own): ([&mut Taken; 3], &mut Vec<f32>),
    ) -> Result<()> {
        let (rows, width) = (given.grad.n_rows(), given.grad.n_cols());
        // Targets that are not all sources have a gradient of their own, added to the first rows.
        let apart = rows != given.transpose.n_rows();
        if apart && own.len() < rows * width {
            own.resize(rows * width, 0.0);
        }
        let own: &mut [T] = bytemuck::cast_slice_mut(own);
        let own = &mut own[..if apart { rows * width } else { 0 }];
        let target = apart.then(|| MatMut::new(own, rows, width, width)).transpose()?;
        let grads = GatGrads {
            source: source.mat::<T>()?,
            target,
            target_vectors: heads_of(t, attention.heads)?,
            source_vectors: heads_of(u, attention.heads)?,
            edge_vectors: None,
            features: None,
            bias: None,
        };
        gat.backward(self.isa, given, grads, &self.threads)?;
        if apart {
            let own = Mat::new(own, rows, width, width)?;
            let top = MatMut::new(&mut source.slice::<T>()[..rows * width], rows, width, width)?;
            Forward::in_place(rows, width).plus(1.0, own)?.run(self.isa, top, &self.threads)?;
        }
        Ok(())
    }

    fn gates<'e, T: Held>(
        &'e self,
        step: &Step,
        context: &'e Context<'_>,
        params: &'e Params,
    ) -> Result<gated::Args<'e, T>> {
        let (a, _) = self.sparse(step.inputs[0], context)?;
        let mat = |input: usize| self.mat::<T>(step.inputs[input], context, params);
        gated::Args::new(a, mat(1)?, mat(2)?, mat(3)?)
    }

    pub(super) fn gated<T: Held>(
        &mut self,
        step: &Step,
        context: &Context<'_>,
        params: &Params,
    ) -> Result<()> {
        let mut out = self.taken(step, 0, context)?;
        let gates = self.gates::<T>(step, context, params)?;
        gates.forward(self.isa, out.mat::<T>()?, &self.threads)?;
        self.put(out);
        Ok(())
    }

    pub(super) fn gated_grad<T: Held>(
        &mut self,
        step: &Step,
        context: &Context<'_>,
        params: &Params,
    ) -> Result<()> {
        let mut outs = [0, 1, 2].map(|index| self.taken(step, index, context));
        let [Ok(dk), Ok(dq), Ok(dv)] = &mut outs else { return Err(wrong(step)) };
        let given =
            (self.transposed(step, context)?, self.mat::<T>(step.inputs[4], context, params)?);
        let grads = gated::Grads { target: dk.mat::<T>()?, source: dq.mat()?, values: dv.mat()? };
        let gates = self.gates::<T>(step, context, params)?;
        gates.backward(self.isa, given, grads, &self.threads)?;
        for out in outs {
            self.put(out?);
        }
        Ok(())
    }

    pub(super) fn extreme<T: Held>(
        &mut self,
        step: &Step,
        context: &Context<'_>,
        params: &Params,
    ) -> Result<()> {
        let mut out = self.taken(step, 0, context)?;
        let (a, _) = self.sparse(step.inputs[0], context)?;
        let x = self.mat::<T>(step.inputs[1], context, params)?;
        match step.operator {
            Operator::Extreme(extreme) => {
                let args = spmm::Args::new(a, x, Reduce::from(extreme))?;
                spmm::KERNELS[0].run(self.isa, &args, out.mat::<T>()?, &self.threads)?;
            }
            Operator::ExtremeGrad(extreme) => {
                let args = spmm::Args::new(a, x, Reduce::from(extreme))?;
                let back = spmm::ExtremeBackward::new(args, self.transposed(step, context)?)?;
                let y = self.mat::<T>(step.inputs[2], context, params)?;
                let grad = self.mat::<T>(step.inputs[3], context, params)?;
                let ties = Ties::SplitWithInitialZero;
                back.even(self.isa, (ties, y, grad), out.mat::<T>()?, &self.threads)?;
            }
            _ => return Err(wrong(step)),
        }
        self.put(out);
        Ok(())
    }
}

/// The gradient of vectors, as one row per head.
fn heads_of(taken: &mut Taken, heads: usize) -> Result<MatMut<'_>> {
    let slice = taken.slice::<f32>();
    let channels = slice.len() / heads.max(1);
    MatMut::new(slice, heads, channels, channels)
}
