//! An approximation as tensors, so that a training goes on to the same bits.

use lacis_core::{Error, Result};
use lacis_kernels::sampled::Bands;

use super::Approx;
use super::draw::Histogram;
use super::pieces::Taken;
use super::product::{Product, Refresh, Seen};
use crate::store::{Tensor, Tensors};

/// Numbers of a product, in this order: share, first epoch that is not exact by fall-back, how
/// often it fell back, refreshes, correction, stale, norm, epoch and captured mass of the sample,
/// epochs with a sample, the one after the last of them.
const NUMBERS: usize = 11;
/// Numbers of a refresh.
const REFRESH: usize = 5;

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
            wide(name("history"), history.flat_map(of_refresh).collect(), tensors)?;
            if let Some(seen) = &product.seen {
                wide(name("pairs"), seen.histogram.numbers(), tensors)?;
                let smooth = Tensor::new(&[seen.smooth.len()], seen.smooth.clone())?;
                tensors.insert(name("smooth"), smooth);
            }
            if let Some(taken) = taken(product) {
                let tensor = Tensor::new(&[taken.factors.len()], taken.factors.clone())?;
                tensors.insert(name("factors"), tensor);
                if let Some(bands) = &taken.bands {
                    wide(name("bands"), of_bands(bands), tensors)?;
                }
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
            product.history = history.chunks_exact(REFRESH).map(to_refresh).collect();
            product.seen = match take_all::<f64>(tensors, &name("pairs"))? {
                None => None,
                Some(pairs) => {
                    let histogram = Histogram::from_numbers(&pairs).ok_or_else(|| other(at))?;
                    let smooth = take_all::<f32>(tensors, &name("smooth"))?.unwrap_or_default();
                    Some(Seen { histogram, smooth, norm: numbers[6] })
                }
            };
            let factors = take_all::<f32>(tensors, &name("factors"))?;
            let bands = take_all::<f64>(tensors, &name("bands"))?;
            let bands = bands.map(|of| to_bands(&of).ok_or_else(|| other(at))).transpose()?;
            (product.fixed, product.sample) = (None, None);
            let taken = factors.map(|factors| Taken { factors, bands });
            product.resumed = taken.map(|taken| (taken, numbers[7] as usize, numbers[8]));
            product.share = numbers[0];
            product.exact_until = numbers[1] as usize;
            product.strikes = numbers[2] as u32;
            product.refreshes = numbers[3] as u64;
            product.correction = numbers[4];
            product.stale = numbers[5] > 0.0;
            product.epochs = [numbers[9] as usize, numbers[10] as usize];
        }
        Ok(())
    }
}

fn other(at: usize) -> Error {
    Error::argument(format!("checkpoint, approx.{at}"), "has another form than this version writes")
}

fn of_refresh(r: &Refresh) -> [f64; REFRESH] {
    [r.epoch as f64, r.entries as f64, r.kept, r.error, f64::from(u8::from(r.served))]
}

fn to_refresh(r: &[f64]) -> Refresh {
    let (epoch, entries) = (r[0] as usize, r[1] as usize);
    Refresh { epoch, entries, kept: r[2], error: r[3], served: r[4] > 0.0 }
}

/// Rows of a band, then the cells.
fn of_bands(bands: &Bands) -> Vec<f64> {
    let cells = bands.taken.iter().flatten().map(|&at| f64::from(at));
    std::iter::once(bands.rows as f64).chain(cells).collect()
}

fn to_bands(numbers: &[f64]) -> Option<Bands> {
    let (rows, cells) = numbers.split_first()?;
    let taken = cells.chunks_exact(2).map(|cell| [cell[0] as u32, cell[1] as u32]).collect();
    (*rows >= 1.0).then_some(Bands { rows: *rows as usize, taken })
}

fn taken(product: &Product) -> Option<&Taken> {
    match (&product.sample, &product.resumed) {
        (Some(sample), _) => Some(&sample.taken),
        (None, Some((taken, ..))) => Some(taken),
        (None, None) => None,
    }
}

fn numbers(product: &Product) -> Vec<f64> {
    let at = match (&product.sample, &product.resumed) {
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
        at[0],
        at[1],
        product.epochs[0] as f64,
        product.epochs[1] as f64,
    ]
}

/// A row of numbers of any length, if it is there.
fn take_all<T: crate::store::Scalar>(tensors: &mut Tensors, name: &str) -> Result<Option<Vec<T>>> {
    let Some(shape) = tensors.get(name).map(|tensor| tensor.shape().to_vec()) else {
        return Ok(None);
    };
    Ok(Some(tensors.take::<T>(name, &shape)?.to_vec()))
}
