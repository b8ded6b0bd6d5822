//! Approximate training: what budgets, estimates, monitors and checkpoints promise.

use lacis::approx::draw::Histogram;
use lacis::approx::pieces::{Pairs, draw};
use lacis::approx::{Approx, Factors, Policy, Settings};
use lacis::data::Job as Reading;
use lacis::exec::Nobody;
use lacis::kernels::sampled::{Diagonal, Scaled, columns, row_norms, sliced_in_bands};
use lacis::kernels::{Isa, Mat, Profile};
use lacis::machine::this_machine;
use lacis::nn::{Config, sage::Aggregate};
use lacis::params::Optimizer;
use lacis::plan::choose::{SAVINGS, with_candidate};
use lacis::train::{Job, Recipe, Trainer};
use lacis::{Csr, Dataset, Dense, Features, Graph, Labels, Rng, Split, Threads};

const POLICIES: [Policy; 2] = [Policy::Rsc, Policy::Adaptive];

fn open(name: &str) -> Dataset {
    lacis::open(name, &Reading::quiet(&Threads::one())).unwrap()
}

fn small() -> Dataset {
    open("sbm:n=300,e=3000,classes=4,features=12,seed=3")
}

fn recipe(model: &str, epochs: usize) -> Recipe {
    let mut config = Config::new(1, 16, 1);
    config.layers = 3;
    let optimizer = Optimizer::adam(0.02, 5e-4);
    Recipe { optimizer, epochs, seed: 7, eval_every: 0, ..Recipe::new(model, config) }
}

fn split_of(set: &Dataset) -> Split {
    let fractions = lacis::data::splits::Fractions::DEFAULT;
    lacis::data::splits::random(set.labels().unwrap(), fractions, 1).unwrap()
}

fn forced(policy: Policy, budget: f64) -> Settings {
    Settings { force: true, ..Settings::new(policy, budget) }
}

