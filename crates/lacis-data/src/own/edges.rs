//! The table of edges, in parallel where it is text: every piece has its own dictionary of ids,
//! and all dictionaries become one at the end.

use std::collections::HashMap;
use std::path::Path;

use lacis_core::{Coo, Error, Extent, Graph, Repeats, Result, Threads};

use super::{Ids, Tables, missing};
use crate::edges::{SOURCE_NAMES, TARGET_NAMES, WEIGHT_NAMES};
use crate::lines::{Lines, MAX_LINE_BYTES, number, shown};
use crate::npy::Source;
use crate::pieces::{self, Text};
use crate::scipy::settle;
use crate::table::{self, Table, separator_of, split};
use crate::{Job, note};

pub(super) struct Edges {
    pub graph: Graph,
    pub ids: Ids,
    pub notes: Vec<String>,
}

/// Which fields of a row are the edge.
struct Layout {
    separator: u8,
    fields: usize,
    source: usize,
    target: usize,
    weight: Option<usize>,
}

impl Layout {
    fn of(names: &[String], tables: &Tables, separator: u8) -> Result<Self> {
        let path = &tables.edges;
        if names.len() < 2 {
            return Err(Error::file(path, "has no two columns; 'source,target' would be right"));
        }
        let at = |wanted: &str| names.iter().position(|name| name.eq_ignore_ascii_case(wanted));
        let find = |asked: &Option<String>, usual: &[&str]| match asked {
            Some(asked) => {
                let found = at(asked);
                found.map(Some).ok_or_else(|| missing(path, asked, &names.join(", ")))
            }
            None => Ok(usual.iter().find_map(|name| at(name))),
        };
        let mut weight = find(&tables.weight, WEIGHT_NAMES)?;
        let ends = (find(&tables.source, SOURCE_NAMES)?, find(&tables.target, TARGET_NAMES)?);
        let (source, target) = match ends {
            (Some(source), Some(target)) => (source, target),
            (Some(source), None) => (source, usize::from(source == 0)),
            (None, Some(target)) => (usize::from(target == 0), target),
            (None, None) => (0, 1),
        };
        if source == target {
            let problem = format!("'{}' cannot be both source and target", names[source]);
            return Err(Error::file(path, problem));
        }
        weight = weight.filter(|&w| w != source && w != target);
        Ok(Layout { separator, fields: names.len(), source, target, weight })
    }
}

/// The edges of a piece, their ends by the piece's own numbers.
#[derive(Default)]
struct Part {
    ids: Vec<String>,
    number_of: HashMap<Box<[u8]>, u32>,
    ends: Vec<[u32; 2]>,
    weights: Vec<f32>,
}

impl Part {
    /// The number of an id: that of the known ones, or a new one.
    fn number(&mut self, id: &[u8], known: Option<&Ids>) -> std::result::Result<u32, String> {
        let id = id.trim_ascii();
        if id.is_empty() {
            return Err("an edge without a source or a target".to_owned());
        }
        if let Some(&number) = self.number_of.get(id) {
            return Ok(number);
        }
        let text = String::from_utf8_lossy(id);
        let number = match known {
            None => self.ids.len() as u32,
            Some(known) => *known
                .number_of
                .get(&*text)
                .ok_or_else(|| format!("no node '{}' in the table of nodes", shown(id)))?,
        };
        if known.is_none() {
            self.ids.push(text.into_owned());
        }
        self.number_of.insert(id.into(), number);
        Ok(number)
    }

    fn add(
        &mut self,
        ends: [&[u8]; 2],
        weight: Option<&[u8]>,
        known: Option<&Ids>,
    ) -> std::result::Result<(), String> {
        let ends = [self.number(ends[0], known)?, self.number(ends[1], known)?];
        self.ends.push(ends);
        if let Some(field) = weight {
            let bad = || format!("'{}' is no weight", shown(field));
            self.weights.push(number(field).ok_or_else(bad)?);
        }
        Ok(())
    }
}

/// Reads the edges; `known` are the nodes, where a table has them.
pub(super) fn read(tables: &Tables, known: Option<&Ids>, job: &Job<'_>) -> Result<Edges> {
    let path = &tables.edges;
    let (parts, weighted) = if table::is_parquet(path)? {
        let table = table::read(path, job)?;
        let names: Vec<String> = table.columns.iter().map(|c| c.name.clone()).collect();
        let layout = Layout::of(&names, tables, b',')?;
        (vec![of_table(path, &table, &layout, known)?], layout.weight.is_some())
    } else {
        let (layout, start) = heading(tables, job)?;
        let read = |lines: &pieces::Part<'_>| of_lines(lines, &layout, known);
        let parts = Text::open(path, start, MAX_LINE_BYTES)?.of_edges().map(job, read)?;
        (parts, layout.weight.is_some())
    };
    joined(path, parts, weighted, known, job)
}

/// The header's layout, and where the rows begin.
fn heading(tables: &Tables, job: &Job<'_>) -> Result<(Layout, u64)> {
    let path = &tables.edges;
    let mut lines = Lines::open(path, job)?;
    let header = lines.next()?.unwrap_or_default().to_vec();
    let separator = separator_of(&header);
    let mut names = Vec::new();
    split(&header, separator, |name| names.push(String::from_utf8_lossy(name).trim().to_owned()));
    let layout = Layout::of(&names, tables, separator)?;
    let head = crate::input::head(path, header.len() + 8)?;
    let end = memchr::memchr(b'\n', &head).map_or(head.len(), |at| at + 1);
    Ok((layout, end as u64))
}

