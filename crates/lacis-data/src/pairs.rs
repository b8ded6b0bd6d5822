//! Lines of the commonest form, `digits separator digits`, as many as come one after another.
//!
//! Lines are read a block at a time as if all were of that form; where one is not, the whole block
//! is left to a reader that knows every form, and after a few such blocks so is the rest.

use lacis_core::Chunk;

use crate::digits::{WINDOW, mark, number_in};
use crate::text::{Layout, Mirror};

/// A block, its marks and its entries stay in the nearest caches.
const BLOCK_BYTES: usize = 64 * WINDOW;
/// After so many blocks with a line of another form nothing else is expected.
const MAX_ODD_BLOCKS: usize = 4;

/// Which bytes stand between two numbers.
const SEPARATES: [bool; 256] = {
    let mut table = [false; 256];
    table[b'\t' as usize] = true;
    table[b' ' as usize] = true;
    table[b',' as usize] = true;
    table[b';' as usize] = true;
    table[b'|' as usize] = true;
    table
};

/// Pairs of numbers in some lines.
pub(crate) struct Pairs<'a> {
    bytes: &'a [u8],
    layout: &'a Layout,
    /// Where lines that are not of the commonest form may go on to.
    pub odd_until: usize,
    odd_blocks: usize,
    /// How a line ends: with or without a carriage return.
    crlf: bool,
    marks: Vec<u32>,
}

impl<'a> Pairs<'a> {
    pub fn of(bytes: &'a [u8], layout: &'a Layout) -> Self {
        let end = memchr::memchr(b'\n', bytes).unwrap_or(0);
        let crlf = end > 0 && bytes[end - 1] == b'\r';
        let marks = vec![0; BLOCK_BYTES + WINDOW];
        Pairs { bytes, layout, odd_until: 0, odd_blocks: 0, crlf, marks }
    }

    /// Reads lines from the beginning of one on, up to about a byte; returns where the first begins
    /// that was not read.
    pub fn read(&mut self, mut at: usize, until: usize, chunk: &mut Chunk) -> usize {
        let enough = |at: usize| at < until && self.bytes.len() - at >= WINDOW;
        // Numbers are read backwards from their ends, eight bytes of them.
        while at >= 8 && self.odd_blocks < MAX_ODD_BLOCKS && enough(at) {
            let before = chunk.places.len();
            let end = (at + BLOCK_BYTES).min(self.bytes.len());
            let next = match self.crlf {
                true => self.block::<3>(at, end, chunk),
                false => self.block::<2>(at, end, chunk),
            };
            let Some(next) = next else {
                chunk.places.truncate(before);
                self.odd_blocks += 1;
                self.odd_until = end;
                return at;
            };
            if self.layout.mirror != Mirror::No {
                for e in before..chunk.places.len() {
                    let [row, col] = chunk.places[e];
                    if row != col {
                        chunk.push(col, row);
                    }
                }
            }
            if next == at {
                break;
            }
            at = next;
        }
        self.odd_until = 0;
        at
    }

    /// Reads the whole lines of a block, each with so many marks; `None` where one is of another
    /// form. Returns where the first line begins that is not whole.
    fn block<const MARKS: usize>(
        &mut self,
        at: usize,
        end: usize,
        chunk: &mut Chunk,
    ) -> Option<usize> {
        let (bytes, layout) = (self.bytes, self.layout);
        let count = mark(&bytes[..end], at, &mut self.marks);
        let (mut start, mut odd) = (at, false);
        let entry = |marks: &[u32; MARKS]| {
            let [first, second] = [marks[0] as usize, marks[1] as usize];
            let last = marks[MARKS - 1] as usize;
            let source = number_in(bytes, start, first);
            let target = number_in(bytes, first + 1, second);
            let index = |number: Option<u32>| number.unwrap_or(0).wrapping_sub(layout.base);
            let [row, col] = [index(target), index(source)];
            odd |= source.is_none() | target.is_none() | (bytes[last] != b'\n');
            odd |= !SEPARATES[usize::from(bytes[first])];
            odd |= MARKS == 3 && (bytes[second] != b'\r' || last != second + 1);
            odd |= col >= layout.bounds[0] || row >= layout.bounds[1];
            start = last + 1;
            [row, col]
        };
        let (lines, _) = self.marks[..count].as_chunks::<MARKS>();
        chunk.places.extend(lines.iter().map(entry));
        (!odd).then_some(start)
    }
}
