//! An approximation as tensors, so that a training goes on to the same bits.

use lacis_core::{Error, Result};

use super::Approx;
use super::draw::Histogram;
use super::product::{Product, Refresh, Seen};
use crate::store::{Tensor, Tensors};

/// Numbers of a product, in this order: share, first epoch that is not exact by fall-back, how
/// often it fell back, refreshes, correction, stale, norm, epoch and captured mass of the sample.
const NUMBERS: usize = 9;

impl Approx {
    /// Adds what the next epoch depends on.
    ///
    /// # Errors
    /// When there is no memory.
    pub fn save(&self, tensors: &mut Tensors) -> Result<()> {
        let wide = |name: String, numbers: Vec<f64>, tensors: &mut Tensors| -> Result<()> {
            let tensor = Tensor::new(&[numbers.len()], numbers)?;
            tensors.insert(name, tensor);
            Ok(())
        };
        wide("approx.budget".to_owned(), vec![self.budget], tensors)?;
        for (at, product) in self.products.iter().enumerate() {
            let name = |what: &str| format!("approx.{at}.{what}");
            wide(name("numbers"), numbers(product), tensors)?;
            let history = product.history.iter();
            let history =
                history.flat_map(|r| [r.epoch as f64, r.entries as f64, r.kept, r.error]).collect();
            wide(name("history"), history, tensors)?;
            if let Some(seen) = &product.seen {
                wide(name("pairs"), seen.histogram.numbers(), tensors)?;
                let smooth = Tensor::new(&[seen.smooth.len()], seen.smooth.clone())?;
                tensors.insert(name("smooth"), smooth);
            }
            if let Some(factors) = factors(product) {
                let tensor = Tensor::new(&[factors.len()], factors.to_vec())?;
                tensors.insert(name("factors"), tensor);
            }
        }
        Ok(())
    }

    /// Takes it out of a checkpoint again.
    ///
    /// # Errors
    /// When it is not there, or of another approximation.
    pub fn restore(&mut self, tensors: &mut Tensors) -> Result<()> {
        self.budget = tensors.take::<f64>("approx.budget", &[1])?[0];
        for (at, product) in self.products.iter_mut().enumerate() {
            let name = |what: &str| format!("approx.{at}.{what}");
            let numbers = tensors.take::<f64>(&name("numbers"), &[NUMBERS])?.to_vec();
            let history = take_all::<f64>(tensors, &name("history"))?.unwrap_or_default();
            let refresh = |r: &[f64]| {
                let (epoch, entries) = (r[0] as usize, r[1] as usize);
                Refresh { epoch, entries, kept: r[2], error: r[3] }
            };
            product.history = history.chunks_exact(4).map(refresh).collect();
            product.seen = match take_all::<f64>(tensors, &name("pairs"))? {
                None => None,
                Some(pairs) => {
                    let histogram = Histogram::from_numbers(&pairs).ok_or_else(|| other(at))?;
                    let smooth = take_all::<f32>(tensors, &name("smooth"))?.unwrap_or_default();
                    Some(Seen { histogram, smooth, norm: numbers[6] })
                }
            };
            let factors = take_all::<f32>(tensors, &name("factors"))?;
            (product.fixed, product.sample) = (None, None);
            product.resumed = factors.map(|of| (of, numbers[7] as usize, numbers[8]));
            product.share = numbers[0];
            product.exact_until = numbers[1] as usize;
            product.strikes = numbers[2] as u32;
            product.refreshes = numbers[3] as u64;
            product.correction = numbers[4];
            product.stale = numbers[5] > 0.0;
        }
        Ok(())
    }
}

fn other(at: usize) -> Error {
    Error::argument(format!("checkpoint, approx.{at}"), "has another form than this version writes")
}

fn factors(product: &Product) -> Option<&[f32]> {
    match (&product.sample, &product.resumed) {
        (Some(sample), _) => Some(&sample.factors),
        (None, Some((factors, ..))) => Some(factors),
        (None, None) => None,
    }
}

fn numbers(product: &Product) -> Vec<f64> {
    let taken = match (&product.sample, &product.resumed) {
        (Some(sample), _) => [sample.epoch as f64, sample.captured],
        (None, Some((_, epoch, captured))) => [*epoch as f64, *captured],
        (None, None) => [0.0; 2],
    };
    let norm = product.seen.as_ref().map_or(0.0, |seen| seen.norm);
    vec![
        product.share,
        product.exact_until as f64,
        f64::from(product.strikes),
        product.refreshes as f64,
        product.correction,
        f64::from(u8::from(product.stale)),
        norm,
        taken[0],
        taken[1],
    ]
}

/// A row of numbers of any length, if it is there.
fn take_all<T: crate::store::Scalar>(tensors: &mut Tensors, name: &str) -> Result<Option<Vec<T>>> {
    let Some(shape) = tensors.get(name).map(|tensor| tensor.shape().to_vec()) else {
        return Ok(None);
    };
    Ok(Some(tensors.take::<T>(name, &shape)?.to_vec()))
}
