//! One self-contained HTML file of what a command found: no script, no network, light and dark.
//!
//! A page is made of the JSON lines that the command would print, so that `--html` and
//! `lacis report` show the same: [`SECTIONS`] lists what becomes of which line.

mod approx;
mod chart;
mod contests;
mod diagram;
mod found;
mod measured;
mod table;

use std::path::Path;

use lacis::data::staged::{Existing, Staged};
use lacis::{Error, Result};
use serde_json::Value;

use chart::escaped;

/// Who shows lines of one kind.
type Show = fn(&[&Value]) -> String;

/// Which lines become which section, in the order of a page: those of the first kind, with those
/// of others that say more of them.
const SECTIONS: &[(&[&str], Show)] = &[
    (&["done"], found::summary),
    (&["run"], found::runs),
    (&["epoch"], found::curves),
    (&["plan", "run", "done"], found::plan),
    (&["done"], approx::of_training),
    (&["explain"], found::explained),
    (&["profile"], contests::models),
    (&["op", "roof"], measured::operations),
    (&["training"], contests::trainings),
    (&["sampled"], approx::of_products),
    (&["ratio", "compared"], contests::compared),
    (&["memory"], measured::memory),
    (&["choice"], measured::choices),
    (&["curve"], measured::tuning),
    (&["analysis"], found::analysed),
    (&["environment"], found::environment),
];

/// A page of JSON lines, of one command or of several.
pub fn of(sources: &[(String, Vec<Value>)], title: &str) -> String {
    let several = sources.len() > 1;
    let body: String = sources
        .iter()
        .map(|(name, events)| {
            let heading = match several {
                true => format!("<header><h1>{}</h1></header>", escaped(name)),
                false => String::new(),
            };
            heading + &sections(events)
        })
        .collect();
    format!(
        "<!doctype html><html lang=en><head><meta charset=utf-8>\
         <meta name=viewport content='width=device-width,initial-scale=1'>\
         <meta name=color-scheme content='light dark'><link rel=icon href='data:,'>\
         <title>{title}</title><style>{style}</style></head><body><main>\
         <header><h1>{title}</h1></header>{body}\
         <footer>Lacis {version}. This file holds all it shows.</footer></main></body></html>\n",
        title = escaped(title),
        style = include_str!("page/style.css"),
        version = env!("CARGO_PKG_VERSION"),
    )
}

/// Everything that lines have to show.
fn sections(events: &[Value]) -> String {
    let mut body = String::new();
    for (kinds, show) in SECTIONS {
        let is_one = |event: &&Value| kinds.iter().any(|kind| event["event"] == *kind);
        let lines: Vec<&Value> = events.iter().filter(is_one).collect();
        if lines.iter().any(|line| line["event"] == kinds[0]) {
            body.push_str(&show(&lines));
        }
    }
    let start = events.iter().find(|event| event["event"] == "start");
    // Results say in their first line where they were made.
    let told = events.iter().any(|event| event["event"] == "environment");
    let says = |start: &&Value| !told && ["machine", "cpu"].iter().any(|of| start[of].is_object());
    if let Some(start) = start.filter(says) {
        body.push_str(&found::environment(&[start]));
    }
    body + &start.map_or(String::new(), |start| configuration(&start["config"]))
}

/// Whether lines have something to show.
pub fn has_sections(events: &[Value]) -> bool {
    events.iter().any(|event| SECTIONS.iter().any(|(kinds, _)| event["event"] == kinds[0]))
}

/// What a page of lines is about: the command, its data and its model.
pub fn title(events: &[Value]) -> String {
    let Some(start) = events.iter().find(|event| event["event"] == "start") else {
        return "Lacis".to_owned();
    };
    let config = &start["config"];
    // A run's own configuration has no groups. Of a path, what tells data sets apart.
    let word = |group: &str, name: &str| {
        let word = config[group][name].as_str().or(config[name].as_str());
        word.map(|word| short(word).to_owned())
    };
    let command = start["command"].as_str().map(str::to_owned);
    let suite = config["suite"].as_str().map(|suite| format!("--suite {suite}"));
    let graph = word("args", "graph").filter(|_| suite.is_none());
    let files = ["file", "a", "b"].map(|name| word("args", name));
    let words = [command, word("source", "data"), word("net", "model"), suite, graph];
    let words: Vec<String> = words.into_iter().chain(files).flatten().collect();
    format!("lacis {}", words.join(" "))
}

