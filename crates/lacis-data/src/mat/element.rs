//! The elements of a MATLAB 5 file: matrices of numbers, out of packed elements and structures.

use std::io::{self, BufReader, Read};
use std::path::Path;

use lacis_core::{Error, Place, Result};

use crate::Job;
use crate::input::{open_file, too_large};

/// A matrix of numbers.
pub(super) struct Matrix {
    /// Its name; `a.b` for the field `b` of a structure `a`.
    pub name: String,
    pub shape: [usize; 2],
    pub content: Content,
}

pub(super) enum Content {
    /// By columns.
    Dense(Vec<f32>),
    /// Compressed columns.
    Sparse { starts: Vec<u64>, rows: Vec<u32>, values: Vec<f32> },
}

/// How deep structures may nest.
const MAX_DEPTH: usize = 3;
/// How many matrices a file may hold: more cost memory, and no graph needs them.
const MAX_MATRICES: usize = 1 << 10;
/// As for archives of arrays: what a packed element may unpack to, by its size, and besides.
const MAX_RATIO: u64 = 400;
const FREE_BYTES: u64 = 16 << 20;

const MI_MATRIX: u32 = 14;
const MI_COMPRESSED: u32 = 15;
const MX_STRUCT: u8 = 2;
const MX_SPARSE: u8 = 5;

/// All matrices of numbers in a file; what else it holds is passed over.
pub(super) fn read_all(path: &Path, job: &Job<'_>) -> Result<Vec<Matrix>> {
    let (file, size) = open_file(path)?;
    let mut reader =
        Elements { reader: BufReader::with_capacity(1 << 18, file), big: false, at: 0 };
    let mut matrices = Vec::new();
    let mut read = || -> io::Result<()> {
        let header = reader.bytes(128)?;
        reader.big = header[126..] == *b"MI";
        while let Some(tag) = reader.tag_or_end()? {
            job.tick(reader.at, Some(size)).map_err(io::Error::other)?;
            match tag.kind {
                MI_COMPRESSED => reader.packed(tag.size, &mut matrices)?,
                MI_MATRIX => reader.matrix(tag.size, "", 0, &mut matrices)?,
                _ => reader.skip(tag.size)?,
            }
            if matrices.len() > MAX_MATRICES {
                return Err(damaged("holds too many matrices to be a graph"));
            }
        }
        Ok(())
    };
    match read() {
        Ok(()) => Ok(matrices),
        Err(error) if error.get_ref().is_some_and(|e| e.is::<Error>()) => Err(Error::Interrupted),
        Err(error) => {
            let problem = match error.kind() {
                io::ErrorKind::UnexpectedEof => "the file ends inside an element".to_owned(),
                _ => format!("is damaged: {error}"),
            };
            Err(Error::file_at(path, Place::Byte(reader.at), problem))
        }
    }
}

fn damaged(problem: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, problem.into())
}

struct Tag {
    kind: u32,
    size: u64,
    /// Data that stand in the tag itself.
    small: Option<Vec<u8>>,
}

struct Elements<R> {
    reader: R,
    big: bool,
    at: u64,
}

impl<R: Read> Elements<R> {
    /// So many bytes; memory grows as they come.
    fn bytes(&mut self, count: u64) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        let got = (&mut self.reader).take(count).read_to_end(&mut bytes)? as u64;
        self.at += got;
        if got == count { Ok(bytes) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
    }

