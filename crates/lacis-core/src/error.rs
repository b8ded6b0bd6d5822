//! The one input-error type of the workspace.
//!
//! A variant carries what was wrong, where, and what would be right; its message is one line.
//! Broken invariants of our own are not errors: they panic.

use std::fmt;
use std::path::{Path, PathBuf};

/// What every fallible function of `lacis-core`, `lacis-data` and `lacis-plan` returns.
pub type Result<T> = std::result::Result<T, Error>;

/// An input that cannot be used as it is.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Two sizes that must agree do not.
    #[error("{op}: {what} is {found}, expected {expected}")]
    Shape {
        /// The operation that noticed.
        op: &'static str,
        /// The size in question, for example `"rows of x"`.
        what: &'static str,
        /// The size that would have been right.
        expected: usize,
        /// The size that was given.
        found: usize,
    },
    /// An index points outside what it indexes.
    #[error("{op}: {what} {index} at position {at} is outside 0..{bound}")]
    Index {
        /// The operation that noticed.
        op: &'static str,
        /// What the index names, for example `"column"`.
        what: &'static str,
        /// The offending index.
        index: u64,
        /// Where it stands in its array.
        at: usize,
        /// One more than the largest index allowed.
        bound: u64,
    },
    /// A count that does not fit the type that has to hold it.
    #[error("{what} would be {value}, more than the limit of {limit}")]
    Overflow {
        /// What was counted.
        what: &'static str,
        /// How many there are.
        value: u128,
        /// How many there may be.
        limit: u128,
    },
    /// An argument that is not in the set of those allowed.
    #[error("{what}: {problem}")]
    Argument {
        /// The argument's name as the user wrote it.
        what: String,
        /// What is wrong, and what would be right.
        problem: String,
    },
    /// A file whose content is not what its format promises.
    #[error("{}{place}: {problem}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Where in the file.
        place: Place,
        /// What is wrong there.
        problem: String,
    },
    /// The operating system refused.
    #[error("cannot {doing} {}: {source}", path.display())]
    Io {
        /// What was tried, for example `"open"`.
        doing: &'static str,
        /// On which file or folder.
        path: PathBuf,
        /// The system's answer.
        source: std::io::Error,
    },
    /// More memory than the system gives.
    #[error("{bytes} bytes of memory were refused")]
    Memory {
        /// How much was asked for.
        bytes: usize,
    },
    /// The caller asked for the work to stop.
    #[error("interrupted")]
    Interrupted,
}

/// Where in a file something was found.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Place {
    /// The file as a whole.
    Whole,
    /// A line, counted from 1.
    Line(u64),
    /// A byte offset, counted from 0.
    Byte(u64),
    /// A named part: an archive member, a JSON key.
    Part(String),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Whole => Ok(()),
            Place::Line(line) => write!(f, ", line {line}"),
            Place::Byte(byte) => write!(f, ", byte {byte}"),
            Place::Part(part) => write!(f, ", {part}"),
        }
    }
}

impl Error {
    /// A file problem that concerns the file as a whole.
    pub fn file(path: impl AsRef<Path>, problem: impl Into<String>) -> Self {
        Error::file_at(path, Place::Whole, problem)
    }

    /// A file problem at a known place.
    pub fn file_at(path: impl AsRef<Path>, place: Place, problem: impl Into<String>) -> Self {
        Error::File { path: path.as_ref().to_owned(), place, problem: one_line(problem.into()) }
    }

    /// A refusal of the operating system.
    pub fn io(doing: &'static str, path: impl AsRef<Path>, source: std::io::Error) -> Self {
        Error::Io { doing, path: path.as_ref().to_owned(), source }
    }

    /// A bad argument.
    pub fn argument(what: impl Into<String>, problem: impl Into<String>) -> Self {
        Error::Argument { what: what.into(), problem: problem.into() }
    }

    /// The error's kind as one stable word, for `--json` and for programs.
    pub fn kind(&self) -> &'static str {
        match self {
            Error::Shape { .. } => "shape",
            Error::Index { .. } => "index",
            Error::Overflow { .. } => "overflow",
            Error::Argument { .. } => "argument",
            Error::File { .. } => "file",
            Error::Io { .. } => "io",
            Error::Memory { .. } => "memory",
            Error::Interrupted => "interrupted",
        }
    }
}

/// What files hold is quoted in messages, line ends and terminal codes too: they are escaped.
fn one_line(text: String) -> String {
    if !text.contains(char::is_control) {
        return text;
    }
    let escaped = |c: char| {
        let kept = (!c.is_control()).then_some(c);
        kept.into_iter().chain(c.escape_default().filter(move |_| c.is_control()))
    };
    text.chars().flat_map(escaped).collect()
}

/// `Ok` when the two sizes agree, else [`Error::Shape`].
pub fn same_size(
    op: &'static str,
    what: &'static str,
    expected: usize,
    found: usize,
) -> Result<()> {
    if expected == found { Ok(()) } else { Err(Error::Shape { op, what, expected, found }) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_one_line() {
        let error = Error::file("a", "found 'x\ny\u{1b}[0m é'");
        assert_eq!(error.to_string(), "a: found 'x\\ny\\u{1b}[0m é'");
    }
}
