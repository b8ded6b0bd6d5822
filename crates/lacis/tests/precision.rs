//! Rows in bf16: every model learns as it does in f32, in half the bytes, to the same bits for any
//! number of threads and after a checkpoint.

use lacis::data::Job as Reading;
use lacis::exec::Nobody;
use lacis::kernels::Profile;
use lacis::machine::this_machine;
use lacis::nn::{Config, Jump, MODELS};
use lacis::params::Optimizer;
use lacis::plan::op::{NormKind, Read};
use lacis::plan::plan::Precision;
use lacis::reference::Sgd;
use lacis::train::{Job, Recipe, Trainer};
use lacis::{Dataset, Dense, Features, Split, Threads, data::splits};

use crate::training::sparse_features;

const COMMUNITIES: &str = "sbm:n=300,e=1500,classes=4,features=12,seed=3";

fn open(spec: &str) -> Dataset {
    lacis::open(spec, &Reading::quiet(&Threads::one())).unwrap()
}

fn recipe(model: &str, epochs: usize, precision: Precision) -> Recipe {
    let mut config = Config::new(1, 16, 1);
    if matches!(model, "gat" | "gatv2") {
        config.heads = 2;
    }
    config.hops = matches!(model, "tagcn" | "cheb" | "appnp").then_some(2);
    let optimizer = Optimizer::adam(0.02, 5e-4);
    let mut recipe = Recipe { optimizer, epochs, seed: 7, ..Recipe::new(model, config) };
    recipe.settings.precision = precision;
    recipe
}

