//! numpy's `.npy`: one array in a file, versions 1 to 3, read from anything and written.
//!
//! ```text
//!  bytes ──► Header ──► raw items, a chunk at a time ──► numbers of the wanted type
//!            checked     as they really arrive            each checked, in one pass
//! ```
//! Memory grows with the data that came, never with the size that a header claims. Nothing is
//! executed: object arrays, which are pickles, are recognised and refused.

mod edges;
mod header;
mod number;
mod write;

use std::io::{self, ErrorKind, Read};
use std::path::Path;

use bytemuck::Pod;
use lacis_core::{Buffer, Error, Place, Result};

use crate::Job;
use crate::input::read_up_to;

pub use edges::{is_edge_index, read};
pub use header::{Dtype, Endian, Header, Kind, Order};
pub use number::Number;
pub use write::{Item, bytes_of, descr, write, write_header};

pub(crate) use number::{convert, is_convertible};

/// How many items are converted at a time: their raw bytes fit in a core's L2.
const CHUNK_ITEMS: usize = 1 << 16;
/// numpy itself reads no header longer than 10,000 characters unless told to.
const MAX_HEADER_BYTES: usize = 1 << 16;

/// Where bytes come from, which errors name, and who watches them come.
#[derive(Clone, Copy)]
pub struct Source<'a> {
    /// The file.
    pub path: &'a Path,
    /// The part of it that is read, if it has parts.
    pub member: Option<&'a str>,
    job: Job<'a>,
    done_before: u64,
    total: Option<u64>,
}

impl<'a> Source<'a> {
    /// A file as a whole.
    pub fn file(path: &'a Path, job: &Job<'a>) -> Self {
        Source { path, member: None, job: *job, done_before: 0, total: None }
    }

    /// A part of the file: an archive's member, an array of a pickle.
    pub fn with_member(self, member: &'a str) -> Self {
        let member = Some(member);
        Source { member, ..self }
    }

    /// Progress counts from `done` on, of `total` bytes.
    pub fn with_progress(self, done: u64, total: Option<u64>) -> Self {
        Source { done_before: done, total, ..self }
    }

    /// A problem of the array as a whole.
    pub fn problem(&self, problem: impl Into<String>) -> Error {
        let place = match self.member {
            Some(member) => Place::Part(member.to_owned()),
            None => Place::Whole,
        };
        Error::file_at(self.path, place, problem)
    }

    /// A problem at a byte of the array's file.
    pub fn problem_at(&self, byte: u64, problem: impl Into<String>) -> Error {
        let place = match self.member {
            Some(member) => Place::Part(format!("{member}, byte {byte}")),
            None => Place::Byte(byte),
        };
        Error::file_at(self.path, place, problem)
    }

    /// An error of another layer, told as one of this file.
    pub fn blame(&self, error: Error) -> Error {
        match error {
            Error::Interrupted | Error::File { .. } | Error::Io { .. } => error,
            other => self.problem(other.to_string()),
        }
    }

    fn io(&self, byte: u64, error: io::Error) -> Error {
        match error.kind() {
            // What decompression and checksums say of damaged data.
            ErrorKind::InvalidData | ErrorKind::InvalidInput | ErrorKind::UnexpectedEof => {
                self.problem_at(byte, format!("the data are damaged: {error}"))
            }
            _ => Error::io("read", self.path, error),
        }
    }

    fn tick(&self, done: u64) -> Result<()> {
        self.job.tick(self.done_before + done, self.total)
    }
}

/// An array in C order.
#[derive(Clone, Debug)]
pub struct Array<T: Pod> {
    /// Its extent along each axis.
    pub shape: Vec<usize>,
    /// Its items, the last index running fastest.
    pub data: Buffer<T>,
}

/// Reads a `.npy` file of numbers that must be finite.
///
/// # Errors
/// When it is no such file, or a number is not finite.
pub fn read_finite(path: &Path, job: &Job<'_>) -> Result<Array<f32>> {
    let file = io::BufReader::new(crate::input::open_file(path)?.0);
    Npy::open(Source::file(path, job), file)?.finite()
}

