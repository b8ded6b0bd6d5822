//! A loss over classes for torch, with its gradient in the same pass.

use lacis::kernels::loss::{Grad, Loss};
use lacis::{Error, Result, Threads};
use pyo3::prelude::*;

use super::call::Call;
use super::convert::{Number, Raw, RawList, read, write};
use super::isa;

/// The logits, the class of each row, the class that says that a row does not count; where the loss
/// goes, a single number, and its gradient.
#[derive(Clone, Copy, Debug, FromPyObject)]
pub struct CrossEntropy(Raw, RawList, i64, RawList, Option<Raw>);

impl Call for CrossEntropy {
    fn run<T: Number>(self, (): &(), threads: &Threads) -> Result<()> {
        let CrossEntropy(logits, classes, ignored, loss, grad) = self;
        let (labels, rows) = counted(read(classes)?, ignored)?;
        let grad = match grad {
            Some(grad) => Grad::All(grad.write::<T>()?),
            None => Grad::None,
        };
        let of = Loss::classes(&labels, logits.cols(), &rows)?;
        let found = of.run(isa(), logits.read::<T>()?, grad, threads)?;
        write::<f64>(loss)?.fill(found.loss);
        Ok(())
    }
}

/// Classes as the kernels have them, and the rows that count.
fn counted(classes: &[i64], ignored: i64) -> Result<(Vec<i32>, Vec<u32>)> {
    let too_many = |_| Error::argument("classes", "there are more rows than can be counted");
    let n = u32::try_from(classes.len()).map_err(too_many)?;
    // What is no class at all is found by the loss, where it counts.
    let labels = classes.iter().map(|&class| i32::try_from(class).unwrap_or(-1)).collect();
    let rows = (0..n).filter(|&i| classes[i as usize] != ignored).collect();
    Ok((labels, rows))
}
