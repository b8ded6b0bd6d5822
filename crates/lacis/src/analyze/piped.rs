//! Pipelines of steps and of layers: who does which step, what is sent from one to the other, and
//! when ([`super::pipeline`]).

use std::collections::{HashMap, HashSet};

use lacis_core::{Csr, Result};
use lacis_plan::Dim;
use lacis_plan::plan::{Operator, Phase, Place, Step, ValueId};

use super::kinds::{Verdict, many_graphs};
use super::pipeline::{MOST, Pipeline, Schedule, Stage};
use super::{View, Wires};

/// The most tasks of a picture.
const DRAWN: usize = 1 << 14;

/// Which pipeline.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Grain {
    /// Steps.
    Micro,
    /// Layers.
    Macro,
}

impl Grain {
    fn name(self) -> &'static str {
        match self {
            Grain::Micro => "micro-pipeline",
            Grain::Macro => "macro-pipeline",
        }
    }

    fn most(self) -> usize {
        match self {
            Grain::Micro => MOST,
            Grain::Macro => DRAWN,
        }
    }

    /// Stages whose seconds are those of all nodes, and who does each of the plan's steps.
    fn stages(self, view: &View<'_>, wires: &Wires) -> (Vec<Stage>, Vec<usize>) {
        match self {
            Grain::Micro => micro_stages(view, wires),
            Grain::Macro => macro_stages(view, wires),
        }
    }
}

/// How often all blocks go through a pipeline until it runs as it will.
fn iterations(wires: &Wires) -> usize {
    1 + 2 * wires.staleness.min(4)
}

/// Blocks that a pipeline of so many stages can be simulated with; 0 where it cannot.
fn blocks(view: &View<'_>, wires: &Wires, (stages, grain): (usize, Grain)) -> usize {
    let items = if many_graphs(view) { view.case.sizes.graphs } else { view.graph().n_nodes() };
    let fit = grain.most() / (stages * iterations(wires)).max(1);
    wires.blocks.min(items.max(1)).min(fit)
}

/// Pipelines that are too long to be simulated.
pub(super) fn left_out(view: &View<'_>, wires: &Wires) -> Vec<String> {
    let grains = [Grain::Micro, Grain::Macro].into_iter();
    let told = grains.filter_map(|grain| {
        let stages = grain.stages(view, wires).0.len();
        let fits = stages == 0 || blocks(view, wires, (stages, grain)) > 0;
        (!fits).then(|| {
            let turns = stages * iterations(wires);
            let fewer =
                if wires.staleness > 0 { "--layers or less --staleness" } else { "--layers" };
            let (name, most) = (grain.name(), grain.most());
            format!(
                "{name}: {turns} stages in a row, at most {most} are simulated; fewer {fewer} \
                     would be right"
            )
        })
    });
    told.collect()
}

/// Blocks of nodes in an order that keeps neighbours together, and whom each gathers from.
fn block_needs(view: &View<'_>, blocks: usize) -> Result<Vec<Vec<u32>>> {
    if many_graphs(view) {
        return Ok((0..blocks as u32).map(|block| vec![block]).collect());
    }
    let graph = view.graph();
    let n = graph.n_nodes().max(1);
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
fn micro_stages(view: &View<'_>, wires: &Wires) -> (Vec<Stage>, Vec<usize>) {
    let mut stages: Vec<Stage> = Vec::new();
    let mut who = Vec::new();
    for (step, seconds) in view.epoch() {
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
        who.push(stages.last().map_or(0, |stage| stage.worker));
    }
    (stages, who)
}

/// Forward and backward of each layer, on the worker that holds it; the loss is at the last one,
/// and weights are updated where their gradients are.
fn macro_stages(view: &View<'_>, wires: &Wires) -> (Vec<Stage>, Vec<usize>) {
    let layers = view.subject().layers();
    let workers = wires.workers.min(layers.len()).max(1);
    let place = |at: usize| at * workers / layers.len().max(1);
    let mut stages: Vec<Stage> = Vec::new();
    let ahead = layers.iter().enumerate().map(|(at, &layer)| (at, layer, Phase::Forward));
    let back = layers.iter().enumerate().rev().map(|(at, &layer)| (at, layer, Phase::Backward));
    for (at, layer, phase) in ahead.chain(back) {
        let own = |step: &Step| step.layer == Some(layer) && step.phase == phase;
        let seconds = view.epoch().filter(|(step, _)| own(step)).map(|(_, seconds)| seconds).sum();
        let gathers = view.epoch().any(|(step, _)| own(step) && gathers(&step.operator));
        let way = if phase == Phase::Forward { "ahead" } else { "back" };
        let name = format!("layer {} {way}", layer + 1);
        stages.push(Stage { name, worker: place(at), seconds, gathers });
    }
    stages.retain(|stage| stage.seconds > 0.0);
    let mut maker: HashMap<ValueId, usize> = HashMap::new();
    let mut who = Vec::new();
    for (step, _) in view.epoch() {
        let of_layer = step.layer.and_then(|layer| layers.iter().position(|&own| own == layer));
        let inputs = step.inputs.iter().map(|&input| view.case.plan.base(input));
        let made = inputs.filter_map(|input| maker.get(&input).copied()).next();
        let worker = of_layer.map(place).or(made).unwrap_or(0);
        who.push(worker);
        maker.extend(step.outputs.iter().map(|&out| (view.case.plan.base(out), worker)));
    }
    (stages, who)
}

/// Seconds of what is in no stage, and comes after all blocks: the loss and new weights, of the
/// worker that has most of it, and a share of what is done once.
fn rest(view: &View<'_>, grain: Grain, (who, workers): (&[usize], usize)) -> f64 {
    let layers = view.subject().layers();
    let mut busy = vec![0.0; workers.max(1)];
    for ((step, seconds), &worker) in view.epoch().zip(who) {
        let passes = matches!(step.phase, Phase::Forward | Phase::Backward);
        let staged = passes && step.layer.is_some_and(|layer| layers.contains(&layer));
        if grain == Grain::Macro && !staged {
            busy[worker.min(workers.max(1) - 1)] += seconds;
        }
    }
    busy.into_iter().fold(0.0, f64::max) + view.once_share() / workers.max(1) as f64
}

/// Something that one worker sends another in an epoch.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Crossing {
    bytes: usize,
    /// Whether it goes block by block.
    in_blocks: bool,
}

