//! Dropout of edges: what it gives on average, what it gives exactly, and its gradient.

use std::sync::Arc;

use lacis::data::Job as Reading;
use lacis::exec::{Context, Executor, Nobody, Outcome, Targets};
use lacis::kernels::Profile;
use lacis::kernels::dropout::Dropout;
use lacis::kernels::loss::Loss;
use lacis::levels::{Asked, Levels};
use lacis::machine::this_machine;
use lacis::nn::Config;
use lacis::params::Params;
use lacis::plan::op::{Adjacency, Graph as Treatment};
use lacis::plan::plan::{Operator, Phase, Place, Plan};
use lacis::train::{Job, Recipe, Trainer};
use lacis::{Csr, Dataset, Dense, Features, Graph, Labels, Rng, Split, Threads};

/// A directed graph with a loop, a repeated edge and a node that nobody points to; two columns.
fn odd_graph() -> Dataset {
    let edges = [(0, 1), (1, 2), (2, 0), (2, 1), (3, 3), (4, 1), (0, 1), (5, 4), (1, 5), (4, 6)];
    let graph = Graph::from_edges(8, &edges).unwrap();
    let x: Dense = Dense::from_fn(8, 2, |i, j| ((i * 7 + j * 3) % 11) as f64 / 5.0 - 0.9);
    let names = ["a", "b", "c"].map(str::to_owned).to_vec();
    let labels = Labels::classes(vec![0, 1, 2, 0, 1, 2, 0, 1], names).unwrap();
    let set = Dataset::new("odd", graph).with_features(Features::Dense(x)).unwrap();
    set.with_labels(labels).unwrap()
}

fn split() -> Split {
    Split { name: "own".into(), train: (0..8).collect(), val: vec![], test: vec![] }
}

fn recipe(hops: usize, layers: usize, p: f64) -> Recipe {
    let mut config = Config::new(1, 5, 1);
    (config.hops, config.layers, config.edge_dropout) = (Some(hops), layers, p);
    Recipe { epochs: 5, seed: 7, ..Recipe::new("appnp", config) }
}

/// A plan with all that it runs on.
struct Bench {
    plan: Arc<Plan>,
    levels: Levels,
    params: Params,
    executor: Executor,
    labels: Vec<i32>,
}

const ROWS: [u32; 8] = [0, 1, 2, 3, 4, 5, 6, 7];

impl Bench {
    fn new(recipe: Recipe) -> Self {
        let (set, split) = (odd_graph(), split());
        let (threads, profile) = (Threads::new(2).unwrap(), Profile::unmeasured(this_machine()));
        let job = Job { dataset: &set, split: &split, threads: &threads, profile: &profile };
        let hops = recipe.config.hops.unwrap();
        let trainer = Trainer::new(&job, recipe).unwrap();
        let plan = Arc::new(trainer.chosen().plan.clone());
        let (graph, features) = (set.graph(), Arc::new(set.features().unwrap().clone()));
        let asked =
            Asked { graph, features: &features, levels: hops + 1, rows: None, reach: false };
        let levels = Levels::new(&asked, &plan, &threads).unwrap();
        let mut executor = Executor::new(plan.clone(), &profile, &threads).unwrap();
        executor.bind(&levels, 1).unwrap();
        let params = trainer.params().clone();
        let mut bench = Bench { plan, levels, params, executor, labels: vec![1; 8] };
        bench.run(&[Phase::Once], 0, true);
        bench
    }

    fn run(&mut self, phases: &[Phase], seed: u64, training: bool) -> Outcome {
        let loss = Loss::classes(&self.labels, 3, &ROWS).unwrap();
        let (targets, graphs, pairs) = (Targets::Loss(&loss), None, None);
        let context = Context { levels: &self.levels, targets, graphs, pairs, seed, training };
        self.executor.run(phases, &context, &mut self.params, &mut Nobody).unwrap()
    }

