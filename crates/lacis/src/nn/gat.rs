//! GAT (Veličković et al., "Graph attention networks", ICLR 2018) and GATv2 (Brody et al., "How
//! attentive are graph attention networks?", ICLR 2022): `y_i = Σ_j α_ij·z_j + b` with `z = X·W`,
//! where `α_ij` is the softmax, over `i`'s edges and its loop, of `leaky(t·z_i + u·z_j)`; in the
//! second version of `v·leaky(x_i + z_j)`, with `x = X·W_r + b_r` and `z = X·W_l + b_l`.
//!
//! Shapes: `X` is n × inputs, `z` n × outputs, cut into heads; `t`, `u` and `v` are heads ×
//! channels. Heads are put together between layers; the last layer has one, or gives the mean of
//! several. Weights as torch_geometric's layers: `convs.l.lin.weight`, `convs.l.att_src`,
//! `convs.l.att_dst`, `convs.l.bias`; for the second version `convs.l.{lin_l,lin_r}.{weight,bias}`,
//! `convs.l.att`, `convs.l.bias`.
//!
//! On the path 0–1–2 with `X` = (1, 2, 4), weights 1 and biases 0, a layer of one head gives
//! 1.7311, 3.6456 and 3.7616: node 0 sees 1 and 2, with shares 1/(1 + e) and e/(1 + e).

use lacis_core::reference::Activation;
use lacis_plan::op::{Attention, Graph, Scores};
use lacis_plan::{Expr, Op};

use super::build::{Stored, with_bias};
use super::stack::{Place, stack};
use super::{Build, Config, Init, Kind};

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

/// A layer's attention, and the columns of all its heads together.
fn attention(
    build: &mut Build,
    config: &Config,
    place: Place,
    scores: Scores,
) -> (Attention, usize) {
    let (heads, width) = match place.last {
        true => (config.out_heads, config.out_heads * place.outputs),
        false => (config.heads, place.outputs),
    };
    let (slope, dropout) = (config.slope.into(), config.dropout.into());
    (Attention { scores, heads, slope, dropout, key: build.key() }, width)
}

/// What becomes of heads: put together between layers, their mean at the end.
fn joined(attended: Expr, heads: usize, place: Place) -> Expr {
    if !place.last || heads == 1 {
        return attended;
    }
    let head = |h: usize| attended.columns(h * place.outputs, place.outputs);
    let sum = (1..heads).fold(head(0), |sum, h| sum + head(h));
    sum.scaled(1.0 / heads as f64)
}

/// One layer of GAT.
pub fn layer(build: &mut Build, config: &Config, x: &Expr, place: Place) -> Expr {
    let Place { index, inputs, outputs, .. } = place;
    let (attention, width) = attention(build, config, place, Scores::Gat);
    let name = |what: &str| format!("convs.{index}.{what}");
    // Vectors are heads × channels; heads that do not divide the width are told of by the formula.
    let heads = attention.heads;
    let shape = [heads, width.checked_div(heads).unwrap_or(0)];
    let u = build.param(name("att_src"), shape, Init::Glorot, Stored::Heads);
    let t = build.param(name("att_dst"), shape, Init::Glorot, Stored::Heads);
    let b = build.bias_if(config.bias, name("bias"), outputs, Init::Constant(0.0));
    let w = build.weight(name("lin.weight"), inputs, width, Init::Glorot);
    let a = build.aggregate(Graph::ATTENDED);
    let layer = build.layer();
    let attended = Expr::new(Op::Attention(attention), vec![a, x * w, t, u]);
    with_bias(joined(attended.part(0), heads, place), b.as_ref()).in_layer(layer)
}

/// One layer of GATv2.
pub fn layer_v2(build: &mut Build, config: &Config, x: &Expr, place: Place) -> Expr {
    let Place { index, inputs, outputs, .. } = place;
    let (attention, width) = attention(build, config, place, Scores::GatV2);
    let name = |what: &str| format!("convs.{index}.{what}");
    let heads = attention.heads;
    let shape = [heads, width.checked_div(heads).unwrap_or(0)];
    let v = build.param(name("att"), shape, Init::Glorot, Stored::Heads);
    let zero = Init::Constant(0.0);
    let b = build.bias_if(config.bias, name("bias"), outputs, zero);
    let mut linear = |side: &str| {
        let w = build.weight(name(&format!("{side}.weight")), inputs, width, Init::Glorot);
        let b = build.bias_if(config.bias, name(&format!("{side}.bias")), width, zero);
        with_bias(x * w, b.as_ref())
    };
    let (source, target) = (linear("lin_l"), linear("lin_r"));
    let a = build.aggregate(Graph::ATTENDED);
    let layer = build.layer();
    let args = vec![a, target.top(build.level()), source, v];
    let attended = Expr::new(Op::Attention(attention), args).part(0);
    with_bias(joined(attended, heads, place), b.as_ref()).in_layer(layer)
}
