//! `lacis tune` and `lacis bench ops`: lines, choices, peers, records.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::{Ran, command, lacis, parse_events, ran, text};

/// Runs with a machine profile of its own.
fn with_profile(args: &[&str], folder: &Path) -> Ran {
    let profile = folder.join("machine.json");
    let mut command = command(args);
    ran(command.args(["--machine", text(&profile), "--threads", "2"]).output().unwrap())
}

fn events_of(args: &[&str], folder: &Path) -> Vec<Value> {
    let ran = with_profile(&[args, &["--json"]].concat(), folder);
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    parse_events(&ran.out)
}

fn named<'a>(lines: &'a [Value], event: &str) -> Vec<&'a Value> {
    lines.iter().filter(|line| line["event"] == event).collect()
}

#[test]
fn tables_and_choices_are_listed_without_measuring() {
    let dir = tempfile::tempdir().unwrap();
    let ran = with_profile(&["tune", "--list"], dir.path());
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    assert!(
        ran.out.contains("spmm.csr.rows.v4") && ran.out.contains("not measured"),
        "{}",
        ran.out
    );
    assert!(!dir.path().join("machine.json").exists());
    let lines = events_of(&["tune", "--list"], dir.path());
    assert!(named(&lines, "table").iter().any(|table| table["op"] == "spmm"));
    for choice in named(&lines, "choice") {
        let table =
            lines.iter().find(|l| l["event"] == "table" && l["op"] == choice["op"]).unwrap();
        assert!(table["kernels"].as_array().unwrap().contains(&choice["kernel"]), "{choice}");
        assert_eq!(choice["why"], "analytic");
    }
}

#[test]
fn a_broken_profile_is_named_and_not_used() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("machine.json"), "{ half").unwrap();
    let ran = with_profile(&["tune", "--list"], dir.path());
    assert_eq!(ran.code, Some(0));
    assert!(ran.err.contains("machine.json") && ran.err.contains("is broken"), "{}", ran.err);
}

/// The fields that interface.md promises.
const FIELDS: [&str; 17] = [
    "op", "graph", "k", "reduce", "weighted", "dtype", "axis", "sparsity", "engine", "kernel",
    "ms", "iqr_ms", "bytes", "gbps", "gflops", "roofline", "event",
];

#[test]
fn operations_are_timed_a_line_each() {
    let dir = tempfile::tempdir().unwrap();
    let args =
        ["bench", "ops", "--op", "spmm", "--graph", "karate", "--k", "16,41", "--rounds", "3"];
    let first = with_profile(&[&args[..], &["--json"]].concat(), dir.path());
    assert_eq!(first.code, Some(0), "{}", first.err);
    assert!(first.err.contains("measured spmm for"), "{}", first.err);
    let lines = parse_events(&first.out);
    let ops = named(&lines, "op");
    assert_eq!(ops.len(), 2);
    for (line, k) in ops.iter().zip([16, 41]) {
        let object = line.as_object().unwrap();
        assert!(FIELDS.iter().all(|field| object.contains_key(*field)), "{line}");
        assert_eq!((&line["k"], &line["engine"]), (&k.into(), &"lacis".into()));
        assert_eq!((&line["weighted"], &line["reduce"]), (&false.into(), &"sum".into()));
        assert!(line["ms"].as_f64().unwrap() > 0.0 && line["roofline"].as_f64().unwrap() > 0.0);
        assert!(line["kernel"].as_str().unwrap().starts_with("spmm."));
    }
    // The short look was remembered, so the second run takes no such look and chooses the same.
    let again = with_profile(&[&args[..], &["--json"]].concat(), dir.path());
    assert!(!again.err.contains("measured spmm"), "{}", again.err);
    let lines = parse_events(&again.out);
    let again = named(&lines, "op");
    assert!(
        ops.iter().zip(&again).all(|(a, b)| a["kernel"] == b["kernel"] && a["isa"] == b["isa"])
    );
    let choices = events_of(&["tune", "--list"], dir.path());
    assert!(named(&choices, "choice").iter().any(|choice| choice["why"] == "measured"));
}

#[test]
fn operations_on_the_matrix_alone_are_timed_once() {
    let dir = tempfile::tempdir().unwrap();
    let ops = "spgemm,transpose,sort,coalesce";
    let peers = if python_has("scipy") { "scipy" } else { "torch" };
    let args = [
        "bench", "ops", "--op", ops, "--graph", "karate", "--k", "16,41", "--rounds", "2",
        "--peers", peers,
    ];
    for more in [&[][..], &["--weighted"]] {
        let lines = events_of(&[&args[..], more].concat(), dir.path());
        let of = |engine: &str| -> Vec<String> {
            let lines = named(&lines, "op").into_iter().filter(|line| line["engine"] == engine);
            lines.map(|line| line["op"].as_str().unwrap().to_owned()).collect()
        };
        assert_eq!(of("lacis").join(","), ops);
        // A wrong result would have left it out.
        if peers == "scipy" {
            assert_eq!(of("scipy").join(","), ops);
        }
        assert!(named(&lines, "op").iter().all(|line| line["k"] == 0));
    }
}

