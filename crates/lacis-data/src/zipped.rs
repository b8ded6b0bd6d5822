//! Zip archives, opened without believing how long their lists of files are.

use std::fs::File;
use std::io::{self, BufReader, Read, Seek, SeekFrom};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use lacis_core::Result;
use zip::ZipArchive;
use zip::result::ZipError;

use crate::input::open_file;

/// An open zip archive.
pub(crate) type Zip = ZipArchive<Metered>;

/// What may be read to find out what an archive holds: a list of some fifty thousand files.
const MAX_LIST_BYTES: u64 = 8 << 20;

/// Opens an archive; gives its size too.
///
/// # Errors
/// When the file cannot be opened; the inner one when it is no archive.
pub(crate) fn open(path: &Path) -> Result<(std::result::Result<Zip, ZipError>, u64)> {
    let (file, size) = open_file(path)?;
    let left = Arc::new(AtomicU64::new(MAX_LIST_BYTES));
    let zip = ZipArchive::new(Metered { file: BufReader::new(file), left: left.clone() });
    left.store(u64::MAX, Ordering::Relaxed);
    Ok((zip, size))
}

/// What is said of an archive that cannot be read.
pub(crate) fn said(error: &ZipError) -> String {
    let mut text = error.to_string();
    if text.contains("EOCD") {
        text = "the list of its files, which comes last, is missing: is it cut short?".to_owned();
    }
    format!("the zip archive cannot be read: {text}")
}

/// A file of which only so much may be read.
pub struct Metered {
    file: BufReader<File>,
    left: Arc<AtomicU64>,
}

impl Read for Metered {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let got = self.file.read(buffer)?;
        let left = self.left.load(Ordering::Relaxed).checked_sub(got as u64).ok_or_else(|| {
            let problem = format!("its list of files is longer than {MAX_LIST_BYTES} bytes");
            io::Error::new(io::ErrorKind::InvalidData, problem)
        })?;
        self.left.store(left, Ordering::Relaxed);
        Ok(got)
    }
}

impl Seek for Metered {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.file.seek(to)
    }

    fn seek_relative(&mut self, offset: i64) -> io::Result<()> {
        self.file.seek_relative(offset)
    }
}