/// An array whose header is read and whose items are still to come.
pub struct Npy<'a, R> {
    source: Source<'a>,
    header: Header,
    len: usize,
    reader: R,
    /// Bytes read so far.
    at: u64,
}

impl<'a, R: Read> Npy<'a, R> {
    /// Reads the header.
    ///
    /// # Errors
    /// When it is none, or says what is not read.
    pub fn open(source: Source<'a>, mut reader: R) -> Result<Self> {
        let mut start = [0; 8];
        let got = read_up_to(&mut reader, &mut start).map_err(|e| source.io(0, e))?;
        if got < start.len() || !start.starts_with(b"\x93NUMPY") {
            let problem = "this is no array of numpy: it should start with \\x93NUMPY";
            return Err(source.problem_at(0, problem));
        }
        let wide = match start[6] {
            1 => 2,
            2 | 3 => 4,
            version => {
                let problem = format!("version {version} of the format is not read; 1 to 3 are");
                return Err(source.problem_at(6, problem));
            }
        };
        let mut length = [0; 4];
        header_bytes(&source, &mut reader, (8, &mut length[..wide]))?;
        let length = u32::from_le_bytes(length) as usize;
        if length > MAX_HEADER_BYTES {
            let problem = format!("the header is {length} bytes long; numpy writes a few hundred");
            return Err(source.problem_at(8, problem));
        }
        let mut text = vec![0; length];
        let text_at = 8 + wide as u64;
        header_bytes(&source, &mut reader, (text_at, &mut text))?;
        let header = Header::parse(&text)
            .map_err(|(at, problem)| source.problem_at(text_at + at as u64, problem))?;
        Npy::with_header(source, header, reader, text_at + length as u64)
    }

    /// Items that start here, their header known from elsewhere; `at` bytes came before.
    ///
    /// # Errors
    /// When the header's shape cannot be.
    pub fn with_header(source: Source<'a>, header: Header, reader: R, at: u64) -> Result<Self> {
        let Some(len) = header.n_items() else {
            let shape = header.shape_text();
            return Err(source.problem(format!("no machine holds an array of shape {shape}")));
        };
        Ok(Npy { source, header, len, reader, at })
    }

