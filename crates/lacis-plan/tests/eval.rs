//! An obvious interpreter of formulas, in f64: what every rule, gradient and plan must agree with.
//!
//! Sparse matrices are lists of entries, so that repeated edges stay what they are; dropout is a
//! fixed function of key, row and column, so that gradients can be checked by differences.

use std::collections::HashMap;

use lacis_core::reference::{
    Activation, Form, Gat, GatV2, Gated, Norm, PerEdge, Reduce, Ties, binary_cross_entropy,
    cross_entropy, matmul, transposed,
};
use lacis_core::{Csr, CsrParts, Dense, Rng, RowPtr, Threads};
use lacis_plan::op::{
    Adjacency, Attention, Extreme, Function, Graph, Loops, LossKind, NormKind, PairOp, Read, Scores,
};
use lacis_plan::{Dim, Expr, Op, Sizes};

/// A dense matrix.
pub type M = Dense<f64>;

/// Entries of a sparse matrix: row, column, value; a place may occur again.
#[derive(Clone, Debug)]
pub struct S {
    pub shape: [usize; 2],
    pub entries: Vec<(usize, usize, f64)>,
}

/// What a formula gives.
#[derive(Clone, Debug)]
pub enum V {
    Dense(M),
    Sparse(S),
    Diagonal(Vec<f64>),
    Parts(Vec<M>),
}

impl S {
    pub fn dense(&self) -> M {
        let mut all = M::zeros(self.shape[0], self.shape[1]);
        for &(i, j, v) in &self.entries {
            all.row_mut(i)[j] += v;
        }
        all
    }

    pub fn turned(&self) -> S {
        let entries = self.entries.iter().map(|&(i, j, v)| (j, i, v)).collect();
        S { shape: [self.shape[1], self.shape[0]], entries }
    }

    pub fn with(&self, value: impl Fn(usize, usize, f64) -> f64) -> S {
        let entries = self.entries.iter().map(|&(i, j, v)| (i, j, value(i, j, v))).collect();
        S { shape: self.shape, entries }
    }

    /// The entries that are not 0.
    pub fn of(x: &M) -> S {
        let all = (0..x.n_rows()).flat_map(|i| (0..x.n_cols()).map(move |j| (i, j, x.at(i, j))));
        S { shape: [x.n_rows(), x.n_cols()], entries: all.filter(|e| e.2 != 0.0).collect() }
    }

    /// The pattern as attention's reference takes it.
    fn csr(&self) -> Csr {
        let mut ends = vec![0_u32; self.shape[0] + 1];
        self.entries.iter().for_each(|e| ends[e.0 + 1] += 1);
        (0..self.shape[0]).for_each(|i| ends[i + 1] += ends[i]);
        let cols: Vec<u32> = self.entries.iter().map(|e| e.1 as u32).collect();
        assert!(self.entries.is_sorted_by_key(|e| e.0), "rows in order");
        let parts = CsrParts {
            n_cols: self.shape[1],
            row_ptr: RowPtr::Narrow(ends.into()),
            cols: cols.into(),
            values: None,
            order: None,
        };
        Csr::new(parts, &Threads::one()).unwrap()
    }
}

impl V {
    /// As a dense matrix, whatever it is.
    pub fn dense(&self) -> M {
        match self {
            V::Dense(x) => x.clone(),
            V::Sparse(a) => a.dense(),
            V::Diagonal(d) => M::from_fn(d.len(), d.len(), |i, j| if i == j { d[i] } else { 0.0 }),
            V::Parts(_) => panic!("several values"),
        }
    }

    pub fn sparse(&self) -> &S {
        match self {
            V::Sparse(a) => a,
            other => panic!("not sparse: {other:?}"),
        }
    }

    pub fn diagonal(&self) -> &[f64] {
        match self {
            V::Diagonal(d) => d,
            other => panic!("not diagonal: {other:?}"),
        }
    }
}

