//! [`Expr`]: a matrix formula as a shared, shape-checked value.
//!
//! Two expressions that compute the same thing in the same way have the same [`Expr::id`]: what
//! occurs twice is computed once. Building never fails; a formula whose shapes do not fit says so
//! when it is checked ([`Expr::check`]), with the place where it went wrong.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::Arc;

use lacis_core::reference::Activation;
use lacis_core::{Error, Result};
use xxhash_rust::xxh3::xxh3_128;

use crate::dim::Dim;
use crate::op::{Adjacency, Graph, Op};

/// What a value is stored as.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Rows of numbers.
    Dense,
    /// A pattern of entries, with values or without.
    Sparse,
    /// One number per row.
    Diagonal,
    /// Several values at once; [`Op::Part`] takes one.
    Parts,
}

/// A formula. Cheap to clone.
#[derive(Clone)]
pub struct Expr(Arc<Node>);

struct Node {
    op: Op,
    args: Vec<Expr>,
    shape: [Dim; 2],
    kind: Kind,
    constant: bool,
    id: u128,
    problem: Option<String>,
}

impl PartialEq for Expr {
    fn eq(&self, other: &Self) -> bool {
        self.0.id == other.0.id
    }
}

impl Eq for Expr {}

impl std::hash::Hash for Expr {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.0.id.hash(state);
    }
}

impl fmt::Debug for Expr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self} ({}×{})", self.rows(), self.cols())
    }
}

impl Expr {
    /// An operation on arguments. Its shape follows from the operation.
    pub fn new(op: Op, args: Vec<Expr>) -> Self {
        let bytes = fingerprint(&op, &args);
        let (shape, kind, problem) = match op.shape(&args) {
            Ok((shape, kind)) => (shape, kind, None),
            Err(problem) => ([Dim::Width(0); 2], Kind::Dense, Some(problem)),
        };
        let problem = args.iter().find_map(|arg| arg.0.problem.clone()).or(problem);
        let constant = op.is_constant() && args.iter().all(|arg| arg.0.constant);
        Expr(Arc::new(Node { id: xxh3_128(&bytes), op, args, shape, kind, constant, problem }))
    }

    /// The operation.
    pub fn op(&self) -> &Op {
        &self.0.op
    }

    /// Its arguments.
    pub fn args(&self) -> &[Expr] {
        &self.0.args
    }

    /// Rows and columns.
    pub fn shape(&self) -> [Dim; 2] {
        self.0.shape
    }

    /// Rows.
    pub fn rows(&self) -> Dim {
        self.0.shape[0]
    }

    /// Columns.
    pub fn cols(&self) -> Dim {
        self.0.shape[1]
    }

    /// How wide it is, where that is a number.
    pub fn width(&self) -> usize {
        match self.cols() {
            Dim::Width(width) => width,
            _ => 0,
        }
    }

    /// What it is stored as.
    pub fn kind(&self) -> Kind {
        self.0.kind
    }

    /// Whether no epoch changes it: it comes from graph and features alone.
    pub fn is_constant(&self) -> bool {
        self.0.constant
    }

    /// Equal for equal formulas.
    pub fn id(&self) -> u128 {
        self.0.id
    }

    /// Whether all shapes fit.
    ///
    /// # Errors
    /// The innermost place where they do not.
    pub fn check(&self) -> Result<()> {
        match &self.0.problem {
            None => Ok(()),
            Some(problem) => Err(Error::argument("formula", problem.clone())),
        }
    }

    /// What a barrier surrounds; anything else is itself.
    pub fn body(&self) -> &Expr {
        match (self.op(), self.args()) {
            (Op::Layer(_) | Op::LayerGrad(_), [x]) => x.body(),
            _ => self,
        }
    }

    /// Every sub-formula once, arguments before what uses them.
    pub fn sorted(roots: &[Expr]) -> Vec<Expr> {
        let (mut seen, mut order) = (HashSet::new(), Vec::new());
        // An explicit stack: networks may be thousands of operations deep.
        let mut stack: Vec<(Expr, bool)> =
            roots.iter().rev().map(|root| (root.clone(), false)).collect();
        while let Some((expr, done)) = stack.pop() {
            if done {
                order.push(expr);
            } else if seen.insert(expr.id()) {
                stack.push((expr.clone(), true));
                stack.extend(expr.args().iter().rev().map(|arg| (arg.clone(), false)));
            }
        }
        order
    }

    /// The same formula with some parts replaced; what contains them is built anew, and what they
    /// contained is not looked at.
    pub fn replace(&self, replacement: &dyn Fn(&Expr) -> Option<Expr>) -> Expr {
        let [new] = <[Expr; 1]>::try_from(Expr::replace_all([self], replacement))
            .unwrap_or_else(|_| unreachable!("one root gives one"));
        new
    }

