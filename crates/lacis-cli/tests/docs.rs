//! The commands that README and docs show: they run, and print what is shown.
//!
//! In a block of `console`, lines that begin with `$` are commands and those after them what they
//! print; `…` stands for anything. Every file's blocks run in order in a folder of their own, where
//! small stand-ins lie under the names of data that a reader would have.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::text;

/// What a reader is not made to wait for, or cannot run here.
const SKIPPED: &[&str] = &[
    "cargo",
    "scripts/",
    "sbatch",
    "squeue",
    "pip",
    "python",
    "lacis tune",
    "lacis bench",
    "lacis data fetch",
    "git",
    "lacis train tu-",
    "lacis analyze rmat",
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// A command, and the lines that are shown after it.
struct Shown {
    command: String,
    lines: Vec<String>,
    place: String,
}

fn shown(path: &Path) -> Vec<Shown> {
    let text = std::fs::read_to_string(path).unwrap();
    let name = path.file_name().unwrap().to_string_lossy().into_owned();
    let (mut all, mut inside): (Vec<Shown>, bool) = (Vec::new(), false);
    for (at, line) in text.lines().enumerate() {
        match (inside, line) {
            (false, "```console") => inside = true,
            (true, "```") => inside = false,
            (true, line) => match line.strip_prefix("$ ") {
                Some(command) => {
                    let place = format!("{name}:{}", at + 1);
                    all.push(Shown { command: command.to_owned(), lines: vec![], place });
                }
                None => {
                    let last = all.last_mut().expect("a block begins with a command");
                    // A command may go on with a backslash at the end of its line.
                    match last.command.strip_suffix('\\') {
                        Some(begun) => last.command = format!("{begun} {}", line.trim()),
                        None => last.lines.push(line.to_owned()),
                    }
                }
            },
            _ => {}
        }
    }
    all
}

fn shell(dir: &Path, command: &str) -> (bool, String, String) {
    let binary = Path::new(env!("CARGO_BIN_EXE_lacis")).parent().unwrap();
    let path = format!("{}:{}", binary.display(), std::env::var("PATH").unwrap());
    let mut shell = Command::new("sh");
    shell.args(["-c", command]).current_dir(dir).stdin(Stdio::null()).env("PATH", path);
    for name in ["LACIS_THREADS", "LACIS_DATA", "OMP_NUM_THREADS", "SLURM_CPUS_PER_TASK"] {
        shell.env_remove(name);
    }
    shell.env("LACIS_MACHINE", dir.join("machine.json"));
    let output = shell.output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (output.status.success(), text(output.stdout), text(output.stderr))
}

/// Whether a line is as shown, `…` standing for anything.
fn is_like(line: &str, shown: &str) -> bool {
    let parts: Vec<&str> = shown.split('…').collect();
    let mut rest = line;
    for (at, part) in parts.iter().enumerate() {
        let part = if at + 1 == parts.len() { part.trim_end() } else { part };
        let Some(place) = rest.find(part) else { return false };
        if at == 0 && place != 0 {
            return false;
        }
        rest = &rest[place + part.len()..];
    }
    rest.trim_end().is_empty() || shown.trim_end().ends_with('…')
}

/// Small graphs under the names that pages use.
fn stand_ins(dir: &Path) {
    let made = [
        ("sbm:n=200,e=800,classes=7,features=40,seed=1", "cora"),
        ("sbm:n=150,e=600,classes=7,features=40,seed=2", "new-graph"),
        ("sbm:n=250,e=900,classes=4,features=20,seed=3", "reddit"),
        ("sbm:n=120,e=500,classes=3,features=16,seed=4", "DATA"),
        ("rmat:n=200,e=900,seed=1", "edges.csv.gz"),
    ];
    for (spec, name) in made {
        let (well, _, err) = shell(dir, &format!("lacis data generate {spec} -o {name} -q"));
        assert!(well, "{name}: {err}");
    }
}

/// Runs what a page shows; how many commands that were.
fn run_page(path: &Path) -> usize {
    let dir = tempfile::tempdir().unwrap();
    stand_ins(dir.path());
    let mut ran = 0;
    for Shown { command, lines, place } in shown(path) {
        if SKIPPED.iter().any(|start| command.starts_with(start)) {
            continue;
        }
        let (well, out, err) = shell(dir.path(), &command);
        assert!(well, "{place}: {command}\n{out}{err}");
        assert!(!err.contains("panicked"), "{place}: {err}");
        let printed = format!("{out}{err}");
        let mut rest = printed.lines();
        for shown in lines.iter().filter(|line| line.trim() != "…") {
            let found = rest.by_ref().any(|line| is_like(line, shown));
            assert!(found, "{place}: {command}\nshown:   {shown}\nprinted:\n{printed}");
        }
        ran += 1;
    }
    ran
}

fn run_pages(names: &[&str]) -> usize {
    names.iter().map(|name| run_page(&root().join(name))).sum()
}

#[test]
fn commands_in_the_readme_run() {
    assert!(run_pages(&["README.md"]) >= 8);
}

#[test]
fn commands_in_the_pages_run() {
    let folder = root().join("docs");
    let mut pages: Vec<String> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|ending| ending == "md"))
        .map(|path| text(&path).to_owned())
        .collect();
    pages.sort();
    let ran: usize = pages.iter().map(|page| run_page(Path::new(page))).sum();
    assert!(ran >= 15, "{ran} commands in {} pages", pages.len());
}

#[test]
fn what_is_shown_is_compared() {
    assert!(is_like("accuracy   test 0.81", "accuracy   test …"));
    assert!(is_like("wrote out.csv: labels of 200 nodes", "wrote out.csv: labels of … nodes"));
    assert!(!is_like("wrote out.csv", "wrote in.csv"));
    assert!(!is_like("accuracy test 0.8 and more", "accuracy test 0.8"));
    assert!(is_like("node,label", "node,label"));
}
