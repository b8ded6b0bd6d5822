//! A graph of one's own, from arrays to an accuracy: edges, features, labels, who trains.

use lacis::data::splits::{Fractions, random};
use lacis::exec::Nobody;
use lacis::kernels::Profile;
use lacis::machine::this_machine;
use lacis::metrics::{Metric, ScoreRow, Scored};
use lacis::nn::Config;
use lacis::train::{Job, Recipe, Trainer};
use lacis::{Dataset, Dense, Features, Graph, Labels, Threads};

/// People on a ring know their next neighbours; every third has another opinion than most.
const PEOPLE: usize = 300;

fn main() -> lacis::Result<()> {
    let threads = Threads::available();
    let opinion = |i: usize| i / 100;
    // Edges run from source to target; both ways here.
    let mut edges = Vec::new();
    for i in 0..PEOPLE as u32 {
        for step in 1..=3 {
            let j = (i + step) % PEOPLE as u32;
            edges.extend([(i, j), (j, i)]);
        }
    }
    let graph = Graph::from_edges(PEOPLE, &edges)?;
    // What people say is mostly noise: their neighbours tell more.
    let said = Dense::from_fn(PEOPLE, 8, |i, j| {
        let noise = ((i * 37 + j * 101) % 97) as f64 / 97.0;
        if j == opinion(i) { noise + 0.4 } else { noise }
    });
    let classes = (0..PEOPLE).map(|i| opinion(i) as i32).collect::<Vec<i32>>();
    let names = ["yes", "no", "perhaps"].map(str::to_owned).to_vec();
    let set = Dataset::new("ring", graph)
        .with_features(Features::Dense(said))?
        .with_labels(Labels::classes(classes, names)?)?;
    let labels = set.labels().expect("they were given above");
    let split = random(labels, Fractions::DEFAULT, 0)?;

    let profile = Profile::unmeasured(this_machine());
    let job = Job { dataset: &set, split: &split, threads: &threads, profile: &profile };
    let mut trainer = Trainer::new(&job, Recipe::new("sage", Config::new(8, 16, 3)))?;
    while trainer.epoch() < 100 {
        trainer.step(&mut Nobody)?;
    }
    let test = trainer.logits(|scores| {
        let scored = Scored::new(scores, labels, &split.test, ScoreRow::OfItem)?;
        "accuracy".parse::<Metric>()?.of_items(&scored, &threads)
    })??;
    println!("test accuracy {test:.3}");
    assert!(test > 0.8, "neighbours tell more than noise");
    Ok(())
}
