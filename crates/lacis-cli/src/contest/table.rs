//! Records of trainings as text: a line each, a summary, the tables of README and docs.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use lacis::{Error, Result};
use serde_json::{Value, json};

use super::extra;
use crate::args_bench::Tabled;
use crate::ledger::read_whole;
use crate::out::{Out, Outcome, bytes};
use crate::ratios::{geometric_mean, rank_correlation};

/// A line for people.
pub fn in_words(line: &Value) -> String {
    let word = |name: &str| line[name].as_str().unwrap_or_default().to_owned();
    let (graph, model, peer) = (word("graph"), word("model"), word("peer"));
    let head = format!("{graph:<16} {model:<6} {:>5} {peer:<14}", line["hidden"]);
    if let Some(reason) = line["reason"].as_str() {
        return format!("{head} left out: {reason}");
    }
    let ms = |side: &str| line[side]["epoch_ms"].as_f64().unwrap_or(f64::NAN);
    let ours = format!("{:>10.2} ms", ms("lacis"));
    match line["times"].as_f64() {
        None => format!("{head} {ours}, {} above graph and features", extra(&line["lacis"])),
        Some(times) => format!(
            "{head} {ours} against {:>10.2} ms: {times:6.2} times; memory {} against {}",
            ms("theirs"),
            extra(&line["lacis"]),
            extra(&line["theirs"]),
        ),
    }
}

/// What a record comes to.
pub fn summary(lines: &[Value]) -> Value {
    let timed: Vec<&Value> = lines.iter().filter(|line| line["lacis"].is_object()).collect();
    let mut peers: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
    for line in &timed {
        if let Some((peer, times)) = line["peer"].as_str().zip(line["times"].as_f64()) {
            peers.entry(peer).or_default().push(times);
        }
    }
    let peers: BTreeMap<&str, Value> = peers
        .into_iter()
        .map(|(peer, times)| {
            let least = times.iter().copied().fold(f64::INFINITY, f64::min);
            let mean = geometric_mean(times.iter().copied());
            (peer, json!({ "cases": times.len(), "times": mean, "least_times": least }))
        })
        .collect();
    let rows = rows(&timed);
    let best: Vec<f64> = rows.iter().filter_map(Row::least_times).collect();
    let alone: Vec<[f64; 2]> = rows.iter().filter_map(Row::predicted).collect();
    json!({
        "measured": timed.len(), "left_out": lines.len() - timed.len(), "peers": peers,
        "configurations": rows.len(), "times_best_peer": geometric_mean(best.iter().copied()),
        "least_times_best_peer": best.iter().copied().reduce(f64::min),
        "predicted_rank_correlation": rank_correlation(&alone),
    })
}

/// The same for people.
pub fn summary_in_words(summary: &Value) -> Vec<String> {
    let mut lines = vec![format!(
        "{} measured, {} left out; {} configurations",
        summary["measured"], summary["left_out"], summary["configurations"]
    )];
    for (peer, of) in summary["peers"].as_object().into_iter().flatten() {
        let number = |name: &str| of[name].as_f64().unwrap_or(f64::NAN);
        let (mean, least) = (number("times"), number("least_times"));
        let cases = &of["cases"];
        lines.push(format!("{mean:.2} times {peer}, at least {least:.2} (of {cases} cases)"));
    }
    if let Some(mean) = summary["times_best_peer"].as_f64() {
        let least = summary["least_times_best_peer"].as_f64().unwrap_or(f64::NAN);
        lines.push(format!("{mean:.2} times the fastest peer of each, at least {least:.2}"));
    }
    if let Some(rank) = summary["predicted_rank_correlation"].as_f64() {
        lines.push(format!("predicted against measured epochs: rank correlation {rank:.3}"));
    }
    lines
}

/// All measurements of one configuration.
struct Row<'a> {
    key: (String, String, u64, String),
    lines: Vec<&'a Value>,
}

/// Configurations in the order in which they came; a later measurement of the same replaces an
/// earlier one.
fn rows<'a>(lines: &[&'a Value]) -> Vec<Row<'a>> {
    let mut rows: Vec<Row<'a>> = Vec::new();
    for &line in lines {
        let word = |name: &str| line[name].as_str().unwrap_or_default().to_owned();
        let hidden = line["hidden"].as_u64().unwrap_or(0);
        let key = (word("graph"), word("model"), hidden, word("mode"));
        match rows.iter_mut().find(|row| row.key == key) {
            Some(row) => {
                row.lines.retain(|other| other["peer"] != line["peer"]);
                row.lines.push(line);
            }
            None => rows.push(Row { key, lines: vec![line] }),
        }
    }
    rows
}

