//! A user's own tables: edges, and perhaps nodes with ids, features, labels and splits.
//!
//! ```text
//!  edges   source, target [, weight]           ids of any kind, an edge a row
//!  nodes   id [, label] [, split], feature …   a node a row
//! ```
//! Numeric columns are features as they are, missing values the column's mean; columns of words
//! become one-hot, missing ones all zeros. A missing label is unknown, a missing split is no part.
//! Edges run from source to target. Nodes are numbered as the table of nodes has them; without
//! one, by their number where all ids are numbers, else by their first appearance.

mod edges;
mod nodes;

use std::collections::HashMap;
use std::path::PathBuf;

use lacis_core::{Dataset, Error, NodeIds, Origin, Result};

use crate::Job;

/// Which files, and which of their columns.
#[derive(Clone, Debug, Default)]
pub struct Tables {
    /// The table of edges.
    pub edges: PathBuf,
    /// The table of nodes, if there is one.
    pub nodes: Option<PathBuf>,
    /// Columns of the edges: absent, the usual names or the first two columns.
    pub source: Option<String>,
    /// The column that an edge runs to.
    pub target: Option<String>,
    /// The weights; absent, a column called `weight`, if there is one.
    pub weight: Option<String>,
    /// Columns of the nodes: absent, `id` or the first column.
    pub id: Option<String>,
    /// What is to be predicted; absent, `label`, `y`, … if there is one.
    pub label: Option<String>,
    /// `train`, `val` or `test`; absent, `split`, if there is one.
    pub split: Option<String>,
    /// Columns of the nodes that are no features.
    pub ignore: Vec<String>,
}

/// Reads the tables.
///
/// # Errors
/// When a column is not there, an id is missing, unknown or there twice, or a file is damaged.
pub fn read(tables: &Tables, job: &Job<'_>) -> Result<Dataset> {
    let nodes = match &tables.nodes {
        Some(path) => Some(nodes::Nodes::read(path, tables, job)?),
        None => None,
    };
    let known = nodes.as_ref().map(|nodes| &nodes.ids);
    let edges = edges::read(tables, known, job)?;
    let mut notes = edges.notes;
    if let Some(nodes) = &nodes {
        notes.extend(nodes.notes.iter().cloned());
    }
    let mut set = Dataset::new(crate::stem(&tables.edges), edges.graph)
        .with_format("tables")
        .with_origin(Origin { format: "tables".to_owned(), notes, ..Origin::default() })
        .with_ids(edges.ids.names)?;
    let Some(nodes) = nodes else { return Ok(set) };
    if let Some(features) = nodes.features {
        set = set.with_features(features)?;
    }
    if let Some(labels) = nodes.labels {
        set = set.with_labels(labels)?;
    }
    match nodes.split {
        Some(split) => set.with_split(split),
        None => Ok(set),
    }
}

/// The nodes' ids, and the number of each.
#[derive(Clone, Debug)]
pub(crate) struct Ids {
    pub names: NodeIds,
    pub number_of: HashMap<Box<str>, u32>,
}

impl Ids {
    /// The first name that is there twice is an error: its place.
    fn new(names: Vec<String>) -> std::result::Result<Self, usize> {
        let mut number_of = HashMap::with_capacity(names.len());
        for (at, name) in names.iter().enumerate() {
            if number_of.insert(name.as_str().into(), at as u32).is_some() {
                return Err(at);
            }
        }
        Ok(Ids { names: names.iter().collect(), number_of })
    }
}

/// The column asked for, or the first of the usual names.
fn column<'a>(
    table: &'a crate::table::Table,
    asked: Option<&String>,
    usual: &[&str],
    path: &std::path::Path,
) -> Result<Option<&'a crate::table::Column>> {
    let Some(asked) = asked else { return Ok(table.find(usual)) };
    table.find(&[asked]).map(Some).ok_or_else(|| missing(path, asked, &table.names()))
}

