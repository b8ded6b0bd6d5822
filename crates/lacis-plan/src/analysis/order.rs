//! [`Order`]: how work and depth grow, with symbols: `O(m·k + n·k²)` and `O(log d + log k)`.

use std::collections::{BTreeMap, HashMap};

use super::sums_over_nodes;
use crate::dim::Dim;
use crate::plan::{Form, Operator, Place, Plan, Step, ValueId};

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
    /// Whether a product has it.
    product: Product,
}

/// Which product a term is of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
enum Product {
    /// None: elements pass by.
    #[default]
    None,
    /// One with the adjacency.
    Adjacency,
    /// One with weights.
    Weights,
}

impl Term {
    /// How often each symbol occurs.
    fn powers(&self) -> [u8; 6] {
        [self.m, self.n, self.s, self.g, self.q, self.k]
    }

    /// Whether the other one grows at least as fast in every symbol: a node more may be an edge
    /// less, so `n` and `m` are not compared.
    fn is_below(&self, other: &Term) -> bool {
        let (own, others) = (self.powers(), other.powers());
        own != others && own.iter().zip(&others).all(|(own, other)| own <= other)
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

impl Term {
    /// The term as people write it, a symbol more before its columns.
    fn with(&self, inner: Option<&str>) -> String {
        let raised = |(symbol, power): (&str, u8)| match power {
            0 => None,
            1 => Some(symbol.to_owned()),
            _ => {
                let power = ["²", "³", "⁴"].get(power as usize - 2).copied().unwrap_or("^n");
                Some(format!("{symbol}{power}"))
            }
        };
        let symbols = [("m", self.m), ("s", self.s), ("n", self.n), ("g", self.g), ("q", self.q)];
        let rows = symbols.into_iter().filter_map(raised);
        let all = rows.chain(inner.map(str::to_owned)).chain(raised(("k", self.k)));
        let parts: Vec<String> = all.collect();
        if parts.is_empty() { "1".to_owned() } else { parts.join("·") }
    }
}

/// A number of the model that is a symbol too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Repeated {
    /// The number.
    pub times: usize,
    /// Its symbol.
    pub symbol: &'static str,
}

/// How often a layer repeats itself: numbers of the model that are symbols too.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Repeats {
    /// Products with the adjacency, one after another.
    pub hops: Option<Repeated>,
    /// Products with weights.
    pub weights: Option<Repeated>,
}

impl Repeats {
    /// The symbol of a repetition that so many steps are; constants are left out.
    fn symbol(repeated: Option<Repeated>, count: usize) -> Option<&'static str> {
        repeated.filter(|of| of.times > 1 && count >= of.times).map(|of| of.symbol)
    }

    /// Symbols of a term that so many steps have: before it, and before its columns. A number of
    /// hops that weights are repeated with stands first, as that of the hops does.
    fn of(&self, term: &Term, count: usize) -> [Option<&'static str>; 2] {
        match term.product {
            Product::None => [None, None],
            Product::Adjacency => [Repeats::symbol(self.hops, count), None],
            Product::Weights => {
                let symbol = Repeats::symbol(self.weights, count);
                let first = self.hops.is_some_and(|hops| Some(hops.symbol) == symbol);
                if first { [symbol, None] } else { [None, symbol] }
            }
        }
    }
}

/// How often a sum over edges, over columns and over nodes waits for the one before.
type Logs = [usize; 3];

/// Orders of growth. See the module's head.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Order {
    repeats: Repeats,
    work: BTreeMap<Term, usize>,
    /// Along the longest chain of results.
    logs: Logs,
    /// Along the longest chain to each result.
    ready: HashMap<ValueId, Logs>,
}

impl Order {
    pub(super) fn new(repeats: Repeats) -> Self {
        Order { repeats, work: BTreeMap::new(), logs: [0; 3], ready: HashMap::new() }
    }

