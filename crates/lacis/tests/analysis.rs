//! Analyses against what they describe: formulas of the papers, counted exchanges, real sizes.

use std::sync::Arc;

use lacis::analyze::{Analysis, Case, Wires, analyze};
use lacis::costs::Measured;
use lacis::data::Job as DataJob;
use lacis::kernels::Profile;
use lacis::levels::{Asked, Levels};
use lacis::machine::this_machine;
use lacis::nn::Config;
use lacis::partition::Parts;
use lacis::plan::analysis::Subject;
use lacis::plan::choose::Settings;
use lacis::plan::plan::Phase;
use lacis::train::{Job, Recipe, Trainer};
use lacis::{Csr, Dataset, Split, Threads};

fn recipe(model: &str, change: impl Fn(&mut Config)) -> Recipe {
    let mut config = Config::new(1, 16, 1);
    config.heads = 2;
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
    with_trainer(recipe, |trainer, data, split| {
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
    })
}

/// Besta and Hoefler's tables of models, work and depth of a layer.
#[test]
fn orders_of_growth_are_those_of_the_papers() {
    let plain = |_: &mut Config| {};
    let [work, depth] = ["O(m·k + n·k²)", "O(log d + log k)"];
    for model in ["gcn", "sage", "gin", "gat", "gatv2"] {
        let found = analysis(recipe(model, plain), &Wires::default());
        assert_eq!(found.layers[0].forward_order, [work, depth], "{model}");
        assert!(found.layers[0].backward_order[1].contains("log n"), "{model}");
    }
    let gin = analysis(recipe("gin", |config| config.mlp_layers = 3), &Wires::default());
    // Linear layers inside a layer are planned, and listed, one by one.
    for inner in &gin.layers[1..3] {
        assert_eq!(inner.forward_order, ["O(n·k²)", "O(log k)"]);
    }
    let sgc = analysis(recipe("sgc", |config| config.layers = 3), &Wires::default());
    assert_eq!(sgc.layers[0].forward_order, ["O(p·m·k + n·k²)", "O(p·log d + log k)"]);
    assert_eq!(sgc.class, ["convolutional", "polynomial"]);
    let appnp = analysis(recipe("appnp", plain), &Wires::default());
    assert!(appnp.class[1].starts_with("rational"));
    let gated = analysis(recipe("gatedgcn", plain), &Wires::default());
    assert_eq!(gated.class[0], "message passing");
    assert_eq!(gated.layers[0].forward_order, [work, depth]);
    let mlp = analysis(recipe("mlp", plain), &Wires::default());
    assert_eq!(mlp.layers[0].forward_order, ["O(n·k²)", "O(log k)"]);
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
