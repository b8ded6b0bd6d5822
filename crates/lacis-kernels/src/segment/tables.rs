//! Gather along rows where a column fits in the nearest cache: every column of `x` is a table.
//!
//! ```text
//!  for each 16 columns:              table(c) = their column c               turned in registers
//!    for each block of rows of y:    at(c, ·) = their positions in column c  turned
//!      for each column:              out(c, ·) = table(c)[at(c, ·)]          all of it near
//!                                    y = out, turned back
//! ```
//! Row by row, each number would come from a line of its own, of which all but it is of no use.
//!
//! # Parallelism
//! A thread does whole blocks of columns; of narrow matrices, whole rows of the result.
//! # Memory
//! 16 tables and a block an item; of narrow matrices, all tables.

use std::ops::Range;

use lacis_core::threads::{ranges, split_at_ends};
use lacis_core::{Lent, Result, Threads};

use super::turn::{shape, turn};
#[cfg(target_arch = "x86_64")]
use super::wide::look_up as look_up_wide;
use crate::isa::{Arith, Isa, per_isa};
use crate::matrix::{Mat, MatMut};
use crate::real::Stored;
use crate::turned::SIDE;

/// A table of more bytes does not stay in the nearest cache, 16 of them not in the second.
const TABLE_BYTES: usize = 48 << 10;
/// Tables that are read less often than once in so many places are not worth making.
const FEW: usize = 4;
/// Rows of a block.
pub(super) const BLOCK_ROWS: usize = 2048;
/// Columns that one thread does at a time, where there are enough of them.
const BLOCK_COLS: usize = 256;
const WIDE_COLS: usize = 4 * BLOCK_COLS;
/// Elements that an item of narrow matrices writes, about.
const ITEM_ELEMENTS: usize = 1 << 17;

/// Whether this is for a gather of so many rows from `x`: with AVX-512, from numbers of four bytes.
pub(super) fn take<T: Stored>(isa: Isa, x: &Mat<'_, T>, n_rows: usize) -> bool {
    isa.name() == "avx512"
        && size_of::<T>() == size_of::<u32>()
        && x.n_cols >= SIDE
        && n_rows >= SIDE
        && x.n_rows * size_of::<T>() <= TABLE_BYTES
        && x.n_rows <= FEW * n_rows
}

/// How far apart tables lie: whole vectors, and not such that all begin at the same place of a
/// cache.
pub(super) fn apart(n: usize) -> usize {
    n.next_multiple_of(SIDE) + SIDE
}

