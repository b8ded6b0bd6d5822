//! Gradients: one rule per operation, each a formula, so that the backward pass is planned as the
//! forward pass is.

use std::collections::HashMap;

use crate::dim::Dim;
use crate::expr::{Expr, Kind, mul};
use crate::op::{Op, Scores};

/// What a rule gives: the gradient of an argument, by its place.
type Grads = Vec<(usize, Expr)>;

/// The gradients of `loss` with respect to `of`; `None` where it does not depend on it.
///
/// A gradient that reaches a value along several ways is added up before it goes on, as always in
/// reverse mode; what a layer's barrier surrounds becomes barriers of the backward pass.
pub fn gradients(loss: &Expr, of: &[Expr]) -> Vec<Option<Expr>> {
    let order = Expr::sorted(std::slice::from_ref(loss));
    let wanted = depends_on(&order, of);
    let mut grads: HashMap<u128, Expr> = HashMap::new();
    for expr in order.iter().rev() {
        if !wanted.contains_key(&expr.id()) {
            continue;
        }
        let upstream = grads.get(&expr.id()).cloned();
        for (place, grad) in rule(expr, upstream.as_ref(), &|arg| wanted.contains_key(&arg.id())) {
            let arg = &expr.args()[place];
            if wanted.contains_key(&arg.id()) {
                let sum = match grads.remove(&arg.id()) {
                    None => grad,
                    Some(already) => already + grad,
                };
                grads.insert(arg.id(), sum);
            }
        }
    }
    of.iter().map(|x| grads.get(&x.id()).cloned()).collect()
}

/// What lies between the loss and the leaves asked for.
fn depends_on(order: &[Expr], of: &[Expr]) -> HashMap<u128, ()> {
    let mut wanted: HashMap<u128, ()> = of.iter().map(|x| (x.id(), ())).collect();
    for expr in order {
        if expr.args().iter().any(|arg| wanted.contains_key(&arg.id())) {
            wanted.insert(expr.id(), ());
        }
    }
    wanted
}

/// The gradients of an operation's arguments from that of its result, `g`.
fn rule(expr: &Expr, g: Option<&Expr>, wanted: &dyn Fn(&Expr) -> bool) -> Grads {
    let args = expr.args();
    if let (Op::Loss(kind), [logits]) = (expr.op(), args) {
        return vec![(0, Expr::new(Op::LossGrad(*kind), vec![logits.clone()]))];
    }
    let Some(g) = g else { return vec![] };
    match (expr.op(), args) {
        (Op::Mul, [a, b]) => {
            // Adjacencies and degrees are data: their gradients are never asked for.
            let left = (a.kind() == Kind::Dense && wanted(a)).then(|| (0, mul(g, &b.t())));
            let right = (b.kind() == Kind::Dense && wanted(b)).then(|| (1, mul(&a.t(), g)));
            left.into_iter().chain(right).collect()
        }
        (Op::Add, [_, _]) => vec![(0, g.clone()), (1, g.clone())],
        (Op::Scale(by), [_]) => vec![(0, g.scaled(by.get()))],
        (Op::ScaleBy, [s, x]) => {
            let dot = Expr::new(Op::Dot, vec![g.clone(), x.clone()]);
            vec![(0, dot), (1, g.scaled_by(s))]
        }
        (Op::Transpose, [_]) => vec![(0, g.t())],
        (Op::Layer(layer), [_]) => {
            vec![(0, Expr::new(Op::LayerGrad(*layer), vec![g.clone()]))]
        }
        (Op::LayerGrad(_), [_]) => vec![(0, g.clone())],
        (Op::Top { .. } | Op::Pad { .. }, [x]) => vec![(0, moved(expr, x, g))],
        (Op::Bias, [_, _]) => {
            vec![(0, g.clone()), (1, Expr::new(Op::ColumnSums, vec![g.clone()]))]
        }
        (Op::Map(f), [x]) => {
            let saved = if f.saves_result() { expr } else { x };
            vec![(0, Expr::new(Op::MapGrad(*f), vec![saved.clone(), g.clone()]))]
        }
        (Op::Unit, [x]) => {
            vec![(0, Expr::new(Op::UnitGrad, vec![x.clone(), g.clone()]))]
        }
        (Op::Dropout { .. }, [_]) => vec![(0, Expr::new(expr.op().clone(), vec![g.clone()]))],
        (Op::Concat, parts) => split(parts, g),
        (Op::Columns { from, .. }, [x]) => {
            let op = Op::PadColumns { from: *from, width: x.width() };
            vec![(0, Expr::new(op, vec![g.clone()]))]
        }
        _ => composite_rule(expr, g),
    }
}

/// Rows that were cut off get zeros; rows that were added are cut off.
fn moved(expr: &Expr, x: &Expr, g: &Expr) -> Expr {
    let Dim::Nodes(level) = x.rows() else { return g.clone() };
    match expr.op() {
        Op::Top { .. } => Expr::new(Op::Pad { level }, vec![g.clone()]),
        _ => g.top(level),
    }
}

fn split(parts: &[Expr], g: &Expr) -> Grads {
    let mut from = 0;
    let mut grads = Vec::new();
    for (place, part) in parts.iter().enumerate() {
        grads.push((place, g.columns(from, part.width())));
        from += part.width();
    }
    grads
}

/// Operations whose gradients are kernels of their own.
fn composite_rule(expr: &Expr, g: &Expr) -> Grads {
    let args = expr.args();
    match (expr.op(), args) {
        (Op::Norm { kind, key }, [x, gamma, _]) => {
            let op = Op::NormGrad { kind: *kind, key: *key };
            let all = Expr::new(op, vec![x.clone(), gamma.clone(), g.clone()]);
            (0..3).map(|i| (i, all.part(i))).collect()
        }
        (Op::Part(0), [whole]) if matches!(whole.op(), Op::Attention(_)) => {
            // The rule of the attention itself takes this as its upstream.
            vec![(0, g.clone())]
        }
        (Op::Attention(attention), _) => {
            let mut all = args.to_vec();
            all.extend([expr.part(0), expr.part(1), g.clone()]);
            let grad = Expr::new(Op::AttentionGrad(*attention), all);
            let count = match attention.scores {
                Scores::Gat | Scores::GatV2 => 3,
            };
            (0..count).map(|i| (i + 1, grad.part(i))).collect()
        }
        (Op::Gated, _) => {
            let all = [args, std::slice::from_ref(g)].concat();
            let grad = Expr::new(Op::GatedGrad, all);
            (0..3).map(|i| (i + 1, grad.part(i))).collect()
        }
        (Op::Extreme(extreme), [a, x]) => {
            let all = vec![a.clone(), x.clone(), expr.clone(), g.clone()];
            vec![(1, Expr::new(Op::ExtremeGrad(*extreme), all))]
        }
        (Op::Pairs(op), [z]) => {
            vec![(0, Expr::new(Op::PairsGrad(*op), vec![z.clone(), g.clone()]))]
        }
        (Op::Readout(read), [x]) => {
            let all = vec![x.clone(), expr.clone(), g.clone()];
            vec![(0, Expr::new(Op::ReadoutGrad(*read), all))]
        }
        _ => vec![],
    }
}