/// What a formula is evaluated on.
#[derive(Clone)]
pub struct World {
    pub nodes: Vec<usize>,
    /// From whom (second) to whom (first), over the nodes of level 0, rows in order.
    pub edges: Vec<(usize, usize, f64)>,
    pub features: M,
    pub sparse: bool,
    pub params: HashMap<String, M>,
    pub labels: Vec<i32>,
    pub graphs: usize,
}

/// Pairs of nodes that are scored: repeated, turned round, of one node alone.
const PAIRS: [(usize, usize); 6] = [(0, 1), (2, 0), (0, 1), (1, 0), (2, 2), (1, 2)];

/// Normally distributed numbers.
pub fn random(seed: u64, rows: usize, cols: usize) -> M {
    let rng = Rng::new(seed, "plan tests");
    let at = |i: usize, j: usize| rng.stream((i * cols + j) as u64).normal();
    M::from_fn(rows, cols, at)
}

impl World {
    /// A directed graph with repeated edges, loops and a node that nobody points to. Every level
    /// has all neighbours of the next one's nodes.
    pub fn new(nodes: &[usize], width: usize, seed: u64) -> World {
        let mut world = World::open(nodes, width, seed);
        for edge in &mut world.edges {
            let known = (1..nodes.len()).rev().find(|&l| edge.0 < nodes[l]);
            edge.1 %= known.map_or(nodes[0], |l| nodes[l - 1]);
        }
        world
    }

    /// The same, but a level may lack neighbours of the next one's nodes.
    pub fn open(nodes: &[usize], width: usize, seed: u64) -> World {
        let n = nodes[0];
        let mut stream = Rng::new(seed, "edges").stream(0);
        let mut edges: Vec<(usize, usize, f64)> = (0..3 * n)
            .map(|_| (stream.below(n), stream.below(n), 0.25 + stream.unit()))
            .filter(|e| e.0 != 1)
            .collect();
        edges.push((0, 0, 0.75));
        edges.push((0, n - 1, 1.25));
        edges.push((0, n - 1, 0.5));
        edges.sort_by_key(|e| e.0);
        World {
            nodes: nodes.to_vec(),
            edges,
            features: random(seed + 1, n, width),
            sparse: false,
            params: HashMap::new(),
            labels: (0..n).map(|i| (i * 7 % 3) as i32).collect(),
            graphs: 3,
        }
    }

