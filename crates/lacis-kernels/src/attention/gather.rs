//! The two loops over the numbers of gathered rows: sums per head, and weighted sums of rows.
//!
//! ```text
//!   reduce   out_eh = Σ over head h's lanes of term(x_j)       for each entry e = (i, j)
//!   join     sums   ← join(weights of e's heads, x_j, sums)    likewise
//! ```
//! Rows are read where they lie, a tile of `V` vectors at a time. `K` says how heads lie in them:
//! 2, 4 or 8 lanes each, 16, or (0) one head in vectors of its own, of which the last may be read
//! on into what follows; that is set to 0.

use std::ops::Range;

use lacis_core::CsrView;

use super::edges::{Edges, position};
use super::lanes::{LANES, Lanes, Layout, Names, across, add, has_shapes, keep, mul, mul_add};
use super::sums::{KEPT, added, store_kept, store_sums};
use crate::isa::{Arith, per_isa};
use crate::matrix::Mat;
use crate::mem::{L1, L2, fetch_lines};
use crate::real::{Real, Stored};

/// The rows of `x` that some entries name.
#[derive(Clone, Copy)]
pub(super) struct Gathered<'a, T> {
    x: Mat<'a, T>,
    names: Names<'a>,
    straddling: bool,
}

impl<'a, T: Stored> Gathered<'a, T> {
    #[inline(always)]
    pub fn new(x: Mat<'a, T>, cols: &'a [u32], entries: Range<usize>) -> Self {
        let straddling = !(x.stride * size_of::<T>()).is_multiple_of(64);
        Gathered { x, names: Names::new(cols, entries), straddling }
    }

    /// The row of entry `n` alone; none where there are none.
    #[inline(always)]
    pub fn only(self, n: usize) -> Self {
        let own = self.names.own.get(n..n + 1).unwrap_or(&[]);
        Gathered { names: Names { own, far: own, near: own }, ..self }
    }
}

/// Rows of entries that are the sum of a gathered one and the entry's features.
pub(super) struct Filled<F> {
    data: Vec<F>,
    width: usize,
    /// 0, 1, 2, …
    names: Vec<u32>,
}

impl<F: Real> Filled<F> {
    /// For `n` entries; for none where there are no features.
    pub fn new<T: Stored<Sum = F>>(layout: Layout, n: usize, edges: &Edges<'_, T>) -> Self {
        let n = if edges.features.is_some() { n } else { 0 };
        let width = layout.width();
        Filled { data: vec![F::ZERO; n * width], width, names: (0..n as u32).collect() }
    }

    /// Reads the rows of some entries.
    #[inline(always)]
    pub fn fill<T: Stored<Sum = F>>(
        &mut self,
        (x, features): (Mat<'_, T>, Mat<'_, T>),
        (a, entries): (CsrView<'_>, Range<usize>),
    ) {
        for (row, e) in self.data.chunks_exact_mut(self.width).zip(entries) {
            let features = features.row(position(a, e));
            for ((out, x), f) in row.iter_mut().zip(x.row(a.cols[e] as usize)).zip(features) {
                *out = x.wide() + f.wide();
            }
        }
    }

    /// The first `n` rows; none where there are no features.
    #[inline(always)]
    pub fn rows(&self, n: usize) -> Gathered<'_, F> {
        let n = n.min(self.names.len());
        let (n_rows, n_cols) = (self.names.len(), self.width);
        let x = Mat { data: &self.data[..], n_rows, n_cols, stride: n_cols };
        Gathered::new(x, &self.names, 0..n)
    }
}

/// Something of a vector of a row.
pub(super) trait Term<F>: Copy {
    /// That for the vectors from `first` on.
    fn part(&self, first: usize, count: usize) -> Self;
    /// Of the row's part in vector `v`.
    fn at<M: Arith>(&self, v: usize, row: &Lanes<F>) -> Lanes<F>;
}

/// How a vector of a row joins one of sums, with a weight per lane.
pub(super) trait Join<F: Real>: Copy {
    /// That for the vectors from `first` on.
    fn part(&self, first: usize, count: usize) -> Self;
    /// `w`, the row's part in vector `v`, and the sum so far.
    fn join<M: Arith>(&self, v: usize, w: &Lanes<F>, x: &Lanes<F>, sum: &Lanes<F>) -> Lanes<F>;
}

/// Rows times one that is the same for all.
#[derive(Clone, Copy)]
pub(super) struct Times<'a, F>(pub &'a [Lanes<F>]);

