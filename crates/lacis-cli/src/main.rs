//! The command `lacis`: arguments in, results out; no algorithms.
#![forbid(unsafe_code)]

mod args;
mod args_bench;
mod args_data;
mod args_train;
mod bench;
mod config;
mod data;
mod doctor;
mod explain;
mod fetch;
mod machine;
mod out;
mod peers;
mod planned;
mod predict;
mod progress;
mod train;
mod tune;
mod welcome;

use std::process::ExitCode;

use clap::{CommandFactory, Parser};
use lacis::Error;

use args::{Cli, Global, Verb};
use out::{Failure, Out, Outcome};
use progress::Stop;

fn main() -> ExitCode {
    let typed = match config::expanded(std::env::args_os().collect()) {
        Ok(typed) => typed,
        Err(error) => {
            Out { json: false, quiet: false, verbose: false }.error(&error);
            return ExitCode::from(2);
        }
    };
    let cli = match Cli::try_parse_from(typed) {
        Ok(cli) => cli,
        Err(misuse) => return answer_misuse(&misuse),
    };
    let Global { json, quiet, verbose, .. } = cli.global;
    let out = Out { json, quiet, verbose };
    let stop = Stop::listen();
    match run(&cli, &out, &stop) {
        Ok(()) | Err(Failure::ClosedPipe) => ExitCode::SUCCESS,
        Err(Failure::Found) => ExitCode::FAILURE,
        Err(Failure::Error(error)) => {
            out.error(&error);
            match error {
                Error::Interrupted => ExitCode::from(stop.exit_code()),
                Error::Argument { .. } => ExitCode::from(2),
                _ => ExitCode::FAILURE,
            }
        }
    }
}

fn run(cli: &Cli, out: &Out, stop: &Stop) -> Outcome {
    match &cli.verb {
        None => welcome::print(out),
        Some(Verb::Train(args)) => train::run(args, &cli.global, out, stop),
        Some(Verb::Eval(args)) => predict::eval(args, &cli.global, out, stop),
        Some(Verb::Predict(args)) => predict::predict(args, &cli.global, out, stop),
        Some(Verb::Explain(args)) => explain::run(args, &cli.global, out, stop),
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
fn answer_misuse(misuse: &clap::Error) -> ExitCode {
    if misuse.use_stderr() && std::env::args_os().any(|arg| arg == "--json") {
        let text = misuse.render().to_string();
        let mut lines = text.lines().filter(|line| !line.trim().is_empty());
        let message = lines.next().unwrap_or_default().trim_start_matches("error: ").to_owned();
        let hint = lines.next().map(|line| line.trim().to_owned());
        let body = serde_json::json!({ "kind": "usage", "message": message, "hint": hint });
        let out = Out { json: true, quiet: true, verbose: false };
        let _ = out.start("", &serde_json::Value::Null).and_then(|()| out.event("error", &body));
    }
    // A closed pipe is the only way this fails, and ends quietly.
    let _ = misuse.print();
    ExitCode::from(misuse.exit_code() as u8)
}