/// Trains, and hands over what is left.
fn trained<R>(
    (set, recipe): (&Dataset, Recipe),
    (settings, threads): (Option<Settings>, usize),
    look: impl FnOnce(&mut Trainer<'_>) -> R,
) -> R {
    let threads = Threads::new(threads).unwrap();
    let (split, profile) = (split_of(set), Profile::unmeasured(this_machine()));
    let job = Job { dataset: set, split: &split, threads: &threads, profile: &profile };
    let epochs = recipe.epochs;
    let mut trainer = Trainer::new(&job, recipe).unwrap();
    if let Some(settings) = settings {
        trainer.approximate(settings).unwrap();
    }
    for _ in 0..epochs {
        trainer.step(&mut Nobody).unwrap();
    }
    look(&mut trainer)
}

fn weights(trainer: &mut Trainer<'_>) -> Vec<u32> {
    let all = trainer.params().all().iter();
    all.flat_map(|param| param.value.data().iter().map(|x| x.to_bits())).collect()
}

#[test]
fn a_budget_of_1_gives_the_bits_of_exact_training() {
    let set = small();
    for model in ["gcn", "sage", "gcn2"] {
        let exact = trained((&set, recipe(model, 12)), (None, 1), weights);
        for policy in POLICIES {
            let asked = Some(forced(policy, 1.0));
            assert!(exact == trained((&set, recipe(model, 12)), (asked, 1), weights), "{model}");
        }
        let other = Some(forced(Policy::Adaptive, 0.3));
        assert!(exact != trained((&set, recipe(model, 12)), (other, 1), weights), "{model}");
    }
}

/// Everybody knows one node, and nobody else: half of all entries are one pair.
fn star(n: usize) -> Dataset {
    let spokes: Vec<(u32, u32)> = (1..n as u32).flat_map(|i| [(0, i), (i, 0)]).collect();
    let graph = Graph::from_edges(n, &spokes).unwrap();
    let x = Dense::from_fn(n, 8, |i, j| ((i * 7 + j * 3) % 11) as f64 / 11.0 - 0.4);
    let of: Vec<i32> = (0..n).map(|i| (i % 3) as i32).collect();
    let labels = Labels::classes(of, Vec::new()).unwrap();
    let set = Dataset::new("star", graph).with_features(Features::Dense(x)).unwrap();
    set.with_labels(labels).unwrap()
}

/// Graphs whose largest pairs are a part of the budget, and graphs where they are more than it.
fn graphs() -> Vec<Dataset> {
    let hubs = [
        "rmat:n=1024,e=6000,features=8,classes=3,seed=2",
        "ba:n=600,m=2,features=8,classes=3,seed=4",
    ];
    [small(), star(500), open("karate")].into_iter().chain(hubs.map(open)).collect()
}

#[test]
fn the_budget_holds_at_every_refresh() {
    for (set, model) in graphs().iter().flat_map(|set| ["gcn", "sage", "gcn2"].map(|m| (set, m))) {
        for budget in [0.4, 0.15, 0.1] {
            let report = trained(
                (set, recipe(model, 40)),
                (Some(forced(Policy::Adaptive, budget)), 2),
                |trainer| trainer.approx().unwrap().report(),
            );
            holds(&report, budget, &format!("{} {model}", set.name()));
        }
    }
}

/// Adds up the entries of all layers at each refresh.
fn holds(report: &serde_json::Value, budget: f64, of: &str) {
    let layers = report["layers"].as_array().unwrap();
    assert!(layers.len() > 1, "{of}");
    // Shares are of each layer's own entries; with a whole graph at every level those are
    // equal, else the first layers have more, and the mean over layers is a bound of nothing.
    let mut present = vec![0.0; layers.len()];
    let refreshes = |layer: &serde_json::Value| layer["refreshes"].as_array().unwrap().clone();
    let mut epochs: Vec<u64> = layers
        .iter()
        .flat_map(refreshes)
        .map(|refresh| refresh["epoch"].as_u64().unwrap())
        .collect();
    epochs.sort_unstable();
    epochs.dedup();
    assert!(epochs.len() >= 3, "{of}: {epochs:?}");
    for epoch in epochs {
        for (present, layer) in present.iter_mut().zip(layers) {
            let refreshes = refreshes(layer);
            let last = refreshes.iter().rfind(|r| r["epoch"].as_u64().unwrap() <= epoch);
            if let Some(last) = last {
                let entries = last["entries"].as_f64().unwrap();
                assert!(entries > 0.0 && last["served"] == (last["error"].as_f64() < Some(1.0)));
                // A layer that fell back is drawn, and then exact until it is drawn again.
                let drawn = last["served"] == true || last["epoch"] == epoch;
                *present = if drawn { entries * width(layer) } else { 0.0 };
            }
        }
        let all: f64 = layers.iter().map(|l| l["entries"].as_f64().unwrap() * width(l)).sum();
        let used: f64 = present.iter().sum();
        assert!(used <= budget * all, "{of} epoch {epoch}: {used} of {all} for {budget}");
    }
}

fn width(layer: &serde_json::Value) -> f64 {
    layer["width"].as_f64().unwrap()
}

#[test]
fn results_do_not_depend_on_threads() {
    let set = small();
    for policy in POLICIES {
        let asked = || Some(forced(policy, 0.2));
        let one = trained((&set, recipe("gcn", 15)), (asked(), 1), weights);
        assert!(one == trained((&set, recipe("gcn", 15)), (asked(), 3), weights), "{policy:?}");
    }
}

#[test]
fn a_run_goes_on_from_a_checkpoint_to_the_same_bits() {
    // Nothing is too far off in a star, whose hub is drawn in pieces.
    let (small, star) = ((small(), None), (star(500), Some(f64::INFINITY)));
    let cases = POLICIES
        .into_iter()
        .flat_map(|p| [(&small, p, None), (&small, p, Some(0.6)), (&star, p, None)]);
    for ((set, bound), policy, error) in cases {
        let settings = Settings { error, bound: *bound, ..forced(policy, 0.2) };
        let asked = Some(settings.clone());
        let whole = trained((set, recipe("gcn", 30)), (asked, 1), weights);
        // Stopped between two choices of pairs, and where shares are decided on anew, in processes
        // that know nothing of each other.
        let (split, profile) = (split_of(set), Profile::unmeasured(this_machine()));
        let threads = Threads::one();
        let job = Job { dataset: set, split: &split, threads: &threads, profile: &profile };
        let mut kept = None;
        for epochs in [0..1, 1..10, 10..17, 17..20, 20..30] {
            let mut trainer = Trainer::new(&job, recipe("gcn", 30)).unwrap();
            trainer.approximate(settings.clone()).unwrap();
            kept.map_or(Ok(()), |kept| trainer.restore(kept)).unwrap();
            for _ in epochs.clone() {
                trainer.step(&mut Nobody).unwrap();
            }
            kept = Some(trainer.checkpoint().unwrap());
            let last = epochs.end == 30;
            assert!(!last || whole == weights(&mut trainer), "{policy:?} {error:?}");
        }
    }
}

#[test]
fn batches_are_sampled_one_by_one() {
    let set = small();
    for way in ["neighbor:10,10,10", "saint:2"] {
        for policy in POLICIES {
            let asked = || {
                let batches = Some(way.parse().unwrap());
                let recipe = recipe("sage", 10);
                Recipe { sample: batches, batch_size: Some(64), ..recipe }
            };
            let settings = || Some(forced(policy, 0.3));
            let look =
                |trainer: &mut Trainer<'_>| (trainer.approx().unwrap().report(), weights(trainer));
            let (report, one) = trained((&set, asked()), (settings(), 1), look);
            for layer in report["layers"].as_array().unwrap() {
                // Once for each epoch before the switch, from the first batch on.
                let refreshes = layer["refreshes"].as_array().unwrap();
                assert_eq!(refreshes[0]["epoch"], 1, "{way} {policy:?}: {layer}");
                assert!(refreshes.len() > 1 || layer["fallbacks"] != 0, "{layer}");
            }
            let (_, three) = trained((&set, asked()), (settings(), 3), look);
            assert!(one == three, "{way} {policy:?}");
        }
    }
}

#[test]
fn it_works_without_each_saving_and_where_it_cannot_pay_it_is_off() {
    let set = small();
    for saving in SAVINGS.iter().chain(&["all"]) {
        let mut recipe = recipe("gcn", 12);
        recipe.settings.without = vec![(*saving).to_owned()];
        let look = |trainer: &mut Trainer<'_>| trainer.approx().unwrap().report();
        let asked = Some(forced(Policy::Adaptive, 0.3));
        let report = trained((&set, recipe), (asked, 1), look);
        let layers = report["layers"].as_array().unwrap();
        let taken = |layer: &serde_json::Value| !layer["refreshes"].as_array().unwrap().is_empty();
        assert!(!layers.is_empty() && layers.iter().all(taken), "without {saving}: {report}");
    }
    // A graph this small gains nothing, and says so unless it is forced.
    let asked = Some(Settings::new(Policy::Adaptive, 0.9));
    let (on, sampling) = trained((&set, recipe("gcn", 3)), (asked, 1), |trainer| {
        let approx = trainer.approx().unwrap();
        (approx.is_on(), approx.sampling().clone())
    });
    assert_eq!(on, sampling.pays());
    assert!(sampling.ceiling >= sampling.speedup);
}

#[test]
fn a_layer_that_is_too_far_off_is_computed_exactly() {
    let set = small();
    let look = |trainer: &mut Trainer<'_>| (trainer.approx().unwrap().report(), weights(trainer));
    let settings = Settings { error: Some(1e-4), ..forced(Policy::Rsc, 0.1) };
    let (report, _) = trained((&set, recipe("gcn", 25)), (Some(settings), 1), look);
    let fell = |layer: &serde_json::Value| layer["fallbacks"].as_u64().unwrap() > 0;
    assert!(report["layers"].as_array().unwrap().iter().all(fell), "{report}");
    // Adaptive sees it coming: nothing is left out, and the bits are exact ones.
    let settings = Settings { error: Some(1e-6), ..forced(Policy::Adaptive, 0.1) };
    let (_, adaptive) = trained((&set, recipe("gcn", 25)), (Some(settings), 1), look);
    assert!(adaptive == trained((&set, recipe("gcn", 25)), (None, 1), weights));
}

#[test]
fn an_error_asked_for_is_kept_and_the_budget_follows() {
    let set = open("sbm:n=2000,e=60k,classes=4,features=12,seed=3");
    let mut kept = Vec::new();
    for error in [0.1, 0.4] {
        let settings = Settings { error: Some(error), ..forced(Policy::Adaptive, 0.1) };
        let look = |trainer: &mut Trainer<'_>| trainer.approx().unwrap().report();
        let report = trained((&set, recipe("gcn", 60)), (Some(settings), 2), look);
        for layer in report["layers"].as_array().unwrap() {
            // The first choices learn how prediction and measurement go together.
            let last: Vec<f64> = layer["refreshes"]
                .as_array()
                .unwrap()
                .iter()
                .rev()
                .take(2)
                .map(|refresh| refresh["error"].as_f64().unwrap())
                .collect();
            let mean = last.iter().sum::<f64>() / last.len().max(1) as f64;
            assert!(mean <= 1.3 * error, "asked for {error}: {layer}");
        }
        let share = |layer: &serde_json::Value| layer["kept"].as_f64().unwrap_or(1.0);
        kept.push(report["layers"].as_array().unwrap().iter().map(share).sum::<f64>());
    }
    assert!(kept[1] < kept[0], "{kept:?}");
}

/// A trainer whose second layer multiplies in the order for which rsc was published, whatever is
/// cheaper here: what is lost by a choice that is biased depends on the product it is made in.
fn weights_first<'j>(job: &'j Job<'j>, recipe: Recipe) -> Trainer<'j> {
    let trainer = Trainer::new(job, recipe.clone()).unwrap();
    let (network, chosen) = (&trainer.model().network, trainer.chosen());
    let layer = &chosen.layers[1];
    let first = |index: &usize| layer.all[*index].formula.contains("(relu(H1)·W2)");
    let index = layer.kept().into_iter().find(first).unwrap();
    let (sizes, costs) = (trainer.sizes(), lacis::costs::Measured(job.profile));
    let of = (network, chosen);
    let plan = with_candidate(of, (1, index), (&sizes, &costs), &recipe.settings).unwrap();
    Trainer::with_plan(job, recipe, plan).unwrap()
}

#[test]
fn accuracy_on_cora_like_is_within_a_point() {
    let set = open("cora-like");
    let split = set.splits()[0].clone();
    let (threads, profile) = (Threads::new(2).unwrap(), Profile::unmeasured(this_machine()));
    let job = Job { dataset: &set, split: &split, threads: &threads, profile: &profile };
    let accuracy = |settings: Option<Settings>, seed: u64| {
        let mut recipe = Recipe { seed, ..recipe("gcn", 60) };
        recipe.config.layers = 2;
        let mut trainer = weights_first(&job, recipe);
        settings.into_iter().for_each(|settings| trainer.approximate(settings).unwrap());
        for _ in 0..60 {
            trainer.step(&mut Nobody).unwrap();
        }
        let Labels::Classes { of, .. } = set.labels().unwrap() else { panic!("classes") };
        trainer
            .logits(|y| {
                let best = |i: u32| {
                    let row = y.row(i as usize);
                    (0..row.len()).max_by(|&a, &b| row[a].total_cmp(&row[b])).unwrap()
                };
                let right = split.test.iter().filter(|&&i| best(i) == of[i as usize] as usize);
                right.count() as f64 / split.test.len() as f64
            })
            .unwrap()
    };
    let all = |settings: Option<Settings>| -> Vec<f64> {
        (0..SEEDS).map(|seed| accuracy(settings.clone(), seed)).collect()
    };
    let exact = all(None);
    assert!(mean(&exact) > 0.7, "{exact:?}");
    for policy in POLICIES {
        let sampled = all(Some(forced(policy, 0.3)));
        // What seeds differ by comes on top of the point.
        let noise = 2.0 * ((variance(&exact) + variance(&sampled)) / SEEDS as f64).sqrt();
        let lost = mean(&exact) - mean(&sampled);
        assert!(lost < 0.01 + noise, "{policy:?}: {sampled:?} instead of {exact:?}");
    }
}

/// A product by itself: a graph's matrix and a gradient.
struct Alone {
    matrix: Csr,
    grad: Dense,
    left: Vec<f32>,
}

impl Alone {
    fn new(graph: &str, coherent: f64) -> Self {
        Alone::of(&open(graph), coherent)
    }

    fn of(set: &Dataset, coherent: f64) -> Self {
        let matrix = (**set.graph().adjacency()).clone();
        let rng = Rng::new(11, "gradient");
        let n = matrix.n_cols();
        let grad = Dense::from_fn(n, 16, |i, j| {
            let size = (rng.stream(i as u64).normal()).exp();
            let own = rng.stream((i * 16 + j + n) as u64).normal();
            size * (own + coherent * (1.0 + j as f64 / 16.0))
        });
        let left = (0..matrix.n_rows()).map(|i| 1.0 / (1.0 + matrix.row(i).len() as f32).sqrt());
        Alone { left: left.collect(), matrix, grad }
    }

    fn factors(&self) -> Factors<'_> {
        let (left, right) = (Some(&self.left[..]), Some(&self.left[..]));
        let a = Scaled { a: self.matrix.view(), values: None, left, right };
        Factors { a, x: Mat::from(&self.grad) }
    }

    /// A sample's product and the error that was reported for it.
    fn sampled(&self, settings: Settings, seed: u64) -> (Vec<f64>, f64) {
        let (threads, profile) = (Threads::one(), Profile::unmeasured(this_machine()));
        let settings = Settings { bound: Some(f64::INFINITY), ..settings };
        let mut approx = Approx::alone(settings, self.grad.n_cols(), (seed, 100)).unwrap();
        approx.begin(0);
        let first = approx.sample(0, &self.factors(), (&profile, &threads)).unwrap();
        assert!(first.is_none(), "the first epoch is exact");
        approx.begin(1);
        let sample = approx.sample(0, &self.factors(), (&profile, &threads)).unwrap();
        let matrix = sample.expect("there is no bound").matrix.clone();
        let report = approx.report();
        let error = report["layers"][0]["refreshes"][0]["error"].as_f64().unwrap();
        (self.product(&matrix, None), error)
    }

    /// The product of a draw, which fits the budget.
    fn drawn(&self, budget: f64, seed: u64) -> Vec<f64> {
        let (threads, factors) = (Threads::one(), self.factors());
        let found = columns(&factors.a, false, &threads);
        let mut scores = vec![0.0; found.norms.len()];
        row_norms(Isa::best(), factors.x, &mut scores, &threads).unwrap();
        scores.iter_mut().zip(&found.norms).for_each(|(score, norm)| *score *= norm);
        let (work, histogram) = (&found.entries[..], Histogram::of(&scores, &found.entries));
        let pairs = Pairs { scores: &scores, work, histogram: &histogram };
        let (room, rng) = ((budget * self.matrix.nnz() as f64).floor(), Rng::new(seed, "draw"));
        let of = (&factors.a, Diagonal::Sampled);
        let taken = draw(&pairs, room, of, (&rng, &threads)).unwrap();
        let choice = (&taken.factors[..], taken.bands.as_ref());
        let matrix = sliced_in_bands(&factors.a, choice, Diagonal::Sampled, &threads).unwrap();
        assert!(matrix.nnz() as f64 <= room, "{} in {room}", matrix.nnz());
        self.product(&matrix, None)
    }

    fn exact(&self) -> Vec<f64> {
        self.product(&self.matrix, Some(&self.left))
    }

    fn product(&self, matrix: &Csr, right: Option<&[f32]>) -> Vec<f64> {
        let width = self.grad.n_cols();
        let mut y = vec![0.0; matrix.n_rows() * width];
        for i in 0..matrix.n_rows() {
            for e in matrix.row(i) {
                let j = matrix.cols()[e] as usize;
                let value = matrix.values().map_or(1.0, |values| values[e]);
                let factor = self.left[i] * value * right.map_or(1.0, |right| right[j]);
                for (k, g) in self.grad.row(j).iter().enumerate() {
                    y[i * width + k] += f64::from(factor) * f64::from(*g);
                }
            }
        }
        y
    }
}

