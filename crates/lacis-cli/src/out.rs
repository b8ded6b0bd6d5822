//! Results go to stdout, everything else to stderr; a closed pipe ends quietly.

use std::fmt::Display;
use std::io::{self, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use lacis::Error;
use serde::Serialize;
use serde_json::{Value, json};

use crate::args::Global;

/// Why a command did not succeed.
#[derive(Debug)]
pub enum Failure {
    /// Something was wrong with an input, a file or the system.
    Error(Error),
    /// What was asked for was understood, and did not work out.
    Ran(Error),
    /// The command ran and found something wrong, and has said so.
    Found,
    /// Nobody reads what we print.
    ClosedPipe,
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Failure::Error(error)
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Failure::ClosedPipe,
            _ => Failure::Error(Error::io("write to", "standard output", error)),
        }
    }
}

pub type Outcome = Result<(), Failure>;

/// Somebody in this process who takes the lines that programs read.
pub type Listener = Box<dyn Fn(Value) + Send + Sync>;

/// Prints for people or for programs.
#[derive(Default)]
pub struct Out {
    pub json: bool,
    pub quiet: bool,
    pub verbose: bool,
    /// Who takes the lines for programs, and notes, instead of them being printed.
    pub listener: Option<Listener>,
    /// What programs were told, or would have been, where a page is made of it.
    pub told: Option<Mutex<Vec<Value>>>,
    /// What is run, as in `data info`.
    pub command: String,
    /// Whether the first line was told.
    pub begun: AtomicBool,
}

impl Out {
    pub fn new(global: &Global, command: String) -> Self {
        let Global { json, quiet, verbose, .. } = *global;
        let told = global.html.as_ref().map(|_| Mutex::default());
        Out { json, quiet, verbose, told, command, ..Out::default() }
    }

    /// A line for people; programs do not see it.
    pub fn line(&self, text: impl Display) -> Outcome {
        if !self.json {
            writeln!(io::stdout(), "{text}")?;
        }
        Ok(())
    }

    /// A line for programs; people do not see it.
    pub fn event(&self, name: &str, body: &impl Serialize) -> Outcome {
        if !self.json && self.told.is_none() {
            return Ok(());
        }
        self.begun.store(true, Ordering::Relaxed);
        let mut line = json!({ "event": name });
        let body = serde_json::to_value(body).unwrap_or(Value::Null);
        if let (Some(line), Value::Object(body)) = (line.as_object_mut(), body) {
            line.extend(body);
        }
        if self.json {
            match &self.listener {
                Some(tell) => tell(line.clone()),
                None => writeln!(io::stdout(), "{line}")?,
            }
        }
        if let Some(told) = &self.told {
            told.lock().unwrap_or_else(PoisonError::into_inner).push(line);
        }
        Ok(())
    }

    /// Lines that a record had already: no news for programs, but a page shows them too.
    pub fn recall(&self, lines: &[Value]) {
        if let Some(told) = &self.told {
            told.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(lines);
        }
    }

    /// The line that every JSON output begins with.
    pub fn start(&self, command: &str, config: &impl Serialize) -> Outcome {
        let version = env!("CARGO_PKG_VERSION");
        let start =
            json!({ "schema": 1, "version": version, "command": command, "config": config });
        self.event("start", &start)
    }

    /// Something worth knowing that is no result.
    pub fn note(&self, text: impl Display) {
        if let Some(tell) = &self.listener {
            tell(json!({ "event": "note", "message": text.to_string() }));
        } else if !self.quiet {
            let _ = writeln!(io::stderr(), "note: {text}");
        }
    }

    /// How far work of many parts is: the part that begins.
    pub fn progress(&self, text: impl Display) {
        if !self.quiet && self.listener.is_none() {
            let _ = writeln!(io::stderr(), "{text}");
        }
    }

    /// What only those want to know who asked for more.
    pub fn detail(&self, text: impl Display) {
        if self.verbose {
            let _ = writeln!(io::stderr(), "{text}");
        }
    }

    /// An error, with what may help.
    pub fn error(&self, error: &Error) {
        let message = error.to_string();
        let hint = hint(error);
        if self.json {
            // What fails before it has said what it is says that first.
            if !self.begun.load(Ordering::Relaxed) {
                let _ = self.start(&self.command, &Value::Null);
            }
            let body = json!({ "kind": error.kind(), "message": message, "hint": hint });
            let _ = self.event("error", &body);
        }
        let _ = writeln!(io::stderr(), "error: {message}");
        if let Some(hint) = hint {
            let _ = writeln!(io::stderr(), "  try: {hint}");
        }
    }
}

/// What a user may do about an error, where the message does not say so itself.
fn hint(error: &Error) -> Option<&'static str> {
    match error {
        Error::Io { doing: "open", source, .. } if source.kind() == io::ErrorKind::NotFound => {
            Some("lacis data list   (built-in sets, generators, file formats)")
        }
        Error::Io { source, .. } if is_full(source) => {
            Some("free some space, or name another disk; a training goes on with --resume")
        }
        Error::Memory { .. } => {
            Some("fewer nodes, edges or features; `lacis doctor` shows the memory")
        }
        _ => None,
    }
}

/// Whether a disk, a quota or a limit leaves no room.
fn is_full(error: &io::Error) -> bool {
    use io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
    matches!(error.kind(), StorageFull | QuotaExceeded | FileTooLarge)
}

/// A whole number with its thousands apart: `2,708`.
pub fn grouped(number: usize) -> String {
    let digits = number.to_string();
    let groups: Vec<_> = digits.as_bytes().rchunks(3).rev().map(String::from_utf8_lossy).collect();
    groups.join(",")
}

/// A number of bytes as people read it: `1.4 MiB`.
pub fn bytes(number: usize) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let steps = (number.max(1).ilog2() / 10).min(4);
    let scaled = number as f64
        / f64::from(1u32 << (10 * steps.min(3)))
        / if steps > 3 { 1024.0 } else { 1.0 };
    match steps {
        0 => format!("{number} B"),
        _ => format!("{scaled:.1} {}", UNITS[steps as usize]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_read_well() {
        assert_eq!(grouped(0), "0");
        assert_eq!(grouped(999), "999");
        assert_eq!(grouped(1_342_310), "1,342,310");
        assert_eq!(bytes(12), "12 B");
        assert_eq!(bytes(1536), "1.5 KiB");
        assert_eq!(bytes(3 << 40), "3.0 TiB");
    }
}
