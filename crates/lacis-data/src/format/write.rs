//! Writing: what a path's ending means, and a file or folder that appears whole or not at all.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use lacis_core::{Dataset, Error, Result};

use super::{FORMATS, Format, PACKINGS, Writes, asked_for, by_name};
use crate::staged::{Existing, Staged};
use crate::{Job, native};

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
