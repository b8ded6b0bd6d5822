//! How the heads of a row lie in vectors of 16 lanes.
//!
//! ```text
//!   features of an edge   head 0, padded to 1, 2, 4, 8 or 16·m lanes | head 1 | …      `vectors` of them
//!   scores of edges       heads of edge 0, padded likewise to `slots` | those of edge 1 | …
//! ```
//! Scores of many edges are so one list of whole vectors, whatever the number of heads; a number
//! per head that is the same for all edges is a tile of it. Lanes of padding hold anything finite
//! or not: no lane is ever added to one of another head, and padding is not written back.

use std::ops::Range;

use crate::isa::Arith;
use crate::matrix::{Mat, MatMut};
use crate::mem::prefetch;
use crate::real::{Real, Stored};

/// Numbers of a vector, whatever the instruction set makes of it.
pub(super) const LANES: usize = 16;
/// How many entries ahead rows are asked for.
const AHEAD: usize = 24;
/// Numbers of gathered rows that fit the nearest cache beside everything else.
const CHUNK_NUMBERS: usize = 4096;

/// A vector.
pub(super) type Lanes<F> = [F; LANES];

/// The lanes of one row of features.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Layout {
    /// Number of heads.
    pub heads: usize,
    /// Numbers per head.
    pub channels: usize,
    /// Lanes per head: 1, 2, 4, 8 or a multiple of 16.
    lanes: usize,
    /// Lanes of an edge's scores, likewise.
    pub slots: usize,
    /// Vectors of a row.
    pub vectors: usize,
}

/// Vectors of a power of two, or whole ones.
fn padded(n: usize) -> usize {
    if n > LANES / 2 { n.next_multiple_of(LANES) } else { n.max(1).next_power_of_two() }
}

/// Calls a method with the lanes per head as a constant; 16 stands for all multiples.
macro_rules! by_lanes {
    ($layout:expr, $method:ident::<$($G:ty),*>($($arg:expr),*)) => {
        match $layout.lanes {
            1 => $layout.$method::<$($G,)* _, 1>($($arg),*),
            2 => $layout.$method::<$($G,)* _, 2>($($arg),*),
            4 => $layout.$method::<$($G,)* _, 4>($($arg),*),
            8 => $layout.$method::<$($G,)* _, 8>($($arg),*),
            _ => $layout.$method::<$($G,)* _, LANES>($($arg),*),
        }
    };
}

impl Layout {
    /// `heads` of `channels` each, side by side.
    pub fn new(heads: usize, channels: usize) -> Self {
        // One head alone is a row of whole vectors: its weight is the same in all lanes.
        let lanes = if heads == 1 { channels.next_multiple_of(LANES) } else { padded(channels) };
        let vectors = (heads * lanes).div_ceil(LANES);
        Layout { heads, channels, lanes, slots: padded(heads), vectors }
    }

    /// Numbers of a row, without padding.
    pub fn width(self) -> usize {
        self.heads * self.channels
    }

    /// Vectors of the scores of `n` edges.
    #[inline(always)]
    pub fn score_vectors(self, n: usize) -> usize {
        (n * self.slots).div_ceil(LANES)
    }

    /// Vectors of a number per head.
    #[inline(always)]
    pub fn tile_vectors(self) -> usize {
        self.slots.div_ceil(LANES)
    }

    /// Edges that are done together.
    pub fn chunk(self) -> usize {
        (CHUNK_NUMBERS / (self.vectors * LANES).max(1)).clamp(8, 64)
    }

    /// Room for the rows of a chunk of edges. Rows are written in ascending order and may spill
    /// into the next, hence one vector more.
    pub fn rows<F: Real>(self, edges: usize) -> Vec<Lanes<F>> {
        vec![[F::ZERO; LANES]; edges * self.vectors + 1]
    }

    /// Room for the scores of a chunk of edges, and as much again as one read past them.
    pub fn scores<F: Real>(self) -> Vec<Lanes<F>> {
        vec![[F::ZERO; LANES]; self.score_vectors(self.chunk()) + self.tile_vectors() + 2]
    }

