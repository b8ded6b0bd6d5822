//! Whole numbers in text, several at a time: where digits end is found 64 bytes at once, and then
//! no number waits for the one before it.
//!
//! ```text
//!  bytes    1 7 \t 9 0 2 \n 4 \t 8 \n …
//!  marks        2        6     8    10       every byte that is no digit
//!  numbers  before each mark, up to eight digits in one word: pairs, fours, eight
//! ```

const EACH: u64 = 0x0101_0101_0101_0101;
/// How many bytes are looked at together.
pub(crate) const WINDOW: usize = 64;

/// Which of the bytes are no digits.
#[inline(always)]
fn others(bytes: &[u8; WINDOW]) -> u64 {
    let (lanes, _) = bytes.as_chunks::<8>();
    let mut mask = 0;
    for (at, lane) in lanes.iter().enumerate() {
        // Digits become 0 to 9; adding 0x76 to seven bits sets the top bit of what is larger.
        let digits = u64::from_le_bytes(*lane) ^ (0x30 * EACH);
        let others = (((digits & (0x7f * EACH)) + 0x76 * EACH) | digits) & (0x80 * EACH);
        // One bit of each byte, side by side: the product moves byte i's to bit 56 + i.
        mask |= others.wrapping_mul(0x0002_0408_1020_4081) >> 56 << (8 * at);
    }
    mask
}

/// Writes down where bytes that are no digits are, `from` a place on, of so many whole windows as
/// there are; returns how many. There must be room for every byte and a few more.
pub(crate) fn mark(bytes: &[u8], from: usize, marks: &mut [u32]) -> usize {
    // Lines of numbers have a mark every seven bytes: so many are written without asking.
    const USUAL: usize = 16;
    let mut count = 0;
    for (at, window) in bytes[from..].as_chunks::<WINDOW>().0.iter().enumerate() {
        let (mut mask, first) = (others(window), (from + WINDOW * at) as u32);
        let found = mask.count_ones() as usize;
        let room = &mut marks[count..count + WINDOW];
        let (usual, rest) = room.split_at_mut(USUAL);
        for slot in usual {
            *slot = first + mask.trailing_zeros();
            mask &= mask.wrapping_sub(1);
        }
        for slot in rest.iter_mut().take(found.saturating_sub(USUAL)) {
            *slot = first + mask.trailing_zeros();
            mask &= mask.wrapping_sub(1);
        }
        count += found;
    }
    count
}

/// The number written in `start..end`, all of them digits; `None` where there are none or more
/// than eight, or fewer than eight bytes come before the end.
#[inline(always)]
pub(crate) fn number_in(bytes: &[u8], start: usize, end: usize) -> Option<u32> {
    let length = end.wrapping_sub(start);
    if length.wrapping_sub(1) >= 8 {
        return None;
    }
    let word = bytes.get(end.wrapping_sub(8)..end)?.first_chunk()?;
    // Of the eight bytes before the end, those before the number count as zeros.
    let kept = u64::MAX << (64 - 8 * length);
    Some(joined((u64::from_le_bytes(*word) ^ (0x30 * EACH)) & kept))
}

/// The number that eight bytes begin with, and how many of them are its digits.
#[inline(always)]
pub(crate) fn leading_number(bytes: &[u8; 8]) -> (u32, usize) {
    // Digits become 0 to 9. Adding 0x76 sets the top bit of everything else; what carries over
    // only reaches later bytes, and the first that is no digit is all we look for.
    let digits = u64::from_le_bytes(*bytes) ^ (0x30 * EACH);
    let others = (digits.wrapping_add(0x76 * EACH) | digits) & (0x80 * EACH);
    let count = others.trailing_zeros() / 8;
    if count == 0 {
        return (0, 0);
    }
    // Zeros come before.
    (joined(digits << (64 - 8 * count)), count as usize)
}

/// Eight digits, the highest first, as a number: neighbours join to pairs, to fours, to eight.
#[inline(always)]
fn joined(digits: u64) -> u32 {
    let pairs = (digits.wrapping_mul(10) + (digits >> 8)) & 0x00ff_00ff_00ff_00ff;
    let fours = (pairs.wrapping_mul(100) + (pairs >> 16)) & 0x0000_ffff_0000_ffff;
    (fours.wrapping_mul(10_000) + (fours >> 32)) as u32
}

