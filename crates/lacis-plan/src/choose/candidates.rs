//! The ways to compute a layer that are worth a look at the input, and those that are not.

use std::collections::{HashMap, HashSet};

use super::backward::{bracketings, units};
use super::{RuleSet, Settings};
use crate::compose::{Chain, Compositions, StopReason, compositions, factors};
use crate::expr::{Expr, Kind};
use crate::op::Op;
use crate::rules::{forms, inner_nodes};

/// Most forms that the rules may give of one layer, and most ways to combine chains of one form.
const MOST_FORMS: usize = 16;
const MOST_COMBINED: usize = 16;
/// Factors from which on a chain's sparse factors are not bracketed one by one.
const LONG: usize = 8;

/// One way to compute a layer.
#[derive(Clone, Debug)]
pub struct Candidate {
    /// The layer's body, bracketed.
    pub expr: Expr,
    /// What it reads like.
    pub formula: String,
    /// Seconds of an epoch with it, where it was costed.
    pub predicted: Option<f64>,
    /// Why it was not.
    pub pruned_by: Option<String>,
}

/// All of them.
#[derive(Clone, Debug)]
pub struct Candidates {
    /// The layer's number.
    pub layer: u16,
    /// How many there were.
    pub enumerated: usize,
    /// Why the enumeration ended.
    pub stop: StopReason,
    /// All, those that were pruned too.
    pub all: Vec<Candidate>,
    /// Which is computed.
    pub chosen: usize,
    /// Equal for layers that would be decided alike.
    pub(super) looks: String,
}

impl Candidates {
    /// Of a layer's body.
    pub fn of(layer: u16, body: &Expr, settings: &Settings) -> Self {
        let (forms, complete) = match settings.rules {
            RuleSet::All => forms(body, MOST_FORMS),
            RuleSet::Sensei => {
                let all = forms(body, MOST_FORMS).0.into_iter();
                let known = |names: &Vec<&str>| names.is_empty() || names == &["fold attention"];
                (all.filter(|(_, names)| known(names)).collect(), true)
            }
        };
        let mut found = Found {
            seen: HashSet::new(),
            all: Vec::new(),
            stop: StopReason::Complete,
            known: HashMap::new(),
        };
        if !complete {
            found.stop = StopReason::Budget(MOST_FORMS);
        }
        for (form, _) in &forms {
            found.add_form(form, settings.budget);
        }
        let looks = looks(body, found.all.len());
        let enumerated = found.all.len();
        let chosen = found.all.iter().position(|c| c.pruned_by.is_none()).unwrap_or(0);
        Candidates { layer, enumerated, stop: found.stop, all: found.all, chosen, looks }
    }

    /// Those that were not pruned.
    pub fn kept(&self) -> Vec<usize> {
        (0..self.all.len()).filter(|&i| self.all[i].pruned_by.is_none()).collect()
    }
}

struct Found {
    seen: HashSet<u128>,
    all: Vec<Candidate>,
    stop: StopReason,
    /// Chains that were bracketed already: forms have many in common.
    known: HashMap<Chain, Compositions>,
}

impl Found {
    fn push(&mut self, expr: Expr, pruned_by: Option<String>) {
        if self.seen.insert(expr.id()) {
            let formula = expr.to_string();
            self.all.push(Candidate { expr, formula, predicted: None, pruned_by });
        }
    }

    /// All bracketings of a form's chains.
    fn add_form(&mut self, form: &Expr, budget: usize) {
        let chains: Vec<Bracketed> = chains(form)
            .into_iter()
            .map(|root| Bracketed::new(root, budget, &mut self.known))
            .collect();
        for chain in &chains {
            if let StopReason::Budget(_) = chain.stop {
                self.stop = chain.stop;
            }
        }
        match chains.as_slice() {
            [] if fills_in(form) => {}
            [] => self.push(form.clone(), None),
            [chain] => {
                let with = |new: &Expr| form.replace(&|e| (e == &chain.root).then(|| new.clone()));
                chain.kept.iter().for_each(|new| self.push(with(new), None));
                chain.pruned.iter().for_each(|(new, by)| self.push(with(new), Some(by.clone())));
            }
            many => self.add_combined(form, many),
        }
    }

