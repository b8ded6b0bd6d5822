//! The two sides of a contest, each a process of its own: what they take in memory is theirs alone.
//!
//! ```text
//!  us                                     a side: `lacis bench train-worker`, or peer.py
//!  {"do":"prepare", …}               →    reads graph, features and classes; first weights
//!                                    ←    {"versions":…} or {"plan":…,"predicted_ms":…}
//!  {"do":"epochs","count":3}         →
//!                                    ←    {"seconds":[…],"losses":[…]}
//!  {"do":"memory"}                   →
//!                                    ←    {"base_bytes":…,"peak_bytes":…}      or {"error":…}
//! ```

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use lacis::ops::measure::Timing;
use lacis::{Dataset, Error, Labels, Result, Split};
use serde_json::{Value, json};

use super::definition::How;
use crate::partner::{Folder, Partner};

const PEER: &str = include_str!("peer.py");
/// After their turn, other libraries' threads look for more work for a while.
const SETTLE: Duration = Duration::from_millis(5);
/// A turn has as many epochs as fill this, up to [`MOST_EPOCHS`].
const TURN_S: f64 = 0.15;
const MOST_EPOCHS: f64 = 30.0;

/// Who trains.
pub struct Side {
    partner: Partner,
    /// What it said when it was ready.
    pub ready: Value,
    pub losses: Vec<f64>,
    first: f64,
    turns: Vec<f64>,
}

/// What did not work, in words.
pub type Said<T> = std::result::Result<T, String>;

impl Side {
    /// Lacis, training what `words` say; its first weights go to a file.
    pub fn ours(words: &[String], weights: &Path, how: &How) -> Said<Self> {
        let mut command = this_command()?;
        command.args(["bench", "train-worker", "--"]).args(words);
        let weights = weights.to_string_lossy();
        let order = json!({ "do": "prepare", "weights": weights, "passes": how.passes,
                            "compared_epochs": how.compared_epochs });
        Side::prepared(command, &order)
    }

    /// A peer that is told what to train, and finds the rest in a folder.
    pub fn peer(python: &str, order: &Value) -> Said<Self> {
        let threads = order["threads"].as_u64().unwrap_or(1) as usize;
        Side::prepared(Partner::python(python, PEER, threads), order)
    }

    fn prepared(command: Command, order: &Value) -> Said<Self> {
        let mut partner = Partner::start(command)?;
        let ready = partner.ask(order)?;
        let mut side =
            Side { partner, ready, losses: Vec::new(), first: f64::NAN, turns: Vec::new() };
        side.first = side.epochs(1)?[0];
        Ok(side)
    }

    fn epochs(&mut self, count: usize) -> Said<Vec<f64>> {
        let answer = self.partner.ask(&json!({ "do": "epochs", "count": count }))?;
        std::thread::sleep(SETTLE);
        let numbers = |of: &Value| -> Vec<f64> {
            let all = of.as_array().into_iter().flatten();
            all.map(|number| number.as_f64().unwrap_or(f64::NAN)).collect()
        };
        self.losses.extend(numbers(&answer["losses"]));
        let seconds = numbers(&answer["seconds"]);
        if seconds.len() == count { Ok(seconds) } else { Err("no times".to_owned()) }
    }

    /// Takes a turn: some epochs, of which the first is left out where there are enough.
    pub fn turn(&mut self) -> Said<()> {
        let last = self.turns.last().copied().unwrap_or(self.first);
        let count = (TURN_S / last.max(1e-6)).ceil().clamp(1.0, MOST_EPOCHS) as usize;
        let seconds = self.epochs(count)?;
        let counted = if count >= 3 { &seconds[1..] } else { &seconds[..] };
        self.turns.push(Timing::of(counted.to_vec()).seconds);
        Ok(())
    }

    /// The median of the turns, in milliseconds.
    pub fn epoch_ms(&self) -> f64 {
        Timing::of(self.turns.clone()).seconds * 1e3
    }

    /// What it came to.
    pub fn record(&mut self) -> Said<Value> {
        let memory = self.partner.ask(&json!({ "do": "memory" }))?;
        let bytes = |name: &str| memory[name].as_u64();
        let extra = bytes("peak_bytes").zip(bytes("base_bytes"));
        let timing = Timing::of(self.turns.clone());
        let mut record = json!({
            "epoch_ms": timing.seconds * 1e3, "iqr_ms": timing.iqr * 1e3,
            "first_ms": self.first * 1e3, "base_bytes": memory["base_bytes"],
            "extra_bytes": extra.map(|(peak, base)| peak.saturating_sub(base)),
            "losses": self.losses.iter().take(3).collect::<Vec<_>>(),
        });
        if let (Some(record), Some(ready)) = (record.as_object_mut(), self.ready.as_object()) {
            record.extend(ready.clone());
        }
        Ok(record)
    }
}

/// How far two curves of losses are apart, relative above 1, in the epochs that both have.
pub fn apart(ours: &[f64], theirs: &[f64], epochs: usize) -> f64 {
    let off = |(a, b): (&f64, &f64)| (a - b).abs() / b.abs().max(1.0);
    // A loss that is no number differs from everything.
    let off = ours.iter().zip(theirs).take(epochs).map(off);
    off.fold(0.0, |most, one| if one.is_nan() { f64::INFINITY } else { most.max(one) })
}

/// This command again: the program itself, or the Python that it runs in.
fn this_command() -> Said<Command> {
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    let name = program.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let mut command = Command::new(program);
    if name.starts_with("python") {
        command.args(["-m", "lacis"]);
    }
    Ok(command)
}

/// Puts what peers need to know of the data into a folder.
///
/// # Errors
/// When there is something that peers are not given: several labels each, or no features.
pub fn hand_over(dataset: &Dataset, split: &Split, folder: &Folder) -> Result<()> {
    let missing = |what: &str| Error::argument(format!("data set '{}'", dataset.name()), what);
    let features = dataset.features().ok_or_else(|| missing("has no features; features = F"))?;
    let Some(Labels::Classes { of, .. }) = dataset.labels() else {
        return Err(missing("has no classes to compare with peers; classes = C makes some"));
    };
    folder.put_matrix(&dataset.graph().adjacency().as_ref().clone().without_unit_values())?;
    let x = features.to_dense();
    let rows: Vec<f32> = x.rows().flatten().copied().collect();
    folder.put("x", &[x.n_rows(), x.n_cols()], &rows)?;
    folder.put("y", &[of.len()], of)?;
    folder.put("train", &[split.train.len()], &split.train)
}

#[cfg(test)]
mod tests {
    use super::apart;

    #[test]
    fn losses_are_compared_where_both_have_some() {
        assert_eq!(apart(&[1.0, 2.0, 9.0], &[1.0, 2.0], 3), 0.0);
        assert!((apart(&[101.0], &[100.0], 3) - 0.01).abs() < 1e-12);
        assert!((apart(&[0.3], &[0.2], 3) - 0.1).abs() < 1e-12);
        assert!(apart(&[f64::NAN], &[1.0], 3).is_infinite());
    }
}
