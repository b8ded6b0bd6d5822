//! Sections of training, plans and analyses.

use serde_json::Value;

use super::chart::{self, Axis, Bar, Series, escaped, number};
use super::diagram::diagram;
use super::section;
use super::table::{cards, float, formula, table, value, with_unit};
use crate::out::bytes;

fn size(of: &Value) -> String {
    of.as_f64().map_or("–".to_owned(), |number| bytes(number as usize))
}

fn texts(of: &Value) -> String {
    let Some(list) = of.as_array() else { return value(of) };
    let words: Vec<&str> = list.iter().filter_map(Value::as_str).collect();
    if words.is_empty() { "none".to_owned() } else { words.join(", ") }
}

/// What a run came to.
pub fn summary(lines: &[&Value]) -> String {
    let done = lines[lines.len() - 1];
    let shown = [
        (value(&done["test"]), "test"),
        (value(&done["val"]), "validation"),
        (value(&done["best_epoch"]), "best epoch"),
        (with_unit(&done["epoch_ms"], "ms"), "an epoch (median)"),
        (with_unit(&done["total_s"], "s"), "in all"),
        (size(&done["peak_rss_bytes"]), "peak memory"),
        (value(&done["plan"]), "plan"),
        (texts(&done["savings"]), "exact savings"),
    ];
    let spent: Vec<(String, Vec<f64>)> = ["load_s", "plan_s", "train_s", "eval_s"]
        .iter()
        .filter(|name| done[**name].is_number())
        .map(|name| (name.trim_end_matches("_s").to_owned(), vec![float(&done[*name])]))
        .collect();
    let mut body = cards(&shown);
    if !spent.is_empty() {
        body.push_str(&chart::bars("Where the time went", &spent, "s"));
    }
    if let Some(kinds) = done["kinds"].as_object() {
        let mut kinds: Vec<(String, Vec<f64>)> =
            kinds.iter().map(|(kind, share)| (kind.clone(), vec![100.0 * float(share)])).collect();
        kinds.sort_by(|a, b| b.1[0].total_cmp(&a.1[0]));
        kinds.retain(|(_, share)| share[0] >= 0.05);
        body.push_str(&chart::bars("An epoch by kind of step", &kinds, "%"));
    }
    section("Result", &body)
}

/// Many runs.
pub fn runs(lines: &[&Value]) -> String {
    let columns = [("run", true), ("seed", true), ("test", true), ("validation", true)];
    let rows: Vec<(bool, Vec<String>)> = lines
        .iter()
        .enumerate()
        .map(|(at, line)| {
            let cells = [value(&line["seed"]), value(&line["test"]), value(&line["val"])];
            (false, [(at + 1).to_string()].into_iter().chain(cells).collect())
        })
        .collect();
    section("Runs", &table(&columns, &rows))
}

/// Loss and scores, epoch by epoch.
pub fn curves(lines: &[&Value]) -> String {
    let of = |name: &str| -> Series {
        let points = lines
            .iter()
            .map(|line| [float(&line["epoch"]), float(&line[name])])
            .filter(|point| point[1].is_finite());
        Series { name: name.to_owned(), points: points.collect() }
    };
    let epoch = Axis { label: "epoch", log: false };
    let scores: Vec<Series> =
        [of("train"), of("val")].into_iter().filter(|one| !one.points.is_empty()).collect();
    let mut body = chart::lines("Loss", &[of("loss")], [epoch, Axis { label: "loss", log: false }]);
    if !scores.is_empty() {
        body.push_str(&chart::lines(
            "Scores",
            &scores,
            [epoch, Axis { label: "score", log: false }],
        ));
    }
    section("Learning", &body)
}

/// The plan of the first training, its steps as predicted and, once it ended, as measured.
pub fn plan(lines: &[&Value]) -> String {
    let is_plan = |line: &&&Value| line["event"] == "plan";
    let Some(line) = lines.iter().find(is_plan) else { return String::new() };
    let ended = lines.iter().find(|other| other["plan"] == line["id"]);
    let measured = |at: usize| ended.map_or(&Value::Null, |ended| &ended["step_ms"][at]);
    let steps: Vec<Value> = line["steps"]
        .as_array()
        .into_iter()
        .flatten()
        .enumerate()
        .filter_map(|(at, step)| {
            let mut step = step.as_object()?.clone();
            step.insert("measured_ms".to_owned(), measured(at).clone());
            Some(Value::Object(step))
        })
        .collect();
    let shown = [
        (value(&line["id"]), "plan"),
        (with_unit(&line["predicted_epoch_ms"], "ms"), "an epoch, predicted"),
        (size(&line["peak_bytes"]), "memory, predicted"),
        (with_unit(&line["plan_ms"], "ms"), "to plan"),
    ];
    let mut body = format!("{}<pre>{}</pre>", cards(&shown), formula(&line["formula"]));
    if !steps.is_empty() {
        body.push_str(&diagram(&steps.iter().collect::<Vec<_>>()));
    }
    section("Plan", &body)
}

