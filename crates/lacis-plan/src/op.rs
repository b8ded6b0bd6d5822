//! What a formula is made of: operations, and the shapes they give.

use std::hash::{Hash, Hasher};

use lacis_core::reference::{Activation, EdgeOp, Reduce};
use serde::{Deserialize, Serialize};

use crate::dim::Dim;
use crate::expr::{Expr, Kind};

/// A number that formulas can be compared by: equal bits are equal.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Number(f64);

impl Number {
    /// The number.
    pub fn get(self) -> f64 {
        self.0
    }
}

impl From<f64> for Number {
    fn from(number: f64) -> Self {
        Number(number)
    }
}

impl PartialEq for Number {
    fn eq(&self, other: &Self) -> bool {
        self.0.to_bits() == other.0.to_bits()
    }
}

impl Eq for Number {}

impl Hash for Number {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.to_bits().hash(state);
    }
}

/// A pointwise function, comparable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Function {
    /// `max(x, 0)`.
    Relu,
    /// `x` above 0, a share of it below.
    LeakyRelu(Number),
    /// `x` above 0, `α·(eˣ − 1)` below.
    Elu(Number),
    /// `1 / (1 + e⁻ˣ)`.
    Sigmoid,
    /// `tanh x`.
    Tanh,
    /// `x` itself.
    Identity,
}

impl From<Activation> for Function {
    fn from(activation: Activation) -> Self {
        match activation {
            Activation::Identity => Function::Identity,
            Activation::Relu => Function::Relu,
            Activation::LeakyRelu(slope) => Function::LeakyRelu(slope.into()),
            Activation::Elu(alpha) => Function::Elu(alpha.into()),
            Activation::Sigmoid => Function::Sigmoid,
            Activation::Tanh => Function::Tanh,
        }
    }
}

impl From<Function> for Activation {
    fn from(function: Function) -> Self {
        match function {
            Function::Identity => Activation::Identity,
            Function::Relu => Activation::Relu,
            Function::LeakyRelu(slope) => Activation::LeakyRelu(slope.get()),
            Function::Elu(alpha) => Activation::Elu(alpha.get()),
            Function::Sigmoid => Activation::Sigmoid,
            Function::Tanh => Activation::Tanh,
        }
    }
}

impl Function {
    /// Whether the derivative is read off the function's value rather than its argument: not where
    /// both signs of the argument give values above 0.
    pub fn saves_result(self) -> bool {
        !matches!(self, Function::LeakyRelu(c) | Function::Elu(c) if c.get() < 0.0)
    }
}

/// What becomes of loops, from a node to itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Loops {
    /// As they are stored.
    AsStored,
    /// Every node has one: its own, or a new one of weight 1 (`gcn_norm`).
    AddMissing,
    /// Those stored are removed, then every node gets one of weight 1 (GAT).
    Renewed,
    /// None (`ChebConv`).
    Removed,
}

/// The adjacency as a layer wants it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Graph {
    /// Loops.
    pub loops: Loops,
    /// Whether edges keep their weights.
    pub weighted: bool,
}

impl Graph {
    /// Weights and a loop per node: what GCN, SGC, APPNP and GCNII normalise.
    pub const NORMALISED: Graph = Graph { loops: Loops::AddMissing, weighted: true };
    /// As stored, with weights: TAGCN.
    pub const WEIGHTED: Graph = Graph { loops: Loops::AsStored, weighted: true };
    /// Who points to whom: SAGE, GIN.
    pub const BARE: Graph = Graph { loops: Loops::AsStored, weighted: false };
    /// Who points to whom, and every node to itself: GAT.
    pub const ATTENDED: Graph = Graph { loops: Loops::Renewed, weighted: false };

    /// Whether every node has a loop for certain.
    pub fn has_loops(self) -> bool {
        matches!(self.loops, Loops::AddMissing | Loops::Renewed)
    }
}

