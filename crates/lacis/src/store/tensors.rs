//! [`Tensors`]: named tensors and some words about them, as a safetensors file.
//!
//! ```text
//!   8 bytes    length of the header
//!   header     JSON: {"__metadata__": {…}, "name": {"dtype", "shape", "data_offsets"}, …}
//!   data       the tensors' bytes, one after another, widest numbers first: all are aligned
//! ```
//! The same tensors give the same bytes: nothing depends on a hash or a clock.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use lacis_core::{Buffer, Dense, Element, Error, Place, Result};
use safetensors::SafeTensors;
use serde_json::{Map, Value, json};
use xxhash_rust::xxh3::Xxh3Default;

use super::tensor::{Numbers, Scalar, Tensor, TensorType};
use super::write::write_whole;

/// The name that safetensors keeps for the words.
const METADATA: &str = "__metadata__";
/// The key of a file's own checksum.
const SEAL: &str = "xxh3";

/// Tensors by name, and words by key.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Tensors {
    tensors: BTreeMap<String, Tensor>,
    metadata: BTreeMap<String, String>,
    /// Where they were read, for messages.
    path: PathBuf,
}

impl Tensors {
    /// None yet.
    pub fn new() -> Self {
        Tensors::default()
    }

    /// Adds a tensor; one of the same name goes.
    pub fn insert(&mut self, name: impl Into<String>, tensor: Tensor) {
        self.tensors.insert(name.into(), tensor);
    }

    /// A tensor by name.
    pub fn get(&self, name: &str) -> Option<&Tensor> {
        self.tensors.get(name)
    }

