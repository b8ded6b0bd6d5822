//! What takes the time in whole models, by kind of step, as the executor's observer is told.

use std::path::Path;

use lacis::exec::Observe;
use lacis::ops::suite::Suite;
use lacis::train::{Job, Trainer};
use serde_json::{Value, json};

use crate::args::{Changes, Cli, Source, Verb};
use crate::args_train::Train;
use crate::data::Desk;
use crate::out::Failure;
use crate::planned;
use clap::Parser;

/// Networks and their flags. There is no PNA: what its aggregators cost is shown one by one.
const MODELS: [(&str, &[&str]); 7] = [
    ("gcn", &["--model", "gcn"]),
    ("gat", &["--model", "gat"]),
    ("gatv2", &["--model", "gatv2"]),
    ("gin", &["--model", "gin", "--mlp-layers", "2"]),
    ("sage, mean", &["--model", "sage", "--aggregate", "mean"]),
    ("sage, sum", &["--model", "sage", "--aggregate", "sum"]),
    ("sage, max", &["--model", "sage", "--aggregate", "max"]),
];
const EPOCHS: usize = 6;

/// A batch of 64 graphs of about 1000 nodes of degree 10 with 64 features is as large; the quick
/// look takes a quarter of it.
fn graph(suite: Suite) -> &'static str {
    match suite {
        Suite::Quick => "er:n=16k,e=80k,seed=42",
        _ => "er:n=64k,e=320k,seed=42",
    }
}

/// A line per model.
pub fn profiles(desk: &Desk<'_>, path: &Path, suite: Suite) -> Result<Vec<Value>, Failure> {
    let changes = Changes {
        edge_weights: "use".to_owned(),
        undirected: true,
        features: Some("64".to_owned()),
        classes: Some(10),
        ..Changes::default()
    };
    let set = desk.open(&Source::named(graph(suite), &changes))?;
    desk.out.line("where whole models spend their time:")?;
    let mut lines = Vec::new();
    for (name, flags) in MODELS {
        let args = typed(flags)?;
        let recipe = planned::recipe(&args.net, &args.learning, &args.planning, 0)?;
        let (split, _) = planned::split(&set, Some("all"), 0)?;
        let profile = planned::profile(desk, path, (&set, &recipe))?;
        let job = Job { dataset: &set, split: &split, threads: &desk.threads, profile: &profile };
        let mut trainer = Trainer::new(&job, recipe)?;
        let (epoch_ms, kinds) = shares(&mut trainer)?;
        let shown: Vec<String> =
            kinds.iter().take(5).map(|(k, share)| format!("{k} {:.0} %", share * 100.0)).collect();
        desk.out.line(format_args!("{name:<12} {epoch_ms:>9.2} ms: {}", shown.join(", ")))?;
        let kinds: serde_json::Map<String, Value> =
            kinds.into_iter().map(|(kind, share)| (kind, json!(share))).collect();
        let line = json!({ "event": "profile", "model": name, "graph": graph(suite),
                           "epoch_ms": epoch_ms, "kinds": kinds,
                           "threads": desk.threads.count() });
        desk.out.event("profile", &line)?;
        lines.push(line);
    }
    Ok(lines)
}

fn typed(flags: &[&str]) -> lacis::Result<Box<Train>> {
    let usual = ["lacis", "train", "--hidden", "64", "--layers", "3", "--dropout", "0"];
    match Cli::try_parse_from(usual.iter().chain(flags)).map(|cli| cli.verb) {
        Ok(Some(Verb::Train(args))) => Ok(args),
        _ => Err(lacis::Error::argument("flags", "are not those of `lacis train`")),
    }
}

/// Seconds of every step.
#[derive(Default)]
struct Steps(Vec<f64>);

impl Observe for Steps {
    fn step(&mut self, index: usize, seconds: f64) {
        if self.0.len() <= index {
            self.0.resize(index + 1, 0.0);
        }
        self.0[index] += seconds;
    }
}

/// Milliseconds of an epoch, and the shares of the kinds of steps, the largest first.
fn shares(trainer: &mut Trainer<'_>) -> lacis::Result<(f64, Vec<(String, f64)>)> {
    // The first epoch does what later ones need not.
    trainer.step(&mut Steps::default())?;
    let (mut steps, mut seconds) = (Steps::default(), Vec::new());
    for _ in 0..EPOCHS {
        seconds.push(trainer.step(&mut steps)?.seconds);
    }
    seconds.sort_by(f64::total_cmp);
    let kinds = crate::train::kinds_of_steps(trainer, &steps.0);
    Ok((seconds[EPOCHS / 2] * 1e3, kinds))
}
