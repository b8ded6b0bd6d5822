//! The table of file formats: what a path is, how to read it, how to write it.
//!
//! A new reader joins with one line in [`FORMATS`]; detection, `--format`, error messages,
//! `lacis data list`, `docs/formats.md` and the tests that damage samples all walk the table.
//! Archives (zip, tar, packed tar) are no formats: what they hold is unpacked and read as a folder.

mod page;
mod table;
mod write;

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

use lacis_core::{Dataset, Error, Result};

use crate::archive::{self, Archive};
use crate::{Job, edges, input, npz};

pub use page::page;
pub use table::FORMATS;
pub use write::{check_target, left_out, write};

/// One file format.
pub struct Format {
    /// What `--format` calls it.
    pub name: &'static str,
    /// What its files are.
    pub about: &'static str,
    /// What a data set of this format may have.
    pub holds: &'static str,
    /// Which way its edges run.
    pub direction: &'static str,
    /// Whether a path holds this format, judged by its name and first bytes.
    recognises: fn(&Candidate) -> bool,
    /// Reads it.
    read: fn(&Path, &Job<'_>) -> Result<Dataset>,
    /// Writes it, if it can be written.
    write: Writes,
}

enum Writes {
    No,
    Folder(fn(&Dataset, &Path, &Job<'_>) -> Result<()>),
    /// Into a file that may be packed; the path is what errors name.
    Text(&'static [&'static str], fn(&Dataset, &Path, &mut dyn Write) -> Result<()>),
    Binary(&'static [&'static str], fn(&Dataset, &Path, File, &Job<'_>) -> Result<()>),
}

impl Writes {
    fn endings(&self) -> &'static [&'static str] {
        match self {
            Writes::No | Writes::Folder(_) => &[],
            Writes::Text(endings, _) | Writes::Binary(endings, _) => endings,
        }
    }
}

impl Format {
    /// Whether it can be written.
    pub fn can_write(&self) -> bool {
        !matches!(self.write, Writes::No)
    }
}

/// Endings that say how a file is packed, not what it holds.
const PACKINGS: [&str; 3] = [".gz", ".zst", ".zstd"];

/// A path that may hold a graph.
struct Candidate {
    path: PathBuf,
    is_folder: bool,
    /// Whether the file is not packed.
    is_plain: bool,
    /// The name in lower case, without the ending of a packing.
    name: String,
    /// The first unpacked bytes.
    head: Vec<u8>,
    /// The names in a zip archive; none in anything else.
    members: Vec<String>,
}

impl Candidate {
    fn new(path: &Path) -> Result<Self> {
        let is_folder = path.is_dir();
        let head = if is_folder { Vec::new() } else { input::head(path, edges::HEAD_BYTES)? };
        let is_plain = !is_folder && input::Input::open(path)?.packing == input::Packing::Plain;
        let name = path.file_name().unwrap_or_default().to_string_lossy().to_lowercase();
        let name =
            PACKINGS.iter().find_map(|end| name.strip_suffix(end)).unwrap_or(&name).to_owned();
        let is_zip = is_plain && head.starts_with(b"PK\x03\x04");
        let members = if is_zip { npz::member_names(path)? } else { Vec::new() };
        Ok(Candidate { path: path.to_owned(), is_folder, is_plain, name, head, members })
    }

    /// Numbers in two columns may be anything; in a file named like one they are edges.
    fn has_text_name(&self) -> bool {
        const OTHERS: [&str; 4] = [".cites", ".dat", ".snap", ".ncol"];
        let endings = by_name("edges").map_or(&[][..], |edges| edges.write.endings());
        let named = |ending: &&str| self.name.ends_with(ending);
        !self.name.contains('.') || endings.iter().any(named) || OTHERS.iter().any(named)
    }

    /// A zip that holds anything but arrays, or a tar, packed or not.
    fn is_archive(&self) -> bool {
        let zip = self.is_plain && self.head.starts_with(b"PK\x03\x04");
        zip && self.members.is_empty() || archive::is_tar(&self.head)
    }

