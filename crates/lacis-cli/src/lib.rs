//! The command `lacis`: arguments in, results out; no algorithms.
//!
//! [`main`] is the whole command, so that the Python package's `lacis` is the same one.
//! [`embed`] runs training and prediction on data that the calling program holds, and
//! [`machine`] says who decides on threads and where profiles are.
#![forbid(unsafe_code)]

mod analyze;
mod args;
mod args_analyze;
mod args_bench;
mod args_data;
mod args_train;
mod bench;
mod bench_approx;
mod compare;
mod config;
mod contest;
mod data;
mod defaults;
mod doctor;
pub mod embed;
mod explain;
mod fetch;
mod inductive;
mod ledger;
mod links;
pub mod machine;
mod memory;
mod out;
mod page;
mod partner;
mod peers;
mod planned;
mod predict;
mod progress;
mod ratios;
mod report;
mod steps;
mod suite;
mod trace;
mod train;
mod tune;
mod welcome;

use std::ffi::OsString;

use clap::{CommandFactory, FromArgMatches};
use lacis::Error;

use args::{Cli, Verb};
use defaults::Typed;
use out::{Failure, Out, Outcome};
use progress::Stop;

/// Exit codes beside 0; an interrupted command has 128 and the signal's number.
const FAILED: u8 = 1;
const MISUSED: u8 = 2;

/// Runs the command as typed, its own name first, and returns its exit code.
///
/// Listens to Ctrl-C and SIGTERM from then on: a process that has other plans for them should
/// have another process run the command.
pub fn main(typed: Vec<OsString>) -> u8 {
    let json = typed.iter().any(|arg| arg == "--json");
    let expanded = match config::expanded(typed.clone()) {
        Ok(expanded) => expanded,
        Err(error) => {
            // As after any other misuse, programs are told.
            Out { json, quiet: true, ..Out::default() }.error(&error);
            return MISUSED;
        }
    };
    let (cli, command) = match parsed(&typed, expanded) {
        Ok(parsed) => parsed,
        Err(misuse) => return answer_misuse(&misuse, json),
    };
    let out = Out::new(&cli.global, command);
    let stop = Stop::listen();
    match report::with_page(&cli, &out, || run(&cli, &out, &stop)) {
        Ok(()) | Err(Failure::ClosedPipe) => 0,
        Err(Failure::Found) => FAILED,
        Err(Failure::Ran(error)) => {
            out.error(&error);
            FAILED
        }
        Err(Failure::Error(error)) => {
            out.error(&error);
            match error {
                Error::Interrupted => stop.exit_code(),
                Error::Argument { .. } => MISUSED,
                _ => FAILED,
            }
        }
    }
}

/// The command line, and the verbs in it; a training also knows which of its flags were given.
fn parsed(typed: &[OsString], expanded: Vec<OsString>) -> Result<(Cli, String), clap::Error> {
    let matches = Cli::command().try_get_matches_from(expanded)?;
    let mut cli = Cli::from_arg_matches(&matches)?;
    match &mut cli.verb {
        Some(Verb::Train(args)) => args.typed = Typed::of(typed, &matches),
        Some(Verb::Explain(args)) => args.typed = Typed::of(typed, &matches),
        Some(Verb::Analyze(args)) => args.typed = Typed::of(typed, &matches),
        _ => {}
    }
    let (mut verbs, mut at) = (Vec::new(), &matches);
    while let Some((verb, inner)) = at.subcommand() {
        verbs.push(verb);
        at = inner;
    }
    Ok((cli, verbs.join(" ")))
}

fn run(cli: &Cli, out: &Out, stop: &Stop) -> Outcome {
    match &cli.verb {
        None => welcome::print(out),
        Some(Verb::Train(args)) => train::run(args, &cli.global, out, stop),
        Some(Verb::Eval(args)) => predict::eval(args, &cli.global, out, stop),
        Some(Verb::Predict(args)) => predict::predict(args, &cli.global, out, stop),
        Some(Verb::Explain(args)) => explain::run(args, &cli.global, out, stop),
        Some(Verb::Analyze(args)) => analyze::run(args, &cli.global, out, stop),
        Some(Verb::Report(args)) => report::run(args, out),
        Some(Verb::Data(verb)) => data::run(verb, &cli.global, out, stop),
        Some(Verb::Info { source }) => data::info(source, &cli.global, out, stop),
        Some(Verb::Tune(args)) => tune::run(args, &cli.global, out, stop),
        Some(Verb::Bench(verb)) => bench::run(verb, &cli.global, out, stop),
        Some(Verb::Doctor) => doctor::run(&cli.global, out),
        Some(Verb::Completions { shell }) => completions(*shell),
    }
}

fn completions(shell: clap_complete::Shell) -> Outcome {
    use std::io::Write;
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "lacis", &mut script);
    Ok(std::io::stdout().write_all(&script)?)
}

/// Help and version go to stdout, misuse to stderr with exit code 2, as JSON too where asked for.
fn answer_misuse(misuse: &clap::Error, json: bool) -> u8 {
    if misuse.use_stderr() && json {
        let text = misuse.render().to_string();
        let mut lines = text.lines().filter(|line| !line.trim().is_empty());
        let message = lines.next().unwrap_or_default().trim_start_matches("error: ").to_owned();
        let hint = lines.next().map(|line| line.trim().to_owned());
        let body = serde_json::json!({ "kind": "usage", "message": message, "hint": hint });
        let out = Out { json: true, quiet: true, ..Out::default() };
        let _ = out.start("", &serde_json::Value::Null).and_then(|()| out.event("error", &body));
    }
    // A closed pipe is the only way this fails, and ends quietly.
    let _ = misuse.print();
    misuse.exit_code() as u8
}
