//! [`Dataset`]: a graph, or a collection of graphs, with what people learn from it.

use crate::error::same_size;
use crate::{Buffer, Csr, Dense, Error, Graph, NodeIds, Result};

/// What is known of each node.
#[derive(Clone, Debug)]
pub enum Features {
    /// One row of numbers per node.
    Dense(Dense),
    /// Mostly zeros, as in a bag of words: `X·W` is then a sparse product.
    Sparse(Csr),
}

impl Features {
    /// Number of nodes described.
    pub fn n_rows(&self) -> usize {
        match self {
            Features::Dense(x) => x.n_rows(),
            Features::Sparse(x) => x.n_rows(),
        }
    }

    /// Number of features of a node.
    pub fn width(&self) -> usize {
        match self {
            Features::Dense(x) => x.n_cols(),
            Features::Sparse(x) => x.n_cols(),
        }
    }

    /// Numbers stored that are not zero.
    pub fn nnz(&self) -> usize {
        match self {
            Features::Dense(x) => x.rows().flatten().filter(|v| **v != 0.0).count(),
            Features::Sparse(x) => match x.values() {
                None => x.nnz(),
                Some(values) => values.iter().filter(|v| **v != 0.0).count(),
            },
        }
    }

    /// The features as a dense matrix, copied where they are sparse.
    pub fn to_dense(&self) -> Dense {
        match self {
            Features::Dense(x) => x.clone(),
            Features::Sparse(x) => {
                let mut dense = Dense::zeros(x.n_rows(), x.n_cols());
                for (i, j, value) in x.entries() {
                    dense.row_mut(i)[j] += value;
                }
                dense
            }
        }
    }
}

/// What is to be predicted, per node or, in a collection, per graph.
#[derive(Clone, Debug)]
pub enum Labels {
    /// One class each; −1 where it is not known.
    Classes {
        /// The class of each item.
        of: Buffer<i32>,
        /// Number of classes.
        count: usize,
        /// Their names, if they have any.
        names: Vec<String>,
    },
    /// Any number of labels each: row `i` holds the labels of item `i`.
    Multi(Csr),
    /// Numbers, one column per target; NaN where one is not known.
    Targets(Dense),
}

impl Labels {
    /// Classes `0..count`, as many as the largest class asks for.
    ///
    /// # Errors
    /// When a class is below −1 or is `i32::MAX`.
    pub fn classes(of: impl Into<Buffer<i32>>, names: Vec<String>) -> Result<Self> {
        let of = of.into();
        let largest = of.iter().copied().max().unwrap_or(-1);
        let count = names.len().max((i64::from(largest) + 1).max(0) as usize);
        let labels = Labels::Classes { of, count, names };
        labels.check()?;
        Ok(labels)
    }

    /// Every class is −1 or one of those counted.
    fn check(&self) -> Result<()> {
        let Labels::Classes { of, count, .. } = self else { return Ok(()) };
        let limit = (*count).min(i32::MAX as usize) as i32;
        match of.iter().enumerate().find(|(_, class)| !(-1..limit).contains(*class)) {
            None => Ok(()),
            Some((at, class)) => {
                let problem = format!("class {class} at position {at} is outside -1..{limit}");
                Err(Error::argument("labels", problem))
            }
        }
    }

    /// Number of items.
    pub fn n_rows(&self) -> usize {
        match self {
            Labels::Classes { of, .. } => of.len(),
            Labels::Multi(of) => of.n_rows(),
            Labels::Targets(of) => of.n_rows(),
        }
    }

    /// Number of classes, labels or targets.
    pub fn width(&self) -> usize {
        match self {
            Labels::Classes { count, .. } => *count,
            Labels::Multi(of) => of.n_cols(),
            Labels::Targets(of) => of.n_cols(),
        }
    }

    /// Whether item `i` has a label; of numbers, all of them.
    pub fn is_known(&self, i: usize) -> bool {
        match self {
            Labels::Classes { of, .. } => of[i] >= 0,
            Labels::Multi(_) => true,
            Labels::Targets(of) => !of.row(i).iter().any(|number| number.is_nan()),
        }
    }
}

/// Which items train, which choose, which judge.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Split {
    /// How it was made: `canonical`, `random`, ….
    pub name: String,
    /// Items that the loss sees.
    pub train: Vec<u32>,
    /// Items that choose the best epoch.
    pub val: Vec<u32>,
    /// Items that nobody looks at before the end.
    pub test: Vec<u32>,
}

