//! Sections of approximation: products from some of their pairs.

use serde_json::Value;

use super::chart::{self, Axis, Series, number};
use super::section;
use super::table::{cards, float, table, value};

fn times(of: &Value) -> String {
    of.as_f64().map_or("–".to_owned(), |times| format!("{}×", number(times)))
}

/// What sampling its backward products did to a training; nothing where none were.
pub fn of_training(lines: &[&Value]) -> String {
    let done = lines[lines.len() - 1];
    let report = &done["approx"];
    let mut layers: Vec<&Value> = report["layers"].as_array().into_iter().flatten().collect();
    layers.sort_by_key(|layer| layer["layer"].as_u64());
    if !report.is_object() {
        return String::new();
    }
    let on = if report["on"] == true { "yes" } else { "no, it would not have paid" };
    let mut body = cards(&[
        (value(&report["policy"]), "policy"),
        (on.to_owned(), "sampled"),
        (value(&report["budget"]), "share of the work"),
        (times(&report["predicted_speedup"]), "faster epochs, predicted"),
        (times(&report["speedup"]), "faster epochs, measured"),
        (times(&report["budget_ceiling"]), "at most with this budget"),
        (times(&report["ceiling"]), "at most with any (Amdahl)"),
        (value(&report["exact_from"]), "exact from epoch"),
    ]);
    let epoch = Axis { label: "epoch", log: false };
    for (name, title) in [("kept", "Share of entries kept"), ("error", "Relative error")] {
        let of_layer = |layer: &&Value| {
            let refreshes = layer["refreshes"].as_array().into_iter().flatten();
            let points = refreshes.map(|at| [float(&at["epoch"]), float(&at[name])]);
            let points: Vec<[f64; 2]> = points.filter(|point| point[1].is_finite()).collect();
            Series { name: format!("layer {}", float(&layer["layer"]) + 1.0), points }
        };
        let series: Vec<Series> = layers.iter().map(of_layer).collect();
        if series.iter().any(|one| !one.points.is_empty()) {
            let share = Axis { label: "share", log: false };
            body.push_str(&chart::lines(title, &series, [epoch, share]));
        }
    }
    let columns = [
        ("layer", true),
        ("columns", true),
        ("entries", true),
        ("kept", true),
        ("error", true),
        ("exact ms", true),
        ("sampled ms", true),
        ("fallbacks", true),
    ];
    let row = |layer: &&Value| {
        let names = ["width", "entries", "kept", "error", "exact_ms", "sampled_ms", "fallbacks"];
        let first = (float(&layer["layer"]) + 1.0).to_string();
        let cells = std::iter::once(first).chain(names.map(|name| value(&layer[name])));
        (false, cells.collect())
    };
    let rows: Vec<(bool, Vec<String>)> = layers.iter().map(row).collect();
    section("Approximation", &(body + &table(&columns, &rows)))
}

/// One product with all pairs against some, by policy and budget.
pub fn of_products(lines: &[&Value]) -> String {
    let mut policies: Vec<String> = Vec::new();
    let mut budgets: Vec<String> = Vec::new();
    for line in lines {
        for (names, name) in [(&mut policies, "policy"), (&mut budgets, "budget")] {
            let one = value(&line[name]);
            if !names.contains(&one) {
                names.push(one);
            }
        }
    }
    let of = |policy: &String, budget: &String, name: &str| {
        let mut own = lines
            .iter()
            .filter(|line| value(&line["policy"]) == *policy && value(&line["budget"]) == *budget);
        own.next_back().map_or(f64::NAN, |line| float(&line[name]))
    };
    let map = |title: &str, name: &str| {
        let row = |policy| budgets.iter().map(|budget| of(policy, budget, name)).collect();
        let grid: Vec<Vec<f64>> = policies.iter().map(row).collect();
        chart::heat(title, (&policies, &budgets), &grid)
    };
    let columns = [
        ("policy", false),
        ("budget", true),
        ("exact ms", true),
        ("sampled ms", true),
        ("to choose ms", true),
        ("kept", true),
        ("error", true),
        ("times faster", true),
    ];
    let names =
        ["policy", "budget", "exact_ms", "sampled_ms", "choosing_ms", "kept", "error", "times"];
    let row = |line: &&Value| (false, names.map(|name| value(&line[name])).to_vec());
    let rows: Vec<(bool, Vec<String>)> = lines.iter().map(row).collect();
    let body = map("Times faster, by policy and share of the work", "times")
        + &map("Relative error, by policy and share of the work", "error")
        + &table(&columns, &rows);
    section("One product from some of its pairs", &body)
}
