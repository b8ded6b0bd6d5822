//! [`TABLES`]: every operation with kernels to choose from, and the choice without measurements.

use std::ops::Range;

use super::{Machine, Point, size_of_dtype};
use crate::{gemm, segment, spgemm, spmm};

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
    /// The kernel that some problems call for, whatever measurements of smaller ones say.
    pub rule: fn(&Point, &Machine) -> Option<&'static str>,
    /// Whether only the rule chooses the kernel of this name: the tuner does not measure it.
    pub ruled: fn(&str) -> bool,
    /// What the time of one unit is about in proportion to. It carries measurements to problems of
    /// other sizes: the nearer it is to the truth, the fewer of them are needed.
    pub effort: fn(&Point) -> f64,
}

/// Every operation with kernels to choose from.
pub static TABLES: &[Table] = &[
    sparse("spmm", None),
    sparse("select_reduce", Some("spmm")),
    dense("matmul", None),
    dense("addmm", Some("matmul")),
    only("sddmm", || vec!["sddmm.csr.entries"], |_, _| "sddmm.csr.entries"),
    only("edge_softmax", || vec!["edge_softmax.csr.rows"], |_, _| "edge_softmax.csr.rows"),
    Table {
        effort: of_edges,
        ..only("attention", || vec!["attention.csr.rows"], |_, _| "attention.csr.rows")
    },
    only("index_select", || vec!["index_select.rows"], |_, _| "index_select.rows"),
    only("gather", || vec!["gather.elements"], |_, _| "gather.elements"),
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
    by_index("segment_mul", Some("segment_max")),
    only(
        "spgemm",
        || spgemm::KERNELS.iter().map(|kernel| kernel.name).collect(),
        |_, _| spgemm::KERNELS[0].name,
    ),
    only("transpose", || vec!["transpose.csr.blocks"], |_, _| "transpose.csr.blocks"),
    only("sort", || vec!["sort.coo.blocks"], |_, _| "sort.coo.blocks"),
    only("coalesce", || vec!["coalesce.coo.blocks"], |_, _| "coalesce.coo.blocks"),
];

/// Sparse times dense.
const fn sparse(op: &'static str, like: Option<&'static str>) -> Table {
    Table {
        op,
        like,
        kernels: || spmm::KERNELS.iter().map(|kernel| kernel.name).collect(),
        default: |point, machine| {
            let name = gathering(point, machine);
            named(spmm::KERNELS.iter().map(|kernel| kernel.name), name)
        },
        rule: |point, machine| {
            let names = spmm::KERNELS.iter().map(|kernel| kernel.name);
            let past = goes_past(point, machine);
            let name = match () {
                () if stays_near(point, machine) && of_lines(point) => "rows.v4.early",
                () if stays_near(point, machine) => "rows.v4.plain",
                () if pays_to_pack(point, machine) => "packed.v2.farther",
                () if pays_to_align(point, machine) => "packed.v4.far",
                () if past => gathering(point, machine),
                () => return None,
            };
            let name = if past { format!("{name}.past") } else { name.to_owned() };
            Some(named(names, &name))
        },
        ruled: |name| name.ends_with(".past") || name.contains(".packed."),
        // A row of x for each entry; what a row of y costs before its first entry.
        effort: |point| {
            let row = 600.0 + entry_bytes(point) / 2.0;
            entry_bytes(point) + row / point.degree.max(0.1)
        },
    }
}

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
        rule: |_, _| None,
        ruled: |_| false,
        // The products of a row, and its numbers, each of which takes as long as a dozen products.
        effort: |point| (point.k * point.n + 13 * (point.k + point.n)) as f64,
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
                33..=255 => "groups.v4",
                _ => "groups.strip",
            };
            named(segment::reduce::KERNELS.iter().map(|kernel| kernel.name), name)
        },
        rule: |_, _| None,
        ruled: |_| false,
        effort: entry_bytes,
    }
}

