//! How blocks end: sums become results and are staged, and what rows have beside them is written.

use super::super::gather::{Tile, each_vector, heads_of, weights};
use super::super::lanes::{LANES, Lanes, Layout, Vector, mul};
use super::{Ending, by_slots, stage};
use crate::isa::{Arith, per_isa};
use crate::matrix::MatMut;
use crate::mem::Past;
use crate::real::{Real, Stored};

/// Bytes of a result that no cache holds until it is read.
const LARGE: usize = 32 << 20;

/// Whether a matrix of so many rows, some of which are given, is written past the caches.
pub(in super::super) fn goes_past<T: Stored>(n_rows: usize, part: &MatMut<'_, T>) -> Option<Past> {
    (n_rows * part.n_cols * size_of::<T>() > LARGE).then(Past::begin)
}

/// Sums become results: divided by the sum of powers, and staged.
pub(in super::super) struct Scaled<'a, T: Stored> {
    pub layout: Layout,
    pub factors: &'a [T::Sum],
    pub features: &'a mut [T],
    pub stats: &'a mut [T::Sum],
    pub columns: usize,
}

impl<T: Stored, const N: usize> Ending<T, N> for Scaled<'_, T> {
    #[allow(clippy::needless_range_loop)]
    #[inline(always)]
    fn end<M: Arith, const K: usize, const V: usize>(
        &mut self,
        r: usize,
        tile: Tile,
        sums: &[[Vector<T>; V]; N],
    ) {
        let Layout { slots, heads, channels, .. } = self.layout;
        let from = r * slots + tile.head;
        let Some(factors) = self.factors.get(from..from + heads_of::<K, V>()) else { return };
        let mut scaled = *sums;
        each_vector!(V, v => {
            let w = weights::<T::Sum, K>(factors, v);
            scaled[0][v] = mul(&sums[0][v], &w);
            if N > 1 {
                scaled[N - 1][v] = mul(&sums[N - 1][v], &w);
            }
        });
        stage::<T, V>(&scaled[0], self.features, r * heads * channels + tile.col);
        if N > 1 {
            let at = r * self.columns + 2 * heads + tile.col;
            stage::<T::Sum, V>(&scaled[N - 1], self.stats, at);
        }
    }
}

/// Sums become results: multiplied by one number, and staged.
pub(in super::super) struct Times<'a, T: Stored> {
    pub layout: Layout,
    pub by: T::Sum,
    pub features: &'a mut [T],
}

impl<T: Stored> Ending<T, 1> for Times<'_, T> {
    #[inline(always)]
    fn end<M: Arith, const K: usize, const V: usize>(
        &mut self,
        r: usize,
        tile: Tile,
        [sums]: &[[Vector<T>; V]; 1],
    ) {
        let mut all = *sums;
        each_vector!(V, v => all[v] = mul(&sums[v], &[self.by; LANES]));
        stage::<T, V>(&all, self.features, r * self.layout.width() + tile.col);
    }
}

/// Rows; their `lse`, and sums that are keptwith what they are multiplied by; where rows of so
/// many columns go.
pub(in super::super) type Stats<'a, F> =
    (Layout, usize, &'a [Lanes<F>], Option<[&'a [Lanes<F>]; 2]>, (&'a mut [F], usize));

/// Writes a number or two per row and head, at the beginning of rows.
pub(in super::super) fn write_stats<F: Real>(job: Stats<'_, F>) {
    let layout = job.0;
    by_slots!(layout, stats_rows<F>(job));
}

per_isa!(fn stats_rows<[F: Real], [S]>(job: Stats<'_, F>) = stats_body);

#[allow(clippy::extra_unused_type_parameters)]
#[inline(always)]
fn stats_body<M: Arith, F: Real, const S: usize>(
    (layout, rows, lse, kept, (out, columns)): Stats<'_, F>,
) {
    let lse = lse.as_flattened().as_chunks::<S>().0;
    let kept = kept.map(|kept| kept.map(|list| list.as_flattened().as_chunks::<S>().0));
    for (r, out) in out.chunks_exact_mut(columns).take(rows).enumerate() {
        put(&lse[r], layout.heads, out);
        if let Some([sums, factors]) = kept {
            let mut shares = sums[r];
            for s in 0..S {
                shares[s] *= factors[r][s];
            }
            put(&shares, layout.heads, &mut out[layout.heads..]);
        }
    }
}

/// The numbers of heads, without padding.
#[inline(always)]
fn put<F: Real, const S: usize>(from: &[F; S], heads: usize, to: &mut [F]) {
    match to.first_chunk_mut::<S>() {
        Some(to) if heads == S => *to = *from,
        _ => to.iter_mut().zip(&from[..heads]).for_each(|(to, from)| *to = *from),
    }
}

/// The numbers of heads, and 0 for padding.
#[inline(always)]
pub(in super::super) fn take<F: Real, const S: usize>(from: &[F], heads: usize) -> [F; S] {
    match from.first_chunk::<S>() {
        Some(from) if heads == S => *from,
        _ => {
            let mut to = [F::ZERO; S];
            to.iter_mut().zip(&from[..heads]).for_each(|(to, from)| *to = *from);
            to
        }
    }
}
