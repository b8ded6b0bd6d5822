//! Tables with named columns: CSV, TSV and, with the feature `parquet`, Parquet.
//!
//! A CSV file has a header, fields separated by commas, semicolons, tabs or bars (whichever the
//! header has most of), and quotes as in RFC 4180, line ends inside them included. Columns stay
//! text until somebody asks for numbers. Memory: the text itself and eight bytes a field.

#[cfg_attr(feature = "parquet", path = "table/parquet.rs")]
#[cfg_attr(not(feature = "parquet"), path = "table/no_parquet.rs")]
pub(crate) mod parquet;
pub mod write;

use std::path::Path;

use lacis_core::{Error, Place, Result};

use crate::Job;
use crate::lines::{Lines, MAX_LINE_BYTES};

/// What people write where a value is missing.
const MISSING: &[&str] =
    &["", "na", "n/a", "nan", "null", "none", "nil", "?", "-", "missing", "<na>"];
/// More columns than any table of nodes has; each costs memory before there is data.
const MAX_COLUMNS: usize = 1 << 16;

/// A column of a table.
#[derive(Debug)]
pub struct Column {
    /// Its name in the header.
    pub name: String,
    data: Data,
}

#[derive(Debug)]
enum Data {
    /// All fields one after another, and where each ends.
    Text { text: Vec<u8>, ends: Vec<u64> },
    /// Numbers; NaN where there is none.
    #[cfg_attr(not(feature = "parquet"), allow(dead_code))]
    Numbers(Vec<f64>),
}

impl Column {
    fn named(name: String) -> Self {
        Column { name, data: Data::Text { text: Vec::new(), ends: Vec::new() } }
    }

    /// Number of rows.
    pub fn len(&self) -> usize {
        match &self.data {
            Data::Text { ends, .. } => ends.len(),
            Data::Numbers(numbers) => numbers.len(),
        }
    }

    /// Whether there are no rows.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn raw<'a>(text: &'a [u8], ends: &[u64], i: usize) -> &'a [u8] {
        let start = if i == 0 { 0 } else { ends[i - 1] as usize };
        &text[start..ends[i] as usize]
    }

    /// The text of row `i`, `None` where it is missing.
    pub fn text(&self, i: usize) -> Option<String> {
        match &self.data {
            Data::Text { text, ends } => {
                let field = String::from_utf8_lossy(Column::raw(text, ends, i));
                let field = field.trim();
                let missing = |known: &&str| known.eq_ignore_ascii_case(field);
                let missing = field.len() <= 7 && MISSING.iter().any(missing);
                (!missing).then(|| field.to_owned())
            }
            Data::Numbers(numbers) => {
                let number = numbers[i];
                (!number.is_nan()).then(|| number.to_string())
            }
        }
    }

    /// The number of row `i`: `Ok(None)` where it is missing.
    ///
    /// # Errors
    /// The text, where it is no finite number.
    pub fn number(&self, i: usize) -> std::result::Result<Option<f64>, String> {
        if let Data::Numbers(numbers) = &self.data {
            return match numbers[i] {
                x if x.is_nan() => Ok(None),
                x if x.is_finite() => Ok(Some(x)),
                x => Err(x.to_string()),
            };
        }
        if let Data::Text { text, ends } = &self.data
            && let Some(index) = crate::lines::index(Column::raw(text, ends, i))
        {
            return Ok(Some(f64::from(index)));
        }
        match self.text(i) {
            None => Ok(None),
            Some(text) => match text.parse::<f64>() {
                Ok(x) if x.is_finite() => Ok(Some(x)),
                _ => Err(text),
            },
        }
    }

    /// All numbers, NaN where one is missing; `None` where a field is no number.
    pub fn numbers(&self) -> Option<Vec<f64>> {
        let number = |i| self.number(i).ok().map(|x| x.unwrap_or(f64::NAN));
        (0..self.len()).map(number).collect()
    }
}

