//! Files larger than the memory that reading them takes, and writers that are killed.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use lacis_core::{Dataset, Graph, Threads};
use lacis_data::staged::Existing;
use lacis_data::{Job, format};

use crate::hostile::read_apart;

/// Lines of edges with much beside them: the graph is a small part of the file.
fn wide_lines(count: u32) -> String {
    let beside = "some_words_that_nobody_reads,and_more_of_them,and_still_more_of_these";
    let lines = (0..count).map(|i| format!("{},{},{beside}\n", i % 5000, i % 4999));
    lines.collect()
}

/// Memory follows the graph, not the file: pieces under way, and the entries found.
#[test]
fn a_file_takes_less_memory_than_it_is_long() {
    let dir = tempfile::tempdir().unwrap();
    let text = wide_lines(50_000);
    let times = (100 << 20) / text.len() + 1;
    let plain = dir.path().join("wide.csv");
    let mut file = fs::File::create(&plain).unwrap();
    file.write_all(b"source,target,a,b,c\n").unwrap();
    (0..times).for_each(|_| file.write_all(text.as_bytes()).unwrap());
    let size = fs::metadata(&plain).unwrap().len();
    let (said, peak) = read_apart(&plain);
    assert!(said.is_none(), "{said:?}");
    assert!(peak < size * 7 / 10, "{} of {} MB", peak >> 20, size >> 20);
}

/// Two graphs that differ in every array.
fn graphs() -> [Dataset; 2] {
    [3u32, 4].map(|factor| {
        let edges: Vec<(u32, u32)> =
            (0..1000 * factor).map(|i| (i % 997, i * factor % 1009)).collect();
        Dataset::new("g", Graph::from_edges(1009, &edges).unwrap())
    })
}

/// The other side of the test below; a test of nothing when asked for alone.
#[test]
#[ignore = "run by the test that kills"]
fn write_until_killed() {
    let Some(path) = std::env::var_os("LACIS_WRITE_UNTIL_KILLED") else { return };
    let threads = Threads::one();
    for set in graphs().iter().cycle() {
        let job = Job::quiet(&threads);
        format::write(set, Path::new(&path), None, Existing::Replace, &job).unwrap();
    }
}

#[test]
fn a_writer_that_is_killed_leaves_the_old_or_the_new() {
    let threads = Threads::one();
    let both = graphs();
    for name in ["g", "g.npz", "g.csv.gz"] {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(name);
        format::write(&both[0], &path, None, Existing::Keep, &Job::quiet(&threads)).unwrap();
        let (mut draw, mut changed) = (name.len() as u64, false);
        // A busy machine may take a while to begin at all: the later, the longer it is left alone.
        let mut turn = 0;
        while turn < 12 || !changed && turn < 60 {
            turn += 1;
            let mut child = Command::new(std::env::current_exe().unwrap());
            child.args(["bounded::write_until_killed", "--exact", "--include-ignored", "-q"]);
            child.env("LACIS_WRITE_UNTIL_KILLED", &path).stdout(Stdio::null());
            let mut child = child.spawn().unwrap();
            draw = draw.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            std::thread::sleep(Duration::from_millis(5 + (draw >> 58) + 4 * turn));
            child.kill().unwrap();
            child.wait().unwrap();
            let set = format::read(&path, None, &Job::quiet(&threads)).unwrap();
            let found = set.graph().adjacency();
            let is = |set: &Dataset| found.same_entries(set.graph().adjacency());
            assert!(both.iter().any(is), "{name} is neither");
            changed |= is(&both[1]);
        }
        assert!(changed, "{name}: nothing was ever written");
    }
}
