//! [`Suite`]: which problems `lacis bench ops --suite` goes through.
//!
//! The grid is that of Hosseini, Simini and Vishwanath, "Operation-Level Performance Benchmarking
//! of Graph Neural Networks for Scientific Applications" (2022): long, square and cubic operands,
//! every axis, factors by which an index reduces or repeats, operands of which a share is zero,
//! sparse matrices of several densities. Added are indices that are sorted or skewed, small
//! operands, bf16, and graphs. Left out are spline convolution and f16.
//!
//! ```text
//!  shape   axis      what Lacis is given (an index is a matrix with an entry per item)
//!  long    0         x: n × 1
//!  square  0, 1      x: n × n, along rows or columns
//!  cube    0, 2      x: n × n² along rows, n² × n along columns
//!  cube    1         x: n² × n along rows, the index once for each of n blocks
//! ```

use lacis_core::reference::Reduce;
use lacis_core::{Csr, CsrParts, DType, Result, RowPtr, Threads};

use super::numbers::Numbers;
use super::{Form, find};

/// How much is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Suite {
    /// A look at everything, in under two minutes.
    Quick,
    /// The paper's grid.
    Paper,
    /// Operations on whole graphs.
    Graphs,
}

/// The form of a dense operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// A column.
    Long,
    /// As many rows as columns.
    Square,
    /// Three axes of the same length.
    Cube,
    /// A row per node of a graph, or of a sparse matrix.
    Rows,
}

/// How an index goes over its range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Everything as likely.
    Uniform,
    /// The same, in order.
    Sorted,
    /// A few named very often.
    PowerLaw,
}

/// A problem of a suite.
#[derive(Clone, Debug, PartialEq)]
pub struct Case {
    /// The operation.
    pub op: &'static str,
    /// Where the matrix comes from.
    pub matrix: Matrix,
    /// The dense operand's shape.
    pub shape: Shape,
    /// Along which of its axes.
    pub dim: usize,
    /// By how much an index reduces, or how often entries repeat.
    pub factor: usize,
    /// Columns for the operation.
    pub k: usize,
    /// Of the other factor, or how often entries repeat.
    pub n: usize,
    /// What is computed.
    pub form: Form,
}

/// The sparse matrix, or the index, of a case.
#[derive(Clone, Debug, PartialEq)]
pub enum Matrix {
    /// An entry per item, of a range, as often as there are blocks.
    Picks {
        /// Items of a block.
        items: usize,
        /// Places of a block.
        range: usize,
        /// How often over.
        blocks: usize,
        /// In which order.
        order: Order,
        /// Whether rows are places instead of items: what segments are cut by.
        turned: bool,
    },
    /// So many rows and columns, with this share of entries absent.
    Square(usize, usize, f64),
    /// What a generator's name stands for.
    Named(String),
}

impl Case {
    /// What tells it from all other cases.
    pub fn id(&self) -> String {
        let Form { reduce, weighted, dtype, axis, sparsity } = self.form;
        let Case { op, shape, dim, factor, k, n, .. } = self;
        let of = self.matrix_id();
        let form = format!("{reduce:?} {weighted} {dtype:?} axis {axis} zeros {sparsity}");
        format!("{op} {of} {shape:?} dim {dim} by {factor} k {k} n {n} {form}").to_lowercase()
    }

    /// What tells its matrix from others: cases with the same one are best done together.
    pub fn matrix_id(&self) -> String {
        match &self.matrix {
            Matrix::Named(name) => name.clone(),
            Matrix::Square(n, m, absent) => format!("square:{n}x{m},absent={absent}"),
            Matrix::Picks { items, range, blocks, order, turned } => {
                let kind = if *turned { "segments" } else { "picks" };
                format!("{kind}:{items}of{range}x{blocks},{order:?}").to_lowercase()
            }
        }
    }

    /// How the index goes over its range, where there is one.
    pub fn order(&self) -> Option<Order> {
        match self.matrix {
            // A dense product takes the number of rows from it, and nothing else.
            Matrix::Picks { order, .. } if !["matmul", "addmm"].contains(&self.op) => Some(order),
            _ => None,
        }
    }

    /// How often the same index applies: the middle axis of a cube.
    pub fn blocks(&self) -> usize {
        match self.matrix {
            Matrix::Picks { blocks, .. } => blocks,
            _ => 1,
        }
    }
}