/// A table whose columns have the same number of rows.
#[derive(Debug)]
pub struct Table {
    /// The columns in the file's order.
    pub columns: Vec<Column>,
}

impl Table {
    /// The column of this name, or the first of any of these names, in whatever case.
    pub fn find(&self, names: &[&str]) -> Option<&Column> {
        let named = |name: &&str| self.columns.iter().find(|c| c.name.eq_ignore_ascii_case(name));
        names.iter().find_map(named)
    }

    /// Number of rows.
    pub fn n_rows(&self) -> usize {
        self.columns.first().map_or(0, Column::len)
    }

    /// The columns' names, for messages.
    pub fn names(&self) -> String {
        let names: Vec<&str> = self.columns.iter().map(|column| &*column.name).take(40).collect();
        names.join(", ")
    }
}

/// Reads a table, in whichever of the formats it is.
///
/// # Errors
/// When it has no header, a row has more or fewer fields, or a quote is never closed.
pub fn read(path: &Path, job: &Job<'_>) -> Result<Table> {
    if is_parquet(path)? { parquet::read(path, job) } else { read_csv(path, job) }
}

/// Whether a file is Parquet by its first bytes.
pub(crate) fn is_parquet(path: &Path) -> Result<bool> {
    Ok(crate::input::head(path, 4)? == b"PAR1")
}

fn read_csv(path: &Path, job: &Job<'_>) -> Result<Table> {
    let mut lines = Lines::open(path, job)?;
    let header = lines.next_full()?.unwrap_or_default().to_vec();
    let separator = separator_of(&header);
    let mut names = Vec::new();
    let closed = split(&header, separator, |field| {
        names.push(String::from_utf8_lossy(field).trim().to_owned());
    });
    if closed == Quote::Open || names.len() < 2 && names.iter().all(String::is_empty) {
        return Err(lines.problem("no header of names; 'id,name,…' would be right"));
    }
    if names.len() > MAX_COLUMNS {
        return Err(lines.problem(format!("{} columns; {MAX_COLUMNS} are read", names.len())));
    }
    let mut columns: Vec<Column> = names.into_iter().map(Column::named).collect();
    let mut record = Vec::new();
    while let Some(line) = lines.next()? {
        if line.trim_ascii().is_empty() {
            continue;
        }
        record.clear();
        record.extend_from_slice(line);
        let first = lines.number();
        let (mut place, mut seen) = (Within::default(), 0);
        while place.after(&record[seen..], separator) == Quote::Open {
            seen = record.len();
            let Some(more) =
                lines.next()?.filter(|more| record.len() + more.len() < MAX_LINE_BYTES)
            else {
                let problem = "a quote opens here and is never closed";
                return Err(Error::file_at(path, Place::Line(first), problem));
            };
            record.push(b'\n');
            record.extend_from_slice(more);
        }
        add_row(&mut columns, &record, separator)
            .map_err(|problem| Error::file_at(path, Place::Line(first), problem))?;
    }
    Ok(Table { columns })
}

fn add_row(
    columns: &mut [Column],
    record: &[u8],
    separator: u8,
) -> std::result::Result<(), String> {
    let (mut found, wanted) = (0, columns.len());
    split(record, separator, |field| {
        if let Some(Column { data: Data::Text { text, ends }, .. }) = columns.get_mut(found) {
            text.extend_from_slice(field);
            ends.push(text.len() as u64);
        }
        found += 1;
    });
    if found == wanted {
        return Ok(());
    }
    Err(format!("{found} fields under a header of {wanted}; as many would be right"))
}

/// Which of the usual separators a header has most of.
pub(crate) fn separator_of(header: &[u8]) -> u8 {
    let count = |separator: u8| {
        let mut fields = 0;
        split(header, separator, |_| fields += 1);
        fields
    };
    // The last of the best wins, so the commonest comes last.
    [b'|', b'\t', b';', b','].into_iter().max_by_key(|&separator| count(separator)).unwrap_or(b',')
}

/// Whether a record ends within quotes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Quote {
    Open,
    Closed,
}

