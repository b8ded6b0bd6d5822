//! The own format: a folder of NumPy files and a `meta.json`, opened by mapping, not by reading.
//!
//! ```text
//! my-graph/
//!   meta.json                   what there is, sizes, and a checksum of every array's every block
//!   adjacency.row_ptr.npy       u32 or u64; rows are targets
//!   adjacency.cols.npy          u32
//!   adjacency.values.npy        f32, if edges have weights
//!   features.npy                f32, or features.{row_ptr,cols,values}.npy where they are sparse
//!   labels.npy                  i32 classes or f32 targets, or labels.{row_ptr,cols}.npy
//!   split-0.train.npy …         u32, for each split
//!   ids.text.npy, ids.ends.npy  u8 and u64: what the user calls the nodes, one after another
//! ```
//! Every file is plain `.npy`: `numpy.load(…, mmap_mode="r")` opens it. At opening, every byte is
//! checked against its checksum and every index against its bound.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytemuck::Pod;
use lacis_core::{
    Buffer, Collection, Csr, CsrParts, Dataset, Dense, Error, Features, Graph, Labels, NodeIds,
    Origin, Place, Result, RowPtr, SharedBytes, Split,
};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use xxhash_rust::xxh3::{Xxh3Default, xxh3_64};

use crate::Job;
use crate::npy::{self, Item};

/// What `lacis` in `meta.json` says: the version of this format.
pub const VERSION: u32 = 1;
/// The file that makes a folder one of ours.
pub const META: &str = "meta.json";
/// Checksums are of blocks, so that threads share the work and an error names its place.
const BLOCK_BYTES: usize = 1 << 20;
/// More than the checksums of a terabyte.
const MAX_META_BYTES: u64 = 256 << 20;

/// `meta.json`: the version, and the body with its own checksum.
#[derive(Serialize, Deserialize)]
struct Envelope<'a> {
    lacis: u32,
    checksum: String,
    #[serde(borrow)]
    body: &'a RawValue,
}

#[derive(Serialize, Deserialize)]
struct Body {
    name: String,
    synthetic: bool,
    adjacency: SparseMeta,
    features: Option<FeatureMeta>,
    labels: Option<LabelMeta>,
    splits: Vec<String>,
    collection: bool,
    /// Absent in folders of the first release.
    #[serde(default)]
    ids: bool,
    arrays: Vec<ArrayMeta>,
}

