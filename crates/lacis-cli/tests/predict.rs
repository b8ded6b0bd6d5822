//! What a run predicts: of all or some nodes, on its own graph or a new one, in every format.

use std::path::{Path, PathBuf};

use crate::{events, lacis, text};

const SMALL: &str = "sbm:n=300,e=1500,classes=3,features=10,seed=1";

const SHORT: [&str; 4] = ["--epochs", "8", "--hidden", "16"];

fn trained(dir: &Path, data: &str, more: &[&str]) -> PathBuf {
    let run = dir.join("run");
    let args = ["train", data, "--out", text(&run), "-q"];
    let ran = lacis(&[&args[..], more].concat());
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    run
}

/// Runs `lacis predict` and reads the CSV file it wrote.
fn predicted(run: &Path, more: &[&str]) -> Vec<Vec<String>> {
    let file = run.parent().unwrap().join("out.csv");
    let args = ["predict", text(run), "-o", text(&file), "--overwrite"];
    let ran = lacis(&[&args[..], more].concat());
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    let text = std::fs::read_to_string(file).unwrap();
    text.lines().map(|line| line.split(',').map(str::to_owned).collect()).collect()
}

fn numbers(rows: &[Vec<String>]) -> Vec<Vec<f64>> {
    let of = |row: &Vec<String>| row[1..].iter().map(|cell| cell.parse().unwrap()).collect();
    rows[1..].iter().map(of).collect()
}

#[test]
fn classes_have_the_names_that_the_user_gave_them() {
    let dir = tempfile::tempdir().unwrap();
    let [edges, nodes] = ["edges.csv", "nodes.csv"].map(|name| dir.path().join(name));
    std::fs::write(&edges, "source,target\nada,bob\nbob,cid\ncid,dan\n").unwrap();
    let rows = "id,likes,team\nada,1,red\nbob,1,red\ncid,0,blue\ndan,0,blue\n";
    std::fs::write(&nodes, rows).unwrap();
    let data = dir.path().join("people");
    let args = ["data", "convert", "--edges", text(&edges), "--nodes", text(&nodes)];
    let made = lacis(&[&args[..], &["--label-col", "team", "-o", text(&data), "-q"]].concat());
    assert_eq!(made.code, Some(0), "{}", made.err);
    let run = trained(dir.path(), text(&data), &["--split", "all", "--epochs", "2"]);
    let probs = predicted(&run, &["--what", "probs"]);
    assert_eq!(probs[0].join(","), "node,prob_blue,prob_red");
    let file = dir.path().join("labels.npy");
    let numbers = lacis(&["predict", text(&run), "-o", text(&file)]);
    assert!(numbers.err.contains("classes: 0 blue, 1 red"), "{}", numbers.err);
}

#[test]
fn damaged_weights_give_an_error_and_no_file() {
    let dir = tempfile::tempdir().unwrap();
    let run = trained(dir.path(), SMALL, &SHORT);
    let model = run.join("model.safetensors");
    let mut bytes = std::fs::read(&model).unwrap();
    let end = bytes.len();
    bytes[end - 64..].fill(0xff);
    std::fs::write(&model, bytes).unwrap();
    let file = dir.path().join("labels.csv");
    let ran = lacis(&["predict", text(&run), "-o", text(&file)]);
    assert_eq!(ran.code, Some(1));
    assert!(ran.err.contains("not finite") && !file.exists(), "{}", ran.err);
}

#[test]
fn labels_probabilities_logits_and_embeddings_agree() {
    let dir = tempfile::tempdir().unwrap();
    let run = trained(dir.path(), SMALL, &SHORT);
    let labels = predicted(&run, &[]);
    assert_eq!((labels.len(), labels[0].join(",")), (301, "node,label".to_owned()));
    let logits = numbers(&predicted(&run, &["--what", "logits"]));
    let probs = predicted(&run, &["--what", "probs"]);
    assert_eq!(probs[0].join(","), "node,prob_0,prob_1,prob_2");
    for (i, row) in numbers(&probs).iter().enumerate() {
        assert!((row.iter().sum::<f64>() - 1.0).abs() < 1e-5);
        let exps: Vec<f64> = logits[i].iter().map(|x| x.exp()).collect();
        assert!((row[1] - exps[1] / exps.iter().sum::<f64>()).abs() < 1e-5);
        let best = (0..3).max_by(|&a, &b| row[a].total_cmp(&row[b])).unwrap();
        assert_eq!(labels[i + 1][1], best.to_string());
    }
    let inner = numbers(&predicted(&run, &["--what", "embeddings"]));
    assert_eq!((inner.len(), inner[0].len()), (300, 16));
    assert!(inner.iter().flatten().all(|&x| x >= 0.0), "activations of relu");
    assert!(inner.iter().flatten().any(|&x| x > 0.0));
}

