//! From formulas to steps: who is fused with whom, what is computed once, who gets which slot.

mod joins;
mod recipe;
mod slots;
mod storage;

use std::collections::{HashMap, HashSet};

use crate::dim::{Dim, Sizes};
use crate::expr::{Expr, Kind};
use crate::op::{Attention, Op, Scores};
use crate::plan::{Operator, ParamInfo, Phase, Place, Plan, Precision, Step, Value, ValueId};
use recipe::Recipe;

/// What lowering may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Neighbours become one step where a kernel exists.
    pub fuse: bool,
    /// What no epoch changes is computed once.
    pub hoist: bool,
    /// Values and steps carry their formulas; a plan that is only costed needs none.
    pub named: bool,
    /// What rows of nodes and graphs are stored in.
    pub precision: Precision,
}

/// What a network computes: its result, its loss, and a gradient per parameter.
#[derive(Clone, Debug)]
pub struct Goal {
    /// Logits.
    pub result: Expr,
    /// The loss, absent for inference.
    pub loss: Option<Expr>,
    /// Parameters, in their order, with their gradients where they are wanted.
    pub params: Vec<(Expr, Option<Expr>)>,
    /// Gradients that nobody learns from but that are asked for.
    pub extra: Vec<Expr>,
}

/// Lowers a goal to a plan; sizes tell which values may take each other's memory.
pub fn lower(goal: &Goal, options: Options, sizes: &Sizes) -> Plan {
    let mut roots = vec![goal.result.clone()];
    roots.extend(goal.loss.clone());
    // The last layers' gradients are ready first, and what they read is free afterwards.
    roots.extend(goal.params.iter().rev().filter_map(|(_, grad)| grad.clone()));
    roots.extend(goal.extra.iter().cloned());
    let order = Expr::sorted(&roots);
    let mut lowering = Lowering::new(goal, (&order, &roots), options, sizes);
    for expr in &order {
        if !lowering.absorbed.contains(&expr.id()) {
            lowering.emit(expr);
        }
    }
    lowering.finish(goal)
}

/// Entries per row up to which a backward pass over the edges takes about as long as what would
/// save it: numbers for each row, as wide as results, that are written, kept and read again.
const FEW_ENTRIES: usize = 8;

struct Lowering<'s> {
    options: Options,
    sizes: &'s Sizes,
    recipes: HashMap<u128, Recipe>,
    absorbed: HashSet<u128>,
    values: Vec<Value>,
    of: HashMap<u128, ValueId>,
    steps: Vec<Step>,
    params: Vec<ParamInfo>,
    matrices: usize,
    backward_from: Option<usize>,
    layer: HashMap<u128, u16>,
    /// Transposes that somebody reads as they are, not as a factor of a product.
    turned: HashSet<u128>,
    /// Parts of several values that somebody reads.
    parts: HashSet<u128>,
    named: bool,
}

impl<'s> Lowering<'s> {
    fn new(
        goal: &Goal,
        (order, roots): (&[Expr], &[Expr]),
        options: Options,
        sizes: &'s Sizes,
    ) -> Self {
        let (recipes, absorbed) = recipe::all(order, roots, options);
        let params = goal.params.iter().filter_map(|(param, _)| match param.op() {
            Op::Param { name, shape } => Some(ParamInfo { name: name.clone(), shape: *shape }),
            _ => None,
        });
        Lowering {
            options,
            sizes,
            recipes,
            absorbed,
            values: Vec::new(),
            of: HashMap::new(),
            steps: Vec::new(),
            params: params.collect(),
            matrices: 0,
            backward_from: None,
            layer: if options.named { layers(order) } else { HashMap::new() },
            turned: turned(order, roots),
            parts: order.iter().filter(|e| matches!(e.op(), Op::Part(_))).map(Expr::id).collect(),
            named: options.named,
        }
    }

    fn name(&self, expr: &Expr) -> String {
        if self.named { expr.body().to_string() } else { String::new() }
    }

    /// A value for an expression: given, a view, an alias, or computed by a step.
    fn emit(&mut self, expr: &Expr) {
        if let Some(place) = self.given(expr) {
            self.value(expr, place);
            return;
        }
        let args = expr.args();
        match expr.op() {
            Op::Layer(_) | Op::LayerGrad(_) => {
                self.of.insert(expr.id(), self.of[&args[0].id()]);
            }
            // A transposed matrix is read the other way round by whoever takes it.
            Op::Transpose if !self.turned.contains(&expr.id()) => {
                self.of.insert(expr.id(), self.of[&args[0].id()]);
            }
            Op::Top { .. } => {
                let of = self.of[&args[0].id()];
                self.value(expr, Place::View { of, from: 0 });
            }
            Op::Columns { from, .. } => {
                let of = self.of[&args[0].id()];
                self.value(expr, Place::View { of, from: *from });
            }
            // Several values at once: their parts are made by the step.
            _ if expr.kind() == Kind::Parts => {}
            Op::Part(index) => self.emit_part(expr, *index),
            Op::Loss(_) => {}
            Op::Identity { .. } => {}
            _ => self.emit_recipe(expr),
        }
    }

