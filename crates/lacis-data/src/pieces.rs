//! Text cut into pieces that begin and end with a line, for several threads to parse at once.
//!
//! ```text
//!  plain    ├─ piece ─┼─ piece ─┼─ piece ─┤   each thread reads its own part of the file
//!  packed   unpack ──► piece ──► piece ──►    one thread unpacks ahead while the others parse
//! ```
//! Memory is bounded by the pieces under way: of plain text a step for each thread, of packed text
//! two pieces for each, and one being unpacked.

use std::fs::File;
use std::io::Read;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};

use lacis_core::{Error, Place, Result};

use crate::Job;
use crate::input::{Input, MAX_RATIO, Packing, Unpacked, read_up_to};

/// About half a million edges, whose sorted run then fills whole huge pages.
pub(crate) const PIECE_BYTES: usize = 8 << 20;
/// What a thread reads of a plain file at once: it stays in its own cache while it is parsed.
pub(crate) const STEP_BYTES: usize = 256 << 10;

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
    /// The lines themselves.
    Packed(Unpacking),
}

/// Lines that were unpacked.
struct Unpacking {
    bytes: Vec<u8>,
    /// How many of the bytes are lines.
    filled: usize,
    /// Where in the unpacked text they begin.
    offset: u64,
    /// How much of the file was read for them.
    consumed: u64,
    /// Takes back the bytes: memory that is new costs as much as unpacking into it.
    spare: Sender<Vec<u8>>,
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
        let (giver, spare) = channel();
        let mut stream = Stream { reader, carry: Vec::new(), unpacked: 0, max_line, giver, spare };
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
        take: impl Fn(&Part<'_>) -> Result<T> + Sync,
    ) -> Result<Vec<T>> {
        let mut all = Vec::new();
        self.batches(job, |batch| {
            let read = |bytes: &mut Vec<u8>, piece: Piece<'_>| {
                let mut taken = Vec::new();
                // With the byte before it a piece is one part.
                piece.read(bytes, PIECE_BYTES + 1, job, |part| {
                    taken.push(take(part)?);
                    Ok(())
                })?;
                Ok(taken)
            };
            let taken = job.threads.try_map_with(batch, Vec::new, read)?;
            all.extend(taken.into_iter().flatten());
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

/// Some of a piece's lines, and what it takes to say where they stand.
pub(crate) struct Part<'p> {
    path: &'p Path,
    lines: &'p Lines<'p>,
    /// Where in a plain file they begin.
    offset: u64,
    pub bytes: &'p [u8],
}

impl Part<'_> {
    /// Something wrong `at` bytes from the start of these lines.
    pub fn problem(&self, at: usize, problem: impl Into<String>) -> Error {
        let line = match &self.lines {
            Lines::Packed(lines) => {
                let before = &self.bytes[..at.min(self.bytes.len())];
                let before = memchr::memchr_iter(b'\n', before).count() as u64;
                1 + lines_in(self.path, lines.offset) + before
            }
            Lines::Plain(file, ..) => 1 + count_lines(file, self.offset + at as u64).unwrap_or(0),
        };
        Error::file_at(self.path, Place::Line(line), problem)
    }
}

impl Piece<'_> {
    /// Reads the lines, with a buffer that need not be empty, and hands them over: those of a plain
    /// file some at a time, a little more than `step` bytes at most but for longer lines.
    pub fn read(
        self,
        buffer: &mut Vec<u8>,
        step: usize,
        job: &Job<'_>,
        mut take: impl FnMut(&Part<'_>) -> Result<()>,
    ) -> Result<()> {
        job.tick(self.done.load(Ordering::Relaxed), Some(self.size))?;
        let (path, lines) = (self.path, &self.lines);
        let mut take = |offset, bytes: &[u8]| take(&Part { path, lines, offset, bytes });
        let progress = match lines {
            Lines::Packed(lines) => {
                take(lines.offset, &lines.bytes[..lines.filled])?;
                lines.consumed
            }
            Lines::Plain(file, range, first) => {
                let cut = Cut { file, max_line: self.max_line, range: range.clone(), step };
                cut.lines(*first, buffer, |offset, bytes| {
                    take(offset, bytes).map_err(Fault::Taken)
                })
                .map_err(|fault| fault.into_error(path, range.start, self.max_line))?;
                range.end - range.start
            }
        };
        if let Lines::Packed(lines) = self.lines {
            // Where all is unpacked nobody wants it.
            let _ = lines.spare.send(lines.bytes);
        }
        let done = self.done.fetch_add(progress, Ordering::Relaxed) + progress;
        job.tick(done.min(self.size), Some(self.size))
    }
}

/// Why a piece could not be read.
enum Fault {
    Io(std::io::Error),
    LongLine,
    /// Somebody to whom lines were handed found something.
    Taken(Error),
}

impl Fault {
    fn into_error(self, path: &Path, offset: u64, max_line: usize) -> Error {
        match self {
            Fault::Io(source) => Error::io("read", path, source),
            Fault::LongLine => long_line(path, Place::Byte(offset), max_line),
            Fault::Taken(error) => error,
        }
    }
}

pub(crate) fn long_line(path: &Path, place: Place, max_line: usize) -> Error {
    let problem = format!("a line longer than {max_line} bytes; shorter ones would be right");
    Error::file_at(path, place, problem)
}

/// A part of a plain file, whose lines are those that begin in it.
struct Cut<'f> {
    file: &'f File,
    max_line: usize,
    range: Range<u64>,
    step: usize,
}

