//! What the user may type after `lacis tune` and `lacis bench`.

use std::path::PathBuf;
use std::str::FromStr;

use clap::{Args, Subcommand};
use serde::Serialize;

use crate::args::{Changes, as_optional_text};

pub const TUNE_HELP: &str = "\
The profile holds the speed of memory and of every kernel; plans and benchmarks choose by it.

Try:  lacis tune --quick                          half a minute
      lacis tune --list                           kernels, choices and why
      lacis tune --graph rmat:n=100k,e=1M --k 16..1024
                                                  which width suits this graph and machine";

const OPS_HELP: &str = "\
Every result is checked before it is timed; contestants take turns, and medians count.
spgemm, transpose, sort and coalesce have no width: --k does not count, and they run once.

Try:  lacis bench ops --op spmm --graph rmat:n=100k,e=1M --k 16,64 --peers torch,scipy
      lacis bench spmm --graph karate --k 16..256 --all-kernels
      lacis bench ops --op transpose,sort,coalesce --graph rmat:n=100k,e=1M --peers torch,scipy
      lacis bench ops --suite quick --peers torch,pyg,scipy -o RESULTS.jsonl

A suite begins with what takes the time in whole models. `paper` has the grid of Hosseini et al.
(2022), without spline convolution and f16; docs/benchmarks-method.md has the rest.";

const COMPARE_HELP: &str = "\
A ratio is B's time over A's: above 1, B is slower. Peers that both timed show what the machine did.

Try:  lacis bench compare before.jsonl after.jsonl";

/// Two files of results.
#[derive(Args, Clone, Serialize)]
pub struct Comparison {
    /// Results of `bench ops` or `bench train`: records, or JSON lines
    #[serde(serialize_with = "crate::args::as_text")]
    pub a: PathBuf,
    /// Those to compare with them
    #[serde(serialize_with = "crate::args::as_text")]
    pub b: PathBuf,
    /// From this ratio on, a time counts as a regression
    #[arg(long, value_name = "F", default_value_t = 1.1)]
    pub worse: f64,
    /// Lines to print; all go to --json
    #[arg(long, value_name = "N", default_value_t = 30)]
    pub top: usize,
}

const APPROX_HELP: &str = "\
A step's time is that of as many steps as share a choice, the choice among them.

Try:  lacis bench approx --graph rmat:n=100k,e=5M --k 256 --budget 0.1,0.3";

/// One product, sampled.
#[derive(Args, Clone, Serialize)]
pub struct Sampled {
    /// A path, a built-in set or a generator
    #[arg(long, value_name = "DATA", default_value = "cora-like")]
    pub graph: String,
    /// Columns of the gradient
    #[arg(long, value_name = "N", default_value_t = 256)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=65536))]
    pub k: u32,
    /// rsc, adaptive, or both
    #[arg(long, value_name = "NAME,…", value_delimiter = ',', default_value = "rsc,adaptive")]
    #[arg(value_parser = ["rsc", "adaptive"])]
    pub policy: Vec<String>,
    /// Shares of the work
    #[arg(long, value_name = "C,…", value_delimiter = ',', default_value = "0.1,0.3")]
    pub budget: Vec<f64>,
    /// Steps that share a choice
    #[arg(long, value_name = "N", default_value_t = 10)]
    pub interval: usize,
    /// How often both take a turn
    #[arg(long, value_name = "N", default_value_t = 3)]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub rounds: u16,
    /// Read the graph as this format instead of the one it looks like
    #[arg(long, value_name = "NAME")]
    pub format: Option<String>,
    #[command(flatten)]
    pub changes: Changes,
}

/// Measuring a machine.
#[derive(Args, Clone, Serialize)]
pub struct Tune {
    /// A coarser look that takes under half a minute instead of five
    #[arg(long)]
    pub quick: bool,
    /// Print kernels, choices and why; measure nothing
    #[arg(long, conflicts_with_all = ["quick", "graph", "from"])]
    pub list: bool,
    /// How much faster than a plain loop the SpMM of this graph is, for each width
    #[arg(long, value_name = "DATA", conflicts_with = "quick")]
    pub graph: Option<String>,
    /// Widths of the curve: 16..1024 doubles, 16,41,64 lists
    #[arg(long, value_name = "WIDTHS", default_value = "16..1024", requires = "graph")]
    pub k: Widths,
    /// Build the profile from results of `lacis bench ops --all-kernels --json`
    #[arg(long, value_name = "RESULTS", conflicts_with_all = ["quick", "graph"])]
    #[serde(serialize_with = "as_optional_text")]
    pub from: Option<PathBuf>,
}

