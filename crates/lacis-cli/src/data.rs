//! `lacis data …`: list, info, generate, convert, validate; `fetch` is in its own file.

use std::path::{Path, PathBuf};
use std::time::Instant;

use lacis::data::own::{self, Tables};
use lacis::data::staged::Existing;
use lacis::data::{Changes, Job, Query, format, generate, open_with, sets};
use lacis::{Dataset, Error, Labels, Threads};
use serde::Serialize;
use serde_json::json;

use crate::args::{self, DataVerb, Global, OwnTables, Source, Target};
use crate::machine;
use crate::out::{Failure, Out, Outcome, bytes, grouped};
use crate::progress::{Doing, Meter, Stop};

pub fn run(verb: &DataVerb, global: &Global, out: &Out, stop: &Stop) -> Outcome {
    let desk = Desk::new(global, out, stop)?;
    match verb {
        DataVerb::List => list(out),
        DataVerb::Info { source } => desk.info(source),
        DataVerb::Generate { spec, changes, target } => desk.generate(spec, changes, target),
        DataVerb::Convert { source, tables, target } => desk.convert(source, tables, target),
        DataVerb::Fetch(args) => crate::fetch::run(&desk, args),
        DataVerb::Validate { data, format } => desk.validate(data, format.as_deref()),
    }
}

/// `lacis info`, which is `lacis data info`.
pub fn info(source: &Source, global: &Global, out: &Out, stop: &Stop) -> Outcome {
    Desk::new(global, out, stop)?.info(source)
}

/// What every verb needs at hand.
pub struct Desk<'a> {
    pub out: &'a Out,
    stop: &'a Stop,
    pub threads: Threads,
    folder: Option<String>,
}

impl<'a> Desk<'a> {
    pub fn new(global: &Global, out: &'a Out, stop: &'a Stop) -> Result<Self, Failure> {
        let choice = machine::choose_threads(global.threads)?;
        out.detail(format_args!("{} threads, decided by {}", choice.count, choice.decided_by));
        let threads = machine::threads(global.threads)?;
        Ok(Desk { out, stop, threads, folder: machine::data_folder() })
    }

    /// Where public sets are kept.
    pub fn folder(&self) -> Option<PathBuf> {
        self.folder.as_ref().map(PathBuf::from)
    }

    pub fn meter(&self, doing: Doing) -> Meter {
        Meter::new(doing, self.out.quiet, self.stop.clone())
    }

    pub fn open(&self, source: &Source) -> Result<Dataset, Failure> {
        let drawn = !Path::new(&source.data).exists() && generate::is_spec(&source.data);
        let meter = self.meter(if drawn { Doing::Drawing } else { Doing::Reading });
        let job = Job { threads: &self.threads, watch: &meter };
        let folder = self.folder.as_deref().map(Path::new);
        let query = Query { data: &source.data, format: source.format.as_deref(), folder };
        let begun = Instant::now();
        let set = match &source.given {
            Some(set) => set.clone(),
            None if source.was_given() => {
                let problem = "only that program had them, and they may not be what another set \
                               of that name is: name the DATA here, or, in Python, pass the graph";
                return Err(Error::argument(format!("data '{}'", source.data), problem).into());
            }
            None => open_with(&query, &job)?,
        };
        let (format, s) = (&set.origin().format, begun.elapsed().as_secs_f64());
        self.out.detail(format_args!("read {} as {format} in {s:.3} s", source.data));
        let set = changes(&source.changes).apply(set, &job)?;
        drop(meter);
        Ok(self.noted(set))
    }

    /// A user's own tables.
    fn open_tables(
        &self,
        edges: PathBuf,
        args: &OwnTables,
        source: &Source,
    ) -> Result<Dataset, Failure> {
        let meter = self.meter(Doing::Reading);
        let job = Job { threads: &self.threads, watch: &meter };
        let tables = Tables {
            edges,
            nodes: args.nodes.clone(),
            source: args.source_col.clone(),
            target: args.target_col.clone(),
            weight: args.weight_col.clone(),
            id: args.id_col.clone(),
            label: args.label_col.clone(),
            split: args.split_col.clone(),
            ignore: args.ignore_cols.clone(),
        };
        let set = changes(&source.changes).apply(own::read(&tables, &job)?, &job)?;
        drop(meter);
        Ok(self.noted(set))
    }

