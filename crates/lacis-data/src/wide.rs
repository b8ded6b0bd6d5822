//! Lines of numbers in the commonest form, a block at a time, with AVX-512.
//!
//! ```text
//!  bytes    1 7 , 9 0 2 \n 4 , 8 \n …        64 at a time
//!  marks        2       6    8   10           every byte that is no digit, packed together
//!  numbers  the eight bytes before each of eight marks, those of the number before set to zero:
//!           pairs, fours and eights of digits are joined for all eight at once
//! ```
//! A block in which any line has another form is left to readers that know more; what is read here
//! is the same as there.

use crate::text::{Layout, Mirror};
use lacis_core::Chunk;

/// A block of text.
const BLOCK_BYTES: usize = 4096;
/// Numbers end with a mark, and eight bytes before it are looked at.
const BEFORE: usize = 8;
/// How many numbers are made at once.
const GROUP: usize = 8;
/// After so many blocks with a line of another form nothing else is expected.
const MAX_ODD_BLOCKS: usize = 4;

/// What lines look like.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    /// `digits separator digits`.
    Pairs,
    /// The same, then `separator digits.digits`.
    Weighted,
}

/// What is expected of a block.
struct Expected {
    separator: u8,
    base: u32,
    bounds: [u32; 2],
}

/// Marks and numbers of a block.
struct Room {
    /// Where marks are, from the block's beginning; the first is the one before it.
    marks: [u16; 1 + BLOCK_BYTES + 64],
    numbers: [u32; BLOCK_BYTES],
    /// The bits of each line's value.
    values: [u32; BLOCK_BYTES / 4],
}

impl Room {
    fn new() -> Box<Self> {
        let marks = [0; 1 + BLOCK_BYTES + 64];
        Box::new(Room { marks, numbers: [0; BLOCK_BYTES], values: [0; BLOCK_BYTES / 4] })
    }
}

/// Reads the lines of a piece that have the commonest form.
pub(crate) struct Wide<'a> {
    bytes: &'a [u8],
    layout: &'a Layout,
    form: Form,
    expected: Expected,
    odd_blocks: usize,
    room: Box<Room>,
}

impl<'a> Wide<'a> {
    /// `None` where lines or this CPU are not as they should be.
    pub fn of(bytes: &'a [u8], layout: &'a Layout) -> Option<Self> {
        let form = match (layout.fields, layout.value) {
            (2, None) => Form::Pairs,
            (3, Some(2)) => Form::Weighted,
            _ => return None,
        };
        let usual = layout.ends == [0, 1] && !layout.attributes;
        let separator = *bytes.iter().take(64).find(|byte| !byte.is_ascii_digit())?;
        if !usual || !matches!(separator, b'\t' | b' ' | b',' | b';' | b'|') || !is_here() {
            return None;
        }
        let expected = Expected { separator, base: layout.base, bounds: layout.bounds };
        Some(Wide { bytes, layout, form, expected, odd_blocks: 0, room: Room::new() })
    }

    /// Reads lines from the beginning of one on. Returns where the first begins that was not read,
    /// and up to where others should read on before this is asked again.
    pub fn read(&mut self, mut at: usize, chunk: &mut Chunk) -> (usize, usize) {
        if at < BEFORE || self.odd_blocks == MAX_ODD_BLOCKS {
            return (at, if at < BEFORE { at } else { usize::MAX });
        }
        while let Some(text) = self.bytes[at - BEFORE..].first_chunk() {
            let Some(marks) = block(text, self.form, &self.expected, &mut self.room) else {
                self.odd_blocks += 1;
                return (at, at + BLOCK_BYTES);
            };
            self.add(marks, chunk);
            at += usize::from(self.room.marks[marks]) + 1;
        }
        (at, usize::MAX)
    }

    /// Adds the entries of a block with so many marks.
    fn add(&self, marks: usize, chunk: &mut Chunk) {
        let numbers = &self.room.numbers[..marks];
        if self.form == Form::Pairs {
            let places = numbers.as_chunks().0;
            chunk.places.extend_from_slice(places);
            if self.layout.mirror != Mirror::No {
                let mirrored = places.iter().filter(|[row, col]| row != col);
                chunk.places.extend(mirrored.map(|&[row, col]| [col, row]));
            }
            return;
        }
        let lines = numbers.as_chunks::<4>().0.iter();
        let values = &self.room.values[..lines.len()];
        if self.layout.mirror == Mirror::No {
            chunk.places.extend(lines.map(|&[row, col, ..]| [row, col]));
            chunk.tags.extend_from_slice(values);
            return;
        }
        let sign = if self.layout.mirror == Mirror::Negative { 1 << 31 } else { 0 };
        for (&[row, col, ..], &value) in lines.zip(values) {
            chunk.push_tagged(row, col, value);
            if row != col {
                chunk.push_tagged(col, row, value ^ sign);
            }
        }
    }
}

