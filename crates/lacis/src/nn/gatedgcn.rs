//! Gated graph convolution (Bresson, Laurent, "Residual gated graph convnets", 2017): what a
//! neighbour says passes a gate of its own for every column, `Σ_j σ(k_i + q_j) ⊙ v_j + X·W + b`
//! with `k = X·W_k + b_k`, `q = X·W_q + b_q` and `v = X·W_v + b_v`.
//!
//! Shapes: `X` is n × inputs; `k`, `q`, `v` and the result are n × outputs. Gates are never
//! stored: they would be edges × outputs. Weights as `torch_geometric.nn.ResGatedGraphConv`:
//! `convs.l.lin_key.{weight,bias}`, likewise `lin_query` and `lin_value`,
//! `convs.l.lin_skip.weight`, `convs.l.bias`.
//!
//! On the path 0–1–2 with `X` = (1, 2, 4), weights 1 and biases 0, a layer gives 2.9051, 6.9427 and
//! 5.9951: node 0 has 1 of its own and σ(1 + 2)·2 from node 1.
//!
//! ```
//! use lacis::nn::{Config, Model};
//!
//! let model = Model::new("gatedgcn", &Config::new(5, 8, 3), None)?;
//! // Three linear layers with a bias, one without, and a bias: twice.
//! assert_eq!(model.params.len(), 16);
//! assert!(model.network.result.to_string().starts_with("H2"));
//! # Ok::<(), lacis::Error>(())
//! ```

use lacis_core::reference::Activation;
use lacis_plan::op::Graph;
use lacis_plan::{Expr, Op};

use super::build::with_bias;
use super::stack::{Place, stack};
use super::{Build, Config, Init, Kind};

pub(super) const KIND: Kind = Kind {
    name: "gatedgcn",
    about: "a gate per edge and column: the general message-passing layer",
    paper: "Bresson and Laurent, 2017",
    formula: "Σ_j σ(k_i + q_j) ⊙ v_j + X·W + b",
    build: |build, config, x| stack(build, config, x, Activation::Relu, layer),
};

/// One layer.
pub fn layer(build: &mut Build, config: &Config, x: &Expr, place: Place) -> Expr {
    let Place { index, inputs, outputs, .. } = place;
    let fan = Init::Kaiming { fan: inputs };
    let name = |what: &str| format!("convs.{index}.{what}");
    let mut linear = |side: &str| {
        let w = build.weight(name(&format!("{side}.weight")), inputs, outputs, fan);
        let b = build.bias(name(&format!("{side}.bias")), outputs, fan);
        (x * w).biased(&b)
    };
    let [key, query, value] = ["lin_key", "lin_query", "lin_value"].map(&mut linear);
    let skip =
        config.root_weight.then(|| build.weight(name("lin_skip.weight"), inputs, outputs, fan));
    let b = build.bias_if(config.bias, name("bias"), outputs, Init::Constant(0.0));
    let a = build.aggregate(Graph::BARE);
    let level = build.level();
    let gated = Expr::new(Op::Gated, vec![a, key.top(level), query, value]);
    let layer = build.layer();
    let sum = match skip {
        Some(skip) => gated + (x * skip).top(level),
        None => gated,
    };
    with_bias(sum, b.as_ref()).in_layer(layer)
}
