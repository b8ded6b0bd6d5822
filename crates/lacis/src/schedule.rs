//! When training changes its pace, and when it stops: pure functions of what happened so far.
//!
//! ```text
//!   rate(e) = base · warm-up(e) · schedule(e)
//!     warm-up(e)    (e + 1) / w for e < w, else 1
//!     step          factor^⌊e / every⌋
//!     cosine        m + (1 − m)·(1 + cos(π·e / epochs)) / 2      falls from 1 to the least, m
//!     plateau       factor^(times that `patience` epochs brought no better value)
//! ```
//! Epochs count from 0. A [`Decay`] counts them after the warm-up's end.

use std::str::FromStr;
use std::time::Duration;

use lacis_core::{Error, Result};

/// How the learning rate falls.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Decay {
    /// Not at all.
    Constant,
    /// By `factor` every so many epochs.
    Step {
        /// Epochs between two steps.
        every: usize,
        /// What the rate is multiplied by.
        factor: f64,
    },
    /// Along half a cosine to `least` times the base rate at the last epoch.
    Cosine {
        /// Epochs until the least rate is reached; it stays there.
        epochs: usize,
        /// The least rate, as a part of the base rate.
        least: f64,
    },
    /// By `factor` whenever `patience` epochs in a row brought no better value.
    Plateau {
        /// Epochs to wait for a better value.
        patience: usize,
        /// What the rate is multiplied by.
        factor: f64,
    },
}

/// A learning rate over the epochs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Schedule {
    /// The rate before anything changes it.
    pub base: f64,
    /// Epochs in which it rises evenly to the base rate; 0 for none.
    pub warm_up: usize,
    /// How it falls then.
    pub decay: Decay,
}

impl Schedule {
    /// The same rate in every epoch.
    pub fn constant(base: f64) -> Self {
        Schedule { base, warm_up: 0, decay: Decay::Constant }
    }

    /// The rate of an epoch. `plateaus` is how often a plateau was reached before it
    /// ([`Patience::exhausted`]); only [`Decay::Plateau`] looks at it.
    pub fn rate(&self, epoch: usize, plateaus: u32) -> f64 {
        if epoch < self.warm_up {
            return self.base * (epoch + 1) as f64 / self.warm_up as f64;
        }
        let epoch = epoch - self.warm_up;
        self.base
            * match self.decay {
                Decay::Constant => 1.0,
                Decay::Step { every, factor } => factor.powf((epoch / every.max(1)) as f64),
                Decay::Cosine { epochs, least } => {
                    let part = epoch.min(epochs) as f64 / epochs.max(1) as f64;
                    let part = if epochs == 0 { 1.0 } else { part };
                    least + (1.0 - least) * (1.0 + (std::f64::consts::PI * part).cos()) / 2.0
                }
                Decay::Plateau { factor, .. } => factor.powf(f64::from(plateaus)),
            }
    }
}

/// Warm-up and decay of a training of so many epochs: `none`, `step`, `cosine`, `plateau` or what
/// [`Decay`] takes, after `warmup:EPOCHS,` where the rate rises first.
///
/// # Errors
/// When it is no schedule.
pub fn parse_schedule(text: &str, epochs: usize) -> Result<(usize, Decay)> {
    let (warm_up, rest) = match text.split_once(',') {
        Some((first, rest)) if first.starts_with("warmup") => (first, rest),
        None if text.starts_with("warmup") => (text, "none"),
        _ => ("warmup:0", text),
    };
    let warm_up: usize = match warm_up.strip_prefix("warmup:").map(str::parse) {
        Some(Ok(warm_up)) => warm_up,
        _ => {
            let problem = "is no warm-up; warmup:EPOCHS would be right";
            return Err(Error::argument(format!("'{warm_up}'"), problem));
        }
    };
    let decay = match rest {
        "none" => Decay::Constant,
        "step" => Decay::Step { every: (epochs / 3).max(1), factor: 0.1 },
        "cosine" => Decay::Cosine { epochs: epochs.saturating_sub(warm_up).max(1), least: 0.0 },
        "plateau" => Decay::Plateau { patience: 10, factor: 0.5 },
        other => other.parse()?,
    };
    Ok((warm_up, decay))
}

