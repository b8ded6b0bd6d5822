//! Lines of numbers, read in parallel: what edge lists and MatrixMarket files have in common.
//!
//! Memory is bounded by the pieces under way and the entries found so far.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use lacis_core::{Chunk, Coo, Result, Tags};

use crate::Job;
use crate::digits::{leading_decimal, leading_number};
use crate::lines::whole;
use crate::pairs::Pairs;
use crate::pieces::{Piece, STEP_BYTES, Text};
use crate::wide::Wide;

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
    /// Whether the line goes on with a Python dictionary, as networkx writes it: where there is a
    /// value, it is its `weight`.
    pub attributes: bool,
}

impl Layout {
    /// Two numbers a line, from `base` on.
    pub fn pairs(base: u32, bounds: [u32; 2]) -> Self {
        let (mirror, attributes) = (Mirror::No, false);
        Layout { fields: 2, ends: [0, 1], value: None, base, bounds, mirror, attributes }
    }
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

/// What lines hold.
pub(crate) struct Entries {
    pub coo: Coo,
    /// How many lines have an entry; mirrored ones have another.
    pub lines: u64,
}

/// Reads the entries of all lines from byte `start` (of the unpacked text) on.
///
/// The first field of a line is the source of an edge, or a matrix row; the second its target. The
/// entries found have targets as rows.
///
/// # Errors
/// The first line's, by position, that is not as the layout says.
pub fn read_entries(path: &Path, start: u64, layout: &Layout, job: &Job<'_>) -> Result<Coo> {
    read_counted(path, start, layout, job).map(|entries| entries.coo)
}

/// As [`read_entries`], and how many lines there were.
///
/// # Errors
/// As there.
pub(crate) fn read_counted(
    path: &Path,
    start: u64,
    layout: &Layout,
    job: &Job<'_>,
) -> Result<Entries> {
    let tags = if layout.value.is_some() { Tags::Values } else { Tags::Absent };
    let (mut coo, loops) = (Coo::new(tags), AtomicU64::new(0));
    add_entries(&mut coo, (path, start), layout, job, |chunk| {
        if layout.mirror != Mirror::No {
            let found = chunk.places.iter().filter(|[row, col]| row == col).count();
            loops.fetch_add(found as u64, Ordering::Relaxed);
        }
    })?;
    // Of lines that are mirrored only loops have one entry.
    let lines = match layout.mirror {
        Mirror::No => coo.len() as u64,
        _ => (coo.len() as u64 + loops.into_inner()) / 2,
    };
    Ok(Entries { coo, lines })
}

/// Appends the entries of all lines from a byte on, each chunk once somebody has looked at it.
///
/// # Errors
/// As [`read_entries`].
pub(crate) fn add_entries(
    coo: &mut Coo,
    (path, start): (&Path, u64),
    layout: &Layout,
    job: &Job<'_>,
    look: impl Fn(&mut Chunk) + Sync,
) -> Result<()> {
    Text::open(path, start, MAX_LINE_BYTES)?.of_edges().batches(job, |batch| {
        coo.extend_with(batch, job.threads, Vec::new, |bytes, piece: Piece<'_>, chunk| {
            piece.read(bytes, STEP_BYTES, job, |part| {
                parse(part.bytes, layout, chunk).map_err(|f| part.problem(f.at, f.problem))
            })?;
            look(chunk);
            Ok(())
        })
    })
}