    /// Numbers for the parameters of a formula.
    pub fn with_params<'a>(mut self, exprs: impl IntoIterator<Item = &'a Expr>, seed: u64) -> Self {
        let exprs: Vec<Expr> = exprs.into_iter().cloned().collect();
        for (at, expr) in Expr::sorted(&exprs).iter().enumerate() {
            if let Op::Param { name, shape } = expr.op() {
                let value = random(seed * 100 + at as u64, shape[0], shape[1]);
                self.params.insert(name.clone(), value);
            }
        }
        self
    }

    /// Three of four features become 0 and are no entries.
    pub fn made_sparse(mut self) -> Self {
        let x = self.features.clone();
        let kept = |i: usize, j: usize| (i * 5 + j * 3).is_multiple_of(4);
        let value = |i, j| if kept(i, j) { x.at(i, j) } else { 0.0 };
        self.features = M::from_fn(x.n_rows(), x.n_cols(), value);
        self.sparse = true;
        self
    }

    pub fn sizes(&self) -> Sizes {
        let levels = self.nodes.len();
        Sizes {
            nodes: self.nodes.clone(),
            entries: (0..levels - 1).map(|l| self.stored(l).len()).collect(),
            feature_entries: if self.sparse { S::of(&self.features).entries.len() } else { 0 },
            graphs: self.graphs,
            pairs: PAIRS.len(),
            iterations: 200,
            symmetric: false,
            edge_weights: true,
        }
    }

    /// The edges between two levels.
    fn stored(&self, level: usize) -> Vec<(usize, usize, f64)> {
        let (to, from) = (self.nodes[level + 1], self.nodes[level]);
        self.edges.iter().copied().filter(|e| e.0 < to && e.1 < from).collect()
    }

    pub fn adjacency(&self, a: Adjacency) -> S {
        let level = a.level as usize;
        let shape = [self.nodes[level + 1], self.nodes[level]];
        let matrix = S { shape, entries: treated(self.stored(level), shape[0], a.graph) };
        if a.transposed { matrix.turned() } else { matrix }
    }

    /// Powers of the degrees that nodes have in the whole graph; 0 stays 0.
    pub fn degrees(&self, graph: Graph, level: u16, half_power: i8) -> Vec<f64> {
        let mut sums = vec![0.0; self.nodes[0]];
        for (i, _, v) in treated(self.edges.clone(), self.nodes[0], graph) {
            sums[i] += v;
        }
        sums.truncate(self.nodes[level as usize]);
        let power = f64::from(half_power) / 2.0;
        sums.iter().map(|&d: &f64| if d > 0.0 { d.powf(power) } else { 0.0 }).collect()
    }

    fn identity(&self, level: u16, transposed: bool) -> S {
        let shape = [self.nodes[level as usize + 1], self.nodes[level as usize]];
        let matrix = S { shape, entries: (0..shape[0]).map(|i| (i, i, 1.0)).collect() };
        if transposed { matrix.turned() } else { matrix }
    }

    pub fn rows(&self, dim: Dim) -> usize {
        match dim {
            Dim::Nodes(level) => self.nodes[level as usize],
            Dim::Graphs => self.graphs,
            Dim::Pairs => PAIRS.len(),
            Dim::Width(width) => width,
        }
    }

    fn graph_of(&self, node: usize) -> usize {
        // The middle one stays empty.
        if node.is_multiple_of(3) { 0 } else { 2.min(self.graphs - 1) }
    }

    /// The loss of logits and its gradient.
    pub fn loss(&self, kind: LossKind, z: &M) -> (f64, M) {
        let rows: Vec<u32> = (0..z.n_rows() as u32).filter(|i| i % 4 != 2).collect();
        let targets = M::from_fn(z.n_rows(), z.n_cols(), |i, j| ((i + 2 * j) % 3) as f64 / 2.0);
        match kind {
            LossKind::Classes => {
                let loss = cross_entropy(z, &self.labels[..z.n_rows()], &rows).unwrap();
                (loss.value, loss.grad)
            }
            LossKind::Binary => {
                let loss = binary_cross_entropy(z, &targets, &rows).unwrap();
                (loss.value, loss.grad)
            }
            LossKind::Squares => {
                let count = (z.n_rows() * z.n_cols()) as f64;
                let off = zip(z, &targets, |z, t| z - t);
                let value = zip(&off, &off, |a, b| a * b);
                (total(&value) / count, map(&off, |d| 2.0 * d / count))
            }
        }
    }

    pub fn readout(&self, read: Read, x: &M) -> M {
        M::from_fn(self.graphs, x.n_cols(), |g, c| {
            let items: Vec<f64> =
                (0..x.n_rows()).filter(|&i| self.graph_of(i) == g).map(|i| x.at(i, c)).collect();
            Reduce::from(read).of(&items)
        })
    }

    pub fn readout_grad(&self, read: Read, x: &M, y: &M, grad: &M) -> M {
        assert_same(y, &self.readout(read, x), "what was read out");
        let mut all = M::zeros(x.n_rows(), x.n_cols());
        for g in 0..self.graphs {
            let nodes: Vec<usize> = (0..x.n_rows()).filter(|&i| self.graph_of(i) == g).collect();
            for c in 0..x.n_cols() {
                let items: Vec<f64> = nodes.iter().map(|&i| x.at(i, c)).collect();
                let shares = Reduce::from(read).derivative(&items, Ties::SplitEvenly);
                for (&i, share) in nodes.iter().zip(shares) {
                    all.row_mut(i)[c] = share * grad.at(g, c);
                }
            }
        }
        all
    }
}