impl Split {
    /// In range, and no item in two parts or twice in one.
    fn check(&self, n: usize) -> Result<()> {
        let mut part_of = vec![""; n];
        for (part, items) in [("train", &self.train), ("val", &self.val), ("test", &self.test)] {
            for (at, &item) in items.iter().enumerate() {
                let Some(seen) = part_of.get_mut(item as usize) else {
                    let (index, bound) = (u64::from(item), n as u64);
                    return Err(Error::Index { op: "split", what: part, index, at, bound });
                };
                if !seen.is_empty() {
                    let problem = format!("item {item} is in both {seen} and {part}");
                    return Err(Error::argument(format!("split '{}'", self.name), problem));
                }
                *seen = part;
            }
        }
        Ok(())
    }
}

/// Many small graphs as one: graph `g` has the nodes `starts[g]..starts[g + 1]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Collection {
    starts: Vec<u32>,
}

impl Collection {
    /// From where each graph's nodes start, and where the last one's end.
    ///
    /// # Errors
    /// When the starts are not ascending from 0.
    pub fn new(starts: Vec<u32>) -> Result<Self> {
        if starts.first() != Some(&0) || starts.windows(2).any(|pair| pair[0] > pair[1]) {
            return Err(Error::argument("collection", "node ranges must ascend from 0"));
        }
        Ok(Collection { starts })
    }

    /// Number of graphs.
    pub fn n_graphs(&self) -> usize {
        self.starts.len() - 1
    }

    /// Where each graph's nodes start.
    pub fn starts(&self) -> &[u32] {
        &self.starts
    }

    /// The nodes of graph `g`.
    pub fn nodes(&self, g: usize) -> std::ops::Range<usize> {
        self.starts[g] as usize..self.starts[g + 1] as usize
    }

    /// Every node in a graph, no edge between two graphs.
    fn check(&self, graph: &Graph) -> Result<()> {
        let n_nodes = self.starts[self.n_graphs()] as usize;
        same_size("collection", "number of nodes", graph.n_nodes(), n_nodes)?;
        for g in 0..self.n_graphs() {
            let nodes = self.nodes(g);
            for i in nodes.clone() {
                let cols = graph.adjacency().row_cols(i);
                if let Some(j) = cols.iter().find(|j| !nodes.contains(&(**j as usize))) {
                    let problem = format!("edge {j} → {i} leaves graph {g}");
                    return Err(Error::argument("collection", problem));
                }
            }
        }
        Ok(())
    }
}

/// Where a data set came from.
#[derive(Clone, Debug, Default)]
pub struct Origin {
    /// The format it was read from, or the generator that made it.
    pub format: String,
    /// Whether a generator made it.
    pub synthetic: bool,
    /// What the reader did that a user may want to know, one sentence each.
    pub notes: Vec<String>,
}

/// A graph with features, labels and splits. Its parts fit together: that is checked as they join.
#[derive(Clone, Debug)]
pub struct Dataset {
    name: String,
    origin: Origin,
    graph: Graph,
    features: Option<Features>,
    labels: Option<Labels>,
    splits: Vec<Split>,
    collection: Option<Collection>,
    ids: Option<NodeIds>,
}

impl Dataset {
    /// A bare graph.
    pub fn new(name: impl Into<String>, graph: Graph) -> Self {
        Dataset {
            name: name.into(),
            origin: Origin::default(),
            graph,
            features: None,
            labels: None,
            splits: Vec::new(),
            collection: None,
            ids: None,
        }
    }

    /// Says where it came from.
    pub fn with_origin(mut self, origin: Origin) -> Self {
        self.origin = origin;
        self
    }

