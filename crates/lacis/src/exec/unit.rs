//! Rows of length one, `y = x / max(|x|, 1e-12)`, and back: `dx = (g - y·(y·g)) / |x|`, as torch's
//! `normalize` does: a row that is nearly zero is divided by 1e-12 both ways.

use lacis_core::{Result, Threads};
use lacis_kernels::Mat;
use lacis_plan::plan::{Operator, Step};

use super::slots::Held;
use super::{Context, Executor, wrong};
use crate::params::Params;

/// The shortest that a row is taken to be.
const SHORTEST: f32 = 1e-12;
/// Numbers that one thread goes through at a time.
const CHUNK: usize = 1 << 16;

impl Executor {
    pub(super) fn unit<T: Held>(
        &mut self,
        step: &Step,
        context: &Context<'_>,
        params: &Params,
    ) -> Result<()> {
        let mut out = self.taken(step, 0, context)?;
        let x = self.mat::<T>(step.inputs[0], context, params)?;
        match step.operator {
            Operator::Unit => {
                each_row(x, out.slice::<T>(), &self.threads, |_, x, y| {
                    let length = length(x).max(SHORTEST);
                    y.iter_mut().zip(x).for_each(|(y, x)| *y = T::narrow(x.wide() / length));
                });
            }
            Operator::UnitGrad => {
                let grad = self.mat::<T>(step.inputs[1], context, params)?;
                each_row(x, out.slice::<T>(), &self.threads, |i, x, dx| {
                    back(x, grad.row(i), dx);
                });
            }
            _ => return Err(wrong(step)),
        }
        self.put(out);
        Ok(())
    }
}

/// The gradient of a row.
fn back<T: Held>(x: &[T], grad: &[T], dx: &mut [T]) {
    let length = length(x);
    let products = x.iter().zip(grad).map(|(x, g)| x.wide() * g.wide());
    let along = match length > SHORTEST {
        true => products.sum::<f32>() / length,
        false => 0.0,
    };
    let length = length.max(SHORTEST);
    for (dx, (x, g)) in dx.iter_mut().zip(x.iter().zip(grad)) {
        *dx = T::narrow((g.wide() - x.wide() / length * along) / length);
    }
}

fn length<T: Held>(row: &[T]) -> f32 {
    row.iter().map(|x| x.wide() * x.wide()).sum::<f32>().sqrt()
}

/// Calls a function with every row's number, the row and where its result goes.
fn each_row<T: Held>(
    x: Mat<'_, T>,
    out: &mut [T],
    threads: &Threads,
    f: impl Fn(usize, &[T], &mut [T]) + Sync,
) {
    let width = x.n_cols();
    if width == 0 {
        return;
    }
    let rows = (CHUNK / width).max(1);
    let parts: Vec<(usize, &mut [T])> = out.chunks_mut(rows * width).enumerate().collect();
    threads.for_each(parts, |(part, out)| {
        for (i, out) in out.chunks_mut(width).enumerate() {
            f(part * rows + i, x.row(part * rows + i), out);
        }
    });
}
