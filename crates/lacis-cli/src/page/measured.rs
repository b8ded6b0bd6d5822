//! Sections of measurements: operations, memory, tuning.

use std::collections::BTreeMap;

use serde_json::Value;

use super::chart::{self, Axis, Cloud, Series};
use super::table::{float, table, value};
use super::{contests, section};

fn text<'a>(line: &'a Value, name: &str) -> &'a str {
    line[name].as_str().unwrap_or_default()
}

/// A problem, in words.
fn problem(line: &Value) -> String {
    let graph = super::short(text(line, "graph"));
    let words = [text(line, "op"), text(line, "reduce"), graph, text(line, "dtype")];
    words.into_iter().filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ")
}

/// Different texts of lines, in their order.
fn kinds(lines: &[&Value], of: impl Fn(&Value) -> String) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    for line in lines {
        let kind = of(line);
        if !found.contains(&kind) {
            found.push(kind);
        }
    }
    found
}

/// Times of operations: a heat map per engine, ratios, a roofline, and all numbers.
pub fn operations(lines: &[&Value]) -> String {
    let (memory, lines): (Vec<&Value>, Vec<&Value>) =
        lines.iter().partition(|line| line["event"] == "roof");
    let (memory, lines) = (memory.last().copied(), &lines[..]);
    if lines.iter().any(|line| line["case"].is_string()) {
        return contests::suite(lines)
            + &section("All problems", &(roof(lines, memory) + &all(lines)));
    }
    let engines = kinds(lines, |line| text(line, "engine").to_owned());
    let problems = kinds(lines, problem);
    let widths = kinds(lines, |line| value(&line["k"]));
    let mut body = String::new();
    for engine in &engines {
        let grid: Vec<Vec<f64>> = problems
            .iter()
            .map(|row| widths.iter().map(|col| best(lines, engine, (row, col))).collect())
            .collect();
        body.push_str(&chart::heat(&format!("{engine}, ms"), (&problems, &widths), &grid));
    }
    body.push_str(&ratios(lines, &engines, (&problems, &widths)));
    body.push_str(&roof(lines, memory));
    body.push_str(&all(lines));
    section("Operations", &body)
}

/// The least time of an engine for a problem.
fn best(lines: &[&Value], engine: &str, (row, col): (&str, &str)) -> f64 {
    let own = lines.iter().filter(|line| {
        text(line, "engine") == engine && problem(line) == row && value(&line["k"]) == col
    });
    own.map(|line| float(&line["ms"])).fold(f64::NAN, f64::min)
}

/// How many times faster Lacis is than each peer.
fn ratios(
    lines: &[&Value],
    engines: &[String],
    (problems, widths): (&[String], &[String]),
) -> String {
    let peers = engines.iter().filter(|engine| *engine != "lacis");
    let maps = peers.map(|peer| {
        let grid: Vec<Vec<f64>> = problems
            .iter()
            .map(|row| {
                let ratio =
                    |col: &String| best(lines, peer, (row, col)) / best(lines, "lacis", (row, col));
                widths.iter().map(ratio).collect()
            })
            .collect();
        chart::heat(&format!("{peer}'s time over Lacis's"), (problems, widths), &grid)
    });
    maps.collect()
}

const DENSE: &str = "dense products";

/// What operations have in common.
fn kind_of(op: &str) -> &'static str {
    match op {
        "matmul" | "addmm" => DENSE,
        "spmm" | "spgemm" | "sddmm" | "attention" => "sparse products",
        "index_add" => "scatter",
        _ if op.starts_with("scatter") => "scatter",
        _ if op.starts_with("segment") || op == "select_reduce" => "segments",
        _ => "others",
    }
}

