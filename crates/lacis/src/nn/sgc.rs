//! SGC (Wu et al., "Simplifying graph convolutional networks", ICML 2019): `N^K·X·W + b` with
//! `N = D^-½·Ã·D^-½`; `--layers` is the number of hops.
//!
//! Shapes: `X` is n × inputs, `W` inputs × outputs, `b` 1 × outputs. Weights as
//! `torch_geometric.nn.SGConv`: `lin.weight`, `lin.bias`.
//!
//! On the path 0–1–2 with `X` = (1, 2, 4), `W` = 1 and `b` = 0, one hop gives 1.3165, 2.7079 and
//! 2.8165, as a layer of GCN does; there is no function between hops.

use lacis_plan::op::Graph;

use super::build::with_bias;
use super::{Init, Kind};

pub(super) const KIND: Kind = Kind {
    name: "sgc",
    about: "several hops and one linear layer",
    paper: "Wu et al., ICML 2019",
    formula: "N^K·X·W + b",
    build: |build, config, x| {
        let fan = Init::Kaiming { fan: config.inputs };
        let w = build.weight("lin.weight".to_owned(), config.inputs, config.outputs, fan);
        let b = build.bias_if(config.bias, "lin.bias".to_owned(), config.outputs, fan);
        let mut y = x.clone();
        for _ in 0..config.hops.unwrap_or(config.layers) {
            let [left, a, right] = build.normalised(Graph::NORMALISED, -1);
            y = left * (a * (right * y));
        }
        let layer = build.layer();
        with_bias(y * w, b.as_ref()).in_layer(layer)
    },
};
