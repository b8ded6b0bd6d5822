//! What the user may type after `data convert --edges` and `data fetch`.

use std::path::PathBuf;

use clap::Args;
use serde::Serialize;

use crate::args::as_optional_text;

pub const FETCH_HELP: &str = "\
A broken download is taken up where it ended. Sets are kept in LACIS_DATA, else in the cache folder.

Try:  lacis data fetch cora && lacis data info cora";

/// A user's own tables, CSV or Parquet.
#[derive(Args, Clone, Serialize)]
#[command(next_help_heading = "Own tables, CSV, TSV or Parquet, instead of DATA")]
pub struct OwnTables {
    /// The table of edges: source, target and perhaps a weight, ids of any kind
    #[arg(long, value_name = "FILE", conflicts_with_all = ["data", "format"])]
    #[serde(serialize_with = "as_optional_text")]
    pub edges: Option<PathBuf>,
    /// The table of nodes; its other columns are features
    #[arg(long, value_name = "FILE", requires = "edges")]
    #[serde(serialize_with = "as_optional_text")]
    pub nodes: Option<PathBuf>,
    /// The nodes' ids [default: id, or the first column]
    #[arg(long, value_name = "NAME", requires = "nodes")]
    pub id_col: Option<String>,
    /// What is to be predicted [default: label, y, class, target, if there is one]
    #[arg(long, value_name = "NAME", requires = "nodes")]
    pub label_col: Option<String>,
    /// train, val or test [default: split, if there is one]
    #[arg(long, value_name = "NAME", requires = "nodes")]
    pub split_col: Option<String>,
    /// Columns of the nodes that are no features, with commas
    #[arg(long, value_name = "NAMES", requires = "nodes", value_delimiter = ',')]
    pub ignore_cols: Vec<String>,
    /// Where an edge begins [default: source, src, from, …, or the first column]
    #[arg(long, value_name = "NAME", requires = "edges")]
    pub source_col: Option<String>,
    /// Where an edge ends [default: target, dst, to, …, or the second column]
    #[arg(long, value_name = "NAME", requires = "edges")]
    pub target_col: Option<String>,
    /// The edges' weights [default: weight, if there is one]
    #[arg(long, value_name = "NAME", requires = "edges")]
    pub weight_col: Option<String>,
}

/// What to download, and from where.
#[derive(Args, Clone, Serialize)]
pub struct Fetch {
    /// A public set; `lacis data list` shows them
    pub name: String,
    /// Take the files from this address, by their names, instead of from their source
    #[arg(long, value_name = "URL")]
    pub mirror: Option<String>,
    /// How many seconds a server may say nothing
    #[arg(long, value_name = "S", default_value_t = 20)]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub patience: u64,
}
