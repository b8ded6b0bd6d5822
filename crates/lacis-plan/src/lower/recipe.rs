//! Recipes: which operator computes an expression, and which of its parts it does on the way.

use std::collections::{HashMap, HashSet};

use super::Options;
use crate::expr::{Expr, Kind};
use crate::op::{Function, Number, Op};
use crate::plan::{Each, Ending, Form, Operator};

/// An operator and what it reads.
#[derive(Clone, Debug)]
pub struct Recipe {
    pub operator: Operator,
    pub inputs: Vec<Expr>,
}

/// A recipe for each expression that needs one, and the expressions that others compute on the way.
pub fn all(
    order: &[Expr],
    roots: &[Expr],
    options: Options,
) -> (HashMap<u128, Recipe>, HashSet<u128>) {
    let mut uses: HashMap<u128, usize> = HashMap::new();
    order.iter().flat_map(Expr::args).for_each(|arg| *uses.entry(arg.id()).or_default() += 1);
    roots.iter().for_each(|root| *uses.entry(root.id()).or_default() += 1);
    let mut cook = Cook { uses, options, absorbed: HashSet::new(), once: false };
    let mut recipes = HashMap::new();
    // Who uses comes after what is used: from the end, users decide first.
    for expr in order.iter().rev() {
        if cook.absorbed.contains(&expr.id()) {
            continue;
        }
        cook.once = options.hoist && expr.is_constant();
        if let Some(recipe) = cook.recipe(expr) {
            recipes.insert(expr.id(), recipe);
        }
    }
    (recipes, cook.absorbed)
}

struct Cook {
    uses: HashMap<u128, usize>,
    options: Options,
    absorbed: HashSet<u128>,
    /// Whether what is being cooked is computed once.
    once: bool,
}

/// A product: its core, what scales it, what is added, and what was swallowed to get there.
struct Product {
    operator: fn(Ending, bool, bool) -> Operator,
    inputs: Vec<Expr>,
    scales: [Option<Expr>; 2],
    swallowed: Vec<Expr>,
}

impl Cook {
    fn recipe(&mut self, expr: &Expr) -> Option<Recipe> {
        let args = expr.args();
        match (expr.op(), args) {
            (Op::Mul, [x, g])
                if (x.kind(), g.kind()) == (Kind::Sparse, Kind::Dense)
                    && matches!(x.op(), Op::Transpose) =>
            {
                let inputs = vec![x.clone(), g.clone()];
                Some(Recipe { operator: Operator::SparseTransposed, inputs })
            }
            (Op::Mul | Op::Bias | Op::Map(_) | Op::Add, _) if expr.kind() == Kind::Dense => {
                self.product_recipe(expr).or_else(|| self.each_recipe(expr))
            }
            (Op::Mul, [a, b]) => Some(self.sparse_recipe(a, b)),
            (Op::Add, [a, b]) => {
                let c = match b.op() {
                    Op::Scale(c) => *c,
                    _ => 1.0.into(),
                };
                self.absorb(b);
                let inputs = vec![a.clone()];
                Some(Recipe { operator: Operator::PlusIdentity { c }, inputs })
            }
            (Op::Dropout { p, key }, [x]) if x.kind() == Kind::Sparse => {
                let operator = Operator::EntryDropout { p: *p, key: *key };
                Some(Recipe { operator, inputs: vec![x.clone()] })
            }
            (Op::Dropout { .. } | Op::Scale(_), _) => self.each_recipe(expr),
            (Op::MapGrad(function), [saved, g]) => Some(self.grad_recipe(*function, saved, g)),
            _ => {
                let operator = plain(expr.op())?;
                Some(Recipe { operator, inputs: args.to_vec() })
            }
        }
    }

    /// Whether an expression may be computed inside the only one that uses it: not what is computed
    /// once inside what is computed in every epoch.
    fn single(&self, expr: &Expr) -> bool {
        let hoisted = self.options.hoist && expr.is_constant() && !self.once;
        self.options.fuse && !hoisted && self.uses.get(&expr.id()) == Some(&1)
    }

    fn absorb(&mut self, expr: &Expr) {
        self.absorbed.insert(expr.id());
    }