    /// What the header says.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// Where the array comes from.
    pub fn source(&self) -> &Source<'a> {
        &self.source
    }

    /// The items as they lie in the file, some at a time: `take` gets the position of the first.
    ///
    /// # Errors
    /// As [`Npy::numbers`]; when `take` fails.
    pub fn batches<T: Number>(
        mut self,
        size: usize,
        mut take: impl FnMut(usize, &[T]) -> Result<()>,
    ) -> Result<()> {
        let dtype = self.header.dtype;
        self.check_dtype(is_convertible::<T>(dtype), T::WANTED)?;
        let mut batch = Vec::new();
        self.for_chunks(|source, first, raw| {
            let filled = batch.len();
            batch.resize(filled + raw.len() / dtype.size, T::zeroed());
            fit(source, dtype, (first, raw), &mut batch[filled..])?;
            if batch.len() < size {
                return Ok(());
            }
            let taken = take(first - filled, &batch);
            batch.clear();
            taken
        })?;
        take(self.len - batch.len(), &batch)
    }

    /// The items as numbers of a type, in C order.
    ///
    /// # Errors
    /// When they are no such numbers (the first misfit is named), or are not all there.
    pub fn numbers<T: Number>(mut self) -> Result<Array<T>> {
        self.check_dtype(is_convertible::<T>(self.header.dtype), T::WANTED)?;
        let mut grown = Grown::new(self.len);
        let dtype = self.header.dtype;
        self.for_chunks(|source, first, raw| {
            let slots = grown.next(raw.len() / dtype.size);
            fit(source, dtype, (first, raw), slots)
        })?;
        let data = match self.header.order {
            Order::C => grown.buffer,
            Order::Fortran => c_order(grown.buffer, &self.header.shape),
        };
        let shape = self.header.shape;
        Ok(Array { shape, data })
    }

    /// The items as `f32`, none of them NaN or infinite.
    ///
    /// # Errors
    /// As [`Npy::numbers`]; a number that is not finite, or too large for `f32`, is named.
    pub fn finite(self) -> Result<Array<f32>> {
        let source = self.source;
        let array = self.numbers::<f32>()?;
        check_finite(&source, &array.data)?;
        Ok(array)
    }

    /// The items as truth values, with their shape: booleans, or integers that are 0 or 1.
    ///
    /// # Errors
    /// As [`Npy::numbers`].
    pub fn bools(self) -> Result<(Vec<usize>, Vec<bool>)> {
        let source = self.source;
        let array = self.numbers::<u8>()?;
        if let Some(at) = array.data.iter().position(|&item| item > 1) {
            let item = array.data[at];
            return Err(source.problem(format!("{item} at position {at} is neither 0 nor 1")));
        }
        Ok((array.shape, array.data.iter().map(|&item| item == 1).collect()))
    }

    /// The items as strings.
    ///
    /// # Errors
    /// When they are no strings, or are not all there.
    pub fn strings(mut self) -> Result<Vec<String>> {
        let Dtype { kind, size, endian } = self.header.dtype;
        self.check_dtype(matches!(kind, Kind::Bytes | Kind::Text), "a string")?;
        const LONGEST: usize = 1 << 20;
        if size == 0 && self.len > 0 || size > LONGEST {
            let problem = format!("strings of {size} bytes are not read; 1 to {LONGEST} are");
            return Err(self.source.problem(problem));
        }
        let mut strings = Vec::new();
        self.for_chunks(|source, first, raw| {
            for (at, item) in raw.chunks_exact(size).enumerate() {
                let string = match kind {
                    Kind::Bytes => Some(latin(item)),
                    _ => utf32(item, endian),
                };
                let problem = || format!("the string at position {} is no Unicode", first + at);
                strings.push(string.ok_or_else(|| source.problem(problem()))?);
            }
            Ok(())
        })?;
        Ok(strings)
    }

    fn check_dtype(&self, fits: bool, wanted: &str) -> Result<()> {
        if fits {
            return Ok(());
        }
        let problem = match self.header.dtype.kind {
            Kind::Object => {
                "the items are Python objects, a pickle, which is not read; numbers would be"
                    .to_owned()
            }
            _ => format!("the items are {}, and each should be {wanted}", self.header.dtype),
        };
        Err(self.source.problem(problem))
    }

    /// Hands over all items, with the position of the first, and sees that nothing follows.
    fn for_chunks(
        &mut self,
        mut take: impl FnMut(&Source<'a>, usize, &[u8]) -> Result<()>,
    ) -> Result<()> {
        let size = self.header.dtype.size;
        // A chunk of long strings is bounded too: it grows with what arrives.
        let chunk = (CHUNK_ITEMS * 8 / size.max(1)).clamp(1, CHUNK_ITEMS);
        let mut raw = Vec::new();
        for first in (0..self.len).step_by(chunk) {
            let items = chunk.min(self.len - first);
            self.fetch(&mut raw, items * size)?;
            take(&self.source, first, &raw)?;
            self.source.tick(self.at)?;
        }
        self.check_end()
    }

    /// The next bytes, which must be there.
    fn fetch(&mut self, raw: &mut Vec<u8>, bytes: usize) -> Result<()> {
        raw.clear();
        let mut limited = (&mut self.reader).take(bytes as u64);
        if let Err(error) = limited.read_to_end(raw) {
            return Err(self.source.io(self.at + raw.len() as u64, error));
        }
        self.at += raw.len() as u64;
        if raw.len() == bytes {
            return Ok(());
        }
        let (shape, dtype) = (self.header.shape_text(), self.header.dtype);
        let problem =
            format!("the data end here, before an array of {dtype} of shape {shape} does");
        Err(self.source.problem_at(self.at, problem))
    }

    fn check_end(&mut self) -> Result<()> {
        let more =
            read_up_to(&mut self.reader, &mut [0]).map_err(|e| self.source.io(self.at, e))?;
        if more == 0 {
            return Ok(());
        }
        let shape = self.header.shape_text();
        let problem = format!("data follow the array of shape {shape}; one array would be right");
        Err(self.source.problem_at(self.at, problem))
    }
}

