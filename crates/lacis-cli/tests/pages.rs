//! Pages in a real browser: nothing is fetched, nothing is complained about, charts are there, and
//! all of it fits a wide window and a telephone, light and dark.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::{command, ran, text};

/// What a page is asked, from within; it answers the page around it.
const PROBE: &str = "<script>addEventListener('load',()=>{const d=document.documentElement;\
    const style=getComputedStyle(document.body);\
    parent.postMessage({page:location.pathname.split('/').pop(),wide:innerWidth,\
    scroll:d.scrollWidth,fetched:performance.getEntriesByType('resource').map(e=>e.name),\
    charts:document.querySelectorAll('svg,.bars').length,\
    small:[...document.querySelectorAll('p,td,th,h1,h2,h3')].filter(\
    e=>parseFloat(getComputedStyle(e).fontSize)<9).length,\
    back:style.backgroundColor,ink:style.color},'*')})</script>";

const WIDTHS: [usize; 2] = [1280, 400];

/// A Chromium, where there is one.
fn browser() -> Option<PathBuf> {
    if let Some(named) = std::env::var_os("LACIS_CHROMIUM") {
        return Some(named.into());
    }
    let path = std::env::var_os("PATH")?;
    let names = ["chromium", "chromium-browser", "google-chrome"];
    let all = std::env::split_paths(&path).flat_map(|dir| names.map(|name| dir.join(name)));
    all.into_iter().find(|program| program.is_file())
}

fn run(dir: &Path, args: &[&str]) {
    let machine = dir.join("machine.json");
    let mut command = command(args);
    command.current_dir(dir).args(["--machine", text(&machine), "--threads", "2", "-q"]);
    let ran = ran(command.output().unwrap());
    assert_eq!(ran.code, Some(0), "{args:?}\n{}", ran.err);
}

/// Lines of trainings and of a suite, as commands that take longer would print them.
fn made_up_results() -> String {
    let side = |ms: f64| {
        json!({ "epoch_ms": ms, "iqr_ms": 0.1, "first_ms": ms, "extra_bytes": 1 << 24,
                "base_bytes": 1 << 26, "losses": [1.0], "predicted_ms": ms })
    };
    let training = |peer: &str, ms: f64| {
        json!({ "event": "training", "id": peer, "graph": "community-like", "model": "gcn",
                "hidden": 128, "mode": "f32", "peer": peer, "lacis": side(2.0), "theirs": side(ms),
                "times": ms / 2.0, "loss_difference": 1e-6 })
    };
    let left_out = json!({ "event": "training", "id": "x", "graph": "community-like",
                           "model": "gat", "hidden": 128, "mode": "f32", "peer": "edge_index",
                           "reason": "edge_index: RuntimeError: not enough memory" });
    let op = |op: &str, engine: &str, dim: usize, zeros: f64, ms: f64| {
        json!({ "event": "op", "op": op, "graph": "picks:100of100x1,uniform", "k": 100,
                "reduce": "sum", "weighted": false, "dtype": "f32", "axis": dim,
                "sparsity": zeros, "engine": engine, "kernel": "k", "ms": ms, "iqr_ms": 0.0,
                "bytes": 1e6, "gbps": 1.0 / ms, "gflops": 1.0 / ms, "roofline": null,
                "case": format!("{op} {dim} {zeros}"), "shape": "2d", "dim": dim, "factor": 1,
                "index": "uniform" })
    };
    let roof = json!({ "event": "roof", "threads": 2, "read_gbps": 20.0, "write_gbps": 9.0,
                       "copy_gbps": 12.0 });
    let profile = json!({ "event": "profile", "model": "gcn", "graph": "er", "epoch_ms": 3.0,
                          "kinds": { "spmm": 0.7, "gemm": 0.3 } });
    let mut lines =
        vec![profile, roof, training("csr", 9.0), training("edge_index", 30.0), left_out];
    for name in ["index_select", "scatter_add", "segment_mean"] {
        for (dim, zeros) in [(0, 0.0), (1, 0.0), (0, 0.9)] {
            lines.push(op(name, "torch", dim, zeros, 4.0));
            lines.push(op(name, "lacis", dim, zeros, 1.0 + dim as f64));
        }
    }
    lines.iter().map(|line| format!("{line}\n")).collect()
}

