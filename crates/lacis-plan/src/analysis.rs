//! Work, depth and bytes of a plan: what it asks of a machine with as many workers as it likes.
//!
//! The model is that of Besta and Hoefler (*Parallel and Distributed Graph Neural Networks*, 2022):
//! work counts operations, depth the longest chain of operations that wait for each other, where a
//! sum of `x` numbers is a tree of depth `log x`. Numbers come from the steps as planned, so every
//! model is covered; [`Order`] says the same with symbols.

mod order;

use std::collections::HashMap;

use crate::cost::{Work, work};
use crate::dim::{Dim, Sizes};
use crate::op::{Function, Scores};
use crate::plan::{Each, Form, Operator, Plan, Step, ValueId};

pub use order::{Order, Repeated, Repeats};

/// What some steps ask for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Additions, multiplications and functions.
    pub work: u64,
    /// The longest chain of them.
    pub depth: u64,
    /// Bytes read and written, every gathered row counted: what a machine without caches moves.
    pub bytes: u64,
}

impl Tally {
    /// Operations per byte.
    pub fn intensity(&self) -> f64 {
        self.work as f64 / self.bytes.max(1) as f64
    }

    /// Workers that could be busy on average.
    pub fn parallelism(&self) -> f64 {
        self.work as f64 / self.depth.max(1) as f64
    }
}

/// What is analysed: a plan, its sizes, and the most entries that a row of the adjacency has.
#[derive(Clone, Copy, Debug)]
pub struct Subject<'a> {
    /// The plan.
    pub plan: &'a Plan,
    /// The sizes it meets.
    pub sizes: &'a Sizes,
    /// The largest degree.
    pub degree: usize,
}

impl Subject<'_> {
    /// One step.
    pub fn step(&self, step: &Step) -> Tally {
        let work = work(self.plan, step, self.sizes);
        let (operations, bytes) = match work {
            // A sum, an exponential, a division and a product for each gate.
            Work::Stream { read, written, hard } if is_gated(&step.operator) => {
                (4 * hard as u64, (read + written) as u64)
            }
            Work::Stream { read, written, .. } => {
                (self.elements(step) as u64 * per_element(&step.operator), (read + written) as u64)
            }
            Work::Gemm { .. } => self.dense(step),
            // Edges of targets are looked at once more, as those of GATv2 are.
            Work::Attention { shape, heads, width, backward, .. } if step.looks_again() => {
                let scores = Scores::GatV2;
                moved(&Work::Attention { shape, heads, width, backward, scores })
            }
            _ => moved(&work),
        };
        Tally { work: operations, depth: self.depth(step, &work), bytes }
    }

    /// Steps together: works and bytes added up, depth along the longest chain of results.
    pub fn steps(&self, chosen: impl Fn(&Step) -> bool) -> Tally {
        let mut total = Tally::default();
        let mut ready: HashMap<ValueId, u64> = HashMap::new();
        for step in self.plan.steps.iter().filter(|step| chosen(step)) {
            let own = self.step(step);
            let known = |value: &ValueId| ready.get(&self.plan.base(*value)).copied();
            let (waits, added) = waits(step);
            let start = waits.iter().filter_map(known).max().unwrap_or(0);
            let sum = added.iter().filter_map(known).max().map_or(0, |other| other + 1);
            let end = (start + own.depth).max(sum);
            for &output in &step.outputs {
                ready.insert(self.plan.base(output), end);
            }
            total.work += own.work;
            total.bytes += own.bytes;
            total.depth = total.depth.max(end);
        }
        total
    }

    /// The order of growth of some steps.
    pub fn order(&self, chosen: impl Fn(&Step) -> bool, repeats: Repeats) -> Order {
        let mut order = Order::new(repeats);
        let steps = self.plan.steps.iter().filter(|step| chosen(step));
        steps.for_each(|step| order.add(self.plan, step));
        order
    }

    /// Layers that the plan has, in their order.
    pub fn layers(&self) -> Vec<u16> {
        let mut layers: Vec<u16> = self.plan.steps.iter().filter_map(|step| step.layer).collect();
        layers.sort_unstable();
        layers.dedup();
        layers
    }

    /// A dense product, or both of a step that has two, of which the second may have fewer rows:
    /// each number of the first factor meets a row of the second, or a column where that is
    /// transposed.
    fn dense(&self, step: &Step) -> (u64, u64) {
        let plan = self.plan;
        let held = |value: ValueId| plan.len_of(value, self.sizes) as u64;
        let bytes = |value: ValueId| held(value) * plan.number_bytes(value) as u64;
        let Operator::Gemm { form, ending } = step.operator else { return (0, 0) };
        let pairs = step.inputs.chunks_exact(2).take(if ending.plus { 2 } else { 1 });
        pairs.fold((0, bytes(step.outputs[0])), |(work, moved), pair| {
            let [rows, cols] = plan.values[pair[1]].shape.map(|dim| self.sizes.of(dim) as u64);
            let meets = if form == Form::Nt { rows } else { cols };
            (work + 2 * held(pair[0]) * meets, moved + bytes(pair[0]) + bytes(pair[1]))
        })
    }

    fn elements(&self, step: &Step) -> usize {
        let all = step.inputs.iter().chain(&step.outputs);
        all.map(|&value| self.plan.len_of(value, self.sizes)).max().unwrap_or(0)
    }

    fn rows(&self, value: ValueId) -> usize {
        self.sizes.of(self.plan.values[value].shape[0])
    }

    fn depth(&self, step: &Step, work: &Work) -> u64 {
        match (*work, step.operator) {
            (Work::Spmm { shape, valued, .. }, _) => {
                tree(self.longest(step, shape)) + 1 + u64::from(valued)
            }
            (Work::Gemm { sizes: [_, _, k], .. }, _) => tree(k) + 1,
            // Scores, their largest, their sum, and the sum of what they weigh.
            (Work::Attention { shape, heads, width, backward, .. }, _) => {
                let once = 2 * tree(self.longest(step, shape)) + tree(width / heads.max(1)) + 4;
                if backward { 2 * once } else { once }
            }
            (Work::SparseTransposed { shape: [rows, ..], .. }, _) => tree(rows) + 1,
            (_, Operator::Gated | Operator::GatedGrad) => tree(self.degree + 1) + 4,
            (_, Operator::ColumnSums) => tree(self.rows(step.inputs[0])),
            (_, Operator::Norm { .. } | Operator::NormGrad { .. }) => {
                2 * tree(self.rows(step.inputs[0])) + 4
            }
            (_, Operator::Unit | Operator::UnitGrad) => {
                let shape = self.plan.values[step.inputs[0]].shape;
                2 * tree(self.sizes.of(shape[1])) + 3
            }
            (_, Operator::Readout(_)) => tree(self.rows(step.inputs[0])),
            (_, Operator::Dot) => tree(self.elements(step)) + 1,
            (_, Operator::Loss(_)) => {
                let shape = self.plan.values[step.inputs[0]].shape;
                2 * tree(self.sizes.of(shape[1])) + tree(self.sizes.of(shape[0])) + 3
            }
            (_, operator) => per_element(&operator),
        }
    }

    /// Entries of the longest row: of the graph, or of features at most all columns.
    fn longest(&self, step: &Step, [_, cols, entries]: [usize; 3]) -> usize {
        let of_features = matches!(self.plan.values[step.inputs[0]].shape[1], Dim::Width(_));
        (if of_features { cols } else { self.degree + 1 }).min(entries)
    }
}