impl Matrix {
    /// Makes it; a name is for those who can open it.
    ///
    /// # Errors
    /// When the system refuses the memory.
    pub fn make(&self, threads: &Threads) -> Result<Option<Csr>> {
        match *self {
            Matrix::Named(_) => Ok(None),
            Matrix::Square(n, m, absent) => square(n, m, absent, threads).map(Some),
            Matrix::Picks { items, range, blocks, order, turned } => {
                let one = picks(items, range, order);
                let cols = (0..blocks).flat_map(|b| {
                    let first = (b * range) as u32;
                    one.iter().map(move |j| first + j)
                });
                let all = items * blocks;
                let parts = CsrParts {
                    n_cols: range * blocks,
                    row_ptr: RowPtr::Wide((0..=all as u64).collect::<Vec<_>>().into()),
                    cols: cols.collect::<Vec<u32>>().into(),
                    values: None,
                    order: None,
                };
                let matrix = Csr::new(parts, threads)?;
                Ok(Some(if turned { matrix.transpose(threads) } else { matrix }))
            }
        }
    }
}

/// An index: which of `range` places each of `items` names.
fn picks(items: usize, range: usize, order: Order) -> Vec<u32> {
    // From [-1, 1) to [0, 1).
    let share = |i: usize| f64::from(Numbers("picks").at(i, 0)) / 2.0 + 0.5;
    let place = |share: f64| ((share * range as f64) as usize).min(range.saturating_sub(1)) as u32;
    let mut all: Vec<u32> = match order {
        // Half of all items name a sixteenth of the places; those lie anywhere.
        Order::PowerLaw => {
            let spread = |rank: u32| (rank as usize * 0x9E37 % range.max(1)) as u32;
            (0..items).map(|i| spread(place(share(i).powi(4)))).collect()
        }
        _ => (0..items).map(|i| place(share(i))).collect(),
    };
    if order == Order::Sorted {
        all.sort_unstable();
    }
    all
}

/// A matrix of which every entry is there or not, each by its own number.
fn square(n: usize, m: usize, absent: f64, threads: &Threads) -> Result<Csr> {
    let below = (2.0 * absent - 1.0) as f32;
    let there = |i: usize| (0..m).filter(move |&j| Numbers("there").at(i, j) >= below);
    let (mut row_ptr, mut cols) = (vec![0u64], Vec::new());
    for i in 0..n {
        cols.extend(there(i).map(|j| j as u32));
        row_ptr.push(cols.len() as u64);
    }
    let parts = CsrParts {
        n_cols: m,
        row_ptr: RowPtr::Wide(row_ptr.into()),
        cols: cols.into(),
        values: None,
        order: None,
    };
    Csr::new(parts, threads)
}

/// Bytes of the dense operand of small cases.
const SMALL: usize = 1 << 20;
/// The least and the most that large ones have.
const LARGE: [usize; 2] = [16 << 20, 128 << 20];
/// Of this share of memory, between these.
const SHARE: usize = 512;
const QUICK: usize = 8 << 20;

const SCATTERS: [&str; 5] =
    ["scatter_add", "scatter_mul", "scatter_mean", "scatter_min", "scatter_max"];
const SEGMENTS: [&str; 5] =
    ["segment_sum", "segment_mul", "segment_mean", "segment_min", "segment_max"];
/// Shares of zeros.
const ZEROS: [f64; 4] = [0.0, 0.5, 0.9, 0.99];
const FACTORS: [usize; 4] = [1, 2, 4, 8];
const ORDERS: [Order; 3] = [Order::Uniform, Order::Sorted, Order::PowerLaw];
/// Shapes and their axes.
const EVERYWHERE: [(Shape, usize); 6] = [
    (Shape::Long, 0),
    (Shape::Square, 0),
    (Shape::Square, 1),
    (Shape::Cube, 0),
    (Shape::Cube, 1),
    (Shape::Cube, 2),
];

