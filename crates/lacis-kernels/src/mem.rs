//! Telling the memory what comes next.
//!
//! Two distances work together: far ahead, lines are asked for into the second-level cache, which
//! can wait for many more of them at once than the first; near ahead, from there into the first.

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
