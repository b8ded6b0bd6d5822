//! Sections of suites and of trainings beside others.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::chart::{self, Cloud, number};
use super::section;
use super::table::{cards, float, table, value};
use crate::out::bytes;
use crate::ratios::{geometric_mean, rank_correlation};

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
    let beside = [
        (ratios.len().to_string(), "with a peer"),
        (times(mean), "the best peer (geometric mean)"),
        (times(Some(least).filter(|least| least.is_finite())), "at least"),
    ];
    let beside = beside.into_iter().filter(|_| !ratios.is_empty());
    let problems = (ours.len().to_string(), "problems");
    let mut body = cards(&std::iter::once(problems).chain(beside).collect::<Vec<_>>());
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
    let rate = |line: &Value| float(&line["gbps"]);
    let share = |line: &Value| 100.0 * float(&line["roofline"]);
    let axis = |line: &Value| {
        let is_plain = line["factor"] == 1 && float(&line["sparsity"]) == 0.0;
        is_plain.then(|| (0, format!("{} axis {}", text(line, "shape"), value(&line["dim"]))))
    };
    let zeros = |line: &Value| {
        let square = text(line, "shape") == "2d" && line["dim"] == 0 && line["factor"] == 1;
        square.then(|| (0, format!("{} % zeros", number(100.0 * float(&line["sparsity"])))))
    };
    let order = |line: &Value| line["index"].as_str().map(|order| (0, order.to_owned()));
    body.push_str(&heat(("GB/s of Lacis, by the bytes that are moved", 1), &ours, rate, size));
    body.push_str(&heat(
        ("% of the speed of moving the data alone, by bytes", 1),
        &ours,
        share,
        size,
    ));
    body.push_str(&heat(("GB/s of Lacis, by shape and axis", 2), &ours, rate, axis));
    body.push_str(&heat(("GB/s of Lacis, by the share of zeros", 2), &ours, rate, zeros));
    body.push_str(&heat(("GB/s of Lacis, by the order of the index", 2), &ours, rate, order));
    section("Suite", &body)
}

/// The power of four next to the bytes that a problem moves.
fn size(line: &Value) -> Option<(i32, String)> {
    let power = (float(&line["bytes"]).log2() / 2.0).round();
    // Nothing smaller is worth telling apart, and nothing is larger.
    (2.0..24.0).contains(&power).then(|| (power as i32, bytes(1 << (2 * power as usize))))
}

/// Means of a number by operation and something else: what a column is called, and its place.
/// Operations with fewer values than that have nothing to compare.
fn heat(
    (title, least): (&str, usize),
    lines: &[&Value],
    of: impl Fn(&Value) -> f64,
    column: impl Fn(&Value) -> Option<(i32, String)>,
) -> String {
    let mut found: BTreeMap<(String, (i32, String)), Vec<f64>> = BTreeMap::new();
    for line in lines {
        if let Some(column) = column(line).filter(|_| of(line) > 0.0) {
            let key = (text(line, "op").to_owned(), column);
            found.entry(key).or_default().push(of(line));
        }
    }
    let values = |row: &String| found.keys().filter(|(other, _)| other == row).count();
    let rows: BTreeSet<String> = found.keys().map(|(row, _)| row.clone()).collect();
    let rows: Vec<String> = rows.into_iter().filter(|row| values(row) >= least).collect();
    let shown = found.keys().filter(|(row, _)| rows.contains(row));
    let cols: BTreeSet<&(i32, String)> = shown.map(|(_, col)| col).collect();
    if cols.len() < 2 || rows.is_empty() {
        return String::new();
    }
    let mean = |row: &String, col: &(i32, String)| {
        let all = found.get(&(row.clone(), col.clone()));
        all.and_then(|all| geometric_mean(all.iter().copied())).unwrap_or(f64::NAN)
    };
    let grid: Vec<Vec<f64>> =
        rows.iter().map(|row| cols.iter().map(|col| mean(row, col)).collect()).collect();
    let cols: Vec<String> = cols.into_iter().map(|(_, name)| name.clone()).collect();
    chart::heat(title, (&rows, &cols), &grid)
}

