//! Networks on small graphs: gradients are slopes, savings and candidates change nothing, results
//! do not depend on threads, and a run goes on from a checkpoint to the same bits.

use std::sync::Arc;

use lacis::data::Job as Reading;
use lacis::exec::{Context, Executor, Nobody, Targets};
use lacis::kernels::Profile;
use lacis::kernels::loss::Loss;
use lacis::levels::{Asked, Levels};
use lacis::machine::this_machine;
use lacis::nn::{Config, Init, Jump, MODELS, options};
use lacis::params::Optimizer;
use lacis::plan::choose::{RuleSet, SAVINGS, Settings, with_candidate};
use lacis::plan::op::NormKind;
use lacis::plan::plan::Phase;
use lacis::train::{Job, Recipe, Trainer};
use lacis::{
    Buffer, Csr, CsrParts, Dataset, Dense, Features, Graph, Labels, RowPtr, Split, Threads,
};

/// Features that are stored without their zeros.
pub fn sparse_features(x: &Dense) -> Features {
    let (mut ptr, mut cols, mut values) = (vec![0_u64], Vec::new(), Vec::new());
    for row in x.rows() {
        for (j, value) in row.iter().enumerate().filter(|(_, value)| **value != 0.0) {
            cols.push(j as u32);
            values.push(*value);
        }
        ptr.push(cols.len() as u64);
    }
    let parts = CsrParts {
        n_cols: x.n_cols(),
        row_ptr: RowPtr::Wide(ptr.into()),
        cols: cols.into(),
        values: Some(Buffer::from(values)),
        order: None,
    };
    Features::Sparse(Csr::new(parts, &Threads::one()).unwrap())
}

/// A directed graph with a loop, a repeated edge and an isolated node.
fn odd_graph(sparse: bool) -> Dataset {
    let edges = [(0, 1), (1, 2), (2, 0), (2, 1), (3, 3), (4, 1), (0, 1), (5, 4), (1, 5), (4, 6)];
    let graph = Graph::from_edges(8, &edges).unwrap();
    let x: Dense = Dense::from_fn(8, 5, |i, j| match sparse && (i + j) % 3 != 0 {
        true => 0.0,
        false => ((i * 7 + j * 3) % 11) as f64 / 5.0 - 0.9,
    });
    let features = if sparse { sparse_features(&x) } else { Features::Dense(x) };
    let names = ["a", "b", "c"].map(str::to_owned).to_vec();
    let labels = Labels::classes(vec![0, 1, 2, 0, 1, 2, 0, 1], names).unwrap();
    let (train, val, test) = (vec![1, 2, 4, 6], vec![0, 3], vec![5, 7]);
    let split = Split { name: "own".into(), train, val, test };
    let set = Dataset::new("odd", graph).with_features(features).unwrap();
    set.with_labels(labels).unwrap().with_split(split).unwrap()
}

