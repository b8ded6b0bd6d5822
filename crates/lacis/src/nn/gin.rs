//! GIN (Xu et al., "How powerful are graph neural networks?", ICLR 2019):
//! `mlp(A·X + (1 + ε)·X)`, with `ε` fixed at 0 or learned.
//!
//! Weights as `torch_geometric.nn.models.GIN`: `convs.l.nn.lins.i.{weight,bias}`, `convs.l.eps`;
//! with a norm, which stands between the linear layers too,
//! `convs.l.nn.norms.i.module.{weight,bias}`.

use lacis_core::reference::Activation;
use lacis_plan::Expr;
use lacis_plan::op::Graph;

use super::build::Stored;
use super::stack::{Place, normed, stack};
use super::{Build, Config, Init, Kind};

pub(super) const KIND: Kind = Kind {
    name: "gin",
    about: "sum of neighbours and the node itself, through a small network",
    paper: "Xu et al., ICLR 2019",
    formula: "mlp((A + (1 + ε)·I)·X)",
    build: |build, config, x| stack(build, config, x, Activation::Relu, layer),
};

/// One layer.
pub fn layer(build: &mut Build, config: &Config, x: &Expr, place: Place) -> Expr {
    let Place { index, mut inputs, outputs, .. } = place;
    let a = build.aggregate(Graph::BARE);
    let eps = config.learn_eps.then(|| {
        let name = format!("convs.{index}.eps");
        build.param(name, [1, 1], Init::Constant(0.0), Stored::Vector)
    });
    let mut y = summed(build, &a, x, eps.as_ref());
    let sparse = x.kind() != lacis_plan::Kind::Dense;
    for i in 0..config.mlp_layers {
        let fan = Init::Kaiming { fan: inputs };
        let name = |what: &str| format!("convs.{index}.nn.lins.{i}.{what}");
        let w = build.weight(name("weight"), inputs, outputs, fan);
        let b = build.bias(name("bias"), outputs, fan);
        let layer = build.layer();
        // Sparse features are multiplied first: a sum of sparse matrices would fill in.
        let product =
            if sparse && i == 0 { summed(build, &a, &(x * w), eps.as_ref()) } else { y * w };
        y = product.biased(&b).in_layer(layer);
        if i + 1 < config.mlp_layers {
            y = normed(build, config, y, &format!("convs.{index}.nn.norms.{i}"));
            y = y.map(Activation::Relu);
        }
        inputs = outputs;
    }
    y
}

/// `A·x + (1 + ε)·x`.
fn summed(build: &Build, a: &Expr, x: &Expr, eps: Option<&Expr>) -> Expr {
    let own = x.top(build.level());
    let sum = a * x + &own;
    match eps {
        None => sum,
        Some(eps) => sum + own.scaled_by(eps),
    }
}
