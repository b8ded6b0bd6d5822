//! Analyses against what they describe: formulas of the papers, counted exchanges, real sizes.

use std::sync::Arc;

use lacis::analyze::{Analysis, CLASSES, Case, FAMILIES, SCHEMES, Wires, analyze};
use lacis::costs::Measured;
use lacis::data::Job as DataJob;
use lacis::data::splits::Fractions;
use lacis::exec::{Counted, Observe};
use lacis::kernels::Profile;
use lacis::levels::{Asked, Levels};
use lacis::machine::this_machine;
use lacis::nn::{Config, MODELS};
use lacis::partition::Parts;
use lacis::plan::analysis::Subject;
use lacis::plan::choose::Settings;
use lacis::plan::plan::Phase;
use lacis::train::{Job, Recipe, Trainer};
use lacis::{Csr, Dataset, Split, Threads};

fn recipe(model: &str, change: impl Fn(&mut Config)) -> Recipe {
    let mut config = Config::new(1, 16, 1);
    if matches!(model, "gat" | "gatv2") {
        config.heads = 2;
    }
    change(&mut config);
    let settings = Settings { without: vec!["hoist".to_owned()], ..Settings::default() };
    Recipe { epochs: 10, settings, ..Recipe::new(model, config) }
}

fn dataset(threads: &Threads) -> Dataset {
    let spec = "sbm:n=400,e=2400,classes=4,features=12,seed=3";
    lacis::open(spec, &DataJob::quiet(threads)).expect("a generator")
}