/// Appends the entries of all lines to the chunk.
fn parse(bytes: &[u8], layout: &Layout, chunk: &mut Chunk) -> std::result::Result<(), Fault> {
    let mut cursor = Cursor { bytes, at: 0 };
    let in_order = layout.ends == [0, 1] && !layout.attributes;
    let mut wide = Wide::of(bytes, layout);
    let mut pairs = (layout.fields == 2 && in_order).then(|| Pairs::of(bytes, layout));
    let triples = layout.fields == 3 && layout.value == Some(2) && in_order;
    while cursor.at < bytes.len() {
        let mut until = bytes.len();
        if let Some(wide) = &mut wide {
            (cursor.at, until) = wide.read(cursor.at, chunk);
        }
        match &mut pairs {
            Some(pairs) => cursor.at = pairs.read(cursor.at, until, chunk),
            None if triples => cursor.plain_triples(until, layout, chunk),
            None => {}
        }
        let until = pairs.as_ref().map_or(0, |pairs| pairs.odd_until);
        cursor.lines(until, layout, chunk)?;
    }
    Ok(())
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

    /// The next line, and those that begin before a byte, in whatever form.
    #[inline]
    fn lines(
        &mut self,
        until: usize,
        layout: &Layout,
        chunk: &mut Chunk,
    ) -> std::result::Result<(), Fault> {
        loop {
            self.skip_blanks();
            match self.peek() {
                None | Some(b'\n' | b'#' | b'%') => self.skip_line(),
                _ => {
                    let line = self.at;
                    self.entry(layout, chunk).map_err(|problem| Fault { at: line, problem })?;
                }
            }
            if self.at >= until.min(self.bytes.len()) {
                return Ok(());
            }
        }
    }

    fn skip_line(&mut self) {
        let rest = &self.bytes[self.at..];
        self.at += memchr::memchr(b'\n', rest).map_or(rest.len(), |at| at + 1);
    }

    /// Blanks, and at most one comma, semicolon or bar.
    #[inline]
    fn skip_separator(&mut self) {
        self.skip_blanks();
        if let Some(b',' | b';' | b'|') = self.peek() {
            self.at += 1;
            self.skip_blanks();
        }
    }

    /// Lines with a weight in the commonest form, as many as there are up to a byte; stops before
    /// any other, which [`Cursor::entry`] then judges.
    #[inline]
    fn plain_triples(&mut self, until: usize, layout: &Layout, chunk: &mut Chunk) {
        const LONGEST: usize = 8 + 1 + 8 + 1 + 18;
        let separates = |byte: u8| matches!(byte, b'\t' | b' ' | b',' | b';' | b'|');
        while let Some(line) = self.bytes[self.at..].first_chunk::<LONGEST>() {
            if self.at >= until {
                return;
            }
            let (source, digits) = leading_number(line.first_chunk().expect("36 are more than 8"));
            let Some(rest) = line[digits + 1..].first_chunk() else { return };
            let (target, more) = leading_number(rest);
            let end = digits + 1 + more;
            let Some((value, length)) = leading_decimal(&line[end + 1..]) else { return };
            let [source, target] = [source, target].map(|index| index.wrapping_sub(layout.base));
            let fits = source < layout.bounds[0] && target < layout.bounds[1];
            let separated = separates(line[digits]) && separates(line[end]);
            let last = end + 1 + length;
            if digits == 0 || more == 0 || !separated || line.get(last) != Some(&b'\n') || !fits {
                return;
            }
            chunk.push_tagged(target, source, value.to_bits());
            if layout.mirror != Mirror::No && source != target {
                let value = if layout.mirror == Mirror::Negative { -value } else { value };
                chunk.push_tagged(source, target, value.to_bits());
            }
            self.at += last + 1;
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
        if layout.attributes {
            value = self.attributes(layout.value.is_some())?;
        }
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
        if self.at == start || !self.peek().is_none_or(ends_field) {
            self.at = start;
            let Some((number, length)) = self.written_as_fraction() else {
                return Err(self.not_an_index(layout, field));
            };
            (index, self.at) = (number, start + length);
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

    /// What is left of a line, `{'weight': 1.5, …}` or `{}`: its weight, if one is wanted.
    fn attributes(&mut self, weighted: bool) -> std::result::Result<f32, String> {
        let rest = &self.bytes[self.at..];
        let rest = &rest[..memchr::memchr(b'\n', rest).unwrap_or(rest.len())];
        self.at += rest.len();
        let inside = rest.trim_ascii().strip_prefix(b"{").and_then(|rest| rest.strip_suffix(b"}"));
        let inside = inside.ok_or("no {attributes} after the edge, unlike the first line")?;
        if !weighted {
            return Ok(1.0);
        }
        let mut weights = inside.split(|&b| b == b',').filter_map(|pair| {
            let at = memchr::memchr(b':', pair)?;
            let key = pair[..at].trim_ascii();
            matches!(key, b"'weight'" | b"\"weight\"").then(|| pair[at + 1..].trim_ascii())
        });
        number_of(weights.next_back().ok_or("an edge without a weight, unlike the first")?)
    }

    /// A number that is whole but written with a point or an exponent, as NumPy's `savetxt` does.
    #[cold]
    fn written_as_fraction(&self) -> Option<(u64, usize)> {
        let rest = &self.bytes[self.at..];
        let length = rest.iter().position(|b| ends_field(*b)).unwrap_or(rest.len());
        let number = whole(&rest[..length])?;
        Some((u64::try_from(number).ok()?, length))
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
        let length = rest.iter().position(|b| ends_field(*b)).unwrap_or(rest.len());
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

/// Whether a byte comes after a field.
#[inline(always)]
fn ends_field(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\r' | b'\n' | b',' | b';' | b'|' | b'"')
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
        Layout { fields, value, ..Layout::pairs(0, [u32::MAX; 2]) }
    }

    fn entries(text: &str, layout: &Layout) -> std::result::Result<Vec<(u32, u32, f32)>, String> {
        let mut chunk = Chunk::default();
        parse(text.as_bytes(), layout, &mut chunk).map_err(|fault| fault.problem)?;
        let value = |e: usize| chunk.tags.get(e).map_or(1.0, |&bits| f32::from_bits(bits));
        Ok(chunk.places.iter().enumerate().map(|(e, &[row, col])| (row, col, value(e))).collect())
    }

    #[test]
    fn separators_comments_and_line_ends_of_all_kinds() {
        let text = "# c\n% c\n0 1\n\n 2,3\r\n4\t5 \n6 ; 7\n8|9\n1.0 2e1";
        let mut expected = vec![(1, 0, 1.0), (3, 2, 1.0), (5, 4, 1.0), (7, 6, 1.0)];
        expected.extend([(9, 8, 1.0), (20, 1, 1.0)]);
        assert_eq!(entries(text, &layout(2)), Ok(expected));
        assert_eq!(entries("1 2 -0.5\n", &layout(3)), Ok(vec![(2, 1, -0.5)]));
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

    /// Lines of numbers of all lengths, `end` after each.
    fn many(fields: usize, separator: &str, end: &str) -> Vec<String> {
        let mut state = 7u64;
        let mut draw = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let digits = 10u64.pow((state >> 60) as u32 % 8 + 1);
            (state >> 20) % digits
        };
        let line = |_| {
            let (u, v, whole, fraction) = (draw(), draw(), draw() % 10_000_000, draw());
            match fields {
                2 => format!("{u}{separator}{v}{end}"),
                _ => format!("{u}{separator}{v}{separator}{whole}.{fraction}{end}"),
            }
        };
        (0..3000).map(line).collect()
    }

    fn sorted(mut found: Vec<(u32, u32, f32)>) -> Vec<(u32, u32, u32)> {
        found.sort_by(|a, b| a.partial_cmp(b).unwrap());
        found.into_iter().map(|(row, col, value)| (row, col, value.to_bits())).collect()
    }

    #[test]
    fn blocks_of_lines_are_read_as_single_lines_are() {
        let odd = ["# c", "", "3,4 ", "1.0,2e1", "5, 6", "7,8\r", "000000001,2", "1;2", "\"1\",2"];
        let odd_weights = ["1,2,3", "1,2,-0.5", "1,2,1e-3", "1,2,0.123456789012", "1,2,16777217.0"];
        for (fields, separator) in [(2, ","), (2, "\t"), (2, " "), (3, ","), (3, ";"), (3, "|")] {
            for mirror in [Mirror::No, Mirror::Same, Mirror::Negative] {
                let layout = Layout { mirror, ..layout(fields) };
                // A blank at the end sends a line the long way.
                let mut plain = many(fields, separator, "");
                let mut long = many(fields, separator, " ");
                for (at, line) in
                    if fields == 2 { &odd[..] } else { &odd_weights[..] }.iter().enumerate()
                {
                    plain[1000 + 150 * at] = (*line).to_owned();
                    long[1000 + 150 * at] = (*line).to_owned();
                }
                let [plain, long] = [plain, long].map(|lines| lines.join("\n"));
                let (plain, long) = (entries(&plain, &layout), entries(&long, &layout));
                assert_eq!(sorted(plain.unwrap()), sorted(long.unwrap()));
            }
        }
    }

    /// Every line the long way: what all short ways must agree with.
    fn slowly(text: &[u8], layout: &Layout, chunk: &mut Chunk) -> std::result::Result<(), Fault> {
        let mut cursor = Cursor { bytes: text, at: 0 };
        while cursor.at < text.len() {
            cursor.lines(0, layout, chunk)?;
        }
        Ok(())
    }

    #[test]
    fn damaged_blocks_are_judged_as_single_lines_are() {
        let bytes = b"0123456789,\n\r\t .-e#x\x00\xff\"";
        let mut state = 3u64;
        let mut draw = |below: usize| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) as usize % below
        };
        for round in 0..1500 {
            let layout = Layout { bounds: [99_999_990; 2], ..layout(2 + round % 2) };
            let mut text = many(layout.fields, ",", "")[..1000].join("\n").into_bytes();
            for _ in 0..draw(4) {
                let at = draw(text.len());
                match draw(3) {
                    0 => text[at] = bytes[draw(bytes.len())],
                    1 => text.insert(at, bytes[draw(bytes.len())]),
                    _ => drop(text.remove(at)),
                }
            }
            let (mut short, mut long) = (Chunk::default(), Chunk::default());
            let found = parse(&text, &layout, &mut short).map_err(|f| (f.at, f.problem));
            let wanted = slowly(&text, &layout, &mut long).map_err(|f| (f.at, f.problem));
            assert_eq!(found, wanted, "round {round}");
            if found.is_ok() {
                assert!(short.places == long.places && short.tags == long.tags, "round {round}");
            }
        }
    }

    #[test]
    fn a_wrong_line_in_a_block_is_told_as_alone() {
        let wrong =
            ["x,1", "1", "1,2,3", "1,99999999999", "-1,2", "1,,2", ",1,2", "1,2x", "1\x002"];
        for line in wrong {
            let mut lines = many(2, ",", "");
            lines[1500] = line.to_owned();
            let problem = entries(&lines.join("\n"), &layout(2)).unwrap_err();
            assert_eq!(problem, entries(line, &layout(2)).unwrap_err(), "{line}");
        }
        let mut lines = many(2, ",", "");
        lines[1500] = "123456,5".to_owned();
        for (base, bound) in [(1, 99_999_999), (0, 123_456)] {
            let layout = Layout { base, bounds: [bound; 2], ..layout(2) };
            assert!(entries(&lines.join("\n"), &layout).is_err());
        }
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
        assert!(std::fs::metadata(&path).unwrap().len() > 3 * crate::pieces::PIECE_BYTES as u64);
        let threads = Threads::new(2).unwrap();
        let coo = read_entries(&path, 0, &layout(2), &Job::quiet(&threads)).unwrap();
        let csr: Csr = coo.into_csr(Extent::default(), Repeats::Keep, &threads).unwrap();
        assert_eq!(csr.nnz(), lines.len());
        assert!(csr.cols().iter().enumerate().all(|(e, &j)| j as usize == e % 1000));
    }
}
