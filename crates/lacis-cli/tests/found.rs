//! What testers found, each named after what broke.

use std::path::Path;

use serde_json::json;

use crate::{Ran, command, events, lacis, parse_events, ran, text};

const SMALL: &str = "sbm:n=80,e=300,classes=3,features=6,seed=1";

/// A folder of a user's own tables, in a line.
fn tables(dir: &Path, nodes: &str) -> std::path::PathBuf {
    let [edges, table, graph] = ["e.csv", "n.csv", "graph"].map(|name| dir.join(name));
    std::fs::write(&edges, "source,target\n1,2\n2,3\n3,4\n4,5\n5,6\n6,1\n").unwrap();
    std::fs::write(&table, nodes).unwrap();
    let args = ["--edges", text(&edges), "--nodes", text(&table), "--undirected"];
    let made = lacis(&[&["data", "convert"][..], &args, &["-o", text(&graph)]].concat());
    assert_eq!(made.code, Some(0), "{}", made.err);
    graph
}

fn failed(ran: &Ran, code: i32, words: &[&str]) {
    assert_eq!(ran.code, Some(code), "{}", ran.err);
    words.iter().for_each(|word| assert!(ran.err.contains(word), "{word}: {}", ran.err));
}

#[test]
fn the_first_line_is_start_whatever_fails() {
    for args in [
        &["eval", "nowhere", "--html", "page.html"][..],
        &["predict", "nowhere", "-o", "x.csv", "--memory-limit", "much"],
        &["report", "nowhere", "-o", "x.html"],
        &["bench", "train", "nowhere.toml"],
        &["bench", "table", "nowhere.jsonl"],
    ] {
        let ran = lacis(&[args, &["--json"]].concat());
        let lines = parse_events(&ran.out);
        let kinds: Vec<&str> = lines.iter().map(|line| line["event"].as_str().unwrap()).collect();
        assert_eq!(kinds, ["start", "error"], "{args:?}");
        let verbs: Vec<&str> =
            args.iter().copied().take_while(|word| !word.starts_with("nowhere")).collect();
        assert_eq!(lines[0]["command"], verbs.join(" "));
    }
}

#[test]
fn numbers_to_be_predicted_may_be_missing() {
    let dir = tempfile::tempdir().unwrap();
    let graph = tables(dir.path(), "id,x,y\n1,1,0.5\n2,2,1.5\n3,3,\n4,4,2.25\n5,5,3.5\n6,6,4\n");
    let info = events(&["data", "info", text(&graph), "--json"]);
    let info = info.last().unwrap();
    assert_eq!((&info["classes"], &info["targets"]), (&0.into(), &1.into()), "{info}");
    assert_eq!(info["labelled"], 5);
    assert_eq!(lacis(&["data", "validate", text(&graph)]).code, Some(0));
    let done = events(&["train", text(&graph), "--epochs", "3", "--no-save", "--json"]);
    let done = done.last().unwrap();
    assert_eq!((&done["metric"], &done["train_nodes"]), (&"mae".into(), &3.into()), "{done}");
}

#[test]
fn who_has_no_label_does_not_train() {
    let dir = tempfile::tempdir().unwrap();
    let nodes = "id,x,y,split\n1,1,a,train\n2,2,,train\n3,3,b,val\n4,4,,test\n5,5,a,test\n6,6,b,\n";
    let graph = tables(dir.path(), nodes);
    let done = events(&["train", text(&graph), "--epochs", "2", "--no-save", "--json"]);
    assert_eq!(done.last().unwrap()["train_nodes"], 1);
    let dry = lacis(&["train", text(&graph), "--dry-run"]);
    assert!(dry.out.contains("less 2 without a label"), "{}", dry.out);
    let nobody = tempfile::tempdir().unwrap();
    let graph = tables(nobody.path(), &nodes.replace("train", "val"));
    for verb in ["train", "explain", "analyze"] {
        failed(&lacis(&[verb, text(&graph)]), 2, &["training part", "--split"]);
    }
}

