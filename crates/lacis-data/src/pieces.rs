//! Text cut into pieces that begin and end with a line, for several threads to parse at once.
//!
//! ```text
//!  plain    ├─ piece ─┼─ piece ─┼─ piece ─┤   each thread reads its own part of the file
//!  packed   unpack ──► piece ──► piece ──►    one thread unpacks ahead while the others parse
//! ```
//! Memory is bounded by the pieces under way: two for each thread, and one being unpacked.

use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use lacis_core::{Error, Place, Result};

use crate::Job;
use crate::input::{Input, MAX_RATIO, Packing, Unpacked, read_up_to};

/// About half a million edges, whose sorted run then fills whole huge pages.
pub(crate) const PIECE_BYTES: usize = 8 << 20;

/// A text file, perhaps packed, from some byte on.
pub(crate) struct Text<'a> {
    path: &'a Path,
    input: Input,
    start: u64,
    max_line: usize,
    max_ratio: u64,
    done: AtomicU64,
}

/// Whole lines of a text, or where they are to be found.
pub(crate) struct Piece<'a> {
    path: &'a Path,
    lines: Lines<'a>,
    done: &'a AtomicU64,
    size: u64,
    max_line: usize,
}

enum Lines<'a> {
    /// The lines that begin in this part of a plain file, and whether it is the first part.
    Plain(&'a File, Range<u64>, bool),
    /// The lines themselves, the number of the first, and how much was unpacked for them.
    Packed(Vec<u8>, u64, u64),
}

impl<'a> Text<'a> {
    /// Opens the text at a path; lines before byte `start` of the unpacked text are not read.
    pub fn open(path: &'a Path, start: u64, max_line: usize) -> Result<Self> {
        let input = Input::open(path)?;
        let done = AtomicU64::new(0);
        Ok(Text { path, input, start, max_line, max_ratio: MAX_RATIO, done })
    }

    /// The text is a list of edges, which cannot be packed as well as other text.
    pub fn of_edges(self) -> Self {
        Text { max_ratio: self.input.packing.edges_ratio(), ..self }
    }

    /// Hands over all pieces in order, some at a time.
    ///
    /// # Errors
    /// The first of `take`, or of the file.
    pub fn batches(
        self,
        job: &Job<'_>,
        mut take: impl FnMut(Vec<Piece<'_>>) -> Result<()>,
    ) -> Result<()> {
        let Text { path, input, start, max_line, max_ratio, done } = self;
        let (done, size) = (&done, input.size_bytes);
        let piece = |lines| Piece { path, lines, done, size, max_line };
        if input.packing == Packing::Plain {
            done.store(start, Ordering::Relaxed);
            let lines = (start..size).step_by(PIECE_BYTES).map(|from| {
                let to = (from + PIECE_BYTES as u64).min(size);
                Lines::Plain(&input.file, from..to, from == start)
            });
            return take(lines.map(piece).collect());
        }
        let reader = input.unpacked(path)?.with_max_ratio(max_ratio);
        let mut stream = Stream { reader, carry: Vec::new(), unpacked: 0, line: 1, max_line };
        stream.skip(path, start)?;
        let count = job.threads.count();
        std::thread::scope(|scope| {
            let (sender, receiver) = sync_channel(count);
            scope.spawn(move || stream.send_all(path, &sender));
            loop {
                let batch = receive(&receiver, count)?;
                if batch.is_empty() {
                    return Ok(());
                }
                take(batch.into_iter().map(piece).collect())?;
            }
        })
    }

    /// What `take` makes of every piece, in order; with scratch memory for each thread.
    ///
    /// # Errors
    /// The first of `take`, or of the file.
    pub fn map<T: Send>(
        self,
        job: &Job<'_>,
        take: impl Fn(&Piece<'_>, &[u8]) -> Result<T> + Sync,
    ) -> Result<Vec<T>> {
        let mut all = Vec::new();
        self.batches(job, |batch| {
            let read = |bytes: &mut Vec<u8>, piece: Piece<'_>| piece.read(bytes, job, &take);
            all.extend(job.threads.try_map_with(batch, Vec::new, read)?);
            Ok(())
        })?;
        Ok(all)
    }
}

/// The next pieces: one is waited for, more are taken if they are there.
fn receive<'a>(receiver: &Receiver<Result<Lines<'a>>>, most: usize) -> Result<Vec<Lines<'a>>> {
    let first = receiver.recv().into_iter();
    first.chain(receiver.try_iter().take(most - 1)).collect()
}

