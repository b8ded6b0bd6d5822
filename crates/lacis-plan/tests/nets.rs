//! Networks that the tests plan, differentiate and run: one function per body.

use lacis_core::reference::Activation;
use lacis_plan::choose::Network;
use lacis_plan::expr::{adjacency, degrees, features, param, sparse_features};
use lacis_plan::op::{Attention, Extreme, Graph, LossKind, NormKind, PairOp, Read, Scores};
use lacis_plan::{Expr, Op};

use crate::eval::World;

/// `D^-½·A·D^-½·x`, from a level to the next.
pub fn hop(graph: Graph, level: u16, x: &Expr) -> Expr {
    let inner = adjacency(graph, level) * (degrees(graph, level, -1) * x);
    degrees(graph, level + 1, -1) * inner
}

fn weight(name: &str, layer: u16, rows: usize, cols: usize) -> Expr {
    param(format!("{name}{layer}"), rows, cols)
}

/// `N·x·W`.
pub fn gcn(level: u16, x: &Expr, out: usize) -> Expr {
    hop(Graph::NORMALISED, level, x) * weight("W", level, x.width(), out)
}

/// `D^-1·A·x·W + top(x)·R`.
pub fn sage(level: u16, x: &Expr, out: usize) -> Expr {
    let mean = degrees(Graph::BARE, level + 1, -2) * (adjacency(Graph::BARE, level) * x);
    let (w, r) = (weight("W", level, x.width(), out), weight("R", level, x.width(), out));
    mean * w + x.top(level + 1) * r
}

/// `(A·x + 1.25·top(x))·W`.
pub fn gin(level: u16, x: &Expr, out: usize) -> Expr {
    let sum = adjacency(Graph::BARE, level) * x + x.top(level + 1).scaled(1.25);
    sum * weight("W", level, x.width(), out)
}

/// `(A·x + top(x) + ε·top(x))·W`, ε learned.
pub fn gin_learned(level: u16, x: &Expr, out: usize) -> Expr {
    let (top, eps) = (x.top(level + 1), weight("eps", level, 1, 1));
    let sum = adjacency(Graph::BARE, level) * x + &top + top.scaled_by(&eps);
    sum * weight("W", level, x.width(), out)
}

/// `N·N·x·W`.
pub fn sgc(level: u16, x: &Expr, out: usize) -> Expr {
    let once = hop(Graph::NORMALISED, level, x);
    hop(Graph::NORMALISED, level + 1, &once) * weight("W", level, x.width(), out)
}

/// `Σ N^k·x·W_k`, `k` up to 3.
pub fn tagcn(level: u16, x: &Expr, out: usize) -> Expr {
    let (last, mut power) = (level + 3, x.clone());
    let mut sum = x.top(last) * weight("Wa", level, x.width(), out);
    for (k, name) in ["Wb", "Wc", "Wd"].iter().enumerate() {
        power = hop(Graph::WEIGHTED, level + k as u16, &power);
        sum = sum + power.top(last) * weight(name, level, x.width(), out);
    }
    sum
}

/// Two hops with edges dropped, each its own, and a share of what they began with.
pub fn appnp(level: u16, x: &Expr, out: usize) -> Expr {
    let h = x * weight("W", level, x.width(), out);
    (0..2).fold(h.clone(), |z, hop| {
        let level = level + hop;
        let a = adjacency(Graph::NORMALISED, level).drop_edges(0.3, 70 + u32::from(level));
        let n = degrees(Graph::NORMALISED, level + 1, -1)
            * (a * (degrees(Graph::NORMALISED, level, -1) * z));
        n.scaled(0.8) + h.top(level + 1).scaled(0.2)
    })
}

/// Attention with `heads` heads.
pub fn gat(level: u16, x: &Expr, heads: usize, out: usize, p: f64) -> Expr {
    let (slope, dropout) = (0.2.into(), p.into());
    let key = 50 + u32::from(level);
    let op = Attention { scores: Scores::Gat, heads, slope, dropout, key };
    let h = x * weight("W", level, x.width(), out);
    let (t, u) = (weight("t", level, heads, out / heads), weight("u", level, heads, out / heads));
    Expr::new(Op::Attention(op), vec![adjacency(Graph::ATTENDED, level), h, t, u]).part(0)
}

