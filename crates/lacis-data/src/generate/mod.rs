//! Graphs from nothing but a seed: `name:key=value,…`, one table of them, one file for each.
//!
//! Every graph is symmetric, without self-loops and without repeated edges. Random numbers belong
//! to the thing drawn (an edge, a node) and not to who draws it, so a spec gives the same bits
//! whatever the number of threads.
//!
//! ```
//! use lacis_core::Threads;
//! use lacis_data::{Job, generate};
//!
//! let spec = generate::parse("er:n=100,e=300")?;
//! let set = generate::generate(&spec, &Job::quiet(&Threads::one()))?;
//! assert_eq!(set.graph().n_edges(), 600);
//! # Ok::<(), lacis_core::Error>(())
//! ```

mod ba;
pub(crate) mod draw;
mod er;
mod grid;
mod motifs;
pub(crate) mod near;
mod rmat;
pub(crate) mod sbm;
pub(crate) mod scramble;
mod spec;
pub(crate) mod topics;

use lacis_core::{Buffer, Dataset, Origin, Result};

pub use near::nearest;
pub use spec::{Kind, Param, Spec, Value, parse};

use crate::Job;
use spec::{count, number};

/// One way to make a graph.
#[derive(Debug)]
pub struct Generator {
    /// What people write before the colon.
    pub name: &'static str,
    /// What it makes, in one line.
    pub about: &'static str,
    /// What can be chosen.
    pub params: &'static [Param],
    /// What is wrong with the values together, if something is.
    check: fn(&Spec) -> std::result::Result<(), String>,
    make: fn(&Spec, &Job) -> Result<Dataset>,
}

const NODES: (u64, u64) = (0, u32::MAX as u64);
const EDGES: (u64, u64) = (0, 1 << 40);
const WIDTH: (u64, u64) = (0, 1 << 20);
const SHARE: (f64, f64) = (0.0, 1.0);

const N: Param = count("n", 10_000, NODES, "nodes");
const E: Param = count("e", 100_000, EDGES, "undirected edges");
const SEED: Param = count("seed", 0, (0, u64::MAX), "what all random numbers follow from");
const FEATURES: Param = count("features", 0, WIDTH, "random features of a node; 0: none");
const CLASSES: Param = count("classes", 0, WIDTH, "classes of random labels; 0: no labels");

/// Every generator there is.
pub static GENERATORS: &[Generator] = &[
    Generator {
        name: "rmat",
        about: "R-MAT: skewed degrees as in social and citation graphs (Chakrabarti et al. 2004)",
        params: &[
            N,
            count("e", 100_000, EDGES, "edges drawn; loops are dropped and repeats merged"),
            SEED,
            number("a", 0.57, SHARE, "share of draws in the upper left quadrant, at each level"),
            number("b", 0.19, SHARE, "upper right"),
            number("c", 0.19, SHARE, "lower left"),
            FEATURES,
            CLASSES,
        ],
        check: rmat::check,
        make: rmat::make,
    },
    Generator {
        name: "sbm",
        about: "degree-corrected stochastic block model: classes with features, to learn from",
        params: &[
            N,
            E,
            count("classes", 7, (1, 1 << 20), "classes, of equal size"),
            count("features", 64, WIDTH, "features of a node; 0: none"),
            count("ones", 0, WIDTH, "ones among a node's 0/1 features; 0: dense features"),
            number("homophily", 0.8, SHARE, "share of edges inside a class"),
            number("noise", 0.85, SHARE, "share of a node's features that its class has no say in"),
            number("skew", 2.0, (1.0, 8.0), "1: even degrees; more: larger hubs"),
            SEED,
        ],
        check: sbm::check,
        make: sbm::make,
    },
    Generator {
        name: "er",
        about: "Erdős and Rényi's G(n, e): every set of e edges is equally likely",
        params: &[N, E, SEED, FEATURES, CLASSES],
        check: er::check,
        make: er::make,
    },
    Generator {
        name: "ba",
        about: "Barabási and Albert: each new node prefers neighbours that have many",
        params: &[
            N,
            count("m", 10, (1, 1 << 20), "edges drawn for each new node; repeats are merged"),
            SEED,
            FEATURES,
            CLASSES,
        ],
        check: ba::check,
        make: ba::make,
    },
    Generator {
        name: "grid",
        about: "a rectangular grid, neighbours left, right, above and below",
        params: &[
            count("rows", 100, NODES, "rows of nodes"),
            count("cols", 100, NODES, "nodes of a row"),
            SEED,
            FEATURES,
            CLASSES,
        ],
        check: grid::check,
        make: grid::make,
    },
    Generator {
        name: "motifs",
        about: "many small trees, each with a motif attached that decides its class",
        params: &[
            count("graphs", 600, (1, 1 << 26), "graphs"),
            count("classes", 3, (1, motifs::MOTIFS.len() as u64), "motifs to tell apart"),
            count("nodes", 20, (1, 1 << 20), "mean number of nodes of a tree"),
            count("features", 10, (1, 1 << 16), "width of the one-hot degree; 1: a constant"),
            SEED,
        ],
        check: motifs::check,
        make: motifs::make,
    },
];

/// Whether this is written as a generator: `name:…`, or the bare name of one.
pub fn is_spec(data: &str) -> bool {
    let name = data.split_once(':').map(|(name, _)| name);
    let is_word = |name: &str| name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-');
    name.is_some_and(is_word) || find(data).is_some()
}

/// The generator of this name.
pub fn find(name: &str) -> Option<&'static Generator> {
    GENERATORS.iter().find(|generator| generator.name == name)
}

