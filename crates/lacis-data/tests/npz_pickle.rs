//! Arrays, archives and pickles: damage of every kind, round trips, and the real data sets.

use std::fs;
use std::io::{Cursor, Write};
use std::path::{Path, PathBuf};

use crate::corpus::{benchmark_npz, tiny_planetoid};
use crate::{damage, quiet, real};
use lacis_core::{Coo, Dataset, Extent, Features, Graph, Labels, Repeats, Threads};
use lacis_data::{Job, npy, npz, planetoid};
use proptest::prelude::*;
use tempfile::TempDir;
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipArchive, ZipWriter};

fn write_scipy(set: &Dataset, path: &Path, job: &Job) {
    npz::write_scipy(set, fs::File::create(path).unwrap(), path, job).unwrap();
}

#[test]
fn a_damaged_npy_is_an_error_or_another_graph() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.npy");
    let mut bytes = Vec::new();
    npy::write(&mut bytes, &[2, 3], &[0i32, 1, 2, 1, 2, 0]).unwrap();
    fs::write(&path, bytes).unwrap();
    damage(npy::read, &path, &path);
}

#[test]
fn a_damaged_scipy_archive_is_an_error_or_another_graph() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.npz");
    let set = Dataset::new("a", Graph::from_edges(3, &[(0, 1), (1, 2)]).unwrap());
    write_scipy(&set, &path, &Job::quiet(&Threads::one()));
    damage(npz::read_scipy, &path, &path);
}

#[test]
fn a_damaged_benchmark_archive_is_an_error_or_another_graph() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.npz");
    fs::write(&path, benchmark_npz()).unwrap();
    damage(npz::read_gnn_benchmark, &path, &path);
}

/// An archive with one member changed, its checksum right.
fn with_member_changed(archive: &[u8], at: usize, change: impl Fn(&mut Vec<u8>)) -> Vec<u8> {
    let mut from = ZipArchive::new(Cursor::new(archive)).unwrap();
    let mut to = ZipWriter::new(Cursor::new(Vec::new()));
    for member_at in 0..from.len() {
        let mut member = from.by_index(member_at).unwrap();
        let name = member.name().unwrap().into_owned();
        let options = SimpleFileOptions::default().compression_method(CompressionMethod::Stored);
        let mut bytes = Vec::new();
        std::io::copy(&mut member, &mut bytes).unwrap();
        if member_at == at {
            change(&mut bytes);
        }
        to.start_file(name, options).unwrap();
        to.write_all(&bytes).unwrap();
    }
    to.finish().unwrap().into_inner()
}

#[test]
fn damage_that_checksums_do_not_show_is_an_error_or_another_graph() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.npz");
    let archive = benchmark_npz();
    let mut answers = [0, 0];
    for member in 0..10 {
        // From the last digits of the shape on: the padding of the header is as good as another.
        for place in (50..72).chain(128..152) {
            for change in [0x01, 0x80, 0xff] {
                let damaged = with_member_changed(&archive, member, |bytes| {
                    bytes.iter_mut().skip(place).take(1).for_each(|byte| *byte ^= change);
                });
                fs::write(&path, damaged).unwrap();
                answers[usize::from(quiet(npz::read_gnn_benchmark, &path).is_ok())] += 1;
            }
        }
    }
    assert!(answers.iter().all(|count| *count > 0), "{answers:?}");
}