fn karate(threads: &Threads) -> Dataset {
    let set =
        lacis::open("sbm:n=300,e=1500,classes=4,features=12,seed=3", &Reading::quiet(threads));
    set.unwrap()
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

fn split_of(set: &Dataset) -> Split {
    match set.splits().first() {
        Some(split) => split.clone(),
        None => {
            let fractions = lacis::data::splits::Fractions::DEFAULT;
            lacis::data::splits::random(set.labels().unwrap(), fractions, 1).unwrap()
        }
    }
}

/// Losses of some epochs, and the weights after them.
fn curve(set: &Dataset, recipe: &Recipe, threads: &Threads) -> (Vec<f64>, Vec<u32>) {
    let profile = Profile::unmeasured(this_machine());
    let split = split_of(set);
    let job = Job { dataset: set, split: &split, threads, profile: &profile };
    let mut trainer = Trainer::new(&job, recipe.clone()).unwrap();
    losses(&mut trainer)
}

fn losses(trainer: &mut Trainer<'_>) -> (Vec<f64>, Vec<u32>) {
    let mut all = Vec::new();
    while trainer.epoch() < trainer.recipe().epochs {
        all.push(trainer.step(&mut Nobody).unwrap().loss);
    }
    let weights = trainer.params().all().iter().flat_map(|param| param.value.rows().flatten());
    (all, weights.map(|w| w.to_bits()).collect())
}

fn assert_same_curve(left: &[f64], right: &[f64], what: &str) {
    assert_eq!(left.len(), right.len(), "{what}");
    for (epoch, (a, b)) in left.iter().zip(right).enumerate() {
        assert!((a - b).abs() <= 2e-4 * (1.0 + a.abs()), "{what}, epoch {epoch}: {a} and {b}");
    }
}

/// Every parameter's gradient against central differences of the loss.
#[test]
fn gradients_of_every_model_are_slopes() {
    let threads = Threads::one();
    let profile = Profile::unmeasured(this_machine());
    type Change = fn(&mut Config);
    let plain: Change = |_| {};
    let changed: [(&str, Change); 8] = [
        ("sage", |c| c.normalize = true),
        ("gat", |c| (c.out_heads, c.slope) = (3, 0.6)),
        ("gatv2", |c| (c.out_heads, c.slope) = (2, 0.05)),
        ("gcn", |c| c.degrees = false),
        ("gcn", |c| (c.jumping, c.layers) = (Some(Jump::Max), 3)),
        ("gat", |c| (c.jumping, c.layers) = (Some(Jump::Max), 3)),
        ("appnp", |c| c.alpha = 0.4),
        ("gcn2", |c| (c.alpha, c.theta, c.shared_weights) = (0.4, 1.5, false)),
    ];
    let all = MODELS.iter().map(|model| (model.name, plain)).chain(changed);
    for (model, change, sparse) in all.flat_map(|(m, c)| [(m, c, false), (m, c, true)]) {
        let set = odd_graph(sparse);
        let split = split_of(&set);
        let job = Job { dataset: &set, split: &split, threads: &threads, profile: &profile };
        let mut own = recipe(model, 1000);
        change(&mut own.config);
        let mut trainer = Trainer::new(&job, own).unwrap();
        trainer.params_mut().keep_gradients();
        trainer.step(&mut Nobody).unwrap();
        let grads = trainer.params().gradients().unwrap().to_vec();
        let (mut checked, mut kinks) = (0, 0);
        for (at, grad) in grads.iter().enumerate() {
            // A few elements of each: the slope of the loss along them.
            for element in (0..grad.len()).step_by((grad.len() / 4).max(1)) {
                let mut loss_at = |offset: f32| {
                    let before = trainer.params().all()[at].value.data()[element];
                    trainer.params_mut().all_mut()[at].value.data_mut()[element] += offset;
                    let loss = trainer.step(&mut Nobody).unwrap().loss;
                    trainer.params_mut().all_mut()[at].value.data_mut()[element] = before;
                    loss
                };
                let h = 2e-3;
                let (below, here, above) = (loss_at(-h), loss_at(0.0), loss_at(h));
                let [left, right] = [here - below, above - here].map(|d| d / f64::from(h));
                let near = (left + right) / 2.0;
                // A kink of a relu nearby: slopes on both sides differ.
                if (left - right).abs() > 3e-3 + 0.02 * near.abs() {
                    kinks += 1;
                    continue;
                }
                checked += 1;
                let name = &trainer.params().all()[at].name;
                let found = f64::from(grad[element]);
                let close = (near - found).abs() <= 3e-3 + 0.02 * near.abs();
                assert!(
                    close,
                    "{model} sparse {sparse} {name}[{element}]: slope {near}, gradient {found}"
                );
            }
        }
        assert!(checked > 2 * kinks, "{model}: {checked} slopes and {kinks} kinks");
    }
}

#[test]
fn every_model_learns_with_every_option() {
    let threads = Threads::new(2).unwrap();
    let set = karate(&threads);
    let options: [fn(&mut Config); 7] = [
        |c| c.input_dropout = 0.2,
        |c| c.norm = Some(NormKind::Batch),
        |c| c.norm = Some(NormKind::Layer),
        |c| (c.residual, c.layers, c.dropout) = (true, 3, 0.2),
        |c| c.jumping = Some(Jump::Concat),
        |c| (c.jumping, c.layers) = (Some(Jump::Max), 3),
        |c| (c.learn_eps, c.mlp_layers) = (true, 2),
    ];
    for model in MODELS {
        for (number, option) in options.iter().enumerate() {
            let mut recipe = recipe(model.name, 30);
            option(&mut recipe.config);
            if options::check(model.name, &recipe.config).is_err() {
                continue;
            }
            let (losses, _) = curve(&set, &recipe, &threads);
            let (first, last) = (losses[0], losses[29]);
            assert!(last < first, "{} option {number}: {first} to {last}", model.name);
        }
    }
}

#[test]
fn weights_have_the_same_bits_for_any_number_of_threads() {
    let one = Threads::one();
    let set = karate(&one);
    for model in MODELS {
        let mut recipe = recipe(model.name, 5);
        recipe.config.dropout = 0.5;
        recipe.config.edge_dropout = if model.name == "appnp" { 0.3 } else { 0.0 };
        let expected = curve(&set, &recipe, &one);
        for count in [2, 7] {
            let threads = Threads::new(count).unwrap();
            assert_eq!(curve(&set, &recipe, &threads), expected, "{} {count}", model.name);
        }
    }
}

#[test]
fn exact_savings_are_exact() {
    let threads = Threads::new(2).unwrap();
    for (set, model) in MODELS
        .iter()
        .flat_map(|model| [(odd_graph(false), model.name), (karate(&threads), model.name)])
    {
        let mut recipe = recipe(model, 20);
        recipe.config.dropout = 0.3;
        let (expected, _) = curve(&set, &recipe, &threads);
        for name in SAVINGS.iter().chain(&["all"]) {
            recipe.settings.without = vec![(*name).to_owned()];
            let (losses, _) = curve(&set, &recipe, &threads);
            assert_same_curve(&losses, &expected, &format!("{model} without {name}"));
        }
        recipe.settings = Settings { rules: RuleSet::Sensei, ..Settings::default() };
        let (losses, _) = curve(&set, &recipe, &threads);
        assert_same_curve(&losses, &expected, &format!("{model}, rules of SENSEi"));
    }
}

#[test]
fn all_candidates_of_a_layer_learn_alike() {
    let threads = Threads::new(2).unwrap();
    let profile = Profile::unmeasured(this_machine());
    let costs = lacis::costs::Measured(&profile);
    for (set, model) in ["gcn", "sage", "gin", "gat", "sgc", "tagcn"]
        .iter()
        .flat_map(|model| [(odd_graph(false), *model), (karate(&threads), *model)])
    {
        let split = split_of(&set);
        let job = Job { dataset: &set, split: &split, threads: &threads, profile: &profile };
        let recipe = recipe(model, 50);
        let mut trainer = Trainer::new(&job, recipe.clone()).unwrap();
        let (expected, _) = losses(&mut trainer);
        let chosen = trainer.chosen().clone();
        for (at, layer) in chosen.layers.iter().enumerate() {
            for index in layer.kept().into_iter().step_by(1 + layer.kept().len() / 6) {
                let network = &trainer.model().network;
                let sizes = trainer.sizes();
                let of = (network, &chosen);
                let plan =
                    with_candidate(of, (at, index), (&sizes, &costs), &recipe.settings).unwrap();
                let mut other = Trainer::with_plan(&job, recipe.clone(), plan).unwrap();
                let formula = &layer.all[index].formula;
                assert_same_curve(&losses(&mut other).0, &expected, &format!("{model} {formula}"));
            }
        }
    }
}

#[test]
fn a_checkpoint_goes_on_to_the_same_bits() {
    let threads = Threads::new(2).unwrap();
    let set = karate(&threads);
    let profile = Profile::unmeasured(this_machine());
    let split = split_of(&set);
    let job = Job { dataset: &set, split: &split, threads: &threads, profile: &profile };
    for model in MODELS {
        let mut recipe = recipe(model.name, 12);
        recipe.config.dropout = 0.5;
        recipe.config.edge_dropout = if model.name == "appnp" { 0.3 } else { 0.0 };
        let stacked = !matches!(model.name, "sgc" | "gcn2");
        recipe.config.norm = stacked.then_some(NormKind::Batch);
        let mut whole = Trainer::new(&job, recipe.clone()).unwrap();
        let (expected, weights) = losses(&mut whole);
        let mut first = Trainer::new(&job, recipe.clone()).unwrap();
        for _ in 0..5 {
            first.step(&mut Nobody).unwrap();
        }
        let state = first.checkpoint().unwrap();
        let mut second = Trainer::new(&job, recipe).unwrap();
        second.restore(state).unwrap();
        assert_eq!(losses(&mut second), (expected[5..].to_vec(), weights), "{}", model.name);
        let logits = |trainer: &mut Trainer<'_>| {
            trainer.logits(|m| (0..m.n_rows()).flat_map(|i| m.row(i).to_vec()).collect::<Vec<_>>())
        };
        assert_eq!(logits(&mut second).unwrap(), logits(&mut whole).unwrap());
    }
}