    fn given(&self, expr: &Expr) -> Option<Place> {
        match expr.op() {
            Op::Features { .. } => Some(Place::Features),
            Op::Param { name, .. } => {
                self.params.iter().position(|param| &param.name == name).map(Place::Param)
            }
            Op::Adjacency(adjacency) => Some(Place::Adjacency(*adjacency)),
            Op::Degrees { graph, level, half_power } => {
                Some(Place::Degrees { graph: *graph, level: *level, half_power: *half_power })
            }
            _ => None,
        }
    }

    fn value(&mut self, expr: &Expr, place: Place) -> ValueId {
        let formula = self.name(expr);
        let half = match place {
            Place::View { of, .. } => self.values[of].half,
            Place::Features | Place::Slot(_) => self.is_halved(expr),
            _ => false,
        };
        self.values.push(Value { shape: expr.shape(), place, half, formula });
        self.of.insert(expr.id(), self.values.len() - 1);
        self.values.len() - 1
    }

    /// Rows of nodes and graphs are stored in half the bytes where that was asked for, but not
    /// what attention remembers of its sums.
    fn is_halved(&self, expr: &Expr) -> bool {
        let rows = |dim: Dim| matches!(dim, Dim::Nodes(_) | Dim::Graphs);
        let columns = |dim: Dim| matches!(dim, Dim::Width(_));
        let [a, b] = expr.shape();
        let sums =
            matches!(expr.op(), Op::Part(1)) && matches!(expr.args()[0].op(), Op::Attention(_));
        self.options.precision == Precision::Bf16
            && expr.kind() == Kind::Dense
            && (rows(a) && columns(b) || columns(a) && rows(b))
            && !sums
    }

    /// The first part that is asked for makes all of them.
    fn emit_part(&mut self, expr: &Expr, _index: usize) {
        if self.of.contains_key(&expr.id()) {
            return;
        }
        let whole = &expr.args()[0];
        let count = match whole.op() {
            Op::Attention(_) => 2,
            _ => 3,
        };
        let mut inputs: Vec<ValueId> = whole.args().iter().map(|arg| self.of[&arg.id()]).collect();
        let outputs: Vec<ValueId> = (0..count)
            .map(|index| self.value(&whole.part(index), Place::Slot(usize::MAX)))
            .collect();
        let operator = match whole.op() {
            Op::Attention(attention) => {
                self.keep_less(&outputs, whole, attention);
                Operator::Attention(*attention)
            }
            Op::AttentionGrad(attention) => {
                // Its forward result is the fifth.
                if self.looks_again(whole, attention) {
                    inputs.remove(4);
                }
                Operator::AttentionGrad(*attention)
            }
            Op::GatedGrad => Operator::GatedGrad,
            Op::NormGrad { kind, key } => Operator::NormGrad { kind: *kind, key: *key },
            other => unreachable!("{other:?} has no parts"),
        };
        self.step(whole, operator, inputs, outputs);
    }

    /// Whether the gradient of attention looks at the edges of targets again, so that nothing is
    /// kept for it but a number per head.
    fn looks_again(&self, whole: &Expr, attention: &Attention) -> bool {
        let Op::Adjacency(a) = whole.args()[0].op() else { return false };
        let entries = self.sizes.entries_of(a.level, a.graph.has_loops());
        let rows = self.sizes.of(Dim::Nodes(a.level + 1));
        attention.scores == Scores::Gat && entries <= FEW_ENTRIES * rows
    }

    /// Attention that no gradient follows keeps no sums for one.
    fn keep_less(&mut self, outputs: &[ValueId], whole: &Expr, attention: &Attention) {
        let unread = !self.parts.contains(&whole.part(1).id());
        if unread || self.looks_again(whole, attention) {
            self.values[outputs[1]].shape[1] = Dim::Width(attention.heads);
        }
    }

    fn emit_recipe(&mut self, expr: &Expr) {
        let recipe = self.recipes[&expr.id()].clone();
        let inputs: Vec<ValueId> = recipe.inputs.iter().map(|e| self.of[&e.id()]).collect();
        let place = match (&recipe.operator, expr.kind()) {
            (Operator::PlusIdentity { .. }, _) => {
                self.matrices += 1;
                Place::Matrix(self.matrices - 1)
            }
            (_, Kind::Sparse) => Place::Entries { of: inputs[0], slot: usize::MAX },
            _ => Place::Slot(usize::MAX),
        };
        let output = self.value(expr, place);
        self.step(expr, recipe.operator, inputs, vec![output]);
    }