#[derive(Clone, Copy, Serialize, Deserialize)]
struct SparseMeta {
    n_cols: u64,
    values: bool,
    order: bool,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum FeatureMeta {
    Dense,
    Sparse(SparseMeta),
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum LabelMeta {
    Classes { count: u64, names: Vec<String> },
    Multi(SparseMeta),
    Targets,
}

#[derive(Serialize, Deserialize)]
struct ArrayMeta {
    name: String,
    dtype: String,
    shape: Vec<usize>,
    blocks: Vec<String>,
}

/// The `.npy` header of an array; the data after it are aligned.
fn npy_header(dtype: &str, shape: &[usize]) -> Vec<u8> {
    let mut header = Vec::new();
    npy::write_header(&mut header, dtype, shape).expect("memory takes everything");
    header
}

fn hex(checksum: u64) -> String {
    format!("{checksum:016x}")
}

/// Whether a folder has our `meta.json`.
pub fn is_native(folder: &Path) -> bool {
    let meta = folder.join(META);
    crate::input::head(&meta, 64).is_ok_and(|head| head.starts_with(b"{\"lacis\":"))
}

/// Whether a file of this name in a folder of ours is one that we write.
pub fn is_own_file(name: &str) -> bool {
    let Some(array) = name.strip_suffix(".npy") else { return name == META };
    let kind = array.split(['.', '-']).next().unwrap_or_default();
    ["adjacency", "features", "labels", "split", "collection", "ids"].contains(&kind)
}

/// Writes a data set into a new folder.
///
/// # Errors
/// When the folder exists or the disk refuses.
pub fn write(set: &Dataset, folder: &Path, job: &Job<'_>) -> Result<()> {
    std::fs::create_dir(folder).map_err(|source| Error::io("make", folder, source))?;
    let mut writer = Writer { folder: folder.to_owned(), arrays: Vec::new(), job, written: 0 };
    let body = Body {
        name: set.name().to_owned(),
        synthetic: set.origin().synthetic,
        adjacency: writer.csr("adjacency", set.graph().adjacency())?,
        features: set.features().map(|features| writer.features(features)).transpose()?,
        labels: set.labels().map(|labels| writer.labels(labels)).transpose()?,
        splits: writer.splits(set.splits())?,
        collection: writer.collection(set.collection())?,
        ids: writer.ids(set.ids())?,
        arrays: std::mem::take(&mut writer.arrays),
    };
    let bad = |e: serde_json::Error| Error::io("write", folder, e.into());
    let body = serde_json::value::to_raw_value(&body).map_err(bad)?;
    let checksum = hex(xxh3_64(body.get().as_bytes()));
    let envelope = Envelope { lacis: VERSION, checksum, body: &body };
    let meta = folder.join(META);
    let text = serde_json::to_vec(&envelope).map_err(bad)?;
    std::fs::write(&meta, text).map_err(|source| Error::io("write", &meta, source))
}

struct Writer<'a> {
    folder: PathBuf,
    arrays: Vec<ArrayMeta>,
    job: &'a Job<'a>,
    written: u64,
}

impl Writer<'_> {
    fn array<'a, T: Item + Pod>(
        &mut self,
        name: &str,
        shape: &[usize],
        rows: impl Iterator<Item = &'a [T]>,
    ) -> Result<()> {
        let path = self.folder.join(format!("{name}.npy"));
        let io = |source| Error::io("write", &path, source);
        let shape = shape.to_vec();
        let mut file = BufWriter::with_capacity(1 << 20, File::create(&path).map_err(io)?);
        file.write_all(&npy_header(&npy::descr::<T>(), &shape)).map_err(io)?;
        let mut blocks = Blocks::default();
        for row in rows {
            for piece in bytemuck::cast_slice::<T, u8>(row).chunks(BLOCK_BYTES) {
                blocks.add(piece);
                file.write_all(piece).map_err(io)?;
                self.written += piece.len() as u64;
                if self.written % (64 << 20) < piece.len() as u64 {
                    self.job.tick(self.written, None)?;
                }
            }
        }
        file.flush().map_err(io)?;
        let (name, dtype) = (name.to_owned(), npy::descr::<T>());
        self.arrays.push(ArrayMeta { name, dtype, shape, blocks: blocks.finish() });
        Ok(())
    }

    fn vector<T: Item + Pod>(&mut self, name: &str, values: &[T]) -> Result<()> {
        self.array(name, &[values.len()], std::iter::once(values))
    }

    fn csr(&mut self, name: &str, csr: &Csr) -> Result<SparseMeta> {
        match csr.row_ptr() {
            RowPtr::Narrow(ptr) => self.vector(&format!("{name}.row_ptr"), ptr)?,
            RowPtr::Wide(ptr) => self.vector(&format!("{name}.row_ptr"), ptr)?,
        }
        self.vector(&format!("{name}.cols"), csr.cols())?;
        if let Some(values) = csr.values() {
            self.vector(&format!("{name}.values"), values)?;
        }
        if let Some(order) = csr.order() {
            self.vector(&format!("{name}.order"), order)?;
        }
        Ok(SparseMeta {
            n_cols: csr.n_cols() as u64,
            values: csr.values().is_some(),
            order: csr.order().is_some(),
        })
    }

    fn features(&mut self, features: &Features) -> Result<FeatureMeta> {
        Ok(match features {
            Features::Sparse(x) => FeatureMeta::Sparse(self.csr("features", x)?),
            Features::Dense(x) => {
                self.array("features", &[x.n_rows(), x.n_cols()], x.rows())?;
                FeatureMeta::Dense
            }
        })
    }

    fn labels(&mut self, labels: &Labels) -> Result<LabelMeta> {
        Ok(match labels {
            Labels::Classes { of, count, names } => {
                self.vector("labels", of)?;
                LabelMeta::Classes { count: *count as u64, names: names.clone() }
            }
            Labels::Multi(of) => LabelMeta::Multi(self.csr("labels", of)?),
            Labels::Targets(of) => {
                self.array("labels", &[of.n_rows(), of.n_cols()], of.rows())?;
                LabelMeta::Targets
            }
        })
    }

    fn splits(&mut self, splits: &[Split]) -> Result<Vec<String>> {
        for (number, split) in splits.iter().enumerate() {
            for (part, items) in
                [("train", &split.train), ("val", &split.val), ("test", &split.test)]
            {
                self.vector(&format!("split-{number}.{part}"), items)?;
            }
        }
        Ok(splits.iter().map(|split| split.name.clone()).collect())
    }

    fn ids(&mut self, ids: Option<&NodeIds>) -> Result<bool> {
        if let Some(ids) = ids {
            self.vector("ids.text", ids.text())?;
            self.vector("ids.ends", ids.ends())?;
        }
        Ok(ids.is_some())
    }

    fn collection(&mut self, collection: Option<&Collection>) -> Result<bool> {
        if let Some(collection) = collection {
            self.vector("collection.starts", collection.starts())?;
        }
        Ok(collection.is_some())
    }
}

