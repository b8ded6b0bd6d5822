//! Each kind of parallelism for `P` workers: what crosses the wires, who waits, how long it takes.

use lacis_core::{Error, Result};
use lacis_plan::analysis::tree;
use lacis_plan::cost::predict;
use lacis_plan::plan::{Phase, Step};

use super::grids::{Grid, distributed, replicated};
use super::piped::{macro_pipeline, micro_pipeline};
use super::sent::{Sent, all_gather, all_reduce, reduce_scatter};
use super::{Curve, F32, View, Wires};
use crate::levels::{Asked, Levels};
use crate::partition::{Halo, Parts};

/// Workers up to which curves go.
const MOST_WORKERS: usize = 4096;
/// Batches whose real neighbourhoods are looked at.
const BATCHES: usize = 4;

/// What a kind of parallelism costs an epoch.
#[derive(Clone, Debug, PartialEq)]
pub struct Verdict {
    /// Its name.
    pub kind: &'static str,
    /// Workers that it can use of those there are.
    pub workers: usize,
    /// Bytes that are sent, all workers together.
    pub volume_bytes: f64,
    /// Messages, all workers together.
    pub messages: f64,
    /// How often all wait for each other.
    pub syncs: usize,
    /// The busiest worker's work over the mean one.
    pub balance: f64,
    /// Bytes that the fullest worker holds.
    pub memory_bytes: f64,
    /// Seconds of an epoch.
    pub seconds: f64,
    /// What is worth knowing.
    pub note: String,
}

