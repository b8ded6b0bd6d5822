//! Compositions: all ways to bracket a chain of products, without looking at any input.
//!
//! ```text
//!  D·A·D·X·W ─► factors ─► trees ─► primitives of each ─► those that nobody dominates
//! ```
//! After Lenadora et al. (SENSEi, arXiv 2306.15155): products of two sparse matrices fill in and
//! are never made; `(D·A)·D` and `D·(A·D)` are one primitive; a composition is dropped when another
//! needs no more of anything, whatever the graph, for each order that the widths can have.

use std::collections::BTreeMap;

use crate::expr::{Expr, Kind, mul};
use crate::op::Op;

/// Why an enumeration ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopReason {
    /// Everything was seen.
    Complete,
    /// There were more than this many.
    Budget(usize),
}

/// A way to bracket factors, by their places.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Tree {
    /// A factor.
    Factor(usize),
    /// Two products multiplied.
    Product(Box<Tree>, Box<Tree>),
}

/// The factors of a chain, from left to right. Transposes of products are products of transposes;
/// what a layer's barrier, a function or a sum gives is one factor.
pub fn factors(expr: &Expr) -> Vec<Expr> {
    match (expr.op(), expr.args()) {
        (Op::Mul, [a, b]) => [factors(a), factors(b)].concat(),
        (Op::Transpose, [x]) if matches!(x.op(), Op::Mul) => {
            let mut turned: Vec<Expr> = factors(x).iter().map(Expr::t).collect();
            turned.reverse();
            turned
        }
        _ => vec![expr.clone()],
    }
}

/// The kinds and the widths of a chain: all that its compositions depend on. A width is named by
/// its place in the chain, and `None` stands for nodes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Chain {
    kinds: Vec<Kind>,
    /// Columns of each factor.
    widths: Vec<Option<usize>>,
    constant: Vec<bool>,
}

impl Chain {
    /// Of factors.
    pub fn new(factors: &[Expr]) -> Self {
        let width = |(place, factor): (usize, &Expr)| {
            matches!(factor.cols(), crate::dim::Dim::Width(_)).then_some(place)
        };
        Chain {
            kinds: factors.iter().map(Expr::kind).collect(),
            widths: factors.iter().enumerate().map(width).collect(),
            constant: factors.iter().map(Expr::is_constant).collect(),
        }
    }

    /// The orders that the widths may have: a rank for each place.
    fn scenarios(&self) -> Vec<BTreeMap<usize, usize>> {
        let places: Vec<usize> = self.widths.iter().flatten().copied().collect();
        match places.as_slice() {
            // Every order of two; of more, only those in which one of the ends is the smallest.
            [] => vec![BTreeMap::new()],
            places => {
                let up = places.iter().enumerate().map(|(rank, &place)| (place, rank)).collect();
                let down = places.iter().rev().enumerate().map(|(rank, &place)| (place, rank));
                let down: BTreeMap<usize, usize> = down.collect();
                if places.len() == 1 { vec![up] } else { vec![up, down] }
            }
        }
    }
}

/// A step that a composition takes, and how wide it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Primitive {
    /// Dense times dense, from one width to another.
    Gemm(usize, usize),
    /// A matrix without values times a dense one.
    Spmm(usize),
    /// A matrix with values times a dense one.
    SpmmValued(usize),
    /// Rows of a dense matrix scaled.
    RowScale(usize),
    /// Entries of a sparse matrix scaled, by rows and columns at once; once per graph.
    EntryScale,
    /// Two diagonals multiplied; once per graph.
    DiagonalProduct,
    /// Two sparse matrices multiplied.
    Spgemm,
}

impl Primitive {
    /// Whether a graph needs it only once.
    pub fn once(self) -> bool {
        matches!(self, Primitive::EntryScale | Primitive::DiagonalProduct)
    }
}

/// A tree of an interval of factors, and what it gives.
#[derive(Clone)]
struct Made {
    tree: Tree,
    kind: Kind,
    /// `S·D`: sparse, and scaled on the right last.
    scaled_right: bool,
}

/// All trees of a chain that multiply no two sparse matrices, in a fixed order, at most `budget`.
pub fn trees(chain: &Chain, budget: usize) -> (Vec<Tree>, StopReason) {
    let n = chain.kinds.len();
    let mut of: BTreeMap<(usize, usize), Vec<Made>> = BTreeMap::new();
    let mut stop = StopReason::Complete;
    for length in 1..=n {
        for from in 0..=n - length {
            let to = from + length;
            let mut all = Vec::new();
            if length == 1 {
                let (tree, kind) = (Tree::Factor(from), chain.kinds[from]);
                all.push(Made { tree, kind, scaled_right: false });
            }
            for cut in from + 1..to {
                let pairs = of[&(from, cut)].iter().flat_map(|left| {
                    of[&(cut, to)].iter().filter_map(move |right| product(left, right))
                });
                all.extend(pairs.take(budget + 1));
            }
            if all.len() > budget {
                stop = StopReason::Budget(budget);
                all.truncate(budget);
            }
            of.insert((from, to), all);
        }
    }
    let all = of.remove(&(0, n)).unwrap_or_default();
    (all.into_iter().map(|made| made.tree).collect(), stop)
}