/// Every kind of page that there is.
fn pages(dir: &Path) -> Vec<PathBuf> {
    run(dir, &["train", "--epochs", "6", "--out", "run", "--html", "train.html"]);
    run(dir, &["explain", "--model", "gat", "--measure", "--html", "explain.html"]);
    let sampled = ["train", "--epochs", "20", "--approx", "rsc", "--approx-force", "--no-save"];
    run(dir, &[&sampled[..], &["--html", "sampled.html"]].concat());
    let approx = ["bench", "approx", "--graph", "karate", "--k", "8", "--rounds", "1"];
    run(dir, &[&approx[..], &["--html", "approx.html"]].concat());
    run(dir, &["analyze", "--workers", "8", "--html", "analyze.html"]);
    let ops = ["bench", "ops", "--op", "spmm", "--graph", "karate", "--k", "8,16", "--rounds", "2"];
    run(dir, &[&ops[..], &["--html", "ops.html"]].concat());
    run(dir, &["tune", "--graph", "karate", "--k", "8..32", "--html", "tune.html"]);
    run(dir, &["report", "run", "-o", "report.html"]);
    std::fs::write(dir.join("results.jsonl"), made_up_results()).unwrap();
    run(dir, &["report", "results.jsonl", "-o", "results.html"]);
    let both = ["bench", "compare", "results.jsonl", "results.jsonl"];
    run(dir, &[&both[..], &["--html", "compare.html"]].concat());
    let names = [
        "train", "explain", "sampled", "approx", "analyze", "ops", "tune", "report", "results",
        "compare",
    ];
    names.iter().map(|name| dir.join(format!("{name}.html"))).collect()
}

/// A page that shows pages in frames of some widths, and writes down what they answer.
fn frames(dir: &Path, pages: &[PathBuf]) -> PathBuf {
    let mut html =
        "<!doctype html><title>…</title><link rel=icon href='data:,'><pre id=found></pre>\
                    <script>const found=[];addEventListener('message',e=>{found.push(e.data);\
                    document.getElementById('found').textContent=JSON.stringify(found)})</script>"
            .to_owned();
    for page in pages {
        let shown = std::fs::read_to_string(page).unwrap();
        assert!(!shown.contains("<script"), "{}: pages need no script", page.display());
        assert!(!shown.contains("http://") && !shown.contains("https://"), "{}", page.display());
        let probed = page.with_extension("probed.html");
        std::fs::write(&probed, shown.replace("</body>", &format!("{PROBE}</body>"))).unwrap();
        let name = probed.file_name().unwrap().to_str().unwrap().to_owned();
        for wide in WIDTHS {
            html.push_str(&format!("<iframe src='{name}' width={wide} height=800></iframe>"));
        }
    }
    let path = dir.join("frames.html");
    std::fs::write(&path, html).unwrap();
    path
}

/// What all frames answered, in a light or dark browser, and what it complained about.
fn looked_at(browser: &Path, frames: &Path, dark: bool) -> (Vec<Value>, String) {
    let scheme = format!("--blink-settings=preferredColorScheme={}", if dark { 0 } else { 1 });
    let profile = frames.with_file_name(format!("profile-{dark}"));
    let output = Command::new(browser)
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"])
        .args(["--no-first-run", "--disable-background-networking", "--disable-component-update"])
        .args(["--enable-logging=stderr", "--v=0", "--window-size=1400,900", &scheme])
        .args(["--virtual-time-budget=10000", "--dump-dom"])
        .arg(format!("--user-data-dir={}", profile.display()))
        .arg(format!("file://{}", frames.display()))
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let dom = String::from_utf8_lossy(&output.stdout).into_owned();
    let err = String::from_utf8_lossy(&output.stderr).into_owned();
    let found = dom.split("<pre id=\"found\">").nth(1).and_then(|rest| rest.split('<').next());
    let found = found.unwrap_or_default().replace("&amp;", "&");
    let found = serde_json::from_str(&found).unwrap_or_else(|e| panic!("{e}: {dom}\n{err}"));
    let complaints = err.lines().filter(|line| line.contains(":CONSOLE")).collect::<Vec<_>>();
    (found, complaints.join("\n"))
}

