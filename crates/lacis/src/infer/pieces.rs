//! A network cut at its levels: each piece goes one hop, from rows that are there to new ones.
//!
//! ```text
//!   D·A·D·relu(D·A·D·X·W1 + b1)·W2 + b2
//!   piece 0   X·W1                              rows alone
//!   piece 1   relu(D·A·D·H0 + b1)·W2            one hop
//!   piece 2   D·A·D·H1 + b2                     one hop
//! ```
//! Weights are multiplied before a hop where that makes rows narrower, so that what is kept
//! between pieces is small. Every piece reads one matrix, the columns that are alive.

use std::collections::{BTreeMap, HashSet};

use lacis_core::{Error, Result};
use lacis_plan::choose::Network;
use lacis_plan::expr::{features, mul};
use lacis_plan::{Dim, Expr, Kind, Op};

use crate::levels::blocks::Reads;

/// One hop.
pub struct Piece {
    /// What it computes, of the matrix that is alive before it.
    pub network: Network,
    /// Which rows of that matrix it reads.
    pub reads: Reads,
    /// Columns that later pieces still need, in the matrix before it.
    pub kept: Vec<[usize; 2]>,
    /// Columns of the matrix after it: those kept, and its result.
    pub width: usize,
}

/// Columns of the matrix between two pieces.
struct Alive(Vec<Expr>);

impl Alive {
    fn width(&self) -> usize {
        self.0.iter().map(Expr::width).sum()
    }

    /// Where an expression's columns begin.
    fn from(&self, expr: &Expr) -> Option<usize> {
        let at = self.0.iter().position(|own| own == expr)?;
        Some(self.0[..at].iter().map(Expr::width).sum())
    }
}

/// The pieces of a formula, the first one first.
///
/// # Errors
/// When a part of it goes more than one hop at once.
pub fn cut(result: &Expr, params: &[Expr]) -> Result<Vec<Piece>> {
    let result = narrowed(&without_dropout(result));
    let wanted = wanted(&result)?;
    let mut alive = Alive(leaves(&result));
    let mut pieces = Vec::new();
    let levels: Vec<u16> = wanted.keys().copied().collect();
    for (at, level) in levels.iter().enumerate() {
        let targets = &wanted[level];
        let later: HashSet<u128> = levels[at + 1..]
            .iter()
            .flat_map(|later| wanted[later].iter())
            .flat_map(|target| inputs(target, level_of(target)))
            .map(|expr| expr.id())
            .collect();
        let kept: Vec<Expr> = alive.0.iter().filter(|e| later.contains(&e.id())).cloned().collect();
        let rewritten: Vec<Expr> = targets.iter().map(|t| rewritten(t, *level, &alive)).collect();
        let spans = kept.iter().map(|e| [alive.from(e).unwrap_or(0), e.width()]).collect();
        let next = Alive(kept.iter().chain(targets).cloned().collect());
        let network =
            Network { result: Expr::concat(&rewritten), loss: None, params: params.to_vec() };
        network.result.check()?;
        let reads = reads(&network.result, *level);
        pieces.push(Piece { network, reads, kept: spans, width: next.width() });
        alive = next;
    }
    Ok(pieces)
}

/// The features, as they stand in a formula.
fn leaves(result: &Expr) -> Vec<Expr> {
    let all = Expr::sorted(std::slice::from_ref(result));
    all.into_iter().filter(|e| matches!(e.op(), Op::Features { .. })).collect()
}

fn level_of(expr: &Expr) -> u16 {
    match expr.rows() {
        Dim::Nodes(level) => level,
        _ => 0,
    }
}

/// What has to be there at each level, for the levels after it.
fn wanted(result: &Expr) -> Result<BTreeMap<u16, Vec<Expr>>> {
    let top = level_of(result);
    let mut wanted: BTreeMap<u16, Vec<Expr>> = BTreeMap::from([(top, vec![result.clone()])]);
    for level in (0..=top).rev() {
        let Some(targets) = wanted.get(&level).cloned() else { continue };
        for target in targets {
            check_one_hop(&target, level)?;
            for input in inputs(&target, level) {
                if matches!(input.op(), Op::Features { .. }) {
                    continue;
                }
                let there = wanted.entry(level_of(&input)).or_default();
                if !there.contains(&input) {
                    there.push(input);
                }
            }
        }
    }
    Ok(wanted)
}

/// Whether a part is computed before this level, and kept.
fn is_input(expr: &Expr, level: u16) -> bool {
    let earlier = matches!(expr.rows(), Dim::Nodes(own) if own < level);
    matches!(expr.op(), Op::Features { .. }) || (earlier && expr.kind() == Kind::Dense)
}