    /// Renames it.
    pub fn with_name(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// Says which format it was read from, or what made it.
    pub fn with_format(mut self, format: impl Into<String>) -> Self {
        self.origin.format = format.into();
        self
    }

    /// Adds a sentence to what the reader did.
    pub fn with_note(mut self, note: impl Into<String>) -> Self {
        self.origin.notes.push(note.into());
        self
    }

    /// Adds what is known of each node.
    ///
    /// # Errors
    /// When there is not one row per node.
    pub fn with_features(mut self, features: Features) -> Result<Self> {
        same_size("data set", "rows of the features", self.graph.n_nodes(), features.n_rows())?;
        self.features = Some(features);
        Ok(self)
    }

    /// Makes it a collection of graphs; labels and splits are then per graph.
    ///
    /// # Errors
    /// When the graphs do not cover the nodes, an edge crosses, or labels came before.
    pub fn with_collection(mut self, collection: Collection) -> Result<Self> {
        collection.check(&self.graph)?;
        if self.labels.is_some() || !self.splits.is_empty() {
            let problem = "must be told before labels and splits, which are per graph then";
            return Err(Error::argument("collection", problem));
        }
        self.collection = Some(collection);
        Ok(self)
    }

    /// Keeps what a user calls the nodes.
    ///
    /// # Errors
    /// When there is not one name per node.
    pub fn with_ids(mut self, ids: NodeIds) -> Result<Self> {
        same_size("data set", "number of node ids", self.graph.n_nodes(), ids.len())?;
        self.ids = Some(ids);
        Ok(self)
    }

    /// Adds what is to be predicted.
    ///
    /// # Errors
    /// When there is not one row per node, or per graph of a collection.
    pub fn with_labels(mut self, labels: Labels) -> Result<Self> {
        same_size("data set", "rows of the labels", self.n_items(), labels.n_rows())?;
        labels.check()?;
        self.labels = Some(labels);
        Ok(self)
    }

    /// Adds a split.
    ///
    /// # Errors
    /// When an item is out of range, or in two parts.
    pub fn with_split(mut self, split: Split) -> Result<Self> {
        split.check(self.n_items())?;
        self.splits.push(split);
        Ok(self)
    }

    /// What people call it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Where it came from.
    pub fn origin(&self) -> &Origin {
        &self.origin
    }

    /// The graph, or all graphs of a collection as one.
    pub fn graph(&self) -> &Graph {
        &self.graph
    }

    /// What is known of each node.
    pub fn features(&self) -> Option<&Features> {
        self.features.as_ref()
    }

    /// What is to be predicted.
    pub fn labels(&self) -> Option<&Labels> {
        self.labels.as_ref()
    }

    /// The splits that came with the data.
    pub fn splits(&self) -> &[Split] {
        &self.splits
    }

    /// The graphs, if there are many.
    pub fn collection(&self) -> Option<&Collection> {
        self.collection.as_ref()
    }

    /// What the user calls the nodes, where that is not their number.
    pub fn ids(&self) -> Option<&NodeIds> {
        self.ids.as_ref()
    }

    /// How many things have a label: graphs of a collection, else nodes.
    pub fn n_items(&self) -> usize {
        self.collection.as_ref().map_or(self.graph.n_nodes(), Collection::n_graphs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs() -> Dataset {
        Dataset::new("pairs", Graph::from_edges(4, &[(0, 1), (2, 3)]).unwrap())
    }

    #[test]
    fn parts_that_do_not_fit_are_refused() {
        let wrong = Features::Dense(Dense::zeros(3, 2));
        let error = pairs().with_features(wrong).unwrap_err();
        assert_eq!(error.to_string(), "data set: rows of the features is 3, expected 4");
        assert!(Labels::classes(vec![0, -2], vec![]).is_err());
        assert!(Labels::classes(vec![0, i32::MAX], vec![]).is_err());
        let lying = Labels::Classes { of: vec![0, 1, 2, 9].into(), count: 3, names: vec![] };
        assert!(pairs().with_labels(lying).is_err());
        assert!(pairs().with_labels(Labels::classes(vec![0, 1], vec![]).unwrap()).is_err());
        let overlapping = Split { train: vec![0, 1], val: vec![1], ..Split::default() };
        let error = pairs().with_split(overlapping).unwrap_err();
        assert!(error.to_string().contains("item 1 is in both train and val"), "{error}");
        let outside = Split { test: vec![4], ..Split::default() };
        assert!(pairs().with_split(outside).is_err());
    }

    #[test]
    fn a_collection_has_labels_per_graph_and_no_edges_between() {
        let two = Collection::new(vec![0, 2, 4]).unwrap();
        let set = pairs().with_collection(two).unwrap();
        assert_eq!(set.n_items(), 2);
        assert!(set.with_labels(Labels::classes(vec![0, 1], vec![]).unwrap()).is_ok());
        let crossing = Collection::new(vec![0, 1, 4]).unwrap();
        assert!(pairs().with_collection(crossing).is_err());
        assert!(Collection::new(vec![1, 2]).is_err());
        assert!(Collection::new(vec![]).is_err());
    }
}
