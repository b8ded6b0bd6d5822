//! A file as memory: one of two places of this crate that need `unsafe`; the other is `wide.rs`.

use std::path::Path;

use lacis_core::{Error, Result};
use memmap2::{Mmap, MmapOptions};

use crate::input::open_file;

/// Maps a whole file for reading, its pages looked up at once rather than one fault at a time.
///
/// # Errors
/// When the file cannot be opened or mapped.
pub fn map(path: &Path) -> Result<Mmap> {
    let (file, _) = open_file(path)?;
    let mut options = MmapOptions::new();
    options.populate();
    // SAFETY: a mapped file that another process shortens or rewrites changes under the slices
    // taken from it. Lacis never does that: it writes a folder under another name and then renames
    // it, so the mapped files stay as they are, even when the folder is replaced or removed. Every
    // value that code relies on (sizes, row pointers, columns) is a plain number for which all bit
    // patterns are valid, and is checked after mapping.
    #[allow(unsafe_code)]
    let mapped = unsafe { options.map(&file) };
    mapped.map_err(|source| Error::io("map", path, source))
}
