//! [`Pairs`]: pairs of nodes to be scored, in the caller's order, as matrices of both directions.
//!
//! ```text
//!  pair p = (i, j):   scored by row i of the matrix, where column j knows that it is pair p
//!  gradients:         of i over the rows of the matrix, of j over those of its transpose
//! ```

use std::ops::Range;

use lacis_core::{CHUNK_ENTRIES, Coo, Csr, Error, Extent, Repeats, Result, Tags, Threads};

/// Pairs of nodes. See the module's head.
#[derive(Clone, Debug)]
pub struct Pairs {
    matrix: Csr,
    transpose: Csr,
}

impl Pairs {
    /// Pairs of the nodes of a graph with `n` of them.
    ///
    /// # Errors
    /// When a pair names a node that there is not, or there is no memory.
    pub fn new(n: usize, ends: &[[u32; 2]], threads: &Threads) -> Result<Self> {
        if let Some(at) = ends.iter().position(|pair| pair.iter().any(|&i| i as usize >= n)) {
            let index = u64::from(ends[at][0].max(ends[at][1]));
            let (op, what, bound) = ("pairs", "node", n as u64);
            return Err(Error::Index { op, what, index, at, bound });
        }
        let mut coo = Coo::new(Tags::Order);
        let chunks: Vec<Range<usize>> = (0..ends.len())
            .step_by(CHUNK_ENTRIES)
            .map(|from| from..(from + CHUNK_ENTRIES).min(ends.len()))
            .collect();
        coo.extend(chunks, threads, |range: Range<usize>, chunk| {
            range.for_each(|p| chunk.push_tagged(ends[p][0], ends[p][1], p as u32));
            Ok(())
        })?;
        let extent = Extent { n_rows: Some(n), n_cols: Some(n) };
        let matrix = coo.into_csr(extent, Repeats::Keep, threads)?;
        let transpose = matrix.transpose(threads);
        Ok(Pairs { matrix, transpose })
    }

    /// How many pairs there are.
    pub fn len(&self) -> usize {
        self.matrix.nnz()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// An entry per pair: the first node's row, the second one's column.
    pub(crate) fn matrix(&self) -> &Csr {
        &self.matrix
    }

    /// The same the other way round.
    pub(crate) fn transpose(&self) -> &Csr {
        &self.transpose
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_know_their_pairs() {
        let ends = [[3, 1], [0, 2], [3, 1], [1, 3], [2, 2]];
        let pairs = Pairs::new(4, &ends, &Threads::one()).unwrap();
        assert_eq!(pairs.len(), 5);
        for (matrix, turned) in [(pairs.matrix(), false), (pairs.transpose(), true)] {
            let order = matrix.order().unwrap();
            for (e, (i, j, _)) in matrix.entries().enumerate() {
                let [first, second] = ends[order[e] as usize].map(|i| i as usize);
                assert_eq!(if turned { (second, first) } else { (first, second) }, (i, j));
            }
        }
        assert!(Pairs::new(4, &[[0, 4]], &Threads::one()).is_err());
        assert!(Pairs::new(0, &[], &Threads::one()).unwrap().is_empty());
    }
}