impl Piece<'_> {
    /// Reads the lines, with a buffer that need not be empty, and hands them over.
    pub fn read<T>(
        mut self,
        buffer: &mut Vec<u8>,
        job: &Job<'_>,
        take: impl FnOnce(&Self, &[u8]) -> Result<T>,
    ) -> Result<T> {
        job.tick(self.done.load(Ordering::Relaxed), Some(self.size))?;
        let (skip, progress) = match &mut self.lines {
            Lines::Packed(bytes, _, consumed) => {
                std::mem::swap(buffer, bytes);
                (0, *consumed)
            }
            Lines::Plain(file, range, first) => {
                let skip = whole_lines((file, self.max_line), range.clone(), *first, buffer)
                    .map_err(|fault| fault.into_error(self.path, range.start, self.max_line))?;
                (skip, range.end - range.start)
            }
        };
        let taken = take(&self, &buffer[skip..])?;
        let done = self.done.fetch_add(progress, Ordering::Relaxed) + progress;
        job.tick(done.min(self.size), Some(self.size))?;
        Ok(taken)
    }

    /// Something wrong `at` bytes from the start of these lines.
    pub fn problem(&self, bytes: &[u8], at: usize, problem: impl Into<String>) -> Error {
        let ends = |bytes: &[u8]| memchr::memchr_iter(b'\n', bytes).count() as u64;
        let before = ends(&bytes[..at.min(bytes.len())]);
        let first = match &self.lines {
            Lines::Packed(_, line, _) => *line,
            Lines::Plain(_, range, true) => self.lines_before(range.start),
            // The first of these lines begins after the first line end from the byte before on.
            Lines::Plain(_, range, false) => self.lines_before(range.start - 1) + 1,
        };
        Error::file_at(self.path, Place::Line(first + before), problem)
    }

    /// One more than the lines that end before a byte of a plain file.
    fn lines_before(&self, byte: u64) -> u64 {
        match self.lines {
            Lines::Plain(file, ..) => 1 + count_lines(file, byte).unwrap_or(0),
            Lines::Packed(..) => 1,
        }
    }
}

/// Why a piece could not be cut out of a file.
enum CutFault {
    Io(std::io::Error),
    LongLine,
}

impl CutFault {
    fn into_error(self, path: &Path, offset: u64, max_line: usize) -> Error {
        match self {
            CutFault::Io(source) => Error::io("read", path, source),
            CutFault::LongLine => long_line(path, Place::Byte(offset), max_line),
        }
    }
}

pub(crate) fn long_line(path: &Path, place: Place, max_line: usize) -> Error {
    let problem = format!("a line longer than {max_line} bytes; shorter ones would be right");
    Error::file_at(path, place, problem)
}

/// Reads the lines that begin in `range`, so that each line is in one piece. Returns how many bytes
/// come before the first: the end of a line of the piece before.
fn whole_lines(
    (file, max_line): (&File, usize),
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
        let mut rest = vec![0; max_line];
        let got = read_at(file, &mut rest, range.end).map_err(CutFault::Io)?;
        match memchr::memchr(b'\n', &rest[..got]) {
            Some(end) => bytes.extend_from_slice(&rest[..end]),
            None if got < max_line => bytes.extend_from_slice(&rest[..got]),
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

/// Pieces of a text that can only be read in order.
struct Stream {
    reader: Unpacked,
    /// The beginning of a line whose end has not come yet.
    carry: Vec<u8>,
    unpacked: u64,
    line: u64,
    max_line: usize,
}

impl Stream {
    /// Unpacks everything, as fast as it is taken; ends early where nobody listens any more.
    fn send_all(mut self, path: &Path, sender: &SyncSender<Result<Lines<'_>>>) {
        while let Some(lines) = self.next(path).transpose() {
            let failed = lines.is_err();
            if sender.send(lines).is_err() || failed {
                break;
            }
        }
    }

    fn read(&mut self, path: &Path, buffer: &mut [u8]) -> Result<usize> {
        // A piece at a time, so that an error tells how far the text could be unpacked.
        const STEP: usize = 1 << 16;
        let mut got = 0;
        for part in buffer.chunks_mut(STEP) {
            let wanted = part.len();
            let more = read_up_to(&mut self.reader, part).map_err(|source| {
                let problem = format!("cannot be unpacked: {source}");
                let place = Place::Part(format!("after unpacked byte {}", self.unpacked));
                Error::file_at(path, place, problem)
            })?;
            self.unpacked += more as u64;
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

    /// The next lines, or `None` at the end.
    fn next<'a>(&mut self, path: &Path) -> Result<Option<Lines<'a>>> {
        let mut bytes = std::mem::take(&mut self.carry);
        let (kept, before) = (bytes.len(), self.reader.progress().0);
        bytes.resize(kept + PIECE_BYTES, 0);
        let got = self.read(path, &mut bytes[kept..])?;
        bytes.truncate(kept + got);
        if bytes.is_empty() {
            return Ok(None);
        }
        if got == PIECE_BYTES {
            let end = memchr::memrchr(b'\n', &bytes).map_or(0, |at| at + 1);
            if bytes.len() - end > self.max_line {
                return Err(long_line(path, Place::Line(self.line), self.max_line));
            }
            self.carry = bytes.split_off(end);
        }
        let first = self.line;
        self.line += memchr::memchr_iter(b'\n', &bytes).count() as u64;
        Ok(Some(Lines::Packed(bytes, first, self.reader.progress().0 - before)))
    }
}
