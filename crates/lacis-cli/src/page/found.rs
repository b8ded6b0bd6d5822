//! Sections of training, plans and analyses.

use std::fmt::Write;

use serde_json::Value;

use super::chart::{self, Axis, Bar, Series, escaped, number};
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
    let shown: Vec<(String, &str)> = shown.into_iter().filter(|(text, _)| text != "–").collect();
    let spent: Vec<(String, Vec<f64>)> = ["load_s", "plan_s", "train_s", "eval_s"]
        .iter()
        .filter(|name| done[**name].is_number())
        .map(|name| (name.trim_end_matches("_s").to_owned(), vec![float(&done[*name])]))
        .collect();
    let mut body = cards(&shown);
    if !spent.is_empty() {
        body.push_str(&format!(
            "<h3>Where the time went</h3>{}",
            chart::bars("seconds", &spent, "s")
        ));
    }
    if let Some(kinds) = done["steps"].as_object() {
        let kinds: Vec<(String, Vec<f64>)> =
            kinds.iter().map(|(kind, share)| (kind.clone(), vec![100.0 * float(share)])).collect();
        body.push_str(&chart::bars("time by kind of step", &kinds, "%"));
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

/// The plan in a line.
pub fn plan(lines: &[&Value]) -> String {
    let line = lines[0];
    let shown = [
        (value(&line["id"]), "plan"),
        (with_unit(&line["predicted_epoch_ms"], "ms"), "an epoch, predicted"),
        (size(&line["peak_bytes"]), "memory, predicted"),
        (with_unit(&line["plan_ms"], "ms"), "to plan"),
    ];
    let body = format!("{}<pre>{}</pre>", cards(&shown), formula(&line["formula"]));
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
    let mut body = format!("{}<pre>{}</pre>", cards(&known(&shown)), formula(&line["formula"]));
    for layer in line["layers"].as_array().into_iter().flatten() {
        body.push_str(&candidates(layer));
    }
    let steps: Vec<&Value> = line["steps"].as_array().into_iter().flatten().collect();
    let times: Vec<(String, Vec<f64>)> = steps
        .iter()
        .map(|step| {
            let name = step["formula"].as_str().unwrap_or_default().to_owned();
            let times = vec![float(&step["predicted_ms"]), float(&step["measured_ms"])];
            (name, times.into_iter().filter(|time| time.is_finite()).collect())
        })
        .collect();
    section("Why this plan", &body)
        + &section(
            "The plan, step by step",
            &(diagram(&steps) + &chart::bars("time of each step", &times, "ms")),
        )
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

/// Boxes from top to bottom, a column per phase, wires along slots from who writes to who reads
/// next.
fn diagram(steps: &[&Value]) -> String {
    const PHASES: [&str; 4] = ["once", "forward", "backward", "update"];
    let used: Vec<&str> = PHASES
        .into_iter()
        .filter(|phase| steps.iter().any(|step| step["phase"] == *phase))
        .collect();
    let wide = 760.0 / used.len().max(1) as f64;
    let total: f64 = steps.iter().map(|step| float(&step["predicted_ms"]).max(0.0)).sum();
    let mut heights = vec![30.0; used.len()];
    let mut svg = String::new();
    for (at, phase) in used.iter().enumerate() {
        let x = at as f64 * wide + 8.0;
        let _ = write!(svg, "<text x={x:.1} y=16 class=ink>{phase}</text>");
    }
    for step in steps {
        let Some(column) = used.iter().position(|phase| step["phase"] == *phase) else { continue };
        let (x, y) = (column as f64 * wide + 4.0, heights[column]);
        heights[column] += 34.0;
        let text = step["formula"].as_str().unwrap_or_default();
        let time = float(&step["predicted_ms"]);
        let share = if total > 0.0 { time / total } else { 0.0 };
        let measured = step["measured_ms"].as_f64();
        let measured = measured.map_or(String::new(), |ms| format!(", measured {}", number(ms)));
        let room = (wide / 7.2) as usize;
        let short: String = match text.chars().count() > room {
            true => text.chars().take(room.saturating_sub(1)).chain(['…']).collect(),
            false => text.to_owned(),
        };
        let _ = write!(
            svg,
            "<rect class=box x={x:.1} y={y:.1} width={:.1} height=30 rx=5><title>{}</title></rect>\
             <rect x={x:.1} y={:.1} width={:.1} height=4 rx=2 style='fill:var(--c{})' />\
             <text x={:.1} y={:.1} class=ink>{}</text>\
             <text x={:.1} y={:.1}>{} · {}{measured} ms</text>",
            wide - 12.0,
            escaped(text),
            y + 26.0,
            ((wide - 12.0) * share).max(1.0),
            column % 8,
            x + 6.0,
            y + 12.0,
            escaped(&short),
            x + 6.0,
            y + 23.5,
            value(&step["operator"]),
            number(time),
        );
    }
    let height = heights.into_iter().fold(40.0, f64::max) + 6.0;
    let title = "Steps by phase; the bar is a step's share of the predicted time";
    chart::figure(title, "", &chart::drawing(title, [760.0, height], &svg))
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
    format!("<h3>Layers</h3>{}", table(&columns, &rows))
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
                index(&span["stage"]) + 1,
                index(&span["block"]),
                index(&span["iteration"]) + 1
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

/// Those of which something is known.
fn known<'a>(cards: &[(String, &'a str)]) -> Vec<(String, &'a str)> {
    cards.iter().filter(|(text, _)| !text.is_empty() && text != "–").cloned().collect()
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
    let shown = known(&shown);
    // A record has only the command's name, which its heading says.
    let command = line["command"].as_str().filter(|_| line["event"] == "environment");
    let command =
        command.map_or(String::new(), |typed| format!("<pre class=typed>{}</pre>", escaped(typed)));
    let text = serde_json::to_string_pretty(line).unwrap_or_default();
    let all = super::folded("everything that is known of it", &text);
    section("Machine and versions", &(command + &cards(&shown) + &all))
}
