use lacis_core::Threads;
use tempfile::TempDir;

use super::*;
use crate::pickle::samples;

/// Six nodes: 0 trains, 1 and 2 validate, 5 and 3 are tests, 4 is a gap.
fn write_set(folder: &Path, name: &str) {
    let put = |part: &str, bytes: &[u8]| {
        std::fs::write(folder.join(format!("ind.{name}.{part}")), bytes).unwrap();
    };
    put("x", &samples::csr([1, 4], &[0, 1], &[3], &[1.0]));
    put("allx", &samples::csr([3, 4], &[0, 1, 1, 2], &[3, 0], &[1.0, 1.0]));
    put("tx", &samples::csr([2, 4], &[0, 2, 3], &[1, 2, 0], &[1.0, 1.0, 1.0]));
    put("y", &samples::one_hot(&[2], 3));
    put("ally", &samples::one_hot(&[2, 1, 0], 3));
    put("ty", &samples::one_hot(&[1, 2], 3));
    put("graph", &samples::graph(&[&[1, 5, 1, 0], &[0], &[], &[5], &[], &[3, 0]]));
    put("test.index", b"5\n3\n");
}

fn set() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    write_set(folder.path(), "tiny");
    folder
}

fn read_quiet(path: &Path) -> Result<Dataset> {
    read(path, &Job::quiet(&Threads::one()))
}

#[test]
fn a_tiny_set_is_put_together() {
    let folder = set();
    let set = read_quiet(folder.path()).unwrap();
    assert_eq!((set.name(), set.graph().n_nodes()), ("tiny", 6));
    let rows: Vec<&[u32]> = (0..6).map(|i| set.graph().adjacency().row_cols(i)).collect();
    assert_eq!(rows, [&[1, 5][..], &[0], &[], &[5], &[], &[0, 3]]);
    let Some(Features::Sparse(x)) = set.features() else { panic!("sparse features") };
    let rows: Vec<&[u32]> = (0..6).map(|i| x.row_cols(i)).collect();
    assert_eq!(rows, [&[3][..], &[], &[0], &[0], &[], &[1, 2]]);
    assert!(x.values().is_none());
    let Some(Labels::Classes { of, count: 3, .. }) = set.labels() else { panic!("three classes") };
    assert_eq!(of[..], [2, 1, 0, 2, 0, 1]);
    let split = &set.splits()[0];
    assert_eq!(
        (&split.train[..], &split.val[..], &split.test[..]),
        (&[0][..], &[1, 2][..], &[3, 5][..])
    );
    assert_eq!(split.name, "canonical");
    let notes = set.origin().notes.join("; ");
    assert!(
        notes.starts_with("1 loop was removed; 1 repeated edge was merged; 1 node is"),
        "{notes}"
    );
}

#[test]
fn a_set_is_found_by_its_folder_or_any_of_its_files() {
    let folder = set();
    let found = Some((folder.path().to_owned(), "tiny".to_owned()));
    assert_eq!(find(folder.path()), found);
    for part in PARTS {
        let file = folder.path().join(format!("ind.tiny.{part}"));
        assert_eq!(find(&file), found, "{part}");
        assert!(read_quiet(&file).is_ok());
    }
    assert_eq!(set_name("ind.nell.0.001.test.index"), Some("nell.0.001"));
    for other in ["cora.x", "ind..x", "ind.x", "ind.cora.z", "ind.cora"] {
        assert_eq!(set_name(other), None, "{other}");
    }
    assert_eq!(find(&folder.path().join("ind.none.x")), None);

    write_set(folder.path(), "other");
    let error = read_quiet(folder.path()).unwrap_err().to_string();
    assert!(error.contains("this folder holds other, tiny: name a file"), "{error}");
    assert_eq!(read_quiet(&folder.path().join("ind.tiny.graph")).unwrap().name(), "tiny");
    let empty = tempfile::tempdir().unwrap();
    let error = read_quiet(empty.path()).unwrap_err().to_string();
    assert!(error.contains("there are no Planetoid files here"), "{error}");
    assert_eq!(read_quiet(Path::new("/nowhere")).unwrap_err().kind(), "io");
}

#[test]
fn files_that_do_not_fit_are_told_of() {
    let mut shared = b"}(K\0](".to_vec();
    shared.extend(b"K\x01".repeat(20));
    shared.extend(b"eq\0");
    shared.extend(b"K\x01h\0".repeat(20));
    shared.extend(b"u.");
    for (part, bytes, told) in [
        ("test.index", b"5\n".to_vec(), "there are 1 nodes; 2 would fit"),
        ("test.index", b"5\n5\n".to_vec(), "line 2: node 5 is here for the second time"),
        ("test.index", b"5\n2\n".to_vec(), "line 2: a test node from 3 on"),
        ("test.index", b"5\n-3\n".to_vec(), "line 2: a test node"),
        ("test.index", b"5\n4294967295\n".to_vec(), "nodes are not believed of"),
        ("graph", samples::graph(&[&[6]]), "byte 56: node 6 is outside 0..6"),
        ("graph", shared, "nodes share their lists"),
        ("graph", samples::one_hot(&[0], 1), "where a dict should be"),
        ("graph", b"cos\nsystem\n(S'ls'\ntR.".to_vec(), "asks for os.system"),
        ("x", samples::csr([1, 5], &[0, 1], &[3], &[1.0]), "there are 5 columns; 4 would fit"),
        ("x", samples::csr([1, 4], &[0, 1], &[4], &[1.0]), "column 4 at position 0"),
        ("x", samples::csr([1, 4], &[0, 1], &[-1], &[1.0]), "indices: -1 at position 0"),
        ("x", samples::csr([1, 4], &[0, 1], &[3], &[f32::NAN]), "data: NaN at position 0"),
        ("x", samples::csr([2, 4], &[0, 1], &[3], &[1.0]), "indptr has 2 entries"),
        ("x", samples::graph(&[]), "an instance of CsrMatrix should be"),
        ("y", samples::one_hot(&[2, 2], 3), "there are 2 rows; 1 would fit"),
        ("y", samples::one_hot(&[1], 2), "there are 2 classes; 3 would fit"),
        ("ty", samples::csr([1, 4], &[0, 1], &[3], &[1.0]), "where a numpy array should be"),
    ] {
        let folder = set();
        std::fs::write(folder.path().join(format!("ind.tiny.{part}")), bytes).unwrap();
        let error = read_quiet(folder.path()).unwrap_err().to_string();
        assert!(error.contains(told) && error.contains(&format!("ind.tiny.{part}")), "{error}");
    }
    let folder = set();
    std::fs::remove_file(folder.path().join("ind.tiny.graph")).unwrap();
    assert_eq!(read_quiet(folder.path()).unwrap_err().kind(), "io");
}
