use std::io::{Cursor, Write};

use lacis_core::{Dataset, Features, Graph, Labels, Threads};
use zip::CompressionMethod;
use zip::ZipWriter;
use zip::write::SimpleFileOptions;

use super::*;
use crate::npy::{self, Item};
use std::fs::File;

/// An archive in the making.
struct Zip(ZipWriter<Cursor<Vec<u8>>>, CompressionMethod);

impl Zip {
    fn new(method: CompressionMethod) -> Self {
        Zip(ZipWriter::new(Cursor::new(Vec::new())), method)
    }

    fn raw(mut self, name: &str, bytes: &[u8]) -> Self {
        let options = SimpleFileOptions::default().compression_method(self.1);
        self.0.start_file(format!("{name}.npy"), options).unwrap();
        self.0.write_all(bytes).unwrap();
        self
    }

    fn array<T: Item>(self, name: &str, shape: &[usize], data: &[T]) -> Self {
        let mut bytes = Vec::new();
        npy::write(&mut bytes, shape, data).unwrap();
        self.raw(name, &bytes)
    }

    fn strings(self, name: &str, descr: &str, shape: &[usize], data: &[u8]) -> Self {
        let mut bytes = Vec::new();
        npy::write_header(&mut bytes, descr, shape).unwrap();
        bytes.extend(data);
        self.raw(name, &bytes)
    }

    fn finish(self) -> Vec<u8> {
        self.0.finish().unwrap().into_inner()
    }
}

type Reader = fn(&Path, &Job) -> Result<Dataset>;

fn read(reader: Reader, bytes: &[u8]) -> Result<Dataset> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.npz");
    std::fs::write(&path, bytes).unwrap();
    reader(&path, &Job::quiet(&Threads::one()))
}

/// Edges 0 → 1 and 0 → 2 and 1 → 0, in a 2 × 3 matrix.
fn csr(method: CompressionMethod, data: &[f64]) -> Zip {
    Zip::new(method)
        .array("indices", &[3], &[1i32, 2, 0])
        .array("indptr", &[3], &[0i32, 2, 3])
        .strings("format", "|S3", &[], b"csr")
        .array("shape", &[2], &[2i64, 3])
        .array("data", &[3], data)
}

/// A few hundred bytes that declare four thousand million rows must not get them.
#[test]
fn declared_extents_are_not_believed() {
    for format in [b"csc", b"coo"] {
        for shape in [[4_294_967_295i64, 3], [3, 4_294_967_295]] {
            let zip = Zip::new(CompressionMethod::Stored)
                .array("indices", &[1], &[1i32])
                .array("indptr", &[4], &[0i32, 1, 1, 1])
                .array("row", &[1], &[1i32])
                .array("col", &[1], &[1i32])
                .strings("format", "|S3", &[], format)
                .array("shape", &[2], &shape)
                .array("data", &[1], &[1f32]);
            assert!(read(read_scipy, &zip.finish()).is_err(), "{shape:?}");
        }
    }
}

#[test]
fn a_scipy_matrix_is_read_with_its_direction() {
    for method in [CompressionMethod::Stored, CompressionMethod::Deflated] {
        let set = read(read_scipy, &csr(method, &[1.0; 3]).finish()).unwrap();
        let adjacency = set.graph().adjacency();
        assert_eq!((adjacency.n_rows(), adjacency.n_cols()), (3, 2));
        assert_eq!([0, 1, 2].map(|i| adjacency.row_cols(i)), [&[1], &[0], &[0]]);
        assert!(adjacency.values().is_none());
        assert_eq!((set.name(), &set.origin().format[..]), ("a", "scipy-npz"));
    }
    let weighted = csr(CompressionMethod::Stored, &[0.5, 0.0, 1.0]).finish();
    let set = read(read_scipy, &weighted).unwrap();
    assert_eq!(set.graph().adjacency().values(), Some(&[1.0, 0.5, 0.0][..]));
}