/// What nodes and edges cost at the least, asked for before anything is drawn.
fn ask_for_memory(spec: &Spec) -> Result<()> {
    const BYTES_PER_NODE: u128 = 32;
    let count = |name: &str| match spec.value(name) {
        Some(Value::Count(count)) => u128::from(count),
        _ => 1,
    };
    let nodes = ["n", "rows", "cols", "graphs", "nodes"].map(count).iter().product::<u128>();
    let absent_is_none = |name: &str| spec.value(name).map_or(0, |_| count(name));
    let edges = absent_is_none("e") + absent_is_none("m") * nodes;
    // Each edge twice, as a key of four bytes at the least.
    Buffer::<u8>::ask(nodes * BYTES_PER_NODE + edges * 8)
}

/// The data set that a spec describes: named after its generator, its origin the spec in full.
///
/// # Errors
/// When it cannot be made after all (a block model too dense for its hubs), or the job is stopped.
pub fn generate(spec: &Spec, job: &Job) -> Result<Dataset> {
    ask_for_memory(spec)?;
    let set = (spec.generator().make)(spec, job)?;
    Ok(set.with_origin(Origin { format: spec.to_string(), synthetic: true, notes: Vec::new() }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use lacis_core::{Features, Labels, Threads};

    pub(super) fn made(spec: &str) -> Dataset {
        generate(&parse(spec).unwrap(), &Job::quiet(&Threads::new(2).unwrap())).unwrap()
    }

    /// Everything in a data set that could differ.
    fn bits(set: &Dataset) -> (Vec<u64>, Vec<u32>, Vec<u32>, Vec<i32>, String) {
        let adjacency = set.graph().adjacency();
        let features = match set.features() {
            Some(Features::Dense(x)) => x.rows().flatten().map(|v| v.to_bits()).collect(),
            Some(Features::Sparse(x)) => x.cols().to_vec(),
            None => Vec::new(),
        };
        let labels = match set.labels() {
            Some(Labels::Classes { of, .. }) => of.to_vec(),
            _ => Vec::new(),
        };
        let rest = format!("{:?} {:?}", set.splits(), set.collection());
        (adjacency.row_ptr().to_vec(), adjacency.cols().to_vec(), features, labels, rest)
    }

    #[test]
    fn the_number_of_threads_does_not_show() {
        for spec in [
            "rmat:n=50k,e=600k,features=3,classes=4",
            "sbm:n=30k,e=300k,features=5",
            "sbm:n=3k,e=270k,features=500,ones=9",
            "er:n=50k,e=600k,features=2",
            "ba:n=60k,m=9,classes=3",
            "grid:rows=700,cols=600",
            "motifs:graphs=4000",
        ] {
            let spec = parse(spec).unwrap();
            let make = |count| {
                let threads = Threads::new(count).unwrap();
                bits(&generate(&spec, &Job::quiet(&threads)).unwrap())
            };
            let expected = make(1);
            assert!([2, 7].into_iter().all(|count| make(count) == expected), "{spec}");
        }
    }

    #[test]
    fn every_graph_is_simple_and_symmetric_and_says_where_it_is_from() {
        let threads = Threads::one();
        for generator in GENERATORS {
            let set = made(generator.name);
            let adjacency = set.graph().adjacency();
            assert!(adjacency.is_symmetric(&threads), "{}", generator.name);
            assert!(!adjacency.has_repeats(&threads), "{}", generator.name);
            assert_eq!(adjacency.count_self_loops(), 0, "{}", generator.name);
            assert!(set.origin().synthetic && set.origin().format.starts_with(generator.name));
            assert_eq!(set.name(), generator.name);
        }
    }

    #[test]
    fn other_seeds_give_other_graphs() {
        for generator in GENERATORS.iter().filter(|generator| generator.name != "grid") {
            let [a, b] = [0, 1].map(|seed| bits(&made(&format!("{}:seed={seed}", generator.name))));
            assert_ne!(a.1, b.1, "{}", generator.name);
        }
    }

    #[test]
    fn empty_graphs_are_graphs() {
        for spec in ["rmat:n=0,e=0", "rmat:n=1,e=9", "er:n=0,e=0", "grid:rows=0"] {
            let set = made(&format!("{spec},features=2,classes=2"));
            assert_eq!(set.graph().n_edges(), 0);
        }
        assert_eq!(made("sbm:n=0,e=0,classes=1").graph().n_nodes(), 0);
    }

    #[test]
    fn features_and_labels_bring_a_split() {
        let set = made("er:n=1000,e=2000,features=8,classes=5");
        let Some(Features::Dense(x)) = set.features() else { panic!("dense") };
        assert_eq!((x.n_rows(), x.n_cols()), (1000, 8));
        let mean = x.rows().flatten().sum::<f32>() / 8000.0;
        assert!(mean.abs() < 0.05 && x.rows().flatten().all(|v| (-1.0..1.0).contains(v)), "{mean}");
        assert_eq!(set.labels().unwrap().width(), 5);
        let split = &set.splits()[0];
        assert_eq!([&split.train, &split.val, &split.test].map(Vec::len), [600, 200, 200]);
    }

    #[test]
    fn work_that_is_stopped_ends() {
        struct Stopped;
        impl crate::Watch for Stopped {
            fn stopped(&self) -> bool {
                true
            }
        }
        let threads = Threads::one();
        let job = Job { threads: &threads, watch: &Stopped };
        for generator in GENERATORS {
            let spec = parse(generator.name).unwrap();
            assert!(generate(&spec, &job).is_err(), "{}", generator.name);
        }
    }
}
