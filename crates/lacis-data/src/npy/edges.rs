//! A `.npy` file as a graph: an integer array of shape `2 × E` or `E × 2` is an edge list.
//!
//! ```text
//!  Rows    s s s s … t t t t …     2 × E in C order, E × 2 in Fortran order
//!  Pairs   s t s t s t s t …       E × 2 in C order, 2 × E in Fortran order
//! ```
//! The file is read a chunk of edges at a time and never held as a whole.

use std::fs::File;
use std::io::{BufReader, Read, Seek, SeekFrom};
use std::ops::Range;
use std::path::Path;

use lacis_core::threads::ranges;
use lacis_core::{CHUNK_ENTRIES, Chunk, Coo, Csr, Dataset, Error, Extent, Graph};
use lacis_core::{Origin, Repeats, Result, Tags};

use super::{Dtype, Header, Kind, Npy, Order, Source, number};
use crate::input::check_count;
use crate::{Job, note};

/// Reads a `.npy` file as an edge list: row 0 (or column 0) holds the sources, the other the
/// targets; there are as many nodes as the largest number asks for. Repeated edges are merged.
///
/// # Errors
/// When the file is no array of two rows or columns of node numbers, or is damaged.
pub fn read(path: &Path, job: &Job) -> Result<Dataset> {
    let mut file = EdgeFile::open(path, job)?;
    let mut coo = Coo::new(Tags::Absent);
    let chunks = ranges(file.n_edges, CHUNK_ENTRIES);
    for batch in chunks.chunks(job.threads.count()) {
        let raw = batch.iter().map(|range| file.fetch(range.clone()));
        let raw = raw.collect::<Result<Vec<_>>>()?;
        let (source, dtype) = (file.source, file.dtype);
        coo.extend(raw, job.threads, |raw, chunk| raw.parse(&source, dtype, chunk))?;
        let done = batch.last().map_or(0, |range| range.end) * 2 * dtype.size;
        job.tick(file.start + done as u64, Some(file.length))?;
    }
    let adjacency = merged(coo, &file.source, job)?;
    let n_merged = file.n_edges - adjacency.nnz();
    let origin = Origin {
        format: "npy".to_owned(),
        synthetic: false,
        notes: note::merged(n_merged).into_iter().collect(),
    };
    let name = path.file_stem().unwrap_or_default().to_string_lossy();
    Ok(Dataset::new(name, Graph::new(adjacency)).with_origin(origin))
}

fn merged(coo: Coo, source: &Source<'_>, job: &Job) -> Result<Csr> {
    let n = coo.largest().map_or(0, |[row, col]| row.max(col) as usize + 1);
    check_count("nodes", n, coo.len()).map_err(|problem| source.problem(problem))?;
    let extent = Extent { n_rows: Some(n), n_cols: Some(n) };
    coo.into_csr(extent, Repeats::Merge, job.threads).map_err(|error| source.blame(error))
}

/// Whether a file that begins like this is an array of node numbers in two rows or columns.
pub fn is_edge_index(head: &[u8]) -> bool {
    let text = match head.strip_prefix(b"\x93NUMPY").and_then(|rest| rest.first()) {
        Some(1) => head.get(10..),
        Some(2 | 3) => head.get(12..),
        _ => None,
    };
    // The header ends with its line; the numbers after it are no text.
    let line = text.and_then(|text| text.split_inclusive(|&b| b == b'\n').next());
    let header = line.and_then(|line| Header::parse(line).ok());
    header.is_some_and(|header| {
        matches!(header.dtype.kind, Kind::Int | Kind::Uint) && Layout::of(&header).is_some()
    })
}

/// How sources and targets stand in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Layout {
    Rows,
    Pairs,
}

impl Layout {
    fn of(header: &Header) -> Option<(Layout, usize)> {
        match (&header.shape[..], header.order) {
            (&[2, n_edges], Order::C) => Some((Layout::Rows, n_edges)),
            (&[2, n_edges], Order::Fortran) => Some((Layout::Pairs, n_edges)),
            (&[n_edges, 2], Order::C) => Some((Layout::Pairs, n_edges)),
            (&[n_edges, 2], Order::Fortran) => Some((Layout::Rows, n_edges)),
            _ => None,
        }
    }
}

