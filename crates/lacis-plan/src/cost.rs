//! Costs: what a step has to do, in numbers, and who says how long that takes.

use std::cell::RefCell;
use std::collections::HashMap;

use crate::dim::Sizes;
use crate::op::{Function, Scores};
use crate::plan::{Each, Form, Operator, Phase, Place, Plan, Step, ValueId};

/// What a step has to do, whatever the formula it came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Work {
    /// A sparse matrix times a dense one.
    Spmm {
        /// Rows, columns and entries of the matrix.
        shape: [usize; 3],
        /// Columns of the dense one.
        width: usize,
        /// Whether entries have values.
        valued: bool,
        /// Maxima rather than sums.
        extreme: bool,
        /// Whether rows of the dense one are scaled on the way.
        scaled: bool,
        /// Whether rows are stored in bf16.
        half: bool,
        /// Exponentials on the way to memory.
        hard: usize,
    },
    /// `m×k` times `k×n`.
    Gemm {
        /// Which factor is transposed.
        form: Form,
        /// `m`, `n` and `k` of the product.
        sizes: [usize; 3],
        /// Exponentials on the way to memory.
        hard: usize,
    },
    /// Attention, one way or back.
    Attention {
        /// Rows, columns and entries.
        shape: [usize; 3],
        /// Heads.
        heads: usize,
        /// Columns of all heads.
        width: usize,
        /// Whether it is the gradient.
        backward: bool,
        /// How edges are scored.
        scores: Scores,
    },
    /// The transpose of a sparse matrix times a dense one, from its rows.
    SparseTransposed {
        /// Rows, columns and entries.
        shape: [usize; 3],
        /// Columns of the dense one.
        width: usize,
    },
    /// Bytes read and written one after another, and how many functions are evaluated.
    Stream {
        /// Bytes read.
        read: usize,
        /// Bytes written.
        written: usize,
        /// Exponentials, and what takes as long: random numbers, entries that are moved.
        hard: usize,
    },
}

/// Who knows how long work takes.
pub trait Costs {
    /// Seconds, or `None` where there is no kernel for it.
    fn seconds(&self, work: &Work) -> Option<f64>;

    /// Seconds more where so many bytes are written for the first time: the system has to find and
    /// clear them.
    fn fresh(&self, _bytes: usize) -> f64 {
        0.0
    }
}

/// Costs that ask somebody once for each work: plans of one network have most of theirs in common.
pub struct Remembered<'a> {
    costs: &'a dyn Costs,
    known: RefCell<HashMap<Work, Option<f64>>>,
}

impl<'a> Remembered<'a> {
    /// What somebody says.
    pub fn new(costs: &'a dyn Costs) -> Self {
        Remembered { costs, known: RefCell::default() }
    }
}

impl Costs for Remembered<'_> {
    fn seconds(&self, work: &Work) -> Option<f64> {
        *self.known.borrow_mut().entry(*work).or_insert_with(|| self.costs.seconds(work))
    }

    fn fresh(&self, bytes: usize) -> f64 {
        self.costs.fresh(bytes)
    }
}

/// Seconds of an exponential or a random number, on all cores.
pub const HARD: f64 = 0.3e-9;

/// Costs of a machine of which only bandwidth and speed are known.
#[derive(Clone, Copy, Debug)]
pub struct Analytic {
    /// Bytes per second, one after another.
    pub stream: f64,
    /// Bytes per second of rows in any order.
    pub gather: f64,
    /// Multiplications and additions per second.
    pub products: f64,
}

impl Default for Analytic {
    fn default() -> Self {
        Analytic { stream: 30e9, gather: 40e9, products: 150e9 }
    }
}

impl Costs for Analytic {
    fn seconds(&self, work: &Work) -> Option<f64> {
        Some(match *work {
            Work::Spmm { shape: [rows, _, entries], width, valued, half, hard, .. } => {
                let index = if valued { 8 } else { 4 };
                let number = if half { 2 } else { 4 };
                (entries * (number * width + index)) as f64 / self.gather
                    + (rows * width * number) as f64 / self.stream
                    + hard as f64 * HARD
            }
            Work::Gemm { sizes: [m, n, k], hard, .. } => {
                2.0 * (m * n * k) as f64 / self.products + hard as f64 * HARD
            }
            Work::Attention { shape: [_, _, entries], heads, width, backward, .. } => {
                let passes = if backward { 3 } else { 1 };
                (passes * entries * (4 * width + 40 * heads)) as f64 / self.gather
            }
            Work::SparseTransposed { shape: [_, _, entries], width } => {
                (entries * (4 * width + 8)) as f64 / self.gather
            }
            Work::Stream { read, written, hard } => {
                (read + written) as f64 / self.stream + hard as f64 * HARD
            }
        })
    }
}