impl<F: Real> Term<F> for Times<'_, F> {
    #[inline(always)]
    fn part(&self, first: usize, count: usize) -> Self {
        Times(&self.0[first..][..count])
    }

    #[inline(always)]
    fn at<M: Arith>(&self, v: usize, row: &Lanes<F>) -> Lanes<F> {
        mul(&self.0[v], row)
    }
}

/// Adds weighted rows.
#[derive(Clone, Copy)]
pub(super) struct AddRows;

impl<F: Real> Join<F> for AddRows {
    #[inline(always)]
    fn part(&self, _: usize, _: usize) -> Self {
        AddRows
    }

    #[inline(always)]
    fn join<M: Arith>(&self, _: usize, w: &Lanes<F>, x: &Lanes<F>, sum: &Lanes<F>) -> Lanes<F> {
        mul_add::<M, F>(w, x, sum)
    }
}

/// Does something for the vectors of a tile, of which there are at most 4, one by one. A loop over
/// them would be taken for one over numbers that lie a vector apart.
macro_rules! each_vector {
    ($V:ident, $v:ident => $body:expr) => {{
        if $V > 0 {
            let $v = 0;
            $body
        }
        if $V > 1 {
            let $v = 1;
            $body
        }
        if $V > 2 {
            let $v = 2;
            $body
        }
        if $V > 3 {
            let $v = 3;
            $body
        }
    }};
}
pub(super) use each_vector;

/// The numbers of a tile of row `j`, read where they lie.
macro_rules! read {
    ($x:ident, $j:expr, $tile:ident, $T:ident, $V:ident => $short:ident) => {{
        let start = $j as usize * $x.stride + $tile.col;
        match $x.data.get(start..start + $V * LANES) {
            Some(row) => row,
            None => {
                $short = end_of::<$T, $V>(&$x.data[start..]);
                $short.as_flattened()
            }
        }
    }};
}
pub(super) use read;
/// Calls a function compiled for the layout's shape.
macro_rules! by_shape {
    ($layout:expr, $T:ty, $name:ident<$T2:ty, $G:ty $(, $N:ident)?>($job:expr)) => {{
        let (isa, job) = ($layout.isa, $job);
        if const { !has_shapes::<$T>() } {
            $name::<$T2, $G, 0, 1 $(, $N)?>(isa, job);
        } else {
            match $layout.shape {
                (2, _) => $name::<$T2, $G, 2, 2 $(, $N)?>(isa, job),
                (4, _) => $name::<$T2, $G, 4, 2 $(, $N)?>(isa, job),
                (8, _) => $name::<$T2, $G, 8, 4 $(, $N)?>(isa, job),
                (16, _) => $name::<$T2, $G, 16, 4 $(, $N)?>(isa, job),
                (_, 4) => $name::<$T2, $G, 0, 4 $(, $N)?>(isa, job),
                (_, 3) => $name::<$T2, $G, 0, 3 $(, $N)?>(isa, job),
                (_, 2) => $name::<$T2, $G, 0, 2 $(, $N)?>(isa, job),
                _ => $name::<$T2, $G, 0, 1 $(, $N)?>(isa, job),
            }
        }
    }};
}
pub(super) use by_shape;

/// Runs a loop on every tile of a row: as many of `V` vectors as there are, the rest in tiles of
/// one.
macro_rules! each_tile {
    ($layout:expr, $K:ident, $V:ident, $tile:ident => $wide:expr, $narrow:expr) => {{
        let layout: Layout = $layout;
        let (heads, vectors) =
            if $K == 0 { (layout.heads, layout.per_head()) } else { (1, layout.vectors) };
        for head in 0..heads {
            let mut v = 0;
            while v < vectors {
                let wide = v + $V <= vectors;
                let end = if wide { v + $V } else { v + 1 };
                let left = layout.channels.saturating_sub((end - 1) * LANES);
                let $tile = Tile {
                    vector: head * vectors + v,
                    col: head * layout.channels + v * LANES,
                    head: if $K == 0 { head } else { v * LANES / $K.max(1) },
                    tail: if $K == 0 { left.min(LANES) } else { LANES },
                    first: v == 0,
                };
                if wide {
                    $wide
                } else {
                    $narrow
                }
                v = end;
            }
        }
    }};
}
pub(super) use each_tile;