fn norm(y: impl Iterator<Item = f64>) -> f64 {
    y.map(|y| y * y).sum::<f64>().sqrt()
}

#[test]
fn the_monitor_says_what_the_error_is() {
    let graphs = ["sbm:n=3000,e=90k,classes=4,features=4,seed=1", "rmat:n=4096,e=80k,seed=2"];
    for graph in graphs {
        let alone = Alone::new(graph, 3.0);
        let exact = alone.exact();
        for policy in POLICIES {
            for budget in [0.1, 0.3, 0.6] {
                let (y, said) = alone.sampled(forced(policy, budget), 3);
                let wrong = norm(y.iter().zip(&exact).map(|(y, exact)| y - exact));
                let error = wrong / norm(exact.iter().copied());
                assert!(
                    (said / error - 1.0).abs() < 0.2,
                    "{graph} {policy:?} {budget}: {said} for {error}"
                );
            }
        }
    }
}

/// The error of one estimate and of the mean of many, both relative to the exact product.
fn errors(exact: &[f64], rounds: u64, estimate: impl Fn(u64) -> Vec<f64>) -> [f64; 2] {
    let mut mean = vec![0.0; exact.len()];
    let mut squares = 0.0;
    for seed in 0..rounds {
        let y = estimate(seed);
        squares += norm(y.iter().zip(exact).map(|(y, e)| y - e)).powi(2) / rounds as f64;
        mean.iter_mut().zip(&y).for_each(|(mean, y)| *mean += y / rounds as f64);
    }
    let of_mean = norm(mean.iter().zip(exact).map(|(m, e)| m - e));
    [squares.sqrt(), of_mean].map(|error| error / norm(exact.iter().copied()))
}

