//! What happens to entries of sparse matrices: mostly once per graph.

use lacis_core::{Buffer, Csr, CsrParts, Result, Rng, RowPtr};
use lacis_kernels::dropout::Dropout;
use lacis_plan::plan::{Operator, Place, Step};

use super::{Context, Executor, purpose, wrong};
use crate::params::Params;

impl Executor {
    pub(super) fn entries(
        &mut self,
        step: &Step,
        context: &Context<'_>,
        params: &Params,
    ) -> Result<()> {
        if let Operator::PlusIdentity { c } = step.operator {
            return self.plus_identity(step, c.get() as f32, context);
        }
        let mut out = self.taken(step, 0, context)?;
        match step.operator {
            Operator::DiagonalProduct => {
                let d = self.vector(step.inputs[0], context, params)?;
                let e = self.vector(step.inputs[1], context, params)?;
                let pairs = d.iter().zip(e);
                out.slice::<f32>().iter_mut().zip(pairs).for_each(|(out, (d, e))| *out = d * e);
            }
            Operator::EntryScale { left, right } => {
                let (a, values) = self.sparse(step.inputs[0], context)?;
                let mut rest = step.inputs[1..].iter();
                let mut next = |there: bool| {
                    let value = there.then(|| rest.next().copied()).flatten();
                    value.map(|value| self.vector(value, context, params)).transpose()
                };
                let (left, right) = (next(left)?, next(right)?);
                let values = values.or(a.values);
                let out = out.slice::<f32>();
                for i in 0..a.n_rows() {
                    let l = left.map_or(1.0, |left| left[i]);
                    for e in a.row(i) {
                        let r = right.map_or(1.0, |right| right[a.cols[e] as usize]);
                        out[e] = l * values.map_or(1.0, |values| values[e]) * r;
                    }
                }
            }
            Operator::EntryDropout { p, key } => {
                let (x, values) = self.sparse(step.inputs[0], context)?;
                let values = values.or(x.values);
                let rng = Rng::new(context.seed, &purpose(key));
                let dropout = Dropout::new(rng, if context.training { p.get() } else { 0.0 })?;
                let (scale, order) = (dropout.scale() as f32, context.levels.order());
                let out = out.slice::<f32>();
                for i in 0..x.n_rows() {
                    let row = order.map_or(i as u32, |order| order[i]);
                    for e in x.row(i) {
                        let value = values.map_or(1.0, |values| values[e]);
                        let kept = dropout.keeps_all() || dropout.keeps(row, x.cols[e] as usize);
                        out[e] = if kept { value * scale } else { 0.0 };
                    }
                }
            }
            _ => return Err(wrong(step)),
        }
        self.put(out);
        Ok(())
    }

    /// `a + c·I`, entries in ascending columns where they were.
    fn plus_identity(&mut self, step: &Step, c: f32, context: &Context<'_>) -> Result<()> {
        let (a, values) = self.sparse(step.inputs[0], context)?;
        let values = values.or(a.values);
        let nnz = a.cols.len() + a.n_rows().min(a.n_cols);
        let (mut ptr, mut cols) = (vec![0_u64], Vec::with_capacity(nnz));
        let mut sums = Vec::with_capacity(nnz);
        for i in 0..a.n_rows() {
            let mut placed = i >= a.n_cols;
            for e in a.row(i) {
                let own = a.cols[e] as usize;
                if !placed && own >= i {
                    placed = true;
                    cols.push(i as u32);
                    sums.push(c);
                }
                cols.push(own as u32);
                sums.push(values.map_or(1.0, |values| values[e]));
            }
            if !placed {
                cols.push(i as u32);
                sums.push(c);
            }
            ptr.push(cols.len() as u64);
        }
        let parts = CsrParts {
            n_cols: a.n_cols,
            row_ptr: RowPtr::Wide(ptr.into()),
            cols: cols.into(),
            values: Some(Buffer::from(sums)),
            order: None,
        };
        let matrix = Csr::new(parts, &self.threads)?.without_unit_values();
        let Place::Matrix(index) = self.plan.values[step.outputs[0]].place else {
            return Err(wrong(step));
        };
        self.matrices[index] = Some(matrix);
        Ok(())
    }
}
