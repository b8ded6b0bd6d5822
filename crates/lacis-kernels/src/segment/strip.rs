//! A strip: up to 16 columns whose elements are joined one by one, each where its own index says.
//!
//! ```text
//!  step e has the elements x(e, 0..width), their places at(e, 0..width) below n, and one result
//!  along rows:    step e is row e, a strip is 16 columns      along columns: a strip is one row
//! ```
//! Places are kept as `n × width` numbers that stay in the cache; the steps come in order, so what
//! is joined where never depends on threads.

use lacis_core::reference::{Reduce, Ties};

use super::join::{Join, Max, Min, Mul, Sum, empty};
use crate::mem::prefetch;
use crate::real::{Real, Stored};

/// Columns of a strip.
pub(super) const WIDTH: usize = 16;
/// How many steps ahead elements are asked for, where steps are far apart.
const AHEAD: usize = 12;

/// The elements of a strip.
#[derive(Clone, Copy)]
pub(super) struct Strip<'a, T> {
    /// From the first element on, steps `stride` apart.
    pub x: &'a [T],
    pub stride: usize,
    /// Places, steps and columns so far apart.
    pub at: &'a [u32],
    pub at_strides: [usize; 2],
    /// Number of steps, of places, of columns.
    pub len: usize,
    pub n: usize,
    pub width: usize,
}

/// What a thread keeps for the places of a strip.
pub(super) struct Places<F> {
    first: Vec<F>,
    second: Vec<F>,
    counts: Vec<u32>,
}

impl<F> Places<F> {
    pub fn new() -> Self {
        Places { first: Vec::new(), second: Vec::new(), counts: Vec::new() }
    }
}

/// Fills a list with one number.
fn set<F: Copy>(list: &mut Vec<F>, len: usize, value: F) {
    list.clear();
    list.resize(len, value);
}

/// Where a strip's results go: `width` of them at a time.
pub(super) trait Results<T> {
    /// Those of step, or place, `e`.
    fn of(&mut self, e: usize) -> &mut [T];
}

/// Columns from `col` on of rows that were cut.
pub(super) struct Columns<'r, 'a, T> {
    pub rows: &'r mut [&'a mut [T]],
    pub col: usize,
    pub width: usize,
}

impl<T> Results<T> for Columns<'_, '_, T> {
    #[inline(always)]
    fn of(&mut self, e: usize) -> &mut [T] {
        &mut self.rows[e][self.col..][..self.width]
    }
}

/// The elements of one row.
pub(super) struct Row<'a, T>(pub &'a mut [T]);

impl<T> Results<T> for Row<'_, T> {
    #[inline(always)]
    fn of(&mut self, e: usize) -> &mut [T] {
        &mut self.0[e..=e]
    }
}