fn with_trainer<R>(
    set: &Dataset,
    recipe: Recipe,
    threads: usize,
    use_it: impl FnOnce(Trainer<'_>) -> R,
) -> R {
    let profile = Profile::unmeasured(this_machine());
    let threads = Threads::new(threads).unwrap();
    let split = splits::random(set.labels().unwrap(), splits::Fractions::DEFAULT, 1).unwrap();
    let job = Job { dataset: set, split: &split, threads: &threads, profile: &profile };
    use_it(Trainer::new(&job, recipe).unwrap())
}

fn weights(trainer: &Trainer<'_>) -> Vec<u32> {
    let all = trainer.params().all().iter().flat_map(|param| param.value.rows().flatten());
    all.map(|w| w.to_bits()).collect()
}

/// Losses of all epochs, and the weights after them.
fn curve(set: &Dataset, recipe: Recipe, threads: usize) -> (Vec<f64>, Vec<u32>) {
    with_trainer(set, recipe, threads, |mut trainer| {
        let epochs = trainer.recipe().epochs;
        let losses = (0..epochs).map(|_| trainer.step(&mut Nobody).unwrap().loss).collect();
        (losses, weights(&trainer))
    })
}

/// Eight bits of a number: a few of a thousand off in each product.
fn assert_near(wide: &[f64], narrow: &[f64], what: &str) {
    assert_eq!(wide.len(), narrow.len(), "{what}");
    for (epoch, (a, b)) in wide.iter().zip(narrow).enumerate() {
        assert!((a - b).abs() <= 0.02 * (0.5 + a.abs()), "{what}, epoch {epoch}: {a} and {b}");
    }
    assert!(wide != narrow, "{what}: nothing was rounded");
}

fn words(dense: &Dataset) -> Dataset {
    let Some(Features::Dense(x)) = dense.features() else { unreachable!("the generator's are") };
    let few: Dense = Dense::from_fn(x.n_rows(), x.n_cols(), |i, j| f64::from(x.row(i)[j].max(0.0)));
    let set = Dataset::new("words", dense.graph().clone());
    let set = set.with_features(sparse_features(&few)).unwrap();
    set.with_labels(dense.labels().unwrap().clone()).unwrap()
}

#[test]
fn every_model_learns_as_in_f32() {
    let dense = open(COMMUNITIES);
    let sparse = words(&dense);
    for model in MODELS {
        for (set, kind) in [(&dense, "dense"), (&sparse, "sparse")] {
            let [wide, narrow] = [Precision::F32, Precision::Bf16]
                .map(|precision| curve(set, recipe(model.name, 8, precision), 2).0);
            assert_near(&wide, &narrow, &format!("{} on {kind} features", model.name));
        }
    }
}

#[test]
fn norms_residuals_and_graphs_learn_too() {
    let set = open(COMMUNITIES);
    for (norm, model) in [(NormKind::Batch, "sage"), (NormKind::Layer, "gcn")] {
        let [wide, narrow] = [Precision::F32, Precision::Bf16].map(|precision| {
            let mut own = recipe(model, 8, precision);
            (own.config.layers, own.config.norm) = (3, Some(norm));
            (own.config.residual, own.config.dropout) = (true, 0.2);
            own.config.jumping = Some(Jump::Concat);
            curve(&set, own, 2).0
        });
        assert_near(&wide, &narrow, model);
    }
    let [wide, narrow] = [Precision::F32, Precision::Bf16].map(|precision| {
        let mut own = recipe("sage", 8, precision);
        own.config.normalize = true;
        curve(&set, own, 2).0
    });
    assert_near(&wide, &narrow, "rows of length one");
    let graphs = open("motifs:graphs=120,seed=4");
    for read in [Read::Sum, Read::Mean, Read::Max] {
        let [wide, narrow] = [Precision::F32, Precision::Bf16].map(|precision| {
            let mut own = recipe("gin", 3, precision);
            (own.config.mlp_layers, own.config.readout) = (2, Some(read));
            own.config.norm = Some(NormKind::Batch);
            // Adam's first steps go by signs alone, which rounding turns where slopes are near 0.
            own.optimizer = Optimizer::Sgd(Sgd { rate: 0.002, momentum: 0.0, weight_decay: 0.0 });
            curve(&graphs, own, 2).0
        });
        assert_near(&wide, &narrow, &format!("{read:?} of graphs"));
    }
}

#[test]
fn threads_and_batches_change_no_bit() {
    let set = open(COMMUNITIES);
    for (model, sample) in [("gcn", None), ("gat", None), ("sage", Some("neighbor:5,5"))] {
        let own = || {
            let mut own = recipe(model, 4, Precision::Bf16);
            own.config.dropout = 0.3;
            own.sample = sample.map(|sample| sample.parse().unwrap());
            own.batch_size = sample.map(|_| 64);
            own
        };
        let one = curve(&set, own(), 1);
        for threads in [2, 7] {
            assert_eq!(one, curve(&set, own(), threads), "{model}, {threads} threads");
        }
    }
}

#[test]
fn a_run_goes_on_from_a_checkpoint_to_the_same_bits() {
    let set = open(COMMUNITIES);
    let own = || recipe("gat", 6, Precision::Bf16);
    let whole = curve(&set, own(), 2).1;
    let half_way = with_trainer(&set, own(), 2, |mut trainer| {
        for _ in 0..3 {
            trainer.step(&mut Nobody).unwrap();
        }
        trainer.checkpoint().unwrap()
    });
    with_trainer(&set, own(), 1, |mut trainer| {
        trainer.restore(half_way.clone()).unwrap();
        for _ in 0..3 {
            trainer.step(&mut Nobody).unwrap();
        }
        assert_eq!(weights(&trainer), whole);
    });
    // Another precision is another plan.
    with_trainer(&set, recipe("gat", 6, Precision::F32), 1, |mut trainer| {
        let error = trainer.restore(half_way).unwrap_err().to_string();
        assert!(error.contains("plan"), "{error}");
    });
}

#[test]
fn rows_take_half_the_bytes_and_results_are_near() {
    let set = open("sbm:n=4000,e=20000,classes=4,features=32,seed=3");
    let of = |precision| {
        let mut own = recipe("gcn", 5, precision);
        own.config.hidden = 64;
        with_trainer(&set, own, 2, |mut trainer| {
            for _ in 0..5 {
                trainer.step(&mut Nobody).unwrap();
            }
            let (slots, predicted) = (trainer.slot_bytes(), trainer.needs().training.slots);
            assert!(slots <= predicted && predicted < slots + (1 << 20), "{slots}, {predicted}");
            (slots, trainer.logits(|z| z.data().to_vec()).unwrap())
        })
    };
    let ((wide, exact), (narrow, rounded)) = (of(Precision::F32), of(Precision::Bf16));
    assert!(narrow * 10 < wide * 7, "{narrow} of {wide} bytes");
    let most = exact.iter().fold(0.0_f32, |most, z| most.max(z.abs()));
    let off = exact.iter().zip(&rounded).fold(0.0_f32, |off, (a, b)| off.max((a - b).abs()));
    assert!(off > 0.0 && off < 0.05 * most, "off by {off} of {most}");
}

#[test]
fn a_plan_of_another_precision_and_sampled_products_are_refused() {
    let set = open(COMMUNITIES);
    let plan = with_trainer(&set, recipe("gcn", 2, Precision::F32), 1, |trainer| {
        trainer.chosen().plan.clone()
    });
    let (profile, threads) = (Profile::unmeasured(this_machine()), Threads::one());
    let split = Split::default();
    let job = Job { dataset: &set, split: &split, threads: &threads, profile: &profile };
    let refused = Trainer::with_plan(&job, recipe("gcn", 2, Precision::Bf16), plan);
    let error = refused.err().unwrap().to_string();
    assert!(error.contains("--precision f32"), "{error}");
    with_trainer(&set, recipe("gcn", 2, Precision::Bf16), 1, |mut trainer| {
        let error = trainer
            .approximate(lacis::approx::Settings::new(lacis::approx::Policy::Adaptive, 0.1))
            .unwrap_err();
        assert!(error.to_string().contains("--precision"), "{error}");
    });
}