/// Checksums of consecutive blocks of a stream.
#[derive(Default)]
struct Blocks {
    hasher: Xxh3Default,
    filled: usize,
    done: Vec<String>,
}

impl Blocks {
    fn add(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let (now, later) = bytes.split_at(bytes.len().min(BLOCK_BYTES - self.filled));
            self.hasher.update(now);
            self.filled += now.len();
            if self.filled == BLOCK_BYTES {
                self.close();
            }
            bytes = later;
        }
    }

    fn close(&mut self) {
        self.done.push(hex(self.hasher.digest()));
        self.hasher.reset();
        self.filled = 0;
    }

    fn finish(mut self) -> Vec<String> {
        if self.filled > 0 {
            self.close();
        }
        self.done
    }
}

/// Opens a folder: maps its arrays, checks every byte and every index.
///
/// # Errors
/// When something is missing, damaged, or of another version.
pub fn read(folder: &Path, job: &Job<'_>) -> Result<Dataset> {
    let meta = folder.join(META);
    let mut body = read_meta(&meta)?;
    let mut reader = Reader { folder, meta, arrays: BTreeMap::new(), job };
    reader.map_all(std::mem::take(&mut body.arrays))?;
    reader.check_all()?;
    reader.dataset(body).map_err(|error| match error {
        Error::File { .. } | Error::Io { .. } | Error::Interrupted => error,
        other => Error::file(folder, other.to_string()),
    })
}

impl Reader<'_> {
    /// The parts, joined; what does not fit is said of the folder by the caller.
    fn dataset(&self, body: Body) -> Result<Dataset> {
        let graph = Graph::new(self.csr("adjacency", body.adjacency)?);
        let origin = Origin { synthetic: body.synthetic, ..Origin::default() };
        let mut set = Dataset::new(body.name, graph).with_origin(origin);
        if body.collection {
            let starts = self.take::<u32>("collection.starts")?.to_vec();
            set = set.with_collection(Collection::new(starts)?)?;
        }
        if body.ids {
            let ids = NodeIds::new(self.take("ids.text")?, self.take("ids.ends")?)?;
            set = set.with_ids(ids)?;
        }
        if let Some(features) = body.features {
            set = set.with_features(self.features(features)?)?;
        }
        if let Some(labels) = body.labels {
            set = set.with_labels(self.labels(labels)?)?;
        }
        for (number, name) in body.splits.into_iter().enumerate() {
            set = set.with_split(self.split(number, name)?)?;
        }
        Ok(set)
    }
}

