//! Results of the whole graph at once and layer by layer, some rows at a time.

use lacis::infer::{On, Predictor, Way, What};
use lacis::kernels::Profile;
use lacis::machine::this_machine;
use lacis::nn::{Config, Jump, MODELS};
use lacis::plan::op::NormKind;
use lacis::train::Recipe;
use lacis::{Dataset, Dense, Features, Threads, data::Job};

/// A directed graph with weights left out, loops and hubs; features dense or mostly zeros.
fn set(sparse: bool) -> Dataset {
    let threads = Threads::one();
    let set = lacis::open("rmat:n=512,e=3000,seed=4", &Job::quiet(&threads)).unwrap();
    let x = Dense::from_fn(512, 24, |i, j| match (i * 7 + j * 5) % 6 {
        0 => ((i * 31 + j * 17) % 19) as f64 / 19.0 - 0.4,
        _ if sparse => 0.0,
        _ => ((i * 13 + j * 29) % 23) as f64 / 23.0 - 0.5,
    });
    let features = match sparse {
        true => crate::training::sparse_features(&x),
        false => Features::Dense(x),
    };
    set.with_features(features).unwrap()
}

/// The largest difference, measured by the largest number.
fn far(a: &Dense, b: &Dense) -> f32 {
    assert_eq!((a.n_rows(), a.n_cols()), (b.n_rows(), b.n_cols()));
    let all = a.rows().flatten().zip(b.rows().flatten());
    let far = all.map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
    far / a.rows().flatten().fold(1.0_f32, |most, x| most.max(x.abs()))
}

/// Budgets from what the whole graph takes down to what is refused: all give the same results.
fn same_under_any_budget(predictor: &Predictor<'_>, what: What, name: &str) {
    let (whole, way) = predictor.run(what, None).unwrap();
    assert!(matches!(way, Way::Whole(_)));
    let (mut most, mut budget) = (0, 5 << 20);
    let refused = loop {
        match predictor.layer_by_layer(what, budget) {
            Ok((results, blocks)) => {
                let far = far(&whole, &results);
                assert!(far < 1e-5, "{name}, {blocks} blocks: {far}");
                most = most.max(blocks);
            }
            Err(error) => break error.to_string(),
        }
        budget -= 16 << 10;
    };
    assert!(refused.contains("memory limit") && refused.contains("layer by layer"), "{refused}");
    assert!(most > 2, "{name}: never more than {most} blocks");
}

#[test]
fn layer_by_layer_gives_the_results_of_the_whole_graph() {
    let threads = Threads::new(2).unwrap();
    let profile = Profile::unmeasured(this_machine());
    for sparse in [false, true] {
        let set = set(sparse);
        let on = On { dataset: &set, threads: &threads, profile: &profile };
        for kind in MODELS {
            let mut config = Config::new(24, 16, 5);
            config.dropout = 0.5;
            config.layers = 3;
            let predictor = Predictor::new(on, Recipe::new(kind.name, config), 5).unwrap();
            same_under_any_budget(&predictor, What::Logits, kind.name);
        }
    }
}

#[test]
fn jumps_residuals_norms_and_embeddings_go_layer_by_layer_too() {
    let threads = Threads::one();
    let profile = Profile::unmeasured(this_machine());
    let set = set(false);
    let on = On { dataset: &set, threads: &threads, profile: &profile };
    for (model, norm) in
        [("gcn", NormKind::Batch), ("sage", NormKind::Layer), ("gin", NormKind::Layer)]
    {
        let mut config = Config::new(24, 24, 4);
        (config.residual, config.norm) = (true, Some(norm));
        config.jumping = (model == "sage").then_some(Jump::Max);
        (config.layers, config.learn_eps) = (3, model == "gin");
        config.mlp_layers = if model == "gin" { 2 } else { 1 };
        let predictor = Predictor::new(on, Recipe::new(model, config), 4).unwrap();
        same_under_any_budget(&predictor, What::Logits, model);
        same_under_any_budget(&predictor, What::Embeddings, model);
    }
    let sgc = Predictor::new(on, Recipe::new("sgc", Config::new(24, 24, 4)), 4).unwrap();
    let error = sgc.run(What::Embeddings, None).unwrap_err().to_string();
    assert!(error.contains("no hidden layer"), "{error}");
}

#[test]
fn errors_go_between_threads_and_into_boxes() {
    fn travels<T: std::error::Error + Send + Sync + 'static>() {}
    travels::<lacis::Error>();
    let boxed: Box<dyn std::error::Error + Send + Sync> = lacis::Error::argument("a", "b").into();
    assert_eq!(boxed.to_string(), "a: b");
}