/// The last lines of their problems: what was measured again counts as it was then.
fn latest<'a>(lines: &[&'a Value]) -> Vec<&'a Value> {
    let is_last = |(at, line): &(usize, &&Value)| {
        line["id"].is_null() || lines[at + 1..].iter().all(|later| later["id"] != line["id"])
    };
    lines.iter().enumerate().filter(is_last).map(|(_, line)| *line).collect()
}

/// Predicted epochs of Lacis against measured ones, by model.
fn predictions(lines: &[&Value]) -> String {
    let mut by_model: BTreeMap<&str, Vec<([f64; 2], String)>> = BTreeMap::new();
    for line in lines {
        let both = ["predicted_ms", "epoch_ms"].map(|name| float(&line["lacis"][name]));
        if both.iter().all(|ms| *ms > 0.0) {
            let [predicted, measured] = both.map(number);
            let (graph, hidden) = (text(line, "graph"), value(&line["hidden"]));
            let what = format!("{graph} {hidden}: predicted {predicted} ms, measured {measured}");
            by_model.entry(text(line, "model")).or_default().push((both, what));
        }
    }
    let all: Vec<[f64; 2]> = by_model.values().flatten().map(|(at, _)| *at).collect();
    let rank = rank_correlation(&all)
        .map_or(String::new(), |rank| format!("; rank correlation {}", number(rank)));
    let clouds: Vec<Cloud> =
        by_model.into_iter().map(|(name, dots)| Cloud { name: name.to_owned(), dots }).collect();
    let title = format!("Epochs of Lacis as predicted and as measured{rank}");
    chart::pairs(&title, &clouds, ["ms, predicted", "ms, measured"])
}

/// Two files of results: who got slower, and who faster.
pub fn compared(lines: &[&Value]) -> String {
    let (ends, ratios): (Vec<&Value>, Vec<&Value>) =
        lines.iter().partition(|line| line["event"] == "compared");
    let times = |of: &Value| of.as_f64().map_or("–".to_owned(), |t| format!("{}×", number(t)));
    let mut body = String::new();
    if let Some(end) = ends.last() {
        body.push_str(&cards(&[
            (value(&end["pairs"]), "problems that both timed"),
            (times(&end["geometric_mean"]), "B's time over A's (geometric mean)"),
            (times(&end["peers_geometric_mean"]), "the same of peers"),
            (value(&end["regressions"]), "slower than was allowed"),
        ]));
    }
    let mut by_engine: BTreeMap<&str, Vec<([f64; 2], String)>> = BTreeMap::new();
    for line in &ratios {
        let both = ["a_ms", "b_ms"].map(|name| float(&line[name]));
        let what = format!("{}: {}", text(line, "problem"), times(&line["ratio"]));
        by_engine.entry(text(line, "engine")).or_default().push((both, what));
    }
    let clouds: Vec<Cloud> =
        by_engine.into_iter().map(|(name, dots)| Cloud { name: name.to_owned(), dots }).collect();
    let title = "Above the line, B is slower";
    body.push_str(&chart::pairs(title, &clouds, ["ms in A", "ms in B"]));
    let columns =
        [("problem", false), ("engine", false), ("A ms", true), ("B ms", true), ("B over A", true)];
    let row = |line: &&Value| {
        let names = ["problem", "engine", "a_ms", "b_ms", "ratio"];
        (false, names.map(|name| value(&line[name])).to_vec())
    };
    let rows: Vec<(bool, Vec<String>)> = ratios.iter().map(row).collect();
    section("Comparison", &(body + &table(&columns, &rows)))
}

/// Trainings beside others.
pub fn trainings(lines: &[&Value]) -> String {
    let lines = &latest(lines)[..];
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
    body.push_str(&predictions(lines));
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