/// Two parts multiplied, unless that fills in, or is the second of the two orders of `D·A·D`.
fn product(left: &Made, right: &Made) -> Option<Made> {
    let kind = match (left.kind, right.kind) {
        (Kind::Sparse, Kind::Sparse) => return None,
        (Kind::Diagonal, Kind::Sparse) if right.scaled_right => return None,
        (Kind::Dense, _) | (_, Kind::Dense) => Kind::Dense,
        (Kind::Diagonal, Kind::Diagonal) => Kind::Diagonal,
        _ => Kind::Sparse,
    };
    let scaled_right = kind == Kind::Sparse && right.kind == Kind::Diagonal;
    let tree = Tree::Product(Box::new(left.tree.clone()), Box::new(right.tree.clone()));
    Some(Made { tree, kind, scaled_right })
}

impl Tree {
    /// The formula that it makes of factors.
    pub fn build(&self, factors: &[Expr]) -> Expr {
        match self {
            Tree::Factor(place) => factors[*place].clone(),
            Tree::Product(a, b) => mul(&a.build(factors), &b.build(factors)),
        }
    }

    /// Its primitives, sorted.
    pub fn primitives(&self, chain: &Chain) -> Vec<Primitive> {
        let mut all = Vec::new();
        self.collect(chain, &mut all);
        all.sort_unstable();
        all
    }

    /// Adds the primitives; returns the kind, whether there are values, and the last factor.
    fn collect(&self, chain: &Chain, all: &mut Vec<Primitive>) -> (Kind, bool, usize) {
        let (a, b) = match self {
            Tree::Factor(place) => return (chain.kinds[*place], false, *place),
            Tree::Product(a, b) => (a, b),
        };
        let (left, valued, inner) = a.collect(chain, all);
        let (right, right_valued, last) = b.collect(chain, all);
        let width = chain.widths[last].unwrap_or(0);
        let (kind, primitive) = match (left, right) {
            (Kind::Dense, Kind::Dense) => {
                (Kind::Dense, Some(Primitive::Gemm(chain.widths[inner].unwrap_or(0), width)))
            }
            (Kind::Sparse, Kind::Dense) if valued => {
                (Kind::Dense, Some(Primitive::SpmmValued(width)))
            }
            (Kind::Sparse, Kind::Dense) => (Kind::Dense, Some(Primitive::Spmm(width))),
            (_, Kind::Dense) | (Kind::Dense, Kind::Diagonal) => {
                (Kind::Dense, Some(Primitive::RowScale(width)))
            }
            (Kind::Dense, _) => (Kind::Dense, Some(Primitive::Spmm(width))),
            (Kind::Diagonal, Kind::Diagonal) => (Kind::Diagonal, Some(Primitive::DiagonalProduct)),
            (Kind::Sparse, Kind::Sparse) => (Kind::Sparse, Some(Primitive::Spgemm)),
            // Scaling rows and columns of entries is one pass.
            _ => (Kind::Sparse, (!valued && !right_valued).then_some(Primitive::EntryScale)),
        };
        all.extend(primitive);
        (kind, kind == Kind::Sparse, last)
    }
}

/// A composition that was dropped, and by what.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pruned {
    /// Which.
    pub tree: Tree,
    /// The rule: `same primitives as …`, `dominated by …`.
    pub by: String,
}

/// Trees of a chain, without those that another one dominates in every order of the widths.
#[derive(Clone, Debug)]
pub struct Compositions {
    /// How many there were.
    pub enumerated: usize,
    /// Those worth a look at the input, in a fixed order.
    pub kept: Vec<Tree>,
    /// The others.
    pub pruned: Vec<Pruned>,
    /// Why the enumeration ended.
    pub stop: StopReason,
}