    /// Through barriers, which compute nothing.
    fn inside(&self, expr: &Expr, swallowed: &mut Vec<Expr>) -> Option<Expr> {
        let mut at = expr.clone();
        loop {
            if !self.single(&at) {
                return None;
            }
            match at.op() {
                Op::Layer(_) | Op::LayerGrad(_) => {
                    swallowed.push(at.clone());
                    at = at.args()[0].clone();
                }
                _ => return Some(at),
            }
        }
    }

    /// `f(p + q + b)` where `p` is a product, as one step.
    fn product_recipe(&mut self, expr: &Expr) -> Option<Recipe> {
        let mut swallowed = Vec::new();
        let (mut at, mut ending, mut bias) = (expr.clone(), Ending::PLAIN, None);
        if let (Op::Map(function), [x]) = (at.op(), at.args()) {
            ending.function = *function;
            let inner = self.inside(x, &mut swallowed)?;
            swallowed.push(inner.clone());
            at = inner;
        }
        if let (Op::Bias, [x, b]) = (at.op(), at.args()) {
            (ending.bias, bias) = (true, Some(b.clone()));
            let inner = self.inside(x, &mut swallowed)?;
            swallowed.push(inner.clone());
            at = inner;
        }
        let mut base = None;
        if let (Op::Add, [p, q]) = (at.op(), at.args()) {
            let (product, other) = self.accumulated(p, q, &mut swallowed)?;
            ending.accumulate = true;
            base = Some(other);
            swallowed.push(product.clone());
            at = product;
        }
        let product = self.core(&at)?;
        let Product { operator, mut inputs, scales, swallowed: inner } = product;
        swallowed.extend(inner);
        let [left, right] = scales;
        let operator = operator(ending, left.is_some(), right.is_some());
        inputs.extend(left);
        inputs.extend(right);
        inputs.extend(bias);
        // Last: what is added to, whose slot the result takes.
        inputs.extend(base);
        swallowed.iter().for_each(|e| self.absorb(e));
        Some(Recipe { operator, inputs })
    }

    /// Which of two summands is a product that can be added to the other.
    fn accumulated(&self, p: &Expr, q: &Expr, swallowed: &mut Vec<Expr>) -> Option<(Expr, Expr)> {
        let owned = |e: &Expr| {
            // A view's slot is somebody else's, and leaves are nobody's.
            let computed = !e.args().is_empty()
                && !matches!(
                    e.op(),
                    Op::Top { .. } | Op::Columns { .. } | Op::Layer(_) | Op::LayerGrad(_)
                );
            self.single(e) && computed && e.kind() == Kind::Dense
        };
        for (product, other) in [(q, p), (p, q)] {
            let mut through = Vec::new();
            let Some(inner) = self.inside(product, &mut through) else { continue };
            if owned(other) && self.core(&inner).is_some() {
                swallowed.extend(through);
                return Some((inner, other.clone()));
            }
        }
        None
    }

    /// A sparse or dense product with the scalings around it.
    fn core(&self, expr: &Expr) -> Option<Product> {
        let (Op::Mul, [a, b]) = (expr.op(), expr.args()) else { return None };
        if expr.kind() != Kind::Dense {
            return None;
        }
        match (a.kind(), b.kind()) {
            (Kind::Dense, Kind::Dense) => {
                let turned = |e: &Expr| matches!(e.op(), Op::Transpose);
                let operator: fn(Ending, bool, bool) -> Operator = match (turned(a), turned(b)) {
                    (true, _) => |ending, _, _| Operator::Gemm { form: Form::Tn, ending },
                    (false, true) => |ending, _, _| Operator::Gemm { form: Form::Nt, ending },
                    (false, false) => |ending, _, _| Operator::Gemm { form: Form::Nn, ending },
                };
                let (inputs, scales) = (vec![a.clone(), b.clone()], [None, None]);
                Some(Product { operator, inputs, scales, swallowed: vec![] })
            }
            (Kind::Sparse, Kind::Dense) if matches!(a.op(), Op::Transpose) => None,
            (Kind::Sparse, Kind::Dense) => Some(self.spmm(a, b, None, vec![])),
            (Kind::Diagonal, Kind::Dense) => {
                let mut swallowed = Vec::new();
                let inner = self.inside(b, &mut swallowed)?;
                let (Op::Mul, [s, x]) = (inner.op(), inner.args()) else { return None };
                let sparse = s.kind() == Kind::Sparse && !matches!(s.op(), Op::Transpose);
                swallowed.push(inner.clone());
                sparse.then(|| self.spmm(s, x, Some(a.clone()), swallowed))
            }
            _ => None,
        }
    }

