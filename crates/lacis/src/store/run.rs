//! [`RunFolder`]: where a training run keeps what it made.
//!
//! ```text
//!   runs/<data>-<model>-<k>/     the first k that is free; making the folder is the lock
//!     config.toml  env.json  plan.json          what ran, where, how
//!     metrics.jsonl                             a line per epoch, appended
//!     checkpoint/<step>.safetensors             the last two; the newest whole one counts
//!     model.safetensors  summary.json           the result
//! ```

use std::fs::{self, OpenOptions};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use lacis_core::{Error, Place, Result};
use serde_json::Value;

use lacis_data::staged::{Existing, Staged};

use super::tensors::Tensors;
use super::write::write_whole;

/// Letters of a data set's or model's name that go into a folder's.
const NAME_LETTERS: usize = 60;
/// Checkpoints that stay: the newest, and one more in case it does not load.
const CHECKPOINTS: usize = 2;
const METRICS: &str = "metrics.jsonl";

/// The folder of a run. See the module's head.
#[derive(Clone, Debug)]
pub struct RunFolder {
    path: PathBuf,
}

/// The state of a run at some step.
#[derive(Clone, Debug)]
pub struct Checkpoint {
    /// The step, or epoch, it was written at.
    pub step: u64,
    /// What was written.
    pub tensors: Tensors,
    /// Newer ones that could not be read, and why.
    pub skipped: Vec<String>,
}

/// What a run's folder holds from its first moment on: enough to go on with.
#[derive(Clone, Copy, Debug)]
pub struct Beginning<'a> {
    /// The text of `config.toml`.
    pub config: &'a str,
    /// What `plan.json` says.
    pub plan: &'a Value,
    /// What `env.json` says.
    pub env: &'a Value,
}

impl Beginning<'_> {
    /// Writes a folder that appears whole.
    fn write(&self, path: &Path) -> Result<()> {
        let staged = Staged::new(path, Existing::Keep)?;
        let hidden = staged.path();
        fs::create_dir(hidden).map_err(|source| Error::io("make", path, source))?;
        let json = |value: &Value| format!("{value:#}\n");
        for (name, text) in [
            ("config.toml", self.config.to_owned()),
            ("plan.json", json(self.plan)),
            ("env.json", json(self.env)),
        ] {
            let written = fs::write(hidden.join(name), text);
            written.map_err(|source| Error::io("write", path.join(name), source))?;
        }
        staged.commit()
    }
}

