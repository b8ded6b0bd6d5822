//! GCN (Kipf and Welling, "Semi-supervised classification with graph convolutional networks",
//! ICLR 2017): `D^-½·Ã·D^-½·X·W + b`, where `Ã` has a loop for every node that has none and `D` is
//! the diagonal of its row sums; without degrees `A·X·W + b`.
//!
//! Shapes: `A` is n × n, `X` n × inputs, `W` inputs × outputs, `b` 1 × outputs. Weights as
//! `torch_geometric.nn.models.GCN`: `convs.l.lin.weight`, `convs.l.bias`.
//!
//! On the path 0–1–2 with `X` = (1, 2, 4), `W` = 1 and `b` = 0, a layer gives 1.3165, 2.7079 and
//! 2.8165: node 0 has 1/2·1 from itself and 1/√(2·3)·2 from node 1. Without degrees: 2, 5 and 2.

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
    let gathered = match config.degrees {
        true => {
            let [left, a, right] = build.normalised(Graph::NORMALISED, -1);
            left * a * right * x
        }
        false => build.aggregate(Graph::WEIGHTED) * x,
    };
    let layer = build.layer();
    with_bias(gathered * w, b.as_ref()).in_layer(layer)
}
