//! What a benchmark of trainings is made of: graphs × models × widths × modes × peers, as TOML.

use std::path::Path;

use clap::Parser;
use lacis::nn::Config;
use lacis::{Error, Result};
use serde::{Deserialize, Serialize};

use crate::args::Cli;

/// The peers there are: modes of torch_geometric, and torch_geometric with `lacis.patch()`.
pub const PEERS: [&str; 4] = ["edge_index", "csr", "sparse_tensor", "plugin"];

/// A file's content.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Definition {
    pub models: Vec<String>,
    pub hidden: Vec<usize>,
    #[serde(default)]
    pub peers: Vec<String>,
    #[serde(default = "usual_modes")]
    pub modes: Vec<Mode>,
    #[serde(rename = "graph")]
    pub graphs: Vec<Entry>,
    #[serde(default)]
    pub how: How,
}

/// What all trainings share.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct How {
    pub layers: usize,
    pub heads: usize,
    /// What the planner divides once-costs by.
    pub epochs: usize,
    pub lr: f64,
    pub seed: u64,
    pub split: String,
    /// How often both take a turn.
    pub rounds: usize,
    /// When no new round begins.
    pub seconds: f64,
    /// How far losses may be apart, relative above 1, in the epochs that are compared.
    pub tolerance: f64,
    pub compared_epochs: usize,
    pub passes: Passes,
}

/// What an epoch is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Passes {
    /// Forward, loss, backward and a step of the optimizer.
    #[default]
    Training,
    /// The results of all nodes alone, with the first weights.
    Forward,
}

impl Default for How {
    fn default() -> Self {
        How {
            layers: 2,
            heads: 8,
            epochs: 200,
            lr: 0.01,
            seed: 0,
            split: "all".to_owned(),
            rounds: 5,
            seconds: 40.0,
            tolerance: 2e-3,
            compared_epochs: 3,
            passes: Passes::Training,
        }
    }
}

/// More flags of `lacis train`.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Mode {
    pub name: String,
    #[serde(default)]
    pub args: Vec<String>,
    /// Whether losses must equal the peers'; approximations do not.
    #[serde(default = "yes")]
    pub exact: bool,
}

/// A graph, and what to leave out of the rest for it.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Entry {
    pub name: String,
    /// A path, a generator or a set; where absent, the file NAME.npz.
    pub data: Option<String>,
    pub features: Option<Text>,
    pub classes: Option<u32>,
    pub models: Option<Vec<String>>,
    pub hidden: Option<Vec<usize>>,
    pub peers: Option<Vec<String>>,
}

/// A word or a number.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(untagged)]
pub enum Text {
    Number(usize),
    Words(String),
}

impl std::fmt::Display for Text {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Text::Number(number) => number.fmt(f),
            Text::Words(words) => words.fmt(f),
        }
    }
}

fn yes() -> bool {
    true
}

fn usual_modes() -> Vec<Mode> {
    vec![Mode { name: "f32".to_owned(), args: Vec::new(), exact: true }]
}

/// One thing to measure: a training of ours, beside one peer where there is one.
#[derive(Clone, Debug)]
pub struct Case {
    /// Its place among the graphs.
    pub graph: usize,
    pub model: String,
    pub hidden: usize,
    /// Its place among the modes.
    pub mode: usize,
    pub peer: Option<String>,
}

impl Definition {
    /// Reads a definition.
    ///
    /// # Errors
    /// When it is no TOML, or names something that is not there.
    pub fn read(path: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(path).map_err(|e| Error::io("read", path, e))?;
        let read: Definition =
            toml::from_str(&text).map_err(|e| Error::file(path, e.message().to_owned()))?;
        read.check(path)?;
        Ok(read)
    }

    fn check(&self, path: &Path) -> Result<()> {
        let bad = |problem: String| Err(Error::file(path, problem));
        let own = self.graphs.iter().filter_map(|graph| graph.peers.as_ref()).flatten();
        for peer in self.peers.iter().chain(own) {
            if !PEERS.contains(&peer.as_str()) {
                return bad(format!("'{peer}' is no peer; {} are", PEERS.join(", ")));
            }
        }
        let own = self.graphs.iter().filter_map(|graph| graph.models.as_ref()).flatten();
        for model in self.models.iter().chain(own) {
            lacis::nn::kind(model).map_err(|error| Error::file(path, error.to_string()))?;
        }
        let How { rounds, seconds, .. } = self.how;
        if rounds == 0 || seconds.is_nan() || seconds < 0.0 {
            return bad("rounds must be 1 or more, and seconds 0 or more".to_owned());
        }
        let cases = self.cases();
        if cases.is_empty() {
            return bad("asks for nothing: graphs, models and hidden are lists".to_owned());
        }
        for (at, mode) in self.modes.iter().enumerate() {
            let case = cases.iter().find(|case| case.mode == at);
            if let Some(wrong) = case.and_then(|case| self.misuse(case)) {
                return bad(format!("the args of mode '{}': {wrong}", mode.name));
            }
        }
        Ok(())
    }

