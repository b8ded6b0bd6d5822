//! What a step really had to do, counted from the matrices it was given: entries that were there,
//! rows and columns as they are. Sizes that planning went by are not asked.

use lacis_core::{CsrView, Result};
use lacis_plan::analysis::per_element;
use lacis_plan::op::Scores;
use lacis_plan::plan::{Form, Operator, Place, Step, ValueId};

use super::{Context, Executor, wrong};
use crate::params::Params;

/// Operations and bytes of a step, as `lacis_plan::analysis` counts them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    /// Additions, multiplications and functions.
    pub work: u64,
    /// Bytes read and written, every gathered row counted.
    pub bytes: u64,
}

/// A sparse matrix that a step went through, once for each pass.
#[derive(Clone, Copy, Debug)]
struct Walked {
    rows: u64,
    entries: u64,
    valued: bool,
}

impl Executor {
    /// Counts a step that has run.
    pub(super) fn counted(
        &self,
        step: &Step,
        context: &Context<'_>,
        params: &Params,
    ) -> Result<Counted> {
        let columns = |input: usize| self.shape(step.inputs[input], context)[1] as u64;
        match step.operator {
            Operator::Spmm { .. } => {
                let a = self.walked(step, context)?;
                Ok(self.gathered(step, a, columns(1)))
            }
            Operator::Extreme(_) => {
                let a = Walked { valued: false, ..self.walked(step, context)? };
                Ok(self.gathered(step, a, columns(1)))
            }
            Operator::ExtremeGrad(_) => {
                let a = self.walked(step, context)?;
                let entries = a.entries + self.turned_entries(step, context)?;
                Ok(self.gathered(step, Walked { entries, valued: false, ..a }, columns(1)))
            }
            Operator::Gemm { .. } => Ok(self.multiplied(step, context, params)),
            Operator::SparseTransposed => {
                let (x, _) = self.sparse(step.inputs[0], context)?;
                let (entries, width) = (x.cols.len() as u64, columns(1));
                let bytes = entries * (4 * width + 8) + 4 * x.n_cols as u64 * width;
                Ok(Counted { work: 2 * entries * width, bytes })
            }
            Operator::Attention(of) | Operator::AttentionGrad(of) => {
                self.attended(step, (of.heads as u64, of.scores), context)
            }
            Operator::Gated | Operator::GatedGrad => {
                let own = self.walked(step, context)?.entries;
                let passes = match step.operator {
                    Operator::Gated => own,
                    _ => own + self.turned_entries(step, context)?,
                };
                let gates = passes * columns(3);
                let written = self.elements(&step.outputs, context, params).iter().sum::<u64>();
                Ok(Counted { work: 4 * gates, bytes: 8 * gates + 4 * written })
            }
            _ => Ok(self.passed(step, context, params)),
        }
    }

    fn walked(&self, step: &Step, context: &Context<'_>) -> Result<Walked> {
        let (a, values): (CsrView<'_>, _) = self.sparse(step.inputs[0], context)?;
        let entries = (0..a.n_rows()).map(|i| a.row(i).len() as u64).sum();
        let valued = values.is_some() || a.values.is_some();
        Ok(Walked { rows: a.n_rows() as u64, entries, valued })
    }

    /// Entries of the transpose, which gradients go through.
    fn turned_entries(&self, step: &Step, context: &Context<'_>) -> Result<u64> {
        match self.plan.values[step.inputs[0]].place {
            Place::Adjacency(adjacency) => {
                Ok(context.levels.matrix(adjacency.turned()).nnz() as u64)
            }
            _ => Err(wrong(step)),
        }
    }

    /// A row of columns for each entry, and one for each row.
    fn gathered(&self, step: &Step, a: Walked, width: u64) -> Counted {
        let row = width * self.plan.number_bytes(step.inputs[1]) as u64;
        let [each, index] = if a.valued { [2, 8] } else { [1, 4] };
        Counted {
            work: each * a.entries * width,
            bytes: a.entries * (row + index) + a.rows * (row + 8),
        }
    }

    /// A dense product, or both of a step that has two: each number of the first factor meets a
    /// row of the second, or a column where that is transposed.
    fn multiplied(&self, step: &Step, context: &Context<'_>, params: &Params) -> Counted {
        let Operator::Gemm { form, ending } = step.operator else { return Counted::default() };
        let bytes = |value: ValueId, held: u64| held * self.plan.number_bytes(value) as u64;
        let out = self.elements(&step.outputs, context, params)[0];
        let mut counted = Counted { work: 0, bytes: bytes(step.outputs[0], out) };
        for pair in step.inputs.chunks_exact(2).take(if ending.plus { 2 } else { 1 }) {
            let factors = self.elements(pair, context, params);
            let [rows, cols] = self.shape(pair[1], context);
            let meets = if form == Form::Nt { rows } else { cols };
            counted.work += 2 * factors[0] * meets as u64;
            counted.bytes += bytes(pair[0], factors[0]) + bytes(pair[1], factors[1]);
        }
        counted
    }

    fn attended(
        &self,
        step: &Step,
        (heads, scores): (u64, Scores),
        context: &Context<'_>,
    ) -> Result<Counted> {
        let width = self.shape(step.inputs[1], context)[1] as u64;
        let a = self.walked(step, context)?;
        // Back along both directions, and once more where sums over targets were not kept.
        let entries = match (step.operator, scores) {
            (Operator::Attention(_), _) => a.entries,
            (_, Scores::Gat) if !step.looks_again() => {
                a.entries + self.turned_entries(step, context)?
            }
            _ => 2 * a.entries + self.turned_entries(step, context)?,
        };
        Ok(Counted {
            work: entries * (2 * width + 5 * heads),
            bytes: entries * (4 * width + 4 * heads + 4) + a.rows * (4 * width + 8 * heads + 8),
        })
    }

    /// Elements that pass by.
    fn passed(&self, step: &Step, context: &Context<'_>, params: &Params) -> Counted {
        let inputs = self.elements(&step.inputs, context, params);
        let outputs = self.elements(&step.outputs, context, params);
        let most = inputs.iter().chain(&outputs).copied().max().unwrap_or(0);
        let bytes = |values: &[ValueId], elements: &[u64]| -> u64 {
            let each = values.iter().map(|&value| self.plan.number_bytes(value) as u64);
            each.zip(elements).map(|(bytes, elements)| bytes * elements).sum()
        };
        let (read, written) = (bytes(&step.inputs, &inputs), bytes(&step.outputs, &outputs));
        let bytes = match step.operator {
            // A weight, its gradient and two moments; all but the gradient are written.
            Operator::Update(param) => {
                let weight = params.get(param);
                28 * (weight.n_rows() * weight.n_cols()) as u64
            }
            Operator::Pad if self.plan.in_place(step) => written.saturating_sub(read),
            _ => read + written,
        };
        Counted { work: most * per_element(&step.operator), bytes }
    }

    /// Numbers that each value holds.
    fn elements(&self, values: &[ValueId], context: &Context<'_>, params: &Params) -> Vec<u64> {
        let of = |&value: &ValueId| {
            let [rows, cols] = self.shape(value, context);
            let number = match self.plan.values[value].place {
                Place::Param(param) => {
                    let weight = params.get(param);
                    weight.n_rows() * weight.n_cols()
                }
                Place::Adjacency(_) | Place::Entries { .. } | Place::Matrix(_) => {
                    self.sparse(value, context).map_or(0, |(matrix, _)| matrix.cols.len())
                }
                _ if self.is_diagonal(value) => rows,
                _ => rows * cols,
            };
            number as u64
        };
        values.iter().map(of).collect()
    }
}