impl FromStr for Decay {
    type Err = Error;

    /// `none`, `step:EVERY:FACTOR`, `cosine:EPOCHS[:LEAST]` or `plateau:PATIENCE:FACTOR`.
    fn from_str(text: &str) -> Result<Self> {
        let parts: Vec<&str> = text.split(':').collect();
        let decay = match parts[..] {
            ["none" | "constant"] => Some(Decay::Constant),
            ["step", every, factor] => {
                whole(every).zip(part(factor)).map(|(every, factor)| Decay::Step { every, factor })
            }
            ["cosine", epochs] => whole(epochs).map(|epochs| Decay::Cosine { epochs, least: 0.0 }),
            ["cosine", epochs, least] => whole(epochs)
                .zip(part(least))
                .map(|(epochs, least)| Decay::Cosine { epochs, least }),
            ["plateau", patience, factor] => whole(patience)
                .zip(part(factor))
                .map(|(patience, factor)| Decay::Plateau { patience, factor }),
            _ => None,
        };
        decay.ok_or_else(|| {
            let problem = "is no schedule; none, step:EVERY:FACTOR, cosine:EPOCHS[:LEAST] and \
                           plateau:PATIENCE:FACTOR are";
            Error::argument(format!("'{text}'"), problem)
        })
    }
}

/// A number above 0.
fn whole(text: &str) -> Option<usize> {
    text.parse().ok().filter(|&n| n > 0)
}

/// A number from 0 to 1.
fn part(text: &str) -> Option<f64> {
    text.parse().ok().filter(|x| (0.0..=1.0).contains(x))
}

/// Which of two values of a metric is the better one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Better {
    /// The higher, as of an accuracy.
    Higher,
    /// The lower, as of an error.
    Lower,
}

impl Better {
    /// Whether `value` is strictly better than `than`. Any number is better than NaN.
    pub fn is_better(self, value: f64, than: f64) -> bool {
        match self {
            Better::Higher => value > than || than.is_nan() && !value.is_nan(),
            Better::Lower => value < than || than.is_nan() && !value.is_nan(),
        }
    }
}

/// Waits for a better value: for early stopping, for the best epoch, and for plateaus.
#[derive(Clone, Debug, PartialEq)]
pub struct Patience {
    better: Better,
    /// Epochs to wait; `None` waits for ever.
    patience: Option<usize>,
    best: Option<(usize, f64)>,
    /// The epoch that waiting began with: the first, the best, or that in which it last ran out.
    from: Option<usize>,
    exhausted: u32,
}

/// What an epoch's value meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// It is the best so far.
    Best,
    /// There is still patience for a better one.
    Waiting,
    /// Patience has run out; it begins anew if one goes on.
    Exhausted,
}

impl Patience {
    /// Waits so many epochs for a better value; `None` waits for ever.
    pub fn new(better: Better, patience: Option<usize>) -> Self {
        Patience { better, patience, best: None, from: None, exhausted: 0 }
    }

    /// Takes in an epoch's value; not every epoch need have one. The best is the first of several
    /// equal ones; NaN is never best.
    pub fn see(&mut self, epoch: usize, value: f64) -> Progress {
        let best = self.best.map_or(f64::NAN, |(_, best)| best);
        if self.better.is_better(value, best) {
            self.best = Some((epoch, value));
            self.from = Some(epoch);
            return Progress::Best;
        }
        let waited = epoch.saturating_sub(*self.from.get_or_insert(epoch));
        if self.patience.is_none_or(|patience| waited < patience) {
            return Progress::Waiting;
        }
        self.from = Some(epoch);
        self.exhausted += 1;
        Progress::Exhausted
    }

