//! Some columns after others, each copied next to one another before rows are gathered from them.
//!
//! ```text
//!  for each W columns:  p = their part of x, each row from a line's beginning on
//!                       their part of y = reduce (a_ij · r_j · p_j), by slices of rows
//! ```
//! Where `x` is larger than the caches and `p` is not, every line is fetched from memory once per
//! column block and not once per entry. Where rows of `x` do not end with a line, those of `p` lie
//! in fewer lines.

use lacis_core::{Result, Threads};

use super::{Args, Kernel, hubs};
use crate::finish::LANES;
use crate::isa::Isa;
use crate::matrix::{Mat, MatMut, Room};
use crate::real::Stored;

/// Rows that one thread copies at a time.
const ROWS: usize = 4096;

/// Runs a kernel for some columns after others: about `width` of them at a time, whole lines that
/// are shared out evenly.
///
/// # Errors
/// When there is no memory for the copy.
pub(super) fn run<T: Stored>(
    (kernel, width): (&Kernel, usize),
    isa: Isa,
    args: &Args<'_, T>,
    y: MatMut<'_, T>,
    threads: &Threads,
) -> Result<()> {
    let (n_rows, k, stride) = (y.n_rows, args.k(), y.stride);
    let line = 64 / size_of::<T>();
    let times = ((k + width / 2) / width).max(1);
    let at_once = k.div_ceil(line).div_ceil(times) * line;
    let mut copy = Room::lent(args.x.n_rows, at_once, threads)?;
    for col in (0..k).step_by(at_once) {
        let width = at_once.min(k - col);
        pack(args.x, col..col + width, (&mut copy).into(), threads);
        let mut part = Args { x: Mat { n_cols: width, ..Mat::from(&copy) }, ..*args };
        part.epilogue.bias = part.epilogue.bias.map(|bias| &bias[col..col + width]);
        let y = MatMut { data: &mut y.data[col..], n_rows, n_cols: width, stride };
        hubs::run(kernel, isa, &part, y, threads)?;
    }
    Ok(())
}

/// Copies some columns.
fn pack<T: Stored>(
    x: Mat<'_, T>,
    cols: std::ops::Range<usize>,
    copy: MatMut<'_, T>,
    threads: &Threads,
) {
    let stride = copy.stride;
    let parts = copy.data.chunks_mut(ROWS * stride).enumerate().collect();
    threads.for_each(parts, |(part, copy): (usize, &mut [T])| {
        for (at, to) in copy.chunks_mut(stride).enumerate() {
            let row = &x.row(part * ROWS + at)[cols.clone()];
            // By vectors, not by a call; the last one ends where the row does.
            let starts = (0..row.len()).step_by(LANES).map(|at| at.min(row.len() - LANES));
            match row.len() {
                0..LANES => to[..row.len()].copy_from_slice(row),
                _ => starts.for_each(|at| {
                    to[at..at + LANES].copy_from_slice(&row[at..at + LANES]);
                }),
            }
        }
    });
}
