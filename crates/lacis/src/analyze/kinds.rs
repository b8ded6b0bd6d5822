//! Each kind of parallelism for `P` workers: what crosses the wires, who waits, how long it takes.

use lacis_core::{Csr, Error, Result};
use lacis_plan::analysis::tree;
use lacis_plan::cost::predict;
use lacis_plan::plan::{Operator, Phase};

use super::pipeline::{Pipeline, Schedule, Stage};
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

/// All parameters' gradients added up over workers by halving and doubling: bytes that each sends,
/// messages that each sends.
fn all_reduce(bytes: f64, workers: usize) -> [f64; 2] {
    let p = workers.max(1) as f64;
    [2.0 * bytes * (p - 1.0) / p, 2.0 * tree(workers) as f64]
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
    let mut verdict = Verdict {
        kind: if metis { "graph-partition:metis" } else { "graph-partition:hash" },
        workers: wires.workers,
        volume_bytes: 0.0,
        messages: 0.0,
        syncs: 1,
        balance: forward.balance(),
        memory_bytes: 0.0,
        seconds: 0.0,
        note: format!("{:.1} % of the edges are cut", 100.0 * cut_share(&forward)),
    };
    let mut worst = [0.0; 2];
    for exchange in view.exchanges() {
        let halo = if exchange.transposed { &backward } else { &forward };
        let row = exchange.width as f64 * F32;
        verdict.volume_bytes += halo.total() as f64 * row;
        verdict.messages += halo.messages.iter().sum::<u64>() as f64;
        verdict.syncs += 1;
        worst[0] += largest(&halo.received).max(largest(&halo.sent)) * row;
        worst[1] += largest(&halo.messages);
    }
    let [bytes, messages] = all_reduce(view.param_bytes(), wires.workers);
    let p = wires.workers as f64;
    verdict.volume_bytes += bytes * p;
    verdict.messages += messages * p;
    let [sparse, dense, rest] = view.by_kind();
    let entries = forward.entries.iter().sum::<u64>().max(1) as f64;
    let nodes = graph.n_nodes().max(1) as f64;
    let shares = [largest(&forward.entries) / entries, largest(&forward.nodes) / nodes];
    verdict.seconds = sparse * shares[0]
        + (dense + rest) * shares[1]
        + wires.alpha * (worst[1] + messages)
        + wires.beta * (worst[0] + bytes);
    let held = forward.nodes.iter().zip(&forward.received).map(|(own, halo)| own + halo).max();
    verdict.memory_bytes = view.node_bytes() * held.unwrap_or(0) as f64 / nodes
        + graph.adjacency().bytes() as f64 * shares[0]
        + 3.0 * view.param_bytes();
    Ok(Some(verdict))
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
    let [mut bytes, mut messages] = all_reduce(view.param_bytes(), workers);
    for exchange in view.exchanges() {
        let halo = if exchange.transposed { back } else { ahead };
        bytes += halo / p * exchange.width as f64 * F32;
        messages += p - 1.0;
    }
    view.seconds / p + wires.alpha * messages + wires.beta * bytes
}

