//! Equalities: one line of algebra each, with the condition under which it holds.
//!
//! Re-association is not among them: every form that these give is bracketed in every way by
//! `compose.rs`. Each rule has an example on which a test evaluates both sides.

use std::collections::{BTreeMap, HashSet};

use crate::dim::Dim;
use crate::expr::{self, Expr, Kind, mul};
use crate::op::{Adjacency, Attention, Graph, Op, Scores};

/// An equality that may be used from left to right.
pub struct Rule {
    /// What `explain` calls it.
    pub name: &'static str,
    /// The left side.
    pub from: &'static str,
    /// The right side.
    pub to: &'static str,
    /// When it holds; empty for always.
    pub when: &'static str,
    /// The right side of an expression that is a left side.
    pub apply: fn(&Expr) -> Option<Expr>,
    /// An expression that is a left side.
    pub example: fn() -> Expr,
}

/// All of them.
pub static RULES: &[Rule] = &[
    Rule {
        name: "distribute",
        from: "(P + Q)·W",
        to: "P·W + Q·W",
        when: "",
        apply: distribute,
        example: || (ax() + expr::identity(0) * expr::features(6)) * weight("W"),
    },
    Rule {
        name: "factor",
        from: "P·W + Q·W",
        to: "(P + Q)·W",
        when: "",
        apply: factor,
        example: || ax() * weight("W") + expr::identity(0) * expr::features(6) * weight("W"),
    },
    Rule {
        name: "top of product",
        from: "top(X)·W",
        to: "top(X·W)",
        when: "",
        apply: top_of_product,
        example: || expr::identity(0) * expr::features(6) * weight("W"),
    },
    Rule {
        name: "plus identity",
        from: "A·X + c·top(X)",
        to: "(A + c·I)·X",
        when: "c is not learned",
        apply: plus_identity,
        example: || ax() + (expr::identity(0) * expr::features(6)).scaled(1.5),
    },
    Rule {
        name: "materialise",
        from: "D·(A·(D·X))",
        to: "((D·A)·D)·X",
        when: "",
        apply: materialise,
        example: || {
            let d = |level| expr::degrees(Graph::WEIGHTED, level, -1);
            d(1) * (expr::adjacency(Graph::WEIGHTED, 0) * (d(0) * expr::features(6)))
        },
    },
    Rule {
        name: "horner",
        from: "Σ (N^k·X)·W_k",
        to: "N·(… N·(X·W_K) + X·W_{K-1} …) + X·W_0",
        when: "all powers are of one N, and a level's rows are the next one's too",
        apply: horner,
        example: || {
            let x = expr::features(6);
            let first = mul(&expr::adjacency(Graph::BARE, 0), &x);
            let second = mul(&expr::adjacency(Graph::BARE, 1), &first);
            x.top(2) * weight("W0") + first.top(2) * weight("W1") + second * weight("W2")
        },
    },
    Rule {
        name: "fold attention",
        from: "attend(A, X·W, t, u)",
        to: "attend(A, X, t·Wᵀ, u·Wᵀ)·W",
        when: "one head",
        apply: fold_attention,
        example: || {
            let gat = Attention {
                scores: Scores::Gat,
                heads: 1,
                slope: 0.2.into(),
                dropout: 0.0.into(),
                key: 0,
            };
            let (h, t, u) =
                (expr::features(6) * weight("W"), expr::param("t", 1, 4), expr::param("u", 1, 4));
            let args = vec![expr::adjacency(Graph::ATTENDED, 0), h, t, u];
            Expr::new(Op::Attention(gat), args).part(0)
        },
    },
];

fn ax() -> Expr {
    expr::adjacency(Graph::BARE, 0) * expr::features(6)
}

fn weight(name: &str) -> Expr {
    expr::param(name, 6, 4)
}

