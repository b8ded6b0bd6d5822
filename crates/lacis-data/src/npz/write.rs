//! A graph as what `scipy.sparse.load_npz` reads.

use std::io::{self, Seek, Write};
use std::path::Path;

use lacis_core::{Csr, Dataset, Error, Result};
use zip::result::ZipError;
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipWriter};

use crate::Job;
use crate::npy::{self, Item};

/// Writes a data set's graph as a SciPy sparse matrix (csr; entry `(i, j)` is an edge from `i` to
/// `j`); `path` is what errors name.
///
/// # Errors
/// When the sink refuses, or the watcher stops the work.
pub fn write_scipy(
    dataset: &Dataset,
    out: impl Write + Seek,
    path: &Path,
    job: &Job,
) -> Result<()> {
    let matrix = dataset.graph().transpose(job.threads);
    let zip = ZipWriter::new(Sink { out, refused: false });
    let mut members = Members { zip, path, job, written: 0 };
    let narrow = [matrix.n_rows(), matrix.n_cols(), matrix.nnz()]
        .iter()
        .all(|&count| i32::try_from(count).is_ok());
    if narrow {
        members.indices(matrix, |index| index as i32)?;
    } else {
        members.indices(matrix, |index| index as i64)?;
    }
    members.start("format", "|S3", &[])?;
    members.bytes(b"csr")?;
    let shape = [matrix.n_rows() as i64, matrix.n_cols() as i64];
    members.array("shape", &shape, |extent| extent)?;
    match matrix.values() {
        Some(values) => members.array("data", values, |value| value)?,
        None => members.array("data", matrix.cols(), |_| 1.0f32)?,
    }
    members.finish()
}

/// A sink that fails once. A `ZipWriter` that is dropped tries to finish, and prints when it
/// cannot; what comes after a failure is thrown away anyhow.
struct Sink<W> {
    out: W,
    refused: bool,
}

impl<W: Write> Write for Sink<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.refused {
            return Ok(bytes.len());
        }
        self.out.write(bytes).inspect_err(|_| self.refused = true)
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.refused {
            return Ok(());
        }
        self.out.flush().inspect_err(|_| self.refused = true)
    }
}

impl<W: Seek> Seek for Sink<W> {
    fn seek(&mut self, to: io::SeekFrom) -> io::Result<u64> {
        if self.refused {
            return Ok(0);
        }
        self.out.seek(to).inspect_err(|_| self.refused = true)
    }
}

/// An archive on its way out.
struct Members<'a, W: Write + Seek> {
    zip: ZipWriter<Sink<W>>,
    path: &'a Path,
    job: &'a Job<'a>,
    written: u64,
}

impl<W: Write + Seek> Members<'_, W> {
    /// Both index arrays of a matrix, in one type.
    fn indices<T: Item>(&mut self, matrix: &Csr, index: impl Fn(u64) -> T) -> Result<()> {
        self.array("indices", matrix.cols(), |col| index(u64::from(col)))?;
        self.array("indptr", &matrix.row_ptr().to_vec(), index)
    }

    /// A vector, item by item made of another.
    fn array<S: Copy, T: Item>(
        &mut self,
        name: &str,
        items: &[S],
        make: impl Fn(S) -> T,
    ) -> Result<()> {
        const CHUNK: usize = 1 << 16;
        self.start(name, &npy::descr::<T>(), &[items.len()])?;
        let mut made = Vec::with_capacity(CHUNK.min(items.len()));
        for chunk in items.chunks(CHUNK) {
            made.clear();
            made.extend(chunk.iter().map(|&item| make(item)));
            self.bytes(bytemuck::cast_slice(&made))?;
        }
        Ok(())
    }

    fn start(&mut self, name: &str, descr: &str, shape: &[usize]) -> Result<()> {
        // Whether a member passes 4 GiB must be known before it is written.
        const WIDEST_ITEM: u64 = 8;
        const SMALL: u64 = u32::MAX as u64 / 2;
        let items = shape.first().map_or(1, |&len| len as u64);
        let options = SimpleFileOptions::default()
            .compression_method(CompressionMethod::Stored)
            .large_file(items > SMALL / WIDEST_ITEM);
        let started = self.zip.start_file(format!("{name}.npy"), options);
        started.map_err(|error| self.refused(error))?;
        npy::write_header(&mut self.zip, descr, shape).map_err(|error| self.failed(error))
    }

    fn bytes(&mut self, bytes: &[u8]) -> Result<()> {
        self.zip.write_all(bytes).map_err(|error| self.failed(error))?;
        self.written += bytes.len() as u64;
        self.job.tick(self.written, None)
    }

    fn finish(self) -> Result<()> {
        let path = self.path;
        let out = self.zip.finish().map_err(|error| Error::io("write", path, error.into()));
        out?.flush().map_err(|error| Error::io("write", path, error))
    }

    fn refused(&self, error: ZipError) -> Error {
        self.failed(error.into())
    }

    fn failed(&self, error: io::Error) -> Error {
        Error::io("write", self.path, error)
    }
}
