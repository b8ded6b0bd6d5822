//! The data sets that everybody uses, by their path, through the own format and back.

use std::path::Path;

use lacis_core::Threads;
use lacis_data::staged::Existing;
use lacis_data::{Job, format, open};

use crate::real;
use crate::samples::assert_same;

#[test]
fn sets_open_by_their_path_and_survive_conversion() {
    let threads = Threads::new(2).unwrap();
    let job = Job::quiet(&threads);
    for (name, [nodes, edges, pairs, loops]) in [
        ("cora", [2_708, 10_556, 5_278, 0]),
        ("citeseer", [3_327, 9_104, 4_552, 0]),
        ("pubmed", [19_717, 88_648, 44_324, 0]),
        ("karate", [34, 156, 78, 0]),
        ("ego-twitter", [81_306, 1_342_310, 1_342_296, 14]),
    ] {
        let Some(folder) = real(name) else { continue };
        let set = open(folder.to_str().unwrap(), &job).unwrap();
        let stats = set.graph().stats(&threads);
        assert_eq!([stats.n_rows, stats.nnz], [nodes, edges], "{name}");
        assert_eq!([stats.undirected_edges, stats.self_loops], [pairs, loops], "{name}");
        let copy = tempfile::tempdir().unwrap();
        for target in ["own", "a.npz", "a.mtx", "a.txt.gz"] {
            let path = copy.path().join(target);
            format::write(&set, &path, None, Existing::Keep, &job).unwrap();
            let back = open(path.to_str().unwrap(), &job).unwrap();
            assert!(back.graph().adjacency().same_entries(set.graph().adjacency()), "{target}");
            if target == "own" {
                assert_same(&set, &back);
            }
        }
    }
}

#[test]
fn the_built_in_karate_club_is_the_published_one() {
    let Some(folder) = real("karate") else { return };
    let threads = Threads::one();
    let job = Job::quiet(&threads);
    let file = open(folder.to_str().unwrap(), &job).unwrap();
    let built_in = open("karate", &job).unwrap();
    assert!(built_in.graph().adjacency().same_entries(file.graph().adjacency()));
    let Some(lacis_core::Labels::Classes { of, .. }) = built_in.labels() else { panic!("classes") };
    let clubs = std::fs::read_to_string(Path::new(&folder).join("karate_club.csv")).unwrap();
    for line in clubs.lines().skip(1) {
        let (member, club) = line.split_once(',').unwrap();
        let member: usize = member.parse().unwrap();
        assert_eq!(of[member - 1] == of[0], club == "Mr. Hi", "member {member}");
    }
}