fn missing(path: &std::path::Path, name: &str, names: &str) -> Error {
    Error::file(path, format!("has no column '{name}'; it has {names}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use lacis_core::{Features, Labels, Threads};

    fn load(edges: &str, nodes: Option<&str>) -> Result<Dataset> {
        let dir = tempfile::tempdir().unwrap();
        let put = |name: &str, text: &str| {
            std::fs::write(dir.path().join(name), text).unwrap();
            dir.path().join(name)
        };
        let tables = Tables {
            edges: put("e.csv", edges),
            nodes: nodes.map(|text| put("n.csv", text)),
            ..Tables::default()
        };
        read(&tables, &Job::quiet(&Threads::new(2).unwrap()))
    }

    fn edges_of(set: &Dataset) -> Vec<(&str, &str, f32)> {
        let ids = set.ids().unwrap();
        let entries = set.graph().adjacency().entries();
        entries.map(|(target, source, w)| (ids.get(source), ids.get(target), w)).collect()
    }

    #[test]
    fn ids_columns_and_missing_values() {
        let nodes = "name,id,age,colour,y,split\n\
                     \"A, B\",ann,1.5,red,yes,train\nC,bob,,blue,,val\nD,cy,2.5,red,no,test\n\
                     E,\"d\"\"d\",2,NA,yes,\nF,e,2,red,no,test\n";
        let set =
            load("w,to,from\n1,bob,ann\n2,\"d\"\"d\",cy\n0.5,ann,bob\n", Some(nodes)).unwrap();
        let edges = [("bob", "ann", 0.5), ("ann", "bob", 1.0), ("cy", "d\"d", 2.0)];
        assert_eq!(edges_of(&set), edges);
        let Some(Labels::Classes { of, names, .. }) = set.labels() else { panic!("classes") };
        assert_eq!(
            (&of[..], &names[..]),
            (&[1, -1, 0, 1, 0][..], &["no", "yes"].map(String::from)[..])
        );
        let x = set.features().unwrap().to_dense();
        assert_eq!((x.row(0), x.row(1)), (&[1.5, 0.0, 1.0][..], &[2.0, 1.0, 0.0][..]));
        assert_eq!(x.row(3), [2.0, 0.0, 0.0]);
        let split = &set.splits()[0];
        assert_eq!(
            (&split.train[..], &split.val[..], &split.test[..]),
            (&[0][..], &[1][..], &[2, 4][..])
        );
        let notes = set.origin().notes.join("; ");
        assert!(notes.contains("'name' has 5 different values"), "{notes}");
        assert!(notes.contains("'age'"), "{notes}");
    }

    #[test]
    fn nodes_come_from_edges_where_there_is_no_table() {
        let words = load("source,target\nzoe,ann\nann,bob\n", None).unwrap();
        assert_eq!(words.ids().unwrap().iter().collect::<Vec<_>>(), ["zoe", "ann", "bob"]);
        let numbers = load("source,target\n700,30\n30,5\n", None).unwrap();
        assert_eq!(numbers.ids().unwrap().iter().collect::<Vec<_>>(), ["5", "30", "700"]);
        assert_eq!(numbers.graph().n_edges(), 2);
        assert!(words.features().is_none());
    }

    #[test]
    fn numbers_that_are_no_classes_are_targets() {
        let set = load("a,b\n1,2\n", Some("id,y\n1,0.5\n2,1.25\n")).unwrap();
        assert!(matches!(set.labels(), Some(Labels::Targets(_))));
        let set = load("a,b\n1,2\n", Some("id,y\n1,0.5\n2,\n")).unwrap();
        let labels = set.labels().unwrap();
        assert!(matches!(labels, Labels::Targets(_)), "{labels:?}");
        assert_eq!([0, 1].map(|i| labels.is_known(i)), [true, false]);
        let wide: String = (0..300).map(|i| format!("{i},c{}\n", i % 100)).collect();
        let set = load("a,b\n1,2\n", Some(&format!("id,kind\n{wide}"))).unwrap();
        assert!(matches!(set.features(), Some(Features::Sparse(x)) if x.n_cols() == 100));
    }

    #[test]
    fn problems_name_the_place() {
        let nodes = Some("id,x\na,1\nb,2\n");
        let problem = |edges, nodes| load(edges, nodes).unwrap_err().to_string();
        assert!(problem("s,t\na,b\na,zz\n", nodes).contains("line 3: no node 'zz'"));
        assert!(problem("s,t\na,\n", nodes).contains("line 2: an edge without"));
        assert!(problem("s,t,weight\na,b,x\n", nodes).contains("line 2: 'x' is no weight"));
        assert!(problem("s,t\na\n", nodes).contains("line 2: 1 fields"));
        assert!(problem("s,t\na,b\n", Some("id,x\na,1\na,2\n")).contains("'a' is there twice"));
        assert!(problem("s,t\na,b\n", Some("id,x\n,1\n")).contains("row 1 has no id"));
        let split = problem("s,t\na,b\n", Some("id,split\na,train\nb,holdout\n"));
        assert!(split.contains("'holdout' is no part of a split"), "{split}");
        assert!(problem("s\na\n", nodes).contains("two columns"));
    }
}
