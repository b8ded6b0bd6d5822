//! `lacis explain`: the formulas considered, who was pruned by what, the steps of the chosen plan.

use std::path::Path;
use std::time::Instant;

use lacis::Dataset;
use lacis::exec::{Nobody, Observe};
use lacis::plan::Plan;
use lacis::plan::choose::{Candidates, with_candidate};
use lacis::plan::compose::StopReason;
use lacis::plan::cost::predict;
use lacis::plan::plan::Phase;
use lacis::train::{Job, Recipe, Trainer};
use serde_json::{Value, json};

use crate::args::Global;
use crate::args_train::Explain;
use crate::data::Desk;
use crate::defaults;
use crate::links;
use crate::machine;
use crate::out::{Failure, Out, Outcome, bytes, grouped};
use crate::planned;
use crate::progress::Stop;
use crate::steps;
use crate::train::run::read_plan;

/// Epochs that a measured candidate runs for.
const ROUNDS: usize = 5;

pub fn run(args: &Explain, global: &Global, out: &Out, stop: &Stop) -> Outcome {
    let desk = Desk::new(global, out, stop)?;
    out.start("explain", args)?;
    planned::check_approximation(&args.approximation, &args.typed)?;
    let dataset = desk.open(&args.source)?;
    let mut args = args.clone();
    defaults::fill_in((&mut args.net, &mut args.learning), &args.typed, dataset.name());
    let seed = args.source.changes.seed;
    let mut recipe = planned::recipe(&args.net, &args.learning, &args.planning, seed)?;
    recipe.config.embed = planned::learned_features(args.source.changes.features.as_deref());
    planned::check_batches(&args.learning, &dataset)?;
    let linked = links::linked(&args.learning, &dataset, seed, &desk)?;
    let (dataset, split, split_words) =
        links::learned_from(&mut recipe, (&args.net, &args.learning), (&dataset, &linked))?;
    let path = machine::profile_path(global.machine.as_deref())?;
    let profile = planned::profile(&desk, &path, (dataset, &recipe))?;
    planned::tell_unmeasured(&profile, out);
    let job = Job { dataset, split: &split, threads: &desk.threads, profile: &profile };
    let passes = if args.inference { Passes::Forward } else { Passes::Training };
    let mut trainer = match passes {
        Passes::Forward => stop.or_end(out, || passes.trainer(&job, recipe, None))?,
        Passes::Training => stop.or_end(out, || planned_as(&args.planning.plan, &job, recipe))?,
    };
    if let Some(settings) = planned::approximation(&args.approximation) {
        trainer.approximate(settings)?;
    }
    let measured = match args.measure {
        true => Some(measure(&job, &mut trainer, passes)?),
        false => None,
    };
    out.event("explain", &as_json(&trainer, measured.as_ref()))?;
    describe_data(out, dataset, &split_words)?;
    describe_layers(out, &trainer, (args.all, measured.as_ref()))?;
    describe_steps(out, &trainer, measured.as_ref())
}

/// What is planned and measured.
#[derive(Clone, Copy, PartialEq)]
enum Passes {
    Training,
    Forward,
}

impl Passes {
    fn trainer<'j>(
        self,
        job: &'j Job<'j>,
        recipe: Recipe,
        plan: Option<Plan>,
    ) -> Result<Trainer<'j>, Failure> {
        Ok(match (self, plan) {
            (Passes::Forward, plan) => Trainer::forward_only(job, recipe, plan)?,
            (Passes::Training, None) => Trainer::new(job, recipe)?,
            (Passes::Training, Some(plan)) => Trainer::with_plan(job, recipe, plan)?,
        })
    }

    fn run(self, trainer: &mut Trainer<'_>, observer: &mut dyn Observe) -> Outcome {
        match self {
            Passes::Training => trainer.step(observer).map(|_| ())?,
            Passes::Forward => trainer.forward(observer)?,
        }
        Ok(())
    }
}

