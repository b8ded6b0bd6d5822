//! What is done with the rows of features of a block: gathered, weighted and added; multiplied
//! with each other, head by head.
//!
//! Rows are read a tile of `V` vectors at a time, as in [`super::super::gather`].

use super::super::gather::{Tile, by_shape, each_tile, each_vector, end_of, heads_of, meant, read};
use super::super::gather::{vector, weights};
use super::super::lanes::{LANES, Lanes, Layout, Vector, add, has_shapes, mul, mul_add};
use super::Block;
use crate::isa::{Arith, per_isa};
use crate::matrix::Mat;
use crate::real::{Real, Stored};

/// Ends the sums of a row.
pub(in super::super) trait Ending<T: Stored, const N: usize> {
    /// Of row `r` of the block, those of one tile.
    fn end<M: Arith, const K: usize, const V: usize>(
        &mut self,
        r: usize,
        tile: Tile,
        sums: &[[Vector<T>; V]; N],
    );
}

/// Weights of a block's entries, rows to gather, and what becomes of the sums.
type Weighed<'a, T, E, const N: usize> =
    (Layout, &'a Block<'a>, Mat<'a, T>, [&'a [Vector<T>]; N], &'a mut E);

/// Sums of gathered rows, with one or two lists of weights.
#[inline(always)]
pub(in super::super) fn weigh<T: Stored, E: Ending<T, N>, const N: usize>(
    job: Weighed<'_, T, E, N>,
) {
    let layout = job.0;
    by_shape!(layout, T, weigh_rows < T, E, N > (job));
}

