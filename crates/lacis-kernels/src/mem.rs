//! Telling the memory what comes next.
//!
//! Two distances work together: far ahead, lines are asked for into the second-level cache, which
//! can wait for many more of them at once than the first; near ahead, from there into the first.
//!
//! A result that no cache can hold until it is read is written past them: an ordinary write fetches
//! the line first, which costs as many bytes again.

use bytemuck::Pod;

/// The first-level cache, as the instruction's hint has it.
pub const L1: i32 = 3;
/// The second-level cache.
pub const L2: i32 = 2;

/// Asks for the cache line of `slice[index]` before it is needed. An index outside is no error:
/// nothing is fetched.
#[inline(always)]
pub fn prefetch<T>(slice: &[T], index: usize) {
    if let Some(element) = slice.get(index) {
        fetch(element);
    }
}

/// Asks for an element's cache line into the first-level cache.
#[inline(always)]
pub fn fetch<T>(element: &T) {
    fetch_at::<T, L1>(element);
}

/// Asks for the lines of `len` elements from `start` on into [`L1`] or [`L2`]. What is outside the
/// slice is asked for too, to no effect: there is no check.
#[inline(always)]
pub fn fetch_lines<T, const CACHE: i32>(slice: &[T], start: usize, len: usize) {
    let first = slice.as_ptr().wrapping_add(start);
    let mut at = 0;
    while at < len {
        fetch_at::<T, CACHE>(first.wrapping_add(at));
        at += 64 / size_of::<T>();
    }
}

#[inline(always)]
#[allow(unsafe_code)]
fn fetch_at<T, const CACHE: i32>(address: *const T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: fetching into a cache neither faults nor changes a value, whatever the address.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<CACHE>(address.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}

/// While it lives, lines may be written past the caches; when it goes, they are visible before all
/// that follows.
pub struct Past(());

impl Past {
    /// Begins.
    pub fn begin() -> Self {
        Past(())
    }
}

impl Drop for Past {
    #[inline(always)]
    #[allow(unsafe_code)]
    fn drop(&mut self) {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: an order of writes; every CPU of this architecture has it.
        unsafe {
            std::arch::x86_64::_mm_sfence();
        }
    }
}

/// Writes whole lines past the caches where `to` begins with one, and as ever elsewhere.
#[inline(always)]
#[allow(unsafe_code)]
pub fn write_past<T: Pod, const N: usize>(_: &Past, from: &[T; N], to: &mut [T; N]) {
    #[cfg(target_arch = "x86_64")]
    if to.as_ptr().addr().is_multiple_of(64) && size_of::<[T; N]>().is_multiple_of(64) {
        use std::arch::x86_64::{__m128i, _mm_stream_si128};
        let from: &[u8] = bytemuck::cast_slice(from);
        let to: &mut [u8] = bytemuck::cast_slice_mut(to);
        for (from, to) in from.as_chunks::<16>().0.iter().zip(to.as_chunks_mut::<16>().0) {
            let vector: __m128i = bytemuck::cast(*from);
            // SAFETY: `to` is 16 bytes that are borrowed alone, and begins at a multiple of 16;
            // the fence that must follow is `Past`'s.
            unsafe { _mm_stream_si128(to.as_mut_ptr().cast(), vector) };
        }
        return;
    }
    *to = *from;
}

#[cfg(test)]
mod tests {
    use super::*;
    use lacis_core::Buffer;

    #[test]
    fn what_is_written_past_the_caches_is_there_wherever_it_begins() {
        let line: [f32; 16] = std::array::from_fn(|at| at as f32 + 0.5);
        for start in 0..17 {
            let mut to = Buffer::<f32>::try_zeroed(64).unwrap();
            let part = to.make_mut()[start..].first_chunk_mut::<16>().unwrap();
            let past = Past::begin();
            write_past(&past, &line, part);
            drop(past);
            let is = |at: usize| at.checked_sub(start).and_then(|at| line.get(at)).unwrap_or(&0.0);
            assert!(to.iter().enumerate().all(|(at, x)| x == is(at)), "from {start}");
        }
    }
}
