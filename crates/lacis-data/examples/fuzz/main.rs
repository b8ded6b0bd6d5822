//! Damages samples of a format at random and reads them:
//! `fuzz [READER|all [COUNT [SEED [RECORD.json]]]]`.
//!
//! A reader must answer every input with a data set or a one-line error, soon and in little memory.
//! The first input that breaks this is kept, and the program fails. The bounds: [`MAX_TIME`] and
//! [`MAX_GROWTH_BYTES`] an input, for samples of a few hundred bytes. The record adds up what every
//! reader has survived; `TMPDIR` in memory makes the program fast.
#![allow(clippy::unwrap_used, missing_docs)]

#[allow(dead_code)]
#[path = "../../tests/corpus/mod.rs"]
mod corpus;
mod mutate;
mod packed;

use std::cell::Cell;
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use lacis_core::{Error, Threads};
use lacis_data::format::{self, FORMATS};
use lacis_data::{Job, native, own};
use mutate::Draw;
use packed::Parts;

/// How long one input may take.
const MAX_TIME: Duration = Duration::from_secs(1);
/// How much the process may grow by: declared counts are believed up to four million.
const MAX_GROWTH_BYTES: u64 = 100 << 20;
/// The peak of memory is looked at once for so many inputs.
const BATCH: usize = 256;

/// A sample, whole and taken apart.
struct Sample<'a> {
    reader: &'a str,
    entry: PathBuf,
    files: Vec<PathBuf>,
    /// What each file may hold before it is damaged: itself, or another of its kind.
    whole: Vec<Vec<(Vec<u8>, Parts)>>,
    /// The own format's list of arrays and their checksums.
    meta: Vec<u8>,
    /// The file that was damaged last, and still is.
    last: Cell<usize>,
    threads: Threads,
}

/// What came of some inputs.
#[derive(Default)]
struct Survived {
    inputs: u64,
    accepted: u64,
    longest: Duration,
    growth: u64,
}

/// A file with its damage.
struct Input {
    at: usize,
    bytes: Vec<u8>,
    /// The own format's `meta.json` with checksums that are right again.
    meta: Option<Vec<u8>>,
    /// Whether the reader is asked for by name.
    named: bool,
}

impl<'a> Sample<'a> {
    fn new(reader: &'a str, folder: &Path) -> Self {
        let (entry, files) = if reader == "tables" {
            corpus::tables(folder)
        } else {
            corpus::sample(reader, folder)
        };
        let whole = files.iter().enumerate().map(|(at, file)| {
            let others = if at == 0 { corpus::variants(reader) } else { Vec::new() };
            let all = std::iter::once(fs::read(file).unwrap()).chain(others);
            all.map(|bytes| (bytes.clone(), Parts::of(&bytes))).collect()
        });
        let whole = whole.collect();
        let meta = fs::read(entry.join(native::META)).unwrap_or_default();
        Sample { reader, entry, files, whole, meta, last: Cell::new(0), threads: Threads::one() }
    }

    fn draw(&self, draw: &mut Draw) -> Input {
        let (at, other) = (draw.next(self.files.len()), draw.next(self.files.len()));
        let (whole, parts) = &self.whole[at][draw.next(self.whole[at].len())];
        let bytes = parts.damaged(whole, &self.whole[other][0].0, draw);
        let sealed = self.reader == "lacis" && draw.next(4) != 0;
        let meta = sealed.then(|| packed::sealed(&self.meta, whole, &bytes));
        // Telling what a file is takes longer than reading it: mostly it is said.
        Input { at, bytes, meta, named: draw.next(8) != 0 }
    }

    /// Reads the sample with one file damaged; whether that was accepted, or what is wrong.
    fn read(&self, input: &Input) -> Result<bool, String> {
        let last = self.last.replace(input.at);
        if last != input.at {
            fs::write(&self.files[last], &self.whole[last][0].0).unwrap();
        }
        fs::write(&self.files[input.at], &input.bytes).unwrap();
        if let Some(meta) = &input.meta {
            fs::write(self.entry.join(native::META), meta).unwrap();
        }
        let outcome = catch_unwind(AssertUnwindSafe(|| self.open(input)));
        if input.meta.is_some() {
            fs::write(self.entry.join(native::META), &self.meta).unwrap();
        }
        match outcome {
            Err(_) => Err("it panicked".to_owned()),
            Ok(Ok(())) => Ok(true),
            Ok(Err(error)) => {
                let text = error.to_string();
                match text {
                    text if text.contains('\n') => Err(format!("two lines: {text}")),
                    text if text.len() > 2000 => Err(format!("too much said: {text}")),
                    _ => Ok(false),
                }
            }
        }
    }