fn with_trainer<R>(recipe: Recipe, use_it: impl FnOnce(&Trainer<'_>, &Dataset, &Split) -> R) -> R {
    let threads = Threads::new(2).expect("two threads");
    let data = dataset(&threads);
    let labels = data.labels().expect("labels");
    let split = lacis::data::splits::all(labels).expect("a split");
    let profile = Profile::unmeasured(this_machine());
    let job = Job { dataset: &data, split: &split, threads: &threads, profile: &profile };
    let trainer = Trainer::new(&job, recipe).expect("a trainer");
    use_it(&trainer, &data, &split)
}

fn analysis(recipe: Recipe, wires: &Wires) -> Analysis {
    with_trainer(recipe, |trainer, data, split| analyzed(trainer, data, split, wires))
}

fn analyzed(trainer: &Trainer<'_>, data: &Dataset, split: &Split, wires: &Wires) -> Analysis {
    let case = Case {
        dataset: data,
        config: &trainer.model().config,
        model: &trainer.recipe().model,
        plan: &trainer.chosen().plan,
        sizes: &trainer.sizes(),
        costs: &Measured(trainer.profile()),
        threads: trainer.threads(),
        train: &split.train,
    };
    analyze(&case, wires).expect("an analysis")
}

/// Besta and Hoefler's tables of models, work and depth of a layer: every model is in one of them.
#[test]
fn orders_of_growth_are_those_of_the_papers() {
    type Change = fn(&mut Config);
    let plain: Change = |_| {};
    let [work, depth] = ["O(m·k + n·k²)", "O(log d + log k)"];
    let [hops_work, hops_depth] = ["O(p·m·k + n·k²)", "O(p·log d + log k)"];
    // A weight for each power multiplies the dense products too.
    let each_power = "O(p·m·k + p·n·k²)";
    let cases: [(&str, Change, [&str; 2]); 19] = [
        ("gcn", plain, [work, depth]),
        ("sage", plain, [work, depth]),
        ("gin", plain, [work, depth]),
        ("gin", |c| c.mlp_layers = 2, ["O(m·k + n·K·k²)", "O(log d + K·log k)"]),
        ("gin", |c| c.mlp_layers = 5, ["O(m·k + n·K·k²)", "O(log d + K·log k)"]),
        ("gat", plain, [work, depth]),
        ("gatv2", plain, [work, depth]),
        ("gatedgcn", plain, [work, depth]),
        ("sgc", |c| c.hops = Some(2), [hops_work, hops_depth]),
        ("sgc", |c| c.hops = Some(5), [hops_work, hops_depth]),
        ("sgc", |c| c.hops = Some(1), [work, depth]),
        ("tagcn", plain, [each_power, hops_depth]),
        ("tagcn", |c| c.hops = Some(2), [each_power, hops_depth]),
        ("cheb", plain, [each_power, hops_depth]),
        ("cheb", |c| c.hops = Some(6), [each_power, hops_depth]),
        ("appnp", plain, ["O(n·k²)", "O(log k)"]),
        ("appnp", |c| c.layers = 1, ["O(t·m·k + n·k²)", "O(t·log d + log k)"]),
        ("gcn2", plain, ["O(n·k²)", "O(log k)"]),
        ("mlp", plain, ["O(n·k²)", "O(log k)"]),
    ];
    for (model, change, orders) in cases {
        let found = analysis(recipe(model, change), &Wires::default());
        assert_eq!(found.layers[0].forward_order, orders, "{model}");
        let backward = &found.layers[0].backward_order[1];
        assert!(backward.contains("log n") && !backward.contains("·log n"), "{model}: {backward}");
    }
    for kind in MODELS {
        assert!(cases.iter().any(|case| case.0 == kind.name), "{}", kind.name);
    }
    let appnp = analysis(recipe("appnp", plain), &Wires::default());
    assert_eq!(appnp.layers[1].forward_order, ["O(t·m·k + n·k²)", "O(t·log d + log k)"]);
    assert_eq!(appnp.layers.len(), 3, "two layers, and the loss");
    let gcn2 = analysis(recipe("gcn2", plain), &Wires::default());
    assert_eq!(gcn2.layers[1].forward_order, [work, depth]);
    let gin = analysis(recipe("gin", |c| c.mlp_layers = 3), &Wires::default());
    assert_eq!(gin.layers.len(), 3, "two layers, and the loss");
}

#[test]
fn models_are_in_their_classes_and_families() {
    let of = |model: &str| {
        let found = analysis(recipe(model, |_| {}), &Wires::default());
        (found.class.map(|class| class.name), found.family.name)
    };
    for model in ["gcn", "sage", "gin", "gcn2"] {
        assert_eq!(of(model), (Some("convolutional"), "linear"), "{model}");
    }
    for model in ["gat", "gatv2"] {
        assert_eq!(of(model), (Some("attentional"), "linear"), "{model}");
    }
    for model in ["sgc", "tagcn", "cheb"] {
        assert_eq!(of(model), (Some("convolutional"), "polynomial"), "{model}");
    }
    assert_eq!(of("appnp"), (Some("convolutional"), "rational, by iteration"));
    assert_eq!(of("gatedgcn"), (Some("message passing"), "linear"));
    assert_eq!(of("mlp"), (None, "linear"));
    // Computed per edge, message passing costs a matrix and a vector for each.
    let per_edge: Vec<&str> = CLASSES.iter().map(|class| class.work_per_edge).collect();
    assert_eq!(per_edge, ["O(m·k²)", "O(m·k²)", "O(m·k² + n·k²)"]);
    let otherwise: Vec<_> = FAMILIES.iter().filter_map(|family| family.otherwise).collect();
    let powers = ["dense powers", "O(n³·log p)", "O(log p·log n)"];
    let inverse = ["a dense inverse", "O(n³ + n²·k + n·k²)", "O(log² n + log k)"];
    assert_eq!(otherwise, [powers, inverse]);
}

/// Besta and Hoefler's table of training schemes.
#[test]
fn schemes_are_those_of_the_papers() {
    let [whole, depth] = ["O(L·m·k + L·n·k²)", "O(L·log d + L·log k)"];
    let drawn = "O(L·log c + L·log k)";
    let table = [
        ("full batch", whole, depth, "O(L·n·k + L·k² + m)"),
        ("full batch, one weight for all layers", whole, depth, "O(L·n·k + k² + m)"),
        ("full batch, reversible layers", whole, depth, "O(n·k)"),
        ("neighbour sampling", "O(c^L·n·k²)", drawn, "O(b·c^L·k)"),
        ("neighbour sampling with history", "O(c^L·n·k² + L·m·k)", drawn, "O(L·n·k + b·c^L·k)"),
        ("layer sampling", "O(c·L·n·k²)", drawn, "O(b·c·L·k)"),
        (
            "sub-graph sampling",
            "O(W_pre + L·m·k + L·n·k²)",
            "O(D_pre + L·log d + L·log k)",
            "O(b·L·k)",
        ),
    ];
    assert!(SCHEMES.iter().map(|row| (row.0, row.1, row.2, row.3)).eq(table));
    let found = analysis(recipe("gcn", |config| config.layers = 4), &Wires::default());
    let [plain, tied, reversible] = [0, 1, 2].map(|at| &found.schemes[at]);
    assert_eq!(plain.work, tied.work);
    assert!(reversible.work > plain.work && reversible.memory_bytes < plain.memory_bytes);
    // Every symbol is explained.
    let symbols: Vec<&str> = found.symbols().iter().map(|(symbol, _)| *symbol).collect();
    assert_eq!(symbols, ["n", "m", "d", "k", "L", "b", "c", "W_pre", "D_pre"]);
}

#[test]
fn one_worker_sends_nothing_and_nobody_is_idle_in_silence() {
    for model in ["gcn", "gat", "gatedgcn", "sgc"] {
        let found = analysis(recipe(model, |_| {}), &Wires { workers: 1, ..Wires::default() });
        for kind in &found.parallelism {
            let sent = (kind.volume_bytes, kind.messages, kind.syncs);
            assert_eq!(sent, (0.0, 0.0, 0), "{model}, {}", kind.kind);
        }
    }
    let found = analysis(recipe("gcn", |_| {}), &Wires { workers: 64, ..Wires::default() });
    let of = |kind: &str| found.parallelism.iter().find(|k| k.kind == kind).expect("there");
    // The widest layer has 16 columns.
    assert_eq!([of("feature").workers, of("ann").workers], [16, 16]);
    assert_eq!([of("2d").workers, of("3d").workers], [64, 64]);
    let found = analysis(recipe("gcn", |_| {}), &Wires { workers: 30, ..Wires::default() });
    let of = |kind: &str| found.parallelism.iter().find(|k| k.kind == kind).expect("there");
    assert_eq!([of("2d").workers, of("3d").workers], [25, 27]);
}

/// What is dealt out by columns is what an epoch multiplies by weights.
#[test]
fn features_stored_sparse_are_multiplied_by_weights_too() {
    let threads = Threads::new(2).expect("two threads");
    let data = lacis::open("cora-like", &DataJob::quiet(&threads)).expect("built in");
    let split = lacis::data::splits::all(data.labels().expect("labels")).expect("a split");
    let profile = Profile::unmeasured(this_machine());
    let job = Job { dataset: &data, split: &split, threads: &threads, profile: &profile };
    let trainer = Trainer::new(&job, recipe("gcn", |_| {})).expect("a trainer");
    let found = analyzed(&trainer, &data, &split, &Wires { workers: 2, ..Wires::default() });
    let feature = found.parallelism.iter().find(|k| k.kind == "feature").expect("there");
    // X·W1 and its gradient have 16 columns, H·W2 and its gradient 7.
    let words = feature.volume_bytes / 4.0 / data.graph().n_nodes() as f64;
    assert_eq!((words, feature.syncs), (2.0 * 16.0 + 2.0 * 7.0, 4));
}

#[test]
fn deep_networks_are_analysed_too() {
    let wires = Wires { blocks: 64, staleness: 4, ..Wires::default() };
    let found = analysis(recipe("gcn", |config| config.layers = 60), &wires);
    assert!(found.schedule.is_some() && found.left_out.is_empty(), "{:?}", found.left_out);
    let piped = found.parallelism.iter().filter(|kind| kind.kind.ends_with("pipeline"));
    assert_eq!(piped.count(), 2);
}

/// What planning counted on symbols is what the matrices that were made have.
#[test]
fn work_and_bytes_are_those_of_the_real_matrices() {
    for model in ["gcn", "sage", "gat", "tagcn"] {
        with_trainer(recipe(model, |_| {}), |trainer, data, _| {
            let features = Arc::new(data.features().expect("features").clone());
            let levels = trainer.sizes().nodes.len();
            let (graph, features) = (data.graph(), &features);
            let asked = Asked { graph, features, levels, rows: None, reach: false };
            let made = Levels::new(&asked, &trainer.chosen().plan, trainer.threads());
            let (planned, real) = (trainer.sizes(), made.expect("levels").measured());
            let of = |sizes| {
                let plan = &trainer.chosen().plan;
                Subject { plan, sizes, degree: 50 }.steps(|step| step.phase != Phase::Once)
            };
            let (planned, real) = (of(&planned), of(&real));
            assert_eq!((planned.work, planned.bytes), (real.work, real.bytes), "{model}");
            assert!(planned.work > 0 && planned.depth > 10);
        });
    }
}

/// What steps really did, by their phases.
#[derive(Default)]
struct Counter(Vec<(usize, Counted)>);

impl Observe for Counter {
    fn step(&mut self, _: usize, _: f64) {}

    fn counted(&mut self, index: usize, counted: Counted) {
        self.0.push((index, counted));
    }

    fn counts(&self) -> bool {
        true
    }
}

/// What the executor counts from the matrices that its steps are given is what was analysed, of
/// all rows and of those that some nodes can see.
#[test]
fn work_and_bytes_are_what_the_executor_counts() {
    let threads = Threads::new(2).expect("two threads");
    let data = dataset(&threads);
    let labels = data.labels().expect("labels");
    let few = Fractions::new(0.05, 0.05, 0.05).expect("shares");
    let all = lacis::data::splits::all(labels).expect("a split");
    let few = lacis::data::splits::random(labels, few, 1).expect("a split");
    let profile = Profile::unmeasured(this_machine());
    for (kind, split) in MODELS.iter().flat_map(|kind| [(kind, &all), (kind, &few)]) {
        let job = Job { dataset: &data, split, threads: &threads, profile: &profile };
        let mut trainer = Trainer::new(&job, recipe(kind.name, |_| {})).expect("a trainer");
        let (plan, sizes) = (trainer.chosen().plan.clone(), trainer.sizes());
        let subject = Subject { plan: &plan, sizes: &sizes, degree: 50 };
        let mut counter = Counter::default();
        trainer.step(&mut counter).expect("an epoch");
        assert_eq!(counter.0.len(), plan.steps.len(), "{}", kind.name);
        for (index, counted) in counter.0 {
            let step = &plan.steps[index];
            let said = subject.step(step);
            let what = format!("{}, {}: {}", kind.name, split.train.len(), step.formula);
            assert_eq!((counted.work, counted.bytes), (said.work, said.bytes), "{what}");
        }
    }
}

/// Computes every part's rows from its own nodes and what it was sent, counting what is sent.
fn exchanged(matrix: &Csr, parts: &Parts, x: &[f64]) -> (Vec<f64>, u64, u64) {
    let mut y = vec![0.0; matrix.n_rows()];
    let (mut sent, mut messages) = (0, 0);
    for part in 0..parts.count() as u32 {
        let mut known: Vec<Option<f64>> =
            x.iter().zip(parts.of()).map(|(x, of)| (*of == part).then_some(*x)).collect();
        for other in (0..parts.count() as u32).filter(|&other| other != part) {
            let rows = (0..matrix.n_rows()).filter(|&i| parts.of()[i] == part);
            let wanted: std::collections::BTreeSet<usize> = rows
                .flat_map(|i| matrix.row_cols(i).iter().map(|&c| c as usize))
                .filter(|&c| parts.of()[c] == other)
                .collect();
            messages += u64::from(!wanted.is_empty());
            sent += wanted.len() as u64;
            wanted.iter().for_each(|&node| known[node] = Some(x[node]));
        }
        for i in (0..matrix.n_rows()).filter(|&i| parts.of()[i] == part) {
            let cols = matrix.row_cols(i).iter();
            y[i] = cols.map(|&c| known[c as usize].expect("was sent")).sum();
        }
    }
    (y, sent, messages)
}

#[test]
fn halos_are_what_an_exchange_sends() {
    let threads = Threads::new(2).expect("two threads");
    let data = dataset(&threads);
    let graph = data.graph();
    let n = graph.n_nodes();
    let x: Vec<f64> = (0..n).map(|i| i as f64).collect();
    let whole: Vec<f64> = (0..n)
        .map(|i| graph.adjacency().row_cols(i).iter().map(|&c| x[c as usize]).sum())
        .collect();
    let hashed = Parts::hashed(n, 5);
    // METIS is a feature; the workspace's tests have it.
    let metis = Parts::metis(graph, 5, &threads).ok();
    for parts in [Some(&hashed), metis.as_ref()].into_iter().flatten() {
        let halo = parts.halo(graph.adjacency());
        let (y, sent, messages) = exchanged(graph.adjacency(), parts, &x);
        assert_eq!(y, whole);
        assert_eq!((halo.total(), halo.messages.iter().sum::<u64>()), (sent, messages));
        assert_eq!(halo.sent.iter().sum::<u64>(), sent);
        assert_eq!(halo.entries.iter().sum::<u64>() as usize, graph.n_edges());
    }
    if let Some(metis) = metis {
        let (few, many) = (metis.halo(graph.adjacency()), hashed.halo(graph.adjacency()));
        assert!(few.cut < many.cut, "{} against {}", few.cut, many.cut);
        assert!(few.balance() < 1.2, "{}", few.balance());
    }
}

#[test]
fn volumes_of_a_partition_are_halos_times_widths() {
    let wires = Wires { workers: 4, ..Wires::default() };
    let found = analysis(recipe("gcn", |_| {}), &wires);
    let threads = Threads::new(2).expect("two threads");
    let data = dataset(&threads);
    let hashed = found.parallelism.iter().find(|k| k.kind == "graph-partition:hash");
    let hashed = hashed.expect("always there");
    let halo = Parts::hashed(400, 4).halo(data.graph().adjacency()).total() as f64;
    let weights = with_trainer(recipe("gcn", |_| {}), |trainer, _, _| trainer.params().count());
    let reduced = 2.0 * 3.0 * weights as f64 * 4.0;
    let words = (hashed.volume_bytes - reduced) / 4.0 / halo;
    assert!((words - words.round()).abs() < 1e-6 && words >= 8.0, "{words}");
}

#[test]
fn more_workers_are_predicted_faster_until_messages_cost_more() {
    let free = Wires { alpha: 0.0, beta: 0.0, ..Wires::default() };
    let found = analysis(recipe("gcn", |_| {}), &free);
    for (kind, points) in found.curves.iter().filter(|c| ["operator", "2d"].contains(&c.0)) {
        assert!(points.windows(2).all(|pair| pair[1].1 <= pair[0].1), "{kind}");
        assert_eq!(points.last().map(|p| p.0), Some(4096));
    }
    let dear = Wires { alpha: 1.0, beta: 0.0, ..Wires::default() };
    let found = analysis(recipe("gcn", |_| {}), &dear);
    assert!(found.advice.starts_with("one worker"), "{}", found.advice);
}