#[test]
fn pages_open_in_a_browser() {
    let Some(browser) = browser() else {
        eprintln!("skipped: no Chromium is on the path, and LACIS_CHROMIUM names none");
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    let pages = pages(dir.path());
    let frames = frames(dir.path(), &pages);
    let mut grounds = Vec::new();
    for dark in [false, true] {
        let (found, complaints) = looked_at(&browser, &frames, dark);
        assert_eq!(complaints, "", "the browser complains");
        assert_eq!(found.len(), pages.len() * WIDTHS.len(), "{found:?}");
        for page in &found {
            assert_eq!(page["fetched"], json!([]), "{page}");
            assert!(page["charts"].as_u64().unwrap() >= 1, "no chart: {page}");
            assert!(page["scroll"].as_u64() <= page["wide"].as_u64(), "too wide: {page}");
            assert_eq!(page["small"], 0, "letters too small to read: {page}");
            assert_ne!(page["back"], page["ink"]);
        }
        grounds.push(found[0]["back"].clone());
    }
    assert_ne!(grounds[0], grounds[1], "dark is not light");
}

/// The page of a command that ended well.
fn page_of(dir: &Path, args: &[&str]) -> String {
    let page = dir.join("page.html");
    run(dir, &[args, &["--html", text(&page), "--overwrite-html"]].concat());
    std::fs::read_to_string(page).unwrap()
}

#[test]
fn plans_are_drawn_with_who_reads_what() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    run(dir, &["train", "--epochs", "4", "--out", "run"]);
    run(dir, &["report", "run", "-o", "report.html"]);
    let report = std::fs::read_to_string(dir.join("report.html")).unwrap();
    let train = page_of(dir, &["train", "--epochs", "4", "--no-save"]);
    let explain = page_of(dir, &["explain", "--model", "gat", "--measure"]);
    for page in [&report, &train, &explain] {
        let boxes = page.matches("class=box").count();
        assert!(boxes > 5 && page.matches("class=wire").count() > boxes / 2);
    }
    assert!(train.contains("An epoch by kind of step") && report.contains("spmm"));
    let flags = ["train", "--epochs", "12", "--no-save", "--approx", "adaptive", "--approx-force"];
    assert!(page_of(dir, &flags).contains("<h2>Approximation</h2>"));
}

#[test]
fn a_record_of_operations_says_where_it_was_made() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let ops = ["bench", "ops", "--op", "spmm", "--graph", "karate", "--k", "8", "--rounds", "1"];
    run(dir, &[&ops[..], &["-o", "r.json"]].concat());
    run(dir, &["report", "r.json", "-o", "r.html"]);
    let page = std::fs::read_to_string(dir.join("r.html")).unwrap();
    assert!(page.contains("<title>lacis bench ops karate</title>"), "{}", &page[..400]);
    assert!(page.contains("Machine and versions") && page.contains("What was asked for"));
}

#[test]
fn trainings_alone_show_what_was_predicted() {
    let dir = tempfile::tempdir().unwrap();
    let side = json!({ "epoch_ms": 3.0, "predicted_ms": 2.0 });
    let line = json!({ "event": "training", "id": "a", "graph": "g", "model": "gcn", "hidden": 8,
                       "peer": null, "lacis": side });
    std::fs::write(dir.path().join("t.jsonl"), format!("{line}\n{line}\n")).unwrap();
    run(dir.path(), &["report", "t.jsonl", "-o", "t.html"]);
    let page = std::fs::read_to_string(dir.path().join("t.html")).unwrap();
    assert_eq!(page.matches("class=dot").count(), 1, "the same case counts once");
}

#[test]
fn a_page_that_cannot_be_written_is_refused_before_the_work() {
    let dir = tempfile::tempdir().unwrap();
    let (there, run_folder) = (dir.path().join("there.html"), dir.path().join("run"));
    std::fs::write(&there, "mine").unwrap();
    let nowhere = dir.path().join("no-folder").join("x.html");
    let train = ["train", "--epochs", "2", "--out", text(&run_folder)];
    for (page, code, said) in [(&there, 2, "--overwrite-html"), (&nowhere, 1, "no such folder")] {
        let ran = crate::lacis(&[&train[..], &["--html", text(page)]].concat());
        assert_eq!(ran.code, Some(code), "{}", ran.err);
        assert!(ran.err.contains(said), "{}", ran.err);
        assert!(!run_folder.exists(), "it was trained first");
    }
    assert_eq!(std::fs::read_to_string(&there).unwrap(), "mine");
    let list = crate::lacis(&["data", "list", "--html", text(&dir.path().join("l.html"))]);
    assert!(list.code == Some(2) && list.out.is_empty(), "{}", list.err);
}