/// What a plan costs.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Predicted {
    /// Seconds of each step.
    pub steps: Vec<f64>,
    /// Seconds of what is done once.
    pub once: f64,
    /// Seconds of an iteration, without it.
    pub iteration: f64,
}

impl Predicted {
    /// Seconds of an iteration with its share of what is done once.
    pub fn epoch(&self, iterations: usize) -> f64 {
        self.iteration + self.once / iterations.max(1) as f64
    }
}

/// How much longer a kernel takes that runs once: neither its code nor its operands are near.
const COLD: f64 = 1.35;

/// Predicts every step; `None` where one has no kernel.
pub fn predict(plan: &Plan, sizes: &Sizes, costs: &dyn Costs) -> Option<Predicted> {
    let mut predicted = Predicted::default();
    for step in &plan.steps {
        let mut seconds = costs.seconds(&work(plan, step, sizes))?;
        if step.phase == Phase::Once {
            let bytes = |value: &ValueId| plan.len_of(*value, sizes) * plan.number_bytes(*value);
            seconds = COLD * seconds + costs.fresh(step.outputs.iter().map(bytes).sum());
            predicted.once += seconds;
        } else {
            predicted.iteration += seconds;
        }
        predicted.steps.push(seconds);
    }
    // A transposed adjacency is made once, unless the matrix is its own.
    if !sizes.symmetric || sizes.nodes.windows(2).any(|pair| pair[0] != pair[1]) {
        let transposed = plan.values.iter().filter_map(|value| match value.place {
            Place::Adjacency(a) if a.transposed => Some(sizes.entries_of(a.level, true)),
            _ => None,
        });
        let bytes: usize = transposed.map(|entries| entries * 16).sum();
        let turning = Work::Stream { read: bytes, written: bytes, hard: 0 };
        predicted.once += costs.seconds(&turning)?;
    }
    Some(predicted)
}

/// What a step has to do.
pub fn work(plan: &Plan, step: &Step, sizes: &Sizes) -> Work {
    let shape = |value: ValueId| plan.values[value].shape.map(|dim| sizes.of(dim));
    let sparse = |value: ValueId| {
        let [rows, cols] = shape(value);
        [rows, cols, plan.entries_of(value, sizes)]
    };
    let width = |value: ValueId| shape(value)[1];
    let len_of = |value: ValueId| plan.len_of(value, sizes);
    match step.operator {
        Operator::Spmm { right, ending, .. } => {
            let (a, x) = (step.inputs[0], step.inputs[1]);
            let valued = !matches!(
                plan.values[a].place,
                Place::Adjacency(adjacency) if !adjacency.graph.weighted || !sizes.weighted()
            );
            let (shape, width, half) = (sparse(a), width(x), plan.values[x].half);
            let hard = exponentials(ending.function, shape[0] * width);
            Work::Spmm { shape, width, valued, extreme: false, scaled: right, half, hard }
        }
        Operator::Extreme(_) | Operator::ExtremeGrad(_) => {
            let (a, x) = (step.inputs[0], step.inputs[1]);
            let passes = if matches!(step.operator, Operator::ExtremeGrad(_)) { 2 } else { 1 };
            let [rows, cols, entries] = sparse(a);
            let shape = [rows, cols, passes * entries];
            let (width, half) = (width(x), plan.values[x].half);
            Work::Spmm { shape, width, valued: false, extreme: true, scaled: false, half, hard: 0 }
        }
        Operator::Gemm { form, ending } => {
            let ([m, k], [k2, n]) = (shape(step.inputs[0]), shape(step.inputs[1]));
            // Both products at once are as one of a longer sum, longer by the share of rows that
            // the second one has.
            let more = if ending.plus {
                let [rows, terms] = shape(step.inputs[2]);
                rows * terms / m.max(1)
            } else {
                0
            };
            let sizes = match form {
                Form::Nn => [m, n, k + more],
                Form::Nt => [m, k2, k + more],
                Form::Tn => [k, n, m],
            };
            Work::Gemm { form, sizes, hard: exponentials(ending.function, sizes[0] * sizes[1]) }
        }
        Operator::SparseTransposed => {
            Work::SparseTransposed { shape: sparse(step.inputs[0]), width: width(step.inputs[1]) }
        }
        Operator::Attention(attention) | Operator::AttentionGrad(attention) => Work::Attention {
            shape: sparse(step.inputs[0]),
            heads: attention.heads,
            width: width(step.inputs[1]),
            backward: matches!(step.operator, Operator::AttentionGrad(_)),
            scores: attention.scores,
        },
        Operator::Pairs(_) | Operator::PairsGrad(_) => {
            let [rows, cols] = shape(step.inputs[0]);
            let read = 2 * sizes.pairs * cols * 4;
            let grad = matches!(step.operator, Operator::PairsGrad(_));
            let written = if grad { rows * cols * 8 } else { len_of(step.outputs[0]) * 4 };
            Work::Stream { read: if grad { 2 * read } else { read }, written, hard: 0 }
        }
        Operator::Gated | Operator::GatedGrad => gates(plan, step, sizes),
        _ => stream(plan, step, sizes),
    }
}

