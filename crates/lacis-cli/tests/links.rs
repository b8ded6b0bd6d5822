//! `--task link`: trained, judged again, asked about pairs.

use crate::{events, lacis, parse_events, text};

const GROUPS: &str = "sbm:n=300,e=2400,classes=6,features=16,seed=5";

#[test]
fn a_run_of_links_is_judged_and_asked_again() {
    let dir = tempfile::tempdir().unwrap();
    let run = dir.path().join("run");
    let flags = ["--task", "link", "--hidden", "16", "--dropout", "0", "--json"];
    let args = [&["train", GROUPS, "--epochs", "40", "--out", text(&run)][..], &flags].concat();
    let lines = events(&args);
    let done = lines.last().unwrap();
    assert_eq!((&done["event"], &done["metric"]), (&"done".into(), &"roc-auc".into()));
    assert!(done["test"].as_f64().unwrap() > 0.7, "{done}");
    let epochs = lines.iter().filter(|line| line["event"] == "epoch");
    assert!(epochs.clone().count() == 40 && epochs.clone().all(|line| line["val"].is_f64()));

    let judged = events(&["eval", text(&run), "--json"]);
    assert_eq!(judged.last().unwrap()["test"], done["test"]);
    for metric in ["ap", "hits@20", "mrr"] {
        let judged = events(&["eval", text(&run), "--metric", metric, "--json"]);
        let test = judged.last().unwrap()["test"].as_f64().unwrap();
        assert!(test > 0.0 && test <= 1.0, "{metric} {test}");
    }
    assert_eq!(lacis(&["eval", text(&run), "--metric", "accuracy"]).code, Some(2));

    let pairs = dir.path().join("pairs.csv");
    std::fs::write(&pairs, "source,target\n0,1\n299,5\n").unwrap();
    let scores = dir.path().join("scores.csv");
    let asked = ["predict", text(&run), "--pairs", text(&pairs), "-o"];
    assert_eq!(lacis(&[&asked[..], &[text(&scores)]].concat()).code, Some(0));
    let written = std::fs::read_to_string(&scores).unwrap();
    assert!(written.starts_with("source,target,prob,logit\n0,1,0."), "{written}");
    assert_eq!(written.lines().count(), 3);
    std::fs::write(&pairs, "0,300\n1,2\n").unwrap();
    let wrong = lacis(&[&asked[..], &[text(&dir.path().join("x.csv"))]].concat());
    assert!(wrong.code != Some(0) && wrong.err.contains("0,300"), "{}", wrong.err);
    let unasked = lacis(&["predict", text(&run), "-o", text(&dir.path().join("x.csv"))]);
    assert!(unasked.err.contains("--pairs"), "{}", unasked.err);
}

/// Nodes called as people are, each with an edge to the next and to the one after it.
fn acquaintances(dir: &std::path::Path) -> std::path::PathBuf {
    let name = |i: usize| format!("\"Doe, {}\"", i % 60);
    let (mut links, mut rows) = (String::from("source,target\n"), String::from("id,x,z\n"));
    for i in 0..60 {
        links += &format!("{},{}\n{},{}\n", name(i), name(i + 1), name(i), name(i + 2));
        rows += &format!("{},{},{}\n", name(i), i % 3, (i * 7) % 5);
    }
    let (edges, nodes, graph) = (dir.join("e.csv"), dir.join("n.csv"), dir.join("graph"));
    std::fs::write(&edges, links).unwrap();
    std::fs::write(&nodes, rows).unwrap();
    let tables = ["--edges", text(&edges), "--nodes", text(&nodes), "-o", text(&graph)];
    let ran = lacis(&[&["data", "convert"][..], &tables].concat());
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    graph
}

