//! What the command says, to people and to programs.

use std::io::Read;
use std::process::Stdio;

use crate::{command, events, lacis, parse_events, ran, text};

#[test]
fn alone_it_gives_a_few_lines_to_try() {
    let ran = lacis(&[]);
    assert_eq!((ran.code, ran.err.as_str()), (Some(0), ""));
    assert!(ran.out.lines().count() < 24, "under one screen");
    assert!(ran.out.contains("lacis data info"));
}

#[test]
fn what_it_gives_to_try_works() {
    let dir = tempfile::tempdir().unwrap();
    for args in [&["data", "info"][..], &["data", "list"], &["doctor"], &["--help"]] {
        let ran = ran(command(args).current_dir(&dir).output().unwrap());
        assert_eq!(ran.code, Some(0), "{args:?}: {}", ran.err);
        assert!(!ran.out.is_empty() && !ran.err.contains("error"), "{args:?}: {}", ran.err);
    }
    let generate = ["data", "generate", "rmat:n=1k,e=5k", "-o", "big"];
    let ran = ran(command(&generate).current_dir(&dir).output().unwrap());
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    assert!(dir.path().join("big/meta.json").exists());
}

#[test]
fn every_verb_has_help() {
    for verb in ["info", "list", "generate", "convert", "validate"] {
        let ran = lacis(&["data", verb, "--help"]);
        assert_eq!(ran.code, Some(0), "{verb}");
        assert!(ran.out.contains("Usage: lacis data"), "{verb}: {}", ran.out);
        assert!(ran.out.contains("--threads"), "{verb}");
    }
    for verb in ["data", "doctor", "completions"] {
        assert_eq!(lacis(&[verb, "--help"]).code, Some(0), "{verb}");
    }
    assert!(lacis(&["completions", "bash"]).out.contains("_lacis"));
    assert!(lacis(&["--version"]).out.starts_with("lacis 0."));
}

#[test]
fn slips_get_a_suggestion_and_exit_code_2() {
    let slips: [(&[&str], &str); 6] = [
        (&["dtaa"], "'data'"),
        (&["data", "inof"], "'info'"),
        (&["data", "info", "--undirectd"], "'--undirected'"),
        (&["data", "info", "karatte"], "'karate'"),
        (&["data", "info", "rmta:n=5"], "'rmat'"),
        (&["data", "info", "--threads", "0"], "1..=4096"),
    ];
    for (args, suggestion) in slips {
        let ran = lacis(args);
        assert_eq!(ran.code, Some(2), "{args:?}: {}", ran.err);
        assert!(ran.err.contains(suggestion), "{args:?}: {}", ran.err);
        assert!(ran.out.is_empty(), "{args:?}: {}", ran.out);
    }
}

#[test]
fn what_is_not_there_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let ran = lacis(&["data", "info", "no/such/file.txt"]);
    assert_eq!(ran.code, Some(1));
    assert!(ran.err.contains("cannot open no/such/file.txt"), "{}", ran.err);
    assert!(ran.err.contains("lacis data list"), "{}", ran.err);
    let ran = lacis(&["data", "info", text(dir.path())]);
    assert_eq!(ran.code, Some(1));
    assert!(ran.err.contains("holds no graph file"), "{}", ran.err);
    std::fs::write(dir.path().join("a.txt"), "0 1\n").unwrap();
    assert_eq!(lacis(&["data", "info", text(dir.path())]).code, Some(0));
    std::fs::write(dir.path().join("b.txt"), "0 1\n").unwrap();
    let ran = lacis(&["data", "info", text(dir.path())]);
    assert!(ran.err.contains("name one: a.txt, b.txt"), "{}", ran.err);
    let ran = lacis(&["data", "info", "ogbn-products"]);
    assert!(ran.err.contains("GB"), "{}", ran.err);
}

