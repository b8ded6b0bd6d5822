//! Sections of suites and of trainings beside others.

use std::collections::BTreeMap;

use serde_json::Value;

use super::chart::{self, number};
use super::section;
use super::table::{cards, float, table, value};
use crate::out::bytes;
use crate::ratios::geometric_mean;

fn text<'a>(line: &'a Value, name: &str) -> &'a str {
    line[name].as_str().unwrap_or_default()
}

/// What takes the time in whole models: a row for each, a column for each kind of step.
pub fn models(lines: &[&Value]) -> String {
    let share = |line: &Value, kind: &str| 100.0 * line["kinds"][kind].as_f64().unwrap_or(0.0);
    let mut most: BTreeMap<&str, f64> = BTreeMap::new();
    for kind in
        lines.iter().flat_map(|line| line["kinds"].as_object()).flat_map(|kinds| kinds.keys())
    {
        most.insert(kind, lines.iter().map(|line| share(line, kind)).fold(0.0, f64::max));
    }
    let mut kinds: Vec<(&str, f64)> = most.into_iter().filter(|(_, most)| *most >= 1.0).collect();
    kinds.sort_by(|a, b| b.1.total_cmp(&a.1));
    let row = |line: &&Value| {
        let shares = kinds.iter().map(|(kind, _)| share(line, kind));
        shares.map(|share| if share >= 0.5 { share.round() } else { f64::NAN }).collect()
    };
    let name = |line: &&Value| format!("{}, {} ms", text(line, "model"), value(&line["epoch_ms"]));
    let rows: Vec<String> = lines.iter().map(name).collect();
    let columns: Vec<String> = kinds.iter().map(|(kind, _)| (*kind).to_owned()).collect();
    let grid: Vec<Vec<f64>> = lines.iter().map(row).collect();
    let title = "Share of an epoch in %, by kind of step";
    section("Where whole models spend their time", &chart::heat(title, (&rows, &columns), &grid))
}

/// The best peer's time over ours, of every case that a peer was timed on.
fn against_best<'a>(lines: &[&'a Value]) -> Vec<(&'a Value, f64)> {
    let mut best: BTreeMap<&str, f64> = BTreeMap::new();
    for line in lines.iter().filter(|line| text(line, "engine") != "lacis") {
        let least = best.entry(text(line, "case")).or_insert(f64::INFINITY);
        *least = least.min(float(&line["ms"]));
    }
    let ours = lines.iter().filter(|line| text(line, "engine") == "lacis");
    ours.filter_map(|line| {
        best.get(text(line, "case")).map(|best| (*line, best / float(&line["ms"])))
    })
    .collect()
}

/// Rates and ratios of a suite, by operation.
pub fn suite(lines: &[&Value]) -> String {
    let ours: Vec<&Value> =
        lines.iter().filter(|line| text(line, "engine") == "lacis").copied().collect();
    let ratios = against_best(lines);
    let mean = geometric_mean(ratios.iter().map(|(_, ratio)| *ratio));
    let least = ratios.iter().map(|(_, ratio)| *ratio).fold(f64::NAN, f64::min);
    let times = |times: Option<f64>| times.map_or("–".to_owned(), |t| format!("{}×", number(t)));
    let mut body = cards(&[
        (ours.len().to_string(), "problems"),
        (ratios.len().to_string(), "with a peer"),
        (times(mean), "the best peer (geometric mean)"),
        (times(Some(least).filter(|least| least.is_finite())), "at least"),
    ]);
    let mut by_op: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
    for (line, ratio) in &ratios {
        by_op.entry(text(line, "op")).or_default().push(*ratio);
    }
    let bars: Vec<(String, Vec<f64>)> = by_op
        .into_iter()
        .filter_map(|(op, all)| Some((op.to_owned(), vec![geometric_mean(all.into_iter())?])))
        .collect();
    if !bars.is_empty() {
        body.push_str(&chart::bars("The best peer's time over Lacis's, by operation", &bars, "×"));
    }
    let axis = |line: &Value| {
        let is_plain = line["factor"] == 1 && float(&line["sparsity"]) == 0.0;
        is_plain.then(|| format!("{} axis {}", text(line, "shape"), value(&line["dim"])))
    };
    body.push_str(&heat("GB/s of Lacis, by shape and axis", &ours, axis));
    let zeros = |line: &Value| {
        let square = text(line, "shape") == "2d" && line["dim"] == 0 && line["factor"] == 1;
        square.then(|| format!("{} % zeros", number(100.0 * float(&line["sparsity"]))))
    };
    body.push_str(&heat("GB/s of Lacis, by the share of zeros", &ours, zeros));
    body.push_str(&heat("GB/s of Lacis, by the order of the index", &ours, |line| {
        line["index"].as_str().map(str::to_owned)
    }));
    section("Suite", &body)
}