#[test]
fn the_mean_of_estimates_goes_to_the_exact_product() {
    let alone = Alone::new("sbm:n=200,e=2000,classes=4,features=4,seed=1", 1.0);
    let (exact, rounds) = (alone.exact(), 300);
    let estimate = |seed| alone.sampled(forced(Policy::Adaptive, 0.3), seed).0;
    let [one, all] = errors(&exact, rounds, estimate);
    // Without bias the error of a mean falls with the root of their number.
    let expected = one / (rounds as f64).sqrt();
    assert!(one > 0.05 && all < 1.3 * expected, "{all} of {one}, expected {expected}");
    // The largest pairs alone are biased, however often they are taken.
    let (largest, _) = alone.sampled(forced(Policy::Rsc, 0.3), 0);
    let biased = norm(largest.iter().zip(&exact).map(|(y, e)| y - e));
    let biased = biased / norm(exact.iter().copied());
    assert!(biased > 3.0 * all, "{biased} and {all}");
}

#[test]
fn hubs_that_are_more_than_the_budget_bring_no_bias() {
    for (set, budget) in graphs().iter().flat_map(|set| [0.05, 0.1, 0.3].map(|b| (set, b))) {
        let (alone, rounds) = (Alone::of(set, 1.0), 600);
        let [one, all] = errors(&alone.exact(), rounds, |seed| alone.drawn(budget, seed));
        let expected = one / (rounds as f64).sqrt();
        let of = format!("{} at {budget}: {all} of {one}, expected {expected}", set.name());
        assert!(one > 0.02 && all < 1.4 * expected, "{of}");
    }
}

