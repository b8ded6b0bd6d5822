//! APPNP (Gasteiger et al., "Predict then propagate", ICLR 2019): a small network, then
//! `Z ← (1 − α)·N·Z + α·H` ten times from `Z = H`, with `N = D^-½·Ã·D^-½` and α = 0.1.
//!
//! Shapes: `H` and `Z` are n × outputs. Weights: `lins.l.{weight,bias}`. With a dropout of edges
//! each hop of a training step has an `N` of its own, some entries 0 and the others divided by the
//! share that stays, as in the paper; torch_geometric drops from what the hop before left.
//!
//! On the path 0–1–2 with `X` = (1, 2, 4), a linear layer of weight 1 and bias 0 and one hop, the
//! network gives 1.2848, 2.6371 and 2.9348: node 0 has 0.9·(1/2·1 + 1/√6·2) + 0.1·1.

use lacis_plan::op::Graph;

use super::{Kind, mlp};

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
            let a = match config.edge_dropout {
                0.0 => a,
                p => a.drop_edges(p, build.key()),
            };
            let own = h.top(build.level()).scaled(config.alpha);
            let layer = build.layer();
            z = ((left * (a * (right * z))).scaled(1.0 - config.alpha) + own).in_layer(layer);
        }
        z
    },
};
