//! The table of file formats: what a path is, how to read it, how to write it.
//!
//! A new reader joins with one line in [`FORMATS`]; detection, `--format`, error messages,
//! `lacis data list` and the tests that damage samples all walk the table.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use lacis_core::{Dataset, Error, Result};

use crate::staged::{Existing, Staged};
use crate::{Job, edges, input, mtx, native, npy, npz, planetoid};

/// One file format.
pub struct Format {
    /// What `--format` calls it.
    pub name: &'static str,
    /// What its files are.
    pub about: &'static str,
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

/// Every format there is. Detection asks them in this order.
pub static FORMATS: &[Format] = &[
    Format {
        name: "lacis",
        about: "own folder: meta.json and memory-mapped .npy arrays, checksummed",
        recognises: |c| c.is_folder && native::is_native(&c.path),
        read: native::read,
        write: Writes::Folder(native::write),
    },
    Format {
        name: "planetoid",
        about: "ind.NAME.{x,y,tx,ty,allx,ally,graph,test.index}: Cora, CiteSeer, PubMed",
        recognises: |c| planetoid::find(&c.path).is_some(),
        read: planetoid::read,
        write: Writes::No,
    },
    Format {
        name: "gnn-benchmark",
        about: "npz with adj_* and attr_* members: the Amazon and Coauthor sets",
        recognises: |c| npz::is_gnn_benchmark(&c.members),
        read: npz::read_gnn_benchmark,
        write: Writes::No,
    },
    Format {
        name: "scipy",
        about: "npz of scipy.sparse.save_npz (csr, csc, coo)",
        recognises: |c| npz::is_scipy(&c.members),
        read: npz::read_scipy,
        write: Writes::Binary(&[".npz"], |set, path, file, job| {
            npz::write_scipy(set, BufWriter::new(file), path, job)
        }),
    },
    Format {
        name: "npy",
        about: "npy array of whole numbers, 2×E or E×2: an edge_index",
        recognises: |c| c.is_plain && npy::is_edge_index(&c.head),
        read: npy::read,
        write: Writes::No,
    },
    Format {
        name: "mtx",
        about: "MatrixMarket coordinate file, plain, .gz or .zst",
        recognises: |c| mtx::has_banner(&c.head),
        read: mtx::read,
        write: Writes::Text(&[".mtx"], mtx::write),
    },
    Format {
        name: "edges",
        about: "edge list 'source target [weight]': text, CSV, TSV, SNAP; plain, .gz or .zst",
        recognises: |c| !c.is_folder && c.has_text_name() && edges::looks_like_edges(&c.head),
        read: edges::read,
        write: Writes::Text(&[".txt", ".tsv", ".csv", ".el", ".edges", ".edgelist"], edges::write),
    },
];

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