type Judge = fn(&View<'_>, &Wires) -> Result<Option<Verdict>>;

/// A kind: its name, and who judges it; `None` where it makes no sense.
pub struct Kind {
    /// What it is called.
    pub name: &'static str,
    judge: Judge,
    /// Whether it is judged by formulas alone, fast enough for curves.
    quick: bool,
}

const fn kind(name: &'static str, judge: Judge, quick: bool) -> Kind {
    Kind { name, judge, quick }
}

/// Every kind there is.
pub static KINDS: &[Kind] = &[
    kind("graph-partition:metis", |view, wires| partitioned(view, wires, true), false),
    kind("graph-partition:hash", |view, wires| partitioned(view, wires, false), false),
    kind("mini-batch:dependent", dependent_batches, false),
    kind("mini-batch:independent", independent_batches, true),
    kind("operator", operator, true),
    kind("feature", feature, true),
    kind("ann", ann, true),
    kind("micro-pipeline", micro_pipeline, false),
    kind("macro-pipeline", macro_pipeline, false),
    kind("1d", |view, wires| Ok(Some(distributed(view, wires, Grid::One))), true),
    kind("1.5d", |view, wires| Ok(replicated(view, wires)), true),
    kind("2d", |view, wires| Ok(Some(distributed(view, wires, Grid::Two))), true),
    kind("3d", |view, wires| Ok(Some(distributed(view, wires, Grid::Three))), true),
];

/// Every kind that makes sense, judged.
pub(super) fn all(view: &View<'_>, wires: &Wires) -> Result<Vec<Verdict>> {
    if wires.workers == 0 {
        return Err(Error::argument("workers", "0 do nothing; 1 or more would"));
    }
    let judged = KINDS.iter().map(|kind| (kind.judge)(view, wires));
    judged.filter_map(Result::transpose).collect()
}

/// Seconds for 1, 2, 4, … workers.
pub(super) fn curves(view: &View<'_>, wires: &Wires) -> Result<Vec<Curve>> {
    let counts: Vec<usize> =
        (0..).map(|power| 1 << power).take_while(|p| *p <= MOST_WORKERS).collect();
    let mut curves = Vec::new();
    for kind in KINDS.iter().filter(|kind| kind.quick) {
        let mut points = Vec::new();
        for &workers in &counts {
            let Some(found) = (kind.judge)(view, &Wires { workers, ..*wires })? else { break };
            points.push((workers, found.seconds));
        }
        curves.push((kind.name, points));
    }
    let hashed = counts.iter().map(|&workers| (workers, hashed_seconds(view, wires, workers)));
    curves.push(("graph-partition:hash", hashed.collect()));
    curves.retain(|(_, points)| !points.is_empty());
    Ok(curves)
}

/// All parameters' gradients added up over workers.
fn gradients(view: &View<'_>, workers: usize) -> Sent {
    all_reduce(view.param_bytes() / F32, workers)
}

/// How often workers wait for each other: one alone for nobody.
fn waits(workers: usize, count: usize) -> usize {
    if workers > 1 { count } else { 0 }
}

fn largest(of: &[u64]) -> f64 {
    of.iter().copied().max().unwrap_or(0) as f64
}

/// The nodes are dealt out; every product exchanges halos.
fn partitioned(view: &View<'_>, wires: &Wires, metis: bool) -> Result<Option<Verdict>> {
    let (graph, threads) = (view.graph(), view.case.threads);
    let parts = match metis {
        true => match Parts::metis(graph, wires.workers, threads) {
            Ok(parts) => parts,
            Err(_) => return Ok(None),
        },
        false => Parts::hashed(graph.n_nodes(), wires.workers),
    };
    let forward = parts.halo(graph.adjacency());
    let backward = parts.halo(graph.transpose(threads));
    let workers = forward.nodes.iter().filter(|nodes| **nodes > 0).count().max(1);
    let exchanges = view.exchanges();
    let mut sent = gradients(view, workers);
    // The busiest worker's bytes and messages.
    let mut worst = [sent.words * F32 / workers as f64, sent.chain];
    for exchange in &exchanges {
        let halo = if exchange.transposed { &backward } else { &forward };
        sent.words += halo.total() as f64 * exchange.width as f64;
        sent.messages += halo.messages.iter().sum::<u64>() as f64;
        let row = exchange.width as f64 * F32;
        worst[0] += largest(&halo.received).max(largest(&halo.sent)) * row;
        worst[1] += largest(&halo.messages);
    }
    let [sparse, dense, rest] = view.by_kind();
    let entries = forward.entries.iter().sum::<u64>().max(1) as f64;
    let nodes = graph.n_nodes().max(1) as f64;
    let shares = [largest(&forward.entries) / entries, largest(&forward.nodes) / nodes];
    let held = forward.nodes.iter().zip(&forward.received).map(|(own, halo)| own + halo).max();
    Ok(Some(Verdict {
        kind: if metis { "graph-partition:metis" } else { "graph-partition:hash" },
        workers,
        volume_bytes: sent.words * F32,
        messages: sent.messages,
        syncs: waits(workers, exchanges.len() + 1),
        balance: forward.balance(),
        memory_bytes: view.node_bytes() * held.unwrap_or(0) as f64 / nodes
            + graph.adjacency().bytes() as f64 * shares[0]
            + 3.0 * view.param_bytes(),
        seconds: sparse * shares[0]
            + (dense + rest + view.once_share()) * shares[1]
            + wires.alpha * worst[1]
            + wires.beta * worst[0],
        note: format!("{:.1} % of the edges are cut", 100.0 * cut_share(&forward)),
    }))
}

fn cut_share(halo: &Halo) -> f64 {
    halo.cut as f64 / halo.entries.iter().sum::<u64>().max(1) as f64
}

/// Nodes that cross when parts are hashed, as expected: a node goes to every other part that one
/// of its edges ends in.
pub(super) fn hashed_halo(lengths: &[u32], workers: usize) -> f64 {
    let p = workers as f64;
    let seen = |degree: &u32| 1.0 - (1.0 - 1.0 / p).powi(*degree as i32);
    (p - 1.0) * lengths.iter().map(seen).sum::<f64>()
}

/// The same as [`partitioned`], by expectation.
fn hashed_seconds(view: &View<'_>, wires: &Wires, workers: usize) -> f64 {
    let graph = view.graph();
    let (rows, cols) = (graph.adjacency().row_lengths(), graph.adjacency().col_lengths());
    let [ahead, back] = [hashed_halo(&cols, workers), hashed_halo(&rows, workers)];
    let p = workers as f64;
    let mut sent = gradients(view, workers);
    for exchange in view.exchanges() {
        let halo = if exchange.transposed { back } else { ahead };
        sent.words += halo * exchange.width as f64;
        sent.chain += p - 1.0;
    }
    view.seconds / p + sent.seconds(workers, [wires.alpha, wires.beta])
}

/// Every worker trains its share of the nodes and fetches all that they see: shares overlap.
fn dependent_batches(view: &View<'_>, wires: &Wires) -> Result<Option<Verdict>> {
    if many_graphs(view) || view.case.train.is_empty() {
        return Ok(None);
    }
    let levels = view.case.sizes.nodes.len();
    // A worker without a node to train has nothing to do.
    let workers = wires.workers.min(view.case.train.len());
    let mut shares: Vec<Vec<u32>> = vec![Vec::new(); workers];
    for (at, &node) in view.case.train.iter().enumerate() {
        shares[at % workers].push(node);
    }
    let (mut seconds, mut slowest, mut fetched, mut looked) = (0.0, 0.0_f64, 0.0, 0.0);
    for rows in shares.iter().take(BATCHES) {
        let asked = Asked {
            graph: view.graph(),
            features: &view.features,
            levels,
            rows: Some(rows),
            reach: true,
        };
        let sizes = Levels::sizes(&asked, view.case.threads)?;
        let time = predict(view.case.plan, &sizes, view.case.costs).unwrap_or_default();
        // What is computed once for a whole graph is computed for every batch.
        let time = time.iteration + time.once;
        seconds += time;
        slowest = slowest.max(time);
        fetched += sizes.nodes.first().copied().unwrap_or(0) as f64;
        looked += 1.0;
    }
    let (mean, fetched) = (seconds / looked, fetched / looked);
    let share = fetched / view.graph().n_nodes().max(1) as f64;
    let p = workers as f64;
    // Of what a share sees, all others hold their parts.
    let features = fetched * (p - 1.0) * view.features.width() as f64;
    let fetches = Sent { words: features, messages: p * (p - 1.0), chain: p - 1.0 };
    let sent = gradients(view, workers).and(fetches);
    Ok(Some(Verdict {
        kind: "mini-batch:dependent",
        workers,
        volume_bytes: sent.words * F32,
        messages: sent.messages,
        syncs: waits(workers, 1),
        balance: slowest / mean,
        memory_bytes: view.node_bytes() * share + 3.0 * view.param_bytes(),
        seconds: slowest + sent.seconds(workers, [wires.alpha, wires.beta]),
        note: format!(
            "a share sees {:.0} % of the nodes: {:.1} times the work of one full batch",
            100.0 * share,
            mean * p / view.seconds
        ),
    }))
}

pub(super) fn many_graphs(view: &View<'_>) -> bool {
    view.case.sizes.graphs > 1
}

/// Every worker trains its share of the graphs.
fn independent_batches(view: &View<'_>, wires: &Wires) -> Result<Option<Verdict>> {
    if !many_graphs(view) {
        return Ok(None);
    }
    let graphs = view.case.sizes.graphs;
    let workers = wires.workers.min(graphs);
    let share = graphs.div_ceil(workers) as f64 / graphs as f64;
    let sent = gradients(view, workers);
    Ok(Some(Verdict {
        kind: "mini-batch:independent",
        workers,
        volume_bytes: sent.words * F32,
        messages: sent.messages,
        syncs: waits(workers, 1),
        balance: share * workers as f64,
        memory_bytes: view.node_bytes() * share + 3.0 * view.param_bytes(),
        seconds: view.seconds * share + sent.seconds(workers, [wires.alpha, wires.beta]),
        note: "graphs share nothing but the weights".to_owned(),
    }))
}

/// Rows, edges and columns of each operator are shared out in one memory.
fn operator(view: &View<'_>, wires: &Wires) -> Result<Option<Verdict>> {
    let steps = view.case.plan.steps.iter().filter(|step| step.phase != Phase::Once).count();
    let p = wires.workers as f64;
    Ok(Some(Verdict {
        kind: "operator",
        workers: wires.workers,
        volume_bytes: 0.0,
        messages: 0.0,
        syncs: waits(wires.workers, steps),
        balance: 1.0,
        memory_bytes: view.node_bytes() + view.graph().adjacency().bytes() as f64,
        seconds: view.seconds / p + steps as f64 * wires.alpha * tree(wires.workers) as f64,
        note: "cores of one machine; its memory's bandwidth is shared".to_owned(),
    }))
}

/// Columns of `H` and rows of `W` are dealt out: no halo, but products with weights add up over
/// workers, and gradients that go back through them are gathered from all.
fn feature(view: &View<'_>, wires: &Wires) -> Result<Option<Verdict>> {
    let widths = view.column_sums();
    let gathered = view.exchanges().into_iter().map(|exchange| exchange.width);
    let columns = widths.iter().copied().chain(gathered).max().unwrap_or(1);
    let workers = wires.workers.min(columns.max(1));
    let p = workers as f64;
    // Of few columns some workers have none.
    let busiest = |(step, seconds): (&Step, f64)| {
        let width = view.columns(step).max(1);
        seconds * width.div_ceil(workers) as f64 / width as f64
    };
    let busiest: f64 = view.epoch().map(busiest).sum();
    let iteration: f64 = view.epoch().map(|(_, seconds)| seconds).sum();
    let balance = if iteration > 0.0 { busiest * p / iteration } else { 1.0 };
    let n = view.graph().n_nodes() as f64;
    let products = widths.iter().map(|&width| reduce_scatter(n * width as f64, workers));
    let sent = products.fold(Sent::default(), Sent::and);
    let idle = match workers < wires.workers {
        true => format!("; no columns for more than {workers}"),
        false => String::new(),
    };
    Ok(Some(Verdict {
        kind: "feature",
        workers,
        volume_bytes: sent.words * F32,
        messages: sent.messages,
        syncs: waits(workers, widths.len()),
        balance,
        memory_bytes: view.node_bytes() / p * balance + view.graph().adjacency().bytes() as f64,
        seconds: busiest
            + (view.seconds - iteration) / p
            + sent.seconds(workers, [wires.alpha, wires.beta]),
        note: format!("every worker holds the whole graph; degrees do not matter{idle}"),
    }))
}

/// Only the products with weights inside layers are dealt out, by columns of the result, which
/// everybody then gets.
fn ann(view: &View<'_>, wires: &Wires) -> Result<Option<Verdict>> {
    let [sparse, dense, rest] = view.by_kind();
    let products = view.weight_products();
    let widest = products.iter().map(|shape| shape[1]).max().unwrap_or(1);
    let workers = wires.workers.min(widest.max(1));
    let results = products.iter().map(|[rows, cols]| all_gather((rows * cols) as f64, workers));
    let sent = results.fold(Sent::default(), Sent::and);
    let all = sparse + dense + rest;
    let alone = (sparse + rest) / all.max(f64::MIN_POSITIVE);
    Ok(Some(Verdict {
        kind: "ann",
        workers,
        volume_bytes: sent.words * F32,
        messages: sent.messages,
        syncs: waits(workers, products.len()),
        balance: 1.0,
        memory_bytes: view.node_bytes() + view.graph().adjacency().bytes() as f64,
        seconds: sparse
            + rest
            + view.once_share()
            + dense / workers as f64
            + sent.seconds(workers, [wires.alpha, wires.beta]),
        note: format!("{:.0} % of the time is not in products with weights", 100.0 * alone),
    }))
}

/// The fastest kind, and why.
pub(super) fn advice(view: &View<'_>, verdicts: &[Verdict], wires: &Wires) -> String {
    let alone = view.seconds;
    let apart = verdicts.iter().filter(|verdict| verdict.kind != "operator");
    let Some(best) = apart.min_by(|a, b| a.seconds.total_cmp(&b.seconds)) else {
        return "one worker".to_owned();
    };
    let factor = alone / best.seconds;
    if factor < 1.1 {
        return format!(
            "one worker: no kind of parallelism over {} workers would be faster than {:.3} ms by a \
             tenth; messages cost more than they save",
            wires.workers,
            alone * 1e3
        );
    }
    let wired = wires.beta * best.volume_bytes / best.workers.max(1) as f64;
    format!(
        "{} over {} workers: {:.3} ms an epoch, {factor:.1} times faster than one; of that about \
         {:.0} % is for bytes on the wire ({})",
        best.kind,
        best.workers,
        best.seconds * 1e3,
        100.0 * (wired / best.seconds).min(1.0),
        best.note
    )
}
