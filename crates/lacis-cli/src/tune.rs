//! `lacis tune`: measure this machine, show what follows, the curve of a graph.

use std::path::Path;
use std::time::Instant;

use lacis::data::Job;
use lacis::kernels::profile::{Choice, Machine, Point, Profile, Section, Why};
use lacis::machine::this_machine;
use lacis::ops::{OPERATIONS, Operation};
use lacis::tune::file::{Found, load, save};
use lacis::tune::results::merge;
use lacis::tune::{Effort, curve, tune};
use lacis::{DType, Error};
use serde_json::json;

use crate::args::{Changes, Global, Source, Tune};
use crate::data::Desk;
use crate::machine;
use crate::out::{Failure, Out, Outcome, bytes};
use crate::progress::{Doing, Stop};

pub fn run(args: &Tune, global: &Global, out: &Out, stop: &Stop) -> Outcome {
    let desk = Desk::new(global, out, stop)?;
    out.start("tune", args)?;
    let path = machine::profile_path(global.machine.as_deref())?;
    match args {
        Tune { list: true, .. } => {
            let (profile, from) = known(&path, out);
            out.line(from)?;
            list(&profile, out)
        }
        Tune { graph: Some(graph), .. } => widths(&desk, graph, &args.k.0, &path),
        Tune { from: Some(results), .. } => from_results(results, &path, out),
        _ => measure(&desk, args.quick, &path),
    }
}

/// The profile at a place, or that of an unmeasured machine; and a line that says which.
fn known(path: &Path, out: &Out) -> (Profile, String) {
    let here = this_machine();
    let found = load(path, &here);
    let from = match &found {
        Found::Profile(_) => format!("measured on this machine: {}", path.display()),
        Found::Absent => {
            "nothing measured yet (`lacis tune --quick` does): analytic choices".into()
        }
        Found::Unusable(why) => {
            out.note(format_args!("{why}; it is not used"));
            "no usable profile (`lacis tune --quick` makes one): analytic choices".into()
        }
    };
    (found.or_unmeasured(&here), from)
}