/// Converts raw items, the first of them at a position; one that does not fit is named.
fn fit<T: Number>(
    source: &Source<'_>,
    dtype: Dtype,
    (first, raw): (usize, &[u8]),
    slots: &mut [T],
) -> Result<()> {
    convert(dtype, raw, slots).map_err(|(at, item)| {
        let (at, wanted) = (first + at, T::WANTED);
        source.problem(format!("{item} at position {at} is not {wanted}"))
    })
}

/// Fills a part of the header, which must be there.
fn header_bytes(
    source: &Source<'_>,
    reader: &mut impl Read,
    (at, part): (u64, &mut [u8]),
) -> Result<()> {
    let got = read_up_to(reader, part).map_err(|e| source.io(at, e))?;
    if got == part.len() {
        return Ok(());
    }
    Err(source.problem_at(at + got as u64, "the data end inside the header"))
}

/// The first number that is not finite is an error.
pub(crate) fn check_finite(source: &Source<'_>, data: &[f32]) -> Result<()> {
    match data.iter().position(|value| !value.is_finite()) {
        None => Ok(()),
        Some(at) => {
            let value = data[at];
            Err(source.problem(format!("{value} at position {at} is no finite 32-bit number")))
        }
    }
}

/// A buffer that doubles as items arrive, up to their declared number. Large buffers are fresh
/// pages, which count only once they are written: the copy to a larger one costs no more memory.
struct Grown<T> {
    buffer: Buffer<T>,
    filled: usize,
    declared: usize,
}

impl<T: Pod> Grown<T> {
    fn new(declared: usize) -> Self {
        Grown { buffer: Buffer::zeroed(declared.min(CHUNK_ITEMS)), filled: 0, declared }
    }

    /// Room for the next `count` items.
    fn next(&mut self, count: usize) -> &mut [T] {
        let end = self.filled + count;
        if end > self.buffer.len() {
            let len = (2 * self.buffer.len()).max(end).min(self.declared);
            let mut larger = Buffer::zeroed(len);
            larger.make_mut()[..self.filled].copy_from_slice(&self.buffer[..self.filled]);
            self.buffer = larger;
        }
        let start = std::mem::replace(&mut self.filled, end);
        &mut self.buffer.make_mut()[start..end]
    }
}

/// The items of a Fortran array with the last index running fastest.
fn c_order<T: Pod>(fortran: Buffer<T>, shape: &[usize]) -> Buffer<T> {
    if shape.len() < 2 || fortran.is_empty() {
        return fortran;
    }
    let strides: Vec<usize> = shape
        .iter()
        .scan(1, |stride, &extent| Some(std::mem::replace(stride, *stride * extent)))
        .collect();
    let mut out = Buffer::zeroed(fortran.len());
    let mut index = vec![0; shape.len()];
    let mut from = 0;
    for slot in out.make_mut() {
        *slot = fortran[from];
        for axis in (0..shape.len()).rev() {
            index[axis] += 1;
            from += strides[axis];
            if index[axis] < shape[axis] {
                break;
            }
            from -= strides[axis] * shape[axis];
            index[axis] = 0;
        }
    }
    out
}

/// A byte string without its padding: UTF-8 where it is that, else Latin-1, which always is.
fn latin(item: &[u8]) -> String {
    let length = item.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
    match std::str::from_utf8(&item[..length]) {
        Ok(text) => text.to_owned(),
        Err(_) => item[..length].iter().map(|&byte| char::from(byte)).collect(),
    }
}

/// A UTF-32 string without its padding.
fn utf32(item: &[u8], endian: Endian) -> Option<String> {
    let code = |bytes: &[u8]| {
        let mut four = [0; 4];
        four.copy_from_slice(bytes);
        match endian {
            Endian::Little => u32::from_le_bytes(four),
            Endian::Big => u32::from_be_bytes(four),
        }
    };
    let padded: Option<String> = item.chunks_exact(4).map(|c| char::from_u32(code(c))).collect();
    padded.map(|text| text.trim_end_matches('\0').to_owned())
}

#[cfg(test)]
mod tests;
