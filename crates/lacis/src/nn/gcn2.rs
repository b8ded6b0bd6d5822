//! GCNII (Chen et al., "Simple and deep graph convolutional networks", ICML 2020):
//! `relu((1 − β)·H + β·H·W)` with `H = (1 − α)·N·X + α·X₀`, `N = D^-½·Ã·D^-½` and
//! `β = ln(θ/l + 1)`. Where weights are not shared, each of `H`'s two terms has its own.
//!
//! Shapes: `X`, `X₀` and `H` are n × hidden, `W` hidden × hidden. Weights as
//! `torch_geometric.nn.GCN2Conv` between two linear layers: `lins.0.{weight,bias}`,
//! `convs.l.weight1`, `convs.l.weight2` where they are not shared, `lins.1.{weight,bias}`.
//!
//! On the path 0–1–2 with `X` = (1, 2, 4), weights 1, biases 0, α = 0.1 and θ = 0.5, a network of
//! one layer gives 1.2848, 2.6371 and 2.9348: `0.9·N·X + 0.1·X`, as `W` = 1 changes nothing.

use lacis_core::reference::Activation;
use lacis_plan::Expr;
use lacis_plan::op::Graph;

use super::build::Stored;
use super::{Build, Config, Init, Kind};

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
            y = convolution(build, config, (&y, &first), index).map(Activation::Relu);
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

/// `(1 − β)·H + β·H·W`, from what the layer before gave and what the network began with.
fn convolution(build: &mut Build, config: &Config, (x, first): (&Expr, &Expr), at: usize) -> Expr {
    let beta = (config.theta / (at + 1) as f64 + 1.0).ln();
    let mut weights = |which: usize| {
        let (name, shape) = (format!("convs.{at}.weight{which}"), [config.hidden, config.hidden]);
        build.param(name, shape, Init::Glorot, Stored::AsIs)
    };
    let (w, other) = (weights(1), (!config.shared_weights).then(|| weights(2)));
    let [left, a, right] = build.normalised(Graph::NORMALISED, -1);
    let own = first.top(build.level()).scaled(config.alpha);
    let hop = (left * (a * (right * x))).scaled(1.0 - config.alpha);
    let layer = build.layer();
    let mut mixed = |h: &Expr, w: Expr| {
        let layer = build.layer();
        (h * w).in_layer(layer).scaled(beta) + h.scaled(1.0 - beta)
    };
    match other {
        None => mixed(&(hop + own).in_layer(layer), w),
        Some(other) => mixed(&hop.in_layer(layer), w) + mixed(&own, other),
    }
}
