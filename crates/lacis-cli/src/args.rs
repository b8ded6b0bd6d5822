//! What the user may type. The doc comments are the help texts.

use std::path::{Path, PathBuf};

use clap::{Args, Parser, Subcommand};
use clap_complete::Shell;
use serde::Serialize;

pub use crate::args_analyze::Analyze;
pub use crate::args_bench::{BenchVerb, Contest, Tune};
pub use crate::args_data::{Fetch, OwnTables};
pub use crate::args_train::{Eval, Explain, Predict, Train};

/// Graph neural networks, planned for the graph, the sizes and the machine they meet.
#[derive(Parser)]
#[command(name = "lacis", version, propagate_version = true, subcommand_required = false)]
#[command(after_help = "`lacis` alone prints a few lines to try.")]
pub struct Cli {
    #[command(flatten)]
    pub global: Global,
    #[command(subcommand)]
    pub verb: Option<Verb>,
}

/// Flags of every command.
#[derive(Args, Clone, Serialize)]
#[command(next_help_heading = "Every command")]
pub struct Global {
    /// Threads to use [default: what affinity, cgroup, OMP_NUM_THREADS and SLURM leave]
    #[arg(long, global = true, value_name = "N")]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=4096))]
    pub threads: Option<u16>,
    /// The machine profile to use or write [default: LACIS_MACHINE, or in the cache folder]
    #[arg(long, global = true, value_name = "FILE")]
    #[serde(serialize_with = "as_optional_text")]
    pub machine: Option<PathBuf>,
    /// Read flags from a TOML file; what is typed wins
    #[arg(long, global = true, value_name = "FILE")]
    #[serde(serialize_with = "as_optional_text")]
    pub config: Option<PathBuf>,
    /// Write what was found as a page to look at: one file, no network
    #[arg(long, global = true, value_name = "FILE")]
    #[serde(skip)]
    pub html: Option<PathBuf>,
    /// Replace the page that --html names
    #[arg(long, global = true, requires = "html")]
    #[serde(skip)]
    pub overwrite_html: bool,
    /// Print JSON lines for programs instead of text for people
    #[arg(long, global = true)]
    pub json: bool,
    /// No progress, no notes; results and errors only
    #[arg(short, long, global = true)]
    pub quiet: bool,
    /// Say more about what is done
    #[arg(short, long, global = true, conflicts_with = "quiet")]
    pub verbose: bool,
}

#[derive(Subcommand)]
pub enum Verb {
    /// Train a network on a graph
    #[command(after_help = crate::args_train::TRAIN_HELP)]
    Train(Box<Train>),
    /// Judge a run's weights, on its own data or on other data
    Eval(Eval),
    /// Write what a run predicts for each node
    #[command(after_help = crate::args_train::PREDICT_HELP)]
    Predict(Predict),
    /// Show the formulas, costs and steps that the planner weighs for a network
    #[command(after_help = crate::args_train::EXPLAIN_HELP)]
    Explain(Box<Explain>),
    /// Show how much parallelism a network holds, and what using it would cost
    #[command(after_help = crate::args_analyze::ANALYZE_HELP)]
    Analyze(Box<Analyze>),
    /// List, look at, make, convert and check graph data
    #[command(subcommand)]
    Data(DataVerb),
    /// The same as `data info`
    #[command(after_help = DATA_HELP)]
    Info {
        #[command(flatten)]
        source: Source,
    },
    /// Measure this machine, so that kernels are chosen for it
    #[command(after_help = crate::args_bench::TUNE_HELP)]
    Tune(Tune),
    /// Time operations and trainings, beside other libraries too
    #[command(subcommand)]
    Bench(BenchVerb),
    /// Make a page of runs and of files of JSON lines
    #[command(after_help = "Try:  lacis report runs/cora-like-gcn-1 -o run.html")]
    Report(Report),
    /// What this machine has, and what Lacis will use of it
    Doctor,
    /// Print a completion script for a shell
    #[command(after_help = "Try:  source <(lacis completions bash)")]
    Completions {
        /// The shell
        #[arg(value_enum)]
        shell: Shell,
    },
}

const DATA_HELP: &str = "\
DATA is a path, a built-in set or a generator; an existing path wins:
  lacis data info ~/planetoid/cora       a folder or file of a known format
  lacis data info karate                 a built-in set
  lacis data info sbm:n=10k,classes=5    a generator
`lacis data list` shows all of them.";

const GENERATE_HELP: &str = "\
Try:  lacis data generate rmat:n=100k,e=1M,seed=1 -o big

`lacis data list` shows the generators and what they take.";

const CONVERT_HELP: &str = "\
Without an ending, -o names a folder in Lacis's own format, which opens in milliseconds.

Edges run from source to target; --undirected adds the reverse of each.

Try:  lacis data convert edges.csv.gz --undirected -o my-graph
      lacis data convert --edges e.csv --nodes n.csv --label-col y -o my-graph";

