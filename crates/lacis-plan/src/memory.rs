//! Memory: what a plan takes beside graph and features, known before it runs.

use std::collections::{BTreeMap, BTreeSet};

use crate::cost::{Work, work};
use crate::dim::{Dim, Sizes};
use crate::op::{Adjacency, Graph, Loops, LossKind, Scores};
use crate::plan::{Operator, Place, Plan, Step, ValueId};

/// Bytes of a number, of a column's number, of where a row begins.
const NUMBER: usize = size_of::<f32>();
const COLUMN: usize = size_of::<u32>();
const POINTER: usize = size_of::<u32>();

/// Bytes, by what takes them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// Values between steps.
    pub slots: usize,
    /// Matrices and degrees that are made of the graph, and features in another order.
    pub given: usize,
    /// Weights, and what an optimizer remembers of them.
    pub weights: usize,
}

impl Memory {
    /// Of a plan.
    pub fn of(plan: &Plan, sizes: &Sizes) -> Self {
        let weights: usize = plan.params.iter().map(|param| param.shape[0] * param.shape[1]).sum();
        Memory {
            slots: plan.slot_bytes(sizes) + scratch(plan, sizes),
            given: given(plan, sizes),
            weights: 3 * weights * NUMBER,
        }
    }

    /// All of them.
    pub fn total(&self) -> usize {
        self.slots + self.given + self.weights
    }
}

/// Numbers that the gradients of attention keep of each target and head.
const GAT_TERMS: usize = 4;
const GATV2_TERMS: usize = 2;

/// Numbers that kernels keep for the heads of a node: those of a vector begin with an edge.
fn slots(heads: usize, width: usize) -> usize {
    const LANES: usize = 16;
    let channels = width / heads.max(1);
    match heads {
        0..=8 => heads.next_power_of_two().max(LANES / channels.clamp(1, LANES)),
        _ => heads.next_multiple_of(LANES),
    }
}

/// Columns of a product's operand that are copied, at most: where each row is gathered often, some
/// at a time if it is wide, and to begin with a line if it does not end with one.
fn copied([_, cols, entries]: [usize; 3], width: usize) -> usize {
    /// Numbers from which no core's cache has the operand.
    const FAR: usize = 1 << 18;
    let often = |times: usize| entries >= times * cols;
    let at_once = match width {
        _ if cols * width <= FAR => 0,
        17..129 if !width.is_multiple_of(16) && often(32) => width.next_multiple_of(16).min(96),
        64.. if often(16) => 48.min(width),
        _ => 0,
    };
    cols * at_once
}

/// What the step that needs most for itself needs: copied columns of operands; terms of attention's
/// gradient per node and head, and the gradient of its targets where they are not all sources;
/// shares of maxima; results that the gradient of squares goes over.
fn scratch(plan: &Plan, sizes: &Sizes) -> usize {
    let shape = |value: ValueId| plan.values[value].shape.map(|dim| sizes.of(dim));
    let of = plan.steps.iter().map(|step| match step.operator {
        Operator::AttentionGrad(attention) => {
            let ([rows, cols], [_, width]) = (shape(step.inputs[0]), shape(step.inputs[1]));
            let slots = slots(attention.heads, width);
            match attention.scores {
                Scores::GatV2 => GATV2_TERMS * rows * slots,
                Scores::Gat => {
                    let targets = if rows != cols { rows * width } else { 0 };
                    let sources = if step.looks_again() { cols * slots } else { 0 };
                    GAT_TERMS * rows * slots + targets + sources
                }
            }
        }
        Operator::Attention(attention) if attention.scores == Scores::Gat => {
            let ([_, cols], [_, width]) = (shape(step.inputs[0]), shape(step.inputs[1]));
            cols * slots(attention.heads, width)
        }
        Operator::ExtremeGrad(_) => shape(step.inputs[2]).iter().product(),
        // A bit for each entry.
        Operator::EdgeDropout { .. } => plan.entries_of(step.inputs[0], sizes).div_ceil(32),
        Operator::Loss(LossKind::Squares) if plan.in_place(step) => {
            plan.len_of(step.inputs[0], sizes)
        }
        _ => match work(plan, step, sizes) {
            Work::Spmm { shape, width, .. } => copied(shape, width),
            _ => 0,
        },
    });
    of.max().unwrap_or(0) * NUMBER
}

