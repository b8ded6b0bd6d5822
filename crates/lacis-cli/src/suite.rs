//! `lacis bench ops --suite`: what takes the time in whole models, then every operation on many
//! problems, a line for each into a file that can be gone on with.

mod models;

use std::time::{Duration, Instant};

use lacis::data::Job;
use lacis::kernels::Profile;
use lacis::ops::Operation;
use lacis::ops::suite::{Case, Matrix, Order, Shape, Suite, cases};
use lacis::{Csr, Error};
use serde_json::{Value, json};

use crate::args::{Contest, Global};
use crate::bench::{self, Bench, Place};
use crate::data::Desk;
use crate::ledger::Ledger;
use crate::machine;
use crate::out::{Failure, Out, Outcome};
use crate::peers::Peers;
use crate::progress::Stop;
use crate::ratios::geometric_mean;
use crate::tune::profile_for;

/// Seconds that the rounds of a problem may take.
const PATIENCE_S: f64 = 0.6;
const QUICK_PATIENCE_S: f64 = 0.2;
/// What a machine that does not tell its memory is taken to have.
const UNKNOWN_MEMORY: usize = 8 << 30;

/// What was typed.
pub struct Asked<'a> {
    pub which: &'a str,
    pub ops: &'a [String],
    pub seconds: Option<u64>,
    pub args: &'a Contest,
}

impl Asked<'_> {
    fn suite(&self) -> Suite {
        match self.which {
            "paper" => Suite::Paper,
            "graphs" => Suite::Graphs,
            _ => Suite::Quick,
        }
    }

    /// The problems of the operations that were named, of each of which there is one.
    fn wanted(&self, all: Vec<Case>) -> lacis::Result<Vec<Case>> {
        if self.ops.is_empty() || self.ops.iter().any(|op| op == "all") {
            return Ok(all);
        }
        let there = distinct(all.iter().map(|case| case.op).collect());
        let absent = self.ops.iter().filter(|op| !there.contains(&op.as_str()));
        let absent: Vec<&str> = absent.map(String::as_str).collect();
        if !absent.is_empty() {
            let (which, there) = (self.which, there.join(", "));
            let problem = format!("not in --suite {which}, which has {there}");
            return Err(Error::argument(format!("--op {}", absent.join(",")), problem));
        }
        Ok(all.into_iter().filter(|case| self.ops.iter().any(|op| op == case.op)).collect())
    }

    /// What tells a measurement from others: the problem, and who is timed on it.
    fn id(&self, case: &Case) -> String {
        let mut peers = self.args.peers.clone();
        peers.sort();
        let all = if self.args.all_kernels { " all kernels" } else { "" };
        format!("{}{all} | {}", case.id(), peers.join(","))
    }
}

pub fn run(asked: &Asked<'_>, global: &Global, out: &Out, stop: &Stop) -> Outcome {
    let args = asked.args;
    if !asked.ops.is_empty() {
        bench::operations(asked.ops)?;
    }
    bench::start(out, &json!({ "suite": asked.which, "op": asked.ops, "args": args }))?;
    let memory = machine::memory_bytes().unwrap_or(UNKNOWN_MEMORY);
    let all = asked.wanted(cases(asked.suite(), memory))?;
    let Contest { peers, rounds, all_kernels, .. } = args;
    let config = json!({ "suite": asked.which, "op": asked.ops, "peers": peers,
                         "rounds": rounds, "all_kernels": all_kernels });
    let desk = Desk::new(global, out, stop)?;
    let (mut ledger, mut lines) = (None, Vec::new());
    if let Some(path) = &args.output {
        let named = ("bench ops", &config);
        let (opened, there) = Ledger::open(path, named, args.overwrite, global)?;
        out.recall(&there);
        (ledger, lines) = (Some(opened), there);
    }
    let path = machine::profile_path(global.machine.as_deref())?;
    let begun = Instant::now();
    if asked.ops.is_empty() && !lines.iter().any(|line| line["event"] == "profile") {
        let profiles = models::profiles(&desk, &path, asked.suite())?;
        ledger.iter_mut().try_for_each(|ledger| ledger.add_all(&profiles))?;
        lines.extend(profiles);
    }
    let done: std::collections::HashSet<String> = lines
        .iter()
        .filter(|line| line["engine"] == "lacis" || line["event"] == "left_out")
        .filter_map(|line| line["case"].as_str().map(str::to_owned))
        .collect();
    let due: Vec<&Case> = all.iter().filter(|case| !done.contains(&asked.id(case))).collect();
    let mut walk = Walk { asked, desk: &desk, stop, begun, bench: None, matrix: None };
    let ops: Vec<&'static str> = due.iter().map(|case| case.op).collect();
    let profile = profile_for(&distinct(ops), &path, &desk)?;
    if !lines.iter().any(|line| line["event"] == "roof") {
        let memory = bench::tell_memory(&profile, &desk)?;
        ledger.iter_mut().try_for_each(|ledger| ledger.add_all(memory.as_slice()))?;
    }
    for (at, case) in due.iter().enumerate() {
        if walk.is_over() {
            let left = due.len() - at;
            out.note(format_args!("the time is over: {left} are left; the same command goes on"));
            break;
        }
        walk.tell_progress(case, (at, due.len()));
        let new = walk.measure(case, &profile)?;
        ledger.iter_mut().try_for_each(|ledger| ledger.add_all(&new))?;
        lines.extend(new);
    }
    summarise(&lines, out)
}

