//! Tables of numbers in text, read in parallel: a matrix a file, a row a line.

use std::path::Path;

use lacis_core::{Dense, Error, Result};

use crate::Job;
use crate::digits::{leading_decimal, leading_number};
use crate::lines::{MAX_LINE_BYTES, index, is_separator, number, shown, whole};
use crate::pieces::Text;

/// A number that stands in text.
pub(crate) trait Written: Copy + Send {
    /// What a field should be.
    const WANTED: &'static str;

    fn of(field: &[u8]) -> Option<Self>;

    /// The number that bytes begin with and its length, if it is written in the commonest way.
    fn leading(bytes: &[u8]) -> Option<(Self, usize)>;
}

impl Written for f32 {
    const WANTED: &'static str = "a finite number";

    fn of(field: &[u8]) -> Option<Self> {
        number(field)
    }

    #[inline(always)]
    fn leading(bytes: &[u8]) -> Option<(Self, usize)> {
        leading_decimal(bytes)
    }
}

impl Written for i64 {
    const WANTED: &'static str = "a whole number";

    fn of(field: &[u8]) -> Option<Self> {
        index(field).map(i64::from).or_else(|| whole(field))
    }

    #[inline(always)]
    fn leading(bytes: &[u8]) -> Option<(Self, usize)> {
        let (number, digits) = leading_number(bytes.first_chunk()?);
        (1..8).contains(&digits).then_some((i64::from(number), digits))
    }
}

/// Numbers by rows of the same length.
pub(crate) struct Table<T> {
    data: Vec<T>,
    n_cols: usize,
}

impl<T: Written> Table<T> {
    pub fn n_rows(&self) -> usize {
        self.data.len().checked_div(self.n_cols).unwrap_or(0)
    }

    pub fn n_cols(&self) -> usize {
        self.n_cols
    }

    pub fn row(&self, i: usize) -> &[T] {
        self.data.get(i * self.n_cols..(i + 1) * self.n_cols).unwrap_or_default()
    }

    pub fn column(&self, j: usize) -> impl Iterator<Item = T> {
        self.data.iter().skip(j).step_by(self.n_cols.max(1)).copied()
    }
}

impl Table<f32> {
    pub fn into_dense(self) -> Result<Dense> {
        let (n_rows, n_cols) = (self.n_rows(), self.n_cols);
        Dense::from_vec(self.data, n_rows, n_cols)
    }
}

/// Reads the rows of a text. Blank lines are passed over.
///
/// # Errors
/// When a field is no such number, or rows differ in length.
pub(crate) fn read_table<T: Written>(path: &Path, job: &Job<'_>) -> Result<Table<T>> {
    let parts = Text::open(path, 0, MAX_LINE_BYTES)?
        .map(job, |part| rows(part.bytes).map_err(|(at, problem)| part.problem(at, problem)))?;
    let n_cols = parts.iter().map(|part| part.n_cols).max().unwrap_or(0);
    if let Some(odd) = parts.iter().find(|part| !part.data.is_empty() && part.n_cols != n_cols) {
        let problem = format!("rows of {} and of {n_cols} numbers", odd.n_cols);
        return Err(Error::file(path, problem));
    }
    let mut parts = parts.into_iter().map(|part| part.data);
    let mut data = parts.next().unwrap_or_default();
    parts.for_each(|part| data.extend_from_slice(&part));
    Ok(Table { data, n_cols })
}

fn rows<T: Written>(bytes: &[u8]) -> std::result::Result<Table<T>, (usize, String)> {
    let (mut data, mut n_cols, mut at) = (Vec::new(), 0, 0);
    while at < bytes.len() {
        let (line, before) = (at, data.len());
        at = row(bytes, at, &mut data).map_err(|problem| (line, problem))?;
        let found = data.len() - before;
        if n_cols == 0 {
            n_cols = found;
        }
        if found != 0 && found != n_cols {
            return Err((line, format!("{found} numbers; {n_cols} as before would be right")));
        }
    }
    Ok(Table { data, n_cols })
}

/// Adds the numbers of a line; returns where the next begins.
fn row<T: Written>(
    bytes: &[u8],
    mut at: usize,
    data: &mut Vec<T>,
) -> std::result::Result<usize, String> {
    let is_end = |byte: Option<&u8>| byte.is_none_or(|&b| b == b'\n' || is_separator(b));
    loop {
        while bytes.get(at).is_some_and(|&b| is_separator(b)) {
            at += 1;
        }
        match bytes.get(at) {
            None => return Ok(at),
            Some(b'\n') => return Ok(at + 1),
            Some(_) => {}
        }
        let short = T::leading(&bytes[at..]);
        if let Some((number, length)) = short.filter(|(_, length)| is_end(bytes.get(at + length))) {
            data.push(number);
            at += length;
            continue;
        }
        let rest = &bytes[at..];
        let length = rest.iter().position(|b| is_end(Some(b))).unwrap_or(rest.len());
        let field = &rest[..length];
        let bad = || format!("'{}' is not {}", shown(field), T::WANTED);
        data.push(T::of(field).ok_or_else(bad)?);
        at += length;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_short_way_and_the_long_way_agree() {
        let fields = ["1", "-0.5", "1e3", "+2", "0.1234567890123", "12345678", ".5", "7"];
        // The last fields are too near the end for the short way.
        for separator in [",", "\t", " ", " , ", ";"] {
            let line = fields.join(separator);
            let text = format!("{line}\r\n\n{line}\n\"{line}\"");
            let table: Table<f32> = rows(text.as_bytes()).unwrap();
            let expected: Vec<f32> = fields.iter().map(|field| field.parse().unwrap()).collect();
            assert_eq!((table.n_cols, table.data), (8, expected.repeat(3)));
        }
        let whole: Table<i64> = rows(b"3,-4\n5.0,123456789012\n").unwrap();
        assert_eq!(whole.data, [3, -4, 5, 123_456_789_012]);
    }

    #[test]
    fn what_is_wrong_is_said_with_its_line() {
        let problem = |text: &str| rows::<f32>(text.as_bytes()).map(|_| ()).unwrap_err();
        assert_eq!(problem("1,2\n3\n"), (4, "1 numbers; 2 as before would be right".to_owned()));
        assert_eq!(problem("1,2\n3,x1\n"), (4, "'x1' is not a finite number".to_owned()));
        assert!(problem("1,2\n3,inf\n").1.contains("'inf' is not a finite number"));
    }
}
