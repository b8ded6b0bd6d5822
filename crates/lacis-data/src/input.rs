//! Files from outside: opened, unpacked, and looked at before they are believed.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use lacis_core::{Error, Result};

/// How a file is compressed, told from its first bytes, not from its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Packing {
    /// Not at all.
    Plain,
    /// gzip, one member or several.
    Gzip,
    /// Zstandard, one frame or several.
    Zstd,
}

impl Packing {
    /// How many times its size a list of edges in this packing may unpack to: what differs from
    /// line to line packs to a sixth with gzip, to a fortieth where Zstandard meets a pattern.
    pub(crate) fn edges_ratio(self) -> u64 {
        match self {
            Packing::Plain => 1,
            Packing::Gzip => 24,
            Packing::Zstd => 64,
        }
    }

    fn of(head: &[u8]) -> Self {
        match head {
            [0x1f, 0x8b, ..] => Packing::Gzip,
            [0x28, 0xb5, 0x2f, 0xfd, ..] => Packing::Zstd,
            _ => Packing::Plain,
        }
    }
}

/// An open file and how it is packed.
pub struct Input {
    /// The file, at its start.
    pub file: File,
    /// Its size as it lies on disk.
    pub size_bytes: u64,
    /// How it is compressed.
    pub packing: Packing,
}

impl Input {
    /// Opens a regular file.
    ///
    /// # Errors
    /// When it is not there, not readable, or not a regular file.
    pub fn open(path: &Path) -> Result<Self> {
        let (file, size_bytes) = open_file(path)?;
        let mut head = [0; 4];
        let read = read_up_to(&file, &mut head).and_then(|got| {
            (&file).seek(SeekFrom::Start(0))?;
            Ok(got)
        });
        let got = read.map_err(|source| Error::io("read", path, source))?;
        Ok(Input { file, size_bytes, packing: Packing::of(&head[..got]) })
    }

    /// The unpacked bytes from the start.
    ///
    /// # Errors
    /// When the decompressor cannot be set up.
    pub fn unpacked(self, path: &Path) -> Result<Unpacked> {
        let consumed = Arc::new(AtomicU64::new(0));
        let size_bytes = self.size_bytes;
        let packed = Counted { file: self.file, count: consumed.clone() };
        let reader: Box<dyn Read + Send> = match self.packing {
            Packing::Plain => Box::new(packed),
            Packing::Gzip => Box::new(flate2::read::MultiGzDecoder::new(packed)),
            Packing::Zstd => {
                let decoder = zstd::stream::read::Decoder::new(packed);
                Box::new(decoder.map_err(|source| Error::io("unpack", path, source))?)
            }
        };
        Ok(Unpacked { reader, consumed, given: 0, size_bytes, max_ratio: MAX_RATIO })
    }
}

/// How many times its size a packed file may unpack to, besides the first megabytes. Text of
/// graphs packs to a tenth, rows of zeros to a hundredth; what is packed to a thousandth is a bomb.
pub(crate) const MAX_RATIO: u64 = 128;
/// What any file may unpack to.
pub(crate) const FREE_BYTES: u64 = 8 << 20;

/// The bytes of a file as they are unpacked: an error where they are too many for its size.
pub struct Unpacked {
    reader: Box<dyn Read + Send>,
    consumed: Arc<AtomicU64>,
    given: u64,
    size_bytes: u64,
    max_ratio: u64,
}

impl Unpacked {
    /// Believes less than [`MAX_RATIO`] times its size.
    pub(crate) fn with_max_ratio(self, max_ratio: u64) -> Self {
        Unpacked { max_ratio, ..self }
    }

    /// How many times its size is believed.
    pub(crate) fn max_ratio(&self) -> u64 {
        self.max_ratio
    }

    /// How much of the file was read, and its size, for a progress bar.
    pub fn progress(&self) -> (u64, u64) {
        (self.consumed.load(Ordering::Relaxed).min(self.size_bytes), self.size_bytes)
    }
}

impl Read for Unpacked {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let got = self.reader.read(buffer)?;
        self.given += got as u64;
        let consumed = self.consumed.load(Ordering::Relaxed);
        if self.given > consumed.saturating_mul(self.max_ratio).saturating_add(FREE_BYTES) {
            return Err(too_large(self.max_ratio));
        }
        Ok(got)
    }
}

/// What is said of a packed file that unpacks to much too much.
pub(crate) fn too_large(ratio: u64) -> std::io::Error {
    let problem = format!("it unpacks to more than {ratio} times its size, which is not believed");
    std::io::Error::new(std::io::ErrorKind::InvalidData, problem)
}

/// A file that counts what was read of it.
struct Counted {
    file: File,
    count: Arc<AtomicU64>,
}

impl Read for Counted {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let got = self.file.read(buffer)?;
        self.count.fetch_add(got as u64, Ordering::Relaxed);
        Ok(got)
    }
}

/// Opens a regular file, and tells its size: a pipe or a device could keep a reader waiting for
/// ever, a folder has no bytes.
///
/// # Errors
/// When it is not there, not readable, or not a regular file.
pub fn open_file(path: &Path) -> Result<(File, u64)> {
    let meta = std::fs::metadata(path).map_err(|source| Error::io("open", path, source))?;
    if !meta.is_file() {
        let kind = if meta.is_dir() { "a folder" } else { "not a regular file" };
        return Err(Error::file(path, format!("is {kind}; a file would be right")));
    }
    let file = File::open(path).map_err(|source| Error::io("open", path, source))?;
    Ok((file, meta.len()))
}

/// The first unpacked bytes of a file, at most `limit`; fewer where the packing is damaged.
///
/// # Errors
/// When the file cannot be opened.
pub fn head(path: &Path, limit: usize) -> Result<Vec<u8>> {
    let mut head = vec![0; limit];
    let mut reader = Input::open(path)?.unpacked(path)?;
    let mut got = 0;
    while got < limit {
        match reader.read(&mut head[got..]) {
            Ok(0) | Err(_) => break,
            Ok(more) => got += more,
        }
    }
    head.truncate(got);
    Ok(head)
}

/// Fills the buffer as far as the reader reaches.
///
/// # Errors
/// The reader's.
pub fn read_up_to(mut reader: impl Read, buffer: &mut [u8]) -> std::io::Result<usize> {
    let mut got = 0;
    while got < buffer.len() {
        match reader.read(&mut buffer[got..]) {
            Ok(0) => break,
            Ok(more) => got += more,
            Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(got)
}

/// A few bytes can name node 4294967295, or declare that many: memory follows what the data
/// account for, with room for graphs that are mostly lone nodes.
pub(crate) fn check_count(
    what: &str,
    count: usize,
    n_entries: usize,
) -> std::result::Result<(), String> {
    believe(what, count, n_entries, 1 << 22)
}

/// As [`check_count`], where a file has a line for each node: with less room.
pub(crate) fn check_listed(
    what: &str,
    count: usize,
    n_listed: usize,
) -> std::result::Result<(), String> {
    believe(what, count, n_listed, 1 << 16)
}

fn believe(
    what: &str,
    count: usize,
    n_entries: usize,
    free: usize,
) -> std::result::Result<(), String> {
    const PER_ENTRY: usize = 64;
    if count <= n_entries.saturating_mul(PER_ENTRY).saturating_add(free) {
        return Ok(());
    }
    Err(format!(
        "{count} {what} are not believed of {n_entries} entries; numbers without large gaps are"
    ))
}
