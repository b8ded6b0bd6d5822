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

    /// What was typed, word for word.
    pub fn words(&self) -> &[String] {
        &self.1
    }
}

/// The names of what stands on a command line.
fn named(matches: &ArgMatches) -> Vec<String> {
    let mut innermost = matches;
    while let Some((_, inner)) = innermost.subcommand() {
        innermost = inner;
    }
    let there =
        |id: &&clap::Id| innermost.value_source(id.as_str()) == Some(ValueSource::CommandLine);
    innermost.ids().filter(there).map(|id| id.as_str().to_owned()).collect()
}

/// What is usual for some data or some task, and who says so.
struct Usual {
    /// Data sets by name; any where there are none.
    sets: &'static [&'static str],
    /// Models; any where there are none.
    models: &'static [&'static str],
    task: &'static str,
    /// Flags and their values.
    values: &'static [(&'static str, f64)],
    /// Where that comes from.
    from: &'static str,
}

const PLANETOID: &[&str] = &["cora", "citeseer", "pubmed", "cora-like"];

/// The first row that fits a flag decides.
static USUAL: &[Usual] = &[
    Usual {
        sets: &[],
        models: &[],
        task: "link",
        values: &[("hidden", 128.0), ("dropout", 0.0), ("weight_decay", 0.0)],
        from: "usual for links",
    },
    Usual {
        sets: PLANETOID,
        models: &["gat", "gatv2"],
        task: "node",
        values: &[("hidden", 64.0), ("dropout", 0.6), ("lr", 0.005), ("weight_decay", 5e-4)],
        from: "Veličković et al. 2018",
    },
    Usual {
        sets: PLANETOID,
        models: &["gcn"],
        task: "node",
        values: &[("hidden", 16.0), ("dropout", 0.5), ("lr", 0.01), ("weight_decay", 5e-4)],
        from: "Kipf and Welling 2017",
    },
    Usual {
        sets: PLANETOID,
        models: &["appnp"],
        task: "node",
        values: &[("hidden", 64.0), ("dropout", 0.5), ("lr", 0.01), ("weight_decay", 5e-3)],
        from: "Gasteiger et al. 2019",
    },
    Usual {
        sets: &["ogbn-products", "products"],
        models: &["sage", "gcn"],
        task: "node",
        values: &[
            ("hidden", 256.0),
            ("layers", 3.0),
            ("dropout", 0.5),
            ("lr", 0.003),
            ("weight_decay", 0.0),
        ],
        from: "PyG's example",
    },
    Usual {
        sets: &["reddit"],
        models: &["sage", "gcn"],
        task: "node",
        values: &[("hidden", 256.0), ("dropout", 0.5), ("weight_decay", 0.0)],
        from: "PyG's example",
    },
    Usual {
        sets: &["ogbn-arxiv", "arxiv"],
        models: &["gcn", "sage"],
        task: "node",
        values: &[
            ("hidden", 256.0),
            ("layers", 3.0),
            ("dropout", 0.5),
            ("weight_decay", 0.0),
            ("epochs", 500.0),
        ],
        from: "the examples of OGB",
    },
];

/// The flags that the table can decide, in the order in which they are shown.
const FLAGS: [&str; 6] = ["hidden", "layers", "dropout", "lr", "weight_decay", "epochs"];

/// Fills in what was not given, and says of each flag what it is and where it came from.
pub fn fill_in(
    (net, learning): (&mut Net, &mut Learning),
    typed: &Typed,
    data: &str,
) -> Vec<(&'static str, f64, String)> {
    let data = data.to_lowercase();
    let task = learning.task.as_deref().unwrap_or("node");
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
        shown.push((name, get((net, learning), name), from));
    }
    shown
}

fn set((net, learning): (&mut Net, &mut Learning), name: &str, value: f64) {
    match name {
        "hidden" => net.hidden = Some(value as usize),
        "layers" => net.layers = value as usize,
        "dropout" => net.dropout = value,
        "lr" => learning.lr = value,
        "weight_decay" => learning.weight_decay = value,
        _ => learning.epochs = value as usize,
    }
}

fn get((net, learning): (&mut Net, &mut Learning), name: &str) -> f64 {
    match name {
        "hidden" => *net.hidden.get_or_insert(64) as f64,
        "layers" => net.layers as f64,
        "dropout" => net.dropout,
        "lr" => learning.lr,
        "weight_decay" => learning.weight_decay,
        _ => learning.epochs as f64,
    }
}

/// All of them in a line: `hidden 16, dropout 0.5 (Kipf and Welling 2017); lr 0.02 (flag)`.
pub fn in_words(shown: &[(&str, f64, String)]) -> String {
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
    fn tasks_and_models_have_usual_numbers_too() {
        let (train, _) = filled(&["lacis", "train", "x", "--task=link"], "cora");
        assert_eq!((train.net.hidden, train.net.dropout), (Some(128), 0.0));
        let (train, _) = filled(&["lacis", "train", "x", "--model=gat"], "pubmed");
        assert_eq!((train.net.dropout, train.learning.lr), (0.6, 0.005));
        let (train, words) = filled(&["lacis", "train", "x", "--model=sage"], "ogbn-products");
        assert_eq!((train.net.hidden, train.net.layers, train.learning.lr), (Some(256), 3, 0.003));
        assert!(words.contains("PyG's example"), "{words}");
        let (train, words) = filled(&["lacis", "train", "x"], "my-own");
        assert_eq!((train.net.hidden, train.net.dropout), (Some(64), 0.5));
        assert!(words.ends_with("(default)") && !words.contains(';'), "{words}");
    }
}