impl<T: Stored> Strip<'_, T> {
    /// `f(e, column, place · width + column, element)` for all, step by step.
    #[inline(always)]
    fn each(&self, f: impl FnMut(usize, usize, usize, T::Sum)) {
        self.steps(0..self.len, f);
    }

    #[inline(always)]
    fn steps(
        &self,
        steps: impl Iterator<Item = usize>,
        f: impl FnMut(usize, usize, usize, T::Sum),
    ) {
        // Known widths, so that the compiler unrolls.
        match self.width {
            1 => self.steps_of(1, steps, f),
            WIDTH => self.steps_of(WIDTH, steps, f),
            width => self.steps_of(width, steps, f),
        }
    }

    #[inline(always)]
    fn steps_of(
        &self,
        width: usize,
        steps: impl Iterator<Item = usize>,
        mut f: impl FnMut(usize, usize, usize, T::Sum),
    ) {
        let [step, lane] = self.at_strides;
        for e in steps {
            if width > 1 {
                prefetch(self.x, (e + AHEAD) * self.stride);
                prefetch(self.at, (e + AHEAD) * step);
            }
            let x = &self.x[e * self.stride..][..width];
            let at = &self.at[e * step..][..(width - 1) * lane + 1];
            for c in 0..width {
                f(e, c, at[c * lane] as usize * width + c, x[c].wide());
            }
        }
    }

    /// Reduces into the results of the places.
    pub fn reduce(&self, reduce: Reduce, kept: &mut Places<T::Sum>, y: impl Results<T>) {
        match reduce {
            Reduce::Sum | Reduce::Mean => self.reduce_by::<Sum>(reduce, kept, y),
            Reduce::Max => self.reduce_by::<Max>(reduce, kept, y),
            Reduce::Min => self.reduce_by::<Min>(reduce, kept, y),
            Reduce::Mul => self.reduce_by::<Mul>(reduce, kept, y),
        }
    }

    fn reduce_by<J: Join>(
        &self,
        reduce: Reduce,
        kept: &mut Places<T::Sum>,
        mut y: impl Results<T>,
    ) {
        let size = self.n * self.width;
        set(&mut kept.first, size, J::neutral());
        let joined = &mut kept.first[..size];
        let mut neutral_met = false;
        self.each(|_, _, p, x| {
            joined[p] = J::join(joined[p], x);
            neutral_met |= x == J::neutral();
        });
        // A sum or product of nothing is what joining begins with; a greatest or least number that
        // is still what it began with is that of nothing, unless an item is such a number.
        let counted = match reduce {
            Reduce::Sum | Reduce::Mul => false,
            Reduce::Mean => true,
            Reduce::Max | Reduce::Min => neutral_met,
        };
        if !counted {
            for s in 0..self.n {
                let y = y.of(s).iter_mut().zip(&joined[s * self.width..]);
                let nothing = |joined| joined == J::neutral::<T::Sum>();
                y.for_each(|(y, &joined)| {
                    *y = T::narrow(if nothing(joined) { empty(reduce) } else { joined });
                });
            }
            return;
        }
        set(&mut kept.counts, size, 0);
        let counts = &mut kept.counts[..size];
        self.each(|_, _, p, _| counts[p] += 1);
        for s in 0..self.n {
            for (c, y) in y.of(s).iter_mut().enumerate() {
                let p = s * self.width + c;
                let divisor =
                    if reduce == Reduce::Mean { f64::from(counts[p].max(1)) } else { 1.0 };
                let whole = joined[p] / T::Sum::of(divisor);
                *y = T::narrow(if counts[p] == 0 { empty(reduce) } else { whole });
            }
        }
    }

    /// The gradient of every element; `grad(place, column)` is that of a result.
    pub fn backward(
        &self,
        (reduce, ties): (Reduce, Ties),
        kept: &mut Places<T::Sum>,
        grad: impl Fn(usize, usize) -> T::Sum,
        dx: impl Results<T>,
    ) {
        set(&mut kept.counts, self.n * self.width, 0);
        match (reduce, ties) {
            (Reduce::Sum | Reduce::Mean, _) => self.shares(reduce, kept, grad, dx),
            (Reduce::Max | Reduce::Min, Ties::FirstArgument) => self.first(reduce, kept, grad, dx),
            (Reduce::Max | Reduce::Min, _) => self.split((reduce, ties), kept, grad, dx),
            (Reduce::Mul, _) => self.others(kept, grad, dx),
        }
    }

    fn shares(
        &self,
        reduce: Reduce,
        kept: &mut Places<T::Sum>,
        grad: impl Fn(usize, usize) -> T::Sum,
        mut dx: impl Results<T>,
    ) {
        let counts = &mut kept.counts[..];
        if reduce == Reduce::Mean {
            self.each(|_, _, p, _| counts[p] += 1);
        }
        self.each(|e, c, p, _| {
            let count = T::Sum::of(f64::from(counts[p].max(1)));
            dx.of(e)[c] = T::narrow(grad(p / self.width, c) / count);
        });
    }

    /// The first of equals, the last NaN, gets everything.
    fn first(
        &self,
        reduce: Reduce,
        kept: &mut Places<T::Sum>,
        grad: impl Fn(usize, usize) -> T::Sum,
        mut dx: impl Results<T>,
    ) {
        let size = self.n * self.width;
        set(&mut kept.first, size, T::Sum::ZERO);
        let Places { first: best, counts: chosen, .. } = kept;
        self.each(|e, _, p, x| {
            let better = if reduce == Reduce::Max { x > best[p] } else { x < best[p] };
            if better || x.is_nan() || chosen[p] == 0 {
                (best[p], chosen[p]) = (x, e as u32 + 1);
            }
        });
        self.each(|e, c, p, _| {
            let chosen = chosen[p] == e as u32 + 1;
            let grad = if chosen { grad(p / self.width, c) } else { T::Sum::ZERO };
            dx.of(e)[c] = T::narrow(grad);
        });
    }

    /// Equals share it. Nothing equals NaN: see [`super::backward`].
    fn split(
        &self,
        (reduce, ties): (Reduce, Ties),
        kept: &mut Places<T::Sum>,
        grad: impl Fn(usize, usize) -> T::Sum,
        mut dx: impl Results<T>,
    ) {
        let greatest = reduce == Reduce::Max;
        let neutral = if greatest { T::Sum::NEG_INFINITY } else { T::Sum::INFINITY };
        set(&mut kept.first, self.n * self.width, neutral);
        let Places { first: best, counts: equals, .. } = kept;
        self.each(|_, _, p, x| {
            best[p] = if greatest { best[p].greater(x) } else { best[p].lesser(x) };
        });
        if ties == Ties::SplitWithInitialZero {
            let zero = best.iter().map(|&best| u32::from(best == T::Sum::ZERO));
            equals.iter_mut().zip(zero).for_each(|(equals, zero)| *equals = zero);
        }
        self.each(|_, _, p, x| equals[p] += u32::from(x == best[p]));
        self.each(|e, c, p, x| {
            let share = grad(p / self.width, c) / T::Sum::of(f64::from(equals[p]));
            let own = if x == best[p] { T::Sum::ONE } else { T::Sum::ZERO };
            dx.of(e)[c] = T::narrow(share * own);
        });
    }

    /// The product of those before, then times those after: finite where there are zeros.
    fn others(
        &self,
        kept: &mut Places<T::Sum>,
        grad: impl Fn(usize, usize) -> T::Sum,
        mut dx: impl Results<T>,
    ) {
        let size = self.n * self.width;
        set(&mut kept.first, size, T::Sum::ONE);
        set(&mut kept.second, size, T::Sum::ONE);
        let Places { first: before, second: after, .. } = kept;
        self.each(|e, c, p, x| {
            dx.of(e)[c] = T::narrow(before[p]);
            before[p] *= x;
        });
        self.steps((0..self.len).rev(), |e, c, p, x| {
            let dx = &mut dx.of(e)[c];
            *dx = T::narrow(dx.wide() * after[p] * grad(p / self.width, c));
            after[p] *= x;
        });
    }
}
