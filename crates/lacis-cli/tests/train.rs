//! Training, judging and predicting, as a user would: from nothing, interrupted, misused.

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use serde_json::Value;

use crate::{command, events, lacis, parse_events, text};

const SMALL: &str = "sbm:n=200,e=900,classes=3,features=10,seed=1";

fn last(lines: &[Value]) -> &Value {
    lines.last().unwrap()
}

#[test]
fn a_run_keeps_what_it_did_and_can_be_judged_and_used_again() {
    let dir = tempfile::tempdir().unwrap();
    let run = dir.path().join("run");
    let lines = events(&["train", SMALL, "--epochs", "20", "--out", text(&run), "--json"]);
    let kinds: Vec<&str> = lines.iter().map(|line| line["event"].as_str().unwrap()).collect();
    assert_eq!(kinds[..2], ["start", "plan"]);
    assert_eq!(kinds.iter().filter(|kind| **kind == "epoch").count(), 20);
    let done = last(&lines);
    assert_eq!(done["event"], "done");
    for key in ["test", "val", "best_epoch", "train_nodes", "epoch_ms", "plan", "peak_rss_bytes"] {
        assert!(!done[key].is_null(), "{key}");
    }
    for file in ["config.toml", "metrics.jsonl", "summary.json", "model.safetensors", "plan.json"] {
        assert!(run.join(file).exists(), "{file}");
    }
    let judged = events(&["eval", text(&run), "--json"]);
    assert_eq!(last(&judged)["test"], done["test"]);

    let csv = dir.path().join("labels.csv");
    assert_eq!(lacis(&["predict", text(&run), "-o", text(&csv)]).code, Some(0));
    assert_eq!(std::fs::read_to_string(&csv).unwrap().lines().count(), 201);
    let again = lacis(&["predict", text(&run), "-o", text(&csv)]);
    assert_eq!(again.code, Some(1), "nothing is overwritten unasked");
    // The configuration that was kept runs the job again, to the same losses.
    let config = run.join("config.toml");
    let again = dir.path().join("again");
    let config = ["--config", text(&config), "--out", text(&again), "--json"];
    let repeated = events(&[&["train"][..], &config].concat());
    let losses = |lines: &[Value]| -> Vec<Value> {
        lines.iter().filter(|l| l["event"] == "epoch").map(|l| l["loss"].clone()).collect()
    };
    assert_eq!(losses(&repeated), losses(&lines));
}

#[test]
fn a_run_in_bf16_is_judged_in_bf16_and_goes_on_in_nothing_else() {
    let dir = tempfile::tempdir().unwrap();
    let run = dir.path().join("run");
    let out = ["--epochs", "20", "--out", text(&run), "--json"];
    let lines = events(&[&["train", SMALL, "--precision", "bf16"][..], &out].concat());
    let judged = events(&["eval", text(&run), "--json"]);
    assert_eq!(last(&judged)["test"], last(&lines)["test"]);
    let changed = lacis(&["train", "--resume", text(&run), "--precision", "f32"]);
    assert_eq!(changed.code, Some(2));
    assert!(changed.err.contains("--precision"), "{}", changed.err);
}

#[test]
fn an_interrupted_run_goes_on_to_the_same_weights() {
    let dir = tempfile::tempdir().unwrap();
    let (whole, cut) = (dir.path().join("whole"), dir.path().join("cut"));
    let args = |out: &'static str| ["train", SMALL, "--epochs", "3000", "--hidden", "48", out];
    let begin = |folder: &std::path::Path| {
        let mut all: Vec<&str> = args("--json").to_vec();
        let folder = text(folder).to_owned();
        all.extend(["--out", &folder]);
        command(&all).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap()
    };
    assert!(begin(&whole).wait_with_output().unwrap().status.success());
    let mut child = begin(&cut);
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    // Some epochs in, as Ctrl-C would.
    lines.by_ref().take(400).for_each(drop);
    let pid = child.id().to_string();
    let kill = std::process::Command::new("kill").args(["-INT", &pid]).status().unwrap();
    assert!(kill.success());
    lines.for_each(drop);
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert!(!cut.join("model.safetensors").exists(), "it was not done yet");
    let changed = lacis(&["train", "--resume", text(&cut), "--lr", "0.5"]);
    assert_eq!(changed.code, Some(2));
    assert!(changed.err.contains("--lr"), "{}", changed.err);
    let resumed = lacis(&["train", "--resume", text(&cut)]);
    assert_eq!(resumed.code, Some(0), "{}", resumed.err);
    let model = |folder: &std::path::Path| std::fs::read(folder.join("model.safetensors")).unwrap();
    assert!(model(&whole) == model(&cut), "the same bits");
    let epochs = std::fs::read_to_string(cut.join("metrics.jsonl")).unwrap().lines().count();
    assert_eq!(epochs, 3000);
}

