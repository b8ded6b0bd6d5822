//! Results without learning: what a network's weights give on a graph.
//!
//! [`Predictor::run`] computes a plan over the whole graph. Where memory is short it computes
//! layer by layer, some rows at a time: the results are the same up to rounding.

mod pieces;
mod scored;

use std::collections::HashMap;
use std::sync::Arc;

use lacis_core::reference::Moments;
use lacis_core::{Collection, Dataset, Dense, Error, Features, Result, Threads};
use lacis_kernels::Profile;
use lacis_plan::Sizes;
use lacis_plan::choose::{Network, Settings, choose};
use lacis_plan::plan::{ParamInfo, Phase, Plan, Precision};

use crate::costs::Measured;
use crate::exec::{Context, Executor, Nobody, Targets};
use crate::levels::blocks::{Blocks, Cut};
use crate::levels::{Asked, Levels};
use crate::nn::Model;
use crate::pairs::Pairs;
use crate::params::Params;
use crate::store::RunFolder;
use crate::train::Recipe;
use crate::train::setup::{features_for, model_of, readout};
use crate::train::state::load_model;
use pieces::Piece;

/// A graph, and who computes.
#[derive(Clone, Copy)]
pub struct On<'a> {
    /// The data; no labels are needed.
    pub dataset: &'a Dataset,
    /// Who runs loops.
    pub threads: &'a Threads,
    /// What this machine measured.
    pub profile: &'a Profile,
}

/// What is asked of a network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// Its result.
    Logits,
    /// The activations of its last hidden layer; of a network that predicts links, the rows of
    /// nodes that its decoder takes.
    Embeddings,
}

/// How results were computed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Way {
    /// One plan over the whole graph: its id.
    Whole(String),
    /// Layer by layer, in so many blocks of rows altogether.
    Blocks(usize),
}

/// Rows that a block has at least: fewer would take for ever.
const LEAST_ROWS: usize = 64;
/// Bytes that kernels may take for themselves.
const SCRATCH: usize = 4 << 20;

/// A network that only computes results.
///
/// ```
/// use lacis::infer::{On, Predictor, What};
/// use lacis::kernels::Profile;
/// use lacis::{Threads, data::Job, machine::this_machine, nn::Config, train::Recipe};
///
/// let threads = Threads::new(2)?;
/// let set = lacis::open("sbm:n=60,e=200,classes=3,features=5", &Job::quiet(&threads))?;
/// let profile = Profile::unmeasured(this_machine());
/// let on = On { dataset: &set, threads: &threads, profile: &profile };
/// let recipe = Recipe::new("gcn", Config::new(5, 16, 3));
/// let predictor = Predictor::new(on, recipe, 3)?;
/// let (scores, _) = predictor.run(What::Logits, None)?;
/// let (inner, _) = predictor.run(What::Embeddings, None)?;
/// assert_eq!((scores.n_rows(), scores.n_cols(), inner.n_cols()), (60, 3, 16));
/// # Ok::<(), lacis::Error>(())
/// ```
pub struct Predictor<'a> {
    on: On<'a>,
    settings: Settings,
    model: Model,
    features: Arc<Features>,
    params: Params,
    moments: HashMap<u32, Moments>,
}

impl<'a> Predictor<'a> {
    /// A network of a recipe with its first weights and so many columns as result.
    ///
    /// # Errors
    /// When the data has no features, or the configuration makes no sense.
    pub fn new(on: On<'a>, recipe: Recipe, outputs: usize) -> Result<Self> {
        let mut recipe = recipe;
        recipe.config.outputs = outputs;
        recipe.config.readout = readout(on.dataset, &recipe.config);
        let features = features_for(on.dataset, &mut recipe)?;
        let model = model_of(&recipe, None)?;
        let infos = model.params.iter();
        let infos: Vec<ParamInfo> =
            infos.map(|p| ParamInfo { name: p.symbol.clone(), shape: p.shape }).collect();
        let mut specs = model.params.iter();
        let first = |info: &ParamInfo| match specs.next() {
            Some(spec) => spec.init.values(recipe.seed, &spec.name, spec.shape),
            None => Dense::zeros(info.shape[0], info.shape[1]),
        };
        let params = Params::new(&infos, first, recipe.optimizer)?;
        let (settings, moments) = (recipe.settings, HashMap::new());
        Ok(Predictor { on, settings, model, features, params, moments })
    }

    /// Takes the weights that a run kept.
    ///
    /// # Errors
    /// When there are none, or they are of another network.
    pub fn load(&mut self, run: &RunFolder) -> Result<()> {
        self.moments = load_model(&self.model, &mut self.params, run.read_model()?)?;
        Ok(())
    }

    /// The network.
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// The weights, to be changed.
    pub fn params_mut(&mut self) -> &mut Params {
        &mut self.params
    }

