//! The command as a user runs it.
#![allow(clippy::unwrap_used)]

mod answers; // what it says when used, misused, and piped
mod batches; // sampled batches, graphs in folds
mod bench; // tuning and timing
mod contests; // trainings beside others, suites, comparisons
mod docs; // what README and docs show
mod files; // converting, validating, being interrupted
mod found; // what testers found
mod links; // predicting which nodes are joined
mod pages; // what a browser makes of --html and report
mod predict; // what a run says of nodes
mod resume; // going on with a run, running it again
mod schema; // JSON lines and docs/schema.json
mod train; // training, judging, resuming

use std::path::Path;
use std::process::{Command, Output, Stdio};

/// What a run printed and how it ended.
struct Ran {
    code: Option<i32>,
    out: String,
    err: String,
}

fn command(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lacis"));
    command.args(args).stdin(Stdio::null());
    // The machine's own settings must not decide what the tests see.
    for name in
        ["LACIS_THREADS", "LACIS_DATA", "LACIS_MACHINE", "OMP_NUM_THREADS", "SLURM_CPUS_PER_TASK"]
    {
        command.env_remove(name);
    }
    command
}

fn lacis(args: &[&str]) -> Ran {
    ran(command(args).output().expect("the command starts"))
}

fn ran(output: Output) -> Ran {
    let text = |bytes| String::from_utf8(bytes).expect("output is UTF-8");
    let ran =
        Ran { code: output.status.code(), out: text(output.stdout), err: text(output.stderr) };
    assert!(!ran.err.contains("panicked"), "{}", ran.err);
    ran
}

/// The JSON lines of a run that ended well.
fn events(args: &[&str]) -> Vec<serde_json::Value> {
    let ran = lacis(args);
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    parse_events(&ran.out)
}

fn parse_events(out: &str) -> Vec<serde_json::Value> {
    let lines: Vec<serde_json::Value> =
        out.lines().map(|line| serde_json::from_str(line).expect("a line is JSON")).collect();
    assert!(lines.iter().all(|line| line["event"].is_string()), "{out}");
    lines
}

fn text(path: &Path) -> &str {
    path.to_str().expect("temporary paths are UTF-8")
}