/// Whether this CPU has what [`x86::block`] is compiled for.
fn is_here() -> bool {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::is_x86_feature_detected as has;
        has!("avx512f")
            && has!("avx512bw")
            && has!("avx512vl")
            && has!("avx512dq")
            && has!("avx512vbmi2")
            && has!("bmi2")
            && has!("popcnt")
    }
    #[cfg(not(target_arch = "x86_64"))]
    false
}

/// Marks a block and makes its numbers, sources and targets exchanged; returns of how many marks,
/// whole lines all of them, or `None` where a line has another form.
fn block(
    text: &[u8; BEFORE + BLOCK_BYTES],
    form: Form,
    expected: &Expected,
    room: &mut Room,
) -> Option<usize> {
    assert!(is_here(), "made only where it is");
    #[cfg(target_arch = "x86_64")]
    #[allow(unsafe_code)]
    // SAFETY: `is_here` found every feature that this is compiled for.
    return unsafe { x86::block(text, form, expected, room) };
    #[cfg(not(target_arch = "x86_64"))]
    None
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::*;

    use super::{BEFORE, BLOCK_BYTES, Expected, Form, GROUP, Room};

    /// How near to halfway between two numbers of single precision is too near.
    const MARGIN: i64 = 1 << 8;

    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vbmi2,bmi2,popcnt")]
    pub fn block(
        text: &[u8; BEFORE + BLOCK_BYTES],
        form: Form,
        expected: &Expected,
        room: &mut Room,
    ) -> Option<usize> {
        match form {
            Form::Pairs => lines::<2>(text, expected, room),
            Form::Weighted => lines::<4>(text, expected, room),
        }
    }

    /// As [`block`], of lines with so many marks, their ends included.
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vbmi2,bmi2,popcnt")]
    fn lines<const MARKS: usize>(
        text: &[u8; BEFORE + BLOCK_BYTES],
        expected: &Expected,
        room: &mut Room,
    ) -> Option<usize> {
        let count = mark::<MARKS>(text, expected.separator, &mut room.marks)?;
        // Whole groups only: the lines of the last are read again with the next block.
        let groups = count / GROUP;
        let mut odd = 0;
        for (group, numbers) in room.numbers.as_chunks_mut().0.iter_mut().take(groups).enumerate() {
            let marks = room.marks[group * GROUP..].first_chunk()?;
            odd |= numbers_of::<MARKS>(text, marks, expected, numbers);
        }
        if MARKS == 4 {
            odd |= values(groups * GROUP / MARKS, room);
        }
        (odd == 0 && groups > 0).then_some(groups * GROUP)
    }

    /// Makes the values of so many lines of the digits before and after a point; anything but 0
    /// where one is not sure to be what the standard library makes of them.
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vbmi2,bmi2,popcnt")]
    fn values(n_lines: usize, room: &mut Room) -> u8 {
        const TENS: [f64; GROUP] = [1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8];
        let (lines, _) = room.numbers.as_chunks::<4>();
        let (marks, _) = room.marks[1..].as_chunks::<4>();
        let mut odd = 0;
        let groups = lines.as_chunks::<GROUP>().0.iter().zip(marks.as_chunks::<GROUP>().0);
        let groups = groups.zip(room.values.as_chunks_mut::<GROUP>().0);
        for (group, ((lines, marks), values)) in groups.take(n_lines.div_ceil(GROUP)).enumerate() {
            let (mut digits, mut places) = ([[0; GROUP]; 2], [0u64; GROUP]);
            for (at, (line, marks)) in lines.iter().zip(marks).enumerate() {
                (digits[0][at], digits[1][at]) = (u64::from(line[2]), u64::from(line[3]));
                places[at] = u64::from(marks[3].wrapping_sub(marks[2]).wrapping_sub(2));
            }
            let whole = _mm512_cvtepu64_pd(bytemuck::cast(digits[0]));
            let fraction = _mm512_cvtepu64_pd(bytemuck::cast(digits[1]));
            let places = bytemuck::cast(places);
            let power = _mm512_permutexvar_pd(places, bytemuck::cast(TENS));
            // An exact number of at most fifteen digits by an exact power: one rounding.
            let number = _mm512_div_pd(_mm512_fmadd_pd(whole, power, fraction), power);
            // The second, to single precision, could go the other way about halfway.
            let low = _mm512_and_si512(bytemuck::cast(number), _mm512_set1_epi64((1 << 29) - 1));
            let above = _mm512_sub_epi64(low, _mm512_set1_epi64((1 << 28) - MARGIN));
            let halfway = _mm512_cmple_epu64_mask(above, _mm512_set1_epi64(2 * MARGIN));
            let long = _mm512_cmp_pd_mask::<_CMP_GE_OQ>(whole, _mm512_set1_pd(1e7));
            let known = _bzhi_u64(0xff, (n_lines - group * GROUP).min(GROUP) as u32) as u8;
            odd |= (halfway | long) & known;
            *values = bytemuck::cast(_mm512_cvtpd_ps(number));
        }
        odd
    }

    /// Writes down where bytes that are no digits are; `None` where they do not follow each other
    /// as those of the commonest lines do.
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vbmi2,bmi2,popcnt")]
    fn mark<const MARKS: usize>(
        text: &[u8; BEFORE + BLOCK_BYTES],
        separator: u8,
        marks: &mut [u16; 1 + BLOCK_BYTES + 64],
    ) -> Option<usize> {
        // The end of a line comes last, a point before it.
        let [ends, points] = match MARKS {
            2 => [0xAAAA_AAAA_AAAA_AAAA, 0],
            _ => [0x8888_8888_8888_8888u64, 0x4444_4444_4444_4444],
        };
        let places: [u8; 64] = std::array::from_fn(|at| at as u8);
        let places: __m512i = bytemuck::cast(places);
        let is = |bytes, byte: u8| _mm512_cmpeq_epi8_mask(bytes, _mm512_set1_epi8(byte as i8));
        // The mark before the first: a number that follows it begins with the block.
        marks[0] = u16::MAX;
        let (mut count, mut odd) = (0, 0);
        for (at, window) in text[BEFORE..].as_chunks::<64>().0.iter().enumerate() {
            let bytes: __m512i = bytemuck::cast(*window);
            let digits = _mm512_sub_epi8(bytes, _mm512_set1_epi8(b'0' as i8));
            let others = _mm512_cmpgt_epu8_mask(digits, _mm512_set1_epi8(9));
            let [end, point] = [is(bytes, b'\n'), if MARKS == 2 { 0 } else { is(bytes, b'.') }];
            odd |= others ^ (end | point | is(bytes, separator));
            let found = others.count_ones();
            let known = _bzhi_u64(u64::MAX, found);
            let turn = (count % MARKS) as u32;
            odd |= _pext_u64(end, others) ^ (ends.rotate_right(turn) & known);
            odd |= _pext_u64(point, others) ^ (points.rotate_right(turn) & known);
            let packed: [__m256i; 2] = bytemuck::cast(_mm512_maskz_compress_epi8(others, places));
            let first = _mm512_set1_epi16((64 * at) as i16);
            let room = marks[1 + count..].first_chunk_mut::<64>()?;
            let (room, more) = room.split_at_mut(32);
            let wide = _mm512_add_epi16(_mm512_cvtepu8_epi16(packed[0]), first);
            room.copy_from_slice(&bytemuck::cast::<_, [u16; 32]>(wide));
            if found > 32 {
                let wide = _mm512_add_epi16(_mm512_cvtepu8_epi16(packed[1]), first);
                more.copy_from_slice(&bytemuck::cast::<_, [u16; 32]>(wide));
            }
            count += found as usize;
        }
        (odd == 0).then_some(count)
    }

    /// Makes the numbers before all marks but the first; anything but 0 where one is not as
    /// expected.
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vbmi2,bmi2,popcnt")]
    fn numbers_of<const MARKS: usize>(
        text: &[u8; BEFORE + BLOCK_BYTES],
        marks: &[u16; 1 + GROUP],
        expected: &Expected,
        numbers: &mut [u32; GROUP],
    ) -> u8 {
        let [starts @ .., _] = *marks;
        let [_, ends @ ..] = *marks;
        let mut words = [0; GROUP];
        for (word, end) in words.iter_mut().zip(ends) {
            let (eights, _) = text[usize::from(end) % BLOCK_BYTES..].as_chunks::<BEFORE>();
            *word = u64::from_le_bytes(eights[0]);
        }
        let (starts, ends): (__m128i, __m128i) = (bytemuck::cast(starts), bytemuck::cast(ends));
        let lengths = _mm_sub_epi16(_mm_sub_epi16(ends, starts), _mm_set1_epi16(1));
        let less = _mm_sub_epi16(lengths, _mm_set1_epi16(1));
        let mut odd = _mm_cmpgt_epu16_mask(less, _mm_set1_epi16(7));
        // Of the eight bytes before an end, those before the number count as zeros.
        let unused = _mm_slli_epi16(_mm_sub_epi16(_mm_set1_epi16(8), lengths), 3);
        let kept = _mm512_sllv_epi64(_mm512_set1_epi64(-1), _mm512_cvtepu16_epi64(unused));
        let digits =
            _mm512_and_si512(_mm512_xor_si512(bytemuck::cast(words), _mm512_set1_epi8(0x30)), kept);
        let pairs = _mm512_maddubs_epi16(digits, _mm512_set1_epi16(0x010a));
        let fours = _mm512_madd_epi16(pairs, _mm512_set1_epi32(0x0001_0064));
        let eights = _mm512_add_epi64(
            _mm512_mul_epu32(fours, _mm512_set1_epi64(10_000)),
            _mm512_srli_epi64(fours, 32),
        );
        let (base, [a, b]) = (expected.base, expected.bounds);
        let (bases, bounds): ([u32; GROUP], [u32; GROUP]) = match MARKS {
            2 => ([base; GROUP], [a, b, a, b, a, b, a, b]),
            _ => {
                let all = u32::MAX;
                ([base, base, 0, 0, base, base, 0, 0], [a, b, all, all, a, b, all, all])
            }
        };
        let indices = _mm256_sub_epi32(_mm512_cvtepi64_epi32(eights), bytemuck::cast(bases));
        odd |= _mm256_cmpge_epu32_mask(indices, bytemuck::cast(bounds));
        *numbers = bytemuck::cast(match MARKS {
            2 => _mm256_shuffle_epi32(indices, 0b10_11_00_01),
            _ => _mm256_shuffle_epi32(indices, 0b11_10_00_01),
        });
        odd
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_blocks_are_read_where_the_cpu_can() {
        let pairs: String = (0..2000).map(|i| format!("{},{}\n", i * 7919, i)).collect();
        let weighted: String = (0..2000).map(|i| format!("{i} {i} {i}.{i}\n")).collect();
        let layout = Layout::pairs(0, [u32::MAX; 2]);
        let with_value = Layout { fields: 3, value: Some(2), ..layout.clone() };
        for (text, layout) in [(&pairs, &layout), (&weighted, &with_value)] {
            let Some(mut wide) = Wide::of(text.as_bytes(), layout) else {
                assert!(!is_here());
                return;
            };
            let mut chunk = Chunk::default();
            assert_eq!(wide.read(0, &mut chunk), (0, 0));
            let from = text.match_indices('\n').nth(3).unwrap().0 + 1;
            let (at, until) = wide.read(from, &mut chunk);
            assert!(text.len() - at < 2 * BLOCK_BYTES && until == usize::MAX);
            assert_eq!(text[from..at].lines().count(), chunk.places.len());
            assert_eq!(chunk.places[..2].concat()[1], [4 * 7919, 4][layout.fields - 2]);
        }
    }

    #[test]
    fn a_block_with_another_form_is_left_alone() {
        let lines: Vec<String> = (0..2000).map(|i| format!("{i},{i}")).collect();
        for odd in ["1,2,3", "1 2", "1,", ",1", "", "#", "1,123456789", "1,2\r", "x,1"] {
            let mut lines = lines.clone();
            lines[300] = odd.to_owned();
            let text = lines.join("\n");
            let layout = Layout::pairs(0, [u32::MAX; 2]);
            let Some(mut wide) = Wide::of(text.as_bytes(), &layout) else { return };
            let mut chunk = Chunk::default();
            let (at, until) = wide.read(16, &mut chunk);
            assert_eq!((at, until, chunk.places.len()), (16, 16 + BLOCK_BYTES, 0), "{odd}");
        }
    }
}
