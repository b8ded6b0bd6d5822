//! [`Buffer`]: one array type over memory that is owned, memory-mapped or foreign.
//!
//! ```text
//!  Buffer<T> ──► bytes[offset .. offset + len·size_of::<T>()]
//!                  │
//!                  ├─ owned    64-byte aligned; large ones on huge pages where there are any
//!                  └─ shared   whatever is `AsRef<[u8]>`: a mapped file, a `Vec`, a numpy array
//! ```
//! Cloning shares; writing to a shared buffer copies it first. The alignment of a buffer is checked
//! when it is made, so reading it as a slice cannot fail.

use std::fmt;
use std::marker::PhantomData;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytemuck::{Pod, Zeroable};
use memmap2::MmapMut;

use crate::{Error, Result};

/// Memory that somebody else keeps: a mapped file, a `Vec`, an array of another language.
pub type SharedBytes = Arc<dyn AsRef<[u8]> + Send + Sync>;

/// From this size on a buffer asks for huge pages, and begins near the beginning of one.
const HUGE_FROM_BYTES: usize = HUGE_PAGE_BYTES;
const HUGE_PAGE_BYTES: usize = 2 << 20;
const LINE_BYTES: usize = 64;

/// A cache line; the unit in which small buffers are allocated.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C, align(64))]
pub(crate) struct Line([u8; LINE_BYTES]);

impl Line {
    /// How many have room for `len` elements.
    pub(crate) fn count_for<T>(len: usize) -> Result<usize> {
        let bytes = len.checked_mul(size_of::<T>()).ok_or(Error::Memory { bytes: usize::MAX })?;
        Ok(bytes.div_ceil(LINE_BYTES))
    }
}

/// Zeroed memory of our own, and where its aligned part begins.
enum Owned {
    Lines(Vec<Line>),
    Pages { map: MmapMut, start: usize },
}

impl Owned {
    fn try_zeroed(bytes: usize) -> Result<Self> {
        if bytes >= HUGE_FROM_BYTES
            && let Some(pages) = Owned::pages(bytes)
        {
            return Ok(pages);
        }
        bytemuck::allocation::try_zeroed_vec(bytes.div_ceil(LINE_BYTES))
            .map(Owned::Lines)
            .map_err(|()| Error::Memory { bytes })
    }

    fn zeroed(bytes: usize) -> Self {
        Owned::try_zeroed(bytes).unwrap_or_else(|error| panic!("{error}"))
    }

    /// An anonymous map with room to start a little after a huge-page boundary; `None` if the
    /// system has none.
    fn pages(bytes: usize) -> Option<Self> {
        let after = stagger();
        let bytes = bytes.checked_add(after)?;
        let map = MmapMut::map_anon(bytes.checked_add(HUGE_PAGE_BYTES)?).ok()?;
        let start = map.as_ptr().align_offset(HUGE_PAGE_BYTES);
        // Whole huge pages only, or the end of a buffer would take one it does not fill. Refused
        // advice costs speed, not correctness.
        #[cfg(target_os = "linux")]
        let _ = map.advise_range(
            memmap2::Advice::HugePage,
            start,
            bytes / HUGE_PAGE_BYTES * HUGE_PAGE_BYTES,
        );
        Some(Owned::Pages { map, start: start + after })
    }

    fn bytes(&self) -> &[u8] {
        match self {
            Owned::Lines(lines) => bytemuck::cast_slice(lines),
            Owned::Pages { map, start } => &map[*start..],
        }
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        match self {
            Owned::Lines(lines) => bytemuck::cast_slice_mut(lines),
            Owned::Pages { map, start } => &mut map[*start..],
        }
    }
}

/// How far after a huge page's beginning the next large buffer begins: whole lines, different ones
/// for buffers that are made one after another. A CPU tells a load from a store before it by the
/// lowest 12 bits of their addresses; were all buffers to begin alike, reading row `i` of one would
/// wait until row `i` of another is written.
fn stagger() -> usize {
    const LINES: usize = 4096 / LINE_BYTES;
    /// Odd, so that all lines have their turn; more than a few, so that rows near each other, too,
    /// are told apart.
    const STEP: usize = 11;
    static MADE: AtomicUsize = AtomicUsize::new(0);
    MADE.fetch_add(1, Ordering::Relaxed) * STEP % LINES * LINE_BYTES
}

#[derive(Clone)]
enum Store {
    Owned(Arc<Owned>),
    Shared(SharedBytes),
}

