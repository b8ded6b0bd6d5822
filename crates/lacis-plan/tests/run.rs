//! An obvious interpreter of plans, in f64. It lives in the slots that the plan has given out: a
//! value that was overwritten too early is wrong here too.

use std::collections::HashMap;

use lacis_core::reference::{Activation, Form as Reference, matmul, transposed};
use lacis_plan::op::Function;
use lacis_plan::plan::{Each, Ending, Form, Operator, Phase, Place, Step, ValueId};
use lacis_plan::{Dim, Plan};

use crate::eval::{
    self, M, S, V, World, beside, column_sums, map, map_grad, mask, product, row_scaled, total,
    window, zip,
};

/// What a plan found.
pub struct Outcome {
    pub result: M,
    pub loss: Option<f64>,
    pub grads: HashMap<usize, M>,
}

struct Machine<'a> {
    plan: &'a Plan,
    world: &'a World,
    slots: Vec<Vec<f64>>,
    matrices: Vec<Option<S>>,
    loss: Option<f64>,
    grads: HashMap<usize, M>,
}

/// Runs a plan: what is done once with the first world, then an iteration in each of them. They
/// differ in their parameters alone.
pub fn run(plan: &Plan, worlds: &[&World]) -> Vec<Outcome> {
    let lens = plan.slot_lens(&worlds[0].sizes());
    let mut machine = Machine {
        plan,
        world: worlds[0],
        slots: lens.iter().map(|&len| vec![f64::NAN; 2 * len]).collect(),
        matrices: vec![None; plan.matrices],
        loss: None,
        grads: HashMap::new(),
    };
    let (once, always): (Vec<&Step>, Vec<&Step>) =
        plan.steps.iter().partition(|step| step.phase == Phase::Once);
    once.into_iter().for_each(|step| machine.step(step));
    let mut outcomes = Vec::new();
    for world in worlds {
        machine.world = world;
        let forward = always.iter().take_while(|step| step.phase == Phase::Forward).count();
        always[..forward].iter().for_each(|step| machine.step(step));
        let result = machine.read(plan.result).dense();
        always[forward..].iter().for_each(|step| machine.step(step));
        outcomes.push(Outcome {
            result,
            loss: machine.loss.take(),
            grads: std::mem::take(&mut machine.grads),
        });
    }
    outcomes
}

