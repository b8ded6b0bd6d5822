//! How the heads of a row lie in vectors of 16 lanes.
//!
//! ```text
//!   features of an edge   head 0 in 2, 4, 8 or 16·m lanes | head 1 | …           `vectors` of them
//!   scores of edges       heads of edge 0, padded to 1, 2, 4, 8 or 16·m | those of edge 1 | …
//! ```
//! Scores of many edges are so one list of whole vectors, whatever the number of heads; a number
//! per head that is the same for all edges is a tile of it. Lanes of padding hold anything finite
//! or not: no lane is ever added to one of another head, and padding is not written back.

use std::ops::Range;

use lacis_core::{DType, Result, Threads};

use crate::isa::{Arith, Isa, per_isa};
pub(super) use crate::lanes::LANES;
use crate::math;
use crate::matrix::{Mat, Room};
use crate::mem::{L1, L2, fetch_lines};
use crate::real::{Real, Stored};

/// Edges that are done together, at most.
pub(super) const CHUNK: usize = 64;

/// Entries ahead of which rows are asked for into the second cache, and into the first.
pub(super) const FAR: usize = 64;
const NEAR: usize = 12;
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
    /// Lanes per head: 2, 4, 8 or a multiple of 16.
    lanes: usize,
    /// Lanes of an edge's scores: 1, 2, 4, 8 or a multiple of 16.
    pub slots: usize,
    /// Vectors of a row.
    pub vectors: usize,
    /// How loops over rows are compiled.
    pub shape: Shape,
    /// What they are compiled for.
    pub isa: Isa,
}

/// Joins the lanes of each head in a vector; steps are constant, so that no lane goes by memory.
macro_rules! fold {
    ($layout:expr, $tile:expr, $join:ident) => {
        if let [lanes] = $tile {
            let slots = $layout.slots;
            if slots <= 8 {
                *lanes = $join(lanes, &rotated::<F, 8>(lanes));
            }
            if slots <= 4 {
                *lanes = $join(lanes, &rotated::<F, 4>(lanes));
            }
            if slots <= 2 {
                *lanes = $join(lanes, &rotated::<F, 2>(lanes));
            }
            if slots <= 1 {
                *lanes = $join(lanes, &rotated::<F, 1>(lanes));
            }
        }
    };
}

/// Whether loops are compiled for several shapes, or for one that does for all.
pub(super) const fn has_shapes<T: Stored>() -> bool {
    matches!(T::DTYPE, DType::F32)
}

/// How loops over rows are compiled: lanes of a head (2, 4, 8, 16, or 0 where each head has vectors
/// of its own), and vectors of a tile.
pub(super) type Shape = (usize, usize);

impl Layout {
    /// `heads` of `channels` each, side by side.
    pub fn new<T: Stored>(heads: usize, channels: usize) -> Self {
        // One head alone is a row of whole vectors: its weight is the same in all lanes.
        let flat = heads > 1 && has_shapes::<T>();
        let lanes = match channels {
            2 | 4 | 8 if flat => channels,
            _ => channels.next_multiple_of(LANES),
        };
        let shape = match channels {
            2 if flat => (2, 2),
            4 if flat => (4, 2),
            8 if flat => (8, 4),
            16 if flat => (16, 4),
            _ if has_shapes::<T>() => (0, (lanes / LANES).clamp(1, 4)),
            _ => (0, 1),
        };
        Layout::with(heads, channels, lanes, shape)
    }

    /// The same in loops that do for every layout.
    pub fn general(self) -> Self {
        let lanes = self.channels.next_multiple_of(LANES);
        Layout::with(self.heads, self.channels, lanes, (0, 1))
    }

    fn with(heads: usize, channels: usize, lanes: usize, shape: Shape) -> Self {
        let vectors = (heads * lanes).div_ceil(LANES);
        // The weights of a vector are those of one edge.
        let least = (LANES / lanes.max(1)).max(1);
        let slots = match heads {
            0..=8 => heads.next_power_of_two().max(least),
            _ => heads.next_multiple_of(LANES),
        };
        Layout { heads, channels, lanes, slots, vectors, shape, isa: Isa::best() }
    }

