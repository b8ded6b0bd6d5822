//! A small sample of every format in the table: told from its content, read back, and damaged.

use std::fs;
use std::path::{Path, PathBuf};

use lacis_core::{Collection, Dataset, Dense, Error, Features, Labels, Threads};
use lacis_data::format::{self, FORMATS};
use lacis_data::staged::Existing;
use lacis_data::{Job, native, open, own};
use tempfile::TempDir;

use crate::corpus::{full, plain, sample, tables, variants, write};
use crate::{damage, quiet};

fn job(threads: &Threads) -> Job<'_> {
    Job::quiet(threads)
}

#[test]
fn every_format_is_told_from_its_content() {
    for format in formats() {
        let folder = tempfile::tempdir().unwrap();
        let (path, _) = sample(format.name, folder.path());
        let threads = Threads::one();
        for path in [path, folder.path().to_owned()] {
            if format.name == "lacis" && path == folder.path() {
                continue; // A folder of folders holds no graph.
            }
            let set = format::read(&path, None, &job(&threads)).unwrap();
            assert_eq!(set.origin().format, format.name);
            let asked = format::read(&path, Some(format.name), &job(&threads)).unwrap();
            assert!(asked.graph().adjacency().same_entries(set.graph().adjacency()));
        }
    }
}

/// What the fuzz program begins with is read, whichever form it has.
#[test]
fn every_variant_of_a_sample_is_read() {
    let threads = Threads::one();
    let mut count = 0;
    for format in formats() {
        for variant in variants(format.name) {
            let folder = tempfile::tempdir().unwrap();
            let (path, files) = sample(format.name, folder.path());
            fs::write(&files[0], variant).unwrap();
            let read = format::read(&path, None, &job(&threads));
            assert_eq!(read.unwrap().origin().format, format.name);
            count += 1;
        }
    }
    let folder = tempfile::tempdir().unwrap();
    let (_, files) = tables(folder.path());
    let tables = own::Tables {
        edges: files[0].clone(),
        nodes: Some(files[1].clone()),
        ..Default::default()
    };
    assert_eq!(own::read(&tables, &job(&threads)).unwrap().graph().n_edges(), 2);
    assert!(count > 10);
}

#[test]
fn every_format_survives_damage() {
    fn read(path: &Path, job: &Job<'_>) -> lacis_core::Result<Dataset> {
        format::read(path, None, job)
    }
    // The own format is damaged below, long files in npz_pickle.rs and by `examples/fuzz.rs`.
    const LONG: usize = 400;
    for format in formats().filter(|format| format.name != "lacis") {
        let folder = tempfile::tempdir().unwrap();
        let (path, files) = sample(format.name, folder.path());
        let short = |file: &&PathBuf| fs::metadata(file).unwrap().len() < LONG as u64;
        files.iter().filter(short).for_each(|file| damage(read, &path, file));
    }
}

/// The formats that this build can read.
fn formats() -> impl Iterator<Item = &'static format::Format> {
    FORMATS.iter().filter(|format| cfg!(feature = "parquet") || format.name != "parquet")
}

/// In the own format every byte counts: no damage goes unnoticed.
#[test]
fn every_damaged_byte_of_the_own_format_is_noticed() {
    let folder = tempfile::tempdir().unwrap();
    let (path, files) = sample("lacis", folder.path());
    assert!(files.len() > 8);
    for file in files {
        let bytes = fs::read(&file).unwrap();
        let refused = |damaged: &[u8], what: String| {
            fs::write(&file, damaged).unwrap();
            let error = quiet(native::read, &path).map(|_| ()).expect_err(&what);
            assert!(error.to_string().contains(path.to_str().unwrap()), "{error}");
        };
        for length in 0..bytes.len() {
            refused(&bytes[..length], format!("{} cut to {length}", file.display()));
        }
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 0x10;
            refused(&damaged, format!("{} changed at {at}", file.display()));
        }
        let longer = [&bytes[..], b"\0"].concat();
        refused(&longer, format!("{} too long", file.display()));
        fs::remove_file(&file).unwrap();
        assert!(quiet(native::read, &path).is_err());
        fs::write(&file, bytes).unwrap();
    }
    assert!(quiet(native::read, &path).is_ok());
}

/// A file with a right checksum and wrong numbers: written by somebody who means harm.
#[test]
fn right_checksums_do_not_excuse_wrong_numbers() {
    let folder = tempfile::tempdir().unwrap();
    let (path, _) = sample("lacis", folder.path());
    let cols = path.join("adjacency.cols.npy");
    let mut bytes = fs::read(&cols).unwrap();
    let last = bytes.len() - 4;
    let old = format!("{:016x}", xxhash_rust::xxh3::xxh3_64(&bytes[128..]));
    bytes[last..].copy_from_slice(&77u32.to_le_bytes());
    let new = format!("{:016x}", xxhash_rust::xxh3::xxh3_64(&bytes[128..]));
    fs::write(&cols, &bytes).unwrap();
    rewrite_meta(&path, |body| {
        let (before, after) = body.split_at(body.find("\"adjacency.cols\"").unwrap());
        assert!(after.contains(&old));
        format!("{before}{}", after.replacen(&old, &new, 1))
    });
    let error = quiet(native::read, &path).unwrap_err().to_string();
    assert!(error.contains("column 77"), "{error}");
}