/// Formulas considered, and the steps of the chosen plan.
pub fn explained(lines: &[&Value]) -> String {
    let line = lines[0];
    let shown = [
        (value(&line["plan"]), "plan"),
        (with_unit(&line["predicted_epoch_ms"], "ms"), "an epoch, predicted"),
        (with_unit(&line["measured_epoch_ms"], "ms"), "an epoch, measured"),
        (size(&line["peak_bytes"]), "memory, predicted"),
        (with_unit(&line["plan_ms"], "ms"), "to plan"),
        (texts(&line["savings"]), "exact savings"),
    ];
    let mut body = format!("{}<pre>{}</pre>", cards(&shown), formula(&line["formula"]));
    for layer in line["layers"].as_array().into_iter().flatten() {
        body.push_str(&candidates(layer));
    }
    let steps: Vec<&Value> = line["steps"].as_array().into_iter().flatten().collect();
    section("Why this plan", &body) + &section("The plan, step by step", &diagram(&steps))
}

/// A layer's formulas: those kept by their time, those pruned with the reason.
fn candidates(layer: &Value) -> String {
    let heading = format!(
        "Layer {}: {} compositions, {} kept",
        layer["layer"].as_u64().unwrap_or(0) + 1,
        value(&layer["enumerated"]),
        value(&layer["kept"])
    );
    let columns =
        [("formula", false), ("predicted ms", true), ("measured ms", true), ("pruned by", false)];
    let rows: Vec<(bool, Vec<String>)> = layer["candidates"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|one| {
            let pruned = one["pruned_by"].as_str().map_or(String::new(), escaped);
            let cells = vec![
                formula(&one["formula"]),
                value(&one["predicted_ms"]),
                value(&one["measured_ms"]),
                pruned,
            ];
            (one["formula"] == layer["chosen"] && one["pruned_by"].is_null(), cells)
        })
        .collect();
    format!("<h3>{}</h3>{}", escaped(&heading), table(&columns, &rows))
}

/// Work, depth and what workers would send each other.
pub fn analysed(lines: &[&Value]) -> String {
    let line = lines[0];
    let total = &line["total"];
    let shown = [
        (format!("{}, {}", value(&line["class"]), value(&line["family"])), "class"),
        (value(&total["work"]), "operations an epoch"),
        (value(&total["depth"]), "depth"),
        (value(&total["parallelism"]), "average parallelism"),
        (size(&total["bytes"]), "moved, without caches"),
        (with_unit(&line["predicted_epoch_ms"], "ms"), "on one worker"),
    ];
    let mut body = format!(
        "<p class=note>{}</p>{}{}",
        escaped(line["advice"].as_str().unwrap_or_default()),
        cards(&shown),
        layers(line)
    );
    body.push_str(&schemes(line));
    body.push_str(&kinds(line));
    body.push_str(&scaling(line));
    body.push_str(&schedule(&line["schedule"]));
    section("Parallelism", &body)
}

fn layers(line: &Value) -> String {
    let columns = [
        ("layer", false),
        ("pass", false),
        ("work", true),
        ("depth", true),
        ("parallelism", true),
        ("bytes", true),
        ("ops/byte", true),
        ("order of work", false),
        ("of depth", false),
    ];
    let all: Vec<&Value> = line["layers"].as_array().into_iter().flatten().collect();
    let mut rows = Vec::new();
    for layer in all {
        for (pass, order) in
            [("once", ""), ("forward", ""), ("backward", "backward_"), ("update", "")]
        {
            let part = &layer["passes"][pass];
            if float(&part["work"]).max(float(&part["bytes"])) <= 0.0 || !part.is_object() {
                continue;
            }
            let of = |what: &str| match pass {
                "forward" | "backward" => formula(&layer[format!("{order}{what}_order")]),
                _ => String::new(),
            };
            let cells = vec![
                value(&layer["layer"]),
                pass.to_owned(),
                value(&part["work"]),
                value(&part["depth"]),
                value(&part["parallelism"]),
                size(&part["bytes"]),
                value(&part["intensity"]),
                of("work"),
                of("depth"),
            ];
            rows.push((false, cells));
        }
    }
    let symbols = line["symbols"].as_object().into_iter().flatten();
    let named = symbols.map(|(symbol, means)| format!("{} {}", escaped(symbol), value(means)));
    let symbols: Vec<String> = named.collect();
    let legend = match symbols.is_empty() {
        true => String::new(),
        false => format!("<p class=note>{}</p>", symbols.join(", ")),
    };
    format!("<h3>Layers</h3>{}{legend}", table(&columns, &rows))
}