/// All problems of a suite, for a machine with so much memory; those with the same matrix lie
/// together.
pub fn cases(suite: Suite, memory_bytes: usize) -> Vec<Case> {
    let mut cases = match suite {
        Suite::Quick => quick(),
        Suite::Paper => paper((memory_bytes / SHARE).clamp(LARGE[0], LARGE[1])),
        Suite::Graphs => graphs(),
    };
    let mut seen = std::collections::HashSet::new();
    cases.retain(|case| seen.insert(case.id()));
    let mut matrices: Vec<String> = Vec::new();
    cases.iter().for_each(|case| {
        if !matrices.contains(&case.matrix_id()) {
            matrices.push(case.matrix_id());
        }
    });
    cases.sort_by_key(|case| matrices.iter().position(|id| *id == case.matrix_id()));
    cases
}

fn quick() -> Vec<Case> {
    let mut cases = Vec::new();
    for op in SCATTERS.into_iter().chain(SEGMENTS).chain(["index_select", "index_add"]) {
        for at in &EVERYWHERE[..3] {
            cases.extend(by_index(op, *at, &Index::plain(QUICK)));
        }
    }
    for order in ORDERS {
        let index = Index { order, factor: 4, ..Index::plain(QUICK) };
        for op in ["index_select", "scatter_add", "segment_sum", "index_add"] {
            cases.extend(by_index(op, (Shape::Square, 0), &index));
        }
    }
    for at in EVERYWHERE {
        cases.extend(by_index("gather", at, &Index::plain(QUICK)));
        cases.extend(by_index("index_select", at, &Index::plain(SMALL)));
    }
    for zeros in [0.0, 0.9] {
        let index = Index { zeros, ..Index::plain(QUICK) };
        cases.extend(by_index("scatter_max", (Shape::Square, 0), &index));
        cases.extend(dense(512, zeros));
        cases.extend(sparse(1 << 18, zeros.max(0.5), 64));
    }
    let bf16 = Index { dtype: DType::Bf16, ..Index::plain(QUICK) };
    cases.extend(by_index("index_select", (Shape::Square, 0), &bf16));
    cases.extend(on_graph("rmat:n=10k,e=100k,seed=1", &[32]));
    cases
}

fn paper(large: usize) -> Vec<Case> {
    let mut cases = Vec::new();
    let plain = || Index::plain(large);
    for op in SCATTERS.into_iter().chain(SEGMENTS).chain(["index_select", "index_add", "gather"]) {
        // Where the paper has both, every share of zeros with every factor.
        let (shapes, factors) = match op {
            "index_select" => (&EVERYWHERE[..], &FACTORS[..]),
            "gather" => (&EVERYWHERE[..], &FACTORS[..1]),
            "index_add" => (&EVERYWHERE[..3], &FACTORS[..1]),
            _ => (&EVERYWHERE[..2], &FACTORS[..]),
        };
        let alone = |zeros, factor| op.starts_with("segment") && zeros > 0.0 && factor > 1;
        for (at, zeros) in shapes.iter().flat_map(|at| ZEROS.map(|zeros| (*at, zeros))) {
            for &factor in factors.iter().filter(|factor| !alone(zeros, **factor)) {
                cases.extend(by_index(op, at, &Index { zeros, factor, ..plain() }));
            }
        }
        // What it has not, one at a time: every axis, bf16, other orders, small operands.
        for at in EVERYWHERE {
            cases.extend(by_index(op, at, &plain()));
            cases.extend(by_index(op, at, &Index { dtype: DType::Bf16, ..plain() }));
        }
        for (at, order) in EVERYWHERE[..2].iter().flat_map(|at| ORDERS.map(|order| (*at, order))) {
            cases.extend(by_index(op, at, &Index { order, ..plain() }));
        }
        cases.extend(EVERYWHERE[..3].iter().flat_map(|at| by_index(op, *at, &Index::plain(SMALL))));
    }
    for zeros in ZEROS {
        cases.extend(dense(256, zeros));
        cases.extend(dense(2048, zeros));
    }
    for absent in [0.5, 0.9, 0.99] {
        cases.extend(sparse(1 << 21, absent, 256));
        cases.extend(sparse(1 << 14, absent, 64));
    }
    cases
}

/// Graphs that differ in how rows and columns are spread, small ones and ones beyond the caches.
const GRAPHS: [&str; 8] = [
    "grid:rows=40,cols=50",
    "grid:rows=700,cols=700",
    "er:n=2k,e=20k,seed=1",
    "er:n=200k,e=2M,seed=1",
    "ba:n=2k,m=5,seed=1",
    "ba:n=200k,m=5,seed=1",
    "rmat:n=2k,e=20k,seed=1",
    "rmat:n=200k,e=2M,seed=1",
];

