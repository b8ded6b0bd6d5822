//! Files that mean harm: each is refused soon, in one line, and nothing is written outside.

use std::fs;
use std::io::{Cursor, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use lacis_core::{Error, Threads};
use lacis_data::{Job, format};
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipWriter};

use crate::corpus::{mat, tar_of, zip_of};

/// What is said of a file that must be refused within a second.
fn refusal(path: &Path) -> String {
    let begun = Instant::now();
    let threads = Threads::new(2).unwrap();
    let error = format::read(path, None, &Job::quiet(&threads)).unwrap_err();
    assert!(begun.elapsed() < Duration::from_secs(1), "{:?}: {error}", begun.elapsed());
    assert!(matches!(error, Error::File { .. } | Error::Io { .. }), "{error:?}");
    let text = error.to_string();
    assert!(text.len() < 400 && !text.contains('\n'), "{text}");
    assert!(text.contains(path.file_name().unwrap().to_str().unwrap()), "{text}");
    text
}

fn put(folder: &Path, name: &str, bytes: &[u8]) -> PathBuf {
    let path = folder.join(name);
    fs::write(&path, bytes).unwrap();
    path
}

/// `count` times the same bytes, packed.
fn packed(text: &[u8], count: usize) -> Vec<u8> {
    let mut out = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    let many = text.repeat((1 << 20) / text.len());
    for _ in 0..count * text.len() / many.len() + 1 {
        out.write_all(&many).unwrap();
    }
    out.finish().unwrap()
}

fn deflated(name: &str, byte: u8, size: usize) -> Vec<u8> {
    let mut zip = ZipWriter::new(Cursor::new(Vec::new()));
    let options = SimpleFileOptions::default().compression_method(CompressionMethod::Deflated);
    zip.start_file(name, options).unwrap();
    let block = vec![byte; 1 << 20];
    (0..size >> 20).for_each(|_| zip.write_all(&block).unwrap());
    zip.finish().unwrap().into_inner()
}

#[test]
fn bombs_are_not_set_off() {
    let dir = tempfile::tempdir().unwrap();
    let zip = put(dir.path(), "bomb.zip", &deflated("edges.txt", b'0', 200 << 20));
    assert!(refusal(&zip).contains("not believed"));
    let gz = put(dir.path(), "bomb.txt.gz", &packed(b"0 1\n", 50 << 20));
    assert!(refusal(&gz).contains("times its size"));
    let mut tar = tar::Header::new_gnu();
    tar.set_path("edges.txt").unwrap();
    tar.set_size(1 << 40);
    tar.set_cksum();
    let bomb = [tar.as_bytes().to_vec(), vec![0; 1 << 16]].concat();
    let mut gz = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gz.write_all(&bomb).unwrap();
    let tar = put(dir.path(), "bomb.tar.gz", &gz.finish().unwrap());
    assert!(refusal(&tar).contains("times its size"));
    let mut npz = ZipWriter::new(Cursor::new(Vec::new()));
    for key in ["format", "shape", "data"] {
        npz.start_file(format!("{key}.npy"), SimpleFileOptions::default()).unwrap();
        lacis_data::npy::write_header(&mut npz, "<f4", &[100 << 20]).unwrap();
        let zeros = vec![0; 1 << 20];
        (0..100).for_each(|_| npz.write_all(&zeros).unwrap());
    }
    let npz = put(dir.path(), "bomb.npz", &npz.finish().unwrap().into_inner());
    assert!(refusal(&npz).contains("not believed"));
}

#[test]
fn declared_sizes_of_archives_are_checked() {
    let dir = tempfile::tempdir().unwrap();
    // The size in the local and in the central header, made smaller and larger.
    let honest = deflated("edges.txt", b'1', 1 << 20);
    let size = (1u32 << 20).to_le_bytes();
    for (name, lie) in [("less.zip", 100u32), ("more.zip", 1 << 30), ("most.zip", u32::MAX)] {
        let mut bytes = honest.clone();
        for at in 0..bytes.len() - 4 {
            if bytes[at..at + 4] == size {
                bytes[at..at + 4].copy_from_slice(&lie.to_le_bytes());
            }
        }
        refusal(&put(dir.path(), name, &bytes));
    }
    let mut tar = tar_of(&[("edges.txt", "0 1\n")]);
    tar.truncate(512 + 2);
    refusal(&put(dir.path(), "short.tar", &tar));
}