    /// Results of all nodes, or of graphs where they are read out, and how they were computed.
    ///
    /// `budget` is how many bytes may be taken beside data and weights; where a plan over the
    /// whole graph takes more, it goes layer by layer.
    ///
    /// # Errors
    /// When there is no hidden layer, or the budget is too small even for that.
    pub fn run(&self, what: What, budget: Option<usize>) -> Result<(Dense, Way)> {
        let network = self.network(what)?;
        let levels = match network.result.rows() {
            lacis_plan::Dim::Nodes(level) => level as usize + 1,
            _ => self.model.levels,
        };
        let graph = self.on.dataset.graph();
        let asked = Asked { graph, features: &self.features, levels, rows: None, reach: false };
        let graphs = self.starts().map_or(0, |starts| starts.len() - 1);
        let sizes = Sizes { iterations: 1, graphs, ..Levels::sizes(&asked, self.on.threads)? };
        let plan = self.planned(&network, &sizes, self.settings.precision)?;
        let needed = whole_bytes(&plan, &sizes, self.on.dataset);
        match budget {
            Some(budget) if budget < needed => {
                let (results, blocks) = self.layer_by_layer(what, budget)?;
                Ok((results, Way::Blocks(blocks)))
            }
            _ => {
                let (id, levels) = (plan.id(), Levels::new(&asked, &plan, self.on.threads)?);
                let mut executor = self.executor(plan)?;
                Ok((self.pass(&mut executor, (&levels, None), copied)?, Way::Whole(id)))
            }
        }
    }

    /// Where graphs begin, and the end, where nodes are read out into graphs.
    fn starts(&self) -> Option<&[u32]> {
        let read_out = self.model.config.readout.is_some();
        self.on.dataset.collection().filter(|_| read_out).map(Collection::starts)
    }

    fn network(&self, what: What) -> Result<Network> {
        let hidden = || {
            let problem = "has no hidden layer, so there are no embeddings; logits would do";
            Error::argument(format!("model '{}'", self.model.name), problem)
        };
        let result = match (what, self.encoded()) {
            (What::Embeddings, Some(rows)) => rows,
            (What::Logits, Some(_)) => {
                let problem = "predicts which nodes are joined: pairs have scores, and nodes \
                               embeddings, but neither labels nor logits";
                return Err(Error::argument(format!("model '{}'", self.model.name), problem));
            }
            (What::Logits, None) => self.model.network.result.clone(),
            (What::Embeddings, None) => self.model.hidden.clone().ok_or_else(hidden)?,
        };
        Ok(Network { result, loss: None, params: self.model.network.params.clone() })
    }

    fn planned(&self, network: &Network, sizes: &Sizes, precision: Precision) -> Result<Plan> {
        // A limit of memory is the budget's business here.
        let settings = Settings { batches: true, memory: None, precision, ..self.settings.clone() };
        Ok(choose(network, sizes, &Measured(self.on.profile), &settings)?.plan)
    }

    fn executor(&self, plan: Plan) -> Result<Executor> {
        let mut executor = Executor::new(Arc::new(plan), self.on.profile, self.on.threads)?;
        *executor.running() = self.moments.clone();
        Ok(executor)
    }