impl RunFolder {
    /// Makes a new folder `<data>-<model>-<k>` in `parent`, which is made too if need be. It
    /// appears with all that it begins with, or not at all.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn begin(parent: &Path, data: &str, model: &str, with: &Beginning<'_>) -> Result<Self> {
        fs::create_dir_all(parent).map_err(|source| Error::io("make", parent, source))?;
        let stem = format!("{}-{}", plain_name(data), plain_name(model));
        for k in 1u64.. {
            let path = parent.join(format!("{stem}-{k}"));
            if fs::symlink_metadata(&path).is_ok() {
                continue;
            }
            match with.write(&path) {
                Ok(()) => return Ok(RunFolder { path }),
                // Somebody else was faster.
                Err(_) if fs::symlink_metadata(&path).is_ok() => {}
                Err(error) => return Err(error),
            }
        }
        unreachable!("there are not as many folders")
    }

    /// Makes a new folder at a place that the user chose, in the same way.
    ///
    /// # Errors
    /// When there is something already, or the system refuses.
    pub fn begin_at(path: &Path, with: &Beginning<'_>) -> Result<Self> {
        if fs::symlink_metadata(path).is_ok() {
            return Err(Error::file(path, "exists already; name a folder that is not there"));
        }
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent).map_err(|source| Error::io("make", parent, source))?;
        }
        with.write(path)?;
        Ok(RunFolder { path: path.to_owned() })
    }

    /// A run's folder that is there: to go on with it, or to read it.
    ///
    /// # Errors
    /// When there is no such folder.
    pub fn open(path: &Path) -> Result<Self> {
        match path.join("config.toml").is_file() {
            true => Ok(RunFolder { path: path.to_owned() }),
            false => Err(Error::file(path, "is no folder of a run: it has no config.toml")),
        }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Adds lines to `metrics.jsonl`.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn append_metrics(&self, lines: &[Value]) -> Result<()> {
        let path = self.path.join(METRICS);
        let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
        let file = OpenOptions::new().append(true).create(true).open(&path);
        // One write for all: who reads along sees whole lines.
        let written = file.and_then(|mut file| file.write_all(text.as_bytes()));
        written.map_err(|source| Error::io("write", path, source))
    }

    /// The lines of `metrics.jsonl`; a last one that was cut short is left out.
    ///
    /// # Errors
    /// When another line is no JSON, or the system refuses. No file has no lines.
    pub fn read_metrics(&self) -> Result<Vec<Value>> {
        let path = self.path.join(METRICS);
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(source) if source.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            Err(source) => return Err(Error::io("read", path, source)),
        };
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        let parse = |(number, line): (usize, &str)| {
            serde_json::from_str(line).map_err(|error| {
                Error::file_at(&path, Place::Line(number as u64 + 1), error.to_string())
            })
        };
        whole.lines().enumerate().map(parse).collect()
    }

    /// Keeps only these lines of `metrics.jsonl`: a run that goes on from a checkpoint drops those
    /// that came after it.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn replace_metrics(&self, lines: &[Value]) -> Result<()> {
        let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
        self.write_text(METRICS, &text)
    }

    /// The text of `config.toml`.
    ///
    /// # Errors
    /// When there is none, or the system refuses.
    pub fn read_config(&self) -> Result<String> {
        let path = self.path.join("config.toml");
        fs::read_to_string(&path).map_err(|source| Error::io("read", path, source))
    }

    /// Writes `summary.json`.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn write_summary(&self, summary: &Value) -> Result<()> {
        self.write_json("summary.json", summary)
    }

    /// The content of `summary.json`, `env.json` or `plan.json`.
    ///
    /// # Errors
    /// When there is none or it is no JSON, or the system refuses.
    pub fn read_json(&self, name: &str) -> Result<Value> {
        let path = self.path.join(name);
        let text = fs::read_to_string(&path).map_err(|source| Error::io("read", &path, source))?;
        serde_json::from_str(&text).map_err(|error| {
            Error::file_at(&path, Place::Line(error.line() as u64), error.to_string())
        })
    }

    /// Writes `model.safetensors`.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn write_model(&self, model: &Tensors) -> Result<()> {
        model.save(&self.model_path())
    }

    /// Reads `model.safetensors`.
    ///
    /// # Errors
    /// When there is none, or it cannot be read.
    pub fn read_model(&self) -> Result<Tensors> {
        Tensors::load(&self.model_path())
    }

    /// Where the model is.
    pub fn model_path(&self) -> PathBuf {
        self.path.join("model.safetensors")
    }

    /// Writes a checkpoint; once it is there whole, all but the one before it are removed.
    ///
    /// # Errors
    /// When the system refuses; earlier checkpoints are then still there.
    pub fn write_checkpoint(&self, step: u64, state: &Tensors) -> Result<()> {
        let folder = self.path.join("checkpoint");
        fs::create_dir_all(&folder).map_err(|source| Error::io("make", &folder, source))?;
        state.save_sealed(&checkpoint_path(&folder, step))?;
        for old in self.checkpoints()?.into_iter().filter(|&old| old < step).skip(CHECKPOINTS - 1) {
            // One that cannot be removed does no harm.
            let _ = fs::remove_file(checkpoint_path(&folder, old));
        }
        Ok(())
    }

    /// The newest checkpoint that can be read, or `None` if none was written.
    ///
    /// # Errors
    /// When there are some but none can be read; the message is the newest one's.
    pub fn read_checkpoint(&self) -> Result<Option<Checkpoint>> {
        let folder = self.path.join("checkpoint");
        let (mut newest, mut skipped) = (None, Vec::new());
        for step in self.checkpoints()? {
            match Tensors::load_sealed(&checkpoint_path(&folder, step)) {
                Ok(tensors) => return Ok(Some(Checkpoint { step, tensors, skipped })),
                Err(error) => {
                    skipped.push(error.to_string());
                    newest.get_or_insert(error);
                }
            }
        }
        newest.map_or(Ok(None), Err)
    }

    /// Removes what an interrupted write left behind. Only for who owns the run: another's write
    /// that is going on would be lost.
    ///
    /// # Errors
    /// When the folder cannot be read.
    pub fn remove_partial(&self) -> Result<()> {
        for folder in [self.path.clone(), self.path.join("checkpoint")] {
            let partial = |name: &str| name.starts_with('.') && name.ends_with(".partial");
            for name in names(&folder)?.into_iter().filter(|name| partial(name)) {
                let _ = fs::remove_file(folder.join(name));
            }
        }
        Ok(())
    }

    /// Steps that have a checkpoint, newest first.
    fn checkpoints(&self) -> Result<Vec<u64>> {
        let step = |name: String| name.strip_suffix(".safetensors")?.parse().ok();
        let names = names(&self.path.join("checkpoint"))?;
        let mut steps: Vec<u64> = names.into_iter().filter_map(step).collect();
        steps.sort_unstable_by(|a, b| b.cmp(a));
        Ok(steps)
    }

    fn write_json(&self, name: &str, value: &Value) -> Result<()> {
        self.write_text(name, &format!("{value:#}\n"))
    }

    fn write_text(&self, name: &str, text: &str) -> Result<()> {
        write_whole(&self.path.join(name), |file| file.write_all(text.as_bytes()))
    }
}