fn graphs() -> Vec<Case> {
    GRAPHS.iter().flat_map(|name| on_graph(name, &[1, 16, 64, 128])).collect()
}

/// How an index goes over an operand.
struct Index {
    bytes: usize,
    factor: usize,
    zeros: f64,
    order: Order,
    dtype: DType,
}

impl Index {
    /// Every place once on average, in f32.
    fn plain(bytes: usize) -> Self {
        Index { bytes, factor: 1, zeros: 0.0, order: Order::Uniform, dtype: DType::F32 }
    }
}

/// Whether an operation is measured in another type than f32.
fn stores(op: &str, dtype: DType) -> bool {
    dtype == DType::F32 || ["index_select", "matmul", "addmm", "spmm"].contains(&op)
}

/// An operation by index along an axis, where it is measured like that.
fn by_index(op: &'static str, (shape, dim): (Shape, usize), index: &Index) -> Option<Case> {
    let Index { bytes, factor, zeros, order, dtype } = *index;
    // An index for every element has no blocks.
    if !stores(op, dtype) || op == "gather" && (shape, dim) == (Shape::Cube, 1) {
        return None;
    }
    let elements = bytes / if dtype == DType::Bf16 { 2 } else { 4 };
    let (extent, k, blocks) = match shape {
        Shape::Long | Shape::Rows => (elements, 1, 1),
        Shape::Square => ((elements as f64).sqrt() as usize, 0, 1),
        Shape::Cube => ((elements as f64).cbrt() as usize, 0, 1),
    };
    let (k, blocks) = match (shape, dim) {
        (Shape::Square, _) => (extent, blocks),
        (Shape::Cube, 1) => (extent, extent),
        (Shape::Cube, _) => (extent * extent, blocks),
        _ => (k, blocks),
    };
    let picks = op == "index_select" || op == "gather";
    let few = (extent / factor).max(1);
    let (items, range) = if picks { (few, extent) } else { (extent, few) };
    let axis = usize::from((shape, dim) == (Shape::Square, 1) || (shape, dim) == (Shape::Cube, 2));
    let turned = op.starts_with("segment");
    let reduce = reduce_of(op);
    Some(Case {
        op,
        matrix: Matrix::Picks { items, range, blocks, order, turned },
        shape,
        dim,
        factor,
        k,
        n: 0,
        form: Form { reduce, dtype, axis, sparsity: zeros, ..Form::PLAIN },
    })
}

fn reduce_of(op: &str) -> Reduce {
    match op.rsplit('_').next() {
        Some("mean") => Reduce::Mean,
        Some("max") => Reduce::Max,
        Some("min") => Reduce::Min,
        Some("mul") => Reduce::Mul,
        _ => Reduce::Sum,
    }
}

/// Dense products of squares, of a row and a column, of a square and a column.
fn dense(n: usize, zeros: f64) -> Vec<Case> {
    let forms = [(n, n), (1, n), (n, 1)];
    let each = |op: &'static str, dtype: DType| {
        forms.map(|(k, outer)| Case {
            op,
            matrix: Matrix::Picks {
                items: n,
                range: n,
                blocks: 1,
                order: Order::Sorted,
                turned: false,
            },
            shape: Shape::Square,
            dim: 0,
            factor: 1,
            k,
            n: outer,
            form: Form { dtype, sparsity: zeros, ..Form::PLAIN },
        })
    };
    let all = [("addmm", DType::F32), ("matmul", DType::F32), ("matmul", DType::Bf16)];
    all.into_iter().flat_map(|(op, dtype)| each(op, dtype)).collect()
}