/// What a step reads before it begins, and what its result is only added to at its end.
fn waits(step: &Step) -> (&[ValueId], &[ValueId]) {
    step.inputs.split_at(step.inputs.len() - usize::from(step.replaces_last()))
}

/// Depth of a sum of `x` numbers.
pub fn tree(x: usize) -> u64 {
    u64::from(usize::BITS - x.max(1).saturating_sub(1).leading_zeros())
}

/// Operations and bytes of a product. Gathered rows count each time they are gathered.
fn moved(work: &Work) -> (u64, u64) {
    let of = |number: usize| number as u64;
    match *work {
        Work::Spmm { shape: [rows, _, entries], width, valued, half, .. } => {
            let per_entry = if valued { 2 } else { 1 };
            let index = if valued { 8 } else { 4 };
            let row = of(width) * if half { 2 } else { 4 };
            (
                per_entry * of(entries) * of(width),
                of(entries) * (row + index) + of(rows) * (row + 8),
            )
        }
        Work::Attention { shape: [rows, _, entries], heads, width, backward, scores } => {
            // A score, its exponential, and a weighted row; back: the same again and its gradient,
            // and where sums over targets were not kept, once more.
            let passes = match (backward, scores) {
                (false, _) => 1,
                (true, Scores::Gat) => 2,
                (true, Scores::GatV2) => 3,
            };
            let (width, heads) = (of(width), of(heads));
            (
                passes * of(entries) * (2 * width + 5 * heads),
                passes * of(entries) * (4 * width + 4 * heads + 4)
                    + of(rows) * (4 * width + 8 * heads + 8),
            )
        }
        Work::SparseTransposed { shape: [_, cols, entries], width } => (
            2 * of(entries) * of(width),
            of(entries) * (4 * of(width) + 8) + 4 * of(cols) * of(width),
        ),
        // Of these the step says more.
        Work::Gemm { .. } | Work::Stream { .. } => (0, 0),
    }
}

/// Operations on each element that passes by.
pub fn per_element(operator: &Operator) -> u64 {
    match operator {
        Operator::Each(Each { scale, rows, plus, bias, function, dropout }) => {
            let scaled = scale.get() != 1.0;
            let parts = [scaled, *rows, plus.is_some(), *bias, dropout.is_some()];
            let active = parts.iter().filter(|part| **part).count() as u64;
            active + u64::from(*function != Function::Identity)
        }
        Operator::EachGrad { function, dropout, .. } => {
            1 + u64::from(*function != Function::Identity) + u64::from(dropout.is_some())
        }
        Operator::Pad
        | Operator::Concat
        | Operator::PadColumns { .. }
        | Operator::Transpose
        | Operator::Convert
        | Operator::PlusIdentity { .. } => 0,
        Operator::Norm { .. } => 6,
        Operator::NormGrad { .. } => 10,
        Operator::Unit => 3,
        Operator::UnitGrad => 6,
        Operator::Loss(_) => 4,
        Operator::Dot => 2,
        // Two moments, their corrections, a root and a division.
        Operator::Update(_) => 12,
        _ => 1,
    }
}

/// Whether edges carry gates.
fn is_gated(operator: &Operator) -> bool {
    matches!(operator, Operator::Gated | Operator::GatedGrad)
}

/// Whether a dense product sums over nodes: a weight's gradient.
fn sums_over_nodes(operator: &Operator) -> bool {
    matches!(operator, Operator::Gemm { form: Form::Tn, .. } | Operator::SparseTransposed)
}