/// A trainer whose plan is the one asked for: `auto`, `measured`, a file, or an id.
pub fn planned_as<'j>(
    asked: &str,
    job: &'j Job<'j>,
    recipe: Recipe,
) -> Result<Trainer<'j>, Failure> {
    let file = Path::new(asked);
    Ok(match asked {
        "auto" => Trainer::new(job, recipe)?,
        "measured" => fastest(job, recipe)?,
        _ if file.exists() => Trainer::with_plan(job, recipe, read_plan(file)?)?,
        id => with_id(job, recipe, id)?,
    })
}

fn describe_data(out: &Out, dataset: &Dataset, split: &str) -> Outcome {
    out.line(format_args!(
        "{}: {} nodes, {} edges, {} features, {}; split: {split}",
        dataset.name(),
        grouped(dataset.graph().n_nodes()),
        grouped(dataset.graph().n_edges()),
        dataset.features().map_or(0, lacis::Features::width),
        planned::labels_in_words(dataset.labels()),
    ))
}

/// What was measured: seconds of each candidate per layer, of each step, of an epoch.
struct Measured {
    candidates: Vec<Vec<Option<f64>>>,
    steps: Vec<f64>,
    epoch: f64,
}

/// Seconds of steps, of each time that they ran.
struct Clock(Vec<Vec<f64>>);

impl Clock {
    fn new(steps: usize) -> Self {
        Clock(vec![Vec::new(); steps])
    }

    /// Of each step: the first time of what runs once, the median of the others after the first.
    fn medians(&self) -> Vec<f64> {
        let median = |times: &Vec<f64>| {
            let mut times =
                times.get(1..).filter(|rest| !rest.is_empty()).unwrap_or(times).to_vec();
            times.sort_by(f64::total_cmp);
            times.get(times.len() / 2).copied().unwrap_or(0.0)
        };
        self.0.iter().map(median).collect()
    }
}

impl Observe for Clock {
    fn step(&mut self, index: usize, seconds: f64) {
        self.0[index].push(seconds);
    }
}

/// Times every kept candidate of every layer, the other layers as chosen.
fn measure(job: &Job<'_>, trainer: &mut Trainer<'_>, passes: Passes) -> Result<Measured, Failure> {
    let (epoch, steps) = timed(trainer, passes)?;
    let layers = 0..trainer.chosen().layers.len();
    let candidates: Result<_, Failure> =
        layers.map(|at| measure_layer(job, trainer, at, passes)).collect();
    Ok(Measured { candidates: candidates?, steps, epoch })
}

/// Candidates that take turns, so that what disturbs the machine disturbs all of them; the memory
/// of so many plans is held at a time.
const TOGETHER: usize = 6;

/// Seconds of a layer's kept candidates. The chosen one takes turns with every group, and the
/// group's times are in its measure.
fn measure_layer(
    job: &Job<'_>,
    trainer: &Trainer<'_>,
    at: usize,
    passes: Passes,
) -> Result<Vec<Option<f64>>, Failure> {
    let layer = &trainer.chosen().layers[at];
    let mut seconds = vec![None; layer.all.len()];
    let others: Vec<usize> = layer.kept().into_iter().filter(|&i| i != layer.chosen).collect();
    let groups = others.chunks(TOGETHER).chain(others.is_empty().then_some(&[][..]));
    for group in groups {
        let group: Vec<usize> = [layer.chosen].into_iter().chain(group.iter().copied()).collect();
        let found = measure_group(job, trainer, (at, &group), passes)?;
        let first = *seconds[layer.chosen].get_or_insert(found[0]);
        for (index, found_here) in group.into_iter().zip(&found) {
            seconds[index] = Some(found_here * first / found[0].max(f64::MIN_POSITIVE));
        }
    }
    Ok(seconds)
}