    fn result(&mut self, seed: u64, training: bool) -> Vec<f64> {
        self.run(&[Phase::Forward], seed, training);
        let (targets, graphs, pairs) = (Targets::None, None, None);
        let context = Context { levels: &self.levels, targets, graphs, pairs, seed, training };
        let y = self.executor.result(&context, &self.params).unwrap();
        (0..8).flat_map(|i| y.row(i).to_vec()).map(f64::from).collect()
    }

    /// Keys of the forward pass's drop-outs, hop by hop.
    fn keys(&self) -> Vec<u32> {
        let forward = self.plan.steps.iter().filter(|step| step.phase == Phase::Forward);
        let key = forward.filter_map(|step| match step.operator {
            Operator::EdgeDropout { key, .. } => Some(key),
            _ => None,
        });
        key.collect()
    }
}

/// One hop is linear in what it multiplies with: its mean over seeds is the product of all edges.
#[test]
fn the_mean_over_seeds_is_the_product_of_all_edges() {
    let mut bench = Bench::new(recipe(1, 1, 0.4));
    let all = bench.result(0, false);
    const SEEDS: u64 = 2000;
    let (mut sums, mut squares) = (vec![0.0; 24], vec![0.0; 24]);
    for seed in 0..SEEDS {
        for (at, y) in bench.result(seed, true).into_iter().enumerate() {
            sums[at] += y;
            squares[at] += y * y;
        }
    }
    let count = SEEDS as f64;
    for ((all, sum), square) in all.iter().zip(sums).zip(squares) {
        let mean = sum / count;
        let variance = (square / count - mean * mean).max(0.0);
        assert!(variance > 1e-6, "edges were dropped");
        let error = (variance / count).sqrt();
        assert!((mean - all).abs() < 4.5 * error, "{mean} and {all}, give or take {error}");
    }
}

/// The plainest loops over entries, with the mask by its definition.
#[test]
fn two_hops_are_those_of_a_plain_reference() {
    const P: f64 = 0.3;
    let mut bench = Bench::new(recipe(2, 1, P));
    let keys = bench.keys();
    assert_eq!(keys.len(), 2, "every hop drops anew");
    let (w, b) = (bench.params.all()[0].value.clone(), bench.params.all()[1].value.clone());
    let set = odd_graph();
    let Some(Features::Dense(x)) = set.features() else { unreachable!("the features are dense") };
    for seed in [1, 2, 3] {
        let h: Vec<[f64; 3]> = (0..8)
            .map(|i| {
                let term = |c: usize, j: usize| f64::from(x.row(i)[j]) * f64::from(w.row(j)[c]);
                [0, 1, 2].map(|c| f64::from(b.row(0)[c]) + (0..2).map(|j| term(c, j)).sum::<f64>())
            })
            .collect();
        let mut z = h.clone();
        for (level, key) in keys.iter().enumerate() {
            let rng = Rng::new(seed, &format!("dropout {key}"));
            let mask = Dropout::new(rng, P).unwrap();
            z = hop(&bench.levels, level as u16, &mask, (&z, &h));
        }
        let found = bench.result(seed, true);
        for (found, expected) in found.iter().zip(z.iter().flatten()) {
            assert!((found - expected).abs() < 1e-5, "{seed}: {found}, not {expected}");
        }
    }
}

/// `0.9·N·z + 0.1·h`, edge `e` kept where the mask has bit `e mod 8` of row `e / 8`.
fn hop(
    levels: &Levels,
    level: u16,
    mask: &Dropout<'_>,
    (z, h): (&[[f64; 3]], &[[f64; 3]]),
) -> Vec<[f64; 3]> {
    let graph = Treatment::NORMALISED;
    let matrix: &Csr = levels.matrix(Adjacency { graph, level, transposed: false });
    let d = levels.degrees(graph, level, -1);
    let mut y: Vec<[f64; 3]> = h.iter().map(|h| h.map(|h| 0.1 * h)).collect();
    for (e, (i, j, value)) in matrix.entries().enumerate() {
        let factor = mask.factor((e / 8) as u32, e % 8) * f64::from(value * d[i] * d[j]);
        (0..3).for_each(|c| y[i][c] += 0.9 * factor * z[j][c]);
    }
    y
}

