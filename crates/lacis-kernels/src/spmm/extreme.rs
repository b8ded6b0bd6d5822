//! Largest and smallest: which entry they came from, and who gets their gradient.
//!
//! ```text
//!   arguments:  at_ic = the first entry e of row i with m_ec = y_ic,   m_ec = a_e · r_j · x_jc
//!   even:       dx_jc = Σ_e a_e·r_j · [m_ec = y_ic] · dy_ic / #{e' of row i: m_e'c = y_ic}
//!   chosen:     dx_jc = Σ_e a_e·r_j · [at_ic = e] · dy_ic
//! ```
//! The even split finds who is equal again, and stores no argument.
//!
//! # Parallelism
//! A thread does whole rows, of the matrix for arguments and counts, of its transpose for
//! gradients.
//! # Memory
//! The even split keeps `dy` divided by the counts, as large as `dy`.

use std::ops::Range;

use lacis_core::error::same_size;
use lacis_core::reference::{Reduce, Ties};
use lacis_core::threads::split_at_ends;
use lacis_core::{CsrView, Error, Result, Threads};

use super::terms::{Ones, Scaled, Values, Weights};
use super::{Args, slices};
use crate::finish::{LANES, write};
use crate::isa::{Arith, Isa, per_isa};
use crate::matrix::{Mat, MatMut, Room};
use crate::mem::prefetch;
use crate::real::{Real, Stored};

/// Columns of a tile: two vectors of values and two of what belongs to them fit in registers.
const TILE: usize = 2 * LANES;
/// How many entries ahead rows are asked for.
const AHEAD: usize = 12;
/// The argument of a row without entries.
const NONE: u32 = u32::MAX;

