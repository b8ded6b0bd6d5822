//! What may be typed after `lacis train` and `lacis explain`. The doc comments are the help texts.

use std::path::PathBuf;

use clap::Args;
use serde::Serialize;

use crate::args::{Source, as_optional_text};
use crate::defaults::Typed;

pub const TRAIN_HELP: &str = "\
`lacis train` alone trains a GCN on the built-in synthetic set.

Try:  lacis train ~/planetoid/cora --model gat --hidden 64
      lacis train reddit --model sage --sample neighbor:15,10 --batch-size 1024 --eval-every 5
      lacis train TU/PROTEINS --model gin --layers 5 --mlp-layers 2 --norm batch --folds 10
      lacis train my-graph --epochs 500 --patience 50 --runs 10
      lacis train ~/planetoid/cora --task link --metric ap
      lacis train sbm:n=100k,e=2M,classes=10,features=64 --dry-run";

pub const PREDICT_HELP: &str = "\
Try:  lacis predict runs/cora-gcn-1 -o labels.csv
      lacis predict runs/cora-gcn-1 --what embeddings -o h.npy
      lacis predict runs/cora-gcn-1 new-graph -o new.parquet --memory-limit 8G";

pub const EXPLAIN_HELP: &str = "\
Shows the formulas that equal the model's, which were pruned by what, what the others are
predicted to cost on this graph and machine, and the steps of the cheapest.

Try:  lacis explain --model sage --hidden 128
      lacis explain --rules sensei --measure
      lacis explain --without fuse,hoist";

/// The network.
#[derive(Args, Clone, Debug, Serialize)]
#[command(next_help_heading = "The network")]
pub struct Net {
    /// gcn, sage, gin, gat, gatv2, sgc, tagcn, cheb, appnp, gcn2, gatedgcn or mlp
    #[arg(long, value_name = "NAME", default_value = "gcn")]
    pub model: String,
    /// Columns between layers; with heads, of all heads together [default: 64, or what is usual
    /// for the data]
    #[arg(long, alias = "hidden-channels", value_name = "N")]
    pub hidden: Option<usize>,
    /// Layers; for sgc, hops
    #[arg(long, alias = "num-layers", value_name = "N", default_value_t = 2)]
    pub layers: usize,
    /// gat, gatv2: heads of attention, in all layers but the last
    #[arg(long, value_name = "N", default_value_t = lacis::nn::Config::HEADS)]
    pub heads: usize,
    /// gat, gatv2: heads of the last layer, whose mean is the result
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub out_heads: usize,
    /// gat, gatv2: the slope below 0 of what scores go through
    #[arg(long, value_name = "F", default_value_t = 0.2, allow_negative_numbers = true)]
    pub negative_slope: f64,
    /// Probability that a hidden element (with attention, a coefficient too) is dropped
    #[arg(long, value_name = "P", default_value_t = 0.5)]
    pub dropout: f64,
    /// Probability that an element of the features is dropped
    #[arg(long, value_name = "P", default_value_t = 0.0)]
    pub input_dropout: f64,
    /// appnp: probability that an edge is dropped, anew in each hop
    #[arg(long, value_name = "P", default_value_t = 0.0)]
    pub edge_dropout: f64,
    /// Linear layers in GIN's network, or what is usual for the data
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub mlp_layers: usize,
    /// Normalisation between layers, or what is usual for the data
    #[arg(long, value_name = "none|batch|layer", default_value = "none")]
    #[arg(value_parser = ["none", "batch", "layer"])]
    pub norm: String,
    /// How SAGE aggregates neighbours
    #[arg(long, value_name = "mean|sum|max", default_value = "mean")]
    #[arg(value_parser = ["mean", "sum", "max"])]
    pub aggregate: String,
    /// GIN's epsilon, or where it begins
    #[arg(long, value_name = "F", default_value_t = 0.0, allow_negative_numbers = true)]
    pub eps: f64,
    /// Let GIN learn its epsilon
    #[arg(long)]
    pub learn_eps: bool,
    /// Layers of convolution without a bias
    #[arg(long)]
    pub no_bias: bool,
    /// sage and gatedgcn: only neighbours, no weights for the node itself
    #[arg(long)]
    pub no_root_weight: bool,
    /// sage: divide each row of a layer's result by its length
    #[arg(long)]
    pub normalize: bool,
    /// gcn: no loops and no degrees, edges count by their weights alone
    #[arg(long)]
    pub no_normalize: bool,
    /// appnp, gcn2: their α, the share of what propagation began with in each hop or layer
    #[arg(long, value_name = "F", default_value_t = 0.1, allow_negative_numbers = true)]
    pub teleport: f64,
    /// gcn2: its θ; weights lose influence with depth, slower where it is greater
    #[arg(long, value_name = "F", default_value_t = 0.5, allow_negative_numbers = true)]
    pub theta: f64,
    /// gcn2: weights of their own for the first features in each layer
    #[arg(long)]
    pub no_shared_weights: bool,
    /// Add a layer's input to its output where both are equally wide
    #[arg(long)]
    pub residual: bool,
    /// Put the results of all layers together before a last linear layer: beside each other (cat,
    /// also where nothing is said), or the greatest of each element (max)
    #[arg(long, value_name = "cat|max", num_args = 0..=1, require_equals = true)]
    #[arg(default_missing_value = "cat", value_parser = ["cat", "max"])]
    pub jumping: Option<String>,
    /// How the nodes of a graph become one row, where graphs are classified
    #[arg(long, value_name = "sum|mean|max", default_value = "sum")]
    #[arg(value_parser = ["sum", "mean", "max"])]
    pub readout: String,
    /// Hops of a layer of tagcn and cheb, of appnp or sgc [default: 3, 3, 10, --layers]
    #[arg(long, value_name = "N")]
    pub hops: Option<usize>,
    /// With --task link: how two nodes' rows become a score [default: dot]
    #[arg(long, value_name = "dot|mlp", value_parser = ["dot", "mlp"])]
    pub decoder: Option<String>,
    /// With --task link: columns of a node's row [default: half of --hidden]
    #[arg(long, value_name = "N")]
    pub embedding: Option<usize>,
}

