//! `lacis analyze`: how much parallelism a network holds, and what using it would cost.

use lacis::Error;
use lacis::analyze::pipeline::Schedule;
use lacis::analyze::{Analysis, Case, Curve, Layer, Verdict, Wires, analyze};
use lacis::costs::Measured;
use lacis::plan::analysis::Tally;
use lacis::train::{Job, Trainer};
use serde_json::{Value, json};

use crate::args::Global;
use crate::args_analyze::{Analyze, Workers};
use crate::data::Desk;
use crate::defaults;
use crate::links;
use crate::machine;
use crate::out::{Failure, Out, Outcome, bytes, grouped};
use crate::planned;
use crate::progress::Stop;

/// Columns of a picture of a schedule.
const PICTURE: usize = 72;
/// What the passes of a plan are called, in their order.
const PASSES: [&str; 4] = ["once", "forward", "backward", "update"];

pub fn run(args: &Analyze, global: &Global, out: &Out, stop: &Stop) -> Outcome {
    let desk = Desk::new(global, out, stop)?;
    out.start("analyze", args)?;
    let wires = wires(&args.workers)?;
    let dataset = desk.open(&args.source)?;
    let mut args = args.clone();
    defaults::fill_in((&mut args.net, &mut args.learning), &args.typed, dataset.name());
    let seed = args.source.changes.seed;
    let mut recipe = planned::recipe(&args.net, &args.learning, &args.planning, seed)?;
    recipe.config.embed = planned::learned_features(args.source.changes.features.as_deref());
    let linked = links::linked(&args.learning, &dataset, seed, &desk)?;
    let (dataset, split, _) =
        links::learned_from(&mut recipe, (&args.net, &args.learning), (&dataset, &linked))?;
    let path = machine::profile_path(global.machine.as_deref())?;
    let profile = planned::profile(&desk, &path, (dataset, &recipe))?;
    planned::tell_unmeasured(&profile, out);
    let job = Job { dataset, split: &split, threads: &desk.threads, profile: &profile };
    let trainer = stop.or_end(out, || Trainer::new(&job, recipe))?;
    let case = Case {
        dataset,
        config: &trainer.model().config,
        model: &trainer.recipe().model,
        plan: &trainer.chosen().plan,
        sizes: &trainer.sizes(),
        costs: &Measured(&profile),
        threads: &desk.threads,
        train: &split.train,
    };
    let found = analyze(&case, &wires)?;
    out.event("analysis", &as_json(&found, &trainer.chosen().plan.id()))?;
    out.line(format_args!(
        "{}: {} nodes, {} edges; {}, {} ({})",
        dataset.name(),
        grouped(dataset.graph().n_nodes()),
        grouped(dataset.graph().n_edges()),
        args.net.model,
        class(&found),
        found.family.name,
    ))?;
    describe_forms(out, &found)?;
    describe_layers(out, &found)?;
    describe_schemes(out, &found)?;
    describe_kinds(out, &found)?;
    describe_curves(out, &found)?;
    if let Some(schedule) = &found.schedule {
        draw(out, schedule)?;
    }
    for reason in &found.left_out {
        out.line(format_args!("left out: {reason}"))?;
    }
    out.line(format_args!("\nAdvice: {}", found.advice))
}

fn class(found: &Analysis) -> &'static str {
    found.class.map_or("no edges", |class| class.name)
}

/// What such networks compute, node by node and as matrices, and how that grows.
fn describe_forms(out: &Out, found: &Analysis) -> Outcome {
    if let Some(class) = found.class {
        out.line(format_args!(
            "local form   {}: {}, {}; {} if done anew for every edge",
            class.local, class.work, class.depth, class.work_per_edge
        ))?;
        let [work, depth] = found.family.iterated;
        let other = found
            .family
            .otherwise
            .map_or(String::new(), |[way, work, depth]| format!("; with {way} {work}, {depth}"));
        out.line(format_args!("global form  {}: {work}, {depth}{other}", found.family.global))?;
    }
    Ok(())
}

fn wires(asked: &Workers) -> Result<Wires, Failure> {
    let Workers { alpha, beta, .. } = *asked;
    let given = [("alpha", alpha), ("beta", beta)];
    for (name, seconds) in given {
        if !seconds.is_finite() || seconds < 0.0 {
            let problem = format!("{seconds} is no number of seconds from 0 on");
            return Err(Error::argument(format!("--{name}"), problem).into());
        }
    }
    Ok(Wires {
        workers: asked.workers as usize,
        alpha,
        beta,
        staleness: asked.staleness.into(),
        blocks: asked.blocks.into(),
    })
}

