//! Training on batches: sampled neighbourhoods, random walks, small graphs. With everything drawn
//! they are the whole graph; threads and interruptions change no bit.

use lacis::data::Job as Reading;
use lacis::exec::{Nobody, Observe};
use lacis::kernels::Profile;
use lacis::machine::this_machine;
use lacis::metrics::{Metric, ScoreRow, Scored, Task};
use lacis::nn::{Config, Jump, MODELS};
use lacis::params::Optimizer;
use lacis::plan::op::{NormKind, Read};
use lacis::reference::Sgd;
use lacis::schedule::Decay;
use lacis::train::{Job, Recipe, Trainer};
use lacis::{Dataset, Dense, Features, Labels, Split, Threads, data::splits};

use crate::training::sparse_features;

const COMMUNITIES: &str = "sbm:n=300,e=1500,classes=4,features=12,seed=3";
const GRAPHS: &str = "motifs:graphs=240,seed=4";

fn open(spec: &str) -> Dataset {
    lacis::open(spec, &Reading::quiet(&Threads::one())).unwrap()
}

fn recipe(model: &str, epochs: usize) -> Recipe {
    let mut config = Config::new(1, 8, 1);
    if matches!(model, "gat" | "gatv2") {
        config.heads = 2;
    }
    config.hops = matches!(model, "tagcn" | "cheb" | "appnp").then_some(2);
    let optimizer = Optimizer::adam(0.02, 5e-4);
    Recipe { optimizer, epochs, seed: 7, ..Recipe::new(model, config) }
}

fn sampled(model: &str, epochs: usize, sample: &str, batch_size: usize) -> Recipe {
    let sample = Some(sample.parse().unwrap());
    Recipe { sample, batch_size: Some(batch_size), ..recipe(model, epochs) }
}

/// A recipe of graphs: 3 layers, norms, dropout.
fn of_graphs(epochs: usize) -> Recipe {
    let mut config = Config::new(1, 16, 1);
    (config.layers, config.mlp_layers, config.dropout) = (3, 2, 0.1);
    (config.norm, config.readout) = (Some(NormKind::Batch), Some(Read::Sum));
    let optimizer = Optimizer::adam(0.01, 0.0);
    Recipe { optimizer, epochs, ..Recipe::new("gin", config) }
}

fn random_split(set: &Dataset) -> Split {
    splits::random(set.labels().unwrap(), splits::Fractions::DEFAULT, 1).unwrap()
}

