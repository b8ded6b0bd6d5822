//! GAT (Veličković et al., "Graph attention networks", ICLR 2018) and GATv2 (Brody et al., "How
//! attentive are graph attention networks?", ICLR 2022).
//!
//! Heads are put together between layers; the last layer has one. Weights as torch_geometric's
//! layers: `convs.l.lin.weight`, `convs.l.att_src`, `convs.l.att_dst`, `convs.l.bias`; for the
//! second version `convs.l.lin_l`, `convs.l.lin_r`, `convs.l.att`.

use lacis_core::reference::Activation;
use lacis_plan::op::{Attention, Graph, Scores};
use lacis_plan::{Expr, Op};

use super::build::{Stored, with_bias};
use super::stack::{Place, stack};
use super::{Build, Config, Init, Kind};

/// The slope below 0 of the function that scores go through.
const SLOPE: f64 = 0.2;

pub(super) const KIND: Kind = Kind {
    name: "gat",
    about: "attention to neighbours, scores added from both ends",
    paper: "Veličković et al., ICLR 2018",
    formula: "attend(Ã, X·W, t, u) + b",
    build: |build, config, x| stack(build, config, x, Activation::Elu(1.0), layer),
};

pub(super) const KIND_V2: Kind = Kind {
    name: "gatv2",
    about: "attention to neighbours, scores of both ends together",
    paper: "Brody et al., ICLR 2022",
    formula: "attend2(Ã, X·W_r, X·W_l, v) + b",
    build: |build, config, x| stack(build, config, x, Activation::Elu(1.0), layer_v2),
};

fn attention(build: &mut Build, config: &Config, place: Place, scores: Scores) -> Attention {
    let heads = if place.last { 1 } else { config.heads };
    let (slope, dropout) = (SLOPE.into(), config.dropout.into());
    Attention { scores, heads, slope, dropout, key: build.key() }
}

/// One layer of GAT.
pub fn layer(build: &mut Build, config: &Config, x: &Expr, place: Place) -> Expr {
    let Place { index, inputs, outputs, .. } = place;
    let attention = attention(build, config, place, Scores::Gat);
    let name = |what: &str| format!("convs.{index}.{what}");
    // Vectors are heads × channels; heads that do not divide the width are told of by the formula.
    let shape = [attention.heads, outputs.checked_div(attention.heads).unwrap_or(0)];
    let u = build.param(name("att_src"), shape, Init::Glorot, Stored::Heads);
    let t = build.param(name("att_dst"), shape, Init::Glorot, Stored::Heads);
    let b = build.bias_if(config.bias, name("bias"), outputs, Init::Constant(0.0));
    let w = build.weight(name("lin.weight"), inputs, outputs, Init::Glorot);
    let a = build.aggregate(Graph::ATTENDED);
    let layer = build.layer();
    let attended = Expr::new(Op::Attention(attention), vec![a, x * w, t, u]);
    with_bias(attended.part(0), b.as_ref()).in_layer(layer)
}

/// One layer of GATv2.
pub fn layer_v2(build: &mut Build, config: &Config, x: &Expr, place: Place) -> Expr {
    let Place { index, inputs, outputs, .. } = place;
    let attention = attention(build, config, place, Scores::GatV2);
    let name = |what: &str| format!("convs.{index}.{what}");
    let shape = [attention.heads, outputs.checked_div(attention.heads).unwrap_or(0)];
    let v = build.param(name("att"), shape, Init::Glorot, Stored::Heads);
    let zero = Init::Constant(0.0);
    let b = build.bias_if(config.bias, name("bias"), outputs, zero);
    let mut linear = |side: &str| {
        let w = build.weight(name(&format!("{side}.weight")), inputs, outputs, Init::Glorot);
        let b = build.bias_if(config.bias, name(&format!("{side}.bias")), outputs, zero);
        with_bias(x * w, b.as_ref())
    };
    let (source, target) = (linear("lin_l"), linear("lin_r"));
    let a = build.aggregate(Graph::ATTENDED);
    let layer = build.layer();
    let args = vec![a, target.top(build.level()), source, v];
    let attended = Expr::new(Op::Attention(attention), args).part(0);
    with_bias(attended, b.as_ref()).in_layer(layer)
}
