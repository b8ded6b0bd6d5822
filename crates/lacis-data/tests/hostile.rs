//! Files that mean harm: each is refused soon, in one line, and nothing is written outside.

use std::fs;
use std::io::{Cursor, Write};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use lacis_core::{Error, Threads};
use lacis_data::{Job, format, own};
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipWriter};

use crate::corpus::{mat, tar_of, zip_of};

/// What a refusal may cost a process that does nothing else: time of processors, for a busy machine
/// makes anything slow. Tests are built with little optimisation, which has its share.
const MAX_TIME: Duration = Duration::from_secs(if cfg!(debug_assertions) { 4 } else { 1 });
const MAX_PEAK_BYTES: u64 = 100 << 20;

/// What is said of a file that must be refused within a second, and within a hundred megabytes:
/// read by a process of its own, whose peak of memory the system tells.
fn refusal(path: &Path) -> String {
    let (said, peak) = read_apart(path);
    let text = said.unwrap_or_else(|| panic!("{} was accepted", path.display()));
    assert!(text.len() < 400 && !text.contains('\n'), "{text}");
    assert!(text.contains(path.file_name().unwrap().to_str().unwrap()), "{text}");
    assert!(peak < MAX_PEAK_BYTES, "{} MB: {text}", peak >> 20);
    text
}

/// Reads a path in a process of its own: the error, and the process's peak of memory.
pub fn read_apart(path: &Path) -> (Option<String>, u64) {
    let mut child = Command::new(std::env::current_exe().unwrap());
    child.args(["hostile::read_and_tell", "--exact", "--nocapture", "--include-ignored"]);
    let output = child.env("LACIS_READ_AND_TELL", path).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let told = |key: &str| text.lines().find_map(|line| line.split_once(key)).map(|(_, v)| v);
    let number = |key: &str| told(key).unwrap_or_else(|| panic!("{text}")).parse::<u64>().unwrap();
    let (millis, peak) = (number("took ms: "), number("peak kB: ") << 10);
    let refused = told("refused: ");
    let soon = refused.is_none() || Duration::from_millis(millis) < MAX_TIME;
    assert!(soon, "{millis} ms: {text}");
    (refused.map(str::to_owned), peak)
}