const TRAIN_HELP: &str = "\
FILE lists graphs, models, widths, modes and peers (docs/benchmarks-method.md). Both sides begin
with the same weights; times count only where losses agree. A record goes on where it ended.

Try:  lacis bench train benchmarks/train.toml --data GRAPHS -o RECORD.jsonl --seconds 600
      lacis bench table RECORD.jsonl";

/// Trainings beside those of others.
#[derive(Args, Clone, Serialize)]
pub struct TrainContest {
    /// The definition, as TOML
    #[serde(serialize_with = "crate::args::as_text")]
    pub file: PathBuf,
    /// Where the graphs' files lie [default: beside FILE]
    #[arg(long, value_name = "DIR")]
    #[serde(serialize_with = "as_optional_text")]
    pub data: Option<PathBuf>,
    /// The record: a line for every case; cases that it has are not measured again
    #[arg(short, long = "output", value_name = "RECORD.jsonl")]
    #[serde(serialize_with = "as_optional_text")]
    pub output: Option<PathBuf>,
    /// Begin no new case after so long; the same command goes on later
    #[arg(long, value_name = "N")]
    pub seconds: Option<u64>,
    /// Try cases again that the record left out
    #[arg(long)]
    pub retry: bool,
    /// The Python that has the peers
    #[arg(long, value_name = "PATH", default_value = "python3")]
    pub python: String,
    /// Begin the record anew
    #[arg(long)]
    pub overwrite: bool,
}

/// Records as tables.
#[derive(Args, Clone, Serialize)]
pub struct Tabled {
    /// Records of `lacis bench train`
    #[arg(required = true, value_name = "RECORD")]
    pub records: Vec<PathBuf>,
    /// Milliseconds of an epoch, or peak memory above graph and features
    #[arg(long, value_name = "time|memory", default_value = "time")]
    #[arg(value_parser = ["time", "memory"])]
    pub of: String,
    /// Only these graphs
    #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
    pub graph: Vec<String>,
    /// Put the table into a document, between `<!-- table NAME -->` and `<!-- end NAME -->`
    #[arg(long, value_name = "FILE.md")]
    #[serde(serialize_with = "as_optional_text")]
    pub into: Option<PathBuf>,
    /// The NAME of these marks
    #[arg(long, value_name = "NAME", default_value = "train", requires = "into")]
    pub name: String,
}

#[derive(Subcommand)]
pub enum BenchVerb {
    /// Time operations on a graph, one line per problem
    #[command(after_help = OPS_HELP)]
    Ops {
        /// The operations, or `all`; `lacis tune --list` names them [default: spmm; suites: all]
        #[arg(long, value_name = "OP,…", value_delimiter = ',')]
        op: Vec<String>,
        /// Many problems: a quick look, a paper's grid, whole graphs; -o goes on where it ended
        #[arg(long, value_name = "quick|paper|graphs", value_parser = ["quick", "paper", "graphs"])]
        #[arg(conflicts_with_all = ["graph", "k", "n", "reduce", "weighted", "dtype", "axis"])]
        suite: Option<String>,
        /// Of a suite: begin no new problem after so long; the same command goes on later
        #[arg(long, value_name = "N", requires = "suite")]
        seconds: Option<u64>,
        #[command(flatten)]
        args: Contest,
    },
    /// Time whole trainings beside PyTorch Geometric's, as a file defines them
    #[command(after_help = TRAIN_HELP)]
    Train {
        #[command(flatten)]
        args: TrainContest,
    },
    /// One side of `bench train`: trains when it is told to
    #[command(hide = true)]
    TrainWorker {
        /// What comes after `lacis`
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        words: Vec<String>,
    },
    /// Compare two files of results: ratios, the worst first, and their mean
    #[command(after_help = COMPARE_HELP)]
    Compare {
        #[command(flatten)]
        args: Comparison,
    },
    /// Print the table of a record of `bench train`, or put it into a document
    Table {
        #[command(flatten)]
        args: Tabled,
    },
    /// Time one backward product with all pairs against some, choosing them included
    #[command(after_help = APPROX_HELP)]
    Approx {
        #[command(flatten)]
        args: Sampled,
    },
    /// The same as `ops --op spmm`
    #[command(after_help = OPS_HELP)]
    Spmm {
        #[command(flatten)]
        args: Contest,
    },
}

