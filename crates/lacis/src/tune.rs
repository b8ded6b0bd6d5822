//! Measuring a machine: memory, and every kernel over a small grid of problems.
//!
//! ```text
//!  cases = operations × graphs × forms × widths, the most telling first
//!  each gets an equal part of the time that is left:
//!      one warm run of every kernel and instruction set;
//!      those near the best take turns until the part is used up; the least time counts
//! ```
//! The result is a [`Profile`]; [`file`](mod@file) keeps it.

mod cases;
pub mod curve;
pub mod file;
mod memory;
pub mod results;

use std::collections::BTreeMap;
use std::time::Instant;

use lacis_core::{Csr, Result};
use lacis_data::Job;
use lacis_kernels::Isa;
use lacis_kernels::profile::{Profile, Sample, Section, table};

use crate::machine::this_machine;
use crate::ops::measure::{Contestant, Timing, repeats};
use crate::ops::{Operation, Problem, Setting, instruction_sets};
use cases::{Case, cases};

/// How much to measure.
#[derive(Clone, Debug)]
pub struct Effort {
    /// About how long it may take: no problem is begun later, but the first of each operation.
    pub seconds: f64,
    /// How many of the graphs, forms and widths to go through.
    pub detail: Detail,
    /// The only operations to measure; absent means all, and memory.
    pub only: Option<Vec<&'static str>>,
}

/// How fine a grid is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Detail {
    /// One small graph, two widths: enough to see that it works.
    Glimpse,
    /// Small to middling graphs and the usual widths.
    Quick,
    /// Large graphs and odd widths too.
    Full,
}

impl Effort {
    /// Some 24 seconds.
    pub fn quick() -> Self {
        Effort { seconds: 24.0, detail: Detail::Quick, only: None }
    }

    /// Five minutes at most.
    pub fn full() -> Self {
        Effort { seconds: 200.0, detail: Detail::Full, only: None }
    }

