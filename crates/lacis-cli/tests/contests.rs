//! `lacis bench train`, suites of `bench ops`, tables and comparisons.

use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use crate::{Ran, command, parse_events, ran, text};

fn with_profile(args: &[&str], folder: &Path) -> Ran {
    let profile = folder.join("machine.json");
    let mut command = command(args);
    ran(command.args(["--machine", text(&profile), "--threads", "2"]).output().unwrap())
}

fn events_of(args: &[&str], folder: &Path) -> Vec<Value> {
    let ran = with_profile(&[args, &["--json", "-q"]].concat(), folder);
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    parse_events(&ran.out)
}

fn count(lines: &[Value], event: &str) -> usize {
    lines.iter().filter(|line| line["event"] == event).count()
}

fn defined(folder: &Path, peers: &str) -> String {
    let path = folder.join("small.toml");
    let text = format!(
        "models = ['gcn', 'gin']\nhidden = [8]\npeers = [{peers}]\n[how]\nrounds = 2\n\
         [[graph]]\nname = 'small'\ndata = 'rmat:n=200,e=900,seed=1'\nfeatures = 6\nclasses = 3\n"
    );
    std::fs::write(&path, text).unwrap();
    path.to_str().unwrap().to_owned()
}

#[test]
fn trainings_are_recorded_and_gone_on_with() {
    let dir = tempfile::tempdir().unwrap();
    let (file, record) = (defined(dir.path(), ""), dir.path().join("record.jsonl"));
    let args = ["bench", "train", &file, "-o", text(&record)];
    let first = events_of(&args, dir.path());
    assert_eq!(count(&first, "training"), 2);
    for line in first.iter().filter(|line| line["event"] == "training") {
        let ours = &line["lacis"];
        assert!(ours["epoch_ms"].as_f64().unwrap() > 0.0, "{line}");
        assert!(ours["predicted_ms"].as_f64().unwrap() > 0.0);
        assert!(ours["losses"][0].as_f64().unwrap() > 0.0);
        assert!(ours["extra_bytes"].is_u64() && line["nodes"] == 200);
    }
    assert_eq!(count(&events_of(&args, dir.path()), "training"), 0, "all was there");
    // Killed in the middle of a line: that one, and no other, is measured again.
    let whole = std::fs::read_to_string(&record).unwrap();
    std::fs::write(&record, &whole[..whole.len() - 20]).unwrap();
    assert_eq!(count(&events_of(&args, dir.path()), "training"), 1);
    let lines = std::fs::read_to_string(&record).unwrap();
    assert_eq!(lines.lines().count(), 3);
    assert_eq!(count(&parse_events(&lines), "training"), 2);
    let over = [&args[..], &["--overwrite"]].concat();
    assert_eq!(count(&events_of(&over, dir.path()), "training"), 2);
    let new = dir.path().join("new.jsonl");
    let none = [&args[..4], &[text(&new), "--seconds", "0"]].concat();
    assert_eq!(count(&events_of(&none, dir.path()), "training"), 0, "no time, no case");
}

#[test]
fn results_alone_are_compared_too() {
    let dir = tempfile::tempdir().unwrap();
    let file = defined(dir.path(), "");
    let text = std::fs::read_to_string(&file).unwrap();
    let training = events_of(&["bench", "train", &file], dir.path());
    std::fs::write(&file, text.replace("rounds = 2", "rounds = 2\npasses = 'forward'")).unwrap();
    let forward = events_of(&["bench", "train", &file], dir.path());
    let losses = |lines: &[Value]| -> Vec<Vec<f64>> {
        let all = lines.iter().filter(|line| line["event"] == "training");
        let of = |line: &Value| line["lacis"]["losses"].as_array().unwrap().clone();
        all.map(|line| of(line).iter().filter_map(Value::as_f64).collect()).collect()
    };
    assert_eq!((count(&training, "training"), count(&forward, "training")), (2, 2));
    for (trained, only) in losses(&training).iter().zip(losses(&forward)) {
        // The first epoch's loss is that of the first weights, which nothing changes here.
        assert!(only.iter().all(|loss| (loss - trained[0]).abs() < 1e-5), "{only:?} {trained:?}");
        assert!(only.len() == 3 && trained[2] < trained[0]);
    }
}

#[test]
fn a_definition_that_makes_no_sense_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    for (bad, named) in [("'tensorflow'", "tensorflow"), ("1", "string")] {
        let file = defined(dir.path(), bad);
        let ran = with_profile(&["bench", "train", &file], dir.path());
        assert_eq!(ran.code, Some(1), "{}", ran.err);
        assert!(ran.err.contains("small.toml") && ran.err.contains(named), "{}", ran.err);
    }
    let other = dir.path().join("other.jsonl");
    std::fs::write(&other, "{\"event\":\"start\",\"command\":\"train\"}\n").unwrap();
    let file = defined(dir.path(), "");
    let ran = with_profile(&["bench", "train", &file, "-o", text(&other)], dir.path());
    assert!(ran.code == Some(1) && ran.err.contains("no record of `lacis bench train`"));
}

