//! A network that does not look at the graph (Rumelhart, Hinton and Williams, "Learning
//! representations by back-propagating errors", Nature 1986): `X·W + b`, layer by layer.
//!
//! Shapes: `X` is n × inputs, `W` inputs × outputs, `b` 1 × outputs. Weights as
//! `torch_geometric.nn.models.MLP` without a norm: `lins.l.{weight,bias}`.
//!
//! With `X` = (1, 2, 4), `W` = 1 and `b` = 0, a layer gives 1, 2 and 4 on any graph.

use lacis_core::reference::Activation;
use lacis_plan::Expr;

use super::build::with_bias;
use super::stack::{Place, stack};
use super::{Build, Config, Init, Kind};

pub(super) const KIND: Kind = Kind {
    name: "mlp",
    about: "linear layers alone; what the graph adds is seen against it",
    paper: "Rumelhart et al., Nature 1986",
    formula: "X·W + b",
    build: network,
};

/// All layers.
pub fn network(build: &mut Build, config: &Config, x: &Expr) -> Expr {
    stack(build, config, x, Activation::Relu, layer)
}

/// One layer.
pub fn layer(build: &mut Build, config: &Config, x: &Expr, place: Place) -> Expr {
    let Place { index, inputs, outputs, .. } = place;
    let fan = Init::Kaiming { fan: inputs };
    let w = build.weight(format!("lins.{index}.weight"), inputs, outputs, fan);
    let b = build.bias_if(config.bias, format!("lins.{index}.bias"), outputs, fan);
    let layer = build.layer();
    with_bias(x * w, b.as_ref()).in_layer(layer)
}