    /// Through the table of formats, or as a user's own tables.
    fn open(&self, input: &Input) -> Result<(), Error> {
        let job = Job::quiet(&self.threads);
        let outcome = if self.reader == "tables" {
            let nodes = Some(self.files[1].clone());
            let edges = self.files[0].clone();
            own::read(&own::Tables { edges, nodes, ..Default::default() }, &job)
        } else {
            let known = FORMATS.iter().any(|format| format.name == self.reader);
            format::read(&self.entry, Some(self.reader).filter(|_| known && input.named), &job)
        };
        outcome.map(drop)
    }

    /// As [`Sample::read`], with the time it takes. A busy machine makes anything slow: what seems
    /// so is read again, and the processor's time counts.
    fn timed(&self, input: &Input) -> Result<(bool, Duration), String> {
        let begun = Instant::now();
        let accepted = self.read(input)?;
        let time = begun.elapsed();
        if time < MAX_TIME / 10 {
            return Ok((accepted, time));
        }
        let begun = processor_time();
        self.read(input)?;
        let time = processor_time() - begun;
        if time < MAX_TIME { Ok((accepted, time)) } else { Err(format!("it took {time:?}")) }
    }

    /// How much memory one input takes.
    fn growth(&self, input: &Input) -> u64 {
        forget_peak();
        let before = peak_bytes();
        let _ = self.read(input);
        peak_bytes().saturating_sub(before)
    }

    fn kept(&self, input: &Input, problem: &str) -> String {
        let name = self.files[input.at].file_name().unwrap_or_default().display();
        let kept = std::env::temp_dir().join(format!("lacis-fuzz-{}-{name}", self.reader));
        fs::write(&kept, &input.bytes).unwrap();
        format!("{name}: {problem}; kept as {}", kept.display())
    }

    /// Reads so many damaged samples.
    fn run(&self, count: usize, seed: u64) -> Result<Survived, String> {
        let mut draw = Draw(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        let mut survived = Survived::default();
        while survived.inputs < count as u64 {
            let batch: Vec<Input> = (0..BATCH).map(|_| self.draw(&mut draw)).collect();
            forget_peak();
            let before = peak_bytes();
            for input in &batch {
                let (accepted, time) =
                    self.timed(input).map_err(|problem| self.kept(input, &problem))?;
                survived.accepted += u64::from(accepted);
                survived.longest = survived.longest.max(time);
            }
            let grown = peak_bytes().saturating_sub(before);
            survived.growth = survived.growth.max(grown);
            if grown > MAX_GROWTH_BYTES
                && let Some(input) = batch.iter().find(|i| self.growth(i) > MAX_GROWTH_BYTES)
            {
                return Err(self.kept(input, &format!("it took {grown} bytes")));
            }
            survived.inputs += batch.len() as u64;
        }
        Ok(survived)
    }
}

/// The most memory the process has had since [`forget_peak`].
fn peak_bytes() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kilobytes = line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok());
    kilobytes.unwrap_or(0) * 1024
}

/// How long processors have worked for this process, or the system for it.
fn processor_time() -> Duration {
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields = stat.rsplit_once(')').map_or("", |(_, fields)| fields);
    let hundredths = fields.split_whitespace().skip(11).take(2).flat_map(str::parse::<u64>);
    Duration::from_millis(10 * hundredths.sum::<u64>())
}

fn forget_peak() {
    // 5 resets the peak to what is used now.
    let _ = fs::write("/proc/self/clear_refs", "5");
}

/// Adds to the record of a reader.
fn note(record: &Path, reader: &str, survived: &Survived) {
    let text = fs::read_to_string(record).unwrap_or_default();
    let mut all: serde_json::Map<_, _> = serde_json::from_str(&text).unwrap_or_default();
    let old = all.remove(reader).unwrap_or_default();
    let number = |key: &str| old[key].as_u64().unwrap_or(0);
    let milliseconds = survived.longest.as_millis() as u64;
    let new = serde_json::json!({
        "inputs": number("inputs") + survived.inputs,
        "accepted": number("accepted") + survived.accepted,
        "longest_ms": number("longest_ms").max(milliseconds),
        "growth_bytes": number("growth_bytes").max(survived.growth),
    });
    all.insert(reader.to_owned(), new);
    fs::write(record, serde_json::to_string_pretty(&all).unwrap() + "\n").unwrap();
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
        let dir = tempfile::tempdir().unwrap();
        let begun = Instant::now();
        match Sample::new(reader, dir.path()).run(count, seed) {
            Ok(survived) => {
                let Survived { inputs, accepted, longest, growth } = survived;
                let (rate, growth) = (inputs as f64 / begun.elapsed().as_secs_f64(), growth >> 20);
                println!(
                    "{reader:<15} {inputs} inputs, {accepted} accepted, {rate:.0} a second, \
                     at most {longest:?} and {growth} MiB"
                );
                args.get(3).into_iter().for_each(|file| note(Path::new(file), reader, &survived));
            }
            Err(problem) => {
                failed = true;
                println!("{reader:<15} FAILED: {problem}");
            }
        }
    }
    std::process::exit(i32::from(failed));
}