/// Attention with the vector after the function.
pub fn gatv2(level: u16, x: &Expr, heads: usize, out: usize) -> Expr {
    let (slope, dropout) = (0.2.into(), 0.25.into());
    let op = Attention { scores: Scores::GatV2, heads, slope, dropout, key: 60 };
    let target = x.top(level + 1) * weight("R", level, x.width(), out);
    let source = x * weight("W", level, x.width(), out);
    let v = weight("v", level, heads, out / heads);
    let args = vec![adjacency(Graph::ATTENDED, level), target, source, v];
    Expr::new(Op::Attention(op), args).part(0)
}

/// `Σ_j σ(k_i + q_j) ⊙ v_j + top(x)·R`.
pub fn gated(level: u16, x: &Expr, out: usize) -> Expr {
    let (top, width) = (x.top(level + 1), x.width());
    let k = &top * weight("K", level, width, out);
    let (q, v) = (x * weight("Q", level, width, out), x * weight("V", level, width, out));
    let sum = Expr::new(Op::Gated, vec![adjacency(Graph::BARE, level), k, q, v]);
    sum + top * weight("R", level, width, out)
}

/// `max_j(x_j)·W + top(x)·R`.
pub fn pooled(level: u16, x: &Expr, out: usize) -> Expr {
    let args = vec![adjacency(Graph::BARE, level), x.clone()];
    let max = Expr::new(Op::Extreme(Extreme::Max), args);
    let (w, r) = (weight("W", level, x.width(), out), weight("R", level, x.width(), out));
    max * w + x.top(level + 1) * r
}

pub fn norm(kind: NormKind, x: &Expr, key: u32) -> Expr {
    let (gamma, beta) =
        (param(format!("gamma{key}"), 1, x.width()), param(format!("beta{key}"), 1, x.width()));
    Expr::new(Op::Norm { kind, key }, vec![x.clone(), gamma, beta])
}

pub fn readout(read: Read, x: &Expr) -> Expr {
    Expr::new(Op::Readout(read), vec![x.clone()])
}

/// Two GCN layers, and a score per pair.
fn linked(op: PairOp) -> Expr {
    let z = two(features(WIDTH), 4, gcn);
    let pairs = Expr::new(Op::Pairs(op), vec![z]);
    match op {
        PairOp::Dot => pairs,
        PairOp::Product => {
            let hidden = layer(pairs * param("P", 3, 4), 2).map(RELU);
            layer(hidden * param("Q", 4, 1), 3)
        }
    }
}

/// A body with its bias, as layer `number`.
pub fn layer(body: Expr, number: u16) -> Expr {
    let bias = param(format!("b{number}"), 1, body.width());
    body.biased(&bias).in_layer(number)
}

/// What a network is called, what it is, how many levels it takes, and whether its features are
/// sparse.
pub struct Case {
    pub name: &'static str,
    pub network: Network,
    pub levels: usize,
    pub sparse: bool,
}

impl Case {
    /// A whole graph, or nested levels, with numbers for all parameters.
    pub fn world(&self, nested: bool, seed: u64) -> World {
        let nodes: Vec<usize> =
            (0..self.levels).map(|l| if nested { 12 - l.min(9) } else { 9 }).collect();
        let world = World::new(&nodes, WIDTH, seed);
        let world = if self.sparse { world.made_sparse() } else { world };
        world.with_params([&self.network.result], seed)
    }

    pub fn loss(&self) -> Expr {
        Expr::new(Op::Loss(self.network.loss.unwrap()), vec![self.network.result.clone()])
    }
}

/// Columns of the features.
pub const WIDTH: usize = 5;

fn case(name: &'static str, result: Expr, loss: LossKind, levels: usize) -> Case {
    let all = Expr::sorted(std::slice::from_ref(&result));
    let params = all.iter().filter(|e| matches!(e.op(), Op::Param { .. })).cloned().collect();
    let sparse = all.iter().any(|e| matches!(e.op(), Op::Features { sparse: true, .. }));
    Case { name, network: Network { result, loss: Some(loss), params }, levels, sparse }
}