fn treated(
    mut edges: Vec<(usize, usize, f64)>,
    rows: usize,
    graph: Graph,
) -> Vec<(usize, usize, f64)> {
    if matches!(graph.loops, Loops::Renewed | Loops::Removed) {
        edges.retain(|e| e.0 != e.1);
    }
    let missing: Vec<usize> =
        (0..rows).filter(|&i| !edges.iter().any(|e| (e.0, e.1) == (i, i))).collect();
    if graph.has_loops() {
        edges.extend(missing.into_iter().map(|i| (i, i, 1.0)));
    }
    if !graph.weighted {
        edges.iter_mut().for_each(|e| e.2 = 1.0);
    }
    edges.sort_by_key(|e| e.0);
    edges
}

pub fn map(x: &M, f: impl Fn(f64) -> f64) -> M {
    M::from_fn(x.n_rows(), x.n_cols(), |i, j| f(x.at(i, j)))
}

/// Rows of length one.
pub fn unit(x: &M) -> M {
    let [rows, cols] = [x.n_rows(), x.n_cols()];
    M::from_fn(rows, cols, |i, j| x.at(i, j) / length(x, i))
}

/// `(g - y·(y·g)) / |x|`, row by row.
pub fn unit_grad(x: &M, g: &M) -> M {
    let y = unit(x);
    M::from_fn(x.n_rows(), x.n_cols(), |i, j| {
        let along: f64 = (0..x.n_cols()).map(|c| y.at(i, c) * g.at(i, c)).sum();
        (g.at(i, j) - y.at(i, j) * along) / length(x, i)
    })
}

fn length(x: &M, i: usize) -> f64 {
    (0..x.n_cols()).map(|j| x.at(i, j).powi(2)).sum::<f64>().sqrt().max(1e-12)
}

pub fn zip(x: &M, y: &M, f: impl Fn(f64, f64) -> f64) -> M {
    assert_eq!((x.n_rows(), x.n_cols()), (y.n_rows(), y.n_cols()), "shapes");
    M::from_fn(x.n_rows(), x.n_cols(), |i, j| f(x.at(i, j), y.at(i, j)))
}

pub fn total(x: &M) -> f64 {
    x.rows().flatten().sum()
}

pub fn column_sums(x: &M) -> M {
    M::from_fn(1, x.n_cols(), |_, j| (0..x.n_rows()).map(|i| x.at(i, j)).sum())
}

/// Some rows and columns; 0 outside.
pub fn window(x: &M, rows: usize, from: isize, width: usize) -> M {
    M::from_fn(rows, width, |i, j| {
        let at = j as isize + from;
        let inside = i < x.n_rows() && (0..x.n_cols() as isize).contains(&at);
        if inside { x.at(i, at as usize) } else { 0.0 }
    })
}

pub fn beside(parts: &[M]) -> M {
    let rows = parts[0].n_rows();
    let flat = |i: usize| parts.iter().flat_map(move |p| p.row(i).to_vec());
    let width = parts.iter().map(M::n_cols).sum();
    let data: Vec<f64> = (0..rows).flat_map(flat).collect();
    M::from_vec(data, rows, width).unwrap()
}

/// 0, or one over the share that is kept.
pub fn mask(p: f64, key: u32, row: usize, col: usize) -> f64 {
    let kept = ((1.0 - p) * 65536.0).round();
    let number = Rng::new(u64::from(key), "mask").block_at(row as u64, col as u32)[0] % 65536;
    if f64::from(number) < kept { 65536.0 / kept } else { 0.0 }
}

pub fn dropout(x: &M, p: f64, key: u32) -> M {
    M::from_fn(x.n_rows(), x.n_cols(), |i, j| x.at(i, j) * mask(p, key, i, j))
}

/// Entries dropped by their numbers, which they keep in the transpose.
pub fn without_edges(a: &S, p: f64, key: u32) -> S {
    let dropped = |(e, &(i, j, v)): (usize, &(usize, usize, f64))| (i, j, v * mask(p, key, e, 0));
    S { shape: a.shape, entries: a.entries.iter().enumerate().map(dropped).collect() }
}