/// A large number as people read it: `12.3 M`.
fn large(number: f64) -> String {
    let units = ["", " k", " M", " G", " T", " P", " E"];
    let mut scaled = number;
    let mut unit = 0;
    while scaled >= 1000.0 && unit + 1 < units.len() {
        scaled /= 1000.0;
        unit += 1;
    }
    match unit {
        0 => format!("{scaled:.0}"),
        _ => format!("{scaled:.1}{}", units[unit]),
    }
}

fn describe_layers(out: &Out, found: &Analysis) -> Outcome {
    out.line(format_args!(
        "\n{:<13}{:<10}{:>10}{:>7}{:>12}{:>12}{:>10}  {}",
        "layer",
        "pass",
        "work",
        "depth",
        "parallelism",
        "bytes",
        "ops/byte",
        "order of work, of depth"
    ))?;
    for layer in &found.layers {
        for (at, tally) in layer.passes.iter().enumerate().filter(|(_, tally)| tally.bytes > 0) {
            let order = match at {
                1 => layer.forward_order.join(", "),
                2 => layer.backward_order.join(", "),
                _ => String::new(),
            };
            describe_tally(out, (&layer.name, PASSES[at]), tally, &order)?;
        }
    }
    describe_tally(out, ("all", "epoch"), &found.epoch, "")?;
    let symbols = found.symbols();
    let named: Vec<String> = symbols.iter().map(|(s, means)| format!("{s} {means}")).collect();
    out.line(format_args!("({})", named.join(", ")))?;
    out.line(format_args!(
        "one worker: {:.3} ms an epoch, predicted; depth alone would allow {} workers",
        found.seconds * 1e3,
        large(found.epoch.parallelism())
    ))
}

fn describe_tally(out: &Out, (layer, pass): (&str, &str), tally: &Tally, order: &str) -> Outcome {
    let line = format!(
        "{layer:<13}{pass:<10}{:>10}{:>7}{:>12}{:>12}{:>10.2}  {order}",
        large(tally.work as f64),
        tally.depth,
        large(tally.parallelism()),
        bytes(tally.bytes as usize),
        tally.intensity(),
    );
    out.line(line.trim_end())
}

fn describe_schemes(out: &Out, found: &Analysis) -> Outcome {
    out.line(format_args!(
        "\n{:<38}{:>10}{:>12}  order of work; of memory",
        "an epoch of", "work", "memory"
    ))?;
    for scheme in &found.schemes {
        out.line(format_args!(
            "{:<38}{:>10}{:>12}  {}; {}",
            scheme.name,
            large(scheme.work),
            bytes(scheme.memory_bytes as usize),
            scheme.work_order,
            scheme.memory_order
        ))?;
    }
    out.line("(batches of 1,024 nodes, c = 10 neighbours, at most)")
}

fn describe_kinds(out: &Out, found: &Analysis) -> Outcome {
    out.line(format_args!(
        "\n{:<24}{:>8}{:>11}{:>10}{:>7}{:>9}{:>11}{:>12}  note",
        "parallelism", "workers", "sent", "messages", "syncs", "balance", "memory", "ms an epoch"
    ))?;
    for kind in &found.parallelism {
        out.line(format_args!(
            "{:<24}{:>8}{:>11}{:>10}{:>7}{:>9.2}{:>11}{:>12.3}  {}",
            kind.kind,
            kind.workers,
            bytes(kind.volume_bytes as usize),
            large(kind.messages),
            kind.syncs,
            kind.balance,
            bytes(kind.memory_bytes as usize),
            kind.seconds * 1e3,
            kind.note
        ))?;
    }
    Ok(())
}

fn describe_curves(out: &Out, found: &Analysis) -> Outcome {
    let shown = |workers: usize| workers.trailing_zeros().is_multiple_of(2);
    let Some((_, first)) = found.curves.first() else { return Ok(()) };
    let heads: String =
        first.iter().filter(|p| shown(p.0)).map(|p| format!("{:>10}", p.0)).collect();
    out.line(format_args!("\n{:<24}{heads}", "ms an epoch, workers"))?;
    for (kind, points) in &found.curves {
        let times: String =
            points.iter().filter(|p| shown(p.0)).map(|p| format!("{:>10.3}", p.1 * 1e3)).collect();
        out.line(format_args!("{kind:<24}{times}"))?;
    }
    Ok(())
}

