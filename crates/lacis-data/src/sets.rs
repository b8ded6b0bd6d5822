//! The built-in data sets by name, and the public ones that people may ask for.

mod public;

pub use public::PUBLIC;

use lacis_core::{
    Csr, CsrParts, Dataset, Error, Features, Graph, Labels, Origin, Result, RowPtr, Split,
};

use crate::Job;
use crate::generate::near::did_you_mean;
use crate::generate::sbm::{Blocks, learnable};
use crate::generate::topics::Topics;
use crate::splits::{self, Planetoid};

/// A data set that needs no file.
#[derive(Debug)]
pub struct Set {
    /// What people call it.
    pub name: &'static str,
    /// What it is, in one line.
    pub about: &'static str,
    make: fn(&Job) -> Result<Dataset>,
}

/// Every built-in data set.
pub static SETS: &[Set] = &[
    Set {
        name: "karate",
        about: "Zachary's karate club: 34 members, 78 friendships, 2 clubs after the split",
        make: karate,
    },
    Set {
        name: "cora-like",
        about: "synthetic, of Cora's sizes: 2,708 nodes, 5,278 edges, 1,433 words, 7 classes",
        make: |job| cora_like(CORA_LIKE_SEED, job),
    },
];

/// A data set that people know by name and that has to be downloaded.
#[derive(Debug)]
pub struct Public {
    /// What people call it.
    pub name: &'static str,
    /// Number of nodes.
    pub nodes: u64,
    /// Number of edges as published: undirected pairs, or directed edges of a directed graph.
    pub edges: u64,
    /// Size of the download in megabytes, about, where its files are not listed.
    pub download_mb: Option<u32>,
    /// Who publishes it, or why it cannot be fetched.
    pub source: &'static str,
    /// Under which terms.
    pub licence: &'static str,
    /// Its files; none where it cannot be fetched.
    pub files: Vec<Remote>,
}

/// A file to download.
#[derive(Debug)]
pub struct Remote {
    /// What it is called here.
    pub name: &'static str,
    /// Where it is.
    pub url: String,
    /// Its size: exactly where there is a checksum, else about.
    pub bytes: u64,
    /// Its SHA-256, where it is known.
    pub sha256: Option<&'static str>,
}

impl Public {
    /// Size of the download, about, in words.
    pub fn size(&self) -> String {
        let bytes: u64 = self.files.iter().map(|file| file.bytes).sum();
        let mb = match self.download_mb {
            Some(mb) => mb.into(),
            None if bytes == 0 => return "a download of unknown size".to_owned(),
            None => bytes as f64 / 1e6,
        };
        match mb {
            1000.0.. => format!("about {:.1} GB", mb / 1e3),
            1.0.. => format!("about {mb:.0} MB"),
            _ => format!("about {:.0} kB", (mb * 1e3).max(1.0)),
        }
    }
}

/// The built-in data set of this name.
pub fn find(name: &str) -> Option<&'static Set> {
    SETS.iter().find(|set| set.name == name)
}

/// The public data set of this name.
pub fn find_public(name: &str) -> Option<&'static Public> {
    PUBLIC.iter().find(|public| public.name == name)
}

/// Makes the built-in data set of this name.
///
/// ```
/// use lacis_core::Threads;
/// let karate = lacis_data::sets::load("karate", &lacis_data::Job::quiet(&Threads::one()))?;
/// assert_eq!((karate.graph().n_nodes(), karate.graph().n_edges()), (34, 2 * 78));
/// # Ok::<(), lacis_core::Error>(())
/// ```
/// # Errors
/// When there is none; the message says how large a public one is, or what was probably meant.
pub fn load(name: &str, job: &Job) -> Result<Dataset> {
    match find(name) {
        Some(set) => (set.make)(job),
        None => Err(unknown(name)),
    }
}

/// What is said of a name that is no built-in set: how large a public one is and how to get it,
/// or what was probably meant.
pub fn unknown(name: &str) -> Error {
    let Some(public) = find_public(name) else {
        let names = SETS.iter().map(|set| set.name);
        let names: Vec<_> = names.chain(PUBLIC.iter().map(|public| public.name)).collect();
        let problem = format!("no such data set; {}", did_you_mean(name, &names));
        return Error::argument(format!("'{name}'"), problem);
    };
    let way = match &public.files[..] {
        [] => "the path of its files would be right".to_owned(),
        _ => format!("`lacis data fetch {name}` downloads it, or name the path of its files"),
    };
    let problem = format!(
        "a public data set ({} nodes, {} edges, {}) that is not built in; {way}",
        public.nodes,
        public.edges,
        public.size()
    );
    Error::argument(format!("'{name}'"), problem)
}

/// Friendships of W. W. Zachary, "An information flow model for conflict and fission in small
/// groups", Journal of Anthropological Research 33 (1977), as pairs; members count from 0.
const KARATE: [u8; 2 * 78] = [
    0, 1, 0, 2, 0, 3, 0, 4, 0, 5, 0, 6, 0, 7, 0, 8, 0, 10, 0, 11, 0, 12, 0, 13, 0, 17, 0, 19, 0,
    21, 0, 31, 1, 2, 1, 3, 1, 7, 1, 13, 1, 17, 1, 19, 1, 21, 1, 30, 2, 3, 2, 7, 2, 8, 2, 9, 2, 13,
    2, 27, 2, 28, 2, 32, 3, 7, 3, 12, 3, 13, 4, 6, 4, 10, 5, 6, 5, 10, 5, 16, 6, 16, 8, 30, 8, 32,
    8, 33, 9, 33, 13, 33, 14, 32, 14, 33, 15, 32, 15, 33, 18, 32, 18, 33, 19, 33, 20, 32, 20, 33,
    22, 32, 22, 33, 23, 25, 23, 27, 23, 29, 23, 32, 23, 33, 24, 25, 24, 27, 24, 31, 25, 31, 26, 29,
    26, 33, 27, 33, 28, 31, 28, 33, 29, 32, 29, 33, 30, 32, 30, 33, 31, 32, 31, 33, 32, 33,
];
/// Members who went with the officers; the others went with Mr. Hi.
const KARATE_OFFICERS: [u8; 17] =
    [9, 14, 15, 18, 20, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31, 32, 33];