/// A plan of a thousand layers takes minutes, and there is nothing to lose.
#[test]
fn planning_ends_when_it_is_interrupted() {
    let args = ["train", SMALL, "--layers", "1024", "--dry-run", "--json"];
    let mut child = command(&args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // The data have been opened by then, or it ends even earlier.
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(lines.next().unwrap().unwrap().contains("start"));
    let pid = child.id().to_string();
    assert!(std::process::Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
    assert_eq!(child.wait().unwrap().code(), Some(143));
    let last = lines.map(Result::unwrap).last().unwrap();
    assert!(last.contains("interrupted"), "{last}");
}

#[test]
fn what_cannot_be_meant_is_refused_before_it_is_tried() {
    let cases: [(&[&str], &str); 8] = [
        (&["--hidden", "99999999999"], "1 to 16777216"),
        (&["--hidden", "16000000"], "is too little: the smallest plan takes"),
        (&["--layers", "100000"], "1 to 1024"),
        (&["--approx", "rsc", "--approx-budget", "2"], "at most 1"),
        (&["--approx-budget", "0.5"], "--approx rsc or --approx adaptive"),
        (&["--runs", "0"], "--runs"),
        (&["--optimizer", "sgd", "--momentum", "5"], "below 1"),
        (&["--schedule", "slower"], "none, step:EVERY:FACTOR"),
    ];
    for (flags, right) in cases {
        let ran = lacis(&[&["train", SMALL, "--dry-run"][..], flags].concat());
        assert_eq!(ran.code, Some(2), "{flags:?}: {}", ran.err);
        assert!(ran.err.contains(right), "{flags:?}: {}", ran.err);
    }
}

#[test]
fn approximation_says_what_it_did_over_several_runs_and_where_there_is_nothing_to_sample() {
    let flags = ["--epochs", "12", "--no-save", "--approx", "adaptive", "--approx-force"];
    let train = |more: &[&str]| lacis(&[&["train", SMALL], &flags[..], more].concat());
    let ran = train(&["--runs", "2", "--approx-budget", "0.5", "--layers", "3", "--json"]);
    let lines = parse_events(&ran.out);
    let (runs, done): (Vec<_>, Vec<_>) = lines.iter().partition(|line| line["event"] == "run");
    let share = |line: &Value| line["approx"]["layers"][0]["sampled_epochs"].as_f64().unwrap();
    let runs: Vec<_> = runs.into_iter().filter(|line| line["approx"].is_object()).collect();
    let mean = runs.iter().map(|line| share(line)).sum::<f64>() / 2.0;
    let done = done.last().unwrap();
    assert_eq!((runs.len(), &done["approx"]["policy"]), (2, &"adaptive".into()), "{}", ran.out);
    assert!((share(done) - mean).abs() < 1e-9, "{done}");
    for model in ["gat", "mlp"] {
        let ran = train(&["--model", model]);
        assert!(ran.err.contains("nothing to sample"), "{}", ran.err);
        assert!(!ran.err.contains("--approx-force"), "{}", ran.err);
    }
}

#[test]
fn explain_gives_the_papers_counts_and_a_choice_among_them() {
    let args = ["explain", "karate", "--features", "32", "--hidden", "8", "--rules", "sensei"];
    let lines = events(&[&args[..], &["--json"]].concat());
    let explained = last(&lines);
    let layers = explained["layers"].as_array().unwrap();
    for layer in layers {
        assert_eq!((layer["enumerated"].as_u64(), layer["kept"].as_u64()), (Some(12), Some(4)));
        let candidates = layer["candidates"].as_array().unwrap();
        assert!(candidates.iter().any(|c| c["formula"] == layer["chosen"]));
        assert_eq!(candidates.iter().filter(|c| c["pruned_by"].is_null()).count(), 4);
    }
    assert!(!explained["steps"].as_array().unwrap().is_empty());
    let people = lacis(&["explain", "karate", "--features", "32", "--measure"]);
    assert_eq!(people.code, Some(0), "{}", people.err);
    assert!(people.out.contains("measured:"), "{}", people.out);
}

#[test]
fn a_limit_of_memory_excludes_plans_or_says_what_would_fit() {
    let data = "sbm:n=4k,e=40k,classes=4,features=256,seed=2";
    let explain = |limit: &str| {
        let args = ["explain", data, "--hidden", "512", "--memory-limit", limit, "--json"];
        last(&events(&args)).clone()
    };
    let free = explain("90%")["peak_bytes"].as_u64().unwrap();
    let below = explain(&(free - 1).to_string());
    assert!(below["peak_bytes"].as_u64().unwrap() < free, "{}", below["peak_bytes"]);
    let none = lacis(&["train", data, "--hidden", "512", "--no-save", "--memory-limit", "45M"]);
    assert_eq!(none.code, Some(2));
    for word in ["smallest plan takes", "--hidden ", "--sample"] {
        assert!(none.err.contains(word), "{}", none.err);
    }
    let wrong = lacis(&["explain", "karate", "--memory-limit", "much"]);
    assert_eq!(wrong.code, Some(2));
    assert!(wrong.err.contains("8G, 512M or 80%"), "{}", wrong.err);
}

#[test]
fn forward_passes_are_planned_and_measured_alone() {
    let args = ["explain", "karate", "--features", "32", "--inference", "--measure", "--json"];
    let lines = events(&args);
    let explained = last(&lines);
    let steps = explained["steps"].as_array().unwrap();
    assert!(steps.iter().all(|step| step["phase"] == "once" || step["phase"] == "forward"));
    for layer in explained["layers"].as_array().unwrap() {
        let kept = layer["candidates"].as_array().unwrap();
        let kept: Vec<_> = kept.iter().filter(|c| c["pruned_by"].is_null()).collect();
        assert!(kept.iter().all(|c| c["measured_ms"].as_f64().unwrap() > 0.0));
    }
}

#[test]
fn plans_are_kept_and_pinned() {
    let dir = tempfile::tempdir().unwrap();
    let plan = dir.path().join("plan.json");
    let train = |more: &[&str]| {
        let args = ["train", SMALL, "--epochs", "3", "--no-save", "--json"];
        last(&events(&[&args[..], more].concat())).clone()
    };
    let first = train(&["--save-plan", text(&plan)]);
    let pinned = train(&["--plan", text(&plan)]);
    assert_eq!((&first["plan"], &first["test"]), (&pinned["plan"], &pinned["test"]));
    let by_id = train(&["--plan", first["plan"].as_str().unwrap()]);
    assert_eq!(by_id["plan"], first["plan"]);
    let args = ["train", SMALL, "--model", "sage", "--no-save", "--plan", text(&plan)];
    let other = lacis(&args);
    assert_eq!(other.code, Some(2));
    assert!(other.err.contains("another network"), "{}", other.err);
}

#[test]
fn misuse_is_told_with_what_would_be_right() {
    let cases: [(&[&str], &str); 7] = [
        (&["train", "karate", "--model", "gcnn", "--no-save"], "gcn, sage"),
        (&["train", "grid:rows=4,cols=4", "--no-save"], "--classes"),
        (&["train", SMALL, "--without", "speed", "--no-save"], "hoist"),
        (&["train", SMALL, "--model", "gat", "--hidden", "10", "--no-save"], "8 heads"),
        (&["train", SMALL, "--metric", "mrr", "--no-save"], "mrr"),
        (&["train", SMALL, "--lr", "-1", "--no-save"], "lr"),
        (&["predict", "nowhere", "-o", "x.csv"], "no folder"),
    ];
    for (args, words) in cases {
        let ran = lacis(args);
        assert!(matches!(ran.code, Some(1 | 2)), "{args:?}: {:?} {}", ran.code, ran.err);
        assert!(ran.err.contains(words), "{args:?}: {}", ran.err);
        assert!(!ran.err.contains("panicked"), "{args:?}: {}", ran.err);
    }
}

#[test]
fn several_runs_have_a_mean_and_nothing_is_written_when_not_asked() {
    let dir = tempfile::tempdir().unwrap();
    let args = ["train", SMALL, "--epochs", "5", "--runs", "3", "--no-save", "--json"];
    let mut command = command(&args);
    let done = command.current_dir(dir.path()).output().unwrap();
    let lines: Vec<Value> = String::from_utf8(done.stdout)
        .unwrap()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(lines.iter().filter(|line| line["event"] == "run").count(), 3);
    assert_eq!(last(&lines)["runs"], 3);
    assert!(last(&lines)["std"].is_number());
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
}

/// A limit on the length of files stands for a disk that is full.
#[cfg(unix)]
#[test]
fn a_full_disk_is_told_and_the_run_goes_on_when_there_is_room() {
    let dir = tempfile::tempdir().unwrap();
    let (whole, cut) = (dir.path().join("whole"), dir.path().join("cut"));
    let args = |out: &std::path::Path| {
        let data = "sbm:n=60,e=200,classes=3,features=64,seed=1";
        format!("train {data} --hidden 512 --epochs 6 --checkpoint-every 2 --out {} -q", text(out))
    };
    let words = args(&whole);
    assert_eq!(lacis(&words.split(' ').collect::<Vec<_>>()).code, Some(0));
    let script = format!("ulimit -f 300; exec {} {}", env!("CARGO_BIN_EXE_lacis"), args(&cut));
    let output = std::process::Command::new("sh").args(["-c", &script]).output().unwrap();
    let full = crate::ran(output);
    assert_eq!(full.code, Some(1), "{}", full.err);
    assert!(full.err.contains("cannot write") && full.err.contains("--resume"), "{}", full.err);
    let resumed = lacis(&["train", "--resume", text(&cut), "-q"]);
    assert_eq!(resumed.code, Some(0), "{}", resumed.err);
    let model = |folder: &std::path::Path| std::fs::read(folder.join("model.safetensors")).unwrap();
    assert!(model(&whole) == model(&cut), "the same bits");
}

#[test]
fn what_vanished_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let (data, run) = (dir.path().join("data"), dir.path().join("run"));
    let made = lacis(&["data", "generate", SMALL, "-o", text(&data), "-q"]);
    assert_eq!(made.code, Some(0), "{}", made.err);
    let args = ["train", text(&data), "--epochs", "2", "--out", text(&run), "-q"];
    assert_eq!(lacis(&args).code, Some(0));
    std::fs::remove_file(run.join("model.safetensors")).unwrap();
    let judged = lacis(&["eval", text(&run)]);
    assert_eq!(judged.code, Some(1));
    assert!(judged.err.contains("has no weights yet"), "{}", judged.err);
    assert_eq!(lacis(&["train", "--resume", text(&run), "-q"]).code, Some(0), "made again");
    std::fs::remove_dir_all(&data).unwrap();
    let judged = lacis(&["eval", text(&run)]);
    assert!(judged.err.contains(text(&data)), "{}", judged.err);
    assert_ne!(judged.code, Some(0));
}

#[test]
fn a_trace_has_every_step_of_some_epochs() {
    let dir = tempfile::tempdir().unwrap();
    let trace = dir.path().join("trace.json");
    let args = ["train", SMALL, "--epochs", "9", "--no-save", "-q", "--trace", text(&trace)];
    assert_eq!(lacis(&args).code, Some(0));
    let json: Value = serde_json::from_slice(&std::fs::read(&trace).unwrap()).unwrap();
    let events = json["traceEvents"].as_array().unwrap();
    let spans: Vec<&Value> = events.iter().filter(|e| e["ph"] == "X").collect();
    let count = |kind: &str, name: &str| {
        let of = |e: &&&Value| e["cat"] == kind && e["name"].as_str().unwrap().starts_with(name);
        spans.iter().filter(of).count()
    };
    assert_eq!((count("phase", "load"), count("phase", "plan")), (1, 1));
    assert_eq!((count("epoch", "epoch"), count("phase", "evaluate")), (9, 10));
    assert!(count("step", "gemm") >= 3 && count("step", "loss") == 3);
    assert!(spans.iter().all(|e| e["ts"].is_number() && e["dur"].as_f64() >= Some(0.0)));
    assert_eq!(lacis(&args).code, Some(1), "nothing is overwritten");
}

#[test]
fn a_loss_that_is_no_number_stops_with_advice() {
    let args = ["train", SMALL, "--optimizer", "sgd", "--lr", "1e9", "--no-save", "--json"];
    let ran = lacis(&args);
    assert_eq!(ran.code, Some(1), "{}", ran.err);
    assert!(ran.err.contains("smaller --lr"), "{}", ran.err);
    assert!(ran.out.lines().last().unwrap().contains("\"event\":\"error\""));
}

#[test]
fn torch_geometrics_spellings_and_slips_are_understood() {
    let spelt = ["train", SMALL, "--hidden-channels", "8", "--num-layers", "3", "--dry-run"];
    let ran = lacis(&spelt);
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    assert!(ran.out.contains("W3"), "three layers: {}", ran.out);
    for (slip, meant) in [("--hiden", "--hidden"), ("--epoch", "--epochs"), ("--modl", "--model")] {
        let ran = lacis(&["train", SMALL, slip, "3"]);
        assert_eq!(ran.code, Some(2));
        assert!(ran.err.contains(meant), "{slip}: {}", ran.err);
    }
    let ran = lacis(&["train", "no-such-file.csv", "--model", "gnc"]);
    assert!(ran.err.contains("did you mean 'gcn'?"), "before data is read: {}", ran.err);
}