/// Sparse matrices of about so many entries: products, and what makes matrices.
fn sparse(entries: usize, absent: f64, k: usize) -> Vec<Case> {
    let n = (entries as f64 / (1.0 - absent)).sqrt() as usize;
    let square = Matrix::Square(n, n, absent);
    let case = |op: &'static str, k: usize, form: Form| Case {
        op,
        matrix: square.clone(),
        shape: Shape::Rows,
        dim: 0,
        factor: 1,
        k,
        n: 0,
        form,
    };
    let mut cases = vec![
        case("spmm", k, Form::WEIGHTED),
        case("spmm", 1, Form::WEIGHTED),
        case("spmm", k, Form { dtype: DType::Bf16, ..Form::PLAIN }),
        case("select_reduce", k, Form::PLAIN),
        case("transpose", 0, Form::WEIGHTED),
        case("sort", 0, Form::WEIGHTED),
    ];
    // A row times a column makes everything.
    let column = Matrix::Square(n, 1, absent);
    cases.push(Case { matrix: column, ..case("spmm", n.min(4096), Form::WEIGHTED) });
    for factor in FACTORS {
        let coalesce = case("coalesce", 0, Form::WEIGHTED);
        cases.push(Case { factor, n: factor, ..coalesce });
    }
    // As many products as entries times entries of a row.
    let (few, walks) = (n.min(1000), Form::WEIGHTED);
    cases.push(Case { matrix: Matrix::Square(few, few, absent), ..case("spgemm", 0, walks) });
    cases
}

/// Every operation on a graph.
fn on_graph(name: &str, widths: &[usize]) -> Vec<Case> {
    let mut cases = Vec::new();
    for op in super::OPERATIONS {
        let case = |k: usize, form: Form| Case {
            op: op.id,
            matrix: Matrix::Named(name.to_owned()),
            shape: Shape::Rows,
            dim: form.axis,
            factor: 1,
            k,
            n: 0,
            form,
        };
        for &k in if op.wide { widths } else { &[0] } {
            cases.extend(op.forms.iter().map(|form| case(k, *form)));
            let bf16 = Form { dtype: DType::Bf16, ..op.forms[0] };
            cases.extend(stores(op.id, DType::Bf16).then(|| case(k, bf16)));
        }
    }
    cases.retain(|case| find(case.op).is_ok());
    cases
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_operation_is_in_every_suite_that_says_so() {
        for suite in [Suite::Quick, Suite::Graphs] {
            let cases = cases(suite, 1 << 33);
            for op in super::super::OPERATIONS {
                assert!(cases.iter().any(|case| case.op == op.id), "{suite:?} {}", op.id);
            }
        }
        let paper = cases(Suite::Paper, 1 << 33);
        for (zeros, factor) in ZEROS.iter().flat_map(|zeros| FACTORS.map(|f| (*zeros, f))) {
            let is = |case: &&Case| case.form.sparsity == zeros && case.factor == factor;
            assert!(paper.iter().filter(is).any(|case| case.op == "scatter_max"));
        }
        assert!(ORDERS.iter().all(|order| paper.iter().any(|case| case.order() == Some(*order))));
        assert!(paper.iter().any(|case| case.form.dtype == DType::Bf16));
    }

    #[test]
    fn cases_differ_and_those_of_a_matrix_lie_together() {
        for suite in [Suite::Quick, Suite::Paper, Suite::Graphs] {
            let cases = cases(suite, 1 << 34);
            let ids: std::collections::HashSet<_> = cases.iter().map(Case::id).collect();
            assert_eq!(ids.len(), cases.len());
            let matrices: Vec<_> = cases.iter().map(Case::matrix_id).collect();
            let changes = matrices.windows(2).filter(|pair| pair[0] != pair[1]).count();
            let distinct: std::collections::HashSet<_> = matrices.iter().collect();
            assert_eq!(changes + 1, distinct.len());
        }
    }

    #[test]
    fn an_index_is_in_range_and_as_its_order_says() {
        let skew = |order| {
            let mut counts = vec![0; 100];
            picks(10_000, 100, order).iter().for_each(|&place| counts[place as usize] += 1);
            *counts.iter().max().unwrap()
        };
        assert!(skew(Order::Uniform) < 200 && skew(Order::PowerLaw) > 1000);
        let sorted = picks(1000, 50, Order::Sorted);
        assert!(sorted.is_sorted() && sorted.iter().all(|&place| place < 50));
        let threads = Threads::one();
        let blocks =
            Matrix::Picks { items: 4, range: 3, blocks: 2, order: Order::Uniform, turned: true };
        let matrix = blocks.make(&threads).unwrap().unwrap();
        assert_eq!((matrix.n_rows(), matrix.n_cols(), matrix.nnz()), (6, 8, 8));
        let half = Matrix::Square(100, 100, 0.9).make(&threads).unwrap().unwrap();
        assert!((800..1200).contains(&half.nnz()));
    }
}