#[test]
fn columns_and_coordinates_are_read_too() {
    let csc = Zip::new(CompressionMethod::Stored)
        .array("indices", &[3], &[1i64, 0, 0])
        .array("indptr", &[4], &[0i64, 1, 2, 3])
        .strings("format", "<U3", &[], b"c\0\0\0s\0\0\0c\0\0\0")
        .array("shape", &[2], &[2i64, 3])
        .array("data", &[3], &[true; 3]);
    let coo = Zip::new(CompressionMethod::Stored)
        .array("row", &[5], &[0i32, 1, 0, 0, 0])
        .array("col", &[5], &[2i32, 0, 1, 2, 2])
        .strings("format", "|S3", &[], b"coo")
        .array("shape", &[2], &[2i64, 3])
        .array("data", &[5], &[1i64; 5]);
    for (zip, notes) in [(csc, &[][..]), (coo, &["2 repeated edges were merged"])] {
        let set = read(read_scipy, &zip.finish()).unwrap();
        let adjacency = set.graph().adjacency();
        assert_eq!([0, 1, 2].map(|i| adjacency.row_cols(i)), [&[1], &[0], &[0]]);
        assert_eq!((adjacency.n_cols(), adjacency.values()), (2, None));
        assert_eq!(set.origin().notes, notes);
    }
}

#[test]
fn repeated_weights_are_summed() {
    let repeated = |data: &[f32]| {
        Zip::new(CompressionMethod::Stored)
            .array("indices", &[3], &[1i32, 0, 1])
            .array("indptr", &[3], &[0i32, 3, 3])
            .strings("format", "|S3", &[], b"csr")
            .array("shape", &[2], &[2i64, 2])
            .array("data", &[3], data)
            .finish()
    };
    let set = read(read_scipy, &repeated(&[0.5, 2.0, 0.25])).unwrap();
    assert_eq!(set.graph().adjacency().values(), Some(&[2.0, 0.75][..]));
    assert_eq!(set.origin().notes, ["1 repeated edge was summed"]);
    let error = read(read_scipy, &repeated(&[3e38, 1.0, 3e38])).unwrap_err();
    assert!(error.to_string().contains("inf at position 1"), "{error}");
}

#[test]
fn what_is_no_graph_is_refused() {
    let stored = CompressionMethod::Stored;
    let nan = csr(stored, &[1.0, f64::NAN, 1.0]).finish();
    let with_format = |format: &[u8]| {
        Zip::new(stored)
            .strings("format", "|S3", &[], format)
            .array("shape", &[2], &[2i64, 3])
            .array("data", &[3], &[1.0f32; 3])
    };
    let compressed = |indices: &[i32], indptr: &[i32]| {
        with_format(b"csr")
            .array("indices", &[indices.len()], indices)
            .array("indptr", &[indptr.len()], indptr)
            .finish()
    };
    let listed = |rows: &[i32], cols: &[i32]| {
        with_format(b"coo")
            .array("row", &[rows.len()], rows)
            .array("col", &[cols.len()], cols)
            .finish()
    };
    let wide = Zip::new(stored)
        .strings("format", "|S3", &[], b"coo")
        .array("shape", &[2], &[4_000_000_000i64, 4_000_000_000])
        .array("data", &[1], &[1.0f32])
        .array("row", &[1], &[0i32])
        .array("col", &[1], &[0i32]);
    for (bytes, part) in [
        (nan, "data: NaN at position 1"),
        (with_format(b"bsr").finish(), "format: a matrix of format 'bsr' is not read"),
        (with_format(b"dia").finish(), "csr, csc and coo are"),
        (with_format(b"csr").finish(), "there is no array 'indices'"),
        (compressed(&[1, 2, -1], &[0, 2, 3]), "indices: -1 at position 2"),
        (compressed(&[1, 2, 3], &[0, 2, 3]), "column 3 at position 2 is outside 0..3"),
        (compressed(&[1, 2], &[0, 2, 2]), "there are 2 items; 3 as in"),
        (compressed(&[1, 2, 0], &[0, 2]), "indptr has 2 entries, but the shape asks for 3"),
        (compressed(&[1, 2, 0], &[0, 4, 3]), "row pointer"),
        (wide.finish(), "nodes are not believed of"),
        (listed(&[0, 1], &[0, 3, 1]), "row: there are 2 items; 3 as in data"),
        (listed(&[0, 1, 0], &[0, 1]), "col: the array has shape (2,); (3,) would fit"),
        (listed(&[0, 1, 0], &[0, 3, 1]), "col: index 3 is outside 0..3"),
        (listed(&[2, 1, 0], &[0, 2, 1]), "row: index 2 is outside 0..2"),
        (listed(&[0, 1, 0], &[0, -7, 1]), "col: -7 at position 1"),
        (b"PK\x03\x04 and no more".to_vec(), "the zip archive cannot be read"),
        (Vec::new(), "the zip archive cannot be read"),
    ] {
        let error = read(read_scipy, &bytes).unwrap_err().to_string();
        assert!(error.contains(part), "{error}");
        assert!(!error.contains('\n'), "{error}");
    }
}