/// Every form of a layer's body that the rules give, the body itself first, with the names of the
/// rules that led there; at most `budget`.
pub fn forms(body: &Expr, budget: usize) -> (Vec<(Expr, Vec<&'static str>)>, bool) {
    let mut seen: HashSet<u128> = HashSet::from([body.id()]);
    let mut all = vec![(body.clone(), Vec::new())];
    let mut next = 0;
    while next < all.len() {
        let (form, names) = all[next].clone();
        next += 1;
        for rule in RULES {
            let Some(new) = applied(rule, &form) else { continue };
            if seen.insert(new.id()) {
                if all.len() >= budget {
                    return (all, false);
                }
                let mut names: Vec<&'static str> = names.clone();
                names.push(rule.name);
                all.push((new, names));
            }
        }
    }
    (all, true)
}

/// A form with a rule applied everywhere that it fits: one normalisation treated one way.
fn applied(rule: &Rule, form: &Expr) -> Option<Expr> {
    let inner = inner_nodes(form);
    let new = form.replace(&|expr| {
        if inner.contains(&expr.id()) { (rule.apply)(expr) } else { Some(expr.clone()) }
    });
    (new != *form).then_some(new)
}

/// The nodes of a body down to its atoms: other layers, functions, leaves.
pub(crate) fn inner_nodes(body: &Expr) -> HashSet<u128> {
    let (mut inner, mut stack) = (HashSet::new(), vec![body.clone()]);
    while let Some(expr) = stack.pop() {
        let atom = matches!(
            expr.op(),
            Op::Layer(_)
                | Op::Map(_)
                | Op::Dropout { .. }
                | Op::Norm { .. }
                | Op::Extreme(_)
                | Op::Pairs(_)
        );
        if !atom && inner.insert(expr.id()) {
            stack.extend(expr.args().iter().cloned());
        }
    }
    inner
}

fn distribute(expr: &Expr) -> Option<Expr> {
    let (Op::Mul, [sum, w]) = (expr.op(), expr.args()) else { return None };
    let (Op::Add, [p, q]) = (sum.op(), sum.args()) else { return None };
    (sum.kind() == Kind::Dense && w.kind() == Kind::Dense).then(|| {
        let times = |x: &Expr| distribute(&mul(x, w)).unwrap_or_else(|| scaled_product(x, w));
        times(p) + times(q)
    })
}

/// `c·(x·w)` rather than `(c·x)·w`.
fn scaled_product(x: &Expr, w: &Expr) -> Expr {
    match (x.op(), x.args()) {
        (Op::Scale(by), [inner]) => mul(inner, w).scaled(by.get()),
        (Op::ScaleBy, [s, inner]) => mul(inner, w).scaled_by(s),
        _ => mul(x, w),
    }
}

fn factor(expr: &Expr) -> Option<Expr> {
    let (Op::Add, [p, q]) = (expr.op(), expr.args()) else { return None };
    let ((Op::Mul, [p, w]), (Op::Mul, [q, v])) = ((p.op(), p.args()), (q.op(), q.args())) else {
        return None;
    };
    let dense = [p, q, w].iter().all(|e| e.kind() == Kind::Dense);
    (w == v && dense).then(|| mul(&(p + q), w))
}

fn top_of_product(expr: &Expr) -> Option<Expr> {
    let (Op::Mul, [top, w]) = (expr.op(), expr.args()) else { return None };
    let (Op::Top { level }, [x]) = (top.op(), top.args()) else { return None };
    (w.kind() == Kind::Dense).then(|| mul(x, w).top(*level))
}

fn plus_identity(expr: &Expr) -> Option<Expr> {
    let (Op::Add, [p, q]) = (expr.op(), expr.args()) else { return None };
    let (c, q) = match (q.op(), q.args()) {
        (Op::Scale(c), [q]) => (c.get(), q),
        _ => (1.0, q),
    };
    let (Op::Mul, [a, x]) = (p.op(), p.args()) else { return None };
    let (Op::Top { .. }, [z]) = (q.op(), q.args()) else { return None };
    let Op::Adjacency(adjacency) = a.op() else { return None };
    (x == z && !adjacency.transposed)
        .then(|| mul(&(a + expr::identity(adjacency.level).scaled(c)), x))
}

fn materialise(expr: &Expr) -> Option<Expr> {
    let (Op::Mul, [left, inner]) = (expr.op(), expr.args()) else { return None };
    let (Op::Mul, [a, scaled]) = (inner.op(), inner.args()) else { return None };
    let (Op::Mul, [right, x]) = (scaled.op(), scaled.args()) else { return None };
    let diagonal = |e: &Expr| e.kind() == Kind::Diagonal;
    let fits = diagonal(left) && diagonal(right) && matches!(a.op(), Op::Adjacency(_));
    fits.then(|| {
        let inner = materialise(x).unwrap_or_else(|| x.clone());
        mul(&mul(&mul(left, a), right), &inner)
    })
}

/// Terms of a sum, from the first to the last.
fn terms(expr: &Expr) -> Vec<Expr> {
    match (expr.op(), expr.args()) {
        (Op::Add, [p, q]) => [terms(p), terms(q)].concat(),
        _ => vec![expr.clone()],
    }
}

/// One hop of a power: the diagonals and the adjacency of a level.
type Hop = Vec<Expr>;

/// `N_{k-1}·…·N_0·X` taken apart: hops from the first on, and `X`; nothing where a diagonal is left
/// that belongs to no hop.
fn hops(expr: &Expr) -> Option<(BTreeMap<u16, Hop>, Expr)> {
    let mut of: BTreeMap<u16, Hop> = BTreeMap::new();
    let mut at = expr.clone();
    let mut pending: Hop = Vec::new();
    while let (Op::Mul, [a, x]) = (at.op(), at.args()) {
        if a.kind() == Kind::Dense {
            break;
        }
        pending.push(a.clone());
        let level = match a.op() {
            Op::Adjacency(adjacency) => Some(adjacency.level),
            Op::Mul => match (a.rows(), a.cols()) {
                (Dim::Nodes(_), Dim::Nodes(level)) => Some(level),
                _ => None,
            },
            _ => None,
        };
        if let Some(level) = level {
            // The diagonal behind the adjacency belongs to the same hop.
            let behind = match (x.op(), x.args()) {
                (Op::Mul, [d, z]) if d.kind() == Kind::Diagonal => Some((d.clone(), z.clone())),
                _ => None,
            };
            let mut hop = std::mem::take(&mut pending);
            at = match behind {
                Some((d, z)) if a.kind() == Kind::Sparse && !matches!(a.op(), Op::Mul) => {
                    hop.push(d);
                    z
                }
                _ => x.clone(),
            };
            of.insert(level, hop);
        } else {
            at = x.clone();
        }
    }
    pending.is_empty().then_some((of, at))
}

/// A hop as it would be at level 0: equal for equal matrices.
fn at_first_level(hop: &Hop, level: u16) -> Hop {
    let lowered = |expr: &Expr| match expr.op() {
        Op::Adjacency(a) => {
            let lower = Adjacency { level: a.level - level, ..*a };
            Some(Expr::new(Op::Adjacency(lower), vec![]))
        }
        Op::Degrees { graph, level: own, half_power } => {
            Some(expr::degrees(*graph, own - level, *half_power))
        }
        _ => None,
    };
    hop.iter().map(|factor| factor.replace(&lowered)).collect()
}

fn horner(expr: &Expr) -> Option<Expr> {
    let terms = terms(expr);
    if terms.len() < 2 {
        return None;
    }
    let Dim::Nodes(last) = expr.rows() else { return None };
    let mut weights: BTreeMap<usize, Expr> = BTreeMap::new();
    let (mut longest, mut source): (BTreeMap<u16, Hop>, Option<Expr>) = Default::default();
    let mut matrix: Option<Hop> = None;
    for term in &terms {
        let (Op::Mul, [power, w]) = (term.op(), term.args()) else { return None };
        let power = match (power.op(), power.args()) {
            (Op::Top { .. }, [x]) => x,
            _ => power,
        };
        let (of, x) = hops(power)?;
        for (&level, hop) in &of {
            let hop = at_first_level(hop, level);
            if matrix.get_or_insert_with(|| hop.clone()) != &hop {
                return None;
            }
        }
        if source.get_or_insert_with(|| x.clone()) != &x || w.kind() != Kind::Dense {
            return None;
        }
        if weights.insert(of.len(), w.clone()).is_some() {
            return None;
        }
        if of.len() > longest.len() {
            longest = of;
        }
    }
    let (x, count) = (source?, longest.len());
    let Dim::Nodes(first) = x.rows() else { return None };
    let complete = (0..=count).all(|k| weights.contains_key(&k))
        && (first..last).all(|level| longest.contains_key(&level));
    if !complete || count == 0 {
        return None;
    }
    let mut sum = mul(&x, &weights[&count]);
    for (k, level) in (0..count).rev().zip(first..last) {
        let hop = longest[&level].iter().rev().fold(sum, |y, factor| mul(factor, &y));
        // Sparse features are multiplied before rows are taken of them.
        let own = match x.kind() {
            Kind::Dense => mul(&x.top(level + 1), &weights[&k]),
            _ => mul(&x, &weights[&k]).top(level + 1),
        };
        sum = hop + own;
    }
    Some(sum)
}

fn fold_attention(expr: &Expr) -> Option<Expr> {
    let (Op::Part(0), [whole]) = (expr.op(), expr.args()) else { return None };
    let (Op::Attention(attention), [a, h, t, u]) = (whole.op(), whole.args()) else { return None };
    let (Op::Mul, [x, w]) = (h.op(), h.args()) else { return None };
    let dense = x.kind() == Kind::Dense && w.kind() == Kind::Dense;
    (attention.scores == Scores::Gat && attention.heads == 1 && dense).then(|| {
        let args = vec![a.clone(), x.clone(), t * w.t(), u * w.t()];
        mul(&Expr::new(Op::Attention(*attention), args).part(0), w)
    })
}