impl Cut<'_> {
    /// Hands over the lines and where they begin, so that each line is in one piece.
    fn lines(
        &self,
        first: bool,
        buffer: &mut Vec<u8>,
        mut take: impl FnMut(u64, &[u8]) -> std::result::Result<(), Fault>,
    ) -> std::result::Result<(), Fault> {
        // One byte before tells whether a line begins just here.
        let mut at = if first { self.range.start } else { self.range.start - 1 };
        // The line under way, and whether it began before the range.
        let (mut kept, mut foreign) = (0, !first);
        loop {
            let next = at + kept as u64;
            let wanted = (self.step as u64).min(self.range.end - next) as usize;
            if buffer.len() < kept + wanted {
                buffer.resize(kept + wanted, 0);
            }
            let got = read_at(self.file, &mut buffer[kept..][..wanted], next).map_err(Fault::Io)?;
            let mut filled = kept + got;
            let last = got < wanted || next + got as u64 == self.range.end;
            let mut start = 0;
            if foreign {
                let end = memchr::memchr(b'\n', &buffer[..filled]);
                start = end.map_or(filled, |end| end + 1);
                foreign = end.is_none();
            }
            let whole = memchr::memrchr(b'\n', &buffer[start..filled]);
            let mut end = if foreign { filled } else { start + whole.map_or(0, |at| at + 1) };
            if last && end < filled {
                filled = self.rest_of_line(buffer, filled)?;
                end = filled;
            }
            if start < end {
                take(at + start as u64, &buffer[start..end])?;
            }
            if last {
                return Ok(());
            }
            buffer.copy_within(end..filled, 0);
            (at, kept) = (at + end as u64, filled - end);
        }
    }

    /// Adds what a line has after the range to a buffer; returns how far that is filled now.
    fn rest_of_line(
        &self,
        buffer: &mut Vec<u8>,
        filled: usize,
    ) -> std::result::Result<usize, Fault> {
        const STEP: usize = 1 << 12;
        buffer.truncate(filled);
        let (mut rest, mut added) = ([0; STEP], 0);
        while added < self.max_line {
            let wanted = STEP.min(self.max_line - added);
            let from = self.range.end + added as u64;
            let got = read_at(self.file, &mut rest[..wanted], from).map_err(Fault::Io)?;
            let end = memchr::memchr(b'\n', &rest[..got]);
            buffer.extend_from_slice(&rest[..end.unwrap_or(got)]);
            if end.is_some() || got < wanted {
                return Ok(buffer.len());
            }
            added += got;
        }
        Err(Fault::LongLine)
    }
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

/// How many lines end before a byte of an unpacked text; only asked for to name the place of an
/// error.
fn lines_in(path: &Path, offset: u64) -> u64 {
    let Ok(reader) = Input::open(path).and_then(|input| input.unpacked(path)) else { return 0 };
    let (mut reader, mut lines) = (reader.take(offset), 0);
    let mut buffer = vec![0; 1 << 16];
    while let Ok(got @ 1..) = read_up_to(&mut reader, &mut buffer) {
        lines += memchr::memchr_iter(b'\n', &buffer[..got]).count() as u64;
    }
    lines
}

/// Pieces of a text that can only be read in order.
struct Stream {
    reader: Unpacked,
    /// The beginning of a line whose end has not come yet.
    carry: Vec<u8>,
    unpacked: u64,
    max_line: usize,
    /// Memory of pieces that were parsed.
    giver: Sender<Vec<u8>>,
    spare: Receiver<Vec<u8>>,
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
            bytes -= got as u64;
        }
        Ok(())
    }

    /// The next lines, or `None` at the end.
    fn next<'a>(&mut self, path: &Path) -> Result<Option<Lines<'a>>> {
        let mut bytes = self.spare.try_recv().unwrap_or_default();
        let (kept, before) = (self.carry.len(), self.reader.progress().0);
        let offset = self.unpacked - kept as u64;
        if bytes.len() < kept + PIECE_BYTES {
            bytes.resize(kept + PIECE_BYTES, 0);
        }
        bytes[..kept].copy_from_slice(&self.carry);
        self.carry.clear();
        let got = self.read(path, &mut bytes[kept..][..PIECE_BYTES])?;
        let mut filled = kept + got;
        if filled == 0 {
            return Ok(None);
        }
        if got == PIECE_BYTES {
            let end = memchr::memrchr(b'\n', &bytes[..filled]).map_or(0, |at| at + 1);
            if filled - end > self.max_line {
                let line = 1 + lines_in(path, offset);
                return Err(long_line(path, Place::Line(line), self.max_line));
            }
            self.carry.extend_from_slice(&bytes[end..filled]);
            filled = end;
        }
        let (consumed, spare) = (self.reader.progress().0 - before, self.giver.clone());
        Ok(Some(Lines::Packed(Unpacking { bytes, filled, offset, consumed, spare })))
    }
}