    /// The same for another instruction set.
    pub fn on(self, isa: Isa) -> Self {
        Layout { isa, ..self }
    }

    /// Vectors of a head that has some of its own.
    #[inline(always)]
    pub fn per_head(self) -> usize {
        self.lanes / LANES
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
        (CHUNK_NUMBERS / (self.vectors * LANES).max(1)).clamp(8, CHUNK)
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

    /// Room for `blocks` numbers per head of each of `n_rows` nodes.
    pub fn slots<F: Real>(
        self,
        n_rows: usize,
        blocks: usize,
        threads: &Threads,
    ) -> Result<Room<'_, F>> {
        Room::lent(n_rows, self.slots * blocks, threads)
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

    /// A number per head, repeated over the lanes of a tile; 0 for heads of padding.
    #[inline(always)]
    pub fn tile_of<F: Real>(self, x: &[F], tile: &mut [Lanes<F>]) {
        match (self.slots, &mut *tile) {
            (1, [tile]) => *tile = repeated::<F, 1>(x),
            (2, [tile]) => *tile = repeated::<F, 2>(x),
            (4, [tile]) => *tile = repeated::<F, 4>(x),
            (8, [tile]) => *tile = repeated::<F, 8>(x),
            _ => {
                let tile = tile.as_flattened_mut();
                let n = x.len().min(tile.len());
                tile[..n].copy_from_slice(&x[..n]);
                tile[n..].fill(F::ZERO);
            }
        }
    }

    /// A tile under every vector of scores.
    #[inline(always)]
    pub fn repeat<F: Real>(self, tile: &[Lanes<F>], scores: &mut [Lanes<F>]) {
        if let [tile] = tile {
            for scores in scores {
                *scores = *tile;
            }
            return;
        }
        for group in scores.chunks_exact_mut(tile.len()) {
            group.copy_from_slice(tile);
        }
    }

    /// The first `B` numbers per head of the rows of `x` that entries name, entry after entry.
    #[inline(always)]
    pub fn gather_slots<F: Real, const B: usize>(
        self,
        x: Mat<'_, F>,
        (cols, entries): (&[u32], Range<usize>),
        out: [&mut [Lanes<F>]; B],
    ) {
        let out = out.map(|out| out.as_flattened_mut());
        let names = Names::new(cols, entries);
        match self.slots {
            1 => gather_few::<F, 1, B>(self.isa, (x, names, out)),
            2 => gather_few::<F, 2, B>(self.isa, (x, names, out)),
            4 => gather_few::<F, 4, B>(self.isa, (x, names, out)),
            8 => gather_few::<F, 8, B>(self.isa, (x, names, out)),
            slots => {
                for (n, &j) in names.own.iter().enumerate() {
                    let row = x.row(j as usize);
                    for b in 0..B {
                        out[b][n * slots..][..slots].copy_from_slice(&row[b * slots..][..slots]);
                    }
                }
            }
        }
    }

    /// The greatest lane of each head: afterwards a tile.
    #[inline(always)]
    pub fn fold_greatest<F: Real>(self, tile: &mut [Lanes<F>]) {
        fold!(self, tile, greater);
    }

    /// The sum of the lanes of each head, likewise.
    #[inline(always)]
    pub fn fold_sum<F: Real>(self, tile: &mut [Lanes<F>]) {
        fold!(self, tile, add);
    }

    /// Adds the scores of edges to a tile that is not yet folded.
    #[inline(always)]
    pub fn add_to_tile<F: Real>(self, scores: &[Lanes<F>], tile: &mut [Lanes<F>]) {
        if let [sum] = tile {
            for x in scores {
                *sum = add(sum, x);
            }
            return;
        }
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

/// The first `N` numbers over and over; 0 for those that are missing.
#[inline(always)]
fn repeated<F: Real, const N: usize>(x: &[F]) -> Lanes<F> {
    let mut few = [F::ZERO; N];
    match x.first_chunk() {
        Some(x) => few = *x,
        None => few.iter_mut().zip(x).for_each(|(few, x)| *few = *x),
    }
    let mut lanes = [F::ZERO; LANES];
    for l in 0..LANES {
        lanes[l] = few[l % N];
    }
    lanes
}

/// The rows that entries name, and those that entries after them do.
#[derive(Clone, Copy)]
pub(super) struct Names<'a> {
    pub own: &'a [u32],
    /// Those of entries far ahead, to be asked for into the second cache.
    pub far: &'a [u32],
    /// Those of entries near ahead, to be asked for into the first.
    pub near: &'a [u32],
}

impl<'a> Names<'a> {
    #[inline(always)]
    pub fn new(cols: &'a [u32], Range { start, end }: Range<usize>) -> Self {
        let own = &cols[start..end];
        // At the matrix's end nothing comes after: then a row is asked for itself, to no effect.
        let after = |distance| cols.get(start + distance..end + distance).unwrap_or(own);
        Names { own, far: after(FAR), near: after(NEAR) }
    }
}

/// What is gathered: from where, what, and to where.
type Few<'a, F, const B: usize> = (Mat<'a, F>, Names<'a>, [&'a mut [F]; B]);

