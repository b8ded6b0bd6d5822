//! `lacis bench train`: trainings of Lacis beside those of torch_geometric, as a file defines them.
//!
//! ```text
//!  Definition ─► cases ─► two processes, an epoch each ─► same losses? ─► turns ─► a line
//!   (TOML)       less what the record has                 else: no time           of the record
//! ```

mod definition;
mod sides;
pub mod table;
pub mod worker;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use lacis::{Dataset, Error};
use serde_json::{Value, json};

use self::definition::{Case, Definition};
use self::sides::{Said, Side, apart, hand_over};
use crate::args::{Changes, Global, Source};
use crate::args_bench::TrainContest;
use crate::data::Desk;
use crate::ledger::Ledger;
use crate::out::{Failure, Out, Outcome, bytes};
use crate::partner::Folder;
use crate::planned;
use crate::progress::Stop;

pub fn run(args: &TrainContest, global: &Global, out: &Out, stop: &Stop) -> Outcome {
    let definition = Definition::read(&args.file)?;
    out.start("bench train", args)?;
    // A record names what was measured, not the folders of whoever did.
    let file = args.file.file_name().unwrap_or_default().to_string_lossy();
    let config = json!({ "file": file, "definition": definition });
    let desk = Desk::new(global, out, stop)?;
    let (mut ledger, mut lines) = (None, Vec::new());
    if let Some(path) = &args.output {
        let named = ("bench train", &config);
        let (opened, there) = Ledger::open(path, named, args.overwrite, global)?;
        out.recall(&there);
        (ledger, lines) = (Some(opened), there);
    }
    let mut contest = Contest {
        begun: Instant::now(),
        folder: Folder::make()?,
        handed: None,
        global: with_absolute_profile(global)?,
        definition: &definition,
        args,
        desk: &desk,
        stop,
    };
    let all = definition.cases();
    let due: Vec<&Case> = all.iter().filter(|case| !contest.is_done(case, &lines)).collect();
    for (done, case) in due.iter().enumerate() {
        if contest.is_over() {
            out.note(format_args!(
                "the time is over: {} of {} are left; the same command goes on",
                due.len() - done,
                all.len()
            ));
            break;
        }
        contest.tell_progress(case, (done, due.len()));
        let line = contest.measure(case)?;
        if let Some(ledger) = &mut ledger {
            ledger.add(&line)?;
        }
        out.event("training", &line)?;
        out.line(table::in_words(&line))?;
        lines.push(line);
    }
    let summary = table::summary(&lines);
    out.event("summary", &summary)?;
    table::summary_in_words(&summary).into_iter().try_for_each(|line| out.line(line))
}

/// Flags for processes of ours, which may run elsewhere.
fn with_absolute_profile(global: &Global) -> lacis::Result<Global> {
    let mut global = global.clone();
    let path = global.machine.as_deref();
    global.machine = path
        .map(std::path::absolute)
        .transpose()
        .map_err(|error| Error::io("find", path.unwrap_or(Path::new("")), error))?;
    Ok(global)
}

struct Contest<'a> {
    begun: Instant,
    folder: Folder,
    /// The graph that lies in the folder, or why it does not.
    handed: Option<(usize, Said<[usize; 4]>)>,
    global: Global,
    definition: &'a Definition,
    args: &'a TrainContest,
    desk: &'a Desk<'a>,
    stop: &'a Stop,
}