    /// All tensors, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Tensor)> {
        self.tensors.iter().map(|(name, tensor)| (name.as_str(), tensor))
    }

    /// Says something about them.
    pub fn set(&mut self, key: impl Into<String>, words: impl Into<String>) {
        self.metadata.insert(key.into(), words.into());
    }

    /// What is said about them.
    pub fn metadata(&self) -> &BTreeMap<String, String> {
        &self.metadata
    }

    /// Takes out the numbers of a tensor that must be there.
    ///
    /// # Errors
    /// When it is missing, or has another type or shape; the message names it.
    pub fn take<T: Scalar>(&mut self, name: &str, shape: &[usize]) -> Result<Buffer<T>> {
        let tensor = self.tensors.get(name).ok_or_else(|| self.bad(name, "is missing"))?;
        if tensor.shape() != shape {
            let problem = format!("has shape {:?}, expected {shape:?}", tensor.shape());
            return Err(self.bad(name, problem));
        }
        let Some(numbers) = tensor.numbers() else {
            let problem = format!("is {}, expected {}", tensor.kind().name(), T::TYPE.name());
            return Err(self.bad(name, problem));
        };
        self.tensors.remove(name);
        Ok(numbers)
    }

    /// As [`Tensors::take`], as a matrix.
    ///
    /// # Errors
    /// As there.
    pub fn take_matrix<T: Scalar + Element>(
        &mut self,
        name: &str,
        [n_rows, n_cols]: [usize; 2],
    ) -> Result<Dense<T>> {
        Dense::new(self.take(name, &[n_rows, n_cols])?, n_rows, n_cols, n_cols)
    }

    /// That all tensors were taken.
    ///
    /// # Errors
    /// When some were not; the message names the first.
    pub fn finish(self) -> Result<()> {
        match self.tensors.keys().next() {
            None => Ok(()),
            Some(name) => {
                let others = self.tensors.len() - 1;
                let more = if others == 0 { String::new() } else { format!(", nor {others} more") };
                Err(self.bad(name, format!("is not expected{more}")))
            }
        }
    }

    fn bad(&self, name: &str, problem: impl Into<String>) -> Error {
        Error::file_at(&self.path, Place::Part(format!("tensor '{name}'")), problem)
    }

    /// Writes them to a file, which appears whole or not at all; an old one is replaced.
    ///
    /// # Errors
    /// When the system refuses, or a tensor has a name that the format keeps for itself.
    pub fn save(&self, path: &Path) -> Result<()> {
        self.save_with(path, &self.metadata)
    }

    /// As [`Tensors::save`], with a checksum that [`Tensors::load_sealed`] looks at: for files that
    /// nobody else is to write.
    ///
    /// # Errors
    /// As there.
    pub fn save_sealed(&self, path: &Path) -> Result<()> {
        let mut metadata = self.metadata.clone();
        metadata.insert(SEAL.into(), self.seal());
        self.save_with(path, &metadata)
    }

    /// A checksum of all tensors and words.
    fn seal(&self) -> String {
        let mut hash = Xxh3Default::new();
        let mut add = |part: &[u8]| {
            hash.update(&part.len().to_le_bytes());
            hash.update(part);
        };
        for (key, words) in &self.metadata {
            add(key.as_bytes());
            add(words.as_bytes());
        }
        for (name, tensor) in &self.tensors {
            add(name.as_bytes());
            add(format!("{} {:?}", tensor.kind().name(), tensor.shape()).as_bytes());
            add(tensor.bytes());
        }
        format!("{:016x}", hash.digest())
    }

    fn save_with(&self, path: &Path, metadata: &BTreeMap<String, String>) -> Result<()> {
        if self.tensors.contains_key(METADATA) {
            let problem = "no tensor may have this name; the format keeps it for itself";
            return Err(Error::argument(METADATA, problem));
        }
        let (header, tensors) = self.header(metadata);
        write_whole(path, |file| {
            file.write_all(&(header.len() as u64).to_le_bytes())?;
            file.write_all(&header)?;
            tensors.iter().try_for_each(|tensor| file.write_all(tensor.bytes()))
        })
    }

    /// The header, padded to whole words, and the tensors in the order of their bytes.
    fn header(&self, metadata: &BTreeMap<String, String>) -> (Vec<u8>, Vec<&Tensor>) {
        let mut header = Map::new();
        if !metadata.is_empty() {
            header.insert(METADATA.into(), json!(metadata));
        }
        let (mut order, mut end) = (Vec::new(), 0);
        for (kind, dtype, _) in TensorType::TABLE {
            for (name, tensor) in self.tensors.iter().filter(|(_, tensor)| tensor.kind() == kind) {
                let start = end;
                end += tensor.bytes().len();
                let offsets = [start, end];
                let entry =
                    json!({"dtype": dtype, "shape": tensor.shape(), "data_offsets": offsets});
                header.insert(name.clone(), entry);
                order.push(tensor);
            }
        }
        let mut header = Value::Object(header).to_string().into_bytes();
        header.resize(header.len().next_multiple_of(8), b' ');
        (header, order)
    }

    /// Reads a file.
    ///
    /// # Errors
    /// When there is none, it is no safetensors file or is cut short, or a tensor is of another
    /// type than f32, bf16, f64 and i64.
    pub fn load(path: &Path) -> Result<Self> {
        let bytes = read(path)?;
        let damaged = |error: safetensors::SafeTensorError| {
            Error::file(path, format!("is no whole safetensors file: {error}"))
        };
        let (_, header) = SafeTensors::read_metadata(&bytes).map_err(damaged)?;
        let file = SafeTensors::deserialize(&bytes).map_err(damaged)?;
        let metadata = header.metadata().iter().flatten();
        let metadata = metadata.map(|(key, words)| (key.clone(), words.clone())).collect();
        let mut all = Tensors { metadata, path: path.to_owned(), ..Tensors::default() };
        for (name, view) in file.iter() {
            let dtype = view.dtype().to_string();
            let known = TensorType::TABLE.into_iter().find(|(_, known, _)| *known == dtype);
            let Some((kind, ..)) = known else {
                let problem = format!("is {dtype}; F32, BF16, F64 and I64 can be read");
                return Err(all.bad(name, problem));
            };
            let numbers = Numbers::from_bytes(kind, view.data())?;
            all.insert(name, Tensor::from_parts(kind, view.shape().to_vec(), numbers));
        }
        Ok(all)
    }

    /// Reads a file that [`Tensors::save_sealed`] wrote.
    ///
    /// # Errors
    /// As [`Tensors::load`], and when its content is not what was written.
    pub fn load_sealed(path: &Path) -> Result<Self> {
        let mut all = Tensors::load(path)?;
        match all.metadata.remove(SEAL) {
            Some(seal) if seal == all.seal() => Ok(all),
            _ => Err(Error::file(path, "is damaged: its checksum is not of its content")),
        }
    }
}

