//! Networks: each layer is its formula, one file each, in one table.
//!
//! A layer says what it computes from a matrix of features; its gradients, the order of its
//! products and its kernels follow from that. [`MODELS`] lists what `--model` takes;
//! `examples/own_layer.rs` writes a new one.

pub mod appnp;
pub mod build;
pub mod cheb;
pub mod decode;
pub mod gat;
pub mod gatedgcn;
pub mod gcn;
pub mod gcn2;
pub mod gin;
pub mod init;
pub mod mlp;
pub mod options;
pub mod sage;
pub mod sgc;
pub mod stack;
pub mod tagcn;

use std::fmt;
use std::sync::Arc;

use lacis_core::{Error, Result};
use lacis_plan::Expr;
use lacis_plan::choose::Network;
use lacis_plan::op::{LossKind, NormKind, Read};

pub use build::{Build, ParamSpec};
pub use decode::Decoder;
pub use init::Init;
pub use stack::Jump;

/// What a network is asked to be.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Columns of the features.
    pub inputs: usize,
    /// Columns of the result.
    pub outputs: usize,
    /// Columns between layers; with heads, of all of them together.
    pub hidden: usize,
    /// Layers; for SGC, hops.
    pub layers: usize,
    /// Heads of attention, but in the last layer.
    pub heads: usize,
    /// Heads of the last layer, whose mean is the result.
    pub out_heads: usize,
    /// The slope below 0 of what attention's scores go through.
    pub slope: f64,
    /// Probability that a hidden element is dropped; with attention, a coefficient too.
    pub dropout: f64,
    /// Probability that an element of the features is dropped.
    pub input_dropout: f64,
    /// Probability that APPNP drops an edge, anew in each hop.
    pub edge_dropout: f64,
    /// Linear layers of GIN's network.
    pub mlp_layers: usize,
    /// Between layers.
    pub norm: Option<NormKind>,
    /// How SAGE aggregates.
    pub aggregate: sage::Aggregate,
    /// GIN's epsilon, or where it begins.
    pub eps: f64,
    /// Whether GIN learns its epsilon.
    pub learn_eps: bool,
    /// Whether layers add a bias.
    pub bias: bool,
    /// Whether SAGE and gated layers have weights of their own for the node itself; without them
    /// it does not take part.
    pub root_weight: bool,
    /// Whether the rows of a SAGE layer's result are divided by their lengths.
    pub normalize: bool,
    /// Whether GCN adds loops and divides by degrees; without, edges count by their weights alone.
    pub degrees: bool,
    /// The share that APPNP and GCNII give to what they began with.
    pub alpha: f64,
    /// How fast GCNII's weights lose influence with depth.
    pub theta: f64,
    /// Whether GCNII's weights serve neighbours and first features alike.
    pub shared_weights: bool,
    /// Whether a layer's input is added to its output where they are equally wide.
    pub residual: bool,
    /// How the results of all layers are put together, if they are.
    pub jumping: Option<Jump>,
    /// Hops of a TAGCN or ChebNet layer, of APPNP, and of SGC in the place of its layers.
    pub hops: Option<usize>,
    /// Whether features are stored as a sparse matrix.
    pub sparse_features: bool,
    /// Columns of a row that is learned for each node, where its features only number it.
    pub embed: Option<usize>,
    /// Nodes to graphs, where graphs are classified.
    pub readout: Option<Read>,
    /// Nodes to pairs, where links are predicted; `outputs` are the columns of the nodes' rows.
    pub decoder: Option<Decoder>,
}

impl Config {
    /// Heads, where nothing else is said.
    pub const HEADS: usize = 8;

    /// Two layers of this width, nothing dropped.
    pub fn new(inputs: usize, hidden: usize, outputs: usize) -> Self {
        Config {
            inputs,
            outputs,
            hidden,
            layers: 2,
            heads: Config::HEADS,
            out_heads: 1,
            slope: 0.2,
            dropout: 0.0,
            input_dropout: 0.0,
            edge_dropout: 0.0,
            mlp_layers: 1,
            norm: None,
            aggregate: sage::Aggregate::Mean,
            eps: 0.0,
            learn_eps: false,
            bias: true,
            root_weight: true,
            normalize: false,
            degrees: true,
            alpha: 0.1,
            theta: 0.5,
            shared_weights: true,
            residual: false,
            jumping: None,
            hops: None,
            sparse_features: false,
            embed: None,
            readout: None,
            decoder: None,
        }
    }
}

