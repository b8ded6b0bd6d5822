//! APPNP (Gasteiger et al., "Predict then propagate", ICLR 2019): a small network, then
//! `Z ← (1 − α)·N·Z + α·H` ten times, with `N = D^-½·Ã·D^-½` and α = 0.1.
//!
//! torch_geometric drops edge weights anew in each hop where it is given a dropout; here, as in
//! the paper's code for hidden features, `--dropout` acts on the small network only. Weights:
//! `lins.l.{weight,bias}`.

use lacis_plan::op::Graph;

use super::{Kind, mlp};

/// Share of the network's own result in each hop.
const ALPHA: f64 = 0.1;
/// Hops.
const HOPS: usize = 10;

pub(super) const KIND: Kind = Kind {
    name: "appnp",
    about: "a small network, then personalised PageRank",
    paper: "Gasteiger et al., ICLR 2019",
    formula: "Z ← (1 − α)·N·Z + α·H",
    build: |build, config, x| {
        // Graphs are read out at the end, not after the small network.
        let config = &super::Config { readout: None, ..config.clone() };
        let h = mlp::network(build, config, x);
        let mut z = h.clone();
        for _ in 0..config.hops.unwrap_or(HOPS) {
            let [left, a, right] = build.normalised(Graph::NORMALISED, -1);
            let own = h.top(build.level()).scaled(ALPHA);
            let layer = build.layer();
            z = ((left * (a * (right * z))).scaled(1.0 - ALPHA) + own).in_layer(layer);
        }
        z
    },
};
