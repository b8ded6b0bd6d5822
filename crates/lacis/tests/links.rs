//! Predicting links: it learns, gradients are slopes, threads and interruptions change no bit.

use std::sync::Arc;

use lacis::data::Job as Reading;
use lacis::exec::Nobody;
use lacis::kernels::Profile;
use lacis::link::Links;
use lacis::machine::this_machine;
use lacis::metrics::Metric;
use lacis::nn::{Config, Decoder};
use lacis::train::{Job, Recipe, Trainer};
use lacis::{Dataset, Split, Threads};

/// Groups that are joined among themselves, with features that tell them apart, and its links.
fn linked(threads: &Threads) -> (Dataset, Arc<Links>) {
    let spec = "sbm:n=300,e=2400,classes=6,features=16,seed=5";
    let set = lacis::open(spec, &Reading::quiet(threads)).unwrap();
    let links = Links::new(set.graph(), 1, &Reading::quiet(threads)).unwrap();
    let features = set.features().unwrap().clone();
    let message = Dataset::new("groups", links.message().clone()).with_features(features).unwrap();
    (message, Arc::new(links))
}

fn recipe(model: &str, decoder: Decoder, links: &Arc<Links>) -> Recipe {
    let mut config = Config::new(1, 16, 8);
    if matches!(model, "gat" | "gatv2") {
        config.heads = 2;
    }
    config.decoder = Some(decoder);
    let mut recipe = Recipe::new(model, config);
    recipe.links = Some(links.clone());
    recipe.epochs = 60;
    recipe
}

/// Losses, the bits of the weights, and the scores of training, validation and test.
fn trained(recipe: Recipe, set: &Dataset, threads: &Threads) -> (Vec<f64>, Vec<u32>, [f64; 3]) {
    let (profile, split) = (Profile::unmeasured(this_machine()), Split::default());
    let job = Job { dataset: set, split: &split, threads, profile: &profile };
    finished(Trainer::new(&job, recipe).unwrap())
}

fn finished(mut trainer: Trainer<'_>) -> (Vec<f64>, Vec<u32>, [f64; 3]) {
    let mut losses = Vec::new();
    while trainer.epoch() < trainer.recipe().epochs {
        losses.push(trainer.step(&mut Nobody).unwrap().loss);
    }
    let weights = trainer.params().all().iter().flat_map(|param| param.value.rows().flatten());
    let weights = weights.map(|w| w.to_bits()).collect();
    let links = trainer.recipe().links.clone().unwrap();
    let metric: Metric = "roc-auc".parse().unwrap();
    let scores = trainer.logits(|scores| links.score(metric, scores)).unwrap().unwrap();
    (losses, weights, scores)
}

#[test]
fn links_are_learned_by_either_decoder() {
    let threads = Threads::new(2).unwrap();
    let (set, links) = linked(&threads);
    for (model, decoder) in [
        ("gcn", Decoder::Dot),
        ("gcn", Decoder::Mlp),
        ("sage", Decoder::Dot),
        ("gat", Decoder::Dot),
    ] {
        let (losses, _, [train, val, test]) =
            trained(recipe(model, decoder, &links), &set, &threads);
        assert!(losses[59] < 0.9 * losses[0], "{model} {decoder:?}: {losses:?}");
        for auc in [train, val, test] {
            assert!(auc > 0.7, "{model} {decoder:?}: {train} {val} {test}");
        }
    }
}

#[test]
fn gradients_of_decoders_are_slopes() {
    let threads = Threads::one();
    let (set, links) = linked(&threads);
    let (profile, split) = (Profile::unmeasured(this_machine()), Split::default());
    let job = Job { dataset: &set, split: &split, threads: &threads, profile: &profile };
    for decoder in [Decoder::Dot, Decoder::Mlp] {
        let recipe = recipe("gcn", decoder, &links);
        let loss_at = |change: Option<(usize, usize, f32)>| {
            let mut trainer = Trainer::new(&job, recipe.clone()).unwrap();
            trainer.params_mut().keep_gradients();
            if let Some((at, element, by)) = change {
                trainer.params_mut().all_mut()[at].value.data_mut()[element] += by;
            }
            let loss = trainer.step(&mut Nobody).unwrap().loss;
            (loss, trainer.params().gradients().unwrap().to_vec())
        };
        let (_, grads) = loss_at(None);
        for (at, grad) in grads.iter().enumerate() {
            for element in (0..grad.len()).step_by((grad.len() / 3).max(1)) {
                let h = 5e-3;
                let [above, below] = [h, -h].map(|by| loss_at(Some((at, element, by))).0);
                let slope = (above - below) / (2.0 * f64::from(h));
                let found = f64::from(grad[element]);
                let close = (slope - found).abs() <= 3e-3 + 0.03 * slope.abs();
                assert!(close, "{decoder:?} {at}[{element}]: slope {slope}, gradient {found}");
            }
        }
    }
}

#[test]
fn neither_threads_nor_interruptions_change_a_bit() {
    let one = Threads::one();
    let (set, links) = linked(&one);
    let mut recipe = recipe("gcn", Decoder::Mlp, &links);
    (recipe.epochs, recipe.config.dropout) = (8, 0.3);
    let expected = trained(recipe.clone(), &set, &one);
    for count in [2, 7] {
        let threads = Threads::new(count).unwrap();
        assert_eq!(trained(recipe.clone(), &set, &threads), expected, "{count} threads");
    }
    let (profile, split) = (Profile::unmeasured(this_machine()), Split::default());
    let job = Job { dataset: &set, split: &split, threads: &one, profile: &profile };
    let mut first = Trainer::new(&job, recipe.clone()).unwrap();
    for _ in 0..3 {
        first.step(&mut Nobody).unwrap();
    }
    let mut second = Trainer::new(&job, recipe).unwrap();
    second.restore(first.checkpoint().unwrap()).unwrap();
    let (losses, weights, scores) = finished(second);
    assert_eq!((&losses[..], weights, scores), (&expected.0[3..], expected.1, expected.2));
}

