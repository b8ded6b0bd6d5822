//! Costs from a machine's profile: what the kernel that would run takes, where it was measured.

use lacis_core::DType;
use lacis_core::reference::Reduce;
use lacis_kernels::Profile;
use lacis_kernels::profile::{Point, Stream};
use lacis_plan::cost::{Costs, HARD, Work};
use lacis_plan::op::Scores;

use crate::exec::{gemm_point, spmm_point, stored_point};

/// Seconds that any step takes: threads wake up, arguments are checked.
const STEP: f64 = 4e-6;
/// Bytes per second where nothing was measured, and how much faster the last cache is.
const COPY: f64 = 20e9;
const FRESH: f64 = 5e9;
const NEAR: f64 = 1.8;
/// What a step takes longer than its kernel alone: threads meet, and the machine does other things.
const AMONG_OTHERS: f64 = 1.1;
/// Seconds of scaling a gathered row, beside adding it.
const SCALED: f64 = 0.3e-9;
/// How much longer attention's gradient takes, where it was not measured.
const BACKWARD: f64 = 2.5;
/// How much longer it takes to score an edge by a function of both ends.
const BOTH_ENDS: f64 = 1.5;
/// Columns of a head that fill what is computed at once.
const FULL_HEAD: usize = 4;

/// A profile that answers the planner.
#[derive(Clone, Copy, Debug)]
pub struct Measured<'a>(pub &'a Profile);

impl Costs for Measured<'_> {
    fn seconds(&self, work: &Work) -> Option<f64> {
        let profile = self.0;
        Some(
            STEP + match *work {
                Work::Spmm { hard, .. } => self.sparse(work) + self.hard(hard),
                Work::Gemm { form, sizes, hard } => {
                    let alone = profile.predict("matmul", &gemm_point(form, sizes));
                    let [m, n, _] = sizes;
                    AMONG_OTHERS * alone + self.again(4 * m * n) + self.hard(hard)
                }
                Work::Attention { shape, heads, width, backward, scores } => {
                    let seconds = self.attention(shape, (heads, width), backward);
                    seconds * if scores == Scores::GatV2 { BOTH_ENDS } else { 1.0 }
                }
                Work::SparseTransposed { shape: [_, cols, entries], width } => {
                    let point = spmm_point([cols, cols, entries], width, true, Reduce::Sum);
                    1.5 * profile.predict("spmm", &point)
                }
                Work::Stream { read, written, hard } => {
                    self.stream(read, written) + self.hard(hard)
                }
            },
        )
    }

    fn fresh(&self, bytes: usize) -> f64 {
        bytes as f64 / self.rate(|stream| stream.fresh_gbps, FRESH)
    }
}

impl Measured<'_> {
    /// Something of the memory, where it was measured.
    fn memory(&self, what: fn(&Stream) -> f64) -> Option<f64> {
        let measured = self.0.section().and_then(|section| section.stream);
        measured.map(|stream| what(&stream)).filter(|known| *known > 0.0)
    }

    /// Bytes per second.
    fn rate(&self, gbps: fn(&Stream) -> f64, unmeasured: f64) -> f64 {
        self.memory(gbps).map_or(unmeasured, |known| known * 1e9)
    }

    /// Bytes per second of a copy.
    fn copied(&self) -> f64 {
        self.rate(|stream| stream.copy_gbps, COPY)
    }

    /// Bytes per second of an operation on each element, from memory.
    fn each(&self) -> f64 {
        self.rate(|stream| stream.each_gbps, self.copied())
    }

    /// Bytes that pass by: faster from caches as long as they fit.
    fn stream(&self, read: usize, written: usize) -> f64 {
        let near = read + written < self.0.machine.last_bytes() / 2;
        let cached = || self.rate(|stream| stream.near_gbps, NEAR * self.copied());
        (read + written) as f64 / if near { cached() } else { self.each() }
    }

    /// Exponentials, and what takes as long.
    fn hard(&self, count: usize) -> f64 {
        count as f64 * self.memory(|stream| stream.exp_ns).map_or(HARD, |ns| ns * 1e-9)
    }

    /// What was near when a kernel was measured again and again, and is not when other steps came
    /// between: half of as much as the last cache holds.
    fn again(&self, bytes: usize) -> f64 {
        0.5 * bytes.min(self.0.machine.last_bytes()) as f64 / self.copied()
    }

    /// A sparse product without what follows it.
    fn sparse(&self, work: &Work) -> f64 {
        let &Work::Spmm { shape, width, valued, extreme, scaled, half, .. } = work else {
            return 0.0;
        };
        let reduce = if extreme { Reduce::Max } else { Reduce::Sum };
        let alone = |valued| {
            let point = stored_point(shape, (width, half), valued, reduce);
            AMONG_OTHERS * self.0.predict("spmm", &point)
        };
        let [rows, cols, entries] = shape;
        let scaling = entries as f64 * SCALED;
        // A row that has a value is scaled too: where measurements of different problems say that
        // this takes no time, it is their noise.
        let kernel = if valued { alone(true).max(alone(false) + scaling) } else { alone(false) };
        let kernel = kernel + if scaled { scaling } else { 0.0 };
        let number = if half { 2 } else { 4 };
        let read = cols * width * number + entries * if valued { 8 } else { 4 };
        kernel + self.again(read + rows * width * number)
    }

    /// GAT's attention, or its gradient: measured with heads of four columns and more.
    fn attention(&self, shape: [usize; 3], (heads, width): (usize, usize), backward: bool) -> f64 {
        let axis = usize::from(backward);
        let known = self.0.samples("attention").iter().any(|sample| sample.point.axis == axis);
        let point = Point { reduce: None, axis, ..Point::sparse(shape, width, DType::F32) };
        let once = AMONG_OTHERS * self.0.predict("attention", &point);
        let back = if backward && !known { BACKWARD } else { 1.0 };
        // Heads of few columns take as long as if they were full, and longer.
        let columns = (width / heads.max(1)).max(1);
        let empty = if columns < FULL_HEAD { 1.2 * FULL_HEAD as f64 / columns as f64 } else { 1.0 };
        once * back * empty
    }
}
