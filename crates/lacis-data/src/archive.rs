//! Archives: zip and tar, the latter plain, gzipped or zstandard. What they hold is unpacked into
//! a private folder, read from there, and removed; nothing of an archive is believed.
//!
//! Members whose names leave the archive, links and devices are errors; so is an archive that
//! unpacks to much more than its size allows, told from its declared sizes before anything is
//! written and from the bytes themselves, should those lie.

use std::fs::{self, File};
use std::io::{self, BufReader, Read, Write};
use std::path::{Component, Path, PathBuf};

use lacis_core::{Error, Place, Result};

use crate::input::{Input, MAX_RATIO, open_file};
use crate::{Job, zipped};

/// What any archive may unpack to, besides [`MAX_RATIO`] times its size.
const FREE_BYTES: u64 = 16 << 20;
const MAX_MEMBERS: usize = 1 << 11;
const MAX_NAME_PARTS: usize = 16;
/// Bytes of one of its parts: what file systems take.
const MAX_NAME_BYTES: usize = 255;

/// Whether (unpacked) bytes begin as a tar does.
pub(crate) fn is_tar(head: &[u8]) -> bool {
    head.get(257..262) == Some(b"ustar")
}

/// The archive that a path leads into, and where in it.
pub(crate) fn within(path: &Path) -> Option<(PathBuf, PathBuf)> {
    if path.exists() {
        return None;
    }
    let above = path.ancestors().skip(1).find(|above| above.exists())?;
    let inner = path.strip_prefix(above).ok()?;
    let is_archive = above.is_file()
        && crate::input::head(above, 512).is_ok_and(|h| is_tar(&h) || h.starts_with(b"PK\x03\x04"));
    let plain = inner.components().all(|part| matches!(part, Component::Normal(_)));
    (is_archive && plain).then(|| (above.to_owned(), inner.to_owned()))
}

/// An unpacked archive; dropped, it is removed.
pub(crate) struct Archive {
    source: PathBuf,
    /// The private folder, and in it one that is called as the archive.
    folder: PathBuf,
    content: PathBuf,
}

impl Archive {
    /// Unpacks an archive.
    ///
    /// # Errors
    /// When it is damaged or hostile, or the disk is full.
    pub fn unpack(source: &Path, job: &Job<'_>) -> Result<Self> {
        let name = format!("lacis-{:016x}", crate::staged::unique());
        let folder = std::env::temp_dir().join(name);
        let mut builder = fs::DirBuilder::new();
        std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
        builder.create(&folder).map_err(|e| Error::io("make", &folder, e))?;
        let content = folder.join(crate::stem(source));
        let archive = Archive { source: source.to_owned(), folder, content };
        fs::create_dir(&archive.content).map_err(|e| Error::io("make", &archive.content, e))?;
        unpack_into(source, &archive.content, job)?;
        Ok(archive)
    }

    /// The folder that holds what was in it.
    pub fn path(&self) -> &Path {
        &self.content
    }

    /// An error about an unpacked file, told as one of the archive.
    pub fn blame(&self, mut error: Error) -> Error {
        if let Error::File { path, .. } | Error::Io { path, .. } = &mut error
            && let Ok(inner) = path.strip_prefix(&self.content)
        {
            *path = match inner.as_os_str().is_empty() {
                true => self.source.clone(),
                false => self.source.join(inner),
            };
        }
        error
    }
}

/// Unpacks an archive into a folder.
///
/// # Errors
/// When it is damaged or hostile, or the disk is full.
pub(crate) fn unpack_into(source: &Path, content: &Path, job: &Job<'_>) -> Result<()> {
    let (_, size) = open_file(source)?;
    let left = size.saturating_mul(MAX_RATIO).saturating_add(FREE_BYTES);
    let mut unpacking =
        Unpacking { source, content, left, members: 0, buffer: vec![0; 1 << 18], job };
    match crate::input::head(source, 4)?.starts_with(b"PK\x03\x04") {
        true => unpacking.zip(),
        false => unpacking.tar(),
    }
}

impl Drop for Archive {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

struct Unpacking<'a> {
    source: &'a Path,
    content: &'a Path,
    /// How many more bytes are believed.
    left: u64,
    members: usize,
    /// What is on its way from the archive to a file.
    buffer: Vec<u8>,
    job: &'a Job<'a>,
}