    fn skip(&mut self, count: u64) -> io::Result<()> {
        let got = io::copy(&mut (&mut self.reader).take(count), &mut io::sink())?;
        self.at += got;
        if got == count { Ok(()) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
    }

    fn u32_of(&self, bytes: &[u8]) -> u32 {
        let bytes: [u8; 4] = bytes.try_into().expect("four bytes");
        if self.big { u32::from_be_bytes(bytes) } else { u32::from_le_bytes(bytes) }
    }

    fn tag_or_end(&mut self) -> io::Result<Option<Tag>> {
        let mut first = [0; 8];
        let got = crate::input::read_up_to(&mut self.reader, &mut first)?;
        self.at += got as u64;
        match got {
            0 => Ok(None),
            8 => Ok(Some(self.tag_of(&first))),
            _ => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }

    fn tag(&mut self) -> io::Result<Tag> {
        self.tag_or_end()?.ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
    }

    /// A small element has its size in the upper half of its type, and at most four bytes.
    fn tag_of(&self, bytes: &[u8; 8]) -> Tag {
        let word = self.u32_of(&bytes[..4]);
        let size = (word >> 16) as usize;
        if (1..=4).contains(&size) {
            let small = Some(bytes[4..4 + size].to_vec());
            return Tag { kind: word & 0xffff, size: size as u64, small };
        }
        Tag { kind: word, size: u64::from(self.u32_of(&bytes[4..])), small: None }
    }

    /// A sub-element's type and bytes, and its padding passed over.
    fn data(&mut self) -> io::Result<(u32, Vec<u8>)> {
        let tag = self.tag()?;
        if let Some(small) = tag.small {
            return Ok((tag.kind, small));
        }
        let bytes = self.bytes(tag.size)?;
        self.skip(tag.size.next_multiple_of(8) - tag.size)?;
        Ok((tag.kind, bytes))
    }

    /// A matrix inside a packed element.
    fn packed(&mut self, size: u64, matrices: &mut Vec<Matrix>) -> io::Result<()> {
        let limit = size.saturating_mul(MAX_RATIO).saturating_add(FREE_BYTES);
        let unpacked = flate2::read::ZlibDecoder::new((&mut self.reader).take(size));
        let limited = Limited { reader: unpacked, left: limit };
        let mut inner = Elements { reader: BufReader::new(limited), big: self.big, at: 0 };
        let tag = inner.tag()?;
        match tag.kind {
            MI_MATRIX => inner.matrix(tag.size, "", 0, matrices)?,
            _ => inner.skip(tag.size)?,
        }
        let rest = inner.reader.into_inner().reader.into_inner();
        io::copy(&mut { rest }, &mut io::sink())?;
        self.at += size;
        Ok(())
    }

    /// A matrix of this size; one that holds no numbers is passed over.
    fn matrix(
        &mut self,
        size: u64,
        within: &str,
        depth: usize,
        matrices: &mut Vec<Matrix>,
    ) -> io::Result<()> {
        if size == 0 {
            return Ok(());
        }
        let end = self.at + size;
        let (_, flags) = self.data()?;
        let (_, extents) = self.data()?;
        let (_, name) = self.data()?;
        if flags.len() != 8 || extents.len() % 4 != 0 {
            return Err(damaged("a matrix without flags or extents"));
        }
        let class = self.u32_of(&flags[..4]) as u8;
        let complex = self.u32_of(&flags[..4]) & 0x0800 != 0;
        let own = String::from_utf8_lossy(&name).into_owned();
        let name = if within.is_empty() { own } else { format!("{within}{own}") };
        let extents: Vec<usize> =
            extents.chunks(4).map(|bytes| self.u32_of(bytes) as usize).collect();
        match (class, &extents[..]) {
            (MX_STRUCT, _) if depth < MAX_DEPTH => {
                let count = extents.iter().try_fold(1usize, |n, &e| n.checked_mul(e));
                if count == Some(1) {
                    self.fields(&name, depth, matrices)?;
                }
            }
            (MX_SPARSE, &[n_rows, n_cols]) if !complex => {
                let content = self.sparse(n_cols)?;
                matrices.push(Matrix { name, shape: [n_rows, n_cols], content });
            }
            (6..=15, &[n_rows, n_cols]) if !complex => {
                let values = self.floats()?;
                if n_rows.checked_mul(n_cols) != Some(values.len()) {
                    let problem =
                        format!("{name}: {} numbers of {n_rows} × {n_cols}", values.len());
                    return Err(damaged(problem));
                }
                let content = Content::Dense(values);
                matrices.push(Matrix { name, shape: [n_rows, n_cols], content });
            }
            _ => {}
        }
        self.skip(end.checked_sub(self.at).ok_or_else(|| damaged("a matrix beyond its size"))?)
    }

    /// The fields of a structure.
    fn fields(&mut self, name: &str, depth: usize, matrices: &mut Vec<Matrix>) -> io::Result<()> {
        let (_, length) = self.data()?;
        let length = length.get(..4).map_or(0, |bytes| self.u32_of(bytes) as usize);
        let (_, names) = self.data()?;
        if length == 0 || names.len() / length > MAX_MATRICES {
            return Err(damaged("a structure without names, or with too many"));
        }
        for field in names.chunks(length) {
            let field = field.split(|&b| b == 0).next().unwrap_or_default();
            let within = format!("{name}.{}", String::from_utf8_lossy(field));
            let tag = self.tag()?;
            match tag.kind {
                MI_MATRIX => self.matrix(tag.size, &within, depth + 1, matrices)?,
                _ => return Err(damaged("a field that is no matrix")),
            }
        }
        Ok(())
    }

    fn sparse(&mut self, n_cols: usize) -> io::Result<Content> {
        let rows: Vec<u32> = self.numbers(|x| whole(x).and_then(|x| u32::try_from(x).ok()))?;
        let starts: Vec<u64> = self.numbers(whole)?;
        let mut values = self.floats()?;
        let Some(&nnz) = starts.last().filter(|_| starts.len() == n_cols + 1) else {
            return Err(damaged(format!("{} column starts of {n_cols} columns", starts.len())));
        };
        // There may be room for more entries than there are.
        let nnz = usize::try_from(nnz).unwrap_or(usize::MAX);
        if nnz > rows.len() || nnz > values.len() {
            return Err(damaged(format!(
                "{} rows and {} values of {nnz}",
                rows.len(),
                values.len()
            )));
        }
        let mut rows = rows;
        rows.truncate(nnz);
        values.truncate(nnz);
        Ok(Content::Sparse { starts, rows, values })
    }

    fn floats(&mut self) -> io::Result<Vec<f32>> {
        self.numbers(|x| Some(x as f32).filter(|x| x.is_finite()))
    }

    /// The numbers of a sub-element, whatever type they are stored in.
    fn numbers<T>(&mut self, of: impl Fn(f64) -> Option<T>) -> io::Result<Vec<T>> {
        let (kind, bytes) = self.data()?;
        let size = match kind {
            1 | 2 => 1,
            3 | 4 => 2,
            5..=7 => 4,
            9 | 12 | 13 => 8,
            _ => return Err(damaged(format!("numbers of type {kind}, which is none"))),
        };
        if bytes.len() % size != 0 {
            return Err(damaged("numbers that end inside one"));
        }
        let number = |item: &[u8]| {
            let mut raw = [0; 8];
            raw[..size].copy_from_slice(item);
            if self.big {
                raw[..size].reverse();
            }
            let value = decode(kind, raw);
            of(value).ok_or_else(|| damaged(format!("{value} is no number that fits here")))
        };
        bytes.chunks_exact(size).map(number).collect()
    }
}

/// A number of a type, its bytes with the lowest first.
fn decode(kind: u32, raw: [u8; 8]) -> f64 {
    let word = u64::from_le_bytes(raw);
    match kind {
        1 => f64::from(word as u8 as i8),
        3 => f64::from(word as u16 as i16),
        5 => f64::from(word as u32 as i32),
        7 => f64::from(f32::from_bits(word as u32)),
        9 => f64::from_bits(word),
        12 => word as i64 as f64,
        _ => word as f64,
    }
}

fn whole(x: f64) -> Option<u64> {
    (x >= 0.0 && x.fract() == 0.0 && x < 9e15).then_some(x as u64)
}

/// A reader that refuses to give more than so much.
struct Limited<R> {
    reader: R,
    left: u64,
}

impl<R: Read> Read for Limited<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let got = self.reader.read(buffer)?;
        self.left = self.left.checked_sub(got as u64).ok_or_else(|| too_large(MAX_RATIO))?;
        Ok(got)
    }
}