/// Matrices, degrees and features that are made for a plan.
fn given(plan: &Plan, sizes: &Sizes) -> usize {
    let own: BTreeSet<Adjacency> = adjacencies(plan)
        .map(|(adjacency, _)| Adjacency { transposed: false, ..adjacency })
        .collect();
    // Levels that have all nodes share one matrix, and so do those that have the same nodes.
    let matrix =
        |a: &Adjacency| (a.graph, (!is_whole(a.level, sizes)).then(|| first_like(a.level, sizes)));
    let made: BTreeSet<_> = own.iter().map(matrix).collect();
    let own_bytes = made.iter().map(|(graph, level)| match level {
        None if is_stored(*graph) => 0,
        level => matrix_bytes(
            Adjacency { graph: *graph, level: level.unwrap_or(0), transposed: false },
            sizes,
        ),
    });
    let turned: BTreeSet<_> = adjacencies(plan)
        .filter(|(a, ordered)| a.transposed && (*ordered || !is_symmetric(a.level, sizes)))
        .map(|(a, ordered)| (matrix(&a), ordered))
        .collect();
    // One that knows where entries were serves who need not know it, too.
    let own = turned.iter().filter(|(of, ordered)| *ordered || !turned.contains(&(*of, true)));
    let turned_bytes = own.map(|((graph, level), ordered)| {
        let a = Adjacency { graph: *graph, level: level.unwrap_or(0), transposed: true };
        matrix_bytes(a, sizes) + if *ordered { entries(a, sizes) * COLUMN } else { 0 }
    });
    // Dropped entries are known by the whole graph's numbers; levels with the same rows share them.
    let rows = |a: Adjacency| ((a.graph, sizes.of(Dim::Nodes(a.level + 1))), a);
    let numbered: BTreeMap<_, _> = plan
        .steps
        .iter()
        .filter_map(|step| match (step.operator, plan.values[*step.inputs.first()?].place) {
            (Operator::Attention(attention), Place::Adjacency(a)) => {
                (attention.dropout.get() > 0.0 && !is_whole(a.level, sizes)).then_some(a)
            }
            (Operator::EdgeDropout { .. }, Place::Adjacency(a)) => {
                let own = Adjacency { transposed: false, ..a };
                (!is_whole(a.level, sizes)).then_some(own)
            }
            _ => None,
        })
        .map(rows)
        .collect();
    let numbered_bytes = numbered.values().map(|a| entries(*a, sizes) * COLUMN);
    let degrees = plan.values.iter().filter_map(|value| match value.place {
        Place::Degrees { level, .. } => Some(sizes.of(Dim::Nodes(level)) * NUMBER),
        _ => None,
    });
    let computed = plan.values.iter().enumerate().filter_map(|(id, value)| match value.place {
        Place::Matrix(_) => {
            let rows = sizes.of(value.shape[0]);
            Some(rows * POINTER + plan.entries_of(id, sizes) * (COLUMN + NUMBER))
        }
        _ => None,
    });
    own_bytes.chain(turned_bytes).chain(numbered_bytes).sum::<usize>()
        + degrees.chain(computed).sum::<usize>()
        + reordered(plan, sizes)
        + turned_features(plan, sizes)
}

/// Adjacencies that a plan reads, transposes that gradients take among them, and whether their
/// entries must know where they were.
fn adjacencies(plan: &Plan) -> impl Iterator<Item = (Adjacency, bool)> + '_ {
    let read = plan.values.iter().filter_map(|value| match value.place {
        Place::Adjacency(adjacency) => Some((adjacency, false)),
        _ => None,
    });
    let turned = plan.steps.iter().filter_map(|step| {
        let ordered = match step.operator {
            // The transpose itself is what is read.
            Operator::EdgeDropout { .. } => {
                return match plan.values[step.inputs[0]].place {
                    Place::Adjacency(adjacency) => Some((adjacency, adjacency.transposed)),
                    _ => None,
                };
            }
            Operator::AttentionGrad(attention) => attention.dropout.get() > 0.0,
            Operator::ExtremeGrad(_) | Operator::GatedGrad => false,
            _ => return None,
        };
        match plan.values[step.inputs[0]].place {
            Place::Adjacency(adjacency) => Some((adjacency.turned(), ordered)),
            _ => None,
        }
    });
    read.chain(turned)
}

/// Whether a matrix is the graph's own.
fn is_stored(graph: Graph) -> bool {
    graph.loops == Loops::AsStored
}

/// Whether a level and the next one have the nodes of all.
fn is_whole(level: u16, sizes: &Sizes) -> bool {
    let all = sizes.of(Dim::Nodes(0));
    let last = sizes.nodes.last().copied().unwrap_or(all);
    // Where some level has fewer nodes, all are in another order.
    sizes.of(Dim::Nodes(level + 1)) == all && last == all
}

/// The first level whose nodes and whose next level's nodes are as many as those of this one: they
/// are nested, and so the same.
fn first_like(level: u16, sizes: &Sizes) -> u16 {
    let both = |level: u16| [level, level + 1].map(|level| sizes.of(Dim::Nodes(level)));
    (0..level).find(|&earlier| both(earlier) == both(level)).unwrap_or(level)
}

fn is_symmetric(level: u16, sizes: &Sizes) -> bool {
    sizes.symmetric && sizes.of(Dim::Nodes(level)) == sizes.of(Dim::Nodes(level + 1))
}

fn entries(a: Adjacency, sizes: &Sizes) -> usize {
    sizes.entries_of(a.level, a.graph.has_loops())
}

fn matrix_bytes(a: Adjacency, sizes: &Sizes) -> usize {
    let rows = sizes.of(Dim::Nodes(if a.transposed { a.level } else { a.level + 1 }));
    let valued = a.graph.weighted && sizes.weighted();
    entries(a, sizes) * (COLUMN + if valued { NUMBER } else { 0 }) + rows * POINTER
}

/// Features in another order, where not every level has all nodes, or in bf16.
fn reordered(plan: &Plan, sizes: &Sizes) -> usize {
    let first = sizes.of(Dim::Nodes(0));
    let features = plan.values.iter().find(|value| value.place == Place::Features);
    let half = features.is_some_and(|value| value.half);
    if sizes.nodes.iter().all(|&nodes| nodes == first) && !half {
        return 0;
    }
    features.map_or(0, |value| match sizes.feature_entries {
        0 if half => first * sizes.of(value.shape[1]) * size_of::<u16>(),
        0 => first * sizes.of(value.shape[1]) * NUMBER,
        entries => first * POINTER + entries * (COLUMN + NUMBER),
    })
}

/// Sparse features the other way round, where a gradient reads them so.
fn turned_features(plan: &Plan, sizes: &Sizes) -> usize {
    let read = plan.steps.iter().find(|step| {
        let features = |value: &usize| plan.values[*value].place == Place::Features;
        step.operator == Operator::SparseTransposed && step.inputs.first().is_some_and(features)
    });
    let rows = |step: &Step| sizes.of(plan.values[step.inputs[0]].shape[1]);
    read.map_or(0, |step| rows(step) * POINTER + sizes.feature_entries * (COLUMN + NUMBER))
}