/// The loss' gradient goes over the result; updating weights afterwards does not bring it back.
#[test]
fn a_result_that_was_replaced_is_refused() {
    let (threads, set) = (Threads::one(), odd_graph(false));
    let profile = Profile::unmeasured(this_machine());
    let split = split_of(&set);
    let job = Job { dataset: &set, split: &split, threads: &threads, profile: &profile };
    let trainer = Trainer::new(&job, recipe("gcn", 1)).unwrap();
    let (plan, mut params) = (Arc::new(trainer.chosen().plan.clone()), trainer.params().clone());
    let features = Arc::new(set.features().unwrap().clone());
    let (graph, n) = (set.graph(), set.graph().n_nodes());
    let asked = Asked { graph, features: &features, levels: 3, rows: None, reach: false };
    let levels = Levels::new(&asked, &plan, &threads).unwrap();
    let (labels, rows) = (vec![0; n], [1, 2]);
    let loss = Loss::classes(&labels, 3, &rows).unwrap();
    let (targets, graphs, pairs) = (Targets::Loss(&loss), None, None);
    let context = Context { levels: &levels, targets, graphs, pairs, seed: 1, training: true };
    let mut executor = Executor::new(plan, &profile, &threads).unwrap();
    executor.bind(&levels, 1).unwrap();
    for (phases, there) in [
        (&[Phase::Once, Phase::Forward][..], true),
        (&[Phase::Forward, Phase::Backward], false),
        (&[Phase::Update], false),
        (&[Phase::Forward], true),
    ] {
        executor.run(phases, &context, &mut params, &mut Nobody).unwrap();
        assert_eq!(executor.result(&context, &params).is_ok(), there, "{phases:?}");
    }
}