    fn format(&self) -> Option<&'static Format> {
        FORMATS.iter().find(|format| (format.recognises)(self))
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

/// Reads the graph at a path: of the format asked for, or of the one it looks like.
///
/// # Errors
/// When nothing is there, it is of no known format, or it is damaged.
pub fn read(path: &Path, format: Option<&str>, job: &Job<'_>) -> Result<Dataset> {
    fs::metadata(path).map_err(|source| Error::io("open", path, source))?;
    let asked = format.map(asked_for).transpose()?;
    let (path, format) = match asked {
        Some(format) if !path.is_dir() => (path.to_owned(), format),
        Some(format) if (format.recognises)(&Candidate::new(path)?) => (path.to_owned(), format),
        _ => find(path, asked)?,
    };
    Ok((format.read)(&path, job)?.with_format(format.name))
}

/// What a path holds: the format of the file or folder itself, or of the one graph file in it.
fn find(path: &Path, asked: Option<&'static Format>) -> Result<(PathBuf, &'static Format)> {
    let candidate = Candidate::new(path)?;
    if let Some(format) = candidate.format() {
        return Ok((path.to_owned(), format));
    }
    if !candidate.is_folder {
        return Err(unknown(&candidate));
    }
    let fits = |format: &Format| asked.is_none_or(|asked| asked.name == format.name);
    let mut found = Vec::new();
    for file in files_in(path)? {
        // A file that cannot be read is not this folder's graph; the error below lists what is.
        let format = Candidate::new(&file).ok().and_then(|candidate| candidate.format());
        found.extend(format.filter(|format| fits(format)).map(|format| (file, format)));
    }
    match found.len() {
        1 => Ok(found.remove(0)),
        0 => Err(Error::file(path, "holds no graph file; `lacis data list` shows the formats")),
        _ => {
            let names: Vec<_> = found.iter().filter_map(|(file, _)| file.file_name()).collect();
            let names: Vec<_> = names.iter().map(|name| name.to_string_lossy()).collect();
            let problem =
                format!("holds {} graph files; name one: {}", names.len(), names.join(", "));
            Err(Error::file(path, problem))
        }
    }
}

fn files_in(folder: &Path) -> Result<Vec<PathBuf>> {
    let io = |source| Error::io("read", folder, source);
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).map_err(io)? {
        let path = entry.map_err(io)?.path();
        let hidden = path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
        if path.is_file() && !hidden {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

fn unknown(candidate: &Candidate) -> Error {
    let problem = if candidate.head.is_empty() {
        "is empty".to_owned()
    } else if edges::looks_like_edges(&candidate.head) {
        "may be an edge list, but is not named like one; `--format edges` reads it as such"
            .to_owned()
    } else if candidate.has_text_name() {
        // Named like an edge list: say why it is none.
        return edges::why_not(&candidate.path, &candidate.head);
    } else {
        "is of no known format; `lacis data list` shows them, `--format NAME` chooses".to_owned()
    };
    Error::file(&candidate.path, problem)
}

/// Writes a data set to a path: in the format asked for, or the one the path's ending means;
/// without an ending, the own folder format. The file or folder appears whole or not at all.
///
/// # Errors
/// When the format cannot be written, the place is taken, or the disk refuses.
pub fn write(
    set: &Dataset,
    path: &Path,
    format: Option<&str>,
    existing: Existing,
    job: &Job<'_>,
) -> Result<()> {
    let format = check_target(path, format, existing)?;
    let place = real_place(path)?;
    let staged = Staged::new(&place, existing)?;
    let create = || File::create(staged.path()).map_err(|source| Error::io("write", path, source));
    match &format.write {
        Writes::No => unreachable!("the target was checked"),
        Writes::Folder(write) => write(set, staged.path(), job)?,
        Writes::Binary(_, write) => write(set, path, create()?, job)?,
        Writes::Text(_, write) => {
            let file = Watched { file: create()?, written: 0, job };
            write_packed(path, file, |out| write(set, path, out))
                .map_err(|error| if job.watch.stopped() { Error::Interrupted } else { error })?;
        }
    }
    staged.commit()
}

/// That [`write()`] to this place can begin; better to hear it before an hour of reading.
///
/// # Errors
/// As [`write()`], but for what only writing can find out.
pub fn check_target(
    path: &Path,
    format: Option<&str>,
    existing: Existing,
) -> Result<&'static Format> {
    let format = match format {
        Some(name) => asked_for(name)?,
        None => format_for(path)?,
    };
    if !format.can_write() {
        let writable = FORMATS.iter().filter(|format| format.can_write());
        let names: Vec<_> = writable.map(|format| format.name).collect();
        let problem = format!("cannot be written; {} can", names.join(", "));
        return Err(Error::argument(format!("'{}'", format.name), problem));
    }
    let place = real_place(path)?;
    check_replaceable(&place, matches!(format.write, Writes::Folder(_)), existing)?;
    Staged::new(&place, existing)?;
    Ok(format)
}

/// Where a link leads, so that what it points to is written and the link stays.
fn real_place(path: &Path) -> Result<PathBuf> {
    match path.is_symlink() {
        true => fs::canonicalize(path).map_err(|source| Error::io("follow", path, source)),
        false => Ok(path.to_owned()),
    }
}

/// What a format cannot hold of a data set, in words.
pub fn left_out(set: &Dataset, path: &Path, format: Option<&str>) -> Vec<&'static str> {
    let folder = match format {
        Some(name) => by_name(name),
        None => format_for(path).ok(),
    }
    .is_some_and(|format| matches!(format.write, Writes::Folder(_)));
    if folder {
        return Vec::new();
    }
    let parts = [
        (set.features().is_some(), "features"),
        (set.labels().is_some(), "labels"),
        (!set.splits().is_empty(), "splits"),
        (set.collection().is_some(), "the borders between graphs"),
    ];
    parts.into_iter().filter(|(present, _)| *present).map(|(_, part)| part).collect()
}

/// Packs what is written as the path's ending says.
fn write_packed(
    path: &Path,
    file: impl Write,
    write: impl FnOnce(&mut dyn Write) -> Result<()>,
) -> Result<()> {
    let io = |source| Error::io("write", path, source);
    let mut out = BufWriter::with_capacity(1 << 20, file);
    let ending = path.extension().and_then(OsStr::to_str).unwrap_or_default().to_lowercase();
    match ending.as_str() {
        "gz" => {
            let mut packed = flate2::write::GzEncoder::new(out, flate2::Compression::default());
            write(&mut packed)?;
            out = packed.finish().map_err(io)?;
        }
        "zst" | "zstd" => {
            let mut packed = zstd::stream::write::Encoder::new(out, 0).map_err(io)?;
            packed.include_checksum(true).map_err(io)?;
            write(&mut packed)?;
            out = packed.finish().map_err(io)?;
        }
        _ => write(&mut out)?,
    }
    out.flush().map_err(io)
}

/// A file that tells how much was written, and refuses more when the work should stop.
struct Watched<'a> {
    file: File,
    written: u64,
    job: &'a Job<'a>,
}