/// An array of numbers in memory that is owned, mapped or foreign. See the module's head.
#[derive(Clone)]
pub struct Buffer<T> {
    store: Store,
    offset_bytes: usize,
    len: usize,
    element: PhantomData<T>,
}

impl<T: Pod> Buffer<T> {
    /// `len` zeros, 64-byte aligned.
    ///
    /// # Panics
    /// When the system refuses the memory; [`Buffer::try_zeroed`] is for sizes that users choose.
    pub fn zeroed(len: usize) -> Self {
        Buffer::try_zeroed(len).unwrap_or_else(|error| panic!("{error}"))
    }

    /// As [`Buffer::zeroed`].
    ///
    /// # Errors
    /// When the system refuses the memory.
    pub fn try_zeroed(len: usize) -> Result<Self> {
        let bytes = len.checked_mul(size_of::<T>()).ok_or(Error::Memory { bytes: usize::MAX })?;
        let owned = Owned::try_zeroed(bytes)?;
        Ok(Buffer { store: Store::Owned(Arc::new(owned)), ..Buffer::view(len) })
    }

    /// An aligned copy of a slice.
    pub fn copied(slice: &[T]) -> Self {
        let mut buffer = Buffer::zeroed(slice.len());
        buffer.make_mut().copy_from_slice(slice);
        buffer
    }

    /// `len` elements of foreign memory from `offset_bytes` on, without a copy.
    ///
    /// # Errors
    /// When the range is outside the memory, or not aligned for `T`.
    pub fn from_shared(bytes: SharedBytes, offset_bytes: usize, len: usize) -> Result<Self> {
        let all = (*bytes).as_ref();
        let end = len.checked_mul(size_of::<T>()).and_then(|b| b.checked_add(offset_bytes));
        let Some(range) = end.and_then(|end| all.get(offset_bytes..end)) else {
            return Err(Error::Index {
                op: "buffer",
                what: "end of the range",
                index: end.map_or(u64::MAX, |end| end as u64),
                at: offset_bytes,
                bound: all.len() as u64 + 1,
            });
        };
        if bytemuck::try_cast_slice::<u8, T>(range).is_err() {
            let problem = format!("byte {offset_bytes} is not aligned to {}", align_of::<T>());
            return Err(Error::argument("buffer", problem));
        }
        Ok(Buffer { store: Store::Shared(bytes), offset_bytes, ..Buffer::view(len) })
    }

    /// Whether the system would give so many bytes now: they are reserved, not touched, and given
    /// back. Code that then allocates piece by piece does not fail half-way.
    ///
    /// # Errors
    /// When it would not.
    pub fn ask(bytes: u128) -> Result<()> {
        let bytes = usize::try_from(bytes).map_err(|_| Error::Memory { bytes: usize::MAX })?;
        // Not zeroed: of memory that the program has had before that would touch every byte.
        Vec::<u8>::new().try_reserve_exact(bytes).map_err(|_| Error::Memory { bytes })
    }

    fn view(len: usize) -> Self {
        let store = Store::Owned(Arc::new(Owned::Lines(Vec::new())));
        Buffer { store, offset_bytes: 0, len, element: PhantomData }
    }

    /// The first `len` elements, sharing the memory.
    ///
    /// # Panics
    /// When there are fewer.
    pub fn truncated(mut self, len: usize) -> Self {
        assert!(len <= self.len, "cannot truncate {} elements to {len}", self.len);
        self.len = len;
        self
    }

    /// The same bits as another type of the same size and alignment.
    ///
    /// # Panics
    /// When size or alignment differ.
    pub fn reinterpreted<U: Pod>(self) -> Buffer<U> {
        assert_eq!((size_of::<T>(), align_of::<T>()), (size_of::<U>(), align_of::<U>()));
        Buffer {
            store: self.store,
            offset_bytes: self.offset_bytes,
            len: self.len,
            element: PhantomData,
        }
    }

    /// The elements for writing; copies them first unless this is their only owner.
    pub fn make_mut(&mut self) -> &mut [T] {
        let sole = match &mut self.store {
            Store::Owned(owned) => Arc::get_mut(owned).is_some(),
            Store::Shared(_) => false,
        };
        if !sole {
            *self = Buffer::copied_bits(self);
        }
        let Store::Owned(owned) = &mut self.store else { unreachable!("made owned above") };
        let owned = Arc::get_mut(owned).expect("made sole owner above");
        let bytes = self.len * size_of::<T>();
        bytemuck::cast_slice_mut(&mut owned.bytes_mut()[self.offset_bytes..][..bytes])
    }