#[test]
fn lying_sizes_of_an_archive_are_noticed() {
    let honest = csr(CompressionMethod::Deflated, &[1.0; 3]).finish();
    // In the central directory the uncompressed size stands 24 bytes after the signature.
    let entries: Vec<usize> = honest
        .windows(4)
        .enumerate()
        .filter(|(_, w)| *w == b"PK\x01\x02")
        .map(|(at, _)| at)
        .collect();
    assert_eq!(entries.len(), 5);
    for entry in entries {
        for size in [0u32, 5, 1 << 30, u32::MAX - 1] {
            let mut lying = honest.clone();
            lying[entry + 24..entry + 28].copy_from_slice(&size.to_le_bytes());
            // Whether told or not, memory follows the data.
            let _ = read(read_scipy, &lying);
        }
        let mut damaged = honest.clone();
        damaged[entry + 16] ^= 1;
        let error = read(read_scipy, &damaged).unwrap_err().to_string();
        assert!(error.contains("damaged"), "{error}");
    }
}

#[test]
fn a_directory_that_claims_to_be_endless_is_refused() {
    for record_size in [44u64, 0, u64::MAX] {
        assert!(read(read_scipy, &endless_directory(record_size)).is_err());
    }
}

fn endless_directory(record_size: u64) -> Vec<u8> {
    let mut bytes = b"PK\x06\x06".to_vec();
    bytes.extend(record_size.to_le_bytes());
    bytes.extend([45, 0, 45, 0]);
    bytes.extend([0; 8]);
    let count = 1u64 << 40;
    for field in [count, count, 1 << 50, 1 << 45] {
        bytes.extend(field.to_le_bytes());
    }
    bytes.extend(b"PK\x06\x07\0\0\0\0");
    bytes.extend(0u64.to_le_bytes());
    bytes.extend(1u32.to_le_bytes());
    bytes.extend(b"PK\x05\x06\0\0\0\0");
    bytes.extend([0xff; 12]);
    bytes.extend([0, 0]);
    bytes
}

fn benchmark(adj: &str, attr: &str) -> Zip {
    Zip::new(CompressionMethod::Stored)
        .array(&format!("{adj}data"), &[2], &[1.0f32, 1.0])
        .array(&format!("{adj}indices"), &[2], &[1i32, 2])
        .array(&format!("{adj}indptr"), &[4], &[0i32, 2, 2, 2])
        .array(&format!("{adj}shape"), &[2], &[3i64, 3])
        .array(&format!("{attr}data"), &[3], &[1.0f32, 1.0, 1.0])
        .array(&format!("{attr}indices"), &[3], &[4i32, 0, 4])
        .array(&format!("{attr}indptr"), &[4], &[0i32, 1, 1, 3])
        .array(&format!("{attr}shape"), &[2], &[3i64, 5])
        .array("labels", &[3], &[1i64, 0, -1])
}

#[test]
fn gnn_benchmark_graphs_are_read_under_both_kinds_of_names() {
    for (adj, attr) in [("adj_", "attr_"), ("adj_matrix.", "attr_matrix.")] {
        let names = b"a\0\0\0b\0\0\0";
        let zip = benchmark(adj, attr).strings("class_names", "<U1", &[2], names);
        let set = read(read_gnn_benchmark, &zip.finish()).unwrap();
        assert_eq!(set.graph().adjacency().row_cols(2), [0]);
        let Some(Features::Sparse(x)) = set.features() else { panic!("sparse features") };
        assert_eq!((x.n_cols(), x.row_cols(2), x.values()), (5, &[0, 4][..], None));
        let Some(Labels::Classes { of, count, names }) = set.labels() else { panic!("classes") };
        assert_eq!(
            (&of[..], *count, &names[..]),
            (&[1, 0, -1][..], 2, &["a".into(), "b".into()][..])
        );
        assert!(set.origin().notes.is_empty());
    }
}