/// `y_ic = x_{at(i, c), c}`.
pub(super) fn gather<T: Stored>(
    isa: Isa,
    (x, at): (Mat<'_, T>, &[u32]),
    y: MatMut<'_, T>,
    threads: &Threads,
) -> Result<()> {
    if x.n_cols >= WIDE_COLS {
        return by_columns(isa, (x, at), y, threads);
    }
    let (k, apart) = (x.n_cols, apart(x.n_rows));
    let strips = ranges(k, SIDE);
    let mut tables = threads.lend::<T>(strips.len() * SIDE * apart)?;
    let ends: Vec<usize> = (1..=strips.len()).map(|strip| strip * SIDE * apart).collect();
    let items = strips.into_iter().zip(split_at_ends(&mut tables, &ends)).collect();
    threads.for_each(items, |(cols, tables): (Range<usize>, &mut [T])| {
        fill(isa, (x, cols.start), cols.len(), tables);
    });
    let tables = &*tables;
    let rows = (ITEM_ELEMENTS / k).next_multiple_of(SIDE);
    let slices = ranges(y.n_rows, rows);
    let ends: Vec<usize> = slices.iter().map(|slice| slice.end).collect();
    let items = slices.into_iter().zip(y.split(&ends)).collect();
    threads.try_map(items, |(slice, y): (Range<usize>, MatMut<'_, T>)| {
        let mut room = Room::new(threads)?;
        let MatMut { data, n_rows, stride, .. } = y;
        let mut rows: Vec<&mut [T]> = data.chunks_mut(stride).take(n_rows).collect();
        for cols in ranges(k, SIDE) {
            let tables = &tables[cols.start * apart..];
            let at = &at[slice.start * k + cols.start..];
            let strip = (cols.start, cols.len());
            room.strip(isa, (tables, apart), (at, k), (strip, &mut rows));
        }
        Ok(())
    })?;
    Ok(())
}

fn by_columns<T: Stored>(
    isa: Isa,
    (x, at): (Mat<'_, T>, &[u32]),
    y: MatMut<'_, T>,
    threads: &Threads,
) -> Result<()> {
    let (k, apart) = (x.n_cols, apart(x.n_rows));
    let items = ranges(k, BLOCK_COLS).into_iter().zip(y.split_columns(BLOCK_COLS)).collect();
    threads.try_map(items, |(block, mut rows): (Range<usize>, Vec<&mut [T]>)| {
        let (mut room, mut tables) = (Room::new(threads)?, threads.lend::<T>(SIDE * apart)?);
        for cols in ranges(block.len(), SIDE) {
            let col = block.start + cols.start;
            fill(isa, (x, col), cols.len(), &mut tables);
            let strip = (cols.start, cols.len());
            room.strip(isa, (&tables, apart), (&at[col..], k), (strip, &mut rows));
        }
        Ok(())
    })?;
    Ok(())
}

/// Makes tables of `width` columns of `x` from one on.
fn fill<T: Stored>(isa: Isa, (x, col): (Mat<'_, T>, usize), width: usize, tables: &mut [T]) {
    let from = Mat { data: &x.data[col..], n_cols: width, ..x };
    let stride = apart(x.n_rows);
    turn(isa, (from, MatMut { data: tables, stride, ..shape(width, x.n_rows) }));
}

/// A block of positions and of results, column by column.
struct Room<'t, T> {
    at: Lent<'t, u32>,
    out: Lent<'t, T>,
}

impl<'t, T: Stored> Room<'t, T> {
    fn new(threads: &'t Threads) -> Result<Self> {
        let size = SIDE * apart(BLOCK_ROWS);
        Ok(Room { at: threads.lend(size)?, out: threads.lend(size)? })
    }

    /// Looks up some columns, block by block of rows.
    fn strip(
        &mut self,
        isa: Isa,
        tables: (&[T], usize),
        (at, k): (&[u32], usize),
        ((col, width), rows): ((usize, usize), &mut [&mut [T]]),
    ) {
        for (block, rows) in rows.chunks_mut(BLOCK_ROWS).enumerate() {
            let at = (&at[block * BLOCK_ROWS * k..], k);
            let room = (&mut self.at[..], &mut self.out[..]);
            look_up::<T>(isa, Block { tables, at, width, room, rows, col });
        }
    }
}

/// Some rows of some columns.
pub(super) struct Block<'a, 'y, T> {
    /// A table for each column, so far apart.
    pub tables: (&'a [T], usize),
    /// Positions from the first on, rows so far apart.
    pub at: (&'a [u32], usize),
    pub width: usize,
    /// For positions and results, turned.
    #[cfg_attr(not(target_arch = "x86_64"), allow(dead_code))]
    pub room: (&'a mut [u32], &'a mut [T]),
    /// Of the result, whose columns begin at `col`.
    pub rows: &'a mut [&'y mut [T]],
    pub col: usize,
}

per_isa!(fn look_up<[T: Stored], []>(block: Block<'_, '_, T>) = look_up_body,
    avx512 = look_up_wide);

/// Row by row.
#[inline(always)]
pub(super) fn look_up_body<M: Arith, T: Stored>(block: Block<'_, '_, T>) {
    let Block { tables: (tables, apart), at: (at, k), width, rows, col, .. } = block;
    for (i, row) in rows.iter_mut().enumerate() {
        let at = &at[i * k..][..width];
        for (c, (y, &at)) in row[col..][..width].iter_mut().zip(at).enumerate() {
            *y = tables[c * apart + at as usize];
        }
    }
}