/// A kind of network.
pub struct Kind {
    /// What `--model` calls it.
    pub name: &'static str,
    /// What it is, in a line.
    pub about: &'static str,
    /// Who proposed it.
    pub paper: &'static str,
    /// What a layer computes.
    pub formula: &'static str,
    /// The network of a configuration.
    pub build: fn(&mut Build, &Config, &Expr) -> Expr,
}

/// Every kind there is.
pub static MODELS: &[Kind] = &[
    gcn::KIND,
    sage::KIND,
    gin::KIND,
    gat::KIND,
    gat::KIND_V2,
    sgc::KIND,
    tagcn::KIND,
    cheb::KIND,
    appnp::KIND,
    gcn2::KIND,
    gatedgcn::KIND,
    mlp::KIND,
];

/// What a kind of network is written with: from features to results.
type Write = dyn Fn(&mut Build, &Config, &Expr) -> Expr + Send + Sync;

/// A kind of network that somebody wrote: [`Recipe::own`](crate::train::Recipe::own) trains it as
/// those of [`MODELS`], with learned features, graphs read out or pairs scored where that is asked.
#[derive(Clone)]
pub struct Own {
    name: String,
    write: Arc<Write>,
}

impl Own {
    /// A kind of this name, and its formula as [`Kind::build`] has it.
    pub fn new(
        name: impl Into<String>,
        write: impl Fn(&mut Build, &Config, &Expr) -> Expr + Send + Sync + 'static,
    ) -> Self {
        Own { name: name.into(), write: Arc::new(write) }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }
}

impl fmt::Debug for Own {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Own({})", self.name)
    }
}

/// The kind of a name.
///
/// # Errors
/// When there is none, with the names that there are.
pub fn kind(name: &str) -> Result<&'static Kind> {
    MODELS.iter().find(|kind| kind.name == name).ok_or_else(|| {
        let names: Vec<&str> = MODELS.iter().map(|kind| kind.name).collect();
        let near = lacis_data::generate::nearest(name, names.iter().copied());
        let near = near.map_or(String::new(), |near| format!("did you mean '{near}'? "));
        let all = names.join(", ");
        let problem = format!("there is no such model; {near}one of {all} would be right");
        Error::argument(format!("model '{name}'"), problem)
    })
}

/// A network with the numbers it begins with.
#[derive(Clone, Debug)]
pub struct Model {
    /// Its kind's name.
    pub name: String,
    /// What it was asked to be.
    pub config: Config,
    /// What it computes.
    pub network: Network,
    /// What it learns.
    pub params: Vec<ParamSpec>,
    /// The activations of its last hidden layer, where it has one.
    pub hidden: Option<Expr>,
    /// Levels of nodes that it goes through.
    pub levels: usize,
}

impl Model {
    /// A network of a kind.
    ///
    /// # Errors
    /// When the configuration makes no sense for it.
    pub fn new(name: &str, config: &Config, loss: Option<LossKind>) -> Result<Self> {
        let kind = kind(name)?;
        check_numbers(config)?;
        check_heads(name, config)?;
        options::check(name, config)?;
        Model::written(name, config, loss, &kind.build)
    }

    /// A network of a kind that is in no table. See [`Own`].
    ///
    /// # Errors
    /// When the configuration makes no sense, or the formula's shapes do not fit.
    pub fn own(own: &Own, config: &Config, loss: Option<LossKind>) -> Result<Self> {
        check_numbers(config)?;
        Model::written(&own.name, config, loss, &*own.write)
    }

    fn written(
        name: &str,
        config: &Config,
        loss: Option<LossKind>,
        write: &dyn Fn(&mut Build, &Config, &Expr) -> Expr,
    ) -> Result<Self> {
        let mut build = Build::new();
        let (x, inner) = inputs(&mut build, config);
        let mut result = write(&mut build, &inner, &x);
        // A stack of layers reads graphs out before its last linear layer; others do it here.
        let reads = config.readout.filter(|_| result.rows() != lacis_plan::Dim::Graphs);
        if let Some(read) = reads {
            result = Expr::new(lacis_plan::Op::Readout(read), vec![result]);
        }
        if let Some(decoder) = config.decoder {
            result = decode::decode(&mut build, config, decoder, &result);
        }
        Model::from_parts(name, config, (build, result), loss)
    }