impl Row<'_> {
    fn of(&self, peer: &str) -> Option<&Value> {
        self.lines.iter().find(|line| line["peer"] == peer).copied()
    }

    /// Our number beside all peers: the median.
    fn ours(&self, name: &str) -> Option<f64> {
        let mut all: Vec<f64> =
            self.lines.iter().filter_map(|line| line["lacis"][name].as_f64()).collect();
        all.sort_by(f64::total_cmp);
        all.get(all.len() / 2).copied()
    }

    /// How many times as fast as the fastest peer.
    fn least_times(&self) -> Option<f64> {
        let all = self.lines.iter().filter(|line| line["peer"] != "plugin");
        all.filter_map(|line| line["times"].as_f64()).reduce(f64::min)
    }

    fn predicted(&self) -> Option<[f64; 2]> {
        Some([self.ours("predicted_ms")?, self.ours("epoch_ms")?])
    }
}

/// `lacis bench table`: a record as Markdown, printed or put into a document.
pub fn run(args: &Tabled, out: &Out) -> Outcome {
    let records: Vec<String> = args.records.iter().map(|path| path.display().to_string()).collect();
    out.start("bench table", &json!({ "records": records, "of": args.of, "graph": args.graph }))?;
    let mut lines = Vec::new();
    for path in &args.records {
        let read = read_whole(path)?;
        if read.is_empty() {
            return Err(Error::file(path, "is no record of `lacis bench train`, or empty").into());
        }
        lines.extend(read.into_iter().filter(|line| line["event"] == "training"));
    }
    if lines.is_empty() {
        let problem = "no line of `lacis bench train` is in there";
        return Err(Error::argument("RECORD", problem).into());
    }
    let lines = of_graphs(lines, &args.graph)?;
    let text = markdown(&lines, args.of == "memory");
    out.event("summary", &summary(&lines))?;
    match &args.into {
        None => out.line(text.trim_end()),
        Some(path) => {
            put_into(path, &args.name, &text)?;
            out.line(format_args!("wrote the table '{}' into {}", args.name, path.display()))
        }
    }
}

/// The lines of some graphs, of all where none is named.
fn of_graphs(lines: Vec<Value>, wanted: &[String]) -> Result<Vec<Value>> {
    let known: BTreeSet<&str> = lines.iter().filter_map(|line| line["graph"].as_str()).collect();
    if let Some(missing) = wanted.iter().find(|name| !known.contains(name.as_str())) {
        let all = known.into_iter().collect::<Vec<_>>().join(", ");
        let problem = format!("is not in the record, which has {all}");
        return Err(Error::argument(format!("--graph {missing}"), problem));
    }
    let is_wanted = |line: &Value| wanted.iter().any(|name| line["graph"] == name.as_str());
    Ok(lines.into_iter().filter(|line| wanted.is_empty() || is_wanted(line)).collect())
}

/// Milliseconds of epochs, or mebibytes above graph and features.
fn markdown(lines: &[Value], memory: bool) -> String {
    let all: Vec<&Value> = lines.iter().collect();
    let rows = rows(&all);
    let peers: Vec<&str> = super::definition::PEERS
        .into_iter()
        .filter(|peer| lines.iter().any(|line| line["peer"] == *peer))
        .collect();
    let several = rows.iter().any(|row| row.key.3 != rows[0].key.3);
    let last = if memory { "least peer / Lacis" } else { "fastest peer / Lacis" };
    let mut head = vec!["graph", "model", "hidden"];
    head.extend(several.then_some("mode"));
    head.push("Lacis");
    head.extend(peers.iter().map(|peer| named(peer)));
    head.push(last);
    let rule = head.iter().enumerate().map(|(at, _)| if at < 2 { "---" } else { "---:" });
    let mut text =
        format!("| {} |\n| {} |\n", head.join(" | "), rule.collect::<Vec<_>>().join(" | "));
    for row in &rows {
        let (graph, model, hidden, mode) = &row.key;
        let mut cells = vec![graph.clone(), model.clone(), hidden.to_string()];
        cells.extend(several.then(|| mode.clone()));
        let field = if memory { "extra_bytes" } else { "epoch_ms" };
        let shown = |number: Option<f64>| number.map(|number| shown(number, memory));
        cells.push(shown(row.ours(field)).unwrap_or("–".to_owned()));
        for peer in &peers {
            let line = row.of(peer);
            let number = line.and_then(|line| line["theirs"][field].as_f64());
            cells.push(shown(number).unwrap_or_else(|| reason(line).to_owned()));
        }
        let times = if memory { row.least_memory() } else { row.least_times() };
        cells.push(times.map_or("–".to_owned(), |times| format!("{times:.1}×")));
        text.push_str(&format!("| {} |\n", cells.join(" | ")));
    }
    text
}

