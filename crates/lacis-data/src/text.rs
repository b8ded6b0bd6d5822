//! Lines of numbers, read in parallel: what edge lists and MatrixMarket files have in common.
//!
//! A plain file is cut into pieces of a few megabytes that several threads read and parse at once;
//! a compressed one is unpacked in order, and its pieces are parsed as they come. A piece begins
//! and ends with a line. Memory is bounded by the pieces under way and the entries found so far.

use std::fs::File;
use std::io::Read;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use lacis_core::{Chunk, Coo, Error, Place, Result, Tags};

use crate::Job;
use crate::input::{Input, Packing, read_up_to};

/// About half a million edges, whose sorted run then fills whole huge pages.
const PIECE_BYTES: usize = 8 << 20;
/// A line of a few numbers has no reason to be longer.
const MAX_LINE_BYTES: usize = 1 << 16;

/// What a line holds, and where its entry goes.
#[derive(Clone, Debug)]
pub struct Layout {
    /// Fields on each line: two indices, then numbers.
    pub fields: usize,
    /// Which fields are source and target.
    pub ends: [usize; 2],
    /// Which field is the value, if any.
    pub value: Option<usize>,
    /// The number of the first node: 0 or 1.
    pub base: u32,
    /// One more than the largest index allowed in either field, counted from 0.
    pub bounds: [u32; 2],
    /// Which other entry each entry stands for.
    pub mirror: Mirror,
}

/// Which other entry an off-diagonal entry stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mirror {
    /// None.
    No,
    /// The transposed one, with the same value.
    Same,
    /// The transposed one, with the negative value.
    Negative,
}

/// Something wrong in a piece, `at` bytes from its start.
struct Fault {
    at: usize,
    problem: String,
}

/// Reads the entries of all lines from byte `start` (of the unpacked text) on.
///
/// The first field of a line is the source of an edge, or a matrix row; the second its target. The
/// entries found have targets as rows.
///
/// # Errors
/// The first line's, by position, that is not as the layout says.
pub fn read_entries(path: &Path, start: u64, layout: &Layout, job: &Job<'_>) -> Result<Coo> {
    let tags = if layout.value.is_some() { Tags::Values } else { Tags::Absent };
    let input = Input::open(path)?;
    match input.packing {
        Packing::Plain => read_plain(path, input, start, Coo::new(tags), (layout, job)),
        _ => read_packed(path, input, start, Coo::new(tags), (layout, job)),
    }
}

type Rules<'a> = (&'a Layout, &'a Job<'a>);

fn read_plain(
    path: &Path,
    input: Input,
    start: u64,
    mut coo: Coo,
    (layout, job): Rules<'_>,
) -> Result<Coo> {
    let (file, size) = (input.file, input.size_bytes);
    let done = AtomicU64::new(start);
    let pieces = (start..size).step_by(PIECE_BYTES).collect();
    coo.extend_with(pieces, job.threads, Vec::new, |bytes, from: u64, chunk| {
        job.tick(done.load(Ordering::Relaxed), Some(size))?;
        let to = (from + PIECE_BYTES as u64).min(size);
        let skip = whole_lines(&file, from..to, from == start, bytes)
            .map_err(|fault| fault.into_error(path, from))?;
        parse(&bytes[skip..], layout, chunk).map_err(|fault| {
            let before = from - u64::from(from > start) + (skip + fault.at) as u64;
            let line = 1 + count_lines(&file, before).unwrap_or(0);
            Error::file_at(path, Place::Line(line), fault.problem)
        })?;
        job.tick(done.fetch_add(to - from, Ordering::Relaxed) + to - from, Some(size))
    })?;
    Ok(coo)
}

/// Why a piece could not be cut out of a file.
enum CutFault {
    Io(std::io::Error),
    LongLine,
}

impl CutFault {
    fn into_error(self, path: &Path, offset: u64) -> Error {
        match self {
            CutFault::Io(source) => Error::io("read", path, source),
            CutFault::LongLine => long_line(path, Place::Byte(offset)),
        }
    }
}

fn long_line(path: &Path, place: Place) -> Error {
    let problem =
        format!("a line longer than {MAX_LINE_BYTES} bytes; an edge a line would be right");
    Error::file_at(path, place, problem)
}