/// Where in a record a byte is: within quotes or not, and whether its field is blank so far.
#[derive(Clone, Copy)]
struct Within {
    quoted: bool,
    blank: bool,
}

impl Default for Within {
    fn default() -> Self {
        Within { quoted: false, blank: true }
    }
}

/// What a byte of a record is.
#[derive(PartialEq, Eq)]
enum Role {
    /// Of the field.
    Text,
    /// The first of two quotes that stand for one.
    Doubled,
    /// A quote that begins the field anew.
    Opening,
    Closing,
    /// The end of the field.
    Separator,
}

impl Within {
    fn step(&mut self, byte: u8, next: Option<u8>, separator: u8) -> Role {
        match byte {
            b'"' if self.quoted && next == Some(b'"') => {
                self.blank = false;
                Role::Doubled
            }
            b'"' if self.quoted => {
                self.quoted = false;
                Role::Closing
            }
            // Quotes inside an unquoted field are text.
            b'"' if self.blank => {
                self.quoted = true;
                Role::Opening
            }
            b if b == separator && !self.quoted => {
                self.blank = true;
                Role::Separator
            }
            b => {
                self.blank &= b == b' ';
                Role::Text
            }
        }
    }

    /// Whether a record that goes on with these bytes then ends within quotes.
    fn after(&mut self, bytes: &[u8], separator: u8) -> Quote {
        if self.quoted || bytes.contains(&b'"') {
            let mut at = 0;
            while at < bytes.len() {
                let doubled =
                    self.step(bytes[at], bytes.get(at + 1).copied(), separator) == Role::Doubled;
                at += 1 + usize::from(doubled);
            }
        }
        if self.quoted { Quote::Open } else { Quote::Closed }
    }
}

/// Hands over the fields of a record, without their quotes.
pub(crate) fn split(record: &[u8], separator: u8, mut take: impl FnMut(&[u8])) -> Quote {
    if !record.contains(&b'"') {
        record.split(|&b| b == separator).for_each(take);
        return Quote::Closed;
    }
    let mut field = Vec::new();
    let (mut at, mut place) = (0, Within::default());
    while at < record.len() {
        match place.step(record[at], record.get(at + 1).copied(), separator) {
            Role::Text => field.push(record[at]),
            Role::Doubled => {
                field.push(b'"');
                at += 1;
            }
            Role::Opening => field.clear(),
            Role::Closing => {}
            Role::Separator => {
                take(&field);
                field.clear();
            }
        }
        at += 1;
    }
    take(&field);
    if place.quoted { Quote::Open } else { Quote::Closed }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lacis_core::Threads;

    fn load(text: &str) -> Result<Table> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("t.csv");
        std::fs::write(&path, text).unwrap();
        read(&path, &Job::quiet(&Threads::one()))
    }

    #[test]
    fn quotes_separators_and_missing_values() {
        let table = load("\u{feff}id;name;x\n1;\"a;b \"\"c\"\"\nd\";2.5\r\n2; NA ;\n").unwrap();
        assert_eq!(table.names(), "id, name, x");
        let name = table.find(&["NAME"]).unwrap();
        assert_eq!(name.text(0).unwrap(), "a;b \"c\"\nd");
        assert_eq!(name.text(1), None);
        assert!(name.numbers().is_none());
        let x = table.find(&["x"]).unwrap().numbers().unwrap();
        assert!(x[0] == 2.5 && x[1].is_nan());
        assert_eq!(load("a\tb\n1\t2\n").unwrap().n_rows(), 1);
    }

    #[test]
    fn what_is_wrong_is_said_with_its_line() {
        let problem = |text: &str| load(text).unwrap_err().to_string();
        assert!(problem("a,b\n1,2\n1\n").contains("line 3: 1 fields under a header of 2"));
        assert!(problem("a,b\n1,\"2\n3,4\n").contains("line 2: a quote opens here"));
        assert!(problem("").contains("no header"));
    }
}