#[test]
fn weights_come_back_from_their_file_names() {
    let threads = Threads::one();
    let set = odd_graph(false);
    let profile = Profile::unmeasured(this_machine());
    let split = split_of(&set);
    let job = Job { dataset: &set, split: &split, threads: &threads, profile: &profile };
    for model in MODELS {
        let mut trainer = Trainer::new(&job, recipe(model.name, 3)).unwrap();
        let (_, weights) = losses(&mut trainer);
        let tensors = trainer.model_tensors().unwrap();
        let mut other = Trainer::new(&job, recipe(model.name, 0)).unwrap();
        let network = other.model().clone();
        lacis::train::state::load_model(&network, other.params_mut(), tensors.clone()).unwrap();
        assert_eq!(losses(&mut other).1, weights, "{}", model.name);
        let mut missing = tensors;
        missing.insert("stranger", lacis::store::Tensor::new(&[1], vec![0.0_f32]).unwrap());
        let error =
            lacis::train::state::load_model(&network, other.params_mut(), missing).unwrap_err();
        assert!(error.to_string().contains("stranger"), "{error}");
    }
}

#[test]
fn estimates_of_batch_norms_are_part_of_a_model() {
    let threads = Threads::one();
    let set = odd_graph(false);
    let profile = Profile::unmeasured(this_machine());
    let split = split_of(&set);
    let job = Job { dataset: &set, split: &split, threads: &threads, profile: &profile };
    let mut recipe = recipe("gcn", 4);
    recipe.config.norm = Some(NormKind::Batch);
    let mut trainer = Trainer::new(&job, recipe.clone()).unwrap();
    losses(&mut trainer);
    let tensors = trainer.model_tensors().unwrap();
    let count = tensors.get("norms.0.module.num_batches_tracked").unwrap();
    assert_eq!(count.numbers::<i64>().unwrap().as_slice(), [4]);
    assert_eq!(tensors.get("norms.0.module.running_var").unwrap().shape(), [8]);
    let mut other = Trainer::new(&job, recipe).unwrap();
    let network = other.model().clone();
    let moments = lacis::train::state::load_model(&network, other.params_mut(), tensors).unwrap();
    other.set_moments(moments);
    let all = |trainer: &mut Trainer<'_>| -> Vec<f32> {
        trainer.logits(|m| (0..m.n_rows()).flat_map(|i| m.row(i).to_vec()).collect()).unwrap()
    };
    for (a, b) in all(&mut trainer).iter().zip(all(&mut other)) {
        assert!((a - b).abs() < 1e-5, "{a} {b}");
    }
}

