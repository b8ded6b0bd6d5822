//! How evenly gathers are spread over the rows they may name: what tells whether a cache that is
//! smaller than all rows still holds most of those that are wanted.
//!
//! ```text
//!  of S entries taken here and there, c pairs name the same column
//!  as many columns, all named equally often, would give as many pairs:  S² / 2c
//! ```

use lacis_core::CsrView;

/// Entries that are looked at: enough for a million columns.
const ENTRIES: usize = 4096;
/// Entries from one to another that a cache would still remember.
const WINDOW: usize = 1024;

/// From 0, where most entries name few columns or those of rows near theirs, to 1, where all
/// columns are named equally often in no order. The same for the same matrix; takes microseconds.
pub fn spread(a: CsrView<'_>) -> f64 {
    let (cols, n) = (a.cols, a.n_cols);
    if cols.len() < 4 * ENTRIES || n == 0 {
        return 0.0;
    }
    // An odd stride that visits all of a power of two: no rhythm of the rows survives it.
    let at = |s: usize| (s * 0x9e37_79b1) % (cols.len() - WINDOW);
    let near = |s: &usize| {
        let (here, later) = (cols[at(*s)], cols[at(*s) + WINDOW]);
        (here.abs_diff(later) as usize) < n / 16
    };
    // By chance an eighth are.
    if (0..ENTRIES).filter(near).count() > ENTRIES / 2 {
        return 0.0;
    }
    let mut seen: Vec<u32> = (0..ENTRIES).map(|s| cols[at(s)]).collect();
    seen.sort_unstable();
    let pairs = |same: &[u32]| same.len() * (same.len() - 1) / 2;
    let equal: usize = seen.chunk_by(|a, b| a == b).map(pairs).sum();
    let as_many = (ENTRIES * (ENTRIES - 1) / 2) as f64 / equal.max(1) as f64;
    (as_many / n as f64).min(1.0)
}

#[cfg(test)]
mod tests {
    use lacis_core::{Coo, Csr, Extent, Repeats, Rng, Threads};

    use super::*;

    /// A matrix whose row `i` names columns that `column(i, e)` gives.
    fn matrix(n: usize, degree: usize, column: impl Fn(usize, usize) -> usize) -> Csr {
        let rows: Vec<u32> = (0..n * degree).map(|e| (e / degree) as u32).collect();
        let cols: Vec<u32> =
            (0..n * degree).map(|e| column(e / degree, e % degree) as u32).collect();
        let coo = Coo::from_slices(&rows, &cols, None, &Threads::one()).unwrap();
        let extent = Extent { n_rows: Some(n), n_cols: Some(n) };
        coo.into_csr(extent, Repeats::Keep, &Threads::one()).unwrap()
    }

    #[test]
    fn even_gathers_are_told_from_few_and_from_near_ones() {
        let (n, degree) = (20_000, 8);
        let rng = Rng::new(1, "spread");
        let drawn = |i: usize, e: usize| rng.block((i * degree + e) as u64)[0] as usize % n;
        let even = spread(matrix(n, degree, drawn).view());
        assert!(even > 0.7, "{even}");
        // A hundred columns, all over the matrix, take half of the entries.
        let half = |i: usize, e: usize| {
            if e.is_multiple_of(2) { drawn(i, e) } else { drawn(i, e) / 200 * 200 }
        };
        let few = spread(matrix(n, degree, half).view());
        assert!(few > 0.0 && few < 0.1, "{few}");
        let near = spread(matrix(n, degree, |i, e| (i + drawn(i, e) % 50) % n).view());
        assert_eq!(near, 0.0);
        assert_eq!(spread(Csr::empty(0, 0).unwrap().view()), 0.0);
        assert_eq!(spread(matrix(10, 2, |i, _| i).view()), 0.0);
    }
}
