//! Losses over some rows of the logits, with gradient and number of right answers in one pass.
//!
//! ```text
//!   classes:  mean over the rows i of  ln Σ_c exp(z_ic) − z_i,label
//!             dz_ic = (softmax(z_i)_c − [c = label_i]) / rows
//!   binary:   mean over the rows and all columns of  max(z, 0) − z·t + ln(1 + exp(−|z|))
//!             dz_ic = (σ(z_ic) − t_ic) / (rows · columns)
//! ```
//! A row listed twice counts twice. Over no rows the loss is NaN and the gradient 0, as torch's.
//!
//! # Parallelism
//! A thread does whole rows: of the matrix where the gradient covers it, else of the list. Chunks
//! follow from the shape and the list.
//! # Accuracy
//! Each row is computed in `T::Sum`; rows are added in f64.

use std::borrow::Cow;

use lacis_core::error::same_size;
use lacis_core::{Error, Result, Threads};

use crate::isa::{Arith, Isa, per_isa};
use crate::lanes::{self, load_row};
use crate::math::exp;
use crate::matrix::{Mat, MatMut};
use crate::once::once;
use crate::real::{Real, Stored};
use crate::softmax::powers;
use crate::strips::{Strips, chunked, store};

const OP: &str = "loss";

/// Which rows count and what they should be, checked once for a whole training.
#[derive(Clone, Debug)]
pub struct Loss<'a> {
    targets: Targets<'a>,
    n_rows: usize,
    n_cols: usize,
    rows: &'a [u32],
    ascending: Cow<'a, [u32]>,
}