/// The backward pass drops what the forward pass dropped: the slope of this seed's loss.
#[test]
fn gradients_are_slopes_with_the_same_edges() {
    for layers in [1, 2] {
        let mut bench = Bench::new(recipe(3, layers, 0.3));
        let transposed = |bench: &Bench, step: &lacis::plan::plan::Step| {
            let place = bench.plan.values[step.inputs[0]].place;
            matches!(place, Place::Adjacency(a) if a.transposed)
        };
        let dropped = bench.plan.steps.iter().filter(|step| {
            matches!(step.operator, Operator::EdgeDropout { .. })
                && step.phase == Phase::Backward
                && transposed(&bench, step)
        });
        assert_eq!(dropped.count(), 3, "no product stays from the forward pass");
        let begin = bench.params.clone();
        for seed in [4, 5] {
            bench.params = begin.clone();
            bench.params.keep_gradients();
            bench.run(&[Phase::Forward, Phase::Backward, Phase::Update], seed, true);
            let grads = bench.params.gradients().unwrap().to_vec();
            for (at, grad) in grads.iter().enumerate() {
                for (element, grad) in grad.iter().enumerate() {
                    let mut moved = |by: f32| {
                        bench.params = begin.clone();
                        bench.params.all_mut()[at].value.data_mut()[element] += by;
                        bench.run(&[Phase::Forward, Phase::Backward], seed, true).loss
                    };
                    let h = 2e-3;
                    let (below, here, above) = (moved(-h), moved(0.0), moved(h));
                    let [left, right] = [here - below, above - here].map(|d| d / f64::from(h));
                    // A kink of the small network's relu is no slope.
                    if (left - right).abs() > 5e-3 {
                        assert_eq!(layers, 2, "one layer has no kinks");
                        continue;
                    }
                    let (near, found) = ((left + right) / 2.0, f64::from(*grad));
                    assert!((near - found).abs() < 2e-3, "{at}[{element}]: {near} and {found}");
                }
            }
        }
    }
}

/// Edges are known by the whole graph's numbers: nothing hangs on which rows are computed, and how.
#[test]
fn what_is_saved_and_who_computes_changes_no_edge() {
    let one = Threads::one();
    let spec = "sbm:n=300,e=1500,classes=4,features=12,seed=3";
    let set = lacis::open(spec, &Reading::quiet(&one)).unwrap();
    let few = lacis::data::splits::random(
        set.labels().unwrap(),
        lacis::data::splits::Fractions::new(0.02, 0.1, 0.1).unwrap(),
        1,
    );
    let (few, profile) = (few.unwrap(), Profile::unmeasured(this_machine()));
    let curve = |without: &[&str], threads: &Threads| -> Vec<f64> {
        let job = Job { dataset: &set, split: &few, threads, profile: &profile };
        let mut recipe = recipe(2, 2, 0.5);
        recipe.settings.without = without.iter().map(|name| (*name).to_owned()).collect();
        let mut trainer = Trainer::new(&job, recipe).unwrap();
        (0..5).map(|_| trainer.step(&mut Nobody).unwrap().loss).collect()
    };
    let expected = curve(&[], &one);
    let restricted = {
        let job = Job { dataset: &set, split: &few, threads: &one, profile: &profile };
        let trainer = Trainer::new(&job, recipe(2, 2, 0.5)).unwrap();
        trainer.sizes().nodes[2] < 300
    };
    assert!(restricted, "some rows are left out");
    assert_eq!(curve(&[], &Threads::new(3).unwrap()), expected);
    for without in ["reach", "hoist", "symmetry", "fuse", "all"] {
        for (a, b) in curve(&[without], &one).iter().zip(&expected) {
            assert!((a - b).abs() < 2e-5 * (1.0 + b.abs()), "without {without}: {a} and {b}");
        }
    }
}
