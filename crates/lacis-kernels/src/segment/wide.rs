//! Along columns with AVX-512: 16 rows at a time, turned in registers.
//!
//! ```text
//!  select   for each 16 rows of x:        line(j) = their column j                   in the cache
//!             for each 16 positions i:    y(·, i) = line(index(i)), turned back
//!  reduce   for each 16 rows of x:        joined(s) = neutral                        in the cache
//!             for each 16 columns, turned: joined(index(c)) = join(joined(index(c)), column c)
//!           y(·, s) = joined(s), turned back
//! singles  16 segments of few numbers each: the first of all, the second of all, …
//! look up  for each 16 columns: positions turned, looked up column by column, results turned back
//! turn     block by block
//! ```
//! A number costs a sixteenth of a load and of a write instead of one of each.

use std::arch::x86_64::{__m512i, _mm512_cvtepi32_epi16, _mm512_cvtepu16_epi32};
use std::array::from_fn;

use bytemuck::{cast, cast_slice, cast_slice_mut};
use lacis_core::reference::Reduce;

use super::columns::{self, Part};
use super::join::{Join, empty};
use super::rows::{self, FEW as FEW_ITEMS, singles_body};
use super::select::{Columns, columns_body};
use super::tables::{self, look_up_body};
use super::turn::{Begin, turn_body, turn_by};
use crate::isa::Arith;
use crate::matrix::{Mat, MatMut};
use crate::mem::{L2, fetch_lines};
use crate::real::{Real, Stored};
use crate::turned::{Line, SIDE, turn as turned, turn_fours};

/// How many numbers ahead a row is asked for.
const AHEAD: usize = 128;
/// Of fewer than one in so many columns, turning all takes longer than reading those.
const FEW: usize = 4;