/// Computes a maximum or minimum into `y`, and into `at` the entry that each element came from: its
/// place in the caller's list where the matrix knows one, else in stored order. The first of
/// several equal ones; `u32::MAX` for rows without entries.
///
/// # Errors
/// When the product is no maximum or minimum, has a left scale or an epilogue, or a size is wrong.
pub fn arguments<'y, T: Stored + 'y>(
    isa: Isa,
    args: &Args<'_, T>,
    (y, at): (impl Into<MatMut<'y, T>>, &mut [u32]),
    threads: &Threads,
) -> Result<()> {
    T::spmm_arguments(isa, args, (y.into(), at), threads)
}

pub(super) fn arguments_here<T: Stored>(
    isa: Isa,
    args: &Args<'_, T>,
    (y, at): (MatMut<'_, T>, &mut [u32]),
    threads: &Threads,
) -> Result<()> {
    chooses(args)?;
    same_size("spmm arguments", "rows of y", args.a.n_rows(), y.n_rows)?;
    same_size("spmm arguments", "columns of y", args.k(), y.n_cols)?;
    same_size("spmm arguments", "number of arguments", y.n_rows * y.n_cols, at.len())?;
    if at.is_empty() {
        return Ok(());
    }
    let slices = slices(args);
    let ends: Vec<usize> = slices.iter().map(|rows| rows.end).collect();
    let at_ends: Vec<usize> = ends.iter().map(|end| end * args.k()).collect();
    let parts = y.split(&ends).into_iter().zip(split_at_ends(at, &at_ends));
    let items = slices.iter().cloned().zip(parts).collect();
    threads.for_each(items, |(rows, (y, at))| {
        let part = Choosing { args, rows, y, at };
        match (args.values.is_some(), args.right.is_some()) {
            (false, false) => choose::<T, Ones>(isa, part),
            (true, false) => choose::<T, Values>(isa, part),
            (_, true) => choose::<T, Scaled>(isa, part),
        }
    });
    Ok(())
}

fn chooses<T: Stored>(args: &Args<'_, T>) -> Result<()> {
    if !matches!(args.reduce, Reduce::Max | Reduce::Min) {
        let problem = format!("{:?} has no argument; max and min have", args.reduce);
        return Err(Error::argument("reduce", problem));
    }
    if args.left.is_some() || !args.epilogue.is_plain() {
        let problem = "arguments are of the bare maximum or minimum: no left scale, no epilogue";
        return Err(Error::argument("spmm", problem));
    }
    Ok(())
}

struct Choosing<'a, T: Stored> {
    args: &'a Args<'a, T>,
    rows: Range<usize>,
    y: MatMut<'a, T>,
    at: &'a mut [u32],
}

per_isa!(fn choose<[T: Stored, W: Weights], []>(part: Choosing<'_, T>) = choose_body);

#[inline(always)]
#[allow(clippy::extra_unused_type_parameters)] // nothing to fuse
fn choose_body<M: Arith, T: Stored, W: Weights>(part: Choosing<'_, T>) {
    let Choosing { args, rows, mut y, at } = part;
    let k = args.k();
    let smallest = args.reduce == Reduce::Min;
    for i in rows.clone() {
        let row = i - rows.start;
        let tiles = y.row_mut(row).chunks_mut(TILE).zip(at[row * k..][..k].chunks_mut(TILE));
        for (tile, (y, at)) in tiles.enumerate() {
            let (best, from) = first_best::<T, W>(args, args.a.row(i), tile * TILE, smallest);
            write(&best, y);
            at.copy_from_slice(&from.as_flattened()[..at.len()]);
        }
    }
}

/// The best of a row's messages in a tile of columns, and the first entry that had it.
#[inline(always)]
fn first_best<T: Stored, W: Weights>(
    args: &Args<'_, T>,
    entries: Range<usize>,
    col: usize,
    smallest: bool,
) -> ([[T::Sum; LANES]; 2], [[u32; LANES]; 2]) {
    // The smallest is the largest of the negatives.
    let sign = if smallest { -T::Sum::ONE } else { T::Sum::ONE };
    let caller = |e: usize| args.a.order.map_or(e as u32, |order| order[e]);
    if entries.is_empty() {
        return ([[T::Sum::ZERO; LANES]; 2], [[NONE; LANES]; 2]);
    }
    let mut best = [[T::Sum::NEG_INFINITY; LANES]; 2];
    let mut from = [[caller(entries.start); LANES]; 2];
    for e in entries {
        ask(args.a, args.x, e + AHEAD, col);
        let j = args.a.cols[e] as usize;
        let (weight, here) = (sign * W::at(args, e, j), caller(e));
        let x = tile_of(args.x, j, col);
        for v in 0..2 {
            for lane in 0..LANES {
                let m = weight * x[v][lane];
                let better = m > best[v][lane] || m.is_nan();
                best[v][lane] = if better { m } else { best[v][lane] };
                from[v][lane] = if better { here } else { from[v][lane] };
            }
        }
    }
    best.as_flattened_mut().iter_mut().for_each(|best| *best = sign * *best);
    (best, from)
}

/// Two vectors of row `j` from column `col` on; what is past the end of the matrix is 0.
#[inline(always)]
fn tile_of<T: Stored>(x: Mat<'_, T>, j: usize, col: usize) -> [[T::Sum; LANES]; 2] {
    let start = j * x.stride + col;
    match x.data.get(start..start + TILE) {
        Some(tile) => {
            let (tile, _) = tile.as_chunks::<LANES>();
            [tile[0].map(T::wide), tile[1].map(T::wide)]
        }
        None => {
            let mut tile = [[T::Sum::ZERO; LANES]; 2];
            let rest = x.data[start..].iter();
            tile.as_flattened_mut().iter_mut().zip(rest).for_each(|(t, x)| *t = x.wide());
            tile
        }
    }
}

#[inline(always)]
fn ask<T: Stored>(a: CsrView<'_>, x: Mat<'_, T>, e: usize, col: usize) {
    if let Some(&j) = a.cols.get(e) {
        let start = j as usize * x.stride + col;
        for at in (0..TILE).step_by(64 / size_of::<T>()) {
            prefetch(x.data, start + at);
        }
    }
}

/// The gradient of `x` of a maximum or minimum.
#[derive(Clone, Copy, Debug)]
pub struct ExtremeBackward<'a, T: Stored> {
    forward: Args<'a, T>,
    transposed: CsrView<'a>,
    values: Option<&'a [T::Sum]>,
}

impl<'a, T: Stored> ExtremeBackward<'a, T> {
    /// Of a product, whose matrix's transpose is `transposed`. For values that were given by
    /// [`Args::weighted`], [`ExtremeBackward::weighted`] gives them in the transpose's order.
    ///
    /// # Errors
    /// When the product is no bare maximum or minimum, or `transposed` no transpose of its matrix.
    pub fn new(forward: Args<'a, T>, transposed: CsrView<'a>) -> Result<Self> {
        chooses(&forward)?;
        let (op, a) = ("spmm backward", forward.a);
        same_size(op, "rows of the transpose", a.n_cols, transposed.n_rows())?;
        same_size(op, "columns of the transpose", a.n_rows(), transposed.n_cols)?;
        same_size(op, "entries of the transpose", a.cols.len(), transposed.cols.len())?;
        let values = transposed.values.and_then(T::Sum::values);
        Ok(ExtremeBackward { forward, transposed, values })
    }

    /// The values in the transpose's stored order.
    ///
    /// # Errors
    /// When there is not one value per entry.
    pub fn weighted(mut self, values: &'a [T::Sum]) -> Result<Self> {
        same_size("spmm backward", "number of values", self.transposed.cols.len(), values.len())?;
        self.values = Some(values);
        Ok(self)
    }

    /// `dx` where equal ones share the gradient.
    ///
    /// # Errors
    /// When a size is wrong, or `ties` says that the first gets everything.
    pub fn even<'y>(
        &self,
        isa: Isa,
        (ties, y, grad): (Ties, impl Into<Mat<'y, T>>, impl Into<Mat<'y, T>>),
        dx: impl Into<MatMut<'y, T>>,
        threads: &Threads,
    ) -> Result<()>
    where
        T: 'y,
    {
        T::spmm_even(self, isa, (ties, y.into(), grad.into()), dx.into(), threads)
    }

    pub(super) fn even_here(
        &self,
        isa: Isa,
        (ties, y, grad): (Ties, Mat<'_, T>, Mat<'_, T>),
        dx: MatMut<'_, T>,
        threads: &Threads,
    ) -> Result<()> {
        if ties == Ties::FirstArgument {
            let problem = "the first of equal ones needs arguments: ExtremeBackward::chosen";
            return Err(Error::argument("ties", problem));
        }
        self.check_result("y", &y)?;
        self.check(&grad, &dx)?;
        if dx.n_cols == 0 {
            return Ok(());
        }
        let shares = self.shares(isa, (ties, y, grad), threads)?;
        let rule = Rule::Even { y, shares: Mat::from(&shares) };
        self.gather(isa, rule, dx, threads);
        Ok(())
    }

    /// `dx` where the entry that [`arguments`] found gets everything. The transpose must know the
    /// places of its entries (`Csr::transpose_with_order`).
    ///
    /// # Errors
    /// When a size is wrong, or the transpose does not know the places.
    pub fn chosen<'y>(
        &self,
        isa: Isa,
        (at, grad): (&[u32], impl Into<Mat<'y, T>>),
        dx: impl Into<MatMut<'y, T>>,
        threads: &Threads,
    ) -> Result<()>
    where
        T: 'y,
    {
        T::spmm_chosen(self, isa, (at, grad.into()), dx.into(), threads)
    }

    pub(super) fn chosen_here(
        &self,
        isa: Isa,
        (at, grad): (&[u32], Mat<'_, T>),
        dx: MatMut<'_, T>,
        threads: &Threads,
    ) -> Result<()> {
        let n = self.forward.a.n_rows() * self.forward.k();
        same_size("spmm backward", "number of arguments", n, at.len())?;
        self.check(&grad, &dx)?;
        let Some(places) = self.transposed.order else {
            let problem = "does not know its entries' places; Csr::transpose_with_order keeps them";
            return Err(Error::argument("the transpose", problem));
        };
        if dx.n_cols > 0 {
            self.gather(isa, Rule::Chosen { at, places, grad }, dx, threads);
        }
        Ok(())
    }

    fn check(&self, grad: &Mat<'_, T>, dx: &MatMut<'_, T>) -> Result<()> {
        self.check_result("the gradient", grad)?;
        same_size("spmm backward", "rows of dx", self.forward.a.n_cols, dx.n_rows)?;
        same_size("spmm backward", "columns of dx", self.forward.k(), dx.n_cols)?;
        let (mine, theirs) = (self.forward.values.is_some(), self.values.is_some());
        if mine != theirs {
            let problem = "have values on one side only, of the matrix or of its transpose";
            return Err(Error::argument("spmm backward: entries", problem));
        }
        Ok(())
    }

    fn check_result(&self, what: &'static str, y: &Mat<'_, T>) -> Result<()> {
        same_size("spmm backward", what, self.forward.a.n_rows(), y.n_rows)?;
        same_size("spmm backward", what, self.forward.k(), y.n_cols)
    }

    /// `dy_ic / #{e of row i: m_ec = y_ic}`.
    fn shares<'t>(
        &self,
        isa: Isa,
        (ties, y, grad): (Ties, Mat<'_, T>, Mat<'_, T>),
        threads: &'t Threads,
    ) -> Result<Room<'t, T::Sum>> {
        let args = &self.forward;
        let mut shares = Room::lent(y.n_rows, y.n_cols, threads)?;
        let slices = slices(args);
        let ends: Vec<usize> = slices.iter().map(|rows| rows.end).collect();
        let parts = MatMut::from(&mut shares).split(&ends);
        let items = slices.iter().cloned().zip(parts).collect();
        threads.for_each(items, |(rows, shares)| {
            let part = Counting { args, rows, ties, y, grad, shares };
            match (args.values.is_some(), args.right.is_some()) {
                (false, false) => count::<T, Ones>(isa, part),
                (true, false) => count::<T, Values>(isa, part),
                (_, true) => count::<T, Scaled>(isa, part),
            }
        });
        Ok(shares)
    }

    fn gather(&self, isa: Isa, rule: Rule<'_, T>, dx: MatMut<'_, T>, threads: &Threads) {
        let slices = self.transposed.slices(super::SLICE_ENTRIES);
        let ends: Vec<usize> = slices.iter().map(|rows| rows.end).collect();
        let items = slices.iter().cloned().zip(dx.split(&ends)).collect();
        threads.for_each(items, |(rows, dx)| {
            gathered(isa, Gathering { backward: self, rule, rows, dx });
        });
    }
}

