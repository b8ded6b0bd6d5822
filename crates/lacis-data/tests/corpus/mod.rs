//! A small sample of every format, for tests that damage it and for `examples/fuzz.rs`.

pub mod pickles;

use std::fs;
use std::io::{Cursor, Write};
use std::path::{Path, PathBuf};

use lacis_core::{Dataset, Dense, Features, Graph, Labels, Split, Threads};
use lacis_data::npy::{self, Item};
use lacis_data::staged::Existing;
use lacis_data::{Job, format};
use zip::ZipWriter;
use zip::write::SimpleFileOptions;

const EDGES: [(u32, u32); 4] = [(0, 1), (1, 2), (2, 0), (3, 1)];

pub fn plain() -> Dataset {
    Dataset::new("sample", Graph::from_edges(5, &EDGES).unwrap())
}

/// Everything that a data set of one graph can have.
pub fn full() -> Dataset {
    let split = |name: &str, train| Split { name: name.into(), train, val: vec![1], test: vec![2] };
    plain()
        .with_features(Features::Dense(Dense::from_fn(5, 3, |i, j| (i * 3 + j) as f64 / 4.0)))
        .unwrap()
        .with_labels(Labels::classes(vec![0, 1, 2, -1, 1], vec!["a".into(), "b".into()]).unwrap())
        .unwrap()
        .with_ids(["a", "b\u{e9}", "", "d", "e"].into_iter().collect())
        .unwrap()
        .with_split(split("first", vec![0, 4]))
        .unwrap()
        .with_split(split("second", vec![]))
        .unwrap()
}

pub fn write(set: &Dataset, path: &Path) {
    format::write(set, path, None, Existing::Keep, &Job::quiet(&Threads::one())).unwrap();
}

/// Text files that make a sample of a format together.
fn texts(name: &str) -> &'static [(&'static str, &'static str)] {
    match name {
        "linqs" => &[
            ("a.content", "p1\t0\t1\t0.5\tx\np2\t1\t0\t0\ty\np3\t0\t0\t0\tx\n"),
            ("a.cites", "p1\tp2\np3\tp2\np9\tp1\n"),
        ],
        "geom-gcn" => &[
            ("out1_graph_edges.txt", "node_id\tnode_id\n0\t1\n2\t1\n"),
            (
                "out1_node_feature_label.txt",
                "node_id\tfeature\tlabel\n1\t0,1,1\t0\n0\t1,0,0\t2\n2\t0,0,0\t0\n",
            ),
        ],
        "tu" => &[
            ("T_A.txt", "1, 2\n2, 1\n3, 4\n4, 3\n"),
            ("T_graph_indicator.txt", "1\n1\n2\n2\n"),
            ("T_graph_labels.txt", "-1\n1\n"),
            ("T_node_labels.txt", "0\n2\n1\n0\n"),
            ("T_node_attributes.txt", "0.5, 1\n2, 3\n4, 5\n6, 7\n"),
        ],
        "musae" => &[
            ("a_edges.csv", "id_1,id_2\n0,1\n2,1\n"),
            ("a.json", "{\"0\": [0, 2], \"1\": [], \"2\": [1]}"),
            ("a_target.csv", "id,name,target\n0,\"x, y\",1\n1,z,0\n2,,1\n"),
        ],
        "ogb" => &[
            ("raw/edge.csv", "0,1\n2,1\n"),
            ("raw/num-node-list.csv", "3\n"),
            ("raw/node-feat.csv", "0.5,1\n-2,3e-1\n0,0\n"),
            ("raw/node-label.csv", "0\n1\n0\n"),
            ("split/time/train.csv", "0\n"),
            ("split/time/valid.csv", "1\n"),
            ("split/time/test.csv", "2\n"),
        ],
        "gin" => &[("a.txt", "2\n3 1\n0 1 1\n1 2 0 2\n0 1 1\n2 0\n5 1 1\n0 1 0\n")],
        "metis" => &[("a.graph", "% c\n4 3 1\n2 5 3 1\n1 5 3 2\n1 1 2 2\n\n")],
        _ => &[],
    }
}

