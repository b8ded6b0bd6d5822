//! numpy's `.npz`: a zip archive of arrays. Two kinds of graphs are kept in it.
//!
//! ```text
//!  SciPy           format, shape, data and  indices, indptr (csr, csc)  or  row, col (coo)
//!  gnn-benchmark   adj_{data,indices,indptr,shape}, attr_{…} or attr_matrix, labels, class_names
//!                  (or dotted: adj_matrix.data, attr_matrix.indices, …)
//! ```
//! Matrix entry `(i, j)` is an edge from `i` to `j`, as SciPy, networkx and PyG read it.

mod read;
mod write;

use std::path::Path;

use lacis_core::{Buffer, Error, Place, Result, RowPtr};
use zip::read::ZipFile;
use zip::result::ZipError;

use crate::Job;
use crate::npy::{Array, Kind, Npy, Number, Source};
use crate::zipped::{self, Metered, Zip};

pub use read::{is_gnn_benchmark, is_scipy, read_gnn_benchmark, read_scipy};
pub use write::write_scipy;

/// The names of an archive's arrays, without their `.npy`.
///
/// # Errors
/// When the file is no zip archive.
pub fn member_names(path: &Path) -> Result<Vec<String>> {
    Ok(Npz::names(&open_archive(path)?))
}

/// Ends where the archive says that it does, or a byte later: its checksum is asked for at the end.
type Member<'a> = std::io::Take<ZipFile<'a, Metered>>;

/// How many times its size an archive of arrays may unpack to, besides the first megabytes: dense
/// features that are nearly all zeros pack to a three-hundredth.
const MAX_RATIO: u128 = 400;
const FREE_BYTES: u128 = 64 << 20;
/// How many numbers of nodes are believed of a packed byte, and besides: nothing but a made-up
/// pattern packs them further.
const NODES_PER_BYTE: usize = 32;
const FREE_NODES: usize = 1 << 21;

/// An open archive of arrays.
pub struct Npz<'a> {
    path: &'a Path,
    job: Job<'a>,
    archive: Zip,
    names: Vec<String>,
    /// Bytes of the arrays read so far, and of all arrays as far as the archive says.
    done: u64,
    total: u64,
}

impl<'a> Npz<'a> {
    /// Opens an archive and lists its arrays.
    ///
    /// # Errors
    /// When the file is no zip archive.
    pub fn open(path: &'a Path, job: &Job<'a>) -> Result<Self> {
        let archive = open_archive(path)?;
        let total = archive.decompressed_size().unwrap_or(0);
        Ok(Npz {
            path,
            job: *job,
            names: Npz::names(&archive),
            archive,
            done: 0,
            total: u64::try_from(total).unwrap_or(u64::MAX),
        })
    }

    fn names(archive: &Zip) -> Vec<String> {
        let names = archive.file_names().filter_map(|name| name.ok());
        names.filter_map(|name| name.strip_suffix(".npy").map(str::to_owned)).collect()
    }

    /// Whether there is such an array.
    pub fn has(&self, name: &str) -> bool {
        self.names.iter().any(|known| known == name)
    }

    /// Where errors about an array are said to be.
    pub fn source<'s>(&'s self, name: &'s str) -> Source<'s> {
        let total = Some(self.total).filter(|total| *total > 0);
        Source::file(self.path, &self.job).with_member(name).with_progress(self.done, total)
    }

    /// What `take` makes of an array whose header was read.
    ///
    /// # Errors
    /// When there is no such array, it is damaged, or `take` fails.
    pub fn with<T>(
        &mut self,
        name: &str,
        take: impl FnOnce(Npy<'_, Member<'_>>) -> Result<T>,
    ) -> Result<T> {
        let file_name = format!("{name}.npy");
        let total = Some(self.total).filter(|total| *total > 0);
        let source = Source::file(self.path, &self.job).with_member(name);
        let member = self.archive.by_name(&file_name).map_err(|error| match error {
            ZipError::FileNotFound => Error::file(self.path, format!("there is no array '{name}'")),
            other => zip_error(self.path, Place::Part(name.to_owned()), other),
        })?;
        let (size, packed) = (member.size(), member.compressed_size());
        let source = source.with_progress(self.done, total);
        let npy = Npy::open(source, std::io::Read::take(member, size.saturating_add(1)))?;
        // Four bytes each once they are read, however short they are in the file.
        let items = npy.header().n_items().unwrap_or(usize::MAX) as u128;
        if items * 4 > u128::from(packed) * MAX_RATIO + FREE_BYTES {
            let problem = format!("{items} items are not believed of {packed} packed bytes");
            return Err(npy.source().problem(problem));
        }
        let taken = take(npy)?;
        self.done = self.done.saturating_add(size);
        Ok(taken)
    }

    /// An array of numbers.
    ///
    /// # Errors
    /// As [`Npz::with`]; when it holds other things.
    pub fn numbers<T: Number>(&mut self, name: &str) -> Result<Array<T>> {
        self.with(name, |npy| npy.numbers())
    }