    /// Room for a number per head.
    pub fn tile<F: Real>(self) -> Vec<Lanes<F>> {
        vec![[F::ZERO; LANES]; self.tile_vectors()]
    }

    /// Whether a row lies in vectors as it lies in memory.
    #[inline(always)]
    fn is_flat(self) -> bool {
        self.heads == 1 || self.lanes == self.channels
    }

    /// Row `j` of `x`, from vector `at` of `rows` on; padding becomes 0.
    #[inline(always)]
    pub fn load<T: Stored>(self, x: Mat<'_, T>, j: usize, rows: &mut [Lanes<T::Sum>], at: usize) {
        let start = j * x.stride;
        if self.is_flat() {
            let whole = self.vectors * LANES;
            let out = &mut rows[at..at + self.vectors];
            if let Some(row) = x.data.get(start..start + whole) {
                for (out, x) in out.iter_mut().zip(row.as_chunks::<LANES>().0) {
                    *out = x.map(T::wide);
                }
                let last = &mut out[self.vectors - 1];
                *last = keep(last, self.width() + LANES - whole, T::Sum::ZERO);
            } else {
                let row = &x.data[start..start + self.width()];
                for (out, x) in out.iter_mut().zip(row.chunks(LANES)) {
                    *out = short(x);
                }
            }
            return;
        }
        let rows = rows.as_flattened_mut();
        for h in 0..self.heads {
            let row = &x.data[start + h * self.channels..][..self.channels];
            for (b, x) in row.chunks(LANES).enumerate() {
                let at = at * LANES + h * self.lanes + b * LANES;
                rows[at..at + LANES].copy_from_slice(&short(x));
            }
        }
    }

    /// The rows of `x` that entries name, one after another.
    #[inline(always)]
    pub fn gather<T: Stored>(
        self,
        x: Mat<'_, T>,
        (cols, entries): (&[u32], Range<usize>),
        rows: &mut [Lanes<T::Sum>],
    ) {
        for (n, e) in entries.enumerate() {
            if let Some(&j) = cols.get(e + AHEAD) {
                let step = 64 / size_of::<T>();
                for at in (0..x.n_cols).step_by(step) {
                    prefetch(x.data, j as usize * x.stride + at);
                }
            }
            self.load(x, cols[e] as usize, rows, n * self.vectors);
        }
    }

    /// Writes a row of vectors back.
    #[inline(always)]
    pub fn store<T: Stored>(self, row: &[Lanes<T::Sum>], out: &mut [T]) {
        let row = row.as_flattened();
        if self.is_flat() {
            out.iter_mut().zip(row).for_each(|(out, value)| *out = T::narrow(*value));
            return;
        }
        let heads = out.chunks_exact_mut(self.channels).zip(row.chunks_exact(self.lanes));
        for (out, row) in heads {
            out.iter_mut().zip(row).for_each(|(out, value)| *out = T::narrow(*value));
        }
    }

    /// The number of each head of `p`, an edge's scores, in the lanes of vector `v`.
    #[inline(always)]
    fn weights<F: Real, const K: usize>(self, p: &[F], v: usize) -> Lanes<F> {
        if K == LANES {
            return [p[v / (self.lanes / LANES)]; LANES];
        }
        let heads = LANES / K;
        let p = &p[v * heads..][..heads];
        std::array::from_fn(|lane| p[lane / K])
    }

    /// `sums_v ← join(edge, v, weights_v, sums_v)` for every vector of a row and `n` edges in
    /// ascending order; the weights are the edge's numbers in `p`.
    #[inline(always)]
    pub fn accumulate<F: Real>(
        self,
        (sums, p, n): (&mut [Lanes<F>], &[Lanes<F>], usize),
        join: impl Fn(usize, usize, &Lanes<F>, Lanes<F>) -> Lanes<F> + Copy,
    ) {
        by_lanes!(self, accumulate_by::<F>((sums, p, n), join));
    }

