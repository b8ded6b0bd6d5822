//! Writing tables: CSV and, with the feature `parquet`, Parquet, some rows at a time.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::ops::Range;
use std::path::Path;

use lacis_core::{Error, Result};

/// Rows that are held at a time.
pub(crate) const GROUP: usize = 1 << 16;

/// What a column holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holds {
    /// Words.
    Words,
    /// Whole numbers.
    Whole,
    /// Numbers.
    Numbers,
}

/// Some rows of a column.
#[derive(Clone, Debug, PartialEq)]
pub enum Cells {
    /// Words.
    Words(Vec<String>),
    /// Whole numbers.
    Whole(Vec<i64>),
    /// Numbers.
    Numbers(Vec<f32>),
}

/// A table that is asked for its cells while it is written.
///
/// ```
/// use lacis_data::table::write::{Cells, Holds, Sheet};
/// let heads = vec![("node".to_owned(), Holds::Whole), ("score".to_owned(), Holds::Numbers)];
/// let cells = |column: usize, rows: std::ops::Range<usize>| match column {
///     0 => Cells::Whole(rows.map(|i| i as i64).collect()),
///     _ => Cells::Numbers(rows.map(|i| i as f32 / 2.0).collect()),
/// };
/// let mut text = Vec::new();
/// Sheet { heads, rows: 2, cells: &cells }.write_csv(&mut text)?;
/// assert_eq!(text, b"node,score\n0,0\n1,0.5\n");
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct Sheet<'a> {
    /// Names of columns, and what they hold.
    pub heads: Vec<(String, Holds)>,
    /// How many rows there are.
    pub rows: usize,
    /// Some rows of a column; always what its head says.
    pub cells: &'a dyn Fn(usize, Range<usize>) -> Cells,
}

impl Sheet<'_> {
    /// Writes it by the ending of a path, `.csv` or `.parquet`, into a file.
    ///
    /// # Errors
    /// When the ending is another one, or the system refuses.
    pub fn write(&self, path: &Path, file: File) -> Result<()> {
        match path.extension().and_then(|ending| ending.to_str()) {
            Some("csv") => {
                let mut out = BufWriter::new(file);
                let written = self.write_csv(&mut out).and_then(|()| out.flush());
                written.map_err(|source| Error::io("write", path, source))
            }
            Some("parquet") => super::parquet::write_sheet(self, path, file),
            _ => {
                let problem = "ends in neither .csv nor .parquet";
                Err(Error::argument(path.display().to_string(), problem))
            }
        }
    }

    /// Writes it as CSV: a header, commas, quotes where a word needs them.
    ///
    /// # Errors
    /// When the sink refuses.
    pub fn write_csv(&self, out: &mut impl Write) -> std::io::Result<()> {
        let names: Vec<String> = self.heads.iter().map(|(name, _)| quoted(name)).collect();
        writeln!(out, "{}", names.join(","))?;
        for rows in self.groups() {
            let columns: Vec<Cells> =
                (0..self.heads.len()).map(|column| (self.cells)(column, rows.clone())).collect();
            for i in 0..rows.len() {
                for (at, column) in columns.iter().enumerate() {
                    let comma = if at == 0 { "" } else { "," };
                    match column {
                        Cells::Words(words) => write!(out, "{comma}{}", quoted(&words[i]))?,
                        Cells::Whole(whole) => write!(out, "{comma}{}", whole[i])?,
                        Cells::Numbers(numbers) => write!(out, "{comma}{}", numbers[i])?,
                    }
                }
                writeln!(out)?;
            }
        }
        Ok(())
    }

    /// Rows that are written together.
    pub(crate) fn groups(&self) -> impl Iterator<Item = Range<usize>> {
        let rows = self.rows;
        (0..rows).step_by(GROUP).map(move |start| start..(start + GROUP).min(rows))
    }
}

/// A field, in quotes where it needs them.
fn quoted(text: &str) -> String {
    match text.contains([',', '"', '\n', '\r']) {
        true => format!("\"{}\"", text.replace('"', "\"\"")),
        false => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_that_need_quotes_get_them_and_groups_cover_all_rows() {
        let cells = |_: usize, rows: Range<usize>| {
            Cells::Words(rows.map(|i| ["plain", "a,b", "say \"x\""][i % 3].to_owned()).collect())
        };
        let heads = vec![("name".to_owned(), Holds::Words)];
        let mut text = Vec::new();
        Sheet { heads: heads.clone(), rows: 3, cells: &cells }.write_csv(&mut text).unwrap();
        assert_eq!(text, b"name\nplain\n\"a,b\"\n\"say \"\"x\"\"\"\n");
        let long = Sheet { heads, rows: 2 * GROUP + 5, cells: &cells };
        assert_eq!(long.groups().map(|rows| rows.len()).collect::<Vec<_>>(), [GROUP, GROUP, 5]);
    }

    #[cfg(feature = "parquet")]
    #[test]
    fn a_table_is_read_back_from_parquet() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("t.parquet");
        let heads = [("id", Holds::Words), ("label", Holds::Whole), ("p", Holds::Numbers)];
        let cells = |column: usize, rows: Range<usize>| match column {
            0 => Cells::Words(rows.map(|i| format!("n{i}")).collect()),
            1 => Cells::Whole(rows.map(|i| i as i64 * 3).collect()),
            _ => Cells::Numbers(rows.map(|i| i as f32 / 4.0).collect()),
        };
        let heads = heads.map(|(name, holds)| (name.to_owned(), holds)).to_vec();
        let sheet = Sheet { heads, rows: GROUP + 2, cells: &cells };
        sheet.write(&path, File::create(&path).unwrap()).unwrap();
        let threads = lacis_core::Threads::one();
        let table = super::super::parquet::read(&path, &crate::Job::quiet(&threads)).unwrap();
        let [id, label, p] = &table.columns[..] else { panic!("three columns") };
        assert_eq!((id.name.as_str(), id.len()), ("id", GROUP + 2));
        assert_eq!(id.text(GROUP + 1), Some(format!("n{}", GROUP + 1)));
        assert_eq!(label.text(5), Some("15".to_owned()));
        assert_eq!(p.text(3), Some("0.75".to_owned()));
        let wrong = dir.path().join("t.txt");
        assert!(sheet.write(&wrong, File::create(&wrong).unwrap()).is_err());
    }
}