#[derive(Clone, Copy, Debug)]
enum Targets<'a> {
    Classes(&'a [i32]),
    Binary(Mat<'a>),
}

impl<'a> Loss<'a> {
    /// Cross-entropy of one class per row, among `n_classes`.
    ///
    /// # Errors
    /// When a row has no label, or one that is no class; labels of other rows may be anything.
    pub fn classes(labels: &'a [i32], n_classes: usize, rows: &'a [u32]) -> Result<Self> {
        check_rows(rows, labels.len())?;
        for i in rows.iter().map(|&i| i as usize) {
            if usize::try_from(labels[i]).map_or(true, |label| label >= n_classes) {
                let label = labels[i];
                let problem = format!("row {i} has {label}, which is outside 0..{n_classes}");
                return Err(Error::argument("labels", problem));
            }
        }
        let ascending = ascending(rows);
        let (targets, n_rows) = (Targets::Classes(labels), labels.len());
        Ok(Loss { targets, n_rows, n_cols: n_classes, rows, ascending })
    }

    /// Binary cross-entropy of each logit alone, targets from 0 to 1.
    ///
    /// # Errors
    /// When a row has no targets.
    pub fn binary(targets: impl Into<Mat<'a>>, rows: &'a [u32]) -> Result<Self> {
        let targets = targets.into();
        check_rows(rows, targets.n_rows)?;
        let (n_rows, n_cols, ascending) = (targets.n_rows, targets.n_cols, ascending(rows));
        Ok(Loss { targets: Targets::Binary(targets), n_rows, n_cols, rows, ascending })
    }

    /// Computes the loss, and its gradient where it is asked for.
    ///
    /// # Errors
    /// When the logits or the gradient have another shape than the targets.
    pub fn run<'z, T: Stored>(
        &self,
        isa: Isa,
        logits: impl Into<Mat<'z, T>>,
        grad: Grad<'_, T>,
        threads: &Threads,
    ) -> Result<Outcome> {
        T::loss(self, isa, Some(logits.into()), grad, threads)
    }

    /// The same, and the gradient of all rows takes the place of the logits.
    ///
    /// # Errors
    /// When the logits have another shape than the targets.
    pub fn run_in_place<T: Stored>(
        &self,
        isa: Isa,
        logits: MatMut<'_, T>,
        threads: &Threads,
    ) -> Result<Outcome> {
        T::loss(self, isa, None, Grad::All(logits), threads)
    }

    /// Without logits, those are where the gradient of all rows goes.
    fn run_here<T: Stored>(
        &self,
        isa: Isa,
        z: Option<Mat<'_, T>>,
        grad: Grad<'_, T>,
        threads: &Threads,
    ) -> Result<Outcome> {
        if let Some(z) = z {
            same_size(OP, "rows of the logits", self.n_rows, z.n_rows)?;
            same_size(OP, "columns of the logits", self.n_cols, z.n_cols)?;
        }
        let scratch = || [(); 2].map(|()| lanes::scratch(self.n_cols));
        let outcomes = threads.map_with(self.parts(grad)?, scratch, |own, (rows, grad)| {
            part(isa, Part { loss: self, z, rows, grad, own })
        });
        let (mut sum, mut correct) = (0.0, 0);
        for (part_sum, part_correct) in outcomes {
            sum += part_sum;
            correct += part_correct;
        }
        Ok(Outcome { loss: sum / self.count(), correct })
    }

    /// How many terms the mean is over.
    fn count(&self) -> f64 {
        match self.targets {
            Targets::Classes(_) => self.rows.len() as f64,
            Targets::Binary(_) => self.rows.len() as f64 * self.n_cols as f64,
        }
    }

    /// The list cut into chunks, with what each writes.
    fn parts<'p, T: Stored>(
        &'p self,
        grad: Grad<'p, T>,
    ) -> Result<Vec<(&'p [u32], PartGrad<'p, T>)>> {
        let strips = Strips::new(self.n_cols, false);
        let shape = |grad: &MatMut<'_, T>, n_rows| {
            same_size(OP, "rows of the gradient", n_rows, grad.n_rows)?;
            same_size(OP, "columns of the gradient", self.n_cols, grad.n_cols)
        };
        match grad {
            Grad::None => {
                let chunks = strips.chunks(self.rows.len()).into_iter();
                Ok(chunks.map(|chunk| (&self.rows[chunk], PartGrad::None)).collect())
            }
            Grad::Chosen(grad) => {
                shape(&grad, self.rows.len())?;
                let chunks = chunked(strips, grad).into_iter();
                Ok(chunks.map(|(at, grad)| (&self.rows[at], PartGrad::Chosen(grad))).collect())
            }
            Grad::All(grad) => {
                shape(&grad, self.n_rows)?;
                let place = |row: usize| self.ascending.partition_point(|&i| (i as usize) < row);
                let chunks = chunked(strips, grad).into_iter().map(|(rows, grad)| {
                    let listed = &self.ascending[place(rows.start)..place(rows.end)];
                    (listed, PartGrad::All(rows.start, grad))
                });
                Ok(chunks.collect())
            }
        }
    }
}

once!(Once:
    fn loss(
        loss: &Loss<'_>,
        isa: Isa,
        logits: Option<Mat<'_, Self>>,
        grad: Grad<'_, Self>,
        threads: &Threads,
    ) -> Result<Outcome> = Loss::run_here;
);

/// Where the gradient goes.
#[derive(Debug)]
pub enum Grad<'a, T> {
    /// Nowhere: the loss alone.
    None,
    /// One row per row of the logits, zeros where a row does not count.
    All(MatMut<'a, T>),
    /// One row per listed row, in the list's order.
    Chosen(MatMut<'a, T>),
}

/// What came out.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Outcome {
    /// The mean loss.
    pub loss: f64,
    /// Rows whose first greatest logit is the label's; for binary targets, elements on whose side
    /// of 1/2 the probability is.
    pub correct: usize,
}

/// The column of the first greatest number of each row, or of the first NaN; 0 of no columns.
///
/// # Errors
/// When there is not one place per row.
pub fn predictions<'a, T: Stored>(
    isa: Isa,
    x: impl Into<Mat<'a, T>>,
    of: &mut [u32],
    threads: &Threads,
) -> Result<()> {
    let x = x.into();
    same_size("predictions", "number of places", x.n_rows, of.len())?;
    let chunks = Strips::new(x.n_cols, false).chunks(x.n_rows);
    let size = chunks.first().map_or(1, |rows| rows.len());
    let items = chunks.into_iter().zip(of.chunks_mut(size)).collect();
    threads.map_with(
        items,
        || lanes::scratch(x.n_cols),
        |own, (rows, of)| {
            greatest(isa, (x.rows(rows), of, own));
        },
    );
    Ok(())
}

