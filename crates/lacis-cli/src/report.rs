//! `lacis report`, and `--html` of other commands: pages of what was found.

use std::path::Path;
use std::sync::PoisonError;

use lacis::store::RunFolder;
use lacis::{Error, Result};
use serde_json::{Value, json};

use crate::args::{Cli, Report};
use crate::out::{Out, Outcome};
use crate::page;

/// Runs a command and, where it was asked for, makes a page of what it told.
pub fn with_page(cli: &Cli, out: &Out, command: impl FnOnce() -> Outcome) -> Outcome {
    let Some(path) = &cli.global.html else { return command() };
    if path.exists() {
        let problem = "is there already; another name would not overwrite it";
        return Err(Error::argument(format!("--html {}", path.display()), problem).into());
    }
    command()?;
    let Some(told) = &out.told else { return Ok(()) };
    let mut events = told.lock().unwrap_or_else(PoisonError::into_inner).clone();
    if !page::has_sections(&events) {
        let problem = "this command finds nothing that makes a page; train, explain, analyze, \
                       bench and tune do";
        return Err(Error::argument("--html", problem).into());
    }
    events.push(environment());
    let title = page::title(&events);
    page::write(path, &page::of(&[(title.clone(), events)], &title), false)?;
    out.note(format_args!("a page to look at: {}", path.display()));
    Ok(())
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
    page::write(&args.output, &page::of(&sources, &title), args.overwrite)?;
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
    let config: toml::Value = toml::from_str(&config)
        .map_err(|error| Error::file(path.join("config.toml"), error.to_string()))?;
    let mut events = vec![json!({ "event": "start", "command": "train", "config": config })];
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
        line.insert("event".to_owned(), json!(event));
    }
    line
}

/// JSON lines of a file, or those that the record of a benchmark holds.
pub fn of_lines(path: &Path) -> Result<Vec<Value>> {
    let text = std::fs::read_to_string(path).map_err(|error| Error::io("open", path, error))?;
    if let Ok(record) = serde_json::from_str::<Value>(&text)
        && let Some(lines) = record["lines"].as_array()
    {
        return Ok(lines.iter().map(|line| named("op", line.clone())).collect());
    }
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    let parsed = lines.map(|(at, line)| {
        serde_json::from_str(line)
            .map_err(|error| Error::file(path, format!("line {} is no JSON: {error}", at + 1)))
    });
    parsed.collect()
}
