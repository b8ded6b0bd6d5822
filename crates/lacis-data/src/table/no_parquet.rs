//! What is said of Parquet files where the feature `parquet` is off.

use std::path::Path;

use lacis_core::{Error, Result};

use super::Table;
use crate::Job;

fn absent(path: &Path) -> Error {
    Error::file(path, "is Parquet, and this Lacis was built without the feature 'parquet'")
}

pub(crate) fn read(path: &Path, _: &Job<'_>) -> Result<Table> {
    Err(absent(path))
}

/// Reads a table of edges as a graph.
pub(crate) fn read_graph(path: &Path, _: &Job<'_>) -> Result<lacis_core::Dataset> {
    Err(absent(path))
}

/// Writes the edges as a table.
pub(crate) fn write(
    _: &lacis_core::Dataset,
    path: &Path,
    _: std::fs::File,
    _: &Job<'_>,
) -> Result<()> {
    Err(absent(path))
}

/// Writes a table.
pub(crate) fn write_sheet(
    _: &super::write::Sheet<'_>,
    path: &Path,
    _: std::fs::File,
) -> Result<()> {
    Err(absent(path))
}
