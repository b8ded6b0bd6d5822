//! [`Order`]: how work and depth grow, with symbols: `O(m·k + n·k²)` and `O(log d + log k)`.

use std::collections::BTreeMap;
use std::fmt;

use super::sums_over_nodes;
use crate::dim::Dim;
use crate::plan::{Operator, Place, Plan, Step, ValueId};

/// A product of symbols, by how often each occurs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Term {
    /// Stored edges.
    m: u8,
    /// Nodes.
    n: u8,
    /// Stored entries of sparse features.
    s: u8,
    /// Graphs of a batch.
    g: u8,
    /// Pairs of nodes.
    q: u8,
    /// Columns.
    k: u8,
}

impl Term {
    /// Whether the other one grows at least as fast in every symbol: a node more may be an edge
    /// less, so `n` and `m` are not compared.
    fn is_below(&self, other: &Term) -> bool {
        let at_most = self.m <= other.m
            && self.n <= other.n
            && self.s <= other.s
            && self.g <= other.g
            && self.q <= other.q
            && self.k <= other.k;
        at_most && self != other
    }

    fn times(mut self, dim: Dim) -> Term {
        match dim {
            Dim::Nodes(_) => self.n += 1,
            Dim::Graphs => self.g += 1,
            Dim::Pairs => self.q += 1,
            Dim::Width(1) => {}
            Dim::Width(_) => self.k += 1,
        }
        self
    }
}

impl fmt::Display for Term {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let symbols = [
            ("m", self.m),
            ("s", self.s),
            ("n", self.n),
            ("g", self.g),
            ("q", self.q),
            ("k", self.k),
        ];
        let parts = symbols.iter().filter(|(_, power)| *power > 0).map(|(symbol, power)| {
            let raised = ["", "", "²", "³", "⁴"].get(*power as usize).copied().unwrap_or("^n");
            format!("{symbol}{raised}")
        });
        let parts: Vec<String> = parts.collect();
        f.write_str(if parts.is_empty() { "1".to_owned() } else { parts.join("·") }.as_str())
    }
}

/// Numbers of the model that are symbols too: how often a layer repeats itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Repeats {
    /// Hops of a polynomial, `p`.
    pub hops: usize,
}

/// Orders of growth. See the module's head.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Order {
    repeats: Repeats,
    work: BTreeMap<Term, usize>,
    /// How often a sum over edges, over columns and over nodes waits for the one before.
    logs: [usize; 3],
}

impl Order {
    pub(super) fn new(repeats: Repeats) -> Self {
        Order { repeats, work: BTreeMap::new(), logs: [0; 3] }
    }

    /// Counts a step in.
    pub(super) fn add(&mut self, plan: &Plan, step: &Step) {
        *self.work.entry(term(plan, step)).or_default() += 1;
        match step.operator {
            Operator::Spmm { .. } | Operator::Extreme(_) | Operator::ExtremeGrad(_) => {
                let features = matches!(plan.values[step.inputs[0]].place, Place::Features);
                self.logs[usize::from(features)] += 1;
            }
            Operator::Gated | Operator::GatedGrad => self.logs[0] += 1,
            Operator::Attention(_) | Operator::AttentionGrad(_) => {
                self.logs[0] += 1;
                self.logs[1] += 1;
            }
            ref operator if sums_over_nodes(operator) => self.logs[2] += 1,
            Operator::Gemm { .. } => self.logs[1] += 1,
            Operator::ColumnSums
            | Operator::Norm { .. }
            | Operator::NormGrad { .. }
            | Operator::Readout(_)
            | Operator::Dot => self.logs[2] += 1,
            Operator::Loss(_) => {
                self.logs[1] += 1;
                self.logs[2] += 1;
            }
            _ => {}
        }
    }

    /// Of the work, terms that others outgrow left out.
    pub fn work(&self) -> String {
        let kept = self.work.keys().filter(|term| !self.work.keys().any(|o| term.is_below(o)));
        let mut kept: Vec<&Term> = kept.collect();
        kept.sort_by_key(|term| std::cmp::Reverse(**term));
        let words = kept.iter().map(|term| {
            let count = self.work[*term];
            format!("{}{term}", self.factor(count))
        });
        in_order(words.collect())
    }

    /// Of the depth.
    pub fn depth(&self) -> String {
        let words = ["log d", "log k", "log n"].iter().zip(self.logs);
        let words = words.filter(|(_, count)| *count > 0);
        in_order(words.map(|(log, count)| format!("{}{log}", self.factor(count))).collect())
    }

    /// The symbol of a repetition that is one of the model's numbers; constants are left out.
    fn factor(&self, count: usize) -> &'static str {
        let Repeats { hops } = self.repeats;
        if hops > 1 && count >= hops { "p·" } else { "" }
    }
}

fn in_order(words: Vec<String>) -> String {
    match words.is_empty() {
        true => "O(1)".to_owned(),
        false => format!("O({})", words.join(" + ")),
    }
}

/// What a step's work grows with.
fn term(plan: &Plan, step: &Step) -> Term {
    let shape = |value: ValueId| plan.values[value].shape;
    let none = Term::default();
    match step.operator {
        Operator::Spmm { .. }
        | Operator::Extreme(_)
        | Operator::ExtremeGrad(_)
        | Operator::SparseTransposed
        | Operator::Attention(_)
        | Operator::AttentionGrad(_)
        | Operator::Gated
        | Operator::GatedGrad => {
            let features = matches!(plan.values[plan.base(step.inputs[0])].place, Place::Features);
            let entries = if features { Term { s: 1, ..none } } else { Term { m: 1, ..none } };
            entries.times(shape(step.inputs[1])[1])
        }
        Operator::Gemm { form, .. } => {
            let ([a, b], [c, d]) = (shape(step.inputs[0]), shape(step.inputs[1]));
            let last = if form == crate::plan::Form::Nt { c } else { d };
            none.times(a).times(b).times(last)
        }
        _ => {
            let all = step.inputs.iter().chain(&step.outputs);
            all.map(|&value| dense_term(plan, value)).max().unwrap_or(none)
        }
    }
}

/// Elements of a value.
fn dense_term(plan: &Plan, value: ValueId) -> Term {
    let none = Term::default();
    match (plan.values[plan.base(value)].place, plan.values[value].shape) {
        (Place::Adjacency(_) | Place::Entries { .. } | Place::Matrix(_), _) => {
            Term { m: 1, ..none }
        }
        // Nodes times nodes is a diagonal.
        (_, [Dim::Nodes(_), Dim::Nodes(_)]) => Term { n: 1, ..none },
        (_, [rows, cols]) => none.times(rows).times(cols),
    }
}
