//! What may be typed after `lacis analyze`. The doc comments are the help texts.

use clap::Args;
use serde::Serialize;

use crate::args::Source;
use crate::args_train::{Learning, Net, Planning};
use crate::defaults::Typed;

pub const ANALYZE_HELP: &str = "\
Work, depth and bytes of every layer and pass from the plan's own formula, with symbols and in
numbers; then every kind of parallelism for --workers: what crosses the wires on this graph's real
cuts, who waits, how long an epoch takes if a message takes --alpha seconds, and --beta for each of
its bytes.

Try:  lacis analyze --model gat --workers 16
      lacis analyze rmat:n=100k,e=2M --features 64 --classes 10 --workers 64 --alpha 2e-6
      lacis analyze --staleness 1 --json";

#[derive(Args, Clone, Debug, Serialize)]
pub struct Analyze {
    #[command(flatten)]
    pub source: Source,
    #[command(flatten)]
    pub net: Net,
    #[command(flatten)]
    pub learning: Learning,
    #[command(flatten)]
    pub planning: Planning,
    #[command(flatten)]
    pub workers: Workers,
    /// Which flags were given.
    #[arg(skip)]
    #[serde(skip)]
    pub typed: Typed,
}

/// Workers and the wires between them.
#[derive(Args, Clone, Debug, Serialize)]
#[command(next_help_heading = "Workers and wires")]
pub struct Workers {
    /// Workers to share the network among
    #[arg(long, value_name = "P", default_value_t = 8)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1_048_576))]
    pub workers: u32,
    /// Seconds that any message takes, however short
    #[arg(long, value_name = "S", default_value_t = 5e-6, allow_negative_numbers = true)]
    pub alpha: f64,
    /// Seconds that each of its bytes takes: 8e-11 is 100 Gbit/s
    #[arg(long, value_name = "S", default_value_t = 8e-11, allow_negative_numbers = true)]
    pub beta: f64,
    /// Iterations that values in a pipeline may be old
    #[arg(long, value_name = "N", default_value_t = 0)]
    #[arg(value_parser = clap::value_parser!(u8).range(0..=16))]
    pub staleness: u8,
    /// Blocks of nodes that flow through a pipeline
    #[arg(long, value_name = "N", default_value_t = 16)]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=64))]
    pub blocks: u16,
}