/// What crosses: results to every other worker that reads them, once each, and new weights to every
/// other worker that reads those.
fn crossings(view: &View<'_>, who: &[usize]) -> Vec<Crossing> {
    let plan = view.case.plan;
    let mut maker: HashMap<ValueId, usize> = HashMap::new();
    let mut sent: HashSet<(ValueId, usize)> = HashSet::new();
    let mut readers: HashSet<(usize, usize)> = HashSet::new();
    let mut updaters: HashMap<usize, usize> = HashMap::new();
    let mut found = Vec::new();
    for ((step, _), &worker) in view.epoch().zip(who) {
        for value in step.inputs.iter().map(|&input| plan.base(input)) {
            if let Place::Param(param) = plan.values[value].place {
                readers.insert((param, worker));
            }
            let elsewhere = maker.get(&value).is_some_and(|&made| made != worker);
            if elsewhere && sent.insert((value, worker)) {
                let bytes = plan.len_of(value, view.case.sizes) * plan.number_bytes(value);
                let in_blocks = !matches!(plan.values[value].shape[0], Dim::Width(_));
                found.push(Crossing { bytes, in_blocks });
            }
        }
        maker.extend(step.outputs.iter().map(|&out| (plan.base(out), worker)));
        if let Operator::Update(param) = step.operator {
            updaters.insert(param, worker);
        }
    }
    let weights = readers
        .iter()
        .filter(|(param, reader)| updaters.get(param).is_some_and(|updater| updater != reader));
    found.extend(weights.map(|(param, _)| {
        let [rows, cols] = plan.params[*param].shape;
        Crossing { bytes: rows * cols * size_of::<f32>(), in_blocks: false }
    }));
    found
}

/// Stages and blocks of a pipeline, and how it runs; `None` where there is nothing to simulate.
fn simulated(
    view: &View<'_>,
    wires: &Wires,
    (mut stages, grain): (Vec<Stage>, Grain),
) -> Result<Option<(Schedule, usize)>> {
    let blocks = blocks(view, wires, (stages.len(), grain));
    if stages.is_empty() || blocks == 0 {
        return Ok(None);
    }
    stages.iter_mut().for_each(|stage| stage.seconds /= blocks as f64);
    let needs = block_needs(view, blocks)?;
    let (iterations, staleness) = (iterations(wires), wires.staleness);
    let schedule = Pipeline { stages, needs, iterations, staleness }.run()?;
    Ok(Some((schedule, blocks)))
}

/// The pipeline of layers, as it would run.
pub(super) fn macro_schedule(view: &View<'_>, wires: &Wires) -> Result<Option<Schedule>> {
    let (stages, _) = Grain::Macro.stages(view, wires);
    Ok(simulated(view, wires, (stages, Grain::Macro))?.map(|(schedule, _)| schedule))
}

pub(super) fn micro_pipeline(view: &View<'_>, wires: &Wires) -> Result<Option<Verdict>> {
    piped(view, wires, Grain::Micro)
}

pub(super) fn macro_pipeline(view: &View<'_>, wires: &Wires) -> Result<Option<Verdict>> {
    piped(view, wires, Grain::Macro)
}

/// Results go from worker to worker, block by block.
fn piped(view: &View<'_>, wires: &Wires, grain: Grain) -> Result<Option<Verdict>> {
    let (stages, who) = grain.stages(view, wires);
    let count = stages.len();
    let Some((schedule, blocks)) = simulated(view, wires, (stages, grain))? else {
        return Ok(None);
    };
    let crossings = crossings(view, &who);
    let volume = crossings.iter().map(|crossing| crossing.bytes).sum::<usize>() as f64;
    let pieces = crossings.iter().map(|crossing| if crossing.in_blocks { blocks } else { 1 });
    let messages = pieces.sum::<usize>() as f64;
    let all = blocks * iterations(wires);
    let held = schedule.in_flight as f64 / all as f64;
    let workers = schedule.workers as f64;
    let fewer = match blocks < wires.blocks {
        true => format!("; with {blocks} of {} blocks", wires.blocks),
        false => String::new(),
    };
    let idle = 100.0 * schedule.bubbles;
    Ok(Some(Verdict {
        kind: grain.name(),
        workers: schedule.workers,
        volume_bytes: volume,
        messages,
        syncs: usize::from(schedule.workers > 1),
        balance: 1.0 / (1.0 - schedule.bubbles).max(1e-9),
        memory_bytes: view.node_bytes() * held.min(1.0) + 3.0 * view.param_bytes(),
        seconds: schedule.seconds / iterations(wires) as f64
            + rest(view, grain, (&who, schedule.workers))
            + wires.alpha * messages / workers
            + wires.beta * volume / workers,
        note: format!(
            "{count} stages; workers are idle {idle:.0} % of the time, {} of {all} blocks in \
             flight{fewer}",
            schedule.in_flight,
        ),
    }))
}

#[cfg(test)]
mod tests;