    fn step(
        &mut self,
        expr: &Expr,
        operator: Operator,
        inputs: Vec<ValueId>,
        outputs: Vec<ValueId>,
    ) {
        if matches!(operator, Operator::Loss(_)) {
            self.backward_from = Some(self.steps.len());
        }
        let phase = match () {
            () if self.options.hoist && expr.is_constant() => Phase::Once,
            () if self.backward_from.is_some() => Phase::Backward,
            () => Phase::Forward,
        };
        let of = |expr: &Expr| self.layer.get(&expr.id()).copied();
        let layer = of(ended(expr)).or_else(|| of(expr));
        let formula = self.name(expr);
        self.steps.push(Step { operator, inputs, outputs, phase, layer, formula });
    }

    fn finish(mut self, goal: &Goal) -> Plan {
        for (index, (_, grad)) in goal.params.iter().enumerate() {
            let Some(grad) = grad else { continue };
            let inputs = vec![self.of[&grad.id()]];
            let formula = format!("update {}", self.params[index].name);
            let (operator, phase) = (Operator::Update(index), Phase::Update);
            let layer = self.layer.get(&grad.id()).copied();
            let outputs = Vec::new();
            self.steps.push(Step { operator, inputs, outputs, phase, layer, formula });
        }
        let mut plan = Plan {
            values: self.values,
            steps: self.steps,
            matrices: self.matrices,
            params: self.params,
            result: self.of[&goal.result.id()],
            formula: if self.named { formulas(&goal.result) } else { String::new() },
            ..Plan::default()
        };
        if self.options.precision == Precision::Bf16 {
            storage::convert(&mut plan);
        }
        // What is computed once comes first; its order is kept.
        plan.steps.sort_by_key(|step| step.phase != Phase::Once);
        draw_late(&mut plan.steps);
        if self.options.fuse {
            joins::join(&mut plan);
        }
        slots::assign(&mut plan, self.sizes);
        plan
    }
}

/// Edges are dropped right before somebody reads what is left: else the values of all hops would
/// be there at once.
fn draw_late(steps: &mut [Step]) {
    for at in (0..steps.len()).rev() {
        let Operator::EdgeDropout { .. } = steps[at].operator else { continue };
        let value = steps[at].outputs[0];
        let reads = |step: &Step| step.inputs.contains(&value);
        if let Some(later) = steps[at + 1..].iter().position(reads) {
            steps[at..=at + later].rotate_left(1);
        }
    }
}

/// A network's formula, layer by layer.
fn formulas(result: &Expr) -> String {
    let mut lines: Vec<String> = Vec::new();
    for expr in Expr::sorted(std::slice::from_ref(result)) {
        if let Op::Layer(layer) = expr.op()
            && expr != *result
        {
            lines.push(format!("H{} = {}", layer + 1, expr.body()));
        }
    }
    lines.push(format!("Y = {}", result.body()));
    lines.join(", ")
}

/// Transposes that are no factor of a dense product.
fn turned(order: &[Expr], roots: &[Expr]) -> HashSet<u128> {
    let dense = |expr: &Expr| expr.args().iter().all(|arg| arg.kind() == Kind::Dense);
    let readers = order.iter().filter(|expr| !matches!(expr.op(), Op::Mul) || !dense(expr));
    let read = readers.flat_map(Expr::args).chain(roots);
    let dense = read.filter(|e| matches!(e.op(), Op::Transpose) && e.kind() == Kind::Dense);
    dense.map(Expr::id).collect()
}

/// Whether an expression is what networks do between layers.
fn is_between(expr: &Expr) -> bool {
    matches!(expr.op(), Op::Map(_) | Op::Dropout { .. })
}

/// What the functions between two layers are applied to. They count with the layer before them,
/// whether they are a step of their own or end one.
fn ended(expr: &Expr) -> &Expr {
    let mut inner = expr;
    while is_between(inner) {
        inner = &inner.args()[0];
    }
    inner
}

/// The layer that each expression belongs to: forward, that of the barrier around it; backward,
/// that of the gradient it is computed from.
fn layers(order: &[Expr]) -> HashMap<u128, u16> {
    let mut of: HashMap<u128, u16> = HashMap::new();
    for expr in order.iter().rev() {
        let inherited = match expr.op() {
            Op::Layer(layer) => Some(*layer),
            _ => of.get(&expr.id()).copied(),
        };
        let Some(layer) = inherited else { continue };
        of.insert(expr.id(), layer);
        // What a layer takes from the one before is not its own, but features that it drops from.
        for arg in expr.args().iter().filter(|arg| !is_between(expr) || is_between(arg)) {
            of.entry(arg.id()).or_insert(layer);
        }
    }
    let mut backward: HashMap<u128, u16> = HashMap::new();
    for expr in order {
        let layer = match expr.op() {
            Op::LayerGrad(layer) => Some(*layer),
            _ => expr.args().iter().find_map(|arg| backward.get(&arg.id()).copied()),
        };
        if let Some(layer) = layer {
            backward.insert(expr.id(), layer);
        }
    }
    of.extend(backward);
    of
}