#[test]
fn a_biased_choice_falls_back_before_it_does_harm_and_says_so() {
    let set = open("sbm:n=2000,e=60k,classes=4,features=12,seed=3");
    let look = |trainer: &mut Trainer<'_>| {
        let approx = trainer.approx().unwrap();
        (approx.report(), approx.fallen(), approx.summary())
    };
    let rsc = Some(forced(Policy::Rsc, 0.1));
    let (report, fallen, _) = trained((&set, recipe("gcn", 30)), (rsc, 2), look);
    assert_eq!(report["bound"], 0.2);
    let fallen = fallen.expect("nodes are alike, so the largest pairs are no sample of the rest");
    assert!(fallen.contains("not below 0.2") && fallen.contains("layer"), "{fallen}");
    let mut exact = 0;
    for layer in report["layers"].as_array().unwrap() {
        for refresh in layer["refreshes"].as_array().unwrap() {
            let near = refresh["error"].as_f64().unwrap() < 0.2;
            assert_eq!(refresh["served"], near, "{layer}");
        }
        let epochs = ["exact_epochs", "sampled_epochs"].map(|of| layer[of].as_u64().unwrap());
        assert_eq!(epochs[0] + epochs[1], 30, "{layer}");
        // The first epoch and the last fifth are always exact.
        assert!(epochs[0] >= 7, "{layer}");
        exact += u64::from(layer["fallbacks"] != 0) * epochs[0];
    }
    assert!(exact >= 17, "{report}");
    // With a bound of the user's, what is further off is taken.
    let far = Settings { bound: Some(f64::INFINITY), ..forced(Policy::Rsc, 0.1) };
    let (report, fallen, _) = trained((&set, recipe("gcn", 30)), (Some(far), 2), look);
    assert!(fallen.is_none() && report["bound"].is_null(), "{fallen:?}");
}

