//! What a training takes where nothing was said: one table of what is usual for a data set, a task
//! or a model, and where each number came from.

use std::collections::BTreeMap;
use std::ffi::OsString;

use clap::parser::ValueSource;
use clap::{ArgMatches, CommandFactory};

use crate::args::Cli;
use crate::args_train::{Learning, Net};

/// Where a flag's value came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Given {
    Flag,
    File,
}

/// Flags that were given, by their names.
#[derive(Clone, Debug, Default)]
pub struct Typed(BTreeMap<String, Given>, Vec<String>);

impl Typed {
    /// Of what was typed, and the same with what a configuration file added.
    pub fn of(typed: &[OsString], expanded: &ArgMatches) -> Self {
        let own = Cli::command().ignore_errors(true).try_get_matches_from(typed).ok();
        let mut all: BTreeMap<String, Given> =
            named(expanded).into_iter().map(|name| (name, Given::File)).collect();
        let flags = own.as_ref().map(named).unwrap_or_default();
        all.extend(flags.into_iter().map(|name| (name, Given::Flag)));
        Typed(all, typed.iter().map(|word| word.to_string_lossy().into_owned()).collect())
    }

    /// Whether a flag stands on the command line itself.
    pub fn was_typed(&self, name: &str) -> bool {
        self.0.get(name) == Some(&Given::Flag)
    }

    /// Whether a flag stands in a configuration file, and not on the command line.
    pub fn was_read(&self, name: &str) -> bool {
        self.0.get(name) == Some(&Given::File)
    }

    /// All that was given, on the command line or by a file.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    /// What was typed, word for word.
    pub fn words(&self) -> &[String] {
        &self.1
    }
}

/// The names of what stands on a command line.
pub fn named(matches: &ArgMatches) -> Vec<String> {
    let mut innermost = matches;
    while let Some((_, inner)) = innermost.subcommand() {
        innermost = inner;
    }
    // The structs that flags are kept in have names here too; they are no flags.
    let flag = |id: &str| id.starts_with(char::is_lowercase);
    let there = |id: &&str| innermost.value_source(id) == Some(ValueSource::CommandLine);
    let ids = innermost.ids().map(clap::Id::as_str);
    ids.filter(|id| flag(id)).filter(there).map(str::to_owned).collect()
}

/// What is usual for some data or some task, and who says so.
struct Usual {
    /// Data sets by name; any where there are none.
    sets: &'static [&'static str],
    /// Models; any where there are none.
    models: &'static [&'static str],
    task: &'static str,
    /// Flags and their values.
    values: &'static [(&'static str, &'static str)],
    /// Where that comes from.
    from: &'static str,
}

const PLANETOID: &[&str] = &["cora", "citeseer", "pubmed", "cora-like"];
/// The sets that "Pitfalls of graph neural network evaluation" brought, as they are fetched and as
/// its files are called.
const SHCHUR: &[&str] = &[
    "amazon-computers",
    "amazon-photo",
    "coauthor-cs",
    "coauthor-physics",
    "amazon_electronics_computers",
    "amazon_electronics_photo",
    "ms_academic_cs",
    "ms_academic_phy",
];
/// Collections of small graphs that torch_geometric's example of GIN is for.
const MOLECULES: &[&str] = &["mutag", "proteins", "nci1"];