fn distinct(mut names: Vec<&'static str>) -> Vec<&'static str> {
    names.sort_unstable();
    names.dedup();
    names
}

/// A walk through the cases, those of a matrix after each other.
struct Walk<'a> {
    asked: &'a Asked<'a>,
    desk: &'a Desk<'a>,
    stop: &'a Stop,
    begun: Instant,
    bench: Option<Bench<'a>>,
    /// The matrix that peers have.
    matrix: Option<(String, Csr)>,
}

impl Walk<'_> {
    fn is_over(&self) -> bool {
        let limit = self.asked.seconds.map(Duration::from_secs);
        limit.is_some_and(|limit| self.begun.elapsed() >= limit)
    }

    fn tell_progress(&self, case: &Case, (at, of): (usize, usize)) {
        let spent = self.begun.elapsed().as_secs_f64();
        let left = match at {
            0 => String::new(),
            _ => format!(", {:.0} s left", spent / at as f64 * (of - at) as f64),
        };
        let (op, matrix) = (case.op, case.matrix_id());
        self.desk.out.progress(format_args!("{} of {of}: {op} on {matrix}{left}", at + 1));
    }

    /// The lines of a case: peers first, so that a case of which ours is there is whole.
    fn measure(&mut self, case: &Case, profile: &Profile) -> Result<Vec<Value>, Failure> {
        let op = lacis::ops::find(case.op)?;
        let timed = self.timed(op, case, profile);
        if self.stop.came() {
            return Err(Error::Interrupted.into());
        }
        let mut lines: Vec<Value> =
            self.bench.as_mut().map(|bench| bench.lines.drain(..).collect()).unwrap_or_default();
        match timed {
            Ok(()) => {}
            Err(Failure::Error(error)) => {
                self.desk.out.note(format_args!("{} is left out: {error}", case.id()));
                let line = json!({ "event": "left_out", "case": self.asked.id(case),
                                   "op": case.op, "reason": error.to_string() });
                self.desk.out.event("left_out", &line)?;
                put_in_place(&mut lines, line);
            }
            Err(other) => return Err(other),
        }
        lines.sort_by_key(|line| line["engine"] == "lacis");
        Ok(lines)
    }

    fn timed(&mut self, op: &'static Operation, case: &Case, profile: &Profile) -> Outcome {
        let id = case.matrix_id();
        let known = self.matrix.as_ref().is_some_and(|(known, _)| *known == id);
        if !known {
            let matrix = self.made(&case.matrix)?;
            match &mut self.bench {
                Some(bench) => bench.peers.set_graph(&matrix)?,
                None => self.begin(&matrix, case)?,
            }
            self.matrix = Some((id, matrix));
        }
        let (Some((_, matrix)), Some(bench)) = (&self.matrix, &mut self.bench) else {
            return Ok(());
        };
        bench.set(matrix.clone(), task(self.asked, case));
        bench.problem(op, case.k, profile)
    }

    fn begin(&mut self, matrix: &Csr, case: &Case) -> Outcome {
        let (args, desk) = (self.asked.args, self.desk);
        let peers = Peers::start(args, matrix, desk.threads.count(), desk.out)?;
        let first = (matrix.clone(), task(self.asked, case));
        let mut bench = Bench::new((desk, self.stop), first, args, peers);
        let quick = self.asked.suite() == Suite::Quick;
        bench.patience = Some(if quick { QUICK_PATIENCE_S } else { PATIENCE_S });
        bench.head(&case.matrix_id())?;
        if bench.peers.len() > 0 {
            let versions = bench.peers.versions();
            bench.lines.push(json!({ "event": "peers", "versions": versions }));
        }
        self.bench = Some(bench);
        Ok(())
    }

    fn made(&self, matrix: &Matrix) -> Result<Csr, Failure> {
        if let Some(made) = matrix.make(&self.desk.threads)? {
            return Ok(made);
        }
        let Matrix::Named(name) = matrix else { unreachable!("only a name is not made") };
        let set = lacis::open(name, &Job::quiet(&self.desk.threads))?;
        Ok(set.graph().adjacency().as_ref().clone().without_unit_values())
    }
}

