//! What becomes of a finished sum on its way to memory: no second pass over the result.

use lacis_core::reference::Activation;

use crate::elementwise::activation::{apply, slope_of};
use crate::isa::{Arith, per_isa};
pub(crate) use crate::lanes::LANES;
use crate::real::{Real, Stored};

/// Whether a product replaces what is there or is added to it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Accum {
    /// `y = …`.
    #[default]
    Replace,
    /// `y = y + …`.
    Add,
    /// `y = … · f'`, where `y` is what `f` gave: back through a function, over its result. Of dense
    /// products alone.
    Gate(Activation),
}

/// `y = f(sum + y + b)`, the last two where asked for.
#[derive(Clone, Copy, Debug)]
pub struct Epilogue<'a, F> {
    /// Whether `y` is added to.
    pub accum: Accum,
    /// `b`, one number per column.
    pub bias: Option<&'a [F]>,
    /// `f`.
    pub activation: Activation,
}

impl<F> Epilogue<'_, F> {
    /// Just the sum.
    pub const PLAIN: Self =
        Epilogue { accum: Accum::Replace, bias: None, activation: Activation::Identity };
}

impl<F> Default for Epilogue<'_, F> {
    fn default() -> Self {
        Epilogue::PLAIN
    }
}

impl<F: Real> Epilogue<'_, F> {
    /// Whether the sum is all.
    pub fn is_plain(&self) -> bool {
        self.accum == Accum::Replace
            && self.bias.is_none()
            && self.activation == Activation::Identity
    }

    /// Turns sums for the columns from `col` on into what `y` is to hold.
    #[inline(always)]
    pub(crate) fn apply<M: Arith, O: Stored<Sum = F>>(&self, sums: &mut [F], y: &[O], col: usize) {
        match self.accum {
            Accum::Replace => {}
            Accum::Add => sums.iter_mut().zip(y).for_each(|(sum, y)| *sum += y.wide()),
            Accum::Gate(function) => gate::<F, O>(function, sums, y),
        }
        if let Some(bias) = self.bias {
            sums.iter_mut().zip(&bias[col..]).for_each(|(sum, b)| *sum += *b);
        }
        apply::<M, F>(self.activation, sums);
    }

    /// Writes as many sums as `y` has room for; `y` begins at column `col` of the result.
    #[inline(always)]
    pub(crate) fn store<M: Arith, O: Stored<Sum = F>, const V: usize>(
        &self,
        sums: &[[F; LANES]; V],
        y: &mut [O],
        col: usize,
    ) {
        if self.is_plain() {
            return write(sums, y);
        }
        let mut sums = *sums;
        self.apply::<M, O>(&mut sums.as_flattened_mut()[..y.len()], y, col);
        write(&sums, y);
    }
}

/// Sums times the slopes of a function whose values are there.
#[inline(always)]
fn gate<F: Real, O: Stored<Sum = F>>(function: Activation, sums: &mut [F], y: &[O]) {
    let mut values = [F::ZERO; LANES];
    for (sums, y) in sums.chunks_mut(LANES).zip(y.chunks(LANES)) {
        values.iter_mut().zip(y).for_each(|(value, y)| *value = y.wide());
        slope_of(function, sums, &values);
    }
}

/// Sums on their way to a piece of a row of `y`, which begins at column `col`.
pub(crate) struct Ending<'a, O: Stored> {
    pub epilogue: Epilogue<'a, O::Sum>,
    pub sums: &'a mut [O::Sum],
    pub y: &'a mut [O],
    pub col: usize,
}

per_isa!(pub(crate) fn end<[O: Stored], []>(ending: Ending<'_, O>) = end_body);

#[inline(always)]
fn end_body<M: Arith, O: Stored>(ending: Ending<'_, O>) {
    let Ending { epilogue, sums, y, col } = ending;
    epilogue.apply::<M, O>(sums, y, col);
    y.iter_mut().zip(sums).for_each(|(y, sum)| *y = O::narrow(*sum));
}

/// Sums of some rows of `k` columns, `stride` apart, that become what they are to be in place.
pub(crate) struct Block<'a, F> {
    /// Replaces what is there.
    pub epilogue: Epilogue<'a, F>,
    pub sums: &'a mut [F],
    pub k: usize,
    pub stride: usize,
}

per_isa!(pub(crate) fn end_rows<[F: Real], []>(block: Block<'_, F>) = end_rows_body);

#[inline(always)]
fn end_rows_body<M: Arith, F: Real>(block: Block<'_, F>) {
    let Block { epilogue, sums, k, stride } = block;
    if let Some(bias) = epilogue.bias {
        for row in sums.chunks_mut(stride) {
            row.iter_mut().zip(bias).for_each(|(sum, b)| *sum += *b);
        }
    }
    // All at once, unless something lies between rows.
    let (piece, len) = if stride == k { (sums.len(), sums.len()) } else { (stride, k) };
    for sums in sums.chunks_mut(piece.max(1)) {
        apply::<M, F>(epilogue.activation, &mut sums[..len]);
    }
}

/// Writes as many sums as `y` has room for, whole vectors where it can.
#[inline(always)]
pub(crate) fn write<O: Stored, const V: usize>(sums: &[[O::Sum; LANES]; V], y: &mut [O]) {
    let (whole, rest) = y.as_chunks_mut::<LANES>();
    // Not `sums.map(…)`, which goes through memory element by element.
    for (y, sums) in whole.iter_mut().zip(sums) {
        y.iter_mut().zip(sums).for_each(|(y, sum)| *y = O::narrow(*sum));
    }
    if !rest.is_empty() {
        rest.iter_mut().zip(&sums[whole.len()]).for_each(|(y, sum)| *y = O::narrow(*sum));
    }
}