/// An operation with kernels of its own and one to begin with.
const fn only(
    op: &'static str,
    kernels: fn() -> Vec<&'static str>,
    default: fn(&Point, &Machine) -> &'static str,
) -> Table {
    let (rule, ruled): (fn(&Point, &Machine) -> _, _) = (|_, _| None, |_: &str| false);
    Table { op, like: None, kernels, default, rule, ruled, effort: entry_bytes }
}

/// Bytes of a row of x and of an entry.
fn entry_bytes(point: &Point) -> f64 {
    (row_bytes(point) + 8) as f64
}

/// Attention: an edge's scores take as long as some columns, and a row's beginning and end as long
/// as many edges.
fn of_edges(point: &Point) -> f64 {
    (entry_bytes(point) + 160.0) * (1.0 + 16.0 / point.degree.max(0.1))
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

/// Columns up to which rows are short: asking for them twice takes longer than it saves where they
/// are not far.
const NARROW: usize = 32;

/// How to gather rows: asked for ahead where no core's cache holds them, once where they are short
/// and the last cache does; not at all where a core's own has them.
fn gathering(point: &Point, machine: &Machine) -> &'static str {
    match (point.k, point.bytes) {
        (_, bytes) if bytes <= machine.near_bytes() => "rows.v4.plain",
        (0..=NARROW, bytes) if bytes <= machine.last_bytes() / 4 * 3 => "rows.v4.early",
        (0..=NARROW, _) => "rows.v4.farther",
        _ => "rows.v4.far",
    }
}

/// Bytes of a row of `x`, and of the result.
fn row_bytes(point: &Point) -> usize {
    point.k * size_of_dtype(point.dtype)
}

/// How often a row of `x` is gathered on average.
fn gathered(point: &Point) -> f64 {
    (point.units * row_bytes(point)) as f64 / point.bytes.max(1) as f64
}

/// Whether rows of `x` and of the result are whole lines.
fn of_lines(point: &Point) -> bool {
    row_bytes(point).is_multiple_of(64)
}

/// Whether the first rows of a result have left every cache before the last are computed: they may
/// as well go past them.
fn goes_past(point: &Point, machine: &Machine) -> bool {
    /// Bytes from which a row that is not of whole lines may wait until they are.
    const WIDE: usize = 384;
    let (row, rows) = (row_bytes(point), point.units as f64 / point.degree);
    (of_lines(point) || row >= WIDE) && rows * row as f64 > machine.last_bytes() as f64
}

/// Whether a core's own cache has the rows that are wanted though it does not hold all: rows of
/// the matrix name columns near theirs.
fn stays_near(point: &Point, machine: &Machine) -> bool {
    let near = machine.near_bytes();
    point.window > 0 && point.bytes > near && 2 * point.window * row_bytes(point) <= near
}

/// Whether rows copied to begin with a line are gathered so much faster that copying them pays:
/// they do not end with one, no core's cache has them, and they are wanted often.
fn pays_to_align(point: &Point, machine: &Machine) -> bool {
    /// Times that a copied row must be gathered.
    const OFTEN: f64 = 32.0;
    /// Columns for which a line less makes a difference.
    const WIDTHS: Range<usize> = 17..129;
    !of_lines(point)
        && WIDTHS.contains(&point.k)
        && gathered(point) >= OFTEN
        && point.bytes > machine.near_bytes()
}

/// Whether 32 columns at a time, copied together, are gathered faster than whole rows: no cache
/// holds the rows that are wanted, the last one holds most of the copy, and a row is wanted often
/// enough for copying it to pay.
fn pays_to_pack(point: &Point, machine: &Machine) -> bool {
    /// Columns of the copy.
    const WIDTH: usize = 32;
    /// Times that a copied row must be gathered.
    const OFTEN: f64 = 16.0;
    let wanted = point.spread * point.bytes as f64;
    let copied = wanted * WIDTH as f64 / point.k.max(1) as f64;
    let last = machine.last_bytes() as f64;
    point.k >= 2 * WIDTH && gathered(point) >= OFTEN && wanted > 2.0 * last && copied < 1.5 * last
}

