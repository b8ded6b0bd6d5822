//! The command inside another program, on data that the program holds.
//!
//! What may be typed after `lacis train` is what may be asked for here, by the same names and with
//! the same defaults; what it prints for programs is handed over line by line.

use std::ffi::OsString;
use std::path::Path;

use lacis::infer::What;
use lacis::{Dataset, Dense, Error, Result};

use crate::args::{Global, Verb};
use crate::args_train::Train;
use crate::data::Desk;
use crate::out::{Failure, Out};
use crate::predict::{Again, Other};
use crate::{config, train};

pub use crate::out::Listener;
pub use crate::progress::Stop;

/// Trains as `lacis train` would with these flags, on `data` where it is given.
///
/// # Errors
/// When a flag makes no sense, and as the command.
pub fn train(
    flags: Vec<OsString>,
    data: Option<Dataset>,
    listener: Listener,
    stop: &Stop,
) -> Result<()> {
    let (mut args, global) = parsed(flags)?;
    if let Some(data) = data {
        args.source.give(data);
    }
    let out = Out { json: true, quiet: true, listener: Some(listener), ..Out::default() };
    done(train::run(&args, &global, &out, stop))
}

/// The flags and what goes with them, read as the command reads them.
fn parsed(flags: Vec<OsString>) -> Result<(Box<Train>, Global)> {
    let typed: Vec<OsString> =
        ["lacis", "train"].map(OsString::from).into_iter().chain(flags).collect();
    let misuse = |misuse: clap::Error| {
        let text = misuse.render().to_string();
        let line = text.lines().next().unwrap_or_default().trim_start_matches("error: ").to_owned();
        Error::argument("train", line)
    };
    // As the command does: what is usual for the data must not replace what was asked for.
    let (cli, _) = crate::parsed(&typed, config::expanded(typed.clone())?).map_err(misuse)?;
    match cli.verb {
        Some(Verb::Train(args)) => Ok((args, cli.global)),
        _ => Err(Error::argument("train", "nothing else can be asked for here")),
    }
}

/// A dataset as a path, a built-in set or a generator names it, changed as the flags say.
///
/// # Errors
/// As reading it.
pub fn open(data: &str, flags: Vec<OsString>, stop: &Stop) -> Result<Dataset> {
    let (mut args, global) = parsed(flags)?;
    args.source.data = data.to_owned();
    let out = Out { quiet: true, ..Out::default() };
    done(Desk::new(&global, &out, stop).and_then(|desk| desk.open(&args.source)))
}

/// What a run's network gives for every node of its own data, or of other data.
///
/// # Errors
/// When the folder holds no run, or its network does not fit the data.
pub fn results(run: &Path, data: Option<Dataset>, what: What, stop: &Stop) -> Result<Dense> {
    let (_, global) = parsed(Vec::new())?;
    let out = Out { quiet: true, ..Out::default() };
    let results = || {
        let desk = Desk::new(&global, &out, stop)?;
        let other = data.map_or(Other::None, |data| Other::Given(Box::new(data)));
        let again = Again::open(run, other, &desk)?;
        Ok(again.results(what, (&global, &desk), None)?.0)
    };
    done(results())
}

fn done<T>(outcome: std::result::Result<T, Failure>) -> Result<T> {
    outcome.map_err(|failure| match failure {
        Failure::Error(error) | Failure::Ran(error) => error,
        Failure::Found | Failure::ClosedPipe => Error::argument("train", "nobody listens"),
    })
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use serde_json::Value;

    use super::*;

    fn flags(line: &str) -> Vec<OsString> {
        line.split_whitespace().map(OsString::from).collect()
    }

    fn small() -> Dataset {
        open("sbm:n=60,e=300,classes=3,features=8,seed=1", vec![], &Stop::default()).unwrap()
    }

    /// The events of a training, stopped when it has told so many epochs.
    fn events(line: &str, stop_after: usize) -> Result<Vec<Value>> {
        let told = Arc::new(Mutex::new(Vec::<Value>::new()));
        let (stop, list) = (Stop::default(), told.clone());
        let asked = stop.clone();
        let listener: Listener = Box::new(move |line| {
            if line["epoch"] == stop_after {
                asked.end_early();
            }
            list.lock().unwrap().push(line);
        });
        train(flags(line), Some(small()), listener, &stop)?;
        Ok(std::mem::take(&mut *told.lock().unwrap()))
    }

    #[test]
    fn a_program_is_told_what_the_command_prints() {
        let told = events("--epochs 3 --hidden 4 --no-save --threads 1", 99).unwrap();
        let names: Vec<&str> = told.iter().filter_map(|line| line["event"].as_str()).collect();
        // Notes say where usual numbers come from.
        let names: Vec<&str> = names.into_iter().filter(|name| *name != "note").collect();
        assert_eq!(names, ["start", "plan", "epoch", "epoch", "epoch", "done"]);
        assert_eq!(told[told.len() - 1]["epochs"], 3);
    }

    #[test]
    fn ending_early_is_ending() {
        let told = events("--epochs 500 --hidden 4 --no-save --threads 1", 2).unwrap();
        assert_eq!(told.last().unwrap()["event"], "done");
        assert_eq!(told.last().unwrap()["epochs"], 2);
    }

    /// A program's graph may have the name of another set, whose results would be wrong.
    #[test]
    fn data_of_a_program_are_not_opened_by_their_name() {
        let dir = tempfile::tempdir().unwrap();
        let run = dir.path().join("run");
        let line = format!("--epochs 3 --hidden 4 --threads 1 --out {}", run.display());
        let own = || small().with_name("karate");
        let listener = || -> Listener { Box::new(|_| {}) };
        train(flags(&line), Some(own()), listener(), &Stop::default()).unwrap();
        let lost = results(&run, None, What::Logits, &Stop::default()).unwrap_err().to_string();
        assert!(lost.contains("'karate (given by a program)'"), "{lost}");
        assert!(lost.contains("pass the graph"), "{lost}");
        let found = results(&run, Some(own()), What::Logits, &Stop::default()).unwrap();
        assert_eq!(found.n_rows(), 60);
        // It goes on with them, and with nothing that has their name.
        for file in ["summary.json", "model.safetensors"] {
            std::fs::remove_file(run.join(file)).unwrap();
        }
        let resume = || flags(&format!("--resume {}", run.display()));
        assert!(train(resume(), None, listener(), &Stop::default()).is_err());
        train(resume(), Some(own()), listener(), &Stop::default()).unwrap();
    }

    #[test]
    fn other_graphs_judge_what_a_program_gave() {
        let told = Arc::new(Mutex::new(Vec::<Value>::new()));
        let list = told.clone();
        let listener: Listener = Box::new(move |line| list.lock().unwrap().push(line));
        let other = "sbm:n=60,e=300,classes=3,features=9,seed=2";
        let line = format!("--epochs 1 --hidden 4 --no-save --threads 1 --test-data {other}");
        let error = train(flags(&line), Some(small()), listener, &Stop::default()).unwrap_err();
        assert!(error.to_string().contains("has 9 features"), "{error}");
    }

    #[test]
    fn misuse_names_the_flag() {
        let error = events("--epohcs 3", 99).unwrap_err().to_string();
        assert!(error.contains("--epohcs"), "{error}");
        assert!(events("--epochs 3 --model nothing", 99).is_err());
    }
}
