//! Along columns with AVX-512: 16 rows at a time, turned in registers.
//!
//! ```text
//!  select   for each 16 rows of x:        line(j) = their column j                   in the cache
//!             for each 16 positions i:    y(·, i) = line(index(i)), turned back
//!  reduce   for each 16 rows of x:        joined(s) = neutral                        in the cache
//!             for each 16 columns, turned: joined(index(c)) = join(joined(index(c)), column c)
//!           y(·, s) = joined(s), turned back
//! turn     block by block
//! ```
//! A number costs a sixteenth of a load and of a write instead of one of each.

use std::arch::x86_64::{__m512i, _mm512_cvtepi32_epi16, _mm512_cvtepu16_epi32};
use std::array::from_fn;

use bytemuck::{cast, cast_slice, cast_slice_mut};
use lacis_core::reference::Reduce;

use super::columns::{self, Part, write};
use super::join::Join;
use super::select::{Columns, columns_body};
use super::turn::{Begin, turn_body, turn_by};
use crate::isa::Arith;
use crate::matrix::{Mat, MatMut};
use crate::real::Stored;
use crate::turned::{Line, SIDE, turn as turned};

/// What a core keeps near, about.
const JOINED_BYTES: usize = 1 << 21;
/// Lines of more bytes than this are not kept: what is read here and there would come from memory.
const LINES_BYTES: usize = 1 << 23;
/// Of fewer than one in so many columns, turning all takes longer than reading those.
const FEW: usize = 4;

/// As [`columns_body`], which does what is left: rows and matrices that are not whole blocks.
#[target_feature(enable = "avx512f,avx512vl,avx512bw,avx512dq,avx2,fma")]
pub(super) fn select<M: Arith, T: Stored>(job: Columns<'_, T>) {
    let (n, count) = (job.x.n_cols, job.index.len());
    let blocks = n >= SIDE && count >= SIDE && n <= FEW * count;
    if !blocks || n * size_of::<Line>() > LINES_BYTES || job.scale.is_some() {
        return columns_body::<M, T>(job);
    }
    match size_of::<T>() {
        4 => select_blocks::<M, T>(job, |numbers| cast(*numbers), cast),
        2 => select_blocks::<M, T>(
            job,
            |numbers| _mm512_cvtepu16_epi32(cast(*numbers)),
            |vector| cast(_mm512_cvtepi32_epi16(vector)),
        ),
        _ => columns_body::<M, T>(job),
    }
}

#[inline]
#[target_feature(enable = "avx512f,avx512vl,avx512bw,avx512dq,avx2,fma")]
fn select_blocks<M: Arith, T: Stored>(
    job: Columns<'_, T>,
    load: impl Fn(&[T; SIDE]) -> __m512i,
    store: impl Fn(__m512i) -> [T; SIDE],
) {
    let Columns { x, index, y, lines, .. } = job;
    lines.resize(x.n_cols, Line([0; SIDE]));
    let whole = y.n_rows / SIDE * SIDE;
    for first in (0..whole).step_by(SIDE) {
        let rows: [&[T]; SIDE] = from_fn(|r| x.row(first + r));
        for j in blocks(x.n_cols) {
            let block = turned(from_fn(|r| load(block_of(rows[r], j))));
            let to = &mut lines[j..][..SIDE];
            (0..SIDE).for_each(|c| to[c].0 = cast(block[c]));
        }
        let to = &mut y.data[first * y.stride..];
        for i in blocks(index.len()) {
            let at = block_of(index, i);
            let block = turned(from_fn(|c| cast(lines[at[c] as usize].0)));
            for (r, vector) in block.into_iter().enumerate() {
                to[r * y.stride + i..][..SIDE].copy_from_slice(&store(vector));
            }
        }
    }
    let x = x.rows(whole..y.n_rows);
    let y = rows_from(whole, y);
    columns_body::<M, T>(Columns { x, y, index, lines, scale: None });
}