    /// Counts a step in, after those whose results it reads. What it adds to is not waited for
    /// before its own sums begin.
    pub(super) fn add(&mut self, plan: &Plan, step: &Step) {
        *self.work.entry(term(plan, step)).or_default() += 1;
        let known = |value: &ValueId| self.ready.get(&plan.base(*value)).copied();
        let most = |a: Logs, b: Logs| [0, 1, 2].map(|at| a[at].max(b[at]));
        let (waits, added) = super::waits(step);
        let before = waits.iter().filter_map(known).fold([0; 3], most);
        let own = sums(plan, step);
        let mut ends = [0, 1, 2].map(|at| before[at] + own[at]);
        ends = added.iter().filter_map(known).fold(ends, most);
        for &output in &step.outputs {
            self.ready.insert(plan.base(output), ends);
        }
        self.logs = most(self.logs, ends);
    }

    /// Of the work, terms that others outgrow left out.
    pub fn work(&self) -> String {
        let outgrown = |term: &Term| self.work.keys().any(|other| term.is_below(other));
        let mut kept: Vec<&Term> = self.work.keys().filter(|term| !outgrown(term)).collect();
        kept.sort_by_key(|term| std::cmp::Reverse(**term));
        // A pass over as many elements as a product has says nothing new.
        kept.dedup_by(|a, b| a.powers() == b.powers());
        in_order(kept.into_iter().map(|term| self.word(term)).collect())
    }

    fn word(&self, term: &Term) -> String {
        let [first, inner] = self.repeats.of(term, self.work[term]);
        let first = first.map_or(String::new(), |symbol| format!("{symbol}·"));
        format!("{first}{}", term.with(inner))
    }

    /// Of the depth.
    pub fn depth(&self) -> String {
        let Repeats { hops, weights } = self.repeats;
        let logs = [("log d", hops), ("log k", weights), ("log n", None)];
        let words = logs.into_iter().zip(self.logs).filter(|(_, count)| *count > 0);
        let words = words.map(|((log, repeated), count)| {
            let factor = Repeats::symbol(repeated, count);
            factor.map_or(log.to_owned(), |factor| format!("{factor}·{log}"))
        });
        in_order(words.collect())
    }
}

/// The sums of a step that wait for each other: over edges, over columns, over nodes.
fn sums(plan: &Plan, step: &Step) -> Logs {
    match step.operator {
        Operator::Spmm { .. } | Operator::Extreme(_) | Operator::ExtremeGrad(_) => {
            // A row of sparse features is a sum over columns.
            if of_features(plan, step) { [0, 1, 0] } else { [1, 0, 0] }
        }
        Operator::Gated | Operator::GatedGrad => [1, 0, 0],
        Operator::Attention(_) | Operator::AttentionGrad(_) => [1, 1, 0],
        ref operator if sums_over_nodes(operator) => [0, 0, 1],
        Operator::Gemm { .. } => [0, 1, 0],
        Operator::ColumnSums
        | Operator::Norm { .. }
        | Operator::NormGrad { .. }
        | Operator::Readout(_)
        | Operator::Dot => [0, 0, 1],
        Operator::Loss(_) => [0, 1, 1],
        _ => [0; 3],
    }
}

/// Whether a sparse product's matrix is the features.
fn of_features(plan: &Plan, step: &Step) -> bool {
    let mut value = plan.base(step.inputs[0]);
    while let Place::Entries { of, .. } = plan.values[value].place {
        value = plan.base(of);
    }
    plan.values[value].place == Place::Features
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
            let entries = match of_features(plan, step) {
                true => Term { s: 1, product: Product::Weights, ..none },
                false => Term { m: 1, product: Product::Adjacency, ..none },
            };
            entries.times(shape(step.inputs[1])[1])
        }
        Operator::Gemm { form, .. } => {
            let ([a, b], [c, d]) = (shape(step.inputs[0]), shape(step.inputs[1]));
            let last = if form == Form::Nt { c } else { d };
            let weights = Term { product: Product::Weights, ..none };
            weights.times(a).times(b).times(last)
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
