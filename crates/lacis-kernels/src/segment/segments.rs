//! [`Segments`]: which rows belong together; [`Groups`]: an index sorted once, to be used often.
//!
//! ```text
//!   index    2 0 2 3 0        item i belongs to segment index[i]
//!   ptr      0   2 2     4  5
//!   order    1 4 | | 0 2 | 3  items of segment s: order[ptr[s]..ptr[s+1]], ascending
//! ```
//! Sorted segments need no `order`.

use std::ops::{Deref, Range};

use lacis_core::threads::{ranges, split_at_ends};
use lacis_core::{Buffer, Error, Lent, Result, RowPtrView, Threads};

use super::index::Index;
use super::lent;
use super::partition::Partition;

/// Which segment each row (or column) belongs to: an index, or pointers to consecutive ones.
#[derive(Clone, Copy, Debug)]
pub struct Segments<'a> {
    n: usize,
    len: usize,
    index: Option<&'a [u32]>,
    members: Option<Members<'a>>,
}

/// The items of every segment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Members<'a> {
    ptr: RowPtrView<'a>,
    order: Option<&'a [u32]>,
}

impl<'a> Segments<'a> {
    /// Item `i` belongs to segment `index[i]`, in any order. What needs the items of a segment
    /// sorts the index anew each time; [`Groups`] keep them.
    pub fn from_index(index: &'a Index<'_>) -> Self {
        let at = index.as_slice();
        Segments { n: index.bound(), len: at.len(), index: Some(at), members: None }
    }

    /// Items `ptr[s]..ptr[s + 1]` of `len` are segment `s`.
    ///
    /// # Errors
    /// When the positions do not start at 0, fall, or do not end at `len`.
    pub fn from_ptr(ptr: RowPtrView<'a>, len: usize) -> Result<Self> {
        let wrong = |problem: String| Err(Error::argument("segment pointers", problem));
        if ptr.is_empty() || ptr.at(0) != 0 {
            return wrong("the first must be 0".to_owned());
        }
        let n = ptr.len() - 1;
        if u32::try_from(n).is_err() {
            let (value, limit) = (n as u128, u128::from(u32::MAX));
            return Err(Error::Overflow { what: "number of segments", value, limit });
        }
        if let Some(s) = (0..n).find(|&s| ptr.at(s) > ptr.at(s + 1)) {
            let (from, to) = (ptr.at(s), ptr.at(s + 1));
            return wrong(format!("they must not fall, as from {from} to {to} at {}", s + 1));
        }
        if ptr.at(n) != len {
            return wrong(format!("the last is {}, not the number of items, {len}", ptr.at(n)));
        }
        Ok(Segments { n, len, index: None, members: Some(Members { ptr, order: None }) })
    }

    /// Number of segments, empty ones included.
    pub fn n(&self) -> usize {
        self.n
    }

    /// Number of items.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no items.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Whether the items of a segment are known without sorting.
    pub fn is_grouped(&self) -> bool {
        self.members.is_some()
    }

    /// The segment of each item, found from the members where it was not given.
    pub(super) fn index<'t>(&self, threads: &'t Threads) -> Named<'a, 't> {
        match (self.index, self.members) {
            (Some(index), _) => Named::Given(index),
            (None, Some(members)) => Named::Found(members.index(self.len, threads)),
            (None, None) => Named::Given(&[]),
        }
    }

    /// How many items each segment has, where that is known without the index.
    pub(super) fn counts(&self) -> Option<impl Iterator<Item = usize>> {
        self.members.map(|members| (0..self.n).map(move |s| members.of(s).len()))
    }

    pub(super) fn members(&self) -> Option<Members<'a>> {
        self.members
    }

    /// `f` of segments whose members are known; an index is sorted for it.
    pub(super) fn grouped<R>(&self, threads: &Threads, f: impl FnOnce(Segments<'_>) -> R) -> R {
        match (self.members, self.index) {
            (None, Some(index)) => {
                let sorted = Sorted::new(index, self.n, threads);
                f(Segments { members: Some(sorted.members()), ..*self })
            }
            _ => f(*self),
        }
    }
}