    fn spmm(&self, a: &Expr, x: &Expr, left: Option<Expr>, mut swallowed: Vec<Expr>) -> Product {
        let operator: fn(Ending, bool, bool) -> Operator =
            |ending, left, right| Operator::Spmm { left, right, ending };
        let (mut x, mut right) = (x.clone(), None);
        let mut through = Vec::new();
        if let Some(inner) = self.inside(&x, &mut through)
            && let (Op::Mul, [d, z]) = (inner.op(), inner.args())
            && (d.kind(), z.kind()) == (Kind::Diagonal, Kind::Dense)
        {
            (right, x) = (Some(d.clone()), z.clone());
            swallowed.extend(through);
            swallowed.push(inner.clone());
        }
        Product { operator, inputs: vec![a.clone(), x], scales: [left, right], swallowed }
    }

    /// Products that stay sparse or diagonal, and the transposed product of sparse features.
    fn sparse_recipe(&mut self, a: &Expr, b: &Expr) -> Recipe {
        let (operator, inputs) = match (a.kind(), b.kind()) {
            (Kind::Diagonal, Kind::Diagonal) => {
                (Operator::DiagonalProduct, vec![a.clone(), b.clone()])
            }
            (Kind::Diagonal, _) => {
                (Operator::EntryScale { left: true, right: false }, vec![b.clone(), a.clone()])
            }
            // `(D·A)·D`: both scalings in one pass.
            _ => match (a.op(), a.args()) {
                (Op::Mul, [d, s]) if d.kind() == Kind::Diagonal && self.uses[&a.id()] == 1 => {
                    self.absorb(a);
                    let inputs = vec![s.clone(), d.clone(), b.clone()];
                    (Operator::EntryScale { left: true, right: true }, inputs)
                }
                _ => {
                    (Operator::EntryScale { left: false, right: true }, vec![a.clone(), b.clone()])
                }
            },
        };
        Recipe { operator, inputs }
    }

    /// `drop(f(α·d·x + β·z + b))` in one pass, as much of it as is there.
    fn each_recipe(&mut self, expr: &Expr) -> Option<Recipe> {
        let mut each = Each {
            scale: 1.0.into(),
            rows: false,
            plus: None,
            bias: false,
            function: Function::Identity,
            dropout: None,
        };
        let (mut at, mut swallowed, mut rest) = (expr.clone(), Vec::new(), Vec::new());
        let mut taken = false;
        let enter = |cook: &Cook, x: &Expr, each: &Each, swallowed: &mut Vec<Expr>| {
            let mut through = Vec::new();
            let inner = cook.inside(x, &mut through)?;
            // What one pass can still do: a function comes after the bias, and there is one each.
            let simple = match inner.op() {
                Op::Map(_) => each.function == Function::Identity && !each.bias,
                Op::Bias => !each.bias,
                Op::Scale(_) => true,
                _ => false,
            };
            (simple && cook.core_below(&inner).is_none()).then(|| {
                swallowed.extend(through);
                swallowed.push(inner.clone());
                inner
            })
        };
        loop {
            let args = at.args().to_vec();
            let next = match (at.op(), args.as_slice()) {
                (Op::Dropout { p, key }, [x]) if !taken => {
                    each.dropout = Some((*p, *key));
                    x.clone()
                }
                (Op::Map(f), [x]) if each.function == Function::Identity && !each.bias => {
                    each.function = *f;
                    x.clone()
                }
                (Op::Bias, [x, b]) if !each.bias => {
                    each.bias = true;
                    rest.push(b.clone());
                    x.clone()
                }
                _ => break,
            };
            taken = true;
            match enter(self, &next, &each, &mut swallowed) {
                Some(inner) => at = inner,
                None => {
                    swallowed.iter().for_each(|e| self.absorb(e));
                    let inputs = [vec![next], rest].concat();
                    return Some(Recipe { operator: Operator::Each(each), inputs });
                }
            }
        }
        let inputs = self.summands(&at, &mut each, &mut swallowed)?;
        swallowed.iter().for_each(|e| self.absorb(e));
        Some(Recipe { operator: Operator::Each(each), inputs: [inputs, rest].concat() })
    }