/// The other side of [`read_apart`]; a test of nothing when asked for alone.
#[test]
#[ignore = "run by the tests that measure"]
fn read_and_tell() {
    let Some(path) = std::env::var_os("LACIS_READ_AND_TELL") else { return };
    let threads = Threads::new(2).unwrap();
    let error = format::read(Path::new(&path), None, &Job::quiet(&threads)).err();
    // Hundredths of a second for the process and for the system on its behalf.
    let stat = fs::read_to_string("/proc/self/stat").unwrap();
    let fields = stat.rsplit_once(')').unwrap().1.split_whitespace().skip(11).take(2);
    println!("\ntook ms: {}", fields.map(|x| x.parse::<u64>().unwrap() * 10).sum::<u64>());
    if let Some(error) = error {
        assert!(matches!(error, Error::File { .. } | Error::Io { .. }), "{error:?}");
        println!("refused: {error}");
    }
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    println!("peak kB: {}", peak.trim().trim_end_matches(" kB"));
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
fn names_that_no_file_system_takes_are_refused_in_few_words() {
    let dir = tempfile::tempdir().unwrap();
    for (at, name) in
        [format!("{}.txt", "a".repeat(300)), format!("b/{}", "ä".repeat(4000))].iter().enumerate()
    {
        let zip = put(dir.path(), &format!("{at}.zip"), &zip_of(&[(name, "0 1\n")]));
        let said = refusal(&zip);
        assert!(said.contains("more than 255 bytes") && said.len() < 500, "{said}");
    }
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
    let zip = put(dir.path(), "odd.zip", &zip_of(&[("a\n\0b.txt", "0 1\n")]));
    assert!(refusal(&zip).contains("has a name that is no text"));
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

/// Small files that unpack, or declare, far more than they are: as much as is believed of them,
/// and a little more.
#[test]
fn what_is_packed_or_declared_costs_little() {
    let dir = tempfile::tempdir().unwrap();
    let banner = b"%%MatrixMarket matrix coordinate pattern general\n";
    let gz = |name: &str, head: &[u8], text: &[u8], size: usize| {
        let mut out = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        out.write_all(head).unwrap();
        let many = text.repeat((1 << 16) / text.len());
        (0..size / many.len()).for_each(|_| out.write_all(&many).unwrap());
        put(dir.path(), name, &out.finish().unwrap())
    };
    for text in ["0 1\n", "\n", "# c\n", "1", "0\t1\t0.5\n"] {
        refusal(&gz("a.txt.gz", b"", text.as_bytes(), 64 << 20));
    }
    refusal(&gz("a.mtx.gz", &[banner, &b"9 9 100000000\n"[..]].concat(), b"1 2\n", 64 << 20));
    refusal(&gz("a.graph.gz", b"4000000000 1\n", b"\n", 64 << 20));
    refusal(&gz("a.csv.gz", b"source,target\n", b"a,", 64 << 20));
    for (name, text) in [
        ("b.mtx", "%%MatrixMarket matrix coordinate pattern general\n16777000 1 1\n1 1\n"),
        ("b.txt", "# Nodes: 16777000 Edges: 1\n0 1\n"),
        ("c.txt", "0 16777000\n"),
        ("b.graph", "16777000 1\n2\n1\n"),
    ] {
        assert!(refusal(&put(dir.path(), name, text.as_bytes())).contains("not believed"));
    }
    // What is believed without data: four million nodes.
    let (said, peak) = read_apart(&put(dir.path(), "d.txt", b"# Nodes: 4000000\n0 1\n"));
    assert!(said.is_none() && peak < MAX_PEAK_BYTES, "{said:?}, {peak}");
}

/// Arrays of one number over and over: no room on disk, four bytes and more each in memory.
#[test]
fn packed_arrays_of_nothing_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let npz = |name: &str, members: &[(&str, &str, &[usize], u8)]| {
        let mut zip = ZipWriter::new(Cursor::new(Vec::new()));
        let packed = SimpleFileOptions::default().compression_method(CompressionMethod::Deflated);
        for (key, descr, shape, byte) in members {
            zip.start_file(format!("{key}.npy"), packed).unwrap();
            lacis_data::npy::write_header(&mut zip, descr, shape).unwrap();
            let item = if *descr == "<i8" { 8 } else { 1 };
            let count = shape.iter().product::<usize>();
            let bytes = if *descr == "|S3" { b"coo".to_vec() } else { vec![*byte; item * count] };
            zip.write_all(&bytes).unwrap();
        }
        put(dir.path(), name, &zip.finish().unwrap().into_inner())
    };
    let many: &[usize] = &[15 << 20];
    let shape = ("shape", "<i8", &[2][..], 0);
    let list = [("format", "|S3", &[][..], 0), shape, ("data", "|i1", many, 2)];
    let ends = [("row", "|i1", many, 0), ("col", "|i1", many, 0)];
    refusal(&npz("list.npz", &[&list[..], &ends[..]].concat()));
    let adj = [("adj_data", "|i1", many, 2), ("adj_indices", "|i1", many, 0)];
    let rest = [("adj_indptr", "<i8", &[2][..], 0), ("adj_shape", "<i8", &[2][..], 0)];
    refusal(&npz("rows.npz", &[adj, rest].concat()));
    refusal(&npz(
        "features.npz",
        &[
            ("node_features", "|i1", &[3 << 20, 10], 0),
            ("node_labels", "|i1", &[3 << 20], 0),
            ("edges", "<i8", &[1, 2], 0),
            ("train_masks", "|b1", &[1, 3 << 20], 0),
            ("val_masks", "|b1", &[1, 3 << 20], 0),
            ("test_masks", "|b1", &[1, 3 << 20], 0),
        ],
    ));
}

/// An archive's list of files is itself something to believe or not.
#[test]
fn archives_of_very_many_files_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let names: Vec<String> = (0..2100).map(|at| format!("{at}.txt")).collect();
    let files: Vec<(&str, &str)> = names.iter().map(|name| (&**name, "0 1\n")).collect();
    let zip = refusal(&put(dir.path(), "many.zip", &zip_of(&files)));
    assert!(zip.contains("holds more than"), "{zip}");
    let tar = refusal(&put(dir.path(), "many.tar", &tar_of(&files)));
    assert!(tar.contains("holds more than"), "{tar}");
}

/// Time must not grow with the square of anything.
#[test]
fn quotes_and_blanks_are_read_once() {
    let dir = tempfile::tempdir().unwrap();
    let nodes = put(dir.path(), "n.csv", b"id,y\n0,a\n1,b\n");
    let blanks = [&b" ".repeat(4 << 20)[..], b"x", &b"\"".repeat(4 << 20)].concat();
    for (name, row) in [("lines.csv", b"\"\n".repeat(1 << 19)), ("blanks.csv", blanks)] {
        let text = [&b"source,target\n"[..], b"\"a\n", &b"x\n".repeat(1 << 20), &row].concat();
        let edges = put(dir.path(), name, &text);
        let tables = own::Tables { edges, nodes: Some(nodes.clone()), ..Default::default() };
        let begun = Instant::now();
        assert!(own::read(&tables, &Job::quiet(&Threads::one())).is_err());
        assert!(begun.elapsed() < 5 * MAX_TIME, "{name}: {:?}", begun.elapsed());
    }
}
