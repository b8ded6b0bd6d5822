//! What is written of each node, and how.

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::ops::Range;
use std::path::Path;

use lacis::data::npy::{Item, bytes_of, descr, write_header};
use lacis::data::table::write::{Cells, Holds, Sheet};
use lacis::plan::op::LossKind;
use lacis::store::RunFolder;
use lacis::{Dataset, Dense, Error, NodeIds, Place, Result};

/// Files that can be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    Npy,
    Table,
}

/// What the ending of a path asks for.
pub fn ending(path: &Path) -> Result<Ending> {
    match path.extension().and_then(|ending| ending.to_str()) {
        Some("npy") => Ok(Ending::Npy),
        Some("csv" | "parquet") => Ok(Ending::Table),
        _ => {
            let problem = "ends in none of .csv, .npy and .parquet";
            Err(Error::argument(format!("-o {}", path.display()), problem))
        }
    }
}

/// What is written of a row of results.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked {
    /// The class with the greatest score.
    Class,
    /// Each label that is more likely than not.
    Labels,
    /// Shares of one.
    Softmax,
    /// A probability per label.
    Sigmoid,
    /// Numbers as they are.
    Numbers,
    /// Activations of the last hidden layer, as they are.
    Embeddings,
}

impl Asked {
    /// What a word asks of a network whose results mean this.
    pub fn new(what: &str, meaning: LossKind) -> Result<Self> {
        Ok(match (what, meaning) {
            ("embeddings", _) => Asked::Embeddings,
            ("logits", _) | ("labels", LossKind::Squares) => Asked::Numbers,
            ("labels", LossKind::Binary) => Asked::Labels,
            ("probs", LossKind::Binary) => Asked::Sigmoid,
            ("probs", LossKind::Squares) => {
                let problem = "the network predicts numbers, which have none; labels would do";
                return Err(Error::argument("--what probs", problem));
            }
            ("probs", _) => Asked::Softmax,
            _ => Asked::Class,
        })
    }

    fn column(self) -> &'static str {
        match self {
            Asked::Class | Asked::Labels => "label",
            Asked::Softmax | Asked::Sigmoid => "prob",
            Asked::Numbers => "logit",
            Asked::Embeddings => "embedding",
        }
    }
}

/// Names of classes that a run learned, where its data had names.
pub fn class_names(run: &RunFolder) -> Result<Vec<String>> {
    let tensors = run.read_model()?;
    let names = tensors.metadata().get("classes").map(|text| serde_json::from_str(text));
    match names {
        None => Ok(Vec::new()),
        Some(names) => names.map_err(|e| Error::file(run.model_path(), e.to_string())),
    }
}

/// What results are of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Of {
    Nodes,
    Graphs,
}

impl Of {
    pub fn name(self) -> &'static str {
        if self == Of::Nodes { "node" } else { "graph" }
    }

    /// How many there are.
    fn count(self, set: &Dataset) -> usize {
        if self == Of::Nodes { set.graph().n_nodes() } else { set.n_items() }
    }

    /// What the user calls them, where that is known.
    fn ids(self, set: &Dataset) -> Option<&NodeIds> {
        set.ids().filter(|_| self == Of::Nodes)
    }
}

/// Nodes of a file, a line each, by the ids the data has or by their numbers; all without a file.
pub fn chosen_nodes(file: Option<&Path>, of: Of, set: &Dataset) -> Result<Vec<u32>> {
    let n = of.count(set);
    let Some(path) = file else { return Ok((0..n as u32).collect()) };
    let text = std::fs::read_to_string(path).map_err(|e| Error::io("read", path, e))?;
    let ids: Option<HashMap<&str, u32>> =
        of.ids(set).map(|ids| ids.iter().enumerate().map(|(i, id)| (id, i as u32)).collect());
    let node = |word: &str| match &ids {
        Some(ids) => ids.get(word).copied(),
        None => word.parse::<u32>().ok().filter(|&node| (node as usize) < n),
    };
    let mut nodes = Vec::new();
    for (at, line) in text.lines().enumerate() {
        let word = line.trim();
        match node(word).or_else(|| node(word.trim_matches('"'))) {
            Some(node) => nodes.push(node),
            None if word.is_empty() || (at == 0 && matches!(word, "node" | "id")) => {}
            None => {
                let right = match &ids {
                    Some(_) => "an id of the data".to_owned(),
                    None => format!("a {}'s number below {n}", of.name()),
                };
                let problem = format!("'{word}' is not {right}");
                return Err(Error::file_at(path, Place::Line(at as u64 + 1), problem));
            }
        }
    }
    Ok(nodes)
}

/// Rows to be written.
pub struct Rows<'a> {
    pub asked: Asked,
    pub results: &'a Dense,
    pub of: Of,
    pub chosen: &'a [u32],
    pub set: &'a Dataset,
    pub names: Vec<String>,
}