/// Where a tile lies: its first vector of a padded row, its first column of `x`, its first head,
/// and how many lanes of its last vector are meant.
#[derive(Clone, Copy)]
pub(super) struct Tile {
    pub vector: usize,
    pub col: usize,
    pub head: usize,
    pub tail: usize,
    /// Whether it is the first of its head.
    pub first: bool,
}

/// Sums over each head's channels of a term, to the entries' numbers in `out`.
#[inline(always)]
pub(super) fn reduce<T: Stored, G: Term<T::Sum>>(
    layout: Layout,
    (rows, fetch): (Gathered<'_, T>, Fetch),
    term: G,
    out: &mut [Lanes<T::Sum>],
) {
    by_shape!(
        layout,
        T,
        reduce_rows < T,
        G > ((layout, rows, fetch, term, out.as_flattened_mut()))
    );
}

/// Joins rows to sums, with the weights of their entries in `p`.
#[inline(always)]
pub(super) fn join<T: Stored, J: Join<T::Sum>>(
    layout: Layout,
    rows: (Gathered<'_, T>, Fetch),
    (p, how): (&[Lanes<T::Sum>], J),
    sums: &mut [Lanes<T::Sum>],
) {
    join_sets(layout, rows, ([p], how), [sums]);
}

/// As [`join`], to one or two sums at once: each has weights of its own.
#[inline(always)]
pub(super) fn join_sets<T: Stored, J: Join<T::Sum>, const N: usize>(
    layout: Layout,
    (rows, fetch): (Gathered<'_, T>, Fetch),
    (p, how): ([&[Lanes<T::Sum>]; N], J),
    sums: [&mut [Lanes<T::Sum>]; N],
) {
    let weighted = (p.map(|p| p.as_flattened()), how);
    by_shape!(layout, T, join_rows < T, J, N > ((layout, rows, fetch, weighted, sums)));
}

/// Whether rows were not read a moment ago, so that those to come must be asked for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Fetch {
    Yes,
    No,
}

// Both loops are compiled by themselves: many passes share them, and alone they have enough
// registers.

/// What is reduced: where the rows are, what is summed, and where the sums go.
type Reduce<'a, T, G> = (Layout, Gathered<'a, T>, Fetch, G, &'a mut [<T as Stored>::Sum]);

per_isa!(fn reduce_rows<[T: Stored, G: Term<T::Sum>], [K, V]>(
    job: Reduce<'_, T, G>) = reduce_body);

#[inline(always)]
fn reduce_body<M: Arith, T: Stored, G: Term<T::Sum>, const K: usize, const V: usize>(
    (layout, rows, fetch, term, out): Reduce<'_, T, G>,
) {
    each_tile!(layout, K, V, tile =>
        reduce_tile::<M, T, G, K, V>(layout.slots, (rows, fetch), term, (tile, out)),
        reduce_tile::<M, T, G, K, 1>(layout.slots, (rows, fetch), term, (tile, out)));
}

// Several lists have an element per vector.
#[allow(clippy::needless_range_loop)]
#[inline(always)]
fn reduce_tile<M: Arith, T: Stored, G: Term<T::Sum>, const K: usize, const V: usize>(
    slots: usize,
    (rows, fetch): (Gathered<'_, T>, Fetch),
    term: G,
    (tile, out): (Tile, &mut [T::Sum]),
) {
    let term = term.part(tile.vector, V);
    let Gathered { x, names: Names { own, far, near }, straddling } = rows;
    let meant = meant::<T::Sum>(tile);
    let mut kept = [[T::Sum::ZERO; LANES]; KEPT];
    let mut at = tile.head;
    let ahead = far.chunks(KEPT).zip(near.chunks(KEPT));
    for (cols, (far, near)) in own.chunks(KEPT).zip(ahead) {
        let ahead = far.iter().zip(near);
        for ((kept, &j), (far, near)) in kept.iter_mut().zip(cols).zip(ahead) {
            if fetch == Fetch::Yes {
                ask::<T, V>((x, straddling), tile, [*far, *near]);
            }
            let short;
            let row = read!(x, j, tile, T, V => short);
            let mut products = [[T::Sum::ZERO; LANES]; V];
            each_vector!(V, v => {
                products[v] = term.at::<M>(v, &vector::<T, K, V>(row, v, &meant));
            });
            if K == 0 {
                *kept = added(&products);
            } else {
                let Some(out) = out.get_mut(at..at + heads_of::<K, V>()) else { return };
                store_sums::<T::Sum, K, V>(&products, out);
                at += slots;
            }
        }
        if K == 0 {
            at = store_kept((&kept, cols.len(), tile.first), out, (at, slots));
        }
    }
}

/// What is joined: where the rows are, their weights, how they join, and the sums.
type Joined<'a, T, J, const N: usize> = (
    Layout,
    Gathered<'a, T>,
    Fetch,
    ([&'a [<T as Stored>::Sum]; N], J),
    [&'a mut [Lanes<<T as Stored>::Sum>]; N],
);

per_isa!(fn join_rows<[T: Stored, J: Join<T::Sum>], [K, V, N]>(
    job: Joined<'_, T, J, N>) = join_body);

#[inline(always)]
fn join_body<
    M: Arith,
    T: Stored,
    J: Join<T::Sum>,
    const K: usize,
    const V: usize,
    const N: usize,
>(
    (layout, rows, fetch, weighted, mut sums): Joined<'_, T, J, N>,
) {
    each_tile!(layout, K, V, tile =>
        join_tile::<M, T, J, K, V, N>(layout.slots, (rows, fetch), weighted, (tile, &mut sums)),
        join_tile::<M, T, J, K, 1, N>(layout.slots, (rows, fetch), weighted, (tile, &mut sums)));
}

#[allow(clippy::needless_range_loop)]
#[inline(always)]
fn join_tile<
    M: Arith,
    T: Stored,
    J: Join<T::Sum>,
    const K: usize,
    const V: usize,
    const N: usize,
>(
    slots: usize,
    (rows, fetch): (Gathered<'_, T>, Fetch),
    (p, how): ([&[T::Sum]; N], J),
    (tile, sums): (Tile, &mut [&mut [Lanes<T::Sum>]; N]),
) {
    let how = how.part(tile.vector, V);
    let Gathered { x, names: Names { own, far, near }, straddling } = rows;
    let meant = meant::<T::Sum>(tile);
    let (first, last) = (p[0], p[N - 1]);
    let mut totals = [[[T::Sum::ZERO; LANES]; V]; N];
    for (totals, sums) in totals.iter_mut().zip(sums.iter()) {
        totals.copy_from_slice(&sums[tile.vector..][..V]);
    }
    let mut at = tile.head;
    for (&j, (far, near)) in own.iter().zip(far.iter().zip(near)) {
        if fetch == Fetch::Yes {
            ask::<T, V>((x, straddling), tile, [*far, *near]);
        }
        let short;
        let row = read!(x, j, tile, T, V => short);
        let heads = at..at + heads_of::<K, V>();
        let (Some(first), Some(last)) = (first.get(heads.clone()), last.get(heads)) else {
            return;
        };
        each_vector!(V, v => {
            let x = vector::<T, K, V>(row, v, &meant);
            let w = weights::<T::Sum, K>(first, v);
            totals[0][v] = how.join::<M>(v, &w, &x, &totals[0][v]);
            if N > 1 {
                let w = weights::<T::Sum, K>(last, v);
                totals[N - 1][v] = how.join::<M>(v, &w, &x, &totals[N - 1][v]);
            }
        });
        at += slots;
    }
    for (totals, sums) in totals.iter().zip(sums) {
        sums[tile.vector..][..V].copy_from_slice(totals);
    }
}

/// As [`join`] for one padded row.
#[inline(always)]
pub(super) fn join_one<M: Arith, F: Real, J: Join<F>>(
    layout: Layout,
    row: &[Lanes<F>],
    (p, how): (&[F], J),
    sums: &mut [Lanes<F>],
) {
    let how = how.part(0, layout.vectors);
    for (v, (sum, x)) in sums[..layout.vectors].iter_mut().zip(row).enumerate() {
        *sum = how.join::<M>(v, &weight_at(layout, p, v), x, sum);
    }
}

/// The numbers of heads in the lanes of vector `v`.
#[inline(always)]
pub(super) fn weight_at<F: Real>(layout: Layout, p: &[F], v: usize) -> Lanes<F> {
    match (layout.shape.0, layout.per_head()) {
        (2, _) => weights::<F, 2>(p, v),
        (4, _) => weights::<F, 4>(p, v),
        (8, _) => weights::<F, 8>(p, v),
        // No division where there is one head, or one vector of each.
        (_, 1) => [p[v]; LANES],
        _ if layout.heads == 1 => [p[0]; LANES],
        (_, per_head) => [p[v / per_head]; LANES],
    }
}

/// The products of two padded rows, summed per head.
#[inline(always)]
pub(super) fn dots_one<F: Real>(layout: Layout, [x, z]: [&[Lanes<F>]; 2], out: &mut [F]) {
    let both = x.iter().zip(z).take(layout.vectors);
    match layout.shape.0 {
        2 => both.enumerate().for_each(|(v, (x, z))| {
            store_sums::<F, 2, 1>(&[mul(x, z)], &mut out[8 * v..8 * v + 8]);
        }),
        4 => both.enumerate().for_each(|(v, (x, z))| {
            store_sums::<F, 4, 1>(&[mul(x, z)], &mut out[4 * v..4 * v + 4]);
        }),
        8 => both.enumerate().for_each(|(v, (x, z))| {
            store_sums::<F, 8, 1>(&[mul(x, z)], &mut out[2 * v..2 * v + 2]);
        }),
        _ => {
            let per_head = layout.per_head();
            for (h, out) in out.iter_mut().take(layout.heads).enumerate() {
                let mut sum = [F::ZERO; LANES];
                for v in h * per_head..(h + 1) * per_head {
                    sum = add(&sum, &mul(&x[v], &z[v]));
                }
                *out = across(&sum);
            }
        }
    }
}

pub(super) const fn heads_of<const K: usize, const V: usize>() -> usize {
    match (V * LANES).checked_div(K) {
        Some(heads) => heads,
        None => 1,
    }
}

/// The numbers of heads in the lanes of vector `v`.
#[inline(always)]
pub(super) fn weights<F: Real, const K: usize>(p: &[F], v: usize) -> Lanes<F> {
    let mut lanes = [F::ZERO; LANES];
    match K {
        0 => return [p[0]; LANES],
        LANES => return [p[v]; LANES],
        2 => {
            let heads = &p[8 * v..8 * v + 8];
            for l in 0..LANES {
                lanes[l] = heads[l / 2];
            }
        }
        4 => {
            let heads: [F; 4] = [p[4 * v], p[4 * v + 1], p[4 * v + 2], p[4 * v + 3]];
            for l in 0..LANES {
                lanes[l] = heads[l / 4];
            }
        }
        _ => {
            let heads: [F; 2] = [p[2 * v], p[2 * v + 1]];
            for l in 0..LANES {
                lanes[l] = heads[l / 8];
            }
        }
    }
    lanes
}

/// The end of the last rows.
#[cold]
#[inline(never)]
pub(super) fn end_of<T: Stored, const V: usize>(rest: &[T]) -> [[T; LANES]; V] {
    let mut row = [[T::narrow(T::Sum::ZERO); LANES]; V];
    row.as_flattened_mut()[..rest.len()].copy_from_slice(rest);
    row
}

/// Vector `v` of a tile; of the last, what is meant.
#[inline(always)]
pub(super) fn vector<T: Stored, const K: usize, const V: usize>(
    row: &[T],
    v: usize,
    meant: &Lanes<T::Sum>,
) -> Lanes<T::Sum> {
    let mut lanes = [T::Sum::ZERO; LANES];
    for (lane, x) in lanes.iter_mut().zip(&row.as_chunks::<LANES>().0[v]) {
        *lane = x.wide();
    }
    if K == 0 && v == V - 1 {
        for l in 0..LANES {
            lanes[l] = lanes[l].masked(meant[l]);
        }
    }
    lanes
}

/// A mask of the lanes of a tile's last vector that are meant: of comparisons instead, the compiler
/// makes branches, lane by lane.
#[inline(always)]
pub(super) fn meant<F: Real>(tile: Tile) -> Lanes<F> {
    keep(&[F::ALL_BITS; LANES], tile.tail, F::ZERO)
}

/// Asks for tiles of rows to come: every line, and where rows do not begin with one, one more.
#[inline(always)]
fn ask<T: Stored, const V: usize>(
    (x, straddling): (Mat<'_, T>, bool),
    tile: Tile,
    [far, near]: [u32; 2],
) {
    let last = (V - 1) * LANES + tile.tail - 1;
    let start = far as usize * x.stride + tile.col;
    fetch_lines::<T, L2>(x.data, start, V * LANES);
    if straddling {
        fetch_lines::<T, L2>(x.data, start + last, 1);
    }
    let start = near as usize * x.stride + tile.col;
    fetch_lines::<T, L1>(x.data, start, V * LANES);
    if straddling {
        fetch_lines::<T, L1>(x.data, start + last, 1);
    }
}