/// The segment of each item.
pub(super) enum Named<'a, 't> {
    /// By the caller.
    Given(&'a [u32]),
    /// By the members.
    Found(Lent<'t, u32>),
}

impl Deref for Named<'_, '_> {
    type Target = [u32];

    fn deref(&self) -> &[u32] {
        match self {
            Named::Given(index) => index,
            Named::Found(index) => index,
        }
    }
}

impl<'a> Members<'a> {
    /// Where the items of segment `s` stand in the order.
    #[inline(always)]
    pub fn of(&self, s: usize) -> Range<usize> {
        self.ptr.at(s)..self.ptr.at(s + 1)
    }

    /// The item at a place of the order.
    #[inline(always)]
    pub fn item(&self, e: usize) -> usize {
        match self.order {
            Some(order) => order[e] as usize,
            None => e,
        }
    }

    /// As [`Members::item`], for a place that may be past the end.
    #[inline(always)]
    pub fn item_ahead(&self, e: usize) -> usize {
        match self.order {
            Some(order) => order.get(e).map_or(0, |&i| i as usize),
            None => e,
        }
    }

    /// The order, where it is not that of the items.
    pub fn order(&self) -> Option<&'a [u32]> {
        self.order
    }

    fn n(&self) -> usize {
        self.ptr.len() - 1
    }

    /// Consecutive segments with about `size` items and segments together.
    pub fn slices(&self, size: usize) -> Vec<Range<usize>> {
        let (mut slices, mut start) = (Vec::new(), 0);
        while start < self.n() {
            // Items and segments before a segment grow with it: the end is found by halves.
            let begun = self.ptr.at(start) + start;
            let is_short = |end: usize| self.ptr.at(end) + end - 1 < begun + size;
            let (mut low, mut high) = (start + 1, self.n());
            while low < high {
                let middle = low.midpoint(high);
                if is_short(middle) { low = middle + 1 } else { high = middle }
            }
            slices.push(start..low);
            start = low;
        }
        slices
    }

    /// The segment of each item. Only for consecutive items.
    fn index<'t>(&self, len: usize, threads: &'t Threads) -> Lent<'t, u32> {
        let mut index = lent(len, threads);
        let slices = self.slices(CHUNK);
        let ends: Vec<usize> = slices.iter().map(|slice| self.ptr.at(slice.end)).collect();
        let items = slices.into_iter().zip(split_at_ends(&mut index, &ends)).collect();
        threads.for_each(items, |(slice, mut index): (Range<usize>, &mut [u32])| {
            for s in slice {
                let (own, rest) = index.split_at_mut(self.of(s).len());
                own.fill(s as u32);
                index = rest;
            }
        });
        index
    }
}

/// Items and segments that one thread does at a time where little is done for each.
const CHUNK: usize = 1 << 16;

/// An index and the items of each of its segments, sorted once.
///
/// # Memory
/// Four bytes an item and four a segment; while it is made, eight more an item.
#[derive(Clone, Debug)]
pub struct Groups<'a> {
    index: Index<'a>,
    sorted: Sorted,
}

impl<'a> Groups<'a> {
    /// Sorts an index; one that is sorted is only counted.
    pub fn new(index: Index<'a>, threads: &Threads) -> Self {
        let sorted = Sorted::new(index.as_slice(), index.bound(), threads);
        Groups { index, sorted }
    }

    /// The segments: their index and their items.
    pub fn segments(&self) -> Segments<'_> {
        let members = Some(self.sorted.members());
        Segments { members, ..Segments::from_index(&self.index) }
    }
}

#[derive(Clone, Debug)]
struct Sorted {
    ptr: Buffer<u32>,
    order: Option<Buffer<u32>>,
}

impl Sorted {
    fn members(&self) -> Members<'_> {
        Members { ptr: RowPtrView::Narrow(&self.ptr), order: self.order.as_deref() }
    }

    fn new(index: &[u32], n: usize, threads: &Threads) -> Self {
        if is_sorted(index, threads) {
            Sorted::counted(index, n)
        } else {
            by_blocks(index, n, threads)
        }
    }

    /// Pointers of a sorted index.
    fn counted(index: &[u32], n: usize) -> Self {
        let mut ptr = Buffer::zeroed(n + 1);
        let ends = ptr.make_mut();
        let mut s = 0;
        for (i, &target) in index.iter().enumerate() {
            while s < target as usize {
                s += 1;
                ends[s] = i as u32;
            }
        }
        ends[s + 1..].fill(index.len() as u32);
        Sorted { ptr, order: None }
    }
}

fn is_sorted(index: &[u32], threads: &Threads) -> bool {
    let chunks = ranges(index.len(), 1 << 18);
    // Most indices show early that they are not.
    if !index[..index.len().min(1000)].is_sorted() {
        return false;
    }
    let sorted = |range: Range<usize>| index[range.start.saturating_sub(1)..range.end].is_sorted();
    threads.map(chunks, sorted).into_iter().all(|sorted| sorted)
}

/// A stable counting sort in two steps: by blocks of segments, then each block in the cache.
fn by_blocks(index: &[u32], n: usize, threads: &Threads) -> Sorted {
    let partition = Partition::new((index.len(), n), |e| index[e], |e| e as u32, threads);
    let (mut ptr, mut order) = (Buffer::zeroed(n + 1), Buffer::zeroed(index.len()));
    let (blocks, ends) = (partition.blocks(), partition.ends());
    let block_ends: Vec<usize> = blocks.iter().map(|block| block.end).collect();
    let ptrs = split_at_ends(&mut ptr.make_mut()[1..], &block_ends);
    let orders = split_at_ends(order.make_mut(), &ends);
    let items: Vec<_> = blocks.into_iter().zip(ptrs.into_iter().zip(orders)).enumerate().collect();
    threads.for_each(items, |(b, (block, (ptr, order)))| {
        let first = ends[b] - order.len();
        for (targets, _) in partition.pairs(b) {
            targets.iter().for_each(|&target| ptr[target as usize - block.start] += 1);
        }
        // From lengths to starts; placing the items turns those into ends.
        let mut start = 0;
        for length in ptr.iter_mut() {
            (*length, start) = (start, start + *length);
        }
        for (targets, items) in partition.pairs(b) {
            for (&target, &item) in targets.iter().zip(items) {
                let next = &mut ptr[target as usize - block.start];
                order[*next as usize] = item;
                *next += 1;
            }
        }
        ptr.iter_mut().for_each(|end| *end += first as u32);
    });
    Sorted { ptr, order: Some(order) }
}
