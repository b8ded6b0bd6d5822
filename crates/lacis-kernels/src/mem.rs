//! Telling the memory what comes next.
//!
//! Two distances work together: far ahead, lines are asked for into the second-level cache, which can
//! wait for many more of them at once than the first; near ahead, from there into the first.

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
#[allow(unsafe_code)]
pub fn fetch<T>(element: &T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the address is that of an element, and fetching into a cache changes no value.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(element).cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = element;
}

/// Asks for an element's cache line into the second-level cache.
#[inline(always)]
#[allow(unsafe_code)]
pub fn fetch_far<T>(element: &T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the address is that of an element, and fetching into a cache changes no value.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T1, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T1>(std::ptr::from_ref(element).cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = element;
}