    /// The same in several formulas; what they share is looked at once.
    pub fn replace_all<'e>(
        roots: impl IntoIterator<Item = &'e Expr>,
        replacement: &dyn Fn(&Expr) -> Option<Expr>,
    ) -> Vec<Expr> {
        let mut made: HashMap<u128, Expr> = HashMap::new();
        let mut replaced = |root: &Expr| {
            let mut stack = vec![(root.clone(), false)];
            while let Some((expr, done)) = stack.pop() {
                if made.contains_key(&expr.id()) {
                    continue;
                }
                if done {
                    let args: Vec<Expr> =
                        expr.args().iter().map(|a| made[&a.id()].clone()).collect();
                    let same = args == expr.args();
                    let new = if same { expr.clone() } else { rebuilt(expr.op(), args) };
                    made.insert(expr.id(), new);
                } else if let Some(new) = replacement(&expr) {
                    made.insert(expr.id(), new);
                } else {
                    stack.push((expr.clone(), true));
                    stack.extend(expr.args().iter().map(|arg| (arg.clone(), false)));
                }
            }
            made[&root.id()].clone()
        };
        roots.into_iter().map(&mut replaced).collect()
    }
}

/// An operation on new arguments, simplified as when it is written down.
pub(crate) fn rebuilt(op: &Op, args: Vec<Expr>) -> Expr {
    match (op, args.as_slice()) {
        (Op::Mul, [a, b]) => mul(a, b),
        (Op::Transpose, [a]) => a.t(),
        (Op::Scale(by), [a]) => a.scaled(by.get()),
        (Op::Add, [a, b]) => a + b,
        _ => Expr::new(op.clone(), args),
    }
}

fn fingerprint(op: &Op, args: &[Expr]) -> Vec<u8> {
    let mut bytes = format!("{op:?}").into_bytes();
    args.iter().for_each(|arg| bytes.extend_from_slice(&arg.0.id.to_le_bytes()));
    bytes
}

/// Features of the nodes at level 0.
pub fn features(width: usize) -> Expr {
    Expr::new(Op::Features { width, sparse: false }, vec![])
}

/// The same, mostly zeros, stored as a sparse matrix.
pub fn sparse_features(width: usize) -> Expr {
    Expr::new(Op::Features { width, sparse: true }, vec![])
}

/// Something to learn.
pub fn param(name: impl Into<String>, rows: usize, cols: usize) -> Expr {
    Expr::new(Op::Param { name: name.into(), shape: [rows, cols] }, vec![])
}

/// The adjacency from a level to the next one.
pub fn adjacency(graph: Graph, level: u16) -> Expr {
    Expr::new(Op::Adjacency(Adjacency { graph, level, transposed: false }), vec![])
}

/// A power of the degrees of the nodes at a level: `half_power` −1 is `D^-½`.
pub fn degrees(graph: Graph, level: u16, half_power: i8) -> Expr {
    Expr::new(Op::Degrees { graph, level, half_power }, vec![])
}

/// Ones that keep the nodes of the next level: `I·x` is the top of `x`.
pub fn identity(level: u16) -> Expr {
    Expr::new(Op::Identity { level, transposed: false }, vec![])
}

/// `a·b`, with what is trivially simpler: transposes go to the leaves, and a product of two
/// transposed dense matrices is the transpose of one that may be there already.
pub fn mul(a: &Expr, b: &Expr) -> Expr {
    if let Op::Identity { level, transposed } = a.op()
        && b.kind() == Kind::Dense
    {
        let op = if *transposed { Op::Pad { level: *level } } else { Op::Top { level: level + 1 } };
        return Expr::new(op, vec![b.clone()]);
    }
    let dense_transposed = |e: &Expr| matches!(e.op(), Op::Transpose) && e.kind() == Kind::Dense;
    let both = dense_transposed(a) && dense_transposed(b);
    // Xᵀ·S and Xᵀ·D are (Sᵀ·X)ᵀ and (D·X)ᵀ: what is computed has nodes as rows.
    let sparse = b.kind() != Kind::Dense && a.kind() == Kind::Dense;
    if both || sparse {
        return Expr::new(Op::Transpose, vec![mul(&b.t(), &a.t())]);
    }
    Expr::new(Op::Mul, vec![a.clone(), b.clone()])
}

