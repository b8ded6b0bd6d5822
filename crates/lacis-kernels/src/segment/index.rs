//! [`Index`]: positions proven to lie below a bound, four bytes each.
//!
//! Kernels read `u32`; torch's indices are `i64` and are narrowed on the way, in the same pass that
//! checks them.
//!
//! # Parallelism
//! Chunks of positions; of several errors the first is reported.

use lacis_core::threads::{ranges, split_at_ends};
use lacis_core::{Buffer, Error, Result, Threads};

/// Positions that one thread checks at a time.
const CHUNK: usize = 1 << 17;

/// Positions below a bound, in any order.
#[derive(Clone, Debug)]
pub struct Index<'a> {
    at: Kept<'a>,
    bound: usize,
}

#[derive(Clone, Debug)]
enum Kept<'a> {
    Borrowed(&'a [u32]),
    Owned(Buffer<u32>),
}

impl<'a> Index<'a> {
    /// A checked index without a copy.
    ///
    /// # Errors
    /// When a position is not below `bound`, or there are more than `u32` can count.
    pub fn new(at: &'a [u32], bound: usize, threads: &Threads) -> Result<Self> {
        check_counts(at.len(), bound)?;
        threads.try_map(ranges(at.len(), CHUNK), |range| {
            let start = range.start;
            let outside = |i: u32| i as usize >= bound;
            match at[range].iter().fold(false, |any, &i| any | outside(i)) {
                false => Ok(()),
                true => Err(first_outside(at, start, bound, |&i| i64::from(i))),
            }
        })?;
        Ok(Index { at: Kept::Borrowed(at), bound })
    }

    /// The positions.
    #[inline(always)]
    pub fn as_slice(&self) -> &[u32] {
        match &self.at {
            Kept::Borrowed(at) => at,
            Kept::Owned(at) => at,
        }
    }

    /// One more than the largest position allowed.
    pub fn bound(&self) -> usize {
        self.bound
    }

    /// Number of positions.
    pub fn len(&self) -> usize {
        self.as_slice().len()
    }

    /// Whether there are no positions.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Index<'static> {
    /// A checked copy, narrowed to four bytes a position.
    ///
    /// # Errors
    /// When a position is negative or not below `bound`, or there are more than `u32` can count.
    pub fn narrowed(at: &[i64], bound: usize, threads: &Threads) -> Result<Self> {
        check_counts(at.len(), bound)?;
        let mut narrow = Buffer::try_zeroed(at.len())?;
        let chunks = ranges(at.len(), CHUNK);
        let ends: Vec<usize> = chunks.iter().map(|range| range.end).collect();
        let pieces = split_at_ends(narrow.make_mut(), &ends);
        let items = chunks.into_iter().zip(pieces).collect();
        threads.try_map(items, |(range, narrow)| {
            let start = range.start;
            let mut outside = false;
            for (narrow, &wide) in narrow.iter_mut().zip(&at[range]) {
                // A negative number is a large one without its sign.
                outside |= wide as u64 >= bound as u64;
                *narrow = wide as u32;
            }
            match outside {
                false => Ok(()),
                true => Err(first_outside(at, start, bound, |&i| i)),
            }
        })?;
        Ok(Index { at: Kept::Owned(narrow), bound })
    }
}

/// Both the positions and what they count are numbered in `u32`.
fn check_counts(len: usize, bound: usize) -> Result<()> {
    let limit = u128::from(u32::MAX);
    for (what, count) in [("length of an index", len), ("bound of an index", bound)] {
        if count as u128 > limit {
            return Err(Error::Overflow { what, value: count as u128, limit });
        }
    }
    Ok(())
}

/// The error that names the first position outside, from `start` on.
#[cold]
fn first_outside<I>(at: &[I], start: usize, bound: usize, value: impl Fn(&I) -> i64) -> Error {
    let outside = |i: &I| value(i) as u64 >= bound as u64;
    let place = start + at[start..].iter().position(outside).unwrap_or(0);
    let index = value(&at[place]);
    match u64::try_from(index) {
        Ok(index) => {
            Error::Index { op: "segment", what: "index", index, at: place, bound: bound as u64 }
        }
        Err(_) => {
            let problem = format!("index {index} at position {place} is outside 0..{bound}");
            Error::argument("segment", problem)
        }
    }
}
