//! Data set in, data set out: what users ask for before they train.
//!
//! What a step does to the graph, it does to features, labels and splits as well.

mod features;

pub use features::{FeatureSource, features_from, random_labels, row_normalize};

use lacis_core::error::same_size;
use lacis_core::threads::ranges;
use lacis_core::{
    CHUNK_ENTRIES, Chunk, Coo, Csr, CsrParts, CsrView, Dataset, Dense, Error, Features, Graph,
    Labels, Repeats, Result, RowPtr, SelfLoops, Split, Tags, Threads,
};

use crate::Job;
use crate::generate::draw::square;

/// The graph with every edge both ways, as PyG's `to_undirected`: edges that then coincide are
/// merged, and their weights, if they have any, summed. So weights of a graph that was symmetric
/// already are doubled.
///
/// # Errors
/// When the job is stopped.
pub fn undirected(set: Dataset, job: &Job) -> Result<Dataset> {
    require_square("undirected", &set)?;
    let a = set.graph().adjacency();
    job.tick(0, None)?;
    let plain = a.values().is_none() && !a.has_repeats(job.threads);
    if plain && set.graph().is_symmetric(job.threads) {
        return Ok(set);
    }
    let mut coo = Coo::new(tags_of(a));
    for turned in [false, true] {
        let a = a.view();
        coo.extend(a.slices(CHUNK_ENTRIES), job.threads, |rows, chunk| {
            for i in rows {
                for e in a.row(i) {
                    let (i, j) = (i as u32, a.cols[e]);
                    push(a, e, if turned { [j, i] } else { [i, j] }, chunk);
                }
            }
            Ok(())
        })?;
    }
    let repeats = if a.values().is_some() { Repeats::Sum } else { Repeats::Merge };
    let graph = Graph::new(coo.into_csr(square(a.n_rows()), repeats, job.threads)?);
    let added = repeats == Repeats::Sum && graph.n_edges() < 2 * a.nnz();
    let out = with_graph(&set, graph)?;
    Ok(if added {
        out.with_note("weights of edges that were there both ways were added")
    } else {
        out
    })
}

fn tags_of(a: &Csr) -> Tags {
    if a.values().is_some() { Tags::Values } else { Tags::Absent }
}

/// Adds entry `e` of a matrix at another place.
fn push(a: CsrView<'_>, e: usize, [row, col]: [u32; 2], chunk: &mut Chunk) {
    match a.values {
        Some(values) => chunk.push_tagged(row, col, values[e].to_bits()),
        None => chunk.push(row, col),
    }
}

/// Nodes without a self-loop get one of weight 1.
///
/// # Errors
/// When there would be too many edges to count.
pub fn self_loops(set: Dataset) -> Result<Dataset> {
    let looped = set.graph().adjacency().with_self_loops(SelfLoops::AddMissing(1.0))?;
    with_graph(&set, Graph::new(looped))
}

/// What becomes of the edges' weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EdgeWeights {
    /// They stay.
    Use,
    /// Every edge counts the same.
    Ignore,
}

/// Keeps or drops the edges' weights.
///
/// # Errors
/// None that are known: the parts of a data set fit together.
pub fn edge_weights(set: Dataset, weights: EdgeWeights) -> Result<Dataset> {
    if weights == EdgeWeights::Use || set.graph().adjacency().values().is_none() {
        return Ok(set);
    }
    let plain = set.graph().adjacency().as_ref().clone().with_values(None)?;
    with_graph(&set, Graph::new(plain))
}

/// The same data set around another graph of as many nodes.
fn with_graph(set: &Dataset, graph: Graph) -> Result<Dataset> {
    let mut out = Dataset::new(set.name(), graph).with_origin(set.origin().clone());
    if let Some(collection) = set.collection() {
        out = out.with_collection(collection.clone())?;
    }
    if let Some(ids) = set.ids() {
        out = out.with_ids(ids.clone())?;
    }
    if let Some(features) = set.features() {
        out = out.with_features(features.clone())?;
    }
    if let Some(labels) = set.labels() {
        out = out.with_labels(labels.clone())?;
    }
    set.splits().iter().try_fold(out, |out, split| out.with_split(split.clone()))
}