/// What the planner may do.
#[derive(Args, Clone, Debug, Serialize)]
#[command(next_help_heading = "The plan")]
pub struct Planning {
    /// auto, measured (time the candidates), the id of a plan, or a plan's FILE
    #[arg(long, value_name = "auto|measured|ID|FILE", default_value = "auto")]
    pub plan: String,
    /// Equalities to use; sensei: re-association alone, as that paper
    #[arg(long, value_name = "all|sensei", default_value = "all", value_parser = ["all", "sensei"])]
    pub rules: String,
    /// Exact savings to leave out: hoist, input-grad, reach, zero-rows, symmetry, fuse, or all
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub without: Vec<String>,
    /// Only plans with which the process, graph included, stays below this
    #[arg(long, value_name = "8G|80%")]
    pub memory_limit: Option<String>,
    /// What features and activations are stored in; weights, sums and the optimizer stay f32
    #[arg(long, value_name = "f32|bf16", default_value = "f32", value_parser = ["f32", "bf16"])]
    pub precision: String,
}

/// Backward products from some of their pairs.
#[derive(Args, Clone, Debug, Serialize)]
#[command(next_help_heading = "Approximation")]
pub struct Approximation {
    /// Sample backward products: rsc as published, adaptive by score and work without bias
    #[arg(long, value_name = "off|rsc|adaptive", default_value = "off")]
    #[arg(value_parser = ["off", "rsc", "adaptive"])]
    pub approx: String,
    /// The share of the backward products' work that is done; with --approx-error, at first
    #[arg(long, value_name = "C", default_value_t = 0.1, allow_negative_numbers = true)]
    pub approx_budget: f64,
    /// The relative error of each product instead; the budget follows
    #[arg(long, value_name = "E", allow_negative_numbers = true)]
    pub approx_error: Option<f64>,
    /// The relative error from which on a layer is computed exactly: rsc's is 0.2 and adaptive's 1,
    /// or 1.5 times --approx-error; `inf` for none
    #[arg(long, value_name = "B", allow_negative_numbers = true)]
    #[serde(serialize_with = "crate::args::as_number_or_word")]
    pub approx_bound: Option<f64>,
    /// The share of epochs after which everything is exact
    #[arg(long, value_name = "S", default_value_t = 0.8, allow_negative_numbers = true)]
    pub approx_switch: f64,
    /// Epochs that share a choice of pairs, at most
    #[arg(long, value_name = "N", default_value_t = 10)]
    pub approx_interval: usize,
    /// Who gets how much of the budget: layers by what they lose, or all the same
    #[arg(long, value_name = "layers|uniform", default_value = "layers")]
    #[arg(value_parser = ["layers", "uniform"])]
    pub approx_allocation: String,
    /// Sample even where that is predicted to take longer
    #[arg(long)]
    pub approx_force: bool,
}