/// `g ∘ f'` from what is saved: `f`'s result, or its argument where the result does not tell.
pub fn map_grad(function: Function, saved: f64, g: f64) -> f64 {
    let slope = match function {
        f if !f.saves_result() => Activation::from(f).derivative(saved),
        Function::Identity => 1.0,
        Function::Relu => f64::from(saved > 0.0),
        Function::LeakyRelu(slope) => {
            if saved > 0.0 {
                1.0
            } else {
                slope.get()
            }
        }
        Function::Elu(alpha) => {
            if saved > 0.0 {
                1.0
            } else {
                saved + alpha.get()
            }
        }
        Function::Sigmoid => saved * (1.0 - saved),
        Function::Tanh => 1.0 - saved * saved,
    };
    g * slope
}

pub fn norm(kind: NormKind, x: &M, gamma: &M, beta: &M) -> M {
    let norm = Norm { gamma: gamma.row(0), beta: beta.row(0), eps: 1e-5 };
    match kind {
        NormKind::Batch => norm.batch(x).unwrap(),
        NormKind::Layer => norm.layer(x).unwrap(),
    }
}

pub fn norm_grad(kind: NormKind, x: &M, gamma: &M, g: &M) -> Vec<M> {
    let beta = vec![0.0; x.n_cols()];
    let norm = Norm { gamma: gamma.row(0), beta: &beta, eps: 1e-5 };
    let grads = match kind {
        NormKind::Batch => norm.batch_backward(x, g).unwrap(),
        NormKind::Layer => norm.layer_backward(x, g).unwrap(),
    };
    let row = |v: Vec<f64>| M::from_fn(1, v.len(), |_, j| v[j]);
    vec![grads.x, row(grads.gamma), row(grads.beta)]
}

/// A vector per head, from however many rows they are in.
fn per_head(v: &M, heads: usize) -> M {
    let flat: Vec<f64> = v.rows().flatten().copied().collect();
    let channels = flat.len() / heads;
    M::from_fn(heads, channels, |h, c| flat[h * channels + c])
}

fn shaped(v: &M, like: &M) -> M {
    let flat: Vec<f64> = v.rows().flatten().copied().collect();
    M::from_fn(like.n_rows(), like.n_cols(), |i, j| flat[i * like.n_cols() + j])
}

fn coefficients(attention: &Attention, a: &S) -> M {
    let at = |e, h| mask(attention.dropout.get(), attention.key, e, h);
    M::from_fn(a.entries.len(), attention.heads, at)
}

/// The result, and numbers that the gradient can check it was given the right ones.
pub fn attention(attention: &Attention, a: &S, x: [&M; 3]) -> Vec<M> {
    let (csr, masks, slope) = (a.csr(), coefficients(attention, a), attention.slope.get());
    let edges = PerEdge { mask: Some(&masks), ..PerEdge::default() };
    let y = match attention.scores {
        Scores::Gat => {
            let target = window(x[0], a.shape[0], 0, x[0].n_cols());
            let (t, u) = (per_head(x[1], attention.heads), per_head(x[2], attention.heads));
            let gat = Gat {
                target: &target,
                source: x[0],
                target_vectors: &t,
                source_vectors: &u,
                edge_vectors: None,
                edges,
                slope,
            };
            gat.forward(&csr).unwrap()
        }
        Scores::GatV2 => {
            let vectors = per_head(x[2], attention.heads);
            let gat = GatV2 { target: x[0], source: x[1], vectors: &vectors, edges, slope };
            gat.forward(&csr).unwrap()
        }
    };
    let (width, columns) = (y.n_cols(), attention.kept_columns(y.n_cols()));
    let kept = M::from_fn(y.n_rows(), columns, |i, c| y.at(i, c % width) * 2.0);
    vec![y, kept]
}

