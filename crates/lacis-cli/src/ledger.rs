//! A file of JSON lines that grows by a line for every measurement, and goes on where it ended.
//!
//! The first line says what was asked for and on which machine. A line is written whole or, if the
//! process is killed in the middle of it, cut off by whoever goes on: at most one is lost.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

use lacis::kernels::profile::tables_version;
use lacis::machine::this_machine;
use lacis::{Error, Result};
use serde_json::{Value, json};

use crate::args::Global;
use crate::machine::Machine;

/// A record under way.
pub struct Ledger {
    path: PathBuf,
    file: File,
}

impl Ledger {
    /// Opens a record of a command, new or to go on with; and the lines that it has, but the
    /// first.
    ///
    /// # Errors
    /// When the file is something else, or is of another machine or number of threads.
    pub fn open(
        path: &Path,
        (command, config): (&str, &Value),
        overwrite: bool,
        global: &Global,
    ) -> Result<(Self, Vec<Value>)> {
        let machine = Machine::for_record(global)?;
        let lines = if overwrite { Vec::new() } else { read_whole(path)? };
        if !overwrite && std::fs::metadata(path).is_ok_and(|file| file.len() > 0) {
            check_head(path, lines.first().unwrap_or(&Value::Null), (command, &machine))?;
        }
        let mut options = OpenOptions::new();
        let file = options.create(true).append(true).open(path);
        let file = file.map_err(|error| Error::io("open", path, error))?;
        // Only a broken last line goes.
        let cut = |file: &File| file.set_len(if overwrite { 0 } else { whole_bytes(path)? });
        cut(&file).map_err(|error| Error::io("write", path, error))?;
        let mut ledger = Ledger { path: path.to_owned(), file };
        if lines.is_empty() {
            let head = json!({ "event": "start", "schema": 1, "version": env!("CARGO_PKG_VERSION"),
                               "command": command, "config": config,
                               "machine": machine, "cpu": this_machine(),
                               "tables": tables_version() });
            ledger.add(&head)?;
        }
        Ok((ledger, lines.into_iter().skip(1).collect()))
    }

    /// Adds a line, and brings it to disk.
    ///
    /// # Errors
    /// When the disk is full.
    pub fn add(&mut self, line: &Value) -> Result<()> {
        self.add_all(std::slice::from_ref(line))
    }

    /// Adds lines that belong together.
    ///
    /// # Errors
    /// When the disk is full.
    pub fn add_all(&mut self, lines: &[Value]) -> Result<()> {
        let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
        let written = self.file.write_all(text.as_bytes()).and_then(|()| self.file.sync_data());
        written.map_err(|error| Error::io("write", &self.path, error))
    }
}

/// How many bytes of a file are whole lines.
fn whole_bytes(path: &Path) -> std::io::Result<u64> {
    let bytes = std::fs::read(path)?;
    Ok(bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at as u64 + 1))
}

/// The whole lines of a file; none where there is no file.
pub fn read_whole(path: &Path) -> Result<Vec<Value>> {
    let text = match std::fs::read_to_string(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        read => read.map_err(|error| Error::io("open", path, error))?,
    };
    let whole = text.rfind('\n').map_or("", |end| &text[..=end]);
    let lines = whole.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    let parsed = lines.map(|(at, line)| {
        serde_json::from_str(line)
            .map_err(|error| Error::file(path, format!("line {} is no JSON: {error}", at + 1)))
    });
    parsed.collect()
}

/// Only what begins as our record does is gone on with: everything else is somebody's file.
fn check_head(path: &Path, head: &Value, (command, machine): (&str, &Value)) -> Result<()> {
    if head["event"] != "start" || head["command"] != command {
        let problem =
            format!("is no record of `lacis {command}`; another name, or --overwrite, is right");
        return Err(Error::file(path, problem));
    }
    if head["cpu"] != json!(this_machine()) {
        let problem = "was measured on another machine; another name, or --overwrite, is right";
        return Err(Error::file(path, problem));
    }
    let [then, now] =
        [head, &json!({ "machine": machine })].map(|of| of["machine"]["threads"]["count"].as_u64());
    match then.zip(now).filter(|(then, now)| then != now) {
        Some((then, now)) => Err(Error::file(
            path,
            format!(
                "was measured with {then} threads, not {now}; --threads {then}, another name, or \
                 --overwrite, is right"
            ),
        )),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whole(text: &str) -> (usize, u64) {
        let folder = std::env::temp_dir();
        let path = folder.join(format!("lacis-ledger-{}-{}", std::process::id(), text.len()));
        std::fs::write(&path, text).unwrap();
        let found = (read_whole(&path).unwrap().len(), whole_bytes(&path).unwrap());
        std::fs::remove_file(&path).unwrap();
        found
    }

    #[test]
    fn a_torn_last_line_is_none() {
        assert_eq!(whole(""), (0, 0));
        assert_eq!(whole("{\"a\":1}\n{\"b\":2}\n"), (2, 16));
        assert_eq!(whole("{\"a\":1}\n{\"b\":"), (1, 8));
        assert_eq!(whole("{\"a\""), (0, 0));
    }
}
