//! `lacis report`, and `--html` of other commands: pages of what was found.

use std::path::Path;
use std::sync::PoisonError;

use lacis::data::staged::Existing;
use lacis::store::RunFolder;
use lacis::{Error, Result};
use serde_json::{Value, json};

use crate::args::{BenchVerb, Cli, Report, Verb};
use crate::out::{Out, Outcome};
use crate::page;
use crate::steps;
use crate::train::run::read_plan;

/// Runs a command and, where it was asked for, makes a page of what it told.
pub fn with_page(cli: &Cli, out: &Out, command: impl FnOnce() -> Outcome) -> Outcome {
    let Some(path) = &cli.global.html else { return command() };
    if !makes_page(cli.verb.as_ref()) {
        let problem = "this command finds nothing that makes a page; train, explain, analyze, \
                       bench and tune do, and `lacis report` makes one of what they left";
        return Err(Error::argument("--html", problem).into());
    }
    let replace = cli.global.overwrite_html;
    if path.exists() && !replace {
        let problem = "is there already; --overwrite-html replaces it";
        return Err(Error::argument(format!("--html {}", path.display()), problem).into());
    }
    let existing = if replace { Existing::Replace } else { Existing::Keep };
    page::check_place(path, existing)?;
    command()?;
    let Some(told) = &out.told else { return Ok(()) };
    let mut events = told.lock().unwrap_or_else(PoisonError::into_inner).clone();
    if !page::has_sections(&events) {
        let problem = "nothing was found that makes a page";
        return Err(Error::argument("--html", problem).into());
    }
    events.push(environment());
    let title = page::title(&events);
    page::write(path, &page::of(&[(title.clone(), events)], &title), existing)?;
    out.note(format_args!("a page to look at: {}", path.display()));
    Ok(())
}

/// Whether a command's lines make a page.
fn makes_page(verb: Option<&Verb>) -> bool {
    match verb {
        Some(Verb::Train(_) | Verb::Explain(_) | Verb::Analyze(_) | Verb::Tune(_)) => true,
        Some(Verb::Bench(verb)) => {
            !matches!(verb, BenchVerb::Table { .. } | BenchVerb::TrainWorker { .. })
        }
        _ => false,
    }
}

/// The machine and the versions, as a line.
fn environment() -> Value {
    let machine = lacis::machine::this_machine();
    let typed: Vec<String> = std::env::args().collect();
    json!({ "event": "environment", "version": env!("CARGO_PKG_VERSION"), "machine": machine,
            "system": std::env::consts::OS, "command": typed.join(" ") })
}

/// A page of runs and files.
pub fn run(args: &Report, out: &Out) -> Outcome {
    let shown = |path: &Path| path.display().to_string();
    let paths: Vec<String> = args.paths.iter().map(|path| shown(path)).collect();
    out.start("report", &json!({ "paths": paths, "output": shown(&args.output) }))?;
    let mut sources = Vec::new();
    for path in &args.paths {
        let events = if path.is_dir() { of_run(path)? } else { of_lines(path)? };
        if !page::has_sections(&events) {
            let problem = "has no line that `lacis` prints with --json, or nothing to show of it";
            return Err(Error::file(path, problem).into());
        }
        sources.push((path.display().to_string(), events));
    }
    let title = match &sources[..] {
        [(_, events)] => page::title(events),
        several => format!("Lacis: {} results", several.len()),
    };
    let existing = if args.overwrite { Existing::Replace } else { Existing::Keep };
    page::write(&args.output, &page::of(&sources, &title), existing)?;
    let path = args.output.display().to_string();
    out.event("written", &json!({ "path": path }))?;
    out.line(format_args!("wrote {path}"))
}

/// The lines that a run would have printed, from what its folder holds.
fn of_run(path: &Path) -> Result<Vec<Value>> {
    if !path.join("config.toml").is_file() {
        let problem = "is no folder of a run: there is no config.toml in it; `lacis train` makes \
                       such folders, and files of JSON lines make pages too";
        return Err(Error::file(path, problem));
    }
    let folder = RunFolder::open(path)?;
    let config = folder.read_config()?;
    let mut config: toml::Table = toml::from_str(&config)
        .map_err(|error| Error::file(path.join("config.toml"), error.to_string()))?;
    // A page is for others, whose folders are called otherwise.
    config.remove(crate::config::BEGUN_IN);
    let mut events = vec![json!({ "event": "start", "command": "train", "config": config })];
    if let Ok(plan) = read_plan(&path.join("plan.json")) {
        events.push(json!({ "event": "plan", "id": plan.id(), "formula": plan.formula,
                            "steps": steps::as_json(&plan) }));
    }
    events.extend(folder.read_metrics()?.into_iter().map(|line| named("epoch", line)));
    for (file, event) in [("summary.json", "done"), ("env.json", "environment")] {
        let file = path.join(file);
        if let Ok(text) = std::fs::read_to_string(&file) {
            let line = serde_json::from_str(&text)
                .map_err(|error| Error::file(&file, format!("is no JSON: {error}")))?;
            events.push(named(event, line));
        }
    }
    Ok(events)
}

fn named(event: &str, mut line: Value) -> Value {
    if let Some(line) = line.as_object_mut() {
        line.entry("event").or_insert_with(|| json!(event));
    }
    line
}

/// What a record says of itself, as the line that its command would begin with, and its lines.
fn of_record(record: Value, lines: Vec<Value>) -> Vec<Value> {
    let of = |name: &str| record[name].clone();
    let config = json!({ "args": of("args"), "peers": of("peers") });
    let roof = Some(of("roof")).filter(Value::is_object).map(|roof| named("roof", roof));
    let start = json!({ "event": "start", "version": of("version"), "command": of("command"),
                        "config": config, "machine": of("machine"), "cpu": of("cpu") });
    std::iter::once(start)
        .chain(roof)
        .chain(lines.into_iter().map(|line| named("op", line)))
        .collect()
}

/// JSON lines of a file, or those that the record of a benchmark holds.
pub fn of_lines(path: &Path) -> Result<Vec<Value>> {
    let text = std::fs::read_to_string(path).map_err(|error| Error::io("read", path, error))?;
    if let Ok(mut record) = serde_json::from_str::<Value>(&text)
        && let Some(Value::Array(lines)) = record.get_mut("lines").map(Value::take)
    {
        return Ok(of_record(record, lines));
    }
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    let parsed = lines.map(|(at, line)| {
        serde_json::from_str(line)
            .map_err(|error| Error::file(path, format!("line {} is no JSON: {error}", at + 1)))
    });
    parsed.collect()
}
