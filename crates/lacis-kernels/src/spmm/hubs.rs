//! Rows by slices; a row far longer than a slice in parts of fixed length.

use std::ops::Range;

use lacis_core::reference::Reduce;
use lacis_core::{Result, Threads};

use super::rows::{Out, conclude, scale_of};
use super::terms::{Join, Max, Min, Mul, Sum};
use super::{Args, Kernel, SLICE_ENTRIES, slices};
use crate::isa::Isa;
use crate::matrix::MatMut;
use crate::real::Stored;

/// A row of more entries is cut into parts of [`SLICE_ENTRIES`].
const HUB: usize = 2 * SLICE_ENTRIES;

/// Runs a kernel on every slice of rows, and on every part of a long row.
///
/// # Errors
/// When there is no memory for the sums of parts.
pub(super) fn run<T: Stored>(
    kernel: &Kernel,
    isa: Isa,
    args: &Args<'_, T>,
    y: MatMut<'_, T>,
    threads: &Threads,
) -> Result<()> {
    let slices = slices(args);
    let is_hub = |rows: &Range<usize>| rows.len() == 1 && args.a.span(rows.clone()).len() > HUB;
    let k = args.k();
    let hubs: Vec<usize> = slices.iter().filter(|rows| is_hub(rows)).map(|r| r.start).collect();
    let parts_of = |i: &usize| args.a.row(*i).len().div_ceil(SLICE_ENTRIES);
    let n_parts: usize = hubs.iter().map(parts_of).sum();
    let mut partial = threads.lend::<T::Sum>(n_parts * k)?;

    let mut items = Vec::with_capacity(slices.len() + n_parts);
    let mut sums = partial.chunks_mut(k);
    for &i in &hubs {
        let entries = args.a.row(i);
        for start in entries.clone().step_by(SLICE_ENTRIES) {
            let part = start..(start + SLICE_ENTRIES).min(entries.end);
            let sums = sums.next().expect("a row of sums for each part");
            items.push((i..i + 1, Out::Partial(part, sums)));
        }
    }
    let ends: Vec<usize> = slices.iter().map(|rows| rows.end).collect();
    let mut hub_rows = Vec::with_capacity(hubs.len());
    for (rows, y) in slices.iter().zip(y.split(&ends)) {
        if is_hub(rows) {
            hub_rows.push((rows.start, y));
        } else {
            items.push((rows.clone(), Out::Rows(y)));
        }
    }
    threads.for_each(items, |(rows, out)| kernel.run_part(isa, args, rows, out));

    let mut parts = partial.chunks(k);
    for (i, mut y) in hub_rows {
        let parts: Vec<&[T::Sum]> = parts.by_ref().take(parts_of(&i)).collect();
        let y = y.row_mut(0);
        match args.reduce {
            Reduce::Sum | Reduce::Mean => together::<T, Sum>(args, (isa, i), &parts, y),
            Reduce::Max => together::<T, Max>(args, (isa, i), &parts, y),
            Reduce::Min => together::<T, Min>(args, (isa, i), &parts, y),
            Reduce::Mul => together::<T, Mul>(args, (isa, i), &parts, y),
        }
    }
    Ok(())
}

/// Joins the parts of row `i` in their order.
fn together<T: Stored, J: Join>(
    args: &Args<'_, T>,
    (isa, i): (Isa, usize),
    parts: &[&[T::Sum]],
    y: &mut [T],
) {
    let scale = scale_of(args, i, args.a.row(i).len());
    let mut sums = vec![J::neutral(); y.len()];
    for part in parts {
        sums.iter_mut().zip(*part).for_each(|(sum, part)| *sum = J::together(*sum, *part));
    }
    sums.iter_mut().for_each(|sum| *sum *= scale);
    conclude(args, (isa, 0), &mut sums, y);
}
