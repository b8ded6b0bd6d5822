//! The backward pass: chains of gradients bracketed again, and masks that need not be drawn twice.

use std::collections::{HashMap, HashSet};

use super::Price;
use crate::compose::factors;
use crate::expr::{Expr, Kind, mul};
use crate::lower::Goal;
use crate::op::{Function, Op};

/// The share that a dropout keeps is a multiple of this.
const SHARES: f64 = 65536.0;

/// `g ∘ mask ∘ relu'(y)` is `g·scale ∘ relu'(y ∘ mask)`: the sign of what was kept tells both, so
/// the mask is not drawn again and `y` itself need not be kept.
pub fn without_masks(goal: Goal) -> Goal {
    let Some(loss) = &goal.loss else { return goal };
    let forward: HashSet<u128> =
        Expr::sorted(std::slice::from_ref(loss)).iter().map(Expr::id).collect();
    let mut made: HashMap<u128, Expr> = HashMap::new();
    for expr in Expr::sorted(&gradients(&goal)) {
        let args: Vec<Expr> = expr.args().iter().map(|a| made[&a.id()].clone()).collect();
        let new = match sign_saved(&expr, &args, &forward) {
            Some(new) => new,
            None if args == expr.args() => expr.clone(),
            None => crate::expr::rebuilt(expr.op(), args),
        };
        made.insert(expr.id(), new);
    }
    let new = gradients(&goal).iter().map(|root| made[&root.id()].clone()).collect();
    with_gradients(goal, new)
}

/// All gradients of a goal.
fn gradients(goal: &Goal) -> Vec<Expr> {
    let learned = goal.params.iter().filter_map(|(_, grad)| grad.clone());
    learned.chain(goal.extra.iter().cloned()).collect()
}

/// A goal with other gradients, as many as it has.
fn with_gradients(goal: Goal, gradients: Vec<Expr>) -> Goal {
    let mut new = gradients.into_iter();
    let params =
        goal.params.into_iter().map(|(param, grad)| (param, grad.and_then(|_| new.next())));
    let params = params.collect();
    Goal { params, extra: new.collect(), ..goal }
}

/// The gradient through a relu and the dropout after it, where the dropped result is there; `args`
/// are the expression's arguments as they were rewritten.
fn sign_saved(expr: &Expr, args: &[Expr], forward: &HashSet<u128>) -> Option<Expr> {
    let (Op::MapGrad(Function::Relu), [y, _]) = (expr.op(), expr.args()) else { return None };
    let (Op::Dropout { p, .. }, [g]) = (args[1].op(), args[1].args()) else { return None };
    let dropped = Expr::new(args[1].op().clone(), vec![y.clone()]);
    let kept = ((1.0 - p.get()) * SHARES).round();
    (forward.contains(&dropped.id()) && kept > 0.0)
        .then(|| Expr::new(Op::MapGrad(Function::Relu), vec![dropped, g.scaled(SHARES / kept)]))
}

/// Brackets each chain of the backward pass anew where that is cheaper. Scalings stay with the
/// matrix they belong to: `Nᵀ` is applied as the forward pass applied `N`.
pub(super) fn improve(
    goal: &mut Goal,
    best: &mut Price,
    cost: &mut dyn FnMut(&Goal) -> Option<Price>,
) {
    let mut tried: HashSet<u128> = HashSet::new();
    loop {
        let chain = chains(goal).into_iter().find(|chain| tried.insert(chain.id()));
        let Some(chain) = chain else { return };
        for other in bracketings(&units(&factors(&chain))) {
            if other == chain || !tried.insert(other.id()) {
                continue;
            }
            let one = |e: &Expr| (e == &chain).then(|| other.clone());
            let new = Expr::replace_all(&gradients(goal), &one);
            let replaced = with_gradients(goal.clone(), new);
            match cost(&replaced) {
                Some(price) if price.beats(best) => {
                    *best = price;
                    *goal = replaced;
                    break;
                }
                _ => {}
            }
        }
    }
}

/// Outermost products of the gradients, in a fixed order, that more than one bracketing has.
fn chains(goal: &Goal) -> Vec<Expr> {
    let forward: HashSet<u128> =
        Expr::sorted(std::slice::from_ref(&goal.result)).iter().map(Expr::id).collect();
    let order = Expr::sorted(&gradients(goal));
    let product = |e: &Expr| matches!(e.op(), Op::Mul) && e.kind() == Kind::Dense;
    let inside: HashSet<u128> = order
        .iter()
        .filter(|e| product(e))
        .flat_map(Expr::args)
        .filter(|arg| product(arg))
        .map(Expr::id)
        .collect();
    // What is inside another chain may be read by others too; only whole chains are bracketed.
    let outermost = order
        .into_iter()
        .filter(|e| product(e) && !forward.contains(&e.id()) && !inside.contains(&e.id()));
    outermost.filter(|e| units(&factors(e)).len() > 2).collect()
}

/// A dense factor, or a run of sparse and diagonal ones that are applied one after another.
pub(super) type Unit = Vec<Expr>;

pub(super) fn units(factors: &[Expr]) -> Vec<Unit> {
    let mut units: Vec<Unit> = Vec::new();
    for factor in factors {
        let dense = factor.kind() == Kind::Dense;
        match units.last_mut() {
            Some(unit) if !dense && unit[0].kind() != Kind::Dense => unit.push(factor.clone()),
            _ => units.push(vec![factor.clone()]),
        }
    }
    units
}

/// All bracketings of a few units.
pub(super) fn bracketings(units: &[Unit]) -> Vec<Expr> {
    /// A product of some units: computed, or a run of factors still to be applied.
    #[derive(Clone)]
    enum Part {
        Dense(Expr),
        Run(Unit),
    }
    fn product(left: &Part, right: &Part) -> Option<Part> {
        match (left, right) {
            (Part::Dense(a), Part::Dense(b)) => Some(Part::Dense(mul(a, b))),
            (Part::Run(run), Part::Dense(b)) => {
                Some(Part::Dense(run.iter().rev().fold(b.clone(), |y, factor| mul(factor, &y))))
            }
            (Part::Dense(a), Part::Run(run)) => {
                Some(Part::Dense(run.iter().fold(a.clone(), |y, factor| mul(&y, factor))))
            }
            (Part::Run(_), Part::Run(_)) => None,
        }
    }
    fn all(units: &[Unit]) -> Vec<Part> {
        if let [unit] = units {
            let dense = unit[0].kind() == Kind::Dense;
            return vec![if dense {
                Part::Dense(unit[0].clone())
            } else {
                Part::Run(unit.clone())
            }];
        }
        let mut parts = Vec::new();
        for cut in 1..units.len() {
            let (left, right) = units.split_at(cut);
            for a in all(left) {
                parts.extend(all(right).iter().filter_map(|b| product(&a, b)));
            }
        }
        parts
    }
    if units.len() > 6 {
        return Vec::new();
    }
    let dense = all(units).into_iter().filter_map(|part| match part {
        Part::Dense(expr) => Some(expr),
        Part::Run(_) => None,
    });
    dense.collect()
}