impl Unpacking<'_> {
    fn problem(&self, member: Option<&str>, problem: impl Into<String>) -> Error {
        let shown =
            |name: &str| name.chars().take(80).collect::<String>().escape_debug().to_string();
        let place = member.map_or(Place::Whole, |name| Place::Part(shown(name)));
        Error::file_at(self.source, place, problem)
    }

    fn zip(&mut self) -> Result<()> {
        let source = self.source;
        let damaged = |e: zip::result::ZipError| zipped::said(&e);
        let mut zip = zipped::open(source)?.0.map_err(|e| self.problem(None, damaged(e)))?;
        self.check_members(zip.len())?;
        if zip.decompressed_size().is_some_and(|size| size > u128::from(self.left)) {
            return Err(self.too_large(None));
        }
        for at in 0..zip.len() {
            let mut member = zip.by_index(at).map_err(|e| self.problem(None, damaged(e)))?;
            let name = String::from_utf8_lossy(member.name_raw()).into_owned();
            if member.is_dir() {
                continue;
            }
            let plain = !member.is_symlink() && member.is_file();
            let size = member.size();
            self.member(&name, plain, size, &mut member)?;
        }
        Ok(())
    }

    fn tar(&mut self) -> Result<()> {
        let source = self.source;
        let unpacked = Input::open(source)?.unpacked(source)?;
        let mut tar = tar::Archive::new(BufReader::with_capacity(1 << 18, unpacked));
        let damaged = |e: io::Error| format!("the tar archive cannot be read: {e}");
        let entries = tar.entries().map_err(|e| self.problem(None, damaged(e)))?;
        for entry in entries {
            let mut entry = entry.map_err(|e| self.problem(None, damaged(e)))?;
            let name = String::from_utf8_lossy(&entry.path_bytes()).into_owned();
            let kind = entry.header().entry_type();
            if kind.is_dir() || kind.is_pax_global_extensions() {
                continue;
            }
            let size = entry.size();
            self.member(&name, kind.is_file() || kind.is_contiguous(), size, &mut entry)?;
        }
        Ok(())
    }

    fn check_members(&self, members: usize) -> Result<()> {
        if members <= MAX_MEMBERS {
            return Ok(());
        }
        Err(self.problem(None, format!("holds more than {MAX_MEMBERS} files; unpack it first")))
    }

    fn too_large(&self, member: Option<&str>) -> Error {
        let problem = format!(
            "unpacks to more than {MAX_RATIO} times its size, which is not believed of a graph"
        );
        self.problem(member, problem)
    }

    /// Writes one member to its place.
    fn member(&mut self, name: &str, plain: bool, size: u64, from: &mut dyn Read) -> Result<()> {
        self.members += 1;
        self.check_members(self.members)?;
        if !plain {
            return Err(self.problem(Some(name), "is a link or a device; a file would be right"));
        }
        let inner = Path::new(name);
        let inside = |part: Component<'_>| matches!(part, Component::Normal(_) | Component::CurDir);
        let parts = inner.components().count();
        if !inner.components().all(inside)
            || parts == 0
            || parts > MAX_NAME_PARTS
            || name.contains('\\')
        {
            let problem = "has a name that leads out of the archive; nothing is unpacked";
            return Err(self.problem(Some(name), problem));
        }
        if inner.components().any(|part| part.as_os_str().len() > MAX_NAME_BYTES) {
            let problem = format!("has a name of more than {MAX_NAME_BYTES} bytes");
            return Err(self.problem(Some(name), problem));
        }
        if name.chars().any(char::is_control) {
            return Err(self.problem(Some(name), "has a name that is no text"));
        }
        let hidden = |part: Component<'_>| {
            let part = part.as_os_str().as_encoded_bytes();
            part.starts_with(b".") && part != b"." || part == b"__MACOSX"
        };
        if inner.components().any(hidden) {
            return Ok(());
        }
        self.left = self.left.checked_sub(size).ok_or_else(|| self.too_large(Some(name)))?;
        self.write(name, size, from)
    }

    fn write(&mut self, name: &str, size: u64, from: &mut dyn Read) -> Result<()> {
        let path = self.content.join(name);
        let mut buffer = std::mem::take(&mut self.buffer);
        let refused = |e: io::Error| match e.kind() {
            io::ErrorKind::AlreadyExists | io::ErrorKind::NotADirectory => {
                self.problem(Some(name), "is in the archive twice")
            }
            _ => Error::io("unpack to", &path, e),
        };
        fs::create_dir_all(path.parent().unwrap_or(self.content)).map_err(refused)?;
        let mut out = File::create_new(&path).map_err(refused)?;
        let mut done = 0u64;
        loop {
            let got = crate::input::read_up_to(&mut *from, &mut buffer);
            let got =
                got.map_err(|e| self.problem(Some(name), format!("cannot be unpacked: {e}")))?;
            done += got as u64;
            if done > size {
                return Err(self.problem(Some(name), "holds more than its declared size"));
            }
            out.write_all(&buffer[..got]).map_err(refused)?;
            self.job.tick(done, Some(size))?;
            if got < buffer.len() {
                break;
            }
        }
        if done < size {
            let problem = format!("ends after {done} of {size} bytes");
            return Err(self.problem(Some(name), problem));
        }
        self.buffer = buffer;
        Ok(())
    }
}