    fn has_metis_name(&self) -> bool {
        [".graph", ".metis"].iter().any(|ending| self.name.ends_with(ending))
    }

    fn found(&self) -> Option<Found> {
        if self.is_archive() {
            return Some(Found::Archive(PathBuf::new()));
        }
        FORMATS.iter().find(|format| (format.recognises)(self)).map(Found::Graph)
    }
}

/// The format of that name.
pub fn by_name(name: &str) -> Option<&'static Format> {
    FORMATS.iter().find(|format| format.name == name)
}

fn asked_for(name: &str) -> Result<&'static Format> {
    by_name(name).ok_or_else(|| {
        let known: Vec<_> = FORMATS.iter().map(|format| format.name).collect();
        let problem = format!("is no format; {} would be right", known.join(", "));
        Error::argument(format!("'{name}'"), problem)
    })
}

/// Reads the graph at a path: of the format asked for, or of the one it looks like. A path may
/// lead into an archive: `sets.zip/cora`.
///
/// # Errors
/// When nothing is there, it is of no known format, or it is damaged.
pub fn read(path: &Path, format: Option<&str>, job: &Job<'_>) -> Result<Dataset> {
    read_nested(path, format.map(asked_for).transpose()?, 0, job)
}

/// Whether [`read`] would find something at this path: it exists, or leads into an archive.
pub fn exists(path: &Path) -> bool {
    path.exists() || archive::within(path).is_some()
}

/// How many archives and folders may lie within each other.
const MAX_DEPTH: usize = 4;

fn read_nested(
    path: &Path,
    asked: Option<&'static Format>,
    depth: usize,
    job: &Job<'_>,
) -> Result<Dataset> {
    let (path, found) = match archive::within(path) {
        Some((archive, inner)) => (archive, Found::Archive(inner)),
        None => {
            fs::metadata(path).map_err(|source| Error::io("open", path, source))?;
            find(path, asked, 0)?
        }
    };
    match found {
        Found::Graph(format) => Ok((format.read)(&path, job)?.with_format(format.name)),
        Found::Archive(_) if depth >= MAX_DEPTH => {
            Err(Error::file(path, format!("holds archives in archives, {MAX_DEPTH} deep")))
        }
        Found::Archive(inner) => {
            let unpacked = Archive::unpack(&path, job)?;
            let inside = unpacked.path().join(inner);
            read_nested(&inside, asked, depth + 1, job).map_err(|error| unpacked.blame(error))
        }
    }
}