    /// The best epoch and its value, once there is one.
    pub fn best(&self) -> Option<(usize, f64)> {
        self.best
    }

    /// All that it remembers, for a checkpoint.
    pub fn state(&self) -> [i64; 4] {
        let (epoch, bits) = self.best.map_or((-1, 0), |(e, value)| (e as i64, value.to_bits()));
        let from = self.from.map_or(-1, |epoch| epoch as i64);
        [epoch, bits as i64, from, i64::from(self.exhausted)]
    }

    /// Goes on from a [`Patience::state`].
    ///
    /// # Errors
    /// When it is none.
    pub fn restore(&mut self, [epoch, bits, from, exhausted]: [i64; 4]) -> Result<()> {
        let problem = "holds numbers that do not fit, or is an earlier version's";
        let bad = || Error::argument("state of early stopping", problem);
        // Nobody waits from an epoch before the best one.
        if from < epoch {
            return Err(bad());
        }
        self.best = usize::try_from(epoch).ok().map(|epoch| (epoch, f64::from_bits(bits as u64)));
        self.from = usize::try_from(from).ok();
        self.exhausted = u32::try_from(exhausted).map_err(|_| bad())?;
        Ok(())
    }

    /// How often patience ran out.
    pub fn exhausted(&self) -> u32 {
        self.exhausted
    }
}

/// A length of time such as `2h`, `90m`, `1h30m`, `30s` or `1d12h`.
///
/// # Errors
/// When it is none, or units do not fall from left to right.
pub fn parse_duration(text: &str) -> Result<Duration> {
    const UNITS: [(char, u64); 4] = [('d', 86_400), ('h', 3_600), ('m', 60), ('s', 1)];
    let bad = || {
        let problem = "is no length of time; 2h, 90m, 1h30m or 30s would be right";
        Error::argument(format!("'{text}'"), problem)
    };
    let (mut rest, mut seconds, mut units) = (text.trim(), 0u64, &UNITS[..]);
    while !rest.is_empty() {
        let end = rest.find(|c: char| !c.is_ascii_digit()).ok_or_else(bad)?;
        let count: u64 = rest[..end].parse().map_err(|_| bad())?;
        let unit = rest[end..].chars().next().ok_or_else(bad)?;
        // Each unit at most once, the longer before the shorter.
        let place = units.iter().position(|(name, _)| *name == unit).ok_or_else(bad)?;
        let more = count.checked_mul(units[place].1).ok_or_else(bad)?;
        seconds = seconds.checked_add(more).ok_or_else(bad)?;
        units = &units[place + 1..];
        rest = &rest[end + 1..];
    }
    let any = text.trim() != "" && seconds > 0;
    if any { Ok(Duration::from_secs(seconds)) } else { Err(bad()) }
}

/// An amount of memory, or a part of what there is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum MemorySize {
    /// So many bytes.
    Bytes(u64),
    /// A part of the machine's memory, above 0 and at most 1.
    Part(f64),
}

impl MemorySize {
    /// In bytes, on a machine that has `total`.
    pub fn bytes(self, total: u64) -> u64 {
        match self {
            MemorySize::Bytes(bytes) => bytes,
            MemorySize::Part(part) => (total as f64 * part) as u64,
        }
    }
}

impl FromStr for MemorySize {
    type Err = Error;