/// Libraries that operations are timed beside.
const PEERS: [&str; 6] = ["torch", "torch+thp", "torch_scatter", "torch_sparse", "pyg", "scipy"];

/// What to time, and beside whom.
#[derive(Args, Clone, Serialize)]
pub struct Contest {
    /// A path, a built-in set or a generator
    #[arg(long, value_name = "DATA", default_value = "cora-like")]
    pub graph: String,
    /// Widths: 16,41,64 lists, 16..1024 doubles
    #[arg(long, value_name = "WIDTHS", default_value = "16,32,64,128")]
    pub k: Widths,
    /// Columns of the other factor of a dense product; 0 is as many as it has rows
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub n: usize,
    /// How a node's messages become one
    #[arg(long, value_name = "HOW", default_value = "sum")]
    #[arg(value_parser = ["sum", "mean", "max", "min", "mul"])]
    pub reduce: String,
    /// Give entries values; a graph that has none gets made-up ones
    #[arg(long)]
    pub weighted: bool,
    /// What matrices are stored in
    #[arg(long, value_name = "TYPE", default_value = "f32", value_parser = ["f32", "bf16", "f64"])]
    pub dtype: String,
    /// Along rows or columns, where an operation has the choice
    #[arg(long, value_name = "0|1", default_value_t = 0)]
    #[arg(value_parser = clap::value_parser!(u8).range(0..=1))]
    pub axis: u8,
    /// Time every kernel on every instruction set, not only the chosen one
    #[arg(long)]
    pub all_kernels: bool,
    /// Libraries to time on the same problem
    #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
    #[arg(value_parser = PEERS)]
    pub peers: Vec<String>,
    /// The Python that has them
    #[arg(long, value_name = "PATH", default_value = "python3")]
    pub python: String,
    /// How often everybody takes a turn
    #[arg(long, value_name = "N", default_value_t = 9)]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=10000))]
    pub rounds: u16,
    /// A file to keep the results in, with the machine and all versions; of a suite, JSON lines
    #[arg(short, long = "output", value_name = "FILE")]
    #[serde(serialize_with = "as_optional_text")]
    pub output: Option<PathBuf>,
    /// Replace the file
    #[arg(long)]
    pub overwrite: bool,
    /// Read the graph as this format instead of the one it looks like
    #[arg(long, value_name = "NAME")]
    pub format: Option<String>,
    #[command(flatten)]
    pub changes: Changes,
}

/// Numbers of columns: `16,41,64`, or `16..1024` for doubled ones.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Widths(pub Vec<usize>);

/// No x is as wide.
const WIDEST: usize = 1 << 20;

impl FromStr for Widths {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number = |part: &str| match part.trim().parse() {
            Ok(k @ 1..=WIDEST) => Ok(k),
            _ => Err(format!("'{part}' is no width; a number from 1 to {WIDEST} would be right")),
        };
        let one = |part: &str| match part.split_once("..") {
            None => Ok(vec![number(part)?]),
            Some((first, last)) => {
                let (first, last) = (number(first)?, number(last)?);
                let doubled = std::iter::successors(Some(first), |k| Some(2 * k));
                Ok(doubled.take_while(|k| *k <= last).collect())
            }
        };
        let all = text.split(',').map(one).collect::<Result<Vec<_>, String>>()?.concat();
        if all.is_empty() { Err(format!("'{text}' holds no width")) } else { Ok(Widths(all)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn widths_are_lists_or_doubled() {
        let widths = |text: &str| text.parse::<Widths>().map(|widths| widths.0);
        assert_eq!(widths("16..128").unwrap(), [16, 32, 64, 128]);
        assert_eq!(widths("16,41,64").unwrap(), [16, 41, 64]);
        assert_eq!(widths("3..20,7").unwrap(), [3, 6, 12, 7]);
        for bad in ["", "0", "16..", "x", "64..16", "9999999999"] {
            assert!(widths(bad).is_err(), "{bad}");
        }
    }
}