    #[inline(always)]
    fn accumulate_by<F: Real, J, const K: usize>(
        self,
        (sums, p, n): (&mut [Lanes<F>], &[Lanes<F>], usize),
        join: J,
    ) where
        J: Fn(usize, usize, &Lanes<F>, Lanes<F>) -> Lanes<F> + Copy,
    {
        let p = p.as_flattened();
        let one = |v: usize, e: usize, sum: Lanes<F>| {
            join(e, v, &self.weights::<F, K>(&p[e * self.slots..], v), sum)
        };
        // Four edges between reading a sum and writing it.
        let fours = n - n % 4;
        for e in (0..fours).step_by(4) {
            for (v, sum) in sums[..self.vectors].iter_mut().enumerate() {
                let sum_of_two = one(v, e + 1, one(v, e, *sum));
                *sum = one(v, e + 3, one(v, e + 2, sum_of_two));
            }
        }
        for e in fours..n {
            for (v, sum) in sums[..self.vectors].iter_mut().enumerate() {
                *sum = one(v, e, *sum);
            }
        }
    }

    /// The sums over each head's channels of `term(edge, v)`, to the edges' numbers in `out`.
    #[inline(always)]
    pub fn reduce<F: Real>(
        self,
        (out, n): (&mut [Lanes<F>], usize),
        term: impl Fn(usize, usize) -> Lanes<F> + Copy,
    ) {
        by_lanes!(self, reduce_by::<F>((out, n), term));
    }

    #[inline(always)]
    fn reduce_by<F: Real, G, const K: usize>(self, (out, n): (&mut [Lanes<F>], usize), term: G)
    where
        G: Fn(usize, usize) -> Lanes<F> + Copy,
    {
        let out = out.as_flattened_mut();
        for e in 0..n {
            let out = &mut out[e * self.slots..];
            if K == LANES {
                let per_head = self.lanes / LANES;
                for (h, out) in out[..self.heads].iter_mut().enumerate() {
                    let mut sum = term(e, h * per_head);
                    for v in 1..per_head {
                        let more = term(e, h * per_head + v);
                        sum = std::array::from_fn(|l| sum[l] + more[l]);
                    }
                    *out = across(sum);
                }
            } else {
                for v in 0..self.vectors {
                    let sums = groups::<F, K>(term(e, v));
                    let heads = LANES / K;
                    out[v * heads..][..heads].copy_from_slice(&sums[..heads]);
                }
            }
        }
    }

    /// A number per head, repeated over the lanes of a tile; 0 for heads of padding.
    #[inline(always)]
    pub fn tile_of<F: Real>(self, x: &[F], tile: &mut [Lanes<F>]) {
        // `slots` is a power of two where a tile repeats.
        let mask = self.slots.next_power_of_two() - 1;
        for (lane, out) in tile.as_flattened_mut().iter_mut().enumerate() {
            *out = x.get(lane & mask).copied().unwrap_or(F::ZERO);
        }
    }

    /// A tile under every vector of scores.
    #[inline(always)]
    pub fn repeat<F: Real>(self, tile: &[Lanes<F>], scores: &mut [Lanes<F>]) {
        for group in scores.chunks_exact_mut(tile.len()) {
            group.copy_from_slice(tile);
        }
    }

    /// Numbers per head of the rows of `x` that entries name, entry after entry.
    #[inline(always)]
    pub fn gather_slots<F: Real>(
        self,
        x: &Slots<F>,
        block: usize,
        (cols, entries): (&[u32], Range<usize>),
        out: &mut [Lanes<F>],
    ) {
        let out = out.as_flattened_mut();
        let at = |j: u32| j as usize * x.stride + block * self.slots;
        for (n, e) in entries.enumerate() {
            if let Some(&j) = cols.get(e + AHEAD) {
                prefetch(&x.data, at(j));
            }
            let start = at(cols[e]);
            for b in (0..self.slots).step_by(LANES) {
                let from = &x.data[start + b..][..LANES];
                out[n * self.slots + b..][..LANES].copy_from_slice(from);
            }
        }
    }

    /// Joins the lanes of each head: afterwards a tile.
    #[inline(always)]
    pub fn fold<F: Real>(self, tile: &mut [Lanes<F>], join: impl Fn(F, F) -> F) {
        let mut step = LANES / 2;
        while step >= self.slots {
            for lanes in tile.iter_mut() {
                let old = *lanes;
                *lanes = std::array::from_fn(|l| join(old[l], old[(l + step) % LANES]));
            }
            step /= 2;
        }
    }