const RELU: Activation = Activation::Relu;

fn two(x: Expr, wide: usize, of: impl Fn(u16, &Expr, usize) -> Expr) -> Expr {
    let hidden = layer(of(0, &x, wide), 0).map(RELU).dropout(0.4, 1);
    layer(of(1, &hidden, 3), 1)
}

fn three(of: impl Fn(u16, &Expr, usize) -> Expr) -> Expr {
    let first = layer(of(0, &features(WIDTH), 4), 0).map(RELU);
    let second = layer(of(1, &first, 4), 1).map(RELU).dropout(0.5, 1);
    layer(of(2, &second, 3), 2)
}

fn unit_net() -> Expr {
    let hidden = layer(sage(0, &features(WIDTH), 4), 0).unit().map(RELU).dropout(0.4, 1);
    layer(sage(1, &hidden, 3), 1).unit()
}

fn gat_net(heads: usize, p: f64) -> Expr {
    let x = features(WIDTH).dropout(p, 3);
    let hidden = layer(gat(0, &x, heads, 6, p), 0).map(Activation::Elu(1.0)).dropout(p, 4);
    layer(gat(1, &hidden, 1, 3, p), 1)
}

fn gin_net(read: Read) -> Expr {
    let mlp = |level: u16, x: &Expr| {
        let hidden = layer(gin_learned(level, x, 4), level).map(RELU);
        hidden * weight("V", level, 4, 4)
    };
    let first = norm(NormKind::Batch, &mlp(0, &features(WIDTH)), 0).map(RELU);
    readout(read, &mlp(1, &first)) * param("out", 4, 3)
}

fn jumping() -> Expr {
    let first = layer(gcn(0, &features(WIDTH), 4), 0).map(RELU).dropout(0.3, 1);
    let second = layer(gcn(1, &first, 4), 1).map(Activation::Tanh);
    let both = Expr::concat(&[first.top(2), second, features(WIDTH).top(2)]);
    let norm = norm(NormKind::Layer, &both.columns(1, 10), 0);
    norm * param("out", 10, 3)
}

/// Every network of the tests.
pub fn all() -> Vec<Case> {
    use LossKind::{Binary, Classes, Squares};
    let x = || features(WIDTH);
    vec![
        case("gcn wide", two(x(), 7, gcn), Classes, 3),
        case("gcn narrow", two(x(), 2, gcn), Classes, 3),
        case("gcn dropped", two(x().dropout(0.25, 9), 4, gcn), Binary, 3),
        case("gcn sparse", two(sparse_features(WIDTH), 4, gcn), Classes, 3),
        case("gcn sparse dropped", two(sparse_features(WIDTH).dropout(0.5, 2), 4, gcn), Classes, 3),
        case("gcn three", three(gcn), Squares, 4),
        case("sage", two(x(), 4, sage), Classes, 3),
        case("sage three", three(sage), Classes, 4),
        case("sage of length one", unit_net(), Squares, 3),
        case("gin", two(x(), 4, gin), Squares, 3),
        case("gin learned", two(x(), 4, gin_learned), Classes, 3),
        case("sgc", layer(sgc(0, &x(), 3), 0), Classes, 3),
        case("tagcn", layer(tagcn(0, &x(), 3), 0), Classes, 4),
        case("appnp dropped", layer(appnp(0, &x(), 3), 0), Classes, 3),
        case("gat", gat_net(2, 0.0), Classes, 3),
        case("gat one", gat_net(1, 0.3), Classes, 3),
        case("gatv2", layer(gatv2(0, &x(), 2, 6), 0), Squares, 2),
        case("gated", two(x(), 4, gated), Classes, 3),
        case("pooled", two(x(), 4, pooled), Classes, 3),
        case("gin sum", gin_net(Read::Sum), Classes, 3),
        case("gin mean", gin_net(Read::Mean), Squares, 3),
        case("gin max", gin_net(Read::Max), Squares, 3),
        case("jumping", jumping(), Classes, 3),
        case("linked", linked(PairOp::Dot), Binary, 3),
        case("linked by a network", linked(PairOp::Product), Binary, 3),
    ]
}