fn checkpoint_path(folder: &Path, step: u64) -> PathBuf {
    folder.join(format!("{step:08}.safetensors"))
}

/// The names in a folder; none if it is not there.
fn names(folder: &Path) -> Result<Vec<String>> {
    let refused = |source| Error::io("read", folder, source);
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(source) if source.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        Err(source) => return Err(refused(source)),
    };
    let name = |entry: std::io::Result<fs::DirEntry>| {
        Ok(entry.map_err(refused)?.file_name().to_string_lossy().into_owned())
    };
    entries.map(name).collect()
}

/// What of a name can be part of a folder's: of a path the file's name, of other signs a dash.
fn plain_name(name: &str) -> String {
    let last = name.trim_end_matches('/').rsplit('/').next().unwrap_or_default();
    let plain = |c: char| if c.is_alphanumeric() || "._=-".contains(c) { c } else { '-' };
    let plain: String = last.chars().map(plain).take(NAME_LETTERS).collect();
    let plain = plain.trim_start_matches(['.', '-']).trim_end_matches('-');
    if plain.is_empty() { "run".to_owned() } else { plain.to_owned() }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::super::Tensor;
    use super::*;
    use serde_json::json;

    /// What a run in these tests begins with.
    fn beginning(check: impl FnOnce(&Beginning<'_>) -> Result<RunFolder>) -> Result<RunFolder> {
        let (plan, env) = (json!({"id": "abc"}), json!({"threads": 2}));
        check(&Beginning { config: "model = \"gat\"\n", plan: &plan, env: &env })
    }

    fn create(parent: &Path, data: &str, model: &str) -> Result<RunFolder> {
        beginning(|with| RunFolder::begin(parent, data, model, with))
    }

    fn create_at(path: &Path) -> Result<RunFolder> {
        beginning(|with| RunFolder::begin_at(path, with))
    }

    fn state(epoch: i64) -> Tensors {
        let mut state = Tensors::new();
        state.insert("epoch", Tensor::new(&[1], vec![epoch]).unwrap());
        state
    }

    fn epoch(checkpoint: Option<Checkpoint>) -> (u64, i64, usize) {
        let mut found = checkpoint.unwrap();
        (found.step, found.tensors.take::<i64>("epoch", &[1]).unwrap()[0], found.skipped.len())
    }

    #[test]
    fn runs_that_start_together_get_different_folders() {
        let dir = tempfile::tempdir().unwrap();
        let runs = dir.path().join("runs");
        let create = || create(&runs, "cora-like", "gcn").unwrap().path;
        let paths: Vec<PathBuf> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..8).map(|_| scope.spawn(|| [create(), create()])).collect();
            threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
        });
        assert_eq!(paths.iter().collect::<HashSet<_>>().len(), 16);
        assert!((1..=16).all(|k| paths.contains(&runs.join(format!("cora-like-gcn-{k}")))));
        // A free number is used again, a file in the way is not touched.
        fs::remove_dir_all(runs.join("cora-like-gcn-3")).unwrap();
        fs::write(runs.join("cora-like-gcn-17"), "a file").unwrap();
        assert_eq!(create(), runs.join("cora-like-gcn-3"));
        assert_eq!(create(), runs.join("cora-like-gcn-18"));
        assert!(create_at(&runs.join("cora-like-gcn-17")).is_err());
        assert!(create_at(&runs.join("cora-like-gcn-3")).is_err());
        assert!(create_at(&runs.join("new/one")).is_ok());
        assert!(RunFolder::open(&runs.join("cora-like-gcn-17")).is_err());
    }

    #[test]
    fn names_become_parts_of_folders() {
        let names = ["rmat:n=10,e=20", "/data/my graph.npz", "..", "a/b/", "Zürich", ""];
        let plain = ["rmat-n=10-e=20", "my-graph.npz", "run", "b", "Zürich", "run"];
        assert_eq!(names.map(plain_name), plain);
        assert_eq!(plain_name(&"x".repeat(500)).len(), NAME_LETTERS);
    }

    #[test]
    fn files_are_written_and_read() {
        let dir = tempfile::tempdir().unwrap();
        let run = create(dir.path(), "karate", "gat").unwrap();
        for test in [0.5, 0.75] {
            run.write_summary(&json!({"test": test})).unwrap();
        }
        run.write_model(&state(9)).unwrap();
        let again = RunFolder::open(run.path()).unwrap();
        assert_eq!(again.read_config().unwrap(), "model = \"gat\"\n");
        assert_eq!(again.read_json("summary.json").unwrap(), json!({"test": 0.75}));
        assert_eq!(again.read_model().unwrap().iter().count(), 1);
        assert!(again.read_json("no.json").is_err());
        fs::write(run.path().join("env.json"), "{").unwrap();
        assert!(again.read_json("env.json").unwrap_err().to_string().contains("line 1"));
        assert_eq!(again.read_metrics().unwrap(), Vec::<Value>::new());
        assert!(again.read_checkpoint().unwrap().is_none());
        let hidden = names(run.path()).unwrap().into_iter().filter(|n| n.starts_with('.'));
        assert_eq!(hidden.count(), 0);
    }

    /// A job that is killed leaves half a line, half a checkpoint and half a hidden file.
    #[test]
    fn a_killed_run_goes_on_from_the_last_whole_checkpoint() {
        let dir = tempfile::tempdir().unwrap();
        let run = create(dir.path(), "karate", "gcn").unwrap();
        for step in 1..=5 {
            run.append_metrics(&[json!({"epoch": step, "loss": f64::NAN})]).unwrap();
            run.write_checkpoint(step, &state(step as i64)).unwrap();
        }
        let folder = run.path().join("checkpoint");
        assert_eq!(run.checkpoints().unwrap(), [5, 4]);
        assert_eq!(epoch(run.read_checkpoint().unwrap()), (5, 5, 0));
        let whole = fs::read(checkpoint_path(&folder, 5)).unwrap();
        fs::write(checkpoint_path(&folder, 6), &whole[..whole.len() - 3]).unwrap();
        fs::write(folder.join(".00000007.safetensors.1f.partial"), &whole[..9]).unwrap();
        fs::write(run.path().join(".summary.json.2e.partial"), "{").unwrap();
        let mut log = fs::read_to_string(run.path().join(METRICS)).unwrap();
        log.push_str("{\"epoch\": 6, \"lo");
        fs::write(run.path().join(METRICS), log).unwrap();

        let again = RunFolder::open(run.path()).unwrap();
        again.remove_partial().unwrap();
        assert_eq!(names(&folder).unwrap().len(), 3);
        assert_eq!(epoch(again.read_checkpoint().unwrap()), (5, 5, 1));
        let lines = again.read_metrics().unwrap();
        assert_eq!((lines.len(), &lines[4]), (5, &json!({"epoch": 5, "loss": null})));
        again.replace_metrics(&lines).unwrap();
        again.append_metrics(&[json!({"epoch": 6})]).unwrap();
        assert_eq!(again.read_metrics().unwrap().len(), 6);
        again.write_checkpoint(6, &state(6)).unwrap();
        assert_eq!(epoch(again.read_checkpoint().unwrap()), (6, 6, 0));
        for step in [5, 6] {
            fs::write(checkpoint_path(&folder, step), "").unwrap();
        }
        let error = again.read_checkpoint().unwrap_err().to_string();
        assert!(error.contains("00000006.safetensors: is no whole"), "{error}");
        let log = fs::read_to_string(run.path().join(METRICS)).unwrap();
        fs::write(run.path().join(METRICS), format!("broken\n{log}")).unwrap();
        assert!(again.read_metrics().unwrap_err().to_string().contains("line 1"));
    }

    /// Under a file there can be no folder, whoever asks: root too may not.
    #[test]
    fn a_place_that_cannot_be_written_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        fs::write(&file, "").unwrap();
        assert!(create(&file, "a", "b").is_err());
        assert!(create_at(&file.join("run")).is_err());
        let run = create(dir.path(), "a", "b").unwrap();
        fs::remove_dir_all(run.path()).unwrap();
        assert!(run.append_metrics(&[json!({})]).is_err());
        assert!(run.write_summary(&json!({})).is_err());
        assert!(run.write_model(&state(0)).is_err());
        assert!(run.write_checkpoint(0, &state(0)).is_ok(), "it makes its folder");
    }

    #[cfg(unix)]
    #[test]
    fn a_folder_that_is_read_only_is_an_error() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        let run = create(dir.path(), "a", "b").unwrap();
        run.write_checkpoint(1, &state(1)).unwrap();
        for folder in [run.path().join("checkpoint"), run.path().to_owned()] {
            fs::set_permissions(&folder, fs::Permissions::from_mode(0o555)).unwrap();
        }
        // Whoever may write everywhere is not refused.
        let refused = fs::write(run.path().join("probe"), "").is_err();
        if refused {
            let error = run.write_summary(&json!({})).unwrap_err();
            assert!(error.to_string().starts_with("cannot write"), "{error}");
            assert!(run.append_metrics(&[json!({})]).is_err());
            assert!(run.write_checkpoint(2, &state(2)).is_err());
            assert!(create(run.path(), "a", "b").is_err());
        }
        assert_eq!(epoch(run.read_checkpoint().unwrap()), (1, 1, 0));
        fs::set_permissions(run.path(), fs::Permissions::from_mode(0o755)).unwrap();
        fs::set_permissions(run.path().join("checkpoint"), fs::Permissions::from_mode(0o755))
            .unwrap();
    }
}