/// Reads the lines that begin in `range`, so that each line is in one piece. Returns how many bytes
/// come before the first: the end of a line of the piece before.
fn whole_lines(
    file: &File,
    range: Range<u64>,
    first: bool,
    bytes: &mut Vec<u8>,
) -> std::result::Result<usize, CutFault> {
    // One byte before tells whether a line begins just here.
    let from = if first { range.start } else { range.start - 1 };
    bytes.resize((range.end - from) as usize, 0);
    let got = read_at(file, bytes, from).map_err(CutFault::Io)?;
    bytes.truncate(got);
    let line = memchr::memchr(b'\n', bytes).map_or(bytes.len(), |at| at + 1);
    let skip = if first { 0 } else { line };
    if skip < bytes.len() && bytes.last() != Some(&b'\n') {
        let mut rest = vec![0; MAX_LINE_BYTES];
        let got = read_at(file, &mut rest, range.end).map_err(CutFault::Io)?;
        match memchr::memchr(b'\n', &rest[..got]) {
            Some(end) => bytes.extend_from_slice(&rest[..end]),
            None if got < MAX_LINE_BYTES => bytes.extend_from_slice(&rest[..got]),
            None => return Err(CutFault::LongLine),
        }
    }
    Ok(skip)
}

fn read_at(file: &File, buffer: &mut [u8], offset: u64) -> std::io::Result<usize> {
    let mut got = 0;
    while got < buffer.len() {
        match file.read_at(&mut buffer[got..], offset + got as u64) {
            Ok(0) => break,
            Ok(more) => got += more,
            Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(got)
}

/// How many lines end before `offset`; only asked for to name the place of an error.
fn count_lines(file: &File, offset: u64) -> std::io::Result<u64> {
    let (mut lines, mut at) = (0, 0);
    let mut buffer = vec![0; 1 << 20];
    while at < offset {
        let want = buffer.len().min((offset - at) as usize);
        let got = read_at(file, &mut buffer[..want], at)?;
        if got == 0 {
            break;
        }
        lines += memchr::memchr_iter(b'\n', &buffer[..got]).count() as u64;
        at += got as u64;
    }
    Ok(lines)
}

fn read_packed(
    path: &Path,
    input: Input,
    start: u64,
    mut coo: Coo,
    (layout, job): Rules<'_>,
) -> Result<Coo> {
    let mut pieces =
        Unpacked { reader: input.unpacked(path)?, carry: Vec::new(), done: 0, line: 1 };
    pieces.skip(path, start)?;
    loop {
        let batch = (0..job.threads.count())
            .map_while(|_| pieces.next(path).transpose())
            .collect::<Result<Vec<_>>>()?;
        if batch.is_empty() {
            return Ok(coo);
        }
        coo.extend(batch, job.threads, |(bytes, first_line): (Vec<u8>, u64), chunk| {
            parse(&bytes, layout, chunk).map_err(|fault| {
                let before = memchr::memchr_iter(b'\n', &bytes[..fault.at]).count() as u64;
                Error::file_at(path, Place::Line(first_line + before), fault.problem)
            })
        })?;
        job.tick(pieces.done, None)?;
    }
}

/// Pieces of a text that can only be read in order.
struct Unpacked {
    reader: Box<dyn Read + Send>,
    /// The beginning of a line whose end has not come yet.
    carry: Vec<u8>,
    done: u64,
    line: u64,
}

impl Unpacked {
    fn read(&mut self, path: &Path, buffer: &mut [u8]) -> Result<usize> {
        // A piece at a time, so that an error tells how far the text could be unpacked.
        const STEP: usize = 1 << 16;
        let mut got = 0;
        for part in buffer.chunks_mut(STEP) {
            let wanted = part.len();
            let more = read_up_to(&mut self.reader, part).map_err(|source| {
                let problem = format!("cannot be unpacked: {source}");
                let place = Place::Part(format!("after unpacked byte {}", self.done));
                Error::file_at(path, place, problem)
            })?;
            self.done += more as u64;
            got += more;
            if more < wanted {
                break;
            }
        }
        Ok(got)
    }

    fn skip(&mut self, path: &Path, mut bytes: u64) -> Result<()> {
        let mut buffer = vec![0; 1 << 16];
        while bytes > 0 {
            let want = buffer.len().min(bytes as usize);
            let got = self.read(path, &mut buffer[..want])?;
            if got == 0 {
                break;
            }
            self.line += memchr::memchr_iter(b'\n', &buffer[..got]).count() as u64;
            bytes -= got as u64;
        }
        Ok(())
    }

    /// The next lines and the number of the first, or `None` at the end.
    fn next(&mut self, path: &Path) -> Result<Option<(Vec<u8>, u64)>> {
        let mut bytes = std::mem::take(&mut self.carry);
        let kept = bytes.len();
        bytes.resize(kept + PIECE_BYTES, 0);
        let got = self.read(path, &mut bytes[kept..])?;
        bytes.truncate(kept + got);
        if bytes.is_empty() {
            return Ok(None);
        }
        if got == PIECE_BYTES {
            let end = memchr::memrchr(b'\n', &bytes).map_or(0, |at| at + 1);
            if bytes.len() - end > MAX_LINE_BYTES {
                return Err(long_line(path, Place::Line(self.line)));
            }
            self.carry = bytes.split_off(end);
        }
        let first = self.line;
        self.line += memchr::memchr_iter(b'\n', &bytes).count() as u64;
        Ok(Some((bytes, first)))
    }
}

/// Appends the entries of all lines to the chunk.
fn parse(bytes: &[u8], layout: &Layout, chunk: &mut Chunk) -> std::result::Result<(), Fault> {
    let mut cursor = Cursor { bytes, at: 0 };
    let plain = layout.fields == 2 && layout.ends == [0, 1] && layout.mirror == Mirror::No;
    while cursor.at < bytes.len() {
        if plain {
            cursor.plain_pairs(layout, chunk);
        }
        cursor.skip_blanks();
        match cursor.peek() {
            None | Some(b'\n' | b'#' | b'%') => cursor.skip_line(),
            _ => {
                let line = cursor.at;
                cursor.entry(layout, chunk).map_err(|problem| Fault { at: line, problem })?;
            }
        }
    }
    Ok(())
}

/// The number that eight bytes begin with, and how many of them are its digits.
#[inline(always)]
fn leading_number(bytes: &[u8; 8]) -> (u32, usize) {
    const EACH: u64 = 0x0101_0101_0101_0101;
    // Digits become 0 to 9. Adding 0x76 sets the top bit of everything else; what carries over
    // only reaches later bytes, and the first that is no digit is all we look for.
    let digits = u64::from_le_bytes(*bytes) ^ (0x30 * EACH);
    let others = (digits.wrapping_add(0x76 * EACH) | digits) & (0x80 * EACH);
    let count = others.trailing_zeros() / 8;
    if count == 0 {
        return (0, 0);
    }
    // Zeros come before, then neighbours join: digits to pairs, to fours, to eight.
    let digits = digits << (64 - 8 * count);
    let pairs = (digits.wrapping_mul(10) + (digits >> 8)) & 0x00ff_00ff_00ff_00ff;
    let fours = (pairs.wrapping_mul(100) + (pairs >> 16)) & 0x0000_ffff_0000_ffff;
    let eight = fours.wrapping_mul(10_000) + (fours >> 32);
    (eight as u32, count as usize)
}

struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Cursor<'_> {
    #[inline]
    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    #[inline]
    fn skip_blanks(&mut self) {
        while let Some(b' ' | b'\t' | b'\r' | b'"') = self.peek() {
            self.at += 1;
        }
    }

    fn skip_line(&mut self) {
        let rest = &self.bytes[self.at..];
        self.at += memchr::memchr(b'\n', rest).map_or(rest.len(), |at| at + 1);
    }

    /// Blanks, and at most one comma or semicolon.
    #[inline]
    fn skip_separator(&mut self) {
        self.skip_blanks();
        if let Some(b',' | b';') = self.peek() {
            self.at += 1;
            self.skip_blanks();
        }
    }

    /// Lines of the commonest form, `digits separator digits newline`, as many as there are; stops
    /// before any other, which [`Cursor::entry`] then judges.
    #[inline]
    fn plain_pairs(&mut self, layout: &Layout, chunk: &mut Chunk) {
        const LONGEST: usize = 8 + 1 + 8 + 1;
        let in_bounds = |field: usize, index: u32| index < layout.bounds[field];
        while let Some(line) = self.bytes[self.at..].first_chunk::<LONGEST>() {
            let (source, digits) = leading_number(line.first_chunk().expect("18 are more than 8"));
            let Some(rest) = line[digits + 1..].first_chunk() else { return };
            let (target, more) = leading_number(rest);
            let end = digits + 1 + more;
            let separated = matches!(line[digits], b'\t' | b' ' | b',' | b';');
            let [source, target] = [source, target].map(|index| index.wrapping_sub(layout.base));
            let fits = in_bounds(0, source) && in_bounds(1, target);
            if digits == 0 || more == 0 || !separated || line[end] != b'\n' || !fits {
                return;
            }
            chunk.push(target, source);
            self.at += end + 1;
        }
    }

    /// One line: its two indices, its value, and nothing that the layout does not have.
    #[inline]
    fn entry(&mut self, layout: &Layout, chunk: &mut Chunk) -> std::result::Result<(), String> {
        let (mut ends, mut value) = ([0; 2], 1.0);
        for field in 0..layout.fields {
            if field > 0 {
                self.skip_separator();
            }
            match layout.ends.iter().position(|&end| end == field) {
                Some(end) => ends[end] = self.index(layout, end, field)?,
                None => {
                    let found = self.field(layout, field)?;
                    if layout.value == Some(field) {
                        value = number_of(found)?;
                    }
                }
            }
        }
        let [source, target] = ends;
        self.end_of_line(layout)?;
        if layout.value.is_some() {
            chunk.push_tagged(target, source, value.to_bits());
        } else {
            chunk.push(target, source);
        }
        if layout.mirror != Mirror::No && source != target {
            let value = if layout.mirror == Mirror::Negative { -value } else { value };
            chunk.push(source, target);
            if layout.value.is_some() {
                chunk.tags.push(value.to_bits());
            }
        }
        Ok(())
    }

    #[inline]
    fn index(
        &mut self,
        layout: &Layout,
        end: usize,
        field: usize,
    ) -> std::result::Result<u32, String> {
        let start = self.at;
        let mut index = 0u64;
        while let Some(digit @ b'0'..=b'9') = self.peek() {
            index = index.saturating_mul(10).saturating_add(u64::from(digit - b'0'));
            self.at += 1;
        }
        let ended =
            matches!(self.peek(), None | Some(b' ' | b'\t' | b'\r' | b'\n' | b',' | b';' | b'"'));
        if self.at == start || !ended {
            self.at = start;
            return Err(self.not_an_index(layout, field));
        }
        let counted = index.wrapping_sub(u64::from(layout.base));
        if counted < u64::from(layout.bounds[end]) {
            return Ok(counted as u32);
        }
        if index < u64::from(layout.base) {
            return Err(format!("index {index}; indices count from {}", layout.base));
        }
        let largest = u64::from(layout.bounds[end]) + u64::from(layout.base);
        Err(format!("index {index} is beyond the largest possible, {}", largest.saturating_sub(1)))
    }

    #[cold]
    fn not_an_index(&mut self, layout: &Layout, field: usize) -> String {
        match self.field(layout, field) {
            Err(problem) => problem,
            Ok(found) => {
                let found = String::from_utf8_lossy(&found[..found.len().min(40)]).into_owned();
                if found.starts_with('-') && found[1..].bytes().all(|b| b.is_ascii_digit()) {
                    format!("index {found} is negative; indices count from {}", layout.base)
                } else {
                    format!("'{found}' is no node number; a whole number would be right")
                }
            }
        }
    }

    /// The bytes of a field, at least one.
    fn field(&mut self, layout: &Layout, field: usize) -> std::result::Result<&[u8], String> {
        let rest = &self.bytes[self.at..];
        let is_end = |b: &u8| matches!(b, b' ' | b'\t' | b'\r' | b'\n' | b',' | b';' | b'"');
        let length = rest.iter().position(is_end).unwrap_or(rest.len());
        if length == 0 {
            return Err(format!("{field} fields; {} would be right", layout.fields));
        }
        self.at += length;
        Ok(&rest[..length])
    }

    #[inline]
    fn end_of_line(&mut self, layout: &Layout) -> std::result::Result<(), String> {
        self.skip_blanks();
        match self.peek() {
            Some(b'\n') => self.at += 1,
            None => {}
            Some(_) => {
                return Err(format!("more than {} fields, unlike the first line", layout.fields));
            }
        }
        Ok(())
    }
}

fn number_of(field: &[u8]) -> std::result::Result<f32, String> {
    let text = || String::from_utf8_lossy(&field[..field.len().min(40)]).into_owned();
    let number = std::str::from_utf8(field).ok().and_then(|field| field.parse::<f32>().ok());
    match number {
        Some(number) if number.is_finite() => Ok(number),
        Some(_) => Err(format!("weight '{}' is not finite in single precision", text())),
        None => Err(format!("'{}' is no weight; a number would be right", text())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lacis_core::{Csr, Extent, Repeats, Threads};

    fn layout(fields: usize) -> Layout {
        let value = (fields > 2).then_some(2);
        let (ends, bounds) = ([0, 1], [u32::MAX; 2]);
        Layout { fields, ends, value, base: 0, bounds, mirror: Mirror::No }
    }

    fn entries(text: &str, layout: &Layout) -> std::result::Result<Vec<(u32, u32, f32)>, String> {
        let mut chunk = Chunk::default();
        parse(text.as_bytes(), layout, &mut chunk).map_err(|fault| fault.problem)?;
        let value = |e: usize| chunk.tags.get(e).map_or(1.0, |&bits| f32::from_bits(bits));
        Ok(chunk.places.iter().enumerate().map(|(e, &[row, col])| (row, col, value(e))).collect())
    }

    #[test]
    fn separators_comments_and_line_ends_of_all_kinds() {
        let text = "# c\n% c\n0 1\n\n 2,3\r\n4\t5 \n6 ; 7";
        let expected = vec![(1, 0, 1.0), (3, 2, 1.0), (5, 4, 1.0), (7, 6, 1.0)];
        assert_eq!(entries(text, &layout(2)), Ok(expected));
        assert_eq!(entries("1 2 -0.5\n", &layout(3)), Ok(vec![(2, 1, -0.5)]));
    }

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
    fn the_short_way_and_the_long_way_agree() {
        // A blank at the end sends a line the long way.
        let lines = [(0u32, 1u32), (99_999_999, 7), (7, 100_000_000), (4_000_000_000, 12)];
        let text = |end: &str| lines.map(|(u, v)| format!("{u}\t{v}{end}\n")).concat().repeat(40);
        let short = entries(&text(""), &layout(2)).unwrap();
        assert_eq!(short, entries(&text(" "), &layout(2)).unwrap());
        assert_eq!(short.len(), 160);
        assert_eq!((short[3].1, short[3].0), lines[3]);
        let one_based = Layout { base: 1, bounds: [5, 5], ..layout(2) };
        assert_eq!(entries("1 5\n5 1\n", &one_based), Ok(vec![(4, 0, 1.0), (0, 4, 1.0)]));
        let long = "1 5\n".repeat(20);
        assert!(
            entries(&(long.clone() + "0 1\n"), &one_based).unwrap_err().contains("count from 1")
        );
        assert!(
            entries(&(long + "6 1\n"), &one_based).unwrap_err().contains("largest possible, 5")
        );
    }

    #[test]
    fn what_is_wrong_is_said() {
        let problem = |text, fields| entries(text, &layout(fields)).unwrap_err();
        assert_eq!(problem("1\n", 2), "1 fields; 2 would be right");
        assert_eq!(problem("1 2 3\n", 2), "more than 2 fields, unlike the first line");
        assert_eq!(problem("1 -2\n", 2), "index -2 is negative; indices count from 0");
        assert_eq!(problem("1 x2\n", 2), "'x2' is no node number; a whole number would be right");
        assert_eq!(problem("1 2x\n", 2), "'2x' is no node number; a whole number would be right");
        assert_eq!(problem("1,,2\n", 2), "1 fields; 2 would be right");
        assert!(problem("1 99999999999999999999999\n", 2).contains("beyond the largest"));
        assert!(problem("1 2 NaN\n", 3).contains("not finite"));
        assert!(problem("1 2 1e99\n", 3).contains("not finite"));
        assert!(problem("1 2 w\n", 3).contains("'w' is no weight"));
    }

    #[test]
    fn pieces_meet_at_line_ends_whatever_their_size() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("edges.txt");
        // Lines of many lengths across several pieces, the last without its end.
        let lines: Vec<String> = (0..2_500_000u32).map(|i| format!("{} {}", i % 1000, i)).collect();
        std::fs::write(&path, lines.join("\n")).unwrap();
        assert!(std::fs::metadata(&path).unwrap().len() > 3 * PIECE_BYTES as u64);
        let threads = Threads::new(2).unwrap();
        let coo = read_entries(&path, 0, &layout(2), &Job::quiet(&threads)).unwrap();
        let csr: Csr = coo.into_csr(Extent::default(), Repeats::Keep, &threads).unwrap();
        assert_eq!(csr.nnz(), lines.len());
        assert!(csr.cols().iter().enumerate().all(|(e, &j)| j as usize == e % 1000));
    }
}