/// The first row that fits a flag decides.
static USUAL: &[Usual] = &[
    Usual {
        sets: &[],
        models: &[],
        task: "link",
        values: &[("hidden", "128"), ("dropout", "0"), ("weight_decay", "0")],
        from: "usual for links",
    },
    Usual {
        sets: PLANETOID,
        models: &["gat", "gatv2"],
        task: "node",
        values: &[
            ("hidden", "64"),
            ("dropout", "0.6"),
            ("lr", "0.005"),
            ("weight_decay", "0.0005"),
        ],
        from: "Veličković et al. 2018",
    },
    Usual {
        sets: PLANETOID,
        models: &["gcn"],
        task: "node",
        values: &[("hidden", "16"), ("dropout", "0.5"), ("lr", "0.01"), ("weight_decay", "0.0005")],
        from: "Kipf and Welling 2017",
    },
    Usual {
        sets: PLANETOID,
        models: &["appnp"],
        task: "node",
        values: &[("hidden", "64"), ("dropout", "0.5"), ("lr", "0.01"), ("weight_decay", "0.005")],
        from: "Gasteiger et al. 2019",
    },
    Usual {
        sets: &["ogbn-products", "products"],
        models: &["sage", "gcn"],
        task: "node",
        values: &[
            ("hidden", "256"),
            ("layers", "3"),
            ("dropout", "0.5"),
            ("lr", "0.003"),
            ("weight_decay", "0"),
        ],
        from: "PyG's example",
    },
    Usual {
        sets: &["reddit"],
        models: &["sage", "gcn"],
        task: "node",
        values: &[("hidden", "256"), ("dropout", "0.5"), ("weight_decay", "0")],
        from: "PyG's example",
    },
    Usual {
        sets: &["ogbn-arxiv", "arxiv"],
        models: &["gcn", "sage"],
        task: "node",
        values: &[
            ("hidden", "256"),
            ("layers", "3"),
            ("dropout", "0.5"),
            ("weight_decay", "0"),
            ("epochs", "500"),
        ],
        from: "the examples of OGB",
    },
    Usual {
        sets: SHCHUR,
        models: &["gcn"],
        task: "node",
        values: &[
            ("hidden", "64"),
            ("layers", "2"),
            ("dropout", "0.8"),
            ("lr", "0.01"),
            ("weight_decay", "0.001"),
        ],
        from: "Shchur et al. 2018",
    },
    Usual {
        sets: SHCHUR,
        models: &["gat"],
        task: "node",
        values: &[("hidden", "64"), ("layers", "2"), ("lr", "0.01"), ("weight_decay", "0.01")],
        from: "Shchur et al. 2018",
    },
    Usual {
        sets: SHCHUR,
        models: &["mlp"],
        task: "node",
        values: &[
            ("hidden", "64"),
            ("layers", "2"),
            ("dropout", "0.8"),
            ("lr", "0.005"),
            ("weight_decay", "0.01"),
        ],
        from: "Shchur et al. 2018",
    },
    Usual {
        sets: MOLECULES,
        models: &["gin"],
        task: "graph",
        values: &[
            ("hidden", "32"),
            ("layers", "5"),
            ("mlp_layers", "2"),
            ("norm", "batch"),
            ("dropout", "0.5"),
            ("weight_decay", "0"),
            ("lr", "0.01"),
            ("epochs", "100"),
        ],
        from: "PyG's example",
    },
];

/// The flags that the table can decide, in the order in which they are shown.
const FLAGS: [&str; 8] =
    ["hidden", "layers", "mlp_layers", "norm", "dropout", "lr", "weight_decay", "epochs"];
/// Those that are of interest only where somebody chose them.
const CHOSEN: [&str; 2] = ["mlp_layers", "norm"];

/// Fills in what was not given, and says of each flag what it is and where it came from.
pub fn fill_in(
    (net, learning): (&mut Net, &mut Learning),
    typed: &Typed,
    data: &str,
) -> Vec<(&'static str, String, String)> {
    let data = data.to_lowercase();
    // A collection's task is to tell its graphs apart.
    let own = if MOLECULES.contains(&data.as_str()) { "graph" } else { "node" };
    let task = learning.task.as_deref().unwrap_or(own);
    let fits = |usual: &&Usual| {
        let any = |list: &[&str], name: &str| list.is_empty() || list.contains(&name);
        any(usual.sets, &data) && any(usual.models, &net.model) && usual.task == task
    };
    let rows: Vec<&Usual> = USUAL.iter().filter(fits).collect();
    let mut shown = Vec::new();
    for name in FLAGS {
        let from = match typed.0.get(name) {
            Some(Given::Flag) => "flag".to_owned(),
            Some(Given::File) => "file".to_owned(),
            None => {
                let usual = rows.iter().find_map(|row| {
                    let value = row.values.iter().find(|(flag, _)| *flag == name)?;
                    Some((value.1, row.from))
                });
                usual.map_or("default".to_owned(), |(value, from)| {
                    set((net, learning), name, value);
                    from.to_owned()
                })
            }
        };
        if from != "default" || !CHOSEN.contains(&name) {
            shown.push((name, get((net, learning), name), from));
        }
    }
    shown
}

fn set((net, learning): (&mut Net, &mut Learning), name: &str, value: &str) {
    let whole = || value.parse().expect("the table has whole numbers");
    let number = || value.parse().expect("the table has numbers");
    match name {
        "hidden" => net.hidden = Some(whole()),
        "layers" => net.layers = whole(),
        "mlp_layers" => net.mlp_layers = whole(),
        "norm" => net.norm = value.to_owned(),
        "dropout" => net.dropout = number(),
        "lr" => learning.lr = number(),
        "weight_decay" => learning.weight_decay = number(),
        _ => learning.epochs = whole(),
    }
}

