//! GraphSAGE (Hamilton et al., "Inductive representation learning on large graphs", NeurIPS
//! 2017): `agg(X)·W_l + b + X·W_r`, with the mean, the sum or the maximum of neighbours; where it
//! is asked for, each row of that is divided by its length.
//!
//! Shapes: `X` is n × inputs, `W_l` and `W_r` inputs × outputs, `b` 1 × outputs. Weights as
//! `torch_geometric.nn.models.GraphSAGE`: `convs.l.lin_l.{weight,bias}`, `convs.l.lin_r.weight`.
//!
//! On the path 0–1–2 with `X` = (1, 2, 4), weights 1 and `b` = 0, a layer of means gives 3, 4.5 and
//! 6: node 1 has (1 + 4)/2 from its neighbours and 2 of its own.

use lacis_core::reference::Activation;
use lacis_plan::expr::degrees;
use lacis_plan::op::{Extreme, Graph};
use lacis_plan::{Expr, Op};

use super::build::with_bias;
use super::stack::{Place, stack};
use super::{Build, Config, Init, Kind};

pub(super) const KIND: Kind = Kind {
    name: "sage",
    about: "mean, sum or maximum of neighbours, and the node itself",
    paper: "Hamilton et al., NeurIPS 2017",
    formula: "D^-1·A·X·W_l + b + X·W_r",
    build: |build, config, x| stack(build, config, x, Activation::Relu, layer),
};

/// How neighbours become one row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Aggregate {
    /// Their mean.
    #[default]
    Mean,
    /// Their sum.
    Sum,
    /// Their maximum.
    Max,
}

/// One layer.
pub fn layer(build: &mut Build, config: &Config, x: &Expr, place: Place) -> Expr {
    let Place { index, inputs, outputs, .. } = place;
    let fan = Init::Kaiming { fan: inputs };
    let name = |what: &str| format!("convs.{index}.{what}");
    let neighbours = build.weight(name("lin_l.weight"), inputs, outputs, fan);
    let b = build.bias_if(config.bias, name("lin_l.bias"), outputs, fan);
    let own = config.root_weight.then(|| build.weight(name("lin_r.weight"), inputs, outputs, fan));
    let a = build.aggregate(Graph::BARE);
    let aggregated = match config.aggregate {
        Aggregate::Mean => degrees(Graph::BARE, build.level(), -2) * a * x,
        Aggregate::Sum => a * x,
        Aggregate::Max => Expr::new(Op::Extreme(Extreme::Max), vec![a, x.clone()]),
    };
    let layer = build.layer();
    let mut y = aggregated * neighbours;
    if let Some(own) = own {
        y = y + own_rows(x, build.level()) * own;
    }
    let y = with_bias(y, b.as_ref()).in_layer(layer);
    if config.normalize { y.unit() } else { y }
}

/// The rows of the nodes that are targets.
fn own_rows(x: &Expr, level: u16) -> Expr {
    match x.kind() {
        lacis_plan::Kind::Dense => x.top(level),
        _ => lacis_plan::expr::identity(level - 1) * x,
    }
}
