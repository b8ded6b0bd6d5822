//! Costs from a machine's profile: what the kernel that would run takes, where it was measured.

use lacis_core::DType;
use lacis_core::reference::Reduce;
use lacis_kernels::Profile;
use lacis_kernels::profile::Point;
use lacis_plan::cost::{Costs, Work};

use crate::exec::{gemm_point, spmm_point};

/// Seconds that any step takes: threads wake up, arguments are checked.
const STEP: f64 = 2e-6;
/// Seconds of an exponential or a random number, on one core.
const HARD: f64 = 0.25e-9;
/// Bytes per second where nothing was measured.
const COPY: f64 = 20e9;

/// A profile that answers the planner.
#[derive(Clone, Copy, Debug)]
pub struct Measured<'a>(pub &'a Profile);

impl Costs for Measured<'_> {
    fn seconds(&self, work: &Work) -> Option<f64> {
        let profile = self.0;
        Some(
            STEP + match *work {
                Work::Spmm { shape, width, valued, extreme } => {
                    let reduce = if extreme { Reduce::Max } else { Reduce::Sum };
                    let point = spmm_point(shape, width, valued, reduce);
                    // Rows without entries are written too.
                    profile.predict("spmm", &point) + self.stream(0, shape[0] * width * 4) * 0.25
                }
                Work::Gemm { form, sizes } => profile.predict("matmul", &gemm_point(form, sizes)),
                Work::Attention { shape, heads, width, backward } => {
                    let point = Point { n: 0, ..Point::sparse(shape, width, DType::F32) };
                    let once = profile.predict("attention", &point);
                    // Scores cost by heads; measured ones had few.
                    let scores = (shape[2] * heads) as f64 * HARD;
                    if backward { 2.5 * (once + scores) } else { once + scores }
                }
                Work::SparseTransposed { shape: [_, cols, entries], width } => {
                    let point = spmm_point([cols, cols, entries], width, true, Reduce::Sum);
                    1.5 * profile.predict("spmm", &point)
                }
                Work::Stream { read, written, hard } => {
                    self.stream(read, written) + hard as f64 * HARD
                }
            },
        )
    }
}

impl Measured<'_> {
    /// Bytes that pass by: from caches as long as they fit, twice as fast.
    fn stream(&self, read: usize, written: usize) -> f64 {
        let measured = self.0.section().and_then(|section| section.stream);
        let rate = measured.map_or(COPY, |stream| stream.copy_gbps * 1e9);
        let near = read + written < self.0.machine.last_bytes() / 2;
        (read + written) as f64 / if near { 2.5 * rate } else { rate }
    }
}
