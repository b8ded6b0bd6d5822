//! Reading files, making data, and surviving damage.
//!
//! Real data are read where `LACIS_TEST_DATA` names their folder; what is skipped elsewhere is said.
#![allow(clippy::unwrap_used)]

mod bounded; // less memory than the file is long; writers that are killed
mod catalogue; // every real set, with its published counts
mod cora_like; // the built-in set: a GCN learns it as well as Cora
mod corpus; // a sample of every format
#[cfg(feature = "fetch")]
mod fetching; // downloads from servers that stall, truncate, lie and redirect
mod hostile; // bombs, tricks and lies
mod npz_pickle; // arrays, archives and pickles
mod real_data; // the data sets that everybody uses
mod samples; // a sample of every format: detected, read back, damaged in every byte

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use lacis_core::{Dataset, Result, Threads};
use lacis_data::Job;

type Reader = fn(&Path, &Job) -> Result<Dataset>;

fn quiet(reader: Reader, path: &Path) -> Result<Dataset> {
    reader(path, &Job::quiet(&Threads::one()))
}

/// Every truncation and many single-byte changes of `file`, each read through `entry`: all must
/// end soon, with an answer or a one-line error.
fn damage(reader: Reader, entry: &Path, file: &Path) {
    let bytes = fs::read(file).unwrap();
    assert!(quiet(reader, entry).is_ok(), "{} is whole", file.display());
    let check = |damaged: &[u8]| {
        fs::write(file, damaged).unwrap();
        let start = Instant::now();
        if let Err(error) = quiet(reader, entry) {
            let text = error.to_string();
            assert!(!text.contains('\n') && text.len() < 1000, "{text}");
        }
        assert!(start.elapsed() < Duration::from_secs(5), "damage must not cost time");
    };
    for length in 0..bytes.len() {
        check(&bytes[..length]);
    }
    for place in 0..bytes.len() {
        for change in [0x01, 0x10, 0x80, 0xff] {
            let mut damaged = bytes.clone();
            damaged[place] ^= change;
            check(&damaged);
        }
    }
    fs::write(file, bytes).unwrap();
}

fn real(name: &str) -> Option<PathBuf> {
    let folder = std::env::var_os("LACIS_TEST_DATA").map(|data| PathBuf::from(data).join(name));
    match folder {
        Some(folder) if folder.is_dir() => Some(folder),
        _ => {
            eprintln!("{name} is skipped: LACIS_TEST_DATA names no folder that holds it");
            None
        }
    }
}
