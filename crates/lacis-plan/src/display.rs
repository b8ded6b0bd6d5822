//! Formulas as a paper prints them: `D^-½·(A·(D^-½·(X·W1)))`.

use std::fmt;

use crate::expr::Expr;
use crate::op::{Adjacency, Function, Loops, Op, Scores};

impl fmt::Display for Expr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let args = self.args();
        match (self.op(), args) {
            // What another layer gives, and the gradient that comes back, have names.
            (Op::Layer(layer), _) => write!(f, "H{}", layer + 1),
            (Op::LayerGrad(layer), _) => write!(f, "G{}", layer + 1),
            (Op::LossGrad(_), _) => f.write_str("G"),
            (Op::Mul, [a, b]) => write!(f, "{}·{}", Factor(a), Factor(b)),
            (Op::Add, [a, b]) => write!(f, "{a} + {b}"),
            (Op::Bias, [x, b]) => write!(f, "{x} + {b}"),
            (Op::Scale(by), [x]) => write!(f, "{}·{}", by.get(), Factor(x)),
            (Op::ScaleBy, [s, x]) => write!(f, "{}·{}", Factor(s), Factor(x)),
            (Op::Transpose, [x]) => write!(f, "{}ᵀ", Factor(x)),
            (Op::MapGrad(g), [y, grad]) => write!(f, "{} ∘ {}'({y})", Factor(grad), name(*g)),
            (Op::Part(index), [whole]) => match (whole.op(), index) {
                (Op::Attention(_), 0) => whole.fmt(f),
                _ => write!(f, "{whole}[{index}]"),
            },
            (_, []) => leaf(self.op(), f),
            (op, args) => {
                f.write_str(&call(op))?;
                f.write_str("(")?;
                for (i, arg) in args.iter().enumerate() {
                    write!(f, "{}{arg}", if i == 0 { "" } else { ", " })?;
                }
                f.write_str(")")
            }
        }
    }
}

/// An expression inside a product: sums and products in brackets.
struct Factor<'a>(&'a Expr);

impl fmt::Display for Factor<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let inner = self.0;
        match inner.op() {
            Op::Mul | Op::Add | Op::Bias | Op::Scale(_) | Op::ScaleBy | Op::MapGrad(_) => {
                write!(f, "({inner})")
            }
            _ => write!(f, "{inner}"),
        }
    }
}

fn leaf(op: &Op, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    match op {
        Op::Features { .. } => f.write_str("X"),
        Op::Param { name, .. } => f.write_str(name),
        Op::Adjacency(Adjacency { graph, transposed, .. }) => {
            let mark = match graph.loops {
                Loops::AsStored => "",
                Loops::AddMissing | Loops::Renewed => "\u{0303}",
                Loops::Removed => "\u{0302}",
            };
            write!(f, "A{mark}{}", if *transposed { "ᵀ" } else { "" })
        }
        Op::Degrees { half_power, .. } => match half_power {
            -1 => f.write_str("D^-½"),
            -2 => f.write_str("D^-1"),
            power if power % 2 == 0 => write!(f, "D^{}", power / 2),
            power => write!(f, "D^({power}/2)"),
        },
        Op::Identity { transposed, .. } => f.write_str(if *transposed { "Iᵀ" } else { "I" }),
        op => write!(f, "{op:?}"),
    }
}

fn name(function: Function) -> &'static str {
    match function {
        Function::Relu => "relu",
        Function::LeakyRelu(_) => "leaky_relu",
        Function::Elu(_) => "elu",
        Function::Sigmoid => "sigmoid",
        Function::Tanh => "tanh",
        Function::Identity => "id",
    }
}

fn call(op: &Op) -> String {
    match op {
        Op::Map(function) => name(*function).to_owned(),
        Op::Dropout { p, .. } | Op::DropEdges { p, .. } => format!("drop{}", p.get()),
        Op::Top { level } => format!("top{level}"),
        Op::Pad { level } => format!("pad{level}"),
        Op::ColumnSums => "colsum".to_owned(),
        Op::Dot => "dot".to_owned(),
        Op::Unit => "unit".to_owned(),
        Op::UnitGrad => "unit'".to_owned(),
        Op::Concat => "concat".to_owned(),
        Op::Columns { from, width } => format!("cols[{from}..{}]", from + width),
        Op::PadColumns { from, .. } => format!("at[{from}]"),
        Op::Norm { kind, .. } => format!("{kind:?}norm").to_lowercase(),
        Op::NormGrad { kind, .. } => format!("{kind:?}norm'").to_lowercase(),
        Op::Attention(a) | Op::AttentionGrad(a) => {
            let grad = if matches!(op, Op::AttentionGrad(_)) { "'" } else { "" };
            let form = match a.scores {
                Scores::Gat => "attend",
                Scores::GatV2 => "attend2",
            };
            format!("{form}{grad}")
        }
        Op::Gated => "gated".to_owned(),
        Op::GatedGrad => "gated'".to_owned(),
        Op::Extreme(extreme) => format!("{extreme:?}").to_lowercase(),
        Op::ExtremeGrad(extreme) => format!("{extreme:?}'").to_lowercase(),
        Op::Pairs(op) => format!("pair_{op:?}").to_lowercase(),
        Op::PairsGrad(op) => format!("pair_{op:?}'").to_lowercase(),
        Op::Readout(read) => format!("readout_{read:?}").to_lowercase(),
        Op::ReadoutGrad(read) => format!("readout_{read:?}'").to_lowercase(),
        Op::Loss(kind) => format!("loss_{kind:?}").to_lowercase(),
        op => format!("{op:?}"),
    }
}
