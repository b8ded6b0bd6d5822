//! `--pairs`: scores of the pairs of nodes that a file names, by a run that learned links.

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::ops::Range;
use std::path::Path;

use lacis::data::npy::{descr, write_header};
use lacis::data::table::write::{Cells, Holds, Sheet};
use lacis::infer::Way;
use lacis::{Dataset, Error, Place, Result};

use super::rows::{Ending, each};
use crate::args_train::Predict;

/// Whether what was asked for is what the run can give: scores of pairs, or rows of nodes.
pub fn check(args: &Predict, links: bool) -> Result<()> {
    let refused = |what: &str, problem: &str| Err(Error::argument(what, problem));
    match (&args.pairs, links) {
        (Some(_), false) => {
            refused("--pairs", "the run does not predict links; without it, nodes are predicted")
        }
        (Some(_), true) if args.what == "embeddings" => {
            refused("--what embeddings", "is of nodes, and pairs have scores; leave --pairs out")
        }
        (Some(_), true) if args.nodes.is_some() => {
            refused("--nodes", "does nothing with --pairs, which names the nodes")
        }
        (None, true) if args.what != "embeddings" => refused(
            &args.run.display().to_string(),
            "the run predicts links; --pairs FILE.csv says which pairs to score, --what embeddings \
             writes a row of every node",
        ),
        _ => Ok(()),
    }
}

/// Two nodes a line, by the data's own names or by number; a first line of words is a heading.
pub fn read(path: &Path, set: &Dataset) -> Result<Vec<[u32; 2]>> {
    let text = std::fs::read_to_string(path).map_err(|e| Error::io("read", path, e))?;
    let n = set.graph().n_nodes();
    let names: Option<HashMap<&str, u32>> =
        set.ids().map(|ids| ids.iter().enumerate().map(|(i, id)| (id, i as u32)).collect());
    let node = |word: &String| match &names {
        Some(names) => names.get(word.as_str()).copied(),
        None => word.parse().ok().filter(|&node: &u32| (node as usize) < n),
    };
    let mut pairs = Vec::new();
    let text = text.trim_start_matches('\u{feff}');
    for (at, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        let wrong = |problem: String| Error::file_at(path, Place::Line(at as u64 + 1), problem);
        let fields = fields(line);
        let [a, b, ..] = fields.as_slice() else {
            return Err(wrong("there are no two nodes: source,target would be right".to_owned()));
        };
        match (node(a), node(b)) {
            (Some(a), Some(b)) => pairs.push([a, b]),
            (None, None) if at == 0 => {}
            _ => return Err(wrong(format!("'{}' is not two nodes of the data", line.trim()))),
        }
    }
    Ok(pairs)
}

/// The fields of a line, without their quotes: between commas, else tabs, else blanks.
fn fields(line: &str) -> Vec<String> {
    let mut quoted = false;
    let bare: String = line
        .chars()
        .filter(|&c| {
            quoted ^= c == '"';
            !quoted
        })
        .collect();
    let separator = [',', '\t'].into_iter().find(|&c| bare.contains(c)).unwrap_or(' ');
    let (mut all, mut field, mut quoted) = (Vec::new(), String::new(), false);
    let mut rest = line.trim().chars().peekable();
    while let Some(c) = rest.next() {
        match c {
            // Two quotes within quotes are one of the name's own.
            '"' if quoted && rest.peek() == Some(&'"') => field.extend(rest.next()),
            '"' if quoted || field.trim().is_empty() => quoted = !quoted,
            c if c == separator && !quoted => all.push(std::mem::take(&mut field)),
            c => field.push(c),
        }
    }
    all.push(field);
    let trimmed = all.into_iter().map(|field| field.trim().to_owned());
    // Blanks may stand in a row; an empty field between commas is a field.
    trimmed.filter(|field| separator != ' ' || !field.is_empty()).collect()
}

/// Pairs with their scores.
pub struct Scored<'a> {
    pub set: &'a Dataset,
    pub pairs: &'a [[u32; 2]],
    pub scores: &'a [f32],
    pub logits: bool,
}

impl Scored<'_> {
    /// Writes them to `to`; `path` is where the user will find them.
    pub fn write(&self, ending: Ending, path: &Path, to: &Path) -> Result<()> {
        let refused = |source| Error::io("write", path, source);
        let file = File::create(to).map_err(refused)?;
        match ending {
            Ending::Table => self.table(path, file),
            Ending::Npy => {
                let mut out = BufWriter::new(file);
                self.npy(&mut out).and_then(|()| out.flush()).map_err(refused)
            }
        }
    }

    fn table(&self, path: &Path, file: File) -> Result<()> {
        let own = if self.set.ids().is_some() { Holds::Words } else { Holds::Whole };
        let heads =
            [("source", own), ("target", own), ("prob", Holds::Numbers), ("logit", Holds::Numbers)];
        let heads = heads.map(|(name, holds)| (name.to_owned(), holds)).to_vec();
        let cells = |column: usize, rows: Range<usize>| match column {
            0 | 1 => self.ends(column, rows),
            2 => Cells::Numbers(self.scores[rows].iter().copied().map(probability).collect()),
            _ => Cells::Numbers(self.scores[rows].to_vec()),
        };
        Sheet { heads, rows: self.pairs.len(), cells: &cells }.write(path, file)
    }

    fn ends(&self, which: usize, rows: Range<usize>) -> Cells {
        let nodes = self.pairs[rows].iter().map(|pair| pair[which]);
        match self.set.ids() {
            Some(ids) => Cells::Words(nodes.map(|i| ids.get(i as usize).to_owned()).collect()),
            None => Cells::Whole(nodes.map(i64::from).collect()),
        }
    }

    fn npy(&self, out: &mut impl Write) -> std::io::Result<()> {
        write_header(out, &descr::<f32>(), &[self.scores.len()])?;
        let of = |score: f32| if self.logits { score } else { probability(score) };
        each(out, self.scores.iter().copied().map(of))
    }
}

fn probability(score: f32) -> f32 {
    1.0 / (1.0 + (-score).exp())
}

/// How many blocks of rows it took, where it went layer by layer.
pub fn blocks(way: &Way) -> Option<usize> {
    match way {
        Way::Blocks(count) => Some(*count),
        Way::Whole(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_may_be_quoted() {
        for (line, expected) in [
            ("a,b", &["a", "b"][..]),
            (" 3 , 7 ,x", &["3", "7", "x"]),
            ("\"Doe, J.\",\"say \"\"hi\"\"\"", &["Doe, J.", "say \"hi\""]),
            ("New York,Boston", &["New York", "Boston"]),
            ("a b\tc", &["a b", "c"]),
            ("3  7", &["3", "7"]),
            ("\"a b\" c", &["a b", "c"]),
            ("one", &["one"]),
            ("a,", &["a", ""]),
        ] {
            assert_eq!(fields(line), expected, "{line}");
        }
    }
}