#[test]
fn pairs_are_scored_in_the_order_in_which_they_are_asked_for() {
    let threads = Threads::new(2).unwrap();
    let (set, links) = linked(&threads);
    let (profile, split) = (Profile::unmeasured(this_machine()), Split::default());
    let job = Job { dataset: &set, split: &split, threads: &threads, profile: &profile };
    let mut trainer = Trainer::new(&job, recipe("gcn", Decoder::Dot, &links)).unwrap();
    let of = |trainer: &mut Trainer<'_>, pairs: &[[u32; 2]]| -> Vec<f32> {
        trainer.set_pairs(pairs).unwrap();
        trainer.logits(|scores| (0..scores.n_rows()).map(|i| scores.row(i)[0]).collect()).unwrap()
    };
    let all = of(&mut trainer, &[[3, 7], [299, 0], [7, 3], [5, 5]]);
    assert_eq!(all[0], all[2]);
    assert_eq!(of(&mut trainer, &[[5, 5], [0, 299], [3, 7]]), [all[3], all[1], all[0]]);
    assert!(of(&mut trainer, &[]).is_empty());
    assert!(trainer.set_pairs(&[[0, 300]]).is_err());
}

#[test]
fn sampled_neighbourhoods_learn_links_too() {
    let two = Threads::new(2).unwrap();
    let (set, links) = linked(&two);
    for (model, decoder) in [("sage", Decoder::Dot), ("gcn", Decoder::Mlp)] {
        let own = || Recipe {
            sample: Some("neighbor:8,8".parse().unwrap()),
            batch_size: Some(100),
            epochs: 12,
            ..recipe(model, decoder, &links)
        };
        let (losses, weights, [_, val, test]) = trained(own(), &set, &two);
        assert!(losses[11] < 0.95 * losses[0], "{model}: {losses:?}");
        assert!(val > 0.7 && test > 0.7, "{model}: {val} {test}");
        for threads in [1, 7] {
            let again = trained(own(), &set, &Threads::new(threads).unwrap());
            assert_eq!((&again.0, &again.1), (&losses, &weights), "{model}, {threads} threads");
        }
    }
    let walks =
        Recipe { sample: Some("saint:2".parse().unwrap()), ..recipe("gcn", Decoder::Dot, &links) };
    let (profile, split) = (Profile::unmeasured(this_machine()), Split::default());
    let job = Job { dataset: &set, split: &split, threads: &two, profile: &profile };
    let error = Trainer::new(&job, walks).err().unwrap().to_string();
    assert!(error.contains("neighbor"), "{error}");
}

/// All neighbours of all ends in one batch: the whole graph, edges in another order.
#[test]
fn everything_drawn_is_the_whole_graph() {
    let threads = Threads::new(2).unwrap();
    let (set, links) = linked(&threads);
    let whole = Recipe { epochs: 3, ..recipe("sage", Decoder::Dot, &links) };
    let drawn = Recipe {
        sample: Some("neighbor:-1,-1".parse().unwrap()),
        batch_size: Some(links.counts()[0]),
        ..whole.clone()
    };
    let (a, b) = (trained(whole, &set, &threads).0, trained(drawn, &set, &threads).0);
    for (a, b) in a.iter().zip(&b) {
        assert!((a - b).abs() < 2e-4, "{a} and {b}");
    }
}

/// Without learning, scores are those of the trainer, and a small budget changes none of them.
#[test]
fn a_predictor_scores_pairs_too() {
    let threads = Threads::new(2).unwrap();
    let (set, links) = linked(&threads);
    let (profile, split) = (Profile::unmeasured(this_machine()), Split::default());
    let job = Job { dataset: &set, split: &split, threads: &threads, profile: &profile };
    for decoder in [Decoder::Dot, Decoder::Mlp] {
        let recipe = recipe("sage", decoder, &links);
        let mut trainer = Trainer::new(&job, recipe.clone()).unwrap();
        trainer.step(&mut Nobody).unwrap();
        let expected: Vec<f32> = trainer
            .logits(|scores| (0..scores.n_rows()).map(|i| scores.row(i)[0]).collect())
            .unwrap();
        let on = lacis::infer::On { dataset: &set, threads: &threads, profile: &profile };
        let mut predictor = lacis::infer::Predictor::new(on, recipe, 8).unwrap();
        let (network, tensors) = (predictor.model().clone(), trainer.model_tensors().unwrap());
        let params = predictor.params_mut();
        lacis::train::state::load_model(&network, params, tensors).unwrap();
        for budget in [None, Some(5 << 20)] {
            let (found, _) = predictor.scores(links.judged(), budget).unwrap();
            assert_eq!(found.len(), expected.len());
            for (a, b) in found.iter().zip(&expected) {
                assert!((a - b).abs() < 1e-4 * (1.0 + b.abs()), "{decoder:?}: {a} and {b}");
            }
        }
        let (rows, _) = predictor.run(lacis::infer::What::Embeddings, None).unwrap();
        assert_eq!((rows.n_rows(), rows.n_cols()), (300, 8));
        let error = predictor.run(lacis::infer::What::Logits, None).unwrap_err().to_string();
        assert!(error.contains("embeddings"), "{error}");
        assert!(predictor.scores(links.judged(), Some(1000)).is_err(), "too little memory");
        assert!(predictor.scores(&[], None).unwrap().0.is_empty());
    }
}
