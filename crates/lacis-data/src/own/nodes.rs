//! The table of nodes: ids, labels, split, and features out of all other columns.

use std::collections::BTreeMap;
use std::path::Path;

use lacis_core::{Dense, Error, Features, Labels, Result, Split};

use super::{Ids, Tables, column};
use crate::Job;
use crate::npy::Source;
use crate::parts::{SparseRows, named_classes};
use crate::table::{self, Column, Table};

const IDS: &[&str] = &["id", "node", "node_id", "nodeid", "name"];
const LABELS: &[&str] = &["label", "labels", "y", "class", "target"];
const SPLITS: &[&str] = &["split", "fold", "set"];
/// A column of words with more of them, or with one for every other node, holds names.
const MAX_CATEGORIES: usize = 1000;
/// Features of which fewer are not zero are kept sparse.
const SPARSE_SHARE: f64 = 0.25;

pub(super) struct Nodes {
    pub ids: Ids,
    pub features: Option<Features>,
    pub labels: Option<Labels>,
    pub split: Option<Split>,
    pub notes: Vec<String>,
}

impl Nodes {
    pub fn read(path: &Path, tables: &Tables, job: &Job<'_>) -> Result<Self> {
        let table = table::read(path, job)?;
        let id = column(&table, tables.id.as_ref(), IDS, path)?.unwrap_or(&table.columns[0]);
        let label = column(&table, tables.label.as_ref(), LABELS, path)?;
        let split = column(&table, tables.split.as_ref(), SPLITS, path)?;
        let special = |column: &&Column| {
            let is = |other: &Column| std::ptr::eq(*column, other);
            let ignored = |name: &String| column.name.eq_ignore_ascii_case(name);
            is(id)
                || label.is_some_and(is)
                || split.is_some_and(is)
                || tables.ignore.iter().any(ignored)
        };
        let columns: Vec<&Column> = table.columns.iter().filter(|c| !special(c)).collect();
        let mut notes = Vec::new();
        let used = [(Some(id), "ids"), (label, "labels"), (split, "split")];
        for (column, what) in used.into_iter().filter_map(|(c, what)| Some((c?, what))) {
            notes.push(format!("{what}: column '{}'", column.name));
        }
        Ok(Nodes {
            ids: ids(path, id)?,
            features: features(path, &columns, &table, &mut notes, job)?,
            labels: label.map(labels_of).transpose()?,
            split: split.map(|split| split_of(path, split)).transpose()?,
            notes,
        })
    }
}

fn ids(path: &Path, column: &Column) -> Result<Ids> {
    let id = |row: usize| {
        let problem = || Error::file(path, format!("row {} has no id", row + 1));
        column.text(row).ok_or_else(problem)
    };
    let names = (0..column.len()).map(id).collect::<Result<Vec<String>>>()?;
    Ids::new(names).map_err(|at| {
        let name = column.text(at).unwrap_or_default();
        Error::file(
            path,
            format!("id '{name:.40}' is there twice, the second time in row {}", at + 1),
        )
    })
}

/// Words and whole numbers are classes; other numbers are targets, NaN where one is missing.
fn labels_of(column: &Column) -> Result<Labels> {
    let numbers = column.numbers();
    let texts: Vec<Option<String>> = (0..column.len()).map(|i| column.text(i)).collect();
    if let Some(numbers) = numbers
        && numbers.iter().any(|x| x.fract() != 0.0 && !x.is_nan())
    {
        let data: Vec<f32> = numbers.iter().map(|&x| x as f32).collect();
        return Ok(Labels::Targets(Dense::from_vec(data, column.len(), 1)?));
    }
    named_classes(&texts.iter().map(Option::as_deref).collect::<Vec<_>>())
}

fn split_of(path: &Path, column: &Column) -> Result<Split> {
    let mut split = Split { name: column.name.clone(), ..Split::default() };
    for row in 0..column.len() {
        let Some(part) = column.text(row) else { continue };
        let items = match part.to_lowercase().as_str() {
            "train" | "training" | "tr" => &mut split.train,
            "val" | "valid" | "validation" | "dev" | "va" => &mut split.val,
            "test" | "testing" | "te" => &mut split.test,
            _ => {
                let problem = format!(
                    "row {}: '{part:.40}' is no part of a split; train, val or test would be right",
                    row + 1
                );
                return Err(Error::file(path, problem));
            }
        };
        items.push(row as u32);
    }
    Ok(split)
}

