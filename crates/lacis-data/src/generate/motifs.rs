//! A collection of small graphs whose class is a motif hidden in them: a random tree (each node
//! hangs on a random earlier one), a motif, and one edge between the two.

use lacis_core::threads::ranges;
use lacis_core::{
    Collection, Coo, Dataset, Dense, Features, Graph, Labels, Repeats, Result, Rng, Split, Stream,
    Tags,
};

use super::Spec;
use super::draw::{check_features, square};
use super::scramble::Scramble;
use crate::Job;
use crate::splits::{self, Fractions};

/// A motif: its name, its number of nodes, its edges.
pub(super) struct Motif {
    name: &'static str,
    n_nodes: u32,
    edges: &'static [[u32; 2]],
}

/// What decides a graph's class, class 0 first. The last three have as many nodes and edges as the
/// first, so counting alone does not tell them apart.
pub(super) static MOTIFS: [Motif; 6] = [
    Motif { name: "house", n_nodes: 5, edges: &[[0, 1], [1, 2], [2, 3], [3, 0], [0, 4], [1, 4]] },
    Motif { name: "cycle", n_nodes: 5, edges: &[[0, 1], [1, 2], [2, 3], [3, 4], [4, 0]] },
    Motif { name: "star", n_nodes: 5, edges: &[[0, 1], [0, 2], [0, 3], [0, 4]] },
    Motif {
        name: "butterfly",
        n_nodes: 5,
        edges: &[[0, 1], [1, 2], [2, 0], [0, 3], [3, 4], [4, 0]],
    },
    Motif {
        name: "bipartite",
        n_nodes: 5,
        edges: &[[0, 2], [0, 3], [0, 4], [1, 2], [1, 3], [1, 4]],
    },
    Motif { name: "kite", n_nodes: 5, edges: &[[0, 1], [1, 2], [2, 3], [3, 0], [0, 2], [2, 4]] },
];

/// Graphs that one thread makes at a time.
const CHUNK_GRAPHS: usize = 1 << 10;

pub(super) fn check(spec: &Spec) -> std::result::Result<(), String> {
    let n = spec.long("graphs") * (spec.long("nodes") * 3 / 2 + 5);
    if n > u64::from(u32::MAX) {
        return Err(format!("up to {n} nodes in all are more than {}", u32::MAX));
    }
    check_features(n, spec.long("features"))
}

pub(super) fn make(spec: &Spec, job: &Job) -> Result<Dataset> {
    let plan = Plan::new(spec);
    let graph = plan.graph(job)?;
    let features = degree_features(&graph, spec.count("features"));
    let labels = plan.labels();
    let split = splits::stratified(&labels, Fractions::new(0.8, 0.1, 0.1)?, plan.seed)?;
    Dataset::new(spec.generator().name, graph)
        .with_features(features)?
        .with_collection(Collection::new(plan.starts)?)?
        .with_labels(labels)?
        .with_split(Split { name: "random".to_owned(), ..split })
}

/// Which motif each graph has, and which nodes.
struct Plan {
    seed: u64,
    classes: usize,
    class_of: Vec<i32>,
    starts: Vec<u32>,
}

impl Plan {
    fn new(spec: &Spec) -> Self {
        let (graphs, classes, mean) =
            (spec.long("graphs"), spec.count("classes"), spec.count("nodes"));
        let seed = spec.long("seed");
        let order = Scramble::new(Rng::new(seed, "motif classes"), graphs);
        let sizes = Rng::new(seed, "motif sizes");
        let (mut class_of, mut starts, mut end) = (Vec::new(), vec![0], 0);
        for graph in 0..graphs {
            let class = order.at(graph) as usize % classes;
            let tree = mean - mean / 2 + sizes.stream(graph).below(2 * (mean / 2) + 1);
            end += tree as u32 + MOTIFS[class].n_nodes;
            class_of.push(class as i32);
            starts.push(end);
        }
        Plan { seed, classes, class_of, starts }
    }