/// The largest part of the graph that hangs together, edges taken as undirected; of parts equally
/// large, the one with the smallest node. Nodes keep their order.
///
/// # Errors
/// When the data set is a collection of graphs.
pub fn largest_component(set: Dataset, job: &Job) -> Result<Dataset> {
    refuse_collection("largest component", &set)?;
    require_square("largest component", &set)?;
    let of = components(set.graph().adjacency().view());
    let mut sizes = vec![0_u32; of.len()];
    of.iter().for_each(|&root| sizes[root as usize] += 1);
    let largest = sizes.iter().max().copied().unwrap_or(0);
    let Some(root) = sizes.iter().position(|&size| size == largest) else {
        return Ok(set);
    };
    if largest as usize == of.len() {
        return Ok(set);
    }
    let nodes: Vec<u32> =
        (0..of.len() as u32).filter(|&i| of[i as usize] as usize == root).collect();
    induced(set, &nodes, job)
}

/// The smallest node of each node's component (union of the entries, with path halving).
fn components(a: CsrView<'_>) -> Vec<u32> {
    let mut root_of: Vec<u32> = (0..a.n_rows() as u32).collect();
    fn root(root_of: &mut [u32], mut i: u32) -> u32 {
        while root_of[i as usize] != i {
            let above = root_of[root_of[i as usize] as usize];
            root_of[i as usize] = above;
            i = above;
        }
        i
    }
    for i in 0..a.n_rows() {
        for &j in a.row_cols(i) {
            let [a, b] = [i as u32, j].map(|node| root(&mut root_of, node));
            root_of[a.max(b) as usize] = a.min(b);
        }
    }
    (0..a.n_rows() as u32).map(|i| root(&mut root_of, i)).collect()
}

/// In a rectangular adjacency sources and targets are different nodes.
fn require_square(what: &'static str, set: &Dataset) -> Result<()> {
    let a = set.graph().adjacency();
    same_size(what, "number of source nodes", a.n_rows(), a.n_cols())
}

fn refuse_collection(what: &str, set: &Dataset) -> Result<()> {
    match set.collection() {
        None => Ok(()),
        Some(_) => Err(Error::argument(what, "is not defined for a collection of graphs")),
    }
}

/// The sub-graph of these nodes and the edges among them, numbered as listed.
///
/// # Errors
/// When a node is not there or listed twice, or the data set is a collection of graphs.
pub fn induced(set: Dataset, nodes: &[u32], job: &Job) -> Result<Dataset> {
    refuse_collection("sub-graph", &set)?;
    require_square("sub-graph", &set)?;
    let new_of = renumbering(nodes, set.graph().n_nodes())?;
    let graph = sub_graph(set.graph().adjacency(), nodes, &new_of, job)?;
    let mut out = Dataset::new(set.name(), graph).with_origin(set.origin().clone());
    if let Some(ids) = set.ids() {
        out = out.with_ids(nodes.iter().map(|&i| ids.get(i as usize)).collect())?;
    }
    if let Some(features) = set.features() {
        out = out.with_features(match features {
            Features::Dense(x) => Features::Dense(dense_rows(x, nodes)?),
            Features::Sparse(x) => Features::Sparse(sparse_rows(x, nodes, job.threads)?),
        })?;
    }
    if let Some(labels) = set.labels() {
        out = out.with_labels(labels_of(labels, nodes, job.threads)?)?;
    }
    let keep = |part: &[u32]| -> Vec<u32> {
        let mut kept: Vec<u32> = part.iter().filter_map(|&i| new_of[i as usize]).collect();
        kept.sort_unstable();
        kept
    };
    set.splits().iter().try_fold(out, |out, split| {
        out.with_split(Split {
            name: split.name.clone(),
            train: keep(&split.train),
            val: keep(&split.val),
            test: keep(&split.test),
        })
    })
}

/// The new number of each old node, if it stays.
fn renumbering(nodes: &[u32], n: usize) -> Result<Vec<Option<u32>>> {
    let mut new_of = vec![None; n];
    for (at, &node) in nodes.iter().enumerate() {
        let Some(new) = new_of.get_mut(node as usize) else {
            return Err(Error::Index {
                op: "sub-graph",
                what: "node",
                index: u64::from(node),
                at,
                bound: n as u64,
            });
        };
        if new.replace(at as u32).is_some() {
            return Err(Error::argument("sub-graph", format!("node {node} is listed twice")));
        }
    }
    Ok(new_of)
}

