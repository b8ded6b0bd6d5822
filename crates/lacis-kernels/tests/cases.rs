//! The matrices that every kernel is tried on, and what rounding may cost.

use std::sync::LazyLock;

use lacis_core::{Coo, Csr, Dense, Element, Extent, Repeats, Rng, Threads};
use lacis_kernels::Isa;

/// Numbers of threads that must give the same bits.
pub const THREADS: [usize; 3] = [1, 2, 7];

static POOLS: LazyLock<[Threads; 3]> =
    LazyLock::new(|| THREADS.map(|count| Threads::new(count).unwrap()));

/// Empty rows, loops, repeats, a hub, a rectangular shape.
pub fn matrix(n_rows: usize, n_cols: usize, entries: usize, weighted: bool) -> Csr {
    let threads = Threads::one();
    let rng = Rng::new(entries as u64, "test");
    let mut rows = Vec::new();
    let mut cols = Vec::new();
    for e in 0..entries {
        let [a, b, c, _] = rng.block(e as u64);
        // A third of the entries go to one row; rows of even number stay empty where there are more.
        let row = if a % 3 == 0 { 1 } else { (b as usize % n_rows) | 1 };
        rows.push(row.min(n_rows - 1) as u32);
        cols.push(c % n_cols as u32);
    }
    let values: Vec<f32> = (0..entries).map(|e| (e % 7) as f32 * 0.25 - 0.5).collect();
    let values = weighted.then_some(&values[..]);
    let extent = Extent { n_rows: Some(n_rows), n_cols: Some(n_cols) };
    let coo = Coo::from_slices(&rows, &cols, values, &threads).unwrap();
    coo.into_csr(extent, Repeats::Keep, &threads).unwrap()
}

/// Small matrices of every kind: no rows, no entries, one node with and without a loop, a square one
/// and rectangular ones with empty rows, repeats and a hub.
pub fn matrices(weighted: bool) -> Vec<Csr> {
    let mut all: Vec<Csr> = [(0, 3), (3, 1), (1, 1), (4, 4)]
        .into_iter()
        .map(|(n_rows, n_cols)| Csr::empty(n_rows, n_cols).unwrap())
        .collect();
    for (n_rows, n_cols, entries) in [(1, 1, 1), (1, 1, 3), (13, 11, 60), (9, 9, 40), (7, 30, 100)]
    {
        all.push(matrix(n_rows, n_cols, entries, weighted));
    }
    all
}

/// Numbers between -1 and 1.
pub fn dense<T: Element>(n_rows: usize, n_cols: usize, seed: u64) -> Dense<T> {
    let rng = Rng::new(seed, "x");
    Dense::from_fn(n_rows, n_cols, |i, j| {
        f64::from(rng.block_at(i as u64, j as u32)[0]) / f64::from(u32::MAX) * 2.0 - 1.0
    })
}

/// The longest row of a matrix, at least 1.
pub fn longest_row(a: &Csr) -> f64 {
    f64::from(a.row_lengths().into_iter().max().unwrap_or(0).max(1))
}

/// What `run` gives on every instruction set, having given the same on 1, 2 and 7 threads.
pub fn on_every_machine<R: PartialEq>(run: impl Fn(Isa, &Threads) -> R) -> Vec<(Isa, R)> {
    let mut results = Vec::new();
    for isa in Isa::available() {
        let [one, two, seven] = [0, 1, 2].map(|pool| run(isa, &POOLS[pool]));
        assert!(one == two && one == seven, "{}: the number of threads matters", isa.name());
        results.push((isa, one));
    }
    results
}

/// Every element within `tolerance` of the truth; NaN where that has NaN.
pub fn assert_close<T: Element>(found: &Dense<T>, truth: &Dense<f64>, tolerance: f64, what: &str) {
    assert_eq!((found.n_rows(), found.n_cols()), (truth.n_rows(), truth.n_cols()), "{what}");
    for i in 0..found.n_rows() {
        for j in 0..found.n_cols() {
            let (found, right) = (found.at(i, j), truth.at(i, j));
            let close = (found - right).abs() <= tolerance || found == right;
            assert!(
                close || found.is_nan() && right.is_nan(),
                "{what} ({i}, {j}): {found}, {right}"
            );
        }
    }
}

/// The elements as bits, so that NaN equals NaN and 0 is not -0.
pub fn bits<T: Element>(y: &Dense<T>) -> Vec<u8> {
    y.rows().flat_map(|row| bytemuck::cast_slice(row).to_vec()).collect()
}