    /// Says what the reader did.
    fn noted(&self, set: Dataset) -> Dataset {
        set.origin()
            .notes
            .iter()
            .for_each(|note| self.out.note(format_args!("{}: {note}", set.name())));
        set
    }

    fn info(&self, source: &Source) -> Outcome {
        self.out.start("data info", source)?;
        let begun = Instant::now();
        let set = self.open(source)?;
        let load_s = begun.elapsed().as_secs_f64();
        let info = Info::of(&set, load_s, &self.threads);
        if self.stop.came() {
            return Err(Error::Interrupted.into());
        }
        self.out.event("data", &info)?;
        info.rows().into_iter().try_for_each(|row| self.out.line(row))
    }

    fn generate(&self, spec: &str, changes: &args::Changes, target: &Target) -> Outcome {
        if !generate::is_spec(spec) {
            let problem = "is no generator; one such as rmat:n=1000,e=5000 would be right";
            return Err(Error::argument(format!("'{spec}'"), problem).into());
        }
        let source =
            Source { data: spec.to_owned(), format: None, changes: changes.clone(), given: None };
        let config = json!({ "source": source, "target": target });
        self.transfer(("data generate", &config), target, || self.open(&source))
    }

    fn convert(&self, source: &Source, tables: &OwnTables, target: &Target) -> Outcome {
        let config = json!({ "source": source, "tables": tables, "target": target });
        self.transfer(("data convert", &config), target, || match &tables.edges {
            Some(edges) => self.open_tables(edges.clone(), tables, source),
            None => self.open(source),
        })
    }

    fn transfer(
        &self,
        (command, config): (&str, &serde_json::Value),
        target: &Target,
        open: impl FnOnce() -> Result<Dataset, Failure>,
    ) -> Outcome {
        self.out.start(command, config)?;
        let existing = if target.overwrite { Existing::Replace } else { Existing::Keep };
        // Better to hear now than after an hour of reading.
        format::check_target(&target.output, target.to.as_deref(), existing)?;
        let set = open()?;
        let lost = format::left_out(&set, &target.output, target.to.as_deref());
        if !lost.is_empty() {
            let lost = lost.join(", ");
            self.out.note(format_args!("this format has no place for {lost}; a folder keeps them"));
        }
        let meter = self.meter(Doing::Writing);
        let job = Job { threads: &self.threads, watch: &meter };
        format::write(&set, &target.output, target.to.as_deref(), existing, &job)?;
        drop(meter);
        let path = target.output.display().to_string();
        let (nodes, edges) = (set.graph().n_nodes(), set.graph().n_edges());
        self.out.event("written", &json!({ "path": path, "nodes": nodes, "edges": edges }))?;
        self.out.line(format_args!(
            "wrote {path}: {} nodes, {} edges",
            grouped(nodes),
            grouped(edges)
        ))
    }

    fn validate(&self, data: &[String], format: Option<&str>) -> Outcome {
        self.out.start("data validate", &json!({ "data": data, "format": format }))?;
        let mut sound = true;
        for name in data {
            let folder = self.folder.as_deref().map(Path::new);
            let meter = self.meter(Doing::Checking);
            let job = Job { threads: &self.threads, watch: &meter };
            let checked = open_with(&Query { data: name, format, folder }, &job).and_then(|set| {
                lacis::data::check_finite(&set)?;
                Ok(set)
            });
            drop(meter);
            match checked {
                Err(Error::Interrupted) => return Err(Error::Interrupted.into()),
                Err(error) => {
                    sound = false;
                    self.found(name, &error)?;
                }
                Ok(set) => self.approve(name, &set)?,
            }
        }
        if sound { Ok(()) } else { Err(Failure::Found) }
    }

    fn found(&self, name: &str, error: &Error) -> Outcome {
        let message = error.to_string();
        let event =
            json!({ "data": name, "valid": false, "kind": error.kind(), "problem": message });
        self.out.event("validated", &event)?;
        self.out.line(format_args!("BAD  {name}: {message}"))
    }

    fn approve(&self, name: &str, set: &Dataset) -> Outcome {
        let (nodes, edges) = (set.graph().n_nodes(), set.graph().n_edges());
        let (format, notes) = (&set.origin().format, &set.origin().notes);
        let event = json!({ "data": name, "valid": true, "format": format, "nodes": nodes,
                            "edges": edges, "notes": notes });
        self.out.event("validated", &event)?;
        let (nodes, edges) = (grouped(nodes), grouped(edges));
        self.out.line(format_args!("ok   {name}: {format}, {nodes} nodes, {edges} edges"))?;
        notes.iter().try_for_each(|note| self.out.line(format_args!("     {note}")))
    }
}

