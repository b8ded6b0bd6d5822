//! METIS graph files, as METIS, KaHIP and the DIMACS challenges have them.
//!
//! ```text
//!  % comments
//!  n m [fmt [ncon]]      fmt: three digits, vertex sizes, vertex weights, edge weights
//!  [s] [w …] v [e] …     line i: the neighbours of node i, from 1; an empty line: no neighbours
//! ```
//! Every edge stands at both its ends, and `m` counts it once. Sizes and weights of vertices are
//! not kept.

use std::path::Path;

use lacis_core::{Coo, Dataset, Extent, Graph, Origin, Repeats, Result, Tags};

use crate::input::check_count;
use crate::lines::{Lines, fields, index, number, shown};
use crate::npy::Source;
use crate::scipy::settle;
use crate::{Job, note};

/// Whether a file begins with a header of METIS, and a line of neighbours that fits it.
pub fn recognises(head: &[u8]) -> bool {
    let mut lines = head.split(|&b| b == b'\n');
    let header = lines.by_ref().find(|line| !is_comment(line) && !line.trim_ascii().is_empty());
    let Some(header) = header.and_then(|line| Header::parse(line).ok()) else { return false };
    let first = lines.find(|line| !is_comment(line)).unwrap_or_default();
    let fits = |field: &[u8]| number(field).is_some_and(|x| x >= 0.0);
    header.n > 0 && fields(first).all(fits)
}

fn is_comment(line: &[u8]) -> bool {
    line.trim_ascii_start().first() == Some(&b'%')
}

#[derive(Debug)]
struct Header {
    n: u32,
    m: u64,
    /// Numbers before the neighbours.
    skip: usize,
    weighted: bool,
}

impl Header {
    fn parse(line: &[u8]) -> std::result::Result<Self, String> {
        let wrong = || format!("'{}' is no header 'nodes edges [format]'", shown(line));
        let fields: Vec<&[u8]> = fields(line).collect();
        let numbers: Option<Vec<u64>> =
            fields.iter().map(|field| std::str::from_utf8(field).ok()?.parse().ok()).collect();
        let numbers = numbers.ok_or_else(wrong)?;
        let (&[n, m, ..], 2..=4) = (&numbers[..], numbers.len()) else { return Err(wrong()) };
        let n = u32::try_from(n).ok().filter(|&n| n < u32::MAX).ok_or_else(wrong)?;
        let format = fields.get(2).copied().unwrap_or(b"0");
        if format.len() > 3 || !format.iter().all(|digit| b"01".contains(digit)) {
            return Err(wrong());
        }
        let flag =
            |from_end: usize| format.len() >= from_end && format[format.len() - from_end] == b'1';
        let constraints = numbers.get(3).copied().unwrap_or(1).min(1 << 16) as usize;
        let skip = usize::from(flag(3)) + if flag(2) { constraints } else { 0 };
        Ok(Header { n, m, skip, weighted: flag(1) })
    }
}

/// Reads a METIS graph.
///
/// # Errors
/// When a line is not as the header says, or there are more or fewer nodes or edges.
pub fn read(path: &Path, job: &Job<'_>) -> Result<Dataset> {
    let mut lines = Lines::open_edges(path, job)?;
    let header = header(&mut lines)?;
    check_count("nodes", header.n as usize, lines.most_bytes()).map_err(|e| lines.problem(e))?;
    let mut entries = Entries::default();
    let mut node = 0;
    while let Some(line) = lines.next()? {
        if is_comment(line) || node == header.n && line.trim_ascii().is_empty() {
            continue;
        }
        if node == header.n {
            return Err(lines.problem(format!("more than the {} nodes declared", header.n)));
        }
        if let Err(problem) = entries.add(node, line, &header) {
            return Err(lines.problem(problem));
        }
        node += 1;
    }
    // Lone nodes at the end may have no line.
    check_count("nodes", header.n as usize, node as usize + entries.rows.len())
        .map_err(|e| lines.problem(e))?;
    entries.dataset(path, &header, job)
}

fn header(lines: &mut Lines<'_>) -> Result<Header> {
    while let Some(line) = lines.next_full()? {
        if !is_comment(line) {
            return Header::parse(line).map_err(|problem| lines.problem(problem));
        }
    }
    Err(lines.problem("ends before its header 'nodes edges [format]'"))
}

#[derive(Default)]
struct Entries {
    rows: Vec<u32>,
    cols: Vec<u32>,
    values: Vec<f32>,
    loops: usize,
}

impl Entries {
    fn add(&mut self, node: u32, line: &[u8], header: &Header) -> std::result::Result<(), String> {
        let mut fields = fields(line).skip(header.skip);
        while let Some(field) = fields.next() {
            let neighbour = index(field).filter(|j| (1..=header.n).contains(j));
            let bad = || format!("'{}' is no node of 1..{}", shown(field), header.n);
            let neighbour = neighbour.ok_or_else(bad)? - 1;
            self.loops += usize::from(neighbour == node);
            self.rows.push(node);
            self.cols.push(neighbour);
            if header.weighted {
                let weight = fields.next().and_then(number);
                self.values.push(weight.ok_or("a neighbour without a weight after it")?);
            }
        }
        Ok(())
    }

    fn dataset(self, path: &Path, header: &Header, job: &Job<'_>) -> Result<Dataset> {
        let source = Source::file(path, job);
        let stored = self.rows.len();
        let declared = (stored == 2 * header.m as usize)
            || header.m as usize == (stored + self.loops) / 2
            || stored == header.m as usize;
        let mut notes = Vec::new();
        if !declared {
            let problem = format!("declares {} edges and lists {stored} neighbours", header.m);
            return Err(source.problem(problem + "; twice as many would be right"));
        }
        let values = header.weighted.then_some(&self.values[..]);
        let coo = Coo::from_slices(&self.rows, &self.cols, values, job.threads)?;
        let n = Some(header.n as usize);
        let extent = Extent { n_rows: n, n_cols: n };
        let tags = if header.weighted { Tags::Values } else { Tags::Absent };
        let repeats = if tags == Tags::Values { Repeats::Sum } else { Repeats::Merge };
        let settled = settle(coo, extent, repeats, (&source, job.threads))?;
        notes.extend(note::merged(settled.n_repeats));
        if header.skip > 0 {
            notes.push("sizes and weights of vertices were left out".to_owned());
        }
        let graph = Graph::new(settled.csr);
        Ok(Dataset::new(crate::stem(path), graph)
            .with_origin(Origin { notes, ..Origin::default() }))
    }
}
