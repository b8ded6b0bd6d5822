//! GCN (Kipf and Welling, "Semi-supervised classification with graph convolutional networks",
//! ICLR 2017): `D^-½·Ã·D^-½·X·W + b`, where `Ã` has a loop for every node that has none.
//!
//! Weights as `torch_geometric.nn.models.GCN`: `convs.l.lin.weight`, `convs.l.bias`.

use lacis_core::reference::Activation;
use lacis_plan::Expr;
use lacis_plan::op::Graph;

use super::build::with_bias;
use super::stack::{Place, stack};
use super::{Build, Config, Init, Kind};

pub(super) const KIND: Kind = Kind {
    name: "gcn",
    about: "graph convolution, symmetric normalisation",
    paper: "Kipf and Welling, ICLR 2017",
    formula: "D^-½·Ã·D^-½·X·W + b",
    build: |build, config, x| stack(build, config, x, Activation::Relu, layer),
};

/// One layer.
pub fn layer(build: &mut Build, config: &Config, x: &Expr, place: Place) -> Expr {
    let Place { index, inputs, outputs, .. } = place;
    let w = build.weight(format!("convs.{index}.lin.weight"), inputs, outputs, Init::Glorot);
    let zero = Init::Constant(0.0);
    let b = build.bias_if(config.bias, format!("convs.{index}.bias"), outputs, zero);
    let [left, a, right] = build.normalised(Graph::NORMALISED, -1);
    let layer = build.layer();
    with_bias(left * a * right * x * w, b.as_ref()).in_layer(layer)
}