pub fn attention_grad(op: &Attention, a: &S, x: [&M; 3], [y, kept, g]: [&M; 3]) -> Vec<M> {
    let again = attention(op, a, x);
    assert_same(y, &again[0], "what was attended to");
    assert_same(kept, &again[1], "what attention keeps");
    let (csr, masks, slope) = (a.csr(), coefficients(op, a), op.slope.get());
    let edges = PerEdge { mask: Some(&masks), ..PerEdge::default() };
    match op.scores {
        Scores::Gat => {
            let target = window(x[0], a.shape[0], 0, x[0].n_cols());
            let (t, u) = (per_head(x[1], op.heads), per_head(x[2], op.heads));
            let gat = Gat {
                target: &target,
                source: x[0],
                target_vectors: &t,
                source_vectors: &u,
                edge_vectors: None,
                edges,
                slope,
            };
            let grads = gat.backward(&csr, g).unwrap();
            let target = window(&grads.target, x[0].n_rows(), 0, x[0].n_cols());
            let source = zip(&target, &grads.source, |a, b| a + b);
            let (t, u) = (grads.target_vectors, grads.source_vectors);
            vec![source, shaped(&t, x[1]), shaped(&u, x[2])]
        }
        Scores::GatV2 => {
            let vectors = per_head(x[2], op.heads);
            let gat = GatV2 { target: x[0], source: x[1], vectors: &vectors, edges, slope };
            let grads = gat.backward(&csr, g).unwrap();
            vec![grads.target, grads.source, shaped(&grads.vectors, x[2])]
        }
    }
}

pub fn gated(a: &S, [target, source, values]: [&M; 3]) -> M {
    Gated { target, source, values }.forward(&a.csr()).unwrap()
}

pub fn gated_grad(a: &S, [target, source, values]: [&M; 3], g: &M) -> Vec<M> {
    let grads = Gated { target, source, values }.backward(&a.csr(), g).unwrap();
    vec![grads.target, grads.source, grads.values]
}

pub fn pairs(op: PairOp, z: &M) -> M {
    let product = |p: usize, c: usize| z.at(PAIRS[p].0, c) * z.at(PAIRS[p].1, c);
    match op {
        PairOp::Dot => {
            M::from_fn(PAIRS.len(), 1, |p, _| (0..z.n_cols()).map(|c| product(p, c)).sum())
        }
        PairOp::Product => M::from_fn(PAIRS.len(), z.n_cols(), product),
    }
}

pub fn pairs_grad(op: PairOp, z: &M, g: &M) -> M {
    let mut all = M::zeros(z.n_rows(), z.n_cols());
    for (p, (i, j)) in PAIRS.into_iter().enumerate() {
        for c in 0..z.n_cols() {
            let g = g.at(p, if op == PairOp::Dot { 0 } else { c });
            all.row_mut(i)[c] += g * z.at(j, c);
            all.row_mut(j)[c] += g * z.at(i, c);
        }
    }
    all
}

fn items(a: &S, x: &M, i: usize, c: usize) -> Vec<(usize, f64)> {
    a.entries.iter().filter(|e| e.0 == i).map(|e| (e.1, x.at(e.1, c))).collect()
}

pub fn extreme(extreme: Extreme, a: &S, x: &M) -> M {
    M::from_fn(a.shape[0], x.n_cols(), |i, c| {
        let items: Vec<f64> = items(a, x, i, c).into_iter().map(|item| item.1).collect();
        Reduce::from(extreme).of(&items)
    })
}

pub fn extreme_grad(op: Extreme, a: &S, x: &M, [y, g]: [&M; 2]) -> M {
    assert_same(y, &extreme(op, a, x), "the extremes");
    let mut all = M::zeros(x.n_rows(), x.n_cols());
    for i in 0..a.shape[0] {
        for c in 0..x.n_cols() {
            let items = items(a, x, i, c);
            let values: Vec<f64> = items.iter().map(|item| item.1).collect();
            let shares = Reduce::from(op).derivative(&values, Ties::SplitEvenly);
            for ((j, _), share) in items.iter().zip(shares) {
                all.row_mut(*j)[c] += share * g.at(i, c);
            }
        }
    }
    all
}

pub fn row_scaled(d: &[f64], x: &M) -> M {
    assert_eq!(d.len(), x.n_rows(), "a diagonal for each row");
    M::from_fn(x.n_rows(), x.n_cols(), |i, j| d[i] * x.at(i, j))
}