/// A sample of a format, and the files of it worth damaging.
pub fn sample(name: &str, folder: &Path) -> (PathBuf, Vec<PathBuf>) {
    let path = |file: &str| folder.join(file);
    let one = |file: PathBuf| (file.clone(), vec![file]);
    let put = |file: &str, bytes: Vec<u8>| {
        fs::write(path(file), bytes).unwrap();
        one(path(file))
    };
    let written = |file: &str| {
        write(&plain(), &path(file));
        one(path(file))
    };
    match name {
        "scipy" => written("a.npz"),
        "mtx" => written("a.mtx"),
        "edges" => written("a.txt"),
        "npy" => {
            let mut bytes = Vec::new();
            npy::write(&mut bytes, &[2, 3], &[0i64, 1, 2, 1, 2, 0]).unwrap();
            put("a.npy", bytes)
        }
        "gnn-benchmark" => put("a.npz", benchmark_npz()),
        "heterophilous" => put("a.npz", heterophilous_npz()),
        "mat" => put("a.mat", mat()),
        "parquet" => written("a.parquet"),
        "reddit" => (folder.to_owned(), tiny_reddit(folder)),
        "planetoid" => (folder.to_owned(), tiny_planetoid(folder)),
        "graphsaint" => (folder.to_owned(), tiny_saint(folder)),
        "lacis" => {
            write(&full(), &path("a"));
            let files = fs::read_dir(path("a")).unwrap().map(|entry| entry.unwrap().path());
            (path("a"), files.collect())
        }
        "zip" => put("a.zip", zip_of(texts("musae"))),
        "tar" => put("a.tar", tar_of(texts("linqs"))),
        _ => {
            let files = texts(name);
            assert!(!files.is_empty(), "format '{name}' has no sample: add one here");
            for (file, text) in files {
                fs::create_dir_all(path(file).parent().unwrap()).unwrap();
                fs::write(path(file), text).unwrap();
            }
            let files: Vec<PathBuf> = files.iter().map(|(file, _)| path(file)).collect();
            let entry = if files.len() == 1 { files[0].clone() } else { folder.to_owned() };
            (entry, files)
        }
    }
}

/// Other contents for the first file of a sample: what else a reader of the format must know.
pub fn variants(name: &str) -> Vec<Vec<u8>> {
    let texts: &[&str] = match name {
        "edges" => &[
            "source,weight,target\n0,1.5,1\n2,-2e-3,1\n",
            "# Nodes: 9 Edges: 2\n# FromNodeId\tToNodeId\n0\t1\r\n2\t1\r\n",
            "\u{feff}\"from\";\"to\"\n\"0\";\"3999999\"\n4;4\n",
        ],
        "mtx" => &[
            "%%MatrixMarket matrix coordinate real symmetric\n% c\n3 3 2\n2 1 0.5\n3 3 -1e3\n",
            "%%MatrixMarket matrix coordinate integer skew-symmetric\n3 3 1\n3 1 7\n",
            "%%MatrixMarket matrix coordinate pattern general\r\n2 4 2\r\n1 4\r\n2 1\r\n",
        ],
        "metis" => &["3 2 011 2\n1 2 2 5\n1 2 1 5 3 6\n1 2 2 6\n", "%\n2 1 100\n1 2\n1 1\n"],
        "gin" => &["1\n2 0\n0 1 1 0.5 2\n1 1 0 1.5 3\n"],
        "linqs" => &["1 1 0 a\n2 0 1 b\n"],
        "geom-gcn" => &["node_id\tnode_id\n0\t0\n2\t1\n2\t1\n"],
        "tables" => &[
            "src\tdst\n\"a\nb\"\tbob\n\"x\"\"y\"\tann\n",
            "from;to;w\n1;2;NA\n3;1;0.5\n",
            "u|v|rating\nann|bob|1\n",
        ],
        _ => &[],
    };
    let texts = texts.iter().map(|text| text.as_bytes().to_vec());
    let listed = || [0, 1].map(scipy_npz).to_vec();
    texts.chain(if name == "scipy" { listed() } else { Vec::new() }).collect()
}

/// A user's own tables of edges and nodes.
pub fn tables(folder: &Path) -> (PathBuf, Vec<PathBuf>) {
    let files = [folder.join("e.csv"), folder.join("n.csv")];
    fs::write(&files[0], "source,target,weight\nann,bob,1\nbob,\"c,y\",2.5\n").unwrap();
    let nodes = "id,age,colour,y,split\nann,1.5,red,a,train\nbob,,blue,,val\n\"c,y\",2,NA,b,test\n";
    fs::write(&files[1], nodes).unwrap();
    (folder.to_owned(), files.to_vec())
}

