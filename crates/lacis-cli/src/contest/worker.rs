//! `lacis bench train-worker`: trains when told to, in a process of its own.

use std::io::{BufRead, Write};
use std::path::Path;

use clap::Parser;
use lacis::exec::Nobody;
use lacis::train::{Job, Trainer};
use lacis::{Error, Result};
use serde_json::{Value, json};

use crate::args::{Cli, Verb};
use crate::args_train::Train;
use crate::data::Desk;
use crate::out::{Failure, Out, Outcome};
use crate::progress::Stop;
use crate::{machine, memory, planned};

/// Answers orders until there are no more. What goes wrong is an answer too.
pub fn run(words: &[String], stop: &Stop) -> Outcome {
    match trained(words, stop) {
        Err(Failure::Error(error) | Failure::Ran(error)) => {
            say(&json!({ "error": error.to_string() }))
        }
        other => other,
    }
}

fn trained(words: &[String], stop: &Stop) -> Outcome {
    let cli = Cli::try_parse_from(std::iter::once("lacis").chain(words.iter().map(String::as_str)));
    let cli = cli.map_err(|error| {
        let text = error.to_string();
        Error::argument("arguments", text.lines().next().unwrap_or_default().to_owned())
    })?;
    let Some(Verb::Train(args)) = &cli.verb else {
        return Err(Error::argument("arguments", "are not those of `lacis train`").into());
    };
    let Some(order) = order()? else { return Ok(()) };
    let out = Out { quiet: true, ..Out::default() };
    let desk = Desk::new(&cli.global, &out, stop)?;
    let dataset = desk.open(&args.source)?;
    // The peak of reading is forgotten; what is counted is above graph and features.
    memory::forget_peak();
    let base = memory::now_bytes();
    let seed = args.source.changes.seed;
    let recipe = planned::recipe(&args.net, &args.learning, &args.planning, seed)?;
    let (split, _) = planned::split_for(&dataset, &args.learning, seed)?;
    let path = machine::profile_path(cli.global.machine.as_deref())?;
    let profile = planned::profile(&desk, &path, (&dataset, &recipe))?;
    let job = Job { dataset: &dataset, split: &split, threads: &desk.threads, profile: &profile };
    let mut trainer = crate::explain::planned_as(&args.planning.plan, &job, recipe)?;
    prepared(&mut trainer, args, &order)?;
    while let Some(order) = self::order()? {
        say(&answer(&order, &mut trainer, base)?)?;
    }
    Ok(())
}

/// Says what was planned, and keeps the first weights where they were asked for.
fn prepared(trainer: &mut Trainer<'_>, args: &Train, order: &Value) -> Outcome {
    if let Some(settings) = planned::approximation(&args.approximation) {
        trainer.approximate(settings)?;
    }
    if let Some(path) = order["weights"].as_str() {
        trainer.model_tensors()?.save(Path::new(path))?;
    }
    let plan = &trainer.chosen().plan;
    say(&json!({ "plan": plan.id(), "formula": plan.formula, "savings": plan.savings,
                 "plan_ms": trainer.plan_seconds() * 1e3,
                 "predicted_ms": trainer.predicted_epoch_seconds() * 1e3,
                 "predicted_bytes": trainer.needs().total() }))
}

fn answer(order: &Value, trainer: &mut Trainer<'_>, base: Option<usize>) -> Result<Value> {
    if order["do"] == "memory" {
        return Ok(json!({ "base_bytes": base, "peak_bytes": memory::peak_bytes() }));
    }
    let (mut seconds, mut losses) = (Vec::new(), Vec::new());
    for _ in 0..order["count"].as_u64().unwrap_or(1) {
        let epoch = trainer.step(&mut Nobody)?;
        seconds.push(epoch.seconds);
        losses.push(epoch.loss.is_finite().then_some(epoch.loss));
    }
    Ok(json!({ "seconds": seconds, "losses": losses }))
}

/// The next order, where there is one.
fn order() -> Result<Option<Value>> {
    let mut line = String::new();
    let read = std::io::stdin().lock().read_line(&mut line);
    match read.map_err(|error| Error::io("read", "standard input", error))? {
        0 => Ok(None),
        _ => serde_json::from_str(&line)
            .map(Some)
            .map_err(|error| Error::argument("an order", format!("is no JSON: {error}"))),
    }
}

fn say(answer: &Value) -> Outcome {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{answer}")?;
    Ok(out.flush()?)
}
