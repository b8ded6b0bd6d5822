//! Scores of pairs of nodes, and what they say about their two ends.

use lacis_core::reference::EdgeOp;
use lacis_core::{Dense, Result};
use lacis_kernels::elementwise::Forward;
use lacis_kernels::{EdgeOrder, sddmm};
use lacis_plan::plan::{Operator, Step};

use super::slots::Held;
use super::{Context, Executor, wrong};
use crate::params::Params;

impl Executor {
    pub(super) fn pairs<T: Held>(
        &mut self,
        step: &Step,
        context: &Context<'_>,
        params: &Params,
    ) -> Result<()> {
        let mut out = self.taken(step, 0, context)?;
        let pairs = context.pairs.ok_or_else(|| wrong(step))?;
        let z = self.mat::<T>(step.inputs[0], context, params)?;
        match step.operator {
            Operator::Pairs(op) => {
                let args = sddmm::Args::new(pairs.matrix().view(), z, z, op.into())?;
                let args = args.ordered(EdgeOrder::Caller);
                sddmm::run(self.isa, &args, out.mat::<f32>()?, &self.threads)?;
            }
            Operator::PairsGrad(op) => {
                let (op, grad) =
                    (EdgeOp::from(op), self.mat::<f32>(step.inputs[1], context, params)?);
                let of = |matrix| {
                    let args = sddmm::BackwardArgs::new(matrix, z, op, grad)?;
                    Ok(args.ordered(EdgeOrder::Caller))
                };
                // A node's row gets what the pairs say that it begins, and those that it ends.
                let mut ends = Dense::<T>::zeros(z.n_rows(), z.n_cols());
                let threads = &self.threads;
                sddmm::backward(self.isa, &of(pairs.transpose().view())?, &mut ends, threads)?;
                sddmm::backward(self.isa, &of(pairs.matrix().view())?, out.mat::<T>()?, threads)?;
                let sum = Forward::in_place(z.n_rows(), z.n_cols()).plus(1.0, &ends)?;
                sum.run(self.isa, out.mat::<T>()?, threads)?;
            }
            _ => return Err(wrong(step)),
        }
        self.put(out);
        Ok(())
    }
}
