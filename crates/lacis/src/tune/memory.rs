//! How fast memory is: read, written and copied in order, and read row by row in random order.

use std::time::Instant;

use lacis_core::reference::Activation;
use lacis_core::{Buffer, Csr, CsrParts, Dense, Result, Rng, RowPtr, Threads};
use lacis_kernels::elementwise::{Backward, Forward, Saved};
use lacis_kernels::profile::{Gather, Machine, Section, Stream};
use lacis_kernels::{Isa, probe, roof};

use super::{Detail, Effort};
use crate::ops::measure::Timing;

/// Into how many steps progress is cut.
pub(super) const STEPS: usize = 4;
const ROUNDS: usize = 5;
/// Bytes of rows that one measurement gathers.
const GATHERED: usize = 32 << 20;

/// Fills in the memory's part of a section.
pub(super) fn measure(
    section: &mut Section,
    machine: &Machine,
    effort: &Effort,
    step: &dyn Fn(u64) -> Result<()>,
) -> Result<()> {
    let threads = Threads::new(section.threads)?;
    let most = match effort.detail {
        Detail::Glimpse => 4 << 20,
        Detail::Quick => (4 * machine.last_bytes()).clamp(64 << 20, 128 << 20),
        Detail::Full => (8 * machine.last_bytes()).clamp(128 << 20, 512 << 20),
    };
    step(0)?;
    let near = machine.last_bytes() / 4;
    section.stream = Some(Stream {
        each_gbps: each(most, &threads)?,
        near_gbps: each(near, &threads)?,
        exp_ns: exponential(near, &threads)?,
        ..stream(most, &threads)?
    });
    step(1)?;
    let rows = [64, 256, 1024, 4096];
    let sets = [machine.near_bytes() / 2, machine.last_bytes() / 2, most];
    for (done, set_bytes) in sets.into_iter().enumerate() {
        for row_bytes in rows {
            let gbps = gather(row_bytes, set_bytes, &threads)?;
            section.gather.push(Gather { row_bytes, set_bytes, gbps });
        }
        step(done as u64 + 2)?;
    }
    Ok(())
}

/// The median rate in GB/s of moving `bytes`, after a warm round.
fn rate(bytes: usize, mut run: impl FnMut() -> Result<()>) -> Result<f64> {
    run()?;
    let mut seconds = Vec::new();
    for _ in 0..ROUNDS {
        let begun = Instant::now();
        run()?;
        seconds.push(begun.elapsed().as_secs_f64());
    }
    let gbps = bytes as f64 / 1e9 / Timing::of(seconds).seconds.max(1e-9);
    Ok((gbps * 100.0).round() / 100.0)
}

fn stream(bytes: usize, threads: &Threads) -> Result<Stream> {
    let (isa, len) = (Isa::best(), bytes / 8);
    let mut from = Buffer::<f32>::try_zeroed(len)?;
    let mut to = Buffer::<f32>::try_zeroed(len)?;
    let (from, to) = (from.make_mut(), to.make_mut());
    let half = 4 * len;
    // Warm rounds would not be fresh: one look, and the least of a few.
    let mut fresh = f64::INFINITY;
    for _ in 0..3 {
        let mut new = Buffer::<f32>::try_zeroed(len)?;
        let begun = Instant::now();
        probe::write(new.make_mut(), threads);
        fresh = fresh.min(begun.elapsed().as_secs_f64());
    }
    Ok(Stream {
        fresh_gbps: (half as f64 / 1e7 / fresh.max(1e-9)).round() / 100.0,
        write_gbps: rate(half, || {
            probe::write(from, threads);
            Ok(())
        })?,
        read_gbps: rate(half, || {
            probe::read(isa, from, threads);
            Ok(())
        })?,
        copy_gbps: rate(2 * half, || {
            probe::copy(from, to, threads);
            Ok(())
        })?,
        ..Stream::default()
    })
}

/// Columns of the matrices whose elements something is done with.
const COLUMNS: usize = 256;

/// Bytes read and written by the gradient of a relu, of two matrices that have `bytes` together.
fn each(bytes: usize, threads: &Threads) -> Result<f64> {
    let n = (bytes / 8 / COLUMNS).max(1);
    let (saved, mut grad) = (Dense::<f32>::try_zeros(n, COLUMNS)?, Dense::try_zeros(n, COLUMNS)?);
    let pass = Backward::in_place(n, COLUMNS)
        .activated(Activation::Relu, Saved::Output((&saved).into()))?;
    rate(12 * n * COLUMNS, || pass.run(Isa::best(), &mut grad, None, threads))
}

/// Nanoseconds of an exponential, of as many as fit in `bytes`.
fn exponential(bytes: usize, threads: &Threads) -> Result<f64> {
    let n = (bytes / 4 / COLUMNS).max(1);
    let mut x: Dense = Dense::try_zeros(n, COLUMNS)?;
    let pass = Forward::in_place(n, COLUMNS).activated(Activation::Elu(1.0));
    let per_ns = rate(n * COLUMNS, || pass.run(Isa::best(), &mut x, threads))?;
    Ok(if per_ns > 0.0 { (1e3 / per_ns).round() / 1e3 } else { 0.0 })
}

/// Rows of `row_bytes` out of `set_bytes`, in random order.
fn gather(row_bytes: usize, set_bytes: usize, threads: &Threads) -> Result<f64> {
    const DEGREE: usize = 32;
    let n = (set_bytes / row_bytes).max(1);
    let rows = (GATHERED / row_bytes / DEGREE).max(1);
    let rng = Rng::new(1, "gather");
    let cols = (0..rows * DEGREE).map(|e| rng.block(e as u64)[0] % n as u32);
    let ends = (0..=rows).map(|i| (i * DEGREE) as u32);
    let parts = CsrParts {
        n_cols: n,
        row_ptr: RowPtr::Narrow(ends.collect::<Vec<_>>().into()),
        cols: cols.collect::<Vec<_>>().into(),
        values: None,
        order: None,
    };
    let a = Csr::new(parts, threads)?;
    let x: Dense = Dense::try_zeros(n, row_bytes / 4)?;
    let mut y: Dense = Dense::try_zeros(rows, row_bytes / 4)?;
    rate(rows * DEGREE * row_bytes, || {
        roof::replay(Isa::best(), a.view(), (&x).into(), (&mut y).into(), threads)?;
        Ok(())
    })
}