#[test]
fn names_with_commas_come_back_in_quotes_and_tables() {
    let dir = tempfile::tempdir().unwrap();
    let (data, run) = (acquaintances(dir.path()), dir.path().join("run"));
    let flags = ["--task", "link", "--decoder", "mlp", "--undirected"];
    let sizes = ["--hidden", "16", "--embedding", "6", "--epochs", "5", "--out", text(&run)];
    events(&[&["train", text(&data), "--json"][..], &flags, &sizes].concat());
    let pairs = dir.path().join("pairs.csv");
    std::fs::write(&pairs, "source,target\n\"Doe, 1\",\"Doe, 2\"\n\"Doe, 7\",\"Doe, 30\"\n")
        .unwrap();
    let asked = |output: &str, more: &[&str]| {
        let output = dir.path().join(output);
        let args = ["predict", text(&run), "--pairs", text(&pairs), "-o", text(&output), "--json"];
        (lacis(&[&args[..], more].concat()), output)
    };
    let (ran, csv) = asked("scores.csv", &[]);
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    let written = std::fs::read_to_string(csv).unwrap();
    assert!(written.lines().nth(1).unwrap().starts_with("\"Doe, 1\",\"Doe, 2\",0."), "{written}");
    let (ran, table) = asked("scores.parquet", &[]);
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    assert!(std::fs::read(table).unwrap().starts_with(b"PAR1"));
    for (more, named) in [
        (&["--what", "embeddings"][..], "--what embeddings"),
        (&["--nodes", text(&pairs)], "--nodes"),
        (&["--memory-limit", "1K"], "--memory-limit"),
    ] {
        let (ran, output) = asked("no.csv", more);
        assert!(ran.code == Some(2) && ran.err.contains(named), "{named}: {}", ran.err);
        assert!(!output.exists());
    }
    std::fs::write(&pairs, "\"Doe, 1\",\"Doe, 2\"\n\"Doe, 1\",nobody\n").unwrap();
    let (ran, _) = asked("wrong.csv", &[]);
    assert!(ran.err.contains("line 2") || ran.err.contains("pairs.csv:2"), "{}", ran.err);
    assert!(ran.err.contains("nobody"), "{}", ran.err);
}

#[test]
fn nodes_of_a_run_of_links_have_embeddings() {
    let dir = tempfile::tempdir().unwrap();
    let run = dir.path().join("run");
    let flags = ["--task", "link", "--decoder", "mlp", "--hidden", "16", "--embedding", "6"];
    let rest = ["--epochs", "3", "--out", text(&run), "--json"];
    events(&[&["train", GROUPS][..], &flags, &rest].concat());
    let (rows, nodes) = (dir.path().join("z.csv"), dir.path().join("nodes"));
    std::fs::write(&nodes, "7\n3\n").unwrap();
    let asked = ["predict", text(&run), "--what", "embeddings", "-o", text(&rows)];
    let more = ["--nodes", text(&nodes), "--json"];
    let done = events(&[&asked[..], &more].concat());
    let done = done.last().unwrap();
    assert_eq!((&done["rows"], &done["columns"]), (&2.into(), &6.into()), "{done}");
    assert!(std::fs::read_to_string(&rows).unwrap().contains("\n7,"));
    let narrow = "sbm:n=100,e=300,classes=3,features=4,seed=1";
    let pairs = dir.path().join("pairs.csv");
    std::fs::write(&pairs, "0,1\n").unwrap();
    let output = dir.path().join("x.csv");
    for args in [
        &["predict", text(&run), narrow, "--pairs", text(&pairs), "-o", text(&output)][..],
        &["eval", text(&run), narrow],
    ] {
        let wrong = lacis(args);
        assert!(wrong.code == Some(2) && wrong.err.contains("4 features"), "{}", wrong.err);
    }
    let nodes_run = dir.path().join("nodes-run");
    events(&["train", GROUPS, "--epochs", "1", "--out", text(&nodes_run), "--json"]);
    let no = lacis(&["predict", text(&nodes_run), "--pairs", text(&pairs), "-o", text(&output)]);
    assert!(no.code == Some(2) && no.err.contains("--pairs"), "{}", no.err);
}