/// Operations per byte against operations per second, below what memory gives.
fn roof(lines: &[&Value], memory: Option<&Value>) -> String {
    let mut by_kind: BTreeMap<&str, Vec<([f64; 2], String)>> = BTreeMap::new();
    let own = lines.iter().filter(|line| text(line, "engine") == "lacis");
    for line in own {
        let (gflops, gbps) = (float(&line["gflops"]), float(&line["gbps"]));
        if gflops > 0.0 && gbps > 0.0 {
            let (name, k) = (problem(line), value(&line["k"]));
            let (rate, speed) = (chart::number(gbps), chart::number(gflops));
            let what = format!("{name}, k = {k}: {rate} GB/s, {speed} GFLOP/s");
            let dots = by_kind.entry(kind_of(text(line, "op"))).or_default();
            dots.push(([gflops / gbps, gflops], what));
        }
    }
    if by_kind.is_empty() {
        return String::new();
    }
    let all = || by_kind.values().flatten().map(|(at, _)| *at);
    let best = all().map(|[intensity, gflops]| gflops / intensity).fold(0.0, f64::max);
    let measured = memory.map(|line| float(&line["copy_gbps"])).filter(|gbps| *gbps > 0.0);
    let gbps = measured.unwrap_or(best);
    // How fast a processor computes is seen where it does little else.
    let dense = by_kind.get(DENSE).into_iter().flatten().map(|(at, _)| at[1]);
    let gflops = dense.fold(f64::NAN, f64::max);
    let title = match measured {
        Some(gbps) => format!(
            "Roofline: copies at {} GB/s, as measured, up to the best dense product; what is \
             above was in a cache",
            chart::number(gbps)
        ),
        None => "Roofline: the roof is the best that was measured here".to_owned(),
    };
    let clouds: Vec<Cloud> =
        by_kind.into_iter().map(|(name, dots)| Cloud { name: name.to_owned(), dots }).collect();
    chart::roofline(&title, &clouds, [gbps, gflops])
}

fn all(lines: &[&Value]) -> String {
    let columns = [
        ("problem", false),
        ("k", true),
        ("engine", false),
        ("kernel", false),
        ("ms", true),
        ("± ms", true),
        ("GB/s", true),
        ("GFLOP/s", true),
        ("of the roof", true),
    ];
    let rows: Vec<(bool, Vec<String>)> = lines
        .iter()
        .map(|line| {
            let cells = vec![
                chart::escaped(&problem(line)),
                value(&line["k"]),
                value(&line["engine"]),
                value(&line["kernel"]),
                value(&line["ms"]),
                value(&line["iqr_ms"]),
                value(&line["gbps"]),
                value(&line["gflops"]),
                value(&line["roofline"]),
            ];
            (false, cells)
        })
        .collect();
    format!("<h3>All numbers</h3>{}", table(&columns, &rows))
}

/// Bandwidth of rows in random order, by their length and by what they are taken from.
pub fn memory(lines: &[&Value]) -> String {
    let gathers: Vec<&Value> = lines[0]["gather"].as_array().into_iter().flatten().collect();
    let sets = kinds(&gathers, |one| value(&one["set_bytes"]));
    let series: Vec<Series> = sets
        .iter()
        .map(|set| {
            let own = gathers.iter().filter(|one| value(&one["set_bytes"]) == *set);
            let points = own.map(|one| [float(&one["row_bytes"]), float(&one["gbps"])]);
            Series { name: format!("out of {set} bytes"), points: points.collect() }
        })
        .collect();
    let axes = [Axis { label: "bytes of a row", log: true }, Axis { label: "GB/s", log: false }];
    section("Memory", &chart::lines("Rows gathered in random order", &series, axes))
}

/// What would be chosen, and why.
pub fn choices(lines: &[&Value]) -> String {
    let names: Vec<&'static str> = vec!["op", "k", "place", "kernel", "why", "ms"];
    let used: Vec<&'static str> =
        names.into_iter().filter(|name| lines.iter().any(|line| !line[*name].is_null())).collect();
    let columns: Vec<(&'static str, bool)> =
        used.iter().map(|name| (*name, ["k", "ms"].contains(name))).collect();
    let rows: Vec<(bool, Vec<String>)> = lines
        .iter()
        .map(|line| (false, used.iter().map(|name| value(&line[*name])).collect()))
        .collect();
    section("Choices", &table(&columns, &rows))
}

/// Tuned against plain, by width.
pub fn tuning(lines: &[&Value]) -> String {
    let points = lines.iter().map(|line| [float(&line["k"]), float(&line["speedup"])]);
    let series = [Series { name: "tuned over plain".to_owned(), points: points.collect() }];
    let axes = [Axis { label: "columns", log: true }, Axis { label: "times faster", log: false }];
    section("Tuning", &chart::lines("The tuned kernel against the plain loop", &series, axes))
}
