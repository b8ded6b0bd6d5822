//! Damages samples of a format at random and reads them: `fuzz [READER|all [COUNT [SEED]]]`.
//!
//! A reader must answer every input with a data set or a one-line error, soon and in little memory.
//! The first input that breaks this is kept, and the program fails. The bounds: [`MAX_TIME`] and
//! [`MAX_GROWTH_BYTES`] an input, for samples of a few hundred bytes.
#![allow(clippy::unwrap_used, missing_docs)]

#[allow(dead_code)]
#[path = "../tests/corpus/mod.rs"]
mod corpus;

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use lacis_core::Threads;
use lacis_data::format::{self, FORMATS};
use lacis_data::{Job, own};

/// How long one input may take.
const MAX_TIME: Duration = Duration::from_secs(2);
/// How much the process may grow by on one input: declared counts are believed up to 16 million.
const MAX_GROWTH_BYTES: u64 = 512 << 20;

/// A small generator of its own: what it draws must not change with the library.
struct Draw(u64);

impl Draw {
    fn next(&mut self, below: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as usize % below.max(1)
    }

    fn one<'a>(&mut self, of: &[&'a [u8]]) -> &'a [u8] {
        of[self.next(of.len())]
    }
}

/// Numbers, words and marks that readers stumble over.
const WORDS: &[&[u8]] = &[
    b"-1",
    b"0",
    b"4294967295",
    b"4294967296",
    b"99999999999999999999",
    b"nan",
    b"inf",
    b"1e999",
    b"\n",
    b"\r\n",
    b"\t",
    b",",
    b"\"",
    b"[",
    b"{",
    b"\0",
    b"\xff\xff\xff\xff",
    b"\x00\x00\x00\x80",
    b"\xef\xbb\xbf",
    b"../",
    b"%",
    b"#",
    b"16777216",
    b"1.5",
    b"(",
    b"\x85",
    b".",
];

/// A few changes at random places.
fn mutate(bytes: &mut Vec<u8>, draw: &mut Draw) {
    for _ in 0..1 + draw.next(4) {
        let at = draw.next(bytes.len() + 1);
        match draw.next(8) {
            0 => bytes.truncate(at),
            1 => bytes.splice(at..at, draw.one(WORDS).iter().copied()).for_each(drop),
            2 => {
                let end = (at + draw.next(16)).min(bytes.len());
                bytes.splice(at..end, draw.one(WORDS).iter().copied()).for_each(drop);
            }
            3 => {
                let end = (at + draw.next(64)).min(bytes.len());
                bytes.drain(at..end);
            }
            4 => {
                let end = (at + draw.next(64)).min(bytes.len());
                let copy = bytes[at..end].repeat(1 + draw.next(20));
                bytes.splice(at..at, copy).for_each(drop);
            }
            5 => {
                let value = draw.next(256) as u8;
                bytes.iter_mut().skip(at).take(1).for_each(|byte| *byte = value);
            }
            _ => {
                let bit = 1 << draw.next(8);
                bytes.iter_mut().skip(at).take(1).for_each(|byte| *byte ^= bit);
            }
        }
    }
}

/// The most memory the process has had since [`forget_peak`].
fn peak_bytes() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kilobytes = line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok());
    kilobytes.unwrap_or(0) * 1024
}

fn forget_peak() {
    // 5 resets the peak to what is used now.
    let _ = fs::write("/proc/self/clear_refs", "5");
}

/// How a sample is read: through the table of formats, or as a user's own tables.
fn read(reader: &str, entry: &Path, files: &[PathBuf]) -> Result<(), String> {
    let threads = Threads::one();
    let job = Job::quiet(&threads);
    let outcome = if reader == "tables" {
        let nodes = Some(files[1].clone());
        own::read(&own::Tables { edges: files[0].clone(), nodes, ..Default::default() }, &job)
    } else {
        format::read(entry, None, &job)
    };
    match outcome {
        Err(error) if error.to_string().contains('\n') => Err(format!("two lines: {error}")),
        Err(error) if error.to_string().len() > 2000 => Err(format!("too much said: {error}")),
        _ => Ok(()),
    }
}

fn sample(reader: &str, folder: &Path) -> (PathBuf, Vec<PathBuf>) {
    if reader != "tables" {
        return corpus::sample(reader, folder);
    }
    let files = [folder.join("e.csv"), folder.join("n.csv")];
    fs::write(&files[0], "source,target,weight\nann,bob,1\nbob,\"c,y\",2.5\n").unwrap();
    let nodes = "id,age,colour,y,split\nann,1.5,red,a,train\nbob,,blue,,val\n\"c,y\",2,NA,b,test\n";
    fs::write(&files[1], nodes).unwrap();
    (folder.to_owned(), files.to_vec())
}

/// Reads so many damaged samples; gives the longest time and the largest growth.
fn run(reader: &str, count: usize, seed: u64) -> Result<(Duration, u64), String> {
    let dir = tempfile::tempdir().unwrap();
    let (entry, files) = sample(reader, dir.path());
    let whole: Vec<Vec<u8>> = files.iter().map(|file| fs::read(file).unwrap()).collect();
    read(reader, &entry, &files)?;
    let mut draw = Draw(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let (mut longest, mut largest) = (Duration::ZERO, 0);
    for input in 0..count {
        let at = draw.next(files.len());
        let mut bytes = whole[at].clone();
        mutate(&mut bytes, &mut draw);
        fs::write(&files[at], &bytes).unwrap();
        forget_peak();
        let (before, begun) = (peak_bytes(), Instant::now());
        let outcome = catch_unwind(AssertUnwindSafe(|| read(reader, &entry, &files)));
        let (time, growth) = (begun.elapsed(), peak_bytes().saturating_sub(before));
        longest = longest.max(time);
        largest = largest.max(growth);
        let problem = match outcome {
            Err(_) => Some("it panicked".to_owned()),
            Ok(Err(problem)) => Some(problem),
            Ok(Ok(())) if time > MAX_TIME => Some(format!("it took {time:?}")),
            Ok(Ok(())) if growth > MAX_GROWTH_BYTES => Some(format!("it took {growth} bytes")),
            Ok(Ok(())) => None,
        };
        if let Some(problem) = problem {
            let kept = std::env::temp_dir().join(format!("lacis-fuzz-{reader}-{input}"));
            fs::write(&kept, &bytes).unwrap();
            let name = files[at].file_name().unwrap_or_default().display();
            return Err(format!("input {input}, {name}: {problem}; kept as {}", kept.display()));
        }
        fs::write(&files[at], &whole[at]).unwrap();
    }
    Ok((longest, largest))
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let wanted = args.first().map_or("all", String::as_str);
    let number = |at: usize, or| args.get(at).map_or(or, |text| text.parse().expect("a number"));
    let (count, seed) = (number(1, 1000), number(2, 1) as u64);
    let formats = FORMATS.iter().map(|format| format.name);
    let readers = formats.filter(|name| cfg!(feature = "parquet") || *name != "parquet");
    let readers = readers.chain(["zip", "tar", "tables"]);
    let mut failed = false;
    for reader in readers.filter(|reader| wanted == "all" || wanted == *reader) {
        match run(reader, count, seed) {
            Ok((time, growth)) => println!(
                "{reader:<15} {count} inputs, at most {time:?} and {} MiB each",
                growth >> 20
            ),
            Err(problem) => {
                failed = true;
                println!("{reader:<15} FAILED: {problem}");
            }
        }
    }
    std::process::exit(i32::from(failed));
}