fn changes(args: &args::Changes) -> Changes {
    Changes {
        ignore_weights: args.edge_weights == "ignore",
        undirected: args.undirected,
        largest_component: args.largest_component,
        self_loops: args.self_loops,
        features: args.features.clone(),
        classes: args.classes,
        row_normalize: args.row_normalize,
        seed: args.seed_of_data(),
    }
}

fn list(out: &Out) -> Outcome {
    out.start("data list", &serde_json::Value::Null)?;
    out.line("Built-in sets")?;
    for set in sets::SETS {
        out.event("set", &json!({ "name": set.name, "about": set.about }))?;
        out.line(format_args!("  {:<15}{}", set.name, set.about))?;
    }
    out.line("\nPublic sets, by `lacis data fetch NAME`")?;
    for set in sets::PUBLIC.iter().filter(|set| !set.files.is_empty()) {
        let (size, source, licence) = (set.size(), set.source, set.licence);
        out.event(
            "public",
            &json!({ "name": set.name, "nodes": set.nodes, "edges": set.edges,
                     "download": size, "source": source, "licence": licence }),
        )?;
        out.line(format_args!("  {:<18}{size:<15}{source}", set.name))?;
    }
    out.line("\nGenerators, as NAME:KEY=VALUE,…   (500k, 1.2M and 1e6 are numbers too)")?;
    for generator in generate::GENERATORS {
        let keys: Vec<_> = generator
            .params
            .iter()
            .map(|p| json!({ "key": p.name, "default": p.default.to_string(), "about": p.about }))
            .collect();
        out.event(
            "generator",
            &json!({ "name": generator.name, "about": generator.about, "keys": keys }),
        )?;
        out.line(format_args!("  {:<15}{}", format!("{}:", generator.name), generator.about))?;
        for parameter in generator.params {
            let key = format!("{}={}", parameter.name, parameter.default);
            out.line(format_args!("  {:<17}{key:<16}{}", "", parameter.about))?;
        }
    }
    out.line("\nFile formats, told from the content   (--format NAME overrides)")?;
    for format in format::FORMATS {
        out.event(
            "format",
            &json!({ "name": format.name, "about": format.about, "writes": format.can_write(),
                     "holds": format.holds, "direction": format.direction }),
        )?;
        let write = if format.can_write() { "" } else { "  (read only)" };
        out.line(format_args!("  {:<15}{}{write}", format.name, format.about))?;
    }
    Ok(())
}

/// `lacis data info`: the JSON line, and the rows for people.
#[derive(Serialize)]
struct Info {
    name: String,
    format: String,
    synthetic: bool,
    nodes: usize,
    sources: usize,
    edges: usize,
    undirected_edges: usize,
    symmetric: bool,
    /// Which way the edges of this format run.
    direction: Option<&'static str>,
    node_ids: bool,
    weighted: bool,
    self_loops: usize,
    isolated: usize,
    features: usize,
    feature_nnz: usize,
    classes: usize,
    multilabel: bool,
    /// Numbers to be predicted of each node or graph.
    targets: usize,
    labelled: usize,
    graphs: usize,
    splits: Option<Parts>,
    split_names: Vec<String>,
    degree: lacis::DegreeStats,
    hub_share: f64,
    mean_distance: f64,
    graph_bytes: usize,
    load_s: f64,
    notes: Vec<String>,
}

#[derive(Serialize)]
struct Parts {
    train: usize,
    val: usize,
    test: usize,
}