/// Mean rates by operation and something else.
fn heat(title: &str, lines: &[&Value], column: impl Fn(&Value) -> Option<String>) -> String {
    let mut rates: BTreeMap<(String, String), Vec<f64>> = BTreeMap::new();
    for line in lines {
        if let Some(column) = column(line) {
            let key = (text(line, "op").to_owned(), column);
            rates.entry(key).or_default().push(float(&line["gbps"]));
        }
    }
    let distinct = |of: fn(&(String, String)) -> &String| {
        let mut all: Vec<String> = rates.keys().map(|key| of(key).clone()).collect();
        all.sort();
        all.dedup();
        all
    };
    let (rows, cols) = (distinct(|key| &key.0), distinct(|key| &key.1));
    if cols.len() < 2 {
        return String::new();
    }
    let rate = |row: &String, col: &String| {
        let all = rates.get(&(row.clone(), col.clone()));
        all.and_then(|all| geometric_mean(all.iter().copied())).unwrap_or(f64::NAN)
    };
    let grid: Vec<Vec<f64>> =
        rows.iter().map(|row| cols.iter().map(|col| rate(row, col)).collect()).collect();
    chart::heat(title, (&rows, &cols), &grid)
}

/// Trainings beside others.
pub fn trainings(lines: &[&Value]) -> String {
    let timed = lines.iter().filter(|line| line["lacis"].is_object());
    let named = |line: &Value| {
        format!("{} {} {}", text(line, "graph"), text(line, "model"), value(&line["hidden"]))
    };
    let bars: Vec<(String, Vec<f64>)> = timed
        .clone()
        .filter(|line| line["times"].is_number())
        .map(|line| {
            let name = format!("{}, {}", named(line), text(line, "peer"));
            (name, vec![float(&line["times"])])
        })
        .collect();
    let all = bars.iter().map(|(_, times)| times[0]);
    let mean = geometric_mean(all.clone());
    let times = |times: f64| format!("{}×", number(times));
    let mut body = cards(&[
        (timed.count().to_string(), "measured"),
        (mean.map_or("–".to_owned(), times), "a peer's epoch over Lacis's (geometric mean)"),
        (all.reduce(f64::min).map_or("–".to_owned(), times), "at least"),
    ]);
    if !bars.is_empty() {
        body.push_str(&chart::bars("A peer's epoch over Lacis's", &bars, "×"));
    }
    let columns = [
        ("training", false),
        ("beside", false),
        ("Lacis ms", true),
        ("predicted", true),
        ("peer ms", true),
        ("Lacis memory", true),
        ("peer memory", true),
        ("losses apart", true),
        ("left out", false),
    ];
    let size = |side: &Value| {
        side["extra_bytes"].as_u64().map_or("–".to_owned(), |extra| bytes(extra as usize))
    };
    let rows: Vec<(bool, Vec<String>)> = lines
        .iter()
        .map(|line| {
            let cells = vec![
                chart::escaped(&named(line)),
                value(&line["peer"]),
                value(&line["lacis"]["epoch_ms"]),
                value(&line["lacis"]["predicted_ms"]),
                value(&line["theirs"]["epoch_ms"]),
                size(&line["lacis"]),
                size(&line["theirs"]),
                value(&line["loss_difference"]),
                value(&line["reason"]),
            ];
            (false, cells)
        })
        .collect();
    section("Trainings", &(body + &table(&columns, &rows)))
}
