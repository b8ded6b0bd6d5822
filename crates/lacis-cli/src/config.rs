//! Configurations as TOML: what a run keeps, and what `--config` reads.
//!
//! A file has the names of the flags; what is typed wins over what a file says.

use std::ffi::OsString;
use std::path::Path;

use clap::parser::ValueSource;
use clap::{CommandFactory, FromArgMatches};
use lacis::{Error, Result};
use serde_json::Value;
use toml::Table;

use crate::args::{Cli, Verb};
use crate::args_train::Train;

/// Flags that a command takes, by the keys of a file.
fn flags_of(table: &Table, path: &Path) -> Result<Vec<String>> {
    let mut flags = Vec::new();
    for (key, value) in table {
        let name = format!("--{}", key.replace('_', "-"));
        match value {
            _ if key == "data" || key == "command" => {}
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

fn read(path: &Path) -> Result<Table> {
    let text = std::fs::read_to_string(path).map_err(|e| Error::io("read", path, e))?;
    parsed(&text, path)
}

fn parsed(text: &str, path: &Path) -> Result<Table> {
    text.parse::<Table>().map_err(|e| Error::file(path, e.message().to_owned()))
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
    if rest.len() < 2
        && let Some(toml::Value::String(command)) = table.get("command")
    {
        rest.push(command.clone());
    }
    // What was typed is asked of the parser itself: a word may be a value or the data.
    let matches = Cli::command().ignore_errors(true).try_get_matches_from(&rest).ok();
    let mut innermost = matches.as_ref();
    while let Some((_, inner)) = innermost.and_then(|matches| matches.subcommand()) {
        innermost = Some(inner);
    }
    let typed = |key: &str| {
        let id = key.replace('-', "_");
        let source = innermost.and_then(|of| match of.try_contains_id(&id) {
            Ok(_) => of.value_source(&id),
            Err(_) => None,
        });
        source == Some(ValueSource::CommandLine)
    };
    if let (Some(toml::Value::String(data)), false) = (table.get("data"), typed("data")) {
        rest.push(data.clone());
    }
    let mut missing = table.clone();
    missing.retain(|key, _| !typed(key));
    rest.extend(flags_of(&missing, path.as_ref())?);
    Ok(rest)
}

/// A training's arguments as a file that runs it again.
///
/// # Errors
/// When they cannot be written as TOML.
pub fn to_toml(args: &Train) -> Result<String> {
    let mut table = Table::new();
    table.insert("command".to_owned(), "train".into());
    flatten(&super::train::config(args), &mut table);
    toml::to_string(&table).map_err(|e| Error::argument("configuration", e.to_string()))
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

/// Whether what was typed beside `--resume` says the same as what was kept.
///
/// # Errors
/// With the name of the flag that differs.
pub fn same_as_typed(kept: &Train, typed: &[String]) -> Result<()> {
    let mut own = Table::new();
    flatten(&super::train::config(kept), &mut own);
    let mut typed = typed.iter().skip(1).peekable();
    while let Some(arg) = typed.next() {
        let Some(name) = arg.strip_prefix("--") else { continue };
        let (name, value) = match name.split_once('=') {
            Some((name, value)) => (name, Some(value.to_owned())),
            None => (name, typed.peek().map(|value| (*value).clone())),
        };
        let key = name.replace('-', "_");
        let (Some(kept), Some(value)) = (own.get(&key), value) else { continue };
        let same = match kept {
            toml::Value::Boolean(on) => *on,
            toml::Value::Float(number) => value.parse::<f64>().is_ok_and(|v| v == *number),
            other => text_of(other) == value,
        };
        if !same && key != "plan" {
            let kept = text_of(kept);
            let problem = format!("the run was begun with {kept}; a resumed run cannot change it");
            return Err(Error::argument(format!("--{name}"), problem));
        }
    }
    Ok(())
}
