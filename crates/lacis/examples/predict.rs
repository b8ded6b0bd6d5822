//! Weights go to a file and come back: what they say of nodes, at once and with little memory.

use lacis::data::Job as Reading;
use lacis::exec::Nobody;
use lacis::infer::{On, Predictor, Way, What};
use lacis::kernels::Profile;
use lacis::machine::this_machine;
use lacis::nn::Config;
use lacis::store::Tensors;
use lacis::train::state::load_model;
use lacis::train::{Job, Recipe, Trainer};
use lacis::{Result, Threads};

fn main() -> Result<()> {
    let threads = Threads::available();
    let set = lacis::open("sbm:n=5000,e=40000,classes=4,features=32,seed=1", &quiet(&threads))?;
    let split = set.splits().first().cloned().unwrap_or_default();
    let profile = Profile::unmeasured(this_machine());
    let job = Job { dataset: &set, split: &split, threads: &threads, profile: &profile };
    let recipe = Recipe::new("sage", Config::new(32, 64, 4));
    let mut trainer = Trainer::new(&job, recipe.clone())?;
    for _ in 0..30 {
        trainer.step(&mut Nobody)?;
    }
    let file = std::env::temp_dir().join(format!("lacis-example-{}", std::process::id()));
    trainer.model_tensors()?.save(&file)?;

    let on = On { dataset: &set, threads: &threads, profile: &profile };
    let mut predictor = Predictor::new(on, recipe, 4)?;
    let model = predictor.model().clone();
    load_model(&model, predictor.params_mut(), Tensors::load(&file)?)?;
    let _ = std::fs::remove_file(&file);

    let (scores, _) = predictor.run(What::Logits, None)?;
    let first = scores.row(0);
    let class = (0..4).fold(0, |best, c| if first[c] > first[best] { c } else { best });
    println!("node 0 is of class {class}: {first:?}");
    let (inner, _) = predictor.run(What::Embeddings, None)?;
    println!("its embedding has {} numbers", inner.n_cols());
    // So many bytes beside graph and features: layer by layer, some rows at a time.
    let (again, way) = predictor.run(What::Logits, Some(11 << 19))?;
    println!("{way:?}");
    assert!(matches!(way, Way::Blocks(_)));
    let pairs = scores.rows().flatten().zip(again.rows().flatten());
    let far = pairs.map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
    assert!(far < 1e-4, "the same up to rounding: {far}");
    Ok(())
}

fn quiet(threads: &Threads) -> Reading<'_> {
    Reading::quiet(threads)
}