    /// Adds the scores of edges to a tile that is not yet folded.
    #[inline(always)]
    pub fn add_to_tile<F: Real>(self, scores: &[Lanes<F>], tile: &mut [Lanes<F>]) {
        for group in scores.chunks_exact(tile.len()) {
            for (sum, x) in tile.iter_mut().zip(group) {
                *sum = std::array::from_fn(|l| sum[l] + x[l]);
            }
        }
    }

    /// Sets the lanes after the last of `n` edges.
    #[inline(always)]
    pub fn set_after<F: Real>(self, scores: &mut [Lanes<F>], n: usize, value: F) {
        let used = n * self.slots;
        if used % LANES != 0 {
            let last = &mut scores[used / LANES];
            *last = keep(last, used % LANES, value);
        }
    }
}

/// Some numbers per node and head.
pub(super) struct Slots<F> {
    data: Vec<F>,
    n_rows: usize,
    stride: usize,
}

impl<F: Real> Slots<F> {
    /// `blocks` numbers per row and head. The numbers go on for a vector after the last row.
    pub fn new(n_rows: usize, layout: Layout, blocks: usize) -> Self {
        let stride = layout.slots * blocks;
        Slots { data: vec![F::ZERO; n_rows * stride + LANES], n_rows, stride }
    }

    /// To write.
    pub fn as_mut(&mut self) -> MatMut<'_, F> {
        let Slots { data, n_rows, stride } = self;
        MatMut { data, n_rows: *n_rows, n_cols: *stride, stride: *stride }
    }

    /// Row `i`.
    #[inline(always)]
    pub fn row(&self, i: usize) -> &[F] {
        &self.data[i * self.stride..][..self.stride]
    }
}

/// The first `n` lanes, and `value` in the others.
#[inline(always)]
fn keep<F: Real>(lanes: &Lanes<F>, n: usize, value: F) -> Lanes<F> {
    let n = n as u32;
    let number: [u32; LANES] = std::array::from_fn(|l| l as u32);
    std::array::from_fn(|l| if number[l] < n { lanes[l] } else { value })
}

/// At most 16 numbers as a vector.
#[inline(always)]
fn short<T: Stored>(x: &[T]) -> Lanes<T::Sum> {
    let mut lanes = [T::Sum::ZERO; LANES];
    lanes.iter_mut().zip(x).for_each(|(lane, x)| *lane = x.wide());
    lanes
}

/// The sums of groups of `K` lanes, in the first lanes.
#[inline(always)]
fn groups<F: Real, const K: usize>(x: Lanes<F>) -> Lanes<F> {
    let pairs = |x: Lanes<F>, left: usize| {
        std::array::from_fn(|l| if l < left / 2 { x[2 * l] + x[2 * l + 1] } else { F::ZERO })
    };
    match K {
        1 => x,
        2 => pairs(x, 16),
        4 => pairs(pairs(x, 16), 8),
        _ => pairs(pairs(pairs(x, 16), 8), 4),
    }
}

/// The sum of all lanes.
#[inline(always)]
fn across<F: Real>(x: Lanes<F>) -> F {
    let eight: [F; 8] = std::array::from_fn(|l| x[l] + x[l + 8]);
    let four: [F; 4] = std::array::from_fn(|l| eight[l] + eight[l + 4]);
    (four[0] + four[2]) + (four[1] + four[3])
}

/// `w·x + sum`.
#[inline(always)]
pub(super) fn mul_add<M: Arith, F: Real>(w: &Lanes<F>, x: &Lanes<F>, sum: Lanes<F>) -> Lanes<F> {
    std::array::from_fn(|l| M::mul_add(w[l], x[l], sum[l]))
}

/// `a·b`.
#[inline(always)]
pub(super) fn product<F: Real>(a: &Lanes<F>, b: &Lanes<F>) -> Lanes<F> {
    std::array::from_fn(|l| a[l] * b[l])
}