/// The last part of a path; anything else whole.
fn short(name: &str) -> &str {
    match name.contains("://") || name.contains(':') {
        true => name,
        false => name.trim_end_matches('/').rsplit('/').next().unwrap_or(name),
    }
}

/// What was asked for, as it would be written in a file.
fn configuration(config: &Value) -> String {
    if config.is_null() {
        return String::new();
    }
    let text = serde_json::to_string_pretty(config).unwrap_or_default();
    section("What was asked for", &folded("every setting", &text))
}

/// Text that is there for whoever opens it.
fn folded(name: &str, text: &str) -> String {
    let (name, text) = (escaped(name), escaped(text));
    format!("<details><summary>{name}</summary><pre>{text}</pre></details>")
}

/// A section.
fn section(heading: &str, body: &str) -> String {
    format!("<section><h2>{}</h2>{body}</section>", escaped(heading))
}

/// Whether a page may be written to a place, as long as nothing has been done for it.
///
/// # Errors
/// When something that must stay is there, or files cannot be made beside it.
pub fn check_place(path: &Path, existing: Existing) -> Result<()> {
    let staged = Staged::new(path, existing)?;
    std::fs::write(staged.path(), "").map_err(|error| Error::io("write", path, error))
}

/// Writes a page; what is there stays unless it may be replaced.
pub fn write(path: &Path, page: &str, existing: Existing) -> Result<()> {
    let staged = Staged::new(path, existing)?;
    std::fs::write(staged.path(), page).map_err(|error| Error::io("write", path, error))?;
    staged.commit()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn page() -> String {
        let events = [
            json!({ "event": "start", "command": "train", "config": { "a": "<b>" } }),
            json!({ "event": "plan", "id": "abc", "formula": "Y = A·X<W" }),
            json!({ "event": "epoch", "epoch": 1, "loss": 2.0, "train": 0.1, "val": null }),
            json!({ "event": "epoch", "epoch": 2, "loss": 1.0, "train": 0.5, "val": 0.4 }),
            json!({ "event": "done", "test": 0.8, "val": 0.7, "epoch_ms": 0.2, "plan": "abc" }),
        ];
        of(&[("one".to_owned(), events.to_vec())], "cora & gcn")
    }

    #[test]
    fn a_page_holds_all_it_shows() {
        let page = page();
        assert!(page.contains("<svg") && page.contains("cora &amp; gcn"));
        assert!(page.contains("Y = A·X&lt;W") && page.contains("&lt;b&gt;"));
        for outside in ["http:", "https:", "<script", "@import", "url("] {
            assert!(!page.contains(outside), "{outside}");
        }
    }

    #[test]
    fn suites_are_seen_against_memory_and_by_size() {
        let op = |op: &str, bytes: f64| {
            json!({ "event": "op", "op": op, "engine": "lacis", "case": op, "k": 8, "ms": 1.0,
                    "graph": "g", "bytes": bytes, "gbps": 5.0, "gflops": 2.0 })
        };
        let start = json!({ "event": "start", "command": "bench ops", "cpu": { "name": "Z80" },
                            "config": { "suite": "quick" } });
        let roof = json!({ "event": "roof", "copy_gbps": 12.0 });
        let ops = [op("matmul", 1e6), op("spmm", 1e8), op("spmm", 1e6)];
        let events: Vec<Value> = [start, roof].into_iter().chain(ops).collect();
        let page = of(&[("one".to_owned(), events.clone())], &title(&events));
        for text in ["copies at 12 GB/s, as measured", "dense products", "1.0 MiB", "64.0 MiB"] {
            assert!(page.contains(text), "{text}");
        }
        assert!(page.contains("<h1>lacis bench ops --suite quick</h1>") && page.contains("Z80"));
    }

    #[test]
    fn every_tag_that_opens_closes() {
        let page = page();
        for tag in ["section", "figure", "table", "div", "svg", "main", "h2", "ul", "details"] {
            let opened = page.matches(&format!("<{tag}>")).count()
                + page.matches(&format!("<{tag} ")).count();
            assert_eq!(opened, page.matches(&format!("</{tag}>")).count(), "{tag}");
        }
    }
}
