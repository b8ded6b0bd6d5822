//! How far predicted numbers are from the true ones: mean over columns of each column's error.

use lacis_core::{Error, Labels, Result, Threads};

use super::scored::{Scored, mean_of_columns};

/// `finish(mean of error(y − ŷ))` of every column; NaN targets are left out.
fn of_columns(
    scored: &Scored<'_>,
    threads: &Threads,
    error: fn(f64) -> f64,
    finish: fn(f64) -> f64,
) -> Result<f64> {
    if !matches!(scored.labels(), Labels::Targets(_)) {
        let problem = "need numbers as targets; accuracy and f1-micro are for classes";
        return Err(Error::argument("mae and rmse", problem));
    }
    let values = threads.try_map((0..scored.n_columns()).collect(), |column: usize| {
        let pairs = scored.column(column)?;
        let errors = pairs.iter().map(|&(y, said)| error(f64::from(y) - f64::from(said)));
        // A column without targets says nothing.
        Ok((!pairs.is_empty()).then(|| finish(errors.sum::<f64>() / pairs.len() as f64)))
    })?;
    Ok(mean_of_columns(values))
}

pub(super) fn mean_absolute_error(scored: &Scored<'_>, threads: &Threads) -> Result<f64> {
    of_columns(scored, threads, f64::abs, |mean| mean)
}

pub(super) fn root_mean_squared_error(scored: &Scored<'_>, threads: &Threads) -> Result<f64> {
    of_columns(scored, threads, |error| error * error, f64::sqrt)
}