#[cfg(test)]
mod tests {
    use lacis_core::DType;

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
            let point = Point::sparse([n, n, n], k, DType::F32);
            (table("spmm").unwrap().default)(&point, &Machine::default())
        };
        assert_eq!(name(100, 64), "spmm.csr.rows.v4.plain");
        assert_eq!(name(1 << 16, 16), "spmm.csr.rows.v4.early");
        assert_eq!(name(1 << 20, 16), "spmm.csr.rows.v4.farther");
        assert_eq!(name(1 << 20, 64), "spmm.csr.rows.v4.far");
    }

    #[test]
    fn columns_are_packed_where_rows_are_wanted_from_everywhere() {
        // The last cache of a machine of which nothing is known holds 8 MiB.
        let rule = |[n, degree]: [usize; 2], k, spread| {
            let point = Point::sparse([n, n, degree * n], k, DType::F32);
            (table("spmm").unwrap().rule)(&Point { spread, ..point }, &Machine::default())
        };
        assert_eq!(rule([80_000, 40], 64, 0.9), Some("spmm.csr.packed.v2.farther.past"));
        let others = [
            rule([80_000, 40], 64, 0.0),
            rule([80_000, 40], 64, 0.1),
            rule([80_000, 40], 41, 0.9),
            rule([80_000, 8], 64, 0.9),
            rule([20_000, 40], 64, 0.9),
            rule([800_000, 40], 64, 0.9),
        ];
        assert!(others.iter().flatten().all(|name| !name.contains("packed.v2")), "{others:?}");
    }

    #[test]
    fn what_no_cache_can_keep_goes_past_them() {
        let rule = |n: usize, k| {
            let point = Point::sparse([n, n, 8 * n], k, DType::F32);
            (table("spmm").unwrap().rule)(&point, &Machine::default())
        };
        assert_eq!(rule(30_000, 64), None);
        assert_eq!(rule(40_000, 64), Some("spmm.csr.rows.v4.far.past"));
        assert_eq!(rule(1 << 20, 16), Some("spmm.csr.rows.v4.farther.past"));
        assert_eq!(rule(1 << 20, 100), Some("spmm.csr.rows.v4.far.past"));
        assert_eq!(rule(1 << 20, 41), None, "short rows that end between lines");
    }

    #[test]
    fn rows_near_theirs_are_asked_for_once_or_not_at_all() {
        // A core of a machine of which nothing is known keeps 1 MiB.
        let rule = |n: usize, window| {
            let point = Point { window, ..Point::sparse([n, n, 4 * n], 60, DType::F32) };
            (table("spmm").unwrap().rule)(&point, &Machine::default())
        };
        assert_eq!(rule(20_000, 2000), Some("spmm.csr.rows.v4.plain"));
        assert_eq!(rule(20_000, 4000), None);
        assert_eq!(rule(20_000, 0), None, "nobody looked");
        assert_eq!(rule(4000, 500), None, "all of it is near anyway");
        let lines =
            Point { window: 2000, ..Point::sparse([1 << 20, 1 << 20, 1 << 22], 64, DType::F32) };
        let name = (table("spmm").unwrap().rule)(&lines, &Machine::default());
        assert_eq!(name, Some("spmm.csr.rows.v4.early.past"));
    }

    #[test]
    fn rows_that_end_between_lines_are_copied_where_they_are_wanted_often() {
        let rule = |[rows, cols, degree]: [usize; 3], k| {
            let point = Point::sparse([rows, cols, degree * rows], k, DType::F32);
            (table("spmm").unwrap().rule)(&point, &Machine::default())
        };
        let n = 100_000;
        assert_eq!(rule([n, n, 50], 41), Some("spmm.csr.packed.v4.far"));
        assert_eq!(rule([n, n, 50], 48), Some("spmm.csr.rows.v4.far.past"));
        assert_eq!(rule([n, n, 5], 41), None, "too few gathers");
        assert_eq!(rule([64, n, 500], 41), None, "few rows gather from many");
        assert_eq!(rule([n, n, 50], 7), None, "less than a vector");
        assert_eq!(rule([n, n, 50], 602), Some("spmm.csr.rows.v4.far.past"), "many lines");
        assert_eq!(rule([5000, 5000, 50], 41), None, "a core's cache holds them");
    }
}