#[test]
fn what_was_never_sampled_is_said_to_be_exact() {
    let set = small();
    let look = |trainer: &mut Trainer<'_>| {
        let approx = trainer.approx().unwrap();
        (approx.report(), approx.summary(), approx.is_possible())
    };
    let strict = Settings { error: Some(1e-6), ..forced(Policy::Adaptive, 0.1) };
    let (report, summary, _) = trained((&set, recipe("gcn", 20)), (Some(strict), 1), look);
    assert!(summary.starts_with("nothing was sampled"), "{summary}");
    for layer in report["layers"].as_array().unwrap() {
        assert!(layer["kept"].is_null() && layer["error"].is_null(), "{layer}");
        assert_eq!((&layer["exact_epochs"], &layer["sampled_epochs"]), (&20.into(), &0.into()));
    }
    // Products that took all their time are no less of an epoch than those that were sampled.
    let ceiling = report["ceiling"].as_f64();
    assert!(ceiling.is_none_or(|ceiling| ceiling > 1.0), "{report}");
    // Nor is an epoch whose products take their budget's share of the time as short as one without.
    let within = report["budget_ceiling"].as_f64();
    assert!(within.zip(ceiling).is_none_or(|(within, all)| 1.0 < within && within < all));
    assert_eq!(within.is_some(), ceiling.is_some());
    // A budget that is to follow an error does not stay at all of the work.
    let follows = Settings { error: Some(0.4), ..forced(Policy::Adaptive, 1.0) };
    let (report, _, possible) = trained((&set, recipe("gcn", 20)), (Some(follows), 1), look);
    let sampled = |layer: &serde_json::Value| layer["sampled_epochs"] != 0;
    assert!(possible && report["layers"].as_array().unwrap().iter().any(sampled), "{report}");
}

#[test]
fn networks_without_a_product_to_sample_say_so() {
    let set = small();
    let look = |trainer: &mut Trainer<'_>| {
        let approx = trainer.approx().unwrap();
        (approx.is_on(), approx.is_possible())
    };
    let maxima = Recipe {
        config: Config { aggregate: Aggregate::Max, ..recipe("sage", 2).config },
        ..recipe("sage", 2)
    };
    for recipe in [recipe("gat", 2), recipe("mlp", 2), maxima] {
        let asked = Some(forced(Policy::Adaptive, 0.1));
        assert_eq!(trained((&set, recipe), (asked, 1), look), (false, false));
    }
}

/// Runs that accuracies are means of.
const SEEDS: u64 = 4;

fn mean(of: &[f64]) -> f64 {
    of.iter().sum::<f64>() / of.len() as f64
}

fn variance(of: &[f64]) -> f64 {
    let centre = mean(of);
    of.iter().map(|x| (x - centre).powi(2)).sum::<f64>() / (of.len() - 1) as f64
}