/// An adjacency leaf.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Adjacency {
    /// Which treatment.
    pub graph: Graph,
    /// From this level to the next.
    pub level: u16,
    /// From the next level back to this one.
    pub transposed: bool,
}

impl Adjacency {
    /// Its transpose.
    pub fn turned(self) -> Self {
        Adjacency { transposed: !self.transposed, ..self }
    }
}

/// How an edge is scored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Scores {
    /// `leaky(t·x_i + u·z_j)`: arguments `A, z, t, u`.
    Gat,
    /// `v·leaky(x_i + z_j)`: arguments `A, x, z, v`.
    GatV2,
}

/// Attention over a node's edges.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Attention {
    /// Scores.
    pub scores: Scores,
    /// Heads.
    pub heads: usize,
    /// The LeakyReLU's slope.
    pub slope: Number,
    /// Probability that a coefficient is dropped.
    pub dropout: Number,
    /// Tells drop-outs apart.
    pub key: u32,
}

impl Attention {
    /// Numbers of each target that are kept for the gradient, where the result is `width` wide: one
    /// per head, and for GAT the sums that make its pass over targets free of edges.
    pub fn kept_columns(&self, width: usize) -> usize {
        match self.scores {
            Scores::Gat => 2 * self.heads + width,
            Scores::GatV2 => self.heads,
        }
    }
}

/// Which normalisation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum NormKind {
    /// Columns over all rows.
    Batch,
    /// Rows.
    Layer,
}

/// What is minimised.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum LossKind {
    /// Cross-entropy of one class per row.
    Classes,
    /// Binary cross-entropy of each column.
    Binary,
    /// Mean of squared differences.
    Squares,
}

/// An operation. The comments name its arguments.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Op {
    /// The nodes' features.
    Features {
        /// Columns.
        width: usize,
        /// Whether they are stored as a sparse matrix.
        sparse: bool,
    },
    /// Something to learn.
    Param {
        /// Its name.
        name: String,
        /// Rows and columns.
        shape: [usize; 2],
    },
    /// An adjacency.
    Adjacency(Adjacency),
    /// A power of degrees, as a diagonal.
    Degrees {
        /// Of which adjacency.
        graph: Graph,
        /// At which level.
        level: u16,
        /// Twice the exponent.
        half_power: i8,
    },
    /// Ones from a level to those of its nodes that the next one keeps.
    Identity {
        /// The level.
        level: u16,
        /// Back again.
        transposed: bool,
    },
    /// `a·b`.
    Mul,
    /// `a + b`.
    Add,
    /// `c·x`.
    Scale(Number),
    /// `s·x`, `s` of one element.
    ScaleBy,
    /// `Σ a∘b`, one element.
    Dot,
    /// `xᵀ`.
    Transpose,
    /// The first rows, those of a later level.
    Top {
        /// Which.
        level: u16,
    },
    /// Zeros below, up to the rows of an earlier level.
    Pad {
        /// Which.
        level: u16,
    },
    /// `x + 1·b`.
    Bias,
    /// Sums of columns.
    ColumnSums,
    /// `f(x)`.
    Map(Function),
    /// `g ∘ f'`, from `f`'s result (or argument) and `g`.
    MapGrad(Function),
    /// `x_i / |x_i|`: rows of length one.
    Unit,
    /// Its gradient, from `x` and `g`.
    UnitGrad,
    /// `x` with elements dropped; its own gradient.
    Dropout {
        /// Probability.
        p: Number,
        /// Tells drop-outs apart.
        key: u32,
    },
    /// An adjacency with entries dropped, each one by its number in the whole graph, which it has
    /// in the transpose too.
    DropEdges {
        /// Probability.
        p: Number,
        /// Tells drop-outs apart.
        key: u32,
    },
    /// Columns beside each other.
    Concat,
    /// Some columns.
    Columns {
        /// The first.
        from: usize,
        /// How many.
        width: usize,
    },
    /// Zeros around some columns.
    PadColumns {
        /// Where they begin.
        from: usize,
        /// How wide the result is.
        width: usize,
    },
    /// `(x, γ, β)` normalised.
    Norm {
        /// How.
        kind: NormKind,
        /// Tells norms apart: moments are kept under it.
        key: u32,
    },
    /// `(x, γ, g)` to the gradients of `x`, `γ`, `β`.
    NormGrad {
        /// How.
        kind: NormKind,
        /// Whose moments.
        key: u32,
    },
    /// Attention: the result and a number per node and head for its gradient.
    Attention(Attention),
    /// The arguments, both results and `g`, to the gradients of the arguments but the adjacency.
    AttentionGrad(Attention),
    /// `Σ_j σ(k_i + q_j) ⊙ v_j` over a node's edges: `(A, k, q, v)`.
    Gated,
    /// `(A, k, q, v, g)` to the gradients of `k`, `q` and `v`.
    GatedGrad,
    /// `max` or `min` over a node's edges: `(A, x)`.
    Extreme(Extreme),
    /// `(A, x, y, g)` to the gradient of `x`.
    ExtremeGrad(Extreme),
    /// Nodes to graphs.
    Readout(Read),
    /// `(x, y, g)` to the gradient of `x`.
    ReadoutGrad(Read),
    /// Rows of nodes to one of each pair: `(z)`.
    Pairs(PairOp),
    /// `(z, g)` to the gradient of `z`.
    PairsGrad(PairOp),
    /// `logits` to one number.
    Loss(LossKind),
    /// `logits` to the gradient of the loss.
    LossGrad(LossKind),
    /// One of several values.
    Part(usize),
    /// A barrier around what a layer computes; the value itself.
    Layer(u16),
    /// The same for the gradient that comes back to a layer.
    LayerGrad(u16),
}

