//! [`Plan`]: steps over numbered values, forward, backward and update in one list.
//!
//! A step names an operator, its attributes and values, never a function. Values that are computed
//! live in slots; a slot serves one value after another. Sizes stay symbols, so that one plan
//! serves batches of any size: a slot grows to the largest value it ever held.

mod check;

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::dim::{Dim, Sizes};
use crate::op::{
    Adjacency, Attention, Extreme, Function, Graph, LossKind, NormKind, Number, PairOp, Read,
    Scores,
};

/// A value's number.
pub type ValueId = usize;

/// Where a value is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Place {
    /// Given: the nodes' features.
    Features,
    /// Given: a parameter, by its number.
    Param(usize),
    /// Given: an adjacency.
    Adjacency(Adjacency),
    /// Given: a power of degrees.
    Degrees {
        /// Of which adjacency.
        graph: Graph,
        /// At which level.
        level: u16,
        /// Twice the exponent.
        half_power: i8,
    },
    /// Computed: rows of numbers in a slot.
    Slot(usize),
    /// Computed: new values, in a slot, for the entries of another matrix.
    Entries {
        /// Whose entries.
        of: ValueId,
        /// Where their values are.
        slot: usize,
    },
    /// Computed: a matrix of its own, kept by number.
    Matrix(usize),
    /// Some columns, or the top rows, of another value.
    View {
        /// Of which.
        of: ValueId,
        /// The first column.
        from: usize,
    },
}

/// What rows of nodes and graphs are stored in: features, activations, their gradients. Weights,
/// sums and results are f32 whatever it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Precision {
    /// Four bytes a number.
    #[default]
    F32,
    /// Two bytes a number: the range of f32, eight bits of it.
    Bf16,
}

/// A value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Value {
    /// Rows and columns.
    pub shape: [Dim; 2],
    /// Where it is.
    pub place: Place,
    /// Whether it is stored in bf16; a view is as what it is a view of.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub half: bool,
    /// What it is.
    pub formula: String,
}

/// When a step runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Phase {
    /// Before the first iteration, or when the graph changes.
    Once,
    /// In each forward pass.
    Forward,
    /// In each backward pass.
    Backward,
    /// After it.
    Update,
}

/// Which factor of a dense product is transposed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Form {
    /// `a·b`.
    Nn,
    /// `a·bᵀ`.
    Nt,
    /// `aᵀ·b`.
    Tn,
}

/// What a product does on its way to memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Ending {
    /// Adds to what is there.
    pub accumulate: bool,
    /// Adds a bias, the last input.
    pub bias: bool,
    /// Applies a function.
    pub function: Function,
    /// Adds a second product, of the two inputs after the first two, to the first rows: of dense
    /// products alone.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub plus: bool,
    /// Goes back through a function whose values are there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gate: Option<Function>,
}

impl Ending {
    /// The product alone.
    pub const PLAIN: Ending = Ending {
        accumulate: false,
        bias: false,
        function: Function::Identity,
        plus: false,
        gate: None,
    };
}

/// What a pass over elements does, in this order: `drop(f(α·d_i·x + β·z + b))`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Each {
    /// `α`.
    pub scale: Number,
    /// Rows are scaled: an input.
    pub rows: bool,
    /// `β`, and `z` an input.
    pub plus: Option<Number>,
    /// `b`, an input.
    pub bias: bool,
    /// `f`.
    pub function: Function,
    /// Elements are dropped: probability and key.
    pub dropout: Option<(Number, u32)>,
}

