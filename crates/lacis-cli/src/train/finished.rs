//! Runs that have nothing left to do: what they said at their end is said again.

use std::path::Path;

use lacis::Result;
use lacis::store::RunFolder;
use serde_json::{Value, json};

use super::run::ended;
use crate::out::{Out, Outcome};

/// The summary of a run of so many epochs that is finished, with weights of its last epoch.
pub fn summary(folder: &Path, epochs: usize) -> Result<Option<Value>> {
    let run = RunFolder::open(folder)?;
    // Weights that cannot be read are in the checkpoint, too.
    let (Ok(mut summary), Ok(_)) = (run.read_json("summary.json"), run.read_model()) else {
        return Ok(None);
    };
    let Some(mut last) = run.read_checkpoint()? else { return Ok(None) };
    let patience = last.tensors.take::<i64>("patience", &[4])?.to_vec();
    // One that was stopped by the clock has a summary too, of fewer epochs.
    let same = summary["epochs"].as_u64() == Some(last.step);
    if !same || !ended((last.step as usize, epochs), patience[3]) {
        return Ok(None);
    }
    // It may have been moved since.
    summary["run"] = json!(folder.display().to_string());
    Ok(Some(summary))
}

/// Says it again, under the name that the line has: `done`, or `run` of one of several.
pub fn tell(out: &Out, name: &str, summary: &Value) -> Outcome {
    out.note("the run is finished: nothing was changed");
    out.event(name, summary)?;
    let score = |part: &str| match summary[part].as_f64() {
        Some(score) => format!("{score:.4}"),
        None => "-".to_owned(),
    };
    let text = |key: &str| summary[key].as_str().unwrap_or_default().to_owned();
    let [test, val, train] = ["test", "val", "train"].map(score);
    let (metric, best, epochs) = (text("metric"), &summary["best_epoch"], &summary["epochs"]);
    out.line(format_args!(
        "{metric}   test {test}   val {val}   train {train}   best epoch {best} of {epochs}"
    ))?;
    out.line(format_args!("plan       {}", text("plan")))?;
    out.line(format_args!("run        {}", text("run")))
}