/// As [`columns_body`], which does what is left: rows and matrices that are not whole blocks.
#[target_feature(enable = "avx512f,avx512vl,avx512bw,avx512dq,avx2,fma")]
pub(super) fn select<M: Arith, T: Stored>(job: Columns<'_, T>) {
    let (n, count) = (job.x.n_cols, job.index.len());
    let blocks = n >= SIDE && count >= SIDE && n <= FEW * count;
    if !blocks || job.lines.len() < n || job.scale.is_some() {
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
    if size_of::<T>() != size_of::<u32>() || part.lines.len() < part.y.n_cols {
        return columns::body::<M, T, J>(part);
    }
    let Part { x, index, counts, rule, joined, lines, y } = part;
    let whole = y.n_rows / SIDE * SIDE;
    for first in (0..whole).step_by(SIDE) {
        // One number after another: filling with whole lines, the compiler scatters them.
        cast_slice_mut::<Line, T>(lines).fill(T::narrow(J::neutral()));
        join_blocks::<T, J>(from_fn(|r| x.row(first + r)), index, lines);
        end_lines::<T>(lines, rule, counts);
        let to = &mut y.data[first * y.stride..];
        write_blocks::<T, J>(lines, rule.1, (to, y.stride));
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
        (0..SIDE).for_each(|r| fetch_lines::<T, L2>(rows[r], chunk * SIDE + AHEAD, 1));
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

/// From what was joined to results, where it matters how many were: line by line, so that there is
/// one count for 16 numbers.
#[inline]
#[target_feature(enable = "avx512f,avx512vl,avx512bw,avx512dq,avx2,fma")]
fn end_lines<T: Stored>(lines: &mut [Line], (reduce, _): (Reduce, Begin), counts: &[T::Sum]) {
    for (line, &count) in lines.iter_mut().zip(counts) {
        let line: &mut [T] = cast_slice_mut(&mut line.0);
        if count == T::Sum::ZERO {
            line.fill(T::narrow(empty(reduce)));
        } else if reduce == Reduce::Mean {
            line.iter_mut().for_each(|x| *x = T::narrow(x.wide() / count));
        }
    }
}

/// Writes what was joined to 16 rows, or joins it to what they hold, a line of each at a time.
#[inline]
#[target_feature(enable = "avx512f,avx512vl,avx512bw,avx512dq,avx2,fma")]
fn write_blocks<T: Stored, J: Join>(lines: &[Line], onto: Begin, (to, stride): (&mut [T], usize)) {
    let join = |y: T, x: T| match onto {
        Begin::AsGiven => T::narrow(J::join(y.wide(), x.wide())),
        Begin::Unset => x,
    };
    let (full, rest) = lines.as_chunks::<SIDE>();
    for (block, lines) in full.iter().enumerate() {
        let rows = turned(from_fn(|s| cast(lines[s].0)));
        for (r, row) in rows.into_iter().enumerate() {
            let joined: [T; SIDE] = cast(row);
            let y = &mut to[r * stride + block * SIDE..][..SIDE];
            y.iter_mut().zip(&joined).for_each(|(y, x)| *y = join(*y, *x));
        }
    }
    for (s, line) in rest.iter().enumerate() {
        let joined: &[T] = cast_slice(&line.0);
        for (r, x) in joined.iter().enumerate() {
            let y = &mut to[r * stride + full.len() * SIDE + s];
            *y = join(*y, *x);
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

/// As [`singles_body`], which does what is left, for numbers and results that lie together.
#[target_feature(enable = "avx512f,avx512vl,avx512bw,avx512dq,avx2,fma")]
pub(super) fn singles<M: Arith, T: Stored, J: Join>(part: rows::Part<'_, T>) {
    let rows::Part { x, members, reduce, onto, segments, y } = part;
    let small = size_of::<T>() == size_of::<u32>() && u32::try_from(x.n_rows).is_ok();
    let mut s = segments.start;
    if small && members.order().is_none() && x.stride == 1 && y.stride == 1 {
        let data = &x.data[..x.n_rows];
        while s + SIDE <= segments.end && members.of(s + SIDE - 1).end + FEW_ITEMS <= x.n_rows {
            let starts: [usize; SIDE] = from_fn(|l| members.of(s + l).start);
            let ends: [usize; SIDE] = from_fn(|l| members.of(s + l).end);
            let counts = from_fn(|l| (ends[l] - starts[l]) as u32);
            let joined = sixteen::<T, J>(data, (&starts, &ends), &counts);
            let y = &mut y.data[s - segments.start..][..SIDE];
            write_singles::<T, J>(&joined, &counts, (reduce, onto), y);
            s += SIDE;
        }
    }
    let y = rows_from(s - segments.start, y);
    if s < segments.end {
        let segments = s..segments.end;
        singles_body::<M, T, J>(rows::Part { x, members, reduce, onto, segments, y });
    }
}

/// What the items of 16 segments join to, each segment's in their order.
#[inline]
#[target_feature(enable = "avx512f,avx512vl,avx512bw,avx512dq,avx2,fma")]
fn sixteen<T: Stored, J: Join>(
    data: &[T],
    (starts, ends): (&[usize; SIDE], &[usize; SIDE]),
    counts: &[u32; SIDE],
) -> [T; SIDE] {
    let first = |l: usize| -> [T; FEW_ITEMS] {
        *data[starts[l]..].first_chunk().expect("the last segment ends long before the numbers do")
    };
    let fours: [[[T; FEW_ITEMS]; 4]; 4] = from_fn(|q| from_fn(|l| first(4 * l + q)));
    let items = turn_fours(from_fn(|q| cast(cast_array::<T>(fours[q]))));
    let mut joined = [T::narrow(J::neutral()); SIDE];
    for (t, items) in items.into_iter().enumerate() {
        let items: [T; SIDE] = cast(items);
        for l in 0..SIDE {
            let x = if (t as u32) < counts[l] { items[l].wide() } else { J::neutral() };
            joined[l] = T::narrow(J::join(joined[l].wide(), x));
        }
    }
    if counts.iter().fold(0, |most, &count| count.max(most)) > FEW_ITEMS as u32 {
        for l in 0..SIDE {
            for x in data.get(starts[l] + FEW_ITEMS..ends[l]).unwrap_or_default() {
                joined[l] = T::narrow(J::join(joined[l].wide(), x.wide()));
            }
        }
    }
    joined
}

/// Four times four numbers as one vector's.
#[inline(always)]
fn cast_array<T: Stored>(fours: [[T; FEW_ITEMS]; 4]) -> [T; SIDE] {
    let mut all = [T::narrow(T::Sum::ZERO); SIDE];
    all.copy_from_slice(fours.as_flattened());
    all
}

/// Writes what was joined of 16 segments.
#[inline(always)]
fn write_singles<T: Stored, J: Join>(
    joined: &[T; SIDE],
    counts: &[u32; SIDE],
    (reduce, onto): (Reduce, Begin),
    y: &mut [T],
) {
    for (l, y) in y.iter_mut().enumerate() {
        let (joined, count) = (joined[l].wide(), counts[l]);
        let whole = match onto {
            Begin::AsGiven => {
                let sum = J::join(y.wide(), joined);
                if count == 0 { y.wide() } else { sum }
            }
            Begin::Unset => {
                let divisor =
                    T::Sum::of(if reduce == Reduce::Mean { f64::from(count) } else { 1.0 });
                let whole = joined / divisor;
                if count == 0 { empty(reduce) } else { whole }
            }
        };
        *y = T::narrow(whole);
    }
}

/// As [`look_up_body`], which does what is left: rows and columns that are not whole blocks.
#[target_feature(enable = "avx512f,avx512vl,avx512bw,avx512dq,avx2,fma")]
pub(super) fn look_up<M: Arith, T: Stored>(block: tables::Block<'_, '_, T>) {
    if block.width != SIDE || size_of::<T>() != size_of::<u32>() {
        return look_up_body::<M, T>(block);
    }
    /// How many rows ahead positions and results are asked for.
    const AHEAD: usize = 2 * SIDE;
    let tables::Block { tables: (table, apart), at: (at, k), width, room, rows, col } = block;
    let whole = rows.len() / SIDE * SIDE;
    let wide = tables::apart(tables::BLOCK_ROWS);
    for i in (0..whole).step_by(SIDE) {
        (0..SIDE).for_each(|r| fetch_lines::<u32, L2>(at, (i + AHEAD + r) * k, SIDE));
        let positions = turned(from_fn(|r| cast(*block_of(at, (i + r) * k))));
        for (c, positions) in positions.into_iter().enumerate() {
            let positions: [u32; SIDE] = cast(positions);
            room.0[c * wide + i..][..SIDE].copy_from_slice(&positions);
        }
    }
    for c in 0..SIDE {
        let table = &table[c * apart..][..apart];
        let out = room.1[c * wide..][..whole].iter_mut();
        out.zip(&room.0[c * wide..]).for_each(|(out, &at)| *out = table[at as usize]);
    }
    for i in (0..whole).step_by(SIDE) {
        for r in 0..SIDE {
            if let Some(row) = rows.get(i + AHEAD + r) {
                fetch_lines::<T, L2>(row, col, SIDE);
            }
        }
        let results = turned(from_fn(|c| cast(*block_of(room.1, c * wide + i))));
        for (r, results) in results.into_iter().enumerate() {
            let results: [T; SIDE] = cast(results);
            rows[i + r][col..][..SIDE].copy_from_slice(&results);
        }
    }
    let at = (at.get(whole * k..).unwrap_or_default(), k);
    let (tables, rows) = ((table, apart), &mut rows[whole..]);
    look_up_body::<M, T>(tables::Block { tables, at, width, room, rows, col });
}