fn read_meta(meta: &Path) -> Result<Body> {
    let bad = |problem: String| Error::file(meta, problem);
    let size = std::fs::metadata(meta).map_err(|source| Error::io("open", meta, source))?.len();
    if size > MAX_META_BYTES {
        return Err(bad(format!("has {size} bytes; at most {MAX_META_BYTES} would be right")));
    }
    let text = std::fs::read(meta).map_err(|source| Error::io("read", meta, source))?;
    let not_json = |e: serde_json::Error| bad(format!("is damaged: {e}"));
    let envelope: Envelope<'_> = serde_json::from_slice(&text).map_err(not_json)?;
    if envelope.lacis != VERSION {
        let problem = format!("is of format {}; this Lacis reads format {VERSION}", envelope.lacis);
        return Err(bad(problem));
    }
    if hex(xxh3_64(envelope.body.get().as_bytes())) != envelope.checksum {
        return Err(bad("is damaged: its checksum does not match".to_owned()));
    }
    serde_json::from_str(envelope.body.get()).map_err(not_json)
}

/// An array that is mapped and whose header is right.
struct Mapped {
    meta: ArrayMeta,
    path: PathBuf,
    bytes: SharedBytes,
    start: usize,
}

struct Reader<'a> {
    folder: &'a Path,
    meta: PathBuf,
    arrays: BTreeMap<String, Mapped>,
    job: &'a Job<'a>,
}