    /// `8G`, `512MiB`, `1.5GB`, `1048576` or `80%`. K, M, G and T, with or without `iB`, are powers
    /// of 1024, as memory is counted; with `B` alone they are powers of 1000.
    fn from_str(text: &str) -> Result<Self> {
        let bad = || {
            let problem = "is no amount of memory; 8G, 512MiB or 80% would be right";
            Error::argument(format!("'{text}'"), problem)
        };
        let trimmed = text.trim();
        let end = trimmed.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(trimmed.len());
        let number: f64 = trimmed[..end].parse().map_err(|_| bad())?;
        let unit = trimmed[end..].trim().to_ascii_lowercase();
        if unit == "%" {
            let allowed = number > 0.0 && number <= 100.0;
            return if allowed { Ok(MemorySize::Part(number / 100.0)) } else { Err(bad()) };
        }
        let bytes = number * unit_bytes(&unit).ok_or_else(bad)?;
        // Beyond 2^53 an f64 does not count in ones; no memory is that large.
        let allowed = (1.0..9e15).contains(&bytes);
        if allowed { Ok(MemorySize::Bytes(bytes as u64)) } else { Err(bad()) }
    }
}

/// The bytes of a lower-case unit.
fn unit_bytes(unit: &str) -> Option<f64> {
    if matches!(unit, "" | "b") {
        return Some(1.0);
    }
    let (prefix, rest) = unit.split_at_checked(1)?;
    let power = ["k", "m", "g", "t"].iter().position(|p| *p == prefix)? as i32 + 1;
    match rest {
        "" | "ib" => Some(1024f64.powi(power)),
        "b" => Some(1000f64.powi(power)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rates(schedule: Schedule, epochs: &[usize]) -> Vec<f64> {
        epochs.iter().map(|&e| (schedule.rate(e, 2) * 1e6).round() / 1e6).collect()
    }

    #[test]
    fn schedules_follow_their_formulas() {
        let of = |decay| Schedule { base: 0.1, warm_up: 0, decay };
        assert_eq!(rates(Schedule::constant(0.1), &[0, 99]), [0.1, 0.1]);
        let step = Decay::Step { every: 10, factor: 0.5 };
        assert_eq!(rates(of(step), &[0, 9, 10, 25]), [0.1, 0.1, 0.05, 0.025]);
        let cosine = Decay::Cosine { epochs: 100, least: 0.1 };
        assert_eq!(rates(of(cosine), &[0, 50, 100, 200]), [0.1, 0.055, 0.01, 0.01]);
        let plateau = Decay::Plateau { patience: 3, factor: 0.1 };
        assert_eq!(rates(of(plateau), &[0]), [0.001]);
        let warm = Schedule { base: 0.1, warm_up: 4, decay: step };
        assert_eq!(rates(warm, &[0, 1, 3, 4, 14]), [0.025, 0.05, 0.1, 0.1, 0.05]);
    }

    #[test]
    fn schedules_are_parsed() {
        let ok = |text: &str| text.parse::<Decay>().unwrap();
        assert_eq!(ok("constant"), Decay::Constant);
        assert_eq!(ok("step:30:0.1"), Decay::Step { every: 30, factor: 0.1 });
        assert_eq!(ok("cosine:200"), Decay::Cosine { epochs: 200, least: 0.0 });
        assert_eq!(ok("cosine:200:0.01"), Decay::Cosine { epochs: 200, least: 0.01 });
        assert_eq!(ok("plateau:10:0.5"), Decay::Plateau { patience: 10, factor: 0.5 });
        for text in ["", "step", "step:0:0.1", "step:5:2", "cosine:-1", "plateau:1:NaN", "linear"] {
            assert!(text.parse::<Decay>().is_err(), "{text}");
        }
    }

    #[test]
    fn schedules_have_short_names_and_warm_ups() {
        let of = |text: &str| parse_schedule(text, 300).unwrap();
        assert_eq!(of("none"), (0, Decay::Constant));
        assert_eq!(of("warmup:5"), (5, Decay::Constant));
        assert_eq!(of("step"), (0, Decay::Step { every: 100, factor: 0.1 }));
        assert_eq!(of("warmup:50,cosine"), (50, Decay::Cosine { epochs: 250, least: 0.0 }));
        assert_eq!(of("plateau"), (0, Decay::Plateau { patience: 10, factor: 0.5 }));
        assert_eq!(of("warmup:2,step:5:0.5"), (2, Decay::Step { every: 5, factor: 0.5 }));
        for text in ["warm", "warmup", "warmup:x,cosine", "warmup:3,", "linear"] {
            assert!(parse_schedule(text, 10).is_err(), "{text}");
        }
    }

    #[test]
    fn patience_runs_out_and_the_first_best_is_kept() {
        let mut wait = Patience::new(Better::Higher, Some(3));
        let seen: Vec<_> = [0.5, 0.7, 0.7, 0.6, f64::NAN, 0.8]
            .iter()
            .enumerate()
            .map(|(e, &v)| wait.see(e, v))
            .collect();
        use Progress::{Best, Exhausted, Waiting};
        assert_eq!(seen, [Best, Best, Waiting, Waiting, Exhausted, Best]);
        assert_eq!((wait.best(), wait.exhausted()), (Some((5, 0.8)), 1));
        let mut restored = Patience::new(Better::Higher, Some(3));
        restored.restore(wait.state()).unwrap();
        assert_eq!(restored, wait);
        assert!(restored.restore([0, 0, -1, 0]).is_err());
        assert!(restored.restore([0, 0, 0, -1]).is_err());
        let fresh = Patience::new(Better::Higher, Some(3));
        restored.restore(fresh.state()).unwrap();
        assert_eq!(restored, fresh);
        let mut error = Patience::new(Better::Lower, None);
        assert_eq!(error.see(0, f64::NAN), Waiting);
        assert_eq!((error.see(1, 3.0), error.see(2, 2.0)), (Best, Best));
        assert!((3..1000).all(|e| error.see(e, 2.0) == Waiting));
        assert_eq!(error.best(), Some((2, 2.0)));
    }

    /// However often somebody looks, an epoch is an epoch.
    #[test]
    fn patience_is_counted_in_epochs() {
        let stopped = |every: usize| {
            let mut wait = Patience::new(Better::Lower, Some(10));
            let value = |epoch: usize| if epoch <= 20 { -(epoch as f64) } else { 0.0 };
            (1..).map(|i| i * every).find(|&e| wait.see(e, value(e)) == Progress::Exhausted)
        };
        assert_eq!([1, 5, 4, 20].map(stopped), [Some(30), Some(30), Some(32), Some(40)]);
    }

    #[test]
    fn lengths_of_time_are_parsed() {
        let seconds = |text| parse_duration(text).unwrap().as_secs();
        assert_eq!(
            ["2h", "90m", "1h30m", "30s", "1d2h3m4s"].map(seconds),
            [7200, 5400, 5400, 30, 93_784]
        );
        for text in
            ["", "h", "2", "2x", "30m1h", "1h1h", "-1h", "0s", "1.5h", "99999999999999999999s", "ü"]
        {
            assert!(parse_duration(text).is_err(), "{text}");
        }
        let error = parse_duration("2 hours").unwrap_err().to_string();
        assert_eq!(error, "'2 hours': is no length of time; 2h, 90m, 1h30m or 30s would be right");
    }

    #[test]
    fn amounts_of_memory_are_parsed() {
        let bytes = |text: &str| text.parse::<MemorySize>().unwrap();
        let gib = 1u64 << 30;
        for text in ["8G", "8g", "8GiB", " 8 gib ", "8192M", "8589934592", "8589934592B"] {
            assert_eq!(bytes(text), MemorySize::Bytes(8 * gib), "{text}");
        }
        assert_eq!(bytes("1.5GB"), MemorySize::Bytes(1_500_000_000));
        assert_eq!(bytes("512MiB").bytes(0), gib / 2);
        assert_eq!(bytes("80%").bytes(1000), 800);
        for text in
            ["", "G", "0", "-1G", "0%", "101%", "8X", "8GG", "1e3", "1..2", "NaN", "9999999T", "é"]
        {
            assert!(text.parse::<MemorySize>().is_err(), "{text}");
        }
    }
}
