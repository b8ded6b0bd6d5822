//! Runs that go on where they ended, are run again, or are judged later: as they were begun.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::Stdio;

use serde_json::Value;

use crate::{events, lacis, parse_events, text};

const SMALL: &str = "sbm:n=200,e=900,classes=3,features=10,seed=1";

fn train(folder: &Path, flags: &[&str]) {
    let ran = lacis(&[&["train", SMALL, "-q", "--out", text(folder)][..], flags].concat());
    assert_eq!(ran.code, Some(0), "{}", ran.err);
}

/// All files of a run, by their names.
fn content(folder: &Path) -> Vec<(std::path::PathBuf, Vec<u8>)> {
    let mut files = Vec::new();
    for place in [folder.to_owned(), folder.join("checkpoint")] {
        let paths = std::fs::read_dir(place).unwrap().map(|entry| entry.unwrap().path());
        let only = paths.filter(|path| path.is_file());
        files.extend(only.map(|path| (path.clone(), std::fs::read(path).unwrap())));
    }
    files.sort();
    files
}

/// The epochs of a run that was cut off before its last checkpoints.
fn cut_off(folder: &Path) {
    for file in ["summary.json", "model.safetensors"] {
        std::fs::remove_file(folder.join(file)).unwrap();
    }
}

/// Of two checkpoints, and what is written after them.
fn lose_the_last_checkpoint(folder: &Path) {
    let mut checkpoints: Vec<_> = std::fs::read_dir(folder.join("checkpoint"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    checkpoints.sort();
    assert!(checkpoints.len() > 1);
    std::fs::remove_file(checkpoints.last().unwrap()).unwrap();
    cut_off(folder);
}

fn model(folder: &Path) -> Vec<u8> {
    std::fs::read(folder.join("model.safetensors")).unwrap()
}

#[test]
fn a_run_that_lost_patience_has_ended() {
    let dir = tempfile::tempdir().unwrap();
    let run = dir.path().join("run");
    let early = ["--epochs", "400", "--patience", "3", "--lr", ".003", "--dropout", ".8"];
    train(&run, &early);
    let before = content(&run);
    let done: Value =
        serde_json::from_slice(&std::fs::read(run.join("summary.json")).unwrap()).unwrap();
    assert!(done["epochs"].as_u64().unwrap() < 400);
    for _ in 0..2 {
        let again = events(&["train", "--resume", text(&run), "--json"]);
        assert_eq!(again.last().unwrap()["event"], "done");
        assert_eq!(again.last().unwrap()["test"], done["test"]);
        assert!(again.iter().all(|line| line["event"] != "epoch"));
        assert!(content(&run) == before, "nothing is written");
    }
    let people = lacis(&["train", "--resume", text(&run)]);
    let score = format!("test {:.4}", done["test"].as_f64().unwrap());
    assert!(people.out.contains(&score), "{}", people.out);
    // Killed after the last checkpoint, it is finished to the same bits, and learns nothing more.
    cut_off(&run);
    assert_eq!(lacis(&["train", "--resume", text(&run), "-q"]).code, Some(0));
    let models = |files: &[(std::path::PathBuf, Vec<u8>)]| -> Vec<Vec<u8>> {
        let tensors = |path: &Path| path.extension().is_some_and(|e| e == "safetensors");
        files.iter().filter(|(path, _)| tensors(path)).map(|(_, bytes)| bytes.clone()).collect()
    };
    assert!(models(&content(&run)) == models(&before), "the same bits");
    let again: Value =
        serde_json::from_slice(&std::fs::read(run.join("summary.json")).unwrap()).unwrap();
    assert_eq!(again["test"], done["test"]);
    assert!(again["epoch_ms"].is_number());
}

#[test]
fn patience_goes_on_where_it_was() {
    let dir = tempfile::tempdir().unwrap();
    let (whole, cut) = (dir.path().join("whole"), dir.path().join("cut"));
    let early = ["--epochs", "400", "--patience", "9", "--eval-every", "3", "--lr", ".003"];
    let flags = [&early[..], &["--checkpoint-every", "1"]].concat();
    for folder in [&whole, &cut] {
        train(folder, &flags);
    }
    lose_the_last_checkpoint(&cut);
    assert_eq!(lacis(&["train", "--resume", text(&cut), "-q"]).code, Some(0));
    assert!(model(&whole) == model(&cut), "the same bits");
    let epochs = |folder: &Path| {
        std::fs::read_to_string(folder.join("metrics.jsonl")).unwrap().lines().count()
    };
    assert_eq!(epochs(&whole), epochs(&cut));
}

#[test]
fn a_flag_that_changes_a_run_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let run = dir.path().join("run");
    let begun = ["--epochs", "3", "--without", "fuse", "--time-limit", "1h", "--clip", "2"];
    train(&run, &begun);
    let changes = [
        "--clip=3",
        "--patience=5",
        "--sample=saint:2",
        "--num-neighbors=5,5",
        "--batch-size=7",
        "--hops=4",
        "--features=5",
        "--classes=9",
        "--metric=f1-macro",
        "--split=all",
        "--folds=3",
        "--val-data=karate",
        "--memory-limit=70%",
        "--approx-error=.1",
        "--hidden-channels=8",
        "--num-layers=3",
        "--plan=measured",
        "--without=hoist",
        "--out=elsewhere",
        "--undirected",
        "--residual",
    ];
    let resume = |more: &[&str]| lacis(&[&["train", "--resume", text(&run)][..], more].concat());
    for change in changes {
        let ran = resume(&[change]);
        assert_eq!(ran.code, Some(2), "{change}: {}", ran.err);
        let name = change.split('=').next().unwrap();
        assert!(ran.err.contains(name), "{change}: {}", ran.err);
    }
    let other = resume(&["karate"]);
    assert_eq!(other.code, Some(2));
    assert!(other.err.contains("DATA"), "{}", other.err);
    let id = events(&["train", "--resume", text(&run), "--json"]).last().unwrap()["plan"].clone();
    let file = run.join("plan.json");
    let same = [
        &["--time-limit", "2h"][..],
        &["--without", "fuse", SMALL],
        &["--plan", "auto", "--threads", "1", "--clip=2.0"],
        &["--plan", id.as_str().unwrap(), "--out", text(&run)],
        &["--plan", text(&file), "--hidden", "64", "--num-layers", "2", "--epochs", "3"],
    ];
    for flags in same {
        let ran = resume(flags);
        assert_eq!(ran.code, Some(0), "{flags:?}: {}", ran.err);
    }
}

#[test]
fn a_dry_run_of_a_run_that_goes_on_does_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let run = dir.path().join("run");
    train(&run, &["--epochs", "3"]);
    cut_off(&run);
    let before = content(&run);
    let ran = lacis(&["train", "--resume", text(&run), "--dry-run"]);
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    assert!(ran.out.contains("predicted"), "{}", ran.out);
    assert!(content(&run) == before);
    let nowhere = lacis(&["train", "--resume", "nowhere", "--json"]);
    assert_eq!(parse_events(&nowhere.out)[0]["event"], "start");
    let nowhere = lacis(&["train", "--config", "nowhere", "--json"]);
    assert_eq!(parse_events(&nowhere.out)[0]["event"], "start");
}