/// What a column becomes.
enum Kind {
    /// A column of numbers.
    Numbers(Vec<f32>),
    /// For each node the place of its word, if it has one, of so many.
    Words(Vec<Option<u32>>, usize),
}

impl Kind {
    fn width(&self) -> usize {
        match self {
            Kind::Numbers(_) => 1,
            Kind::Words(_, count) => *count,
        }
    }
}

/// Numbers, with the mean where one is missing, or words; `None` where neither fits.
fn kind(path: &Path, column: &Column, notes: &mut Vec<String>) -> Result<Option<Kind>> {
    let name = &column.name;
    if let Some(numbers) = column.numbers() {
        let known: Vec<f64> = numbers.iter().copied().filter(|x| !x.is_nan()).collect();
        if known.is_empty() {
            notes.push(format!("column '{name}' is empty and was left out"));
            return Ok(None);
        }
        let mean = known.iter().sum::<f64>() / known.len() as f64;
        let missing = numbers.len() - known.len();
        if missing > 0 {
            notes
                .push(format!("column '{name}': {missing} missing values became the mean, {mean}"));
        }
        let filled = numbers.iter().map(|&x| if x.is_nan() { mean as f32 } else { x as f32 });
        return Ok(Some(Kind::Numbers(finite(path, name, filled.collect())?)));
    }
    let texts: Vec<Option<String>> = (0..column.len()).map(|row| column.text(row)).collect();
    let mut words: BTreeMap<&str, u32> =
        texts.iter().flatten().map(|text| (text.as_str(), 0)).collect();
    (0..).zip(words.values_mut()).for_each(|(at, place)| *place = at);
    let most = MAX_CATEGORIES.min(2.max(column.len() / 2));
    if words.len() > most {
        let count = words.len();
        notes.push(format!("column '{name}' has {count} different values and was left out"));
        return Ok(None);
    }
    let places = texts.iter().map(|text| text.as_deref().map(|text| words[text])).collect();
    Ok(Some(Kind::Words(places, words.len())))
}

/// A column's numbers, if none is too large.
fn finite(path: &Path, name: &str, numbers: Vec<f32>) -> Result<Vec<f32>> {
    match numbers.iter().position(|number| !number.is_finite()) {
        None => Ok(numbers),
        Some(row) => {
            let problem = format!("row {}: '{name}' is too large a number", row + 1);
            Err(Error::file(path, problem))
        }
    }
}

fn features(
    path: &Path,
    columns: &[&Column],
    table: &Table,
    notes: &mut Vec<String>,
    job: &Job<'_>,
) -> Result<Option<Features>> {
    let kinds = columns.iter().filter_map(|column| kind(path, column, notes).transpose());
    let kinds = kinds.collect::<Result<Vec<Kind>>>()?;
    let width: usize = kinds.iter().map(Kind::width).sum();
    if width == 0 {
        return Ok(None);
    }
    let mut rows = SparseRows::new();
    let mut count = 0;
    for row in 0..table.n_rows() {
        let mut first = 0;
        for kind in &kinds {
            match kind {
                Kind::Numbers(numbers) if numbers[row] == 0.0 => {}
                Kind::Numbers(numbers) => rows.push(first, numbers[row]),
                Kind::Words(places, _) => {
                    places[row].iter().for_each(|at| rows.push(first + at, 1.0))
                }
            }
            count += 1;
            first += kind.width() as u32;
        }
        rows.end_row();
    }
    let sparse = Features::Sparse(rows.into_csr(width, &Source::file(path, job), job.threads)?);
    let dense = count as f64 >= SPARSE_SHARE * (table.n_rows() * width) as f64;
    Ok(Some(if dense { Features::Dense(sparse.to_dense()) } else { sparse }))
}