#[derive(Subcommand)]
pub enum DataVerb {
    /// Built-in sets, generators and file formats
    List,
    /// Sizes, degrees, features, labels and splits of a graph
    #[command(after_help = DATA_HELP)]
    Info {
        #[command(flatten)]
        source: Source,
    },
    /// Make a graph with a generator and save it
    #[command(
        after_help = GENERATE_HELP
    )]
    Generate {
        /// The generator and its numbers, for example sbm:n=10k,e=100k,classes=5,seed=1
        spec: String,
        #[command(flatten)]
        changes: Changes,
        #[command(flatten)]
        target: Target,
    },
    /// Read a graph in one format and save it in another
    #[command(
        after_help = CONVERT_HELP
    )]
    Convert {
        #[command(flatten)]
        source: Source,
        #[command(flatten)]
        tables: Box<OwnTables>,
        #[command(flatten)]
        target: Target,
    },
    /// Download a public set to where `lacis` looks for it
    #[command(after_help = crate::args_data::FETCH_HELP)]
    Fetch(Fetch),
    /// Read graphs whole and say what, if anything, is wrong with them
    #[command(after_help = "Exit code 0 if all are sound, 1 if not.")]
    Validate {
        /// Paths, built-in sets or generators
        #[arg(required = true, value_name = "DATA")]
        data: Vec<String>,
        /// Read as this format instead of the one it looks like
        #[arg(long, value_name = "NAME")]
        format: Option<String>,
    },
}

/// Where a graph comes from.
#[derive(Args, Clone, Debug, Serialize)]
pub struct Source {
    /// A path, a built-in set or a generator
    #[arg(default_value = "cora-like")]
    pub data: String,
    /// Read as this format instead of the one it looks like
    #[arg(long, value_name = "NAME")]
    pub format: Option<String>,
    #[command(flatten)]
    pub changes: Changes,
    /// Data that the calling program holds; it is used instead of what `data` names.
    #[arg(skip)]
    #[serde(skip)]
    pub given: Option<lacis::Dataset>,
}

/// How the data of a run are called that only a program had: no path, set or generator.
const GIVEN: &str = " (given by a program)";

impl Source {
    /// Takes data that a program holds; a run on them remembers that no name leads to them.
    pub fn give(&mut self, set: lacis::Dataset) {
        self.data = format!("{}{GIVEN}", set.name());
        self.given = Some(set);
    }

    /// Takes other data, whose format is asked for only where their name ends as that of these.
    pub fn is_now(&mut self, data: &str) {
        let ending = |data: &str| Path::new(data).extension().map(ToOwned::to_owned);
        if ending(data) != ending(&self.data) {
            self.format = None;
        }
        self.data = data.to_owned();
    }

    /// Whether only the program that began a run had its data.
    pub fn was_given(&self) -> bool {
        self.data.ends_with(GIVEN)
    }

    /// What a name, a path or a generator stands for, changed.
    pub fn named(data: &str, changes: &Changes) -> Self {
        Source { data: data.to_owned(), format: None, changes: changes.clone(), given: None }
    }
}

/// What to change about a graph after reading it, in this order.
#[derive(Args, Clone, Debug, Default, Serialize)]
#[command(next_help_heading = "Changes to the graph, in this order")]
pub struct Changes {
    /// Use or drop the weights of edges
    #[arg(long, value_name = "use|ignore", default_value = "use", value_parser = ["use", "ignore"])]
    pub edge_weights: String,
    /// Add the reverse of every edge
    #[arg(long)]
    pub undirected: bool,
    /// Keep only the largest connected part
    #[arg(long)]
    pub largest_component: bool,
    /// Add a loop to every node that has none
    #[arg(long)]
    pub self_loops: bool,
    /// Features for a graph: F random ones, `degree`, F that training learns for each node, or a
    /// FILE.npy
    #[arg(long, value_name = "F|random:F|degree|learned:F|FILE.npy")]
    pub features: Option<String>,
    /// Random labels of C classes
    #[arg(long, value_name = "C")]
    pub classes: Option<u32>,
    /// Make each row of features sum to one
    #[arg(long)]
    pub row_normalize: bool,
    /// Seed of random numbers
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub seed: u64,
    /// Seed of random features and labels, where it is another: several runs have the same data
    #[arg(long, value_name = "N")]
    pub data_seed: Option<u64>,
}

impl Changes {
    /// Seed of random features and labels.
    pub fn seed_of_data(&self) -> u64 {
        self.data_seed.unwrap_or(self.seed)
    }
}

/// A path need not be UTF-8; a JSON string must.
pub fn as_text<S: serde::Serializer>(path: &Path, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&path.to_string_lossy())
}

/// The same where there may be none.
pub fn as_optional_text<S: serde::Serializer>(
    path: &Option<PathBuf>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    path.as_ref().map(|path| path.to_string_lossy()).serialize(serializer)
}

/// A number; one that JSON has not, such as `inf`, as text.
pub fn as_number_or_word<S: serde::Serializer>(
    number: &Option<f64>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    match number {
        Some(number) if !number.is_finite() => serializer.serialize_str(&number.to_string()),
        _ => number.serialize(serializer),
    }
}

/// What to show on a page.
#[derive(Args, Clone, Debug)]
pub struct Report {
    /// Folders of runs, or files of JSON lines
    #[arg(required = true, value_name = "RUN|RESULTS")]
    pub paths: Vec<PathBuf>,
    /// The page to write
    #[arg(short, long = "output", value_name = "FILE.html")]
    pub output: PathBuf,
    /// Replace what is there
    #[arg(long)]
    pub overwrite: bool,
}

/// Where a graph goes.
#[derive(Args, Clone, Serialize)]
pub struct Target {
    /// The file or folder to write; its ending chooses the format
    #[arg(short, long = "output", value_name = "PATH")]
    #[serde(serialize_with = "as_text")]
    pub output: PathBuf,
    /// Write this format instead of the one the ending means
    #[arg(long, value_name = "NAME")]
    pub to: Option<String>,
    /// Replace what is there
    #[arg(long)]
    pub overwrite: bool,
}