fn karate(_: &Job) -> Result<Dataset> {
    let pairs = KARATE.chunks_exact(2).map(|pair| (u32::from(pair[0]), u32::from(pair[1])));
    let both: Vec<_> = pairs.flat_map(|(i, j)| [(i, j), (j, i)]).collect();
    let graph = Graph::from_edges(34, &both)?;
    let graph = Graph::new(graph.adjacency().as_ref().clone().without_order());
    let club = |i: u8| i32::from(KARATE_OFFICERS.contains(&i));
    let names = ["Mr. Hi", "Officer"].map(str::to_owned).to_vec();
    let (leaders, followers) = ([0, 33], 1..33);
    let (val, test) = followers.partition(|i| i % 4 == 1);
    let split = Split { name: "planetoid".to_owned(), train: leaders.to_vec(), val, test };
    Dataset::new("karate", graph)
        .with_origin(Origin {
            format: "built in".to_owned(),
            synthetic: false,
            notes: vec!["features are the members' numbers, one-hot".to_owned()],
        })
        .with_features(Features::Sparse(identity(34)?))?
        .with_labels(Labels::classes((0..34).map(club).collect::<Vec<_>>(), names)?)?
        .with_split(split)
}

/// The matrix whose row `i` has a one in column `i`.
fn identity(n: u32) -> Result<Csr> {
    let parts = CsrParts {
        n_cols: n as usize,
        row_ptr: RowPtr::Narrow((0..=n).collect::<Vec<_>>().into()),
        cols: (0..n).collect::<Vec<_>>().into(),
        values: None,
        order: None,
    };
    Csr::new(parts, &lacis_core::Threads::one())
}

const CORA_LIKE_SEED: u64 = 2;
/// The sizes of Cora's classes.
const CORA_CLASSES: [usize; 7] = [351, 217, 418, 818, 426, 298, 180];

/// A stand-in for Cora: same sizes; homophily and noise set so that a two-layer GCN and an MLP come
/// out near the accuracies known for Cora (81.5 and 57 %).
fn cora_like(seed: u64, job: &Job) -> Result<Dataset> {
    let blocks =
        Blocks { sizes: CORA_CLASSES.to_vec(), edges: 5_278, homophily: 0.67, skew: 2.0, seed };
    let topics = Topics { width: 1_433, ones: 18, noise: 0.71 };
    let set = learnable("cora-like", &blocks, &topics, job)?;
    let split = set.labels().map(|labels| splits::planetoid(labels, Planetoid::CANONICAL, seed));
    let set = split.map_or(Ok(set.clone()), |split| set.with_split(split?))?;
    Ok(set.with_origin(Origin {
        format: "built in".to_owned(),
        synthetic: true,
        notes: vec!["made by a block model with the sizes of Cora; not Cora itself".to_owned()],
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use lacis_core::Threads;

    fn loaded(name: &str) -> Dataset {
        load(name, &Job::quiet(&Threads::one())).unwrap()
    }

    #[test]
    fn karate_is_the_published_graph() {
        let set = loaded("karate");
        let degrees = set.graph().adjacency().row_lengths();
        assert!(set.graph().is_symmetric(&Threads::one()));
        assert_eq!(
            (set.graph().n_edges(), degrees[0], degrees[33], degrees[32]),
            (156, 16, 17, 12)
        );
        let Some(Labels::Classes { of, count, .. }) = set.labels() else { panic!("classes") };
        assert_eq!(
            (of.iter().sum::<i32>(), *count, of[0], of[33], of[8], of[9]),
            (17, 2, 0, 1, 0, 1)
        );
        let split = &set.splits()[0];
        assert_eq!([&split.train, &split.val, &split.test].map(Vec::len), [2, 8, 24]);
        assert!(!set.origin().synthetic);
    }

    #[test]
    fn cora_like_has_the_sizes_of_cora() {
        let set = loaded("cora-like");
        assert_eq!((set.graph().n_nodes(), set.graph().n_edges()), (2_708, 2 * 5_278));
        assert!(set.graph().adjacency().row_lengths().iter().all(|&degree| degree > 0));
        let features = set.features().unwrap();
        assert_eq!(features.width(), 1_433);
        let ones = features.nnz() as f64 / 2_708.0;
        assert!((17.5..18.5).contains(&ones), "{ones}");
        assert_eq!(set.labels().unwrap().width(), 7);
        let split = &set.splits()[0];
        assert_eq!([&split.train, &split.val, &split.test].map(Vec::len), [140, 500, 1000]);
        assert!(set.origin().synthetic);
    }

    #[test]
    fn unknown_names_are_explained() {
        let problem = |name| load(name, &Job::quiet(&Threads::one())).unwrap_err().to_string();
        assert!(problem("karat").contains("did you mean 'karate'?"));
        assert!(problem("ogbn-products").contains("about 1.4 GB"), "{}", problem("ogbn-products"));
        assert!(problem("cora").contains("2708 nodes") && problem("cora").contains("path"));
        assert!(problem("nothing").contains("known: karate, cora-like, cora,"));
    }
}