/// An open edge list.
struct EdgeFile<'a> {
    source: Source<'a>,
    file: File,
    dtype: Dtype,
    layout: Layout,
    n_edges: usize,
    /// Where the items start, and where the file ends.
    start: u64,
    length: u64,
}

/// Some edges as they stand in the file: sources and targets apart, or (the second empty) in pairs.
struct RawEdges {
    first: usize,
    parts: [Vec<u8>; 2],
}

impl<'a> EdgeFile<'a> {
    fn open(path: &'a Path, job: &Job<'a>) -> Result<Self> {
        let source = Source::file(path, job);
        let (file, _) = crate::input::open_file(path)?;
        let length = file.metadata().map_err(|e| Error::io("read", path, e))?.len();
        let npy = Npy::open(source, BufReader::new(file))?;
        let Some((layout, n_edges)) = Layout::of(&npy.header) else {
            let shape = npy.header.shape_text();
            let problem = format!("an edge list has shape (2, E) or (E, 2), and this has {shape}");
            return Err(source.problem(problem));
        };
        let dtype = npy.header.dtype;
        npy.check_dtype(number::is_convertible::<u32>(dtype), "a node number")?;
        let edges = EdgeFile {
            source,
            dtype,
            layout,
            n_edges,
            start: npy.at,
            length,
            file: npy.reader.into_inner(),
        };
        edges.check_length()?;
        Ok(edges)
    }

    fn check_length(&self) -> Result<()> {
        let expected = self.start as u128 + 2 * self.n_edges as u128 * self.dtype.size as u128;
        if expected == u128::from(self.length) {
            return Ok(());
        }
        let n_edges = self.n_edges;
        let problem = format!("the file ends here, but {n_edges} edges end at byte {expected}");
        Err(self.source.problem_at(self.length, problem))
    }

    fn fetch(&mut self, edges: Range<usize>) -> Result<RawEdges> {
        let first = edges.start;
        let parts = match self.layout {
            Layout::Pairs => [self.items(2 * first..2 * edges.end)?, Vec::new()],
            Layout::Rows => {
                let targets = self.n_edges + first..self.n_edges + edges.end;
                [self.items(edges)?, self.items(targets)?]
            }
        };
        Ok(RawEdges { first, parts })
    }

    fn items(&mut self, items: Range<usize>) -> Result<Vec<u8>> {
        let at = self.start + (items.start * self.dtype.size) as u64;
        let mut raw = vec![0; items.len() * self.dtype.size];
        let read = self.file.seek(SeekFrom::Start(at)).and_then(|_| self.file.read_exact(&mut raw));
        read.map_err(|e| self.source.io(at, e))?;
        Ok(raw)
    }
}

impl RawEdges {
    fn parse(self, source: &Source<'_>, dtype: Dtype, chunk: &mut Chunk) -> Result<()> {
        let [sources, targets] = &self.parts;
        let nodes = |raw: &[u8]| {
            let mut nodes = vec![0u32; raw.len() / dtype.size];
            number::convert(dtype, raw, &mut nodes).map(|()| nodes)
        };
        let per_edge = if targets.is_empty() { 2 } else { 1 };
        let blame = |(at, item): number::Misfit| {
            let edge = self.first + at / per_edge;
            source.problem(format!("{item} of edge {edge} is no node number; 0 to 4294967294 are"))
        };
        let sources = nodes(sources).map_err(blame)?;
        if per_edge == 2 {
            chunk.places.extend(sources.chunks_exact(2).map(|edge| [edge[1], edge[0]]));
        } else {
            let targets = nodes(targets).map_err(blame)?;
            chunk.places.extend(sources.iter().zip(&targets).map(|(&s, &t)| [t, s]));
        }
        Ok(())
    }
}