    /// What a command that needs some operations can afford: three seconds at most, for all.
    pub fn needed(ops: &[&'static str]) -> Self {
        let measured = |&op: &&'static str| table(op).and_then(|table| table.like).unwrap_or(op);
        let only = Some(ops.iter().map(measured).collect());
        Effort { seconds: 1.8, detail: Detail::Quick, only }
    }
}

/// Measures this machine with the job's threads.
///
/// # Errors
/// When it is stopped, memory is refused, or a kernel's result is wrong.
pub fn tune(effort: &Effort, job: &Job<'_>) -> Result<Profile> {
    let begun = Instant::now();
    // As an executor does: what kernels need while they run is not asked for in every run.
    let _keeper = job.threads.keep();
    let mut section = Section { threads: job.threads.count(), ..Section::default() };
    let machine = this_machine();
    let cases = cases(effort);
    // Memory counts as a few cases.
    let memory = if effort.only.is_none() { memory::STEPS } else { 0 };
    let total = (cases.len() + memory) as u64;
    if effort.only.is_none() {
        memory::measure(&mut section, &machine, effort, &|step| job.tick(step, Some(total)))?;
    }
    let mut graphs: BTreeMap<&'static str, Csr> = BTreeMap::new();
    for (done, case) in cases.iter().enumerate() {
        job.tick((done + memory) as u64, Some(total))?;
        let left = effort.seconds - begun.elapsed().as_secs_f64();
        if left < 0.0 && section.ops.contains_key(case.op.id) {
            continue;
        }
        if !graphs.contains_key(case.graph) {
            let quiet = Job::quiet(job.threads);
            let set = lacis_data::open(case.graph, &quiet)?;
            graphs.insert(case.graph, set.graph().adjacency().as_ref().clone());
        }
        // Who has more kernels to choose from needs more time.
        let weight = |case: &Case| chosen_by_time(case.op).count() as f64;
        let share = left * weight(case) / cases[done..].iter().map(weight).sum::<f64>();
        if let Some(sample) = measured(case, &graphs[case.graph], share, job)? {
            section.ops.entry(case.op.id.to_owned()).or_default().push(sample);
        }
    }
    job.tick(total, Some(total))?;
    let mut profile = Profile::unmeasured(machine);
    profile.add(section);
    Ok(profile)
}

/// One case; `None` where the operation does not have this form.
fn measured(case: &Case, graph: &Csr, share: f64, job: &Job<'_>) -> Result<Option<Sample>> {
    let Case { k, n, form, .. } = *case;
    let setting = Setting { graph, k, n, form, threads: job.threads };
    let Ok(mut problem) = (case.op.prepare)(&setting) else { return Ok(None) };
    let point = problem.point();
    if point.units == 0 {
        return Ok(None);
    }
    let timings = kernels(case.op, problem.as_mut(), share, job)?;
    let ns = timings.into_iter().map(|(name, t)| (name, t.seconds * 1e9 / point.units as f64));
    // Nothing takes no time, but a clock may say so.
    Ok(Some(Sample { point, ns: ns.map(|(name, ns)| (name, rounded(ns.max(1e-6)))).collect() }))
}

/// More would not be steadier.
const MOST_ROUNDS: i32 = 15;

/// Four digits are more than a clock knows, and files stay readable.
fn rounded(value: f64) -> f64 {
    format!("{value:.3e}").parse().unwrap_or(value)
}

/// Times of all kernels that measurements choose, on all instruction sets, by `kernel/isa`.
///
/// # Errors
/// When it is stopped, or a kernel refuses.
pub fn kernels(
    op: &Operation,
    problem: &mut dyn Problem,
    seconds: f64,
    job: &Job<'_>,
) -> Result<Vec<(String, Timing)>> {
    let begun = Instant::now();
    let names = op.kernels();
    let places: Vec<usize> = chosen_by_time(op).filter(|&place| problem.accepts(place)).collect();
    let each = |isa: Isa| places.iter().map(move |&kernel| (kernel, isa));
    // What works everywhere is never the best where there is more, and the slowest to measure.
    let mut sets = instruction_sets();
    sets.truncate(sets.len().max(2) - 1);
    let all: Vec<_> = sets.into_iter().flat_map(each).collect();
    let mut times: Vec<Vec<f64>> = Vec::with_capacity(all.len());
    for &(kernel, isa) in &all {
        // The first run of all meets cold memory.
        let warm = if times.is_empty() { 2 } else { 1 };
        let contestant = Contestant::Kernel(kernel, isa);
        let first = (0..warm).map(|_| contestant.seconds(problem, 1)).last();
        times.push(vec![first.transpose()?.unwrap_or(f64::INFINITY)]);
        job.tick_stop()?;
    }
    for round in 0..MOST_ROUNDS {
        // The next round takes about as long as all before.
        let used = begun.elapsed().as_secs_f64();
        if round > 1 && used + used / f64::from(round) > seconds {
            break;
        }
        let best = times.iter().map(|times| least(times)).fold(f64::INFINITY, f64::min);
        for (c, times) in times.iter_mut().enumerate() {
            // A disturbed run can look twice as slow: the first rounds let more kernels stay.
            let within = if round < 2 { 2.5 } else { 1.3 };
            if least(times) > within * best {
                continue;
            }
            let contestant = Contestant::Kernel(all[c].0, all[c].1);
            times.push(contestant.seconds(problem, repeats(least(times)))?);
            job.tick_stop()?;
        }
    }
    let name = |(kernel, isa): &(usize, Isa)| format!("{}/{}", names[*kernel], isa.name());
    // Others on the machine only ever add time: of few runs the least says most.
    let timing = |times: Vec<f64>| Timing { seconds: least(&times), ..Timing::of(times) };
    Ok(all.iter().map(name).zip(times.into_iter().map(timing)).collect())
}

/// The places of an operation's kernels that no rule alone chooses.
fn chosen_by_time(op: &Operation) -> impl Iterator<Item = usize> + use<> {
    let table = table(op.id);
    let ruled = move |name: &str| table.is_some_and(|table| (table.ruled)(name));
    op.kernels().into_iter().enumerate().filter(move |(_, name)| !ruled(name)).map(|(at, _)| at)
}

fn least(times: &[f64]) -> f64 {
    times.iter().copied().fold(f64::INFINITY, f64::min)
}

/// Giving up between two reports.
trait Stoppable {
    fn tick_stop(&self) -> Result<()>;
}

impl Stoppable for Job<'_> {
    fn tick_stop(&self) -> Result<()> {
        if self.watch.stopped() { Err(lacis_core::Error::Interrupted) } else { Ok(()) }
    }
}