/// Seconds of some candidates of a layer, which take turns.
fn measure_group(
    job: &Job<'_>,
    trainer: &Trainer<'_>,
    (at, group): (usize, &[usize]),
    passes: Passes,
) -> Result<Vec<f64>, Failure> {
    let chosen = trainer.chosen();
    let costs = lacis::costs::Measured(job.profile);
    let (network, sizes) = (&trainer.model().network, trainer.sizes());
    let recipe = trainer.recipe();
    let mut all = Vec::new();
    for &index in group {
        let of = (network, chosen);
        let plan = with_candidate(of, (at, index), (&sizes, &costs), &recipe.settings)?;
        let clock = Clock::new(plan.steps.len());
        all.push((passes.trainer(job, recipe.clone(), Some(plan))?, clock));
    }
    take_turns(&mut all, passes)?;
    let layer = chosen.layers[at].layer;
    Ok(all.iter().map(|(other, clock)| layer_share(other, &clock.medians(), layer)).collect())
}

/// Rounds in which everybody runs once.
fn take_turns(all: &mut [(Trainer<'_>, Clock)], passes: Passes) -> Outcome {
    for _ in 0..=ROUNDS {
        for (trainer, clock) in all.iter_mut() {
            passes.run(trainer, clock)?;
        }
    }
    Ok(())
}

/// Seconds of a layer's steps in an epoch, with their share of what is done once.
fn layer_share(trainer: &Trainer<'_>, steps: &[f64], layer: u16) -> f64 {
    let epochs = trainer.recipe().epochs.max(1) as f64;
    let of = trainer.chosen().plan.steps.iter().zip(steps);
    let of = of.filter(|(step, _)| step.layer == Some(layer));
    of.map(|(step, s)| if step.phase == Phase::Once { s / epochs } else { *s }).sum()
}

/// Some epochs after a first one: the median epoch, and seconds of each step.
fn timed(trainer: &mut Trainer<'_>, passes: Passes) -> Result<(f64, Vec<f64>), Failure> {
    let mut clock = Clock::new(trainer.chosen().plan.steps.len());
    passes.run(trainer, &mut clock)?;
    let mut epochs = Vec::new();
    for _ in 0..ROUNDS {
        passes.run(trainer, &mut clock)?;
        let start = Instant::now();
        passes.run(trainer, &mut Nobody)?;
        epochs.push(start.elapsed().as_secs_f64());
    }
    epochs.sort_by(f64::total_cmp);
    Ok((epochs[ROUNDS / 2], clock.medians()))
}

/// Seconds predicted for a candidate's layer alone.
fn layer_seconds(trainer: &Trainer<'_>, at: usize, index: usize) -> Option<f64> {
    let costs = lacis::costs::Measured(trainer.profile());
    let (chosen, sizes) = (trainer.chosen(), trainer.sizes());
    let network = &trainer.model().network;
    let settings = &trainer.recipe().settings;
    let plan = with_candidate((network, chosen), (at, index), (&sizes, &costs), settings).ok()?;
    let predicted = predict(&plan, &sizes, &costs)?;
    let layer = chosen.layers[at].layer;
    let iterations = sizes.iterations.max(1) as f64;
    let seconds = plan.steps.iter().zip(&predicted.steps).filter(|(s, _)| s.layer == Some(layer));
    Some(seconds.map(|(s, t)| if s.phase == Phase::Once { t / iterations } else { *t }).sum())
}

fn as_json(trainer: &Trainer<'_>, measured: Option<&Measured>) -> Value {
    let chosen = trainer.chosen();
    let layers: Vec<Value> = chosen
        .layers
        .iter()
        .enumerate()
        .map(|(at, layer)| {
            let candidates: Vec<Value> = (0..layer.all.len())
                .map(|index| {
                    let candidate = &layer.all[index];
                    let kept = candidate.pruned_by.is_none();
                    let predicted = kept.then(|| layer_seconds(trainer, at, index)).flatten();
                    let measured = measured.and_then(|m| m.candidates[at][index]);
                    json!({ "formula": candidate.formula, "predicted_ms": predicted.map(ms),
                            "measured_ms": measured.map(ms), "pruned_by": candidate.pruned_by })
                })
                .collect();
            json!({ "layer": layer.layer, "enumerated": layer.enumerated,
                    "kept": layer.kept().len(), "chosen": layer.all[layer.chosen].formula,
                    "stopped": stopped(layer), "candidates": candidates })
        })
        .collect();
    let plan = &chosen.plan;
    let mut steps = steps::as_json(plan);
    for (at, step) in steps.iter_mut().enumerate() {
        step["kernel"] = json!(trainer.kernel_name(at));
        step["predicted_ms"] = json!(ms(chosen.predicted.steps[at]));
        step["measured_ms"] = json!(measured.map(|m| ms(m.steps[at])));
        step["sampled_ms"] = json!(sampled_seconds(trainer, at).map(ms));
    }
    let approx = trainer.approx().map(lacis::approx::Approx::report);
    json!({ "plan": plan.id(), "formula": plan.formula, "savings": plan.savings, "layers": layers,
            "predicted_epoch_ms": ms(chosen.predicted.iteration),
            "measured_epoch_ms": measured.map(|m| ms(m.epoch)),
            "once_ms": ms(chosen.predicted.once), "peak_bytes": trainer.needs().total(),
            "plan_ms": ms(trainer.plan_seconds()), "costed": chosen.costed, "steps": steps,
            "approx": approx })
}

/// What a step is predicted to take with some of its pairs, where it is to be sampled.
fn sampled_seconds(trainer: &Trainer<'_>, at: usize) -> Option<f64> {
    let sampling = trainer.approx()?.sampling();
    sampling.steps.iter().find(|sampled| sampled.step == at).map(|sampled| sampled.sampled)
}

fn ms(seconds: f64) -> f64 {
    seconds * 1e3
}

fn stopped(layer: &Candidates) -> String {
    match layer.stop {
        StopReason::Complete => "complete".to_owned(),
        StopReason::Budget(most) => format!("budget of {most}"),
    }
}

fn describe_layers(
    out: &Out,
    trainer: &Trainer<'_>,
    (all, measured): (bool, Option<&Measured>),
) -> Outcome {
    for (at, layer) in trainer.chosen().layers.iter().enumerate() {
        out.line(format_args!(
            "\nlayer {}: {} compositions, {} kept ({})",
            layer.layer + 1,
            layer.enumerated,
            layer.kept().len(),
            stopped(layer),
        ))?;
        for (index, candidate) in layer.all.iter().enumerate() {
            let mark = if index == layer.chosen { '*' } else { ' ' };
            match &candidate.pruned_by {
                Some(by) if all => {
                    out.line(format_args!("   {:>23}  {}", by, candidate.formula))?
                }
                Some(_) => {}
                None => {
                    let predicted = layer_seconds(trainer, at, index);
                    let text =
                        |s: Option<f64>| s.map_or(String::new(), |s| format!("{:.3} ms", ms(s)));
                    let real = measured.and_then(|m| m.candidates[at][index]);
                    out.line(format_args!(
                        " {mark} {:>11} {:>11}  {}",
                        text(predicted),
                        text(real),
                        candidate.formula
                    ))?;
                }
            }
        }
    }
    Ok(())
}

fn describe_steps(out: &Out, trainer: &Trainer<'_>, measured: Option<&Measured>) -> Outcome {
    let chosen = trainer.chosen();
    let plan = &chosen.plan;
    out.line(format_args!(
        "\nplan {}: {} steps, {} slots",
        plan.id(),
        plan.steps.len(),
        plan.slots
    ))?;
    for (at, step) in plan.steps.iter().enumerate() {
        let slot = step.outputs.first().and_then(|value| plan.slot_of(*value));
        let slot = slot.map_or(String::new(), |slot| format!("→ {slot}"));
        let real = measured.map_or(String::new(), |m| format!("{:.3} ms", ms(m.steps[at])));
        out.line(format_args!(
            "{:4} {:8} {:>10} {:>10} {:>5}  {:18} {}",
            at + 1,
            format!("{:?}", step.phase).to_lowercase(),
            format!("{:.3} ms", ms(chosen.predicted.steps[at])),
            real,
            slot,
            steps::operator(step),
            step.formula
        ))?;
    }
    out.line(format_args!(
        "\npredicted: {:.3} ms an epoch, {:.3} ms once, peak memory {}; savings: {}",
        ms(chosen.predicted.iteration),
        ms(chosen.predicted.once),
        bytes(trainer.needs().total()),
        plan.savings.join(", "),
    ))?;
    describe_approximation(out, trainer)?;
    if let Some(measured) = measured {
        out.line(format_args!("measured:  {:.3} ms an epoch", ms(measured.epoch)))?;
    }
    out.line(format_args!(
        "planned in {:.1} ms, {} plans costed",
        ms(trainer.plan_seconds()),
        chosen.costed
    ))
}

fn describe_approximation(out: &Out, trainer: &Trainer<'_>) -> Outcome {
    let Some(approx) = trainer.approx() else { return Ok(()) };
    let sampling = approx.sampling();
    for sampled in &sampling.steps {
        out.line(format_args!(
            "sampled:   step {} in {:.3} instead of {:.3} ms",
            sampled.step + 1,
            ms(sampled.sampled),
            ms(sampled.exact),
        ))?;
    }
    out.line(format_args!(
        "sampled:   {:.2} times faster epochs predicted, {:.2} at most (Amdahl){}",
        sampling.speedup,
        sampling.ceiling,
        match (approx.is_on(), approx.is_possible()) {
            (true, _) => "",
            (false, true) => "; it does not pay and is left off",
            (false, false) => "; there is nothing to sample",
        },
    ))
}

/// The trainer whose candidates were measured to be the fastest, layer by layer.
fn fastest<'j>(job: &'j Job<'j>, recipe: Recipe) -> Result<Trainer<'j>, Failure> {
    let mut trainer = Trainer::new(job, recipe.clone())?;
    let mut chosen = trainer.chosen().clone();
    let (mut best, _) = timed(&mut trainer, Passes::Training)?;
    let costs = lacis::costs::Measured(job.profile);
    for at in 0..chosen.layers.len() {
        for index in chosen.layers[at].kept() {
            if index == chosen.layers[at].chosen {
                continue;
            }
            let network = &trainer.model().network;
            let settings = &recipe.settings;
            let sizes = trainer.sizes();
            let plan = with_candidate((network, &chosen), (at, index), (&sizes, &costs), settings)?;
            let mut other = Trainer::with_plan(job, recipe.clone(), plan.clone())?;
            let (seconds, _) = timed(&mut other, Passes::Training)?;
            if seconds < best {
                best = seconds;
                chosen.layers[at].chosen = index;
                chosen.plan = plan;
            }
        }
    }
    Ok(Trainer::with_plan(job, recipe, chosen.plan)?)
}

/// The trainer whose plan has this id, among those of one layer computed another way.
fn with_id<'j>(job: &'j Job<'j>, recipe: Recipe, id: &str) -> Result<Trainer<'j>, Failure> {
    let trainer = Trainer::new(job, recipe.clone())?;
    let chosen = trainer.chosen();
    if chosen.plan.id() == id {
        return Ok(trainer);
    }
    let costs = lacis::costs::Measured(job.profile);
    for (at, layer) in chosen.layers.iter().enumerate() {
        for index in layer.kept() {
            let network = &trainer.model().network;
            let sizes = trainer.sizes();
            let plan =
                with_candidate((network, chosen), (at, index), (&sizes, &costs), &recipe.settings)?;
            if plan.id() == id {
                return Ok(Trainer::with_plan(job, recipe, plan)?);
            }
        }
    }
    let problem = format!(
        "is neither a file nor the id of a plan of this network on this graph; {} was chosen",
        chosen.plan.id()
    );
    Err(lacis::Error::argument(format!("--plan {id}"), problem).into())
}
