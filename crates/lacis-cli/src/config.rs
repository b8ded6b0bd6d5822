//! Configurations as TOML: what a run keeps, and what `--config` reads.
//!
//! A file has the names of the flags; what is typed wins over what a file says.

use std::ffi::OsString;
use std::path::Path;

use clap::{CommandFactory, FromArgMatches};
use lacis::data::format;
use lacis::{Error, Result};
use serde_json::Value;
use toml::Table;

use crate::args::{Cli, Verb};
use crate::args_train::Train;
use crate::defaults::named;
use crate::train::run::read_plan;

/// What `--plan` said when a run was begun, whose `plan` is then the one that was chosen.
const ASKED_PLAN: &str = "asked_plan";
/// What a run is a part of, where it is one of several.
const JOB: &str = "job";
/// Where a run was begun: paths that lead nowhere from elsewhere are meant from there.
pub const BEGUN_IN: &str = "begun_in";
/// Flags that may be such paths.
const PATHS: [&str; 5] = ["data", "val_data", "test_data", "split", "features"];
/// Keys of a file that are no flags.
const NO_FLAGS: [&str; 5] = ["data", "command", ASKED_PLAN, BEGUN_IN, JOB];
/// Flags with which another training may have the same plan.
const KEEP_THE_PLAN: [&str; 28] = [
    "checkpoint_every",
    "clip",
    "config",
    "dry_run",
    "epochs",
    "eval_every",
    "html",
    "json",
    "lr",
    "machine",
    "metric",
    "momentum",
    "no_save",
    "optimizer",
    "out",
    "overwrite",
    "overwrite_html",
    "patience",
    "quiet",
    "runs",
    "save_plan",
    "schedule",
    "seed",
    "threads",
    "time_limit",
    "trace",
    "verbose",
    "weight_decay",
];
/// Flags that a run that goes on may have otherwise.
const MAY_CHANGE: [&str; 2] = ["time_limit", "save_plan"];

/// Flags that a command takes, by the keys of a file.
fn flags_of(table: &Table, path: &Path) -> Result<Vec<String>> {
    let mut flags = Vec::new();
    for (key, value) in table {
        let name = format!("--{}", key.replace('_', "-"));
        match value {
            _ if NO_FLAGS.contains(&key.as_str()) => {}
            toml::Value::Boolean(true) => flags.push(name),
            toml::Value::Boolean(false) => {}
            toml::Value::Array(items) if items.is_empty() => {}
            toml::Value::Array(items) => {
                let list: Vec<String> = items.iter().map(text_of).collect();
                flags.push(format!("{name}={}", list.join(",")));
            }
            toml::Value::Table(_) => {
                let problem = format!("'{key}' is a table; keys are the names of flags");
                return Err(Error::file(path, problem));
            }
            value => flags.push(format!("{name}={}", text_of(value))),
        }
    }
    Ok(flags)
}

