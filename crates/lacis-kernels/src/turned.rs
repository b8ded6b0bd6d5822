//! A block of 16 × 16 numbers of four bytes, turned in registers: AVX-512 only.
//!
//! ```text
//!  lanes of 4   pairs of rows interleaved by numbers, then by pairs of numbers: in each lane of
//!               128 bits four rows of one column
//!  lanes of 16  those lanes brought together from four vectors, in two steps
//! ```
//! Written with loops over rows and columns, the compiler makes 256 moves of it.

#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::{
    __m512i, _mm512_shuffle_i32x4, _mm512_unpackhi_epi32, _mm512_unpackhi_epi64,
    _mm512_unpacklo_epi32, _mm512_unpacklo_epi64,
};

use bytemuck::{Pod, Zeroable};

/// Rows, and columns, of a block.
pub(crate) const SIDE: usize = 16;

/// What the same place of 16 rows holds.
#[cfg_attr(not(target_arch = "x86_64"), allow(dead_code))] // AVX-512 alone has use for it
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C, align(64))]
pub(crate) struct Line(pub [u32; SIDE]);

/// Vector `t` of the result has number `t` of four numbers each of 16 rows, which vector `q` has of
/// rows `q`, `q + 4`, `q + 8`, `q + 12`.
#[cfg(target_arch = "x86_64")]
#[inline]
#[target_feature(enable = "avx512f")]
pub(crate) fn turn_fours(fours: [__m512i; 4]) -> [__m512i; 4] {
    let [low, high] = [0, 2].map(|q| _mm512_unpacklo_epi32(fours[q], fours[q + 1]));
    let [low2, high2] = [0, 2].map(|q| _mm512_unpackhi_epi32(fours[q], fours[q + 1]));
    [
        _mm512_unpacklo_epi64(low, high),
        _mm512_unpackhi_epi64(low, high),
        _mm512_unpacklo_epi64(low2, high2),
        _mm512_unpackhi_epi64(low2, high2),
    ]
}

/// Vector `c` of the result has the numbers at place `c` of all vectors.
#[cfg(target_arch = "x86_64")]
#[inline]
#[target_feature(enable = "avx512f")]
pub(crate) fn turn(rows: [__m512i; SIDE]) -> [__m512i; SIDE] {
    let mut pairs = rows;
    for i in (0..SIDE).step_by(2) {
        pairs[i] = _mm512_unpacklo_epi32(rows[i], rows[i + 1]);
        pairs[i + 1] = _mm512_unpackhi_epi32(rows[i], rows[i + 1]);
    }
    // Lane `l` of vector `4q + c`: rows `4q..4q + 4` of column `4l + c`.
    let mut fours = rows;
    for i in (0..SIDE).step_by(4) {
        fours[i] = _mm512_unpacklo_epi64(pairs[i], pairs[i + 2]);
        fours[i + 1] = _mm512_unpackhi_epi64(pairs[i], pairs[i + 2]);
        fours[i + 2] = _mm512_unpacklo_epi64(pairs[i + 1], pairs[i + 3]);
        fours[i + 3] = _mm512_unpackhi_epi64(pairs[i + 1], pairs[i + 3]);
    }
    const EVEN: i32 = 0b10_00_10_00;
    const ODD: i32 = 0b11_01_11_01;
    let mut columns = rows;
    for c in 0..4 {
        let even = [0, 8].map(|q| _mm512_shuffle_i32x4::<EVEN>(fours[q + c], fours[q + 4 + c]));
        let odd = [0, 8].map(|q| _mm512_shuffle_i32x4::<ODD>(fours[q + c], fours[q + 4 + c]));
        columns[c] = _mm512_shuffle_i32x4::<EVEN>(even[0], even[1]);
        columns[8 + c] = _mm512_shuffle_i32x4::<ODD>(even[0], even[1]);
        columns[4 + c] = _mm512_shuffle_i32x4::<EVEN>(odd[0], odd[1]);
        columns[12 + c] = _mm512_shuffle_i32x4::<ODD>(odd[0], odd[1]);
    }
    columns
}