impl Info {
    fn of(set: &Dataset, load_s: f64, threads: &Threads) -> Self {
        let stats = set.graph().stats(threads);
        let (features, labels) = (set.features(), set.labels());
        let targets = match labels {
            Some(Labels::Targets(of)) => of.n_cols(),
            _ => 0,
        };
        let parts =
            |s: &lacis::Split| Parts { train: s.train.len(), val: s.val.len(), test: s.test.len() };
        Info {
            name: set.name().to_owned(),
            format: set.origin().format.clone(),
            synthetic: set.origin().synthetic,
            nodes: stats.n_rows,
            sources: stats.n_cols,
            edges: stats.nnz,
            undirected_edges: stats.undirected_edges,
            symmetric: stats.symmetric,
            direction: format::by_name(&set.origin().format).map(|format| format.direction),
            node_ids: set.ids().is_some(),
            weighted: stats.weighted,
            self_loops: stats.self_loops,
            isolated: stats.isolated,
            features: features.map_or(0, |f| f.width()),
            feature_nnz: features.map_or(0, |f| f.nnz()),
            classes: labels.map_or(0, |l| l.width()) - targets,
            multilabel: matches!(labels, Some(Labels::Multi(_))),
            targets,
            labelled: labels.map_or(0, |l| (0..l.n_rows()).filter(|&i| l.is_known(i)).count()),
            graphs: set.collection().map_or(1, |c| c.n_graphs()),
            splits: set.splits().first().map(parts),
            split_names: set.splits().iter().map(|s| s.name.clone()).collect(),
            degree: stats.degree,
            hub_share: stats.hub_share,
            mean_distance: stats.mean_distance,
            graph_bytes: set.graph().adjacency().bytes(),
            load_s,
            notes: set.origin().notes.clone(),
        }
    }

    fn rows(&self) -> Vec<String> {
        let synthetic = if self.synthetic { ", synthetic" } else { "" };
        let mut rows = vec![format!("{}  ({}{synthetic})", self.name, self.format)];
        let mut row = |name: &str, value: String| rows.push(format!("  {name:<12}{value}"));
        if self.graphs > 1 {
            row("graphs", grouped(self.graphs));
        }
        match self.sources == self.nodes {
            true => row("nodes", grouped(self.nodes) + &self.isolated_words()),
            false => row(
                "nodes",
                format!("{} targets, {} sources", grouped(self.nodes), grouped(self.sources)),
            ),
        }
        row("edges", self.edge_words());
        if let Some(direction) = self.direction {
            row("direction", direction.to_owned());
        }
        let d = &self.degree;
        row(
            "degree",
            format!(
                "{} to {}, mean {:.1}, median {}, 99 % ≤ {}",
                d.min, d.max, d.mean, d.median, d.p99
            ),
        );
        row("features", self.feature_words());
        row("labels", self.label_words());
        row("split", self.split_words());
        row(
            "in memory",
            format!("{} for the graph, loaded in {:.3} s", bytes(self.graph_bytes), self.load_s),
        );
        rows
    }

    fn isolated_words(&self) -> String {
        match self.isolated {
            0 => String::new(),
            isolated => format!(", {} without neighbours", grouped(isolated)),
        }
    }

    fn edge_words(&self) -> String {
        let kind = if self.symmetric { "symmetric" } else { "directed" };
        let weighted = if self.weighted { ", weighted" } else { "" };
        let loops = match self.self_loops {
            0 => String::new(),
            1 => ", 1 self-loop".to_owned(),
            loops => format!(", {} self-loops", grouped(loops)),
        };
        let (edges, pairs) = (grouped(self.edges), grouped(self.undirected_edges));
        format!("{edges} stored ({kind}{weighted}{loops}); {pairs} undirected")
    }

    fn feature_words(&self) -> String {
        match self.features {
            0 => "none".to_owned(),
            width => {
                let all = (self.nodes * width).max(1) as f64;
                let share = 100.0 * self.feature_nnz as f64 / all;
                format!("{} a node, {share:.1} % not zero", grouped(width))
            }
        }
    }

    fn label_words(&self) -> String {
        let of = if self.graphs > 1 { "graphs" } else { "nodes" };
        match (self.classes, self.multilabel) {
            (0, _) if self.targets > 0 => {
                format!("{} numbers, {} {of} labelled", self.targets, grouped(self.labelled))
            }
            (0, _) => "none".to_owned(),
            (classes, true) => format!("{classes} labels, any number a node"),
            (classes, false) => {
                format!("{classes} classes, {} {of} labelled", grouped(self.labelled))
            }
        }
    }

    fn split_words(&self) -> String {
        let Some(parts) = &self.splits else { return "none".to_owned() };
        let more = match self.split_names.len() {
            1 => String::new(),
            n => format!(" (first of {n})"),
        };
        let [train, val, test] = [parts.train, parts.val, parts.test].map(grouped);
        format!("{}: {train} train, {val} val, {test} test{more}", self.split_names[0])
    }
}