/// A profile that knows some operations: what is there, or what a short look gives, which is
/// kept.
pub fn profile_for(ops: &[&'static str], path: &Path, desk: &Desk<'_>) -> Result<Profile, Failure> {
    let here = this_machine();
    let found = load(path, &here);
    if let Found::Unusable(why) = &found {
        desk.out.note(format_args!("{why}; it is not used"));
    }
    let mut profile = found.or_unmeasured(&here);
    let tuned = |id: &&str| OPERATIONS.iter().any(|op| op.id == *id && op.tuned);
    let unknown: Vec<&'static str> =
        ops.iter().copied().filter(tuned).filter(|op| profile.samples(op).is_empty()).collect();
    if unknown.is_empty() {
        return Ok(profile);
    }
    let begun = Instant::now();
    let meter = desk.meter(Doing::Measuring);
    let short = tune(&Effort::needed(&unknown), &Job { threads: &desk.threads, watch: &meter })?;
    drop(meter);
    let s = begun.elapsed().as_secs_f64();
    let kept = match save(path, &short) {
        Ok(()) => format!("kept in {}", path.display()),
        Err(error) => format!("not kept: {error}"),
    };
    let names = unknown.join(", ");
    desk.out.note(format_args!("measured {names} for {s:.1} s, {kept}; `lacis tune` does all"));
    short.sections.into_iter().for_each(|section| profile.add(section));
    Ok(profile)
}

fn measure(desk: &Desk<'_>, quick: bool, path: &Path) -> Outcome {
    let begun = Instant::now();
    let effort = if quick { Effort::quick() } else { Effort::full() };
    let meter = desk.meter(Doing::Measuring);
    let profile = tune(&effort, &Job { threads: &desk.threads, watch: &meter })?;
    drop(meter);
    save(path, &profile)?;
    let seconds = begun.elapsed().as_secs_f64();
    if let Some(section) = profile.section() {
        print_section(section, desk.out)?;
    }
    list(&profile, desk.out)?;
    let samples: usize = profile.section().map_or(0, |s| s.ops.values().map(Vec::len).sum());
    let place = path.display().to_string();
    let done = json!({ "path": place, "seconds": seconds, "threads": desk.threads.count(),
                       "samples": samples, "tables": profile.tables });
    desk.out.event("tuned", &done)?;
    desk.out.line(format_args!("\nwrote {place}: {samples} problems in {seconds:.1} s"))
}

fn print_section(section: &Section, out: &Out) -> Outcome {
    let Some(stream) = section.stream else { return Ok(()) };
    out.event("memory", &json!({ "stream": stream, "gather": section.gather }))?;
    out.line(format_args!(
        "memory, GB/s with {} threads: read {:.1}, written {:.1}, copied {:.1}",
        section.threads, stream.read_gbps, stream.write_gbps, stream.copy_gbps
    ))?;
    out.line(format_args!(
        "each element of two arrays, GB/s: {:.1}, of such that the last cache holds {:.1}; an \
         exponential: {:.2} ns",
        stream.each_gbps, stream.near_gbps, stream.exp_ns
    ))?;
    out.line("rows in random order, GB/s:")?;
    let mut sets: Vec<usize> = section.gather.iter().map(|gather| gather.set_bytes).collect();
    sets.dedup();
    for set in sets {
        let rows = section.gather.iter().filter(|gather| gather.set_bytes == set);
        let rates: Vec<String> =
            rows.map(|g| format!("{:>7.1} ({} B)", g.gbps, g.row_bytes)).collect();
        out.line(format_args!("  out of {:>9}: {}", bytes(set), rates.join(" ")))?;
    }
    Ok(())
}

/// Every table, and what would be chosen for a few problems.
fn list(profile: &Profile, out: &Out) -> Outcome {
    for op in OPERATIONS {
        let kernels = op.kernels();
        out.event("table", &json!({ "op": op.id, "about": op.about, "kernels": kernels }))?;
        out.line(format_args!("\n{}: {}", op.id, op.about))?;
        kernels.iter().try_for_each(|name| out.line(format_args!("  {name}")))?;
        if !op.tuned {
            continue;
        }
        for (place, set_bytes) in places(&profile.machine) {
            for k in if op.wide { &[16, 64, 256][..] } else { &[0] } {
                let k = *k;
                let point = typical(k, set_bytes);
                print_choice(op, &point, place, &profile.choose(op.id, &point), out)?;
            }
        }
    }
    Ok(())
}

/// Sizes of x: in the cache of a core, and in none.
fn places(machine: &Machine) -> [(&'static str, usize); 2] {
    [("near", machine.near_bytes() / 2), ("far", machine.last_bytes() * 4)]
}

/// A product with 16 entries a row.
fn typical(k: usize, set_bytes: usize) -> Point {
    let n = (set_bytes / (4 * k.max(1))).max(1);
    Point::sparse([n, n, 16 * n], k, DType::F32)
}

fn print_choice(op: &Operation, point: &Point, place: &str, choice: &Choice, out: &Out) -> Outcome {
    let Choice { kernel, isa, why } = choice;
    let (ns, margin) = match why {
        Why::Measured { ns, margin, .. } => (Some(*ns), Some(*margin)),
        Why::Analytic => (None, None),
    };
    let body = json!({ "op": op.id, "k": point.k, "x_bytes": point.bytes, "kernel": kernel,
                       "isa": isa.name(), "ns": ns, "margin": margin,
                       "why": if ns.is_some() { "measured" } else { "analytic" } });
    out.event("choice", &body)?;
    let why = match why {
        Why::Measured { ns, margin, samples } => {
            let unit = op.unit;
            format!("{ns:.2} ns per {unit}, {margin:.2} times the next, {samples} measurements")
        }
        Why::Analytic => "fits the width and the caches; not measured".to_owned(),
    };
    let (k, x, isa) = (point.k, bytes(point.bytes), isa.name());
    out.line(format_args!("  k={k:<4} x {place:<4} {x:>10}  {kernel:<26} {isa:<8} {why}"))
}

/// iSpLib's curve.
fn widths(desk: &Desk<'_>, graph: &str, widths: &[usize], path: &Path) -> Outcome {
    const ROUNDS: usize = 7;
    let source = Source::named(graph, &Changes::default());
    let set = desk.open(&source)?;
    let profile = profile_for(&["spmm"], path, desk)?;
    let adjacency = set.graph().adjacency().as_ref().clone().without_unit_values();
    let out = desk.out;
    out.line(format_args!(
        "{:>6} {:>10} {:>10} {:>8}  kernel",
        "k", "plain ms", "tuned ms", "times"
    ))?;
    let mut best: Option<(f64, usize)> = None;
    for &k in widths {
        let meter = desk.meter(Doing::Measuring);
        let job = Job { threads: &desk.threads, watch: &meter };
        let point = curve::measure(&adjacency, k, ROUNDS, &profile, &job)?;
        drop(meter);
        let (plain, tuned) = (point.plain.seconds * 1e3, point.tuned.seconds * 1e3);
        let (times, kernel, isa) = (point.speedup(), point.choice.kernel, point.choice.isa.name());
        let body = json!({ "graph": set.name(), "k": k, "plain_ms": plain, "ms": tuned,
                           "iqr_ms": point.tuned.iqr * 1e3, "speedup": times, "kernel": kernel,
                           "isa": isa });
        out.event("curve", &body)?;
        out.line(format_args!("{k:>6} {plain:>10.3} {tuned:>10.3} {times:>8.2}  {kernel} {isa}"))?;
        if best.is_none_or(|(most, _)| times > most) {
            best = Some((times, k));
        }
    }
    let Some((times, k)) = best else { return Ok(()) };
    out.event("best", &json!({ "graph": set.name(), "k": k, "speedup": times }))?;
    out.line(format_args!("\nbest width: {k}, {times:.2} times a plain loop"))
}

fn from_results(results: &Path, path: &Path, out: &Out) -> Outcome {
    let read = lacis::tune::results::read(results)?;
    let of: usize = read.sections.iter().flat_map(|s| s.ops.values()).map(Vec::len).sum();
    let (mut profile, _) = known(path, out);
    let samples = merge(&mut profile, read);
    if samples == 0 {
        let problem = "holds no times of all kernels; `bench ops --all-kernels` gives them";
        return Err(Error::file(results, problem).into());
    }
    if samples < of {
        let left = of - samples;
        out.note(format_args!(
            "{left} of {of} problems are left out: they time fewer kernels than the profile knows; \
             `bench ops --all-kernels` times all"
        ));
    }
    save(path, &profile)?;
    list(&profile, out)?;
    let place = path.display().to_string();
    out.event("tuned", &json!({ "path": place, "samples": samples, "tables": profile.tables }))?;
    out.line(format_args!("wrote {place}: {samples} problems from {}", results.display()))
}
