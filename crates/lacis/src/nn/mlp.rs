//! A network that does not look at the graph: `X·W + b`, layer by layer.
//!
//! Weights: `lins.l.{weight,bias}`.

use lacis_core::reference::Activation;
use lacis_plan::Expr;

use super::build::with_bias;
use super::stack::{Place, stack};
use super::{Build, Config, Init, Kind};

pub(super) const KIND: Kind = Kind {
    name: "mlp",
    about: "linear layers alone; what the graph adds is seen against it",
    paper: "",
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