/// The bytes of a plain file.
fn read(path: &Path) -> Result<Buffer<u8>> {
    let refused = |source| Error::io("read", path, source);
    let mut file = File::open(path).map_err(refused)?;
    let about = file.metadata().map_err(refused)?;
    if !about.is_file() {
        return Err(Error::file(path, "is no file"));
    }
    let size = usize::try_from(about.len()).map_err(|_| Error::Memory { bytes: usize::MAX })?;
    let mut bytes = Buffer::<u8>::try_zeroed(size)?;
    file.read_exact(bytes.make_mut()).map_err(refused)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use lacis_core::bf16;

    fn example() -> Tensors {
        let mut all = Tensors::new();
        let w = Dense::<f32>::from_fn(2, 3, |i, j| (i * 3 + j) as f64 - 0.5);
        all.insert("conv1.weight", Tensor::matrix(&w));
        all.insert("half", Tensor::matrix(&w.cast::<bf16>()));
        all.insert("double", Tensor::new(&[1, 2, 1], vec![f64::NAN, 1e300]).unwrap());
        all.insert("steps", Tensor::new(&[], vec![-7i64]).unwrap());
        all.insert("empty", Tensor::new(&[0, 5], Vec::<f32>::new()).unwrap());
        all.set("epoch", "3");
        all.set("ü \"quoted\"", "\n");
        all
    }

    fn saved(all: &Tensors) -> (tempfile::TempDir, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("model.safetensors");
        all.save(&path).unwrap();
        (dir, path)
    }

    /// Files of earlier versions have no checksum.
    #[test]
    fn a_seal_shows_any_damage() {
        let (dir, path) = saved(&example());
        assert!(Tensors::load_sealed(&path).is_err(), "nothing seals it");
        let sealed = dir.path().join("sealed.safetensors");
        example().save_sealed(&sealed).unwrap();
        let loaded = Tensors::load_sealed(&sealed).unwrap();
        assert_eq!(loaded.metadata(), example().metadata());
        let whole = fs::read(&sealed).unwrap();
        for at in 0..whole.len() {
            let mut damaged = whole.clone();
            damaged[at] ^= 1;
            fs::write(&sealed, &damaged).unwrap();
            let found = Tensors::load_sealed(&sealed);
            let same = |found: Tensors| found.iter().eq(loaded.iter());
            // A space of the header may become another one.
            assert!(found.is_err() || found.is_ok_and(same), "byte {at}");
        }
        let mut damaged = whole;
        *damaged.last_mut().unwrap() ^= 1;
        fs::write(&sealed, &damaged).unwrap();
        let error = Tensors::load_sealed(&sealed).unwrap_err().to_string();
        assert!(error.contains("damaged"), "{error}");
    }

    #[test]
    fn what_is_saved_is_loaded() {
        let (_dir, path) = saved(&example());
        let mut loaded = Tensors::load(&path).unwrap();
        assert_eq!(loaded.iter().collect::<Vec<_>>(), example().iter().collect::<Vec<_>>());
        assert_eq!(loaded.metadata(), example().metadata());
        let w: Dense = loaded.take_matrix("conv1.weight", [2, 3]).unwrap();
        assert_eq!(w.row(1), [2.5, 3.5, 4.5]);
        assert_eq!(&loaded.take::<i64>("steps", &[]).unwrap()[..], [-7]);
        // The same again has the same bytes, and so has a copy of a file.
        let bytes = fs::read(&path).unwrap();
        Tensors::load(&path).unwrap().save(&path).unwrap();
        assert_eq!(fs::read(&path).unwrap(), bytes);
        assert_eq!(u64::from_le_bytes(bytes[..8].try_into().unwrap()) % 8, 0);
    }

    #[test]
    fn strided_matrices_are_packed() {
        let mut x = Dense::<f32>::zeros_padded(3, 2);
        x.row_mut(2)[1] = 9.0;
        let tensor = Tensor::matrix(&x);
        assert_eq!((tensor.bytes().len(), tensor.shape()), (24, &[3, 2][..]));
        assert_eq!(&tensor.numbers::<f32>().unwrap()[..], [0.0, 0.0, 0.0, 0.0, 0.0, 9.0]);
        let last_row_unpadded = Dense::<f32>::new(vec![1.0; 7].into(), 2, 2, 5).unwrap();
        assert_eq!(Tensor::matrix(&last_row_unpadded).bytes().len(), 16);
    }

    #[test]
    fn tensors_that_do_not_fit_are_named() {
        let (_dir, path) = saved(&example());
        let error = |e: Error| e.to_string().replace(path.to_str().unwrap(), "FILE");
        let mut all = Tensors::load(&path).unwrap();
        let found = error(all.take::<f32>("conv2.weight", &[1]).unwrap_err());
        assert_eq!(found, "FILE, tensor 'conv2.weight': is missing");
        let found = error(all.take::<f32>("conv1.weight", &[3, 2]).unwrap_err());
        assert_eq!(found, "FILE, tensor 'conv1.weight': has shape [2, 3], expected [3, 2]");
        let found = error(all.take::<f64>("half", &[2, 3]).unwrap_err());
        assert_eq!(found, "FILE, tensor 'half': is BF16, expected F64");
        let found = error(all.finish().unwrap_err());
        assert_eq!(found, "FILE, tensor 'conv1.weight': is not expected, nor 4 more");
        assert!(Tensors::new().finish().is_ok());
        let mut reserved = Tensors::new();
        reserved.insert(METADATA, Tensor::new(&[1], vec![1.0f32]).unwrap());
        assert!(reserved.save(&path).is_err());
        assert!(Tensor::new(&[usize::MAX, 2], vec![1.0f32]).is_err());
    }

    /// Cut anywhere, or with bytes of its header changed, a file never panics.
    #[test]
    fn hostile_files_are_refused() {
        let (dir, path) = saved(&example());
        let bytes = fs::read(&path).unwrap();
        let hostile = dir.path().join("hostile");
        for length in (0..bytes.len()).step_by(3) {
            fs::write(&hostile, &bytes[..length]).unwrap();
            let error = Tensors::load(&hostile).unwrap_err().to_string();
            assert!(error.contains("is no whole safetensors file"), "{error}");
        }
        let end = bytes.len() - 50;
        for (at, with) in (0..end).zip([0xff, b'9', b'"', b'}', b'-'].into_iter().cycle()) {
            let mut changed = bytes.clone();
            changed[at] = with;
            fs::write(&hostile, &changed).unwrap();
            let _ = Tensors::load(&hostile);
        }
        let wrong = bytes.windows(5).position(|w| w == b"\"F32\"").unwrap();
        let mut changed = bytes.clone();
        changed[wrong..wrong + 5].copy_from_slice(b"\"U32\"");
        fs::write(&hostile, &changed).unwrap();
        let error = Tensors::load(&hostile).unwrap_err().to_string();
        assert!(error.contains("is U32; F32, BF16, F64 and I64 can be read"), "{error}");
        assert!(Tensors::load(dir.path()).is_err());
        let missing = Tensors::load(&dir.path().join("no")).unwrap_err().to_string();
        assert!(missing.contains("cannot read"), "{missing}");
    }
}
