//! The tuning curve of iSpLib (Hoque Anik et al., WWW 2024): how much faster than a plain loop the
//! chosen kernel is, for each width.

use lacis_core::{Csr, Result};
use lacis_data::Job;
use lacis_kernels::profile::{Choice, Profile};

use crate::ops::measure::{Contestant, Timing, alternate, check, repeats};
use crate::ops::{Form, Setting, find};

/// One width of the curve.
#[derive(Clone, Copy, Debug)]
pub struct Point {
    /// Columns of x.
    pub k: usize,
    /// What the profile chose.
    pub choice: Choice,
    /// How long that takes.
    pub tuned: Timing,
    /// How long the loop takes that anyone would write, compiled for the same instructions.
    pub plain: Timing,
}

impl Point {
    /// How many times faster the chosen kernel is.
    pub fn speedup(&self) -> f64 {
        self.plain.seconds / self.tuned.seconds
    }
}

/// Measures the SpMM of a graph at one width. The result is checked first.
///
/// # Errors
/// When it is stopped, memory is refused, or a result is wrong.
pub fn measure(
    graph: &Csr,
    k: usize,
    rounds: usize,
    profile: &Profile,
    job: &Job<'_>,
) -> Result<Point> {
    let _keeper = job.threads.keep();
    let op = find("spmm")?;
    let form = Form { weighted: graph.values().is_some(), ..Form::PLAIN };
    let mut problem = (op.prepare)(&Setting { graph, k, n: 0, form, threads: job.threads })?;
    let (place, choice) = op.choose(profile, problem.as_ref());
    let sample = problem.sample()?;
    check(problem.as_mut(), &sample, (place, choice.kernel), choice.isa)?;
    let both = [Contestant::Kernel(place, choice.isa), Contestant::Plain(choice.isa)];
    let mut together = [1; 2];
    for (contestant, together) in both.iter().zip(&mut together) {
        *together = repeats(contestant.seconds(problem.as_mut(), 1)?);
    }
    let timings = alternate(2, rounds, |c| {
        if job.watch.stopped() {
            return Err(lacis_core::Error::Interrupted);
        }
        both[c].seconds(problem.as_mut(), together[c])
    })?;
    Ok(Point { k, choice, tuned: timings[0], plain: timings[1] })
}