/// Puts a line in the place of a case's measurements; who the peers are holds for the others too.
fn put_in_place(lines: &mut Vec<Value>, line: Value) {
    lines.retain(|line| line["event"] == "peers");
    lines.push(line);
}

fn task(asked: &Asked<'_>, case: &Case) -> bench::Asked {
    let of = Place {
        case: asked.id(case),
        shape: match case.shape {
            Shape::Long => "1d",
            Shape::Square => "2d",
            Shape::Cube => "3d",
            Shape::Rows => "rows",
        },
        dim: case.dim,
        factor: case.factor,
        index: case.order().map(|order| match order {
            Order::Uniform => "uniform",
            Order::Sorted => "sorted",
            Order::PowerLaw => "power-law",
        }),
    };
    let (title, blocks) = (case.matrix_id(), case.blocks());
    bench::Asked { title, form: case.form, n: case.n, blocks, of: Some(of) }
}

/// How many times as fast as the best peer: in the mean, and where least.
fn summarise(lines: &[Value], out: &Out) -> Outcome {
    let timed: Vec<&Value> = lines.iter().filter(|line| line["event"] == "op").collect();
    let mut least: Option<(f64, &str)> = None;
    let mut ratios = Vec::new();
    for ours in timed.iter().filter(|line| line["engine"] == "lacis") {
        let same = |line: &&&Value| line["case"] == ours["case"] && line["engine"] != "lacis";
        let best = timed.iter().filter(same).filter_map(|line| line["ms"].as_f64());
        let (Some(best), Some(ms)) = (best.reduce(f64::min), ours["ms"].as_f64()) else { continue };
        ratios.push(best / ms);
        if least.is_none_or(|(least, _)| best / ms < least) {
            least = Some((best / ms, ours["case"].as_str().unwrap_or_default()));
        }
    }
    let left_out = lines.iter().filter(|line| line["event"] == "left_out").count();
    let cases = timed.iter().filter(|line| line["engine"] == "lacis").count();
    let mean = geometric_mean(ratios.iter().copied());
    out.event(
        "summary",
        &json!({ "measured": cases, "left_out": left_out, "configurations": ratios.len(),
                 "times_best_peer": mean, "least_times_best_peer": least.map(|(times, _)| times),
                 "least_case": least.map(|(_, case)| case) }),
    )?;
    out.line(format_args!("{cases} problems, {left_out} left out"))?;
    let (Some(mean), Some((times, case))) = (mean, least) else { return Ok(()) };
    out.line(format_args!(
        "{mean:.2} times the best peer in the geometric mean of {}, at least {times:.2} ({case})",
        ratios.len()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_case_that_is_left_out_leaves_the_peers() {
        let [peers, op, out] = ["peers", "op", "left_out"].map(|event| json!({ "event": event }));
        let mut lines = vec![peers.clone(), op];
        put_in_place(&mut lines, out.clone());
        assert_eq!(lines, [peers, out]);
    }
}