#[test]
fn what_does_nothing_is_named() {
    for (flags, named) in [
        (&["--model", "gcn2", "--jumping"][..], "--jumping"),
        (&["--model", "sgc", "--norm", "batch"], "--norm"),
        (&["--aggregate", "max"], "--aggregate"),
        (&["--decoder", "mlp"], "--decoder"),
        (&["--embedding", "8"], "--embedding"),
        (&["--task", "link", "--embedding", "0"], "embedding"),
        (&["--model", "sage", "--teleport", "0.3"], "--teleport"),
        (&["--model", "gat", "--negative-slope", "-1"], "negative-slope"),
        (&["--model", "sage", "--heads", "4"], "--heads"),
        (&["--model", "gcn", "--edge-dropout", "0.5"], "--edge-dropout"),
        (&["--model", "appnp", "--edge-dropout", "1"], "edge-dropout"),
    ] {
        let ran = lacis(&[&["train", GROUPS, "--no-save", "--epochs", "1"][..], flags].concat());
        assert!(ran.code == Some(2) && ran.err.contains(named), "{named}: {}", ran.err);
    }
    for flags in [
        &["--model", "gat", "--heads", "4", "--out-heads", "3", "--negative-slope", "0.1"][..],
        &["--model", "gcn", "--no-normalize", "--jumping=max"],
        &["--model", "gcn", "--jumping"],
        &["--model", "appnp", "--edge-dropout", "0.4"],
        &["--model", "gcn2", "--teleport", "0.2", "--theta", "1", "--no-shared-weights"],
    ] {
        let dir = tempfile::tempdir().unwrap();
        let run = dir.path().join("run");
        let args = ["train", GROUPS, "--epochs", "2", "--out", text(&run), "--json"];
        let done = events(&[&args[..], flags].concat());
        // The configuration that a run keeps makes the same network again.
        let judged = events(&["eval", text(&run), "--json"]);
        assert_eq!(judged.last().unwrap()["test"], done.last().unwrap()["test"], "{flags:?}");
    }
    let dry = lacis(&["train", GROUPS, "--task", "link", "--dry-run"]);
    assert!(dry.out.contains("edges train") && !dry.out.contains("no labels"), "{}", dry.out);
    assert!(!dry.out.contains("0 train"), "{}", dry.out);
}

#[test]
fn other_graphs_choose_and_judge() {
    let dir = tempfile::tempdir().unwrap();
    let run = dir.path().join("run");
    let graph = |seed: u32| format!("sbm:n=240,e=1400,classes=3,features=10,seed={seed}");
    let (train, val, test) = (graph(1), graph(2), graph(3));
    let others = ["--val-data", &val, "--test-data", &test];
    let flags = ["--epochs", "30", "--out", text(&run), "--json"];
    let lines = events(&[&["train", &train][..], &others, &flags].concat());
    let done = lines.last().unwrap();
    assert_eq!(done["train_nodes"], 240, "all nodes of the first graph train");
    assert!(done["val"].is_f64() && done["test"].is_f64());
    let judged = events(&["eval", text(&run), "--json"]);
    for part in ["train", "val", "test"] {
        assert_eq!(judged.last().unwrap()[part], done[part], "{part}");
    }
    let turned = events(&["eval", text(&run), "--test-data", &val, "--json"]);
    assert_eq!(turned.last().unwrap()["test"], done["val"]);
    let other = events(&["eval", text(&run), &test, "--json"]);
    let other = other.last().unwrap();
    assert_eq!((&other["test"], other["train"].is_null()), (&done["test"], true), "{other}");
    let narrow = "sbm:n=100,e=300,classes=3,features=4,seed=1";
    let wrong = lacis(&["train", &train, "--test-data", narrow, "--no-save"]);
    assert!(wrong.code == Some(2) && wrong.err.contains("4 features"), "{}", wrong.err);
}

#[test]
fn a_split_comes_from_a_file() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("mine.csv");
    let lines: Vec<String> =
        (0..100).map(|i| format!("{i},{}", ["train", "val", "test", ""][i % 4])).collect();
    std::fs::write(&file, format!("node,part\n{}\n", lines.join("\n"))).unwrap();
    let data = "sbm:n=100,e=500,classes=2,features=6,seed=1";
    let args = ["train", data, "--split", text(&file), "--epochs", "3", "--no-save", "--json"];
    assert_eq!(events(&args).last().unwrap()["train_nodes"], 25);
    let share = |share: &str| {
        let args = ["train", data, "--split", share, "--epochs", "1", "--no-save", "--json"];
        lacis(&args)
    };
    let tenth = parse_events(&share("random:0.1").out);
    assert_eq!(tenth.last().unwrap()["train_nodes"], 10);
    let wrong = share("random:2");
    assert!(wrong.code == Some(2) && wrong.err.contains("random:0.1"), "{}", wrong.err);
    let wrong = lacis(&["train", data, "--split", "nowhere.csv", "--no-save"]);
    assert!(wrong.code == Some(2) && wrong.err.contains("nowhere.csv"), "{}", wrong.err);
}