#[test]
fn a_configuration_runs_the_job_again_or_another_like_it() {
    let dir = tempfile::tempdir().unwrap();
    let (run, plan) = (dir.path().join("run"), dir.path().join("plan.json"));
    train(&run, &["--epochs", "3", "--save-plan", text(&plan)]);
    let config = run.join("config.toml");
    let again = |flags: &[&str]| {
        let args = ["train", "--config", text(&config), "--json"];
        let mut command = crate::command(&[&args[..], flags].concat());
        let ran = crate::ran(command.current_dir(dir.path()).output().unwrap());
        assert_eq!(ran.code, Some(0), "{flags:?}: {}", ran.err);
        parse_events(&ran.out).last().unwrap().clone()
    };
    let (first, seeded, deeper) = (again(&[]), again(&["--seed", "1"]), again(&["--layers", "3"]));
    assert_eq!(first["plan"], seeded["plan"]);
    assert_ne!(first["plan"], deeper["plan"], "a plan of its own");
}

#[test]
fn a_plan_is_not_written_over_unasked() {
    let dir = tempfile::tempdir().unwrap();
    let plan = dir.path().join("plan.json");
    std::fs::write(&plan, "mine").unwrap();
    let args = ["train", SMALL, "--epochs", "1", "--no-save", "--save-plan", text(&plan)];
    let refused = lacis(&args);
    assert_eq!(refused.code, Some(1), "{}", refused.err);
    assert_eq!(std::fs::read_to_string(&plan).unwrap(), "mine");
    assert_eq!(lacis(&[&args[..], &["--overwrite"]].concat()).code, Some(0));
    assert!(std::fs::read_to_string(&plan).unwrap().starts_with('{'));
}