fn sub_graph(a: &Csr, nodes: &[u32], new_of: &[Option<u32>], job: &Job) -> Result<Graph> {
    let mut coo = Coo::new(tags_of(a));
    let a = a.view();
    coo.extend(ranges(nodes.len(), CHUNK_ENTRIES / 8), job.threads, |rows, chunk| {
        job.tick(rows.start as u64, Some(nodes.len() as u64))?;
        for i in rows {
            for e in a.row(nodes[i] as usize) {
                if let Some(j) = new_of[a.cols[e] as usize] {
                    push(a, e, [i as u32, j], chunk);
                }
            }
        }
        Ok(())
    })?;
    Ok(Graph::new(coo.into_csr(square(nodes.len()), Repeats::Keep, job.threads)?))
}

fn dense_rows(x: &Dense, rows: &[u32]) -> Result<Dense> {
    let data: Vec<f32> = rows.iter().flat_map(|&i| x.row(i as usize)).copied().collect();
    Dense::from_vec(data, rows.len(), x.n_cols())
}

fn sparse_rows(x: &Csr, rows: &[u32], threads: &Threads) -> Result<Csr> {
    let mut ends = vec![0];
    let (mut cols, mut values) = (Vec::new(), Vec::new());
    for &i in rows {
        let row = x.row(i as usize);
        cols.extend_from_slice(&x.cols()[row.clone()]);
        values.extend(x.values().iter().flat_map(|values| &values[row.clone()]));
        ends.push(cols.len() as u64);
    }
    let parts = CsrParts {
        n_cols: x.n_cols(),
        row_ptr: RowPtr::Wide(ends.into()),
        cols: cols.into(),
        values: x.values().map(|_| values.into()),
        order: None,
    };
    Csr::new(parts, threads)
}