/// The rows from `first` on.
fn rows_from<T>(first: usize, y: MatMut<'_, T>) -> MatMut<'_, T> {
    let MatMut { data, n_rows, n_cols, stride } = y;
    let start = (first * stride).min(data.len());
    MatMut { data: &mut data[start..], n_rows: n_rows - first, n_cols, stride }
}

/// Where the blocks of `n` places begin; the last may share some with the one before.
#[inline(always)]
fn blocks(n: usize) -> impl Iterator<Item = usize> {
    let rest = (!n.is_multiple_of(SIDE)).then(|| n - SIDE);
    (0..n / SIDE).map(|block| block * SIDE).chain(rest)
}

/// The block that begins there.
#[inline(always)]
fn block_of<N>(list: &[N], start: usize) -> &[N; SIDE] {
    list[start..].first_chunk().expect("blocks end where the list does")
}

/// As [`columns::body`], which does what is left.
#[target_feature(enable = "avx512f,avx512vl,avx512bw,avx512dq,avx2,fma")]
pub(super) fn reduce<M: Arith, T: Stored, J: Join>(part: Part<'_, T>) {
    if size_of::<T>() != size_of::<u32>() || part.y.n_cols * size_of::<Line>() > JOINED_BYTES {
        return columns::body::<M, T, J>(part);
    }
    let Part { x, index, counts, rule, joined, lines, y } = part;
    let whole = y.n_rows / SIDE * SIDE;
    let neutral = [T::narrow(J::neutral()); SIDE];
    for first in (0..whole).step_by(SIDE) {
        lines.clear();
        lines.resize(y.n_cols, Line(cast(neutral)));
        join_blocks::<T, J>(from_fn(|r| x.row(first + r)), index, lines);
        let to = &mut y.data[first * y.stride..];
        write_blocks::<T, J>(lines, (rule, counts), (to, y.stride));
    }
    let x = x.rows(whole..y.n_rows);
    let y = rows_from(whole, y);
    columns::body::<M, T, J>(Part { x, index, counts, rule, joined, lines, y });
}

/// Joins every column of 16 rows where the index says.
#[inline]
#[target_feature(enable = "avx512f,avx512vl,avx512bw,avx512dq,avx2,fma")]
fn join_blocks<T: Stored, J: Join>(rows: [&[T]; SIDE], index: &[u32], lines: &mut [Line]) {
    let (full, rest) = index.as_chunks::<SIDE>();
    let mut columns = [Line([0; SIDE]); SIDE];
    for (chunk, at) in full.iter().enumerate() {
        let block = turned(from_fn(|r| cast(*block_of(rows[r], chunk * SIDE))));
        (0..SIDE).for_each(|c| columns[c].0 = cast(block[c]));
        for (&s, column) in at.iter().zip(&columns) {
            join_line::<T, J>(&mut lines[s as usize], column);
        }
    }
    for (c, &s) in rest.iter().enumerate() {
        let column: [T; SIDE] = from_fn(|r| rows[r][full.len() * SIDE + c]);
        join_line::<T, J>(&mut lines[s as usize], &Line(cast(column)));
    }
}

/// In place: as values, lines would go through memory that does not begin with one, and what was
/// written last could not be read back at once.
#[inline(always)]
fn join_line<T: Stored, J: Join>(so_far: &mut Line, column: &Line) {
    let so_far: &mut [T] = cast_slice_mut(&mut so_far.0);
    for (so_far, x) in so_far.iter_mut().zip(cast_slice::<u32, T>(&column.0)) {
        *so_far = T::narrow(J::join(so_far.wide(), x.wide()));
    }
}

/// Writes what was joined to 16 rows, a line of each at a time.
#[inline]
#[target_feature(enable = "avx512f,avx512vl,avx512bw,avx512dq,avx2,fma")]
fn write_blocks<T: Stored, J: Join>(
    lines: &[Line],
    (rule, counts): ((Reduce, Begin), &[T::Sum]),
    (to, stride): (&mut [T], usize),
) {
    let (full, rest) = lines.as_chunks::<SIDE>();
    for (block, lines) in full.iter().enumerate() {
        let first = block * SIDE;
        let counts = counts.get(first..first + SIDE).unwrap_or(&[]);
        let rows = turned(from_fn(|s| cast(lines[s].0)));
        for (r, row) in rows.into_iter().enumerate() {
            let joined: [T; SIDE] = cast(row);
            let y = &mut to[r * stride + first..][..SIDE];
            write::<T, J>(&joined.map(T::wide), (rule, counts), y);
        }
    }
    for (s, line) in rest.iter().enumerate() {
        let s = full.len() * SIDE + s;
        let counts = counts.get(s..=s).unwrap_or(&[]);
        let joined: [T; SIDE] = cast(line.0);
        for (r, joined) in joined.into_iter().enumerate() {
            write::<T, J>(&[joined.wide()], (rule, counts), &mut to[r * stride + s..][..1]);
        }
    }
}

/// Writes the transpose of the first matrix to the second.
#[target_feature(enable = "avx512f,avx512vl,avx512bw,avx512dq,avx2,fma")]
pub(super) fn turn<M: Arith, T: Stored>(pair: (Mat<'_, T>, MatMut<'_, T>)) {
    if size_of::<T>() != size_of::<u32>() {
        return turn_body::<M, T>(pair);
    }
    turn_by(pair, |from, to, i, j| {
        let row = |r: usize| cast(*block_of(from.data, (i + r) * from.stride + j));
        for (c, column) in turned(from_fn(row)).into_iter().enumerate() {
            let column: [T; SIDE] = cast(column);
            to.data[(j + c) * to.stride + i..][..SIDE].copy_from_slice(&column);
        }
    });
}