per_isa!(fn weigh_rows<[T: Stored, E: Ending<T, N>], [K, V, N]>(
    job: Weighed<'_, T, E, N>) = weigh_body);

#[inline(always)]
fn weigh_body<
    M: Arith,
    T: Stored,
    E: Ending<T, N>,
    const K: usize,
    const V: usize,
    const N: usize,
>(
    (layout, block, x, p, end): Weighed<'_, T, E, N>,
) {
    let p = p.map(|p| p.as_flattened());
    for r in 0..block.rows {
        let span = block.row(r);
        let (cols, at) = (&block.cols[span.clone()], span.start * layout.slots);
        each_tile!(layout, K, V, tile =>
            end.end::<M, K, V>(r, tile,
                &weigh_tile::<M, T, K, V, N>(layout.slots, (x, cols), (p, at), tile)),
            end.end::<M, K, 1>(r, tile,
                &weigh_tile::<M, T, K, 1, N>(layout.slots, (x, cols), (p, at), tile)));
    }
}

/// One tile of the sums of a row; its weights begin at `at`.
// Several lists have an element per vector.
#[allow(clippy::needless_range_loop)]
#[inline(always)]
fn weigh_tile<M: Arith, T: Stored, const K: usize, const V: usize, const N: usize>(
    slots: usize,
    (x, cols): (Mat<'_, T>, &[u32]),
    (p, at): ([&[T::Sum]; N], usize),
    tile: Tile,
) -> [[Vector<T>; V]; N] {
    let meant = meant::<T::Sum>(tile);
    let (first, last) = (p[0], p[N - 1]);
    let mut totals = [[[T::Sum::ZERO; LANES]; V]; N];
    let mut at = at + tile.head;
    for &j in cols {
        let short;
        let row = read!(x, j, tile, T, V => short);
        let heads = at..at + heads_of::<K, V>();
        let (Some(first), Some(last)) = (first.get(heads.clone()), last.get(heads)) else {
            return totals;
        };
        each_vector!(V, v => {
            let x = vector::<T, K, V>(row, v, &meant);
            totals[0][v] = mul_add::<M, _>(&weights::<T::Sum, K>(first, v), &x, &totals[0][v]);
            if N > 1 {
                let w = weights::<T::Sum, K>(last, v);
                totals[N - 1][v] = mul_add::<M, _>(&w, &x, &totals[N - 1][v]);
            }
        });
        at += slots;
    }
    totals
}

/// The rows of a block, from some row of a matrix on, times those that its entries name: products
/// per entry and head.
type Dots<'a, T> = (Layout, &'a Block<'a>, (Mat<'a, T>, usize), Mat<'a, T>, &'a mut [Vector<T>]);

/// `own_i · x_j` of every entry and head.
#[inline(always)]
pub(in super::super) fn dots<T: Stored>(job: Dots<'_, T>) {
    let layout = job.0;
    by_shape!(layout, T, dots_rows < T, () > (job));
}

per_isa!(fn dots_rows<[T: Stored, G: Copy], [K, V]>(job: Dots<'_, T>) = dots_body);

#[allow(clippy::extra_unused_type_parameters)]
#[inline(always)]
fn dots_body<M: Arith, T: Stored, G: Copy, const K: usize, const V: usize>(
    (layout, block, (own, first), x, out): Dots<'_, T>,
) {
    let (slots, out) = (layout.slots, out.as_flattened_mut());
    let mut kept = [[T::Sum::ZERO; LANES]; KEPT];
    for r in 0..block.rows {
        let (span, i) = (block.row(r), first + r);
        let (cols, at) = (&block.cols[span.clone()], span.start * slots);
        let out = &mut out[at..];
        each_tile!(layout, K, V, tile =>
            dots_tile::<T, K, V>((tile, &mut kept), (own, i), (x, cols), (&mut *out, slots)),
            dots_tile::<T, K, 1>((tile, &mut kept), (own, i), (x, cols), (&mut *out, slots)));
    }
}

#[inline(always)]
fn dots_tile<T: Stored, const K: usize, const V: usize>(
    (tile, kept): (Tile, &mut [Vector<T>; KEPT]),
    (own, i): (Mat<'_, T>, usize),
    (x, cols): (Mat<'_, T>, &[u32]),
    (out, slots): (&mut [T::Sum], usize),
) {
    let meant = meant::<T::Sum>(tile);
    let mine = read_tile::<T, K, V>(own, i, tile, &meant);
    let mut at = tile.head;
    if K == 0 {
        for cols in cols.chunks(KEPT) {
            for (kept, &j) in kept.iter_mut().zip(cols) {
                let row = read_tile::<T, K, V>(x, j as usize, tile, &meant);
                *kept = added(&products(&mine, &row));
            }
            at = store_kept((kept, cols.len(), tile.first), out, (at, slots));
        }
        return;
    }
    for &j in cols {
        let row = read_tile::<T, K, V>(x, j as usize, tile, &meant);
        let Some(out) = out.get_mut(at..at + heads_of::<K, V>()) else { return };
        store_sums::<T::Sum, K, V>(&products(&mine, &row), out);
        at += slots;
    }
}

/// Items whose vectors are kept before they are summed across lanes, where each is one sum: in a
/// loop of its own, four at a time, that takes a third of the instructions.
const KEPT: usize = 16;

/// The numbers of a tile of row `i`.
#[inline(always)]
fn read_tile<T: Stored, const K: usize, const V: usize>(
    x: Mat<'_, T>,
    i: usize,
    tile: Tile,
    meant: &Vector<T>,
) -> [Vector<T>; V] {
    let short;
    let row = read!(x, i, tile, T, V => short);
    let mut lanes = [[T::Sum::ZERO; LANES]; V];
    each_vector!(V, v => lanes[v] = vector::<T, K, V>(row, v, meant));
    lanes
}

/// Vector by vector.
#[inline(always)]
fn products<F: Real, const V: usize>(a: &[Lanes<F>; V], b: &[Lanes<F>; V]) -> [Lanes<F>; V] {
    let mut products = [[F::ZERO; LANES]; V];
    each_vector!(V, v => products[v] = mul(&a[v], &b[v]));
    products
}

/// All vectors in one.
#[inline(always)]
fn added<F: Real, const V: usize>(vectors: &[Lanes<F>; V]) -> Lanes<F> {
    let mut sum = vectors[0];
    each_vector!(V, v => if v > 0 {
        sum = add(&sum, &vectors[v]);
    });
    sum
}

/// Sums across the lanes of the first `n` items, to places `slots` apart; returns the next place.
#[inline(always)]
fn store_kept<F: Real>(
    (kept, n, first): (&[Lanes<F>; KEPT], usize, bool),
    out: &mut [F],
    (at, slots): (usize, usize),
) -> usize {
    let end = at + n * slots;
    let mut at = at;
    for four in kept.as_chunks::<4>().0 {
        if at >= end {
            break;
        }
        let sums = sums_of::<F, LANES, 4>(four);
        match out.get_mut(at..at + 4) {
            // What is written past the last is written again later, or never read.
            Some(out) if slots == 1 && first => out.copy_from_slice(&sums[..4]),
            _ => {
                let places = out[at..].iter_mut().step_by(slots).take((end - at) / slots);
                for (out, sum) in places.zip(&sums[..4]) {
                    *out = if first { *sum } else { *out + *sum };
                }
            }
        }
        at += 4 * slots;
    }
    end
}

/// Rows of two matrices, from some row on each; products per row and head.
pub(in super::super) type RowDots<'a, T, U> =
    (Layout, usize, (Mat<'a, T>, usize), (Mat<'a, U>, usize), &'a mut [<T as Stored>::Sum]);

/// `x_r · z_r` of every head and of so many rows.
#[inline(always)]
pub(in super::super) fn row_dots<T: Stored, U: Stored<Sum = T::Sum>>(job: RowDots<'_, T, U>) {
    let layout = job.0;
    by_shape!(layout, T, row_dots_rows < T, U > (job));
}

per_isa!(fn row_dots_rows<[T: Stored, U: Stored<Sum = T::Sum>], [K, V]>(
    job: RowDots<'_, T, U>) = row_dots_body);

#[allow(clippy::extra_unused_type_parameters)]
#[inline(always)]
fn row_dots_body<M: Arith, T: Stored, U: Stored<Sum = T::Sum>, const K: usize, const V: usize>(
    (layout, rows, x, z, out): RowDots<'_, T, U>,
) {
    each_tile!(layout, K, V, tile =>
        row_dots_tile::<T, U, K, V>((layout.slots, rows), x, z, (tile, &mut *out)),
        row_dots_tile::<T, U, K, 1>((layout.slots, rows), x, z, (tile, &mut *out)));
}

#[inline(always)]
fn row_dots_tile<T: Stored, U: Stored<Sum = T::Sum>, const K: usize, const V: usize>(
    (slots, rows): (usize, usize),
    (x, i): (Mat<'_, T>, usize),
    (z, j): (Mat<'_, U>, usize),
    (tile, out): (Tile, &mut [T::Sum]),
) {
    let meant = meant::<T::Sum>(tile);
    let mut at = tile.head;
    if K == 0 {
        let mut kept = [[T::Sum::ZERO; LANES]; KEPT];
        for start in (0..rows).step_by(KEPT) {
            let n = KEPT.min(rows - start);
            for (r, kept) in kept[..n].iter_mut().enumerate() {
                let x = read_tile::<T, K, V>(x, i + start + r, tile, &meant);
                let z = read_tile::<U, K, V>(z, j + start + r, tile, &meant);
                *kept = added(&products(&x, &z));
            }
            at = store_kept((&kept, n, tile.first), out, (at, slots));
        }
        return;
    }
    for r in 0..rows {
        let x = read_tile::<T, K, V>(x, i + r, tile, &meant);
        let z = read_tile::<U, K, V>(z, j + r, tile, &meant);
        let Some(out) = out.get_mut(at..at + heads_of::<K, V>()) else { return };
        store_sums::<T::Sum, K, V>(&products(&x, &z), out);
        at += slots;
    }
}

/// The sums of the heads of a tile, side by side.
#[inline(always)]
fn store_sums<F: Real, const K: usize, const V: usize>(products: &[Lanes<F>; V], out: &mut [F]) {
    let sums = sums_of::<F, K, V>(products);
    let heads = heads_of::<K, V>();
    out[..heads].copy_from_slice(&sums[..heads]);
}

/// The sums of each `K` lanes of one, two or four vectors, in the first lanes.
#[inline(always)]
fn sums_of<F: Real, const K: usize, const V: usize>(vectors: &[Lanes<F>; V]) -> Lanes<F> {
    if K == LANES && V == 4 {
        return four_sums([
            quarter(&vectors[0]),
            quarter(&vectors[V.min(2) - 1]),
            quarter(&vectors[V.min(3) - 1]),
            quarter(&vectors[V - 1]),
        ]);
    }
    // Neighbours are added and vectors joined by turns, so that each step halves what there is.
    let mut sums = fold::<F, 1>(&vectors[0]);
    if V > 1 {
        sums = every::<F, 1>(&sums, &fold::<F, 1>(&vectors[V.min(2) - 1]));
    }
    if K > 2 {
        sums = fold::<F, 2>(&sums);
    }
    if V > 2 {
        let [c, d] = [fold::<F, 1>(&vectors[V.min(3) - 1]), fold::<F, 1>(&vectors[V - 1])];
        sums = every::<F, 2>(&sums, &fold::<F, 2>(&every::<F, 1>(&c, &d)));
    }
    if K > 4 {
        sums = fold::<F, 4>(&sums);
    }
    if K > 8 {
        sums = fold::<F, 8>(&sums);
    }
    let (mut lanes, of_each) = ([F::ZERO; LANES], LANES / K.max(1));
    for h in 0..heads_of::<K, V>() {
        lanes[h] = sums[h % of_each * K + h / of_each];
    }
    lanes
}

/// Four numbers with the sum of all lanes.
#[inline(always)]
fn quarter<F: Real>(x: &Lanes<F>) -> [F; 4] {
    let (mut eight, mut four) = ([F::ZERO; 8], [F::ZERO; 4]);
    for l in 0..8 {
        eight[l] = x[l] + x[l + 8];
    }
    for l in 0..4 {
        four[l] = eight[l] + eight[l + 4];
    }
    four
}

/// The sum of each, in the first lanes.
#[inline(always)]
fn four_sums<F: Real>(x: [[F; 4]; 4]) -> Lanes<F> {
    // Looked at from outside, or all sums before are computed in narrow vectors, too.
    let x = std::hint::black_box(x);
    let mut lanes = [F::ZERO; LANES];
    for (lane, x) in lanes.iter_mut().zip(&x) {
        *lane = (x[0] + x[1]) + (x[2] + x[3]);
    }
    lanes
}

/// Each lane and the one `STEP` from it.
#[inline(always)]
fn fold<F: Real, const STEP: usize>(x: &Lanes<F>) -> Lanes<F> {
    let mut other = [F::ZERO; LANES];
    for l in 0..LANES {
        other[l] = x[l ^ STEP];
    }
    add(x, &other)
}

/// Lanes of one vector and of another, `STEP` of each by turns.
#[inline(always)]
fn every<F: Real, const STEP: usize>(a: &Lanes<F>, b: &Lanes<F>) -> Lanes<F> {
    let mut lanes = *a;
    for l in 0..LANES {
        if l & STEP != 0 {
            lanes[l] = b[l];
        }
    }
    lanes
}

/// Rows, from some row on; how many; a number for each of their heads; and what they add up to.
type Totals<'a, T> = (Layout, (Mat<'a, T>, usize), usize, &'a [Vector<T>], &'a mut [Vector<T>]);

/// Adds rows, weighted by head, to one.
#[inline(always)]
pub(in super::super) fn add_rows<T: Stored>(job: Totals<'_, T>) {
    let layout = job.0;
    by_shape!(layout, T, total_rows < T, () > (job));
}

per_isa!(fn total_rows<[T: Stored, G: Copy], [K, V]>(job: Totals<'_, T>) = total_body);

#[allow(clippy::extra_unused_type_parameters)]
#[inline(always)]
fn total_body<M: Arith, T: Stored, G: Copy, const K: usize, const V: usize>(
    (layout, x, rows, d, totals): Totals<'_, T>,
) {
    let (slots, d) = (layout.slots, d.as_flattened());
    each_tile!(layout, K, V, tile =>
        total_tile::<M, T, K, V>((x, rows), (d, slots), (tile, &mut *totals)),
        total_tile::<M, T, K, 1>((x, rows), (d, slots), (tile, &mut *totals)));
}

#[allow(clippy::needless_range_loop)]
#[inline(always)]
fn total_tile<M: Arith, T: Stored, const K: usize, const V: usize>(
    ((x, first), rows): ((Mat<'_, T>, usize), usize),
    (d, slots): (&[T::Sum], usize),
    (tile, totals): (Tile, &mut [Vector<T>]),
) {
    let meant = meant::<T::Sum>(tile);
    let totals = &mut totals[tile.vector..][..V];
    let mut sums = [[T::Sum::ZERO; LANES]; V];
    sums.copy_from_slice(totals);
    for r in 0..rows {
        let short;
        let row = read!(x, first + r, tile, T, V => short);
        let heads = r * slots + tile.head;
        let Some(d) = d.get(heads..heads + heads_of::<K, V>()) else { return };
        each_vector!(V, v => {
            let x = vector::<T, K, V>(row, v, &meant);
            sums[v] = mul_add::<M, _>(&weights::<T::Sum, K>(d, v), &x, &sums[v]);
        });
    }
    totals.copy_from_slice(&sums);
}

/// Writes a tile from `at` on, all of it: what runs on into the next row is overwritten by it.
#[allow(clippy::needless_range_loop)]
#[inline(always)]
pub(in super::super) fn stage<T: Stored, const V: usize>(
    tile: &[Vector<T>; V],
    out: &mut [T],
    at: usize,
) {
    let Some(out) = out.get_mut(at..at + V * LANES) else { return };
    let out = out.as_chunks_mut::<LANES>().0;
    each_vector!(V, v => {
        for l in 0..LANES {
            out[v][l] = T::narrow(tile[v][l]);
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_of_lanes_are_in_order() {
        let vectors: [Lanes<f32>; 4] =
            std::array::from_fn(|v| std::array::from_fn(|l| ((16 * v + l) * (v + l)) as f32));
        fn check<const K: usize, const V: usize>(vectors: &[Lanes<f32>; V]) {
            let sums = sums_of::<f32, K, V>(vectors);
            let heads = vectors.as_flattened().chunks(K).map(|lanes| lanes.iter().sum::<f32>());
            assert_eq!(heads.collect::<Vec<_>>(), &sums[..V * LANES / K], "{K} {V}");
        }
        check::<2, 2>(&[vectors[0], vectors[1]]);
        check::<2, 1>(&[vectors[2]]);
        check::<4, 2>(&[vectors[0], vectors[1]]);
        check::<4, 1>(&[vectors[2]]);
        check::<8, 4>(&vectors);
        check::<8, 1>(&[vectors[3]]);
        check::<16, 4>(&vectors);
        check::<16, 1>(&[vectors[1]]);
    }
}
