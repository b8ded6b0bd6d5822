//! [`Grown`]: an array that grows as a `Vec` does, in memory that matrices can share.

use bytemuck::Pod;
use lacis_core::Buffer;

/// A buffer of which the first `len` elements are used.
pub(super) struct Grown<T> {
    buffer: Buffer<T>,
    len: usize,
}

impl<T: Pod> Default for Grown<T> {
    fn default() -> Self {
        Grown { buffer: Buffer::zeroed(0), len: 0 }
    }
}

impl<T: Pod> Grown<T> {
    /// Forgets the elements and keeps the memory.
    pub(super) fn clear(&mut self) {
        self.len = 0;
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// The used elements.
    pub(super) fn as_slice(&self) -> &[T] {
        &self.buffer.as_slice()[..self.len]
    }

    /// Uses `more` elements and gives all that are used then; the new ones hold anything.
    pub(super) fn extended(&mut self, more: usize) -> &mut [T] {
        let len = self.len + more;
        if len > self.buffer.len() {
            let mut larger = Buffer::zeroed(len.max(self.buffer.len() * 2));
            larger.make_mut()[..self.len].copy_from_slice(self.as_slice());
            self.buffer = larger;
        }
        self.len = len;
        &mut self.buffer.make_mut()[..len]
    }

    /// Uses only the first `len` elements.
    pub(super) fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
    }

    /// The first `len` elements, sharing the memory; they must be dropped before it is written
    /// again, or the whole is copied.
    pub(super) fn share(&self, len: usize) -> Buffer<T> {
        assert!(len <= self.len, "{len} elements of {}", self.len);
        self.buffer.clone().truncated(len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_shared_and_used_again() {
        let mut grown = Grown::<u32>::default();
        grown.extended(100).fill(7);
        let place = grown.as_slice().as_ptr();
        let shared = grown.share(3);
        assert_eq!(&shared[..], [7; 3]);
        drop(shared);
        grown.clear();
        grown.extended(2)[1] = 8;
        assert_eq!((grown.as_slice().as_ptr(), grown.len()), (place, 2));
        let kept = grown.share(2);
        grown.extended(0)[1] = 9;
        assert_eq!((kept[1], grown.as_slice()[1]), (8, 9));
        grown.truncate(1);
        assert_eq!(grown.len(), 1);
    }
}