/// A line per worker, a letter per block.
fn draw(out: &Out, schedule: &Schedule) -> Outcome {
    out.line(format_args!(
        "\nA pipeline of layers, {:.3} ms; a letter is a block of nodes, lower case going back:",
        schedule.seconds * 1e3
    ))?;
    let last = schedule.spans.iter().map(|span| span.stage).max().unwrap_or(0);
    for worker in 0..schedule.workers {
        let mut line = vec!['·'; PICTURE];
        for span in schedule.spans.iter().filter(|span| span.worker == worker) {
            let at = |seconds: f64| (seconds / schedule.seconds * PICTURE as f64) as usize;
            let first = if span.stage * 2 > last { b'a' } else { b'A' };
            let letter = char::from(first + (span.block % 26) as u8);
            line[at(span.start).min(PICTURE - 1)..at(span.end).min(PICTURE)].fill(letter);
        }
        out.line(format_args!("  worker {worker}  {}", line.iter().collect::<String>()))?;
    }
    Ok(())
}

fn as_json(found: &Analysis, plan: &str) -> Value {
    let curve = |(kind, points): &Curve| {
        let points: Vec<Value> = points
            .iter()
            .map(|(workers, seconds)| json!({ "workers": workers, "predicted_ms": seconds * 1e3 }))
            .collect();
        json!({ "kind": kind, "points": points })
    };
    let schemes = found.schemes.iter().map(|scheme| {
        json!({ "name": scheme.name, "work": scheme.work, "memory_bytes": scheme.memory_bytes,
                "work_order": scheme.work_order, "depth_order": scheme.depth_order,
                "memory_order": scheme.memory_order })
    });
    json!({
        "plan": plan,
        "class": class(found),
        "family": found.family.name,
        "local_form": found.class.map(|class| json!({
            "formula": class.local, "work_order": class.work, "depth_order": class.depth,
            "work_order_per_edge": class.work_per_edge,
        })),
        "global_form": {
            "formula": found.family.global, "work_order": found.family.iterated[0],
            "depth_order": found.family.iterated[1], "otherwise": found.family.otherwise,
        },
        "symbols": found.symbols().into_iter().collect::<std::collections::BTreeMap<_, _>>(),
        "layers": found.layers.iter().map(layer_json).collect::<Vec<_>>(),
        "total": tally_json(&found.epoch),
        "predicted_epoch_ms": found.seconds * 1e3,
        "schemes": schemes.collect::<Vec<_>>(),
        "parallelism": found.parallelism.iter().map(kind_json).collect::<Vec<_>>(),
        "curves": found.curves.iter().map(curve).collect::<Vec<_>>(),
        "schedule": found.schedule.as_ref().map(schedule_json),
        "advice": found.advice,
        "left_out": found.left_out,
    })
}

fn tally_json(tally: &Tally) -> Value {
    json!({ "work": tally.work, "depth": tally.depth, "bytes": tally.bytes,
            "intensity": tally.intensity(), "parallelism": tally.parallelism() })
}

fn layer_json(layer: &Layer) -> Value {
    let mut body = tally_json(&layer.epoch);
    let passes: serde_json::Map<String, Value> = PASSES
        .iter()
        .zip(&layer.passes)
        .map(|(name, tally)| ((*name).to_owned(), tally_json(tally)))
        .collect();
    body["layer"] = json!(layer.name);
    body["passes"] = Value::Object(passes);
    body["work_order"] = json!(layer.forward_order[0]);
    body["depth_order"] = json!(layer.forward_order[1]);
    body["backward_work_order"] = json!(layer.backward_order[0]);
    body["backward_depth_order"] = json!(layer.backward_order[1]);
    body["predicted_ms"] = json!(layer.seconds * 1e3);
    body
}

fn kind_json(kind: &Verdict) -> Value {
    json!({ "kind": kind.kind, "workers": kind.workers, "volume_bytes": kind.volume_bytes.round(),
            "messages": kind.messages.round(), "syncs": kind.syncs, "balance": kind.balance,
            "memory_bytes": kind.memory_bytes.round(), "predicted_ms": kind.seconds * 1e3,
            "note": kind.note })
}

fn schedule_json(schedule: &Schedule) -> Value {
    let spans = schedule.spans.iter().map(|span| {
        json!({ "stage": span.stage, "worker": span.worker, "block": span.block,
                "iteration": span.iteration, "start_ms": span.start * 1e3,
                "end_ms": span.end * 1e3 })
    });
    json!({ "workers": schedule.workers, "ms": schedule.seconds * 1e3,
            "bubbles": schedule.bubbles, "in_flight": schedule.in_flight,
            "spans": spans.collect::<Vec<_>>() })
}
