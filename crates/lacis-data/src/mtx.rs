//! MatrixMarket coordinate files (`.mtx`), as the SuiteSparse collection has them.
//!
//! ```text
//! %%MatrixMarket matrix coordinate pattern symmetric
//! % comments
//! 34 34 78            rows, columns, stored entries
//! 2 1                 row and column, from 1; then a value unless the file is a pattern
//! ```
//! Entry `(i, j)` is an edge from node `i` to node `j`. A symmetric file stores one triangle.

use std::io::Write;
use std::path::Path;

use lacis_core::{Dataset, Error, Extent, Graph, Origin, Place, Repeats, Result};

use crate::edges::{HEAD_BYTES, after_mark};
use crate::input::check_count;
use crate::npy::{Source, check_finite};
use crate::text::{Entries, Layout, Mirror, read_counted};
use crate::{Job, note};

/// What every MatrixMarket file begins with, in whatever case.
const MAGIC: &[u8] = b"%%MatrixMarket";

/// Whether a file begins with the banner.
pub fn has_banner(head: &[u8]) -> bool {
    let start = head.get(after_mark(head)..).unwrap_or_default();
    start.get(..MAGIC.len()).is_some_and(|start| start.eq_ignore_ascii_case(MAGIC))
}

/// What the lines before the entries say.
struct Heading {
    start: u64,
    weighted: bool,
    mirror: Mirror,
    n_rows: u32,
    n_cols: u32,
    stored: u64,
}

impl Heading {
    /// Looks further where comments are long.
    fn read(path: &Path) -> Result<Self> {
        const MAX_BYTES: usize = HEAD_BYTES << 6;
        let mut limit = HEAD_BYTES;
        loop {
            let head = crate::input::head(path, limit)?;
            let heading = Heading::of(path, &head);
            if heading.is_ok() || head.len() < limit || limit >= MAX_BYTES {
                return heading;
            }
            limit *= 8;
        }
    }

    fn of(path: &Path, head: &[u8]) -> Result<Self> {
        let mut lines = Lines { head, at: after_mark(head), number: 0 };
        let banner = lines.next().unwrap_or_default();
        let fault = |line, problem: String| Error::file_at(path, Place::Line(line), problem);
        let (weighted, mirror) = banner_of(&banner).map_err(|problem| fault(1, problem))?;
        while let Some(line) = lines.next() {
            if line.is_empty() || line.starts_with('%') {
                continue;
            }
            let sizes = line.split_whitespace().map(str::parse::<u64>);
            let sizes = sizes.collect::<std::result::Result<Vec<_>, _>>().unwrap_or_default();
            let [n_rows, n_cols, stored] = sizes[..] else {
                let problem =
                    format!("'{line}' is no size line; 'rows columns entries' would be right");
                return Err(fault(lines.number, problem));
            };
            let small = |n: u64| u32::try_from(n).ok().filter(|&n| n < u32::MAX);
            let (Some(n_rows), Some(n_cols)) = (small(n_rows), small(n_cols)) else {
                let problem =
                    format!("{n_rows} by {n_cols} is larger than {} can be", u32::MAX - 1);
                return Err(fault(lines.number, problem));
            };
            if mirror != Mirror::No && n_rows != n_cols {
                let problem = format!(
                    "a symmetric matrix of {n_rows} by {n_cols}; a square one would be right"
                );
                return Err(fault(lines.number, problem));
            }
            return Ok(Heading {
                start: lines.at as u64,
                weighted,
                mirror,
                n_rows,
                n_cols,
                stored,
            });
        }
        Err(fault(lines.number, "ends before its size line 'rows columns entries'".to_owned()))
    }

    fn layout(&self) -> Layout {
        Layout {
            fields: if self.weighted { 3 } else { 2 },
            ends: [0, 1],
            value: self.weighted.then_some(2),
            base: 1,
            bounds: [self.n_rows, self.n_cols],
            mirror: self.mirror,
            attributes: false,
        }
    }
}

struct Lines<'a> {
    head: &'a [u8],
    at: usize,
    number: u64,
}

impl Lines<'_> {
    /// The next whole line; one that does not end within the head is not whole.
    fn next(&mut self) -> Option<String> {
        let rest = self.head.get(self.at..).filter(|rest| !rest.is_empty())?;
        let end = memchr::memchr(b'\n', rest);
        if end.is_none() && self.head.len() >= HEAD_BYTES {
            return None;
        }
        let line = &rest[..end.unwrap_or(rest.len())];
        self.at += line.len() + usize::from(end.is_some());
        self.number += 1;
        Some(String::from_utf8_lossy(line).trim().to_owned())
    }
}

/// Whether entries have values, and what each entry stands for besides itself.
fn banner_of(banner: &str) -> std::result::Result<(bool, Mirror), String> {
    let lower = banner.to_lowercase();
    let words: Vec<&str> = lower.split_whitespace().collect();
    let ["%%matrixmarket", "matrix", format, field, symmetry] = words[..] else {
        return Err(
            "no MatrixMarket banner; '%%MatrixMarket matrix coordinate …' would be right".into()
        );
    };
    if format != "coordinate" {
        return Err(format!(
            "holds a dense '{format}'; a sparse 'coordinate' matrix would be right"
        ));
    }
    let weighted = match field {
        "pattern" => false,
        "real" | "integer" | "double" => true,
        _ => {
            return Err(format!("'{field}' entries; pattern, real or integer would be right"));
        }
    };
    let mirror = match symmetry {
        "general" => Mirror::No,
        "symmetric" => Mirror::Same,
        "skew-symmetric" => Mirror::Negative,
        _ => {
            return Err(format!(
                "'{symmetry}'; general, symmetric or skew-symmetric would be right"
            ));
        }
    };
    Ok((weighted, mirror))
}

