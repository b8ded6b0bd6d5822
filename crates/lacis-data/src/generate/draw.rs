//! What generators share: draws that become a symmetric graph, random features, random labels.

use std::ops::Range;

use lacis_core::threads::ranges;
use lacis_core::{
    CHUNK_ENTRIES, Chunk, Coo, Dataset, Dense, Extent, Features, Graph, Labels, Repeats, Result,
    Rng, Tags,
};

use super::Spec;
use crate::Job;
use crate::splits::{self, Fractions};

/// Draws that one thread makes at a time; both directions of each are stored.
const CHUNK_DRAWS: usize = CHUNK_ENTRIES / 2;
/// Random numbers that one thread makes at a time: whole blocks of four.
const CHUNK_NUMBERS: usize = 1 << 16;
/// The largest dense feature matrix: 256 GiB.
const MAX_ELEMENTS: u64 = 1 << 36;

/// Undirected edges on their way to a graph.
pub(crate) struct Edges<'a>(&'a mut Chunk);

impl Edges<'_> {
    /// Adds both directions of an edge; a loop is dropped.
    #[inline]
    pub(crate) fn push(&mut self, i: u32, j: u32) {
        if i != j {
            self.0.places.extend_from_slice(&[[i, j], [j, i]]);
        }
    }
}

/// The symmetric graph of `n` nodes from what `fill` pushes for ranges of `0..draws`.
pub(crate) fn symmetric(
    n: usize,
    draws: usize,
    job: &Job,
    fill: impl Fn(Range<usize>, &mut Edges) + Sync,
) -> Result<Graph> {
    let mut coo = Coo::new(Tags::Absent);
    job.tick(0, Some(draws as u64))?;
    coo.extend(ranges(draws, CHUNK_DRAWS), job.threads, |range, chunk| {
        job.tick(range.start as u64, Some(draws as u64))?;
        fill(range, &mut Edges(chunk));
        Ok(())
    })?;
    Ok(Graph::new(coo.into_csr(square(n), Repeats::Merge, job.threads)?))
}

/// `n` rows and columns.
pub(crate) fn square(n: usize) -> Extent {
    Extent { n_rows: Some(n), n_cols: Some(n) }
}

/// A matrix whose pieces of consecutive rows `fill` writes, told the piece's first row.
pub(crate) fn dense_by_rows(
    [n, width]: [usize; 2],
    job: &Job,
    fill: impl Fn(usize, &mut [f32]) + Sync,
) -> Result<Dense> {
    let mut x = Dense::try_zeros(n, width)?;
    // Four rows are whole blocks of random numbers, whatever their width.
    let rows = (CHUNK_NUMBERS / width.max(1)).next_multiple_of(4).max(4);
    let pieces = x.data_mut().chunks_mut((rows * width).max(1)).enumerate().collect();
    job.threads.for_each(pieces, |(piece, values)| fill(piece * rows, values));
    Ok(x)
}

/// Uniform numbers in `-1..1`, one row per node.
pub(crate) fn random_features(n: usize, width: usize, seed: u64, job: &Job) -> Result<Features> {
    let rng = Rng::new(seed, "random features");
    let unit = |bits: u32| (bits >> 8) as f32 * (1.0 / (1 << 23) as f32) - 1.0;
    let x = dense_by_rows([n, width], job, |row, values| {
        let first_block = (row * width / 4) as u64;
        for (block, four) in values.chunks_mut(4).enumerate() {
            let numbers = rng.block(first_block + block as u64);
            four.iter_mut().zip(numbers).for_each(|(value, bits)| *value = unit(bits));
        }
    })?;
    Ok(Features::Dense(x))
}

/// A random class for each of `n` items.
pub(crate) fn random_labels(n: usize, classes: usize, seed: u64) -> Labels {
    let rng = Rng::new(seed, "random labels");
    let of = |i: usize| {
        let bits = rng.block(i as u64 / 4)[i % 4];
        ((u64::from(bits) * classes as u64) >> 32) as i32
    };
    Labels::Classes {
        of: (0..n).map(of).collect::<Vec<_>>().into(),
        count: classes,
        names: Vec::new(),
    }
}

/// The graph with the random features and labels that the spec asks for.
pub(super) fn decorated(spec: &Spec, graph: Graph, job: &Job) -> Result<Dataset> {
    let (n, seed) = (graph.n_nodes(), spec.long("seed"));
    let mut set = Dataset::new(spec.generator().name, graph);
    match spec.count("features") {
        0 => {}
        width => set = set.with_features(random_features(n, width, seed, job)?)?,
    }
    match spec.count("classes") {
        0 => Ok(set),
        _ if n == 0 => Ok(set),
        classes => {
            let labels = random_labels(n, classes, seed);
            let split = splits::random(&labels, Fractions::DEFAULT, seed)?;
            set.with_labels(labels)?.with_split(split)
        }
    }
}

/// Whether a dense matrix of this size is asked for in earnest.
pub(super) fn check_features(n: u64, width: u64) -> std::result::Result<(), String> {
    match n.checked_mul(width) {
        Some(elements) if elements <= MAX_ELEMENTS => Ok(()),
        _ => Err(format!(
            "{n} nodes with {width} features each are more than {MAX_ELEMENTS} numbers"
        )),
    }
}