/// Exponentials of a function of so many elements.
fn exponentials(function: Function, elements: usize) -> usize {
    match function {
        Function::Identity | Function::Relu | Function::LeakyRelu(_) => 0,
        _ => elements,
    }
}

/// Both rows of every edge's other end, and an exponential per element: once forward, and for each
/// end back.
fn gates(plan: &Plan, step: &Step, sizes: &Sizes) -> Work {
    let passes = if matches!(step.operator, Operator::GatedGrad) { 2 } else { 1 };
    let width = sizes.of(plan.values[step.inputs[3]].shape[1]);
    let elements = passes * plan.entries_of(step.inputs[0], sizes) * width;
    let written: usize = step.outputs.iter().map(|out| plan.len_of(*out, sizes)).sum();
    Work::Stream { read: 8 * elements, written: 4 * written, hard: elements }
}

/// What a loss does with an element counts for so many exponentials.
const LOSS: usize = 5;
/// So do a random number drawn by itself, an entry that is scaled by what its ends have, and one
/// that gets another place. Random numbers of edges are drawn eight at a time.
const DRAWN: usize = 8;
const KEPT: usize = 2;
const SCALED: usize = 1;
const MOVED: usize = 7;

/// Reads its inputs, writes its outputs.
fn stream(plan: &Plan, step: &Step, sizes: &Sizes) -> Work {
    let bytes = |value: &ValueId| plan.len_of(*value, sizes) * plan.number_bytes(*value);
    let read: usize = step.inputs.iter().map(bytes).sum();
    let written: usize = step.outputs.iter().map(bytes).sum();
    if matches!(step.operator, Operator::Pad) && plan.in_place(step) {
        return Work::Stream { read: 0, written: written.saturating_sub(read), hard: 0 };
    }
    if let Operator::Update(_) = step.operator {
        // A weight, its gradient and two moments; a root and a quotient.
        let weights = plan.len_of(step.inputs[0], sizes);
        return Work::Stream { read: 16 * weights, written: 12 * weights, hard: weights / 4 };
    }
    let elements: usize = step.outputs.iter().map(|out| plan.len_of(*out, sizes)).sum();
    let drawn = |dropout: Option<_>| elements * usize::from(dropout.is_some());
    let hard = match step.operator {
        Operator::Each(Each { dropout, function, .. }) => {
            drawn(dropout) + exponentials(function, elements)
        }
        Operator::EachGrad { dropout, .. } => drawn(dropout),
        Operator::EntryDropout { .. } => DRAWN * elements,
        Operator::EdgeDropout { .. } => KEPT * elements,
        Operator::EntryScale { .. } => SCALED * elements,
        Operator::PlusIdentity { .. } => MOVED * elements,
        // An exponential, a maximum and a sum, and all of it again for the gradient.
        Operator::Loss(_) => LOSS * elements,
        _ => 0,
    };
    Work::Stream { read, written, hard }
}
