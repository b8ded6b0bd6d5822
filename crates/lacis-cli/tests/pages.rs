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
    let profile = json!({ "event": "profile", "model": "gcn", "graph": "er", "epoch_ms": 3.0,
                          "kinds": { "spmm": 0.7, "gemm": 0.3 } });
    let mut lines = vec![profile, training("csr", 9.0), training("edge_index", 30.0), left_out];
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
    run(dir, &["explain", "--model", "gat", "--html", "explain.html"]);
    run(dir, &["analyze", "--workers", "8", "--html", "analyze.html"]);
    let ops = ["bench", "ops", "--op", "spmm", "--graph", "karate", "--k", "8,16", "--rounds", "2"];
    run(dir, &[&ops[..], &["--html", "ops.html"]].concat());
    run(dir, &["tune", "--graph", "karate", "--k", "8..32", "--html", "tune.html"]);
    run(dir, &["report", "run", "-o", "report.html"]);
    std::fs::write(dir.join("results.jsonl"), made_up_results()).unwrap();
    run(dir, &["report", "results.jsonl", "-o", "results.html"]);
    let names = ["train", "explain", "analyze", "ops", "tune", "report", "results"];
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