fn check_rows(rows: &[u32], n_rows: usize) -> Result<()> {
    match rows.iter().position(|&i| i as usize >= n_rows) {
        None => Ok(()),
        Some(at) => {
            let (index, bound) = (u64::from(rows[at]), n_rows as u64);
            Err(Error::Index { op: OP, what: "row", index, at, bound })
        }
    }
}

/// # Memory
/// A copy, where the rows are not listed in order.
fn ascending(rows: &[u32]) -> Cow<'_, [u32]> {
    if rows.is_sorted() {
        return Cow::Borrowed(rows);
    }
    let mut rows = rows.to_vec();
    rows.sort_unstable();
    Cow::Owned(rows)
}

/// The gradient of a part of the list; the row that `All` begins at.
enum PartGrad<'a, T> {
    None,
    All(usize, MatMut<'a, T>),
    Chosen(MatMut<'a, T>),
}

impl<T: Stored> PartGrad<'_, T> {
    /// The logits of row `i`, where they are in the gradient's place.
    #[inline(always)]
    fn logits(&self, i: usize) -> &[T] {
        match self {
            PartGrad::All(start, grad) => grad.row(i - start),
            _ => &[],
        }
    }
}

/// Some of the listed rows; without `z`, the logits are where the gradient of all rows goes.
struct Part<'a, T: Stored> {
    loss: &'a Loss<'a>,
    z: Option<Mat<'a, T>>,
    rows: &'a [u32],
    grad: PartGrad<'a, T>,
    own: &'a mut [Vec<T::Sum>; 2],
}

