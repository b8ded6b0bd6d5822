//! The right factor in panels: what a tile reads for each `p` lies together, widened, and padded
//! with zeros to whole vectors.
//!
//! ```text
//!       z, 5 vectors wide             panels of at most 3 vectors
//!  p=0  [ a b c d e ]                 a b c  a' b' c'  a" b" c"   d e  d' e'  d" e"
//!  p=1  [ a'b'c'd'e']        ──►      p=0    p=1       p=2
//!  p=2  [ a"b"c"d"e"]
//! ```

use std::ops::Range;

use super::tile::LANES;
use crate::matrix::Mat;
use crate::real::{Real, Stored};

/// How a factor is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    /// As it is.
    Plain,
    /// Its rows as columns.
    Turned,
}

/// Some columns of the right factor: `vectors` vectors from column `col` on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Panel {
    pub col: usize,
    pub vectors: usize,
}

/// Columns cut into as few panels of at most `most` vectors as there can be, about equally wide:
/// two of 3 and 2 vectors run faster than two of 4 and 1.
pub(super) fn panels(cols: Range<usize>, most: usize) -> Vec<Panel> {
    let vectors = cols.len().div_ceil(LANES);
    let count = vectors.div_ceil(most);
    let start = |i: usize| i * vectors / count;
    (0..count)
        .map(|i| Panel { col: cols.start + start(i) * LANES, vectors: start(i + 1) - start(i) })
        .collect()
}

/// Writes rows `ps` of the panel; `cols` is where the factor's columns end.
#[inline(always)]
pub(super) fn pack<T: Stored>(
    (z, side): (Mat<'_, T>, Side),
    panel: Panel,
    (ps, end): (Range<usize>, usize),
    packed: &mut [T::Sum],
) {
    let width = panel.vectors * LANES;
    let cols = panel.col..(panel.col + width).min(end);
    match side {
        Side::Plain => {
            for (p, packed) in ps.zip(packed.chunks_exact_mut(width)) {
                let (numbers, padding) = packed.split_at_mut(cols.len());
                let row = &z.row(p)[cols.clone()];
                numbers.iter_mut().zip(row).for_each(|(to, from)| *to = from.wide());
                padding.fill(T::Sum::ZERO);
            }
        }
        Side::Turned => {
            packed[..ps.len() * width].fill(T::Sum::ZERO);
            for (lane, j) in cols.enumerate() {
                let row = &z.row(j)[ps.clone()];
                for (to, from) in packed.chunks_exact_mut(width).zip(row) {
                    to[lane] = from.wide();
                }
            }
        }
    }
}