#[test]
fn a_damaged_planetoid_file_is_an_error_or_another_graph() {
    let folder = tempfile::tempdir().unwrap();
    for file in tiny_planetoid(folder.path()) {
        // Those have the same form as others.
        if !matches!(file.extension().and_then(|e| e.to_str()), Some("x" | "allx" | "ally" | "ty"))
        {
            damage(planetoid::read, folder.path(), &file);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn random_graphs_come_back_from_scipy_archives(
        edges in prop::collection::vec((0u32..20, 0u32..20, 1u8..5), 0..80)
    ) {
        let threads = Threads::new(2).unwrap();
        let job = Job::quiet(&threads);
        let targets: Vec<u32> = edges.iter().map(|edge| edge.1).collect();
        let sources: Vec<u32> = edges.iter().map(|edge| edge.0).collect();
        let values: Vec<f32> = edges.iter().map(|edge| f32::from(edge.2) / 2.0).collect();
        let extent = Extent { n_rows: Some(20), n_cols: Some(20) };
        let coo = Coo::from_slices(&targets, &sources, Some(&values), &threads).unwrap();
        let csr = coo.into_csr(extent, Repeats::Sum, &threads).unwrap();
        let set = Dataset::new("a", Graph::new(csr));
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.npz");
        write_scipy(&set, &path, &job);
        let back = npz::read_scipy(&path, &job).unwrap();
        prop_assert!(back.graph().adjacency().same_entries(set.graph().adjacency()));
    }

    #[test]
    fn random_bytes_are_no_pickle_and_no_danger(
        bytes in prop::collection::vec(prop_oneof![
            any::<u8>(),
            prop::sample::select(b"(.012}])tlduesabRqhK\x85\x86\x81N".to_vec()),
        ], 0..200)
    ) {
        let _ = lacis_data::pickle::load(Path::new("a"), &bytes);
    }
}

fn sparse(set: &Dataset) -> &lacis_core::Csr {
    match set.features() {
        Some(Features::Sparse(x)) => x,
        other => panic!("sparse features, not {other:?}"),
    }
}

/// How many nodes each class has.
fn class_sizes(set: &Dataset) -> Vec<usize> {
    let Some(Labels::Classes { of, count, .. }) = set.labels() else { panic!("classes") };
    (0..*count as i32).map(|class| of.iter().filter(|c| **c == class).count()).collect()
}

#[test]
fn planetoid_sets_have_their_published_counts() {
    for (name, [nodes, edges, width, n_train, gaps], sizes) in [
        ("cora", [2708, 10556, 1433, 140, 0], &[351, 217, 418, 818, 426, 298, 180][..]),
        ("citeseer", [3327, 9104, 3703, 120, 15], &[]),
        ("pubmed", [19717, 88648, 500, 60, 0], &[4103, 7739, 7875]),
    ] {
        let Some(folder) = real(name) else { continue };
        let set = quiet(planetoid::read, &folder).unwrap();
        assert_eq!(set.name(), name);
        assert_eq!((set.graph().n_nodes(), set.graph().n_edges()), (nodes, edges), "{name}");
        assert!(set.graph().is_symmetric(&Threads::one()));
        assert_eq!(set.graph().adjacency().count_self_loops(), 0);
        let x = sparse(&set);
        assert_eq!((x.n_rows(), x.n_cols()), (nodes, width));
        assert_eq!(x.values().is_some(), name == "pubmed");
        let found = class_sizes(&set);
        assert!(sizes.is_empty() || found == sizes, "{found:?}");
        let split = &set.splits()[0];
        assert_eq!([split.train.len(), split.val.len(), split.test.len()], [n_train, 500, 1000]);
        assert!(split.test.is_sorted());
        let notes = set.origin().notes.join("; ");
        assert_eq!(
            notes.contains(&format!("{gaps} nodes are not in test.index")),
            gaps > 0,
            "{notes}"
        );
    }
}

/// Unpacks the one file of a zip archive.
fn unpacked(folder: &Path, name: &str) -> (TempDir, PathBuf) {
    let file = fs::File::open(folder.join(format!("{name}.zip"))).unwrap();
    let mut archive = ZipArchive::new(file).unwrap();
    let mut member = archive.by_index(0).unwrap();
    let unpacked = tempfile::tempdir().unwrap();
    let path = unpacked.path().join("set.npz");
    std::io::copy(&mut member, &mut fs::File::create(&path).unwrap()).unwrap();
    (unpacked, path)
}

#[test]
fn benchmark_sets_have_their_published_counts() {
    for (name, [nodes, entries, width, nnz, classes]) in [
        ("amazon-photo", [7650, 143_663, 745, 1_979_909, 8]),
        ("amazon-computers", [13_752, 287_209, 767, 3_675_081, 10]),
        ("coauthor-cs", [18_333, 163_788, 6805, 1_092_079, 15]),
        ("coauthor-physics", [34_493, 495_924, 8415, 1_137_311, 5]),
    ] {
        let Some(folder) = real(name) else { continue };
        let (_folder, path) = unpacked(&folder, name);
        assert!(npz::is_gnn_benchmark(&npz::member_names(&path).unwrap()));
        let set = quiet(npz::read_gnn_benchmark, &path).unwrap();
        assert_eq!((set.graph().n_nodes(), set.graph().n_edges()), (nodes, entries), "{name}");
        let x = sparse(&set);
        assert_eq!((x.n_rows(), x.n_cols(), x.nnz()), (nodes, width, nnz), "{name}");
        let sizes = class_sizes(&set);
        assert_eq!((sizes.len(), sizes.iter().sum()), (classes, nodes), "{name}");
        let amazon = name.starts_with("amazon");
        assert_eq!(x.values().is_none(), amazon, "{name}");
        assert_eq!(set.graph().is_symmetric(&Threads::one()), !amazon);
        let Some(Labels::Classes { names, .. }) = set.labels() else { panic!("classes") };
        assert_eq!(names.len(), if amazon { classes } else { 0 });
        assert_eq!(set.origin().notes.len(), usize::from(!amazon), "{:?}", set.origin().notes);
    }
}

#[test]
fn deflated_members_are_read() {
    let Some(folder) = real("tolokers") else {
        return;
    };
    let path = folder.join("tolokers.npz");
    let threads = Threads::one();
    let job = Job::quiet(&threads);
    let mut archive = npz::Npz::open(&path, &job).unwrap();
    let edges = archive.numbers::<u32>("edges").unwrap();
    assert_eq!(edges.shape, [519_000, 2]);
    let x = archive.with("node_features", |npy| npy.finite()).unwrap();
    assert_eq!(x.shape, [11_758, 10]);
    let (shape, masks) = archive.with("train_masks", |npy| npy.bools()).unwrap();
    assert_eq!(shape, [10, 11_758]);
    assert_eq!(masks.iter().filter(|mask| **mask).count(), 10 * 5_879);
}

#[test]
fn stored_and_deflated_archives_read_alike() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.npz");
    let mut found = Vec::new();
    for method in [CompressionMethod::Stored, CompressionMethod::Deflated] {
        let mut from = ZipArchive::new(Cursor::new(benchmark_npz())).unwrap();
        let mut to = ZipWriter::new(Cursor::new(Vec::new()));
        for at in 0..from.len() {
            let mut member = from.by_index(at).unwrap();
            let options = SimpleFileOptions::default().compression_method(method);
            let name = member.name().unwrap().into_owned();
            to.start_file(name, options).unwrap();
            std::io::copy(&mut member, &mut to).unwrap();
        }
        fs::write(&path, to.finish().unwrap().into_inner()).unwrap();
        found.push(quiet(npz::read_gnn_benchmark, &path).unwrap());
    }
    assert!(found[0].graph().adjacency().same_entries(found[1].graph().adjacency()));
    assert!(sparse(&found[0]).same_entries(sparse(&found[1])));
}