/// Changes the body of a folder's `meta.json`, its checksum right.
fn rewrite_meta(folder: &Path, change: impl Fn(&str) -> String) {
    let meta = folder.join(native::META);
    let text = fs::read_to_string(&meta).unwrap();
    let body = change(text.split_once("\"body\":").unwrap().1.strip_suffix('}').unwrap());
    let sum = format!("{:016x}", xxhash_rust::xxh3::xxh3_64(body.as_bytes()));
    fs::write(&meta, format!("{{\"lacis\":1,\"checksum\":\"{sum}\",\"body\":{body}}}")).unwrap();
}

#[test]
fn a_lying_list_of_arrays_is_refused() {
    let axes = format!("[{}1]", "1,".repeat(40_000));
    let long = "x".repeat(70_000);
    for (from, to) in [
        ("\"shape\":[6]", format!("\"shape\":{axes}")),
        ("\"dtype\":\"<u4\"", format!("\"dtype\":\"{long}\"")),
        ("\"name\":\"adjacency.cols\"", "\"name\":\"../../etc/passwd\"".to_owned()),
        ("\"count\":3", "\"count\":18446744073709551615".to_owned()),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let (path, _) = sample("lacis", folder.path());
        rewrite_meta(&path, |body| {
            assert!(body.contains(from), "{from} in {body}");
            body.replace(from, &to)
        });
        let error = quiet(native::read, &path).unwrap_err();
        assert!(matches!(error, Error::File { .. }), "{error}");
        assert!(error.to_string().len() < 500);
    }
}

#[test]
fn a_pipe_is_not_waited_for() {
    let folder = tempfile::tempdir().unwrap();
    let (path, _) = sample("lacis", folder.path());
    for file in [path.join("labels.npy"), folder.path().join("pipe.txt")] {
        let _ = fs::remove_file(&file);
        let made = std::process::Command::new("mkfifo").arg(&file).status();
        assert!(made.is_ok_and(|status| status.success()));
        let data = if file.ends_with("labels.npy") { &path } else { &file };
        let error = quiet(|path, job| format::read(path, None, job), data).unwrap_err();
        assert!(error.to_string().contains("not a regular file"), "{error}");
    }
}

#[test]
fn a_newer_version_is_said_to_be_one() {
    let folder = tempfile::tempdir().unwrap();
    let (path, _) = sample("lacis", folder.path());
    let meta = path.join(native::META);
    let text = fs::read_to_string(&meta).unwrap().replacen("{\"lacis\":1", "{\"lacis\":9", 1);
    fs::write(&meta, text).unwrap();
    let error = quiet(native::read, &path).unwrap_err().to_string();
    assert!(error.contains("is of format 9; this Lacis reads format 1"), "{error}");
}

#[test]
fn the_own_format_keeps_everything() {
    let folder = tempfile::tempdir().unwrap();
    let threads = Threads::new(2).unwrap();
    let collection = plain()
        .with_collection(Collection::new(vec![0, 4, 5]).unwrap())
        .unwrap()
        .with_labels(Labels::Targets(Dense::from_fn(2, 2, |i, j| (i + j) as f64)))
        .unwrap();
    let sparse = open("cora-like", &job(&threads)).unwrap();
    let multi = Labels::Multi(plain().graph().adjacency().as_ref().clone().without_order());
    let multi = plain().with_labels(multi).unwrap();
    for (number, set) in [full(), collection, sparse, multi].into_iter().enumerate() {
        let path = folder.path().join(number.to_string());
        write(&set, &path);
        let back = open(path.to_str().unwrap(), &job(&threads)).unwrap();
        assert_same(&set, &back);
    }
}

/// The same graph, order, features, labels, splits, name and graphs.
pub fn assert_same(set: &Dataset, back: &Dataset) {
    let (a, b) = (set.graph().adjacency(), back.graph().adjacency());
    assert!(a.same_entries(b));
    assert_eq!(a.order(), b.order());
    assert_eq!((set.name(), set.splits()), (back.name(), back.splits()));
    assert_eq!(set.origin().synthetic, back.origin().synthetic);
    assert_eq!((set.collection(), set.ids()), (back.collection(), back.ids()));
    let dense = |set: &Dataset| set.features().map(|x| x.to_dense());
    assert_eq!(dense(set), dense(back));
    let is_sparse = |set: &Dataset| matches!(set.features(), Some(Features::Sparse(_)));
    assert_eq!(is_sparse(set), is_sparse(back));
    match (set.labels(), back.labels()) {
        (None, None) => {}
        (Some(Labels::Multi(a)), Some(Labels::Multi(b))) => assert!(a.same_entries(b)),
        (Some(Labels::Targets(a)), Some(Labels::Targets(b))) => assert_eq!(a, b),
        (
            Some(Labels::Classes { of: a, count: m, names: x }),
            Some(Labels::Classes { of: b, count: n, names: y }),
        ) => assert_eq!((a, m, x), (b, n, y)),
        (a, b) => panic!("{a:?} became {b:?}"),
    }
}

