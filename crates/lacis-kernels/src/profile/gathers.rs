//! Where gathers go: how evenly they are spread over the rows they may name, and how many of these
//! they come from for a while. It tells whether a cache that is smaller than all rows still holds
//! most of those that are wanted.
//!
//! ```text
//!  of S entries taken here and there, c pairs name the same column
//!  as many columns, all named equally often, would give as many pairs:  S² / 2c
//!  of nine in ten entries and those about W after them, columns lie at most a window apart
//! ```

use lacis_core::CsrView;

/// Entries that are looked at: enough for a million columns.
const ENTRIES: usize = 4096;
/// Entries from one to another that a cache would still remember.
const WINDOW: usize = 1024;

/// Where the entries of a matrix gather from, as far as that decides how.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Gathers {
    /// From 0, where most entries name few columns or those of rows near theirs, to 1, where all
    /// columns are named equally often in no order.
    pub spread: f64,
    /// Rows of x from which most gathers come for a while; 0 where that is not known.
    pub window: usize,
}

/// Looks at some entries of a matrix. The same for the same matrix; takes microseconds.
pub fn gathers(a: CsrView<'_>) -> Gathers {
    let (cols, n) = (a.cols, a.n_cols);
    if cols.len() < 4 * ENTRIES || n == 0 {
        return Gathers::default();
    }
    // An odd stride that visits all of a power of two: no rhythm of the rows survives it.
    let degree = cols.len() / a.n_rows().max(1);
    let farthest = (WINDOW + 2 * degree).min(cols.len() / 2);
    let at = |s: usize| (s * 0x9e37_79b1) % (cols.len() - farthest);
    // Not always as many entries later: rows may all have as many, in order of their columns.
    let later = |s: usize| at(s) + farthest - (s * 0x85eb_ca6b) % (61 + 2 * degree).min(farthest);
    let apart = |s: usize| cols[at(s)].abs_diff(cols[later(s)]) as usize;
    let mut apart: Vec<usize> = (0..ENTRIES).map(apart).collect();
    apart.sort_unstable();
    let window = apart[ENTRIES / 10 * 9].max(1);
    // By chance an eighth are so near.
    let spread = if apart[ENTRIES / 2] < n / 16 { 0.0 } else { evenness(a, at) };
    Gathers { spread, window }
}

/// The share of the columns that would be named as often if all were named equally often.
fn evenness(a: CsrView<'_>, at: impl Fn(usize) -> usize) -> f64 {
    let (cols, n) = (a.cols, a.n_cols);
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
        let of = |a: Csr| gathers(a.view());
        let even = of(matrix(n, degree, drawn));
        assert!(even.spread > 0.7 && even.window > n / 2, "{even:?}");
        // A hundred columns, all over the matrix, take half of the entries.
        let half = |i: usize, e: usize| {
            if e.is_multiple_of(2) { drawn(i, e) } else { drawn(i, e) / 200 * 200 }
        };
        let few = of(matrix(n, degree, half));
        assert!(few.spread > 0.0 && few.spread < 0.1, "{few:?}");
        // Entries about 1,000 apart are up to 128 rows apart, and of columns up to 50 after those.
        let near = of(matrix(n, degree, |i, e| (i + drawn(i, e) % 50) % n));
        assert!(near.spread == 0.0 && (128..178).contains(&near.window), "{near:?}");
        // Long rows, in order of their columns, from everywhere.
        let long = of(matrix(2000, 512, |i, e| rng.block((i * 512 + e) as u64)[0] as usize % 2000));
        assert!(long.spread > 0.7 && long.window > 1000, "{long:?}");
        // A grid of rows of 100: neighbours before and after, above and below.
        let grid = of(matrix(n, 4, |i, e| (i + n + [0, 99, 101, 200][e] - 100) % n));
        assert!(grid.spread == 0.0 && (300..500).contains(&grid.window), "{grid:?}");
        assert_eq!(of(Csr::empty(0, 0).unwrap()), Gathers::default());
        assert_eq!(of(matrix(10, 2, |i, _| i)), Gathers::default());
    }
}
