//! GIN (Xu et al., "How powerful are graph neural networks?", ICLR 2019):
//! `mlp(A·X + (1 + ε)·X)`, with `ε` fixed at 0 or learned.
//!
//! Shapes: `X` is n × inputs, the result n × outputs, and so are all layers of the network but the
//! first one's input; `ε` is one number. Weights as `torch_geometric.nn.models.GIN`:
//! `convs.l.nn.lins.i.{weight,bias}`, `convs.l.eps`; with a norm, which stands between the linear
//! layers too, `convs.l.nn.norms.i.module.{weight,bias}`.
//!
//! On the path 0–1–2 with `X` = (1, 2, 4), one linear layer of weight 1 and bias 0 and `ε` = 0, a
//! layer gives 3, 7 and 6: node 1 has 1 + 4 from its neighbours and 2 of its own.

use lacis_core::reference::Activation;
use lacis_plan::Expr;
use lacis_plan::op::Graph;

use super::build::{Stored, with_bias};
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
        build.param(name, [1, 1], Init::Constant(config.eps), Stored::Vector)
    });
    let summed = |x: &Expr, level: u16| summed(&a, (x, level), config.eps, eps.as_ref());
    let level = build.level();
    let mut y = summed(x, level);
    let sparse = x.kind() != lacis_plan::Kind::Dense;
    for i in 0..config.mlp_layers {
        let fan = Init::Kaiming { fan: inputs };
        let name = |what: &str| format!("convs.{index}.nn.lins.{i}.{what}");
        let w = build.weight(name("weight"), inputs, outputs, fan);
        let b = build.bias_if(config.bias, name("bias"), outputs, fan);
        let layer = build.layer();
        // Sparse features are multiplied first: a sum of sparse matrices would fill in.
        let product = if sparse && i == 0 { summed(&(x * w), level) } else { y * w };
        y = with_bias(product, b.as_ref()).in_layer(layer);
        if i + 1 < config.mlp_layers {
            y = normed(build, config, y, &format!("convs.{index}.nn.norms.{i}"));
            y = y.map(Activation::Relu);
        }
        inputs = outputs;
    }
    y
}

/// `A·x + (1 + ε)·x`.
fn summed(a: &Expr, (x, level): (&Expr, u16), fixed: f64, learned: Option<&Expr>) -> Expr {
    let own = x.top(level);
    match learned {
        None => a * x + own.scaled(1.0 + fixed),
        Some(eps) => a * x + &own + own.scaled_by(eps),
    }
}