#[test]
fn an_open_graph_outlives_its_replacement() {
    let folder = tempfile::tempdir().unwrap();
    let (path, _) = sample("lacis", folder.path());
    let threads = Threads::one();
    let old = native::read(&path, &job(&threads)).unwrap();
    let karate = open("karate", &job(&threads)).unwrap();
    format::write(&karate, &path, None, Existing::Replace, &job(&threads)).unwrap();
    assert!(old.graph().adjacency().same_entries(plain().graph().adjacency()));
    assert_eq!(native::read(&path, &job(&threads)).unwrap().graph().n_nodes(), 34);
}

/// Files that cost nothing to write must cost little to refuse.
#[test]
fn declared_sizes_are_not_believed() {
    let folder: TempDir = tempfile::tempdir().unwrap();
    let banner = "%%MatrixMarket matrix coordinate pattern general\n";
    for (name, text) in [
        ("a.mtx", format!("{banner}4000000000 4000000000 1\n1 1\n")),
        ("b.mtx", format!("{banner}10 10 99999999999999\n1 1\n")),
        ("c.mtx", format!("{banner}99999999999999999999999 1 1\n1 1\n")),
        ("d.txt", "0 1\n4294967294 2\n".to_owned()),
        ("e.txt", "0 1\n99999999999999999999999999 2\n".to_owned()),
        ("f.txt", format!("0 1\n{}\n", "1".repeat(1 << 20))),
        ("g.txt", format!("0 1 {}\n", "9".repeat(1 << 17))),
        ("h.txt", "# Nodes: 4000000000 Edges: 1\n0 1\n".to_owned()),
    ] {
        let path = folder.path().join(name);
        fs::write(&path, text).unwrap();
        let begun = std::time::Instant::now();
        let error = open(path.to_str().unwrap(), &Job::quiet(&Threads::one())).unwrap_err();
        assert!(matches!(error, Error::File { .. }), "{name}: {error}");
        let text = error.to_string();
        assert!(text.contains(name) && text.len() < 500, "{text}");
        assert!(begun.elapsed().as_secs() < 2, "{name}");
    }
}

#[test]
fn a_damaged_packing_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["a.txt.gz", "a.txt.zst", "a.mtx.gz"] {
        let path = folder.path().join(name);
        write(&plain(), &path);
        let bytes = fs::read(&path).unwrap();
        for at in 0..bytes.len() {
            for damaged in [bytes[..at].to_vec(), flipped(&bytes, at)] {
                fs::write(&path, damaged).unwrap();
                // Some headers have bytes that do not matter; the edges must then be right.
                if let Ok(set) = open(path.to_str().unwrap(), &Job::quiet(&Threads::one())) {
                    let whole = set.graph().n_edges() == 4 || at < 4;
                    assert!(whole, "{name} at {at}: {} edges", set.graph().n_edges());
                }
            }
        }
    }
}

fn flipped(bytes: &[u8], at: usize) -> Vec<u8> {
    let mut damaged = bytes.to_vec();
    damaged[at] ^= 0x04;
    damaged
}

/// `docs/formats.md` is what the table says; `LACIS_WRITE_DOCS=1` writes it.
#[test]
fn the_page_of_formats_is_up_to_date() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/formats.md");
    if std::env::var_os("LACIS_WRITE_DOCS").is_some() {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, format::page()).unwrap();
    }
    let found = fs::read_to_string(&path).unwrap();
    assert!(found == format::page(), "run this test with LACIS_WRITE_DOCS=1");
}

/// Archives of any kind are read as what they hold, by the archive's path or one into it.
#[test]
fn archives_are_read_as_what_they_hold() {
    let folder = tempfile::tempdir().unwrap();
    let threads = Threads::one();
    let read = |path: &Path| format::read(path, None, &job(&threads));
    let (zip, _) = sample("zip", folder.path());
    let (tar, _) = sample("tar", folder.path());
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    std::io::Write::write_all(&mut packed, &fs::read(&tar).unwrap()).unwrap();
    let gz = folder.path().join("b.tgz");
    fs::write(&gz, packed.finish().unwrap()).unwrap();
    for (path, format) in [(&zip, "musae"), (&tar, "linqs"), (&gz, "linqs")] {
        assert_eq!(read(path).unwrap().origin().format, format);
    }
    assert_eq!(read(&tar.join("a.cites")).unwrap().origin().format, "linqs");
    let error = read(&zip.join("none")).unwrap_err().to_string();
    assert!(error.contains("a.zip/none"), "{error}");
    // A mistake inside is told of the archive, not of where it was unpacked.
    let bad = folder.path().join("bad.zip");
    fs::write(&bad, crate::corpus::zip_of(&[("x/e.txt", "0 1\n0 two\n")])).unwrap();
    let error = read(&bad).unwrap_err().to_string();
    assert!(error.contains("bad.zip/x/e.txt, line 2"), "{error}");
}