/// Every worker trains its share of the nodes and fetches all that they see: shares overlap.
fn dependent_batches(view: &View<'_>, wires: &Wires) -> Result<Option<Verdict>> {
    if many_graphs(view) || view.case.train.is_empty() {
        return Ok(None);
    }
    let levels = view.case.sizes.nodes.len();
    let mut shares: Vec<Vec<u32>> = vec![Vec::new(); wires.workers];
    for (at, &node) in view.case.train.iter().enumerate() {
        shares[at % wires.workers].push(node);
    }
    let (mut seconds, mut slowest, mut fetched, mut looked) = (0.0, 0.0_f64, 0.0, 0.0);
    for rows in shares.iter().filter(|rows| !rows.is_empty()).take(BATCHES) {
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
    let p = wires.workers as f64;
    let width = view.features.width() as f64 * F32;
    let [bytes, messages] = all_reduce(view.param_bytes(), wires.workers);
    let (mean, fetched) = (seconds / looked, fetched / looked);
    let remote = fetched * (p - 1.0) / p;
    let share = fetched / view.graph().n_nodes().max(1) as f64;
    Ok(Some(Verdict {
        kind: "mini-batch:dependent",
        workers: wires.workers,
        volume_bytes: p * (remote * width + bytes),
        messages: p * (messages + p - 1.0),
        syncs: 1,
        balance: slowest / mean,
        memory_bytes: view.node_bytes() * share + 3.0 * view.param_bytes(),
        seconds: slowest
            + wires.alpha * (messages + p - 1.0)
            + wires.beta * (remote * width + bytes),
        note: format!(
            "a share sees {:.0} % of the nodes: {:.1} times the work of one full batch",
            100.0 * share,
            mean * p / view.seconds
        ),
    }))
}

fn many_graphs(view: &View<'_>) -> bool {
    view.case.sizes.graphs > 1
}

/// Every worker trains its share of the graphs.
fn independent_batches(view: &View<'_>, wires: &Wires) -> Result<Option<Verdict>> {
    if !many_graphs(view) {
        return Ok(None);
    }
    let (p, graphs) = (wires.workers as f64, view.case.sizes.graphs as f64);
    let [bytes, messages] = all_reduce(view.param_bytes(), wires.workers);
    let share = (graphs / p).ceil() / graphs;
    Ok(Some(Verdict {
        kind: "mini-batch:independent",
        workers: wires.workers.min(view.case.sizes.graphs),
        volume_bytes: bytes * p,
        messages: messages * p,
        syncs: 1,
        balance: share * p,
        memory_bytes: view.node_bytes() * share + 3.0 * view.param_bytes(),
        seconds: view.seconds * share + wires.alpha * messages + wires.beta * bytes,
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
        syncs: steps,
        balance: 1.0,
        memory_bytes: view.node_bytes() + view.graph().adjacency().bytes() as f64,
        seconds: view.seconds / p + steps as f64 * wires.alpha * tree(wires.workers) as f64,
        note: "cores of one machine; its memory's bandwidth is shared".to_owned(),
    }))
}

/// Columns of `H` and rows of `W` are dealt out: no halo, but dense products add up over workers.
fn feature(view: &View<'_>, wires: &Wires) -> Result<Option<Verdict>> {
    let widths = view.exchanges().iter().map(|exchange| exchange.width).min().unwrap_or(1);
    let uneven =
        |width: usize| width.div_ceil(wires.workers) as f64 * wires.workers as f64 / width as f64;
    let balance = uneven(widths.max(1));
    let n = view.graph().n_nodes() as f64;
    let p = wires.workers as f64;
    let products = view.dense_widths();
    // Partial results are added and dealt out again.
    let each: f64 = products.iter().map(|&width| n * width as f64 * F32 * (p - 1.0) / p).sum();
    let messages = products.len() as f64 * tree(wires.workers) as f64;
    Ok(Some(Verdict {
        kind: "feature",
        workers: wires.workers,
        volume_bytes: each * p,
        messages: messages * p,
        syncs: products.len(),
        balance,
        memory_bytes: view.node_bytes() / p * balance + view.graph().adjacency().bytes() as f64,
        seconds: view.seconds / p * balance + wires.alpha * messages + wires.beta * each,
        note: "every worker holds the whole graph; degrees do not matter".to_owned(),
    }))
}

/// Only the dense products inside layers are dealt out.
fn ann(view: &View<'_>, wires: &Wires) -> Result<Option<Verdict>> {
    let [sparse, dense, rest] = view.by_kind();
    let n = view.graph().n_nodes() as f64;
    let p = wires.workers as f64;
    let products = view.dense_widths();
    let each: f64 = products.iter().map(|&width| n * width as f64 * F32 * (p - 1.0) / p).sum();
    let messages = products.len() as f64 * tree(wires.workers) as f64;
    let all = sparse + dense + rest;
    let alone = (sparse + rest) / all.max(f64::MIN_POSITIVE);
    Ok(Some(Verdict {
        kind: "ann",
        workers: wires.workers,
        volume_bytes: each * p,
        messages: messages * p,
        syncs: products.len(),
        balance: 1.0,
        memory_bytes: view.node_bytes() + view.graph().adjacency().bytes() as f64,
        seconds: sparse + rest + dense / p + wires.alpha * messages + wires.beta * each,
        note: format!("{:.0} % of the time is not in dense products", 100.0 * alone),
    }))
}

/// Blocks of nodes in an order that keeps neighbours together, and whom each gathers from.
fn block_needs(view: &View<'_>, blocks: usize) -> Result<Vec<Vec<u32>>> {
    let graph = view.graph();
    let n = graph.n_nodes().max(1);
    let blocks = blocks.clamp(1, n);
    let order = graph.ordering(lacis_core::Ordering::Rcm, view.case.threads)?;
    let block = |node: usize| order.new_of_old()[node] as usize * blocks / n;
    let mut needs = vec![vec![false; blocks]; blocks];
    let matrix: &Csr = graph.adjacency();
    for node in 0..graph.n_nodes() {
        let own = block(node);
        needs[own][own] = true;
        matrix.row_cols(node).iter().for_each(|&col| needs[own][block(col as usize)] = true);
    }
    let listed = |row: &Vec<bool>| (0..blocks as u32).filter(|&b| row[b as usize]).collect();
    Ok(needs.iter().map(listed).collect())
}

/// Whether a step of the plan gathers from neighbours.
fn gathers(operator: &Operator) -> bool {
    matches!(
        operator,
        Operator::Spmm { .. }
            | Operator::Attention(_)
            | Operator::AttentionGrad(_)
            | Operator::Extreme(_)
            | Operator::ExtremeGrad(_)
            | Operator::Gated
            | Operator::GatedGrad
    )
}

/// Every step that takes long is a stage; short ones join the one before.
fn micro_stages(view: &View<'_>, wires: &Wires, blocks: usize) -> Vec<Stage> {
    let mut stages: Vec<Stage> = Vec::new();
    let epoch = view.case.plan.steps.iter().zip(&view.steps);
    for (step, &seconds) in epoch.filter(|(step, _)| step.phase != Phase::Once) {
        let seconds = seconds / blocks as f64;
        match stages.last_mut() {
            Some(last) if !gathers(&step.operator) && seconds < 0.5 * last.seconds => {
                last.seconds += seconds;
            }
            _ => stages.push(Stage {
                name: step.formula.clone(),
                worker: stages.len() % wires.workers,
                seconds,
                gathers: gathers(&step.operator),
            }),
        }
    }
    stages
}

/// Forward and backward of each layer, on the worker that holds it.
fn macro_stages(view: &View<'_>, wires: &Wires, blocks: usize) -> Vec<Stage> {
    let layers = view.subject().layers();
    let workers = wires.workers.min(layers.len()).max(1);
    let of = |layer: u16, backward: bool| {
        let steps = view.case.plan.steps.iter().zip(&view.steps);
        let own = steps.filter(|(step, _)| {
            let phase = if backward { Phase::Backward } else { Phase::Forward };
            step.layer == Some(layer) && step.phase == phase
        });
        own.map(|(step, seconds)| (gathers(&step.operator), seconds / blocks as f64))
            .fold((false, 0.0), |(any, sum), (gathers, seconds)| (any | gathers, sum + seconds))
    };
    let place = |at: usize| at * workers / layers.len();
    let ahead = layers.iter().enumerate().map(|(at, &layer)| (at, layer, false));
    let back = layers.iter().enumerate().rev().map(|(at, &layer)| (at, layer, true));
    let both = ahead.chain(back).map(|(at, layer, backward)| {
        let (gathers, seconds) = of(layer, backward);
        let name = format!("layer {} {}", layer + 1, if backward { "back" } else { "ahead" });
        Stage { name, worker: place(at), seconds, gathers }
    });
    both.filter(|stage| stage.seconds > 0.0).collect()
}

fn simulated(view: &View<'_>, wires: &Wires, stages: Vec<Stage>) -> Result<Option<Schedule>> {
    if stages.is_empty() {
        return Ok(None);
    }
    let needs = match many_graphs(view) {
        true => (0..wires.blocks as u32).map(|block| vec![block]).collect(),
        false => block_needs(view, wires.blocks)?,
    };
    Pipeline {
        stages,
        needs,
        iterations: 1 + 2 * wires.staleness.min(4),
        staleness: wires.staleness,
    }
    .run()
    .map(Some)
}

/// The pipeline of layers, as it would run.
pub(super) fn macro_schedule(view: &View<'_>, wires: &Wires) -> Result<Option<Schedule>> {
    simulated(view, wires, macro_stages(view, wires, wires.blocks))
}

fn micro_pipeline(view: &View<'_>, wires: &Wires) -> Result<Option<Verdict>> {
    let stages = micro_stages(view, wires, wires.blocks);
    let count = stages.len();
    let schedule = simulated(view, wires, stages)?;
    Ok(schedule.map(|schedule| piped(view, wires, ("micro-pipeline", count), &schedule)))
}

fn macro_pipeline(view: &View<'_>, wires: &Wires) -> Result<Option<Verdict>> {
    let stages = macro_stages(view, wires, wires.blocks);
    let count = stages.len();
    let schedule = simulated(view, wires, stages)?;
    Ok(schedule.map(|schedule| piped(view, wires, ("macro-pipeline", count), &schedule)))
}

/// Results go from stage to stage, block by block.
fn piped(
    view: &View<'_>,
    wires: &Wires,
    (kind, stages): (&'static str, usize),
    schedule: &Schedule,
) -> Verdict {
    let iterations = 1 + 2 * wires.staleness.min(4);
    let n = view.graph().n_nodes() as f64;
    let width = view.case.config.hidden as f64 * F32;
    let hops = stages.saturating_sub(1) as f64;
    let (volume, messages) = (hops * n * width, hops * wires.blocks as f64);
    let held = schedule.in_flight as f64 / (wires.blocks * iterations) as f64;
    let wired = wires.alpha * messages / schedule.workers as f64
        + wires.beta * volume / schedule.workers as f64;
    Verdict {
        kind,
        workers: schedule.workers,
        volume_bytes: volume,
        messages,
        syncs: 1,
        balance: 1.0 / (1.0 - schedule.bubbles).max(1e-9),
        memory_bytes: view.node_bytes() * held.min(1.0) + 3.0 * view.param_bytes(),
        seconds: schedule.seconds / iterations as f64 + wired,
        note: format!(
            "{stages} stages; workers are idle {:.0} % of the time, {} of {} blocks in flight",
            100.0 * schedule.bubbles,
            schedule.in_flight,
            wires.blocks * iterations,
        ),
    }
}

/// How a matrix is dealt out.
#[derive(Clone, Copy)]
enum Grid {
    One,
    /// Rows, each held by so many processes.
    OneAndAHalf(f64),
    Two,
    Three,
}

/// The 1.5-D distribution with as many copies as are fastest.
fn replicated(view: &View<'_>, wires: &Wires) -> Option<Verdict> {
    let copies = (0..).map(|power| 1 << power);
    let copies = copies.take_while(|copies: &usize| copies * copies <= wires.workers.max(1));
    let each = copies.map(|copies| {
        let verdict = distributed(view, wires, Grid::OneAndAHalf(copies as f64));
        let note = format!("{}; rows held {copies} times", verdict.note);
        Verdict { note, ..verdict }
    });
    each.min_by(|a, b| a.seconds.total_cmp(&b.seconds))
}

/// CAGNET's distributions: words and messages of each process for a product, as published.
fn distributed(view: &View<'_>, wires: &Wires, grid: Grid) -> Verdict {
    let (n, m) = (view.graph().n_nodes() as f64, view.graph().n_edges() as f64);
    let p = wires.workers as f64;
    let log = tree(wires.workers) as f64;
    let one = |f: f64| match grid {
        // A random cut: of a process's edges all but one in P cross.
        Grid::One => {
            let cut = m * (p - 1.0) / (p * p);
            [cut * f + n * f + f * f, 3.0 * log]
        }
        Grid::OneAndAHalf(copies) => {
            let rounds = p / (copies * copies);
            let words = 2.0 * n * f / copies + 2.0 * n * f * copies / p;
            [words, 2.0 * rounds * rounds.log2().max(1.0)]
        }
        Grid::Two => {
            let side = p.sqrt();
            [(8.0 * n * f + 2.0 * m) / side + f * f, 5.0 * side + 3.0 * log]
        }
        Grid::Three => {
            let side = p.powf(2.0 / 3.0);
            [(12.0 * n * f + 2.0 * m) / side, 4.0 * p.cbrt()]
        }
    };
    let exchanges = view.exchanges();
    let (mut words, mut messages) = (0.0, 0.0);
    if wires.workers > 1 {
        for exchange in &exchanges {
            let [sent, asked] = one(exchange.width as f64);
            words += sent;
            messages += asked;
        }
    }
    // Gradients of weights are added up over all.
    let [reduced, asked] = all_reduce(view.param_bytes(), wires.workers);
    words += reduced / F32;
    messages += asked;
    let (kind, replicated) = match grid {
        Grid::One => ("1d", 1.0),
        Grid::OneAndAHalf(copies) => ("1.5d", copies),
        Grid::Two => ("2d", 1.0),
        Grid::Three => ("3d", p.cbrt()),
    };
    Verdict {
        kind,
        workers: wires.workers,
        volume_bytes: words * F32 * p,
        messages: messages * p,
        syncs: exchanges.len() + 1,
        balance: 1.0,
        memory_bytes: (view.node_bytes() + view.graph().adjacency().bytes() as f64) / p
            * replicated,
        seconds: view.seconds / p + wires.alpha * messages + wires.beta * words * F32,
        note: "as published for matrices in random order".to_owned(),
    }
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