fn get((net, learning): (&mut Net, &mut Learning), name: &str) -> String {
    match name {
        "hidden" => net.hidden.get_or_insert(64).to_string(),
        "layers" => net.layers.to_string(),
        "mlp_layers" => net.mlp_layers.to_string(),
        "norm" => net.norm.clone(),
        "dropout" => net.dropout.to_string(),
        "lr" => learning.lr.to_string(),
        "weight_decay" => learning.weight_decay.to_string(),
        _ => learning.epochs.to_string(),
    }
}

/// All of them in a line: `hidden 16, dropout 0.5 (Kipf and Welling 2017); lr 0.02 (flag)`.
pub fn in_words(shown: &[(&str, String, String)]) -> String {
    let mut groups: Vec<(&str, Vec<String>)> = Vec::new();
    for (name, value, from) in shown {
        let text = format!("{} {value}", name.replace('_', "-"));
        match groups.iter_mut().find(|group| group.0 == from) {
            Some((_, names)) => names.push(text),
            None => groups.push((from, vec![text])),
        }
    }
    let words = groups.iter().map(|(from, names)| format!("{} ({from})", names.join(", ")));
    words.collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::FromArgMatches;

    fn filled(words: &[&str], data: &str) -> (crate::args_train::Train, String) {
        let typed: Vec<OsString> = words.iter().map(OsString::from).collect();
        let matches = Cli::command().try_get_matches_from(&typed).unwrap();
        let given = Typed::of(&typed[..typed.len().min(4)], &matches);
        let Some(crate::args::Verb::Train(train)) = Cli::from_arg_matches(&matches).unwrap().verb
        else {
            panic!("a training was typed");
        };
        let mut train = *train;
        let shown = fill_in((&mut train.net, &mut train.learning), &given, data);
        (train, in_words(&shown))
    }

    #[test]
    fn what_was_typed_wins_over_what_is_usual() {
        let (train, words) = filled(&["lacis", "train", "--lr=0.5", "x", "--epochs=7"], "Cora");
        assert_eq!((train.net.hidden, train.learning.lr), (Some(16), 0.5));
        assert_eq!(train.learning.epochs, 7);
        assert!(words.contains("hidden 16, dropout 0.5"), "{words}");
        assert!(words.contains("lr 0.5 (flag)") && words.contains("epochs 7 (file)"), "{words}");
        assert!(words.contains("layers 2 (default)"), "{words}");
    }

    #[test]
    fn the_table_has_values_that_flags_take() {
        let (mut train, _) = filled(&["lacis", "train", "x"], "none");
        for (name, value) in USUAL.iter().flat_map(|usual| usual.values) {
            assert!(FLAGS.contains(name), "{name}");
            set((&mut train.net, &mut train.learning), name, value);
            assert_eq!(get((&mut train.net, &mut train.learning), name), *value, "{name}");
        }
    }

    #[test]
    fn tasks_and_models_have_usual_numbers_too() {
        let (train, _) = filled(&["lacis", "train", "x", "--task=link"], "cora");
        assert_eq!((train.net.hidden, train.net.dropout), (Some(128), 0.0));
        let (train, _) = filled(&["lacis", "train", "x", "--model=gat"], "pubmed");
        assert_eq!((train.net.dropout, train.learning.lr), (0.6, 0.005));
        let (train, words) = filled(&["lacis", "train", "x", "--model=sage"], "ogbn-products");
        assert_eq!((train.net.hidden, train.net.layers, train.learning.lr), (Some(256), 3, 0.003));
        assert!(words.contains("PyG's example"), "{words}");
        let (train, words) = filled(&["lacis", "train", "x"], "Amazon-Photo");
        assert_eq!((train.net.dropout, train.learning.weight_decay), (0.8, 1e-3));
        assert!(words.contains("Shchur"), "{words}");
        let (train, words) = filled(&["lacis", "train", "x", "--model=gin"], "MUTAG");
        assert_eq!(
            (train.net.layers, train.net.mlp_layers, train.net.norm.as_str()),
            (5, 2, "batch")
        );
        assert!(words.contains("norm batch") && words.contains("PyG's example"), "{words}");
        let (train, words) = filled(&["lacis", "train", "x"], "my-own");
        assert_eq!((train.net.hidden, train.net.dropout), (Some(64), 0.5));
        assert!(words.ends_with("(default)") && !words.contains(';'), "{words}");
    }
}