/// Reads a MatrixMarket file.
///
/// # Errors
/// When it is not as its banner and sizes say.
pub fn read(path: &Path, job: &Job<'_>) -> Result<Dataset> {
    let heading = Heading::read(path)?;
    let Entries { coo, lines } = read_counted(path, heading.start, &heading.layout(), job)?;
    let entries = coo.len();
    let largest = heading.n_rows.max(heading.n_cols) as usize;
    check_count("rows or columns", largest, entries).map_err(|e| Error::file(path, e))?;
    check_entries(path, heading.stored, lines)?;
    // Entries have targets, which the file calls columns, as rows.
    let extent =
        Extent { n_rows: Some(heading.n_cols as usize), n_cols: Some(heading.n_rows as usize) };
    let repeats = if heading.weighted { Repeats::Sum } else { Repeats::Merge };
    let csr = coo.into_csr(extent, repeats, job.threads)?.without_unit_values();
    check_finite(&Source::file(path, job), csr.values().unwrap_or_default())?;
    let repeated = entries - csr.nnz();
    let note = if heading.weighted { note::summed(repeated) } else { note::merged(repeated) };
    let notes = note.into_iter().collect();
    let set = Dataset::new(crate::stem(path), Graph::new(csr));
    Ok(set.with_origin(Origin { notes, ..Origin::default() }))
}

/// As many entries as declared, each on a line of its own.
fn check_entries(path: &Path, declared: u64, found: u64) -> Result<()> {
    if found == declared {
        return Ok(());
    }
    let word = if found < declared { "only" } else { "even" };
    let problem = format!("declares {declared} entries and holds {word} {found}");
    Err(Error::file(path, problem))
}

/// Writes the adjacency as a `general` matrix in the direction in which it is read.
///
/// # Errors
/// When writing fails.
pub fn write(set: &Dataset, path: &Path, out: &mut dyn Write) -> Result<()> {
    let a = set.graph().adjacency();
    let io = |source| Error::io("write", path, source);
    let field = if a.values().is_some() { "real" } else { "pattern" };
    writeln!(out, "%%MatrixMarket matrix coordinate {field} general").map_err(io)?;
    writeln!(out, "{} {} {}", a.n_cols(), a.n_rows(), a.nnz()).map_err(io)?;
    for (target, source, weight) in a.entries() {
        match a.values() {
            Some(_) => writeln!(out, "{} {} {weight}", source + 1, target + 1),
            None => writeln!(out, "{} {}", source + 1, target + 1),
        }
        .map_err(io)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use lacis_core::Threads;

    fn load(text: &str) -> Result<Dataset> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("m.mtx");
        std::fs::write(&path, text).unwrap();
        read(&path, &Job::quiet(&Threads::one()))
    }

    fn edges(text: &str) -> Vec<(usize, usize, f32)> {
        let set = load(text).unwrap();
        set.graph().adjacency().entries().map(|(target, source, w)| (source, target, w)).collect()
    }

    const BANNER: &str = "%%MatrixMarket matrix coordinate";

    #[test]
    fn symmetric_files_store_one_triangle() {
        let text = format!("{BANNER} pattern symmetric\n% c\n3 3 2\n2 1\n3 3\n");
        assert_eq!(edges(&text), [(1, 0, 1.0), (0, 1, 1.0), (2, 2, 1.0)]);
        let text = format!("{BANNER} real skew-symmetric\n2 2 1\n2 1 5\n");
        assert_eq!(edges(&text), [(1, 0, 5.0), (0, 1, -5.0)]);
    }

    #[test]
    fn general_files_have_a_direction_and_may_be_rectangular() {
        let set = load(&format!("{BANNER} real general\n2 4 1\n2 4 0.5\n")).unwrap();
        let a = set.graph().adjacency();
        assert_eq!((a.n_rows(), a.n_cols(), a.row_cols(3)), (4, 2, &[1][..]));
    }

    #[test]
    fn problems_are_named() {
        let message = |text: &str| load(text).unwrap_err().to_string();
        let general = |rest: &str| format!("{BANNER} pattern general\n{rest}");
        assert!(message("hello\n").contains("line 1: no MatrixMarket banner"));
        assert!(message(&general("")).contains("ends before its size line"));
        assert!(message(&general("3 3\n")).contains("line 2: '3 3' is no size line"));
        assert!(message(&general("3 3 2\n1 1\n")).contains("declares 2 entries and holds only 1"));
        assert!(message(&general("3 3 1\n1 1\n1 2\n")).contains("holds even 2"));
        assert!(
            message(&general("3 3 1\n0 1\n")).contains("line 3: index 0; indices count from 1")
        );
        assert!(
            message(&general("3 3 1\n1 4\n"))
                .contains("line 3: index 4 is beyond the largest possible, 3")
        );
        assert!(
            message(&general("4000000000 3 1\n1 1\n"))
                .contains("4000000000 rows or columns are not believed of 1 entries")
        );
        assert!(message(&general("99999999999 3 1\n1 1\n")).contains("larger than"));
        let marked = load(&format!("\u{feff}{}", general("3 3 1\n1 2\n"))).unwrap();
        assert_eq!(marked.graph().n_edges(), 1);
        assert!(has_banner(b"\xef\xbb\xbf%%matrixmarket matrix"));
        let complex = format!("{BANNER} complex general\n1 1 0\n");
        assert!(message(&complex).contains("'complex' entries"));
    }
}