#[test]
fn programs_get_json_lines_whatever_happens() {
    let lines = events(&["data", "info", "karate", "--json"]);
    assert_eq!((&lines[0]["event"], &lines[0]["schema"]), (&"start".into(), &1.into()));
    assert_eq!(lines[0]["command"], "data info");
    let data = &lines[1];
    assert_eq!((&data["nodes"], &data["edges"]), (&34.into(), &156.into()));
    assert_eq!((&data["undirected_edges"], &data["symmetric"]), (&78.into(), &true.into()));
    assert_eq!((&data["classes"], &data["degree"]["max"]), (&2.into(), &17.into()));
    let keys =
        ["format", "self_loops", "isolated", "features", "feature_nnz", "multilabel", "graphs"];
    assert!(keys.iter().all(|key| !data[key].is_null()), "{data}");
    assert!(data["splits"]["train"].is_u64());

    let failures =
        [(["data", "info", "no/file", "--json"], "io"), (["data", "inof", "x", "--json"], "usage")];
    for (args, kind) in failures {
        let ran = lacis(&args);
        assert_ne!(ran.code, Some(0));
        let lines = parse_events(&ran.out);
        assert_eq!(lines[0]["event"], "start");
        let last = lines.last().unwrap();
        assert_eq!((&last["event"], &last["kind"]), (&"error".into(), &kind.into()));
        assert!(last["message"].as_str().is_some_and(|m| !m.is_empty()));
    }
    assert!(events(&["data", "list", "--json"]).len() > 10);
    assert_eq!(events(&["doctor", "--json", "--threads", "3"])[1]["threads"]["count"], 3);
}

/// Terabytes: refused wherever the system counts what it promises.
#[test]
fn memory_that_nobody_has_is_an_error() {
    let mode = std::fs::read_to_string("/proc/sys/vm/overcommit_memory").unwrap_or_default();
    if mode.trim() == "1" {
        eprintln!("skipped: this system promises any amount of memory");
        return;
    }
    for data in ["rmat:e=1e12", "er:n=10M,e=1e12", "ba:n=4G,m=200"] {
        let ran = lacis(&["data", "info", data]);
        assert_eq!(ran.code, Some(1), "{data}: {}", ran.err);
        assert!(ran.err.contains("memory were refused"), "{data}: {}", ran.err);
    }
}

#[test]
fn the_built_in_set_says_that_it_is_synthetic() {
    let ran = lacis(&["data", "info"]);
    assert!(ran.out.contains("synthetic"), "{}", ran.out);
    assert_eq!(events(&["data", "info", "--json"])[1]["synthetic"], true);
}

#[test]
fn a_closed_pipe_ends_quietly() {
    let mut child =
        command(&["data", "list"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let mut err = String::new();
    child.stderr.take().unwrap().read_to_string(&mut err).unwrap();
    assert_eq!((child.wait().unwrap().code(), err.as_str()), (Some(0), ""));
}

/// `lacis train 2>&1 | head -1`: both streams are one pipe that nobody reads any more.
#[test]
fn a_closed_pipe_of_both_streams_is_no_panic() {
    let args = ["train", "karate", "--epochs", "3", "--no-save"];
    let mut shell = std::process::Command::new("sh");
    let command = format!("{} {} 2>&1 | head -1", env!("CARGO_BIN_EXE_lacis"), args.join(" "));
    let output = shell.args(["-c", &command]).output().unwrap();
    let ran = ran(output);
    assert_eq!((ran.code, ran.err.as_str()), (Some(0), ""));
    assert_eq!(ran.out.lines().count(), 1);
}

#[test]
fn threads_follow_the_environment() {
    let count = |name: &str, value: &str| {
        let output = command(&["doctor", "--json"]).env(name, value).output().unwrap();
        let lines = parse_events(&ran(output).out);
        (lines[1]["threads"]["count"].clone(), lines[1]["threads"]["decided_by"].clone())
    };
    assert_eq!(count("LACIS_THREADS", "5"), (5.into(), "LACIS_THREADS".into()));
    assert_eq!(count("OMP_NUM_THREADS", "1,2").0, 1);
    let bad = command(&["doctor"]).env("LACIS_THREADS", "many").output().unwrap();
    assert!(ran(bad).err.contains("LACIS_THREADS='many'"));
}
