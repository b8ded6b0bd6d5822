//! `lacis bench ops`: operations timed on a graph, beside other libraries where asked for.

use std::path::Path;

use lacis::data::staged::{Existing, Staged};
use lacis::kernels::Isa;
use lacis::kernels::profile::{Point, Profile, tables_version};
use lacis::machine::this_machine;
use lacis::ops::measure::{Contestant, Timing, alternate, check, repeats};
use lacis::ops::{
    Form, OPERATIONS, Operation, Problem, Sample, Setting, Volume, find, instruction_sets,
};
use lacis::reference::Reduce;
use lacis::{Csr, DType, Error};
use serde::Serialize;
use serde_json::{Value, json};

use crate::args::{BenchVerb, Contest, Global, Source};
use crate::data::Desk;
use crate::machine::{self, Machine};
use crate::out::{Failure, Out, Outcome, grouped};
use crate::peers::{Peers, Task};
use crate::progress::Stop;
use crate::tune::profile_for;

pub fn run(verb: &BenchVerb, global: &Global, out: &Out, stop: &Stop) -> Outcome {
    let (names, args) = match verb {
        BenchVerb::Ops { op, args } => (op.clone(), args),
        BenchVerb::Spmm { args } => (vec!["spmm".to_owned()], args),
        BenchVerb::Approx { args } => return crate::bench_approx::run(args, global, out, stop),
    };
    let desk = Desk::new(global, out, stop)?;
    out.start("bench ops", &json!({ "op": names, "args": args }))?;
    let ops: Vec<&'static Operation> = match &names[..] {
        [all] if all == "all" => OPERATIONS.iter().collect(),
        names => names.iter().map(|name| find(name)).collect::<lacis::Result<_>>()?,
    };
    let existing = if args.overwrite { Existing::Replace } else { Existing::Keep };
    let record = args.output.as_deref().map(|path| Staged::new(path, existing)).transpose()?;
    let source = Source {
        data: args.graph.clone(),
        format: args.format.clone(),
        changes: args.changes.clone(),
        given: None,
    };
    let set = desk.open(&source)?;
    let graph = set.graph().adjacency().as_ref().clone().without_unit_values();
    let path = machine::profile_path(global.machine.as_deref())?;
    let peers = Peers::start(args, &graph, desk.threads.count(), out)?;
    let form = form(args, &graph)?;
    let title = (set.name(), args.graph.as_str());
    let mut bench = Bench {
        desk: &desk,
        stop,
        graph,
        form,
        args,
        title,
        peers,
        lines: Vec::new(),
        said: Vec::new(),
    };
    bench.head()?;
    for op in ops {
        let profile = profile_for(&[op.id], &path, &desk)?;
        let widths = if op.wide { &args.k.0[..] } else { &[0] };
        for &k in widths {
            bench.problem(op, k, &profile)?;
        }
    }
    if let (Some(staged), Some(path)) = (record, args.output.as_deref()) {
        bench.record(staged, path, global)?;
    }
    Ok(())
}

fn form(args: &Contest, graph: &Csr) -> lacis::Result<Form> {
    let reduce = match args.reduce.as_str() {
        "mean" => Reduce::Mean,
        "max" => Reduce::Max,
        "min" => Reduce::Min,
        "mul" => Reduce::Mul,
        _ => Reduce::Sum,
    };
    let dtype = match args.dtype.as_str() {
        "bf16" => DType::Bf16,
        "f64" => DType::F64,
        _ => DType::F32,
    };
    let weighted = args.weighted || graph.values().is_some();
    Ok(Form { reduce, weighted, dtype, axis: usize::from(args.axis) })
}

/// One line of results.
#[derive(Serialize)]
struct Line<'a> {
    op: &'a str,
    graph: &'a str,
    k: usize,
    reduce: Option<&'a str>,
    weighted: bool,
    dtype: &'a str,
    axis: u8,
    sparsity: Option<f64>,
    engine: &'a str,
    kernel: &'a str,
    isa: Option<&'a str>,
    ms: f64,
    iqr_ms: f64,
    bytes: f64,
    gbps: f64,
    gflops: f64,
    roofline: Option<f64>,
    rounds: usize,
    threads: usize,
    nodes: usize,
    edges: usize,
    point: Point,
}