/// The finite number that `bytes` begin with, if it is written in the commonest way: digits,
/// perhaps a point and digits after it, a sign before; and how long it is. The same bits as the
/// standard library's; `None` sends the caller there.
#[inline(always)]
pub(crate) fn leading_decimal(bytes: &[u8]) -> Option<(f32, usize)> {
    const TENS: [f64; 16] =
        [1.0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15];
    let negative = usize::from(bytes.first() == Some(&b'-'));
    let (whole, digits) = leading_number(bytes.get(negative..)?.first_chunk()?);
    if digits == 0 || digits == 8 {
        return None;
    }
    let mut end = negative + digits;
    let mut number = f64::from(whole);
    if bytes.get(end) == Some(&b'.') {
        let (mut fraction, mut places) = leading_number(bytes.get(end + 1..)?.first_chunk()?);
        end += 1 + places;
        number = number * TENS[places] + f64::from(fraction);
        if places == 8 && digits == 1 {
            let more;
            (fraction, more) = leading_number(bytes.get(end..)?.first_chunk()?);
            // Sixteen digits would not be exact, and more than that are passed over: they matter
            // only to a number that is about halfway.
            let kept = more.min(6);
            let cut = if more > kept { TENS[more - kept] } else { 1.0 };
            number = number * TENS[kept] + (f64::from(fraction) / cut).trunc();
            places += kept;
            end += more;
            end += if more == 8 { digits_in(&bytes[end..]) } else { 0 };
        } else if places == 0 || places == 8 {
            return None;
        }
        // An exact number of at most fifteen digits by an exact power: one rounding.
        number /= TENS[places];
    }
    if matches!(bytes.get(end), Some(b'e' | b'E' | b'.')) || is_about_halfway(number) {
        return None;
    }
    let number = if negative == 1 { -number } else { number };
    Some((number as f32, end))
}

/// How many digits come first.
fn digits_in(bytes: &[u8]) -> usize {
    bytes.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(bytes.len())
}

/// Whether a number lies about halfway between two of single precision: what was rounded, or cut
/// off, before could then make it round the other way.
fn is_about_halfway(number: f64) -> bool {
    const LOW_BITS: u64 = (1 << 29) - 1;
    const MARGIN: u64 = 1 << 8;
    (number.to_bits() & LOW_BITS).abs_diff(1 << 28) <= MARGIN
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn eight_bytes_begin_with_a_number() {
        let number = |text: &str| leading_number(text.as_bytes().first_chunk().unwrap());
        assert_eq!(number("1\t345678"), (1, 1));
        assert_eq!(number("90123456"), (90_123_456, 8));
        assert_eq!(number("0000007\n"), (7, 7));
        assert_eq!(number("12345:67"), (12_345, 5));
        assert_eq!(number("123/5678"), (123, 3));
        assert_eq!(number("-1234567"), (0, 0));
        for byte in 0..=255u8 {
            let digits = usize::from(byte.is_ascii_digit()) * 5;
            assert_eq!(
                leading_number(&[b'4', b'2', byte, b'0', b'0', b'0', b'0', b' ']).1,
                2 + digits
            );
        }
    }

    #[test]
    fn every_byte_that_is_no_digit_is_marked() {
        let bytes: Vec<u8> = (0..=255).chain(*b"0123456789").cycle().take(640).collect();
        let mut marks = vec![0; bytes.len() + WINDOW];
        let count = mark(&bytes, 64, &mut marks);
        let expected: Vec<u32> =
            (64..640).filter(|&at| !bytes[at as usize].is_ascii_digit()).collect();
        assert_eq!(marks[..count], expected);
    }

    #[test]
    fn numbers_before_a_mark() {
        let text = b"padding 12345678 9 000123456 ";
        assert_eq!(number_in(text, 8, 16), Some(12_345_678));
        assert_eq!(number_in(text, 17, 18), Some(9));
        assert_eq!(number_in(text, 19, 28), None);
        assert_eq!(number_in(text, 20, 28), Some(123_456));
        assert_eq!(number_in(text, 18, 18), None);
        assert_eq!(number_in(b"1 2", 0, 1), None);
    }

    #[test]
    fn decimals_are_those_of_the_standard_library() {
        let mut state = 1u64;
        for _ in 0..200_000 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let (whole, fraction) =
                ((state >> 40) as u32 >> (state & 15), state >> 33 & 0xfff_ffff);
            let places = (state >> 8 & 31) as usize;
            let fraction = &format!("{fraction:08}").repeat(4)[..places];
            let sign = if state >> 63 == 1 { "-" } else { "" };
            let text = match places {
                0 => format!("{sign}{whole}"),
                _ => format!("{sign}{whole}.{fraction}"),
            };
            let padded = format!("{text}\n        ");
            if let Some((number, length)) = leading_decimal(padded.as_bytes()) {
                assert_eq!(number.to_bits(), text.parse::<f32>().unwrap().to_bits(), "{text}");
                assert_eq!(length, text.len());
            }
        }
        let decimal = |text: &str| leading_decimal(format!("{text}         ").as_bytes());
        assert_eq!(decimal("-0.5,"), Some((-0.5, 4)));
        assert_eq!(decimal("0"), Some((0.0, 1)));
        assert_eq!(decimal("-0").map(|(x, _)| x.to_bits()), Some((-0.0f32).to_bits()));
        assert_eq!(decimal("0.1234567890123456789").map(|(_, n)| n), Some(21));
        assert_eq!(decimal("0.12345678"), Some((0.123_456_78, 10)));
        for odd in ["1e5", "1.5e5", ".5", "1.", "nan", "", "-", "1.5.5", "123456789", "+1"] {
            assert_eq!(decimal(odd), None, "{odd}");
        }
        // Halfway between two of single precision.
        assert_eq!(decimal("16777217"), None);
    }
}