per_isa!(fn part<[T: Stored], []>(part: Part<'_, T>) -> (f64, usize) = body);

#[inline(always)]
fn body<M: Arith, T: Stored>(part: Part<'_, T>) -> (f64, usize) {
    let Part { loss, z, rows, mut grad, own } = part;
    let mut total = (0.0, 0);
    let mut unwritten = if let PartGrad::All(start, _) = grad { start } else { 0 };
    // Equal neighbours of an ascending list are one row that counts as often.
    let covering = matches!(grad, PartGrad::All(..));
    for (at, same) in rows.chunk_by(|a, b| covering && a == b).enumerate() {
        let (i, times) = (same[0] as usize, same.len());
        let share = T::Sum::of(times as f64 / loss.count());
        let logits = z.as_ref().map_or_else(|| grad.logits(i), |z| z.row(i));
        let (value, correct) = row::<M, T>(loss, logits, (i, share), own);
        total = (total.0 + value * times as f64, total.1 + correct * times);
        match &mut grad {
            PartGrad::None => {}
            PartGrad::Chosen(grad) => store(grad.row_mut(at), &own[1]),
            PartGrad::All(start, grad) => {
                (unwritten..i).for_each(|row| grad.row_mut(row - *start).fill(zero()));
                store(grad.row_mut(i - *start), &own[1]);
                unwritten = i + 1;
            }
        }
    }
    if let PartGrad::All(start, grad) = &mut grad {
        (unwritten - *start..grad.n_rows).for_each(|row| grad.row_mut(row).fill(zero()));
    }
    total
}

#[inline(always)]
fn zero<T: Stored>() -> T {
    T::narrow(T::Sum::ZERO)
}

/// Loss and right answers of row `i`; its gradient, times `share`, goes into the second row of
/// `own`.
#[inline(always)]
fn row<M: Arith, T: Stored>(
    loss: &Loss<'_>,
    z: &[T],
    (i, share): (usize, T::Sum),
    [row, grad]: &mut [Vec<T::Sum>; 2],
) -> (f64, usize) {
    match loss.targets {
        Targets::Classes(labels) => {
            load_row(row, z, T::Sum::NEG_INFINITY);
            classes::<M, T::Sum>(labels[i] as usize, share, row, grad)
        }
        Targets::Binary(targets) => {
            load_row(row, z, T::Sum::of(UNLIKELY));
            targets_of::<T::Sum>(grad, targets, i);
            let (value, correct) = binary::<M, T::Sum>(share, row, grad);
            (value, correct - (row.len() - z.len()))
        }
    }
}

#[inline(always)]
fn classes<M: Arith, F: Real>(
    label: usize,
    share: F,
    row: &mut [F],
    grad: &mut [F],
) -> (f64, usize) {
    let sum = powers::<M, F>(row, grad);
    let scale = share / sum;
    grad.iter_mut().for_each(|g| *g *= scale);
    grad[label] = grad[label] - share;
    // The greatest are 0 now.
    let first = row[label] == F::ZERO && !row[..label].contains(&F::ZERO);
    ((sum.ln() - row[label]).to_f64(), usize::from(first))
}

/// A logit that fills rows up: with target 0 it adds nothing to the loss, and is right.
const UNLIKELY: f64 = -1e4;

/// Targets of row `i`, filled up with zeros.
#[inline(always)]
fn targets_of<F: Real>(row: &mut [F], targets: Mat<'_>, i: usize) {
    let targets = targets.row(i);
    row[targets.len()..].fill(F::ZERO);
    row.iter_mut().zip(targets).for_each(|(v, t)| *v = F::of(f64::from(*t)));
}

/// The losses take the place of the logits, the gradient that of the targets.
#[inline(always)]
fn binary<M: Arith, F: Real>(share: F, row: &mut [F], targets: &mut [F]) -> (f64, usize) {
    let mut correct = 0u32;
    for (z, t) in row.iter_mut().zip(targets) {
        let (logit, target) = (*z, *t);
        // No exponent is above 0.
        let power = exp::<M, F>(-logit.abs());
        let likely = F::ONE / (F::ONE + power);
        let above = logit > F::ZERO;
        let sigma = if above { likely } else { power * likely };
        let positive = if above { logit } else { F::ZERO };
        *z = positive - logit * target + ln_1p::<M, F>(power);
        *t = (sigma - target) * share;
        correct += u32::from(above == (target > F::of(0.5)));
    }
    (lanes::sum(row).to_f64(), correct as usize)
}

/// `ln(1 + u)` for `u` from 0 to 1: with `s = u / (2 + u)` it is `2·(s + s³/3 + s⁵/5 + …)`, where
/// `s² ≤ 1/9`.
#[inline(always)]
fn ln_1p<M: Arith, F: Real>(u: F) -> F {
    let terms = if F::EPSILON > F::of(1e-10) { 8 } else { 17 };
    let s = u / (F::ONE + F::ONE + u);
    let square = s * s;
    let mut series = F::ZERO;
    for i in (0..terms).rev() {
        series = M::mul_add(series, square, F::of(1.0 / f64::from(2 * i + 1)));
    }
    (s + s) * series
}

per_isa!(fn greatest<[T: Stored], []>(rows: Greatest<'_, T>) = greatest_body);

/// Rows, where their predictions go, and room for one row.
type Greatest<'a, T> = (Mat<'a, T>, &'a mut [u32], &'a mut [<T as Stored>::Sum]);

// `per_isa!` gives every body its arithmetic.
#[allow(clippy::extra_unused_type_parameters)]
#[inline(always)]
fn greatest_body<M: Arith, T: Stored>((x, of, own): Greatest<'_, T>) {
    for (i, of) in of.iter_mut().enumerate() {
        load_row(own, x.row(i), T::Sum::NEG_INFINITY);
        let max = lanes::max(own);
        let row = &own[..x.n_cols];
        let nan = row.iter().position(|v| v.is_nan());
        let at = nan.or_else(|| row.iter().position(|v| *v == max));
        *of = at.unwrap_or(0) as u32;
    }
}