/// A maximum or a minimum.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Extreme {
    /// The greatest.
    Max,
    /// The least.
    Min,
}

impl From<Extreme> for Reduce {
    fn from(extreme: Extreme) -> Self {
        match extreme {
            Extreme::Max => Reduce::Max,
            Extreme::Min => Reduce::Min,
        }
    }
}

/// What is made of the rows of a pair's two nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum PairOp {
    /// Their dot product, one column.
    Dot,
    /// Their product, element by element.
    Product,
}

impl From<PairOp> for EdgeOp {
    fn from(op: PairOp) -> Self {
        match op {
            PairOp::Dot => EdgeOp::Dot,
            PairOp::Product => EdgeOp::Mul,
        }
    }
}

/// How nodes become a graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Read {
    /// Their sum.
    Sum,
    /// Their mean.
    Mean,
    /// Their maximum.
    Max,
}

impl From<Read> for Reduce {
    fn from(read: Read) -> Self {
        match read {
            Read::Sum => Reduce::Sum,
            Read::Mean => Reduce::Mean,
            Read::Max => Reduce::Max,
        }
    }
}

type Shaped = Result<([Dim; 2], Kind), String>;

impl Op {
    /// Whether it gives the same for the same arguments in every epoch.
    pub fn is_constant(&self) -> bool {
        !matches!(
            self,
            Op::Param { .. }
                | Op::Dropout { .. }
                | Op::DropEdges { .. }
                | Op::Attention(_)
                | Op::AttentionGrad(_)
                | Op::Pairs(_)
                | Op::PairsGrad(_)
        )
    }