/// How it learns.
#[derive(Args, Clone, Debug, Serialize)]
#[command(next_help_heading = "Training")]
pub struct Learning {
    /// How often all training nodes are seen
    #[arg(long, value_name = "N", default_value_t = 200)]
    pub epochs: usize,
    /// Learning rate
    #[arg(long, value_name = "F", default_value_t = 0.01, allow_negative_numbers = true)]
    pub lr: f64,
    /// L2 penalty (adam, sgd), or decay of weights (adamw)
    #[arg(long, value_name = "F", default_value_t = 5e-4, allow_negative_numbers = true)]
    pub weight_decay: f64,
    /// adam, adamw or sgd
    #[arg(long, value_name = "NAME", default_value = "adam")]
    #[arg(value_parser = ["adam", "adamw", "sgd"])]
    pub optimizer: String,
    /// How the learning rate goes: none, step[:EVERY:FACTOR], cosine[:EPOCHS[:LEAST]],
    /// plateau[:PATIENCE:FACTOR], each after warmup:EPOCHS, if the rate is to rise first
    #[arg(long, value_name = "NAME", default_value = "none")]
    pub schedule: String,
    /// Shorten gradients that are longer than this, all together
    #[arg(long, value_name = "NORM")]
    pub clip: Option<f64>,
    /// Train on batches: neighbor:15,10 (edges to draw per hop, -1 for all) or saint:STEPS
    /// [default: all nodes at once]
    #[arg(long, value_name = "neighbor:LIST|saint:STEPS", conflicts_with = "num_neighbors")]
    pub sample: Option<String>,
    /// The same as --sample neighbor:LIST
    #[arg(long, value_name = "LIST", hide = true, allow_hyphen_values = true)]
    pub num_neighbors: Option<String>,
    /// Nodes, walks or graphs of a batch [default: 1024, 1024, 32]
    #[arg(long, value_name = "N")]
    pub batch_size: Option<usize>,
    /// Momentum of sgd
    #[arg(long, value_name = "F", default_value_t = 0.0, allow_negative_numbers = true)]
    pub momentum: f64,
    /// Stop when validation has not improved for so many epochs, looked at every --eval-every
    #[arg(long, value_name = "N")]
    pub patience: Option<usize>,
    /// Who trains and who judges; `all` trains on every labelled node, `random:0.1` on a tenth of
    /// them; a FILE names each part (node,part in .csv, lists in .json, masks in .npz or .npy)
    /// [default: the data's own, else random]
    #[arg(long, value_name = "canonical|random|random:SHARE|planetoid|all|FILE")]
    pub split: Option<String>,
    /// Cut the items into so many folds, train once with each as the judge
    #[arg(long, value_name = "N", conflicts_with = "split", value_parser = three_or_more)]
    pub folds: Option<usize>,
    /// Only this one of the folds, from 1
    #[arg(long, value_name = "I", requires = "folds")]
    pub fold: Option<usize>,
    /// Another graph with the same features that chooses the best epoch; then all nodes of DATA
    /// train unless --split says otherwise
    #[arg(long, value_name = "DATA")]
    pub val_data: Option<String>,
    /// Another graph with the same features that judges
    #[arg(long, value_name = "DATA")]
    pub test_data: Option<String>,
    /// What is predicted: node, graph of a collection, or link, whether two nodes are joined
    /// [default: node or graph, by the data]
    #[arg(long, value_name = "node|link|graph", value_parser = ["node", "link", "graph"])]
    pub task: Option<String>,
    /// accuracy, roc-auc, f1-micro, f1-macro, ap, mae, rmse; of links roc-auc, ap, hits@K, mrr
    /// [default: by the task and the labels]
    #[arg(long, value_name = "NAME")]
    pub metric: Option<String>,
    /// Epochs between evaluations; 0 evaluates at the end only
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub eval_every: usize,
}

/// What is kept.
#[derive(Args, Clone, Debug, Serialize)]
#[command(next_help_heading = "The run")]
pub struct Running {
    /// Train this often, with seed, seed + 1, …
    #[arg(long, value_name = "N", default_value_t = 1)]
    #[arg(value_parser = clap::value_parser!(u64).range(1..))]
    pub runs: u64,
    /// The folder of the run [default: runs/DATA-MODEL-K]
    #[arg(long, value_name = "DIR")]
    #[serde(serialize_with = "as_optional_text")]
    pub out: Option<PathBuf>,
    /// Write nothing
    #[arg(long, conflicts_with_all = ["out", "resume"])]
    pub no_save: bool,
    /// Go on with an interrupted run, to the same bits
    #[arg(long, value_name = "DIR", conflicts_with = "runs")]
    #[serde(skip)]
    pub resume: Option<PathBuf>,
    /// Save and stop after this long: 2h, 90m, 30s
    #[arg(long, value_name = "TIME")]
    pub time_limit: Option<String>,
    /// Save every N epochs too; every 20 seconds it is saved anyway
    #[arg(long, value_name = "N", value_parser = positive)]
    #[serde(skip)]
    pub checkpoint_every: Option<usize>,
    /// Write what took how long, for Perfetto (ui.perfetto.dev) or chrome://tracing
    #[arg(long, value_name = "FILE")]
    #[serde(skip)]
    pub trace: Option<PathBuf>,
    /// Show data, plan, predicted time and memory, and stop
    #[arg(long)]
    #[serde(skip)]
    pub dry_run: bool,
}