// Compiled by itself, so that it has registers of its own.
per_isa!(fn gather_few<[F: Real], [N, B]>(job: Few<'_, F, B>) = gather_body);

/// The first `B` times `N` numbers of the rows that are named, and asks for those to come.
#[allow(clippy::extra_unused_type_parameters)]
#[inline(always)]
fn gather_body<M: Arith, F: Real, const N: usize, const B: usize>((x, names, out): Few<'_, F, B>) {
    let (data, stride) = (x.data, x.stride);
    let coming = names.far.iter().zip(names.near);
    for (n, (&j, (&far, &near))) in names.own.iter().zip(coming).enumerate() {
        fetch_lines::<F, L2>(data, far as usize * stride, N * B);
        fetch_lines::<F, L1>(data, near as usize * stride, N * B);
        let start = j as usize * stride;
        let Some(row) = data.get(start..start + N * B) else { return };
        for b in 0..B {
            let Some(out) = out[b].as_chunks_mut::<N>().0.get_mut(n) else { return };
            out.copy_from_slice(&row[b * N..][..N]);
        }
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

/// `e^(a - b)`, where `a` is the greater by no more than rounding can do.
#[inline(always)]
pub(super) fn exp_less<M: Arith, F: Real>(a: &Lanes<F>, b: &Lanes<F>) -> Lanes<F> {
    let mut lanes = [F::ZERO; LANES];
    for l in 0..LANES {
        lanes[l] = math::low_exp::<M, F>(a[l] - b[l]);
    }
    lanes
}

/// `a + ln b`.
#[inline(always)]
pub(super) fn add_ln<M: Arith, F: Real>(a: &Lanes<F>, b: &Lanes<F>) -> Lanes<F> {
    let mut lanes = [F::ZERO; LANES];
    for l in 0..LANES {
        lanes[l] = a[l] + math::ln::<M, F>(b[l]);
    }
    lanes
}

/// A number per head to another place; mostly they are one vector, and that is no call.
#[inline(always)]
pub(super) fn copy_tile<F: Real>(from: &[Lanes<F>], to: &mut [Lanes<F>]) {
    match (from, to) {
        ([from], [to]) => *to = *from,
        (from, to) => to.copy_from_slice(from),
    }
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

/// The lanes, those `STEP` further first.
#[inline(always)]
fn rotated<F: Real, const STEP: usize>(x: &Lanes<F>) -> Lanes<F> {
    let mut lanes = [F::ZERO; LANES];
    for l in 0..LANES {
        lanes[l] = x[(l + STEP) % LANES];
    }
    lanes
}

/// The first `n` lanes, and `value` in the others.
#[inline(always)]
pub(super) fn keep<F: Real>(lanes: &Lanes<F>, n: usize, value: F) -> Lanes<F> {
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

/// The sum of all lanes.
#[inline(always)]
pub(super) fn across<F: Real>(x: &Lanes<F>) -> F {
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
