//! Lines read one after another, of files whose lines are not all alike.

use std::io::{BufRead, BufReader, Read};
use std::path::Path;

use lacis_core::{Error, Place, Result};

use crate::Job;
use crate::input::{Input, Unpacked};
use crate::pieces::long_line;

/// Room for the neighbours of a hub, or the features of a node.
pub(crate) const MAX_LINE_BYTES: usize = 16 << 20;
/// How many lines are read between two looks at the clock.
const TICK_LINES: u64 = 1 << 12;

/// The lines of a file, perhaps packed.
pub(crate) struct Lines<'a> {
    path: &'a Path,
    job: &'a Job<'a>,
    reader: BufReader<Unpacked>,
    line: Vec<u8>,
    number: u64,
}

impl<'a> Lines<'a> {
    pub fn open(path: &'a Path, job: &'a Job<'a>) -> Result<Self> {
        Ok(Lines::of(path, job, Input::open(path)?.unpacked(path)?))
    }

    /// As [`Lines::open`], of a list of edges, which cannot be packed as well as other text.
    pub fn open_edges(path: &'a Path, job: &'a Job<'a>) -> Result<Self> {
        let input = Input::open(path)?;
        let max_ratio = input.packing.edges_ratio();
        Ok(Lines::of(path, job, input.unpacked(path)?.with_max_ratio(max_ratio)))
    }

    fn of(path: &'a Path, job: &'a Job<'a>, unpacked: Unpacked) -> Self {
        let reader = BufReader::with_capacity(1 << 18, unpacked);
        Lines { path, job, reader, line: Vec::new(), number: 0 }
    }

    /// The most bytes that the file may unpack to, not counting the first few millions.
    pub fn most_bytes(&self) -> usize {
        let unpacked = self.reader.get_ref();
        unpacked.progress().1.saturating_mul(unpacked.max_ratio()) as usize
    }

    /// The next line without its end, or `None` at the end of the file.
    pub fn next(&mut self) -> Result<Option<&[u8]>> {
        self.line.clear();
        let limit = MAX_LINE_BYTES as u64 + 1;
        let read = (&mut self.reader).take(limit).read_until(b'\n', &mut self.line);
        let got = read.map_err(|source| {
            let place = Place::Line(self.number + 1);
            Error::file_at(self.path, place, format!("cannot be unpacked: {source}"))
        })?;
        if got == 0 {
            return Ok(None);
        }
        self.number += 1;
        if got as u64 == limit {
            return Err(long_line(self.path, Place::Line(self.number), MAX_LINE_BYTES));
        }
        if self.number.is_multiple_of(TICK_LINES) {
            let (done, size) = self.reader.get_ref().progress();
            self.job.tick(done, Some(size))?;
        }
        let mark = if self.number == 1 { crate::edges::after_mark(&self.line) } else { 0 };
        let line = self.line[mark..].strip_suffix(b"\n").unwrap_or(&self.line[mark..]);
        Ok(Some(line.strip_suffix(b"\r").unwrap_or(line)))
    }

    /// The next line that is not blank.
    pub fn next_full(&mut self) -> Result<Option<&[u8]>> {
        loop {
            // Asked twice, for the borrow of the first answer would last.
            match self.next()? {
                None => return Ok(None),
                Some(line) if line.trim_ascii().is_empty() => {}
                Some(_) => break,
            }
        }
        let line = self.line.trim_ascii();
        Ok(Some(line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line)))
    }

    /// The line that came last.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Something wrong with the line that came last.
    pub fn problem(&self, problem: impl Into<String>) -> Error {
        Error::file_at(self.path, Place::Line(self.number.max(1)), problem)
    }
}

/// The fields of a line: blanks, tabs, commas and semicolons separate, quotes are dropped.
pub(crate) fn fields(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    line.split(|&b| is_separator(b)).filter(|field| !field.is_empty())
}

#[inline(always)]
pub(crate) fn is_separator(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b',' | b';' | b'\r' | b'"')
}

/// A whole number that fits.
pub(crate) fn index(field: &[u8]) -> Option<u32> {
    if field.is_empty() || field.len() > 10 {
        return None;
    }
    let digit = |n: u64, &b: &u8| b.is_ascii_digit().then(|| n * 10 + u64::from(b - b'0'));
    field.iter().try_fold(0, digit).and_then(|n| u32::try_from(n).ok())
}

/// A whole number with a sign, perhaps written as `1.0`.
pub(crate) fn whole(field: &[u8]) -> Option<i64> {
    let text = std::str::from_utf8(field.trim_ascii()).ok()?;
    let exact = |x: &f64| x.fract() == 0.0 && x.abs() < 9e15;
    text.parse().ok().or_else(|| text.parse::<f64>().ok().filter(exact).map(|x| x as i64))
}

/// A finite number.
pub(crate) fn number(field: &[u8]) -> Option<f32> {
    // The commonest of all: features that are there or not.
    if let [digit @ b'0'..=b'9'] = field {
        return Some(f32::from(digit - b'0'));
    }
    let text = std::str::from_utf8(field.trim_ascii()).ok()?;
    text.parse::<f32>().ok().filter(|x| x.is_finite())
}

/// A field in an error message: as text, and not too much of it.
pub(crate) fn shown(field: &[u8]) -> String {
    String::from_utf8_lossy(&field[..field.len().min(40)]).escape_debug().to_string()
}
