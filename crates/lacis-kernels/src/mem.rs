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

/// Numbers that begin with a line: they are read back before they have left the core.
#[repr(align(64))]
struct Line<T, const N: usize>([T; N]);

/// Writes whole lines past the caches where `to` begins with one, and as ever elsewhere.
#[inline(always)]
#[allow(unsafe_code)]
pub fn write_past<T: Pod, const N: usize>(_: &Past, from: &[T; N], to: &mut [T; N]) {
    #[cfg(target_arch = "x86_64")]
    if to.as_ptr().addr().is_multiple_of(64) && size_of::<[T; N]>().is_multiple_of(64) {
        use std::arch::x86_64::{__m128i, _mm_stream_si128};
        // Looked at from outside, or what was computed by wide vectors is computed by narrow ones.
        let line = Line(*from);
        let from: &[u8] = bytemuck::cast_slice(&std::hint::black_box(&line).0);
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

/// Copies past the caches: whole lines of `to` so, what is before the first and after the last as
/// ever.
pub fn copy_past<T: Pod>(past: &Past, from: &[T], to: &mut [T]) {
    let (from, to): (&[u8], &mut [u8]) = (bytemuck::cast_slice(from), bytemuck::cast_slice_mut(to));
    let before = to.as_ptr().addr().wrapping_neg() % 64;
    let (first, to) = to.split_at_mut(before.min(to.len()));
    let (first_from, from) = from.split_at(first.len());
    first.copy_from_slice(first_from);
    let ((lines, rest), (to, to_rest)) = (from.as_chunks::<64>(), to.as_chunks_mut::<64>());
    lines.iter().zip(to).for_each(|(from, to)| write_past(past, from, to));
    to_rest.copy_from_slice(rest);
}

#[cfg(test)]
mod tests {
    use super::*;
    use lacis_core::Buffer;

    #[test]
    fn copies_past_the_caches_are_whole() {
        let from: Vec<f32> = (0..100).map(|at| at as f32 + 0.5).collect();
        for (start, len) in [(0, 100), (3, 97), (5, 2), (16, 64), (17, 40), (1, 0)] {
            let mut to = Buffer::<f32>::try_zeroed(128).unwrap();
            let past = Past::begin();
            copy_past(&past, &from[..len], &mut to.make_mut()[start..start + len]);
            drop(past);
            let is = |at: usize| match at.checked_sub(start) {
                Some(at) if at < len => from[at],
                _ => 0.0,
            };
            assert!(to.iter().enumerate().all(|(at, x)| *x == is(at)), "{len} from {start}");
        }
    }

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
