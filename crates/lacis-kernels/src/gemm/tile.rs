//! The innermost loops: a tile of `R` rows and `V·16` columns of sums in registers.
//!
//! ```text
//!  for each p:  the V vectors of row p of a panel, once
//!      for each row r:  sums[r] += left(r, p) · those vectors
//! ```

use crate::isa::Arith;
pub(super) use crate::lanes::LANES;
use crate::real::{Real, Stored};

/// `R` rows of `V` vectors of sums.
pub(super) type Tile<F, const R: usize, const V: usize> = [[[F; LANES]; V]; R];

/// `sums[r] += a[r] · b`. Loops over numbers: with iterators LLVM keeps the sums in memory.
#[inline(always)]
#[allow(clippy::needless_range_loop)]
fn step<M: Arith, F: Real, const R: usize, const V: usize>(
    sums: &mut Tile<F, R, V>,
    a: [F; R],
    b: &[[F; LANES]; V],
) {
    for r in 0..R {
        for v in 0..V {
            for lane in 0..LANES {
                sums[r][v][lane] = M::mul_add(a[r], b[v][lane], sums[r][v][lane]);
            }
        }
    }
}

/// The left factor's rows as they lie in memory, each as long as the panel.
#[inline(always)]
pub(super) fn of_rows<M: Arith, T: Stored, const R: usize, const V: usize>(
    rows: [&[T]; R],
    panel: &[[[T::Sum; LANES]; V]],
) -> Tile<T::Sum, R, V> {
    onto::<M, T, R, V>([[[T::Sum::ZERO; LANES]; V]; R], rows, panel)
}

/// The same, added to other sums. Loops over numbers again: `array::map` is a call in some of the
/// instances, and sums then go through memory with every term, five times as slow.
#[inline(always)]
#[allow(clippy::needless_range_loop)]
pub(super) fn onto<M: Arith, T: Stored, const R: usize, const V: usize>(
    mut sums: Tile<T::Sum, R, V>,
    rows: [&[T]; R],
    panel: &[[[T::Sum; LANES]; V]],
) -> Tile<T::Sum, R, V> {
    // Telling the lengths here spares a check for every number.
    let mut whole = rows;
    for r in 0..R {
        whole[r] = &rows[r][..panel.len()];
    }
    for (p, b) in panel.iter().enumerate() {
        let mut a = [T::Sum::ZERO; R];
        for r in 0..R {
            a[r] = whole[r][p].wide();
        }
        step::<M, _, R, V>(&mut sums, a, b);
    }
    sums
}

/// The left factor given column by column: `column(p)` has `R` numbers.
#[inline(always)]
pub(super) fn of_columns<M: Arith, F: Real, const R: usize, const V: usize>(
    column: impl Fn(usize) -> [F; R],
    panel: &[[[F; LANES]; V]],
) -> Tile<F, R, V> {
    let mut sums = [[[F::ZERO; LANES]; V]; R];
    for (p, b) in panel.iter().enumerate() {
        step::<M, _, R, V>(&mut sums, column(p), b);
    }
    sums
}