#[test]
fn options_of_layers_change_what_is_learned() {
    let threads = Threads::one();
    let set = odd_graph(false);
    let names = |model: &str, option: fn(&mut Config)| {
        let profile = Profile::unmeasured(this_machine());
        let split = split_of(&set);
        let job = Job { dataset: &set, split: &split, threads: &threads, profile: &profile };
        let mut recipe = recipe(model, 5);
        option(&mut recipe.config);
        let mut trainer = Trainer::new(&job, recipe).unwrap();
        let (all, _) = losses(&mut trainer);
        assert!(all[4] < all[0], "{model} {all:?}");
        let names = trainer.model().params.iter().map(|spec| spec.name.clone());
        (names.collect::<Vec<_>>().join(" "), all[0])
    };
    for model in MODELS.iter().filter(|model| !matches!(model.name, "gcn2" | "gatedgcn")) {
        let (with, _) = names(model.name, |_| {});
        let (without, _) = names(model.name, |config| config.bias = false);
        assert!(with.contains("bias") && !without.contains("bias"), "{}: {without}", model.name);
    }
    for (model, root) in [("sage", "lin_r"), ("gatedgcn", "lin_skip")] {
        assert!(names(model, |_| {}).0.contains(root));
        assert!(!names(model, |config| config.root_weight = false).0.contains(root));
    }
    assert_ne!(names("sage", |_| {}).1, names("sage", |config| config.normalize = true).1);
    let [plain, shifted] = [0.0, 0.5].map(|eps| {
        let option: fn(&mut Config) = if eps == 0.0 { |_| {} } else { |c| c.eps = 0.5 };
        names("gin", option).1
    });
    assert!((plain - shifted).abs() > 1e-6, "{plain} {shifted}");
}