impl Write for Watched<'_> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let written = self.file.write(bytes)?;
        self.written += written as u64;
        match self.job.tick(self.written, None) {
            Ok(()) => Ok(written),
            Err(stopped) => Err(std::io::Error::other(stopped)),
        }
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.file.flush()
    }
}

fn format_for(path: &Path) -> Result<&'static Format> {
    let name = path.file_name().unwrap_or_default().to_string_lossy().to_lowercase();
    let packing = PACKINGS.iter().find(|end| name.ends_with(**end));
    let bare = packing.map_or(&*name, |end| &name[..name.len() - end.len()]);
    let ends = |format: &&Format| format.write.endings().iter().any(|end| bare.ends_with(end));
    match FORMATS.iter().find(ends) {
        Some(format) if packing.is_none() || matches!(format.write, Writes::Text(..)) => Ok(format),
        Some(format) => {
            let problem = format!("the {} format is not packed a second time", format.name);
            Err(Error::file(path, problem))
        }
        None if packing.is_none() && !bare.contains('.') || bare.ends_with(".lacis") => {
            Ok(by_name("lacis").expect("in the table"))
        }
        None => {
            let problem = "has an ending that means no format; none for the own folder format, \
                           or .npz, .mtx, .txt, .csv, .tsv (also with .gz, .zst) would be right";
            Err(Error::file(path, problem))
        }
    }
}

/// Only a file, or a folder with nothing in it that Lacis did not write, may give way: others hold
/// somebody's work, or are no files at all.
fn check_replaceable(path: &Path, by_folder: bool, existing: Existing) -> Result<()> {
    let Ok(meta) = fs::symlink_metadata(path) else { return Ok(()) };
    if existing == Existing::Keep {
        return Ok(());
    }
    if meta.is_dir() != by_folder || !(meta.is_dir() || meta.is_file()) {
        let kind = if by_folder { "folder" } else { "file" };
        let problem = format!("is no {kind}, and a {kind} cannot replace it");
        return Err(Error::file(path, problem));
    }
    let entries = if meta.is_dir() { Some(fs::read_dir(path)) } else { None };
    let entries = entries.transpose().map_err(|source| Error::io("read", path, source))?;
    for entry in entries.into_iter().flatten() {
        let entry = entry.map_err(|source| Error::io("read", path, source))?;
        let name = entry.file_name();
        let ours = native::is_own_file(&name.to_string_lossy()) && native::is_native(path);
        if !ours || !entry.path().is_file() {
            let found = name.to_string_lossy();
            let problem =
                format!("holds '{found}', which Lacis did not write; nothing is replaced");
            return Err(Error::file(path, problem));
        }
    }
    Ok(())
}
