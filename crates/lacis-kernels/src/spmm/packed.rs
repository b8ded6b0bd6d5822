//! Some columns after others, each copied next to one another before rows are gathered from them.
//!
//! ```text
//!  for each 32 columns:  p = their part of x, rows one after another
//!                        their part of y = reduce (a_ij · r_j · p_j), by slices of rows
//! ```
//! Where `x` is larger than the caches and `p` is not, every line is fetched from memory once per
//! column block and not once per entry.

use lacis_core::{Result, Threads};

use super::{Args, Kernel, hubs};
use crate::finish::LANES;
use crate::isa::Isa;
use crate::matrix::{Mat, MatMut, Room};
use crate::real::Stored;

/// Columns that are copied together.
const WIDTH: usize = 2 * LANES;
/// Rows that one thread copies at a time.
const ROWS: usize = 4096;

/// Runs a kernel for some columns after others.
///
/// # Errors
/// When there is no memory for the copy.
pub(super) fn run<T: Stored>(
    kernel: &Kernel,
    isa: Isa,
    args: &Args<'_, T>,
    y: MatMut<'_, T>,
    threads: &Threads,
) -> Result<()> {
    let (n_rows, k, stride) = (y.n_rows, args.k(), y.stride);
    let mut copy = Room::lent(args.x.n_rows, k.min(WIDTH).next_multiple_of(LANES), threads)?;
    for col in (0..k).step_by(WIDTH) {
        let width = WIDTH.min(k - col);
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
            match (to.first_chunk_mut::<WIDTH>(), row.first_chunk::<WIDTH>()) {
                (Some(to), Some(row)) => *to = *row,
                _ => to[..row.len()].copy_from_slice(row),
            }
        }
    });
}