/// An operator with its attributes. The comments name the inputs.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub enum Operator {
    /// `(a, x, left?, right?, bias?)`.
    Spmm {
        /// Rows of the result are scaled.
        left: bool,
        /// Rows of `x` are scaled.
        right: bool,
        /// What follows.
        ending: Ending,
    },
    /// `(a, b, a', b', bias?)`, the second product where the ending says so.
    Gemm {
        /// What is transposed.
        form: Form,
        /// What follows.
        ending: Ending,
    },
    /// `(x, g)`: `xᵀ·g`, `x` sparse.
    SparseTransposed,
    /// `(a, left?, right?)`: values of scaled entries.
    EntryScale {
        /// By rows.
        left: bool,
        /// By columns.
        right: bool,
    },
    /// `(a)`: `a·s + c·I`, as a matrix of its own.
    PlusIdentity {
        /// `c`.
        c: Number,
    },
    /// `(d, e)`: the diagonal of their product.
    DiagonalProduct,
    /// `(x, rows?, z?, bias?)`.
    Each(Each),
    /// `(g, saved?)`: through dropout, then a function's derivative.
    EachGrad {
        /// The function.
        function: Function,
        /// Probability and key.
        dropout: Option<(Number, u32)>,
        /// What `g` is multiplied by first.
        scale: Number,
    },
    /// `(x)`: values of sparse features, some dropped.
    EntryDropout {
        /// Probability.
        p: Number,
        /// Key.
        key: u32,
    },
    /// `(a)`: values of an adjacency, some dropped by the whole graph's numbers of entries.
    EdgeDropout {
        /// Probability.
        p: Number,
        /// Key.
        key: u32,
    },
    /// `(x)`.
    ColumnSums,
    /// `(x)`: written the other way round.
    Transpose,
    /// `(x)`: the same numbers, stored in bf16 instead of f32 or the other way.
    Convert,
    /// `(a, b)`.
    Dot,
    /// `(s, x)`.
    ScaleBy,
    /// `(x)`: rows of length one.
    Unit,
    /// `(x, g)`.
    UnitGrad,
    /// `(x)`: with zeros below.
    Pad,
    /// `(x…)`: beside each other.
    Concat,
    /// `(x)`: among zeros.
    PadColumns {
        /// Where.
        from: usize,
    },
    /// `(x, γ, β)`.
    Norm {
        /// How.
        kind: NormKind,
        /// Under which its moments are kept.
        key: u32,
    },
    /// `(x, γ, g)`.
    NormGrad {
        /// How.
        kind: NormKind,
        /// Whose moments.
        key: u32,
    },
    /// See [`crate::Op::Attention`].
    Attention(Attention),
    /// See [`crate::Op::AttentionGrad`]; without the result of the forward pass where the edges
    /// are looked at again instead.
    AttentionGrad(Attention),
    /// `(a, k, q, v)`.
    Gated,
    /// `(a, k, q, v, g)`.
    GatedGrad,
    /// `(a, x)`.
    Extreme(Extreme),
    /// `(a, x, y, g)`.
    ExtremeGrad(Extreme),
    /// `(z)`.
    Pairs(PairOp),
    /// `(z, g)`.
    PairsGrad(PairOp),
    /// `(x)`.
    Readout(Read),
    /// `(x, y, g)`.
    ReadoutGrad(Read),
    /// `(logits)`, to the gradient of the loss, which is remembered.
    Loss(LossKind),
    /// `(gradient)` of a parameter, by its number.
    Update(usize),
}

impl Operator {
    /// What tells it from others. Checkpoints know plans by it: an operator without what endings
    /// could not say in their first version is called what it was then.
    fn identity(&self) -> String {
        format!("{self:?}").replace(", plus: false, gate: None", "")
    }
}

/// One thing to do.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Step {
    /// What.
    pub operator: Operator,
    /// Of what.
    pub inputs: Vec<ValueId>,
    /// To where.
    pub outputs: Vec<ValueId>,
    /// When.
    pub phase: Phase,
    /// For which layer, where it belongs to one.
    pub layer: Option<u16>,
    /// What it computes.
    pub formula: String,
}

/// A parameter.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ParamInfo {
    /// Its name.
    pub name: String,
    /// Rows and columns.
    pub shape: [usize; 2],
}

/// What to do, from first to last.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// Values.
    pub values: Vec<Value>,
    /// Steps, in an order that respects who needs what.
    pub steps: Vec<Step>,
    /// How many slots there are.
    pub slots: usize,
    /// How many matrices are made.
    pub matrices: usize,
    /// What is learned.
    pub params: Vec<ParamInfo>,
    /// The network's result; where there is a loss, its memory is given to the gradient.
    pub result: ValueId,
    /// The whole formula.
    pub formula: String,
    /// Exact savings that are in it.
    pub savings: Vec<String>,
}

impl Plan {
    /// A short name for what is computed and how: the same for the same steps.
    pub fn id(&self) -> String {
        let mut text = String::new();
        for step in &self.steps {
            let operator = step.operator.identity();
            text.push_str(&format!("{operator} {:?} {:?};", step.inputs, step.outputs));
        }
        if let Some(first) = self.values.iter().position(|value| value.half) {
            text.push_str(&format!("bf16 from {first}"));
        }
        let hash = xxhash_rust::xxh3::xxh3_64(text.as_bytes());
        format!("{:08x}", hash as u32)
    }

    /// What a value stands on: itself, or what it is a view of.
    pub fn base(&self, mut value: ValueId) -> ValueId {
        while let Place::View { of, .. } = self.values[value].place {
            value = of;
        }
        value
    }