/// Full batch and each way of sampling.
fn schemes(line: &Value) -> String {
    let columns = [
        ("an epoch of", false),
        ("work", true),
        ("memory", true),
        ("order of work", false),
        ("of depth", false),
        ("of memory", false),
    ];
    let row = |scheme: &Value| {
        let order = |what: &str| formula(&scheme[format!("{what}_order")]);
        let numbers = [value(&scheme["work"]), size(&scheme["memory_bytes"])];
        let orders = ["work", "depth", "memory"].map(order);
        let cells = [value(&scheme["name"])].into_iter().chain(numbers).chain(orders);
        (false, cells.collect())
    };
    let rows: Vec<(bool, Vec<String>)> =
        line["schemes"].as_array().into_iter().flatten().map(row).collect();
    match rows.is_empty() {
        true => String::new(),
        false => format!("<h3>Ways to train</h3>{}", table(&columns, &rows)),
    }
}

fn kinds(line: &Value) -> String {
    let all: Vec<&Value> = line["parallelism"].as_array().into_iter().flatten().collect();
    let fastest = all.iter().map(|kind| float(&kind["predicted_ms"])).fold(f64::INFINITY, f64::min);
    let columns = [
        ("kind", false),
        ("workers", true),
        ("sent", true),
        ("messages", true),
        ("syncs", true),
        ("balance", true),
        ("memory", true),
        ("ms an epoch", true),
        ("", false),
    ];
    let rows: Vec<(bool, Vec<String>)> = all
        .iter()
        .map(|kind| {
            let cells = vec![
                value(&kind["kind"]),
                value(&kind["workers"]),
                size(&kind["volume_bytes"]),
                value(&kind["messages"]),
                value(&kind["syncs"]),
                value(&kind["balance"]),
                size(&kind["memory_bytes"]),
                value(&kind["predicted_ms"]),
                value(&kind["note"]),
            ];
            (float(&kind["predicted_ms"]) == fastest, cells)
        })
        .collect();
    format!("<h3>Kinds of parallelism</h3>{}", table(&columns, &rows))
}

fn scaling(line: &Value) -> String {
    let series: Vec<Series> = line["curves"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|curve| Series {
            name: curve["kind"].as_str().unwrap_or_default().to_owned(),
            points: curve["points"]
                .as_array()
                .into_iter()
                .flatten()
                .map(|point| [float(&point["workers"]), float(&point["predicted_ms"])])
                .collect(),
        })
        .collect();
    let axes = [Axis { label: "workers", log: true }, Axis { label: "ms an epoch", log: true }];
    chart::lines("Predicted time by the number of workers", &series, axes)
}

fn schedule(line: &Value) -> String {
    let Some(spans) = line["spans"].as_array() else { return String::new() };
    let index = |of: &Value| of.as_u64().unwrap_or(0) as usize;
    let bars: Vec<Bar> = spans
        .iter()
        .map(|span| Bar {
            row: index(&span["worker"]),
            start: float(&span["start_ms"]),
            end: float(&span["end_ms"]),
            colour: index(&span["block"]),
            title: format!(
                "stage {}, block {}, iteration {}",
                index(&span["stage"]).saturating_add(1),
                index(&span["block"]),
                index(&span["iteration"]).saturating_add(1)
            ),
        })
        .collect();
    let title = format!(
        "A pipeline of layers: idle {} % of the time, {} blocks in flight",
        number((100.0 * float(&line["bubbles"])).round()),
        value(&line["in_flight"])
    );
    chart::gantt(&title, (index(&line["workers"]), "ms"), &bars)
}

/// The machine that it ran on, and the command that did it.
pub fn environment(lines: &[&Value]) -> String {
    let line = lines[0];
    let machine = &line["machine"];
    let cpu = if line["cpu"].is_object() { &line["cpu"] } else { machine };
    let caches: Vec<String> =
        cpu["caches"].as_array().into_iter().flatten().map(|cache| size(&cache["bytes"])).collect();
    let model = format!("family {} model {}", value(&cpu["family"]), value(&cpu["model"]));
    let shown = [
        (value(&cpu["name"]), "processor"),
        (model, "of the maker's"),
        (caches.join(", "), "caches, by level"),
        (texts(&cpu["instruction_sets"]), "instruction sets"),
        (value(&machine["threads"]["count"]), "threads used"),
        (size(&machine["memory_total_bytes"]), "memory"),
        (value(&line["version"]), "version of Lacis"),
    ];
    // A record has only the command's name, which its heading says.
    let command = line["command"].as_str().filter(|_| line["event"] == "environment");
    let command =
        command.map_or(String::new(), |typed| format!("<pre class=typed>{}</pre>", escaped(typed)));
    let text = serde_json::to_string_pretty(line).unwrap_or_default();
    let all = super::folded("everything that is known of it", &text);
    section("Machine and versions", &(command + &cards(&shown) + &all))
}