    fn graph(&self, job: &Job) -> Result<Graph> {
        let rng = Rng::new(self.seed, "motif trees");
        let graphs = self.class_of.len();
        let mut coo = Coo::new(Tags::Absent);
        coo.extend(ranges(graphs, CHUNK_GRAPHS), job.threads, |range, chunk| {
            job.tick(range.start as u64, Some(graphs as u64))?;
            for graph in range {
                self.draw(graph, &mut rng.stream(graph as u64), |i, j| {
                    chunk.push(i, j);
                    chunk.push(j, i);
                });
            }
            Ok(())
        })?;
        let n = self.starts[graphs] as usize;
        Ok(Graph::new(coo.into_csr(square(n), Repeats::Merge, job.threads)?))
    }

    /// The motif's nodes come first, then the tree's.
    fn draw(&self, graph: usize, stream: &mut Stream, mut edge: impl FnMut(u32, u32)) {
        let motif = &MOTIFS[self.class_of[graph] as usize];
        let (start, root) = (self.starts[graph], self.starts[graph] + motif.n_nodes);
        for [i, j] in motif.edges {
            edge(start + i, start + j);
        }
        for node in root + 1..self.starts[graph + 1] {
            edge(node, root + stream.below((node - root) as usize) as u32);
        }
        let at = stream.below(motif.n_nodes as usize) as u32;
        let tree = (self.starts[graph + 1] - root) as usize;
        edge(start + at, root + stream.below(tree) as u32);
    }

    fn labels(&self) -> Labels {
        let names = MOTIFS[..self.classes].iter().map(|motif| motif.name.to_owned());
        Labels::Classes {
            of: self.class_of.clone().into(),
            count: self.classes,
            names: names.collect(),
        }
    }
}

/// One-hot degrees, the last column for all larger ones; a column of ones where `width` is 1.
fn degree_features(graph: &Graph, width: usize) -> Features {
    let mut x = Dense::zeros(graph.n_nodes(), width);
    let values = x.data_mut();
    for (i, degree) in graph.adjacency().row_lengths().into_iter().enumerate() {
        values[i * width + (degree as usize).min(width - 1)] = 1.0;
    }
    Features::Dense(x)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generate::tests::made;

    #[test]
    fn graphs_have_the_cycles_of_their_motif() {
        let set = made("motifs:graphs=60,classes=6,nodes=8,seed=5");
        let collection = set.collection().unwrap();
        let Some(Labels::Classes { of, names, .. }) = set.labels() else { panic!("classes") };
        assert_eq!((collection.n_graphs(), names.len()), (60, 6));
        for g in 0..60 {
            let nodes = collection.nodes(g);
            let entries: usize = nodes.clone().map(|i| set.graph().adjacency().row(i).len()).sum();
            let motif = &MOTIFS[of[g] as usize];
            let cycles = motif.edges.len() as i64 - i64::from(motif.n_nodes) + 1;
            assert_eq!(entries as i64 / 2 - nodes.len() as i64 + 1, cycles);
            assert!((5 + 4..=5 + 12).contains(&nodes.len()));
        }
        assert!((0..6).all(|class| of.iter().filter(|c| **c == class).count() == 10));
    }

    #[test]
    fn features_are_degrees_or_a_constant() {
        let set = made("motifs:graphs=10");
        let Some(Features::Dense(x)) = set.features() else { panic!("dense") };
        let degrees = set.graph().adjacency().row_lengths();
        assert!(x.rows().zip(degrees).all(|(row, d)| row[(d as usize).min(9)] == 1.0));
        assert!(x.rows().all(|row| row.iter().sum::<f32>() == 1.0));
        let constant = made("motifs:graphs=10,features=1");
        assert!(constant.features().unwrap().nnz() == constant.graph().n_nodes());
    }
}
