//! `g_ic = dy_ic · d_ic · f'(…)` and `db_c = Σ_i g_ic`, in one pass.

use lacis_core::error::same_size;
use lacis_core::reference::Activation;
use lacis_core::{Error, Result, Threads};

use super::activation::{is_told_by_value, slope_at, slope_of};
use crate::dropout::{self, Dropout, Noise};
use crate::isa::{Arith, Isa, per_isa};
use crate::matrix::{Mat, MatMut};
use crate::real::{Real, Stored};
use crate::strips::{STRIP, Strip, Strips, chunked, load, store, summed};

const OP: &str = "elementwise backward";

/// What the forward pass left, to tell the activation's slope by.
#[derive(Clone, Copy, Debug)]
pub enum Saved<'a, T: Stored> {
    /// Nothing: there was no activation.
    Nothing,
    /// What the activation was applied to, before the bias was added.
    Input(Mat<'a, T>),
    /// The result, dropout included.
    Output(Mat<'a, T>),
}

/// A pass back, its sizes checked.
#[derive(Clone, Copy, Debug)]
pub struct Backward<'a, T: Stored> {
    shape: (usize, usize),
    grad: Option<Mat<'a, T>>,
    activation: Activation,
    saved: Saved<'a, T>,
    bias: Option<&'a [T::Sum]>,
    dropout: Option<Dropout<'a>>,
}

impl<'a, T: Stored> Backward<'a, T> {
    /// From `dy`, with neither activation nor dropout.
    pub fn new(grad: impl Into<Mat<'a, T>>) -> Self {
        let grad = grad.into();
        Backward { grad: Some(grad), ..Backward::in_place(grad.n_rows, grad.n_cols) }
    }

    /// `dy` is what the result's matrix holds.
    pub fn in_place(n_rows: usize, n_cols: usize) -> Self {
        Backward {
            shape: (n_rows, n_cols),
            grad: None,
            activation: Activation::Identity,
            saved: Saved::Nothing,
            bias: None,
            dropout: None,
        }
    }

    /// The same pass in place.
    pub fn of_itself(self) -> Self {
        Backward { grad: None, ..self }
    }

    /// Back through `f`, whose slope follows from what was saved.
    ///
    /// # Errors
    /// When that has another shape, or does not tell the slope: nothing tells it for `Identity`
    /// only, the output not for slopes and α that are not positive.
    pub fn activated(self, activation: Activation, saved: Saved<'a, T>) -> Result<Self> {
        let told = match saved {
            Saved::Nothing => activation == Activation::Identity,
            Saved::Input(_) => true,
            Saved::Output(_) => is_told_by_value(activation),
        };
        if !told {
            let problem = format!("{activation:?} needs its input to find its slope");
            return Err(Error::argument("saved", problem));
        }
        if let Saved::Input(x) | Saved::Output(x) = saved {
            same_size(OP, "rows of what was saved", self.shape.0, x.n_rows)?;
            same_size(OP, "columns of what was saved", self.shape.1, x.n_cols)?;
        }
        Ok(Backward { activation, saved, ..self })
    }

    /// The bias that was added to a saved input.
    ///
    /// # Errors
    /// When there is not one number per column.
    pub fn biased(self, bias: &'a [T::Sum]) -> Result<Self> {
        same_size(OP, "length of the bias", self.shape.1, bias.len())?;
        Ok(Backward { bias: Some(bias), ..self })
    }

    /// Back through `d`.
    ///
    /// # Errors
    /// When the dropout names other than one row number per row.
    pub fn dropped(self, dropout: Dropout<'a>) -> Result<Self> {
        dropout.check(OP, self.shape.0)?;
        Ok(Backward { dropout: (!dropout.keeps_all()).then_some(dropout), ..self })
    }

    /// Computes `g`, and the sums of its columns where they are asked for.
    ///
    /// # Errors
    /// When a result has another shape than `dy`.
    pub fn run<'y>(
        &self,
        isa: Isa,
        g: impl Into<MatMut<'y, T>>,
        sums: Option<&mut [T::Sum]>,
        threads: &Threads,
    ) -> Result<()>
    where
        T: 'y,
    {
        T::elementwise_backward(self, isa, g.into(), sums, threads)
    }

    pub(super) fn run_here(
        &self,
        isa: Isa,
        g: MatMut<'_, T>,
        sums: Option<&mut [T::Sum]>,
        threads: &Threads,
    ) -> Result<()> {
        same_size(OP, "rows of the result", self.shape.0, g.n_rows)?;
        same_size(OP, "columns of the result", self.shape.1, g.n_cols)?;
        let saved = match self.saved {
            Saved::Nothing => None,
            Saved::Input(x) | Saved::Output(x) => Some(x),
        };
        let dense = g.stride == g.n_cols && [self.grad, saved].iter().flatten().all(Mat::is_dense);
        let strips = Strips::new(g.n_cols, dense);
        let bias = self.bias.map(|bias| strips.repeated(bias));
        let args = Backward { bias: bias.as_deref(), ..*self };
        let chunks = if g.n_cols == 0 { Vec::new() } else { chunked(strips, g) };
        let Some(sums) = sums else {
            threads.for_each(chunks, |(rows, g)| {
                backward(isa, Part { args: &args, strips, first: rows.start, g, sums: None });
            });
            return Ok(());
        };
        same_size(OP, "number of sums", self.shape.1, sums.len())?;
        let total = summed(threads, chunks, self.shape.1, |(rows, g)| {
            let mut sums = vec![T::Sum::ZERO; strips.period()];
            let part = Part { args: &args, strips, first: rows.start, g, sums: Some(&mut sums) };
            backward(isa, part);
            strips.folded(&sums)
        });
        sums.iter_mut().zip(total).for_each(|(sum, total)| *sum = T::Sum::of(total));
        Ok(())
    }
}