impl Row<'_> {
    /// How much more the most frugal peer takes.
    fn least_memory(&self) -> Option<f64> {
        let all = self.lines.iter().filter(|line| line["peer"] != "plugin");
        let least = all.filter_map(|line| line["theirs"]["extra_bytes"].as_f64());
        Some(least.reduce(f64::min)? / self.ours("extra_bytes")?.max(1.0))
    }
}

fn named(peer: &str) -> &str {
    match peer {
        "edge_index" => "`edge_index`",
        "csr" => "CSR",
        "sparse_tensor" => "`SparseTensor`",
        "plugin" => "`lacis.patch()`",
        other => other,
    }
}

fn shown(number: f64, memory: bool) -> String {
    match (memory, number) {
        (true, size) => bytes(size as usize),
        (_, ms) if ms < 10.0 => format!("{ms:.2}"),
        (_, ms) if ms < 100.0 => format!("{ms:.1}"),
        (_, ms) => format!("{ms:.0}"),
    }
}

/// Why a cell has no number, in a word or two.
fn reason(line: Option<&Value>) -> &'static str {
    let reason = line.and_then(|line| line["reason"].as_str()).unwrap_or_default().to_lowercase();
    match reason.as_str() {
        "" => "",
        reason if reason.contains("memory") || reason.contains("alloc") => "out of memory",
        reason if reason.contains("other losses") => "other losses",
        _ => "fails",
    }
}

/// Replaces what stands between the marks of a name.
fn put_into(path: &Path, name: &str, text: &str) -> Result<()> {
    let document = std::fs::read_to_string(path).map_err(|e| Error::io("read", path, e))?;
    let replaced = replaced(&document, name, text).ok_or_else(|| {
        let problem = format!("has no lines `<!-- table {name} -->` and `<!-- end {name} -->`");
        Error::file(path, problem)
    })?;
    std::fs::write(path, replaced).map_err(|error| Error::io("write", path, error))
}

fn replaced(document: &str, name: &str, text: &str) -> Option<String> {
    let (first, last) = (format!("<!-- table {name} -->\n"), format!("<!-- end {name} -->"));
    let begin = document.find(&first)? + first.len();
    let end = begin + document[begin..].find(&last)?;
    Some(format!("{}{text}{}", &document[..begin], &document[end..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(peer: &str, ours: f64, theirs: Option<f64>) -> Value {
        let mut line = json!({ "event": "training", "graph": "g", "model": "gcn", "hidden": 32,
                               "mode": "f32", "peer": peer,
                               "lacis": { "epoch_ms": ours, "extra_bytes": 1 << 20 } });
        match theirs {
            Some(ms) => {
                line["theirs"] = json!({ "epoch_ms": ms, "extra_bytes": 3 << 20 });
                line["times"] = json!(ms / ours);
            }
            None => {
                line["lacis"] = Value::Null;
                line["reason"] = json!("csr: RuntimeError: you tried to allocate 9 bytes");
            }
        }
        line
    }

    #[test]
    fn tables_show_the_fastest_peer_and_who_failed() {
        let lines = [line("edge_index", 2.0, Some(30.0)), line("csr", 2.0, Some(8.0))];
        let text = markdown(&lines, false);
        assert_eq!(text.lines().count(), 3);
        assert!(text.ends_with("| g | gcn | 32 | 2.00 | 30.0 | 8.00 | 4.0× |\n"), "{text}");
        assert!(markdown(&lines, true).contains("| 1.0 MiB | 3.0 MiB | 3.0 MiB | 3.0× |"));
        let lines = [line("edge_index", 2.0, Some(30.0)), line("csr", 2.0, None)];
        assert!(markdown(&lines, false).contains("| out of memory | 15.0× |"));
        let found = summary(&lines);
        assert_eq!((&found["measured"], &found["left_out"]), (&json!(1), &json!(1)));
    }

    #[test]
    fn tables_of_some_graphs() {
        let mut other = line("csr", 2.0, Some(8.0));
        other["graph"] = json!("h");
        let both = vec![line("csr", 2.0, Some(8.0)), other];
        let kept = |wanted: &[&str]| {
            let wanted: Vec<String> = wanted.iter().map(|&name| name.to_owned()).collect();
            of_graphs(both.clone(), &wanted)
        };
        assert_eq!(kept(&[]).unwrap(), both);
        assert_eq!(kept(&["h"]).unwrap(), both[1..]);
        let problem = kept(&["h", "i"]).unwrap_err().to_string();
        assert!(problem.contains("--graph i") && problem.contains("g, h"), "{problem}");
    }

    #[test]
    fn only_what_stands_between_marks_is_replaced() {
        let document = "a\n<!-- table t -->\nold\n<!-- end t -->\nb\n";
        let new = replaced(document, "t", "new\n").unwrap();
        assert_eq!(new, "a\n<!-- table t -->\nnew\n<!-- end t -->\nb\n");
        assert!(replaced(document, "other", "new\n").is_none());
    }
}