/// What a path holds.
#[derive(Clone)]
enum Found {
    Graph(&'static Format),
    /// An archive, and what in it is meant.
    Archive(PathBuf),
}

/// What a path holds: the format of the file or folder itself, or of the one graph file in it.
fn find(path: &Path, asked: Option<&'static Format>, depth: usize) -> Result<(PathBuf, Found)> {
    let candidate = Candidate::new(path)?;
    let fits = |format: &Format| asked.is_none_or(|asked| asked.name == format.name);
    if let Some(asked) =
        asked.filter(|asked| !candidate.is_folder || (asked.recognises)(&candidate))
        && !candidate.is_archive()
    {
        return Ok((path.to_owned(), Found::Graph(asked)));
    }
    match candidate.found() {
        Some(Found::Graph(format)) if !fits(format) => {}
        Some(found) => return Ok((path.to_owned(), found)),
        None if !candidate.is_folder => return Err(unknown(&candidate)),
        None => {}
    }
    let mut found = Vec::new();
    for file in entries_in(path, Path::is_file)? {
        // A file that cannot be read is not this folder's graph; the error below lists what is.
        let inside = Candidate::new(&file).ok().and_then(|candidate| candidate.found());
        found.extend(
            inside.filter(|f| !matches!(f, Found::Graph(f) if !fits(f))).map(|f| (file, f)),
        );
    }
    if found.is_empty() && depth < MAX_DEPTH {
        let folders = entries_in(path, Path::is_dir)?;
        found.extend(folders.iter().filter_map(|folder| find(folder, asked, depth + 1).ok()));
    }
    match found.len() {
        1 => Ok(found.remove(0)),
        0 => Err(Error::file(path, "holds no graph file; `lacis data list` shows the formats")),
        _ => {
            let inside = |at: &PathBuf| at.strip_prefix(path).unwrap_or(at).display().to_string();
            let names: Vec<_> = found.iter().map(|(at, _)| inside(at)).take(20).collect();
            let problem =
                format!("holds {} graph files; name one: {}", found.len(), names.join(", "));
            Err(Error::file(path, problem))
        }
    }
}

/// The files, or the folders, in a folder that are not hidden.
fn entries_in(folder: &Path, kind: fn(&Path) -> bool) -> Result<Vec<PathBuf>> {
    let io = |source| Error::io("read", folder, source);
    let mut entries = Vec::new();
    for entry in fs::read_dir(folder).map_err(io)? {
        let path = entry.map_err(io)?.path();
        let hidden = path
            .file_name()
            .is_some_and(|name| name.as_encoded_bytes().starts_with(b".") || name == "__MACOSX");
        if kind(&path) && !hidden {
            entries.push(path);
        }
    }
    entries.sort();
    Ok(entries)
}

/// What files begin with that are something else, and what would be right.
const OTHERS: &[(&[u8], &str)] = &[
    (b"BZh", "is packed with bzip2; gzip, Zstandard, zip and tar are read"),
    (b"\xfd7zXZ", "is packed with xz; gzip, Zstandard, zip and tar are read"),
    (b"7z\xbc\xaf", "is packed with 7-Zip; gzip, Zstandard, zip and tar are read"),
    (b"Rar!", "is packed with RAR; gzip, Zstandard, zip and tar are read"),
    (b"\xff\xfe", "is UTF-16 text; UTF-8 would be right"),
    (b"\xfe\xff", "is UTF-16 text; UTF-8 would be right"),
    (b"\x89HDF", "is HDF5, or MATLAB 7.3; MATLAB 5 (save -v7), .npz or Parquet would be right"),
    (b"ARROW1", "is an Arrow (Feather) file; Parquet would be right"),
    (b"<!DOCTYPE", "is a web page, not data: its download went wrong"),
    (b"<html", "is a web page, not data: its download went wrong"),
    (b"version https://git-lfs", "stands for a file that Git LFS has not brought; `git lfs pull`"),
];

fn unknown(candidate: &Candidate) -> Error {
    let head = &candidate.head[..];
    let other = OTHERS.iter().find(|(start, _)| head.starts_with(start));
    let problem = if head.is_empty() && !candidate.is_plain {
        "is damaged: it cannot be unpacked".to_owned()
    } else if head.is_empty() {
        "is empty".to_owned()
    } else if let Some((_, problem)) = other {
        (*problem).to_owned()
    } else if !candidate.members.is_empty() {
        let names: Vec<&str> = candidate.members.iter().take(12).map(|name| &**name).collect();
        format!("holds the arrays {}, which make no graph that is known", names.join(", "))
    } else if head.starts_with(b"\x93NUMPY") {
        "holds no edges; whole numbers of shape (2, edges) or (edges, 2) would be right".to_owned()
    } else if edges::looks_like_edges(head) {
        "may be an edge list, but is not named like one; `--format edges` reads it as such"
            .to_owned()
    } else if !head.contains(&b'\n') && head.contains(&b'\r') {
        "has lines that end with a carriage return alone; line feeds would be right".to_owned()
    } else if candidate.has_text_name() {
        // Named like an edge list: say why it is none.
        return edges::why_not(&candidate.path, head);
    } else {
        "is of no known format; `lacis data list` shows them, `--format NAME` chooses".to_owned()
    };
    Error::file(&candidate.path, problem)
}
