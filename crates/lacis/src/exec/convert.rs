//! Rows from one storage to the other: bf16 to f32, or the nearest bf16 of each f32.

use lacis_core::{Dense, Features, Result, Threads, bf16};
use lacis_kernels::{Mat, Stored};
use lacis_plan::plan::Step;

use super::{Context, Executor};
use crate::params::Params;

/// Numbers that one thread converts at a time.
const CHUNK: usize = 1 << 16;

/// Writes the rows of a matrix one after another.
fn convert<X, O>(x: Mat<'_, X>, out: &mut [O], threads: &Threads)
where
    X: Stored<Sum = f32>,
    O: Stored<Sum = f32>,
{
    let width = x.n_cols();
    if width == 0 {
        return;
    }
    let rows = (CHUNK / width).max(1);
    let parts: Vec<(usize, &mut [O])> = out.chunks_mut(rows * width).enumerate().collect();
    threads.for_each(parts, |(part, out)| {
        for (i, out) in out.chunks_mut(width).enumerate() {
            let row = x.row(part * rows + i).iter();
            out.iter_mut().zip(row).for_each(|(out, x)| *out = O::narrow(x.wide()));
        }
    });
}

/// Dense features in bf16, in another order where one is given.
pub(crate) fn half_features(
    features: &Features,
    order: Option<&[u32]>,
    threads: &Threads,
) -> Result<Option<Dense<bf16>>> {
    let Features::Dense(x) = features else { return Ok(None) };
    let mut half = Dense::<bf16>::try_zeros(order.map_or(x.n_rows(), <[u32]>::len), x.n_cols())?;
    match order {
        None if half.stride() == half.n_cols() => {
            convert(Mat::from(x), half.data_mut(), threads);
        }
        order => {
            for i in 0..half.n_rows() {
                let old = order.map_or(i, |order| order[i] as usize);
                let row = half.row_mut(i).iter_mut();
                row.zip(x.row(old)).for_each(|(half, x)| *half = bf16::narrow(*x));
            }
        }
    }
    Ok(Some(half))
}

impl Executor {
    /// The same rows in the other storage.
    pub(super) fn convert(
        &mut self,
        step: &Step,
        context: &Context<'_>,
        params: &Params,
    ) -> Result<()> {
        let mut out = self.taken(step, 0, context)?;
        let (input, threads) = (step.inputs[0], &self.threads);
        match self.plan.values[input].half {
            true => convert(self.mat::<bf16>(input, context, params)?, out.slice::<f32>(), threads),
            false => {
                convert(self.mat::<f32>(input, context, params)?, out.slice::<bf16>(), threads);
            }
        }
        self.put(out);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_rounded_to_the_nearest_whoever_does_it() {
        let x: Dense = Dense::from_fn(700, 200, |i, j| (i as f64 - 350.0) * 1.001 + j as f64 / 7.0);
        let mut out = vec![bf16::ZERO; 700 * 200];
        convert(Mat::from(&x), &mut out, &Threads::one());
        let expected: Vec<bf16> = x.rows().flatten().map(|&x| bf16::from_f32(x)).collect();
        assert_eq!(out, expected);
        let mut again = vec![bf16::ZERO; 700 * 200];
        convert(Mat::from(&x), &mut again, &Threads::new(3).unwrap());
        assert_eq!(again, expected);
        let features = Features::Dense(x.clone());
        let order = [5, 699, 5];
        let half = half_features(&features, Some(&order), &Threads::one()).unwrap().unwrap();
        assert_eq!((half.n_rows(), half.n_cols()), (3, 200));
        assert_eq!(half.row(1)[3], bf16::from_f32(x.row(699)[3]));
    }
}