#[test]
fn a_run_is_judged_as_it_was_begun() {
    let dir = tempfile::tempdir().unwrap();
    let run = dir.path().join("run");
    train(&run, &["--epochs", "20", "--metric", "f1-macro"]);
    let eval = |flags: &[&str]| lacis(&[&["eval", text(&run), "--json"][..], flags].concat());
    let last = |ran: &crate::Ran| parse_events(&ran.out).last().unwrap().clone();
    assert_eq!(last(&eval(&[]))["metric"], "f1-macro");
    assert_eq!(last(&eval(&["--metric", "accuracy"]))["metric"], "accuracy");
    assert_eq!(eval(&["--task", "node"]).code, Some(0));
    let task = eval(&["--task", "link"]);
    assert_eq!(task.code, Some(2));
    assert!(task.err.contains("predicts nodes"), "{}", task.err);
    let more = eval(&["sbm:n=200,e=900,classes=5,features=10,seed=1"]);
    assert_eq!(more.code, Some(2));
    assert!(more.err.contains("has 5 classes; the network knows 3"), "{}", more.err);
    // Whoever is taken for the third of three classes is wrong where there are two.
    let fewer = "sbm:n=200,e=900,classes=2,features=10,seed=1";
    let (own, test) = (eval(&[fewer, "--split", "all"]), eval(&["--test-data", fewer]));
    assert_eq!((own.code, test.code), (Some(0), Some(0)), "{}{}", own.err, test.err);
    assert_eq!(last(&own)["train"], last(&test)["test"]);
}

#[test]
fn what_would_never_end_or_never_begin_is_refused() {
    let cases: [(&[&str], &str); 6] = [
        (&["--folds", "2"], "from 3 on"),
        (&["--sample", "saint:2", "--batch-size", "99999999999"], "walks of 2 steps"),
        (&["--sample", "saint:99999999"], "1 to 1024 steps"),
        (&["--patience", "5", "--eval-every", "0"], "--patience"),
        (&["--schedule", "plateau", "--eval-every", "0"], "--schedule plateau"),
        (&["--overwrite"], "--save-plan"),
    ];
    for (flags, right) in cases {
        let ran = lacis(&[&["train", SMALL, "--no-save"][..], flags].concat());
        assert_eq!(ran.code, Some(2), "{flags:?}: {}", ran.err);
        assert!(ran.err.contains(right), "{flags:?}: {}", ran.err);
    }
}

/// Interrupted in the second of three runs: the first stays, the second goes on, the third follows.
#[test]
fn a_job_of_several_runs_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let (whole, cut) = (dir.path().join("whole"), dir.path().join("cut"));
    let args = |out: &Path| -> Vec<String> {
        let flags =
            format!("train {SMALL} --epochs 1200 --hidden 32 --runs 3 --seed 5 --json --out");
        flags.split(' ').map(str::to_owned).chain([text(out).to_owned()]).collect()
    };
    let begin = |out: &Path| {
        let args = args(out);
        let mut command = crate::command(&args.iter().map(String::as_str).collect::<Vec<_>>());
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    let done = |ran: crate::Ran| {
        assert_eq!(ran.code, Some(0), "{}", ran.err);
        parse_events(&ran.out).last().unwrap().clone()
    };
    let expected = done(crate::ran(begin(&whole).wait_with_output().unwrap()));
    let mut child = begin(&cut);
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap().contains("\"event\":\"run\"")));
    lines.by_ref().take(100).for_each(drop);
    let pid = child.id().to_string();
    assert!(std::process::Command::new("kill").args(["-INT", &pid]).status().unwrap().success());
    lines.for_each(drop);
    let told = crate::ran(child.wait_with_output().unwrap());
    assert_eq!(told.code, Some(130), "{}", told.err);
    let advice = format!("lacis train --resume {}` goes on", text(&cut));
    assert!(told.err.contains(&advice), "{}", told.err);
    let resume =
        |more: &[&str]| lacis(&[&["train", "--resume", text(&cut), "--json"][..], more].concat());
    let changed = resume(&["--seed", "6"]);
    assert!(changed.code == Some(2) && changed.err.contains("--seed"), "{}", changed.err);
    let resumed = done(resume(&[]));
    assert_eq!((&resumed["tests"], &resumed["runs"]), (&expected["tests"], &expected["runs"]));
    let models = |folder: &Path| -> Vec<Vec<u8>> {
        let mut runs: Vec<_> =
            std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
        runs.sort();
        runs.iter().map(|run| std::fs::read(run.join("model.safetensors")).unwrap()).collect()
    };
    assert_eq!(models(&cut).len(), 3);
    assert!(models(&whole) == models(&cut), "the same bits");
    assert_eq!(done(resume(&[]))["tests"], expected["tests"], "a finished job only tells");
    assert_eq!(models(&cut).len(), 3);
    // Beside another job, those that are not finished are meant.
    let other = ["train", SMALL, "--epochs", "2", "--folds", "3", "--out", text(&cut), "-q"];
    assert_eq!(lacis(&other).code, Some(0));
    let finished = resume(&[]);
    assert_eq!(finished.code, Some(1), "{}", finished.err);
    assert!(finished.err.contains("all finished"), "{}", finished.err);
    cut_off(&cut.join("sbm-gcn-4"));
    assert_eq!(done(resume(&[]))["runs"], 3);
}