impl Machine<'_> {
    fn shape(&self, value: ValueId) -> [usize; 2] {
        self.plan.values[value].shape.map(|dim| self.world.rows(dim))
    }

    fn read(&self, value: ValueId) -> V {
        let [rows, cols] = self.shape(value);
        match self.plan.values[value].place {
            Place::Features if self.world.sparse => V::Sparse(S::of(&self.world.features)),
            Place::Features => V::Dense(self.world.features.clone()),
            Place::Param(at) => V::Dense(self.world.params[&self.plan.params[at].name].clone()),
            Place::Adjacency(a) => V::Sparse(self.world.adjacency(a)),
            Place::Degrees { graph, level, half_power } => {
                V::Diagonal(self.world.degrees(graph, level, half_power))
            }
            Place::Slot(slot) => match self.plan.values[value].shape {
                [Dim::Nodes(_), Dim::Nodes(_)] => V::Diagonal(self.slots[slot][..rows].to_vec()),
                _ => V::Dense(M::from_fn(rows, cols, |i, j| self.slots[slot][i * cols + j])),
            },
            Place::Entries { of, slot } => {
                let mut matrix = self.read(of).sparse().clone();
                for (entry, v) in matrix.entries.iter_mut().zip(&self.slots[slot]) {
                    entry.2 = *v;
                }
                V::Sparse(matrix)
            }
            Place::Matrix(at) => V::Sparse(self.matrices[at].clone().expect("a matrix")),
            Place::View { of, from } => {
                let whole = self.read(of).dense();
                assert!(rows <= whole.n_rows() && from + cols <= whole.n_cols(), "a view");
                V::Dense(window(&whole, rows, from as isize, cols))
            }
        }
    }

    fn write(&mut self, value: ValueId, new: V) {
        let (slot, numbers): (usize, Vec<f64>) = match (self.plan.values[value].place, new) {
            (Place::Matrix(at), V::Sparse(matrix)) => {
                self.matrices[at] = Some(matrix);
                return;
            }
            (Place::Entries { slot, .. }, V::Sparse(a)) => {
                (slot, a.entries.iter().map(|e| e.2).collect())
            }
            (Place::Slot(slot), V::Diagonal(d)) => (slot, d),
            (Place::Slot(slot), V::Dense(x)) => {
                assert_eq!([x.n_rows(), x.n_cols()], self.shape(value), "what is written");
                (slot, x.rows().flatten().copied().collect())
            }
            (place, new) => panic!("{new:?} does not go to {place:?}"),
        };
        // A slot of numbers of four bytes has room for twice as many of two.
        let words = (numbers.len() * self.plan.number_bytes(value)).div_ceil(4);
        assert!(words <= self.slots[slot].len() / 2, "slot {slot} is too small");
        self.slots[slot].fill(f64::NAN);
        self.slots[slot][..numbers.len()].copy_from_slice(&numbers);
    }

    /// Only some operators may write where they read.
    fn check_in_place(&self, step: &Step) {
        let slot = |&value: &ValueId| self.plan.slot_of(value);
        for output in step.outputs.iter().filter_map(slot) {
            for (at, input) in step.inputs.iter().enumerate() {
                if self.plan.slot_of(*input) != Some(output) {
                    continue;
                }
                let allowed = match step.operator {
                    Operator::Spmm { .. } | Operator::Gemm { .. } => {
                        step.replaces_last() && at + 1 == step.inputs.len()
                    }
                    Operator::Each(_)
                    | Operator::EachGrad { .. }
                    | Operator::Loss(_)
                    | Operator::Pad => at == 0,
                    _ => step.takes_over() == Some(at),
                };
                assert!(allowed, "{} writes where it reads", step.formula);
            }
        }
        let mut outputs: Vec<usize> = step.outputs.iter().filter_map(slot).collect();
        outputs.sort_unstable();
        outputs.dedup();
        let all = step.outputs.iter().filter_map(slot).count();
        assert_eq!(outputs.len(), all, "two results in one slot");
    }

    fn step(&mut self, step: &Step) {
        self.check_in_place(step);
        let inputs: Vec<V> = step.inputs.iter().map(|&value| self.read(value)).collect();
        if let Operator::Update(param) = step.operator {
            self.grads.insert(param, inputs[0].dense());
            return;
        }
        let outputs = self.outputs(step, &inputs);
        assert_eq!(outputs.len(), step.outputs.len(), "{}", step.formula);
        for (&value, new) in step.outputs.iter().zip(outputs) {
            self.write(value, new);
        }
    }

    fn outputs(&mut self, step: &Step, inputs: &[V]) -> Vec<V> {
        match step.operator {
            Operator::Spmm { left, right, ending } => {
                vec![V::Dense(spmm([left, right], ending, inputs))]
            }
            Operator::EntryScale { left, right } => vec![entry_scale([left, right], inputs)],
            Operator::SparseTransposed => {
                vec![product(&V::Sparse(inputs[0].sparse().turned()), &inputs[1])]
            }
            Operator::PlusIdentity { c } => {
                let mut matrix = inputs[0].sparse().clone();
                let loops = matrix.shape[0].min(matrix.shape[1]);
                matrix.entries.extend((0..loops).map(|i| (i, i, c.get())));
                vec![V::Sparse(matrix)]
            }
            Operator::DiagonalProduct => vec![product(&inputs[0], &inputs[1])],
            Operator::EntryDropout { p, key } => {
                let matrix = inputs[0].sparse();
                vec![V::Sparse(matrix.with(|i, j, v| v * mask(p.get(), key, i, j)))]
            }
            Operator::EdgeDropout { p, key } => {
                vec![V::Sparse(eval::without_edges(inputs[0].sparse(), p.get(), key))]
            }
            Operator::Each(each) => vec![V::Dense(self::each(&each, inputs))],
            Operator::Attention(op) => {
                let x: Vec<M> = inputs[1..].iter().map(V::dense).collect();
                let mut all = eval::attention(&op, inputs[0].sparse(), [&x[0], &x[1], &x[2]]);
                // Nothing more is kept than the plan has room for.
                let [rows, columns] = self.shape(step.outputs[1]);
                assert!(columns == all[1].n_cols() || columns == op.heads, "what is kept");
                all[1] = window(&all[1], rows, 0, columns);
                all.into_iter().map(V::Dense).collect()
            }
            Operator::AttentionGrad(op) => {
                let mut x: Vec<M> = inputs[1..].iter().map(V::dense).collect();
                if step.looks_again() {
                    // All but the results again, of which only a number per head was kept.
                    let again = eval::attention(&op, inputs[0].sparse(), [&x[0], &x[1], &x[2]]);
                    let kept = window(&again[1], again[1].n_rows(), 0, op.heads);
                    eval::assert_same(&x[3], &kept, "a number per head");
                    x.splice(3..4, again);
                }
                let (args, saved) = ([&x[0], &x[1], &x[2]], [&x[3], &x[4], &x[5]]);
                let all = eval::attention_grad(&op, inputs[0].sparse(), args, saved);
                all.into_iter().map(V::Dense).collect()
            }
            Operator::Pairs(op) => vec![V::Dense(eval::pairs(op, &inputs[0].dense()))],
            Operator::PairsGrad(op) => {
                vec![V::Dense(eval::pairs_grad(op, &inputs[0].dense(), &inputs[1].dense()))]
            }
            Operator::Gated => {
                let x: Vec<M> = inputs[1..].iter().map(V::dense).collect();
                vec![V::Dense(eval::gated(inputs[0].sparse(), [&x[0], &x[1], &x[2]]))]
            }
            Operator::GatedGrad => {
                let x: Vec<M> = inputs[1..].iter().map(V::dense).collect();
                let args = [&x[0], &x[1], &x[2]];
                let all = eval::gated_grad(inputs[0].sparse(), args, &x[3]);
                all.into_iter().map(V::Dense).collect()
            }
            Operator::Extreme(op) => {
                vec![V::Dense(eval::extreme(op, inputs[0].sparse(), &inputs[1].dense()))]
            }
            Operator::ExtremeGrad(op) => {
                let x: Vec<M> = inputs[1..].iter().map(V::dense).collect();
                let grad = eval::extreme_grad(op, inputs[0].sparse(), &x[0], [&x[1], &x[2]]);
                vec![V::Dense(grad)]
            }
            Operator::NormGrad { kind, .. } => {
                let x: Vec<M> = inputs.iter().map(V::dense).collect();
                eval::norm_grad(kind, &x[0], &x[1], &x[2]).into_iter().map(V::Dense).collect()
            }
            _ => {
                let x: Vec<M> = inputs.iter().map(V::dense).collect();
                vec![V::Dense(self.dense(step, &x))]
            }
        }
    }

    fn dense(&mut self, step: &Step, x: &[M]) -> M {
        let [rows, cols] = self.shape(step.outputs[0]);
        match (step.operator, x) {
            (Operator::Gemm { form, ending }, [a, b, rest @ ..]) => {
                let form = match form {
                    Form::Nn => Reference::Nn,
                    Form::Nt => Reference::Nt,
                    Form::Tn => Reference::Tn,
                };
                let (mut y, mut rest) = (matmul(a, b, form).unwrap(), rest);
                if let (true, [a, b, others @ ..]) = (ending.plus, rest) {
                    let more = matmul(a, b, form).unwrap();
                    y = zip(&y, &window(&more, rows, 0, cols), |y, more| y + more);
                    rest = others;
                }
                ended(y, ending, rest)
            }
            (Operator::EachGrad { function, dropout, scale }, [g, rest @ ..]) => {
                let mut g = map(g, |v| v * scale.get());
                if let Some((p, key)) = dropout {
                    g = eval::dropout(&g, p.get(), key);
                }
                match rest {
                    [saved] => zip(saved, &g, |saved, g| map_grad(function, saved, g)),
                    _ => g,
                }
            }
            (Operator::ColumnSums, [x]) => column_sums(x),
            (Operator::Transpose, [x]) => transposed(x),
            (Operator::Convert, [x]) => x.clone(),
            (Operator::Unit, [x]) => eval::unit(x),
            (Operator::UnitGrad, [x, g]) => eval::unit_grad(x, g),
            (Operator::Dot, [a, b]) => M::from_fn(1, 1, |_, _| total(&zip(a, b, |a, b| a * b))),
            (Operator::ScaleBy, [s, x]) => map(x, |v| s.at(0, 0) * v),
            (Operator::Pad, [x]) => window(x, rows, 0, cols),
            (Operator::Concat, parts) => beside(parts),
            (Operator::PadColumns { from }, [x]) => window(x, rows, -(from as isize), cols),
            (Operator::Norm { kind, .. }, [x, gamma, beta]) => eval::norm(kind, x, gamma, beta),
            (Operator::Readout(read), [x]) => self.world.readout(read, x),
            (Operator::ReadoutGrad(read), [x, y, g]) => self.world.readout_grad(read, x, y, g),
            (Operator::Loss(kind), [z]) => {
                let (loss, grad) = self.world.loss(kind, z);
                assert!(self.loss.replace(loss).is_none(), "one loss");
                grad
            }
            (operator, x) => panic!("{operator:?} of {} values", x.len()),
        }
    }
}