#[test]
fn numbers_that_f32_has_not_are_named() {
    let dir = tempfile::tempdir().unwrap();
    let [edges, nodes] = ["e.csv", "n.csv"].map(|name| dir.path().join(name));
    std::fs::write(&edges, "source,target\n1,2\n").unwrap();
    std::fs::write(&nodes, "id,mass\n1,2\n2,1e60\n").unwrap();
    let out = dir.path().join("graph");
    let args = ["--edges", text(&edges), "--nodes", text(&nodes), "-o", text(&out)];
    let ran = lacis(&[&["data", "convert"][..], &args].concat());
    failed(&ran, 1, &["row 2", "'mass'", "too large"]);
}

#[test]
fn classes_of_several_words_are_columns_of_parquet_too() {
    let dir = tempfile::tempdir().unwrap();
    let rows = (1..7).map(|i| format!("{i},{i},\"{}\"\n", ["far, away;", "near by"][i % 2]));
    let nodes = format!("id,x,y\n{}", rows.collect::<String>());
    let graph = tables(dir.path(), &nodes);
    let (run, out) = (dir.path().join("run"), dir.path().join("p.parquet"));
    events(&["train", text(&graph), "--epochs", "1", "--out", text(&run), "--json"]);
    let ran = lacis(&["predict", text(&run), "--what", "probs", "-o", text(&out)]);
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    assert!(std::fs::read(out).unwrap().starts_with(b"PAR1"));
}

#[test]
fn a_run_is_used_from_another_folder() {
    let dir = tempfile::tempdir().unwrap();
    tables(dir.path(), "id,x,y\n1,1,a\n2,2,b\n3,3,a\n4,4,b\n5,5,a\n6,6,b\n");
    std::fs::write(dir.path().join("parts.csv"), "node,part\n1,train\n2,train\n3,val\n4,test\n")
        .unwrap();
    let args = ["train", "graph", "--split", "parts.csv", "--epochs", "2", "--out", "run"];
    let began = ran(command(&args).current_dir(dir.path()).output().unwrap());
    assert_eq!(began.code, Some(0), "{}", began.err);
    let run = dir.path().join("run");
    let csv = dir.path().join("labels.csv");
    for args in [
        &["eval", text(&run)][..],
        &["predict", text(&run), "-o", text(&csv)],
        &["train", "--resume", text(&run)],
        &["train", "--config", text(&run.join("config.toml")), "--no-save"],
    ] {
        let again = lacis(args);
        assert_eq!(again.code, Some(0), "{args:?}: {}", again.err);
    }
}

#[test]
fn what_does_nothing_for_a_task_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let run = dir.path().join("run");
    let link = ["train", SMALL, "--task", "link", "--epochs", "1"];
    events(&[&link[..], &["--out", text(&run), "--json"]].concat());
    for flags in [["--split", "all"], ["--folds", "3"], ["--val-data", SMALL]] {
        let ran = lacis(&[&link[..], &flags, &["--no-save"]].concat());
        failed(&ran, 2, &[flags[0], "links"]);
    }
    failed(&lacis(&["eval", text(&run), "--split", "all"]), 2, &["--split"]);
    failed(&lacis(&["train", SMALL, "--batch-size", "9", "--no-save"]), 2, &["--batch-size"]);
    failed(&lacis(&["train", SMALL, "--momentum", "0.5", "--no-save"]), 2, &["--momentum", "adam"]);
}

#[test]
fn no_kind_of_parallelism_makes_one_worker_faster() {
    for flags in [
        &["--model", "gcn"][..],
        &["--model", "gat"],
        &["--model", "gatedgcn"],
        &["--task", "link"],
    ] {
        let args = [&["analyze", SMALL, "--workers", "1", "--json"][..], flags].concat();
        let found = events(&args);
        let found = found.last().unwrap();
        let alone = found["predicted_epoch_ms"].as_f64().unwrap();
        for kind in found["parallelism"].as_array().unwrap() {
            let ms = kind["predicted_ms"].as_f64().unwrap();
            assert!(ms > 0.999 * alone, "{flags:?}: {} takes {ms} of {alone} ms", kind["kind"]);
            assert!(kind["volume_bytes"].as_f64().unwrap().is_sign_positive(), "{kind}");
        }
    }
}