    /// What is wrong with the flags of a case, were they typed.
    fn misuse(&self, case: &Case) -> Option<String> {
        let words = self.words(case, &self.graphs[case.graph].name);
        let typed = std::iter::once("lacis").chain(words.iter().map(String::as_str));
        let text = Cli::try_parse_from(typed).err()?.to_string();
        let first = text.lines().next().unwrap_or_default();
        Some(first.trim_start_matches("error: ").to_owned())
    }

    /// Who is measured beside us on a graph.
    pub fn peers_of(&self, graph: usize) -> &[String] {
        self.graphs[graph].peers.as_ref().unwrap_or(&self.peers)
    }

    /// Everything to measure, graph by graph.
    pub fn cases(&self) -> Vec<Case> {
        let mut cases = Vec::new();
        for (graph, entry) in self.graphs.iter().enumerate() {
            let models = entry.models.as_ref().unwrap_or(&self.models);
            let widths = entry.hidden.as_ref().unwrap_or(&self.hidden);
            let mut peers: Vec<Option<String>> =
                self.peers_of(graph).iter().cloned().map(Some).collect();
            if peers.is_empty() {
                peers.push(None);
            }
            for (model, &hidden) in models.iter().flat_map(|m| widths.iter().map(move |h| (m, h))) {
                for mode in 0..self.modes.len() {
                    cases.extend(peers.iter().map(|peer| Case {
                        graph,
                        model: model.clone(),
                        hidden,
                        mode,
                        peer: peer.clone(),
                    }));
                }
            }
        }
        cases
    }

    /// The data of a graph, where files lie in a folder.
    pub fn data(&self, graph: usize, folder: &Path) -> String {
        let entry = &self.graphs[graph];
        let named = entry.data.clone().unwrap_or_else(|| format!("{}.npz", entry.name));
        let beside = folder.join(&named);
        if beside.exists() { beside.display().to_string() } else { named }
    }

    /// The words after `lacis` that train a case.
    pub fn words(&self, case: &Case, data: &str) -> Vec<String> {
        let (entry, how, mode) = (&self.graphs[case.graph], &self.how, &self.modes[case.mode]);
        let mut words = vec!["train".to_owned(), data.to_owned()];
        let mut flag = |name: &str, value: String| words.extend([format!("--{name}"), value]);
        flag("model", case.model.clone());
        flag("hidden", case.hidden.to_string());
        flag("layers", how.layers.to_string());
        // Records know their cases by these words, the usual number among them.
        if how.heads == Config::HEADS || matches!(case.model.as_str(), "gat" | "gatv2") {
            flag("heads", how.heads.to_string());
        }
        flag("epochs", how.epochs.to_string());
        flag("lr", how.lr.to_string());
        flag("seed", how.seed.to_string());
        flag("split", how.split.clone());
        flag("dropout", "0".to_owned());
        flag("weight-decay", "0".to_owned());
        flag("eval-every", "0".to_owned());
        if let Some(features) = &entry.features {
            flag("features", features.to_string());
        }
        if let Some(classes) = entry.classes {
            flag("classes", classes.to_string());
        }
        words.push("--no-save".to_owned());
        words.extend(mode.args.iter().cloned());
        words
    }

    /// What tells a measurement from all others: that which decides its result.
    pub fn id(&self, case: &Case) -> String {
        let entry = &self.graphs[case.graph];
        let data = entry.data.as_deref().unwrap_or(&entry.name);
        let mut words = self.words(case, data).join(" ");
        if self.how.passes == Passes::Forward {
            words.push_str(" forward");
        }
        format!("{}: {words} | {}", entry.name, case.peer.as_deref().unwrap_or("alone"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> std::result::Result<Definition, toml::de::Error> {
        toml::from_str(text)
    }

    const SMALL: &str = "models = ['gcn', 'gat']\nhidden = [8, 16]\npeers = ['csr', 'edge_index']\n\
                         [how]\nrounds = 3\n[[graph]]\nname = 'a'\nfeatures = 4\n\
                         [[graph]]\nname = 'b'\npeers = []\nmodels = ['gin']\n";

    #[test]
    fn cases_are_the_product_less_what_a_graph_leaves_out() {
        let read = read(SMALL).unwrap();
        assert_eq!(read.how.rounds, 3);
        let cases = read.cases();
        assert_eq!(cases.len(), 2 * 2 * 2 + 2);
        assert!(cases[8..].iter().all(|case| case.peer.is_none() && case.model == "gin"));
        let ids: std::collections::BTreeSet<_> = cases.iter().map(|c| read.id(c)).collect();
        assert_eq!(ids.len(), cases.len());
        let words = read.words(&cases[0], "a.npz").join(" ");
        assert!(words.contains("train a.npz") && words.contains("--features 4"), "{words}");
    }

    #[test]
    fn a_misspelt_key_is_no_definition() {
        assert!(read(&SMALL.replace("rounds", "round")).is_err());
        assert!(read(&SMALL.replace("peers = []", "peer = []")).is_err());
    }

    #[test]
    fn the_benchmarks_of_this_repository_can_be_read() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../benchmarks");
        let sizes = [
            ("train.toml", 100),
            ("predict.toml", 60),
            ("labelled.toml", 20),
            ("forward.toml", 20),
        ];
        for (name, least) in sizes {
            let read = Definition::read(&folder.join(name)).unwrap();
            assert!(read.cases().len() >= least, "{name}");
        }
    }
}