#[derive(Args, Clone, Debug, Serialize)]
pub struct Train {
    #[command(flatten)]
    pub source: Source,
    #[command(flatten)]
    pub net: Net,
    #[command(flatten)]
    pub learning: Learning,
    #[command(flatten)]
    pub planning: Planning,
    #[command(flatten)]
    pub approximation: Approximation,
    #[command(flatten)]
    pub running: Running,
    /// Write the plan here, for --plan FILE
    #[arg(long, value_name = "FILE")]
    #[serde(serialize_with = "as_optional_text")]
    pub save_plan: Option<PathBuf>,
    /// Replace the file that --save-plan names
    #[arg(long, requires = "save_plan")]
    #[serde(skip)]
    pub overwrite: bool,
    #[arg(skip)]
    #[serde(skip)]
    pub typed: Typed,
}

#[derive(Args, Clone, Debug, Serialize)]
pub struct Explain {
    #[command(flatten)]
    pub source: Source,
    #[command(flatten)]
    pub net: Net,
    #[command(flatten)]
    pub learning: Learning,
    #[command(flatten)]
    pub planning: Planning,
    #[command(flatten)]
    pub approximation: Approximation,
    /// Add measured times of every kept candidate; the choice stays
    #[arg(long)]
    pub measure: bool,
    /// Plan the forward pass alone, as `lacis predict` runs it, repeated --epochs times
    #[arg(long)]
    pub inference: bool,
    /// Show all candidates, the pruned ones too
    #[arg(long)]
    pub all: bool,
    #[arg(skip)]
    #[serde(skip)]
    pub typed: Typed,
}

#[derive(Args, Clone, Debug, Serialize)]
pub struct Eval {
    /// The folder of a run
    #[serde(serialize_with = "crate::args::as_text")]
    pub run: PathBuf,
    /// Other data than the run's own
    pub data: Option<String>,
    /// Another metric than the run's
    #[arg(long, value_name = "NAME")]
    pub metric: Option<String>,
    /// What the run has to predict, or it is an error
    #[arg(long, value_name = "node|link|graph", value_parser = ["node", "link", "graph"])]
    pub task: Option<String>,
    /// Another graph whose nodes validate [default: the run's]
    #[arg(long, value_name = "DATA")]
    pub val_data: Option<String>,
    /// Another graph whose nodes test [default: the run's]
    #[arg(long, value_name = "DATA")]
    pub test_data: Option<String>,
    /// Other nodes than those that the run judged
    #[arg(long, value_name = "canonical|random|random:SHARE|planetoid|all|FILE")]
    pub split: Option<String>,
}

#[derive(Args, Clone, Debug, Serialize)]
pub struct Predict {
    /// The folder of a run
    #[serde(serialize_with = "crate::args::as_text")]
    pub run: PathBuf,
    /// Other data than the run's own
    pub data: Option<String>,
    /// The file to write: .csv, .npy or .parquet
    #[arg(short, long = "output", value_name = "FILE")]
    #[serde(serialize_with = "crate::args::as_text")]
    pub output: PathBuf,
    /// What to write of each node; embeddings are the activations of the last hidden layer
    #[arg(long, value_name = "labels|probs|logits|embeddings", default_value = "labels")]
    #[arg(value_parser = ["labels", "probs", "logits", "embeddings"])]
    pub what: String,
    /// Only these nodes, in this order: a file with an id of the data, or a number, a line
    #[arg(long, value_name = "FILE")]
    #[serde(serialize_with = "as_optional_text")]
    pub nodes: Option<PathBuf>,
    /// Of a run that predicts links: the pairs to score, source,target a line
    #[arg(long, value_name = "FILE")]
    #[serde(serialize_with = "as_optional_text")]
    pub pairs: Option<PathBuf>,
    /// Most memory of the process, graph included: 8G, 512M, 80%; layer by layer where need be
    #[arg(long, value_name = "SIZE")]
    pub memory_limit: Option<String>,
    /// Replace what is there
    #[arg(long)]
    pub overwrite: bool,
}

/// A whole number from 3 on: one fold tests, one validates, and some train.
fn three_or_more(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(number) if number > 2 => Ok(number),
        _ => Err("a whole number from 3 on would be right".to_owned()),
    }
}

/// A whole number from 1 on.
fn positive(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(number) if number > 0 => Ok(number),
        _ => Err("a whole number from 1 on would be right".to_owned()),
    }
}
