//! How the heads of a row lie in vectors of 16 lanes.
//!
//! ```text
//!   features of an edge   head 0, padded to 4, 8 or 16·m lanes | head 1 | …      `vectors` of them
//!   scores of edges       heads of edge 0, padded to 1, 2, 4, 8 or 16·m | those of edge 1 | …
//! ```
//! Scores of many edges are so one list of whole vectors, whatever the number of heads; a number
//! per head that is the same for all edges is a tile of it. Lanes of padding hold anything finite
//! or not: no lane is ever added to one of another head, and padding is not written back.

use std::ops::Range;

use crate::isa::{Arith, Isa, per_isa};
use crate::math;
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
/// A vector of what is stored as `T`.
pub(super) type Vector<T> = Lanes<<T as Stored>::Sum>;

/// The lanes of one row of features.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Layout {
    /// Number of heads.
    pub heads: usize,
    /// Numbers per head.
    pub channels: usize,
    /// Lanes per head: 4, 8 or a multiple of 16.
    lanes: usize,
    /// Lanes of an edge's scores: 1, 2, 4, 8 or a multiple of 16.
    pub slots: usize,
    /// Vectors of a row.
    pub vectors: usize,
    /// What the loops over a chunk's rows are compiled for.
    isa: Isa,
}

/// Lanes that divide a vector, at least `least`, or whole vectors.
fn padded(n: usize, least: usize) -> usize {
    if n > LANES / 2 { n.next_multiple_of(LANES) } else { n.next_power_of_two().max(least) }
}

impl Layout {
    /// `heads` of `channels` each, side by side.
    pub fn new(heads: usize, channels: usize) -> Self {
        // One head alone is a row of whole vectors: its weight is the same in all lanes.
        let lanes = if heads == 1 { channels.next_multiple_of(LANES) } else { padded(channels, 4) };
        let vectors = (heads * lanes).div_ceil(LANES);
        // The weights of a vector are those of one edge.
        let slots = padded(heads, (LANES / lanes.max(1)).max(1));
        Layout { heads, channels, lanes, slots, vectors, isa: Isa::best() }
    }

    /// The same for another instruction set.
    pub fn on(self, isa: Isa) -> Self {
        Layout { isa, ..self }
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
                    *out = short(x);
                }
                if self.width() < whole {
                    let last = &mut out[self.vectors - 1];
                    *last = keep(last, self.width() + LANES - whole, T::Sum::ZERO);
                }
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
            narrow(row, out);
            return;
        }
        let heads = out.chunks_exact_mut(self.channels).zip(row.chunks_exact(self.lanes));
        for (out, row) in heads {
            narrow(row, out);
        }
    }

    /// `sums_v ← join(edge, v, weights_v, sums_v)` for every vector of a row and `n` edges in
    /// ascending order; the weights are the edge's numbers in `p`.
    #[inline(always)]
    pub fn accumulate<F: Real, J: Join<F>>(
        self,
        sums: &mut [Lanes<F>],
        (p, n): (&[Lanes<F>], usize),
        join: &J,
    ) {
        self.accumulate_from(sums, (p.as_flattened(), n), join);
    }

    /// As [`Layout::accumulate`] for edge `e` alone.
    #[inline(always)]
    pub fn accumulate_one<F: Real, J: Join<F>>(
        self,
        sums: &mut [Lanes<F>],
        (p, e): (&[Lanes<F>], usize),
        join: &J,
    ) {
        self.accumulate_from(sums, (&p.as_flattened()[e * self.slots..], 1), join);
    }

    #[inline(always)]
    fn accumulate_from<F: Real, J: Join<F>>(
        self,
        sums: &mut [Lanes<F>],
        (p, n): (&[F], usize),
        join: &J,
    ) {
        let job = (self, &mut sums[..self.vectors], p, n, join);
        match self.lanes {
            4 => accumulate::<F, J, 4>(self.isa, job),
            8 => accumulate::<F, J, 8>(self.isa, job),
            _ => accumulate::<F, J, LANES>(self.isa, job),
        }
    }

    /// The sums over each head's channels of `term(edge, v)`, to the edges' numbers in `out`.
    #[inline(always)]
    pub fn reduce<F: Real, G: Term<F>>(self, (out, n): (&mut [Lanes<F>], usize), term: &G) {
        let job = (self, out.as_flattened_mut(), n, term);
        match self.lanes {
            4 => reduce::<F, G, 4>(self.isa, job),
            8 => reduce::<F, G, 8>(self.isa, job),
            _ => reduce::<F, G, LANES>(self.isa, job),
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

    /// The greatest lane of each head: afterwards a tile.
    #[inline(always)]
    pub fn fold_greatest<F: Real>(self, tile: &mut [Lanes<F>]) {
        let mut step = LANES / 2;
        while step >= self.slots {
            for lanes in tile.iter_mut() {
                *lanes = greater(lanes, &rotated(lanes, step));
            }
            step /= 2;
        }
    }

    /// The sum of the lanes of each head, likewise.
    #[inline(always)]
    pub fn fold_sum<F: Real>(self, tile: &mut [Lanes<F>]) {
        let mut step = LANES / 2;
        while step >= self.slots {
            for lanes in tile.iter_mut() {
                *lanes = add(lanes, &rotated(lanes, step));
            }
            step /= 2;
        }
    }

    /// Adds the scores of edges to a tile that is not yet folded.
    #[inline(always)]
    pub fn add_to_tile<F: Real>(self, scores: &[Lanes<F>], tile: &mut [Lanes<F>]) {
        for group in scores.chunks_exact(tile.len()) {
            for (sum, x) in tile.iter_mut().zip(group) {
                *sum = add(sum, x);
            }
        }
    }

    /// Sets the lanes after the last of `n` edges.
    #[inline(always)]
    pub fn set_after<F: Real>(self, scores: &mut [Lanes<F>], n: usize, value: F) {
        let used = n * self.slots;
        if !used.is_multiple_of(LANES) {
            let last = &mut scores[used / LANES];
            *last = keep(last, used % LANES, value);
        }
    }
}

// The two loops over all numbers of a chunk's rows. They are compiled by themselves: many passes
// share them, and alone they have enough registers.

/// Layout, sums, weights, number of edges, and what is done with them.
type Accumulate<'a, F, J> = (Layout, &'a mut [Lanes<F>], &'a [F], usize, &'a J);