fn of_lines(lines: &pieces::Part<'_>, layout: &Layout, known: Option<&Ids>) -> Result<Part> {
    let (mut part, bytes) = (Part::default(), lines.bytes);
    let mut at = 0;
    while at < bytes.len() {
        let end = memchr::memchr(b'\n', &bytes[at..]).map_or(bytes.len(), |end| at + end);
        let line = bytes[at..end].strip_suffix(b"\r").unwrap_or(&bytes[at..end]);
        if !line.trim_ascii().is_empty() {
            row(line, layout, known, &mut part).map_err(|problem| lines.problem(at, problem))?;
        }
        at = end + 1;
    }
    Ok(part)
}

fn row(
    line: &[u8],
    layout: &Layout,
    known: Option<&Ids>,
    part: &mut Part,
) -> std::result::Result<(), String> {
    let wrong = |found: usize| {
        format!("{found} fields under a header of {}; as many would be right", layout.fields)
    };
    if line.contains(&b'"') {
        let mut fields: Vec<Vec<u8>> = Vec::new();
        split(line, layout.separator, |field| fields.push(field.to_vec()));
        if fields.len() != layout.fields {
            return Err(wrong(fields.len()));
        }
        let weight = layout.weight.map(|at| &fields[at][..]);
        return part.add([&fields[layout.source], &fields[layout.target]], weight, known);
    }
    let (mut ends, mut weight, mut found) = ([&[][..]; 2], None, 0);
    for field in line.split(|&b| b == layout.separator) {
        if found == layout.source {
            ends[0] = field;
        } else if found == layout.target {
            ends[1] = field;
        } else if Some(found) == layout.weight {
            weight = Some(field);
        }
        found += 1;
    }
    if found != layout.fields {
        return Err(wrong(found));
    }
    part.add(ends, weight, known)
}

fn of_table(path: &Path, table: &Table, layout: &Layout, known: Option<&Ids>) -> Result<Part> {
    let mut part = Part::default();
    let column = |at: usize| &table.columns[at];
    for row in 0..table.n_rows() {
        let [source, target] =
            [layout.source, layout.target].map(|at| column(at).text(row).unwrap_or_default());
        let weight = layout.weight.map(|at| column(at).text(row).unwrap_or_default());
        let weight = weight.as_ref().map(|weight| weight.as_bytes());
        part.add([source.as_bytes(), target.as_bytes()], weight, known)
            .map_err(|problem| Error::file(path, format!("row {}: {problem}", row + 1)))?;
    }
    Ok(part)
}

/// All pieces as one graph.
fn joined(
    path: &Path,
    parts: Vec<Part>,
    weighted: bool,
    known: Option<&Ids>,
    job: &Job<'_>,
) -> Result<Edges> {
    let (ids, numbers) = match known {
        Some(known) => (known.clone(), None),
        None => {
            let (ids, numbers) = numbered(&parts);
            (ids, Some(numbers))
        }
    };
    let total = parts.iter().map(|part| part.ends.len()).sum();
    let (mut sources, mut targets) = (Vec::with_capacity(total), Vec::with_capacity(total));
    let mut weights = Vec::with_capacity(if weighted { total } else { 0 });
    for (at, part) in parts.into_iter().enumerate() {
        let number = |local: u32| match &numbers {
            Some(numbers) => numbers[at][local as usize],
            None => local,
        };
        for [source, target] in part.ends {
            sources.push(number(source));
            targets.push(number(target));
        }
        weights.extend(part.weights);
    }
    let values = weighted.then_some(&weights[..]);
    let (graph, notes) =
        graph_of(path, [&sources, &targets], values, (ids.names.len(), job, job.threads))?;
    Ok(Edges { graph, ids, notes })
}

fn graph_of(
    path: &Path,
    [sources, targets]: [&[u32]; 2],
    values: Option<&[f32]>,
    (n, job, threads): (usize, &Job<'_>, &Threads),
) -> Result<(Graph, Vec<String>)> {
    let coo = Coo::from_slices(targets, sources, values, threads)?;
    let extent = Extent { n_rows: Some(n), n_cols: Some(n) };
    let repeats = if values.is_some() { Repeats::Sum } else { Repeats::Merge };
    let settled = settle(coo, extent, repeats, (&Source::file(path, job), threads))?;
    let count = settled.n_repeats;
    let note = if values.is_some() { note::summed(count) } else { note::merged(count) };
    Ok((Graph::new(settled.csr), note.into_iter().collect()))
}

/// All ids, and for each piece what its own numbers stand for.
fn numbered(parts: &[Part]) -> (Ids, Vec<Vec<u32>>) {
    let mut names: Vec<&str> = Vec::new();
    let mut number_of: HashMap<&str, u32> = HashMap::new();
    let mut numbers: Vec<Vec<u32>> = Vec::new();
    for part in parts {
        let of = part.ids.iter().map(|id| {
            *number_of.entry(id).or_insert_with(|| {
                names.push(id);
                names.len() as u32 - 1
            })
        });
        numbers.push(of.collect());
    }
    let values: Option<Vec<u64>> = names.iter().map(|name| name.parse().ok()).collect();
    if let Some(values) = values {
        let mut order: Vec<u32> = (0..names.len() as u32).collect();
        order.sort_by_key(|&i| (values[i as usize], names[i as usize]));
        let mut place = vec![0; names.len()];
        (0..).zip(&order).for_each(|(new, &old)| place[old as usize] = new);
        numbers.iter_mut().flatten().for_each(|number| *number = place[*number as usize]);
        names = order.iter().map(|&i| names[i as usize]).collect();
    }
    let number_of = HashMap::new();
    (Ids { names: names.iter().collect(), number_of }, numbers)
}