/// A weighted matrix as SciPy saves it, as a list of entries or by columns.
fn scipy_npz(at: usize) -> Vec<u8> {
    let mut zip = ZipWriter::new(Cursor::new(Vec::new()));
    zip.start_file("format.npy", SimpleFileOptions::default()).unwrap();
    npy::write_header(&mut zip, "|S3", &[]).unwrap();
    zip.write_all(["coo", "csc"][at].as_bytes()).unwrap();
    member(&mut zip, "shape", &[3i64, 3]);
    member(&mut zip, "data", &[0.5f64, 2.0, -1.0]);
    if at == 0 {
        member(&mut zip, "row", &[0i32, 2, 2]);
        member(&mut zip, "col", &[1i32, 0, 1]);
    } else {
        member(&mut zip, "indices", &[0i32, 2, 2]);
        member(&mut zip, "indptr", &[0i32, 1, 3, 3]);
    }
    zip.finish().unwrap().into_inner()
}

pub fn zip_of(files: &[(&str, &str)]) -> Vec<u8> {
    let mut zip = ZipWriter::new(Cursor::new(Vec::new()));
    for (name, text) in files {
        zip.start_file(*name, SimpleFileOptions::default()).unwrap();
        zip.write_all(text.as_bytes()).unwrap();
    }
    zip.finish().unwrap().into_inner()
}

pub fn tar_of(files: &[(&str, &str)]) -> Vec<u8> {
    let mut tar = tar::Builder::new(Vec::new());
    for (name, text) in files {
        let mut header = tar::Header::new_gnu();
        header.set_size(text.len() as u64);
        tar.append_data(&mut header, name, text.as_bytes()).unwrap();
    }
    tar.into_inner().unwrap()
}

fn member<T: Item>(zip: &mut ZipWriter<Cursor<Vec<u8>>>, name: &str, data: &[T]) {
    shaped(zip, name, &[data.len()], data);
}

fn shaped<T: Item>(zip: &mut ZipWriter<Cursor<Vec<u8>>>, name: &str, shape: &[usize], data: &[T]) {
    zip.start_file(format!("{name}.npy"), SimpleFileOptions::default()).unwrap();
    npy::write(zip, shape, data).unwrap();
}

pub fn benchmark_npz() -> Vec<u8> {
    let mut zip = ZipWriter::new(Cursor::new(Vec::new()));
    for (matrix, n_cols) in [("adj", 3i64), ("attr", 5)] {
        member(&mut zip, &format!("{matrix}_data"), &[1.0f32, 2.0]);
        member(&mut zip, &format!("{matrix}_indices"), &[1i32, 2]);
        member(&mut zip, &format!("{matrix}_indptr"), &[0i32, 2, 2, 2]);
        member(&mut zip, &format!("{matrix}_shape"), &[3, n_cols]);
    }
    member(&mut zip, "labels", &[0i64, 1, 0]);
    zip.start_file("class_names.npy", SimpleFileOptions::default()).unwrap();
    npy::write_header(&mut zip, "<U1", &[2]).unwrap();
    zip.write_all(b"a\0\0\0b\0\0\0").unwrap();
    zip.finish().unwrap().into_inner()
}
fn heterophilous_npz() -> Vec<u8> {
    let mut zip = ZipWriter::new(Cursor::new(Vec::new()));
    shaped(&mut zip, "node_features", &[3, 2], &[0.5f32, 1.0, 2.0, 0.0, 0.0, 3.0]);
    member(&mut zip, "node_labels", &[0i64, 1, 0]);
    shaped(&mut zip, "edges", &[2, 2], &[0i64, 1, 2, 1]);
    for (at, key) in ["train_masks", "val_masks", "test_masks"].into_iter().enumerate() {
        let mask: Vec<bool> = (0..6).map(|i| i % 3 == at).collect();
        shaped(&mut zip, key, &[2, 3], &mask);
    }
    zip.finish().unwrap().into_inner()
}

/// Writes Reddit's two files for three nodes.
fn tiny_reddit(folder: &Path) -> Vec<PathBuf> {
    let set = Dataset::new("a", Graph::from_edges(3, &[(0, 1), (1, 0), (1, 2)]).unwrap());
    write(&set, &folder.join("reddit_graph.npz"));
    let mut zip = ZipWriter::new(Cursor::new(Vec::new()));
    shaped(&mut zip, "feature", &[3, 2], &[0.5f32, 1.0, 2.0, 0.0, 0.0, 3.0]);
    member(&mut zip, "label", &[0i32, 1, 0]);
    member(&mut zip, "node_types", &[1i32, 3, 2]);
    fs::write(folder.join("reddit_data.npz"), zip.finish().unwrap().into_inner()).unwrap();
    ["reddit_graph.npz", "reddit_data.npz"].map(|name| folder.join(name)).to_vec()
}