#[test]
fn objects_are_passed_over_and_dense_attributes_read() {
    let object = |zip: Zip| zip.strings("class_names", "|O", &[2], b"cos\nsystem\n.");
    let set = read(read_gnn_benchmark, &object(benchmark("adj_", "attr_")).finish()).unwrap();
    assert_eq!(set.origin().notes.len(), 1);
    assert!(set.origin().notes[0].contains("passed over"));

    let repeated = benchmark("adj_", "unused_")
        .array("attr_data", &[3], &[1.0f32; 3])
        .array("attr_indices", &[3], &[4i32, 0, 4])
        .array("attr_indptr", &[4], &[0i32, 3, 3, 3])
        .array("attr_shape", &[2], &[3i64, 5]);
    let set = read(read_gnn_benchmark, &repeated.finish()).unwrap();
    assert!(matches!(set.features(), Some(Features::Sparse(x)) if x.values() == Some(&[1.0, 2.0])));

    let dense = benchmark("adj_", "unused_").array("attr_matrix", &[3, 2], &[0.5f64; 6]);
    let set = read(read_gnn_benchmark, &dense.finish()).unwrap();
    assert!(matches!(set.features(), Some(Features::Dense(x)) if x.at(2, 1) == 0.5));
}

#[test]
fn parts_that_do_not_fit_are_told_of() {
    let base = || {
        Zip::new(CompressionMethod::Stored)
            .array("adj_data", &[0], &[0f32; 0])
            .array("adj_indices", &[0], &[0i32; 0])
            .array("adj_indptr", &[3], &[0i32; 3])
            .array("adj_shape", &[2], &[2i64, 2])
    };
    let infinite = [0.0f32, 1.0, f32::INFINITY, 0.0];
    let wide = |prefix: &str| {
        base()
            .array(&format!("{prefix}data"), &[0], &[0f32; 0])
            .array(&format!("{prefix}indices"), &[0], &[0i32; 0])
            .array(&format!("{prefix}indptr"), &[3], &[0i32; 3])
            .array(&format!("{prefix}shape"), &[2], &[2i64, 4_000_000_000])
    };
    for (zip, part) in [
        (wide("attr_"), "attr_shape: 4000000000 columns are not believed"),
        (wide("labels."), "labels.shape: 4000000000 columns are not believed"),
        (base().array("labels", &[3], &[0i64; 3]), "labels: data set: rows of the labels is 3"),
        (base().array("labels", &[2], &[0i64, -2]), "class -2 at position 1 is outside -1..1"),
        (base().array("labels", &[2], &[0i64, i64::MAX]), "9223372036854775807 at position 1"),
        (base().array("labels", &[2], &[0i32, i32::MAX]), "2147483647 classes are not believed"),
        (base().array("labels", &[2], &[0.5f32, 1.0]), "the items are f4"),
        (base().array("labels", &[1, 2], &[0i64; 2]), "the array has 2 axes"),
        (base().array("attr_matrix", &[2, 2], &infinite), "attr_matrix: inf at position 2"),
        (base().array("attr_matrix", &[1, 4], &[0f32; 4]), "rows of the features is 1, expected 2"),
        (base().array("attr_matrix", &[4], &[0f32; 4]), "the array has 1 axes; two"),
        (base().strings("attr_matrix", "|O", &[2, 2], b"x"), "a pickle, which is not read"),
    ] {
        let error = read(read_gnn_benchmark, &zip.finish()).unwrap_err().to_string();
        assert!(error.contains(part), "{error}");
    }
    let other = Zip::new(CompressionMethod::Stored).array("x", &[1], &[0i32]).finish();
    let error = read(read_gnn_benchmark, &other).unwrap_err().to_string();
    assert!(error.contains("there is no adjacency"), "{error}");
}

#[test]
fn kinds_are_told_by_their_names() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.npz");
    std::fs::write(&path, benchmark("adj_matrix.", "attr_").finish()).unwrap();
    let names = member_names(&path).unwrap();
    assert!(names.contains(&"adj_matrix.data".to_owned()), "{names:?}");
    assert!(is_gnn_benchmark(&names) && !is_scipy(&names));
    std::fs::write(&path, csr(CompressionMethod::Stored, &[1.0; 3]).finish()).unwrap();
    let names = member_names(&path).unwrap();
    assert!(is_scipy(&names) && !is_gnn_benchmark(&names));
}

#[test]
fn what_is_written_is_read_back() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.npz");
    let threads = Threads::one();
    let job = Job::quiet(&threads);
    let graph = Graph::from_edges(4, &[(0, 1), (2, 1), (3, 0)]).unwrap();
    let plain = graph.adjacency().as_ref().clone().without_order();
    let weighted = plain.clone().with_values(Some(vec![0.5, 2.0, 0.0].into())).unwrap();
    for adjacency in [plain, weighted] {
        let set = Dataset::new("a", Graph::new(adjacency));
        write_scipy(&set, File::create(&path).unwrap(), &path, &job).unwrap();
        let back = read_scipy(&path, &job).unwrap();
        assert!(back.graph().adjacency().same_entries(set.graph().adjacency()));
    }
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
}