    /// As [`Buffer::copied`], but not through `make_mut`, which calls this.
    fn copied_bits(slice: &[T]) -> Self {
        let bytes = size_of_val(slice);
        let mut owned = Owned::zeroed(bytes);
        owned.bytes_mut()[..bytes].copy_from_slice(bytemuck::cast_slice(slice));
        Buffer { store: Store::Owned(Arc::new(owned)), ..Buffer::view(slice.len()) }
    }

    /// The elements for reading.
    pub fn as_slice(&self) -> &[T] {
        let all = match &self.store {
            Store::Owned(owned) => owned.bytes(),
            Store::Shared(bytes) => (**bytes).as_ref(),
        };
        bytemuck::cast_slice(&all[self.offset_bytes..][..self.len * size_of::<T>()])
    }
}

impl<T: Pod> Deref for Buffer<T> {
    type Target = [T];
    fn deref(&self) -> &[T] {
        self.as_slice()
    }
}

/// A `Vec` seen as bytes, so that a buffer can share it.
struct VecBytes<T>(Vec<T>);

impl<T: Pod> AsRef<[u8]> for VecBytes<T> {
    fn as_ref(&self) -> &[u8] {
        bytemuck::cast_slice(&self.0)
    }
}

impl<T: Pod + Send + Sync> From<Vec<T>> for Buffer<T> {
    /// Takes the vector over without a copy.
    fn from(vec: Vec<T>) -> Self {
        let len = vec.len();
        Buffer { store: Store::Shared(Arc::new(VecBytes(vec))), ..Buffer::view(len) }
    }
}

impl<T: Pod + PartialEq> PartialEq for Buffer<T> {
    fn eq(&self, other: &Self) -> bool {
        self.as_slice() == other.as_slice()
    }
}

impl<T: Pod + fmt::Debug> fmt::Debug for Buffer<T> {
    /// The first few elements: a buffer may hold millions.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHOWN: usize = 8;
        let dots = if self.len > SHOWN { ", …" } else { "" };
        write!(f, "Buffer[{}]({:?}{dots})", self.len, &self[..self.len.min(SHOWN)])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn owned_buffers_are_aligned_whatever_their_size() {
        for len in [0, 1, 15, 1 << 10, HUGE_FROM_BYTES / 4, HUGE_FROM_BYTES / 4 + 3] {
            let buffer = Buffer::<f32>::zeroed(len);
            assert_eq!(buffer.as_ptr() as usize % LINE_BYTES, 0, "{len} elements");
            assert!(buffer.iter().all(|&v| v == 0.0));
            assert_eq!(buffer.len(), len);
        }
    }

    #[test]
    fn large_buffers_do_not_begin_alike() {
        let buffers = [(); 3].map(|()| Buffer::<f32>::zeroed(HUGE_FROM_BYTES / 4));
        let low = buffers.each_ref().map(|buffer| buffer.as_ptr().addr() % 4096);
        assert!(low.iter().all(|low| low % LINE_BYTES == 0), "{low:?}");
        assert!(low[0] != low[1] && low[1] != low[2] && low[0] != low[2], "{low:?}");
    }

    #[test]
    fn writing_to_a_shared_buffer_leaves_the_other_owner_alone() {
        let first = Buffer::from(vec![1u32, 2, 3]);
        let mut second = first.clone();
        second.make_mut()[0] = 9;
        assert_eq!((&first[..], &second[..]), (&[1, 2, 3][..], &[9, 2, 3][..]));
        let mut third = second.clone();
        third.make_mut()[1] = 8;
        assert_eq!((second[1], third[1]), (2, 8));
    }

    #[test]
    fn memory_that_nobody_has_is_refused() {
        assert_eq!(Buffer::<u64>::try_zeroed(usize::MAX).unwrap_err().kind(), "memory");
        assert_eq!(Buffer::<u64>::try_zeroed(1 << 55).unwrap_err().kind(), "memory");
    }

    #[test]
    fn foreign_memory_is_checked_for_range_and_alignment() {
        let bytes: SharedBytes = Arc::new(VecBytes(vec![0u64, u64::MAX]));
        let buffer = Buffer::<u32>::from_shared(bytes.clone(), 8, 2).unwrap();
        assert_eq!(&buffer[..], [u32::MAX; 2]);
        assert!(Buffer::<u32>::from_shared(bytes.clone(), 8, 3).is_err());
        assert!(Buffer::<u32>::from_shared(bytes.clone(), 2, 1).is_err());
        assert!(Buffer::<u32>::from_shared(bytes, usize::MAX, usize::MAX).is_err());
    }
}