pub fn product(a: &V, b: &V) -> V {
    match (a, b) {
        (V::Diagonal(d), V::Diagonal(e)) => {
            V::Diagonal(d.iter().zip(e).map(|(d, e)| d * e).collect())
        }
        (V::Diagonal(d), V::Sparse(a)) => V::Sparse(a.with(|i, _, v| d[i] * v)),
        (V::Sparse(a), V::Diagonal(d)) => V::Sparse(a.with(|_, j, v| v * d[j])),
        (V::Sparse(a), V::Sparse(b)) => {
            V::Sparse(S::of(&matmul(&a.dense(), &b.dense(), Form::Nn).unwrap()))
        }
        (V::Diagonal(d), V::Dense(x)) => V::Dense(row_scaled(d, x)),
        (a, b) => V::Dense(matmul(&a.dense(), &b.dense(), Form::Nn).unwrap()),
    }
}

fn sum(a: &V, b: &V) -> V {
    match (a, b) {
        (V::Sparse(a), V::Sparse(b)) => {
            let mut entries = [a.entries.clone(), b.entries.clone()].concat();
            entries.sort_by_key(|e| e.0);
            V::Sparse(S { shape: a.shape, entries })
        }
        (a, b) => V::Dense(zip(&a.dense(), &b.dense(), |a, b| a + b)),
    }
}

/// A formula's value.
pub fn eval(expr: &Expr, world: &World) -> V {
    let mut values: HashMap<u128, V> = HashMap::new();
    for expr in Expr::sorted(std::slice::from_ref(expr)) {
        expr.check().unwrap();
        let args: Vec<&V> = expr.args().iter().map(|arg| &values[&arg.id()]).collect();
        let value = match args.as_slice() {
            [] => leaf(expr.op(), world),
            args => operation(&expr, args, world),
        };
        if let V::Dense(x) = &value {
            let shape = expr.shape().map(|dim| world.rows(dim));
            assert_eq!([x.n_rows(), x.n_cols()], shape, "the shape of {expr}");
        }
        values.insert(expr.id(), value);
    }
    values.remove(&expr.id()).unwrap()
}

fn leaf(op: &Op, world: &World) -> V {
    match op {
        Op::Features { sparse: true, .. } => V::Sparse(S::of(&world.features)),
        Op::Features { .. } => V::Dense(world.features.clone()),
        Op::Param { name, .. } => V::Dense(world.params[name].clone()),
        Op::Adjacency(a) => V::Sparse(world.adjacency(*a)),
        Op::Degrees { graph, level, half_power } => {
            V::Diagonal(world.degrees(*graph, *level, *half_power))
        }
        Op::Identity { level, transposed } => V::Sparse(world.identity(*level, *transposed)),
        other => panic!("{other:?} is no leaf"),
    }
}

fn operation(expr: &Expr, args: &[&V], world: &World) -> V {
    if let V::Parts(parts) = args[0]
        && let Op::Part(index) = expr.op()
    {
        return V::Dense(parts[*index].clone());
    }
    match (expr.op(), args) {
        (Op::Mul, [a, b]) => product(a, b),
        (Op::Add, [a, b]) => sum(a, b),
        (Op::Scale(by), [V::Sparse(a)]) => V::Sparse(a.with(|_, _, v| by.get() * v)),
        (Op::Transpose, [V::Sparse(a)]) => V::Sparse(a.turned()),
        (Op::Dropout { p, key }, [V::Sparse(a)]) => {
            V::Sparse(a.with(|i, j, v| v * mask(p.get(), *key, i, j)))
        }
        (Op::DropEdges { p, key }, [a]) => V::Sparse(without_edges(a.sparse(), p.get(), *key)),
        (Op::Layer(_) | Op::LayerGrad(_), [x]) => (*x).clone(),
        (Op::Attention(op), [a, x, y, z]) => {
            let x = [x.dense(), y.dense(), z.dense()];
            V::Parts(attention(op, a.sparse(), [&x[0], &x[1], &x[2]]))
        }
        (Op::AttentionGrad(op), [a, rest @ ..]) => {
            let x: Vec<M> = rest.iter().map(|v| v.dense()).collect();
            let (args, saved) = ([&x[0], &x[1], &x[2]], [&x[3], &x[4], &x[5]]);
            V::Parts(attention_grad(op, a.sparse(), args, saved))
        }
        (Op::Gated, [a, k, q, v]) => {
            let x = [k.dense(), q.dense(), v.dense()];
            V::Dense(gated(a.sparse(), [&x[0], &x[1], &x[2]]))
        }
        (Op::GatedGrad, [a, k, q, v, g]) => {
            let x = [k.dense(), q.dense(), v.dense()];
            V::Parts(gated_grad(a.sparse(), [&x[0], &x[1], &x[2]], &g.dense()))
        }
        (Op::Extreme(op), [a, x]) => V::Dense(extreme(*op, a.sparse(), &x.dense())),
        (Op::ExtremeGrad(op), [a, x, y, g]) => {
            V::Dense(extreme_grad(*op, a.sparse(), &x.dense(), [&y.dense(), &g.dense()]))
        }
        (Op::NormGrad { kind, .. }, [x, gamma, g]) => {
            V::Parts(norm_grad(*kind, &x.dense(), &gamma.dense(), &g.dense()))
        }
        _ => {
            let x: Vec<M> = args.iter().map(|v| v.dense()).collect();
            V::Dense(dense_operation(expr, &x, world))
        }
    }
}

