//! Training on batches and on graphs, as a user would.

use serde_json::Value;

use crate::{events, lacis, text};

const NODES: &str = "sbm:n=400,e=2000,classes=3,features=10,seed=1";
const GRAPHS: &str = "motifs:graphs=120,seed=2";

fn losses(lines: &[Value]) -> Vec<Value> {
    lines.iter().filter(|l| l["event"] == "epoch").map(|l| l["loss"].clone()).collect()
}

#[test]
fn sampled_runs_learn_and_spell_as_elsewhere() {
    let train = |rest: &[&str]| {
        let args = ["train", NODES, "--epochs", "15", "--batch-size", "60", "--no-save", "--json"];
        events(&[&args[..], rest].concat())
    };
    let sampled = train(&["--model", "sage", "--sample", "neighbor:5,-1"]);
    let done = sampled.last().unwrap();
    assert_eq!((&done["event"], &done["batches"]), (&"done".into(), &4.into()));
    assert!(done["test"].as_f64().unwrap() > 0.5, "{done}");
    let theirs = train(&["--model", "sage", "--num-neighbors", "5,-1"]);
    assert_eq!(losses(&theirs), losses(&sampled));
    let walks = train(&["--sample", "saint:2", "--schedule", "warmup:2,cosine", "--clip", "1"]);
    assert!(walks.last().unwrap()["test"].as_f64().unwrap() > 0.5);
    let wrong = lacis(&["train", NODES, "--sample", "neighbour:5"]);
    assert_eq!(wrong.code, Some(2));
    assert!(wrong.err.contains("neighbor:15,10 and saint:2 are"), "{}", wrong.err);
    let few = lacis(&["train", NODES, "--schedule", "linear"]);
    assert!(few.code == Some(2) && few.err.contains("is no schedule"), "{}", few.err);
}

/// A run that its time limit left goes on to the weights of one that was never left.
#[test]
fn a_sampled_run_goes_on_to_the_same_weights() {
    let dir = tempfile::tempdir().unwrap();
    let (whole, cut) = (dir.path().join("whole"), dir.path().join("cut"));
    let args = ["train", NODES, "--epochs", "40", "--sample", "neighbor:3,3", "--batch-size", "7"];
    let args = [&args[..], &["--schedule", "plateau:2:0.5", "--norm", "batch"]].concat();
    assert_eq!(lacis(&[&args[..], &["--out", text(&whole)]].concat()).code, Some(0));
    let first = lacis(&[&args[..], &["--out", text(&cut), "--time-limit", "1s"]].concat());
    assert_eq!(first.code, Some(0), "{}", first.err);
    let resumed = lacis(&["train", "--resume", text(&cut)]);
    assert_eq!(resumed.code, Some(0), "{}", resumed.err);
    let model = |folder: &std::path::Path| std::fs::read(folder.join("model.safetensors")).unwrap();
    assert!(model(&whole) == model(&cut), "the same bits");
}

#[test]
fn graphs_are_trained_in_folds_and_judged_again() {
    let dir = tempfile::tempdir().unwrap();
    let (parent, one) = (dir.path().join("all"), dir.path().join("one"));
    let args = ["train", GRAPHS, "--model", "gin", "--layers", "3", "--mlp-layers", "2", "--json"];
    let args = [&args[..], &["--norm", "batch", "--epochs", "10", "--folds", "3"]].concat();
    let lines = events(&[&args[..], &["--out", text(&parent)]].concat());
    let runs: Vec<&Value> = lines.iter().filter(|l| l["event"] == "run").collect();
    let done = lines.last().unwrap();
    assert_eq!((runs.len(), &done["runs"]), (3, &3.into()));
    let mean = runs.iter().map(|run| run["test"].as_f64().unwrap()).sum::<f64>() / 3.0;
    assert!((done["mean"].as_f64().unwrap() - mean).abs() < 1e-12);
    let second = events(&[&args[..], &["--fold", "2", "--out", text(&one)]].concat());
    assert_eq!(losses(&second).len(), 10);
    assert_eq!(second.last().unwrap()["test"], runs[1]["test"]);
    let judged = events(&["eval", text(&one), "--json"]);
    assert_eq!(judged.last().unwrap()["test"], runs[1]["test"]);
    let csv = dir.path().join("classes.csv");
    assert_eq!(lacis(&["predict", text(&one), "-o", text(&csv)]).code, Some(0));
    let rows = std::fs::read_to_string(&csv).unwrap();
    assert!(rows.starts_with("graph,label\n") && rows.lines().count() == 121, "{rows}");
    let wrong = lacis(&["train", GRAPHS, "--task", "node"]);
    assert!(wrong.code == Some(2) && wrong.err.contains("many graphs"), "{}", wrong.err);
    let none = lacis(&["train", GRAPHS, "--folds", "3", "--fold", "4"]);
    assert!(none.code == Some(2) && none.err.contains("none of 1 to 3"), "{}", none.err);
}
