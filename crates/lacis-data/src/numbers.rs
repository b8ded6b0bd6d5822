//! Tables of numbers in text, read in parallel: a matrix a file, a row a line.

use std::path::Path;

use lacis_core::{Dense, Error, Result};

use crate::Job;
use crate::lines::{MAX_LINE_BYTES, index, number, shown, whole};
use crate::pieces::Text;

/// A number that stands in text.
pub(crate) trait Written: Copy + Send {
    /// What a field should be.
    const WANTED: &'static str;

    fn of(field: &[u8]) -> Option<Self>;
}

impl Written for f32 {
    const WANTED: &'static str = "a finite number";

    /// Small whole ones, the commonest, the short way.
    fn of(field: &[u8]) -> Option<Self> {
        let short = if field.len() <= 7 { index(field) } else { None };
        short.map(|whole| whole as f32).or_else(|| number(field))
    }
}

impl Written for i64 {
    const WANTED: &'static str = "a whole number";

    fn of(field: &[u8]) -> Option<Self> {
        index(field).map(i64::from).or_else(|| whole(field))
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
    let parts = Text::open(path, 0, MAX_LINE_BYTES)?.map(job, |piece, bytes| {
        rows(bytes).map_err(|(at, problem)| piece.problem(bytes, at, problem))
    })?;
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
        let end = memchr::memchr(b'\n', &bytes[at..]).map_or(bytes.len(), |end| at + end);
        let before = data.len();
        for field in crate::lines::fields(&bytes[at..end]) {
            let bad = || (at, format!("'{}' is not {}", shown(field), T::WANTED));
            data.push(T::of(field).ok_or_else(bad)?);
        }
        let found = data.len() - before;
        if n_cols == 0 {
            n_cols = found;
        }
        if found != 0 && found != n_cols {
            return Err((at, format!("{found} numbers; {n_cols} as before would be right")));
        }
        at = end + 1;
    }
    Ok(Table { data, n_cols })
}
