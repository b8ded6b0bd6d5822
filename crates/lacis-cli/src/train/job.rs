//! Jobs of several trainings (`--runs`, `--folds`): each has a folder, whose configuration says
//! what it is a part of. So the folder that they lie in can be gone on with: what is finished
//! stays, what was interrupted goes on, and the others follow.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use lacis::store::RunFolder;
use lacis::{Error, Result};
use toml::{Table, Value};

use super::finished;
use crate::args_train::Train;
use crate::config;

/// What the trainings of a job have in common.
#[derive(Clone, Debug, PartialEq)]
pub struct Job {
    /// Different for any two jobs.
    id: String,
    /// The first run's seed.
    seed: u64,
    runs: u64,
    /// The one fold that was asked for.
    fold: Option<usize>,
}

/// One of them, by its seed and its fold.
type Part = (u64, Option<usize>);

/// A job that goes on.
pub struct Begun {
    pub job: Job,
    /// Where its trainings are, as far as they were begun.
    folders: BTreeMap<Part, PathBuf>,
}

impl Job {
    pub fn new(args: &Train) -> Self {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let id = format!("{:x}-{:x}", now.as_nanos(), std::process::id());
        let (seed, runs) = (args.source.changes.seed, args.running.runs);
        Job { id, seed, runs, fold: args.learning.fold }
    }

    /// For the configuration of a run.
    pub fn to_table(&self) -> Table {
        let mut table = Table::new();
        let numbers = [
            ("seed", Some(self.seed)),
            ("runs", Some(self.runs)),
            ("fold", self.fold.map(|f| f as u64)),
        ];
        table.insert("id".to_owned(), self.id.clone().into());
        for (name, number) in numbers {
            // As text: a seed may be larger than the numbers of TOML.
            number.map(|number| table.insert(name.to_owned(), number.to_string().into()));
        }
        table
    }

    fn from_table(table: &Table) -> Option<Self> {
        let number = |name: &str| table.get(name).and_then(Value::as_str)?.parse::<u64>().ok();
        let id = table.get("id")?.as_str()?.to_owned();
        let fold = number("fold").map(|fold| fold as usize);
        Some(Job { id, seed: number("seed")?, runs: number("runs")?, fold })
    }
}

impl Begun {
    /// Where a training is, if it was begun.
    pub fn folder(&self, part: Part) -> Option<&Path> {
        self.folders.get(&part).map(PathBuf::as_path)
    }
}

/// Runs of a job, each with its arguments and the text that they were read from.
struct Found {
    begun: Begun,
    args: Train,
    text: String,
    finished: usize,
}

impl Found {
    fn is_finished(&self) -> bool {
        let folds = match (self.args.learning.folds, self.begun.job.fold) {
            (Some(count), None) => count,
            _ => 1,
        };
        self.finished as u64 >= self.begun.job.runs.saturating_mul(folds as u64)
    }
}

/// The job in a folder that can be gone on with: its arguments, and the text of a configuration.
///
/// # Errors
/// When there is none, or it is not clear which.
pub fn find(parent: &Path) -> Result<(Begun, Train, String)> {
    let mut jobs = all_in(parent)?;
    let any = !jobs.is_empty();
    if jobs.len() > 1 {
        jobs.retain(|job| !job.is_finished());
    }
    if jobs.len() > 1 {
        let first = |job: &Found| job.begun.folders.values().next().cloned().unwrap_or_default();
        let list: Vec<String> = jobs.iter().map(|job| first(job).display().to_string()).collect();
        let problem = format!(
            "holds several jobs that are not finished; name the folder of one run: of the first \
             runs, {}",
            list.join(", ")
        );
        return Err(Error::argument(format!("--resume {}", parent.display()), problem));
    }
    let Some(Found { begun, mut args, text, .. }) = jobs.pop() else {
        return Err(match any {
            true => Error::file(parent, "holds several jobs, which are all finished"),
            false => Error::file(parent, "is no folder of a run, and holds no runs of a job"),
        });
    };
    let Job { seed, runs, fold, .. } = begun.job;
    args.source.changes.seed = seed;
    args.running.runs = runs;
    args.learning.fold = fold;
    args.planning.plan = config::asked_plan(&text).unwrap_or_else(|| "auto".to_owned());
    Ok((begun, args, text))
}

/// All jobs whose runs lie in a folder.
fn all_in(parent: &Path) -> Result<Vec<Found>> {
    let mut jobs: BTreeMap<String, Found> = BTreeMap::new();
    let Ok(entries) = std::fs::read_dir(parent) else { return Ok(Vec::new()) };
    for path in entries.flatten().map(|entry| entry.path()) {
        let Ok(text) = RunFolder::open(&path).and_then(|run| run.read_config()) else { continue };
        let Some(job) = config::job_of(&text).as_ref().and_then(Job::from_table) else { continue };
        let args = config::train_from(&text, &path)?;
        let part = (args.source.changes.seed, args.learning.fold);
        let done = finished::summary(&path, args.learning.epochs)?.is_some();
        let found = jobs.entry(job.id.clone()).or_insert_with(|| Found {
            begun: Begun { job, folders: BTreeMap::new() },
            args,
            text,
            finished: 0,
        });
        found.finished += usize::from(done);
        found.begun.folders.insert(part, path);
    }
    Ok(jobs.into_values().collect())
}
