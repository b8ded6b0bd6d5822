//! GCNII (Chen et al., "Simple and deep graph convolutional networks", ICML 2020):
//! `relu((1 − β)·H + β·H·W)` with `H = (1 − α)·N·X + α·X₀` and `β = ln(θ/l + 1)`; the weights are
//! shared between both terms, α = 0.1, θ = 0.5.
//!
//! Weights as `torch_geometric.nn.GCN2Conv` between two linear layers: `lins.0.{weight,bias}`,
//! `convs.l.weight1`, `lins.1.{weight,bias}`.

use lacis_core::reference::Activation;
use lacis_plan::op::Graph;

use super::build::Stored;
use super::{Init, Kind};

/// Share of the first features in each layer.
const ALPHA: f64 = 0.1;
/// How fast weights lose influence with depth.
const THETA: f64 = 0.5;

pub(super) const KIND: Kind = Kind {
    name: "gcn2",
    about: "deep convolution that keeps its first features (GCNII)",
    paper: "Chen et al., ICML 2020",
    formula: "(1 − β)·H + β·H·W, H = (1 − α)·N·X + α·X₀",
    build: |build, config, x| {
        let (inputs, hidden, outputs) = (config.inputs, config.hidden, config.outputs);
        let fan = Init::Kaiming { fan: inputs };
        let w = build.weight("lins.0.weight".to_owned(), inputs, hidden, fan);
        let b = build.bias("lins.0.bias".to_owned(), hidden, fan);
        let layer = build.layer();
        let first = (x * w).biased(&b).in_layer(layer).map(Activation::Relu);
        let mut y = first.clone();
        for index in 0..config.layers {
            let key = build.key();
            y = y.dropout(config.dropout, key);
            let beta = (THETA / (index + 1) as f64 + 1.0).ln();
            let shape = [hidden, hidden];
            let name = format!("convs.{index}.weight1");
            let w = build.param(name, shape, Init::Glorot, Stored::AsIs);
            let [left, a, right] = build.normalised(Graph::NORMALISED, -1);
            let own = first.top(build.level()).scaled(ALPHA);
            let layer = build.layer();
            let h = ((left * (a * (right * y))).scaled(1.0 - ALPHA) + own).in_layer(layer);
            let layer = build.layer();
            let mixed = (&h * w).in_layer(layer).scaled(beta);
            y = (mixed + h.scaled(1.0 - beta)).map(Activation::Relu);
        }
        build.embeds(&y);
        let key = build.key();
        y = y.dropout(config.dropout, key);
        let fan = Init::Kaiming { fan: hidden };
        let w = build.weight("lins.1.weight".to_owned(), hidden, outputs, fan);
        let b = build.bias("lins.1.bias".to_owned(), outputs, fan);
        let layer = build.layer();
        (y * w).biased(&b).in_layer(layer)
    },
};