    /// Whether a value is stored in bf16.
    pub fn half(&self, value: ValueId) -> bool {
        self.values[value].half
    }

    /// The slot that holds a value, if one does.
    pub fn slot_of(&self, value: ValueId) -> Option<usize> {
        match self.values[self.base(value)].place {
            Place::Slot(slot) | Place::Entries { slot, .. } => Some(slot),
            _ => None,
        }
    }

    /// Whether a step's first result takes the slot of its first input.
    pub fn in_place(&self, step: &Step) -> bool {
        let (Some(&input), Some(&output)) = (step.inputs.first(), step.outputs.first()) else {
            return false;
        };
        self.slot_of(input).is_some() && self.slot_of(input) == self.slot_of(output)
    }

    /// Numbers that a value holds.
    pub fn len_of(&self, value: ValueId, sizes: &Sizes) -> usize {
        let Value { shape, place, .. } = &self.values[value];
        match (place, shape) {
            (Place::Entries { .. } | Place::Adjacency(_) | Place::Matrix(_), _) => {
                self.entries_of(value, sizes)
            }
            // Nodes times nodes is a diagonal: one number per row.
            (_, [Dim::Nodes(_), Dim::Nodes(_)]) => sizes.of(shape[0]),
            _ => sizes.of(shape[0]) * sizes.of(shape[1]),
        }
    }

    /// Entries of a sparse value.
    pub fn entries_of(&self, value: ValueId, sizes: &Sizes) -> usize {
        match self.values[value].place {
            Place::Features => sizes.feature_entries,
            Place::Adjacency(a) => sizes.entries_of(a.level, a.graph.has_loops()),
            Place::Entries { of, .. } => self.entries_of(of, sizes),
            Place::Matrix(_) => {
                let level = match (self.values[value].shape[0], self.values[value].shape[1]) {
                    (Dim::Nodes(a), Dim::Nodes(b)) => a.min(b),
                    _ => 0,
                };
                sizes.entries_of(level, true)
            }
            _ => 0,
        }
    }

    /// Bytes of a value's number.
    pub fn number_bytes(&self, value: ValueId) -> usize {
        if self.values[value].half { size_of::<u16>() } else { size_of::<f32>() }
    }

    /// What is stored in two bytes a number, if anything is.
    pub fn precision(&self) -> Precision {
        match self.values.iter().any(|value| value.half) {
            true => Precision::Bf16,
            false => Precision::F32,
        }
    }

    /// Numbers of four bytes that each slot must have room for.
    pub fn slot_lens(&self, sizes: &Sizes) -> Vec<usize> {
        let mut lens = vec![0; self.slots];
        for (id, value) in self.values.iter().enumerate() {
            if let Place::Slot(slot) | Place::Entries { slot, .. } = value.place {
                let bytes = self.len_of(id, sizes) * self.number_bytes(id);
                lens[slot] = lens[slot].max(bytes.div_ceil(size_of::<f32>()));
            }
        }
        lens
    }

    /// Bytes of all slots: what the plan takes beside graph, features and parameters.
    pub fn slot_bytes(&self, sizes: &Sizes) -> usize {
        self.slot_lens(sizes).iter().sum::<usize>() * size_of::<f32>()
    }

    /// Whether there is a loss to learn from.
    pub fn learns(&self) -> bool {
        self.steps.iter().any(|step| step.phase == Phase::Backward)
    }
}

impl Step {
    /// Whether a gradient of attention goes over the edges of targets instead of taking what the
    /// forward pass gave.
    pub fn looks_again(&self) -> bool {
        /// The arguments of attention, its two results and a gradient.
        const ALL: usize = 7;
        matches!(self.operator, Operator::AttentionGrad(_)) && self.inputs.len() < ALL
    }

    /// The input that the first result may be written over, which each of its rows alone is made
    /// of: sources of attention.
    pub fn takes_over(&self) -> Option<usize> {
        match self.operator {
            Operator::AttentionGrad(attention) if attention.scores == Scores::Gat => Some(1),
            _ => None,
        }
    }

    /// Whether the result takes the place of the last input, which the step reads on the way.
    pub fn replaces_last(&self) -> bool {
        match self.operator {
            Operator::Spmm { ending, .. } | Operator::Gemm { ending, .. } => {
                ending.accumulate || ending.gate.is_some()
            }
            _ => false,
        }
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "plan {}: {}", self.id(), self.formula)?;
        for (at, step) in self.steps.iter().enumerate() {
            let phase = format!("{:?}", step.phase);
            writeln!(f, "{:4} {phase:9} {}", at + 1, step.formula)?;
        }
        Ok(())
    }
}