#[test]
fn a_finished_run_whose_weights_are_damaged_gets_them_back() {
    let dir = tempfile::tempdir().unwrap();
    let run = dir.path().join("run");
    events(&["train", SMALL, "--epochs", "3", "--out", text(&run), "--json"]);
    let model = run.join("model.safetensors");
    let whole = std::fs::read(&model).unwrap();
    for left in [0, whole.len() / 2] {
        std::fs::write(&model, &whole[..left]).unwrap();
        assert_eq!(lacis(&["eval", text(&run)]).code, Some(1));
        assert_eq!(lacis(&["train", "--resume", text(&run), "-q"]).code, Some(0));
        assert!(std::fs::read(&model).unwrap() == whole);
    }
    std::fs::write(run.join("config.toml"), "").unwrap();
    failed(&lacis(&["eval", text(&run)]), 1, &["config.toml", "no configuration"]);
}

#[test]
fn a_file_that_is_a_number_is_no_record() {
    let dir = tempfile::tempdir().unwrap();
    let (file, page) = (dir.path().join("f"), dir.path().join("p.html"));
    for content in ["3\n", "\"lines\"", "[1, 2]", "true", "{\"lines\": 3}"] {
        std::fs::write(&file, content).unwrap();
        for args in [
            &["report", text(&file), "-o", text(&page)][..],
            &["bench", "compare", text(&file), text(&file)],
            &["tune", "--from", text(&file), "--machine", text(&page)],
        ] {
            failed(&lacis(args), 1, &[text(&file)]);
        }
    }
    let op = r#"{"event":"op","op":"spmm","engine":"lacis","graph":"g","k":1,"ms":0}"#;
    std::fs::write(&file, op).unwrap();
    failed(&lacis(&["bench", "compare", text(&file), text(&file)]), 1, &["no times"]);
}

#[test]
fn a_configuration_names_its_command_and_data() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("c.toml");
    let text_of =
        |data: &str| format!("command = 'train'\ndata = {data}\nepochs = 1\nno_save = true\n");
    std::fs::write(&file, text_of(&format!("'{SMALL}'"))).unwrap();
    let lines = events(&["--json", "--config", text(&file)]);
    assert_eq!(lines[0]["config"]["source"]["data"], SMALL, "{}", lines[0]);
    std::fs::write(&file, text_of("5")).unwrap();
    failed(&lacis(&["train", "--config", text(&file)]), 2, &["c.toml", "'data'", "text"]);
}

#[test]
fn graphs_and_nodes_are_not_mixed_up() {
    let dir = tempfile::tempdir().unwrap();
    let (nodes, graphs) = ("sbm:n=60,e=200,classes=3,features=3,seed=1", "motifs:graphs=9,seed=1");
    for (at, (own, other)) in [(nodes, graphs), (graphs, nodes)].into_iter().enumerate() {
        let run = dir.path().join(at.to_string());
        events(&["train", own, "--epochs", "1", "--out", text(&run), "--json"]);
        let csv = dir.path().join("x.csv");
        for args in
            [&["eval", text(&run), other][..], &["predict", text(&run), other, "-o", text(&csv)]]
        {
            failed(&lacis(args), 2, &["the run predicts", "graph"]);
        }
    }
}

#[test]
fn a_page_of_lines_that_somebody_made_up_ends() {
    let dir = tempfile::tempdir().unwrap();
    let (file, page) = (dir.path().join("f.jsonl"), dir.path().join("p.html"));
    let plan =
        json!({ "event": "plan", "id": "a", "steps": [7, "step", [], null, { "formula": 3 }] });
    let span = json!({ "worker": u64::MAX, "stage": u64::MAX, "iteration": u64::MAX });
    let schedule = json!({ "workers": u64::MAX, "spans": [span, 5] });
    let analysis = json!({ "event": "analysis", "layers": 3, "schedule": schedule });
    std::fs::write(&file, format!("{plan}\n{analysis}\n")).unwrap();
    let ran = lacis(&["report", text(&file), "-o", text(&page)]);
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    assert!(std::fs::metadata(page).unwrap().len() < 1 << 20);
}
