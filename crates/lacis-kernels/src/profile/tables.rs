//! [`TABLES`]: every operation with kernels to choose from, and the choice without measurements.

use super::{Machine, Point};
use crate::{gemm, segment, spmm};

/// An operation's kernels.
pub struct Table {
    /// What the operation is called: `spmm`.
    pub op: &'static str,
    /// Another operation with the same kernels, whose measurements stand for this one's.
    pub like: Option<&'static str>,
    /// The names of its kernels, in the order of its table.
    pub kernels: fn() -> Vec<&'static str>,
    /// The kernel for a problem that nobody measured anything like.
    pub default: fn(&Point, &Machine) -> &'static str,
}

/// Every operation with kernels to choose from.
pub static TABLES: &[Table] = &[
    Table {
        op: "spmm",
        like: None,
        kernels: || spmm::KERNELS.iter().map(|kernel| kernel.name).collect(),
        default: |point, machine| {
            let name = gathering(point, machine);
            named(spmm::KERNELS.iter().map(|kernel| kernel.name), name)
        },
    },
    dense("matmul", None),
    dense("addmm", Some("matmul")),
    only("sddmm", || vec!["sddmm.csr.entries"], |_, _| "sddmm.csr.entries"),
    only("edge_softmax", || vec!["edge_softmax.csr.rows"], |_, _| "edge_softmax.csr.rows"),
    only("attention", || vec!["attention.csr.rows"], |_, _| "attention.csr.rows"),
    only("index_select", || vec!["index_select.rows"], |_, _| "index_select.rows"),
    by_index("index_add", Some("scatter_add")),
    by_index("scatter_add", None),
    by_index("scatter_mean", Some("scatter_add")),
    by_index("scatter_max", None),
    by_index("scatter_min", Some("scatter_max")),
    by_index("scatter_mul", Some("scatter_max")),
    by_index("segment_sum", None),
    by_index("segment_mean", Some("segment_sum")),
    by_index("segment_max", None),
    by_index("segment_min", Some("segment_max")),
];

/// Dense products.
const fn dense(op: &'static str, like: Option<&'static str>) -> Table {
    Table {
        op,
        like,
        kernels: || gemm::KERNELS.iter().map(|kernel| kernel.name).collect(),
        default: |point, _| {
            // Transposed forms and long sums go by blocks.
            let name = if point.axis == 1 || point.k > 1024 { "blocks.v4" } else { "rows.v4" };
            named(gemm::KERNELS.iter().map(|kernel| kernel.name), name)
        },
    }
}

/// Reductions by index.
const fn by_index(op: &'static str, like: Option<&'static str>) -> Table {
    Table {
        op,
        like,
        kernels: || segment::reduce::KERNELS.iter().map(|kernel| kernel.name).collect(),
        default: |point, _| {
            let name = match point.k {
                0..=1 => "groups.scalar",
                2..=32 => "groups.v1",
                _ => "groups.v4",
            };
            named(segment::reduce::KERNELS.iter().map(|kernel| kernel.name), name)
        },
    }
}

/// An operation that is computed in one way.
const fn only(
    op: &'static str,
    kernels: fn() -> Vec<&'static str>,
    default: fn(&Point, &Machine) -> &'static str,
) -> Table {
    Table { op, like: None, kernels, default }
}

/// The first that ends so, or the first.
fn named(names: impl Iterator<Item = &'static str> + Clone, end: &str) -> &'static str {
    let mut ending = names.clone().filter(|name| name.ends_with(end));
    ending.next().or(names.clone().next()).unwrap_or_default()
}

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

/// How to gather rows: asked for far ahead where no cache holds them, in narrow tiles where they
/// are short; not at all where a core's own cache has them.
fn gathering(point: &Point, machine: &Machine) -> &'static str {
    match (point.bytes > machine.near_bytes(), point.k) {
        (false, _) => "rows.v4.plain",
        (true, 0..=32) => "rows.v4.farther",
        (true, _) => "rows.v4.far",
    }
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
    fn the_default_fits_the_caches() {
        let name = |n: usize, k| {
            let point = Point::sparse([n, n, n], k, lacis_core::DType::F32);
            (table("spmm").unwrap().default)(&point, &Machine::default())
        };
        assert_eq!(name(100, 64), "spmm.csr.rows.v4.plain");
        assert_eq!(name(1 << 20, 16), "spmm.csr.rows.v4.farther");
        assert_eq!(name(1 << 20, 64), "spmm.csr.rows.v4.far");
    }
}