    /// An array of one axis.
    ///
    /// # Errors
    /// As [`Npz::numbers`]; when it has more axes or none.
    pub fn vector<T: Number>(&mut self, name: &str) -> Result<Buffer<T>> {
        let array = self.numbers(name)?;
        self.one_axis(name, array)
    }

    /// An array of one axis of finite numbers.
    ///
    /// # Errors
    /// As [`Npz::vector`]; when one is not finite.
    pub fn finite_vector(&mut self, name: &str) -> Result<Buffer<f32>> {
        let array = self.with(name, |npy| npy.finite())?;
        self.one_axis(name, array)
    }

    fn one_axis<T: Number>(&self, name: &str, array: Array<T>) -> Result<Buffer<T>> {
        match array.shape.len() {
            1 => Ok(array.data),
            axes => {
                let problem = format!("the array has {axes} axes; one would be right");
                Err(self.source(name).problem(problem))
            }
        }
    }

    /// An array of row pointers for `nnz` entries.
    ///
    /// # Errors
    /// As [`Npz::vector`].
    pub fn row_ptr(&mut self, name: &str, nnz: usize) -> Result<RowPtr> {
        if u32::try_from(nnz).is_ok() {
            self.vector(name).map(RowPtr::Narrow)
        } else {
            self.vector(name).map(RowPtr::Wide)
        }
    }

    /// That arrays of node numbers have room for as many as they declare, before any is read: a
    /// packed array of one number over and over takes no room at all.
    ///
    /// # Errors
    /// When they have not, or are not there.
    pub fn check_nodes(&mut self, names: &[&str]) -> Result<()> {
        let (mut count, mut packed) = (0usize, 0usize);
        for name in names {
            count = count.saturating_add(self.count(name)?);
            let file = self.archive.by_name(&format!("{name}.npy"));
            packed = packed.saturating_add(file.map_or(0, |file| file.compressed_size() as usize));
        }
        if count <= packed.saturating_mul(NODES_PER_BYTE).saturating_add(FREE_NODES) {
            return Ok(());
        }
        let problem = format!("{count} node numbers are not believed of {packed} packed bytes");
        Err(self.source(names[0]).problem(problem))
    }

    /// How many items an array's header declares.
    fn count(&mut self, name: &str) -> Result<usize> {
        self.with(name, |npy| Ok(npy.header().n_items().unwrap_or(usize::MAX)))
    }

    /// That one array has as many items as the other, before either is read.
    fn same_count(&mut self, name: &str, other: &str) -> Result<()> {
        let (found, right) = (self.count(name)?, self.count(other)?);
        if found == right {
            return Ok(());
        }
        let problem = format!("there are {found} items; {right} as in {other} would be right");
        Err(self.source(name).problem(problem))
    }

    /// An array of two extents.
    ///
    /// # Errors
    /// As [`Npz::vector`]; when there are not two, or one does not fit an index.
    pub fn shape(&mut self, name: &str) -> Result<[usize; 2]> {
        let shape = self.vector::<u32>(name)?;
        match shape[..] {
            [n_rows, n_cols] => Ok([n_rows as usize, n_cols as usize]),
            _ => {
                let problem = format!("a matrix has 2 extents, and these are {}", shape.len());
                Err(self.source(name).problem(problem))
            }
        }
    }

    /// An array of strings, `None` where they are Python objects.
    ///
    /// # Errors
    /// As [`Npz::with`]; when it holds other things.
    pub fn strings(&mut self, name: &str) -> Result<Option<Vec<String>>> {
        // A short string takes a hundred times its bytes: names of classes are few.
        const MANY: usize = 1 << 20;
        self.with(name, |npy| match npy.header().dtype.kind {
            Kind::Object => Ok(None),
            _ if npy.header().n_items().is_none_or(|count| count > MANY) => {
                let shape = npy.header().shape_text();
                Err(npy.source().problem(format!("an array of shape {shape} holds too many names")))
            }
            _ => npy.strings().map(Some),
        })
    }
}

fn open_archive(path: &Path) -> Result<Zip> {
    let (archive, size) = zipped::open(path)?;
    let archive = archive.map_err(|error| zip_error(path, Place::Whole, error))?;
    let declared = archive.decompressed_size().unwrap_or(0);
    if declared > u128::from(size) * MAX_RATIO + FREE_BYTES {
        let problem =
            format!("{size} bytes declare to unpack to {declared}, which is not believed");
        return Err(Error::file(path, problem));
    }
    Ok(archive)
}

fn zip_error(path: &Path, place: Place, error: ZipError) -> Error {
    match error {
        ZipError::Io(error) if !is_damage(&error) => Error::io("read", path, error),
        other => Error::file_at(path, place, zipped::said(&other)),
    }
}

fn is_damage(error: &std::io::Error) -> bool {
    use std::io::ErrorKind::{InvalidData, InvalidInput, UnexpectedEof};
    matches!(error.kind(), InvalidData | InvalidInput | UnexpectedEof)
}

#[cfg(test)]
mod tests;