#[test]
fn features_can_be_learned() {
    let threads = Threads::one();
    let set = karate(&threads);
    let source = lacis::data::transform::FeatureSource::parse("learned:6").unwrap();
    let reading = Reading::quiet(&threads);
    let set = lacis::data::transform::features_from(set, source, 0, &reading).unwrap();
    let profile = Profile::unmeasured(this_machine());
    let split = split_of(&set);
    let job = Job { dataset: &set, split: &split, threads: &threads, profile: &profile };
    for model in ["gcn", "sage", "cheb", "gat"] {
        let mut recipe = recipe(model, 30);
        recipe.config.embed = Some(6);
        let mut trainer = Trainer::new(&job, recipe).unwrap();
        let table = |trainer: &Trainer<'_>| trainer.params().all()[0].value.clone();
        let before = table(&trainer);
        assert_eq!([before.n_rows(), before.n_cols()], [300, 6], "{model}");
        let (all, _) = losses(&mut trainer);
        assert!(all[29] < 0.8 * all[0], "{model}: {all:?}");
        assert_ne!(before, table(&trainer), "{model}: the table itself is learned");
    }
}

#[test]
fn what_cannot_be_trained_is_said_clearly() {
    let threads = Threads::one();
    let profile = Profile::unmeasured(this_machine());
    let set = odd_graph(false);
    let split = split_of(&set);
    let job = Job { dataset: &set, split: &split, threads: &threads, profile: &profile };
    let error = |recipe: Recipe| Trainer::new(&job, recipe).err().unwrap().to_string();
    assert!(error(recipe("gnc", 1)).contains("gcn"), "names what there is");
    let mut wide = recipe("gat", 1);
    wide.config.heads = 3;
    assert!(error(wide).contains("3 heads"));
    let mut none = recipe("gcn", 1);
    none.config.hidden = 0;
    assert!(error(none).contains("hidden"));
    let bare = Dataset::new("bare", Graph::from_edges(2, &[(0, 1)]).unwrap());
    let job = Job { dataset: &bare, split: &split, threads: &threads, profile: &profile };
    let error = Trainer::new(&job, recipe("gcn", 1)).err().unwrap().to_string();
    assert!(error.contains("labels"), "{error}");
}

/// What a layer gives on the path 0–1–2 with features 1, 2, 4, weights 1 and biases 0: the numbers
/// that the models' files show, as torch_geometric's layers compute them.
#[test]
fn the_numbers_that_models_show_are_theirs() {
    type Change = fn(&mut Config);
    let gcn = [1.3165, 2.7079, 2.8165];
    let (attended, spread) = ([1.7311, 3.6456, 3.7616], [1.2848, 2.6371, 2.9348]);
    let shown: [(&str, Change, [f32; 3]); 14] = [
        ("gcn", |_| {}, gcn),
        ("gcn", |c| c.degrees = false, [2.0, 5.0, 2.0]),
        ("sage", |_| {}, [3.0, 4.5, 6.0]),
        ("gin", |_| {}, [3.0, 7.0, 6.0]),
        ("gat", |_| {}, attended),
        ("gat", |c| c.out_heads = 3, attended),
        ("gatv2", |_| {}, attended),
        ("sgc", |_| {}, gcn),
        ("tagcn", |c| c.hops = Some(1), [2.4142, 5.5355, 5.4142]),
        ("cheb", |c| c.hops = Some(2), [-0.4142, -1.5355, 2.5858]),
        ("appnp", |c| c.hops = Some(1), spread),
        ("gcn2", |_| {}, spread),
        ("gatedgcn", |_| {}, [2.9051, 6.9427, 5.9951]),
        ("mlp", |_| {}, [1.0, 2.0, 4.0]),
    ];
    let threads = Threads::one();
    let profile = Profile::unmeasured(this_machine());
    let graph = Graph::from_edges(3, &[(0, 1), (1, 0), (1, 2), (2, 1)]).unwrap();
    let x: Dense = Dense::from_fn(3, 1, |i, _| [1.0, 2.0, 4.0][i]);
    let set = Dataset::new("path", graph).with_features(Features::Dense(x)).unwrap();
    let on = lacis::infer::On { dataset: &set, threads: &threads, profile: &profile };
    for (model, change, expected) in shown {
        let mut config = Config::new(1, 1, 1);
        config.layers = 1;
        if matches!(model, "gat" | "gatv2") {
            config.heads = 1;
        }
        change(&mut config);
        let recipe = Recipe::new(model, config);
        let mut predictor = lacis::infer::Predictor::new(on, recipe, 1).unwrap();
        let specs = predictor.model().params.clone();
        for (spec, param) in specs.iter().zip(predictor.params_mut().all_mut()) {
            let number = if spec.name.ends_with("bias") { 0.0 } else { 1.0 };
            param.value.data_mut().fill(number);
        }
        let (found, _) = predictor.run(lacis::infer::What::Logits, None).unwrap();
        for (found, expected) in found.data().iter().zip(expected) {
            assert!((found - expected).abs() < 1e-4, "{model}: {found}, not {expected}");
        }
    }
}