    /// Shape and kind of the result, or what does not fit.
    pub fn shape(&self, args: &[Expr]) -> Shaped {
        match (self, args) {
            (_, []) => self.leaf_shape(),
            (Op::Mul, [a, b]) => product_shape(a, b),
            (Op::Add, [a, b]) => {
                same(self, a, b)?;
                let sparse = a.kind() == Kind::Sparse || b.kind() == Kind::Sparse;
                let kind = if sparse { Kind::Sparse } else { a.kind() };
                Ok((a.shape(), kind))
            }
            (Op::Transpose, [x]) => Ok(([x.cols(), x.rows()], x.kind())),
            (Op::Top { level } | Op::Pad { level }, [x]) => {
                Ok(([Dim::Nodes(*level), x.cols()], Kind::Dense))
            }
            (Op::ColumnSums, [x]) => Ok(([Dim::Width(1), x.cols()], Kind::Dense)),
            (Op::Dot, [a, b]) => same(self, a, b).map(|()| ([Dim::Width(1); 2], Kind::Dense)),
            (Op::Bias, [x, b]) => match b.shape() == [Dim::Width(1), x.cols()] {
                true => Ok((x.shape(), Kind::Dense)),
                false => Err(format!("a bias of {b:?} does not fit {x:?}")),
            },
            (Op::Unit, [x]) => Ok((x.shape(), Kind::Dense)),
            (Op::MapGrad(_) | Op::UnitGrad, [y, g]) => {
                same(self, y, g).map(|()| (g.shape(), Kind::Dense))
            }
            (Op::ScaleBy, [_, x]) => Ok((x.shape(), x.kind())),
            (
                Op::Scale(_) | Op::Map(_) | Op::Dropout { .. } | Op::Layer(_) | Op::LayerGrad(_),
                [x],
            ) => Ok((x.shape(), x.kind())),
            (Op::DropEdges { .. }, [a]) => match a.op() {
                Op::Adjacency(_) => Ok((a.shape(), Kind::Sparse)),
                _ => Err(format!("{a} has no edges to drop")),
            },
            (Op::Concat, parts) => concat_shape(parts),
            (Op::Columns { from, width }, [x]) => match from + width <= x.width() {
                true => Ok(([x.rows(), Dim::Width(*width)], Kind::Dense)),
                false => Err(format!("{x:?} has no {width} columns from {from} on")),
            },
            (Op::PadColumns { width, .. }, [x]) => {
                Ok(([x.rows(), Dim::Width(*width)], Kind::Dense))
            }
            _ => self.composite_shape(args),
        }
    }

    fn leaf_shape(&self) -> Shaped {
        let nodes = Dim::Nodes;
        Ok(match self {
            Op::Features { width, sparse } => {
                let kind = if *sparse { Kind::Sparse } else { Kind::Dense };
                ([nodes(0), Dim::Width(*width)], kind)
            }
            Op::Param { shape, .. } => (shape.map(Dim::Width), Kind::Dense),
            Op::Adjacency(Adjacency { level, transposed, .. })
            | Op::Identity { level, transposed } => {
                let shape = [nodes(level + 1), nodes(*level)];
                (if *transposed { [shape[1], shape[0]] } else { shape }, Kind::Sparse)
            }
            Op::Degrees { level, .. } => ([nodes(*level); 2], Kind::Diagonal),
            _ => return Err(format!("{self:?} needs arguments")),
        })
    }

