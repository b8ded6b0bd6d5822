//! [`TABLES`]: every operation with kernels to choose from, and the choice without measurements.

use super::{Machine, Point};
use crate::spmm;

/// An operation's kernels.
pub struct Table {
    /// What the operation is called: `spmm`.
    pub op: &'static str,
    /// The names of its kernels, in the order of its table.
    pub kernels: fn() -> Vec<&'static str>,
    /// The kernel for a problem that nobody measured anything like.
    pub default: fn(&Point, &Machine) -> &'static str,
}

/// Every operation with kernels to choose from.
pub static TABLES: &[Table] = &[Table {
    op: "spmm",
    kernels: || spmm::KERNELS.iter().map(|kernel| kernel.name).collect(),
    default: |point, machine| spmm::KERNELS[widest_tile(point, machine, 4) - 1].name,
}];

/// The table of an operation.
pub fn table(op: &str) -> Option<&'static Table> {
    TABLES.iter().find(|table| table.op == op)
}

/// A number that changes when a kernel is added, removed or renamed (FNV-1a of all names).
pub fn tables_version() -> String {
    let names = TABLES.iter().flat_map(|table| [table.op].into_iter().chain((table.kernels)()));
    let hash = names.flat_map(|name| name.bytes().chain([0])).fold(0xcbf2_9ce4_8422_2325, fnv);
    format!("{hash:016x}")
}

fn fnv(hash: u64, byte: u8) -> u64 {
    (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
}

/// How many vectors of 16 a tile should have, up to `most`: each pass over a row's entries costs
/// the vectors it reads and one more, or three where rows come from far away.
fn widest_tile(point: &Point, machine: &Machine, most: usize) -> usize {
    let vectors = point.k.div_ceil(16);
    let pass = if point.bytes > machine.near_bytes() { 3 } else { 1 };
    let cost = |tile: &usize| vectors.div_ceil(*tile) * (tile + pass);
    (1..=most).min_by_key(cost).unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_told_apart() {
        for table in TABLES {
            let names = (table.kernels)();
            let mut unique = names.clone();
            unique.sort_unstable();
            unique.dedup();
            assert_eq!(unique.len(), names.len(), "{}", table.op);
        }
        assert_eq!(tables_version().len(), 16);
    }

    #[test]
    fn the_default_fits_the_width() {
        let tile = |k| {
            widest_tile(
                &Point::sparse([9, 9, 9], k, lacis_core::DType::F32),
                &Machine::default(),
                4,
            )
        };
        assert_eq!([1, 16, 17, 32, 48, 64, 1024].map(tile), [1, 1, 2, 2, 3, 4, 4]);
        // Five vectors: two passes of three, not of four.
        assert_eq!(tile(80), 3);
    }
}