/// Runs a training with a split and hands it to a function.
fn with_trainer<R>(
    (set, split): (&Dataset, &Split),
    recipe: Recipe,
    threads: usize,
    use_it: impl FnOnce(Trainer<'_>) -> R,
) -> R {
    let profile = Profile::unmeasured(this_machine());
    let threads = Threads::new(threads).unwrap();
    let job = Job { dataset: set, split, threads: &threads, profile: &profile };
    use_it(Trainer::new(&job, recipe).unwrap())
}

fn weights(trainer: &Trainer<'_>) -> Vec<u32> {
    let all = trainer.params().all().iter().flat_map(|param| param.value.rows().flatten());
    all.map(|w| w.to_bits()).collect()
}

/// Losses of all epochs, and the weights after them.
fn curve(data: (&Dataset, &Split), recipe: Recipe, threads: usize) -> (Vec<f64>, Vec<u32>) {
    with_trainer(data, recipe, threads, |mut trainer| {
        let epochs = trainer.recipe().epochs;
        let losses = (0..epochs).map(|_| trainer.step(&mut Nobody).unwrap().loss).collect();
        (losses, weights(&trainer))
    })
}

fn assert_close(left: &[f64], right: &[f64], what: &str) {
    for (epoch, (a, b)) in left.iter().zip(right).enumerate() {
        assert!((a - b).abs() <= 2e-4 * (1.0 + a.abs()), "{what}, epoch {epoch}: {a} and {b}");
    }
}

/// All nodes as one batch, all their edges: the whole graph in another order.
#[test]
fn everything_drawn_is_the_whole_graph() {
    let set = open(COMMUNITIES);
    let all = splits::all(set.labels().unwrap()).unwrap();
    for model in MODELS.iter().filter(|model| model.name != "mlp") {
        let whole = curve((&set, &all), recipe(model.name, 3), 1).0;
        let drawn = sampled(model.name, 3, "neighbor:-1,-1", 300);
        assert_close(&whole, &curve((&set, &all), drawn, 2).0, model.name);
    }
}

/// Bags of words are sliced too.
#[test]
fn sparse_features_are_drawn_alike() {
    let dense = open(COMMUNITIES);
    let Some(Features::Dense(x)) = dense.features() else { unreachable!("the generator's are") };
    let few: Dense = Dense::from_fn(300, 12, |i, j| f64::from(x.row(i)[j].max(0.0)));
    let labels = dense.labels().unwrap().clone();
    let set = |features| {
        let set = Dataset::new("words", dense.graph().clone()).with_features(features).unwrap();
        set.with_labels(labels.clone()).unwrap()
    };
    let (sparse, full) = (set(sparse_features(&few)), set(Features::Dense(few.clone())));
    let split = random_split(&full);
    for model in ["gcn", "sage", "gat"] {
        let recipe = sampled(model, 2, "neighbor:4,4", 40);
        let expected = curve((&full, &split), recipe.clone(), 1).0;
        assert_close(&expected, &curve((&sparse, &split), recipe, 1).0, model);
    }
}

/// With all edges of some nodes, what does not depend on degrees of the farthest is exact too.
#[test]
fn blocks_of_some_nodes_give_their_exact_loss() {
    let set = open(COMMUNITIES);
    let some = Split { train: (0..300).step_by(7).collect(), ..Split::default() };
    for model in ["sage", "gin", "gat", "gatv2"] {
        let whole = curve((&set, &some), recipe(model, 3), 1).0;
        let drawn = sampled(model, 3, "neighbor:-1,-1", 100);
        assert_close(&whole, &curve((&set, &some), drawn, 1).0, model);
    }
}

/// Every way to draw, with dropout.
fn ways() -> Vec<(Dataset, Recipe)> {
    let with_dropout = |mut recipe: Recipe| {
        recipe.config.dropout = 0.3;
        recipe
    };
    vec![
        (open(COMMUNITIES), with_dropout(sampled("gcn", 2, "neighbor:4,3", 50))),
        (open(COMMUNITIES), with_dropout(sampled("gat", 2, "neighbor:4", 64))),
        (open(COMMUNITIES), with_dropout(sampled("sage", 2, "saint:3", 40))),
        (open(GRAPHS), of_graphs(2)),
    ]
}

#[test]
fn threads_change_no_bit() {
    for (set, recipe) in ways() {
        let split = random_split(&set);
        let expected = curve((&set, &split), recipe.clone(), 1);
        for threads in [2, 7] {
            assert_eq!(curve((&set, &split), recipe.clone(), threads), expected);
        }
    }
}

/// Stops after so many batches.
struct Enough(usize);

impl Observe for Enough {
    fn step(&mut self, _: usize, _: f64) {}

    fn goes_on(&mut self) -> bool {
        self.0 -= 1;
        self.0 > 0
    }
}

/// An epoch that is left between two batches goes on in another process to the same bits.
#[test]
fn interrupted_epochs_go_on_to_the_same_bits() {
    for (set, recipe) in ways() {
        let split = random_split(&set);
        let expected = curve((&set, &split), recipe.clone(), 2);
        let state = with_trainer((&set, &split), recipe.clone(), 2, |mut trainer| {
            assert!(trainer.n_batches() > 2);
            let first = trainer.step(&mut Nobody).unwrap();
            assert!(first.complete && first.loss == expected.0[0]);
            let second = trainer.step(&mut Enough(2)).unwrap();
            assert!(!second.complete && trainer.epoch() == 1);
            trainer.checkpoint().unwrap()
        });
        with_trainer((&set, &split), recipe, 1, |mut trainer| {
            trainer.restore(state).unwrap();
            let second = trainer.step(&mut Nobody).unwrap();
            assert!(second.complete);
            assert_eq!((second.loss, weights(&trainer)), (expected.0[1], expected.1));
        });
    }
}

/// The mean loss of random-walk batches is about that of the whole graph, at the same weights.
#[test]
fn random_walks_are_corrected_for() {
    let set = open(COMMUNITIES);
    let split = random_split(&set);
    let still = |recipe: Recipe| Recipe { optimizer: Optimizer::adam(0.0, 0.0), ..recipe };
    for model in ["gcn", "sage", "sgc"] {
        let whole = curve((&set, &split), still(recipe(model, 1)), 1).0[0];
        let drawn = still(sampled(model, 30, "saint:2", 60));
        let losses = curve((&set, &split), drawn, 1).0;
        let mean = losses.iter().sum::<f64>() / losses.len() as f64;
        assert!((mean / whole - 1.0).abs() < 0.1, "{model}: {whole} and {mean}");
    }
}

/// A network that reads graphs out learns which motif is hidden in them.
#[test]
fn graphs_are_classified() {
    let set = open(GRAPHS);
    let (labels, split) = (set.labels().unwrap(), set.splits()[0].clone());
    let metric = Metric::default_for(Task::Graph, Some(labels));
    let found = with_trainer((&set, &split), of_graphs(30), 2, |mut trainer| {
        (0..30).for_each(|_| _ = trainer.step(&mut Nobody).unwrap());
        let threads = Threads::one();
        let score = trainer.logits(|scores| {
            assert_eq!(scores.n_rows(), set.n_items());
            let scored = Scored::new(scores, labels, &split.test, ScoreRow::OfItem).unwrap();
            metric.of_items(&scored, &threads).unwrap()
        });
        score.unwrap()
    });
    let chance = 1.0 / labels.width() as f64;
    assert!(found > 2.0 * chance, "{found}, by chance {chance}");
}

/// Numbers of graphs are learned too: how many nodes each has, which a sum can say.
#[test]
fn numbers_of_graphs_are_learned() {
    let made = open(GRAPHS);
    let graphs = made.collection().unwrap().clone();
    let sizes: Dense =
        Dense::from_fn(graphs.n_graphs(), 1, |g, _| graphs.nodes(g).len() as f64 / 20.0);
    let mean = sizes.data().iter().map(|x| f64::from(*x)).sum::<f64>() / sizes.n_rows() as f64;
    let spread = sizes.data().iter().map(|x| (f64::from(*x) - mean).powi(2)).sum::<f64>();
    let set = Dataset::new("sizes", made.graph().clone())
        .with_features(made.features().unwrap().clone())
        .and_then(|set| set.with_collection(graphs))
        .and_then(|set| set.with_labels(Labels::Targets(sizes)))
        .unwrap();
    let split = random_split(&set);
    let mut recipe = Recipe { batch_size: Some(24), ..recipe("gin", 40) };
    recipe.config.readout = Some(Read::Sum);
    let losses = curve((&set, &split), recipe, 1).0;
    let constant = spread / set.n_items() as f64;
    assert!(
        losses[39] < constant / 2.0,
        "{} after 40 epochs, a constant's is {constant}",
        losses[39]
    );
}

/// Every kind of network has a readout, each way of reading.
#[test]
fn every_model_reads_graphs_out() {
    let set = open("motifs:graphs=40,seed=1");
    let split = random_split(&set);
    for model in MODELS {
        for read in [Read::Sum, Read::Mean, Read::Max] {
            let mut recipe = Recipe { batch_size: Some(10), ..recipe(model.name, 15) };
            recipe.config.readout = Some(read);
            let stacked = !matches!(model.name, "sgc" | "gcn2");
            let jumps = [(Read::Mean, Jump::Concat), (Read::Max, Jump::Max)];
            let jump = jumps.iter().find(|(own, _)| *own == read && stacked);
            recipe.config.jumping = jump.map(|(_, jump)| *jump);
            let losses = curve((&set, &split), recipe, 1).0;
            let fell = losses.last() < losses.first();
            assert!(fell, "{} {read:?}: {losses:?}", model.name);
        }
    }
}

#[test]
fn rates_follow_their_schedule_and_go_on() {
    let set = open(COMMUNITIES);
    let split = random_split(&set);
    let decay = Decay::Plateau { patience: 1, factor: 0.5 };
    let recipe = Recipe { warm_up: 2, decay, ..recipe("gcn", 10) };
    let state = with_trainer((&set, &split), recipe.clone(), 1, |mut trainer| {
        let mut rates = Vec::new();
        for value in [0.1, 0.2, 0.5, 0.4, 0.6] {
            rates.push(trainer.rate());
            trainer.step(&mut Nobody).unwrap();
            assert_eq!(trainer.params().optimizer().rate(), *rates.last().unwrap());
            trainer.judged(value);
        }
        assert_eq!(rates, [0.01, 0.02, 0.02, 0.02, 0.01]);
        trainer.checkpoint().unwrap()
    });
    with_trainer((&set, &split), recipe, 1, |mut trainer| {
        trainer.restore(state).unwrap();
        assert_eq!(trainer.rate(), 0.01);
    });
}

/// A step of plain descent with rate 1 is as long as the gradient, or as it may be.
#[test]
fn long_gradients_are_shortened() {
    let set = open(COMMUNITIES);
    let split = random_split(&set);
    let rule = Sgd { rate: 1.0, momentum: 0.0, weight_decay: 0.0 };
    let moved = |clip: Option<f64>| {
        let recipe = Recipe { clip, optimizer: Optimizer::Sgd(rule), ..recipe("gcn", 1) };
        with_trainer((&set, &split), recipe, 1, |mut trainer| {
            let numbers = |trainer: &Trainer<'_>| {
                let all = trainer.params().all().iter();
                all.flat_map(|param| param.value.data().to_vec()).collect::<Vec<f32>>()
            };
            let before = numbers(&trainer);
            trainer.step(&mut Nobody).unwrap();
            let off = before.iter().zip(numbers(&trainer)).map(|(a, b)| f64::from(a - b).powi(2));
            off.sum::<f64>().sqrt()
        })
    };
    let free = moved(None);
    assert!(free > 0.02, "{free}");
    assert!((moved(Some(0.01)) - 0.01).abs() < 1e-4);
    assert!((moved(Some(free * 2.0)) - free).abs() < 1e-6);
}

#[test]
fn what_makes_no_sense_is_told() {
    let profile = Profile::unmeasured(this_machine());
    let threads = Threads::one();
    let error = |set: &Dataset, recipe: Recipe| {
        let split = random_split(set);
        let job = Job { dataset: set, split: &split, threads: &threads, profile: &profile };
        Trainer::new(&job, recipe).err().unwrap().to_string()
    };
    let nodes = open(COMMUNITIES);
    let too_many = error(&nodes, sampled("gcn", 1, "neighbor:3,3,3", 10));
    assert!(too_many.contains("the network gathers 2 times"), "{too_many}");
    let alone = error(&nodes, sampled("mlp", 1, "neighbor:3", 10));
    assert!(alone.contains("looks at no neighbours"), "{alone}");
    let empty = error(&nodes, sampled("gcn", 1, "saint:2", 0));
    assert!(empty.contains("0 is too few"), "{empty}");
    let both = error(&open("motifs:graphs=40,seed=1"), sampled("gin", 1, "saint:2", 10));
    assert!(both.contains("graphs are batches already"), "{both}");
}
