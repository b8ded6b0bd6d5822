//! Times: contestants take turns, and medians count.

use std::time::Instant;

use lacis_core::{Error, Result};
use lacis_kernels::Isa;

use super::Problem;

/// How long something takes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Timing {
    /// The median, in seconds.
    pub seconds: f64,
    /// From the first quartile to the third.
    pub iqr: f64,
    /// How many times it was measured.
    pub rounds: usize,
}

impl Timing {
    /// The median and the spread of some measurements.
    pub fn of(mut seconds: Vec<f64>) -> Timing {
        if seconds.is_empty() {
            return Timing { seconds: f64::NAN, iqr: f64::NAN, rounds: 0 };
        }
        seconds.sort_by(f64::total_cmp);
        let quantile = |q: f64| {
            let place = q * (seconds.len() - 1) as f64;
            let (low, high) = (seconds[place.floor() as usize], seconds[place.ceil() as usize]);
            low + (high - low) * place.fract()
        };
        let iqr = quantile(0.75) - quantile(0.25);
        Timing { seconds: quantile(0.5), iqr, rounds: seconds.len() }
    }
}

/// Who takes a turn on a problem.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Contestant {
    /// A kernel by its place in its table.
    Kernel(usize, Isa),
    /// The loop that anyone would write.
    Plain(Isa),
    /// Moving the data, computing nothing.
    Roof(Isa),
}

impl Contestant {
    /// One run; `false` where the problem has no such contestant.
    ///
    /// # Errors
    /// When the problem refuses.
    pub fn run(self, problem: &mut dyn Problem) -> Result<bool> {
        match self {
            Contestant::Kernel(kernel, isa) => problem.run(kernel, isa).map(|()| true),
            Contestant::Plain(isa) => problem.plain(isa),
            Contestant::Roof(isa) => problem.roof(isa),
        }
    }

    /// Seconds of one run, the mean of `repeats`.
    ///
    /// # Errors
    /// When the problem refuses.
    pub fn seconds(self, problem: &mut dyn Problem, repeats: usize) -> Result<f64> {
        let begun = Instant::now();
        for _ in 0..repeats {
            self.run(problem)?;
        }
        Ok(begun.elapsed().as_secs_f64() / repeats as f64)
    }
}

/// A time that clocks and interrupts do not disturb much.
const STEADY_S: f64 = 2e-4;

/// How many runs to time together, when one takes this long.
pub fn repeats(seconds: f64) -> usize {
    ((STEADY_S / seconds.max(1e-8)).ceil() as usize).clamp(1, 2000)
}

/// Measures contestants in turns, `rounds` times each. `turn(c)` gives the seconds of one turn of
/// contestant `c`.
///
/// # Errors
/// Those of `turn`.
pub fn alternate(
    contestants: usize,
    rounds: usize,
    mut turn: impl FnMut(usize) -> Result<f64>,
) -> Result<Vec<Timing>> {
    let mut seconds = vec![Vec::with_capacity(rounds); contestants];
    for _ in 0..rounds {
        for (c, seconds) in seconds.iter_mut().enumerate() {
            seconds.push(turn(c)?);
        }
    }
    Ok(seconds.into_iter().map(Timing::of).collect())
}

/// Runs a kernel once and compares it with the reference on a sample of rows.
///
/// # Errors
/// [`Error::Argument`] that names the kernel and the first wrong number.
pub fn check(
    problem: &mut dyn Problem,
    sample: &super::Sample,
    kernel: (usize, &str),
    isa: Isa,
) -> Result<()> {
    problem.run(kernel.0, isa)?;
    sample.check(&problem.rows(&sample.rows)).map_err(|wrong| {
        Error::argument(format!("{} on {}", kernel.1, isa.name()), format!("is wrong: {wrong}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_and_quartiles() {
        let timing = Timing::of(vec![5.0, 1.0, 3.0, 2.0, 4.0]);
        assert_eq!((timing.seconds, timing.iqr, timing.rounds), (3.0, 2.0, 5));
        assert_eq!(Timing::of(vec![1.0, 2.0]).seconds, 1.5);
        assert!(Timing::of(vec![]).seconds.is_nan());
    }

    #[test]
    fn everyone_takes_turns() {
        let mut order = Vec::new();
        let timings = alternate(2, 3, |c| {
            order.push(c);
            Ok(c as f64)
        });
        assert_eq!(order, [0, 1, 0, 1, 0, 1]);
        assert_eq!(timings.unwrap()[1].seconds, 1.0);
    }
}
