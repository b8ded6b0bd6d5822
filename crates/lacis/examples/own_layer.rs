//! A layer of one's own is its formula: gradients, planning and kernels follow.

use lacis::nn::{Build, Config, Init, Model};
use lacis::plan::Expr;
use lacis::plan::choose::{Settings, choose};
use lacis::plan::cost::Analytic;
use lacis::plan::op::{Graph, LossKind};
use lacis::plan::{Sizes, expr};
use lacis::reference::Activation;

/// `tanh(D^-1·A·X·W + X·V)`: neighbours and the node itself, each with weights.
fn my_layer(build: &mut Build, x: &Expr, [inputs, outputs]: [usize; 2]) -> Expr {
    let w = build.weight(format!("w{inputs}.weight"), inputs, outputs, Init::Glorot);
    let v = build.weight(format!("v{inputs}.weight"), inputs, outputs, Init::Glorot);
    let a = build.aggregate(Graph::BARE);
    let mean = expr::degrees(Graph::BARE, build.level(), -2) * a * x;
    let layer = build.layer();
    (mean * w + x.top(build.level()) * v).in_layer(layer).map(Activation::Tanh)
}

fn main() -> lacis::Result<()> {
    let config = Config::new(64, 16, 5);
    let mut build = Build::new();
    let x = build.features(&config);
    let h = my_layer(&mut build, &x, [64, 16]);
    let y = my_layer(&mut build, &h, [16, 5]);
    let model = Model::from_parts("mine", &config, (build, y), Some(LossKind::Classes))?;

    let sizes = Sizes::whole(model.levels, 100_000, 2_000_000);
    let chosen = choose(&model.network, &sizes, &Analytic::default(), &Settings::default())?;
    println!("{}", chosen.plan);
    println!("{:.1} ms an epoch, by the roofline", chosen.predicted.iteration * 1e3);
    assert!(chosen.plan.steps.iter().any(|step| step.formula.contains('ᵀ')), "there are gradients");
    Ok(())
}