impl Rows<'_> {
    pub fn len(&self) -> usize {
        self.chosen.len()
    }

    pub fn width(&self) -> usize {
        if self.asked == Asked::Class { 1 } else { self.results.n_cols() }
    }

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

    fn row(&self, at: usize) -> &[f32] {
        self.results.row(self.chosen[at] as usize)
    }

    fn greatest(&self, at: usize) -> usize {
        let row = self.row(at);
        (0..row.len()).fold(0, |best, j| if row[j] > row[best] { j } else { best })
    }

    /// A number of a row as it was asked for.
    fn number(&self, at: usize, column: usize) -> f32 {
        let row = self.row(at);
        match self.asked {
            Asked::Softmax => {
                let most = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
                let sum: f32 = row.iter().map(|x| (x - most).exp()).sum();
                (row[column] - most).exp() / sum
            }
            Asked::Sigmoid => 1.0 / (1.0 + (-row[column]).exp()),
            _ => row[column],
        }
    }

    fn holds(&self) -> Holds {
        match self.asked {
            Asked::Class if !self.names.is_empty() => Holds::Words,
            Asked::Class | Asked::Labels => Holds::Whole,
            _ => Holds::Numbers,
        }
    }

    fn table(&self, path: &Path, file: File) -> Result<()> {
        let own = if self.of.ids(self.set).is_some() { Holds::Words } else { Holds::Whole };
        let mut heads = vec![(self.of.name().to_owned(), own)];
        match self.asked {
            Asked::Class => heads.push((self.asked.column().to_owned(), self.holds())),
            _ => heads.extend((0..self.width()).map(|c| (self.head(c), self.holds()))),
        }
        let cells = |column: usize, rows: Range<usize>| match column.checked_sub(1) {
            None => self.ids(rows),
            Some(column) => self.cells(column, rows),
        };
        Sheet { heads, rows: self.len(), cells: &cells }.write(path, file)
    }

    /// What a column of several is called: by its class, where classes have names.
    fn head(&self, column: usize) -> String {
        let stem = self.asked.column();
        let named = self.asked != Asked::Embeddings && self.names.len() == self.width();
        match self.names.get(column).filter(|_| named) {
            Some(name) => format!("{stem}_{name}"),
            None => format!("{stem}_{column}"),
        }
    }

    /// What the numbers of classes in a file stand for, where it cannot say so itself.
    pub fn legend(&self, ending: Ending) -> Option<String> {
        let numbers = ending == Ending::Npy && self.asked != Asked::Embeddings;
        let of = |(class, name): (usize, &String)| format!("{class} {name}");
        let all: Vec<String> = self.names.iter().enumerate().map(of).collect();
        (numbers && !all.is_empty()).then(|| format!("classes: {}", all.join(", ")))
    }

    fn ids(&self, rows: Range<usize>) -> Cells {
        let nodes = self.chosen[rows].iter();
        match self.of.ids(self.set) {
            Some(ids) => Cells::Words(nodes.map(|&i| ids.get(i as usize).to_owned()).collect()),
            None => Cells::Whole(nodes.map(|&i| i64::from(i)).collect()),
        }
    }

    fn cells(&self, column: usize, rows: Range<usize>) -> Cells {
        let name = |class: usize| self.names.get(class).cloned().unwrap_or(class.to_string());
        match (self.asked, self.holds()) {
            (_, Holds::Words) => Cells::Words(rows.map(|at| name(self.greatest(at))).collect()),
            (Asked::Class, _) => Cells::Whole(rows.map(|at| self.greatest(at) as i64).collect()),
            (Asked::Labels, _) => {
                Cells::Whole(rows.map(|at| i64::from(self.row(at)[column] > 0.0)).collect())
            }
            _ => Cells::Numbers(rows.map(|at| self.number(at, column)).collect()),
        }
    }

    fn npy(&self, out: &mut impl Write) -> std::io::Result<()> {
        let (rows, width) = (self.len(), self.width());
        match self.asked {
            Asked::Class => {
                write_header(out, &descr::<i64>(), &[rows])?;
                each(out, (0..rows).map(|at| self.greatest(at) as i64))
            }
            Asked::Labels => {
                write_header(out, &descr::<u8>(), &[rows, width])?;
                let row = |at: usize| self.row(at).iter().map(|&x| u8::from(x > 0.0));
                each(out, (0..rows).flat_map(row))
            }
            _ => {
                write_header(out, &descr::<f32>(), &[rows, width])?;
                let row = |at: usize| (0..width).map(move |c| self.number(at, c));
                each(out, (0..rows).flat_map(row))
            }
        }
    }
}

/// Numbers one after another.
pub fn each<T: Item>(out: &mut impl Write, items: impl Iterator<Item = T>) -> std::io::Result<()> {
    let mut items = items;
    loop {
        let some: Vec<T> = items.by_ref().take(1 << 12).collect();
        if some.is_empty() {
            return Ok(());
        }
        out.write_all(bytes_of(&some))?;
    }
}
