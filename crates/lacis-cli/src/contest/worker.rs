//! `lacis bench train-worker`: trains when told to, in a process of its own.

use std::io::{BufRead, Write};
use std::path::Path;
use std::time::Instant;

use clap::Parser;
use lacis::exec::Nobody;
use lacis::kernels::Mat;
use lacis::train::{Job, Trainer};
use lacis::{Error, Labels, Result};
use serde_json::{Value, json};

use super::definition::Passes;
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
    let passes = serde_json::from_value(order["passes"].clone()).unwrap_or_default();
    prepared(&mut trainer, args, &order, passes)?;
    let mut left = order["compared_epochs"].as_u64().unwrap_or(0);
    while let Some(order) = self::order()? {
        if order["do"] == "memory" {
            say(&json!({ "base_bytes": base, "peak_bytes": memory::peak_bytes() }))?;
            continue;
        }
        let (mut seconds, mut losses) = (Vec::new(), Vec::new());
        for _ in 0..order["count"].as_u64().unwrap_or(1) {
            let (took, loss) = match passes {
                Passes::Training => {
                    let epoch = trainer.step(&mut Nobody)?;
                    (epoch.seconds, epoch.loss)
                }
                Passes::Forward => results(&mut trainer, &job, &mut left)?,
            };
            seconds.push(took);
            losses.push(loss.is_finite().then_some(loss));
        }
        say(&json!({ "seconds": seconds, "losses": losses }))?;
    }
    Ok(())
}

/// Seconds that the results of all nodes take, and, as long as some are left to compare, the loss
/// that they would have.
fn results(trainer: &mut Trainer<'_>, job: &Job<'_>, left: &mut u64) -> Result<(f64, f64)> {
    let begun = Instant::now();
    trainer.logits(|z| {
        let seconds = begun.elapsed().as_secs_f64();
        let labels = job.dataset.labels().filter(|_| *left > 0);
        *left = left.saturating_sub(1);
        let loss = labels.map_or(f64::NAN, |labels| cross_entropy(z, labels, &job.split.train));
        (seconds, loss)
    })
}

/// The mean over some rows of `ln Σ_c exp(z_ic) - z_i,label`.
fn cross_entropy(z: Mat<'_>, labels: &Labels, rows: &[u32]) -> f64 {
    let Labels::Classes { of, .. } = labels else { return f64::NAN };
    let of_row = |&i: &u32| {
        let row = z.row(i as usize);
        let most = f64::from(row.iter().copied().fold(f32::NEG_INFINITY, f32::max));
        let sum: f64 = row.iter().map(|z| (f64::from(*z) - most).exp()).sum();
        let own = usize::try_from(of[i as usize]).map_or(f64::NAN, |label| f64::from(row[label]));
        most + sum.ln() - own
    };
    rows.iter().map(of_row).sum::<f64>() / rows.len().max(1) as f64
}

/// Says what was planned, and keeps the first weights where they were asked for.
fn prepared(trainer: &mut Trainer<'_>, args: &Train, order: &Value, passes: Passes) -> Outcome {
    if let Some(settings) = planned::approximation(&args.approximation) {
        trainer.approximate(settings)?;
    }
    if let Some(path) = order["weights"].as_str() {
        trainer.model_tensors()?.save(Path::new(path))?;
    }
    if passes == Passes::Forward {
        // What was predicted is a training.
        return say(&json!({ "plan_ms": trainer.plan_seconds() * 1e3 }));
    }
    let plan = &trainer.chosen().plan;
    say(&json!({ "plan": plan.id(), "formula": plan.formula, "savings": plan.savings,
                 "plan_ms": trainer.plan_seconds() * 1e3,
                 "predicted_ms": trainer.predicted_epoch_seconds() * 1e3,
                 "predicted_bytes": trainer.needs().total() }))
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