impl Line<'_> {
    /// The same for people.
    fn text(&self) -> String {
        let Line { op, k, engine, ms, iqr_ms, gbps, gflops, kernel, .. } = self;
        let share = |share: f64| format!("{:.0} %", share * 100.0);
        let roof = self.roofline.map_or_else(String::new, share);
        let isa = self.isa.unwrap_or_default();
        let head = format!("{op:<14} {k:>5}  {engine:<12} {ms:>10.4} {iqr_ms:>8.4}");
        let text = format!("{head} {gbps:>8.1} {gflops:>8.1} {roof:>6}  {kernel} {isa}");
        text.trim_end().to_owned()
    }
}

/// A problem that was timed.
struct Case {
    op: &'static Operation,
    point: Point,
    volume: Volume,
    roof: Option<f64>,
}

struct Bench<'a> {
    desk: &'a Desk<'a>,
    stop: &'a Stop,
    graph: Csr,
    form: Form,
    args: &'a Contest,
    /// What the graph calls itself, and what the user called it.
    title: (&'a str, &'a str),
    peers: Peers,
    lines: Vec<Value>,
    /// What has been said, to say it once.
    said: Vec<String>,
}

/// Who takes turns on a problem, and what to call them.
struct Turn {
    who: Who,
    engine: String,
    kernel: String,
    isa: Option<Isa>,
    together: usize,
}

enum Who {
    Ours(Contestant),
    Peer(usize),
}

