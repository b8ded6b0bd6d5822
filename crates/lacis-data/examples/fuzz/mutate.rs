//! Changes that readers stumble over: of bytes, of numbers in text, of words in a header.

/// A small generator of its own: what it draws must not change with the library.
pub struct Draw(pub u64);

impl Draw {
    pub fn next(&mut self, below: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as usize % below.max(1)
    }

    fn one<'a>(&mut self, of: &[&'a [u8]]) -> &'a [u8] {
        of[self.next(of.len())]
    }
}

/// Numbers, words and marks that readers stumble over.
const WORDS: &[&[u8]] = &[
    b"-1",
    b"0",
    b"4294967295",
    b"4294967296",
    b"99999999999999999999",
    b"nan",
    b"inf",
    b"1e999",
    b"\n",
    b"\r\n",
    b"\t",
    b",",
    b"\"",
    b"[",
    b"{",
    b"\0",
    b"\xff\xff\xff\xff",
    b"\x00\x00\x00\x80",
    b"\xef\xbb\xbf",
    b"../",
    b"%",
    b"#",
    b"1000000",
    b"1.5",
    b"(",
    b"\x85",
    b".",
    b"# Nodes: 70000",
    b"source,target,weight\n",
    b"'|O'",
    b"'>i2'",
    b"'<U7'",
    b"'fortran_order': True",
    b"symmetric",
    b"integer",
    b"csc",
    b"coo",
];

/// Numbers that lie at the edge of something.
const NUMBERS: &[&str] =
    &["0", "1", "2", "-1", "255", "65536", "70000", "2147483648", "4294967295", "1e30", "-0.5"];
const WHOLE: &[u64] = &[0, 1, 2, 7, 127, 255, 65535, 70_000, 1 << 31, u32::MAX as u64, u64::MAX];

/// A few changes at random places; `other` lends what is copied over.
pub fn mutate(bytes: &mut Vec<u8>, other: &[u8], draw: &mut Draw) {
    for _ in 0..1 + draw.next(4) {
        change(bytes, other, draw);
    }
}

fn change(bytes: &mut Vec<u8>, other: &[u8], draw: &mut Draw) {
    let at = draw.next(bytes.len() + 1);
    let end = (at + draw.next(64)).min(bytes.len());
    match draw.next(12) {
        0 => bytes.truncate(at),
        1 => bytes.splice(at..at, draw.one(WORDS).iter().copied()).for_each(drop),
        2 => {
            let end = (at + draw.next(16)).min(bytes.len());
            bytes.splice(at..end, draw.one(WORDS).iter().copied()).for_each(drop);
        }
        3 => drop(bytes.drain(at..end)),
        4 => {
            let copy = bytes[at..end].repeat(1 + draw.next(20));
            bytes.splice(at..at, copy).for_each(drop);
        }
        5 => {
            let value = draw.next(256) as u8;
            bytes.iter_mut().skip(at).take(1).for_each(|byte| *byte = value);
        }
        6 | 7 => number(bytes, at, draw),
        8 => word(bytes, at, draw),
        9 => {
            let from = draw.next(other.len() + 1);
            let to = (from + draw.next(64)).min(other.len());
            bytes.splice(at..end, other[from..to].iter().copied()).for_each(drop);
        }
        _ => {
            let bit = 1 << draw.next(8);
            bytes.iter_mut().skip(at).take(1).for_each(|byte| *byte ^= bit);
        }
    }
}

/// Writes another number over the one in text that is next.
fn number(bytes: &mut Vec<u8>, at: usize, draw: &mut Draw) {
    let is_digit = |b: &u8| b.is_ascii_digit();
    let Some(start) = bytes[at..].iter().position(is_digit).map(|found| at + found) else { return };
    let length = bytes[start..].iter().position(|b| !is_digit(b)).unwrap_or(bytes.len() - start);
    let new = NUMBERS[draw.next(NUMBERS.len())].bytes();
    bytes.splice(start..start + length, new).for_each(drop);
}

/// Writes a binary number over some bytes, in either order.
fn word(bytes: &mut [u8], at: usize, draw: &mut Draw) {
    let at = if draw.next(2) == 0 { at & !3 } else { at };
    let value = WHOLE[draw.next(WHOLE.len())];
    let size = [1, 2, 4, 8][draw.next(4)];
    let written = if draw.next(4) == 0 { value.to_be_bytes() } else { value.to_le_bytes() };
    bytes.iter_mut().skip(at).zip(&written[..size]).for_each(|(byte, &new)| *byte = new);
}