/// `s_c = Σ_i x_ic`: the gradient of a bias, where nothing else has to be computed.
///
/// # Errors
/// When there is not one sum per column.
pub fn column_sums<'a, T: Stored>(
    isa: Isa,
    x: impl Into<Mat<'a, T>>,
    sums: &mut [T::Sum],
    threads: &Threads,
) -> Result<()> {
    T::column_sums(isa, x.into(), sums, threads)
}

pub(super) fn column_sums_here<T: Stored>(
    isa: Isa,
    x: Mat<'_, T>,
    sums: &mut [T::Sum],
    threads: &Threads,
) -> Result<()> {
    same_size("column sums", "number of sums", x.n_cols, sums.len())?;
    let strips = Strips::new(x.n_cols, x.is_dense());
    let chunks = if x.n_cols == 0 { Vec::new() } else { strips.chunks(x.n_rows) };
    let total = summed(threads, chunks, x.n_cols, |rows| chunk_sums(isa, x.rows(rows), strips));
    sums.iter_mut().zip(total).for_each(|(sum, total)| *sum = T::Sum::of(total));
    Ok(())
}

/// The sums of a chunk's columns.
pub(crate) fn chunk_sums<T: Stored>(isa: Isa, x: Mat<'_, T>, strips: Strips) -> Vec<f64> {
    let mut sums = vec![T::Sum::ZERO; strips.period()];
    sum_columns(isa, (x, strips, &mut sums));
    strips.folded(&sums)
}

per_isa!(fn sum_columns<[T: Stored], []>(part: SumPart<'_, T>) = sum_body);

/// A matrix, its strips, and sums as long as one.
type SumPart<'a, T> = (Mat<'a, T>, Strips, &'a mut [<T as Stored>::Sum]);

// `per_isa!` gives every body its arithmetic.
#[allow(clippy::extra_unused_type_parameters)]
#[inline(always)]
fn sum_body<M: Arith, T: Stored>((x, strips, sums): SumPart<'_, T>) {
    for strip in strips.of(x.n_rows) {
        let sums = &mut sums[strip.col..][..strip.len];
        sums.iter_mut().zip(x.strip(strip)).for_each(|(sum, x)| *sum += x.wide());
    }
}

/// Some rows of a pass, from row `first` on. What is given per column is repeated.
struct Part<'a, T: Stored> {
    args: &'a Backward<'a, T>,
    strips: Strips,
    first: usize,
    g: MatMut<'a, T>,
    sums: Option<&'a mut [T::Sum]>,
}

per_isa!(fn backward<[T: Stored], []>(part: Part<'_, T>) = backward_body);

#[inline(always)]
fn backward_body<M: Arith, T: Stored>(part: Part<'_, T>) {
    let Part { args, strips, first, mut g, mut sums } = part;
    let mut stage = [T::Sum::ZERO; STRIP];
    let mut noise: Noise = [0; _];
    for strip in strips.of(g.n_rows) {
        let stage = &mut stage[..strip.len];
        let whole = Strip { row: first + strip.row, ..strip };
        let g = g.strip_mut(strip);
        match args.grad {
            Some(grad) => load(stage, grad.strip(whole)),
            None => load(stage, g),
        }
        if let Some(dropout) = &args.dropout {
            undrop::<T>(args, dropout, (&mut *stage, &mut noise), whole);
        }
        slopes::<M, T>(args, stage, whole);
        if let Some(sums) = &mut sums {
            let sums = &mut sums[strip.col..][..strip.len];
            sums.iter_mut().zip(&*stage).for_each(|(sum, g)| *sum += *g);
        }
        store(g, stage);
    }
}

/// Multiplies by the mask; a ReLU's output is 0 where it dropped, and then only the scale is left.
#[inline(always)]
fn undrop<T: Stored>(
    args: &Backward<'_, T>,
    dropout: &Dropout<'_>,
    (stage, noise): (&mut [T::Sum], &mut Noise),
    strip: Strip,
) {
    if matches!((args.activation, args.saved), (Activation::Relu, Saved::Output(_))) {
        let scale = T::Sum::of(dropout.scale());
        stage.iter_mut().for_each(|g| *g *= scale);
    } else {
        dropout::fill(noise, dropout, 0, strip, args.shape.1);
        dropout::mask(stage, noise, dropout);
    }
}

/// Multiplies by the activation's slope.
#[inline(always)]
fn slopes<M: Arith, T: Stored>(args: &Backward<'_, T>, stage: &mut [T::Sum], strip: Strip) {
    let mut saved = [T::Sum::ZERO; STRIP];
    let saved = &mut saved[..strip.len];
    match args.saved {
        Saved::Nothing => {}
        Saved::Input(x) => {
            load(saved, x.strip(strip));
            if let Some(bias) = args.bias {
                let bias = &bias[strip.col..];
                saved.iter_mut().zip(bias).for_each(|(v, b)| *v += *b);
            }
            slope_at::<M, T::Sum>(args.activation, stage, saved);
        }
        Saved::Output(y) => {
            load(saved, y.strip(strip));
            if let Some(dropout) = &args.dropout {
                let back = T::Sum::of(1.0 / dropout.scale().max(1.0));
                saved.iter_mut().for_each(|v| *v *= back);
            }
            slope_of(args.activation, stage, saved);
        }
    }
}