/// A network that no table has: trained, judged, kept, read again, computed without learning.
#[test]
fn a_network_of_ones_own_is_trained_like_others() {
    let threads = Threads::new(2).unwrap();
    let set = karate(&threads);
    let profile = Profile::unmeasured(this_machine());
    let split = split_of(&set);
    let job = Job { dataset: &set, split: &split, threads: &threads, profile: &profile };
    let gcn = lacis::nn::kind("gcn").unwrap();
    let own = Recipe::own("mine", Config::new(1, 8, 1), gcn.build);
    let mut recipe = Recipe { epochs: 8, seed: 7, ..own };
    recipe.optimizer = Optimizer::adam(0.02, 5e-4);
    recipe.config.dropout = 0.3;
    let same = Recipe { model: "gcn".to_owned(), own: None, ..recipe.clone() };
    let mut trainer = Trainer::new(&job, recipe.clone()).unwrap();
    let (found, expected) = (losses(&mut trainer), curve(&set, &same, &threads));
    assert_eq!(found, expected, "the same formula learns to the same bits");
    assert_eq!(trainer.model().name, "mine");
    let tensors = trainer.model_tensors().unwrap();
    let on = lacis::infer::On { dataset: &set, threads: &threads, profile: &profile };
    let mut predictor = lacis::infer::Predictor::new(on, recipe.clone(), 4).unwrap();
    let network = predictor.model().clone();
    let params = predictor.params_mut();
    lacis::train::state::load_model(&network, params, tensors).unwrap();
    let (results, _) = predictor.run(lacis::infer::What::Logits, None).unwrap();
    trainer
        .logits(|own| {
            for i in 0..own.n_rows() {
                let far = |(a, b): (&f32, &f32)| (a - b).abs() > 1e-4;
                assert!(!own.row(i).iter().zip(results.row(i)).any(far), "row {i}");
            }
        })
        .unwrap();
    recipe.sample = Some("neighbor:5,5".parse().unwrap());
    recipe.batch_size = Some(64);
    assert!(Trainer::new(&job, recipe).unwrap().step(&mut Nobody).unwrap().loss.is_finite());
    let sparse = odd_graph(true);
    let split = split_of(&sparse);
    let job = Job { dataset: &sparse, split: &split, threads: &threads, profile: &profile };
    let rows = Recipe::own("rows", Config::new(1, 8, 1), |build, config, x| {
        let w = build.weight("w.weight".into(), config.inputs, config.outputs, Init::Glorot);
        let a = build.aggregate(lacis::plan::op::Graph::BARE);
        (a * x + x.top(build.level())) * w
    });
    let mut trainer = Trainer::new(&job, rows).unwrap();
    assert!(trainer.step(&mut Nobody).unwrap().loss.is_finite(), "rows of sparse features");
}