    fn composite_shape(&self, args: &[Expr]) -> Shaped {
        match (self, args) {
            (Op::Norm { .. }, [x, _, _]) => Ok((x.shape(), Kind::Dense)),
            (Op::Attention(attention), [a, x, ..]) => match attention.heads {
                0 => Err("attention needs a head".to_owned()),
                heads if x.width() % heads == 0 => Ok(([a.rows(), x.cols()], Kind::Parts)),
                heads => {
                    Err(format!("{heads} heads do not divide the {} columns of {x}", x.cols()))
                }
            },
            (Op::Extreme(_), [a, x]) => match a.cols() == x.rows() {
                true => Ok(([a.rows(), x.cols()], Kind::Dense)),
                false => Err(unfit(a, x)),
            },
            (Op::Gated, [a, k, q, v]) => {
                same(self, q, v)?;
                match [a.rows(), a.cols()] == [k.rows(), v.rows()] && k.cols() == v.cols() {
                    true => Ok((k.shape(), Kind::Dense)),
                    false => Err(unfit(a, v)),
                }
            }
            (Op::GatedGrad, [_, k, ..]) => Ok((k.shape(), Kind::Parts)),
            (Op::ExtremeGrad(_), [_, x, ..]) => Ok((x.shape(), Kind::Dense)),
            (Op::NormGrad { .. } | Op::AttentionGrad(_), [x, ..]) => Ok((x.shape(), Kind::Parts)),
            (Op::Readout(_), [x]) => Ok(([Dim::Graphs, x.cols()], Kind::Dense)),
            (Op::ReadoutGrad(_), [x, ..]) => Ok((x.shape(), Kind::Dense)),
            (Op::Pairs(PairOp::Dot), [_]) => Ok(([Dim::Pairs, Dim::Width(1)], Kind::Dense)),
            (Op::Pairs(PairOp::Product), [z]) => Ok(([Dim::Pairs, z.cols()], Kind::Dense)),
            (Op::PairsGrad(_), [z, _]) => Ok((z.shape(), Kind::Dense)),
            (Op::Loss(_), [_]) => Ok(([Dim::Width(1); 2], Kind::Dense)),
            (Op::LossGrad(_), [x]) => Ok((x.shape(), Kind::Dense)),
            (Op::Part(index), [whole]) => part_shape(*index, whole),
            _ => Err(format!("{self:?} does not take {} arguments", args.len())),
        }
    }
}

fn unfit(a: &Expr, b: &Expr) -> String {
    format!("{a}·{b} does not fit: {}×{} times {}×{}", a.rows(), a.cols(), b.rows(), b.cols())
}

fn same(op: &Op, a: &Expr, b: &Expr) -> Result<(), String> {
    match a.shape() == b.shape() {
        true => Ok(()),
        false => Err(format!("{op:?} of {a:?} and {b:?}: shapes differ")),
    }
}

fn product_shape(a: &Expr, b: &Expr) -> Shaped {
    if a.cols() != b.rows() {
        return Err(unfit(a, b));
    }
    let kind = match (a.kind(), b.kind()) {
        (Kind::Parts, _) | (_, Kind::Parts) => return Err(format!("{a} or {b} is no matrix")),
        (Kind::Dense, _) | (_, Kind::Dense) => Kind::Dense,
        (Kind::Diagonal, Kind::Diagonal) => Kind::Diagonal,
        _ => Kind::Sparse,
    };
    Ok(([a.rows(), b.cols()], kind))
}

fn concat_shape(parts: &[Expr]) -> Shaped {
    let width = parts.iter().map(Expr::width).sum();
    let Some(first) = parts.first() else { return Err("nothing to put together".to_owned()) };
    match parts.iter().find(|part| part.rows() != first.rows()) {
        None => Ok(([first.rows(), Dim::Width(width)], Kind::Dense)),
        Some(odd) => Err(format!("{odd:?} has other rows than {first:?}")),
    }
}

/// Shapes of the values that come together.
fn part_shape(index: usize, whole: &Expr) -> Shaped {
    let args = whole.args();
    let shape = match (whole.op(), index) {
        (Op::Attention(_), 0) => whole.shape(),
        (Op::Attention(attention), 1) => {
            [whole.rows(), Dim::Width(attention.kept_columns(whole.width()))]
        }
        (Op::AttentionGrad(_), index) if index + 4 < args.len() => args[index + 1].shape(),
        (Op::GatedGrad, 0..=2) => args[index + 1].shape(),
        (Op::NormGrad { .. }, 0) => args[0].shape(),
        (Op::NormGrad { .. }, 1 | 2) => args[1].shape(),
        _ => return Err(format!("{whole} has no part {index}")),
    };
    Ok((shape, Kind::Dense))
}
