//! `lacis bench compare`: two files of results, problem by problem.

use std::collections::BTreeMap;
use std::path::Path;

use lacis::{Error, Result};
use serde_json::{Value, json};

use crate::args_bench::Comparison;
use crate::out::{Out, Outcome};
use crate::ratios::geometric_mean;

/// Who was timed on what: milliseconds and their spread.
type Times = BTreeMap<(String, String), [f64; 2]>;

pub fn run(args: &Comparison, out: &Out) -> Outcome {
    out.start("bench compare", args)?;
    let (a, b) = (times(&args.a)?, times(&args.b)?);
    let mut ratios: Vec<Ratio<'_>> = a
        .iter()
        .filter_map(|(key, before)| b.get(key).map(|after| Ratio { key, a: *before, b: *after }))
        .collect();
    if ratios.is_empty() {
        let problem = "time no problem that both have; the same command makes both";
        return Err(Error::argument("the two files", problem).into());
    }
    ratios.sort_by(|x, y| y.ratio().total_cmp(&x.ratio()));
    let is_ours = |ratio: &&Ratio<'_>| ratio.key.1 == "lacis";
    let mean = |ours: bool| {
        let all = ratios.iter().filter(|ratio| is_ours(ratio) == ours);
        geometric_mean(all.map(Ratio::ratio))
    };
    let (ours, peers) = (mean(true), mean(false));
    let worse = ratios.iter().filter(is_ours).filter(|ratio| ratio.ratio() >= args.worse).count();
    let only = |one: &Times, other: &Times| one.keys().filter(|k| !other.contains_key(*k)).count();
    for ratio in &ratios {
        out.event("ratio", &ratio.as_json())?;
    }
    let summary = json!({ "pairs": ratios.len(), "regressions": worse, "geometric_mean": ours,
                          "peers_geometric_mean": peers, "only_a": only(&a, &b),
                          "only_b": only(&b, &a) });
    out.event("compared", &summary)?;
    out.line(format_args!("{:>8} {:>12} {:>12}  problem", "ratio", "A ms", "B ms"))?;
    for ratio in ratios.iter().filter(is_ours).take(args.top) {
        out.line(ratio.in_words())?;
    }
    print_summary(&summary, args.worse, out)
}

fn print_summary(summary: &Value, worse: f64, out: &Out) -> Outcome {
    let mean = |name: &str| summary[name].as_f64();
    if let Some(ours) = mean("geometric_mean") {
        let (pairs, regressions) = (&summary["pairs"], &summary["regressions"]);
        out.line(format_args!(
            "\nB takes {ours:.3} times as long as A in the geometric mean; {regressions} of \
             {pairs} from {worse} on"
        ))?;
    }
    if let Some(peers) = mean("peers_geometric_mean") {
        out.line(format_args!("peers, whose code did not change: {peers:.3} times"))?;
    }
    let (a, b) = (&summary["only_a"], &summary["only_b"]);
    if a != 0 || b != 0 {
        out.line(format_args!("only A has {a}, only B {b}"))?;
    }
    Ok(())
}

struct Ratio<'a> {
    key: &'a (String, String),
    a: [f64; 2],
    b: [f64; 2],
}

impl Ratio<'_> {
    fn ratio(&self) -> f64 {
        self.b[0] / self.a[0]
    }

    fn as_json(&self) -> Value {
        let (problem, engine) = self.key;
        json!({ "problem": problem, "engine": engine, "a_ms": self.a[0], "b_ms": self.b[0],
                "a_iqr_ms": self.a[1], "b_iqr_ms": self.b[1], "ratio": self.ratio() })
    }

    fn in_words(&self) -> String {
        format!("{:>8.3} {:>12.4} {:>12.4}  {}", self.ratio(), self.a[0], self.b[0], self.key.0)
    }
}

/// The times of a file.
fn times(path: &Path) -> Result<Times> {
    let lines = crate::report::of_lines(path)?;
    let mut times = Times::new();
    for line in &lines {
        match line["event"].as_str() {
            Some("op") => add_operation(line, &mut times),
            Some("training") => add_training(line, &mut times),
            _ => {}
        }
    }
    match times.is_empty() {
        true => Err(Error::file(path, "has no times of `lacis bench ops` or `lacis bench train`")),
        false => Ok(times),
    }
}

/// Milliseconds, if they can be: nothing takes none.
fn time_of(value: &Value) -> Option<f64> {
    value.as_f64().filter(|ms| *ms > 0.0)
}

fn add_operation(line: &Value, times: &mut Times) {
    let Some(ms) = time_of(&line["ms"]) else { return };
    let engine = line["engine"].as_str().unwrap_or_default().to_owned();
    let time = [ms, line["iqr_ms"].as_f64().unwrap_or(f64::NAN)];
    if let Some(case) = line["case"].as_str() {
        // Of a case that was measured again, the later time counts. Who else was there does not.
        let case = case.split(" | ").next().unwrap_or(case);
        times.insert((case.to_owned(), engine), time);
        return;
    }
    const NAMES: [&str; 7] = ["op", "graph", "k", "reduce", "weighted", "dtype", "axis"];
    let words = NAMES.map(|name| match &line[name] {
        Value::String(word) => word.clone(),
        other => format!("{name}={other}"),
    });
    // The chosen kernel comes first.
    times.entry((words.join(" "), engine)).or_insert(time);
}

fn add_training(line: &Value, times: &mut Times) {
    let word = |name: &str| line[name].as_str().unwrap_or_default().to_owned();
    let named = [word("graph"), word("model"), line["hidden"].to_string(), word("mode")].join(" ");
    let side = |side: &Value| {
        let ms = time_of(&side["epoch_ms"])?;
        Some([ms, side["iqr_ms"].as_f64().unwrap_or(f64::NAN)])
    };
    if let Some(time) = side(&line["lacis"]) {
        times.insert((named.clone(), "lacis".to_owned()), time);
    }
    if let Some(time) = side(&line["theirs"]) {
        times.insert((named, word("peer")), time);
    }
}
