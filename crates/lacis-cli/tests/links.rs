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