struct Counting<'a, T: Stored> {
    args: &'a Args<'a, T>,
    rows: Range<usize>,
    ties: Ties,
    y: Mat<'a, T>,
    grad: Mat<'a, T>,
    shares: MatMut<'a, T::Sum>,
}

per_isa!(fn count<[T: Stored, W: Weights], []>(part: Counting<'_, T>) = count_body);

#[inline(always)]
#[allow(clippy::extra_unused_type_parameters)] // nothing to fuse
fn count_body<M: Arith, T: Stored, W: Weights>(part: Counting<'_, T>) {
    let Counting { args, rows, ties, y, grad, mut shares } = part;
    for i in rows.clone() {
        for (tile, shares) in shares.row_mut(i - rows.start).chunks_mut(TILE).enumerate() {
            let col = tile * TILE;
            let (y, grad) = (tile_of(y, i, col), tile_of(grad, i, col));
            let mut counts = [[T::Sum::ZERO; LANES]; 2];
            if ties == Ties::SplitWithInitialZero {
                counts = y.map(|y| y.map(|y| one_if::<T::Sum>(y == T::Sum::ZERO)));
            }
            for e in args.a.row(i) {
                ask(args.a, args.x, e + AHEAD, col);
                let j = args.a.cols[e] as usize;
                let (weight, x) = (W::at(args, e, j), tile_of(args.x, j, col));
                for v in 0..2 {
                    for lane in 0..LANES {
                        let m = T::narrow(weight * x[v][lane]).wide();
                        counts[v][lane] += one_if(m == y[v][lane]);
                    }
                }
            }
            let counts = counts.as_flattened().iter();
            let shared = grad.as_flattened().iter().zip(counts).map(|(g, count)| *g / *count);
            shares.iter_mut().zip(shared).for_each(|(share, new)| *share = new);
        }
    }
}

#[inline(always)]
fn one_if<F: Real>(condition: bool) -> F {
    if condition { F::ONE } else { F::ZERO }
}

/// Which entries of a row of the transpose get how much.
#[derive(Clone, Copy)]
enum Rule<'a, T: Stored> {
    Even { y: Mat<'a, T>, shares: Mat<'a, T::Sum> },
    Chosen { at: &'a [u32], places: &'a [u32], grad: Mat<'a, T> },
}

struct Gathering<'a, T: Stored> {
    backward: &'a ExtremeBackward<'a, T>,
    rule: Rule<'a, T>,
    rows: Range<usize>,
    dx: MatMut<'a, T>,
}

per_isa!(fn gathered<[T: Stored], []>(part: Gathering<'_, T>) = gather_body);

#[inline(always)]
fn gather_body<M: Arith, T: Stored>(part: Gathering<'_, T>) {
    let Gathering { backward, rule, rows, mut dx } = part;
    let (t, forward) = (backward.transposed, &backward.forward);
    for j in rows.clone() {
        let right = forward.right.map_or(T::Sum::ONE, |right| right[j]);
        for (tile, dx) in dx.row_mut(j - rows.start).chunks_mut(TILE).enumerate() {
            let col = tile * TILE;
            let x = tile_of(forward.x, j, col);
            let mut sums = [[T::Sum::ZERO; LANES]; 2];
            for e in t.row(j) {
                let i = t.cols[e] as usize;
                let weight = backward.values.map_or(T::Sum::ONE, |values| values[e]) * right;
                match rule {
                    Rule::Even { y, shares } => {
                        ask(t, y, e + AHEAD, col);
                        ask(t, shares, e + AHEAD, col);
                        let (y, shares) = (tile_of(y, i, col), tile_of(shares, i, col));
                        add_equal::<M, T>(&mut sums, weight, [x, y, shares]);
                    }
                    Rule::Chosen { at, places, grad } => {
                        ask(t, grad, e + AHEAD, col);
                        let (start, width) = (i * forward.k() + col, dx.len());
                        let at = &at[start..][..width];
                        let grad = tile_of(grad, i, col);
                        add_chosen::<M, T::Sum>(&mut sums, weight, (at, places[e], grad));
                    }
                }
            }
            write(&sums, dx);
        }
    }
}

type Tile<F> = [[F; LANES]; 2];

#[inline(always)]
fn add_equal<M: Arith, T: Stored>(
    sums: &mut Tile<T::Sum>,
    weight: T::Sum,
    [x, y, shares]: [Tile<T::Sum>; 3],
) {
    for v in 0..2 {
        for lane in 0..LANES {
            // As it was stored, or nothing would be equal.
            let m = T::narrow(weight * x[v][lane]).wide();
            // A product, not a choice: where nothing is equal to NaN, the gradient is NaN too.
            let part = shares[v][lane] * one_if(m == y[v][lane]);
            sums[v][lane] = M::mul_add(weight, part, sums[v][lane]);
        }
    }
}

#[inline(always)]
fn add_chosen<M: Arith, F: Real>(
    sums: &mut Tile<F>,
    weight: F,
    (at, place, grad): (&[u32], u32, Tile<F>),
) {
    let sums = sums.as_flattened_mut().iter_mut();
    for ((sum, grad), at) in sums.zip(grad.as_flattened()).zip(at) {
        *sum = M::mul_add(weight, *grad * one_if(*at == place), *sum);
    }
}
