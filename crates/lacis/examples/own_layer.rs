//! A layer of one's own is its formula: gradients, planning, kernels and training follow.

use lacis::data::{Job as Reading, splits};
use lacis::exec::Nobody;
use lacis::kernels::Profile;
use lacis::machine::this_machine;
use lacis::metrics::{Metric, ScoreRow, Scored};
use lacis::nn::{Build, Config, Init};
use lacis::plan::{Expr, expr, op::Graph};
use lacis::reference::Activation;
use lacis::train::{Job, Recipe, Trainer};
use lacis::{Result, Threads};

/// `D^-1·A·X·W + X·V`: neighbours and the node itself, each with weights.
fn my_layer(build: &mut Build, name: &str, x: &Expr, [inputs, outputs]: [usize; 2]) -> Expr {
    let w = build.weight(format!("{name}.w.weight"), inputs, outputs, Init::Glorot);
    let v = build.weight(format!("{name}.v.weight"), inputs, outputs, Init::Glorot);
    let a = build.aggregate(Graph::BARE);
    let mean = expr::degrees(Graph::BARE, build.level(), -2) * a * x;
    let layer = build.layer();
    (mean * w + x.top(build.level()) * v).in_layer(layer)
}

/// Two of them with a function between.
fn my_network(build: &mut Build, config: &Config, x: &Expr) -> Expr {
    let Config { inputs, hidden, outputs, .. } = *config;
    let h = my_layer(build, "first", x, [inputs, hidden]).map(Activation::Tanh);
    build.embeds(&h);
    let key = build.key();
    let h = h.dropout(config.dropout, key);
    my_layer(build, "second", &h, [hidden, outputs])
}

fn main() -> Result<()> {
    let threads = Threads::new(2)?;
    let data = "sbm:n=400,e=2400,classes=4,features=16,seed=1";
    let set = lacis::open(data, &Reading::quiet(&threads))?;
    let labels = set.labels().expect("groups have numbers");
    let split = splits::random(labels, splits::Fractions::DEFAULT, 0)?;
    let profile = Profile::unmeasured(this_machine());
    let job = Job { dataset: &set, split: &split, threads: &threads, profile: &profile };

    let recipe = Recipe { epochs: 50, ..Recipe::own("mine", Config::new(16, 16, 4), my_network) };
    let mut trainer = Trainer::new(&job, recipe)?;
    println!("{}", trainer.chosen().plan);
    let first = trainer.step(&mut Nobody)?.loss;
    let mut last = first;
    while trainer.epoch() < trainer.recipe().epochs {
        last = trainer.step(&mut Nobody)?.loss;
    }
    let test = trainer.logits(|scores| {
        let scored = Scored::new(scores, labels, &split.test, ScoreRow::OfItem)?;
        "accuracy".parse::<Metric>()?.of_items(&scored, &threads)
    })??;
    println!("loss {first:.3} -> {last:.3}, accuracy {test:.3}");
    assert!(last < 0.5 * first && test > 0.7, "it learns");
    Ok(())
}
