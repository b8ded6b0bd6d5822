//! The Rust side of `benchmarks/loading.py`: does what it is told on stdin, and says how long it
//! took. One command a line, one JSON line back:
//!
//! ```text
//! coo N ROWS COLS [VALUES]   entries in raw u32/f32 files, to a sorted, summed matrix
//! open DATA                  a path, a generator or a set
//! ```

use std::io::{BufRead, Write};
use std::time::Instant;

use lacis_core::{Coo, Csr, Error, Extent, Repeats, Result, Threads};
use lacis_data::Job;

fn main() -> std::io::Result<()> {
    let threads = Threads::available();
    let mut arrays = Arrays::default();
    for line in std::io::stdin().lock().lines() {
        let line = line?;
        let words: Vec<&str> = line.split_whitespace().collect();
        let answer = match words[..] {
            ["coo", n, rows, cols] => coo(n, [rows, cols, ""], &mut arrays, &threads),
            ["coo", n, rows, cols, values] => coo(n, [rows, cols, values], &mut arrays, &threads),
            ["open", data] => open(data, &threads),
            _ => Ok(format!("{{\"error\":\"unknown command {line:?}\"}}")),
        };
        let answer = answer.unwrap_or_else(|e| format!("{{\"error\":{:?}}}", e.to_string()));
        writeln!(std::io::stdout(), "{answer}")?;
    }
    Ok(())
}

/// What was read last, so that repeated rounds time the work and not the reading.
#[derive(Default)]
struct Arrays {
    names: [String; 3],
    words: [Vec<u32>; 3],
}

impl Arrays {
    fn load(&mut self, names: [&str; 3]) -> std::io::Result<()> {
        for (slot, name) in names.into_iter().enumerate().filter(|(_, name)| !name.is_empty()) {
            if self.names[slot] != name {
                let bytes = std::fs::read(name)?;
                let word = |b: &[u8]| u32::from_le_bytes([b[0], b[1], b[2], b[3]]);
                self.words[slot] = bytes.chunks_exact(4).map(word).collect();
                self.names[slot] = name.to_owned();
            }
        }
        Ok(())
    }
}

fn coo(n: &str, names: [&str; 3], arrays: &mut Arrays, threads: &Threads) -> Result<String> {
    arrays.load(names).map_err(|e| Error::io("read", names[0], e))?;
    let n: usize = n.parse().map_err(|_| Error::argument("n", "a number would be right"))?;
    let [rows, cols, values] = &arrays.words;
    let weighted = !names[2].is_empty();
    let values: Vec<f32> = values.iter().map(|&bits| f32::from_bits(bits)).collect();
    let begun = Instant::now();
    let list = Coo::from_slices(rows, cols, weighted.then_some(&values[..]), threads)?;
    let repeats = if weighted { Repeats::Sum } else { Repeats::Merge };
    let csr = list.into_csr(Extent { n_rows: Some(n), n_cols: Some(n) }, repeats, threads)?;
    Ok(report(begun, &csr))
}

fn open(data: &str, threads: &Threads) -> Result<String> {
    let begun = Instant::now();
    let set = lacis_data::open(data, &Job::quiet(threads))?;
    Ok(report(begun, set.graph().adjacency()))
}

fn report(begun: Instant, csr: &Csr) -> String {
    let ms = begun.elapsed().as_secs_f64() * 1e3;
    let sum: f64 = match csr.values() {
        Some(values) => values.iter().map(|&v| f64::from(v)).sum(),
        None => csr.nnz() as f64,
    };
    let check: u64 = csr.cols().iter().map(|&j| u64::from(j)).sum();
    let (nnz, bytes, peak) = (csr.nnz(), csr.bytes(), peak_bytes());
    format!(
        "{{\"ms\":{ms:.3},\"nnz\":{nnz},\"sum\":{sum},\"column_sum\":{check},\
         \"graph_bytes\":{bytes},\"peak_bytes\":{peak}}}"
    )
}

/// The most memory this process has had, as the kernel counts it.
fn peak_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("VmHWM")).unwrap_or_default();
    let kilobytes: u64 = line.split_whitespace().nth(1).and_then(|n| n.parse().ok()).unwrap_or(0);
    kilobytes * 1024
}