impl Expr {
    /// The transpose.
    pub fn t(&self) -> Expr {
        match self.op() {
            Op::Transpose => self.args()[0].clone(),
            Op::Degrees { .. } => self.clone(),
            Op::Adjacency(a) => Expr::new(Op::Adjacency(a.turned()), vec![]),
            Op::Identity { level, transposed } => {
                Expr::new(Op::Identity { level: *level, transposed: !transposed }, vec![])
            }
            Op::DropEdges { .. } => Expr::new(self.op().clone(), vec![self.args()[0].t()]),
            Op::Mul if self.turns() => mul(&self.args()[1].t(), &self.args()[0].t()),
            Op::Add if self.kind() != Kind::Dense => &self.args()[0].t() + &self.args()[1].t(),
            Op::Scale(by) if self.kind() != Kind::Dense => self.args()[0].t().scaled(by.get()),
            _ => Expr::new(Op::Transpose, vec![self.clone()]),
        }
    }

    /// Whether the transpose of a product is better written as a product of transposes.
    fn turns(&self) -> bool {
        self.kind() != Kind::Dense
            || self.args().iter().any(|arg| matches!(arg.op(), Op::Transpose))
    }

    /// `c·x`.
    pub fn scaled(&self, by: f64) -> Expr {
        match self.op() {
            _ if by == 1.0 => self.clone(),
            Op::Scale(already) => self.args()[0].scaled(by * already.get()),
            _ => Expr::new(Op::Scale(by.into()), vec![self.clone()]),
        }
    }

    /// `s·x` where `s` is learned, one number.
    pub fn scaled_by(&self, s: &Expr) -> Expr {
        Expr::new(Op::ScaleBy, vec![s.clone(), self.clone()])
    }

    /// Rows of length one.
    pub fn unit(&self) -> Expr {
        Expr::new(Op::Unit, vec![self.clone()])
    }

    /// `x + b` with the same row `b` everywhere.
    pub fn biased(&self, b: &Expr) -> Expr {
        Expr::new(Op::Bias, vec![self.clone(), b.clone()])
    }

    /// `f(x)`, element by element.
    pub fn map(&self, f: Activation) -> Expr {
        match f {
            Activation::Identity => self.clone(),
            f => Expr::new(Op::Map(f.into()), vec![self.clone()]),
        }
    }

    /// `x` with elements dropped with probability `p`; `key` tells drop-outs apart.
    pub fn dropout(&self, p: f64, key: u32) -> Expr {
        if p == 0.0 {
            return self.clone();
        }
        Expr::new(Op::Dropout { p: p.into(), key }, vec![self.clone()])
    }

    /// An adjacency with entries dropped with probability `p`; `key` tells drop-outs apart.
    pub fn drop_edges(&self, p: f64, key: u32) -> Expr {
        if p == 0.0 {
            return self.clone();
        }
        Expr::new(Op::DropEdges { p: p.into(), key }, vec![self.clone()])
    }

    /// The rows of a later level, which come first.
    pub fn top(&self, level: u16) -> Expr {
        match self.rows() {
            Dim::Nodes(own) if own == level => self.clone(),
            _ => Expr::new(Op::Top { level }, vec![self.clone()]),
        }
    }

    /// Columns of several matrices beside each other.
    pub fn concat(parts: &[Expr]) -> Expr {
        match parts {
            [one] => one.clone(),
            _ => Expr::new(Op::Concat, parts.to_vec()),
        }
    }

    /// Some columns.
    pub fn columns(&self, from: usize, width: usize) -> Expr {
        if from == 0 && Dim::Width(width) == self.cols() {
            return self.clone();
        }
        Expr::new(Op::Columns { from, width }, vec![self.clone()])
    }

    /// One of several values.
    pub fn part(&self, index: usize) -> Expr {
        Expr::new(Op::Part(index), vec![self.clone()])
    }

    /// A barrier around what a layer computes: `layer` is its number.
    pub fn in_layer(&self, layer: u16) -> Expr {
        Expr::new(Op::Layer(layer), vec![self.clone()])
    }
}

macro_rules! operator {
    ($trait:ident, $method:ident, $f:expr) => {
        impl std::ops::$trait<&Expr> for &Expr {
            type Output = Expr;
            fn $method(self, other: &Expr) -> Expr {
                $f(self, other)
            }
        }
        impl std::ops::$trait<&Expr> for Expr {
            type Output = Expr;
            fn $method(self, other: &Expr) -> Expr {
                $f(&self, other)
            }
        }
        impl std::ops::$trait<Expr> for Expr {
            type Output = Expr;
            fn $method(self, other: Expr) -> Expr {
                $f(&self, &other)
            }
        }
        impl std::ops::$trait<Expr> for &Expr {
            type Output = Expr;
            fn $method(self, other: Expr) -> Expr {
                $f(self, &other)
            }
        }
    };
}

operator!(Mul, mul, mul);
operator!(Add, add, |a: &Expr, b: &Expr| Expr::new(Op::Add, vec![a.clone(), b.clone()]));