per_isa!(fn accumulate<[F: Real, J: Join<F>], [K]>(
    job: Accumulate<'_, F, J>) = accumulate_body);

#[inline(always)]
fn accumulate_body<M: Arith, F: Real, J: Join<F>, const K: usize>(job: Accumulate<'_, F, J>) {
    let (layout, sums, p, n, join) = job;
    // Some edges between reading a sum and writing it; few enough for their rows to stay near.
    for first in (0..n).step_by(8) {
        let end = n.min(first + 8);
        for (v, sum) in sums.iter_mut().enumerate() {
            let mut total = *sum;
            for e in first..end {
                let w = weights::<F, K>(layout, p, e, v);
                total = join.join::<M>(e, v, &w, &total);
            }
            *sum = total;
        }
    }
}

/// The numbers of edge `e`'s heads in the lanes of vector `v`.
#[inline(always)]
fn weights<F: Real, const K: usize>(layout: Layout, p: &[F], e: usize, v: usize) -> Lanes<F> {
    if K == LANES {
        return [p[e * layout.slots + v / (layout.lanes / LANES)]; LANES];
    }
    let (heads, at) = (LANES / K, e * layout.slots + v * (LANES / K));
    let p = &p[at..at + heads];
    let mut lanes = [F::ZERO; LANES];
    for l in 0..LANES {
        lanes[l] = p[l / K];
    }
    lanes
}

/// Layout, where the sums go, number of edges, and what is summed.
type Reduce<'a, F, G> = (Layout, &'a mut [F], usize, &'a G);

per_isa!(fn reduce<[F: Real, G: Term<F>], [K]>(job: Reduce<'_, F, G>) = reduce_body);

#[inline(always)]
fn reduce_body<M: Arith, F: Real, G: Term<F>, const K: usize>(job: Reduce<'_, F, G>) {
    let (layout, out, n, term) = job;
    for (e, out) in out.chunks_mut(layout.slots).take(n).enumerate() {
        if K == LANES {
            let per_head = layout.lanes / LANES;
            for (h, out) in out.iter_mut().take(layout.heads).enumerate() {
                let mut sum = term.at::<M>(e, h * per_head);
                for v in 1..per_head {
                    sum = add(&sum, &term.at::<M>(e, h * per_head + v));
                }
                *out = across(&sum);
            }
        } else {
            let heads = LANES / K;
            for (v, out) in out.chunks_exact_mut(heads).take(layout.vectors).enumerate() {
                out.copy_from_slice(&groups::<F, K>(&term.at::<M>(e, v))[..heads]);
            }
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

/// Something of an edge and a vector of its row.
pub(super) trait Term<F> {
    fn at<M: Arith>(&self, e: usize, v: usize) -> Lanes<F>;
}

/// How an edge joins a vector of sums, with a weight per lane.
pub(super) trait Join<F: Real> {
    fn join<M: Arith>(&self, e: usize, v: usize, w: &Lanes<F>, sum: &Lanes<F>) -> Lanes<F>;
}

/// The row of each edge times one that is the same for all.
pub(super) struct Times<'a, F> {
    pub layout: Layout,
    pub rows: &'a [Lanes<F>],
    pub own: &'a [Lanes<F>],
}

impl<F: Real> Term<F> for Times<'_, F> {
    #[inline(always)]
    fn at<M: Arith>(&self, e: usize, v: usize) -> Lanes<F> {
        mul(&self.rows[e * self.layout.vectors + v], &self.own[v])
    }
}

/// Adds the weighted row of each edge.
pub(super) struct AddRows<'a, F>(pub Layout, pub &'a [Lanes<F>]);

impl<F: Real> Join<F> for AddRows<'_, F> {
    #[inline(always)]
    fn join<M: Arith>(&self, e: usize, v: usize, w: &Lanes<F>, sum: &Lanes<F>) -> Lanes<F> {
        mul_add::<M, F>(w, &self.1[e * self.0.vectors + v], sum)
    }
}

/// The weighted row, whatever the sum was.
pub(super) struct Weighted<'a, F>(pub &'a [Lanes<F>]);

impl<F: Real> Join<F> for Weighted<'_, F> {
    #[inline(always)]
    fn join<M: Arith>(&self, _: usize, v: usize, w: &Lanes<F>, _: &Lanes<F>) -> Lanes<F> {
        mul(w, &self.0[v])
    }
}

/// The weighted sum.
pub(super) struct Scale;

impl<F: Real> Join<F> for Scale {
    #[inline(always)]
    fn join<M: Arith>(&self, _: usize, _: usize, w: &Lanes<F>, sum: &Lanes<F>) -> Lanes<F> {
        mul(w, sum)
    }
}

// Loops over lanes, and no closures: what is not inlined is not compiled for the instruction set.

/// Makes a function of lanes of one of numbers.
macro_rules! lanewise {
    ($(#[$doc:meta])* $name:ident($($x:ident),*) = $result:expr) => {
        $(#[$doc])*
        #[inline(always)]
        pub(super) fn $name<F: Real>($($x: &Lanes<F>),*) -> Lanes<F> {
            let mut lanes = [F::ZERO; LANES];
            for l in 0..LANES {
                $(let $x = $x[l];)*
                lanes[l] = $result;
            }
            lanes
        }
    };
}

lanewise!(/** `a + b`. */ add(a, b) = a + b);
lanewise!(/** `a·b`. */ mul(a, b) = a * b);
lanewise!(/** The greater of each; NaN stays. */ greater(a, b) = a.greater(b));

/// `w·x + sum`.
#[inline(always)]
pub(super) fn mul_add<M: Arith, F: Real>(w: &Lanes<F>, x: &Lanes<F>, sum: &Lanes<F>) -> Lanes<F> {
    let mut lanes = [F::ZERO; LANES];
    for l in 0..LANES {
        lanes[l] = M::mul_add(w[l], x[l], sum[l]);
    }
    lanes
}

/// `e^(a - b)`.
#[inline(always)]
pub(super) fn exp_less<M: Arith, F: Real>(a: &Lanes<F>, b: &Lanes<F>) -> Lanes<F> {
    let mut lanes = [F::ZERO; LANES];
    for l in 0..LANES {
        lanes[l] = math::exp::<M, F>(a[l] - b[l]);
    }
    lanes
}

/// `x`, times `slope` where it is not above 0.
#[inline(always)]
pub(super) fn leaky<F: Real>(x: &Lanes<F>, slope: F) -> Lanes<F> {
    mul(x, &slopes(x, slope))
}

/// The derivative of [`leaky`].
#[inline(always)]
pub(super) fn slopes<F: Real>(x: &Lanes<F>, slope: F) -> Lanes<F> {
    let mut lanes = [slope; LANES];
    for l in 0..LANES {
        if x[l] > F::ZERO {
            lanes[l] = F::ONE;
        }
    }
    lanes
}

/// The lanes, those `step` further first.
#[inline(always)]
fn rotated<F: Real>(x: &Lanes<F>, step: usize) -> Lanes<F> {
    let mut lanes = [F::ZERO; LANES];
    for l in 0..LANES {
        lanes[l] = x[(l + step) % LANES];
    }
    lanes
}

/// The first `n` lanes, and `value` in the others.
#[inline(always)]
fn keep<F: Real>(lanes: &Lanes<F>, n: usize, value: F) -> Lanes<F> {
    let mut kept = [value; LANES];
    for l in 0..LANES {
        if l < n {
            kept[l] = lanes[l];
        }
    }
    kept
}

/// At most 16 numbers as a vector.
#[inline(always)]
fn short<T: Stored>(x: &[T]) -> Lanes<T::Sum> {
    let mut lanes = [T::Sum::ZERO; LANES];
    for (lane, x) in lanes.iter_mut().zip(x) {
        *lane = x.wide();
    }
    lanes
}

#[inline(always)]
fn narrow<T: Stored>(from: &[T::Sum], out: &mut [T]) {
    for (out, value) in out.iter_mut().zip(from) {
        *out = T::narrow(*value);
    }
}

/// The sums of groups of `K` lanes, in the first lanes.
#[inline(always)]
fn groups<F: Real, const K: usize>(x: &Lanes<F>) -> Lanes<F> {
    let mut lanes = *x;
    let mut left = LANES;
    while left > LANES / K {
        let old = lanes;
        left /= 2;
        for l in 0..left {
            lanes[l] = old[2 * l] + old[2 * l + 1];
        }
    }
    lanes
}

/// The sum of all lanes.
#[inline(always)]
fn across<F: Real>(x: &Lanes<F>) -> F {
    let mut lanes = *x;
    let mut left = LANES;
    while left > 1 {
        left /= 2;
        for l in 0..left {
            lanes[l] += lanes[l + left];
        }
    }
    lanes[0]
}