#[test]
fn a_peer_that_is_missing_is_a_reason() {
    let dir = tempfile::tempdir().unwrap();
    let file = defined(dir.path(), "'edge_index'");
    let args = ["bench", "train", &file, "--python", "no-such-python"];
    let lines = events_of(&args, dir.path());
    let all: Vec<&Value> = lines.iter().filter(|line| line["event"] == "training").collect();
    assert_eq!(all.len(), 2);
    assert!(all.iter().all(|l| l["reason"].as_str().unwrap().contains("no-such-python")));
}

#[test]
fn torch_geometric_takes_turns_where_it_is_installed() {
    let there = Command::new("python3").args(["-c", "import torch_geometric"]).output();
    if !there.is_ok_and(|output| output.status.success()) {
        eprintln!("skipped: torch_geometric is not installed for python3");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let file = defined(dir.path(), "'edge_index'");
    let record = dir.path().join("record.jsonl");
    let args = ["bench", "train", &file, "-o", text(&record)];
    let lines = events_of(&args, dir.path());
    let all: Vec<&Value> = lines.iter().filter(|line| line["event"] == "training").collect();
    for line in &all {
        assert!(line["reason"].is_null(), "{line}");
        assert!(line["loss_difference"].as_f64().unwrap() < 1e-5, "{line}");
        assert!(line["times"].as_f64().unwrap() > 0.0);
        assert!(line["theirs"]["extra_bytes"].is_u64());
    }
    let table = with_profile(&["bench", "table", text(&record)], dir.path());
    assert_eq!(table.code, Some(0), "{}", table.err);
    assert!(table.out.contains("| small | gcn | 8 |") && table.out.contains("`edge_index`"));
}

#[test]
fn tables_go_into_documents() {
    let dir = tempfile::tempdir().unwrap();
    let (record, page) = (dir.path().join("r.jsonl"), dir.path().join("page.md"));
    let side = json!({ "epoch_ms": 2.0, "extra_bytes": 1000 });
    let line = json!({ "event": "training", "graph": "g", "model": "gcn", "hidden": 8,
                       "mode": "f32", "peer": "csr", "lacis": side, "theirs": side, "times": 1.0 });
    std::fs::write(&record, format!("{line}\n")).unwrap();
    std::fs::write(&page, "before\n<!-- table train -->\n<!-- end train -->\nafter\n").unwrap();
    let args = ["bench", "table", text(&record), "--into", text(&page)];
    assert_eq!(with_profile(&args, dir.path()).code, Some(0));
    let written = std::fs::read_to_string(&page).unwrap();
    assert!(written.starts_with("before\n") && written.ends_with("after\n"));
    assert!(written.contains("| g | gcn | 8 | 2.00 | 2.00 | 1.0× |"), "{written}");
    let other = with_profile(&[&args[..], &["--name", "other"]].concat(), dir.path());
    assert!(other.code == Some(1) && other.err.contains("<!-- table other -->"), "{}", other.err);
}

#[test]
fn suites_are_checked_timed_and_gone_on_with() {
    let dir = tempfile::tempdir().unwrap();
    let record = dir.path().join("suite.jsonl");
    let some = "transpose,coalesce,gather";
    let suite = ["bench", "ops", "--suite", "quick", "--op", some, "--rounds", "2"];
    let args = [&suite[..], &["-o", text(&record)]].concat();
    let first = events_of(&args, dir.path());
    let timed = count(&first, "op");
    assert!(timed >= 15 && count(&first, "left_out") == 0, "{timed}");
    for op in some.split(',') {
        assert!(first.iter().any(|line| line["op"] == op), "{op}");
    }
    let repeated = |line: &&Value| line["op"] == "coalesce" && line["factor"] == 8;
    assert!(first.iter().any(|line| repeated(&line)));
    let text_of = std::fs::read_to_string(&record).unwrap();
    let kept: Vec<&str> = text_of.lines().take(timed - 2).collect();
    std::fs::write(&record, format!("{}\n{{\"event", kept.join("\n"))).unwrap();
    assert_eq!(count(&events_of(&args, dir.path()), "op"), 3, "the torn line and two more");
    let same = events_of(&["bench", "compare", text(&record), text(&record)], dir.path());
    let compared = same.last().unwrap();
    assert_eq!((&compared["pairs"], &compared["geometric_mean"]), (&json!(timed), &json!(1.0)));
    let profile = dir.path().join("from.json");
    let tuned = ["tune", "--from", text(&record), "--machine", text(&profile)];
    let tuned = ran(command(&tuned).output().unwrap());
    assert_eq!(tuned.code, Some(0), "{}", tuned.err);
    assert!(profile.exists());
}

#[test]
fn regressions_come_first() {
    let dir = tempfile::tempdir().unwrap();
    let line = |k: usize, engine: &str, ms: f64| json!({ "event": "op", "op": "spmm", "graph": "g", "k": k, "engine": engine, "ms": ms });
    let file = |name: &str, ms: [f64; 3]| {
        let path = dir.path().join(name);
        let lines = [line(8, "lacis", ms[0]), line(16, "lacis", ms[1]), line(8, "torch", ms[2])];
        let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let (a, b) = (file("a", [1.0, 1.0, 5.0]), file("b", [0.5, 2.0, 10.0]));
    let found = events_of(&["bench", "compare", &a, &b], dir.path());
    let ours: Vec<f64> = found
        .iter()
        .filter(|line| line["event"] == "ratio" && line["engine"] == "lacis")
        .map(|line| line["ratio"].as_f64().unwrap())
        .collect();
    assert_eq!(ours, [2.0, 0.5]);
    let end = found.last().unwrap();
    assert_eq!((&end["regressions"], &end["peers_geometric_mean"]), (&json!(1), &json!(2.0)));
    assert!((end["geometric_mean"].as_f64().unwrap() - 1.0).abs() < 1e-12);
    let people = with_profile(&["bench", "compare", &a, &b], dir.path());
    assert!(people.out.find("k=16") < people.out.find("k=8"), "{}", people.out);
}

#[test]
fn a_folder_that_is_no_run_is_called_so() {
    let dir = tempfile::tempdir().unwrap();
    let page = dir.path().join("page.html");
    let ran = with_profile(&["report", text(dir.path()), "-o", text(&page)], dir.path());
    assert_eq!(ran.code, Some(1));
    assert!(ran.err.contains("is no folder of a run"), "{}", ran.err);
    assert!(!page.exists());
}

const SUITE: [&str; 8] = ["bench", "ops", "--suite", "quick", "--op", "transpose", "--rounds", "2"];

#[test]
fn a_file_that_is_no_record_stays_as_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let (keep, file) = (dir.path().join("keep.json"), defined(dir.path(), ""));
    // Without an end of its only line too, be it torn from a record of ours.
    for precious in ["{\"precious\":1}", "\n\n", "notes", "{\"event\":\"start\",\"command\":\"b"] {
        for command in [&SUITE[..], &["bench", "train", &file]] {
            std::fs::write(&keep, precious).unwrap();
            let ran = with_profile(&[command, &["-o", text(&keep)]].concat(), dir.path());
            assert_eq!(ran.code, Some(1), "{precious}: {}", ran.err);
            assert!(ran.err.contains("keep.json"), "{}", ran.err);
            assert_eq!(std::fs::read_to_string(&keep).unwrap(), precious);
        }
    }
}

#[test]
fn a_record_is_of_one_number_of_threads() {
    let dir = tempfile::tempdir().unwrap();
    let (record, file) = (dir.path().join("r.jsonl"), defined(dir.path(), ""));
    let machine = dir.path().join("machine.json");
    let args = ["bench", "train", &file, "--seconds", "0", "-o", text(&record)];
    assert_eq!(with_profile(&args, dir.path()).code, Some(0));
    let other = [&args[..], &["--threads", "1", "--machine", text(&machine)]].concat();
    let ran = ran(command(&other).output().unwrap());
    assert_eq!(ran.code, Some(1), "{}", ran.err);
    assert!(ran.err.contains("with 2 threads, not 1; --threads 2"), "{}", ran.err);
}

#[test]
fn a_page_of_a_record_that_is_complete_holds_its_lines() {
    let dir = tempfile::tempdir().unwrap();
    let (page, file) = (dir.path().join("p.html"), defined(dir.path(), ""));
    for (command, shown) in [(&SUITE[..], "transpose"), (&["bench", "train", &file], "gcn")] {
        let record = dir.path().join(format!("{shown}.jsonl"));
        let command = [command, &["-o", text(&record)]].concat();
        events_of(&command, dir.path());
        let again = [&command[..], &["--html", text(&page), "--overwrite-html"]].concat();
        let lines = events_of(&again, dir.path());
        assert_eq!(count(&lines, "op") + count(&lines, "training"), 0, "all was there");
        let page = std::fs::read_to_string(&page).unwrap();
        assert!(page.contains("<svg") && page.contains(shown), "{shown}");
    }
}

#[test]
fn a_suite_says_which_operations_it_has_not() {
    let ran = crate::lacis(&["bench", "ops", "--suite", "paper", "--op", "sddmm,transpose"]);
    assert_eq!(ran.code, Some(2), "{}", ran.err);
    assert!(ran.err.contains("--op sddmm: not in --suite paper"), "{}", ran.err);
    assert!(ran.err.contains("index_select"), "{}", ran.err);
}

#[test]
fn flags_of_a_definition_are_checked_first() {
    let dir = tempfile::tempdir().unwrap();
    let file = defined(dir.path(), "");
    let whole = std::fs::read_to_string(&file).unwrap();
    let modes = "modes = [{ name = 'fast', args = ['--fast'] }]\n[how]";
    std::fs::write(&file, whole.replace("[how]", modes)).unwrap();
    let ran = with_profile(&["bench", "train", &file], dir.path());
    assert_eq!(ran.code, Some(1), "{}", ran.err);
    for named in ["small.toml", "mode 'fast'", "--fast"] {
        assert!(ran.err.contains(named), "{named}: {}", ran.err);
    }
}