/// The trainings that would follow are left to the next job.
#[test]
fn a_time_that_is_over_ends_a_job() {
    let dir = tempfile::tempdir().unwrap();
    let job = dir.path().join("job");
    let args = ["--epochs", "1000000", "--runs", "3", "--time-limit", "1s", "--out", text(&job)];
    let lines = events(&[&["train", SMALL, "--json"][..], &args].concat());
    let done = lines.last().unwrap();
    assert_eq!((&done["event"], &done["runs"]), (&"done".into(), &1.into()));
    assert_eq!(std::fs::read_dir(&job).unwrap().count(), 1);
}

#[test]
fn a_folder_without_a_job_is_no_run() {
    let dir = tempfile::tempdir().unwrap();
    let ran = lacis(&["train", "--resume", text(dir.path())]);
    assert_eq!(ran.code, Some(1), "{}", ran.err);
    assert!(ran.err.contains("is no folder of a run, and holds no runs"), "{}", ran.err);
}

/// Pairs that were chosen for one batch are none of the next one's.
#[test]
fn approximated_batches_go_on() {
    let dir = tempfile::tempdir().unwrap();
    let (whole, cut) = (dir.path().join("whole"), dir.path().join("cut"));
    let sampled = ["--sample", "neighbor:5,5", "--batch-size", "32", "--split", "all"];
    let approx = ["--approx", "adaptive", "--approx-bound", "inf", "--approx-force"];
    let flags = [&sampled[..], &approx, &["--epochs", "8", "--checkpoint-every", "1"]].concat();
    for folder in [&whole, &cut] {
        train(folder, &flags);
    }
    lose_the_last_checkpoint(&cut);
    let ran = lacis(&["train", "--resume", text(&cut), "-q"]);
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    assert!(model(&whole) == model(&cut), "the same bits");
}

#[test]
fn a_bound_without_end_is_kept() {
    let dir = tempfile::tempdir().unwrap();
    let (run, again) = (dir.path().join("run"), dir.path().join("again"));
    let approx = ["--approx", "rsc", "--approx-budget", "0.05", "--approx-force"];
    train(&run, &[&approx[..], &["--approx-bound", "inf", "--epochs", "20"]].concat());
    let config = run.join("config.toml");
    let ran = lacis(&["train", "--config", text(&config), "--out", text(&again), "-q"]);
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    assert!(model(&run) == model(&again), "the same bits");
    let bounded = dir.path().join("bounded");
    train(&bounded, &[&approx[..], &["--epochs", "20"]].concat());
    assert!(model(&run) != model(&bounded), "rsc's own bound leaves products exact");
}

/// Random features are those of the job, whatever the seed of a run.
#[test]
fn each_run_of_a_job_knows_the_data_of_all() {
    let dir = tempfile::tempdir().unwrap();
    let job = dir.path().join("job");
    let args = ["train", "karate", "--features", "random:8", "--runs", "2", "--epochs", "30"];
    let lines = events(&[&args[..], &["--json", "--out", text(&job)]].concat());
    let runs: Vec<&Value> = lines.iter().filter(|line| line["event"] == "run").collect();
    assert_eq!(runs.len(), 2);
    for run in runs {
        let folder = run["run"].as_str().unwrap();
        let judged = events(&["eval", folder, "--json"]);
        assert_eq!(judged.last().unwrap()["test"], run["test"], "{folder}");
        let again = dir.path().join("again").join(run["seed"].to_string());
        std::fs::create_dir_all(again.parent().unwrap()).unwrap();
        let config = Path::new(folder).join("config.toml");
        let ran = lacis(&["train", "--config", text(&config), "--out", text(&again), "-q"]);
        assert_eq!(ran.code, Some(0), "{}", ran.err);
        assert!(model(Path::new(folder)) == model(&again), "the same bits");
    }
}
