//! How far a product of some pairs is from that of all, from some rows of the result.
//!
//! Rows are drawn in proportion to `l_i²·(entries of i)`, about what they add to the squared norm
//! when gradients point anywhere, at equal distances along its running sum; what a row adds is
//! divided by its chance. A few hundred rows give the error within some percent, for about a
//! hundredth of the product's work.

use lacis_core::reference::Reduce;
use lacis_core::{Csr, Dense, Result, Rng, Threads};
use lacis_kernels::sampled::{Scaled, some_rows};
use lacis_kernels::{Isa, Mat, spmm};

/// Rows looked at, at most.
const MOST_ROWS: usize = 2048;
/// Rows looked at, at least.
const LEAST_ROWS: usize = 512;
/// The share of entries that may be looked at.
const SHARE: f64 = 0.01;

/// What was found.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Watched {
    /// Norm of the exact product.
    pub norm: f64,
    /// Norm of the difference, relative to it.
    pub error: f64,
}

/// Compares some rows of the exact product with those of a smaller matrix, or looks at its norm.
///
/// # Errors
/// When sizes do not fit.
pub fn watch(
    exact: &Scaled<'_>,
    sample: Option<&Csr>,
    (x, isa): (Mat<'_>, Isa),
    (rng, threads): (&Rng, &Threads),
) -> Result<Watched> {
    let (rows, weights) = rows(exact, rng);
    let exact_rows = some_rows(exact, &rows)?;
    let y = product(&exact_rows, x, isa, threads)?;
    let few = match sample {
        Some(sample) => {
            let of = Scaled { a: sample.view(), values: None, left: None, right: None };
            Some(product(&some_rows(&of, &rows)?, x, isa, threads)?)
        }
        None => None,
    };
    let (mut squares, mut wrong) = (0.0, 0.0);
    for (at, weight) in weights.iter().enumerate() {
        let row = y.row(at);
        squares += weight * row.iter().map(|y| f64::from(*y).powi(2)).sum::<f64>();
        if let Some(few) = &few {
            let difference = |(y, few): (&f32, &f32)| f64::from(y - few).powi(2);
            wrong += weight * row.iter().zip(few.row(at)).map(difference).sum::<f64>();
        }
    }
    // Where something is not finite this is not a number, which no bound accepts.
    let error = if squares == 0.0 && wrong == 0.0 { 0.0 } else { (wrong / squares).sqrt() };
    Ok(Watched { norm: squares.sqrt(), error })
}

fn product(a: &Csr, x: Mat<'_>, isa: Isa, threads: &Threads) -> Result<Dense> {
    let mut y = Dense::zeros(a.n_rows(), x.n_cols());
    let args = spmm::Args::new(a.view(), x, Reduce::Sum)?;
    spmm::KERNELS[0].run(isa, &args, &mut y, threads)?;
    Ok(y)
}

/// Rows, and what each counts for in a sum over all rows, its own factor included.
fn rows(of: &Scaled<'_>, rng: &Rng) -> (Vec<u32>, Vec<f64>) {
    let n = of.a.n_rows();
    let left = |i: usize| of.left.map_or(1.0, |left| f64::from(left[i]).powi(2));
    let chance = |i: usize| left(i) * of.a.row(i).len() as f64;
    let (mut total, mut entries) = (0.0, 0.0);
    for i in 0..n {
        total += chance(i);
        entries += chance(i) * of.a.row(i).len() as f64;
    }
    if total <= 0.0 || !total.is_finite() {
        return (Vec::new(), Vec::new());
    }
    let most = (SHARE * of.a.cols.len() as f64 / (entries / total)) as usize;
    let count = most.clamp(LEAST_ROWS, MOST_ROWS);
    let distance = total / count as f64;
    let mut next = distance * f64::from(rng.block(0)[0]) / f64::from(u32::MAX);
    let (mut rows, mut weights, mut sum) = (Vec::new(), Vec::new(), 0.0);
    for i in 0..n {
        let own = chance(i);
        sum += own;
        let mut times = 0;
        while next < sum && own > 0.0 {
            times += 1;
            next += distance;
        }
        if times > 0 {
            rows.push(i as u32);
            weights.push(f64::from(times) * distance / own * left(i));
        }
    }
    (rows, weights)
}