fn text_of(value: &toml::Value) -> String {
    match value {
        toml::Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// The plan of a run lies beside its configuration, wherever both are read from.
fn find_plan(table: &mut Table, path: &Path) {
    let folder = path.parent().unwrap_or(Path::new(""));
    if let Some(toml::Value::String(plan)) = table.get_mut("plan")
        && folder.join(&*plan).is_file()
    {
        *plan = folder.join(&*plan).display().to_string();
    }
}

/// Data and other files of a run, which may be used again from another folder.
fn find_files(table: &mut Table) {
    let Some(toml::Value::String(folder)) = table.get(BEGUN_IN).cloned() else { return };
    for name in PATHS {
        let Some(toml::Value::String(path)) = table.get_mut(name) else { continue };
        let there = Path::new(&folder).join(&*path);
        // `all` is a split, whatever lies in that folder.
        let may_be = name.ends_with("data") || path.contains('.');
        if may_be && !format::exists(Path::new(&*path)) && format::exists(&there) {
            *path = there.display().to_string();
        }
    }
}

fn read(path: &Path) -> Result<Table> {
    let text = std::fs::read_to_string(path).map_err(|e| Error::io("read", path, e))?;
    parsed(&text, path)
}

fn parsed(text: &str, path: &Path) -> Result<Table> {
    let table = text.parse::<Table>();
    let mut table = table.map_err(|e| Error::file(path, e.message().to_owned()))?;
    for name in ["data", "command"] {
        if let Some(value) = table.get(name).filter(|value| !value.is_str()) {
            return Err(Error::file(path, format!("'{name}' is {value}; a text would be right")));
        }
    }
    find_files(&mut table);
    Ok(table)
}

/// The arguments with what `--config FILE` says put in, where it was not typed.
///
/// # Errors
/// When the file cannot be read.
pub fn expanded(typed: Vec<OsString>) -> Result<Vec<OsString>> {
    let words: Option<Vec<String>> = typed.iter().map(|w| w.to_str().map(str::to_owned)).collect();
    // A path that is no text is nothing to put a configuration beside.
    match words {
        Some(words) => Ok(expanded_words(words)?.into_iter().map(OsString::from).collect()),
        None => Ok(typed),
    }
}

fn expanded_words(typed: Vec<String>) -> Result<Vec<String>> {
    let at = typed.iter().position(|arg| arg == "--config" || arg.starts_with("--config="));
    let Some(at) = at else { return Ok(typed) };
    let mut rest = typed.clone();
    let path = match typed[at].strip_prefix("--config=") {
        Some(path) => {
            rest.remove(at);
            path.to_owned()
        }
        None => {
            let Some(path) = typed.get(at + 1).cloned() else { return Ok(typed) };
            rest.drain(at..at + 2);
            path
        }
    };
    let mut table = read(path.as_ref())?;
    find_plan(&mut table, path.as_ref());
    // What was typed is asked of the parser itself: a word may be a value or the data.
    let asked = |words: &[String]| Cli::command().ignore_errors(true).try_get_matches_from(words);
    let verb = asked(&rest).ok().is_some_and(|matches| matches.subcommand().is_some());
    if let (false, Some(toml::Value::String(command))) = (verb, table.get("command")) {
        rest.push(command.clone());
    }
    let matches = asked(&rest).ok();
    let ids = matches.as_ref().map(named).unwrap_or_default();
    let typed = |key: &str| ids.contains(&key.replace('-', "_"));
    // A run's own plan is of its own network and data.
    if let Some(asked) = table.remove(ASKED_PLAN)
        && !ids.iter().all(|id| KEEP_THE_PLAN.contains(&id.as_str()))
    {
        table.insert("plan".to_owned(), asked);
    }
    if let (Some(toml::Value::String(data)), false) = (table.get("data"), typed("data")) {
        rest.push(data.clone());
    }
    let mut missing = table.clone();
    missing.retain(|key, _| !typed(key));
    rest.extend(flags_of(&missing, path.as_ref())?);
    Ok(rest)
}

/// A training's arguments as a file that runs it again; what `--plan` said, and the job that it is
/// a part of.
///
/// # Errors
/// When they cannot be written as TOML.
pub fn to_toml(args: &Train, asked_plan: &str, job: Option<Table>) -> Result<String> {
    let mut table = Table::new();
    table.insert("command".to_owned(), "train".into());
    table.insert(ASKED_PLAN.to_owned(), asked_plan.into());
    if let Some(folder) = std::env::current_dir().ok().as_deref().and_then(Path::to_str) {
        table.insert(BEGUN_IN.to_owned(), folder.into());
    }
    flatten(&super::train::config(args), &mut table);
    table.extend(job.map(|job| (JOB.to_owned(), job.into())));
    toml::to_string(&table).map_err(|e| Error::argument("configuration", e.to_string()))
}

/// What `--plan` said when a run was begun.
pub fn asked_plan(text: &str) -> Option<String> {
    let table = text.parse::<Table>().ok()?;
    table.get(ASKED_PLAN).map(text_of)
}

/// The job that a run is a part of.
pub fn job_of(text: &str) -> Option<Table> {
    match text.parse::<Table>().ok()?.remove(JOB) {
        Some(toml::Value::Table(job)) => Some(job),
        _ => None,
    }
}

/// All fields in one table, nothing for what is absent.
fn flatten(value: &Value, table: &mut Table) {
    let Value::Object(fields) = value else { return };
    for (key, value) in fields {
        let value = match value {
            Value::Object(_) => {
                flatten(value, table);
                continue;
            }
            Value::Null => continue,
            Value::Bool(b) => toml::Value::Boolean(*b),
            Value::String(text) => toml::Value::String(text.clone()),
            Value::Array(items) => {
                let text = |item: &Value| item.as_str().unwrap_or_default().to_owned().into();
                toml::Value::Array(items.iter().map(text).collect())
            }
            Value::Number(number) => match number.as_i64() {
                Some(integer) => toml::Value::Integer(integer),
                None => toml::Value::Float(number.as_f64().unwrap_or(f64::NAN)),
            },
        };
        table.insert(key.clone(), value);
    }
}

/// The arguments that a run's `config.toml` keeps.
///
/// # Errors
/// When it is no such file.
pub fn train_from(text: &str, folder: &Path) -> Result<Train> {
    let path = folder.join("config.toml");
    let table = parsed(text, &path)?;
    if table.get("command").and_then(toml::Value::as_str) != Some("train") {
        return Err(Error::file(&path, "is no configuration of a training"));
    }
    let mut typed = vec!["lacis".to_owned(), "train".to_owned()];
    if let Some(toml::Value::String(data)) = table.get("data") {
        typed.push(data.clone());
    }
    typed.extend(flags_of(&table, &path)?);
    let matches = Cli::command()
        .try_get_matches_from(typed)
        .map_err(|e| Error::file(&path, e.render().to_string()))?;
    match Cli::from_arg_matches(&matches).map(|cli| cli.verb) {
        Ok(Some(Verb::Train(train))) => Ok(*train),
        _ => Err(Error::file(&path, "is no configuration of a training")),
    }
}

/// Whether what was given beside `--resume` says the same as what the run of a folder keeps.
///
/// # Errors
/// With the name of the flag that differs.
pub fn same_as_given((text, folder): (&str, &Path), kept: &Train, given: &Train) -> Result<()> {
    let [mut own, mut asked] = [Table::new(), Table::new()];
    flatten(&super::train::config(kept), &mut own);
    flatten(&super::train::config(given), &mut asked);
    if let Some(plan) = asked_plan(text) {
        own.insert("plan".to_owned(), plan.into());
    }
    for id in given.typed.names().filter(|id| !MAY_CHANGE.contains(id)) {
        // What a run does not keep is nothing that it could change.
        let Some(now) = asked.get(id) else { continue };
        let before = own.get(id);
        let same = before == Some(now)
            || match id {
                "data" => kept.source.was_given() || same_place(&kept.source.data, &text_of(now)),
                "out" => same_place(&folder.to_string_lossy(), &text_of(now)),
                "plan" => same_plan(folder, &text_of(now)),
                _ => false,
            };
        if !same {
            let before = match before {
                None | Some(toml::Value::Boolean(false)) => "without it".to_owned(),
                Some(toml::Value::Boolean(true)) => "with it".to_owned(),
                Some(value) => format!("with {}", text_of(value)),
            };
            let problem = match id {
                "out" => "a resumed run stays in its folder".to_owned(),
                _ => format!("the run was begun {before}; a resumed run cannot change it"),
            };
            return Err(Error::argument(spelt(id, given.typed.words()), problem));
        }
    }
    Ok(())
}

/// Whether two paths lead to the same file or folder.
fn same_place(a: &str, b: &str) -> bool {
    let real = |path: &str| std::fs::canonicalize(path).ok();
    real(a).is_some_and(|a| Some(a) == real(b))
}

/// Whether a plan's id, or a file that holds one, means the plan of a run.
fn same_plan(folder: &Path, asked: &str) -> bool {
    let id = |path: &Path| read_plan(path).ok().map(|plan| plan.id());
    let own = id(&folder.join("plan.json"));
    own.is_some_and(|own| own == asked || id(asked.as_ref()).is_some_and(|other| other == own))
}

/// A flag in the spelling in which it was typed.
fn spelt(id: &str, words: &[String]) -> String {
    let command = Cli::command();
    let train = command.find_subcommand("train");
    let mut arguments = train.into_iter().flat_map(clap::Command::get_arguments);
    let Some(argument) = arguments.find(|argument| argument.get_id() == id) else {
        return id.to_owned();
    };
    let Some(long) = argument.get_long() else { return id.to_uppercase() };
    let also = argument.get_all_aliases().unwrap_or_default();
    let typed = |name: &&str| {
        let flag =
            |word: &String| word.strip_prefix("--").map(|w| w.split('=').next() == Some(name));
        words.iter().any(|word| flag(word) == Some(true))
    };
    format!("--{}", also.into_iter().find(typed).unwrap_or(long))
}
