//! Every real set by its path alone, still packed, with the counts that its papers give.

use lacis_core::{Dataset, Features, Labels, Threads};
use lacis_data::{Job, open};

use crate::real;

/// Nodes, undirected edges, features, classes, graphs, splits.
type Counts = [usize; 6];

const SETS: &[(&str, &str, Counts)] = &[
    ("cora", "planetoid", [2_708, 5_278, 1_433, 7, 1, 1]),
    ("citeseer", "planetoid", [3_327, 4_552, 3_703, 6, 1, 1]),
    ("pubmed", "planetoid", [19_717, 44_324, 500, 3, 1, 1]),
    ("cora-linqs", "linqs", [2_708, 5_278, 1_433, 7, 1, 0]),
    ("amazon-photo", "gnn-benchmark", [7_650, 119_081, 745, 8, 1, 0]),
    ("amazon-computers", "gnn-benchmark", [13_752, 245_861, 767, 10, 1, 0]),
    ("coauthor-cs", "gnn-benchmark", [18_333, 81_894, 6_805, 15, 1, 0]),
    ("coauthor-physics", "gnn-benchmark", [34_493, 247_962, 8_415, 5, 1, 0]),
    ("facebook-pagepage", "musae", [22_470, 170_823, 4_714, 4, 1, 0]),
    ("twitch", "musae", [36_890, 492_575, 3_170, 2, 1, 1]),
    ("twitch/twitch.zip/DE", "musae", [9_498, 153_138, 3_170, 2, 1, 0]),
    ("twitch/twitch.zip/ENGB", "musae", [7_126, 35_324, 3_170, 2, 1, 0]),
    ("twitch/twitch.zip/FR", "musae", [6_549, 112_666, 3_170, 2, 1, 0]),
    ("tolokers", "heterophilous", [11_758, 519_000, 10, 2, 1, 10]),
    ("actor", "geom-gcn", [7_600, 26_659, 932, 5, 1, 10]),
    ("texas", "geom-gcn", [183, 279, 1_703, 5, 1, 10]),
    ("wisconsin", "geom-gcn", [251, 450, 1_703, 5, 1, 10]),
    ("blogcatalog", "mat", [10_312, 333_983, 0, 39, 1, 0]),
    ("tu-MUTAG", "tu", [3_371, 3_721, 7, 2, 188, 0]),
    ("gin-MUTAG", "gin", [3_371, 3_721, 7, 2, 188, 10]),
    ("tu-PROTEINS", "tu", [43_471, 81_044, 3, 2, 1_113, 0]),
    ("gin-PROTEINS", "gin", [43_471, 81_044, 3, 2, 1_113, 10]),
    ("gin-NCI1", "gin", [122_747, 132_753, 37, 2, 4_110, 10]),
    ("karate", "mtx", [34, 78, 0, 0, 1, 0]),
    ("ego-twitter", "edges", [81_306, 1_342_296, 0, 0, 1, 0]),
    ("copter2", "metis", [55_476, 352_238, 0, 0, 1, 0]),
];

fn load(name: &str) -> Option<Dataset> {
    let folder = real(name.split('/').next().unwrap_or(name))?;
    let path = folder.with_file_name("").join(name);
    let threads = Threads::new(2).unwrap();
    Some(open(path.to_str().unwrap(), &Job::quiet(&threads)).unwrap_or_else(|e| panic!("{e}")))
}

#[test]
fn every_set_has_its_published_counts() {
    let threads = Threads::new(2).unwrap();
    for (name, format, counts) in SETS {
        let Some(set) = load(name) else { continue };
        let stats = set.graph().stats(&threads);
        let found = [
            stats.n_rows,
            stats.undirected_edges,
            set.features().map_or(0, Features::width),
            set.labels().map_or(0, Labels::width),
            set.collection().map_or(1, |graphs| graphs.n_graphs()),
            set.splits().len(),
        ];
        assert_eq!((set.origin().format.as_str(), &found), (*format, counts), "{name}");
    }
}

fn class_counts(set: &Dataset) -> Vec<usize> {
    let Some(Labels::Classes { of, count, .. }) = set.labels() else { panic!("classes") };
    let mut counts = vec![0; *count];
    of.iter().for_each(|&class| counts[class as usize] += 1);
    counts
}

#[test]
fn labels_and_directions_are_the_published_ones() {
    let threads = Threads::one();
    let counts = |name: &str| load(name).map(|set| class_counts(&set));
    for (name, right) in [
        ("facebook-pagepage", &[6_495, 6_880, 5_768, 3_327][..]),
        ("tolokers", &[9_192, 2_566]),
        ("tu-MUTAG", &[63, 125]),
        ("gin-MUTAG", &[63, 125]),
        ("tu-PROTEINS", &[663, 450]),
        ("gin-NCI1", &[2_053, 2_057]),
    ] {
        assert_eq!(counts(name).as_deref().unwrap_or(right), right, "{name}");
    }
    if let Some(set) = load("blogcatalog") {
        let Some(Labels::Multi(groups)) = set.labels() else { panic!("any number of labels") };
        assert_eq!(groups.nnz(), 14_476);
        assert!(set.graph().is_symmetric(&threads));
    }
    if let Some(set) = load("texas") {
        assert!(!set.graph().is_symmetric(&threads));
        let split = &set.splits()[0];
        assert_eq!(split.train.len() + split.val.len() + split.test.len(), 183);
    }
    if let (Some(text), Some(pickles)) = (load("cora-linqs"), load("cora")) {
        let degrees = |set: &Dataset| {
            let mut degrees = set.graph().adjacency().row_lengths();
            degrees.sort_unstable();
            degrees
        };
        assert_eq!(degrees(&text), degrees(&pickles));
        assert_eq!(text.features().unwrap().nnz(), pickles.features().unwrap().nnz());
        assert_eq!(text.ids().unwrap().get(0), "31336");
    }
    if let Some(set) = load("twitch") {
        let split = &set.splits()[0];
        assert_eq!((split.train.len(), split.val.len()), (9_498, 7_126));
    }
    if let (Some(a), Some(b)) = (load("tu-PROTEINS"), load("gin-PROTEINS")) {
        assert!(a.graph().adjacency().same_entries(b.graph().adjacency()));
        assert_eq!(a.features().unwrap().to_dense(), b.features().unwrap().to_dense());
        assert_eq!(class_counts(&a), class_counts(&b));
    }
}

/// What is not read is said so, soon, and under its own name.
#[test]
fn sets_of_other_kinds_are_refused_by_name() {
    for name in ["hgb-imdb", "wn18rr", "qm9-sample"] {
        let Some(folder) = real(name) else { continue };
        let error = open(folder.to_str().unwrap(), &Job::quiet(&Threads::one())).unwrap_err();
        assert!(error.to_string().contains(name), "{error}");
    }
}