/// The bias comes first, what is added to comes last.
fn ended(mut y: M, ending: Ending, rest: &[M]) -> M {
    let there = usize::from(ending.accumulate || ending.gate.is_some());
    assert_eq!(rest.len(), usize::from(ending.bias) + there, "inputs");
    if let Some(function) = ending.gate {
        y = zip(&rest[rest.len() - 1], &y, |saved, g| map_grad(function, saved, g));
    }
    if ending.accumulate {
        y = zip(&y, &rest[rest.len() - 1], |a, b| a + b);
    }
    if ending.bias {
        y = M::from_fn(y.n_rows(), y.n_cols(), |i, j| y.at(i, j) + rest[0].at(0, j));
    }
    activated(y, ending.function)
}

fn activated(y: M, function: Function) -> M {
    map(&y, |v| Activation::from(function).of(v))
}

fn spmm([left, right]: [bool; 2], ending: Ending, inputs: &[V]) -> M {
    let (a, mut x) = (&inputs[0], inputs[1].dense());
    assert!(matches!(a, V::Sparse(_)), "a sparse matrix");
    let mut rest = inputs[2..].iter();
    let left = left.then(|| rest.next().unwrap().diagonal());
    if right {
        x = row_scaled(rest.next().unwrap().diagonal(), &x);
    }
    let mut y = product(a, &V::Dense(x)).dense();
    if let Some(left) = left {
        y = row_scaled(left, &y);
    }
    let rest: Vec<M> = rest.map(V::dense).collect();
    ended(y, ending, &rest)
}

