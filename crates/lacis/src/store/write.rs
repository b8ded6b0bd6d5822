//! Writing a file that appears whole or not at all.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use lacis_core::{Error, Result};
use lacis_data::staged::{Existing, Staged};

/// Writes a file under a hidden name and puts it in its place; an old one is replaced.
pub(super) fn write_whole(
    path: &Path,
    write: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>,
) -> Result<()> {
    let staged = Staged::new(path, Existing::Replace)?;
    let refused = |source| Error::io("write", path, source);
    let mut file = BufWriter::new(File::create(staged.path()).map_err(refused)?);
    write(&mut file).map_err(refused)?;
    file.flush().map_err(refused)?;
    staged.commit()
}