#[test]
fn all_kernels_make_a_record_and_a_profile() {
    let dir = tempfile::tempdir().unwrap();
    let record = dir.path().join("r.json");
    let args = [
        "bench",
        "spmm",
        "--graph",
        "karate",
        "--k",
        "16",
        "--rounds",
        "1",
        "--weighted",
        "--all-kernels",
        "-o",
        text(&record),
    ];
    let lines = events_of(&args, dir.path());
    let kernels = named(&lines, "op");
    assert!(kernels.len() >= 4 && kernels.iter().all(|line| line["weighted"] == true));
    let again = with_profile(&args, dir.path());
    assert!(again.code == Some(1) && again.err.contains("--overwrite"), "{}", again.err);
    let kept: Value = serde_json::from_str(&std::fs::read_to_string(&record).unwrap()).unwrap();
    assert_eq!(kept["lines"].as_array().unwrap().len(), kernels.len());
    assert!(kept["machine"]["instruction_sets"].is_array() && kept["cpu"]["vendor"].is_string());

    let other = tempfile::tempdir().unwrap();
    let ran = with_profile(&["tune", "--from", text(&record)], other.path());
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    assert!(other.path().join("machine.json").exists());
    let empty = dir.path().join("empty.json");
    std::fs::write(&empty, "{\"event\":\"start\"}\n").unwrap();
    let ran = with_profile(&["tune", "--from", text(&empty)], other.path());
    assert!(ran.code == Some(1) && ran.err.contains("--all-kernels"), "{}", ran.err);
}

#[test]
fn the_curve_names_the_best_width() {
    let dir = tempfile::tempdir().unwrap();
    let lines = events_of(&["tune", "--graph", "karate", "--k", "16..64"], dir.path());
    let widths: Vec<_> = named(&lines, "curve").iter().map(|line| line["k"].clone()).collect();
    assert_eq!(widths, [16, 32, 64]);
    assert!(named(&lines, "curve").iter().all(|line| line["speedup"].as_f64().unwrap() > 0.0));
    assert!(widths.contains(&named(&lines, "best")[0]["k"]));
}

#[test]
fn misuse_is_answered() {
    let cases: [(&[&str], &str); 6] = [
        (&["bench", "ops", "--op", "spnm"], "spmm"),
        (&["bench", "ops", "--k", "0"], "a number from 1"),
        (&["bench", "ops", "--reduce", "product"], "mul"),
        (&["bench", "ops", "--peers", "tensorflow"], "torch_sparse"),
        (&["tune", "--list", "--quick"], "cannot be used with"),
        (&["bnech"], "'bench'"),
    ];
    for (args, answer) in cases {
        let ran = lacis(args);
        assert_eq!(ran.code, Some(2), "{args:?}: {}", ran.err);
        assert!(ran.err.contains(answer), "{args:?}: {}", ran.err);
    }
    for verb in [&["tune"][..], &["bench", "ops"], &["bench", "spmm"]] {
        assert_eq!(lacis(&[verb, &["--help"]].concat()).code, Some(0), "{verb:?}");
    }
}

fn python_has(package: &str) -> bool {
    let found = Command::new("python3").args(["-c", &format!("import {package}")]).output();
    found.is_ok_and(|output| output.status.success())
}

#[test]
fn peers_that_are_missing_do_not_stop_the_rest() {
    let dir = tempfile::tempdir().unwrap();
    let args = [
        "bench", "spmm", "--graph", "karate", "--k", "16", "--rounds", "1", "--json", "--peers",
        "scipy", "--python",
    ];
    let ran = with_profile(&[&args[..], &["no-such-python"]].concat(), dir.path());
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    assert!(ran.err.contains("cannot start no-such-python"), "{}", ran.err);
    assert_eq!(named(&parse_events(&ran.out), "op").len(), 1);
}

#[test]
fn scipy_takes_turns_where_it_is_installed() {
    if !python_has("scipy") {
        eprintln!("skipped: python3 has no scipy");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    for more in [&[][..], &["--weighted"]] {
        let args = [
            "bench",
            "spmm",
            "--graph",
            "karate",
            "--k",
            "7,16",
            "--rounds",
            "2",
            "--peers",
            "scipy,torch_sparse",
            "--json",
        ];
        let ran = with_profile(&[&args[..], more].concat(), dir.path());
        assert_eq!(ran.code, Some(0), "{}", ran.err);
        let lines = parse_events(&ran.out);
        let engines: Vec<_> = named(&lines, "op").iter().map(|l| l["engine"].clone()).collect();
        let scipy = engines.iter().filter(|engine| *engine == "scipy").count();
        // A wrong result would have left it out.
        assert_eq!(scipy, 2, "{}", ran.err);
        if !python_has("torch_sparse") {
            assert!(ran.err.contains("pip install"), "{}", ran.err);
        }
    }
    let ran = with_profile(
        &[
            "bench", "spmm", "--graph", "karate", "--k", "7", "--reduce", "max", "--rounds", "1",
            "--peers", "scipy",
        ],
        dir.path(),
    );
    assert!(ran.code == Some(0) && ran.err.contains("scipy is left out"), "{}", ran.err);
}