fn entry_scale([left, right]: [bool; 2], inputs: &[V]) -> V {
    let mut rest = inputs[1..].iter();
    let mut matrix = inputs[0].sparse().clone();
    if left {
        let d = rest.next().unwrap().diagonal();
        matrix = matrix.with(|i, _, v| d[i] * v);
    }
    if right {
        let d = rest.next().unwrap().diagonal();
        matrix = matrix.with(|_, j, v| v * d[j]);
    }
    assert!(rest.next().is_none(), "inputs");
    V::Sparse(matrix)
}

fn each(each: &Each, inputs: &[V]) -> M {
    let mut rest = inputs[1..].iter();
    let mut y = map(&inputs[0].dense(), |v| v * each.scale.get());
    if each.rows {
        y = row_scaled(rest.next().unwrap().diagonal(), &y);
    }
    if let Some(beta) = each.plus {
        y = zip(&y, &rest.next().unwrap().dense(), |x, z| x + beta.get() * z);
    }
    if each.bias {
        let b = rest.next().unwrap().dense();
        y = M::from_fn(y.n_rows(), y.n_cols(), |i, j| y.at(i, j) + b.at(0, j));
    }
    assert!(rest.next().is_none(), "inputs");
    let y = activated(y, each.function);
    match each.dropout {
        Some((p, key)) => eval::dropout(&y, p.get(), key),
        None => y,
    }
}