/// The parts of a formula that a piece at a level reads.
fn inputs(target: &Expr, level: u16) -> Vec<Expr> {
    within(target, level).into_iter().filter(|expr| is_input(expr, level)).collect()
}

/// All parts of a formula down to what a piece reads.
fn within(target: &Expr, level: u16) -> Vec<Expr> {
    let (mut seen, mut found, mut stack) = (HashSet::new(), Vec::new(), vec![target.clone()]);
    while let Some(expr) = stack.pop() {
        if seen.insert(expr.id()) {
            if !is_input(&expr, level) {
                stack.extend(expr.args().iter().cloned());
            }
            found.push(expr);
        }
    }
    found
}

fn check_one_hop(target: &Expr, level: u16) -> Result<()> {
    let far = |expr: &Expr| match expr.op() {
        Op::Adjacency(a) => a.level + 1 != level || a.transposed,
        Op::Readout(_) => true,
        _ => false,
    };
    match within(target, level).iter().any(far) {
        false => Ok(()),
        true => {
            let problem = format!("{target} cannot be computed layer by layer");
            Err(Error::argument("formula", problem))
        }
    }
}

/// A piece's formula over the matrix that is alive, levels 0 and 1.
fn rewritten(target: &Expr, level: u16, alive: &Alive) -> Expr {
    target.replace(&|expr| {
        if let Some(from) = alive.from(expr).filter(|_| is_input(expr, level)) {
            return Some(match expr.op() {
                Op::Features { .. } if alive.0.len() == 1 => expr.clone(),
                _ => features(alive.width()).columns(from, expr.width()),
            });
        }
        let near = |of: u16| u16::from(of == level && level > 0);
        match expr.op() {
            Op::Top { level: of } => {
                let inner = rewritten(&expr.args()[0], level, alive);
                Some(inner.top(near(*of)))
            }
            Op::Adjacency(a) => {
                let a = lacis_plan::op::Adjacency { level: 0, ..*a };
                Some(Expr::new(Op::Adjacency(a), vec![]))
            }
            Op::Identity { transposed, .. } => {
                Some(Expr::new(Op::Identity { level: 0, transposed: *transposed }, vec![]))
            }
            Op::Degrees { graph, level: of, half_power } => {
                Some(lacis_plan::expr::degrees(*graph, near(*of), *half_power))
            }
            _ => None,
        }
    })
}

fn reads(result: &Expr, level: u16) -> Reads {
    let all = Expr::sorted(std::slice::from_ref(result));
    let of_edges = |e: &Expr| e.args().iter().any(|arg| matches!(arg.op(), Op::Adjacency(_)));
    let by_place = |e: &Expr| match e.op() {
        Op::Top { .. } | Op::Identity { .. } => true,
        Op::Mul | Op::Extreme(_) => false,
        // What edges compute from both of their ends takes targets by their place.
        _ => of_edges(e),
    };
    match level {
        0 => Reads::Own,
        _ if all.iter().any(by_place) => Reads::Nested,
        _ => Reads::All,
    }
}

fn without_dropout(expr: &Expr) -> Expr {
    expr.replace(&|part| match part.op() {
        Op::Dropout { .. } | Op::DropEdges { .. } => Some(without_dropout(&part.args()[0])),
        _ => None,
    })
}

/// The formula with weights multiplied before hops where rows become narrower, or where features
/// are sparse.
fn narrowed(expr: &Expr) -> Expr {
    expr.replace(&|part| match (part.op(), part.args()) {
        (Op::Mul, [left, w]) if matches!(w.op(), Op::Param { .. }) => {
            Some(pushed(&narrowed(left), w))
        }
        _ => None,
    })
}

/// `x·w`, with `w` as far inside `x` as it pays.
fn pushed(x: &Expr, w: &Expr) -> Expr {
    let pays = x.kind() != Kind::Dense || w.width() < x.width();
    match (x.op(), x.args()) {
        (Op::Mul, [s, y]) if pays && s.kind() != Kind::Dense => mul(s, &pushed(y, w)),
        (Op::Add, [a, b]) if pays => pushed(a, w) + pushed(b, w),
        (Op::Scale(by), [y]) if pays => pushed(y, w).scaled(by.get()),
        (Op::ScaleBy, [s, y]) if pays => pushed(y, w).scaled_by(s),
        (Op::Top { level }, [y]) if pays => pushed(y, w).top(*level),
        _ => mul(x, w),
    }
}