fn dense_operation(expr: &Expr, args: &[M], world: &World) -> M {
    let [rows, cols] = expr.shape().map(|dim| world.rows(dim));
    match (expr.op(), args) {
        (Op::Scale(by), [x]) => map(x, |v| by.get() * v),
        (Op::ScaleBy, [s, x]) => map(x, |v| s.at(0, 0) * v),
        (Op::Dot, [a, b]) => M::from_fn(1, 1, |_, _| total(&zip(a, b, |a, b| a * b))),
        (Op::Transpose, [x]) => transposed(x),
        (Op::Unit, [x]) => unit(x),
        (Op::UnitGrad, [x, g]) => unit_grad(x, g),
        (Op::Top { .. } | Op::Pad { .. }, [x]) => window(x, rows, 0, cols),
        (Op::Bias, [x, b]) => M::from_fn(rows, cols, |i, j| x.at(i, j) + b.at(0, j)),
        (Op::ColumnSums, [x]) => column_sums(x),
        (Op::Map(f), [x]) => map(x, |v| Activation::from(*f).of(v)),
        (Op::MapGrad(f), [y, g]) => zip(y, g, |y, g| map_grad(*f, y, g)),
        (Op::Dropout { p, key }, [x]) => dropout(x, p.get(), *key),
        (Op::Concat, parts) => beside(parts),
        (Op::Columns { from, width }, [x]) => window(x, rows, *from as isize, *width),
        (Op::PadColumns { from, width }, [x]) => window(x, rows, -(*from as isize), *width),
        (Op::Norm { kind, .. }, [x, gamma, beta]) => norm(*kind, x, gamma, beta),
        (Op::Pairs(op), [z]) => pairs(*op, z),
        (Op::PairsGrad(op), [z, g]) => pairs_grad(*op, z, g),
        (Op::Readout(read), [x]) => world.readout(*read, x),
        (Op::ReadoutGrad(read), [x, y, g]) => world.readout_grad(*read, x, y, g),
        (Op::Loss(kind), [z]) => M::from_fn(1, 1, |_, _| world.loss(*kind, z).0),
        (Op::LossGrad(kind), [z]) => world.loss(*kind, z).1,
        (op, args) => panic!("{op:?} of {} values", args.len()),
    }
}

/// The greatest difference of two matrices, against their size.
pub fn distance(found: &M, expected: &M) -> f64 {
    let off = zip(found, expected, |a, b| {
        let off = (a - b).abs() / (1.0 + b.abs());
        if off.is_nan() { f64::INFINITY } else { off }
    });
    off.rows().flatten().fold(0.0, |most: f64, &d| most.max(d))
}

pub fn assert_same(found: &M, expected: &M, what: &str) {
    let off = distance(found, expected);
    assert!(off < 1e-9, "{what}: off by {off:e}\nfound {found:?}\nexpected {expected:?}");
}