    /// A network that somebody wrote: what it computes, and the builder it came from.
    ///
    /// # Errors
    /// When its shapes do not fit.
    pub fn from_parts(
        name: &str,
        config: &Config,
        (build, result): (Build, Expr),
        loss: Option<LossKind>,
    ) -> Result<Self> {
        result.check()?;
        let levels = build.level() as usize + 1;
        let hidden = build.hidden().cloned();
        let params = build.into_params();
        let network = Network {
            result,
            loss,
            params: params.iter().map(|param| param.expr.clone()).collect(),
        };
        let (name, config) = (name.to_owned(), config.clone());
        Ok(Model { name, config, network, params, hidden, levels })
    }
}

/// What the first layer takes, and the network's configuration from there on: the features, or a
/// learned row for each node (`emb.weight`, nodes × columns).
fn inputs(build: &mut Build, config: &Config) -> (Expr, Config) {
    let Some(width) = config.embed else { return (build.features(config), config.clone()) };
    let numbers = build.features(&Config { input_dropout: 0.0, ..config.clone() });
    let shape = [config.inputs, width];
    let table = build.param("emb.weight".to_owned(), shape, Init::Normal, build::Stored::AsIs);
    let (layer, key) = (build.layer(), build.key());
    let x = (numbers * table).in_layer(layer).dropout(config.input_dropout, key);
    (x, Config { inputs: width, sparse_features: false, ..config.clone() })
}

/// Whether heads divide the columns between layers, where a network has heads and such layers.
fn check_heads(name: &str, config: &Config) -> Result<()> {
    let Config { hidden, heads, layers, .. } = *config;
    let between = layers > 1 || config.jumping.is_some() || config.readout.is_some();
    if !matches!(name, "gat" | "gatv2") || !between || hidden.is_multiple_of(heads) {
        return Ok(());
    }
    let (below, above) = (hidden / heads * heads, hidden.div_ceil(heads) * heads);
    let near = if below == 0 { above.to_string() } else { format!("{below} or {above}") };
    let problem = format!("do not divide the {hidden} columns between layers; hidden {near} would");
    Err(Error::argument(format!("{heads} heads"), problem))
}

/// Whether every number is one that a network can have.
fn check_numbers(config: &Config) -> Result<()> {
    check(config)?;
    check_most(config)?;
    options::check_ranges(config)
}

/// Columns of a layer at most, and layers, hops or heads: what is more is a slip of the finger, and
/// products of such numbers would not fit in a number.
const MOST_COLUMNS: usize = 1 << 24;
const MOST_LAYERS: usize = 1024;

fn check_most(config: &Config) -> Result<()> {
    let Config { hidden, layers, heads, mlp_layers, .. } = *config;
    let (hops, embed) = (config.hops.unwrap_or(1), config.embed.unwrap_or(1));
    let columns = [("hidden", hidden), ("columns of learned features", embed)];
    let counts = [
        ("layers", layers),
        ("heads", heads),
        ("out-heads", config.out_heads),
        ("mlp-layers", mlp_layers),
        ("hops", hops),
    ];
    let all = columns.map(|(what, of)| (what, of, MOST_COLUMNS)).into_iter();
    let all = all.chain(counts.map(|(what, of)| (what, of, MOST_LAYERS)));
    for (what, of, most) in all {
        if of > most {
            let problem = format!("{of} is too many; 1 to {most} would be right");
            return Err(Error::argument(what, problem));
        }
    }
    Ok(())
}

fn check(config: &Config) -> Result<()> {
    let too_few = |what: &str| Err(Error::argument(what, "0 is too few; 1 or more would be right"));
    match config {
        Config { hidden: 0, .. } => too_few("hidden"),
        Config { layers: 0, .. } => too_few("layers"),
        Config { heads: 0, .. } => too_few("heads"),
        Config { out_heads: 0, .. } => too_few("out-heads"),
        Config { mlp_layers: 0, .. } => too_few("mlp-layers"),
        Config { inputs: 0, .. } => too_few("columns of the features"),
        Config { outputs: 0, decoder: Some(_), .. } => too_few("embedding"),
        Config { outputs: 0, .. } => too_few("classes"),
        Config { hops: Some(0), .. } => too_few("hops"),
        Config { embed: Some(0), .. } => too_few("columns of learned features"),
        _ => Ok(()),
    }
}