/// Writes a GraphSAINT folder of three nodes; returns its files.
fn tiny_saint(folder: &Path) -> Vec<PathBuf> {
    let set = Dataset::new("a", Graph::from_edges(3, &[(0, 1), (1, 0), (1, 2)]).unwrap());
    write(&set, &folder.join("adj_full.npz"));
    let mut feats = Vec::new();
    npy::write(&mut feats, &[3, 2], &[0.5f64, 1.0, 2.0, 3.0, 4.0, 5.0]).unwrap();
    fs::write(folder.join("feats.npy"), feats).unwrap();
    let classes = r#"{"0": [1, 0], "1": [0, 0], "2": [1, 1]}"#;
    fs::write(folder.join("class_map.json"), classes).unwrap();
    fs::write(folder.join("role.json"), r#"{"tr": [0], "va": [1], "te": [2]}"#).unwrap();
    let names = ["adj_full.npz", "feats.npy", "class_map.json", "role.json"];
    names.iter().map(|name| folder.join(name)).collect()
}

/// A MATLAB 5 file: a sparse `network`, a packed dense `gnd`, a structure with a matrix.
pub fn mat() -> Vec<u8> {
    fn element(kind: u32, data: &[u8]) -> Vec<u8> {
        let mut out = [kind.to_le_bytes(), (data.len() as u32).to_le_bytes()].concat();
        out.extend(data);
        out.resize(out.len().next_multiple_of(8), 0);
        out
    }
    let words = |words: &[i32]| words.iter().flat_map(|w| w.to_le_bytes()).collect::<Vec<u8>>();
    let doubles = |xs: &[f64]| xs.iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<u8>>();
    let matrix = |class: i32, shape: [i32; 2], name: &str, rest: Vec<u8>| {
        let head = [
            element(6, &words(&[class, 3])),
            element(5, &words(&shape)),
            element(1, name.as_bytes()),
        ];
        element(14, &[head.concat(), rest].concat())
    };
    let network = [
        element(5, &words(&[1, 0, 2, 1])),
        element(5, &words(&[0, 1, 3, 4])),
        element(9, &doubles(&[1.0, 1.0, 1.0, 2.0])),
    ];
    let classes = matrix(6, [3, 1], "gnd", element(2, &[1, 2, 1]));
    let mut packed = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::fast());
    packed.write_all(&classes).unwrap();
    let packed = packed.finish().unwrap();
    let field = matrix(6, [1, 1], "", element(9, &doubles(&[7.0])));
    let fields = [element(5, &words(&[8])), element(1, b"x\0\0\0\0\0\0\0"), field];
    let mut out = b"MATLAB 5.0 MAT-file, made by hand".to_vec();
    out.resize(124, b' ');
    out.extend(b"\x00\x01IM");
    out.extend(matrix(5, [3, 3], "network", network.concat()));
    out.extend([15u32.to_le_bytes(), (packed.len() as u32).to_le_bytes()].concat());
    out.extend(packed);
    out.extend(matrix(2, [1, 1], "s", fields.concat()));
    out
}

/// Writes a Planetoid set of four nodes; returns its files.
pub fn tiny_planetoid(folder: &Path) -> Vec<PathBuf> {
    let parts = [
        ("x", pickles::csr([1, 4], &[0, 1], &[3], &[1.0])),
        ("allx", pickles::csr([2, 4], &[0, 1, 1], &[3], &[1.0])),
        ("tx", pickles::csr([1, 4], &[0, 2], &[1, 2], &[1.0, 0.5])),
        ("y", pickles::one_hot(&[1], 2)),
        ("ally", pickles::one_hot(&[1, 0], 2)),
        ("ty", pickles::one_hot(&[1], 2)),
        ("graph", pickles::graph(&[&[1, 3], &[0], &[], &[0]])),
        ("test.index", b"3\n".to_vec()),
    ];
    let write = |(part, bytes): (&str, Vec<u8>)| {
        let path = folder.join(format!("ind.tiny.{part}"));
        fs::write(&path, bytes).unwrap();
        path
    };
    parts.into_iter().map(write).collect()
}