#[test]
fn names_that_lead_out_of_an_archive_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    for (at, name) in
        ["../evil.txt", "a/../../evil.txt", "/tmp/evil.txt", "..\\evil.txt"].into_iter().enumerate()
    {
        let zip = put(dir.path(), &format!("{at}.zip"), &zip_of(&[(name, "0 1\n")]));
        assert!(refusal(&zip).contains("leads out of the archive"));
        // The tar crate refuses to write such names, so they are written by hand.
        let mut tar = tar_of(&[("a.txt", "0 1\n")]);
        tar[..100].fill(0);
        tar[..name.len()].copy_from_slice(name.as_bytes());
        tar[148..156].fill(b' ');
        let sum: u32 = tar[..512].iter().map(|&b| u32::from(b)).sum();
        tar[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        let tar = put(dir.path(), &format!("{at}.tar"), &tar);
        assert!(refusal(&tar).contains("leads out of the archive"));
    }
    assert!(!Path::new("/tmp/evil.txt").exists());
    for kind in [tar::EntryType::Symlink, tar::EntryType::Link, tar::EntryType::Fifo] {
        let mut builder = tar::Builder::new(Vec::new());
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(kind);
        header.set_size(0);
        builder.append_link(&mut header, "edges.txt", "/etc/passwd").unwrap();
        let tar = put(dir.path(), "link.tar", &builder.into_inner().unwrap());
        assert!(refusal(&tar).contains("is a link or a device"));
    }
    let mut zip = ZipWriter::new(Cursor::new(Vec::new()));
    zip.add_symlink("edges.txt", "/etc/passwd", SimpleFileOptions::default()).unwrap();
    let zip = put(dir.path(), "link.zip", &zip.finish().unwrap().into_inner());
    assert!(refusal(&zip).contains("is a link or a device"));
}

#[test]
fn long_lines_and_deep_nesting_cost_little() {
    let dir = tempfile::tempdir().unwrap();
    let line = vec![b'1'; 64 << 20];
    for name in ["line.txt", "line.graph", "line.mtx"] {
        refusal(&put(dir.path(), name, &line));
    }
    refusal(&put(dir.path(), "line.csv", &[b"a,b\n\"".to_vec(), line.clone()].concat()));
    for (file, deep) in
        [("role.json", "[".repeat(1 << 20)), ("class_map.json", "{\"1\":".repeat(1 << 18))]
    {
        let folder = dir.path().join(file);
        fs::create_dir(&folder).unwrap();
        for name in ["role.json", "class_map.json"] {
            put(&folder, name, b"{}");
        }
        crate::corpus::write(&crate::corpus::plain(), &folder.join("adj_full.npz"));
        put(&folder, file, deep.as_bytes());
        let begun = Instant::now();
        assert!(format::read(&folder, None, &Job::quiet(&Threads::one())).is_err());
        assert!(begun.elapsed() < Duration::from_secs(1));
    }
    // A million tuples within each other, a byte each.
    let folder = dir.path().join("pickle");
    fs::create_dir(&folder).unwrap();
    crate::corpus::tiny_planetoid(&folder);
    let mut graph = fs::read_dir(&folder).unwrap().map(|e| e.unwrap().path());
    let graph = graph.find(|path| path.extension().is_some_and(|e| e == "graph")).unwrap();
    fs::write(&graph, [b"\x80\x02)".to_vec(), vec![0x85; 4 << 20], b".".to_vec()].concat())
        .unwrap();
    assert!(refusal(&graph).contains("more lists and tuples"));
}

#[test]
fn sizes_that_no_data_account_for_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    for (name, text) in [
        ("n.graph", "4000000000 1\n2\n1\n"),
        ("m.graph", "2 99999999999\n2\n1\n"),
        ("g.txt", "99999999\n4000000000 1\n0 0\n0 0\n"),
    ] {
        refusal(&put(dir.path(), name, text.as_bytes()));
    }
    // Extents of the sparse matrix in a MATLAB file.
    let honest = mat();
    let at = honest.windows(8).position(|w| w == [3, 0, 0, 0, 3, 0, 0, 0]).unwrap();
    for lie in [0x7fff_ffffu32, u32::MAX, 0x1000_0000] {
        let mut bytes = honest.clone();
        bytes[at..at + 4].copy_from_slice(&lie.to_le_bytes());
        bytes[at + 4..at + 8].copy_from_slice(&lie.to_le_bytes());
        refusal(&put(dir.path(), "n.mat", &bytes));
    }
}