    /// One forward pass; the result is handed to a function.
    fn pass<R>(
        &self,
        executor: &mut Executor,
        (levels, pairs): (&Levels, Option<&Pairs>),
        take: impl FnOnce(lacis_kernels::Mat<'_>) -> R,
    ) -> Result<R> {
        let (graphs, targets) = (self.starts(), Targets::None);
        let context = Context { levels, targets, graphs, pairs, seed: 0, training: false };
        executor.bind(levels, graphs.map_or(0, |starts| starts.len() - 1))?;
        let mut params = self.params.clone();
        executor.run(&[Phase::Once, Phase::Forward], &context, &mut params, &mut Nobody)?;
        Ok(take(executor.result(&context, &params)?))
    }

    /// Results of all nodes layer by layer, as many rows at a time as the budget allows, and how
    /// many blocks of rows that took.
    ///
    /// # Errors
    /// As [`Predictor::run`].
    pub fn layer_by_layer(&self, what: What, budget: usize) -> Result<(Dense, usize)> {
        let result = self.network(what)?.result;
        let mut alive = self.features.clone();
        let mut blocks = 0;
        for piece in pieces::cut(&result, &self.model.network.params)? {
            let (next, count) = self.piece(&piece, &alive, budget)?;
            alive = Arc::new(Features::Dense(next));
            blocks += count;
        }
        match Arc::try_unwrap(alive) {
            Ok(Features::Dense(all)) => Ok((all, blocks)),
            _ => Err(Error::argument("formula", "computes nothing from the features")),
        }
    }

    /// The matrix after a piece, and how many blocks it took.
    fn piece(&self, piece: &Piece, alive: &Arc<Features>, budget: usize) -> Result<(Dense, usize)> {
        let graph = self.on.dataset.graph();
        let n = graph.n_nodes();
        let held = alive_bytes(alive, &self.features) + n * piece.width * size_of::<f32>();
        // What is alive between pieces is f32, whatever a whole pass stores.
        let sizes = whole_sizes(piece, graph, alive);
        let plan = self.planned(&piece.network, &sizes, Precision::F32)?;
        let mut blocks = Blocks::new(graph, &plan, piece.reads)?;
        let held = held + blocks.shared_bytes(graph);
        let mut executor = self.executor(plan)?.sparing();
        let mut next = Dense::try_zeros(n, piece.width)?;
        let (mut start, mut step, mut count) = (0, n.max(1), 0);
        while start < n {
            let room = budget.checked_sub(held + SCRATCH);
            let cut = fitting(&mut blocks, executor.plan(), (start, step, n), alive, room)
                .map_err(|least| too_small(budget, held + SCRATCH + least))?;
            step = cut.len();
            let levels = blocks.levels(&cut, alive)?;
            self.pass(&mut executor, (&levels, None), |result| {
                for i in 0..cut.len() {
                    let row = next.row_mut(start + i);
                    kept_columns(alive, piece, start + i, row);
                    row[piece.width - result.n_cols()..].copy_from_slice(result.row(i));
                }
            })?;
            start += cut.len();
            count += 1;
        }
        Ok((next, count))
    }
}

/// Rows from `start` on that fit, at most `step`; or how many bytes the fewest take.
fn fitting(
    blocks: &mut Blocks,
    plan: &Plan,
    (start, step, n): (usize, usize, usize),
    alive: &Features,
    room: Option<usize>,
) -> std::result::Result<Cut, usize> {
    let mut rows = step.min(n - start);
    loop {
        let cut = blocks.cut(start as u32..(start + rows) as u32);
        let bytes = plan.slot_bytes(&blocks.sizes(&cut, alive)) + blocks.bytes(&cut, alive);
        match room {
            Some(room) if bytes <= room => return Ok(cut),
            _ if rows <= LEAST_ROWS => return Err(bytes),
            _ => rows = (rows / 2).max(LEAST_ROWS.min(rows)),
        }
    }
}

fn too_small(budget: usize, least: usize) -> Error {
    let problem = format!(
        "{budget} bytes are left beside the data, and even layer by layer, {LEAST_ROWS} rows at \
         a time, {least} are needed"
    );
    Error::argument("memory limit", problem)
}

/// Columns that stay alive, copied to the front of a new row.
fn kept_columns(alive: &Features, piece: &Piece, i: usize, row: &mut [f32]) {
    let Features::Dense(alive) = alive else { return };
    let mut at = 0;
    for &[from, width] in &piece.kept {
        row[at..at + width].copy_from_slice(&alive.row(i)[from..from + width]);
        at += width;
    }
}

/// Bytes of what is alive beside the data's own features.
fn alive_bytes(alive: &Arc<Features>, own: &Arc<Features>) -> usize {
    match &**alive {
        _ if Arc::ptr_eq(alive, own) => 0,
        Features::Dense(x) => x.n_rows() * x.n_cols() * size_of::<f32>(),
        Features::Sparse(_) => 0,
    }
}

/// A piece is planned once, for the whole graph: results do not depend on how it is cut.
fn whole_sizes(piece: &Piece, graph: &lacis_core::Graph, alive: &Features) -> Sizes {
    let hops = usize::from(piece.reads != crate::levels::blocks::Reads::Own);
    let feature_entries = match alive {
        Features::Sparse(x) => x.nnz(),
        Features::Dense(_) => 0,
    };
    let edge_weights = graph.adjacency().values().is_some();
    let whole = Sizes::whole(hops + 1, graph.n_nodes(), graph.n_edges());
    Sizes { feature_entries, iterations: 1, edge_weights, ..whole }
}

/// Bytes that a plan over the whole graph takes: slots, the graph with loops, degrees, the result.
fn whole_bytes(plan: &Plan, sizes: &Sizes, dataset: &Dataset) -> usize {
    let graph = dataset.graph();
    let result = plan.len_of(plan.result, sizes) * size_of::<f32>();
    plan.slot_bytes(sizes) + result + crate::levels::treated_bytes(plan, graph) + SCRATCH
}

fn copied(of: lacis_kernels::Mat<'_>) -> Dense {
    let mut all = Dense::zeros(of.n_rows(), of.n_cols());
    (0..of.n_rows()).for_each(|i| all.row_mut(i).copy_from_slice(of.row(i)));
    all
}