impl Reader<'_> {
    fn map_all(&mut self, arrays: Vec<ArrayMeta>) -> Result<()> {
        for meta in arrays {
            // Names come from the file; only our own become paths.
            let plain = meta.name.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b));
            let known = ["|u1", "<u4", "<u8", "<i4", "<f4"].contains(&meta.dtype.as_str());
            if !plain || meta.name.len() > 64 || !known || meta.shape.len() > 2 {
                let name: String = meta.name.chars().take(64).collect();
                let problem = format!("lists an array '{}' of no known kind", name.escape_debug());
                return Err(Error::file(&self.meta, problem));
            }
            let mapped = self.map(meta)?;
            self.arrays.insert(mapped.meta.name.clone(), mapped);
        }
        Ok(())
    }

    fn map(&self, meta: ArrayMeta) -> Result<Mapped> {
        let path = self.folder.join(format!("{}.npy", meta.name));
        let bytes = crate::map::map(&path)?;
        let header = npy_header(&meta.dtype, &meta.shape);
        let item = meta.dtype.bytes().last().map_or(0, |digit| u64::from(digit.wrapping_sub(b'0')));
        let size = meta.shape.iter().try_fold(item, |size, &n| size.checked_mul(n as u64));
        let expected = size.and_then(|size| size.checked_add(header.len() as u64));
        if expected != Some(bytes.len() as u64) {
            let expected = expected.map_or("more".to_owned(), |n| n.to_string());
            let problem = format!("has {} bytes; {expected} would be right", bytes.len());
            return Err(Error::file(path, problem));
        }
        if bytes[..header.len()] != header[..] {
            return Err(Error::file_at(path, Place::Byte(0), "has a damaged header"));
        }
        let (bytes, start): (SharedBytes, _) = (Arc::new(bytes), header.len());
        Ok(Mapped { meta, path, bytes, start })
    }

    /// Every block of every array against its checksum.
    fn check_all(&self) -> Result<()> {
        let mut blocks = Vec::new();
        for array in self.arrays.values() {
            let data = &(*array.bytes).as_ref()[array.start..];
            let expected = data.len().div_ceil(BLOCK_BYTES);
            if array.meta.blocks.len() != expected {
                let problem =
                    format!("has {} checksums for {expected} blocks", array.meta.blocks.len());
                return Err(Error::file_at(
                    &self.meta,
                    Place::Part(array.meta.name.clone()),
                    problem,
                ));
            }
            let pieces = data.chunks(BLOCK_BYTES).zip(&array.meta.blocks).enumerate();
            blocks.extend(pieces.map(|(number, (piece, sum))| (array, number, piece, sum)));
        }
        self.job.threads.try_map(blocks, |(array, number, piece, sum): (&Mapped, _, _, _)| {
            if hex(xxh3_64(piece)) == *sum {
                return Ok(());
            }
            let place = Place::Byte((array.start + number * BLOCK_BYTES) as u64);
            let problem = "is damaged: the checksum of the block from there on does not match";
            Err(Error::file_at(&array.path, place, problem))
        })?;
        Ok(())
    }

    fn array<T: Item + Pod>(
        &self,
        name: &str,
        dimensions: usize,
    ) -> Result<(Buffer<T>, Vec<usize>)> {
        let Some(array) = self.arrays.get(name) else {
            return Err(Error::file(&self.meta, format!("lists no array '{name}'")));
        };
        let (dtype, shape) = (&array.meta.dtype, &array.meta.shape);
        if *dtype != npy::descr::<T>() || shape.len() != dimensions {
            let problem = format!(
                "is {dtype} of {} dimensions; {} of {dimensions} would be right",
                shape.len(),
                npy::descr::<T>()
            );
            return Err(Error::file(&array.path, problem));
        }
        // `map` found that the product fits in the file.
        let buffer = Buffer::from_shared(array.bytes.clone(), array.start, shape.iter().product())?;
        Ok((buffer, shape.clone()))
    }

    fn take<T: Item + Pod>(&self, name: &str) -> Result<Buffer<T>> {
        Ok(self.array(name, 1)?.0)
    }

    fn csr(&self, name: &str, meta: SparseMeta) -> Result<Csr> {
        let row_ptr = format!("{name}.row_ptr");
        let row_ptr =
            match self.arrays.get(&row_ptr).is_some_and(|a| a.meta.dtype == npy::descr::<u64>()) {
                true => RowPtr::Wide(self.take(&row_ptr)?),
                false => RowPtr::Narrow(self.take(&row_ptr)?),
            };
        let part = |present: bool, part: &str| present.then(|| format!("{name}.{part}"));
        let parts = CsrParts {
            n_cols: usize::try_from(meta.n_cols).unwrap_or(usize::MAX),
            row_ptr,
            cols: self.take(&format!("{name}.cols"))?,
            values: part(meta.values, "values").map(|name| self.take(&name)).transpose()?,
            order: part(meta.order, "order").map(|name| self.take(&name)).transpose()?,
        };
        let place = || Place::Part(name.to_owned());
        Csr::new(parts, self.job.threads)
            .map_err(|e| Error::file_at(self.folder, place(), e.to_string()))
    }

    fn dense(&self, name: &str) -> Result<Dense> {
        let (data, shape) = self.array(name, 2)?;
        Dense::new(data, shape[0], shape[1], shape[1])
    }

    fn features(&self, meta: FeatureMeta) -> Result<Features> {
        Ok(match meta {
            FeatureMeta::Sparse(meta) => Features::Sparse(self.csr("features", meta)?),
            FeatureMeta::Dense => Features::Dense(self.dense("features")?),
        })
    }

    fn labels(&self, meta: LabelMeta) -> Result<Labels> {
        Ok(match meta {
            LabelMeta::Multi(meta) => Labels::Multi(self.csr("labels", meta)?),
            LabelMeta::Targets => Labels::Targets(self.dense("labels")?),
            LabelMeta::Classes { count, names } => {
                let labels = Labels::classes(self.take::<i32>("labels")?, names)?;
                let Labels::Classes { of, count: least, names } = labels else {
                    unreachable!("classes were asked for")
                };
                // A class may have no item, but not the other way round.
                let count = usize::try_from(count).unwrap_or(usize::MAX);
                if count < least || count > of.len().max(least) + (1 << 20) {
                    let problem = format!("declares {count} classes where labels need {least}");
                    return Err(Error::file(&self.meta, problem));
                }
                Labels::Classes { of, count, names }
            }
        })
    }

    fn split(&self, number: usize, name: String) -> Result<Split> {
        let part = |part| Ok(self.take::<u32>(&format!("split-{number}.{part}"))?.to_vec());
        Ok(Split { name, train: part("train")?, val: part("val")?, test: part("test")? })
    }
}
