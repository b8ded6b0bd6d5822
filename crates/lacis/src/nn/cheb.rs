//! ChebNet (Defferrard et al., "Convolutional neural networks on graphs with fast localized
//! spectral filtering", NeurIPS 2016): `Σ_k T_k(L̂)·X·W_k + b` with `L̂ = −D^-½·A·D^-½` (loops
//! removed, λ_max = 2), `T_0 = 1`, `T_1 = L̂`, `T_k = 2·L̂·T_{k-1} − T_{k-2}`.
//!
//! Shapes: `X` is n × inputs, each `W_k` inputs × outputs, `b` 1 × outputs. Weights as
//! `torch_geometric.nn.ChebConv`: `convs.l.lins.k.weight`, `convs.l.bias`.
//!
//! On the path 0–1–2 with `X` = (1, 2, 4), weights 1 and `b` = 0, a layer of two terms gives
//! -0.4142, -1.5355 and 2.5858: node 0 has 1 of its own, less 1/√(1·2)·2 from node 1.

use lacis_core::reference::Activation;
use lacis_plan::Expr;
use lacis_plan::op::{Graph, Loops};

use super::build::with_bias;
use super::stack::{Place, stack};
use super::{Build, Config, Init, Kind};

/// Terms of a layer.
const TERMS: usize = 3;

const BARE: Graph = Graph { loops: Loops::Removed, weighted: true };

pub(super) const KIND: Kind = Kind {
    name: "cheb",
    about: "Chebyshev polynomials of the Laplacian in each layer",
    paper: "Defferrard et al., NeurIPS 2016",
    formula: "Σ_k T_k(L̂)·X·W_k + b",
    build: |build, config, x| stack(build, config, x, Activation::Relu, layer),
};

/// One layer.
pub fn layer(build: &mut Build, config: &Config, x: &Expr, place: Place) -> Expr {
    let Place { index, inputs, outputs, .. } = place;
    let terms = config.hops.unwrap_or(TERMS);
    let zero = Init::Constant(0.0);
    let b = build.bias_if(config.bias, format!("convs.{index}.bias"), outputs, zero);
    let mut of = vec![x.clone()];
    for k in 1..terms {
        let [left, a, right] = build.normalised(BARE, -1);
        let hop = left * (a * (right * &of[k - 1]));
        of.push(match k {
            1 => hop.scaled(-1.0),
            _ => hop.scaled(-2.0) + of[k - 2].top(build.level()).scaled(-1.0),
        });
    }
    let level = build.level();
    let mut sum: Option<Expr> = None;
    for (k, term) in of.iter().enumerate() {
        let name = format!("convs.{index}.lins.{k}.weight");
        let term = term.top(level) * build.weight(name, inputs, outputs, Init::Glorot);
        sum = Some(match sum {
            None => term,
            Some(sum) => sum + term,
        });
    }
    let layer = build.layer();
    with_bias(sum.expect("there is a first term"), b.as_ref()).in_layer(layer)
}