    /// Several chains: all combinations of what is kept of each, or, where these are too many, all
    /// chains bracketed alike.
    fn add_combined(&mut self, form: &Expr, chains: &[Bracketed]) {
        let counts: Vec<usize> = chains.iter().map(|chain| chain.kept.len().max(1)).collect();
        let total: usize = counts.iter().product();
        let choices: Vec<Vec<usize>> = if total <= MOST_COMBINED {
            (0..total).map(|index| digits(index, &counts)).collect()
        } else {
            self.stop = StopReason::Budget(MOST_COMBINED);
            let most = counts.iter().copied().max().unwrap_or(1).min(MOST_COMBINED);
            (0..most).map(|c| counts.iter().map(|count| c.min(count - 1)).collect()).collect()
        };
        if !fills_in(form) {
            self.push(form.clone(), None);
        }
        for choice in choices {
            let mut new = form.clone();
            for (chain, place) in chains.iter().zip(choice) {
                let Some(built) = chain.kept.get(place) else { continue };
                new = new.replace(&|e| (e == &chain.root).then(|| built.clone()));
            }
            if !fills_in(&new) {
                self.push(new, None);
            }
        }
    }
}

/// A chain with its bracketings.
struct Bracketed {
    root: Expr,
    kept: Vec<Expr>,
    pruned: Vec<(Expr, String)>,
    stop: StopReason,
}

impl Bracketed {
    fn new(root: Expr, budget: usize, known: &mut HashMap<Chain, Compositions>) -> Self {
        let factors = factors(&root);
        if factors.len() > LONG {
            // A normalised adjacency stays together: it is applied factor by factor.
            let kept = bracketings(&units(&factors));
            return Bracketed { root, kept, pruned: vec![], stop: StopReason::Budget(LONG) };
        }
        let chain = Chain::new(&factors);
        let found = known.entry(chain.clone()).or_insert_with(|| compositions(&chain, budget));
        let pruned = found.pruned.iter().map(|p| (p.tree.build(&factors), p.by.clone())).collect();
        let kept = found.kept.iter().map(|tree| tree.build(&factors)).collect();
        Bracketed { root, kept, pruned, stop: found.stop }
    }
}

/// A number in digits of mixed bases.
fn digits(mut number: usize, bases: &[usize]) -> Vec<usize> {
    let digit = |base: &usize| {
        let digit = number % base;
        number /= base;
        digit
    };
    bases.iter().map(digit).collect()
}

/// Whether two sparse matrices are multiplied anywhere.
fn fills_in(form: &Expr) -> bool {
    let inner = inner_nodes(form);
    let all = Expr::sorted(std::slice::from_ref(form));
    let products = all.iter().filter(|e| matches!(e.op(), Op::Mul) && inner.contains(&e.id()));
    products.into_iter().any(|e| e.args().iter().all(|arg| arg.kind() == Kind::Sparse))
}

/// The outermost products of a form that have more than two factors.
fn chains(form: &Expr) -> Vec<Expr> {
    let inner = inner_nodes(form);
    let order = Expr::sorted(std::slice::from_ref(form));
    let mut inside: HashSet<u128> = HashSet::new();
    for expr in order.iter().filter(|e| inner.contains(&e.id())) {
        let product = |e: &Expr| matches!(e.op(), Op::Mul) && e.kind() == Kind::Dense;
        if product(expr) {
            inside.extend(expr.args().iter().filter(|arg| product(arg)).map(Expr::id));
        }
    }
    let outermost = order.into_iter().filter(|e| {
        let product = matches!(e.op(), Op::Mul) && e.kind() == Kind::Dense;
        product && inner.contains(&e.id()) && !inside.contains(&e.id())
    });
    outermost.filter(|e| factors(e).len() > 2).collect()
}

/// What a layer looks like to the planner: operations, widths, what is constant.
fn looks(body: &Expr, candidates: usize) -> String {
    let inner = inner_nodes(body);
    let mut text = format!("{candidates};");
    for expr in Expr::sorted(std::slice::from_ref(body)) {
        if inner.contains(&expr.id()) {
            let op = match expr.op() {
                Op::Param { shape, .. } => format!("param{shape:?}"),
                Op::Adjacency(a) => format!("{:?}{}", a.graph, a.transposed),
                Op::Degrees { graph, half_power, .. } => format!("{graph:?}{half_power}"),
                Op::Identity { .. } => "identity".to_owned(),
                Op::Top { .. } => "top".to_owned(),
                Op::DropEdges { p, .. } => format!("drop{}", p.get()),
                Op::Attention(a) => format!("{:?}{}", a.scores, a.heads),
                op => format!("{op:?}"),
            };
            text.push_str(&format!("{op}{}{};", expr.width(), expr.is_constant()));
        }
    }
    // What comes in from outside: its width and whether an epoch changes it.
    for expr in Expr::sorted(std::slice::from_ref(body)) {
        if inner.contains(&expr.id()) {
            for arg in expr.args().iter().filter(|arg| !inner.contains(&arg.id())) {
                text.push_str(&format!("in{}{};", arg.width(), arg.is_constant()));
            }
        }
    }
    text
}