fn labels_of(labels: &Labels, rows: &[u32], threads: &Threads) -> Result<Labels> {
    Ok(match labels {
        Labels::Classes { of, count, names } => Labels::Classes {
            of: rows.iter().map(|&i| of[i as usize]).collect::<Vec<_>>().into(),
            count: *count,
            names: names.clone(),
        },
        Labels::Multi(of) => Labels::Multi(sparse_rows(of, rows, threads)?),
        Labels::Targets(of) => Labels::Targets(dense_rows(of, rows)?),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use lacis_core::{Buffer, Collection};

    fn quiet(f: impl FnOnce(&Job) -> Result<Dataset>) -> Dataset {
        f(&Job::quiet(&Threads::one())).unwrap()
    }

    /// Two components: 0 → 1 → 2 ← 0 and 3 ⇄ 4, labels and features telling the node.
    fn sample() -> Dataset {
        let graph = Graph::from_edges(5, &[(0, 1), (1, 2), (0, 2), (3, 4), (4, 3)]).unwrap();
        let split = Split { name: "s".into(), train: vec![0, 3], val: vec![2], test: vec![4] };
        Dataset::new("sample", graph)
            .with_features(Features::Dense(Dense::from_fn(5, 2, |i, j| (10 * i + j) as f64)))
            .unwrap()
            .with_labels(Labels::classes(vec![0, 1, 2, 3, 4], vec![]).unwrap())
            .unwrap()
            .with_split(split)
            .unwrap()
    }

    fn weighted(values: &[f32]) -> Dataset {
        let a = sample().graph().adjacency().as_ref().clone();
        let a = a.with_values(Some(Buffer::copied(values))).unwrap();
        with_graph(&sample(), Graph::new(a)).unwrap()
    }

    fn entries(set: &Dataset) -> Vec<(usize, usize, f32)> {
        set.graph().adjacency().entries().collect()
    }

    #[test]
    fn undirected_merges_and_sums_as_pyg() {
        let plain = quiet(|job| undirected(sample(), job));
        assert_eq!(plain.graph().n_edges(), 8);
        assert!(plain.graph().is_symmetric(&Threads::one()));
        assert_eq!(plain.splits(), sample().splits());
        // Stored: (1,0) 1, (2,0) 2, (2,1) 3, (3,4) 4, (4,3) 5.
        let summed = quiet(|job| undirected(weighted(&[1.0, 2.0, 3.0, 4.0, 5.0]), job));
        let expected = [
            (0, 1, 1.0),
            (0, 2, 2.0),
            (1, 0, 1.0),
            (1, 2, 3.0),
            (2, 0, 2.0),
            (2, 1, 3.0),
            (3, 4, 9.0),
            (4, 3, 9.0),
        ];
        assert_eq!(entries(&summed), expected);
        let again = quiet(|job| undirected(plain.clone(), job));
        assert_eq!(entries(&again), entries(&plain));
    }

    #[test]
    fn sources_and_targets_that_are_different_nodes_are_not_confused() {
        for (n_rows, n_cols) in [(5, 2), (2, 5)] {
            let bipartite = || Dataset::new("two", Graph::new(Csr::empty(n_rows, n_cols).unwrap()));
            let threads = Threads::one();
            let job = Job::quiet(&threads);
            assert!(undirected(bipartite(), &job).is_err());
            assert!(largest_component(bipartite(), &job).is_err());
            assert!(induced(bipartite(), &[0], &job).is_err());
            assert!(self_loops(bipartite()).is_err());
        }
    }

    #[test]
    fn self_loops_are_added_once() {
        let looped = self_loops(self_loops(sample()).unwrap()).unwrap();
        assert_eq!(
            (looped.graph().n_edges(), looped.graph().adjacency().count_self_loops()),
            (10, 5)
        );
    }

    #[test]
    fn weights_can_be_ignored() {
        let set = weighted(&[1.0, 2.0, 3.0, 4.0, 5.0]);
        assert!(
            edge_weights(set.clone(), EdgeWeights::Use)
                .unwrap()
                .graph()
                .adjacency()
                .values()
                .is_some()
        );
        let ignored = edge_weights(set, EdgeWeights::Ignore).unwrap();
        assert!(ignored.graph().adjacency().values().is_none());
    }

    #[test]
    fn the_largest_component_takes_everything_along() {
        let set = quiet(|job| largest_component(sample(), job));
        assert_eq!(entries(&set), [(1, 0, 1.0), (2, 0, 1.0), (2, 1, 1.0)]);
        assert_eq!(set.features().unwrap().to_dense().row(2), [20.0, 21.0]);
        let split = &set.splits()[0];
        assert_eq!((&split.train, &split.val, &split.test), (&vec![0], &vec![2], &vec![]));
        let whole = quiet(|job| largest_component(set.clone(), job));
        assert_eq!(whole.graph().n_nodes(), 3);
        let empty = Dataset::new("empty", Graph::from_edges(0, &[]).unwrap());
        assert_eq!(quiet(|job| largest_component(empty, job)).graph().n_nodes(), 0);
    }

    #[test]
    fn a_sub_graph_is_numbered_as_listed() {
        let set = quiet(|job| induced(weighted(&[1.0, 2.0, 3.0, 4.0, 5.0]), &[4, 2, 1, 3], job));
        assert_eq!(entries(&set), [(0, 3, 5.0), (1, 2, 3.0), (3, 0, 4.0)]);
        let Some(Labels::Classes { of, count, .. }) = set.labels() else { panic!("classes") };
        assert_eq!((of.as_slice(), *count), (&[4, 2, 1, 3][..], 5));
        assert_eq!(set.splits()[0].train, [3]);
        let threads = Threads::one();
        assert!(induced(sample(), &[1, 1], &Job::quiet(&threads)).is_err());
        assert!(induced(sample(), &[5], &Job::quiet(&threads)).is_err());
        let graphs = Dataset::new("two", sample().graph().clone())
            .with_collection(Collection::new(vec![0, 3, 5]).unwrap())
            .unwrap();
        assert!(induced(graphs, &[0], &Job::quiet(&threads)).is_err());
    }

    #[test]
    fn sparse_parts_follow_a_sub_graph() {
        let set = quiet(|job| features_from(sample(), FeatureSource::Degree(3), 0, job));
        let multi =
            sparse_rows(set.graph().adjacency(), &[0, 1, 2, 3, 4], &Threads::one()).unwrap();
        let set = set.with_labels(Labels::Multi(multi)).unwrap();
        let part = quiet(|job| induced(set, &[2, 0], job));
        assert_eq!(part.features().unwrap().to_dense().row(0), [0.0, 0.0, 1.0]);
        let Some(Labels::Multi(of)) = part.labels() else { panic!("multi") };
        assert_eq!((of.row_cols(0), of.n_cols()), (&[0, 1][..], 5));
    }
}