impl Contest<'_> {
    /// Whether the record has a case; what was left out may get another chance.
    fn is_done(&self, case: &Case, lines: &[Value]) -> bool {
        let id = self.definition.id(case);
        let counts = |line: &&Value| !self.args.retry || line["reason"].is_null();
        lines.iter().filter(counts).any(|line| line["id"] == id)
    }

    /// Whether no new case may begin.
    fn is_over(&self) -> bool {
        let limit = self.args.seconds.map(Duration::from_secs);
        limit.is_some_and(|limit| self.begun.elapsed() >= limit)
    }

    fn tell_progress(&self, case: &Case, (done, of): (usize, usize)) {
        let spent = self.begun.elapsed().as_secs_f64();
        let left = match done {
            0 => String::new(),
            _ => format!(", {:.0} s left", spent / done as f64 * (of - done) as f64),
        };
        let name = &self.definition.graphs[case.graph].name;
        let Case { model, hidden, .. } = case;
        let peer = case.peer.as_deref().map_or(String::new(), |peer| format!(" beside {peer}"));
        let what = format!("{name} {model} {hidden}{peer}");
        self.desk.out.progress(format_args!("{} of {of}: {what}{left}", done + 1));
    }

    /// A line of the record: times, or why there are none.
    fn measure(&mut self, case: &Case) -> Result<Value, Failure> {
        let entry = &self.definition.graphs[case.graph];
        let mut line = json!({
            "event": "training", "id": self.definition.id(case), "graph": entry.name,
            "model": case.model, "hidden": case.hidden, "layers": self.definition.how.layers,
            "mode": self.definition.modes[case.mode].name, "peer": case.peer,
            "threads": self.desk.threads.count(),
        });
        let found = self.duel(case);
        if self.stop.came() {
            return Err(Error::Interrupted.into());
        }
        let more = found.unwrap_or_else(|reason| json!({ "reason": reason }));
        if let (Some(line), Value::Object(more)) = (line.as_object_mut(), more) {
            line.extend(more);
        }
        Ok(line)
    }

    fn duel(&mut self, case: &Case) -> Said<Value> {
        let (definition, how) = (self.definition, &self.definition.how);
        let data = definition.data(case.graph, &self.folder_of_data());
        let sizes = self.handed_over(case, &data)?;
        let weights = self.folder.path().join("weights.safetensors");
        let mut words = definition.words(case, &data);
        words.extend(self.global_words());
        let begun = Instant::now();
        let mut ours = Side::ours(&words, &weights, how).map_err(|why| format!("lacis: {why}"))?;
        let order = self.order(case, (&weights, sizes));
        let python = &self.args.python;
        let peer = case.peer.as_ref().map(|_| Side::peer(python, &order)).transpose();
        let mut peer = peer.map_err(|why| format!("{}: {why}", case.peer_name()))?;
        let exact = definition.modes[case.mode].exact;
        let same = |ours: &Side, peer: &Option<Side>, epochs: usize| -> Said<Option<f64>> {
            let Some(peer) = peer.as_ref().filter(|_| exact) else { return Ok(None) };
            let off = apart(&ours.losses, &peer.losses, epochs);
            if off <= how.tolerance {
                return Ok(Some(off));
            }
            let shown =
                |side: &Side| format!("{:?}", &side.losses[..side.losses.len().min(epochs)]);
            Err(format!("other losses: {} here, {} there", shown(ours), shown(peer)))
        };
        same(&ours, &peer, 1)?;
        let mut rounds = 0;
        while rounds < how.rounds && !self.stop.came() {
            ours.turn().map_err(|why| format!("lacis: {why}"))?;
            if let Some(peer) = &mut peer {
                peer.turn().map_err(|why| format!("{}: {why}", case.peer_name()))?;
            }
            rounds += 1;
            if begun.elapsed().as_secs_f64() > how.seconds || self.is_over() {
                break;
            }
        }
        let off = same(&ours, &peer, how.compared_epochs)?;
        let times = peer.as_ref().map(|peer| peer.epoch_ms() / ours.epoch_ms());
        let theirs = peer.as_mut().map(Side::record).transpose()?;
        let [nodes, edges, features, classes] = sizes;
        Ok(json!({ "nodes": nodes, "edges": edges, "features": features, "classes": classes,
                   "rounds": rounds, "lacis": ours.record()?, "theirs": theirs, "times": times,
                   "loss_difference": off }))
    }

    fn folder_of_data(&self) -> PathBuf {
        let beside = self.args.file.parent().map(Path::to_owned).unwrap_or_default();
        self.args.data.clone().unwrap_or(beside)
    }

    fn global_words(&self) -> Vec<String> {
        let mut words = vec!["--threads".to_owned(), self.desk.threads.count().to_string()];
        if let Some(machine) = &self.global.machine {
            words.extend(["--machine".to_owned(), machine.display().to_string()]);
        }
        words
    }

    /// What a peer is told.
    fn order(&self, case: &Case, (weights, sizes): (&Path, [usize; 4])) -> Value {
        let how = &self.definition.how;
        json!({ "do": "prepare", "peer": case.peer, "threads": self.desk.threads.count(),
                "folder": self.folder.path().to_string_lossy(),
                "weights": weights.to_string_lossy(), "model": case.model, "hidden": case.hidden,
                "classes": sizes[3], "layers": how.layers, "heads": how.heads, "lr": how.lr,
                "passes": how.passes, "compared_epochs": how.compared_epochs })
    }

    /// Puts a graph where peers find it, once for all its cases: nodes, edges, features, classes.
    fn handed_over(&mut self, case: &Case, data: &str) -> Said<[usize; 4]> {
        if let Some((graph, said)) = &self.handed
            && *graph == case.graph
        {
            return said.clone();
        }
        let entry = &self.definition.graphs[case.graph];
        let how = &self.definition.how;
        // The last graph's arrays go with their folder.
        self.folder = Folder::make().map_err(|error| error.to_string())?;
        let changes = Changes {
            edge_weights: "use".to_owned(),
            features: entry.features.as_ref().map(ToString::to_string),
            classes: entry.classes,
            seed: how.seed,
            ..Changes::default()
        };
        let opened = self.desk.open(&Source::named(data, &changes));
        let opened = opened.and_then(|dataset| {
            let (split, _) = planned::split(&dataset, Some(&how.split), how.seed)?;
            if !self.definition.peers_of(case.graph).is_empty() {
                hand_over(&dataset, &split, &self.folder)?;
            }
            Ok(sizes(&dataset))
        });
        let said = opened.map_err(|failure| match failure {
            Failure::Error(error) | Failure::Ran(error) => format!("{data}: {error}"),
            _ => format!("{data} cannot be read"),
        });
        self.handed = Some((case.graph, said.clone()));
        said
    }
}

fn sizes(dataset: &Dataset) -> [usize; 4] {
    let graph = dataset.graph();
    let features = dataset.features().map_or(0, lacis::Features::width);
    let classes = dataset.labels().map_or(0, lacis::Labels::width);
    [graph.n_nodes(), graph.n_edges(), features, classes]
}

impl Case {
    fn peer_name(&self) -> &str {
        self.peer.as_deref().unwrap_or("lacis")
    }
}

/// A side's extra memory, in words.
fn extra(side: &Value) -> String {
    side["extra_bytes"].as_u64().map_or("?".to_owned(), |extra| bytes(extra as usize))
}