impl Bench<'_> {
    fn head(&self) -> Outcome {
        let (nodes, edges) = (grouped(self.graph.n_rows()), grouped(self.graph.nnz()));
        let out = self.desk.out;
        let threads = self.desk.threads.count();
        let name = self.title.0;
        out.line(format_args!("{name}: {nodes} nodes, {edges} edges, {threads} threads"))?;
        out.line(format_args!(
            "{:<14} {:>5}  {:<12} {:>10} {:>8} {:>8} {:>8} {:>6}  kernel",
            "op", "k", "engine", "ms", "± ms", "GB/s", "GFLOP/s", "roof"
        ))
    }

    fn problem(&mut self, op: &'static Operation, k: usize, profile: &Profile) -> Outcome {
        let graph = self.graph.clone();
        let threads = self.desk.threads.clone();
        let setting =
            Setting { graph: &graph, k, n: self.args.n, form: self.form, threads: &threads };
        let mut problem = (op.prepare)(&setting)?;
        let sample = problem.sample()?;
        let mut turns = self.ours(op, problem.as_mut(), &sample, profile)?;
        turns.extend(self.theirs(op, k, &sample)?);
        let roof = roof(problem.as_mut())?;
        turns.extend(roof);
        let rounds = usize::from(self.args.rounds);
        let timings = alternate(turns.len(), rounds, |t| {
            if self.stop.came() {
                return Err(Error::Interrupted);
            }
            let seconds = self.seconds(&turns[t], problem.as_mut());
            // A peer hears Ctrl-C too, and may be gone before us.
            seconds.map_err(|error| if self.stop.came() { Error::Interrupted } else { error })
        })?;
        let roof = turns.iter().zip(&timings).find(|(turn, _)| turn.engine == "roof");
        let roof = roof.map(|(_, timing)| timing.seconds);
        let case = Case { op, point: problem.point(), volume: problem.volume(), roof };
        for (turn, timing) in turns.iter().zip(&timings).filter(|(turn, _)| turn.engine != "roof") {
            self.report(&case, turn, timing)?;
        }
        Ok(())
    }

    /// Our kernels, each of them checked: the chosen one first.
    fn ours(
        &self,
        op: &'static Operation,
        problem: &mut dyn Problem,
        sample: &Sample,
        profile: &Profile,
    ) -> Result<Vec<Turn>, Failure> {
        let (place, choice) = op.choose(profile, problem);
        let names = op.kernels();
        let mut wanted = vec![(place, choice.isa)];
        if self.args.all_kernels {
            let each = |isa| (0..names.len()).map(move |kernel| (kernel, isa));
            let others = instruction_sets().into_iter().flat_map(each);
            let others = others.filter(|&(place, _)| problem.accepts(place));
            wanted.extend(others.filter(|other| *other != wanted[0]).collect::<Vec<_>>());
        }
        let mut turns = Vec::new();
        for (place, isa) in wanted {
            check(problem, sample, (place, names[place]), isa)?;
            let contestant = Contestant::Kernel(place, isa);
            let together = repeats(contestant.seconds(problem, 1)?);
            let (engine, kernel) = ("lacis".to_owned(), names[place].to_owned());
            let who = Who::Ours(contestant);
            turns.push(Turn { who, engine, kernel, isa: Some(isa), together });
        }
        Ok(turns)
    }

    /// Peers that have the operation and give the right result.
    fn theirs(&mut self, op: &Operation, k: usize, sample: &Sample) -> Result<Vec<Turn>, Failure> {
        let mut turns = Vec::new();
        for peer in 0..self.peers.len() {
            let Contest { n, reduce, dtype, axis, .. } = self.args;
            let weighted = self.form.weighted;
            let task = Task {
                op: op.id,
                k,
                n: *n,
                reduce,
                weighted,
                dtype,
                axis: *axis,
                rows: &sample.rows,
            };
            let engine = self.peers.name(peer).to_owned();
            match self.peers.prepare(peer, &task) {
                Err(why) => self.once(format!("{engine} is left out: {why}")),
                Ok(ready) => match sample.check(&ready.rows) {
                    Err(wrong) => {
                        self.once(format!("{engine} is left out: {} {wrong}", ready.kernel));
                    }
                    Ok(()) => turns.push(Turn {
                        who: Who::Peer(peer),
                        engine,
                        kernel: ready.kernel,
                        isa: None,
                        together: repeats(ready.seconds),
                    }),
                },
            }
        }
        Ok(turns)
    }

    fn once(&mut self, note: String) {
        if !self.said.contains(&note) {
            self.desk.out.note(&note);
            self.said.push(note);
        }
    }

    fn seconds(&mut self, turn: &Turn, problem: &mut dyn Problem) -> lacis::Result<f64> {
        match turn.who {
            Who::Ours(contestant) => contestant.seconds(problem, turn.together),
            Who::Peer(peer) => self.peers.seconds(peer, turn.together),
        }
    }

    fn report(&mut self, case: &Case, turn: &Turn, timing: &Timing) -> Outcome {
        let line = self.line(case, turn, timing);
        let out = self.desk.out;
        out.event("op", &line)?;
        out.line(line.text())?;
        let mut value = serde_json::to_value(&line).unwrap_or(Value::Null);
        value["event"] = "op".into();
        self.lines.push(value);
        Ok(())
    }

    fn line<'l>(&'l self, case: &Case, turn: &'l Turn, timing: &Timing) -> Line<'l> {
        let (Case { op, point, volume, roof }, s) = (case, timing.seconds);
        Line {
            op: op.id,
            graph: self.title.1,
            k: point.k,
            reduce: point.reduce.map(lacis::kernels::profile::name_of),
            weighted: point.weighted,
            dtype: &self.args.dtype,
            axis: self.args.axis,
            sparsity: None,
            engine: &turn.engine,
            kernel: &turn.kernel,
            isa: turn.isa.map(Isa::name),
            ms: s * 1e3,
            iqr_ms: timing.iqr * 1e3,
            bytes: volume.bytes,
            gbps: volume.bytes / 1e9 / s,
            gflops: volume.flops / 1e9 / s,
            roofline: roof.map(|roof| roof / s),
            rounds: timing.rounds,
            threads: self.desk.threads.count(),
            nodes: self.graph.n_rows(),
            edges: self.graph.nnz(),
            point: *point,
        }
    }

    /// Results with the machine, the versions and everything that was asked for.
    fn record(&self, staged: Staged, path: &Path, global: &Global) -> Outcome {
        let record = json!({
            "schema": 1, "version": env!("CARGO_PKG_VERSION"), "command": "bench ops",
            "machine": Machine::for_record(global)?, "cpu": this_machine(),
            "tables": tables_version(), "peers": self.peers.versions(), "args": self.args,
            "lines": self.lines,
        });
        let text = format!("{record:#}\n");
        std::fs::write(staged.path(), text).map_err(|e| Error::io("write", staged.path(), e))?;
        staged.commit()?;
        let path = path.display().to_string();
        self.desk.out.event("written", &json!({ "path": path, "lines": self.lines.len() }))?;
        self.desk.out.line(format_args!("wrote {path}"))
    }
}

/// Moving the data only, where that is known.
fn roof(problem: &mut dyn Problem) -> lacis::Result<Option<Turn>> {
    let contestant = Contestant::Roof(Isa::best());
    if !contestant.run(problem)? {
        return Ok(None);
    }
    let together = repeats(contestant.seconds(problem, 1)?);
    let (engine, kernel) = ("roof".to_owned(), String::new());
    Ok(Some(Turn { who: Who::Ours(contestant), engine, kernel, isa: None, together }))
}