/// Enumerates and prunes a chain.
pub fn compositions(chain: &Chain, budget: usize) -> Compositions {
    let (trees, stop) = trees(chain, budget);
    let primitives: Vec<Vec<Primitive>> = trees.iter().map(|t| t.primitives(chain)).collect();
    let mut keep = vec![false; trees.len()];
    let mut by: Vec<Option<(usize, &str)>> = vec![None; trees.len()];
    for ranks in chain.scenarios() {
        let classes = Classes::new(&primitives, &ranks);
        for c in 0..trees.len() {
            match classes.dropped_by(c) {
                None => keep[c] = true,
                Some(d) => {
                    let same = primitives[c] == primitives[d];
                    by[c] = Some((d, if same { "same primitives as" } else { "dominated by" }));
                }
            }
        }
    }
    let (mut kept, mut pruned) = (Vec::new(), Vec::new());
    for (c, tree) in trees.iter().enumerate() {
        match by[c] {
            Some((d, rule)) if !keep[c] => {
                pruned.push(Pruned { tree: tree.clone(), by: format!("{rule} {}", d + 1) });
            }
            _ => kept.push(tree.clone()),
        }
    }
    Compositions { enumerated: trees.len(), kept, pruned, stop }
}

/// Widths replaced by their ranks.
fn ranked(primitive: Primitive, ranks: &BTreeMap<usize, usize>) -> Primitive {
    let rank = |place: usize| ranks.get(&place).copied().unwrap_or(0);
    match primitive {
        // Every composition has the same dense products, in whatever order.
        Primitive::Gemm(..) => Primitive::Gemm(0, 0),
        Primitive::Spmm(place) => Primitive::Spmm(rank(place)),
        Primitive::SpmmValued(place) => Primitive::SpmmValued(rank(place)),
        Primitive::RowScale(place) => Primitive::RowScale(rank(place)),
        other => other,
    }
}

/// Compositions that need the same, whatever their order: there are thousands of trees but few of
/// these, and only these are compared with each other.
struct Classes {
    /// The class of each composition.
    of: Vec<usize>,
    /// The first composition of each class.
    first: Vec<usize>,
    /// Whether a class needs no more than another.
    fits: Vec<Vec<bool>>,
}

impl Classes {
    fn new(primitives: &[Vec<Primitive>], ranks: &BTreeMap<usize, usize>) -> Self {
        let mut number: BTreeMap<Vec<Primitive>, usize> = BTreeMap::new();
        let (mut of, mut first) = (Vec::new(), Vec::new());
        for (c, all) in primitives.iter().enumerate() {
            let mut needs: Vec<Primitive> = all.iter().map(|p| ranked(*p, ranks)).collect();
            needs.sort_unstable();
            let class = *number.entry(needs).or_insert(first.len());
            if class == first.len() {
                first.push(c);
            }
            of.push(class);
        }
        let mut all: Vec<(&Vec<Primitive>, usize)> = number.iter().map(|(n, c)| (n, *c)).collect();
        all.sort_unstable_by_key(|(_, class)| *class);
        let fits = all.iter().map(|(d, _)| all.iter().map(|(c, _)| matched(d, c)).collect());
        Classes { fits: fits.collect(), of, first }
    }

    /// The first composition that makes `c` superfluous: it needs no more of anything, and less of
    /// something or is earlier in the list.
    fn dropped_by(&self, c: usize) -> Option<usize> {
        let own = self.of[c];
        let drops = |class: usize, d: usize| {
            d != c && self.fits[class][own] && (d < c || !self.fits[own][class])
        };
        let found = self.first.iter().enumerate().find(|&(class, &d)| drops(class, d));
        found.map(|(_, &d)| d)
    }
}

/// Whether each of `small` finds its own in `large` that is no cheaper, once-costs among
/// themselves. Greedy from the widest is enough: what serves a wide one serves a narrow one.
fn matched(small: &[Primitive], large: &[Primitive]) -> bool {
    let mut free: Vec<Primitive> = large.to_vec();
    let mut wanted: Vec<Primitive> = small.to_vec();
    wanted.sort_unstable_by_key(|p| std::cmp::Reverse(demand(*p)));
    wanted.iter().all(|&p| {
        let fits = free.iter().enumerate().filter(|(_, q)| serves(p, **q));
        match fits.min_by_key(|(_, q)| demand(**q)).map(|(at, _)| at) {
            Some(at) => {
                free.swap_remove(at);
                true
            }
            None => false,
        }
    })
}

/// How wide, and valued after bare.
fn demand(p: Primitive) -> (usize, u8) {
    match p {
        Primitive::SpmmValued(w) => (w, 1),
        Primitive::Spmm(w) | Primitive::RowScale(w) => (w, 0),
        _ => (0, 0),
    }
}

/// Whether `p` is the same operation as `q` and no larger.
fn serves(p: Primitive, q: Primitive) -> bool {
    use Primitive::{Gemm, RowScale, Spmm, SpmmValued};
    match (p, q) {
        (Spmm(a), Spmm(b) | SpmmValued(b)) | (SpmmValued(a), SpmmValued(b)) => a <= b,
        (RowScale(a), RowScale(b)) => a <= b,
        (Gemm(..), Gemm(..)) => true,
        (p, q) => p == q,
    }
}