#[test]
fn arrays_and_parquet_hold_the_same_as_csv() {
    let dir = tempfile::tempdir().unwrap();
    let run = trained(dir.path(), SMALL, &SHORT);
    let nodes = dir.path().join("nodes.txt");
    std::fs::write(&nodes, "5\n\n299\n7\n").unwrap();
    let some = ["--what", "probs", "--nodes", text(&nodes)];
    let rows = predicted(&run, &some);
    let ids: Vec<&str> = rows[1..].iter().map(|row| row[0].as_str()).collect();
    assert_eq!(ids, ["5", "299", "7"]);
    let npy = dir.path().join("p.npy");
    let args = [&["predict", text(&run), "-o", text(&npy)], &some[..]].concat();
    assert_eq!(lacis(&args).code, Some(0));
    let bytes = std::fs::read(&npy).unwrap();
    assert_eq!(bytes.len(), 128 + 3 * 3 * 4);
    let floats = bytes[128..].chunks(4).map(|b| f32::from_le_bytes(b.try_into().unwrap()));
    let flat: Vec<f64> = numbers(&rows).concat();
    assert!(floats.zip(flat).all(|(a, b)| (f64::from(a) - b).abs() < 1e-6));
    let parquet = dir.path().join("p.parquet");
    let args = [&["predict", text(&run), "-o", text(&parquet)], &some[..]].concat();
    assert_eq!(lacis(&args).code, Some(0));
    assert_eq!(&std::fs::read(&parquet).unwrap()[..4], b"PAR1");

    std::fs::write(&nodes, "5\n300\n").unwrap();
    let args = ["predict", text(&run), "-o", text(&npy), "--nodes", text(&nodes), "--overwrite"];
    let refused = lacis(&args);
    assert!(refused.err.contains("line 2: '300' is not a node's number"), "{}", refused.err);
    assert_eq!(std::fs::read(&npy).unwrap(), bytes, "the old file is as it was");
    let refused = lacis(&["predict", text(&run), "-o", text(&dir.path().join("p.txt"))]);
    assert_eq!(refused.code, Some(2), "{}", refused.err);
}

#[test]
fn a_users_own_ids_and_names_of_classes_come_back_also_on_a_new_graph() {
    let dir = tempfile::tempdir().unwrap();
    let (edges, nodes) = (dir.path().join("e.csv"), dir.path().join("n.csv"));
    let (mut links, mut rows) = (String::from("source,target\n"), String::from("id,x,z,kind\n"));
    for i in 0..40 {
        let kind = if i % 2 == 0 { "cat, small" } else { "dog" };
        links += &format!("n{i},n{}\n", (i + 2) % 40);
        rows += &format!("n{i},{},{},\"{kind}\"\n", i % 2, (i * 7) % 5);
    }
    std::fs::write(&edges, links).unwrap();
    std::fs::write(&nodes, &rows).unwrap();
    let graph = dir.path().join("graph");
    let tables = ["--edges", text(&edges), "--nodes", text(&nodes)];
    let to = ["data", "convert", "--label-col", "kind", "-o", text(&graph)];
    let ran = lacis(&[&to[..], &tables].concat());
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    let run = trained(dir.path(), text(&graph), &["--split", "all"]);
    let chosen = dir.path().join("chosen.txt");
    std::fs::write(&chosen, "id\nn31\nn2\n").unwrap();
    let file = dir.path().join("l.csv");
    let args = ["predict", text(&run), "-o", text(&file), "--nodes", text(&chosen)];
    assert_eq!(lacis(&args).code, Some(0));
    let csv = std::fs::read_to_string(&file).unwrap();
    assert_eq!(csv, "node,label\nn31,dog\nn2,\"cat, small\"\n");

    // New nodes, no labels: names of classes are the run's.
    let new = dir.path().join("new");
    std::fs::write(
        &nodes,
        rows.replace(",\"cat, small\"", "").replace(",\"dog\"", "").replace(",kind", ""),
    )
    .unwrap();
    let to = ["data", "convert", "-o", text(&new)];
    assert_eq!(lacis(&[&to[..], &tables].concat()).code, Some(0));
    let args = ["predict", text(&run), text(&new), "-o", text(&file), "--overwrite"];
    let ran = lacis(&args);
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    assert!(std::fs::read_to_string(&file).unwrap().contains("n7,dog"));
    let judged = lacis(&["eval", text(&run), text(&new)]);
    assert!(judged.err.contains("no labels to compare with"), "{}", judged.err);
}

/// More rows than a process with this little memory can hold at once.
#[test]
fn a_limit_of_memory_is_kept_and_changes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let data = "er:n=60k,e=240k,seed=1";
    let made = ["--features", "4", "--classes", "2", "--threads", "1"];
    let run =
        trained(dir.path(), data, &[&made[..], &["--hidden", "128", "--epochs", "1"]].concat());
    let predict = |more: &[&str]| {
        let file = dir.path().join("e.npy");
        let args = ["predict", text(&run), "-o", text(&file), "--overwrite", "--json"];
        let lines = events(&[&args[..], &["--threads", "1"], more].concat());
        (lines.last().unwrap().clone(), std::fs::read(&file).unwrap())
    };
    let (free, whole) = predict(&["--what", "logits"]);
    assert!(free["blocks"].is_null());
    let limit = free["peak_rss_bytes"].as_u64().unwrap() - (24 << 20);
    let (tight, blocks) = predict(&["--what", "logits", "--memory-limit", &limit.to_string()]);
    assert!(tight["blocks"].as_u64() > Some(3), "{tight}");
    assert!(tight["peak_rss_bytes"].as_u64().unwrap() <= limit, "{tight} within {limit}");
    let floats = |bytes: &[u8]| -> Vec<f32> {
        bytes[128..].chunks(4).map(|b| f32::from_le_bytes(b.try_into().unwrap())).collect()
    };
    let far =
        floats(&whole).iter().zip(floats(&blocks)).fold(0f32, |m, (a, b)| m.max((a - b).abs()));
    assert!(far < 1e-4, "{far}");
    let file = dir.path().join("no.npy");
    let args = ["predict", text(&run), "-o", text(&file), "--memory-limit", "20M"];
    let refused = lacis(&args);
    assert_eq!(refused.code, Some(2), "{}", refused.err);
    assert!(refused.err.contains("memory"), "{}", refused.err);
    assert!(!file.exists());
}