    /// Whether a product would be computed with what is above it.
    fn core_below(&self, expr: &Expr) -> Option<()> {
        let mut at = expr.clone();
        while let (Op::Map(_) | Op::Bias | Op::Layer(_) | Op::LayerGrad(_), [x, ..]) =
            (at.op(), at.args())
        {
            if !self.single(x) {
                return None;
            }
            at = x.clone();
        }
        self.core(&at).map(|_| ())
    }

    /// `α·d·x + β·z`, what is innermost.
    fn summands(&self, at: &Expr, each: &mut Each, swallowed: &mut Vec<Expr>) -> Option<Vec<Expr>> {
        let args = at.args();
        match (at.op(), args) {
            (Op::Scale(by), [x]) => {
                each.scale = *by;
                Some(vec![x.clone()])
            }
            (Op::Mul, [d, x]) if d.kind() == Kind::Diagonal => {
                each.rows = true;
                Some(vec![x.clone(), d.clone()])
            }
            (Op::Add, [x, z]) => {
                let unscaled = |e: &Expr, swallowed: &mut Vec<Expr>| -> (Expr, Number) {
                    match (e.op(), e.args()) {
                        (Op::Scale(by), [inner]) if self.single(e) => {
                            swallowed.push(e.clone());
                            (inner.clone(), *by)
                        }
                        _ => (e.clone(), 1.0.into()),
                    }
                };
                let (x, scale) = unscaled(x, swallowed);
                let (z, beta) = unscaled(z, swallowed);
                each.scale = scale;
                each.plus = Some(beta);
                Some(vec![x, z])
            }
            _ => None,
        }
    }

    /// Back through a function, and through the dropout that came after it.
    fn grad_recipe(&mut self, function: Function, saved: &Expr, g: &Expr) -> Recipe {
        let mut swallowed = Vec::new();
        let (mut g, mut dropout, mut scale) = (g.clone(), None, Number::from(1.0));
        if let Some(inner) = self.inside(&g, &mut swallowed) {
            match (inner.op(), inner.args()) {
                (Op::Dropout { p, key }, [x]) => {
                    dropout = Some((*p, *key));
                    swallowed.push(inner.clone());
                    g = x.clone();
                }
                (Op::Scale(by), [x]) => {
                    scale = *by;
                    swallowed.push(inner.clone());
                    g = x.clone();
                }
                _ => swallowed.clear(),
            }
        } else {
            swallowed.clear();
        }
        swallowed.iter().for_each(|e| self.absorb(e));
        let operator = Operator::EachGrad { function, dropout, scale };
        Recipe { operator, inputs: vec![g, saved.clone()] }
    }
}

/// Operations that are one operator as they stand.
fn plain(op: &Op) -> Option<Operator> {
    Some(match op {
        Op::DropEdges { p, key } => Operator::EdgeDropout { p: *p, key: *key },
        Op::ScaleBy => Operator::ScaleBy,
        Op::Unit => Operator::Unit,
        Op::UnitGrad => Operator::UnitGrad,
        Op::Transpose => Operator::Transpose,
        Op::Dot => Operator::Dot,
        Op::ColumnSums => Operator::ColumnSums,
        Op::Pad { .. } => Operator::Pad,
        Op::Concat => Operator::Concat,
        Op::PadColumns { from, .. } => Operator::PadColumns { from: *from },
        Op::Norm { kind, key } => Operator::Norm { kind: *kind, key: *key },
        Op::Gated => Operator::Gated,
        Op::Extreme(extreme) => Operator::Extreme(*extreme),
        Op::ExtremeGrad(extreme) => Operator::ExtremeGrad(*extreme),
        Op::Pairs(op) => Operator::Pairs(*op),
        Op::PairsGrad(op) => Operator::PairsGrad(*op),
        Op::Readout(read) => Operator::Readout(*read),
        Op::ReadoutGrad(read) => Operator::ReadoutGrad(*read),
        Op::LossGrad(kind) => Operator::Loss(*kind),
        _ => return None,
    })
}
