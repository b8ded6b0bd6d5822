//! TAGCN (Du et al., "Topology adaptive graph convolutional networks", 2017):
//! `Σ_k N^k·X·W_k + b` with `N = D^-½·A·D^-½`, no loops added.
//!
//! Shapes: `X` is n × inputs, each `W_k` inputs × outputs, `b` 1 × outputs. Weights as
//! `torch_geometric.nn.TAGConv`: `convs.l.lins.k.weight`, `convs.l.bias`.
//!
//! On the path 0–1–2 with `X` = (1, 2, 4), weights 1 and `b` = 0, a layer of one hop gives 2.4142,
//! 5.5355 and 5.4142: node 0 has 1 of its own and 1/√(1·2)·2 from node 1.

use lacis_core::reference::Activation;
use lacis_plan::Expr;
use lacis_plan::op::Graph;

use super::build::with_bias;
use super::stack::{Place, stack};
use super::{Build, Config, Init, Kind};

/// Hops of a layer, as torch_geometric has them.
const HOPS: usize = 3;

pub(super) const KIND: Kind = Kind {
    name: "tagcn",
    about: "a polynomial of the normalised adjacency in each layer",
    paper: "Du et al., 2017",
    formula: "Σ_k N^k·X·W_k + b",
    build: |build, config, x| stack(build, config, x, Activation::Relu, layer),
};

/// One layer.
pub fn layer(build: &mut Build, config: &Config, x: &Expr, place: Place) -> Expr {
    let Place { index, inputs, outputs, .. } = place;
    let hops = config.hops.unwrap_or(HOPS);
    let zero = Init::Constant(0.0);
    let b = build.bias_if(config.bias, format!("convs.{index}.bias"), outputs, zero);
    let fan = Init::Kaiming { fan: inputs };
    let weights: Vec<Expr> = (0..=hops)
        .map(|k| build.weight(format!("convs.{index}.lins.{k}.weight"), inputs, outputs, fan))
        .collect();
    if x.kind() != lacis_plan::Kind::Dense {
        return with_bias(horner(build, x, &weights), b.as_ref()).in_layer(build.layer());
    }
    let mut powers = vec![x.clone()];
    for _ in 0..hops {
        let [left, a, right] = build.normalised(Graph::WEIGHTED, -1);
        let last = &powers[powers.len() - 1];
        powers.push(left * (a * (right * last)));
    }
    let level = build.level();
    let terms = powers.iter().zip(&weights).map(|(power, w)| power.top(level) * w);
    let sum = terms.reduce(|sum, term| sum + term).expect("there is a term without hops");
    with_bias(sum, b.as_ref()).in_layer(build.layer())
}

/// The same for sparse features, which are multiplied first: `N·(N·(X·W_2) + X·W_1) + X·W_0`.
fn horner(build: &mut Build, x: &Expr, weights: &[Expr]) -> Expr {
    let mut terms = weights.iter().rev().map(|w| x * w);
    let mut sum = terms.next().expect("there is a term without hops");
    for term in terms {
        let [left, a, right] = build.normalised(Graph::WEIGHTED, -1);
        sum = left * (a * (right * sum)) + term.top(build.level());
    }
    sum
}
