//! `lacis bench approx`: one backward product with all pairs against some.

use lacis::approx::contest::Contest;
use lacis::approx::{Policy, Settings};
use serde_json::json;

use crate::args::{Global, Source};
use crate::args_bench::Sampled;
use crate::data::Desk;
use crate::machine;
use crate::out::{Out, Outcome, grouped};
use crate::progress::Stop;
use crate::tune::profile_for;

pub fn run(args: &Sampled, global: &Global, out: &Out, stop: &Stop) -> Outcome {
    let desk = Desk::new(global, out, stop)?;
    out.start("bench approx", args)?;
    let (data, format) = (args.graph.clone(), args.format.clone());
    let set = desk.open(&Source { data, format, changes: args.changes.clone(), given: None })?;
    let path = machine::profile_path(global.machine.as_deref())?;
    let profile = profile_for(&["spmm"], &path, &desk)?;
    let matrix = set.graph().adjacency();
    let mut contest = Contest::new(matrix, args.k as usize)?;
    out.line(format_args!(
        "{}: {} nodes, {} edges, {} columns, {} threads",
        set.name(),
        grouped(matrix.n_rows()),
        grouped(matrix.nnz()),
        args.k,
        desk.threads.count(),
    ))?;
    for &budget in &args.budget {
        for name in &args.policy {
            let policy = if name == "rsc" { Policy::Rsc } else { Policy::Adaptive };
            let settings = Settings { interval: args.interval, ..Settings::new(policy, budget) };
            let with = (&profile, &desk.threads);
            let timed = contest.time(&settings, usize::from(args.rounds), with)?;
            let body = json!({ "op": "spmm", "graph": set.name(), "k": args.k, "policy": name,
                               "budget": budget, "interval": args.interval,
                               "rounds": args.rounds, "threads": desk.threads.count(),
                               "nodes": matrix.n_rows(), "edges": matrix.nnz(),
                               "exact_ms": timed.exact * 1e3, "sampled_ms": timed.sampled * 1e3,
                               "choosing_ms": timed.choosing * 1e3, "kept": timed.kept,
                               "error": timed.error, "times": timed.exact / timed.sampled });
            out.event("sampled", &body)?;
            out.line(format_args!(
                "{name:9} budget {budget:<5} {:9.2} ms instead of {:9.2} ms: {:.2} times; the \
                 step that chooses {:.2} ms; kept {:.3}, error {:.3}",
                timed.sampled * 1e3,
                timed.exact * 1e3,
                timed.exact / timed.sampled,
                timed.choosing * 1e3,
                timed.kept,
                timed.error,
            ))?;
        }
    }
    Ok(())
}
